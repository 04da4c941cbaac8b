//! What waits and what was given up, by notification: the one family whose labels are what people name things.
//!
//! There is no other way to say on a dashboard whose deliveries do not flow. So the number of series is bounded by hand: only
//! notifications that have something of the kind have one, and of these the first [`Share::MOST`]. A family of the library would have to be
//! emptied and filled again, and a scrape could come between; here a scrape finds what was put last, whole.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::MetricType;

use super::labels::Standing;

/// What one notification has that waits or was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Namespace of the pipelines.
    pub namespace: String,
    /// Name of the notification.
    pub notification: String,
    /// Recorded and not settled.
    pub pending: i64,
    /// Given up, and kept.
    pub parked: i64,
}

impl Share {
    /// So many notifications have series.
    pub const MOST: usize = 100;
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    // Not `namespace`, which Prometheus takes for that of the pod.
    pipeline_namespace: String,
    notification: String,
    state: Standing,
}

/// The family; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct ByNotification(Arc<Mutex<Vec<Share>>>);

impl ByNotification {
    fn shares(&self) -> MutexGuard<'_, Vec<Share>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes these for what was there.
    pub(super) fn put(&self, mut shares: Vec<Share>) {
        shares.truncate(Share::MOST);
        *self.shares() = shares;
    }
}

impl Collector for ByNotification {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Deliveries of a notification that are recorded and not settled, or given up and kept";
        let mut family = encoder.encode_descriptor("notification_deliveries", help, None, MetricType::Gauge)?;
        for share in self.shares().clone() {
            for (state, count) in [(Standing::Pending, share.pending), (Standing::Parked, share.parked)] {
                let (pipeline_namespace, notification) = (share.namespace.clone(), share.notification.clone());
                let labels = Labels { pipeline_namespace, notification, state };
                family.encode_family(&labels)?.encode_gauge(&count)?;
            }
        }
        Ok(())
    }
}
