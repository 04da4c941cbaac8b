//! The controller: the watches of pipelines and promotions in each watched namespace, and the reconciles that they cause.
//!
//! In: events of the watches, and the wake-ups of the caches. Out: reconciles of pipelines. A pipeline of another replica needs no objects here. On
//! standby, and before the first lists of a leadership term, a pipeline only fills the caches. The replica may not know yet what the previous
//! holder of the bucket has written.

use std::collections::{HashMap, HashSet};
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use kube::runtime::watcher::Event;
use tokio::sync::mpsc;

use super::promotions::Promotions;
use super::reconcile::{Reconcile, claim, keep_warm};
use super::write::tracker::WriteTracker;
use super::{Context, Error};
use relaybook_api::{Backoff, ObjectName, Pipeline, Promotion};
use relaybook_core::reading::Follower;
use relaybook_runtime::call::CallError;
use relaybook_runtime::controller::{Broken, Listing, Next, Place, Reconciler, Sources, Wakes, run as control};
use relaybook_runtime::leader::Lease;
use relaybook_runtime::limiter::NamespaceLimiter;
use relaybook_runtime::tenure::Tenure;
use relaybook_runtime::watch::scopes;
use relaybook_telemetry::chain;
use relaybook_telemetry::metrics::Watch;

/// What arrives. The numbers are those of watches.
enum Change {
    Pipeline(usize, Box<Event<Pipeline>>),
    Promotion(usize, Box<Event<Promotion>>),
    Woken(Follower),
}

/// What the controller knows.
struct Pipelines {
    context: Arc<Context>,
    /// The list in progress of each watch.
    listings: Vec<Listing>,
    /// The pipelines that exist.
    known: HashMap<Follower, Arc<Pipeline>>,
    /// A reconcile in progress has its tracker.
    trackers: HashMap<Follower, WriteTracker>,
    promotions: Promotions,
}

/// Runs the controller until it is stopped. Then it stops the caches. `woken` receives the wake-ups of the caches. `ready` is called after the
/// pipelines and promotions of every watched namespace have been listed.
pub async fn run(
    context: Context,
    mut woken: mpsc::Receiver<Follower>,
    ready: impl FnOnce() + Send + 'static,
) -> Result<(), Broken> {
    let (mut sources, mut listings) = (Sources::new(&context.client, &context.lease, &context.metrics), Vec::new());
    for namespace in scopes(&context.options.watch_namespaces) {
        let only = namespace.as_deref();
        sources.watch::<Pipeline>(only, None, Watch::Pipelines, |watch, event| Change::Pipeline(watch, Box::new(event)));
        sources.watch::<Promotion>(only, None, Watch::Promotions, |watch, event| Change::Promotion(watch, Box::new(event)));
        sources.optional();
        listings.extend([Listing::of(namespace.clone()), Listing::of(namespace)]);
    }
    sources.add(stream::poll_fn(move |task| woken.poll_recv(task)).map(Change::Woken));
    sources.add(until_broken(&context));
    let (limiter, stop) = (NamespaceLimiter::new(context.options.max_reconciles), context.stop.clone());
    let (caches, context) = (context.caches.clone(), Arc::new(context));
    let (known, trackers, promotions) = (HashMap::new(), HashMap::new(), Promotions::default());
    let pipelines = Pipelines { context, listings, known, trackers, promotions };
    let result = control(pipelines, sources, limiter, stop, ready).await;
    caches.shutdown().await;
    result
}

/// Returns a source without events. It ends, and the controller with it, when a task of the caches has panicked.
fn until_broken(context: &Context) -> impl Stream<Item = Change> + Send + 'static {
    let caches = context.caches.clone();
    stream::once(async move { caches.broken().await }).filter_map(|()| ready(None))
}

/// Notes which shard handles a pipeline. This controller hands nothing over: it starts no write that the other shard does not exclude.
fn assign(lease: &Lease, pipeline: &Pipeline) {
    if !has_come(lease, pipeline) {
        lease.assign(uid_of(pipeline), lease.sharding().holds(pipeline), 0);
    }
}

/// Whether a pipeline has come from another shard, and late writes of that shard are not excluded yet.
fn has_come(lease: &Lease, pipeline: &Pipeline) -> bool {
    lease.sharding().holds(pipeline) && lease.is_elsewhere(uid_of(pipeline))
}

fn uid_of(pipeline: &Pipeline) -> &str {
    pipeline.metadata.uid.as_deref().unwrap_or_default()
}

fn key_of(pipeline: &Pipeline) -> Follower {
    let ObjectName { namespace, name } = ObjectName::of(pipeline);
    Follower::pipeline(namespace, name)
}

impl Reconciler for Pipelines {
    type Key = Follower;
    type Event = Change;
    type Done = (WriteTracker, Result<Next, Error>);

