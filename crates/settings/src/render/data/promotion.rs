//! The promotion of a transition, and the sentence that describes it to people.

use serde::Serialize;

use relaybook_text::cut;

use relaybook_api::promotion::{Phase, missing};
use relaybook_api::values::revision::with_short_hashes;
use relaybook_api::{DeliverySpec, TransitionType};

/// Number of digits of a hash in a sentence.
const DIGITS: usize = 12;
/// Maximum number of bytes of a revision in a sentence.
const LONGEST_REVISION: usize = 128;
/// Maximum number of bytes of the recorded message in a sentence. The whole sentence then has less than 1 KiB.
const LONGEST_MESSAGE: usize = 512;

/// The promotion of a transition. All fields are empty if the transition is not about a promotion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PromotionData {
    /// Name of the Promotion.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its phase.
    pub phase: String,
    /// Its strategy: `notification`, `commit` or `pullRequest`; empty until the promotion is requested.
    pub strategy: String,
    /// The environment that runs the revision.
    pub from: String,
    /// The revision.
    pub revision: String,
    /// The revision at which the environment was last ready before; empty if there was none.
    pub previous: String,
    /// The reason for the phase, in one word; often empty.
    pub reason: String,
    /// URL of its pull request or commit; empty if there is none.
    pub url: String,
}

impl PromotionData {
    /// Returns the promotion that a recorded transition is about.
    pub(super) fn new(spec: &DeliverySpec) -> Self {
        let Some(promotion) = &spec.to.promotion else { return Self::default() };
        // Once the environment runs the revision, only the state before contains the previous one. Otherwise the state after is better: a
        // coalesced change can start with the state of an earlier promotion.
        let before = if promotion.phase == Phase::Finished { &spec.from } else { &spec.to };
        Self {
            name: promotion.name.clone(),
            uid: promotion.uid.clone(),
            phase: promotion.phase.as_str().to_owned(),
            strategy: promotion.strategy.clone(),
            from: promotion.from.clone(),
            revision: spec.to.revision.clone(),
            previous: before.current.clone().unwrap_or_default(),
            reason: spec.to.reason.clone(),
            url: promotion.url.clone(),
        }
    }
}

/// Returns the sentence that describes a transition of a promotion. `None`: the transition is not about a promotion. The sentence names the
/// pipeline, the revision and both environments. If an approval is missing, it contains the command. If a target of the environment does not
/// exist, it reports that. If something went wrong, it ends with
/// the recorded message.
pub(super) fn sentence(spec: &DeliverySpec) -> Option<String> {
    let promotion = spec.to.promotion.as_ref()?;
    let (pipeline, environment) = (&spec.pipeline_ref.name, &spec.subject.name);
    let what = format!("{pipeline} {}", readable(&spec.to.revision));
    let place = format!("{environment} (from {})", promotion.from);
    let recorded = &spec.to.message;
    let more = if recorded.is_empty() { String::new() } else { format!(": {}", cut(recorded, LONGEST_MESSAGE)) };
    let absent = missing(recorded).map(|targets| format!(". A target is missing: {}", cut(targets, LONGEST_MESSAGE)));
    let absent = absent.unwrap_or_default();
    Some(match spec.type_ {
        TransitionType::PromotionPending => {
            let command = format!("relaybook approve {pipeline} {environment} -n {}", spec.pipeline_ref.namespace);
            format!("{what} waits for approval to go to {place}. To approve it: {command}{absent}")
        }
        TransitionType::PromotionRequested => format!("{what} is requested for {place}{absent}"),
        TransitionType::PromotionOpened => format!("{what} is proposed for {place}{more}"),
        TransitionType::PromotionFinished => format!("{what} was promoted to {place}"),
        TransitionType::PromotionFailed => format!("{what} was not promoted to {place}{more}"),
        _ => return None,
    })
}

