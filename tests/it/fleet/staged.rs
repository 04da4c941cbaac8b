//! A staged rollout: four clusters in four partitions, one at a time.

use super::*;

const ALL: [&str; 4] = ["web-1", "web-2", "web-3", "web-4"];

/// Creates four deployments of one Bundle at commit c1. The ID of each ends with a hash of its cluster's options.
async fn at_c1(ns: &str) -> Fleet {
    let mut fleet = Fleet::new(ns).await;
    fleet.create("Bundle", "shop-web", of_repo("shop", "c1"), json!({"paused": false})).await;
    fleet.status("Bundle", "shop-web", waiting(0)).await;
    for name in ALL {
        let id = id(name, "1");
        let spec = json!({"deploymentID": id, "stagedDeploymentID": id});
        fleet.create("BundleDeployment", name, of_bundle(ns, "shop-web", Some("c1")), spec).await;
        fleet.status("BundleDeployment", name, applied(&id)).await;
    }
    let objects = ALL.map(|name| format!("BundleDeployment/{name}"));
    fleet.follow(&objects.each_ref().map(String::as_str), json!({})).await;
    for name in ALL {
        fleet.runs(name, "c1").await;
    }
    fleet
}

fn id(name: &str, content: &str) -> String {
    format!("s-{content}:options-of-{name}")
}

/// The status of the Bundle with this number of unavailable partitions, while none is allowed.
fn waiting(partitions: i64) -> Value {
    let mut status = counted(4 - partitions, 4);
    status["unavailablePartitions"] = json!(partitions);
    status
}

impl Fleet {
    /// Writes what the bundle controller writes for a commit: the label of all deployments, and the new ID of those in `staged`. Then
    /// writes the status of the Bundle, with the number of partitions that block the others.
    async fn stage(&self, commit: &str, content: &str, staged: &[&str], blocking: i64) {
        for name in ALL {
            let spec = if staged.contains(&name) {
                json!({"stagedDeploymentID": id(name, content), "deploymentID": id(name, content)})
            } else {
                json!({})
            };
            let labels = of_bundle(&self.world.ns, "shop-web", Some(commit));
            self.edit("BundleDeployment", name, labels, spec).await;
        }
        self.status("Bundle", "shop-web", waiting(blocking)).await;
    }

    /// Writes a commit that changes the Bundle, or only its label.
    async fn commit(&self, commit: &str, changes: bool) {
        let spec = if changes { json!({"resources": [{"name": "a", "content": commit}]}) } else { json!({}) };
        self.edit("Bundle", "shop-web", of_repo("shop", commit), spec).await;
    }

    async fn apply(&self, name: &str, content: &str) {
        self.status("BundleDeployment", name, applied(&id(name, content))).await;
    }
}

#[tokio::test]
async fn a_commit_is_deployed_where_it_was_staged_and_nowhere_else() {
    let mut fleet = at_c1("fleet-staged").await;
    fleet.commit("c2", true).await;
    for (turn, name) in ALL.into_iter().enumerate() {
        fleet.stage("c2", "2", &[name], i64::from(turn < 3)).await;
        fleet.is(name, Status::InProgress, "WaitApplied", "c2").await;
        for later in &ALL[turn + 1..] {
            let target = fleet.is(later, Status::InProgress, "NotStaged", "c2").await;
            assert_eq!(target.revision, "", "{later} runs the commit before");
        }
        fleet.apply(name, "2").await;
        // Although the other partitions are still blocked.
        fleet.runs(name, "c2").await;
    }

    // A staged deployment waits within its partition until it gets the new ID.
    fleet.commit("c3", true).await;
    fleet.stage("c3", "3", &ALL[..1], 1).await;
    let labels = of_bundle(&fleet.world.ns, "shop-web", Some("c3"));
    let staged = json!({"stagedDeploymentID": id("web-2", "3")});
    fleet.apply("web-1", "3").await;
    fleet.edit("BundleDeployment", "web-2", labels.clone(), staged).await;
    fleet.is("web-2", Status::InProgress, "OutOfSync", "c3").await;
    fleet.runs("web-1", "c3").await;
    fleet.edit("BundleDeployment", "web-2", labels, json!({"deploymentID": id("web-2", "3")})).await;
    fleet.is("web-2", Status::InProgress, "WaitApplied", "c3").await;
    fleet.apply("web-2", "3").await;
    fleet.runs("web-2", "c3").await;
    fleet.stage("c3", "3", &ALL[2..], 0).await;
    for name in &ALL[2..] {
        fleet.apply(name, "3").await;
        fleet.runs(name, "c3").await;
    }

    // A commit that changes nothing here: Fleet writes only the label, and the Bundle reports that all deployments are ready.
    fleet.commit("c4", false).await;
    fleet.stage("c4", "3", &ALL, 0).await;
    for name in ALL {
        fleet.runs(name, "c4").await;
    }
    let steps: &[&str] = &["Deployed c2", "Deployed c3", "Deployed c4"];
    fleet.restart().await;
    fleet.told(&ALL.map(|name| (name, steps)).into()).await;
}

