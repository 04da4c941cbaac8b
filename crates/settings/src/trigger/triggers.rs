//! Which transitions a notification reports, and when.

use std::time::Duration;

use globset::{Glob, GlobSet, GlobSetBuilder};

use super::seen::ConditionData;
use super::when::When;
use crate::cel::CelError;
use crate::render::Data;
use relaybook_api::notification::Trigger;
use relaybook_api::pipeline::target::TargetInfo;
use relaybook_api::{TransitionType, duration};

/// The minimum and the maximum of `for`.
const HOLD: (Duration, Duration) = (Duration::from_secs(1), Duration::from_hours(168));

/// Why a list of triggers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TriggerError {
    /// A pattern is not a glob.
    #[error("triggers[{index}].{field}: {glob:?} is not a glob")]
    Glob {
        /// Index in the list, from 0.
        index: usize,
        /// `environments` or `clusters`.
        field: &'static str,
        /// The given value.
        glob: String,
        /// What is wrong with it.
        #[source]
        source: globset::Error,
    },
    /// The patterns of one trigger are too large together.
    #[error("triggers[{index}].{field}: the globs are too large together; use fewer or shorter globs")]
    TooLarge {
        /// Index in the list, from 0.
        index: usize,
        /// `environments` or `clusters`.
        field: &'static str,
        /// What is wrong with them.
        #[source]
        source: globset::Error,
    },
    /// A condition is invalid.
    #[error("triggers[{index}].when: {source}")]
    When {
        /// Index in the list, from 0.
        index: usize,
        /// What is wrong with it.
        #[source]
        source: CelError,
    },
    /// A time is invalid or out of bounds.
    #[error("triggers[{index}].for: {given:?} must be a time from 1s to 168h, such as 90s or 5m")]
    For {
        /// Index in the list, from 0.
        index: usize,
        /// The given value.
        given: String,
    },
}

/// Where one target of the subject of a change is. A target has one place, an environment or a cluster has several, and the pipeline
/// has the places of all targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Name of the environment.
    pub environment: String,
    /// Name of the cluster without its namespace.
    pub cluster: String,
    /// Name of the cluster with its namespace, `NAMESPACE.NAME`. For the local cluster, its name.
    pub full_cluster: String,
}

impl Place {
    /// Returns the place of a target. `namespace` is the namespace of its pipeline.
    #[must_use]
    pub fn of(target: &TargetInfo, namespace: &str) -> Self {
        let (cluster, full_cluster) = match &target.cluster_ref {
            Some(cluster) => (cluster.name.clone(), cluster.seen_from(namespace).full_name()),
            None => (target.cluster.clone(), target.cluster.clone()),
        };
        Self { environment: target.environment.clone(), cluster, full_cluster }
    }
}

/// How a transition is reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// How long its state must last. `None`: it is reported immediately. If several triggers match, the shortest time counts.
    pub hold: Option<Duration>,
    /// Why a condition cannot be evaluated. The transition is recorded with this error, and not sent.
    pub error: Option<String>,
}

/// The globs of one field of a trigger.
#[derive(Clone, Debug)]
pub(crate) struct Globs {
    set: GlobSet,
    written: Vec<String>,
}

impl Globs {
    /// Whether any glob matches this name.
    pub(crate) fn is_match(&self, name: &str) -> bool {
        self.set.is_match(name)
    }

    /// Returns the globs as they are written.
    pub(crate) fn written(&self) -> &[String] {
        &self.written
    }
}

/// Which names one trigger is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter<'a> {
    /// The type of transition.
    pub(crate) type_: TransitionType,
    /// The globs for the environment. `None`: all environments.
    pub(crate) environments: Option<&'a Globs>,
    /// The globs for the cluster. `None`: all clusters.
    pub(crate) clusters: Option<&'a Globs>,
}

/// One compiled trigger.
#[derive(Clone, Debug)]
struct Compiled {
    type_: TransitionType,
    environments: Option<Globs>,
    clusters: Option<Globs>,
    when: Option<When>,
    hold: Option<Duration>,
}

/// The compiled triggers of one notification.
#[derive(Clone, Debug, Default)]
pub struct Triggers(Vec<Compiled>);

impl Triggers {
    /// Compiles a list. An empty list reports nothing.
    pub fn compile(triggers: &[Trigger]) -> Result<Self, TriggerError> {
        let compiled = triggers.iter().enumerate().map(|(index, trigger)| {
            let globs =
                |field, written: Option<&[String]>| written.map(|written| globs_of(index, field, written)).transpose();
            let when = trigger.when.as_deref().map(When::compile).transpose();
            Ok(Compiled {
                type_: trigger.type_,
                environments: globs("environments", trigger.environments.as_deref())?,
                clusters: globs("clusters", trigger.clusters.as_deref())?,
                when: when.map_err(|source| TriggerError::When { index, source })?,
                hold: trigger.for_.as_deref().map(|given| hold(index, given)).transpose()?,
            })
        });
        compiled.collect::<Result<_, _>>().map(Self)
    }

