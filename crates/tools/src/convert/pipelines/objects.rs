//! The objects of the input. Pure.
//!
//! In: files. Out: the objects of the kinds that are wanted ([`Object`]). Everything else is an item of the report: objects of other kinds, and what
//! must be rendered by Helm, Kustomize or Flux first.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::convert::Input;
use crate::convert::documents::{item, unreadable};
use crate::convert::ledger::{Ledger, leaves};
use crate::convert::report::{Item, List};
use relaybook_api::values::names::{is_label, is_subdomain};
use relaybook_settings::manifests::{Broken, Document};

/// An object of a kind that is wanted.
#[derive(Clone, Debug)]
pub(super) struct Object<'a> {
    /// The index of the file.
    pub(super) order: usize,
    file: &'a str,
    document: &'a Document,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Which objects are wanted.
pub(super) struct Wanted {
    /// The word after `relaybook convert`.
    pub(super) program: &'static str,
    /// The API versions and the kinds.
    pub(super) kinds: &'static [(&'static str, &'static str)],
    /// What became of an object of another kind: the list and the text. In: its group.
    pub(super) other: fn(&str) -> (List, &'static str),
}

impl<'a> Object<'a> {
    pub(super) fn kind(&self) -> &'a str {
        self.document.kind()
    }

    pub(super) fn value(&self) -> &'a Value {
        &self.document.value
    }

    /// Opens the fields. The type and the name count as converted, and what the API server or another tool writes is ignored.
    pub(super) fn open(&self) -> Ledger<'a> {
        let name = format!("{}/{}", self.namespace, self.name);
        let mut ledger = Ledger::new(self.file, self.document, name);
        ledger.put_each(List::Converted, ["apiVersion", "kind", "metadata.name", "metadata.namespace"], "read as it is");
        ledger.put(List::Ignored, "status", "written by the controller");
        ledger
    }
}

/// Sorts the documents of files. `namespace`: that of objects without one.
pub(super) fn sort<'a>(
    inputs: &'a [Input],
    documents: &'a [Vec<Result<Document, Broken>>],
    namespace: &str,
    wanted: &Wanted,
) -> (Vec<Object<'a>>, Vec<(usize, Item)>) {
    let groups: Vec<&str> = wanted.kinds.iter().filter_map(|(version, _)| version.split('/').next()).collect();
    let (mut objects, mut items, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (order, (input, documents)) in inputs.iter().zip(documents).enumerate() {
        for document in documents {
            let found = document.as_ref().map_err(|broken| unreadable(input, broken, &groups, wanted.program));
            let found = found.and_then(|document| object(order, input, document, namespace, wanted));
            match found {
                Ok(object) if names.insert((object.kind(), object.namespace.clone(), object.name.clone())) => {
                    objects.push(object);
                }
                Ok(object) => {
                    let text = format!("{}/{} is twice in the input; remove one", object.namespace, object.name);
                    items.push((order, item(input, object.document, List::Error, "metadata.name", text)));
                }
                Err(item) => items.push((order, item)),
            }
        }
    }
    (objects, items)
}

fn object<'a>(
    order: usize,
    input: &'a Input,
    document: &'a Document,
    default: &str,
    wanted: &Wanted,
) -> Result<Object<'a>, Item> {
    let is_wanted = |(version, kind): &(&str, &str)| (document.api_version(), document.kind()) == (*version, *kind);
    if !wanted.kinds.iter().any(is_wanted) {
        let group = document.api_version().split_once('/').map_or("", |(group, _)| group);
        let (list, text) = (wanted.other)(group);
        return Err(item(input, document, list, "", text));
    }
    let error = |field: &str, text: String| Err(item(input, document, List::Error, field, text));
    if let Some((field, remedy)) = template(&document.value) {
        return error(
            &field,
            format!("it is a template; render it first: `{remedy} | relaybook convert {} -`", wanted.program),
        );
    }
    let namespace = document.value.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or(default);
    if !is_subdomain(document.name()) {
        return error("metadata.name", "is not the name of an object".to_owned());
    }
    if !is_label(namespace) {
        return error("metadata.namespace", "is not the name of a namespace".to_owned());
    }
    let (namespace, name) = (namespace.to_owned(), document.name().to_owned());
    Ok(Object { order, file: &input.name, document, namespace, name })
}

/// Returns the first field of `spec.environments` or `metadata` that is a template, with the command that renders it. Steps of Kargo have expressions of
/// their own.
fn template(value: &Value) -> Option<(String, &'static str)> {
    let mut found = None;
    leaves(value, String::new(), &mut |field: String, value: &Value| {
        let text = value.as_str().unwrap_or_default();
        let is_name = ["metadata.name", "metadata.namespace", "spec.appRef", "spec.environments", "spec.promotion."];
        if found.is_some() || !is_name.iter().any(|begin| field.starts_with(begin)) {
            return;
        }
        if text.contains("{{") {
            found = Some((field, "helm template …"));
        } else if text.contains("${") {
            found = Some((field, "flux build kustomization NAME --path DIR"));
        }
    });
    found
}
