//! The global configuration that the dispatcher follows: one ConfigMap, parsed strictly. While it is invalid, the last valid version stays
//! in force.
//!
//! In: the ConfigMap, from its watch. Out: the global configuration, put into the [`configuration`](crate::dispatch::config); a copy of the
//! last valid version; Events about problems.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::Event;
use kube::{Api, ResourceExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Listed, Watched};
use crate::dispatch::config::last_good::LastGood;
use crate::dispatch::context::{CALL, Context};
use crate::dispatch::wake;
use relaybook_api::global::KEY;
use relaybook_runtime::watch::{is_forbidden, watch_one_by_term};
use relaybook_settings::config::{Edited, Global};
use relaybook_settings::manifests::global::parse;
use relaybook_telemetry::chain;
use relaybook_telemetry::metrics::Watch;

/// Maximum number of problems that one message lists.
const LISTED: usize = 3;
/// If the copy could not be written, the write is retried after this time.
const AGAIN: Duration = Duration::from_secs(10);

/// Identifies this watch among the watches that a leadership term waits for.
pub(crate) const WATCHED: Watched = (None, "the global configuration");

/// Watches the ConfigMap. `listed` receives a message after each list, even if the list was forbidden. Without that permission, everything
/// else still works.
pub(crate) async fn watch(ctx: Arc<Context>, listed: mpsc::Sender<Listed>, stop: CancellationToken) -> &'static str {
    let of = ctx.config.global_map.clone();
    let api = Api::namespaced(ctx.client.clone(), &of.namespace);
    let (term, mut events) = watch_one_by_term::<ConfigMap>(api, &of.name, ctx.lease.term_numbers());
    let mut follower = Follower { last_good: LastGood::new(ctx.client.clone(), &of), unsaved: None, reported: None, ctx };
    let mut found = None;
    while let Some(event) = stop.run_until_cancelled(next(&mut events, follower.unsaved.is_some())).await {
        let Some(event) = event else {
            follower.save().await;
            continue;
        };
        let Some(event) = event else { break };
        let is_listed = match event {
            Ok(Event::Init) => {
                found = None;
                false
            }
            Ok(Event::InitApply(object)) => {
                found = Some(object);
                false
            }
            Ok(Event::InitDone) => {
                follower.last_good.forget();
                follower.take(Ok(found.take().as_ref())).await;
                true
            }
            Ok(Event::Apply(object)) => {
                follower.take(Ok(Some(&object))).await;
                false
            }
            Ok(Event::Delete(_)) => {
                follower.take(Ok(None)).await;
                false
            }
            Err(error) => follower.failed(&error).await,
        };
        if is_listed {
            // During shutdown, the receiver may be closed already.
            let _ = listed.send((WATCHED, term.number())).await;
        }
        follower.save().await;
    }
    "the global configuration"
}

/// Returns the next event. If a retry is `due`, the outer `None` means that it is time for the retry.
async fn next<E>(events: &mut (impl Stream<Item = E> + Unpin), due: bool) -> Option<Option<E>> {
    if due { timeout(AGAIN, events.next()).await.ok() } else { Some(events.next().await) }
}

/// Handles each version of the ConfigMap.
struct Follower {
    ctx: Arc<Context>,
    last_good: LastGood,
    /// The text in force, if it is not saved yet.
    unsaved: Option<String>,
    /// The problem that was last reported.
    reported: Option<String>,
}

impl Follower {
    /// Handles an error of the watch. Returns `true` if Relaybook is not allowed to read the ConfigMap.
    async fn failed(&mut self, error: &kube::runtime::watcher::Error) -> bool {
        self.ctx.metrics.watch_error(Watch::GlobalConfig);
        let is_forbidden = is_forbidden(error);
        if is_forbidden {
            let namespace = &self.ctx.config.global_map.namespace;
            let needed = format!("it cannot be read; Relaybook needs get, list and watch on configmaps in {namespace}");
            self.take(Err(needed)).await;
        }
        is_forbidden
    }

