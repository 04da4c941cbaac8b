//! Pure: the Events about changes that `kubectl describe` shows, one for each transition.

use relaybook_api::promotion::PromotionState;
use relaybook_api::{Change, LogSubject, Status, TransitionType};
use relaybook_core::meaning::transitions;
use relaybook_runtime::report::events::ChangeEvent;

/// Returns the Events about one change. A change that is not a transition has no Event. `Added` has none, because the Event about the state
/// that the object begins with says more, and the number of Events is limited.
pub(crate) fn events_for(change: &Change) -> impl Iterator<Item = ChangeEvent> {
    use TransitionType::{Added, ClusterOffline, Drifted, Failed, PromotionFailed};
    transitions(change).filter(|type_| *type_ != Added).map(move |type_| ChangeEvent {
        serial: change.serial,
        warning: matches!(type_, ClusterOffline | Drifted | Failed | PromotionFailed),
        reason: type_.as_str().into(),
        note: note(change, type_),
    })
}

fn note(change: &Change, type_: TransitionType) -> String {
    let (verb, to) = (verb(change, type_), &change.to);
    let (subject, reason, message) = match &to.promotion {
        Some(promotion) => {
            // The verb repeats the reason, except for a failure. There the reason says what failed. The message can repeat the verb.
            let reason = if type_ == TransitionType::PromotionFailed { to.reason.as_str() } else { "" };
            let rest = to.message.strip_prefix(&*verb).map(|rest| rest.trim_start_matches(':'));
            (promoted(change, promotion), reason, rest.unwrap_or(&to.message))
        }
        None => (change.subject.replacen('/', " ", 1), to.reason.as_str(), to.message.as_str()),
    };
    let why = [reason, message].map(str::trim).into_iter().filter(|s| !s.is_empty());
    let why = why.collect::<Vec<_>>().join(": ");
    // For an object that is `Current`, the message is the number of replicas, and there is no reason.
    let separator = if to.status == Status::Current && to.promotion.is_none() { "," } else { ":" };
    if why.is_empty() { format!("{subject} {verb}") } else { format!("{subject} {verb}{separator} {why}") }
}

/// What the subject of a change does.
fn verb(change: &Change, type_: TransitionType) -> String {
    let (from, to) = (&change.from, &change.to);
    let was = match from.current.as_deref() {
        Some(revision) if !revision.is_empty() && revision != to.revision => format!(", previously {revision}"),
        _ => String::new(),
    };
    let with = to.new_configuration(from).map(|new| format!(", {new}")).unwrap_or_default();
    match type_ {
        TransitionType::Added => "was added".to_owned(),
        TransitionType::Deployed => format!("runs {}{with}{was}", named(&to.revision)),
        TransitionType::Progressing => format!("is updating to {}{with}", named(&to.revision)),
        TransitionType::Failed => format!("failed with {}{with}", named(&to.revision)),
        TransitionType::Recovered => format!("runs {} again", named(&to.revision)),
        TransitionType::Removed => "was removed".to_owned(),
        TransitionType::Drifted => "has drifted from its declared state".to_owned(),
        TransitionType::DriftCorrected => "runs its declared state again".to_owned(),
        TransitionType::ClusterOffline => "is unreachable".to_owned(),
        TransitionType::ClusterOnline => "is reachable again".to_owned(),
        TransitionType::EnvironmentReady | TransitionType::PipelineReady => {
            format!("runs {} everywhere{was}", named(&to.revision))
        }
        TransitionType::PromotionPending => "waits for an approval".to_owned(),
        TransitionType::PromotionRequested => "is requested".to_owned(),
        TransitionType::PromotionOpened => "is open".to_owned(),
        TransitionType::PromotionFinished => format!("is finished{was}"),
        TransitionType::PromotionFailed => "has failed".to_owned(),
    }
}

/// A promotion as the subject of a sentence.
fn promoted(change: &Change, promotion: &PromotionState) -> String {
    let subject = LogSubject::parse(&change.subject);
    let environment = if let LogSubject::Promotion(environment) = subject { environment } else { &change.subject };
    let PromotionState { name, from, .. } = promotion;
    format!("promotion {name} of {} from {from} to {environment}", named(&change.to.revision))
}

