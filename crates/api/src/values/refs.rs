//! References to other objects, and their display names.

use kube_core::ResourceExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::super::pipeline::source::FLEET_GROUP;
use super::kind::{API_VERSION_PATTERN, KIND_PATTERN, KindError, ObjectKind};
use super::names::{is_label, is_subdomain};

/// The type of Secrets with the keys of hooks. Relaybook sends nothing that is signed or authenticated with such a Secret. Otherwise a
/// notification could use a key to sign an approval.
pub const INBOUND: &str = concat!(group!(), "/inbound");

/// A Secret in the namespace of the object that refers to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
}

/// One key of a Secret in the namespace of the object that refers to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
    /// Key in the data of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Namespace and name of an object. Shown as `namespace/name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectName {
    /// Returns the name of an object in a namespace.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Returns the namespace and the name of this object. The namespace is empty if the object has none.
    #[must_use]
    pub fn of(object: &impl ResourceExt) -> Self {
        Self::new(object.namespace().unwrap_or_default(), object.name_any())
    }
}

impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One key of a ConfigMap, with the namespace of the ConfigMap. Shown as `namespace/name, key k`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConfigMapKey {
    /// Namespace of the ConfigMap.
    pub namespace: String,
    /// Name of the ConfigMap.
    pub name: String,
    /// Key in the data of the ConfigMap.
    pub key: String,
}

impl ConfigMapKey {
    /// Returns the ConfigMap that contains the key.
    #[must_use]
    pub fn object(&self) -> ObjectName {
        ObjectName::new(&self.namespace, &self.name)
    }
}

impl std::fmt::Display for ConfigMapKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}, key {}", self.namespace, self.name, self.key)
    }
}

/// One key of a ConfigMap in the namespace of the object that refers to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKeyRef {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
    /// Key in the data of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A cluster other than the one that Relaybook runs in, by the object that represents it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.kind != 'Secret' || !has(self.__namespace__)",
     "message": "a Secret with a kubeconfig must be in the namespace of the pipeline; remove namespace"},
    {"rule": "self.kind != 'Cluster' || (has(self.apiVersion) && (self.apiVersion.startsWith('cluster.x-k8s.io/') || self.apiVersion.startsWith('fleet.cattle.io/')))",
     "message": "kind Cluster requires an apiVersion of cluster.x-k8s.io or fleet.cattle.io"},
    {"rule": "self.kind != 'GitopsCluster' || !has(self.apiVersion) || self.apiVersion.startsWith('gitops.weave.works/')",
     "message": "kind GitopsCluster belongs to gitops.weave.works; correct or remove apiVersion"},
    {"rule": "self.kind != 'Secret' || !has(self.apiVersion) || self.apiVersion == 'v1'",
     "message": "kind Secret belongs to v1; correct or remove apiVersion"},
]))]
pub struct ClusterRef {
    /// API version of the object. Required only for `Cluster`, to distinguish Cluster API from Fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = API_VERSION_PATTERN))]
    pub api_version: Option<String>,
    /// Kind of the object.
    pub kind: ClusterKind,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
    /// Namespace of the object. If absent, the namespace of the pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
}

/// Why a reference to a cluster is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ClusterRefError {
    /// Its API version is not one.
    #[error(transparent)]
    Kind(#[from] KindError),
    /// The kind belongs to other API groups.
    #[error("kind {0} belongs to the API group {1}; correct apiVersion")]
    Group(&'static str, String),
    /// Its name or its namespace is not the name of an object.
    #[error("name and namespace must be lower-case letters, digits, dashes and, in the name, dots; correct them")]
    Name,
}

words! {
    /// Kinds of objects that represent a cluster.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    pub enum ClusterKind {
        /// An object of Weave GitOps (`gitops.weave.works`). It refers to a Secret, or to a cluster of Cluster API.
        GitopsCluster,
        /// An object of Cluster API (`cluster.x-k8s.io`) or of Fleet (`fleet.cattle.io`).
        Cluster,
        /// A Secret with a kubeconfig under key `kubeconfig`, `value` or `value.yaml`.
        Secret,
    }
}

impl ClusterRef {
    /// Returns the kind of the object that represents the cluster, or why the reference is invalid. The schema checks the same. But the names
    /// become parts of URLs and field selectors, and a stored object may be older than its schema.
    pub fn object_kind(&self) -> Result<ObjectKind, ClusterRefError> {
        let (groups, default): (&[&str], _) = match self.kind {
            ClusterKind::GitopsCluster => (&["gitops.weave.works"], Some("gitops.weave.works/v1alpha1")),
            ClusterKind::Cluster => (&["cluster.x-k8s.io", FLEET_GROUP], None),
            ClusterKind::Secret => (&[""], Some("v1")),
        };
        let Some(api_version) = self.api_version.as_deref().or(default) else {
            return Err(ClusterRefError::Group(self.kind.as_str(), groups.join(" or ")));
        };
        let kind = ObjectKind::parse(api_version, self.kind.as_str())?;
        if !groups.contains(&kind.group()) {
            return Err(ClusterRefError::Group(self.kind.as_str(), groups.join(" or ")));
        }
        if !is_subdomain(&self.name) || self.namespace.as_deref().is_some_and(|namespace| !is_label(namespace)) {
            return Err(ClusterRefError::Name);
        }
        Ok(kind)
    }

