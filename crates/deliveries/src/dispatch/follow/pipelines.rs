//! Pipelines from the dispatcher's watch. The facts that deliveries need are put into the pipeline index.

use std::collections::{HashMap, HashSet};

use kube::ResourceExt as _;

use super::{Followed, Key};
use crate::dispatch::Context;
use crate::dispatch::cursor::state::CursorState;
use crate::dispatch::derive::subjects::Subjects;
use crate::dispatch::status::refused::REASONS;
use crate::dispatch::wake;
use crate::outbox::send_gate::genuine::{History, Logged};
use crate::outbox::send_gate::index::{Cursors, PersistedCursor};
use crate::outbox::{PipelineFacts, Scope};
use relaybook_api::delivery::{PipelineRef, Reason};
use relaybook_api::pipeline::target::{TargetInfo, subjects, targets as targets_of_spec, targets_of};
use relaybook_api::pipeline::{Settled, TargetStatus};
use relaybook_api::values::refs::ClusterRef;
use relaybook_api::{Change, LogSubject, ObjectName, Pipeline};
use relaybook_core::meaning::transitions;
use relaybook_settings::render::names_commit;

impl Followed for Pipeline {
    type Memory = CursorState;

    fn key(of: ObjectName) -> Key {
        Key::Pipeline(of)
    }

    fn put(&self, ctx: &Context) -> bool {
        let uid = self.uid().unwrap_or_default();
        ctx.lease.assign_pipeline(self);
        let mut facts = facts(self, &ctx.cluster_name);
        facts.layer_namespace.take_if(|_| !ctx.config.cross_namespace_refs);
        let namespace = facts.namespace.clone();
        let index = &ctx.deliveries.pipeline_index;
        index.put_cursors(&uid, cursors(self));
        index.put_history(&uid, history(self, &ctx.cluster_name));
        let layers = ctx.config.put_pipeline(self, &facts);
        let have_changed = layers.is_some();
        if let Some(scope) = layers {
            ctx.check(scope);
        }
        if index.put_pipeline(&uid, facts) || have_changed {
            changed(ctx, uid, &namespace);
        }
        have_changed
    }

    fn remove(&self, ctx: &Context) -> bool {
        let uid = self.uid().unwrap_or_default();
        ctx.refused.forget(&uid);
        ctx.lease.deleted(&uid);
        let layered = ctx.config.remove_pipeline(&uid);
        let was_known = ctx.deliveries.pipeline_index.remove_pipeline(&uid);
        if was_known {
            changed(ctx, uid, &self.namespace().unwrap_or_default());
        }
        layered && was_known
    }
}

fn changed(ctx: &Context, uid: String, namespace: &str) {
    ctx.check(Scope::Pipeline(uid));
    wake::wake_notifications_of(ctx, namespace);
}

/// Returns the facts about a pipeline that deliveries need.
fn facts(pipeline: &Pipeline, cluster: &str) -> PipelineFacts {
    let status = pipeline.status.as_ref();
    let settled: Vec<_> = settled(pipeline, cluster).collect();
    let since = since(pipeline, cluster, &settled);
    let cursors = status.and_then(|s| s.dispatched.as_ref()).into_iter().flat_map(|d| &d.cursors);
    let namespace = pipeline.namespace().unwrap_or_default();
    let open = pipeline.spec.environments.iter().filter(|environment| !environment.targets_from.is_empty());
    PipelineFacts {
        uid: pipeline.uid().unwrap_or_default(),
        layer_namespace: pipeline.spec.other_layer_namespace(&namespace).map(str::to_owned),
        namespace,
        name: pipeline.name_any(),
        labels: pipeline.labels().clone().into(),
        annotations: pipeline.annotations().clone().into(),
        subjects: subjects(pipeline, cluster).into_iter().map(|s| (s.clone(), since.get(&s).copied())).collect(),
        commitless: without_commit(settled).collect(),
        open: open.map(|environment| environment.name.clone()).collect(),
        sourceless: sourceless(pipeline, cluster),
        logged: status.is_some_and(|s| s.log.is_some()),
        cursors: cursors.map(|c| (c.notification.clone(), c.uid.clone())).collect(),
        not_recorded: not_recorded(pipeline),
    }
}

/// Returns the notifications whose deliveries cannot be recorded, with reason and message.
fn not_recorded(pipeline: &Pipeline) -> HashMap<String, (Reason, String)> {
    let dispatched = pipeline.status.iter().filter_map(|status| status.dispatched.as_ref());
    let refused = dispatched.flat_map(|d| &d.notifications).filter_map(|one| {
        let reason = Reason::parse(&one.reason).filter(|reason| REASONS.contains(reason))?;
        Some((one.name.clone(), (reason, one.message.clone())))
    });
    refused.collect()
}

