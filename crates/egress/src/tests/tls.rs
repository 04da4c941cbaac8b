//! Valid and invalid certificates.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rcgen::{CertificateParams, CertifiedIssuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::exchange::asking;
use super::*;
use relaybook_api::ObjectName;
use relaybook_api::notification::credentials::{Authorities, TlsRef};

/// Starts a receiver with this certificate, and returns its address.
pub(super) fn receiver(chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> SocketAddr {
    serve(ServerConfig::builder().with_no_client_auth(), chain, key)
}

/// Starts a receiver with this certificate that requires a client certificate of this CA, and returns its address.
fn demanding(chain: Vec<CertificateDer<'static>>, key: &KeyPair, ca: &CertifiedIssuer<'_, KeyPair>) -> SocketAddr {
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
    serve(ServerConfig::builder().with_client_cert_verifier(verifier), chain, key)
}

fn serve(
    builder: rustls::ConfigBuilder<ServerConfig, rustls::server::WantsServerCert>,
    chain: Vec<CertificateDer<'static>>,
    key: &KeyPair,
) -> SocketAddr {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = Arc::new(builder.with_single_cert(chain, key).unwrap());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut tls = StreamOwned::new(connection, stream.unwrap());
            let mut request = [0; 4096];
            if tls.read(&mut request).is_ok_and(|n| n > 0) {
                _ = tls.write_all(OK.as_bytes());
                tls.conn.send_close_notify();
                _ = tls.flush();
            }
        }
    });
    address
}

pub(super) fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A sender that trusts this CA in addition to those of the system.
pub(super) fn trusting_ca(ca: &CertifiedIssuer<'_, KeyPair>, proxy: Option<Proxy>) -> Sender {
    provider();
    Sender::trusting(vec![ca.der().clone()], proxy, lax(), Secrets::fixed([]), Metrics::new()).unwrap()
}

fn to_tls(address: SocketAddr) -> Outgoing {
    to(Destination::Url(format!("https://{address}/").parse().unwrap()))
}

#[tokio::test]
async fn only_a_fully_valid_certificate_is_trusted() {
    provider();
    let ca = authority();
    let sender = trusting_ca(&ca, None);
    let for_name = |name: &str| CertificateParams::new(vec![name.to_owned()]).unwrap();
    let mut expired = for_name("127.0.0.1");
    expired.not_before = date_time_ymd(2001, 1, 1);
    expired.not_after = date_time_ymd(2002, 1, 1);
    let mut early = for_name("127.0.0.1");
    early.not_before = date_time_ymd(3001, 1, 1);
    early.not_after = date_time_ymd(3002, 1, 1);
    for (params, words) in [
        (for_name("127.0.0.1"), None),
        (for_name("hooks.example"), Some("the certificate is not valid for this host name")),
        (expired, Some("the certificate has expired")),
        (early, Some("the certificate is not valid yet")),
    ] {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &ca).unwrap();
        let address = receiver(vec![certificate.der().clone()], &key);
        let attempt = sender.send(to_tls(address)).await;
        assert_eq!(attempt.result.error(), words.map(|words| format!("TLS with {address}: {words}")));
        match words {
            None => assert_eq!(attempt.result.status(), Some(200)),
            Some(_) => assert_eq!(failure(&attempt).kind, FailureKind::Tls),
        }
    }
}

#[tokio::test]
async fn a_self_signed_certificate_is_refused() {
    provider();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let address = receiver(vec![certificate.der().clone()], &key);
    let attempt = sender().send(to_tls(address)).await;
    assert_eq!(failure(&attempt).kind, FailureKind::Tls, "{attempt:?}");
    let words = format!("TLS with {address}: the certificate is self-signed or signed by an unknown CA");
    assert_eq!(attempt.result.error(), Some(words));
}

