//! `Notification`: which transitions to report, to which endpoint, with which template.
//!
//! The schema carries no defaults: a default written by the API server could not be told from a user's own word once several
//! layers are merged. The defaults are in `crate::config`.

pub(super) mod builtin;
pub mod credentials;
pub(super) mod endpoint;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Time;
use super::conditions::Condition;
use super::values::transition::TransitionType;
pub use builtin::Builtin;
pub use endpoint::{Auth, BasicAuth, CaFrom, ClientCertificate, Endpoint, Method, Signing, Tls, TokenAuth, UrlFrom};

/// Tells one receiver of the transitions of every pipeline that it applies to.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "pennant.dev",
    version = "v1alpha1",
    kind = "Notification",
    namespaced,
    status = "NotificationStatus",
    shortname = "pnn",
    category = "pennant",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Delivering","type":"string","jsonPath":".status.conditions[?(@.type==\"Delivering\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.summary.reason"}"#,
    printcolumn = r#"{"name":"Pipelines","type":"integer","jsonPath":".status.pipelines"}"#,
    printcolumn = r#"{"name":"Pending","type":"integer","jsonPath":".status.pending"}"#,
    printcolumn = r#"{"name":"Parked","type":"integer","jsonPath":".status.parked"}"#,
    printcolumn = r#"{"name":"Last Sent","type":"date","jsonPath":".status.lastSentTime"}"#,
    printcolumn = r#"{"name":"Status","type":"string","priority":1,"jsonPath":".status.summary.message"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct NotificationSpec {
    /// `true`: transitions are recorded and held, nothing is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Labels of the pipelines that it applies to; absent: every Pipeline of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_selector: Option<LabelSelector>,
    /// Which transitions to report; an empty list is silence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub triggers: Option<Vec<Trigger>>,
    /// Where to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// What to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// How to retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryPolicy>,
}

/// What a pipeline, an environment or a target changes of one notification: a layer over those beneath it. What is not said here is
/// as it is there; objects are merged, lists and plain values replaced. A name that no layer beneath has is a notification of its
/// own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = without_rules)]
pub struct NotificationLayer {
    /// Name of the notification.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// What is taken away of the layers beneath, as JSON Pointers (RFC 6901) into them, such as `/endpoint/headers/X-Team`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), inner(length(min = 2, max = 512), regex(pattern = r"^/")))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub remove: Option<Vec<String>>,
    /// What it sets.
    #[serde(flatten)]
    pub settings: Settings,
}

/// What a layer may set of a notification.
// Most say one thing of many, and there are thousands of them: what is not said takes little room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = without_rules)]
pub struct Settings {
    /// `true`: transitions are recorded and held, nothing is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Which transitions to report; an empty list is silence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub triggers: Option<Vec<Trigger>>,
    /// Where to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Box<Endpoint>>,
    /// What to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Box<Template>>,
    /// How to retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Box<DeliveryPolicy>>,
}

/// Rules in lists of lists would be over the API server's budget for them; what they say, the controller says for layers.
fn without_rules(schema: &mut schemars::Schema) {
    schema.remove("x-kubernetes-validations");
    schemars::transform::transform_subschemas(&mut without_rules, schema);
}

/// One kind of transition that is reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    /// The type of transition.
    #[serde(rename = "type")]
    pub type_: TransitionType,
    /// Globs on the environment's name (`*`, `?`); absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9*?-]+$")))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub environments: Option<Vec<String>>,
    /// Globs on the cluster's name (`*`, `?`); absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9.*?-]+$")))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub clusters: Option<Vec<String>>,
    /// A CEL expression over the template's data that must be true; absent: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub when: Option<String>,
    /// For how long the state must have held, such as `2m`; absent: it is reported at once.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 32), regex(pattern = r"^([0-9]+(ms|s|m|h))+$"))]
    pub for_: Option<String>,
}

/// What the request's body is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "[has(self.builtin), has(self.inline), has(self.configMapKeyRef)].filter(set, set).size() <= 1",
     "message": "set only one of builtin, inline and configMapKeyRef"},
]))]
pub struct Template {
    /// A template that comes with Pennant. It also gives method, headers and, where the URL has no path, the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builtin: Option<Builtin>,
    /// A template written here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<InlineTemplate>,
    /// A template in a ConfigMap of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapTemplate>,
    /// Values that the template names as `parameters.NAME`; each is a template itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32, "x-kubernetes-map-type" = "atomic", "x-kubernetes-validations" = [
        {"rule": "self.all(k, k.matches('^[A-Za-z][A-Za-z0-9_]{0,62}$'))",
         "message": "names of parameters are letters, digits and underscores, beginning with a letter; at most 63"},
    ]), schema_with = "endpoint::texts")]
    pub parameters: Option<BTreeMap<String, String>>,
    /// Whether templates that layers of other namespaces write may name these parameters. Only the schema of the global
    /// configuration has it: nobody lies over a layer of a team from another namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub share_parameters: Option<bool>,
}

