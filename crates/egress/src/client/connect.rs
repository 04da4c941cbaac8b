//! Connections to a receiver or to the proxy, with or without TLS. The resolver applies the egress policy.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec::IntoIter;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{HeaderMap, HeaderValue, USER_AGENT};
use http::{Uri, uri};
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tower::{BoxError, Service, service_fn};

use super::line::{ConnectionBudget, Metered};
use super::proxy::Proxy;
use super::traffic::Traffic;
use crate::addresses::resolver::Guarded;
use crate::client;

/// TCP keepalive: idle time and interval of the probes of a silent connection, and number of probes.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_PROBES: u32 = 3;
/// The connection is closed if sent data is not acknowledged within this time.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Creates connections.
#[derive(Clone)]
pub(crate) struct Connector {
    tcp: HttpConnector<Guarded>,
    tls: TlsConnector,
    proxy: Option<Arc<ProxyRoute>>,
    timeout: Duration,
    traffic: Traffic,
}

/// The proxy, and how to connect to it.
struct ProxyRoute {
    proxy: Proxy,
    at: Uri,
    /// The TLS settings without HTTP/2, because requests to the proxy use HTTP/1.
    tls: TlsConnector,
}

/// No connection was established in time.
#[derive(Debug, thiserror::Error)]
#[error("no connection in time")]
pub struct ConnectTimedOut;

/// A name could not be resolved.
#[derive(Debug, thiserror::Error)]
#[error("the name could not be resolved")]
pub struct Unresolved(#[source] BoxError);

/// A connection to a receiver, or to the proxy that forwards the requests.
pub(crate) struct ReceiverConnection {
    io: Box<dyn Io>,
    budget: ConnectionBudget,
    http2: bool,
    /// Whether the other side is a proxy that forwards plain HTTP. It requires requests with full URLs.
    proxied: bool,
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Connector {
    pub(crate) fn new(
        resolver: Guarded,
        tls: ClientConfig,
        proxy: Option<&Proxy>,
        timeout: Duration,
        traffic: Traffic,
    ) -> Result<Self, uri::InvalidUri> {
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        // TLS is added on top of this connector, so not all URLs are `http`.
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEP_ALIVE));
        tcp.set_keepalive_interval(Some(KEEP_ALIVE));
        tcp.set_keepalive_retries(Some(KEEP_ALIVE_PROBES));
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        let route = |proxy: &Proxy| {
            let mut tls = tls.clone();
            tls.alpn_protocols.clear();
            proxy.at().map(|at| Arc::new(ProxyRoute { at, proxy: proxy.clone(), tls: Arc::new(tls).into() }))
        };
        let proxy = proxy.map(route).transpose()?;
        Ok(Self { tcp, tls: Arc::new(tls).into(), proxy, timeout, traffic })
    }

    /// Returns the kind of requests for which the connections are.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic
    }

    async fn connect(self, to: Uri) -> Result<TokioIo<ReceiverConnection>, BoxError> {
        let budget = ConnectionBudget::new(self.traffic.idle_bytes());
        let https = to.scheme() == Some(&uri::Scheme::HTTPS);
        let connection = match self.proxy.clone() {
            None => {
                let io = self.tcp(&to, &budget).await?;
                if https {
                    ReceiverConnection::tls(&self.tls, &to, io, budget).await?
                } else {
                    ReceiverConnection::plain(io, budget, false)
                }
            }
            Some(route) => {
                if https {
                    let io = self.tunnel(&route, &to, &budget).await?;
                    ReceiverConnection::tls(&self.tls, &to, io, budget).await?
                } else {
                    ReceiverConnection::plain(self.proxy(&route, &budget).await?, budget, true)
                }
            }
        };
        connection.budget.mark_ready();
        Ok(TokioIo::new(connection))
    }

    async fn tcp(&self, to: &Uri, budget: &ConnectionBudget) -> Result<Box<dyn Io>, BoxError> {
        #[cfg(feature = "testing")]
        if let Some(played) = crate::played::connect(to) {
            return Ok(Box::new(played));
        }
        let tcp = self.tcp.clone().call(to.clone()).await?.into_inner();
        Ok(Box::new(Metered::new(tcp, budget.clone())))
    }

    async fn proxy(&self, route: &ProxyRoute, budget: &ConnectionBudget) -> Result<Box<dyn Io>, BoxError> {
        let io = self.tcp(&route.at, budget).await?;
        if route.proxy.tls_name().is_none() {
            return Ok(io);
        }
        Ok(Box::new(route.tls.connect(server_name(&route.at)?, io).await?))
    }

    /// Opens a tunnel to a receiver through the proxy.
    async fn tunnel(&self, route: &Arc<ProxyRoute>, to: &Uri, budget: &ConnectionBudget) -> Result<Box<dyn Io>, BoxError> {
        let (this, by, budget) = (self.clone(), Arc::clone(route), budget.clone());
        let proxy = service_fn(move |_: Uri| {
            let (this, by, budget) = (this.clone(), Arc::clone(&by), budget.clone());
            async move { this.proxy(&by, &budget).await.map(TokioIo::new) }.boxed()
        });
        let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(client::USER_AGENT))]);
        let mut tunnel = Tunnel::new(route.at.clone(), proxy).with_headers(headers);
        if let Some(credentials) = route.proxy.authorization() {
            tunnel = tunnel.with_auth(credentials);
        }
        Ok(tunnel.call(to.clone()).await?.into_inner())
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<ReceiverConnection>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<TokioIo<ReceiverConnection>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let this = self.clone();
        async move { timeout(this.timeout, this.connect(to)).await.unwrap_or_else(|_| Err(ConnectTimedOut.into())) }.boxed()
    }
}

impl ReceiverConnection {
    fn plain(io: Box<dyn Io>, budget: ConnectionBudget, proxied: bool) -> Self {
        Self { io, budget, http2: false, proxied }
    }

    async fn tls(connector: &TlsConnector, to: &Uri, io: Box<dyn Io>, budget: ConnectionBudget) -> Result<Self, BoxError> {
        let io = connector.connect(server_name(to)?, io).await?;
        let http2 = io.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Self { io: Box::new(io), budget, http2, proxied: false })
    }
}

/// Returns the name for which the certificate must be valid.
fn server_name(of: &Uri) -> Result<ServerName<'static>, BoxError> {
    let host = of.host().unwrap_or_default();
    Ok(ServerName::try_from(host.trim_start_matches('[').trim_end_matches(']').to_owned())?)
}

impl Connection for ReceiverConnection {
    fn connected(&self) -> Connected {
        let connected = Connected::new().proxy(self.proxied).extra(self.budget.clone());
        if self.http2 { connected.negotiated_h2() } else { connected }
    }
}

impl AsyncRead for ReceiverConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ReceiverConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

impl Service<Name> for Guarded {
    type Response = IntoIter<SocketAddr>;
    type Error = Unresolved;
    type Future = BoxFuture<'static, Result<IntoIter<SocketAddr>, Unresolved>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unresolved>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let this = self.clone();
        async move { this.resolve(name.as_str()).await.map(Vec::into_iter).map_err(Unresolved) }.boxed()
    }
}
