//! The names of targets for people. Pure.
//!
//! The cluster in the name of a target is the one that contains its application object. An Application of Argo CD can deploy to another cluster. So
//! if only the local cluster is known, it is left out.

use serde_json::Value;

use relaybook_api::delivery::Subject;
use relaybook_text::cut_chars;

/// The kind of an Application of Argo CD.
const APPLICATION: &str = "Application";
/// Its API group.
const GROUP: &str = "argoproj.io";
/// Maximum length of a destination, in characters.
const LONGEST: usize = 253;

/// Whether an object is an Application of Argo CD.
pub(crate) fn is_application(api_version: &str, kind: &str) -> bool {
    kind == APPLICATION && api_version.split('/').next() == Some(GROUP)
}

/// Returns the name of a subject as the page shows it. `local`: the name of the local cluster.
pub(crate) fn shown(subject: &Subject, local: &str) -> String {
    without_cluster(subject, local).unwrap_or_else(|| subject.name.clone())
}

/// Returns the name of a target without its cluster. `None`: it is not that of an Application with the name of the local cluster.
fn without_cluster(subject: &Subject, local: &str) -> Option<String> {
    let target = subject.target.as_ref()?;
    let is_local = target.cluster_ref.is_none() && target.cluster == local;
    if !is_local || !is_application(&target.app.api_version, &target.app.kind) {
        return None;
    }
    let rest = subject.name.strip_prefix(subject.environment.as_str())?.strip_prefix('/')?;
    let rest = rest.strip_prefix(local)?.strip_prefix('/')?;
    Some(format!("{}/{rest}", subject.environment))
}

/// Returns the name of the cluster that an Application deploys to, or else the address of its API server.
pub(crate) fn destination(application: &Value) -> Option<String> {
    let destination = application.pointer("/spec/destination")?;
    let text = |field: &str| destination.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    text("name").or_else(|| text("server")).map(|text| cut_chars(text, LONGEST).into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use relaybook_api::delivery::{AppObject, SubjectTarget};
    use relaybook_api::values::refs::{ClusterKind, ClusterRef};

    #[test]
    fn an_application_is_not_named_with_the_cluster_that_contains_it() {
        let eu = ClusterRef { api_version: None, kind: ClusterKind::Secret, name: "hub".to_owned(), namespace: None };
        for (version, kind, cluster, cluster_ref, expected) in [
            ("argoproj.io/v1alpha1", "Application", "hub", None, "prod/argocd/shop"),
            ("argoproj.io/v1alpha1", "Application", "eu-1", None, "prod/eu-1/argocd/shop"),
            ("argoproj.io/v1alpha1", "Application", "hub", Some(eu), "prod/hub/argocd/shop"),
            ("argoproj.io/v1alpha1", "Rollout", "hub", None, "prod/hub/argocd/shop"),
            ("example.com/v1", "Application", "hub", None, "prod/hub/argocd/shop"),
        ] {
            let app = AppObject { api_version: version.to_owned(), kind: kind.to_owned(), name: "shop".to_owned() };
            let (namespace, cluster) = ("argocd".to_owned(), cluster.to_owned());
            let subject = Subject {
                name: format!("prod/{cluster}/argocd/shop"),
                environment: "prod".to_owned(),
                target: Some(SubjectTarget { namespace, cluster, cluster_ref, app, ..SubjectTarget::default() }),
                ..Subject::default()
            };
            assert_eq!(shown(&subject, "hub"), expected, "{version} {kind}");
        }
        let cluster = Subject { name: "hub".to_owned(), ..Subject::default() };
        assert_eq!(shown(&cluster, "hub"), "hub");
    }

    #[test]
    fn a_destination_has_a_name_or_a_server() {
        for (destination, expected) in [
            (json!({"name": "eu-1", "namespace": "shop"}), Some("eu-1")),
            (json!({"server": "https://eu-1.example.com", "name": ""}), Some("https://eu-1.example.com")),
            (json!({"namespace": "shop"}), None),
            (json!({"server": 1}), None),
            (json!(null), None),
        ] {
            let application = json!({"spec": {"destination": destination}});
            assert_eq!(super::destination(&application).as_deref(), expected, "{application}");
        }
        assert_eq!(super::destination(&json!({})), None);
    }
}
