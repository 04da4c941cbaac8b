//! A deployment that fails, and one that drifts.

use super::*;

#[tokio::test]
async fn an_error_is_not_that_of_the_next_commit_and_uncorrected_drift_is_reported() {
    let ns = "fleet-failing";
    let mut fleet = Fleet::new(ns).await;
    for (bundle, name) in [("shop-web", "web"), ("shop-db", "db")] {
        fleet.create("Bundle", bundle, of_repo("shop", "c1"), json!({"paused": false})).await;
        fleet.status("Bundle", bundle, counted(1, 1)).await;
        let spec = json!({"deploymentID": "s-1:o", "stagedDeploymentID": "s-1:o", "correctDrift": {"enabled": false}});
        fleet.create("BundleDeployment", name, of_bundle(ns, bundle, Some("c1")), spec).await;
        fleet.status("BundleDeployment", name, applied("s-1:o")).await;
    }
    let triggers = ["Drifted", "DriftCorrected", "Deployed", "Failed"].map(|type_| json!({"type": type_}));
    fleet.follow(&["BundleDeployment/web", "BundleDeployment/db"], json!({"triggers": triggers})).await;
    an_earlier_error_is_known_after_a_restart(&mut fleet).await;
    drift_is_shown(&fleet).await;
    fleet.told(&[("db", &["Failed c2", "Deployed c3"][..]), ("web", &["Drifted c1", "DriftCorrected c1"])].into()).await;
}

/// `db` fails at one commit, and is at the next one.
async fn an_earlier_error_is_known_after_a_restart(fleet: &mut Fleet) {
    let stage = async |fleet: &Fleet, commit: &str, id: &str| {
        fleet.edit("Bundle", "shop-db", of_repo("shop", commit), json!({"resources": [{"content": commit}]})).await;
        let spec = json!({"deploymentID": id, "stagedDeploymentID": id});
        fleet.edit("BundleDeployment", "db", of_bundle(&fleet.world.ns, "shop-db", Some(commit)), spec).await;
        fleet.status("Bundle", "shop-db", begun(1)).await;
    };
    stage(fleet, "c2", "s-2:o").await;
    fleet.status("BundleDeployment", "db", refused("chart requires kubeVersion: >=1.40")).await;
    fleet.is("db", Status::Failed, "ErrApplied", "c2").await;
    // Fleet keeps the old error until the agent has processed the next deployment.
    stage(fleet, "c3", "s-3:o").await;
    fleet.is("db", Status::InProgress, "EarlierError", "c3").await;
    fleet.restart().await;
    fleet.world.fence("shop", &["hook"]).await;
    let target = fleet.is("db", Status::InProgress, "EarlierError", "c3").await;
    assert!(target.message.ends_with("chart requires kubeVersion: >=1.40"), "{}", target.message);
    fleet.status("BundleDeployment", "db", applied("s-3:o")).await;
    fleet.runs("db", "c3").await;
}

/// `web` drifts, and Fleet does not correct it.
async fn drift_is_shown(fleet: &Fleet) {
    let drifted = async |want: bool| {
        eventually(&format!("web has drifted: {want}"), async || {
            let target = fleet.is("web", Status::Current, "", "c1").await;
            if target.drifted == want { Ok(()) } else { Err(format!("{target:?}")) }
        })
        .await;
    };
    let modified = json!({"nonModified": false, "modifiedStatus": [{"kind": "Service", "name": "web", "patch": "{}"}]});
    fleet.status("BundleDeployment", "web", modified).await;
    drifted(true).await;
    fleet.status("BundleDeployment", "web", applied("s-1:o")).await;
    drifted(false).await;
}
