//! `targetsFrom`: the targets of an environment that Relaybook finds by itself, and what the status records of them.

use std::collections::BTreeMap;

use kube_core::Expression;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use sha2::{Digest as _, Sha256};

use crate::Time;
use crate::notification::NotificationLayer;
use crate::values::kind::{API_VERSION_PATTERN, KIND_PATTERN};
use crate::values::refs::{ClusterKind, ClusterRef};

/// The API version of Fleet's kinds.
pub const FLEET_VERSION: &str = "fleet.cattle.io/v1alpha1";
/// The API group of Fleet.
pub const FLEET_GROUP: &str = "fleet.cattle.io";

/// Selects objects. Each selected object is a target of the environment while it exists and is selected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.fleet) != has(self.objects)", "message": "set exactly one of fleet and objects"},
]))]
pub struct TargetSource {
    /// What Fleet deploys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetTargets>,
    /// Objects of any kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<ObjectTargets>,
    /// Only a part of these objects. `PipelineSets` divide targets among pipelines with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<Chunk>,
    /// Notification settings that differ for these targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub notifications: Vec<NotificationLayer>,
    /// Notification settings that differ for the targets on some clusters. All entries that match a target apply to it, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub overrides: Vec<ClusterOverride>,
}

impl TargetSource {
    /// Returns a hash of what the entry selects. Its notification settings and `offlineAfter` are not part of it.
    #[must_use]
    pub fn selection(&self) -> String {
        let fleet = self.fleet.as_ref().map(|fleet| FleetTargets { offline_after: None, ..fleet.clone() });
        let all = (&fleet, &self.objects);
        let text = match &self.chunk {
            Some(chunk) => serde_json::to_string(&(all, chunk)),
            None => serde_json::to_string(&all),
        };
        hex::encode(Sha256::digest(text.unwrap_or_default()))[..16].to_owned()
    }
}

/// One of several parts of what an entry selects. Each object is in exactly one of them: `BundleDeployments` by their cluster, other objects
/// by namespace and name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.index < self.of", "message": "index counts from 0, so it must be less than of"},
]))]
pub struct Chunk {
    /// Which part, from 0.
    #[schemars(range(min = 0, max = 63))]
    pub index: u32,
    /// The number of parts. If it changes, only the objects that go to another part move. Their first observation there is not reported.
    #[schemars(range(min = 2, max = 64))]
    pub of: u32,
}

/// Notification settings for the targets on some clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterOverride {
    /// Globs for the name of the cluster (`*`, `?`), with or without its namespace.
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9.*?-]+$")))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub clusters: Vec<String>,
    /// The settings.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub notifications: Vec<NotificationLayer>,
}

/// Which objects of Fleet are targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FleetObjects {
    /// Each `BundleDeployment`: one target for each bundle and cluster.
    #[default]
    BundleDeployments,
    /// Each `Bundle`: one target for each bundle, on all of its clusters.
    Bundles,
}

/// What Fleet deploys from one source, in the Fleet workspace that is the namespace of the pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "(has(self.gitRepo) ? 1 : 0) + (has(self.helmOp) ? 1 : 0) + (has(self.bundle) ? 1 : 0) == 1",
     "message": "set exactly one of gitRepo, helmOp and bundle"},
    {"rule": "!has(self.of) || self.of != 'Bundles' || (!has(self.clusterSelector) && !has(self.clusterGroups) && !has(self.clusters))",
     "message": "a Bundle is on all of its clusters; remove clusterSelector, clusterGroups and clusters, or set of to BundleDeployments"},
]))]
pub struct FleetTargets {
    /// Name of a `GitRepo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub git_repo: Option<String>,
    /// Name of a `HelmOp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub helm_op: Option<String>,
    /// Name of a `Bundle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub bundle: Option<String>,
    /// Which objects are targets. If absent, `BundleDeployments`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<FleetObjects>,
    /// Only on clusters whose `Cluster` of Fleet has these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_selector: Option<LabelRequirements>,
    /// Only on clusters of one of these `ClusterGroups`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 32),
        inner(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))
    )]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub cluster_groups: Option<Vec<String>>,
    /// Only on clusters whose name matches one of these globs (`*`, `?`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9.*?-]+$")))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub clusters: Option<Vec<String>>,
    /// Time without a report of its agent after which a cluster is offline, such as `45m`. If absent, three times the interval of the reports,
    /// and at least 45 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 32), regex(pattern = r"^([0-9]+(ms|s|m|h))+$"))]
    pub offline_after: Option<String>,
}

