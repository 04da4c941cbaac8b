//! What people do: pipelines of their own, edits of pipelines of a set, and edits of the set.

use kube::api::PatchParams;

use super::*;

#[tokio::test]
async fn a_pipeline_that_no_set_created_is_not_changed() {
    let world = World::new("sets-taken").await;
    world.deploy_with("a", "1", json!({"env": "dev"})).await;
    world.deploy_with("b", "1", json!({"env": "dev"})).await;
    let own = world.pipeline("a-app", &["dev/fence"]).await;
    world.create::<PipelineSet>(of_deployments(&json!({}))).await;
    let _relaybook = Relaybook::start(&world).await;
    let message = ready(&world, ConditionStatus::False, ("NameTaken", ""), 1).await;
    assert!(message.starts_with("a-app: a pipeline of this name exists that no set made"), "{message}");
    let now = world.get_pipeline("a-app").await;
    assert_eq!((now.spec, now.metadata.labels, now.metadata.owner_references), (own.spec, None, None));
    // Nobody can add it to a set.
    let made_by = json!({"name": "apps", "source": {"apiVersion": "v1", "kind": "K", "namespace": "n", "name": "x"}});
    let patch = kube::api::Patch::Merge(json!({"spec": {"pipelineSet": made_by}}));
    let error = world.api::<Pipeline>().patch("a-app", &PatchParams::default(), &patch).await.unwrap_err().to_string();
    assert!(error.contains("pipelineSet cannot be added"), "{error}");
    // With another name there is room for both.
    world.patch::<PipelineSet>("apps", json!({"spec": {"template": {"metadata": {"name": "{{name}}-all"}}}})).await;
    made(&world, 2).await;
    assert_eq!(names(&world).await, ["a-all", "a-app", "b-all"]);
}

#[tokio::test]
async fn edits_of_a_pipeline_are_reverted_and_edits_of_its_set_are_applied() {
    let world = World::new("sets-edits").await;
    world.deploy_with("a", "1", json!({"env": "dev"})).await;
    world.create::<PipelineSet>(of_deployments(&json!({}))).await;
    let relaybook = Relaybook::start(&world).await;
    made(&world, 1).await;
    let is = async |what: &str, holds: fn(&Pipeline) -> bool| {
        eventually(what, async || {
            let pipeline = world.get_pipeline("a-app").await;
            if holds(&pipeline) { Ok(()) } else { Err(format!("{pipeline:?}")) }
        })
        .await;
    };
    let mine = json!({"metadata": {"labels": {"mine": "x", "env": "other"}}, "spec": {"appRef": {"name": "x"}}});
    world.patch::<Pipeline>("a-app", mine).await;
    is("what the set wrote is back, and the other label stays", |pipeline| {
        pipeline.labels()["env"] == "dev" && pipeline.labels()["mine"] == "x" && pipeline.spec.app_ref.name == "a"
    })
    .await;
    // Server-side apply changes only the fields of its owner, so what somebody adds stays, and is applied only once.
    world.patch::<Pipeline>("a-app", json!({"spec": {"hooks": {"secretRef": {"name": "mine"}}}})).await;
    world.patch::<Deployment>("a", json!({"metadata": {"labels": {"env": "prod"}}})).await;
    is("a label of the source is followed", |pipeline| pipeline.labels()["env"] == "prod").await;
    let owned = json!({"metadata": {"labels": {"env": "{{default labels.owner \"\"}}"}}});
    world.patch::<PipelineSet>("apps", json!({"spec": {"template": owned}})).await;
    is("a label without a value is removed", |pipeline| !pipeline.labels().contains_key("env")).await;
    let template = json!({"metadata": {"labels": {"env": null, "team": "a"}}, "spec": {"environments": [{"name": "live", "targets": [{"namespace": "{{namespace}}"}]}]}});
    world.patch::<PipelineSet>("apps", json!({"spec": {"template": template}})).await;
    is("the template is followed", |pipeline| {
        let environments: Vec<&str> =
            pipeline.spec.environments.iter().map(|environment| environment.name.as_str()).collect();
        pipeline.labels().get("team").is_some_and(|team| team == "a") && environments == ["live"]
    })
    .await;
    world.patch::<PipelineSet>("apps", json!({"spec": {"deletion": "Orphan"}})).await;
    is("the set owns it no more", |pipeline| pipeline.owner_references().is_empty()).await;
    world.delete::<Deployment>("a").await;
    world.observed("a-app").await;

    // Idle: nothing is written.
    let writes = async || {
        let metrics = relaybook.metrics().await;
        let of = |what: &str| -> f64 {
            metrics
                .iter()
                .filter(|(name, _)| name.contains("api_writes") && name.contains(what))
                .map(|(_, value)| value)
                .sum()
        };
        of("pipeline_of_set") + of("pipeline_set_status")
    };
    eventually("what the edits cause is written", async || {
        let before = writes().await;
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let more = writes().await - before;
        if more < 0.5 { Ok(()) } else { Err(format!("{more} writes")) }
    })
    .await;
    let before = writes().await;
    assert!(before >= 5.0, "{before}");
    world.deploy("other", "1").await;
    world.ship("other", "2").await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert!((writes().await - before).abs() < 0.5, "a Deployment that is not selected causes no write");
    assert_eq!(names(&world).await, ["a-app"], "it stays");
}

