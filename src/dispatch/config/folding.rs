//! Folds the layers of pipelines, a little at a time, on a thread of its own.
//!
//! In: what is to be folded, from `layers`. Out: what it comes to. To compile and try templates costs time, and a pipeline may want
//! that thousands of times; so a turn ends after a moment, and `turns` says whose the next is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::budget::Next;
use super::globals::Held;
use super::layers::{Made, Site, Taken};
use super::understood::{Reader, Texts, are_stale};
use crate::api::Notification;
use crate::api::pipeline::target::targets;
use crate::config::layers::{Layer, Spot, of_environment, of_pipeline, of_whole_pipeline};
use crate::config::{EffectiveNotification, resolve_layers};
use crate::dispatch::{Context, notifications};
use crate::outbox::Overridden;

/// A turn ends after so long.
const SLICE: Duration = Duration::from_millis(50);
/// While there is much to fold, the watches of what it refers to follow at most so often.
const FOLLOW: Duration = Duration::from_millis(200);

/// What lies beneath the layers of a pipeline, for one notification.
pub(in crate::dispatch) struct Beneath {
    held: Held,
    base: Option<Arc<Notification>>,
    layers: Vec<Layer>,
    /// Whose notification it is.
    pub(in crate::dispatch) uid: String,
}

impl Beneath {
    pub(in crate::dispatch) fn find(ctx: &Context, pipeline: &str, site: &Site, name: &str) -> Self {
        let namespace = site.place.namespace.as_str();
        let held = ctx.globals.held();
        let global = held.global();
        let everywhere = global.get(name).filter(|everywhere| everywhere.reach.selects(namespace, &site.labels));
        let base = ctx.understood.get(namespace, name);
        // One that does not speak of this pipeline does not lie over the cluster-wide one.
        let over = base.as_ref().filter(|n| everywhere.is_none() || super::layers::selects(n, &site.labels));
        let own = over.and_then(|n| n.metadata.uid.as_deref()).unwrap_or(pipeline);
        let uid = if everywhere.is_some() { crate::api::delivery::GLOBAL } else { own }.to_owned();
        let layers = global.beneath(everywhere, over.map(|n| &**n));
        Self { held, base, layers, uid }
    }

    fn is_stale(&self, ctx: &Context, site: &Site, name: &str) -> bool {
        let now = ctx.understood.get(&site.place.namespace, name);
        let same = match (&now, &self.base) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (now, then) => now.is_none() && then.is_none(),
        };
        !same || !ctx.globals.holds(&self.held)
    }
}

/// One step.
enum Step {
    /// For whatever says nothing of its own.
    Rest,
    /// For an environment, and for those of its targets that say nothing of their own.
    Environment(usize, Vec<String>),
    /// For a target: its environment, its place there, its name, and how the change log calls it.
    Target(usize, usize, String, String),
}

/// The layers of one notification, as far as they are folded.
pub(in crate::dispatch) struct Folding {
    pub(in crate::dispatch) uid: String,
    pub(in crate::dispatch) name: String,
    /// Which round it is; a later one replaces it.
    pub(in crate::dispatch) round: u64,
    site: Arc<Site>,
    cluster: String,
    begun: Option<(Beneath, Vec<Step>)>,
    made: Overridden,
    texts: Texts,
}

impl Folding {
    pub(in crate::dispatch) fn new(ctx: &Context, uid: &str, site: &Arc<Site>, name: &str, round: u64) -> Self {
        Self {
            uid: uid.to_owned(),
            name: name.to_owned(),
            round,
            site: site.clone(),
            cluster: ctx.cluster_name.clone(),
            begun: None,
            made: Overridden::default(),
            texts: Texts::new(),
        }
    }

    /// What is to be done, the last first.
    fn steps(&self) -> Vec<Step> {
        let (spec, name) = (&self.site.spec, &self.name);
        let mut steps = vec![Step::Rest];
        let mut infos = targets(spec, &self.cluster).into_iter();
        for (e, environment) in spec.environments.iter().enumerate() {
            let mut others = Vec::new();
            for (t, target) in environment.targets.iter().enumerate() {
                let Some(info) = infos.next() else { break };
                if target.notifications.iter().any(|layer| layer.name == *name) {
                    steps.push(Step::Target(e, t, info.name.clone(), info.subject));
                } else {
                    others.push(info.subject);
                }
            }
            if environment.notifications.iter().any(|layer| layer.name == *name) {
                others.push(format!("environment/{}", environment.name));
                steps.push(Step::Environment(e, others));
            }
        }
        steps
    }

