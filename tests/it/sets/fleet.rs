//! Sets over the objects of Fleet: one pipeline for each `GitRepo`, and the clusters of one `GitRepo` divided among pipelines.

use std::collections::BTreeMap;

use kube::api::DeleteParams;
use relaybook_api::pipeline::TargetStatus;

use super::*;
use crate::fleet::{counted, status_of};
use crate::generated::hub::Hub;
use crate::support::relaybook::Options;
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
    for name in ["r0", "r1", "r2", "r3"] {
        repo(&hub, name).await;
    }
    let own = hub.world.pipeline("r3", &["dev/fence"]).await;
    hub.world.create::<PipelineSet>(of_repos(&json!({}))).await;
    hub.begin(all_triggers()).await;
    ready(&hub.world, ConditionStatus::False, ("NameTaken", "r3"), 4).await;
    assert_eq!(hub.world.get_pipeline("r3").await.spec, own.spec, "one that was made by hand is left alone");
    hub.world.observed("r0").await;
    hub.world.cursor("r0", "hook").await;
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

/// Writes the status of a `GitRepo` at a commit.
async fn at_commit(hub: &Hub, commit: &str) {
    let status = json!({"commit": commit, "gitJobStatus": "Current", "summary": {"desiredReady": 1, "ready": 1}});
    status_of(&hub.world, "GitRepo", "shop", status).await;
}

