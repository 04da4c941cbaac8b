//! The figures with their goals, and the table of results.
//!
//! In: the readings of each round. Out: medians, compared with the goals.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use serde_json::json;

/// One measured figure.
pub struct Figure {
    /// Name in the JSON output.
    pub name: &'static str,
    /// Description in the table.
    what: &'static str,
    /// Unit of the value; a ratio to the floor has none.
    unit: &'static str,
    goal: Goal,
}

enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

const fn at_most(name: &'static str, what: &'static str, unit: &'static str, goal: f64) -> Figure {
    Figure { name, what, unit, goal: Goal::AtMost(goal) }
}

const fn at_least(name: &'static str, what: &'static str, unit: &'static str, goal: f64) -> Figure {
    Figure { name, what, unit, goal: Goal::AtLeast(goal) }
}

pub const RENDER: Figure =
    at_least("render", "built-in templates rendered a second on one core, mean of all 27", "/s", 50_000.0);
pub const RENDER_SLOWEST: Figure = at_least("render-slowest", "the same, for the slowest of them", "/s", 50_000.0);
pub const THROUGHPUT: Figure =
    at_least("throughput", "8 targets × 8 notifications: deliveries recorded and sent", "/s", 0.8);
pub const LATENCY: Figure =
    at_most("latency", "one lane, idle: from the application's status to the request, p50", "ms", 6.0);
pub const CPU: Figure = at_most("cpu", "API server CPU a delivery", "ms", 1.5);
pub const THROUGHPUT_BASE: Figure =
    at_least("throughput-base", "deliveries a second, compared with the other program", "/s", 1.7);
pub const CPU_BASE: Figure = at_most("cpu-base", "API server CPU a delivery, compared with the other program", "ms", 0.6);
pub const LATENCY_BASE: Figure =
    at_most("latency-base", "from the application's status to the request, compared with the other program", "ms", 0.8);
pub const RENDER_SHARE: Figure =
    at_most("render-share", "Relaybook's CPU: rendering (mean of all built-in templates), of a delivery", "ms", 0.05);
pub const WRITES_SLOW: Figure = at_most("writes-slow", "API writes a delivery, at 1 a second", "", 3.3);
pub const WRITES_FAST: Figure = at_most("writes-fast", "API writes a delivery, saturated", "", 1.15);
pub const WRITES_IDLE: Figure = at_most("writes-idle", "API writes while nothing happens, 200 pipelines", "", 0.0);
pub const MEMORY_IDLE: Figure = at_most("memory-idle", "resident memory, 200 pipelines", "MiB", 40.0);
pub const MEMORY_PENDING: Figure = at_most("memory-pending", "resident memory, 10,000 pending deliveries", "MiB", 120.0);
pub const MEMORY_SETTLED: Figure = at_most("memory-settled", "resident memory, after they are settled", "MiB", 80.0);
pub const READY: Figure = at_most("ready", "ready after a restart with 10,000 pending", "s", 3.0);
pub const CONNECTIONS: Figure = at_most("connections", "connections a request, over 10,000 requests", "", 0.02);

pub const ISOLATION: Figure =
    at_least("isolation", "the same load beside 10 hung and 10 refusing origins of 100 lanes each", "/s", 0.95);
pub const ISOLATION_P99: Figure =
    at_most("isolation-p99", "beside them, at a pace: from the application's status to the request, p99", "ms", 1.2);
pub const NOISY: Figure =
    at_most("noisy", "beside 50 pipelines of another team that change all the time: a message, p50", "ms", 2.0);
pub const NOISY_NOTIFIED: Figure = at_most("noisy-notified", "the same with their Notifications", "ms", 2.0);
pub const DRAIN: Figure = at_most("drain", "10,000 deliveries of an outage settled after its end", "s", 1.3);
pub const SIGNED: Figure = at_least("signed", "8 targets × 8 notifications: signed, with a built-in template", "/s", 0.8);
pub const SLOW: Figure = at_least("slow", "one lane to a receiver that takes 10 ms: deliveries", "/s", 0.9);
pub const LARGE: Figure =
    at_most("large", "resident memory, while receivers answer with 1 GiB instead of 1 KiB", "MiB", 1.05);
