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
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::*;
use crate::outbox::attempt::work::Worked;
use crate::outbox::lane::After;
use crate::outbox::record::name;
use crate::outbox::scheduler::effect::{Done, Effect, Input};
use crate::outbox::scheduler::fair_queue::AttemptOutcome;
use crate::outbox::scheduler::lanes::Lanes;
use crate::outbox::scheduler::unrecorded::Unrecorded;
use crate::outbox::send_gate::genuine::History;
use crate::outbox::send_gate::index::{PipelineFacts, PipelineIndex, Source};
use crate::outbox::testing::{self, notification, record};
use crate::outbox::{Command, Deliveries, Layered, Overridden, Parts, ToRecord};
use relaybook_api::delivery::PipelineRef;
use relaybook_api::testing::spec;
use relaybook_api::{DeliveryStatus, ObjectName, Outcome};
use relaybook_runtime::leader::Lease;
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

/// The engine of the leader. It knows that the receiver answers promptly, and that the API server accepts deliveries.
async fn engine(api: &ApiServer) -> Engine {
    let mut engine = Engine::new(parts(api), 16, vec![None], fastrand::Rng::with_seed(1));
    engine.initial_sync.complete(0, 1);
    assert!(engine.on(Input::Lease, Now::read()).is_empty());
    engine.parts.journal.create(&new(9), None).await.unwrap();
    api.creates.store(0, Ordering::Relaxed);

    let (lane, now) = (record(1).lane(), Instant::now());
    let sending = notification("n1").sending.unwrap();
    let origin = engine.parts.origin(&sending);
    engine.fair_queue.ready(&origin, lane, now);
    let turn = engine.fair_queue.next(now).unwrap();
    engine.fair_queue.took(&turn, AttemptOutcome::Answer, Some(Duration::from_millis(1)));
    engine.fair_queue.release(&origin, &turn.lane, AttemptOutcome::Answer, now);
    engine
}

fn new(serial: i64) -> New {
    New { namespace: "team-a".into(), elsewhere: None, spec: Arc::new(spec(serial)) }
}

