//! The addresses of the audit page: the path of each screen, and the URL under which users reach the page. Pure.

use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

/// What is encoded in a part of a path or of a query. The other characters have no meaning there.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns a text as a part of a path or of a query.
#[must_use]
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Returns the path of the screen of a pipeline.
#[must_use]
pub fn pipeline(namespace: &str, name: &str) -> String {
    format!("/pipelines/{}/{}", encoded(namespace), encoded(name))
}

/// Returns the path of the screen of a notification.
#[must_use]
pub fn notification(namespace: &str, name: &str) -> String {
    format!("/notifications/{}/{}", encoded(namespace), encoded(name))
}

/// Returns the path of the screen of a delivery.
#[must_use]
pub fn delivery(namespace: &str, name: &str) -> String {
    format!("/deliveries/{}/{}", encoded(namespace), encoded(name))
}

/// Returns the path of the search for a revision.
#[must_use]
pub fn search(revision: &str) -> String {
    format!("/search?q={}", encoded(revision))
}

/// The URL of the audit page, as users write it in a browser: scheme, host and port. It is shown without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageUrl(Url);

/// Why a text is not the URL of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageUrlError {
    /// It is not a URL with a host.
    #[error("must be a URL such as https://relaybook.example.com")]
    NoUrl,
    /// It has a part that the URL of a page cannot have.
    #[error("must have no path, query, fragment, user or password, such as https://relaybook.example.com")]
    TooMuch,
    /// It is not HTTPS, and not for this machine.
    #[error("must begin with https://, because tokens are sent to it; only localhost can have http://")]
    Insecure,
}

impl FromStr for PageUrl {
    type Err = PageUrlError;

    fn from_str(text: &str) -> Result<Self, PageUrlError> {
        let url = Url::parse(text).map_err(|_| PageUrlError::NoUrl)?;
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(PageUrlError::NoUrl)?;
        match url.scheme() {
            "https" => {}
            "http" if is_loopback(host) => {}
            "http" => return Err(PageUrlError::Insecure),
            _ => return Err(PageUrlError::NoUrl),
        }
        let has_more = !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some();
        if has_more || !url.username().is_empty() || url.password().is_some() {
            return Err(PageUrlError::TooMuch);
        }
        Ok(Self(url))
    }
}

impl PageUrl {
    /// Returns the URL of a path of the page.
    #[must_use]
    pub fn of(&self, path: &str) -> String {
        format!("{self}{path}")
    }

    /// Returns host and port, as a browser sends them in `Host`.
    #[must_use]
    pub fn host(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        self.0.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }
}

impl fmt::Display for PageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

/// Whether a host is this machine.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_percent_encoded_in_paths() {
        assert_eq!(pipeline("team-a", "shop.eu"), "/pipelines/team-a/shop.eu");
        assert_eq!(delivery("a/../b", "x?y#z"), "/deliveries/a%2F..%2Fb/x%3Fy%23z");
        assert_eq!(search("main@sha1:5f3d é"), "/search?q=main%40sha1%3A5f3d%20%C3%A9");
    }

    #[test]
    fn the_url_of_a_page_is_https_and_has_only_a_host() {
        for (text, url, host) in [
            ("https://relaybook.example.com", "https://relaybook.example.com", "relaybook.example.com"),
            ("https://relaybook.example.com:8443/", "https://relaybook.example.com:8443", "relaybook.example.com:8443"),
            ("http://localhost:8082", "http://localhost:8082", "localhost:8082"),
        ] {
            let page: PageUrl = text.parse().unwrap();
            assert_eq!((page.to_string().as_str(), page.host().as_str()), (url, host));
            assert_eq!(page.of(&notification("a", "b")), format!("{url}/notifications/a/b"));
        }
        for (text, error) in [
            ("relaybook.example.com", PageUrlError::NoUrl),
            ("ftp://relaybook.example.com", PageUrlError::NoUrl),
            ("http://relaybook.example.com", PageUrlError::Insecure),
            ("https://relaybook.example.com/page", PageUrlError::TooMuch),
            ("https://user@relaybook.example.com", PageUrlError::TooMuch),
            ("https://relaybook.example.com?a=b", PageUrlError::TooMuch),
        ] {
            assert_eq!(text.parse::<PageUrl>(), Err(error), "{text}");
        }
    }
}
