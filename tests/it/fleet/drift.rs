//! Drift of Fleet objects. It is not reported if Fleet corrects it.

use super::*;

#[tokio::test]
async fn uncorrected_drift_is_reported() {
    let ns = "fleet-drift";
    let mut fleet = Fleet::new(ns).await;
    fleet.create("Bundle", "shop-web", of_repo("shop", "c1"), json!({"paused": false})).await;
    fleet.status("Bundle", "shop-web", counted(1, 1)).await;
    for (name, corrects) in [("left", false), ("corrected", true)] {
        let spec = json!({"deploymentID": "s-1:o", "stagedDeploymentID": "s-1:o", "correctDrift": {"enabled": corrects}});
        fleet.create("BundleDeployment", name, of_bundle(ns, "shop-web", Some("c1")), spec).await;
        fleet.status("BundleDeployment", name, applied("s-1:o")).await;
    }
    let triggers =
        json!({"triggers": [{"type": "Drifted"}, {"type": "DriftCorrected"}, {"type": "Deployed"}, {"type": "Failed"}]});
    fleet.follow(&["BundleDeployment/left", "BundleDeployment/corrected", "Bundle/shop-web"], triggers).await;
    let modified = json!({"nonModified": false, "modifiedStatus": [{"kind": "Service", "name": "web", "patch": "{}"}]});
    let drifted = async |name: &str, want: bool| {
        eventually(&format!("{name} has drifted: {want}"), async || {
            let target = fleet.is(name, Status::Current, "", "c1").await;
            if target.drifted == want { Ok(()) } else { Err(format!("{target:?}")) }
        })
        .await;
    };
    for name in ["corrected", "left"] {
        fleet.status("BundleDeployment", name, modified.clone()).await;
    }
    let summary = json!({"summary": {"desiredReady": 1, "ready": 0, "modified": 1}});
    fleet.status("Bundle", "shop-web", summary).await;
    drifted("left", true).await;
    drifted("corrected", false).await;
    drifted("shop-web", true).await;
    for name in ["corrected", "left"] {
        fleet.status("BundleDeployment", name, applied("s-1:o")).await;
    }
    drifted("left", false).await;

    // The correction is switched while the object has drifted. The report follows the new setting.
    for name in ["corrected", "left"] {
        fleet.status("BundleDeployment", name, modified.clone()).await;
    }
    drifted("left", true).await;
    let correct = |enabled: bool| json!({"correctDrift": {"enabled": enabled}});
    fleet.edit("BundleDeployment", "left", json!({}), correct(true)).await;
    drifted("left", false).await;
    fleet.edit("BundleDeployment", "corrected", json!({}), correct(false)).await;
    drifted("corrected", true).await;
    fleet.edit("Bundle", "shop-web", json!({}), correct(true)).await;
    fleet.status("Bundle", "shop-web", json!({})).await;
    drifted("shop-web", false).await;
    let lanes = [
        ("left", &["Drifted c1", "DriftCorrected c1", "Drifted c1", "DriftCorrected c1"][..]),
        ("corrected", &["Drifted c1"]),
        ("shop-web", &["Drifted c1", "DriftCorrected c1"]),
    ];
    fleet.told(&lanes.into()).await;
}
