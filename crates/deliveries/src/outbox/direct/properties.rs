//! Property tests: a lane with direct attempts loses nothing and keeps its order, whatever happens to a write. Answers are lost. Writes
//! fail, or are applied long after the process stopped waiting. A process is killed, or another one gets the Lease.
//! The lane and the answers to offers are the real ones. The rest models `Deliveries::record`, `scheduler::offers` and `attempt::write`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use proptest::prelude::*;
use tokio::sync::oneshot;

use super::{Answer, Direct};
use crate::outbox::lane::{After, Lane, Place};
use crate::outbox::record::Record;
use crate::outbox::store::journal::JournalError;
use crate::outbox::testing::record;
use relaybook_api::{DeliveryStatus, Outcome};

const STEPS: usize = 120;
const FATES: [Fate; 5] = [Fate::Answered, Fate::Answered, Fate::AppliedAnswerLost, Fate::NotApplied, Fate::Late];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Answered,
    AppliedAnswerLost,
    NotApplied,
    /// The process stops waiting. The write can be applied later.
    Late,
}

/// The serial, the version that is patched (none: the object is created), and the new status.
type Write = (i64, Option<String>, DeliveryStatus);

/// What survives a crash: the API server and the receiver.
#[derive(Default)]
struct Outside {
    logged: i64,
    /// The log no longer contains the changes up to this serial.
    pruned: i64,
    cursor: i64,
    objects: BTreeMap<i64, Record>,
    version: u64,
    /// Writes that no process waits for, and that can still be applied.
    flying: VecDeque<Write>,
    received: Vec<i64>,
    errors: usize,
}

impl Outside {
    /// Applies a write. The create of an object that exists changes nothing, nor does the patch of an older version.
    fn apply(&mut self, (serial, base, status): Write) {
        let found = self.objects.get(&serial);
        if found.map(|object| &object.version) != base.as_ref() {
            return;
        }
        // The schema rejects other patches, so the process would repeat them without end.
        let is_valid = found.is_none_or(|old| old.status.outcome.is_none() && old.status.attempts <= status.attempts);
        assert!(is_valid, "{serial}: the schema rejects the patch");
        self.version += 1;
        self.objects.insert(serial, Record { version: self.version.to_string(), status, ..record(serial) });
    }

    /// Returns the object that is stored after a write (after a conflict, the process reads it), or `None` without an answer.
    fn call(&mut self, write: Write, fate: Fate) -> Option<Record> {
        let serial = write.0;
        match fate {
            Fate::Answered | Fate::AppliedAnswerLost => self.apply(write),
            Fate::Late => self.flying.push_back(write),
            Fate::NotApplied => {}
        }
        self.objects.get(&serial).filter(|_| fate == Fate::Answered).cloned()
    }
}

/// A process: its dispatcher and its engine.
#[derive(Default)]
struct Process {
    cursor: i64,
    /// The serials that are known to have an object.
    known: BTreeSet<i64>,
    /// What the dispatcher has created. The engine gets it at the end of the pass.
    created: Vec<Record>,
    answered: Option<oneshot::Receiver<Answer>>,
    direct: Direct,
    lane: Lane<Record>,
    /// The create of a pending delivery, by the dispatcher or the engine.
    creating: Option<i64>,
    /// The result that is written for the delivery in progress.
    writing: Option<DeliveryStatus>,
    /// Broken on purpose: the cursor passes a delivery when it is sent, before it has an object.
    is_early: bool,
}

impl Process {
    /// Continues the pass of the dispatcher with the next delivery, unless it waits for one.
    fn pass(&mut self, outside: &Outside) {
        if self.answered.as_mut().is_some_and(|answered| answered.try_recv().is_ok()) {
            self.answered = None;
        }
        if self.answered.is_some() || self.creating.is_some() {
            return;
        }
        while self.known.contains(&(self.cursor + 1)) {
            self.cursor += 1;
        }
        let next = (self.cursor.max(outside.pruned) + 1..=outside.logged).find(|serial| !self.known.contains(serial));
        let is_free = self.lane.count() == 0 && self.created.is_empty();
        match next {
            Some(serial) if is_free || self.direct.contains(&record(serial).id) => self.offer(serial),
            Some(serial) => self.creating = Some(serial),
            None => self.end_pass(),
        }
    }

