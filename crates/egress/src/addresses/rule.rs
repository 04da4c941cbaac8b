//! Why an address is refused, as human-readable text.

use std::fmt;

use ipnet::IpNet;

/// Why an address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// This machine.
    Loopback,
    /// This network segment, which contains the metadata services of clouds.
    LinkLocal,
    /// `fec0::/10`: the deprecated scope between link-local and private (RFC 3879).
    SiteLocal,
    /// `0.0.0.0/8` or `::`, which many systems treat as this machine.
    Unspecified,
    /// Many receivers.
    Multicast,
    /// All receivers.
    Broadcast,
    /// A cloud's metadata service.
    Metadata,
    /// Local-use NAT64, `64:ff9b:1::/48`: the translator determines the IPv4 address.
    LocalNat64,
    /// A range of `--deny-destination`.
    Denied(IpNet),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Loopback => "a loopback",
            Self::LinkLocal => "a link-local",
            Self::SiteLocal => "a site-local",
            Self::Unspecified => "an unspecified",
            Self::Multicast => "a multicast",
            Self::Broadcast => "a broadcast",
            Self::Metadata => "a cloud metadata",
            Self::LocalNat64 => "a local NAT64",
            Self::Denied(net) => return write!(f, "the address is in {net}, which is denied"),
        };
        write!(f, "{kind} address is refused unless it is allowed by --allow-destination")
    }
}
