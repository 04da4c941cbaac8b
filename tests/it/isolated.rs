//! Tests that a problem of one notification does not affect other notifications.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use relaybook_api::conditions::ConditionStatus;
use relaybook_api::{Delivery, Notification};
use serde_json::json;

use crate::support::world::BODY;
use crate::support::{Oracle, Receiver, Relaybook, Reply, World, eventually};

#[tokio::test]
async fn a_rejected_record_blocks_only_its_notification() {
    let world = World::new("isolated-refused").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    world.notification("other", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    forbid(&world, "hook").await;

    world.ship("web", "2").await;
    world.ship("web", "3").await;
    world.fence("shop", &["other"]).await;
    let refused = world.condition("hook", "Delivering", |c| c.reason == "RecordRefused").await;
    assert_eq!(refused.status, ConditionStatus::False);
    assert!(refused.message.contains("not in this house"), "{}", refused.message);
    world.ready("hook").await;
    world.condition("other", "Delivering", |c| c.status == ConditionStatus::True).await;
    world.warning("hook", "RecordRefused").await;
    assert!(receiver.to("/hook/web").is_empty());

    allow(&world).await;
    world.fence("shop", &["hook", "other"]).await;
    let all = ["Deployed 2", "Deployed 3"];
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &all).lane("shop/other/dev/web", &all).check().await;
    world.condition("hook", "Delivering", |c| c.status == ConditionStatus::True).await;
}

#[tokio::test]
async fn a_receiver_that_never_answers_delays_only_its_own_lanes() {
    let world = World::new("isolated-hung").await;
    let (hung, quick) = (Receiver::start(), Receiver::start());
    hung.always("/slow/web", Reply::Hang);
    hung.always("/slow/fence", Reply::Hang);
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("slow", &hung, json!({})).await;
    world.notification("quick", &quick, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    for tag in ["2", "3", "4"] {
        world.ship("web", tag).await;
    }
    world.fence("shop", &["quick"]).await;
    world.condition("slow", "Delivering", |c| c.reason == "Timeout").await;
    world.condition("quick", "Delivering", |c| c.status == ConditionStatus::True).await;
    let told: Vec<_> = hung.to("/slow/web").iter().map(|r| r.id().to_owned()).collect();
    assert!(told.iter().all(|id| *id == told[0]), "the next delivery did not wait for the first: {told:?}");

    hung.always("/slow/web", Reply::status(200));
    hung.always("/slow/fence", Reply::status(200));
    world.fence("shop", &["slow", "quick"]).await;
    let all = ["Deployed 2", "Deployed 3", "Deployed 4"];
    Oracle::new(&world, &hung).and(&quick).lane("shop/slow/dev/web", &all).lane("shop/quick/dev/web", &all).check().await;
}

#[tokio::test]
async fn a_broken_template_blocks_only_its_notification_and_recovers() {
    let world = World::new("isolated-broken").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("sound", &receiver, json!({})).await;
    let misspelt = json!({"template": {"inline": {"body": r#"{"text": "{{pipline.name}} in {{enviroment}}"}"#}}});
    let broken = world.notification("broken", &receiver, misspelt).await;
    let _relaybook = Relaybook::start(&world).await;
    world.observed("shop").await;
    world.ready("sound").await;
    // This is reported before the first change.
    let ready = world.condition("broken", "Ready", |c| c.status == ConditionStatus::False).await;
    assert_eq!(ready.reason, "TemplateInvalid");
    assert_eq!(
        ready.message,
        "spec.template.inline.body: line 1, column 11: there is no field `pipline.name`; did you mean `pipeline.name`?; line 1, column \
         31: there is no field `enviroment`; did you mean `environment`?"
    );
    assert!(world.warning("broken", "TemplateInvalid").await.contains("pipline.name"));
    world.cursor("shop", "broken").await;

    world.ship("web", "2").await;
    world.ship("web", "3").await;
    let waiting = world.delivery("Deployed 2", |d| d.spec.notification == "broken" && d.status.is_some()).await;
    let status = waiting.status.unwrap();
    assert_eq!((status.reason.as_deref(), status.attempts, status.outcome), (Some("TemplateInvalid"), 0, None));
    assert!(status.error.unwrap().contains("pipline.name"));
    world.warning("broken", "DeliveryWaits").await;
    world.fence("shop", &["sound"]).await;
    let sound = || Oracle::new(&world, &receiver).lane("shop/sound/dev/web", &["Deployed 2", "Deployed 3"]);
    sound().lane("shop/broken/dev/web", &["Deployed 2 [pending]", "Deployed 3 [pending]"]).check().await;
    assert!(receiver.to("/broken/web").is_empty());

    let corrected = json!({"spec": {"template": {"inline": {"body": BODY}}}});
    assert_eq!(world.patch::<Notification>("broken", corrected).await.metadata.uid, broken.metadata.uid);
    world.ready("broken").await;
    world.fence("shop", &["broken", "sound"]).await;
    sound().lane("shop/broken/dev/web", &["Deployed 2", "Deployed 3"]).check().await;
}

/// Makes the API server refuse new deliveries of one notification in this namespace, and waits until it does.
async fn forbid(world: &World, notification: &str) {
    let policy = json!({
        "metadata": {"name": world.ns},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.ns}},
                "resourceRules": [{
                    "apiGroups": ["relaybook.dev"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["deliveries"],
                }],
            },
            "validations": [{
                "expression": format!("object.spec.notification != '{notification}'"), "message": "not in this house",
            }],
        },
    });
    let binding = json!({
        "metadata": {"name": world.ns},
        "spec": {"policyName": world.ns, "validationActions": ["Deny"]},
    });
    let (policies, bindings) = policies(world);
    let policy = serde_json::from_value(policy).expect("a policy");
    policies.create(&PostParams::default(), &policy).await.expect("created");
    let binding = serde_json::from_value(binding).expect("a binding");
    bindings.create(&PostParams::default(), &binding).await.expect("created");
    let probe = json!({"metadata": {"name": "probe"}, "spec": {
        "notification": notification, "pipelineRef": {"namespace": world.ns, "name": "p", "uid": "u"},
        "subject": {"kind": "Target", "name": "a/b/c", "environment": "a"}, "lane": "l", "order": 1, "serial": 1,
        "type": "Deployed", "time": "2025-01-01T00:00:00Z", "from": {"status": "Current"}, "to": {"status": "Current"},
    }});
    let probe: Delivery = serde_json::from_value(probe).expect("a delivery");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    eventually("the policy is in force", async || match world.api::<Delivery>().create(&dry, &probe).await {
        Err(kube::Error::Api(status)) if status.message.contains("not in this house") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

/// Deletes the policy.
async fn allow(world: &World) {
    let (policies, bindings) = policies(world);
    bindings.delete(&world.ns, &DeleteParams::default()).await.expect("deleted");
    policies.delete(&world.ns, &DeleteParams::default()).await.expect("deleted");
}

fn policies(world: &World) -> (Api<ValidatingAdmissionPolicy>, Api<ValidatingAdmissionPolicyBinding>) {
    (Api::all(world.client.clone()), Api::all(world.client.clone()))
}
