//! One request to a receiver or a forge, and spans to a collector. This is the only module that sends requests to them, and the only one
//! with credentials for them. It also has the keys with which requests to hooks are signed, and verifies the signatures.
//!
//! In: a rendered [`Outgoing`], which refers to its Secrets and never contains them; the egress [`Policy`]; a set of Secrets to
//! watch ([`SecretWatches`]). A [`ForgeRequest`] is the same for a forge or its Git server, whose whole [`Answer`] is needed.
//! Out: an [`Attempt`], and what it means ([`classify()`]); [`Receivers::origin`], which lanes to one receiver share;
//! [`Secrets::check`] for the Ready condition; [`Secrets::changes`] for components that wait for a Secret. In addition, an
//! [`Exporter`] sends spans to a [`Collector`], and [`Secrets::is_signed`] says whether a request has a signature with a key of a Secret.
//! Tokens that a server issues for a request stay in memory here, and so does what forges say about commits ([`Sender::look_up`]).
//!
//! The output can be shown to everyone. No error text contains a part of a Secret or the message of a library. The answer of the
//! receiver is masked: it does not show the Secrets that were sent to it. Redirects are never followed. Each address is checked
//! immediately before the connection, so a name cannot resolve differently for the check and for the connection.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

mod addresses;
mod attempt;
mod build;
mod client;
mod inbound;
mod look_ups;
mod otlp;
#[cfg(feature = "testing")]
pub mod played;
mod request;
mod secrets;
#[cfg(test)]
mod tests;
mod tokens;

pub use addresses::policy::Policy;
pub use addresses::rule::Rule;
pub use attempt::classify::{Verdict, classify, not_sent};
pub use attempt::retry_after::{MAX_RETRY_AFTER, parse as parse_retry_after};
pub use attempt::{Attempt, AttemptResult, Failure, FailureKind, Judged, NotSent};
pub use build::{RequestError, compose};
pub use client::proxy::{Proxy, ProxyError};
pub use inbound::Signed;
#[cfg(any(test, feature = "testing"))]
pub use inbound::keys_tried;
pub use otlp::collector::{Collector, CollectorError};
pub use otlp::export::Exporter;
pub use request::forge::{Answer, AppScope, ForgeRequest, Login, Unanswered};
pub use request::outgoing::{Destination, LaterRequest, Learned, MoreRequests, Outgoing, RenderMore, ThreadRequest};
pub use request::sender::{Receivers, Sender};
pub use secrets::Secrets;
pub use secrets::changes::Changes;
pub use secrets::redact::Hidden;
pub use secrets::watches::SecretWatches;

/// Why no request can be sent. [`NotSent`] is the reason for a single request.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// `main` has not installed a TLS provider.
    #[error("no TLS provider is installed")]
    NoTlsProvider,
    /// The system provides no random numbers.
    #[error("the system provides no random numbers")]
    NoRandomness,
    /// No HTTP client can be created. The most likely cause is that no CA certificates are installed.
    #[error("cannot create an HTTP client")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}
