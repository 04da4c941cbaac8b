//! Where the events of a controller come from.
//!
//! In: watches by leadership term, and other streams. Out: one stream of events, which says when each list is complete, and when a source has ended.

use std::fmt::Debug;
use std::future::ready;

use futures::stream::{self, BoxStream, SelectAll};
use futures::{Stream, StreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::watcher::Event;
use kube::{Client, Resource};
use tokio::sync::watch::Receiver;

use crate::leader::Lease;
use crate::watch::{Deleted, Guarded, api_in, watch_by_term, watch_labeled_by_term};
use relaybook_telemetry::Metrics;
use relaybook_telemetry::metrics::Watch;

/// One watch.
pub(super) struct Watched {
    /// The watched namespace. `None`: all.
    pub namespace: Option<String>,
    /// Whether reconciles wait for its lists.
    pub is_needed: bool,
}

/// An event. `listed`: it completes the list of the watch with this number, which was started in this leadership term.
pub(super) struct Arrived<E> {
    pub event: E,
    pub listed: Option<(usize, u64)>,
}

/// Where the events of a controller come from.
pub struct Sources<E> {
    client: Client,
    metrics: Metrics,
    pub(super) lease: Lease,
    pub(super) watched: Vec<Watched>,
    /// `None`: a source has ended.
    pub(super) events: SelectAll<BoxStream<'static, Option<Arrived<E>>>>,
}

impl<E: Send + 'static> Sources<E> {
    /// Returns no sources yet. The watches will start with each term of this Lease.
    #[must_use]
    pub fn new(client: &Client, lease: &Lease, metrics: &Metrics) -> Self {
        let (client, lease, metrics) = (client.clone(), lease.clone(), metrics.clone());
        Self { client, metrics, lease, watched: Vec::new(), events: SelectAll::new() }
    }

    /// Adds the watch of a kind in a namespace, or in all. `label` selects objects. `wrap` gets the number of watches that were added before.
    pub fn watch<K>(&mut self, namespace: Option<&str>, label: Option<&str>, what: Watch, wrap: fn(usize, Event<K>) -> E)
    where
        K: Deleted + Resource<Scope = NamespaceResourceScope> + Clone + Debug + Send + 'static,
    {
        let (api, terms) = (api_in::<Guarded<K>>(&self.client, namespace), self.lease.term_numbers());
        let (term, events) = match label {
            Some(label) => watch_labeled_by_term(api, label, terms),
            None => watch_by_term(api, terms),
        };
        let (number, metrics) = (self.watched.len(), self.metrics.clone());
        self.watched.push(Watched { namespace: namespace.map(str::to_owned), is_needed: true });
        self.push(events.filter_map(move |event| {
            let event = event.inspect_err(|_| metrics.watch_error(what)).ok();
            ready(event.map(|event| {
                let listed = matches!(event, Event::InitDone).then(|| (number, term.number()));
                Arrived { event: wrap(number, event), listed }
            }))
        }));
    }

    /// Lets reconciles not wait for the lists of the last watch. [`Wakes::has_listed`](super::Wakes::has_listed) shows whether they are complete.
    pub fn optional(&mut self) {
        self.watched.iter_mut().next_back().into_iter().for_each(|watched| watched.is_needed = false);
    }

    /// Adds a list that another task makes. `terms` has the leadership term in which it was last complete.
    pub fn list(&mut self, mut terms: Receiver<Option<u64>>, event: fn() -> E) {
        let number = self.watched.len();
        self.watched.push(Watched { namespace: None, is_needed: true });
        terms.mark_changed();
        let lists = stream::unfold(terms, |mut terms| async move {
            terms.changed().await.ok()?;
            let term = *terms.borrow_and_update();
            Some((term, terms))
        });
        self.push(
            lists.filter_map(move |term| ready(term.map(|term| Arrived { event: event(), listed: Some((number, term)) }))),
        );
    }

    /// Adds events that come from no watch, such as the wake-ups of other tasks.
    pub fn add(&mut self, events: impl Stream<Item = E> + Send + 'static) {
        self.push(events.map(|event| Arrived { event, listed: None }));
    }

    pub(super) fn push(&mut self, events: impl Stream<Item = Arrived<E>> + Send + 'static) {
        self.events.push(events.map(Some).chain(stream::once(ready(None))).boxed());
    }
}
