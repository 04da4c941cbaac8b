//! A way to the API server on which things go wrong.
//!
//! In: the calls of whoever uses [`Proxy::kubeconfig`], and rules that say which of them fail, and how. Out: the calls as they
//! came, made to the real API server; its answers, watches as they stream; and how often each rule has matched.
//!
//! It speaks plain HTTP on loopback, so that it can look into calls, and TLS to the API server. It runs in a thread of its
//! own and is gone when dropped.

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
use super::wait::eventually;
pub use call::Call;

/// The proxy.
pub struct Proxy {
    /// Path of the kubeconfig that leads through it.
    pub kubeconfig: PathBuf,
    rules: Rules,
    state: watch::Sender<State>,
    open: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

/// What goes wrong with a call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It is not made, and the connection is closed.
    LoseRequest,
    /// It is made, its answer is waited for and dropped, and the connection is closed.
    LoseAnswer,
    /// It is not made before the gate is opened; never, if whoever made it has gone by then.
    HoldRequest(Gate),
    /// It is made, and its answer waits for the gate.
    HoldAnswer(Gate),
    /// It is not made before so much time has passed.
    Late(Duration),
    /// The connection is closed at once, and it is made after so much time, though nobody waits for it any more.
    #[allow(dead_code, reason = "the integration tests use it")]
    Stray(Duration),
    /// It is not made, and answered with this code.
    Refuse(u16),
    /// So often; then calls that match are made as if there were no rule.
    Times(usize, Box<Fault>),
}

/// Names a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(usize);

/// What passes.
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
    /// By number of the rule, removed ones included.
    hits: Vec<usize>,
    /// Calls that the API server itself refused for want of a right: which, and their method and path.
    forbidden: Vec<(String, String)>,
    /// The rights of those that it answered.
    granted: HashSet<String>,
}

type Rules = Arc<Mutex<Book>>;

/// So often, once a second, what was refused is asked for again.
const ASKED_AGAIN: u32 = 30;

impl Proxy {
    /// One that leads to the API server of another kubeconfig. The name is for its own.
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
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("proxies");
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

    /// What goes wrong with the calls that match; the first rule that does so counts.
    pub fn rule(&self, matches: impl Fn(&Call) -> bool + Send + Sync + 'static, fault: Fault) -> RuleId {
        let mut book = lock(&self.rules);
        let id = RuleId(book.hits.len());
        book.hits.push(0);
        book.rules.push(Rule { id, matches: Box::new(matches), fault });
        id
    }

    /// Method and path of each call that the API server has refused for want of a right. Not of one that it also has answered:
    /// while it starts it knows of nobody's rights.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub fn forbidden(&self) -> Vec<String> {
        let book = lock(&self.rules);
        book.forbidden.iter().filter(|(right, _)| !book.granted.contains(right)).map(|(_, call)| call.clone()).collect()
    }

    /// Takes a rule away. What it holds already is still held.
    pub fn remove(&self, rule: RuleId) {
        lock(&self.rules).rules.retain(|r| r.id != rule);
    }

    /// How often a rule has matched.
    pub fn hits(&self, rule: RuleId) -> usize {
        lock(&self.rules).hits[rule.0]
    }

    /// Waits until a rule has matched so often.
    pub async fn hit(&self, rule: RuleId, count: usize) {
        eventually(&format!("rule {} has matched {count} times", rule.0), async || {
            let hits = self.hits(rule);
            if hits >= count { Ok(()) } else { Err(format!("{hits} times")) }
        })
        .await;
    }

    /// How many connections are open.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Closes all connections; new ones are accepted and closed at once.
    pub fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    /// Lets connections stay open and nothing pass, in either direction; new ones are accepted and hang.
    pub fn freeze(&self) {
        self.state.send_replace(State::Frozen);
    }

    /// Lets everything pass again.
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

/// The real API server, and what goes wrong on the way there.
struct Upstream {
    rules: Rules,
    client: reqwest::Client,
    /// With a slash at the end.
    url: String,
}

/// The connection is to be closed without an answer.
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

    /// Makes the call. Its answer is there when this returns; the body streams.
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

    /// Whether what was refused is answered before long: an API server that starts refuses everybody, and what is seldom read may
    /// not be read again.
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

    /// Notes a call that was refused for want of a right; not one that a quota, or a rule of a proxy behind this, refuses.
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

/// What an API server answers when it refuses.
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

/// A client that trusts the API server and nobody else.
fn client(config: &Config) -> reqwest::Client {
    let mut roots = rustls::RootCertStore::empty();
    for der in config.root_cert.iter().flatten() {
        roots.add(der.clone().into()).expect("a certificate");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls.expect("ring has them").with_root_certificates(roots).with_no_client_auth();
    let client = reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().http1_only();
    client.build().expect("a client")
}

fn lock(rules: &Rules) -> MutexGuard<'_, Book> {
    rules.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes connections until the proxy ends.
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

/// Serves one connection. While it is frozen nobody reads from it or writes to it.
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
