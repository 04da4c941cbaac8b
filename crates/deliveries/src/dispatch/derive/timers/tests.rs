//! Timers give the same result no matter when the log is read, in which parts, and how often the process restarts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::dispatch::cursor::plan::Position;
use crate::dispatch::cursor::progress::{Lane, progress};
use crate::dispatch::cursor::state::Taken;
use crate::dispatch::derive::subjects::Subjects;
use crate::dispatch::derive::{Derived, PipelineLog, Reached, Wants, derive};
use crate::outbox::lane;
use relaybook_api::delivery::PipelineRef;
use relaybook_api::pipeline::{Cursor, Dispatched};
use relaybook_api::{DeliverySpec, State, Status};
use relaybook_core::meaning::transitions;
use relaybook_settings::render::Texts;
use relaybook_settings::trigger::Triggers;

mod limits;

const NAME: &str = "deploys";
/// Milliseconds for which a failure, or drift, must last.
const HOLDS: [(TransitionType, i64); 2] = [(TransitionType::Failed, 2000), (TransitionType::Drifted, 1000)];

fn triggers(failed: &str) -> Triggers {
    let list = json!([
        {"type": "Deployed"}, {"type": "Failed", "for": failed}, {"type": "Failed", "for": "300s"},
        {"type": "Drifted", "for": "1s"}, {"type": "DriftCorrected"},
    ]);
    Triggers::compile(&serde_json::from_value::<Vec<_>>(list).unwrap()).unwrap()
}

fn at(ms: i64) -> Time {
    Time::from_millisecond(ms).unwrap()
}

fn state(status: Status, drifted: bool) -> State {
    State { status, revision: "1".into(), failed: status == Status::Failed, drifted, ..State::default() }
}

/// Builds a log from (milliseconds since the previous change, subject, failed, drifted).
fn log(steps: &[(i64, usize, bool, bool)]) -> ChangeLog {
    let subjects = ["target/dev/c/a", "target/prod/c/a", "target/prod/c/b"];
    let mut now: BTreeMap<usize, State> = BTreeMap::new();
    let (mut log, mut time) = (ChangeLog { first: 100, serial: 100, ..ChangeLog::default() }, 1_000_000);
    for (gap, subject, failed, drifted) in steps {
        time += gap;
        let to = state(if *failed { Status::Failed } else { Status::Current }, *drifted);
        let from = now.insert(*subject, to.clone()).unwrap_or_else(|| state(Status::Current, false));
        if from != to {
            log.serial += 1;
            let subject = subjects[*subject].to_owned();
            log.changes.push(Change { serial: log.serial, subject, time: at(time), from, to, ..Change::default() });
        }
    }
    log
}

/// What is reported: place in the lane, subject, type.
type Told = Vec<(lane::Place, String, TransitionType)>;

/// Returns the deliveries of a log, computed directly from the definition.
fn expected(log: &ChangeLog) -> BTreeMap<String, Told> {
    let mut lanes: BTreeMap<String, Told> = BTreeMap::new();
    for change in &log.changes {
        for type_ in transitions(change) {
            let hold = HOLDS.iter().find(|(held, _)| *held == type_).map(|(_, ms)| *ms);
            let due = hold.map(|ms| at(change.time.as_millisecond() + ms));
            let later = || log.changes.iter().filter(|c| c.serial > change.serial);
            let own = |c: &&Change| c.subject == change.subject;
            let order = match due {
                None => change.serial,
                Some(due) if later().filter(own).find(|c| ends(type_, c)).is_some_and(|end| end.time < due) => continue,
                Some(due) => {
                    let behind = later().find(|c| c.time > due || (own(c) && c.time == due));
                    behind.map_or(log.serial, |c| c.serial - 1)
                }
            };
            let spec = DeliverySpec { order, due, serial: change.serial, type_, ..relaybook_api::testing::spec(1) };
            lanes.entry(change.subject.clone()).or_default().push(((&spec).into(), change.subject.clone(), type_));
        }
    }
    for lane in lanes.values_mut() {
        lane.sort();
    }
    lanes
}

/// A dispatcher that can crash, and the state that the API server persists.
struct Life<'a> {
    whole: &'a ChangeLog,
    triggers: Triggers,
    ordering: Ordering,
    /// The position in memory.
    position: Position,
    taken: Taken,
    /// By subject: the serial of the log when the last silent baseline was taken.
    based: HashMap<String, i64>,
    persisted: Dispatched,
    /// Serials that have left the log.
    pruned: BTreeSet<i64>,
    recorded: BTreeSet<(i64, TransitionType)>,
    created: BTreeMap<String, Told>,
    /// Until when the log can lack changes, and up to which time it has them.
    held: (Option<Time>, i64),
}

