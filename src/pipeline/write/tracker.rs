//! What the controller remembers of one pipeline between two looks at it: what it has written and not yet seen in its watch,
//! and how far it has taken each target's observations.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::time::Instant;

use crate::api::pipeline::target::TargetInfo;
use crate::api::{Change, Pipeline, PipelineStatus};
use crate::cluster::{Application, Now};

use crate::pipeline::status::Observed;
use crate::pipeline::status::ready::Announced;
use crate::pipeline::status::similar::Similar;
use crate::pipeline::status::target::source;

/// A pipeline's status is written at no more bytes a second: a large one costs the API server in proportion, 9 ms without a log
/// and 22 ms with 42 changes in it. What happens meanwhile goes with the next write, so that under load fewer and larger ones are
/// made; the first after a pause never waits.
const BYTES_PER_SECOND: f64 = 64.0 * 1024.0;
/// Events about one pipeline.
const EVENTS_AT_ONCE: NonZeroU32 = NonZeroU32::new(25).unwrap();
const EVENT_EVERY: Duration = Duration::from_secs(10);
/// The first wait after a failure; it doubles up to the last.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_mins(1);

/// How far the observations of each target's object have been taken.
pub(in crate::pipeline) type Taken = HashMap<String, (Application, u64)>;

/// So many writes of unknown fate are remembered.
const MOST_LOST: usize = 8;

/// A write that was sent.
#[derive(Debug)]
pub(in crate::pipeline) struct Attempt {
    /// Serial of the log before it.
    pub before: Option<i64>,
    /// Serial of the log in it.
    pub serial: i64,
    /// The last change in it, by which it is known again.
    pub last: Option<Change>,
    /// What was taken into it.
    pub taken: Taken,
}

impl Attempt {
    /// The write of a status in the place of that of this object.
    pub fn of(base: &Pipeline, status: &PipelineStatus, taken: Taken) -> Self {
        let log = status.log.as_ref();
        Self {
            before: serial(base),
            serial: log.map_or(i64::MIN, |log| log.serial),
            last: log.and_then(|log| log.changes.last().cloned()),
            taken,
        }
    }

    /// Whether this is the log that it carried. A later one of the same serial may carry something else.
    fn is_in(&self, object: &Pipeline) -> bool {
        let log = object.status.as_ref().and_then(|status| status.log.as_ref());
        log.is_some_and(|log| log.serial == self.serial && log.changes.last() == self.last.as_ref())
    }
}

/// One pipeline's memory; begins anew with another uid.
#[derive(Debug, Default)]
pub(in crate::pipeline) struct WriteTracker {
    /// Uid of the pipeline that this is about.
    pub uid: Option<String>,
    /// The turn of ours that it belongs to; 0 while another replica acts.
    pub turn: u64,
    /// Generation whose objects the caches were asked for.
    declared: Option<i64>,
    taken: Taken,
    /// The newest object known, while the watch has not delivered it.
    known: Option<Arc<Pipeline>>,
    /// Highest serial ever seen in a log of this uid.
    pub highest: Option<i64>,
    attempt: Option<Attempt>,
    /// Writes that were not answered and that no read has shown: an API server that is still at one may apply it yet.
    lost: Vec<Attempt>,
    /// Up to where the log went before one of these, which has come to light.
    came: Option<i64>,
    not_before: Option<Instant>,
    failures: u32,
    events: EventLimit,
    /// What people were told of the pipeline as a whole.
    pub announced: Announced,
    /// What there is instead of targets that do not exist.
    pub similar: Similar,
}

/// So many Events about one pipeline at once, then one in ten seconds: the API server would take more, and keep them all.
#[derive(Debug)]
struct EventLimit(DefaultDirectRateLimiter);

impl Default for EventLimit {
    fn default() -> Self {
        let quota = Quota::with_period(EVENT_EVERY).unwrap_or(Quota::per_minute(EVENTS_AT_ONCE));
        Self(RateLimiter::direct(quota.allow_burst(EVENTS_AT_ONCE)))
    }
}

impl WriteTracker {
    pub fn new(uid: Option<String>, turn: u64) -> Self {
        Self { uid, turn, ..Self::default() }
    }

    /// Whether one more Event may be written about it now.
    pub fn may_tell(&self) -> bool {
        self.events.0.check().is_ok()
    }

    /// A new turn begins: another replica has taken observations meanwhile, nobody knows which. What is so now counts.
    pub fn anew(self, turn: u64) -> Self {
        Self { highest: self.highest, ..Self::new(self.uid, turn) }
    }

