//! One call to the API server, with a deadline.

use std::time::Duration;

use thiserror::Error;

/// Deadline of a call.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// Why a call has no response.
#[derive(Debug, Error)]
pub enum CallError {
    /// The API server rejected the call or is unreachable.
    #[error("the API server rejected the call or is unreachable")]
    Api(#[source] Box<kube::Error>),
    /// The result of the call is not known.
    #[error("the API server did not answer in time")]
    Timeout,
    /// A write that was not made: the membership is too short for it, another term has begun, or the process stops.
    #[error("this replica may not write now: its Lease is too short, has another term, or the process stops")]
    NotHeld,
    /// The value could not be encoded as JSON, which cannot happen in practice.
    #[error("the object could not be encoded as JSON")]
    Json(#[from] serde_json::Error),
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}

impl From<CallError> for kube::Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Api(error) => *error,
            other => Self::Service(other.into()),
        }
    }
}

/// Waits for the response of a call, until the deadline.
pub async fn call<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
    Ok(tokio::time::timeout(DEADLINE, call).await.map_err(|_| CallError::Timeout)??)
}
