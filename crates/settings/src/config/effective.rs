//! Resolves a Notification, or layers, into the values that the other modules use. Defaults are applied in this step and nowhere else.

use std::collections::BTreeMap;
use std::time::Duration;

use kube_core::ResourceExt as _;

use super::layers::{Folded, Layer, fold};
use super::problem::Problem;
use super::resolve::delivering::{Delivering, Retain, delivering};
use super::resolve::given::{Given, Places};
use super::resolve::rules;
use super::resolve::sending::{self, Sending};
use super::resolve::template;
use super::resolve::trust::ReceiverHistory;
use super::selector::PipelineSelector;
use crate::trigger::Triggers;
use relaybook_api::values::refs::ConfigMapKey;
use relaybook_api::{Notification, NotificationSpec};

/// A duration that is longer than any delivery waits or is kept.
const LONG: Duration = Duration::from_hours(10 * 365 * 24);

/// A resolved notification. Its two halves, `intake` and `sending`, can fail separately.
#[derive(Clone, Debug)]
pub struct EffectiveNotification {
    /// UID of the Notification. A Notification that is deleted and created again with the same name is another notification. See
    /// [`resolve_layers`].
    pub uid: String,
    /// The namespace in which its Deliveries are kept: the namespace of the layer that set the URL.
    pub home: String,
    /// The generation of the Notification that this was resolved from.
    pub generation: Option<i64>,
    /// Which changes are recorded.
    pub intake: Result<Intake, Problem>,
    /// The keys of ConfigMaps that it refers to.
    pub config_maps: Vec<ConfigMapKey>,
    /// How its deliveries are sent.
    pub sending: Result<Sending, Problem>,
    /// Whether its deliveries are suspended. Changes are recorded, but nothing is sent.
    pub suspend: bool,
    /// Order, retries, rate and retention of deliveries. It is valid even if the rest is not, because a pending delivery still ages.
    pub delivery: Delivering,
}

impl EffectiveNotification {
    /// A placeholder for a notification whose layers are not merged yet. Changes wait until it is known whether the notification applies to
    /// them. Meanwhile nothing gets too old. `waits`: the namespace has spent its budget of compile time.
    #[must_use]
    pub fn compiling(uid: &str, namespace: &str, waits: bool) -> Self {
        let mut effective = unusable(namespace, uid, Problem::Compiling { waits });
        effective.delivery.retry.max_age = LONG;
        effective.delivery.retain = Retain { per_lane: usize::MAX, max_age: LONG };
        effective
    }

    /// Whether it applies to a pipeline with these labels. If the selector or a trigger is invalid, it counts as applying.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.intake.as_ref().map_or(true, |intake| intake.selector.selects(labels))
    }
}

/// Which changes become deliveries.
#[derive(Clone, Debug)]
pub struct Intake {
    /// The pipelines that it applies to.
    pub selector: PipelineSelector,
    /// The transitions that it applies to.
    pub triggers: Triggers,
}

/// Resolves one Notification without other layers.
#[must_use]
pub fn resolve(notification: &Notification, given: &Given<'_>) -> EffectiveNotification {
    let namespace = notification.namespace().unwrap_or_default();
    let uid = notification.uid().unwrap_or_default();
    let places = Places { folded: None, hidden: Default::default(), namespace: &namespace };
    understand(&notification.spec, &places, uid, notification.metadata.generation, given, Ok(()))
}

/// Resolves layers, least specific first, for pipelines of this namespace. `uid` identifies the notification: the UID of the Notification
/// below, the UID of the pipeline that owns it, or [`GLOBAL`](relaybook_api::delivery::GLOBAL).
#[must_use]
pub fn resolve_layers(layers: &[Layer], namespace: &str, uid: &str, given: &Given<'_>) -> EffectiveNotification {
    let mut history = ReceiverHistory::default();
    let (folded, spec) = match fold(layers, |folded| history.see(folded)).and_then(|folded| Ok((typed(&folded)?, folded))) {
        Ok((spec, folded)) => (folded, spec),
        Err(problem) => return unusable(namespace, uid, problem),
    };
    let places = Places { folded: Some(&folded), hidden: history.hidden(&folded, namespace), namespace };
    // This check runs before any template is tried, because the result of a trial can reveal what the template contains.
    let trusted = history.check(&folded);
    let mut effective = understand(&spec, &places, uid.to_owned(), None, given, trusted);
    let author = |pointer: &str| folded.author(pointer).map(ToString::to_string);
    for problem in [effective.intake.as_mut().err(), effective.sending.as_mut().err()].into_iter().flatten() {
        *problem = problem.clone().of_layers(&author);
    }
    effective
}

/// Merges layers into the spec of a Notification. It fails if the layers break the credential rule (see `trust`).
pub fn flatten(layers: &[Layer]) -> Result<NotificationSpec, Problem> {
    let mut history = ReceiverHistory::default();
    let folded = fold(layers, |folded| history.see(folded))?;
    history.check(&folded)?;
    typed(&folded)
}

fn typed(folded: &Folded) -> Result<NotificationSpec, Problem> {
    serde_path_to_error::deserialize(serde_json::Value::Object(folded.value.clone()))
        .map_err(|e| Problem::invalid(format!("spec.{}", e.path()), e.inner().to_string()))
}

/// A notification whose changes are neither recorded nor sent, because its triggers are unknown.
fn unusable(namespace: &str, uid: &str, problem: Problem) -> EffectiveNotification {
    EffectiveNotification {
        uid: uid.to_owned(),
        home: namespace.to_owned(),
        generation: None,
        intake: Err(problem.clone()),
        config_maps: Vec::new(),
        sending: Err(problem),
        suspend: false,
        delivery: Delivering::default(),
    }
}

fn understand(
    spec: &NotificationSpec,
    places: &Places<'_>,
    uid: String,
    generation: Option<i64>,
    given: &Given<'_>,
    trusted: Result<(), Problem>,
) -> EffectiveNotification {
    let (delivery, problem) = match rules::check(spec).and_then(|()| delivering(spec.delivery.as_ref())) {
        Ok(delivery) => (delivery, None),
        Err(problem) => (Delivering::default(), Some(problem)),
    };
    EffectiveNotification {
        uid,
        home: places.home().to_owned(),
        generation,
        intake: intake(spec),
        config_maps: template::references(spec, |pointer| places.of(pointer)),
        sending: problem.map_or_else(|| sending::sending(spec, places, given, trusted), Err),
        suspend: spec.suspend.unwrap_or(false),
        delivery,
    }
}

fn intake(spec: &NotificationSpec) -> Result<Intake, Problem> {
    let selector = PipelineSelector::parse(spec.pipeline_selector.as_ref()).map_err(Problem::Selector)?;
    let triggers = spec.triggers.as_deref().ok_or(Problem::Incomplete { field: "spec.triggers" })?;
    Ok(Intake { selector, triggers: Triggers::compile(triggers)? })
}
