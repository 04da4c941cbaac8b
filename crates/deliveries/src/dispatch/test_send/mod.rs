//! Tests of notifications, which users request with an annotation.
//!
//! In: a Notification with the annotation `relaybook.dev/test`. Out: one Delivery, sent with the real credentials over the real way, and
//! `status.lastTest` of the Notification. The replica that writes the status of the Notification also makes its tests, so they have one
//! writer. [`sample`](mod@sample) chooses what is sent, and [`book`] knows what is in progress.

pub(super) mod book;
mod sample;

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, ResourceExt as _};

use self::sample::{Of, Sample};
use super::Context;
use super::follow::Key;
use crate::outbox::{Applied, JournalError, PipelineFacts, Record, Tested};
use book::Begun;
use relaybook_api::notification::{LastTest, TEST, TestRequest, TestResult};
use relaybook_api::values::names::hash;
use relaybook_api::{DeliverySpec, DeliveryStatus, Notification, ObjectName, Outcome, Pipeline, Time, now};
use relaybook_runtime::call::DEADLINE;
use relaybook_runtime::tenure::Tenure;
use relaybook_settings::config::{EffectiveNotification, Marking, PipelineSelector, Problem};

/// A request that is older is refused.
const OLDEST: Duration = Duration::from_mins(10);
/// A test starts only if the Lease lasts for this time: its two requests, and the writes around them.
const WHOLE: Duration = Duration::from_secs(40);
/// How long a test waits for such a Lease.
const LEASE: Duration = Duration::from_secs(15);
/// How long a test waits until the notification is compiled, and how often it checks.
const COMPILED: Duration = Duration::from_secs(10);
const CHECK: Duration = Duration::from_millis(200);
/// Pause after the API server did not answer.
const PAUSE: Duration = Duration::from_secs(1);
/// How many pipelines are read for a target with a matching trigger.
const PIPELINES: usize = 20;
/// Maximum number of characters of a result.
const LONGEST_MESSAGE: usize = 1000;

/// Returns the id of the test that a Notification requests. A value that is no request has one, too, so that it is refused once.
pub(super) fn requested(notification: &Notification) -> Option<String> {
    let value = notification.annotations().get(TEST)?;
    let id = TestRequest::parse(value).map(|request| request.id);
    Some(id.unwrap_or_else(|_| hash(&[value.as_str()])[..16].to_owned()))
}

/// Starts the test that a Notification requests, unless it is known.
pub(super) fn take(notification: &Notification, ctx: &Arc<Context>) {
    let Some(id) = requested(notification) else { return };
    let uid = notification.uid().unwrap_or_default();
    let written = notification.status.as_ref().and_then(|status| status.last_test.as_ref());
    if written.is_some_and(|last| last.id == id) || ctx.tests.begin(&uid, &id) == Begun::Known {
        return;
    }
    let running = Running { ctx: ctx.clone(), name: ObjectName::of(notification), uid, id, result: None };
    let notification = notification.clone();
    tokio::spawn(async move {
        let ctx = running.ctx.clone();
        let _permit = ctx.tests.permit(&running.name.namespace).await;
        let result = Box::pin(ctx.before_the_end(result_of(&notification, &running.id, &ctx))).await.flatten();
        running.end(result);
    });
}

/// A test in progress. When it is dropped, the status of its Notification is written.
struct Running {
    ctx: Arc<Context>,
    name: ObjectName,
    uid: String,
    id: String,
    /// `None`: this replica has not made the test.
    result: Option<LastTest>,
}

impl Running {
    fn end(mut self, result: Option<LastTest>) {
        self.result = result;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ctx.tests.ended(&self.uid, &self.id, self.result.take());
        self.ctx.wake(Key::Notification(self.name.clone()));
    }
}

/// Makes a test. Returns `None` if another replica holds the bucket of the Notification, and makes it.
async fn result_of(notification: &Notification, id: &str, ctx: &Context) -> Option<LastTest> {
    let value = notification.annotations().get(TEST)?;
    let request = match TestRequest::parse(value) {
        Ok(request) => request,
        Err(error) => return Some(refused(id, &format!("annotation {TEST}: {error}"))),
    };
    // A handed over bucket waits for what holds it, so this wait does not.
    compiled(notification, &request, ctx).await;
    let tenure = Tenure::begin(&ctx.lease, Some(&notification.uid().unwrap_or_default()), &ctx.stop)?;
    let is_long = tokio::time::timeout(LEASE, tenure.wait(WHOLE)).await;
    if !is_long.unwrap_or(false) {
        return None;
    }
    perform(notification, &request, &tenure, ctx).await
}

