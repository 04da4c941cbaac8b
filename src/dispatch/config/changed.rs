//! What a change of the configuration concerns: which statuses, pipelines and lanes are to be looked at again.

use std::collections::BTreeSet;

use super::sources::Place;
use crate::api::values::refs::ObjectName;
use crate::config::Global;
use crate::config::global::Reach;

/// What a change concerns.
#[derive(Default)]
pub(in crate::dispatch) struct Changed {
    /// These Notifications, and all that is sent for them.
    pub(in crate::dispatch) notifications: BTreeSet<Place>,
    /// The status of these Notifications.
    pub(in crate::dispatch) statuses: BTreeSet<Place>,
    /// All that is sent for notifications of these names.
    pub(in crate::dispatch) names: BTreeSet<String>,
    /// The pipelines that one of these selects.
    pub(in crate::dispatch) reaches: Vec<Reach>,
    /// These pipelines, by uid: their layers are to be compiled again. That is no reason to retry what has failed; the result may be.
    pub(in crate::dispatch) uncompiled: Vec<(String, ObjectName)>,
    /// These pipelines, by uid: their layers are compiled.
    pub(in crate::dispatch) compiled: Vec<(String, ObjectName)>,
    /// Everything.
    pub(in crate::dispatch) all: Option<All>,
}

/// Why a change concerns everything.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::dispatch) enum All {
    /// The global configuration was read for the first time, which is no reason to retry what has failed.
    First,
    /// What lies beneath all notifications was edited.
    Edited,
}

impl Changed {
    /// A cluster-wide notification, and the pipelines that it selects in this version of the global configuration.
    pub(super) fn add_everywhere(&mut self, global: &Global, name: &str) {
        self.names.insert(name.to_owned());
        self.reaches.extend(global.get(name).map(|everywhere| everywhere.reach.clone()));
    }

    pub(in crate::dispatch) fn is_nothing(&self) -> bool {
        self.notifications.is_empty()
            && self.statuses.is_empty()
            && self.names.is_empty()
            && self.uncompiled.is_empty()
            && self.compiled.is_empty()
            && self.all.is_none()
    }
}
