//! Alerts and Providers of Flux's notification API. Pure.
//!
//! In: files with the kinds of `notification.toolkit.fluxcd.io`. Out: for each Alert a Notification, in its namespace, and for each kind and
//! namespace a `PipelineSet`, or Pipelines for objects that are named alone.
//!
//! `documents` finds the objects, `alert` and `provider` read them, `sources` decides what is followed, and `triggers` writes the conditions.
//! `notification` puts them together.

mod address;
mod alert;
mod documents;
mod kinds;
mod label;
mod notification;
mod provider;
mod receivers;
mod sources;
mod triggers;

use std::collections::{BTreeMap, BTreeSet};

use super::ledger::Ledger;
use super::report::{List, Report};
use super::{Conversion, Input, Options};
use alert::{Alert, EVENT_SOURCES};
use documents::{Documents, Object, sort};
use kinds::Kind;
use notification::{Place, label, manifest};
use provider::{FIELDS, Made, Outcome, make};
use receivers::Receiver;
use relaybook_api::notification::Builtin;
use relaybook_settings::manifests::read;
use sources::{Followed, Scope};

/// Maximum number of different event sources of a kind in a namespace.
const SCOPES: usize = 4_096;

/// A Provider, and its part of the report.
struct Provider<'a> {
    object: &'a Object<'a>,
    ledger: Ledger<'a>,
    outcome: Outcome,
}

/// An Alert that becomes a Notification.
struct Converted<'a> {
    object: &'a Object<'a>,
    ledger: Ledger<'a>,
    alert: Alert,
}

/// The event sources of all Alerts, by namespace of the Alert and by kind.
type Scopes = BTreeMap<(String, &'static Kind), BTreeSet<Scope>>;
/// What is followed for the Alerts of a namespace, by kind.
type AllFollowed = BTreeMap<(String, &'static Kind), Followed>;

/// Converts files.
pub fn convert(inputs: &[Input], options: &Options) -> Conversion {
    let documents: Vec<_> = inputs.iter().map(|input| read(&input.text)).collect();
    let mut sorted = sort(inputs, &documents, &options.namespace);
    let mut items = std::mem::take(&mut sorted.items);
    let mut providers = providers(&sorted);
    let (mut converted, mut scopes) = (Vec::new(), Scopes::new());
    for object in &sorted.alerts {
        let mut ledger = opened(object);
        match accepted(&mut ledger, object, &providers) {
            Some(alert) => {
                keep(&mut scopes, &mut ledger, object, &alert);
                converted.push(Converted { object, ledger, alert });
            }
            None => items.extend(ledger.finish().into_iter().map(|item| (object.order, item))),
        }
    }
    labels(&mut providers, &converted, options);
    let followed: AllFollowed =
        scopes.iter().map(|((namespace, kind), scopes)| ((namespace.clone(), *kind), Followed::new(kind, scopes))).collect();
    let mut manifests: Vec<_> = followed.iter().flat_map(|((namespace, _), one)| one.manifests(namespace)).collect();
    for Converted { object, mut ledger, alert } in converted {
        let scopes = alert.scopes();
        let kinds: BTreeSet<&'static Kind> = scopes.iter().map(|scope| scope.kind).collect();
        let of = |kind: &'static Kind| scopes.iter().copied().filter(|scope| scope.kind == kind).collect::<Vec<_>>();
        let kinds: Vec<_> = kinds
            .into_iter()
            .filter_map(|kind| Some((followed.get(&(object.namespace.clone(), kind))?, of(kind))))
            .collect();
        let place = Place { namespace: &object.namespace, name: &object.name, no_triggers: options.no_triggers };
        let key = (object.namespace.clone(), alert.provider.clone());
        if let Some(Outcome::Made(made)) = providers.get(&key).map(|provider| &provider.outcome) {
            manifests.extend(manifest(&mut ledger, place, (&alert, made), &kinds));
        }
        items.extend(ledger.finish().into_iter().map(|item| (object.order, item)));
    }
    let mut steps = steps(&providers, &followed, sorted.has_variables);
    for Provider { object, ledger, .. } in providers.into_values() {
        items.extend(ledger.finish().into_iter().map(|item| (object.order, item)));
    }
    items.sort_by_key(|(order, item)| (*order, item.line));
    let report = Report { items: items.into_iter().map(|(_, item)| item).collect() };
    if report.has(List::Error) {
        manifests.clear();
        steps.clear();
    }
    Conversion { manifests, steps, report }
}

/// Opens the fields of an object, and mentions those that all objects have.
fn opened<'a>(object: &Object<'a>) -> Ledger<'a> {
    let mut ledger = Ledger::new(object.file, object.document, format!("{}/{}", object.namespace, object.name));
    ledger.put_each(List::Converted, ["apiVersion", "kind"], "read as it is");
    ledger.put_each(List::Converted, ["metadata.name", "metadata.namespace"], "name and namespace of the Notification");
    ledger.put(List::Ignored, "metadata", "labels, annotations, and what the API server sets, are not copied");
    ledger.put(List::Ignored, "status", "the status of Flux");
    ledger
}

