//! The model of the API server in `crates/simulation` answers as the real API server does.
//!
//! In: the same random calls through `kube::Client` on both. Out: the first difference of statuses, reasons, objects or events. Uids and times
//! are not compared, and of versions only their order. A failure is shrunk, so it shows the calls that are needed.
//!
//! The calls avoid what the model does not do on purpose: they send only objects that the schema accepts, without defaults, and maps that do
//! not become empty where a kind of Kubernetes omits them or the schema requires them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;
use std::time::Duration;

use futures::{AsyncBufReadExt as _, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchParams};
use kube::client::Body;
use kube::core::Request;
use kube::core::params::GetParams;
use kube::{Client, Resource as _};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use relaybook_api::testing::spec;
use relaybook_api::{Delivery, Notification, NotificationSpec};
use relaybook_simulation::api_server::{Server, kind};
use relaybook_simulation::service::{Fate, Network};
use serde_json::{Map, Value, json};

use crate::support::control_plane;

/// Number of histories, which are the same in every run, and the number of their calls.
const HISTORIES: u32 = 24;
const CALLS: usize = 100;
/// Names of objects.
const NAMES: [&str; 3] = ["one", "two", "three"];
/// Number of kinds: with a status, without one, and two of Kubernetes.
const KINDS: usize = 4;

/// What a call does with a field.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    Absent,
    Is(bool),
    Removed,
}

/// The label and two other fields of an object.
#[derive(Clone, Debug)]
struct Content {
    label: Field,
    one: Field,
    two: Field,
}

/// Which version or uid a call names.
#[derive(Clone, Copy, Debug)]
enum Base {
    Unnamed,
    Last,
    First,
    Wrong,
}

/// The kind of an object, its name, and whether its status is written.
#[derive(Clone, Copy, Debug)]
struct At {
    kind: usize,
    name: usize,
    is_status: bool,
}

/// A test in a JSON Patch.
#[derive(Clone, Copy, Debug)]
enum Test {
    Uid(Base),
    Version(Base),
    /// Whether there are no annotations.
    Missing,
    /// Whether there is nothing in something that does not exist.
    WithoutParent,
}

#[derive(Clone, Debug)]
enum Call {
    Create(At, Content, bool),
    Get(At, bool),
    List(usize, Option<bool>, u32, bool),
    Merge(At, Content, Base),
    Patch(At, Content, Option<Test>),
    Replace(At, Content, Base, Base),
    Apply(At, Content, bool, bool, Base),
    Finalizer(At, bool),
    Delete(At, Base, Base),
    Watch(usize, Option<bool>, bool),
}

fn call() -> impl Strategy<Value = Call> {
    let field = || prop_oneof![3 => Just(Field::Absent), 4 => any::<bool>().prop_map(Field::Is), 1 => Just(Field::Removed)];
    let content = || (field(), field(), field()).prop_map(|(label, one, two)| Content { label, one, two });
    let base =
        || prop_oneof![6 => Just(Base::Unnamed), 4 => Just(Base::Last), 2 => Just(Base::First), 1 => Just(Base::Wrong)];
    let at = || {
        let status = prop::bool::weighted(0.3);
        (0..KINDS, 0..NAMES.len(), status).prop_map(|(kind, name, status)| At { kind, name, is_status: status && kind == 0 })
    };
    let test = prop_oneof![
        base().prop_map(Test::Uid),
        base().prop_map(Test::Version),
        Just(Test::Missing),
        Just(Test::WithoutParent),
    ];
    let label = || prop::option::of(any::<bool>());
    prop_oneof![
        8 => (at(), content(), prop::bool::weighted(0.2)).prop_map(|(at, content, keep)| Call::Create(at, content, keep)),
        3 => (at(), any::<bool>()).prop_map(|(at, is_metadata)| Call::Get(at, is_metadata)),
        3 => (0..KINDS, label(), 0..3_u32, prop::bool::weighted(0.3)).prop_map(|(kind, label, limit, is_metadata)| Call::List(kind, label, limit, is_metadata)),
        5 => (at(), content(), base()).prop_map(|(at, content, base)| Call::Merge(at, content, base)),
        6 => (at(), content(), prop::option::of(test)).prop_map(|(at, content, test)| Call::Patch(at, content, test)),
        6 => (at(), content(), base(), base()).prop_map(|(at, content, base, uid)| Call::Replace(at, content, base, uid)),
        5 => (at(), content(), any::<bool>(), any::<bool>(), base()).prop_map(|(at, content, first, force, uid)| {
            // The status of a Delivery is one value for server-side apply.
            let at = if at.kind == 1 { At { kind: 2, ..at } } else { at };
            Call::Apply(at, content, first, force, uid)
        }),
        2 => (at(), prop::bool::weighted(0.3)).prop_map(|(at, is_set)| Call::Finalizer(at, is_set)),
        3 => (at(), base(), base()).prop_map(|(at, version, uid)| Call::Delete(at, version, uid)),
        1 => (0..KINDS, label(), any::<bool>()).prop_map(|(kind, label, is_metadata)| Call::Watch(kind, label, is_metadata)),
    ]
}

