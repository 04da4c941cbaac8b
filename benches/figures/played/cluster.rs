//! One played cluster: its objects with their history, what it answers, and what it was asked.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use url::Url;

use crate::source::status;

/// Namespace of all objects.
pub const NAMESPACE: &str = "apps";
/// Number of objects of a cluster, and of one cluster in ten. The latter needs several pages.
pub const TARGETS: usize = 20;
const MANY: usize = 120;
/// Requests in this time after the first one are counted separately.
const FIRST: Duration = Duration::from_secs(5);

/// How a cluster behaves while the ill clusters are ill. Otherwise, all are healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Healthy,
    /// Each answer and event needs [`SLOW`].
    Slow,
    /// It refuses connections.
    Refuses,
    /// It accepts connections and never answers.
    Silent,
}

impl Kind {
    /// One cluster in ten is dead, and one in fifty is slow.
    pub fn of(n: usize) -> Self {
        match n {
            n if n % 20 == 3 => Self::Refuses,
            n if n % 20 == 13 => Self::Silent,
            n if n % 50 == 7 => Self::Slow,
            _ => Self::Healthy,
        }
    }

    pub fn is_dead(self) -> bool {
        matches!(self, Self::Refuses | Self::Silent)
    }
}

/// What one cluster or all clusters were asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// All requests.
    pub requests: usize,
    pub lists: usize,
    pub watches: usize,
    /// Watches that were answered with 410.
    pub gone: usize,
    /// Maximum number of requests of one cluster in flight. A watch counts until its head is sent.
    pub at_once: usize,
    /// Maximum number of requests of one cluster in [`FIRST`] after its first one.
    pub early: usize,
    in_flight: usize,
    first: Option<Instant>,
}

impl Asked {
    /// Returns the sums, and the larger of the maxima.
    pub fn with(self, one: &Self) -> Self {
        Self {
            requests: self.requests + one.requests,
            lists: self.lists + one.lists,
            watches: self.watches + one.watches,
            gone: self.gone + one.gone,
            at_once: self.at_once.max(one.at_once),
            early: self.early.max(one.early),
            ..self
        }
    }
}

/// One cluster.
pub struct Cluster {
    n: usize,
    pub kind: Kind,
    pub state: watch::Sender<State>,
    pub asked: Mutex<Asked>,
}

/// Objects and history of a cluster.
pub struct State {
    /// The latest resource version.
    pub version: u64,
    /// A watch from an earlier version is answered with 410.
    pub oldest: u64,
    /// Whether the last rollout of each object has failed, and its resource version.
    objects: Vec<(bool, u64)>,
    /// Events by resource version.
    pub events: Vec<(u64, String)>,
    /// How often all watches were ended.
    pub ends: usize,
}

/// A request that a cluster serves.
pub enum Request {
    Version,
    Kinds,
    /// The maximum number of objects, and where the page begins.
    List(usize, usize),
    /// The resource version, and the duration.
    Watch(u64, Duration),
    Other,
}

impl Request {
    /// Returns the request for this path of a cluster.
    pub fn of(path: &str, url: &Url) -> Self {
        let query = |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        let number = |name: &str| query(name).and_then(|value| value.parse::<u64>().ok());
        let count = |name: &str| number(name).and_then(|number| usize::try_from(number).ok());
        match path {
            "version" => Self::Version,
            "apis/apps/v1" => Self::Kinds,
            "apis/apps/v1/deployments" if query("watch").is_some() => {
                let span = Duration::from_secs(number("timeoutSeconds").unwrap_or(1800));
                Self::Watch(number("resourceVersion").unwrap_or_default(), span)
            }
            "apis/apps/v1/deployments" => Self::List(count("limit").unwrap_or(usize::MAX), count("continue").unwrap_or(0)),
            _ => Self::Other,
        }
    }
}

/// Returns the name of an object. It is unique among all clusters.
pub fn app(n: usize, i: usize) -> String {
    format!("app-{n}-{i}")
}

impl Cluster {
    pub fn new(n: usize) -> Self {
        let count = if n % 10 == 5 { MANY } else { TARGETS };
        let state = State { version: 1000, oldest: 0, objects: vec![(false, 1000); count], events: Vec::new(), ends: 0 };
        Self { n, kind: Kind::of(n), state: watch::Sender::new(state), asked: Mutex::default() }
    }

