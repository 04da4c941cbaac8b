//! The loop of the controller: one watch of pipelines and one of promotions in each watched namespace, and the wake-ups of these pipelines.
//!
//! It is built from kube's `applier`, the layer below its `Controller`, because the loop must also notice deleted pipelines. When a
//! pipeline is deleted, its watches are no longer needed.

use parking_lot::MutexGuard;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, StreamExt as _, future, stream};
use kube::core::DynamicObject;
use kube::runtime::controller::{self, Action, ReconcileReason, ReconcileRequest};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, applier};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::promotions;
use super::reconcile::{claim, keep_warm, reconcile};
use super::write::tracker::WriteTracker;
use super::{Context, Error};
use relaybook_api::Pipeline;
use relaybook_core::leader::bucket::Bucket;
use relaybook_core::reading::Follower;
use relaybook_runtime::call::CallError;
use relaybook_runtime::stopping::applied;
use relaybook_runtime::tenure::Tenure;
use relaybook_runtime::watch::{TermNumber, api_in, watch_by_term};
use relaybook_telemetry::chain;
use relaybook_telemetry::metrics::Watch;

/// Maximum number of queued wake-ups for the loop of one namespace.
const WAKE_BUFFER: usize = 1024;

impl Context {
    fn trackers(&self) -> MutexGuard<'_, HashMap<Follower, WriteTracker>> {
        self.trackers.lock()
    }

    /// Returns the pipelines of this namespace that were reconciled. `None`: of all namespaces.
    pub(super) fn tracked(&self, namespace: Option<&String>) -> Vec<Follower> {
        let trackers = self.trackers();
        let here = trackers.keys().filter(|key| namespace.is_none_or(|namespace| *namespace == key.namespace));
        here.cloned().collect()
    }

    /// Returns the leadership term in which the pipelines of this namespace were last listed.
    fn listed(&self, namespace: &str) -> Option<u64> {
        let listed = self.listed.lock();
        listed.get(&None).or_else(|| listed.get(&Some(namespace.to_owned()))).copied()
    }

    fn note_listed(&self, namespace: Option<&String>, term: u64) {
        self.listed.lock().insert(namespace.cloned(), term);
    }

    /// Forgets a deleted pipeline and releases its watches.
    fn forget(&self, key: &Follower) {
        let known = self.trackers().remove(key);
        if let Some(uid) = known.and_then(|writes| writes.uid) {
            self.lease.deleted(&uid);
        }
        self.release(key);
    }

    /// Releases the watches of a pipeline.
    fn release(&self, key: &Follower) {
        self.caches.need(key, HashSet::new());
        self.caches.select(key, HashSet::new());
    }
}

/// Runs the controller until it is stopped. Then it waits for writes in flight and stops the caches. `woken` receives the wake-ups of the
/// caches. `ready` is called after the pipelines and promotions of every watched namespace have been listed.
pub async fn run(
    context: Context,
    woken: mpsc::Receiver<Follower>,
    ready: impl FnOnce() + Send + 'static,
) -> Result<(), Error> {
    let context = Arc::new(context);
    let shutdown = context.stop.clone();
    let stop = shutdown.child_token();
    let mut tasks = JoinSet::new();
    let mut listed = Vec::new();
    let namespaces = &context.options.watch_namespaces;
    if namespaces.is_empty() {
        listed.extend(follow(&mut tasks, &context, None, wakes(woken), &stop));
    } else {
        let mut routes = HashMap::new();
        for namespace in namespaces {
            let (route, woken) = mpsc::channel(WAKE_BUFFER);
            if routes.insert(namespace.clone(), route).is_none() {
                listed.extend(follow(&mut tasks, &context, Some(namespace), wakes(woken), &stop));
            }
        }
        tasks.spawn(route(woken, routes, stop.clone()));
    }
    tasks.spawn(announce(listed, ready, stop.clone()));
    let (caches, ends) = (context.caches.clone(), stop.clone());
    tasks.spawn(async move {
        ends.run_until_cancelled(caches.broken()).await;
        Task::Essential
    });
    while let Some(ended) = tasks.join_next().await {
        if let Err(panic) = &ended {
            tracing::error!(error = %panic, "the pipeline controller cannot continue");
        }
        if !matches!(ended, Ok(Task::Passing)) {
            stop.cancel();
        }
    }
    context.caches.shutdown().await;
    if shutdown.is_cancelled() { Ok(()) } else { Err(Error::Ended) }
}

/// The meaning of the end of a task.
enum Task {
    /// The task must not end unless the controller stops.
    Essential,
    /// The task is complete.
    Passing,
}

