use super::origin::{FAILURES, LONGEST};
use super::*;
use crate::outbox::lane::schedule::gap;
use relaybook_settings::config::Retry;

fn lane(notification: &str, n: usize) -> LaneKey {
    LaneKey { namespace: "ns".into(), pipeline: "p".into(), notification: notification.into(), lane: n.to_string() }
}

/// Takes lanes until no worker is free or no lane can be taken.
fn take(fair_queue: &mut FairQueue, now: Instant) -> Vec<Turn> {
    std::iter::from_fn(|| fair_queue.next(now)).collect()
}

fn refused(fair_queue: &mut FairQueue, turn: &Turn, now: Instant, seconds: u64) -> Vec<ObjectName> {
    let again = now + Duration::from_secs(seconds);
    fair_queue.release(&turn.origin, &turn.lane, AttemptOutcome::NoConnection { again }, now)
}

#[test]
fn hung_origins_leave_workers_for_an_origin_that_answers() {
    let (mut fair_queue, now) = (FairQueue::new(64), Instant::now());
    for hung in ["x", "y", "z"] {
        (0..100).for_each(|n| fair_queue.ready(hung, lane("a", n), now));
    }
    let held = take(&mut fair_queue, now);
    assert_eq!(held.len(), 3 * FIRST);
    for turn in held.iter().filter(|turn| turn.origin == "x") {
        fair_queue.release("x", &turn.lane, AttemptOutcome::Silence, now);
    }
    assert_eq!(take(&mut fair_queue, now).len(), 1, "after its timeouts it holds one");
    (0..200).for_each(|n| fair_queue.ready("fine", lane("a", n), now));
    for _ in 0..200 {
        let turn = fair_queue.next(now).unwrap();
        assert_eq!(turn.origin, "fine");
        fair_queue.release("fine", &turn.lane, AttemptOutcome::Answer, now);
    }
    assert!(fair_queue.next(now).is_none());
}

/// A lane of a namespace.
fn of(namespace: &str, n: usize) -> LaneKey {
    LaneKey { namespace: namespace.into(), ..lane("a", n) }
}

#[test]
fn a_namespace_with_many_hung_origins_leaves_room_for_others() {
    for hostile in [1, 4] {
        let (mut fair_queue, now) = (FairQueue::new(64), Instant::now());
        for n in 0..400 {
            fair_queue.ready(&format!("hangs-{n}"), of(&format!("hostile-{}", n % hostile), n), now);
        }
        let mut held = take(&mut fair_queue, now);
        // Also after none of them has answered, and at origins that are new.
        for round in 0..3 {
            assert!(held.len() <= 64 * hostile / (hostile + 1) + hostile, "{} of {hostile} in round {round}", held.len());
            for n in 0..20 {
                fair_queue.ready(&format!("fine-{round}-{n}"), of("fine", n), now);
                let turn = take(&mut fair_queue, now).pop().expect("a worker is free");
                assert_eq!(turn.lane.namespace, "fine");
                fair_queue.release(&turn.origin, &turn.lane, AttemptOutcome::Answer, now);
            }
            for turn in held.drain(..) {
                fair_queue.release(&turn.origin, &turn.lane, AttemptOutcome::Silence, now);
                fair_queue.ready(&turn.origin, turn.lane, now);
            }
            held = take(&mut fair_queue, now);
        }
    }
}

#[test]
fn an_origin_that_answers_earns_half_of_the_workers_and_no_more() {
    let (mut fair_queue, now) = (FairQueue::new(40), Instant::now());
    (0..400).for_each(|n| fair_queue.ready("fine", lane("a", n), now));
    for _ in 0..100 {
        let turn = fair_queue.next(now).unwrap();
        fair_queue.release(&turn.origin, &turn.lane, AttemptOutcome::Answer, now);
    }
    assert_eq!(take(&mut fair_queue, now).len(), 20);
}

/// A queue with this number of workers, whose notification `a` at the origin `x` was answered after `took`.
fn answered(workers: usize, took: Duration, now: Instant) -> FairQueue {
    let mut fair_queue = FairQueue::new(workers);
    fair_queue.ready("x", lane("a", 0), now);
    let turn = fair_queue.next(now).unwrap();
    fair_queue.took(&turn, AttemptOutcome::Answer, Some(took));
    fair_queue.release("x", &turn.lane, AttemptOutcome::Answer, now);
    fair_queue
}

