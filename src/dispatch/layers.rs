//! What pipelines make of notifications: their layers, folded for each target, and kept right as any of them changes.
//!
//! In: a pipeline as it is now; the name of a Notification or of a ConfigMap about which there is news; an edit of the global
//! configuration. Out: entries of the directory. Only what a change is about is folded again, and targets with the same layers share what these come to.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::ResourceExt as _;

use super::Context;
use super::understood::{Reader, Texts, is_stale};
use crate::api::delivery::GLOBAL;
use crate::api::notification::NotificationLayer;
use crate::api::refs::ObjectName;
use crate::api::target::targets;
use crate::api::{Notification, Pipeline, PipelineSpec};
use crate::config::layers::{Layer, Spot, names, of_environment, of_pipeline, of_whole_pipeline};
use crate::config::{Edited, EffectiveNotification, PipelineSelector, resolve_layers};
use crate::delivery::Overridden;

/// The pipelines that say something of notifications, by uid.
#[derive(Default)]
pub struct Layers(Mutex<HashMap<String, Kept>>);

/// One of them.
struct Kept {
    place: ObjectName,
    generation: Option<i64>,
    /// They decide which notifications apply, and do not raise the generation.
    labels: BTreeMap<String, String>,
    spec: PipelineSpec,
    made: BTreeMap<String, Made>,
}

/// What the layers of one notification came to, and what keys of ConfigMaps held then.
struct Made {
    overridden: Arc<Overridden>,
    texts: Texts,
}

impl Layers {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a pipeline as it is now; `true` if its layers have changed.
    pub fn take(&self, ctx: &Context, pipeline: &Pipeline) -> bool {
        let uid = pipeline.uid().unwrap_or_default();
        let mut all = self.lock();
        let known = all.get(&uid);
        let same = |known: &Kept| known.generation == pipeline.metadata.generation && known.labels == *pipeline.labels();
        if known.is_some_and(same) {
            return false;
        }
        let names = names(&pipeline.spec);
        if names.is_empty() {
            return all.remove(&uid).is_some() && ctx.deliveries.directory.put_layers(&uid, std::iter::empty().collect());
        }
        let place = ObjectName { namespace: pipeline.namespace().unwrap_or_default(), name: pipeline.name_any() };
        let (generation, labels) = (pipeline.metadata.generation, pipeline.labels().clone());
        let mut kept = Kept { place, generation, labels, spec: pipeline.spec.clone(), made: BTreeMap::new() };
        for name in names {
            let made = make(ctx, &uid, &kept, &name);
            kept.made.insert(name, made);
        }
        put(ctx, &uid, &kept);
        all.insert(uid, kept);
        true
    }

    /// Takes a pipeline out; `true` if it had layers.
    pub fn forget(&self, uid: &str) -> bool {
        self.lock().remove(uid).is_some()
    }

    /// A Notification has changed: folds again what lies over it.
    pub fn rebase(&self, ctx: &Context, namespace: &str, name: &str) {
        self.again(ctx, |kept, of, _| kept.place.namespace == namespace && of == name);
    }

    /// The global configuration has changed: folds again what lies over what has. Gives uid and place of the pipelines that this is
    /// about.
    pub fn rebase_all(&self, ctx: &Context, edited: &Edited) -> Vec<(String, ObjectName)> {
        self.again(ctx, |_, of, _| edited.concerns(of))
    }

    /// A ConfigMap has changed: folds again what refers to it. Gives uid and place of the pipelines that this is about.
    pub fn read_again(&self, ctx: &Context, config_map: &ObjectName) -> Vec<(String, ObjectName)> {
        self.again(ctx, |_, _, made| is_stale(ctx, &made.texts, config_map))
    }

    fn again(&self, ctx: &Context, wanted: impl Fn(&Kept, &str, &Made) -> bool) -> Vec<(String, ObjectName)> {
        let mut changed = Vec::new();
        for (uid, kept) in self.lock().iter_mut() {
            let those = kept.made.iter().filter(|(name, made)| wanted(kept, name, made));
            let those: Vec<_> = those.map(|(name, _)| name.clone()).collect();
            if those.is_empty() {
                continue;
            }
            for name in those {
                let made = make(ctx, uid, kept, &name);
                kept.made.insert(name, made);
            }
            put(ctx, uid, kept);
            changed.push((uid.clone(), kept.place.clone()));
        }
        changed
    }

