//! Edits that affect many notifications at once: edits of the global configuration, and of the ConfigMaps and Secrets that notifications
//! refer to.
//!
//! In: the edit. Out: the [snapshot](relaybook_settings::config::snapshot) in the pipeline index of the outbox, and what the edit affects.

use std::sync::Arc;

use super::changed::{All, Changed};
use super::configuration::Configuration;
use super::results::{Compiled, Owner, Place};
use super::state::{GlobalState, State};
use crate::outbox::Scope;
use crate::outbox::send_gate::index;
use relaybook_api::ObjectName;
use relaybook_settings::config::{Edited, EffectiveNotification};

impl Configuration {
    /// Applies a new global configuration, or the problem with it. `version` is the version of the ConfigMap. Returns the state before, and
    /// what the change affects.
    pub(crate) fn put_global(
        &self,
        version: Option<String>,
        change: impl FnOnce(&mut GlobalState),
    ) -> (GlobalState, Changed) {
        let mut state = self.state();
        let before = state.global.clone();
        change(&mut state.global);
        if let Some(new) = state.global.in_force.take() {
            state.global.in_force = Some(Arc::new(Arc::unwrap_or_clone(new).reuse(&before.global())));
        }
        let (after, outdated) = (state.global.clone(), state.outdated());
        let mut changed = concerned(&before, &after);
        changed.statuses.extend(outdated.iter().filter_map(Place::notification));
        changed.layers = self.renew(state, &outdated);
        // This must be the last step, so that a reader that finds this version of the live ConfigMap also finds its content.
        self.put_source(version, &after);
        if before.problem.is_some() != after.problem.is_some() {
            // The affected Notifications show it in their status.
            changed.statuses.extend(self.places());
        }
        (before, changed)
    }

    fn put_source(&self, version: Option<String>, state: &GlobalState) {
        let unknown = state.problem.as_ref().filter(|_| state.in_force.is_none());
        self.pipeline_index.put_source(index::Source {
            config_map: Some(self.global_map.clone()),
            version,
            is_in_force: state.problem.is_none(),
            unknown: unknown.map(|problem| format!("ConfigMap {}: {problem}", self.global_map)),
            web: state.in_force.as_ref().map(|global| global.web().clone()).unwrap_or_default(),
        });
    }

    /// Handles a change of a ConfigMap with templates or CA certificates. Returns what the change affects.
    pub(crate) fn config_map_changed(&self, config_map: &ObjectName) -> Changed {
        let state = self.state();
        // Layers that are due are skipped. When their job ends, its sources and texts are compared with the current ones.
        let outdated = state.results.places(|_, _, entry| {
            let is_stale = |c: &Compiled| c.is_stale(&self.config_maps, config_map);
            !entry.is_due && entry.compiled.as_ref().is_some_and(is_stale)
        });
        let changed = at(&outdated, &state);
        Changed { layers: self.renew(state, &outdated), ..changed }
    }

    /// Returns the Notifications, cluster-wide notifications and pipelines with an effective notification for which `is` returns true.
    pub(crate) fn concerned(&self, is: impl Fn(&EffectiveNotification) -> bool) -> Changed {
        let state = self.state();
        let has = |compiled: &Compiled| compiled.all().any(|n| is(n));
        let those = state.results.places(|_, _, entry| entry.compiled.as_ref().is_some_and(has));
        let pipelines = state.pipelines_of(&those).into_iter();
        Changed { layers: pipelines.map(|(uid, place)| (Scope::Layers(uid), place)).collect(), ..at(&those, &state) }
    }
}

/// Returns the Notifications and the cluster-wide notifications at these places.
fn at(places: &[Place], state: &State) -> Changed {
    let mut changed = Changed::default();
    changed.notifications.extend(places.iter().filter_map(Place::notification));
    for place in places.iter().filter(|place| place.owner == Owner::Global) {
        changed.add_cluster_wide(&state.global(), &place.name);
    }
    changed
}

/// Returns the pipelines and lanes that an edit of the global configuration affects.
fn concerned(before: &GlobalState, after: &GlobalState) -> Changed {
    let edited = match (&before.in_force, &after.in_force) {
        (Some(old), Some(new)) => old.edited(new),
        (None, None) => Edited::Names([].into()),
        _ => Edited::Everything,
    };
    let Edited::Names(names) = edited else {
        let is_first = before.in_force.is_none() && before.problem.is_none();
        return Changed { all: Some(if is_first { All::First } else { All::Edited }), ..Changed::default() };
    };
    let mut changed = Changed::default();
    for name in &names {
        changed.add_cluster_wide(&before.global(), name);
        changed.add_cluster_wide(&after.global(), name);
    }
    changed
}
