//! Properties of layers: what comes of any of them, and where their references lead.
//!
//! Here are any layers, written by whoever may write one: a platform team in its namespace, a team in another.

mod hidden;
mod places;
mod same;

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::strategy::Union;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::{Map, Value, json};

use super::layers::{Layer, Source};
use super::{Given, Text};
use crate::api::notification::NotificationLayer;
use crate::api::values::refs::ConfigMapKey;

/// Of the global configuration.
const PLATFORM: &str = "pennant-system";
/// Of the pipeline, and of the Notification beneath it.
const TEAM: &str = "team-a";

/// Everybody who can write a layer, the least specific first.
fn sources() -> Vec<Source> {
    let (environment, target) = (Source::Environment("prod".to_owned()), Source::Target("prod/c/x".to_owned()));
    vec![Source::Defaults, Source::Global, Source::Notification, Source::Pipeline, environment, target]
}

fn is_platform(source: &Source) -> bool {
    *source < Source::Notification
}

/// Where a layer stands.
fn namespace(source: &Source) -> &'static str {
    if is_platform(source) { PLATFORM } else { TEAM }
}

/// Any layers of some of them; what each says is made by `says`, of its author and what fields it has.
fn any_layers(says: fn(&Source) -> BoxedStrategy<Value>) -> impl Strategy<Value = Vec<(Source, Value)>> {
    subsequence(sources(), 1..=4).prop_flat_map(move |sources| {
        let layers: Vec<_> = sources.into_iter().map(|source| (Just(source.clone()), says(&source))).collect();
        layers
    })
}

/// Tries something with so many values. What was tried is counted by those who call it, for a property of nothing always holds.
fn try_all<S: Strategy>(cases: u32, of: &S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    if let Err(failure) = TestRunner::new(config).run(of, property) {
        panic!("{failure}");
    }
}

/// A layer as the API server or the parser would let it through: with the fields and types that it has, and no others.
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

/// The certificate of an authority, as far as anybody looks.
const PEM: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

/// Every ConfigMap holds what says which it is: certificates under `ca`, else a template.
fn text(key: &ConfigMapKey) -> Text {
    let text = if key.key == "ca" { format!("{PEM}{key}") } else { format!(r#"{{"from": "{key}"}}"#) };
    Text::Found(Arc::from(text))
}

fn given() -> Given<'static> {
    Given { allow_http: true, text: &text }
}
