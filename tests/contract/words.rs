//! Each transition is reported with the right status, color, priority or type of each receiver.

use relaybook_api::delivery::SubjectKind;
use relaybook_api::notification::Builtin;
use relaybook_api::{Status, TransitionType};
use relaybook_settings::render::Data;
use serde_json::{Value, json};

use crate::json::texts;
use crate::subject::{Parameters, Subject};

/// The expected value at a pointer in the body for each transition, in the order of `TransitionType::ALL`.
struct Words {
    builtin: Builtin,
    pointer: &'static str,
    said: [Value; 17],
}

/// The first line of a row has `Added`, the second the transitions of a target's status, the last those of promotions, and the lines
/// between all others. `null`: the body has no such value, or the template does not report the transition.
macro_rules! words {
    ($($builtin:ident $pointer:literal [$($said:tt)*])*) => {
        [$(Words { builtin: Builtin::$builtin, pointer: $pointer, said: [$(json!($said)),*] }),*]
    };
}

fn words() -> impl Iterator<Item = Words> {
    words_of_forges_and_rooms().into_iter().chain(words_of_incidents_and_events())
}

#[rustfmt::skip]
fn words_of_forges_and_rooms() -> impl IntoIterator<Item = Words> {
    words! {
        GithubCommitStatus "/state" [
            null
            "success"       "pending"       "failure"       "success"       "success"
            "failure"       "success"       null            null            "success"       "success"
            "pending"       "pending"       "pending"       "success"       "failure"
        ]
        GitlabCommitStatus "/state" [
            null
            "success"       "pending"       "failed"        "success"       "canceled"
            "failed"        "success"       null            null            "success"       "success"
            "pending"       "running"       "running"       "success"       "failed"
        ]
        GithubCheckRun "/status" [
            null
            "completed"     "in_progress"   "completed"     "completed"     "completed"
            null            null            null            null            "completed"     "completed"
            "in_progress"   "in_progress"   "in_progress"   "completed"     "completed"
        ]
        GithubCheckRun "/conclusion" [
            null
            "success"       null            "failure"       "success"       "neutral"
            null            null            null            null            "success"       "success"
            null            null            null            "success"       "failure"
        ]
        GitlabDeployment "/status" [
            null
            "success"       "running"       "failed"        "success"       "canceled"
            null            null            null            null            null            null
            null            null            null            null            null
        ]
        GiteaCommitStatus "/state" [
            null
            "success"       "pending"       "failure"       "success"       "success"
            "warning"       "success"       null            null            "success"       "success"
            "pending"       "pending"       "pending"       "success"       "failure"
        ]
        BitbucketBuildStatus "/state" [
            null
            "SUCCESSFUL"    "INPROGRESS"    "FAILED"        "SUCCESSFUL"    "STOPPED"
            "FAILED"        "SUCCESSFUL"    null            null            "SUCCESSFUL"    "SUCCESSFUL"
            "INPROGRESS"    "INPROGRESS"    "INPROGRESS"    "SUCCESSFUL"    "FAILED"
        ]
        BitbucketServerBuildStatus "/state" [
            null
            "SUCCESSFUL"    "INPROGRESS"    "FAILED"        "SUCCESSFUL"    "UNKNOWN"
            "FAILED"        "SUCCESSFUL"    null            null            "SUCCESSFUL"    "SUCCESSFUL"
            "INPROGRESS"    "INPROGRESS"    "INPROGRESS"    "SUCCESSFUL"    "FAILED"
        ]
        AzureDevopsGitStatus "/state" [
            null
            "succeeded"     "pending"       "failed"        "succeeded"     "notApplicable"
            "failed"        "succeeded"     null            null            "succeeded"     "succeeded"
            "pending"       "pending"       "pending"       "succeeded"     "failed"
        ]
        Teams "/attachments/0/content/body/0/style" [
            "accent"
            "good"          "accent"        "attention"     "good"          "default"
            "warning"       "good"          "warning"       "good"          "good"          "good"
            "accent"        "accent"        "accent"        "good"          "attention"
        ]
        Mattermost "/attachments/0/color" [
            "#0969da"
            "#1a7f37"       "#0969da"       "#cf222e"       "#1a7f37"       "#6e7781"
            "#bf8700"       "#1a7f37"       "#bf8700"       "#1a7f37"       "#1a7f37"       "#1a7f37"
            "#0969da"       "#0969da"       "#0969da"       "#1a7f37"       "#cf222e"
        ]
        Discord "/embeds/0/color" [
            0x0009_69da
            0x001a_7f37     0x0009_69da     0x00cf_222e     0x001a_7f37     0x006e_7781
            0x00bf_8700     0x001a_7f37     0x00bf_8700     0x001a_7f37     0x001a_7f37     0x001a_7f37
            0x0009_69da     0x0009_69da     0x0009_69da     0x001a_7f37     0x00cf_222e
        ]
        Rocketchat "/attachments/0/color" [
            "#0969da"
            "#1a7f37"       "#0969da"       "#cf222e"       "#1a7f37"       "#6e7781"
            "#bf8700"       "#1a7f37"       "#bf8700"       "#1a7f37"       "#1a7f37"       "#1a7f37"
            "#0969da"       "#0969da"       "#0969da"       "#1a7f37"       "#cf222e"
        ]
        Telegram "/disable_notification" [
            false
            false           true            false           false           false
            false           false           false           false           false           false
            false           false           false           false           false
        ]
    }
}

