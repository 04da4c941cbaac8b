//! Finds notifications that need a commit, for pipelines whose applications have none.
//!
//! In: a pipeline, and the content of the other files. Out: a finding if the revision of an application is never a commit, and a note if
//! it can be one. Manifests contain no revisions. The controller reports `CommitMissing` once it observes the revisions.

use std::collections::BTreeSet;

use kube::ResourceExt as _;

use super::pipelines::Files;
use super::sheet::FindingContext;
use super::{Report, Source};
use crate::api::Pipeline;
use crate::api::pipeline::target::targets;
use crate::api::values::refs::{AppRef, ConfigMapKey};
use crate::config::Given;
use crate::config::layers::{names, of_target};
use crate::manifests::{effective_notification, has_notification, layers_below};

/// What the revision of an application consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Revision {
    /// A version, which is not a commit.
    Version,
    /// The tags or digests of images, which can be commits.
    Images,
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
    let all = targets(&pipeline.spec, &files.options.cluster_name);
    if all.iter().all(|info| revision(&info.app).is_none()) {
        return;
    }
    let ours = files.notifications.keys().filter(|(of, _)| *of == namespace).map(|(_, name)| name.clone());
    let global = files.global.notifications().map(|(name, _)| name.clone());
    for name in names(&pipeline.spec).into_iter().chain(ours).chain(global).collect::<BTreeSet<_>>() {
        for (kind, without) in lacking(pipeline, &namespace, &name, files) {
            let subject = format!("notification {name} needs a commit, but the revision of a {kind} is");
            if without == Revision::Version {
                let remedy = "its chart version; set appRef.revisionPath to a field with a commit, or exclude the pipeline with \
                              pipelineSelector";
                report.findings.push(context.finding(
                    "spec.appRef".to_owned(),
                    format!("{subject} {remedy}"),
                    Source::Controller,
                ));
            } else {
                let of = format!("Pipeline {namespace}/{}", pipeline.name_any());
                report.notes.push(format!("{of}: {subject} the tag of its image, which may not be a commit"));
            }
        }
    }
}

/// Returns the kinds of applications that may lack the commit that a notification needs. Each kind has the content of its revisions.
fn lacking(pipeline: &Pipeline, namespace: &str, name: &str, files: Files<'_>) -> BTreeSet<(String, Revision)> {
    let notification = files.notifications.get(&(namespace.to_owned(), name.to_owned()));
    let notification = notification.and_then(|(_, notification)| notification.as_ref());
    let Some(below) = layers_below(files.global, pipeline, name, notification) else { return BTreeSet::new() };
    let text = |key: &ConfigMapKey| files.texts.text(key);
    let given = Given { allow_http: files.options.allow_http, text: &text };
    let infos = targets(&pipeline.spec, &files.options.cluster_name);
    let mut known: Vec<(Vec<_>, bool)> = Vec::new();
    let mut lacking = BTreeSet::new();
    for info in &infos {
        let Some(without) = revision(&info.app) else { continue };
        let layers = [below.clone(), of_target(&pipeline.spec, namespace, name, info)].concat();
        let of_same = known.iter().find(|(of, _)| *of == layers).map(|(_, needs)| *needs);
        let needs = of_same.unwrap_or_else(|| {
            let sending = || effective_notification(&layers, namespace, &given).sending;
            has_notification(&layers) && sending().is_ok_and(|sending| sending.needs_commit)
        });
        if of_same.is_none() {
            known.push((layers, needs));
        }
        if needs {
            lacking.insert((info.app.kind.clone(), without));
        }
    }
    lacking
}
