//! A `HelmOp`: the version of its chart on three clusters, and a chart that does not exist.

use super::*;

const CLUSTERS: [&str; 3] = ["db-eu", "db-us", "db-lab"];

fn options(name: &str, version: &str) -> Value {
    let id = format!("s-{version}:options-of-{name}");
    let helm = json!({"helm": {"chart": "db", "version": version}});
    json!({"deploymentID": id, "stagedDeploymentID": id, "options": helm, "stagedOptions": helm})
}

#[tokio::test]
async fn a_chart_is_deployed_at_its_version_on_each_cluster() {
    let ns = "fleet-helm";
    let mut fleet = Fleet::new(ns).await;
    let accepted = |status: &str, message: &str| json!({"conditions": [condition("Accepted", status, "", message)]});
    let bundle = |version: &str| json!({"helm": {"chart": "db", "version": version}});
    let label = json!({"fleet.cattle.io/fleet-helm-name": "db"});
    fleet.create("HelmOp", "db", json!({}), bundle("1.2.0")).await;
    fleet.create("Bundle", "db", label.clone(), bundle("1.2.0")).await;
    fleet.status("Bundle", "db", counted(3, 3)).await;
    fleet.status("HelmOp", "db", json!({"version": "1.2.0"})).await;
    fleet.status("HelmOp", "db", accepted("True", "")).await;
    let mut labels = of_bundle(ns, "db", None);
    labels["fleet.cattle.io/fleet-helm-name"] = json!("db");
    labels.as_object_mut().unwrap().remove("fleet.cattle.io/commit");
    for name in CLUSTERS {
        let spec = options(name, "1.2.0");
        fleet.create("BundleDeployment", name, labels.clone(), spec.clone()).await;
        fleet.status("BundleDeployment", name, applied(spec["deploymentID"].as_str().unwrap())).await;
    }
    let mut objects = CLUSTERS.map(|name| format!("BundleDeployment/{name}")).to_vec();
    objects.push("HelmOp/db".into());
    fleet.follow(&objects.iter().map(String::as_str).collect::<Vec<_>>(), json!({})).await;
    for name in CLUSTERS.into_iter().chain(["db"]) {
        fleet.runs(name, "1.2.0").await;
    }

    // Fleet writes the Bundle first, and then the version in the status of the HelmOp.
    fleet.edit("HelmOp", "db", json!({}), bundle("1.3.0")).await;
    fleet.edit("Bundle", "db", label, bundle("1.3.0")).await;
    fleet.is("db", Status::InProgress, "BundleNotUpdated", "1.2.0").await;
    fleet.status("HelmOp", "db", json!({"version": "1.3.0"})).await;
    fleet.is("db", Status::InProgress, "LatestGenerationNotObserved", "1.3.0").await;
    for name in CLUSTERS {
        fleet.edit("BundleDeployment", name, json!({}), options(name, "1.3.0")).await;
    }
    fleet.status("Bundle", "db", begun(3)).await;
    fleet.is("db", Status::InProgress, "RolloutUnderWay", "1.3.0").await;
    for (ready, name) in (1..).zip(CLUSTERS) {
        fleet.is(name, Status::InProgress, "WaitApplied", "1.3.0").await;
        fleet.status("BundleDeployment", name, applied(&format!("s-1.3.0:options-of-{name}"))).await;
        fleet.runs(name, "1.3.0").await;
        fleet.status("Bundle", "db", counted(ready, 3)).await;
    }
    fleet.runs("db", "1.3.0").await;

    fleet.edit("HelmOp", "db", json!({}), bundle("9.9.9")).await;
    fleet.status("HelmOp", "db", accepted("False", "could not find version 9.9.9 of chart db")).await;
    let target = fleet.is("db", Status::Failed, "", "1.3.0").await;
    assert_eq!(target.message, "could not find version 9.9.9 of chart db");
    let deployed: &[&str] = &["Deployed 1.3.0"];
    let mut lanes: BTreeMap<&str, &[&str]> = CLUSTERS.map(|name| (name, deployed)).into();
    lanes.insert("db", &["Deployed 1.3.0", "Failed 1.3.0"]);
    fleet.told(&lanes).await;
}
