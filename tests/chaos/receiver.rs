//! An HTTP receiver with bad manners, which writes down what it gets.
//!
//! In: what is to be done with each request, and whether there is a receiver at all. Out: the requests, as the judge reads them.
//! What is broken here on purpose, no library would send: so it speaks HTTP/1.1 by itself.
//!
//! It has two sockets of one port. One holds the port and never listens, so that nobody else gets it while the other is away.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::script::Body;
use crate::support::receiver::{Request, closed, read};

/// Between two bytes of what drips.
const DRIP: Duration = Duration::from_millis(100);
/// What a body without end is made of.
static ENDLESS: [u8; 32 * 1024] = [b'x'; 32 * 1024];
/// More than any client takes for the head of an answer.
const BOMB: usize = 8 << 20;

/// What is done with a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// An answer.
    Answer { status: u16, headers: String, body: Body, after: Duration },
    /// Nothing, ever.
    Hang,
    /// The connection is closed.
    Close,
    /// The head of an answer, a byte at a time and without end.
    DripHead,
    /// The head of an answer, larger than anybody reads.
    Bomb,
}

/// Whether there is a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// There is.
    Here,
    /// Connections are refused, those that were there are closed.
    Gone,
    /// Connections are taken, and nothing is read from any of them.
    Asleep,
}

/// What is done with a request.
type Decide = Box<dyn FnMut(&Request) -> Reply + Send>;

/// The receiver; it is gone when dropped.
pub struct Receiver {
    address: SocketAddr,
    book: Arc<Mutex<Book>>,
    presence: watch::Sender<Presence>,
    /// Holds the port.
    _held: TcpSocket,
    _tasks: JoinSet<()>,
}

struct Book {
    log: Vec<Request>,
    decide: Decide,
}

impl Receiver {
    /// One that does with each request what this says.
    pub fn start(decide: impl FnMut(&Request) -> Reply + Send + 'static) -> Self {
        let held = socket(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = held.local_addr().expect("its address");
        let book = Arc::new(Mutex::new(Book { log: Vec::new(), decide: Box::new(decide) }));
        let presence = watch::Sender::new(Presence::Here);
        let mut tasks = JoinSet::new();
        tasks.spawn(be_there(address, book.clone(), presence.subscribe()));
        Self { address, book, presence, _held: held, _tasks: tasks }
    }

    /// The URL of a path here.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Whether it is there from now on.
    pub fn be(&self, presence: Presence) {
        self.presence.send_replace(presence);
    }

    /// Everything that came so far, in the order in which it came.
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

/// Takes connections while it is there, and closes all of them when that changes: what was sent to one that slept must not be
/// read when it wakes up, for whoever sent it has given it up by then.
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

/// Requests of one connection, until either side closes it.
async fn serve(stream: TcpStream, book: Arc<Mutex<Book>>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        let (number, reply) = lock(&book).note(request);
        // Whoever asked may go away meanwhile, and is not answered then.
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
                // Noted first: once the answer is out, whoever reads it may act before this goes on.
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
    /// Writes a request down and says what is done with it.
    fn note(&mut self, request: Request) -> (usize, Reply) {
        let reply = (self.decide)(&request);
        self.log.push(request);
        (self.log.len() - 1, reply)
    }
}

/// What the head of an answer says of its body. A body that drips or has no end ends with its connection.
fn length(body: Body) -> String {
    match body {
        Body::None => String::new(),
        Body::Short => "content-length: 2\r\n".to_owned(),
        Body::Drips | Body::Endless => "connection: close\r\n".to_owned(),
        Body::BreaksOff => "content-length: 1000\r\n".to_owned(),
    }
}

/// Whether the connection can be used again.
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

/// Says this, and then a byte at a time, until nobody listens.
async fn drip(stream: &mut BufReader<TcpStream>, first: &[u8]) -> bool {
    let mut said = stream.write_all(first).await;
    while said.is_ok() {
        sleep(DRIP).await;
        said = stream.write_all(b"x").await;
    }
    false
}
