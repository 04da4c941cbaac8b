//! The state of one pipeline that the controller keeps between two reconciles. It contains the writes that the watch has not delivered yet.
//! It also contains up to where the observations of each target were processed.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use relaybook_api::pipeline::target::TargetInfo;
use relaybook_api::values::refs::ClusterAppRef;
use relaybook_api::{Change, Pipeline, PipelineStatus};
use relaybook_core::rate::Rate;
use relaybook_core::reading::{Application, Now};

use crate::pipeline::write::pace::Budget;
use relaybook_core::pipeline::status::Observed;
use relaybook_core::pipeline::status::ready::Announced;
use relaybook_core::pipeline::status::similar::Similar;
use relaybook_core::pipeline::status::target::source;

/// Maximum burst of Events about one pipeline.
const EVENTS_AT_ONCE: NonZeroU32 = NonZeroU32::new(25).unwrap();
const EVENT_EVERY: Duration = Duration::from_secs(10);

/// For each target, by its name: its object, and the sequence number up to which observations of the object were processed.
pub(crate) type Processed = HashMap<String, (Application, u64)>;

/// Maximum number of writes with an unknown result that are remembered.
const MOST_LOST: usize = 8;

/// A write that was sent.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// Serial of the log before the write.
    pub before: Option<i64>,
    /// Serial of the log in the write.
    pub serial: i64,
    /// The last change in the write, by which the write is recognized.
    pub last: Option<Change>,
    /// The observations that were processed for the write.
    pub processed: Processed,
}

impl Attempt {
    /// The write that replaces the status of `base` with `status`.
    pub fn of(base: &Pipeline, status: &PipelineStatus, processed: Processed) -> Self {
        let log = status.log.as_ref();
        Self {
            before: serial(base),
            serial: log.map_or(i64::MIN, |log| log.serial),
            last: log.and_then(|log| log.changes.last().cloned()),
            processed,
        }
    }

    /// Whether the object has the log of this write. A later log with the same serial can have other changes.
    fn is_in(&self, object: &Pipeline) -> bool {
        let log = object.status.as_ref().and_then(|status| status.log.as_ref());
        log.is_some_and(|log| log.serial == self.serial && log.changes.last() == self.last.as_ref())
    }
}

/// The tracker of one pipeline. A pipeline with another uid gets a new tracker.
#[derive(Debug, Default)]
pub(crate) struct WriteTracker {
    /// Uid of the pipeline.
    pub uid: Option<String>,
    /// The leadership term of this replica to which the tracker belongs. It is 0 while another replica is the leader.
    pub term: u64,
    /// Generation of the spec whose objects were last requested from the caches, and a hash of the generated targets.
    declared: Option<(i64, u64)>,
    processed: Processed,
    /// The same of targets that were not requested the last time.
    left: Processed,
    /// The newest known object, until the watch delivers it or a newer one.
    known: Option<Arc<Pipeline>>,
    /// Highest serial ever seen in a log of the pipeline with this uid.
    pub highest: Option<i64>,
    attempt: Option<Attempt>,
    /// Writes without an answer that no read has shown. The API server may still apply them later.
    lost: Vec<Attempt>,
    /// For a lost write that was found to be applied: serial of the log before it.
    landed_before: Option<i64>,
    /// When the status was last written, and how long the next write waits after that.
    written: Option<(Instant, Duration)>,
    budget: Budget,
    /// When the next write may be made, and how many bytes of it are paid, if the namespace causes more writes than its share.
    turn: Option<(Instant, usize)>,
    events: EventLimit,
    /// What was announced about the pipeline as a whole.
    pub announced: Announced,
    /// Hints for targets whose object does not exist.
    pub similar: Similar,
}

/// Limits the Events about one pipeline: a burst, then one every ten seconds. The API server would accept and store more.
#[derive(Debug)]
struct EventLimit(Rate);

impl Default for EventLimit {
    fn default() -> Self {
        Self(Rate::new(EVENT_EVERY, EVENTS_AT_ONCE))
    }
}

impl WriteTracker {
    pub fn new(uid: Option<String>, term: u64) -> Self {
        Self { uid, term, ..Self::default() }
    }

    /// Whether one more Event about the pipeline can be written now.
    pub fn may_emit_event(&mut self, now: Instant) -> bool {
        self.events.0.take(now).is_ok()
    }

