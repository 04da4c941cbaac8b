//! Starts the dispatcher's tasks, and flushes the cursors when they end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, future, stream};
use kube::ResourceExt as _;
use kube::runtime::controller::{Action, Config, applier};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::context::{Again, Context, Given};
use super::cursor::state::{CursorState, PassError, SOON, Saved};
use super::follow::global;
use super::follow::{Followed as _, Listed, Watched, follow};
use super::{reconcile, references, status, test_send, wake};
use crate::outbox::{Note, Scope};
use relaybook_api::{Backoff, Notification, Pipeline};
use relaybook_core::leader::bucket::Bucket;
use relaybook_runtime::call::CallError;
use relaybook_runtime::stopping::applied;
use relaybook_telemetry::chain;

/// The interval between two cleanups. The figures of a notification that is idle at two cleanups in a row are dropped. Statuses are written
/// more often than that.
const TIDY: Duration = Duration::from_secs(15);
/// Maximum number of concurrent last writes.
const CONCURRENCY: usize = 32;
/// No limit in kube's controller, because the limiter already limits concurrent work and the share of one namespace. With one limit for
/// all, a namespace with hanging writes would block the others.
const UNBOUNDED: u16 = 0;
/// Time for which a hand-over waits for requests and writes, and the pause before it waits again.
const DRAIN: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_secs(1);
const PAUSES: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(30) };

/// Starts the dispatcher. `ready` is called when all watches have delivered their first lists.
///
/// The tasks end after `stop` of [`Common`](relaybook_runtime::Common). Their last step is to persist the cursors.
pub fn start(
    given: Given,
    notes: mpsc::Receiver<Note>,
    ready: impl FnOnce() + Send + 'static,
    tasks: &mut JoinSet<&'static str>,
) {
    let stop = given.common.stop.clone();
    let ctx = Arc::new(Context::new(given));
    ctx.deliveries.pipeline_index.put_watched(ctx.scopes().map(|(namespace, _)| namespace.clone()).collect());
    let (listed, lists) = mpsc::channel(1);
    let mut watches = BTreeSet::new();
    for (namespace, again) in ctx.scopes() {
        for what in [Pipeline::WHAT, Notification::WHAT] {
            watches.insert((namespace.clone(), what));
        }
        let (namespace, again) = (namespace.clone(), again.clone());
        tasks.spawn(watch_pipelines(ctx.clone(), namespace.clone(), again.clone(), listed.clone(), stop.clone()));
        tasks.spawn(watch_notifications(ctx.clone(), namespace, again, listed.clone(), stop.clone()));
    }
    watches.insert(global::WATCHED);
    tasks.spawn(global::watch(ctx.clone(), listed, stop.clone()));
    let wait = complete(ctx.clone(), lists, watches, ready);
    let (done, ended) = (stop.clone(), stop.clone());
    tasks.spawn(async move {
        ended.run_until_cancelled(wait).await;
        done.cancelled().await;
        "the dispatcher's startup"
    });
    tasks.spawn(pass_on(ctx.clone(), notes, stop.clone()));
    tasks.spawn(tidy(ctx.clone(), stop.clone()));
    tasks.spawn(wake::follow_secrets(ctx.clone(), stop.clone()));
    tasks.spawn(wake::follow_config_maps(ctx.clone(), stop.clone()));
    tasks.spawn(wake::compile(ctx, stop));
}

/// Waits in each leadership term for the list of every watch. From then on, an unknown object does not exist.
async fn complete(
    ctx: Arc<Context>,
    mut lists: mpsc::Receiver<Listed>,
    watches: BTreeSet<Watched>,
    ready: impl FnOnce() + Send + 'static,
) {
    let mut ready = Some(ready);
    let mut listed: BTreeMap<Watched, u64> = BTreeMap::new();
    while let Some((watched, term)) = lists.recv().await {
        listed.insert(watched, term);
        let all = watches.iter().all(|watched| listed.get(watched) == Some(&term));
        if !all || *ctx.complete.borrow() == Some(term) {
            continue;
        }
        ctx.deliveries.loaded(term).await;
        ctx.deliveries.pipeline_index.complete(term);
        ctx.complete.send_replace(Some(term));
        ctx.deliveries.check(Scope::All).await;
        ready.take().into_iter().for_each(|ready| ready());
    }
}

