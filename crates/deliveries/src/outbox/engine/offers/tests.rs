//! Tests which offers the engine accepts, what it does with them, and what the dispatcher does with the answers. No request is sent.

use std::collections::HashMap;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures::future;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::outbox::attempt::decided::Attempted;
use crate::outbox::engine::effect::{Done, Effect, Input};
use crate::outbox::engine::state::fair_queue::AttemptOutcome;
use crate::outbox::engine::state::lanes::Lanes;
use crate::outbox::engine::state::unrecorded::Unrecorded;
use crate::outbox::engine::writes::Answered;
use crate::outbox::send_gate::genuine::History;
use crate::outbox::send_gate::index::{PipelineFacts, PipelineIndex, Source};
use crate::outbox::store::journal::Written;
use crate::outbox::testing::{self, notification, record};
use crate::outbox::{Command, Deliveries, Layered, Message, Overridden, Parts, ToRecord};
use relaybook_api::delivery::PipelineRef;
use relaybook_api::testing::spec;
use relaybook_api::{ObjectName, Outcome};
use relaybook_core::leader::bucket::Buckets;
use relaybook_egress::{Attempt, AttemptResult};
use relaybook_runtime::leader::Lease;
use relaybook_runtime::tenure::{Tenure, Unowned};
use relaybook_settings::config::EffectiveNotification;

/// Longest time that an answer needs.
const LONG: Duration = Duration::from_secs(10);
/// The subject of all deliveries here.
const SUBJECT: &str = "target/prod/in-cluster/podinfo";

/// An API server without objects. It accepts each create, or refuses all of them.
#[derive(Clone, Default)]
struct ApiServer {
    is_full: Arc<AtomicBool>,
    creates: Arc<AtomicU32>,
}

impl ApiServer {
    fn client(&self) -> Client {
        let Self { is_full, creates } = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let is_create = request.method() == http::Method::POST;
            creates.fetch_add(u32::from(is_create), Ordering::Relaxed);
            let is_accepted = is_create && !is_full.load(Ordering::Relaxed);
            let (code, reason) = if is_create { (403_u16, "Forbidden") } else { (404, "NotFound") };
            let namespace = request.uri().path().split('/').nth(5).unwrap_or_default().to_owned();
            async move {
                let failure =
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code});
                let (code, answer) = if is_accepted {
                    let mut object: Value = serde_json::from_slice(&request.into_body().collect_bytes().await?)?;
                    object["metadata"]["namespace"] = json!(namespace);
                    object["metadata"]["uid"] = json!("u");
                    object["metadata"]["resourceVersion"] = json!("1");
                    (201, object)
                } else {
                    (code, failure)
                };
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, tower::BoxError>(http::Response::builder().status(code).body(body)?)
            }
        });
        Client::new(service, "default")
    }

    fn creates(&self) -> u32 {
        self.creates.load(Ordering::Relaxed)
    }
}

/// Pipeline `p1` with one target, and notification `deploys`.
fn pipeline_index() -> PipelineIndex {
    let pipeline_index = PipelineIndex::default();
    let subjects = HashMap::from([(SUBJECT.to_owned(), Some(0))]);
    let facts = PipelineFacts { uid: "p1".into(), namespace: "team-a".into(), subjects, ..PipelineFacts::default() };
    pipeline_index.put_pipeline("p1", facts);
    pipeline_index.put_notification("team-a", "deploys", notification("n1"));
    pipeline_index.complete(1);
    pipeline_index
}

fn parts(api: &ApiServer) -> Parts {
    Parts { lease: Lease::held(Duration::from_mins(10)), pipeline_index: pipeline_index(), ..testing::parts(api.client()) }
}

/// The engine of the leader, with what it uses.
struct Leader {
    engine: Engine,
    parts: Parts,
    offers: u64,
}

