//! Pure: what a test would change at the receiver, and whether it may be sent.
//!
//! A test may only be a message that people read, and that says in its text that it is a test. So the built-in templates of chats have a mark, and all
//! others are refused. Nobody knows what the receiver of a template of a user does. Such a test needs a confirmation.

use url::Url;

use relaybook_api::delivery::Family;
use relaybook_api::notification::Builtin;
use relaybook_api::{NotificationSpec, TransitionType};

/// The parameter with the first line of a message.
pub(super) const HEADLINE: &str = "title";
/// The text before the first line of a test.
pub(super) const MARK: &str = "TEST: ";

/// What the receiver of a built-in template does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// It shows a message to people. The parameter [`HEADLINE`] is its first line.
    Shows,
    /// It does this. The endings of the paths of such requests follow, in which `*` is any segment.
    Does(&'static str, &'static [&'static str]),
}

/// Returns the effect of a built-in template.
const fn effect(name: Builtin) -> Effect {
    const STATUS: &str = "set the status of a commit";
    const ALERT: &str = "open or resolve an alert";
    const EVENT: &str = "be an event on which its receivers act";
    match name {
        Builtin::GithubCommitStatus => Effect::Does(STATUS, &["/repos/*/*/statuses/*"]),
        Builtin::GitlabCommitStatus => Effect::Does(STATUS, &["/projects/*/statuses/*"]),
        Builtin::GiteaCommitStatus => Effect::Does(STATUS, &["/api/v1/repos/*/*/statuses/*"]),
        Builtin::BitbucketBuildStatus => Effect::Does(STATUS, &["/commit/*/statuses/build"]),
        Builtin::AzureDevopsGitStatus => Effect::Does(STATUS, &["/repositories/*/commits/*/statuses"]),
        Builtin::GithubRepositoryDispatch => Effect::Does("start workflows", &["/repos/*/*/dispatches"]),
        Builtin::GitlabPipelineTrigger => Effect::Does("run a pipeline of GitLab", &["/trigger/pipeline"]),
        Builtin::Pagerduty => Effect::Does(ALERT, &["/v2/enqueue", "/v2/change/enqueue"]),
        Builtin::Opsgenie => Effect::Does(ALERT, &["/v2/alerts", "/v2/alerts/*/notes", "/v2/alerts/*/close"]),
        Builtin::Alertmanager => Effect::Does(ALERT, &["/api/v2/alerts"]),
        Builtin::SentryReleaseDeploy => Effect::Does("record a deploy of a release", &["/releases/*/deploys"]),
        Builtin::GrafanaAnnotation => Effect::Does("mark a deployment in graphs", &["/api/annotations"]),
        Builtin::DatadogEvent => Effect::Does("record an event on which monitors can act", &["/api/v1/events"]),
        Builtin::Cloudevents | Builtin::Cdevents | Builtin::Generic => Effect::Does(EVENT, &[]),
        Builtin::Slack
        | Builtin::Teams
        | Builtin::Mattermost
        | Builtin::Discord
        | Builtin::GoogleChat
        | Builtin::Webex
        | Builtin::Rocketchat
        | Builtin::Telegram
        | Builtin::Matrix
        | Builtin::Ntfy
        | Builtin::GithubIssueComment => Effect::Shows,
    }
}

/// How the receiver can see that a request is a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marked {
    /// The first line of the message says it.
    Text(Builtin),
    /// Only a header says it, because a user wrote the template.
    Header,
}

/// What a test would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The receiver can act on promotions, because the notification reports this type.
    Promotion(TransitionType),
    /// What the receiver of this built-in template does.
    Builtin(Builtin, &'static str),
}

/// Decides whether a test of these effective settings may be sent.
pub(super) fn marked(spec: &NotificationSpec) -> Result<Marked, Change> {
    let mut types = spec.triggers.iter().flatten().map(|trigger| trigger.type_);
    if let Some(type_) = types.find(|type_| type_.family() == Family::Promotion) {
        return Err(Change::Promotion(type_));
    }
    let Some(name) = spec.template.as_ref().and_then(|template| template.builtin) else { return Ok(Marked::Header) };
    match effect(name) {
        Effect::Shows => Ok(Marked::Text(name)),
        Effect::Does(what, _) => Err(Change::Builtin(name, what)),
    }
}

/// Returns the built-in template whose requests have such a URL, if its receiver does something. A template of a user can be a copy of it.
pub(super) fn alike(url: &Url) -> Option<(Builtin, &'static str)> {
    let path = segments(url.path());
    let known = Builtin::ALL.into_iter().filter_map(|name| match effect(name) {
        Effect::Does(what, endings) => Some((name, what, endings)),
        Effect::Shows => None,
    });
    let all = known.flat_map(|(name, what, endings)| endings.iter().map(move |ending| (segments(ending), name, what)));
    let same = all.filter(|(ending, ..)| ends_with(&path, ending));
    same.max_by_key(|(ending, ..)| ending.len()).map(|(_, name, what)| (name, what))
}

