//! Pipelines of Weave GitOps. Pure.
//!
//! In: files with Pipelines of `pipelines.weave.works`. Out: a Pipeline of the same name in the same namespace for each. The fields are those of
//! <https://github.com/weaveworks/pipeline-controller>; older versions had the strategy directly in `promotion`.

use serde_json::{Map, Value, json};

use super::objects::{Object, Wanted, sort};
use super::{MOST, conversion, manifest};
use crate::convert::ledger::Ledger;
use crate::convert::report::List;
use crate::convert::{Conversion, Input, Options};
use crate::init::Manifest;
use relaybook_settings::manifests::field::{below, entry};
use relaybook_settings::manifests::read;

const WANTED: Wanted = Wanted {
    program: "weave",
    kinds: &[("pipelines.weave.works/v1alpha1", "Pipeline")],
    other: |group| match group {
        "notification.toolkit.fluxcd.io" => (
            List::Ignored,
            "an Alert that calls the webhook of promotions is not needed; for others: relaybook convert flux",
        ),
        _ => (List::Ignored, "no Pipeline of Weave GitOps"),
    },
};
/// The forges of Weave GitOps that Relaybook opens pull requests at.
const FORGES: [&str; 3] = ["github", "gitlab", "bitbucket-server"];
/// API groups of Flux, with the version that Flux serves.
const SERVED: [(&str, &str); 2] = [("helm.toolkit.fluxcd.io", "v2"), ("kustomize.toolkit.fluxcd.io", "v1")];
/// Begins the names of labels that Flux writes.
const OF_FLUX: &str = "toolkit.fluxcd.io/";

/// Converts files.
pub fn convert(inputs: &[Input], options: &Options) -> Conversion {
    let documents: Vec<_> = inputs.iter().map(|input| read(&input.text)).collect();
    let (objects, mut items) = sort(inputs, &documents, &options.namespace, &WANTED);
    let (mut manifests, mut steps) = (Vec::new(), Vec::new());
    for object in &objects {
        let mut ledger = object.open();
        let (manifest, promotes) = pipeline(object, &mut ledger);
        if promotes {
            let (namespace, name) = (&object.namespace, &object.name);
            steps.push(format!(
                "# {namespace}/{name}: after the pipeline-controller is stopped, set promotion.suspend to false"
            ));
        }
        manifests.push(manifest);
        items.extend(ledger.finish().into_iter().map(|item| (object.order, item)));
    }
    conversion(manifests, steps, items)
}

/// Returns the Pipeline, and whether it promotes anything.
fn pipeline(object: &Object<'_>, ledger: &mut Ledger<'_>) -> (Manifest, bool) {
    let labels = labels(ledger);
    ledger.put(List::Ignored, "metadata", "not copied");
    let app = app(ledger);
    let whole = promotion(ledger, "spec.promotion", None);
    let number = ledger.get("spec.environments").and_then(Value::as_array).map_or(0, Vec::len);
    if number == 0 || number > MOST {
        ledger.error("spec.environments", format!("must have at least 1 and at most {MOST} environments"));
    }
    let mut environments = Vec::new();
    for at in 0..number {
        let field = entry("spec.environments", at);
        let mut environment = json!({"name": copied(ledger, &below(&field, "name")), "targets": targets(ledger, &field)});
        if let Some(own) = promotion(ledger, &below(&field, "promotion"), whole.as_ref()) {
            environment["promotion"] = own;
        }
        environments.push(environment);
    }
    let own = environments.iter().any(|environment| environment.get("promotion").is_some());
    let promotes = whole.is_some() || own;
    let mut spec = json!({"appRef": app, "environments": environments});
    if let Some(promotion) = whole {
        spec["promotion"] = promotion;
    }
    (manifest(&object.namespace, &object.name, &labels, &spec), promotes)
}

/// Copies the labels. Notifications can select by them.
fn labels(ledger: &mut Ledger<'_>) -> Map<String, Value> {
    let mut labels = Map::new();
    for (field, name, value) in ledger.named("metadata.labels") {
        if name.contains(OF_FLUX) {
            ledger.put(List::Ignored, &field, "a label of Flux");
        } else {
            ledger.put(List::Converted, &field, "the same label");
            labels.insert(name.to_owned(), json!(value));
        }
    }
    labels
}

/// Copies a text that must be there. The schema of Relaybook checks it.
fn copied(ledger: &mut Ledger<'_>, field: &str) -> Value {
    let Some(text) = ledger.text(field) else {
        ledger.error(field, "must be a text");
        return Value::Null;
    };
    ledger.put(List::Converted, field, "the same field");
    json!(text)
}

/// Returns the application. A version that Flux does not serve any more becomes the one that it serves.
fn app(ledger: &mut Ledger<'_>) -> Value {
    let field = "spec.appRef.apiVersion";
    let given = ledger.text(field).unwrap_or_default();
    let (group, version) = given.split_once('/').unwrap_or_default();
    let served = SERVED.into_iter().find(|(of, served)| *of == group && *served != version);
    let version = match served {
        Some((_, served)) => {
            ledger.put(List::Differs, field, format!("{group}/{served}, because newer versions of Flux serve no {version}"));
            json!(format!("{group}/{served}"))
        }
        None => copied(ledger, field),
    };
    json!({"apiVersion": version, "kind": copied(ledger, "spec.appRef.kind"), "name": copied(ledger, "spec.appRef.name")})
}

