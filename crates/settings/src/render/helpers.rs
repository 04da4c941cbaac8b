//! The helpers: functions that a template can call in a tag.
//!
//! A helper computes one value from its arguments, without side effects. If it cannot compute a value, it returns the reason, and never an
//! invented value. The examples below are those of `docs/templates.md`, which a test runs.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::RangeInclusive;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::MAX_BODY;
use super::escape::context::Escape;
use super::escape::markup::Markup;
use super::lang::commits::lacking;
use relaybook_api::Time;
use relaybook_api::values::commit::{commit, find_commit};
use relaybook_api::values::revision::with_short_hashes;

/// Maximum length of a date format in bytes. The result can be much longer, because each directive can be padded.
const MAX_DATE_FORMAT: usize = 128;

/// Number of digits of a short hash.
const DIGITS: usize = 7;

/// Maximum number of arguments of a helper [call](Function::call).
pub(super) const MOST_ARGS: usize = 3;

/// A helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    /// `(and a b …)`: whether all arguments are true: `{{#if (and drifted coalesced)}}…{{/if}}`.
    And,
    /// `(or a b …)`: whether at least one argument is true: `{{#if (or drifted coalesced)}}…{{/if}}`.
    Or,
    /// `(not a)`: whether a is false: `{{not drifted}}` → `true`.
    Not,
    /// `(eq a b)`: whether both are equal: `{{eq type "Deployed"}}` → `true`.
    Eq,
    /// `(contains a b)`: whether text a contains text b: `{{contains "a-canary" "canary"}}` → `true`.
    Contains,
    /// `(startsWith a b)`: whether text a starts with text b.
    StartsWith,
    /// `(endsWith a b)`: whether text a ends with text b.
    EndsWith,
    /// `(lt a b)`: whether number a is less than number b: `{{lt superseded 3}}` → `true`.
    Lt,
    /// `(gt a b)`: whether number a is greater than number b.
    Gt,
    /// `trim a`: a without white space at its start and its end.
    Trim,
    /// `singleLine a`: a with a space instead of each control character.
    SingleLine,
    /// `default a b`: a, or b if a is missing or empty: `{{default pipeline.labels.team "nobody"}}` → `nobody`.
    Default,
    /// `lookup map name`: the label or annotation with a computed name: `{{default (lookup pipeline.labels environment) "-"}}`.
    Lookup,
    /// `json a`: a as JSON: `{{json drifted}}` → `false`.
    Json,
    /// `truncate a n`: a, cut to n characters: `{{truncate "abcdef" 4}}` → `abc…`. A text that is cut ends with `…`, or with the third
    /// argument if there is one.
    Truncate,
    /// `upper a`: a in upper case: `{{upper environment}}` → `PROD`.
    Upper,
    /// `lower a`: a in lower case: `{{lower status}}` → `current`.
    Lower,
    /// `replace a from to`: a with every `from` replaced by `to`: `{{replace target.name "/" "-"}}` → `prod-in-cluster-podinfo`.
    Replace,
    /// `date a format`: a time in UTC, in a format of `strftime`: `{{date time "%Y-%m-%d"}}` → `2025-11-21`. The default format is RFC
    /// 3339.
    Date,
    /// `commit a`: the full commit hash in a revision such as `main@sha1:…`: `{{commit "main@sha1:5f3d…"}}` → `5f3d…`.
    Commit,
    /// `mrkdwn a n`: a, escaped for Slack's markup and cut to n characters: `{{mrkdwn "<!here>"}}` → `&lt;!here&gt;`.
    Mrkdwn,
    /// `markdown a n`: a, escaped for Markdown and cut to n characters: `{{markdown "*a*"}}` → `\*a\*`.
    Markdown,
    /// `html a n`: a, escaped for HTML and cut to n characters: `{{html "<b>"}}` → `&lt;b&gt;`.
    Html,
    /// `urlencode a`: a, percent-encoded for a URL within a text: `{{urlencode "a b&c"}}` → `a%20b%26c`.
    Urlencode,
    /// `bmp a`: a with each character above U+FFFF, such as an emoji, replaced by U+FFFD. Some receivers reject these characters.
    Bmp,
    /// `sha256 a`: the SHA-256 hash of a, as 64 hexadecimal digits. It is a key for a name that is too long to be a key itself.
    Sha256,
    /// `shorten a n`: a, or if it has more than n characters, its first ones with the SHA-256 hash of the whole text. So different texts stay
    /// different.
    Shorten,
    /// `unix a`: a time as a number of seconds since 1970: `{{unix time}}` → `1763711234`.
    Unix,
    /// `unixMilli a`: a time as a number of milliseconds since 1970: `{{unixMilli time}}` → `1763711234567`.
    UnixMilli,
    /// `short a`: the first seven digits of the commit hash in a: `{{short revision}}` → `5f3d2c1`. Without a commit, each digest in a is cut
    /// to seven digits, and the rest of a stays: `{{short "10.12.345"}}` → `10.12.345`.
    Short,
}

