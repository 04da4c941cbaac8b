//! A bundle that fails on a cluster, and a bundle that depends on it there.

use super::*;

#[tokio::test]
async fn a_bundle_fails_and_a_bundle_that_depends_on_it_waits() {
    let ns = "fleet-failing";
    let mut fleet = Fleet::new(ns).await;
    for (bundle, name) in [("shop-web", "web"), ("shop-db", "db")] {
        fleet.create("Bundle", bundle, of_repo("shop", "c1"), json!({"paused": false})).await;
        fleet.status("Bundle", bundle, counted(1, 1)).await;
        let spec = json!({"deploymentID": "s-1:o", "stagedDeploymentID": "s-1:o"});
        fleet.create("BundleDeployment", name, of_bundle(ns, bundle, Some("c1")), spec).await;
        fleet.status("BundleDeployment", name, applied("s-1:o")).await;
    }
    fleet.follow(&["BundleDeployment/web", "BundleDeployment/db"], json!({})).await;
    let stage = async |bundle: &str, name: &str, commit: &str, id: &str| {
        fleet.edit("Bundle", bundle, of_repo("shop", commit), json!({"resources": [{"content": commit}]})).await;
        let spec = json!({"deploymentID": id, "stagedDeploymentID": id});
        fleet.edit("BundleDeployment", name, of_bundle(ns, bundle, Some(commit)), spec).await;
        fleet.status("Bundle", bundle, begun(1)).await;
    };
    stage("shop-web", "web", "c2", "s-2:o").await;
    stage("shop-db", "db", "c2", "s-2:o").await;
    fleet.status("BundleDeployment", "web", refused("dependent bundle(s) are not ready: [shop-db]")).await;
    fleet.is("web", Status::InProgress, "DependencyNotReady", "c2").await;
    fleet.status("BundleDeployment", "db", refused("chart requires kubeVersion: >=1.40")).await;
    fleet.is("db", Status::Failed, "ErrApplied", "c2").await;

    // Fleet keeps the old error until the agent has processed the next deployment.
    stage("shop-db", "db", "c3", "s-3:o").await;
    fleet.is("db", Status::InProgress, "EarlierError", "c3").await;
    fleet.restart().await;
    fleet.world.fence("shop", &["hook"]).await;
    let target = fleet.is("db", Status::InProgress, "EarlierError", "c3").await;
    assert!(target.message.ends_with("chart requires kubeVersion: >=1.40"), "{}", target.message);
    fleet.status("BundleDeployment", "db", applied("s-3:o")).await;
    fleet.runs("db", "c3").await;
    fleet.status("BundleDeployment", "web", applied("s-2:o")).await;
    fleet.runs("web", "c2").await;

    let broken = json!([{"kind": "Deployment", "name": "web", "summary": {"state": "error", "error": true}}]);
    fleet.status("BundleDeployment", "web", json!({"ready": false, "nonReadyStatus": broken})).await;
    fleet.is("web", Status::Failed, "NotReady", "c2").await;
    fleet.status("BundleDeployment", "web", applied("s-2:o")).await;
    fleet.runs("web", "c2").await;
    let lanes = [("db", &["Failed c2", "Deployed c3"][..]), ("web", &["Deployed c2", "Failed c2", "Recovered c2"])];
    fleet.told(&lanes.into()).await;
}
