//! Templates of URLs.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::data::parameters::Visibility;
use super::error::{Position, RenderError};
use super::escape::context::EscapeContext;
use super::lang::commits::{needs_commit, needs_source};
use super::lang::compile;
use super::lang::eval::{Output, Program};
use super::lang::reads::{depends_on_forge, reads_test};
use super::{MAX_LINE, Parameters, Values};
use relaybook_api::values::looked_up::LookUps;

/// The compiled template of a URL. Scheme, host and port are literal, so the origin does not depend on data. A value cannot change the
/// origin, and cannot add or remove a path segment or a query parameter.
#[derive(Clone)]
pub struct UrlTemplate(Arc<Inner>);

struct Inner {
    scheme: String,
    host: String,
    origin: String,
    program: Program,
    visibility: Visibility,
}

impl UrlTemplate {
    /// Compiles the template of an http or https URL without user info. Tags are allowed only in path and query.
    pub fn compile(source: &str, parameters: &Parameters) -> Result<Self, RenderError> {
        let authority = authority(source)?;
        let program = compile::compile(source, EscapeContext::URL, parameters)?;
        let prefix = prefix(source, &authority)?;
        let (scheme, host) = (prefix.scheme().to_owned(), prefix.host_str().unwrap_or_default().to_owned());
        Ok(Self(Arc::new(Inner { origin: origin(&prefix), scheme, host, program, visibility: parameters.visibility() })))
    }

    /// Returns the normalised origin as `scheme://host:port`, always with the port.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.0.origin
    }

    /// Returns `http` or `https`.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.0.scheme
    }

    /// Returns the normalised host: in lower case, an international name as ASCII, an IPv6 address in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// Whether rendering fails for every revision that contains no commit.
    #[must_use]
    pub fn needs_commit(&self, parameters: &Parameters) -> bool {
        needs_commit(&self.0.program, parameters)
    }

    /// Returns the parameters with data of the Git repository of a target, or none if the URL itself contains such data.
    /// `None`: it contains no such data.
    #[must_use]
    pub fn needs_source(&self, parameters: &Parameters) -> Option<Vec<String>> {
        needs_source(&self.0.program, parameters)
    }

    /// Whether any branch uses the field `test`, or a parameter that uses it.
    #[must_use]
    pub fn reads_test(&self, parameters: &Parameters) -> bool {
        reads_test(&self.0.program, &parameters.seen_with(self.0.visibility))
    }

    /// Whether it depends on what a forge says. `asked`: what the body asks for.
    #[must_use]
    pub fn depends_on_forge(&self, parameters: &Parameters, asked: LookUps) -> bool {
        depends_on_forge(&self.0.program, &parameters.seen_with(self.0.visibility), asked)
    }

    /// Renders the URL for one transition, with at most [`MAX_LINE`] bytes.
    pub fn render(&self, values: &Values) -> Result<::url::Url, RenderError> {
        let output = self.0.program.run(values, self.0.visibility, MAX_LINE)?;
        self.checked(&output).map_err(|error| error.changeable_if(output.changeable))
    }

    fn checked(&self, output: &Output) -> Result<::url::Url, RenderError> {
        check_parts(output)?;
        let url = ::url::Url::parse(&output.text).map_err(|_| RenderError::UrlValue(UNPARSABLE))?;
        // `parse` percent-encodes literal text that is not ASCII, and each byte becomes three bytes.
        if url.as_str().len() > MAX_LINE {
            return Err(RenderError::OutputTooLong(MAX_LINE));
        }
        if origin(&url) == self.0.origin {
            Ok(url)
        } else {
            Err(RenderError::UrlValue("renders to another host than its template"))
        }
    }
}

/// Returns the origin of a URL template, in the form of [`UrlTemplate::origin`]. Path and query are not checked.
pub fn origin_of(source: &str) -> Result<String, RenderError> {
    prefix(source, &authority(source)?).map(|prefix| origin(&prefix))
}