    /// The newest object known: what the watch delivered, or what a write or read was answered with.
    pub fn newest(&mut self, watched: &Arc<Pipeline>) -> Arc<Pipeline> {
        self.known.take_if(|known| version(known) <= version(watched));
        let newest = self.known.as_ref().unwrap_or(watched).clone();
        self.see(&newest);
        self.find(&newest);
        newest
    }

    /// Whether the caches know what this generation of the spec needs.
    pub fn has_declared(&self, generation: Option<i64>) -> bool {
        generation.is_some() && self.declared == generation
    }

    /// Notes that the caches were asked for the objects of these targets, at this sequence number. Where an object is new here,
    /// what it said before is none of this pipeline's past.
    pub fn declare(&mut self, generation: Option<i64>, targets: &[TargetInfo], seq: u64) {
        let mut old = std::mem::take(&mut self.taken);
        for target in targets {
            let app = source(target);
            let seq = old.remove(&target.subject).filter(|(of, _)| *of == app).map_or(seq, |(_, taken)| taken);
            self.taken.insert(target.subject.clone(), (app, seq));
        }
        self.declared = generation;
    }

    /// Whether a write was sent whose fate is not known; a live read has to tell before anything else is written.
    pub fn is_uncertain(&self) -> bool {
        self.attempt.is_some()
    }

    /// Notes that a write is about to be sent.
    pub fn sending(&mut self, attempt: Attempt) {
        self.attempt = Some(attempt);
    }

    /// Notes that the write was refused. Not that it was never applied: kube's client sends it again after 429, 503 and 504, and the
    /// last answer is what is known.
    pub fn refused(&mut self) {
        self.lose();
    }

    /// Takes in the answer to the write.
    pub fn answered(&mut self, live: Pipeline) {
        if let Some(attempt) = self.attempt.take() {
            self.apply(attempt);
        }
        self.keep(live);
    }

    /// Takes in an object as a live read has it. That it does not show a write of unknown fate does not say that it never will.
    pub fn learn(&mut self, live: Pipeline) {
        self.lose();
        self.find(&live);
        self.keep(live);
    }

    /// Keeps the write among those of unknown fate, one of a kind.
    fn lose(&mut self) {
        let Some(attempt) = self.attempt.take() else { return };
        self.lost.retain(|lost| (lost.before, lost.serial, &lost.last) != (attempt.before, attempt.serial, &attempt.last));
        self.lost.push(attempt);
        let excess = self.lost.len().saturating_sub(MOST_LOST);
        self.lost.drain(..excess);
    }

    /// Up to where the log went before a write without an answer that has come to light since this was last asked: what stands above
    /// is recorded, and nobody was told.
    pub fn untold(&mut self) -> Option<i64> {
        self.came.take()
    }

    /// Looks for a write of unknown fate in this. One that records no change took nothing that would change anything if taken again, so there
    /// it does not matter.
    fn find(&mut self, object: &Pipeline) {
        if let Some(at) = self.lost.iter().rposition(|attempt| attempt.is_in(object)) {
            let attempt = self.lost.swap_remove(at);
            self.came = attempt.before;
            self.apply(attempt);
        }
    }

    fn apply(&mut self, attempt: Attempt) {
        // Each tests the serial that it goes on from: none from before this one can be applied any more.
        self.lost.retain(|lost| lost.before >= Some(attempt.serial));
        self.settle(attempt.taken);
    }

    fn keep(&mut self, live: Pipeline) {
        self.see(&live);
        self.known = Some(Arc::new(live));
    }

    /// Notes that these observations are taken: they are written, or change nothing.
    pub fn settle(&mut self, taken: Taken) {
        for (subject, (app, seq)) in taken {
            if let Some((of, known)) = self.taken.get_mut(&subject)
                && *of == app
            {
                *known = seq.max(*known);
            }
        }
    }

    /// After which sequence number the observations of a target's object have not been taken.
    pub fn after(&self, subject: &str, app: &Application) -> u64 {
        self.taken.get(subject).filter(|(of, _)| of == app).map_or(u64::MAX, |(_, seq)| *seq)
    }

