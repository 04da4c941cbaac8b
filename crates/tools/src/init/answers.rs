//! What a person answers: what to follow, where it runs, where to send, which changes. Pure.
//!
//! In: texts, from flags or from a terminal. Out: values that cannot be wrong, or an [`InitError`] that says what to write.

use std::collections::BTreeMap;
use std::fmt;

use super::InitError;
use relaybook_api::notification::Builtin;
use relaybook_api::pipeline::source::FLEET_VERSION;
use relaybook_api::values::kind::ObjectKind;
use relaybook_api::values::names::{is_label, is_subdomain};
use relaybook_api::values::refs::{ClusterKind, ClusterRef};
use relaybook_pipelines::sets::Followed;
use relaybook_settings::config::nearest;

/// Maximum length of the key of a Secret.
const LONGEST_KEY: usize = 253;

/// The label by which the Notifications of one application select its Pipeline. Each name that a Pipeline can have is a valid value.
pub(super) const LABEL: &str = "app.kubernetes.io/name";

/// All answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// What to follow.
    pub source: Source,
    /// Where to send.
    pub receivers: Vec<Builtin>,
    /// Which changes.
    pub on: On,
    /// The namespace of the objects, if the person chose one.
    pub namespace: Option<String>,
    /// The namespace of the objects otherwise.
    pub default_namespace: String,
    /// The name of the Pipeline or of the set, and the first part of the names of Notifications, if the person chose one.
    pub name: Option<String>,
    /// The Secret with the credentials, if the person chose one.
    pub secret: Option<SecretName>,
    /// The URL of the receiver, if the person gave one.
    pub url: Option<String>,
    /// Parameters of the templates, by name.
    pub settings: BTreeMap<String, String>,
}

impl Answers {
    /// Returns the name of the Pipeline, if there is one. It is also the value of [`LABEL`].
    pub(super) fn pipeline(&self) -> Option<&str> {
        match &self.source {
            Source::App { app, .. } => Some(self.name.as_deref().unwrap_or(&app.name)),
            Source::Follow(_) => None,
        }
    }
}

/// What to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// One application, and where it runs.
    App {
        /// The application.
        app: App,
        /// Its targets, in the order of the environments.
        spots: Vec<Spot>,
    },
    /// All objects of some kinds.
    Follow(Vec<Followed>),
}

/// Which changes are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum On {
    /// Failures, and their ends.
    #[default]
    Failures,
    /// Also deployments.
    Deployments,
    /// Everything that the receiver can show.
    All,
}

/// An application object, which has the same name in each of its namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct App {
    /// API version, such as `apps/v1`.
    pub api_version: String,
    /// Kind, such as `Deployment`.
    pub kind: String,
    /// Name.
    pub name: String,
}

/// One target: an environment, and where the application runs in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The environment.
    pub environment: String,
    /// The namespace.
    pub namespace: String,
    /// The cluster. `None`: the cluster that Relaybook runs in.
    pub cluster: Option<ClusterRef>,
}

/// The name of a Secret, and a key in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretName {
    /// Name of the Secret.
    pub name: String,
    /// The key. `None`: the usual one.
    pub key: Option<String>,
}

/// A kind of application objects that has short names.
#[derive(Clone, Copy, Debug)]
pub struct KnownKind {
    /// API version, such as `apps/v1`.
    pub api_version: &'static str,
    /// Kind, such as `Deployment`.
    pub kind: &'static str,
    /// The singular, the plural and the short name of the type.
    types: [&'static str; 3],
}

/// The kinds of application objects that have short names. Those of GitOps tools are first, because they know the revision in Git.
pub const KNOWN: [KnownKind; 9] = [
    KnownKind::new("kustomize.toolkit.fluxcd.io/v1", "Kustomization", ["kustomization", "kustomizations", "ks"]),
    KnownKind::new("helm.toolkit.fluxcd.io/v2", "HelmRelease", ["helmrelease", "helmreleases", "hr"]),
    KnownKind::new("argoproj.io/v1alpha1", "Application", ["application", "applications", "app"]),
    KnownKind::new(FLEET_VERSION, "GitRepo", ["gitrepo", "gitrepos", "gitrepo"]),
    KnownKind::new(FLEET_VERSION, "HelmOp", ["helmop", "helmops", "helmop"]),
    KnownKind::new(FLEET_VERSION, "Bundle", ["bundle", "bundles", "bundle"]),
    KnownKind::new("apps/v1", "Deployment", ["deployment", "deployments", "deploy"]),
    KnownKind::new("apps/v1", "StatefulSet", ["statefulset", "statefulsets", "sts"]),
    KnownKind::new("apps/v1", "DaemonSet", ["daemonset", "daemonsets", "ds"]),
];

/// Returns the kinds with short names, for messages.
pub(super) fn known_kinds() -> String {
    KNOWN.map(|known| known.types[0]).join(", ")
}

impl KnownKind {
    const fn new(api_version: &'static str, kind: &'static str, types: [&'static str; 3]) -> Self {
        Self { api_version, kind, types }
    }

    /// Returns the plural of the type, as in paths of the API server.
    #[must_use]
    pub const fn plural(&self) -> &'static str {
        self.types[1]
    }