/// Returns the byte range of the authority of a URL template. It must be literal and without user info.
fn authority(source: &str) -> Result<Range<usize>, RenderError> {
    let start = ["https://", "http://"].iter().find(|scheme| source.starts_with(**scheme)).map(|scheme| scheme.len());
    let start = start.ok_or(RenderError::Url("must begin with https:// or http://"))?;
    let length = source[start..].find(['/', '?', '#', '\\']).unwrap_or(source.len() - start);
    let authority = &source[start..start + length];
    if let Some(tag) = authority.find("{{") {
        let problem = "scheme, host and port must be literal; templates are allowed only in path and query".to_owned();
        return Err(RenderError::EscapeContext { at: Position::of(source, start + tag), problem });
    }
    if authority.contains('@') {
        return Err(RenderError::Url("must not contain user info; put credentials into auth.basic or auth.token"));
    }
    Ok(start..start + length)
}

/// Parses the URL up to the end of its authority.
fn prefix(source: &str, authority: &Range<usize>) -> Result<::url::Url, RenderError> {
    let prefix = parse(&source[..authority.end])?;
    let names_a_host = !authority.is_empty() && prefix.host_str().is_some();
    if names_a_host { Ok(prefix) } else { Err(RenderError::Url("must name a host")) }
}

/// Omits path and query, because they may contain a secret.
impl fmt::Debug for UrlTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UrlTemplate").field(&self.0.origin).finish_non_exhaustive()
    }
}

const UNPARSABLE: &str = "does not parse; check host and port";

fn parse(text: &str) -> Result<::url::Url, RenderError> {
    ::url::Url::parse(text).map_err(|_| RenderError::Url(UNPARSABLE))
}

fn origin(url: &::url::Url) -> String {
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
    format!("{}://{host}:{port}", url.scheme())
}

/// Checks that no value makes a path segment or a query parameter vanish. A parser can drop empty parameters, and drops `..` with the
/// segment before it. Values are percent-encoded, so each separator in the output is literal.
fn check_parts(output: &Output) -> Result<(), RenderError> {
    let text = output.text.split('#').next().unwrap_or_default();
    let authority = text.find("://").map_or(0, |scheme| scheme + 3);
    let path = text[authority..].find(['/', '?']).map_or(text.len(), |length| authority + length);
    let query = text[path..].find('?').map_or(text.len(), |length| path + length);
    let is_dots = |segment: &str| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "" | "." | "..");
    if any_by_value(output, path, query, '/', is_dots) {
        return Err(RenderError::UrlValue(
            "has a path segment that is empty, `.` or `..` because of a value; use `default`",
        ));
    }
    if any_by_value(output, query, text.len(), '&', str::is_empty) {
        return Err(RenderError::UrlValue("has a query parameter that is empty because of a value; use `default`"));
    }
    Ok(())
}