/// Why a helper cannot use its arguments. The text does not contain their values. In a message it follows the name of the helper.
pub(super) type Problem = Cow<'static, str>;

impl Function {
    const ALL: [Self; 30] = [
        Self::And,
        Self::Or,
        Self::Not,
        Self::Eq,
        Self::Contains,
        Self::StartsWith,
        Self::EndsWith,
        Self::Lt,
        Self::Gt,
        Self::Trim,
        Self::SingleLine,
        Self::Default,
        Self::Lookup,
        Self::Json,
        Self::Truncate,
        Self::Upper,
        Self::Lower,
        Self::Replace,
        Self::Date,
        Self::Commit,
        Self::Short,
        Self::Mrkdwn,
        Self::Markdown,
        Self::Html,
        Self::Urlencode,
        Self::Bmp,
        Self::Sha256,
        Self::Shorten,
        Self::Unix,
        Self::UnixMilli,
    ];

    /// Returns the helper with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|f| f.name() == name)
    }

    /// Returns the names of all helpers.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.into_iter().map(Self::name)
    }

    /// Returns the name of the helper.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::And => "and",
            Self::Or => "or",
            Self::Not => "not",
            Self::Eq => "eq",
            Self::Contains => "contains",
            Self::StartsWith => "startsWith",
            Self::EndsWith => "endsWith",
            Self::Lt => "lt",
            Self::Gt => "gt",
            Self::Trim => "trim",
            Self::SingleLine => "singleLine",
            Self::Default => "default",
            Self::Lookup => "lookup",
            Self::Json => "json",
            Self::Truncate => "truncate",
            Self::Upper => "upper",
            Self::Lower => "lower",
            Self::Replace => "replace",
            Self::Date => "date",
            Self::Commit => "commit",
            Self::Short => "short",
            Self::Mrkdwn => "mrkdwn",
            Self::Markdown => "markdown",
            Self::Html => "html",
            Self::Urlencode => "urlencode",
            Self::Bmp => "bmp",
            Self::Sha256 => "sha256",
            Self::Shorten => "shorten",
            Self::Unix => "unix",
            Self::UnixMilli => "unixMilli",
        }
    }

    /// Returns the allowed numbers of arguments.
    pub(super) const fn arity(self) -> RangeInclusive<usize> {
        match self {
            Self::And | Self::Or => 2..=16,
            Self::Not
            | Self::Json
            | Self::Upper
            | Self::Lower
            | Self::Trim
            | Self::SingleLine
            | Self::Commit
            | Self::Short
            | Self::Urlencode
            | Self::Bmp
            | Self::Sha256
            | Self::Unix
            | Self::UnixMilli => 1..=1,
            Self::Eq
            | Self::Contains
            | Self::StartsWith
            | Self::EndsWith
            | Self::Lt
            | Self::Gt
            | Self::Default
            | Self::Lookup
            | Self::Shorten => 2..=2,
            Self::Truncate => 2..=3,
            Self::Replace => 3..=3,
            Self::Date | Self::Mrkdwn | Self::Markdown | Self::Html => 1..=2,
        }
    }

    /// Returns the result for these arguments. [`arity`](Self::arity) defines their number. The evaluator handles `And`, `Or`, `Default`
    /// and `Lookup`, because they can skip arguments or have no result.
    pub(super) fn call(self, args: &[Cow<'_, Value>]) -> Result<Value, Problem> {
        let arg = |n: usize| args.get(n).map_or(&Value::Null, AsRef::as_ref);
        match self {
            Self::Not => Ok(Value::Bool(!is_true(arg(0)))),
            Self::Eq => Ok(Value::Bool(arg(0) == arg(1))),
            Self::Contains => Ok(Value::Bool(text(arg(0)).contains(&*text(arg(1))))),
            Self::StartsWith => Ok(Value::Bool(text(arg(0)).starts_with(&*text(arg(1))))),
            Self::EndsWith => Ok(Value::Bool(text(arg(0)).ends_with(&*text(arg(1))))),
            Self::Lt => compared(arg(0), arg(1)).map(|order| Value::Bool(order.is_lt())),
            Self::Gt => compared(arg(0), arg(1)).map(|order| Value::Bool(order.is_gt())),
            Self::Trim => Ok(Value::String(text(arg(0)).trim().to_owned())),
            Self::SingleLine => Ok(Value::String(text(arg(0)).replace(is_break, " "))),
            Self::Json => Ok(Value::String(arg(0).to_string())),
            Self::Truncate => truncate(&text(arg(0)), arg(1), args.get(2).map(|a| text(a)).as_deref()).map(Value::String),
            Self::Upper => Ok(Value::String(text(arg(0)).to_uppercase())),
            Self::Lower => Ok(Value::String(text(arg(0)).to_lowercase())),
            Self::Replace => replace(&text(arg(0)), &text(arg(1)), &text(arg(2))).map(Value::String),
            Self::Date => date(&text(arg(0)), args.get(1).map(|a| text(a)).as_deref()).map(Value::String),
            Self::Commit => match find_commit(&text(arg(0))) {
                Ok(hash) => Ok(Value::String(hash.to_owned())),
                Err(why) => Err(lacking(why).into()),
            },
            Self::Short => Ok(Value::String(short(&text(arg(0))))),
            Self::Mrkdwn => marked(Markup::Mrkdwn, &text(arg(0)), args.get(1).map(AsRef::as_ref)),
            Self::Markdown => marked(Markup::Markdown, &text(arg(0)), args.get(1).map(AsRef::as_ref)),
            Self::Html => marked(Markup::Html, &text(arg(0)), args.get(1).map(AsRef::as_ref)),
            Self::Urlencode => match Escape::Percent.apply(&text(arg(0))) {
                Ok(encoded) => Ok(Value::String(encoded.into_owned())),
                Err(problem) => Err(problem.into()),
            },
            Self::Bmp => Ok(Value::String(text(arg(0)).replace(|c| c > '\u{ffff}', "\u{fffd}"))),
            Self::Sha256 => Ok(Value::String(hex::encode(Sha256::digest(text(arg(0)).as_bytes())))),
            Self::Shorten => shorten(&text(arg(0)), arg(1)).map(Value::String),
            Self::Unix => instant(&text(arg(0))).map(|time| time.as_second().into()),
            Self::UnixMilli => instant(&text(arg(0))).map(|time| time.as_millisecond().into()),
            Self::And | Self::Or | Self::Default | Self::Lookup => Err("cannot be called here".into()),
        }
    }
}

