//! The global configuration as the dispatcher follows it: one ConfigMap, read strictly; the last good one stays in force.
//!
//! In: the ConfigMap as the watch brings it, and word of ConfigMaps that it refers to. Out: the cluster-wide notifications in the
//! directory, and what an edit has changed, for whoever builds on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::last_good::LastGood;
use super::understood::{Reader, Texts, is_stale};
use crate::api::delivery::GLOBAL;
use crate::api::global::KEY;
use crate::api::values::refs::ObjectName;
use crate::config::{Edited, Global, resolve_layers};
use crate::dispatch::context::CALL;
use crate::dispatch::follow::{Listed, Watched};
use crate::dispatch::{Context, notifications};
use crate::k8s::watch::{is_forbidden, one_in_turns};
use crate::manifests::global::parse;
use crate::outbox::Everywhere;
use crate::outbox::send_gate::index;
use crate::telemetry::chain;
use crate::telemetry::metrics::Watch;

/// So many of what is wrong with a text are told.
const TOLD: usize = 3;
/// When the copy could not be kept, it is tried again after so long.
const AGAIN: Duration = Duration::from_secs(10);

/// The global configuration, and what its notifications come to.
pub(in crate::dispatch) struct Globals {
    /// The ConfigMap.
    pub(in crate::dispatch) config_map: ObjectName,
    last_good: LastGood,
    held: Mutex<Held>,
    kept: Mutex<BTreeMap<String, Texts>>,
}

/// What is in force, and what is wrong with what is not.
#[derive(Clone, Debug, Default)]
pub(in crate::dispatch) struct Held {
    /// `None`: nothing has been read since the start that could be.
    pub(in crate::dispatch) in_force: Option<Arc<Global>>,
    /// Why the ConfigMap as it stands is not in force.
    pub(in crate::dispatch) problem: Option<String>,
}

impl Held {
    /// What is in force; nothing, while that is not known.
    pub(in crate::dispatch) fn global(&self) -> Arc<Global> {
        self.in_force.clone().unwrap_or_default()
    }
}

/// What came of reading the ConfigMap.
pub(in crate::dispatch) struct Taken {
    /// What is another now.
    pub(in crate::dispatch) edited: Edited,
    /// Something new is wrong with it.
    pub(in crate::dispatch) worse: Option<String>,
}

impl Globals {
    /// Nothing has been read yet.
    pub(in crate::dispatch) fn new(client: Client, config_map: ObjectName) -> Self {
        let last_good = LastGood::new(client, &config_map);
        Self { config_map, last_good, held: Mutex::default(), kept: Mutex::default() }
    }

    /// What is in force now.
    pub(in crate::dispatch) fn held(&self) -> Held {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A reference to the ConfigMap, for Events; of this version, so that what is wrong with the next is told apart.
    pub(in crate::dispatch) fn reference(&self, version: Option<String>) -> ObjectReference {
        ObjectReference {
            resource_version: version,
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            namespace: Some(self.config_map.namespace.clone()),
            name: Some(self.config_map.name.clone()),
            ..ObjectReference::default()
        }
    }

    /// Whether that is still in force.
    pub(in crate::dispatch) fn holds(&self, held: &Held) -> bool {
        match (&self.held().in_force, &held.in_force) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (now, then) => now.is_none() && then.is_none(),
        }
    }

    /// Takes the ConfigMap as it is now (`None`: there is none), or why it cannot be read.
    pub(in crate::dispatch) fn take(&self, ctx: &Context, found: Result<Option<&ConfigMap>, String>) -> Taken {
        let version = found.as_ref().ok().and_then(|object| object.as_ref()?.resource_version());
        let read = found.and_then(|object| self.read(object));
        let change = |held: &mut Held| match read {
            Ok(global) => *held = Held { in_force: Some(Arc::new(global)), problem: None },
            Err(problem) => held.problem = Some(problem),
        };
        self.change(ctx, version, change)
    }

    /// Puts into force what was the last that could be read.
    pub(in crate::dispatch) fn fall_back(&self, ctx: &Context, last_good: Global) -> Taken {
        let version = ctx.deliveries.directory.source().version;
        self.change(ctx, version, |held| held.in_force = Some(Arc::new(last_good)))
    }

