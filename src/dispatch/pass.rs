//! One pass over one pipeline: cursors → derive → record → advance → persist.
//!
//! In: the pipeline as the watch last brought it, and where the dispatcher stands with it in memory. Out: deliveries that are
//! recorded, and cursors that have moved; those are persisted at most once a second. After a crash a cursor may be a second
//! old: its changes are derived again, and the names of the deliveries find what is recorded already.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt as _};

use super::cursors::{self, Applying};
use super::derive::{self, Derived, Wants};
use super::refused::Refusal;
use super::standing::{PassError, SOON, Saved, Standing};
use super::troubles::{defined_wrong, troubles};
use super::{Context, notifications};
use crate::api::delivery::PipelineRef;
use crate::api::pipeline::InTrouble;
use crate::api::target::{TargetInfo, targets};
use crate::api::{ChangeLog, DeliverySpec, Pipeline, now};
use crate::config::EffectiveNotification;
use crate::delivery::directory::subject;
use crate::delivery::{Applied, JournalError, ToRecord, is_notification_gone};

/// Goes over one pipeline.
pub async fn run(pipeline: &Pipeline, standing: &mut Standing, ctx: &Context) -> Result<Action, PassError> {
    standing.absorb(pipeline);
    let Some(log) = pipeline.status.as_ref().and_then(|s| s.log.as_ref()) else { return Ok(Action::await_change()) };
    let of = reference(pipeline);
    let notifications = ctx.deliveries.directory.notifications_of(&of.uid, &of.namespace, pipeline.labels());
    standing.put_troubles(wrong(pipeline, &notifications, ctx));
    match arrange(pipeline, &of, log, &notifications, standing, ctx).await? {
        Saved::Done => {}
        Saved::Stale => return Ok(Action::requeue(SOON)),
        Saved::Gone => return Ok(Action::await_change()),
    }
    let again = take(pipeline, &of, log, &notifications, standing, ctx).await;
    let due = standing.keep(&of, ctx).await?;
    Ok(again.into_iter().chain(due).min().map_or_else(Action::await_change, Action::requeue))
}

/// Makes new cursors and persists them before anything is derived; drops those of notifications that are gone.
async fn arrange(
    pipeline: &Pipeline,
    of: &PipelineRef,
    log: &ChangeLog,
    notifications: &BTreeMap<String, Applied>,
    standing: &mut Standing,
    ctx: &Context,
) -> Result<Saved, PassError> {
    let labels = pipeline.labels();
    let applying: BTreeMap<_, _> = notifications
        .iter()
        .map(|(name, n)| (name.clone(), Applying { uid: n.uid(), applies: n.selects(labels), own: n.base.is_none() }))
        .collect();
    let unknown = ctx.globals.held().in_force.is_none();
    let mut plan = cursors::plan(&standing.position.cursors, standing.never_seen(), unknown, log, &applying);
    for name in &plan.suspects {
        let uid = standing.position.cursors.get(name).map_or("", |cursor| cursor.uid.as_str());
        let is_gone = is_notification_gone(&ctx.client, &ctx.deliveries.directory, &of.namespace, name, uid).await?;
        // It may have come back since it was missed.
        if is_gone && ctx.deliveries.directory.base(&of.namespace, name, labels).is_none() {
            plan.cursors.remove(name);
            if let Some(own) = applying.get(name) {
                plan.cursors.insert(name.clone(), cursors::begin(name, own.uid, false, log));
                plan.fresh = true;
            }
        }
    }
    for (name, old) in &standing.position.cursors {
        // What was refused was another's, or is no longer asked for.
        if plan.cursors.get(name).is_none_or(|new| new.uid != old.uid) {
            forgive(of, name, ctx);
        }
    }
    if !plan.fresh {
        standing.put_cursors(plan.cursors);
        return Ok(Saved::Done);
    }
    let serial = (!standing.never_seen()).then_some(log.serial);
    standing.begin(of, plan.cursors, serial, ctx).await
}

/// What is wrong with the notifications that apply to a pipeline.
fn wrong(pipeline: &Pipeline, notifications: &BTreeMap<String, Applied>, ctx: &Context) -> Vec<InTrouble> {
    let labels = pipeline.labels();
    let applying = notifications.iter().filter(|(_, n)| n.selects(labels)).map(|(name, n)| (name.clone(), n.clone()));
    let missing = |n: &EffectiveNotification| notifications::missing_of(ctx, n);
    troubles(&applying.collect(), &targets(&pipeline.spec, &ctx.cluster_name), |n| defined_wrong(n).or_else(|| missing(n)))
}

