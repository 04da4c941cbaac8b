//! The loop of the controller.
//!
//! In: the watches of pipelines, Promotions and the Deliveries of their requests in each watched namespace. Out: the reconciles that they cause, which
//! write Promotions and start attempts.
//!
//! One task applies all events to the index, and starts the reconciles. It starts them only as the leader, and after all lists of the leadership
//! term are complete. A timer of a promotion is a planned reconcile.

pub(super) mod attempts;
pub(super) mod deliveries;
pub(super) mod index;
pub(super) mod reconcile;
pub(super) mod retain;
mod secrets;
mod store;

use parking_lot::MutexGuard;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::{self, BoxStream, SelectAll};
use kube::runtime::watcher::Event;
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep_until;

use super::{Context, Error, Options};
use deliveries::REQUESTS;
use index::{Index, Key, Listing};
use relaybook_api::promotion::Phase;
use relaybook_api::{Backoff, Delivery, ObjectName, Pipeline, Promotion, Time, now};
use relaybook_core::promotion::plan::is_ended;
use relaybook_runtime::call::CallError;
use relaybook_runtime::leader::Busy;
use relaybook_runtime::queue::Queue;
use relaybook_runtime::watch::{Arrived, api_in, numbered, scopes, watch_by_term, watch_labeled_by_term};
use relaybook_telemetry::chain;
use relaybook_telemetry::metrics::Watch;
use secrets::Wanted;
use store::Store;

/// The pauses after failed reconciles.
const PAUSES: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
/// Shortest and longest time until a planned reconcile. The wall clock can be set, so it is read again from time to time.
const TIMERS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_mins(10));

/// An event of one watch.
enum Change {
    Pipeline(Box<Event<Pipeline>>),
    Promotion(Box<Event<Promotion>>),
    Delivery(Box<Event<Delivery>>),
}

impl Change {
    /// Whether a list is complete.
    fn is_listed(&self) -> bool {
        match self {
            Self::Pipeline(event) => matches!(**event, Event::InitDone),
            Self::Promotion(event) => matches!(**event, Event::InitDone),
            Self::Delivery(event) => matches!(**event, Event::InitDone),
        }
    }
}

/// One watch.
struct Source {
    namespace: Option<String>,
    listing: Listing,
    /// The leadership term of its last complete list.
    listed: Option<u64>,
}

/// A reconcile that has ended, with when to reconcile again.
type Ended = (Key, Result<Option<Time>, Error>);

/// The state of the loop.
struct Controller {
    context: Arc<Context>,
    sources: Vec<Source>,
    queue: Queue<Key>,
    reconciles: JoinSet<Ended>,
    /// The Secrets of all pipelines.
    wanted: Wanted,
    /// Number of failed reconciles in a row.
    failures: HashMap<Key, u32>,
    /// The leadership term in which all pipelines were queued.
    begun: Option<u64>,
    /// Whether the number of promotions is exported.
    is_shown: bool,
    /// Called after the first list of every watch.
    ready: Option<Box<dyn FnOnce() + Send>>,
}

impl Context {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }
}

/// Runs the controller until it is stopped. Then it waits for the reconciles in progress, which start no further write. `ready` is called after
/// every watched namespace has been listed.
pub async fn run(context: Context, ready: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let context = Arc::new(context);
    let (stop, mut lease) = (context.stop.clone(), context.lease.clone());
    let mut attempts = context.ended.lock().take().ok_or(Error::Ended)?;
    let mut secrets = context.secrets.secrets().changes();
    let (mut controller, mut events) = Controller::new(Arc::clone(&context), Box::new(ready));
    let result = loop {
        let due = controller.start_reconciles();
        tokio::select! {
            () = stop.cancelled() => break Ok(()),
            event = events.next() => match event {
                Some(event) => controller.arrived(event),
                None => break Err(Error::Ended),
            },
            Some(ended) = controller.reconciles.join_next() => {
                if controller.ended(ended).is_err() {
                    break Err(Error::Ended);
                }
            }
            Some(key) = attempts.recv() => controller.queue.wake(key, Instant::now()),
            name = secrets.next() => controller.renew(&name),
            () = at(due) => {}
            () = lease.changed() => {}
        }
    };
    while controller.reconciles.join_next().await.is_some() {}
    context.secrets.shutdown().await;
    // The watches also end when the process stops.
    if stop.is_cancelled() { Ok(()) } else { result }
}