impl<'a> Life<'a> {
    fn new(whole: &'a ChangeLog, ordering: Ordering) -> Self {
        let cursor = Cursor { notification: NAME.into(), serial: whole.first, uid: "u".into(), ..Cursor::default() };
        let position = Position { cursors: [(NAME.to_owned(), cursor)].into(), ..Position::default() };
        Self {
            whole,
            triggers: triggers("2s"),
            ordering,
            persisted: Dispatched::from(&position),
            position,
            taken: Taken::new(),
            based: HashMap::new(),
            pruned: BTreeSet::new(),
            recorded: BTreeSet::new(),
            created: BTreeMap::new(),
            held: (None, 0),
        }
    }

    /// Runs one pass. The create number `refuse` of the pass is rejected.
    fn pass(&mut self, now: i64, refuse: Option<usize>) -> Derived {
        // All changes that are older than the slack have arrived.
        self.held = (None, now - 400);
        self.pass_at(now, now - 400, refuse)
    }

    /// Runs one pass while the writer waits: changes since the last write are not in the log yet.
    fn pass_held(&mut self, now: i64) {
        self.held.0 = Some(at(now + 1));
        self.pass_at(now, self.held.1, None);
    }

    /// Like `pass`, with the changes up to the time `seen`.
    fn pass_at(&mut self, now: i64, seen: i64, refuse: Option<usize>) -> Derived {
        let visible = self.whole.changes.iter().filter(|c| c.time.as_millisecond() <= seen);
        let serial = visible.clone().map(|c| c.serial).max().unwrap_or(self.whole.first);
        let changes = visible.filter(|c| !self.pruned.contains(&c.serial)).cloned().collect();
        let log = ChangeLog { serial, held_until: self.held.0, changes, ..self.whole.clone() };
        let (pipeline, none, subjects) = (PipelineRef::default(), Texts::default(), Subjects::default());
        let based = &self.based;
        let of =
            PipelineLog { pipeline: &pipeline, labels: &none, annotations: &none, subjects: &subjects, based, log: &log };
        let armed = self.position.armed.get(NAME).cloned().unwrap_or_default();
        let from = Reached { cursor: &self.position.cursors[NAME], taken: &self.taken, armed: &armed, timer_limit: MOST };
        let derived = derive(&of, &from, |_| Wants::These(&self.triggers, self.ordering), at(now));
        let mut count = 0;
        let lanes: Vec<_> = derived.lanes.iter().map(|lane| self.record(lane, refuse, &mut count)).collect();
        let progress = progress(&derived, &lanes, &log);
        self.position.armed.insert(NAME.to_owned(), progress.armed);
        if lanes.iter().any(|lane| *lane != Lane::Recorded) {
            for (subject, serial) in progress.taken {
                let taken = self.taken.entry(subject).or_insert(serial);
                *taken = serial.max(*taken);
            }
        }
        let cursor = self.position.cursors.get_mut(NAME).unwrap();
        cursor.serial = cursor.serial.max(progress.cursor);
        derived
    }

    fn record(&mut self, lane: &[DeliverySpec], refuse: Option<usize>, count: &mut usize) -> Lane {
        for (at, spec) in lane.iter().enumerate() {
            *count += 1;
            if refuse == Some(*count) {
                return Lane::Failed(at);
            }
            if self.recorded.insert((spec.serial, spec.type_)) {
                let told = (spec.into(), format!("target/{}", spec.subject.name), spec.type_);
                self.created.entry(spec.lane.clone()).or_default().push(told);
            }
        }
        Lane::Recorded
    }

    fn persist(&mut self, prune: bool) {
        self.persisted = Dispatched::from(&self.position);
        if prune {
            let (lowest, armed) = (self.persisted.cursors[0].serial, &self.persisted.armed);
            let goes = |c: &&Change| c.serial <= lowest && armed.iter().all(|a| a.serial != c.serial);
            self.pruned.extend(self.whole.changes.iter().filter(goes).map(|c| c.serial));
        }
    }

    fn crash(&mut self) {
        self.position = Position::from(&self.persisted);
        self.taken = Taken::new();
    }
}

fn steps() -> impl Strategy<Value = Vec<(i64, usize, bool, bool)>> {
    let gap = prop_oneof![Just(0), 1i64..100, 100i64..1200, Just(1000), Just(2000), 1500i64..4000];
    prop::collection::vec((gap, 0usize..3, any::<bool>(), any::<bool>()), 1..30)
}

