//! What an Alert says. Pure.
//!
//! In: an Alert. Out: what it names, which messages it wants, and what it adds to them ([`Alert`]). The fields that every Notification has in
//! the same way are mentioned here; `notification` mentions the others.

use std::collections::{BTreeMap, BTreeSet};

use super::kinds::{KINDS, Kind, Revision};
use super::receivers::Receiver;
use super::sources::{ALL, Labels, Scope};
use crate::convert::ledger::Ledger;
use crate::convert::report::List;
use relaybook_api::values::names::{is_label, is_subdomain};
use relaybook_settings::config::nearest;
use relaybook_settings::manifests::field::{below, entry};
use serde_json::Value;

/// Maximum number of event sources of an Alert.
const SOURCES: usize = 256;
/// The list of event sources.
pub(super) const EVENT_SOURCES: &str = "spec.eventSources";

/// An Alert.
#[derive(Debug)]
pub(super) struct Alert {
    /// The name of the Provider.
    pub(super) provider: String,
    /// What it names, with the field of each event source.
    pub(super) sources: Vec<(String, Scope)>,
    /// Whether it wants errors only.
    pub(super) only_errors: bool,
    pub(super) is_suspended: bool,
    /// `eventMetadata`, and `summary`.
    pub(super) metadata: BTreeMap<String, String>,
}

/// Reads an Alert of this namespace. `None`: the report has an error.
pub(super) fn read(ledger: &mut Ledger<'_>, namespace: &str) -> Option<Alert> {
    let provider = ledger.text("spec.providerRef.name").unwrap_or_default().to_owned();
    if provider.is_empty() {
        ledger.error("spec.providerRef.name", "is missing; name the Provider");
    }
    let severity = ledger.text("spec.eventSeverity");
    if !matches!(severity, Some("info" | "error")) && ledger.get("spec.eventSeverity").is_some() {
        ledger.error("spec.eventSeverity", "write info or error");
    }
    let number = ledger.get(EVENT_SOURCES).and_then(Value::as_array).map_or(0, Vec::len);
    if number == 0 || number > SOURCES {
        ledger.error(EVENT_SOURCES, format!("needs 1 to {SOURCES} objects; {number} are there"));
        return None;
    }
    let fields = (0..number).map(|at| entry(EVENT_SOURCES, at));
    let sources: Vec<_> = fields.filter_map(|field| Some((field.clone(), source(ledger, &field, namespace)?))).collect();
    let suspended = ledger.get("spec.suspend").and_then(Value::as_bool);
    if let Some(is_suspended) = suspended {
        ledger.put(List::Converted, "spec.suspend", if is_suspended { "no triggers" } else { "the triggers are active" });
    }
    let metadata = ledger.named("spec.eventMetadata").into_iter().map(|(_, name, value)| (name, value));
    let metadata = metadata.chain(summary(ledger).map(|text| ("summary", text)));
    let metadata = metadata.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let (only_errors, is_suspended) = (severity == Some("error"), suspended.unwrap_or_default());
    (!ledger.has_errors()).then_some(Alert { provider, sources, only_errors, is_suspended, metadata })
}

/// Returns the old field for a text in all messages. It replaces `summary` of `eventMetadata`.
pub(super) fn summary<'a>(ledger: &Ledger<'a>) -> Option<&'a str> {
    ledger.text("spec.summary").filter(|text| !text.is_empty())
}

