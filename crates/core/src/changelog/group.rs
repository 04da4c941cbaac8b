//! When an environment or a pipeline is ready: all of its parts run the same revision.
//!
//! In: the settled state of each part (a target of an environment, an environment of a pipeline), and whether it can be observed now.
//! Out: the common state of the parts ([`group_state`]), and what it means compared with the last settled state ([`settle_group`]).
//!
//! A part that cannot be observed decides nothing: an unreachable cluster neither makes an environment ready nor ends its readiness.
//! An edit of the targets is not a deployment: a state that follows from it becomes a new baseline, without a change.

use relaybook_api::{Settled, State, Status};

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

/// What a group consists of.
#[derive(Clone, Copy, Debug)]
pub struct GroupId<'a> {
    /// Identifies what makes the revisions of the group comparable. With another value, a new baseline is taken.
    pub reader: &'a str,
    /// Hash of the targets. With another value, a new baseline is taken. A settled state without a hash takes over this one. Empty: the
    /// stored hash stays.
    pub members: &'a str,
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

/// Compares the common state of the parts with the last settled state of the group. `since` is the current serial of the log.
///
/// `reached` belongs to `current`: it stays while `current` is the same. If `current` is another one, it is 0. For a change that
/// [`arrives`], the caller sets it to the serial of the change.
#[must_use]
pub fn settle_group(settled: Option<&Settled>, group: GroupState<'_>, of: GroupId<'_>, since: i64) -> Verdict {
    let (status, revision, last) = match group {
        GroupState::Undecided => return Verdict::Ignored,
        GroupState::Ready(revision) => (Status::Current, revision, Some(revision)),
        GroupState::NotReady(last) => (Status::InProgress, "", last),
    };
    let old = settled.filter(|s| s.reader == of.reader);
    let is_same = old.is_some_and(|old| old.status == status && old.revision == revision);
    if is_same && old.is_some_and(|old| of.members.is_empty() || old.members == of.members) {
        return Verdict::Ignored;
    }
    let edited = old.is_some_and(|old| is_edited(old, of.members));
    // After the baseline, the revision at which the group was last ready is known. For the baseline, it is the revision that all parts
    // ran last. Otherwise a baseline in the middle of an interval would cause a change a moment later. A new target has run none: then the
    // known revision stays, so that the target does not make it news.
    let known = old.and_then(|old| old.current.clone());
    let current = match old {
        Some(_) if status != Status::Current && !edited => known,
        _ => last.map(str::to_owned).or(known),
    };
    // An edit that changes neither the state nor `current` ends no state, so timers continue.
    let stays = |old: &Settled| is_same && old.current == current;
    let rebased = old.is_none_or(|old| edited && !stays(old));
    let members = if of.members.is_empty() { old.map_or("", |old| old.members.as_str()) } else { of.members };
    let new = Settled {
        status,
        revision: revision.to_owned(),
        reached: old.filter(|old| old.current == current).map_or(0, |old| old.reached),
        current,
        reader: of.reader.to_owned(),
        since: settled.map_or(since, |s| s.since),
        based: settled.map_or(0, |s| if rebased { since } else { s.based }),
        members: members.to_owned(),
        ..Settled::default()
    };
    match old {
        Some(old) if !is_same && !edited => {
            Verdict::Changed { from: state(old, "", ""), to: state(&new, "", ""), settled: new }
        }
        _ => Verdict::Baseline(new),
    }
}

/// Whether the targets of a group were edited since its state settled. The targets of a state that an earlier version stored are not known.
#[must_use]
pub fn is_edited(settled: &Settled, members: &str) -> bool {
    !members.is_empty() && !settled.members.is_empty() && settled.members != members
}

