//! Durations as they are written in all manifests. Pure.

use std::time::Duration;

/// Parses a duration such as `300ms`, `5s` or `1h30m`: whole numbers, each with a unit (`ms`, `s`, `m`, `h`), and nothing else. The
/// schema of a Notification has a pattern for the same format.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let (mut rest, mut sum) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let (millis, length) = match &rest.as_bytes()[digits..] {
            [b'm', b's', ..] => (1, 2),
            [b's', ..] => (1000, 1),
            [b'm', ..] => (60_000, 1),
            [b'h', ..] => (3_600_000, 1),
            _ => return None,
        };
        sum = sum.checked_add(Duration::from_millis(number.checked_mul(millis)?))?;
        rest = &rest[digits + length..];
    }
    Some(sum).filter(|_| !text.is_empty())
}

/// Formats a duration as [`duration`] parses it, in the largest units: `24h`, `1h30m`, `10m`, `300ms`. Fractions of a millisecond are
/// left out.
#[must_use]
pub fn duration_text(duration: Duration) -> String {
    let mut rest = duration.as_millis();
    let mut text = String::new();
    for (unit, millis) in [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
        if rest >= millis {
            text.extend([(rest / millis).to_string().as_str(), unit]);
            rest %= millis;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_text_uses_the_largest_units() {
        for (millis, text) in [
            (0, "0s"),
            (300, "300ms"),
            (5000, "5s"),
            (60_000, "1m"),
            (90_000, "1m30s"),
            (600_000, "10m"),
            (5_400_000, "1h30m"),
            (86_400_000, "24h"),
            (604_800_000, "168h"),
            (3_600_001, "1h1ms"),
        ] {
            let written = duration_text(Duration::from_millis(millis));
            assert_eq!((written.as_str(), duration(&written)), (text, Some(Duration::from_millis(millis))));
        }
        assert_eq!(duration_text(Duration::from_micros(1500)), "1ms");
    }

    #[test]
    fn duration_parses_only_one_format() {
        for (text, millis) in [
            ("300ms", Some(300)),
            ("5s", Some(5000)),
            ("10m", Some(600_000)),
            ("1h30m", Some(5_400_000)),
            ("1m1ms", Some(60_001)),
            ("30m1h", Some(5_400_000)),
            ("05s", Some(5000)),
            ("0s", Some(0)),
            ("", None),
            ("5", None),
            ("s", None),
            ("-5s", None),
            ("+5s", None),
            ("1.5h", None),
            ("1d", None),
            ("5S", None),
            ("5 s", None),
            (" 5s", None),
            ("5s ", None),
            ("PT24H", None),
            ("PT5S", None),
            ("1 hour", None),
            ("5sec", None),
            ("5s ago", None),
            ("1h, 30m", None),
            ("00:05:00", None),
            ("٥s", None),
            ("99999999999999999999s", None),
            ("9999999999999999999h", None),
        ] {
            assert_eq!(duration(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }
}
