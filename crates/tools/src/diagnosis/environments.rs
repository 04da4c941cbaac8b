//! What runs where: one row for each environment of a pipeline, or for each of its targets. Pure.

use kube::ResourceExt as _;
use serde::Serialize;

use relaybook_api::pipeline::{EnvironmentStatus, GeneratedTarget, LastSent, TargetStatus};
use relaybook_api::values::refs::ClusterRef;
use relaybook_api::{LogSubject, Pipeline, Status, Time};

/// What runs in one environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentRow {
    /// The namespace of the pipeline.
    pub namespace: String,
    /// The pipeline.
    pub pipeline: String,
    /// The environment.
    pub environment: String,
    /// The number of ready targets.
    pub ready: usize,
    /// The number of targets.
    pub targets: usize,
    /// The worst status of its targets. Absent before the first observation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Whether what runs in a target differs from what is declared.
    pub drifted: bool,
    /// The revision that the target with the worst status tries to run, or runs.
    pub revision: String,
    /// The revision that runs there, if it is another one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub runs: String,
    /// Since when that target has its status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// When a receiver last answered 2xx about the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sent_time: Option<Time>,
    /// The notification that the receiver answered.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_sent_by: String,
}

/// What runs in one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetRow {
    /// Its environment.
    pub environment: String,
    /// Its cluster. Empty for the cluster of Relaybook.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The namespace of its application object.
    pub target_namespace: String,
    /// Its application object, as `KIND NAME`.
    pub app: String,
    /// Its status.
    pub status: Status,
    /// The revision that it tries to run, or runs.
    pub revision: String,
    /// The revision that runs, if it is another one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub runs: String,
    /// Since when it has its status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Why it has its status.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Returns the environments of these pipelines: first those of the pipeline whose targets are worst. The environments of a pipeline stay in
/// their order.
#[must_use]
pub fn environments(pipelines: &[Pipeline]) -> Vec<EnvironmentRow> {
    let of_each =
        pipelines.iter().map(|pipeline| pipeline.spec.environments.iter().map(|e| row(pipeline, &e.name)).collect());
    let mut all: Vec<Vec<EnvironmentRow>> = of_each.collect();
    let worst = |rows: &[EnvironmentRow]| rows.iter().map(|row| row.status.map_or(u8::MAX, Status::badness)).min();
    all.sort_by_cached_key(|rows| {
        let name = rows.first().map(|row| (row.namespace.clone(), row.pipeline.clone()));
        (worst(rows).unwrap_or(u8::MAX), name)
    });
    all.into_iter().flatten().collect()
}

fn row(pipeline: &Pipeline, name: &str) -> EnvironmentRow {
    let status = pipeline.status.as_ref();
    let known: Option<&EnvironmentStatus> = status.and_then(|status| status.environments.iter().find(|e| e.name == name));
    let targets: &[TargetStatus] = known.map_or(&[], |known| &known.targets);
    let worst = targets.iter().min_by_key(|target| target.status.badness());
    let sent = status.and_then(|status| status.dispatched.as_ref()).map_or(&[][..], |dispatched| &dispatched.last_sent);
    let sent = sent.iter().filter(|sent| is_about(sent, name)).max_by_key(|sent| sent.time);
    let (revision, runs) = worst.map_or_else(Default::default, revisions);
    EnvironmentRow {
        namespace: pipeline.namespace().unwrap_or_default(),
        pipeline: pipeline.name_any(),
        environment: name.to_owned(),
        ready: targets.iter().filter(|target| target.ready).count(),
        targets: targets.len(),
        status: worst.map(|target| target.status),
        drifted: targets.iter().any(|target| target.drifted),
        revision,
        runs,
        since: worst.and_then(|target| target.last_transition_time),
        last_sent_time: sent.map(|sent| sent.time),
        last_sent_by: sent.map_or_else(String::new, |sent| sent.notification.clone()),
    }
}

fn is_about(sent: &LastSent, environment: &str) -> bool {
    match LogSubject::parse(&sent.subject) {
        LogSubject::Target(name) => name.split('/').next() == Some(environment),
        LogSubject::Environment(name) => name == environment,
        _ => false,
    }
}

/// Returns the targets of a pipeline: in the order of the environments, and the worst of each first.
#[must_use]
pub fn targets(pipeline: &Pipeline) -> Vec<TargetRow> {
    let environments = pipeline.status.iter().flat_map(|status| &status.environments);
    let of_each = environments.flat_map(|environment| {
        let mut targets: Vec<_> = environment.targets.iter().collect();
        targets.sort_by_key(|target| target.status.badness());
        targets.into_iter().map(move |target| target_row(pipeline, &environment.name, target))
    });
    of_each.collect()
}

fn target_row(pipeline: &Pipeline, environment: &str, target: &TargetStatus) -> TargetRow {
    let (app, (revision, runs)) = (&target.cluster_app_ref, revisions(target));
    let generated = target.generated.as_ref().filter(|generated| names_cluster(pipeline, environment, generated));
    let generated = generated.map(|generated| generated.cluster.clone());
    let cluster = generated.or_else(|| app.cluster_ref.as_ref().map(ClusterRef::full_name)).unwrap_or_default();
    TargetRow {
        environment: environment.to_owned(),
        cluster,
        target_namespace: app.namespace.clone(),
        app: format!("{} {}", app.kind, app.name),
        status: target.status,
        revision,
        runs,
        since: target.last_transition_time,
        message: target.message.clone(),
    }
}

