//! Addresses that are refused for remote API servers.
//!
//! In: an address from a kubeconfig or from name resolution. Out: whether it is refused, because it belongs to the environment of this
//! machine. Private and loopback addresses are allowed, because API servers use them.

use std::net::IpAddr;

use relaybook_api::values::address::{METADATA, embedded};

/// Whether the address is link-local, multicast, unspecified or that of a metadata service, in any notation.
pub(crate) fn is_refused(address: IpAddr) -> bool {
    METADATA.contains(&address)
        || address.is_multicast()
        || match address {
            IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast() || ip.octets()[0] == 0,
            IpAddr::V6(ip) => {
                // The translation of a local NAT64 prefix (RFC 8215) depends on the network, so the actual target is not known.
                let local_nat64 = ip.segments()[..3] == [0x64, 0xff9b, 1];
                local_nat64
                    || ip.is_unspecified()
                    || ip.is_unicast_link_local()
                    // Site-local (RFC 3879).
                    || ip.segments()[0] & 0xffc0 == 0xfec0
                    || embedded(address).into_iter().flatten().any(|v4| is_refused(v4.into()))
            }
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_addresses_are_refused_in_every_notation_and_usual_ones_accepted() {
        let refused = |address: &&str| is_refused(address.parse().unwrap());
        for address in [
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "0.0.0.0",
            "0.1.2.3",
            "255.255.255.255",
            "224.0.0.1",
            "::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "::169.254.169.254",
            "::ffff:100.100.100.200",
            "::ffff:0:169.254.169.254",
            "64:ff9b::168.63.129.16",
            "64:ff9b:1::10.0.0.1",
            "2002:a9fe:a9fe::1",
            "2001:0:a9fe:a9fe::1",
            "2001:0:808:808::5601:5601",
            "192.0.0.192",
            "fec0::1",
            "2606:4700::5efe:169.254.169.254",
            "2606:4700::200:5efe:192.0.0.192",
        ] {
            assert!(refused(&address), "{address}");
        }
        for address in [
            "127.0.0.1",
            "10.0.0.1",
            "100.64.0.1",
            "203.0.113.1",
            "::1",
            "fd00::1",
            "2606:4700::1",
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:a00:1::",
        ] {
            assert!(!refused(&address), "{address}");
        }
    }
}
