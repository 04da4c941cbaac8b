//! The series that exist from the start. A counter that first appears with the value 1 would not count for a rate.

use super::Families;
use crate::labels::{
    ApiWrite, AttemptClass, AttemptLabels, Cluster, ClusterLabels, ForgeClass, ForgeLabels, Hook, HookLabels, HookResult,
    LaneLabels, LaneState, Outcome, OutcomeLabels, PacedLabels, PromotionLabels, PromotionPhase, Removal, RemovalLabels,
    SpanLabels, SpanResult, Watch, WatchLabels, Worker, WorkerLabels, WriteLabels, WriteResult,
};

impl Families {
    /// Creates every series of every family.
    pub(super) fn begin(&self) {
        // No problem is known before the configuration is read.
        self.config_valid.set(1);
        for &outcome in Outcome::ALL {
            drop(self.deliveries.get_or_create(&OutcomeLabels { outcome }));
        }
        for &reason in Removal::ALL {
            drop(self.removed.get_or_create(&RemovalLabels { reason }));
        }
        for &class in AttemptClass::ALL {
            drop(self.attempts.get_or_create(&AttemptLabels { class }));
        }
        for &class in ForgeClass::ALL {
            drop(self.forge_requests.get_or_create(&ForgeLabels { class }));
        }
        for &state in LaneState::ALL {
            drop(self.lanes.get_or_create(&LaneLabels { state }));
        }
        for &state in Worker::ALL {
            drop(self.workers.get_or_create(&WorkerLabels { state }));
        }
        for &kind in ApiWrite::ALL {
            for &result in WriteResult::ALL {
                drop(self.api_writes.get_or_create(&WriteLabels { kind, result }));
            }
        }
        for kind in ApiWrite::PACED {
            drop(self.api_writes_paced.get_or_create(&PacedLabels { kind }));
        }
        for &state in Cluster::ALL {
            drop(self.clusters.get_or_create(&ClusterLabels { state }));
        }
        for &result in SpanResult::ALL {
            drop(self.spans.get_or_create(&SpanLabels { result }));
        }
        for &phase in PromotionPhase::ALL {
            drop(self.promotions.get_or_create(&PromotionLabels { phase }));
        }
        for &kind in Hook::ALL {
            for &result in HookResult::ALL {
                drop(self.hooks.get_or_create(&HookLabels { kind, result }));
            }
        }
        for &watch in Watch::ALL {
            drop(self.watch_errors.get_or_create(&WatchLabels { watch }));
        }
    }
}