/// Whether the recorded cluster of a target is that of Fleet, or is read from its object. Otherwise it is the one that contains the object.
/// An Application of Argo CD can deploy to another one.
fn names_cluster(pipeline: &Pipeline, environment: &str, generated: &GeneratedTarget) -> bool {
    let environment = pipeline.spec.environments.iter().find(|one| one.name == environment);
    let entry = environment.zip(usize::try_from(generated.from).ok()).and_then(|(of, from)| of.targets_from.get(from));
    let objects = entry.and_then(|entry| entry.objects.as_ref());
    generated.fleet_cluster.is_some() || objects.is_some_and(|objects| objects.cluster.is_some())
}

/// Returns the revision that the status of a target is about, and the one that runs, if it is another one.
fn revisions(target: &TargetStatus) -> (String, String) {
    let is_trying = matches!(target.status, Status::Failed | Status::InProgress);
    if !is_trying || target.attempted_revision.is_empty() || target.attempted_revision == target.revision {
        return (target.revision.clone(), String::new());
    }
    (target.attempted_revision.clone(), target.revision.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pipeline(name: &str, prod: &[Value]) -> Pipeline {
        let dispatched = json!({"lastSent": [
            {"subject": "target/prod/in-cluster/y", "time": "2026-01-01T00:00:00Z", "notification": "chat"},
            {"subject": "environment/prod", "time": "2026-01-02T00:00:00Z", "notification": "audit"},
            {"subject": "target/production/in-cluster/y", "time": "2026-01-03T00:00:00Z", "notification": "other"},
        ]});
        serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": name, "namespace": "team-a"},
            "spec": {"environments": [{"name": "dev"}, {"name": "prod"}]},
            "status": {"environments": [{"name": "prod", "targets": prod}], "dispatched": dispatched},
        }))
        .unwrap()
    }

    fn target(status: &str, runs: &str, tries: &str) -> Value {
        json!({"clusterAppRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "y"},
               "status": status, "ready": status == "Current", "revision": runs, "attemptedRevision": tries})
    }

    #[test]
    fn the_pipeline_with_the_worst_target_is_first() {
        let (current, failed) = (target("Current", "2", "2"), target("Failed", "1", "2"));
        let all = environments(&[pipeline("a", &[]), pipeline("b", &[current.clone(), failed]), pipeline("c", &[current])]);
        let told: Vec<_> = all.iter().map(|row| (row.pipeline.as_str(), row.environment.as_str(), row.status)).collect();
        let expected = [
            ("b", "dev", None),
            ("b", "prod", Some(Status::Failed)),
            ("c", "dev", None),
            ("c", "prod", Some(Status::Current)),
            ("a", "dev", None),
            ("a", "prod", None),
        ];
        assert_eq!(told, expected);
        let prod = &all[1];
        assert_eq!((prod.ready, prod.targets, prod.revision.as_str(), prod.runs.as_str()), (1, 2, "2", "1"));
        assert_eq!((prod.last_sent_by.as_str(), all[0].last_sent_time), ("audit", None));
    }

    #[test]
    fn the_worst_target_of_an_environment_is_first() {
        let pipeline =
            pipeline("a", &[target("Current", "2", "2"), target("InProgress", "", "2"), target("Failed", "1", "1")]);
        let rows = targets(&pipeline);
        let told: Vec<_> = rows.iter().map(|row| (row.status, row.revision.as_str(), row.runs.as_str())).collect();
        assert_eq!(told, [(Status::Failed, "1", ""), (Status::InProgress, "2", ""), (Status::Current, "2", "")]);
        assert_eq!((rows[0].app.as_str(), rows[0].target_namespace.as_str()), ("Deployment web", "y"));
    }

    #[test]
    fn a_selected_object_has_a_cluster_only_if_its_cluster_is_known() {
        let of = |objects: Value, cluster: &str, fleet: Value| {
            let mut target = target("Current", "1", "1");
            target["generated"] = json!({"from": 0, "name": "prod/c/y/web", "cluster": cluster, "fleetCluster": fleet});
            let mut pipeline = pipeline("a", &[target]);
            let environment = json!({"name": "prod", "targetsFrom": [{"objects": objects}]});
            pipeline.spec.environments = vec![serde_json::from_value(environment).unwrap()];
            targets(&pipeline).remove(0).cluster
        };
        let objects = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application"});
        let mut named = objects.clone();
        named["cluster"] = json!(".spec.destination.name");
        assert_eq!(of(objects.clone(), "in-cluster", Value::Null), "");
        assert_eq!(of(named, "eu-1", Value::Null), "eu-1");
        assert_eq!(of(objects, "fleet.eu-1", json!({"namespace": "fleet", "name": "eu-1"})), "fleet.eu-1");
    }
}
