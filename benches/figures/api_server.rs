//! The cost at the API server: the requests that it served, and its processor time.
//!
//! The numbers come from its own counters, not from those of the measured program.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Sub};
use std::time::Duration;

use http::Request;
use kube::Client;

/// Verbs of writes.
const WRITES: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];

/// Reads the metrics of an API server.
pub async fn metrics(client: &Client) -> String {
    let request = Request::get("/metrics").body(Vec::new()).expect("a request");
    client.request_text(request).await.expect("the API server serves metrics")
}

/// Returns the number of requests in flight: the highest of the last second for reads, and for writes. Open watches are not included.
pub fn in_flight(metrics: &str) -> f64 {
    let lines = metrics.lines().filter(|line| line.starts_with("apiserver_current_inflight_requests{"));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

/// Requests by `VERB group/resource/subresource`.
#[derive(Clone, Debug, Default)]
pub struct Requests(BTreeMap<String, f64>);

impl Requests {
    /// Reads the requests that this process of the API server has served since its start.
    pub async fn served(client: &Client) -> Self {
        Self::of(&metrics(client).await)
    }

    /// Returns the requests according to the metrics of an API server.
    pub fn of(metrics: &str) -> Self {
        let mut requests = BTreeMap::new();
        for line in metrics.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
            let Some((labels, count)) = line.rsplit_once("} ") else { continue };
            let label = |name: &str| {
                let value = labels.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\""));
                value.map_or("", |value| value.trim_end_matches('"'))
            };
            let place = [label("group"), label("resource"), label("subresource")].join("/");
            let key = format!("{} {}", label("verb"), place.trim_matches('/'));
            *requests.entry(key).or_default() += count.parse::<f64>().unwrap_or_default();
        }
        Self(requests)
    }

    /// Returns the number of requests with this text in the name.
    pub fn count(&self, what: &str) -> f64 {
        self.0.iter().filter(|(key, _)| key.contains(what)).map(|(_, n)| n).sum()
    }

    /// Returns only the writes, without renewals of Leases, which depend on time and not on work.
    pub fn writes(&self) -> Self {
        let write = |key: &str| WRITES.iter().any(|verb| key.split(' ').next() == Some(verb)) && !key.contains("/leases");
        Self(self.0.iter().filter(|(key, _)| write(key)).map(|(k, n)| (k.clone(), *n)).collect())
    }

    /// Returns only requests without this text in the name.
    pub fn without(&self, what: &str) -> Self {
        Self(self.0.iter().filter(|(key, _)| !key.contains(what)).map(|(k, n)| (k.clone(), *n)).collect())
    }

    /// Returns only requests with one of these texts in the name.
    pub fn only(&self, what: &[&str]) -> Self {
        let wanted = |key: &str| what.iter().any(|w| key.contains(w));
        Self(self.0.iter().filter(|(key, _)| wanted(key)).map(|(k, n)| (k.clone(), *n)).collect())
    }

    /// Returns the number of all requests.
    pub fn total(&self) -> f64 {
        self.0.values().sum()
    }

    /// Lists the requests, each with its number divided by `n`, such as `POST relaybook.dev/deliveries 1.00`.
    pub fn each(&self, n: f64) -> String {
        let parts = self.0.iter().filter(|(_, count)| **count > 0.0).map(|(key, count)| format!("{key} {:.2}", count / n));
        parts.collect::<Vec<_>>().join(", ")
    }
}

impl Sub for &Requests {
    type Output = Requests;

    fn sub(self, before: Self) -> Requests {
        let since = |(key, n): (&String, &f64)| (key.clone(), n - before.0.get(key).unwrap_or(&0.0));
        Requests(self.0.iter().map(since).collect())
    }
}

impl AddAssign for Requests {
    fn add_assign(&mut self, other: Self) {
        for (key, n) in other.0 {
            *self.0.entry(key).or_default() += n;
        }
    }
}

/// The counters of the control plane and of the machine at one time.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Requests served so far.
    pub requests: Requests,
    /// Processor time of the API server.
    pub cpu: Duration,
    /// Processor time of etcd.
    pub etcd: Duration,
    /// Processor time of this program: clients and receiver.
    pub bench: Duration,
    /// Idle time of the cores.
    pub idle: Duration,
}