async fn watch_pipelines(
    ctx: Arc<Context>,
    namespace: Option<String>,
    again: Again,
    listed: mpsc::Sender<Listed>,
    stop: CancellationToken,
) -> &'static str {
    let (reader, queue) = follow::<Pipeline>(&ctx, namespace, listed, again.pipelines.stream(), &stop);
    let run = applier(
        |pipeline: Arc<Pipeline>, ctx: Arc<Context>| Box::pin(pipeline_pass(pipeline, ctx)),
        |pipeline, error: &PassError, ctx: Arc<Context>| {
            let of = references::reference(&pipeline);
            tracing::warn!(pipeline = %of.name, namespace = %of.namespace, error = %chain(error), "reconcile failed; retrying");
            Action::requeue(pause(ctx.failed(&of.uid)))
        },
        ctx.clone(),
        reader.clone(),
        queue,
        Config::default().concurrency(UNBOUNDED),
    );
    applied(run.for_each(|_| future::ready(())), &reader, &stop).await;
    flush(&ctx, &reader.state()).await;
    "the dispatcher's pipelines"
}

async fn pipeline_pass(pipeline: Arc<Pipeline>, ctx: Arc<Context>) -> Result<Action, PassError> {
    let term = match ctx.leadership().await {
        Ok(term) => term,
        Err(instead) => return Ok(instead),
    };
    let uid = pipeline.uid().unwrap_or_default();
    let leaves = ctx.lease.sharding().leaves(&pipeline).map(str::to_owned);
    // One that is handed over to another shard is not begun, but its bucket stays until that is done.
    let busy = if leaves.is_some() { ctx.lease.hold(Bucket::of(&uid)) } else { ctx.lease.begin(&uid) };
    let Some(_busy) = busy else { return Ok(Action::await_change()) };
    if leaves.is_some() && !drained(&uid, &ctx).await {
        return Ok(Action::requeue(AGAIN));
    }
    let mut permit = ctx.limiter.acquire(&pipeline.namespace().unwrap_or_default()).await;
    // The reconcile may have waited for long. It continues only if this replica is still the leader, in the same term.
    if ctx.leadership_now() != Some(term) {
        return Ok(Action::requeue(Duration::ZERO));
    }
    // Meanwhile its bucket may have been given away, or its label may have been changed back.
    let is_right = if leaves.is_some() { ctx.lease.is_elsewhere(&uid) } else { ctx.lease.owns(&uid) };
    if !is_right {
        return Ok(Action::await_change());
    }
    let mut cursor_state = ctx.take_cursor_state(&uid, term);
    let result = match &leaves {
        Some(shard) => ctx.before_the_end(hand_over(&pipeline, shard, &mut cursor_state, &ctx)).await,
        None => ctx.before_the_end(reconcile::run(&pipeline, &mut cursor_state, &ctx)).await,
    };
    let result = result.unwrap_or(Ok(Action::await_change()));
    if leaves.is_none() {
        // If the pipeline comes back, another shard has continued meanwhile.
        ctx.put_cursor_state(&uid, cursor_state);
    }
    let hung = matches!(result, Err(PassError::Confirm(CallError::Timeout) | PassError::Persist(CallError::Timeout)));
    permit.record(!hung);
    if result.is_ok() {
        ctx.succeeded(&uid);
    }
    result
}

/// Starts no more work for a pipeline, and waits until no request and no write for it is in progress. Returns `false` if that takes long. The
/// label may have been changed back then.
async fn drained(uid: &str, ctx: &Context) -> bool {
    ctx.lease.assign(uid, false, 0);
    tokio::time::timeout(DRAIN, ctx.deliveries.drained(uid)).await.unwrap_or(false)
}

/// Hands a pipeline over to another shard: when no request and no write for it is in progress, the last write of its cursors names that shard.
async fn hand_over(
    pipeline: &Pipeline,
    shard: &str,
    cursor_state: &mut CursorState,
    ctx: &Context,
) -> Result<Action, PassError> {
    let of = references::reference(pipeline);
    cursor_state.absorb(pipeline);
    if !cursor_state.is_of(ctx.lease.sharding()) {
        return Ok(Action::await_change());
    }
    cursor_state.gather(&of, ctx);
    cursor_state.put_shard(shard);
    match cursor_state.save(&of, None, ctx).await? {
        Saved::Done => {
            tracing::info!(pipeline = %of.name, namespace = %of.namespace, shard, "handed the pipeline over to another shard");
            Ok(Action::await_change())
        }
        Saved::Stale => Ok(Action::requeue(SOON)),
        Saved::Gone => Ok(Action::await_change()),
    }
}

/// Persists the cursors and the last-sent times at shutdown, after the requests in flight have ended.
async fn flush(ctx: &Context, pipelines: &[Arc<Pipeline>]) {
    ctx.deliveries.ended().await;
    let Some(term) = ctx.leadership_now() else { return };
    let flush = |pipeline: &Arc<Pipeline>| {
        let of = references::reference(pipeline);
        async move {
            let Some(_busy) = ctx.lease.begin(&of.uid) else { return };
            let mut cursor_state = ctx.take_cursor_state(&of.uid, term);
            cursor_state.gather(&of, ctx);
            if !cursor_state.is_dirty() {
                return;
            }
            if let Err(error) = cursor_state.save(&of, None, ctx).await {
                tracing::warn!(pipeline = %of.name, error = %chain(&error), "could not persist cursors on shutdown; changes are processed again after the restart, and existing Deliveries are not repeated");
            }
        }
    };
    stream::iter(pipelines).map(flush).buffer_unordered(CONCURRENCY).collect::<()>().await;
}