    fn end_pass(&mut self) {
        for object in self.created.drain(..).filter(|object| object.status.outcome.is_none()) {
            self.lane.insert(Place::from(&*object.spec), object);
        }
    }

    fn offer(&mut self, serial: i64) {
        let (answer, answered) = oneshot::channel();
        self.answered = Some(answered);
        let new = Record { uid: String::new(), ..record(serial) };
        if !self.direct.contains(&new.id) {
            self.direct.add(&new.id, answer);
            self.lane.insert(Place::from(&*new.spec), new);
        } else if self.writing.is_some() {
            self.direct.ask_again(&new.id, answer);
        } else {
            self.direct.retried(&new.id, answer);
        }
    }

    fn send(&mut self, outside: &mut Outside) {
        let Some(head) = self.lane.take(Instant::now()) else { return };
        outside.received.push(head.spec.serial);
        if self.is_early {
            self.known.insert(head.spec.serial);
            self.direct.recorded(&head.id);
        }
    }

    fn answer(&mut self, outside: &mut Outside, outcome: Option<Outcome>) {
        let Some(busy) = self.lane.busy().filter(|_| self.writing.is_none()) else { return };
        outside.errors += usize::from(outcome.is_none());
        self.writing = Some(DeliveryStatus { outcome, attempts: busy.status.attempts + 1, ..DeliveryStatus::default() });
    }

    /// The 250 ms are over. The delivery is recorded as pending, whether it is already sent or not.
    fn overdue(&mut self) {
        let head = self.lane.head().filter(|head| self.direct.contains(&head.id) && self.writing.is_none());
        self.creating = self.creating.or(head.map(|head| head.spec.serial));
    }

    fn create_ends(&mut self, outside: &mut Outside, fate: Fate) {
        let Some(serial) = self.creating.take() else { return };
        let id = record(serial).id;
        let is_direct = self.direct.contains(&id);
        let Some(stored) = outside.call((serial, None, DeliveryStatus::default()), fate) else {
            // Only one of the two has created it. The other has nothing to do.
            self.direct.failed(&id, &JournalError::Timeout);
            return self.end_pass();
        };
        self.known.insert(serial);
        self.direct.recorded(&id);
        match self.lane.busy() {
            _ if !is_direct => self.created.push(stored),
            Some(busy) if self.writing.is_none() && busy.status == stored.status => busy.adopt(&stored),
            // The write of the result finds the object, and compares the result with that of another process.
            Some(_) => {}
            None if stored.status.outcome.is_some() => drop(self.lane.remove(Place::from(&*stored.spec))),
            None => self.lane.replace(Place::from(&*stored.spec), stored),
        }
    }

    fn write_ends(&mut self, outside: &mut Outside, fate: Fate) {
        let (Some(busy), Some(status)) = (self.lane.busy(), self.writing.clone()) else { return };
        let (serial, base) = (busy.spec.serial, busy.is_recorded().then(|| busy.version.clone()));
        let Some(stored) = outside.call((serial, base, status.clone()), fate) else {
            return self.direct.failed(&busy.id, &JournalError::Timeout);
        };
        // A create of the pending object changes nothing any more.
        self.creating = self.creating.filter(|creating| *creating != serial);
        self.known.insert(serial);
        self.direct.recorded(&busy.id);
        busy.adopt(&stored);
        busy.status = stored.status;
        let is_later = status.outcome.is_none() && busy.status.attempts >= status.attempts;
        let after = match busy.status.outcome {
            Some(_) => After::Settled { answered: true },
            None if is_later => After::Retry { until: Instant::now(), asked: false },
            // The object is older than the result. The next try is a patch.
            None => return,
        };
        self.writing = None;
        self.lane.done(after);
    }
}

#[derive(Default)]
struct World {
    outside: Outside,
    leader: Process,
    /// The leader before. It sends nothing more, because a request starts only if the Lease lasts longer than it and its write.
    deposed: Process,
    restarts: usize,
}

