//! Many API servers, played by one thread over TLS. Each serves discovery, lists in pages and watches of one kind, Deployments.
//!
//! In: the number of clusters, and changes of their objects. Out: a kubeconfig for each cluster, and what each was asked.
//!
//! Clusters differ by the path of their URL, and have one port. So a cluster needs no listener. A client never uses a connection of another
//! one, so each cluster has its own connections. The clusters that can be dead have two more ports: one that refuses connections while they
//! are dead, and one that accepts them and never answers.

mod cluster;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::ByteString;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::time::{interval_at, sleep, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use url::Url;

pub use cluster::{Asked, Kind, NAMESPACE, TARGETS, app};
use cluster::{Cluster, Request};

use crate::receiver::read;
use crate::support::tls::{Authority, params};

/// Time that a slow cluster needs for an answer or an event.
const SLOW: Duration = Duration::from_secs(2);
/// The usual interval of bookmarks of an API server.
const BOOKMARK: Duration = Duration::from_mins(1);
/// Maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 4096;

type Stream = BufReader<TlsStream<TcpStream>>;

/// All played clusters. They end when this is dropped.
pub struct Played {
    shared: Arc<Shared>,
    authority: String,
    ports: [u16; 3],
    _stop: oneshot::Sender<()>,
}

struct Shared {
    clusters: Vec<Cluster>,
    ill: watch::Sender<bool>,
    /// Number of connections that were accepted with TLS.
    accepted: AtomicUsize,
}

impl Played {
    /// Starts the clusters, all of them healthy.
    pub fn start(count: usize) -> Self {
        let authority = Authority::new();
        let tls = TlsAcceptor::from(Arc::new(authority.issue(&params("127.0.0.1")).server(None)));
        let clusters = (0..count).map(Cluster::new).collect();
        let shared = Arc::new(Shared { clusters, ill: watch::Sender::new(false), accepted: AtomicUsize::new(0) });
        let sockets = [(); 3].map(|()| bound(0));
        let ports = sockets.each_ref().map(|socket| socket.local_addr().expect("it has an address").port());
        let (stop, stopped) = oneshot::channel();
        let played = shared.clone();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let [common, refuses, silent] = sockets;
            let open = |kind, socket| door(kind, socket, played.clone(), tls.clone());
            runtime.block_on(async {
                let doors = async {
                    tokio::join!(open(Kind::Healthy, common), open(Kind::Refuses, refuses), open(Kind::Silent, silent))
                };
                tokio::select! { _ = doors => {}, _ = stopped => {} }
            });
        };
        std::thread::Builder::new().name("played".to_owned()).spawn(run).expect("a thread");
        let authority = serde_json::to_value(ByteString(authority.pem().into_bytes())).expect("base64");
        Self { shared, authority: authority.as_str().expect("a text").to_owned(), ports, _stop: stop }
    }

    /// Returns the kubeconfig of a cluster.
    pub fn kubeconfig(&self, n: usize) -> String {
        let [common, refuses, silent] = self.ports;
        let port = match Kind::of(n) {
            Kind::Refuses => refuses,
            Kind::Silent => silent,
            Kind::Healthy | Kind::Slow => common,
        };
        let server = format!("https://127.0.0.1:{port}/clusters/{n}");
        let cluster = json!({"server": server, "certificate-authority-data": self.authority});
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {"token": "x".repeat(900)}}],
        })
        .to_string()
    }

    /// Begins or ends the illness of the dead and slow clusters.
    pub fn set_ill(&self, ill: bool) {
        self.shared.ill.send_replace(ill);
    }

    /// Changes an object by one event: a failed rollout or a finished one. Returns when the change began.
    pub fn flip(&self, n: usize, i: usize) -> Instant {
        let began = Instant::now();
        self.shared.clusters[n].flip(i);
        began
    }

    /// Ends all watches at once, as a restart of the API servers does. No cluster keeps its history, so the next watches are answered with 410.
    pub fn forget(&self) {
        for cluster in &self.shared.clusters {
            cluster.forget();
        }
    }

    /// Returns what all clusters were asked since the last call of [`Played::reset`].
    pub fn asked(&self) -> Asked {
        let add = |sum: Asked, cluster: &Cluster| sum.with(&cluster.asked.lock());
        self.shared.clusters.iter().fold(Asked::default(), add)
    }

    /// Sets all counts to zero. No request may be in flight.
    pub fn reset(&self) {
        self.shared.clusters.iter().for_each(|cluster| *cluster.asked.lock() = Asked::default());
    }

    /// Returns how many connections were accepted with TLS.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }
}

/// Returns a socket that reserves its port, and refuses connections until it listens.
fn bound(port: u16) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("an option of sockets");
    socket.bind(([127, 0, 0, 1], port).into()).expect("a free port");
    socket
}

/// Waits until the ill clusters are ill, or are not.
async fn until(ill: &mut watch::Receiver<bool>, is: bool) {
    let _ = ill.wait_for(|ill| *ill == is).await;
}

