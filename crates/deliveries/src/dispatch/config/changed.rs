//! What a change of the configuration affects: the statuses and pipelines to reconcile again, and the lanes to check again.

use std::collections::BTreeSet;

use relaybook_api::ObjectName;
use relaybook_settings::config::Global;
use relaybook_settings::config::global::Reach;

/// What a change affects.
#[derive(Default)]
pub(crate) struct Changed {
    /// These Notifications, and all deliveries for them.
    pub(crate) notifications: BTreeSet<ObjectName>,
    /// The status of these Notifications.
    pub(crate) statuses: BTreeSet<ObjectName>,
    /// All deliveries for notifications of these names.
    pub(crate) names: BTreeSet<String>,
    /// The pipelines that any of these selects.
    pub(crate) reaches: Vec<Reach>,
    /// The pipelines, by uid, whose layers must be compiled again. This alone is no reason to retry failed deliveries. The compiled result
    /// can be a reason.
    pub(crate) due_layers: Vec<(String, ObjectName)>,
    /// The pipelines, by uid, whose layers are compiled.
    pub(crate) compiled: Vec<(String, ObjectName)>,
    /// Set if the change affects everything.
    pub(crate) all: Option<All>,
}

/// Why a change affects everything.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum All {
    /// The global configuration was read for the first time. This is no reason to retry failed deliveries.
    First,
    /// The defaults of all notifications were edited.
    Edited,
}

impl Changed {
    /// Adds a cluster-wide notification, and the pipelines that it selects in this version of the global configuration.
    pub(super) fn add_cluster_wide(&mut self, global: &Global, name: &str) {
        self.names.insert(name.to_owned());
        self.reaches.extend(global.get(name).map(|cluster_wide| cluster_wide.reach.clone()));
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.notifications.is_empty()
            && self.statuses.is_empty()
            && self.names.is_empty()
            && self.due_layers.is_empty()
            && self.compiled.is_empty()
            && self.all.is_none()
    }
}
