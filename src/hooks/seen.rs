//! A Pipeline as the hooks see it: a few fields of the same object. The others are skipped while it is parsed, so a large status costs no
//! memory. No value of a field that the hooks do not use can make the object unreadable. Pure.

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use relaybook_api::Pipeline;
use relaybook_runtime::watch::Deleted;

/// A Pipeline.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct SeenPipeline {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Spec,
    #[serde(default)]
    pub status: Option<Status>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Spec {
    #[serde(default)]
    pub promotion: Option<Policy>,
    #[serde(default)]
    pub hooks: Option<SecretHolder>,
    #[serde(default)]
    pub environments: Vec<Environment>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Environment {
    pub name: String,
    #[serde(default)]
    pub promotion: Option<Policy>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Policy {
    #[serde(default)]
    pub strategy: Option<SecretHolder>,
}

/// An object with a reference to a Secret.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SecretHolder {
    #[serde(default)]
    pub secret_ref: Option<Name>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Name {
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Status {
    #[serde(default)]
    pub environments: Vec<EnvironmentStatus>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EnvironmentStatus {
    pub name: String,
    #[serde(default)]
    pub promotion: Option<Newest>,
    #[serde(default)]
    pub waiting_approval: Option<Waiting>,
}

/// The newest promotion to an environment.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Newest {
    pub name: String,
    pub phase: String,
}

/// The promotion to an environment that waits for an approval.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Waiting {
    /// Its revision.
    pub revision: String,
    /// Its name.
    pub promotion: String,
    /// Its uid.
    pub promotion_uid: String,
}

impl Resource for SeenPipeline {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        Pipeline::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        Pipeline::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        Pipeline::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        Pipeline::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Deleted for SeenPipeline {
    fn deleted(metadata: ObjectMeta) -> Self {
        Self { metadata, spec: Spec::default(), status: None }
    }
}
