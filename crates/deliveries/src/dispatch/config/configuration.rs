//! The configuration of all pipelines: the current objects, and their compiled results.
//!
//! In: Notifications, pipelines, the global configuration and texts of ConfigMaps, from the watches. Out: the
//! [snapshot](relaybook_settings::config::snapshot) in the pipeline index of the outbox, and what each change affects.
//!
//! Every result is stored with its sources, so all changes are handled in one way. A result whose sources differ from the current ones is
//! compiled again. Notifications are compiled at once, outside of the lock. Layers of pipelines, possibly thousands, are compiled in the
//! background (see `layer_job`). Until then, the snapshot marks these layers. Their changes and deliveries wait, so nothing is sent with an
//! outdated configuration.

use parking_lot::{Mutex, MutexGuard};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use kube::ResourceExt as _;
use tokio::sync::Notify;

use super::config_maps::ConfigMaps;
use super::layer_job::LayerJob;
use super::sources::{Compiled, Compiler, Site, Sources};
use super::state::{GlobalState, Known, Layer, LayerChange, Layers, State};
use crate::outbox::{PipelineFacts, PipelineIndex};
use relaybook_api::delivery::GLOBAL;
use relaybook_api::pipeline::target::targets_of;
use relaybook_api::{Notification, ObjectName, Pipeline, PipelineSpec, Time, now};
use relaybook_settings::config::EffectiveNotification;
use relaybook_settings::config::layers::{is_layer_of, names};
use relaybook_settings::config::snapshot::{EffectiveClusterWide, Layered};

/// The configuration of all pipelines.
pub(crate) struct Configuration {
    /// The ConfigMap with the global configuration.
    pub(crate) global_map: ObjectName,
    /// The ConfigMaps that notifications refer to.
    pub(crate) config_maps: ConfigMaps,
    pub(super) pipeline_index: PipelineIndex,
    pub(super) cluster: String,
    pub(super) allow_http: bool,
    /// Whether Notifications of another namespace can be layers of a pipeline.
    pub(crate) cross_namespace_refs: bool,
    state: Mutex<State>,
    /// Notified when there is something to compile in the background.
    pub(super) work: Notify,
    pub(super) began: Instant,
}

impl Configuration {
    pub(crate) fn new(
        global_map: ObjectName,
        config_maps: ConfigMaps,
        pipeline_index: PipelineIndex,
        cluster: String,
        allow_http: bool,
        cross_namespace_refs: bool,
    ) -> Self {
        let (state, work, began) = (Mutex::default(), Notify::new(), Instant::now());
        Self { global_map, config_maps, pipeline_index, cluster, allow_http, cross_namespace_refs, state, work, began }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn compiler(&self) -> Compiler<'_> {
        Compiler { config_maps: &self.config_maps, allow_http: self.allow_http, texts: RefCell::default() }
    }

    /// Applies the current version of a Notification. Returns `false` if nothing relevant has changed.
    pub(crate) fn put_notification(&self, notification: &Notification) -> bool {
        let at = ObjectName::of(notification);
        let mut state = self.state();
        let known = state.notifications.get(&at).map(|known| &known.notification.metadata);
        if known.is_some_and(|known| {
            known.uid == notification.metadata.uid && known.generation == notification.metadata.generation
        }) {
            return false;
        }
        let compiled = state.notifications.get_mut(&at).and_then(|known| known.compiled.take());
        let known = Known { notification: Arc::new(notification.clone()), since: now(), compiled };
        state.put_notification(&at, Some(known));
        self.recompile_layers_over(&mut state, &at);
        drop(state);
        self.compile_notification(&at);
        true
    }

    /// Removes a Notification. Returns `false` if it was unknown.
    pub(crate) fn remove_notification(&self, namespace: &str, name: &str) -> bool {
        let at = ObjectName::new(namespace, name);
        let mut state = self.state();
        state.put_notification(&at, None);
        let had = self.pipeline_index.remove_notification(namespace, name);
        self.recompile_layers_over(&mut state, &at);
        had
    }

    /// Marks the layers that this Notification is below, or that it is one of.
    fn recompile_layers_over(&self, state: &mut State, at: &ObjectName) {
        let ObjectName { namespace, name } = at;
        let notification = state.notifications.get(at).map(|known| known.notification.clone());
        for layers in state.pipelines.values_mut() {
            let Site { spec, place, labels, .. } = &*layers.site;
            if notification.as_ref().is_some_and(|n| is_layer_of(n, spec, (&place.namespace, labels))) {
                layers.layers.entry(name.clone()).or_default();
            }
        }
        self.recompile_layers(state, |state, layers, of, layer| {
            let is_other = || layer.compiled.as_ref().is_none_or(|c| c.sources != state.beneath(&layers.site, name));
            let is_laid = || layers.site.layer_namespace() == Some(namespace) && is_other();
            of == name && (layers.site.place.namespace == *namespace || is_laid())
        });
    }