impl Leader {
    /// The receiver answers promptly, and the API server accepts deliveries. The engine knows both.
    async fn new(api: &ApiServer) -> Self {
        let engine = Engine::new(16, vec![None], fastrand::Rng::with_seed(1));
        let mut leader = Self { engine, parts: parts(api), offers: 0 };
        leader.engine.initial_sync.complete(0, 1);
        assert!(leader.on(Input::Lease, Now::read()).is_empty());
        leader.parts.journal.create(Unowned::Outcome.into(), &new(9), None).await.unwrap();
        api.creates.store(0, Ordering::Relaxed);

        let (lane, now) = (record(1).lane(), Instant::now());
        let origin = leader.with(|_, facts| facts.origin(&notification("n1").sending.unwrap()));
        let queue = &mut leader.engine.fair_queue;
        queue.ready(&origin, lane, now);
        let turn = queue.next(now).unwrap();
        queue.took(&turn, AttemptOutcome::Answer, Some(Duration::from_millis(1)));
        queue.release(&origin, &turn.lane, AttemptOutcome::Answer, now);
        leader
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Engine, &Facts<'_>) -> T) -> T {
        let pipelines = self.parts.pipeline_index.read();
        act(&mut self.engine, &self.parts.facts(Buckets::ALL, &pipelines))
    }

    fn on(&mut self, input: Input, now: Now) -> Vec<Effect> {
        self.with(|engine, facts| engine.on(input, facts, now))
    }

    fn seen(&mut self, record: Record, now: Now) {
        self.with(|engine, facts| engine.seen(record, facts, now));
    }

    /// Offers a delivery, and returns the answer, if there is one.
    fn offer(&mut self, new: New) -> Option<Answer> {
        self.offers += 1;
        let ticket = Ticket(self.offers);
        self.with(|engine, facts| engine.on_offer(ticket, new, facts, Now::read()));
        std::mem::take(&mut self.engine.effects).into_iter().find_map(|effect| match effect {
            Effect::Answer(of, answer) if of == ticket => Some(answer),
            _ => None,
        })
    }
}

fn new(serial: i64) -> New {
    New { namespace: "team-a".into(), elsewhere: None, spec: Arc::new(spec(serial)) }
}

/// Returns the one task that the engine wants.
fn only_task(effects: Vec<Effect>) -> Task {
    match <[Effect; 1]>::try_from(effects) {
        Ok([Effect::Start(task)]) => task,
        Ok(_) => panic!("it is not a task"),
        Err(effects) => panic!("there are {} effects", effects.len()),
    }
}

/// The handle of the dispatcher, and the commands that it sends.
fn deliveries(parts: &Parts) -> (Deliveries, mpsc::Receiver<Message>) {
    let (commands, queue) = mpsc::channel(8);
    let (_, loaded) = watch::channel(None);
    let deliveries = Deliveries {
        commands,
        loaded,
        parts: parts.clone(),
        delivery_index: parts.delivery_index.clone(),
        pipeline_index: parts.pipeline_index.clone(),
    };
    (deliveries, queue)
}

fn to_record(check_elsewhere: bool) -> Vec<ToRecord> {
    vec![ToRecord { deliveries: vec![spec(1)], check_elsewhere }]
}

/// Records one delivery. Returns the errors.
async fn recorded(deliveries: &Deliveries, check_elsewhere: bool) -> Vec<Option<(usize, JournalError)>> {
    let tenure = Tenure::begin(&Lease::held(6 * LONG), Some("p1"), &CancellationToken::new()).unwrap();
    deliveries.record(&tenure, to_record(check_elsewhere)).await
}

/// Waits for the next command, which must be an offer, and answers it.
async fn answer_offer(commands: &mut mpsc::Receiver<Message>, decide: impl FnOnce(New) -> Option<Answer>) {
    match commands.recv().await {
        Some((Command::Offer(new), Some(answer))) => answer.send(decide(new).expect("an answer")).unwrap(),
        other => panic!("it is not offered: {other:?}"),
    }
}

