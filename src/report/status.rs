//! The status of a Notification: one writer, one patch, and none that would change nothing.

use kube::{Api, Client, ResourceExt as _};

use crate::api::{Notification, NotificationStatus};
use crate::k8s::call::CallError;
use crate::k8s::guarded::{Guarded, Outcome};
use crate::telemetry::metrics::{ApiWrite, Metrics, WriteResult};

/// Writes the status of `notification`. Returns the new version of the object, or `None` if the object is deleted. After an error the
/// status is computed again on the next occasion, so nothing is lost.
pub async fn write(
    client: &Client,
    metrics: &Metrics,
    notification: &Notification,
    status: &NotificationStatus,
) -> Result<Option<String>, CallError> {
    let api: Api<Notification> = Api::namespaced(client.clone(), &notification.namespace().unwrap_or_default());
    let patch = Guarded::of(notification.metadata.uid.as_deref()).put(["status"], status)?;
    let written = patch.write_status(&api, &notification.name_any()).await;
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
        // It is gone, or another now: there is nobody to tell.
        Outcome::Stale | Outcome::Gone => None,
    })
}
