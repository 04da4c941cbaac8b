//! Computes the status of one Notification, and writes it when it is due.
//!
//! In: figures, the pipelines, and the settings that apply to each target. Out: `Notification.status`, and Events about its changes. It is
//! written at once when users wait for it, and within a second when a condition has changed or after a pause. While only figures change, it is
//! written every five seconds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::{Client, Resource as _, ResourceExt as _};
use url::Url;

use super::figures::{self, Known};
use super::reach;
use super::refused::Refusal;
use super::troubles::{Wrong, all_lack_commits, defined_wrong, lacks_commit, lacks_source};
use super::written::Last;
use crate::dispatch::{Context, test_send};
use crate::outbox::PipelineFacts;
use crate::outbox::send_gate::index::OfTarget;
use relaybook_api::delivery::is_same_notification;
use relaybook_api::{Notification, NotificationStatus, ObjectName, Time, now};
use relaybook_egress::{NotSent, not_sent};
use relaybook_runtime::call::CallError;
use relaybook_runtime::report;
use relaybook_runtime::report::events::Events;
use relaybook_runtime::tenure::Tenure;
use relaybook_settings::config::{Destination, EffectiveNotification, PipelineSelector};
use relaybook_telemetry::Metrics;

/// Updates the status of one notification. Figures are not written at once, unless this is the last write (`last_time`). Returns how long the
/// next write can wait.
pub(crate) async fn write(
    notification: &Notification,
    last: &mut Last,
    tenure: &Tenure,
    ctx: &Context,
    last_time: bool,
) -> Result<Option<Duration>, CallError> {
    let ObjectName { namespace, name } = ObjectName::of(notification);
    let others = notification.spec.pipeline_namespaces.as_deref().unwrap_or_default();
    let mut pipelines = ctx.deliveries.pipeline_index.pipelines_in(&namespace);
    let in_namespace = pipelines.len();
    pipelines.extend(ctx.deliveries.pipeline_index.pipelines_under(&namespace, &name, others));
    let selector = PipelineSelector::parse(notification.spec.pipeline_selector.as_ref());
    pipelines.retain(|p| selector.as_ref().is_ok_and(|s| s.selects(&p.labels)));
    let Some((based, targets)) = ctx.deliveries.pipeline_index.applied(&namespace, &name, &pipelines) else {
        return Ok(None);
    };
    // Prefer the result over a cluster-wide notification, unless only the result without one applies to targets.
    let unchanged = based.all().find(|n| targets.iter().any(|(target, _)| Arc::ptr_eq(target, n)));
    let Some(effective) = unchanged.or_else(|| based.all().next()) else { return Ok(None) };
    // The watch of the ConfigMap reports it soon, and then the status is computed again.
    if effective.sending.as_ref().is_err_and(relaybook_settings::config::Problem::is_unknown) {
        return Ok(None);
    }
    last.absorb(notification);
    let applies_unchanged = targets.is_empty() || unchanged.is_some();
    let applied = AppliesTo { pipelines: &pipelines, in_namespace, targets: &targets, applies_unchanged };
    let new = compute(ctx, notification, effective, &applied, &last.status);
    if new == last.status {
        last.stale_since = None;
        return Ok(None);
    }
    let since = *last.stale_since.get_or_insert_with(Instant::now);
    let left = last.left(&new, since, Instant::now());
    if !left.is_zero() && !last_time && !figures::urgent(&last.status, &new) {
        return Ok(Some(left));
    }
    let version = store((&ctx.client, &ctx.metrics, &ctx.events), tenure, notification, (&last.status, &new)).await?;
    if let Some(version) = version {
        let version = relaybook_api::version(Some(&version));
        *last = Last { version, status: new, stale_since: None, written: Some(Instant::now()) };
    }
    Ok(None)
}

/// Returns why nothing could be sent with the Secrets and to the address of a notification. A Secret that has not been read yet is no reason:
/// its watch reports it soon, and then the check runs again.
pub(crate) fn unusable_of(ctx: &Context, effective: &EffectiveNotification) -> Option<Wrong> {
    let why = usable(ctx, effective).err().filter(|e| !matches!(e, NotSent::SecretUnknown(_)))?;
    Some((not_sent(&why), why.to_string()))
}

/// Checks what is checked before each request.
fn usable(ctx: &Context, effective: &EffectiveNotification) -> Result<(), NotSent> {
    let Ok(sending) = &effective.sending else { return Ok(()) };
    if let Destination::Url(template) = &sending.destination
        && let Ok(origin) = Url::parse(template.origin())
    {
        ctx.policy.url(&origin)?;
    }
    ctx.secrets.secrets().check(&sending.secrets(), &ctx.policy)
}

