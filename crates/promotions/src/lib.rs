//! Promotions: a revision that runs well in one environment goes to the next one.
//!
//! In: pipelines with their status, Promotions, and the Deliveries of their requests, which the controller watches.
//! Out: Promotions and their next status, and commits and pull requests at forges and Git servers. [`relaybook_core::promotion`] decides.
//! The controller ([`run`]) is the only writer of Promotions. It never writes to a pipeline: the pipeline controller takes the steps of
//! Promotions into the change log, and the dispatcher reports them.
//!
//! The name of a Promotion is a function of what it is for ([`names`](relaybook_core::promotion::names)), so creating it is the guard against doing the same thing twice.
//! Each status write tests the version of the object. Before each write the pipeline is read again, and everything is decided again.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

mod attempt;
mod controller;
#[cfg(test)]
mod properties;
pub mod request;

use parking_lot::Mutex;

use kube::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use attempt::{Sample, Unusable, unusable};
pub use controller::run;

use attempt::Outside;
use controller::attempts::Attempts;
use controller::index::{Index, Key};
use relaybook_egress::{SecretWatches, Sender};
use relaybook_runtime::Common;
use relaybook_runtime::call::CallError;
use relaybook_runtime::leader::Lease;
use relaybook_runtime::report::events::Events;
use relaybook_telemetry::Metrics;

/// Errors of the promotion controller. The messages are human-readable.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call of the API server failed, or its result is not known. Retried later.
    #[error("the API server did not carry out the call")]
    Call(#[from] CallError),
    /// The API server refuses a status that was decided from the current object.
    #[error("the API server refuses the status of Promotion {0}; check that the installed CRDs are those of this version")]
    Refused(String),
    /// Other writers were first, several times in a row. Retried later.
    #[error("other writers changed the same Promotions at the same time")]
    Conflict,
    /// This replica is not the leader any more, or it is stopping. The next leader continues.
    #[error("this replica is not the leader")]
    NotLeader,
}

impl Error {
    /// Whether the API server refused one action, and others can succeed.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Call(error) => is_refusal(error),
            Self::Refused(_) => true,
            Self::Conflict | Self::NotLeader => false,
        }
    }
}

/// Whether the API server refused a call for what it contains, or for a missing permission.
fn is_refusal(error: &CallError) -> bool {
    let CallError::Api(error) = error else { return false };
    let kube::Error::Api(status) = &**error else { return false };
    (400..500).contains(&status.code) && ![404, 408, 429].contains(&status.code)
}

/// Options of the controller.
#[derive(Clone, Debug)]
pub struct Options {
    /// The namespaces whose pipelines and Promotions are watched. An empty list means all namespaces.
    pub watch_namespaces: Vec<String>,
    /// The namespace of the installation, where Deliveries of cluster-wide notifications are stored.
    pub home: String,
    /// Maximum number of pipelines that are reconciled concurrently. One namespace gets only a part of this number.
    pub max_reconciles: usize,
}

/// The dependencies and the state of the controller.
pub struct Context {
    client: Client,
    lease: Lease,
    options: Options,
    events: Events,
    metrics: Metrics,
    /// The pipelines and Promotions that the watches have delivered.
    index: Mutex<Index>,
    /// The attempts of promotions by commit or pull request.
    attempts: Attempts,
    /// The pipelines whose attempts have ended.
    ended: Option<mpsc::UnboundedReceiver<Key>>,
    /// The Secrets with the credentials for repositories.
    secrets: SecretWatches,
    stop: CancellationToken,
}

impl Context {
    /// A controller that has not reconciled any pipeline yet. `secrets`: the watches of Secrets. `sender`: sends requests with their values.
    #[must_use]
    pub fn new(common: Common, options: Options, secrets: SecretWatches, sender: Sender) -> Self {
        let Common { client, lease, events, metrics, stop } = common;
        let (attempts, ended) = Attempts::new(Outside::new(sender), stop.clone());
        Self {
            attempts,
            ended: Some(ended),
            secrets,
            client,
            lease,
            options,
            events,
            metrics,
            index: Mutex::default(),
            stop,
        }
    }
}
