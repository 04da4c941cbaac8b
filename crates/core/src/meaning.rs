//! The table of transitions, and what ends a state that a timer waits for.

use crate::promotion::reason::{PUSHED, REQUEST_ACCEPTED, WAITING_APPROVAL};
use relaybook_api::delivery::{Family, SubjectKind};
use relaybook_api::promotion::Phase;
use relaybook_api::values::configuration::differ;
use relaybook_api::{Change, LogSubject, State, Status, Time, TransitionType};

/// The strategy that a receiver carries out.
const NOTIFICATION: &str = "notification";

/// The transitions of a change: first that of the existence of its subject, then that of its status, then that of drift. There are none if
/// the change means nothing to a trigger.
///
/// | subject | type | change `from` → `to` |
/// |---|---|---|
/// | target | `Added` | any other known status after `NotFound` |
/// | | `Deployed` | `Current` at a revision other than `from.current`, or with another configuration |
/// | | `Recovered` | `Current` at `from.current` with the same configuration, with `from.failed` |
/// | | `Progressing` | `InProgress` with a revision or configuration other than before, or after `NotFound` |
/// | | `Failed` | `Failed` |
/// | | `Removed` | `NotFound` after any other known status |
/// | | `Drifted` | drift appears |
/// | | `DriftCorrected` | drift disappears, and the application object still exists |
/// | cluster | `ClusterOffline` | `Failed` |
/// | | `ClusterOnline` | `Current` after `Failed` |
/// | environment | `EnvironmentReady` | `Current` at a revision other than `from.current` |
/// | pipeline | `PipelineReady` | the same |
/// | promotion | `PromotionPending` | phase `Pending`, with the reason `WaitingApproval` |
/// | | `PromotionRequested` | phase `Requested`, with the strategy `notification`, without the reason `RequestAccepted` |
/// | | `PromotionOpened` | phase `Open`, or phase `Merged` with the reason `Pushed` |
/// | | `PromotionFinished` | phase `Finished` |
/// | | `PromotionFailed` | phase `Failed` or `Closed` |
///
/// A coalesced change always means what its end state means, whatever `from` is, because the cursor of a reader can be inside it. If
/// drift has changed in it, `from.drifted` is different from `to.drifted`. It is never `Added`, because a reader whose cursor is inside it
/// can already have reported that.
pub fn transitions(change: &Change) -> impl Iterator<Item = TransitionType> + use<> {
    let all = match LogSubject::parse(&change.subject) {
        LogSubject::Target(_) | LogSubject::Other(_) => [existence(change), target(change), drift(change)],
        LogSubject::Cluster(_) => [cluster(change), None, None],
        LogSubject::Promotion(_) => [promotion(change), None, None],
        LogSubject::Environment(_) => [ready(change).then_some(TransitionType::EnvironmentReady), None, None],
        LogSubject::Pipeline => [ready(change).then_some(TransitionType::PipelineReady), None, None],
    };
    all.into_iter().flatten()
}

/// Whether a later change of the same subject ends the state that a transition of this type started.
#[must_use]
pub fn ends(type_: TransitionType, change: &Change) -> bool {
    let Change { from, to, coalesced, .. } = change;
    match type_.family() {
        // A removal that a merged change hides does not count, because the object exists again.
        Family::Existence => [from, to].iter().any(|state| state.status == Status::NotFound),
        // A change of drift alone does not change the state of the rollout.
        Family::Status => *coalesced || type_.subject() != SubjectKind::Target || !same(from, to),
        Family::Drift => {
            let drifted = type_ == TransitionType::Drifted;
            from.drifted != to.drifted || to.drifted != drifted || to.status == Status::NotFound
        }
        // Each change is one step of a promotion, or a step of the next promotion.
        Family::Promotion => true,
    }
}

/// When a change ended the state that a transition of this type started, if it [ends] that state. For a merged change, this is the time
/// of the first change that can have ended it. A state that ended earlier must not be reported as if it had lasted until the last
/// change.
#[must_use]
pub fn ended_at(type_: TransitionType, change: &Change) -> Time {
    let left = match type_.family() {
        // The object can have had other states in a merged change before it was removed.
        Family::Existence => None,
        Family::Status | Family::Promotion => change.left.status,
        Family::Drift => change.left.drift,
    };
    left.unwrap_or(change.time)
}