/// Returns a revision with short hashes, cut if it is long.
fn readable(revision: &str) -> String {
    cut(&with_short_hashes(revision, DIGITS), LONGEST_REVISION).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{Data, SampleContext};
    use relaybook_api::State;
    use relaybook_api::delivery::{PipelineRef, Subject};
    use relaybook_api::promotion::PromotionState;

    const PROMOTED: [TransitionType; 5] = [
        TransitionType::PromotionPending,
        TransitionType::PromotionRequested,
        TransitionType::PromotionOpened,
        TransitionType::PromotionFinished,
        TransitionType::PromotionFailed,
    ];

    fn context() -> SampleContext {
        SampleContext { old: "6.5.0".to_owned(), new: "6.5.1".to_owned(), ..SampleContext::sample(Default::default()) }
    }

    #[test]
    fn a_sentence_says_that_a_target_is_missing() {
        for (type_, end) in [
            (
                TransitionType::PromotionPending,
                "-n team-a. A target is missing: Deployment wbe does not exist in namespace prod",
            ),
            (
                TransitionType::PromotionRequested,
                "(from staging). A target is missing: Deployment wbe does not exist in namespace prod",
            ),
        ] {
            let promotion = PromotionState { from: "staging".to_owned(), ..PromotionState::default() };
            let message = "it waits; a target is missing: Deployment wbe does not exist in namespace prod".to_owned();
            let of = |text: &str| text.to_owned();
            let spec = DeliverySpec {
                type_,
                pipeline_ref: PipelineRef { namespace: of("team-a"), name: of("podinfo"), uid: of("u") },
                subject: Subject { name: of("prod"), ..Subject::default() },
                to: State { revision: of("2"), message, promotion: Some(promotion), ..State::default() },
                ..DeliverySpec::default()
            };
            let said = sentence(&spec).unwrap();
            assert!(said.ends_with(end), "{said}");
        }
    }

    #[test]
    fn each_transition_of_a_promotion_is_a_sentence() {
        let said = PROMOTED.map(|type_| context().transition(type_).message);
        let [pending, requested, opened, finished, failed] = said.each_ref().map(String::as_str);
        assert_eq!(
            pending,
            "podinfo 6.5.1 waits for approval to go to prod (from staging). To approve it: relaybook approve podinfo prod -n team-a"
        );
        assert_eq!(requested, "podinfo 6.5.1 is requested for prod (from staging)");
        assert_eq!(opened, "podinfo 6.5.1 is proposed for prod (from staging)");
        assert_eq!(finished, "podinfo 6.5.1 was promoted to prod (from staging)");
        let failure = "podinfo 6.5.1 was not promoted to prod (from staging): not running after 168h:\n";
        assert!(failed.starts_with(failure), "{failed}");
    }

    #[test]
    fn template_data_of_a_promotion_has_its_fields() {
        for (type_, phase, strategy, reason) in [
            (TransitionType::PromotionPending, "Pending", "", "WaitingApproval"),
            (TransitionType::PromotionRequested, "Requested", "notification", "WaitingForEnvironment"),
            (TransitionType::PromotionOpened, "Open", "pullRequest", "Opened"),
            (TransitionType::PromotionFinished, "Finished", "notification", "Running"),
            (TransitionType::PromotionFailed, "Failed", "notification", "NotRunning"),
        ] {
            let data = context().transition(type_);
            let PromotionData { from, revision, previous, .. } = &data.promotion;
            assert_eq!([from, revision, previous], ["staging", "6.5.1", "6.5.0"], "{type_:?}");
            let promotion = &data.promotion;
            assert_eq!([&promotion.phase, &promotion.strategy, &promotion.reason], [phase, strategy, reason], "{type_:?}");
            assert!(promotion.name.starts_with("podinfo-prod-") && !promotion.uid.is_empty());
            assert_eq!((data.revision.as_str(), data.previous_revision.as_str()), ("6.5.1", "6.5.0"), "{type_:?}");
            assert_eq!(promotion.url.is_empty(), strategy != "pullRequest", "{type_:?}: {}", promotion.url);
        }
        assert_eq!(Data::sample(TransitionType::EnvironmentReady).promotion, PromotionData::default());
    }

    #[test]
    fn a_coalesced_change_shows_the_previous_revision_of_its_last_promotion() {
        let at = |phase, current: &str| State {
            current: Some(current.to_owned()),
            promotion: Some(PromotionState { phase, ..PromotionState::default() }),
            ..State::default()
        };
        let previous = |from, to| {
            let type_ = TransitionType::PromotionRequested;
            PromotionData::new(&DeliverySpec { type_, from, to, ..relaybook_api::testing::spec(1) }).previous
        };
        assert_eq!(previous(at(Phase::Pending, "1"), at(Phase::Requested, "2")), "2");
        assert_eq!(previous(at(Phase::Requested, "2"), at(Phase::Finished, "3")), "2");
        assert_eq!(previous(State::default(), at(Phase::Finished, "3")), "");
    }

    #[test]
    fn revisions_in_sentences_are_short() {
        let (sha1, sha256) = ("5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c", "a".repeat(64));
        let no_hash = format!("{sha1}0g");
        for (revision, want) in [
            ("6.5.1".to_owned(), "6.5.1"),
            (String::new(), ""),
            (sha1.to_owned(), "5f3d2c1b0a9e"),
            (format!("feature/x@sha1:{sha1}"), "feature/x@sha1:5f3d2c1b0a9e"),
            (format!("1.0,sha256:{sha256},2"), "1.0,sha256:aaaaaaaaaaaa,2"),
            (no_hash.clone(), no_hash.as_str()),
        ] {
            assert_eq!(readable(&revision), want, "{revision}");
        }
        assert_eq!(readable(&"é".repeat(100)), format!("{}…", "é".repeat(62)));
    }

    #[test]
    fn a_sentence_has_at_most_one_kibibyte() {
        let mut context = context();
        let long = "n".repeat(63);
        (context.pipeline.name, context.pipeline.namespace) = (long.clone(), long.clone());
        (context.subject.environment, context.new) = (long, "é".repeat(512));
        for data in PROMOTED.map(|type_| context.transition(type_)) {
            assert!(data.message.len() <= 1024, "{}", data.message.len());
        }
    }
}
