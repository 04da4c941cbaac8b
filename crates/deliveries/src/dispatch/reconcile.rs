//! One reconcile of one pipeline: cursors → derive → record → advance → persist.
//!
//! In: the latest pipeline from the watch, and the dispatcher's progress for it in memory. Out: recorded deliveries, and advanced cursors,
//! which are persisted once a second, or earlier. After a crash, a cursor can be one second old. Then its changes are derived again, and
//! deliveries that are already recorded are found by name.

mod refusals;

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use kube::ResourceExt as _;

use super::cursor::plan::{self, Applying, Sight};
use super::cursor::progress::{Lane, Progress, progress};
use super::cursor::state::{CursorState, PassContext, PassError, Passed, SOON, Saved};
use super::cursor::{aged, persist};
use super::derive::subjects::Subjects;
use super::derive::timers::TimerQuota;
use super::derive::{self, Derived, PipelineLog, Reached};
use super::follow::pipelines;
use super::gone::gone;
use super::share::fits;
use super::status::notification::unusable_of;
use super::status::troubles::{defined_wrong, lacks_commit, lacks_source, refused as refused_entry, troubles};
use super::subject::{namespaces_hash, wants};
use crate::outbox::{Applied, JournalError, ToRecord};
use relaybook_api::delivery::Reason;
use relaybook_api::pipeline::target::{TargetInfo, targets_of};
use relaybook_api::pipeline::{Cursor, NotReadyNotification};
use relaybook_api::{ChangeLog, Pipeline, now, since_boot};
use relaybook_runtime::call::CallError;
use relaybook_runtime::pace::SMALL_OBJECT;
use relaybook_settings::config::EffectiveNotification;

/// If it is not certain that a timer fires, the timer is processed again after this time.
const UNSURE: Duration = Duration::from_secs(1);

/// Reconciles one pipeline.
pub async fn run(pipeline: &Pipeline, cursor_state: &mut CursorState, with: PassContext<'_>) -> Passed {
    let PassContext { of, ctx, .. } = with;
    cursor_state.absorb(pipeline);
    if !cursor_state.is_of(ctx.lease.sharding()) {
        return Ok(None);
    }
    cursor_state.put_shard(&ctx.lease.sharding().id);
    let Some(log) = pipeline.status.as_ref().and_then(|s| s.log.as_ref()) else { return Ok(None) };
    let notifications = ctx.deliveries.pipeline_index.notifications_of(&of.uid, &of.namespace, pipeline.labels());
    let pass = Pass { pipeline, log, notifications, with };
    let wrong = pass.wrong();
    cursor_state.put_troubles(pass.with_refusals(&wrong));
    match pass.arrange(cursor_state).await? {
        Saved::Done => {}
        Saved::Stale => return Ok(Some(SOON)),
        Saved::Gone => return Ok(None),
    }
    pass.tell_dropped(cursor_state);
    let again = pass.take(cursor_state).await?;
    cursor_state.put_troubles(pass.with_refusals(&wrong));
    cursor_state.put_pending_targets(&pipelines::awaited(pipeline, &ctx.cluster_name), with);
    let due = cursor_state.keep(log, with).await?;
    let check = cursor_state.missing.next();
    Ok(again.into_iter().chain(due).chain(check).min())
}

/// What to record for one notification in this reconcile.
struct Work {
    notification: String,
    derived: Derived,
    /// The serial of its cursor.
    behind: i64,
    /// How many of its lanes are tried. The share of the namespace can be enough for some of them. If creates were refused the last time, only one lane is tried, to find out whether they are still
    /// refused. So a slow refusal costs the other notifications little time.
    tried: usize,
    /// A hash of the namespaces of its lanes. If its deliveries may have been recorded in other namespaces before, they are also looked up
    /// there.
    namespaces_hash: u64,
}

/// The result of a reconcile for one notification.
enum Recorded {
    /// Everything that can be recorded now is recorded. A change that waits for a timer is processed when the timer is due.
    All,
    /// Creates are accepted again, or timers that fired have made room. The rest can be tried.
    More,
    /// Something is refused, or its configuration is unclear.
    Held,
}

/// One reconcile of one pipeline, with the data that stays the same during it.
struct Pass<'a> {
    pipeline: &'a Pipeline,
    log: &'a ChangeLog,
    /// The notifications that may apply to it.
    notifications: BTreeMap<String, Applied>,
    with: PassContext<'a>,
}