/// The pipelines and targets to which a notification applies.
struct AppliesTo<'a> {
    pipelines: &'a [Arc<PipelineFacts>],
    /// The number of pipelines of its namespace.
    in_namespace: usize,
    /// The settings that apply to each target.
    targets: &'a [OfTarget],
    /// Whether it applies unchanged to at least one target, or there is no target.
    applies_unchanged: bool,
}

fn compute(
    ctx: &Context,
    notification: &Notification,
    effective: &EffectiveNotification,
    applied: &AppliesTo<'_>,
    old: &NotificationStatus,
) -> NotificationStatus {
    let ObjectName { namespace, name } = ObjectName::of(notification);
    let without_commit = |(n, lacks): &OfTarget| lacks.commit && lacks_commit(n).is_some();
    let without_source = |(n, lacks): &OfTarget| if lacks.source { lacks_source(n) } else { None };
    let unfit = |target: &OfTarget| without_commit(target) || without_source(target).is_some();
    let is_wrong =
        |target: &OfTarget| unfit(target) || defined_wrong(&target.0).is_some() || unusable_of(ctx, &target.0).is_some();
    let all_commitless = !applied.targets.is_empty() && applied.targets.iter().all(without_commit);
    let all_sourceless = applied.targets.first().and_then(without_source);
    let all_sourceless = all_sourceless.filter(|_| applied.targets.iter().all(|target| without_source(target).is_some()));
    let missing = unusable_of(ctx, effective).or_else(|| all_commitless.then(all_lack_commits)).or(all_sourceless);
    let unread = usable(ctx, effective).err().filter(|e| matches!(e, NotSent::SecretUnknown(_))).map(|e| e.to_string());
    let refused = ctx.refused.of(&namespace, &name, &effective.uid, |uid| ctx.lease.owns(uid));
    let refused = refused.or_else(|| elsewhere(ctx, applied.pipelines, &name, &effective.uid));
    let global = ctx.config.global_problem(&namespace, &name);
    let figures = ctx.deliveries.delivery_index.figures(&ObjectName::new(&namespace, &name));
    let unreached = unreached(ctx, notification, effective, applied);
    let is_parked = !figures.given_up.is_empty() || old.last_parked_time.is_some();
    let known = Known {
        name: &name,
        generation: notification.metadata.generation,
        effective,
        figures: &figures,
        pipelines: applied.pipelines,
        layer_of: notification.spec.pipeline_namespaces.as_deref().unwrap_or_default(),
        applies_unchanged: applied.applies_unchanged,
        not_ready: applied.targets.iter().filter(|target| is_wrong(target)).count(),
        missing: missing.as_ref().map(|(reason, words)| (*reason, words.as_str())),
        unread: unread.as_deref(),
        refused: refused.as_ref().map(|(pipeline, refusal)| (pipeline.as_str(), refusal)),
        global: global.as_deref(),
        unreached: unreached.as_deref(),
        created: notification.metadata.creation_timestamp.as_ref().map(|time| time.0),
        seen: ctx.config.since(&namespace, &name),
        edited: if is_parked { edited(ctx, applied.targets, effective) } else { None },
    };
    let uid = notification.uid().unwrap_or_default();
    let requested = test_send::requested(notification);
    let last_test = ctx.tests.newest(&uid, old.last_test.clone(), requested.as_deref());
    NotificationStatus { last_test, ..figures::status(old, &known, now()) }
}

/// Returns what matches nothing: the selector, a trigger of the Notification itself, or the namespaces for which it is a layer.
fn unreached(
    ctx: &Context,
    notification: &Notification,
    effective: &EffectiveNotification,
    applied: &AppliesTo<'_>,
) -> Option<String> {
    let intake = effective.intake.as_ref().ok()?;
    if applied.pipelines.is_empty() && applied.in_namespace > 0 {
        return Some(reach::of_selector(applied.in_namespace));
    }
    let (spec, index) = (&notification.spec, &ctx.deliveries.pipeline_index);
    if spec.triggers.is_some() && intake.triggers.have_globs() {
        let pipelines = ctx.config.keeping_triggers(&ObjectName::of(notification), applied.pipelines);
        if let Some(message) = reach::of_triggers(&intake.triggers, &pipelines) {
            return Some(message);
        }
    }
    let others = spec.pipeline_namespaces.as_deref().unwrap_or_default();
    let is_layer = applied.pipelines.iter().any(|pipeline| others.contains(&pipeline.namespace));
    let are_known = ctx.config.cross_namespace_refs && others.iter().all(|other| index.is_watched(other));
    (!others.is_empty() && !is_layer && are_known).then(|| reach::of_namespaces(others, &notification.name_any()))
}

