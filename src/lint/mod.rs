//! Manifests held against all that is asked of them, without a cluster; pure.
//!
//! In: the texts of files, and how Pennant is run ([`Options`]). Out: a [`Report`] with every [`Finding`]: what the API server
//! would refuse (the schema and its rules, fields that it does not know, names), and what the controllers would say afterwards
//! in a condition.
//!
//! `definition` knows the schema, `rules` its CEL, `metadata` the names, `controller` what comes after the API server. Objects
//! of other groups are passed over; ConfigMaps among them give templates. What else is to be checked, the global configuration
//! say, becomes a step beside `objects`.

mod controller;
mod definition;
mod metadata;
mod rules;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::Serialize;

use crate::api::{GROUP, VERSION};
use crate::config::nearest;
use crate::manifests::{ConfigMaps, Document, read};
use definition::Definitions;

/// How Pennant is run where the manifests go.
#[derive(Clone, Debug)]
pub struct Options {
    /// The namespace of what names none.
    pub namespace: String,
    /// What the local cluster is called.
    pub cluster_name: String,
    /// `http` is allowed to any host.
    pub allow_http: bool,
    /// Targets may be in other namespaces than their pipeline.
    pub cross_namespace_refs: bool,
}

/// What there is to say.
#[derive(Debug, Default)]
pub struct Report {
    /// In the order of files and lines.
    pub findings: Vec<Finding>,
    /// What could not be checked.
    pub notes: Vec<String>,
    /// How many objects were checked.
    pub objects: usize,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file, as it was named.
    pub file: String,
    /// The line of the field, or of the nearest that holds it; 0 where none is known.
    pub line: u64,
    /// Kind of the object; empty where there is none.
    pub kind: String,
    /// Its name; empty where there is none.
    pub name: String,
    /// The field; empty if it is about the whole object.
    pub field: String,
    /// What is wrong with it, and what to write instead.
    pub message: String,
    /// Who says so.
    pub source: Source,
}

/// Who says that something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The API server, by the schema.
    Schema,
    /// The API server, by a rule of the schema.
    Rule,
    /// A controller of Pennant, afterwards.
    Controller,
}

/// A definition of our own that cannot be used: a bug, which a test would find.
#[derive(Debug, thiserror::Error)]
#[error("the definition of {kind} cannot be used: {problem}")]
pub struct LintError {
    kind: String,
    problem: String,
}

/// Field, message and who says so, before it is known where that is.
type Said = (String, String, Source);

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        if !self.kind.is_empty() {
            let name = if self.name.is_empty() { "without a name" } else { &self.name };
            write!(f, "{} {name}: ", self.kind)?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

/// Checks files: pairs of a name and what stands in it.
pub fn lint(files: &[(String, String)], options: &Options) -> Result<Report, LintError> {
    let mut report = Report::default();
    let mut documents = Vec::new();
    for (file, text) in files {
        for document in read(text) {
            match document {
                Ok(document) => documents.push((file, document)),
                Err(broken) => {
                    report.findings.push(finding(
                        file,
                        None,
                        broken.place.line,
                        (String::new(), not_yaml(&broken.problem), Source::Schema),
                    ));
                }
            }
        }
    }
    objects(&documents, options, &mut report)?;
    let place = |finding: &Finding| files.iter().position(|(file, _)| *file == finding.file);
    report.findings.sort_by_cached_key(|finding| (place(finding), finding.line));
    Ok(report)
}

/// Pipelines and Notifications.
fn objects(documents: &[(&String, Document)], options: &Options, report: &mut Report) -> Result<(), LintError> {
    let definitions = Definitions::new()?;
    let texts = texts(documents, &options.namespace);
    for (file, document) in documents {
        if document.api_version().split('/').next() != Some(GROUP) {
            continue;
        }
        report.objects += 1;
        let said = match (misplaced(document), definitions.of(document.kind())) {
            (None, Some(definition)) => {
                let object = definition.as_taken(&document.value);
                let mut said = definition.check(document, &object);
                let more = controller::check(document.kind(), &object, options, &texts, &said, &mut report.notes);
                said.extend(more);
                said
            }
            (said, _) => Vec::from_iter(said),
        };
        let findings = said.into_iter().map(|said| finding(file, Some(document), document.line(&said.0), said));
        report.findings.extend(findings);
    }
    Ok(())
}

fn texts(documents: &[(&String, Document)], namespace: &str) -> ConfigMaps {
    let mut texts = ConfigMaps::default();
    for (_, document) in documents.iter().filter(|(_, d)| (d.api_version(), d.kind()) == ("v1", "ConfigMap")) {
        // One that the API server would not understand holds nothing.
        if let Ok(object) = serde_json::from_value(document.value.clone()) {
            texts.insert(object, namespace);
        }
    }
    texts
}

/// Whether an object of our group is none that people write.
fn misplaced(document: &Document) -> Option<Said> {
    let known = format!("{GROUP}/{VERSION}");
    if document.api_version() != known {
        return Some(("apiVersion".to_owned(), format!("there is no such version; write {known}"), Source::Schema));
    }
    let message = match document.kind() {
        "Pipeline" | "Notification" => return None,
        "Delivery" => "Pennant alone writes it; what is sent again is told with pennant redeliver".to_owned(),
        kind => match nearest(kind, ["Pipeline", "Notification"]) {
            Some(nearest) => format!("there is no such kind; did you mean {nearest}?"),
            None => "there is no such kind; there are Pipeline and Notification".to_owned(),
        },
    };
    Some(("kind".to_owned(), message, Source::Schema))
}

fn not_yaml(problem: &str) -> String {
    format!("not YAML: {problem}")
}

fn finding(file: &str, document: Option<&Document>, line: u64, (field, message, source): Said) -> Finding {
    let word = |word: fn(&Document) -> &str| document.map_or_else(String::new, |d| word(d).to_owned());
    Finding { file: file.to_owned(), line, kind: word(Document::kind), name: word(Document::name), field, message, source }
}