pub const CONFIG_EDIT: Figure = at_most(
    "config-edit",
    "1,000 pipelines, 10,000 effective notifications: Relaybook's CPU for an edit of 1 in 10",
    "s",
    0.3,
);
pub const CONFIG_WRITES: Figure =
    at_most("config-writes", "API writes of such an edit for pipelines whose status it does not change", "", 0.0);
pub const CONFIG_MEMORY: Figure = at_most("config-memory", "resident memory an effective notification", "KiB", 8.0);

pub const SYNC: Figure =
    at_most("sync", "500 pipelines × 4 targets over 3 control planes: from the start to all statuses written", "s", 1.5);
pub const RESYNC: Figure =
    at_most("resync", "the same looked at again, nothing new: Relaybook's CPU, of the first time's", "s", 0.2);
pub const RESYNC_WRITES: Figure = at_most("resync-writes", "API writes meanwhile", "", 0.0);
pub const OBJECT_MEMORY: Figure = at_most("object-memory", "resident memory a cached object, of 20,000", "KiB", 4.0);
pub const HUNG_P99: Figure =
    at_most("hung-p99", "while one of 3 control planes hangs: from the application's status to the request, p99", "ms", 1.1);

pub const HUB_SYNC: Figure = at_most(
    "hub-sync",
    "a hub of 500 clusters × 20 targets: from the start to all statuses of those that answer",
    "s",
    60.0,
);
pub const HUB_AT_ONCE: Figure = at_most("hub-at-once", "meanwhile, requests in flight at one cluster", "", 4.0);
pub const HUB_EARLY: Figure = at_most("hub-early", "requests to one cluster in the first 5 s", "", 10.0);
/// An API server gives 245 of its 600 places to the priority level `workload-low`, which is that of service accounts.
pub const HUB_IN_FLIGHT: Figure = at_most("hub-in-flight", "requests in flight at the management cluster", "", 245.0);
pub const HUB_MEMORY: Figure = at_most("hub-memory", "resident memory a cluster, with its pipeline", "MiB", 0.5);
pub const HUB_CONNECTIONS: Figure = at_most("hub-connections", "connections a cluster, with those to its Secret", "", 3.2);
pub const HUB_WRITES: Figure = at_most("hub-writes", "API writes while nothing happens, 5 min", "", 0.0);
pub const HUB_REQUESTS: Figure = at_most("hub-requests", "requests a minute to a cluster at rest", "", 7.0);
pub const HUB_CPU: Figure = at_most("hub-cpu", "Relaybook's CPU a minute and cluster at rest", "ms", 6.0);
pub const HUB_GONE: Figure = at_most("hub-gone", "API writes after all watches ended at once with 410", "", 0.0);
pub const HUB_P99: Figure = at_most(
    "hub-p99",
    "beside 50 dead and 10 slow clusters: from the status at a healthy one to the request, p99",
    "ms",
    1.2,
);

pub const ROLLOUT: Figure =
    at_most("rollout", "one pipeline of 200 targets, 6 notifications, all change within 1 s: to the last request", "s", 1.5);

pub const GENERATED_MEMORY: Figure =
    at_most("generated-memory", "resident memory that a selection of 30,000 BundleDeployments adds", "MiB", 45.0);
pub const GENERATED_SYNC: Figure =
    at_most("generated-sync", "120 pipelines of 250 generated targets: from the start to all statuses", "s", 60.0);
pub const GENERATED_WRITES: Figure = at_most("generated-writes", "API writes while nothing happens to them", "", 0.0);
pub const GENERATED_LISTS: Figure = at_most("generated-lists", "watches that one more label in a selector starts", "", 0.0);
pub const SETS_SYNC: Figure =
    at_most("sets-sync", "a set over 300 Kustomizations: from its creation to 300 statuses", "s", 10.0);
pub const SETS_WRITES: Figure = at_most("sets-writes", "API writes while nothing happens to them", "", 0.0);
pub const SETS_MEMORY: Figure = at_most("sets-memory", "resident memory, 300 pipelines of a set", "MiB", 60.0);
pub const CHUNKS_MEMORY: Figure =
    at_most("chunks-memory", "resident memory, 3,000 clusters divided among 15 pipelines", "MiB", 250.0);
