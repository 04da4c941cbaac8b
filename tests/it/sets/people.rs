//! What people do: pipelines of their own, edits of pipelines of a set, and edits of the set.

use kube::api::PatchParams;

use super::*;

#[tokio::test]
async fn a_pipeline_that_no_set_made_is_left_alone() {
    let world = World::new("sets-taken").await;
    world.deploy_with("a", "1", json!({"env": "dev"})).await;
    world.deploy_with("b", "1", json!({"env": "dev"})).await;
    let own = world.pipeline("a-app", &["dev/fence"]).await;
    world.create::<PipelineSet>(of_deployments(&json!({}))).await;
    let _pennant = Pennant::start(&world).await;
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
async fn edits_of_a_pipeline_are_changed_back_and_edits_of_the_set_are_made() {
    let world = World::new("sets-edits").await;
    world.deploy_with("a", "1", json!({"env": "dev"})).await;
    world.create::<PipelineSet>(of_deployments(&json!({}))).await;
    let pennant = Pennant::start(&world).await;
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
    let template = json!({"metadata": {"labels": {"env": null, "team": "a"}}, "spec": {"environments": [{"name": "live", "targets": [{"namespace": "{{namespace}}"}]}]}});
    world.patch::<PipelineSet>("apps", json!({"spec": {"template": template}})).await;
    is("the template is followed", |pipeline| {
        let environments: Vec<&str> =
            pipeline.spec.environments.iter().map(|environment| environment.name.as_str()).collect();
        !pipeline.labels().contains_key("env") && pipeline.labels()["team"] == "a" && environments == ["live"]
    })
    .await;
    world.patch::<PipelineSet>("apps", json!({"spec": {"deletion": "Orphan"}})).await;
    is("the set owns it no more", |pipeline| pipeline.owner_references().is_empty()).await;
    world.delete::<Deployment>("a").await;
    world.observed("a-app").await;

    // Idle: nothing is written.
    let writes = async || {
        let metrics = pennant.metrics().await;
        let of = |what: &str| -> f64 {
            metrics
                .iter()
                .filter(|(name, _)| name.contains("api_writes") && name.contains(what))
                .map(|(_, value)| value)
                .sum()
        };
        of("pipeline_of_set") + of("pipeline_set_status")
    };
    let before = writes().await;
    assert!(before >= 5.0, "{before}");
    world.deploy("other", "1").await;
    world.ship("other", "2").await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert!((writes().await - before).abs() < 0.5, "a Deployment that is not selected causes no write");
    assert_eq!(names(&world).await, ["a-app"], "it stays");
}

#[tokio::test]
async fn what_is_wrong_is_wrong_for_one_source() {
    let world = World::new("sets-wrong").await;
    world.deploy_with("a", "1", json!({"env": "dev"})).await;
    world.deploy_with("b", "1", json!({"env": "dev", "after": "nonsense"})).await;
    let policy = json!({"after": "{{default labels.after \"1m\"}}", "strategy": {"notification": {}}});
    let environments = json!([
        {"name": "dev", "targets": [{"namespace": "{{namespace}}"}]},
        {"name": "prod", "targets": [{"namespace": "{{namespace}}", "appRef": {"name": "fence"}}], "promotion": policy},
    ]);
    world.create::<PipelineSet>(of_deployments(&json!({"template": {"spec": {"environments": environments}}}))).await;
    let _pennant = Pennant::start(&world).await;
    let message = ready(&world, ConditionStatus::False, ("Invalid", ""), 1).await;
    assert!(message.starts_with("b-app: ") && message.contains("durations such as 30m"), "{message}");
    world.patch::<Deployment>("b", json!({"metadata": {"labels": {"after": "5m"}}})).await;
    made(&world, 2).await;
    world.patch::<PipelineSet>("apps", json!({"spec": {"template": {"metadata": {"name": "{{nam}}"}}}})).await;
    let message = ready(&world, ConditionStatus::False, ("TemplateInvalid", ""), 2).await;
    assert!(message.contains("template.metadata.name") && message.contains("did you mean `name`?"), "{message}");
    assert_eq!(names(&world).await, ["a-app", "b-app"], "what is there stays");
}
