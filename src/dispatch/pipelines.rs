//! Pipelines as the dispatcher's watch brings them: what deliveries must know of them goes into the directory.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::ResourceExt as _;
use kube::runtime::watcher::Event;

use super::Context;
use super::follow::Followed;
use super::notifications;
use crate::api::Pipeline;
use crate::api::target::targets;
use crate::delivery::directory::Cursors;
use crate::delivery::{PipelineFacts, Scope};
use crate::telemetry::metrics::Watch;

impl Followed for Pipeline {
    const WHAT: &'static str = "pipelines";
    const WATCH: Watch = Watch::Pipelines;

    async fn absorb(ctx: &Context, event: &Event<Self>) {
        match event {
            Event::Apply(p) | Event::InitApply(p) => {
                let uid = p.uid().unwrap_or_default();
                let facts = facts(p, &ctx.cluster_name);
                let namespace = facts.namespace.clone();
                ctx.deliveries.directory.put_cursors(&uid, cursors(p));
                // Before the pipeline itself, so that nothing of it is sent without its layers.
                let layered = ctx.layers.take(ctx, p);
                if layered {
                    // Within a list, all that is wanted is asked for once, at its end.
                    if matches!(event, Event::Apply(_)) {
                        notifications::set_wanted(ctx);
                    }
                    ctx.deliveries.look(Scope::Layers(uid.clone())).await;
                }
                if ctx.deliveries.directory.put_pipeline(&uid, facts) || layered {
                    changed(ctx, uid, &namespace).await;
                }
            }
            Event::Delete(p) => remove(ctx, p.uid().unwrap_or_default(), &p.namespace().unwrap_or_default()).await,
            Event::Init | Event::InitDone => {}
        }
    }

    async fn sweep(ctx: &Context, namespace: Option<&str>, there: &[Arc<Self>]) {
        let there: BTreeSet<_> = there.iter().filter_map(|p| p.uid()).collect();
        for (uid, facts) in ctx.deliveries.directory.pipelines_but(|uid| there.contains(uid)) {
            if namespace.is_none_or(|n| n == facts.namespace) {
                remove(ctx, uid, &facts.namespace).await;
            }
        }
        notifications::set_wanted(ctx);
    }
}

async fn remove(ctx: &Context, uid: String, namespace: &str) {
    ctx.forget(&uid);
    let layered = ctx.layers.forget(&uid);
    if ctx.deliveries.directory.remove_pipeline(&uid) {
        if layered {
            notifications::set_wanted(ctx);
        }
        changed(ctx, uid, namespace).await;
    }
}

async fn changed(ctx: &Context, uid: String, namespace: &str) {
    ctx.deliveries.look(Scope::Pipeline(uid)).await;
    for name in ctx.deliveries.directory.names_in(namespace) {
        ctx.wake_notification(namespace, &name);
    }
}

/// What deliveries must know of a pipeline.
fn facts(pipeline: &Pipeline, cluster: &str) -> PipelineFacts {
    let status = pipeline.status.as_ref();
    let seen = status.into_iter().flat_map(|s| &s.environments).flat_map(|e| e.targets.iter().map(move |t| (&e.name, t)));
    let since = |info: &crate::api::target::TargetInfo| {
        let same = |app: &crate::api::refs::ClusterAppRef| app.namespace == info.namespace && app.name == info.app.name;
        let of = seen.clone().find(|(environment, t)| **environment == info.environment && same(&t.cluster_app_ref));
        of.and_then(|(_, t)| t.settled.as_ref()).map(|s| s.since)
    };
    let cursors = status.and_then(|s| s.dispatched.as_ref()).into_iter().flat_map(|d| &d.cursors);
    PipelineFacts {
        uid: pipeline.uid().unwrap_or_default(),
        namespace: pipeline.namespace().unwrap_or_default(),
        name: pipeline.name_any(),
        labels: pipeline.labels().clone(),
        annotations: pipeline.annotations().clone(),
        subjects: targets(&pipeline.spec, cluster).iter().map(|t| (t.subject.clone(), since(t))).collect(),
        logged: status.is_some_and(|s| s.log.is_some()),
        cursors: cursors.map(|c| (c.notification.clone(), c.uid.clone())).collect(),
    }
}

/// Where the persisted cursors stand.
fn cursors(pipeline: &Pipeline) -> Cursors {
    let dispatched = pipeline.status.as_ref()?.dispatched.as_ref()?;
    Some(dispatched.cursors.iter().map(|c| (c.notification.clone(), c.serial)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_a_pipeline() {
        let pipeline: Pipeline = serde_json::from_value(serde_json::json!({
            "apiVersion": "pennant.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "web", "namespace": "team-a", "uid": "u", "labels": {"a": "b"}},
            "spec": {"appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                     "environments": [{"name": "dev", "targets": [{"namespace": "x"}, {"namespace": "y"}]}]},
            "status": {
                "environments": [{"name": "dev", "targets": [{
                    "clusterAppRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "y"},
                    "status": "Current", "ready": true,
                    "settled": {"status": "Current", "since": 42},
                }]}],
                "log": {"first": 1, "serial": 50, "changes": []},
                "dispatched": {"cursors": [{"notification": "n", "serial": 49, "uid": "nu"}]},
            },
        }))
        .unwrap();
        let facts = facts(&pipeline, "c");
        assert_eq!((facts.subjects["target/dev/c/x"], facts.subjects["target/dev/c/y"]), (None, Some(42)));
        assert_eq!(facts.cursors["n"], "nu");
        assert!(facts.logged);
        assert_eq!(cursors(&pipeline).unwrap()["n"], 49);
    }
}
