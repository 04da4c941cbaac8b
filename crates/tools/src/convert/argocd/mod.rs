//! The configuration of Argo CD Notifications. Pure.
//!
//! In: files with `argocd-notifications-cm` or the operator's `NotificationsConfiguration`, and with Applications and `AppProjects` that subscribe. Out: for
//! each configuration a `PipelineSet` of Applications, and a Notification for each service, recipient and set of templates.
//!
//! `documents` finds the objects and the texts in them, which are YAML themselves. `subscriptions` says who gets what, `expr` and `trigger` read the
//! conditions, `services` the endpoints, `gotemplate` the templates. `message` and `notification` put them together.

mod accepted;
mod config;
mod documents;
mod expr;
mod gotemplate;
mod message;
mod notification;
mod services;
mod subscriptions;
#[cfg(test)]
mod tests;
mod trigger;

use std::collections::BTreeMap;

use serde_json::Value;

use super::ledger::Ledger;
use super::report::{Item, List, Report};
use super::{Conversion, Input, Options};
use config::{Config, Subscriber};
use documents::{Object, inner, is_subscription, sort};
use relaybook_api::values::names::hash;
use relaybook_settings::manifests::field::{below, entry};
use relaybook_settings::manifests::read;

/// Namespaces of Argo CD. Their configuration applies to all Applications.
const CENTRAL: [&str; 2] = ["argocd", "openshift-gitops"];

/// What became of fields of inner documents: index and field, with the list and the number of lines below the field. If a field is used several
/// times, the worst counts.
#[derive(Debug, Default)]
struct Notes(BTreeMap<(usize, String), (List, String, Option<usize>)>);

impl Notes {
    fn add(&mut self, (at, field): (usize, &str), (list, text): (List, String), line: Option<usize>) {
        let key = (at, field.to_owned());
        if self.0.get(&key).is_none_or(|(before, ..)| *before < list) {
            self.0.insert(key, (list, text, line));
        }
    }
}

/// Converts files.
pub fn convert(inputs: &[Input], options: &Options) -> Conversion {
    let documents: Vec<_> = inputs.iter().map(|input| read(&input.text)).collect();
    let mut sorted = sort(inputs, &documents, &options.namespace);
    let mut items = std::mem::take(&mut sorted.items);
    let central = central(&sorted.configs);
    let all: Vec<_> = sorted.configs.iter().map(inner).collect();
    let mut subscribers: Vec<Subscriber<'_>> = sorted.subscribers.iter().map(subscriber).collect();
    let mut conversion = Conversion::default();
    for (at, (object, (texts, wrong))) in sorted.configs.iter().zip(&all).enumerate() {
        let mut outer = opened(object);
        for (field, text) in wrong {
            outer.error(field, text.as_str());
        }
        for one in texts {
            outer.take(&one.field);
        }
        let keys = sorted.secrets.get(&object.namespace);
        let mut config = Config::new(object, texts, keys, &mut outer);
        config.convert(&mut subscribers, central == Some(at), options, &mut conversion);
        items.extend(config.finish().into_iter().map(|item| (object.order, item)));
        outer.put(List::Ignored, "metadata", "labels, annotations, and what the API server sets, are not copied");
        put_rest(&mut outer, List::Ignored, "it is not a part of the configuration of notifications");
        items.extend(outer.finish().into_iter().map(|item| (object.order, item)));
    }
    for subscriber in subscribers {
        let order = subscriber.object.order;
        items.extend(finished(subscriber).into_iter().map(|item| (order, item)));
    }
    items.sort_by_key(|(order, item)| (*order, item.line));
    conversion.report = Report { items: items.into_iter().map(|(_, item)| item).collect() };
    if conversion.report.has(List::Error) {
        conversion.manifests.clear();
        conversion.steps.clear();
    }
    conversion
}

/// Returns the configuration that applies to the Applications of all namespaces.
fn central(configs: &[Object<'_>]) -> Option<usize> {
    let known = configs.iter().position(|config| CENTRAL.contains(&config.namespace.as_str()));
    known.or_else(|| (configs.len() == 1).then_some(0))
}

/// Opens the fields of an object.
fn opened<'a>(object: &Object<'a>) -> Ledger<'a> {
    let name = format!("{}/{}", object.namespace, object.name);
    let mut ledger = Ledger::new(&object.input.name, object.document, name);
    ledger.put_each(List::Converted, ["apiVersion", "kind", "metadata.name", "metadata.namespace"], "read as it is");
    ledger
}

/// Opens an Application or an `AppProject`.
fn subscriber<'a>(object: &'a Object<'a>) -> Subscriber<'a> {
    let ledger = opened(object);
    let annotations = ledger.named("metadata.annotations");
    let annotations = annotations.into_iter().filter(|(_, name, _)| is_subscription(name)).collect();
    Subscriber { object, ledger, annotations, notes: BTreeMap::new() }
}

/// Returns the items of an Application or an `AppProject`.
fn finished(subscriber: Subscriber<'_>) -> Vec<Item> {
    let Subscriber { mut ledger, annotations, notes, .. } = subscriber;
    for (field, ..) in &annotations {
        match notes.get(field) {
            Some((list, text)) => ledger.put(*list, field, text.clone()),
            None => {
                ledger
                    .error(field, "no configuration of the input applies to it; add the file with argocd-notifications-cm");
            }
        }
    }
    ledger.put(List::Ignored, "metadata", "it is not a subscription");
    put_rest(&mut ledger, List::Ignored, "it is not a subscription");
    ledger.finish()
}

/// Mentions all fields that are still open.
fn put_rest(ledger: &mut Ledger<'_>, list: List, text: &str) {
    let fields: Vec<String> = match ledger.get("") {
        Some(Value::Object(fields)) => fields.keys().map(|name| below("", name)).collect(),
        Some(Value::Array(items)) => (0..items.len()).map(|at| entry("", at)).collect(),
        Some(_) | None => vec![String::new()],
    };
    for field in fields {
        ledger.put(list, &field, text);
    }
}

/// Returns a text as a part of the name of an object. A text with other characters ends with a hash.
fn slug(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !text.is_empty() && text.chars().all(is_part) && !text.starts_with('-') && !text.ends_with('-') {
        return text.to_owned();
    }
    let plain: String = text.to_lowercase().chars().map(|c| if is_part(c) { c } else { '-' }).collect();
    let short: String = hash(&[text]).chars().take(6).collect();
    let plain = plain.trim_matches('-');
    if plain.is_empty() { short } else { format!("{plain}-{short}") }
}