    /// Returns the object of this kind and name.
    #[must_use]
    pub fn named(&self, name: &str) -> App {
        App { api_version: self.api_version.to_owned(), kind: self.kind.to_owned(), name: name.to_owned() }
    }

    /// Whether a type such as `deploy`, `Deployment` or `deployments.apps` means this kind.
    fn has(&self, type_: &str) -> bool {
        let type_ = type_.to_ascii_lowercase();
        let own = self.api_version.split_once('/').map_or("", |(group, _)| group);
        let (short, group) = type_.split_once('.').unwrap_or((&type_, own));
        group == own && self.types.contains(&short)
    }
}

impl App {
    /// Parses `KIND/NAME`. The kind is one of [`KNOWN`], or has its version and group as kubectl accepts them.
    pub fn parse(text: &str) -> Result<Self, InitError> {
        let (type_, name) = text.split_once('/').ok_or(InitError::AppForm)?;
        if !is_subdomain(name) {
            return Err(InitError::AppName);
        }
        if let Some(known) = KNOWN.iter().find(|known| known.has(type_)) {
            return Ok(known.named(name));
        }
        let parts = type_.split_once('.').and_then(|(kind, rest)| Some((kind, rest.split_once('.')?)));
        let parsed = parts.and_then(|(kind, (version, group))| ObjectKind::parse(&format!("{group}/{version}"), kind).ok());
        let parsed = parsed.filter(|kind| kind.kind().starts_with(|c: char| c.is_ascii_uppercase()));
        let kind = parsed.ok_or(InitError::AppKind)?;
        Ok(Self { api_version: kind.api_version().to_owned(), kind: kind.kind().to_owned(), name: name.to_owned() })
    }
}

/// Returns what [`App::parse`] accepts.
impl fmt::Display for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { api_version, kind, name } = self;
        let is_known = KNOWN.iter().any(|known| known.api_version == api_version && known.kind == kind);
        match api_version.split_once('/') {
            Some((group, version)) if !is_known => write!(f, "{kind}.{version}.{group}/{name}"),
            _ => write!(f, "{}/{name}", kind.to_ascii_lowercase()),
        }
    }
}

impl Spot {
    /// Parses `NAME=NAMESPACE`, or `NAME=NAMESPACE@CLUSTER`.
    pub fn parse(text: &str) -> Result<Self, InitError> {
        let (environment, place) = text.split_once('=').ok_or(InitError::Environment)?;
        let (namespace, cluster) = match place.split_once('@') {
            Some((namespace, of)) => (namespace, Some(cluster(of)?)),
            None => (place, None),
        };
        if !is_label(environment) || !is_label(namespace) {
            return Err(InitError::Environment);
        }
        Ok(Self { environment: environment.to_owned(), namespace: namespace.to_owned(), cluster })
    }
}

/// Returns what [`Spot::parse`] accepts.
impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.environment, self.namespace)?;
        match &self.cluster {
            Some(ClusterRef { kind: ClusterKind::Secret, name, .. }) => write!(f, "@{name}"),
            Some(ClusterRef { kind, name, .. }) => write!(f, "@{}/{name}", kind.as_str()),
            None => Ok(()),
        }
    }
}

/// Parses the object that represents a cluster: the name of a Secret, or `KIND/NAME`.
fn cluster(text: &str) -> Result<ClusterRef, InitError> {
    let (kind, name) = text.split_once('/').unwrap_or((ClusterKind::Secret.as_str(), text));
    // A Cluster requires an API version, too.
    let kind = ClusterKind::parse(kind).filter(|kind| *kind != ClusterKind::Cluster && is_subdomain(name));
    let kind = kind.ok_or(InitError::Cluster)?;
    Ok(ClusterRef { api_version: None, kind, name: name.to_owned(), namespace: None })
}

impl SecretName {
    /// Parses `NAME` or `NAME:KEY`. The error does not repeat the text, because it could be a credential by mistake.
    pub fn parse(text: &str) -> Result<Self, InitError> {
        let (name, key) = text.split_once(':').map_or((text, None), |(name, key)| (name, Some(key)));
        let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_key = |key: &str| !key.is_empty() && key.len() <= LONGEST_KEY && key.chars().all(is_inner);
        if is_subdomain(name) && key.is_none_or(is_key) {
            Ok(Self { name: name.to_owned(), key: key.map(str::to_owned) })
        } else {
            Err(InitError::Secret)
        }
    }
}

/// Parses the name of a built-in template.
pub fn receiver(text: &str) -> Result<Builtin, InitError> {
    let names = Builtin::ALL.map(Builtin::as_str);
    let instead = || match nearest(text, names) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "`relaybook templates` lists them".to_owned(),
    };
    Builtin::named(text).ok_or_else(|| InitError::Receiver(instead()))
}

