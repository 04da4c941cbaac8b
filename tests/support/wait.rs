//! Waiting for a condition, with a deadline. Nothing here relies on a fixed sleep.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};

/// Default deadline. Generous, because the machine may be busy; only a failing test waits this long.
pub const DEADLINE: Duration = Duration::from_mins(1);
/// Pause between the first checks.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
/// Longest pause between two checks.
const LONGEST_PAUSE: Duration = Duration::from_millis(300);
/// A pause is this part of the time since the first check. A check costs the API server as much as a write, so a long wait has few of them.
const PART: u32 = 6;

/// Calls `look` until it succeeds, and returns its result. Panics with its last error at the deadline.
pub async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Result<T, String>) -> T {
    within(DEADLINE, what, look).await
}

/// The same with another deadline, for behaviour that is slow by design.
pub async fn within<T>(limit: Duration, what: &str, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match look().await {
            Ok(found) => return found,
            Err(why) if began.elapsed() > limit => panic!("{what}: not within {limit:?}; at last: {why}"),
            Err(_) => sleep((began.elapsed() / PART).clamp(FIRST_PAUSE, LONGEST_PAUSE)).await,
        }
    }
}

/// Returns the permit that tests hold while they load the machine, so that only two of them do at a time. A test asks for it before
/// anything else, so that it does not take the [turn](super::turn) of another test while it waits.
pub async fn heavy() -> SemaphorePermit<'static> {
    static HEAVY: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(2));
    HEAVY.acquire().await.expect("the semaphore is never closed")
}
