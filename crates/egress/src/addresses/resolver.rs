//! Resolves names to addresses and applies the egress policy. Connections are made only to the checked addresses.
//!
//! This module does not see addresses in a URL. [`Policy::url`] checks those.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tower::BoxError;

use super::policy::Policy;
use super::rule::Rule;
use crate::client::proxy::Proxy;

/// The resolver of the system, with the egress policy.
#[derive(Clone, Debug)]
pub struct Guarded {
    /// `None` for a destination that the operator has chosen.
    policy: Option<Arc<Policy>>,
    /// The name of the proxy. The operator has chosen it, so the policy does not apply to it.
    exempt: Option<Arc<str>>,
}

impl Guarded {
    /// Creates a resolver with a policy for all names except the name of the proxy. A client with a proxy resolves no other name.
    pub fn new(policy: &Arc<Policy>, proxy: Option<&Proxy>) -> Self {
        Self { policy: Some(Arc::clone(policy)), exempt: proxy.map(|proxy| Arc::from(proxy.host())) }
    }

    /// Creates a resolver without a policy.
    pub fn open() -> Self {
        Self { policy: None, exempt: None }
    }

    /// Returns the allowed addresses of a name, with port 0. The port comes from the URL.
    pub async fn resolve(&self, name: &str) -> Result<Vec<SocketAddr>, BoxError> {
        let found: Vec<_> = tokio::net::lookup_host((name, 0)).await?.collect();
        match &self.policy {
            Some(policy) if self.exempt.as_deref() != Some(name) => permitted(policy, found),
            _ => Ok(found),
        }
    }
}

/// All addresses of a name are forbidden. The HTTP library returns this as the source of its error.
#[derive(Debug, thiserror::Error)]
#[error("all addresses of the name are forbidden")]
pub struct AllForbidden(pub Rule);

/// Returns the allowed addresses, or an error if there are none.
fn permitted(policy: &Policy, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, BoxError> {
    let mut rule = None;
    let permitted: Vec<_> =
        found.into_iter().filter(|at| policy.address(at.ip()).map_err(|why| rule = Some(why)).is_ok()).collect();
    match rule {
        _ if !permitted.is_empty() => Ok(permitted),
        Some(rule) => Err(AllForbidden(rule).into()),
        None => Err(io::Error::from(io::ErrorKind::NotFound).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|a| SocketAddr::new(a.parse().unwrap(), 0)).collect()
    }

    #[test]
    fn only_allowed_addresses_are_returned() {
        let policy = Policy::default();
        let found = addresses(&["127.0.0.1", "10.0.0.1", "::1", "169.254.169.254", "2606:4700::1"]);
        assert_eq!(permitted(&policy, found).unwrap(), addresses(&["10.0.0.1", "2606:4700::1"]));
        let error = permitted(&policy, addresses(&["127.0.0.1", "::1"])).unwrap_err();
        assert_eq!(error.downcast_ref::<AllForbidden>().unwrap().0, Rule::Loopback);
        assert!(permitted(&policy, Vec::new()).unwrap_err().is::<io::Error>());
    }
}