    /// How a transition is reported whose subject is at these places. `None`: it is not reported. `data` is called only if a trigger
    /// with a condition matches otherwise.
    pub fn ask(&self, type_: TransitionType, places: &[Place], data: impl FnOnce() -> Data) -> Option<Wanted> {
        let seen = ConditionData::new(data);
        let (mut clear, mut unclear): (Option<Wanted>, Option<Wanted>) = (None, None);
        for trigger in self.0.iter().filter(|trigger| trigger.fits(type_, places)) {
            match trigger.when.as_ref().map_or(Ok(true), |when| when.holds(&seen)) {
                Ok(true) => clear = Some(shorter(clear, trigger.hold, None)),
                Ok(false) => {}
                Err(error) => unclear = Some(shorter(unclear, trigger.hold, Some(error.to_string()))),
            }
        }
        clear.or(unclear)
    }

    /// Whether any trigger matches this type in an environment, on any cluster.
    #[cfg(test)]
    pub(crate) fn wants(&self, type_: TransitionType, environment: &str) -> bool {
        let place = Place { environment: environment.to_owned(), ..Place::default() };
        self.ask(type_, &[place], || Data::sample(type_)).is_some()
    }

    /// Returns which names each trigger is for.
    pub(crate) fn filters(&self) -> impl Iterator<Item = Filter<'_>> {
        self.0.iter().map(|trigger| Filter {
            type_: trigger.type_,
            environments: trigger.environments.as_ref(),
            clusters: trigger.clusters.as_ref(),
        })
    }

    /// Whether any trigger is only for some environments or clusters.
    #[must_use]
    pub fn have_globs(&self) -> bool {
        self.filters().any(|filter| filter.environments.is_some() || filter.clusters.is_some())
    }

    /// Returns the types of the triggers, in their order.
    pub fn types(&self) -> impl Iterator<Item = TransitionType> {
        self.0.iter().map(|trigger| trigger.type_)
    }

    /// Whether any trigger has this type, whatever its conditions are.
    #[must_use]
    pub fn mention(&self, type_: TransitionType) -> bool {
        self.0.iter().any(|trigger| trigger.type_ == type_)
    }
}

impl Compiled {
    fn fits(&self, type_: TransitionType, places: &[Place]) -> bool {
        let environment = |place: &Place| self.environments.as_ref().is_none_or(|set| set.is_match(&place.environment));
        let cluster = |place: &Place| {
            self.clusters.as_ref().is_none_or(|set| set.is_match(&place.cluster) || set.is_match(&place.full_cluster))
        };
        self.type_ == type_ && places.iter().any(|place| environment(place) && cluster(place))
    }
}

/// Adds one more trigger: the shortest time counts, and the first error.
fn shorter(known: Option<Wanted>, hold: Option<Duration>, error: Option<String>) -> Wanted {
    match known {
        None => Wanted { hold, error },
        // `None`, which means immediately, is the shortest time.
        Some(known) => Wanted { hold: known.hold.min(hold), ..known },
    }
}

fn globs_of(index: usize, field: &'static str, written: &[String]) -> Result<Globs, TriggerError> {
    let mut set = GlobSetBuilder::new();
    for glob in written {
        set.add(Glob::new(glob).map_err(|source| TriggerError::Glob { index, field, glob: glob.clone(), source })?);
    }
    let set = set.build().map_err(|source| TriggerError::TooLarge { index, field, source })?;
    Ok(Globs { set, written: written.to_vec() })
}

