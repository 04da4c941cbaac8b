//! Default values, and how durations are parsed.

use std::time::Duration;

use crate::config::problem::Problem;

/// The default timeout of an attempt.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(15);
/// The default timeout of the connection setup.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The field of the URL, for messages.
pub(crate) const URL: &str = "spec.endpoint.url";

/// The field of the rule about answers, for messages.
pub(crate) const SUCCESS: &str = "spec.endpoint.success";

/// Parses a duration such as `15s` or `1h30m`.
pub(crate) fn duration(field: &str, given: Option<&str>, default: Duration) -> Result<Duration, Problem> {
    let Some(given) = given else { return Ok(default) };
    relaybook_api::duration(given)
        .filter(|d| !d.is_zero())
        .ok_or_else(|| Problem::invalid(field, format!("{given:?} is not a duration such as 5s, 10m or 24h")))
}
