//! An HTTP receiver on loopback that logs its requests and answers by script.
//!
//! It implements HTTP/1.1 itself: a test must be able to send no answer, to close the connection, or to be slow, which no
//! framework offers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::wait::eventually;

/// The runtime of all receivers. They answer in time although a test blocks its own thread, for example while a command runs.
pub static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(2).thread_name("receivers").enable_all().build().expect("a runtime")
});

/// One request as received.
#[derive(Clone, Debug)]
pub struct Request {
    /// When the request was complete.
    pub at: Instant,
    /// Its method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Its headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: Vec<u8>,
    /// Status code and time of the answer; `None` while the request is open, or if it was never answered.
    pub answered: Option<(u16, Instant)>,
}

impl Request {
    /// Returns the `webhook-id`.
    pub fn id(&self) -> &str {
        self.header("webhook-id")
    }

    /// Returns a header, or an empty text if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Returns the body, which must be JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("not JSON: {e}: {}", String::from_utf8_lossy(&self.body)))
    }
}

/// The reaction to a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Sends an answer.
    Answer(Answer),
    /// Never answers.
    Hang,
    /// Closes the connection.
    Close,
}

/// An answer that is being built.
#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    headers: String,
    body: String,
    gate: Option<Gate>,
    after: Duration,
}

impl Reply {
    /// Returns an empty answer with this status.
    pub fn status(status: u16) -> Self {
        Self::Answer(Answer { status, headers: String::new(), body: String::new(), gate: None, after: Duration::ZERO })
    }

    /// Sets the body.
    pub fn body(self, body: &str) -> Self {
        self.with(|answer| body.clone_into(&mut answer.body))
    }

    /// Adds a header.
    pub fn header(self, name: &str, value: &str) -> Self {
        self.with(|answer| answer.headers.extend([name, ": ", value, "\r\n"]))
    }

    /// Delays the answer until the gate is opened.
    pub fn behind(self, gate: &Gate) -> Self {
        self.with(|answer| answer.gate = Some(gate.clone()))
    }

    /// Delays the answer by this time.
    pub fn after(self, span: Duration) -> Self {
        self.with(|answer| answer.after = span)
    }

    fn with(mut self, change: impl FnOnce(&mut Answer)) -> Self {
        if let Self::Answer(answer) = &mut self {
            change(answer);
        }
        self
    }
}

/// Delays answers until it is opened.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

impl Gate {
    /// Returns a closed gate.
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Opens the gate permanently.
    pub fn open(&self) {
        self.0.close();
    }

    /// Waits until the gate is open.
    pub async fn pass(&self) {
        let _ = self.0.acquire().await;
    }
}

/// Function that chooses the reaction to a request.
type Decide = Box<dyn FnMut(&Request) -> Reply + Send>;

#[derive(Default)]
struct Book {
    log: Vec<Request>,
    connections: usize,
    scripts: HashMap<String, VecDeque<Reply>>,
    rules: HashMap<String, Reply>,
    decide: Option<Decide>,
}

impl Book {
    /// Logs a request, and returns its number and the reaction to it.
    fn note(&mut self, request: Request) -> (usize, Reply) {
        let scripted = self.scripts.get_mut(&request.path).and_then(VecDeque::pop_front);
        let ruled = || self.rules.get(&request.path).cloned();
        let mut decided = || self.decide.as_mut().map(|decide| decide(&request));
        let reply = scripted.or_else(ruled).or_else(&mut decided).unwrap_or_else(|| Reply::status(200));
        self.log.push(request);
        (self.log.len() - 1, reply)
    }
}

/// A running receiver. It stops when dropped.
pub struct Receiver {
    address: SocketAddr,
    book: Arc<Mutex<Book>>,
    /// The socket while it is bound but not listening, so that connections are refused.
    socket: Option<TcpSocket>,
    /// `None`: plain HTTP.
    tls: Option<TlsAcceptor>,
    tasks: JoinSet<()>,
}

impl Receiver {
    /// Starts a receiver that answers 200, unless a script or a rule decides otherwise.
    pub fn start() -> Self {
        let mut receiver = Self::refusing();
        receiver.listen();
        receiver
    }

