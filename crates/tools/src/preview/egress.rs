//! Checks whether the controller refuses to send to a URL.

use url::Url;

use relaybook_egress::{NotSent, Policy};

/// The ranges of addresses that a running controller allows and refuses.
#[derive(Clone, Debug)]
pub struct Egress(Policy);

impl Egress {
    /// Creates it from the values of `--allow-destination` and `--deny-destination`. Returns `None` if a value is not an address range.
    #[must_use]
    pub fn new(allow: &[String], deny: &[String]) -> Option<Self> {
        let ranges = |texts: &[String]| texts.iter().map(|text| text.parse().ok()).collect::<Option<Vec<_>>>();
        // The scheme of a URL is checked with the notification, not here.
        Some(Self(Policy { allow: ranges(allow)?, deny: ranges(deny)?, allow_http: true }))
    }

    /// Returns the policy, with this setting for `http`.
    pub(crate) fn policy(&self, allow_http: bool) -> Policy {
        Policy { allow_http, ..self.0.clone() }
    }

    /// Returns why the controller does not send to the address in this URL. A host name is not checked, because names are not resolved
    /// here.
    #[must_use]
    pub fn refuses(&self, url: &str) -> Option<String> {
        match self.0.url(&Url::parse(url).ok()?) {
            Err(why @ NotSent::DestinationForbidden(_)) => Some(why.to_string()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_addresses_are_checked_and_host_names_are_not() {
        let egress = |allow: &[&str], deny: &[&str]| {
            let texts = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
            Egress::new(&texts(allow), &texts(deny))
        };
        for (allow, deny, url, refused) in [
            (&[][..], &[][..], "http://127.0.0.1:8080/{{revision}}", true),
            (&["127.0.0.0/8"], &[], "http://127.0.0.1:8080/", false),
            (&["127.0.0.0/8"], &["127.0.0.0/8"], "http://127.0.0.1:8080/", true),
            (&[], &["10.0.0.0/8"], "https://10.1.2.3/", true),
            (&[], &[], "https://10.1.2.3/", false),
            (&[], &["0.0.0.0/0"], "https://chat.example.com/", false),
            (&[], &[], "https://{{environment}}.example.com/", false),
            (&[], &[], "***", false),
        ] {
            assert_eq!(egress(allow, deny).unwrap().refuses(url).is_some(), refused, "{allow:?} {deny:?} {url}");
        }
        assert!(egress(&["localhost"], &[]).is_none());
    }
}