/// Whether a group came to run a revision other than the one at which it was last ready. This is an occasion for a promotion.
#[must_use]
pub fn arrives(verdict: &Verdict) -> bool {
    let Verdict::Changed { from, to, .. } = verdict else { return false };
    to.status == Status::Current && from.current.as_ref() != Some(&to.revision)
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

    const OF: GroupId<'static> = GroupId { reader: "r", members: "" };

    fn at(status: Status, revision: &str) -> Settled {
        Settled { status, revision: revision.to_owned(), reader: "r".to_owned(), ..Settled::default() }
    }

    #[test]
    fn a_group_is_ready_if_all_its_parts_are_current_at_one_revision() {
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
    fn only_decided_group_states_that_differ_are_changes() {
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
            match (settle_group(Some(before), now, OF, 99), want) {
                (Verdict::Ignored, None) => {}
                (Verdict::Changed { from, to, settled }, Some(want)) => {
                    assert_eq!(settled, want, "{before:?} {now:?}");
                    assert_eq!((from, to), (state(before, "", ""), state(&want, "", "")));
                }
                (got, want) => panic!("{before:?} {now:?}: got {got:?}, want {want:?}"),
            }
        }
        assert_eq!(settle_group(None, GroupState::Undecided, OF, 7), Verdict::Ignored);
        assert_eq!(settle_group(None, GroupState::NotReady(None), OF, 7), Verdict::Baseline(group(InProgress, "", None)));
        let first = settle_group(None, GroupState::NotReady(Some("1")), OF, 7);
        assert_eq!(first, Verdict::Baseline(left.clone()), "in the middle of an interval");
        let other = Settled { reader: "other".to_owned(), ..left };
        let again = Settled { based: 99, ..ready };
        assert_eq!(settle_group(Some(&other), GroupState::Ready("1"), OF, 99), Verdict::Baseline(again));
    }

    /// A group that settled at serial 7, and came to run `current` with the change 5.
    fn ran(status: Status, revision: &str, current: &str, members: &str) -> Settled {
        let (current, members) = (Some(current.to_owned()), members.to_owned());
        Settled { current, members, since: 1, based: 2, reached: 5, ..at(status, revision) }
    }

    #[test]
    fn reached_is_kept_for_the_same_revision_and_reset_for_another() {
        use Status::{Current, InProgress};
        let (ready, left) = (ran(Current, "1", "1", ""), ran(InProgress, "", "1", ""));
        let other = Settled { reader: "other".to_owned(), ..ready.clone() };
        for (what, before, now, reached, is_arrival) in [
            ("it leaves", &ready, GroupState::NotReady(None), 5, false),
            ("it comes back", &left, GroupState::Ready("1"), 5, false),
            ("another revision", &left, GroupState::Ready("2"), 0, true),
            ("another revision at once", &ready, GroupState::Ready("2"), 0, true),
            ("other rules", &other, GroupState::Ready("1"), 0, false),
        ] {
            let verdict = settle_group(Some(before), now, OF, 99);
            assert_eq!(arrives(&verdict), is_arrival, "{what}");
            let (Verdict::Changed { settled, .. } | Verdict::Baseline(settled)) = verdict else { panic!("{what}") };
            assert_eq!(settled.reached, reached, "{what}: the caller sets the serial of an arrival");
        }
        assert!(!arrives(&settle_group(None, GroupState::Ready("1"), OF, 99)), "it was so when it was first seen");
    }

    #[test]
    fn an_edit_of_the_targets_is_a_silent_baseline() {
        use Status::{Current, InProgress};
        let of = GroupId { reader: "r", members: "new" };
        let (ready, left) = (ran(Current, "1", "1", "old"), ran(InProgress, "", "1", "old"));
        for (what, before, now, status, current, reached, based) in [
            ("the same state", &ready, GroupState::Ready("1"), Current, "1", 5, 2),
            ("the target that lagged is gone", &left, GroupState::Ready("2"), Current, "2", 0, 99),
            ("the target that was ahead is gone", &left, GroupState::Ready("1"), Current, "1", 5, 99),
            ("a new target has run nothing", &ready, GroupState::NotReady(None), InProgress, "1", 5, 99),
            ("still not ready", &left, GroupState::NotReady(None), InProgress, "1", 5, 2),
            ("the rest ran another revision", &left, GroupState::NotReady(Some("2")), InProgress, "2", 0, 99),
        ] {
            let Verdict::Baseline(new) = settle_group(Some(before), now, of, 99) else { panic!("{what}") };
            let got = (new.status, new.current.as_deref(), new.reached, new.based, new.since, new.members.as_str());
            assert_eq!(got, (status, Some(current), reached, based, 1, "new"), "{what}");
            assert_eq!(settle_group(Some(&new), now, of, 100), Verdict::Ignored, "{what}: once");
        }
        assert_eq!(settle_group(Some(&ready), GroupState::Undecided, of, 99), Verdict::Ignored, "it waits");
        // A new target that deploys what the others run makes the environment ready again, and this is no occasion.
        let Verdict::Baseline(waits) = settle_group(Some(&ready), GroupState::NotReady(None), of, 99) else {
            panic!("edited")
        };
        let deployed = settle_group(Some(&waits), GroupState::Ready("1"), of, 100);
        assert!(matches!(&deployed, Verdict::Changed { settled, .. } if settled.reached == 5) && !arrives(&deployed));
    }

    #[test]
    fn a_group_state_of_an_earlier_version_gets_the_hash_of_its_targets_silently() {
        use Status::Current;
        let of = GroupId { reader: "r", members: "new" };
        let ready = ran(Current, "1", "1", "");
        let taken = Verdict::Baseline(ran(Current, "1", "1", "new"));
        assert_eq!(settle_group(Some(&ready), GroupState::Ready("1"), of, 99), taken);
        let moved = settle_group(Some(&ready), GroupState::Ready("2"), of, 99);
        assert!(arrives(&moved) && matches!(&moved, Verdict::Changed { settled, .. } if settled.members == "new"));
        // The hash is not given: the stored one stays.
        let known = ran(Current, "1", "1", "old");
        assert_eq!(settle_group(Some(&known), GroupState::Ready("1"), OF, 99), Verdict::Ignored);
        let moved = settle_group(Some(&known), GroupState::Ready("2"), OF, 99);
        assert!(matches!(moved, Verdict::Changed { settled, .. } if settled.members == "old"));
    }
}
