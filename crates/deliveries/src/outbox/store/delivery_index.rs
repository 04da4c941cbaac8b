//! The delivery index: a short entry for every delivery, including settled ones. It provides counts, and whether a delivery was recorded.
//!
//! In: records and attempts from the engine. Out: the figures of `Notification.status` and the times of `Pipeline.status.dispatched`;
//! whether a name exists, so that a recorded transition costs no call; and deliveries past their retention limit.

mod book;

use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::figures::{Figures, Topic, Trouble};
use super::retention_index::{Overdue, Rules};
use crate::outbox::lane::Place;
use crate::outbox::lane::thread::{Before, is_open};
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::work_queue::WorkQueue;
use book::{Book, Entry};
use relaybook_api::delivery::PipelineRef;
use relaybook_api::{ObjectName, Outcome, Time, version};
use relaybook_telemetry::metrics::Share;

/// The delivery index; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct DeliveryIndex {
    book: Arc<Mutex<Book>>,
    /// Notifications whose figures have changed, by the namespace of their pipelines.
    pub changed: WorkQueue<ObjectName>,
    /// Pipelines for which something was sent, or that wait for a lane whose deliveries are now settled.
    pub sent: WorkQueue<PipelineRef>,
}

impl DeliveryIndex {
    fn owner(record: &Record) -> ObjectName {
        ObjectName::new(&record.spec.pipeline_ref.namespace, &record.spec.notification)
    }

    /// Wakes the pipeline of a lane if it waits until the lane has no pending deliveries.
    fn wake_waiting(&self, book: &Book, lane: &LaneKey) {
        book.pending.woken(lane).into_iter().for_each(|pipeline| self.sent.wake(pipeline));
    }

    /// Updates the index from the current state of a record.
    pub fn note(&self, record: &Record) {
        let owner = Self::owner(record);
        {
            let mut book = self.book.lock();
            let (status, has_changed) = (&record.status, book.put(record));
            let figures = book.figures.entry(owner.clone()).or_default();
            // Only the records contain the results of attempts before a restart, and of those of other replicas.
            let is_later = status.last_attempt_time > figures.last_attempt;
            if is_later {
                figures.last_attempt = status.last_attempt_time;
                figures.last_error.clone_from(&status.error);
            }
            if !has_changed {
                drop(book);
                if is_later {
                    self.changed.wake(owner);
                }
                return;
            }
            if status.outcome == Some(Outcome::Delivered) {
                figures.last_sent = figures.last_sent.max(status.last_attempt_time);
            }
            figures.given_up.note(record);
            if status.outcome == Some(Outcome::Delivered) {
                status.last_attempt_time.into_iter().for_each(|at| book.sent_at(record, at));
            }
            self.wake_waiting(&book, &record.home());
        }
        self.changed.wake(owner);
    }

    /// Removes a record that was deleted. Returns `true` if it was known.
    pub fn forget(&self, id: &ObjectName) -> bool {
        let owner = {
            let mut book = self.book.lock();
            book.terminating.remove(id);
            let created = book.pending.accepted(id);
            let entry = book.take(id);
            let lane = entry.as_ref().map(|entry| entry.lane.clone()).or(created);
            if let Some(lane) = lane {
                self.wake_waiting(&book, &lane);
            }
            let Some(entry) = entry else { return false };
            entry.lane.owner()
        };
        self.changed.wake(owner);
        true
    }

    /// Notes that a finalizer keeps a deleted Delivery.
    pub fn terminating(&self, id: ObjectName) {
        self.book.lock().terminating.insert(id);
    }

    /// Removes the deleted Deliveries that finalizers keep, because a list reports them again.
    pub fn forget_terminating(&self, is_listed: impl Fn(&ObjectName) -> bool) {
        self.book.lock().terminating.retain(|id| !is_listed(id));
    }

    /// Notes that a Delivery that this process has recorded was deleted before the engine knew it.
    pub fn deleted_before(&self, id: &ObjectName) {
        let mut book = self.book.lock();
        let lane = book.pending.accepted(id);
        if let Some(lane) = lane {
            self.wake_waiting(&book, &lane);
        }
    }

