//! Writes the status of a Notification with one patch. The dispatcher is the only writer.

use kube::{Api, Client, ResourceExt as _};

use crate::call::CallError;
use crate::guarded::{Guarded, Outcome};
use crate::tenure::Tenure;
use relaybook_api::{Notification, NotificationStatus};
use relaybook_telemetry::metrics::{ApiWrite, Metrics, WriteResult};

/// Writes the status of `notification`, whose bucket is proven by `tenure`. Returns the new version of the object, or `None` if the object was
/// deleted, recreated, or changed by others at the same time. Then nothing is written. After an error the caller computes the status again later, so nothing is lost.
pub async fn write(
    client: &Client,
    metrics: &Metrics,
    tenure: &Tenure,
    notification: &Notification,
    status: &NotificationStatus,
) -> Result<Option<String>, CallError> {
    let api: Api<Notification> = Api::namespaced(client.clone(), &notification.namespace().unwrap_or_default());
    let patch = Guarded::of(notification.metadata.uid.as_deref()).put(["status"], status)?;
    let written = patch.write_status(tenure.into(), &api, &notification.name_any()).await;
    if let Err(error @ CallError::NotHeld) = written {
        return Err(error);
    }
    metrics.api_write(
        ApiWrite::NotificationStatus,
        match &written {
            Ok(Outcome::Written(_)) => WriteResult::Ok,
            Ok(Outcome::Stale | Outcome::Gone) => WriteResult::Conflict,
            Err(_) => WriteResult::Error,
        },
    );
    Ok(match written? {
        Outcome::Written(stored) => stored.resource_version(),
        // A recreated object gets a status of its own. After a change by others, the watch triggers a new computation.
        Outcome::Stale | Outcome::Gone => None,
    })
}
