//! One reconcile of one pipeline: plan, gather, compute, write. A reconcile without any change makes no API call.

use std::sync::Arc;
use std::time::Duration;

use kube::api::PatchParams;
use kube::runtime::controller::Action;
use kube::{Api, Resource as _};
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::gather::gather;
use super::write::events::events_for;
use super::write::patch::{Failure, failure, patch};
use super::write::trace::recorded;
use super::write::tracker::{Attempt, WriteTracker, processed, serial};
use super::{Context, Error};
use relaybook_api::pipeline::RunningTimer;
use relaybook_api::{Change, Pipeline, Promotion, Time, now};
use relaybook_core::pipeline::hooks::{Keys, judge};
use relaybook_core::pipeline::status::ready::Notice;
use relaybook_core::pipeline::status::{Base, Next, next};
use relaybook_core::reading::Follower;
use relaybook_runtime::call::DEADLINE;
use relaybook_runtime::guarded::{Guarded, Outcome};
use relaybook_runtime::leader::Busy;
use relaybook_runtime::limiter::Permit;
use relaybook_runtime::pace::SMALL_OBJECT;
use relaybook_runtime::report::events::ChangeEvent;
use relaybook_runtime::tenure::Tenure;
use relaybook_telemetry::chain;
use relaybook_telemetry::metrics::{ApiWrite, WriteResult};

/// The owner of the fields that this controller writes.
const FIELD_MANAGER: &str = "relaybook-pipeline";
/// Delay after a log with a higher epoch than ours was read. After this delay it is known which replica is the leader.
const LEADER_RECHECK: Duration = Duration::from_secs(1);
/// Maximum time from the due time of a timer until it fires. The same time is reserved for a status write.
const TIMER_SLACK: Duration = Duration::from_secs(1);
/// Maximum number of tries of one reconcile. A stale patch is computed again immediately. After the last try it is retried later.
const TRIES: u32 = 3;

/// Fills the caches with the objects that a pipeline needs, while another replica is the leader.
pub(super) fn keep_warm(ctx: &Context, key: &Follower, watched: &Pipeline, writes: &mut WriteTracker) {
    // A pipeline with a refused spec needs nothing.
    let _ = gather(ctx, key, watched, writes);
}