    /// Returns the tracker of the pipeline with this uid in a leadership term. In a new term, another replica may have processed observations
    /// meanwhile, and it is unknown which ones. So processing starts with the current state.
    pub fn of(self, uid: Option<&String>, term: u64) -> Self {
        match (self.uid.as_ref() == uid, self.term == term) {
            (true, true) => self,
            (true, false) => Self { highest: self.highest, ..Self::new(self.uid, term) },
            (false, _) => Self::new(uid.cloned(), term),
        }
    }

    /// Returns the newest known object: from the watch, or from the answer to a write or a read.
    pub fn newest(&mut self, watched: &Arc<Pipeline>) -> Arc<Pipeline> {
        self.known.take_if(|known| version(known) <= version(watched));
        let newest = self.known.as_ref().unwrap_or(watched).clone();
        self.see(&newest);
        self.find(&newest);
        newest
    }

    /// Whether the selections of this generation of the spec were requested from the caches.
    pub fn has_declared(&self, generation: Option<i64>) -> bool {
        generation.is_some() && self.declared.map(|(declared, _)| declared) == generation
    }

    /// Whether the objects of this generation of the spec, and these generated targets, were requested from the caches.
    pub fn has_declared_targets(&self, generation: Option<i64>, generated: u64) -> bool {
        generation.is_some_and(|generation| self.declared == Some((generation, generated)))
    }

    /// Notes that the objects of these targets were requested from the caches at this sequence number. If an object is new in the pipeline,
    /// its earlier observations are not part of the history of the pipeline. `news`: for new objects, the sequence number from which on they
    /// are.
    ///
    /// With the first request of a leadership term, all observations that are kept count: they are from this term, and what the status has
    /// is from before it. Otherwise the current state of an object would be lost if it changes before it is written.
    pub fn declare(
        &mut self,
        generation: Option<i64>,
        targets: &[TargetInfo],
        generated: u64,
        news: &HashMap<String, u64>,
        seq: u64,
        is_recorded: impl Fn(&ClusterAppRef) -> bool,
    ) {
        let (mut old, mut left) = (std::mem::take(&mut self.processed), std::mem::take(&mut self.left));
        left.retain(|_, (app, _)| is_recorded(&app.object));
        let seq = if self.declared.is_none() { 0 } else { seq };
        for target in targets {
            let app = source(target);
            let seq = news.get(&target.name).copied().unwrap_or(seq);
            let known = old.remove(&target.name).or_else(|| left.remove(&target.name));
            let seq = known.filter(|(of, _)| *of == app).map_or(seq, |(_, processed)| processed);
            self.processed.insert(target.name.clone(), (app, seq));
        }
        // While the status still has a target, it continues where it was if it comes back.
        old.retain(|_, (app, _)| is_recorded(&app.object));
        left.extend(old);
        self.left = left;
        self.declared = generation.map(|generation| (generation, generated));
    }

    /// Whether a write was sent whose result is unknown. Then a live read is required before anything else is written.
    pub fn is_uncertain(&self) -> bool {
        self.attempt.is_some()
    }

    /// Notes that a write is about to be sent.
    pub fn sending(&mut self, attempt: Attempt) {
        self.attempt = Some(attempt);
    }

    /// Notes that the write was not sent.
    pub fn unsent(&mut self) {
        self.attempt = None;
    }

    /// Notes that the write was refused. It may still have been applied: kube's client repeats it after 429, 503 and 504, and only the last
    /// answer is known.
    pub fn refused(&mut self) {
        self.lose();
    }

    /// Processes the object in the answer to the write.
    pub fn answered(&mut self, live: Pipeline) {
        if let Some(attempt) = self.attempt.take() {
            self.apply(attempt);
        }
        self.keep(live);
    }

    /// Processes an object from a live read. If it does not contain a write with an unknown result, that write may still be applied later.
    pub fn learn(&mut self, live: Pipeline) {
        self.lose();
        self.find(&live);
        self.keep(live);
    }

    /// Remembers the current write as one with an unknown result. Equal writes are remembered once.
    fn lose(&mut self) {
        let Some(attempt) = self.attempt.take() else { return };
        self.lost.retain(|lost| (lost.before, lost.serial, &lost.last) != (attempt.before, attempt.serial, &attempt.last));
        self.lost.push(attempt);
        let excess = self.lost.len().saturating_sub(MOST_LOST);
        self.lost.drain(..excess);
    }

    /// Returns the serial of the log before a write without an answer that was found to be applied since the last call. Changes above this
    /// serial are recorded, but were not announced.
    pub fn take_unannounced(&mut self) -> Option<i64> {
        self.landed_before.take()
    }

