//! Finds the Secret with the kubeconfig of a cluster. Pure. In: a reference, and the object that it names. Out: the name and the keys of
//! the Secret, or why there is none. The Secret is always in the namespace of that object, so an object cannot give access to the Secrets
//! of another namespace.

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};

use crate::error::ObserveError;
use relaybook_api::pipeline::source::FLEET_GROUP;
use relaybook_api::values::names::is_subdomain;
use relaybook_api::values::refs::{ClusterKind, ClusterRef};
use relaybook_core::reading::Reason;

/// A key that Flux reads by default, after `value`.
const FLUX: &str = "value.yaml";

/// The place of a kubeconfig: a Secret and its possible keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Name of the Secret.
    pub secret: String,
    /// Possible keys, in the order in which they are checked.
    pub keys: &'static [&'static str],
}

/// Returns the kind of the object that represents a cluster. `None` for a Secret, which represents itself.
pub(crate) fn kind(cluster: &ClusterRef) -> Result<Option<ApiResource>, ObserveError> {
    let kind = cluster.object_kind().map_err(|error| invalid(cluster, &format!("reference is invalid: {error}")))?;
    let plural = match cluster.kind {
        ClusterKind::Secret => return Ok(None),
        ClusterKind::GitopsCluster => "gitopsclusters",
        ClusterKind::Cluster => "clusters",
    };
    let gvk = GroupVersionKind::gvk(kind.group(), kind.version(), kind.kind());
    Ok(Some(ApiResource::from_gvk_with_plural(&gvk, plural)))
}

/// Returns the place of the kubeconfig if a Secret represents the cluster.
pub(crate) fn itself(cluster: &ClusterRef) -> Place {
    Place { secret: cluster.name.clone(), keys: &["kubeconfig", "value", FLUX] }
}

/// Returns the place of the kubeconfig for this object.
pub(crate) fn place(cluster: &ClusterRef, object: &DynamicObject) -> Result<Place, ObserveError> {
    let text = |pointer: &str| object.data.pointer(pointer).and_then(|v| v.as_str()).filter(|s| !s.is_empty());
    let of_cluster_api = |name: &str| Place { secret: format!("{name}-kubeconfig"), keys: &["value"] };
    let is_fleet = cluster.object_kind().is_ok_and(|kind| kind.group() == FLEET_GROUP);
    let (found, field) = match cluster.kind {
        ClusterKind::Secret => (Some(itself(cluster)), ""),
        ClusterKind::GitopsCluster => {
            let named = text("/spec/secretRef/name")
                .map(|name| Place { secret: name.to_owned(), keys: &["value", "kubeconfig", FLUX] })
                .or_else(|| text("/spec/capiClusterRef/name").map(of_cluster_api));
            (named, "spec.secretRef.name or spec.capiClusterRef.name")
        }
        ClusterKind::Cluster if is_fleet => {
            let own = cluster.namespace.as_deref();
            if text("/spec/kubeConfigSecretNamespace").is_some_and(|elsewhere| Some(elsewhere) != own) {
                let words = "names another namespace in spec.kubeConfigSecretNamespace; put the Secret into the namespace of the cluster object";
                return Err(invalid(cluster, words));
            }
            let named = text("/spec/kubeConfigSecret").map(|s| Place { secret: s.to_owned(), keys: &["value"] });
            (named, "spec.kubeConfigSecret")
        }
        ClusterKind::Cluster => (Some(of_cluster_api(&cluster.name)), ""),
    };
    let found = found.ok_or_else(|| invalid(cluster, &format!("names no Secret; set {field}")))?;
    // The name becomes part of a field selector, in which other characters have a meaning.
    if !is_subdomain(&found.secret) {
        return Err(invalid(cluster, &format!("names an invalid Secret name; correct {field}")));
    }
    Ok(found)
}

