//! A proxy in front of a forge or a Git server that injects faults.
//!
//! In: the requests of clients, and rules that define which of them fail, and how. Out: the requests, forwarded unchanged, and a log of all
//! of them. The proxy accepts plain HTTP on an address of loopback that is not that of the forge, so the forge is another host. It runs in a
//! separate thread, and ends when dropped.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use axum::http::request::Parts;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::receiver::Gate;
use super::wait::eventually;

/// A running proxy.
pub struct ForgeProxy {
    address: SocketAddr,
    book: Arc<Mutex<Book>>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// When it arrived.
    pub at: Instant,
    /// Its method.
    pub method: String,
    /// Its path.
    pub path: String,
    /// Its query, without the question mark.
    pub query: String,
    /// Its body.
    pub body: Bytes,
    /// The status of the forge. `None`: it was not forwarded, or is not answered yet.
    pub status: Option<u16>,
}

/// The fault of a request.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// The request is forwarded, its answer is awaited and dropped, and the connection is closed.
    LoseAnswer,
    /// The request is forwarded when the gate is opened; never, if the client has closed the connection by then.
    HoldRequest(Gate),
    /// The request is forwarded, and its answer waits for the gate.
    HoldAnswer(Gate),
    /// The request is forwarded when the gate is opened, also if no client waits for it any more.
    Late(Gate),
    /// The request is not forwarded, and answered with this status, header and body.
    Answer(u16, Option<(&'static str, String)>, &'static str),
    /// The request is not forwarded, and the body of its answer has no end.
    Endless,
    /// The fault applies this many times; after that, matching requests are forwarded.
    Times(usize, Box<Trouble>),
}

impl Trouble {
    /// The fault applies to the first request that matches.
    pub fn once(self) -> Self {
        Self::Times(1, Box::new(self))
    }
}

/// Identifier of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(usize);

type Matches = Box<dyn Fn(&Asked) -> bool + Send + Sync>;

#[derive(Default)]
struct Book {
    /// By number of the rule. A removed rule has no entry.
    rules: Vec<Option<(Matches, Trouble)>>,
    /// How many requests had the fault of each rule, and how many of these the forge has answered.
    hits: Vec<(usize, usize)>,
    log: Vec<Asked>,
}

impl ForgeProxy {
    /// Starts a proxy to a server. `upstream` has scheme, host and port, and `client` trusts its certificate.
    pub fn start(upstream: &str, client: reqwest::Client) -> Self {
        let listener = std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 2], 0))).expect("a free port");
        listener.set_nonblocking(true).expect("as tokio wants it");
        let address = listener.local_addr().expect("its address");
        let (book, stop) = (Arc::<Mutex<Book>>::default(), CancellationToken::new());
        let server = Server { book: book.clone(), client, upstream: upstream.trim_end_matches('/').to_owned() };
        let ended = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(ended.run_until_cancelled(run(listener, Arc::new(server))));
        });
        Self { address, book, stop, thread: Some(thread) }
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Adds a rule: requests that match have this fault. The first rule that matches counts.
    pub fn rule(&self, matches: impl Fn(&Asked) -> bool + Send + Sync + 'static, trouble: Trouble) -> Rule {
        let mut book = lock(&self.book);
        book.rules.push(Some((Box::new(matches), trouble)));
        book.hits.push((0, 0));
        Rule(book.rules.len() - 1)
    }

    /// Removes a rule. Requests that it already holds back stay held.
    pub fn remove(&self, rule: Rule) {
        lock(&self.book).rules[rule.0] = None;
    }

    /// Returns how many requests had the fault of a rule.
    pub fn hits(&self, rule: Rule) -> usize {
        lock(&self.book).hits[rule.0].0
    }

    /// Waits until this many requests had the fault of a rule.
    pub async fn hit(&self, rule: Rule, count: usize) {
        eventually(&format!("{count} requests have the fault of rule {}", rule.0), async || {
            let hits = self.hits(rule);
            if hits >= count { Ok(()) } else { Err(format!("{hits} times; {:#?}", self.shown())) }
        })
        .await;
    }

    /// Waits until the forge has answered this many requests that had the fault of a rule.
    pub async fn forwarded(&self, rule: Rule, count: usize) {
        eventually(&format!("{count} requests of rule {} are answered", rule.0), async || {
            let answered = lock(&self.book).hits[rule.0].1;
            if answered >= count { Ok(()) } else { Err(format!("{answered}; {:#?}", self.shown())) }
        })
        .await;
    }

    /// Returns all requests so far, in order of arrival.
    pub fn log(&self) -> Vec<Asked> {
        lock(&self.book).log.clone()
    }

    /// Returns the last requests, for messages.
    fn shown(&self) -> Vec<String> {
        let log = self.log();
        let last = log.iter().skip(log.len().saturating_sub(20));
        last.map(|asked| format!("{} {} {:?}", asked.method, asked.path, asked.status)).collect()
    }
}

impl Drop for ForgeProxy {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Asked {
    /// Whether the request opens a pull request.
    pub fn is_create(&self) -> bool {
        self.method == "POST" && self.path.ends_with("/pulls")
    }

