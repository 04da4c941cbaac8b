//! One reconcile of one pipeline: plan, gather, compute, write. A reconcile without any change makes no API call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::{Api, Resource as _};
use serde_json::json;

use super::gather::gather;
use super::write::events::events_for;
use super::write::patch::{Failure, failure, patch};
use super::write::trace::recorded;
use super::write::tracker::{Attempt, Processed, WriteTracker, processed, serial};
use super::{Context, Error};
use relaybook_api::pipeline::RunningTimer;
use relaybook_api::{Change, Pipeline, Promotion, Time, now};
use relaybook_core::pipeline::hooks::{Keys, judge};
use relaybook_core::pipeline::status::ready::Notice;
use relaybook_core::pipeline::status::{Base, Next as NextStatus, next};
use relaybook_core::reading::Follower;
use relaybook_runtime::call::{CallError, DEADLINE, call};
use relaybook_runtime::controller::Next;
use relaybook_runtime::guarded::{Guarded, Outcome};
use relaybook_runtime::pace::SMALL_OBJECT;
use relaybook_runtime::report::events::ChangeEvent;
use relaybook_runtime::tenure::Tenure;
use relaybook_telemetry::chain;
use relaybook_telemetry::metrics::{ApiWrite, WriteResult};

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

/// One reconcile of a pipeline.
pub(super) struct Reconcile<'a> {
    pub ctx: &'a Context,
    pub key: &'a Follower,
    /// The object that the watch delivered.
    pub watched: &'a Arc<Pipeline>,
    /// Its promotions. `None`: they are not known yet in this leadership term.
    pub promotions: Option<&'a [&'a Promotion]>,
    pub tenure: &'a Tenure,
    /// The epoch of this replica in the term of the tenure.
    pub epoch: i32,
}

/// What was computed from the readings.
struct Computed {
    /// `None`: nothing has changed.
    next: Option<NextStatus>,
    processed: Processed,
    /// Time of the first observation that is not written yet.
    changed_at: Option<Instant>,
    /// When a cluster can be offline without an event.
    check_again: Option<Instant>,
}

impl Reconcile<'_> {
    /// Reconciles the pipeline.
    pub(super) async fn run(&self, writes: &mut WriteTracker) -> Result<Next, Error> {
        let Self { ctx, key, .. } = *self;
        let (mut last, mut lossy) = (CallError::Timeout, false);
        for _ in 0..TRIES {
            // Wait here and not just before the write: gathered data must not become old during the wait.
            if !self.tenure.wait(DEADLINE).await {
                return Ok(Next::Idle(None));
            }
            let live = writes.is_uncertain() || lossy;
            if live && !self.learn(writes).await? {
                return Ok(Next::Idle(None));
            }
            let base = writes.newest(self.watched);
            // Announce changes whose write was applied although its answer was lost.
            announce(ctx, writes.take_unannounced(), &base, writes);
            if base.metadata.uid != writes.uid || !ctx.lease.sharding().holds(&base) {
                // The pipeline was created again under the same name, and the watch will report it soon. Or another shard handles it now.
                return Ok(Next::Idle(None));
            }
            notify(ctx, &base, writes);
            if let Some(wait) = self.postponed(&base, writes) {
                return Ok(Next::Idle(Some(Instant::now() + wait)));
            }
            let Computed { next, processed, changed_at, check_again } = self.compute(&base, writes);
            let Some(mut next) = next else {
                writes.settle(processed);
                writes.take_turn();
                return Ok(Next::Idle(check_again));
            };
            if next.merged && !live {
                // Before changes are merged, read the pipeline live. If its cursors have moved on, there is space without a merge.
                lossy = true;
                continue;
            }
            if let Some(wait) = turn(ctx, &key.namespace, next.bytes, writes).and_then(|wait| held_back(&base, wait, now()))
            {
                // The observations are gathered again then, with those that come meanwhile.
                return Ok(Next::Idle(Some(Instant::now() + wait)));
            }
            writes.take_turn();
            let held_until = held_until(ctx.pace.wait(&key.namespace, Instant::now()), now());
            next.status.log.iter_mut().for_each(|log| (log.epoch, log.held_until) = (self.epoch, held_until));
            writes.sending(Attempt::of(&base, &next.status, processed));
            let Some(error) = self.write(&base, &next, writes).await? else {
                if let Some(changed_at) = changed_at {
                    ctx.metrics.observation_lag(changed_at.elapsed());
                }
                return Ok(Next::Done(check_again));
            };
            last = error;
        }
        Err(Error::Write(last))
    }

    fn api(&self) -> Api<Pipeline> {
        Api::namespaced(self.ctx.client.clone(), &self.key.namespace)
    }

    /// Reads the current object from the API server. Returns `false` if it no longer exists.
    async fn learn(&self, writes: &mut WriteTracker) -> Result<bool, Error> {
        let live = call(self.api().get_opt(&self.key.name)).await.map_err(Error::Read)?;
        Ok(live.map(|live| writes.learn(live)).is_some())
    }

    /// Returns how long to wait, if nothing may be written now.
    fn postponed(&self, base: &Pipeline, writes: &WriteTracker) -> Option<Duration> {
        let at = Instant::now();
        let wait = writes.wait(at).max(writes.turn(at)).and_then(|wait| held_back(base, wait, now()));
        let raised = || {
            let above = log_epoch(base).filter(|of_log| *of_log > self.epoch)?;
            self.ctx.lease.raise(above);
            Some(LEADER_RECHECK)
        };
        wait.or_else(raised)
    }

    /// Gathers the readings, and computes the next status.
    fn compute(&self, base: &Pipeline, writes: &mut WriteTracker) -> Computed {
        let gathered = gather(self.ctx, self.key, base, writes);
        let keys = self.ctx.hooks.as_ref().map_or(Keys::Usable, |secrets| judge(base, |name| secrets.unsigned(name)));
        let known = Base { pipeline: base, promotions: self.promotions, highest: writes.highest, keys: &keys };
        let next = next(known, gathered.as_ref(), now());
        let gathered = gathered.unwrap_or_default();
        Computed {
            next,
            processed: processed(&gathered.targets),
            changed_at: gathered.targets.iter().filter_map(|(_, reading)| reading.changed_at).min(),
            check_again: gathered.check_again.map(|wait| Instant::now() + wait),
        }
    }

    /// Writes a status. `Some(error)` means that a live read is required before the status is computed again.
    async fn write(
        &self,
        base: &Pipeline,
        next: &NextStatus,
        writes: &mut WriteTracker,
    ) -> Result<Option<CallError>, Error> {
        let (ctx, name) = (self.ctx, &self.key.name);
        let patch = patch(base, &next.status, next.merged).map_err(|error| Error::Write(error.into()))?;
        let answer = patch.try_status(self.tenure.into(), &self.api(), name).await;
        let failure = answer.as_ref().err().map(failure);
        if failure == Some(Failure::Unsent) {
            writes.unsent();
            return Ok(answer.err());
        }
        writes.spent(next.bytes, Instant::now());
        let result = match failure {
            None => WriteResult::Ok,
            Some(Failure::Stale | Failure::Gone) => WriteResult::Conflict,
            Some(_) => WriteResult::Error,
        };
        ctx.metrics.api_write(ApiWrite::PipelineStatus, result);
        let error = match answer {
            Ok(live) => {
                // The first log of a pipeline has changes only if nothing was there before.
                announce(ctx, serial(base).or(base.spec.is_absent_before().then_some(0)), &live, writes);
                notify(ctx, &live, writes);
                writes.answered(live);
                ctx.metrics.changes_dropped(next.dropped);
                return Ok(None);
            }
            Err(error) => error,
        };
        match failure {
            Some(Failure::Gone) => Ok(None),
            Some(Failure::Refused) => {
                writes.refused();
                Err(Error::Write(error))
            }
            // The permit is free during the pause, and the namespace gets fewer of them.
            _ if matches!(error, CallError::Timeout) => Err(Error::Write(error)),
            _ => {
                tracing::debug!(pipeline = name, "status write failed; reading the pipeline again: {}", chain(&error));
                Ok(Some(error))
            }
        }
    }
}