fn segments(path: &str) -> Vec<&str> {
    path.split('/').filter(|segment| !segment.is_empty()).collect()
}

fn ends_with(path: &[&str], ending: &[&str]) -> bool {
    let last = path.len().checked_sub(ending.len()).and_then(|start| path.get(start..));
    last.is_some_and(|last| last.iter().zip(ending).all(|(is, wanted)| *wanted == "*" || is == wanted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use relaybook_settings::render::builtin;

    #[allow(clippy::needless_pass_by_value, reason = "a test passes what `json!` returns")]
    fn spec(template: serde_json::Value, types: &[&str]) -> NotificationSpec {
        let triggers: Vec<_> = types.iter().map(|type_| json!({"type": type_})).collect();
        serde_json::from_value(json!({"triggers": triggers, "template": template})).unwrap()
    }

    #[test]
    fn a_test_is_marked_for_message_templates_and_refused_for_others() {
        for name in Builtin::ALL {
            let decided = marked(&spec(json!({"builtin": name}), &["Deployed", "Failed"]));
            match effect(name) {
                Effect::Shows => {
                    assert_eq!(decided, Ok(Marked::Text(name)));
                    let parameters = &builtin(name).metadata.parameters;
                    assert!(parameters.iter().any(|parameter| parameter.name == HEADLINE), "{name:?} has no headline");
                }
                Effect::Does(what, _) => assert_eq!(decided, Err(Change::Builtin(name, what))),
            }
        }
    }

    #[test]
    fn tests_of_promotions_are_refused_and_own_templates_get_only_the_header() {
        let own = || json!({"inline": {"body": "{}"}});
        assert_eq!(marked(&spec(own(), &["Deployed"])), Ok(Marked::Header));
        assert_eq!(marked(&spec(json!({"configMapKeyRef": {"name": "a", "key": "b"}}), &[])), Ok(Marked::Header));
        for type_ in TransitionType::ALL {
            for template in [own(), json!({"builtin": "slack"})] {
                let decided = marked(&spec(template, &["Deployed", type_.as_str()]));
                let is_promotion = type_.as_str().starts_with("Promotion");
                assert_eq!(decided == Err(Change::Promotion(type_)), is_promotion, "{type_:?}: {decided:?}");
                assert_eq!(decided.is_ok(), !is_promotion, "{type_:?}");
            }
        }
    }

    #[test]
    fn a_url_is_matched_with_the_paths_of_built_in_templates() {
        for (url, name) in [
            ("https://github.example.com/api/v3/repos/acme/shop/statuses/5f3d", Some(Builtin::GithubCommitStatus)),
            ("https://git.example.com/api/v1/repos/acme/shop/statuses/5f3d", Some(Builtin::GiteaCommitStatus)),
            ("https://gitlab.com/api/v4/projects/acme%2Fshop/statuses/5f3d?name=a", Some(Builtin::GitlabCommitStatus)),
            ("https://gitlab.com/api/v4/projects/7/ref/main/trigger/pipeline?token=a", Some(Builtin::GitlabPipelineTrigger)),
            ("https://alerts.example.com/api/v2/alerts", Some(Builtin::Alertmanager)),
            ("https://api.opsgenie.com/v2/alerts?identifierType=alias", Some(Builtin::Opsgenie)),
            ("https://sentry.io/api/0/organizations/a/releases/b/deploys/", Some(Builtin::SentryReleaseDeploy)),
            ("https://git.example.com/api/v1/statuses", None),
            ("https://hooks.slack.com/services/T/B/X", None),
            ("https://events.example.com/", None),
            ("https://api.github.com/repos/acme/shop/issues/7/comments", None),
        ] {
            assert_eq!(alike(&url.parse().unwrap()).map(|(name, _)| name), name, "{url}");
        }
    }

    /// The page about the audit page has the same table.
    #[test]
    fn the_documentation_lists_which_templates_can_be_tested() {
        let page = include_str!("../../../../../docs/page.md");
        let row = |begins: &str| page.lines().find(|line| line.starts_with(begins)).unwrap_or_else(|| panic!("{begins}"));
        let (sent, refused) = (row("| sent, marked"), row("| refused"));
        for name in Builtin::ALL {
            let word = format!("`{}`", name.as_str());
            let is_sent = effect(name) == Effect::Shows;
            assert_eq!((sent.contains(&word), refused.contains(&word)), (is_sent, !is_sent), "{word}");
        }
    }
}