#[rustfmt::skip]
fn words_of_incidents_and_events() -> impl IntoIterator<Item = Words> {
    words! {
        Ntfy "/priority" [
            3
            3               2               4               3               3
            4               3               4               3               3               3
            3               3               3               3               4
        ]
        Ntfy "/tags/0" [
            "heavy_plus_sign"
            "white_check_mark" "hourglass_flowing_sand" "x" "white_check_mark" "wastebasket"
            "warning"       "white_check_mark" "warning"    "white_check_mark" "white_check_mark" "white_check_mark"
            "hourglass_flowing_sand" "hourglass_flowing_sand" "hourglass_flowing_sand" "white_check_mark" "x"
        ]
        Pushover "/priority" [
            "0"
            "0"             "-1"            "1"             "0"             "0"
            "1"             "0"             "1"             "0"             "0"             "0"
            "0"             "0"             "0"             "0"             "1"
        ]
        Pagerduty "/event_action" [
            null
            "resolve"       null            "trigger"       "resolve"       "resolve"
            "trigger"       "resolve"       "trigger"       "resolve"       null            null
            null            null            null            "resolve"       "trigger"
        ]
        Pagerduty "/payload/class" [
            null
            "deployment"    null            "deployment"    "deployment"    "deployment"
            "drift"         "drift"         "cluster"       "cluster"       null            null
            null            null            null            "promotion"     "promotion"
        ]
        IncidentIo "/status" [
            null
            "resolved"      null            "firing"        "resolved"      "resolved"
            "firing"        "resolved"      "firing"        "resolved"      null            null
            null            null            null            "resolved"      "firing"
        ]
        Alertmanager "/0/labels/alertname" [
            null
            "DeploymentFailed" null         "DeploymentFailed" "DeploymentFailed" "DeploymentFailed"
            "DeploymentDrifted" "DeploymentDrifted" "ClusterOffline" "ClusterOffline" null null
            null            null            null            "PromotionFailed" "PromotionFailed"
        ]
        DatadogEvent "/alert_type" [
            "info"
            "success"       "info"          "error"         "success"       "success"
            "error"         "success"       "error"         "success"       "success"       "success"
            "info"          "info"          "info"          "success"       "error"
        ]
        FluxEvent "/severity" [
            "info"
            "info"          "info"          "error"         "info"          "info"
            "error"         "info"          "error"         "info"          "info"          "info"
            "info"          "info"          "info"          "info"          "error"
        ]
        FluxEvent "/involvedObject/kind" [
            "Kustomization"
            "Kustomization" "Kustomization" "Kustomization" "Kustomization" "Kustomization"
            "Kustomization" "Kustomization" "Pipeline"      "Pipeline"      "Pipeline"      "Pipeline"
            "Pipeline"      "Pipeline"      "Pipeline"      "Pipeline"      "Pipeline"
        ]
        Cdevents "/type" [
            "dev.cdevents.environment.modified.0.2.0"
            "dev.cdevents.service.upgraded.0.2.0" "dev.cdevents.environment.modified.0.2.0"
            "dev.cdevents.environment.modified.0.2.0" "dev.cdevents.environment.modified.0.2.0" "dev.cdevents.service.removed.0.2.0"
            "dev.cdevents.environment.modified.0.2.0" "dev.cdevents.environment.modified.0.2.0"
            "dev.cdevents.environment.modified.0.2.0" "dev.cdevents.environment.modified.0.2.0"
            "dev.cdevents.environment.modified.0.2.0" "dev.cdevents.pipelinerun.finished.0.2.0"
            "dev.cdevents.environment.modified.0.2.0" "dev.cdevents.environment.modified.0.2.0"
            "dev.cdevents.environment.modified.0.2.0" "dev.cdevents.environment.modified.0.2.0"
            "dev.cdevents.environment.modified.0.2.0"
        ]
        Cdevents "/subject" [
            "prod"
            "prod/in-cluster/podinfo" "prod" "prod" "prod" "prod/in-cluster/podinfo"
            "prod"          "prod"          "clusters.eu-1" "clusters.eu-1" "prod"          "msg_5f3d2c1b0a9e8d7c"
            "prod"          "prod"          "prod"          "prod"          "prod"
        ]
        Cloudevents "/subject" [
            "prod/in-cluster/podinfo"
            "prod/in-cluster/podinfo" "prod/in-cluster/podinfo" "prod/in-cluster/podinfo" "prod/in-cluster/podinfo" "prod/in-cluster/podinfo"
            "prod/in-cluster/podinfo" "prod/in-cluster/podinfo" "clusters.eu-1" "clusters.eu-1" "prod" "podinfo"
            "prod"          "prod"          "prod"          "prod"          "prod"
        ]
    }
}

