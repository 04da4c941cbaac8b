//! The objects of the input. Pure.
//!
//! In: files. Out: configurations, Applications and `AppProjects`, and the names of the keys of the Secret ([`Documents`]). Everything else is an
//! item of the report.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::services::SECRET;
use super::subscriptions::PREFIX;
use crate::convert::Input;
use crate::convert::documents::{item, unreadable};
use crate::convert::report::{Item, List};
use relaybook_api::values::names::is_label;
use relaybook_settings::manifests::field::below;
use relaybook_settings::manifests::{Broken, Document, read};

/// The ConfigMap with the configuration.
const CONFIG_MAP: &str = "argocd-notifications-cm";
/// What files with objects contain.
const MENTIONS: [&str; 2] = ["argocd-notifications", "notifications.argoproj.io"];
/// The fields of the operator's `NotificationsConfiguration`.
const OF_OPERATOR: [&str; 4] = ["spec.services", "spec.triggers", "spec.templates", "spec.subscriptions"];

/// An object of the input.
#[derive(Clone, Debug)]
pub(super) struct Object<'a> {
    /// The index of the file.
    pub(super) order: usize,
    pub(super) input: &'a Input,
    pub(super) document: &'a Document,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The objects of all files.
#[derive(Debug, Default)]
pub(super) struct Documents<'a> {
    pub(super) configs: Vec<Object<'a>>,
    /// Applications and `AppProjects` with subscriptions.
    pub(super) subscribers: Vec<Object<'a>>,
    /// The names of the keys of Secrets, by namespace.
    pub(super) secrets: BTreeMap<String, BTreeSet<String>>,
    /// Items about other objects, each with the index of its file.
    pub(super) items: Vec<(usize, Item)>,
}

/// Sorts the documents of files.
pub(super) fn sort<'a>(
    inputs: &'a [Input],
    documents: &'a [Vec<Result<Document, Broken>>],
    namespace: &str,
) -> Documents<'a> {
    let mut all = Documents::default();
    for (order, (input, documents)) in inputs.iter().zip(documents).enumerate() {
        for document in documents {
            match document {
                Ok(document) => all.add(order, input, document, namespace),
                Err(broken) => all.items.push((order, unreadable(input, broken, &MENTIONS, "argocd"))),
            }
        }
    }
    all
}

impl<'a> Documents<'a> {
    fn add(&mut self, order: usize, input: &'a Input, document: &'a Document, default: &str) {
        let group = document.api_version().split_once('/').map_or("", |(group, _)| group);
        let namespace = document.value.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or(default);
        let name = document.name();
        let object = || Object { order, input, document, namespace: namespace.to_owned(), name: name.to_owned() };
        let is_config = match (group, document.kind()) {
            ("", "ConfigMap") => name == CONFIG_MAP,
            ("argoproj.io", "NotificationsConfiguration") => true,
            _ => false,
        };
        let is_subscriber =
            group == "argoproj.io" && ["Application", "AppProject"].contains(&document.kind()) && subscribes(document);
        let (list, text) = if (is_config || is_subscriber) && !is_label(namespace) {
            (List::Error, "is not in a namespace with a valid name")
        } else if is_config && self.configs.iter().any(|other| other.namespace == namespace) {
            (List::Error, "the namespace has another configuration in the input; remove one")
        } else if is_config {
            return self.configs.push(object());
        } else if is_subscriber {
            return self.subscribers.push(object());
        } else if (group, document.kind(), name) == ("", "Secret", SECRET) {
            let maps = ["data", "stringData"].into_iter().filter_map(|field| document.value.get(field)?.as_object());
            let keys: BTreeSet<String> = maps.flat_map(Map::keys).cloned().collect();
            // Another program can fill a Secret without keys.
            if !keys.is_empty() {
                self.secrets.entry(namespace.to_owned()).or_default().extend(keys);
            }
            (List::Ignored, "referred to as it is; only the names of its keys are read")
        } else {
            (List::Ignored, "it has no configuration and no subscription of Argo CD Notifications")
        };
        self.items.push((order, item(input, document, list, "", text)));
    }
}

