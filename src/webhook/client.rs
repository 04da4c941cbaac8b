//! HTTP clients, one for each distinct connect timeout and TLS, so that connections are shared as widely as settings allow.
//!
//! To make one may take long: private keys and thousands of certificates are parsed. So that is done on threads for such work, once for
//! all that wait for the same client, and never while the list of clients is locked.

pub(super) mod connect;
pub(super) mod line;
pub(super) mod proxy;
pub(super) mod tls;
pub(super) mod trust;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::client::legacy::{self, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;

use super::egress::policy::Policy;
use super::egress::resolver::Guarded;
use super::request::timely::Timely;
use super::secrets::spellings::base64;
use connect::Connector;
use line::Call;
use proxy::Proxy;
use tls::{Fingerprint, Tls};
use trust::Verifies;

/// What all clients may take of memory, by what is reckoned for each. Beyond that the ones that were not used for longest go.
const MEMORY: usize = 32 * 1024 * 1024;
/// What is reckoned for a client, beside the length of its certificates and keys. Measured: 10 KiB and half of that length; the
/// rest is room for the TLS sessions that it remembers.
const CLIENT: usize = 32 * 1024;
/// One that was not used for so long goes when another is made.
const UNUSED: Duration = Duration::from_mins(10);
/// So many clients are made at once.
const BUILDERS: usize = 2;
/// Idle connections kept to one receiver: as many as are likely to be busy at once.
const MAX_IDLE: usize = 64;
/// How long an idle connection is kept: less than most servers do, so that it is rarely closed under a request.
const IDLE: Duration = Duration::from_secs(30);
/// A busy HTTP/2 connection that says nothing for so long is asked whether it lives, and must say so within the same time.
/// Otherwise all requests to a receiver would go on timing out on one dead connection.
const PING: Duration = Duration::from_secs(10);
/// Bytes of response headers over HTTP/2. Over HTTP/1, hyper takes 100 headers and some 400 KiB.
const MAX_HEADERS: u32 = 16 * 1024;
/// What a receiver may send ahead of what is read, over HTTP/2: so much of one answer, and so much of all that share a connection.
/// Of an answer no more than 4 KiB are read, so that more would only be memory that a receiver can fill.
const STREAM_WINDOW: u32 = 16 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// Sent as `user-agent`.
pub(super) const USER_AGENT: &str = concat!("pennant/", env!("CARGO_PKG_VERSION"));

/// A client.
pub(super) type Http = legacy::Client<Connector, Timely>;

/// The clients.
#[derive(Debug)]
pub struct Clients {
    maker: Arc<Maker>,
    made: Mutex<HashMap<Settings, Entry>>,
    builders: Semaphore,
}

/// What all clients have in common.
#[derive(Debug)]
struct Maker {
    policy: Arc<Policy>,
    proxy: Option<Proxy>,
    /// By the authorities of the system. They are read once, which takes long.
    system: Verifies,
}

/// What tells clients apart.
type Settings = (Duration, Fingerprint);

/// A client, or the place for one that is being made.
#[derive(Debug)]
struct Entry {
    client: Arc<OnceCell<Http>>,
    /// What is reckoned for it, in bytes.
    cost: usize,
    used: Instant,
}

/// One request and its answer.
pub(super) struct Exchange {
    answering: ResponseFuture,
    call: Call,
}

/// Why no client can be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Certificates that cannot be used.
    #[error("the TLS settings cannot be used")]
    Tls(#[from] rustls::Error),
    /// The place of the proxy.
    #[error("the URL of the proxy cannot be used")]
    Proxy(#[from] http::uri::InvalidUri),
    /// The process ends.
    #[error("the client was not made to the end")]
    Unfinished,
}

impl Clients {
    /// The one for these connect timeout and no TLS of its own, which most requests use. They trust these authorities beside those
    /// that the system trusts.
    pub fn new(
        policy: Arc<Policy>,
        proxy: Option<Proxy>,
        roots: Vec<CertificateDer<'static>>,
        connect_timeout: Duration,
    ) -> Result<Self, ClientError> {
        let maker = Arc::new(Maker { policy, proxy, system: tls::system(roots)? });
        let tls = Tls::default();
        let client = maker.make(connect_timeout, &tls)?;
        let entry = Entry { client: Arc::new(OnceCell::new_with(Some(client))), cost: cost(&tls), used: Instant::now() };
        let made = HashMap::from([((connect_timeout, tls.fingerprint()), entry)]);
        Ok(Self { maker, made: Mutex::new(made), builders: Semaphore::new(BUILDERS) })
    }

    /// The proxy that all requests go through.
    pub fn proxy(&self) -> Option<&Proxy> {
        self.maker.proxy.as_ref()
    }

    /// The client with this connect timeout and TLS.
    pub async fn get(&self, connect_timeout: Duration, tls: &Tls) -> Result<Http, ClientError> {
        let settings = (connect_timeout, tls.fingerprint());
        let place = self.place(settings, cost(tls));
        let client = place.get_or_try_init(|| self.build(connect_timeout, tls.clone())).await.cloned();
        if client.is_err() {
            self.forget(&settings, &place);
        }
        client
    }

    /// Where the client with these settings is, or will be.
    fn place(&self, settings: Settings, cost: usize) -> Arc<OnceCell<Http>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(entry) = made.get_mut(&settings) {
            entry.used = now;
            return Arc::clone(&entry.client);
        }
        make_room(&mut made, cost, now);
        let client = Arc::default();
        made.insert(settings, Entry { client: Arc::clone(&client), cost, used: now });
        client
    }

    /// Nothing has come of it.
    fn forget(&self, settings: &Settings, place: &Arc<OnceCell<Http>>) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.get(settings).is_some_and(|entry| Arc::ptr_eq(&entry.client, place)) && !place.initialized() {
            made.remove(settings);
        }
    }

