//! Checks the markers of values in all files: their form, and whether the environments exist that they name.
//!
//! In: the texts of the files, and their documents. Out: findings, and a note if no Pipeline is among the files, or if an environment that
//! Relaybook itself promotes to has no marker in them.

use std::collections::HashSet;

use serde_json::Value;

use super::{File, FileDocument, Finding, Report, Source};
use relaybook_api::{GROUP, VERSION};
use relaybook_settings::config::nearest;
use relaybook_settings::setters::{EnvironmentRef, scan};

/// A Pipeline of the files.
struct Known<'a> {
    /// `None`: the Pipeline names no namespace, so it can be in any.
    namespace: Option<&'a str>,
    name: &'a str,
    /// `None`: the environments cannot be read. That is a finding of its own.
    environments: Option<Vec<&'a str>>,
    /// The environments whose strategy sets values in files.
    edited: Vec<&'a str>,
}

impl Known<'_> {
    fn is_of(&self, marker: &EnvironmentRef) -> bool {
        self.name == marker.pipeline && self.namespace.is_none_or(|namespace| namespace == marker.namespace)
    }

    /// Returns a note about each environment whose strategy sets values in files, and that no marker names. The files with its markers can be
    /// in another repository.
    fn unmarked(&self, marked: &[EnvironmentRef]) -> Vec<String> {
        let is_marked = |name: &str| marked.iter().any(|marker| self.is_of(marker) && marker.environment == name);
        let note = |name: &&str| {
            let namespace = self.namespace.map_or_else(String::new, |namespace| format!("{namespace}/"));
            format!(
                "Pipeline {namespace}{}: no setter among the files is for environment {name}, whose strategy sets values in files",
                self.name
            )
        };
        self.edited.iter().filter(|name| !is_marked(name)).map(note).collect()
    }
}

/// Adds the problems of all markers. Files that are not YAML have a finding or a note already.
pub(super) fn check(files: &[File], all: &[FileDocument<'_>], unread: &HashSet<&str>, report: &mut Report) {
    let known = pipelines(all);
    let (mut unchecked, mut marked) = (0, Vec::new());
    for file in files.iter().filter(|file| !unread.contains(file.name.as_str())) {
        let found = scan(&file.text);
        for problem in &found.problems {
            report.findings.push(finding(&file.name, problem.line, problem.error.to_string()));
        }
        for setter in &found.setters {
            if known.is_empty() {
                unchecked += 1;
            } else if let Some(message) = unknown(&setter.environment, &known) {
                report.findings.push(finding(&file.name, setter.line, message));
            }
        }
        marked.extend(found.setters.into_iter().map(|setter| setter.environment));
    }
    if !marked.is_empty() {
        report.notes.extend(known.iter().flat_map(|pipeline| pipeline.unmarked(&marked)));
    }
    if unchecked > 0 {
        report.notes.push(format!("environments of setters were not checked ({unchecked}): no Pipeline is among the files"));
    }
}

fn pipelines<'a>(all: &'a [FileDocument<'_>]) -> Vec<Known<'a>> {
    let documents = all.iter().map(|file_document| &file_document.document);
    let ours = documents.filter(|d| d.kind() == "Pipeline" && d.api_version() == format!("{GROUP}/{VERSION}"));
    ours.map(|document| {
        let environments = document.value["spec"]["environments"].as_array();
        Known {
            namespace: document.value["metadata"]["namespace"].as_str(),
            name: document.name(),
            environments: environments.map(|all| all.iter().filter_map(|one| one["name"].as_str()).collect()),
            edited: edited(&document.value["spec"]),
        }
    })
    .collect()
}

/// Returns the environments that a spec promotes to by a commit or a pull request.
fn edited(spec: &Value) -> Vec<&str> {
    let sets_values = |policy: &Value| ["commit", "pullRequest"].iter().any(|name| policy["strategy"][name].is_object());
    let environments = spec["environments"].as_array().into_iter().flatten().skip(1);
    let edited = environments.filter(|one| sets_values(one.get("promotion").unwrap_or(&spec["promotion"])));
    edited.filter_map(|one| one["name"].as_str()).collect()
}

/// Returns the message about an environment that the Pipelines do not have.
fn unknown(marker: &EnvironmentRef, known: &[Known<'_>]) -> Option<String> {
    let of_marker: Vec<_> = known.iter().filter(|pipeline| pipeline.is_of(marker)).collect();
    let EnvironmentRef { namespace, pipeline, environment } = marker;
    if of_marker.is_empty() {
        let full = |of: &Known<'_>| format!("{}/{}", of.namespace.unwrap_or(namespace), of.name);
        let names: Vec<_> = known.iter().map(full).collect();
        let meant = nearest(&format!("{namespace}/{pipeline}"), names.iter().map(String::as_str));
        let meant = meant.map_or_else(String::new, |name| format!("; did you mean {name}?"));
        return Some(format!("the marker names Pipeline {namespace}/{pipeline}, which is not among the files{meant}"));
    }
    let environments =
        of_marker.iter().map(|pipeline| pipeline.environments.as_deref()).collect::<Option<Vec<_>>>()?.concat();
    if environments.contains(&environment.as_str()) {
        return None;
    }
    let instead = match nearest(environment, environments.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("its environments: {}", environments.join(", ")),
    };
    Some(format!(
        "the marker names environment {environment}, which Pipeline {namespace}/{pipeline} does not have; {instead}"
    ))
}

fn finding(file: &str, line: u64, message: String) -> Finding {
    let (kind, name, field) = (String::new(), String::new(), String::new());
    Finding { file: file.to_owned(), line, kind, name, field, message, source: Source::Setter }
}
