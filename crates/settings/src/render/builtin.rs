//! The built-in templates: what they send, and what users must know to use them.
//!
//! Each template has two files in `templates/`: `NAME.hbs` contains the body, and `NAME.yaml` contains the [`Metadata`]. They are compiled
//! like any other template, together with the notification that uses them.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use relaybook_api::TransitionType;
use relaybook_api::notification::{Builtin, Method, Thread};

/// A built-in template.
#[derive(Debug)]
pub struct BuiltinTemplate {
    /// Its name.
    pub name: Builtin,
    /// What users must know to use it.
    pub metadata: Metadata,
    /// Source of the body.
    pub body: &'static str,
}

/// What users must know to use a built-in template.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// What it sends; a short text for lists.
    pub title: String,
    /// URL of the documentation of the receiver.
    pub documentation: String,
    /// What users see in the receiver, and how each transition appears there.
    pub description: String,
    /// Transitions that it cannot report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreported: Option<Unreported>,
    /// How a test differs from the truth.
    pub test: TestMark,
    /// HTTP method.
    #[serde(default)]
    pub method: Method,
    /// Template of path and query. It is appended to the URL of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Media type of the body.
    #[serde(default = "json")]
    pub content_type: String,
    /// Templates of the header values, by header name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The credentials that the receiver requires.
    pub credentials: Credentials,
    /// The default of `endpoint.success`: as which status an answer counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success: Option<String>,
    /// The default of `endpoint.thread`: how deliveries continue a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<Thread>,
    /// What the message is a part of, such as a pull request. Without it, nothing is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// How a message of the thread is found again, if nothing is remembered of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub find: Option<Finding>,
    /// Whether the request that continues a message also follows the one that creates it, in the same attempt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follow: bool,
    /// The types after which a message is continued. By default, those that do not end what it reports, such as `Progressing` and `Failed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub continued_after: Vec<TransitionType>,
    /// The parameters that users can set in `template.parameters`.
    #[serde(default)]
    pub parameters: Vec<Declared>,
    /// The limits of the receiver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// The worked example.
    pub example: Example,
    /// Further notes, in Markdown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
}

impl Metadata {
    /// Whether it can report transitions of this type.
    #[must_use]
    pub fn reports(&self, type_: TransitionType) -> bool {
        self.unreported.as_ref().is_none_or(|unreported| !unreported.types.contains(&type_))
    }
}

/// Transitions that a template cannot report, because the receiver has no equivalent for them.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Unreported {
    /// The types of these transitions.
    pub types: Vec<TransitionType>,
    /// The reason, as the end of a sentence.
    pub because: String,
}

/// How a message is found that an earlier attempt created. One GET request looks for it, before a message is created.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Finding {
    /// Template of path and query. The path is relative to the URL of the first request, as in `thread.update.path`; an empty one is that of the
    /// URL. The query is appended to that of the URL.
    pub path: String,
    /// JSON Pointer to the list in the answer. By default, the answer is the list.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub list: String,
    /// CEL like that of `ours`. If it is set, only the item with the highest `id` for which it is true can be the message. This is for receivers whose objects have
    /// no place for an identity: an object of an earlier rollout is not continued after that of a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<String>,
    /// CEL over the `body` of an item, that of the `request` that would create the message, and its `id` as in `thread.id`. The item with the lowest `id`
    /// for which it is true is the message, and `thread.remember` reads it as if it were the answer to that request.
    pub ours: String,
    /// Whether the message is created once more if the list is too long, or if the message is lost. A second message does less harm than none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// How the parent of a message is found, such as the pull request of a commit. One GET request looks for it, before a message is looked for or
/// created.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Parent {
    /// Template of path and query, as in [`Finding::path`].
    pub path: String,
    /// Whether the answer is one item instead of a list.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub single: bool,
    /// CEL over the answer, as `thread.update.lost`: whether it says that there is no such item.
    pub none: String,
    /// CEL over the `body` of an item. The first one that is true for an item decides, and of several items the one with the lowest `id`.
    pub pick: Vec<String>,
    /// CEL over the `body` of the item: its number, which is `remembered.number` in the templates of path and body.
    pub number: String,
    /// Template of the path of the request that creates the message, as in [`Finding::path`].
    pub create: String,
}

/// How a request of a test differs from the truth. In the file it is a mapping with `mark` or `acts`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "TestFields", into = "TestFields")]
pub enum TestMark {
    /// The receiver can see that it is a test, and no real state changes.
    Mark {
        /// How it can see that, as the end of a sentence.
        how: String,
        /// Whether a second request, with the type that ends the state of the first one, closes the alert of the test.
        resolves: bool,
    },
    /// The receiver acts on each request: "a test would …".
    Acts(String),
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TestFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mark: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resolves: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    acts: Option<String>,
}

impl TryFrom<TestFields> for TestMark {
    type Error = &'static str;

    fn try_from(fields: TestFields) -> Result<Self, Self::Error> {
        match fields {
            TestFields { mark: Some(how), resolves, acts: None } => {
                Ok(Self::Mark { how, resolves: resolves.unwrap_or_default() })
            }
            TestFields { mark: None, resolves: None, acts: Some(what) } => Ok(Self::Acts(what)),
            _ => Err("set mark, with or without resolves, or acts"),
        }
    }
}

