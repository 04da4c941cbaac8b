//! The API server as a model: the change log and the persisted cursor of one pipeline, and its Deliveries with versions. Pure.
//!
//! In: calls, each with its [`Fate`]. Out: their answers, and what a watch reports.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::outside::Existing;
use crate::outbox::engine::effect::Now;
use crate::outbox::record::{PIPELINE_LANE, Record};
use crate::outbox::send_gate::genuine::{History, Logged};
use crate::outbox::send_gate::index::{PersistedCursor, PipelineIndex};
use crate::outbox::store::journal::{Event, JournalError, New, Written, met};
use relaybook_api::testing::spec;
use relaybook_api::{Age, DeliverySpec, DeliveryStatus, ObjectName, Outcome, State, Time, version};

/// The uid of the pipeline.
pub(super) const PIPELINE: &str = "p1";
/// The namespace of all objects.
pub(super) const NAMESPACE: &str = "team-a";
/// Number of targets, each with its lane.
pub(super) const LANES: usize = 3;

/// How a call ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Answered,
    /// It is applied, but its answer is lost.
    Lost,
    /// It is not applied, and not answered.
    Failed,
    /// It is not answered, and can be applied later.
    Late,
}

/// A call that changes an object.
#[derive(Clone)]
pub(super) enum Call {
    Create(New, Option<DeliveryStatus>),
    Write(Box<Record>, DeliveryStatus),
    Delete(ObjectName, u64),
}

/// What a watch reports.
#[derive(Clone)]
pub(super) enum Report {
    There(Box<Record>),
    Gone(ObjectName, String),
}

impl Report {
    pub(super) fn event(self) -> Event {
        match self {
            Self::There(record) => Event::Seen(record),
            Self::Gone(id, uid) => Event::Deleted(id, uid),
        }
    }
}

/// What survives a crash.
#[derive(Default)]
pub(super) struct Server {
    /// The lane of each change. The first change has serial 1.
    pub(super) log: Vec<usize>,
    /// The lanes of the next changes. Another client has guessed them.
    pub(super) planned: VecDeque<usize>,
    /// The persisted cursor. The log is pruned up to it.
    pub(super) cursor: i64,
    /// The number in the uid of the notification to which the cursor belongs.
    pub(super) notification: usize,
    /// No delivery is derived from the changes up to here, because their notification is gone, except those that are recorded.
    pub(super) skipped: i64,
    pub(super) existing: Existing,
    /// When the newest Delivery was recorded, as persisted.
    pub(super) recorded: Option<Time>,
    /// The Deliveries, by serial.
    pub(super) objects: BTreeMap<i64, Record>,
    /// The serials of Deliveries that a user has deleted, with how often.
    pub(super) deleted: BTreeMap<i64, usize>,
    /// The serials of Deliveries that another client has created.
    pub(super) forged: BTreeSet<i64>,
    /// All that a watch reports.
    pub(super) reports: Vec<Report>,
    /// Calls for which no process waits, and that can still be applied.
    pub(super) flying: VecDeque<Call>,
    /// Whether a quota has ever refused creates. It can stop the dispatcher for a long time.
    pub(super) was_full: bool,
    /// Whether a quota refuses creates.
    pub(super) is_full: bool,
    /// Whether an admission policy refuses status writes.
    pub(super) is_strict: bool,
    pub(super) version: u64,
}

/// A Delivery that another client creates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forged {
    /// Whether its content is what Relaybook derives from the change.
    pub(super) is_right: bool,
    pub(super) is_settled: bool,
}

/// What the content of a delivery depends on besides the change.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// The number in the uid of the notification.
    pub(super) notification: usize,
    /// Whether one lane contains the deliveries of all targets.
    pub(super) is_whole: bool,
}

/// Returns the uid of the notification with this number.
pub(super) fn uid(number: usize) -> String {
    format!("n{number}")
}

