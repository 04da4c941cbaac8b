//! Tests of how the steps of promotions get into the log.

mod properties;

use super::*;
use crate::changelog::open;
use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use relaybook_api::promotion::{MAX_STEPS, NotificationStrategy, PromotedPipeline, PromotionStrategy};
use relaybook_api::{Change, PromotionSpec, PromotionStatus};

use Phase::{Failed, Finished, Merged, Pending, Requested, Withdrawn};

const PROD: &str = "prod";

fn at(second: i64) -> Time {
    Time::from_second(second).unwrap()
}

fn promotion(occasion: i64, request: i64) -> Promotion {
    let name = format!("web-prod-0a1b2c3d4e-{occasion}-r{request}");
    let spec = PromotionSpec {
        pipeline_ref: PromotedPipeline { name: "web".into(), uid: "u".into() },
        environment: PROD.into(),
        from: "staging".into(),
        revision: format!("{occasion}"),
        previous: Some("0".into()),
        occasion,
        request,
        ..PromotionSpec::default()
    };
    let mut promotion = Promotion::new(&name, spec);
    promotion.metadata.uid = Some(format!("uid of {name}"));
    promotion.metadata.creation_timestamp = Some(v1::Time(at(occasion)));
    promotion
}

/// Makes one step, as the promotion controller does.
fn step(promotion: &mut Promotion, phase: Phase, reason: &str, second: i64) {
    let status = promotion.status.get_or_insert_default();
    (status.phase, status.reason, status.message) = (Some(phase), reason.to_owned(), "why".to_owned());
    if phase == Requested {
        status.strategy =
            Some(PromotionStrategy { notification: Some(NotificationStrategy {}), ..PromotionStrategy::default() });
        (status.last_attempted_time, status.succeeded) = (Some(at(second)), true);
    }
    status.step += 1;
    let (reason, message) = (reason.to_owned(), "why".to_owned());
    status.steps.push(Step { step: status.step, phase, reason, message, time: at(second) });
    let excess = status.steps.len().saturating_sub(MAX_STEPS);
    status.steps.drain(..excess);
}

/// A promotion with these steps, one second apart from the occasion on.
fn stepped(occasion: i64, phases: &[Phase]) -> Promotion {
    let mut promotion = promotion(occasion, 0);
    for (second, phase) in (occasion..).zip(phases) {
        step(&mut promotion, *phase, "", second);
    }
    promotion
}

/// An environment and the log of its pipeline.
#[derive(Clone)]
struct Reader {
    environment: EnvironmentStatus,
    log: ChangeLog,
}

impl Reader {
    fn new() -> Self {
        let environment = EnvironmentStatus { name: PROD.to_owned(), ..EnvironmentStatus::default() };
        Self { environment, log: open(at(0), Some(99)) }
    }

    /// Reads these promotions. Returns occasion and phase of each new change, with a mark if it is coalesced.
    fn read(&mut self, promotions: &[Promotion], is_new: bool) -> Vec<String> {
        let before = self.log.changes.len();
        let promotions: Vec<&Promotion> = promotions.iter().collect();
        take_steps(&mut self.environment, &promotions, is_new, &mut self.log, at(1000));
        self.log.changes[before..].iter().map(word).collect()
    }

    fn mirror(&self) -> (i64, Phase, i64) {
        let mirror = self.environment.promotion.as_ref().unwrap();
        (mirror.occasion, mirror.phase, mirror.taken)
    }
}

fn word(change: &Change) -> String {
    let phase = change.to.promotion.as_ref().unwrap().phase.as_str();
    format!("{} {phase}{}", change.to.revision, if change.coalesced { " *" } else { "" })
}

#[test]
fn steps_are_logged_once_and_in_order() {
    let mut reader = Reader::new();
    assert!(reader.read(&[], false).is_empty() && reader.environment.promotion.is_none());
    let unseen = promotion(7, 0);
    let mut refused = promotion(6, 0);
    refused.status = Some(PromotionStatus { phase: Some(Withdrawn), reason: "NotIndicated".into(), ..Default::default() });
    let elsewhere = {
        let mut other = stepped(5, &[Requested]);
        other.spec.environment = "qa".into();
        other
    };
    let others = [unseen, refused, elsewhere];
    assert!(reader.read(&others, false).is_empty() && reader.environment.promotion.is_none(), "none of these counts");
    for (phases, told) in [
        (&[Pending][..], &["7 Pending"][..]),
        (&[Pending], &[]),
        (&[Pending, Requested, Merged], &["7 Requested", "7 Merged"]),
        (&[Pending, Requested, Merged, Failed], &["7 Failed"]),
        (&[Pending, Requested, Merged, Failed, Requested, Finished], &["7 Requested", "7 Finished"]),
    ] {
        let mut all = others.to_vec();
        all[0] = stepped(7, phases);
        assert_eq!(reader.read(&all, false), told);
        assert_eq!(reader.mirror(), (7, *phases.last().unwrap(), i64::try_from(phases.len()).unwrap()));
    }
    let times: Vec<Time> = reader.log.changes.iter().map(|change| change.time).collect();
    assert_eq!(times, (7..13).map(at).collect::<Vec<_>>(), "of the steps");
}

