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
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use kube::ResourceExt as _;
use tokio::sync::Notify;

use super::changed::{Changed, are_compiled};
use super::config_maps::ConfigMaps;
use super::results::{Compiled, Effective, Owner, Place};
use super::sources::{Compiler, Site};
use super::state::{GlobalState, Known, State};
use crate::outbox::{PipelineFacts, PipelineIndex, Scope};
use relaybook_api::delivery::GLOBAL;
use relaybook_api::pipeline::target::targets_of;
use relaybook_api::{Notification, ObjectName, Pipeline, PipelineSpec, Time, now};
use relaybook_settings::config::EffectiveNotification;
use relaybook_settings::config::layers::names;
use relaybook_settings::config::snapshot::EffectiveClusterWide;

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

    /// Applies the current version of a Notification. Returns what this affects besides the Notification. `None`: nothing relevant has
    /// changed.
    pub(crate) fn put_notification(&self, notification: &Notification) -> Option<Changed> {
        let at = ObjectName::of(notification);
        let mut state = self.state();
        let is_same = |known: &Known| {
            let known = &known.notification.metadata;
            known.uid == notification.metadata.uid && known.generation == notification.metadata.generation
        };
        if state.notifications.get(&at).is_some_and(is_same) {
            return None;
        }
        let known = Known { notification: Arc::new(notification.clone()), since: now() };
        state.put_notification(&at, Some(known));
        Some(self.notification_changed(state, &at))
    }

    /// Removes a Notification. Returns what this affects besides the Notification. `None`: it was unknown.
    pub(crate) fn remove_notification(&self, namespace: &str, name: &str) -> Option<Changed> {
        let at = ObjectName::new(namespace, name);
        let mut state = self.state();
        state.put_notification(&at, None).then(|| self.notification_changed(state, &at))
    }

    fn notification_changed(&self, state: MutexGuard<'_, State>, at: &ObjectName) -> Changed {
        let outdated = state.outdated_by(at);
        let mut layers = self.renew(state, &outdated);
        // The others affect something when they are compiled.
        layers.retain(are_compiled);
        Changed { layers, ..Changed::default() }
    }

    /// Applies the current version of a pipeline. If its layers have changed, the layers and the facts are put into the pipeline index in
    /// one step. Then it returns the lanes to check.
    pub(crate) fn put_pipeline(&self, pipeline: &Pipeline, facts: &PipelineFacts) -> Option<Scope> {
        let uid = pipeline.uid().unwrap_or_default();
        let mut state = self.state();
        let known = state.sites.get(&uid);
        let generates = pipeline.spec.environments.iter().any(|environment| !environment.targets_from.is_empty());
        let targets = || targets_of(pipeline, &self.cluster);
        let is_same = |site: &Arc<Site>| {
            site.generation == pipeline.metadata.generation
                && site.labels == *pipeline.labels()
                && (!generates || site.targets == targets())
        };
        if known.is_some_and(is_same) {
            return None;
        }
        let mut names = names(&pipeline.spec);
        let layer_namespace = pipeline.spec.layer_namespace.clone().filter(|_| self.cross_namespace_refs);
        if known.is_none() && names.is_empty() && layer_namespace.is_none() {
            return None;
        }
        let site = Arc::new(Site {
            uid: uid.clone(),
            place: ObjectName::of(pipeline),
            generation: pipeline.metadata.generation,
            labels: pipeline.labels().clone(),
            spec: PipelineSpec { layer_namespace, ..pipeline.spec.clone() },
            targets: targets(),
        });
        names.extend(state.laid(&site).filter(|name| state.beneath(&site, name).laid.is_some()).cloned());
        let owner = Owner::Pipeline(uid.clone());
        let old: Vec<_> = state.results.of(&owner).map(|(name, _)| Place::new(owner.clone(), name)).collect();
        old.iter().filter(|place| !names.contains(&place.name)).for_each(|place| state.results.remove(place));
        state.sites.remove(&uid);
        if !names.is_empty() || site.layer_namespace().is_some() {
            state.sites.insert(uid.clone(), site);
        }
        let layers: Vec<_> = names.iter().map(|name| Place::new(owner.clone(), name)).collect();
        state.mark(&layers, self.began.elapsed());
        if old.is_empty() && layers.is_empty() {
            return None;
        }
        let layered = state.layered(&uid, &self.pipeline_index);
        self.pipeline_index.put_pipeline_with_layers(&uid, facts.clone(), layered);
        self.work.notify_one();
        Some(if layers.is_empty() { Scope::Layers(uid) } else { Scope::Pipeline(uid) })
    }

    /// Removes a pipeline. Returns `true` if it had layers or a layer namespace.
    pub(crate) fn remove_pipeline(&self, uid: &str) -> bool {
        let mut state = self.state();
        state.results.remove_all(&Owner::Pipeline(uid.to_owned()));
        state.sites.remove(uid).is_some()
    }

    /// Renews the results at these places, whose sources or texts have changed. Layers are compiled in the background, and the others before
    /// it returns. Returns the pipelines whose layers have changed.
    pub(super) fn renew(&self, mut state: MutexGuard<'_, State>, places: &[Place]) -> Vec<(Scope, ObjectName)> {
        let gone = state.mark(places, self.began.elapsed());
        // A placeholder has the namespace of what was below the layers, so this comes before that is removed.
        let layers = self.put_layers(&state, places);
        for place in &gone {
            self.put(place, None);
        }
        drop(state);
        self.work.notify_one();
        places.iter().filter(|place| place.pipeline().is_none()).for_each(|place| self.compile(place));
        layers
    }

    /// Puts the layers of the pipelines at these places into the snapshot. Returns these pipelines, with their lanes.
    pub(super) fn put_layers(&self, state: &State, places: &[Place]) -> Vec<(Scope, ObjectName)> {
        let put = |(uid, place): (String, ObjectName)| {
            self.pipeline_index.put_layers(&uid, state.layered(&uid, &self.pipeline_index));
            let is_due = state.results.of(&Owner::Pipeline(uid.clone())).any(|(_, entry)| entry.is_due);
            (if is_due { Scope::Pipeline(uid) } else { Scope::Layers(uid) }, place)
        };
        state.pipelines_of(places).into_iter().map(put).collect()
    }

    /// Puts the result of a notification into the snapshot, or removes it.
    fn put(&self, place: &Place, compiled: Option<&Compiled>) {
        let Place { owner, name } = place;
        match (owner, compiled.map(|compiled| (&compiled.result, &compiled.sources.global.cluster_wide))) {
            (Owner::Global, Some((Effective::Notification(based), Some(found)))) => {
                let (reach, effective) = (found.reach.clone(), based.alone.clone());
                self.pipeline_index.put_cluster_wide(name, Some(EffectiveClusterWide { reach, effective }));
            }
            (Owner::Global, _) => self.pipeline_index.put_cluster_wide(name, None),
            (Owner::Namespace(namespace), Some((Effective::Notification(based), _))) => {
                self.pipeline_index.put_notification(namespace, name, based.clone());
            }
            (Owner::Namespace(namespace), _) => {
                self.pipeline_index.remove_notification(namespace, name);
            }
            (Owner::Pipeline(_), _) => {}
        }
    }

    /// Compiles a notification until the result is current. The result of an old source is dropped.
    fn compile(&self, place: &Place) {
        loop {
            let sources = self.state().sources(&place.owner, &place.name);
            let Some(sources) = sources else { return };
            let with = self.compiler();
            let based = match &sources.notification {
                Some(notification) => with.notification(&sources, notification),
                None => with.layers(&sources.layers(), &self.global_map.namespace, GLOBAL).into(),
            };
            let (texts, result) = (with.texts.into_inner(), Effective::Notification(based));
            let compiled = Compiled { sources, texts, result };
            let mut state = self.state();
            let Some(now) = state.sources(&place.owner, &place.name) else { return };
            let known = &mut state.results.entry(place).compiled;
            if known.as_ref().is_some_and(|known| known.is_current(&now, &self.config_maps)) {
                return;
            }
            if compiled.is_current(&now, &self.config_maps) {
                self.put(place, Some(&compiled));
                *known = Some(compiled);
                return;
            }
        }
    }

    /// Returns all effective notifications. They include results that must be compiled again, because the objects that these results refer
    /// to are still watched.
    pub(crate) fn all(&self) -> Vec<Arc<EffectiveNotification>> {
        self.state().results.compiled().flat_map(Compiled::all).cloned().collect()
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
