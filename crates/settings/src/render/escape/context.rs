//! The context of a value in the output, and how the value is escaped there.
//!
//! The literal text before a value determines its context, so the context is computed once, at compile time. Literal text advances an
//! [`EscapeContext`], and each value gets an [`Escape`] from it. Branches must end in the same context, and a loop in the context in which
//! it started. So the context of the following text does not depend on the data.

use std::borrow::Cow;
use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All characters except the unreserved characters of a URI (RFC 3986, section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A context in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EscapeContext {
    /// Text in which no character has a special meaning.
    Plain,
    /// HTML or XML.
    Markup,
    /// The value of an `application/x-www-form-urlencoded` pair.
    Form,
    /// The value of a header.
    Header,
    /// JSON.
    Json(Json),
    /// A URL.
    Url(Url),
}

/// A context in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Json {
    /// Outside of strings.
    Outside,
    /// In a string.
    String,
    /// After a backslash in a string.
    Backslash,
    /// Number of missing hexadecimal digits of a `\u`.
    Unicode(u8),
}

/// A context in a URL: the part, and the number of missing hexadecimal digits of a `%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) part: Part,
    percent: u8,
}

/// A part of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Scheme, host and port, with the number of slashes so far.
    Origin(u8),
    /// Path.
    Path,
    /// Query.
    Query,
    /// Fragment.
    Fragment,
}

/// How a value is escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// Unchanged.
    None,
    /// Entities of HTML and XML.
    Markup,
    /// Escapes of a JSON string.
    JsonString,
    /// Percent-encoding, space as `+`.
    Form,
    /// Percent-encoding of all characters except unreserved ones.
    Percent,
    /// Unchanged if it consists of visible ASCII characters, spaces and tabs. Other values are rejected.
    Header,
}

impl EscapeContext {
    /// Returns the context in which a body with this content type starts, or `None` if no escaping is known for it.
    pub(crate) fn of_content_type(content_type: &str) -> Option<Self> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match media_type.as_str() {
            "application/json" | "text/json" => Some(Self::Json(Json::Outside)),
            "application/x-www-form-urlencoded" => Some(Self::Form),
            "text/html" | "text/xml" | "application/xml" => Some(Self::Markup),
            "text/plain" | "text/markdown" => Some(Self::Plain),
            other if other.ends_with("+json") => Some(Self::Json(Json::Outside)),
            other if other.ends_with("+xml") => Some(Self::Markup),
            _ => None,
        }
    }

    /// The context in which a URL starts.
    pub(crate) const URL: Self = Self::Url(Url { part: Part::Origin(0), percent: 0 });

    /// The context in which a path starts.
    pub(crate) const PATH: Self = Self::Url(Url { part: Part::Path, percent: 0 });

    /// Advances over literal text. The error describes the problem with the text.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), &'static str> {
        match self {
            Self::Plain | Self::Markup | Self::Form => Ok(()),
            Self::Header if text.chars().all(fits_header) => Ok(()),
            Self::Header => Err("a header's value must be one line of visible ASCII characters"),
            Self::Json(json) => {
                text.chars().for_each(|c| *json = json.next(c));
                Ok(())
            }
            Self::Url(url) => text.chars().try_for_each(|c| {
                *url = url.next(c)?;
                Ok(())
            }),
        }
    }

    /// Returns the escaping of a value in this context. `is_json`: the value is the result of `json`. The error describes the problem and
    /// its correction.
    pub(crate) fn value(self, is_json: bool) -> Result<Escape, &'static str> {
        match self {
            Self::Plain => Ok(Escape::None),
            Self::Markup => Ok(Escape::Markup),
            Self::Form => Ok(Escape::Form),
            Self::Header => Ok(Escape::Header),
            Self::Json(Json::String) => Ok(Escape::JsonString),
            Self::Json(Json::Outside) if is_json => Ok(Escape::None),
            Self::Json(Json::Outside) => {
                Err("a value outside of a JSON string requires the helper `json`, as in {\"drifted\": {{json drifted}} }")
            }
            Self::Json(Json::Backslash | Json::Unicode(_)) => Err(
                "a value must not follow a backslash; Handlebars removes one backslash before a tag, so write three for `\\\\` in JSON",
            ),
            Self::Url(Url { percent: 1.., .. }) => Err("a value must not follow an incomplete %"),
            Self::Url(Url { part: Part::Origin(_), .. }) => {
                Err("scheme, host and port must be literal; templates are allowed only in path and query")
            }
            Self::Url(Url { part: Part::Fragment, .. }) => {
                Err("a fragment is never sent; templates are allowed only in path and query")
            }
            Self::Url(_) => Ok(Escape::Percent),
        }
    }

    /// Checks whether a template can end in this context. The error describes why not.
    pub(crate) fn end(self) -> Result<(), &'static str> {
        match self {
            Self::Json(Json::String | Json::Backslash | Json::Unicode(_)) => {
                Err("a JSON string is not closed at the end of the template")
            }
            Self::Url(Url { percent: 1.., .. }) => Err(BAD_PERCENT),
            _ => Ok(()),
        }
    }

    /// Returns its name for a message.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Plain | Self::Markup | Self::Form | Self::Header => "in the text",
            Self::Json(Json::Outside) => "outside of a JSON string",
            Self::Json(_) => "in a JSON string",
            Self::Url(Url { part: Part::Origin(_), .. }) => "in the host",
            Self::Url(Url { part: Part::Path, .. }) => "in the path",
            Self::Url(Url { part: Part::Query, .. }) => "in the query",
            Self::Url(Url { part: Part::Fragment, .. }) => "in the fragment",
        }
    }
}

