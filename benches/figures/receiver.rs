//! A receiver that costs little: it counts requests by path and answers 204, or holds its answers back.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What has come.
#[derive(Clone, Debug, Default)]
pub struct Arrived {
    /// Requests that were answered, or are about to be.
    pub total: usize,
    /// The same by path.
    pub by_path: HashMap<String, usize>,
    /// When the last one came.
    pub last: Option<Instant>,
}

pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    arrived: watch::Sender<Arrived>,
    open: watch::Sender<bool>,
    connections: AtomicUsize,
}

impl Receiver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let shared = Arc::new(Shared {
            arrived: watch::Sender::default(),
            open: watch::Sender::new(true),
            connections: AtomicUsize::new(0),
        });
        let serving = shared.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.connections.fetch_add(1, Ordering::Relaxed);
                let shared = serving.clone();
                tokio::spawn(async move { serve(stream, &shared).await });
            }
        });
        Self { address, shared }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Closed, it takes requests and says nothing; opened, it answers those that still wait.
    pub fn set_open(&self, open: bool) {
        self.shared.open.send_replace(open);
    }

    /// How many connections were ever made.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// What comes, as it comes.
    pub fn arrivals(&self) -> watch::Receiver<Arrived> {
        self.shared.arrived.subscribe()
    }

    /// How many requests were answered.
    pub fn total(&self) -> usize {
        self.shared.arrived.borrow().total
    }
}

/// Requests of one connection, until the other side closes it.
async fn serve(stream: TcpStream, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let mut stream = BufReader::new(stream);
    let mut open = shared.open.subscribe();
    while let Some(path) = read(&mut stream).await {
        tokio::select! {
            opened = open.wait_for(|open| *open) => if opened.is_err() { return },
            _ = stream.fill_buf() => return,
        }
        shared.arrived.send_modify(|arrived| {
            arrived.total += 1;
            *arrived.by_path.entry(path).or_default() += 1;
            arrived.last = Some(Instant::now());
        });
        if stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.is_err() {
            return;
        }
    }
}

/// Reads one request; its path.
async fn read(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let (mut line, mut path, mut length) = (String::new(), None, 0);
    loop {
        line.clear();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let text = line.trim_end();
        if text.is_empty() {
            break;
        }
        match (&path, text.split_once(':')) {
            (None, _) => path = Some(text.split(' ').nth(1)?.to_owned()),
            (_, Some((name, value))) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    path
}
