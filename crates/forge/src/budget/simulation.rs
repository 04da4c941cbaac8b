//! 1,000 open promotions with one token, over hours.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;

const OPEN: usize = 1000;
const HOURS: u64 = 12;
/// Latency of a request, in seconds.
const LATENCY: u64 = 2;

struct Run {
    budget: Budget,
    /// When each promotion is due, in seconds.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    running: BinaryHeap<Reverse<u64>>,
    looked: Vec<Vec<u64>>,
    made: Vec<u64>,
    /// How long attempts waited.
    waits: Vec<u64>,
    attempts: Vec<u64>,
}

impl Run {
    fn second(&mut self, second: u64, start: Time) {
        let now = start + Duration::from_secs(second);
        while self.running.peek().is_some_and(|Reverse(end)| *end <= second) {
            self.running.pop();
            self.budget.end(End::Answered { limits: Limits::default(), limited: false }, now);
        }
        // An attempt of five requests begins every five minutes.
        if second % 300 == 17 {
            self.attempts.extend([second; 5]);
        }
        while let Some(since) = self.attempts.first().copied() {
            if self.budget.ask(Priority::Prompt, now) != Quota::Now {
                break;
            }
            self.attempts.remove(0);
            self.waits.push(second - since);
            self.begin(second);
        }
        while let Some(Reverse((due, promotion))) = self.due.peek().copied() {
            if due > second || self.budget.ask(Priority::Scheduled, now) != Quota::Now {
                break;
            }
            self.due.pop();
            self.looked[promotion].push(second);
            self.begin(second);
            let interval = self.budget.interval(Duration::from_mins(1), OPEN, 1).as_secs();
            // A jitter of up to 20 %, different for each look.
            let jitter = interval * ((promotion as u64 * 7 + second * 13) % 41) / 200;
            self.due.push(Reverse((second + interval * 9 / 10 + jitter, promotion)));
        }
    }

    fn begin(&mut self, second: u64) {
        self.made.push(second);
        self.running.push(Reverse(second + LATENCY));
        assert!(self.running.len() <= AT_ONCE as usize);
    }
}

#[test]
fn a_thousand_open_promotions_stay_within_the_budget() {
    let start = Time::from_second(1_700_000_000).unwrap();
    let mut run = Run {
        budget: Budget::new(start),
        due: (0..OPEN).map(|promotion| Reverse((0, promotion))).collect(),
        running: BinaryHeap::new(),
        looked: vec![Vec::new(); OPEN],
        made: Vec::new(),
        waits: Vec::new(),
        attempts: Vec::new(),
    };
    for second in 0..HOURS * 3600 {
        run.second(second, start);
    }
    for (at, first) in run.made.iter().enumerate() {
        let hour = run.made[at..].iter().take_while(|second| **second < first + 3600).count();
        assert!(hour <= PER_HOUR as usize, "{hour} requests in an hour");
    }
    let longest = run.waits.iter().max().unwrap();
    assert!(run.waits.len() >= 700 && *longest <= 2 * LATENCY, "an attempt waited {longest} s");
    let looks: Vec<usize> = run.looked.iter().map(Vec::len).collect();
    let (least, most) = (looks.iter().min().unwrap(), looks.iter().max().unwrap());
    assert!(*least >= 6 && most - least <= 2, "between {least} and {most} looks");
    let gap = run.looked.iter().flat_map(|looked| looked.windows(2).map(|pair| pair[1] - pair[0])).max().unwrap();
    assert!(gap <= 7200, "a promotion was not looked at for {gap} s");
}
