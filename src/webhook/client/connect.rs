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

use super::line::{Line, Metered};
use super::proxy::Proxy;
use crate::webhook::client;
use crate::webhook::egress::resolver::Guarded;

/// TCP keepalive: idle time and interval of the probes of a silent connection, and number of probes.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_PROBES: u32 = 3;
/// The connection is closed if sent data is not acknowledged within this time.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Creates connections.
#[derive(Clone)]
pub(in crate::webhook) struct Connector {
    tcp: HttpConnector<Guarded>,
    tls: TlsConnector,
    proxy: Option<Arc<Through>>,
    timeout: Duration,
}

/// The way through the proxy.
struct Through {
    proxy: Proxy,
    at: Uri,
    /// Without HTTP/2: requests to the proxy use HTTP/1.
    tls: TlsConnector,
}

/// No connection was established in time.
#[derive(Debug, thiserror::Error)]
#[error("no connection in time")]
pub struct TooLate;

/// A name could not be resolved.
#[derive(Debug, thiserror::Error)]
#[error("the name could not be resolved")]
pub struct Unresolved(#[source] BoxError);

/// A connection.
pub(in crate::webhook) struct Wire {
    io: Box<dyn Io>,
    line: Line,
    http2: bool,
    /// The other side is a proxy that gets requests with full URLs.
    proxied: bool,
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Connector {
    pub(in crate::webhook) fn new(
        resolver: Guarded,
        tls: ClientConfig,
        proxy: Option<&Proxy>,
        timeout: Duration,
    ) -> Result<Self, uri::InvalidUri> {
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        // TLS is added on top of this connector, so not all URLs are `http`.
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEP_ALIVE));
        tcp.set_keepalive_interval(Some(KEEP_ALIVE));
        tcp.set_keepalive_retries(Some(KEEP_ALIVE_PROBES));
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        let through = |proxy: &Proxy| {
            let mut tls = tls.clone();
            tls.alpn_protocols.clear();
            proxy.at().map(|at| Arc::new(Through { at, proxy: proxy.clone(), tls: Arc::new(tls).into() }))
        };
        let proxy = proxy.map(through).transpose()?;
        Ok(Self { tcp, tls: Arc::new(tls).into(), proxy, timeout })
    }

    async fn connect(self, to: Uri) -> Result<TokioIo<Wire>, BoxError> {
        let line = Line::default();
        let https = to.scheme() == Some(&uri::Scheme::HTTPS);
        let wire = match self.proxy.clone() {
            None => {
                let io = self.tcp(&to, &line).await?;
                if https { Wire::tls(&self.tls, &to, io, line).await? } else { Wire::plain(io, line, false) }
            }
            Some(through) => {
                if https {
                    let io = self.tunnel(&through, &to, &line).await?;
                    Wire::tls(&self.tls, &to, io, line).await?
                } else {
                    Wire::plain(self.proxy(&through, &line).await?, line, true)
                }
            }
        };
        wire.line.is_ready();
        Ok(TokioIo::new(wire))
    }

    async fn tcp(&self, to: &Uri, line: &Line) -> Result<Box<dyn Io>, BoxError> {
        let tcp = self.tcp.clone().call(to.clone()).await?.into_inner();
        Ok(Box::new(Metered::new(tcp, line.clone())))
    }

    async fn proxy(&self, through: &Through, line: &Line) -> Result<Box<dyn Io>, BoxError> {
        let io = self.tcp(&through.at, line).await?;
        if through.proxy.tls_name().is_none() {
            return Ok(io);
        }
        Ok(Box::new(through.tls.connect(server_name(&through.at)?, io).await?))
    }

    /// A connection to a receiver through the proxy.
    async fn tunnel(&self, through: &Arc<Through>, to: &Uri, line: &Line) -> Result<Box<dyn Io>, BoxError> {
        let (this, by, line) = (self.clone(), Arc::clone(through), line.clone());
        let proxy = service_fn(move |_: Uri| {
            let (this, by, line) = (this.clone(), Arc::clone(&by), line.clone());
            async move { this.proxy(&by, &line).await.map(TokioIo::new) }.boxed()
        });
        let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(client::USER_AGENT))]);
        let mut tunnel = Tunnel::new(through.at.clone(), proxy).with_headers(headers);
        if let Some(credentials) = through.proxy.authorization() {
            tunnel = tunnel.with_auth(credentials);
        }
        Ok(tunnel.call(to.clone()).await?.into_inner())
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Wire>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<TokioIo<Wire>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let this = self.clone();
        async move { timeout(this.timeout, this.connect(to)).await.unwrap_or_else(|_| Err(TooLate.into())) }.boxed()
    }
}

impl Wire {
    fn plain(io: Box<dyn Io>, line: Line, proxied: bool) -> Self {
        Self { io, line, http2: false, proxied }
    }

    async fn tls(connector: &TlsConnector, to: &Uri, io: Box<dyn Io>, line: Line) -> Result<Self, BoxError> {
        let io = connector.connect(server_name(to)?, io).await?;
        let http2 = io.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Self { io: Box::new(io), line, http2, proxied: false })
    }
}

/// The name for which the certificate must be valid.
fn server_name(of: &Uri) -> Result<ServerName<'static>, BoxError> {
    let host = of.host().unwrap_or_default();
    Ok(ServerName::try_from(host.trim_start_matches('[').trim_end_matches(']').to_owned())?)
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        let connected = Connected::new().proxy(self.proxied).extra(self.line.clone());
        if self.http2 { connected.negotiated_h2() } else { connected }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Wire {
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