    /// Checks whether the object contains a write with an unknown result. A write without new changes need not be found, because processing
    /// its observations again changes nothing.
    fn find(&mut self, object: &Pipeline) {
        if let Some(at) = self.lost.iter().rposition(|attempt| attempt.is_in(object)) {
            let attempt = self.lost.swap_remove(at);
            self.landed_before = attempt.before;
            self.apply(attempt);
        }
    }

    fn apply(&mut self, attempt: Attempt) {
        // Each write tests the serial that it is based on. So a write that is based on an older serial than this write can no longer be
        // applied.
        self.lost.retain(|lost| lost.before >= Some(attempt.serial));
        self.settle(attempt.processed);
    }

    fn keep(&mut self, live: Pipeline) {
        self.see(&live);
        self.known = Some(Arc::new(live));
    }

    /// Notes that these observations are processed: either they are written, or they change nothing.
    pub fn settle(&mut self, processed: Processed) {
        for (name, (app, seq)) in processed {
            let known = self.processed.get_mut(&name).or_else(|| self.left.get_mut(&name));
            if let Some((of, known)) = known
                && *of == app
            {
                *known = seq.max(*known);
            }
        }
    }

    /// Returns the last processed sequence number of the observations of a target's object. It is `u64::MAX` for another object.
    pub fn after(&self, target: &str, app: &Application) -> u64 {
        self.processed.get(target).filter(|(of, _)| of == app).map_or(u64::MAX, |(_, seq)| *seq)
    }

    /// Returns how long the next write has to wait for its turn among those of its namespace.
    pub fn turn(&self, now: Instant) -> Option<Duration> {
        let left = self.turn?.0.saturating_duration_since(now);
        Some(left).filter(|left| !left.is_zero())
    }

    /// Notes when the next write may be made, and how many bytes of it are paid.
    pub fn wait_for_turn(&mut self, until: Instant, paid: usize) {
        self.turn = Some((until, paid));
    }

    /// Uses the turn, also before it has come. Returns how many bytes are paid.
    pub fn take_turn(&mut self) -> Option<usize> {
        self.turn.take().map(|(_, paid)| paid)
    }