    /// Starts such a receiver with TLS.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub fn over_tls(config: ServerConfig) -> Self {
        let mut receiver = Self { tls: Some(Arc::new(config).into()), ..Self::refusing() };
        receiver.listen();
        receiver
    }

    /// Returns a receiver that reserves its port and refuses connections until [`Receiver::listen`].
    pub fn refusing() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        let address = socket.local_addr().expect("its address");
        Self { address, book: Arc::default(), socket: Some(socket), tls: None, tasks: JoinSet::new() }
    }

    /// Starts to accept connections.
    pub fn listen(&mut self) {
        let socket = self.socket.take().expect("listens already");
        let listener = {
            let _entered = RUNTIME.enter();
            socket.listen(1024).expect("listens")
        };
        let (book, tls) = (self.book.clone(), self.tls.clone());
        let accept = async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                lock(&book).connections += 1;
                let (book, tls) = (book.clone(), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => serve(stream, book).await,
                        // A client that does not trust this receiver fails the handshake and closes the connection.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, book).await;
                            }
                        }
                    }
                });
            }
        };
        self.tasks.spawn_on(accept, RUNTIME.handle());
    }

    /// Returns the URL of a path of this receiver.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    /// Appends to the script of this path: one reaction for each of the next requests.
    pub fn script(&self, path: &str, replies: impl IntoIterator<Item = Reply>) {
        lock(&self.book).scripts.entry(path.to_owned()).or_default().extend(replies);
    }

    /// Sets the reaction to all requests to this path that no script covers.
    pub fn always(&self, path: &str, reply: Reply) {
        lock(&self.book).rules.insert(path.to_owned(), reply);
    }

    /// Sets the function for requests that neither a script nor a rule covers.
    pub fn decide(&self, decide: impl FnMut(&Request) -> Reply + Send + 'static) {
        lock(&self.book).decide = Some(Box::new(decide));
    }

    /// Returns all requests so far, in order of arrival.
    pub fn log(&self) -> Vec<Request> {
        lock(&self.book).log.clone()
    }

    /// Returns the requests to one path.
    pub fn to(&self, path: &str) -> Vec<Request> {
        self.log().into_iter().filter(|r| r.path == path).collect()
    }

    /// Returns how many connections were accepted in total.
    pub fn connections(&self) -> usize {
        lock(&self.book).connections
    }

    /// Waits until this many requests to a path have arrived, and returns all requests to it.
    pub async fn wait(&self, path: &str, count: usize) -> Vec<Request> {
        eventually(&format!("{count} requests to {path}"), async || {
            let requests = self.to(path);
            if requests.len() >= count { Ok(requests) } else { Err(format!("{} came", requests.len())) }
        })
        .await
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves the requests of one connection, until either side closes it.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, book: Arc<Mutex<Book>>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        let (number, reply) = lock(&book).note(request);
        let answer = match reply {
            Reply::Answer(answer) => answer,
            Reply::Close => return,
            Reply::Hang => return closed(&mut stream).await,
        };
        if let Some(gate) = &answer.gate {
            tokio::select! {
                () = gate.pass() => {}
                () = closed(&mut stream) => return,
            }
        }
        if !answer.after.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(answer.after) => {}
                () = closed(&mut stream) => return,
            }
        }
        let Answer { status, headers, body, .. } = answer;
        let length = if status == 204 { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let text = format!("HTTP/1.1 {status} Scripted\r\n{headers}{length}\r\n{body}");
        // Noted before the write, because the client may act on the answer before this task continues.
        lock(&book).log[number].answered = Some((status, Instant::now()));
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Waits until the other side closes the connection.
pub async fn closed(stream: &mut (impl AsyncRead + Unpin)) {
    while let Ok(1..) = stream.read(&mut [0; 1024]).await {}
}

/// Reads one request. Returns `None` if the connection ends before the request is complete.
pub async fn read(stream: &mut BufReader<impl AsyncRead + Unpin>) -> Option<Request> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let mut words = head.first()?.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let pairs = head[1..].iter().filter_map(|line| line.split_once(':'));
    let headers: BTreeMap<_, _> = pairs.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned())).collect();
    let length = headers.get("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { at: Instant::now(), method, path, headers, body, answered: None })
}

/// Returns the times between consecutive requests.
pub fn gaps(requests: &[Request]) -> Vec<Duration> {
    requests.windows(2).map(|pair| pair[1].at - pair[0].at).collect()
}