    fn change(&self, ctx: &Context, version: Option<String>, change: impl FnOnce(&mut Held)) -> Taken {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let before = held.clone();
        change(&mut held);
        let now = held.clone();
        drop(held);
        ctx.metrics.config_valid(now.problem.is_none());
        let edited = match (&before.in_force, &now.in_force) {
            (Some(old), Some(new)) => old.edited(new),
            (None, None) => Edited::Names(BTreeSet::new()),
            _ => Edited::Everything,
        };
        self.understand(ctx, &now.global(), &edited);
        let unknown = now.problem.clone().filter(|_| now.in_force.is_none());
        // Last, so that whoever finds the live object to be of this version finds what it says, too.
        ctx.deliveries.directory.put_source(index::Source {
            config_map: Some(self.config_map.clone()),
            version,
            is_in_force: now.problem.is_none(),
            unknown: unknown.map(|problem| format!("ConfigMap {}: {problem}", self.config_map)),
        });
        let worse = now.problem.filter(|problem| before.problem.as_ref() != Some(problem));
        Taken { edited, worse }
    }

    /// Understands what a ConfigMap holds.
    fn read(&self, object: Option<&ConfigMap>) -> Result<Global, String> {
        let Some(object) = object else { return Ok(Global::default()) };
        let Some(text) = text(object) else {
            return Err(format!("there is no key {KEY} in its data; add it, or delete the ConfigMap"));
        };
        parse(text, &self.config_map.namespace).map_err(|wrongs| {
            let told: Vec<_> = wrongs.iter().take(TOLD).map(ToString::to_string).collect();
            let more = wrongs.len().saturating_sub(TOLD);
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            format!("{KEY}: {}{more}", told.join("; "))
        })
    }

    /// Puts the cluster-wide notifications that an edit concerns into the directory.
    fn understand(&self, ctx: &Context, global: &Global, edited: &Edited) {
        let mut kept = self.kept();
        kept.retain(|name, _| {
            let stays = global.get(name).is_some();
            if !stays {
                ctx.deliveries.directory.put_everywhere(name, None);
            }
            stays
        });
        for (name, _) in global.notifications().filter(|(name, _)| edited.concerns(name)) {
            let texts = self.put(ctx, global, name);
            kept.insert(name.clone(), texts);
        }
    }

    /// What a cluster-wide notification comes to goes into the directory.
    fn put(&self, ctx: &Context, global: &Global, name: &str) -> Texts {
        let Some(everywhere) = global.get(name) else { return Texts::new() };
        let reader = Reader::new(ctx);
        let layers = global.beneath(Some(everywhere), None);
        let effective = reader.with(|given| resolve_layers(&layers, &self.config_map.namespace, GLOBAL, given));
        let effective = Everywhere { reach: everywhere.reach.clone(), effective: Arc::new(effective) };
        ctx.deliveries.directory.put_everywhere(name, Some(effective));
        reader.read()
    }

