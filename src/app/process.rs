//! What the parts of the process share.

use kube::Client;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::Access;
use crate::http::Gates;
use crate::options::Options;
use relaybook_telemetry::{Metrics, Tracer};

/// What the parts of the process share.
pub(super) struct Process {
    pub(super) options: Options,
    /// Creates clients for the API server.
    pub(super) access: Access,
    pub(super) client: Client,
    pub(super) metrics: Metrics,
    pub(super) tracer: Tracer,
    pub(super) gates: Gates,
    /// Ends all parts.
    pub(super) stop: CancellationToken,
    /// The runtime for requests to receivers.
    pub(super) sending: Handle,
    /// The runtime for calls and watches on remote clusters.
    pub(super) remote: Handle,
}
