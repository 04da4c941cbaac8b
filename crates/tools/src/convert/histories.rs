//! What another program sends for the history of an object, compared with what the converted Notifications send.
//!
//! A file of `histories` has the versions of an object. For each of them, somebody who did not write the conversion has written what the other
//! program sends by its own rules. Each trigger or Alert that sends something else must be in the list `differs` of the file, and the report must
//! announce a difference for it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use kube::api::DynamicObject;
use relaybook_api::notification::Trigger;
use relaybook_api::{Change, Settled};
use relaybook_core::changelog::{Verdict, believe, settle};
use relaybook_core::meaning::transitions;
use relaybook_core::observe::{observe, reader};
use relaybook_settings::render::Data;
use relaybook_settings::trigger::{Place, Triggers};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::testing::{inputs, objects};
use super::*;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct History {
    #[allow(dead_code, reason = "it is for a reader")]
    about: String,
    peer: String,
    /// The conditions of Argo CD, by the name of the trigger.
    #[serde(default)]
    triggers: Map<String, Value>,
    /// The Alert of Flux.
    #[serde(default)]
    alert: Value,
    /// What sends something else, and why.
    #[serde(default)]
    differs: Map<String, Value>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    object: Value,
    /// What the other program sends: names of triggers, or for Flux reasons of events.
    peer: Vec<String>,
    #[serde(default)]
    #[allow(dead_code, reason = "it is for a reader")]
    why: String,
}

/// Returns a configuration of Argo CD with one trigger.
fn argocd_of(history: &History, trigger: &str) -> Conversion {
    let conditions = &history.triggers[trigger];
    let names = conditions.as_array().unwrap().iter().flat_map(|one| one["send"].as_array().unwrap());
    let templates = names.map(|name| {
        let key = format!("template.{}", name.as_str().unwrap());
        (key, json!("message: it has changed\n"))
    });
    let mut data: Map<String, Value> = templates.collect();
    data.insert("service.slack".to_owned(), json!("token: $slack-token\n"));
    data.insert(format!("trigger.{trigger}"), json!(conditions.to_string()));
    let subscription = json!([{"recipients": ["slack:deploys"], "triggers": [trigger]}]);
    data.insert("subscriptions".to_owned(), json!(subscription.to_string()));
    let metadata = json!({"name": "argocd-notifications-cm", "namespace": "argocd"});
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    argocd(&inputs(&config.to_string()), &Options { namespace: "argocd".to_owned(), no_triggers: false })
}

/// Converts the Alert of a history.
fn flux_of(history: &History) -> Conversion {
    let object = |kind: &str, name: &str, spec: &Value| {
        json!({"apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": kind,
            "metadata": {"name": name, "namespace": "apps"}, "spec": spec})
    };
    let provider = object("Provider", "slack", &json!({"type": "slack", "secretRef": {"name": "slack"}}));
    let items = json!([object("Alert", "alert", &history.alert), provider]);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    flux(&inputs(&list.to_string()), &Options { namespace: "apps".to_owned(), no_triggers: false })
}

/// Returns the triggers of all Notifications.
fn triggers_of(conversion: &Conversion) -> Vec<Triggers> {
    let all = conversion.manifests.iter().flat_map(|one| objects(&one.text));
    let notifications = all.filter(|object| object["kind"] == "Notification");
    let compiled = |object: Value| {
        let triggers: Vec<Trigger> = serde_json::from_value(object["spec"]["triggers"].clone()).unwrap();
        Triggers::compile(&triggers).unwrap()
    };
    notifications.map(compiled).collect()
}

/// Returns how many messages the Notifications send for each version.
fn sent(notifications: &[Triggers], steps: &[Step]) -> Vec<usize> {
    let (mut settled, mut numbers): (Option<Settled>, Vec<usize>) = (None, Vec::new());
    let kind = steps.iter().map(|step| &step.object).find(|object| object.get("kind").is_some()).unwrap();
    let text = |field: &str| kind[field].as_str().unwrap();
    let reader = reader(text("apiVersion"), text("kind"), None);
    for (serial, step) in (1..).zip(steps) {
        let object: Option<DynamicObject> =
            step.object.get("kind").map(|_| serde_json::from_value(step.object.clone()).unwrap());
        let seen = observe(object.as_ref(), None);
        let verdict = settle(settled.as_ref(), &believe(settled.as_ref(), &seen, &reader, false), &reader, serial);
        let mut number = 0;
        match verdict {
            Verdict::Ignored => {}
            Verdict::Baseline(new) | Verdict::Noted(new) => settled = Some(new),
            Verdict::Changed { from, to, settled: new } => {
                settled = Some(new);
                let change =
                    Change { serial, subject: "target/all/in-cluster/apps".to_owned(), from, to, ..Change::default() };
                for type_ in transitions(&change) {
                    let data = || {
                        let to = &change.to;
                        Data {
                            reason: to.reason.clone(),
                            message: to.message.clone(),
                            status: to.status,
                            ..Data::sample(type_)
                        }
                    };
                    let place = Place { environment: "all".to_owned(), ..Place::default() };
                    let asks = |one: &&Triggers| one.ask(type_, std::slice::from_ref(&place), data).is_some();
                    number += notifications.iter().filter(asks).count();
                }
            }
        }
        numbers.push(number);
    }
    numbers
}

/// Whether the report announces a difference for a field.
fn announces(conversion: &Conversion, field: &str) -> bool {
    let lists = [List::Differs, List::NoCounterpart];
    conversion.report.items.iter().any(|item| lists.contains(&item.list) && item.field.starts_with(field))
}

#[test]
fn each_difference_to_what_another_program_sends_is_announced() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/convert/histories");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 12, "{}", files.len());
    let (mut equal, mut wrong) = (0, Vec::new());
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&file).unwrap();
        let history: History = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let of_alert = || vec![("alert".to_owned(), flux_of(&history), "spec".to_owned())];
        let of_triggers = || {
            let one = |trigger: &String| (trigger.clone(), argocd_of(&history, trigger), format!("data[trigger.{trigger}]"));
            history.triggers.keys().map(one).collect()
        };
        let all = if history.peer == "flux" { of_alert() } else { of_triggers() };
        let known: BTreeSet<&String> = history.differs.keys().collect();
        for (of, conversion, field) in all {
            assert!(!conversion.report.has(List::Error), "{name}: {of}: {:#?}", conversion.report);
            let is_mine = |sent: &&String| history.peer == "flux" || **sent == of;
            let theirs: Vec<usize> = history.steps.iter().map(|step| step.peer.iter().filter(is_mine).count()).collect();
            let ours = sent(&triggers_of(&conversion), &history.steps);
            equal += usize::from(theirs == ours);
            let differs = theirs != ours;
            if differs && !announces(&conversion, &field) {
                wrong.push(format!("{name}: {of}: not announced: {theirs:?}, and Relaybook {ours:?}"));
            } else if differs != known.contains(&of) {
                wrong.push(format!("{name}: {of}: is it in `differs`? {theirs:?}, and Relaybook {ours:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(equal >= 30, "only {equal} are equal");
}
