//! The metric families, and the handle through which the rooms feed them. What their labels may say is in [`super::labels`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::by_notification::ByNotification;
pub use super::by_notification::Share;
pub use super::labels::{
    ApiWrite, AttemptClass, Cluster, LaneState, Lease, Outcome, Removal, SpanResult, Watch, Worker, WriteResult,
};

/// The media type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds in seconds for one request: the longest that a timeout can allow is 60 s.
const REQUEST_SECONDS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];
/// Upper bounds in seconds from a change to the first attempt to tell of it, which can wait for those before it.
const FIRST_ATTEMPT_SECONDS: [f64; 13] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RemovalLabels {
    reason: Removal,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    class: AttemptClass,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabels {
    state: LaneState,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerLabels {
    state: Worker,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: ApiWrite,
    result: WriteResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    watch: Watch,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabels {
    state: Cluster,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SpanLabels {
    result: SpanResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabels {
    lease: Lease,
}

/// Upper bounds in seconds from a watch event to what comes of it.
const OBSERVATION_SECONDS: [f64; 11] = [0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0];

/// All metrics of the process; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    families: Arc<Families>,
}

#[derive(Debug)]
struct Families {
    registry: Registry,
    deliveries: Family<OutcomeLabels, Counter>,
    attempts: Family<AttemptLabels, Counter>,
    first_attempt: Histogram,
    request: Histogram,
    lanes: Family<LaneLabels, Gauge>,
    workers: Family<WorkerLabels, Gauge>,
    pending: Gauge,
    by_notification: ByNotification,
    kept: Gauge,
    overdue: Gauge,
    bookkeeping: Gauge,
    removed: Family<RemovalLabels, Counter>,
    redeliveries: Counter,
    foreign: Counter,
    unreachable: Gauge,
    config_valid: Gauge,
    api_writes: Family<WriteLabels, Counter>,
    watch_errors: Family<WatchLabels, Counter>,
    leases: Family<LeaseLabels, Gauge>,
    epochs: Family<LeaseLabels, Gauge>,
    clusters: Family<ClusterLabels, Gauge>,
    caches: Gauge,
    objects: Gauge,
    watch_restarts: Counter,
    changes_dropped: Counter,
    tasks: Gauge,
    observation_lag: Histogram,
    spans: Family<SpanLabels, Counter>,
}

impl Metrics {
    /// Every series there will ever be, at zero, so that a rate has something to start from.
    #[must_use]
    pub fn new() -> Self {
        let mut families = Families {
            registry: Registry::with_prefix("pennant"),
            deliveries: Family::default(),
            attempts: Family::default(),
            first_attempt: Histogram::new(FIRST_ATTEMPT_SECONDS),
            request: Histogram::new(REQUEST_SECONDS),
            lanes: Family::default(),
            workers: Family::default(),
            pending: Gauge::default(),
            by_notification: ByNotification::default(),
            kept: Gauge::default(),
            overdue: Gauge::default(),
            bookkeeping: Gauge::default(),
            removed: Family::default(),
            redeliveries: Counter::default(),
            foreign: Counter::default(),
            unreachable: Gauge::default(),
            config_valid: Gauge::default(),
            api_writes: Family::default(),
            watch_errors: Family::default(),
            leases: Family::default(),
            epochs: Family::default(),
            clusters: Family::default(),
            caches: Gauge::default(),
            objects: Gauge::default(),
            watch_restarts: Counter::default(),
            changes_dropped: Counter::default(),
            tasks: Gauge::default(),
            observation_lag: Histogram::new(OBSERVATION_SECONDS),
            spans: Family::default(),
        };
        families.begin();
        families.register();
        Self { families: Arc::new(families) }
    }

    /// A delivery has ended.
    pub fn delivery(&self, outcome: Outcome) {
        self.families.deliveries.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// An attempt has ended.
    pub fn attempt(&self, class: AttemptClass) {
        self.families.attempts.get_or_create(&AttemptLabels { class }).inc();
    }

    /// How long a request took, answered or not.
    pub fn request_time(&self, took: Duration) {
        self.families.request.observe(took.as_secs_f64());
    }

    /// How long it took from the observation of a change to the first attempt to tell of it.
    pub fn first_attempt(&self, after: Duration) {
        self.families.first_attempt.observe(after.as_secs_f64());
    }

    /// How many lanes are in this state.
    pub fn lanes(&self, state: LaneState, count: usize) {
        self.families.lanes.get_or_create(&LaneLabels { state }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// How many workers do this.
    pub fn workers(&self, state: Worker, count: usize) {
        self.families.workers.get_or_create(&WorkerLabels { state }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// What the notifications have that wait or have given up, instead of what was said before.
    pub fn by_notification(&self, shares: Vec<Share>) {
        self.families.by_notification.put(shares);
    }

    /// How many deliveries are recorded and not settled.
    pub fn pending(&self, count: usize) {
        self.families.pending.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// How many settled deliveries are kept.
    pub fn kept(&self, count: usize) {
        self.families.kept.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// How many settled deliveries should be gone and are not.
    pub fn overdue(&self, count: usize) {
        self.families.overdue.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// How many entries are kept in memory about pipelines and notifications.
    pub fn bookkeeping(&self, count: usize) {
        self.families.bookkeeping.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A settled delivery has been kept long enough.
    pub fn removed(&self, reason: Removal) {
        self.families.removed.get_or_create(&RemovalLabels { reason }).inc();
    }

    /// A settled delivery is sent again.
    pub fn redelivery(&self) {
        self.families.redeliveries.inc();
    }

    /// A Delivery that Pennant did not record was found; it is deleted.
    pub fn foreign(&self) {
        self.families.foreign.inc();
    }

    /// How many origins cannot be reached, as far as is known.
    pub fn unreachable(&self, count: usize) {
        self.families.unreachable.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Whether the global configuration is in force as it stands.
    pub fn config_valid(&self, valid: bool) {
        self.families.config_valid.set(i64::from(valid));
    }

    /// The API server has answered a write, or failed to.
    pub fn api_write(&self, kind: ApiWrite, result: WriteResult) {
        self.families.api_writes.get_or_create(&WriteLabels { kind, result }).inc();
    }

    /// A watch broke and is begun again.
    pub fn watch_error(&self, watch: Watch) {
        self.families.watch_errors.get_or_create(&WatchLabels { watch }).inc();
    }

    /// A remote cluster is doing otherwise than before; `None`: it is not followed.
    pub fn cluster(&self, before: Option<Cluster>, now: Option<Cluster>) {
        if let Some(state) = before {
            self.families.clusters.get_or_create(&ClusterLabels { state }).dec();
        }
        if let Some(state) = now {
            self.families.clusters.get_or_create(&ClusterLabels { state }).inc();
        }
    }

    /// How many caches of application objects there are, and how many objects they know.
    pub fn caches(&self, caches: usize, objects: usize) {
        self.families.caches.set(i64::try_from(caches).unwrap_or(i64::MAX));
        self.families.objects.set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// The watch of a cache is begun again, with a list.
    pub fn watch_restart(&self) {
        self.families.watch_restarts.inc();
    }

    /// So many changes were dropped from the log of a pipeline for lack of room.
    pub fn changes_dropped(&self, count: u64) {
        self.families.changes_dropped.inc_by(count);
    }

    /// How long it took from a watch event of an application object until the pipelines that it concerns were told to look.
    pub fn observation_lag(&self, took: Duration) {
        self.families.observation_lag.observe(took.as_secs_f64());
    }

    /// What became of so many spans.
    pub fn spans(&self, result: SpanResult, count: usize) {
        self.families.spans.get_or_create(&SpanLabels { result }).inc_by(count.try_into().unwrap_or(u64::MAX));
    }

    /// Whether this replica holds a Lease.
    pub fn lease_held(&self, lease: Lease, held: bool) {
        self.families.leases.get_or_create(&LeaseLabels { lease }).set(i64::from(held));
        drop(self.families.epochs.get_or_create(&LeaseLabels { lease }));
    }

    /// The epoch of a Lease, whoever holds it.
    pub fn lease_epoch(&self, lease: Lease, epoch: i32) {
        self.families.epochs.get_or_create(&LeaseLabels { lease }).set(i64::from(epoch));
    }

    /// How many tasks there are.
    pub fn tasks(&self, count: usize) {
        self.families.tasks.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// All metrics as `OpenMetrics` text (see [`CONTENT_TYPE`]).
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.families.registry)?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Families {
    /// Makes every series of every family.
    fn begin(&self) {
        // Nothing is known to be wrong with it.
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
        for &state in Cluster::ALL {
            drop(self.clusters.get_or_create(&ClusterLabels { state }));
        }
        for &result in SpanResult::ALL {
            drop(self.spans.get_or_create(&SpanLabels { result }));
        }
        for &watch in Watch::ALL {
            drop(self.watch_errors.get_or_create(&WatchLabels { watch }));
        }
    }

    /// Puts the families into the registry, which adds prefix, unit and `_total`.
    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("build", "Which version runs", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        r.register("deliveries", "Deliveries that have ended, by outcome", self.deliveries.clone());
        r.register("attempts", "Attempts to send a delivery, by what came of them", self.attempts.clone());
        let help = "Time from the observation of a change to the first attempt to tell of it";
        r.register_with_unit("change_to_first_attempt", help, Unit::Seconds, self.first_attempt.clone());
        let help = "Time that a request took, answered or not";
        r.register_with_unit("request_duration", help, Unit::Seconds, self.request.clone());
        r.register("lanes", "Lanes with something to send, by state", self.lanes.clone());
        r.register("workers", "Workers, by whether they have a request", self.workers.clone());
        r.register("deliveries_pending", "Deliveries recorded and not settled", self.pending.clone());
        r.register("deliveries_kept", "Deliveries settled and kept", self.kept.clone());
        let help = "Deliveries settled and kept that should be gone";
        r.register("deliveries_overdue", help, self.overdue.clone());
        let help = "Entries in memory about pipelines and notifications";
        r.register("bookkeeping_entries", help, self.bookkeeping.clone());
        let help = "Settled deliveries that were kept long enough and are gone, by why";
        r.register("deliveries_removed", help, self.removed.clone());
        let help = "Settled deliveries that were sent again because somebody asked";
        r.register("redeliveries", help, self.redeliveries.clone());
        let help = "Delivery objects that Pennant did not record; they are deleted and never sent";
        r.register("deliveries_foreign", help, self.foreign.clone());
        r.register("origins_unreachable", "Receivers' origins to which no connection comes about", self.unreachable.clone());
        let help = "Whether the global configuration is in force as it stands";
        r.register("config_valid", help, self.config_valid.clone());
        r.register("api_writes", "Writes to the API server, by kind and result", self.api_writes.clone());
        r.register("lease_held", "Whether this replica holds the Lease and acts", self.leases.clone());
        r.register("lease_epoch", "The epoch of the Lease, which rises each time it is taken", self.epochs.clone());
        r.register("watch_errors", "Watches that broke and were begun again", self.watch_errors.clone());
        r.register("clusters", "Remote clusters that are followed, by how they are doing", self.clusters.clone());
        r.register("caches", "Watches of a kind of application objects on a cluster", self.caches.clone());
        r.register("objects_cached", "Application objects whose state is known", self.objects.clone());
        r.register("tasks", "Tasks of the runtime that observes, records and writes", self.tasks.clone());
        let help = "Caches whose watch was begun again with a list";
        r.register("watch_restarts", help, self.watch_restarts.clone());
        let help = "Changes that were dropped from the log of a pipeline for lack of room";
        r.register("changes_dropped", help, self.changes_dropped.clone());
        let help = "Time from a watch event of an application object until a status that takes it in was written";
        r.register_with_unit("observation_lag", help, Unit::Seconds, self.observation_lag.clone());
        r.register_collector(Box::new(self.by_notification.clone()));
        r.register("spans", "Spans of traces, by what became of them", self.spans.clone());
    }
}

#[cfg(test)]
mod tests;
