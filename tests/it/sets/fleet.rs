//! Sets over the objects of Fleet: one pipeline for each `GitRepo`, and the clusters of one `GitRepo` divided among pipelines.

use std::collections::BTreeMap;

use kube::api::DeleteParams;

use super::*;
use crate::generated::hub::Hub;
use crate::support::world::apps::condition;

/// The set of one pipeline for each `GitRepo`.
fn of_repos(over: &Value) -> Value {
    let environments = json!([{"name": "all", "targetsFrom": [{"fleet": {"gitRepo": "{{name}}"}}]}]);
    let mut spec = json!({
        "generators": [{"fleet": {"gitRepos": {}}}],
        "template": {"metadata": {"name": "{{name}}"}, "spec": {"environments": environments}},
    });
    json_patch::merge(&mut spec, over);
    json!({"metadata": {"name": "apps"}, "spec": spec})
}

/// Creates a `GitRepo` with a Bundle that runs on cluster `eu-1`.
async fn repo(hub: &Hub, name: &str) {
    let ns = hub.world.ns.clone();
    hub.create("GitRepo", &ns, name, json!({}), json!({"repo": "https://github.com/acme/x.git"})).await;
    let of = json!({"fleet.cattle.io/repo-name": name, "fleet.cattle.io/commit": "c1"});
    hub.create("Bundle", &ns, name, of, json!({})).await;
    let generation = 1;
    let status = json!({
        "observedGeneration": generation, "unavailablePartitions": 0, "maxUnavailablePartitions": 0,
        "summary": {"desiredReady": 1, "ready": 1}, "conditions": [condition("Ready", "True", "", "")],
    });
    hub.status("Bundle", &ns, name, status).await;
    let labels = json!({
        "fleet.cattle.io/bundle-name": name, "fleet.cattle.io/bundle-namespace": ns, "fleet.cattle.io/cluster": "eu-1",
        "fleet.cattle.io/cluster-namespace": ns, "fleet.cattle.io/repo-name": name, "fleet.cattle.io/commit": "c1",
    });
    let spec = json!({"deploymentID": "s-c1:eu-1", "stagedDeploymentID": "s-c1:eu-1"});
    let (namespace, object) = (hub.namespace("eu-1"), format!("{name}-eu-1"));
    hub.create("BundleDeployment", &namespace, &object, labels, spec).await;
    let status = json!({"appliedDeploymentID": "s-c1:eu-1", "ready": true, "nonModified": true, "conditions": [condition("Ready", "True", "", "")]});
    hub.status("BundleDeployment", &namespace, &object, status).await;
}

async fn remove(hub: &Hub, name: &str) {
    let of = DeleteParams::default();
    hub.api("GitRepo", &hub.world.ns).delete(name, &of).await.expect("deleted");
    hub.api("Bundle", &hub.world.ns).delete(name, &of).await.expect("deleted");
    let namespace = hub.namespace("eu-1");
    hub.api("BundleDeployment", &namespace).delete(&format!("{name}-eu-1"), &of).await.expect("deleted");
}

#[tokio::test]
async fn each_repository_has_a_pipeline() {
    let mut hub = Hub::new("sets-repos", &["eu-1"]).await;
    hub.join("eu-1", json!({})).await;
    for number in 0..33 {
        repo(&hub, &format!("r{number:02}")).await;
    }
    let own = hub.world.pipeline("r32", &["dev/fence"]).await;
    hub.world.create::<PipelineSet>(of_repos(&json!({}))).await;
    hub.begin(all_triggers()).await;
    ready(&hub.world, ConditionStatus::False, ("NameTaken", "r32"), 33).await;
    assert_eq!(hub.world.get_pipeline("r32").await.spec, own.spec, "one that was made by hand is left alone");
    hub.world.observed("r00").await;
    hub.world.cursor("r00", "hook").await;
    assert_eq!(hub.receiver.log().len(), 0);

    repo(&hub, "late").await;
    let told = hub.receiver.wait("/hook/late-eu-1", 2).await;
    let types = |requests: &[crate::support::receiver::Request]| -> Vec<String> {
        let about =
            |request: &crate::support::receiver::Request| request.json()["type"].as_str().unwrap_or_default().to_owned();
        requests.iter().map(about).filter(|type_| type_ != "Progressing").collect()
    };
    assert_eq!(types(&told)[0], "Added");
    eventually("it is deployed", async || {
        let types = types(&hub.receiver.to("/hook/late-eu-1"));
        if types == ["Added", "Deployed"] { Ok(()) } else { Err(format!("{types:?}")) }
    })
    .await;
    hub.receiver.always("/hook/late-eu-1", Reply::status(503));
    let before = hub.receiver.to("/hook/late-eu-1").len();
    remove(&hub, "late").await;
    hub.receiver.wait("/hook/late-eu-1", before + 1).await;
    assert!(names(&hub.world).await.contains(&"late".to_owned()), "its last delivery is pending");
    hub.receiver.always("/hook/late-eu-1", Reply::status(200));
    gone(&hub.world, "late").await;
    let told = hub.receiver.to("/hook/late-eu-1");
    assert_eq!(told.last().unwrap().json()["type"], "Removed");
    assert_eq!(hub.receiver.log().len(), told.len(), "nothing else is reported");
}

