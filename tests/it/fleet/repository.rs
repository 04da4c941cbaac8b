//! A `GitRepo` and its Bundles: a commit is reported when the Bundles run it, not when the `GitRepo` refers to it.

use super::*;
use crate::support::lanes::what;
use crate::support::world::all_triggers;

/// Two Bundles at commit c1, each on two clusters.
async fn at_c1(ns: &str) -> Fleet {
    let mut fleet = Fleet::new(ns).await;
    fleet.create("GitRepo", "shop", json!({}), json!({"repo": "https://git.example.com/shop"})).await;
    for bundle in ["shop-web", "shop-db"] {
        fleet
            .create("Bundle", bundle, of_repo("shop", "c1"), json!({"resources": [{"name": "a.yaml", "content": "1"}]}))
            .await;
        fleet.status("Bundle", bundle, counted(2, 2)).await;
    }
    fleet.status("GitRepo", "shop", repository("c1", "Current", 4, 0)).await;
    fleet.follow(&["GitRepo/shop"], all_triggers()).await;
    fleet.runs("shop", "c1").await;
    fleet
}

/// The status of the `GitRepo`. Fleet writes the commit and the job at once, and the counts later.
fn repository(commit: &str, job: &str, ready: i64, failed: i64) -> Value {
    json!({"commit": commit, "gitJobStatus": job,
        "summary": {"desiredReady": 4, "ready": ready, "errApplied": failed, "waitApplied": 4 - ready - failed},
        "conditions": [condition("Accepted", "True", "", ""), condition("Ready", if ready == 4 { "True" } else { "False" }, "", "")]})
}

/// A write: kind, name and status, or labels and spec.
type Step = (&'static str, &'static str, Value);

/// The steps of a commit that changes `shop-web` and not `shop-db`.
fn commit(commit: &'static str, good: bool) -> Vec<Step> {
    let edit = |spec: Value| json!({"labels": of_repo("shop", commit), "spec": spec});
    let changed = edit(json!({"resources": [{"name": "a.yaml", "content": commit}]}));
    let mut steps = vec![
        ("GitRepo", "shop", repository(commit, "InProgress", 4, 0)),
        ("Bundle", "shop-db", edit(json!({}))),
        ("GitRepo", "shop", repository(commit, "Current", 4, 0)),
        ("Bundle", "shop-web", changed),
        ("Bundle", "shop-web", begun(2)),
        ("Bundle", "shop-web", counted(1, 2)),
    ];
    if good {
        // The counts of the GitRepo change long after the commit is reported.
        steps.push(("Bundle", "shop-web", counted(2, 2)));
        steps.push(("GitRepo", "shop", repository(commit, "Current", 3, 0)));
        steps.push(("GitRepo", "shop", repository(commit, "Current", 4, 0)));
    } else {
        steps.push(("Bundle", "shop-web", failed(2)));
        steps.push(("GitRepo", "shop", repository(commit, "Current", 3, 1)));
    }
    steps
}

async fn write(fleet: &Fleet, (kind, name, body): &Step) {
    match body.get("labels") {
        Some(labels) => fleet.edit(kind, name, labels.clone(), body["spec"].clone()).await,
        None => fleet.status(kind, name, body.clone()).await,
    }
}

#[tokio::test]
async fn stale_counters_in_one_batch_do_not_report_a_commit_as_deployed() {
    let fleet = at_c1("fleet-breath").await;
    for step in commit("c2", false).iter().chain(&commit("c3", true)).chain(&commit("c4", true)) {
        write(&fleet, step).await;
    }
    fleet.runs("shop", "c4").await;
    fleet.world.fence("shop", &["hook"]).await;
    let mut told = fleet.world.deliveries().await;
    told.retain(|d| d.spec.subject.environment == "dev");
    told.sort_by_key(|d| d.spec.order);
    let told: Vec<_> = told.iter().map(|d| what(d.spec.type_.as_str(), &d.spec.to.revision)).collect();
    assert!(!told.contains(&"Deployed c2".to_owned()), "{told:?}");
    assert_eq!(told.iter().filter(|what| *what == "Deployed c4").count(), 1, "{told:?}");
    let told: Vec<_> = told.iter().map(String::as_str).collect();
    fleet.told(&[("shop", &told[..])].into()).await;
}

#[tokio::test]
async fn bundles_are_added_and_removed_with_a_commit() {
    let mut fleet = at_c1("fleet-members").await;
    // One Bundle is added, and one is deleted.
    fleet.status("GitRepo", "shop", repository("c2", "InProgress", 4, 0)).await;
    fleet.is("shop", Status::InProgress, "GitUpdating", "c2").await;
    fleet.edit("Bundle", "shop-web", of_repo("shop", "c2"), json!({})).await;
    fleet.create("Bundle", "shop-new", of_repo("shop", "c2"), json!({})).await;
    fleet.status("GitRepo", "shop", repository("c2", "Current", 4, 0)).await;
    fleet.is("shop", Status::InProgress, "BundleNotUpdated", "c2").await;
    fleet.api("Bundle").delete("shop-db", &kube::api::DeleteParams::default()).await.expect("deleted");
    fleet.is("shop", Status::InProgress, "NoStatus", "c2").await;
    fleet.restart().await;
    fleet.status("Bundle", "shop-new", counted(1, 1)).await;
    fleet.runs("shop", "c2").await;
    // All Bundles are deleted, and the next commit has none yet.
    for bundle in ["shop-web", "shop-new"] {
        fleet.api("Bundle").delete(bundle, &kube::api::DeleteParams::default()).await.expect("deleted");
    }
    fleet.is("shop", Status::InProgress, "NotObserved", "c2").await;
    fleet.status("GitRepo", "shop", json!({"commit": "c3", "summary": {"desiredReady": 0, "ready": 0}})).await;
    fleet.is("shop", Status::InProgress, "NotObserved", "c3").await;
    fleet.told(&[("shop", &["Progressing c2", "Deployed c2", "Progressing c3"][..])].into()).await;
}
