//! Bundles as targets, charts of a `HelmOp`, settings that an override refuses, and a selector that is edited.

use relaybook_api::Pipeline;
use serde_json::{Value, json};

use super::hub::{Hub, environment};
use crate::support::{Oracle, Receiver, eventually};

#[tokio::test]
async fn a_commit_that_changes_one_bundle_is_reported_as_deployed_for_all() {
    let mut hub = Hub::new("gen-bundles", &["eu-1"]).await;
    let bundles: Vec<String> = (0..3).map(|n| format!("b{n}")).collect();
    hub.join("eu-1", json!({})).await;
    for bundle in &bundles {
        hub.bundle(bundle, "c1").await;
        hub.run(bundle, "eu-1", "c1").await;
    }
    hub.pipeline(json!([
        environment("each", json!({}), json!({})),
        environment("whole", json!({"of": "Bundles"}), json!({})),
        environment("one", json!({"of": "Bundles", "gitRepo": null, "bundle": "b2"}), json!({})),
    ]))
    .await;
    hub.start(json!({})).await;
    let name = |environment: &str, cluster: &str, bundle: &String| format!("{environment}/{cluster}/{bundle}");
    let each = bundles.iter().map(|bundle| name("each", "eu-1", bundle));
    let whole = bundles.iter().map(|bundle| name("whole", "in-cluster", bundle));
    let all: Vec<String> = each.chain(whole).chain(["one/in-cluster/b2".to_owned()]).collect();
    hub.targets(&all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    // Fleet writes the commit into the labels of all Bundles, and only one gets new content.
    for bundle in &bundles {
        hub.commit(bundle, "c2").await;
        if bundle == "b2" {
            hub.stage(bundle, "eu-1", "c2").await;
            hub.applied(bundle, "eu-1", "c2").await;
        } else {
            hub.relabel(bundle, "eu-1", "c2").await;
        }
    }
    for bundle in &bundles {
        hub.runs(bundle, "eu-1", "c2").await;
    }
    hub.world.fence("shop", &["hook"]).await;
    let told: &[&str] = &["Deployed c2"];
    let oracle = Oracle::new(&hub.world, &hub.receiver).lane("shop/hook/one/b2", told);
    let oracle = bundles.iter().fold(oracle, |oracle, bundle| {
        oracle.lane(&format!("shop/hook/each/{bundle}-eu-1"), told).lane(&format!("shop/hook/whole/{bundle}"), told)
    });
    oracle.check().await;
}

#[tokio::test]
async fn a_chart_is_followed_on_each_cluster_by_its_version() {
    let mut hub = Hub::new("gen-charts", &["eu-1", "us-1"]).await;
    let ns = hub.world.ns.clone();
    hub.create("HelmOp", &ns, "db", json!({}), json!({"helm": {"repo": "https://charts.example.com", "chart": "db"}})).await;
    let label = json!({"fleet.cattle.io/fleet-helm-name": "db"});
    hub.create("Bundle", &ns, "db", label.clone(), json!({"helm": {"version": "1.2.0"}})).await;
    let options = |cluster: &str, version: &str| {
        let helm = json!({"helm": {"chart": "db", "version": version}});
        let id = format!("s-{version}:options-of-{cluster}");
        json!({"deploymentID": id, "stagedDeploymentID": id, "options": helm, "stagedOptions": helm})
    };
    for cluster in ["eu-1", "us-1"] {
        hub.join(cluster, json!({})).await;
        let labels = json!({
            "fleet.cattle.io/bundle-name": "db", "fleet.cattle.io/bundle-namespace": ns, "fleet.cattle.io/fleet-helm-name": "db",
            "fleet.cattle.io/cluster": cluster, "fleet.cattle.io/cluster-namespace": ns,
        });
        let (namespace, name) = (hub.namespace(cluster), format!("db-{cluster}"));
        hub.create("BundleDeployment", &namespace, &name, labels, options(cluster, "1.2.0")).await;
        hub.applied("db", cluster, "1.2.0").await;
    }
    hub.pipeline(json!([environment("all", json!({"gitRepo": null, "helmOp": "db"}), json!({}))])).await;
    hub.start(json!({})).await;
    hub.targets(&["all/eu-1/db", "all/us-1/db"]).await;
    for cluster in ["eu-1", "us-1"] {
        let spec = json!({"spec": options(cluster, "1.3.0")});
        hub.patch("BundleDeployment", &hub.namespace(cluster), &format!("db-{cluster}"), spec).await;
        hub.applied("db", cluster, "1.3.0").await;
        hub.runs("db", cluster, "1.3.0").await;
    }
    hub.world.fence("shop", &["hook"]).await;
    let told: &[&str] = &["Deployed 1.3.0"];
    let oracle = Oracle::new(&hub.world, &hub.receiver);
    oracle.lane("shop/hook/all/db-eu-1", told).lane("shop/hook/all/db-us-1", told).check().await;
}

#[tokio::test]
async fn an_override_gets_no_credentials_of_the_layers_below() {
    let mut hub = Hub::new("gen-credentials", &["eu-1", "us-1"]).await;
    hub.bundle("web", "c1").await;
    for cluster in ["eu-1", "us-1"] {
        hub.join(cluster, json!({})).await;
        hub.run("web", cluster, "c1").await;
    }
    let elsewhere = Receiver::start();
    let url = elsewhere.url("/hook/{{target.app.name}}");
    let over = json!({"overrides": [{"clusters": ["us-*"], "notifications": [{"name": "hook", "endpoint": {"url": url}}]}]});
    hub.pipeline(json!([environment("all", json!({}), over)])).await;
    hub.world.secret("theirs", json!({"key": "theirs"})).await;
    let token = json!({"token": {"secretKeyRef": {"name": "theirs", "key": "key"}}});
    hub.start(json!({"endpoint": {"auth": token}})).await;
    hub.targets(&["all/eu-1/web", "all/us-1/web"]).await;
    hub.roll_out("web", &["eu-1", "us-1"], "c2").await;
    hub.receiver.wait("/hook/web-eu-1", 1).await;
    let target = "all/gen-credentials.us-1/web";
    eventually("the problem of the target is reported", async || {
        let dispatched = hub.world.get_pipeline("shop").await.status.unwrap_or_default().dispatched.unwrap_or_default();
        let of = dispatched.notifications.iter().find(|n| n.target.as_deref() == Some(target));
        match of {
            Some(of) if of.reason == "CredentialOriginMismatch" => Ok(()),
            _ => Err(format!("{:?}", dispatched.notifications)),
        }
    })
    .await;
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn an_edited_selector_starts_no_new_watch() {
    let mut hub = Hub::new("gen-selector", &["eu-1", "eu-2"]).await;
    hub.bundle("web", "c1").await;
    for (cluster, tier) in [("eu-1", "gold"), ("eu-2", "silver")] {
        hub.join(cluster, json!({"env": "dev", "tier": tier})).await;
        hub.run("web", cluster, "c1").await;
    }
    let select = |labels: Value| environment("dev", json!({"clusterSelector": {"matchLabels": labels}}), json!({}));
    hub.pipeline(json!([select(json!({"env": "dev"}))])).await;
    hub.start(json!({})).await;
    hub.targets(&["dev/eu-1/web", "dev/eu-2/web"]).await;
    let watches = |hub: &mut Hub| hub.relaybook().log().matches("starting a watch").count();
    let before = watches(&mut hub);
    let fence = json!({"name": "fence", "targets": [{"namespace": hub.world.ns}]});
    for (labels, wanted) in [
        (json!({"env": "dev", "tier": "gold"}), &["dev/eu-1/web"][..]),
        (json!({"tier": "silver"}), &["dev/eu-2/web"]),
        (json!({"env": "dev"}), &["dev/eu-1/web", "dev/eu-2/web"]),
    ] {
        hub.world.patch::<Pipeline>("shop", json!({"spec": {"environments": [select(labels), fence]}})).await;
        hub.targets(wanted).await;
    }
    assert_eq!(watches(&mut hub), before);
    hub.world.fence("shop", &["hook"]).await;
    Oracle::new(&hub.world, &hub.receiver).check().await;
}

#[tokio::test]
async fn a_commit_status_needs_neither_repository_nor_revision_as_parameter() {
    let mut hub = Hub::new("gen-status", &["eu-1"]).await;
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    hub.bundle("web", &old).await;
    hub.join("eu-1", json!({})).await;
    hub.run("web", "eu-1", &old).await;
    // A target that is listed has a commit, and no repository.
    hub.world.deploy("web", &old).await;
    let listed = json!([{"namespace": hub.world.ns, "appRef": {"name": "web"}}]);
    hub.pipeline(json!([environment("all", json!({}), json!({})), {"name": "listed", "targets": listed}])).await;
    let environments: Vec<Value> =
        ["Progressing", "Deployed"].map(|t| json!({"type": t, "environments": ["all", "listed"]})).into();
    let builtin = json!({"builtin": "github-commit-status"});
    hub.world.builtin("hook", &hub.receiver, builtin, json!({"triggers": environments})).await;
    let only_fleet = json!({"triggers": [{"type": "Deployed", "environments": ["all"]}]});
    let gitlab = json!({"builtin": "gitlab-commit-status"});
    hub.world.builtin("gitlab", &hub.receiver, gitlab, only_fleet.clone()).await;
    let bitbucket = json!({"builtin": "bitbucket-build-status", "parameters": {"link": "https://example.com"}});
    hub.world.builtin("bitbucket", &hub.receiver, bitbucket, only_fleet).await;
    hub.relaybook = Some(crate::support::Relaybook::with(&hub.world, hub.options()).await);
    hub.world.ready("hook").await;
    hub.world.cursor("shop", "hook").await;
    eventually("the listed target lacks a repository", async || {
        let dispatched = hub.world.get_pipeline("shop").await.status.unwrap_or_default().dispatched.unwrap_or_default();
        let named = |n: &&relaybook_api::pipeline::NotReadyNotification| {
            n.target.as_deref().is_some_and(|t| t.starts_with("listed/"))
        };
        match dispatched.notifications.iter().find(named) {
            Some(of) if of.reason == "RepositoryMissing" => Ok(()),
            _ => Err(format!("{:?}", dispatched.notifications)),
        }
    })
    .await;
    hub.commit("web", &new).await;
    hub.stage("web", "eu-1", &new).await;
    let path = format!("/repos/acme/shop/statuses/{new}");
    hub.receiver.wait(&path, 1).await;
    hub.applied("web", "eu-1", &new).await;
    let sent = hub.receiver.wait(&path, 2).await;
    let states: Vec<Value> = sent.iter().map(|request| request.json()["state"].clone()).collect();
    assert_eq!(states, ["pending", "success"]);
    let context =
        "relaybook/in-cluster/gen-status/shop/all/gen-status.eu-1/cluster-gen-status-eu-1/BundleDeployment/web-eu-1";
    assert_eq!(sent[0].json()["context"], context);
    hub.receiver.wait(&format!("/api/v4/projects/acme%2Fshop/statuses/{new}"), 1).await;
    hub.receiver.wait(&format!("/2.0/repositories/acme/shop/commit/{new}/statuses/build"), 1).await;
    // Only listed targets: the Notification itself says it.
    let only = json!({"spec": {"environments": [{"name": "listed", "targets": listed}]}});
    hub.world.patch::<Pipeline>("shop", only).await;
    let told = hub.world.condition("hook", "Ready", |c| c.reason == "RepositoryMissing").await;
    assert!(
        told.message.contains("set spec.template.parameters.owner and spec.template.parameters.repository"),
        "{}",
        told.message
    );
}
