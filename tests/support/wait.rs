//! Waiting for a condition, with a deadline. Nothing here relies on a fixed sleep.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};

/// Default deadline. Generous, because the machine may be busy; only a failing test waits this long.
pub const DEADLINE: Duration = Duration::from_mins(1);
/// Pause between the first two checks. It grows, because a check costs the API server as much as a write.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
/// Longest pause between two checks.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Calls `look` until it succeeds, and returns its result. Panics with its last error at the deadline.
pub async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Result<T, String>) -> T {
    within(DEADLINE, what, look).await
}

/// The same with another deadline, for behaviour that is slow by design.
pub async fn within<T>(limit: Duration, what: &str, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let (deadline, mut pause) = (Instant::now() + limit, FIRST_PAUSE);
    loop {
        match look().await {
            Ok(found) => return found,
            Err(why) if Instant::now() > deadline => panic!("{what}: not within {limit:?}; at last: {why}"),
            Err(_) => sleep(pause).await,
        }
        pause = (pause * 5 / 4).min(LONGEST_PAUSE);
    }
}

/// Returns the permit that tests hold while they load the machine, so that only one of them does at a time.
pub async fn heavy() -> SemaphorePermit<'static> {
    static HEAVY: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(1));
    HEAVY.acquire().await.expect("the semaphore is never closed")
}