pub const CHUNKS_STATUS: Figure = at_most("chunks-status", "the largest of their statuses", "KiB", 512.0);
pub const REPLICAS: Figure = at_least(
    "replicas",
    "three replicas: what they can send, compared with one, by the processor time of the busiest",
    "",
    2.4,
);
pub const LEASE_CALLS: Figure = at_most("lease-calls", "calls for Leases in a minute, one replica", "", 36.0);
pub const TAKEOVER_STOP: Figure =
    at_most("takeover-stop", "a replica is stopped: until the others have sent a change of each of 48 pipelines", "s", 2.0);
pub const TAKEOVER_KILL: Figure =
    at_most("takeover-kill", "a replica is killed: until the others have its pipelines and deliveries", "s", 50.0);
pub const PROMOTION: Figure = at_most(
    "promotion",
    "from the status of one environment to the request for the next, p50, compared with the request `Deployed`",
    "ms",
    2.0,
);
pub const PROMOTION_IDLE: Figure =
    at_most("promotion-idle", "API writes while nothing happens, 200 pipelines with promotions", "", 0.0);
pub const APPROVAL: Figure =
    at_most("approval", "a signed approval beside 100 deliveries a second: from the request to the answer, p99", "ms", 50.0);

pub const FORGE_REQUESTS: Figure =
    at_most("forge-requests", "1,000 open pull requests of one token: requests in an hour", "", 1000.0);
pub const FORGE_P99: Figure = at_most(
    "forge-p99",
    "beside 50 promotions whose forge hangs, at a pace: from the application's status to the request, p99",
    "ms",
    1.2,
);

pub const SHARED: Figure =
    at_most("shared", "beside 20 silent repositories of another team at the same Git server: a promotion, p50", "ms", 2.0);

pub const PAGE_OVERVIEW: Figure =
    at_most("page-overview", "overview of 1,000 pipelines, with 100,000 deliveries: p95", "ms", 300.0);
pub const PAGE_SLOWEST: Figure = at_most("page-slowest", "the same, for the slowest screen", "ms", 2_000.0);
pub const PAGE_MEMORY: Figure = at_most("page-memory", "resident memory that all screens of the page add", "MiB", 64.0);
pub const PAGE_CALLS: Figure =
    at_most("page-calls", "calls of the API server for a page, for the screen with the most", "", 10.0);
pub const PAGE_IDLE: Figure =
    at_most("page-idle", "calls other than watches while the page is open and nothing happens", "", 0.0);

/// All figures, in the order of the table.
const FIGURES: [Figure; 69] = [
    RENDER,
    RENDER_SLOWEST,
    RENDER_SHARE,
    THROUGHPUT,
    LATENCY,
    CPU,
    THROUGHPUT_BASE,
    LATENCY_BASE,
    CPU_BASE,
    WRITES_SLOW,
    WRITES_FAST,
    WRITES_IDLE,
    MEMORY_IDLE,
    MEMORY_PENDING,
    MEMORY_SETTLED,
    READY,
    CONNECTIONS,
    ISOLATION,
    ISOLATION_P99,
    NOISY,
    NOISY_NOTIFIED,
    DRAIN,
    SIGNED,
    SLOW,
    LARGE,
    CONFIG_EDIT,
    CONFIG_WRITES,
    CONFIG_MEMORY,
    SYNC,
    RESYNC,
    RESYNC_WRITES,
    OBJECT_MEMORY,
    HUNG_P99,
    HUB_SYNC,
    HUB_AT_ONCE,
    HUB_EARLY,
    HUB_IN_FLIGHT,
    HUB_MEMORY,
    HUB_CONNECTIONS,
    HUB_WRITES,
    HUB_REQUESTS,
    HUB_CPU,
    HUB_GONE,
    HUB_P99,
    ROLLOUT,
    PROMOTION,
    PROMOTION_IDLE,
    APPROVAL,
    FORGE_REQUESTS,
    FORGE_P99,
    SHARED,
    GENERATED_MEMORY,
    GENERATED_SYNC,
    GENERATED_WRITES,
    GENERATED_LISTS,
    SETS_SYNC,
    SETS_WRITES,
    SETS_MEMORY,
    CHUNKS_MEMORY,
    CHUNKS_STATUS,
    REPLICAS,
    LEASE_CALLS,
    TAKEOVER_STOP,
    TAKEOVER_KILL,
    PAGE_OVERVIEW,
    PAGE_SLOWEST,
    PAGE_MEMORY,
    PAGE_CALLS,
    PAGE_IDLE,
];