/// Converts a value to text.
pub(super) fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => text.into(),
        Value::Null => "".into(),
        other => other.to_string().into(),
    }
}

/// Whether a value counts as true: it is not `false`, zero, null or empty.
pub(super) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(s) => !s.is_empty(),
        Value::Array(a) => !a.is_empty(),
        Value::Object(o) => !o.is_empty(),
    }
}

fn truncate(text: &str, length: &Value, mark: Option<&str>) -> Result<String, Problem> {
    let mark = mark.unwrap_or("…");
    let length = length.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
    let Some((length, kept)) = length.and_then(|n| Some((n, n.checked_sub(mark.chars().count())?))) else {
        return Err("requires a positive length with room for the ending, as in (truncate message 100)".into());
    };
    if text.char_indices().nth(length).is_none() {
        return Ok(text.to_owned());
    }
    Ok(text.chars().take(kept).chain(mark.chars()).collect())
}

/// Number of characters of a hash, and of the slash before it.
const HASHED: usize = 65;
/// Minimum length of a shortened text. Fewer digits of a hash do not distinguish texts.
const SHORTEST: usize = 16;

fn shorten(text: &str, length: &Value) -> Result<String, Problem> {
    let length = length.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n >= SHORTEST);
    let length = length.ok_or("requires a length of at least 16, as in (shorten context 255)")?;
    if text.char_indices().nth(length).is_none() {
        return Ok(text.to_owned());
    }
    let hash = hex::encode(Sha256::digest(text.as_bytes()));
    Ok(match length.checked_sub(HASHED) {
        Some(kept) if kept > 0 => format!("{}/{hash}", text.chars().take(kept).collect::<String>()),
        _ => hash.chars().take(length).collect(),
    })
}

