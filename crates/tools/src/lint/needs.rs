//! Finds notifications that need a commit or a repository, for pipelines whose applications have none.
//!
//! In: a pipeline, and the content of the other files. Out: a finding if the revision of an application is never a commit, and a note if
//! it can be one. Manifests contain no revisions. The controller reports `CommitMissing` once it observes the revisions. Also a finding if a
//! built-in template lacks a parameter for the Git repository, and neither `spec.source`, nor an object of Fleet, nor an Application names one.
//! The controller reports `RepositoryMissing`.

use std::collections::BTreeSet;

use kube::ResourceExt as _;

use super::pipelines::Files;
use super::sheet::FindingContext;
use super::{Finding, Report, Source};
use relaybook_api::pipeline::target::{Entry, TargetInfo, possible_targets, targets};
use relaybook_api::values::kind::ObjectKind;
use relaybook_api::values::refs::{AppRef, ConfigMapKey};
use relaybook_api::{Notification, Pipeline};
use relaybook_settings::config::layers::{names, of_target};
use relaybook_settings::config::{Given, Sending, resolve};
use relaybook_settings::manifests::{effective_notification, has_notification, layers_below};

/// What the revision of an application consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Revision {
    /// A version, which is not a commit.
    Version,
    /// The tags or digests of images, which can be commits.
    Images,
}

/// What a notification needs, and a target lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lack {
    /// A commit: the kind of the application, and the content of its revisions.
    Commit(String, Revision),
    /// A repository: the parameters that name it. If there are none, the URL names it.
    Repository(Vec<String>),
}

fn revision(app: &AppRef) -> Option<Revision> {
    if app.revision_path.is_some() {
        return None;
    }
    let kind = app.object_kind().ok()?;
    match (kind.group(), kind.kind()) {
        ("helm.toolkit.fluxcd.io", "HelmRelease") => Some(Revision::Version),
        ("apps", "Deployment" | "StatefulSet" | "DaemonSet") => Some(Revision::Images),
        _ => None,
    }
}

/// Checks the targets of a pipeline.
pub(super) fn check(pipeline: &Pipeline, context: FindingContext<'_>, files: Files<'_>, report: &mut Report) {
    let namespace = pipeline.namespace().unwrap_or_default();
    let of = format!("Pipeline {namespace}/{}", pipeline.name_any());
    let ours = files.notifications.keys().filter(|(of, _)| *of == namespace).map(|(_, name)| name.clone());
    let global = files.global.notifications().map(|(name, _)| name.clone());
    for name in names(&pipeline.spec).into_iter().chain(ours).chain(global).collect::<BTreeSet<_>>() {
        for lack in lacking(pipeline, &namespace, &name, files) {
            match lack {
                Lack::Commit(kind, Revision::Version) => {
                    let message = format!(
                        "notification {name} needs a commit, but the revision of a {kind} is its chart version; set \
                         appRef.revisionPath to a field with a commit, or exclude the pipeline with pipelineSelector"
                    );
                    report.findings.push(context.finding("spec.appRef".to_owned(), message, Source::Controller));
                }
                Lack::Commit(kind, Revision::Images) => report.notes.push(format!(
                    "{of}: notification {name} needs a commit, but the revision of a {kind} is the tag of its image, which may \
                     not be a commit"
                )),
                Lack::Repository(parameters) => {
                    let known = files.notifications.get(&(namespace.clone(), name.clone())).map(|(known, _)| *known);
                    report.add(repository_missing(known, context, &name, &of, &parameters));
                }
            }
        }
    }
}

/// Returns a finding for each parameter that names a repository and has no value. `known`: the Notification, if it is among the files.
fn repository_missing(
    known: Option<FindingContext<'_>>,
    context: FindingContext<'_>,
    name: &str,
    of: &str,
    parameters: &[String],
) -> Vec<Finding> {
    let finding = |field: String, problem: &str| {
        let Some(known) = known else {
            let message = format!("notification {name}, {field}: {problem}");
            return context.finding("spec.environments".to_owned(), message, Source::Controller);
        };
        known.finding(field, format!("{problem}, and {of} has others"), Source::Controller)
    };
    if parameters.is_empty() {
        let problem = "the repository of the targets is not known; write it, or set spec.source of the Pipeline";
        return vec![finding("spec.endpoint.url".to_owned(), problem)];
    }
    let problem = "missing: set it, or spec.source of the Pipeline, because the repository of the targets is not known";
    parameters.iter().map(|parameter| finding(format!("spec.template.parameters.{parameter}"), problem)).collect()
}

