//! HTTP clients, one for each distinct connect timeout and TLS, so that connections are shared as widely as settings allow.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Client;
use rustls::pki_types::CertificateDer;

use super::policy::Policy;
use super::proxy::Proxy;
use super::resolver::Guarded;
use super::tls::{self, Fingerprint, Tls, Verifies};

/// So many clients at most; the one that was not used for longest goes.
const MAX_CLIENTS: usize = 32;
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

/// The clients.
#[derive(Debug)]
pub struct Clients {
    policy: Arc<Policy>,
    proxy: Option<Proxy>,
    /// By the authorities of the system. They are read once, which takes long.
    system: Verifies,
    /// The one used last stands last.
    made: Mutex<Vec<(Settings, Client)>>,
}

/// What tells clients apart.
type Settings = (Duration, Fingerprint);

/// Why no client can be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Certificates that cannot be used.
    #[error("the TLS settings cannot be used")]
    Tls(#[from] rustls::Error),
    /// Anything else.
    #[error("the HTTP library refuses")]
    Http(#[from] reqwest::Error),
}

impl Clients {
    /// None yet. They trust these authorities beside those that the system trusts.
    pub fn new(policy: Arc<Policy>, proxy: Option<Proxy>, roots: Vec<CertificateDer<'static>>) -> Result<Self, ClientError> {
        Ok(Self { policy, proxy, system: tls::system(roots)?, made: Mutex::default() })
    }

    /// The proxy that all requests go through.
    pub fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// The client with this connect timeout and TLS.
    pub fn get(&self, connect_timeout: Duration, tls: &Tls) -> Result<Client, ClientError> {
        let settings = (connect_timeout, tls.fingerprint());
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = match made.iter().position(|(of, _)| *of == settings) {
            Some(at) => made.remove(at),
            None => (settings, self.make(connect_timeout, tls)?),
        };
        let client = entry.1.clone();
        if made.len() >= MAX_CLIENTS {
            made.remove(0);
        }
        made.push(entry);
        Ok(client)
    }

    fn make(&self, connect_timeout: Duration, tls: &Tls) -> Result<Client, ClientError> {
        let mut builder =
            Client::builder().tls_backend_preconfigured(tls.config(&self.system, self.proxy.as_ref())?).no_proxy();
        if let Some(proxy) = &self.proxy {
            builder = builder.proxy(proxy.all()?);
        }
        let client = builder
            .user_agent(USER_AGENT)
            .redirect(reqwest::redirect::Policy::none())
            .dns_resolver(Guarded::new(&self.policy, self.proxy.as_ref()))
            .connect_timeout(connect_timeout)
            .tcp_nodelay(true)
            .pool_max_idle_per_host(MAX_IDLE)
            .pool_idle_timeout(IDLE)
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PING)
            .http2_max_header_list_size(MAX_HEADERS)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .build()?;
        Ok(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_not_used_for_longest_goes() {
        crate::send::tests::provider();
        let clients = Clients::new(Arc::default(), None, Vec::new()).unwrap();
        let timeouts = || clients.made.lock().unwrap().iter().map(|((t, _), _)| t.as_secs()).collect::<Vec<_>>();
        for seconds in 1..=MAX_CLIENTS as u64 {
            clients.get(Duration::from_secs(seconds), &Tls::default()).unwrap();
        }
        clients.get(Duration::from_secs(1), &Tls::default()).unwrap();
        assert_eq!(timeouts().len(), MAX_CLIENTS);
        clients.get(Duration::from_secs(100), &Tls::default()).unwrap();
        assert_eq!(timeouts().len(), MAX_CLIENTS);
        assert_eq!((timeouts().first(), timeouts().last()), (Some(&3), Some(&100)));
        assert!(timeouts().contains(&1));
    }
}
