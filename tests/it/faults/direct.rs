//! Deliveries that are sent before they are recorded: one write records them with their outcome. Whatever fails or is killed in between,
//! nothing is lost, and a request is repeated only if its outcome was not written.

use std::ops::RangeInclusive;
use std::time::Duration;

use relaybook_api::{Delivery, Outcome};
use serde_json::json;

use super::{Stage, is};
use crate::support::lanes::Lane;
use crate::support::proxy::{Call, RuleId};
use crate::support::receiver::Gate;
use crate::support::{Fault, Oracle, Relaybook, Reply, eventually};

/// Maximum duration in ms of the last request before a direct attempt. Relaybook allows 250, and a busy machine adds to it.
const PROMPT: i64 = 100;

impl Stage {
    /// Releases one revision that is recorded first, as the first of its receiver always is. Later ones can be sent directly.
    async fn warmed_up(&self) {
        self.ship("2").await;
        self.world.delivery("Deployed 2", |d| outcome(d) == Some(Outcome::Delivered)).await;
        self.passed().await;
        self.answers_promptly().await;
    }

    /// Waits until the receiver has answered the last request promptly. Without that, the next delivery is recorded first.
    async fn answers_promptly(&self) {
        eventually("the receiver answers promptly", async || {
            self.world.fence("shop", &["hook"]).await;
            let all = self.world.deliveries().await.into_iter();
            let fences = all.filter(|d| Lane::of(d).is_fence() && d.spec.notification == "hook");
            let last = fences.max_by_key(|d| d.spec.serial).and_then(|d| d.status);
            let took = last.and_then(|status| status.last_duration_millis);
            if took.is_some_and(|took| took <= PROMPT) { Ok(()) } else { Err(format!("{took:?} ms")) }
        })
        .await;
    }

    /// Counts calls without a fault.
    fn count(&self, matches: fn(&Call) -> bool) -> RuleId {
        self.proxy.rule(matches, Fault::Late(Duration::ZERO))
    }

    async fn is_passed(&self) -> bool {
        let status = self.world.get_pipeline("shop").await.status.unwrap_or_default();
        let (log, dispatched) = (status.log.unwrap_or_default(), status.dispatched.unwrap_or_default());
        dispatched.cursors.iter().any(|c| c.serial == log.serial)
    }
}

fn outcome(delivery: &Delivery) -> Option<Outcome> {
    delivery.status.as_ref().and_then(|status| status.outcome)
}

/// Whether the call creates a delivery that was attempted.
fn is_direct(call: &Call) -> bool {
    call.is_create_delivery() && call.json()["status"]["attempts"].as_i64() == Some(1)
}

#[tokio::test]
async fn one_write_records_a_delivery_and_its_result() {
    let quick = json!({"delivery": {"retry": {"initial": "1s", "max": "1s"}}});
    let stage = Stage::new("direct", &["web"], quick).await;
    let Stage { world, receiver, .. } = &stage;
    let _relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    stage.warmed_up().await;
    let [direct, patches, creates] =
        [is_direct, Call::is_delivery_status, Call::is_create_delivery].map(|of| stage.count(of));
    // The first matching rule counts a call.
    let written = || [direct, patches, creates].map(|rule| stage.proxy.hits(rule));
    // Releases revisions until one of them causes exactly these writes, because a busy machine can be too slow for a direct attempt. Returns
    // its delivery, and how many were released.
    let until = async |tags: RangeInclusive<usize>, code: u16, ends: Outcome, expected: [usize; 3]| -> (Delivery, usize) {
        let mut others = Vec::new();
        for tag in tags {
            stage.answers_promptly().await;
            receiver.script("/hook/web", [Reply::status(code)]);
            let before = written();
            stage.ship(&tag.to_string()).await;
            let delivery = world.delivery(&format!("Deployed {tag}"), |d| outcome(d) == Some(ends)).await;
            stage.passed().await;
            let after = written();
            let writes = [0, 1, 2].map(|kind| after[kind] - before[kind]);
            if writes == expected {
                return (delivery, others.len() + 1);
            }
            others.push(writes);
        }
        panic!("after {code}: {others:?}, and never {expected:?}")
    };

    // One write for a delivery that was accepted.
    let (delivered, accepted) = until(11..=20, 200, Outcome::Delivered, [1, 0, 0]).await;
    let status = delivered.status.unwrap();
    assert_eq!((status.attempts, status.status_code), (1, Some(200)));
    assert!(status.settled_time.is_some() && status.last_attempt_time.is_some() && status.last_duration_millis.is_some());

    // One write for a delivery that was rejected.
    let (_, rejected) = until(21..=30, 400, Outcome::Parked, [1, 0, 0]).await;
    // The result of the second attempt is the second write.
    let (_, retried) = until(31..=40, 500, Outcome::Delivered, [1, 1, 0]).await;
    assert_eq!(receiver.to("/hook/web").len(), 1 + accepted + rejected + 2 * retried);
}

