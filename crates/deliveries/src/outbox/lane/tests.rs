//! A model of the world around a lane: what is stored, what the receiver saw, and a process that can die between any two steps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn place(n: i64) -> Place {
    Place { order: n, due: None, serial: n, type_: TransitionType::Deployed }
}

#[test]
fn places_are_sorted_by_order_due_time_serial_and_type() {
    let at = |order, due: Option<i64>, serial, type_| {
        let due = due.map(|second| relaybook_api::Time::from_second(second).unwrap());
        Place { order, due, serial, type_ }
    };
    let (failed, drifted) = (TransitionType::Failed, TransitionType::Drifted);
    let sorted = [
        at(5, None, 5, failed),
        at(5, None, 5, drifted),
        at(5, Some(10), 5, failed),
        at(5, Some(10), 5, drifted),
        at(5, Some(11), 2, failed),
        at(6, None, 6, failed),
    ];
    assert!(sorted.is_sorted());
}

#[test]
fn the_next_delivery_waits_until_the_outcome_is_written() {
    let now = Instant::now();
    let mut lane = Lane::default();
    assert!(lane.insert(place(2), 2));
    assert!(lane.insert(place(1), 1));
    assert!(!lane.insert(place(1), 9), "one transition is queued once");
    assert_eq!(lane.take(now), Some(&1));
    assert_eq!(lane.take(now), None, "one at a time");
    assert_eq!(lane.due(now), Due::Busy);
    assert_eq!(lane.done(After::Settled { answered: true }), Some(1));
    assert_eq!(lane.take(now), Some(&2));
}

#[test]
fn an_older_delivery_that_arrives_late_does_not_replace_the_one_in_progress() {
    let now = Instant::now();
    let mut lane = Lane::default();
    lane.insert(place(5), 5);
    lane.take(now);
    lane.insert(place(4), 4);
    assert_eq!(lane.busy(), Some(&mut 5));
    assert_eq!(lane.done(After::Settled { answered: true }), Some(5));
    assert_eq!(lane.take(now), Some(&4));
}

#[test]
fn each_kind_of_wait_ends_with_its_kind_of_wake() {
    let now = Instant::now();
    let later = now + Duration::from_secs(5);
    let table = [
        (After::Retry { until: later, asked: true }, Due::At(later), Due::At(later), 1),
        (After::Retry { until: later, asked: false }, Due::At(later), Due::Now, 1),
        (After::Hold { until: Some(later) }, Due::At(later), Due::Now, 0),
        (After::Hold { until: None }, Due::Held, Due::Now, 0),
        (After::Nothing, Due::Now, Due::Now, 0),
    ];
    for (after, due, woken, failures) in table {
        let mut lane = Lane::default();
        lane.insert(place(1), 1);
        lane.take(now);
        assert_eq!(lane.done(after), None);
        assert_eq!((lane.due(now), lane.failures()), (due, failures), "{after:?}");
        lane.wake(false);
        let still = matches!(after, After::Retry { .. });
        assert_eq!(lane.due(now) == due, still || due == Due::Now, "{after:?}");
        lane.wake(true);
        assert_eq!(lane.due(now), woken, "{after:?}");
        lane.hurry();
        assert_eq!(lane.due(now), Due::Now, "{after:?}");
    }
}

#[test]
fn a_new_term_starts_with_the_failures_of_the_stored_head() {
    let now = Instant::now();
    let later = now + Duration::from_secs(5);
    let mut lane = Lane::default();
    lane.insert(place(1), 1);
    lane.insert(place(2), 2);
    lane.resume(Some((later, 3, false)));
    assert_eq!((lane.due(now), lane.failures()), (Due::At(later), 3));
    // Another replica settles the head meanwhile.
    lane.remove(place(1));
    lane.resume(None);
    assert_eq!((lane.due(now), lane.failures()), (Due::Now, 0));
    lane.take(now);
    lane.resume(Some((later, 3, false)));
    assert_eq!((lane.due(now), lane.failures()), (Due::Busy, 0), "a delivery in progress continues");
}

#[test]
fn a_lane_continues_when_its_head_is_deleted() {
    let now = Instant::now();
    let mut lane = Lane::default();
    lane.insert(place(1), 1);
    lane.insert(place(2), 2);
    lane.take(now);
    assert_eq!(lane.remove(place(1)), None, "what is at work finds out by its write");
    lane.done(After::Hold { until: None });
    assert_eq!(lane.remove(place(1)), Some(1));
    assert_eq!(lane.take(now), Some(&2), "the lane goes on");
}

