//! Names of remote API servers to addresses: what was checked is what is dialled.
//!
//! In: a name. Out: its addresses without the forbidden ones ([`address`]), in the component that opens the connections of a client.
//! Addresses in a kubeconfig never come here; the parser of the kubeconfig checks them.

use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::vec::IntoIter;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use tower::{BoxError, Service};

use super::address;

/// All that a name leads to is refused.
#[derive(Debug, thiserror::Error)]
#[error("all addresses of the name are forbidden")]
pub(in crate::cluster) struct AllRefused;

/// The system's resolver, without what is refused.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct Guarded;

/// What makes connections, below TLS.
pub(in crate::cluster) fn connector() -> HttpConnector<Guarded> {
    let mut connector = HttpConnector::new_with_resolver(Guarded);
    // TLS is put upon it, so the URLs are not only `http`.
    connector.enforce_http(false);
    connector
}

impl Service<Name> for Guarded {
    type Response = IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<IntoIter<SocketAddr>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        // The port is the URL's, and is put in place of the zero.
        async move { Ok(permitted(tokio::net::lookup_host((name.as_str(), 0)).await?)?.into_iter()) }.boxed()
    }
}

/// The addresses that may be dialled; an error if there are none.
fn permitted(found: impl Iterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, AllRefused> {
    let permitted: Vec<_> = found.filter(|at| !address::is_refused(at.ip())).collect();
    if permitted.is_empty() { Err(AllRefused) } else { Ok(permitted) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_permitted_addresses_are_left() {
        let at =
            |list: &[&str]| -> Vec<SocketAddr> { list.iter().map(|a| SocketAddr::new(a.parse().unwrap(), 0)).collect() };
        let found = at(&["169.254.169.254", "10.0.0.1", "fe80::1", "127.0.0.1"]);
        assert_eq!(permitted(found.into_iter()).unwrap(), at(&["10.0.0.1", "127.0.0.1"]));
        assert!(permitted(at(&["169.254.169.254", "::ffff:169.254.169.254"]).into_iter()).is_err());
    }
}
