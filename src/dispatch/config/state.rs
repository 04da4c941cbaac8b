//! The objects of the configuration, and their last compiled results. Plain values, without I/O.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::budget::Turns;
use super::layer_job::LayerJob;
use super::sources::{Compiled, Place, Site, Sources};
use crate::api::{Notification, Time};
use crate::config::snapshot::{Based, Layered, Overridden};
use crate::config::{EffectiveNotification, Global};
use crate::outbox::PipelineIndex;

/// The global configuration in force. If the current ConfigMap is not in force, also the problem with it.
#[derive(Clone, Debug, Default)]
pub(in crate::dispatch) struct GlobalState {
    /// `None`: nothing valid has been read since the start.
    pub(in crate::dispatch) in_force: Option<Arc<Global>>,
    /// Why the current ConfigMap is not in force.
    pub(in crate::dispatch) problem: Option<String>,
}

impl GlobalState {
    /// Returns the configuration in force, or an empty one while it is unknown.
    pub(in crate::dispatch) fn global(&self) -> Arc<Global> {
        self.in_force.clone().unwrap_or_default()
    }

    /// Returns what applies instead of an invalid ConfigMap, for messages.
    pub(in crate::dispatch) fn instead(&self) -> &'static str {
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
    pub(super) notifications: HashMap<Place, Known>,
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
pub(in crate::dispatch) enum LayerChange {
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
        let at = (site.place.namespace.clone(), name.to_owned());
        let notification = self.notifications.get(&at).map(|known| &known.notification);
        Sources::of_layers(&self.global(), notification, site, name)
    }

    /// Returns the results of a pipeline's layers, with placeholders for layers that are not compiled yet.
    pub(super) fn layered(&self, layers: &Layers, pipeline_index: &PipelineIndex) -> Layered {
        let known = |(name, layer): (&String, &Layer)| {
            let compiled = layer.compiled.as_ref().filter(|_| !layer.is_due).map(|compiled| compiled.result.clone());
            let known = compiled.unwrap_or_else(|| Arc::new(self.placeholder(layers, name, layer, pipeline_index)));
            (name.clone(), known)
        };
        layers.layers.iter().map(known).collect()
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
        let waits = self.turns.waits(namespace);
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