impl Json {
    /// Returns the context after one more character. Invalid JSON is detected when the rendered body is parsed.
    fn next(self, c: char) -> Self {
        match (self, c) {
            (Self::Outside, '"') => Self::String,
            (Self::Outside, _) | (Self::String, '"') => Self::Outside,
            (Self::String, '\\') => Self::Backslash,
            (Self::Backslash, 'u') => Self::Unicode(4),
            (Self::Unicode(missing @ 2..), _) => Self::Unicode(missing - 1),
            (Self::String | Self::Backslash | Self::Unicode(_), _) => Self::String,
        }
    }
}

const BAD_PERCENT: &str = "a % in a URL must be followed by two hexadecimal digits";

impl Url {
    /// Returns the context after one more character.
    fn next(self, c: char) -> Result<Self, &'static str> {
        let percent = match (self.percent, c) {
            (0, '%') => 2,
            (0, _) => 0,
            (missing, c) if c.is_ascii_hexdigit() => missing - 1,
            _ => return Err(BAD_PERCENT),
        };
        let part = match (self.part, c) {
            (_, '\\') => return Err("a URL must not contain a backslash"),
            (_, c) if c.is_control() || c.is_whitespace() => {
                return Err("a URL must not contain spaces or line breaks; write %20 for a space");
            }
            (Part::Fragment, _) | (_, '#') => Part::Fragment,
            (Part::Query, _) | (_, '?') => Part::Query,
            (Part::Origin(2), '/') | (Part::Path, _) => Part::Path,
            (Part::Origin(slashes), '/') => Part::Origin(slashes + 1),
            (Part::Origin(slashes), _) => Part::Origin(slashes),
        };
        Ok(Self { part, percent })
    }
}

impl Escape {
    /// Escapes a value. The error describes why the value is not allowed.
    pub(crate) fn apply(self, value: &str) -> Result<Cow<'_, str>, &'static str> {
        match self {
            Self::None => Ok(value.into()),
            Self::Markup => Ok(markup(value)),
            Self::JsonString => Ok(json_string(value)),
            Self::Form => Ok(::url::form_urlencoded::byte_serialize(value.as_bytes()).collect()),
            Self::Percent => Ok(utf8_percent_encode(value, RESERVED).into()),
            Self::Header if value.chars().all(fits_header) => Ok(value.into()),
            Self::Header => Err("contains a line break or another character that is not allowed in a header"),
        }
    }
}

fn fits_header(c: char) -> bool {
    matches!(c, ' '..='~' | '\t')
}

/// Replaces the characters that can end a text or an attribute by entities. A character that XML does not allow becomes U+FFFD.
fn markup(value: &str) -> Cow<'_, str> {
    let is_special = |c: char| {
        matches!(c, '&' | '<' | '>' | '"' | '\'' | '`' | '=' | '\u{fffe}' | '\u{ffff}')
            || (c.is_control() && !matches!(c, '\t' | '\n' | '\r'))
    };
    if !value.contains(is_special) {
        return value.into();
    }
    let mut escaped = String::with_capacity(value.len() + 32);
    for c in value.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '`' => escaped.push_str("&#96;"),
            '=' => escaped.push_str("&#61;"),
            c if is_special(c) => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped.into()
}

