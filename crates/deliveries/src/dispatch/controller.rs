//! The controller of the dispatcher: it reconciles Pipelines and Notifications, and writes the last cursors and statuses when it stops.
//!
//! In: the watches of both in each watched namespace, and wake-ups by other parts. Out: their reconciles. Nothing is decided in a leadership
//! term before everything was listed in it: also the global configuration, and the Deliveries that the engine follows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, join};
use futures::{FutureExt as _, StreamExt as _, stream};
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::context::{Context, Given};
use super::cursor::state::{CursorState, PassContext, PassError, Passed, SOON, Saved};
use super::follow::{Key, Objects, global};
use super::status::written::Last;
use super::{reconcile, references, status, test_send, wake};
use crate::outbox::{Note, Scope};
use relaybook_api::{Backoff, Notification, ObjectName, Pipeline};
use relaybook_runtime::call::{CallError, DEADLINE};
use relaybook_runtime::controller::{Broken, Next, Place, Reconciler, Sources, Wakes, run as control};
use relaybook_runtime::limiter::NamespaceLimiter;
use relaybook_runtime::tenure::Tenure;
use relaybook_telemetry::chain;
use relaybook_telemetry::metrics::Watch;

/// Maximum number of concurrent reconciles of pipelines and notifications. One namespace gets a quarter of them.
const RECONCILES: usize = 64;
/// The interval between two cleanups. The figures of a notification that is idle at two cleanups in a row are dropped. Statuses are written
/// more often than that.
const TIDY: Duration = Duration::from_secs(15);
/// Maximum number of concurrent last writes.
const CONCURRENCY: usize = 32;
/// Time for which a hand-over waits for requests and writes, and the pause before it waits again. It has a permit of its namespace, so it does
/// not wait for long.
const DRAIN: Duration = Duration::from_secs(1);

/// What arrives. The numbers are those of watches.
enum Change {
    Pipeline(usize, Box<Event<Pipeline>>),
    Notification(usize, Box<Event<Notification>>),
    Woken(Key),
    Secret(ObjectName),
    Note(Box<Note>),
    /// A cleanup is due.
    Tidy,
    /// A list of another part is complete.
    Listed,
}

/// What the controller knows.
struct Dispatcher {
    ctx: Arc<Context>,
    pipelines: Objects<Pipeline>,
    notifications: Objects<Notification>,
}

/// The result of a reconcile: what to remember, and when to reconcile again.
enum Done {
    Pipeline(Arc<Pipeline>, Box<CursorState>, Passed),
    Notification(Arc<Notification>, Box<Last>, Passed),
}

/// Starts the dispatcher's tasks. Returns the controller, whose last step is to persist the cursors. `ready` is called after the first lists.
///
/// All end after `stop` of [`Common`](relaybook_runtime::Common).
pub fn start<R: FnOnce() + Send + 'static>(
    given: Given,
    notes: mpsc::Receiver<Note>,
    ready: R,
    tasks: &mut JoinSet<&'static str>,
) -> impl Future<Output = Result<(), Broken>> + Send + use<R> {
    let (stop, namespaces) = (given.common.stop.clone(), given.namespaces.clone());
    let ctx = Arc::new(Context::new(given));
    ctx.deliveries.pipeline_index.put_watched(namespaces.iter().cloned().collect());
    tasks.spawn(global::watch(ctx.clone(), stop.clone()));
    tasks.spawn(wake::pass_on_checks(ctx.clone(), stop.clone()));
    tasks.spawn(wake::follow_config_maps(ctx.clone(), stop.clone()));
    tasks.spawn(wake::compile(ctx.clone(), stop.clone()));
    let sources = sources(&ctx, &namespaces, notes);
    let (pipelines, notifications) = (Objects::of(&namespaces), Objects::of(&namespaces));
    let dispatcher = Dispatcher { ctx: ctx.clone(), pipelines, notifications };
    async move {
        let result = control(dispatcher, sources, NamespaceLimiter::new(RECONCILES), stop, ready).await;
        ctx.secrets.shutdown().await;
        result
    }
}