impl From<TestMark> for TestFields {
    fn from(test: TestMark) -> Self {
        match test {
            TestMark::Mark { how, resolves } => {
                Self { mark: Some(how), resolves: Some(resolves).filter(|resolves| *resolves), acts: None }
            }
            TestMark::Acts(what) => Self { mark: None, resolves: None, acts: Some(what) },
        }
    }
}

fn json() -> String {
    "application/json".to_owned()
}

/// The credentials that a receiver requires.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Credentials {
    /// How they are configured.
    pub kind: CredentialsKind,
    /// The header of a token, if it is not `Authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The scheme before a token, if it is not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// The permissions that a token of a GitHub App needs, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub permissions: BTreeMap<String, String>,
    /// A description of the required credentials and permissions.
    pub description: String,
}

/// How credentials are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CredentialsKind {
    /// `endpoint.auth.token`
    Token,
    /// `endpoint.auth.basic`
    Basic,
    /// The URL is secret: `endpoint.urlFrom`.
    Url,
    /// No credentials, or those that the operator of the receiver requires.
    None,
}

/// A parameter that a template declares.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// Its purpose.
    pub description: String,
    /// The values that it can have, if not any text. A value with a tag is not checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// The default value, a template. Without a default the parameter is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// An example of a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub example: Option<String>,
}

impl Declared {
    /// Whether users must set it, at least for targets whose Git repository is not known.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.default.as_ref().is_none_or(|default| default.contains("target.source"))
    }
}

/// A limit of a receiver.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limit {
    /// JSON Pointer (RFC 6901) into the body, in which `*` matches every index. `body` means the whole body.
    pub field: String,
    /// Maximum number of characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub characters: Option<usize>,
    /// Maximum number of bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// The receiver's documentation of the limit.
    pub documentation: String,
}

/// The worked example of a template.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Example {
    /// The URL. If it is secret, only its form.
    pub url: String,
    /// The transitions that a typical notification reports.
    pub triggers: Vec<TransitionType>,
}

/// Returns the template with this name.
#[must_use]
pub fn builtin(name: Builtin) -> &'static BuiltinTemplate {
    static ALL: LazyLock<HashMap<Builtin, BuiltinTemplate>> =
        LazyLock::new(|| Builtin::ALL.into_iter().map(|name| (name, read(name))).collect());
    &ALL[&name]
}

fn read(name: Builtin) -> BuiltinTemplate {
    let (body, metadata) = sources(name);
    #[allow(clippy::expect_used, reason = "it is compiled in, and a test reads them all")]
    let metadata = serde_saphyr::from_str(metadata).expect("the metadata of a built-in template can be read");
    BuiltinTemplate { name, metadata, body }
}

macro_rules! files {
    ($name:literal) => {
        (
            include_str!(concat!("../../../../templates/", $name, ".hbs")),
            include_str!(concat!("../../../../templates/", $name, ".yaml")),
        )
    };
}

