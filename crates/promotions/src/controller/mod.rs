//! The controller of promotions.
//!
//! In: the watches of pipelines, Promotions and the Deliveries of their requests in each watched namespace. Out: the reconciles that they
//! cause, which write Promotions and start attempts. A timer of a promotion is a planned reconcile.

pub(super) mod attempts;
pub(super) mod deliveries;
pub(super) mod index;
pub(super) mod reconcile;
pub(super) mod retain;
mod secrets;
mod store;

use parking_lot::MutexGuard;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use kube::runtime::watcher::Event;

use super::{Context, Error, Options};
use deliveries::REQUESTS;
use index::{Index, Key};
use relaybook_api::promotion::Phase;
use relaybook_api::{Delivery, ObjectName, Pipeline, Promotion, Time, now};
use relaybook_core::promotion::plan::is_ended;
use relaybook_runtime::call::CallError;
use relaybook_runtime::controller::{Broken, Listing, Next, Place, Reconciler, Sources, Wakes, run as control};
use relaybook_runtime::leader::Lease;
use relaybook_runtime::limiter::NamespaceLimiter;
use relaybook_runtime::tenure::Tenure;
use relaybook_runtime::watch::scopes;
use relaybook_telemetry::chain;
use relaybook_telemetry::metrics::Watch;
use secrets::Wanted;
use store::Store;

/// Shortest and longest time until a planned reconcile. The wall clock can be set, so it is read again from time to time.
const TIMERS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_mins(10));

/// What arrives. The numbers are those of watches.
enum Change {
    Pipeline(usize, Box<Event<Pipeline>>),
    Promotion(usize, Box<Event<Promotion>>),
    Delivery(usize, Box<Event<Delivery>>),
    /// An attempt for this pipeline has ended.
    Attempt(Key),
    Secret(ObjectName),
}

/// What the controller knows.
struct Promotions {
    context: Arc<Context>,
    /// The list in progress of each watch.
    listings: Vec<Listing>,
    /// The Secrets of all pipelines.
    wanted: Wanted,
    /// Whether the number of promotions is exported.
    is_shown: bool,
}

impl Context {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }
}

/// Runs the controller until it is stopped. `ready` is called after every watched namespace has been listed.
pub async fn run(mut context: Context, ready: impl FnOnce() + Send + 'static) -> Result<(), Broken> {
    let (mut sources, mut listings) = (Sources::new(&context.client, &context.lease, &context.metrics), Vec::new());
    for namespace in scopes(&context.options.watch_namespaces) {
        let only = namespace.as_deref();
        sources.watch::<Pipeline>(only, None, Watch::Pipelines, |watch, event| Change::Pipeline(watch, Box::new(event)));
        sources.watch::<Promotion>(only, None, Watch::Promotions, |watch, event| Change::Promotion(watch, Box::new(event)));
        listings.extend([Listing::of(namespace.clone()), Listing::of(namespace)]);
    }
    for namespace in kept(&context.options) {
        sources.watch::<Delivery>(namespace.as_deref(), Some(REQUESTS), Watch::Deliveries, |watch, event| {
            Change::Delivery(watch, Box::new(event))
        });
        listings.push(Listing::of(namespace));
    }
    if let Some(mut ended) = context.ended.take() {
        sources.add(stream::poll_fn(move |task| ended.poll_recv(task)).map(Change::Attempt));
    }
    sources.add(context.secrets.changes().map(Change::Secret));
    let (limiter, stop) = (NamespaceLimiter::new(context.options.max_reconciles), context.stop.clone());
    let context = Arc::new(context);
    let promotions = Promotions { context: Arc::clone(&context), listings, wanted: Wanted::default(), is_shown: false };
    let result = control(promotions, sources, limiter, stop, ready).await;
    context.secrets.shutdown().await;
    result
}

/// Returns the namespaces of Deliveries: those of the pipelines, and that of the installation.
fn kept(options: &Options) -> Vec<Option<String>> {
    let mut namespaces = options.watch_namespaces.clone();
    if !namespaces.is_empty() {
        namespaces.push(options.home.clone());
    }
    scopes(&namespaces)
}

