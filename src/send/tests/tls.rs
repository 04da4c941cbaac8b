//! Certificates: the good one and the bad ones.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rcgen::{CertificateParams, CertifiedIssuer, KeyPair, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;

/// A receiver with this certificate; its address.
fn receiver(chain: Vec<rustls::pki_types::CertificateDer<'static>>, key: &KeyPair) -> SocketAddr {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = Arc::new(ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap());
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

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn to_tls(address: SocketAddr) -> Outgoing {
    to(Destination::Url(format!("https://{address}/").parse().unwrap()))
}

#[tokio::test]
async fn only_a_certificate_that_is_right_in_every_way_is_trusted() {
    provider();
    let ca = authority();
    let root = reqwest::Certificate::from_der(ca.der()).unwrap();
    let sender = Sender::trusting(lax(), Secrets::fixed([]), Metrics::new(), vec![root]).unwrap();
    let for_name = |name: &str| CertificateParams::new(vec![name.to_owned()]).unwrap();
    let mut expired = for_name("127.0.0.1");
    expired.not_before = date_time_ymd(2001, 1, 1);
    expired.not_after = date_time_ymd(2002, 1, 1);
    let mut early = for_name("127.0.0.1");
    early.not_before = date_time_ymd(3001, 1, 1);
    early.not_after = date_time_ymd(3002, 1, 1);
    for (params, words) in [
        (for_name("127.0.0.1"), None),
        (for_name("hooks.example"), Some("TLS: the certificate is for another name")),
        (expired, Some("TLS: the certificate has expired")),
        (early, Some("TLS: the certificate is not valid yet")),
    ] {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &ca).unwrap();
        let attempt = sender.send(to_tls(receiver(vec![certificate.der().clone()], &key))).await;
        assert_eq!(attempt.result.error().as_deref(), words);
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
    let attempt = sender().send(to_tls(receiver(vec![certificate.der().clone()], &key))).await;
    assert_eq!(failure(&attempt).kind, FailureKind::Tls, "{attempt:?}");
    let words = "TLS: the certificate is self-signed or from an unknown authority";
    assert_eq!(attempt.result.error().as_deref(), Some(words));
}

#[tokio::test]
async fn a_receiver_without_tls_is_told_apart() {
    let plain = Receiver::new(async |mut peer| {
        peer.write("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let attempt = sender().send(to_tls(plain.address)).await;
    assert_eq!(attempt.result.error().as_deref(), Some("TLS: the receiver does not speak TLS"), "{attempt:?}");
    assert_eq!(failure(&attempt).kind, FailureKind::Tls);
}
