//! `Retry-After` (RFC 9110, section 10.2.3): seconds or an HTTP date. Pure.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::tz::TimeZone;

use crate::api::Time;

/// Maximum time for which a receiver can delay a lane.
pub const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);

/// The two obsolete forms of a date that a recipient must still accept (RFC 9110, section 5.6.7).
const OBSOLETE: [&str; 2] = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];

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
    fn values() {
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
