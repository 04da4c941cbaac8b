//! Starts the dispatcher's tasks, and flushes the cursors when they end.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _, future, stream};
use kube::runtime::controller::{Action, Config, applier};
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::context::{Again, Context, Given};
use super::standing::PassError;
use super::{notifications, pass, pipelines};
use crate::api::{Notification, Pipeline};
use crate::delivery::{Note, Scope};
use crate::report::status::StatusError;
use crate::telemetry::chain;
use crate::telemetry::metrics::Watch;

/// Pipelines, and notifications, that are gone over at once.
const CONCURRENCY: u16 = 32;
const PIPELINES: &str = "pipelines";
const NOTIFICATIONS: &str = "notifications";
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A watch: its namespace, and what it watches.
type Watched = (Option<String>, &'static str);

/// Starts the dispatcher. `ready` is called when all watches have brought their first lists.
///
/// The tasks end after `stop`; the last thing that they do is to persist the cursors.
pub fn start(
    given: Given,
    notes: mpsc::Receiver<Note>,
    ready: impl FnOnce() + Send + 'static,
    tasks: &mut JoinSet<&'static str>,
    stop: &CancellationToken,
) {
    let ctx = Arc::new(Context::new(given, stop.clone()));
    let (listed, lists) = mpsc::channel(1);
    let mut watches = BTreeSet::new();
    for (namespace, again) in ctx.scopes() {
        for what in [PIPELINES, NOTIFICATIONS] {
            watches.insert((namespace.clone(), what));
        }
        let (namespace, again) = (namespace.clone(), again.clone());
        tasks.spawn(watch_pipelines(ctx.clone(), namespace.clone(), again.clone(), listed.clone(), stop.clone()));
        tasks.spawn(watch_notifications(ctx.clone(), namespace, again, listed.clone(), stop.clone()));
    }
    let wait = complete(ctx.clone(), lists, watches, ready);
    let (done, ended) = (stop.clone(), stop.clone());
    tasks.spawn(async move {
        ended.run_until_cancelled(wait).await;
        done.cancelled().await;
        "the start of the dispatcher"
    });
    tasks.spawn(pass_on(ctx.clone(), notes, stop.clone()));
    tasks.spawn(follow_secrets(ctx, stop.clone()));
}

/// Waits for the first list of every watch; from then on, what is not known is not there.
async fn complete(
    ctx: Arc<Context>,
    mut lists: mpsc::Receiver<Watched>,
    mut missing: BTreeSet<Watched>,
    ready: impl FnOnce() + Send + 'static,
) {
    while !missing.is_empty() {
        let Some(watched) = lists.recv().await else { return };
        missing.remove(&watched);
    }
    drop(lists);
    ctx.deliveries.loaded().await;
    ctx.deliveries.directory.complete();
    ctx.complete.send_replace(true);
    ctx.deliveries.look(Scope::All).await;
    ready();
}

async fn watch_pipelines(
    ctx: Arc<Context>,
    namespace: Option<String>,
    again: Again,
    listed: mpsc::Sender<Watched>,
    stop: CancellationToken,
) -> &'static str {
    let (reader, writer) = store::<Pipeline>();
    let api = api(&ctx, namespace.as_deref());
    let events = crate::watch::guarded(api).reflect(writer);
    let absorbed = {
        let (ctx, reader, scope) = (ctx.clone(), reader.clone(), namespace.clone());
        events.then(move |event| {
            let (ctx, reader, scope, listed) = (ctx.clone(), reader.clone(), scope.clone(), listed.clone());
            async move {
                let Some(event) = interrupted(&ctx, event, PIPELINES) else { return Vec::new() };
                pipelines::absorb(&ctx, &event).await;
                if matches!(event, watcher::Event::InitDone) {
                    let there = reader.state().iter().filter_map(|p| p.uid()).collect::<BTreeSet<_>>();
                    pipelines::sweep(&ctx, scope.as_deref(), &there).await;
                    // Nobody listens any more once all have said it.
                    let _ = listed.send((scope, PIPELINES)).await;
                }
                touched(&event, &reader)
            }
        })
    };
    let woken = again.pipelines.stream().map(|(ns, name)| ObjectRef::new(&name).within(&ns));
    let queue = queue(absorbed.flat_map(stream::iter), woken, &stop);
    let run = applier(
        |pipeline: Arc<Pipeline>, ctx: Arc<Context>| Box::pin(pipeline_pass(pipeline, ctx)),
        |pipeline, error: &PassError, ctx: Arc<Context>| {
            let of = pass::reference(&pipeline);
            tracing::warn!(pipeline = %of.name, namespace = %of.namespace, error = %chain(&error), "a pass ended early; it begins anew");
            Action::requeue(pause(ctx.failed(&of.uid)))
        },
        ctx.clone(),
        reader.clone(),
        queue,
        Config::default().concurrency(CONCURRENCY),
    );
    run.for_each(|_| future::ready(())).await;
    flush(&ctx, &reader.state()).await;
    "the dispatcher's pipelines"
}

