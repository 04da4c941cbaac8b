//! Stages of Kargo, by their names. Pure.
//!
//! In: files with Stages, and with the Applications of Argo CD that belong to them (annotation `kargo.akuity.io/authorized-stage`). Out: a Pipeline for each
//! project. Its environments are the Stages in the order in which Freight reaches them. It promotes nothing: Kargo does.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::objects::{Object, Wanted, sort};
use super::{MOST, conversion, manifest};
use crate::convert::ledger::Ledger;
use crate::convert::report::{Item, List};
use crate::convert::{Conversion, Input, Options};
use crate::init::Manifest;
use relaybook_settings::manifests::field::{below, entry};
use relaybook_settings::manifests::read;

const APPLICATION: (&str, &str) = ("argoproj.io/v1alpha1", "Application");
const WANTED: Wanted = Wanted {
    program: "kargo",
    kinds: &[("kargo.akuity.io/v1alpha1", "Stage"), APPLICATION],
    other: |group| match group {
        "kargo.akuity.io" => {
            (List::NoCounterpart, "Relaybook follows what Kargo deploys, and replaces no part of Kargo; keep it")
        }
        _ => (List::Ignored, "no Stage and no Application"),
    },
};
/// The annotation of an Application that names its Stage: `PROJECT:STAGE`
/// (<https://docs.kargo.io/user-guide/how-to-guides/argo-cd-integration>).
const AUTHORIZED: &str = "metadata.annotations[kargo.akuity.io/authorized-stage]";

/// A Stage.
struct Stage<'a> {
    object: &'a Object<'a>,
    ledger: Ledger<'a>,
    /// The Stages whose Freight it takes.
    before: BTreeSet<&'a str>,
    /// The Applications that it deploys, each with its namespace.
    applications: Vec<(&'a str, &'a str)>,
}

/// Converts files.
pub fn convert(inputs: &[Input], options: &Options) -> Conversion {
    let documents: Vec<_> = inputs.iter().map(|input| read(&input.text)).collect();
    let (objects, mut items) = sort(inputs, &documents, &options.namespace, &WANTED);
    let mut projects: BTreeMap<&str, BTreeMap<&str, Stage<'_>>> = BTreeMap::new();
    for object in objects.iter().filter(|object| object.kind() == "Stage") {
        projects.entry(&object.namespace).or_default().insert(&object.name, stage(object));
    }
    for object in objects.iter().filter(|object| object.kind() != "Stage") {
        let found = application(object, &mut projects);
        items.extend(found.into_iter().map(|item| (object.order, item)));
    }
    let mut manifests = Vec::new();
    for (project, mut stages) in projects {
        manifests.extend(pipeline(project, &mut stages));
        for stage in stages.into_values() {
            items.extend(stage.ledger.finish().into_iter().map(|item| (stage.object.order, item)));
        }
    }
    conversion(manifests, Vec::new(), items)
}

/// Reads a Stage.
fn stage<'a>(object: &'a Object<'a>) -> Stage<'a> {
    let mut ledger = object.open();
    ledger.put(List::Ignored, "metadata", "not copied");
    let mut before = BTreeSet::new();
    let number = ledger.get("spec.requestedFreight").and_then(Value::as_array).map_or(0, Vec::len);
    for at in 0..number {
        let sources = below(&entry("spec.requestedFreight", at), "sources");
        for (field, name) in ledger.texts(&below(&sources, "stages")) {
            before.insert(name);
            ledger.put(List::Converted, &field, "its environment comes before this one");
        }
        ledger.put(List::Converted, &below(&sources, "direct"), "the environment is one of the first");
        ledger.put(List::NoCounterpart, &entry("spec.requestedFreight", at), "Kargo decides which Freight a Stage gets");
    }
    for name in object.value()["spec"].as_object().into_iter().flat_map(Map::keys) {
        let text = "Kargo promotes and verifies; Relaybook reports what the Applications then run";
        ledger.put(List::NoCounterpart, &below("spec", name), text);
    }
    Stage { object, ledger, before, applications: Vec::new() }
}

