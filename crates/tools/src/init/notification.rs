//! The Notification for one receiver. Pure.
//!
//! In: the built-in template of the receiver, and [`Answers`]. Out: the manifest and the Secret that it refers to ([`Made`]), or an
//! [`InitError`] with the flags to add.

use std::collections::BTreeSet;

use super::answers::{Answers, LABEL, On, SecretName, Source};
use super::files::{Manifest, quoted};
use super::{InitError, SecretNeed};
use crate::preview::{Chosen, Manifests, chosen_notification, usual_secret};
use relaybook_api::TransitionType;
use relaybook_api::notification::Builtin;
use relaybook_settings::config::{Given, resolve};
use relaybook_settings::render::{BuiltinTemplate, CredentialsKind, Declared};
use relaybook_text::escaped;

/// The parameter with the headline, and its value for the pipelines of a set. Their names and their only environment say less.
const TITLE: (&str, &str) = (
    "title",
    "{{#if target.app.name}}{{target.app.kind}} {{target.namespace}}/{{target.app.name}}{{else}}{{pipeline.name}}{{/if}}: {{type}}",
);
/// Receivers that show a state until a transition replaces it. A failure that ends with a deployment must not stay there.
const SHOW_A_STATE: [Builtin; 16] = [
    Builtin::GithubCommitStatus,
    Builtin::GitlabCommitStatus,
    Builtin::GiteaCommitStatus,
    Builtin::BitbucketBuildStatus,
    Builtin::BitbucketServerBuildStatus,
    Builtin::AzureDevopsGitStatus,
    Builtin::Pagerduty,
    Builtin::Opsgenie,
    Builtin::Alertmanager,
    Builtin::IncidentIo,
    Builtin::GithubDeployment,
    Builtin::GithubCheckRun,
    Builtin::GitlabDeployment,
    Builtin::GithubPullRequestComment,
    Builtin::GiteaPullRequestComment,
    Builtin::GitlabMergeRequestComment,
];
/// The receiver that records each transition as a deployment. So it must get only those of its example.
const RECORDS_DEPLOYMENTS: Builtin = Builtin::SentryReleaseDeploy;

/// A Notification, and what it needs.
pub(super) struct Made {
    /// Its name.
    pub(super) name: String,
    /// The receiver.
    pub(super) receiver: &'static str,
    /// The file.
    pub(super) manifest: Manifest,
    /// The Secret, if it refers to one.
    pub(super) secret: Option<SecretNeed>,
    /// Whether it can report only revisions with a commit.
    pub(super) needs_commit: bool,
    /// Where it sends, if the person has not chosen that.
    pub(super) note: Option<String>,
}

impl Made {
    /// Makes the Notification in this namespace and with this name. The values that only the person knows are there.
    pub(super) fn new(
        template: &'static BuiltinTemplate,
        answers: &Answers,
        (namespace, name): (&str, String),
    ) -> Result<Self, InitError> {
        let (receiver, metadata) = (template.name.as_str(), &template.metadata);
        let triggers = triggers(template, answers.on);
        if triggers.is_empty() {
            return Err(InitError::OnlyDeployments(receiver));
        }
        let (usual_name, usual_key) = usual_secret(template);
        let (secret_name, key) = match &answers.secret {
            Some(SecretName { name, key }) => (name.as_str(), key.as_deref().unwrap_or(usual_key)),
            None => (usual_name, usual_key),
        };
        let parameters = parameters(template, answers);
        let url = answers.url.as_deref().unwrap_or(&metadata.example.url);
        let selector = answers.pipeline().map(|name| (LABEL, name));
        let chosen = Chosen {
            name: &name,
            namespace: Some(namespace),
            selector,
            triggers: &triggers,
            url,
            secret: (secret_name, key),
            parameters: &parameters,
        };
        let notification = chosen_notification(template, &chosen);
        let applies = match selector {
            Some(_) => "the Pipelines with the label below. Without pipelineSelector, it applies to all of its namespace.",
            None => "all Pipelines of its namespace. To select some of them by label, set pipelineSelector.",
        };
        let text = format!("# {}: {}\n# It applies to {applies}\n{notification}", metadata.title, metadata.documentation);
        let types = triggers.iter().map(|type_| type_.as_str()).collect::<Vec<_>>().join(", ");
        let mut about = format!("Notification {namespace}/{name}: {types}");
        let mut note = None;
        if let Some(origin) = origin(url).filter(|_| metadata.credentials.kind != CredentialsKind::Url) {
            about = format!("{about}, to {origin}");
            note = answers.url.is_none().then(|| format!("{name} sends to {origin}; --url sets another address"));
        }
        let secret = secret_need(template, secret_name, key);
        let manifest = Manifest { file: format!("notification-{name}.yaml"), about, text };
        Ok(Self { receiver, manifest, secret, needs_commit: needs_commit(&notification, namespace), name, note })
    }
}