    /// A ConfigMap has changed: understands again what refers to it; gives the names.
    pub(in crate::dispatch) fn read_again(&self, ctx: &Context, config_map: &ObjectName) -> Vec<String> {
        let mut kept = self.kept();
        // Within the lock, or an edit would be undone that comes at the same time.
        let global = self.held().global();
        let those = kept.iter().filter(|(_, texts)| is_stale(ctx, texts, config_map));
        let those: Vec<_> = those.map(|(name, _)| name.clone()).collect();
        for name in &those {
            let texts = self.put(ctx, &global, name);
            kept.insert(name.clone(), texts);
        }
        those
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<String, Texts>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What this watch is called among those that a turn waits for.
pub(in crate::dispatch) const WATCHED: Watched = (None, "the global configuration");

/// Follows the ConfigMap. `listed` is told of each list, also of one that is refused: without the right to read it, everything
/// else goes on.
pub(in crate::dispatch) async fn watch(
    ctx: Arc<Context>,
    listed: mpsc::Sender<Listed>,
    stop: CancellationToken,
) -> &'static str {
    let of = ctx.globals.config_map.clone();
    let api = Api::namespaced(ctx.client.clone(), &of.namespace);
    let (turn, mut events) = one_in_turns::<ConfigMap>(api, &of.name, ctx.lease.turns());
    let (mut found, mut open) = (None, Open::default());
    while let Some(event) = stop.run_until_cancelled(next(&mut events, open.unkept.is_some())).await {
        let Some(event) = event else {
            keep(&ctx, &mut open).await;
            continue;
        };
        let Some(event) = event else { break };
        let is_told = match event {
            Ok(Event::Init) => {
                found = None;
                false
            }
            Ok(Event::InitApply(object)) => {
                found = Some(object);
                false
            }
            Ok(Event::InitDone) => {
                ctx.globals.last_good.forget();
                take(&ctx, Ok(found.take().as_ref()), &mut open).await;
                true
            }
            Ok(Event::Apply(object)) => {
                take(&ctx, Ok(Some(&object)), &mut open).await;
                false
            }
            Ok(Event::Delete(_)) => {
                take(&ctx, Ok(None), &mut open).await;
                false
            }
            Err(error) => {
                ctx.metrics.watch_error(Watch::GlobalConfig);
                let is_forbidden = is_forbidden(&error);
                if is_forbidden {
                    let right =
                        format!("it cannot be read; Pennant needs get, list and watch on configmaps in {}", of.namespace);
                    take(&ctx, Err(right), &mut open).await;
                }
                is_forbidden
            }
        };
        if is_told {
            // Nobody listens any more when everything stops.
            let _ = listed.send((WATCHED, turn.number())).await;
        }
        keep(&ctx, &mut open).await;
    }
    "the global configuration"
}

/// The next event; the outer `None`: it is time to try something again that is `due`.
async fn next<E>(events: &mut (impl Stream<Item = E> + Unpin), due: bool) -> Option<Option<E>> {
    if due { timeout(AGAIN, events.next()).await.ok() } else { Some(events.next().await) }
}

/// What is still to be done about what was taken.
#[derive(Default)]
struct Open {
    /// The text in force, if no copy of it is kept yet.
    unkept: Option<String>,
    /// What people were told is wrong.
    told: Option<String>,
}

async fn take(ctx: &Context, found: Result<Option<&ConfigMap>, String>, open: &mut Open) {
    let before = ctx.globals.held();
    let text = found.as_ref().ok().map(|object| object.and_then(text).unwrap_or_default().to_owned());
    let Taken { mut edited, worse } = ctx.globals.take(ctx, found);
    let of = &ctx.globals.config_map;
    let held = ctx.globals.held();
    if held.problem.is_none() {
        open.unkept = text;
    } else if held.in_force.is_none()
        && let Some(last_good) = last_good(ctx).await
    {
        edited = ctx.globals.fall_back(ctx, last_good).edited;
    }
    let held = ctx.globals.held();
    let stands = stands(&held);
    if let Some(problem) = worse {
        tracing::error!(config_map = %of, %problem, "the global configuration is not taken; {stands}");
    }
    // Whoever only looks on leaves it to the one that acts.
    if ctx.lease.tenure().is_some() && open.told != held.problem {
        if let Some(problem) = &held.problem {
            let regarding = ctx.globals.reference(ctx.deliveries.directory.source().version);
            ctx.events.warn(regarding, "ConfigInvalid", "Configure", &format!("{problem}; {stands}"));
        }
        open.told.clone_from(&held.problem);
    }
    if before.problem.is_some() != held.problem.is_some() {
        // Those that it concerns say so.
        for (namespace, name) in ctx.deliveries.directory.notification_names() {
            ctx.wake_notification(&namespace, &name);
        }
    }
    notifications::global_changed(ctx, &before, &edited).await;
}

/// Keeps what is in force now, for the time after a restart; unless what is kept says the same.
async fn keep(ctx: &Context, open: &mut Open) {
    if ctx.lease.tenure().is_none() {
        // Should this replica act later, there is a new list first.
        open.unkept = None;
    }
    let Some(text) = open.unkept.as_deref().filter(|_| ctx.lease.may(CALL)) else { return };
    let of = &ctx.globals.config_map;
    let now = ctx.globals.held().global();
    let same = |kept: &str| parse(kept, &of.namespace).is_ok_and(|kept| kept.edited(&now) == Edited::Names(BTreeSet::new()));
    match ctx.globals.last_good.keep(text, same).await {
        Ok(()) => open.unkept = None,
        Err(error) => {
            let copy = ctx.globals.last_good.place();
            tracing::warn!(config_map = %copy, error = %chain(&error), "the copy of the global configuration could not be kept; should the configuration be broken at the next start, there is none in force");
        }
    }
}

/// What was last in force before this start.
async fn last_good(ctx: &Context) -> Option<Global> {
    let copy = ctx.globals.last_good.place();
    match ctx.globals.last_good.read().await {
        Ok(text) => parse(&text?, &ctx.globals.config_map.namespace).ok(),
        Err(error) => {
            tracing::warn!(config_map = %copy, error = %chain(&error), "the copy of the global configuration could not be read");
            None
        }
    }
}

/// What a ConfigMap holds for us.
fn text(object: &ConfigMap) -> Option<&str> {
    object.data.as_ref()?.get(KEY).map(String::as_str)
}

fn stands(held: &Held) -> &'static str {
    if held.in_force.is_some() { "the last good one stays in force" } else { "it is left out until it can be read" }
}

/// What is wrong with the global configuration, for a Notification of this name and namespace that it may concern.
pub(in crate::dispatch) fn concern(ctx: &Context, namespace: &str, name: &str) -> Option<String> {
    let held = ctx.globals.held();
    let stands = stands(&held);
    let Held { in_force, problem } = held;
    let concerns = in_force.as_ref().is_none_or(|global| global.concerns(name, namespace));
    problem.filter(|_| concerns).map(|problem| format!("ConfigMap {}: {problem}; {stands}", ctx.globals.config_map))
}