/// Returns the first pipeline of another replica for which the deliveries of a notification cannot be recorded, and why, according to the
/// status of the pipeline.
fn elsewhere(ctx: &Context, pipelines: &[Arc<PipelineFacts>], name: &str, uid: &str) -> Option<(String, Refusal)> {
    let others = pipelines.iter().filter(|p| !ctx.lease.owns(&p.uid));
    let is_same = |p: &&Arc<PipelineFacts>| p.cursors.get(name).is_some_and(|known| is_same_notification(known, uid));
    let mut refused = others.filter(is_same).filter_map(|p| {
        let (reason, detail) = p.not_recorded.get(name)?;
        Some((p.name.clone(), Refusal { reason: *reason, refused: true, detail: detail.clone() }))
    });
    refused.next()
}

/// Returns when this process last saw a change of a Secret or ConfigMap that the notification or its layers refer to.
fn edited(ctx: &Context, targets: &[OfTarget], effective: &EffectiveNotification) -> Option<Time> {
    let all = || targets.iter().map(|(target, _)| &**target).chain([effective]);
    let secrets = all().filter_map(|n| n.sending.as_ref().ok()).flat_map(relaybook_settings::config::Sending::secrets);
    let secrets: Vec<_> = secrets.collect();
    ctx.secrets.secrets().edited(&secrets).max(ctx.config.config_maps.edited(all().flat_map(|n| &n.config_maps)))
}

/// Writes a status, and Events about its difference from the old one. Returns the new version of the object. Without a new version nothing is
/// stored, and there is no Event: the status is computed again, and the Event would be repeated, or would not be true any more.
async fn store(
    (client, metrics, events): (&Client, &Metrics, &Events),
    tenure: &Tenure,
    notification: &Notification,
    (old, new): (&NotificationStatus, &NotificationStatus),
) -> Result<Option<String>, CallError> {
    let version = report::status::write(client, metrics, tenure, notification, new).await?;
    if version.is_some() {
        say(events, notification, old, new);
    }
    Ok(version)
}

/// Writes Events about the difference between two statuses.
fn say(events: &Events, notification: &Notification, old: &NotificationStatus, new: &NotificationStatus) {
    for figures::StatusEvent { warning, action, reason, note } in figures::events(old, new) {
        let regarding = notification.object_ref(&());
        if warning {
            events.warn(regarding, reason, action, note);
        } else {
            events.inform(regarding, reason, action, note);
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use relaybook_api::conditions::{ConditionStatus, READY, set};
    use relaybook_runtime::leader::Lease;
    use relaybook_runtime::report::events::events;

    /// Returns a client, and the reasons of the Events that it has written. The API server answers each write of a status in the same way.
    fn api_server(code: u16, answer: Value) -> (Client, Arc<Mutex<Vec<Value>>>) {
        let reasons: Arc<Mutex<Vec<Value>>> = Arc::default();
        let written = reasons.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (written, refusal_or_object) = (written.clone(), answer.clone());
            async move {
                let is_event = request.uri().path().starts_with("/apis/events.k8s.io/");
                let body = request.into_body().collect_bytes().await?;
                let (code, answer) = if is_event {
                    let event: Value = serde_json::from_slice(&body)?;
                    written.lock().push(event["reason"].clone());
                    (201, event)
                } else {
                    (code, refusal_or_object)
                };
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, tower::BoxError>(http::Response::builder().status(code).body(answer)?)
            }
        });
        (Client::new(service, "default"), reasons)
    }

    #[tokio::test]
    async fn an_event_is_written_only_if_the_status_is_stored() {
        let object = json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification", "spec": {},
            "metadata": {"name": "hook", "namespace": "a", "uid": "n1", "resourceVersion": "8"},
        });
        let notification = || serde_json::from_value::<Notification>(object.clone()).unwrap();
        let failure = |code: u16, reason: &str| {
            (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}))
        };
        let (lease, old) = (Lease::held(Duration::from_mins(1)), NotificationStatus::default());
        let mut new = old.clone();
        set(
            &mut new.conditions,
            READY,
            ConditionStatus::False,
            "InvalidSpec",
            "m",
            Some(1),
            relaybook_api::Time::UNIX_EPOCH,
        );
        for ((code, answer), version, reasons) in [
            ((200, object.clone()), Some("8"), vec![json!("InvalidSpec")]),
            (failure(404, "NotFound"), None, vec![]),
            (failure(409, "Conflict"), None, vec![]),
            (failure(422, "Invalid"), None, vec![]),
        ] {
            let (client, written) = api_server(code, answer);
            let tenure = Tenure::begin(&lease, Some("n1"), &CancellationToken::new()).unwrap();
            let (events, write_events) = events(client.clone(), Metrics::new(), CancellationToken::new());
            let stored = store((&client, &Metrics::new(), &events), &tenure, &notification(), (&old, &new)).await.unwrap();
            drop(events);
            write_events.await;
            assert_eq!((stored.as_deref(), &*written.lock()), (version, &reasons), "{code}");
        }
    }
}