async fn pipeline_pass(pipeline: Arc<Pipeline>, ctx: Arc<Context>) -> Result<Action, PassError> {
    if !ctx.is_complete().await {
        return Ok(Action::await_change());
    }
    let uid = pipeline.uid().unwrap_or_default();
    let mut standing = ctx.take_standing(&uid);
    let result = pass::run(&pipeline, &mut standing, &ctx).await;
    ctx.put_standing(&uid, standing);
    if result.is_ok() {
        ctx.succeeded(&uid);
    }
    result
}

/// The last write, once the requests under way are over: where the cursors stand, and what was sent.
async fn flush(ctx: &Context, pipelines: &[Arc<Pipeline>]) {
    ctx.deliveries.ended().await;
    for pipeline in pipelines {
        let of = pass::reference(pipeline);
        let mut standing = ctx.take_standing(&of.uid);
        standing.gather(&of, ctx);
        if !standing.is_dirty() {
            continue;
        }
        if let Err(error) = standing.save(&of, None, ctx).await {
            tracing::warn!(pipeline = %of.name, error = %chain(&error), "cursors could not be flushed; the names of the deliveries will find what is recorded");
        }
    }
}

async fn watch_notifications(
    ctx: Arc<Context>,
    namespace: Option<String>,
    again: Again,
    listed: mpsc::Sender<Watched>,
    stop: CancellationToken,
) -> &'static str {
    let (reader, writer) = store::<Notification>();
    let api = api(&ctx, namespace.as_deref());
    let events = crate::watch::guarded(api).reflect(writer);
    let absorbed = {
        let (ctx, reader, scope) = (ctx.clone(), reader.clone(), namespace.clone());
        events.then(move |event| {
            let (ctx, reader, scope, listed) = (ctx.clone(), reader.clone(), scope.clone(), listed.clone());
            async move {
                let Some(event) = interrupted(&ctx, event, NOTIFICATIONS) else { return Vec::new() };
                notifications::absorb(&ctx, &event).await;
                if matches!(event, watcher::Event::InitDone) {
                    let key = |n: &Arc<Notification>| (n.namespace().unwrap_or_default(), n.name_any());
                    let there = reader.state().iter().map(key).collect::<BTreeSet<_>>();
                    notifications::sweep(&ctx, scope.as_deref(), &there).await;
                    let _ = listed.send((scope, NOTIFICATIONS)).await;
                }
                touched(&event, &reader)
            }
        })
    };
    let woken = again.notifications.stream().map(|(ns, name)| ObjectRef::new(&name).within(&ns));
    let queue = queue(absorbed.flat_map(stream::iter), woken, &stop);
    let run = applier(
        |notification: Arc<Notification>, ctx: Arc<Context>| Box::pin(notification_status(notification, ctx)),
        |notification, error: &StatusError, ctx: Arc<Context>| {
            tracing::warn!(notification = %notification.name_any(), error = %chain(&error), "a status could not be written");
            Action::requeue(pause(ctx.failed(&notification.uid().unwrap_or_default())))
        },
        ctx.clone(),
        reader.clone(),
        queue,
        Config::default().concurrency(CONCURRENCY),
    );
    run.for_each(|_| future::ready(())).await;
    ctx.deliveries.ended().await;
    for notification in reader.state().iter().filter(|_| *ctx.complete.borrow()) {
        if let Err(error) = notifications::tell(notification, &ctx, true).await {
            tracing::warn!(notification = %notification.name_any(), error = %chain(&error), "the last status could not be written");
        }
    }
    "the dispatcher's notifications"
}

