//! Tests what follows after each answer to a call of a write.

use kube::core::Status;

use super::*;
use crate::outbox::engine::effect::Now;
use crate::outbox::testing::record;
use relaybook_api::Outcome;

fn status(outcome: Option<Outcome>, attempts: i64) -> DeliveryStatus {
    DeliveryStatus { outcome, attempts, ..DeliveryStatus::default() }
}

/// Returns the write of the outcome Delivered. `is_recorded`: whether the delivery has an object.
fn write(is_recorded: bool) -> Box<Write> {
    let mut known = record(1);
    if !is_recorded {
        (known.uid, known.version) = (String::new(), String::new());
    }
    let (key, after) = (known.lane(), After::Settled { answered: true });
    let decided = Decided { record: known, status: status(Some(Outcome::Delivered), 1), after };
    Write::new(Kind::Lane(key), decided, Limit::Outcomes)
}

fn refused() -> JournalError {
    JournalError::Refused(kube::Error::Api(Status::failure("quota", "Forbidden").boxed()))
}

/// Returns what follows as a text: the end or the next call, with the outcome, and whether a status was written and the object is gone.
fn follows(next: Next) -> String {
    match next {
        Next::Ended(_, worked) => {
            let Worked { record, gone, is_written, after, .. } = *worked;
            let is_settled = matches!(after, After::Settled { .. });
            format!("ended {:?} settled={is_settled} gone={gone} written={is_written}", record.status.outcome)
        }
        Next::Call(write) => match write.call() {
            Call::Create(..) => "create".to_owned(),
            Call::Patch(record, status) => format!("patch {} to {:?}", record.version, status.outcome),
        },
        Next::Pause(_, pause, _) => format!("pause {pause:?}"),
    }
}

#[test]
fn what_follows_depends_on_the_answer() {
    let live = |outcome, attempts| Record { version: "7".into(), status: status(outcome, attempts), ..record(1) };
    let stored = || Written::Stored { version: "2".into(), status: Box::new(status(Some(Outcome::Delivered), 1)) };
    let made = |result| Answered::Created(Box::new(result));
    let created = |outcome, attempts| made(Ok(live(outcome, attempts)));
    let patched = |written| Answered::Patched(Ok(written));
    // Settled after this number of attempts, and then redelivered.
    let reopened = |attempts| {
        let settled = status(Some(Outcome::Delivered), attempts);
        Record { status: redeliver::reopened(&settled, "1".into(), Now::read().wall), again: true, ..live(None, 1) }
    };
    let again = |attempts| Written::Reopened(Box::new(reopened(attempts)));
    let (delivered, parked) = (Some(Outcome::Delivered), Some(Outcome::Parked));
    // Each row: whether it has an object, whether its pipeline is gone, the answer, and what follows.
    for (is_recorded, is_left, answered, expected) in [
        (false, false, created(delivered, 1), "ended Some(Delivered) settled=true gone=false written=true"),
        (false, false, created(parked, 1), "ended Some(Parked) settled=true gone=false written=false"),
        (false, false, created(None, 0), "patch 7 to Some(Delivered)"),
        (false, false, made(Err(JournalError::Timeout)), "pause 300ms"),
        (false, false, made(Err(refused())), "pause 300ms"),
        (false, true, made(Err(JournalError::Timeout)), "pause 300ms"),
        (false, true, made(Err(refused())), "ended None settled=true gone=true written=false"),
        (true, false, patched(stored()), "ended Some(Delivered) settled=true gone=false written=true"),
        (true, false, patched(Written::Gone(None)), "ended None settled=true gone=true written=false"),
        (
            true,
            false,
            patched(Written::Overtaken(Box::new(live(parked, 1)))),
            "ended Some(Parked) settled=true gone=false written=false",
        ),
        (
            true,
            false,
            patched(Written::Overtaken(Box::new(live(None, 2)))),
            "ended None settled=false gone=false written=false",
        ),
        (true, false, patched(again(1)), "ended Some(Delivered) settled=true gone=false written=true"),
        (true, false, patched(again(2)), "ended None settled=true gone=false written=false"),
        (false, false, made(Ok(reopened(1))), "ended Some(Delivered) settled=true gone=false written=true"),
        (false, false, made(Ok(reopened(2))), "ended None settled=true gone=false written=false"),
        (true, false, patched(Written::Annotated(Box::new(live(None, 0)))), "patch 7 to Some(Delivered)"),
        (true, false, Answered::Patched(Err(refused())), "pause 300ms"),
        (true, true, Answered::Patched(Err(refused())), "pause 300ms"),
    ] {
        let asked = format!("{is_recorded}, {is_left}, {answered:?}");
        assert_eq!(follows(write(is_recorded).next(answered, is_left, 0.5, Now::read())), expected, "{asked}");
    }
}

#[test]
fn the_outcome_includes_an_annotation_that_the_watch_has_not_delivered() {
    let live = Record { asked: Some("1".into()), version: "7".into(), ..record(1) };
    let answered = Answered::Patched(Ok(Written::Annotated(Box::new(live))));
    let Next::Call(write) = write(true).next(answered, false, 0.0, Now::read()) else { panic!("it is not written again") };
    let redelivered = write.decided.status.redelivered.as_ref().map(|redelivered| redelivered.value.as_str());
    assert_eq!((redelivered, write.decided.record.asked.as_deref()), (Some("1"), Some("1")));
}

#[test]
fn the_pauses_grow_with_each_failure_and_begin_anew_after_the_create() {
    let (mut write, mut pauses) = (write(false), Vec::new());
    for _ in 0..8 {
        let failed = Answered::Created(Box::new(Err(JournalError::Timeout)));
        let Next::Pause(again, pause, _) = write.next(failed, false, 0.0, Now::read()) else { panic!("it is not repeated") };
        (write, pauses) = (again, [pauses, vec![pause.as_millis()]].concat());
    }
    assert_eq!(pauses, [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
    assert!(matches!(write.call(), Call::Create(..)));
    let pending = Answered::Created(Box::new(Ok(record(1))));
    let Next::Call(write) = write.next(pending, false, 0.0, Now::read()) else { panic!("its outcome is not written") };
    assert!(matches!(write.call(), Call::Patch(..)));
    let failed = Answered::Patched(Err(JournalError::Timeout));
    assert!(matches!(write.next(failed, false, 0.0, Now::read()), Next::Pause(_, pause, _) if pause == PAUSES.first));
}

#[test]
fn paused_writes_are_due_in_the_order_of_their_times() {
    let (mut paused, now) = (Paused::default(), Now::read().mono);
    let later = now + Duration::from_secs(1);
    paused.add(later, write(true));
    paused.add(now, write(false));
    paused.add(now, write(false));
    assert_eq!(paused.next_time(), Some(now));
    assert!(paused.take_due(now).is_some() && paused.take_due(now).is_some());
    assert!(paused.take_due(now).is_none() && paused.take_due(later).is_some());
    assert_eq!(paused.next_time(), None);
}