    /// Returns the display name, also used in the change log: `NAMESPACE.NAME`, or `NAME` if the reference has no namespace.
    #[must_use]
    pub fn full_name(&self) -> String {
        self.namespace.as_ref().map_or_else(|| self.name.clone(), |namespace| format!("{namespace}.{}", self.name))
    }

    /// Returns the same reference with an explicit namespace: `namespace`, that of the pipeline, if the reference has none.
    #[must_use]
    pub fn seen_from(&self, namespace: &str) -> Self {
        Self { namespace: Some(self.namespace.clone().unwrap_or_else(|| namespace.to_owned())), ..self.clone() }
    }
}

/// An object of any kind: only the fields of the pipeline's `appRef` that a target overrides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartialAppRef {
    /// API version, such as `apps/v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = API_VERSION_PATTERN))]
    pub api_version: Option<String>,
    /// Kind, such as `Deployment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = KIND_PATTERN))]
    pub kind: Option<String>,
    /// Name of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// JSONPath of the revision in the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub revision_path: Option<String>,
}

/// The application object that a pipeline follows through its environments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppRef {
    /// API version, such as `helm.toolkit.fluxcd.io/v2`.
    #[schemars(length(min = 1, max = 253), regex(pattern = API_VERSION_PATTERN))]
    pub api_version: String,
    /// Kind, such as `HelmRelease`.
    #[schemars(length(min = 1, max = 63), regex(pattern = KIND_PATTERN))]
    pub kind: String,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// JSONPath of the revision in the object, such as `.spec.version`. If absent, the default of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub revision_path: Option<String>,
}

impl AppRef {
    /// Whether no object is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Parses the kind of the object.
    pub fn object_kind(&self) -> Result<ObjectKind, KindError> {
        ObjectKind::parse(&self.api_version, &self.kind)
    }

    /// Returns this reference, with the fields that a target overrides.
    #[must_use]
    pub fn overlaid(&self, over: Option<&PartialAppRef>) -> Self {
        let pick = |over: Option<&String>, base: &String| over.unwrap_or(base).clone();
        Self {
            api_version: pick(over.and_then(|o| o.api_version.as_ref()), &self.api_version),
            kind: pick(over.and_then(|o| o.kind.as_ref()), &self.kind),
            name: pick(over.and_then(|o| o.name.as_ref()), &self.name),
            revision_path: over.and_then(|o| o.revision_path.clone()).or_else(|| self.revision_path.clone()),
        }
    }
}

/// The application object of one target, with all fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAppRef {
    /// API version of the object.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object.
    pub namespace: String,
    /// The cluster. If absent, the cluster that Relaybook runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
}

impl ClusterAppRef {
    /// Parses the kind of the object.
    pub fn object_kind(&self) -> Result<ObjectKind, KindError> {
        ObjectKind::parse(&self.api_version, &self.kind)
    }
}

/// Whether this is the name of a Service of the cluster: `name.namespace.svc`, with or without the default cluster domain
/// (<https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/>). `name` is in lower case.
#[must_use]
pub fn is_service(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let name = name.strip_suffix(".cluster.local").unwrap_or(name);
    name.strip_suffix(".svc").is_some_and(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use relaybook_text::spelling;

    proptest! {
        /// What becomes a part of a URL or of a field selector has no character with a meaning there.
        #[test]
        fn an_accepted_cluster_reference_has_plain_names(
            api_version in prop::option::of(spelling(&["cluster.x-k8s.io/v1beta1", "fleet.cattle.io/v1alpha1", "gitops.weave.works/v1alpha1", "v1"])),
            name in spelling(&["eu", "eu.west-1"]),
            namespace in prop::option::of(spelling(&["infra"])),
            kind in prop::sample::select(&[ClusterKind::GitopsCluster, ClusterKind::Cluster, ClusterKind::Secret][..]),
        ) {
            let cluster = ClusterRef { api_version: api_version.clone(), kind, name: name.clone(), namespace: namespace.clone() };
            if let Ok(parsed) = cluster.object_kind() {
                let is_plain = |text: &str| text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'.'));
                prop_assert!(is_plain(&name) && is_plain(namespace.as_deref().unwrap_or_default()), "{cluster:?}");
                prop_assert!(api_version.is_none_or(|given| given == parsed.api_version()));
                prop_assert_eq!(parsed.group().is_empty(), kind == ClusterKind::Secret);
            }
        }
    }
}