fn existence(change: &Change) -> Option<TransitionType> {
    let is_known = !matches!(change.to.status, Status::NotFound | Status::Terminating | Status::Unknown);
    (change.from.status == Status::NotFound && is_known && !change.coalesced).then_some(TransitionType::Added)
}

fn target(change: &Change) -> Option<TransitionType> {
    let Change { from, to, coalesced, .. } = change;
    let moved = *coalesced || !same(from, to);
    match to.status {
        Status::Current if ran_before(from, to) => match (from.failed, coalesced) {
            (true, _) => moved.then_some(TransitionType::Recovered),
            (false, true) => Some(TransitionType::Deployed),
            (false, false) => None,
        },
        Status::Current => moved.then_some(TransitionType::Deployed),
        Status::InProgress => {
            let begins = *coalesced || from.status == Status::NotFound || tries_another(from, to);
            begins.then_some(TransitionType::Progressing)
        }
        Status::Failed => moved.then_some(TransitionType::Failed),
        Status::NotFound => moved.then_some(TransitionType::Removed),
        Status::Terminating | Status::Unknown => None,
    }
}

fn drift(change: &Change) -> Option<TransitionType> {
    match (change.from.drifted, change.to.drifted) {
        (false, true) => Some(TransitionType::Drifted),
        (true, false) if change.to.status != Status::NotFound => Some(TransitionType::DriftCorrected),
        _ => None,
    }
}

fn cluster(change: &Change) -> Option<TransitionType> {
    let is_news = change.coalesced || change.from.status != change.to.status;
    match change.to.status {
        Status::Failed if is_news => Some(TransitionType::ClusterOffline),
        Status::Current if change.coalesced || change.from.status == Status::Failed => Some(TransitionType::ClusterOnline),
        _ => None,
    }
}

/// Only the phase decides, and for a promotion that waits, what it waits for. Relaybook itself carries out the strategies `commit` and
/// `pullRequest`, so their request is not for a receiver.
fn promotion(change: &Change) -> Option<TransitionType> {
    let Change { from, to, coalesced, .. } = change;
    let is_news = *coalesced || from.promotion != to.promotion || from.reason != to.reason;
    let promotion = to.promotion.as_ref().filter(|_| is_news)?;
    let is_for_receivers = ["", NOTIFICATION].contains(&promotion.strategy.as_str());
    match promotion.phase {
        Phase::Pending => (to.reason == WAITING_APPROVAL).then_some(TransitionType::PromotionPending),
        // A failed promotion whose request was accepted after all needs no other one.
        Phase::Requested if to.reason == REQUEST_ACCEPTED => None,
        Phase::Requested => is_for_receivers.then_some(TransitionType::PromotionRequested),
        Phase::Open => Some(TransitionType::PromotionOpened),
        Phase::Merged if to.reason == PUSHED => Some(TransitionType::PromotionOpened),
        Phase::Finished => Some(TransitionType::PromotionFinished),
        Phase::Failed | Phase::Closed => Some(TransitionType::PromotionFailed),
        Phase::Merged | Phase::Withdrawn => None,
    }
}

/// Whether all parts of an environment or pipeline run the same revision, which is new for it.
fn ready(change: &Change) -> bool {
    let is_new = change.coalesced || change.from.current.as_ref() != Some(&change.to.revision);
    change.to.status == Status::Current && is_new
}

/// Whether a change does not change the state of the rollout. Then it is a change of drift alone.
fn same(from: &State, to: &State) -> bool {
    from.status == to.status && (!tries_another(from, to) || to.status == Status::NotFound)
}

/// Whether the two states are about different revisions or configurations.
fn tries_another(from: &State, to: &State) -> bool {
    from.revision != to.revision || differ(&from.configuration, &to.configuration)
}

