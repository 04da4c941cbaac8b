//! When an environment or a pipeline is ready: all of its parts run one revision.
//!
//! In: the settled state of each part (a target of an environment, an environment of a pipeline), and whether it can be seen now.
//! Out: what they are together ([`together`]), and what that means beside the last state that counted ([`settle_group`]).
//!
//! What cannot be seen decides nothing: a cluster that is out of reach makes no environment ready, and ends no readiness.

use crate::api::{Settled, State, Status};

use super::settle::{Verdict, state};

/// One part of a group.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The last state that counted; `None` before the first sight.
    pub settled: Option<&'a Settled>,
    /// Whether that is so now, for all that can be seen.
    pub seen: bool,
}

/// What the parts of a group are together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together<'a> {
    /// All are `Current` at this revision.
    Ready(&'a str),
    /// One is not, or they run different revisions. With the revision that all were last `Current` at, if that is one.
    NotReady(Option<&'a str>),
    /// It depends on a part that cannot be seen.
    Undecided,
}

/// What these parts are together.
#[must_use]
pub fn together<'a>(parts: impl IntoIterator<Item = Part<'a>>) -> Together<'a> {
    let (mut undecided, mut ready) = (false, true);
    // All that can be seen agree on: what they are at, and what they were last `Current` at.
    let (mut at, mut last): (Option<&str>, Option<Option<&str>>) = (None, None);
    for part in parts {
        let Some(settled) = part.settled.filter(|_| part.seen) else {
            undecided = true;
            continue;
        };
        ready &= settled.status == Status::Current && *at.get_or_insert(&settled.revision) == settled.revision;
        let current = settled.current.as_deref();
        last = Some(last.unwrap_or(current).filter(|last| Some(*last) == current));
    }
    match at {
        _ if !ready => Together::NotReady(last.flatten()),
        Some(revision) if !undecided => Together::Ready(revision),
        _ => Together::Undecided,
    }
}

/// Compares what the parts are together with the last state of the group that counted. `reader` names what makes its revisions
/// comparable: with another, a new baseline is taken. `since` is the log's serial now.
#[must_use]
pub fn settle_group(settled: Option<&Settled>, together: Together<'_>, reader: &str, since: i64) -> Verdict {
    let (status, revision, last) = match together {
        Together::Undecided => return Verdict::Ignored,
        Together::Ready(revision) => (Status::Current, revision, Some(revision)),
        Together::NotReady(last) => (Status::InProgress, "", last),
    };
    let old = settled.filter(|s| s.reader == reader);
    if old.is_some_and(|old| old.status == status && old.revision == revision) {
        return Verdict::Ignored;
    }
    // What it was last ready at is known from then on; at first sight it is what all parts ran last, or a first sight in the
    // midst of an interval would be news a moment later.
    let kept = old.filter(|_| status != Status::Current).map(|old| old.current.clone());
    let new = Settled {
        status,
        revision: revision.to_owned(),
        current: kept.unwrap_or_else(|| last.map(str::to_owned)),
        reader: reader.to_owned(),
        since: settled.map_or(since, |s| s.since),
        based: settled.map_or(0, |s| if old.is_some() { s.based } else { since }),
        ..Settled::default()
    };
    match old {
        None => Verdict::Baseline(new),
        Some(old) => Verdict::Changed { from: state(old, "", ""), to: state(&new, "", ""), settled: new },
    }
}