fn hold(index: usize, given: &str) -> Result<Duration, TriggerError> {
    let within = duration(given).filter(|hold| (HOLD.0..=HOLD.1).contains(hold));
    within.ok_or_else(|| TriggerError::For { index, given: given.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use serde_json::json;

    use super::*;
    use TransitionType::{ClusterOffline, Deployed, Failed, Removed};

    fn compile(triggers: serde_json::Value) -> Result<Triggers, TriggerError> {
        Triggers::compile(&serde_json::from_value::<Vec<Trigger>>(triggers).unwrap())
    }

    fn place(environment: &str, cluster: &str) -> Place {
        let own = cluster.rsplit('.').next().unwrap_or_default();
        Place { environment: environment.into(), cluster: own.into(), full_cluster: cluster.into() }
    }

    fn wants(triggers: &Triggers, type_: TransitionType, places: &[Place]) -> bool {
        triggers.ask(type_, places, || panic!("no condition reads the data")).is_some()
    }

    #[test]
    fn type_and_environment_must_match_in_the_same_trigger() {
        let triggers = compile(json!([
            {"type": "Deployed", "environments": ["prod", "staging-*", "qa?"]},
            {"type": "Failed"},
            {"type": "Removed", "environments": []},
        ]))
        .unwrap();
        for (type_, environment, want) in [
            (Deployed, "prod", true),
            (Deployed, "prod-eu", false),
            (Deployed, "staging-1", true),
            (Deployed, "staging", false),
            (Deployed, "qa1", true),
            (Deployed, "qa10", false),
            (Failed, "dev", true),
            (Removed, "prod", false),
            (TransitionType::Progressing, "prod", false),
        ] {
            assert_eq!(wants(&triggers, type_, &[place(environment, "c")]), want, "{type_:?} {environment}");
        }
    }

    #[test]
    fn all_globs_must_match_the_same_target_of_the_subject() {
        let triggers = compile(json!([
            {"type": "ClusterOffline", "clusters": ["eu-*"], "environments": ["prod"]},
            {"type": "Failed", "clusters": ["fleet.*"]},
        ]))
        .unwrap();
        let (eu, us, dev) = (place("prod", "fleet.eu-1"), place("prod", "us-1"), place("dev", "fleet.eu-1"));
        for (type_, places, want) in [
            (ClusterOffline, &[eu.clone()][..], true),
            (ClusterOffline, std::slice::from_ref(&us), false),
            (ClusterOffline, &[dev.clone(), us.clone()], false),
            (ClusterOffline, &[dev.clone(), eu.clone()], true),
            (ClusterOffline, &[], false),
            (Failed, &[dev], true),
            (Failed, std::slice::from_ref(&us), false),
        ] {
            assert_eq!(wants(&triggers, type_, places), want, "{type_:?} {places:?}");
        }
    }

    #[test]
    fn the_shortest_delay_of_the_matching_triggers_applies() {
        let asked = |triggers| {
            let data = || Data::sample(Failed);
            compile(triggers).unwrap().ask(Failed, &[place("prod", "c")], data)
        };
        let hold = |seconds| Some(Wanted { hold: Some(Duration::from_secs(seconds)), error: None });
        let (yes, no, fails) = ("severity == 'error'", "severity == 'info'", "pipeline.labels.team == 'a'");
        assert_eq!(asked(json!([{"type": "Failed", "when": yes}])), Some(Wanted::default()));
        assert_eq!(asked(json!([{"type": "Failed", "when": no}, {"type": "Failed", "for": "2m"}])), hold(120));
        assert_eq!(asked(json!([{"type": "Failed", "for": "2m"}, {"type": "Failed", "for": "90s"}])), hold(90));
        assert_eq!(asked(json!([{"type": "Failed", "for": "2m"}, {"type": "Failed"}])), Some(Wanted::default()));
        assert_eq!(asked(json!([{"type": "Failed", "when": no}])), None);
        assert_eq!(asked(json!([{"type": "Failed", "when": fails}, {"type": "Failed", "for": "2m"}])), hold(120));
        let unclear = asked(json!([{"type": "Failed", "when": no}, {"type": "Failed", "when": fails, "for": "5s"}]));
        let error = r#"there is no "team"; check has() first"#.to_owned();
        assert_eq!(unclear, Some(Wanted { hold: Some(Duration::from_secs(5)), error: Some(error) }));
    }

    #[test]
    fn an_empty_list_reports_nothing() {
        let triggers = Triggers::compile(&[]).unwrap();
        assert!(TransitionType::ALL.iter().all(|t| !triggers.mention(*t) && !wants(&triggers, *t, &[Place::default()])));
    }

    #[test]
    fn errors_name_the_entry_and_the_field() {
        for (trigger, message) in [
            (json!({"environments": ["prod", "[a"]}), r#"triggers[1].environments: "[a" is not a glob"#),
            (json!({"clusters": ["{a"]}), r#"triggers[1].clusters: "{a" is not a glob"#),
            (json!({"when": "revison == 'a'"}), "triggers[1].when: there is no revison; did you mean revision?"),
            (json!({"for": "0s"}), r#"triggers[1].for: "0s" must be a time from 1s to 168h, such as 90s or 5m"#),
            (json!({"for": "169h"}), r#"triggers[1].for: "169h" must be a time from 1s to 168h, such as 90s or 5m"#),
            (json!({"for": "soon"}), r#"triggers[1].for: "soon" must be a time from 1s to 168h, such as 90s or 5m"#),
        ] {
            let mut trigger = trigger;
            trigger["type"] = json!("Deployed");
            let error = compile(json!([{"type": "Failed"}, trigger])).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        assert!(compile(json!([{"type": "Failed", "environments": ["[a"]}])).unwrap_err().source().is_some());
    }
}
