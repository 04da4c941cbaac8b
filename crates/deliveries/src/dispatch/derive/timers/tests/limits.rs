//! How many timers run at once.

use super::*;

/// Derives for a notification with these triggers, and with this limit of timers.
fn with_limit(
    log: &ChangeLog,
    (now, after): (i64, i64),
    armed: &[RunningTimer],
    timer_limit: usize,
    triggers: &Triggers,
) -> Derived {
    let (pipeline, none, subjects, based) = (PipelineRef::default(), Texts::default(), Subjects::default(), HashMap::new());
    let of = PipelineLog { pipeline: &pipeline, labels: &none, annotations: &none, subjects: &subjects, based: &based, log };
    let (cursor, taken) = (Cursor { serial: after, ..Cursor::default() }, Taken::new());
    let from = Reached { cursor: &cursor, taken: &taken, armed, timer_limit };
    derive(&of, &from, |_| Wants::These(triggers, Ordering::Target), at(now))
}

#[test]
fn the_number_of_running_timers_is_limited() {
    let whole = log(&[(0, 0, true, false), (0, 1, true, false), (0, 2, true, false), (0, 0, true, true)]);
    let derived = with_limit(&whole, (1_000_000, 100), &[], 2, &triggers("2s"));
    assert_eq!((derived.reached, derived.armed.len(), derived.next), (102, 2, Some(Duration::from_millis(2500))));
    assert!(derived.timer_limit_reached && derived.fired == 0);
    let at_once = Triggers::compile(&[serde_json::from_value(json!({"type": "Failed"})).unwrap()]).unwrap();
    let derived = with_limit(&whole, (1_000_000, 100), &[], 0, &at_once);
    assert!(
        !derived.timer_limit_reached && derived.reached == 104 && derived.lanes.len() == 3,
        "the clocks of others are nothing to it"
    );
}

#[test]
fn a_timer_that_has_fired_frees_its_place_only_when_it_is_recorded() {
    let (first, both) = (log(&[(0, 0, true, false)]), log(&[(0, 0, true, false), (3000, 1, true, false)]));
    let armed = with_limit(&first, (1_000_000, 100), &[], 1, &triggers("2s")).armed;
    let derived = with_limit(&both, (1_010_000, 101), &armed, 1, &triggers("2s"));
    assert_eq!((derived.timer_limit_reached, derived.fired, derived.reached, derived.timers()), (true, 1, 101, 1));
}

#[test]
fn a_timer_whose_state_has_ended_takes_no_place() {
    let whole = log(&[(0, 0, true, false), (0, 1, true, false), (100, 0, false, false)]);
    let derived = with_limit(&whole, (1_000_000, 100), &[], 1, &triggers("2s"));
    assert_eq!((derived.timer_limit_reached, derived.reached, derived.armed[0].serial), (false, 103, 102));
    // A timer was armed before the change that ends it arrived. Meanwhile the cursor does not advance, because the limit is reached.
    let armed = RunningTimer { serial: 101, subject: "target/dev/c/a".to_owned(), ..derived.armed[0].clone() };
    assert_eq!(with_limit(&whole, (1_000_000, 101), &[armed], 1, &triggers("2s")).armed, derived.armed);
}

proptest! {
    /// The total number of timers is bounded, however many notifications there are. A notification can use the part that another one
    /// leaves.
    #[test]
    fn the_total_number_of_timers_is_bounded_within_a_pass(wanted in prop::collection::vec((0usize..700, 0usize..700), 1..6)) {
        let before: Vec<_> = wanted.iter().scan(MOST, |left, (running, _)| {
            let running = (*running).min(*left);
            *left -= running;
            Some(running)
        }).collect();
        let mut quota = TimerQuota::new(before.iter().sum());
        let mut now = before.clone();
        for (at, (_, wants)) in wanted.iter().enumerate() {
            let limit = quota.limit(before[at]);
            now[at] = (*wants).min(limit);
            quota.put(before[at], now[at]);
            let all: usize = now.iter().sum();
            prop_assert!(all <= MOST);
            prop_assert!(now[at] == *wants || all == MOST, "no more than that, and no less");
        }
    }
}
