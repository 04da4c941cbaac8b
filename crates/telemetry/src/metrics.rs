//! The metric families, and the handle through which the modules update them. [`super::labels`] defines their label values.

mod initial;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::by_notification::ByNotification;
pub use super::by_notification::Share;
pub use super::labels::{
    ApiWrite, AttemptClass, Cluster, ForgeClass, Hook, HookResult, LaneState, Lease, Outcome, PromotionPhase, Removal,
    SpanResult, Watch, Worker, WriteResult,
};
use super::labels::{
    AttemptLabels, BucketLabels, ClusterLabels, ForgeLabels, HookLabels, LaneLabels, LeaseLabels, OutcomeLabels,
    PacedLabels, PromotionLabels, RemovalLabels, SpanLabels, WatchLabels, WorkerLabels, WriteLabels,
};

/// The media type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds in seconds for one request. The longest possible timeout is 60 s.
const REQUEST_SECONDS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];
/// Upper bounds in seconds from a change to the first attempt to send it. The attempt can wait for earlier Deliveries.
const FIRST_ATTEMPT_SECONDS: [f64; 13] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0];

/// Upper bounds in seconds from a watch event to the status write that includes it.
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
    api_writes_paced: Family<PacedLabels, Counter>,
    watch_errors: Family<WatchLabels, Counter>,
    leases: Family<LeaseLabels, Gauge>,
    epochs: Family<LeaseLabels, Gauge>,
    buckets: Family<BucketLabels, Gauge>,
    clusters: Family<ClusterLabels, Gauge>,
    caches: Gauge,
    objects: Gauge,
    watch_restarts: Counter,
    changes_dropped: Counter,
    tasks: Gauge,
    observation_lag: Histogram,
    promotions: Family<PromotionLabels, Gauge>,
    oldest_open_promotion: Gauge,
    spans: Family<SpanLabels, Counter>,
    hooks: Family<HookLabels, Counter>,
    forge_requests: Family<ForgeLabels, Counter>,
}

impl Metrics {
    /// Creates every series with the value zero, so that a rate has a start value.
    #[must_use]
    pub fn new() -> Self {
        let mut families = Families {
            registry: Registry::with_prefix("relaybook"),
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
            api_writes_paced: Family::default(),
            watch_errors: Family::default(),
            leases: Family::default(),
            epochs: Family::default(),
            buckets: Family::default(),
            clusters: Family::default(),
            caches: Gauge::default(),
            objects: Gauge::default(),
            watch_restarts: Counter::default(),
            changes_dropped: Counter::default(),
            tasks: Gauge::default(),
            observation_lag: Histogram::new(OBSERVATION_SECONDS),
            promotions: Family::default(),
            oldest_open_promotion: Gauge::default(),
            spans: Family::default(),
            hooks: Family::default(),
            forge_requests: Family::default(),
        };
        families.begin();
        families.register();
        Self { families: Arc::new(families) }
    }