/// Whether a state is about the revision and the configuration that were last `Current` in the state before.
fn ran_before(from: &State, to: &State) -> bool {
    from.current.as_ref() == Some(&to.revision) && !differ(&from.current_configuration, &to.configuration)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use Status::{Current, Failed, InProgress, NotFound, Terminating, Unknown};
    use TransitionType::{
        Added, ClusterOffline, ClusterOnline, Deployed, DriftCorrected, Drifted, EnvironmentReady, PipelineReady,
        Progressing, PromotionFailed, PromotionFinished, PromotionOpened, PromotionPending, PromotionRequested, Recovered,
        Removed,
    };
    use relaybook_api::pipeline::Left;
    use relaybook_api::promotion::PromotionState;

    const FAILED: TransitionType = TransitionType::Failed;

    fn state(status: Status, revision: &str, current: &str, failed: bool) -> State {
        let current = (!current.is_empty()).then(|| current.to_owned());
        State { status, revision: revision.to_owned(), current, failed, ..State::default() }
    }

    fn change(from: State, to: State, coalesced: bool) -> Change {
        Change { subject: "target/prod/c/a".to_owned(), coalesced, from, to, ..Change::default() }
    }

    fn of(change: &Change) -> Vec<TransitionType> {
        transitions(change).collect()
    }

    #[test]
    fn changes_of_targets_have_the_transitions_of_the_table() {
        for (name, from, to, want) in [
            ("first", state(InProgress, "1", "", false), state(Current, "1", "1", false), Some(Deployed)),
            ("next", state(InProgress, "2", "1", false), state(Current, "2", "2", false), Some(Deployed)),
            ("at once", state(Current, "1", "1", false), state(Current, "2", "2", false), Some(Deployed)),
            ("fixed by a new one", state(Failed, "2", "1", true), state(Current, "3", "3", false), Some(Deployed)),
            ("first, after failing", state(Failed, "1", "", true), state(Current, "1", "1", false), Some(Deployed)),
            ("back", state(InProgress, "2", "1", false), state(Current, "1", "1", false), None),
            ("rolled back", state(Failed, "2", "1", true), state(Current, "1", "1", false), Some(Recovered)),
            ("rolling back", state(InProgress, "1", "1", true), state(Current, "1", "1", false), Some(Recovered)),
            ("begins", state(Current, "1", "1", false), state(InProgress, "2", "1", false), Some(Progressing)),
            ("new one starts", state(InProgress, "2", "1", false), state(InProgress, "3", "1", false), Some(Progressing)),
            ("same again", state(Failed, "2", "1", true), state(InProgress, "2", "1", true), None),
            ("fails", state(InProgress, "2", "1", false), state(Failed, "2", "1", true), Some(FAILED)),
            ("fails as it runs", state(Current, "1", "1", false), state(Failed, "1", "1", true), Some(FAILED)),
            ("fails with another", state(Failed, "2", "1", true), state(Failed, "3", "1", true), Some(FAILED)),
            ("removed", state(Current, "1", "1", false), state(NotFound, "", "", false), Some(Removed)),
            ("is still gone", state(NotFound, "", "", false), state(NotFound, "", "", false), None),
            ("terminating", state(Current, "1", "1", false), state(Terminating, "1", "1", false), None),
            ("unseen", state(Current, "1", "1", false), state(Unknown, "1", "1", false), None),
        ] {
            assert_eq!(of(&change(from, to, false)), Vec::from_iter(want), "{name}");
        }
    }

    #[test]
    fn a_new_configuration_has_the_transitions_of_a_new_revision() {
        let at = |status, about: &str, runs: &str, failed| State {
            configuration: about.to_owned(),
            current_configuration: runs.to_owned(),
            ..state(status, "1", "1", failed)
        };
        let (a, b, other) = ("values sha256:a", "values sha256:b", "values sha1:a");
        for (name, from, to, want) in [
            ("begins", at(Current, a, a, false), at(InProgress, b, a, false), Some(Progressing)),
            ("is done", at(InProgress, b, a, false), at(Current, b, b, false), Some(Deployed)),
            ("at once", at(Current, a, a, false), at(Current, b, b, false), Some(Deployed)),
            ("fails", at(InProgress, b, a, false), at(Failed, b, a, true), Some(FAILED)),
            ("fails with others", at(Failed, b, a, true), at(Failed, "values sha256:c", a, true), Some(FAILED)),
            (
                "fixed by others",
                at(Failed, b, a, true),
                at(Current, "values sha256:c", "values sha256:c", false),
                Some(Deployed),
            ),
            ("back", at(Failed, b, a, true), at(Current, a, a, false), Some(Recovered)),
            ("the same again", at(Failed, b, a, true), at(InProgress, b, a, true), None),
            ("cannot be compared", at(Failed, other, other, true), at(Current, a, a, false), Some(Recovered)),
            ("not known before", at(InProgress, "", "", false), at(Current, a, a, false), None),
            (
                "an init container is added",
                at(Current, "", "", false),
                at(Current, "init images 1", "init images 1", false),
                None,
            ),
        ] {
            assert_eq!(of(&change(from.clone(), to.clone(), false)), Vec::from_iter(want), "{name}");
            if want.is_some() {
                assert!(ends(Deployed, &change(from, to, false)), "{name}");
            }
        }
        let environment = Change {
            subject: "environment/prod".to_owned(),
            ..change(at(InProgress, b, a, false), at(Current, b, b, false), false)
        };
        assert!(of(&environment).is_empty(), "an environment is about the revision");
    }

    #[test]
    fn a_created_object_is_added_and_has_the_transitions_of_its_state() {
        let gone = state(NotFound, "", "", false);
        for (to, want) in [
            (state(InProgress, "1", "", false), vec![Added, Progressing]),
            (state(InProgress, "", "", false), vec![Added, Progressing]),
            (state(Current, "1", "1", false), vec![Added, Deployed]),
            (State { drifted: true, ..state(Current, "1", "1", false) }, vec![Added, Deployed, Drifted]),
            (state(Failed, "1", "", true), vec![Added, FAILED]),
            (state(Terminating, "1", "", false), vec![]),
            (state(Unknown, "1", "", false), vec![]),
        ] {
            let change = |coalesced| change(gone.clone(), to.clone(), coalesced);
            assert_eq!(of(&change(false)), want, "{to:?}");
            assert_eq!(
                of(&change(true)),
                want.iter().copied().filter(|type_| *type_ != Added).collect::<Vec<_>>(),
                "{to:?}"
            );
        }
    }

    #[test]
    fn drift_alone_is_not_a_rollout() {
        for (status, current, failed) in
            [(Current, "1", false), (Current, "", false), (Current, "1", true), (InProgress, "", false), (Failed, "", true)]
        {
            let from = state(status, "1", current, failed);
            let to = State { drifted: true, ..from.clone() };
            assert_eq!(of(&change(from.clone(), to.clone(), false)), [Drifted], "{status:?}");
            assert_eq!(of(&change(to, from, false)), [DriftCorrected], "{status:?}");
        }
    }

    #[test]
    fn one_change_can_have_two_transitions() {
        let drifted = State { drifted: true, ..state(Current, "1", "1", false) };
        let deployed = change(drifted.clone(), state(Current, "2", "2", false), false);
        assert_eq!(of(&deployed), [Deployed, DriftCorrected]);
        let removed = change(drifted.clone(), state(NotFound, "", "", false), false);
        assert_eq!(of(&removed), [Removed], "`Removed` alone is enough");
        let failed = change(state(Current, "1", "1", false), State { drifted: true, ..state(Failed, "1", "1", true) }, true);
        assert_eq!(of(&failed), [FAILED, Drifted]);
    }

    #[test]
    fn changes_of_clusters_environments_and_pipelines_have_their_transitions() {
        let at = |status, revision: &str, current: &str| state(status, revision, current, false);
        let (running, other) = (at(Current, "1", "1"), at(Current, "2", "2"));
        let (on, moving) = (at(Current, "", ""), at(InProgress, "", "1"));
        for (subject, from, to, coalesced, want) in [
            ("cluster/a.b", &on, at(Failed, "", ""), false, Some(ClusterOffline)),
            ("cluster/a.b", &at(Failed, "", ""), on.clone(), false, Some(ClusterOnline)),
            ("cluster/a.b", &at(Failed, "", ""), at(Failed, "", ""), false, None),
            ("cluster/a.b", &on, on.clone(), false, None),
            ("cluster/a.b", &on, on.clone(), true, Some(ClusterOnline)),
            ("cluster/a.b", &on, at(Failed, "", ""), true, Some(ClusterOffline)),
            ("environment/prod", &moving, running.clone(), false, None),
            ("environment/prod", &moving, running.clone(), true, Some(EnvironmentReady)),
            ("environment/prod", &moving, other.clone(), false, Some(EnvironmentReady)),
            ("environment/prod", &running, other.clone(), false, Some(EnvironmentReady)),
            ("environment/prod", &running, moving.clone(), false, None),
            ("environment/prod", &running, moving.clone(), true, None),
            ("pipeline", &moving, other.clone(), false, Some(PipelineReady)),
            ("pipeline", &moving, running.clone(), false, None),
            ("pipeline", &running, moving.clone(), false, None),
        ] {
            let change = Change { subject: subject.to_owned(), coalesced, from: from.clone(), to, ..Change::default() };
            assert_eq!(of(&change), Vec::from_iter(want), "{subject} {from:?}");
        }
    }

    /// The state of promotion `name` of environment `prod`. Its status says nothing, because only the phase decides.
    fn promoted(name: &str, phase: Phase, reason: &str) -> State {
        let promotion = PromotionState { name: name.to_owned(), phase, ..PromotionState::default() };
        State { revision: "2".to_owned(), reason: reason.to_owned(), promotion: Some(promotion), ..State::default() }
    }

    fn of_promotion(from: State, to: State, coalesced: bool) -> Change {
        Change { subject: "promotion/prod".to_owned(), coalesced, from, to, ..Change::default() }
    }

    #[test]
    fn changes_of_promotions_have_their_transitions() {
        let none = State::default();
        let (soaks, waits) = (promoted("a", Phase::Pending, "Soaking"), promoted("a", Phase::Pending, "WaitingApproval"));
        let at = |phase| promoted("a", phase, "");
        for (what, from, to, want) in [
            ("waits for an approval", &none, waits.clone(), Some(PromotionPending)),
            ("waits for time only", &none, soaks.clone(), None),
            ("waits for an approval later", &soaks, waits.clone(), Some(PromotionPending)),
            ("waits for time after the approval", &waits, soaks.clone(), None),
            ("needs no approval", &none, at(Phase::Requested), Some(PromotionRequested)),
            ("is approved", &waits, at(Phase::Requested), Some(PromotionRequested)),
            ("has a pull request", &at(Phase::Requested), at(Phase::Open), Some(PromotionOpened)),
            ("is merged", &at(Phase::Open), at(Phase::Merged), None),
            ("is closed", &at(Phase::Open), at(Phase::Closed), Some(PromotionFailed)),
            ("runs", &at(Phase::Merged), at(Phase::Finished), Some(PromotionFinished)),
            ("runs at once", &waits, at(Phase::Finished), Some(PromotionFinished)),
            ("fails", &at(Phase::Requested), at(Phase::Failed), Some(PromotionFailed)),
            ("is retried", &at(Phase::Failed), at(Phase::Requested), Some(PromotionRequested)),
            ("was accepted after all", &at(Phase::Failed), promoted("a", Phase::Requested, "RequestAccepted"), None),
            ("is withdrawn", &waits, at(Phase::Withdrawn), None),
            ("is another one", &waits, promoted("b", Phase::Pending, "WaitingApproval"), Some(PromotionPending)),
            ("is no promotion", &none, state(Current, "2", "2", false), None),
        ] {
            assert_eq!(of(&of_promotion(from.clone(), to.clone(), false)), Vec::from_iter(want), "{what}");
            assert_eq!(of(&of_promotion(from.clone(), to, true)), Vec::from_iter(want), "{what}, coalesced");
        }
        assert!(of(&of_promotion(waits.clone(), waits.clone(), false)).is_empty(), "nothing has changed");
        assert_eq!(of(&of_promotion(waits.clone(), waits, true)), [PromotionPending], "it changed in between");
    }

    #[test]
    fn every_later_change_ends_the_state_of_a_pending_promotion() {
        let waits = promoted("a", Phase::Pending, "WaitingApproval");
        for to in [promoted("a", Phase::Requested, ""), promoted("b", Phase::Pending, "Soaking")] {
            assert!(ends(PromotionPending, &of_promotion(waits.clone(), to, false)));
        }
        let ended = of_promotion(waits, promoted("a", Phase::Finished, ""), true);
        assert_eq!(ended_at(PromotionPending, &ended), ended.time);
        let left = Time::from_second(5).unwrap();
        let ended = Change { left: Left { status: Some(left), drift: None }, ..ended };
        assert_eq!(ended_at(PromotionPending, &ended), left);
        assert_eq!(ended_at(Added, &ended), ended.time);
    }

    #[test]
    fn a_state_ends_with_the_changes_of_the_table() {
        let (fine, moving) = (state(Current, "1", "1", false), state(InProgress, "2", "1", false));
        let drifted = State { drifted: true, ..fine.clone() };
        let gone = State { drifted: true, ..state(NotFound, "", "", false) };
        for (type_, from, to, coalesced, want) in [
            (Deployed, &fine, &moving, false, true),
            (Deployed, &fine, &drifted, false, false),
            (Deployed, &fine, &drifted, true, true),
            (Drifted, &drifted, &fine, false, true),
            (Drifted, &drifted, &State { drifted: true, ..moving.clone() }, false, false),
            (Drifted, &fine, &drifted, true, true),
            (Drifted, &drifted, &gone, false, true),
            (DriftCorrected, &fine, &drifted, false, true),
            (DriftCorrected, &fine, &moving, false, false),
            (DriftCorrected, &fine, &fine, true, false),
            (Added, &fine, &moving, true, false),
            (Added, &fine, &gone, false, true),
            (Added, &gone, &fine, false, true),
        ] {
            assert_eq!(ends(type_, &change(from.clone(), to.clone(), coalesced)), want, "{type_:?} {from:?} {to:?}");
        }
        assert!(ends(ClusterOffline, &Change { subject: "cluster/a".to_owned(), ..Change::default() }));
        assert!(ends(PipelineReady, &change(fine, moving, false)));
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
        /// A coalesced change always has the transition of its end state.
        #[test]
        fn a_coalesced_change_has_the_transition_of_its_end_state(from in states(), to in states()) {
            let back = from.current.as_ref() == Some(&to.revision) && from.failed;
            let want = match to.status {
                Current => Some(if back { Recovered } else { Deployed }),
                InProgress => Some(Progressing),
                Failed => Some(FAILED),
                NotFound => Some(Removed),
                Terminating | Unknown => None,
            };
            prop_assert_eq!(target(&change(from, to, true)), want);
        }

        /// Reason and message never decide the transition, and drift decides only transitions of drift. The type always fits the status
        /// and the subject.
        #[test]
        fn only_status_revision_and_drift_determine_the_transition(from in states(), to in states(), coalesced in any::<bool>()) {
            let change = change(from.clone(), to.clone(), coalesced);
            let got = of(&change);
            let told = State { reason: "R".into(), message: "m".into(), ..to.clone() };
            prop_assert_eq!(&of(&Change { to: told, ..change.clone() }), &got);
            let turned = Change { to: State { drifted: !to.drifted, ..to.clone() }, ..change.clone() };
            prop_assert_eq!(target(&turned), target(&change));
            for type_ in &got {
                prop_assert_eq!(type_.subject(), SubjectKind::Target);
                let fits = match type_ {
                    Added => from.status == NotFound && ![NotFound, Terminating, Unknown].contains(&to.status),
                    Deployed | Recovered => to.status == Current,
                    Progressing => to.status == InProgress,
                    TransitionType::Failed => to.status == Failed,
                    Removed => to.status == NotFound,
                    Drifted => to.drifted,
                    DriftCorrected => !to.drifted && to.status != NotFound,
                    _ => false,
                };
                prop_assert!(fits);
            }
            prop_assert!(got.windows(2).all(|pair| pair[0].family() < pair[1].family()), "in order, and one of each family");
        }

        /// A change that starts a state ends the state before it of the same family.
        #[test]
        fn a_change_that_starts_a_state_ends_the_previous_one(from in states(), to in states(), coalesced in any::<bool>()) {
            let change = change(from, to, coalesced);
            for type_ in of(&change) {
                prop_assert!(ends(type_, &change));
            }
        }
    }
}
