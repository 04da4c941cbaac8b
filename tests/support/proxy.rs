//! A proxy in front of the API server that injects faults.
//!
//! In: the calls of clients of [`Proxy::kubeconfig`], and rules that define which of them fail, and how. Out: the calls,
//! forwarded unchanged to the real API server; its answers, with watches as streams; and how often each rule has matched.
//!
//! The proxy accepts plain HTTP on loopback, so that it can inspect calls, and uses TLS to the API server. It runs in a
//! separate thread, and ends when dropped.

mod call;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use reqwest::Body;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::receiver::Gate;
use super::tls;
use super::wait::eventually;
pub use call::Call;

/// A running proxy.
pub struct Proxy {
    /// Path of the kubeconfig that points to the proxy.
    pub kubeconfig: PathBuf,
    rules: Rules,
    state: watch::Sender<State>,
    open: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

/// The fault of a call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The call is not forwarded, and the connection is closed.
    LoseRequest,
    /// The call is forwarded, its answer is awaited and dropped, and the connection is closed.
    LoseAnswer,
    /// The call is forwarded when the gate is opened; never, if the client has closed the connection by then.
    HoldRequest(Gate),
    /// The call is forwarded, and its answer waits for the gate.
    HoldAnswer(Gate),
    /// The call is forwarded after this delay.
    Late(Duration),
    /// The connection is closed at once, and the call is forwarded after this delay, although no client waits for it.
    #[allow(dead_code, reason = "the integration tests use it")]
    Stray(Duration),
    /// The call is not forwarded, and answered with this code.
    Refuse(u16),
    /// The fault applies this many times; after that, matching calls are forwarded as if there were no rule.
    Times(usize, Box<Fault>),
}

/// Identifier of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(usize);

/// State of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Cut,
    Frozen,
    Ended,
}

struct Rule {
    id: RuleId,
    matches: Box<dyn Fn(&Call) -> bool + Send + Sync>,
    fault: Fault,
}

#[derive(Default)]
struct Book {
    rules: Vec<Rule>,
    /// By number of the rule, including removed rules.
    hits: Vec<usize>,
    /// Calls that the API server refused for a missing permission: the permission, then method and path.
    forbidden: Vec<(String, String)>,
    /// The permissions of calls that succeeded.
    granted: HashSet<String>,
}

type Rules = Arc<Mutex<Book>>;

/// Number of retries of a refused read, one per second.
const ASKED_AGAIN: u32 = 30;

