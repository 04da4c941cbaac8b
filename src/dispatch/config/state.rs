//! The objects that the configuration consists of, and what they were last compiled to. Values only.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::budget::Turns;
use super::layer_job::LayerJob;
use super::sources::{Compiled, Place, Site, Sources};
use crate::api::{Notification, Time};
use crate::config::snapshot::{Based, Layered, Overridden};
use crate::config::{EffectiveNotification, Global};
use crate::outbox::PipelineIndex;

/// The global configuration that is in force, and what is wrong with the ConfigMap if that is not what it says.
#[derive(Clone, Debug, Default)]
pub(in crate::dispatch) struct GlobalState {
    /// `None`: nothing valid has been read since the start.
    pub(in crate::dispatch) in_force: Option<Arc<Global>>,
    /// Why the ConfigMap as it is now is not in force.
    pub(in crate::dispatch) problem: Option<String>,
}

impl GlobalState {
    /// What is in force; nothing, while that is not known.
    pub(in crate::dispatch) fn global(&self) -> Arc<Global> {
        self.in_force.clone().unwrap_or_default()
    }

    /// What applies instead of an invalid ConfigMap, for messages.
    pub(in crate::dispatch) fn instead(&self) -> &'static str {
        if self.in_force.is_some() { "the last good one stays in force" } else { "it is left out until it can be read" }
    }
}

/// Everything that is known.
#[derive(Default)]
pub(super) struct State {
    pub(super) global: GlobalState,
    pub(super) everywhere: BTreeMap<String, Compiled<Arc<EffectiveNotification>>>,
    pub(super) notifications: HashMap<Place, Known>,
    /// Those that have layers, by uid.
    pub(super) pipelines: HashMap<String, Layers>,
    pub(super) turns: Turns<LayerJob>,
}

/// A Notification.
pub(super) struct Known {
    pub(super) notification: Arc<Notification>,
    /// When its present spec was first seen.
    pub(super) since: Time,
    pub(super) compiled: Option<Compiled<Based>>,
}

/// The layers of a pipeline, by the name of the notification.
pub(super) struct Layers {
    pub(super) site: Arc<Site>,
    pub(super) layers: BTreeMap<String, Layer>,
}

/// The layers over one notification. The result stays until there is a new one, so that what it refers to is still watched.
#[derive(Default)]
pub(super) struct Layer {
    /// It is to be compiled.
    pub(super) is_due: bool,
    pub(super) compiled: Option<Compiled<Arc<Overridden>>>,
}

/// What became of a pipeline's layers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::dispatch) enum LayerChange {
    None,
    /// They are to be compiled.
    Due,
    /// There are none any more.
    Gone,
}

impl State {
    pub(super) fn global(&self) -> Arc<Global> {
        self.global.global()
    }

    /// What the layers of a pipeline over a notification lie on.
    pub(super) fn beneath(&self, site: &Site, name: &str) -> Sources {
        let at = (site.place.namespace.clone(), name.to_owned());
        let notification = self.notifications.get(&at).map(|known| &known.notification);
        Sources::of_layers(&self.global(), notification, site, name)
    }

    /// What is known of a pipeline's layers.
    pub(super) fn layered(&self, layers: &Layers, pipeline_index: &PipelineIndex) -> Layered {
        let known = |(name, layer): (&String, &Layer)| {
            let compiled = layer.compiled.as_ref().filter(|_| !layer.is_due).map(|compiled| compiled.result.clone());
            let known = compiled.unwrap_or_else(|| Arc::new(self.placeholder(layers, name, layer, pipeline_index)));
            (name.clone(), known)
        };
        layers.layers.iter().map(known).collect()
    }

    /// What says that layers are not compiled yet. What is recorded at this moment is kept in the namespace where it was kept before.
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