#[tokio::test]
async fn a_new_name_or_number_of_chunks_reports_nothing() {
    let world = World::new("sets-renamed").await;
    let receiver = Receiver::start();
    world.notification("hook", &receiver, all_triggers()).await;
    let objects = json!({"apiVersion": "apps/v1", "kind": "Deployment", "selector": {"matchLabels": {"env": "{{name}}"}}});
    let spec =
        json!({"appRef": null, "environments": [{"name": "all", "targets": null, "targetsFrom": [{"objects": objects}]}]});
    let sources =
        json!([{"objects": {"apiVersion": "batch/v1", "kind": "Job", "selector": {"matchLabels": {"source": "yes"}}}}]);
    let over = json!({"generators": sources, "template": {"metadata": {"name": "{{name}}"}, "spec": spec}});
    world.create::<PipelineSet>(of_deployments(&over)).await;
    let _relaybook = Relaybook::start(&world).await;
    made(&world, 0).await;
    // The source appears while the set looks.
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}});
    let labels = json!({"source": "yes"});
    world
        .create::<k8s_openapi::api::batch::v1::Job>(
            json!({"metadata": {"name": "shop", "labels": labels}, "spec": {"template": pod}}),
        )
        .await;
    made(&world, 1).await;
    exists(&world, "shop").await;
    world.cursor("shop", "hook").await;
    for app in ["a", "b", "c", "d"] {
        world.deploy_with(app, "1", json!({"env": "shop"})).await;
        receiver.wait(&format!("/hook/{app}"), 2).await;
    }
    let told = async || {
        // What the changes so far cause is sent.
        for app in ["a", "b", "c", "d"] {
            eventually("the rollout is reported", async || {
                let types: Vec<Value> =
                    receiver.to(&format!("/hook/{app}")).iter().map(|told| told.json()["type"].clone()).collect();
                if types.last() == Some(&json!("Deployed")) { Ok(()) } else { Err(format!("{types:?}")) }
            })
            .await;
        }
        receiver.log().len()
    };
    let before = told().await;
    for (change, names) in [
        (json!({"template": {"metadata": {"name": "{{name}}-all"}}}), &["shop-all"][..]),
        (json!({"chunks": 2}), &["shop-all-0", "shop-all-1"]),
        (json!({"chunks": 3}), &["shop-all-0", "shop-all-1", "shop-all-2"]),
    ] {
        world.patch::<PipelineSet>("apps", json!({"spec": change})).await;
        eventually(&format!("{names:?}"), async || {
            let now = super::names(&world).await;
            if now == names { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
        for name in names {
            world.observed(name).await;
            world.cursor(name, "hook").await;
        }
    }
    assert_eq!(told().await, before, "the objects are the same");
    for app in ["a", "b", "c", "d"] {
        world.ship(app, "2").await;
        let all = receiver.wait(&format!("/hook/{app}"), 4).await;
        assert!(all.iter().filter(|told| told.json()["type"] == "Added").count() == 1);
    }
}

#[tokio::test]
async fn a_refused_pipeline_is_shown_and_stops_no_other_pipeline() {
    let world = World::new("sets-refused").await;
    let receiver = Receiver::start();
    world.deploy_with("a", "1", json!({"env": "dev"})).await;
    world.notification("hook", &receiver, all_triggers()).await;
    let policy = json!({"after": "{{default labels.after \"1m\"}}", "suspend": true, "strategy": {"notification": {}}});
    let environments = json!([
        {"name": "all", "targets": [{"namespace": "{{namespace}}"}]},
        {"name": "next", "targets": [{"namespace": "{{namespace}}", "appRef": {"name": "fence"}}], "promotion": policy},
    ]);
    // A generator of a kind that is not installed, and one that is.
    let mut set = of_deployments(&json!({"template": {"spec": {"environments": environments}}}));
    let missing = json!({"objects": {"apiVersion": "example.com/v1", "kind": "Nothing"}});
    set["spec"]["generators"].as_array_mut().unwrap().push(missing);
    world.create::<PipelineSet>(set).await;
    let _relaybook = Relaybook::start(&world).await;
    ready(&world, ConditionStatus::False, ("KindNotFound", "generators[1]"), 1).await;
    exists(&world, "a-app").await;
    world.cursor("a-app", "hook").await;
    world.deploy_with("b", "1", json!({"env": "dev"})).await;
    assert_eq!(receiver.wait("/hook/b", 1).await[0].json()["type"], "Added", "a missing kind makes no other silent");
    world.patch::<PipelineSet>("apps", json!({"spec": {"template": {"spec": {"nonsense": true}}}})).await;
    let only = of_deployments(&json!({}))["spec"]["generators"].clone();
    world.patch::<PipelineSet>("apps", json!({"spec": {"generators": only}})).await;
    ready(&world, ConditionStatus::False, ("Invalid", "template.spec.nonsense"), 2).await;
    world.patch::<PipelineSet>("apps", json!({"spec": {"template": {"spec": {"nonsense": null}}}})).await;
    made(&world, 2).await;

    // The API server refuses the pipeline of one source, until that source is corrected.
    world.deploy_with("c", "1", json!({"env": "dev", "after": "nonsense"})).await;
    let message = ready(&world, ConditionStatus::False, ("Invalid", "durations such as 30m"), 2).await;
    assert!(message.starts_with("c-app: "), "{message}");
    world.patch::<Deployment>("c", json!({"metadata": {"labels": {"after": "5m"}}})).await;
    made(&world, 3).await;
    world.patch::<PipelineSet>("apps", json!({"spec": {"template": {"metadata": {"name": "{{nam}}"}}}})).await;
    let message = ready(&world, ConditionStatus::False, ("TemplateInvalid", "template.metadata.name"), 3).await;
    assert!(message.contains("did you mean `name`?"), "{message}");
    assert_eq!(names(&world).await, ["a-app", "b-app", "c-app"], "what is there stays");
}

/// Waits until a set is refused the name of a pipeline that set `owner` made.
async fn refused(world: &World, set: &str, owner: &str) {
    eventually(&format!("{set} does not get the name"), async || {
        let set = world.api::<PipelineSet>().get(set).await.map_err(|error| error.to_string())?;
        let of = set.status.unwrap_or_default();
        let words = format!("PipelineSet {owner} ");
        let is_taken = of.wrong.first().is_some_and(|wrong| wrong.reason == "NameTaken" && wrong.message.contains(&words));
        if is_taken { Ok(()) } else { Err(format!("{of:?}")) }
    })
    .await;
}

/// Each edit of a source changes what both sets want. Only the set that made the pipeline changes it, and once.
#[tokio::test]
async fn sets_that_claim_one_name_do_not_fight() {
    const EDITS: i64 = 8;
    let world = World::new("sets-fight").await;
    world.deploy_with("a", "1", json!({"env": "e0"})).await;
    let _relaybook = Relaybook::start(&world).await;
    for name in ["apps", "other"] {
        let environment = json!({"name": "{{default labels.env \"none\"}}", "targets": [{"namespace": "{{namespace}}"}]});
        let mut set = of_deployments(&json!({"template": {"spec": {"environments": [environment]}}}));
        set["metadata"]["name"] = json!(name);
        world.create::<PipelineSet>(set).await;
    }
    eventually("the first one has its pipeline", async || {
        let sets = world.api::<PipelineSet>().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let made: Vec<_> = sets.iter().map(|set| set.status.clone().unwrap_or_default()).collect();
        if made.iter().any(|status| status.pipelines == 1) { Ok(()) } else { Err(format!("{made:?}")) }
    })
    .await;
    exists(&world, "a-app").await;
    let first = world.get_pipeline("a-app").await;
    let winner = first.spec.pipeline_set.as_ref().map(|made_by| made_by.name.clone()).expect("a set made it");
    let loser = if winner == "apps" { "other" } else { "apps" };
    refused(&world, loser, &winner).await;
    for edit in 1..=EDITS {
        let env = format!("e{edit}");
        world.patch::<Deployment>("a", json!({"metadata": {"labels": {"env": env}}})).await;
        eventually("the edit is in the pipeline", async || {
            let now = world.get_pipeline("a-app").await;
            if now.labels().get("env") == Some(&env) { Ok(()) } else { Err(format!("{:?}", now.metadata)) }
        })
        .await;
    }
    refused(&world, loser, &winner).await;
    let now = world.get_pipeline("a-app").await;
    let set = now.spec.pipeline_set.as_ref().map(|made_by| made_by.name.as_str());
    assert_eq!((set, now.uid(), now.owner_references()), (Some(winner.as_str()), first.uid(), first.owner_references()));
    let edits = now.metadata.generation.zip(first.metadata.generation).map(|(now, first)| now - first);
    // The set removes the baseline at some time, which is an edit, too.
    assert!(edits.is_some_and(|edits| (EDITS..=EDITS + 1).contains(&edits)), "{edits:?}");

    // Without its label, the watch does not deliver the pipeline. Its set finds it, and restores it.
    let patch = json!({"metadata": {"labels": {"relaybook.dev/pipeline-set": null}}, "spec": {"appRef": {"name": "x"}}});
    world.patch::<Pipeline>("a-app", patch).await;
    eventually("the pipeline is as before", async || {
        let now = world.get_pipeline("a-app").await;
        let is_back = now.labels().get("relaybook.dev/pipeline-set") == Some(&winner) && now.spec.app_ref.name == "a";
        if is_back { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
}