impl Pass<'_> {
    /// Creates new cursors and persists them before anything is derived. Drops the cursors of deleted notifications.
    async fn arrange(&self, cursor_state: &mut CursorState) -> Result<Saved, PassError> {
        let (PassContext { of, ctx, .. }, log) = (self.with, self.log);
        let labels = self.pipeline.labels();
        let applying: BTreeMap<_, _> = self
            .notifications
            .iter()
            .map(|(name, n)| (name.clone(), Applying { uid: n.uid(), applies: n.selects(labels), own: n.base.is_none() }))
            .collect();
        let unknown = ctx.config.global().in_force.is_none();
        let mut plan = plan::plan(&cursor_state.position.cursors, cursor_state.sight(), unknown, log, &applying);
        for name in &gone(&plan.suspects, cursor_state, self.with).await? {
            // The notification may exist again since it was found missing.
            if ctx.deliveries.pipeline_index.base(&of.namespace, name, labels).is_none() {
                plan.cursors.remove(name);
                if let Some(own) = applying.get(name) {
                    plan.cursors.insert(name.clone(), plan::begin(name, own.uid, Sight::Recorded, log));
                    plan.fresh = true;
                }
            }
        }
        for (name, old) in &cursor_state.position.cursors {
            // The refusal belongs to another notification, or recording is no longer requested.
            if plan.cursors.get(name).is_none_or(|new| new.uid != old.uid) {
                self.clear_refusal(name);
            }
        }
        if !plan.fresh {
            cursor_state.put_cursors(plan.cursors);
            cursor_state.note();
            return Ok(Saved::Done);
        }
        let begins = plan.cursors != cursor_state.position.cursors;
        let serial = (begins && cursor_state.sight() != Sight::First).then_some(log.serial);
        cursor_state.begin(plan.cursors, serial, self.with).await
    }

    /// Returns the problems of the notifications that apply to the pipeline.
    fn wrong(&self) -> Vec<NotReadyNotification> {
        let (pipeline, ctx) = (self.pipeline, self.with.ctx);
        let labels = pipeline.labels();
        let mut applying = self.notifications.clone();
        applying.retain(|_, notification| notification.selects(labels));
        if applying.is_empty() {
            return Vec::new();
        }
        let missing = |n: &EffectiveNotification| unusable_of(ctx, n);
        let cluster = &ctx.cluster_name;
        let commitless = LazyCell::new(|| pipelines::commitless(pipeline, cluster));
        let sourceless = LazyCell::new(|| pipelines::sourceless(pipeline, cluster));
        let unfit = |n: &EffectiveNotification, target: &TargetInfo| {
            let is_among = |all: &HashSet<String>| all.contains(&target.log_subject().to_string());
            let source = || lacks_source(n).filter(|_| is_among(&sourceless));
            lacks_commit(n).filter(|_| is_among(&commitless)).or_else(source)
        };
        troubles(&applying, &targets_of(pipeline, cluster), |n| defined_wrong(n).or_else(|| missing(n)), unfit)
    }

    /// Adds the notifications whose deliveries cannot be recorded. The replica that writes the status of a Notification reads them there.
    fn with_refusals(&self, wrong: &[NotReadyNotification]) -> Vec<NotReadyNotification> {
        wrong.iter().cloned().chain(self.with.ctx.refused.of_pipeline(self.with.of).into_iter().map(refused_entry)).collect()
    }

    /// Derives what to record, one notification after the other. Also returns the notifications for which no retry is allowed yet.
    async fn gather(&self, cursor_state: &CursorState) -> (Vec<Work>, Vec<String>) {
        let Self { pipeline, log, notifications, with: PassContext { of, ctx, .. } } = self;
        let (mut work, mut held) = (Vec::new(), Vec::new());
        let is_idle = |cursor: &Cursor| cursor.serial >= log.serial && cursor_state.armed(&cursor.notification).is_empty();
        if cursor_state.position.cursors.values().all(is_idle) {
            // This is the usual case of a reconcile, so it skips the preparation below.
            cursor_state.position.cursors.keys().for_each(|name| self.clear_refusal(name));
            return (work, held);
        }
        let subjects = Subjects::new(pipeline, &ctx.cluster_name, of);
        let based = pipelines::based(pipeline, &ctx.cluster_name);
        let (labels, annotations) = (pipeline.labels().clone().into(), pipeline.annotations().clone().into());
        let about = PipelineLog {
            pipeline: of,
            labels: &labels,
            annotations: &annotations,
            subjects: &subjects,
            based: &based,
            log,
        };
        let now = now();
        let mut quota = TimerQuota::new(cursor_state.position.timers());
        for cursor in cursor_state.position.cursors.values() {
            let name = &cursor.notification;
            if is_idle(cursor) {
                self.clear_refusal(name);
                continue;
            }
            // The cursor may belong to another notification of the same name. It is not used until the deletion of that notification is
            // confirmed.
            let same = |n: &&Applied| n.uid() == cursor.uid;
            let Some(notification) = notifications.get(name).filter(same) else { continue };
            if !ctx.refused.may_try(of, name) {
                held.push(name.clone());
                continue;
            }
            let taken = cursor_state.taken(name);
            let armed = cursor_state.armed(name);
            let from = Reached { cursor, taken: &taken, armed, timer_limit: quota.limit(armed.len()) };
            let derived = derive::derive(&about, &from, |subject| wants(notification, subject), now);
            quota.put(armed.len(), derived.timers());
            let probes = ctx.refused.reason(of, name) == Some(Reason::RecordRefused);
            let tried = if probes { derived.lanes.len().min(1) } else { derived.lanes.len() };
            let namespaces_hash = namespaces_hash(notification, &subjects);
            work.push(Work { notification: name.clone(), derived, behind: cursor.serial, tried, namespaces_hash });
            // The log and the data that conditions evaluate can be long, so other tasks can run in between.
            tokio::task::yield_now().await;
        }
        (work, held)
    }

    /// Processes the changes above each cursor: derives, records, advances. Returns how long until there is more to do.
    async fn take(&self, cursor_state: &mut CursorState) -> Passed {
        let is_behind = cursor_state.position.cursors.values().any(|cursor| cursor.serial < self.log.serial);
        let turn = || cursor_state.share.turn(&self.with.ctx.pace, &self.with.of.namespace, Instant::now());
        let (mut left, paid) = match is_behind.then(turn).unwrap_or(Ok((usize::MAX, 0))) {
            Ok(turn) => turn,
            Err(wait) => return Ok(Some(wait)),
        };
        let (mut work, mut held) = self.gather(cursor_state).await;
        // The notification that is furthest behind comes first, so that each has its turn.
        work.sort_by_key(|work| work.behind);
        for work in &mut work {
            work.tried = fits(work.derived.lanes.iter().take(work.tried), &mut left);
        }
        let mut again = self.postpone_outdated(&mut work).await?;
        let to_record = |w: &Work| {
            let check_elsewhere = !cursor_state.recorded_only_in(&w.notification, w.namespaces_hash);
            let tried = w.derived.lanes.iter().take(w.tried).cloned();
            tried.map(move |deliveries| ToRecord { deliveries, check_elsewhere }).collect::<Vec<_>>()
        };
        let flat: Vec<_> = work.iter().flat_map(to_record).collect();
        #[cfg(feature = "broken")]
        if crate::broken::is(crate::broken::Wrong::CursorBeforeCreate) {
            for one in &work {
                cursor_state.advance(&one.notification, self.log.serial);
            }
            let _ = cursor_state.save(None, self.with).await;
        }
        let cost = flat.iter().map(|lane| lane.deliveries.len()).sum::<usize>() * SMALL_OBJECT;
        if cost > paid {
            let _ = self.with.ctx.pace.spend(&self.with.of.namespace, cost - paid, Instant::now());
        }
        let errors = self.with.ctx.deliveries.record(self.with.tenure, flat).await;
        if errors.iter().flatten().any(|(_, error)| matches!(error, JournalError::NotHeld)) {
            // What was recorded is found again.
            return Err(CallError::NotHeld.into());
        }
        let mut errors = errors.into_iter();
        for work in work {
            let failed: Vec<_> = errors.by_ref().take(work.tried).collect();
            #[cfg(feature = "broken")]
            let failed = if crate::broken::is(crate::broken::Wrong::RefusedIsRecorded) {
                failed.iter().map(|_| None).collect()
            } else {
                failed
            };
            again = again.into_iter().chain(work.derived.next).min();
            match self.recorded(&work, &failed, cursor_state) {
                Recorded::All => {}
                Recorded::More => again = Some(Duration::ZERO),
                Recorded::Held => held.push(work.notification),
            }
        }
        #[cfg(feature = "broken")]
        if crate::broken::is(crate::broken::Wrong::CursorBeforeOutcome) {
            let _ = cursor_state.save(None, self.with).await;
        }
        if held.is_empty() {
            cursor_state.ages.clear();
        } else {
            let armed: Vec<_> = cursor_state.position.armed.values().flatten().collect();
            cursor_state.ages.note(self.log, &armed, now(), since_boot());
        }
        let waits: Vec<_> = held.iter().filter_map(|name| self.hold(name, cursor_state)).collect();
        Ok(waits.into_iter().chain(again).min())
    }

    /// Removes the notifications whose timer would fire, if the API server has a later change of the subject. It also removes them if the
    /// pipeline is deleted, or if its log does not reach the serial of this copy. This copy can be old, because it waited at the limiter or
    /// for a stalled watch. Returns how long until they are processed again.
    async fn postpone_outdated(&self, work: &mut Vec<Work>) -> Passed {
        if work.iter().all(|w| w.derived.fired_at_end.is_empty()) {
            return Ok(None);
        }
        let moved = persist::changed_since(self.with, self.log.serial).await?;
        let all = work.len();
        work.retain(|w| {
            let fired = &w.derived.fired_at_end;
            fired.is_empty() || moved.as_ref().is_some_and(|moved| moved.is_disjoint(fired))
        });
        // The watch is about to deliver the later change.
        Ok((work.len() < all).then_some(UNSURE))
    }

    /// Advances the cursor as far as everything is recorded.
    fn recorded(&self, work: &Work, failed: &[Option<(usize, JournalError)>], cursor_state: &mut CursorState) -> Recorded {
        let Work { notification: name, derived, tried, namespaces_hash, .. } = work;
        let tried_lanes = failed.iter().map(|failed| failed.as_ref().map_or(Lane::Recorded, |(at, _)| Lane::Failed(*at)));
        let probes = derived.lanes.len() > *tried;
        let lanes: Vec<_> = tried_lanes.chain(derived.lanes.iter().skip(*tried).map(|_| Lane::Later)).collect();
        let Progress { cursor, taken, armed, all } = progress(derived, &lanes, self.log);
        cursor_state.put_recorded_in(name, Some(*namespaces_hash).filter(|_| all));
        cursor_state.put_armed(name, armed);
        let first = failed.iter().flatten().next();
        if first.is_some() || probes || !derived.unclear.is_empty() {
            for (subject, serial) in taken {
                cursor_state.take(name, &subject, serial);
            }
        }
        if !probes {
            cursor_state.advance(name, cursor);
        }
        if let Some((_, error)) = first {
            self.refuse(name, error);
            return Recorded::Held;
        }
        let limit_reached = derived.timer_limit_reached && !probes;
        if limit_reached && derived.fired == 0 {
            self.report_timer_limit(name);
            return Recorded::Held;
        }
        self.clear_refusal(name);
        // The timers that were due have made room.
        if limit_reached || (probes && derived.unclear.is_empty()) {
            return Recorded::More;
        }
        if derived.unclear.is_empty() { Recorded::All } else { Recorded::Held }
    }

    /// Reports changes that were dropped from the log before they were processed for a notification. The cursor of the notification skips
    /// them.
    fn tell_dropped(&self, cursor_state: &mut CursorState) {
        let PassContext { of, ctx, .. } = self.with;
        let Some(dropped) = self.pipeline.status.as_ref().and_then(|status| status.dropped) else { return };
        for name in cursor_state.misses(dropped.serial) {
            let text = format!(
                "changes of pipeline {} were dropped before they were recorded: its change log is full (status size limit)",
                of.name
            );
            let uid = cursor_state.position.cursors.get(&name).map_or("", |cursor| cursor.uid.as_str());
            ctx.warn(of, &name, uid, "ChangesPassed", "Record", &text);
        }
    }

    /// Lets a held cursor skip the changes that are older than `maxAge`, and reports them. Returns how long until the next retry.
    fn hold(&self, name: &str, cursor_state: &mut CursorState) -> Option<Duration> {
        let PassContext { of, ctx, .. } = self.with;
        let notification = self.notifications.get(name)?;
        let max_age = notification.all().map(|n| n.delivery.retry.max_age).max()?;
        let at = cursor_state.position.cursors.get(name)?.serial;
        let passed = aged::pass(self.log, at, cursor_state.armed(name), max_age, &cursor_state.ages, since_boot());
        if passed.count > 0 {
            cursor_state.put_armed(name, passed.armed);
            cursor_state.advance(name, passed.serial);
            let text = format!(
                "skipped {} changes of pipeline {}: they are older than retry.maxAge and could not be recorded",
                passed.count, of.name
            );
            ctx.warn(of, name, notification.uid(), "ChangesPassed", "Record", &text);
        }
        ctx.refused.retry_in(of, name)
    }
}
