//! The objects of the configuration, and their last compiled results. Plain values, without I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::budget::Turns;
use super::layer_job::LayerJob;
use super::sources::{Compiled, Site, Sources};
use crate::outbox::PipelineIndex;
use relaybook_api::{Notification, ObjectName, Time};
use relaybook_settings::config::layers::is_layer_of;
use relaybook_settings::config::snapshot::{Based, Layered, Overridden};
use relaybook_settings::config::{EffectiveNotification, Global};
use relaybook_settings::reach::replaces_triggers;

/// The global configuration in force. If the current ConfigMap is not in force, also the problem with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct GlobalState {
    /// `None`: nothing valid has been read since the start.
    pub(crate) in_force: Option<Arc<Global>>,
    /// Why the current ConfigMap is not in force.
    pub(crate) problem: Option<String>,
}

impl GlobalState {
    /// Returns the configuration in force, or an empty one while it is unknown.
    pub(crate) fn global(&self) -> Arc<Global> {
        self.in_force.clone().unwrap_or_default()
    }

    /// Returns what applies instead of an invalid ConfigMap, for messages.
    pub(crate) fn instead(&self) -> &'static str {
        match self.in_force {
            Some(_) => "keeping the last valid version",
            None => "until it is valid, cluster-wide notifications wait and no defaults apply",
        }
    }
}

/// All known objects and results.
#[derive(Default)]
pub(super) struct State {
    pub(super) global: GlobalState,
    pub(super) cluster_wide: BTreeMap<String, Compiled<Arc<EffectiveNotification>>>,
    pub(super) notifications: HashMap<ObjectName, Known>,
    /// By namespace of pipelines, the Notifications of other namespaces that accept to be layers there.
    pub(super) accepting: HashMap<String, BTreeSet<ObjectName>>,
    /// The pipelines that have layers, by uid.
    pub(super) pipelines: HashMap<String, Layers>,
    pub(super) turns: Turns<LayerJob>,
}

/// A Notification, and its compiled result.
pub(super) struct Known {
    pub(super) notification: Arc<Notification>,
    /// When its current spec was first seen.
    pub(super) since: Time,
    pub(super) compiled: Option<Compiled<Based>>,
}

/// The layers of a pipeline, by the name of the notification.
pub(super) struct Layers {
    pub(super) site: Arc<Site>,
    pub(super) layers: BTreeMap<String, Layer>,
}

/// The layers of a pipeline over one notification. The old result stays until there is a new one, so that the ConfigMaps and Secrets that
/// it refers to are still watched.
#[derive(Default)]
pub(super) struct Layer {
    /// Whether the layer must be compiled.
    pub(super) is_due: bool,
    pub(super) compiled: Option<Compiled<Arc<Overridden>>>,
}

/// How the layers of a pipeline have changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayerChange {
    None,
    /// The layers must be compiled.
    Due,
    /// The pipeline has no layers any more.
    Gone,
}

impl State {
    pub(super) fn global(&self) -> Arc<Global> {
        self.global.global()
    }

    /// Returns the sources below the layers of a pipeline over one notification.
    pub(super) fn beneath(&self, site: &Site, name: &str) -> Sources {
        let of =
            |namespace: &str| self.notifications.get(&ObjectName::new(namespace, name)).map(|known| &known.notification);
        let notifications = [of(&site.place.namespace), site.layer_namespace().and_then(of)];
        Sources::of_layers(&self.global(), notifications, site, name)
    }

    /// Returns the names of the Notifications of a pipeline's layer namespace.
    pub(super) fn names_laid(&self, site: &Site) -> Vec<String> {
        let Some(namespace) = site.layer_namespace() else { return Vec::new() };
        let is_laid = |at: &&ObjectName| {
            let known = self.notifications.get(*at).filter(|_| at.namespace == namespace);
            known.is_some_and(|k| is_layer_of(&k.notification, &site.spec, (&site.place.namespace, &site.labels)))
        };
        let accepting = self.accepting.get(&site.place.namespace).into_iter().flatten();
        accepting.filter(is_laid).map(|at| at.name.clone()).collect()
    }

