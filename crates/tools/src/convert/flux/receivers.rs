//! The types of Providers, and the templates that send the same. Pure.

use relaybook_api::TransitionType;
use relaybook_api::notification::Builtin;
use relaybook_settings::render::builtin;

/// A type of a Provider.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The type in Flux.
    pub(super) flux: &'static str,
    /// The template.
    pub(super) builtin: Builtin,
    pub(super) address: Address,
    pub(super) login: Login,
    pub(super) channel: Channel,
}

/// What the address of a Provider is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// The URL of a webhook, which is a credential.
    Hidden,
    /// The URL of the requests.
    Open,
    /// The URL of a service. The template appends its path.
    Service {
        /// The path that the address can have already.
        path: &'static str,
        /// Whether the path is the same in all requests, so a URL in a Secret can have it.
        is_static: bool,
        /// Where all users send.
        origin: Option<&'static str>,
    },
    /// The URL of an alert source of incident.io.
    AlertSource,
    /// The API of Telegram, whatever the address is. The token is a part of the URL.
    Bot,
    /// A Git repository.
    Repository(Forge),
}

/// The server of a Git repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forge {
    Github,
    Gitlab,
    Gitea,
    Bitbucket,
    BitbucketServer,
    AzureDevops,
}

/// How a Provider signs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Login {
    /// Not at all.
    None,
    /// With the key `token`.
    Token,
    /// With the key `token`, or with `username` and `password`, if there is a Secret with them.
    TokenIfAny,
    /// With the key `token`, or with `username` and `password`.
    TokenOrBasic,
    /// With `username` and `password`.
    Basic,
    /// With a user and a password in the key `token`, separated by a colon.
    Pair,
    /// With the key `token` as a password.
    Password,
    /// With a signature by the key `token`.
    Signature,
    /// With the headers in the key `headers`.
    Headers,
    /// With the channel.
    RoutingKey,
}

