//! The manifests for a configuration. Pure.
//!
//! In: what a Notification sends, and what the pipelines record. Out: manifests.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::gotemplate::{Needs, Recipient};
use super::slug;
use crate::init::{Manifest, yaml};
use relaybook_api::values::names::hash;
use relaybook_api::{GROUP, VERSION};

/// The label of the pipelines, by which Notifications select them.
const LABEL: &str = "argo-kind";
/// Maximum number of namespaces of a generator.
const NAMESPACES: usize = 64;
/// Maximum length of the name of a Notification.
const LONGEST: usize = 63;

/// A Notification.
#[derive(Debug)]
pub(super) struct Notification {
    pub(super) service: String,
    pub(super) recipient: Recipient,
    pub(super) send: Vec<String>,
    /// Which one it is of those that send the same.
    pub(super) part: usize,
    pub(super) triggers: Vec<Value>,
    pub(super) endpoint: Map<String, Value>,
    pub(super) template: Value,
}

impl Notification {
    /// Returns a name that no other Notification has.
    fn name(&self, taken: &mut BTreeSet<String>) -> String {
        let to = match &self.recipient {
            Recipient::Constant(to) => Some(to).filter(|to| !to.is_empty()),
            Recipient::Annotation(_) => None,
        };
        let words = [Some(&self.service), to].into_iter().flatten();
        let words: Vec<String> = words.chain(&self.send).map(|word| slug(word)).collect();
        let plain = words.join("-");
        let whole = format!("{:?} {:?} {:?} {}", self.service, self.recipient, self.send, self.part);
        let short: String = hash(&[whole.as_str()]).chars().take(8).collect();
        let begin: String = plain.chars().take(LONGEST - 9).collect();
        let longer = format!("{}-{short}", begin.trim_end_matches('-'));
        let name = if plain.len() <= LONGEST && !taken.contains(&plain) { plain } else { longer };
        taken.insert(name.clone());
        name
    }

    /// Returns the manifest.
    pub(super) fn manifest(&self, namespace: &str, no_triggers: bool, taken: &mut BTreeSet<String>) -> Manifest {
        let name = self.name(taken);
        let mut spec = Map::new();
        spec.insert("pipelineSelector".to_owned(), json!({"matchLabels": {LABEL: "Application"}}));
        spec.insert("triggers".to_owned(), if no_triggers { json!([]) } else { json!(self.triggers) });
        spec.insert("endpoint".to_owned(), Value::Object(self.endpoint.clone()));
        spec.insert("template".to_owned(), self.template.clone());
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "Notification",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        });
        let mut text = yaml(&object);
        if no_triggers {
            let mut comment = "  # To switch, stop the notifications controller of Argo CD. Then remove the empty list and the `# ` before the lines below this \
                 one.\n  # triggers:\n"
                .to_owned();
            for trigger in &self.triggers {
                for line in yaml(&json!([trigger])).lines() {
                    let _ = writeln!(comment, "  #   {line}");
                }
            }
            text = text.replacen("  triggers: []\n", &format!("{comment}  triggers: []\n"), 1);
        }
        let types: BTreeSet<&str> = self.triggers.iter().filter_map(|trigger| trigger["type"].as_str()).collect();
        let types =
            if no_triggers { "no triggers yet".to_owned() } else { types.into_iter().collect::<Vec<_>>().join(", ") };
        let about = format!("Notification {namespace}/{name}: {types}, to the service {}", self.service);
        Manifest { file: format!("{namespace}.notification-{name}.yaml"), about, text }
    }
}

/// Returns the `PipelineSet` of the Applications.
pub(super) fn set(namespace: &str, namespaces: &BTreeSet<String>, needs: &Needs) -> Manifest {
    let all: Vec<&String> = namespaces.iter().collect();
    let places = if all.len() > NAMESPACES { json!(["*"]) } else { json!(all) };
    let mut record = Map::new();
    for (field, names) in [("labels", &needs.labels), ("annotations", &needs.annotations), ("fields", &needs.fields)] {
        if !names.is_empty() {
            record.insert(field.to_owned(), json!(names));
        }
    }
    let mut spec = Map::new();
    spec.insert(
        "appRef".to_owned(),
        json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "name": "{{name}}"}),
    );
    spec.insert("environments".to_owned(), json!([{"name": "all", "targets": [{"namespace": "{{namespace}}"}]}]));
    if !record.is_empty() {
        spec.insert("record".to_owned(), Value::Object(record));
    }
    let name = "argocd-applications";
    let object = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "PipelineSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "generators": [{"objects": {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "namespaces": places}}],
            "template": {
                "metadata": {"name": "application.{{namespace}}.{{name}}", "labels": {LABEL: "Application"}},
                "spec": spec,
            },
        },
    });
    let all: Vec<&str> = namespaces.iter().map(String::as_str).collect();
    let about = format!("PipelineSet {namespace}/{name}: a Pipeline for each Application of {}", all.join(", "));
    Manifest { file: format!("{namespace}.pipelineset-{name}.yaml"), about, text: yaml(&object) }
}
