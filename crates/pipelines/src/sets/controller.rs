//! The controller: the watches of sets and of their pipelines in each watched namespace, and the reconciles that they cause.
//!
//! In: events of the watches, and the wake-ups of the caches. Out: reconciles of sets, and of the sets of `--follow`. An event of a pipeline
//! causes a reconcile only if a decision can depend on it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use kube::runtime::watcher::Event;
use tokio::sync::mpsc;

use super::follow::{Changes, changes, make};
use super::index::{Absorbed, Index};
use super::reconcile::{Changed, Memory, reconcile, warm};
use super::{Context, Error};
use relaybook_api::pipeline_set::SET;
use relaybook_api::{ObjectName, Pipeline, PipelineSet};
use relaybook_core::reading::Follower;
use relaybook_runtime::controller::{Broken, Listing, Next, Place, Reconciler, Sources, Wakes, run as control};
use relaybook_runtime::leader::Lease;
use relaybook_runtime::limiter::NamespaceLimiter;
use relaybook_runtime::pace::SMALL_OBJECT;
use relaybook_runtime::tenure::Tenure;
use relaybook_runtime::watch::scopes;
use relaybook_telemetry::chain;
use relaybook_telemetry::metrics::Watch;

/// Maximum number of sets that are reconciled concurrently. One namespace gets a quarter of them.
const RECONCILES: usize = 64;
/// Time from an event of a set to the check of the sets of `--follow`.
const CHECK: Duration = Duration::from_secs(1);

/// What is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    /// The sets of `--follow`.
    Follow,
    Set(Follower),
}

/// What arrives. The numbers are those of watches.
enum Change {
    Set(usize, Box<Event<PipelineSet>>),
    Pipeline(usize, Box<Event<Pipeline>>),
    Woken(Follower),
}

/// What the controller knows.
struct Sets {
    context: Arc<Context>,
    /// The list in progress of each watch.
    listings: Vec<Listing>,
    index: Index,
    memories: HashMap<Follower, Memory>,
    /// Names of sets that `--follow` would need and that somebody else made.
    taken: Vec<String>,
}

/// Runs the controller until it is stopped. `woken` receives the wake-ups of the caches. `ready` is called after every watched namespace has been
/// listed.
pub async fn run(
    context: Context,
    mut woken: mpsc::Receiver<Follower>,
    ready: impl FnOnce() + Send + 'static,
) -> Result<(), Broken> {
    let (mut sources, mut listings) = (Sources::new(&context.client, &context.lease, &context.metrics), Vec::new());
    for namespace in scopes(&context.options.watch_namespaces) {
        let only = namespace.as_deref();
        sources.watch::<PipelineSet>(only, None, Watch::PipelineSets, |watch, event| Change::Set(watch, Box::new(event)));
        sources
            .watch::<Pipeline>(only, Some(SET), Watch::Pipelines, |watch, event| Change::Pipeline(watch, Box::new(event)));
        listings.extend([Listing::of(namespace.clone()), Listing::of(namespace)]);
    }
    sources.add(stream::poll_fn(move |task| woken.poll_recv(task)).map(Change::Woken));
    let (stop, context) = (context.stop.clone(), Arc::new(context));
    let sets = Sets { context, listings, index: Index::default(), memories: HashMap::new(), taken: Vec::new() };
    control(sets, sources, NamespaceLimiter::new(RECONCILES), stop, ready).await
}

/// Notes which shard handles a set.
fn assign(lease: &Lease, event: &Event<PipelineSet>) {
    match event {
        Event::Apply(set) | Event::InitApply(set) => lease.assign_labeled(&set.metadata),
        Event::Delete(set) => lease.deleted(set.metadata.uid.as_deref().unwrap_or_default()),
        Event::Init | Event::InitDone => {}
    }
}

impl Reconciler for Sets {
    type Key = Key;
    type Event = Change;
    /// What was remembered and changed of a set.
    type Done = (Option<(Memory, Changed)>, Result<(), Error>);

    /// Events of many sources and pipelines come together.
    const GATHER: Duration = Duration::from_millis(100);

