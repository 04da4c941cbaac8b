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
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt as _};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::dispatch::Context;
use crate::dispatch::config::last_good::LastGood;
use crate::dispatch::wake;
use relaybook_api::global::KEY;
use relaybook_runtime::call::{CallError, DEADLINE};
use relaybook_runtime::tenure::Tenure;
use relaybook_runtime::watch::{is_forbidden, watch_one_by_term};
use relaybook_settings::config::{Edited, Global};
use relaybook_settings::manifests::global::parse;
use relaybook_telemetry::chain;
use relaybook_telemetry::metrics::Watch;

/// Maximum number of problems that one message lists.
const LISTED: usize = 3;
/// If the copy could not be written, the write is retried after this time.
const AGAIN: Duration = Duration::from_secs(10);

/// Watches the ConfigMap. A list counts as complete even if it was forbidden. Without that permission, everything else still works.
pub(crate) async fn watch(ctx: Arc<Context>, stop: CancellationToken) -> &'static str {
    let of = ctx.config.global_map.clone();
    let api = Api::namespaced(ctx.client.clone(), &of.namespace);
    let (term, mut events) = watch_one_by_term::<ConfigMap>(api, &of.name, ctx.lease.term_numbers());
    let last_good = LastGood::new(ctx.client.clone(), &of);
    let mut follower = Follower { ctx, last_good, found: None, unsaved: None, reported: None };
    while let Some(event) = stop.run_until_cancelled(next(&mut events, follower.unsaved.is_some())).await {
        match event {
            Some(Some(event)) => follower.absorb(event, term.number()).await,
            Some(None) => break,
            // The write of the copy is retried.
            None => {}
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
    /// The ConfigMap in the list in progress.
    found: Option<ConfigMap>,
    /// The text in force, if it is not saved yet.
    unsaved: Option<String>,
    /// The problem that was last reported.
    reported: Option<String>,
}

impl Follower {
    /// Takes an event of the watch, whose list was started in this leadership term.
    async fn absorb(&mut self, event: watcher::Result<Event<ConfigMap>>, term: u64) {
        let is_listed = match &event {
            Ok(event) => matches!(event, Event::InitDone),
            Err(error) => is_forbidden(error),
        };
        match event {
            Ok(Event::Init) => self.found = None,
            Ok(Event::InitApply(object)) => self.found = Some(object),
            Ok(Event::InitDone) => {
                self.last_good.forget();
                let found = self.found.take();
                self.take(Ok(found.as_ref())).await;
            }
            Ok(Event::Apply(object)) => self.take(Ok(Some(&object))).await,
            Ok(Event::Delete(_)) => self.take(Ok(None)).await,
            Err(_) => {
                self.ctx.metrics.watch_error(Watch::GlobalConfig);
                if is_listed {
                    let namespace = &self.ctx.config.global_map.namespace;
                    let needed =
                        format!("it cannot be read; Relaybook needs get, list and watch on configmaps in {namespace}");
                    self.take(Err(needed)).await;
                }
            }
        }
        if is_listed {
            self.ctx.global_listed.send_if_modified(|known| known.replace(term) != Some(term));
        }
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
            wake::enqueue_affected(&self.ctx, changed);
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
        let Some(tenure) = Tenure::begin(&ctx.lease, None, &ctx.stop) else {
            // If this replica has to save it later, that term starts with a new list.
            self.unsaved = None;
            return;
        };
        let Some(text) = self.unsaved.as_deref().filter(|_| tenure.allows(DEADLINE)) else { return };
        let (namespace, now) = (&ctx.config.global_map.namespace, ctx.config.global().global());
        let unchanged = Edited::Names(BTreeSet::new());
        let is_same = |saved: &str| parse(saved, namespace).is_ok_and(|saved| saved.edited(&now) == unchanged);
        match self.last_good.keep(&tenure, text, is_same).await {
            Ok(()) => self.unsaved = None,
            // The next list, or the next edit, repeats it.
            Err(CallError::NotHeld) => {}
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
