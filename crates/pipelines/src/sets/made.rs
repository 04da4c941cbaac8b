//! Pure: the pipelines that sets have made, reduced to what decisions need.
//!
//! In: pipelines, from watches and from answers of the API server. Out: what each one is ([`Made`]), and whether something about it is left to
//! deliver.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use sha2::{Digest as _, Sha256};

use relaybook_api::pipeline::{Baseline, Environment, EnvironmentStatus};
use relaybook_api::pipeline_set::SourceRef;
use relaybook_api::{Pipeline, PipelineSpec, PipelineStatus, Status};

/// A pipeline of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Made {
    pub uid: String,
    pub version: String,
    pub source: SourceRef,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Uids of the owners.
    pub owners: Vec<String>,
    /// Hash of its spec, without the baseline.
    pub spec: String,
    pub baseline: Option<Baseline>,
    /// Whether everything that was there at its first reconcile is recorded.
    pub is_based: bool,
    /// Whether its targets are gone, and everything about them is delivered.
    pub is_done: bool,
    pub is_deleting: bool,
}

impl Made {
    /// Reduces a pipeline. `None`: no set has made it. Also returns the name of the set.
    pub(super) fn of(pipeline: &Pipeline) -> Option<(String, Self)> {
        let made_by = pipeline.spec.pipeline_set.clone()?;
        let metadata = &pipeline.metadata;
        let made = Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            version: metadata.resource_version.clone().unwrap_or_default(),
            source: made_by.source,
            labels: pipeline.labels().clone(),
            annotations: pipeline.annotations().clone(),
            owners: pipeline.owner_references().iter().map(|owner| owner.uid.clone()).collect(),
            spec: hash(&pipeline.spec),
            baseline: pipeline.spec.baseline,
            is_based: is_based(pipeline),
            is_done: is_done(pipeline),
            is_deleting: metadata.deletion_timestamp.is_some(),
        };
        Some((made_by.name, made))
    }

    /// Returns the pipeline without what its status says.
    pub(super) fn shape(&self) -> Self {
        Self { version: String::new(), is_based: false, is_done: false, is_deleting: false, ..self.clone() }
    }

    /// Whether a decision can depend on the difference to `other`.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let version = other.version.clone();
        Self { version, ..self.clone() } == *other
    }
}

/// Returns a hash of a spec, without the baseline.
pub(super) fn hash(spec: &PipelineSpec) -> String {
    let text = serde_json::to_string(&PipelineSpec { baseline: None, ..spec.clone() }).unwrap_or_default();
    hex::encode(Sha256::digest(text))[..32].to_owned()
}

/// Whether everything that was there at the first reconcile is recorded: each listed target, and each entry of `targetsFrom`.
fn is_based(pipeline: &Pipeline) -> bool {
    let empty = PipelineStatus::default();
    let status = pipeline.status.as_ref().unwrap_or(&empty);
    let is_known = |environment: &Environment| {
        let of = |known: &&EnvironmentStatus| known.name == environment.name;
        let Some(known) = status.environments.iter().find(of) else { return false };
        let listed = known.targets.iter().filter(|target| target.generated.is_none());
        let settled = listed.filter(|target| target.settled.is_some()).count();
        settled == environment.targets.len() && known.generated.len() == environment.targets_from.len()
    };
    is_observed(pipeline, status) && pipeline.spec.environments.iter().all(is_known)
}

fn is_observed(pipeline: &Pipeline, status: &PipelineStatus) -> bool {
    status.observed_generation.is_some() && status.observed_generation == pipeline.metadata.generation
}