    async fn build(&self, connect_timeout: Duration, tls: Tls) -> Result<Http, ClientError> {
        let _turn = self.builders.acquire().await.map_err(|_| ClientError::Unfinished)?;
        let maker = Arc::clone(&self.maker);
        let building = tokio::task::spawn_blocking(move || maker.make(connect_timeout, &tls));
        building.await.map_err(|_| ClientError::Unfinished)?
    }
}

/// What is reckoned for a client.
fn cost(tls: &Tls) -> usize {
    CLIENT + tls.length()
}

/// Takes out what is not used, and then what was not used for longest, until there is room for one more. Requests that are under way
/// keep their client until they are over.
fn make_room(made: &mut HashMap<Settings, Entry>, cost: usize, now: Instant) {
    made.retain(|_, entry| now.duration_since(entry.used) < UNUSED);
    let mut all: usize = made.values().map(|entry| entry.cost).sum();
    while all + cost > MEMORY {
        let Some(oldest) = made.iter().min_by_key(|(_, entry)| entry.used).map(|(settings, _)| *settings) else { return };
        all -= made.remove(&oldest).map_or(0, |entry| entry.cost);
    }
}

impl Maker {
    fn make(&self, connect_timeout: Duration, tls: &Tls) -> Result<Http, ClientError> {
        let proxy = self.proxy.as_ref();
        let tls = tls.config(&self.system, proxy)?;
        Ok(http(Connector::new(Guarded::new(&self.policy, proxy), tls, proxy, connect_timeout)?))
    }
}

/// A client with these connections.
pub(super) fn http(connector: Connector) -> Http {
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(MAX_IDLE)
        .pool_idle_timeout(IDLE)
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PING)
        .http2_max_header_list_size(MAX_HEADERS)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .build(connector)
}

impl Exchange {
    /// Nothing is done yet.
    pub(super) fn new(client: &Http, mut request: Request<Timely>) -> Self {
        let call = Call::new(capture_connection(&mut request));
        Self { answering: client.request(request), call }
    }