    fn absorb(&mut self, change: Change, wakes: &mut Wakes<Key>) {
        let Absorbed { wake, gone } = match change {
            Change::Set(watch, event) => {
                assign(&self.context.lease, &event);
                // Somebody may have deleted or changed a set of --follow.
                wakes.wake_at(Key::Follow, Instant::now() + CHECK);
                self.index.absorb_set(&mut self.listings[watch], *event)
            }
            Change::Pipeline(watch, event) => self.index.absorb_pipeline(&mut self.listings[watch], *event),
            Change::Woken(key) => Absorbed { wake: vec![key], gone: Vec::new() },
        };
        for key in gone {
            self.forget(&key);
            wakes.forget(&Key::Set(key));
        }
        for key in wake {
            wakes.wake(Key::Set(key));
        }
    }

    fn listed(&mut self, _: bool, wakes: &mut Wakes<Key>) {
        self.index.sets().for_each(|(key, _)| wakes.wake(Key::Set(key.clone())));
        wakes.wake(Key::Follow);
    }

    fn place<'a>(&'a self, key: &'a Key) -> Option<Place<'a>> {
        match key {
            Key::Follow => Some(Place { namespace: &self.context.options.namespace, uid: None }),
            Key::Set(key) => {
                let set = self.index.set(key).filter(|set| set.metadata.deletion_timestamp.is_none())?;
                Some(Place { namespace: &key.namespace, uid: Some(set.metadata.uid.as_deref().unwrap_or_default()) })
            }
        }
    }

    fn stand_by(&mut self, key: &Key, is_elsewhere: bool) {
        let Key::Set(key) = key else { return };
        if is_elsewhere {
            // The set of another replica needs no sources here, and what is remembered of it becomes old.
            self.forget(key);
        } else if let Some(set) = self.index.set(key) {
            // A set that is refused requests nothing.
            let _ = warm(&self.context, set);
        }
    }

    fn start(&mut self, key: &Key, tenure: Tenure, wakes: &mut Wakes<Key>) -> Option<BoxFuture<'static, Self::Done>> {
        let context = Arc::clone(&self.context);
        let Key::Set(of) = key else {
            // If nothing has to change, this is a success, too.
            let changes = self.follow();
            return Some(async move { (None, make(&context, &tenure, changes).await) }.boxed());
        };
        let set = self.index.set(of).cloned()?;
        context.caches.begin_term(tenure.term());
        let mut memory = self.memories.remove(of).unwrap_or_default();
        if let Some(until) = memory.rests_until.filter(|until| *until > Instant::now()) {
            self.memories.insert(of.clone(), memory);
            wakes.wake_at(key.clone(), until);
            return None;
        }
        let made = self.index.made(of);
        let work = async move {
            let (changed, result) = reconcile(&context, &tenure, &set, &made, &mut memory).await;
            (Some((memory, changed)), result)
        };
        Some(work.boxed())
    }

    fn ended(&mut self, key: &Key, (outcome, result): Self::Done, wakes: &mut Wakes<Key>) -> Next {
        let mut again = None;
        if let (Key::Set(key), Some((memory, changed))) = (key, outcome) {
            if self.index.set(key).is_none() {
                // It was deleted meanwhile, and has requested its sources since.
                self.forget(key);
                return Next::Done(None);
            }
            again = self.learn(key, memory, changed, wakes);
        }
        match result {
            Ok(()) => Next::Done(again),
            // The lists of the next term wake everything.
            Err(Error::NotLeading) => Next::Done(None),
            Err(error) => {
                if !error.is_not_held() {
                    let of = if let Key::Set(key) = key { (&*key.namespace, &*key.name) } else { ("", "--follow") };
                    tracing::warn!(namespace = of.0, set = of.1, "{}", chain(&error));
                }
                Next::Failed { is_hung: error.is_timeout() }
            }
        }
    }
}

impl Sets {
    /// Forgets a set, and releases its watches.
    fn forget(&mut self, key: &Follower) {
        self.memories.remove(key);
        self.context.caches.select(key, HashSet::new());
    }

    /// Returns how the sets of `--follow` must change.
    fn follow(&mut self) -> Changes {
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
        changes
    }

    /// Takes what a reconcile has changed. Returns when to reconcile again without an event.
    fn learn(&mut self, key: &Follower, mut memory: Memory, changed: Changed, wakes: &mut Wakes<Key>) -> Option<Instant> {
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
            wakes.wake(Key::Set(key));
        }
        if let Some(set) = changed.set {
            self.index.renew(key, set);
        }
        changed.again
    }
}