async fn notification_status(notification: Arc<Notification>, ctx: Arc<Context>) -> Result<Action, StatusError> {
    if !ctx.is_complete().await {
        return Ok(Action::await_change());
    }
    let action = notifications::tell(&notification, &ctx, false).await?;
    ctx.succeeded(&notification.uid().unwrap_or_default());
    Ok(action)
}

/// Passes on what the engine says: figures and times to whoever writes them, and what a person must know to Events.
async fn pass_on(ctx: Arc<Context>, mut notes: mpsc::Receiver<Note>, stop: CancellationToken) -> &'static str {
    let mut changed = Box::pin(ctx.deliveries.ledger.changed.stream());
    let mut sent = Box::pin(ctx.deliveries.ledger.sent.stream());
    loop {
        tokio::select! {
            () = stop.cancelled() => return "the dispatcher's messenger",
            Some((namespace, name)) = changed.next() => ctx.wake_notification(&namespace, &name),
            Some(of) = sent.next() => ctx.wake_pipeline(&of.namespace, &of.name),
            Some(note) = notes.recv() => warn(&ctx, &note),
        }
    }
}

fn warn(ctx: &Context, note: &Note) {
    let (spec, status) = (&note.record.spec, &note.record.status);
    let (reason, action) =
        if status.outcome.is_some() { ("DeliveryParked", "Deliver") } else { ("DeliveryWaits", "Deliver") };
    let why = status.reason.as_deref().unwrap_or_default();
    let error = status.error.as_deref().unwrap_or_default();
    let text =
        format!("{} of {} (delivery {}): {why}: {error}", spec.type_.as_str(), spec.subject.name, note.record.id.name);
    ctx.warn(&spec.pipeline_ref.namespace, &spec.notification, reason, action, &text);
}

async fn follow_secrets(ctx: Arc<Context>, stop: CancellationToken) -> &'static str {
    let mut changes = ctx.secrets.secrets().changes();
    while let Some(change) = stop.run_until_cancelled(changes.recv()).await {
        match change {
            Ok(secret) => notifications::secret_changed(&ctx, &secret).await,
            Err(broadcast::error::RecvError::Lagged(_)) => {
                ctx.deliveries.look(Scope::All).await;
                for (namespace, name) in ctx.deliveries.directory.notification_names() {
                    ctx.wake_notification(&namespace, &name);
                }
            }
            Err(broadcast::error::RecvError::Closed) => break,
        }
    }
    ctx.secrets.shutdown().await;
    "the dispatcher's secrets"
}

fn api<K>(ctx: &Context, namespace: Option<&str>) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    namespace.map_or_else(|| Api::all(ctx.client.clone()), |ns| Api::namespaced(ctx.client.clone(), ns))
}

fn interrupted<T>(ctx: &Context, event: watcher::Result<T>, what: &str) -> Option<T> {
    let note = |error: &watcher::Error| {
        ctx.metrics.watch_error(if what == PIPELINES { Watch::Pipelines } else { Watch::Notifications });
        tracing::warn!(%error, what, "a watch was interrupted; it is taken up again");
    };
    event.inspect_err(note).ok()
}

/// What an event asks to be gone over. While a list comes in nothing is, for the store is still the old one; after it,
/// everything.
fn touched<K>(event: &watcher::Event<K>, reader: &Store<K>) -> Vec<ObjectRef<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
{
    match event {
        watcher::Event::Apply(object) => vec![ObjectRef::from(object)],
        watcher::Event::InitDone => reader.state().iter().map(|object| ObjectRef::from(&**object)).collect(),
        watcher::Event::Delete(_) | watcher::Event::Init | watcher::Event::InitApply(_) => Vec::new(),
    }
}

/// Everything that asks for a look, until the process is to stop.
fn queue<T: Send + 'static>(
    a: impl Stream<Item = T> + Send + 'static,
    b: impl Stream<Item = T> + Send + 'static,
    stop: &CancellationToken,
) -> impl Stream<Item = Result<T, Infallible>> + Send + 'static {
    stream::select(Box::pin(a), Box::pin(b)).map(Ok).take_until(stop.clone().cancelled_owned())
}

/// After so many failures in a row: from a fifth of a second to half a minute, spread so that a thousand do not come at once.
fn pause(failures: u32) -> Duration {
    let base = Duration::from_millis(200).saturating_mul(1 << failures.min(8)).min(LONGEST_PAUSE);
    base.mul_f64(0.8 + 0.4 * fastrand::f64())
}