/// Whether all targets are gone, and every notification has delivered everything about them, or given it up.
fn is_done(pipeline: &Pipeline) -> bool {
    let Some(status) = pipeline.status.as_ref().filter(|status| is_observed(pipeline, status)) else { return false };
    let targets = status.environments.iter().flat_map(|environment| &environment.targets);
    let mut settled = targets.filter_map(|target| target.settled.as_ref());
    if settled.any(|settled| settled.status != Status::NotFound) {
        return false;
    }
    let Some(newest) = status.log.as_ref().and_then(|log| log.changes.last()) else { return true };
    let Some(dispatched) = &status.dispatched else { return false };
    dispatched.cursors.iter().all(|cursor| cursor.serial >= newest.serial)
        && dispatched.armed.is_empty()
        && dispatched.pending_targets.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pipeline(status: &Value) -> Pipeline {
        let spec = json!({
            "appRef": {"apiVersion": "v1", "kind": "K", "name": "a"},
            "environments": [{"name": "all", "targets": [{"namespace": "n"}], "targetsFrom": [{"fleet": {"gitRepo": "a"}}]}],
            "pipelineSet": {"name": "set", "source": {"apiVersion": "v1", "kind": "K", "namespace": "n", "name": "a"}},
        });
        let metadata = json!({"name": "a", "namespace": "t", "uid": "u", "generation": 1, "resourceVersion": "7"});
        serde_json::from_value(json!({"apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline", "metadata": metadata, "spec": spec, "status": status}))
            .unwrap()
    }

    fn status(target: &str, generated: bool, rest: &Value) -> Value {
        let app = json!({"apiVersion": "v1", "kind": "K", "name": "a", "namespace": "n"});
        let entry = json!([{"from": 0, "selection": "x"}]);
        let mut status = json!({
            "observedGeneration": 1,
            "environments": [{
                "name": "all",
                "targets": [{"clusterAppRef": app, "status": target, "ready": false, "settled": {"status": target}}],
                "generated": if generated { entry } else { json!([]) },
            }],
        });
        status.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        status
    }

    #[test]
    fn a_pipeline_is_based_when_each_target_and_each_entry_is_recorded() {
        let is_based = |status| Made::of(&pipeline(&status)).unwrap().1.is_based;
        assert!(!is_based(json!({})));
        assert!(!is_based(status("Current", false, &json!({}))));
        assert!(is_based(status("Current", true, &json!({}))));
        assert!(!is_based(status("Current", true, &json!({"observedGeneration": 0}))));
    }

    #[test]
    fn a_pipeline_is_done_after_the_last_delivery_about_its_targets() {
        let is_done = |target: &str, rest: &Value| Made::of(&pipeline(&status(target, true, rest))).unwrap().1.is_done;
        let change = json!({"serial": 6, "subject": "target/x", "time": "2026-01-01T00:00:00Z",
            "from": {"status": "Current"}, "to": {"status": "NotFound"}});
        let log = json!({"first": 5, "serial": 6, "changes": [change]});
        let cursor = |serial| json!({"notification": "n", "uid": "u", "serial": serial});
        for (target, rest, expected) in [
            ("Current", json!({}), false),
            ("NotFound", json!({}), true),
            ("NotFound", json!({"observedGeneration": 0}), false),
            ("NotFound", json!({"log": log}), false),
            ("NotFound", json!({"log": log, "dispatched": {"cursors": []}}), true),
            ("NotFound", json!({"log": log, "dispatched": {"cursors": [cursor(5)]}}), false),
            ("NotFound", json!({"log": log, "dispatched": {"cursors": [cursor(6)]}}), true),
            ("NotFound", json!({"log": log, "dispatched": {"cursors": [cursor(6)], "pendingTargets": ["target/x"]}}), false),
        ] {
            assert_eq!(is_done(target, &rest), expected, "{target} {rest}");
        }
        let mut other = pipeline(&json!({}));
        other.spec.pipeline_set = None;
        assert!(Made::of(&other).is_none());
    }

    #[test]
    fn a_new_version_or_baseline_alone_is_no_difference() {
        let (_, made) = Made::of(&pipeline(&json!({}))).unwrap();
        assert!(made.is_like(&Made { version: "8".into(), ..made.clone() }));
        assert!(!made.is_like(&Made { is_done: true, ..made.clone() }));
        let spec = pipeline(&json!({})).spec;
        assert_eq!(hash(&spec), hash(&PipelineSpec { baseline: Some(Baseline::Absent), ..spec.clone() }));
    }
}