/// Returns the subjects of the targets whose last settled revision contains no commit.
pub(crate) fn commitless(pipeline: &Pipeline, cluster: &str) -> HashSet<String> {
    without_commit(settled(pipeline, cluster)).collect()
}

/// Returns the subjects of the targets whose Git repository is not known. Neither the pipeline nor an object of Fleet names it, and the object
/// cannot name one, or runs a revision whose repository it has not named. An Application that runs nothing may still name one.
pub(crate) fn sourceless(pipeline: &Pipeline, cluster: &str) -> HashSet<String> {
    if pipeline.spec.source.is_some() {
        return HashSet::new();
    }
    let known: HashMap<String, &Settled> = settled(pipeline, cluster).collect();
    let lacks = |target: TargetInfo| {
        let subject = target.log_subject().to_string();
        let known = known.get(&subject);
        let is_running = known.is_some_and(|known| known.current.as_ref().is_some_and(|current| !current.is_empty()));
        let is_named = target.source.is_some() || known.is_some_and(|known| !known.repository.is_empty());
        (!is_named && (is_running || !can_name_repository(&target))).then_some(subject)
    };
    targets_of(pipeline, cluster).into_iter().filter_map(lacks).collect()
}

/// Whether an object of this kind contains the address of its repository.
fn can_name_repository(target: &TargetInfo) -> bool {
    target.app.object_kind().is_ok_and(|kind| (kind.group(), kind.kind()) == ("argoproj.io", "Application"))
}

fn without_commit<'a>(settled: impl IntoIterator<Item = (String, &'a Settled)>) -> impl Iterator<Item = String> {
    let without = |settled: &Settled| !settled.revision.is_empty() && !names_commit(&settled.revision);
    let settled = settled.into_iter().filter(move |(_, settled)| without(settled)).map(|(subject, _)| subject);
    settled.filter(|subject| matches!(LogSubject::parse(subject), LogSubject::Target(_)))
}

/// Returns the subjects whose last deliveries are awaited, each as in the change log. Generated targets whose object is gone stay in the status
/// until then. A pipeline that a `PipelineSet` made stays until then, after all of its targets are gone.
pub(crate) fn awaited(pipeline: &Pipeline, cluster: &str) -> Vec<String> {
    let environments = || pipeline.status.iter().flat_map(|status| &status.environments);
    let targets = || environments().flat_map(|environment| &environment.targets);
    let generated = targets().filter(|target| target.is_gone());
    let generated = generated.filter_map(|target| Some(LogSubject::Target(&target.generated.as_ref()?.name).to_string()));
    if pipeline.spec.pipeline_set.is_none() {
        return generated.collect();
    }
    if targets().all(|target| target.settled.is_none() || target.is_gone()) {
        return subjects(pipeline, cluster).into_iter().collect();
    }
    let is_gone = |info: &TargetInfo| {
        let here = environments().filter(|known| known.name == info.environment).flat_map(|known| &known.targets);
        let mut mine = here.filter(|target| {
            let app = &target.cluster_app_ref;
            (&app.name, &app.namespace, &app.cluster_ref) == (&info.app.name, &info.namespace, &info.object_cluster)
        });
        mine.any(|target| target.generated.is_none() && target.is_gone())
    };
    let listed = targets_of_spec(&pipeline.spec, cluster).into_iter().filter(is_gone);
    generated.chain(listed.map(|info| info.log_subject().to_string())).collect()
}

/// Returns, for each subject that was seen, the serial of the log when it was first seen.
fn since(pipeline: &Pipeline, cluster: &str, settled: &[(String, &Settled)]) -> HashMap<String, i64> {
    let mut since: HashMap<_, _> = settled.iter().map(|(subject, settled)| (subject.clone(), settled.since)).collect();
    let namespace = pipeline.namespace().unwrap_or_default();
    let clusters = pipeline.status.iter().flat_map(|status| &status.clusters);
    let seen: HashMap<_, _> = clusters.map(|c| (c.cluster_ref.seen_from(&namespace).full_name(), c.serial)).collect();
    for cluster in targets_of(pipeline, cluster).into_iter().filter_map(|info| info.cluster_ref) {
        let serial = seen.get(&cluster.seen_from(&namespace).full_name());
        since.extend(serial.map(|serial| (LogSubject::Cluster(&cluster.full_name()).to_string(), *serial)));
    }
    since.extend(promotions(pipeline));
    since
}

