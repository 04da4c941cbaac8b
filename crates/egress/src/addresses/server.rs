//! The URL of a server that the operator names.

use url::Url;

/// Parses the URL of a server, which begins with `http://` or `https://`. Returns it with `HOST:PORT`, which can be shown. The errors are
/// those for a text that is not a URL, and for another scheme.
pub(crate) fn server<E>(text: &str, not_a_url: E, other_scheme: E) -> Result<(Url, String), E> {
    let Ok(url) = Url::parse(text) else { return Err(not_a_url) };
    if !matches!(url.scheme(), "http" | "https") {
        return Err(other_scheme);
    }
    match (url.host_str(), url.port_or_known_default()) {
        (Some(host), Some(port)) => {
            let shown = format!("{host}:{port}");
            Ok((url, shown))
        }
        _ => Err(not_a_url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_host_and_a_port() {
        for (text, shown) in [
            ("http://a.example", Ok("a.example:80")),
            ("https://me:pass@A.example/x?y", Ok("a.example:443")),
            ("http://[::1]:3128", Ok("[::1]:3128")),
            ("", Err("no URL")),
            ("http://", Err("no URL")),
            ("a.example", Err("no URL")),
            ("a.example:80", Err("scheme")),
            ("socks5://a.example:1080", Err("scheme")),
        ] {
            let server = server(text, "no URL", "scheme").map(|(_, shown)| shown);
            assert_eq!(server.as_deref().map_err(|error| *error), shown, "{text}");
        }
    }
}
