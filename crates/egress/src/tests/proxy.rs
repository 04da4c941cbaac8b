//! All requests through a proxy: which side gets which data, and which side an error names.

use tokio::io::copy_bidirectional;

use super::tls::{authority, issued_for, receiver, trusting_ca};
use super::*;
use relaybook_api::notification::credentials::Authorities;

/// Only the proxies of these tests can resolve this name.
const HOST: &str = "hooks.example";
/// `someone:open sesame`
const CREDENTIALS: &str = "proxy-authorization: Basic c29tZW9uZTpvcGVuIHNlc2FtZQ==";

/// A proxy that connects every client to this address.
async fn leading_to(place: SocketAddr) -> Receiver {
    Receiver::new(move |mut peer| async move {
        peer.request().await;
        let mut there = TcpStream::connect(place).await.unwrap();
        peer.write("HTTP/1.1 200 Connection established\r\n\r\n").await;
        _ = copy_bidirectional(&mut peer.stream, &mut there).await;
    })
    .await
}

fn at(host: impl std::fmt::Display) -> Proxy {
    format!("http://someone:open%20sesame@{host}").parse().unwrap()
}

fn strict_through(proxy: Proxy) -> Sender {
    provider();
    let policy = Policy { allow_http: true, ..Policy::default() };
    Sender::through(Some(proxy), policy, Secrets::fixed([]), Metrics::new()).unwrap()
}

fn url(text: &str) -> Outgoing {
    to(Destination::Url(text.parse().unwrap()))
}

#[tokio::test]
async fn http_goes_to_the_proxy_with_the_name_of_the_receiver() {
    let proxy = Receiver::answering(OK).await;
    // The operator chooses the address of the proxy. So the policy, which refuses loopback, does not apply to it.
    for host in [proxy.address.to_string(), format!("localhost:{}", proxy.address.port())] {
        let mut out = url("http://hooks.example:8080/services/T0?x=1");
        out.headers.push((HeaderName::from_static("proxy-authorization"), "of a template".parse().unwrap()));
        let sender = strict_through(at(host));
        assert_eq!(sender.send(out).await.result.status(), Some(200));
        let request = proxy.requests().pop().unwrap();
        assert!(request.starts_with("POST http://hooks.example:8080/services/T0?x=1 HTTP/1.1\r\n"), "{request}");
        assert!(request.lines().any(|l| l == CREDENTIALS) && request.contains("host: hooks.example:8080\r\n"), "{request}");
        assert!(!request.contains("of a template"), "{request}");
        let shown = format!("{sender:?}");
        assert!(!shown.contains("sesame") && !shown.contains("c29tZW"), "{shown}");
    }
}

#[tokio::test]
async fn https_uses_a_tunnel_and_the_receiver_sees_no_data_of_the_proxy() {
    provider();
    let ca = authority();
    let (certificate, key) = issued_for(HOST, &ca);
    let proxy = leading_to(receiver(vec![certificate.der().clone()], &key)).await;
    let attempt = trusting_ca(&ca, Some(at(proxy.address))).send(url("https://hooks.example/x")).await;
    assert_eq!(attempt.result.status(), Some(200), "{attempt:?}");
    let connect = proxy.requests().pop().unwrap();
    assert!(connect.starts_with("CONNECT hooks.example:443 HTTP/1.1\r\n"), "{connect}");
    assert!(connect.to_lowercase().contains(&CREDENTIALS.to_lowercase()), "{connect}");
    assert!(!connect.contains("webhook-id"), "{connect}");

    // The certificate of the receiver is verified in the same way with and without a tunnel.
    let (wrong, key) = issued_for("other.example", &ca);
    let proxy = leading_to(receiver(vec![wrong.der().clone()], &key)).await;
    let attempt = trusting_ca(&ca, Some(at(proxy.address))).send(url("https://hooks.example/x")).await;
    let expected = "TLS with hooks.example:443: the certificate is not valid for this host name";
    assert_eq!(attempt.result.error().as_deref(), Some(expected));
    assert_eq!(failure(&attempt).kind, FailureKind::Tls);
}

#[tokio::test]
async fn literal_addresses_are_refused_before_a_request_to_the_proxy() {
    let proxy = Receiver::answering(OK).await;
    let sender = strict_through(at(proxy.address));
    for host in ["127.0.0.1", "0x7f.1", "169.254.169.254", "[::1]", "[::ffff:169.254.169.254]"] {
        for scheme in ["http", "https"] {
            let attempt = sender.send(url(&format!("{scheme}://{host}/"))).await;
            let forbidden = matches!(attempt.result, AttemptResult::NotSent(NotSent::DestinationForbidden(_)));
            assert!(forbidden, "{scheme}://{host}: {attempt:?}");
        }
    }
    assert_eq!(proxy.connections(), 0);
}

