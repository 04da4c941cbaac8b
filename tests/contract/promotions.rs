//! A receiver can carry a promotion out: the requests that start CI jobs contain all fields of a promotion, and the jobs of the
//! documentation read only fields that are sent. Messages for people say what happens, and how to approve.

use relaybook_api::TransitionType::{
    self, PromotionFailed, PromotionFinished, PromotionOpened, PromotionPending, PromotionRequested,
};
use relaybook_api::notification::Builtin;
use relaybook_settings::render::{Data, builtin};
use serde_json::{Value, json};

use crate::json::texts;
use crate::subject::{Parameters, Subject};

const PROMOTED: [TransitionType; 5] =
    [PromotionPending, PromotionRequested, PromotionOpened, PromotionFinished, PromotionFailed];

/// Renders the body for a sample of a transition.
fn body(builtin: Builtin, type_: TransitionType) -> Value {
    Subject::example(builtin, Parameters::Required).body(type_, |_| {})
}

/// Returns the words that follow each occurrence of a mark in the notes of a template. A word has letters, dots and underscores.
fn words_after(builtin_name: Builtin, mark: &str) -> Vec<String> {
    let notes = builtin(builtin_name).metadata.notes.as_deref().unwrap_or_default();
    let is_part = |c: char| c.is_ascii_alphabetic() || "._".contains(c);
    let words = notes.split(mark).skip(1).map(|rest| rest.split(|c: char| !is_part(c)).next().unwrap_or_default());
    words.map(|word| word.trim_end_matches('.').to_owned()).collect()
}

#[test]
fn ci_jobs_receive_all_fields_of_a_promotion() {
    for type_ in PROMOTED {
        let promotion = serde_json::to_value(Data::sample(type_).promotion).unwrap();
        let name = type_.as_str();
        for (builtin, pointer) in [
            (Builtin::GithubRepositoryDispatch, "/client_payload/state/promotion"),
            (Builtin::Generic, "/promotion"),
            (Builtin::Cloudevents, "/data/promotion"),
            (Builtin::Cdevents, "/data/customData/relaybook/promotion"),
        ] {
            assert_eq!(body(builtin, type_).pointer(pointer), Some(&promotion), "{}, {name}", builtin.as_str());
        }
        let variables = body(Builtin::GitlabPipelineTrigger, type_)["variables"].take();
        for (field, value) in promotion.as_object().unwrap() {
            let variable = match field.as_str() {
                "name" => "RELAYBOOK_PROMOTION".to_owned(),
                field => format!("RELAYBOOK_PROMOTION_{}", field.to_uppercase()),
            };
            assert_eq!(variables.get(&variable), Some(value), "{variable}, {name}");
        }
    }
}

/// What is not about a promotion has no part that could start one.
#[test]
fn transitions_of_other_subjects_contain_no_promotion() {
    let payload = body(Builtin::GithubRepositoryDispatch, TransitionType::EnvironmentReady);
    assert_eq!(payload.pointer("/client_payload/state/promotion"), None);
    let variables = body(Builtin::GitlabPipelineTrigger, TransitionType::EnvironmentReady)["variables"].take();
    assert_eq!((&variables["RELAYBOOK_PROMOTION"], &variables["RELAYBOOK_ENVIRONMENT"]), (&json!(""), &json!("prod")));
}

#[test]
fn the_documented_jobs_read_what_is_sent() {
    let sent = |builtin| body(builtin, PromotionRequested);
    let github = words_after(Builtin::GithubRepositoryDispatch, "github.event.client_payload.");
    assert!(github.contains(&"state.promotion.revision".to_owned()), "{github:?}");
    for path in github {
        let pointer = format!("/client_payload/{}", path.replace('.', "/"));
        assert!(sent(Builtin::GithubRepositoryDispatch).pointer(&pointer).is_some(), "{path}");
    }
    let types = words_after(Builtin::GithubRepositoryDispatch, "types: [relaybook-");
    assert!(types.contains(&"promotionrequested".to_owned()), "{types:?}");
    assert_eq!(sent(Builtin::GithubRepositoryDispatch)["event_type"], "relaybook-promotionrequested");

    let gitlab = words_after(Builtin::GitlabPipelineTrigger, "$RELAYBOOK_");
    assert!(gitlab.contains(&"PROMOTION_REVISION".to_owned()), "{gitlab:?}");
    for variable in gitlab {
        let value = sent(Builtin::GitlabPipelineTrigger)["variables"][format!("RELAYBOOK_{variable}")].take();
        assert!(value.as_str().is_some_and(|value| !value.is_empty()), "{variable}");
    }

    let generic = words_after(Builtin::Generic, "field .");
    assert!(generic.contains(&"promotion.revision".to_owned()), "{generic:?}");
    for path in generic {
        let pointer = format!("/{}", path.replace('.', "/"));
        assert!(sent(Builtin::Generic).pointer(&pointer).is_some(), "{path}");
    }
}

#[test]
fn messages_say_what_happens_and_how_to_approve() {
    let revision = "podinfo main@sha1:5f3d2c1b0a9e";
    let sentences = [
        (PromotionPending, format!("{revision} waits for approval to go to prod (from staging)")),
        (PromotionPending, "relaybook approve podinfo prod -n team-a".to_owned()),
        (PromotionRequested, format!("{revision} is requested for prod (from staging)")),
        (PromotionOpened, format!("{revision} is proposed for prod (from staging)")),
        (PromotionFinished, format!("{revision} was promoted to prod (from staging)")),
        (PromotionFailed, format!("{revision} was not promoted to prod (from staging): not running after 168h")),
    ];
    // An escaped text is compared without the characters that escape it.
    let plain = |text: &str| text.replace(['\\', '\u{200b}', '\u{2060}'], "");
    for builtin in Builtin::ALL {
        let subject = Subject::example(builtin, Parameters::Required);
        for (type_, sentence) in &sentences {
            // A deploy of Sentry has a title and no text. Alertmanager receives only what starts or ends an alert.
            let body = subject.metadata.reports(*type_).then(|| subject.body(*type_, |_| {}));
            let Some(body) = body.filter(|body| builtin != Builtin::SentryReleaseDeploy && *body != json!([])) else {
                continue;
            };
            // GitHub accepts 140 characters.
            let is_cut = builtin == Builtin::GithubCommitStatus && sentence.starts_with("relaybook");
            let is_said = texts(&body).iter().any(|(_, text)| plain(text).contains(sentence));
            assert!(is_said || is_cut, "{}, {}: {sentence}\n{body:#}", builtin.as_str(), type_.as_str());
        }
    }
}

#[test]
fn a_status_of_promotions_does_not_replace_that_of_the_environment() {
    for (builtin, pointer) in [
        (Builtin::GithubCommitStatus, "/context"),
        (Builtin::GitlabCommitStatus, "/name"),
        (Builtin::GiteaCommitStatus, "/context"),
        (Builtin::BitbucketBuildStatus, "/name"),
        (Builtin::BitbucketServerBuildStatus, "/name"),
        (Builtin::AzureDevopsGitStatus, "/context/name"),
    ] {
        let name = |type_| body(builtin, type_).pointer(pointer).cloned().unwrap();
        let promotions = name(PromotionPending);
        assert!(
            promotions.as_str().is_some_and(|name| name.ends_with("in-cluster/team-a/podinfo/prod/promotion")),
            "{promotions}"
        );
        assert!(PROMOTED.iter().all(|type_| name(*type_) == promotions), "{}", builtin.as_str());
        assert_ne!(promotions, name(TransitionType::EnvironmentReady), "{}", builtin.as_str());
    }
}
