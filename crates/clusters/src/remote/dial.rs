//! Resolves names of remote API servers. Exactly the addresses that were checked are dialled.
//!
//! In: a name. Out: its addresses without the forbidden ones ([`address`]), for the connector of a client. Addresses in a kubeconfig are
//! not resolved here; the parser of the kubeconfig checks them.

use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::vec::IntoIter;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use tower::{BoxError, Service};

use super::address;

/// All addresses of a name are forbidden.
#[derive(Debug, thiserror::Error)]
#[error("all addresses of the name are forbidden")]
pub(crate) struct AllRefused;

/// The resolver of the system, without forbidden addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guarded;

/// Returns the connector for TCP connections, without TLS.
pub(crate) fn connector() -> HttpConnector<Guarded> {
    let mut connector = HttpConnector::new_with_resolver(Guarded);
    // TLS is added on top, so URLs can have schemes other than `http`.
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
        // The port of the URL replaces the zero.
        async move { Ok(permitted(tokio::net::lookup_host((name.as_str(), 0)).await?)?.into_iter()) }.boxed()
    }
}

/// Returns the allowed addresses, or an error if there are none.
fn permitted(found: impl Iterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, AllRefused> {
    let permitted: Vec<_> = found.filter(|at| !address::is_refused(at.ip())).collect();
    if permitted.is_empty() { Err(AllRefused) } else { Ok(permitted) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_addresses_are_removed_and_it_is_an_error_if_none_is_left() {
        let at =
            |list: &[&str]| -> Vec<SocketAddr> { list.iter().map(|a| SocketAddr::new(a.parse().unwrap(), 0)).collect() };
        let found = at(&["169.254.169.254", "10.0.0.1", "fe80::1", "127.0.0.1"]);
        assert_eq!(permitted(found.into_iter()).unwrap(), at(&["10.0.0.1", "127.0.0.1"]));
        assert!(permitted(at(&["169.254.169.254", "::ffff:169.254.169.254"]).into_iter()).is_err());
    }
}