    /// The pipelines with a layer that refers to something of which `refers` says so; uid and place.
    pub fn with(&self, refers: impl Fn(&EffectiveNotification) -> bool) -> Vec<(String, ObjectName)> {
        let all = self.lock();
        let those = all.iter().filter(|(_, kept)| kept.made.values().any(|made| made.overridden.all().any(|n| refers(n))));
        those.map(|(uid, kept)| (uid.clone(), kept.place.clone())).collect()
    }
}

fn put(ctx: &Context, uid: &str, kept: &Kept) {
    let all = kept.made.iter().map(|(name, made)| (name.clone(), made.overridden.clone()));
    ctx.deliveries.directory.put_layers(uid, all.collect());
}

/// Folds the layers of one notification.
fn make(ctx: &Context, uid: &str, kept: &Kept, name: &str) -> Made {
    let namespace = kept.place.namespace.as_str();
    let global = ctx.globals.held().global();
    let everywhere = global.get(name).filter(|everywhere| everywhere.reach.selects(namespace, &kept.labels));
    let base = ctx.understood.get(namespace, name);
    // One that does not speak of this pipeline does not lie over the cluster-wide one.
    let base = base.filter(|n| everywhere.is_none() || selects(n, &kept.labels));
    let own = base.as_ref().and_then(|n| n.metadata.uid.as_deref()).unwrap_or(uid);
    let fold = Fold {
        beneath: global.beneath(everywhere, base.as_deref()),
        namespace,
        uid: if everywhere.is_some() { GLOBAL } else { own },
        reader: Reader::new(ctx),
    };
    let rest = match of_whole_pipeline(&kept.spec, namespace, name) {
        Some(layer) => Some(fold.over(vec![layer])),
        None => ctx.deliveries.directory.base(namespace, name, &kept.labels),
    };
    let says = |layers: &[NotificationLayer]| layers.iter().any(|layer| layer.name == name);
    let mut infos = targets(&kept.spec, &ctx.cluster_name).into_iter();
    let mut by_subject = HashMap::new();
    for (e, environment) in kept.spec.environments.iter().enumerate() {
        // For the environment as a subject of its own, and for its targets that say nothing themselves.
        let shared = says(&environment.notifications).then(|| fold.over(of_environment(&kept.spec, namespace, name, e)));
        by_subject.extend(shared.iter().map(|shared| (format!("environment/{}", environment.name), Arc::clone(shared))));
        for (t, target) in environment.targets.iter().enumerate() {
            let Some(info) = infos.next() else { break };
            let spot = Spot { environment: e, index: t, target: &info.name };
            let layers = || of_pipeline(&kept.spec, namespace, name, spot);
            if says(&target.notifications) {
                by_subject.insert(info.subject.clone(), fold.over(layers()));
            } else if let Some(shared) = &shared {
                by_subject.insert(info.subject.clone(), Arc::clone(shared));
            }
        }
    }
    Made { overridden: Arc::new(Overridden { rest, subjects: by_subject }), texts: fold.reader.read() }
}

fn selects(notification: &Notification, labels: &BTreeMap<String, String>) -> bool {
    let selector = PipelineSelector::parse(notification.spec.pipeline_selector.as_ref());
    selector.map_or(true, |selector| selector.selects(labels))
}

/// What layers are folded with.
struct Fold<'a> {
    beneath: Vec<Layer>,
    namespace: &'a str,
    uid: &'a str,
    reader: Reader<'a>,
}

impl Fold<'_> {
    fn over(&self, layers: Vec<Layer>) -> Arc<EffectiveNotification> {
        let all: Vec<_> = self.beneath.iter().cloned().chain(layers).collect();
        Arc::new(self.reader.with(|given| resolve_layers(&all, self.namespace, self.uid, given)))
    }
}