impl Proxy {
    /// Starts a proxy to the API server of another kubeconfig. `name` is the file name of its own kubeconfig.
    pub async fn start(upstream: &Path, name: &str) -> Self {
        let mut file = Kubeconfig::read_from(upstream).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(file.clone(), &KubeConfigOptions::default()).await.expect("a valid one");
        let listener = std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        listener.set_nonblocking(true).expect("as tokio wants it");
        let address = listener.local_addr().expect("its address");
        for cluster in file.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
            cluster.server = Some(format!("http://{address}"));
            cluster.certificate_authority = None;
            cluster.certificate_authority_data = None;
        }
        let folder = crate::support::tmp().join("proxies");
        std::fs::create_dir_all(&folder).expect("a folder for kubeconfigs");
        let kubeconfig = folder.join(name);
        // JSON is YAML.
        std::fs::write(&kubeconfig, serde_json::to_vec(&file).expect("JSON")).expect("written");
        let (rules, state) = (Rules::default(), watch::Sender::new(State::Open));
        let upstream = Upstream { rules: rules.clone(), client: client(&config), url: config.cluster_url.to_string() };
        let (seen, open) = (state.subscribe(), Arc::new(AtomicUsize::new(0)));
        let counted = open.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(run(listener, Arc::new(upstream), seen, counted));
        });
        Self { kubeconfig, rules, state, open, thread: Some(thread) }
    }

    /// Adds a rule: calls that match have this fault. The first rule that matches counts.
    pub fn rule(&self, matches: impl Fn(&Call) -> bool + Send + Sync + 'static, fault: Fault) -> RuleId {
        let mut book = lock(&self.rules);
        let id = RuleId(book.hits.len());
        book.hits.push(0);
        book.rules.push(Rule { id, matches: Box::new(matches), fault });
        id
    }

    /// Returns method and path of each call that the API server refused for a missing permission. Calls whose permission it
    /// also granted are left out: an API server that starts refuses all calls.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub fn forbidden(&self) -> Vec<String> {
        let book = lock(&self.rules);
        book.forbidden.iter().filter(|(right, _)| !book.granted.contains(right)).map(|(_, call)| call.clone()).collect()
    }

    /// Removes a rule. Calls that it already holds back stay held.
    pub fn remove(&self, rule: RuleId) {
        lock(&self.rules).rules.retain(|r| r.id != rule);
    }

    /// Returns how often a rule has matched.
    pub fn hits(&self, rule: RuleId) -> usize {
        lock(&self.rules).hits[rule.0]
    }

    /// Waits until a rule has matched this many times.
    pub async fn hit(&self, rule: RuleId, count: usize) {
        eventually(&format!("rule {} has matched {count} times", rule.0), async || {
            let hits = self.hits(rule);
            if hits >= count { Ok(()) } else { Err(format!("{hits} times")) }
        })
        .await;
    }

    /// Returns the number of open connections.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Closes all connections. New ones are accepted and closed at once.
    pub fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    /// Closes all connections, and then accepts new ones, so that each watch is requested again.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub async fn reconnect(&self) {
        self.cut();
        eventually("no connection is open", async || match self.open() {
            0 => Ok(()),
            open => Err(format!("{open} are open")),
        })
        .await;
        self.heal();
    }

    /// Keeps connections open, but forwards nothing in either direction. New ones are accepted and hang.
    pub fn freeze(&self) {
        self.state.send_replace(State::Frozen);
    }

    /// Forwards everything again.
    pub fn heal(&self) {
        self.state.send_replace(State::Open);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.send_replace(State::Ended);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

/// The real API server, and the rules in front of it.
struct Upstream {
    rules: Rules,
    client: reqwest::Client,
    /// With a trailing slash.
    url: String,
}

/// Closes the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection is closed, as a rule or a broken answer wants it")]
struct Closed;

impl Upstream {
    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Closed> {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(axum::body::Body::new(body), usize::MAX).await.map_err(|_| Closed)?;
        let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
        let call = Call { method: head.method.to_string(), path, query, body };
        match self.fault(&call) {
            None => self.make(head, call).await,
            Some(Fault::LoseRequest) => Err(Closed),
            Some(Fault::LoseAnswer) => {
                self.make(head, call).await?;
                Err(Closed)
            }
            Some(Fault::HoldRequest(gate)) => {
                gate.pass().await;
                self.make(head, call).await
            }
            Some(Fault::HoldAnswer(gate)) => {
                let answer = self.make(head, call).await;
                gate.pass().await;
                answer
            }
            Some(Fault::Late(by)) => {
                tokio::time::sleep(by).await;
                self.make(head, call).await
            }
            Some(Fault::Stray(by)) => {
                tokio::spawn(async move {
                    tokio::time::sleep(by).await;
                    let _ = self.make(head, call).await;
                });
                Err(Closed)
            }
            Some(Fault::Refuse(code)) => Ok(refusal(code)),
            Some(Fault::Times(..)) => unreachable!("unpacked when it matched"),
        }
    }

    fn fault(&self, call: &Call) -> Option<Fault> {
        let mut book = lock(&self.rules);
        let (id, mut fault) = book.rules.iter().find(|r| (r.matches)(call)).map(|r| (r.id, r.fault.clone()))?;
        book.hits[id.0] += 1;
        while let Fault::Times(times, inner) = fault {
            if book.hits[id.0] > times {
                return None;
            }
            fault = *inner;
        }
        Some(fault)
    }

    /// Forwards the call, and returns when the head of the answer has arrived. The body is streamed.
    async fn make(self: &Arc<Self>, head: hyper::http::request::Parts, call: Call) -> Result<Response<Body>, Closed> {
        let target = head.uri.path_and_query().map_or("/", |p| p.as_str());
        let url = format!("{}{target}", self.url.trim_end_matches('/'));
        let mut headers = head.headers;
        for name in [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
            headers.remove(name);
        }
        let (right, reads) = (call.right(), call.method == "GET" && !call.is_watch());
        let made = self.client.request(head.method, &url).headers(headers.clone()).body(call.body).send().await;
        let mut answer = Response::from(made.map_err(|_| Closed)?);
        if answer.status() == StatusCode::FORBIDDEN {
            if reads {
                tokio::spawn(self.clone().ask_again(url, headers, right.clone()));
            }
            answer = self.note((right, format!("{} {target}", call.method)), answer).await?;
        } else if answer.status().is_success() {
            lock(&self.rules).granted.insert(right);
        }
        for name in [CONNECTION, TRANSFER_ENCODING] {
            answer.headers_mut().remove(name);
        }
        Ok(answer)
    }

    /// Repeats a refused read, and notes the permission as granted if it succeeds before long. An API server that starts refuses
    /// all calls, and the client may not repeat a rare read in time.
    async fn ask_again(self: Arc<Self>, url: String, headers: HeaderMap, right: String) {
        for _ in 0..ASKED_AGAIN {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let answer = self.client.get(&url).headers(headers.clone()).send().await;
            if answer.is_ok_and(|a| a.status().is_success() || a.status() == StatusCode::NOT_FOUND) {
                lock(&self.rules).granted.insert(right);
                return;
            }
        }
    }

    /// Notes a call that was refused for a missing permission; not one that a quota, or a rule of another proxy, refused.
    async fn note(&self, call: (String, String), answer: Response<Body>) -> Result<Response<Body>, Closed> {
        let (mut head, body) = answer.into_parts();
        let text = axum::body::to_bytes(axum::body::Body::new(body), usize::MAX).await.map_err(|_| Closed)?;
        if String::from_utf8_lossy(&text).contains(" cannot ") {
            lock(&self.rules).forbidden.push(call);
        }
        head.headers.remove(CONTENT_LENGTH);
        Ok(Response::from_parts(head, Body::from(text)))
    }
}

/// Returns the answer of an API server that refuses a call.
fn refusal(code: u16) -> Response<Body> {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        _ => "",
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": "the test refuses it"});
    let answer = Response::builder().status(code).header(CONTENT_TYPE, "application/json");
    answer.body(Body::from(status.to_string())).expect("an answer")
}

/// Returns a client that trusts only the CA certificates of this configuration.
fn client(config: &Config) -> reqwest::Client {
    tls::client(config.root_cert.iter().flatten().map(|der| der.clone().into()))
}

fn lock(rules: &Rules) -> MutexGuard<'_, Book> {
    rules.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accepts connections until the proxy ends.
async fn run(
    listener: std::net::TcpListener,
    upstream: Arc<Upstream>,
    state: watch::Receiver<State>,
    open: Arc<AtomicUsize>,
) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    let mut connections = JoinSet::new();
    let mut ended = state.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.expect("a connection");
                connections.spawn(connection(stream, upstream.clone(), state.clone()));
                open.store(connections.len(), Ordering::SeqCst);
            }
            Some(_) = connections.join_next() => open.store(connections.len(), Ordering::SeqCst),
            _ = ended.wait_for(|state| *state == State::Ended) => return,
        }
    }
}

/// Serves one connection. While the proxy is frozen, it neither reads nor writes.
async fn connection(stream: TcpStream, upstream: Arc<Upstream>, mut state: watch::Receiver<State>) {
    let _ = stream.set_nodelay(true);
    let serve = service_fn(|request| upstream.clone().serve(request));
    let mut serving = pin!(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), serve));
    loop {
        let now = *state.borrow_and_update();
        let open = match now {
            State::Open => true,
            State::Frozen => false,
            State::Cut | State::Ended => return,
        };
        tokio::select! {
            _ = &mut serving, if open => return,
            changed = state.changed() => if changed.is_err() { return },
        }
    }
}
