//! Pure: the status that follows from the last one and from what was read, and whether it is worth a write.

use crate::api::conditions::{self, ConditionStatus, READY};
use crate::api::pipeline::{EnvironmentStatus, TargetStatus};
use crate::api::target::TargetInfo;
use crate::api::{PipelineStatus, Status, Time};
use crate::changelog::{MAX_STATUS, compact, fit, open, prune};
use crate::clusters::Reading;

use super::plan::Refused;
use super::target::{Shown, previous, take};

/// So many targets are named in a condition.
const NAMED: usize = 5;

/// A pipeline as it is known to the API server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base<'a> {
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// Its status; absent before the first write.
    pub status: Option<&'a PipelineStatus>,
    /// The highest serial that is known to have been given for it, whatever its status says.
    pub highest: Option<i64>,
}

/// What should be written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// The whole status; `dispatched` as it was.
    pub status: PipelineStatus,
    /// Its bytes as JSON.
    pub bytes: usize,
}

/// One target and what was read of it.
pub(super) type Observed = (TargetInfo, Reading);

/// The next status, or `None` if nothing but time would change. What fits into the log and whom it waits for is no reason to
/// write, only an occasion to clean up.
pub(super) fn next(base: Base<'_>, observed: Result<&[Observed], &Refused>, now: Time) -> Option<Next> {
    let before = base.status.cloned().unwrap_or_default();
    let mut status = before.clone();
    let log = status.log.get_or_insert_with(|| {
        // Whoever wiped the log wiped the past: what is so now is the silent baseline.
        open(now, base.highest)
    });
    let known: &[EnvironmentStatus] = if before.log.is_some() { &before.environments } else { &[] };
    log.serial = log.serial.max(base.highest.unwrap_or(log.serial));
    match observed {
        Err(refused) => {
            set_ready(&mut status, base.generation, ConditionStatus::False, refused.reason, &refused.message, now);
        }
        Ok(observed) => {
            let serial = log.serial;
            let (environments, pending) = take_all(observed, known, log, now);
            if pending && before.log.is_none() {
                return None;
            }
            let happened = log.serial > serial;
            status.environments = environments;
            if !pending {
                status.observed_generation = base.generation;
                judge(&mut status, observed, base.generation, now);
            }
            if !happened && let (Some(log), Some(old)) = (status.log.as_mut(), before.log.as_ref()) {
                log.clone_from(old);
            }
        }
    }
    if status == before {
        return None;
    }
    let cursors = status.dispatched.iter().flat_map(|d| d.cursors.clone()).collect::<Vec<_>>();
    if let Some(log) = status.log.as_mut() {
        prune(log, &cursors);
        compact(log);
    }
    let bytes = fit(&mut status, MAX_STATUS);
    Some(Next { status, bytes })
}

/// The environments in spec order, and whether some target has to wait for its cache.
fn take_all(
    observed: &[Observed],
    known: &[EnvironmentStatus],
    log: &mut crate::api::ChangeLog,
    now: Time,
) -> (Vec<EnvironmentStatus>, bool) {
    let targets: Vec<TargetInfo> = observed.iter().map(|(t, _)| t.clone()).collect();
    let mut environments: Vec<EnvironmentStatus> = Vec::new();
    let mut pending = false;
    for ((target, reading), before) in observed.iter().zip(previous(&targets, known)) {
        if environments.last().is_none_or(|e| e.name != target.environment) {
            environments.push(EnvironmentStatus { name: target.environment.clone(), targets: Vec::new() });
        }
        let shown = match take(target, before, reading, log, now) {
            Shown::Status(shown) => Some(shown),
            Shown::Pending(before) => {
                pending = true;
                before
            }
        };
        if let Some(environment) = environments.last_mut() {
            environment.targets.extend(shown);
        }
    }
    (environments, pending)
}

/// `Ready` follows from whether every target is observed.
fn judge(status: &mut PipelineStatus, observed: &[Observed], generation: Option<i64>, now: Time) {
    let shown = status.environments.iter().flat_map(|e| &e.targets);
    let unknown: Vec<(&str, &TargetStatus)> = observed
        .iter()
        .map(|(t, _)| t.name.as_str())
        .zip(shown)
        .filter(|(_, shown)| shown.status == Status::Unknown)
        .collect();
    let Some((_, first)) = unknown.first() else {
        return set_ready(status, generation, ConditionStatus::True, "Observed", "every target is observed", now);
    };
    let names: Vec<&str> = unknown.iter().map(|(name, _)| *name).take(NAMED).collect();
    let more = match unknown.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!("cannot observe {}{more}: {}", names.join(", "), first.message);
    let reason = if first.reason.is_empty() { "Unknown".to_owned() } else { first.reason.clone() };
    set_ready(status, generation, ConditionStatus::False, &reason, &message, now);
}

fn set_ready(
    status: &mut PipelineStatus,
    generation: Option<i64>,
    is: ConditionStatus,
    reason: &str,
    message: &str,
    now: Time,
) {
    conditions::set(&mut status.conditions, READY, is, reason, message, generation, now);
}
