//! What deliveries need to know about a pipeline, and how far its change log was processed. Values only.
//!
//! In: facts that the dispatcher collects from its watch. Out: to the [`pipeline index`](super::index), and to retention.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::api::DeliverySpec;
use crate::api::delivery::SubjectKind;
use crate::api::pipeline::target::PIPELINE;
use crate::api::values::refs::ObjectName;
use crate::render::Texts;

/// The persisted cursors of a pipeline, by notification; `None`: its status has none yet.
pub type Cursors = Option<HashMap<String, Taken>>;

/// How far the changes for a notification were processed, as persisted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Serial of the last change.
    pub serial: i64,
    /// The changes whose timers are running. They can still lead to deliveries.
    pub armed: BTreeSet<i64>,
}

impl Taken {
    /// Whether no delivery of a change can be recorded again. One write persists the cursor and the timers. A new process reads only the
    /// changes above the cursor and those timers. The state in the API server can only have advanced from here. Its cursor is not lower,
    /// and a timer that is not among these belongs to a change above this cursor.
    #[must_use]
    pub fn is_beyond(&self, serial: i64) -> bool {
        serial <= self.serial && !self.armed.contains(&serial)
    }
}

/// What is known about the ConfigMap with the global configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Namespace and name of the ConfigMap.
    pub config_map: Option<ObjectName>,
    /// The version that was last seen. `None`: the ConfigMap does not exist.
    pub version: Option<String>,
    /// Whether the content of that version is in force. While it cannot be read, an older version is in force, and it is not known what is
    /// gone.
    pub is_in_force: bool,
    /// Why no version of it is in force. Until it can be read, cluster-wide notifications are unknown, which does not mean that they are
    /// gone.
    pub unknown: Option<String>,
}

/// What a delivery needs to know about its pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipelineFacts {
    /// Uid of the pipeline.
    pub uid: String,
    /// Namespace of the pipeline and of its Notifications.
    pub namespace: String,
    /// Name of the pipeline.
    pub name: String,
    /// Labels of the pipeline.
    pub labels: Texts,
    /// Annotations of the pipeline.
    pub annotations: Texts,
    /// Subjects of the pipeline, each with the serial at which it was first seen. Changes at or below this serial belong to an earlier
    /// subject. `None`: not seen yet.
    pub subjects: HashMap<String, Option<i64>>,
    /// Targets whose last revision contained no commit, by their subjects.
    pub commitless: HashSet<String>,
    /// Whether the pipeline has a change log yet. Without one, nothing was observed.
    pub logged: bool,
    /// The persisted cursors: notification → uid of the notification.
    pub cursors: HashMap<String, String>,
}

impl PipelineFacts {
    /// The targets of the pipeline, by their subjects.
    pub fn targets(&self) -> impl Iterator<Item = &String> {
        self.subjects.keys().filter(|subject| subject.starts_with("target/"))
    }
}

/// The subject with its name in the change log.
#[must_use]
pub fn subject(spec: &DeliverySpec) -> String {
    match spec.subject.kind {
        SubjectKind::Target => format!("target/{}", spec.subject.name),
        SubjectKind::Cluster => format!("cluster/{}", spec.subject.name),
        SubjectKind::Environment => format!("environment/{}", spec.subject.name),
        SubjectKind::Pipeline => PIPELINE.to_owned(),
    }
}
