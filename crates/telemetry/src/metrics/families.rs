//! The metrics, each declared once: its type, its name, its help, and the series that exist from the start.

use std::hash::Hash;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::by_notification::ByNotification;
use crate::labels::{
    ApiWrite, BucketLabels, Cluster, Hook, HookResult, LaneState, LeaseLabels, LookUpResult, Removal, RequestClass,
    SpanResult, TokenResult, Watch, Word, Worker, WriteResult,
};

/// Upper bounds in seconds for one request. The longest possible timeout is 60 s.
const REQUEST_SECONDS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];
/// Upper bounds in seconds from a change to the first attempt to send it. The attempt can wait for earlier Deliveries.
const FIRST_ATTEMPT_SECONDS: [f64; 13] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0];
/// Upper bounds in seconds from a watch event to the status write that includes it.
const OBSERVATION_SECONDS: [f64; 11] = [0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0];

/// The outcomes of deliveries, as in the API.
const OUTCOMES: [&str; 4] = ["Delivered", "Parked", "Canceled", "Superseded"];
/// The phases of promotions, as in the API.
const PHASES: [&str; 8] = ["Pending", "Requested", "Open", "Merged", "Finished", "Closed", "Failed", "Withdrawn"];

/// Declares the metrics, in the order of the text: for each one its field, its type, and the function that registers it.
macro_rules! families {
    ($($name:ident: $type:ty = $register:ident($($argument:expr),+ $(,)?);)+) => {
        #[derive(Debug)]
        pub(super) struct Families {
            pub(super) registry: Registry,
            $(pub(super) $name: $type,)+
        }

        impl Families {
            /// The registry adds prefix, unit and `_total`.
            pub(super) fn new() -> Self {
                let mut registry = Registry::with_prefix("relaybook");
                registry.register("build", "The running version", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
                $(let $name: $type = $register(&mut registry, $($argument),+);)+
                Self { registry, $($name,)+ }
            }
        }
    };
}

families! {
    deliveries: Family<Word, Counter> =
        every("deliveries", "Deliveries that have ended, by outcome", OUTCOMES.map(|word| [("outcome", word)]));
    attempts: Family<RequestClass, Counter> =
        every("attempts", "Attempts to send a delivery, by result", RequestClass::OF_RECEIVERS);
    first_attempt: Histogram = seconds(
        "change_to_first_attempt",
        "Time from the observation of a change to the first attempt to send it",
        Histogram::new(FIRST_ATTEMPT_SECONDS),
    );
    request: Histogram =
        seconds("request_duration", "Duration of a request, with or without an answer", Histogram::new(REQUEST_SECONDS));
    lanes: Family<LaneState, Gauge> = every("lanes", "Lanes with something to send, by state", LaneState::ALL);
    workers: Family<Worker, Gauge> = every("workers", "Workers, by state (busy or idle)", Worker::ALL);
    pending: Gauge = one("deliveries_pending", "Deliveries that are recorded and not settled");
    kept: Gauge = one("deliveries_kept", "Settled deliveries that are kept");
    overdue: Gauge = one(
        "deliveries_overdue",
        "Settled deliveries past a retention limit, and deleted deliveries that a finalizer keeps",
    );
    bookkeeping: Gauge = one("bookkeeping_entries", "Entries in memory about pipelines and notifications");
    removed: Family<Removal, Counter> = every(
        "deliveries_removed",
        "Settled deliveries that were deleted because of a retention limit, by reason",
        Removal::ALL,
    );
    redeliveries: Counter = one("redeliveries", "Settled deliveries that were sent again on request");
    foreign: Counter = one(
        "deliveries_foreign",
        "Delivery objects that Relaybook did not record; Relaybook deletes them and never sends them",
    );
    unreachable: Gauge = one("origins_unreachable", "Receiver origins that are currently unreachable");
    config_valid: Gauge = one("config_valid", "Whether the current global configuration is valid and in use");
    api_writes: Family<(ApiWrite, WriteResult), Counter> =
        every("api_writes", "Writes to the API server, by kind and result", pairs(ApiWrite::ALL, WriteResult::ALL));
    api_writes_paced: Family<ApiWrite, Counter> = every(
        "api_writes_paced",
        "Writes that waited because their namespace writes more than its share, by kind",
        ApiWrite::PACED,
    );
    leases: Family<LeaseLabels, Gauge> =
        every("lease_held", "Whether this replica holds at least one bucket of the Lease", []);
    buckets: Family<BucketLabels, Gauge> = every("bucket_held", "Whether this replica holds this bucket of the Lease", []);
    epochs: Family<LeaseLabels, Gauge> =
        every("lease_epoch", "The epoch of the Lease, which increases each time a process acquires buckets", []);
    watch_errors: Family<Watch, Counter> = every("watch_errors", "Watches that failed and were restarted", Watch::ALL);
    clusters: Family<Cluster, Gauge> = every("clusters", "Watched remote clusters, by state", Cluster::ALL);
    caches: Gauge = one("caches", "Watches of one kind of application objects on a cluster");
    objects: Gauge = one("objects_cached", "Application objects whose state is known");
    tasks: Gauge = one("tasks", "Tasks of the runtimes that observe, record and write");
    watch_restarts: Counter = one("watch_restarts", "Restarts of the watch of a cache, with a new list");
    changes_dropped: Counter =
        one("changes_dropped", "Changes that were dropped from the change log of a pipeline because it was full");
    observation_lag: Histogram = seconds(
        "observation_lag",
        "Time from a watch event of an application object until a status that includes it was written",
        Histogram::new(OBSERVATION_SECONDS),
    );
    promotions: Family<Word, Gauge> = every("promotions", "Promotions, by phase", PHASES.map(|word| [("phase", word)]));
    oldest_open_promotion: Gauge = seconds(
        "promotion_oldest_open_timestamp",
        "Time of the oldest last step of all promotions that are requested and have not ended, or 0",
        Gauge::default(),
    );
    by_notification: ByNotification = collector(ByNotification::default());
    spans: Family<SpanResult, Counter> = every("spans", "Spans of traces, by result", SpanResult::ALL);
    hooks: Family<(Hook, HookResult), Counter> =
        every("hooks", "Requests to hooks, by hook and answer", pairs(Hook::ALL, HookResult::ALL));
    forge_requests: Family<RequestClass, Counter> =
        every("forge_requests", "Requests to forges and Git servers, by result", RequestClass::ALL);
    token_requests: Family<TokenResult, Counter> =
        every("token_requests", "Requests for tokens that servers issue, by result", TokenResult::ALL);
    look_ups: Family<LookUpResult, Counter> =
        every("look_ups", "Questions about a commit for a message, by result", LookUpResult::ALL);
}

fn pairs<A: Copy, B: Copy>(
    a: impl IntoIterator<Item = A>,
    b: impl IntoIterator<Item = B> + Copy,
) -> impl Iterator<Item = (A, B)> {
    a.into_iter().flat_map(move |a| b.into_iter().map(move |b| (a, b)))
}

/// Registers a metric without labels.
fn one<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// Registers a metric with labels. These series exist from the start: a counter that first appears with the value 1 would not count for a
/// rate.
fn every<S, M>(registry: &mut Registry, name: &str, help: &str, series: impl IntoIterator<Item = S>) -> Family<S, M>
where
    S: Clone + Hash + Eq,
    M: Default,
    Family<S, M>: Metric,
{
    let family = Family::default();
    series.into_iter().for_each(|labels| drop(family.get_or_create(&labels)));
    registry.register(name, help, family.clone());
    family
}

/// Registers a metric whose unit is seconds.
fn seconds<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

fn collector(registry: &mut Registry, metric: ByNotification) -> ByNotification {
    registry.register_collector(Box::new(metric.clone()));
    metric
}
