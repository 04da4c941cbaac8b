//! Templates: what they make of awkward values, and what is wrong with them told before anything is sent.

use pennant::api::conditions::ConditionStatus;
use percent_encoding::percent_decode_str;
use serde_json::json;

use crate::support::{Oracle, Pennant, Receiver, World};

#[tokio::test]
async fn quotes_and_line_breaks_in_a_message_arrive_as_they_are() {
    let world = World::new("quoted").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let _pennant = Pennant::start(&world).await;
    world.settled().await;

    let message = "a \"quoted\"\nline, a back\\slash, \u{1}, \u{2028}, {{message}} and \u{1f6a9}\"}";
    world.break_("web", "2", message).await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Failed 2"]).check().await;

    let request = &receiver.to("/hook/web")[0];
    assert_eq!((request.method.as_str(), request.header("content-type")), ("POST", "application/json"));
    assert_eq!(request.json()["message"], message);
}

#[tokio::test]
async fn a_missing_field_is_told_before_anything_is_sent_and_heals() {
    let world = World::new("misspelt").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("good", &receiver, json!({})).await;
    let misspelt = json!({"template": {"inline": {"body": r#"{"text": "{{pipline.name}} in {{enviroment}}"}"#}}});
    let bad = world.notification("bad", &receiver, misspelt).await;
    let _pennant = Pennant::start(&world).await;
    world.observed("shop").await;
    world.ready("good").await;
    let ready = world.condition("bad", "Ready", |c| c.status == ConditionStatus::False).await;
    assert_eq!(ready.reason, "TemplateInvalid");
    assert_eq!(
        ready.message,
        "spec.template.inline.body: line 1, column 11: there is no field `pipline.name`; did you mean `pipeline.name`?; line 1, column \
         31: there is no field `enviroment`; did you mean `environment`?"
    );
    assert!(world.warning("bad", "TemplateInvalid").await.contains("pipline.name"));
    world.cursor("shop", "bad").await;

    world.ship("web", "2").await;
    world.ship("web", "3").await;
    let waiting = world.delivery("Deployed 2", |d| d.spec.notification == "bad" && d.status.is_some()).await;
    let status = waiting.status.unwrap();
    assert_eq!((status.reason.as_deref(), status.attempts, status.outcome), (Some("TemplateInvalid"), 0, None));
    assert!(status.error.unwrap().contains("pipline.name"));
    // The other notification is not held up by it.
    world.fence("shop", &["good"]).await;
    Oracle::new(&world, &receiver)
        .lane("shop/good/dev/web", &["Deployed 2", "Deployed 3"])
        .lane("shop/bad/dev/web", &["Deployed 2 [pending]", "Deployed 3 [pending]"])
        .check()
        .await;
    assert!(receiver.to("/bad/web").is_empty());

    let mended = json!({"spec": {"template": {"inline": {"body": crate::support::world::BODY}}}});
    assert_eq!(world.patch::<pennant::api::Notification>("bad", mended).await.metadata.uid, bad.metadata.uid);
    world.ready("bad").await;
    world.fence("shop", &["good", "bad"]).await;
    Oracle::new(&world, &receiver)
        .lane("shop/good/dev/web", &["Deployed 2", "Deployed 3"])
        .lane("shop/bad/dev/web", &["Deployed 2", "Deployed 3"])
        .check()
        .await;
}

#[tokio::test]
async fn a_value_stays_within_its_place_in_the_url() {
    let world = World::new("encoded").await;
    let receiver = Receiver::start();
    let revision = "feature/ä b?c=d&e#f;g%2F../../@sha1:1";
    world.kustomize("web", "0").await;
    world.kustomize("fence", "0").await;
    world.flux_pipeline("shop", &["dev/web"]).await;
    let url = receiver.url("/{{target.app.name}}/{{revision}}/set?of={{revision}}&by=pennant");
    // What is removed has no revision, and so no such URL.
    let hook = json!({"endpoint": {"url": url}, "triggers": [{"type": "Deployed"}]});
    world.notification("hook", &receiver, hook).await;
    let _pennant = Pennant::start(&world).await;
    world.settled().await;

    world.applied("web", revision).await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &[&format!("Deployed {revision}")]).check().await;

    let log = receiver.log();
    let (path, query) = log.iter().find_map(|r| r.path.strip_prefix("/web/")).unwrap().split_once('?').unwrap();
    let value = path.strip_suffix("/set").unwrap();
    assert!(!value.contains(['/', '?', '#', ';', ' ']), "{value}");
    assert_eq!(percent_decode_str(value).decode_utf8().unwrap(), revision);
    let (of, by) = query.split_once('&').unwrap();
    assert_eq!((percent_decode_str(of).decode_utf8().unwrap().as_ref(), by), (&*format!("of={revision}"), "by=pennant"));
}