#[test]
fn each_transition_has_a_status_of_the_receiver() {
    let mut wrong = Vec::new();
    for words in words() {
        let subject = Subject::example(words.builtin, Parameters::Required);
        for (type_, want) in TransitionType::ALL.into_iter().zip(&words.said) {
            let said = if subject.metadata.reports(type_) {
                subject.body(type_, |_| {}).pointer(words.pointer).cloned().unwrap_or_default()
            } else {
                Value::Null
            };
            if said != *want {
                wrong.push(format!("{}, {}, {}: {said}, not {want}", words.builtin.as_str(), type_.as_str(), words.pointer));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// GitHub has the status of a deployment in an object of its own.
#[test]
fn each_transition_has_a_status_of_a_deployment_that_exists() {
    use TransitionType::{Deployed, Failed, Progressing, Recovered, Removed};
    for (type_, github, gitlab) in [
        (Progressing, "in_progress", "running"),
        (Deployed, "success", "success"),
        (Failed, "failure", "failed"),
        (Recovered, "success", "success"),
        (Removed, "inactive", "canceled"),
    ] {
        for (builtin, pointer, expected) in
            [(Builtin::GithubDeployment, "/state", github), (Builtin::GitlabDeployment, "/status", gitlab)]
        {
            let subject = Subject::example(builtin, Parameters::Required);
            let said = subject.render_later(&Data::sample(type_)).json();
            assert_eq!(said.pointer(pointer), Some(&json!(expected)), "{}, {}", builtin.as_str(), type_.as_str());
        }
    }
}

/// A target that is failing or in progress stays so after its drift is corrected.
#[test]
fn corrected_drift_restores_the_status() {
    let states = [
        (Builtin::GithubCommitStatus, "failure", "pending"),
        (Builtin::GitlabCommitStatus, "failed", "pending"),
        (Builtin::GiteaCommitStatus, "failure", "pending"),
        (Builtin::BitbucketBuildStatus, "FAILED", "INPROGRESS"),
        (Builtin::BitbucketServerBuildStatus, "FAILED", "INPROGRESS"),
        (Builtin::AzureDevopsGitStatus, "failed", "pending"),
    ];
    for (builtin, failing, moving) in states {
        let subject = Subject::example(builtin, Parameters::Required);
        for (status, want) in [(Status::Failed, failing), (Status::InProgress, moving)] {
            let body = subject.body(TransitionType::DriftCorrected, |data| data.status = status);
            assert_eq!(body["state"], want, "{}, {status:?}", builtin.as_str());
        }
    }
}

/// Templates with a complete payload contain the name of the type.
#[test]
fn each_transition_is_named_in_a_payload() {
    let places = [
        (Builtin::GithubRepositoryDispatch, "/client_payload/type"),
        (Builtin::GitlabPipelineTrigger, "/variables/RELAYBOOK_TYPE"),
        (Builtin::GrafanaAnnotation, "/tags/1"),
        (Builtin::NewRelicEvent, "/0/transition"),
        (Builtin::FluxEvent, "/reason"),
        (Builtin::Cdevents, "/data/customData/relaybook/type"),
        (Builtin::Cloudevents, "/data/type"),
        (Builtin::Generic, "/type"),
    ];
    for (builtin, pointer) in places {
        let subject = Subject::example(builtin, Parameters::Required);
        for type_ in TransitionType::ALL {
            let said = subject.body(type_, |_| {}).pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            assert_eq!(said.as_deref().map(|s| s.trim_start_matches("type:")), Some(type_.as_str()), "{}", builtin.as_str());
        }
    }
}

/// Messages about an environment, a cluster or the pipeline do not contain the word "Target" or an empty place for it.
#[test]
fn only_targets_are_called_targets() {
    for builtin in Builtin::ALL {
        let subject = Subject::example(builtin, Parameters::Required);
        let whole = [Builtin::Generic, Builtin::Cloudevents, Builtin::Cdevents, Builtin::GithubRepositoryDispatch];
        for type_ in TransitionType::ALL.into_iter().filter(|t| t.subject() != SubjectKind::Target) {
            if !subject.metadata.reports(type_) {
                continue;
            }
            let body = subject.body(type_, |_| {});
            let texts = texts(&body);
            assert!(
                texts.iter().all(|(_, text)| !text.contains("Target")),
                "{}, {}: {body:#}",
                builtin.as_str(),
                type_.as_str()
            );
            if !whole.contains(&builtin) {
                let ends: Vec<_> = texts.iter().filter(|(_, text)| text.ends_with(" in ") || text.ends_with(':')).collect();
                assert!(ends.is_empty(), "{}, {}: {ends:?}", builtin.as_str(), type_.as_str());
            }
        }
    }
}

/// Chats have no field for a status, so the message begins with an emoji for it.
#[test]
fn each_transition_has_an_emoji_in_a_chat() {
    // In the order of `TransitionType::ALL`.
    let signs = ["➕", "✅", "⏳", "❌", "✅", "🗑️", "⚠️", "✅", "⚠️", "✅", "✅", "✅", "⏳", "⏳", "⏳", "✅", "❌"];
    let places = [
        (Builtin::Slack, "/text", ""),
        (Builtin::Slack, "/blocks/0/text/text", ""),
        (Builtin::Teams, "/attachments/0/content/fallbackText", ""),
        (Builtin::Mattermost, "/attachments/0/title", ""),
        (Builtin::MattermostBot, "/props/attachments/0/title", ""),
        (Builtin::Discord, "/embeds/0/title", ""),
        (Builtin::GoogleChat, "/cardsV2/0/card/header/title", ""),
        (Builtin::Webex, "/text", ""),
        (Builtin::Lark, "/content/post/en_us/title", ""),
        (Builtin::Zoom, "/content/head/text", ""),
        (Builtin::Rocketchat, "/text", ""),
        (Builtin::Telegram, "/text", ""),
        (Builtin::Matrix, "/body", ""),
        (Builtin::Zulip, "/content", ""),
        (Builtin::GithubIssueComment, "/body", "### "),
        (Builtin::GithubPullRequestComment, "/body", "### "),
        (Builtin::GiteaPullRequestComment, "/body", "### "),
        (Builtin::GitlabMergeRequestComment, "/body", "### "),
    ];
    for (builtin, pointer, before) in places {
        let subject = Subject::example(builtin, Parameters::Required);
        let all = TransitionType::ALL.into_iter().zip(signs);
        for (type_, sign) in all.filter(|(type_, _)| subject.metadata.reports(*type_)) {
            let body = subject.body(type_, |_| {});
            let text = body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            assert!(text.starts_with(&format!("{before}{sign}")), "{}, {}: {text}", builtin.as_str(), type_.as_str());
        }
    }
}

/// Receivers without a status and without an emoji get the name of the type in the text.
#[test]
fn each_transition_is_named_if_there_is_no_emoji() {
    let places = [
        (Builtin::Ntfy, "/title"),
        (Builtin::Pushover, "/title"),
        (Builtin::Pagerduty, "/payload/summary"),
        (Builtin::IncidentIo, "/title"),
        (Builtin::DatadogEvent, "/title"),
        (Builtin::GrafanaAnnotation, "/text"),
        (Builtin::SentryReleaseDeploy, "/name"),
    ];
    for (builtin, pointer) in places {
        let subject = Subject::example(builtin, Parameters::Required);
        for type_ in subject.types() {
            let body = subject.body(type_, |_| {});
            let text = body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            assert!(text.contains(type_.as_str()), "{}, {}: {text}", builtin.as_str(), type_.as_str());
        }
    }
}

/// The templates that contain a message as text.
const WITH_A_TEXT: [Builtin; 28] = [
    Builtin::Slack,
    Builtin::Teams,
    Builtin::Mattermost,
    Builtin::Discord,
    Builtin::GoogleChat,
    Builtin::Webex,
    Builtin::Rocketchat,
    Builtin::Telegram,
    Builtin::Matrix,
    Builtin::Ntfy,
    Builtin::Lark,
    Builtin::Zoom,
    Builtin::IncidentIo,
    Builtin::NewRelicEvent,
    Builtin::FluxEvent,
    Builtin::Zulip,
    Builtin::Pushover,
    Builtin::MattermostBot,
    Builtin::GithubIssueComment,
    Builtin::GithubPullRequestComment,
    Builtin::GiteaPullRequestComment,
    Builtin::GitlabMergeRequestComment,
    Builtin::GithubCheckRun,
    Builtin::Pagerduty,
    Builtin::Opsgenie,
    Builtin::DatadogEvent,
    Builtin::GrafanaAnnotation,
    Builtin::Generic,
];

/// Removes the escapes of HTML and Markdown, as a receiver does.
fn unescaped(text: &str) -> String {
    let text = text.replace("&quot;", "\"").replace("&#39;", "'");
    let mut plain = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '\\' || !rest.peek().is_some_and(char::is_ascii_punctuation) {
            plain.push(c);
        }
    }
    plain
}

#[test]
fn each_template_with_a_text_contains_the_message() {
    let messages = [
        (TransitionType::Deployed, "1.0 → 1.1, 1 replica"),
        (TransitionType::Failed, r#"ReplicaSet "web-85f5969b7c" has timed out progressing."#),
    ];
    for builtin in WITH_A_TEXT {
        let subject = Subject::example(builtin, Parameters::Required);
        for (type_, message) in messages {
            let body = subject.body(type_, |data| message.clone_into(&mut data.message));
            let texts = texts(&body);
            let what = format!("{}, {}: {body:#}", builtin.as_str(), type_.as_str());
            assert!(texts.iter().any(|(_, text)| unescaped(text).contains(message)), "{what}");
            assert!(texts.iter().all(|(_, text)| !text.contains("\\\"")), "{what}");
        }
    }
}
