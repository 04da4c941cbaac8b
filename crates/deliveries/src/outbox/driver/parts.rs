//! The components that deliveries are sent and recorded with.
//!
//! In: clients, handles and shared indexes. Out: for the tasks, all of them; for the engine, what they know ([`Facts`]).

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::outbox::engine::effect::Facts;
use crate::outbox::send_gate::index::{Known, PipelineIndex};
use crate::outbox::store::delivery_index::DeliveryIndex;
use crate::outbox::store::journal::Journal;
use crate::outbox::test_delivery::TestsKept;
use relaybook_api::values::permalink::PageUrl;
use relaybook_core::leader::bucket::Buckets;
use relaybook_egress::Sender;
use relaybook_runtime::leader::Lease;
use relaybook_runtime::limiter::NamespaceLimiter;
use relaybook_telemetry::{Metrics, Tracer};

/// The components that the driver and its tasks use.
#[derive(Clone)]
pub struct Parts {
    /// Shows whether this replica is the leader.
    pub lease: Lease,
    /// The store of deliveries.
    pub journal: Journal,
    /// The index that decides what can be sent.
    pub pipeline_index: PipelineIndex,
    /// The index of all deliveries.
    pub delivery_index: DeliveryIndex,
    /// Sends the requests.
    pub sender: Arc<Sender>,
    /// The runtime on which requests are sent.
    pub sending: Handle,
    /// Client for live reads.
    pub client: kube::Client,
    /// The name of the local cluster.
    pub cluster_name: String,
    /// The URL of the audit page, for links in requests.
    pub page_url: Option<PageUrl>,
    /// Metrics.
    pub metrics: Metrics,
    /// Traces.
    pub tracer: Tracer,
    /// The Deliveries of tests, until they are deleted.
    pub tests_kept: TestsKept,
    /// Limits the concurrent writes of outcomes.
    pub outcomes: NamespaceLimiter,
    /// Limits the concurrent writes of failed attempts that are retried. These writes are not urgent, and a receiver that hangs causes many
    /// of them at once, because its timeouts end together.
    pub failures: NamespaceLimiter,
    /// Limits the concurrent calls for deliveries that are not sent: they wait, are canceled or are reopened.
    pub aside: NamespaceLimiter,
}

impl Parts {
    /// Returns what the engine can know in a turn. `held`: the buckets that the driver holds.
    pub(in crate::outbox) fn facts<'a>(&'a self, held: Buckets, pipelines: &'a Known) -> Facts<'a> {
        Facts {
            lease: self.lease.look(),
            held,
            pipelines,
            delivery_index: &self.delivery_index,
            tests_kept: &self.tests_kept,
            health: self.journal.health(),
            receivers: self.sender.receivers(),
        }
    }
}
