//! The Notification for an Alert. Pure.
//!
//! In: an Alert, its Provider, and what is followed in its namespace. Out: the manifest, and the Alert's part of the report.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::alert::{Alert, EVENT_SOURCES, summary};
use super::label::{Names, literal, template};
use super::provider::Made;
use super::receivers::Receiver;
use super::sources::{Followed, LABEL, Scope};
use super::triggers::{Clause, Patterns, clauses, pattern, triggers};
use crate::convert::ledger::Ledger;
use crate::convert::report::List;
use crate::init::{Manifest, yaml};
use relaybook_api::notification::Builtin;
use relaybook_api::{GROUP, VERSION};

/// Maximum number of fields of a message.
const FIELDS: usize = 10;
/// Maximum length of the name of a field, in characters.
const FIELD_NAME: usize = 60;
/// Names in the metadata of the template `flux-event`, which leaves out fields with these names.
const OF_EVENT: [&str; 9] = [
    "test",
    "revision",
    "running_revision",
    "previous_revision",
    "environment",
    "cluster",
    "promotion",
    "reason",
    "pipeline",
];
/// The headline: the name of the object as Flux writes it.
const TITLE: &str = "{{lower target.app.kind}}/{{target.app.name}}.{{target.namespace}}: {{type}}";

/// Where a Notification is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// Whether the person wants no triggers at first.
    pub(super) no_triggers: bool,
}

/// Returns the manifest. `None`: the report has an error.
pub(super) fn manifest(
    ledger: &mut Ledger<'_>,
    place: Place<'_>,
    (alert, made): (&Alert, &Made),
    followed: &[(&Followed, Vec<&Scope>)],
) -> Option<Manifest> {
    let receiver = made.receiver;
    let mut parameters = made.parameters.clone();
    if receiver.takes("title") {
        parameters.insert("title".to_owned(), TITLE.to_owned());
    }
    if let (Some(context), Some(label)) = (receiver.context(), label(made, alert, place)) {
        parameters.insert(context.to_owned(), label);
    }
    if let Some(fields) = fields(ledger, receiver) {
        parameters.insert("fields".to_owned(), fields);
    }
    severity(ledger, alert, receiver);
    let clauses = clauses(followed);
    ledger.put_empty(["spec.inclusionList", "spec.exclusionList", "spec.eventMetadata"]);
    let mut patterns = patterns(ledger);
    limit(ledger, &mut patterns, &clauses);
    let types = receiver.types(alert.only_errors);
    let Ok(triggers) = triggers((&types, receiver.ends()), &patterns.conditions, &clauses) else {
        let text = "they do not fit into the triggers of one Notification; divide them among several Alerts";
        ledger.say(List::Error, EVENT_SOURCES, text);
        return None;
    };
    let is_suspended = alert.is_suspended || made.is_suspended;
    let why = match (is_suspended, place.no_triggers) {
        (true, _) => Some(
            "Flux has suspended it. To report changes, remove the empty list, and the `# ` before the lines below this one.",
        ),
        (false, true) => {
            Some("To switch, delete the Alert, remove the empty list, and the `# ` before the lines below this one.")
        }
        (false, false) => None,
    };
    let mut spec = Map::new();
    spec.insert("pipelineSelector".to_owned(), selector(followed));
    spec.insert("triggers".to_owned(), if why.is_some() { json!([]) } else { json!(triggers) });
    spec.insert("endpoint".to_owned(), Value::Object(made.endpoint.clone()));
    spec.insert("template".to_owned(), body(receiver, &parameters));
    let Place { namespace, name, .. } = place;
    let object = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Notification",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    });
    let mut text =
        format!("# For the Alert {namespace}/{name} of Flux, with its Provider {}.\n{}", alert.provider, yaml(&object));
    if let Some(why) = why {
        text = text.replacen("  triggers: []\n", &format!("{}  triggers: []\n", comment(why, &triggers)), 1);
    }
    let names: Vec<_> = types.iter().map(|type_| type_.as_str()).collect();
    let names = if why.is_some() { "no triggers yet".to_owned() } else { names.join(", ") };
    let about = format!("Notification {namespace}/{name}: {names}, to {}", receiver.builtin.as_str());
    Some(Manifest { file: format!("{namespace}.notification-{name}.yaml"), about, text })
}

/// Returns the label of commit statuses that the Provider asks for.
pub(super) fn label(made: &Made, alert: &Alert, place: Place<'_>) -> Option<String> {
    let names = Names { alert: place.name, provider: &alert.provider, metadata: &alert.metadata };
    template(made.expression.as_deref()?, names)
}

fn selector(followed: &[(&Followed, Vec<&Scope>)]) -> Value {
    let kinds: Vec<&str> = followed.iter().filter_map(|(_, scopes)| Some(scopes.first()?.kind.name)).collect();
    match kinds.as_slice() {
        [one] => json!({"matchLabels": {LABEL: one}}),
        all => json!({"matchExpressions": [{"key": LABEL, "operator": "In", "values": all}]}),
    }
}

fn body(receiver: &Receiver, parameters: &BTreeMap<String, String>) -> Value {
    let builtin = receiver.builtin.as_str();
    if parameters.is_empty() { json!({"builtin": builtin}) } else { json!({"builtin": builtin, "parameters": parameters}) }
}