    /// Stores the Deliveries that this process has recorded. Callers do this before any other component can know of them.
    pub fn recorded(&self, records: &[Record]) {
        let mut book = self.book.lock();
        for record in records {
            book.own.insert(record.uid.clone());
            if record.status.outcome.is_none() && !book.entries.contains_key(&record.id) {
                book.pending.created(&record.id, record.home());
            }
            book.raise(&record.spec.pipeline_ref.uid, record.recorded);
        }
    }

    /// Records whether the engine has proven that Relaybook recorded this Delivery. If so, [`newest`](Self::newest) includes it from now on,
    /// because the process that recorded it may have ended before it persisted that time.
    pub fn prove(&self, record: &Record, is_proven: bool) {
        let mut book = self.book.lock();
        if let Some(entry) = book.entries.get_mut(&record.id) {
            entry.is_proven = is_proven;
            entry.is_doubtful &= !is_proven;
        }
        if is_proven {
            book.raise(&record.spec.pipeline_ref.uid, record.recorded);
        }
    }

    /// Returns whether a Delivery of this pipeline is recorded under this name, so that it need not be recorded again. A pending Delivery
    /// that is not proven does not count, because another client may have created it. If the result is `true`, [`newest`](Self::newest)
    /// includes the Delivery.
    #[must_use]
    pub fn is_recorded(&self, pipeline_uid: &str, id: &ObjectName) -> bool {
        let mut book = self.book.lock();
        let known = book.entries.get(id).filter(|entry| entry.is_proven || (entry.outcome.is_some() && !entry.is_doubtful));
        let Some(recorded) = known.map(|entry| entry.recorded) else { return false };
        book.raise(pipeline_uid, recorded);
        true
    }

    /// Marks the settled Deliveries that another client may have created, at the start of a leadership term: those that are newer than what
    /// their pipeline's status contains. `recorded_until`: that time of a pipeline, by uid. The dispatcher compares their content.
    pub fn doubt(&self, recorded_until: impl Fn(&str) -> Option<Time>) {
        let mut book = self.book.lock();
        let settled = book.entries.values_mut().filter(|entry| entry.outcome.is_some() && !entry.is_proven);
        for entry in settled {
            entry.is_doubtful = recorded_until(&entry.lane.pipeline).is_some_and(|until| entry.recorded > until);
        }
    }

    /// Returns whether another client may have created this settled Delivery.
    #[must_use]
    pub fn is_doubtful(&self, id: &ObjectName) -> bool {
        self.book.lock().entries.get(id).is_some_and(|entry| entry.is_doubtful)
    }

    /// Returns whether a Delivery is known.
    #[must_use]
    pub fn contains(&self, id: &ObjectName) -> bool {
        self.book.lock().entries.contains_key(id)
    }

    /// Removes the Delivery from those that the engine has not accepted yet. Returns `true` if it was one of them. The engine calls this
    /// when it accepts the Delivery.
    #[must_use]
    pub fn take_own(&self, uid: &str) -> bool {
        self.book.lock().own.remove(uid)
    }

    /// Returns whether this process has recorded the Delivery and the engine has not accepted it yet.
    #[must_use]
    pub fn is_own(&self, uid: &str) -> bool {
        self.book.lock().own.contains(uid)
    }

    /// Returns when the newest Delivery of a pipeline was recorded. Only Deliveries count that this process has recorded or has found
    /// recorded.
    #[must_use]
    pub fn newest(&self, pipeline_uid: &str) -> Option<Time> {
        self.book.lock().newest.get(pipeline_uid).copied()
    }

    /// Returns whether the index knows a settled state of this object that is not older than this copy. Then the copy is from before the
    /// outcome.
    #[must_use]
    pub fn has_settled(&self, record: &Record) -> bool {
        let book = self.book.lock();
        let newer = |entry: &&Entry| entry.outcome.is_some() && entry.version >= version(Some(&record.version));
        book.entries.get(&record.id).is_some_and(|entry| newer(&entry))
    }