/// While the rollout is blocked, the Bundle confirms no label.
#[tokio::test]
async fn a_restart_during_a_blocked_rollout_loses_no_result() {
    let mut fleet = at_c1("fleet-restarted").await;
    let moves = async |fleet: &Fleet, commit: &str, content: &str| {
        fleet.commit(commit, true).await;
        fleet.stage(commit, content, &ALL[..1], 1).await;
        fleet.is("web-1", Status::InProgress, "WaitApplied", commit).await;
        fleet
            .status("BundleDeployment", "web-1", json!({"appliedDeploymentID": id("web-1", content), "ready": false}))
            .await;
        fleet.is("web-1", Status::InProgress, "NotReady", commit).await;
    };
    moves(&fleet, "c2", "2").await;
    fleet.restart().await;
    fleet.world.fence("shop", &["hook"]).await;
    fleet.is("web-1", Status::InProgress, "NotReady", "c2").await;
    fleet.apply("web-1", "2").await;
    fleet.runs("web-1", "c2").await;

    moves(&fleet, "c3", "3").await;
    fleet.restart().await;
    let broken = json!([{"kind": "Deployment", "name": "web", "summary": {"state": "error", "error": true}}]);
    fleet.status("BundleDeployment", "web-1", json!({"nonReadyStatus": broken})).await;
    fleet.is("web-1", Status::Failed, "NotReady", "c3").await;
    fleet.restart().await;
    fleet.world.fence("shop", &["hook"]).await;
    fleet.is("web-1", Status::Failed, "NotReady", "c3").await;

    // The label of another commit arrives while Relaybook is stopped. Then that of `c2` is back, and what is staged is still that of `c3`.
    fleet.status("BundleDeployment", "web-1", applied(&id("web-1", "3"))).await;
    fleet.runs("web-1", "c3").await;
    let mut stopped = fleet.relaybook.take().expect("it runs");
    stopped.stop().await;
    fleet.commit("c2", true).await;
    fleet.stage("c2", "2", &[], 1).await;
    stopped.start_again().await;
    fleet.relaybook = Some(stopped);
    fleet.is("web-1", Status::InProgress, "NotStaged", "c2").await;
    fleet.told(&[("web-1", &["Deployed c2", "Failed c3", "Deployed c3"][..])].into()).await;
}

#[tokio::test]
async fn another_version_with_other_rules_takes_a_new_baseline_and_reports_the_next_commit() {
    let mut fleet = at_c1("fleet-upgraded").await;
    // What the version before wrote: the ID of the deployment was the revision. Then what a later version can have written.
    for (reader, revision, next) in
        [("fleet-bundledeployment/1", "s-1:options-of-web", "c2"), ("fleet-bundledeployment/9", "sha256:1", "c3")]
    {
        let mut stopped = fleet.relaybook.take().expect("it runs");
        stopped.stop().await;
        let mut status =
            serde_json::to_value(fleet.world.get_pipeline("shop").await.status.expect("a status")).expect("JSON");
        for target in status["environments"][0]["targets"].as_array_mut().expect("targets") {
            target["revision"] = json!(revision);
            target["attemptedRevision"] = json!(revision);
            target["settled"]["revision"] = json!(revision);
            target["settled"]["reader"] = json!(reader);
        }
        let environments = json!({"status": {"environments": status["environments"]}});
        fleet
            .world
            .api::<Pipeline>()
            .patch_status("shop", &PatchParams::default(), &Patch::Merge(environments))
            .await
            .unwrap();
        stopped.start_again().await;
        fleet.relaybook = Some(stopped);
        let now = if next == "c2" { "c1" } else { "c2" };
        for name in ALL {
            fleet.runs(name, now).await;
        }
        fleet.world.fence("shop", &["hook"]).await;
        fleet.commit(next, true).await;
        fleet.stage(next, &next[1..], &ALL, 0).await;
        for name in ALL {
            fleet.is(name, Status::InProgress, "WaitApplied", next).await;
            fleet.apply(name, &next[1..]).await;
            fleet.runs(name, next).await;
        }
    }
    let steps: &[&str] = &["Deployed c2", "Deployed c3"];
    fleet.told(&ALL.map(|name| (name, steps)).into()).await;
}