#[tokio::test]
async fn errors_of_the_proxy_name_the_proxy() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let answers = |text: &'static str| {
        Receiver::new(move |mut peer| async move {
            peer.request().await;
            peer.write(text).await;
        })
    };
    let denies = answers("HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n").await;
    let forbids = answers("HTTP/1.1 403 Forbidden\r\ncontent-length: 4\r\n\r\nnope").await;
    let fails = answers("HTTP/1.1 502 Bad Gateway\r\n\r\n").await;
    let closes = answers("").await;
    let babbles = answers("SSH-2.0-OpenSSH_9.9\r\n").await;
    let silent = Receiver::new(async |mut peer| while peer.request().await.is_some() {}).await;
    let (https, http) = ("https://hooks.example/", "http://hooks.example/");
    let credentials = "requires credentials, or rejects the configured ones";
    let refuses = "refuses to connect to the receiver, or cannot connect to it";
    for (place, url_, words) in [
        (gone, https, "no connection to the proxy PROXY: connection refused".to_owned()),
        (gone, http, "no connection to the proxy PROXY: connection refused".to_owned()),
        (denies.address, https, format!("the proxy PROXY {credentials}")),
        (denies.address, http, format!("the proxy PROXY {credentials}")),
        (forbids.address, https, format!("the proxy PROXY {refuses}")),
        (fails.address, https, format!("the proxy PROXY {refuses}")),
        (closes.address, https, "the proxy PROXY sent an invalid answer".to_owned()),
        (babbles.address, https, format!("the proxy PROXY {refuses}")),
        (silent.address, https, "no connection through the proxy PROXY within 300ms".to_owned()),
    ] {
        let connect_timeout = if place == silent.address { SHORT } else { LONG };
        let attempt = strict_through(at(place)).send(Outgoing { connect_timeout, ..url(url_) }).await;
        let expected = words.replace("PROXY", &place.to_string());
        assert_eq!(attempt.result.error(), Some(expected), "{url_}");
        let reason = if place == silent.address { Reason::Timeout } else { Reason::ConnectionFailed };
        assert_eq!(classify(&attempt.result, 0), Verdict::Retry { not_before: None, reason });
        assert!(!format!("{attempt:?}").contains("sesame"), "{attempt:?}");
    }
    // The resolver rejects a label of 64 characters without a DNS query.
    let attempt = strict_through(at(format!("{}.example:3128", "a".repeat(64)))).send(url(https)).await;
    let words = attempt.result.error().unwrap();
    assert!(words.starts_with("the name of the proxy aaaa") && words.ends_with("could not be resolved"), "{words}");
    assert_eq!(failure(&attempt).kind, FailureKind::Connect);
}

#[tokio::test]
async fn credentials_of_the_proxy_are_masked_in_an_answer() {
    let proxy = Receiver::new(async |mut peer| {
        while let Some(request) = peer.request().await {
            let said = format!("open sesame, {request}");
            peer.write(&format!("HTTP/1.1 502 X\r\ncontent-length: {}\r\n\r\n{said}", said.len())).await;
        }
    })
    .await;
    let attempt = strict_through(at(proxy.address)).send(url("http://hooks.example/")).await;
    assert_eq!(attempt.result.status(), Some(502));
    assert!(!body(&attempt).contains("sesame") && !body(&attempt).contains("c29tZW"), "{attempt:?}");
}

/// A proxy over TLS with this certificate. It opens no connection and answers every request with 200.
fn over_tls(certificate: &rcgen::Certificate, key: &rcgen::KeyPair) -> SocketAddr {
    receiver(vec![certificate.der().clone()], key)
}

#[tokio::test]
async fn tls_settings_of_an_endpoint_do_not_apply_to_the_proxy() {
    provider();
    let (ca, other) = (authority(), authority());
    let (certificate, key) = issued_for("127.0.0.1", &ca);
    let (strange, strange_key) = issued_for("127.0.0.1", &other);
    let (good, bad) = (over_tls(&certificate, &key), over_tls(&strange, &strange_key));
    let through = |place| trusting_ca(&ca, Some(format!("https://someone:sesame@{place}").parse().unwrap()));
    let own = TlsRef { authorities: Authorities::Pem(other.pem().into()), ..TlsRef::default() };
    let any = TlsRef { skip_verify: true, ..TlsRef::default() };
    for tls in [TlsRef::default(), own, any] {
        // This server is not a real proxy, but it gets the request over a trusted connection.
        let http = Outgoing { tls: tls.clone(), ..url("http://hooks.example/") };
        assert_eq!(through(good).send(http.clone()).await.result.status(), Some(200), "{tls:?}");
        let https = Outgoing { tls: tls.clone(), ..url("https://hooks.example/") };
        for out in [http, https] {
            let attempt = through(bad).send(out).await;
            let words = attempt.result.error().unwrap();
            assert!(words.starts_with(&format!("the proxy {bad}: TLS: the certificate is")), "{tls:?}: {words}");
        }
    }
}