fn named(revision: &str) -> &str {
    if revision.is_empty() { "a revision without a name" } else { revision }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::State;

    fn state(status: Status, revision: &str, current: &str) -> State {
        State { status, revision: revision.into(), current: Some(current.into()), ..State::default() }
    }

    #[test]
    fn each_transition_of_a_promotion_has_a_sentence() {
        use TransitionType::{PromotionFailed, PromotionFinished, PromotionOpened, PromotionPending, PromotionRequested};
        let of = |type_, reason: &str, message: &str| {
            let promotion =
                PromotionState { name: "web-prod-1".into(), from: "staging".into(), ..PromotionState::default() };
            let (reason, message) = (reason.into(), message.into());
            let to = State { reason, message, promotion: Some(promotion), ..state(Status::InProgress, "2", "1") };
            let from = state(Status::InProgress, "2", "1");
            note(&Change { subject: "promotion/prod".into(), from, to, ..Change::default() }, type_)
        };
        for (type_, reason, message, told) in [
            (PromotionPending, "WaitingApproval", "", "waits for an approval"),
            (
                PromotionPending,
                "WaitingApproval",
                "waits for an approval: `relaybook approve web prod`",
                "waits for an approval: `relaybook approve web prod`",
            ),
            (PromotionRequested, "", "", "is requested"),
            (PromotionOpened, "", "", "is open"),
            (PromotionFinished, "Running", "", "is finished, previously 1"),
            (PromotionFailed, "NotRunning", "prod/c/web runs 1", "has failed: NotRunning: prod/c/web runs 1"),
        ] {
            assert_eq!(of(type_, reason, message), format!("promotion web-prod-1 of 2 from staging to prod {told}"));
        }
    }

    #[test]
    fn each_transition_has_a_sentence() {
        let change = |from, to| Change { subject: "target/dev/c/web".into(), from, to, ..Change::default() };
        let notes = |change: &Change| events_for(change).map(|t| format!("{} {}", t.reason, t.note)).collect::<Vec<_>>();
        let ran = state(Status::Current, "1", "1");
        assert_eq!(
            notes(&change(ran.clone(), state(Status::Current, "2", "2"))),
            ["Deployed target dev/c/web runs 2, previously 1"]
        );
        let counted = State { message: "3 replicas".into(), ..state(Status::Current, "2", "2") };
        assert_eq!(notes(&change(ran.clone(), counted)), ["Deployed target dev/c/web runs 2, previously 1, 3 replicas"]);
        let failed = State {
            reason: "HealthCheckFailed".into(),
            message: "no pods".into(),
            failed: true,
            ..state(Status::Failed, "2", "1")
        };
        assert_eq!(
            notes(&change(ran.clone(), failed.clone())),
            ["Failed target dev/c/web failed with 2: HealthCheckFailed: no pods"]
        );
        assert!(events_for(&change(ran.clone(), failed.clone())).all(|t| t.warning));
        let values = |of: State, about: &str, runs: &str| State {
            configuration: format!("values sha256:{about}"),
            current_configuration: format!("values sha256:{runs}"),
            ..of
        };
        let (a, b) = (values(ran.clone(), "a", "a"), values(ran.clone(), "b", "b"));
        assert_eq!(notes(&change(a.clone(), b)), ["Deployed target dev/c/web runs 1, values sha256:b"]);
        let failed_alone = values(State { revision: "1".into(), ..failed.clone() }, "b", "a");
        assert_eq!(
            notes(&change(a.clone(), failed_alone)),
            ["Failed target dev/c/web failed with 1, values sha256:b: HealthCheckFailed: no pods"]
        );
        let trying = values(state(Status::InProgress, "1", "1"), "b", "a");
        assert_eq!(notes(&change(a, trying)), ["Progressing target dev/c/web is updating to 1, values sha256:b"]);
        let begins = State { reason: "Progressing".into(), message: "0 of 3".into(), ..state(Status::InProgress, "2", "") };
        assert_eq!(
            notes(&change(state(Status::NotFound, "", ""), begins)),
            ["Progressing target dev/c/web is updating to 2: Progressing: 0 of 3"],
            "`Added` has no Event"
        );
        assert!(
            notes(&change(state(Status::InProgress, "2", "1"), ran)).is_empty(),
            "it went back, which is not a transition"
        );
    }
}
