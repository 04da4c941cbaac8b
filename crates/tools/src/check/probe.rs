//! Queries the readiness of another Relaybook process.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

/// Timeout of a probe.
const DEADLINE: Duration = Duration::from_secs(5);
/// Maximum number of bytes that are read of an answer.
const LONGEST: usize = 4096;

/// Why the process is not ready, as far as is known.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No process answers at the URL.
    #[error("no answer")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The process did not answer in time.
    #[error("no answer within {} s", DEADLINE.as_secs())]
    Slow,
    /// The process answers that it is not ready, and which gates are closed.
    #[error("not ready ({status}), waiting for: {waits}")]
    NotReady {
        /// The status of the answer.
        status: StatusCode,
        /// The gates that are closed.
        waits: String,
    },
}

/// Checks whether the process that serves this URL (`http://…/readyz`) is ready. Returns an error if it is not.
pub async fn ready(url: &Uri) -> Result<(), ProbeError> {
    timeout(DEADLINE, ask(url)).await.map_err(|_| ProbeError::Slow)?
}

async fn ask(url: &Uri) -> Result<(), ProbeError> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let answer = client.get(url.clone()).await.map_err(|e| ProbeError::Unreachable(Box::new(e)))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    // A longer text does not come from Relaybook, and is ignored.
    let text = to_bytes(Body::new(answer.into_body()), LONGEST).await.unwrap_or_default();
    let waits = String::from_utf8_lossy(&text).split_whitespace().collect::<Vec<_>>().join(", ");
    Err(ProbeError::NotReady { status, waits })
}