    /// Goes on for a moment; `true`: it is done.
    fn go_on(&mut self, ctx: &Context) -> bool {
        let began = Instant::now();
        let (beneath, mut steps) =
            self.begun.take().unwrap_or_else(|| (Beneath::find(ctx, &self.uid, &self.site, &self.name), self.steps()));
        let reader = Reader::new(ctx);
        while let Some(step) = steps.pop() {
            self.step(ctx, &reader, &beneath, step);
            if began.elapsed() >= SLICE {
                break;
            }
        }
        for (key, text) in reader.read() {
            // All targets read the same.
            if !self.texts.contains(&(key.clone(), text.clone())) {
                self.texts.push((key, text));
            }
        }
        let done = steps.is_empty();
        self.begun = Some((beneath, steps));
        done
    }

    fn step(&mut self, ctx: &Context, reader: &Reader<'_>, beneath: &Beneath, step: Step) {
        let (spec, name, namespace) = (&self.site.spec, self.name.as_str(), self.site.place.namespace.as_str());
        let over = |layers: Vec<Layer>| -> Arc<EffectiveNotification> {
            let all: Vec<_> = beneath.layers.iter().cloned().chain(layers).collect();
            Arc::new(reader.with(|given| resolve_layers(&all, namespace, &beneath.uid, given)))
        };
        match step {
            Step::Rest => {
                self.made.rest = match of_whole_pipeline(spec, namespace, name) {
                    Some(layer) => Some(over(vec![layer])),
                    None => ctx.deliveries.directory.base(namespace, name, &self.site.labels),
                };
            }
            Step::Environment(e, subjects) => {
                let shared = over(of_environment(spec, namespace, name, e));
                self.made.subjects.extend(subjects.into_iter().map(|subject| (subject, shared.clone())));
            }
            Step::Target(environment, index, target, subject) => {
                let spot = Spot { environment, index, target: &target };
                self.made.subjects.insert(subject, over(of_pipeline(spec, namespace, name, spot)));
            }
        }
    }

    /// Whether anything that it is made of is another now.
    pub(in crate::dispatch) fn is_stale(&self, ctx: &Context) -> bool {
        let beneath = self.begun.as_ref().is_none_or(|(beneath, _)| beneath.is_stale(ctx, &self.site, &self.name));
        beneath || are_stale(ctx, &self.texts)
    }

    pub(in crate::dispatch) fn made(self) -> Made {
        Made { overridden: Arc::new(self.made), texts: self.texts }
    }
}

/// Folds what is to be folded, until the end.
pub(in crate::dispatch) async fn fold(ctx: Arc<Context>, stop: CancellationToken) -> &'static str {
    let (mut is_due, mut followed) = (false, Instant::now());
    while !stop.is_cancelled() {
        let next = ctx.layers.next();
        if is_due && (!matches!(next, Next::Work(..)) || followed.elapsed() >= FOLLOW) {
            notifications::set_wanted(&ctx);
            (is_due, followed) = (false, Instant::now());
        }
        match next {
            Next::Work(namespace, folding) => is_due |= turn(&ctx, &namespace, folding).await,
            Next::Wait(left) => {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = ctx.layers.news() => {}
                    () = tokio::time::sleep(left) => {}
                }
            }
            Next::Nothing => {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = ctx.layers.news() => {}
                }
            }
        }
    }
    "the dispatcher's layers"
}

/// One turn of a namespace; `true` if something has come of it.
async fn turn(ctx: &Arc<Context>, namespace: &str, mut folding: Folding) -> bool {
    if !ctx.layers.is_open(&folding) {
        return false;
    }
    let work = ctx.clone();
    let run = spawn_blocking(move || {
        let began = Instant::now();
        let done = folding.go_on(&work);
        (folding, done, began.elapsed())
    });
    let (folding, done, cost) = match run.await {
        Ok(ran) => ran,
        // A defect, which ends the process as it would in this task.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => return false,
    };
    let taken = if done {
        ctx.layers.close(ctx, folding)
    } else {
        ctx.layers.put_back(namespace, folding);
        Taken::Open
    };
    if ctx.layers.spend(namespace, cost) {
        let waiting = ctx.layers.wait(ctx, namespace);
        notifications::look_at_open_layers(ctx, waiting).await;
    }
    match taken {
        Taken::Open => false,
        Taken::Some => true,
        Taken::All(uid, place) => {
            notifications::look_at_layers(ctx, vec![(uid, place)]).await;
            true
        }
    }
}