fn replace(text: &str, from: &str, to: &str) -> Result<String, Problem> {
    if from.is_empty() {
        return Err("cannot replace an empty text".into());
    }
    // The length is checked before the text is created, because replacements can make a text many times longer.
    let length = text.matches(from).count().saturating_mul(to.len()).saturating_add(text.len());
    if length > MAX_BODY {
        return Err("would make the text too long".into());
    }
    Ok(text.replace(from, to))
}

/// Escapes a text for a markup. The result has at most `length` characters.
fn marked(markup: Markup, text: &str, length: Option<&Value>) -> Result<Value, Problem> {
    let most = match length.map(|length| length.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0)) {
        None => usize::MAX,
        Some(Some(most)) => most,
        Some(None) => return Err("requires a length of at least 1, as in (markdown message 100)".into()),
    };
    Ok(Value::String(markup.escape(text, most)))
}

/// Whether a character ends a line, or is invisible.
fn is_break(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Compares two numbers. A text that is a number counts, because labels and parameters are texts.
fn compared(one: &Value, other: &Value) -> Result<Ordering, Problem> {
    let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.trim().parse::<f64>().ok());
    let order = number(one).zip(number(other)).and_then(|(one, other)| one.partial_cmp(&other));
    order.ok_or_else(|| "requires two numbers, as in (lt superseded 3)".into())
}

fn instant(time: &str) -> Result<Time, Problem> {
    time.parse::<Time>().map_err(|_| "requires a time, as in (date time)".into())
}

fn date(time: &str, format: Option<&str>) -> Result<String, Problem> {
    let time = instant(time)?;
    match format {
        None => Ok(time.to_string()),
        Some(format) if format.len() > MAX_DATE_FORMAT => {
            Err(format!("requires a format of at most {MAX_DATE_FORMAT} bytes").into())
        }
        Some(format) => jiff::fmt::strtime::format(format, time)
            .map_err(|_| "does not support this format; use the directives of strftime, as in \"%Y-%m-%d\"".into()),
    }
}