/// What one notification is to have recorded in this pass.
struct Work {
    notification: String,
    lanes: Vec<Vec<DeliverySpec>>,
    /// Subjects of lanes that are left for later.
    later: BTreeSet<String>,
    /// The first change of a subject of which it is not clear what is wanted.
    unclear: Option<i64>,
    /// Creates were refused the last time: one lane shows whether they still are, so that a slow refusal costs the others little.
    probe: bool,
    /// Where each lane of it is kept: if that may have been elsewhere before, it is looked for there.
    homes: u64,
}

/// Takes the changes above each cursor: derives, records, advances. Gives the time after which a held cursor is tried again.
async fn take(
    pipeline: &Pipeline,
    of: &PipelineRef,
    log: &ChangeLog,
    notifications: &BTreeMap<String, Applied>,
    standing: &mut Standing,
    ctx: &Context,
) -> Option<Duration> {
    let (mut held, mut work) = (Vec::new(), Vec::new());
    let infos = targets(&pipeline.spec, &ctx.cluster_name).into_iter().map(|t| (t.subject.clone(), t)).collect();
    for cursor in standing.position.cursors.values() {
        if cursor.serial >= log.serial {
            forgive(of, &cursor.notification, ctx);
            continue;
        }
        // What is not known to be gone is not taken for another of its name.
        let same = |n: &&Applied| n.uid() == cursor.uid;
        let Some(notification) = notifications.get(&cursor.notification).filter(same) else { continue };
        let name = cursor.notification.clone();
        if !ctx.refused.may_try(of, &name) {
            held.push(name);
            continue;
        }
        let wants = |subject: &str| match notification.of(subject).map(|n| (&n.intake, n.delivery.ordering)) {
            None => Wants::Nothing,
            Some((Err(_), _)) => Wants::Unclear,
            Some((Ok(intake), ordering)) => Wants::These(&intake.triggers, ordering),
        };
        let Derived { mut lanes, unclear } = derive::derive(cursor, &standing.taken(&name), wants, log, of, &infos);
        let probe = ctx.refused.retry_in(of, &name).is_some() && lanes.len() > 1;
        let later = lanes.split_off(if probe { 1 } else { lanes.len() });
        let first_unclear = unclear.values().min().copied();
        let later = later.iter().flatten().map(subject).chain(unclear.into_keys()).collect();
        let homes = homes(notification, &infos);
        work.push(Work { notification: name, lanes, later, unclear: first_unclear, probe, homes });
    }
    let to_record = |w: &Work| {
        let look_elsewhere = !standing.is_home(&w.notification, w.homes);
        w.lanes.iter().cloned().map(move |deliveries| ToRecord { deliveries, look_elsewhere }).collect::<Vec<_>>()
    };
    let flat: Vec<_> = work.iter().flat_map(to_record).collect();
    #[cfg(feature = "broken")]
    if crate::broken::is(crate::broken::Wrong::CursorBeforeCreate) {
        for one in &work {
            standing.advance(&one.notification, log.serial);
        }
        let _ = standing.save(of, None, ctx).await;
    }
    let mut errors = ctx.deliveries.record(flat).await.into_iter();
    let mut again = None;
    for work in work {
        let failed: Vec<_> = errors.by_ref().take(work.lanes.len()).collect();
        let all = work.later.is_empty() && failed.iter().all(Option::is_none);
        standing.put_home(&work.notification, Some(work.homes).filter(|_| all));
        if !recorded(of, log, &work, &failed, standing, ctx) {
            held.push(work.notification);
        } else if work.probe {
            again = Some(Duration::ZERO);
        }
    }
    let waits: Vec<_> = held.iter().filter_map(|name| hold(of, name, log, notifications, standing, ctx)).collect();
    waits.into_iter().chain(again).min()
}

/// In which namespaces the deliveries of a notification are kept, by target; as a number that tells one such answer from another.
fn homes(notification: &Applied, targets: &BTreeMap<String, TargetInfo>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for subject in targets.keys() {
        (subject, notification.of(subject).map(|n| &n.home)).hash(&mut hasher);
    }
    hasher.finish()
}