/// Refuses receivers without the values that only the person knows.
pub(super) fn refuse_incomplete(
    templates: impl Iterator<Item = &'static BuiltinTemplate>,
    answers: &Answers,
) -> Result<(), InitError> {
    let (mut needs, mut flags, mut asked) = (Vec::new(), Vec::new(), BTreeSet::new());
    for template in templates {
        let required = template.metadata.parameters.iter().filter(|p| p.is_required());
        let missing: Vec<&Declared> = required.filter(|p| !answers.settings.contains_key(&p.name)).collect();
        let mut own: Vec<String> = missing.iter().map(|p| format!("the parameter {}", p.name)).collect();
        // Receivers can share a parameter.
        for parameter in missing.into_iter().filter(|p| asked.insert(p.name.as_str())) {
            let value = parameter.example.as_deref().unwrap_or("VALUE");
            flags.push(format!("--set {}", quoted(&format!("{}={value}", parameter.name))));
        }
        if answers.url.is_none() && has_own_host(template) {
            own.push("the URL of the receiver".to_owned());
            flags.push(format!("--url {}", quoted(&template.metadata.example.url)));
        }
        if !own.is_empty() {
            needs.push(format!("{} needs {}", template.name.as_str(), own.join(", ")));
        }
    }
    if needs.is_empty() {
        return Ok(());
    }
    Err(InitError::Incomplete { needs: needs.join("; "), flags: flags.join(" ") })
}

/// Returns scheme, host and port of a URL, safe for a terminal. Path and query can contain a credential.
fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#', '\\']).next().filter(|of| !of.is_empty() && !of.contains('@'))?;
    Some(escaped(&format!("{scheme}://{authority}")))
}

/// Whether each user has another host, so that the URL of the example is useless.
fn has_own_host(template: &BuiltinTemplate) -> bool {
    let url = template.metadata.example.url.as_str();
    let host = url.split_once("://").map_or("", |(_, rest)| rest).split(['/', ':']).next().unwrap_or_default();
    let is_example = host.strip_suffix(".example.com").or_else(|| host.strip_suffix(".svc")).is_some();
    template.metadata.credentials.kind != CredentialsKind::Url && is_example
}

/// Returns the transitions to report, in the order of the API.
fn triggers(template: &BuiltinTemplate, on: On) -> Vec<TransitionType> {
    use TransitionType::{Deployed, Failed, Progressing, Recovered, Removed};
    let usual = &template.metadata.example.triggers;
    let ends_a_failure = |type_: TransitionType| {
        SHOW_A_STATE.contains(&template.name) && matches!(type_, Deployed | Removed) && usual.contains(&type_)
    };
    let is_wanted = |type_: TransitionType| match on {
        On::All => true,
        _ if matches!(type_, Failed | Recovered) || ends_a_failure(type_) => true,
        On::Deployments => matches!(type_, Progressing | Deployed),
        On::Failures => false,
    };
    let is_shown = |type_: TransitionType| {
        template.metadata.reports(type_) && (template.name != RECORDS_DEPLOYMENTS || usual.contains(&type_))
    };
    TransitionType::ALL.into_iter().filter(|type_| is_wanted(*type_) && is_shown(*type_)).collect()
}

/// Returns the parameters to set, in the order of the documentation.
fn parameters<'a>(template: &'static BuiltinTemplate, answers: &'a Answers) -> Vec<(&'static Declared, &'a str)> {
    let is_set = matches!(answers.source, Source::Follow(_));
    let value = |p: &Declared| {
        let chosen = answers.settings.get(&p.name).map(String::as_str);
        chosen.or_else(|| (is_set && p.name == TITLE.0).then_some(TITLE.1))
    };
    template.metadata.parameters.iter().filter_map(|p| Some((p, value(p)?))).collect()
}

/// Whether a Notification can report only revisions with a commit.
fn needs_commit(notification: &str, namespace: &str) -> bool {
    let mut manifests = Manifests::default();
    // If it cannot be read, the lint reports why.
    if manifests.add("notification", notification, namespace).is_err() {
        return false;
    }
    let given = Given { allow_http: true, ..Given::nothing() };
    manifests.notifications.iter().any(|one| resolve(one, &given).sending.is_ok_and(|sending| sending.needs_commit))
}

fn secret_need(template: &BuiltinTemplate, name: &str, key: &str) -> Option<SecretNeed> {
    let credentials = &template.metadata.credentials;
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let keys = match credentials.kind {
        CredentialsKind::None => return None,
        CredentialsKind::Url => vec![pair(key, "URL")],
        CredentialsKind::Token => vec![pair(key, "TOKEN")],
        CredentialsKind::Basic => vec![pair("username", "USER"), pair("password", "PASSWORD")],
    };
    let description = credentials.description.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(SecretNeed { name: name.to_owned(), keys, about: vec![format!("{}: {description}", template.name.as_str())] })
}