/// Returns the first digits of the commit hash, or the text with short digests. A version is never cut.
fn short(text: &str) -> String {
    // Of several images or sources, one alone would hide the others.
    match commit(text).filter(|_| !text.contains(',')) {
        Some(hash) => with_short_hashes(hash, DIGITS),
        None => with_short_hashes(text, DIGITS),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn call(function: Function, args: &[Value]) -> Result<Value, Problem> {
        function.call(&args.iter().map(Cow::Borrowed).collect::<Vec<_>>())
    }

    #[test]
    fn each_helper_returns_its_documented_result() {
        let sha1 = "5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c";
        for (function, args, expected) in [
            (Function::Not, json!([""]), json!(true)),
            (Function::Eq, json!([1, 1]), json!(true)),
            (Function::Eq, json!(["1", 1]), json!(false)),
            (Function::Contains, json!(["a-canary-b", "canary"]), json!(true)),
            (Function::Contains, json!([12, "2"]), json!(true)),
            (Function::StartsWith, json!(["prod/a", "prod/"]), json!(true)),
            (Function::StartsWith, json!(["a/prod/", "prod/"]), json!(false)),
            (Function::EndsWith, json!(["a-canary", "canary"]), json!(true)),
            (Function::Lt, json!([2, 10]), json!(true)),
            (Function::Lt, json!(["2", " 10"]), json!(true)),
            (Function::Lt, json!([2, 2]), json!(false)),
            (Function::Gt, json!([2.5, "2"]), json!(true)),
            (Function::Trim, json!([" a b\n"]), json!("a b")),
            (Function::SingleLine, json!(["a\r\n/b\u{2028}c\u{85}d  e"]), json!("a  /b c d  e")),
            (Function::Json, json!(["a\"b\n"]), json!(r#""a\"b\n""#)),
            (Function::Json, json!([{"b": 1, "a": [true]}]), json!(r#"{"a":[true],"b":1}"#)),
            (Function::Truncate, json!(["äöü", 3]), json!("äöü")),
            (Function::Truncate, json!(["äöüß", 3]), json!("äö…")),
            (Function::Truncate, json!(["abcdef", 4, ".."]), json!("ab..")),
            (Function::Truncate, json!(["abc", 2, ""]), json!("ab")),
            (Function::Upper, json!(["straße"]), json!("STRASSE")),
            (Function::Lower, json!([true]), json!("true")),
            (Function::Replace, json!(["a/b/c", "/", ""]), json!("abc")),
            (Function::Date, json!(["2025-11-21T07:47:14.567Z"]), json!("2025-11-21T07:47:14.567Z")),
            (Function::Date, json!(["2025-11-21T07:47:14Z", "%d.%m. %H:%M %:z"]), json!("21.11. 07:47 +00:00")),
            (Function::Commit, json!([format!("main@sha1:{sha1}")]), json!(sha1)),
            (Function::Commit, json!([format!("feature/x/{sha1}")]), json!(sha1)),
            (Function::Commit, json!([format!("sha1:{sha1}")]), json!(sha1)),
            (Function::Commit, json!([sha1]), json!(sha1)),
            (Function::Short, json!([format!("main@sha1:{sha1}")]), json!("5f3d2c1")),
            (Function::Short, json!([sha1]), json!("5f3d2c1")),
            (Function::Short, json!(["6.5.0"]), json!("6.5.0")),
            (Function::Short, json!(["10.12.345"]), json!("10.12.345")),
            (Function::Short, json!(["v2.0.0-rc.1+build.7"]), json!("v2.0.0-rc.1+build.7")),
            (Function::Short, json!(["20251121074714"]), json!("20251121074714")),
            (Function::Short, json!(["1234567890abcdef"]), json!("1234567890abcdef")),
            (Function::Short, json!(["feature/a-long-name"]), json!("feature/a-long-name")),
            (Function::Short, json!(["äöüßäöüß"]), json!("äöüßäöüß")),
            (Function::Short, json!([format!("sha256:{}", "ab".repeat(32))]), json!("sha256:abababa")),
            (Function::Short, json!([format!("6.5.0@sha256:{}", "ab".repeat(32))]), json!("6.5.0@sha256:abababa")),
            (
                Function::Short,
                json!([format!("10.12.345,sha256:{},{sha1}", "ab".repeat(32))]),
                json!("10.12.345,sha256:abababa,5f3d2c1"),
            ),
            (Function::Mrkdwn, json!(["<!here> & co"]), json!("&lt;!here&gt; &amp; co")),
            (Function::Markdown, json!(["*a* b", 4]), json!("\\*a…")),
            (Function::Html, json!(["<b>", 5]), json!("&lt;…")),
            (Function::Shorten, json!(["ä".repeat(70), 70]), json!("ä".repeat(70))),
            (
                Function::Shorten,
                json!(["ä".repeat(71), 70]),
                json!("äääää/b1b667cf8cc8ecb0bb8ccde316a888a9bcf1956b7b8ab6ee1e73293aa4323a62"),
            ),
            (Function::Shorten, json!(["abcabcabcabcabcab", 16]), json!("63b57b850c4ac037")),
            (Function::Sha256, json!(["abc"]), json!("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")),
            (Function::Unix, json!(["2025-11-21T07:47:14.567Z"]), json!(1_763_711_234)),
            (Function::UnixMilli, json!(["2025-11-21T07:47:14.567Z"]), json!(1_763_711_234_567_i64)),
        ] {
            assert_eq!(call(function, args.as_array().unwrap()), Ok(expected), "{function:?} {args}");
        }
    }

    #[test]
    fn the_maximum_number_of_arguments_is_that_of_the_helpers() {
        let called = Function::ALL.into_iter().filter(|f| !matches!(f, Function::And | Function::Or));
        assert_eq!(called.map(|f| *f.arity().end()).max(), Some(MOST_ARGS));
    }

    #[test]
    fn each_helper_refuses_invalid_arguments() {
        let hex = |n: usize| "a".repeat(n);
        for (function, args, word) in [
            (Function::Truncate, json!(["a", 0]), "length"),
            (Function::Truncate, json!(["a", "x"]), "length"),
            (Function::Truncate, json!(["a", -1]), "length"),
            (Function::Truncate, json!(["a", 2, "..."]), "length"),
            (Function::Html, json!(["a", 0]), "length"),
            (Function::Shorten, json!(["a", 15]), "length"),
            (Function::Shorten, json!(["a", "x"]), "length"),
            (Function::Unix, json!(["now"]), "time"),
            (Function::Replace, json!(["a", "", "b"]), "empty"),
            (Function::Replace, json!(["a".repeat(2000), "a", "b".repeat(2000)]), "too long"),
            (Function::Date, json!(["yesterday"]), "time"),
            (Function::Date, json!(["2025-11-21T07:47:14Z", "%!"]), "format"),
            (Function::Date, json!(["2025-11-21T07:47:14Z", "%Y".repeat(99)]), "128 bytes"),
            (Function::Commit, json!(["6.5.0"]), "no commit"),
            (Function::Commit, json!([""]), "empty text"),
            (Function::Commit, json!([format!("{},{}", hex(40), "b".repeat(40))]), "several commit hashes"),
            (Function::Commit, json!([hex(41)]), "no commit"),
            (Function::Commit, json!([format!("main@sha1:{}", hex(64))]), "no commit"),
            (Function::Commit, json!([format!("main@sha256:{}", hex(40))]), "no commit"),
            (Function::Commit, json!([format!("6.5.0@sha256:{}", hex(64))]), "no commit"),
            (Function::Commit, json!([format!("6.5.0/{}", hex(64))]), "no commit"),
            (Function::Commit, json!([format!("main@sha1:{}\n", hex(40))]), "no commit"),
        ] {
            let problem = call(function, args.as_array().unwrap()).unwrap_err();
            assert!(problem.contains(word), "{function:?} {args}: {problem}");
        }
    }

    #[test]
    fn empty_values_are_false_and_others_are_true() {
        for (value, holds) in [
            (json!(null), false),
            (json!(0), false),
            (json!(-1), true),
            (json!(""), false),
            (json!("false"), true),
            (json!({}), false),
            (json!({"a": ""}), true),
        ] {
            assert_eq!(is_true(&value), holds, "{value}");
        }
    }

    proptest! {
        #[test]
        fn truncate_keeps_to_its_length(text in ".{0,40}", length in 1_u64..50) {
            let cut = truncate(&text, &json!(length), None).unwrap();
            prop_assert!(cut.chars().count() as u64 <= length);
            prop_assert_eq!(cut == text, text.chars().count() as u64 <= length);
        }

        #[test]
        fn shorten_keeps_to_its_length_and_keeps_texts_different(
            one in "[a-c]{0,80}",
            other in "[a-c]{0,80}",
            length in 16_u64..90,
        ) {
            let (short, of_other) = (shorten(&one, &json!(length)).unwrap(), shorten(&other, &json!(length)).unwrap());
            prop_assert!(short.chars().count() as u64 <= length);
            prop_assert_eq!(short == of_other, one == other);
        }

        #[test]
        fn short_and_commit_never_cut_another_text(text in ".{0,60}") {
            prop_assert_eq!(short(&text), text.clone(), "without a whole hash, nothing is cut");
            prop_assert!(commit(&text).is_none_or(|hash| text.contains(hash)));
        }
    }
}
