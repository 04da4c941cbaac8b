//! The first Pipeline or `PipelineSets` of a person, and the first Notifications. Pure.
//!
//! In: the answers of a person ([`Answers`]), and what the running controllers follow already ([`Already`]). Out: manifests, and the Secrets
//! that they refer to ([`Plan`]), or an [`InitError`] that names the flag to add. [`next_steps`] returns the commands that follow.
//!
//! No answer is the value of a credential, so nothing here can show one. Manifests refer to Secrets, which the person creates.

mod answers;
mod files;
mod notification;
mod plan;
#[cfg(test)]
mod tests;

pub use answers::{Answers, App, KNOWN, KnownKind, On, SecretName, Source, Spot, followed, receiver, setting};
pub(crate) use files::yaml;
pub use files::{Manifest, next_steps, quoted};
pub use plan::{Already, Plan, SecretNeed, check, many, plan};

/// Why there are no manifests. Each error names the remedy. None repeats a value that could be a credential by mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// An application has another form.
    #[error("write KIND/NAME, such as deploy/web")]
    AppForm,
    /// A kind has no short name.
    #[error(
        "there is no such kind; known kinds: {}; write another one as KIND.VERSION.GROUP/NAME, such as \
         `Rollout.v1alpha1.argoproj.io/web`",
        answers::known_kinds()
    )]
    AppKind,
    /// The name of an application is not the name of an object.
    #[error("the name of an application must have only lower-case letters, digits, dashes and dots")]
    AppName,
    /// An environment has another form.
    #[error(
        "write NAME=NAMESPACE, such as prod=web; both must have only lower-case letters, digits and dashes, at most 63 characters"
    )]
    Environment,
    /// A cluster has another form.
    #[error(
        "write NAMESPACE@NAME with the name of a Secret that contains a kubeconfig, or NAMESPACE@GitopsCluster/NAME for a \
         GitopsCluster"
    )]
    Cluster,
    /// There is no such built-in template.
    #[error("no such receiver; {0}")]
    Receiver(String),
    /// There is no such kind to follow.
    #[error("no such kind; {0}")]
    Follow(String),
    /// The name of a Secret has another form.
    #[error("--secret: write the name of a Secret as NAME or NAME:KEY, and never a credential")]
    Secret,
    /// A parameter has another form.
    #[error("--set: write NAME=VALUE, such as repository=podinfo")]
    Setting,
    /// No receiver has such a parameter.
    #[error("--set {name}: no receiver of --to has this parameter; {remedy}")]
    Parameter {
        /// Its name.
        name: String,
        /// What to write instead.
        remedy: String,
    },
    /// A flag describes one receiver, and there are several.
    #[error("{0} applies to one receiver; use one --to, and run relaybook init once for each receiver")]
    Several(&'static str),
    /// The URL of the receiver is a credential.
    #[error("--url: the URL of {0} is a credential, so it must be in the Secret; leave out --url")]
    SecretUrl(&'static str),
    /// The receiver requires no credentials.
    #[error("--secret: {0} requires no credentials; leave out --secret")]
    NoSecret(&'static str),
    /// The Secret has two keys with fixed names.
    #[error("--secret: {0} reads the keys username and password; leave out the key")]
    BasicKey(&'static str),
    /// Values are missing that only the person knows.
    #[error("{needs}: add {flags} with your values")]
    Incomplete {
        /// The receivers, and what each of them needs.
        needs: String,
        /// The flags to add, with the values of the example.
        flags: String,
    },
    /// The revision of the followed objects is the version of a chart.
    #[error(
        "{receiver} needs a commit, but the revision of a {kind} is its chart version; use another --to, or follow an object \
         whose revision is a commit, such as a Kustomization"
    )]
    ChartVersion {
        /// The receiver.
        receiver: &'static str,
        /// The kind of the objects.
        kind: String,
    },
    /// The receiver shows none of the changes.
    #[error("{0} shows no failures, only deployments; add --on deployments")]
    OnlyDeployments(&'static str),
    /// No object can have the name.
    #[error(
        "the {kind} cannot have the name {name}: it must have only lower-case letters, digits, dashes and dots, at most 63 \
         characters; add --name NAME"
    )]
    Name {
        /// The kind of the object.
        kind: &'static str,
        /// The name, safe for a terminal.
        name: String,
    },
    /// The pipelines of the kinds are in another namespace.
    #[error(
        "the controller in namespace {namespace} already makes a Pipeline there for each object of {kinds}; add -n {namespace}, \
         so that the Notification applies to them"
    )]
    Elsewhere {
        /// The namespace of the controller.
        namespace: String,
        /// The kinds.
        kinds: String,
    },
    /// Several controllers make pipelines of the kinds, in several namespaces.
    #[error(
        "the controllers in the namespaces {0} already make a Pipeline there for each object of these kinds; run relaybook init \
         once for each controller, with only its kinds and with --controller-namespace"
    )]
    Controllers(String),
}

impl InitError {
    /// Returns the flags that the person must add, with the values of an example. `None`: another answer is enough.
    #[must_use]
    pub fn flags(&self) -> Option<&str> {
        match self {
            Self::Incomplete { flags, .. } => Some(flags),
            Self::Name { .. } => Some("--name NAME"),
            _ => None,
        }
    }
}
