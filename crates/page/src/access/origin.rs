//! Decides whether a request can come from a page of this server, before anything else is read of it. Pure.
//!
//! A site of somebody else can make a browser send requests here: through a name that resolves to this address (DNS rebinding), or with a
//! form. The first has another `Host`. The second has another `Origin`, and does not know the token of a form.

use http::header::{HOST, HeaderName, ORIGIN};
use http::{HeaderMap, Method};
use ring::hmac;

use relaybook_api::values::permalink::{PageUrl, is_loopback};

/// A browser names with it how the request was made (<https://www.w3.org/TR/fetch-metadata/>).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// A browser names with it what the request is for.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// The names under which the page can be reached.
#[derive(Clone, Debug)]
pub(crate) enum Hosts {
    /// Exactly this host and port: the page of a person on the own machine.
    Only(Vec<String>),
    /// The host of the URL for users, and this machine, for `kubectl port-forward`.
    Public(Option<PageUrl>),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is for another host.
    Host,
    /// It comes from a page of another site.
    Origin,
}

impl Hosts {
    fn allow(&self, host: &str) -> bool {
        match self {
            Self::Only(hosts) => hosts.iter().any(|allowed| allowed == host),
            Self::Public(url) => is_loopback(name(host)) || url.as_ref().is_some_and(|url| url.host() == host),
        }
    }
}

/// Returns a host without its port.
fn name(host: &str) -> &str {
    let digits = host.rsplit_once(':').filter(|(_, port)| !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit()));
    digits.map_or(host, |(name, _)| name)
}

/// Checks `Host`, `Origin` and `Sec-Fetch-Site`.
pub(crate) fn check(hosts: &Hosts, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name: &HeaderName| {
        let mut all = headers.get_all(name).iter();
        let first = all.next().map(|value| value.to_str().unwrap_or("\u{fffd}"));
        // Two values are a request that two servers could read differently.
        if all.next().is_some() { Some("\u{fffd}") } else { first }
    };
    let host = text(&HOST).unwrap_or_default().to_ascii_lowercase();
    if !hosts.allow(&host) {
        return Err(Refusal::Host);
    }
    let own = |origin: &str| {
        let origin = origin.to_ascii_lowercase();
        origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://")) == Some(host.as_str())
    };
    if text(&ORIGIN).is_some_and(|origin| !own(origin)) {
        return Err(Refusal::Origin);
    }
    let is_reading = matches!(*method, Method::GET | Method::HEAD);
    match text(&FETCH_SITE) {
        // A link on another site may lead here. It reads a page, which that site cannot see.
        Some("cross-site" | "same-site") if is_reading && is_navigation(headers) => Ok(()),
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => Err(Refusal::Origin),
    }
}

/// Whether the browser opens a page, and does not load a part of one.
pub(crate) fn is_navigation(headers: &HeaderMap) -> bool {
    headers.get(FETCH_MODE).is_some_and(|mode| mode == "navigate")
}

/// Whether the request follows a link on another site. Then the browser sends no cookie with `SameSite=Strict`.
pub(crate) fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    headers.get(FETCH_SITE).is_some_and(|site| site == "cross-site" || site == "same-site")
}

/// The key of the tokens in forms. It lives as long as the process.
#[derive(Debug)]
pub(crate) struct FormKey(hmac::Key);

impl FormKey {
    /// Creates the key from these random bytes.
    pub(crate) fn new(random: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, random))
    }

    /// Returns the token for the forms of a caller.
    pub(crate) fn token(&self, caller: &[u8; 32]) -> String {
        hex::encode(hmac::sign(&self.0, caller))
    }

    /// Whether a form has the token of this caller.
    pub(crate) fn is_token(&self, caller: &[u8; 32], given: &str) -> bool {
        hex::decode(given).is_ok_and(|given| hmac::verify(&self.0, caller, &given).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(hosts: &Hosts, method: &Method, headers: &[(&str, &str)]) -> Result<(), Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        check(hosts, method, &map)
    }

    #[test]
    fn only_requests_to_an_own_host_name_are_answered() {
        let own = Hosts::Only(vec!["127.0.0.1:4000".to_owned(), "localhost:4000".to_owned()]);
        let public = Hosts::Public(Some("https://relaybook.example.com".parse().unwrap()));
        let none = Hosts::Public(None);
        for (hosts, host, fits) in [
            (&own, "127.0.0.1:4000", true),
            (&own, "LOCALHOST:4000", true),
            (&own, "127.0.0.1:4001", false),
            (&own, "evil.example:4000", false),
            (&public, "relaybook.example.com", true),
            (&public, "relaybook.example.com:8080", false),
            (&public, "localhost:8082", true),
            (&public, "localhost.evil.example", false),
            (&public, "127.0.0.1.evil.example:80", false),
            (&none, "[::1]:80", true),
            (&none, "10.0.0.7", false),
            (&none, "", false),
        ] {
            assert_eq!(checked(hosts, &Method::GET, &[("host", host)]).is_ok(), fits, "{host}");
        }
        assert_eq!(checked(&own, &Method::GET, &[]), Err(Refusal::Host));
        let two = [("host", "localhost:4000"), ("host", "localhost:4000")];
        assert_eq!(checked(&own, &Method::GET, &two), Err(Refusal::Host));
    }

    #[test]
    fn another_site_can_only_navigate_to_a_page() {
        let own = Hosts::Only(vec!["localhost:4000".to_owned()]);
        let host = ("host", "localhost:4000");
        let (get, post) = (Method::GET, Method::POST);
        for (method, headers, fits) in [
            (&get, vec![("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], true),
            (&get, vec![("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")], false),
            (
                &get,
                vec![("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors"), ("origin", "https://evil.example")],
                false,
            ),
            (&post, vec![("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], false),
            (&post, vec![("sec-fetch-site", "same-site"), ("sec-fetch-mode", "navigate")], false),
            (&post, vec![("origin", "http://localhost:4000"), ("sec-fetch-site", "same-origin")], true),
            (&post, vec![("origin", "http://localhost:4001")], false),
            (&post, vec![("origin", "null")], false),
            (&post, vec![("origin", "http://localhost:4000.evil.example")], false),
            (&post, vec![("origin", "http://localhost:4000"), ("origin", "http://localhost:4000")], false),
            (&get, vec![("sec-fetch-site", "none")], true),
            (&get, vec![], true),
        ] {
            let all: Vec<_> = std::iter::once(host).chain(headers).collect();
            assert_eq!(checked(&own, method, &all).is_ok(), fits, "{method} {all:?}");
        }
    }

    #[test]
    fn the_token_of_a_form_belongs_to_one_caller() {
        let key = FormKey::new(&[7; 32]);
        let token = key.token(&[1; 32]);
        assert!(key.is_token(&[1; 32], &token));
        for wrong in ["", "00", &token[1..], &FormKey::new(&[8; 32]).token(&[1; 32])] {
            assert!(!key.is_token(&[1; 32], wrong), "{wrong}");
        }
        assert!(!key.is_token(&[2; 32], &token));
    }
}