/// Reconciles a pipeline. `watched` is the object that the watch delivered. `epoch` is the epoch of this replica, and `busy` holds the bucket.
pub(super) async fn reconcile(
    ctx: &Context,
    key: &Follower,
    watched: &Arc<Pipeline>,
    writes: &mut WriteTracker,
    epoch: i32,
    busy: &Busy,
) -> Result<Action, Error> {
    let api = Api::<Pipeline>::namespaced(ctx.client.clone(), &key.namespace);
    let Some(mut permit) = ctx.stop.run_until_cancelled(ctx.limiter.acquire(&key.namespace)).await else {
        return Ok(Action::await_change());
    };
    // The bucket may have been given away while this waited.
    if !ctx.lease.owns(watched.metadata.uid.as_deref().unwrap_or_default()) {
        return Ok(Action::await_change());
    }
    let mut last = Error::Deadline;
    let mut lossy = false;
    for _ in 0..TRIES {
        // Wait here and not just before the write: gathered data must not become old during the wait.
        if !ctx.stop.run_until_cancelled(ctx.lease.wait_with(busy, DEADLINE)).await.unwrap_or(false) {
            return Ok(Action::await_change());
        }
        let live = writes.is_uncertain() || lossy;
        if live {
            match read(&api, &key.name).await? {
                Some(live) => writes.learn(live),
                None => return Ok(Action::await_change()),
            }
        }
        let base = writes.newest(watched);
        // Announce changes whose write was applied although its answer was lost.
        announce(ctx, writes.take_unannounced(), &base, writes);
        if base.metadata.uid != writes.uid || !ctx.lease.sharding().holds(&base) {
            // The pipeline was created again under the same name, and the watch will report it soon. Or another shard handles it now.
            return Ok(Action::await_change());
        }
        notify(ctx, &base, writes);
        let at = Instant::now();
        if let Some(instead) = postponed(ctx, &base, writes, epoch, busy, at) {
            return Ok(instead);
        }
        let gathered = gather(ctx, key, &base, writes);
        let promotions = ctx.promotions.of(&key.namespace, base.metadata.uid.as_deref(), writes.term);
        let promotions: Option<Vec<&Promotion>> = promotions.as_ref().map(|all| all.iter().map(|p| &**p).collect());
        let keys = ctx.hooks.as_ref().map_or(Keys::Usable, |secrets| judge(&base, |name| secrets.unsigned(name)));
        let known = Base { pipeline: &base, promotions: promotions.as_deref(), highest: writes.highest, keys: &keys };
        let processed = gathered.as_ref().map(|g| processed(&g.targets)).unwrap_or_default();
        let check_again = gathered.as_ref().ok().and_then(|gathered| gathered.check_again);
        let done = || check_again.map_or_else(Action::await_change, Action::requeue);
        let Some(mut next) = next(known, gathered.as_ref(), now()) else {
            writes.settle(processed);
            writes.take_turn();
            return Ok(done());
        };
        if next.merged && !live {
            // Before changes are merged, read the pipeline live. If its cursors have moved on, there is space without a merge.
            lossy = true;
            continue;
        }
        if let Some(wait) = turn(ctx, &key.namespace, next.bytes, writes).and_then(|wait| held_back(&base, wait, now())) {
            // The observations are gathered again then, with those that come meanwhile.
            return Ok(Action::requeue(wait));
        }
        writes.take_turn();
        let held_until = held_until(ctx.pace.wait(&key.namespace, at.into_std()), now());
        next.status.log.iter_mut().for_each(|log| (log.epoch, log.held_until) = (epoch, held_until));
        writes.sending(Attempt::of(&base, &next.status, processed));
        let changed_at = gathered
            .iter()
            .flat_map(|g| &g.targets)
            .filter_map(|(_, reading)| reading.changed_at)
            .min()
            .map(Instant::from_std);
        match write(ctx, &api, &base, &next, writes, &mut permit).await? {
            None => {
                if let Some(changed_at) = changed_at {
                    ctx.metrics.observation_lag(changed_at.elapsed());
                }
                return Ok(done());
            }
            Some(error) => last = error,
        }
    }
    Err(last)
}

/// Returns what to do instead, if nothing may be written now.
fn postponed(ctx: &Context, base: &Pipeline, writes: &WriteTracker, epoch: i32, busy: &Busy, at: Instant) -> Option<Action> {
    if let Some(wait) = writes.wait(at).max(writes.turn(at)).and_then(|wait| held_back(base, wait, now())) {
        return Some(Action::requeue(wait));
    }
    if let Some(above) = log_epoch(base).filter(|of_log| *of_log > epoch) {
        ctx.lease.raise(above);
        return Some(Action::requeue(LEADER_RECHECK));
    }
    // The observations of a later term are not a continuation.
    (!ctx.lease.is_current(busy)).then(Action::await_change)
}

fn log_epoch(pipeline: &Pipeline) -> Option<i32> {
    pipeline.status.as_ref()?.log.as_ref().map(|log| log.epoch)
}

/// Writes a new epoch into the log of a pipeline that has come from another shard. Late writes of that shard test the earlier one, and fail.
/// Returns the epoch. `None`: this copy is not current, or the pipeline is gone.
pub(super) async fn claim(ctx: &Context, tenure: &Tenure, pipeline: &Pipeline) -> Result<Option<i32>, Error> {
    let meta = &pipeline.metadata;
    let Some(log) = pipeline.status.as_ref().and_then(|status| status.log.as_ref()) else { return Ok(Some(0)) };
    let own = ctx.lease.term().map_or(0, |term| term.epoch);
    let epoch = log.epoch.max(own).saturating_add(1);
    let api = Api::<Pipeline>::namespaced(ctx.client.clone(), meta.namespace.as_deref().unwrap_or_default());
    let mut patch = Guarded::of(meta.uid.as_deref()).test(["status", "log", "serial"], json!(log.serial));
    if log.epoch > 0 {
        patch = patch.test(["status", "log", "epoch"], json!(log.epoch));
    }
    let patch = patch.put(["status", "log", "epoch"], &epoch).map_err(|error| Error::Claim(error.into()))?;
    let outcome = patch.write_status(tenure.into(), &api, meta.name.as_deref().unwrap_or_default()).await;
    let outcome = outcome.map_err(Error::Claim)?;
    Ok(matches!(outcome, Outcome::Written(_)).then_some(epoch))
}

