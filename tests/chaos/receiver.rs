//! An HTTP receiver that misbehaves, and logs its requests.
//!
//! In: the reaction to each request, and whether the receiver is up. Out: the requests, in the form that the oracle reads.
//! It implements HTTP/1.1 itself, because no library would send answers that are broken on purpose.
//!
//! It has two sockets with one port. One reserves the port and never listens, so that no other process gets the port while
//! the receiver is down.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::script::Body;
use crate::support::receiver::{RUNTIME, Request, closed, read};

/// Pause between two bytes of a slow answer.
const DRIP: Duration = Duration::from_millis(100);
/// One chunk of an endless body.
static ENDLESS: [u8; 32 * 1024] = [b'x'; 32 * 1024];
/// A head of this size is larger than any client accepts.
const BOMB: usize = 8 << 20;

/// The reaction to a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Sends an answer.
    Answer { status: u16, headers: String, body: Body, after: Duration },
    /// Never answers.
    Hang,
    /// Closes the connection.
    Close,
    /// Sends the head of an answer, one byte at a time and without end.
    DripHead,
    /// Sends a head that is larger than any client accepts.
    Bomb,
}

/// Whether the receiver is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It works.
    Here,
    /// Connections are refused, and open ones are closed.
    Gone,
    /// The kernel accepts connections, but nothing is read from them.
    Asleep,
}

/// Function that chooses the reaction to a request.
type Decide = Box<dyn FnMut(&Request) -> Reply + Send>;

/// A running receiver. It stops when dropped.
pub struct Receiver {
    address: SocketAddr,
    book: Arc<Mutex<Book>>,
    presence: watch::Sender<Presence>,
    /// Reserves the port.
    _held: TcpSocket,
    _tasks: JoinSet<()>,
}

struct Book {
    log: Vec<Request>,
    decide: Decide,
}

impl Receiver {
    /// Starts a receiver that calls `decide` for each request.
    pub fn start(decide: impl FnMut(&Request) -> Reply + Send + 'static) -> Self {
        let held = socket(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = held.local_addr().expect("its address");
        let book = Arc::new(Mutex::new(Book { log: Vec::new(), decide: Box::new(decide) }));
        let presence = watch::Sender::new(Presence::Here);
        let mut tasks = JoinSet::new();
        tasks.spawn_on(be_there(address, book.clone(), presence.subscribe()), RUNTIME.handle());
        Self { address, book, presence, _held: held, _tasks: tasks }
    }

    /// Returns the URL of a path of this receiver.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sets whether it is up.
    pub fn be(&self, presence: Presence) {
        self.presence.send_replace(presence);
    }

    /// Returns all requests so far, in order of arrival.
    pub fn log(&self) -> Vec<Request> {
        lock(&self.book).log.clone()
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

fn socket(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseport(true).expect("an option of Linux");
    socket.bind(address).expect("a port that is free, or ours");
    socket
}

/// Accepts connections while the receiver is up, and closes all of them when that changes: a request that was sent while it
/// was asleep must not be read later, because the client has given it up by then.
async fn be_there(address: SocketAddr, book: Arc<Mutex<Book>>, mut presence: watch::Receiver<Presence>) {
    loop {
        let now = *presence.borrow_and_update();
        if now == Presence::Gone {
            match presence.changed().await {
                Ok(()) => continue,
                Err(_) => return,
            }
        }
        let listener = socket(address).listen(1024).expect("listens");
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                changed = presence.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                accepted = listener.accept(), if now == Presence::Here => {
                    let (stream, _) = accepted.expect("a connection");
                    connections.spawn(serve(stream, book.clone()));
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

/// Serves the requests of one connection, until either side closes it.
async fn serve(stream: TcpStream, book: Arc<Mutex<Book>>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        let (number, reply) = lock(&book).note(request);
        // The client may close the connection during the delay. It then gets no answer.
        let go_on = match reply {
            Reply::Answer { status, headers, body, after } => {
                let gone = tokio::select! {
                    () = sleep(after) => false,
                    () = closed(&mut stream), if !after.is_zero() => true,
                };
                if gone {
                    return;
                }
                let head = format!("HTTP/1.1 {status} Scripted\r\n{headers}{}\r\n", length(body));
                // Noted before the write, because the client may act on the answer before this task continues.
                lock(&book).log[number].answered = Some((status, Instant::now()));
                stream.write_all(head.as_bytes()).await.is_ok() && say(&mut stream, body).await
            }
            Reply::Close => false,
            Reply::Hang => {
                closed(&mut stream).await;
                false
            }
            Reply::DripHead => drip(&mut stream, b"HTTP/1.1 200 Scripted\r\nx-drip: ").await,
            Reply::Bomb => {
                let head = format!("HTTP/1.1 200 Scripted\r\nx-bomb: {}\r\n\r\n", "x".repeat(BOMB));
                let _ = stream.write_all(head.as_bytes()).await;
                false
            }
        };
        if !go_on {
            return;
        }
    }
}

impl Book {
    /// Logs a request, and returns its number and the reaction to it.
    fn note(&mut self, request: Request) -> (usize, Reply) {
        let reply = (self.decide)(&request);
        self.log.push(request);
        (self.log.len() - 1, reply)
    }
}

/// Returns the header for the length of a body. A slow or endless body ends with its connection.
fn length(body: Body) -> String {
    match body {
        Body::None => String::new(),
        Body::Short => "content-length: 2\r\n".to_owned(),
        Body::Drips | Body::Endless => "connection: close\r\n".to_owned(),
        Body::BreaksOff => "content-length: 1000\r\n".to_owned(),
    }
}

/// Sends a body, and returns whether the connection can be used again.
async fn say(stream: &mut BufReader<TcpStream>, body: Body) -> bool {
    match body {
        Body::None => true,
        Body::Short => stream.write_all(b"ok").await.is_ok(),
        Body::Drips => drip(stream, b"").await,
        Body::Endless => {
            while stream.write_all(&ENDLESS).await.is_ok() {}
            false
        }
        Body::BreaksOff => {
            let _ = stream.write_all(b"that is not").await;
            false
        }
    }
}

/// Sends `first`, and then one byte at a time until the client closes the connection. Returns `false`.
async fn drip(stream: &mut BufReader<TcpStream>, first: &[u8]) -> bool {
    let mut said = stream.write_all(first).await;
    while said.is_ok() {
        sleep(DRIP).await;
        said = stream.write_all(b"x").await;
    }
    false
}
