//! Waiting for something to be so, with a deadline. Nothing here sleeps in the hope that it will be enough.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};

/// Generous, for the machine may be busy; only a failing test waits so long.
pub const DEADLINE: Duration = Duration::from_mins(1);
/// Between the first two looks. What takes longer is looked at less often: a look costs the API server as much as a write.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
/// Between two looks at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Looks again and again until `look` finds it, and gives what it found. What it said last is part of the panic.
pub async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Result<T, String>) -> T {
    within(DEADLINE, what, look).await
}

/// The same with another deadline, for what takes its time by promise.
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

/// Held by tests that load the machine, so that no two of them do at once.
pub async fn heavy() -> SemaphorePermit<'static> {
    static HEAVY: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(1));
    HEAVY.acquire().await.expect("the semaphore is never closed")
}
