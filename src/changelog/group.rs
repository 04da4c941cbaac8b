//! When an environment or a pipeline is ready: all of its parts run the same revision.
//!
//! In: the settled state of each part (a target of an environment, an environment of a pipeline), and whether it can be observed now.
//! Out: the common state of the parts ([`group_state`]), and what it means compared with the last settled state ([`settle_group`]).
//!
//! A part that cannot be observed decides nothing: an unreachable cluster neither makes an environment ready nor ends its readiness.

use crate::api::{Settled, State, Status};

use super::settle::{Verdict, state};

/// One part of a group.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The last settled state. `None` before the first observation.
    pub settled: Option<&'a Settled>,
    /// Whether the part can be observed now, so that the settled state is current.
    pub seen: bool,
}

/// The common state of the parts of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState<'a> {
    /// All are `Current` at this revision.
    Ready(&'a str),
    /// A part is not `Current`, or the parts run different revisions. Contains the revision at which all parts were last `Current`,
    /// if it is the same for all.
    NotReady(Option<&'a str>),
    /// The state depends on a part that cannot be observed.
    Undecided,
}

/// The common state of these parts.
#[must_use]
pub fn group_state<'a>(parts: impl IntoIterator<Item = Part<'a>>) -> GroupState<'a> {
    let (mut undecided, mut ready) = (false, true);
    // What all observed parts agree on: their revision, and the revision at which they were last `Current`.
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
        _ if !ready => GroupState::NotReady(last.flatten()),
        Some(revision) if !undecided => GroupState::Ready(revision),
        _ => GroupState::Undecided,
    }
}

/// Compares the common state of the parts with the last settled state of the group. `reader` identifies what makes its revisions
/// comparable: with another `reader`, a new baseline is taken. `since` is the current serial of the log.
#[must_use]
pub fn settle_group(settled: Option<&Settled>, group: GroupState<'_>, reader: &str, since: i64) -> Verdict {
    let (status, revision, last) = match group {
        GroupState::Undecided => return Verdict::Ignored,
        GroupState::Ready(revision) => (Status::Current, revision, Some(revision)),
        GroupState::NotReady(last) => (Status::InProgress, "", last),
    };
    let old = settled.filter(|s| s.reader == reader);
    if old.is_some_and(|old| old.status == status && old.revision == revision) {
        return Verdict::Ignored;
    }
    // After the baseline, the revision at which the group was last ready is known. For the baseline, it is the revision that all parts
    // ran last. Otherwise a baseline in the middle of an interval would cause a change a moment later.
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

/// The state of a cluster in the form that a change contains.
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
    fn the_common_state_of_parts() {
        use Status::{Current, Failed, InProgress};
        let (one, two, failed) = (at(Current, "1"), at(Current, "2"), at(Failed, "1"));
        let moving = at(InProgress, "2");
        let seen = |settled| Part { settled: Some(settled), seen: true };
        let unseen = |settled| Part { settled: Some(settled), seen: false };
        let new = Part { settled: None, seen: true };
        let (rests, waits) = (Settled { current: Some("1".to_owned()), ..at(InProgress, "1") }, at(Current, "1"));
        let waits = Settled { current: Some("1".to_owned()), ..waits };
        assert_eq!(group_state([seen(&rests), seen(&waits)]), GroupState::NotReady(Some("1")), "all ran this revision last");
        assert_eq!(group_state([seen(&rests), seen(&two)]), GroupState::NotReady(None));
        for (name, parts, want) in [
            ("none", vec![], GroupState::Undecided),
            ("one", vec![seen(&one)], GroupState::Ready("1")),
            ("the same", vec![seen(&one), seen(&one)], GroupState::Ready("1")),
            ("different", vec![seen(&one), seen(&two)], GroupState::NotReady(None)),
            ("one has failed", vec![seen(&one), seen(&failed)], GroupState::NotReady(None)),
            ("one is in progress", vec![seen(&moving), seen(&two)], GroupState::NotReady(None)),
            ("one is unseen", vec![seen(&one), unseen(&one)], GroupState::Undecided),
            ("one is unseen and had another revision", vec![seen(&one), unseen(&two)], GroupState::Undecided),
            ("one is unseen and had failed", vec![seen(&one), unseen(&failed)], GroupState::Undecided),
            ("one is unseen, and one has failed", vec![unseen(&one), seen(&failed)], GroupState::NotReady(None)),
            ("one is unseen, and others differ", vec![seen(&one), unseen(&one), seen(&two)], GroupState::NotReady(None)),
            ("one is new", vec![seen(&one), new], GroupState::Undecided),
            ("all are unseen", vec![unseen(&one)], GroupState::Undecided),
        ] {
            assert_eq!(group_state(parts), want, "{name}");
        }
    }

    #[test]
    fn group_states_that_count() {
        use Status::{Current, InProgress};
        let group = |status, revision: &str, current: Option<&str>| Settled {
            current: current.map(str::to_owned),
            since: 7,
            ..at(status, revision)
        };
        let (ready, left) = (group(Current, "1", Some("1")), group(InProgress, "", Some("1")));
        let table = [
            (&ready, GroupState::Ready("1"), None),
            (&ready, GroupState::Undecided, None),
            (&ready, GroupState::NotReady(None), Some(left.clone())),
            (&ready, GroupState::Ready("2"), Some(group(Current, "2", Some("2")))),
            (&left, GroupState::NotReady(None), None),
            (&left, GroupState::Ready("1"), Some(ready.clone())),
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
        assert_eq!(settle_group(None, GroupState::Undecided, "r", 7), Verdict::Ignored);
        assert_eq!(settle_group(None, GroupState::NotReady(None), "r", 7), Verdict::Baseline(group(InProgress, "", None)));
        let first = settle_group(None, GroupState::NotReady(Some("1")), "r", 7);
        assert_eq!(first, Verdict::Baseline(left.clone()), "in the middle of an interval");
        let other = Settled { reader: "other".to_owned(), ..left };
        let again = Settled { based: 99, ..ready };
        assert_eq!(settle_group(Some(&other), GroupState::Ready("1"), "r", 99), Verdict::Baseline(again));
    }
}