#[test]
fn a_prompt_answer_is_expected_while_few_lanes_wait_before() {
    let now = Instant::now();
    // Nine lanes are worked on at once: the limit of the notification is 8, and its answer has raised it by one.
    for (took, most) in [(1, 9 * 126), (25, 9 * 6), (60, 9 * 3), (125, 9 * 2), (126, 9), (250, 9)] {
        let mut fair_queue = answered(32, Duration::from_millis(took), now);
        assert!(!fair_queue.is_prompt("x", &lane("b", 1)), "another notification has no answer yet");
        let mut count = 0;
        while fair_queue.is_prompt("x", &lane("a", count)) && count < 2000 {
            fair_queue.ready("x", lane("a", count), now);
            take(&mut fair_queue, now);
            count += 1;
        }
        assert_eq!(count, most, "{took} ms");
    }
    assert!(!answered(32, DIRECT + Duration::from_millis(1), now).is_prompt("x", &lane("a", 1)));
}

#[test]
fn a_prompt_answer_is_expected_beside_hung_origins() {
    let now = Instant::now();
    let mut fair_queue = answered(64, Duration::from_millis(50), now);
    for origin in 0..20 {
        fair_queue.ready(&origin.to_string(), lane("a", 0), now);
    }
    assert_eq!(take(&mut fair_queue, now).len(), 20);
    // The share of each of 21 origins is two workers. Half of 250 ms is enough for two requests of each worker.
    for n in 0..6 {
        assert!(fair_queue.is_prompt("x", &lane("a", n)), "{n}");
        fair_queue.ready("x", lane("a", n), now);
        take(&mut fair_queue, now);
    }
    assert!(!fair_queue.is_prompt("x", &lane("a", 6)));
}

#[test]
fn no_prompt_answer_is_expected_while_other_origins_use_the_workers() {
    let now = Instant::now();
    let mut fair_queue = answered(16, Duration::from_millis(1), now);
    for origin in 0..16 {
        fair_queue.ready(&origin.to_string(), of(&origin.to_string(), 0), now);
    }
    assert!(fair_queue.is_prompt("x", &lane("a", 1)));
    assert_eq!(take(&mut fair_queue, now).len(), 16);
    assert!(!fair_queue.is_prompt("x", &lane("a", 1)));
}

#[test]
fn a_prompt_answer_counts_for_an_hour() {
    let now = Instant::now();
    let mut fair_queue = answered(16, Duration::from_millis(1), now);
    let hour = Duration::from_hours(1);
    fair_queue.tidy(now + hour);
    assert!(fair_queue.is_prompt("x", &lane("a", 1)));
    fair_queue.tidy(now + hour + Duration::from_secs(1));
    assert!(!fair_queue.is_prompt("x", &lane("a", 1)));
}

#[test]
fn a_token_server_that_hangs_reduces_the_limit_and_says_nothing_about_the_receiver() {
    let (mut fair_queue, now) = (FairQueue::new(64), Instant::now());
    fair_queue.ready("x", lane("a", 0), now);
    let turn = fair_queue.next(now).unwrap();
    fair_queue.release("x", &turn.lane, AttemptOutcome::NoToken, now);
    (0..20).for_each(|n| fair_queue.ready("x", lane("a", n), now));
    assert_eq!((take(&mut fair_queue, now).len(), fair_queue.unreachable()), (FIRST / 2, 0));
}

#[test]
fn a_reduced_limit_outlasts_the_longest_time_between_two_attempts() {
    let (mut fair_queue, now) = (FairQueue::new(64), Instant::now());
    fair_queue.ready("x", lane("a", 0), now);
    let turn = fair_queue.next(now).unwrap();
    fair_queue.release("x", &turn.lane, AttemptOutcome::Silence, now);
    let hour = Duration::from_hours(1);
    let longest = gap(&Retry { initial: hour, max: hour, max_age: Duration::from_hours(24) }, 1, 1.0);
    fair_queue.tidy(now + longest);
    (0..20).for_each(|n| fair_queue.ready("x", lane("a", n), now + longest));
    assert_eq!(take(&mut fair_queue, now + longest).len(), FIRST / 2, "the attempt without an answer has halved its limit");
    let mut forgotten = answered(16, Duration::from_millis(1), now);
    forgotten.tidy(now + FORGET + Duration::from_secs(1));
    assert!(forgotten.origins.is_empty());
}

