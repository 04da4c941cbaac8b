//! Whom a connection trusts, and who it says it is.
//!
//! In: what the endpoint says ([`TlsRef`](crate::api::credentials::TlsRef)), and what Secrets hold. Out: [`Tls`], which tells
//! one client from another by a hash, so that what is the same everywhere is parsed once.

use std::sync::Arc;

use reqwest::{Certificate, ClientBuilder, Identity};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest as _, Sha256};

use super::attempt::NotSent;
use super::secrets::Contents;
use crate::api::credentials::{CERTIFICATE, PRIVATE_KEY, SecretKey, SecretName};

const NO_CERTIFICATE: &str = "holds no certificate in PEM";
const NO_IDENTITY: &str = "is no private key in PEM, or tls.crt is no certificate in PEM";

/// The settings of a connection's TLS.
#[derive(Clone, Debug, Default)]
pub(super) struct Tls {
    authorities: Option<Arc<str>>,
    identity: Option<SecretString>,
    skip_verify: bool,
}

/// What tells the settings of one client from those of another.
pub(super) type Fingerprint = [u8; 32];

impl Tls {
    /// Trusts these authorities, PEM, and no others.
    pub(super) fn trust(&mut self, pem: Arc<str>) {
        self.authorities = Some(pem);
    }

    /// Trusts the authorities that are the value of a key, and no others.
    pub(super) fn trust_secret(&mut self, contents: &Contents, key: &SecretKey) -> Result<(), NotSent> {
        self.trust(authorities(contents, key)?);
        Ok(())
    }

    /// Shows the certificate that a Secret of type `kubernetes.io/tls` holds.
    pub(super) fn identify(&mut self, contents: &Contents, name: &SecretName) -> Result<(), NotSent> {
        self.identity = Some(identity(contents, name)?);
        Ok(())
    }

    /// Takes any certificate.
    pub(super) fn skip_verify(&mut self) {
        self.skip_verify = true;
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        let mut hash = Sha256::new();
        for part in [self.authorities.as_deref(), self.identity.as_ref().map(ExposeSecret::expose_secret)] {
            // The length keeps apart what stands in one part from what stands in the next.
            hash.update(part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
            hash.update(part.unwrap_or_default().as_bytes());
        }
        hash.update([u8::from(self.skip_verify)]);
        hash.finalize().into()
    }

    /// Puts the settings into a client. The error is of what was read before and changed under way.
    pub(super) fn apply(&self, mut builder: ClientBuilder) -> Result<ClientBuilder, reqwest::Error> {
        if let Some(pem) = &self.authorities {
            builder = builder.tls_certs_only(Certificate::from_pem_bundle(pem.as_bytes())?);
        }
        if let Some(pem) = &self.identity {
            builder = builder.identity(Identity::from_pem(pem.expose_secret().as_bytes())?);
        }
        Ok(if self.skip_verify { builder.tls_danger_accept_invalid_certs(true) } else { builder })
    }
}

/// The authorities that are the value of a key.
pub(super) fn authorities(contents: &Contents, key: &SecretKey) -> Result<Arc<str>, NotSent> {
    let pem = contents.text(key)?;
    let certificates = Certificate::from_pem_bundle(pem.as_bytes()).unwrap_or_default();
    if certificates.is_empty() {
        return Err(NotSent::SecretInvalid { key: key.clone(), problem: NO_CERTIFICATE });
    }
    Ok(Arc::from(pem))
}

/// Certificate and private key of a Secret.
pub(super) fn identity(contents: &Contents, name: &SecretName) -> Result<SecretString, NotSent> {
    let key = |key| SecretKey::new(&name.namespace, &name.name, key);
    let pem = SecretString::from(format!("{}\n{}\n", contents.text(&key(CERTIFICATE))?, contents.text(&key(PRIVATE_KEY))?));
    match Identity::from_pem(pem.expose_secret().as_bytes()) {
        Ok(_) => Ok(pem),
        Err(_) => Err(NotSent::SecretInvalid { key: key(PRIVATE_KEY), problem: NO_IDENTITY }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send::secrets::tests::secret;

    #[test]
    fn settings_that_differ_have_other_fingerprints() {
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
    fn what_is_no_certificate_is_told() {
        let name = SecretName { namespace: "a".to_owned(), name: "tls".to_owned() };
        let contents = Contents::from(secret(&[("ca.crt", "junk"), ("tls.crt", "junk"), ("tls.key", "s3cr3t")]));
        let key = |key| SecretKey::new("a", "tls", key);
        for error in [
            authorities(&contents, &key("ca.crt")).unwrap_err(),
            authorities(&contents, &key("other")).unwrap_err(),
            identity(&contents, &name).unwrap_err(),
        ] {
            assert!(error.to_string().contains("a/tls") && !error.to_string().contains("s3cr3t"), "{error}");
        }
    }
}