#[tokio::test]
async fn a_delivery_in_progress_is_not_declined_because_the_api_server_refuses_others() {
    let api = ApiServer::default();
    let mut leader = Leader::new(&api).await;
    assert!(leader.offer(new(1)).is_none(), "it is accepted");
    api.is_full.store(true, Ordering::Relaxed);
    leader.parts.journal.create(Unowned::Outcome.into(), &new(9), None).await.unwrap_err();
    let id = record(1).id;
    for stage in [Stage::Attempted, Stage::Recording, Stage::Written] {
        leader.engine.unrecorded.add(id.clone(), Instant::now() + DIRECT, Ticket(0));
        leader.engine.unrecorded.set(&id, stage);
        assert!(leader.offer(new(1)).is_none(), "{stage:?}: it has a writer, whose result is the answer");
    }
    // One that nobody writes is declined.
    leader.engine.unrecorded = Unrecorded::default();
    leader.engine.lanes = Lanes::default();
    assert!(matches!(leader.offer(new(1)), Some(Answer::Declined)));
}

#[tokio::test]
async fn only_the_engine_decides_about_an_offer_while_the_api_server_refuses_records() {
    let api = ApiServer::default();
    let parts = parts(&api);
    assert!(!parts.journal.health().is_accepting("team-a", "deploys"));
    let (deliveries, mut commands) = deliveries(&parts);
    let engine = answer_offer(&mut commands, |_| Some(Answer::Recorded));
    let (errors, ()) = tokio::join!(recorded(&deliveries, false), engine);
    assert!(errors.iter().all(Option::is_none), "{errors:?}");
    assert_eq!(api.creates(), 0, "the engine is the one writer");
}

#[tokio::test]
async fn a_settled_delivery_that_no_cursor_has_passed_is_not_sent_directly() {
    let mut leader = Leader::new(&ApiServer::default()).await;
    let mut settled = record(1);
    settled.status.outcome = Some(Outcome::Delivered);
    leader.parts.delivery_index.note(&settled);
    assert!(matches!(leader.offer(new(1)), Some(Answer::Declined)));
    assert_eq!((leader.engine.unrecorded.count(), leader.engine.lanes.count()), (0, 0));
    assert!(leader.offer(new(2)).is_none(), "the next one is accepted");
    assert_eq!(leader.engine.unrecorded.count(), 1);
}

#[tokio::test]
async fn beyond_the_limit_of_unrecorded_deliveries_the_next_one_is_recorded_first() {
    let api = ApiServer::default();
    let mut leader = Leader::new(&api).await;
    let other = |n: usize| ObjectName::new("team-b", n.to_string());
    (0..MOST).for_each(|n| leader.engine.unrecorded.add(other(n), Instant::now() + DIRECT, Ticket(0)));
    let (deliveries, mut commands) = deliveries(&leader.parts);
    let answers = answer_offer(&mut commands, |new| leader.offer(new));
    let recorded = timeout(LONG, future::join(recorded(&deliveries, false), answers)).await;
    let (errors, ()) = recorded.expect("an answer to the offer");
    assert!(errors.iter().all(Option::is_none), "{errors:?}");
    assert_eq!(api.creates(), 1);
    assert!(matches!(commands.try_recv(), Ok((Command::Recorded(records), None)) if records.len() == 1));

    leader.engine.unrecorded.remove(&other(0));
    assert!(leader.offer(new(1)).is_none(), "there is room for one");
}