fn log_epoch(pipeline: &Pipeline) -> Option<i32> {
    pipeline.status.as_ref()?.log.as_ref().map(|log| log.epoch)
}

/// Takes over a pipeline that has come from another shard: writes a new epoch into its log. Late writes of that shard test the earlier one, and
/// fail. The new term begins after that, so its lists are newer than every write of the other shard. If this copy is not current, another one
/// follows.
pub(super) async fn claim(ctx: &Context, tenure: &Tenure, pipeline: &Pipeline) -> Result<Next, Error> {
    let (meta, log) = (&pipeline.metadata, pipeline.status.as_ref().and_then(|status| status.log.as_ref()));
    let (uid, mut above) = (meta.uid.as_deref(), 0);
    if let Some(log) = log {
        let own = ctx.lease.term().map_or(0, |term| term.epoch);
        above = log.epoch.max(own).saturating_add(1);
        let api = Api::<Pipeline>::namespaced(ctx.client.clone(), meta.namespace.as_deref().unwrap_or_default());
        let mut patch = Guarded::of(uid).test(["status", "log", "serial"], json!(log.serial));
        if log.epoch > 0 {
            patch = patch.test(["status", "log", "epoch"], json!(log.epoch));
        }
        let patch = patch.put(["status", "log", "epoch"], &above).map_err(|error| Error::Claim(error.into()))?;
        let outcome = patch.write_status(tenure.into(), &api, meta.name.as_deref().unwrap_or_default()).await;
        if !matches!(outcome.map_err(Error::Claim)?, Outcome::Written(_)) {
            return Ok(Next::Done(None));
        }
    }
    ctx.lease.assign(uid.unwrap_or_default(), true, above);
    Ok(Next::Done(None))
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
        let _ = ctx.pace.spend(namespace, bytes.saturating_sub(paid), now);
        return None;
    }
    let wait = ctx.pace.spend(namespace, bytes, now);
    writes.wait_for_turn(now + wait, bytes);
    Some(wait).filter(|wait| !wait.is_zero())
}

/// Returns until when changes can be held after this write, so that timers wait for them. `wait`: how long a write of the namespace waits now.
/// Until the next change of the pipeline, the wait can become longer.
fn held_until(wait: Duration, now: Time) -> Option<Time> {
    let is_held = !wait.is_zero();
    is_held.then(|| now.checked_add(wait * 2 + DEADLINE).ok()).flatten()
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