    /// The head of the answer. May be given up, and waited for again.
    pub(super) async fn head(&mut self) -> Result<Response<Incoming>, legacy::Error> {
        poll_fn(|cx| {
            let head = Pin::new(&mut self.answering).poll(cx);
            self.call.look();
            head
        })
        .await
    }

    /// Nothing more is wanted of it, and it was in time. Otherwise its connection is closed when no request is under way on it.
    pub(super) fn finish(self) {
        self.call.finish();
    }
}

/// A user name and a password as the value of a header (RFC 7617).
pub(super) fn basic(username: &str, password: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Basic {}", base64(format!("{username}:{password}").as_bytes()))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients() -> Clients {
        crate::webhook::tests::provider();
        Clients::new(Arc::default(), None, Vec::new(), Duration::from_secs(5)).unwrap()
    }

    fn timeouts(clients: &Clients) -> Vec<u64> {
        let mut all: Vec<_> = clients.made.lock().unwrap().keys().map(|(timeout, _)| timeout.as_secs()).collect();
        all.sort_unstable();
        all
    }

    #[tokio::test]
    async fn hundreds_of_clients_are_kept_and_the_ones_not_used_for_longest_go() {
        const ROOM: u64 = (MEMORY / CLIENT) as u64;
        let clients = clients();
        let get = async |seconds| drop(clients.get(Duration::from_secs(seconds), &Tls::default()).await.unwrap());
        for seconds in 5..5 + ROOM {
            get(seconds).await;
        }
        const { assert!(ROOM > 500) };
        assert_eq!(timeouts(&clients), (5..5 + ROOM).collect::<Vec<_>>());
        get(5).await;
        get(5 + ROOM).await;
        assert_eq!(timeouts(&clients), [5].into_iter().chain(7..=5 + ROOM).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_client_that_nobody_uses_goes_when_another_is_made() {
        let clients = clients();
        drop(clients.get(Duration::from_secs(6), &Tls::default()).await.unwrap());
        let mut made = clients.made.lock().unwrap();
        let first = made.values().map(|entry| entry.used).min().unwrap();
        make_room(&mut made, CLIENT, first + UNUSED - Duration::from_nanos(1));
        assert_eq!(made.len(), 2);
        make_room(&mut made, CLIENT, first + UNUSED);
        assert_eq!(made.len(), 1);
    }

    #[tokio::test]
    async fn large_certificates_count_by_their_length_and_those_of_no_use_are_not_kept() {
        let clients = clients();
        let authority = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap().cert.pem();
        // Each of a million bytes, which is the most that a Secret holds.
        let large = |number: usize| {
            let mut tls = Tls::default();
            tls.trust(format!("{authority}{number}{}", " ".repeat(1_000_000 - authority.len())).into());
            tls
        };
        for number in 10..60 {
            clients.get(Duration::from_secs(6), &large(number)).await.unwrap();
            let costs: usize = clients.made.lock().unwrap().values().map(|entry| entry.cost).sum();
            assert!(costs <= MEMORY, "{costs}");
        }
        assert_eq!(timeouts(&clients).len(), MEMORY / (CLIENT + 1_000_002));
        let mut junk = Tls::default();
        junk.trust("junk".into());
        assert!(matches!(clients.get(Duration::from_secs(9), &junk).await, Err(ClientError::Tls(_))));
        assert!(!timeouts(&clients).contains(&9));
    }

    #[tokio::test]
    async fn all_that_want_the_same_client_wait_for_one_and_nobody_else_does() {
        let clients = clients();
        let builders = clients.builders.acquire_many(u32::try_from(BUILDERS).unwrap()).await.unwrap();
        let get = async |seconds| clients.get(Duration::from_secs(seconds), &Tls::default()).await;
        let mut waiting = futures::future::join_all((0..100).map(|_| Box::pin(get(6))));
        assert!(futures::poll!(&mut waiting).is_pending());
        get(5).await.unwrap();
        drop(builders);
        assert_eq!(waiting.await.into_iter().flatten().count(), 100);
        assert_eq!(timeouts(&clients), [5, 6]);
    }
}