    /// Counts a Delivery that has ended.
    pub fn delivery(&self, outcome: Outcome) {
        self.families.deliveries.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// Counts an attempt that has ended.
    pub fn attempt(&self, class: AttemptClass) {
        self.families.attempts.get_or_create(&AttemptLabels { class }).inc();
    }

    /// Counts a request to a forge or its Git server that has ended.
    pub fn forge_request(&self, class: ForgeClass) {
        self.families.forge_requests.get_or_create(&ForgeLabels { class }).inc();
    }

    /// Records the duration of a request, with or without an answer.
    pub fn request_time(&self, took: Duration) {
        self.families.request.observe(took.as_secs_f64());
    }

    /// Records the time from the observation of a change to the first attempt to send it.
    pub fn first_attempt(&self, after: Duration) {
        self.families.first_attempt.observe(after.as_secs_f64());
    }

    /// Sets the number of lanes in this state.
    pub fn lanes(&self, state: LaneState, count: usize) {
        self.families.lanes.get_or_create(&LaneLabels { state }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the number of workers in this state.
    pub fn workers(&self, state: Worker, count: usize) {
        self.families.workers.get_or_create(&WorkerLabels { state }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Replaces the numbers of pending and parked Deliveries of all notifications.
    pub fn by_notification(&self, shares: Vec<Share>) {
        self.families.by_notification.put(shares);
    }

    /// Sets the number of Deliveries that are recorded and not settled.
    pub fn pending(&self, count: usize) {
        self.families.pending.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the number of settled Deliveries that are kept.
    pub fn kept(&self, count: usize) {
        self.families.kept.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the number of settled Deliveries past their retention limit that still exist, and of deleted ones that a finalizer keeps.
    pub fn overdue(&self, count: usize) {
        self.families.overdue.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the number of entries in memory about pipelines and notifications.
    pub fn bookkeeping(&self, count: usize) {
        self.families.bookkeeping.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts a settled Delivery that was removed because of a retention limit.
    pub fn removed(&self, reason: Removal) {
        self.families.removed.get_or_create(&RemovalLabels { reason }).inc();
    }

    /// Counts a settled Delivery that is sent again.
    pub fn redelivery(&self) {
        self.families.redeliveries.inc();
    }

    /// Counts a Delivery that Relaybook did not record, and that it deletes.
    pub fn foreign(&self) {
        self.families.foreign.inc();
    }

    /// Sets the number of origins that are known to be unreachable.
    pub fn unreachable(&self, count: usize) {
        self.families.unreachable.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets whether the current global configuration is valid and in use.
    pub fn config_valid(&self, valid: bool) {
        self.families.config_valid.set(i64::from(valid));
    }

    /// Counts a write to the API server by its result.
    pub fn api_write(&self, kind: ApiWrite, result: WriteResult) {
        self.families.api_writes.get_or_create(&WriteLabels { kind, result }).inc();
    }

    /// Counts a write that waits because its namespace writes more than its share.
    pub fn api_write_paced(&self, kind: ApiWrite) {
        self.families.api_writes_paced.get_or_create(&PacedLabels { kind }).inc();
    }

    /// Counts a watch that failed and is restarted.
    pub fn watch_error(&self, watch: Watch) {
        self.families.watch_errors.get_or_create(&WatchLabels { watch }).inc();
    }

    /// Updates the counts when the state of a remote cluster changes; `None`: the cluster is not watched.
    pub fn cluster(&self, before: Option<Cluster>, now: Option<Cluster>) {
        if let Some(state) = before {
            self.families.clusters.get_or_create(&ClusterLabels { state }).dec();
        }
        if let Some(state) = now {
            self.families.clusters.get_or_create(&ClusterLabels { state }).inc();
        }
    }

    /// Sets the number of caches of application objects, and of the objects in them.
    pub fn caches(&self, caches: usize, objects: usize) {
        self.families.caches.set(i64::try_from(caches).unwrap_or(i64::MAX));
        self.families.objects.set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// Counts a restart of the watch of a cache, with a list.
    pub fn watch_restart(&self) {
        self.families.watch_restarts.inc();
    }

    /// Counts changes that were dropped from a change log because it was full.
    pub fn changes_dropped(&self, count: u64) {
        self.families.changes_dropped.inc_by(count);
    }

    /// Records the time from a watch event of an application object until the status that includes it was written.
    pub fn observation_lag(&self, took: Duration) {
        self.families.observation_lag.observe(took.as_secs_f64());
    }

    /// Sets the number of promotions in this phase.
    pub fn promotions(&self, phase: PromotionPhase, count: usize) {
        self.families.promotions.get_or_create(&PromotionLabels { phase }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the time of the oldest last step of all promotions that are requested and have not ended.
    pub fn oldest_open_promotion(&self, time: Option<Timestamp>) {
        self.families.oldest_open_promotion.set(time.map_or(0, Timestamp::as_second));
    }

    /// Counts spans by their result.
    pub fn spans(&self, result: SpanResult, count: usize) {
        self.families.spans.get_or_create(&SpanLabels { result }).inc_by(count.try_into().unwrap_or(u64::MAX));
    }

    /// Counts a request to a hook by its answer.
    pub fn hook(&self, kind: Hook, result: HookResult) {
        self.families.hooks.get_or_create(&HookLabels { kind, result }).inc();
    }

    /// Sets whether this replica holds the Lease.
    pub fn lease_held(&self, lease: &str, held: bool) {
        let labels = LeaseLabels { lease: lease.to_owned() };
        self.families.leases.get_or_create(&labels).set(i64::from(held));
        drop(self.families.epochs.get_or_create(&labels));
    }

    /// Sets whether this replica holds a bucket of the Lease.
    pub fn bucket_held(&self, lease: &str, bucket: u8, held: bool) {
        self.families.buckets.get_or_create(&BucketLabels { lease: lease.to_owned(), bucket }).set(i64::from(held));
    }

    /// Sets the epoch of a Lease, independent of its holders.
    pub fn lease_epoch(&self, lease: &str, epoch: i32) {
        self.families.epochs.get_or_create(&LeaseLabels { lease: lease.to_owned() }).set(i64::from(epoch));
    }

    /// Sets the number of tasks.
    pub fn tasks(&self, count: usize) {
        self.families.tasks.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Returns all metrics as `OpenMetrics` text (see [`CONTENT_TYPE`]).
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
    /// Registers the families. The registry adds prefix, unit and `_total`.
    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("build", "The running version", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        r.register("deliveries", "Deliveries that have ended, by outcome", self.deliveries.clone());
        r.register("attempts", "Attempts to send a delivery, by result", self.attempts.clone());
        let help = "Time from the observation of a change to the first attempt to send it";
        r.register_with_unit("change_to_first_attempt", help, Unit::Seconds, self.first_attempt.clone());
        let help = "Duration of a request, with or without an answer";
        r.register_with_unit("request_duration", help, Unit::Seconds, self.request.clone());
        r.register("lanes", "Lanes with something to send, by state", self.lanes.clone());
        r.register("workers", "Workers, by state (busy or idle)", self.workers.clone());
        r.register("deliveries_pending", "Deliveries that are recorded and not settled", self.pending.clone());
        r.register("deliveries_kept", "Settled deliveries that are kept", self.kept.clone());
        let help = "Settled deliveries past a retention limit, and deleted deliveries that a finalizer keeps";
        r.register("deliveries_overdue", help, self.overdue.clone());
        let help = "Entries in memory about pipelines and notifications";
        r.register("bookkeeping_entries", help, self.bookkeeping.clone());
        let help = "Settled deliveries that were deleted because of a retention limit, by reason";
        r.register("deliveries_removed", help, self.removed.clone());
        let help = "Settled deliveries that were sent again on request";
        r.register("redeliveries", help, self.redeliveries.clone());
        let help = "Delivery objects that Relaybook did not record; Relaybook deletes them and never sends them";
        r.register("deliveries_foreign", help, self.foreign.clone());
        r.register("origins_unreachable", "Receiver origins that are currently unreachable", self.unreachable.clone());
        let help = "Whether the current global configuration is valid and in use";
        r.register("config_valid", help, self.config_valid.clone());
        r.register("api_writes", "Writes to the API server, by kind and result", self.api_writes.clone());
        let help = "Writes that waited because their namespace writes more than its share, by kind";
        r.register("api_writes_paced", help, self.api_writes_paced.clone());
        r.register("lease_held", "Whether this replica holds at least one bucket of the Lease", self.leases.clone());
        r.register("bucket_held", "Whether this replica holds this bucket of the Lease", self.buckets.clone());
        r.register(
            "lease_epoch",
            "The epoch of the Lease, which increases each time a process acquires buckets",
            self.epochs.clone(),
        );
        r.register("watch_errors", "Watches that failed and were restarted", self.watch_errors.clone());
        r.register("clusters", "Watched remote clusters, by state", self.clusters.clone());
        r.register("caches", "Watches of one kind of application objects on a cluster", self.caches.clone());
        r.register("objects_cached", "Application objects whose state is known", self.objects.clone());
        r.register("tasks", "Tasks of the runtimes that observe, record and write", self.tasks.clone());
        let help = "Restarts of the watch of a cache, with a new list";
        r.register("watch_restarts", help, self.watch_restarts.clone());
        let help = "Changes that were dropped from the change log of a pipeline because it was full";
        r.register("changes_dropped", help, self.changes_dropped.clone());
        let help = "Time from a watch event of an application object until a status that includes it was written";
        r.register_with_unit("observation_lag", help, Unit::Seconds, self.observation_lag.clone());
        r.register("promotions", "Promotions, by phase", self.promotions.clone());
        let help = "Time of the oldest last step of all promotions that are requested and have not ended, or 0";
        let name = "promotion_oldest_open_timestamp";
        r.register_with_unit(name, help, Unit::Seconds, self.oldest_open_promotion.clone());
        r.register_collector(Box::new(self.by_notification.clone()));
        r.register("spans", "Spans of traces, by result", self.spans.clone());
        r.register("hooks", "Requests to hooks, by hook and answer", self.hooks.clone());
        r.register("forge_requests", "Requests to forges and Git servers, by result", self.forge_requests.clone());
    }
}

#[cfg(test)]
mod tests;
