//! Pure: the kinds that the API server serves.
//!
//! In: CRDs. Out: what the API server does differently for each kind.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// A kind in one version.
#[derive(Clone, Debug, Default)]
pub struct Kind {
    /// Its group. Empty: the core group.
    pub group: String,
    /// Its version.
    pub version: String,
    /// The name of its resource in paths.
    pub plural: String,
    /// Its name in objects.
    pub kind: String,
    /// Whether its objects have a namespace.
    pub is_namespaced: bool,
    /// Whether the status is a subresource.
    pub has_status: bool,
    /// Whether the API server counts the changes of the spec.
    pub has_generation: bool,
    /// Whether a replacement has to name the version that it replaces.
    pub requires_version: bool,
    /// Whether a replacement of a missing object creates it.
    pub creates_by_replace: bool,
    /// Whether it comes from a CRD. Then each object of a list names its kind, and a list without further pages has an empty `continue`.
    pub is_custom: bool,
    /// The fields that a field selector can name besides name and namespace, such as `status.phase`.
    pub selectable: Vec<String>,
}

impl Kind {
    /// Returns `apiVersion` of its objects.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the name of its resource in messages.
    pub(super) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Returns the key of an object in the store. Lists are sorted by it.
    pub(super) fn key(&self, namespace: &str, name: &str) -> String {
        if self.is_namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }
}

/// Returns the kinds of a CRD, one for each version that is served.
#[must_use]
pub fn custom(definition: &CustomResourceDefinition) -> Vec<Kind> {
    let spec = &definition.spec;
    let served = spec.versions.iter().filter(|version| version.served);
    let kind = served.map(|version| Kind {
        group: spec.group.clone(),
        version: version.name.clone(),
        plural: spec.names.plural.clone(),
        kind: spec.names.kind.clone(),
        is_namespaced: spec.scope == "Namespaced",
        has_status: version.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some()),
        has_generation: true,
        requires_version: true,
        creates_by_replace: false,
        is_custom: true,
        selectable: version
            .selectable_fields
            .iter()
            .flatten()
            .map(|field| field.json_path.trim_start_matches('.').to_owned())
            .collect(),
    });
    kind.collect()
}

/// Returns the kinds of Kubernetes that Relaybook writes.
#[must_use]
pub fn builtin() -> Vec<Kind> {
    let kind = |group: &str, plural: &str, kind: &str| Kind {
        group: group.to_owned(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        kind: kind.to_owned(),
        is_namespaced: true,
        ..Kind::default()
    };
    vec![
        kind("", "configmaps", "ConfigMap"),
        kind("", "secrets", "Secret"),
        Kind { is_namespaced: false, ..kind("", "namespaces", "Namespace") },
        Kind { requires_version: true, creates_by_replace: true, ..kind("coordination.k8s.io", "leases", "Lease") },
        Kind { creates_by_replace: true, ..kind("events.k8s.io", "events", "Event") },
    ]
}
