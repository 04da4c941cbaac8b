//! The egress policy: to which addresses connections are allowed. Pure.
//!
//! By default the policy refuses loopback, link-local, site-local, unspecified, multicast and broadcast addresses. It also refuses
//! cloud metadata services at other addresses, and the IPv6 forms of all these. Private ranges are allowed, because receivers inside
//! the cluster are normal. `deny` overrides `allow`, and `allow` overrides the defaults.

use std::net::IpAddr;

use ipnet::IpNet;
use url::{Host, Url};

use super::rule::Rule;
use crate::attempt::NotSent;
use relaybook_api::values::address::{METADATA, embedded};
use relaybook_api::values::refs::is_service;

/// The allowed destinations of requests.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Allowed although refused by default (`--allow-destination`). An IPv4 range includes its IPv6 forms.
    pub allow: Vec<IpNet>,
    /// Refused although allowed by default or by `allow` (`--deny-destination`). An IPv4 range includes its IPv6 forms.
    pub deny: Vec<IpNet>,
    /// Whether `http` is allowed to every destination (`--allow-http`).
    pub allow_http: bool,
}

impl Policy {
    /// Checks a URL before its name is resolved: the scheme, the user info, and an address if it has one instead of a name.
    pub fn url(&self, url: &Url) -> Result<(), NotSent> {
        match url.scheme() {
            "https" => {}
            "http" if self.allow_http || url.domain().is_some_and(is_service) => {}
            "http" => return Err(NotSent::InsecureScheme),
            _ => return Err(NotSent::InvalidRequest("the URL must begin with https:// or http://")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(NotSent::InvalidRequest("the URL must not contain user info"));
        }
        match url.host() {
            Some(Host::Ipv4(ip)) => self.address(ip.into()).map_err(NotSent::DestinationForbidden),
            Some(Host::Ipv6(ip)) => self.address(ip.into()).map_err(NotSent::DestinationForbidden),
            Some(Host::Domain(_)) => Ok(()),
            None => Err(NotSent::InvalidRequest("the URL must name a host")),
        }
    }

    /// Checks whether a connection to this address is allowed. Returns the rule that refuses it.
    pub fn address(&self, address: IpAddr) -> Result<(), Rule> {
        let spelled = embedded(address);
        let all = || std::iter::once(address).chain(spelled.into_iter().flatten().map(IpAddr::V4));
        if let Some(net) = all().find_map(|ip| self.deny.iter().find(|net| net.contains(&ip))) {
            return Err(Rule::Denied(*net));
        }
        let allowed = |ip: IpAddr| self.allow.iter().any(|net| net.contains(&ip));
        if allowed(address) {
            return Ok(());
        }
        match all().filter(|ip| !allowed(*ip)).find_map(refused) {
            Some(rule) => Err(rule),
            None => Ok(()),
        }
    }
}

/// Returns why an address is refused by default, if it is. Checks only the address itself, not the addresses embedded in it.
fn refused(address: IpAddr) -> Option<Rule> {
    let rule = match address {
        _ if METADATA.contains(&address) => Rule::Metadata,
        _ if address.is_loopback() => Rule::Loopback,
        _ if address.is_multicast() => Rule::Multicast,
        IpAddr::V4(ip) if ip.octets()[0] == 0 => Rule::Unspecified,
        IpAddr::V4(ip) if ip.is_link_local() => Rule::LinkLocal,
        IpAddr::V4(ip) if ip.is_broadcast() => Rule::Broadcast,
        IpAddr::V6(ip) if ip.is_unspecified() => Rule::Unspecified,
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Rule::LinkLocal,
        IpAddr::V6(ip) if ip.segments()[0] & 0xffc0 == 0xfec0 => Rule::SiteLocal,
        IpAddr::V6(ip) if ip.segments()[..3] == [0x64, 0xff9b, 1] => Rule::LocalNat64,
        _ => return None,
    };
    Some(rule)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;
    use relaybook_text::spelling;

    fn policy(allow: &[&str], deny: &[&str]) -> Policy {
        let nets = |list: &[&str]| list.iter().map(|n| n.parse().unwrap()).collect();
        Policy { allow: nets(allow), deny: nets(deny), allow_http: false }
    }

    fn check(policy: &Policy, address: &str) -> Result<(), Rule> {
        policy.address(address.parse().unwrap())
    }

    #[test]
    fn internal_addresses_are_refused_by_default_in_every_notation() {
        for (rule, addresses) in [
            (Rule::Loopback, &["127.0.0.1", "127.255.255.254", "::1"][..]),
            (Rule::Loopback, &["::ffff:127.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"]),
            (Rule::Loopback, &["2001:0:0808:0808::80ff:fffe", "2001:0:7f00:1::f7f7:f7f7"]),
            (Rule::LinkLocal, &["169.254.169.254", "169.254.0.1", "fe80::1", "febf::1", "::ffff:a9fe:a9fe"]),
            (Rule::LinkLocal, &["64:ff9b::169.254.169.254", "2002:a9fe:a9fe:1::1"]),
            (Rule::Unspecified, &["0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0", "64:ff9b::"]),
            (Rule::Multicast, &["224.0.0.1", "239.255.255.255", "ff02::1", "::ffff:224.0.0.1"]),
            (Rule::Broadcast, &["255.255.255.255", "::ffff:255.255.255.255"]),
            (Rule::Metadata, &["fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "100.100.100.200", "168.63.129.16"]),
            (Rule::Metadata, &["::ffff:100.100.100.200"]),
            (Rule::Metadata, &["192.0.0.192", "::ffff:192.0.0.192", "64:ff9b::192.0.0.192", "2002:c000:c0::1"]),
            (Rule::SiteLocal, &["fec0::", "fec0::1", "feff:ffff::1", "fec0:0:0:ffff::1"]),
            // ISATAP, with both forms of the interface identifier, in any network.
            (Rule::Loopback, &["2606:4700::5efe:127.0.0.1", "2606:4700::200:5efe:127.0.0.1", "fd00::5efe:7f00:1"]),
            (Rule::LinkLocal, &["2606:4700:0:1:0:5efe:a9fe:a9fe", "2002:808:808::5efe:169.254.169.254"]),
            (Rule::Metadata, &["2606:4700::200:5efe:100.100.100.200", "2001:0:808:808:0:5efe:192.0.0.192"]),
            (Rule::LocalNat64, &["64:ff9b:1::1", "64:ff9b:1:ffff::127.0.0.1"]),
        ] {
            for address in addresses {
                assert_eq!(check(&policy(&[], &[]), address), Err(rule), "{address}");
            }
        }
    }

    #[test]
    fn private_and_public_addresses_are_allowed_by_default() {
        for address in [
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "8.8.8.8",
            "169.253.255.255",
            "126.255.255.255",
            "fc00::1",
            "fd00:ec2::253",
            "2606:4700::1",
            "::ffff:10.0.0.1",
            "64:ff9b::808:808",
            "2002:808:808::1",
            "2606:4700::5efe:8.8.8.8",
            "2606:4700::200:5efe:10.0.0.1",
            "2606:4700::5eff:127.0.0.1",
            "2606:4700::100:5efe:127.0.0.1",
            "192.0.0.191",
            "2001:0:808:808::f7f7:f7f7",
        ] {
            assert_eq!(check(&policy(&[], &[]), address), Ok(()), "{address}");
        }
    }

    #[test]
    fn deny_beats_allow_and_allow_beats_the_default() {
        let p = policy(&["127.0.0.0/8", "fe80::/10"], &["127.0.0.9/32", "10.0.0.0/8"]);
        for address in ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::", "fe80::1"] {
            assert_eq!(check(&p, address), Ok(()), "{address}");
        }
        for (address, net) in
            [("127.0.0.9", "127.0.0.9/32"), ("::ffff:127.0.0.9", "127.0.0.9/32"), ("64:ff9b::10.1.2.3", "10.0.0.0/8")]
        {
            assert_eq!(check(&p, address), Err(Rule::Denied(net.parse().unwrap())), "{address}");
        }
        assert_eq!(check(&p, "::1"), Err(Rule::Loopback), "an IPv6 address, not an IPv6 form of an IPv4 address");
        assert_eq!(check(&p, "169.254.169.254"), Err(Rule::LinkLocal));
        assert_eq!(check(&policy(&["0.0.0.0/0"], &[]), "::ffff:169.254.169.254"), Ok(()));
        assert_eq!(
            check(&policy(&["8.8.8.8/32"], &[]), "2001:0:808:808::80ff:fffe"),
            Err(Rule::Loopback),
            "one of two embedded addresses is not enough"
        );
    }

    fn check_url(policy: &Policy, url: &str) -> Result<(), NotSent> {
        policy.url(&Url::parse(url).unwrap())
    }

    #[test]
    fn every_form_of_an_address_in_a_url_is_recognised() {
        for url in [
            "https://127.0.0.1/",
            "https://127.1/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://0x7f000001/",
            "https://017700000001/",
            "https://0177.0.0.01/",
            "https://127.0.0.1./",
            "https://%31%32%37.0.0.1/",
            "https://①②⑦.0.0.1/",
            "https://127。0。0。1/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:7f00:1]:8443/",
        ] {
            let result = check_url(&policy(&[], &[]), url);
            assert_eq!(result, Err(NotSent::DestinationForbidden(Rule::Loopback)), "{url}");
        }
    }

    #[test]
    fn http_is_allowed_only_to_services_of_the_cluster() {
        let strict = policy(&[], &[]);
        for url in [
            "http://receiver.team-a.svc/x",
            "http://receiver.team-a.svc:8080/",
            "http://receiver.team-a.svc.cluster.local/",
            "http://RECEIVER.team-a.SVC./",
            "https://example.com/",
            "https://10.0.0.1/",
        ] {
            assert_eq!(check_url(&strict, url), Ok(()), "{url}");
        }
        for url in [
            "http://example.com/",
            "http://svc/",
            "http://.svc/",
            "http://svc.example.com/",
            "http://10.0.0.1/",
            "http://a.svc.example.com/",
            "http://asvc/",
            "http://a.cluster.local/",
            "http://127.0.0.1/",
        ] {
            assert_eq!(check_url(&strict, url), Err(NotSent::InsecureScheme), "{url}");
        }
        let lax = Policy { allow_http: true, ..strict };
        assert_eq!(check_url(&lax, "http://example.com/"), Ok(()));
        assert_eq!(check_url(&lax, "http://127.0.0.1/"), Err(NotSent::DestinationForbidden(Rule::Loopback)));
        for url in
            ["ftp://example.com/", "file:///etc/passwd", "data:,x", "https://me@example.com/", "https://:x@example.com/"]
        {
            assert!(matches!(check_url(&lax, url), Err(NotSent::InvalidRequest(_))), "{url}");
        }
    }

    proptest! {
        /// The policy decides about a `Url`, and the connection goes to a `Uri`. Whatever the spelling, both are the same place.
        #[test]
        fn the_checked_host_and_port_are_those_of_the_connection(
            text in spelling(&["https://127.0.0.1/x", "https://hook.example.com:8443/a?b=c", "http://a.team.svc/x", "https://[::1]:80/"]),
        ) {
            if let Ok(url) = Url::parse(&text)
                && policy(&[], &[]).url(&url).is_ok()
                && let Ok(uri) = http::Uri::try_from(url.as_str())
            {
                prop_assert_eq!(uri.host(), url.host_str(), "{}", &text);
                prop_assert_eq!((uri.port_u16(), uri.scheme_str()), (url.port(), Some(url.scheme())), "{}", &text);
            }
        }

        #[test]
        fn every_form_of_an_ipv4_address_has_the_same_result(bits: u32) {
            let v4 = Ipv4Addr::from_bits(bits);
            let [a, b, c, d] = v4.octets().map(u16::from);
            let (high, low) = (a << 8 | b, c << 8 | d);
            let p = policy(&["127.0.0.0/9"], &["128.0.0.0/2"]);
            let plain = p.address(v4.into());
            for spelled in [
                Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
                Ipv6Addr::new(0x2001, 0, 0x808, 0x808, 0, 0, !high, !low),
                Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0x5efe, high, low),
                Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0x200, 0x5efe, high, low),
            ] {
                prop_assert_eq!(p.address(spelled.into()), plain, "{} as {}", v4, spelled);
            }
        }
    }
}