    /// Changes an object by one event: a failed rollout or a finished one.
    pub fn flip(&self, i: usize) {
        self.state.send_modify(|state| {
            state.version += 1;
            let object = (!state.objects[i].0, state.version);
            state.objects[i] = object;
            let mut deployment = deployment(self.n, i, object);
            deployment["apiVersion"] = json!("apps/v1");
            deployment["kind"] = json!("Deployment");
            state.events.push((object.1, event("MODIFIED", &deployment)));
        });
    }

    /// Ends all watches, and drops the history.
    pub fn forget(&self) {
        self.state.send_modify(|state| {
            state.version += 1;
            state.oldest = state.version;
            state.events.clear();
            state.ends += 1;
        });
    }

    /// Counts a request. It is in flight until the result is dropped.
    pub fn begin(&self, request: &Request) -> Busy<'_> {
        let (mut asked, now) = (self.asked.lock(), Instant::now());
        asked.requests += 1;
        asked.lists += usize::from(matches!(request, Request::List(..)));
        asked.watches += usize::from(matches!(request, Request::Watch(..)));
        asked.early += usize::from(now - *asked.first.get_or_insert(now) < FIRST);
        asked.in_flight += 1;
        asked.at_once = asked.at_once.max(asked.in_flight);
        Busy(self)
    }

    /// Returns the status code and the body of the answer to a request that is not a watch.
    pub fn answer(&self, request: &Request) -> (u16, String) {
        let (code, body) = match *request {
            Request::Version => {
                (200, json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0", "platform": "linux/amd64"}))
            }
            Request::Kinds => {
                let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
                let kind = json!({"name": "deployments", "singularName": "deployment", "namespaced": true, "kind": "Deployment", "verbs": verbs});
                (200, json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1", "resources": [kind]}))
            }
            Request::List(limit, from) => (200, self.page(limit, from)),
            Request::Watch(..) | Request::Other => {
                let message = "the server could not find the requested resource";
                (
                    404,
                    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": "NotFound", "code": 404}),
                )
            }
        };
        (code, body.to_string())
    }

    fn page(&self, limit: usize, from: usize) -> Value {
        let state = self.state.borrow();
        let objects = state.objects.iter().enumerate().skip(from).take(limit);
        let items: Vec<_> = objects.map(|(i, object)| deployment(self.n, i, *object)).collect();
        let end = from + items.len();
        let more = if end < state.objects.len() { end.to_string() } else { String::new() };
        let metadata = json!({"resourceVersion": state.version.to_string(), "continue": more});
        json!({"kind": "DeploymentList", "apiVersion": "apps/v1", "metadata": metadata, "items": items})
    }
}

/// A request in flight.
pub struct Busy<'a>(&'a Cluster);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut asked = self.0.asked.lock();
        asked.in_flight = asked.in_flight.saturating_sub(1);
    }
}

/// Returns the object of a watch event about a resource version that is too old.
pub fn expired() -> Value {
    let message = "too old resource version";
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": "Expired", "code": 410})
}

/// Returns a line of a watch. As in those of a real API server, the type comes first: Relaybook reads the object only afterwards.
pub fn event(kind: &str, object: &Value) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

/// Returns a Deployment of the usual size, as a list contains it.
fn deployment(n: usize, i: usize, (failed, version): (bool, u64)) -> Value {
    let (name, time) = (app(n, i), "2025-01-01T00:00:00Z");
    let labels = json!({"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "Helm"});
    let fields = json!({"f:metadata": {"f:annotations": {"f:filler": "x".repeat(1500)}}});
    let managed = json!([{"manager": "helm", "operation": "Update", "apiVersion": "apps/v1", "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields}]);
    let containers =
        json!([{"name": "app", "image": "registry.example/app:1", "resources": {}, "imagePullPolicy": "IfNotPresent"}]);
    json!({
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": format!("{n:08x}-0000-4000-8000-{i:012x}"), "generation": 1,
            "resourceVersion": version.to_string(), "creationTimestamp": time, "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": "1", "meta.helm.sh/release-name": name},
            "managedFields": managed,
        },
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels}, "strategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers, "restartPolicy": "Always"}},
        },
        "status": status(failed),
    })
}