/// Offers a delivery to the engine.
fn offer(engine: &mut Engine, serial: i64) -> oneshot::Receiver<Answer> {
    let (answer, answered) = oneshot::channel();
    engine.offer(Offer { namespace: "team-a".into(), spec: Arc::new(spec(serial)), answer }, Now::read());
    answered
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
fn deliveries(parts: &Parts) -> (Deliveries, mpsc::Receiver<Command>) {
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

/// Waits for the next command, which must be an offer.
async fn next_offer(commands: &mut mpsc::Receiver<Command>) -> Offer {
    match commands.recv().await {
        Some(Command::Offer(offer)) => offer,
        other => panic!("it is not offered: {other:?}"),
    }
}

#[tokio::test]
async fn a_delivery_in_progress_is_not_declined_because_the_api_server_refuses_others() {
    let api = ApiServer::default();
    let mut engine = engine(&api).await;
    assert!(offer(&mut engine, 1).try_recv().is_err(), "it is accepted");
    api.is_full.store(true, Ordering::Relaxed);
    engine.parts.journal.create(&new(9), None).await.unwrap_err();
    let id = record(1).id;
    for stage in [Stage::Attempted, Stage::Recording, Stage::Written] {
        engine.unrecorded.add(id.clone(), Instant::now() + DIRECT);
        engine.unrecorded.set(&id, stage);
        assert!(offer(&mut engine, 1).try_recv().is_err(), "{stage:?}: it has a writer, whose result is the answer");
    }
    // One that nobody writes is declined.
    engine.unrecorded = Unrecorded::default();
    engine.lanes = Lanes::default();
    assert!(matches!(offer(&mut engine, 1).try_recv(), Ok(Answer::Declined)));
}

#[tokio::test]
async fn only_the_engine_decides_about_an_offer_while_the_api_server_refuses_records() {
    let api = ApiServer::default();
    let parts = parts(&api);
    assert!(!parts.journal.is_accepting("team-a", "deploys"));
    let (deliveries, mut commands) = deliveries(&parts);
    let engine = async { next_offer(&mut commands).await.answer.send(Answer::Recorded).unwrap() };
    let (errors, ()) = tokio::join!(deliveries.record(to_record(false)), engine);
    assert!(errors.iter().all(Option::is_none), "{errors:?}");
    assert_eq!(api.creates(), 0, "the engine is the one writer");
}

#[tokio::test]
async fn a_settled_delivery_that_no_cursor_has_passed_is_not_sent_directly() {
    let mut engine = engine(&ApiServer::default()).await;
    let mut settled = record(1);
    settled.status.outcome = Some(Outcome::Delivered);
    engine.parts.delivery_index.note(&settled);
    assert!(matches!(offer(&mut engine, 1).try_recv(), Ok(Answer::Declined)));
    assert_eq!((engine.unrecorded.count(), engine.lanes.count()), (0, 0));
    assert!(offer(&mut engine, 2).try_recv().is_err(), "the next one is accepted");
    assert_eq!(engine.unrecorded.count(), 1);
}

#[tokio::test]
async fn beyond_the_limit_of_unrecorded_deliveries_the_next_one_is_recorded_first() {
    let api = ApiServer::default();
    let mut engine = engine(&api).await;
    let other = |n: usize| ObjectName::new("team-b", n.to_string());
    (0..MOST).for_each(|n| engine.unrecorded.add(other(n), Instant::now() + DIRECT));
    let (deliveries, mut commands) = deliveries(&engine.parts);
    let answers = async {
        let offer = next_offer(&mut commands).await;
        engine.offer(offer, Now::read());
    };
    let recorded = timeout(LONG, future::join(deliveries.record(to_record(false)), answers)).await;
    let (errors, ()) = recorded.expect("an answer to the offer");
    assert!(errors.iter().all(Option::is_none), "{errors:?}");
    assert_eq!(api.creates(), 1);
    assert!(matches!(commands.try_recv(), Ok(Command::Recorded(records)) if records.len() == 1));

    engine.unrecorded.remove(&other(0));
    assert!(offer(&mut engine, 1).try_recv().is_err(), "there is room for one");
}

/// The receiver does not answer promptly: the delivery is recorded once, and the next one waits until the outcome is written.
#[tokio::test]
async fn a_slow_direct_attempt_is_recorded_and_its_outcome_written_before_the_next_attempt() {
    let mut engine = engine(&ApiServer::default()).await;
    let (answer, mut answered) = oneshot::channel();
    let first = Offer { namespace: "team-a".into(), spec: Arc::new(spec(1)), answer };
    let now = Now::read();
    let task = only_task(engine.on(Input::Command(Command::Offer(first)), now));
    let Task::Attempt { turn, record: head, .. } = task else { panic!("it is not attempted at once") };
    assert!(!head.is_recorded() && answered.try_recv().is_err());

    let now = Now { mono: now.mono + DIRECT, ..now };
    assert_eq!(engine.next_time(), Some(now.mono));
    let Task::Record(id, _) = only_task(engine.on(Input::Tick, now)) else { panic!("it is not recorded") };
    let stored = Done::Recorded(id, Box::new(Ok(record(1))));
    assert!(engine.on(Input::Done(stored), now).is_empty());
    assert!(matches!(answered.try_recv(), Ok(Answer::Recorded)));
    let next = Command::Recorded(vec![record(2)]);
    assert!(engine.on(Input::Command(next), now).is_empty(), "the first one is in progress");

    let status = DeliveryStatus { outcome: Some(Outcome::Delivered), attempts: 1, ..DeliveryStatus::default() };
    let decided = Box::new(Decided::superseded(*head, status.clone()));
    let ended = Done::Attempted { turn, attempt_outcome: AttemptOutcome::Answer, decided };
    let task = only_task(engine.on(Input::Done(ended), now));
    let Task::Write { key, decided, .. } = task else { panic!("its outcome is not written first") };
    let record = Record { status, ..decided.into_record() };
    assert!(record.is_recorded(), "the write patches the object");
    let after = After::Settled { answered: true };
    let written = Worked { record, after, gone: false, instead: None, is_written: true };
    let effects = engine.on(Input::Done(Done::Worked(key, Box::new(written))), now);
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
    let parts = parts(&api);
    let global = ObjectName::new("platform", "relaybook-config");
    parts.pipeline_index.put_source(Source { config_map: Some(global), ..Source::default() });
    parts.pipeline_index.put_layers("p1", layer_of("platform"));
    let (deliveries, mut commands) = deliveries(&parts);
    let engine = async {
        let offer = next_offer(&mut commands).await;
        let id = ObjectName::new(offer.namespace, name(&offer.spec));
        parts.direct.add(&id, offer.answer);
        // The pass ends, and the engine repeats the write.
        parts.direct.failed(&id, &JournalError::Timeout);
        id
    };
    let (errors, id) = tokio::join!(deliveries.record(to_record(false)), engine);
    assert_eq!((errors.len(), id.namespace.as_str()), (1, "platform"));
    assert!(errors[0].is_some());

    parts.pipeline_index.put_layers("p1", layer_of("team-a"));
    let errors = deliveries.record(to_record(true)).await;
    assert!(matches!(errors[0], Some((0, JournalError::OutcomePending { .. }))), "{errors:?}");
    assert!(commands.try_recv().is_err(), "it is not offered again");
    assert_eq!(api.creates(), 0, "nobody else records it");
}

/// Somebody has created it, and changes its annotations as soon as the pipeline is known.
#[tokio::test]
async fn a_delivery_that_relaybook_did_not_record_leaves_its_lane_when_its_pipeline_becomes_known() {
    let mut engine = engine(&ApiServer::default()).await;
    let (mut foreign, now) = (record(50), Now::read());
    Arc::make_mut(&mut foreign.spec).pipeline_ref.uid = "p2".into();
    foreign.id.name = name(&foreign.spec);
    let PipelineRef { namespace, name, uid } = foreign.spec.pipeline_ref.clone();
    engine.parts.pipeline_index.put_watched(None);
    engine.seen(foreign.clone(), now);
    assert!(engine.lanes.find(&foreign.id).is_some(), "its origin cannot be determined yet");
    engine.parts.pipeline_index.put_pipeline("p2", PipelineFacts { uid, namespace, name, ..PipelineFacts::default() });
    engine.parts.pipeline_index.put_history("p2", Some(History { is_dispatched: true, ..History::default() }));
    engine.seen(Record { version: "2".into(), ..foreign.clone() }, now);
    assert!(engine.lanes.find(&foreign.id).is_none(), "it is not sent");
}
