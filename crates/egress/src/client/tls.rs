//! The trusted CA certificates and the client certificate of a connection.
//!
//! In: the settings of the endpoint ([`TlsRef`](relaybook_api::notification::credentials::TlsRef)), and the values of Secrets. Out: [`Tls`],
//! which creates the TLS configuration of a client. Its hash identifies the client, so equal settings are parsed only once.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest as _, Sha256};

use super::proxy::Proxy;
use super::trust::{Trust, Verifies};
use crate::attempt::NotSent;
use crate::secrets::contents::Contents;
use relaybook_api::ObjectName;
use relaybook_api::notification::credentials::{CERTIFICATE, PRIVATE_KEY, SecretKey};
use relaybook_runtime::certificates::Bundle;

const NO_CERTIFICATE: &str = "contains no certificate in PEM format";
const NO_IDENTITY: &str = "is not a private key in PEM format, or tls.crt is not a certificate in PEM format";

const OTHER_KEY: &str = "is not the private key of the certificate in tls.crt, or has an unsupported type";

/// The TLS settings of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    authorities: Option<Arc<str>>,
    identity: Option<SecretString>,
    skip_verify: bool,
}

/// A hash that identifies the settings of a client.
pub(crate) type Fingerprint = [u8; 32];

impl Tls {
    /// Trusts only these CA certificates in PEM.
    pub(crate) fn trust(&mut self, pem: Arc<str>) {
        self.authorities = Some(pem);
    }

    /// Trusts only the CA certificates in the value of a key.
    pub(crate) fn trust_secret(&mut self, contents: &Contents, key: &SecretKey) -> Result<(), NotSent> {
        self.trust(authorities(contents, key)?);
        Ok(())
    }

    /// Uses the client certificate of a Secret of type `kubernetes.io/tls`.
    pub(crate) fn identify(&mut self, contents: &Contents, name: &ObjectName) -> Result<(), NotSent> {
        self.identity = Some(identity(contents, name)?);
        Ok(())
    }

    /// Accepts any certificate.
    pub(crate) fn skip_verify(&mut self) {
        self.skip_verify = true;
    }

    /// Returns the number of bytes in certificates and keys, in PEM.
    pub(crate) fn length(&self) -> usize {
        let identity = self.identity.as_ref().map_or(0, |pem| pem.expose_secret().len());
        self.authorities.as_deref().map_or(0, str::len) + identity
    }

    /// Returns the hash of these settings.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let mut hash = Sha256::new();
        for part in [self.authorities.as_deref(), self.identity.as_ref().map(ExposeSecret::expose_secret)] {
            // The length separates one part from the next.
            hash.update(part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
            hash.update(part.unwrap_or_default().as_bytes());
        }
        hash.update([u8::from(self.skip_verify)]);
        hash.finalize().into()
    }