#[test]
fn origins_alternate_and_lanes_of_one_origin_keep_their_order() {
    let (mut fair_queue, now) = (FairQueue::new(24), Instant::now());
    for n in 0..3 {
        fair_queue.ready("a", lane("n", n), now);
        fair_queue.ready("b", lane("n", 10 + n), now);
    }
    let turns = take(&mut fair_queue, now);
    let order: Vec<_> = turns.iter().map(|t| format!("{}{}", t.origin, t.lane.lane)).collect();
    assert_eq!(order, ["a0", "b10", "a1", "b11", "a2", "b12"]);
    for turn in turns {
        fair_queue.release(&turn.origin, &turn.lane, AttemptOutcome::Answer, now);
    }
    fair_queue.tidy(now);
    assert!(fair_queue.origins.is_empty() && fair_queue.turns.is_empty(), "nothing is kept of a good origin that rests");
    assert_eq!((fair_queue.busy, fair_queue.active), (0, 0));
}

#[test]
fn a_notification_with_many_lanes_does_not_delay_another_notification() {
    let (mut fair_queue, now) = (FairQueue::new(4), Instant::now());
    (0..1000).for_each(|n| fair_queue.ready("forge", lane("many", n), now));
    fair_queue.ready("forge", lane("one", 0), now);
    let first: Vec<_> = take(&mut fair_queue, now).into_iter().map(|t| t.lane.notification).collect();
    assert_eq!(first, ["many", "one"]);
}

#[test]
fn a_failing_notification_leaves_workers_for_others_at_the_same_origin() {
    let (mut fair_queue, now) = (FairQueue::new(64), Instant::now());
    (0..100).for_each(|n| fair_queue.ready("forge", lane("bad", n), now));
    for _ in 0..20 {
        let turn = fair_queue.next(now).unwrap();
        fair_queue.release("forge", &turn.lane, AttemptOutcome::Silence, now);
    }
    (0..100).for_each(|n| fair_queue.ready("forge", lane("good", n), now));
    let held = take(&mut fair_queue, now);
    let good = held.iter().filter(|t| t.lane.notification == "good").count();
    assert_eq!((good, held.len()), (FIRST, FIRST + 1));
}

#[test]
fn an_unreachable_origin_is_probed_by_one_lane_at_a_time() {
    let (mut fair_queue, now) = (FairQueue::new(64), Instant::now());
    (0..20).for_each(|n| fair_queue.ready("x", lane("a", n), now));
    let begun = take(&mut fair_queue, now);
    for turn in &begun {
        assert!(!turn.probe);
        assert!(refused(&mut fair_queue, turn, now, 5).is_empty());
    }
    assert!(fair_queue.next(now).is_none(), "the others wait");
    assert_eq!((fair_queue.unreachable(), fair_queue.active), (20 - FIRST, 0), "it has no use for workers");
    let due = now + Duration::from_secs(5);
    assert_eq!(fair_queue.next_probe(), Some(due));
    let probes = take(&mut fair_queue, due);
    assert_eq!(probes.len(), 1);
    assert!(probes[0].probe && !probes[0].write_failure);
    refused(&mut fair_queue, &probes[0], due, 3600);
    let due = due + LONGEST;
    assert_eq!(fair_queue.next_probe(), Some(due), "however long the lane waits");
    let probe = fair_queue.next(due).unwrap();
    assert!(probe.write_failure, "from time to time one is written");
    // A lane that becomes ready during the probe waits, too.
    fair_queue.ready("x", lane("a", 99), due);
    assert!(fair_queue.next(due).is_none());
    assert_eq!(fair_queue.release("x", &probe.lane, AttemptOutcome::Answer, due), [probe.lane.owner()]);
    assert_eq!(take(&mut fair_queue, due).len(), 2, "it begins with little and earns more");
    assert_eq!(fair_queue.next_probe(), None);
}

#[test]
fn a_lane_that_reaches_an_origin_frees_all_that_wait_for_it() {
    let (mut fair_queue, now) = (FairQueue::new(64), Instant::now());
    for name in ["a", "b"] {
        (0..30).for_each(|n| fair_queue.ready("x", lane(name, n), now));
    }
    for turn in take(&mut fair_queue, now) {
        refused(&mut fair_queue, &turn, now, 60);
    }
    assert!(fair_queue.next(now).is_none());
    fair_queue.ready("x", lane("new", 0), now);
    let turn = fair_queue.next(now).unwrap();
    assert!(!turn.probe, "what others met with is nothing to one that has not tried");
    let mut freed = fair_queue.release("x", &turn.lane, AttemptOutcome::Silence, now);
    freed.sort();
    assert_eq!(freed, [lane("a", 0).owner(), lane("b", 0).owner()]);
    assert_eq!(fair_queue.unreachable(), 0);
    // A notification that still cannot reach the origin is not freed again and again.
    for _ in 0..FAILURES {
        for turn in take(&mut fair_queue, now) {
            refused(&mut fair_queue, &turn, now, 60);
        }
    }
    let still = fair_queue.unreachable();
    assert!(still > 0);
    fair_queue.ready("x", lane("new", 1), now);
    let turn = fair_queue.next(now).unwrap();
    assert!(fair_queue.release("x", &turn.lane, AttemptOutcome::Answer, now).is_empty());
    assert_eq!(fair_queue.unreachable(), still);
}

