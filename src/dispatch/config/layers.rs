//! What pipelines make of notifications: their layers, folded for each target, and kept right as any of them changes.
//!
//! In: a pipeline as it is now; the name of a Notification or of a ConfigMap about which there is news; an edit of the global
//! configuration. Out: entries of the directory, and what is to be folded, which `folding` does. Only what a change is about is folded
//! again, and targets with the same layers share what these come to.
//!
//! Until layers are folded, an entry says so: changes and deliveries wait, and nothing is sent as it was meant before.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::ResourceExt as _;
use tokio::sync::Notify;

use super::budget::{Next, Turns};
use super::folding::{Beneath, Folding};
use super::understood::{Texts, is_stale};
use crate::api::values::refs::ObjectName;
use crate::api::{Notification, Pipeline, PipelineSpec};
use crate::config::layers::names;
use crate::config::{Edited, EffectiveNotification, PipelineSelector};
use crate::dispatch::Context;
use crate::outbox::{Layered, Overridden, PipelineFacts};

/// The pipelines that say something of notifications, and what of it is to be folded.
pub struct Layers {
    /// By uid.
    all: Mutex<HashMap<String, Kept>>,
    turns: Mutex<Turns<Folding>>,
    /// There is something to fold.
    news: Notify,
    began: Instant,
}

impl Default for Layers {
    fn default() -> Self {
        Self { all: Mutex::default(), turns: Mutex::default(), news: Notify::new(), began: Instant::now() }
    }
}

/// One of them.
struct Kept {
    site: Arc<Site>,
    generation: Option<i64>,
    made: BTreeMap<String, Made>,
    /// Those that are to be folded, and in which round.
    open: BTreeMap<String, u64>,
    rounds: u64,
}

/// What is folded of a pipeline.
pub(in crate::dispatch) struct Site {
    pub(in crate::dispatch) place: ObjectName,
    /// They decide which notifications apply, and do not raise the generation.
    pub(in crate::dispatch) labels: BTreeMap<String, String>,
    pub(in crate::dispatch) spec: PipelineSpec,
}

/// What the layers of one notification came to, and what keys of ConfigMaps held then.
pub(in crate::dispatch) struct Made {
    pub(in crate::dispatch) overridden: Arc<Overridden>,
    pub(in crate::dispatch) texts: Texts,
}

/// What a pipeline's layers have come to, as it is now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LayerChange {
    /// Nothing has changed.
    None,
    /// They are to be folded.
    Folding,
    /// There are none any more.
    Gone,
}

/// What has come of a turn.
pub(in crate::dispatch) enum Taken {
    /// More is to be done, or something else than was thought.
    Open,
    /// The layers of a notification are folded.
    Some,
    /// All layers of a pipeline are; uid and place.
    All(String, ObjectName),
}

impl Layers {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns(&self) -> MutexGuard<'_, Turns<Folding>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Takes a pipeline as it is now. Where its layers have changed, they and the facts go into the directory as one.
    pub fn take(&self, ctx: &Context, pipeline: &Pipeline, facts: &PipelineFacts) -> LayerChange {
        let uid = pipeline.uid().unwrap_or_default();
        let mut all = self.lock();
        let known = all.get(&uid);
        let same =
            |known: &Kept| known.generation == pipeline.metadata.generation && known.site.labels == *pipeline.labels();
        if known.is_some_and(same) {
            return LayerChange::None;
        }
        let put = |layered| ctx.deliveries.directory.put_pipeline_with_layers(&uid, facts.clone(), layered);
        let names = names(&pipeline.spec);
        if names.is_empty() {
            let had = all.remove(&uid).is_some() && put(Layered::default());
            return if had { LayerChange::Gone } else { LayerChange::None };
        }
        let place = ObjectName { namespace: pipeline.namespace().unwrap_or_default(), name: pipeline.name_any() };
        let site = Arc::new(Site { place, labels: pipeline.labels().clone(), spec: pipeline.spec.clone() });
        // What was made stays until it is made again, for what it refers to is watched on.
        let (mut made, rounds) = all.remove(&uid).map_or_else(Default::default, |kept| (kept.made, kept.rounds));
        made.retain(|name, _| names.contains(name));
        let mut kept = Kept { site, generation: pipeline.metadata.generation, made, open: BTreeMap::new(), rounds };
        put(self.open(ctx, &uid, &mut kept, names));
        all.insert(uid, kept);
        LayerChange::Folding
    }

