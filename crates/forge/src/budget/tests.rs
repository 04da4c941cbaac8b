use super::*;
use crate::limits::When;

fn start() -> Time {
    Time::from_second(1_700_000_000).unwrap()
}

fn answered(limits: Limits) -> End {
    End::Answered { limits, limited: false }
}

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn shares_of_the_hourly_budget_add_up() {
    for per_hour in [1, 2, 3, 10, 60, 100, 999, 1000, 5000] {
        let [looks, prompt] = shares(per_hour);
        assert_eq!(looks.0 + looks.1 + prompt.0 + prompt.1, per_hour);
        assert!(prompt.0 >= 1, "{per_hour}");
    }
}

#[test]
fn scheduled_checks_leave_requests_for_attempts() {
    let mut budget = Budget::new(start());
    for _ in 0..LOOKS_AT_ONCE {
        assert_eq!(budget.ask(Priority::Scheduled, start()), Quota::Now);
    }
    assert_eq!(budget.ask(Priority::Scheduled, start()), Quota::Wait(start() + BUSY));
    assert_eq!(budget.ask(Priority::Prompt, start()), Quota::Now);
    assert_eq!(budget.ask(Priority::Prompt, start()), Quota::Wait(start() + BUSY));
    budget.end(answered(Limits::default()), start());
    assert_eq!(budget.ask(Priority::Prompt, start()), Quota::Now);
}

#[test]
fn questions_aside_have_all_requests_and_leave_room() {
    let mut budget = Budget::new(start());
    for _ in 0..LOOKS_AT_ONCE {
        assert_eq!(budget.ask(Priority::Aside, start()), Quota::Now);
    }
    assert_eq!(budget.ask(Priority::Aside, start()), Quota::Wait(start() + BUSY));
    assert_eq!(budget.ask(Priority::Prompt, start()), Quota::Now);
    let mut budget = Budget::new(start());
    let mut made = 0;
    while budget.ask(Priority::Aside, start()) == Quota::Now {
        budget.end(answered(Limits::default()), start());
        made += 1;
    }
    let [looks, prompt] = shares(PER_HOUR);
    assert_eq!(made, looks.0 + prompt.0);
}

#[test]
fn no_hour_has_more_requests_than_the_budget() {
    for per_hour in [60, 1000, 5000] {
        let mut budget = Budget::new(start());
        budget.set(per_hour);
        let mut made = Vec::new();
        for second in 0..10_800 {
            let now = start() + seconds(second);
            for priority in [Priority::Scheduled, Priority::Prompt, Priority::Aside] {
                while budget.ask(priority, now) == Quota::Now {
                    made.push(second);
                    budget.end(answered(Limits::default()), now);
                }
            }
        }
        for (at, first) in made.iter().enumerate() {
            let hour = made[at..].iter().take_while(|second| **second < first + 3600).count();
            assert!(hour <= per_hour as usize, "{hour} of {per_hour}");
        }
        assert!(made.len() >= per_hour as usize * 2, "{} of {per_hour}", made.len());
    }
}

#[test]
fn a_request_is_allowed_after_its_wait() {
    let (mut budget, mut now) = (Budget::new(start()), start());
    for priority in [Priority::Scheduled, Priority::Prompt, Priority::Aside] {
        for _ in 0..3000 {
            match budget.ask(priority, now) {
                Quota::Now => budget.end(answered(Limits::default()), now),
                Quota::Wait(until) => {
                    assert!(until > now);
                    now = until;
                    assert_eq!(budget.ask(priority, now), Quota::Now);
                    budget.end(answered(Limits::default()), now);
                }
            }
        }
    }
}

#[test]
fn limits_that_the_forge_reports_are_respected() {
    let reset = start() + seconds(600);
    let at = |time| Some(When::At(time));
    let github = Limits { limit: Some(5000), per_hour: Some(5000), reset: at(reset), ..Limits::default() };
    let minute = start() + seconds(60);
    for (limits, limited, looks, prompt) in [
        (Limits { remaining: Some(4000), ..github }, false, None, None),
        (Limits { remaining: Some(99), ..github }, false, Some(reset), None),
        (Limits { remaining: Some(0), ..github }, false, Some(reset), Some(reset)),
        (Limits { remaining: Some(0), ..github }, true, Some(reset), Some(reset)),
        // GitLab counts by the minute.
        (Limits { limit: Some(60), per_hour: Some(3600), remaining: Some(50), ..github }, false, None, None),
        (Limits { limit: Some(60), per_hour: Some(3600), remaining: Some(5), ..github }, false, Some(reset), None),
        // A secondary limit of GitHub: requests remain, and the reset is that of another limit.
        (Limits { remaining: Some(4000), ..github }, true, Some(minute), Some(minute)),
        (
            Limits { retry: Some(When::After(seconds(30))), ..github },
            true,
            Some(start() + seconds(30)),
            Some(start() + seconds(30)),
        ),
        (Limits { retry: at(reset), ..Limits::default() }, false, Some(reset), Some(reset)),
        (Limits::default(), true, Some(minute), Some(minute)),
        (Limits { remaining: Some(0), ..Limits::default() }, false, Some(minute), Some(minute)),
    ] {
        for (priority, expected) in [(Priority::Scheduled, looks), (Priority::Prompt, prompt), (Priority::Aside, looks)] {
            let mut budget = Budget::new(start());
            budget.ask(Priority::Prompt, start());
            budget.end(End::Answered { limits, limited }, start());
            let quota = expected.map_or(Quota::Now, Quota::Wait);
            assert_eq!(budget.ask(priority, start()), quota, "{priority:?} {limits:?} {limited}");
            if let Some(until) = expected {
                assert_eq!(budget.ask(priority, until), Quota::Now);
            }
        }
    }
}

#[test]
fn the_number_of_requests_follows_the_forge_within_bounds() {
    let mut budget = Budget::new(start());
    for (says, expected) in [(60, 60), (5000, 5000), (1_000_000, MAX_PER_HOUR), (1, 1)] {
        budget.ask(Priority::Prompt, start());
        budget.end(answered(Limits { per_hour: Some(says), ..Limits::default() }), start());
        assert_eq!(budget.per_hour(), expected);
    }
}

#[test]
fn a_clock_that_is_set_back_stops_nothing() {
    let mut budget = Budget::new(start());
    while budget.ask(Priority::Prompt, start()) == Quota::Now {
        budget.end(End::Unreachable, start());
    }
    let back = start() - Duration::from_hours(100);
    assert!(matches!(budget.ask(Priority::Prompt, back), Quota::Wait(_)));
    assert_eq!(budget.ask(Priority::Prompt, back + seconds(60)), Quota::Now);
}

#[test]
fn an_interval_grows_with_the_number_of_promotions() {
    let budget = Budget::new(start());
    let asked = seconds(60);
    for (open, requests, expected) in
        [(0, 1, 60), (1, 1, 60), (10, 1, 60), (10, 2, 109), (1000, 1, 5479), (1_000_000, 1, 86_400)]
    {
        let interval = budget.interval(asked, open, requests);
        assert_eq!(interval.as_secs(), expected, "{open} {requests}");
    }
    assert_eq!(budget.interval(Duration::from_hours(48), usize::MAX, u32::MAX), Duration::from_hours(48));
}