/// The receiver does not answer promptly: the delivery is recorded once, and the next one waits until the outcome is written.
#[tokio::test]
async fn a_slow_direct_attempt_is_recorded_and_its_outcome_written_before_the_next_attempt() {
    let mut leader = Leader::new(&ApiServer::default()).await;
    let now = Now::read();
    let task = only_task(leader.on(Input::Command(Ticket(1), Command::Offer(new(1))), now));
    let Task::Attempt { turn, record: head, notification, .. } = task else { panic!("it is not attempted at once") };
    assert!(!head.is_recorded());

    let now = Now { mono: now.mono + DIRECT, ..now };
    assert_eq!(leader.with(|engine, facts| engine.next_time(facts)), Some(now.mono));
    let Task::Write(write) = only_task(leader.on(Input::Tick, now)) else { panic!("it is not recorded") };
    assert_eq!(write.kind, Kind::Pending);
    let effects = leader.on(Input::Done(Done::Answered(write, Answered::Created(Box::new(Ok(record(1)))))), now);
    assert!(matches!(effects[..], [Effect::Answer(Ticket(1), Answer::Recorded)]));
    let next = Command::Recorded(vec![record(2)]);
    assert!(leader.on(Input::Command(Ticket(2), next), now).is_empty(), "the first one is in progress");

    let (redirect, body, rotated) = (None, String::new(), false);
    let result = AttemptResult::Answered { status: 200, judged: None, retry_after: None, redirect, body, rotated };
    let attempt = Attempt { started: now.wall, duration: DIRECT, result, step: None, learned: None };
    let attempt = Box::new(Ok(Attempted { attempt, thread: None }));
    let ended = Done::Attempted { turn, retry: notification.delivery.retry, attempt };
    let Task::Write(write) = only_task(leader.on(Input::Done(ended), now)) else {
        panic!("its outcome is not written first")
    };
    assert!(write.decided.record.is_recorded(), "the write patches the object");
    let written = Written::Stored { version: "2".into(), status: Box::new(write.decided.status.clone()) };
    let effects = leader.on(Input::Done(Done::Answered(write, Answered::Patched(Ok(written)))), now);
    let [Effect::Settled(..), Effect::Start(Task::Attempt { record: head, .. })] = &effects[..] else {
        panic!("the first one is not reported, or the next one not attempted")
    };
    assert_eq!(head.spec.serial, 2);
}

/// A layer of `p1` that sets the URL, in this namespace.
fn layer_of(home: &str) -> Layered {
    let effective = Arc::new(EffectiveNotification { home: home.to_owned(), ..notification("n1") });
    let subjects = HashMap::from([(SUBJECT.to_owned(), effective)]);
    iter::once(("deploys".to_owned(), Arc::new(Overridden { rest: None, subjects }))).collect()
}

/// The record of a delivery stays in the namespace of the URL to which it was sent.
#[tokio::test]
async fn an_edit_of_the_url_during_a_direct_attempt_makes_no_second_record() {
    let api = ApiServer::default();
    let mut leader = Leader::new(&api).await;
    let global = ObjectName::new("platform", "relaybook-config");
    leader.parts.pipeline_index.put_source(Source { config_map: Some(global), ..Source::default() });
    let (deliveries, mut commands) = deliveries(&leader.parts);
    let id = ObjectName::new("platform", name(&spec(1)));
    leader.engine.unrecorded.add(id.clone(), Instant::now() + DIRECT, Ticket(0));
    leader.engine.unrecorded.set(&id, Stage::Written);
    // The pass ends, and the engine repeats the write.
    leader.engine.has_failed(&id, &JournalError::Timeout);

    leader.parts.pipeline_index.put_layers("p1", layer_of("team-a"));
    let answers = answer_offer(&mut commands, |new| leader.offer(new));
    let (errors, ()) = tokio::join!(recorded(&deliveries, true), answers);
    assert!(matches!(errors[0], Some((0, JournalError::OutcomePending { .. }))), "{errors:?}");
    assert_eq!(api.creates(), 0, "nobody else records it");
}

/// Somebody has created it, and changes its annotations as soon as the pipeline is known.
#[tokio::test]
async fn a_delivery_that_relaybook_did_not_record_leaves_its_lane_when_its_pipeline_becomes_known() {
    let mut leader = Leader::new(&ApiServer::default()).await;
    let (mut foreign, now) = (record(50), Now::read());
    Arc::make_mut(&mut foreign.spec).pipeline_ref.uid = "p2".into();
    foreign.id.name = name(&foreign.spec);
    let PipelineRef { namespace, name, uid } = foreign.spec.pipeline_ref.clone();
    leader.seen(foreign.clone(), now);
    assert!(leader.engine.lanes.find(&foreign.id).is_some(), "its origin cannot be determined yet");
    let index = &leader.parts.pipeline_index;
    index.put_pipeline("p2", PipelineFacts { uid, namespace, name, ..PipelineFacts::default() });
    index.put_history("p2", Some(History { is_dispatched: true, ..History::default() }));
    leader.seen(Record { version: "2".into(), ..foreign.clone() }, now);
    assert!(leader.engine.lanes.find(&foreign.id).is_none(), "it is not sent");
}
