//! A key for the receiver of a request, which reveals nothing about the receiver.
//!
//! In: a URL, which can be a secret. Out: a key that is the same for all URLs with the same scheme, host and port. It is a hash with
//! a random secret that the process creates at its start. If the key is logged by accident, a reader can neither see the host nor
//! find it by trying hosts.

use std::fmt;

use rustls::crypto::CryptoProvider;
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::SendError;

/// Number of bytes of the hash in the key. With this length, collisions are practically impossible, even among millions of origins.
const KEPT: usize = 16;

/// Computes keys of origins.
#[derive(Clone)]
pub(crate) struct Origins([u8; 32]);

impl Origins {
    /// Creates a new random secret.
    pub(crate) fn new(provider: &CryptoProvider) -> Result<Self, SendError> {
        let mut secret = [0; 32];
        provider.secure_random.fill(&mut secret).map_err(|_| SendError::NoRandomness)?;
        Ok(Self(secret))
    }

    /// Returns the key of the origin of a URL.
    pub(crate) fn key(&self, url: &Url) -> String {
        let host = url.host_str().unwrap_or_default();
        let host = host.strip_suffix('.').unwrap_or(host);
        let origin = format!("{}://{host}:{}", url.scheme(), url.port_or_known_default().unwrap_or_default());
        let hash = Sha256::new().chain_update(self.0).chain_update(origin).finalize();
        format!("origin:{}", hex::encode(&hash[..KEPT]))
    }
}

/// Does not show the secret.
impl fmt::Debug for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origins").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origins() -> Origins {
        Origins::new(&rustls::crypto::ring::default_provider()).unwrap()
    }

    #[test]
    fn the_key_of_an_origin_depends_on_scheme_host_and_port() {
        let origins = origins();
        let key = |url: &str| origins.key(&Url::parse(url).unwrap());
        let one = key("https://hooks.example.com/services/T0/B0?key=1");
        for same in [
            "https://hooks.example.com/",
            "https://HOOKS.example.com:443/services/T1",
            "https://hooks.example.com./x#y",
            "https://me:pass@hooks.example.com/",
        ] {
            assert_eq!(key(same), one, "{same}");
        }
        for other in [
            "http://hooks.example.com/",
            "http://hooks.example.com:443/",
            "https://hooks.example.com:8443/",
            "https://example.com/",
            "https://127.0.0.1/",
        ] {
            assert_ne!(key(other), one, "{other}");
        }
        assert_eq!(key("http://127.0.0.1/"), key("http://0x7f.1:80/"), "another spelling of one address");
    }

    #[test]
    fn a_key_reveals_nothing_about_the_receiver() {
        let url = Url::parse("https://hooks.example.com/").unwrap();
        let (one, two) = (origins(), origins());
        assert_ne!(one.key(&url), two.key(&url), "another process has another key");
        let (key, debug) = (one.key(&url), format!("{one:?}"));
        assert!(!key.contains("example") && key.len() == "origin:".len() + 2 * KEPT, "{key}");
        assert_eq!(debug, "Origins { .. }");
    }
}