/// Makes one test, or ends one that another process has begun. Returns `None` if that is not known now.
async fn perform(notification: &Notification, request: &TestRequest, tenure: &Tenure, ctx: &Context) -> Option<LastTest> {
    let ObjectName { namespace, name } = ObjectName::of(notification);
    let delivery = sample::delivery_name(&namespace, &name, &request.id);
    let mut places = vec![namespace, ctx.config.global_map.namespace.clone()];
    // Deliveries of a layer can be stored in the namespace of the pipeline.
    let pipeline = candidates(notification, request, ctx).unwrap_or_default().into_iter().next();
    places.extend(pipeline.map(|facts| facts.namespace.clone()));
    places.dedup();
    match ctx.deliveries.begun_test(&delivery, &places).await {
        Ok(Some(begun)) => Some(end(notification, request, begun, ctx).await),
        Ok(None) => begin(notification, request, tenure, ctx).await,
        Err(error) => unrecorded(request, &error).await,
    }
}

/// Returns the result of a test whose Delivery cannot be recorded. `None`: the API server may have recorded it, so the next reconcile looks.
async fn unrecorded(request: &TestRequest, error: &JournalError) -> Option<LastTest> {
    if error.is_refused() {
        return Some(refused(&request.id, &format!("the Delivery of the test cannot be recorded: {}", error.detail())));
    }
    tokio::time::sleep(PAUSE).await;
    None
}

/// Makes one test that was not begun before. Returns `None` if it is not known whether it is recorded.
async fn begin(notification: &Notification, request: &TestRequest, tenure: &Tenure, ctx: &Context) -> Option<LastTest> {
    let ObjectName { namespace, name } = ObjectName::of(notification);
    if let Some(why) = outdated(request, now()) {
        return Some(refused(&request.id, &why));
    }
    if !ctx.tests.may_send(&notification.uid().unwrap_or_default()) {
        let why = format!("at most {} tests a minute are possible for one Notification; wait a minute", book::MOST);
        return Some(refused(&request.id, &why));
    }
    let (sample, facts) = match search(notification, request, ctx).await {
        Ok(found) => found,
        Err(why) => return Some(refused(&request.id, &why)),
    };
    let of = |result, message: &str| Some(about(last(&request.id, result, message), &sample.spec));
    if sample.effective.suspend {
        return of(TestResult::Refused, &format!("Notification {name} is suspended; resume it first"));
    }
    let sending = match &sample.effective.sending {
        Ok(sending) => sending,
        Err(problem) => return of(TestResult::Refused, &problem.to_string()),
    };
    let (mark, resolves) = match confirmed(&sending.marking, request.confirmed) {
        Ok(marked) => marked,
        Err(why) => return of(TestResult::Unconfirmed, &why),
    };
    match Box::pin(ctx.deliveries.test(tenure, sample.send(&namespace, sending, &facts, resolves))).await {
        Ok(Some(tested)) => Some(LastTest { mark: Some(mark), ..ended(request, tested) }),
        // It was recorded meanwhile by a replica that had lost its Lease.
        Ok(None) => of(TestResult::Failed, INTERRUPTED),
        Err(error) => unrecorded(request, &error).await,
    }
}

/// Ends a test that another process has begun: its result is not known, if it is not written.
async fn end(notification: &Notification, request: &TestRequest, begun: Record, ctx: &Context) -> LastTest {
    let about = TestRequest { type_: Some(begun.spec.type_), ..request.clone() };
    let found = search(notification, &about, ctx).await.ok();
    let closing = found.as_ref().and_then(|(sample, facts)| {
        let sending = sample.effective.sending.as_ref().ok()?;
        let resolves = matches!(sending.marking, Marking::Marked { resolves: true, .. });
        Some(sample.send(notification.metadata.namespace.as_deref().unwrap_or_default(), sending, facts, resolves))
    });
    ended(request, Box::pin(ctx.deliveries.end_test(begun, closing)).await)
}

/// Returns the result of a test that has a Delivery.
fn ended(request: &TestRequest, tested: Tested) -> LastTest {
    let Tested { id, spec, status, is_unwritten } = tested;
    let unwritten = if is_unwritten { "; its Delivery has no outcome, because it could not be written" } else { "" };
    let result = about(last(&request.id, result(&status), &format!("{}{unwritten}", words(&status))), &spec);
    LastTest { delivery: Some(format!("{}/{}", id.namespace, id.name)), status_code: status.status_code, ..result }
}

/// Adds what a test is about.
fn about(last: LastTest, spec: &DeliverySpec) -> LastTest {
    LastTest {
        pipeline: Some(format!("{}/{}", spec.pipeline_ref.namespace, spec.pipeline_ref.name)),
        subject: Some(spec.subject.name.clone()),
        type_: Some(spec.type_),
        ..last
    }
}

