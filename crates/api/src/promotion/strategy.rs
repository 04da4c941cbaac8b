//! How a revision gets to an environment: by a notification, by a commit, or by a pull request; and what a promotion shows of the last two.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::notification::ClientCertificate;
use crate::pipeline::is_zero_serial;
use crate::values::refs::{SecretKeyRef, SecretRef};

/// How a revision gets to an environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "[has(self.notification), has(self.commit), has(self.pullRequest)].exists_one(set, set)",
     "message": "set exactly one strategy: notification, commit or pullRequest"},
]))]
pub struct PromotionStrategy {
    /// Relaybook reports the transition `PromotionRequested`. The receiver carries the promotion out, for example a CI job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notification: Option<NotificationStrategy>,
    /// Relaybook sets the values that comments mark in YAML files of a Git repository, and pushes the commit to a branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Box<CommitStrategy>>,
    /// Relaybook pushes the commit to a new branch, and opens a pull request. A person, or the forge, merges it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<Box<PullRequestStrategy>>,
    /// A Secret of type `relaybook.dev/inbound` in the namespace of the pipeline. Each of its keys whose name begins with `hmac-key` can sign
    /// approvals. If absent, the approval hook refuses every request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
}

/// The strategy `notification` has no settings: a Notification with the trigger `PromotionRequested` says where the request is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationStrategy {}

/// A Git repository, and the credentials for it.
///
/// The fields are the same in `commit` and in `pullRequest`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepository {
    /// URL of the repository, as for `git clone`, without user information. `http` needs `--allow-http`, or a cluster-local `.svc` name.
    #[schemars(length(min = 10, max = 1024), regex(pattern = r"^https?://[^\s@?#]+$"))]
    pub url: String,
    /// The folders and files in which values are set. If empty, all folders whose name does not begin with a dot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 512)))]
    pub paths: Vec<String>,
    /// A Secret of the same namespace. Key `token`: an access token. Git can also use the keys `username` and `password`. If absent, requests
    /// have no credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// TLS settings of the connections to the repository and to the API of the forge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<GitTls>,
    /// The author of the commits. Default `Relaybook <relaybook@example.invalid>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
}

/// TLS settings of the connections to a forge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitTls {
    /// The CA certificates to trust instead of those of the system, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_from: Option<SecretCa>,
    /// The client certificate to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<ClientCertificate>,
}

/// The source of the CA certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretCa {
    /// A key of a Secret of this namespace.
    pub secret_key_ref: SecretKeyRef,
}

/// The author of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Author {
    /// The name.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[^<>\x00-\x1f\x7f]+$"))]
    pub name: String,
    /// The email address.
    #[schemars(length(min = 3, max = 254), regex(pattern = r"^[^<>\s\x00-\x1f\x7f]+@[^<>\s\x00-\x1f\x7f]+$"))]
    pub email: String,
}

/// The strategy `commit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommitStrategy {
    /// The repository.
    #[serde(flatten)]
    pub repository: GitRepository,
    /// The branch to which the commit is pushed. Default `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub branch: Option<String>,
}

/// The strategy `pullRequest`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.interval) || self.interval.matches('^([0-9]+(ms|s|m|h))+$')", "message": "interval is a duration such as 1m"},
    {"rule": "!has(self.interval) || !self.interval.matches('^([0-9]+(ms|s|m|h))+$') || (duration(self.interval) >= duration('10s') && duration(self.interval) <= duration('1h'))",
     "message": "interval must be at least 10s and at most 1h"},
]))]
pub struct PullRequestStrategy {
    /// The forge.
    #[serde(rename = "type")]
    pub type_: ForgeType,
    /// The repository.
    #[serde(flatten)]
    pub repository: GitRepository,
    /// URL of the API. Default: derived from `type` and `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 10, max = 1024), regex(pattern = r"^https?://[^\s@?#]+$"))]
    pub api_url: Option<String>,
    /// The branch into which the pull request is merged. Default `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub base_branch: Option<String>,
    /// Template of the title. Default `Promote PIPELINE to ENVIRONMENT: REVISION`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub title: Option<String>,
    /// Template of the body, in Markdown. Relaybook adds a line by which it finds the pull request again. Default: a table of the promotion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub body: Option<String>,
    /// Labels of the pull request. The forge must know them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), inner(length(min = 1, max = 50)))]
    pub labels: Vec<String>,
    /// How often the pull request is checked. Default 1m; at least 10s, at most 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 32))]
    pub interval: Option<String>,
}

/// A forge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ForgeType {
    /// Gitea or Forgejo.
    #[default]
    Gitea,
    /// GitHub or GitHub Enterprise Server.
    Github,
    /// GitLab.
    Gitlab,
    /// Bitbucket Cloud.
    BitbucketCloud,
    /// Bitbucket Server or Data Center.
    BitbucketServer,
}

/// How long a promotion by commit or pull request is tried. The strategy `notification` has no attempts of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "[self.?initial.orValue('10s'), self.?max.orValue('10m'), self.?maxAge.orValue('24h')].all(d, d.matches('^([0-9]+(ms|s|m|h))+$'))",
     "message": "initial, max and maxAge are durations such as 10s or 24h"},
    {"rule": "[self.?initial.orValue('10s'), self.?max.orValue('10m'), self.?maxAge.orValue('24h')].all(d, !d.matches('^([0-9]+(ms|s|m|h))+$') || (duration(d) >= duration('1s') && duration(d) <= duration('168h')))",
     "message": "initial, max and maxAge must be at least 1s and at most 168h"},
]))]
pub struct PromotionRetry {
    /// Wait after the first failed attempt. Each further wait is twice as long. Default 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 32))]
    pub initial: Option<String>,
    /// Longest wait between two attempts. Default 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 32))]
    pub max: Option<String>,
    /// How long attempts are made after the request. Default 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 32))]
    pub max_age: Option<String>,
}

/// The commit of a promotion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotionCommit {
    /// Id of the commit.
    #[schemars(length(min = 7, max = 64))]
    pub id: String,
    /// Id of the commit that it was made on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub base: String,
    /// The branch to which it was pushed.
    #[schemars(length(max = 255))]
    pub branch: String,
}

/// The pull request of a promotion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotionPullRequest {
    /// Number of the pull request at the forge.
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_i64))]
    pub number: i64,
    /// URL for people. Absent if the forge names another host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub url: Option<String>,
    /// The state.
    pub state: PullRequestState,
    /// The commit with which it was merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub merge_commit: Option<String>,
}

/// The state of a pull request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PullRequestState {
    /// It is open, and the forge does not say that it can be merged.
    #[default]
    Open,
    /// It is open, and can be merged.
    Mergeable,
    /// It was merged.
    Merged,
    /// It was closed without being merged.
    Abandoned,
}

/// A promotion that is not needed any more, and whose pull request is not closed yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Withdrawing {
    /// Machine-readable reason: one word.
    pub reason: String,
    /// Human-readable message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Number of attempts to close the pull request.
    #[serde(default, skip_serializing_if = "is_zero_serial")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub attempts: i64,
}