    /// How long the next write has to wait.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        self.not_before.and_then(|at| at.checked_duration_since(now)).filter(|d| !d.is_zero())
    }

    /// Notes what a write has cost.
    pub fn spent(&mut self, bytes: usize, now: Instant) {
        #[allow(clippy::cast_precision_loss, reason = "a status has far fewer than 2^52 bytes")]
        let seconds = bytes as f64 / BYTES_PER_SECOND;
        self.not_before = Some(now + Duration::from_secs_f64(seconds));
    }

    /// Notes how a look has ended.
    pub fn ended(&mut self, well: bool) {
        self.failures = if well { 0 } else { self.failures.saturating_add(1) };
    }

    /// How long to wait after a failure.
    pub fn retry(&self) -> Duration {
        FIRST_RETRY.saturating_mul(1 << self.failures.saturating_sub(1).min(10)).min(LAST_RETRY)
    }

    fn see(&mut self, object: &Pipeline) {
        self.highest = self.highest.max(serial(object));
    }
}

/// Up to where the log of a pipeline goes.
pub(in crate::pipeline) fn serial(pipeline: &Pipeline) -> Option<i64> {
    pipeline.status.as_ref().and_then(|status| status.log.as_ref()).map(|log| log.serial)
}

/// How far these readings reach. What a cache has seen that is still being filled is not taken.
pub(in crate::pipeline) fn taken(observed: &[Observed]) -> Taken {
    let filled = observed.iter().filter(|(_, r)| !matches!(r.now, Now::Unknown { reason, .. } if reason.is_filling()));
    filled.map(|(t, reading)| (t.subject.clone(), (source(t), reading.seq))).collect()
}