/// Calls `ready` after all namespaces are listed.
async fn announce(listed: Vec<oneshot::Receiver<()>>, ready: impl FnOnce() + Send, stop: CancellationToken) -> Task {
    let all = future::try_join_all(listed);
    if let Some(Ok(_)) = stop.run_until_cancelled(all).await {
        ready();
    }
    Task::Passing
}

/// Passes each wake-up to the loop of its namespace.
async fn route(
    mut woken: mpsc::Receiver<Follower>,
    routes: HashMap<String, mpsc::Sender<Follower>>,
    stop: CancellationToken,
) -> Task {
    while let Some(Some(key)) = stop.run_until_cancelled(woken.recv()).await {
        if let Some(route) = routes.get(&key.namespace)
            && !matches!(stop.run_until_cancelled(route.send(key)).await, Some(Ok(())))
        {
            break;
        }
    }
    Task::Essential
}

fn wakes(woken: mpsc::Receiver<Follower>) -> impl Stream<Item = Follower> + Send + 'static {
    stream::unfold(woken, |mut woken| async { woken.recv().await.map(|key| (key, woken)) })
}

/// Starts the loop of one namespace, or of all namespaces. The returned receivers are notified after the first list of its pipelines and
/// after that of its promotions.
fn follow(
    tasks: &mut JoinSet<Task>,
    context: &Arc<Context>,
    namespace: Option<&String>,
    woken: impl Stream<Item = Follower> + Send + 'static,
    stop: &CancellationToken,
) -> [oneshot::Receiver<()>; 2] {
    let api = api_in(&context.client, namespace.map(String::as_str));
    let (store, writer) = reflector::store();
    let (done, listed) = oneshot::channel();
    let (term, events) = watch_by_term(api, context.lease.term_numbers());
    let requests = requests(events.reflect(writer), term, store.clone(), context.clone(), namespace.cloned(), done);
    let (promoted, promotions_listed) = promotions::follow(context.clone(), namespace.cloned());
    let woken = stream::select(woken, promoted);
    let woken = woken.map(|key| Ok(request(ObjectRef::new(&key.name).within(&key.namespace), ReconcileReason::Unknown)));
    let queue = stream::select(requests.boxed(), woken.boxed()).take_until(stop.clone().cancelled_owned());
    // The limit of `applier` counts all namespaces together, so one namespace whose writes hang could use it up. The
    // `NamespaceLimiter` limits reconciles instead.
    let unbounded = controller::Config::default().concurrency(0);
    let reconciles = applier(reconcile_next, again, context.clone(), store.clone(), queue, unbounded);
    let (context, stop) = (context.clone(), stop.clone());
    tasks.spawn(async move {
        let reconciles = reconciles.for_each(|result| {
            ended(&context, result);
            future::ready(())
        });
        applied(reconciles, &store, &stop).await;
        Task::Essential
    });
    [listed, promotions_listed]
}

/// Returns the pipelines to reconcile after each event. During a list no pipeline is reconciled, because the store still has the old
/// content. After a list all pipelines are reconciled, including pipelines whose deletion was missed. `listed` is notified of the first
/// list (`Store::wait_until_ready` wakes only one waiter, and `applier` is already a waiter).
fn requests(
    events: impl Stream<Item = watcher::Result<Event<Pipeline>>> + Send + 'static,
    term: TermNumber,
    store: Store<Pipeline>,
    context: Arc<Context>,
    namespace: Option<String>,
    listed: oneshot::Sender<()>,
) -> impl Stream<Item = watcher::Result<ReconcileRequest<Pipeline>>> + Send {
    let mut listed = Some(listed);
    events.flat_map(move |event| {
        let found = match event {
            Ok(Event::Apply(p) | Event::Delete(p)) => vec![Ok(ObjectRef::from_obj(&p))],
            Ok(Event::Init | Event::InitApply(_)) => Vec::new(),
            Ok(Event::InitDone) => {
                context.note_listed(namespace.as_ref(), term.number());
                let mut all: HashSet<ObjectRef<Pipeline>> =
                    store.state().iter().map(|p| ObjectRef::from_obj(&**p)).collect();
                let tracked = context.tracked(namespace.as_ref());
                all.extend(tracked.iter().map(|k| ObjectRef::new(&k.name).within(&k.namespace)));
                // The receiver is dropped only when the controller stops.
                listed.take().map(|told| told.send(()));
                all.into_iter().map(Ok).collect()
            }
            Err(error) => vec![Err(error)],
        };
        stream::iter(found.into_iter().map(|r| r.map(|object| request(object, ReconcileReason::ObjectUpdated))))
    })
}