/// Milliseconds until a pass, what happens after it, and which create is rejected in it.
fn passes() -> impl Strategy<Value = Vec<(i64, u8, Option<usize>)>> {
    prop::collection::vec((1i64..3000, 0u8..6, prop::option::weighted(0.3, 1usize..4)), 0..60)
}

fn live<'a>(whole: &'a ChangeLog, ordering: Ordering, passes: &[(i64, u8, Option<usize>)], refusals: bool) -> Life<'a> {
    let mut life = Life::new(whole, ordering);
    let mut now = 1_000_000;
    for (gap, then, refuse) in passes {
        now += gap;
        match then {
            5 => life.pass_held(now),
            _ => drop(life.pass(now, refuse.filter(|_| refusals))),
        }
        match then {
            0 | 1 => life.persist(false),
            2 => life.persist(true),
            3 => life.crash(),
            _ => {}
        }
    }
    life.pass(now + 1_000_000_000, None);
    life.pass(now + 1_000_000_001, None);
    life
}

proptest! {
    /// The deliveries and their places are the same, no matter in which parts the log is read, and where the process restarts.
    #[test]
    fn deliveries_do_not_depend_on_the_parts_in_which_the_log_is_read(steps in steps(), passes in passes()) {
        let whole = log(&steps);
        let life = live(&whole, Ordering::Target, &passes, false);
        prop_assert_eq!(&life.created, &expected(&whole));
        prop_assert!(life.position.armed[NAME].is_empty());
        // The same is true for a single lane.
        let life = live(&whole, Ordering::Pipeline, &passes, false);
        let mut all: Told = expected(&whole).into_values().flatten().collect();
        all.sort();
        prop_assert_eq!(life.created.into_values().flatten().collect::<Told>(), all);
    }

    /// Rejected creates only delay their deliveries. Nothing is lost or out of order.
    #[test]
    fn refused_creates_lose_no_delivery_of_a_timer(steps in steps(), passes in passes()) {
        let whole = log(&steps);
        for ordering in [Ordering::Target, Ordering::Pipeline] {
            let life = live(&whole, ordering, &passes, true);
            let ids = |lanes: &BTreeMap<String, Told>| {
                lanes.values().flatten().map(|(place, _, type_)| (place.serial(), *type_)).collect::<BTreeSet<_>>()
            };
            prop_assert_eq!(ids(&life.created), ids(&expected(&whole)));
            prop_assert!(life.created.values().all(|lane| lane.is_sorted()), "{:?}", life.created);
        }
    }
}

#[test]
fn an_edit_of_the_trigger_applies_to_running_timers() {
    let whole = log(&[(0, 0, true, false), (500, 1, true, false)]);
    let told = |edited: Option<&str>| {
        let mut life = Life::new(&whole, Ordering::Target);
        let first = life.pass(1_001_000, None);
        assert_eq!(first.next, Some(Duration::from_millis(1500)), "for the first, and a little");
        life.triggers = edited.map_or_else(Triggers::default, triggers);
        let derived = life.pass(1_001_100, None);
        let told: Vec<_> = life.created.values().flatten().map(|(place, ..)| place.serial()).collect();
        (told, derived.armed.len(), derived.next.map(|next| next.as_millis()))
    };
    assert_eq!(told(Some("2s")), (vec![], 2, Some(1400)));
    assert_eq!(told(Some("1h")), (vec![], 2, Some(299_400)), "another trigger has the shortest time");
    assert_eq!(told(Some("1s")), (vec![], 2, Some(400)));
    assert_eq!(told(None), (vec![], 0, None), "nobody wants to know any more");
}

#[test]
fn a_timer_without_a_delay_fires_at_once_and_one_without_its_change_is_dropped() {
    let whole = log(&[(0, 0, true, false), (100, 1, false, true)]);
    let mut life = Life::new(&whole, Ordering::Target);
    life.pass(1_000_600, None);
    let list = json!([{"type": "Failed"}, {"type": "Drifted", "for": "1h"}]);
    life.triggers = Triggers::compile(&serde_json::from_value::<Vec<_>>(list).unwrap()).unwrap();
    let derived = life.pass(1_000_700, None);
    let failed = &derived.lanes[0][0];
    assert_eq!((failed.type_, failed.order, failed.due), (TransitionType::Failed, 102, Some(at(1_000_000))));
    assert_eq!(derived.armed.len(), 1);
    life.pruned.insert(102);
    assert!(life.pass(1_000_800, None).armed.is_empty());
}

