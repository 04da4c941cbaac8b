//! Where an answer redirects to, for messages. Pure.

use url::Url;

/// Maximum length of the shown origin, in bytes. A longer host is not a valid name.
const MOST: usize = 300;

/// Returns scheme, host and port of a `Location`, without user information, path and query, which can be secret. `base`: the URL of the request,
/// for a relative location. Returns `None` if that is not an http or https URL.
#[must_use]
pub fn redirect_origin(location: &str, base: Option<&Url>) -> Option<String> {
    let target = base.map_or_else(|| Url::parse(location), |base| base.join(location)).ok()?;
    let is_http = ["http", "https"].contains(&target.scheme());
    let origin = target.origin().ascii_serialization();
    (is_http && origin.len() <= MOST).then_some(origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scheme_host_and_port_are_returned() {
        let base = Url::parse("https://user:pw@hooks.example:8443/in?key=s3cr3t").unwrap();
        let long = format!("https://{}/", "a.".repeat(200));
        for (location, alone, joined) in [
            ("https://me:s3cr3t@a.net:99/x?token=s3cr3t#y", Some("https://a.net:99"), Some("https://a.net:99")),
            ("http://A.net", Some("http://a.net"), Some("http://a.net")),
            ("https://bücher.example/", Some("https://xn--bcher-kva.example"), Some("https://xn--bcher-kva.example")),
            ("https://[::1]/", Some("https://[::1]"), Some("https://[::1]")),
            ("//b.net/x", None, Some("https://b.net")),
            ("/login", None, Some("https://hooks.example:8443")),
            ("", None, Some("https://hooks.example:8443")),
            ("javascript:alert(1)", None, None),
            ("ftp://a.net/", None, None),
            ("https://", None, None),
            (&long, None, None),
        ] {
            assert_eq!(redirect_origin(location, None).as_deref(), alone, "{location}");
            assert_eq!(redirect_origin(location, Some(&base)).as_deref(), joined, "{location}");
        }
    }
}
