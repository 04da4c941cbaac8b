//! Checks manifests against everything that the API server and the controllers require, without a cluster. Pure.
//!
//! In: the texts of files, and the settings of Relaybook ([`Options`]). Out: a [`Report`] with every [`Finding`]: what the API server would
//! reject (the schema and its rules, unknown fields, names), and what the controllers would report in a condition.
//!
//! `definition` checks the schema, `rules` its CEL rules, `metadata` the names. `controller` and `layers` check what the controllers check,
//! `global` the global configuration among the files, `pipelines` the layers of pipelines. `needs` checks whether templates get the
//! commits and repositories that they need, `idle` whether names match something. `setters` checks the comments that mark values. `hooks`
//! checks the Secrets of hooks. Other objects of other groups are skipped, except ConfigMaps with templates.

mod controller;
mod definition;
mod global;
mod hooks;
mod idle;
mod layers;
mod metadata;
mod needs;
mod pipelines;
mod rules;
mod setters;
mod sheet;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use serde::Serialize;

use definition::Definitions;
use pipelines::{Files, Notifications};
use relaybook_api::global::KEY;
use relaybook_api::values::hook_keys::PREFIX;
use relaybook_api::{GROUP, Notification, ObjectName, Pipeline, VERSION};
use relaybook_core::pipeline::plan::unknowns;
use relaybook_settings::config::nearest;
use relaybook_settings::manifests::{ConfigMaps, Document, read};
use relaybook_settings::setters::is_candidate;
use sheet::FindingContext;

/// The settings of the Relaybook installation that the manifests are for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The namespace of objects that name no namespace.
    pub namespace: String,
    /// The ConfigMap of the global configuration. A ConfigMap that names no namespace is in `namespace`. A document that contains the
    /// global configuration itself counts as the content of this ConfigMap.
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
    /// The problems, in the order of files and lines.
    pub findings: Vec<Finding>,
    /// What could not be checked.
    pub notes: Vec<String>,
    /// How many objects were checked.
    pub objects: usize,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the file, as in [`File`].
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
    /// A controller of Relaybook, after the API server has accepted the object.
    Controller,
    /// `relaybook setters`, when it sets a value.
    Setter,
}

/// An invalid CRD of Relaybook. This is a bug, which a test would find.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the built-in CRD of {kind} is invalid: {problem}")]
pub struct LintError {
    kind: String,
    problem: String,
}

/// A problem without its position in the file: field, message and source.
type FieldProblem = (String, String, Source);

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        if !self.kind.is_empty() {
            let name = if self.name.is_empty() { "(no name)" } else { &self.name };
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
    /// Whether the file was found in a folder. Such a file can contain anything, so only what belongs to Relaybook is checked.
    is_found: bool,
}

impl File {
    /// Creates a file that the user named.
    #[must_use]
    pub fn named(name: &str, text: impl Into<String>) -> Self {
        Self { name: name.to_owned(), text: text.into(), is_found: false }
    }

    /// Creates a file that was found in a folder. Returns `None` if the file contains nothing to check or to refer to. An object of Relaybook
    /// contains the group, a ConfigMap its kind, a Secret of hooks the name of a key, and the global configuration one of its keys. Any
    /// object can contain setters.
    #[must_use]
    pub fn found(name: &str, text: String) -> Option<Self> {
        let is_global = Path::new(name).file_name().is_some_and(|name| name == KEY);
        let words = [GROUP, "ConfigMap", "defaults", "notifications", PREFIX];
        let is_read = is_global || words.iter().any(|word| text.contains(word)) || is_candidate(&text);
        is_read.then(|| Self { name: name.to_owned(), text, is_found: true })
    }
}

/// A document, and the file that contains it.
#[derive(Debug)]
struct FileDocument<'a> {
    file: &'a str,
    /// See [`File`].
    is_found: bool,
    /// The whole file.
    text: &'a str,
    document: Document,
}

impl Report {
    /// Adds findings of layers. Skips a field that already has a finding, because a layer is checked again with each set of layers that
    /// override it.
    fn add(&mut self, findings: Vec<Finding>) {
        if findings.is_empty() {
            return;
        }
        let key = |f: &Finding| (f.file.clone(), f.line, f.kind.clone(), f.name.clone(), f.field.clone());
        let told: HashSet<_> = self.findings.iter().map(key).collect();
        self.findings.extend(findings.into_iter().filter(|finding| !told.contains(&key(finding))));
    }
}

