//! What a change of the configuration affects: the statuses and pipelines to reconcile again, and the lanes to check again.

use std::collections::BTreeSet;

use crate::outbox::Scope;
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
    /// The pipelines whose layers have changed, and their lanes. While layers are not compiled, this is no reason to retry failed deliveries
    /// ([`Scope::Pipeline`]). The compiled result can be a reason ([`Scope::Layers`]).
    pub(crate) layers: Vec<(Scope, ObjectName)>,
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

/// Whether all layers of a pipeline are compiled.
pub(super) fn are_compiled((scope, _): &(Scope, ObjectName)) -> bool {
    matches!(scope, Scope::Layers(_))
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
            && self.layers.is_empty()
            && self.all.is_none()
    }
}