/// Returns the path of a kind.
fn url(kind: usize, namespace: &str) -> String {
    let namespace = Some(namespace);
    match kind {
        0 => Notification::url_path(&(), namespace),
        1 => Delivery::url_path(&(), namespace),
        2 => ConfigMap::url_path(&(), namespace),
        _ => Lease::url_path(&(), namespace),
    }
}

/// Returns an object of a kind with this content.
fn object(kind: usize, name: &str, content: &Content) -> Value {
    let mut object = match kind {
        0 => json!(Notification::new(name, NotificationSpec::default())),
        1 => json!(Delivery::new(name, spec(1))),
        2 => json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"kept": "x"}}),
        _ => json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"leaseDurationSeconds": 15}}),
    };
    if kind == 0 {
        object["spec"]["pipelineSelector"] = json!({"matchLabels": {"kept": "x"}});
    }
    object["metadata"]["name"] = json!(name);
    for (path, _, value) in fields(kind, content).into_iter().filter(|(_, _, value)| !value.is_null()) {
        object[path[0]][path[1]] = value;
    }
    object
}

/// Returns the path of each field that a call touches, and its value. The label is a map.
fn fields(kind: usize, content: &Content) -> Vec<([&'static str; 2], Field, Value)> {
    let text = |is: bool| json!(is.to_string());
    let (one, two) = match kind {
        0 => (["spec", "suspend"], ["status", "lastError"]),
        1 => (["status", "error"], ["status", "reason"]),
        2 => (["data", "one"], ["data", "two"]),
        _ => (["spec", "holderIdentity"], ["spec", "leaseTransitions"]),
    };
    let value = |path: [&str; 2], is: bool| match path[1] {
        "suspend" => json!(is),
        "leaseTransitions" => json!(i32::from(is)),
        "labels" => json!({"of": text(is)}),
        _ => text(is),
    };
    let all = [(["metadata", "labels"], content.label), (one, content.one), (two, content.two)];
    let touched = all.into_iter().filter_map(|(path, field)| match field {
        Field::Absent => None,
        Field::Is(is) => Some((path, field, value(path, is))),
        Field::Removed => Some((path, field, Value::Null)),
    });
    touched.collect()
}

/// One API server, and what it has answered.
struct Side {
    client: Client,
    namespace: String,
    /// The versions of each object, and its last uid.
    versions: HashMap<(usize, usize), Vec<Value>>,
    uids: HashMap<(usize, usize), Value>,
    /// The watches that are read at the end: kind, label, whether of metadata, and the version.
    watches: Vec<(usize, Option<bool>, bool, String)>,
}

impl Side {
    fn new(client: Client, namespace: &str) -> Self {
        let namespace = namespace.to_owned();
        Self { client, namespace, versions: HashMap::new(), uids: HashMap::new(), watches: Vec::new() }
    }

    /// Makes all calls. Returns the answers, and then the events of the watches.
    async fn run(mut self, calls: &[Call]) -> Vec<Value> {
        let namespace = json!({"metadata": {"name": self.namespace}});
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        Api::all(self.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        let mut all = Vec::new();
        for call in calls {
            all.push(self.call(call).await);
        }
        for kind in 0..KINDS {
            let fence = object(kind, "fence", &Content { label: Field::Is(true), one: Field::Absent, two: Field::Absent });
            let request = self.request(kind).create(&PostParams::default(), bytes(&fence)).unwrap();
            assert_eq!(self.send(request).await["code"], 201);
        }
        for (kind, label, is_metadata, version) in &self.watches {
            all.push(json!(self.events(*kind, *label, *is_metadata, version).await));
        }
        all.iter_mut().for_each(strip);
        ranked(&mut all);
        all
    }

    async fn call(&mut self, call: &Call) -> Value {
        let (request, at) = match call {
            Call::List(kind, label, limit, is_metadata) => {
                return json!(self.list(*kind, *label, *limit, *is_metadata).await);
            }
            Call::Watch(kind, label, is_metadata) => {
                let list = self.send(self.request(*kind).list(&ListParams::default()).unwrap()).await;
                let version = list["body"]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
                self.watches.push((*kind, *label, *is_metadata, version));
                return Value::Null;
            }
            Call::Create(at, ..)
            | Call::Get(at, _)
            | Call::Merge(at, ..)
            | Call::Patch(at, ..)
            | Call::Replace(at, ..)
            | Call::Apply(at, ..)
            | Call::Finalizer(at, _)
            | Call::Delete(at, ..) => (self.one(call, *at), *at),
        };
        let answer = self.send(request).await;
        let metadata = &answer["body"]["metadata"];
        if metadata["resourceVersion"].is_string() {
            let place = (at.kind, at.name);
            if self.uids.insert(place, metadata["uid"].clone()) != Some(metadata["uid"].clone()) {
                self.versions.remove(&place);
            }
            self.versions.entry(place).or_default().push(metadata["resourceVersion"].clone());
        }
        answer
    }

    fn request(&self, kind: usize) -> Request {
        Request::new(url(kind, &self.namespace))
    }

    /// Returns the request for one object.
    fn one(&self, call: &Call, at: At) -> http::Request<Vec<u8>> {
        let (request, name) = (self.request(at.kind), NAMES[at.name]);
        let (post, params) = (PostParams::default(), PatchParams::default());
        let patch = |params: &PatchParams, patch: &Patch<Value>| {
            if at.is_status {
                request.patch_subresource("status", name, params, patch)
            } else {
                request.patch(name, params, patch)
            }
        };
        let built = match call {
            Call::Create(_, content, keep) => {
                let mut object = object(at.kind, name, content);
                if *keep {
                    object["metadata"]["finalizers"] = json!(["acme.example/wait"]);
                }
                request.create(&post, bytes(&object))
            }
            Call::Get(_, true) => request.get_metadata(name, &GetParams::default()),
            Call::Get(_, false) if at.is_status => request.get_subresource("status", name),
            Call::Get(_, false) => request.get(name, &GetParams::default()),
            Call::Merge(_, content, base) => {
                let mut merge = json!({});
                for (path, _, value) in fields(at.kind, content) {
                    merge[path[0]][path[1]] = value;
                }
                self.name(at, &mut merge, "resourceVersion", *base);
                patch(&params, &Patch::Merge(merge))
            }
            Call::Patch(_, content, test) => {
                patch(&params, &Patch::Json(serde_json::from_value(self.operations(at, content, *test)).unwrap()))
            }
            Call::Replace(_, content, base, uid) => {
                let mut object = object(at.kind, name, content);
                self.name(at, &mut object, "resourceVersion", *base);
                self.name(at, &mut object, "uid", *uid);
                if at.is_status {
                    request.replace_subresource("status", name, &post, bytes(&object))
                } else {
                    request.replace(name, &post, bytes(&object))
                }
            }
            Call::Apply(_, content, is_first, force, uid) => {
                let mut object = object(at.kind, name, content);
                self.name(at, &mut object, "uid", *uid);
                let params = PatchParams::apply(if *is_first { "first" } else { "second" });
                // The status has managers of its own.
                request.patch(name, &PatchParams { force: *force, ..params }, &Patch::Apply(object))
            }
            Call::Finalizer(_, is_set) => {
                let finalizers = if *is_set { json!(["acme.example/wait"]) } else { Value::Null };
                request.patch(name, &params, &Patch::Merge(json!({"metadata": {"finalizers": finalizers}})))
            }
            Call::Delete(_, version, uid) => {
                let text = |what, base| self.base(at, what, base).map(|value| value.as_str().unwrap().to_owned());
                let preconditions =
                    Some(Preconditions { resource_version: text("resourceVersion", *version), uid: text("uid", *uid) });
                request.delete(name, &DeleteParams { preconditions, ..DeleteParams::background() })
            }
            Call::List(..) | Call::Watch(..) => unreachable!("they concern no single object"),
        };
        built.unwrap()
    }

    fn operations(&self, at: At, content: &Content, test: Option<Test>) -> Value {
        let test = test.and_then(|test| match test {
            Test::Uid(base) => Some(("/metadata/uid", self.base(at, "uid", base)?)),
            Test::Version(base) => Some(("/metadata/resourceVersion", self.base(at, "resourceVersion", base)?)),
            Test::Missing => Some(("/metadata/annotations", Value::Null)),
            Test::WithoutParent => Some(("/metadata/annotations/a", Value::Null)),
        });
        let test = test.map(|(path, value)| json!({"op": "test", "path": path, "value": value}));
        let writes = fields(at.kind, content).into_iter().map(|([parent, name], field, value)| match field {
            Field::Removed => json!({"op": "remove", "path": format!("/{parent}/{name}")}),
            _ => json!({"op": "add", "path": format!("/{parent}/{name}"), "value": value}),
        });
        test.into_iter().chain(writes).collect()
    }

    /// Returns a version or a uid. `None`: the call names none.
    fn base(&self, at: At, what: &str, base: Base) -> Option<Value> {
        let place = (at.kind, at.name);
        let versions = self.versions.get(&place);
        let (first, last) = match what {
            "uid" => (self.uids.get(&place), self.uids.get(&place)),
            _ => (versions.and_then(|all| all.first()), versions.and_then(|all| all.last())),
        };
        match base {
            Base::Unnamed => None,
            Base::Wrong => Some(json!("1")),
            Base::First => first.cloned(),
            Base::Last => last.cloned(),
        }
    }

    fn name(&self, at: At, object: &mut Value, what: &str, base: Base) {
        if let Some(value) = self.base(at, what, base) {
            object["metadata"][what] = value;
        }
    }

    async fn list(&self, kind: usize, label: Option<bool>, limit: u32, is_metadata: bool) -> Vec<Value> {
        let mut params = ListParams { label_selector: label.map(selector), ..ListParams::default() };
        params.limit = (limit > 0).then_some(limit);
        let mut pages = Vec::new();
        loop {
            let request = self.request(kind);
            let request = if is_metadata { request.list_metadata(&params) } else { request.list(&params) };
            pages.push(self.send(request.unwrap()).await);
            let next = pages.last().and_then(|page| page["body"]["metadata"]["continue"].as_str());
            let Some(next) = next.filter(|next| !next.is_empty()) else { return pages };
            params.continue_token = Some(next.to_owned());
        }
    }

    /// Returns the events after a version, up to that of the fence.
    async fn events(&self, kind: usize, label: Option<bool>, is_metadata: bool, version: &str) -> Vec<Value> {
        let params = WatchParams { label_selector: label.map(selector), ..WatchParams::default() };
        let request = self.request(kind);
        let request = if is_metadata { request.watch_metadata(&params, version) } else { request.watch(&params, version) };
        let stream = pin!(self.client.request_stream(request.unwrap()).await.unwrap());
        let mut lines = stream.lines();
        let mut events = Vec::new();
        loop {
            let line = tokio::time::timeout(Duration::from_secs(20), lines.next()).await.expect("an event").expect("no end");
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let is_fence = event["object"]["metadata"]["name"] == "fence";
            events.extend((event["type"] != "BOOKMARK").then_some(event));
            if is_fence {
                return events;
            }
        }
    }

    async fn send(&self, request: http::Request<Vec<u8>>) -> Value {
        let response = self.client.send(request.map(Body::from)).await.unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect_bytes().await.unwrap();
        json!({"code": code, "body": serde_json::from_slice::<Value>(&body).unwrap_or_default()})
    }
}

/// Both selectors select the fence.
fn selector(is_true: bool) -> String {
    if is_true { "of=true".to_owned() } else { "of,of notin (false)".to_owned() }
}

fn bytes(object: &Value) -> Vec<u8> {
    object.to_string().into_bytes()
}

/// Removes what differs between two API servers.
fn strip(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Object(fields) => {
            let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
            if kind == "Status" {
                fields.remove("message");
            }
            if let Some(Value::Object(details)) = fields.get_mut("details") {
                details.retain(|name, _| ["name", "group", "kind"].contains(&name.as_str()));
            }
            if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
                strip_metadata(metadata, kind.ends_with("List"));
            }
            fields.values_mut().for_each(strip);
        }
        _ => {}
    }
}

