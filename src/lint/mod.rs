//! Checks manifests against everything that the API server and the controllers require, without a cluster. Pure.
//!
//! In: the texts of files, and the settings of Pennant ([`Options`]). Out: a [`Report`] with every [`Finding`]: what the API server would
//! reject (the schema and its rules, unknown fields, names), and what the controllers would report in a condition.
//!
//! `definition` checks the schema, `rules` its CEL rules, `metadata` the names. `controller` and `layers` check what the controllers check,
//! `global` the global configuration among the files, `pipelines` the layers of pipelines. `commits` checks whether templates get the
//! commits that they need. Objects of other groups are skipped, except ConfigMaps with templates.

mod commits;
mod controller;
mod definition;
mod global;
mod layers;
mod metadata;
mod pipelines;
mod rules;
mod sheet;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::api::global::KEY;
use crate::api::values::refs::ObjectName;
use crate::api::{GROUP, Notification, Pipeline, VERSION};
use crate::config::nearest;
use crate::manifests::{ConfigMaps, Document, read};
use definition::Definitions;
use pipelines::{Files, Notifications};
use sheet::Sheet;

/// The settings of the Pennant installation that the manifests are for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The namespace of objects that name no namespace.
    pub namespace: String,
    /// The ConfigMap of the global configuration. A ConfigMap that names no namespace is in `namespace`. A file that is not an object
    /// counts as this ConfigMap's content.
    pub config_map: ObjectName,
    /// The name of the local cluster.
    pub cluster_name: String,
    /// Whether `http` is allowed to any host.
    pub allow_http: bool,
    /// Whether targets can be in other namespaces than their pipeline.
    pub cross_namespace_refs: bool,
}

/// The result of the checks.
#[derive(Debug, Default)]
pub struct Report {
    /// In the order of files and lines.
    pub findings: Vec<Finding>,
    /// What could not be checked.
    pub notes: Vec<String>,
    /// How many objects were checked.
    pub objects: usize,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file, as it was named.
    pub file: String,
    /// The line of the field, or of the nearest field that contains it. 0 if no line is known.
    pub line: u64,
    /// Kind of the object; empty if there is none.
    pub kind: String,
    /// Name of the object; empty if there is none.
    pub name: String,
    /// The field; empty if the problem is about the whole object.
    pub field: String,
    /// What is wrong with it, and what to write instead.
    pub message: String,
    /// The source of the finding.
    pub source: Source,
}

/// The component that would report the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The API server, by the schema.
    Schema,
    /// The API server, by a rule of the schema.
    Rule,
    /// A controller of Pennant, after the API server has accepted the object.
    Controller,
}

/// A CRD of Pennant that cannot be used. This is a bug, which a test would find.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the definition of {kind} cannot be used: {problem}")]
pub struct LintError {
    kind: String,
    problem: String,
}

/// Field, message and source, before the position is known.
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

/// A file to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The name that findings show.
    name: String,
    /// The content of the file.
    text: String,
    /// Whether the file was found in a folder. Such a file can contain anything, so only what belongs to Pennant is checked.
    is_found: bool,
}

impl File {
    /// A file that the user named.
    #[must_use]
    pub fn named(name: &str, text: impl Into<String>) -> Self {
        Self { name: name.to_owned(), text: text.into(), is_found: false }
    }

    /// A file that was found in a folder. `None`: the file cannot contain anything to check or to refer to. Every object of Pennant names
    /// the group.
    #[must_use]
    pub fn found(name: &str, text: String) -> Option<Self> {
        let is_global = Path::new(name).file_name().is_some_and(|name| name == KEY);
        let words = [GROUP, "ConfigMap", "defaults", "notifications"];
        let is_read = is_global || words.iter().any(|word| text.contains(word));
        is_read.then(|| Self { name: name.to_owned(), text, is_found: true })
    }
}

/// A document, and the file that contains it.
#[derive(Debug)]
struct Written<'a> {
    file: &'a str,
    /// See [`File`].
    is_found: bool,
    /// The whole file.
    text: &'a str,
    document: Document,
}

impl Report {
    /// Adds findings of layers. It skips findings that are already reported, because the same layers are also checked with other layers
    /// over them.
    fn add(&mut self, findings: Vec<Finding>) {
        if findings.is_empty() {
            return;
        }
        let key = |f: &Finding| (f.file.clone(), f.line, f.kind.clone(), f.name.clone(), f.field.clone());
        let told: HashSet<_> = self.findings.iter().map(key).collect();
        self.findings.extend(findings.into_iter().filter(|finding| !told.contains(&key(finding))));
    }
}

