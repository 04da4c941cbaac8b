//! Compares the policy with a published list of addresses, which another author wrote.

use std::collections::BTreeSet;

use ipnet::IpNet;
use url::Host;

use super::*;

const LIST: &str = include_str!("../../../../tests/data/addresses.txt");

/// Ranges that the list marks as dangerous and the policy allows, and why.
const LET_THROUGH: [(&str, &str); 19] = [
    ("10.0.0.0/8", "private: receivers inside the cluster are normal"),
    ("172.16.0.0/12", "private"),
    ("192.168.0.0/16", "private"),
    ("100.64.0.0/10", "shared between a provider and its customers; some clusters use it for their pods"),
    ("fc00::/7", "private"),
    ("192.0.0.0/24", "assigned to protocols; no service listens there except a metadata service, which is refused"),
    ("192.0.2.0/24", "for documentation; not routed"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
    ("2001:db8::/32", "for documentation"),
    ("192.31.196.0/24", "public servers for reverse names of private addresses"),
    ("192.175.48.0/24", "the same"),
    ("192.52.193.0/24", "public relays of multicast, with unicast addresses"),
    ("192.88.99.0/24", "public relays of 6to4"),
    ("198.18.0.0/15", "for benchmarks in a laboratory: private"),
    ("240.0.0.0/4", "reserved; private if it is used at all"),
    ("100::/64", "packets to it are discarded"),
    ("2001::/23", "assigned to protocols; for Teredo, the embedded address is checked"),
    ("64:ff9b::/96", "NAT64: the embedded address is checked"),
];

/// Ranges that the list treats as public and the policy refuses, and why.
const REFUSED: [(&str, &str); 2] = [("224.0.0.0/4", "multicast"), ("fec0::/10", "site-local, which is deprecated")];

/// The range that contains an address.
fn within(address: std::net::IpAddr, ranges: &[(&'static str, &str)]) -> Option<&'static str> {
    ranges.iter().map(|(range, _)| *range).find(|range| range.parse::<IpNet>().unwrap().contains(&address))
}

#[test]
fn the_policy_agrees_with_a_published_list_except_for_the_named_ranges() {
    let policy = Policy { allow_http: true, ..Policy::default() };
    let mut differs = BTreeSet::new();
    let lines: Vec<_> = LIST.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(lines.len() > 150, "{} lines", lines.len());
    for line in lines {
        let (kind, spelling) = line.split_once(' ').unwrap();
        let host = if spelling.contains(':') { format!("[{spelling}]") } else { spelling.to_owned() };
        // A text that is not a valid URL cannot be a destination.
        let Ok(url) = url::Url::parse(&format!("https://{host}/")) else {
            assert_eq!(kind, "other", "{spelling}");
            continue;
        };
        let address = match url.host() {
            Some(Host::Ipv4(ip)) => ip.into(),
            Some(Host::Ipv6(ip)) => ip.into(),
            other => panic!("{spelling} is read as {other:?}"),
        };
        let range = match (kind, policy.url(&url)) {
            ("public", Ok(())) | ("other", Err(NotSent::DestinationForbidden(_))) => continue,
            ("public", _) => within(address, &REFUSED),
            (_, _) => within(address, &LET_THROUGH),
        };
        differs.insert(range.unwrap_or_else(|| panic!("{spelling} is {kind}: {:?}", policy.url(&url))));
    }
    let named: BTreeSet<_> = LET_THROUGH.iter().chain(&REFUSED).map(|(range, _)| *range).collect();
    assert_eq!(differs, named, "only the named ranges differ");
}