    /// Whether the request lists pull requests.
    pub fn is_list(&self) -> bool {
        self.method == "GET" && self.path.ends_with("/pulls")
    }

    /// Whether the request reads a pull request.
    pub fn is_look(&self) -> bool {
        self.method == "GET" && self.path.contains("/pulls/")
    }

    /// Whether the request closes a pull request.
    pub fn is_close(&self) -> bool {
        self.method == "PATCH" && self.path.contains("/pulls/")
    }

    /// Whether the request changes a branch.
    pub fn is_push(&self) -> bool {
        self.method == "POST" && self.path.ends_with("/git-receive-pack")
    }

    /// Whether the request asks for the branches before a push.
    pub fn is_before_push(&self) -> bool {
        self.method == "GET" && self.query.contains("git-receive-pack")
    }

    /// Whether the request is one of Git, and not one of the API.
    pub fn is_git(&self) -> bool {
        self.path.contains("/info/refs") || self.path.ends_with("/git-upload-pack") || self.is_push()
    }

    /// Whether the body contains this text.
    pub fn says(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.body).contains(text)
    }
}

/// The server, and the rules in front of it.
struct Server {
    book: Arc<Mutex<Book>>,
    client: reqwest::Client,
    upstream: String,
}

/// A request on its way.
struct Passing {
    head: Parts,
    body: Bytes,
    /// Its place in the log.
    number: usize,
    rule: Option<usize>,
}

/// Closes the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection is closed, as a rule or a broken answer wants it")]
struct Closed;

impl Server {
    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Closed> {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(Body::new(body), usize::MAX).await.map_err(|_| Closed)?;
        let (passing, trouble) = self.note(head, body);
        match trouble {
            None => self.forward(passing).await,
            Some(Trouble::LoseAnswer) => {
                self.forward(passing).await?;
                Err(Closed)
            }
            Some(Trouble::HoldRequest(gate)) => {
                gate.pass().await;
                self.forward(passing).await
            }
            Some(Trouble::HoldAnswer(gate)) => {
                // Forwarded even if the client goes away meanwhile.
                let answer = tokio::spawn(async move { self.forward(passing).await }).await.map_err(|_| Closed)?;
                gate.pass().await;
                answer
            }
            Some(Trouble::Late(gate)) => {
                let late = tokio::spawn(async move {
                    gate.pass().await;
                    self.forward(passing).await
                });
                late.await.map_err(|_| Closed)?
            }
            Some(Trouble::Answer(status, header, body)) => {
                let answer = Response::builder().status(status).header("content-type", "application/json");
                let answer = header.into_iter().fold(answer, |answer, (name, value)| answer.header(name, value));
                Ok(answer.body(Body::from(body)).expect("an answer"))
            }
            Some(Trouble::Endless) => {
                let part = Bytes::from_static(&[b'['; 16 * 1024]);
                let parts = futures::stream::repeat_with(move || Ok::<_, Closed>(part.clone()));
                Ok(Response::new(Body::from_stream(parts)))
            }
            Some(Trouble::Times(..)) => unreachable!("unpacked when it matched"),
        }
    }

    /// Logs a request, and returns its fault.
    fn note(&self, head: Parts, body: Bytes) -> (Passing, Option<Trouble>) {
        let mut book = lock(&self.book);
        let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
        let method = head.method.to_string();
        let asked = Asked { at: Instant::now(), method, path, query, body: body.clone(), status: None };
        let found = book.rules.iter().enumerate().find_map(|(rule, of)| {
            let (matches, trouble) = of.as_ref()?;
            matches(&asked).then(|| (rule, trouble.clone()))
        });
        book.log.push(asked);
        let passing = |rule| Passing { head, body, number: book.log.len() - 1, rule };
        let Some((rule, mut trouble)) = found else { return (passing(None), None) };
        while let Trouble::Times(times, inner) = trouble {
            if book.hits[rule].0 >= times {
                return (passing(None), None);
            }
            trouble = *inner;
        }
        let passing = passing(Some(rule));
        book.hits[rule].0 += 1;
        (passing, Some(trouble))
    }

    /// Forwards a request, and returns its whole answer.
    async fn forward(&self, passing: Passing) -> Result<Response<Body>, Closed> {
        let Passing { head, body, number, rule } = passing;
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        let mut headers = head.headers;
        for name in [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
            headers.remove(name);
        }
        let request = self.client.request(head.method, format!("{}{target}", self.upstream)).headers(headers).body(body);
        let answer = Response::from(request.send().await.map_err(|_| Closed)?);
        let (mut head, body) = answer.into_parts();
        let body = axum::body::to_bytes(Body::new(body), usize::MAX).await.map_err(|_| Closed)?;
        for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
            head.headers.remove(name);
        }
        let mut book = lock(&self.book);
        book.log[number].status = Some(head.status.as_u16());
        if let Some(rule) = rule {
            book.hits[rule].1 += 1;
        }
        Ok(Response::from_parts(head, Body::from(body)))
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accepts connections without end.
async fn run(listener: std::net::TcpListener, server: Arc<Server>) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let server = server.clone();
        let service = service_fn(move |request| server.clone().serve(request));
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