/// Returns the delivery that is derived from a change.
pub(super) fn derived(serial: i64, lane: usize, form: Form) -> Arc<DeliverySpec> {
    let mut spec = spec(serial);
    spec.subject.name = format!("prod/in-cluster/{lane}");
    spec.lane = if form.is_whole { PIPELINE_LANE.to_owned() } else { subject(lane) };
    spec.notification_uid = uid(form.notification);
    Arc::new(spec)
}

/// Returns the target of a delivery.
pub(super) fn lane_of(spec: &DeliverySpec) -> usize {
    (0..LANES).find(|lane| spec.log_subject().to_string() == subject(*lane)).unwrap()
}

/// Returns the subject of a lane, which is also the name of the lane.
pub(super) fn subject(lane: usize) -> String {
    format!("target/prod/in-cluster/{lane}")
}

impl Server {
    pub(super) fn logged(&self) -> i64 {
        i64::try_from(self.log.len()).unwrap()
    }

    /// Returns the changes above a serial, each with its lane.
    pub(super) fn above(&self, serial: i64) -> impl Iterator<Item = (i64, usize)> {
        (1..).zip(self.log.iter().copied()).filter(move |(change, _)| *change > serial)
    }

    pub(super) fn find(&self, id: &ObjectName) -> Option<&Record> {
        self.objects.values().find(|object| object.id == *id)
    }

    /// Notes a change of a target. The target is then observed.
    pub(super) fn change(&mut self, lane: usize) {
        let lane = self.planned.front().copied().unwrap_or(lane);
        let logged = self.logged();
        let Some(since) = self.existing.targets.get_mut(&lane).filter(|_| self.existing.has_pipeline) else { return };
        since.get_or_insert(logged);
        self.planned.pop_front();
        self.log.push(lane);
    }

    /// Returns whether a change belongs to a target that is gone.
    pub(super) fn is_of_gone_target(&self, serial: i64, lane: usize) -> bool {
        self.existing.targets.get(&lane).copied().flatten().is_none_or(|since| serial <= since)
    }

    /// Returns whether the pipeline, the target or the notification of a change is gone for ever. Others can have the same names.
    pub(super) fn is_dead(&self, serial: i64) -> bool {
        let lane = usize::try_from(serial - 1).ok().and_then(|at| self.log.get(at));
        let of_gone_target = lane.is_none_or(|lane| self.is_of_gone_target(serial, *lane));
        let is_other = |object: &Record| self.is_of_other_notification(object);
        let of_gone_notification = self.existing.notification.is_none()
            || serial <= self.skipped
            || self.objects.get(&serial).is_some_and(is_other);
        !self.existing.has_pipeline || of_gone_target || of_gone_notification
    }

    /// Returns whether the notification of a Delivery no longer exists. Another one can have its name.
    pub(super) fn is_of_other_notification(&self, object: &Record) -> bool {
        self.existing.notification.map(uid).as_ref() != Some(&object.spec.notification_uid)
    }

    /// Returns whether no delivery of this change has to be sent before a later one.
    pub(super) fn is_settled(&self, serial: i64) -> bool {
        let is_settled = |record: &Record| record.status.outcome.is_some() || record.status.redelivered.is_some();
        self.deleted.contains_key(&serial) || self.is_dead(serial) || self.objects.get(&serial).is_some_and(is_settled)
    }

    /// Gives a pipeline index what the status of the pipeline contains.
    pub(super) fn inform(&self, index: &PipelineIndex) {
        if index.pipeline(PIPELINE).is_none() {
            return;
        }
        let form = Form { notification: self.notification, is_whole: false };
        let logged = |(serial, lane): (i64, usize)| {
            let spec = derived(serial, lane, form);
            let (subject, from, to) = (spec.subject.clone(), spec.from.clone(), spec.to.clone());
            let logged = Logged { subject, types: vec![spec.type_], time: spec.time, from, to, coalesced: false };
            (serial, logged)
        };
        let changes = self.above(self.cursor).map(logged).collect();
        let (recorded, serial) = (self.recorded, self.logged());
        index.put_history(PIPELINE, Some(History { is_dispatched: true, recorded, first: 0, serial, changes }));
        let cursor = PersistedCursor { serial: self.cursor, pending_timers: BTreeSet::new() };
        index.put_cursors(PIPELINE, Some(HashMap::from([("deploys".to_owned(), cursor)])));
    }

