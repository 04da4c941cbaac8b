//! Spellings of addresses: an IPv4 address can be written as an IPv6 address in many ways. Code that refuses one spelling must
//! refuse all of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Services outside the link-local range that give credentials to every client that can reach them.
pub const METADATA: [IpAddr; 6] = [
    // https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    // https://docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    // https://cloud.google.com/compute/docs/metadata/querying-metadata
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    // https://www.alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    // https://learn.microsoft.com/en-us/azure/virtual-network/what-is-ip-address-168-63-129-16
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // Oracle Cloud Infrastructure, in addition to 169.254.169.254.
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
];

/// Returns the IPv4 addresses that an IPv6 address represents.
#[must_use]
pub fn embedded(address: IpAddr) -> [Option<Ipv4Addr>; 3] {
    let IpAddr::V6(ip) = address else { return [None; 3] };
    let segments = ip.segments();
    let at = |i: usize| Ipv4Addr::from_bits(u32::from(segments[i]) << 16 | u32::from(segments[i + 1]));
    // ISATAP (RFC 5214, section 6.1). The interface identifier marks it, so it occurs in any network, also in combination with each of
    // the other forms.
    let isatap = matches!(segments[4..6], [0 | 0x200, 0x5efe]).then(|| at(6));
    match segments {
        // `::` and `::1` do not represent IPv4 addresses.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None; 3],
        // IPv4-compatible (RFC 4291, section 2.5.5.1), IPv4-mapped (section 2.5.5.2), IPv4-translated (RFC 2765), NAT64
        // (RFC 6052).
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            [Some(at(6)), None, None]
        }
        // 6to4 (RFC 3056).
        [0x2002, ..] => [Some(at(1)), isatap, None],
        // Teredo (RFC 4380): the server, and the client with its bits inverted.
        [0x2001, 0, ..] => [Some(at(2)), Some(Ipv4Addr::from_bits(!at(6).to_bits())), isatap],
        _ => [isatap, None, None],
    }
}