/// Parses the name of a kind to follow.
pub fn followed(text: &str) -> Result<Followed, InitError> {
    let names = Followed::ALL.map(Followed::name);
    let instead = || match nearest(text, names) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("known kinds: {}", names.join(", ")),
    };
    Followed::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| InitError::Follow(instead()))
}

/// Parses `NAME=VALUE` of a parameter. The error does not repeat the text, because it could be a credential by mistake.
pub fn setting(text: &str) -> Result<(String, String), InitError> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(InitError::Setting),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_is_written_as_for_kubectl() {
        for (text, api_version, kind) in [
            ("deploy/web", "apps/v1", "Deployment"),
            ("Deployment/web", "apps/v1", "Deployment"),
            ("deployments.apps/web", "apps/v1", "Deployment"),
            ("Deployment.v1.apps/web", "apps/v1", "Deployment"),
            ("sts/web", "apps/v1", "StatefulSet"),
            ("ks/web", "kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
            ("helmreleases.helm.toolkit.fluxcd.io/web", "helm.toolkit.fluxcd.io/v2", "HelmRelease"),
            ("app/web", "argoproj.io/v1alpha1", "Application"),
            ("Rollout.v1alpha1.argoproj.io/web", "argoproj.io/v1alpha1", "Rollout"),
        ] {
            let app = App::parse(text).unwrap();
            assert_eq!(
                (app.api_version.as_str(), app.kind.as_str(), app.name.as_str()),
                (api_version, kind, "web"),
                "{text}"
            );
            assert_eq!(App::parse(&app.to_string()), Ok(app), "{text}");
        }
        for known in KNOWN {
            assert_eq!(App::parse(&known.named("web").to_string()), Ok(known.named("web")));
        }
        for (text, error) in [
            ("web", InitError::AppForm),
            ("deploy/", InitError::AppName),
            ("deploy/Web", InitError::AppName),
            ("deploy/a/b", InitError::AppName),
            ("deploy/{{name}}", InitError::AppName),
            ("deploy/a\"b", InitError::AppName),
            ("rollout/web", InitError::AppKind),
            ("deployment.other.example/web", InitError::AppKind),
            ("/web", InitError::AppKind),
        ] {
            assert_eq!(App::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn an_environment_names_a_namespace_and_perhaps_a_cluster() {
        let spot = |cluster: Option<(ClusterKind, &str)>| Spot {
            environment: "prod".to_owned(),
            namespace: "web".to_owned(),
            cluster: cluster.map(|(kind, name)| ClusterRef {
                api_version: None,
                kind,
                name: name.to_owned(),
                namespace: None,
            }),
        };
        for (text, expected) in [
            ("prod=web", Ok(spot(None))),
            ("prod=web@eu-1", Ok(spot(Some((ClusterKind::Secret, "eu-1"))))),
            ("prod=web@Secret/eu-1", Ok(spot(Some((ClusterKind::Secret, "eu-1"))))),
            ("prod=web@GitopsCluster/eu.1", Ok(spot(Some((ClusterKind::GitopsCluster, "eu.1"))))),
            ("prod=web@Cluster/eu", Err(InitError::Cluster)),
            ("prod=web@", Err(InitError::Cluster)),
            ("prod", Err(InitError::Environment)),
            ("prod=", Err(InitError::Environment)),
            ("Prod=web", Err(InitError::Environment)),
            ("prod=a.b", Err(InitError::Environment)),
            ("{{x}}=web", Err(InitError::Environment)),
        ] {
            assert_eq!(Spot::parse(text), expected, "{text}");
            if let Ok(spot) = expected {
                assert_eq!(Spot::parse(&spot.to_string()), Ok(spot), "{text}");
            }
        }
        assert_eq!(Spot::parse(&format!("{}=web", "a".repeat(64))), Err(InitError::Environment));
    }

    #[test]
    fn a_misspelled_name_gets_a_suggestion() {
        for (text, words) in [("slak", "no such receiver; did you mean slack?"), ("x", "`relaybook templates` lists them")] {
            let error = receiver(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let error = followed("kustomization").unwrap_err().to_string();
        assert_eq!(error, "no such kind; did you mean kustomizations?");
        assert_eq!((receiver("teams"), followed("gitrepos")), (Ok(Builtin::Teams), Ok(Followed::Gitrepos)));
    }

    #[test]
    fn an_error_never_repeats_what_could_be_a_credential() {
        let token = "ghp_0123456789abcdef";
        for error in [SecretName::parse(token).unwrap_err(), setting(token).unwrap_err()] {
            assert!(!error.to_string().contains("ghp_"), "{error}");
        }
        assert_eq!(
            SecretName::parse("chat:token_1"),
            Ok(SecretName { name: "chat".to_owned(), key: Some("token_1".to_owned()) })
        );
        assert_eq!(SecretName::parse("chat:"), Err(InitError::Secret));
        assert_eq!(setting("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(setting("=b"), Err(InitError::Setting));
    }
}
