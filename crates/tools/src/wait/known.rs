//! What the status of a pipeline shows about the targets of one environment.
//!
//! In: a pipeline, an environment, and a revision. Out: each target with what it has to do with the revision ([`targets`]), or why that is not
//! known. Pure.
//!
//! The settled state of a target counts, not `status`. `status` also changes when a controller only checks an object again, and when a Pod
//! restarts. Without an observation, the settled state is that of the past, so it does not count then.

use super::revision::Requested;
use super::words::{message, name};
use relaybook_api::pipeline::source::FleetCluster;
use relaybook_api::pipeline::{ClusterStatus, Environment, TargetStatus};
use relaybook_api::values::refs::ClusterRef;
use relaybook_api::{Change, LogSubject, Pipeline, PipelineStatus, Status};
use relaybook_core::promotion::pair::{is_elsewhere, is_whole, refused};

/// What a target has to do with the revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// It runs the revision.
    Runs,
    /// It has failed to run the revision.
    Failed,
    /// It tries to run the revision.
    Tries,
    /// It runs or tries another revision.
    Other,
    /// Its state is not known; with the reason.
    Unseen(String),
}

/// One target.
pub(super) struct Seen<'a> {
    /// Its status.
    pub(super) target: &'a TargetStatus,
    /// Its name without that of the environment. Without the name of the cluster if that is the local one, which the pipeline does not name.
    pub(super) place: String,
    /// What it has to do with the revision.
    pub(super) view: View,
}

/// Returns why the status does not describe an environment as the spec has it. A problem of another environment does not count.
pub(super) fn unprocessed(pipeline: &Pipeline, environment: &str) -> Option<String> {
    let processed = |status: &&PipelineStatus| status.observed_generation == pipeline.metadata.generation;
    let Some(status) = pipeline.status.as_ref().filter(processed) else {
        return Some("the pipeline controller has not processed the spec yet".to_owned());
    };
    let refused = refused(status).filter(|ready| !is_elsewhere(ready, pipeline, environment))?;
    Some(format!("the Pipeline is not ready: {}: {}", name(&refused.reason), message(&refused.message)))
}

/// Returns the targets of an environment, at least one, or why they are not known. A target of `targetsFrom` whose object is gone is none.
pub(super) fn targets<'a>(
    pipeline: &'a Pipeline,
    environment: &Environment,
    requested: &Requested,
) -> Result<Vec<Seen<'a>>, String> {
    let status = pipeline.status.as_ref();
    let known = status.and_then(|status| status.environments.iter().find(|known| known.name == environment.name));
    let Some((status, known)) = status.zip(known.filter(|known| is_whole(environment, known))) else {
        return Err(format!("not every target of {} is observed yet", name(&environment.name)));
    };
    let counted = known.targets.iter().filter(|target| target.generated.is_none() || !target.is_gone());
    let seen = |target: &'a TargetStatus| {
        let place = place(pipeline, &environment.name, target);
        let view = view(status, target, &place, requested);
        Seen { target, place, view }
    };
    let all: Vec<_> = counted.map(seen).collect();
    if all.is_empty() {
        return Err(format!("targetsFrom of {} selects no object", name(&environment.name)));
    }
    Ok(all)
}

fn place(pipeline: &Pipeline, environment: &str, target: &TargetStatus) -> String {
    if let Some(generated) = &target.generated {
        let rest = generated.name.strip_prefix(environment).and_then(|rest| rest.strip_prefix('/'));
        return name(rest.unwrap_or(&generated.name));
    }
    let app = &target.cluster_app_ref;
    let cluster = app.cluster_ref.as_ref().map(ClusterRef::full_name);
    let own = Some(&app.name).filter(|name| **name != pipeline.spec.app_ref.name).cloned();
    let parts: Vec<_> = cluster.into_iter().chain([app.namespace.clone()]).chain(own).collect();
    name(&parts.join("/"))
}

fn view(status: &PipelineStatus, target: &TargetStatus, place: &str, requested: &Requested) -> View {
    if let Some(cluster) = offline(status, target) {
        return View::Unseen(format!("cluster {} of {place} is offline", name(&cluster.cluster_ref.full_name())));
    }
    let Some(settled) = &target.settled else { return View::Unseen(format!("{place} is not observed yet")) };
    let is_requested = requested.matches(&settled.revision);
    match (target.status, settled.status) {
        (Status::Unknown, _) => View::Unseen(format!("{place} cannot be observed: {}", cause(target))),
        (Status::NotFound, _) | (_, Status::NotFound) => View::Unseen(format!("the object of {place} does not exist")),
        (Status::Terminating, _) => View::Unseen(format!("the object of {place} is being deleted")),
        (_, Status::Current) if is_requested => View::Runs,
        (_, Status::Failed) if is_requested => View::Failed,
        (_, Status::InProgress) if is_requested => View::Tries,
        _ => View::Other,
    }
}

/// Returns why a target has its status.
pub(super) fn cause(target: &TargetStatus) -> String {
    match (target.message.as_str(), target.reason.as_str()) {
        ("", "") => "it gives no reason".to_owned(),
        ("", reason) => name(reason),
        (text, _) => message(text),
    }
}

/// Returns the cluster of a target if it is offline.
fn offline<'a>(status: &'a PipelineStatus, target: &TargetStatus) -> Option<&'a ClusterStatus> {
    let fleet = target.generated.as_ref().and_then(|generated| generated.fleet_cluster.as_ref());
    let fleet = fleet.map(FleetCluster::reference);
    let is_its =
        |cluster: &ClusterRef| [target.cluster_app_ref.cluster_ref.as_ref(), fleet.as_ref()].contains(&Some(cluster));
    status.clusters.iter().find(|cluster| !cluster.reachable && is_its(&cluster.cluster_ref))
}

/// Returns the changes of the targets of an environment that are in the log, with the names of the targets.
pub(super) fn changes<'a>(pipeline: &'a Pipeline, environment: &str) -> impl Iterator<Item = (&'a str, &'a Change)> {
    let log = pipeline.status.as_ref().and_then(|status| status.log.as_ref());
    log.into_iter().flat_map(|log| &log.changes).filter_map(move |change| {
        let LogSubject::Target(name) = LogSubject::parse(&change.subject) else { return None };
        Some((name.strip_prefix(environment)?.strip_prefix('/')?, change))
    })
}

/// Returns all revisions that the status names: those of the environment, and those of the pipeline.
pub(super) fn revisions<'a>(pipeline: &'a Pipeline, environment: &str) -> (Vec<&'a str>, Vec<&'a str>) {
    let mut own = Vec::new();
    let mut all = Vec::new();
    for known in pipeline.status.iter().flat_map(|status| &status.environments) {
        let of_target = |target: &'a TargetStatus| {
            let settled = target.settled.iter().flat_map(|settled| [Some(&settled.revision), settled.current.as_ref()]);
            [&target.revision, &target.attempted_revision].into_iter().chain(settled.flatten())
        };
        let promoted = known.promotion.iter().map(|promotion| &promotion.revision);
        let found = known.targets.iter().flat_map(of_target).chain(promoted).map(String::as_str);
        let found: Vec<_> = found.filter(|revision| !revision.is_empty()).collect();
        if known.name == environment {
            own.clone_from(&found);
        }
        all.extend(found);
    }
    (own, all)
}
