//! Reads the configuration that the controllers published.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use super::choose::choose;
use super::{Dispatch, Installation, LABEL, LookupError, NAME};
use crate::telemetry::chain;

/// The default namespace of an installation.
const DEFAULT_NAMESPACE: &str = "pennant-system";
/// Page size of a list.
const PAGE: u32 = 100;

/// Returns the settings that apply to the pipelines of a namespace. If a `controller` namespace is given, they come from it. Otherwise they
/// come from `pennant-system` if that controller watches the namespace, else from the only controller in the cluster that does.
pub async fn find(client: &Client, controller: Option<&str>, namespace: &str) -> Result<Installation, LookupError> {
    if let Some(controller) = controller {
        return get(client, controller).await;
    }
    let usual = get(client, DEFAULT_NAMESPACE).await;
    if let Ok(found) = &usual
        && found.watches(namespace)
    {
        return usual;
    }
    match all(client).await {
        Ok(all) => choose(all, namespace),
        // A user with access to one namespace cannot list ConfigMaps in all namespaces.
        Err(_) => usual.and_then(|found| choose(vec![Ok(found)], namespace)),
    }
}

/// Returns the configurations of all dispatchers in the cluster.
async fn all(client: &Client) -> Result<Vec<Result<Installation, LookupError>>, kube::Error> {
    let api: Api<ConfigMap> = Api::all(client.clone());
    let mut params = ListParams::default().labels(&format!("{LABEL}=true")).limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await?;
        let named = page.items.iter().filter(|object| object.name_any() == NAME);
        // The ConfigMap of a pipeline controller without a dispatcher has no such key.
        let of_dispatchers =
            named.filter(|object| object.data.as_ref().is_some_and(|data| data.contains_key(Dispatch::KEY)));
        all.extend(of_dispatchers.map(|o| Installation::read(&o.namespace().unwrap_or_default(), o.data.as_ref())));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

async fn get(client: &Client, namespace: &str) -> Result<Installation, LookupError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let owned = || namespace.to_owned();
    match api.get_opt(NAME).await {
        Ok(Some(object)) => Installation::read(namespace, object.data.as_ref()),
        Ok(None) => Err(LookupError::NoConfigMap(owned())),
        Err(kube::Error::Api(status)) if status.code == 403 => Err(LookupError::Forbidden(owned())),
        Err(error) => Err(LookupError::Unread { namespace: owned(), problem: chain(&error) }),
    }
}
