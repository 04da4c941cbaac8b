//! Asking another process of Pennant whether it is ready.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

/// It answers within this time.
const DEADLINE: Duration = Duration::from_secs(5);
/// Bytes of an answer that are read.
const LONGEST: usize = 4096;

/// Why it is not ready, as far as is known.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Nothing answers there.
    #[error("no answer")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It took too long.
    #[error("no answer within {} s", DEADLINE.as_secs())]
    Slow,
    /// It says that it is not ready, and what it waits for.
    #[error("it answers {status}: {waits}")]
    NotReady {
        /// The status of the answer.
        status: StatusCode,
        /// The gates that are closed.
        waits: String,
    },
}

/// Whether the process that serves this URL (`http://…/readyz`) is ready.
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
    // A longer text is not ours.
    let text = to_bytes(Body::new(answer.into_body()), LONGEST).await.unwrap_or_default();
    let waits = String::from_utf8_lossy(&text).split_whitespace().collect::<Vec<_>>().join(", ");
    Err(ProbeError::NotReady { status, waits })
}
