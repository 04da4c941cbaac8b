//! Whose certificate is good for what.
//!
//! A proxy over TLS and a receiver behind it are verified by one client, but not by the same rules: what an endpoint says of its
//! receiver (authorities of its own, no verification at all) must not decide who gets the password of the proxy. So the name that
//! a certificate is to be for says which rules hold.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// Who verifies the certificate of a server.
pub(in crate::webhook) type Verifies = Arc<dyn ServerCertVerifier>;

/// Verifies the proxy by one set of rules and everybody else by another.
#[derive(Debug)]
pub(in crate::webhook) struct Trust {
    /// `None`: whoever it is.
    receiver: Option<Verifies>,
    proxy: Option<(ServerName<'static>, Verifies)>,
    schemes: Vec<SignatureScheme>,
}

impl Trust {
    /// With rules for receivers, or none to take anybody; and with rules for the proxy of this name, if it is spoken to over TLS.
    pub(in crate::webhook) fn new(
        receiver: Option<Verifies>,
        proxy: Option<(ServerName<'static>, Verifies)>,
        provider: &CryptoProvider,
    ) -> Self {
        Self { receiver, proxy, schemes: provider.signature_verification_algorithms.supported_schemes() }
    }

    /// Who verifies that the other side has the key of its certificate, which is the same for all rules. Nobody, if nobody is to
    /// be verified.
    fn of_signatures(&self) -> Option<&dyn ServerCertVerifier> {
        self.receiver.as_deref().or_else(|| self.proxy.as_ref().map(|(_, verifier)| &**verifier))
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
        match self.of_signatures() {
            Some(verifier) => verifier.verify_tls12_signature(message, certificate, signed),
            None => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self.of_signatures() {
            Some(verifier) => verifier.verify_tls13_signature(message, certificate, signed),
            None => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
