//! The destination of spans: a collector with OTLP over HTTP, and the headers that it requires.
//!
//! In: the URL and the headers that the operator sets. The headers can be credentials. Out: [`Collector`], which shows only host and port.

use std::fmt;
use std::str::FromStr;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::addresses::server::server;

/// The path for spans in OTLP over HTTP (<https://opentelemetry.io/docs/specs/otlp/#otlphttp-request>).
const PATH: &str = "/v1/traces";

/// A collector of spans. Debug and Display show `HOST:PORT`.
#[derive(Clone)]
pub struct Collector {
    url: Url,
    shown: String,
    headers: Vec<(HeaderName, SecretString)>,
}

/// Why the settings of the collector are invalid. The message never contains their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectorError {
    /// The text is not a URL.
    #[error("is not a URL; write http://HOST:PORT or https://HOST:PORT")]
    NotAUrl,
    /// The protocol is not supported.
    #[error("must begin with http:// or https://; spans are sent by OTLP over HTTP")]
    Scheme,
    /// The URL has credentials, which belong into headers, or a query or fragment, which would be lost.
    #[error("must have no user name, password, query or fragment; put credentials into headers")]
    Excess,
    /// A header is invalid.
    #[error("must be NAME=VALUE,NAME=VALUE, with special characters of values percent-encoded; entry {0} is invalid")]
    Header(usize),
}

impl FromStr for Collector {
    type Err = CollectorError;

    fn from_str(text: &str) -> Result<Self, CollectorError> {
        let (mut url, shown) = server(text, CollectorError::NotAUrl, CollectorError::Scheme)?;
        let has_user = !url.username().is_empty() || url.password().is_some();
        if has_user || url.query().is_some() || url.fragment().is_some() {
            return Err(CollectorError::Excess);
        }
        let base = url.path().trim_end_matches('/').to_owned();
        if base.ends_with(PATH) {
            url.set_path(&base);
        } else {
            url.set_path(&format!("{base}{PATH}"));
        }
        Ok(Self { url, shown, headers: Vec::new() })
    }
}

impl Collector {
    /// Adds these headers, in the format of `OTEL_EXPORTER_OTLP_HEADERS`
    /// (<https://opentelemetry.io/docs/specs/otel/protocol/exporter/#specifying-headers-via-environment-variables>).
    pub fn with_headers(mut self, text: impl Into<SecretString>) -> Result<Self, CollectorError> {
        let text = text.into();
        let pairs = text.expose_secret().split(',').map(str::trim).enumerate();
        for (at, pair) in pairs.filter(|(_, pair)| !pair.is_empty()) {
            let header = header(pair).ok_or(CollectorError::Header(at + 1))?;
            self.headers.push(header);
        }
        Ok(self)
    }

    /// Returns the URL for spans.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the headers of each request.
    pub(crate) fn headers(&self) -> HeaderMap {
        let value = |text: &SecretString| {
            let mut value = HeaderValue::from_str(text.expose_secret()).ok()?;
            value.set_sensitive(true);
            Some(value)
        };
        self.headers.iter().filter_map(|(name, text)| Some((name.clone(), value(text)?))).collect()
    }
}

fn header(pair: &str) -> Option<(HeaderName, SecretString)> {
    let (name, value) = pair.split_once('=')?;
    let name: HeaderName = name.trim().parse().ok()?;
    let value = SecretString::from(percent_decode_str(value.trim()).decode_utf8().ok()?.into_owned());
    HeaderValue::from_str(value.expose_secret()).ok()?;
    Some((name, value))
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Collector").field("at", &self.shown).field("headers", &names).finish_non_exhaustive()
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_collector_is_completed_or_refused() {
        for (text, url, shown) in [
            ("http://collector:4318", "http://collector:4318/v1/traces", "collector:4318"),
            ("https://otlp.example/", "https://otlp.example/v1/traces", "otlp.example:443"),
            ("https://otlp.example/otlp/", "https://otlp.example/otlp/v1/traces", "otlp.example:443"),
            ("https://otlp.example/v1/traces", "https://otlp.example/v1/traces", "otlp.example:443"),
            ("http://[::1]:4318/v1/traces/", "http://[::1]:4318/v1/traces", "[::1]:4318"),
        ] {
            let collector: Collector = text.parse().unwrap();
            assert_eq!((collector.url().as_str(), &*collector.to_string()), (url, shown));
        }
        for (text, error) in [
            ("", CollectorError::NotAUrl),
            ("collector", CollectorError::NotAUrl),
            ("collector:4317", CollectorError::Scheme),
            ("grpc://collector:4317", CollectorError::Scheme),
            ("http://someone@collector", CollectorError::Excess),
            ("http://:sesame@collector", CollectorError::Excess),
            ("http://collector/?key=sesame", CollectorError::Excess),
            ("http://collector/#x", CollectorError::Excess),
        ] {
            assert_eq!(text.parse::<Collector>().unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn headers_are_parsed_by_the_specification_and_never_shown() {
        let with = |text: &str| "http://c:4318".parse::<Collector>().unwrap().with_headers(text);
        let collector = with(" authorization = Bearer%20open%20sesame , x-scope=a=b,").unwrap();
        let headers = collector.headers();
        assert_eq!(headers["authorization"], "Bearer open sesame");
        assert_eq!(headers["x-scope"], "a=b");
        let shown = format!("{collector:?} {collector} {headers:?}");
        assert!(shown.contains("c:4318") && shown.contains("x-scope") && !shown.contains("sesame"), "{shown}");
        assert!(with("").unwrap().headers().is_empty());
        for (text, number) in
            [("sesame", 1), ("a=b,se same=x", 2), ("a=b,,=sesame", 3), ("a=open%0Asesame", 1), ("a=%ff", 1)]
        {
            let error = with(text).unwrap_err();
            assert_eq!(error, CollectorError::Header(number), "{text}");
            assert!(!error.to_string().contains("sesame"));
        }
    }
}