#[tokio::test]
async fn a_slow_receiver_is_recorded_meanwhile_and_delays_no_other() {
    let stage = Stage::new("direct-slow", &["web"], json!({"endpoint": {"timeout": "30s"}})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    world.notification("other", receiver, json!({})).await;
    let _relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    stage.warmed_up().await;
    receiver.wait("/other/web", 1).await;
    let gate = Gate::new();
    receiver.script("/hook/web", [Reply::status(200).behind(&gate)]);
    let patches = proxy.rule(Call::is_outcome, Fault::Late(Duration::ZERO));

    stage.ship("3").await;
    receiver.wait("/hook/web", 2).await;
    let pending = |d: &Delivery| d.spec.notification == "hook" && outcome(d).is_none();
    world.delivery("Deployed 3", pending).await;
    // Later changes are recorded, in order, and those of the other notification are sent.
    stage.ship("4").await;
    world.delivery("Deployed 4", pending).await;
    receiver.wait("/other/web", 3).await;
    stage.passed().await;
    assert_eq!(receiver.to("/hook/web").len(), 2, "the lane waits");
    gate.open();
    world.fence("shop", &["hook", "other"]).await;
    assert!(proxy.hits(patches) > 0);
    let steps = ["Deployed 2", "Deployed 3", "Deployed 4"];
    Oracle::new(world, receiver).lane("shop/hook/dev/web", &steps).lane("shop/other/dev/web", &steps).check().await;
}

#[tokio::test]
async fn after_a_refused_record_nothing_more_is_sent_before_it_is_recorded() {
    let stage = Stage::new("direct-refused", &["web", "api"], json!({})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    let _relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    stage.warmed_up().await;
    receiver.wait("/hook/api", 1).await;
    // A quota is full.
    let full = proxy.rule(Call::is_create_delivery, Fault::Refuse(403));

    stage.ship("3").await;
    proxy.hit(full, 4).await;
    world.warning("hook", "RecordRefused").await;
    let sent = ["/hook/web", "/hook/api"].map(|path| receiver.to(path).len());
    assert!(sent.iter().all(|count| *count <= 2), "{sent:?}: each lane is sent at most once");
    stage.ship("4").await;
    // The pauses between the retries have become long.
    proxy.hit(full, proxy.hits(full) + 2).await;
    assert_eq!(["/hook/web", "/hook/api"].map(|path| receiver.to(path).len()), sent, "nothing more is sent");
    assert!(!stage.is_passed().await, "the log keeps what is not recorded");
    proxy.remove(full);
    world.fence("shop", &["hook"]).await;
    let steps = ["Deployed 2", "Deployed 3", "Deployed 4"];
    Oracle::new(world, receiver).lane("shop/hook/dev/web", &steps).lane("shop/hook/dev/api", &steps).check().await;
    assert_eq!(stage.requests(), 6, "no request is repeated");
}

#[tokio::test]
async fn a_create_whose_answer_is_lost_repeats_no_request() {
    let stage = Stage::new("direct-lost", &["web"], json!({})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    let _relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    stage.warmed_up().await;
    for (tag, fault) in
        [("3", Fault::LoseAnswer), ("4", Fault::LoseRequest), ("5", Fault::Refuse(409)), ("6", Fault::Refuse(504))]
    {
        let rule = proxy.rule(Call::is_outcome, Fault::Times(2, Box::new(fault)));
        stage.ship(tag).await;
        world.delivery(&format!("Deployed {tag}"), |d| outcome(d) == Some(Outcome::Delivered)).await;
        stage.passed().await;
        assert!(proxy.hits(rule) > 0);
        proxy.remove(rule);
        // The next one can be sent directly again.
        let again = format!("{tag}0");
        stage.ship(&again).await;
        world.delivery(&format!("Deployed {again}"), |d| outcome(d) == Some(Outcome::Delivered)).await;
        stage.passed().await;
    }
    let steps: Vec<_> = ["2", "3", "30", "4", "40", "5", "50", "6", "60"].map(|tag| format!("Deployed {tag}")).into();
    let steps: Vec<_> = steps.iter().map(String::as_str).collect();
    Oracle::new(world, receiver).lane("shop/hook/dev/web", &steps).check().await;
    assert_eq!(stage.requests(), 9);
}

/// What is blocked when the process is killed during a direct attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    /// The answer of the receiver, and every create.
    Request,
    /// The create with the outcome, before the API server receives it.
    Outcome,
    /// The response to that create.
    Settled,
    /// The answer of a slow receiver. The delivery is recorded meanwhile.
    Slow,
    /// The write of the outcome of a slow receiver.
    SlowOutcome,
}

#[tokio::test]
async fn a_kill_before_a_direct_attempt_is_recorded_repeats_it_once() {
    tokio::join!(killed("direct-kill-request", Held::Request), killed("direct-kill-outcome", Held::Outcome));
}

#[tokio::test]
async fn a_kill_after_a_direct_attempt_is_recorded_repeats_nothing() {
    killed("direct-kill-settled", Held::Settled).await;
}

#[tokio::test]
async fn a_kill_during_a_slow_direct_attempt_repeats_it_once() {
    tokio::join!(killed("direct-kill-slow", Held::Slow), killed("direct-kill-slow-end", Held::SlowOutcome));
}

/// Kills the process while the first of two deliveries is blocked.
async fn killed(ns: &str, held: Held) {
    let stage = Stage::new(ns, &["web"], json!({"endpoint": {"timeout": "30s"}})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    let mut relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    stage.warmed_up().await;
    let (gate, answer) = (Gate::new(), Gate::new());
    if matches!(held, Held::Request | Held::Slow | Held::SlowOutcome) {
        receiver.script("/hook/web", [Reply::status(200).behind(&answer)]);
    }
    let rule = match held {
        Held::Request => Some(proxy.rule(Call::is_create_delivery, Fault::HoldRequest(gate.clone()))),
        Held::Outcome | Held::SlowOutcome => Some(proxy.rule(Call::is_outcome, Fault::HoldRequest(gate.clone()))),
        Held::Settled => Some(proxy.rule(Call::is_outcome, Fault::HoldAnswer(gate.clone()))),
        Held::Slow => None,
    };

    stage.ship("3").await;
    receiver.wait("/hook/web", 2).await;
    if held == Held::SlowOutcome {
        world.delivery("Deployed 3", |d| outcome(d).is_none()).await;
        answer.open();
    }
    if let Some(rule) = rule {
        proxy.hit(rule, 1).await;
    }
    stage.ship("4").await;
    // If a busy machine has sent the answer late, the delivery was recorded meanwhile.
    let late = held == Held::Outcome && world.deliveries().await.iter().any(|d| is(d, "Deployed 3"));
    let held = if late { Held::SlowOutcome } else { held };
    match held {
        Held::Request | Held::Outcome => {
            let recorded = stage.recorded(1).await;
            assert!(is(&recorded[0], "Deployed 2"), "nothing of the lane is recorded before the first");
            assert!(!stage.is_passed().await, "the cursor waits");
        }
        Held::Settled => drop(world.delivery("Deployed 3", |d| outcome(d) == Some(Outcome::Delivered)).await),
        Held::Slow | Held::SlowOutcome => {
            stage.recorded(3).await;
            stage.passed().await;
        }
    }
    assert_eq!(stage.requests(), 2, "{held:?}: the second delivery of the lane waits");
    relaybook.kill9();
    if let Some(rule) = rule {
        proxy.remove(rule);
    }
    relaybook.start_again().await;

    world.fence("shop", &["hook"]).await;
    let repeated = held != Held::Settled;
    let steps = ["Deployed 2", "Deployed 3", "Deployed 4"];
    let oracle = Oracle::new(world, receiver).lane("shop/hook/dev/web", &steps);
    let oracle = if repeated { oracle.after_a_crash() } else { oracle };
    oracle.check().await;
    let requests = receiver.to("/hook/web");
    assert_eq!(requests.len(), 3 + usize::from(repeated), "{held:?}");
    if repeated {
        assert_eq!((requests[1].id(), &requests[1].body), (requests[2].id(), &requests[2].body));
    }
    let all = eventually("all are settled", async || {
        let open = world.deliveries().await.into_iter().filter(|d| outcome(d).is_none()).count();
        if open == 0 { Ok(()) } else { Err(format!("{open} are open")) }
    });
    all.await;
}
