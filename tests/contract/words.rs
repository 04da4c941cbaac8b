//! What each transition is in the words of each receiver.

use pennant::api::TransitionType::{self, Deployed, Failed, Progressing, Recovered, Removed};
use pennant::api::notification::Builtin;
use serde_json::{Value, json};

use crate::subject::{Parameters, Subject};

/// Where the body says it, and what it says of a transition.
struct Words {
    builtin: Builtin,
    pointer: &'static str,
    progressing: Value,
    deployed: Value,
    failed: Value,
    recovered: Value,
    removed: Value,
}

impl Words {
    fn of(&self, type_: TransitionType) -> &Value {
        match type_ {
            Progressing => &self.progressing,
            Deployed => &self.deployed,
            Failed => &self.failed,
            Recovered => &self.recovered,
            Removed => &self.removed,
        }
    }
}

/// Progressing, Deployed, Failed, Recovered, Removed. `null` where the body does not say it.
macro_rules! words {
    ($($builtin:ident $pointer:literal: $progressing:tt $deployed:tt $failed:tt $recovered:tt $removed:tt)*) => {
        [$(Words {
            builtin: Builtin::$builtin,
            pointer: $pointer,
            progressing: json!($progressing),
            deployed: json!($deployed),
            failed: json!($failed),
            recovered: json!($recovered),
            removed: json!($removed),
        }),*]
    };
}

#[rustfmt::skip]
fn words() -> impl IntoIterator<Item = Words> {
    words! {
        GithubCommitStatus "/state":                    "pending"        "success"        "failure"        "success"        "success"
        GithubRepositoryDispatch "/client_payload/type": "Progressing"   "Deployed"       "Failed"         "Recovered"      "Removed"
        GitlabCommitStatus "/state":                    "pending"        "success"        "failed"         "success"        "canceled"
        GitlabPipelineTrigger "/variables/PENNANT_TYPE": "Progressing"   "Deployed"       "Failed"         "Recovered"      "Removed"
        GiteaCommitStatus "/state":                     "pending"        "success"        "failure"        "success"        "success"
        BitbucketBuildStatus "/state":                  "INPROGRESS"     "SUCCESSFUL"     "FAILED"         "SUCCESSFUL"     "STOPPED"
        AzureDevopsGitStatus "/state":                  "pending"        "succeeded"      "failed"         "succeeded"      "notApplicable"
        Teams "/attachments/0/content/body/0/style":    "accent"         "good"           "attention"      "good"           "default"
        Mattermost "/attachments/0/color":              "#0969da"        "#1a7f37"        "#cf222e"        "#1a7f37"        "#6e7781"
        Discord "/embeds/0/color":                      0x0009_69da      0x001a_7f37      0x00cf_222e      0x001a_7f37      0x006e_7781
        Rocketchat "/attachments/0/color":              "#0969da"        "#1a7f37"        "#cf222e"        "#1a7f37"        "#6e7781"
        Telegram "/disable_notification":               true             false            false            false            false
        Ntfy "/priority":                              2                3                4                3                3
        Ntfy "/tags/0":                                "hourglass_flowing_sand" "white_check_mark" "x"              "white_check_mark" "wastebasket"
        Pagerduty "/event_action":                      null             "resolve"        "trigger"        "resolve"        "resolve"
        DatadogEvent "/alert_type":                     "info"           "success"        "error"          "success"        "success"
        GrafanaAnnotation "/tags/5":                    "type:Progressing" "type:Deployed" "type:Failed"   "type:Recovered" "type:Removed"
        Cdevents "/type":
            "dev.cdevents.environment.modified.0.2.0" "dev.cdevents.service.upgraded.0.2.0" "dev.cdevents.environment.modified.0.2.0"
            "dev.cdevents.environment.modified.0.2.0" "dev.cdevents.service.removed.0.2.0"
        Cdevents "/data/customData/pennant/type":       "Progressing"    "Deployed"       "Failed"         "Recovered"      "Removed"
        Cloudevents "/data/type":                       "Progressing"    "Deployed"       "Failed"         "Recovered"      "Removed"
        Generic "/type":                                "Progressing"    "Deployed"       "Failed"         "Recovered"      "Removed"
    }
}

#[test]
fn each_transition_is_said_in_the_words_of_the_receiver() {
    let mut wrong = Vec::new();
    for words in words() {
        let subject = Subject::example(words.builtin, Parameters::Required);
        for type_ in TransitionType::ALL {
            let body = subject.body(type_, |_| {});
            let said = body.pointer(words.pointer).cloned().unwrap_or_default();
            if said != *words.of(type_) {
                let name = words.builtin.as_str();
                wrong.push(format!("{name}, {}, {}: {said}, not {}", type_.as_str(), words.pointer, words.of(type_)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Chats have no field for it: the sign of the outcome is the first thing that people see.
#[test]
fn each_transition_has_its_sign_in_a_chat() {
    let signs = [(Progressing, "⏳"), (Deployed, "✅"), (Failed, "❌"), (Recovered, "✅"), (Removed, "🗑️")];
    let places = [
        (Builtin::Slack, "/text", ""),
        (Builtin::Slack, "/blocks/0/text/text", ""),
        (Builtin::Teams, "/attachments/0/content/fallbackText", ""),
        (Builtin::Mattermost, "/attachments/0/title", ""),
        (Builtin::Discord, "/embeds/0/title", ""),
        (Builtin::GoogleChat, "/cardsV2/0/card/header/title", ""),
        (Builtin::Webex, "/text", ""),
        (Builtin::Rocketchat, "/text", ""),
        (Builtin::Telegram, "/text", ""),
        (Builtin::Matrix, "/body", ""),
        (Builtin::GithubIssueComment, "/body", "### "),
    ];
    for (builtin, pointer, before) in places {
        let subject = Subject::example(builtin, Parameters::Required);
        for (type_, sign) in signs {
            let body = subject.body(type_, |_| {});
            let text = body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            assert!(text.starts_with(&format!("{before}{sign}")), "{}, {}: {text}", builtin.as_str(), type_.as_str());
        }
    }
}

/// Those that have neither say it in words.
#[test]
fn each_transition_is_named_where_there_is_no_sign() {
    let places = [
        (Builtin::Ntfy, "/title"),
        (Builtin::Pagerduty, "/payload/summary"),
        (Builtin::DatadogEvent, "/title"),
        (Builtin::GrafanaAnnotation, "/text"),
        (Builtin::SentryReleaseDeploy, "/name"),
    ];
    for (builtin, pointer) in places {
        let subject = Subject::example(builtin, Parameters::Required);
        for type_ in TransitionType::ALL {
            let body = subject.body(type_, |_| {});
            let text = body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            assert!(text.contains(type_.as_str()), "{}, {}: {text}", builtin.as_str(), type_.as_str());
        }
    }
}
