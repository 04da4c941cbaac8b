//! Edits that affect many notifications at once: edits of the global configuration, and of the ConfigMaps and Secrets that notifications
//! refer to.
//!
//! In: the edit. Out: the [snapshot](relaybook_settings::config::snapshot) in the pipeline index of the outbox, and what the edit affects.

use std::sync::Arc;

use super::changed::{All, Changed};
use super::configuration::Configuration;
use super::sources::Sources;
use super::state::{GlobalState, Known, Layer, State};
use crate::outbox::send_gate::index;
use relaybook_api::ObjectName;
use relaybook_settings::config::{Edited, EffectiveNotification, Global};

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
        let (after, global) = (state.global.clone(), state.global());
        let due_layers = self.recompile_layers(&mut state, |state, layers, name, layer| {
            let beneath = || state.beneath(&layers.site, name);
            layer.is_due || layer.compiled.as_ref().is_some_and(|compiled| compiled.sources != beneath())
        });
        let edited = edited(&before, &after);
        let notifications = edited_notifications(&state, &global);
        let is_gone = |name: &String| global.get(name).is_none();
        let gone: Vec<_> = state.cluster_wide.extract_if(.., |name, _| is_gone(name)).map(|(name, _)| name).collect();
        drop(state);
        for name in gone {
            self.pipeline_index.put_cluster_wide(&name, None);
        }
        for (name, _) in global.notifications().filter(|(name, _)| edited.concerns(name)) {
            self.compile_cluster_wide(name);
        }
        for at in &notifications {
            self.compile_notification(at);
        }
        // This must be the last step, so that a reader that finds this version of the live ConfigMap also finds its content.
        self.put_source(version, &after);
        let mut changed = Changed { due_layers, ..concerned(&before, &global, edited) };
        changed.statuses.extend(notifications);
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
        });
    }

    /// Handles a change of a ConfigMap with templates or CA certificates. Returns what the change affects.
    pub(crate) fn config_map_changed(&self, config_map: &ObjectName) -> Changed {
        let mut state = self.state();
        // Layers that are due are skipped. When their job ends, its sources are compared with the current ones.
        let due_layers = self.recompile_layers(&mut state, |_, _, _, layer| {
            !layer.is_due && layer.compiled.as_ref().is_some_and(|c| c.is_stale(&self.config_maps, config_map))
        });
        let mut changed = Changed { due_layers, ..Changed::default() };
        for (at, known) in &state.notifications {
            if known.compiled.as_ref().is_some_and(|c| c.is_stale(&self.config_maps, config_map)) {
                changed.notifications.insert(at.clone());
            }
        }
        for (name, compiled) in &state.cluster_wide {
            if compiled.is_stale(&self.config_maps, config_map) {
                changed.add_cluster_wide(&state.global(), name);
            }
        }
        drop(state);
        for name in &changed.names {
            self.compile_cluster_wide(name);
        }
        for at in &changed.notifications {
            self.compile_notification(at);
        }
        changed
    }

    /// Returns the Notifications, cluster-wide notifications and pipelines with an effective notification for which `is` returns true.
    pub(crate) fn concerned(&self, is: impl Fn(&EffectiveNotification) -> bool) -> Changed {
        let state = self.state();
        let mut changed = Changed::default();
        let those = |known: &Known| known.compiled.as_ref().is_some_and(|c| c.result.all().any(|n| is(n)));
        changed.notifications.extend(state.notifications.iter().filter(|(_, known)| those(known)).map(|(at, _)| at.clone()));
        for (name, _) in state.cluster_wide.iter().filter(|(_, compiled)| is(&compiled.result)) {
            changed.add_cluster_wide(&state.global(), name);
        }
        let has = |layer: &Layer| layer.compiled.as_ref().is_some_and(|c| c.result.all().any(|n| is(n)));
        let layered = state.pipelines.values().filter(|layers| layers.layers.values().any(has));
        changed.compiled.extend(layered.map(|layers| (layers.site.uid.clone(), layers.site.place.clone())));
        changed
    }
}

fn edited(before: &GlobalState, after: &GlobalState) -> Edited {
    match (&before.in_force, &after.in_force) {
        (Some(old), Some(new)) => old.edited(new),
        (None, None) => Edited::Names([].into()),
        _ => Edited::Everything,
    }
}

/// Returns the Notifications for which the global configuration has changed.
fn edited_notifications(state: &State, global: &Global) -> Vec<ObjectName> {
    let is_edited = |(_, known): &(&ObjectName, &Known)| {
        let now = Sources::of_notification(global, &known.notification);
        known.compiled.as_ref().is_some_and(|compiled| compiled.sources != now)
    };
    state.notifications.iter().filter(is_edited).map(|(at, _)| at.clone()).collect()
}

/// Returns the pipelines and lanes that an edit of the global configuration affects.
fn concerned(before: &GlobalState, global: &Global, edited: Edited) -> Changed {
    let names = match edited {
        Edited::Names(names) => names,
        Edited::Everything => {
            let is_first = before.in_force.is_none() && before.problem.is_none();
            return Changed { all: Some(if is_first { All::First } else { All::Edited }), ..Changed::default() };
        }
    };
    let mut changed = Changed::default();
    for name in &names {
        changed.add_cluster_wide(&before.global(), name);
        changed.add_cluster_wide(global, name);
    }
    changed
}