fn targets(ledger: &mut Ledger<'_>, environment: &str) -> Vec<Value> {
    let list = below(environment, "targets");
    let number = ledger.get(&list).and_then(Value::as_array).map_or(0, Vec::len);
    if number == 0 {
        ledger.error(&list, "an environment requires a target; add one, or remove the environment");
    }
    let target = |at| {
        let field = entry(&list, at);
        let mut target = json!({"namespace": copied(ledger, &below(&field, "namespace"))});
        let cluster = below(&field, "clusterRef");
        if ledger.get(&cluster).is_some() {
            let mut reference = Map::new();
            for name in ["apiVersion", "kind", "name", "namespace"] {
                let field = below(&cluster, name);
                if ledger.get(&field).is_some() {
                    reference.insert(name.to_owned(), copied(ledger, &field));
                }
            }
            target["clusterRef"] = Value::Object(reference);
        }
        target
    };
    (0..number).map(target).collect()
}

/// Returns how revisions are promoted. `whole`: the promotion of the pipeline, whose strategy an environment without one has. It is suspended.
fn promotion(ledger: &mut Ledger<'_>, field: &str, whole: Option<&Value>) -> Option<Value> {
    ledger.get(field)?;
    let nested = below(field, "strategy");
    let base = if ledger.get(&nested).is_some() { nested } else { field.to_owned() };
    let pull_request = below(&base, "pull-request");
    let notification = below(&base, "notification");
    let strategy = if ledger.get(&pull_request).is_some() {
        Some(requested(ledger, &pull_request))
    } else if ledger.get(&notification).is_some() {
        let text = "a Notification with the trigger PromotionRequested sends the request; Alerts of Flux do not get it";
        ledger.put(List::Differs, &notification, text);
        Some(json!({"notification": {}}))
    } else {
        whole.map(|whole| whole["strategy"].clone())
    };
    let text =
        "Relaybook watches, so it needs no webhook of promotions; for approvals by a hook, see docs/promotions-hooks.md";
    ledger.put(List::NoCounterpart, &below(&base, "secretRef"), text);
    let manual = below(field, "manual");
    let is_manual = ledger.get(&manual).and_then(Value::as_bool);
    if is_manual.is_some() {
        ledger.put(
            List::Differs,
            &manual,
            "`relaybook approve`, or an edit of the Promotion, approves; the webhook does not",
        );
    }
    let Some(strategy) = strategy else {
        ledger.error(&base, "has no strategy; add pull-request or notification, or remove promotion");
        return None;
    };
    let mut promotion = json!({"suspend": true, "strategy": strategy});
    if is_manual == Some(true) {
        promotion["manual"] = json!(true);
    }
    Some(promotion)
}

/// Returns the strategy for pull requests. What Relaybook cannot do by itself is left to a receiver of `PromotionRequested`.
fn requested(ledger: &mut Ledger<'_>, field: &str) -> Value {
    let [type_, url, secret] = ["type", "url", "secretRef.name"].map(|name| below_all(field, name));
    let (forge, address) = (ledger.text(&type_).unwrap_or("github"), ledger.text(&url).unwrap_or_default());
    if address.split_once("://").is_some_and(|(scheme, rest)| scheme.starts_with("http") && rest.contains('@')) {
        ledger.error(&url, "has user information; move it to the Secret of secretRef, and remove it");
    }
    let why = if !FORGES.contains(&forge) {
        Some((&type_, "Relaybook opens no pull requests at this forge"))
    } else if !address.starts_with("https://") {
        Some((&url, "Relaybook uses Git by https only"))
    } else {
        None
    };
    if let Some((at, why)) = why {
        let text =
            format!("{why}; the strategy is notification: a receiver of PromotionRequested, such as a CI job, promotes");
        ledger.put(List::NoCounterpart, at, text);
        ledger.put(List::NoCounterpart, field, "the strategy notification has no such field");
        return json!({"notification": {}});
    }
    let text = "each promotion has a pull request of its own, which is closed when it is not needed any more";
    ledger.put(List::Differs, &type_, text);
    let mut strategy = json!({"type": forge, "url": copied(ledger, &url)});
    for name in ["baseBranch", "branch"] {
        let field = below(field, name);
        if let Some(branch) = ledger.text(&field) {
            strategy["baseBranch"] = json!(branch);
            ledger.put(List::Converted, &field, "baseBranch");
        }
    }
    if let Some(name) = ledger.text(&secret) {
        ledger.put(List::Converted, &secret, "the same Secret: token for the API, and username and password for Git");
        strategy["secretRef"] = json!({"name": name});
    }
    json!({"pullRequest": strategy})
}

/// Returns a field below another one, by a path with dots.
fn below_all(field: &str, path: &str) -> String {
    path.split('.').fold(field.to_owned(), |field, name| below(&field, name))
}