/// Returns, for each target, each environment, the promotions to it and the pipeline, the serial of the log when the last silent baseline
/// was taken. A baseline of an environment ends no state of its promotions. Only another environment of the same name does.
pub(crate) fn based(pipeline: &Pipeline, cluster: &str) -> HashMap<String, i64> {
    let based = settled(pipeline, cluster).map(|(subject, settled)| (subject, settled.based));
    let replaced = based.chain(promotions(pipeline));
    replaced.filter(|(_, serial)| *serial > 0).collect()
}

/// Returns, for the promotions to each environment, the serial of the log when the environment was first seen.
fn promotions(pipeline: &Pipeline) -> impl Iterator<Item = (String, i64)> {
    let environments = pipeline.status.iter().flat_map(|status| &status.environments);
    environments.filter_map(|e| Some((LogSubject::Promotion(&e.name).to_string(), e.settled.as_ref()?.since)))
}

/// Returns the last settled state of each target, of each environment, and of the pipeline.
fn settled<'a>(pipeline: &'a Pipeline, cluster: &str) -> impl Iterator<Item = (String, &'a Settled)> {
    let namespace = pipeline.namespace().unwrap_or_default();
    let place = |of: Option<&ClusterRef>| of.map(|of| of.seen_from(&namespace).full_name());
    let status = pipeline.status.as_ref();
    let environments = || status.into_iter().flat_map(|status| &status.environments);
    let mut seen: HashMap<_, &TargetStatus> = HashMap::new();
    for environment in environments() {
        for target in &environment.targets {
            let app = &target.cluster_app_ref;
            let key =
                (environment.name.as_str(), app.namespace.as_str(), app.name.as_str(), place(app.cluster_ref.as_ref()));
            seen.entry(key).or_insert(target);
        }
    }
    let targets = targets_of(pipeline, cluster).into_iter().filter_map(|info| {
        let key = (&*info.environment, &*info.namespace, &*info.app.name, place(info.object_cluster.as_ref()));
        let settled = seen.get(&key)?.settled.as_ref()?;
        Some((info.log_subject().to_string(), settled))
    });
    let targets: Vec<_> = targets.collect();
    let groups = environments().map(|e| (LogSubject::Environment(&e.name).to_string(), e.settled.as_ref()));
    let whole = status.map(|status| (LogSubject::Pipeline.to_string(), status.settled.as_ref()));
    targets.into_iter().chain(groups.chain(whole).filter_map(|(subject, settled)| Some((subject, settled?))))
}

/// Returns the persisted cursors. `None`: they are not known.
fn cursors(pipeline: &Pipeline) -> Cursors {
    let status = pipeline.status.as_ref()?;
    let Some(dispatched) = &status.dispatched else {
        // While the log has no changes, no cursor needs to be persisted, and nothing waits.
        return status.log.as_ref().filter(|log| log.serial == log.first).map(|_| HashMap::new());
    };
    let cursors = dispatched.cursors.iter().map(|cursor| {
        let name = &cursor.notification;
        let timers = dispatched.armed.iter().filter(|timer| timer.notification == *name);
        let pending_timers = timers.map(|timer| timer.serial).collect();
        (name.clone(), PersistedCursor { serial: cursor.serial, pending_timers })
    });
    Some(cursors.collect())
}