/// Returns the namespaces of Deliveries: those of the pipelines, and that of the installation.
fn kept(options: &Options) -> Vec<Option<String>> {
    let mut namespaces = options.watch_namespaces.clone();
    if !namespaces.is_empty() {
        namespaces.push(options.home.clone());
    }
    scopes(&namespaces)
}

/// Waits until this time, or without end.
async fn at(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

impl Controller {
    /// Starts the watches. Returns their events.
    fn new(
        context: Arc<Context>,
        ready: Box<dyn FnOnce() + Send>,
    ) -> (Self, SelectAll<BoxStream<'static, Arrived<Change>>>) {
        let (mut sources, mut events) = (Vec::new(), Vec::new());
        let failed = |watch| {
            let metrics = context.metrics.clone();
            move || metrics.watch_error(watch)
        };
        let (client, terms) = (&context.client, || context.lease.term_numbers());
        let source =
            |namespace: &Option<String>| Source { namespace: namespace.clone(), listing: Listing::default(), listed: None };
        for namespace in scopes(&context.options.watch_namespaces) {
            let first = sources.len();
            let pipelines = watch_by_term::<Pipeline>(api_in(client, namespace.as_deref()), terms());
            let wrap = |event| Change::Pipeline(Box::new(event));
            events.push(numbered(first, pipelines, failed(Watch::Pipelines), wrap));
            let promotions = watch_by_term::<Promotion>(api_in(client, namespace.as_deref()), terms());
            let wrap = |event| Change::Promotion(Box::new(event));
            events.push(numbered(first + 1, promotions, failed(Watch::Promotions), wrap));
            sources.extend([source(&namespace), source(&namespace)]);
        }
        for namespace in kept(&context.options) {
            let requests = watch_labeled_by_term::<Delivery>(api_in(client, namespace.as_deref()), REQUESTS, terms());
            let wrap = |event| Change::Delivery(Box::new(event));
            events.push(numbered(sources.len(), requests, failed(Watch::Deliveries), wrap));
            sources.push(source(&namespace));
        }
        let controller = Self {
            context,
            sources,
            queue: Queue::default(),
            reconciles: JoinSet::new(),
            wanted: Wanted::default(),
            failures: HashMap::new(),
            begun: None,
            is_shown: false,
            ready: Some(ready),
        };
        (controller, stream::select_all(events))
    }

    /// Applies an event, and plans a reconcile of its pipeline.
    fn arrived(&mut self, Arrived { watch, term, change }: Arrived<Change>) {
        let (Some(source), Some(change)) = (self.sources.get_mut(watch), change) else { return };
        let is_listed = change.is_listed();
        match &change {
            Change::Pipeline(event) => match &**event {
                Event::Apply(pipeline) | Event::InitApply(pipeline) => self.context.lease.assign_pipeline(pipeline),
                Event::Delete(pipeline) => self.context.lease.deleted(pipeline.metadata.uid.as_deref().unwrap_or_default()),
                Event::Init | Event::InitDone => {}
            },
            Change::Promotion(_) | Change::Delivery(_) => {}
        }
        let home = self.context.options.home.as_str();
        let (namespace, listing) = (source.namespace.as_deref(), &mut source.listing);
        let changed = {
            let mut index = self.context.index();
            match change {
                Change::Pipeline(event) => index.absorb_pipeline(namespace, listing, *event),
                Change::Promotion(event) => index.absorb_promotion(namespace, listing, *event),
                Change::Delivery(event) => index.deliveries.absorb((namespace, home), listing, *event),
            }
        };
        if is_listed {
            source.listed = Some(term);
            // All pipelines are reconciled after a list: it may have ended what the watch has missed.
            self.begun = None;
            if self.sources.iter().all(|source| source.listed.is_some())
                && let Some(ready) = self.ready.take()
            {
                ready();
            }
        }
        self.want(is_listed, changed.as_ref());
        if let Some(key) = changed.filter(|key| self.context.index().has_work(key)) {
            self.queue.wake(key, Instant::now());
        }
    }

    /// Watches the Secrets that the promotions need. After a list, those of all pipelines are computed again.
    fn want(&mut self, is_listed: bool, changed: Option<&Key>) {
        let index = self.context.index();
        let is_changed = if is_listed {
            self.wanted.clear();
            let all: Vec<Key> = index.with_work().cloned().collect();
            for key in all {
                self.wanted.put(&key, index.seen(&key).as_ref());
            }
            self.context.attempts.retain(&index.open());
            true
        } else {
            changed.is_some_and(|key| self.wanted.put(key, index.seen(key).as_ref()))
        };
        drop(index);
        if is_changed {
            self.context.secrets.set_wanted(|| self.wanted.all());
        }
    }

    /// Lets the promotions that use a Secret continue at once, because it has changed.
    fn renew(&mut self, name: &ObjectName) {
        for key in self.wanted.using(name) {
            let Some(seen) = self.context.index().seen(&key) else { continue };
            let open = seen.promotions.values().map(AsRef::as_ref).filter(|promotion| !is_ended(promotion));
            self.context.attempts.renew(open);
            self.queue.wake(key, Instant::now());
        }
    }

    /// Returns the leadership term, if this replica is the leader and all lists of the term are complete.
    fn leading(&self) -> Option<u64> {
        let term = self.context.lease.term()?.number;
        self.sources.iter().all(|source| source.listed == Some(term)).then_some(term)
    }

    /// Starts the reconciles that are due. Returns when the next one is due. Without leadership, nothing is due.
    fn start_reconciles(&mut self) -> Option<Instant> {
        let Some(term) = self.leading() else {
            self.begun = None;
            self.queue.clear();
            if std::mem::take(&mut self.is_shown) {
                self.show(false);
            }
            return None;
        };
        let now = Instant::now();
        if self.begun != Some(term) {
            self.begun = Some(term);
            self.failures.clear();
            self.context.attempts.begin_term();
            let all: Vec<Key> = self.context.index().with_work().cloned().collect();
            for key in all {
                self.queue.wake(key, now);
            }
        }
        self.is_shown = true;
        self.show(self.context.lease.owns_common());
        while let Some(key) = self.queue.begin(now) {
            match self.context.lease.begin(&key.uid) {
                Some(busy) => drop(self.reconciles.spawn(reconcile(self.context.clone(), key, term, busy))),
                None => self.queue.end(key, None),
            }
        }
        self.queue.next_at()
    }

    /// Plans the next reconcile of a pipeline.
    fn ended(&mut self, ended: Result<Ended, JoinError>) -> Result<(), Error> {
        let Ok((key, result)) = ended else { return Err(Error::Ended) };
        let later = match result {
            Ok(until) => {
                self.failures.remove(&key);
                until.map(|until| {
                    let wait = Duration::try_from(until.duration_since(now())).unwrap_or_default();
                    wait.clamp(TIMERS.0, TIMERS.1)
                })
            }
            Err(error) => {
                let pause = PAUSES.next(self.failures.entry(key.clone()).or_default());
                if !matches!(error, Error::NotLeader) {
                    let Key { namespace, uid } = &key;
                    tracing::warn!(namespace, pipeline_uid = uid, error = %chain(&error), "promotions could not be processed; retrying");
                }
                Some(pause)
            }
        };
        if !self.context.index().has_work(&key) {
            self.failures.remove(&key);
        }
        self.queue.end(key, later.map(|later| Instant::now() + later));
        Ok(())
    }

    /// Exports the number of all promotions. Only one replica exports them, so that they are counted once.
    fn show(&self, is_leader: bool) {
        let index = self.context.index();
        for phase in Phase::ALL {
            self.context.metrics.promotions(phase.as_str(), if is_leader { index.count(phase) } else { 0 });
        }
        self.context.metrics.oldest_open_promotion(index.oldest_open().filter(|_| is_leader));
    }
}

/// Reconciles one pipeline, as soon as its namespace has a permit.
async fn reconcile(context: Arc<Context>, key: Key, term: u64, busy: Busy) -> Ended {
    let permit = context.stop.run_until_cancelled(context.limiter.acquire(&key.namespace)).await;
    let Some(permit) = permit else { return (key, Err(Error::NotLeader)) };
    // The bucket may have been given away while this waited.
    if !context.lease.owns(&key.uid) {
        return (key, Ok(None));
    }
    let seen = context.index().seen(&key);
    let Some(seen) = seen else { return (key, Ok(None)) };
    let store = Store::new(&context, &key, term, seen.lists);
    let result = reconcile::run(&store, &key.uid, seen).await;
    permit.finish(!matches!(result, Err(Error::Call(CallError::Timeout))));
    drop(busy);
    (key, result)
}
