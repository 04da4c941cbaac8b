//! Property tests of layers: their results, and where their references resolve.
//!
//! The tests generate any layers that a platform team, a team and the team of its layer namespace can write, each in its namespace.

mod equivalence;
mod hidden;
mod places;

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::strategy::Union;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::{Map, Value, json};

use super::layers::{Layer, Source};
use super::{Given, Text};
use relaybook_api::notification::NotificationLayer;
use relaybook_api::values::refs::ConfigMapKey;

/// The namespace of the global configuration.
const PLATFORM: &str = "relaybook-system";
/// The namespace of the pipeline and of the Notification below it.
const TEAM: &str = "team-a";
/// The layer namespace of the pipeline.
const WORKSPACE: &str = "workspace";

/// All sources of layers that people write, least specific first.
fn sources() -> Vec<Source> {
    let (environment, target) = (Source::Environment("prod".to_owned()), Source::Target("prod/c/x".to_owned()));
    let workspace = Source::LayerNamespace("workspace/deploys".to_owned());
    vec![Source::Defaults, Source::Global, Source::Notification, workspace, Source::Pipeline, environment, target]
}

fn is_platform(source: &Source) -> bool {
    *source < Source::Notification
}

/// The namespace of a layer.
fn namespace(source: &Source) -> &'static str {
    match source {
        Source::LayerNamespace(_) => WORKSPACE,
        source if is_platform(source) => PLATFORM,
        _ => TEAM,
    }
}

/// Layers from one to four of the sources. `says` generates the fields of a layer from its source.
fn any_layers(says: fn(&Source) -> BoxedStrategy<Value>) -> impl Strategy<Value = Vec<(Source, Value)>> {
    subsequence(sources(), 1..=4).prop_flat_map(move |sources| {
        let layers: Vec<_> = sources.into_iter().map(|source| (Just(source.clone()), says(&source))).collect();
        layers
    })
}

/// Tests a property with this number of values. The caller counts the tested cases, because a property without a case always passes.
fn try_all<S: Strategy>(cases: u32, of: &S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    if let Err(failure) = TestRunner::new(config).run(of, property) {
        panic!("{failure}");
    }
}

/// A layer as the API server or the parser would accept it: only with fields and types of the schema.
fn written(source: &Source, namespace: &str, value: &Value) -> Layer {
    let mut value = value.clone();
    value["name"] = json!("deploys");
    let layer: NotificationLayer = serde_json::from_value(value).expect("a layer");
    Layer::of(source.clone(), namespace, &layer)
}

/// An object with any of these fields.
fn some(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let all = fields.len();
    subsequence(fields, 0..=all)
        .prop_flat_map(|fields| fields.into_iter().map(|(name, value)| (Just(name.to_owned()), value)).collect::<Vec<_>>())
        .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>()))
        .boxed()
}

/// One of these.
fn one_of(values: impl IntoIterator<Item = Value>) -> BoxedStrategy<Value> {
    Union::new(values.into_iter().map(Just)).boxed()
}

/// An object with one field.
fn only(name: &'static str, value: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    value.prop_map(move |value| json!({ name: value })).boxed()
}

/// A CA certificate, as far as the tested code checks it.
const PEM: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

/// Each ConfigMap key contains text that names this key: certificates under `ca`, otherwise a template.
fn text(key: &ConfigMapKey) -> Text {
    let text = if key.key == "ca" { format!("{PEM}{key}") } else { format!(r#"{{"from": "{key}"}}"#) };
    Text::Found(Arc::from(text))
}

fn given() -> Given<'static> {
    Given { allow_http: true, text: &text }
}
