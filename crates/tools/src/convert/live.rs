//! The objects of another program in a cluster.
//!
//! In: a client with the permissions of the person, and kinds. Out: an [`Input`] for each kind, and the kinds that could not be listed ([`Listed`]). A
//! Secret is never read, so the manifests refer to Secrets whose keys are not known.

use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::discovery::oneshot::group;
use kube::error::DiscoveryError;
use kube::{Client, Error};
use serde_json::Value;

use super::Input;
use crate::init::yaml;

/// Number of objects of one answer of the API server.
const PAGE: u32 = 500;

/// A kind of another program.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The name of its only object, if other objects do not count.
    pub name: Option<&'static str>,
}

/// What was listed.
#[derive(Debug, Default)]
pub struct Listed {
    /// A file for each kind.
    pub inputs: Vec<Input>,
    /// The kinds that the person may not list, each with the answer of the API server.
    pub forbidden: Vec<String>,
}

/// Lists the objects of kinds. A kind that the cluster does not have has no objects. `namespace`: `None` means all namespaces.
///
/// # Errors
/// The API server does not answer, or refuses for another reason than a missing right.
pub async fn list(client: &Client, kinds: &[Kind], namespace: Option<&str>) -> Result<Listed, Error> {
    let mut listed = Listed::default();
    for of in kinds {
        let Some(resource) = resource(client, of).await? else { continue };
        match objects(client, of, &resource, namespace).await {
            Ok(all) => {
                let text = all.iter().map(yaml).collect::<Vec<_>>().join("---\n");
                listed.inputs.push(Input { name: format!("{} in the cluster", resource.plural), text, is_found: false });
            }
            Err(Error::Api(status)) if status.code == 403 => {
                listed.forbidden.push(format!("{}: {}", resource.plural, status.message));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(listed)
}

/// Returns the version of a kind that the API server prefers. `None`: it has no such kind.
async fn resource(client: &Client, of: &Kind) -> Result<Option<ApiResource>, Error> {
    if of.group.is_empty() {
        return Ok(Some(ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", of.kind))));
    }
    match group(client, of.group).await {
        Ok(group) => Ok(group.recommended_kind(of.kind).map(|(resource, _)| resource)),
        Err(Error::Discovery(DiscoveryError::MissingApiGroup(_) | DiscoveryError::EmptyApiGroup(_))) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lists the objects of a kind, without what only the API server uses.
async fn objects(client: &Client, of: &Kind, resource: &ApiResource, namespace: Option<&str>) -> Result<Vec<Value>, Error> {
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    };
    let mut params = ListParams::default().limit(PAGE);
    if let Some(name) = of.name {
        params = params.fields(&format!("metadata.name={name}"));
    }
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await?;
        let next = page.metadata.continue_.clone().filter(|next| !next.is_empty());
        for mut object in page.items {
            object.metadata.managed_fields = None;
            let mut object = serde_json::to_value(object).map_err(Error::SerdeError)?;
            object["apiVersion"] = resource.api_version.clone().into();
            object["kind"] = resource.kind.clone().into();
            all.push(object);
        }
        let Some(next) = next else { return Ok(all) };
        params = params.continue_token(&next);
    }
}