impl World {
    fn step(&mut self, step: u8, fate: Fate) {
        let Self { outside, leader, deposed, .. } = self;
        match step {
            0..3 => outside.logged += 1,
            3..9 => leader.pass(outside),
            9..13 => leader.send(outside),
            13..16 => leader.answer(outside, Some(Outcome::Delivered)),
            16 => leader.answer(outside, None),
            17..19 => leader.overdue(),
            19..23 => leader.create_ends(outside, fate),
            23..27 => leader.write_ends(outside, fate),
            27 => deposed.create_ends(outside, fate),
            28 => deposed.write_ends(outside, fate),
            29 => outside.flying.pop_front().into_iter().for_each(|write| outside.apply(write)),
            30 => drop(outside.flying.pop_front()),
            31..33 => outside.cursor = leader.cursor,
            33 => outside.pruned = outside.cursor,
            _ => self.restart(step == 34),
        }
    }

    /// Starts another process from what is stored. The one before is killed, or it has lost the Lease and still ends its writes.
    fn restart(&mut self, is_killed: bool) {
        self.restarts += 1;
        let Outside { cursor, ref objects, .. } = self.outside;
        let (known, created) = (objects.keys().copied().collect(), objects.values().cloned().collect());
        let next = Process { cursor, known, created, is_early: self.leader.is_early, ..Process::default() };
        let before = std::mem::replace(&mut self.leader, next);
        self.leader.end_pass();
        if !is_killed {
            self.deposed = before;
        }
    }

    /// Takes steps in which everything succeeds, until nothing is left to do.
    fn drain(&mut self) {
        for step in std::iter::repeat_n([3, 19, 9, 13, 23, 27, 28, 29, 31], 4 * STEPS).flatten() {
            self.step(step, Fate::Answered);
        }
    }

    /// Checks what is true after every step.
    fn check(&self) -> Result<(), TestCaseError> {
        let Outside { cursor, objects, received, .. } = &self.outside;
        prop_assert!(received.is_sorted(), "one was sent after a later one: {received:?}");
        prop_assert!(objects.keys().copied().eq((1_i64..).take(objects.len())), "an earlier one has no object");
        prop_assert!(*cursor == 0 || objects.contains_key(cursor), "the stored cursor has passed one without an object");
        Ok(())
    }

    /// Returns what the receiver did not get, or what has no outcome. An outcome is written only after an answer.
    fn lost(&self) -> Vec<i64> {
        let Outside { logged, objects, received, .. } = &self.outside;
        let is_settled = |serial: &i64| objects.get(serial).is_some_and(|object| object.status.outcome.is_some());
        (1..=*logged).filter(|serial| !is_settled(serial) || !received.contains(serial)).collect()
    }
}

proptest! {
    #[test]
    fn no_result_of_a_write_loses_a_delivery_or_breaks_the_order(
        steps in prop::collection::vec((0..36_u8, prop::sample::select(FATES.to_vec())), 0..=STEPS)
    ) {
        let mut world = World::default();
        for (step, fate) in steps {
            world.step(step, fate);
            world.check()?;
        }
        world.drain();
        world.check()?;
        let (lost, Outside { logged, cursor, received, errors, .. }) = (world.lost(), &world.outside);
        prop_assert!(lost.is_empty(), "lost {lost:?}");
        prop_assert_eq!(cursor, logged);
        // Only an error of the receiver, a crash or a hand-over repeats a request, and each of them at most one.
        let repeated = received.len() - received.iter().collect::<BTreeSet<_>>().len();
        prop_assert!(repeated <= errors + world.restarts, "{repeated} requests were repeated");
    }
}

/// The properties above can fail: here the cursor does not wait for the object, and a crash loses the delivery.
#[test]
fn a_cursor_that_passes_unrecorded_deliveries_loses_them() {
    let lost = |is_early| {
        let mut world = World { leader: Process { is_early, ..Process::default() }, ..World::default() };
        // A change is logged, offered and sent. The dispatcher continues, the cursor is stored, and the process is killed.
        for step in [0, 3, 9, 3, 31, 34] {
            world.step(step, Fate::Answered);
        }
        world.drain();
        world.lost()
    };
    assert_eq!(lost(true), [1]);
    assert!(lost(false).is_empty());
}