/// Returns why a request is too old, or too new.
fn outdated(request: &TestRequest, now: Time) -> Option<String> {
    let apart = now.duration_since(request.time).unsigned_abs();
    (apart > OLDEST).then(|| {
        format!(
            "the request is from {}, and it is {now} now; a test must begin within 10 minutes, so request a new one",
            request.time
        )
    })
}

/// Waits a moment if the notification is not compiled yet for one of the pipelines.
async fn compiled(notification: &Notification, request: &TestRequest, ctx: &Context) {
    let (name, end) = (notification.name_any(), tokio::time::Instant::now() + COMPILED);
    let is_unknown = |effective: &Arc<EffectiveNotification>| {
        effective.intake.as_ref().is_err_and(Problem::is_unknown)
            || effective.sending.as_ref().is_err_and(Problem::is_unknown)
    };
    let waits = || {
        let all = candidates(notification, request, ctx).unwrap_or_default();
        let mut applied = all.iter().filter_map(|facts| applied(&name, facts, ctx)).take(PIPELINES);
        applied.any(|applied| applied.all().any(is_unknown))
    };
    while waits() && tokio::time::Instant::now() < end {
        tokio::time::sleep(CHECK).await;
    }
}

/// Returns the notification as it applies to a pipeline.
fn applied(name: &str, facts: &PipelineFacts, ctx: &Context) -> Option<Applied> {
    let mut all = ctx.deliveries.pipeline_index.notifications_of(&facts.uid, &facts.namespace, &facts.labels);
    all.remove(name).filter(|applied| applied.selects(&facts.labels))
}

/// Returns the sample, and its pipeline.
async fn search(
    notification: &Notification,
    request: &TestRequest,
    ctx: &Context,
) -> Result<(Sample, Arc<PipelineFacts>), String> {
    let ObjectName { namespace, name } = ObjectName::of(notification);
    let mut not_found = None;
    let applying = |facts: Arc<PipelineFacts>| applied(&name, &facts, ctx).map(|applied| (facts, applied));
    for (facts, applied) in candidates(notification, request, ctx)?.into_iter().filter_map(applying).take(PIPELINES) {
        let api: Api<Pipeline> = Api::namespaced(ctx.client.clone(), &facts.namespace);
        let read = tokio::time::timeout(DEADLINE, api.get_opt(&facts.name)).await;
        let pipeline = match read {
            Ok(Ok(Some(pipeline))) if pipeline.uid().as_deref() == Some(&facts.uid) => pipeline,
            Ok(Ok(_)) => continue,
            Ok(Err(_)) | Err(_) => {
                return Err(format!("Pipeline {}/{} could not be read; test again", facts.namespace, facts.name));
            }
        };
        let of = Of {
            pipeline: &pipeline,
            applied: &applied,
            notification: (&namespace, &name),
            cluster: &ctx.cluster_name,
            now: now(),
        };
        match sample::sample(&of, request) {
            Ok(sample) => return Ok((sample, facts)),
            Err(why) => not_found = not_found.or(Some(why)),
        }
    }
    let of = request.pipeline.as_ref().map_or_else(|| format!("of namespace {namespace}"), Clone::clone);
    Err(not_found.unwrap_or_else(|| format!("Notification {name} applies to no Pipeline {of}; check its pipelineSelector")))
}

/// Returns the pipelines that a test can be about: that of the request, or all of the namespace by name. In another namespace, it must be one
/// for which the Notification is a layer.
fn candidates(notification: &Notification, request: &TestRequest, ctx: &Context) -> Result<Vec<Arc<PipelineFacts>>, String> {
    let (index, ObjectName { namespace: own, name }) = (&ctx.deliveries.pipeline_index, ObjectName::of(notification));
    let Some(wanted) = &request.pipeline else {
        let mut all = index.pipelines_in(&own);
        all.sort_by(|one, other| one.name.cmp(&other.name));
        return Ok(all);
    };
    let (namespace, pipeline) = wanted.split_once('/').unwrap_or((&own, wanted));
    let all = if namespace == own {
        index.pipelines_in(namespace)
    } else {
        index.pipelines_under(&own, &name, notification.spec.pipeline_namespaces.as_deref().unwrap_or_default())
    };
    let selector = PipelineSelector::parse(notification.spec.pipeline_selector.as_ref());
    let selects = |facts: &PipelineFacts| selector.as_ref().is_ok_and(|selector| selector.selects(&facts.labels));
    let is_it = |facts: &Arc<PipelineFacts>| facts.namespace == namespace && facts.name == pipeline;
    let found = all.into_iter().find(|facts| is_it(facts) && (namespace == own || selects(facts)));
    let missing = || format!("Pipeline {namespace}/{pipeline} does not exist, or Notification {name} does not apply to it");
    found.map(|facts| vec![facts]).ok_or_else(missing)
}