#[test]
fn a_change_contains_its_step_and_the_previous_step() {
    use Status::{Current, InProgress, NotFound};
    let mut promotion = promotion(7, 0);
    step(&mut promotion, Pending, "Soaking", 1);
    step(&mut promotion, Pending, WAITING_APPROVAL, 2);
    step(&mut promotion, Requested, "", 3);
    step(&mut promotion, Finished, "Running", 4);
    let (mut at_once, mut later) = (Reader::new(), Reader::new());
    at_once.read(&[promotion.clone()], false);
    let mut early = promotion.clone();
    let status = early.status.as_mut().unwrap();
    status.steps.truncate(2);
    (status.step, status.phase, status.strategy) = (2, Some(Pending), None);
    later.read(&[early], false);
    later.read(&[promotion], false);
    assert_eq!(at_once.log, later.log, "however it is read");
    let told: Vec<_> = at_once
        .log
        .changes
        .iter()
        .map(|Change { subject, from, to, .. }| {
            let strategy = to.promotion.as_ref().unwrap().strategy.as_str();
            assert_eq!(
                (subject.as_str(), to.revision.as_str(), from.current.as_deref()),
                ("promotion/prod", "7", Some("0"))
            );
            assert!(from.message.is_empty() && to.message == "why");
            (from.status, from.reason.as_str(), to.status, to.reason.as_str(), to.current.as_deref(), strategy)
        })
        .collect();
    assert_eq!(
        told,
        [
            (NotFound, "", InProgress, "Soaking", Some("0"), ""),
            (InProgress, "Soaking", InProgress, WAITING_APPROVAL, Some("0"), ""),
            (InProgress, WAITING_APPROVAL, InProgress, "", Some("0"), "notification"),
            (InProgress, "", Current, "Running", Some("7"), "notification"),
        ]
    );
    let first = &at_once.log.changes[0];
    assert_eq!((&first.from.promotion, first.to.promotion.as_ref().unwrap().from.as_str()), (&None, "staging"));
}

#[test]
fn the_next_promotion_is_logged_after_the_previous_one_has_ended() {
    let mut reader = Reader::new();
    let second = stepped(9, &[Requested]);
    assert_eq!(reader.read(&[second.clone(), stepped(7, &[Requested])], false), ["7 Requested"]);
    assert_eq!(reader.mirror(), (7, Requested, 1), "the newer one waits");
    let ended = stepped(7, &[Requested, Withdrawn]);
    assert_eq!(reader.read(&[second.clone(), ended.clone()], false), ["7 Withdrawn", "9 Requested"]);
    let third = stepped(12, &[Withdrawn]);
    let all = [ended, stepped(9, &[Requested, Finished]), third];
    assert_eq!(reader.read(&all, false), ["9 Finished", "12 Withdrawn"]);
    // Retention deletes what is taken.
    assert!(reader.read(&all[2..], false).is_empty());
    assert!(reader.read(&[stepped(3, &[Requested])], false).is_empty(), "an older one");
    // Another request for the same occasion.
    let mut again = promotion(12, 1);
    step(&mut again, Requested, "", 20);
    assert_eq!(reader.read(&[all[2].clone(), again], false), ["12 Requested"]);
}

#[test]
fn two_promotions_of_the_same_order_are_logged_by_their_creation_time() {
    let mut reader = Reader::new();
    let first = stepped(7, &[Withdrawn]);
    let mut other = stepped(7, &[Requested]);
    // Its name is before that of the first.
    other.metadata.name = Some("a".into());
    other.metadata.creation_timestamp = Some(v1::Time(at(8)));
    assert_eq!(reader.read(std::slice::from_ref(&first), false), ["7 Withdrawn"]);
    assert_eq!(reader.read(&[other, first], false), ["7 Requested"]);
}

#[test]
fn missing_steps_are_logged_as_one_coalesced_change() {
    let mut reader = Reader::new();
    let mut promotion = stepped(7, &[Pending]);
    reader.read(&[promotion.clone()], false);
    for second in 0..5 {
        step(&mut promotion, Requested, "", 20 + 2 * second);
        step(&mut promotion, Failed, "NotRunning", 21 + 2 * second);
    }
    // Steps 2 and 3 are not kept any more.
    let told = reader.read(&[promotion], false);
    assert_eq!((told.len(), told[0].as_str(), told[1].as_str()), (MAX_STEPS, "7 Requested *", "7 Failed"));
    assert_eq!(reader.log.changes[1].from.promotion.as_ref().unwrap().phase, Pending, "as the mirror had it");
    assert_eq!(reader.mirror(), (7, Failed, 11));
}