fn request(obj_ref: ObjectRef<Pipeline>, reason: ReconcileReason) -> ReconcileRequest<Pipeline> {
    ReconcileRequest { obj_ref, reason }
}

/// Reconciles one pipeline with its tracker. Two reconciles of the same pipeline never overlap.
///
/// On standby, and before the first list of a leadership term, it only fills the caches. The replica may not know yet what the previous
/// holder of the bucket has written. A pipeline of another replica needs no objects here.
fn reconcile_next(pipeline: Arc<Pipeline>, context: Arc<Context>) -> BoxFuture<'static, Result<Action, Error>> {
    async move {
        let key = key_of(&pipeline);
        let uid = &pipeline.metadata.uid;
        // An empty tracker stays in the map. It shows that the pipeline was reconciled before.
        let mut writes = std::mem::take(context.trackers().entry(key.clone()).or_default());
        let term = context.lease.term().filter(|t| context.listed(&key.namespace) == Some(t.number));
        let number = term.map_or(0, |t| t.number);
        if writes.uid != *uid {
            writes = WriteTracker::new(uid.clone(), number);
        } else if writes.term != number {
            writes = writes.for_term(number);
        }
        if let Err(error) = assign(&context, &pipeline).await {
            context.trackers().insert(key, writes);
            return Err(error);
        }
        let busy = context.lease.begin(uid.as_deref().unwrap_or_default());
        let result = match (term, &busy) {
            (Some(term), Some(busy)) if busy.term() == term.number => {
                context.caches.begin_term(number);
                reconcile(&context, &key, &pipeline, &mut writes, term.epoch, busy).await
            }
            (_, None) if context.lease.term().is_some() => {
                context.release(&key);
                writes = WriteTracker::new(uid.clone(), 0);
                Ok(Action::await_change())
            }
            _ => {
                keep_warm(&context, &key, &pipeline, &mut writes);
                Ok(Action::await_change())
            }
        };
        writes.ended(result.is_ok());
        context.trackers().insert(key, writes);
        drop(busy);
        result
    }
    .boxed()
}

/// Notes which shard handles a pipeline. If it has come from another shard, late writes of that shard are excluded first.
async fn assign(context: &Context, pipeline: &Pipeline) -> Result<(), Error> {
    let (lease, uid) = (&context.lease, pipeline.metadata.uid.as_deref().unwrap_or_default());
    let holds = lease.sharding().holds(pipeline);
    if !holds || !lease.is_elsewhere(uid) {
        // The pipeline controller hands nothing over: it starts no write that the other shard does not exclude.
        lease.assign(uid, holds, 0);
        return Ok(());
    }
    // It is claimed when its bucket is ours.
    let Some(tenure) = Tenure::hold(lease, Bucket::of(uid), &context.stop) else { return Ok(()) };
    // The new term begins after that, so its lists are newer than every write of the other shard. A copy that is not current is followed by
    // another one.
    if let Some(epoch) = claim(context, &tenure, pipeline).await? {
        lease.assign(uid, true, epoch);
    }
    Ok(())
}

/// Returns when to retry after a failure.
#[allow(clippy::needless_pass_by_value, reason = "the signature is kube's")]
fn again(pipeline: Arc<Pipeline>, _: &Error, context: Arc<Context>) -> Action {
    let wait = context.trackers().get(&key_of(&pipeline)).map(WriteTracker::retry);
    wait.map_or_else(Action::await_change, Action::requeue)
}

fn key_of(pipeline: &Pipeline) -> Follower {
    let meta = &pipeline.metadata;
    Follower::pipeline(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// Handles the result of a reconcile.
fn ended(context: &Context, result: Result<(ObjectRef<Pipeline>, Action), controller::Error<Error, watcher::Error>>) {
    match result {
        Ok(_) => {}
        Err(controller::Error::ObjectNotFound(gone)) => context.forget(&place(&gone)),
        // Nothing is taken over while the process stops.
        Err(controller::Error::ReconcilerFailed(Error::Claim(CallError::NotHeld), _)) if context.stop.is_cancelled() => {}
        Err(controller::Error::ReconcilerFailed(error, object)) => {
            let key = place(&object);
            tracing::warn!(namespace = key.namespace, pipeline = key.name, "{}", chain(&error));
        }
        Err(controller::Error::QueueError(_)) => context.metrics.watch_error(Watch::Pipelines),
        Err(controller::Error::RunnerError(error)) => tracing::error!("{}", chain(&error)),
    }
}

fn place(object: &ObjectRef<DynamicObject>) -> Follower {
    Follower::pipeline(object.namespace.clone().unwrap_or_default(), object.name.clone())
}