    /// Has the layers of these notifications folded. Gives what is known of the pipeline's layers until then.
    fn open(&self, ctx: &Context, uid: &str, kept: &mut Kept, names: impl IntoIterator<Item = String>) -> Layered {
        kept.rounds += 1;
        let mut turns = self.turns();
        for name in names {
            turns.add(&kept.site.place.namespace, Folding::new(ctx, uid, &kept.site, &name, kept.rounds), self.now());
            kept.open.insert(name, kept.rounds);
        }
        let waits = turns.waits(&kept.site.place.namespace);
        drop(turns);
        self.news.notify_one();
        known(ctx, uid, kept, waits)
    }

    /// Takes a pipeline out; `true` if it had layers.
    pub fn forget(&self, uid: &str) -> bool {
        self.lock().remove(uid).is_some()
    }

    /// A Notification has changed: folds again what lies over it.
    pub fn rebase(&self, ctx: &Context, namespace: &str, name: &str) {
        self.again(ctx, |kept, of, _| kept.site.place.namespace == namespace && of == name);
    }

    /// The global configuration has changed: folds again what lies over what has. Gives uid and place of the pipelines that this is
    /// about.
    pub fn rebase_all(&self, ctx: &Context, edited: &Edited) -> Vec<(String, ObjectName)> {
        self.again(ctx, |_, of, _| edited.concerns(of))
    }

    /// A ConfigMap has changed: folds again what refers to it. Gives uid and place of the pipelines that this is about.
    pub fn read_again(&self, ctx: &Context, config_map: &ObjectName) -> Vec<(String, ObjectName)> {
        // What is being folded is compared with what it was made of when it is done.
        self.again(ctx, |_, _, made| made.is_some_and(|made| is_stale(ctx, &made.texts, config_map)))
    }

    fn again(&self, ctx: &Context, wanted: impl Fn(&Kept, &str, Option<&Made>) -> bool) -> Vec<(String, ObjectName)> {
        let mut changed = Vec::new();
        for (uid, kept) in self.lock().iter_mut() {
            let all = kept.made.keys().chain(kept.open.keys().filter(|name| !kept.made.contains_key(*name)));
            let made = |name: &str| kept.made.get(name).filter(|_| !kept.open.contains_key(name));
            let those: Vec<_> = all.filter(|name| wanted(kept, name, made(name))).cloned().collect();
            if those.is_empty() {
                continue;
            }
            ctx.deliveries.directory.put_layers(uid, self.open(ctx, uid, kept, those));
            changed.push((uid.clone(), kept.site.place.clone()));
        }
        changed
    }

    /// The pipelines with a layer that refers to something of which `refers` says so; uid and place.
    pub fn with(&self, refers: impl Fn(&EffectiveNotification) -> bool) -> Vec<(String, ObjectName)> {
        let all = self.lock();
        let those = all.iter().filter(|(_, kept)| kept.made.values().any(|made| made.overridden.all().any(|n| refers(n))));
        those.map(|(uid, kept)| (uid.clone(), kept.site.place.clone())).collect()
    }

    /// What was made of layers that are to be folded again.
    pub(in crate::dispatch) fn former(&self) -> Vec<Arc<EffectiveNotification>> {
        let all = self.lock();
        let open = all.values().flat_map(|kept| kept.open.keys().filter_map(|name| kept.made.get(name)));
        open.flat_map(|made| made.overridden.all().cloned()).collect()
    }

    /// What is to be folded next.
    pub(in crate::dispatch) fn next(&self) -> Next<Folding> {
        self.turns().next(self.now())
    }

    /// Waits until there may be something to fold.
    pub(in crate::dispatch) async fn news(&self) {
        self.news.notified().await;
    }

