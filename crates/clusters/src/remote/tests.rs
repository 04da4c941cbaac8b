use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::Receiver;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::kubeconfig::Credentials;
use super::*;
use crate::Options;
use relaybook_api::values::refs::{ClusterAppRef, ClusterKind};
use relaybook_core::reading::{Application, Follower};

fn cluster(name: &str) -> ClusterRef {
    ClusterRef { api_version: None, kind: ClusterKind::Secret, name: name.into(), namespace: Some("team".into()) }
}

fn app(cluster_ref: Option<ClusterRef>) -> Application {
    let object = ClusterAppRef { api_version: "v1".into(), kind: "K".into(), cluster_ref, ..ClusterAppRef::default() };
    Application { object, ..Application::default() }
}

/// Returns the task of cluster `eu`. One of three pipelines needs two objects of it.
fn prober() -> (Prober, Receiver<Follower>) {
    let (shared, woken) = Shared::new(Options::default(), relaybook_telemetry::Metrics::new());
    let mut twice = app(Some(cluster("eu")));
    twice.object.name = "another".to_owned();
    for (name, apps) in [
        ("far", vec![app(Some(cluster("eu"))), twice]),
        ("other", vec![app(Some(cluster("us")))]),
        ("near", vec![app(None)]),
    ] {
        let pipeline = Follower::pipeline("team", name);
        shared.store().declare(&pipeline, apps.into_iter().collect(), &CancellationToken::new());
    }
    let prober = Prober {
        shared,
        cluster: cluster("eu"),
        link: watch::Sender::new(Link::Resolving),
        reachability: watch::Sender::new(Reachability::Unknown),
        notified: Reachability::Unknown,
        state: State::Unknown,
        nudge: Arc::new(Notify::new()),
    };
    (prober, woken)
}

#[tokio::test]
async fn pipelines_are_woken_once_when_reachability_changes_or_is_known_again() {
    use Reachability::{Offline, Online, Unknown};
    let (mut prober, mut receiver) = prober();
    for (now, wakes) in [
        (Unknown, 0),
        (Online, 1),
        (Online, 0),
        (Unknown, 0),
        // A pipeline that was reconciled in the meantime has seen the state as unknown.
        (Online, 1),
        (Online, 0),
        (Unknown, 0),
        (Offline, 1),
        (Offline, 0),
        (Unknown, 0),
        (Offline, 1),
        (Online, 1),
    ] {
        prober.publish(now).await;
        let woken: Vec<String> = std::iter::from_fn(|| receiver.try_recv().ok()).map(|p| p.name).collect();
        assert_eq!(woken, vec!["far"; wakes], "{now:?}");
        assert_eq!(*prober.reachability.borrow(), now);
    }
}

#[test]
fn the_same_problem_is_announced_once() {
    let (mut prober, _woken) = prober();
    let mut link = prober.link.subscribe();
    for (reason, confirmed, news) in [
        (Reason::Timeout, true, true),
        (Reason::Timeout, true, false),
        (Reason::Unreachable, true, true),
        (Reason::KubeconfigMissing, false, true),
    ] {
        prober.down(ObserveError::new(reason, "why".to_owned()), confirmed);
        assert_eq!(link.has_changed().unwrap(), news, "{reason:?}");
        link.mark_unchanged();
    }
    assert_eq!(prober.state, State::Invalid);
}

/// Behavior of a server on each connection.
#[derive(Clone, Copy)]
enum Manner {
    /// Sends this response and nothing else.
    Says(&'static str),
    /// Sends a body without end.
    Floods,
    /// Reads the request and sends nothing.
    Mute,
}

impl Manner {
    async fn serve(self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut asked = [0; 4096];
        let _ = stream.read(&mut asked).await?;
        match self {
            Self::Says(answer) => stream.write_all(answer.as_bytes()).await?,
            Self::Floods => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n").await?;
                while stream.write_all(&[b' '; 1 << 14]).await.is_ok() {}
            }
            Self::Mute => std::future::pending().await,
        }
        let _ = stream.read(&mut asked).await?;
        Ok(())
    }
}

fn checked(server: &str) -> Checked {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let user = Credentials { token: Some("sesame".to_owned().into()), ..Credentials::default() };
    Checked { server: server.parse().unwrap(), roots: None, any_certificate: false, server_name: None, user }
}

async fn said(checked: &Checked) -> String {
    match probe(&client(checked).unwrap(), "eu").await {
        Probed::Answered => "answered".to_owned(),
        Probed::Unauthorized => "unauthorized".to_owned(),
        Probed::Failed(trouble) => trouble.message,
    }
}

/// Returns the message of a probe of a server with this behavior.
async fn of_server(manner: Manner) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = manner.serve(stream).await;
        }
    });
    let said = said(&checked(&format!("http://{address}"))).await;
    serving.abort();
    said
}