    pub(super) fn create(
        &mut self,
        new: &New,
        status: Option<&DeliveryStatus>,
        fate: Fate,
        now: Now,
    ) -> Result<Record, JournalError> {
        if self.is_full {
            return Err(JournalError::Taken("a quota".to_owned()));
        }
        self.call(fate, || Call::Create(new.clone(), status.cloned()), |server| server.add(new, status, now))
    }

    pub(super) fn write(
        &mut self,
        record: &Record,
        status: &DeliveryStatus,
        fate: Fate,
        now: Now,
    ) -> Result<Written, JournalError> {
        if self.is_strict {
            return Err(JournalError::Taken("a policy".to_owned()));
        }
        let late = || Call::Write(Box::new(record.clone()), status.clone());
        self.call(fate, late, |server| server.write_now(record, status.clone(), now))
    }

    pub(super) fn delete(&mut self, id: &ObjectName, version: u64, fate: Fate) -> Result<(), JournalError> {
        self.call(fate, || Call::Delete(id.clone(), version), |server| server.remove(id, version))
    }

    fn call<T>(
        &mut self,
        fate: Fate,
        late: impl FnOnce() -> Call,
        apply: impl FnOnce(&mut Self) -> T,
    ) -> Result<T, JournalError> {
        match fate {
            Fate::Answered => return Ok(apply(self)),
            Fate::Lost => drop(apply(self)),
            Fate::Failed => {}
            Fate::Late => self.flying.push_back(late()),
        }
        Err(JournalError::Timeout)
    }

    /// Applies a call for which nobody waits.
    pub(super) fn apply(&mut self, call: Call, now: Now) {
        match call {
            Call::Create(new, status) => drop(self.add(&new, status.as_ref(), now)),
            Call::Write(record, status) => drop(self.patch(record.spec.serial, &record.version, &status, now)),
            Call::Delete(id, version) => self.remove(&id, version),
        }
    }

    /// The create of an object that exists changes nothing, unless the object has other content: `Journal::create`.
    fn add(&mut self, new: &New, status: Option<&DeliveryStatus>, now: Now) -> Record {
        let mut status = status.cloned();
        if let Some(found) = self.objects.get(&new.spec.serial).cloned() {
            let is_same_notification = found.spec.notification_uid == new.spec.notification_uid;
            if is_same_notification && found.spec.to == new.spec.to {
                return found;
            }
            let is_attempted = found.status.attempts > 0 || found.status.outcome.is_some();
            status = status.or_else(|| (is_same_notification && is_attempted).then(|| found.status.clone()));
            self.remove(&found.id, version(Some(&found.version)));
        }
        let record = Record::unrecorded(&new.namespace, new.spec.clone(), now.wall, now.boot);
        let uid = format!("u{}", self.version + 1);
        self.put(Record { uid, status: status.unwrap_or_default(), ..record }, now)
    }

    /// Stores an object, with a new version.
    pub(super) fn put(&mut self, record: Record, now: Now) -> Record {
        self.version += 1;
        let again = record.status.outcome.is_none() && record.status.redelivered.is_some();
        let version = self.version.to_string();
        let mut record = Record { version, again, not_found: 0, unwritten: false, ..record };
        record.age = Age::new(record.since(), now.wall, now.boot);
        self.reports.push(Report::There(Box::new(record.clone())));
        self.objects.insert(record.spec.serial, record.clone());
        record
    }

    /// The patch of an older version changes nothing.
    fn patch(&mut self, serial: i64, version: &str, status: &DeliveryStatus, now: Now) -> Option<Record> {
        let found = self.objects.get(&serial).filter(|object| object.version == version)?.clone();
        let before = &found.status;
        let is_reopened = status.outcome.is_none() && status.redelivered != before.redelivered;
        let is_valid = before.attempts <= status.attempts && (before.outcome.is_none() || is_reopened);
        assert!(is_valid, "the schema rejects the patch of {serial}: {before:?} to {status:?}");
        Some(self.put(Record { status: status.clone(), ..found }, now))
    }

