//! Pipelines of Weave GitOps, and Stages of Kargo, as Pipelines of Relaybook. Pure.
//!
//! In: files. Out: a Pipeline for each pipeline of Weave GitOps, and for each project of Kargo. `objects` finds the objects of the input.
//! Promotions are written suspended, because two programs would promote at the same time.

mod kargo;
mod objects;
#[cfg(test)]
mod tests;
mod weave;

use serde_json::{Map, Value, json};

use super::Conversion;
use super::report::{Item, List, Report};
use crate::init::{Manifest, yaml};
pub use kargo::convert as kargo;
use relaybook_api::{GROUP, VERSION};
pub use weave::convert as weave;

/// Maximum number of environments of a Pipeline.
const MOST: usize = 32;

/// Returns the manifest of a Pipeline.
fn manifest(namespace: &str, name: &str, labels: &Map<String, Value>, spec: &Value) -> Manifest {
    let mut metadata = json!({"name": name, "namespace": namespace});
    if !labels.is_empty() {
        metadata["labels"] = json!(labels);
    }
    let environments = spec["environments"].as_array().into_iter().flatten();
    let names: Vec<&str> = environments.filter_map(|environment| environment["name"].as_str()).collect();
    let about = format!("Pipeline {namespace}/{name}: {}", names.join(" → "));
    let object = json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Pipeline", "metadata": metadata, "spec": spec});
    Manifest { file: format!("{namespace}.pipeline-{name}.yaml"), about, text: yaml(&object) }
}

/// Returns the conversion. With an error there are no manifests.
fn conversion(manifests: Vec<Manifest>, steps: Vec<String>, mut items: Vec<(usize, Item)>) -> Conversion {
    items.sort_by_key(|(order, item)| (*order, item.line));
    let report = Report { items: items.into_iter().map(|(_, item)| item).collect() };
    if report.has(List::Error) || manifests.is_empty() {
        return Conversion { report, ..Conversion::default() };
    }
    Conversion { manifests, steps, report }
}