/// The place of an object in the history of its kind. Versions of one kind can be compared as numbers
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>).
fn version(object: &Pipeline) -> Option<u64> {
    object.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::values::refs::AppRef;
    use crate::api::{ChangeLog, PipelineSpec, State};

    fn object(version: &str, serial: Option<i64>) -> Pipeline {
        let mut object = Pipeline::new("p", PipelineSpec::default());
        object.metadata.resource_version = Some(version.to_owned());
        let log = serial.map(|serial| ChangeLog { epoch: 0, first: 1, serial, changes: vec![] });
        object.status = Some(PipelineStatus { log, ..PipelineStatus::default() });
        object
    }

    fn target(app: &str) -> TargetInfo {
        let app = AppRef { name: app.into(), ..AppRef::default() };
        TargetInfo { subject: "t".into(), app, ..TargetInfo::default() }
    }

    fn after(writes: &WriteTracker, app: &str) -> u64 {
        writes.after("t", &source(&target(app)))
    }

    fn up_to(app: &str, seq: u64) -> Taken {
        [("t".to_owned(), (source(&target(app)), seq))].into()
    }

    #[test]
    fn what_was_answered_is_newer_than_a_watch_that_lags() {
        let mut writes = WriteTracker::default();
        writes.learn(object("10", Some(5)));
        let mut newest = |version, serial| (*writes.newest(&Arc::new(object(version, serial)))).clone();
        assert_eq!(newest("9", Some(4)), object("10", Some(5)));
        assert_eq!(newest("11", Some(3)), object("11", Some(3)));
        assert_eq!(newest("10", Some(3)), object("10", Some(3)), "it was forgotten when the watch caught up");
        assert_eq!(writes.highest, Some(5));
    }

    /// An object whose log ends with this change.
    fn ends(version: &str, serial: i64, revision: &str) -> Pipeline {
        let mut object = object(version, Some(serial));
        object.status.iter_mut().flat_map(|s| &mut s.log).for_each(|log| log.changes.push(change(serial, revision)));
        object
    }

    fn change(serial: i64, revision: &str) -> Change {
        let to = State { revision: revision.into(), ..State::default() };
        Change { serial, to, ..Change::default() }
    }

    /// A write that carries one more change, and takes up to so far.
    fn attempt(serial: i64, revision: &str, seq: u64) -> Attempt {
        Attempt { before: Some(serial - 1), serial, last: Some(change(serial, revision)), taken: up_to("a", seq) }
    }

    #[test]
    fn what_was_taken_counts_once_it_is_written() {
        let mut writes = WriteTracker::default();
        writes.declare(Some(1), &[target("a")], 3);
        assert_eq!(after(&writes, "a"), 3);
        writes.sending(attempt(6, "v1", 7));
        writes.answered(ends("1", 6, "v1"));
        assert_eq!(
            (writes.is_uncertain(), writes.untold(), after(&writes, "a")),
            (false, None, 7),
            "told by whoever was answered"
        );

        writes.sending(attempt(7, "v2", 9));
        assert!(writes.is_uncertain());
        writes.learn(ends("2", 7, "v2"));
        assert_eq!((writes.is_uncertain(), after(&writes, "a")), (false, 9));
        assert_eq!((writes.untold(), writes.untold()), (Some(6), None), "told once");

        writes.sending(attempt(8, "v3", 12));
        writes.refused();
        assert_eq!((writes.is_uncertain(), after(&writes, "a")), (false, 9));
        // Another of the same serial was there first.
        writes.sending(attempt(8, "v3", 12));
        assert!(writes.is_uncertain());
        writes.learn(ends("3", 8, "v9"));
        assert_eq!((writes.is_uncertain(), writes.untold(), after(&writes, "a")), (false, None, 9));
        writes.settle(up_to("a", 0));
        assert_eq!(after(&writes, "a"), 9, "an object that is gone says nothing; it does not start anew");
    }

    #[test]
    fn what_is_applied_after_it_was_looked_for_is_not_taken_again() {
        for read in [false, true] {
            let mut writes = WriteTracker::default();
            writes.declare(Some(1), &[target("a")], 3);
            writes.sending(attempt(7, "v2", 9));
            writes.learn(ends("1", 6, "v1"));
            assert_eq!((writes.is_uncertain(), writes.untold(), after(&writes, "a")), (false, None, 3));
            // Another goes on from where the read stood, and is refused or lost.
            writes.sending(attempt(7, "v2", 10));
            writes.learn(ends("1", 6, "v1"));
            if read {
                writes.learn(ends("2", 7, "v2"));
            } else {
                writes.newest(&Arc::new(ends("2", 7, "v2")));
            }
            assert_eq!((writes.untold(), after(&writes, "a")), (Some(6), 10), "read: {read}");
            assert!(writes.lost.is_empty(), "the other can no longer be applied");
            writes.sending(attempt(8, "v3", 12));
            writes.learn(ends("2", 7, "v2"));
            writes.newest(&Arc::new(ends("3", 8, "v8")));
            assert_eq!((writes.untold(), after(&writes, "a")), (None, 10), "it is another's");
        }
        // Sent again by the client after a 503, and refused then for what it had done itself.
        let mut writes = WriteTracker::default();
        writes.declare(Some(1), &[target("a")], 3);
        writes.sending(attempt(7, "v2", 9));
        writes.refused();
        writes.newest(&Arc::new(ends("2", 7, "v2")));
        assert_eq!((writes.untold(), after(&writes, "a")), (Some(6), 9));
        let mut writes = WriteTracker::default();
        for _ in 0..20 {
            writes.sending(attempt(7, "v2", 9));
            writes.learn(object("1", Some(6)));
        }
        assert_eq!(writes.lost.len(), 1, "the same again");
        let mut writes = WriteTracker::default();
        for serial in 1..=20 {
            writes.sending(attempt(serial, "v", 1));
            writes.learn(object("1", None));
        }
        assert_eq!(writes.lost.len(), MOST_LOST);
    }

    #[test]
    fn what_was_said_before_somebody_asked_is_not_taken() {
        let mut writes = WriteTracker::default();
        writes.declare(Some(1), &[target("a")], 3);
        writes.settle(up_to("a", 5));
        writes.declare(Some(2), &[target("a")], 8);
        assert_eq!(after(&writes, "a"), 5, "it was asked for all along");
        writes.declare(Some(3), &[target("b")], 9);
        writes.settle(up_to("a", 20));
        assert_eq!(after(&writes, "b"), 9);
        writes.declare(Some(4), &[], 30);
        writes.declare(Some(5), &[target("b")], 40);
        assert_eq!(after(&writes, "b"), 40);
        assert!(writes.has_declared(Some(5)) && !writes.has_declared(Some(4)) && !writes.has_declared(None));
    }

    #[test]
    fn large_writes_wait_and_failures_wait_longer() {
        let mut writes = WriteTracker::default();
        let now = Instant::now();
        assert_eq!(writes.wait(now), None);
        writes.spent(512 * 1024, now);
        assert_eq!(writes.wait(now), Some(Duration::from_secs(8)));
        assert_eq!(writes.wait(now + Duration::from_secs(8)), None);
        writes.spent(1024, now);
        assert!(writes.wait(now).is_some_and(|d| d < Duration::from_millis(20)));

        let mut waits = Vec::new();
        for _ in 0..9 {
            writes.ended(false);
            waits.push(writes.retry().as_millis());
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
        writes.ended(true);
        writes.ended(false);
        assert_eq!(writes.retry(), FIRST_RETRY);
    }
}