/// Returns the history of a pipeline from its status: what was recorded, and what can be recorded next.
fn history(pipeline: &Pipeline, cluster: &str) -> Option<History> {
    let status = pipeline.status.as_ref();
    let dispatched = status.and_then(|s| s.dispatched.as_ref());
    let log = status.and_then(|s| s.log.as_ref())?;
    let of = PipelineRef {
        namespace: pipeline.namespace().unwrap_or_default(),
        name: pipeline.name_any(),
        uid: pipeline.uid().unwrap_or_default(),
    };
    let is_empty = log.changes.is_empty();
    let subjects = if is_empty { Subjects::default() } else { Subjects::new(pipeline, cluster, &of) };
    let logged = |change: &Change| {
        let logged = Logged {
            subject: subjects.get(&change.subject).subject.clone(),
            types: transitions(change).collect(),
            time: change.time,
            from: change.from.clone(),
            to: change.to.clone(),
            coalesced: change.coalesced,
        };
        (change.serial, logged)
    };
    Some(History {
        is_dispatched: dispatched.is_some(),
        recorded: dispatched.and_then(|d| d.recorded),
        first: log.first,
        serial: log.serial,
        changes: log.changes.iter().map(logged).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_of_a_pipeline_have_its_subjects_cursors_and_missing_commits() {
        let pipeline: Pipeline = serde_json::from_value(serde_json::json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "web", "namespace": "team-a", "uid": "u", "labels": {"a": "b"}},
            "spec": {"appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                     "environments": [{"name": "dev", "targets": [
                        {"namespace": "x"}, {"namespace": "y"},
                        {"namespace": "y", "clusterRef": {"kind": "Secret", "name": "eu"}},
                        {"namespace": "y", "clusterRef": {"kind": "Secret", "name": "us"}},
                     ]}]},
            "status": {
                "environments": [{"name": "dev", "targets": [
                    {"clusterAppRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "y"},
                     "status": "Current", "ready": true, "settled": {"status": "Current", "since": 42, "revision": "6.5.0"}},
                    {"clusterAppRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "y",
                                       "clusterRef": {"kind": "Secret", "name": "eu"}},
                     "status": "Current", "ready": true,
                     "settled": {"status": "Current", "since": 43, "revision": "main@sha1:5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c"}},
                ], "settled": {"status": "InProgress", "since": 44, "based": 48}}],
                "settled": {"status": "InProgress", "since": 45},
                "clusters": [{"clusterRef": {"kind": "Secret", "name": "eu"}, "reachable": true, "serial": 46}],
                "log": {"first": 1, "serial": 50, "changes": []},
                "dispatched": {
                    "cursors": [{"notification": "n", "serial": 49, "uid": "nu"}],
                    "armed": [{"notification": "n", "subject": "target/dev/c/y", "serial": 47, "type": "Failed",
                               "due": "2025-11-21T07:47:14Z"}],
                },
            },
        }))
        .unwrap();
        let facts = facts(&pipeline, "c");
        let mut subjects: Vec<_> = facts.subjects.iter().map(|(subject, since)| (subject.as_str(), *since)).collect();
        subjects.sort_unstable();
        let expected = [
            ("cluster/eu", Some(46)),
            ("cluster/us", None),
            ("environment/dev", Some(44)),
            ("pipeline", Some(45)),
            ("promotion/dev", Some(44)),
            ("target/dev/c/x", None),
            ("target/dev/c/y", Some(42)),
            ("target/dev/eu/y", Some(43)),
            ("target/dev/us/y", None),
        ];
        assert_eq!(subjects, expected);
        assert_eq!(
            facts.commitless,
            HashSet::from(["target/dev/c/y".to_owned()]),
            "what is not known is not said to be without"
        );
        assert_eq!(facts.targets().count(), 4);
        assert_eq!(facts.cursors["n"], "nu");
        assert!(facts.logged);
        let replaced = based(&pipeline, "c");
        assert_eq!(replaced, HashMap::from([("environment/dev".to_owned(), 48), ("promotion/dev".to_owned(), 44)]));
        let taken = &cursors(&pipeline).unwrap()["n"];
        let beyond: Vec<_> = (45..=50).filter(|serial| taken.is_beyond(*serial)).collect();
        assert_eq!(beyond, [45, 46, 48, 49], "what a clock may still come to is kept");
    }

    #[test]
    fn an_application_lacks_a_repository_only_if_it_has_not_named_that_of_what_runs() {
        let of = |kind: (&str, &str), settled: serde_json::Value| {
            let app = serde_json::json!({"apiVersion": kind.0, "kind": kind.1, "name": "web"});
            let mut object = app.clone();
            object["namespace"] = "x".into();
            let target =
                serde_json::json!({"clusterAppRef": object, "status": "Current", "ready": true, "settled": settled});
            let pipeline: Pipeline = serde_json::from_value(serde_json::json!({
                "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
                "metadata": {"name": "web", "namespace": "team-a", "uid": "u"},
                "spec": {"appRef": app, "environments": [{"name": "dev", "targets": [{"namespace": "x"}]}]},
                "status": {"environments": [{"name": "dev", "targets": [target]}]},
            }))
            .unwrap();
            sourceless(&pipeline, "c").len() == 1
        };
        let (argo, flux) = (("argoproj.io/v1alpha1", "Application"), ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"));
        for (status, current, repository, lacks) in [
            ("Current", "1", "https://github.com/acme/web", false),
            ("InProgress", "1", "https://github.com/acme/web", false),
            ("Current", "1", "", true),
            ("InProgress", "1", "", true),
            ("InProgress", "", "", false),
            ("NotFound", "", "", false),
        ] {
            let settled = serde_json::json!({"status": status, "since": 1, "current": current, "repository": repository});
            assert_eq!(of(argo, settled.clone()), lacks, "{status} {current} {repository}");
            assert_eq!(of(flux, settled), repository.is_empty(), "another kind: {status} {current}");
        }
    }
}
