//! HTTP clients, one for each distinct kind of requests, connect timeout and TLS configuration. So requests with equal settings share
//! connections.
//!
//! Creating a client can be slow, because it parses private keys and thousands of certificates. So a thread for blocking work creates
//! it, once for all requests that wait for the same client. The list of clients is not locked during that time.

pub(super) mod connect;
pub(super) mod line;
pub(super) mod proxy;
pub(super) mod tls;
pub(super) mod traffic;
pub(super) mod trust;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::client::legacy::{self, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;

use super::request::timely::Timely;
use super::secrets::spellings::base64;
use crate::addresses::policy::Policy;
use crate::addresses::resolver::Guarded;
use connect::Connector;
use line::Call;
use proxy::Proxy;
use relaybook_runtime::apart::apart;
use tls::{Fingerprint, Tls};
use traffic::Traffic;
use trust::Verifies;

/// Maximum estimated memory of all clients, in bytes. Beyond it the least recently used clients are removed.
const MEMORY: usize = 32 * 1024 * 1024;
/// Estimated memory of a client in bytes, in addition to the length of its certificates and keys. Measurements show 10 KiB plus half of
/// that length. The rest is reserved for cached TLS sessions.
const CLIENT: usize = 32 * 1024;
/// A client that is unused for this time is removed when another client is created.
const UNUSED: Duration = Duration::from_mins(10);
/// Maximum number of clients that are created concurrently.
const BUILDERS: usize = 2;
/// How long an idle connection is kept. This is shorter than on most servers, so a server rarely closes it during a request.
const IDLE: Duration = Duration::from_secs(30);
/// Interval and timeout of HTTP/2 pings: a busy connection without incoming data is pinged after this time, and must answer within the
/// same time. Otherwise all requests to a receiver would continue to time out on one dead connection.
const PING: Duration = Duration::from_secs(10);
/// Maximum number of bytes in response headers over HTTP/2. Over HTTP/1, hyper accepts 100 headers and about 400 KiB.
const MAX_HEADERS: u32 = 16 * 1024;
/// Sent as `user-agent`.
pub(super) const USER_AGENT: &str = concat!("relaybook/", env!("CARGO_PKG_VERSION"));

/// An HTTP client that uses our [`Connector`].
pub(super) type Http = legacy::Client<Connector, Timely>;

/// All HTTP clients of one sender, by their settings.
#[derive(Debug)]
pub struct Clients {
    factory: Arc<ClientFactory>,
    entries: Mutex<HashMap<Settings, Entry>>,
    builders: Semaphore,
}

/// The settings that all clients share.
#[derive(Debug)]
struct ClientFactory {
    policy: Arc<Policy>,
    proxy: Option<Proxy>,
    /// Verifies with the CA certificates of the system and the extra roots. They are read only once, because that is slow.
    system: Verifies,
}

/// The settings that distinguish clients.
type Settings = (Traffic, Duration, Fingerprint);

/// A client, or the slot for a client that is being created.
#[derive(Debug)]
struct Entry {
    client: Arc<OnceCell<Http>>,
    /// The estimated memory in bytes.
    cost: usize,
    used: Instant,
}

/// One request and its answer.
pub(super) struct Exchange {
    answering: ResponseFuture,
    call: Call,
}

/// Why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The certificates cannot be used.
    #[error("the TLS settings cannot be used")]
    Tls(#[from] rustls::Error),
    /// The URL of the proxy cannot be used.
    #[error("the URL of the proxy cannot be used")]
    Proxy(#[from] http::uri::InvalidUri),
    /// The creation panicked, or the process exits.
    #[error("the creation of the client was aborted")]
    Unfinished,
}

impl Clients {
    /// Creates the client for deliveries with this connect timeout and default TLS, which most requests use. All clients trust `roots` in
    /// addition to the CA certificates of the system.
    pub fn new(
        policy: Arc<Policy>,
        proxy: Option<Proxy>,
        roots: Vec<CertificateDer<'static>>,
        connect_timeout: Duration,
    ) -> Result<Self, ClientError> {
        let factory = Arc::new(ClientFactory { policy, proxy, system: tls::system(roots)? });
        let tls = Tls::default();
        let client = factory.create(Traffic::Webhooks, connect_timeout, &tls)?;
        let entry = Entry { client: Arc::new(OnceCell::new_with(Some(client))), cost: cost(&tls), used: Instant::now() };
        let entries = HashMap::from([((Traffic::Webhooks, connect_timeout, tls.fingerprint()), entry)]);
        Ok(Self { factory, entries: Mutex::new(entries), builders: Semaphore::new(BUILDERS) })
    }

    /// Returns the proxy for all requests, if there is one.
    pub fn proxy(&self) -> Option<&Proxy> {
        self.factory.proxy.as_ref()
    }

    /// Returns the client with these settings, and creates it if necessary.
    pub async fn get(&self, traffic: Traffic, connect_timeout: Duration, tls: &Tls) -> Result<Http, ClientError> {
        let settings = (traffic, connect_timeout, tls.fingerprint());
        let slot = self.slot(settings, cost(tls));
        let client = slot.get_or_try_init(|| self.build(traffic, connect_timeout, tls.clone())).await.cloned();
        if client.is_err() {
            self.forget(&settings, &slot);
        }
        client
    }

    /// Returns the slot for the client with these settings, and creates it if necessary.
    fn slot(&self, settings: Settings, cost: usize) -> Arc<OnceCell<Http>> {
        let mut entries = self.entries.lock();
        let now = Instant::now();
        if let Some(entry) = entries.get_mut(&settings) {
            entry.used = now;
            return Arc::clone(&entry.client);
        }
        make_room(&mut entries, cost, now);
        let client = Arc::default();
        entries.insert(settings, Entry { client: Arc::clone(&client), cost, used: now });
        client
    }

    /// Removes the slot of a client that could not be created.
    fn forget(&self, settings: &Settings, slot: &Arc<OnceCell<Http>>) {
        let mut entries = self.entries.lock();
        if entries.get(settings).is_some_and(|entry| Arc::ptr_eq(&entry.client, slot)) && !slot.initialized() {
            entries.remove(settings);
        }
    }

    async fn build(&self, traffic: Traffic, connect_timeout: Duration, tls: Tls) -> Result<Http, ClientError> {
        let _permit = self.builders.acquire().await.map_err(|_| ClientError::Unfinished)?;
        let factory = Arc::clone(&self.factory);
        let building = apart(move || factory.create(traffic, connect_timeout, &tls));
        building.await.map_err(|_| ClientError::Unfinished)?
    }
}

/// The estimated memory of a client.
fn cost(tls: &Tls) -> usize {
    CLIENT + tls.length()
}

/// Removes unused clients, and then the least recently used ones, until the memory limit allows another client. Requests in flight keep
/// their client until they end.
fn make_room(entries: &mut HashMap<Settings, Entry>, cost: usize, now: Instant) {
    entries.retain(|_, entry| now.duration_since(entry.used) < UNUSED);
    let mut all: usize = entries.values().map(|entry| entry.cost).sum();
    while all + cost > MEMORY {
        let Some(oldest) = entries.iter().min_by_key(|(_, entry)| entry.used).map(|(settings, _)| *settings) else { return };
        all -= entries.remove(&oldest).map_or(0, |entry| entry.cost);
    }
}

impl ClientFactory {
    fn create(&self, traffic: Traffic, connect_timeout: Duration, tls: &Tls) -> Result<Http, ClientError> {
        let proxy = self.proxy.as_ref();
        let tls = tls.config(&self.system, proxy)?;
        let resolver = Guarded::new(&self.policy, proxy);
        Ok(http(Connector::new(resolver, tls, proxy, connect_timeout, traffic)?))
    }
}

/// Creates a client with this connector.
pub(super) fn http(connector: Connector) -> Http {
    let traffic = connector.traffic();
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(traffic.max_idle())
        .pool_idle_timeout(IDLE)
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PING)
        .http2_max_header_list_size(MAX_HEADERS)
        .http2_initial_stream_window_size(traffic.stream_window())
        .http2_initial_connection_window_size(traffic.connection_window())
        .build(connector)
}

impl Exchange {
    /// Creates an exchange without sending anything yet.
    pub(super) fn new(client: &Http, mut request: Request<Timely>) -> Self {
        let call = Call::new(capture_connection(&mut request));
        Self { answering: client.request(request), call }
    }