#[test]
fn a_change_waits_for_a_timer_that_may_be_due_before_it() {
    let whole = log(&[(0, 0, true, false), (2100, 1, true, false), (0, 2, true, false)]);
    let mut life = Life::new(&whole, Ordering::Target);
    let derived = life.pass(1_002_500, None);
    assert_eq!((derived.reached, derived.lanes.len()), (103, 1), "no more can come from before it was due");
    assert_eq!(derived.lanes[0][0].order, 101);
    // The timer is due at 2,000. A change of another subject from 2,100 is seen at 2,200.
    let mut timers = Timers::new(&whole, at(1_002_200));
    let timer = Timer {
        change: &whole.changes[0],
        type_: TransitionType::Failed,
        due: at(1_002_000),
        fires: at(1_002_000),
        error: None,
        ordering: Ordering::Target,
    };
    timers.arm(timer.clone());
    assert_eq!(timers.before(&whole.changes[1]), (Vec::new(), true));
    // If the wall clock was set back since, the change does not wait.
    let mut timers = Timers::new(&whole, at(1_001_000));
    timers.arm(timer.clone());
    assert_eq!(timers.before(&whole.changes[1]), (vec![timer], false));
}

#[test]
fn a_timer_waits_for_changes_that_are_held() {
    let mut whole = log(&[(0, 0, true, false)]);
    let due = |whole: &ChangeLog, now| {
        let mut life = Life::new(whole, Ordering::Target);
        life.pass(1_000_500, None);
        life.held.0 = whole.held_until;
        let derived = life.pass_at(now, now, None);
        (life.created.len(), derived.next.map(|next| next.as_millis()))
    };
    // The timer is due at 2,000.
    assert_eq!(due(&whole, 1_002_500), (1, None));
    whole.held_until = Some(at(1_009_000));
    assert_eq!(due(&whole, 1_002_500), (0, Some(7000)));
    assert_eq!(due(&whole, 1_009_500), (1, None));
    whole.held_until = Some(at(1_001_000));
    assert_eq!(due(&whole, 1_002_500), (1, None));
    whole.held_until = Some(at(1_002_500 + 3_600_000));
    assert_eq!(due(&whole, 1_002_500), (1, None), "the clock of the writer was wrong");
}

#[test]
fn the_timer_of_a_change_from_the_future_starts_now() {
    let hour = 3_600_000;
    for ended in [false, true] {
        let whole = log(&[(hour, 0, true, false), (1000, usize::from(!ended), false, true)]);
        let mut life = Life::new(&whole, Ordering::Target);
        // The dispatcher sees changes from its future.
        let seen = |life: &mut Life<'_>, now| life.pass_at(now, now + 2 * hour, None);
        let armed = seen(&mut life, 1_000_000).armed;
        let failed = armed.iter().find(|timer| timer.type_ == TransitionType::Failed).map(|timer| timer.due);
        assert_eq!(failed, (!ended).then(|| at(1_002_000)));
        life.persist(false);
        life.crash();
        assert_eq!(seen(&mut life, 1_001_400).armed, armed, "what was persisted stands");
        seen(&mut life, 1_002_500);
        let told: Vec<_> = life.created.values().flatten().map(|(.., type_)| *type_).collect();
        let drifted = TransitionType::Drifted;
        assert_eq!(
            told,
            if ended { vec![TransitionType::Deployed, drifted] } else { vec![TransitionType::Failed, drifted] }
        );
    }
    // A difference of one minute does not count as the future.
    let (begun, hold) = (at(1_060_000), Some(Duration::from_secs(5)));
    assert_eq!(fires(begun, hold, at(1_000_000), None), at(1_065_000));
    assert_eq!(fires(begun, hold, at(999_999), None), at(1_004_999));
}

#[test]
fn the_timer_of_a_silently_replaced_state_does_not_fire() {
    let whole = log(&[(0, 0, true, false), (0, 1, true, false)]);
    let mut life = Life::new(&whole, Ordering::Target);
    assert_eq!(life.pass(1_000_400, None).armed.len(), 2);
    life.based = [("target/dev/c/a".to_owned(), 101), ("target/prod/c/a".to_owned(), 101)].into();
    assert_eq!(life.pass(1_000_500, None).armed.iter().map(|timer| timer.serial).collect::<Vec<_>>(), [102]);
    // A new dispatcher does not arm the timer at all.
    let mut late = Life { based: life.based.clone(), ..Life::new(&whole, Ordering::Target) };
    assert_eq!(late.pass(1_000_500, None).armed.len(), 1);
}