/// Waits until these messages have been sent to a path, as `TYPE REVISION`, apart from those about progress.
async fn told(receiver: &Receiver, path: &str, wanted: &[&str]) {
    eventually(&format!("{wanted:?} at {path}"), async || {
        let about = |request: &crate::support::receiver::Request| {
            let body = request.json();
            format!("{} {}", body["type"].as_str().unwrap_or_default(), body["revision"].as_str().unwrap_or_default())
        };
        let all: Vec<String> = receiver.to(path).iter().map(about).filter(|told| !told.starts_with("Progressing")).collect();
        if all == wanted { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
}

#[tokio::test]
async fn follow_reports_a_commit_once_for_each_kind_of_fleet_object() {
    let hub = Hub::new("sets-fleet-follow", &["eu-1"]).await;
    let (world, receiver) = (&hub.world, &hub.receiver);
    let ns = world.ns.as_str();
    hub.join("eu-1", json!({})).await;
    // A GitRepo, a HelmOp and a Bundle of its own. The first two have a Bundle, too, and the first one runs on a cluster.
    hub.bundle("web", "c1").await;
    hub.run("web", "eu-1", "c1").await;
    at_commit(&hub, "c1").await;
    let chart = |version: &str| json!({"helm": {"chart": "db", "version": version}});
    hub.create("HelmOp", ns, "db", json!({}), chart("1.2.0")).await;
    hub.create("Bundle", ns, "db-chart", json!({"fleet.cattle.io/fleet-helm-name": "db"}), chart("1.2.0")).await;
    status_of(world, "Bundle", "db-chart", counted(1, 1)).await;
    let accepted = json!({"version": "1.2.0", "conditions": [condition("Accepted", "True", "", "")]});
    status_of(world, "HelmOp", "db", accepted).await;
    hub.create("Bundle", ns, "agent", json!({"fleet.cattle.io/commit": "a1"}), json!({})).await;
    status_of(world, "Bundle", "agent", counted(1, 1)).await;

    world.notification("hook", receiver, json!({})).await;
    let args = vec!["--follow=gitrepos,helmops,bundles".to_owned()];
    let _relaybook = Relaybook::with(world, Options { args, ..hub.options() }).await;
    let wanted = [format!("bundle.{ns}.agent"), format!("gitrepo.{ns}.shop"), format!("helmop.{ns}.db")];
    for name in &wanted {
        exists(world, name).await;
        world.cursor(name, "hook").await;
    }
    assert_eq!(names(world).await, wanted, "the Bundles of the GitRepo and of the HelmOp are their parts");

    hub.commit("web", "c2").await;
    hub.stage("web", "eu-1", "c2").await;
    hub.applied("web", "eu-1", "c2").await;
    at_commit(&hub, "c2").await;
    told(receiver, "/hook/shop", &["Deployed c2"]).await;
    hub.patch("HelmOp", ns, "db", json!({"spec": chart("1.3.0")})).await;
    hub.patch("Bundle", ns, "db-chart", json!({"spec": chart("1.3.0")})).await;
    status_of(world, "HelmOp", "db", json!({"version": "1.3.0"})).await;
    status_of(world, "Bundle", "db-chart", counted(1, 1)).await;
    told(receiver, "/hook/db", &["Deployed 1.3.0"]).await;
    hub.patch("Bundle", ns, "agent", json!({"metadata": {"labels": {"fleet.cattle.io/commit": "a2"}}})).await;
    told(receiver, "/hook/agent", &["Deployed a2"]).await;
    assert_eq!(receiver.log().len(), 3, "each is reported once");
}

/// The set `apps` of one pipeline for each `GitRepo` of all workspaces, with its `BundleDeployments` in another environment.
fn of_workspaces() -> Value {
    let fleet = "fleet.cattle.io/v1alpha1";
    let labels = json!({"fleet.cattle.io/repo-name": "{{name}}", "fleet.cattle.io/bundle-namespace": "{{namespace}}"});
    let objects = json!({
        "apiVersion": fleet, "kind": "BundleDeployment", "namespaces": ["*"], "selector": {"matchLabels": labels},
        "cluster": ".metadata.labels['fleet.cattle.io/cluster']",
    });
    let spec = json!({
        "appRef": {"apiVersion": fleet, "kind": "GitRepo", "name": "{{name}}"},
        "environments": [
            {"name": "whole", "targets": [{"namespace": "{{namespace}}"}]},
            {"name": "clusters", "targetsFrom": [{"objects": objects}]},
        ],
    });
    let metadata = json!({"name": "{{namespace}}.{{name}}", "labels": {"workspace": "{{namespace}}"}});
    let generator = json!({"objects": {"apiVersion": fleet, "kind": "GitRepo", "namespaces": ["*"]}});
    let spec = json!({"generators": [generator], "template": {"metadata": metadata, "spec": spec}});
    json!({"metadata": {"name": "apps"}, "spec": spec})
}

/// Waits until a pipeline has its deployment on cluster `eu-1` as a target.
async fn by_cluster(world: &World, pipeline: &str) {
    eventually(&format!("{pipeline} has the deployment on eu-1"), async || {
        let status = world.get_pipeline(pipeline).await.status.unwrap_or_default();
        let mut targets = status.environments.iter().flat_map(|environment| &environment.targets);
        let is = |target: &TargetStatus| {
            let generated = target.generated.as_ref();
            generated.is_some_and(|generated| generated.name.starts_with("clusters/eu-1/")) && target.settled.is_some()
        };
        if targets.any(is) { Ok(()) } else { Err(format!("{:?}", status.environments)) }
    })
    .await;
}

#[tokio::test]
async fn one_set_follows_all_workspaces_that_relaybook_watches() {
    let world = World::new("sets-workspaces").await;
    let receiver = Receiver::start();
    let hubs = [Hub::new("sets-workspace-a", &["eu-1"]).await, Hub::new("sets-workspace-b", &["eu-1"]).await];
    let unwatched = Hub::new("sets-workspace-c", &[]).await;
    at_commit(&unwatched, "c1").await;
    for hub in &hubs {
        hub.join("eu-1", json!({})).await;
        hub.bundle("web", "c1").await;
        hub.run("web", "eu-1", "c1").await;
        at_commit(hub, "c1").await;
    }
    let url = receiver.url("/hook/{{environment}}/{{target.namespace}}/{{target.app.name}}");
    world.notification("hook", &receiver, json!({"endpoint": {"url": url}})).await;
    world.create::<PipelineSet>(of_workspaces()).await;
    let watch: Vec<String> = hubs.iter().flat_map(|hub| hub.options().watch).chain([world.ns.clone()]).collect();
    let mut relaybook = Relaybook::with(&world, Options { watch: watch.clone(), ..Options::of(&world) }).await;
    made(&world, 2).await;
    let wanted = ["sets-workspace-a.shop", "sets-workspace-b.shop"];
    assert_eq!(names(&world).await, wanted);
    for name in wanted {
        exists(&world, name).await;
        by_cluster(&world, name).await;
        world.cursor(name, "hook").await;
    }
    // A commit in one workspace is reported for that one, as a whole and by cluster.
    let [_, b] = &hubs;
    b.commit("web", "c2").await;
    b.stage("web", "eu-1", "c2").await;
    b.applied("web", "eu-1", "c2").await;
    at_commit(b, "c2").await;
    told(&receiver, "/hook/whole/sets-workspace-b/shop", &["Deployed c2"]).await;
    told(&receiver, &format!("/hook/clusters/{}/web-eu-1", b.namespace("eu-1")), &["Deployed c2"]).await;
    assert_eq!(receiver.log().len(), 2, "the other workspace has no news");
    relaybook.stop().await;

    // The wall between namespaces holds for sets, too.
    let args = vec!["--no-cross-namespace-refs".to_owned()];
    let _relaybook = Relaybook::with(&world, Options { watch, args, ..Options::of(&world) }).await;
    eventually("the set is refused", async || {
        let set = world.api::<PipelineSet>().get("apps").await.map_err(|error| error.to_string())?;
        let conditions = set.status.unwrap_or_default().conditions;
        let refused = get(&conditions, READY).is_some_and(|condition| condition.reason == "CrossNamespaceSource");
        if refused { Ok(()) } else { Err(format!("{conditions:?}")) }
    })
    .await;
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