/// Adds a note for a Notification that no Pipeline of the files uses, if only targets of Fleet have what it needs.
pub(super) fn note_unused(pipelines: &[Pipeline], files: Files<'_>, report: &mut Report) {
    let text = |key: &ConfigMapKey| files.texts.text(key);
    let given = Given { allow_http: files.options.allow_http, text: &text };
    for ((namespace, name), (_, notification)) in files.notifications {
        let is_used = |pipeline: &Pipeline| pipeline.namespace().as_ref() == Some(namespace);
        let Some(notification) = notification.as_ref().filter(|_| !pipelines.iter().any(is_used)) else { continue };
        for parameter in missing_parameters(notification, &given) {
            report.notes.push(format!(
                "Notification {name}: spec.template.parameters.{parameter} is missing; only Applications of Argo CD, targets that \
                 targetsFrom.fleet selects and Pipelines with spec.source have a repository. No Pipeline of namespace \
                 {namespace} is among the files"
            ));
        }
    }
}

fn missing_parameters(notification: &Notification, given: &Given<'_>) -> Vec<String> {
    let sending = resolve(notification, given).sending.ok();
    sending.and_then(|sending| sending.needs_source).unwrap_or_default()
}

/// Whether the pipeline names the Git repository of a target, or its application object can.
fn can_name_repository(pipeline: &Pipeline, info: &TargetInfo) -> bool {
    let kind = match info.entry {
        Entry::Listed(_) => info.app.object_kind(),
        Entry::Generated(index) => {
            let objects = pipeline.spec.environments[info.environment_index].targets_from[index].objects.as_ref();
            objects.map_or_else(|| info.app.object_kind(), |objects| ObjectKind::parse(&objects.api_version, &objects.kind))
        }
    };
    let is_application = |kind: ObjectKind| (kind.group(), kind.kind()) == ("argoproj.io", "Application");
    pipeline.spec.source.is_some() || kind.is_ok_and(is_application)
}

/// Returns what the targets of a pipeline may lack for a notification.
fn lacking(pipeline: &Pipeline, namespace: &str, name: &str, files: Files<'_>) -> BTreeSet<Lack> {
    let Some(below) = layers_below(files.global, pipeline, name, files.of(pipeline, name)) else { return BTreeSet::new() };
    let text = |key: &ConfigMapKey| files.texts.text(key);
    let given = Given { allow_http: files.options.allow_http, text: &text };
    let is_of_objects = |info: &TargetInfo| match info.entry {
        Entry::Listed(_) => true,
        Entry::Generated(index) => pipeline.spec.environments[info.environment_index].targets_from[index].objects.is_some(),
    };
    let infos = [targets(&pipeline.spec, &files.options.cluster_name), possible_targets(&pipeline.spec)].concat();
    let mut known: Vec<(Vec<_>, Option<Sending>)> = Vec::new();
    let mut lacking = BTreeSet::new();
    for info in infos.iter().filter(|info| is_of_objects(info)) {
        let layers = [below.clone(), of_target(&pipeline.spec, namespace, name, info)].concat();
        let at = known.iter().position(|(of, _)| *of == layers).unwrap_or_else(|| {
            let sending = || effective_notification(&layers, namespace, &given).sending.ok();
            let sending = if has_notification(&layers) { sending() } else { None };
            known.push((layers, sending));
            known.len() - 1
        });
        let Some(sending) = &known[at].1 else { continue };
        let without = revision(&info.app).filter(|_| sending.needs_commit);
        lacking.extend(without.map(|without| Lack::Commit(info.app.kind.clone(), without)));
        lacking.extend(sending.needs_source.clone().filter(|_| !can_name_repository(pipeline, info)).map(Lack::Repository));
    }
    lacking
}