#[tokio::test]
async fn a_receiver_without_tls_has_its_own_error() {
    let plain = Receiver::new(async |mut peer| {
        peer.write("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let attempt = sender().send(to_tls(plain.address)).await;
    let words = format!("TLS with {}: the receiver does not speak TLS", plain.address);
    assert_eq!(attempt.result.error(), Some(words), "{attempt:?}");
    assert_eq!(failure(&attempt).kind, FailureKind::Tls);
}

/// A certificate of this CA for loopback, and its key.
fn issued(ca: &CertifiedIssuer<'_, KeyPair>) -> (rcgen::Certificate, KeyPair) {
    issued_for("127.0.0.1", ca)
}

/// A certificate of this CA for a name, and its key.
pub(super) fn issued_for(name: &str, ca: &CertifiedIssuer<'_, KeyPair>) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    (CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, ca).unwrap(), key)
}

fn with_secrets(values: &[(&str, String)]) -> Sender {
    let values = values.iter().map(|(key, value)| (SecretKey::new("team-a", "tls", key), value.clone()));
    Sender::new(lax(), Secrets::fixed(values), Metrics::new()).unwrap()
}

fn trusting(authorities: Authorities) -> TlsRef {
    TlsRef { authorities, ..TlsRef::default() }
}

#[tokio::test]
async fn only_the_ca_certificates_of_the_endpoint_are_trusted() {
    provider();
    let (ca, other) = (authority(), authority());
    let (certificate, key) = issued(&ca);
    let address = receiver(vec![certificate.der().clone()], &key);
    let sender =
        with_secrets(&[("ca.crt", ca.pem()), ("both.crt", format!("{}{}", other.pem(), ca.pem())), ("junk", "x".into())]);
    let of = |key| Authorities::Secret(SecretKey::new("team-a", "tls", key));
    let unknown = &*format!("TLS with {address}: the certificate is self-signed or signed by an unknown CA");
    let another = &*format!("TLS with {address}: the certificate is not signed by the CA that it names as issuer");
    for (tls, error) in [
        (trusting(of("ca.crt")), None),
        (trusting(of("both.crt")), None),
        (trusting(Authorities::Pem(ca.pem().into())), None),
        // This CA has the same name as the right one, and another key.
        (trusting(Authorities::Pem(other.pem().into())), Some(another)),
        (trusting(Authorities::System), Some(unknown)),
        (TlsRef { skip_verify: true, ..TlsRef::default() }, None),
        (trusting(of("junk")), Some("Secret team-a/tls, key junk: contains no certificate in PEM format")),
        (trusting(of("none")), Some("Secret team-a/tls has no key none")),
    ] {
        let attempt = sender.send(Outgoing { tls: tls.clone(), ..to_tls(address) }).await;
        assert_eq!(attempt.result.error().as_deref(), error, "{tls:?}");
    }
}

#[tokio::test]
async fn a_certificate_of_a_ca_is_accepted_from_a_receiver_only_if_it_is_configured() {
    provider();
    let of_ca = |name: &[&str]| {
        let mut params = CertificateParams::new(name.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params
    };
    let mut expired = of_ca(&["127.0.0.1"]);
    (expired.not_before, expired.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    let other = authority().pem();
    let stranger = "the certificate is that of a CA (CA:TRUE), and not one of the trusted certificates; \
                    put exactly this certificate into caFrom";
    let nameless = "the certificate has no subject alternative name, and its common name is not used; make one with \
                    `openssl req -x509 … -addext subjectAltName=DNS:NAME`";
    for (params, configured, words) in [
        (of_ca(&["127.0.0.1"]), true, None),
        (of_ca(&["127.0.0.1"]), false, Some(stranger)),
        (of_ca(&["hooks.example"]), true, Some("the certificate is not valid for this host name")),
        (of_ca(&[]), true, Some(nameless)),
        (expired, true, Some("the certificate has expired")),
    ] {
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let address = receiver(vec![certificate.der().clone()], &key);
        let bundle = if configured { format!("{other}{}", certificate.pem()) } else { other.clone() };
        let tls = trusting(Authorities::Pem(bundle.into()));
        let result = sender().send(Outgoing { tls: tls.clone(), ..to_tls(address) }).await.result;
        // A forge and its Git server are verified in the same way.
        let forge = sender().ask(ForgeRequest { tls, ..asking(format!("https://{address}/")) }).await;
        match words {
            None => {
                assert_eq!(result.status(), Some(200), "{result:?}");
                assert_eq!(forge.unwrap().status, 200);
            }
            Some(words) => {
                for said in [result.error().unwrap(), forge.unwrap_err().to_string()] {
                    assert!(said.starts_with(&format!("TLS with {address}: {words}")), "{said}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_client_certificate_is_sent_when_the_receiver_requests_it() {
    provider();
    let (ca, clients) = (authority(), authority());
    let (certificate, key) = issued(&ca);
    let address = demanding(vec![certificate.der().clone()], &key, &clients);
    let (ours, our_key) = issued(&clients);
    let (theirs, their_key) = issued(&ca);
    let tls = |name: Option<&str>| TlsRef {
        authorities: Authorities::Pem(ca.pem().into()),
        client_certificate: name.map(|name| ObjectName::new("team-a", name)),
        skip_verify: false,
    };
    let send = async |certificate: String, key: String, name| {
        let sender = with_secrets(&[("tls.crt", certificate), ("tls.key", key)]);
        sender.send(Outgoing { tls: tls(name), ..to_tls(address) }).await
    };
    let good = send(ours.pem(), our_key.serialize_pem(), Some("tls")).await;
    assert_eq!(good.result.status(), Some(200), "{good:?}");
    for name in [None, Some("tls")] {
        let refused = send(theirs.pem(), their_key.serialize_pem(), name).await;
        assert!(matches!(failure(&refused).kind, FailureKind::Tls | FailureKind::Closed), "{refused:?}");
    }
    let junk = send(ours.pem(), "s3cr3t".into(), Some("tls")).await;
    let words = junk.result.error().unwrap();
    assert!(words.contains("Secret team-a/tls, key tls.key") && !words.contains("s3cr3t"), "{words}");
}

#[tokio::test]
async fn invalid_certificates_that_were_not_checked_are_reported_when_used() {
    provider();
    let ca = authority();
    let (certificate, key) = issued(&ca);
    let address = receiver(vec![certificate.der().clone()], &key);
    let (ours, _) = issued(&ca);
    let (_, another_key) = issued(&ca);
    let sender = with_secrets(&[("tls.crt", ours.pem()), ("tls.key", another_key.serialize_pem())]);
    let name = ObjectName::new("team-a", "tls");
    let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for tls in [trusting(Authorities::Pem(junk.into())), TlsRef { client_certificate: Some(name), ..TlsRef::default() }] {
        let attempt = sender.send(Outgoing { tls: tls.clone(), ..to_tls(address) }).await;
        let words = attempt.result.error().unwrap();
        assert!(words.contains("certificates of endpoint.tls cannot be used"), "{tls:?}: {words}");
        assert_eq!(classify(&attempt.result, 0), Verdict::Blocked { reason: Reason::InvalidRequest });
    }
}