    /// Applies the current version of a pipeline. If its layers have changed, the layers and the facts are put into the pipeline index in
    /// one step.
    pub(crate) fn put_pipeline(&self, pipeline: &Pipeline, facts: &PipelineFacts) -> LayerChange {
        let uid = pipeline.uid().unwrap_or_default();
        let mut state = self.state();
        let known = state.pipelines.get(&uid).map(|known| &known.site);
        let generates = pipeline.spec.environments.iter().any(|environment| !environment.targets_from.is_empty());
        let targets = || targets_of(pipeline, &self.cluster);
        let is_same = |site: &Arc<Site>| {
            site.generation == pipeline.metadata.generation
                && site.labels == *pipeline.labels()
                && (!generates || site.targets == targets())
        };
        if known.is_some_and(is_same) {
            return LayerChange::None;
        }
        let mut names = names(&pipeline.spec);
        let layer_namespace = pipeline.spec.layer_namespace.clone().filter(|_| self.cross_namespace_refs);
        if known.is_none() && names.is_empty() && layer_namespace.is_none() {
            return LayerChange::None;
        }
        let old = state.pipelines.remove(&uid);
        let site = Arc::new(Site {
            uid: uid.clone(),
            place: ObjectName::of(pipeline),
            generation: pipeline.metadata.generation,
            labels: pipeline.labels().clone(),
            spec: PipelineSpec { layer_namespace, ..pipeline.spec.clone() },
            targets: targets(),
        });
        names.extend(state.names_laid(&site));
        if names.is_empty() {
            let had_layers = old.is_some_and(|old| !old.layers.is_empty());
            if site.layer_namespace().is_some() {
                state.pipelines.insert(uid.clone(), Layers { site, layers: BTreeMap::new() });
            }
            if !had_layers {
                return LayerChange::None;
            }
            self.pipeline_index.put_pipeline_with_layers(&uid, facts.clone(), Layered::default());
            return LayerChange::Gone;
        }
        let mut layers = old.map(|old| old.layers).unwrap_or_default();
        layers.retain(|name, _| names.contains(name));
        for name in &names {
            layers.entry(name.clone()).or_default();
        }
        let mut new = Layers { site, layers };
        self.set_due(&mut state, &mut new, &names.into_iter().collect::<Vec<_>>());
        let layered = state.layered(&new, &self.pipeline_index);
        self.pipeline_index.put_pipeline_with_layers(&uid, facts.clone(), layered);
        state.pipelines.insert(uid, new);
        LayerChange::Due
    }

    /// Removes a pipeline. Returns `true` if it had layers.
    pub(crate) fn remove_pipeline(&self, uid: &str) -> bool {
        self.state().pipelines.remove(uid).is_some()
    }

    /// Marks the layers for which `wanted` returns true to be compiled again. Returns uid and place of their pipelines.
    pub(super) fn recompile_layers(
        &self,
        state: &mut State,
        wanted: impl Fn(&State, &Layers, &str, &Layer) -> bool,
    ) -> Vec<(String, ObjectName)> {
        let mut due = Vec::new();
        for layers in state.pipelines.values() {
            let those: Vec<_> = layers
                .layers
                .iter()
                .filter(|(name, layer)| wanted(state, layers, name, layer))
                .map(|(name, _)| name.clone())
                .collect();
            if !those.is_empty() {
                due.push((layers.site.uid.clone(), those));
            }
        }
        let mut changed = Vec::new();
        for (uid, names) in due {
            let Some(mut layers) = state.pipelines.remove(&uid) else { continue };
            self.set_due(state, &mut layers, &names);
            self.pipeline_index.put_layers(&uid, state.layered(&layers, &self.pipeline_index));
            changed.push((uid.clone(), layers.site.place.clone()));
            state.pipelines.insert(uid, layers);
        }
        changed
    }

    fn set_due(&self, state: &mut State, layers: &mut Layers, names: &[String]) {
        for name in names {
            let Some(layer) = layers.layers.get_mut(name) else { continue };
            if !std::mem::replace(&mut layer.is_due, true) {
                let job = LayerJob::new(&layers.site.uid, name);
                let payer = state.payer(&layers.site, name).to_owned();
                state.turns.add(&payer, job, self.began.elapsed());
            }
        }
        self.work.notify_one();
    }

    /// Returns all effective notifications. They include results that must be compiled again, because the objects that these results refer
    /// to are still watched.
    pub(crate) fn all(&self) -> Vec<Arc<EffectiveNotification>> {
        let state = self.state();
        let notifications = state.notifications.values().filter_map(|known| known.compiled.as_ref());
        let layers = state.pipelines.values().flat_map(|layers| layers.layers.values()).filter_map(|l| l.compiled.as_ref());
        let cluster_wide = state.cluster_wide.values().map(|compiled| &compiled.result);
        let all = cluster_wide.chain(notifications.flat_map(|c| c.result.all())).chain(layers.flat_map(|c| c.result.all()));
        all.cloned().collect()
    }

