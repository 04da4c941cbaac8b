//! One request to a receiver, and spans to a collector. The only room that makes requests to them, and the only one that knows credentials.
//!
//! In: an [`Outgoing`], rendered, which names its Secrets and never holds them; the egress [`Policy`]; a set of Secrets to
//! watch ([`SecretWatches`]).
//! Out: an [`Attempt`], and what it means ([`classify()`]); [`Sender::origin`], what lanes to one receiver share;
//! [`Secrets::check`] for the Ready condition and [`Secrets::changes`] for those who wait for a Secret. Beside that an [`Exporter`]
//! hands spans to a [`Collector`].
//!
//! What comes out may be shown to anybody: no error text holds anything that came from a Secret or from a library's message,
//! and what the receiver said is cleaned of the Secrets that were sent to it. Redirects are never followed, and an address is
//! checked where it is dialled, so that no name can resolve to one thing for the check and to another for the connection.

mod attempt;
mod client;
mod egress;
mod otlp;
mod request;
mod secrets;
#[cfg(test)]
mod tests;

pub use attempt::classify::{Reason, Verdict, classify};
pub use attempt::retry_after::{MAX_RETRY_AFTER, parse as parse_retry_after};
pub use attempt::{Attempt, AttemptResult, Failure, FailureKind, NotSent};
pub use client::proxy::{Proxy, ProxyError};
pub use egress::policy::Policy;
pub use egress::rule::Rule;
pub use otlp::collector::{Collector, CollectorError};
pub use otlp::export::Exporter;
pub use request::outgoing::{Destination, Outgoing};
pub use request::sender::Sender;
pub use secrets::Secrets;
pub use secrets::changes::Changes;
pub use secrets::redact::Hidden;
pub use secrets::watches::SecretWatches;

/// Why nothing can be sent at all. Why one request was not sent is [`NotSent`].
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// `main` has not installed a TLS provider.
    #[error("no TLS provider is installed")]
    NoTlsProvider,
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    NoRandomness,
    /// No HTTP client can be made; most likely no certificate authority is installed.
    #[error("cannot make an HTTP client")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}