#[tokio::test]
async fn answers_and_failures_of_api_servers_are_distinguished() {
    let answer = |head: &'static str| Manner::Says(head);
    for (manner, words) in [
        (answer("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"), "answered"),
        (answer("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno"), "answered"),
        (answer("HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno"), "unauthorized"),
        (answer("HTTP/1.1 503 Sorry\r\ncontent-length: 2\r\n\r\nno"), "cluster eu returned HTTP 503"),
        (answer("SSH-2.0-OpenSSH_9.9\r\n"), "cluster eu does not answer"),
        (Manner::Floods, "cluster eu cannot be reached: a response exceeds the size limit"),
        (Manner::Mute, "cluster eu does not answer in time"),
    ] {
        assert_eq!(of_server(manner).await, words);
    }
}

#[tokio::test]
async fn an_endless_refusal_of_a_watch_is_cut_off_and_the_next_watch_waits() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&checked(&format!("http://{}", listener.local_addr().unwrap()))).unwrap();
    let serving = tokio::spawn(async move {
        let mut asked = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            asked.push(Instant::now());
            let _ = stream.read(&mut [0; 4096]).await;
            stream.write_all(b"HTTP/1.1 500 Sorry\r\n\r\n").await.unwrap();
            while stream.write_all(&[b'\n'; 1 << 14]).await.is_ok() {}
        }
        asked[1] - asked[0]
    });
    for version in 1..=2 {
        let watch = Request::get(format!("/api/v1/pods?&watch=true&resourceVersion={version}")).body(Vec::new()).unwrap();
        let error = client.request_events::<kube::core::DynamicObject>(watch).await.err().unwrap();
        let message = ObserveError::of_call("eu", &error).message;
        assert_eq!(message, "cluster eu cannot be reached: a response exceeds the size limit");
    }
    let between = serving.await.unwrap();
    assert!(between > Duration::from_millis(900), "{between:?}");
}

#[tokio::test]
async fn each_failing_step_of_a_connection_has_its_own_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let made = rcgen::generate_simple_self_signed(vec!["eu.example".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key);
    let tls = TlsAcceptor::from(Arc::new(tls.unwrap()));
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = tls.accept(stream).await;
        }
    });
    let https = checked(&format!("https://127.0.0.1:{port}"));
    let stranger = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let with = |root: &rcgen::CertifiedKey<rcgen::KeyPair>| Checked {
        roots: Some(vec![root.cert.der().to_vec()]),
        ..https.clone()
    };
    assert_eq!(
        said(&with(&stranger)).await,
        "cluster eu cannot be reached: its certificate is not trusted (certificate-authority-data)"
    );
    assert_eq!(
        said(&with(&made)).await,
        "cluster eu cannot be reached: its certificate is for another name (tls-server-name)"
    );
    serving.abort();
    let _ = serving.await;
    assert_eq!(said(&https).await, "cluster eu cannot be reached: the connection is refused");
    let nowhere = checked("https://no-such-host.invalid:6443");
    assert_eq!(said(&nowhere).await, "cluster eu cannot be reached: the name of its server cannot be resolved");
}

/// The certificate of `openssl req -x509`, for a name.
fn of_ca(names: Vec<String>) -> (rcgen::Certificate, rcgen::KeyPair) {
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap(), key)
}

/// An API server with this certificate that answers each request with a version. Returns its URL.
async fn versioned((certificate, key): &(rcgen::Certificate, rcgen::KeyPair)) -> String {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let tls = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key);
    let tls = TlsAcceptor::from(Arc::new(tls.unwrap()));
    // Ends with the runtime of the test.
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = tls.accept(stream).await else { continue };
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
        }
    });
    url
}

#[tokio::test]
async fn a_certificate_of_a_ca_is_accepted_from_a_server_only_if_it_is_in_the_kubeconfig() {
    let own = of_ca(vec!["127.0.0.1".to_owned(), "eu.example".to_owned()]);
    let (nameless, other) = (of_ca(Vec::new()), of_ca(vec!["127.0.0.1".to_owned()]));
    let of = |url: &str, root: &rcgen::Certificate| Checked { roots: Some(vec![root.der().to_vec()]), ..checked(url) };
    let (at, at_nameless) = (versioned(&own).await, versioned(&nameless).await);
    let named = |name: &str| Checked { server_name: Some(name.to_owned()), ..of(&at, &own.0) };
    for (case, checked, refusal) in [
        ("in the kubeconfig", of(&at, &own.0), None),
        ("by its other name", named("eu.example"), None),
        ("by another name", named("us.example"), Some("its certificate is for another name (tls-server-name)")),
        ("another one", of(&at, &other.0), Some("put exactly this certificate into certificate-authority-data")),
        ("without a name", of(&at_nameless, &nameless.0), Some("-addext subjectAltName=DNS:NAME")),
    ] {
        let result = probe(&client(&checked).unwrap(), "eu").await;
        match (result, refusal) {
            (Probed::Answered, None) => {}
            (Probed::Failed(error), Some(words)) => assert!(error.message.contains(words), "{case}: {}", error.message),
            (Probed::Failed(error), None) => panic!("{case}: {}", error.message),
            _ => panic!("{case}"),
        }
    }
}