    /// Whether the layer of a whole pipeline, or of its layer namespace, replaces the triggers of this Notification.
    pub(super) fn replaces_triggers(&self, pipeline: &str, at: &ObjectName) -> bool {
        let Some(Layers { site, .. }) = self.pipelines.get(pipeline) else { return false };
        let laid = || self.beneath(site, &at.name).laid.filter(|laid| ObjectName::of(&**laid) != *at);
        replaces_triggers(&site.spec, &at.name) || laid().is_some_and(|laid| laid.spec.triggers.is_some())
    }

    /// Puts or removes a Notification.
    pub(super) fn put_notification(&mut self, at: &ObjectName, known: Option<Known>) {
        let others = |known: &Known| known.notification.spec.pipeline_namespaces.clone().unwrap_or_default();
        let (new, old) = (known.as_ref().map(others), self.notifications.remove(at));
        for other in old.as_ref().map(others).into_iter().flatten() {
            if let Some(places) = self.accepting.get_mut(&other) {
                places.remove(at);
            }
        }
        for other in new.into_iter().flatten() {
            self.accepting.entry(other).or_default().insert(at.clone());
        }
        self.accepting.retain(|_, places| !places.is_empty());
        self.notifications.extend(known.map(|known| (at.clone(), known)));
    }

    /// Returns the namespace whose budget compiles the layers of a pipeline over one notification: that of the layers that another namespace
    /// added.
    pub(super) fn payer<'a>(&self, site: &'a Site, name: &str) -> &'a str {
        let namespace = site.layer_namespace().filter(|_| self.beneath(site, name).laid.is_some());
        namespace.unwrap_or(&site.place.namespace)
    }

    /// Returns the results of a pipeline's layers, with placeholders for layers that are not compiled yet.
    pub(super) fn layered(&self, layers: &Layers, pipeline_index: &PipelineIndex) -> Layered {
        let known = |(name, layer): (&String, &Layer)| {
            let compiled = layer.compiled.as_ref().filter(|_| !layer.is_due).map(|compiled| compiled.result.clone());
            let known = compiled.unwrap_or_else(|| Arc::new(self.placeholder(layers, name, layer, pipeline_index)));
            (name.clone(), known)
        };
        // A Notification of the layer namespace that is over nothing has no effect.
        let site = &layers.site;
        let is_laid = |name: &str| self.beneath(site, name).laid.is_some();
        let has_effect =
            |(name, _): &(&String, &Layer)| site.layer_namespace().is_none() || site.has_layer(name) || is_laid(name);
        layers.layers.iter().filter(has_effect).map(known).collect()
    }

    /// Returns a placeholder for layers that are not compiled yet. It has the same namespaces as before, so deliveries that a running
    /// reconcile still records go to the same namespace.
    fn placeholder(
        &self,
        Layers { site, .. }: &Layers,
        name: &str,
        layer: &Layer,
        pipeline_index: &PipelineIndex,
    ) -> Overridden {
        let namespace = &site.place.namespace;
        let beneath = self.beneath(site, name);
        let waits = self.turns.waits(self.payer(site, name));
        let at = |home: &str| Arc::new(EffectiveNotification::compiling(beneath.uid(&site.uid), home, waits));
        let former = layer.compiled.as_ref().map(|compiled| &compiled.result);
        let base = pipeline_index.base(namespace, name, &site.labels);
        let before = former.and_then(|former| former.rest.as_ref()).or(base.as_ref());
        let rest = at(before.map_or(namespace, |before| &before.home));
        let elsewhere = former.into_iter().flat_map(|former| &former.subjects).filter(|(_, n)| n.home != rest.home);
        let subjects: HashMap<_, _> = elsewhere.map(|(subject, n)| (subject.clone(), at(&n.home))).collect();
        Overridden { rest: Some(rest), subjects }
    }
}