/// Advances the cursor as far as everything is recorded. `false`: not to the end.
fn recorded(
    of: &PipelineRef,
    log: &ChangeLog,
    work: &Work,
    failed: &[Option<(i64, JournalError)>],
    standing: &mut Standing,
    ctx: &Context,
) -> bool {
    let name = &work.notification;
    let first = failed.iter().flatten().min_by_key(|(serial, _)| *serial);
    if first.is_some() || work.probe || work.unclear.is_some() {
        for (subject, serial) in taken(log, work, failed) {
            standing.take(name, subject, serial);
        }
    }
    match first {
        Some((serial, error)) => {
            refuse(of, name, error, ctx);
            if !work.probe {
                let serial = work.unclear.map_or(*serial, |unclear| unclear.min(*serial));
                standing.advance(name, serial.saturating_sub(1));
            }
            return false;
        }
        None if !work.probe => standing.advance(name, work.unclear.map_or(log.serial, |serial| serial.saturating_sub(1))),
        None => {}
    }
    forgive(of, name, ctx);
    work.unclear.is_none()
}

/// How far each subject of the log was taken: to its end, but for lanes that are left for later and those that failed.
fn taken<'a>(log: &'a ChangeLog, work: &Work, failed: &[Option<(i64, JournalError)>]) -> BTreeMap<&'a str, i64> {
    let mut taken: BTreeMap<&str, i64> = log.changes.iter().map(|c| (c.subject.as_str(), log.serial)).collect();
    taken.retain(|subject, _| !work.later.contains(*subject));
    for (lane, failed) in work.lanes.iter().zip(failed) {
        let Some((serial, _)) = failed else { continue };
        for delivery in lane {
            if let Some(taken) = taken.get_mut(subject(delivery).as_str()) {
                *taken = serial - 1;
            }
        }
    }
    taken
}

/// Nothing is refused any more.
fn forgive(of: &PipelineRef, name: &str, ctx: &Context) {
    if ctx.refused.clear(of, name) {
        ctx.deliveries.ledger.changed.wake((of.namespace.clone(), name.to_owned()));
    }
}

/// A create was refused or could not be made: only this notification waits.
fn refuse(of: &PipelineRef, name: &str, error: &JournalError, ctx: &Context) {
    let detail = error.detail();
    tracing::warn!(pipeline = %of.name, namespace = %of.namespace, notification = %name, error = %detail, "a delivery could not be recorded; its notification's cursor is held");
    let refused = matches!(error, JournalError::Refused(_) | JournalError::Taken(_));
    if ctx.refused.note(of, name, Refusal { refused, detail: detail.clone() }).refused {
        let text = format!("deliveries of pipeline {} cannot be recorded: {detail}", of.name);
        ctx.warn(of, name, "RecordRefused", "Record", &text);
        ctx.deliveries.ledger.changed.wake((of.namespace.clone(), name.to_owned()));
    }
}

/// A held cursor passes what is older than `maxAge`, and says so. Gives when to try again.
fn hold(
    of: &PipelineRef,
    name: &str,
    log: &ChangeLog,
    notifications: &BTreeMap<String, Applied>,
    standing: &mut Standing,
    ctx: &Context,
) -> Option<Duration> {
    let max_age = notifications.get(name)?.all().map(|n| n.delivery.retry.max_age).max()?;
    let at = standing.position.cursors.get(name)?.serial;
    let (serial, passed) = derive::too_old(log, at, max_age, now());
    if passed > 0 {
        standing.advance(name, serial);
        let text = format!("{passed} changes of pipeline {} grew older than maxAge before they could be recorded", of.name);
        ctx.warn(of, name, "ChangesPassed", "Record", &text);
    }
    ctx.refused.retry_in(of, name)
}

/// A pipeline, for Events.
#[must_use]
pub fn regarding(of: &PipelineRef) -> ObjectReference {
    ObjectReference {
        api_version: Some(Pipeline::api_version(&()).into_owned()),
        kind: Some(Pipeline::kind(&()).into_owned()),
        namespace: Some(of.namespace.clone()),
        name: Some(of.name.clone()),
        uid: Some(of.uid.clone()),
        ..ObjectReference::default()
    }
}

/// The pipeline as deliveries name it.
#[must_use]
pub fn reference(pipeline: &Pipeline) -> PipelineRef {
    PipelineRef {
        namespace: pipeline.namespace().unwrap_or_default(),
        name: pipeline.name_any(),
        uid: pipeline.uid().unwrap_or_default(),
    }
}