/// Adds an Application to its Stage. Returns what became of it.
fn application<'a>(object: &'a Object<'a>, projects: &mut BTreeMap<&str, BTreeMap<&str, Stage<'a>>>) -> Vec<Item> {
    let mut ledger = object.open();
    let named = ledger.text(AUTHORIZED).and_then(|value| value.split_once(':'));
    let stage = named.and_then(|(project, stage)| projects.get_mut(project)?.get_mut(stage));
    match (stage, named) {
        (Some(stage), _) => {
            stage.applications.push((&object.namespace, &object.name));
            ledger.put(List::Converted, AUTHORIZED, "a target of this environment");
        }
        (None, Some(_)) => ledger.put(List::NoCounterpart, AUTHORIZED, "the input has no such Stage"),
        (None, None) => {}
    }
    for field in object.value().as_object().into_iter().flat_map(Map::keys) {
        ledger.put(List::Ignored, field, "not needed to follow the Application");
    }
    ledger.finish()
}

/// Returns the Pipeline of a project. Without Applications there is none.
fn pipeline(project: &str, stages: &mut BTreeMap<&str, Stage<'_>>) -> Option<Manifest> {
    let order = ordered(stages);
    let mut environments: Vec<Value> = Vec::new();
    let mut last: Option<String> = None;
    let first = order.iter().find_map(|name| stages.get(name.as_str())?.applications.first().copied())?.1.to_owned();
    for name in &order {
        let Some(stage) = stages.get_mut(name.as_str()) else { continue };
        if stage.applications.is_empty() {
            let text = "no Application of the input has the annotation kargo.akuity.io/authorized-stage with this Stage, so it is left out";
            stage.ledger.say(List::NoCounterpart, "spec", text);
            continue;
        }
        let follows = |last: &String| stage.before.len() == 1 && stage.before.contains(last.as_str());
        if last.as_ref().is_some_and(|last| !follows(last)) {
            let text = "environments are a list, so Stages beside each other are one after the other; the order is shown and promotes nothing";
            stage.ledger.say(List::Differs, "spec.requestedFreight", text);
        }
        let target = |(namespace, name): &(&str, &str)| {
            let mut target = json!({"namespace": namespace});
            if *name != first {
                target["appRef"] = json!({"name": name});
            }
            target
        };
        environments.push(json!({"name": name, "targets": stage.applications.iter().map(target).collect::<Vec<_>>()}));
        last = Some(name.clone());
    }
    if environments.len() > MOST {
        let stage = order.first().and_then(|name| stages.get_mut(name.as_str()))?;
        stage.ledger.error(
            "metadata.namespace",
            format!("the project has more than {MOST} Stages with Applications; convert fewer"),
        );
    }
    let (version, kind) = APPLICATION;
    let spec = json!({"appRef": {"apiVersion": version, "kind": kind, "name": first}, "environments": environments});
    Some(manifest(project, project, &Map::new(), &spec))
}

/// Returns the Stages so that each one comes after those whose Freight it takes. Those of a cycle come last, each with an error.
fn ordered(stages: &mut BTreeMap<&str, Stage<'_>>) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    let mut left: BTreeSet<String> = stages.keys().map(|name| (*name).to_owned()).collect();
    loop {
        let is_free = |name: &&String| {
            let before = stages.get(name.as_str()).into_iter().flat_map(|stage| &stage.before);
            !before.into_iter().any(|other| left.contains(*other))
        };
        let Some(next) = left.iter().find(is_free).cloned() else { break };
        left.remove(&next);
        order.push(next);
    }
    for name in &left {
        if let Some(stage) = stages.get_mut(name.as_str()) {
            stage.ledger.error(
                "spec.requestedFreight",
                "the Stages take Freight from each other in a circle; correct sources.stages",
            );
        }
    }
    order.extend(left);
    order
}
