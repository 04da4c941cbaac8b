//! The handle through which the modules update the metrics. `families` declares them, and [`super::labels`] their labels.
//!
//! A new metric is one entry of `families`, and one method of [`Metrics`].

mod families;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

pub use super::by_notification::Share;
pub use super::labels::{
    ApiWrite, Cluster, Hook, HookResult, LaneState, LookUpResult, Removal, RequestClass, SpanResult, TokenResult, Watch,
    Worker, WriteResult,
};
use super::labels::{BucketLabels, LeaseLabels};
use families::Families;

/// The media type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of the process; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    families: Arc<Families>,
}

impl Metrics {
    /// Creates the metrics with their first values.
    #[must_use]
    pub fn new() -> Self {
        let families = Families::new();
        // No problem is known before the configuration is read.
        families.config_valid.set(1);
        Self { families: Arc::new(families) }
    }

    /// Counts a Delivery that has ended, by its outcome in the API.
    pub fn delivery(&self, outcome: &'static str) {
        self.families.deliveries.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Counts an attempt that has ended.
    pub fn attempt(&self, class: RequestClass) {
        self.families.attempts.get_or_create(&class).inc();
    }

    /// Counts a request to a forge or its Git server that has ended.
    pub fn forge_request(&self, class: RequestClass) {
        self.families.forge_requests.get_or_create(&class).inc();
    }

    /// Counts a request for a token that a server issues.
    pub fn token_request(&self, result: TokenResult) {
        self.families.token_requests.get_or_create(&result).inc();
    }

    /// Counts a question about a commit.
    pub fn look_up(&self, result: LookUpResult) {
        self.families.look_ups.get_or_create(&result).inc();
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
        self.families.lanes.get_or_create(&state).set(number(count));
    }

    /// Sets the number of workers in this state.
    pub fn workers(&self, state: Worker, count: usize) {
        self.families.workers.get_or_create(&state).set(number(count));
    }

    /// Replaces the numbers of pending and parked Deliveries of all notifications.
    pub fn by_notification(&self, shares: Vec<Share>) {
        self.families.by_notification.put(shares);
    }

    /// Sets the number of Deliveries that are recorded and not settled.
    pub fn pending(&self, count: usize) {
        self.families.pending.set(number(count));
    }

    /// Sets the number of settled Deliveries that are kept.
    pub fn kept(&self, count: usize) {
        self.families.kept.set(number(count));
    }

    /// Sets the number of settled Deliveries past their retention limit that still exist, and of deleted ones that a finalizer keeps.
    pub fn overdue(&self, count: usize) {
        self.families.overdue.set(number(count));
    }

    /// Sets the number of entries in memory about pipelines and notifications.
    pub fn bookkeeping(&self, count: usize) {
        self.families.bookkeeping.set(number(count));
    }

    /// Counts a settled Delivery that was removed because of a retention limit.
    pub fn removed(&self, reason: Removal) {
        self.families.removed.get_or_create(&reason).inc();
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
        self.families.unreachable.set(number(count));
    }

    /// Sets whether the current global configuration is valid and in use.
    pub fn config_valid(&self, valid: bool) {
        self.families.config_valid.set(i64::from(valid));
    }

    /// Counts a write to the API server by its result.
    pub fn api_write(&self, kind: ApiWrite, result: WriteResult) {
        self.families.api_writes.get_or_create(&(kind, result)).inc();
    }

    /// Counts a write that waits because its namespace writes more than its share.
    pub fn api_write_paced(&self, kind: ApiWrite) {
        self.families.api_writes_paced.get_or_create(&kind).inc();
    }

    /// Counts a watch that failed and is restarted.
    pub fn watch_error(&self, watch: Watch) {
        self.families.watch_errors.get_or_create(&watch).inc();
    }

    /// Updates the counts when the state of a remote cluster changes; `None`: the cluster is not watched.
    pub fn cluster(&self, before: Option<Cluster>, now: Option<Cluster>) {
        if let Some(state) = before {
            self.families.clusters.get_or_create(&state).dec();
        }
        if let Some(state) = now {
            self.families.clusters.get_or_create(&state).inc();
        }
    }

    /// Sets the number of caches of application objects, and of the objects in them.
    pub fn caches(&self, caches: usize, objects: usize) {
        self.families.caches.set(number(caches));
        self.families.objects.set(number(objects));
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

    /// Sets the number of promotions in this phase of the API.
    pub fn promotions(&self, phase: &'static str, count: usize) {
        self.families.promotions.get_or_create(&[("phase", phase)]).set(number(count));
    }

    /// Sets the time of the oldest last step of all promotions that are requested and have not ended.
    pub fn oldest_open_promotion(&self, time: Option<Timestamp>) {
        self.families.oldest_open_promotion.set(time.map_or(0, Timestamp::as_second));
    }

    /// Counts spans by their result.
    pub fn spans(&self, result: SpanResult, count: usize) {
        self.families.spans.get_or_create(&result).inc_by(count.try_into().unwrap_or(u64::MAX));
    }

    /// Counts a request to a hook by its answer.
    pub fn hook(&self, kind: Hook, result: HookResult) {
        self.families.hooks.get_or_create(&(kind, result)).inc();
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
        self.families.tasks.set(number(count));
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

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