    /// Returns the TLS configuration of a client. `system` verifies the proxy, and also the receiver unless the endpoint has other settings
    /// for it. Returns an error only for values that were not checked earlier, such as the text of a `ConfigMap`.
    pub(crate) fn config(&self, system: &Verifies, proxy: Option<&Proxy>) -> Result<ClientConfig, rustls::Error> {
        let provider = provider()?;
        let of_receiver = match &self.authorities {
            _ if self.skip_verify => None,
            None => Some(Arc::clone(system)),
            Some(pem) => {
                let bundle = Bundle::new(certificates(pem), Arc::clone(&provider));
                let bundle = bundle.ok_or_else(|| rustls::Error::General(NO_CERTIFICATE.to_owned()))?;
                Some(Arc::new(bundle) as Verifies)
            }
        };
        let of_proxy = proxy.and_then(Proxy::tls_name).map(|name| (name, Arc::clone(system)));
        let trust = Trust::new(of_receiver, of_proxy, &provider);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(trust));
        let mut config = match &self.identity {
            Some(pem) => {
                let (chain, key) = parsed(pem).ok_or_else(|| rustls::Error::General(NO_IDENTITY.to_owned()))?;
                builder.with_client_auth_cert(chain, key)?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Returns a verifier that trusts the current CA certificates of the system and these roots. Returns an error if there are none.
pub(crate) fn system(roots: Vec<CertificateDer<'static>>) -> Result<Verifies, rustls::Error> {
    Ok(Arc::new(Verifier::new_with_extra_roots(roots, provider()?)?))
}

/// Returns the crypto provider that `main` installs.
fn provider() -> Result<Arc<CryptoProvider>, rustls::Error> {
    CryptoProvider::get_default().cloned().ok_or_else(|| rustls::Error::General("no TLS provider is installed".to_owned()))
}

/// Returns the CA certificates in the value of a key.
pub(crate) fn authorities(contents: &Contents, key: &SecretKey) -> Result<Arc<str>, NotSent> {
    let pem = contents.text(key)?;
    let is_usable = certificates(pem).any(|one| RootCertStore::empty().add(one).is_ok());
    if is_usable { Ok(Arc::from(pem)) } else { Err(NotSent::SecretInvalid { key: key.clone(), problem: NO_CERTIFICATE }) }
}

/// Returns all certificates of a text.
fn certificates(pem: &str) -> impl Iterator<Item = CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok)
}

/// Returns the certificate and the private key of a Secret.
pub(crate) fn identity(contents: &Contents, name: &ObjectName) -> Result<SecretString, NotSent> {
    let key = |key| SecretKey::new(&name.namespace, &name.name, key);
    let pem = SecretString::from(format!("{}\n{}\n", contents.text(&key(CERTIFICATE))?, contents.text(&key(PRIVATE_KEY))?));
    match parsed(&pem) {
        Some(_) => Ok(pem),
        None => Err(NotSent::SecretInvalid { key: key(PRIVATE_KEY), problem: NO_IDENTITY }),
    }
}

/// Checks the same as [`identity`], and whether the private key belongs to the certificate. This check is too slow for each attempt.
pub(crate) fn checked_identity(contents: &Contents, name: &ObjectName) -> Result<(), NotSent> {
    let pem = identity(contents, name)?;
    let fits = parsed(&pem)
        .is_some_and(|(chain, key)| provider().and_then(|provider| CertifiedKey::from_der(chain, key, &provider)).is_ok());
    let key = SecretKey::new(&name.namespace, &name.name, PRIVATE_KEY);
    if fits { Ok(()) } else { Err(NotSent::SecretInvalid { key, problem: OTHER_KEY }) }
}

fn parsed(pem: &SecretString) -> Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let pem = pem.expose_secret().as_bytes();
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()?;
    let key = PrivateKeyDer::from_pem_slice(pem).ok()?;
    (!chain.is_empty()).then_some((chain, key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::tests::secret;

    #[test]
    fn different_settings_have_different_fingerprints() {
        let with = |authorities: Option<&str>, identity: Option<&str>, skip_verify| Tls {
            authorities: authorities.map(Arc::from),
            identity: identity.map(SecretString::from),
            skip_verify,
        };
        let all = [
            with(None, None, false),
            with(None, None, true),
            with(Some(""), None, false),
            with(Some("ab"), None, false),
            with(None, Some("ab"), false),
            with(Some("a"), Some("b"), false),
            with(Some("ab"), Some(""), false),
        ];
        let different: std::collections::HashSet<_> = all.iter().map(Tls::fingerprint).collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(Tls::default().fingerprint(), all[0].fingerprint());
    }

    #[test]
    fn an_invalid_certificate_is_reported() {
        let name = ObjectName::new("a", "tls");
        let contents = Contents::from(secret(&[("ca.crt", "junk"), ("tls.crt", "junk"), ("tls.key", "s3cr3t")]));
        let key = |key| SecretKey::new("a", "tls", key);
        for error in [
            authorities(&contents, &key("ca.crt")).unwrap_err(),
            authorities(&contents, &key("other")).unwrap_err(),
            identity(&contents, &name).unwrap_err(),
            checked_identity(&contents, &name).unwrap_err(),
        ] {
            assert!(error.to_string().contains("a/tls") && !error.to_string().contains("s3cr3t"), "{error}");
        }
    }

    #[test]
    fn a_key_of_another_certificate_is_reported() {
        crate::tests::provider();
        let name = ObjectName::new("a", "tls");
        let made = || rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (one, two) = (made(), made());
        let with = |key: &rcgen::KeyPair| {
            let contents = Contents::from(secret(&[("tls.crt", &one.cert.pem()), ("tls.key", &key.serialize_pem())]));
            checked_identity(&contents, &name)
        };
        assert_eq!(with(&one.signing_key), Ok(()));
        assert!(with(&two.signing_key).unwrap_err().to_string().contains("not the private key of the certificate"));
    }
}