/// Checks files.
pub fn lint(files: &[File], options: &Options) -> Result<Report, LintError> {
    let mut report = Report::default();
    let mut all = Vec::new();
    for File { name, text, is_found } in files {
        for document in read(text) {
            match document {
                Ok(document) => all.push(Written { file: name, is_found: *is_found, text, document }),
                // For example, a Helm template.
                Err(broken) if *is_found && !text.contains(GROUP) => {
                    let (line, problem) = (broken.place.line, broken.problem);
                    report
                        .notes
                        .push(format!("{name}:{line}: skipped: not YAML, and it does not contain {GROUP} ({problem})"));
                    break;
                }
                Err(broken) => report.findings.push(not_yaml(name, broken.place.line, &broken.problem)),
            }
        }
    }
    let texts = texts(&all, &options.namespace);
    let found = global::find(&all, options, &mut report);
    if let Some(found) = &found {
        found.check(options, &texts, &mut report);
    }
    let global = found.as_ref().and_then(|found| found.global.clone()).unwrap_or_default();
    let notifications = notifications(&all, options);
    let known = Files { notifications: &notifications, global: &global, found: found.as_ref(), texts: &texts, options };
    objects(&all, known, &mut report)?;
    let place = |finding: &Finding| files.iter().position(|file| file.name == finding.file);
    report.findings.sort_by_cached_key(|finding| (place(finding), finding.line));
    Ok(report)
}

/// Checks Pipelines and Notifications.
fn objects(all: &[Written<'_>], files: Files<'_>, report: &mut Report) -> Result<(), LintError> {
    let definitions = Definitions::known()?;
    let mut pipelines = Vec::new();
    for written in all {
        let document = &written.document;
        if document.api_version().split('/').next() != Some(GROUP) {
            continue;
        }
        report.objects += 1;
        let sheet = Sheet::of(written);
        let (said, object) = match (misplaced(document), definitions.of(document.kind())) {
            (None, Some(definition)) => {
                let object = definition.as_taken(&document.value);
                (definition.check(document, &object), Some(object))
            }
            (said, _) => (Vec::from_iter(said), None),
        };
        match object {
            Some(object) if document.kind() == "Pipeline" => pipelines.push((sheet, object, said)),
            Some(object) => {
                let more = controller::notification(&object, sheet, &said, files, &mut report.notes);
                report.findings.extend(said.into_iter().map(|said| finding(&sheet, said)));
                report.add(more);
            }
            None => report.findings.extend(said.into_iter().map(|said| finding(&sheet, said))),
        }
    }
    // Problems of layers are reported after the problems of the objects below them.
    for (sheet, object, mut said) in pipelines {
        match controller::parse::<Pipeline>(&object, &files.options.namespace) {
            Ok(pipeline) => {
                said.extend(controller::pipeline(&pipeline, files.options));
                let fields: Vec<_> = said.iter().map(|(field, ..)| field.clone()).collect();
                pipelines::check(&pipeline, sheet, &fields, files, report);
                commits::check(&pipeline, sheet, files, report);
            }
            // An object that does not fit the type does not fit the schema either. That problem is already reported.
            Err(_) if !said.is_empty() => {}
            Err(misfit) => said.push(misfit),
        }
        report.findings.extend(said.into_iter().map(|said| finding(&sheet, said)));
    }
    Ok(())
}

/// The Notifications that can be below a pipeline's layers. If several have the same name, the last one is applied.
fn notifications<'a>(all: &'a [Written<'a>], options: &Options) -> Notifications<'a> {
    let is_ours = |written: &&Written<'_>| {
        let document = &written.document;
        document.kind() == "Notification" && document.api_version() == format!("{GROUP}/{VERSION}")
    };
    let place = |written: &'a Written<'a>| {
        let namespace = written.document.value["metadata"]["namespace"].as_str().unwrap_or(&options.namespace);
        let parsed = controller::parse::<Notification>(&written.document.value, &options.namespace).ok();
        ((namespace.to_owned(), written.document.name().to_owned()), (Sheet::of(written), parsed))
    };
    all.iter().filter(is_ours).map(place).collect()
}

fn texts(all: &[Written<'_>], namespace: &str) -> ConfigMaps {
    let mut texts = ConfigMaps::default();
    let documents = all.iter().map(|written| &written.document);
    for document in documents.filter(|d| (d.api_version(), d.kind()) == ("v1", "ConfigMap")) {
        // A ConfigMap that the API server would reject is ignored.
        if let Ok(object) = serde_json::from_value(document.value.clone()) {
            texts.insert(object, namespace);
        }
    }
    texts
}

/// Reports an object of our group that people do not write.
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

fn not_yaml(file: &str, line: u64, problem: &str) -> Finding {
    let sheet = Sheet { file, kind: "", name: "", document: None, lines: sheet::Lines::OfFile };
    sheet.finding_at(line, String::new(), format!("not YAML: {problem}"), Source::Schema)
}

fn finding(sheet: &Sheet<'_>, (field, message, source): Said) -> Finding {
    sheet.finding(field, message, source)
}