/// Returns all sources of the controller. Pipelines and Notifications have watches in turns.
fn sources(ctx: &Context, namespaces: &[Option<String>], mut notes: mpsc::Receiver<Note>) -> Sources<Change> {
    let mut sources = Sources::new(&ctx.client, &ctx.lease, &ctx.metrics);
    for namespace in namespaces {
        let only = namespace.as_deref();
        sources.watch::<Pipeline>(only, None, Watch::Pipelines, |watch, event| Change::Pipeline(watch / 2, Box::new(event)));
        sources.watch::<Notification>(only, None, Watch::Notifications, |watch, event| {
            Change::Notification(watch / 2, Box::new(event))
        });
    }
    sources.list(ctx.global_listed.subscribe(), || Change::Listed);
    sources.list(ctx.deliveries.loaded(), || Change::Listed);
    let index = &ctx.deliveries.delivery_index;
    sources.add(ctx.again.stream().map(Change::Woken));
    sources.add(index.changed.stream().map(|owner| Change::Woken(Key::Notification(owner))));
    sources.add(index.sent.stream().map(|of| Change::Woken(Key::Pipeline(ObjectName::new(of.namespace, of.name)))));
    sources.add(ctx.secrets.changes().map(Change::Secret));
    // If the engine ends, that is reported as its own end.
    let notes = stream::poll_fn(move |task| notes.poll_recv(task)).chain(stream::pending());
    sources.add(notes.map(|note| Change::Note(Box::new(note))));
    sources.add(stream::unfold((), |()| async { Some((tokio::time::sleep(TIDY).await, ())) }).map(|()| Change::Tidy));
    sources
}

impl Reconciler for Dispatcher {
    type Key = Key;
    type Event = Change;
    type Done = Done;

