//! How a value is written: as it is, in single quotes or in double quotes.

/// The quotes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Without quotes.
    Plain,
    /// In `'`.
    Single,
    /// In `"`.
    Double,
}

impl Style {
    /// Returns the style of a value as it is written in a file.
    pub(super) fn of(written: &str) -> Self {
        match written.bytes().next() {
            Some(b'\'') => Self::Single,
            Some(b'"') => Self::Double,
            _ => Self::Plain,
        }
    }

    /// Writes a value, which has no control character. Keeps the quotes. A value that needs quotes and has none gets double quotes.
    pub(super) fn write(self, value: &str) -> String {
        match self {
            Self::Single => format!("'{}'", value.replace('\'', "''")),
            Self::Plain if !needs_quotes(value) => value.to_owned(),
            Self::Plain | Self::Double => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
        }
    }
}

/// Whether a value could be read as something else than a text without quotes. The answer is `true` if any version of YAML, or any common
/// parser, could read it as another type. So only a few characters are allowed without quotes.
pub(super) fn needs_quotes(value: &str) -> bool {
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-' | b'/' | b'@' | b'+' | b':');
    let starts_plain = value.bytes().next().is_some_and(|c| c.is_ascii_alphanumeric() || c == b'_');
    !starts_plain
        || !value.bytes().all(is_plain)
        || value.ends_with(':')
        || is_word(value)
        || is_number(value)
        || is_date(value)
}

/// Whether a value is a word for null, a boolean or a number (<https://yaml.org/type/bool.html>).
fn is_word(value: &str) -> bool {
    let words = ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "t", "f", "nan", "inf", "infinity"];
    words.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Whether a value is a number: decimal, with another base, with an exponent, or with the base 60 of YAML 1.1, as `190:20:30`.
fn is_number(value: &str) -> bool {
    let digits = value.replace('_', "").to_ascii_lowercase();
    let has_base = ["0x", "0o", "0b"].iter().any(|base| digits.starts_with(base));
    let is_sexagesimal = digits.contains(':') && digits.bytes().all(|c| c.is_ascii_digit() || matches!(c, b':' | b'.'));
    digits.is_empty() || has_base || is_sexagesimal || digits.parse::<f64>().is_ok()
}

/// Whether a value starts like a date, as in `2026-01-31` (<https://yaml.org/type/timestamp.html>).
fn is_date(value: &str) -> bool {
    let mut parts = value.splitn(3, '-');
    let mut digits = || parts.next().is_some_and(|part| part.bytes().next().is_some_and(|c| c.is_ascii_digit()));
    value.as_bytes().get(..4).is_some_and(|year| year.iter().all(u8::is_ascii_digit)) && digits() && digits() && digits()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_value_gets_quotes_only_if_it_needs_them() {
        for value in [
            "6.5.1",
            "1.22.0-rc.1",
            "v1",
            "main",
            "web:1.2.0",
            "ghcr.io/acme/web:1.2.0",
            "localhost:5000/web@sha256:ab",
            "1.2.3+build",
            "9c1e1fd3aa",
            "a/b",
            "main@sha1:9c1e",
            "2026.01.31",
            "_a",
            "0.1.0",
            "12-a",
            "nope",
            "1a",
        ] {
            assert_eq!(Style::Plain.write(value), value);
        }
        for value in [
            "",
            "1",
            "1.10",
            "1e3",
            "12e03",
            "1_000",
            "0x1f",
            "0o7",
            "0b1",
            "0777",
            "5.",
            "+1",
            "-1",
            ".5",
            "190:20",
            "1:30.5",
            "null",
            "NULL",
            "True",
            "no",
            "On",
            "y",
            "N",
            "nan",
            "Inf",
            "infinity",
            "2026-01-31",
            "2026-01-31T10:00:00Z",
            "a:",
            "*x",
            "&x",
            "!!python",
            "-->",
            "- a",
            "a b",
            "a#b",
            "{a}",
            "[a]",
            "'",
            "@x",
            "%x",
            "=",
            "<<",
            "~",
            "ü",
            "\\",
            "_",
            "99999999999999999999e1",
        ] {
            let escaped = value.replace('\\', "\\\\");
            assert_eq!(Style::Plain.write(value), format!("\"{escaped}\""));
        }
    }

    #[test]
    fn quotes_are_kept() {
        for (written, value, expected) in [
            ("'6.5.0'", "6.5.1", "'6.5.1'"),
            ("\"6.5.0\"", "6.5.1", "\"6.5.1\""),
            ("6.5.0", "6.5.1", "6.5.1"),
            ("''", "it's", "'it''s'"),
            ("\"\"", "a\"\\b", "\"a\\\"\\\\b\""),
            ("1.9", "1.10", "\"1.10\""),
        ] {
            assert_eq!(Style::of(written).write(value), expected, "{written}");
        }
    }

    proptest! {
        #[test]
        fn any_value_is_read_as_the_same_text(value in "\\PC{0,40}|[0-9a-fxoEe.:_+-]{1,12}") {
            for style in [Style::Plain, Style::Single, Style::Double] {
                let text = format!("a: {} # b\nc: d\n", style.write(&value));
                let read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
                prop_assert_eq!(read, serde_json::json!({"a": value, "c": "d"}), "{}", text);
            }
        }
    }
}
