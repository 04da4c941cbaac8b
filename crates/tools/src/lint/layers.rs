//! Checks layers as the dispatcher does: the layers of a Notification, of the global configuration, or of a pipeline.
//!
//! In: layers, each with its position. Out: findings, each at the position of the field to fix. The reported field is removed and the
//! rest is checked again, so that all problems are reported at once.

use std::cell::RefCell;

use serde_json::{Map, Value, json};

use super::sheet::FindingContext;
use super::{Finding, Options, Source};
use relaybook_api::values::refs::ConfigMapKey;
use relaybook_settings::config::layers::{Folded, Layer, Source as Author, fold};
use relaybook_settings::config::{Given, Problem, Text, url_note};
use relaybook_settings::manifests::field::{below, is_within, steps};
use relaybook_settings::manifests::{ConfigMaps, effective_notification};

/// The field with the CA certificates. If they are in a ConfigMap that is not among the files, no valid text can replace them.
const AUTHORITIES: &str = "spec.endpoint.tls.caFrom";
/// Maximum number of passes. Each pass removes the fields that it reports.
const MOST: usize = 20;

/// A layer and its position.
#[derive(Clone, Debug)]
pub(super) struct PositionedLayer<'a> {
    pub(super) layer: Layer,
    pub(super) context: FindingContext<'a>,
    /// The field of the object that contains the layer.
    pub(super) field: String,
}

/// The layers of one notification, least specific first. Without a layer, there are no findings.
#[derive(Clone, Debug)]
pub(super) struct LayerStack<'a> {
    pub(super) layers: Vec<PositionedLayer<'a>>,
    /// The namespace of the pipelines that the layers are resolved for.
    pub(super) namespace: String,
    /// Whether missing fields can come from layers that are not known.
    pub(super) partial: bool,
}

/// A problem, with the field as in a Notification.
struct Blame {
    /// The layer that set the field. `None`: no layer set it.
    author: Option<Author>,
    field: String,
    message: String,
    is_missing: bool,
}

impl LayerStack<'_> {
    /// Finds the problems of the layers. Problems of fields in `removed` are not reported.
    pub(super) fn check(
        &self,
        options: &Options,
        texts: &ConfigMaps,
        mut removed: Vec<String>,
        notes: &mut Vec<String>,
    ) -> Vec<Finding> {
        let mut layers: Vec<_> = self.layers.iter().map(|positioned| positioned.layer.clone()).collect();
        let mut found = Vec::new();
        let notes = RefCell::new(notes);
        for _ in 0..MOST {
            let folded = fold(&layers, |_| {}).unwrap_or_default();
            let text = |key: &ConfigMapKey| config_map_text(key, &folded, texts, &mut notes.borrow_mut());
            let given = Given { allow_http: options.allow_http, text: &text };
            let effective = effective_notification(&layers, &self.namespace, &given);
            let problems: Vec<_> = [effective.intake.err(), effective.sending.err()].into_iter().flatten().collect();
            if problems.iter().any(Problem::is_unknown) && !removed.iter().any(|removed| removed == AUTHORITIES) {
                removed.push(remove_field(layers.iter_mut().map(|layer| &mut layer.value), AUTHORITIES));
                continue;
            }
            let each = problems.into_iter().flat_map(Problem::each);
            let mut fresh: Vec<_> = each.map(|problem| Blame::of(problem, &folded)).collect();
            fresh.retain(|blame| !removed.iter().any(|removed| is_within(&blame.field, removed)));
            if fresh.is_empty() {
                if found.is_empty() {
                    let mut notes = notes.borrow_mut();
                    let note = self.url_note(&folded).filter(|note| !notes.contains(note));
                    notes.extend(note);
                }
                break;
            }
            for blame in fresh {
                removed.push(remove_field(layers.iter_mut().map(|layer| &mut layer.value), &blame.field));
                found.extend(self.finding(blame));
            }
        }
        found
    }

    /// Returns a note if the URL does not show where requests go.
    fn url_note(&self, folded: &Folded) -> Option<String> {
        let (field, message) = url_note(&folded.value)?;
        self.finding(Blame::at(field.to_owned(), message, folded)).map(|finding| finding.to_string())
    }

    /// Creates a finding at the position to fix: the layer that set the field, or else the most specific layer.
    fn finding(&self, blame: Blame) -> Option<Finding> {
        if self.partial && blame.is_missing {
            return None;
        }
        let wrote = |author: &Author| self.layers.iter().find(|positioned| positioned.layer.source == *author);
        let positioned = blame.author.as_ref().and_then(wrote).or(self.layers.last())?;
        let field = format!("{}{}", positioned.field, blame.field.strip_prefix("spec").unwrap_or_default());
        Some(positioned.context.finding(field, blame.message, Source::Controller))
    }
}