/// Returns triggers as a comment.
fn comment(why: &str, triggers: &[Value]) -> String {
    let mut text = format!("  # {why}\n  # triggers:\n");
    for trigger in triggers {
        for line in yaml(&json!([trigger])).lines() {
            let _ = writeln!(text, "  #   {line}");
        }
    }
    text
}

/// Mentions the severity, also if it is the default.
fn severity(ledger: &mut Ledger<'_>, alert: &Alert, receiver: &Receiver) {
    const FIELD: &str = "spec.eventSeverity";
    let types = receiver.types(alert.only_errors);
    let types: Vec<_> = types.iter().map(|type_| type_.as_str()).collect();
    let types = types.join(", ");
    let (list, text) = match (alert.only_errors, receiver.shows_a_state()) {
        (true, false) => (
            List::Differs,
            format!("error: Flux repeats the event as long as the object fails; Relaybook sends the change {types} once"),
        ),
        (true, true) => {
            (List::Differs, format!("the triggers {types}: the receiver shows a failure until another one ends it"))
        }
        (false, _) => (
            List::Differs,
            format!("info: Flux sends every event; Relaybook sends the changes {types}, and no events without a change"),
        ),
    };
    let exists = ledger.get(FIELD).is_some();
    ledger.put(list, FIELD, text.clone());
    if !exists {
        ledger.say(list, FIELD, text);
    }
}

/// The patterns, with the field of each.
#[derive(Default)]
struct Written {
    conditions: Patterns,
    included: Vec<String>,
    excluded: Vec<String>,
}

/// Reads the patterns. Those that Relaybook does not accept have no counterpart.
fn patterns(ledger: &mut Ledger<'_>) -> Written {
    const REFUSED: &str =
        "Relaybook does not accept the pattern: it can have 128 bytes, no brace, and only the syntax of RE2";
    let mut written = Written::default();
    for (field, text) in ledger.texts("spec.inclusionList") {
        match pattern(text) {
            Some(condition) => {
                written.conditions.included.push(condition);
                written.included.push(field);
            }
            None => ledger.put(List::NoCounterpart, &field, REFUSED),
        }
    }
    // What only a missing pattern includes must be sent, too.
    let number = ledger.texts("spec.inclusionList").len();
    if written.included.len() < number {
        written.conditions.included.clear();
    }
    for (field, text) in ledger.texts("spec.exclusionList") {
        match pattern(text) {
            Some(condition) => {
                written.conditions.excluded.push(condition);
                written.excluded.push(field);
            }
            None => ledger.put(List::NoCounterpart, &field, REFUSED),
        }
    }
    written
}

/// Leaves out patterns that do not fit, and mentions them.
fn limit(ledger: &mut Ledger<'_>, written: &mut Written, clauses: &[Clause]) {
    let (excluded, has_included) = written.conditions.limit(clauses);
    let differs = "`when` matches it with messages of conditions; those of events can have other words: read the messages of your objects";
    for (at, field) in written.excluded.iter().enumerate() {
        if at < excluded {
            ledger.put(List::Differs, field, differs);
        } else {
            ledger.put(List::NoCounterpart, field, "too many patterns for a condition; more messages are sent");
        }
    }
    for field in &written.included {
        if has_included {
            ledger.put(List::Differs, field, format!("{differs}, because a message without a match is not sent"));
        } else {
            let text = "not all patterns of the list can be a condition, so none is; more messages are sent";
            ledger.put(List::NoCounterpart, field, text);
        }
    }
}

/// Returns the parameter `fields`: `eventMetadata` and `summary`.
fn fields(ledger: &mut Ledger<'_>, receiver: &Receiver) -> Option<String> {
    let metadata = ledger.named("spec.eventMetadata");
    let is_replaced = summary(ledger).is_some();
    let old = ledger.text("spec.summary").map(|text| ("spec.summary".to_owned(), "summary", text));
    let mut lines: Vec<String> = Vec::new();
    for (field, name, value) in metadata.into_iter().chain(old) {
        let is_name = !name.trim().is_empty()
            && name.chars().count() <= FIELD_NAME
            && !name.contains(": ")
            && !name.contains("{{")
            && !name.contains(char::is_control);
        let one_line =
            value.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        let (list, text) = if is_replaced && name == "summary" && field != "spec.summary" {
            (List::Ignored, "spec.summary replaces it".to_owned())
        } else if !receiver.takes("fields") {
            (List::NoCounterpart, format!("the template {} shows no further fields", receiver.builtin.as_str()))
        } else if !is_name || lines.len() == FIELDS {
            let text = format!("a message has at most {FIELDS} fields, with names of at most {FIELD_NAME} characters");
            (List::NoCounterpart, text)
        } else if receiver.builtin == Builtin::FluxEvent && OF_EVENT.contains(&name) {
            (List::NoCounterpart, format!("the template has its own {name} in metadata; use another name"))
        } else if one_line.is_empty() {
            (List::Ignored, "an empty value is not shown".to_owned())
        } else {
            lines.push(format!("{name}: {}", literal(&one_line)));
            let (list, text) = if receiver.builtin == Builtin::Alertmanager {
                (List::Differs, "a line of the description, and no label: change routes that match it")
            } else if one_line == value {
                (List::Converted, "the parameter fields")
            } else {
                (List::Differs, "the parameter fields, on one line")
            };
            (list, text.to_owned())
        };
        ledger.put(list, &field, text);
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}
