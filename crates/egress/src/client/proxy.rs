//! The proxy of `--proxy`. This flag is the only way to set one: environment variables are not read.
//!
//! In: the URL that the operator sets, which can contain a password. Out: [`Proxy`], which shows only host and port.

use std::fmt;
use std::str::FromStr;

use http::uri::InvalidUri;
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use rustls::pki_types::ServerName;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::basic;
use crate::addresses::server::server;
use crate::secrets::redact::Hidden;

/// An HTTP proxy through which all requests go. Debug and Display show `HOST:PORT`.
#[derive(Clone)]
pub struct Proxy {
    /// The URL with user name and password.
    url: SecretString,
    host: String,
    shown: String,
    tls: bool,
}

/// Why the URL of a proxy cannot be used. The message never contains parts of the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// The text is not a URL.
    #[error(
        "is not a URL; write http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT with special characters percent-encoded"
    )]
    NotAUrl,
    /// The protocol is not supported, for example SOCKS.
    #[error("must begin with http:// or https://")]
    Scheme,
    /// The URL has more than scheme, host, port and credentials.
    #[error("must have no path, query or fragment")]
    Path,
    /// Basic authentication does not support these credentials.
    #[error("user name and password must be UTF-8 without control characters, the user name without a colon")]
    Credentials,
}

impl FromStr for Proxy {
    type Err = ProxyError;

    fn from_str(text: &str) -> Result<Self, ProxyError> {
        let (url, shown) = server(text, ProxyError::NotAUrl, ProxyError::Scheme)?;
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err(ProxyError::Path);
        }
        let (user, password) = credentials(&url).ok_or(ProxyError::Credentials)?;
        if user.contains(':') || user.chars().chain(password.chars()).any(char::is_control) {
            return Err(ProxyError::Credentials);
        }
        let (host, tls) = (url.host_str().unwrap_or_default().to_owned(), url.scheme() == "https");
        Ok(Self { url: String::from(url).into(), host, shown, tls })
    }
}

impl Proxy {
    /// Returns the host name to resolve.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the name for which the certificate of the proxy must be valid, if the proxy uses TLS.
    pub(crate) fn tls_name(&self) -> Option<ServerName<'static>> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        ServerName::try_from(host.to_owned()).ok().filter(|_| self.tls)
    }

    /// Returns the URL of the proxy without user name and password.
    pub(crate) fn at(&self) -> Result<Uri, InvalidUri> {
        format!("{}://{}/", if self.tls { "https" } else { "http" }, self.shown).parse()
    }

    /// Returns the value of `proxy-authorization`, if the proxy has credentials.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        let (user, password) = credentials(&Url::parse(self.url.expose_secret()).ok()?)?;
        if user.is_empty() && password.is_empty() { None } else { basic(&user, &password) }
    }

    /// Adds the credentials of the proxy to `hidden`, so that they are masked in answers of a receiver or of the proxy itself.
    pub(crate) fn hide(&self, hidden: &mut Hidden) {
        let url = Url::parse(self.url.expose_secret()).ok();
        let Some((user, password)) = url.as_ref().and_then(credentials) else { return };
        for value in [user.as_str(), &password] {
            hidden.add(value);
        }
        hidden.add_basic(&user, &password);
    }
}

/// Returns the decoded user name and password. They are empty if the URL has none. Returns `None` if they are not UTF-8.
fn credentials(url: &Url) -> Option<(String, String)> {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().ok().map(std::borrow::Cow::into_owned);
    Some((decoded(url.username())?, decoded(url.password().unwrap_or_default())?))
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proxy").field(&self.shown).finish()
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::redact::Beginning;

    #[test]
    fn only_http_and_https_urls_without_a_path_are_proxies() {
        for (text, shown) in [
            ("http://proxy.example:3128", "proxy.example:3128"),
            ("http://proxy.example", "proxy.example:80"),
            ("https://me:p%40ss@PROXY.example/", "proxy.example:443"),
            ("http://[::1]:3128", "[::1]:3128"),
        ] {
            assert_eq!(text.parse::<Proxy>().map(|p| p.to_string()).as_deref(), Ok(shown), "{text}");
        }
        for (text, error) in [
            ("", ProxyError::NotAUrl),
            ("proxy.example", ProxyError::NotAUrl),
            ("http://", ProxyError::NotAUrl),
            ("http://me:pa/ss@proxy.example:3128", ProxyError::NotAUrl),
            ("proxy.example:3128", ProxyError::Scheme),
            ("socks5://proxy.example:1080", ProxyError::Scheme),
            ("http://proxy.example/x", ProxyError::Path),
            ("http://proxy.example/?x", ProxyError::Path),
            ("http://proxy.example/#x", ProxyError::Path),
            ("http://m%3ae:pass@proxy.example", ProxyError::Credentials),
            ("http://me:pa%0d%0ass@proxy.example", ProxyError::Credentials),
            ("http://me:pa%ffss@proxy.example", ProxyError::Credentials),
        ] {
            assert_eq!(text.parse::<Proxy>().unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let proxy: Proxy = "https://someone:open%20sesame@proxy.example".parse().unwrap();
        let text = format!("{proxy:?} {proxy}");
        assert!(!text.contains("someone") && !text.contains("sesame"), "{text}");
        let mut hidden = Hidden::default();
        proxy.hide(&mut hidden);
        let bytes = b"someone, open sesame, Basic c29tZW9uZTpvcGVuIHNlc2FtZQ==".to_vec();
        let said = hidden.shown(&Beginning { bytes, cut: false });
        assert_eq!(said, "***, ***, Basic ***");
    }
}