    /// Returns how long the next write has to wait because of the earlier ones of this pipeline.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let (at, wait) = self.written?;
        Some((at + wait).saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// Notes the size of a write, which delays the next one. A write that failed counts too: the API server may have processed it.
    pub fn spent(&mut self, bytes: usize, now: Instant) {
        let rested = self.written.map_or(Duration::ZERO, |(at, _)| now.saturating_duration_since(at));
        let (left, wait) = self.budget.after(bytes, rested);
        (self.budget, self.written) = (left, Some((now, wait)));
    }

    fn see(&mut self, object: &Pipeline) {
        self.highest = self.highest.max(serial(object));
    }
}

/// Returns the serial of the log of a pipeline.
pub(crate) fn serial(pipeline: &Pipeline) -> Option<i64> {
    pipeline.status.as_ref().and_then(|status| status.log.as_ref()).map(|log| log.serial)
}

/// Returns the sequence numbers up to which these readings reach. Readings from a cache that is still being filled are not processed.
pub(crate) fn processed(observed: &[Observed]) -> Processed {
    let filled = observed.iter().filter(|(_, r)| !matches!(r.now, Now::Unknown { reason, .. } if reason.is_filling()));
    filled.map(|(t, reading)| (t.name.clone(), (source(t), reading.seq))).collect()
}

/// Returns the resource version of an object as a number. Resource versions of one kind can be compared as numbers
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>).
fn version(object: &Pipeline) -> Option<u64> {
    object.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::values::refs::AppRef;
    use relaybook_api::{ChangeLog, PipelineSpec, State};

    fn object(version: &str, serial: Option<i64>) -> Pipeline {
        let mut object = Pipeline::new("p", PipelineSpec::default());
        object.metadata.resource_version = Some(version.to_owned());
        let log = serial.map(|serial| ChangeLog { epoch: 0, first: 1, serial, held_until: None, changes: vec![] });
        object.status = Some(PipelineStatus { log, ..PipelineStatus::default() });
        object
    }

    fn target(app: &str) -> TargetInfo {
        let app = AppRef { name: app.into(), ..AppRef::default() };
        TargetInfo { name: "t".into(), app, ..TargetInfo::default() }
    }

    fn after(writes: &WriteTracker, app: &str) -> u64 {
        writes.after("t", &source(&target(app)))
    }

    fn up_to(app: &str, seq: u64) -> Processed {
        [("t".to_owned(), (source(&target(app)), seq))].into()
    }

    #[test]
    fn the_answer_to_a_write_is_preferred_to_an_older_watch_event() {
        let mut writes = WriteTracker::default();
        writes.learn(object("10", Some(5)));
        let mut newest = |version, serial| (*writes.newest(&Arc::new(object(version, serial)))).clone();
        assert_eq!(newest("9", Some(4)), object("10", Some(5)));
        assert_eq!(newest("11", Some(3)), object("11", Some(3)));
        assert_eq!(newest("10", Some(3)), object("10", Some(3)), "it was forgotten when the watch caught up");
        assert_eq!(writes.highest, Some(5));
    }

    /// Returns an object whose log ends with this change.
    fn ends(version: &str, serial: i64, revision: &str) -> Pipeline {
        let mut object = object(version, Some(serial));
        object.status.iter_mut().flat_map(|s| &mut s.log).for_each(|log| log.changes.push(change(serial, revision)));
        object
    }

    fn change(serial: i64, revision: &str) -> Change {
        let to = State { revision: revision.into(), ..State::default() };
        Change { serial, to, ..Change::default() }
    }

    /// Returns a write with one more change, for which observations up to `seq` were processed.
    fn attempt(serial: i64, revision: &str, seq: u64) -> Attempt {
        Attempt { before: Some(serial - 1), serial, last: Some(change(serial, revision)), processed: up_to("a", seq) }
    }

    #[test]
    fn observations_are_processed_after_they_are_written() {
        let mut writes = WriteTracker::default();
        writes.declare(Some(1), &[], 0, &HashMap::new(), 0, |_| false);
        writes.declare(Some(1), &[target("a")], 1, &HashMap::new(), 3, |_| false);
        assert_eq!(after(&writes, "a"), 3);
        writes.sending(attempt(6, "v1", 7));
        writes.answered(ends("1", 6, "v1"));
        assert_eq!(
            (writes.is_uncertain(), writes.take_unannounced(), after(&writes, "a")),
            (false, None, 7),
            "the caller that got the answer announces it"
        );

        writes.sending(attempt(7, "v2", 9));
        assert!(writes.is_uncertain());
        writes.learn(ends("2", 7, "v2"));
        assert_eq!((writes.is_uncertain(), after(&writes, "a")), (false, 9));
        assert_eq!((writes.take_unannounced(), writes.take_unannounced()), (Some(6), None), "announced once");

        writes.sending(attempt(8, "v3", 12));
        writes.refused();
        assert_eq!((writes.is_uncertain(), after(&writes, "a")), (false, 9));
        // Another write with the same serial was applied first.
        writes.sending(attempt(8, "v3", 12));
        assert!(writes.is_uncertain());
        writes.learn(ends("3", 8, "v9"));
        assert_eq!((writes.is_uncertain(), writes.take_unannounced(), after(&writes, "a")), (false, None, 9));
        writes.settle(up_to("a", 0));
        assert_eq!(after(&writes, "a"), 9, "an object that is gone does not reset the sequence number");
    }

    #[test]
    fn observations_of_a_write_that_is_applied_late_are_not_processed_again() {
        for read in [false, true] {
            let mut writes = WriteTracker::default();
            writes.declare(Some(1), &[], 0, &HashMap::new(), 0, |_| false);
            writes.declare(Some(1), &[target("a")], 1, &HashMap::new(), 3, |_| false);
            writes.sending(attempt(7, "v2", 9));
            writes.learn(ends("1", 6, "v1"));
            assert_eq!((writes.is_uncertain(), writes.take_unannounced(), after(&writes, "a")), (false, None, 3));
            // Another write is based on the object of the read, and is refused or lost.
            writes.sending(attempt(7, "v2", 10));
            writes.learn(ends("1", 6, "v1"));
            if read {
                writes.learn(ends("2", 7, "v2"));
            } else {
                writes.newest(&Arc::new(ends("2", 7, "v2")));
            }
            assert_eq!((writes.take_unannounced(), after(&writes, "a")), (Some(6), 10), "read: {read}");
            assert!(writes.lost.is_empty(), "the other can no longer be applied");
            writes.sending(attempt(8, "v3", 12));
            writes.learn(ends("2", 7, "v2"));
            writes.newest(&Arc::new(ends("3", 8, "v8")));
            assert_eq!((writes.take_unannounced(), after(&writes, "a")), (None, 10), "it is a different write");
        }
        // After a 503 the client sends the write again. The second request is refused because the first one was applied.
        let mut writes = WriteTracker::default();
        writes.declare(Some(1), &[], 0, &HashMap::new(), 0, |_| false);
        writes.declare(Some(1), &[target("a")], 1, &HashMap::new(), 3, |_| false);
        writes.sending(attempt(7, "v2", 9));
        writes.refused();
        writes.newest(&Arc::new(ends("2", 7, "v2")));
        assert_eq!((writes.take_unannounced(), after(&writes, "a")), (Some(6), 9));
        let mut writes = WriteTracker::default();
        for _ in 0..20 {
            writes.sending(attempt(7, "v2", 9));
            writes.learn(object("1", Some(6)));
        }
        assert_eq!(writes.lost.len(), 1, "equal writes are remembered once");
        let mut writes = WriteTracker::default();
        for serial in 1..=20 {
            writes.sending(attempt(serial, "v", 1));
            writes.learn(object("1", None));
        }
        assert_eq!(writes.lost.len(), MOST_LOST);
    }

    #[test]
    fn observations_from_before_the_request_are_not_processed() {
        let mut writes = WriteTracker::default();
        writes.declare(Some(1), &[], 0, &HashMap::new(), 0, |_| false);
        writes.declare(Some(1), &[target("a")], 1, &HashMap::new(), 3, |_| false);
        writes.settle(up_to("a", 5));
        writes.declare(Some(2), &[target("a")], 0, &HashMap::new(), 8, |_| false);
        assert_eq!(after(&writes, "a"), 5, "it was requested the whole time");
        writes.declare(Some(3), &[target("b")], 0, &HashMap::new(), 9, |_| false);
        writes.settle(up_to("a", 20));
        assert_eq!(after(&writes, "b"), 9);
        writes.declare(Some(4), &[], 0, &HashMap::new(), 30, |_| false);
        writes.declare(Some(5), &[target("b")], 0, &HashMap::new(), 40, |_| false);
        assert_eq!(after(&writes, "b"), 40);
        assert!(writes.has_declared(Some(5)) && !writes.has_declared(Some(4)) && !writes.has_declared(None));
    }

    #[test]
    fn large_writes_delay_the_next_until_the_budget_is_used_up_and_then_longer() {
        let (mut writes, mut now) = (WriteTracker::default(), Instant::now());
        assert_eq!(writes.wait(now), None);
        let mut waits = Vec::new();
        for _ in 0..7 {
            writes.spent(528 * 1024, now);
            let wait = writes.wait(now).unwrap();
            waits.push(wait.as_secs());
            now += wait;
            assert_eq!(writes.wait(now), None);
        }
        assert_eq!(waits, [1, 1, 1, 1, 5, 8, 8], "first 512 KiB a second, then 64 KiB a second");
        now += Duration::from_mins(1);
        writes.spent(528 * 1024, now);
        assert_eq!(writes.wait(now), Some(Duration::from_secs(1)), "the budget has grown in a minute without writes");
    }

    #[test]
    fn a_scheduled_write_is_taken_once() {
        let (mut writes, now) = (WriteTracker::default(), Instant::now());
        assert_eq!((writes.turn(now), writes.take_turn()), (None, None));
        let wait = Duration::from_secs(3);
        writes.wait_for_turn(now + wait, 20);
        assert_eq!((writes.wait(now), writes.turn(now), writes.turn(now + wait)), (None, Some(wait), None));
        assert_eq!((writes.take_turn(), writes.take_turn()), (Some(20), None));
    }

    #[test]
    fn a_tracker_belongs_to_one_pipeline_and_to_one_term() {
        let uid = |text: &str| Some(text.to_owned());
        for (of, term, (is_requested, highest)) in [
            ("a", 3, (true, Some(7))),
            ("a", 4, (false, Some(7))),
            ("a", 0, (false, Some(7))),
            ("b", 3, (false, None)),
            ("b", 4, (false, None)),
        ] {
            let mut writes = WriteTracker::new(uid("a"), 3);
            writes.declare(Some(1), &[], 0, &HashMap::new(), 0, |_| false);
            writes.highest = Some(7);
            let writes = writes.of(uid(of).as_ref(), term);
            assert_eq!((writes.uid.as_deref(), writes.term), (Some(of), term));
            assert_eq!((writes.has_declared(Some(1)), writes.highest), (is_requested, highest), "{of} {term}");
        }
    }

    #[test]
    fn a_write_that_was_not_sent_is_not_looked_for() {
        let mut writes = WriteTracker::default();
        writes.declare(Some(1), &[target("a")], 1, &HashMap::new(), 3, |_| false);
        writes.sending(attempt(7, "v2", 9));
        writes.unsent();
        assert!(!writes.is_uncertain());
        writes.learn(ends("1", 7, "v2"));
        assert_eq!((writes.take_unannounced(), after(&writes, "a")), (None, 0));
    }
}