/// Whether an object has a subscription.
fn subscribes(document: &Document) -> bool {
    let annotations = document.value.pointer("/metadata/annotations").and_then(Value::as_object);
    annotations.into_iter().flat_map(Map::keys).any(|name| is_subscription(name))
}

/// Whether an annotation is a subscription, in any form.
pub(super) fn is_subscription(name: &str) -> bool {
    name.starts_with(PREFIX)
        || name.starts_with("notifications.argoproj.io/subscriptions")
        || name.starts_with("notifications.argoproj.io/subscribe_yaml")
        || name.ends_with("recipients.argocd-notifications.argoproj.io")
}

/// A text of a configuration, which is YAML itself.
#[derive(Debug)]
pub(super) struct Inner {
    /// The field of the object.
    pub(super) field: String,
    /// The key, such as `trigger.on-deployed`.
    pub(super) key: String,
    pub(super) document: Document,
    text: String,
    /// The line of the key, and that of the first line of the text if the text is a block.
    line: u64,
    first: Option<u64>,
}

impl Inner {
    /// Returns the line in the file for a line of the text. `more`: the number of lines below it, if a block begins there.
    pub(super) fn line(&self, line: u64, more: Option<usize>) -> u64 {
        let Some(first) = self.first else { return self.line };
        let more = more.filter(|_| block(&self.text, line).is_some());
        first + line.saturating_sub(1) + more.map_or(0, |more| more as u64 + 1)
    }
}

/// Returns the line after this one, if a block of text begins at its end.
fn block(text: &str, line: u64) -> Option<u64> {
    let at = usize::try_from(line).ok()?.checked_sub(1)?;
    let of = text.lines().nth(at)?;
    let of = of.split(" #").next().unwrap_or_default().trim_end();
    let end = of.rsplit([' ', ':']).next().unwrap_or_default();
    ["|", "|-", "|+", ">", ">-", ">+"].contains(&end).then_some(line + 1)
}

/// Reads the texts of a configuration. The errors have a field each.
pub(super) fn inner(object: &Object<'_>) -> (Vec<Inner>, Vec<(String, String)>) {
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    let maps: &[&str] = if object.document.kind() == "ConfigMap" { &["data"] } else { &OF_OPERATOR };
    for map in maps {
        let pointer = format!("/{}", map.replace('.', "/"));
        let entries = object.document.value.pointer(&pointer).and_then(Value::as_object);
        for (key, text) in entries.into_iter().flatten() {
            let field = below(map, key);
            let Some(text) = text.as_str() else {
                wrong.push((field, "is not a text".to_owned()));
                continue;
            };
            let mut documents = read(text);
            match (documents.pop(), documents.is_empty()) {
                (None, _) => {}
                (Some(Ok(document)), true) => {
                    let line = object.document.line(&field);
                    let first = block(&object.input.text, line);
                    all.push(Inner { field, key: key.clone(), document, text: text.to_owned(), line, first });
                }
                (Some(Err(broken)), true) => {
                    // The message of the parser could quote a credential.
                    let problem = if key.starts_with("service.") { "" } else { broken.problem.as_str() };
                    wrong.push((field, format!("not YAML, in its line {}: {problem}", broken.place.line)));
                }
                (Some(_), false) => wrong.push((field, "has several documents".to_owned())),
            }
        }
    }
    (all, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_inner_texts_are_lines_of_the_file() {
        let text = "kind: ConfigMap\nmetadata: {name: argocd-notifications-cm}\ndata:\n  a: |   # b\n    x: 1\n    y: |\n      one\n      two\n  \
             b: 'z: 1'\n";
        let input = Input { name: "in.yaml".to_owned(), text: text.to_owned(), is_found: false };
        let inputs = [input];
        let documents = [read(text)];
        let sorted = sort(&inputs, &documents, "argocd");
        let (all, wrong) = inner(&sorted.configs[0]);
        assert!(wrong.is_empty() && all.len() == 2, "{wrong:?}");
        let a = &all[0];
        assert_eq!([a.line(1, None), a.line(2, None), a.line(2, Some(1)), a.line(1, Some(1))], [5, 6, 8, 5]);
        assert_eq!(all[1].line(1, None), 9);
    }
}
