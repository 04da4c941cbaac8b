//! The loop of the controller: the watches of sets and of their pipelines in each watched namespace, and the reconciles that they cause.
//!
//! One task applies all events, and starts the reconciles. It acts only as the leader, and after all lists of the leadership term are complete. An
//! event of a pipeline causes a reconcile only if a decision can depend on it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::{self, BoxStream, SelectAll};
use kube::runtime::watcher::Event;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep_until;

use super::follow::{changes, make};
use super::index::{Absorbed, Index, Listing};
use super::reconcile::{Changed, Memory, reconcile, warm};
use super::{Context, Error};
use relaybook_api::pipeline_set::SET;
use relaybook_api::{Backoff, ObjectName, Pipeline, PipelineSet};
use relaybook_core::leader::bucket::Bucket;
use relaybook_core::reading::Follower;
use relaybook_runtime::leader::Lease;
use relaybook_runtime::pace::SMALL_OBJECT;
use relaybook_runtime::queue::Queue;
use relaybook_runtime::watch::{Arrived, api_in, numbered, scopes, watch_by_term, watch_labeled_by_term};
use relaybook_telemetry::chain;
use relaybook_telemetry::metrics::Watch;

/// Time from an event to the reconcile that it causes. Events of many sources and pipelines come together.
const GATHER: Duration = Duration::from_millis(100);
/// Maximum number of sets that are reconciled concurrently.
const RECONCILES: usize = 16;
/// The pauses after failed reconciles.
const PAUSES: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };

/// An event of one watch.
enum Change {
    Set(Box<Event<PipelineSet>>),
    Pipeline(Box<Event<Pipeline>>),
}

/// One watch.
struct Source {
    listing: Listing,
    /// The leadership term of its last complete list.
    listed: Option<u64>,
}

/// A reconcile that has ended.
type Ended = (Follower, Memory, Changed, Result<(), Error>);

/// The state of the loop.
struct Controller {
    context: Arc<Context>,
    sources: Vec<Source>,
    index: Index,
    memories: HashMap<Follower, Memory>,
    queue: Queue<Follower>,
    reconciles: JoinSet<Ended>,
    /// Number of failed reconciles in a row.
    failures: HashMap<Follower, u32>,
    /// The task that makes the sets of `--follow`, and when it starts again after a failure.
    follow: (JoinSet<Result<(), Error>>, Option<Instant>),
    /// Names of sets that `--follow` would need and that somebody else made.
    taken: Vec<String>,
    /// Called after the first list of every watch.
    ready: Option<Box<dyn FnOnce() + Send>>,
}

/// Runs the controller until it is stopped. Then it waits for the reconciles in progress. `woken` receives the wake-ups of the caches. `ready` is
/// called after every watched namespace has been listed.
pub async fn run(
    context: Context,
    mut woken: mpsc::Receiver<Follower>,
    ready: impl FnOnce() + Send + 'static,
) -> Result<(), Error> {
    let context = Arc::new(context);
    let (stop, mut lease) = (context.stop.clone(), context.lease.clone());
    let (mut controller, mut events) = Controller::new(Arc::clone(&context), Box::new(ready));
    let result = loop {
        let due = controller.start_reconciles();
        tokio::select! {
            () = stop.cancelled() => break Ok(()),
            event = events.next() => match event {
                Some(event) => controller.arrived(event),
                None => break Err(Error::Ended),
            },
            key = woken.recv() => match key {
                Some(key) => controller.wake(key),
                None => break Err(Error::Ended),
            },
            Some(ended) = controller.reconciles.join_next() => {
                if controller.ended(ended).is_err() {
                    break Err(Error::Ended);
                }
            }
            Some(done) = controller.follow.0.join_next() => controller.followed(done),
            () = at(due) => {}
            () = lease.changed() => {}
        }
    };
    controller.follow.0.shutdown().await;
    while controller.reconciles.join_next().await.is_some() {}
    // The watches also end when the process stops.
    if stop.is_cancelled() { Ok(()) } else { result }
}

