//! Trust in the certificate of a server: by a chain to a CA, or because it is itself in the bundle.
//!
//! In: the certificates of a bundle ([`Bundle`]), which verifies the servers of TLS clients. Out: a decision for each certificate of a
//! server, and for a refusal the remedy, if there is a specific one ([`remedy`]). Pure: TLS passes the time.
//!
//! `openssl req -x509` makes a certificate of a CA, and people use it as the certificate of a server, too. `webpki` refuses that use.
//! OpenSSL accepts a certificate that is in its bundle. So does this module: the same bytes, within the period of validity, with a
//! matching name. A signature of the handshake proves the possession of the private key, as for any certificate.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// The text of `webpki` for the certificate of a CA that a server presents. The type of the error is not public.
const CA_AS_SERVER: &str = "CaUsedAsEndEntity";

/// Object identifiers in DER: the extension "extended key usage", and two usages: servers, and any.
const KEY_USAGE: &[u8] = &[0x06, 0x03, 0x55, 0x1d, 0x25];
const SERVERS: &[u8] = &[0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const ANY_USAGE: &[u8] = &[0x06, 0x04, 0x55, 0x1d, 0x25, 0x00];

/// The certificates that are trusted instead of those of the system.
#[derive(Debug)]
pub struct Bundle {
    chains: Arc<WebPkiServerVerifier>,
    exact: Vec<CertificateDer<'static>>,
}

impl Bundle {
    /// Returns `None` if none of the certificates is usable as that of a CA.
    #[must_use]
    pub fn new(
        certificates: impl IntoIterator<Item = CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Option<Self> {
        let exact: Vec<_> = certificates.into_iter().collect();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(exact.iter().cloned());
        let chains = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().ok()?;
        Some(Self { chains, exact })
    }

    /// Accepts a certificate that is in the bundle. `webpki` checks the period of validity before everything else, so it is valid now.
    fn accept(&self, certificate: &CertificateDer<'_>, name: &ServerName<'_>, refusal: Error) -> Result<(), Error> {
        let is_known = self.exact.iter().any(|known| known.as_ref() == certificate.as_ref());
        if !(is_known && is_about_issuer(&refusal)) {
            return Err(refusal);
        }
        if !is_for_servers(certificate) {
            return Err(CertificateError::InvalidPurpose.into());
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
    }
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.chains.verify_server_cert(end_entity, intermediates, name, ocsp, now).or_else(|refusal| {
            self.accept(end_entity, name, refusal)?;
            Ok(ServerCertVerified::assertion())
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// Returns what is wrong with the certificate of a server, and the remedy, as the end of a sentence about it. `None`: the kind of the error
/// says enough. `bundle`: the field of the trusted certificates.
#[must_use]
pub fn remedy(error: &CertificateError, bundle: &str) -> Option<String> {
    match error {
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => Some(
            "has no subject alternative name, and its common name is not used; make one with `openssl req -x509 … -addext \
             subjectAltName=DNS:NAME` (or IP:ADDRESS)"
                .to_owned(),
        ),
        CertificateError::Other(_) if is_ca_as_server(error) => Some(format!(
            "is that of a CA (CA:TRUE), and not one of the trusted certificates; put exactly this certificate into {bundle}, or use one with \
             CA:FALSE"
        )),
        _ => None,
    }
}

/// Whether only the issuer is the reason of a refusal.
fn is_about_issuer(refusal: &Error) -> bool {
    match refusal {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => true,
        Error::InvalidCertificate(error) => is_ca_as_server(error),
        _ => false,
    }
}

fn is_ca_as_server(error: &CertificateError) -> bool {
    matches!(error, CertificateError::Other(other) if other.to_string() == CA_AS_SERVER)
}

/// Whether a certificate is usable for servers: it has no extended key usage, or this one. `webpki` does not check that for a CA.
fn is_for_servers(certificate: &[u8]) -> bool {
    let after = |id: &[u8], of: &[u8]| of.windows(id.len()).position(|window| window == id).map(|at| at + id.len());
    let Some(usages) = after(KEY_USAGE, certificate) else { return true };
    [SERVERS, ANY_USAGE].iter().any(|usage| after(usage, &certificate[usages..]).is_some())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd};

    use super::*;

    /// The parameters of `openssl req -x509`, for a name.
    fn of_ca(names: &[&str]) -> CertificateParams {
        let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "hooks.example");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    fn signed(params: &CertificateParams) -> CertificateDer<'static> {
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn verified(bundle: &[&CertificateDer<'static>], certificate: &CertificateDer<'_>) -> Result<(), String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let bundle = Bundle::new(bundle.iter().map(|one| (*one).clone()), provider).unwrap();
        let name = ServerName::try_from("hooks.example").unwrap();
        // 2026-01-01
        let now = UnixTime::since_unix_epoch(Duration::from_hours(490_896));
        let result = bundle.verify_server_cert(certificate, &[], &name, &[], now);
        result.map(|_| ()).map_err(|error| match &error {
            Error::InvalidCertificate(why) => remedy(why, "caFrom").unwrap_or_else(|| format!("{why:?}")),
            _ => format!("{error:?}"),
        })
    }

    #[test]
    fn a_certificate_of_the_bundle_is_accepted() {
        let with = |change: &dyn Fn(&mut CertificateParams)| {
            let mut params = of_ca(&["hooks.example"]);
            change(&mut params);
            signed(&params)
        };
        let usages = |usages: &[ExtendedKeyUsagePurpose]| with(&|params| params.extended_key_usages = usages.to_vec());
        for (case, certificate, refusal) in [
            ("a CA", with(&|_| ()), None),
            ("a leaf", with(&|params| params.is_ca = IsCa::NoCa), None),
            ("an explicit leaf", with(&|params| params.is_ca = IsCa::ExplicitNoCa), None),
            ("another name", signed(&of_ca(&["other.example"])), Some("NotValidForNameContext")),
            ("no name", signed(&of_ca(&[])), Some("-addext subjectAltName=DNS:NAME")),
            ("expired", with(&|params| params.not_after = date_time_ymd(2025, 1, 1)), Some("Expired")),
            ("early", with(&|params| params.not_before = date_time_ymd(2027, 1, 1)), Some("NotValidYet")),
            ("for clients", usages(&[ExtendedKeyUsagePurpose::ClientAuth]), Some("InvalidPurpose")),
            ("for servers", usages(&[ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth]), None),
            ("for anything", usages(&[ExtendedKeyUsagePurpose::Any]), None),
        ] {
            let result = verified(&[&signed(&of_ca(&["ca.example"])), &certificate], &certificate);
            match refusal {
                None => assert_eq!(result, Ok(()), "{case}"),
                Some(words) => assert!(result.as_ref().unwrap_err().contains(words), "{case}: {result:?}"),
            }
        }
    }

    #[test]
    fn a_certificate_that_is_not_in_the_bundle_is_refused() {
        let (known, same_name) = (signed(&of_ca(&["hooks.example"])), signed(&of_ca(&["hooks.example"])));
        let said = verified(&[&known], &same_name).unwrap_err();
        assert!(said.contains("CA:TRUE") && said.contains("into caFrom"), "{said}");
        let leaf = signed(&CertificateParams::new(vec!["hooks.example".to_owned()]).unwrap());
        assert_eq!(verified(&[&known], &leaf).unwrap_err(), "UnknownIssuer");
    }

    #[test]
    fn a_leaf_certificate_in_the_bundle_is_accepted_without_its_ca() {
        let ca = rcgen::CertifiedIssuer::self_signed(of_ca(&[]), KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["hooks.example".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
        assert_eq!(verified(&[leaf.der()], leaf.der()), Ok(()));
        assert_eq!(verified(&[ca.der()], leaf.der()), Ok(()), "by the chain");
        // Another CA of the same name.
        let other = signed(&of_ca(&["x.example"]));
        assert_eq!(verified(&[&other], leaf.der()).unwrap_err(), "BadSignature");
        assert_eq!(verified(&[&other, leaf.der()], leaf.der()), Ok(()));
    }
}