#[tokio::test]
async fn the_clusters_of_a_repository_are_divided_among_pipelines() {
    let clusters: Vec<String> = (1..=12).map(|number| format!("eu-{number}")).chain(["late".to_owned()]).collect();
    let mut hub = Hub::new("sets-chunks", &clusters.each_str()).await;
    for bundle in ["api", "web"] {
        hub.bundle(bundle, "c1").await;
    }
    for cluster in &clusters[..12] {
        hub.join(cluster, json!({})).await;
        for bundle in ["api", "web"] {
            hub.run(bundle, cluster, "c1").await;
        }
    }
    hub.world.create::<PipelineSet>(of_repos(&json!({"chunks": 3}))).await;
    hub.begin(all_triggers()).await;
    made(&hub.world, 3).await;
    let placed = async |count: usize| {
        eventually(&format!("{count} targets"), async || {
            let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for pipeline in hub.world.api::<Pipeline>().list(&ListParams::default()).await.unwrap() {
                let environments = pipeline.status.clone().unwrap_or_default().environments;
                for target in environments.iter().flat_map(|environment| &environment.targets) {
                    all.entry(target.generated.clone().unwrap().name).or_default().push(pipeline.name_any());
                }
            }
            if all.len() == count { Ok(all) } else { Err(format!("{all:?}")) }
        })
        .await
    };
    let before = placed(24).await;
    assert!(before.values().all(|pipelines| pipelines.len() == 1), "{before:?}");
    let of = |cluster: &str, bundle: &str| before[&format!("all/{}.{cluster}/{bundle}", hub.world.ns)][0].clone();
    assert!(clusters[..12].iter().all(|cluster| of(cluster, "api") == of(cluster, "web")), "{before:?}");
    let used: std::collections::BTreeSet<String> = before.values().flatten().cloned().collect();
    assert_eq!(used.into_iter().collect::<Vec<_>>(), ["shop-0", "shop-1", "shop-2"]);
    for name in ["shop-0", "shop-1", "shop-2"] {
        hub.world.cursor(name, "hook").await;
    }
    hub.join("late", json!({})).await;
    for bundle in ["api", "web"] {
        hub.run(bundle, "late", "c1").await;
    }
    let after = placed(26).await;
    assert!(before.iter().all(|(target, pipelines)| after[target] == *pipelines), "a cluster more moves no other");
    hub.receiver.wait("/hook/web-late", 1).await;
    hub.commit("web", "c2").await;
    for cluster in &clusters {
        hub.stage("web", cluster, "c2").await;
        hub.applied("web", cluster, "c2").await;
    }
    for cluster in &clusters {
        let path = format!("/hook/web-{cluster}");
        eventually(&format!("c2 is deployed on {cluster}"), async || {
            let told = hub.receiver.to(&path);
            let last = told.last().map(super::super::support::receiver::Request::json);
            match last {
                Some(last) if last["type"] == "Deployed" && last["revision"] == "c2" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}

/// Borrows texts.
trait EachStr {
    fn each_str(&self) -> Vec<&str>;
}

impl EachStr for Vec<String> {
    fn each_str(&self) -> Vec<&str> {
        self.iter().map(String::as_str).collect()
    }
}
