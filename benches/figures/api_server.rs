//! What the API server says of itself: the requests that it served, and the processor time that it took.
//!
//! Its own counters are believed, not those of the program that is measured.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Sub};
use std::time::Duration;

use http::Request;
use kube::Client;

/// Verbs that write.
const WRITES: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];

/// Requests by `VERB group/resource/subresource`.
#[derive(Clone, Debug, Default)]
pub struct Requests(BTreeMap<String, f64>);

impl Requests {
    /// All that were ever served by this API server process.
    pub async fn served(client: &Client) -> Self {
        let request = Request::get("/metrics").body(Vec::new()).expect("a request");
        let text = client.request_text(request).await.expect("the API server serves metrics");
        let mut requests = BTreeMap::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
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

    /// How many have this in their name.
    pub fn count(&self, what: &str) -> f64 {
        self.0.iter().filter(|(key, _)| key.contains(what)).map(|(_, n)| n).sum()
    }

    /// Only the writes, without renewals of leases, which come with time and not with work.
    pub fn writes(&self) -> Self {
        let write = |key: &str| WRITES.iter().any(|verb| key.split(' ').next() == Some(verb)) && !key.contains("/leases");
        Self(self.0.iter().filter(|(key, _)| write(key)).map(|(k, n)| (k.clone(), *n)).collect())
    }

    /// Without those that have this in their name.
    pub fn without(&self, what: &str) -> Self {
        Self(self.0.iter().filter(|(key, _)| !key.contains(what)).map(|(k, n)| (k.clone(), *n)).collect())
    }

    /// Only those that have one of these in their name.
    pub fn only(&self, what: &[&str]) -> Self {
        let wanted = |key: &str| what.iter().any(|w| key.contains(w));
        Self(self.0.iter().filter(|(key, _)| wanted(key)).map(|(k, n)| (k.clone(), *n)).collect())
    }

    /// All of them.
    pub fn total(&self) -> f64 {
        self.0.values().sum()
    }

    /// Each with its share of `n`, such as `POST pennant.dev/deliveries 1.00`.
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

/// A moment in the life of the control plane, and of the machine.
#[derive(Clone, Debug)]
pub struct Moment {
    /// What was served until then.
    pub requests: Requests,
    /// Processor time of the API server.
    pub cpu: Duration,
    /// Processor time of etcd.
    pub etcd: Duration,
    /// Processor time of this program: clients and receiver.
    pub bench: Duration,
    /// Time that the cores had nothing to do.
    pub idle: Duration,
}