    /// Returns whether the index knows an older, settled state of this object, whose origin is not doubtful. Then another replica has reopened
    /// it. An object that was created later under this name has another time of creation.
    #[must_use]
    pub fn has_been_settled(&self, record: &Record) -> bool {
        let book = self.book.lock();
        let is_it = |entry: &Entry| entry.outcome.is_some() && !entry.is_doubtful && entry.recorded == record.recorded;
        book.entries.get(&record.id).is_some_and(is_it)
    }

    /// Returns the subjects of a pipeline that have pending deliveries of these notifications. If there are any, the pipeline is in
    /// [`sent`](Self::sent) as soon as one of them has none.
    #[must_use]
    pub fn pending<'a>(
        &self,
        of: &PipelineRef,
        subjects: impl IntoIterator<Item = &'a str>,
        notifications: &[&str],
    ) -> Vec<String> {
        self.book.lock().pending.pending(of, subjects, notifications)
    }

    /// Returns how many earlier deliveries this one replaces, according to the settled ones; see `RetentionIndex::replaced`.
    #[must_use]
    pub fn replaced(&self, record: &Record, after: Option<Place>) -> i64 {
        self.book.lock().kept.replaced(record, after)
    }

    /// Returns what was delivered before about the same. This delivery continues its message, if its key and its receiver are those of the message.
    /// A redelivery is a message of its own: it is outside of the order, so its text could replace a newer one.
    #[must_use]
    pub fn before(&self, record: &Record, now: Time) -> Before {
        let book = self.book.lock();
        // Another client may have written the values of a doubtful one.
        let is_known = |id: &ObjectName| book.entries.get(id).is_some_and(|entry| !entry.is_doubtful);
        // Nor can a delivery that a user has deleted, and that is recorded again, change a newer text.
        if record.again || !book.kept.is_newest(record, is_known) {
            return Before::default();
        }
        let message = book.kept.message(record).filter(|(id, _)| is_known(id)).map(|(_, thread)| Arc::clone(thread));
        let is_open = message.as_ref().is_some_and(|thread| is_open(thread, now));
        Before { message, is_open, serial: book.kept.delivered_before(record) }
    }

    /// Whether another client may have created the delivery whose message this one continues. The dispatcher compares its content before it reaches
    /// this one.
    #[must_use]
    pub fn doubts_message(&self, record: &Record) -> bool {
        let book = self.book.lock();
        let holder = book.kept.message(record).filter(|_| !record.again);
        holder.is_some_and(|(id, _)| book.entries.get(id).is_some_and(|entry| entry.is_doubtful))
    }

    /// Returns whether no later delivery about the same was delivered, or is redelivered.
    #[must_use]
    pub fn is_newest(&self, record: &Record) -> bool {
        let book = self.book.lock();
        book.kept.is_newest(record, |id| book.entries.get(id).is_some_and(|entry| !entry.is_doubtful))
    }

    /// Returns how many settled deliveries are kept.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.book.lock().kept.count()
    }

    /// Returns the first `most` settled deliveries that have been kept long enough; see `RetentionIndex::overdue`. Deleted ones that a
    /// finalizer keeps are counted, too.
    pub fn overdue<'a>(
        &self,
        rules: impl Fn(&LaneKey) -> Rules<'a>,
        version: u64,
        cap: usize,
        most: usize,
        now: Time,
    ) -> Overdue {
        let mut book = self.book.lock();
        let mut overdue = book.kept.overdue(rules, version, cap, most, now);
        overdue.count += book.terminating.len();
        overdue
    }

    /// Returns the ids of all deliveries.
    #[must_use]
    pub fn ids(&self) -> Vec<ObjectName> {
        self.book.lock().entries.keys().cloned().collect()
    }

    /// Records an attempt that started at `at`. `error` is absent after a 2xx response. An attempt can end after a newer attempt. Then the
    /// error of the newer attempt stays.
    pub fn attempted(&self, record: &Record, at: Time, error: Option<&str>) {
        let owner = Self::owner(record);
        {
            let mut book = self.book.lock();
            let figures = book.figures.entry(owner.clone()).or_default();
            if figures.last_attempt <= Some(at) {
                figures.last_attempt = Some(at);
                figures.last_error = error.map(str::to_owned);
            }
            if error.is_none() {
                figures.last_sent = figures.last_sent.max(Some(at));
                book.sent_at(record, at);
            }
        }
        self.changed.wake(owner);
        if error.is_none() {
            self.sent.wake(record.spec.pipeline_ref.clone());
        }
    }

    /// Stores why a lane makes no progress. `None`: the lane makes progress.
    pub fn trouble(&self, lane: &LaneKey, trouble: Option<Trouble>) {
        let owner = lane.owner();
        {
            let mut book = self.book.lock();
            let figures = match &trouble {
                Some(_) => Some(book.figures.entry(owner.clone()).or_default()),
                None => book.figures.get_mut(&owner),
            };
            let Some(figures) = figures else { return };
            let tried = figures.untried.remove(lane);
            let same = figures.troubles.get(lane) == trouble.as_ref();
            match trouble {
                Some(trouble) => figures.troubles.insert(lane.clone(), trouble),
                None => figures.troubles.remove(lane),
            };
            if same && !tried {
                return;
            }
        }
        self.changed.wake(owner);
    }

    /// Stores why the head of a lane waits, according to its object, at the start of a leadership term. `None`: the object contains no
    /// cause. Then the cause is unknown until the next result.
    pub fn resumed(&self, lane: &LaneKey, trouble: Option<Trouble>) {
        let known = trouble.is_some();
        self.trouble(lane, trouble);
        if !known {
            self.book.lock().figures.entry(lane.owner()).or_default().untried.insert(lane.clone());
        }
    }

    /// Removes the figures of notifications that were idle at this call and at the previous one, and the data of pipelines that are gone.
    pub fn tidy(&self, is_there: impl Fn(&str) -> bool) {
        let mut book = self.book.lock();
        let Book { figures, idle, sent, newest, pending, .. } = &mut *book;
        newest.retain(|uid, _| is_there(uid));
        pending.tidy(&is_there);
        sent.retain(|uid, _| is_there(uid));
        sent.shrink_to(2 * sent.len());
        figures.retain(|owner, figures| !(figures.is_idle() && idle.contains(owner)));
        figures.shrink_to(2 * figures.len());
        *idle = figures.iter().filter(|(_, figures)| figures.is_idle()).map(|(owner, _)| owner.clone()).collect();
    }

    /// Returns how many notifications have figures here, and how many pipelines have times of sent deliveries here.
    #[must_use]
    pub fn entries(&self) -> [usize; 2] {
        let book = self.book.lock();
        [book.figures.len(), book.sent.len()]
    }

    /// Returns the figures of one notification.
    #[must_use]
    pub fn figures(&self, owner: &ObjectName) -> Figures {
        self.book.lock().figures.get(owner).cloned().unwrap_or_default()
    }

    /// Returns the notifications that have pending or parked deliveries, those with the most first.
    #[must_use]
    pub fn shares(&self) -> Vec<Share> {
        let book = self.book.lock();
        let stands = |figures: &Figures| figures.pending + figures.parked;
        let mut some: Vec<_> = book.figures.iter().filter(|(_, figures)| stands(figures) > 0).collect();
        some.sort_unstable_by_key(|(owner, figures)| (Reverse(stands(figures)), *owner));
        let share = |(owner, figures): (&ObjectName, &Figures)| Share {
            namespace: owner.namespace.clone(),
            notification: owner.name.clone(),
            pending: figures.pending,
            parked: figures.parked,
        };
        some.into_iter().take(Share::MOST).map(share).collect()
    }

    /// Removes and returns the times of a pipeline's last successful deliveries. After a restart, these are the times of all kept
    /// deliveries. So a time that the previous process could not persist is not lost.
    #[must_use]
    pub fn take_sent(&self, pipeline_uid: &str) -> BTreeMap<Topic, Time> {
        self.book.lock().sent.remove(pipeline_uid).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::testing::record;

    #[test]
    fn attempts_of_another_replica_are_shown() {
        let delivery_index = DeliveryIndex::default();
        let owner = ObjectName::new("team-a", "deploys");
        let mut tried = record(9);
        delivery_index.note(&tried);
        for second in [5, 9] {
            let at = Time::from_second(second).unwrap();
            (tried.status.last_attempt_time, tried.status.error) = (Some(at), Some(format!("503 at {second}")));
            delivery_index.note(&tried);
            let figures = delivery_index.figures(&owner);
            assert_eq!((figures.last_attempt, figures.last_error), (Some(at), tried.status.error.clone()));
        }
        assert_eq!(delivery_index.figures(&owner).pending, 1);
    }

    #[test]
    fn deleted_deliveries_that_a_finalizer_keeps_are_overdue() {
        let delivery_index = DeliveryIndex::default();
        let overdue = || {
            let rules = |_: &LaneKey| -> Rules<'static> { unreachable!("no delivery is settled") };
            delivery_index.overdue(rules, 0, 100, 100, Time::UNIX_EPOCH).count
        };
        let ids = [1, 2, 3].map(|serial| record(serial).id);
        for id in &ids {
            delivery_index.terminating(id.clone());
        }
        delivery_index.terminating(ids[0].clone());
        assert_eq!(overdue(), 3);
        delivery_index.forget(&ids[0]);
        assert_eq!(overdue(), 2, "its finalizer was removed");
        delivery_index.forget_terminating(|id| *id == ids[1]);
        assert_eq!(overdue(), 1, "it is listed again");
    }

    #[test]
    fn counters_and_recorded_state_follow_the_deliveries() {
        let delivery_index = DeliveryIndex::default();
        let owner = ObjectName::new("team-a", "deploys");
        let mut r = record(9);
        delivery_index.note(&r);
        delivery_index.note(&r);
        assert!(!delivery_index.is_recorded("p1", &r.id), "nobody has proven it");
        delivery_index.prove(&r, true);
        assert!(delivery_index.is_recorded("p1", &r.id));
        assert_eq!(delivery_index.newest("p1"), Some(r.recorded), "it was recorded then");
        assert_eq!(delivery_index.figures(&owner).pending, 1);
        let shares: Vec<_> =
            delivery_index.shares().into_iter().map(|s| (s.namespace, s.notification, s.pending, s.parked)).collect();
        assert_eq!(shares, [(owner.namespace.clone(), owner.name.clone(), 1, 0)]);
        delivery_index.attempted(&r, relaybook_api::Time::UNIX_EPOCH, None);
        r.status.outcome = Some(Outcome::Delivered);
        delivery_index.note(&r);
        let figures = delivery_index.figures(&owner);
        assert_eq!((figures.pending, figures.delivered, figures.parked), (0, 1, 0));
        assert_eq!(delivery_index.shares(), [], "it has nothing that waits");
        let restarted = DeliveryIndex::default();
        r.status.last_attempt_time = Some(relaybook_api::Time::UNIX_EPOCH);
        restarted.note(&r);
        assert!(delivery_index.has_settled(&record(9)) && !delivery_index.has_settled(&record(8)));
        assert_eq!(delivery_index.kept(), 1);
        assert_eq!(delivery_index.take_sent("p1").len(), 1);
        assert!(delivery_index.take_sent("p1").is_empty());
        let topics: Vec<_> = restarted.take_sent("p1").into_keys().map(|topic| topic.notification).collect();
        assert_eq!(topics, ["deploys"], "what is kept says when it was sent");
        assert!(delivery_index.forget(&r.id) && !delivery_index.forget(&r.id));
        assert_eq!(delivery_index.figures(&owner).delivered, 0);
    }

    #[test]
    fn only_the_newest_attempt_sets_the_last_error() {
        let delivery_index = DeliveryIndex::default();
        let owner = ObjectName::new("team-a", "deploys");
        let at = |second| Time::from_second(second).unwrap();
        for (second, error, expected) in [
            (5, Some("503"), (at(5), Some("503"))),
            (3, None, (at(5), Some("503"))),
            (4, Some("timeout"), (at(5), Some("503"))),
            (5, Some("500"), (at(5), Some("500"))),
            (6, None, (at(6), None)),
        ] {
            delivery_index.attempted(&record(9), at(second), error);
            let figures = delivery_index.figures(&owner);
            assert_eq!((figures.last_attempt.unwrap(), figures.last_error.as_deref()), expected, "{second}");
        }
        assert_eq!(delivery_index.figures(&owner).last_sent, Some(at(6)));
    }

    /// Returns a record for one of many pipelines and notifications.
    fn one_of_many(n: i64) -> Record {
        let mut r = record(1);
        let spec = Arc::make_mut(&mut r.spec);
        (spec.notification, spec.pipeline_ref.uid) = (format!("n{n}"), format!("p{n}"));
        r.id.name = format!("r{n}");
        r
    }

    #[test]
    fn deleted_deliveries_leave_no_entries_behind() {
        let delivery_index = DeliveryIndex::default();
        for n in 0..10_000 {
            let mut r = one_of_many(n);
            delivery_index.trouble(&r.lane(), None);
            delivery_index.note(&r);
            delivery_index.trouble(&r.lane(), Some(Trouble { reason: "ReceiverError".into(), message: "503".into() }));
            delivery_index.attempted(&r, Time::UNIX_EPOCH, None);
            delivery_index.trouble(&r.lane(), None);
            r.status.outcome = Some(if n % 2 == 0 { Outcome::Delivered } else { Outcome::Parked });
            delivery_index.note(&r);
            assert!(delivery_index.forget(&r.id));
            delivery_index.attempted(&r, Time::UNIX_EPOCH, None);
            delivery_index.trouble(&r.lane(), None);
        }
        let mut stays = one_of_many(10_000);
        stays.status.outcome = Some(Outcome::Delivered);
        delivery_index.note(&stays);
        delivery_index.attempted(&stays, Time::UNIX_EPOCH, None);
        delivery_index.tidy(|_| true);
        assert_eq!(delivery_index.entries(), [10_001, 10_001], "its times may not be in a status yet");
        delivery_index.tidy(|uid| uid == "p10000");
        assert_eq!(delivery_index.entries(), [1, 1]);
        assert_eq!(delivery_index.figures(&ObjectName::new("team-a", "n10000")).delivered, 1);
        delivery_index.trouble(&one_of_many(1).lane(), None);
        assert_eq!(delivery_index.entries(), [1, 1], "that nothing is wrong is nothing to keep");
    }

    #[test]
    fn a_resumed_lane_has_the_stored_problem_or_counts_as_untried() {
        let delivery_index = DeliveryIndex::default();
        let owner = ObjectName::new("team-a", "deploys");
        let lane = record(1).lane();
        let trouble = Trouble { reason: "CredentialsRejected".into(), message: "401".into() };
        delivery_index.resumed(&lane, Some(trouble.clone()));
        assert_eq!(delivery_index.figures(&owner).troubles[&lane], trouble);
        delivery_index.resumed(&lane, None);
        let figures = delivery_index.figures(&owner);
        assert_eq!((figures.troubles.len(), figures.untried.len()), (0, 1));
        delivery_index.trouble(&lane, Some(trouble.clone()));
        let figures = delivery_index.figures(&owner);
        assert_eq!((figures.troubles.len(), figures.untried.len()), (1, 0));
        delivery_index.resumed(&lane, None);
        delivery_index.trouble(&lane, None);
        assert_eq!(delivery_index.figures(&owner), Figures::default());
    }
}
