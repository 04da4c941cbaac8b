//! Reacts to a change of the configuration. It queues statuses and pipelines for a reconcile, and lanes for a check. It watches ConfigMaps
//! and Secrets, and compiles layers.
//!
//! In: what a change affects. Out: keys in the queues of pipelines and notifications; scopes for the lanes; the watched names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;

use super::Context;
use super::config::budget::Next;
use super::config::changed::{All, Changed};
use super::follow::Key;
use crate::outbox::Scope;
use relaybook_api::ObjectName;
use relaybook_api::values::refs::ConfigMapKey;
use relaybook_runtime::apart::apart;
use relaybook_settings::config::{EffectiveNotification, Sending};

/// While there is much to compile, the watches are updated at most once in this interval.
const FOLLOW: Duration = Duration::from_millis(200);

/// Queues everything that a change affects: statuses, pipelines and lanes.
pub(super) fn enqueue_affected(ctx: &Context, changed: Changed) {
    changed.notifications.iter().for_each(|of| wake_lanes_of(ctx, of));
    for of in changed.statuses.into_iter().chain(changed.notifications) {
        ctx.wake(Key::Notification(of));
    }
    if let Some(all) = changed.all {
        ctx.wake_pipelines(|_| true);
        ctx.check(if all == All::First { Scope::All } else { Scope::Meanings });
    } else if !changed.names.is_empty() {
        ctx.wake_pipelines(|p| changed.reaches.iter().any(|reach| reach.selects(&p.namespace, &p.labels)));
        ctx.check(Scope::Names(changed.names));
    }
    for (scope, place) in changed.layers {
        wake_notifications_of(ctx, &place.namespace);
        ctx.wake(Key::Pipeline(place));
        ctx.check(scope);
    }
}

/// Queues the pipelines and lanes that depend on a Notification, but not its status.
pub(super) fn wake_lanes_of(ctx: &Context, ObjectName { namespace, name }: &ObjectName) {
    for pipeline in ctx.deliveries.pipeline_index.pipelines_in(namespace) {
        ctx.wake(Key::Pipeline(ObjectName::new(namespace, &pipeline.name)));
    }
    ctx.check(Scope::Notification(namespace.clone(), name.clone()));
}

/// Queues the statuses of the Notifications that can apply to pipelines of this namespace.
pub(super) fn wake_notifications_of(ctx: &Context, namespace: &str) {
    let here = ctx.deliveries.pipeline_index.names_in(namespace).into_iter().map(|name| ObjectName::new(namespace, name));
    here.chain(ctx.config.accepting(namespace)).for_each(|of| ctx.wake(Key::Notification(of)));
}

/// Watches the ConfigMaps and Secrets that effective notifications refer to, the Secrets of forges, and no others.
pub(super) fn set_wanted(ctx: &Context) {
    let all = || ctx.config.all();
    ctx.config.config_maps.set_wanted(|| all().iter().flat_map(|n| &n.config_maps).map(ConfigMapKey::object).collect());
    ctx.secrets.set_wanted(|| {
        let all = all();
        let sending = all.iter().filter_map(|n| n.sending.as_ref().ok());
        let of_notifications = sending.flat_map(Sending::secrets).filter_map(|needed| needed.secret());
        of_notifications.chain(ctx.deliveries.pipeline_index.web().secrets()).collect()
    });
}

/// Queues what a change of a Secret affects.
pub(super) fn enqueue_affected_by_secret(ctx: &Context, secret: &ObjectName) {
    enqueue_affected(ctx, ctx.config.concerned(|notification| refers(notification, secret)));
}

fn refers(notification: &EffectiveNotification, secret: &ObjectName) -> bool {
    notification.sending.as_ref().is_ok_and(|s| s.secrets().iter().any(|needed| needed.secret().as_ref() == Some(secret)))
}

/// Follows the ConfigMaps that notifications refer to.
pub(super) async fn follow_config_maps(ctx: Arc<Context>, stop: CancellationToken) -> &'static str {
    let mut names = Box::pin(ctx.config.config_maps.changes());
    while let Some(Some(config_map)) = stop.run_until_cancelled(names.next()).await {
        let changed = ctx.config.config_map_changed(&config_map);
        if !changed.is_nothing() {
            set_wanted(&ctx);
            enqueue_affected(&ctx, changed);
        }
    }
    ctx.config.config_maps.shutdown().await;
    "the dispatcher's ConfigMap watches"
}

/// Passes checks on to the engine, in their order. If its queue is full, they wait in ours, each once. The engine reads the index when it
/// checks. So a check that waits covers all changes until then.
pub(super) async fn pass_on_checks(ctx: Arc<Context>, stop: CancellationToken) -> &'static str {
    let mut checks = Box::pin(ctx.checks.stream());
    while let Some(Some(scope)) = stop.run_until_cancelled(checks.next()).await {
        ctx.deliveries.check(scope).await;
    }
    "the dispatcher's checks"
}

/// Compiles layers in the background until shutdown.
pub(super) async fn compile(ctx: Arc<Context>, stop: CancellationToken) -> &'static str {
    let (mut is_due, mut followed) = (false, Instant::now());
    while !stop.is_cancelled() {
        let next = ctx.config.next_job();
        if is_due && (!matches!(next, Next::Work(..)) || followed.elapsed() >= FOLLOW) {
            set_wanted(&ctx);
            (is_due, followed) = (false, Instant::now());
        }
        let wait = match next {
            Next::Work(namespace, mut job) => {
                let work = ctx.clone();
                let compiled = apart(move || {
                    let outcome = work.config.run(&mut job);
                    (job, outcome)
                });
                let (job, outcome) = match compiled.await {
                    Ok(done) => done,
                    // A panic is a defect. It ends the process, as a panic in this task would.
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_) => continue,
                };
                let (changed, is_compiled) = ctx.config.finish(&namespace, job, outcome);
                is_due |= is_compiled;
                enqueue_affected(&ctx, changed);
                continue;
            }
            Next::Wait(left) => left,
            Next::Nothing => Duration::MAX,
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = ctx.config.has_work() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
    "the dispatcher's layer compilation"
}