/// Notes which shard handles a set.
fn assign(lease: &Lease, event: &Event<PipelineSet>) {
    match event {
        Event::Apply(set) | Event::InitApply(set) => lease.assign_labeled(&set.metadata),
        Event::Delete(set) => lease.deleted(set.metadata.uid.as_deref().unwrap_or_default()),
        Event::Init | Event::InitDone => {}
    }
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
        for namespace in scopes(&context.options.watch_namespaces) {
            let (first, client) = (sources.len(), &context.client);
            let terms = || context.lease.term_numbers();
            let sets = watch_by_term::<PipelineSet>(api_in(client, namespace.as_deref()), terms());
            events.push(numbered(first, sets, failed(Watch::PipelineSets), |event| Change::Set(Box::new(event))));
            let pipelines = watch_labeled_by_term::<Pipeline>(api_in(client, namespace.as_deref()), SET, terms());
            let wrap = |event| Change::Pipeline(Box::new(event));
            events.push(numbered(first + 1, pipelines, failed(Watch::Pipelines), wrap));
            let source = || Source { listing: Listing::of(namespace.clone()), listed: None };
            sources.extend([source(), source()]);
        }
        let controller = Self {
            context,
            sources,
            index: Index::default(),
            memories: HashMap::new(),
            queue: Queue::default(),
            reconciles: JoinSet::new(),
            failures: HashMap::new(),
            follow: (JoinSet::new(), None),
            taken: Vec::new(),
            ready: Some(ready),
        };
        (controller, stream::select_all(events))
    }

    /// Applies an event, and plans a reconcile of its set.
    fn arrived(&mut self, Arrived { watch, term, change }: Arrived<Change>) {
        let (Some(source), Some(change)) = (self.sources.get_mut(watch), change) else { return };
        let is_set = matches!(change, Change::Set(_));
        if let Change::Set(event) = &change {
            assign(&self.context.lease, event);
        }
        let Absorbed { wake, gone, is_listed } = match change {
            Change::Set(event) => self.index.absorb_set(&mut source.listing, *event),
            Change::Pipeline(event) => self.index.absorb_pipeline(&mut source.listing, *event),
        };
        if is_listed {
            source.listed = Some(term);
        }
        if is_set {
            // Somebody may have deleted or changed a set of --follow.
            self.follow.1.get_or_insert_with(|| Instant::now() + PAUSES.first);
        }
        for key in gone {
            self.forget(&key);
        }
        for key in wake {
            self.wake(key);
        }
        if !is_listed {
            return;
        }
        // All sets are reconciled after a list: a reconcile was not possible before, or the list has ended what the watch has missed.
        let all: Vec<Follower> = self.index.sets().map(|(key, _)| key.clone()).collect();
        for key in all {
            self.wake(key);
        }
        self.follow.1.get_or_insert_with(Instant::now);
        if self.sources.iter().all(|source| source.listed.is_some())
            && let Some(ready) = self.ready.take()
        {
            ready();
        }
    }

    /// Forgets a deleted set, and releases its watches.
    fn forget(&mut self, key: &Follower) {
        self.memories.remove(key);
        self.failures.remove(key);
        self.context.caches.select(key, HashSet::new());
    }

    fn wake(&mut self, key: Follower) {
        self.queue.wake(key, Instant::now() + GATHER);
    }

    /// Returns the leadership term, if this replica is the leader and the lists of the term that concern this namespace are complete.
    fn leading(&self, namespace: &str) -> Option<u64> {
        let term = self.context.lease.term()?.number;
        let concerned = self.sources.iter().filter(|source| source.listing.concerns(namespace));
        concerned.map(|source| source.listed).all(|listed| listed == Some(term)).then_some(term)
    }

    /// Starts the reconciles that are due. Returns when the next one is.
    fn start_reconciles(&mut self) -> Option<Instant> {
        let is_leading = self.leading(&self.context.options.namespace).is_some() && self.context.lease.owns_common();
        if is_leading && self.follow.1.is_some_and(|due| due <= Instant::now()) {
            self.follow.1 = None;
            self.start_follow();
        }
        while self.reconciles.len() < RECONCILES {
            let Some(key) = self.queue.begin(Instant::now()) else { break };
            self.start(key);
        }
        // If there are as many reconciles as there can be, the end of one is awaited.
        let next = self.queue.next_at().filter(|_| self.reconciles.len() < RECONCILES);
        next.into_iter().chain(self.follow.1.filter(|_| is_leading)).min()
    }

    /// Makes the sets of `--follow`.
    fn start_follow(&mut self) {
        let options = &self.context.options;
        let changes = changes(&options.follow, &options.namespace, self.index.sets().map(|(_, set)| &**set));
        if changes.taken != self.taken {
            self.taken.clone_from(&changes.taken);
            for set in &self.taken {
                tracing::warn!(
                    set,
                    "a set of this name exists that --follow did not make, so the kind is not followed; rename the set"
                );
            }
        }
        if !(changes.apply.is_empty() && changes.delete.is_empty()) {
            let (context, busy) = (Arc::clone(&self.context), self.context.lease.hold(Bucket::COMMON));
            if let Some(busy) = busy {
                self.follow.0.spawn(async move { make(&context, &busy, changes).await });
            }
        }
    }

    fn followed(&mut self, done: Result<Result<(), Error>, JoinError>) {
        if let Ok(Err(error)) = done {
            tracing::warn!("{}", chain(&error));
            self.follow.1 = Some(Instant::now() + PAUSES.longest / 6);
        }
    }

    fn start(&mut self, key: Follower) {
        let Some(set) = self.index.set(&key).cloned().filter(|set| set.metadata.deletion_timestamp.is_none()) else {
            self.queue.end(key, None);
            return;
        };
        let busy = self.context.lease.begin(set.metadata.uid.as_deref().unwrap_or_default());
        if busy.is_none() && self.context.lease.term().is_some() {
            // The set of another replica needs no sources here, and what is remembered of it becomes old.
            self.forget(&key);
            self.queue.end(key, None);
            return;
        }
        let (Some(term), Some(busy)) = (self.leading(&key.namespace), busy) else {
            // A set that is refused requests nothing.
            let _ = warm(&self.context, &set);
            self.queue.end(key, None);
            return;
        };
        self.context.caches.begin_term(term);
        let mut memory = self.memories.remove(&key).unwrap_or_default();
        if memory.rests_until.is_some_and(|until| until > Instant::now()) {
            self.queue.end(key.clone(), memory.rests_until);
            self.memories.insert(key, memory);
            return;
        }
        let made = self.index.made(&key);
        let context = Arc::clone(&self.context);
        self.reconciles.spawn(async move {
            let (changed, result) = reconcile(&context, &busy, &set, &made, &mut memory).await;
            drop(busy);
            (key, memory, changed, result)
        });
    }

    /// Processes the result of a reconcile.
    fn ended(&mut self, ended: Result<Ended, JoinError>) -> Result<(), JoinError> {
        let (key, mut memory, changed, result) = ended?;
        if self.index.set(&key).is_none() {
            // It was deleted meanwhile, and has requested its sources since.
            self.forget(&key);
            self.queue.end(key, None);
            return Ok(());
        }
        let writes = changed.written.len() + usize::from(changed.set.is_some());
        if writes > 0 {
            let now = Instant::now();
            memory.rests_until = Some(now + self.context.pace.spend(&key.namespace, writes * SMALL_OBJECT, now));
        }
        self.memories.insert(key.clone(), memory);
        let place = |name: String| ObjectName::new(&key.namespace, name);
        let put = |(name, made)| self.index.put(place(name), key.name.clone(), made);
        let mut woken: Vec<Follower> = changed.written.into_iter().filter_map(put).collect();
        let find = |(name, made)| self.index.found(place(name), key.name.clone(), made);
        woken.extend(changed.found.into_iter().filter_map(find));
        for key in woken {
            self.wake(key);
        }
        if let Some(set) = changed.set {
            self.index.renew(&key, set);
        }
        let again = match result {
            Ok(()) => {
                self.failures.remove(&key);
                changed.again
            }
            Err(Error::NotLeading) => None,
            Err(error) => {
                tracing::warn!(namespace = key.namespace, set = key.name, "{}", chain(&error));
                Some(Instant::now() + PAUSES.next(self.failures.entry(key.clone()).or_default()))
            }
        };
        self.queue.end(key, again);
        Ok(())
    }
}