#[test]
fn failures_with_an_answer_between_them_do_not_make_an_origin_unreachable() {
    let (mut fair_queue, now) = (FairQueue::new(64), Instant::now());
    (0..9).for_each(|n| fair_queue.ready("x", lane("a", n), now));
    for n in 0..9 {
        let turn = fair_queue.next(now).unwrap();
        if n % 3 == 2 {
            fair_queue.release("x", &turn.lane, AttemptOutcome::Answer, now);
        } else {
            refused(&mut fair_queue, &turn, now, 60);
        }
    }
    assert_eq!(fair_queue.unreachable(), 0);
}

#[test]
fn a_lane_that_was_put_back_is_the_next_one() {
    let (mut fair_queue, now) = (FairQueue::new(64), Instant::now());
    fair_queue.ready("x", lane("a", 1), now);
    fair_queue.ready("x", lane("a", 2), now);
    let turn = fair_queue.next(now).unwrap();
    fair_queue.put_back(turn.clone(), now);
    assert_eq!(fair_queue.next(now).unwrap(), turn);
    assert_eq!(fair_queue.busy, 1);
}

mod many {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// In any order of steps, no lane is lost, none is taken twice, and the counts are right.
        #[test]
        fn no_lane_is_lost_or_taken_twice(steps in prop::collection::vec((0u8..6, 0usize..3, 0usize..3, 0u64..40), 1..300)) {
            let mut fair_queue = FairQueue::new(8);
            let mut now = Instant::now();
            let (mut waiting, mut held): (usize, Vec<Turn>) = (0, Vec::new());
            for (n, (what, origin, owner, seconds)) in steps.into_iter().enumerate() {
                let (origin, owner) = (["x", "y", "z"][origin], ["a", "b", "c"][owner]);
                match what {
                    0 | 1 => {
                        fair_queue.ready(origin, lane(owner, n), now);
                        waiting += 1;
                    }
                    2 => {
                        if let Some(turn) = fair_queue.next(now) {
                            waiting -= 1;
                            prop_assert!(!held.iter().any(|h| h.lane == turn.lane && h.origin == turn.origin));
                            held.push(turn);
                        }
                    }
                    3 => now += Duration::from_secs(seconds),
                    _ => {
                        if let Some(turn) = held.pop() {
                            let again = now + Duration::from_secs(seconds);
                            let outcome = [AttemptOutcome::Answer, AttemptOutcome::Silence, AttemptOutcome::NoConnection { again }, AttemptOutcome::NoToken, AttemptOutcome::Nothing];
                            fair_queue.release(&turn.origin, &turn.lane, outcome[usize::try_from(seconds % 5).unwrap()], now);
                        }
                    }
                }
                if seconds == 7 {
                    fair_queue.tidy(now);
                }
                prop_assert_eq!(fair_queue.busy, held.len());
                let unproven: usize = fair_queue.origins.values().flat_map(|o| o.notifications.values()).filter(|n| !n.is_proven()).map(|n| n.busy).sum();
                prop_assert_eq!(fair_queue.unproven.values().sum::<usize>(), unproven);
                prop_assert!(fair_queue.busy <= 8);
            }
            // With time and responses, all lanes are taken.
            for turn in held.drain(..) {
                fair_queue.release(&turn.origin, &turn.lane, AttemptOutcome::Answer, now);
            }
            for _ in 0..1000 {
                now += Duration::from_mins(1);
                while let Some(turn) = fair_queue.next(now) {
                    waiting -= 1;
                    fair_queue.release(&turn.origin, &turn.lane, AttemptOutcome::Answer, now);
                }
            }
            prop_assert_eq!(waiting, 0);
            prop_assert_eq!((fair_queue.busy, fair_queue.active), (0, 0));
        }
    }
}