/// Returns how long to delay a write. The delay is at most `wait`, and ends one second before the next timer is due. A change that ends the
/// state of the timer must be written before the timer fires, whatever the size of the status is. If the log says that changes can be held
/// for so long, timers wait for them.
fn held_back(base: &Pipeline, wait: Duration, now: Time) -> Option<Duration> {
    let held_until = base.status.as_ref().and_then(|status| status.log.as_ref()?.held_until);
    if now.checked_add(wait).is_ok_and(|end| held_until >= Some(end)) {
        return Some(wait);
    }
    let armed = base.status.iter().filter_map(|status| status.dispatched.as_ref()).flat_map(|d| &d.armed);
    // A timer that must have fired already, or whose time is out of range, does not shorten the delay.
    let until = |timer: &RunningTimer| {
        let fires_in = timer.due.checked_add(TIMER_SLACK).ok().filter(|last| *last >= now)?.duration_since(now);
        Some(Duration::try_from(fires_in).ok()?.saturating_sub(TIMER_SLACK * 2))
    };
    let wait = armed.into_iter().filter_map(until).fold(wait, Duration::min);
    Some(wait).filter(|wait| !wait.is_zero())
}

/// Pays for a write of this size. Returns how long it waits for its turn, if the namespace causes more writes than its share.
fn turn(ctx: &Context, namespace: &str, bytes: usize, writes: &mut WriteTracker) -> Option<Duration> {
    let (now, bytes) = (Instant::now(), bytes.max(SMALL_OBJECT));
    if let Some(paid) = writes.take_turn() {
        let _ = ctx.pace.spend(namespace, bytes.saturating_sub(paid), now.into_std());
        return None;
    }
    let wait = ctx.pace.spend(namespace, bytes, now.into_std());
    writes.wait_for_turn(now + wait, bytes);
    Some(wait).filter(|wait| !wait.is_zero())
}

/// Returns until when changes can be held after this write, so that timers wait for them. `wait`: how long a write of the namespace waits now.
/// Until the next change of the pipeline, the wait can become longer.
fn held_until(wait: Duration, now: Time) -> Option<Time> {
    let is_held = !wait.is_zero();
    is_held.then(|| now.checked_add(wait * 2 + DEADLINE).ok()).flatten()
}

/// Writes a status. `Some(error)` means that a live read is required before the status is computed again.
async fn write(
    ctx: &Context,
    api: &Api<Pipeline>,
    base: &Pipeline,
    next: &Next,
    writes: &mut WriteTracker,
    permit: &mut Permit,
) -> Result<Option<Error>, Error> {
    let name = base.metadata.name.as_deref().unwrap_or_default();
    let patch = patch(base, &next.status, next.merged).map_err(Error::Encode)?;
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let answer = timeout(DEADLINE, api.patch_status(name, &params, &patch)).await;
    writes.spent(next.bytes, Instant::now());
    permit.record(answer.is_ok());
    let error = match answer {
        Ok(Ok(live)) => {
            // The first log of a pipeline has changes only if nothing was there before.
            announce(ctx, serial(base).or(base.spec.is_absent_before().then_some(0)), &live, writes);
            notify(ctx, &live, writes);
            writes.answered(live);
            ctx.metrics.api_write(ApiWrite::PipelineStatus, WriteResult::Ok);
            ctx.metrics.changes_dropped(next.dropped);
            return Ok(None);
        }
        Ok(Err(error)) => error,
        Err(_) => {
            ctx.metrics.api_write(ApiWrite::PipelineStatus, WriteResult::Error);
            return Ok(Some(Error::Deadline));
        }
    };
    let failure = failure(&error);
    let conflict = matches!(failure, Failure::Stale | Failure::Gone);
    let result = if conflict { WriteResult::Conflict } else { WriteResult::Error };
    ctx.metrics.api_write(ApiWrite::PipelineStatus, result);
    match failure {
        Failure::Gone => Ok(None),
        Failure::Refused => {
            writes.refused();
            Err(Error::Write(error))
        }
        Failure::Stale | Failure::Uncertain => {
            tracing::debug!(pipeline = name, "status write failed; reading the pipeline again: {}", chain(&error));
            Ok(Some(Error::Write(error)))
        }
    }
}