/// Reads the Providers. Those that no Alert uses become nothing.
fn providers<'a>(sorted: &'a Documents<'a>) -> BTreeMap<(String, String), Provider<'a>> {
    let name = |object: &Object<'_>| object.document.value.pointer("/spec/providerRef/name")?.as_str().map(str::to_owned);
    let used: BTreeSet<_> =
        sorted.alerts.iter().filter_map(|object| Some((object.namespace.clone(), name(object)?))).collect();
    let provider = |object: &'a Object<'a>| {
        let key = (object.namespace.clone(), object.name.clone());
        let mut ledger = opened(object);
        let outcome = if used.contains(&key) {
            make(&mut ledger, (&object.namespace, &object.name), &sorted.secrets)
        } else {
            ledger.put_each(List::Ignored, FIELDS, "no Alert of the input uses this Provider");
            Outcome::NoCounterpart
        };
        if matches!(outcome, Outcome::Wrong) {
            ledger.put_each(List::Ignored, FIELDS, "see the error of this Provider");
        }
        (key, Provider { object, ledger, outcome })
    };
    sorted.providers.iter().map(provider).collect()
}

/// Reads an Alert. `None`: it has no Notification, and the report says why.
fn accepted(
    ledger: &mut Ledger<'_>,
    object: &Object<'_>,
    providers: &BTreeMap<(String, String), Provider<'_>>,
) -> Option<Alert> {
    let Some(mut alert) = alert::read(ledger, &object.namespace) else {
        Alert::leave(ledger, List::Ignored, "see the error of this Alert");
        return None;
    };
    let provider = providers.get(&(object.namespace.clone(), alert.provider.clone()));
    match provider.map(|provider| &provider.outcome) {
        None => {
            let text = format!("Provider {}/{} is not in the input; add its file", object.namespace, alert.provider);
            ledger.error("spec.providerRef.name", text);
            Alert::leave(ledger, List::Ignored, "see the error of this Alert");
            None
        }
        Some(Outcome::Wrong) => {
            Alert::leave(ledger, List::Ignored, "see the error of its Provider");
            None
        }
        Some(Outcome::NoCounterpart) => {
            Alert::leave(ledger, List::NoCounterpart, "its Provider has no counterpart");
            None
        }
        Some(Outcome::Made(made)) => {
            ledger.put(List::Converted, "spec.providerRef.name", "endpoint and template");
            alert.fit(ledger, made.receiver);
            if alert.sources.is_empty() {
                Alert::leave(ledger, List::NoCounterpart, "no event source is left");
                return None;
            }
            Some(alert)
        }
    }
}

