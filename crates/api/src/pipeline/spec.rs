//! The parts of the spec of a pipeline: its environments, their listed targets, its hook, and where its revisions come from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PipelineSpec, TargetSource};
use crate::SecretRef;
use crate::notification::NotificationLayer;
use crate::promotion::PromotionPolicy;
use crate::values::git::ADDRESS_PATTERN;
use crate::values::refs::{ClusterRef, PartialAppRef};

impl PipelineSpec {
    /// Whether the first observation of a target is reported.
    #[must_use]
    pub fn is_absent_before(&self) -> bool {
        self.baseline == Some(Baseline::Absent)
    }

    /// Returns the address of the Git repository that the user has set. Empty: none.
    #[must_use]
    pub fn repository(&self) -> &str {
        self.source.as_ref().map_or("", |source| source.repository.as_str())
    }

    /// Returns the layer namespace of a pipeline in the namespace `own`. `None`: there is no other namespace.
    #[must_use]
    pub fn other_layer_namespace(&self, own: &str) -> Option<&str> {
        self.layer_namespace.as_deref().filter(|other| *other != own)
    }
}

/// What was there before the first observation of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Baseline {
    /// What the first observation shows. So the first observation is not reported.
    #[default]
    Present,
    /// Nothing. So the first observation is reported: `Added`, and what follows from its status. If the status of the pipeline is deleted,
    /// its targets are reported again.
    Absent,
}

/// The hook that requests a check of the promotions. It decides nothing, and Relaybook does not read the body of its requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InboundHooks {
    /// A Secret of type `relaybook.dev/inbound` in the namespace of the pipeline. Each of its keys whose name begins with `hmac-key` can sign.
    /// It must be another Secret than that of approvals.
    pub secret_ref: SecretRef,
}

/// Where the revisions of a pipeline come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!self.repository.matches('[/:][.]([.]|git)?(/|$)')", "message": "repository must not have ., .. or .git as a part of its path"},
]))]
pub struct RevisionSource {
    /// Address of the Git repository, without credentials: `https://HOST/OWNER/NAME.git`, `ssh://git@HOST/OWNER/NAME` or `git@HOST:OWNER/NAME`.
    /// It takes precedence over an address that an application object or an object of Fleet names.
    #[schemars(length(min = 8, max = 256), regex(pattern = ADDRESS_PATTERN))]
    pub repository: String,
}

/// One environment of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "(has(self.targets) && size(self.targets) > 0) || (has(self.targetsFrom) && size(self.targetsFrom) > 0)",
     "message": "an environment requires a target; set targets or targetsFrom"},
]))]
pub struct Environment {
    /// Name, unique within the pipeline; a DNS label.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Where the application runs in this environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub targets: Vec<Target>,
    /// Objects that are targets of this environment while they exist and are selected, beside `targets` or instead of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub targets_from: Vec<TargetSource>,
    /// Replaces `spec.promotion` for this environment as a whole. `{}` promotes nothing to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<PromotionPolicy>,
    /// Notification settings that differ for this environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub notifications: Vec<NotificationLayer>,
}

/// One namespace that contains the application object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The namespace.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
    /// The cluster. If absent, the cluster that Relaybook runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
    /// Overrides fields of the pipeline's `appRef`, so that one namespace can contain many applications.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_ref: Option<PartialAppRef>,
    /// Notification settings that differ for this target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub notifications: Vec<NotificationLayer>,
}
