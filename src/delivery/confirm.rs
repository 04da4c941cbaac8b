//! Whether something is really gone: absence from a cache is a suspicion, a live read is knowledge.

use std::time::Duration;

use kube::{Api, Client};
use thiserror::Error;

use super::directory::{Gone, subject};
use crate::api::target::targets;
use crate::api::{DeliverySpec, Notification, Pipeline};

const DEADLINE: Duration = Duration::from_secs(10);

/// Why it could not be found out.
#[derive(Debug, Error)]
pub enum ConfirmError {
    /// The API server could not be asked.
    #[error("the API server could not be asked")]
    Api(#[source] Box<kube::Error>),
    /// It did not answer in time.
    #[error("the API server did not answer in time")]
    Timeout,
}

/// Reads the object that a delivery is about.
pub async fn is_gone(client: &Client, cluster: &str, spec: &DeliverySpec, what: Gone) -> Result<bool, ConfirmError> {
    let of = &spec.pipeline_ref;
    match what {
        Gone::Notification => {
            let api: Api<Notification> = Api::namespaced(client.clone(), &of.namespace);
            Ok(read(api.get_metadata_opt(&spec.notification)).await?.is_none())
        }
        Gone::Pipeline | Gone::Target => {
            let api: Api<Pipeline> = Api::namespaced(client.clone(), &of.namespace);
            let Some(pipeline) = read(api.get_opt(&of.name)).await?.filter(|p| p.metadata.uid.as_ref() == Some(&of.uid))
            else {
                return Ok(true);
            };
            let subject = subject(spec);
            Ok(what == Gone::Target && !targets(&pipeline.spec, cluster).iter().any(|t| t.subject == subject))
        }
    }
}

async fn read<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, ConfirmError> {
    let answer = tokio::time::timeout(DEADLINE, call).await.map_err(|_| ConfirmError::Timeout)?;
    answer.map_err(|e| ConfirmError::Api(Box::new(e)))
}