/// What the channel of a Provider is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    /// Nothing: the address decides.
    Unused,
    /// A parameter of the template.
    Parameter(&'static str),
    /// A parameter that the template requires.
    Required(&'static str),
    /// A channel and a topic, separated by a slash.
    Topic,
    /// A credential.
    Credential,
}

const fn service(path: &'static str, is_static: bool, origin: Option<&'static str>) -> Address {
    Address::Service { path, is_static, origin }
}

const fn row(flux: &'static str, builtin: Builtin, address: Address, login: Login, channel: Channel) -> Receiver {
    Receiver { flux, builtin, address, login, channel }
}

const fn forge(flux: &'static str, builtin: Builtin, forge: Forge, login: Login) -> Receiver {
    row(flux, builtin, Address::Repository(forge), login, Channel::Unused)
}

static RECEIVERS: [Receiver; 30] = [
    row("slack", Builtin::Slack, Address::Hidden, Login::None, Channel::Parameter("channel")),
    row("discord", Builtin::Discord, Address::Hidden, Login::None, Channel::Unused),
    row("msteams", Builtin::Teams, Address::Hidden, Login::None, Channel::Unused),
    row("rocket", Builtin::Rocketchat, Address::Hidden, Login::None, Channel::Parameter("channel")),
    row("googlechat", Builtin::GoogleChat, Address::Hidden, Login::None, Channel::Unused),
    row("lark", Builtin::Lark, Address::Hidden, Login::None, Channel::Unused),
    row("generic", Builtin::FluxEvent, Address::Open, Login::Headers, Channel::Unused),
    row("generic-hmac", Builtin::FluxEvent, Address::Open, Login::Signature, Channel::Unused),
    row("zoom", Builtin::Zoom, Address::Open, Login::Token, Channel::Unused),
    row(
        "grafana",
        Builtin::GrafanaAnnotation,
        service("/api/annotations", true, None),
        Login::TokenOrBasic,
        Channel::Unused,
    ),
    row("alertmanager", Builtin::Alertmanager, service("/api/v2/alerts", true, None), Login::TokenIfAny, Channel::Unused),
    row(
        "opsgenie",
        Builtin::Opsgenie,
        service("/v2/alerts", false, Some("https://api.opsgenie.com")),
        Login::Token,
        Channel::Unused,
    ),
    row(
        "webex",
        Builtin::Webex,
        service("/v1/messages", false, Some("https://webexapis.com")),
        Login::Token,
        Channel::Required("roomId"),
    ),
    row(
        "pagerduty",
        Builtin::Pagerduty,
        service("/v2/enqueue", false, Some("https://events.pagerduty.com")),
        Login::RoutingKey,
        Channel::Credential,
    ),
    row("datadog", Builtin::DatadogEvent, service("/api/v1/events", true, None), Login::Token, Channel::Unused),
    row("matrix", Builtin::Matrix, service("", false, None), Login::Token, Channel::Required("roomId")),
    row("zulip", Builtin::Zulip, service("/api/v1/messages", false, None), Login::Basic, Channel::Topic),
    row("incidentio", Builtin::IncidentIo, Address::AlertSource, Login::Token, Channel::Unused),
    row("incident.io", Builtin::IncidentIo, Address::AlertSource, Login::Token, Channel::Unused),
    row("telegram", Builtin::Telegram, Address::Bot, Login::None, Channel::Required("chatId")),
    forge("github", Builtin::GithubCommitStatus, Forge::Github, Login::Token),
    forge("githubdispatch", Builtin::GithubRepositoryDispatch, Forge::Github, Login::Token),
    forge("githubpullrequestcomment", Builtin::GithubPullRequestComment, Forge::Github, Login::Token),
    forge("gitlab", Builtin::GitlabCommitStatus, Forge::Gitlab, Login::Token),
    forge("gitlabmergerequestcomment", Builtin::GitlabMergeRequestComment, Forge::Gitlab, Login::Token),
    forge("gitea", Builtin::GiteaCommitStatus, Forge::Gitea, Login::Token),
    forge("giteapullrequestcomment", Builtin::GiteaPullRequestComment, Forge::Gitea, Login::Token),
    forge("bitbucket", Builtin::BitbucketBuildStatus, Forge::Bitbucket, Login::Pair),
    forge("bitbucketserver", Builtin::BitbucketServerBuildStatus, Forge::BitbucketServer, Login::TokenOrBasic),
    forge("azuredevops", Builtin::AzureDevopsGitStatus, Forge::AzureDevops, Login::Password),
];

/// The types without a template, and what to do.
const OTHERS: [(&str, &str); 5] = [
    ("sentry", "Flux sends events by a DSN; the template sentry-release-deploy reports deploys of releases instead"),
    ("googlepubsub", "Relaybook sends HTTP requests, and has no tokens of Google for Pub/Sub"),
    ("azureeventhub", "Relaybook has no signatures of Azure Event Hubs"),
    ("nats", "Relaybook sends HTTP requests only"),
    ("otel", "Relaybook traces deliveries (docs/tracing.md), and sends no spans about applications"),
];

impl Receiver {
    /// Returns the type with this name. The error says why there is no template; `None` in it: there is no such type.
    pub(super) fn named(flux: &str) -> Result<&'static Self, Option<&'static str>> {
        let known = RECEIVERS.iter().find(|receiver| receiver.flux == flux);
        known.ok_or_else(|| OTHERS.iter().find(|(name, _)| *name == flux).map(|(_, why)| *why))
    }

    /// Returns the names of all types.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        RECEIVERS.iter().map(|receiver| receiver.flux).chain(OTHERS.iter().map(|(name, _)| *name))
    }

    /// Whether each request is about a commit.
    pub(super) fn needs_commit(&self) -> bool {
        matches!(self.address, Address::Repository(_)) && self.builtin != Builtin::GithubRepositoryDispatch
    }

    /// Returns the parameter that distinguishes commit statuses.
    pub(super) fn context(&self) -> Option<&'static str> {
        match self.builtin {
            Builtin::GithubCommitStatus | Builtin::GiteaCommitStatus => Some("context"),
            Builtin::GitlabCommitStatus
            | Builtin::BitbucketBuildStatus
            | Builtin::BitbucketServerBuildStatus
            | Builtin::AzureDevopsGitStatus => Some("name"),
            _ => None,
        }
    }

    /// Whether the template has a parameter.
    pub(super) fn takes(&self, parameter: &str) -> bool {
        builtin(self.builtin).metadata.parameters.iter().any(|declared| declared.name == parameter)
    }

    /// Whether a failure stays visible there until another transition ends it.
    pub(super) fn shows_a_state(&self) -> bool {
        self.needs_commit()
            || matches!(self.builtin, Builtin::Pagerduty | Builtin::Opsgenie | Builtin::Alertmanager | Builtin::IncidentIo)
    }

    /// Returns the transitions that end what it shows, so that their messages do not matter.
    pub(super) fn ends(&self) -> &'static [TransitionType] {
        const ENDS: &[TransitionType] = &[TransitionType::Deployed, TransitionType::Recovered, TransitionType::Removed];
        if self.shows_a_state() { ENDS } else { &[] }
    }

    /// Returns the transitions of an Alert. `only_errors`: its severity is `error`.
    pub(super) fn types(&self, only_errors: bool) -> Vec<TransitionType> {
        use TransitionType::{Deployed, Failed, Progressing, Recovered, Removed};
        let usual = &builtin(self.builtin).metadata.example.triggers;
        let wanted = |type_: &TransitionType| match type_ {
            Failed => true,
            Recovered => !only_errors || self.shows_a_state(),
            // What ends a failure must be sent, too.
            Deployed => !only_errors || (self.shows_a_state() && usual.contains(&Deployed)),
            Removed => self.shows_a_state() && usual.contains(&Removed),
            Progressing => !only_errors && (!self.shows_a_state() || usual.contains(&Progressing)),
            _ => false,
        };
        [Progressing, Deployed, Failed, Recovered, Removed].into_iter().filter(wanted).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_type_has_a_template_that_takes_its_parameters() {
        let names: BTreeSet<_> = Receiver::names().collect();
        assert_eq!(names.len(), RECEIVERS.len() + OTHERS.len());
        for receiver in &RECEIVERS {
            let name = match receiver.channel {
                Channel::Parameter(name) | Channel::Required(name) => name,
                Channel::Topic => "topic",
                Channel::Unused | Channel::Credential => "title",
            };
            let is_status = receiver.context().is_some_and(|context| receiver.takes(context));
            let has_event = receiver.builtin == Builtin::GithubRepositoryDispatch && receiver.takes("eventType");
            assert!(receiver.takes(name) || is_status || has_event, "{receiver:?}");
            for only_errors in [false, true] {
                let types = receiver.types(only_errors);
                assert!(types.iter().all(|type_| builtin(receiver.builtin).metadata.reports(*type_)), "{receiver:?}");
                assert!(types.contains(&TransitionType::Failed), "{receiver:?}");
            }
        }
        assert!(matches!(Receiver::named("nats"), Err(Some(_))) && matches!(Receiver::named("slak"), Err(None)));
    }

    #[test]
    fn an_alert_of_errors_also_ends_what_it_shows() {
        use TransitionType::{Deployed, Failed, Progressing, Recovered, Removed};
        for (flux, only_errors, expected) in [
            ("slack", true, &[Failed][..]),
            ("slack", false, &[Progressing, Deployed, Failed, Recovered]),
            ("pagerduty", true, &[Deployed, Failed, Recovered, Removed]),
            ("pagerduty", false, &[Deployed, Failed, Recovered, Removed]),
            ("opsgenie", false, &[Progressing, Deployed, Failed, Recovered, Removed]),
            ("github", true, &[Deployed, Failed, Recovered]),
            ("github", false, &[Progressing, Deployed, Failed, Recovered]),
        ] {
            assert_eq!(Receiver::named(flux).unwrap().types(only_errors), expected, "{flux}");
        }
    }
}
