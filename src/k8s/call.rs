//! One call of the API server, with a deadline: no call may hang for longer.

use std::time::Duration;

use thiserror::Error;

/// The deadline of a call.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum CallError {
    /// The API server refused, or could not be asked.
    #[error("the API server rejected the call or is unreachable")]
    Api(#[source] Box<kube::Error>),
    /// It is not known what became of the call.
    #[error("the API server did not answer in time")]
    Timeout,
    /// What is to be written has no JSON form, which cannot be.
    #[error("the object could not be encoded as JSON")]
    Json(#[from] serde_json::Error),
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}

/// Waits for the answer of a call.
pub async fn call<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
    Ok(tokio::time::timeout(DEADLINE, call).await.map_err(|_| CallError::Timeout)??)
}