fn strip_metadata(metadata: &mut Map<String, Value>, is_list: bool) {
    for field in ["managedFields", "creationTimestamp"] {
        metadata.remove(field);
    }
    // The version of a list can be that of an object of another test.
    if is_list {
        metadata.remove("resourceVersion");
    }
    for field in ["deletionTimestamp", "continue"] {
        if let Some(value) = metadata.get_mut(field).filter(|value| **value != "") {
            *value = json!("set");
        }
    }
}

/// Replaces versions by their order, and uids by the order in which they appear.
fn ranked(all: &mut [Value]) {
    fn each(value: &mut Value, act: &mut impl FnMut(&str, &mut Value)) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| each(item, act)),
            Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| {
                act(name, value);
                each(value, act);
            }),
            _ => {}
        }
    }
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<u64>().ok());
    let (mut versions, mut uids) = (BTreeMap::new(), HashMap::new());
    let mut note = |name: &str, value: &mut Value| match name {
        "resourceVersion" => versions.extend(number(value).map(|version| (version, 0))),
        "uid" => {
            let next = uids.len();
            *value = json!(*uids.entry(value.to_string()).or_insert(next));
        }
        _ => {}
    };
    for value in all.iter_mut() {
        each(value, &mut note);
    }
    (0..).zip(versions.values_mut()).for_each(|(rank, version)| *version = rank);
    let mut replace = |name: &str, value: &mut Value| {
        if name == "resourceVersion" {
            *value = json!(number(value).and_then(|version| versions.get(&version)));
        }
    };
    for value in all.iter_mut() {
        each(value, &mut replace);
    }
}