    /// `Journal::write`, without other writers in between.
    fn write_now(&mut self, record: &Record, mut status: DeliveryStatus, now: Now) -> Written {
        let mut version = record.version.clone();
        loop {
            if let Some(stored) = self.patch(record.spec.serial, &version, &status, now) {
                return Written::Stored { version: stored.version, status: Box::new(status) };
            }
            match met(record, &mut status, self.objects.get(&record.spec.serial).cloned()) {
                Ok(written) => return written,
                Err(live) => version = live.version,
            }
        }
    }

    /// Deletes an object, if it still has this version.
    fn remove(&mut self, id: &ObjectName, of: u64) {
        let found = self.find(id).filter(|object| version(Some(&object.version)) == of);
        let Some(serial) = found.map(|object| object.spec.serial) else { return };
        if let Some(object) = self.objects.remove(&serial) {
            self.reports.push(Report::Gone(object.id, object.uid));
        }
    }

    /// A user deletes a Delivery.
    pub(super) fn user_deletes(&mut self, number: usize) {
        let Some(object) = self.nth(number) else { return };
        *self.deleted.entry(object.spec.serial).or_default() += 1;
        self.remove(&object.id, version(Some(&object.version)));
    }

    /// Another client creates the Delivery of a change that is not recorded yet. Returns its serial.
    pub(super) fn forge(&mut self, number: usize, is_whole: bool, forged: Forged, now: Now) -> Option<i64> {
        let logged = self.logged();
        let is_free = |serial: &i64| !self.objects.contains_key(serial) && !self.deleted.contains_key(serial);
        let free: Vec<i64> = (self.cursor + 1..=logged + 2).filter(is_free).collect();
        // Excluded: in the next term, a Delivery with the right content counts as recorded. It is then sent before earlier ones of its lane
        // that have to be derived again. So it is created only if there are none.
        let number = if forged.is_right { 0 } else { number };
        let serial = *free.get(number % free.len().max(1))?;
        let is_other = |object: &Record| object.spec.to != State::default();
        if forged.is_right && self.objects.range(..serial).any(|(_, object)| is_other(object)) {
            return None;
        }
        while logged + i64::try_from(self.planned.len()).unwrap() < serial {
            self.planned.push_back(number % LANES);
        }
        let lanes: Vec<usize> = self.log.iter().chain(&self.planned).copied().collect();
        let lane = lanes[usize::try_from(serial - 1).unwrap()];
        let form = Form { notification: self.existing.notification?, is_whole };
        let mut spec = (*derived(serial, lane, form)).clone();
        if !forged.is_right {
            spec.to.message = "forged".to_owned();
        }
        let record = Record::unrecorded(NAMESPACE, Arc::new(spec), now.wall, now.boot);
        let outcome = forged.is_settled.then_some(Outcome::Delivered);
        let status = DeliveryStatus { outcome, attempts: i64::from(forged.is_settled), ..DeliveryStatus::default() };
        let uid = format!("u{}", self.version + 1);
        self.put(Record { uid, status, ..record }, now);
        self.forged.insert(serial);
        Some(serial)
    }

    /// Other clients delete their Deliveries with other content that are older than the newest one that Relaybook has recorded. After a restart
    /// they count as recorded. Only the admission policy prevents that.
    pub(super) fn withdraw(&mut self) {
        let is_old = |object: &&Record| object.spec.to != State::default() && Some(object.recorded) <= self.recorded;
        let old: Vec<Record> = self.objects.values().filter(is_old).cloned().collect();
        for object in old {
            self.remove(&object.id, version(Some(&object.version)));
        }
    }

    /// A user requests a redelivery.
    pub(super) fn user_redelivers(&mut self, number: usize, now: Now) {
        let Some(object) = self.nth(number) else { return };
        let asked = Some(self.version.to_string());
        self.put(Record { asked, ..object }, now);
    }

    fn nth(&self, number: usize) -> Option<Record> {
        self.objects.values().nth(number % self.objects.len().max(1)).cloned()
    }
}
