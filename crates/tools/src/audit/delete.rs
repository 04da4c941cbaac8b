//! Deletes pending deliveries, which are then never sent.

use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};

use relaybook_api::Delivery;

/// Maximum number of times that a delivery is read again, because the controller has written to it.
const TRIES: u32 = 5;

/// A delivery cannot be deleted.
#[derive(Debug, thiserror::Error)]
#[error("delivery {name} cannot be deleted")]
pub struct DeleteError {
    name: String,
    source: Box<kube::Error>,
}

/// Deletes a pending delivery in the version that was read, so that no outcome is lost from the audit. Returns whether it was deleted: a
/// delivery that is settled or gone is not.
///
/// # Errors
/// A call of the API server fails.
pub async fn delete_pending(client: &Client, namespace: &str, name: &str) -> Result<bool, DeleteError> {
    let api: Api<Delivery> = Api::namespaced(client.clone(), namespace);
    let failed = |error| DeleteError { name: name.to_owned(), source: Box::new(error) };
    let mut tries = 0;
    loop {
        let Some(found) = api.get_opt(name).await.map_err(failed)? else { return Ok(false) };
        let is_settled = found.status.is_some_and(|status| status.outcome.is_some());
        if is_settled || found.metadata.deletion_timestamp.is_some() {
            return Ok(false);
        }
        tries += 1;
        let (uid, resource_version) = (found.metadata.uid, found.metadata.resource_version);
        let preconditions = Some(Preconditions { uid, resource_version });
        match api.delete(name, &DeleteParams { preconditions, ..DeleteParams::background() }).await {
            Ok(_) => return Ok(true),
            // The controller has just written why the delivery waits.
            Err(kube::Error::Api(status)) if tries < TRIES && status.is_conflict() => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(false),
            Err(error) => return Err(failed(error)),
        }
    }
}