    /// Sets the maximum number of bytes in the body of the answer. More data can arrive only if no other request on the connection has
    /// timed out.
    pub(super) fn expecting(mut self, body: usize) -> Self {
        self.call.expect(body);
        self
    }

    /// Waits for the head of the answer. The caller can cancel the wait and wait again.
    pub(super) async fn head(&mut self) -> Result<Response<Incoming>, legacy::Error> {
        poll_fn(|cx| {
            let head = Pin::new(&mut self.answering).poll(cx);
            self.call.track_connection();
            head
        })
        .await
    }

    /// Marks the exchange as completed in time. Without this call, its connection is closed when no request is in flight on it.
    pub(super) fn finish(self) {
        self.call.finish();
    }
}

/// Returns a user name and a password as a header value for basic authentication (RFC 7617).
pub(super) fn basic(username: &str, password: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Basic {}", base64(format!("{username}:{password}").as_bytes()))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients() -> Clients {
        crate::tests::provider();
        Clients::new(Arc::default(), None, Vec::new(), Duration::from_secs(5)).unwrap()
    }

    async fn get(clients: &Clients, seconds: u64, tls: &Tls) -> Result<Http, ClientError> {
        clients.get(Traffic::Webhooks, Duration::from_secs(seconds), tls).await
    }

