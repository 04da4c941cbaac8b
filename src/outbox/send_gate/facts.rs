//! What deliveries must know of a pipeline, and how far its log was taken. Values only.
//!
//! In: put together by the dispatcher, of what its watch brings. Out: to the [`pipeline index`](super::index), and to whoever takes old
//! deliveries away.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::api::DeliverySpec;
use crate::api::delivery::SubjectKind;
use crate::api::pipeline::target::PIPELINE;
use crate::api::values::refs::ObjectName;
use crate::render::Texts;

/// The persisted cursors of a pipeline, by notification; `None`: its status has none yet.
pub type Cursors = Option<HashMap<String, Taken>>;

/// How far a notification was taken, as it is persisted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Serial of the last change.
    pub serial: i64,
    /// The changes whose clocks run: they may come to deliveries yet.
    pub armed: BTreeSet<i64>,
}

impl Taken {
    /// Whether nothing of a change can be recorded once more. The cursor and the clocks are persisted in one write, and whoever begins
    /// anew looks at the changes above the cursor and at those clocks, and at no others. What the API server holds meanwhile has gone
    /// on from here: its cursor stands no lower, and a clock that was not among these is of a change above this cursor.
    #[must_use]
    pub fn is_beyond(&self, serial: i64) -> bool {
        serial <= self.serial && !self.armed.contains(&serial)
    }
}

/// What is known of the ConfigMap with the global configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Which it is.
    pub config_map: Option<ObjectName>,
    /// The version that was last seen; `None`: there is none.
    pub version: Option<String>,
    /// Whether what that says is in force. While it cannot be read, an older one is, and nobody knows what is gone.
    pub is_in_force: bool,
    /// Why nothing of it is in force: until it can be read, cluster-wide notifications are not known, which is not gone.
    pub unknown: Option<String>,
}

/// What a delivery needs to know of its pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipelineFacts {
    /// Its uid.
    pub uid: String,
    /// Namespace of the pipeline and of its Notifications.
    pub namespace: String,
    /// Name of the pipeline.
    pub name: String,
    /// Its labels.
    pub labels: Texts,
    /// Its annotations.
    pub annotations: Texts,
    /// Its subjects, each with the serial at which it was first seen: what is at or below belongs to an earlier one. `None`: not
    /// seen yet.
    pub subjects: HashMap<String, Option<i64>>,
    /// Its targets that last had a revision without a commit, by their subjects.
    pub commitless: HashSet<String>,
    /// Whether it has a change log yet: one without has seen nothing.
    pub logged: bool,
    /// The persisted cursors: notification → its uid.
    pub cursors: HashMap<String, String>,
}

impl PipelineFacts {
    /// Its targets, by their subjects.
    pub fn targets(&self) -> impl Iterator<Item = &String> {
        self.subjects.keys().filter(|subject| subject.starts_with("target/"))
    }
}

/// The subject as the change log names it.
#[must_use]
pub fn subject(spec: &DeliverySpec) -> String {
    match spec.subject.kind {
        SubjectKind::Target => format!("target/{}", spec.subject.name),
        SubjectKind::Cluster => format!("cluster/{}", spec.subject.name),
        SubjectKind::Environment => format!("environment/{}", spec.subject.name),
        SubjectKind::Pipeline => PIPELINE.to_owned(),
    }
}