/// Accepts the connections of one port.
async fn door(kind: Kind, mut socket: TcpSocket, shared: Arc<Shared>, tls: TlsAcceptor) {
    let port = socket.local_addr().expect("it has an address").port();
    let mut ill = shared.ill.subscribe();
    loop {
        if kind == Kind::Refuses {
            until(&mut ill, false).await;
        }
        let listener = socket.listen(BACKLOG).expect("listens");
        tokio::select! {
            () = accept(&listener, kind, &shared, &tls) => return,
            () = until(&mut ill, true), if kind == Kind::Refuses => {}
        }
        drop(listener);
        socket = bound(port);
    }
}

async fn accept(listener: &TcpListener, kind: Kind, shared: &Arc<Shared>, tls: &TlsAcceptor) {
    while let Ok((stream, _)) = listener.accept().await {
        let (shared, tls) = (shared.clone(), tls.clone());
        tokio::spawn(async move { connection(stream, kind, &shared, &tls).await });
    }
}

/// Serves one connection. That of a dead cluster is closed, or not served while the cluster is dead.
async fn connection(mut stream: TcpStream, kind: Kind, shared: &Shared, tls: &TlsAcceptor) {
    let mut ill = shared.ill.subscribe();
    if kind == Kind::Silent && *ill.borrow() {
        // Until the client gives up.
        while stream.read(&mut [0; 1024]).await.is_ok_and(|length| length > 0) {}
        return;
    }
    let _ = stream.set_nodelay(true);
    let served = async {
        let Ok(stream) = tls.accept(stream).await else { return };
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        // An error means that the client has closed the connection.
        let _ = serve(&mut BufReader::new(stream), shared).await;
    };
    let mut served = std::pin::pin!(served);
    loop {
        tokio::select! {
            () = &mut served => return,
            () = until(&mut ill, true), if kind.is_dead() => {}
        }
        if kind == Kind::Refuses {
            return;
        }
        until(&mut ill, false).await;
    }
}

async fn serve(stream: &mut Stream, shared: &Shared) -> io::Result<()> {
    while let Some(target) = read(stream).await {
        let Some((cluster, request)) = shared.find(&target) else { return Ok(()) };
        let busy = cluster.begin(&request);
        shared.delay(cluster).await;
        if let Request::Watch(version, span) = request {
            drop(busy);
            watch(stream, shared, cluster, version, span).await?;
        } else {
            let (code, body) = cluster.answer(&request);
            let length = body.len();
            let head =
                format!("HTTP/1.1 {code} Played\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
            drop(busy);
            stream.write_all([head, body].concat().as_bytes()).await?;
            stream.flush().await?;
        }
    }
    Ok(())
}

/// Serves a watch until its end, or until the client closes the connection.
async fn watch(stream: &mut Stream, shared: &Shared, cluster: &Cluster, from: u64, span: Duration) -> io::Result<()> {
    let (oldest, ends) = {
        let now = cluster.state.borrow();
        (now.oldest, now.ends)
    };
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n").await?;
    if from < oldest {
        cluster.asked.lock().gone += 1;
        chunk(stream, &cluster::event("ERROR", &cluster::expired())).await?;
    } else {
        follow(stream, shared, cluster, from, (ends, Instant::now() + span)).await?;
    }
    stream.write_all(b"0\r\n\r\n").await?;
    stream.flush().await
}

/// Sends the events after a version, until this time, or until all watches are ended once more.
async fn follow(
    stream: &mut Stream,
    shared: &Shared,
    cluster: &Cluster,
    mut version: u64,
    (ends, end): (usize, Instant),
) -> io::Result<()> {
    let (mut state, mut bookmark) = (cluster.state.subscribe(), interval_at((Instant::now() + BOOKMARK).into(), BOOKMARK));
    loop {
        let events: Vec<_> = {
            let now = state.borrow_and_update();
            if now.ends > ends {
                return Ok(());
            }
            let new = now.events.iter().filter(|(at, _)| *at > version).map(|(_, event)| event.clone()).collect();
            version = now.version;
            new
        };
        for event in events {
            shared.delay(cluster).await;
            chunk(stream, &event).await?;
        }
        stream.flush().await?;
        // A client sends nothing while it reads a watch.
        let closed = async { drop(stream.fill_buf().await) };
        tokio::select! {
            _ = state.changed() => {}
            _ = bookmark.tick() => {
                let metadata = json!({"resourceVersion": version.to_string()});
                let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata});
                chunk(stream, &cluster::event("BOOKMARK", &object)).await?;
            }
            () = sleep_until(end.into()) => return Ok(()),
            () = closed => return Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
}

async fn chunk(stream: &mut Stream, line: &str) -> io::Result<()> {
    stream.write_all(format!("{:x}\r\n{line}\n\r\n", line.len() + 1).as_bytes()).await
}

impl Shared {
    /// Returns the cluster and the meaning of a request.
    fn find(&self, target: &str) -> Option<(&Cluster, Request)> {
        let url = Url::parse(&format!("https://played{target}")).ok()?;
        let (n, path) = url.path().strip_prefix("/clusters/")?.split_once('/')?;
        Some((self.clusters.get(n.parse::<usize>().ok()?)?, Request::of(path, &url)))
    }

    /// Waits for as long as the cluster needs for an answer.
    async fn delay(&self, cluster: &Cluster) {
        let is_slow = cluster.kind == Kind::Slow && *self.ill.borrow();
        if is_slow {
            sleep(SLOW).await;
        }
    }
}
