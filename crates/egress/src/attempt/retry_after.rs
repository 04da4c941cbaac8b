//! How long a receiver requests to wait. Pure.
//!
//! `Retry-After` (RFC 9110, section 10.2.3) contains seconds or an HTTP date. GitHub answers 403 or 429 at a rate limit, and the primary limit has no
//! `Retry-After`: `X-RateLimit-Reset` is the time at which requests are accepted again
//! (<https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api#exceeding-the-rate-limit>).

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use jiff::civil::DateTime;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::tz::TimeZone;

use relaybook_api::Time;

/// Maximum time for which a receiver can delay a lane.
pub const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);

/// From this number on, a reset is a point in time, in seconds since 1970. Below, it is a number of seconds.
const EPOCH: i64 = 1_000_000_000;
/// The wait for a reset that is in the past. The clock of the receiver can be behind.
const PASSED: Duration = Duration::from_secs(1);

/// The two obsolete forms of a date that a recipient must still accept (RFC 9110, section 5.6.7).
const OBSOLETE: [&str; 2] = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];

/// Returns how long to wait after an answer, counted from `now`: by `Retry-After`, or else until the reset of a rate limit of which no request
/// remains.
pub fn requested(status: u16, headers: &HeaderMap, now: Time) -> Option<Duration> {
    let header = |name: &str| headers.get(name)?.to_str().ok();
    let is_exhausted = || [403, 429].contains(&status) && header("x-ratelimit-remaining").map(str::trim) == Some("0");
    let asked = header(RETRY_AFTER.as_str()).and_then(|value| parse(value, now));
    asked.or_else(|| if is_exhausted() { reset(header("x-ratelimit-reset")?, now) } else { None })
}

/// Returns the time until a reset.
fn reset(value: &str, now: Time) -> Option<Duration> {
    let number = value.trim().parse::<i64>().ok().filter(|number| *number >= 0)?;
    let seconds = if number < EPOCH { number } else { number.saturating_sub(now.as_second()) };
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()).clamp(PASSED, MAX_RETRY_AFTER))
}

/// Returns how long to wait at the request of the receiver, counted from `now`, the time of its answer. Returns `None` for a past time and
/// for a value that cannot be parsed: then the schedule decides.
pub fn parse(value: &str, now: Time) -> Option<Duration> {
    let value = value.trim_matches([' ', '\t']);
    let asked = if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // A number that does not fit in the type is still valid, and large.
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        Duration::try_from(date(value)?.duration_since(now)).ok()?
    };
    (!asked.is_zero()).then_some(asked.min(MAX_RETRY_AFTER))
}

fn date(value: &str) -> Option<Time> {
    let obsolete = |form: &&str| DateTime::strptime(form, value).ok()?.to_zoned(TimeZone::UTC).ok();
    DateTimeParser::new()
        .parse_timestamp(value)
        .ok()
        .or_else(|| OBSOLETE.iter().find_map(obsolete).map(|zoned| zoned.timestamp()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT
    const NOW: i64 = 784_111_777;

    fn parsed(value: &str) -> Option<Duration> {
        parse(value, Time::from_second(NOW).unwrap())
    }

    #[test]
    fn seconds_and_dates_are_read_and_other_values_ignored() {
        let seconds = |s| Some(Duration::from_secs(s));
        for (value, expected) in [
            ("3", seconds(3)),
            (" 3\t", seconds(3)),
            ("007", seconds(7)),
            ("3600", seconds(3600)),
            ("3601", seconds(3600)),
            ("2592000", seconds(3600)),
            ("99999999999999999999999999", seconds(3600)),
            ("0", None),
            ("-3", None),
            ("+3", None),
            ("1.5", None),
            ("3s", None),
            ("", None),
            ("soon", None),
            ("Sun, 06 Nov 1994 08:49:40 GMT", seconds(3)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49:36 GMT", None),
            ("Sun, 06 Nov 1994 09:49:36 GMT", seconds(3599)),
            ("Tue, 06 Dec 1994 08:49:37 GMT", seconds(3600)),
            ("Sunday, 06-Nov-94 08:49:40 GMT", seconds(3)),
            ("Sun Nov  6 08:49:40 1994", seconds(3)),
            ("Sun, 31 Nov 1994 08:49:40 GMT", None),
            ("1994-11-06T08:49:40Z", None),
        ] {
            assert_eq!(parsed(value), expected, "{value:?}");
        }
    }

    #[test]
    fn a_rate_limit_delays_until_its_reset() {
        let seconds = |s| Some(Duration::from_secs(s));
        let at = |ahead: i64| (NOW + 400_000_000 + ahead).to_string();
        for (status, headers, expected) in [
            (403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &*at(30))][..], seconds(30)),
            (429, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &at(30))], seconds(30)),
            (403, &[("x-ratelimit-remaining", " 0 "), ("x-ratelimit-reset", "45")], seconds(45)),
            (403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &at(7200))], seconds(3600)),
            (403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "9223372036854775807")], seconds(3600)),
            (403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &at(-5))], seconds(1)),
            (403, &[("retry-after", "60")], seconds(60)),
            (403, &[("retry-after", "60"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &at(30))], seconds(60)),
            (403, &[("retry-after", "soon"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &at(30))], seconds(30)),
            (503, &[("retry-after", "60")], seconds(60)),
            (403, &[("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", &at(30))], None),
            (403, &[("x-ratelimit-reset", &at(30))], None),
            (403, &[("x-ratelimit-remaining", "0")], None),
            (403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "soon")], None),
            (403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "-5")], None),
            (401, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &at(30))], None),
            (500, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &at(30))], None),
            (403, &[], None),
        ] {
            let pairs = headers.iter().map(|(n, v)| (http::HeaderName::from_static(n), v.parse().unwrap()));
            let now = Time::from_second(NOW + 400_000_000).unwrap();
            assert_eq!(requested(status, &pairs.collect(), now), expected, "{status} {headers:?}");
        }
    }

    proptest! {
        #[test]
        fn a_value_never_panics_and_never_exceeds_the_limit(value in "\\PC{0,40}") {
            prop_assert!(parsed(&value).is_none_or(|d| d <= MAX_RETRY_AFTER && !d.is_zero()));
        }

        #[test]
        fn seconds_are_used_unchanged_up_to_the_limit(seconds in 1u64..10_000) {
            prop_assert_eq!(parsed(&seconds.to_string()), Some(Duration::from_secs(seconds.min(3600))));
        }

        #[test]
        fn a_date_delays_by_its_distance(ahead in -5_000i64..5_000) {
            let at = Time::from_second(NOW + ahead).unwrap();
            let value = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&at).unwrap();
            let expected = u64::try_from(ahead).ok().filter(|s| *s > 0).map(|s| Duration::from_secs(s.min(3600)));
            prop_assert_eq!(parsed(&value), expected);
        }
    }
}
