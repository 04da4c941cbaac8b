//! A receiver that uses little processor time: it counts requests by path, and answers 204 or as its [`Manner`] defines.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

/// One chunk of a body.
static CHUNK: [u8; 64 * 1024] = [b'x'; 64 * 1024];

/// The requests so far.
#[derive(Clone, Debug, Default)]
pub struct Arrived {
    /// Number of requests that were answered, or are about to be.
    pub total: usize,
    /// The same by path, without the query.
    pub by_path: HashMap<String, usize>,
    /// When the last one was counted.
    pub last: Option<Instant>,
}

/// How requests are answered.
#[derive(Clone, Copy, Debug)]
pub enum Manner {
    /// At once, without a body.
    Empty,
    /// After this time, without a body.
    Slow(Duration),
    /// At once, with a body of this many bytes, as fast as the client reads.
    Body(usize),
}

pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// The socket while it is bound but not listening, so that connections are refused.
    socket: Option<TcpSocket>,
}

struct Shared {
    arrived: watch::Sender<Arrived>,
    /// When each request arrived, by path and query.
    times: Mutex<HashMap<String, Vec<Instant>>>,
    open: watch::Sender<bool>,
    manner: watch::Sender<Manner>,
    connections: AtomicUsize,
}

impl Receiver {
    pub fn start() -> Self {
        let mut receiver = Self::refusing();
        receiver.listen();
        receiver
    }

    /// Returns a receiver that reserves its port and refuses connections until [`Receiver::listen`].
    pub fn refusing() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        let address = socket.local_addr().expect("it has an address");
        let shared = Shared {
            arrived: watch::Sender::default(),
            times: Mutex::default(),
            open: watch::Sender::new(true),
            manner: watch::Sender::new(Manner::Empty),
            connections: AtomicUsize::new(0),
        };
        Self { address, shared: Arc::new(shared), socket: Some(socket) }
    }

    /// Starts to accept connections.
    pub fn listen(&mut self) {
        let socket = self.socket.take().expect("listens already");
        let listener = socket.listen(1024).expect("listens");
        tokio::spawn(accept(listener, self.shared.clone()));
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// While it is closed, it reads requests and does not answer. When opened, it answers those that still wait.
    pub fn set_open(&self, open: bool) {
        self.shared.open.send_replace(open);
    }

    /// Sets how requests are answered.
    pub fn set_manner(&self, manner: Manner) {
        self.shared.manner.send_replace(manner);
    }

    /// Returns how many connections were accepted in total.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Returns a watch on the requests.
    pub fn arrivals(&self) -> watch::Receiver<Arrived> {
        self.shared.arrived.subscribe()
    }

    /// Returns the number of requests that were answered, or are about to be.
    pub fn total(&self) -> usize {
        self.shared.arrived.borrow().total
    }

    /// Returns when each request to this path and query arrived.
    pub fn times(&self, target: &str) -> Vec<Instant> {
        let times = self.shared.times.lock();
        times.get(target).cloned().unwrap_or_default()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let shared = shared.clone();
        tokio::spawn(async move { serve(stream, &shared).await });
    }
}

/// Serves the requests of one connection, until the client closes it.
async fn serve(stream: TcpStream, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let mut stream = BufReader::new(stream);
    let mut open = shared.open.subscribe();
    while let Some(target) = read(&mut stream).await {
        let at = Instant::now();
        tokio::select! {
            opened = open.wait_for(|open| *open) => if opened.is_err() { return },
            _ = stream.fill_buf() => return,
        }
        shared.note(target, at);
        let manner = *shared.manner.borrow();
        if answer(&mut stream, manner).await.is_err() {
            return;
        }
    }
}

impl Shared {
    fn note(&self, target: String, at: Instant) {
        let path = target.split('?').next().unwrap_or_default().to_owned();
        self.times.lock().entry(target).or_default().push(at);
        self.arrived.send_modify(|arrived| {
            arrived.total += 1;
            *arrived.by_path.entry(path).or_default() += 1;
            arrived.last = Some(Instant::now());
        });
    }
}

async fn answer(stream: &mut BufReader<TcpStream>, manner: Manner) -> std::io::Result<()> {
    match manner {
        Manner::Empty => {}
        Manner::Slow(span) => {
            // A timer of the runtime can be up to two milliseconds late.
            let slept = tokio::task::spawn_blocking(move || std::thread::sleep(span));
            slept.await?;
        }
        Manner::Body(size) => {
            stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n").as_bytes()).await?;
            let mut left = size;
            while left > 0 {
                let part = left.min(CHUNK.len());
                stream.write_all(&CHUNK[..part]).await?;
                left -= part;
            }
            return Ok(());
        }
    }
    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await
}

/// Reads one request, and returns its path and query.
pub async fn read(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let (mut line, mut target, mut length) = (String::new(), None, 0);
    loop {
        line.clear();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let text = line.trim_end();
        if text.is_empty() {
            break;
        }
        match (&target, text.split_once(':')) {
            (None, _) => target = Some(text.split(' ').nth(1)?.to_owned()),
            (_, Some((name, value))) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    target
}
