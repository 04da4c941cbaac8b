//! `Notification`: which transitions to report, to which endpoint, with which template.
//!
//! The schema has no defaults. Otherwise, after several layers are merged, a default that the API server wrote could not be
//! distinguished from a value that a user set. The defaults are in `relaybook::config`.

pub(super) mod builtin;
pub mod credentials;
pub(super) mod endpoint;
pub(super) mod signing;
pub mod test_request;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Time;
use super::conditions::Condition;
use super::values::transition::TransitionType;
pub use builtin::Builtin;
pub use endpoint::{
    Auth, BasicAuth, CaFrom, ClientAccount, ClientAuthentication, ClientCertificate, Endpoint, GithubAppAuth, HeadersFrom,
    Method, OAuth2Auth, Thread, ThreadUpdate, Tls, TokenAuth, UrlFrom,
};
pub use signing::{Signing, SigningScheme};
pub use test_request::{LastTest, TEST, TestRequest, TestResult};

/// Reports to one receiver the transitions of every pipeline that it applies to.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "relaybook.dev",
    version = "v1alpha1",
    crates(kube_core = "kube_core"),
    kind = "Notification",
    namespaced,
    status = "NotificationStatus",
    shortname = "rbn",
    category = "relaybook",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Delivering","type":"string","jsonPath":".status.conditions[?(@.type==\"Delivering\")].status"}"#,
    printcolumn = r#"{"name":"Not Ready","type":"integer","jsonPath":".status.targetsNotReady"}"#,
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
    /// `true`: Relaybook records transitions as Deliveries, but does not send them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Labels of the Pipelines that the Notification applies to. If absent, it applies to every Pipeline of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_selector: Option<LabelSelector>,
    /// Other namespaces with Pipelines for which the Notification is also a layer: those whose `layerNamespace` is the namespace of this
    /// Notification. There it changes the notification of the same name, except its `delivery`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub pipeline_namespaces: Option<Vec<String>>,
    /// The transitions to report. An empty list reports nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub triggers: Option<Vec<Trigger>>,
    /// Where to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// What to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// How deliveries are ordered, retried, limited and retained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryPolicy>,
}

/// A layer: what a pipeline, an environment or a target changes in one notification. It overrides the layers below it. A field that
/// is not set here keeps its value from the layers below. Objects are merged; lists and plain values are replaced. If no layer
/// below has this name, the layer defines a notification of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = without_rules)]
pub struct NotificationLayer {
    /// Name of the notification.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Fields of the layers below to remove, as JSON Pointers (RFC 6901), such as `/endpoint/headers/X-Team`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), inner(length(min = 2, max = 512), regex(pattern = r"^/")))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub remove: Option<Vec<String>>,
    /// The fields that the layer sets.
    #[serde(flatten)]
    pub settings: Settings,
}

/// The fields of a notification that a layer can set.
// There are thousands of layers, and most set only one of many fields. Boxes keep the size of absent fields small.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = without_rules)]
pub struct Settings {
    /// `true`: Relaybook records transitions as Deliveries, but does not send them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The transitions to report. An empty list reports nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub triggers: Option<Vec<Trigger>>,
    /// Where to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Box<Endpoint>>,
    /// What to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Box<Template>>,
    /// How deliveries are ordered, retried, limited and retained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Box<DeliveryPolicy>>,
}

/// Removes the CEL rules. In nested lists, they would exceed the cost budget of the API server. The controller checks the same
/// rules for layers.
fn without_rules(schema: &mut schemars::Schema) {
    schema.remove("x-kubernetes-validations");
    schemars::transform::transform_subschemas(&mut without_rules, schema);
}

/// One type of transition to report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    /// The type of transition.
    #[serde(rename = "type")]
    pub type_: TransitionType,
    /// Globs for the name of the environment (`*`, `?`). If absent, all environments match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9*?-]+$")))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub environments: Option<Vec<String>>,
    /// Globs for the name of the cluster (`*`, `?`). If absent, all clusters match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9.*?-]+$")))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub clusters: Option<Vec<String>>,
    /// A CEL expression over the template data. The trigger matches only if it is true. If absent, the trigger always matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub when: Option<String>,
    /// How long the state must last before it is reported, such as `2m`. If absent, it is reported immediately.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 32), regex(pattern = r"^([0-9]+(ms|s|m|h))+$"))]
    pub for_: Option<String>,
}

/// The source of the request body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "[has(self.builtin), has(self.inline), has(self.configMapKeyRef)].filter(set, set).size() <= 1",
     "message": "set only one of builtin, inline and configMapKeyRef"},
]))]
pub struct Template {
    /// A built-in template of Relaybook. It also provides the method, the headers and, if the URL has no path, the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builtin: Option<Builtin>,
    /// An inline template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<InlineTemplate>,
    /// A template in a ConfigMap of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapTemplate>,
    /// Values that the template refers to as `parameters.NAME`. Each value is a template itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32, "x-kubernetes-map-type" = "atomic", "x-kubernetes-validations" = [
        {"rule": "self.all(k, k.matches('^[A-Za-z][A-Za-z0-9_]{0,62}$'))",
         "message": "parameter names consist of letters, digits and underscores, and begin with a letter; at most 63 characters"},
    ]), schema_with = "endpoint::texts")]
    pub parameters: Option<BTreeMap<String, String>>,
    /// Whether templates in layers of other namespaces can use these parameters. Only the schema of the global configuration has
    /// this field, because no layer from another namespace can override a layer of a team.
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
    /// Key in the data of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// Media type of the body. It also determines how values are escaped. Default `application/json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 255), regex(pattern = r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+( *;[ -~]*)?$"))]
    pub content_type: Option<String>,
}

