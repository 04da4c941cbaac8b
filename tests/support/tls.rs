//! Valid and invalid certificates, and TLS configurations of receivers that present them.

use std::sync::Arc;

use rcgen::{CertificateParams, CertifiedIssuer, DnType, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub struct Pair {
    /// The certificate.
    pub certificate: rcgen::Certificate,
    /// Its key.
    pub key: KeyPair,
}

/// Returns the parameters of a valid certificate: issued for this name, and valid now.
pub fn params(name: &str) -> CertificateParams {
    CertificateParams::new(vec![name.to_owned()]).expect("a name")
}

/// Returns a client that trusts only these CA certificates.
pub fn client(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> reqwest::Client {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).expect("a certificate");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls.expect("ring has them").with_root_certificates(roots).with_no_client_auth();
    let client = reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().http1_only();
    client.build().expect("a client")
}

impl Authority {
    /// Creates an authority. A world must exist, because its client installs the cryptography provider.
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "an authority");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Returns its own certificate in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Returns a client that trusts only this authority.
    pub fn client(&self) -> reqwest::Client {
        client([self.0.der().clone()])
    }

    /// Issues a certificate with these parameters.
    pub fn issue(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Pair { certificate, key }
    }
}

impl Pair {
    /// Creates a self-signed certificate.
    pub fn self_signed(params: &CertificateParams) -> Self {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Self { certificate, key }
    }

    /// Returns the configuration of a receiver that presents this certificate. With `demanding`, clients must present a
    /// certificate of that authority.
    pub fn server(&self, demanding: Option<&Authority>) -> ServerConfig {
        let builder = match demanding {
            None => ServerConfig::builder().with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.0.der().clone()).expect("an authority");
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().expect("a verifier");
                ServerConfig::builder().with_client_cert_verifier(verifier)
            }
        };
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).expect("a key");
        builder.with_single_cert(vec![self.certificate.der().clone()], key).expect("they belong together")
    }
}