/// What the API server and the receiver know. It survives a crash.
#[derive(Default)]
struct World {
    recorded: BTreeSet<i64>,
    settled: BTreeSet<i64>,
    deleted: BTreeSet<i64>,
    sent: Vec<i64>,
}

/// A process: the lane, and the delivery in progress.
#[derive(Default)]
struct Process {
    lane: Lane<i64>,
    at_work: Option<(i64, Step)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Taken,
    Sent { ok: bool },
}

impl Process {
    fn restarted(world: &World) -> Self {
        let mut lane = Lane::default();
        for n in world.recorded.difference(&world.settled).filter(|n| !world.deleted.contains(n)) {
            lane.insert(place(*n), *n);
        }
        Self { lane, at_work: None }
    }
}

#[derive(Clone, Debug)]
enum Event {
    Record,
    Take,
    Send { ok: bool },
    Write,
    Wake,
    Delete(u8),
    Crash,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let one = prop_oneof![
        3 => Just(Event::Record),
        4 => Just(Event::Take),
        4 => any::<bool>().prop_map(|ok| Event::Send { ok }),
        4 => Just(Event::Write),
        2 => Just(Event::Wake),
        1 => any::<u8>().prop_map(Event::Delete),
        1 => Just(Event::Crash),
    ];
    prop::collection::vec(one, 0..200)
}

fn step(world: &mut World, process: &mut Process, event: &Event, now: Instant) {
    match event {
        Event::Record => {
            let n = i64::try_from(world.recorded.len()).unwrap();
            world.recorded.insert(n);
            process.lane.insert(place(n), n);
        }
        Event::Take => {
            if let Some(n) = process.lane.take(now) {
                assert!(process.at_work.is_none(), "two at work");
                process.at_work = Some((*n, Step::Taken));
            }
        }
        Event::Send { ok } => {
            if let Some((n, step @ Step::Taken)) = &mut process.at_work {
                world.sent.push(*n);
                *step = Step::Sent { ok: *ok };
            }
        }
        Event::Write => {
            if let Some((n, Step::Sent { ok })) = process.at_work {
                process.at_work = None;
                if ok {
                    world.settled.insert(n);
                }
                let over = ok || world.deleted.contains(&n);
                let retry = After::Retry { until: now, asked: false };
                process.lane.done(if over { After::Settled { answered: true } } else { retry });
            }
        }
        Event::Wake => process.lane.wake(true),
        Event::Delete(which) => {
            let pending: Vec<_> = world.recorded.difference(&world.settled).copied().collect();
            if let Some(n) = pending.get(usize::from(*which) % pending.len().max(1)) {
                world.deleted.insert(*n);
                process.lane.remove(place(*n));
            }
        }
        Event::Crash => *process = Process::restarted(world),
    }
}

/// Checks that no delivery is first sent before all earlier ones are settled or deleted. The check uses the world's data, not the lane's.
fn in_order(world: &World, before: usize) -> Result<(), TestCaseError> {
    for n in &world.sent[before..] {
        for ahead in world.recorded.range(..n) {
            let over = world.settled.contains(ahead) || world.deleted.contains(ahead);
            prop_assert!(over, "{n} was sent while {ahead} was pending");
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_interleaving_keeps_the_order_and_loses_no_delivery(events in events()) {
        let now = Instant::now();
        let (mut world, mut process) = (World::default(), Process::default());
        for event in &events {
            let before = world.sent.len();
            step(&mut world, &mut process, event, now);
            in_order(&world, before)?;
        }
        // Without further events, the rest is sent: nothing is lost.
        for _ in 0..=world.recorded.len() {
            for event in [Event::Wake, Event::Take, Event::Send { ok: true }, Event::Write] {
                let before = world.sent.len();
                step(&mut world, &mut process, &event, now);
                in_order(&world, before)?;
            }
        }
        let lost: Vec<_> = world.recorded.iter().filter(|n| !world.settled.contains(n) && !world.deleted.contains(n)).collect();
        prop_assert!(lost.is_empty(), "lost {lost:?}");
        // A delivery is sent again only after a failure or a crash.
        let crashes = events.iter().filter(|e| matches!(e, Event::Crash)).count();
        let failures = events.iter().filter(|e| matches!(e, Event::Send { ok: false })).count();
        let mut times = BTreeMap::new();
        world.sent.iter().for_each(|n| *times.entry(n).or_insert(0usize) += 1);
        let repeated: usize = times.values().map(|t| t - 1).sum();
        prop_assert!(repeated <= crashes + failures, "{repeated} repetitions for {crashes} crashes and {failures} failures");
    }
}