/// A template whose text is in the resource itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InlineTemplate {
    /// Media type of the body. It also determines how values are escaped. Default `application/json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 255), regex(pattern = r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+( *;[ -~]*)?$"))]
    pub content_type: Option<String>,
    /// Handlebars template, at most 64 KiB.
    #[schemars(length(max = 65536))]
    pub body: String,
}

/// How deliveries are ordered, retried, limited and retained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryPolicy {
    /// Scope of a lane, in which deliveries are sent in order: one target (the default), or the whole pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering: Option<Ordering>,
    /// Delays of retries, and how long to retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// `true`: a newer delivery replaces older deliveries about the same subject that are not in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersede: Option<bool>,
    /// Maximum request rate to each origin (scheme, host, port). If absent, the rate is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Which settled deliveries are kept for the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain: Option<Retain>,
}

/// Scope of a lane. The deliveries of a lane are sent in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Ordering {
    /// One lane for each target.
    #[default]
    Target,
    /// One lane for the pipeline with all its targets.
    Pipeline,
}

/// Maximum number of requests of one notification to one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rate {
    /// Requests per second.
    #[schemars(range(min = 1, max = 1000))]
    pub per_second: u32,
    /// Number of requests that can be sent without delay after a pause. Default `perSecond`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub burst: Option<u32>,
}

/// Which settled deliveries are kept. Parked deliveries are kept for `maxAge`, regardless of their number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.maxAge) || self.maxAge.matches('^([0-9]+(ms|s|m|h))+$')", "message": "maxAge is a duration such as 24h or 168h"},
    {"rule": "!has(self.maxAge) || !self.maxAge.matches('^([0-9]+(ms|s|m|h))+$') || (duration(self.maxAge) >= duration('1m') && duration(self.maxAge) <= duration('8760h'))",
     "message": "maxAge must be from 1m to 8760h"},
]))]
pub struct Retain {
    /// How many of the newest deliveries are kept in each lane. Default 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub per_lane: Option<u32>,
    /// Maximum time that deliveries are kept, counted from the time they were settled. Default 168h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub max_age: Option<String>,
}

/// The delay between attempts grows exponentially from `initial` to `max`. Retries end when `maxAge` has passed since the delivery was
/// recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "[self.?initial.orValue('5s'), self.?max.orValue('10m'), self.?maxAge.orValue('24h')].all(d, d.matches('^([0-9]+(ms|s|m|h))+$'))",
     "message": "initial, max and maxAge are durations such as 5s, 10m or 24h"},
    {"rule": "![self.?initial.orValue('5s'), self.?max.orValue('10m')].all(d, d.matches('^([0-9]+(ms|s|m|h))+$')) || (duration(self.?initial.orValue('5s')) >= duration('100ms') && duration(self.?max.orValue('10m')) <= duration('1h'))",
     "message": "initial must be at least 100ms and max at most 1h"},
    {"rule": "![self.?initial.orValue('5s'), self.?max.orValue('10m')].all(d, d.matches('^([0-9]+(ms|s|m|h))+$')) || duration(self.?initial.orValue('5s')) <= duration(self.?max.orValue('10m'))",
     "message": "initial (default 5s) must not be greater than max (default 10m)"},
    {"rule": "!has(self.maxAge) || !self.maxAge.matches('^([0-9]+(ms|s|m|h))+$') || (duration(self.maxAge) >= duration('1s') && duration(self.maxAge) <= duration('720h'))",
     "message": "maxAge must be from 1s to 720h"},
]))]
pub struct Retry {
    /// First delay. Default 5s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub initial: Option<String>,
    /// Largest delay. Default 10m, at most 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub max: Option<String>,
    /// How long to retry, counted from the time the delivery was recorded. Default 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub max_age: Option<String>,
}

/// The state of a Notification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotificationStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: the Notification is valid, all references resolve, and the cursor of every pipeline is stored. `Delivering`: no
    /// delivery waits because of an error, and the last delivery was not parked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Reason and message of the condition that needs attention first. If no condition needs attention, those of `Ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// When a receiver last answered 2xx.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_sent_time: Option<Time>,
    /// When the last attempt was made, regardless of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_attempt_time: Option<Time>,
    /// The error of the last attempt, without secrets. Absent after a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Number of pipelines that the Notification applies to.
    #[serde(default)]
    pub pipelines: i64,
    /// Number of targets of those pipelines.
    #[serde(default)]
    pub targets: i64,
    /// Number of targets for which the Notification cannot be sent at present. `status.dispatched.notifications` of the pipelines
    /// lists the targets and the reasons.
    #[serde(default)]
    pub targets_not_ready: i64,
    /// Number of pending deliveries.
    #[serde(default)]
    pub pending: i64,
    /// Number of retained deliveries with outcome Delivered.
    #[serde(default)]
    pub delivered: i64,
    /// Number of retained deliveries with outcome Parked.
    #[serde(default)]
    pub parked: i64,
    /// When a delivery was last parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_parked_time: Option<Time>,
    /// When a user last edited the spec, or a Secret or ConfigMap that it refers to, or last requested a redelivery. Deliveries that
    /// were parked earlier do not count for `Delivering`. Written only if a delivery was parked before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_action_time: Option<Time>,
    /// The last test, which a user requests with the annotation `relaybook.dev/test`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_test: Option<LastTest>,
}

/// One condition in short form, for table columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
}