/// Returns a client of a new model.
fn model() -> Client {
    let kinds = relaybook_api::crds().iter().flat_map(kind::custom).chain(kind::builtin()).collect();
    Network::new(Server::new(kinds), relaybook_api::now, |_| Fate::Answered).client(0)
}

/// Returns what a call has led to: its name with the code of the answer, or the type of an event.
fn outcomes(call: Option<&Call>, answer: &Value) -> Vec<String> {
    let name = format!("{call:?}");
    let name = name.trim_start_matches("Some(").split('(').next().unwrap_or_default();
    let parts = answer.as_array().map_or_else(|| std::slice::from_ref(answer), Vec::as_slice);
    let outcome = |part: &Value| match part["type"].as_str() {
        Some(event) => event.to_owned(),
        None => format!("{name} {}", part["code"]),
    };
    parts.iter().map(outcome).collect()
}

#[test]
fn the_model_of_the_api_server_answers_as_the_real_one() {
    let kubeconfig = control_plane::shared();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let real = runtime.block_on(control_plane::client(kubeconfig));
    let config = Config { cases: HISTORIES, failure_persistence: None, max_shrink_iters: 300, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let (number, reached) = (Cell::new(0), RefCell::new(BTreeSet::new()));
    let result = runner.run(&prop::collection::vec(call(), 1..=CALLS), |calls| {
        number.set(number.get() + 1);
        let namespace = format!("model-{}", number.get());
        let (real, model) = runtime.block_on(async {
            (Side::new(real.clone(), &namespace).run(&calls).await, Side::new(model(), &namespace).run(&calls).await)
        });
        for (at, (real, model)) in real.iter().zip(&model).enumerate() {
            let call = calls.get(at);
            prop_assert!(real == model, "{call:?}\nthe real API server: {real:#}\nthe model: {model:#}");
            reached.borrow_mut().extend(outcomes(call, real));
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    // The histories are worth the comparison.
    let expected = [
        "ADDED",
        "MODIFIED",
        "DELETED",
        "Create 201",
        "Create 409",
        "Get 200",
        "Get 404",
        "List 200",
        "Merge 200",
        "Merge 404",
        "Merge 409",
        "Patch 200",
        "Patch 404",
        "Patch 422",
        "Replace 200",
        "Replace 201",
        "Replace 404",
        "Replace 409",
        "Replace 422",
        "Apply 200",
        "Apply 201",
        "Apply 409",
        "Finalizer 200",
        "Delete 200",
        "Delete 404",
        "Delete 409",
    ];
    let reached = reached.borrow();
    let missing: Vec<_> = expected.iter().filter(|outcome| !reached.contains(**outcome)).collect();
    assert!(missing.is_empty(), "{missing:?} of {reached:?}");
}
