//! The kustomize bases render the same objects as the chart.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::render;
use crate::support::chart::{answer, documents, run};
use crate::support::control_plane::kubectl;

/// Returns objects by kind, namespace and name, without the labels and annotations that only Helm uses.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let named = objects.into_iter().map(|mut object| {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or("-").to_owned();
        let name = ["/kind", "/metadata/namespace", "/metadata/name"].map(text).join(" ");
        if object["kind"] == "CustomResourceDefinition" {
            // The CRDs of the bases are the repository's own files.
            for of_helm in ["labels", "annotations"] {
                object["metadata"].as_object_mut().expect("a map").remove(of_helm);
            }
        }
        for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
            if let Some(labels) = object.pointer_mut(labels).and_then(Value::as_object_mut) {
                labels.remove("helm.sh/chart");
                labels.remove("app.kubernetes.io/managed-by");
            }
        }
        plain(&mut object);
        (name, object)
    });
    named.collect()
}

/// Converts all numbers to floats, because the same number can be written in different ways.
fn plain(value: &mut Value) {
    match value {
        Value::Number(number) => *value = Value::from(number.as_f64()),
        Value::Array(all) => all.iter_mut().for_each(plain),
        Value::Object(all) => all.values_mut().for_each(plain),
        _ => {}
    }
}

fn kustomized(folder: &str) -> BTreeMap<String, Value> {
    let text = answer(run(&kubectl(), &["kustomize", folder], "")).unwrap_or_else(|why| panic!("{folder}: {why}"));
    by_name(documents(&text))
}

fn compare(folder: &str, values: &Value) {
    let mut base = kustomized(folder);
    let namespace = base.remove("Namespace - relaybook-system").expect("the namespace");
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    let chart = by_name(render("relaybook", "relaybook-system", values).objects);
    assert_eq!(base.keys().collect::<Vec<_>>(), chart.keys().collect::<Vec<_>>(), "{folder}");
    for (name, object) in chart {
        assert_eq!(base[&name], object, "{folder}: {name}");
    }
}

/// An image that cannot be pulled, because no image is published yet. Its name gives the reason.
fn image() -> Value {
    json!({"repository": "image-repository-not-set.invalid/relaybook"})
}

#[test]
fn the_base_is_the_chart_with_its_default_values() {
    compare("deploy/kustomize/base", &json!({"image": image()}));
}

#[test]
fn the_namespaced_overlay_is_the_chart_with_one_watched_namespace() {
    compare("deploy/kustomize/overlays/namespaced", &json!({"image": image(), "watchNamespaces": ["team-a"]}));
}

#[test]
fn the_crds_are_those_of_the_program() {
    let ours = by_name(relaybook_api::crds().iter().map(|crd| serde_json::to_value(crd).expect("JSON")).collect());
    assert_eq!(kustomized("deploy/kustomize/crds"), ours);
    let chart =
        by_name(render("relaybook", "relaybook-system", &json!({})).of("CustomResourceDefinition").cloned().collect());
    assert_eq!(chart, ours);
}
