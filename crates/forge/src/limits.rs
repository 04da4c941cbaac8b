//! Pure: what the headers of an answer say about the rate of requests.

use std::time::Duration;

use http::HeaderMap;
use jiff::fmt::rfc2822::DateTimeParser;

use super::kind::Kind;
use relaybook_api::Time;

/// Maximum time for which a forge can delay requests. GitHub and Bitbucket Cloud count by the hour.
pub const MAX_WAIT: Duration = Duration::from_mins(65);
/// From this number on, a reset is a point in time, in seconds since 1970. Below, it is a number of seconds.
const EPOCH: i64 = 1_000_000_000;

/// When something is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// After this time.
    After(Duration),
    /// At this point in time.
    At(Time),
}

impl When {
    /// Returns the point in time, at most [`MAX_WAIT`] from now. `now` is the time of the answer.
    #[must_use]
    pub fn at(self, now: Time) -> Time {
        let latest = now.saturating_add(MAX_WAIT).unwrap_or(now);
        match self {
            Self::After(wait) => now.saturating_add(wait.min(MAX_WAIT)).unwrap_or(now),
            Self::At(time) => time.clamp(now, latest),
        }
    }
}

/// What an answer says about the rate of requests. Everything is absent if the forge says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Number of requests in the time between two resets.
    pub limit: Option<u32>,
    /// Number of requests in an hour.
    pub per_hour: Option<u32>,
    /// Number of requests that remain until the reset.
    pub remaining: Option<u32>,
    /// When the number of requests starts again.
    pub reset: Option<When>,
    /// When the next request is allowed.
    pub retry: Option<When>,
}

impl Limits {
    /// Reads `Retry-After`, `X-RateLimit-*` and `RateLimit-*`.
    #[must_use]
    pub fn of(kind: Kind, headers: &HeaderMap) -> Self {
        let number = |name: &str| {
            let prefixed =
                headers.get(format!("x-ratelimit-{name}")).or_else(|| headers.get(format!("ratelimit-{name}")))?;
            let digits = prefixed.to_str().ok()?.split([',', ';']).next()?.trim();
            digits.parse::<i64>().ok().filter(|n| *n >= 0)
        };
        let count = |name| number(name).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        // GitLab counts by the minute: https://docs.gitlab.com/administration/settings/user_and_ip_rate_limits/#response-headers
        let windows = if kind == Kind::Gitlab { 60 } else { 1 };
        let limit = count("limit").filter(|limit| *limit > 0);
        Self {
            limit,
            per_hour: limit.map(|limit| limit.saturating_mul(windows)),
            remaining: count("remaining"),
            reset: number("reset").and_then(when),
            retry: headers.get("retry-after").and_then(|value| retry_after(value.to_str().ok()?)),
        }
    }

    /// Whether no request remains.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.remaining == Some(0)
    }
}

fn when(number: i64) -> Option<When> {
    if number >= EPOCH { Time::from_second(number).ok().map(When::At) } else { Some(When::After(seconds(number))) }
}

fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or_default())
}

/// Parses `Retry-After`: seconds, or a date.
fn retry_after(value: &str) -> Option<When> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        return Some(When::After(Duration::from_secs(value.parse().unwrap_or(u64::MAX))));
    }
    DateTimeParser::new().parse_timestamp(value).ok().map(When::At)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn of(kind: Kind, headers: &[(&'static str, &str)]) -> Limits {
        let pairs = headers.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_str(v).unwrap()));
        Limits::of(kind, &pairs.collect())
    }

    #[test]
    fn limits_are_read_from_the_headers_of_each_forge() {
        let at = |s| Some(When::At(Time::from_second(s).unwrap()));
        let after = |s| Some(When::After(Duration::from_secs(s)));
        let none = Limits::default();
        for (kind, headers, expected) in [
            (Kind::Gitea, &[][..], none),
            (
                Kind::Github,
                &[("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1372700873")],
                Limits {
                    limit: Some(5000),
                    per_hour: Some(5000),
                    remaining: Some(0),
                    reset: at(1_372_700_873),
                    retry: None,
                },
            ),
            (
                Kind::Gitlab,
                &[("ratelimit-limit", "60"), ("ratelimit-remaining", "5"), ("ratelimit-reset", "1609844400")],
                Limits { limit: Some(60), per_hour: Some(3600), remaining: Some(5), reset: at(1_609_844_400), retry: None },
            ),
            (
                Kind::Gitea,
                &[("ratelimit-limit", "100, 100;w=60"), ("ratelimit-reset", "30")],
                Limits { limit: Some(100), per_hour: Some(100), reset: after(30), ..none },
            ),
            (Kind::Github, &[("retry-after", "60")], Limits { retry: after(60), ..none }),
            (Kind::Github, &[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], Limits { retry: at(784_111_777), ..none }),
            (Kind::Github, &[("retry-after", "99999999999999999999")], Limits { retry: after(u64::MAX), ..none }),
            (Kind::Github, &[("retry-after", "soon"), ("x-ratelimit-limit", "-1"), ("x-ratelimit-reset", "x")], none),
            (Kind::Github, &[("x-ratelimit-limit", "0"), ("x-ratelimit-reset", "9223372036854775807")], none),
        ] {
            assert_eq!(of(kind, headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn a_wait_is_bounded() {
        let now = Time::from_second(1_700_000_000).unwrap();
        let latest = now + MAX_WAIT;
        for (when, expected) in [
            (When::After(Duration::from_mins(1)), now + Duration::from_mins(1)),
            (When::After(Duration::MAX), latest),
            (When::At(now - Duration::from_hours(1)), now),
            (When::At(Time::MAX), latest),
        ] {
            assert_eq!(when.at(now), expected, "{when:?}");
        }
        assert_eq!(When::After(Duration::MAX).at(Time::MAX), Time::MAX);
    }
}
