//! Requests that settled deliveries are sent again.

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use relaybook_api::Delivery;
use relaybook_api::delivery::REDELIVER;

/// Why a delivery is not sent again.
#[derive(Debug, thiserror::Error)]
pub enum RedeliverError {
    /// There is no delivery with this name.
    #[error("there is no delivery {0}; `relaybook audit` lists them")]
    NotFound(String),
    /// The delivery is pending.
    #[error("delivery {0} is pending; only settled deliveries can be sent again")]
    Pending(String),
    /// It is a test.
    #[error("delivery {0} is a test, which is sent once; request a new one with `relaybook test`")]
    Test(String),
    /// The API server refused the call, or the call failed.
    #[error("delivery {0} cannot be sent again")]
    Api(String, #[source] Box<kube::Error>),
}

/// Annotates a settled delivery, so that it is sent again. `value`: the value of the annotation; it must differ from all earlier ones of
/// this delivery. `dry_run`: the API server only checks the call, and changes nothing.
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
        // If the CRD does not exist, the API server also answers 404, but with another reason.
        kube::Error::Api(status) if status.is_not_found() && status.reason == "NotFound" => {
            RedeliverError::NotFound(name.to_owned())
        }
        error => failed(error),
    })?;
    if found.spec.test {
        return Err(RedeliverError::Test(name.to_owned()));
    }
    if found.status.is_none_or(|status| status.outcome.is_none()) {
        return Err(RedeliverError::Pending(name.to_owned()));
    }
    let patch = Patch::Merge(json!({"metadata": {"annotations": {(REDELIVER): value}}}));
    let params = PatchParams { dry_run, ..PatchParams::default() };
    api.patch_metadata(name, &params, &patch).await.map_err(failed)?;
    Ok(())
}