/// Whether `is_such` is true for a part that depends on a value. The parts start after the character at `start` and end at `end`.
fn any_by_value(output: &Output, start: usize, end: usize, separator: char, is_such: impl Fn(&str) -> bool) -> bool {
    let mut first = start + 1;
    output.text.get(first..end).unwrap_or_default().split(separator).any(|part| {
        let last = first + part.len();
        let mark = output.marks.partition_point(|mark| *mark < first);
        let depends = output.marks.get(mark).is_some_and(|mark| *mark <= last);
        first = last + 1;
        depends && is_such(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::Data;
    use relaybook_api::TransitionType;

    fn render(source: &str) -> Result<String, RenderError> {
        UrlTemplate::compile(source, &Parameters::default())?
            .render(&Data::sample(TransitionType::Removed).values())
            .map(String::from)
    }

    #[test]
    fn values_are_encoded_for_path_and_query() {
        for (source, expected) in [
            ("https://example.com", "https://example.com/"),
            (
                "https://example.com/a/{{commit previousRevision}}",
                "https://example.com/a/9c1e1fd35d2e0b7a4a1bd2ae8e0a2b6a0f4f3e21",
            ),
            ("https://example.com/{{target.name}}/x", "https://example.com/prod%2Fin-cluster%2Fpodinfo/x"),
            (
                "https://example.com/?t={{target.name}}&{{type}}=1",
                "https://example.com/?t=prod%2Fin-cluster%2Fpodinfo&Removed=1",
            ),
            (
                "https://example.com?r={{previousRevision}}&e={{reason}}",
                "https://example.com/?r=main%40sha1%3A9c1e1fd35d2e0b7a4a1bd2ae8e0a2b6a0f4f3e21&e=",
            ),
            ("https://example.com/a{{#if drifted}}/b{{/if}}/?c", "https://example.com/a/?c"),
            ("https://example.com/a{{revision}}/", "https://example.com/a/"),
            ("https://example.com//a//{{type}}", "https://example.com//a//Removed"),
        ] {
            assert_eq!(render(source).unwrap(), expected, "{source}");
        }
    }

    #[test]
    fn an_invalid_or_ambiguous_url_is_refused() {
        for (source, word) in [
            ("ftp://example.com/", "https://"),
            ("https://{{environment}}.example.com/", "line 1, column 9"),
            ("https://example.com:{{serial}}/", "literal"),
            ("https://example.com{{type}}", "literal"),
            ("https://user:secret@example.com/", "user info"),
            ("https://example.com\\@example.org/", "backslash"),
            ("https://example.com/#{{type}}", "fragment"),
            ("https://", "host"),
            ("https:///path", "host"),
            ("https://example.com:99999/", "port"),
            ("https://exa mple.com/", "spaces"),
            ("https://example.com/%2{{type}}", "%"),
            ("https://example.com/a?b=%", "%"),
            ("https://example.com/{{#if drifted}}?{{/if}}a={{type}}", "branch"),
            ("https://example.com/{{revision}}", "segment"),
            ("https://example.com/a/{{revision}}/b", "segment"),
            ("https://example.com/.{{replace type \"Removed\" \".\"}}", "segment"),
            ("https://example.com/%2E{{replace type \"Removed\" \".\"}}/b", "segment"),
            ("https://example.com/{{#if drifted}}a{{/if}}/b", "segment"),
            ("https://example.com/?{{revision}}", "parameter"),
            ("https://example.com/?a&{{revision}}&b", "parameter"),
            ("https://example.com/{{pipeline.labels.team}}", "default pipeline.labels.team"),
        ] {
            let message = render(source).unwrap_err().to_string();
            assert!(message.contains(word) && !message.contains("secret"), "{source}: {message}");
        }
    }

    #[test]
    fn the_origin_is_normalised() {
        for (source, origin, host) in [
            ("https://Example.COM/x", "https://example.com:443", "example.com"),
            ("http://example.com:80", "http://example.com:80", "example.com"),
            ("https://[::1]:8443/?a={{type}}", "https://[::1]:8443", "[::1]"),
            ("http://0x7f.1/", "http://127.0.0.1:80", "127.0.0.1"),
            ("https://bücher.example/", "https://xn--bcher-kva.example:443", "xn--bcher-kva.example"),
        ] {
            let url = UrlTemplate::compile(source, &Parameters::default()).unwrap();
            assert_eq!((url.origin(), url.host()), (origin, host));
            assert!(origin.starts_with(url.scheme()));
        }
    }

    #[test]
    fn a_long_url_is_refused() {
        for path in ["a".repeat(MAX_LINE), "é".repeat(MAX_LINE / 4)] {
            let source = format!("https://example.com/{path}");
            assert!(matches!(render(&source), Err(RenderError::OutputTooLong(MAX_LINE))));
        }
    }

    #[test]
    fn the_debug_format_shows_only_the_origin() {
        let url = UrlTemplate::compile("https://example.com/secret?token=secret", &Parameters::default()).unwrap();
        assert_eq!(format!("{url:?}"), "UrlTemplate(\"https://example.com:443\", ..)");
    }
}