/// Returns how the receiver can see that it is a test, and whether a second request closes its alert. `Err`: the user must confirm it.
fn confirmed(marking: &Marking, is_confirmed: bool) -> Result<(String, bool), String> {
    match marking {
        Marking::Marked { how, resolves } => Ok((how.clone(), *resolves)),
        Marking::Acts { what } if !is_confirmed => {
            Err(format!("the receiver acts on each request: a test would {what}. Confirm the test to send it"))
        }
        Marking::Unmarked if !is_confirmed => Err(
            "neither the body nor the URL uses the field test, so the receiver cannot distinguish the test from the truth. Add {{#if test}}TEST {{/if}} to the template, or confirm the test"
                .to_owned(),
        ),
        Marking::Acts { .. } => Ok(("the request says it, but the receiver acts on it all the same".to_owned(), false)),
        Marking::Unmarked => Ok(("only the header Relaybook-Test says it".to_owned(), false)),
    }
}

/// The result of a test whose process has stopped.
const INTERRUPTED: &str = "the controller was stopped during the test, so the result is not known; test again";

fn result(status: &DeliveryStatus) -> TestResult {
    match status.outcome {
        Some(Outcome::Delivered) if status.error.is_none() => TestResult::Accepted,
        _ if status.attempts == 0 && status.reason.as_deref() != Some("TestInterrupted") => TestResult::Refused,
        _ => TestResult::Failed,
    }
}

/// Returns the result in one line.
fn words(status: &DeliveryStatus) -> String {
    if status.reason.as_deref() == Some("TestInterrupted") {
        return INTERRUPTED.to_owned();
    }
    let code = status.status_code.map(|code| code.to_string());
    let said = status.error.clone().or(code).unwrap_or_default();
    let took = status.last_duration_millis.map(|millis| format!(" after {millis} ms")).unwrap_or_default();
    let answer = status.response.as_ref().map(|response| format!(": {response}")).unwrap_or_default();
    format!("{said}{took}{answer}")
}

fn refused(id: &str, why: &str) -> LastTest {
    last(id, TestResult::Refused, why)
}

fn last(id: &str, result: TestResult, message: &str) -> LastTest {
    LastTest {
        id: id.to_owned(),
        time: now(),
        result,
        message: message.chars().take(LONGEST_MESSAGE).collect(),
        pipeline: None,
        subject: None,
        type_: None,
        delivery: None,
        status_code: None,
        mark: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    #[test]
    fn a_request_must_be_from_the_last_ten_minutes() {
        for (requested, now, expected) in [(0, 0, true), (0, 600, true), (0, 601, false), (601, 0, false), (600, 0, true)] {
            let request = TestRequest { time: at(requested), ..TestRequest::default() };
            assert_eq!(outdated(&request, at(now)).is_none(), expected, "{requested} {now}");
        }
    }

    #[test]
    fn a_test_that_the_receiver_cannot_recognize_needs_a_confirmation() {
        let marked = Marking::Marked { how: "h".into(), resolves: true };
        let acts = Marking::Acts { what: "start workflows".into() };
        assert_eq!(confirmed(&marked, false), Ok(("h".to_owned(), true)));
        assert!(confirmed(&acts, false).unwrap_err().contains("a test would start workflows"));
        assert!(confirmed(&Marking::Unmarked, false).unwrap_err().contains("{{#if test}}"));
        assert!(confirmed(&acts, true).is_ok() && confirmed(&Marking::Unmarked, true).is_ok());
    }

    #[test]
    fn the_result_says_what_the_receiver_answered() {
        let status = |outcome, code, error: Option<&str>, reason: Option<&str>| DeliveryStatus {
            outcome: Some(outcome),
            status_code: code,
            error: error.map(str::to_owned),
            reason: reason.map(str::to_owned),
            attempts: i64::from(code.is_some()),
            last_duration_millis: code.map(|_| 143),
            response: code.map(|_| "ok".to_owned()),
            ..DeliveryStatus::default()
        };
        for (status, expected, message) in [
            (status(Outcome::Delivered, Some(200), None, None), TestResult::Accepted, "200 after 143 ms: ok"),
            (
                status(Outcome::Parked, Some(403), Some("403 Forbidden"), None),
                TestResult::Failed,
                "403 Forbidden after 143 ms: ok",
            ),
            (
                status(Outcome::Parked, None, Some("Secret a/b does not exist"), None),
                TestResult::Refused,
                "Secret a/b does not exist",
            ),
            (
                status(Outcome::Canceled, None, None, Some("TestInterrupted")),
                TestResult::Failed,
                "the controller was stopped during the test, so the result is not known; test again",
            ),
        ] {
            assert_eq!((result(&status), words(&status).as_str()), (expected, message));
        }
    }
}
