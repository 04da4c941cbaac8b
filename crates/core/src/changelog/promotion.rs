//! Takes the steps of promotions into the log of their pipeline, each once and in order.
//!
//! In: the promotions to one environment, and its mirror in the status: the promotion that was taken last, and how many of its steps are in
//! the log. Out: one change for each new step, the new mirror, and the promotion that waits for an approval.
//!
//! The steps of one environment are one sequence: a promotion gets its first step only after all earlier ones have ended. So the next steps
//! are always those of the mirror's promotion, then those of the next newer one. The mirror and the changes are in the same write of the
//! status. So the log is the same however often and however late the promotions are read.

use relaybook_text::cut;

use crate::promotion::names::{Order, order};
use crate::promotion::policy::strategy_name;
use crate::promotion::reason::WAITING_APPROVAL;
use relaybook_api::pipeline::EnvironmentStatus;
use relaybook_api::promotion::{EnvironmentPromotion, Phase, PromotionState, Step, WaitingApproval};
use relaybook_api::{ChangeLog, LogSubject, Promotion, State, Status, Time};

use super::fit::MAX_MESSAGE;
use super::log::append;

/// Maximum length of a reason, in bytes. A reason is one word.
const MAX_REASON: usize = 128;
/// The reason of a promotion whose object was deleted before it ended.
const DELETED: &str = "Deleted";

/// Takes all new steps of the promotions to an environment into the log, and updates `promotion` and `waitingApproval` of the environment.
/// `promotions` is the complete list of the pipeline's promotions, of all environments and in any order.
///
/// `is_new`: it is not known which steps are in the log, because the environment or the log is new. Then all existing steps count as taken,
/// and nothing is added to the log.
pub fn take_steps(
    environment: &mut EnvironmentStatus,
    promotions: &[&Promotion],
    is_new: bool,
    log: &mut ChangeLog,
    now: Time,
) {
    let ours = promotions.iter().copied().filter(|p| p.spec.environment == environment.name && last_step(p) > 0);
    let mut counted: Vec<&Promotion> = ours.collect();
    counted.sort_by_key(|&promotion| place(promotion));
    if is_new {
        environment.promotion = counted.last().map(|newest| shown(newest));
    } else {
        let subject = LogSubject::Promotion(&environment.name);
        let mut mirror = environment.promotion.take();
        if let Some(mirror) = mirror.as_mut().filter(|mirror| !mirror.phase.is_ended() && find(&counted, mirror).is_none()) {
            end_deleted(mirror, subject, log, now);
        }
        for promotion in remaining(&counted, mirror.as_ref()) {
            append_steps(promotion, mirror.as_ref(), subject, log);
            mirror = Some(shown(promotion));
            if !phase(promotion).is_ended() {
                break;
            }
        }
        environment.promotion = mirror;
    }
    let newest = environment.promotion.as_ref().and_then(|mirror| find(&counted, mirror));
    environment.waiting_approval = newest.and_then(|at| waiting(counted.get(at)?));
}

/// The place of a promotion in the sequence. Only promotions that a person created without the command line can have the same order.
fn place(promotion: &Promotion) -> (Order, Option<Time>, Option<&str>) {
    let meta = &promotion.metadata;
    (order(&promotion.spec), meta.creation_timestamp.as_ref().map(|time| time.0), meta.name.as_deref())
}

/// Returns the index of the mirror's promotion.
fn find(counted: &[&Promotion], mirror: &EnvironmentPromotion) -> Option<usize> {
    counted.iter().position(|promotion| promotion.metadata.name.as_deref() == Some(&*mirror.name))
}

/// Returns the promotions that can have new steps: that of the mirror, and all newer ones.
fn remaining<'a, 'p>(counted: &'a [&'p Promotion], mirror: Option<&EnvironmentPromotion>) -> &'a [&'p Promotion] {
    let first = mirror.map_or(0, |mirror| {
        let above = |promotion: &&Promotion| order(&promotion.spec) <= (mirror.occasion, mirror.request);
        find(counted, mirror).unwrap_or_else(|| counted.partition_point(above))
    });
    counted.get(first..).unwrap_or_default()
}

/// Adds the steps of a promotion that are not in the log yet. If steps are missing, the first change after them includes them.
fn append_steps(promotion: &Promotion, mirror: Option<&EnvironmentPromotion>, subject: LogSubject<'_>, log: &mut ChangeLog) {
    // An object that has fewer steps than were taken was created again under the same name.
    let known = mirror.filter(|mirror| promotion.metadata.name.as_deref() == Some(&*mirror.name));
    let known = known.filter(|mirror| mirror.taken <= last_step(promotion));
    let first = known.map_or(0, |mirror| mirror.taken);
    let (mut taken, mut from) = (first, before(promotion, known));
    for step in steps(promotion).iter().filter(|step| step.step > first) {
        let to = state(promotion, step.phase, &step.reason, &step.message);
        let next = State { message: String::new(), ..to.clone() };
        append(log, subject, step.time, std::mem::replace(&mut from, next), to);
        if let Some(change) = log.changes.last_mut() {
            change.coalesced = step.step > taken + 1;
        }
        taken = step.step;
    }
}

