//! Resolves each example of the documentation as the dispatcher does, and compares the result with the table below the example.

use std::collections::BTreeSet;

use kube_core::ResourceExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config::layers::of_target;
use crate::config::{Address, EffectiveNotification, Given, Global, resolve_layers};
use crate::manifests::{global, layers_below, read};
use crate::render::Data;
use relaybook_api::delivery::GLOBAL;
use relaybook_api::pipeline::target::targets;
use relaybook_api::{Notification, Pipeline, TransitionType};

/// The pages about configuration. Each example in YAML has a table below it.
const PAGES: [&str; 4] = [
    include_str!("../../../../../docs/configuration.md"),
    include_str!("../../../../../docs/triggers.md"),
    include_str!("../../../../../docs/credentials.md"),
    include_str!("../../../../../docs/configuration-examples.md"),
];
const COLUMNS: &str = "| pipeline | target | notification | result | stored in | Secrets |";

/// The objects of one example.
#[derive(Default)]
struct Example {
    global: Global,
    notifications: Vec<Notification>,
    pipelines: Vec<Pipeline>,
}

fn typed<T: DeserializeOwned>(value: &Value) -> T {
    serde_path_to_error::deserialize(value).unwrap_or_else(|e| panic!("{e}\n{value}"))
}

impl Example {
    fn read(text: &str) -> Self {
        let mut example = Self::default();
        for document in read(text) {
            let document = document.unwrap_or_else(|broken| panic!("{}\n{text}", broken.problem));
            match document.kind() {
                "ConfigMap" => {
                    let [namespace, text] = ["/metadata/namespace", "/data/config.yaml"]
                        .map(|at| document.value.pointer(at).and_then(Value::as_str).unwrap());
                    let understood = global::parse(text, namespace);
                    example.global = understood.unwrap_or_else(|wrongs| panic!("{wrongs:?}\n{text}"));
                }
                "Notification" => example.notifications.push(typed(&document.value)),
                "Pipeline" => example.pipelines.push(typed(&document.value)),
                other => panic!("kind {other:?} in an example:\n{text}"),
            }
        }
        example
    }

    /// Returns the effective notification of a target.
    fn effective(&self, pipeline: &str, target: &str, name: &str) -> EffectiveNotification {
        let (namespace, of) = pipeline.split_once('/').unwrap();
        let is_it = |p: &&Pipeline| p.name_any() == of && p.namespace().as_deref() == Some(namespace);
        let pipeline = self.pipelines.iter().find(is_it).unwrap_or_else(|| panic!("no pipeline {pipeline}"));
        let mut layers = layers_below(&self.global, pipeline, name, &self.notifications).unwrap();
        let all = targets(&pipeline.spec, "in-cluster");
        let info = all.iter().find(|info| info.name == target).unwrap_or_else(|| panic!("no target {target}"));
        layers.extend(of_target(&pipeline.spec, namespace, name, info));
        resolve_layers(&layers, namespace, GLOBAL, &Given::nothing())
    }
}

fn comes_of(effective: &EffectiveNotification) -> String {
    let sending = match &effective.sending {
        Err(problem) => return problem.reason().as_str().to_owned(),
        Ok(sending) => sending,
    };
    let wants = |type_: &TransitionType| {
        let intake = effective.intake.as_ref().unwrap();
        ["dev", "prod"].iter().any(|environment| intake.triggers.wants(*type_, environment))
    };
    let Some(type_) = TransitionType::ALL.into_iter().find(wants) else { return "nothing is sent".to_owned() };
    match sending.render(&Data::sample(type_)).unwrap().address {
        Address::Url(url) => url.to_string(),
        Address::Secret(key) => format!("the URL in {}", key.secret()),
    }
}

fn secrets(effective: &EffectiveNotification) -> String {
    let needed = effective.sending.as_ref().map(crate::config::Sending::secrets).unwrap_or_default();
    let names: BTreeSet<_> = needed.iter().filter_map(|needed| Some(needed.secret()?.to_string())).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

#[test]
fn the_examples_of_the_documentation_have_the_results_of_their_tables() {
    let mut examples = 0;
    for rest in PAGES.iter().flat_map(|page| page.split("\n```yaml\n").skip(1)) {
        let (text, below) = rest.split_once("\n```\n").unwrap();
        let example = Example::read(text);
        let table = below.trim_start().strip_prefix(COLUMNS).unwrap_or_else(|| panic!("no table below\n{text}"));
        let rows: Vec<_> = table.trim_start().lines().skip(1).take_while(|line| line.starts_with('|')).collect();
        assert!(!rows.is_empty(), "an empty table below\n{text}");
        for row in rows {
            let cells: Vec<_> = row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
            let [pipeline, target, name, comes, kept, needs] = cells.as_slice() else { panic!("{row}") };
            let effective = example.effective(pipeline, target, name);
            let found = [comes_of(&effective), effective.home.clone(), secrets(&effective)];
            assert_eq!(found.each_ref(), [comes, kept, needs], "{row}\n{:?}", effective.sending.err());
        }
        examples += 1;
    }
    assert!(examples >= 7, "{examples} were found");
}
