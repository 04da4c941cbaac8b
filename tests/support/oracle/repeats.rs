//! Which requests may be repeated although they were answered finally, and how many may be missing from the audit. Pure.
//!
//! In: when Relaybook was killed, the requests of one lane or of one message. Out: the repetitions that no kill explains.

use std::time::Instant;

use super::Seen;

/// Repetitions that are allowed in a lane.
#[derive(Clone, Debug)]
pub enum Repeats {
    /// This many, at any time: 1 after a crash.
    AtMost(usize),
    /// One for each kill, and only across it. Each entry is the time of the kill and of the start after it.
    Across(Vec<(Instant, Instant)>),
}

impl Default for Repeats {
    fn default() -> Self {
        Self::AtMost(0)
    }
}

/// Describes the repetitions of one lane that are not allowed.
pub fn beyond(forgiven: &Repeats, messages: &[Vec<&Seen>]) -> Vec<String> {
    let mut found = Vec::new();
    match forgiven {
        Repeats::AtMost(allowed) => {
            let after = |message: &Vec<&Seen>| {
                let taken = message.iter().position(|s| s.answered.is_some_and(|(status, _)| is_taken(status)));
                taken.map_or(0, |first| message.len() - 1 - first)
            };
            let repeated: usize = messages.iter().map(after).sum();
            if repeated > *allowed {
                found.push(format!("{repeated} requests after a 2xx, {allowed} allowed"));
            }
        }
        Repeats::Across(kills) => {
            let mut unused: Vec<_> = kills.iter().collect();
            for (taken, again) in messages.iter().flat_map(|m| repeated(m)) {
                if let Some(explains) = unused.iter().position(|kill| falls_between(kill, taken, again)) {
                    unused.remove(explains);
                } else {
                    let (code, gap) = (taken.answered.map_or(0, |(status, _)| status), again.at - taken.at);
                    found.push(format!("{} came again {gap:?} after a {code}, and no kill explains it", taken.what));
                }
            }
        }
    }
    found
}

/// Returns how many requests of a message may have been made without being recorded.
pub fn unwritten(forgiven: &Repeats, message: &[&Seen]) -> usize {
    match forgiven {
        Repeats::AtMost(allowed) => *allowed,
        Repeats::Across(kills) => {
            let cut_off = |pair: &&[&Seen]| kills.iter().any(|kill| falls_between(kill, pair[0], pair[1]));
            message.windows(2).filter(cut_off).count()
        }
    }
}

/// Returns how many attempts of a message may have timed out while Relaybook was paused, before their request was written.
pub fn unseen(frozen: &[Instant], before: Option<&[&Seen]>, message: &[&Seen]) -> usize {
    let since = before.and_then(<[_]>::last).map(|last| last.at);
    let until = message.last().map(|last| last.at);
    frozen.iter().filter(|end| since.is_none_or(|since| **end > since) && until.is_some_and(|until| **end <= until)).count()
}

/// Returns the requests of a message that were repeated although they were answered finally, each with its successor.
pub fn repeated<'a>(message: &[&'a Seen]) -> Vec<(&'a Seen, &'a Seen)> {
    let for_good = |s: &Seen| s.answered.is_some_and(|(status, _)| is_taken(status) || status == 400);
    message.windows(2).filter(|pair| for_good(pair[0])).map(|pair| (pair[0], pair[1])).collect()
}

/// Whether this status code means that the receiver accepted the message.
pub fn is_taken(status: u16) -> bool {
    (200..=299).contains(&status)
}

/// Whether Relaybook was down at some time between the two requests. A request that arrives while it is down was sent before.
fn falls_between((killed, started): &(Instant, Instant), one: &Seen, next: &Seen) -> bool {
    *started >= one.at && *killed <= next.at
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::support::lanes::Lane;

    /// Returns requests of one message, from their times of arrival and the answers, which follow 5 ms later.
    fn message(begin: Instant, requests: &[(u64, Option<u16>)]) -> Vec<Seen> {
        let at = |ms| begin + Duration::from_millis(ms);
        let seen = |(ms, code): &(u64, Option<u16>)| Seen {
            lane: Lane { namespace: "ns".into(), path: "p".into() },
            what: "Deployed 1".into(),
            serial: 1,
            id: "id".into(),
            body: Vec::new(),
            at: at(*ms),
            answered: code.map(|code| (code, at(ms + 5))),
        };
        requests.iter().map(seen).collect()
    }

    #[test]
    fn only_a_kill_between_two_requests_explains_a_repetition() {
        let begin = Instant::now();
        let (ok, no, none) = (Some(200), Some(500), None);
        for (name, requests, kills, unexplained, unwritten_) in [
            ("once", vec![(10, ok)], vec![], 0, 0),
            ("tried until it was taken", vec![(10, no), (20, none), (30, ok)], vec![], 0, 0),
            ("again without a kill", vec![(10, ok), (20, ok)], vec![], 1, 0),
            ("again after a 400", vec![(10, Some(400)), (20, Some(400))], vec![], 1, 0),
            ("killed between", vec![(10, ok), (40, ok)], vec![(20, 30)], 0, 1),
            ("killed before it was answered", vec![(10, ok), (40, ok)], vec![(12, 30)], 0, 1),
            ("killed before it arrived", vec![(10, ok), (40, ok)], vec![(8, 30)], 0, 1),
            ("killed earlier", vec![(10, ok), (40, ok)], vec![(1, 9)], 1, 0),
            ("killed later", vec![(10, ok), (40, ok)], vec![(50, 60)], 1, 0),
            ("once for one kill", vec![(10, ok), (40, ok), (50, ok)], vec![(20, 30)], 1, 1),
            ("twice for two", vec![(10, ok), (40, ok), (70, ok)], vec![(20, 30), (50, 60)], 0, 2),
            ("again, then tried", vec![(10, ok), (40, no), (50, ok)], vec![(20, 30)], 0, 1),
        ] {
            let at = |ms| begin + Duration::from_millis(ms);
            let kills = Repeats::Across(kills.into_iter().map(|(from, to)| (at(from), at(to))).collect());
            let seen = message(begin, &requests);
            let message: Vec<_> = seen.iter().collect();
            assert_eq!(beyond(&kills, std::slice::from_ref(&message)).len(), unexplained, "{name}");
            assert_eq!(unwritten(&kills, &message), unwritten_, "{name}");
        }
    }

    #[test]
    fn an_attempt_can_be_unseen_only_while_its_message_is_the_next() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let (one, other) = (message(begin, &[(10, Some(200))]), message(begin, &[(30, None), (40, Some(200))]));
        let [one, other]: [Vec<_>; 2] = [&one, &other].map(|m| m.iter().collect());
        for (end, of_one, of_other) in [(5, 1, 0), (20, 0, 1), (35, 0, 1), (50, 0, 0)] {
            assert_eq!(unseen(&[at(end)], None, &one), of_one, "{end}");
            assert_eq!(unseen(&[at(end)], Some(&one), &other), of_other, "{end}");
        }
    }

    #[test]
    fn one_kill_explains_one_message_of_a_lane() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let kills = Repeats::Across(vec![(at(20), at(30))]);
        let (one, other) =
            (message(begin, &[(10, Some(200)), (40, Some(200))]), message(begin, &[(15, Some(200)), (50, Some(200))]));
        let messages: Vec<Vec<_>> = [&one, &other].map(|m| m.iter().collect()).into();
        assert_eq!(beyond(&kills, &messages).len(), 1);
    }
}