fn keep(scopes: &mut Scopes, ledger: &mut Ledger<'_>, object: &Object<'_>, alert: &Alert) {
    for (_, scope) in &alert.sources {
        let all = scopes.entry((object.namespace.clone(), scope.kind)).or_default();
        all.insert(scope.clone());
        if all.len() > SCOPES {
            let text = format!(
                "the Alerts of a namespace have more than {SCOPES} event sources of a kind; convert fewer at a time"
            );
            return ledger.say(List::Error, EVENT_SOURCES, text);
        }
    }
}

/// Mentions the types of Providers, and the labels of their commit statuses. A label that is not possible for one Alert is used for none.
fn labels(providers: &mut BTreeMap<(String, String), Provider<'_>>, converted: &[Converted<'_>], options: &Options) {
    for (key, Provider { ledger, outcome, .. }) in providers {
        let Outcome::Made(made) = outcome else { continue };
        let is_possible = converted.iter().all(|Converted { object, alert, .. }| {
            let place = Place { namespace: &object.namespace, name: &object.name, no_triggers: options.no_triggers };
            object.namespace != key.0 || alert.provider != key.1 || label(made, alert, place).is_some()
        });
        if made.expression.is_some() && is_possible {
            let name = made.receiver.context().unwrap_or_default();
            ledger.put(List::Converted, "spec.commitStatusExpr", format!("the parameter {name}"));
        } else {
            made.expression = None;
            let text = "only texts and the fields event.involvedObject.*, event.metadata.* of the Alert, alert.metadata.name and \
                 provider.metadata.name, joined by +, become the label of a status";
            ledger.put(List::NoCounterpart, "spec.commitStatusExpr", text);
        }
        let (list, text) = of_type(made.receiver, made);
        ledger.put(list, "spec.type", format!("the template {}{text}", made.receiver.builtin.as_str()));
    }
}

/// Returns what differs between the messages.
fn of_type(receiver: &Receiver, made: &Made) -> (List, &'static str) {
    let differs = |text| (List::Differs, text);
    match receiver.builtin {
        Builtin::FluxEvent => {
            differs(": the same keys in the body; reason is the type of the transition, and message begins with the title")
        }
        Builtin::Alertmanager => {
            differs(": alertname and the other labels have other values; change routes that match them")
        }
        Builtin::GrafanaAnnotation => differs(": the tags are those of the template; change queries that match them"),
        Builtin::GithubRepositoryDispatch => differs(": event_type is the same, and client_payload has other fields"),
        Builtin::GithubPullRequestComment | Builtin::GitlabMergeRequestComment | Builtin::GiteaPullRequestComment => {
            differs(
                ": it finds the pull request by the commit, not by the annotation event.toolkit.fluxcd.io/change_request",
            )
        }
        _ if receiver.context().is_some() && made.expression.is_none() => {
            differs(": the label of the status is another one; change required checks")
        }
        _ => (List::Converted, ""),
    }
}

/// Returns what comes before the manifests are applied.
fn steps(providers: &BTreeMap<(String, String), Provider<'_>>, followed: &AllFollowed, has_variables: bool) -> Vec<String> {
    let made = providers.values().filter_map(|provider| match &provider.outcome {
        Outcome::Made(made) => Some(made),
        Outcome::NoCounterpart | Outcome::Wrong => None,
    });
    let mut steps: Vec<String> = made.flat_map(|made| made.steps.clone()).collect();
    let kinds: BTreeSet<&Kind> = followed.keys().map(|(_, kind)| *kind).filter(|kind| !kind.is_permitted).collect();
    for kind in kinds {
        let (group, plural) = (kind.group(), kind.plural);
        steps.push(format!(
            "# allow Relaybook to watch {plural}: value observe.extra of the chart, {{apiGroups: [{group}], resources: [{plural}]}}"
        ));
    }
    if has_variables {
        let text =
            "# the manifests have variables such as ${NAME}: apply them with the Kustomization of Flux that replaces them";
        steps.push(text.to_owned());
    }
    steps
}
