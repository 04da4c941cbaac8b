//! Follows the Pipelines and the Secrets with their keys.
//!
//! In: watches of Pipelines, one in each scope. Out: the directory, and a watch for each Secret that it names. When all lists are complete
//! and the state of each Secret is known, the service begins to answer.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;

use futures::StreamExt as _;
use futures::stream::{BoxStream, select_all};
use kube::Client;
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::seen::SeenPipeline;
use super::service::Service;
use relaybook_api::ObjectName;
use relaybook_runtime::watch::{api_in, watch_by_term};
use relaybook_telemetry::Metrics;
use relaybook_telemetry::metrics::Watch;

/// A watched namespace; `None`: all.
type Scope = Option<String>;
type Events = BoxStream<'static, (Scope, watcher::Result<Event<SeenPipeline>>)>;

/// The state of the lists.
struct Lists {
    /// The scopes whose first list is not complete.
    unlisted: BTreeSet<Scope>,
    /// The pipelines of each list that is under way.
    listing: BTreeMap<Scope, BTreeSet<ObjectName>>,
}

/// Follows until `stop`. `ready` is called once, as soon as everything is known.
pub(super) async fn run(
    service: &Service,
    client: &Client,
    scopes: &[Scope],
    metrics: &Metrics,
    ready: impl FnOnce(),
    stop: &CancellationToken,
) {
    let mut events = select_all(scopes.iter().map(|scope| watched(client, scope.clone())));
    let mut lists = Lists { unlisted: scopes.iter().cloned().collect(), listing: BTreeMap::new() };
    let secrets = service.secrets().secrets();
    // Listened to until everything is known.
    let mut waiting = Some((ready, secrets.changes()));
    loop {
        let changed = async {
            match &mut waiting {
                Some((_, changes)) => drop(changes.next().await),
                None => pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            Some((scope, event)) = events.next() => match event {
                Ok(event) => absorb(service, &mut lists, scope, &event),
                Err(_) => metrics.watch_error(Watch::Pipelines),
            },
            () = changed => {}
        }
        let is_complete = || service.directory().secrets().iter().all(|secret| secrets.is_known(secret));
        if waiting.is_some() && lists.unlisted.is_empty() && is_complete() {
            service.complete();
            waiting.take().into_iter().for_each(|(ready, _)| ready());
        }
    }
}

/// Returns the events of the Pipelines in a scope.
fn watched(client: &Client, scope: Scope) -> Events {
    let api = api_in(client, scope.as_deref());
    // Every replica follows, so there is one term that never ends.
    let (_, terms) = watch::channel(Some(1));
    let (_, events) = watch_by_term::<SeenPipeline>(api, terms);
    events.map(move |event| (scope.clone(), event)).boxed()
}

/// Applies one event to the directory. During a list, the watches of Secrets are updated only once, at its end.
fn absorb(service: &Service, lists: &mut Lists, scope: Scope, event: &Event<SeenPipeline>) {
    let is_changed = match event {
        Event::Init => {
            lists.listing.insert(scope, BTreeSet::new());
            false
        }
        Event::InitApply(pipeline) => {
            lists.listing.entry(scope).or_default().insert(ObjectName::of(pipeline));
            service.directory_mut().put(pipeline);
            false
        }
        Event::InitDone => {
            let there = lists.listing.remove(&scope).unwrap_or_default();
            service.directory_mut().retain(scope.as_deref(), &there);
            lists.unlisted.remove(&scope);
            true
        }
        Event::Apply(pipeline) => service.directory_mut().put(pipeline),
        Event::Delete(pipeline) => service.directory_mut().remove(&ObjectName::of(pipeline)),
    };
    if is_changed {
        service.secrets().set_wanted(|| service.directory().secrets());
    }
}