    /// Whether this is still to be folded.
    pub(in crate::dispatch) fn is_open(&self, folding: &Folding) -> bool {
        let all = self.lock();
        all.get(&folding.uid).is_some_and(|kept| kept.open.get(&folding.name) == Some(&folding.round))
    }

    /// It is to go on at the next turn of its namespace.
    pub(in crate::dispatch) fn put_back(&self, namespace: &str, folding: Folding) {
        self.turns().put_back(namespace, folding, self.now());
    }

    /// Takes down what a turn has cost. `true`: from now on the rest of the namespace waits.
    pub(in crate::dispatch) fn spend(&self, namespace: &str, cost: Duration) -> bool {
        self.turns().spend(namespace, cost, self.now())
    }

    /// What is to be folded of this namespace has to wait, and says so. Gives uid and place of its pipelines.
    pub(in crate::dispatch) fn wait(&self, ctx: &Context, namespace: &str) -> Vec<(String, ObjectName)> {
        let all = self.lock();
        let those = all.iter().filter(|(_, kept)| kept.site.place.namespace == namespace && !kept.open.is_empty());
        those
            .map(|(uid, kept)| {
                ctx.deliveries.directory.put_layers(uid, known(ctx, uid, kept, true));
                (uid.clone(), kept.site.place.clone())
            })
            .collect()
    }

    /// Takes what layers came to, unless they, or what lies beneath, have changed meanwhile.
    pub(in crate::dispatch) fn close(&self, ctx: &Context, folding: Folding) -> Taken {
        let mut all = self.lock();
        let Some(kept) = all.get_mut(&folding.uid) else { return Taken::Open };
        if kept.open.get(&folding.name) != Some(&folding.round) {
            return Taken::Open;
        }
        let (uid, name) = (folding.uid.clone(), folding.name.clone());
        if folding.is_stale(ctx) {
            ctx.deliveries.directory.put_layers(&uid, self.open(ctx, &uid, kept, [name]));
            return Taken::Open;
        }
        kept.open.remove(&name);
        kept.made.insert(name, folding.made());
        let waits = self.turns().waits(&kept.site.place.namespace);
        ctx.deliveries.directory.put_layers(&uid, known(ctx, &uid, kept, waits));
        if kept.open.is_empty() { Taken::All(uid, kept.site.place.clone()) } else { Taken::Some }
    }
}

/// What is known of a pipeline's layers. `waits`: what is not folded has to wait for it.
fn known(ctx: &Context, uid: &str, kept: &Kept, waits: bool) -> Layered {
    let made = kept.made.iter().filter(|(name, _)| !kept.open.contains_key(*name));
    let made = made.map(|(name, made)| (name.clone(), made.overridden.clone()));
    let open = kept.open.keys().map(|name| (name.clone(), Arc::new(compiling(ctx, uid, kept, name, waits))));
    made.chain(open).collect()
}

/// What says that layers are not folded yet. What is recorded at this moment goes where it went before.
fn compiling(ctx: &Context, uid: &str, kept: &Kept, name: &str, waits: bool) -> Overridden {
    let Site { place, labels, .. } = &*kept.site;
    let own = Beneath::find(ctx, uid, &kept.site, name).uid;
    let at = |home: &str| Arc::new(EffectiveNotification::compiling(&own, home, waits));
    let former = kept.made.get(name).map(|made| &made.overridden);
    let base = ctx.deliveries.directory.base(&place.namespace, name, labels);
    let before = former.and_then(|former| former.rest.as_ref()).or(base.as_ref());
    let rest = at(before.map_or(&place.namespace, |before| &before.home));
    let elsewhere = former.into_iter().flat_map(|former| &former.subjects).filter(|(_, n)| n.home != rest.home);
    let subjects: HashMap<_, _> = elsewhere.map(|(subject, n)| (subject.clone(), at(&n.home))).collect();
    Overridden { rest: Some(rest), subjects }
}

pub(in crate::dispatch) fn selects(notification: &Notification, labels: &BTreeMap<String, String>) -> bool {
    let selector = PipelineSelector::parse(notification.spec.pipeline_selector.as_ref());
    selector.map_or(true, |selector| selector.selects(labels))
}
