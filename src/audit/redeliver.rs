//! Asking for settled deliveries to be sent again.

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::api::Delivery;
use crate::api::delivery::REDELIVER;

/// Why a delivery is not sent again.
#[derive(Debug, thiserror::Error)]
pub enum RedeliverError {
    /// There is none of this name.
    #[error("there is no delivery {0}; `pennant audit` lists them")]
    NotFound(String),
    /// It is on its way.
    #[error("delivery {0} is pending: it is sent when its turn comes")]
    Pending(String),
    /// The API server refused, or could not be asked.
    #[error("delivery {0} cannot be sent again")]
    Api(String, #[source] Box<kube::Error>),
}

/// Marks a settled delivery, so that it is sent again. `value`: one that was not used for it before. `dry_run`: the API server
/// checks and changes nothing.
pub async fn redeliver(
    client: &Client,
    namespace: &str,
    name: &str,
    value: &str,
    dry_run: bool,
) -> Result<(), RedeliverError> {
    let api: Api<Delivery> = Api::namespaced(client.clone(), namespace);
    let failed = |error| RedeliverError::Api(name.to_owned(), Box::new(error));
    let found = api.get(name).await.map_err(|error| match error {
        // Where the kind itself is not there, the API server gives another reason.
        kube::Error::Api(status) if status.is_not_found() && status.reason == "NotFound" => {
            RedeliverError::NotFound(name.to_owned())
        }
        error => failed(error),
    })?;
    if found.status.is_none_or(|status| status.outcome.is_none()) {
        return Err(RedeliverError::Pending(name.to_owned()));
    }
    let patch = Patch::Merge(json!({"metadata": {"annotations": {(REDELIVER): value}}}));
    let params = PatchParams { dry_run, ..PatchParams::default() };
    api.patch_metadata(name, &params, &patch).await.map_err(failed)?;
    Ok(())
}