    const PAUSES: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(30) };
    /// A delivery can be about any object that was not listed yet.
    const NEEDS_ALL_LISTS: bool = true;

    fn absorb(&mut self, change: Change, wakes: &mut Wakes<Key>) {
        let ctx = &*self.ctx;
        match change {
            Change::Pipeline(watch, event) => self.pipelines.absorb(watch, *event).apply(ctx, wakes),
            Change::Notification(watch, event) => self.notifications.absorb(watch, *event).apply(ctx, wakes),
            Change::Woken(key) => wakes.wake(key),
            Change::Secret(of) => wake::enqueue_affected_by_secret(ctx, &of),
            Change::Note(note) => warn(ctx, &note),
            Change::Tidy => ctx.metrics.bookkeeping(ctx.tidy() + self.pipelines.len() + self.notifications.len()),
            Change::Listed => {}
        }
    }

    fn complete(&mut self, term: u64, wakes: &mut Wakes<Key>) {
        let index = &self.ctx.deliveries.pipeline_index;
        if index.read().term() == Some(term) {
            return;
        }
        index.complete(term);
        self.ctx.check(Scope::All);
        self.pipelines.wake_all(wakes);
        self.notifications.wake_all(wakes);
    }

    fn place<'a>(&'a self, key: &'a Key) -> Option<Place<'a>> {
        let (of, meta) = match key {
            Key::Pipeline(of) => (of, &self.pipelines.get(of)?.metadata),
            Key::Notification(of) => (of, &self.notifications.get(of)?.metadata),
        };
        Some(Place { namespace: &of.namespace, uid: Some(meta.uid.as_deref().unwrap_or_default()) })
    }

    /// A pipeline that is handed over to another shard is not ours any more before that is done.
    fn is_foreign(&self, key: &Key) -> bool {
        let Key::Pipeline(of) = key else { return false };
        self.pipelines.get(of).is_some_and(|pipeline| self.ctx.lease.sharding().leaves(pipeline).is_some())
    }

    fn start(&mut self, key: &Key, tenure: Tenure, _: &mut Wakes<Key>) -> Option<BoxFuture<'static, Done>> {
        let ctx = self.ctx.clone();
        match key {
            Key::Pipeline(of) => {
                let (pipeline, cursors) = self.pipelines.take(of)?;
                if ctx.lease.sharding().leaves(&pipeline).is_some() {
                    // From now on, no more work is started for it. A later copy, which can bring it back, is assigned after this one.
                    ctx.lease.assign(pipeline.metadata.uid.as_deref().unwrap_or_default(), false, 0);
                }
                let work = async move {
                    let mut cursors = cursors.continued(&ctx.lease, &pipeline, tenure.term());
                    let pass = Box::pin(pipeline_pass(&pipeline, &mut cursors, &tenure, &ctx));
                    let result = ctx.before_the_end(pass).await.unwrap_or(Ok(None));
                    Done::Pipeline(pipeline, Box::new(cursors), result)
                };
                Some(work.boxed())
            }
            Key::Notification(of) => {
                let (notification, mut last) = self.notifications.take(of)?;
                let work = async move {
                    let pass = notification_pass(&notification, &mut last, &tenure, &ctx);
                    let result = ctx.before_the_end(pass).await.unwrap_or(Ok(None));
                    Done::Notification(notification, Box::new(last), result)
                };
                Some(work.boxed())
            }
        }
    }

    fn ended(&mut self, key: &Key, done: Done, _: &mut Wakes<Key>) -> Next {
        let result = match done {
            Done::Pipeline(pipeline, cursors, result) => {
                self.pipelines.remember(&pipeline, *cursors);
                result
            }
            Done::Notification(notification, last, result) => {
                self.notifications.remember(&notification, *last);
                result
            }
        };
        let error = match result {
            Ok(again) => return Next::Done(again.map(|wait| Instant::now() + wait)),
            Err(error) => error,
        };
        if !matches!(error.call(), Some(CallError::NotHeld)) {
            let (kind, of) = match key {
                Key::Pipeline(of) => ("Pipeline", of),
                Key::Notification(of) => ("Notification", of),
            };
            tracing::warn!(kind, namespace = %of.namespace, name = %of.name, error = %chain(&error), "reconcile failed; retrying");
        }
        Next::Failed { is_hung: matches!(error.call(), Some(CallError::Timeout)) }
    }

    /// A jitter of 20 %, so that a thousand objects do not retry at once.
    fn spread(pause: Duration) -> Duration {
        pause.mul_f64(0.8 + 0.4 * fastrand::f64())
    }

    /// Persists the cursors, the last-sent times and the statuses, after the requests in flight have ended.
    fn last_work(&mut self) -> BoxFuture<'static, ()> {
        let (ctx, pipelines, notifications) = (self.ctx.clone(), self.pipelines.take_all(), self.notifications.take_all());
        let work = async move {
            ctx.deliveries.ended().await;
            let cursors = pipelines.map(|(pipeline, cursors)| flush(pipeline, cursors, &ctx));
            let statuses = notifications.map(|(notification, last)| tell(notification, last, &ctx));
            let cursors = stream::iter(cursors).buffer_unordered(CONCURRENCY).collect::<()>();
            join(cursors, stream::iter(statuses).buffer_unordered(CONCURRENCY).collect::<()>()).await;
        };
        work.boxed()
    }
}

/// Waits until calls may start. The object can be out of date then, so it is reconciled again at once. If it is not ours any more, lists of a
/// later term wake it.
async fn waited(tenure: &Tenure) -> Option<Duration> {
    tenure.wait(DEADLINE).await.then_some(Duration::ZERO)
}

async fn pipeline_pass(pipeline: &Pipeline, cursor_state: &mut CursorState, tenure: &Tenure, ctx: &Context) -> Passed {
    if !tenure.allows(DEADLINE) {
        return Ok(waited(tenure).await);
    }
    let with = PassContext { of: &references::reference(pipeline), tenure, ctx };
    match ctx.lease.sharding().leaves(pipeline) {
        Some(shard) => hand_over(pipeline, shard, cursor_state, with).await,
        None => reconcile::run(pipeline, cursor_state, with).await,
    }
}