#[test]
fn existing_steps_are_not_logged_when_an_environment_or_the_log_is_new() {
    let (old, open) = (stepped(3, &[Requested, Finished]), stepped(7, &[Pending, Requested]));
    let mut reader = Reader::new();
    assert!(reader.read(&[open.clone(), old.clone()], true).is_empty());
    assert_eq!(reader.mirror(), (7, Requested, 2), "the newest one");
    let goes_on = stepped(7, &[Pending, Requested, Finished]);
    assert_eq!(reader.read(&[goes_on, old], false), ["7 Finished"]);

    let mut waits = promotion(7, 0);
    step(&mut waits, Pending, WAITING_APPROVAL, 8);
    let mut again = Reader::new();
    assert!(again.read(&[waits], true).is_empty());
    assert_eq!(again.environment.waiting_approval.as_ref().unwrap().since, at(8), "it is still shown");
    assert!(again.read(&[open], true).is_empty(), "an environment that was removed and added again");

    let mut empty = Reader::new();
    assert!(empty.read(&[promotion(7, 0)], true).is_empty() && empty.environment.promotion.is_none());
    assert_eq!(empty.read(&[stepped(7, &[Requested])], false), ["7 Requested"], "its first step is news");
}

#[test]
fn the_promotion_that_waits_for_an_approval_is_shown() {
    let mut reader = Reader::new();
    let mut promotion = promotion(7, 0);
    step(&mut promotion, Pending, "Soaking", 1);
    reader.read(&[promotion.clone()], false);
    assert_eq!(reader.environment.waiting_approval, None);
    step(&mut promotion, Pending, WAITING_APPROVAL, 5);
    reader.read(&[promotion.clone()], false);
    let waits = reader.environment.waiting_approval.clone().unwrap();
    assert_eq!((waits.revision.as_str(), waits.since), ("7", at(5)));
    assert_eq!(Some(&waits.promotion_uid), promotion.metadata.uid.as_ref());
    // Within a phase, the reason can change without a step.
    promotion.status.as_mut().unwrap().reason = "NotObserved".into();
    assert!(reader.read(&[promotion.clone()], false).is_empty());
    assert_eq!((&reader.environment.waiting_approval, reader.mirror()), (&None, (7, Pending, 2)));
    assert_eq!(reader.environment.promotion.as_ref().unwrap().reason, "NotObserved");
    promotion.status.as_mut().unwrap().reason = WAITING_APPROVAL.into();
    reader.read(&[promotion.clone()], false);
    assert_eq!(reader.environment.waiting_approval, Some(waits), "since the same time");
    let before = reader.clone();
    reader.read(&[promotion], false);
    assert_eq!((reader.environment, reader.log), (before.environment, before.log), "nothing has changed");
}

#[test]
fn a_promotion_that_was_deleted_ends() {
    let mut reader = Reader::new();
    let mut waits = promotion(7, 0);
    step(&mut waits, Pending, WAITING_APPROVAL, 1);
    reader.read(&[waits], false);
    assert_eq!(reader.read(&[], false), ["7 Withdrawn"]);
    let change = reader.log.changes.last().unwrap();
    assert_eq!((change.time, change.to.reason.as_str(), change.to.status), (at(1000), DELETED, Status::NotFound));
    assert_eq!(change.from.promotion.as_ref().unwrap().phase, Pending);
    assert_eq!((&reader.environment.waiting_approval, reader.mirror()), (&None, (7, Withdrawn, 1)), "its occasion stays");
    assert!(reader.read(&[], false).is_empty(), "once");
    assert_eq!(reader.read(&[stepped(9, &[Requested])], false), ["9 Requested"]);
    // One that had ended is only forgotten.
    reader.read(&[stepped(9, &[Requested, Finished])], false);
    assert!(reader.read(&[], false).is_empty());
}

#[test]
fn a_recreated_promotion_is_logged_from_its_first_step() {
    let mut reader = Reader::new();
    reader.read(&[stepped(7, &[Pending, Requested, Withdrawn])], false);
    assert_eq!(reader.read(&[stepped(7, &[Requested])], false), ["7 Requested"]);
    assert_eq!(reader.mirror(), (7, Requested, 1));
}

#[test]
fn reasons_and_messages_of_steps_are_bounded() {
    let mut promotion = promotion(7, 0);
    step(&mut promotion, Failed, &"r".repeat(5000), 1);
    promotion.status.as_mut().unwrap().steps[0].message = "m".repeat(5000);
    let mut reader = Reader::new();
    reader.read(&[promotion], false);
    let to = &reader.log.changes[0].to;
    assert!(to.reason.len() <= MAX_REASON && to.message.len() <= MAX_MESSAGE);
    assert!(reader.environment.promotion.unwrap().reason.len() <= MAX_REASON);
}
