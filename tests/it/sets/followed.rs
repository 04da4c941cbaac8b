//! `--follow`: sets that the program makes.

use super::*;
use crate::support::pennant::Options;

#[tokio::test]
async fn follow_makes_a_pipeline_for_each_object_of_a_kind() {
    let world = World::new("sets-follow").await;
    let receiver = Receiver::start();
    for app in ["a", "b"] {
        world.deploy(app, "1").await;
    }
    world.notification("hook", &receiver, all_triggers()).await;
    let args = vec!["--follow=deployments".to_owned()];
    let mut pennant = Pennant::with(&world, Options { args, ..Options::of(&world) }).await;
    let name = |app: &str| format!("deployment.{}.{app}", world.ns);
    for app in ["a", "b", "fence"] {
        exists(&world, &name(app)).await;
    }
    world.cursor(&name("a"), "hook").await;
    world.break_("a", "2", "no such image").await;
    let told = receiver.wait("/hook/a", 2).await;
    assert_eq!(told.last().unwrap().json()["type"], "Failed");
    world.deploy("c", "1").await;
    assert_eq!(receiver.wait("/hook/c", 1).await[0].json()["type"], "Added");
    pennant.stop().await;

    // Another kind takes its place.
    let args = vec!["--follow=kustomizations".to_owned()];
    let _pennant = Pennant::with(&world, Options { args, ..Options::of(&world) }).await;
    eventually("only the set of the other kind is there", async || {
        let sets = world.api::<PipelineSet>().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let names: Vec<String> = sets.iter().map(ResourceExt::name_any).collect();
        if names == ["follow-kustomizations"] { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
}