    fn timeouts(clients: &Clients) -> Vec<u64> {
        let mut all: Vec<_> = clients.entries.lock().keys().map(|(_, timeout, _)| timeout.as_secs()).collect();
        all.sort_unstable();
        all
    }

    #[tokio::test]
    async fn hundreds_of_clients_are_kept_and_the_least_recently_used_are_removed() {
        const ROOM: u64 = (MEMORY / CLIENT) as u64;
        let clients = clients();
        let get = async |seconds| drop(get(&clients, seconds, &Tls::default()).await.unwrap());
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
    async fn an_unused_client_is_removed_when_another_is_created() {
        let clients = clients();
        drop(get(&clients, 6, &Tls::default()).await.unwrap());
        let mut entries = clients.entries.lock();
        let first = entries.values().map(|entry| entry.used).min().unwrap();
        make_room(&mut entries, CLIENT, first + UNUSED - Duration::from_nanos(1));
        assert_eq!(entries.len(), 2);
        make_room(&mut entries, CLIENT, first + UNUSED);
        assert_eq!(entries.len(), 1);
    }

    #[tokio::test]
    async fn large_certificates_count_by_their_length_and_invalid_ones_are_not_kept() {
        let clients = clients();
        let authority = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap().cert.pem();
        // Each has a million bytes, which is about the maximum size of a Secret.
        let large = |number: usize| {
            let mut tls = Tls::default();
            tls.trust(format!("{authority}{number}{}", " ".repeat(1_000_000 - authority.len())).into());
            tls
        };
        for number in 10..60 {
            get(&clients, 6, &large(number)).await.unwrap();
            let costs: usize = clients.entries.lock().values().map(|entry| entry.cost).sum();
            assert!(costs <= MEMORY, "{costs}");
        }
        assert_eq!(timeouts(&clients).len(), MEMORY / (CLIENT + 1_000_002));
        let mut junk = Tls::default();
        junk.trust("junk".into());
        assert!(matches!(get(&clients, 9, &junk).await, Err(ClientError::Tls(_))));
        assert!(!timeouts(&clients).contains(&9));
    }

    #[tokio::test]
    async fn requests_for_the_same_client_wait_for_one_creation_and_others_do_not_wait() {
        let clients = clients();
        let builders = clients.builders.acquire_many(u32::try_from(BUILDERS).unwrap()).await.unwrap();
        let get = async |seconds| get(&clients, seconds, &Tls::default()).await;
        let mut waiting = futures::future::join_all((0..100).map(|_| Box::pin(get(6))));
        assert!(futures::poll!(&mut waiting).is_pending());
        get(5).await.unwrap();
        drop(builders);
        assert_eq!(waiting.await.into_iter().flatten().count(), 100);
        assert_eq!(timeouts(&clients), [5, 6]);
    }

    #[tokio::test]
    async fn requests_of_different_kinds_have_different_clients() {
        let clients = clients();
        for _ in 0..2 {
            clients.get(Traffic::Forges, Duration::from_secs(5), &Tls::default()).await.unwrap();
            get(&clients, 5, &Tls::default()).await.unwrap();
        }
        assert_eq!(timeouts(&clients), [5, 5]);
    }
}
