//! Calculations that need long, apart from the tasks.
//!
//! In: a calculation. Out: its result, from a thread for blocking work.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{JoinError, spawn_blocking};

/// Calculates on a thread for blocking work. A runtime with one thread calculates at once: it is that of a test, which must repeat exactly.
///
/// # Errors
/// The calculation has panicked, or the process ends.
pub async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread { Ok(work()) } else { spawn_blocking(work).await }
}
