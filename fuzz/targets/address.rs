//! Fuzzes URLs and `Retry-After` with any text. No URL to a loopback, link-local, multicast or unspecified address may pass the
//! policy, and no `Retry-After` may be longer than the maximum.
//!
//! In: text. Out: nothing, or a panic. The forbidden addresses are determined here with the standard library and a model of
//! `inet_aton`, so that the policy is not checked against itself.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use relaybook_api::Time;
use relaybook_egress::{MAX_RETRY_AFTER, Policy, parse_retry_after};
use url::{Host, Url};

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    as_url(&text);
    // Most texts are not valid URLs. As the host of a URL, more of them reach the policy.
    for scheme in ["http", "https"] {
        as_url(&format!("{scheme}://{text}/"));
        as_url(&format!("{scheme}://[{text}]:8443/"));
    }
    as_retry_after(&text);
});

fn as_url(text: &str) {
    let Ok(url) = Url::parse(text) else { return };
    let verdict = Policy { allow_http: true, ..Policy::default() }.url(&url);
    let address = match url.host() {
        Some(Host::Ipv4(ip)) => IpAddr::V4(ip),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip),
        Some(Host::Domain(name)) if matches!(url.scheme(), "http" | "https") => {
            // The system would connect to such a name as an address, without DNS, but the policy would see a name.
            assert!(name.parse::<IpAddr>().is_err() && aton(name).is_none(), "{text:?}: {name}");
            return;
        }
        _ => return assert!(verdict.is_err(), "{text:?}"),
    };
    let leads = meant(address).into_iter().flatten().find(|ip| leads_home(*ip));
    assert!(verdict.is_err() || leads.is_none(), "{text:?} leads to {leads:?}");
    // Other libraries must read the same address from the text of the URL.
    let written = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    assert_eq!(written.parse::<IpAddr>().ok(), Some(address), "{text:?}");
}

/// Returns an address, and the IPv4 addresses that it may be translated to.
fn meant(address: IpAddr) -> [Option<IpAddr>; 3] {
    let IpAddr::V6(ip) = address else { return [Some(address), None, None] };
    let bits = ip.to_bits();
    let low = |shift: u32| Ipv4Addr::from_bits(u32::try_from(bits >> shift & 0xffff_ffff).expect("32 bits"));
    let translated = match bits >> 96 {
        // ::a.b.c.d, ::ffff:a.b.c.d, ::ffff:0:a.b.c.d
        0 if bits > 1 && matches!(bits >> 32 & 0xffff_ffff_ffff_ffff, 0 | 0xffff | 0xffff_0000) => [Some(low(0)), None],
        0x0064_ff9b if bits >> 32 == 0x0064_ff9b << 64 => [Some(low(0)), None],
        0x2001_0000 => [Some(low(64)), Some(Ipv4Addr::from_bits(!low(0).to_bits()))],
        prefix if prefix >> 16 == 0x2002 => [Some(low(80)), None],
        _ => [None, None],
    };
    [Some(address), translated[0].map(IpAddr::V4), translated[1].map(IpAddr::V4)]
}

fn leads_home(address: IpAddr) -> bool {
    let local = match address {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast() || ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip == Ipv6Addr::UNSPECIFIED,
    };
    local || address.is_loopback() || address.is_unspecified() || address.is_multicast()
}

/// Parses an address as `inet_aton` does: up to four numbers, decimal, octal or hexadecimal. The last one fills the remaining bits.
fn aton(text: &str) -> Option<Ipv4Addr> {
    let number = |part: &str| match part.strip_prefix("0x").or_else(|| part.strip_prefix("0X")) {
        Some("") => None,
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if part.len() > 1 && part.starts_with('0') => u32::from_str_radix(part, 8).ok(),
        None => part.parse().ok(),
    };
    // Rust accepts a sign, `inet_aton` does not.
    if text.contains('+') {
        return None;
    }
    let numbers: Vec<u32> = text.split('.').map(number).collect::<Option<_>>()?;
    let (last, first) = numbers.split_last().filter(|(_, first)| first.len() < 4)?;
    let room = 32 - 8 * u32::try_from(first.len()).ok()?;
    if first.iter().any(|n| *n > 255) || u64::from(*last) >= 1 << room {
        return None;
    }
    let high = first.iter().fold(0_u64, |high, n| high << 8 | u64::from(*n));
    Some(Ipv4Addr::from_bits(u32::try_from(high << room | u64::from(*last)).ok()?))
}

fn as_retry_after(text: &str) {
    let now = Time::from_second(784_111_777).expect("a time");
    let asked = parse_retry_after(text, now);
    assert!(asked.is_none_or(|asked| asked <= MAX_RETRY_AFTER && !asked.is_zero()), "{text:?}: {asked:?}");
    if let Ok(seconds) = text.parse::<u64>()
        && text.bytes().all(|b| b.is_ascii_digit())
    {
        let expected = Duration::from_secs(seconds).min(MAX_RETRY_AFTER);
        assert_eq!(asked.unwrap_or_default(), expected, "{text:?}");
    }
}