/// Reads an event source. `None`: the report has an error.
fn source(ledger: &mut Ledger<'_>, field: &str, own: &str) -> Option<Scope> {
    let of = |name: &str| below(field, name);
    for name in ["apiVersion", "namespace"] {
        if ledger.get(&of(name)).is_some_and(|value| !value.is_string()) {
            ledger.error(&of(name), "is not a text");
            return None;
        }
    }
    let Some(kind) = ledger.text(&of("kind")) else {
        ledger.error(&of("kind"), "is missing; write the kind of the objects");
        return None;
    };
    let Some(kind) = Kind::named(kind) else {
        let meant = nearest(kind, KINDS.iter().map(|kind| kind.name));
        let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
        ledger.error(&of("kind"), format!("Flux has no such kind for event sources{meant}"));
        return None;
    };
    let (name, namespace) = (ledger.text(&of("name")).unwrap_or_default(), ledger.text(&of("namespace")).unwrap_or(own));
    if name != ALL && !is_subdomain(name) {
        ledger.error(&of("name"), "is missing, or is not the name of an object; write a name, or '*' for all objects");
        return None;
    }
    if namespace != ALL && !is_label(namespace) {
        ledger.error(&of("namespace"), "is not the name of a namespace");
        return None;
    }
    if namespace == ALL && name != ALL {
        ledger.error(&of("name"), "must be '*', because the namespace is '*'");
        return None;
    }
    let labels: Labels =
        ledger.named(&of("matchLabels")).into_iter().map(|(_, key, value)| (key.to_owned(), value.to_owned())).collect();
    let given = ledger.get(&of("matchLabels"));
    if given.is_some_and(|given| given.as_object().is_none_or(|given| given.len() != labels.len())) {
        ledger.error(&of("matchLabels"), "is not a mapping of texts");
        return None;
    }
    if !labels.is_empty() && name != ALL {
        ledger.error(&of("matchLabels"), "requires the name '*'");
        return None;
    }
    if labels.values().any(String::is_empty) {
        ledger.error(&of("matchLabels"), "a pipeline cannot have a label without a value; leave it out");
        return None;
    }
    let name = Some(name.to_owned()).filter(|name| name != ALL);
    Some(Scope { kind, namespace: namespace.to_owned(), name, labels })
}

impl Alert {
    /// Mentions the event sources, and leaves out those that this receiver cannot report.
    pub(super) fn fit(&mut self, ledger: &mut Ledger<'_>, receiver: &Receiver) {
        self.sources.retain(|(field, scope)| {
            let is_possible = !receiver.needs_commit() || scope.kind.revision == Revision::Commit;
            mention(ledger, field, scope.kind, is_possible);
            is_possible
        });
    }

    /// Returns what it names, once each.
    pub(super) fn scopes(&self) -> BTreeSet<&Scope> {
        self.sources.iter().map(|(_, scope)| scope).collect()
    }

    /// Mentions everything that is still open, because there is no Notification.
    pub(super) fn leave(ledger: &mut Ledger<'_>, list: List, why: &str) {
        let number = ledger.get(EVENT_SOURCES).and_then(Value::as_array).map_or(0, Vec::len);
        for field in (0..number).map(|at| entry(EVENT_SOURCES, at)) {
            let all = SOURCE_FIELDS.map(|name| below(&field, name));
            ledger.put_each(list, all.iter().map(String::as_str), why);
        }
        ledger.put_each(list, FIELDS, why);
    }
}

/// The fields of an event source.
const SOURCE_FIELDS: [&str; 5] = ["apiVersion", "kind", "name", "namespace", "matchLabels"];
/// The other fields of `spec`.
const FIELDS: [&str; 7] = [
    "spec.providerRef.name",
    "spec.eventSeverity",
    "spec.inclusionList",
    "spec.exclusionList",
    "spec.eventMetadata",
    "spec.summary",
    "spec.suspend",
];

fn mention(ledger: &mut Ledger<'_>, field: &str, kind: &Kind, is_possible: bool) {
    let of = |name: &str| below(field, name);
    if !is_possible {
        let why = format!(
            "the revision of a {} is no commit. Flux reports it only with an annotation that names the commit or the pull request",
            kind.name
        );
        for name in SOURCE_FIELDS {
            ledger.put(List::NoCounterpart, &of(name), why.clone());
        }
        return;
    }
    let (list, text) = match (kind.revision, kind.name) {
        (_, "Kustomization" | "HelmRelease") => (List::Converted, "followed by a pipeline".to_owned()),
        (Revision::None, name) => {
            (List::Differs, format!("the status of a {name} has no revision: only Failed and Recovered are reported"))
        }
        (_, name) => (List::Differs, format!("a {name} is Deployed when its artifact, image or commit is a new one")),
    };
    ledger.put(list, &of("kind"), text);
    if let Some(version) = ledger.text(&of("apiVersion")) {
        let list = if version == kind.api_version { List::Converted } else { List::Differs };
        let text =
            format!("the pipelines follow {}; if the cluster does not serve it, write another version", kind.api_version);
        ledger.put(list, &of("apiVersion"), text);
    }
    if ledger.text(&of("namespace")) == Some(ALL) {
        let text = "all namespaces; versions of Flux that do not know * match no object by it, and send nothing";
        ledger.put(List::Differs, &of("namespace"), text);
    }
    let parts = [
        ("name", "target of a Pipeline, or condition"),
        ("namespace", "namespace of the targets"),
        ("matchLabels", "labels"),
    ];
    for (name, text) in parts {
        ledger.put(List::Converted, &of(name), text);
    }
}