/// The states of a cluster, as a change carries them.
#[must_use]
pub fn cluster_state(reachable: bool, reason: &str, message: &str) -> State {
    State {
        status: if reachable { Status::Current } else { Status::Failed },
        current: Some(String::new()),
        failed: !reachable,
        reason: reason.to_owned(),
        message: message.to_owned(),
        ..State::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(status: Status, revision: &str) -> Settled {
        Settled { status, revision: revision.to_owned(), reader: "r".to_owned(), ..Settled::default() }
    }

    #[test]
    fn what_parts_are_together() {
        use Status::{Current, Failed, InProgress};
        let (one, two, failed) = (at(Current, "1"), at(Current, "2"), at(Failed, "1"));
        let moving = at(InProgress, "2");
        let seen = |settled| Part { settled: Some(settled), seen: true };
        let unseen = |settled| Part { settled: Some(settled), seen: false };
        let new = Part { settled: None, seen: true };
        let (rests, waits) = (Settled { current: Some("1".to_owned()), ..at(InProgress, "1") }, at(Current, "1"));
        let waits = Settled { current: Some("1".to_owned()), ..waits };
        assert_eq!(together([seen(&rests), seen(&waits)]), Together::NotReady(Some("1")), "all ran this last");
        assert_eq!(together([seen(&rests), seen(&two)]), Together::NotReady(None));
        for (name, parts, want) in [
            ("none", vec![], Together::Undecided),
            ("one", vec![seen(&one)], Together::Ready("1")),
            ("the same", vec![seen(&one), seen(&one)], Together::Ready("1")),
            ("different", vec![seen(&one), seen(&two)], Together::NotReady(None)),
            ("one has failed", vec![seen(&one), seen(&failed)], Together::NotReady(None)),
            ("one is on its way", vec![seen(&moving), seen(&two)], Together::NotReady(None)),
            ("one is out of sight", vec![seen(&one), unseen(&one)], Together::Undecided),
            ("one out of sight that was another", vec![seen(&one), unseen(&two)], Together::Undecided),
            ("one out of sight that had failed", vec![seen(&one), unseen(&failed)], Together::Undecided),
            ("out of sight, and one has failed", vec![unseen(&one), seen(&failed)], Together::NotReady(None)),
            ("out of sight, and others differ", vec![seen(&one), unseen(&one), seen(&two)], Together::NotReady(None)),
            ("one is new", vec![seen(&one), new], Together::Undecided),
            ("all are out of sight", vec![unseen(&one)], Together::Undecided),
        ] {
            assert_eq!(together(parts), want, "{name}");
        }
    }

    #[test]
    fn what_counts_of_a_group() {
        use Status::{Current, InProgress};
        let group = |status, revision: &str, current: Option<&str>| Settled {
            current: current.map(str::to_owned),
            since: 7,
            ..at(status, revision)
        };
        let (ready, left) = (group(Current, "1", Some("1")), group(InProgress, "", Some("1")));
        let table = [
            (&ready, Together::Ready("1"), None),
            (&ready, Together::Undecided, None),
            (&ready, Together::NotReady(None), Some(left.clone())),
            (&ready, Together::Ready("2"), Some(group(Current, "2", Some("2")))),
            (&left, Together::NotReady(None), None),
            (&left, Together::Ready("1"), Some(ready.clone())),
        ];
        for (before, now, want) in table {
            match (settle_group(Some(before), now, "r", 99), want) {
                (Verdict::Ignored, None) => {}
                (Verdict::Changed { from, to, settled }, Some(want)) => {
                    assert_eq!(settled, want, "{before:?} {now:?}");
                    assert_eq!((from, to), (state(before, "", ""), state(&want, "", "")));
                }
                (got, want) => panic!("{before:?} {now:?}: got {got:?}, want {want:?}"),
            }
        }
        assert_eq!(settle_group(None, Together::Undecided, "r", 7), Verdict::Ignored);
        assert_eq!(settle_group(None, Together::NotReady(None), "r", 7), Verdict::Baseline(group(InProgress, "", None)));
        let first = settle_group(None, Together::NotReady(Some("1")), "r", 7);
        assert_eq!(first, Verdict::Baseline(left.clone()), "in the midst of an interval");
        let other = Settled { reader: "other".to_owned(), ..left };
        let again = Settled { based: 99, ..ready };
        assert_eq!(settle_group(Some(&other), Together::Ready("1"), "r", 99), Verdict::Baseline(again));
    }
}