/// A template in a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapTemplate {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
    /// Key within its data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// Media type of the body, which also decides how values are escaped; default `application/json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 255), regex(pattern = r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+( *;[ -~]*)?$"))]
    pub content_type: Option<String>,
}

/// A template written into the Notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InlineTemplate {
    /// Media type of the body, which also decides how values are escaped; default `application/json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 255), regex(pattern = r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+( *;[ -~]*)?$"))]
    pub content_type: Option<String>,
    /// Handlebars; at most 64 KiB.
    #[schemars(length(max = 65536))]
    pub body: String,
}

/// How deliveries are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryPolicy {
    /// The lane, within which deliveries are sent in order: each target (the default), or the whole pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering: Option<Ordering>,
    /// When to try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// `true`: a newer delivery replaces older ones about the same subject that are not in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersede: Option<bool>,
    /// How fast it sends to each origin (scheme, host, port); absent: as fast as it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// How many settled deliveries are kept as the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain: Option<Retain>,
}

/// What is sent in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Ordering {
    /// What happens to one target.
    #[default]
    Target,
    /// What happens to the pipeline, whatever the target.
    Pipeline,
}

/// At most so many requests, for one notification and origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rate {
    /// Requests a second.
    #[schemars(range(min = 1, max = 1000))]
    pub per_second: u32,
    /// Requests at once after a rest; default `perSecond`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub burst: Option<u32>,
}

/// Which settled deliveries are kept. Parked ones are kept for `maxAge`, however many they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.maxAge) || self.maxAge.matches('^([0-9]+(ms|s|m|h))+$')", "message": "maxAge is a duration such as 24h or 168h"},
    {"rule": "!has(self.maxAge) || !self.maxAge.matches('^([0-9]+(ms|s|m|h))+$') || (duration(self.maxAge) >= duration('1m') && duration(self.maxAge) <= duration('8760h'))",
     "message": "maxAge must be from 1m to 8760h"},
]))]
pub struct Retain {
    /// Newest ones of each lane; default 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub per_lane: Option<u32>,
    /// From being settled; default 168h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub max_age: Option<String>,
}

/// Exponential from `initial` to `max`, until `maxAge` after recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "[self.?initial.orValue('5s'), self.?max.orValue('10m'), self.?maxAge.orValue('24h')].all(d, d.matches('^([0-9]+(ms|s|m|h))+$'))",
     "message": "initial, max and maxAge are durations such as 5s, 10m or 24h"},
    {"rule": "![self.?initial.orValue('5s'), self.?max.orValue('10m')].all(d, d.matches('^([0-9]+(ms|s|m|h))+$')) || (duration(self.?initial.orValue('5s')) >= duration('100ms') && duration(self.?max.orValue('10m')) <= duration('1h'))",
     "message": "initial must be at least 100ms and max at most 1h"},
    {"rule": "![self.?initial.orValue('5s'), self.?max.orValue('10m')].all(d, d.matches('^([0-9]+(ms|s|m|h))+$')) || duration(self.?initial.orValue('5s')) <= duration(self.?max.orValue('10m'))",
     "message": "initial (default 5s) must not be over max (default 10m)"},
    {"rule": "!has(self.maxAge) || !self.maxAge.matches('^([0-9]+(ms|s|m|h))+$') || (duration(self.maxAge) >= duration('1s') && duration(self.maxAge) <= duration('720h'))",
     "message": "maxAge must be from 1s to 720h"},
]))]
pub struct Retry {
    /// First gap; default 5s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub initial: Option<String>,
    /// Largest gap; default 10m, at most 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub max: Option<String>,
    /// Counted from recording; default 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub max_age: Option<String>,
}

/// What became of a notification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotificationStatus {
    /// The generation of the spec that this speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: valid, all references resolve, every pipeline's cursor is kept. `Delivering`: no delivery waits because of an error,
    /// and the last one was not parked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Reason and message of the condition that needs attention first; of `Ready` if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// The last 2xx.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_sent_time: Option<Time>,
    /// The last attempt, whatever came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_attempt_time: Option<Time>,
    /// The last attempt's error, without anything secret; absent after a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Pipelines that it applies to.
    #[serde(default)]
    pub pipelines: i64,
    /// Targets of those pipelines.
    #[serde(default)]
    pub targets: i64,
    /// Targets for which it cannot be sent as things are; which, and why, stands in `status.dispatched.notifications` of the
    /// pipelines.
    #[serde(default)]
    pub targets_not_ready: i64,
    /// Deliveries on their way.
    #[serde(default)]
    pub pending: i64,
    /// Deliveries kept with outcome Delivered.
    #[serde(default)]
    pub delivered: i64,
    /// Deliveries kept with outcome Parked.
    #[serde(default)]
    pub parked: i64,
    /// When a delivery was last parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_parked_time: Option<Time>,
    /// What was parked before this does not count for `Delivering`: a person has edited the spec, or a Secret or ConfigMap that it
    /// names, or has requested a redelivery. Written only when something had been parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_action_time: Option<Time>,
}

/// One condition in short, for tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
}