    /// Applies the current ConfigMap (`None`: it does not exist), or the reason why it cannot be read.
    async fn take(&mut self, found: Result<Option<&ConfigMap>, String>) {
        let config = &self.ctx.config;
        let text = found.as_ref().ok().map(|object| object.and_then(text).unwrap_or_default().to_owned());
        let version = found.as_ref().ok().and_then(|object| object.as_ref()?.resource_version());
        let read = found.and_then(|object| read(object, &config.global_map.namespace));
        let (before, changed) = config.put_global(version.clone(), |state| match read {
            Ok(global) => (state.in_force, state.problem) = (Some(Arc::new(global)), None),
            Err(problem) => state.problem = Some(problem),
        });
        let mut all = vec![changed];
        let after = config.global();
        self.ctx.metrics.config_valid(after.problem.is_none());
        if after.problem.is_none() {
            self.unsaved = text;
        } else if after.in_force.is_none()
            && let Some(last_good) = self.last_good().await
        {
            let version = self.ctx.deliveries.pipeline_index.source().version;
            let (_, changed) = config.put_global(version, |state| state.in_force = Some(Arc::new(last_good)));
            all.push(changed);
        }
        self.report(before.problem.as_deref());
        for changed in all.into_iter().filter(|changed| !changed.is_nothing()) {
            wake::set_wanted(&self.ctx);
            wake::enqueue_affected(&self.ctx, changed).await;
        }
    }

    fn report(&mut self, before: Option<&str>) {
        let (ctx, state) = (&self.ctx, self.ctx.config.global());
        let instead = state.instead();
        if let Some(problem) = state.problem.as_deref().filter(|problem| Some(*problem) != before) {
            let config_map = &ctx.config.global_map;
            tracing::error!(%config_map, %problem, "the global configuration is invalid; {instead}");
        }
        // Only one replica writes Events.
        if ctx.lease.owns_common() && self.reported != state.problem {
            if let Some(problem) = &state.problem {
                let regarding = ctx.global_reference(ctx.deliveries.pipeline_index.source().version);
                ctx.events.warn(regarding, "ConfigInvalid", "Configure", &format!("{problem}; {instead}"));
            }
            self.reported = state.problem;
        }
    }

    /// Saves the configuration in force for the next start, unless the saved copy has the same meaning.
    async fn save(&mut self) {
        let ctx = &self.ctx;
        if !ctx.lease.owns_common() {
            // If this replica has to save it later, that term starts with a new list.
            self.unsaved = None;
        }
        let Some(text) = self.unsaved.as_deref().filter(|_| ctx.lease.allows(CALL)) else { return };
        let (namespace, now) = (&ctx.config.global_map.namespace, ctx.config.global().global());
        let unchanged = Edited::Names(BTreeSet::new());
        let is_same = |saved: &str| parse(saved, namespace).is_ok_and(|saved| saved.edited(&now) == unchanged);
        match self.last_good.keep(text, is_same).await {
            Ok(()) => self.unsaved = None,
            Err(error) => {
                let copy = self.last_good.place();
                tracing::warn!(config_map = %copy, error = %chain(&error), "could not save the copy of the global configuration; if the configuration is invalid at the next start, cluster-wide notifications wait");
            }
        }
    }

    /// Returns the configuration that was last in force before this start.
    async fn last_good(&self) -> Option<Global> {
        match self.last_good.read().await {
            Ok(text) => parse(&text?, &self.ctx.config.global_map.namespace).ok(),
            Err(error) => {
                let copy = self.last_good.place();
                tracing::warn!(config_map = %copy, error = %chain(&error), "could not read the copy of the global configuration");
                None
            }
        }
    }
}

/// Parses a ConfigMap of this namespace.
fn read(object: Option<&ConfigMap>, namespace: &str) -> Result<Global, String> {
    let Some(object) = object else { return Ok(Global::default()) };
    let Some(text) = text(object) else {
        return Err(format!("there is no key {KEY} in its data; add it, or delete the ConfigMap"));
    };
    parse(text, namespace).map_err(|problems| {
        let listed: Vec<_> = problems.iter().take(LISTED).map(ToString::to_string).collect();
        let more = problems.len().saturating_sub(LISTED);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        format!("{KEY}: {}{more}", listed.join("; "))
    })
}

fn text(object: &ConfigMap) -> Option<&str> {
    object.data.as_ref()?.get(KEY).map(String::as_str)
}