/// Hands a pipeline over to another shard, for which no more work is started. When no request and no write for it is in progress, the last write
/// of its cursors names that shard.
async fn hand_over(pipeline: &Pipeline, shard: &str, cursor_state: &mut CursorState, with: PassContext<'_>) -> Passed {
    let PassContext { of, ctx, .. } = with;
    if !tokio::time::timeout(DRAIN, ctx.deliveries.drained(&of.uid)).await.unwrap_or(false) {
        return Ok(Some(DRAIN));
    }
    cursor_state.absorb(pipeline);
    // Meanwhile its label may have been changed back.
    if !ctx.lease.is_elsewhere(&of.uid) || !cursor_state.is_of(ctx.lease.sharding()) {
        return Ok(None);
    }
    cursor_state.gather(with);
    cursor_state.put_shard(shard);
    let saved = cursor_state.save(None, with).await;
    // If the pipeline comes back, the other shard has continued meanwhile. After a failure, the next try begins with what is stored.
    *cursor_state = CursorState::default();
    match saved? {
        Saved::Done => {
            tracing::info!(pipeline = %of.name, namespace = %of.namespace, shard, "handed the pipeline over to another shard");
            Ok(None)
        }
        Saved::Stale => Ok(Some(SOON)),
        Saved::Gone => Ok(None),
    }
}

async fn notification_pass(notification: &Notification, last: &mut Last, tenure: &Tenure, ctx: &Arc<Context>) -> Passed {
    if !tenure.allows(DEADLINE) {
        return Ok(waited(tenure).await);
    }
    test_send::take(notification, ctx);
    status::notification::write(notification, last, tenure, ctx, false).await.map_err(PassError::Status)
}

/// Begins the last work on an object. The process stops, so only the Lease limits it. `None`: the object is not ours, or not everything was
/// listed.
fn last_tenure(uid: &str, ctx: &Context) -> Option<Tenure> {
    let tenure = Tenure::begin(&ctx.lease, Some(uid), &CancellationToken::new())?;
    (ctx.deliveries.pipeline_index.read().term() == Some(tenure.term())).then_some(tenure)
}

async fn flush(pipeline: Arc<Pipeline>, cursor_state: CursorState, ctx: &Context) {
    let of = references::reference(&pipeline);
    let Some(tenure) = last_tenure(&of.uid, ctx) else { return };
    let mut cursor_state = cursor_state.continued(&ctx.lease, &pipeline, tenure.term());
    let with = PassContext { of: &of, tenure: &tenure, ctx };
    cursor_state.gather(with);
    if cursor_state.is_dirty()
        && let Err(error) = cursor_state.save(None, with).await
    {
        tracing::warn!(pipeline = %of.name, error = %chain(&error), "could not persist cursors on shutdown; changes are processed again after the restart, and existing Deliveries are not repeated");
    }
}

async fn tell(notification: Arc<Notification>, mut last: Last, ctx: &Context) {
    let Some(tenure) = notification.metadata.uid.as_deref().and_then(|uid| last_tenure(uid, ctx)) else { return };
    if let Err(error) = status::notification::write(&notification, &mut last, &tenure, ctx, true).await {
        tracing::warn!(notification = %notification.name_any(), error = %chain(&error), "could not write the last status");
    }
}

/// Passes a message of the engine for users on to an Event.
fn warn(ctx: &Context, note: &Note) {
    let (spec, status) = (&note.record.spec, &note.record.status);
    let reason = if status.outcome.is_some() { "DeliveryParked" } else { "DeliveryWaits" };
    let why = status.reason.as_deref().unwrap_or_default();
    let error = status.error.as_deref().unwrap_or_default();
    let text =
        format!("{} of {} (delivery {}): {why}: {error}", spec.type_.as_str(), spec.subject.name, note.record.id.name);
    ctx.warn(&spec.pipeline_ref, &spec.notification, &spec.notification_uid, reason, "Deliver", &text);
}
