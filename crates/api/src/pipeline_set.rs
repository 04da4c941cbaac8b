//! `PipelineSet`: pipelines that Relaybook makes, one for each source that the set selects, or for each part of the sources' targets.
//!
//! The pipeline controller makes them and writes the status. A pipeline that a set made has `spec.pipelineSet`, which nobody can add to
//! another pipeline. So a set never changes a pipeline that is not its own.

use std::collections::BTreeMap;

use kube_derive::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Time;
use super::conditions::Condition;
use super::pipeline::source::{LabelRequirements, OwnedBy};
use super::values::kind::{API_VERSION_PATTERN, KIND_PATTERN};
use super::values::refs::ClusterRef;

/// The label with the name of the set on each of its pipelines.
pub const SET: &str = concat!(group!(), "/pipeline-set");
/// The annotation with a hash of the labels and annotations that the set wrote. So a set notices that one of them must be removed.
pub const APPLIED: &str = concat!(group!(), "/applied");
/// The owner of the fields that a set writes.
pub const SET_MANAGER: &str = "relaybook-set";
/// Maximum number of pipelines of one set.
pub const MAX_PIPELINES: usize = 5_000;
/// Maximum number of entries of `status.wrong`.
pub const MAX_WRONG: usize = 16;

/// Which pipelines there are.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "relaybook.dev",
    version = "v1alpha1",
    crates(kube_core = "kube_core"),
    kind = "PipelineSet",
    namespaced,
    status = "PipelineSetStatus",
    shortname = "rbps",
    category = "relaybook",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Pipelines","type":"integer","jsonPath":".status.pipelines"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct PipelineSetSpec {
    /// What the pipelines are for. Each selected object is a source of one pipeline.
    #[schemars(length(min = 1, max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub generators: Vec<Generator>,
    /// The pipelines. Each text is a template with the data of the source.
    pub template: PipelineTemplate,
    /// Divides the targets of each source among this number of pipelines: `NAME-0`, `NAME-1`, and so on. Each target is in exactly one of
    /// them. The template then has only `targetsFrom`. If absent, each source has one pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 64))]
    pub chunks: Option<u32>,
    /// What happens to a pipeline whose source is gone or is not selected anymore, and to all pipelines if the set is deleted. If absent,
    /// `Delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
}

/// What happens to a pipeline that a set does not need anymore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Deletion {
    /// It is deleted. If its source is gone, that happens after its last deliveries.
    #[default]
    Delete,
    /// It stays.
    Orphan,
}

/// Selects sources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.fleet) != has(self.objects)", "message": "set exactly one of fleet and objects"},
]))]
pub struct Generator {
    /// Objects of Fleet in the namespace of the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetSources>,
    /// Objects of any kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<ObjectSources>,
}

/// Objects of Fleet, in the Fleet workspace that is the namespace of the set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "(has(self.gitRepos) ? 1 : 0) + (has(self.helmOps) ? 1 : 0) + (has(self.bundles) ? 1 : 0) == 1",
     "message": "set exactly one of gitRepos, helmOps and bundles"},
]))]
pub struct FleetSources {
    /// `GitRepos`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_repos: Option<LabeledSources>,
    /// `HelmOps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helm_ops: Option<LabeledSources>,
    /// `Bundles`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundles: Option<LabeledSources>,
}

/// Objects of a kind, by labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabeledSources {
    /// Only objects with these labels. If absent, all objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelRequirements>,
}

/// Objects of one kind, by namespace, labels and owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectSources {
    /// API version, such as `argoproj.io/v1alpha1`.
    #[schemars(length(min = 1, max = 253), regex(pattern = API_VERSION_PATTERN))]
    pub api_version: String,
    /// Kind, such as `ApplicationSet`.
    #[schemars(length(min = 1, max = 63), regex(pattern = KIND_PATTERN))]
    pub kind: String,
    /// Namespaces of the objects. `*`: all that Relaybook watches. If absent, the namespace of the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 64),
        inner(length(min = 1, max = 63), regex(pattern = r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$"))
    )]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub namespaces: Option<Vec<String>>,
    /// Only objects with these labels. If absent, all objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelRequirements>,
    /// Only objects with this owner in `metadata.ownerReferences`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owned_by: Option<OwnedBy>,
    /// The cluster that contains the objects. If absent, the cluster that Relaybook runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
}

/// A pipeline whose texts are templates. They have the data `name`, `namespace`, `kind`, `apiVersion` and `labels` of the source, and the
/// helpers of the templates of notifications. What is below a list `notifications` is copied, because its texts are templates of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineTemplate {
    /// Name, labels and annotations.
    pub metadata: PipelineTemplateMetadata,
    /// `spec` of the pipelines. It is checked after it was rendered.
    #[schemars(schema_with = "any_object")]
    pub spec: Value,
}

/// Name, labels and annotations of the pipelines of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineTemplateMetadata {
    /// The name. A name of more than 63 characters is cut, and ends with a hash of the whole name.
    #[schemars(length(min = 1, max = 1024))]
    pub name: String,
    /// The labels. An empty value leaves out the label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub labels: BTreeMap<String, String>,
    /// The annotations. An empty value leaves out the annotation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub annotations: BTreeMap<String, String>,
}

fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "`spec` of the pipelines. It is checked after it was rendered.",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// What the pipeline controller knows about a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineSetStatus {
    /// The generation of the spec that the status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: each source has its pipelines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The number of pipelines of the set.
    #[serde(default)]
    pub pipelines: u32,
    /// Pipelines that could not be made or changed, by name; at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrong: Vec<WrongPipeline>,
    /// What is recorded of each generator whose objects have been listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub generators: Vec<GeneratorStatus>,
}

/// A pipeline that could not be made or changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WrongPipeline {
    /// Name of the pipeline. Empty if the name is what is wrong.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its source, as `KIND NAMESPACE/NAME`.
    pub source: String,
    /// Machine-readable reason: one word.
    pub reason: String,
    /// Human-readable reason.
    pub message: String,
}

/// What is recorded of one generator, so that a restart does not take what is there already for new.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GeneratorStatus {
    /// Hash of what the generator selects. With another value, nothing that it selects is new.
    #[schemars(length(max = 64))]
    pub selection: String,
    /// The newest `creationTimestamp` of the sources that have their pipelines. A source that is older was there before, so it is not new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub newest: Option<Time>,
}

/// The set that made a pipeline, and for which source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MadeBy {
    /// Name of the `PipelineSet`, in the namespace of the pipeline.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The source.
    pub source: SourceRef,
}

/// The source of a pipeline that a set made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceRef {
    /// API version.
    #[schemars(length(min = 1, max = 253), regex(pattern = API_VERSION_PATTERN))]
    pub api_version: String,
    /// Kind.
    #[schemars(length(min = 1, max = 63), regex(pattern = KIND_PATTERN))]
    pub kind: String,
    /// Namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The cluster that contains it. Absent for the cluster that Relaybook runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
}