    const PAUSES: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_mins(1) };

    fn absorb(&mut self, change: Change, wakes: &mut Wakes<Follower>) {
        match change {
            Change::Pipeline(watch, event) => self.absorb_pipeline(watch, *event, wakes),
            Change::Promotion(watch, event) => {
                let is_list = matches!(*event, Event::InitDone);
                for key in self.promotions.absorb((watch, &self.listings[watch]), *event) {
                    wakes.wake(key);
                }
                if is_list {
                    self.wake_all(watch, wakes);
                }
            }
            Change::Woken(key) => wakes.wake(key),
        }
    }

    fn place<'a>(&'a self, key: &'a Follower) -> Option<Place<'a>> {
        let pipeline = self.known.get(key)?;
        Some(Place { namespace: &key.namespace, uid: Some(uid_of(pipeline)) })
    }

    fn is_foreign(&self, key: &Follower) -> bool {
        self.known.get(key).is_some_and(|pipeline| has_come(&self.context.lease, pipeline))
    }

    fn stand_by(&mut self, key: &Follower, is_elsewhere: bool) {
        let writes = self.trackers.remove(key).unwrap_or_default();
        if is_elsewhere {
            self.release(key);
        } else if let Some(pipeline) = self.known.get(key) {
            let mut writes = writes.of(pipeline.metadata.uid.as_ref(), 0);
            keep_warm(&self.context, key, pipeline, &mut writes);
            self.trackers.insert(key.clone(), writes);
        }
    }

    fn start(
        &mut self,
        key: &Follower,
        tenure: Tenure,
        wakes: &mut Wakes<Follower>,
    ) -> Option<BoxFuture<'static, Self::Done>> {
        let (context, key, watched) = (Arc::clone(&self.context), key.clone(), Arc::clone(self.known.get(key)?));
        // If a later term has begun, its lists wake everything.
        let term = context.lease.term().filter(|term| term.number == tenure.term())?;
        let mut writes = self.trackers.remove(&key).unwrap_or_default();
        if has_come(&context.lease, &watched) {
            return Some(async move { (writes, claim(&context, &tenure, &watched).await) }.boxed());
        }
        writes = writes.of(watched.metadata.uid.as_ref(), term.number);
        context.caches.begin_term(term.number);
        let mut listings = self.listings.iter().enumerate();
        // Each second watch is one of promotions. Until its list is complete in this term, no status follows promotions.
        let is_listed = listings.any(|(watch, listing)| {
            watch % 2 == 1 && listing.covers(&key.namespace) && wakes.has_listed(watch, term.number)
        });
        let promotions = is_listed.then(|| self.promotions.of(&key.namespace, uid_of(&watched)));
        let work = async move {
            let promotions = promotions.as_ref().map(|all| all.iter().map(AsRef::as_ref).collect::<Vec<&Promotion>>());
            let (ctx, key, watched, promotions) = (&*context, &key, &watched, promotions.as_deref());
            let reconcile = Reconcile { ctx, key, watched, promotions, tenure: &tenure, epoch: term.epoch };
            let result = reconcile.run(&mut writes).await;
            (writes, result)
        };
        Some(work.boxed())
    }

    fn ended(&mut self, key: &Follower, (writes, result): Self::Done, _: &mut Wakes<Follower>) -> Next {
        if self.known.contains_key(key) {
            self.trackers.insert(key.clone(), writes);
        } else {
            // It was deleted meanwhile, and has requested its objects since.
            self.release(key);
        }
        result.unwrap_or_else(|error| {
            if !matches!(error.call(), CallError::NotHeld) {
                tracing::warn!(namespace = key.namespace, pipeline = key.name, "{}", chain(&error));
            }
            Next::Failed { is_hung: matches!(error.call(), CallError::Timeout) }
        })
    }
}

impl Pipelines {
    /// Applies an event of a pipeline. During a list none is reconciled.
    fn absorb_pipeline(&mut self, watch: usize, event: Event<Pipeline>, wakes: &mut Wakes<Follower>) {
        let listing = &mut self.listings[watch];
        listing.note(&event, ObjectName::of);
        match event {
            Event::Init => {}
            Event::InitApply(pipeline) => self.put(key_of(&pipeline), pipeline),
            Event::Apply(pipeline) => {
                let key = key_of(&pipeline);
                self.put(key.clone(), pipeline);
                wakes.wake(key);
            }
            Event::Delete(pipeline) => self.forget(&key_of(&pipeline), wakes),
            Event::InitDone => {
                let name = |key: &Follower| ObjectName::new(&key.namespace, &key.name);
                for key in listing.end(self.known.keys(), name) {
                    self.forget(&key, wakes);
                }
                self.wake_all(watch, wakes);
            }
        }
    }

    fn put(&mut self, key: Follower, pipeline: Pipeline) {
        assign(&self.context.lease, &pipeline);
        self.known.insert(key, Arc::new(pipeline));
    }

    /// Wakes the pipelines in the namespace of a watch.
    fn wake_all(&self, watch: usize, wakes: &mut Wakes<Follower>) {
        let listing = &self.listings[watch];
        let here = self.known.keys().filter(|key| listing.covers(&key.namespace));
        here.for_each(|key| wakes.wake(key.clone()));
    }

    /// Forgets a deleted pipeline.
    fn forget(&mut self, key: &Follower, wakes: &mut Wakes<Follower>) {
        if let Some(pipeline) = self.known.remove(key) {
            self.context.lease.deleted(uid_of(&pipeline));
        }
        self.trackers.remove(key);
        wakes.forget(key);
        self.release(key);
    }

    /// Releases the watches of a pipeline.
    fn release(&self, key: &Follower) {
        self.context.caches.need(key, HashSet::new());
        self.context.caches.select(key, HashSet::new());
    }
}