/// The state before the first new step: that of the last step that was taken. Before the first step, the promotion did not exist.
fn before(promotion: &Promotion, known: Option<&EnvironmentPromotion>) -> State {
    let Some(known) = known.filter(|known| known.taken > 0) else {
        return State { status: Status::NotFound, current: promotion.spec.previous.clone(), ..State::default() };
    };
    let last = steps(promotion).iter().find(|step| step.step == known.taken);
    let (phase, reason) = last.map_or((known.phase, &known.reason), |step| (step.phase, &step.reason));
    state(promotion, phase, reason, "")
}

/// Adds the end of a promotion whose object was deleted. Otherwise the status would show it as open, and timers would continue.
fn end_deleted(mirror: &mut EnvironmentPromotion, subject: LogSubject<'_>, log: &mut ChangeLog, now: Time) {
    let state = |phase: Phase, reason: &str, message: &str| State {
        status: status_of(phase),
        revision: mirror.revision.clone(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        promotion: Some(PromotionState { name: mirror.name.clone(), phase, ..PromotionState::default() }),
        ..State::default()
    };
    let from = state(mirror.phase, &mirror.reason, "");
    append(log, subject, now, from, state(Phase::Withdrawn, DELETED, "the Promotion was deleted"));
    (mirror.phase, mirror.reason) = (Phase::Withdrawn, DELETED.to_owned());
}

/// The state of a promotion after a step.
fn state(promotion: &Promotion, phase: Phase, reason: &str, message: &str) -> State {
    let Promotion { metadata, spec, status } = promotion;
    // The strategy is copied into the status with the request.
    let strategy = status.as_ref().and_then(|status| status.strategy.as_ref()).filter(|_| phase != Phase::Pending);
    State {
        status: status_of(phase),
        revision: spec.revision.clone(),
        current: if phase == Phase::Finished { Some(spec.revision.clone()) } else { spec.previous.clone() },
        failed: matches!(phase, Phase::Failed | Phase::Closed),
        reason: cut(reason, MAX_REASON).into_owned(),
        message: cut(message, MAX_MESSAGE).into_owned(),
        promotion: Some(PromotionState {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            phase,
            strategy: strategy.map_or("", strategy_name).to_owned(),
            from: spec.from.clone(),
            url: location(promotion, phase),
        }),
        ..State::default()
    }
}

/// The URL of the pull request or commit. Before the phase `Open` there is none, or it belongs to an earlier attempt.
fn location(promotion: &Promotion, phase: Phase) -> String {
    let is_open = !matches!(phase, Phase::Pending | Phase::Requested);
    let location = promotion.status.as_ref().and_then(|status| status.location.clone());
    location.filter(|_| is_open).unwrap_or_default()
}

/// The status of a subject that is a promotion.
const fn status_of(phase: Phase) -> Status {
    match phase {
        Phase::Pending | Phase::Requested | Phase::Open | Phase::Merged => Status::InProgress,
        Phase::Finished => Status::Current,
        Phase::Failed | Phase::Closed => Status::Failed,
        Phase::Withdrawn => Status::NotFound,
    }
}

/// The mirror of a promotion, all of whose steps are taken.
fn shown(promotion: &Promotion) -> EnvironmentPromotion {
    let (spec, status) = (&promotion.spec, promotion.status.as_ref());
    EnvironmentPromotion {
        name: promotion.metadata.name.clone().unwrap_or_default(),
        revision: spec.revision.clone(),
        phase: phase(promotion),
        reason: cut(status.map_or("", |status| &status.reason), MAX_REASON).into_owned(),
        occasion: spec.occasion,
        request: spec.request,
        last_attempted_time: status.and_then(|status| status.last_attempted_time),
        succeeded: status.is_some_and(|status| status.succeeded),
        location: status.and_then(|status| status.location.clone()),
        pull_request_state: status.and_then(|status| status.pull_request.as_ref()).map(|request| request.state),
        taken: last_step(promotion),
    }
}

/// The promotion as one that waits for an approval, if it does.
fn waiting(promotion: &Promotion) -> Option<WaitingApproval> {
    let status = promotion.status.as_ref()?;
    if status.phase != Some(Phase::Pending) || status.reason != WAITING_APPROVAL {
        return None;
    }
    let began = status.steps.iter().rev().find(|step| step.reason == WAITING_APPROVAL);
    Some(WaitingApproval {
        revision: promotion.spec.revision.clone(),
        promotion: promotion.metadata.name.clone()?,
        promotion_uid: promotion.metadata.uid.clone()?,
        since: began.or(status.steps.last())?.time,
    })
}

/// The number of the newest step. A promotion that the controller refused has none.
fn last_step(promotion: &Promotion) -> i64 {
    promotion.status.as_ref().map_or(0, |status| status.step)
}

/// The kept steps, oldest first.
fn steps(promotion: &Promotion) -> &[Step] {
    promotion.status.as_ref().map_or(&[], |status| status.steps.as_slice())
}

fn phase(promotion: &Promotion) -> Phase {
    promotion.status.as_ref().and_then(|status| status.phase).unwrap_or_default()
}

#[cfg(test)]
mod tests;
