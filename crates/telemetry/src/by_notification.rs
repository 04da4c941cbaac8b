//! Pending and parked Deliveries for each notification: the only metric family whose labels contain names of users' objects.
//!
//! A dashboard needs these labels to show which notification is not delivering. So this module limits the number of series itself:
//! only notifications with such Deliveries have series, and of these only the first [`Share::MOST`]. A family of the library would
//! have to be cleared and filled again, and a scrape could happen in between. Here a scrape always gets the last complete set.

use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::labels::Standing;

/// The pending and parked Deliveries of one notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The namespace of the pipelines.
    pub namespace: String,
    /// The name of the notification.
    pub notification: String,
    /// Deliveries that are recorded and not settled.
    pub pending: i64,
    /// Deliveries that are Parked and kept.
    pub parked: i64,
}

impl Share {
    /// Maximum number of notifications with series.
    pub const MOST: usize = 100;
}

/// The metric family; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct ByNotification(Arc<Mutex<Vec<Share>>>);

impl ByNotification {
    /// Replaces all shares.
    pub(super) fn put(&self, mut shares: Vec<Share>) {
        shares.truncate(Share::MOST);
        *self.0.lock() = shares;
    }
}

impl Collector for ByNotification {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Deliveries of a notification that are pending, or parked and kept";
        let mut family = encoder.encode_descriptor("notification_deliveries", help, None, MetricType::Gauge)?;
        for Share { namespace, notification, pending, parked } in self.0.lock().clone() {
            // Not `namespace`, because Prometheus uses that label for the namespace of the pod.
            let names = [("pipeline_namespace", namespace), ("notification", notification)];
            for (state, count) in [(Standing::Pending, pending), (Standing::Parked, parked)] {
                family.encode_family(&(names.clone(), state))?.encode_gauge(&count)?;
            }
        }
        Ok(())
    }
}
