//! Facts about a pipeline that deliveries depend on, and how far its change log was processed. Pure.
//!
//! In: facts that the dispatcher collects from its watches. Out: to the [`pipeline index`](super::index), and to retention.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use relaybook_api::delivery::Reason;
use relaybook_api::{LogSubject, ObjectName};
use relaybook_settings::render::{Texts, Web};

/// The persisted cursors of a pipeline, by notification; `None`: its status has none yet.
pub type Cursors = Option<HashMap<String, PersistedCursor>>;

/// How far the changes for a notification were processed, as persisted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistedCursor {
    /// Serial of the last change.
    pub serial: i64,
    /// The changes whose timers are running. They can still cause deliveries.
    pub pending_timers: BTreeSet<i64>,
}

impl PersistedCursor {
    /// Returns whether no delivery of a change can be recorded again. One write persists the cursor and the timers. A new process reads
    /// only the changes above the cursor, and those with timers. The state in the API server is the same as this one or newer. So its
    /// cursor is not lower, and each timer that is missing here belongs to a change above this cursor.
    #[must_use]
    pub fn is_beyond(&self, serial: i64) -> bool {
        serial <= self.serial && !self.pending_timers.contains(&serial)
    }
}

/// What is known about the ConfigMap with the global configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Namespace and name of the ConfigMap.
    pub config_map: Option<ObjectName>,
    /// The version that the watch last delivered. `None`: the ConfigMap does not exist.
    pub version: Option<String>,
    /// Whether the content of that version is in force. While it cannot be read, an older version is in force. Then a notification that is
    /// absent is not proven to be gone.
    pub is_in_force: bool,
    /// Why no version of it is in force. Until a version can be read, cluster-wide notifications are unknown, which does not mean that they
    /// are gone.
    pub unknown: Option<String>,
    /// The forges and the links of the version in force.
    pub web: Arc<Web>,
}

/// The facts about a pipeline that its deliveries depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipelineFacts {
    /// Uid of the pipeline.
    pub uid: String,
    /// Namespace of the pipeline and of its Notifications.
    pub namespace: String,
    /// Name of the pipeline.
    pub name: String,
    /// The other namespace whose Notifications are layers of the pipeline.
    pub layer_namespace: Option<String>,
    /// Labels of the pipeline.
    pub labels: Texts,
    /// Annotations of the pipeline.
    pub annotations: Texts,
    /// Subjects of the pipeline, each with the serial at which it was first observed. Changes at or below this serial belong to an earlier
    /// subject. `None`: not observed yet.
    pub subjects: HashMap<String, Option<i64>>,
    /// Targets whose last revision contained no commit, by subject.
    pub commitless: HashSet<String>,
    /// Targets whose Git repository is not known, by subject.
    pub sourceless: HashSet<String>,
    /// Environments with generated targets. They can get a target on any cluster at any time.
    pub open: HashSet<String>,
    /// Whether the pipeline has a change log yet. Without one, nothing was observed.
    pub logged: bool,
    /// The uid in each persisted cursor: notification → uid of the notification.
    pub cursors: HashMap<String, String>,
    /// The notifications whose deliveries cannot be recorded, with reason and message.
    pub not_recorded: HashMap<String, (Reason, String)>,
}

impl PipelineFacts {
    /// Returns the subjects of the pipeline that are targets.
    pub fn targets(&self) -> impl Iterator<Item = &String> {
        self.subjects.keys().filter(|subject| matches!(LogSubject::parse(subject), LogSubject::Target(_)))
    }
}
