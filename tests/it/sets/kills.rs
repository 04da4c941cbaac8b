//! Sources that come and go while the program is killed.

use std::time::Duration;

use super::*;

/// The sources.
const APPS: usize = 12;

/// Returns the distinct deliveries about an app, as types in the order of their first requests.
fn told(receiver: &Receiver, app: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut types = Vec::new();
    for request in receiver.to(&format!("/hook/{app}")) {
        if !ids.contains(&request.id().to_owned()) {
            ids.push(request.id().to_owned());
            types.push(request.json()["type"].as_str().unwrap_or_default().to_owned());
        }
    }
    types
}

#[tokio::test]
async fn no_source_is_lost_and_none_is_reported_twice() {
    let world = World::new("sets-kills").await;
    let receiver = Receiver::start();
    world.deploy_with("old", "1", json!({"env": "dev"})).await;
    world.notification("hook", &receiver, all_triggers()).await;
    world.create::<PipelineSet>(of_deployments(&json!({}))).await;
    let mut relaybook = Relaybook::start(&world).await;
    made(&world, 1).await;
    world.observed("old-app").await;
    world.cursor("old-app", "hook").await;
    let apps: Vec<String> = (0..APPS).map(|number| format!("app{number:02}")).collect();
    for (number, app) in apps.iter().enumerate() {
        world.deploy_with(app, "1", json!({"env": "dev"})).await;
        if number % 2 == 0 {
            tokio::time::sleep(Duration::from_millis(u64::try_from(number).unwrap() * 37)).await;
            relaybook.restart().await;
        }
    }
    for app in &apps {
        eventually(&format!("{app} is reported"), async || {
            let told = told(&receiver, app);
            if told.last().is_some_and(|last| last == "Deployed") { Ok(()) } else { Err(format!("{told:?}")) }
        })
        .await;
    }
    for (number, app) in apps.iter().enumerate() {
        world.delete::<Deployment>(app).await;
        if number % 2 == 1 {
            tokio::time::sleep(Duration::from_millis(u64::try_from(number).unwrap() * 23)).await;
            relaybook.restart().await;
        }
    }
    for app in &apps {
        gone(&world, &format!("{app}-app")).await;
        let told = told(&receiver, app);
        assert_eq!(told.first().map(String::as_str), Some("Added"), "{app}: {told:?}");
        assert_eq!(told.last().map(String::as_str), Some("Removed"), "{app}: {told:?}");
        for type_ in ["Added", "Deployed", "Removed"] {
            assert_eq!(told.iter().filter(|told| *told == type_).count(), 1, "{app}: {told:?}");
        }
    }
    assert!(told(&receiver, "old").is_empty());
    made(&world, 1).await;
}