/// Escapes a text for a JSON string (RFC 8259, section 7).
fn json_string(value: &str) -> Cow<'_, str> {
    let is_special = |c: char| matches!(c, '"' | '\\') || c.is_control();
    if !value.contains(is_special) {
        return value.into();
    }
    let mut escaped = String::with_capacity(value.len() + 32);
    for c in value.chars() {
        match c {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            c if c.is_control() => {
                // Control characters are below U+00A0, so four digits are sufficient. Writing to a String cannot fail.
                let _ = write!(escaped, "\\u{:04x}", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_type_determines_the_escaping() {
        let json = Some(EscapeContext::Json(Json::Outside));
        for (content_type, place) in [
            ("application/json", json),
            ("Application/JSON; charset=utf-8", json),
            ("application/cloudevents+json", json),
            ("text/html;charset=utf-8", Some(EscapeContext::Markup)),
            ("application/soap+xml", Some(EscapeContext::Markup)),
            ("application/x-www-form-urlencoded", Some(EscapeContext::Form)),
            ("text/plain", Some(EscapeContext::Plain)),
            ("application/yaml", None),
            ("application/x-ndjson", None),
            ("", None),
        ] {
            assert_eq!(EscapeContext::of_content_type(content_type), place, "{content_type}");
        }
    }

    fn after(mut place: EscapeContext, text: &str) -> EscapeContext {
        place.text(text).unwrap();
        place
    }

    #[test]
    fn values_are_escaped_only_inside_of_json_strings() {
        for (text, escape) in [
            (r#"{"a": "#, None),
            (r#"{"a": ""#, Some(Escape::JsonString)),
            (r#"{"a": "b\"c"#, Some(Escape::JsonString)),
            (r#"{"a": "b\\"#, Some(Escape::JsonString)),
            (r#"{"a": "b\\", "#, None),
            (r#"{"a": "\u00e9"#, Some(Escape::JsonString)),
            (r#"{"a": "\u00e"#, None),
            (r#"{"a": "\"#, None),
        ] {
            assert_eq!(after(EscapeContext::Json(Json::Outside), text).value(false).ok(), escape, "{text}");
        }
        assert_eq!(after(EscapeContext::Json(Json::Outside), r#"{"a": "#).value(true), Ok(Escape::None));
        assert_eq!(after(EscapeContext::Json(Json::Outside), r#"{"a": ""#).value(true), Ok(Escape::JsonString));
    }

    #[test]
    fn values_are_allowed_only_in_path_and_query_of_a_url() {
        for (text, fits) in [
            ("https://example.com", false),
            ("https://example.com:8443/", true),
            ("https://example.com/a?b=", true),
            ("https://example.com?b=", true),
            ("https://example.com/a%2", false),
            ("https://example.com/a%2f", true),
            ("https://example.com/a#", false),
            ("https:/x/", false),
        ] {
            assert_eq!(after(EscapeContext::URL, text).value(false).is_ok(), fits, "{text}");
        }
        for text in ["https://a/ b", "https://a\\b", "https://a/\n", "https://a/%zz"] {
            let mut place = EscapeContext::URL;
            assert!(place.text(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn values_are_escaped_for_each_context() {
        for (escape, value, expected) in [
            (Escape::None, "a\n<\"", "a\n<\""),
            (Escape::Markup, "<a b='c'>&\u{1}", "&lt;a b&#61;&#39;c&#39;&gt;&amp;\u{fffd}"),
            (Escape::JsonString, "a \"b\"\n\\\u{1}\u{85}é", "a \\\"b\\\"\\n\\\\\\u0001\\u0085é"),
            (Escape::Form, "a b&c=é", "a+b%26c%3D%C3%A9"),
            (Escape::Percent, "a b/../é?&~", "a%20b%2F..%2F%C3%A9%3F%26~"),
            (Escape::Header, "a b\t~", "a b\t~"),
        ] {
            assert_eq!(escape.apply(value), Ok(expected.into()));
        }
        for value in ["a\r\nb", "a\nb", "é", "\u{7f}", "\0"] {
            assert!(Escape::Header.apply(value).is_err(), "{value:?}");
        }
    }
}