    /// Compiles a Notification until the result is current.
    pub(super) fn compile_notification(&self, at: &ObjectName) {
        loop {
            let state = self.state();
            let Some(notification) = state.notifications.get(at).map(|known| known.notification.clone()) else { return };
            let sources = Sources::of_notification(&state.global(), &notification);
            drop(state);
            let with = self.compiler();
            let result = with.notification(&sources, &notification);
            let compiled = Compiled { sources, texts: with.texts.into_inner(), result };
            let mut state = self.state();
            let now = Sources::of_notification(&state.global(), &notification);
            // If the Notification was replaced meanwhile, the task that replaced it compiles it.
            let Some(known) = state.notifications.get_mut(at).filter(|k| Arc::ptr_eq(&k.notification, &notification)) else {
                return;
            };
            if known.compiled.as_ref().is_some_and(|c| c.is_current(&now, &self.config_maps)) {
                return;
            }
            self.pipeline_index.put_notification(&at.namespace, &at.name, compiled.result.clone());
            let is_current = compiled.is_current(&now, &self.config_maps);
            known.compiled = Some(compiled);
            if is_current {
                return;
            }
        }
    }

    /// Compiles a cluster-wide notification until the result is current.
    pub(super) fn compile_cluster_wide(&self, name: &str) {
        loop {
            let sources = Sources::of_cluster_wide(&self.state().global(), name);
            let Some(reach) = sources.global.cluster_wide.as_ref().map(|found| found.reach.clone()) else { return };
            let with = self.compiler();
            let result = Arc::new(with.layers(&sources.layers(), &self.global_map.namespace, GLOBAL));
            let compiled = Compiled { sources, texts: with.texts.into_inner(), result: result.clone() };
            let mut state = self.state();
            let now = Sources::of_cluster_wide(&state.global(), name);
            if now.global.cluster_wide.is_none()
                || state.cluster_wide.get(name).is_some_and(|c| c.is_current(&now, &self.config_maps))
            {
                return;
            }
            self.pipeline_index.put_cluster_wide(name, Some(EffectiveClusterWide { reach, effective: result }));
            let is_current = compiled.is_current(&now, &self.config_maps);
            state.cluster_wide.insert(name.to_owned(), compiled);
            if is_current {
                return;
            }
        }
    }

    /// Returns the state of the global configuration.
    pub(crate) fn global(&self) -> GlobalState {
        self.state().global.clone()
    }

    /// Returns the problem with the global configuration, if it affects a Notification of this namespace and name.
    pub(crate) fn global_problem(&self, namespace: &str, name: &str) -> Option<String> {
        let state = self.global();
        let concerns = state.in_force.as_ref().is_none_or(|global| global.concerns(name, namespace));
        let instead = state.instead();
        state.problem.filter(|_| concerns).map(|problem| format!("ConfigMap {}: {problem}; {instead}", self.global_map))
    }

    /// Returns the Notification with this namespace and name.
    pub(crate) fn notification(&self, namespace: &str, name: &str) -> Option<Arc<Notification>> {
        let at = ObjectName::new(namespace, name);
        self.state().notifications.get(&at).map(|known| known.notification.clone())
    }

    /// Returns the pipelines whose layers do not replace the triggers of this Notification.
    pub(crate) fn keeping_triggers<'a>(
        &self,
        at: &ObjectName,
        pipelines: &'a [Arc<PipelineFacts>],
    ) -> Vec<&'a PipelineFacts> {
        let state = self.state();
        let pipelines = pipelines.iter().map(|pipeline| &**pipeline);
        pipelines.filter(|pipeline| !state.replaces_triggers(&pipeline.uid, at)).collect()
    }

    /// Returns when the current spec of this Notification was first seen.
    pub(crate) fn since(&self, namespace: &str, name: &str) -> Option<Time> {
        self.state().notifications.get(&ObjectName::new(namespace, name)).map(|known| known.since)
    }

    /// Returns namespaces and names of all Notifications.
    pub(crate) fn places(&self) -> Vec<ObjectName> {
        self.state().notifications.keys().cloned().collect()
    }

    /// Returns the Notifications of other namespaces that accept to be layers of pipelines in this namespace.
    pub(crate) fn accepting(&self, namespace: &str) -> Vec<ObjectName> {
        self.state().accepting.get(namespace).into_iter().flatten().cloned().collect()
    }

    /// Returns the uids of all Notifications.
    pub(crate) fn uids(&self) -> HashSet<String> {
        self.state().notifications.values().filter_map(|known| known.notification.metadata.uid.clone()).collect()
    }
}
