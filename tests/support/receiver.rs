//! An HTTP receiver on loopback that writes down what it gets and answers by script.
//!
//! It speaks HTTP/1.1 by itself: a test must be able to say nothing, to hang up, or to be slow, which no framework offers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpSocket;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::wait::eventually;

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// When all of it was there.
    pub at: Instant,
    /// Its method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Its headers; the names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: Vec<u8>,
    /// What was answered, and when; nothing while it is open, or if nothing ever was.
    pub answered: Option<(u16, Instant)>,
}

impl Request {
    /// The `webhook-id`.
    pub fn id(&self) -> &str {
        self.header("webhook-id")
    }

    /// A header, empty if it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// The body, which must be JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("not JSON: {e}: {}", String::from_utf8_lossy(&self.body)))
    }
}

/// What is done with a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// An answer.
    Answer(Answer),
    /// Nothing, ever.
    Hang,
    /// The connection is closed.
    Close,
}

/// An answer in the making.
#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    headers: String,
    body: String,
    gate: Option<Gate>,
    after: Duration,
}

impl Reply {
    /// An empty answer of this status.
    pub fn status(status: u16) -> Self {
        Self::Answer(Answer { status, headers: String::new(), body: String::new(), gate: None, after: Duration::ZERO })
    }

    /// With a body.
    pub fn body(self, body: &str) -> Self {
        self.with(|answer| body.clone_into(&mut answer.body))
    }

    /// With a header.
    pub fn header(self, name: &str, value: &str) -> Self {
        self.with(|answer| answer.headers.extend([name, ": ", value, "\r\n"]))
    }

    /// Not before the gate is opened.
    pub fn behind(self, gate: &Gate) -> Self {
        self.with(|answer| answer.gate = Some(gate.clone()))
    }

    /// Not before so much time has passed.
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

/// Holds answers back until it is opened.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

impl Gate {
    /// A closed one.
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets all pass, now and later.
    pub fn open(&self) {
        self.0.close();
    }

    /// Waits until it is open.
    pub async fn pass(&self) {
        let _ = self.0.acquire().await;
    }
}

/// What is done with a request.
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
    /// Writes a request down and says what is done with it.
    fn note(&mut self, request: Request) -> (usize, Reply) {
        let scripted = self.scripts.get_mut(&request.path).and_then(VecDeque::pop_front);
        let ruled = || self.rules.get(&request.path).cloned();
        let mut decided = || self.decide.as_mut().map(|decide| decide(&request));
        let reply = scripted.or_else(ruled).or_else(&mut decided).unwrap_or_else(|| Reply::status(200));
        self.log.push(request);
        (self.log.len() - 1, reply)
    }
}

/// The receiver; it is gone when dropped.
pub struct Receiver {
    address: SocketAddr,
    book: Arc<Mutex<Book>>,
    /// Bound and not listening, while connections are refused.
    socket: Option<TcpSocket>,
    /// Over TLS, with this certificate.
    tls: Option<TlsAcceptor>,
    tasks: JoinSet<()>,
}

impl Receiver {
    /// One that answers 200, unless a script says otherwise.
    pub fn start() -> Self {
        let mut receiver = Self::refusing();
        receiver.listen();
        receiver
    }

    /// The same over TLS.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub fn over_tls(config: ServerConfig) -> Self {
        let mut receiver = Self { tls: Some(Arc::new(config).into()), ..Self::refusing() };
        receiver.listen();
        receiver
    }

    /// One that has its port and refuses connections until [`Receiver::listen`].
    pub fn refusing() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        let address = socket.local_addr().expect("its address");
        Self { address, book: Arc::default(), socket: Some(socket), tls: None, tasks: JoinSet::new() }
    }

    /// From now on connections are taken.
    pub fn listen(&mut self) {
        let socket = self.socket.take().expect("listens already");
        let listener = socket.listen(1024).expect("listens");
        let (book, tls) = (self.book.clone(), self.tls.clone());
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                lock(&book).connections += 1;
                let (book, tls) = (book.clone(), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => serve(stream, book).await,
                        // Whoever does not trust us says so in the handshake, and is not heard of again.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, book).await;
                            }
                        }
                    }
                });
            }
        });
    }

    /// The URL of a path here.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    /// What is done with the next requests to this path, one after the other.
    pub fn script(&self, path: &str, replies: impl IntoIterator<Item = Reply>) {
        lock(&self.book).scripts.entry(path.to_owned()).or_default().extend(replies);
    }

    /// What is done with all requests to this path for which there is no script.
    pub fn always(&self, path: &str, reply: Reply) {
        lock(&self.book).rules.insert(path.to_owned(), reply);
    }

    /// Decides what is done with requests for which there is neither a script nor a rule.
    pub fn decide(&self, decide: impl FnMut(&Request) -> Reply + Send + 'static) {
        lock(&self.book).decide = Some(Box::new(decide));
    }

    /// Everything that came so far, in the order in which it came.
    pub fn log(&self) -> Vec<Request> {
        lock(&self.book).log.clone()
    }

    /// What came to one path.
    pub fn to(&self, path: &str) -> Vec<Request> {
        self.log().into_iter().filter(|r| r.path == path).collect()
    }

    /// How many connections were ever made.
    pub fn connections(&self) -> usize {
        lock(&self.book).connections
    }

    /// Waits until so many requests have come to this path, and gives them.
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

/// Requests of one connection, until either side closes it.
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
        // Noted first: once the answer is out, whoever reads it may act before this goes on.
        lock(&book).log[number].answered = Some((status, Instant::now()));
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Waits until the other side has gone.
pub async fn closed(stream: &mut (impl AsyncRead + Unpin)) {
    while let Ok(1..) = stream.read(&mut [0; 1024]).await {}
}

/// One request; nothing when the connection ends before it is whole.
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

/// The gaps between requests.
pub fn gaps(requests: &[Request]) -> Vec<Duration> {
    requests.windows(2).map(|pair| pair[1].at - pair[0].at).collect()
}