/// Objects of one kind, by namespace, labels and owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.selector) || has(self.ownedBy) || has(self.namespaces)",
     "message": "set selector, ownedBy or namespaces, so that the selection has a limit"},
]))]
pub struct ObjectTargets {
    /// API version, such as `argoproj.io/v1alpha1`.
    #[schemars(length(min = 1, max = 253), regex(pattern = API_VERSION_PATTERN))]
    pub api_version: String,
    /// Kind, such as `Application`.
    #[schemars(length(min = 1, max = 63), regex(pattern = KIND_PATTERN))]
    pub kind: String,
    /// Namespaces of the objects. `*`: all that Relaybook watches. If absent, the namespace of the pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 64),
        inner(length(min = 1, max = 63), regex(pattern = r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$"))
    )]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub namespaces: Option<Vec<String>>,
    /// Only objects with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelRequirements>,
    /// Only objects with this owner in `metadata.ownerReferences`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owned_by: Option<OwnedBy>,
    /// The cluster that contains the objects. If absent, the cluster that Relaybook runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
    /// JSONPath of the name of the cluster that an object is about, such as `.spec.destination.name`. If absent, or if the object has no
    /// value there, it is the cluster that contains the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub cluster: Option<String>,
    /// JSONPath of the revision in the objects, such as `.spec.version`. If absent, the default of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub revision_path: Option<String>,
}

/// A label selector of Kubernetes (<https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors>). An empty one
/// selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelRequirements {
    /// Labels with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub match_labels: BTreeMap<String, String>,
    /// Other requirements. All of them must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub match_expressions: Vec<LabelRequirement>,
}

/// One requirement of a label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelRequirement {
    /// Key of the label.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How the label is compared.
    pub operator: LabelOperator,
    /// The values, for `In` and `NotIn` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 63)), extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// It has one of the values.
    #[default]
    In,
    /// It has none of the values, or does not exist.
    NotIn,
    /// It exists.
    Exists,
    /// It does not exist.
    DoesNotExist,
}

impl LabelRequirements {
    /// Returns the requirements. `Err`: the key of the first one that has values without need, or needs some.
    pub fn expressions(&self) -> Result<Vec<Expression>, &str> {
        let labels = self.match_labels.iter().map(|(key, value)| Ok(Expression::Equal(key.clone(), value.clone())));
        labels.chain(self.match_expressions.iter().map(LabelRequirement::expression)).collect()
    }
}

impl LabelRequirement {
    fn expression(&self) -> Result<Expression, &str> {
        let (key, values) = (self.key.clone(), self.values.iter().cloned().collect());
        let has_values = !self.values.is_empty();
        match self.operator {
            LabelOperator::In if has_values => Ok(Expression::In(key, values)),
            LabelOperator::NotIn if has_values => Ok(Expression::NotIn(key, values)),
            LabelOperator::Exists if !has_values => Ok(Expression::Exists(key)),
            LabelOperator::DoesNotExist if !has_values => Ok(Expression::DoesNotExist(key)),
            _ => Err(&self.key),
        }
    }
}

/// An owner of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnedBy {
    /// Kind of the owner, such as `ApplicationSet`.
    #[schemars(length(min = 1, max = 63), regex(pattern = KIND_PATTERN))]
    pub kind: String,
    /// Name of the owner.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// How a target came to be, if it is not in the spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GeneratedTarget {
    /// Index of the entry of `targetsFrom` that selects the object.
    #[schemars(range(min = 0, max = 15))]
    pub from: u32,
    /// Display name: `ENVIRONMENT/CLUSTER/BUNDLE` for Fleet, `ENVIRONMENT/CLUSTER/NAMESPACE/APP` for other objects.
    #[schemars(length(max = 1024))]
    pub name: String,
    /// Name of the cluster that the object is about, as in the name of the target.
    #[schemars(length(max = 512))]
    pub cluster: String,
    /// The `Cluster` of Fleet that the object is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet_cluster: Option<FleetCluster>,
}

/// A `Cluster` of Fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetCluster {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl FleetCluster {
    /// Returns the reference to the object.
    #[must_use]
    pub fn reference(&self) -> ClusterRef {
        ClusterRef {
            api_version: Some(FLEET_VERSION.to_owned()),
            kind: ClusterKind::Cluster,
            name: self.name.clone(),
            namespace: Some(self.namespace.clone()),
        }
    }
}

/// What is recorded of one entry of `targetsFrom`, so that a restart does not take what is there already for news.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GeneratedFrom {
    /// Index of the entry.
    #[schemars(range(min = 0, max = 15))]
    pub from: u32,
    /// Hash of what the entry selects. With another value, nothing that the entry selects is news.
    #[schemars(length(max = 64))]
    pub selection: String,
    /// The newest `creationTimestamp` of the selected objects. An object that is not recorded and is older was there before, so it is not
    /// news.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub newest: Option<Time>,
    /// The `GitRepo` or `HelmOp` of Fleet that the targets come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<TargetOrigin>,
}

/// The object that targets come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetOrigin {
    /// Kind of the object: `GitRepo` or `HelmOp`.
    #[schemars(length(max = 63))]
    pub kind: String,
    /// Name of the object.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Address of the repository. Absent if it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub repository: String,
}