/// Checks files. Returns every problem that it finds.
pub fn lint(files: &[File], options: &Options) -> Result<Report, LintError> {
    let mut report = Report::default();
    let (mut all, mut unread) = (Vec::new(), HashSet::new());
    for File { name, text, is_found } in files {
        for document in read(text) {
            if document.is_err() {
                unread.insert(name.as_str());
            }
            match document {
                Ok(document) => all.push(FileDocument { file: name, is_found: *is_found, text, document }),
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
    setters::check(files, &all, &unread, &mut report);
    let place = |finding: &Finding| files.iter().position(|file| file.name == finding.file);
    report.findings.sort_by_cached_key(|finding| (place(finding), finding.line));
    Ok(report)
}

/// Checks Pipelines, `PipelineSets`, Notifications and Promotions.
fn objects(all: &[FileDocument<'_>], files: Files<'_>, report: &mut Report) -> Result<(), LintError> {
    let definitions = Definitions::known()?;
    let secrets = hooks::secrets(all, files.options);
    let mut pipelines = Vec::new();
    for file_document in all {
        let document = &file_document.document;
        if document.api_version().split('/').next() != Some(GROUP) {
            continue;
        }
        report.objects += 1;
        let context = FindingContext::of(file_document);
        let (problems, object) = match (misplaced(document), definitions.of(document.kind())) {
            (None, Some(definition)) => {
                let object = definition.as_validated(&document.value);
                (definition.check(document, &object), Some(object))
            }
            (problem, _) => (Vec::from_iter(problem), None),
        };
        match object {
            Some(object) if document.kind() == "Pipeline" => pipelines.push((context, object, problems)),
            Some(object) if document.kind() == "Promotion" => {
                let more = if problems.is_empty() { controller::promotion(&object, files.options) } else { None };
                report.findings.extend(problems.into_iter().chain(more).map(|problem| finding(&context, problem)));
            }
            Some(object) if document.kind() == "PipelineSet" => {
                let more = if problems.is_empty() { controller::pipeline_set(&object, files.options) } else { None };
                report.findings.extend(problems.into_iter().chain(more).map(|problem| finding(&context, problem)));
                let of = format!("PipelineSet {}", context.name);
                report.notes.push(format!("{of}: which pipelines it makes is not known without a cluster"));
            }
            Some(object) => {
                let more = controller::notification(&object, context, &problems, files, &mut report.notes);
                report.findings.extend(problems.into_iter().map(|problem| finding(&context, problem)));
                report.add(more);
            }
            None => report.findings.extend(problems.into_iter().map(|problem| finding(&context, problem))),
        }
    }
    // Problems of layers are reported after the problems of the objects below them.
    let mut read = Vec::new();
    for (context, object, mut problems) in pipelines {
        match controller::parse::<Pipeline>(&object, &files.options.namespace) {
            Ok(pipeline) => {
                problems.extend(controller::pipeline(&pipeline, files.options));
                let reported: Vec<_> = problems.iter().map(|(field, ..)| field.clone()).collect();
                problems.extend(controller::strategies(&pipeline, &reported, files.options));
                problems.extend(hooks::check(&pipeline, &secrets));
                let fields: Vec<_> = problems.iter().map(|(field, ..)| field.clone()).collect();
                pipelines::check(&pipeline, context, &fields, files, report);
                needs::check(&pipeline, context, files, report);
                let unknowns = unknowns(&pipeline.spec, &files.options.cluster_name);
                report.notes.extend(unknowns.into_iter().map(|unknown| format!("Pipeline {}: {unknown}", context.name)));
                if pipeline.spec.environments.iter().any(|environment| !environment.targets_from.is_empty()) {
                    let of = format!("Pipeline {}", context.name);
                    report.notes.push(format!("{of}: which objects targetsFrom selects is not known without a cluster"));
                }
                read.push(pipeline);
            }
            // An object that does not match the type does not match the schema either. That problem is already reported.
            Err(_) if !problems.is_empty() => {}
            Err(misfit) => problems.push(misfit),
        }
        report.findings.extend(problems.into_iter().map(|problem| finding(&context, problem)));
    }
    needs::note_unused(&read, files, report);
    idle::note_triggers(&read, all, files, report);
    Ok(())
}

/// Returns the Notifications that can be below a pipeline's layers. If several have the same name, the last one counts.
fn notifications<'a>(all: &'a [FileDocument<'a>], options: &Options) -> Notifications<'a> {
    let is_ours = |file_document: &&FileDocument<'_>| {
        let document = &file_document.document;
        document.kind() == "Notification" && document.api_version() == format!("{GROUP}/{VERSION}")
    };
    let place = |file_document: &'a FileDocument<'a>| {
        let namespace = file_document.document.value["metadata"]["namespace"].as_str().unwrap_or(&options.namespace);
        let parsed = controller::parse::<Notification>(&file_document.document.value, &options.namespace).ok();
        ((namespace.to_owned(), file_document.document.name().to_owned()), (FindingContext::of(file_document), parsed))
    };
    all.iter().filter(is_ours).map(place).collect()
}

fn texts(all: &[FileDocument<'_>], namespace: &str) -> ConfigMaps {
    let mut texts = ConfigMaps::default();
    let documents = all.iter().map(|file_document| &file_document.document);
    for document in documents.filter(|d| (d.api_version(), d.kind()) == ("v1", "ConfigMap")) {
        // A ConfigMap that the API server would reject is ignored.
        if let Ok(object) = serde_json::from_value(document.value.clone()) {
            texts.insert(object, namespace);
        }
    }
    texts
}

/// Returns the problem of an object of our group whose version or kind is unknown, or whose kind users do not create.
fn misplaced(document: &Document) -> Option<FieldProblem> {
    let known = format!("{GROUP}/{VERSION}");
    if document.api_version() != known {
        return Some(("apiVersion".to_owned(), format!("unknown version; write {known}"), Source::Schema));
    }
    let message = match document.kind() {
        "Pipeline" | "PipelineSet" | "Notification" | "Promotion" => return None,
        "Delivery" => "only Relaybook creates Deliveries; to send one again, use relaybook redeliver".to_owned(),
        kind => match nearest(kind, ["Pipeline", "PipelineSet", "Notification", "Promotion"]) {
            Some(nearest) => format!("unknown kind; did you mean {nearest}?"),
            None => "unknown kind; known kinds: Pipeline, PipelineSet, Notification, Promotion".to_owned(),
        },
    };
    Some(("kind".to_owned(), message, Source::Schema))
}

fn not_yaml(file: &str, line: u64, problem: &str) -> Finding {
    let context = FindingContext { file, kind: "", name: "", document: None, lines: sheet::Lines::OfFile };
    context.finding_at(line, String::new(), format!("not YAML: {problem}"), Source::Schema)
}

fn finding(context: &FindingContext<'_>, (field, message, source): FieldProblem) -> Finding {
    context.finding(field, message, source)
}
