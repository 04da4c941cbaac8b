//! The names of the built-in templates, as used in `spec.template.builtin`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A built-in template of Relaybook. Two files of this name in `templates/` define what it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Builtin {
    /// A status on a commit at GitHub.
    GithubCommitStatus,
    /// A `repository_dispatch` event at GitHub.
    GithubRepositoryDispatch,
    /// A status on a commit at GitLab.
    GitlabCommitStatus,
    /// A status on a commit at Gitea or Forgejo.
    GiteaCommitStatus,
    /// A message in Slack (Block Kit).
    Slack,
    /// A card in Microsoft Teams (Workflows).
    Teams,
    /// A message in Mattermost.
    Mattermost,
    /// A message in Discord.
    Discord,
    /// A CloudEvent, structured.
    Cloudevents,
    /// All template data as JSON.
    Generic,
    /// A comment on an issue or pull request at GitHub.
    GithubIssueComment,
    /// A pipeline run at GitLab.
    GitlabPipelineTrigger,
    /// A build status on a commit at Bitbucket Cloud.
    BitbucketBuildStatus,
    /// A status on a commit at Azure DevOps.
    AzureDevopsGitStatus,
    /// A card in Google Chat.
    GoogleChat,
    /// A message in Webex.
    Webex,
    /// A message in Rocket.Chat.
    Rocketchat,
    /// A message in Telegram.
    Telegram,
    /// A notice in a Matrix room.
    Matrix,
    /// A push message by ntfy.
    Ntfy,
    /// An incident at PagerDuty (Events API v2).
    Pagerduty,
    /// An alert at Opsgenie.
    Opsgenie,
    /// An alert at Prometheus Alertmanager.
    Alertmanager,
    /// An annotation in Grafana.
    GrafanaAnnotation,
    /// An event at Datadog.
    DatadogEvent,
    /// A deploy of a release at Sentry.
    SentryReleaseDeploy,
    /// A CDEvent about a service or its environment.
    Cdevents,
    /// A build status on a commit at Bitbucket Data Center.
    BitbucketServerBuildStatus,
    /// A message in Lark or Feishu.
    Lark,
    /// A message in Zoom Team Chat.
    Zoom,
    /// An alert at incident.io.
    IncidentIo,
    /// An event at New Relic.
    NewRelicEvent,
    /// A message of a bot in Mattermost.
    MattermostBot,
    /// An event as Flux sends it.
    FluxEvent,
    /// A deployment at GitHub, with its status.
    GithubDeployment,
    /// A check run on a commit at GitHub.
    GithubCheckRun,
    /// A deployment at GitLab.
    GitlabDeployment,
    /// A comment on the pull request of a commit at GitHub.
    GithubPullRequestComment,
    /// A comment on the pull request of a commit at Gitea or Forgejo.
    GiteaPullRequestComment,
    /// A comment on the merge request of a commit at GitLab.
    GitlabMergeRequestComment,
    /// A message of a bot in Zulip.
    Zulip,
    /// A push notification of Pushover.
    Pushover,
}

impl Builtin {
    /// All built-in templates, in the order of the documentation.
    pub const ALL: [Self; 42] = [
        Self::GithubCommitStatus,
        Self::GithubRepositoryDispatch,
        Self::GitlabCommitStatus,
        Self::GiteaCommitStatus,
        Self::Slack,
        Self::Teams,
        Self::Mattermost,
        Self::Discord,
        Self::Cloudevents,
        Self::Generic,
        Self::GithubIssueComment,
        Self::GitlabPipelineTrigger,
        Self::BitbucketBuildStatus,
        Self::AzureDevopsGitStatus,
        Self::GoogleChat,
        Self::Webex,
        Self::Rocketchat,
        Self::Telegram,
        Self::Matrix,
        Self::Ntfy,
        Self::Pagerduty,
        Self::Opsgenie,
        Self::Alertmanager,
        Self::GrafanaAnnotation,
        Self::DatadogEvent,
        Self::SentryReleaseDeploy,
        Self::Cdevents,
        Self::BitbucketServerBuildStatus,
        Self::Lark,
        Self::Zoom,
        Self::IncidentIo,
        Self::NewRelicEvent,
        Self::MattermostBot,
        Self::FluxEvent,
        Self::GithubDeployment,
        Self::GithubCheckRun,
        Self::GitlabDeployment,
        Self::GithubPullRequestComment,
        Self::GiteaPullRequestComment,
        Self::GitlabMergeRequestComment,
        Self::Zulip,
        Self::Pushover,
    ];

    /// Returns the name, as it is written in the resource.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GithubCommitStatus => "github-commit-status",
            Self::GithubRepositoryDispatch => "github-repository-dispatch",
            Self::GitlabCommitStatus => "gitlab-commit-status",
            Self::GiteaCommitStatus => "gitea-commit-status",
            Self::Slack => "slack",
            Self::Teams => "teams",
            Self::Mattermost => "mattermost",
            Self::Discord => "discord",
            Self::Cloudevents => "cloudevents",
            Self::Generic => "generic",
            Self::GithubIssueComment => "github-issue-comment",
            Self::GitlabPipelineTrigger => "gitlab-pipeline-trigger",
            Self::BitbucketBuildStatus => "bitbucket-build-status",
            Self::AzureDevopsGitStatus => "azure-devops-git-status",
            Self::GoogleChat => "google-chat",
            Self::Webex => "webex",
            Self::Rocketchat => "rocketchat",
            Self::Telegram => "telegram",
            Self::Matrix => "matrix",
            Self::Ntfy => "ntfy",
            Self::Pagerduty => "pagerduty",
            Self::Opsgenie => "opsgenie",
            Self::Alertmanager => "alertmanager",
            Self::GrafanaAnnotation => "grafana-annotation",
            Self::DatadogEvent => "datadog-event",
            Self::SentryReleaseDeploy => "sentry-release-deploy",
            Self::Cdevents => "cdevents",
            Self::BitbucketServerBuildStatus => "bitbucket-server-build-status",
            Self::Lark => "lark",
            Self::Zoom => "zoom",
            Self::IncidentIo => "incident-io",
            Self::NewRelicEvent => "new-relic-event",
            Self::MattermostBot => "mattermost-bot",
            Self::FluxEvent => "flux-event",
            Self::GithubDeployment => "github-deployment",
            Self::GithubCheckRun => "github-check-run",
            Self::GitlabDeployment => "gitlab-deployment",
            Self::GithubPullRequestComment => "github-pull-request-comment",
            Self::GiteaPullRequestComment => "gitea-pull-request-comment",
            Self::GitlabMergeRequestComment => "gitlab-merge-request-comment",
            Self::Zulip => "zulip",
            Self::Pushover => "pushover",
        }
    }

    /// Returns the built-in template with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lists_every_variant() {
        let schema = serde_json::to_value(schemars::schema_for!(Builtin)).unwrap();
        let names = schema["oneOf"].as_array().unwrap().iter().map(|one| one["const"].as_str().unwrap().to_owned());
        assert_eq!(names.collect::<Vec<_>>(), Builtin::ALL.map(Builtin::as_str));
    }

    #[test]
    fn names_are_those_of_the_serialized_values() {
        for builtin in Builtin::ALL {
            assert_eq!(serde_json::to_value(builtin).unwrap(), builtin.as_str());
            assert_eq!(Builtin::named(builtin.as_str()), Some(builtin));
        }
    }
}
