//! One call of the API server for a person who waits for a page.

use std::time::Duration;

use crate::trouble::{Trouble, Wanted};

/// Maximum time of a call. A page that says what is missing is better than one that does not come.
const LONGEST: Duration = Duration::from_secs(8);

/// Waits for the answer of a call. `wanted` names it in messages.
pub(crate) async fn call<T>(wanted: &Wanted, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Trouble> {
    in_time(call, |error| Trouble::new(&error, wanted)).await
}

/// Waits for a result of another module that calls the API server.
pub(crate) async fn in_time<T, E>(
    call: impl Future<Output = Result<T, E>>,
    means: impl FnOnce(E) -> Trouble,
) -> Result<T, Trouble> {
    match tokio::time::timeout(LONGEST, call).await {
        Ok(result) => result.map_err(means),
        Err(_) => Err(Trouble::Slow),
    }
}