/// Returns body and metadata.
const fn sources(name: Builtin) -> (&'static str, &'static str) {
    match name {
        Builtin::GithubCommitStatus => files!("github-commit-status"),
        Builtin::GithubRepositoryDispatch => files!("github-repository-dispatch"),
        Builtin::GitlabCommitStatus => files!("gitlab-commit-status"),
        Builtin::GiteaCommitStatus => files!("gitea-commit-status"),
        Builtin::Slack => files!("slack"),
        Builtin::Teams => files!("teams"),
        Builtin::Mattermost => files!("mattermost"),
        Builtin::Discord => files!("discord"),
        Builtin::Cloudevents => files!("cloudevents"),
        Builtin::Generic => files!("generic"),
        Builtin::GithubIssueComment => files!("github-issue-comment"),
        Builtin::GitlabPipelineTrigger => files!("gitlab-pipeline-trigger"),
        Builtin::BitbucketBuildStatus => files!("bitbucket-build-status"),
        Builtin::AzureDevopsGitStatus => files!("azure-devops-git-status"),
        Builtin::GoogleChat => files!("google-chat"),
        Builtin::Webex => files!("webex"),
        Builtin::Rocketchat => files!("rocketchat"),
        Builtin::Telegram => files!("telegram"),
        Builtin::Matrix => files!("matrix"),
        Builtin::Ntfy => files!("ntfy"),
        Builtin::Pagerduty => files!("pagerduty"),
        Builtin::Opsgenie => files!("opsgenie"),
        Builtin::Alertmanager => files!("alertmanager"),
        Builtin::GrafanaAnnotation => files!("grafana-annotation"),
        Builtin::DatadogEvent => files!("datadog-event"),
        Builtin::SentryReleaseDeploy => files!("sentry-release-deploy"),
        Builtin::Cdevents => files!("cdevents"),
        Builtin::BitbucketServerBuildStatus => files!("bitbucket-server-build-status"),
        Builtin::Lark => files!("lark"),
        Builtin::Zoom => files!("zoom"),
        Builtin::IncidentIo => files!("incident-io"),
        Builtin::NewRelicEvent => files!("new-relic-event"),
        Builtin::MattermostBot => files!("mattermost-bot"),
        Builtin::FluxEvent => files!("flux-event"),
        Builtin::GithubDeployment => files!("github-deployment"),
        Builtin::GithubCheckRun => files!("github-check-run"),
        Builtin::GitlabDeployment => files!("gitlab-deployment"),
        Builtin::GithubPullRequestComment => files!("github-pull-request-comment"),
        Builtin::GiteaPullRequestComment => files!("gitea-pull-request-comment"),
        Builtin::GitlabMergeRequestComment => files!("gitlab-merge-request-comment"),
        Builtin::Zulip => files!("zulip"),
        Builtin::Pushover => files!("pushover"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::answer::Success;
    use crate::render::escape::context::EscapeContext;
    use crate::render::lang::compile;
    use crate::render::{Body, HeaderTemplate, Parameters, UrlTemplate};

    #[test]
    fn every_file_belongs_to_a_template() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../templates");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let expected = Builtin::ALL.iter().flat_map(|b| [".hbs", ".yaml"].map(|end| format!("{}{end}", b.as_str())));
        assert_eq!(files.collect::<BTreeSet<_>>(), expected.collect());
    }

    #[test]
    fn every_template_compiles_with_what_it_declares() {
        for name in Builtin::ALL {
            let BuiltinTemplate { metadata, body, .. } = builtin(name);
            let shown = name.as_str();
            let values = metadata.parameters.iter().map(|p| {
                let value = p.default.as_deref().or(p.example.as_deref());
                (
                    p.name.as_str(),
                    Some(value.unwrap_or_else(|| panic!("{shown}: {} has neither default nor example", p.name))),
                )
            });
            let parameters = Parameters::compile(values).unwrap_or_else(|wrong| panic!("{shown}: {wrong:?}"));
            let remembered = metadata.thread.iter().flat_map(|thread| thread.remember.iter().flatten());
            let parameters = parameters.with_remembered(remembered.map(|(name, _)| name.clone()).collect());
            Body::compile(&metadata.content_type, body, &parameters).unwrap_or_else(|e| panic!("{shown}.hbs: {e}"));
            if let Some(success) = &metadata.success {
                Success::compile(success).unwrap_or_else(|e| panic!("{shown}, success: {e}"));
            }
            for (header, value) in &metadata.headers {
                HeaderTemplate::compile(header, value, &parameters).unwrap_or_else(|e| panic!("{shown}, {header}: {e}"));
            }
            let needs_thread = metadata.find.is_some() || metadata.follow || metadata.parent.is_some();
            assert!(metadata.thread.is_some() || !needs_thread, "{shown}: there is no thread");
            if let Some(path) = &metadata.path {
                assert!(path.starts_with('/'), "{shown}: a path begins with a slash");
                let url = format!("https://example.com{path}");
                UrlTemplate::compile(&url, &parameters).unwrap_or_else(|e| panic!("{shown}, path: {e}"));
            }
        }
    }

    #[test]
    fn a_test_has_a_mark_or_acts() {
        let mark = |resolves| TestMark::Mark { how: "a".to_owned(), resolves };
        for (yaml, expected) in [
            ("mark: a", Some(mark(false))),
            ("{mark: a, resolves: true}", Some(mark(true))),
            ("acts: a", Some(TestMark::Acts("a".to_owned()))),
            ("{mark: a, acts: a}", None),
            ("{acts: a, resolves: true}", None),
            ("{mark: a, how: a}", None),
            ("{}", None),
        ] {
            let found: Option<TestMark> = serde_saphyr::from_str(yaml).ok();
            assert_eq!(found, expected, "{yaml}");
            if let Some(found) = found {
                let again: TestMark = serde_json::from_value(serde_json::to_value(&found).unwrap()).unwrap();
                assert_eq!(again, found, "{yaml}");
            }
        }
    }

    /// An unused parameter would have no effect for a user who sets it.
    #[test]
    fn every_parameter_is_used() {
        for name in Builtin::ALL {
            let BuiltinTemplate { metadata, body, .. } = builtin(name);
            let update = metadata.thread.iter().flat_map(|thread| &thread.update);
            let thread = metadata
                .thread
                .iter()
                .flat_map(|thread| &thread.key)
                .chain(update.flat_map(|update| update.path.iter().chain(&update.append)))
                .chain(metadata.find.iter().map(|find| &find.path))
                .chain(metadata.parent.iter().flat_map(|parent| [&parent.path, &parent.create]));
            let sources = metadata.path.iter().chain(metadata.headers.values()).chain(thread);
            let sources: String = sources.map(String::as_str).chain([*body]).collect();
            for Declared { name: parameter, default, .. } in &metadata.parameters {
                assert!(sources.contains(&format!("parameters.{parameter}")), "{}: {parameter}", name.as_str());
                let own = default.iter().all(|d| compile::compile(d, EscapeContext::Plain, &Parameters::default()).is_ok());
                assert!(own, "{}: the default of {parameter} names another parameter", name.as_str());
            }
        }
    }
}
