//! SIGKILL at each write of a test. At most one request is made, and the next process writes what is missing.

use relaybook_api::notification::TestResult;
use relaybook_api::{Delivery, Outcome};
use serde_json::json;

use super::{annotate, recorded, result, tests};
use crate::support::proxy::Call;
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::{Fault, Oracle, Proxy, Receiver, Relaybook, World, eventually};

/// One kill. Its columns:
/// - the id of the test;
/// - the call that is blocked, and whether the API server receives it;
/// - the numbers of requests, Deliveries, outcomes and results of the test when the process is killed;
/// - the number of its requests in the end, and whether its result is known then.
type Kill = (&'static str, fn(&Call) -> bool, fn(Gate) -> Fault, [usize; 4], usize, bool);

/// Waits until there are this many requests of tests, Deliveries of tests, and outcomes of them, and results of the test with this id.
async fn reached(world: &World, receiver: &Receiver, id: &str, numbers: [usize; 4]) {
    eventually(&format!("{numbers:?} of {id}"), async || {
        let deliveries = recorded(world).await;
        let ended = deliveries.iter().filter(|d| d.status.as_ref().is_some_and(|s| s.outcome.is_some())).count();
        let last = world.get_notification("chat").await.status.and_then(|status| status.last_test);
        let results = usize::from(last.is_some_and(|last| last.id == id));
        let found = [tests(receiver).len(), deliveries.len(), ended, results];
        if found == numbers { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

#[tokio::test]
async fn a_kill_at_any_write_of_a_test_repeats_no_request_and_leaves_no_outcome_open() {
    let world = World::new("tested-writes").await;
    let (receiver, proxy) = (Receiver::start(), Proxy::start(&world.kubeconfig, "tested-writes").await);
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.builtin("chat", &receiver, json!({"builtin": "slack"}), json!({})).await;
    let options = Options { kubeconfig: Some(proxy.kubeconfig.clone()), ..Options::of(&world) };
    let mut relaybook = Relaybook::with(&world, options).await;
    world.settled().await;
    let kills: [Kill; 6] = [
        ("record01", Call::is_create_delivery, Fault::HoldRequest, [0, 0, 0, 0], 1, true),
        ("record02", Call::is_create_delivery, Fault::HoldAnswer, [0, 1, 0, 0], 0, false),
        ("outcome1", Call::is_outcome, Fault::HoldRequest, [1, 1, 0, 0], 1, false),
        ("outcome2", Call::is_outcome, Fault::HoldAnswer, [1, 1, 1, 0], 1, true),
        ("result01", Call::is_notification_status, Fault::HoldRequest, [1, 1, 1, 0], 1, true),
        ("result02", Call::is_notification_status, Fault::HoldAnswer, [1, 1, 1, 1], 1, true),
    ];
    let mut sent = 0;
    for (earlier, (id, calls, holds, before, requests, is_known)) in kills.into_iter().enumerate() {
        let gate = Gate::new();
        let is_blocked = move |call: &Call| calls(call) && (!call.is_notification_status() || call.says(id));
        let blocked = proxy.rule(is_blocked, holds(gate.clone()));
        // On a slow machine a blocked call can time out before the kill. Its process must not write a result then.
        let silent = proxy.rule(Call::is_notification_status, Fault::HoldRequest(gate.clone()));
        annotate(&world, "chat", id).await;
        proxy.hit(blocked, 1).await;
        let [of_requests, of_deliveries, of_outcomes, of_results] = before;
        reached(&world, &receiver, id, [sent + of_requests, earlier + of_deliveries, earlier + of_outcomes, of_results])
            .await;
        relaybook.kill9();
        for rule in [blocked, silent] {
            proxy.remove(rule);
        }
        relaybook.start_again().await;

        sent += requests;
        reached(&world, &receiver, id, [sent, earlier + 1, earlier + 1, 1]).await;
        let last = result(&world, "chat", "").await;
        let (_, name) = last.delivery.as_deref().unwrap().split_once('/').unwrap();
        let delivery: Delivery = world.api().get(name).await.unwrap();
        let expected = if is_known {
            (TestResult::Accepted, Some(Outcome::Delivered))
        } else {
            (TestResult::Failed, Some(Outcome::Canceled))
        };
        assert_eq!((last.result, delivery.status.unwrap().outcome), expected, "{last:?}");
    }

    // The same without a kill: whether the Delivery is recorded is not known, so the controller looks before it sends.
    proxy.rule(Call::is_create_delivery, Fault::Times(1, Box::new(Fault::LoseAnswer)));
    annotate(&world, "chat", "record03").await;
    reached(&world, &receiver, "record03", [sent, 7, 7, 1]).await;

    world.ship("web", "2").await;
    world.fence("shop", &["chat"]).await;
    assert_eq!(tests(&receiver).len(), sent, "no test is repeated later");
    Oracle::new(&world, &receiver).lane("shop/chat/dev/web", &["Deployed 2"]).check().await;
}
