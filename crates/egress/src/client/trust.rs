//! Selects the rules that verify a certificate.
//!
//! One client verifies a proxy over TLS and a receiver behind it, but with different rules. An endpoint can set its own CA certificates for
//! its receiver, or disable verification. These settings must not decide which server gets the password of the proxy. So the expected name
//! of a certificate selects the rules.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// The verifier for the certificate of a server.
pub(crate) type Verifies = Arc<dyn ServerCertVerifier>;

/// Verifies the proxy with one set of rules, and all other servers with another.
#[derive(Debug)]
pub(crate) struct Trust {
    /// `None`: accepts every certificate.
    receiver: Option<Verifies>,
    proxy: Option<(ServerName<'static>, Verifies)>,
    schemes: Vec<SignatureScheme>,
}

impl Trust {
    /// `receiver`: rules for receivers; `None` accepts every certificate. `proxy`: name of the proxy and rules for it, if it uses TLS.
    pub(crate) fn new(
        receiver: Option<Verifies>,
        proxy: Option<(ServerName<'static>, Verifies)>,
        provider: &CryptoProvider,
    ) -> Self {
        Self { receiver, proxy, schemes: provider.signature_verification_algorithms.supported_schemes() }
    }

    /// Checks whether the other side has the private key of its certificate. This check is the same for all rules. It is left out if there
    /// are no rules at all.
    fn signed(
        &self,
        check: impl FnOnce(&dyn ServerCertVerifier) -> Result<HandshakeSignatureValid, Error>,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verifier = self.receiver.as_deref().or_else(|| self.proxy.as_ref().map(|(_, verifier)| &**verifier));
        verifier.map_or_else(|| Ok(HandshakeSignatureValid::assertion()), check)
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let of_proxy = self.proxy.as_ref().filter(|(proxy, _)| proxy == name).map(|(_, verifier)| verifier);
        match of_proxy.or(self.receiver.as_ref()) {
            Some(verifier) => verifier.verify_server_cert(end_entity, intermediates, name, ocsp, now),
            None => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(|verifier| verifier.verify_tls12_signature(message, certificate, signed))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(|verifier| verifier.verify_tls13_signature(message, certificate, signed))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