async fn watch_notifications(
    ctx: Arc<Context>,
    namespace: Option<String>,
    again: Again,
    listed: mpsc::Sender<Listed>,
    stop: CancellationToken,
) -> &'static str {
    let (reader, queue) = follow::<Notification>(&ctx, namespace, listed, again.notifications.stream(), &stop);
    let run = applier(
        |notification: Arc<Notification>, ctx: Arc<Context>| Box::pin(notification_status(notification, ctx)),
        |notification, error: &CallError, ctx: Arc<Context>| {
            tracing::warn!(notification = %notification.name_any(), error = %chain(error), "could not write a status");
            Action::requeue(pause(ctx.failed(&notification.uid().unwrap_or_default())))
        },
        ctx.clone(),
        reader.clone(),
        queue,
        Config::default().concurrency(UNBOUNDED),
    );
    applied(run.for_each(|_| future::ready(())), &reader, &stop).await;
    ctx.deliveries.ended().await;
    let tell = async |notification: Arc<Notification>| {
        let busy = ctx.leadership_now().and_then(|_| ctx.lease.begin(notification.metadata.uid.as_deref()?));
        if busy.is_none() {
            return;
        }
        if let Err(error) = status::notification::write(&notification, &ctx, true).await {
            tracing::warn!(notification = %notification.name_any(), error = %chain(&error), "could not write the last status");
        }
    };
    stream::iter(reader.state()).map(tell).buffer_unordered(CONCURRENCY).collect::<()>().await;
    "the dispatcher's notifications"
}

async fn notification_status(notification: Arc<Notification>, ctx: Arc<Context>) -> Result<Action, CallError> {
    if let Err(instead) = ctx.leadership().await {
        return Ok(instead);
    }
    let Some(_busy) = ctx.lease.begin(&notification.uid().unwrap_or_default()) else { return Ok(Action::await_change()) };
    let mut permit = ctx.limiter.acquire(&notification.namespace().unwrap_or_default()).await;
    // Its bucket may have been given away meanwhile.
    if !ctx.lease.owns(&notification.uid().unwrap_or_default()) {
        return Ok(Action::await_change());
    }
    test_send::take(&notification, &ctx);
    let told = status::notification::write(&notification, &ctx, false).await;
    permit.record(!matches!(told, Err(CallError::Timeout)));
    let action = told?;
    ctx.succeeded(&notification.uid().unwrap_or_default());
    Ok(action)
}

/// Forwards the output of the engine: figures and times to their writers, and messages for users to Events.
async fn pass_on(ctx: Arc<Context>, mut notes: mpsc::Receiver<Note>, stop: CancellationToken) -> &'static str {
    let mut changed = Box::pin(ctx.deliveries.delivery_index.changed.stream());
    let mut sent = Box::pin(ctx.deliveries.delivery_index.sent.stream());
    loop {
        tokio::select! {
            () = stop.cancelled() => return "the dispatcher's event forwarder",
            Some(owner) = changed.next() => ctx.wake_notification(&owner.namespace, &owner.name),
            Some(of) = sent.next() => ctx.wake_pipeline(&of.namespace, &of.name),
            Some(note) = notes.recv() => warn(&ctx, &note),
        }
    }
}

/// Periodically drops the data of deleted objects.
async fn tidy(ctx: Arc<Context>, stop: CancellationToken) -> &'static str {
    while stop.run_until_cancelled(tokio::time::sleep(TIDY)).await.is_some() {
        ctx.metrics.bookkeeping(ctx.tidy());
    }
    "the dispatcher's cleanup"
}

fn warn(ctx: &Context, note: &Note) {
    let (spec, status) = (&note.record.spec, &note.record.status);
    let (reason, action) =
        if status.outcome.is_some() { ("DeliveryParked", "Deliver") } else { ("DeliveryWaits", "Deliver") };
    let why = status.reason.as_deref().unwrap_or_default();
    let error = status.error.as_deref().unwrap_or_default();
    let text =
        format!("{} of {} (delivery {}): {why}: {error}", spec.type_.as_str(), spec.subject.name, note.record.id.name);
    ctx.warn(&spec.pipeline_ref, &spec.notification, &spec.notification_uid, reason, action, &text);
}

/// Returns the delay after one more failure than this number in a row. It has a jitter of 20 %, so that a thousand objects do not retry at once.
fn pause(failures: u32) -> Duration {
    PAUSES.after(failures.saturating_add(1)).mul_f64(0.8 + 0.4 * fastrand::f64())
}
