//! Pure: what one target's status becomes, and what has happened to it.

use std::collections::HashMap;

use crate::api::pipeline::{EnvironmentStatus, TargetStatus};
use crate::api::refs::ClusterAppRef;
use crate::api::target::TargetInfo;
use crate::api::{ChangeLog, Settled, Status, Time};
use crate::changelog::{MAX_MESSAGE, Verdict, append, cut, is_cut_of, settle};
use crate::clusters::{Now, Reading, Reason};
use crate::observe::{self, Observation};

/// The application object of a target, fully spelled out.
pub(super) fn application(target: &TargetInfo) -> ClusterAppRef {
    ClusterAppRef {
        api_version: target.app.api_version.clone(),
        kind: target.app.kind.clone(),
        name: target.app.name.clone(),
        namespace: target.namespace.clone(),
    }
}

/// What a target's status becomes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// This.
    Status(TargetStatus),
    /// What it was, for its cache is still being filled; nothing if it is new.
    Pending(Option<TargetStatus>),
}

/// The previous status of each target, in the order of `targets`. A target whose application was edited keeps its own, so that
/// what is known of its past is not lost; the status then still names the old application.
pub(super) fn previous<'a>(targets: &[TargetInfo], before: &'a [EnvironmentStatus]) -> Vec<Option<&'a TargetStatus>> {
    let all = before.iter().flat_map(|e| e.targets.iter().map(|t| (e.name.clone(), t)));
    let mut left: HashMap<(String, ClusterAppRef), &TargetStatus> =
        all.map(|(environment, t)| ((environment, t.cluster_app_ref.clone()), t)).collect();
    let mut found: Vec<Option<&TargetStatus>> =
        targets.iter().map(|t| left.remove(&(t.environment.clone(), application(t)))).collect();
    for (target, found) in targets.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
        let names_another = target.name != format!("{}/{}/{}", target.environment, target.cluster, target.namespace);
        let here = left.keys().filter(|(e, app)| *e == target.environment && app.namespace == target.namespace);
        // A target without an application of its own follows the pipeline's, whatever that was called before.
        let edited = here.filter(|(_, app)| !names_another || app.name == target.app.name);
        let best = edited.min_by_key(|(_, app)| (app.name != target.app.name, app.name.clone(), app.kind.clone())).cloned();
        *found = best.and_then(|key| left.remove(&key));
    }
    found
}

/// Takes in what was read of a target. What has happened is appended to the log.
pub(super) fn take(
    target: &TargetInfo,
    before: Option<&TargetStatus>,
    reading: &Reading,
    log: &mut ChangeLog,
    now: Time,
) -> Shown {
    if let Now::Unknown { reason: Reason::CacheNotSynced, .. } = reading.now {
        return Shown::Pending(before.cloned());
    }
    let app = application(target);
    let same = before.filter(|b| b.cluster_app_ref == app);
    let settled = settled_after(target, before, same.is_some(), reading, log, now);
    let mut shown = match &reading.now {
        Now::Known(obs) => match same {
            Some(before) if obs.suspended && before.status != Status::Unknown => before.clone(),
            _ => show(obs),
        },
        Now::Unknown { reason, message } => show(&Observation {
            status: Status::Unknown,
            reason: reason.as_str().to_owned(),
            message: message.clone(),
            ..Observation::default()
        }),
    };
    if let Some(before) = same
        && is_cut_of(&before.message, &shown.message)
    {
        // It was cut for lack of room: having room again is no reason to write.
        shown.message.clone_from(&before.message);
    }
    shown.last_transition_time = same.filter(|b| b.status == shown.status).map_or(Some(now), |b| b.last_transition_time);
    shown.cluster_app_ref = app;
    shown.settled = settled;
    Shown::Status(shown)
}

/// The settled state after everything that was read.
fn settled_after(
    target: &TargetInfo,
    before: Option<&TargetStatus>,
    same: bool,
    reading: &Reading,
    log: &mut ChangeLog,
    now: Time,
) -> Option<Settled> {
    let reader = observe::reader(&target.app.api_version, &target.app.kind);
    let mut settled = before.and_then(|b| b.settled.clone());
    if !same && let Some(other) = settled.as_mut() {
        // The state of another application: only how far its past reaches still holds.
        other.reader.clear();
    }
    let comparable = settled.as_ref().is_some_and(|s| s.reader == reader);
    let past = reading.observations.iter().map(|(_, obs)| obs).filter(|_| comparable);
    let present = match &reading.now {
        Now::Known(obs) => Some(obs),
        Now::Unknown { .. } => None,
    };
    let mut lost = comparable && reading.overflowed;
    for obs in past.chain(present) {
        match settle(settled.as_ref(), obs, &reader, horizon(log)) {
            Verdict::Ignored => {}
            Verdict::Baseline(new) => settled = Some(new),
            Verdict::Changed { from, to, settled: new } => {
                append(log, &target.subject, now, from, to);
                if let Some(change) = log.changes.last_mut() {
                    change.coalesced = std::mem::take(&mut lost);
                }
                settled = Some(new);
            }
        }
    }
    settled
}

/// An observation as people see it.
fn show(obs: &Observation) -> TargetStatus {
    let ready = obs.status == Status::Current;
    TargetStatus {
        status: obs.status,
        ready,
        revision: obs.revision.clone(),
        attempted_revision: obs.attempted_revision.clone(),
        reason: obs.reason.clone(),
        message: if ready { String::new() } else { cut(&obs.message, MAX_MESSAGE).into_owned() },
        drifted: obs.drifted,
        ..TargetStatus::default()
    }
}

/// What is at or below this happened to an earlier target of the same name. In a log in which nothing has happened yet there is no
/// such past; if it is new because the status was wiped, what was recorded before still belongs to these targets.
fn horizon(log: &ChangeLog) -> i64 {
    if log.serial == log.first { 0 } else { log.serial }
}
