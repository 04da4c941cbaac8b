//! The table of transitions.

use crate::api::{Change, State, Status, TransitionType};

/// The transition that a change is; `None` if it means nothing to a trigger.
///
/// | type | going `from` → `to` |
/// |---|---|
/// | `Deployed` | `Current` at a revision other than `from.current` |
/// | `Recovered` | `Current` at `from.current`, with `from.failed` |
/// | `Progressing` | `InProgress` with a revision other than before, or out of nothing |
/// | `Failed` | `Failed` |
/// | `Removed` | `NotFound` after anything known |
///
/// A coalesced change always means what its end state means, whatever `from` says: who takes it may stand inside it.
#[must_use]
pub fn transition(change: &Change) -> Option<TransitionType> {
    let Change { from, to, coalesced, .. } = change;
    let moved = *coalesced || !same(from, to);
    match to.status {
        Status::Current if from.current.as_ref() == Some(&to.revision) => match (from.failed, coalesced) {
            (true, _) => moved.then_some(TransitionType::Recovered),
            (false, true) => Some(TransitionType::Deployed),
            (false, false) => None,
        },
        Status::Current => moved.then_some(TransitionType::Deployed),
        Status::InProgress => {
            let begins = *coalesced || from.status == Status::NotFound || from.revision != to.revision;
            begins.then_some(TransitionType::Progressing)
        }
        Status::Failed => moved.then_some(TransitionType::Failed),
        Status::NotFound => moved.then_some(TransitionType::Removed),
        Status::Terminating | Status::Unknown => None,
    }
}

/// Whether a change leaves the state of the rollout as it was: then it is one of drift alone.
fn same(from: &State, to: &State) -> bool {
    from.status == to.status && (from.revision == to.revision || to.status == Status::NotFound)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use Status::{Current, Failed, InProgress, NotFound, Terminating, Unknown};
    use TransitionType::{Deployed, Progressing, Recovered, Removed};

    const FAILED: TransitionType = TransitionType::Failed;

    fn state(status: Status, revision: &str, current: &str, failed: bool) -> State {
        let current = (!current.is_empty()).then(|| current.to_owned());
        State { status, revision: revision.to_owned(), current, failed, ..State::default() }
    }

    fn change(from: State, to: State, coalesced: bool) -> Change {
        Change { coalesced, from, to, ..Change::default() }
    }

    #[test]
    fn the_table() {
        for (name, from, to, want) in [
            ("first", state(InProgress, "1", "", false), state(Current, "1", "1", false), Some(Deployed)),
            ("next", state(InProgress, "2", "1", false), state(Current, "2", "2", false), Some(Deployed)),
            ("at once", state(Current, "1", "1", false), state(Current, "2", "2", false), Some(Deployed)),
            ("mended by a new one", state(Failed, "2", "1", true), state(Current, "3", "3", false), Some(Deployed)),
            ("first, after failing", state(Failed, "1", "", true), state(Current, "1", "1", false), Some(Deployed)),
            ("back", state(InProgress, "2", "1", false), state(Current, "1", "1", false), None),
            ("rolled back", state(Failed, "2", "1", true), state(Current, "1", "1", false), Some(Recovered)),
            ("rolling back", state(InProgress, "1", "1", true), state(Current, "1", "1", false), Some(Recovered)),
            ("begins", state(Current, "1", "1", false), state(InProgress, "2", "1", false), Some(Progressing)),
            ("changes its mind", state(InProgress, "2", "1", false), state(InProgress, "3", "1", false), Some(Progressing)),
            ("same again", state(Failed, "2", "1", true), state(InProgress, "2", "1", true), None),
            ("made", state(NotFound, "", "", false), state(InProgress, "1", "", false), Some(Progressing)),
            ("made, of no revision", state(NotFound, "", "", false), state(InProgress, "", "", false), Some(Progressing)),
            ("made while away", state(NotFound, "", "", false), state(Current, "1", "1", false), Some(Deployed)),
            ("fails", state(InProgress, "2", "1", false), state(Failed, "2", "1", true), Some(FAILED)),
            ("fails as it runs", state(Current, "1", "1", false), state(Failed, "1", "1", true), Some(FAILED)),
            ("fails with another", state(Failed, "2", "1", true), state(Failed, "3", "1", true), Some(FAILED)),
            ("goes", state(Current, "1", "1", false), state(NotFound, "", "", false), Some(Removed)),
            ("is still gone", state(NotFound, "", "", false), state(NotFound, "", "", false), None),
            ("going", state(Current, "1", "1", false), state(Terminating, "1", "1", false), None),
            ("out of sight", state(Current, "1", "1", false), state(Unknown, "1", "1", false), None),
        ] {
            assert_eq!(transition(&change(from, to, false)), want, "{name}");
        }
    }

    #[test]
    fn drift_alone_is_no_rollout() {
        for (status, current, failed) in
            [(Current, "1", false), (Current, "", false), (Current, "1", true), (InProgress, "", false), (Failed, "", true)]
        {
            let from = state(status, "1", current, failed);
            let to = State { drifted: true, ..from.clone() };
            assert_eq!(transition(&change(from, to, false)), None, "{status:?}");
        }
    }

    fn states() -> impl Strategy<Value = State> {
        let status = prop::sample::select(vec![Current, InProgress, Failed, NotFound, Terminating, Unknown]);
        (status, "[12]?", prop::option::of("[12]?"), any::<bool>(), any::<bool>()).prop_map(
            |(status, revision, current, failed, drifted)| State {
                status,
                revision,
                current,
                failed,
                drifted,
                ..State::default()
            },
        )
    }

    proptest! {
        /// A coalesced change is never empty, and says what its end state says.
        #[test]
        fn coalesced_changes_mean_their_end(from in states(), to in states()) {
            let back = from.current.as_ref() == Some(&to.revision) && from.failed;
            let want = match to.status {
                Current => Some(if back { Recovered } else { Deployed }),
                InProgress => Some(Progressing),
                Failed => Some(FAILED),
                NotFound => Some(Removed),
                Terminating | Unknown => None,
            };
            prop_assert_eq!(transition(&change(from, to, true)), want);
        }

        /// Reason, message and drift never decide; the type always fits the status.
        #[test]
        fn only_status_and_revision_decide(from in states(), to in states(), coalesced in any::<bool>()) {
            let got = transition(&change(from.clone(), to.clone(), coalesced));
            let told = State { reason: "R".into(), message: "m".into(), drifted: !to.drifted, ..to.clone() };
            prop_assert_eq!(transition(&change(from, told, coalesced)), got);
            let fits = match got {
                None => true,
                Some(Deployed | Recovered) => to.status == Current,
                Some(Progressing) => to.status == InProgress,
                Some(TransitionType::Failed) => to.status == Failed,
                Some(Removed) => to.status == NotFound,
            };
            prop_assert!(fits);
        }
    }
}