fn invalid(cluster: &ClusterRef, words: &str) -> ObserveError {
    let message = format!("cluster {}: the {} {words}", cluster.full_name(), cluster.kind.as_str());
    ObserveError::new(Reason::KubeconfigInvalid, message)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cluster(kind: ClusterKind, api_version: Option<&str>) -> ClusterRef {
        ClusterRef { api_version: api_version.map(str::to_owned), kind, name: "eu".into(), namespace: Some("infra".into()) }
    }

    fn secret_of(cluster: &ClusterRef, spec: &Value) -> Result<(String, usize), String> {
        let object = serde_json::from_value(json!({"metadata": {"name": "eu"}, "spec": spec})).unwrap();
        place(cluster, &object).map(|p| (p.secret, p.keys.len())).map_err(|t| t.message)
    }

    #[test]
    fn each_kind_of_cluster_object_names_its_kubeconfig_secret() {
        let gitops = cluster(ClusterKind::GitopsCluster, None);
        let capi = cluster(ClusterKind::Cluster, Some("cluster.x-k8s.io/v1beta1"));
        let fleet = cluster(ClusterKind::Cluster, Some("fleet.cattle.io/v1alpha1"));
        let is = |secret: &str, keys| Ok((secret.to_owned(), keys));
        assert_eq!(secret_of(&gitops, &json!({"secretRef": {"name": "a"}})), is("a", 3));
        assert_eq!(secret_of(&gitops, &json!({"capiClusterRef": {"name": "b"}})), is("b-kubeconfig", 1));
        assert_eq!(secret_of(&capi, &json!(null)), is("eu-kubeconfig", 1));
        assert_eq!(secret_of(&fleet, &json!({"kubeConfigSecret": "c"})), is("c", 1));
        assert_eq!(secret_of(&fleet, &json!({"kubeConfigSecret": "c", "kubeConfigSecretNamespace": "infra"})), is("c", 1));
        assert_eq!(secret_of(&cluster(ClusterKind::Secret, None), &json!(null)), is("eu", 3));
        let plural = |c: &ClusterRef| kind(c).unwrap().map(|k| (k.api_version, k.plural));
        assert_eq!(plural(&gitops), Some(("gitops.weave.works/v1alpha1".into(), "gitopsclusters".into())));
        assert_eq!(plural(&capi), Some(("cluster.x-k8s.io/v1beta1".into(), "clusters".into())));
        assert_eq!(plural(&cluster(ClusterKind::Secret, None)), None);
        let odd = |api_version: &str| kind(&cluster(ClusterKind::Cluster, Some(api_version))).unwrap_err().message;
        for api_version in [
            "/v1",
            "cluster.x-k8s.io/v1/../../../api/v1/secrets?x=",
            "cluster.x-k8s.io.evil/v1",
            "Cluster.x-k8s.io/v1",
            "v1",
        ] {
            assert!(odd(api_version).contains("apiVersion"), "{api_version}");
        }
        let named = |name: &str| kind(&ClusterRef { name: name.into(), ..cluster(ClusterKind::GitopsCluster, None) });
        assert!(named("eu,metadata.name=other").is_err() && named("../x").is_err());
    }

    #[test]
    fn a_cluster_object_without_a_valid_secret_in_its_namespace_is_refused() {
        let gitops = cluster(ClusterKind::GitopsCluster, None);
        let fleet = cluster(ClusterKind::Cluster, Some("fleet.cattle.io/v1alpha1"));
        for (of, spec, words) in [
            (&gitops, json!({}), "set spec.secretRef.name or spec.capiClusterRef.name"),
            (&gitops, json!({"secretRef": {"name": 7}}), "names no Secret"),
            (&gitops, json!({"secretRef": {"name": "a,metadata.name=b"}}), "invalid Secret name"),
            (&gitops, json!({"secretRef": {"name": "../b"}}), "invalid Secret name"),
            (&fleet, json!({}), "set spec.kubeConfigSecret"),
            (&fleet, json!({"kubeConfigSecret": "c", "kubeConfigSecretNamespace": "other"}), "another namespace"),
        ] {
            let said = secret_of(of, &spec).unwrap_err();
            assert!(said.contains(words) && said.starts_with("cluster infra.eu: "), "{said}");
        }
    }
}