/// Creates a span and Events for each change that was just recorded. `before` is the serial of the log before the write.
fn announce(ctx: &Context, before: Option<i64>, live: &Pipeline, writes: &mut WriteTracker) {
    let tracer = &ctx.options.tracer;
    new_changes(before, live).filter_map(|change| recorded(tracer, live, change, now())).for_each(|span| tracer.take(span));
    for event in new_changes(before, live).flat_map(events_for) {
        if !writes.may_emit_event(Instant::now()) {
            tracing::debug!(
                pipeline = live.metadata.name,
                reason = &*event.reason,
                "event dropped: too many events about this pipeline"
            );
            return;
        }
        ctx.events.report_change(live.object_ref(&()), event);
    }
}

/// Creates Events for new information about a pipeline as a whole.
fn notify(ctx: &Context, live: &Pipeline, writes: &mut WriteTracker) {
    for Notice { warning, reason, note } in writes.announced.new_notices(live) {
        if writes.may_emit_event(Instant::now()) {
            let event = ChangeEvent { serial: now().as_microsecond(), warning, reason: reason.into(), note };
            ctx.events.report_change(live.object_ref(&()), event);
        } else {
            tracing::debug!(pipeline = live.metadata.name, reason, "event dropped: too many events about this pipeline");
        }
    }
}

/// Returns the changes in the log above this serial. The changes of the first log of a pipeline are not announced.
fn new_changes(before: Option<i64>, live: &Pipeline) -> impl Iterator<Item = &Change> {
    let log = live.status.as_ref().and_then(|status| status.log.as_ref());
    let changes = before.and(log).into_iter().flat_map(|log| &log.changes);
    changes.filter(move |change| Some(change.serial) > before)
}

/// Reads the current object from the API server. Returns `None` if it no longer exists.
async fn read(api: &Api<Pipeline>, name: &str) -> Result<Option<Pipeline>, Error> {
    timeout(DEADLINE, api.get_opt(name)).await.map_err(|_| Error::Deadline)?.map_err(Error::Read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::pipeline::Dispatched;
    use relaybook_api::{ChangeLog, PipelineSpec, PipelineStatus, TransitionType};

    #[test]
    fn a_write_is_not_delayed_beyond_the_time_at_which_a_timer_can_fire() {
        let at = |second| Time::from_second(second).unwrap();
        let base = |due: &[i64]| {
            let armed = due.iter().map(|due| RunningTimer {
                notification: "n".into(),
                subject: "pipeline".into(),
                serial: 1,
                type_: TransitionType::Failed,
                due: at(*due),
            });
            let dispatched = Some(Dispatched { armed: armed.collect(), ..Dispatched::default() });
            let mut base = Pipeline::new("p", PipelineSpec::default());
            base.status = Some(PipelineStatus { dispatched, ..PipelineStatus::default() });
            base
        };
        // The current time is 100, and the write can wait for 4 s.
        let held = |base: &Pipeline| held_back(base, Duration::from_secs(4), at(100)).map_or(0, |wait| wait.as_secs());
        for (due, seconds) in [(98, 4), (99, 0), (100, 0), (101, 0), (102, 1), (104, 3), (105, 4), (900, 4)] {
            assert_eq!(held(&base(&[due])), seconds, "{due}");
        }
        assert_eq!(held(&base(&[10, 103, 200])), 2, "the next of several timers counts");
        assert_eq!(held(&base(&[])), 4);
        assert_eq!(held(&Pipeline::new("p", PipelineSpec::default())), 4);
        for (held_until, seconds) in [(103, 0), (104, 4), (500, 4)] {
            let mut base = base(&[101]);
            let log = ChangeLog { held_until: Some(at(held_until)), ..ChangeLog::default() };
            base.status.as_mut().unwrap().log = Some(log);
            assert_eq!(held(&base), seconds, "timers wait until {held_until}");
        }
    }

    #[test]
    fn the_log_says_how_long_changes_can_be_held() {
        let now = Time::from_second(100).unwrap();
        assert_eq!(held_until(Duration::ZERO, now), None);
        assert_eq!(held_until(Duration::from_secs(5), now), Time::from_second(120).ok());
    }
}
