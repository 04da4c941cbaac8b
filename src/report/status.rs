//! The status of a Notification: one writer, one patch, and none that would change nothing.

use std::time::Duration;

use json_patch::{AddOperation, Patch, PatchOperation, TestOperation, jsonptr::PointerBuf};
use kube::api::PatchParams;
use kube::{Api, Client, ResourceExt as _};
use thiserror::Error;

use crate::api::{Notification, NotificationStatus};
use crate::telemetry::metrics::{ApiWrite, Metrics, WriteResult};

const DEADLINE: Duration = Duration::from_secs(10);

/// Why a status could not be written. It is computed anew on the next occasion, so nothing is lost.
#[derive(Debug, Error)]
pub enum StatusError {
    /// The API server refused or could not be asked.
    #[error("the status could not be written")]
    Api(#[source] Box<kube::Error>),
    /// It did not answer in time.
    #[error("the API server did not answer in time")]
    Timeout,
    /// The status is not JSON, which cannot be.
    #[error("the status could not be put into words")]
    Json(#[source] serde_json::Error),
}

/// Writes the status of `notification`; gives the new version of the object, or `None` if there is nobody left to tell.
pub async fn write(
    client: &Client,
    metrics: &Metrics,
    notification: &Notification,
    status: &NotificationStatus,
) -> Result<Option<String>, StatusError> {
    let uid = notification.uid().unwrap_or_default();
    let patch = Patch(vec![
        PatchOperation::Test(TestOperation { path: PointerBuf::from_tokens(["metadata", "uid"]), value: uid.into() }),
        PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["status"]),
            value: serde_json::to_value(status).map_err(StatusError::Json)?,
        }),
    ]);
    let api: Api<Notification> = Api::namespaced(client.clone(), &notification.namespace().unwrap_or_default());
    let (name, params) = (notification.name_any(), PatchParams::default());
    let patch = kube::api::Patch::Json::<()>(patch);
    let call = api.patch_status(&name, &params, &patch);
    let (result, counted) = match tokio::time::timeout(DEADLINE, call).await {
        Ok(Ok(stored)) => (Ok(stored.resource_version()), WriteResult::Ok),
        // It is gone, or another now: there is nobody to tell.
        Ok(Err(kube::Error::Api(s))) if s.is_not_found() || s.code == 422 => (Ok(None), WriteResult::Conflict),
        Ok(Err(error)) => (Err(StatusError::Api(Box::new(error))), WriteResult::Error),
        Err(_) => (Err(StatusError::Timeout), WriteResult::Error),
    };
    metrics.api_write(ApiWrite::NotificationStatus, counted);
    result
}