/// Returns the content of a key of a ConfigMap. A ConfigMap that is not among the files can be in the cluster, so this adds a note. If the
/// key contains the template, this returns a valid template instead.
fn config_map_text(key: &ConfigMapKey, folded: &Folded, texts: &ConfigMaps, notes: &mut Vec<String>) -> Text {
    let text = texts.text(key);
    if text != Text::NoConfigMap {
        return text;
    }
    let note = format!("ConfigMap {} is not among the files; its content was not checked", key.object());
    if !notes.contains(&note) {
        notes.push(note);
    }
    let template = folded.value.get("template").map(|template| &template["configMapKeyRef"]);
    let is_template = template.is_some_and(|t| t["name"] == key.name.as_str() && t["key"] == key.key.as_str());
    if is_template { Text::Found("{}".into()) } else { Text::Unknown }
}

impl Blame {
    fn of(problem: Problem, folded: &Folded) -> Self {
        let problem = match problem {
            Problem::Layer { problem, .. } => *problem,
            problem => problem,
        };
        let (field, message) = blamed(&problem.to_string());
        let is_missing = matches!(problem, Problem::Incomplete { .. } | Problem::ParametersMissing(_));
        if let Problem::CredentialOrigin(message) = problem {
            // The layer that sets another receiver must set its own credentials.
            let leads = ["/endpoint/url", "/endpoint/urlFrom", "/endpoint/tls"];
            let author = leads.iter().filter_map(|at| folded.author(at)).max().cloned();
            return Self { author, field: credential(&field), message, is_missing };
        }
        if is_missing { Self { author: None, field, message, is_missing } } else { Self::at(field, message, folded) }
    }

    /// A problem of a field, in the layer that set it.
    fn at(field: String, message: String, folded: &Folded) -> Self {
        Self { author: folded.author(&pointer(&field)).cloned(), field, message, is_missing: false }
    }
}

/// Returns the field of the whole credential, because a credential without its reference is useless.
fn credential(field: &str) -> String {
    let whole =
        ["spec.endpoint.auth", "spec.endpoint.headersFrom", "spec.endpoint.signing", "spec.endpoint.tls.clientCertificate"];
    whole.into_iter().find(|whole| is_within(field, whole)).unwrap_or(field).to_owned()
}

/// Converts a field of a Notification to a JSON Pointer into its spec. The pointer ends at a list, because one layer sets a whole list.
fn pointer(field: &str) -> String {
    let path = steps(field).take_while(|step| step.parse::<usize>().is_err());
    path.skip(1).flat_map(|step| ["/".to_owned(), step.replace('~', "~0").replace('/', "~1")]).collect()
}

/// Splits the text of a problem into field and message. The text begins with the field if the problem has one.
fn blamed(problem: &str) -> (String, String) {
    let end = problem.find([' ', ',', ':']).unwrap_or(problem.len());
    let (field, message) = problem.split_at(end);
    if field == "spec" || field.starts_with("spec.") {
        let message = message.trim_start_matches([':', ',', ' ']);
        (field.to_owned(), message.to_owned())
    } else {
        let field = match field {
            "ConfigMap" => "spec.template.configMapKeyRef",
            "missing" => "spec.template.parameters",
            _ => "spec",
        };
        (field.to_owned(), problem.to_owned())
    }
}

/// Removes a field of `spec` from all layers, or replaces it with a harmless value. For a field in a list, it removes the whole list.
/// Returns the removed field.
pub(super) fn remove_field<'v>(specs: impl Iterator<Item = &'v mut Map<String, Value>>, field: &str) -> String {
    let mut specs: Vec<_> = specs.collect();
    let has_url = specs.iter().any(|spec| spec.get("endpoint").is_some_and(|endpoint| endpoint.get("url").is_some()));
    let url = json!({"endpoint": {"url": "https://example.com/"}});
    let path: Vec<&str> = steps(field).take_while(|step| step.parse::<usize>().is_err()).collect();
    let (away, instead) = match path.get(1..).unwrap_or_default() {
        ["endpoint", "url"] => (vec!["endpoint", "url"], Some(url)),
        ["endpoint"] => (vec!["endpoint", "urlFrom"], Some(url).filter(|_| !has_url)),
        ["template"] | ["template", "builtin" | "inline" | "configMapKeyRef", ..] => {
            (vec!["template"], Some(json!({"template": {"inline": {"body": "{}"}}})))
        }
        path => (path.to_vec(), None),
    };
    for spec in &mut specs {
        remove(spec, &away);
    }
    if let (Some(first), Some(instead)) = (specs.first_mut(), instead) {
        let mut whole = Value::Object(std::mem::take(*first));
        json_patch::merge(&mut whole, &instead);
        if let Value::Object(fields) = whole {
            **first = fields;
        }
    }
    path.iter().fold(String::new(), |path, step| below(&path, step))
}

pub(super) fn remove(fields: &mut Map<String, Value>, path: &[&str]) {
    match path {
        [] => {}
        [name] => drop(fields.remove(*name)),
        [name, rest @ ..] => {
            if let Some(Value::Object(inner)) = fields.get_mut(*name) {
                remove(inner, rest);
            }
        }
    }
}