/// Notes which shard handles a pipeline.
fn assign(lease: &Lease, event: &Event<Pipeline>) {
    match event {
        Event::Apply(pipeline) | Event::InitApply(pipeline) => lease.assign_pipeline(pipeline),
        Event::Delete(pipeline) => lease.deleted(pipeline.metadata.uid.as_deref().unwrap_or_default()),
        Event::Init | Event::InitDone => {}
    }
}

impl Reconciler for Promotions {
    type Key = Key;
    type Event = Change;
    /// When to reconcile again.
    type Done = Result<Option<Time>, Error>;

    /// A Delivery of the namespace of the installation can be about any pipeline.
    const NEEDS_ALL_LISTS: bool = true;

    fn absorb(&mut self, change: Change, wakes: &mut Wakes<Key>) {
        let home = self.context.options.home.as_str();
        let mut index = self.context.index();
        let changed = match change {
            Change::Pipeline(watch, event) => {
                assign(&self.context.lease, &event);
                index.absorb_pipeline(&mut self.listings[watch], *event)
            }
            Change::Promotion(watch, event) => index.absorb_promotion(&mut self.listings[watch], *event),
            Change::Delivery(watch, event) => index.deliveries.absorb(home, &mut self.listings[watch], *event),
            Change::Attempt(key) => return wakes.wake(key),
            Change::Secret(name) => {
                drop(index);
                return self.renew(&name, wakes);
            }
        };
        let Some(key) = changed else { return };
        let is_changed = self.wanted.put(&key, index.seen(&key).as_ref());
        drop(index);
        if is_changed {
            self.context.secrets.set_wanted(|| self.wanted.all());
        }
        wakes.wake(key);
    }

    fn listed(&mut self, is_leading: bool, wakes: &mut Wakes<Key>) {
        if is_leading {
            self.context.attempts.begin_term();
        }
        let index = self.context.index();
        self.wanted.clear();
        for key in index.with_work() {
            self.wanted.put(key, index.seen(key).as_ref());
            wakes.wake(key.clone());
        }
        self.context.attempts.retain(&index.open());
        drop(index);
        self.context.secrets.set_wanted(|| self.wanted.all());
    }

    fn place<'a>(&'a self, key: &'a Key) -> Option<Place<'a>> {
        let place = Place { namespace: &key.namespace, uid: Some(&key.uid) };
        self.context.index().has_work(key).then_some(place)
    }

    fn start(&mut self, key: &Key, tenure: Tenure, _: &mut Wakes<Key>) -> Option<BoxFuture<'static, Self::Done>> {
        let seen = self.context.index().seen(key)?;
        let (context, key) = (Arc::clone(&self.context), key.clone());
        let work = async move {
            let store = Store::new(&context, &key, &tenure, seen.lists);
            reconcile::run(&store, &key.uid, seen).await
        };
        Some(work.boxed())
    }

    fn ended(&mut self, Key { namespace, uid }: &Key, done: Self::Done, _: &mut Wakes<Key>) -> Next {
        let again = |until: Time| {
            let wait = Duration::try_from(until.duration_since(now())).unwrap_or_default();
            Instant::now() + wait.clamp(TIMERS.0, TIMERS.1)
        };
        match done {
            Ok(until) => Next::Done(until.map(again)),
            Err(error) => {
                if !matches!(error, Error::NotLeader) {
                    tracing::warn!(namespace, pipeline_uid = uid, error = %chain(&error), "promotions could not be processed; retrying");
                }
                Next::Failed { is_hung: matches!(error, Error::Call(CallError::Timeout)) }
            }
        }
    }

    fn report(&mut self, is_leading: bool) {
        if is_leading || self.is_shown {
            self.is_shown = is_leading;
            self.show(is_leading && self.context.lease.owns_common());
        }
    }
}

impl Promotions {
    /// Lets the promotions that use a Secret continue at once, because it has changed.
    fn renew(&mut self, name: &ObjectName, wakes: &mut Wakes<Key>) {
        for key in self.wanted.using(name) {
            let Some(seen) = self.context.index().seen(&key) else { continue };
            let open = seen.promotions.values().map(AsRef::as_ref).filter(|promotion| !is_ended(promotion));
            self.context.attempts.renew(open);
            wakes.wake(key);
        }
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