/// The result of one round for a figure, or a note.
#[derive(Clone, Debug)]
pub enum Reading {
    /// A value, and the floor that it is compared with, if any.
    Value { figure: &'static str, value: f64, floor: Option<f64> },
    /// Text for the user, printed during the run.
    Note(String),
}

impl Reading {
    pub fn of(figure: &Figure, value: f64) -> Self {
        Self::Value { figure: figure.name, value, floor: None }
    }

    pub fn against(figure: &Figure, value: f64, floor: f64) -> Self {
        Self::Value { figure: figure.name, value, floor: Some(floor) }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value { figure, value, floor: Some(floor) } => {
                write!(f, "{figure}: {value:.2}, floor {floor:.2}, ratio {:.3}", value / floor)
            }
            Self::Value { figure, value, floor: None } => write!(f, "{figure}: {value:.4}"),
            Self::Note(text) => f.write_str(text),
        }
    }
}

/// All readings.
#[derive(Default)]
pub struct Table(Vec<Reading>);

/// The medians of one figure. Each column is a separate median.
struct Row<'a> {
    figure: &'a Figure,
    value: f64,
    floor: Option<f64>,
    /// What is compared with the goal: the value, or its ratio to the floor.
    compared: f64,
}

impl Row<'_> {
    fn met(&self) -> bool {
        match self.figure.goal {
            Goal::AtLeast(goal) => self.compared >= goal,
            Goal::AtMost(goal) => self.compared <= goal,
        }
    }
}

impl Table {
    pub fn add(&mut self, readings: Vec<Reading>) {
        self.0.extend(readings);
    }

    fn rows(&self) -> impl Iterator<Item = Row<'static>> {
        FIGURES.iter().filter_map(|figure| {
            let of = |r: &Reading| match r {
                Reading::Value { figure: name, value, floor } if *name == figure.name => Some((*value, *floor)),
                _ => None,
            };
            let values: Vec<_> = self.0.iter().filter_map(of).collect();
            let value = median(values.iter().map(|(v, _)| *v))?;
            let compared = median(values.iter().map(|(v, floor)| v / floor.unwrap_or(1.0)))?;
            Some(Row { figure, value, floor: median(values.iter().filter_map(|(_, floor)| *floor)), compared })
        })
    }

    /// Appends one line of JSON for each figure.
    pub fn append_to(&self, path: &Path, machine: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file for the figures");
        for row in self.rows() {
            let line = json!({"figure": row.figure.name, "value": row.value, "floor": row.floor, "compared": row.compared,
                "met": row.met(), "machine": machine});
            writeln!(file, "{line}").expect("written");
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| figure | value | floor | ratio | goal | |")?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        for row in self.rows() {
            let unit = row.figure.unit;
            let with_unit = |n: f64| format!("{} {unit}", number(n)).replace(" /", "/").trim_end().to_owned();
            let floor = row.floor.map(with_unit).unwrap_or_default();
            let ratio = row.floor.map(|_| format!("{:.2}", row.compared)).unwrap_or_default();
            let (sign, goal) = match row.figure.goal {
                Goal::AtLeast(goal) => ("≥", goal),
                Goal::AtMost(goal) => ("≤", goal),
            };
            let goal = if row.floor.is_some() { goal.to_string() } else { format!("{goal} {unit}") };
            let goal = goal.replace(" /", "/").trim_end().to_owned();
            let met = if row.met() { "met" } else { "**missed**" };
            writeln!(f, "| {} | {} | {floor} | {ratio} | {sign} {goal} | {met} |", row.figure.what, with_unit(row.value))?;
        }
        Ok(())
    }
}

/// Formats a number with about three significant digits.
fn number(n: f64) -> String {
    match n.abs() {
        n if n >= 100.0 || n == 0.0 => format!("{n:.0}"),
        n if n >= 10.0 => format!("{n:.1}"),
        n if n >= 0.1 => format!("{n:.2}"),
        n => format!("{n:.4}"),
    }
}

/// Returns the median, or `None` without values.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    quantile(&mut values.collect::<Vec<_>>(), 0.5)
}

/// Returns a quantile by linear interpolation, or `None` without values.
pub fn quantile(values: &mut [f64], q: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let at = q * (values.len().checked_sub(1)? as f64);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index within the list")]
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    Some(values[low] + (values[high] - values[low]) * at.fract())
}
