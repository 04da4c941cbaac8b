//! One pass over one pipeline: cursors → derive → record → advance → persist.
//!
//! In: the pipeline as the watch last brought it, and where the dispatcher stands with it in memory. Out: deliveries that are
//! recorded, and cursors that have moved; those are persisted at most once a second. After a crash a cursor may be a second
//! old: its changes are derived again, and the names of the deliveries find what is recorded already.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use thiserror::Error;

use super::cursors::{self, Applying, Position};
use super::persist::{self, PersistError, Persisted, Stored};
use super::refused::Refusal;
use super::{Context, derive};
use crate::api::delivery::PipelineRef;
use crate::api::pipeline::Dispatched;
use crate::api::target::targets;
use crate::api::{ChangeLog, Notification, Pipeline, now};
use crate::config::EffectiveNotification;
use crate::delivery::JournalError;
use crate::telemetry::metrics::{ApiWrite, WriteResult};

/// Cursors and times are persisted at most so often.
const PERSIST_EVERY: Duration = Duration::from_secs(1);

/// Why a pass ended early; it begins anew from what the API server holds.
#[derive(Debug, Error)]
pub enum PassError {
    /// The position could not be read or written.
    #[error("the position could not be kept")]
    Persist(#[from] PersistError),
    /// A live read was not possible.
    #[error("the API server could not be asked")]
    Api(#[source] Box<kube::Error>),
}

/// Where the dispatcher stands with one pipeline.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    position: Position,
    stored: Stored,
    dirty: Option<Instant>,
    /// By notification: what is recorded above a held cursor, as (lane, serial). It is not recorded again, even if a person has
    /// deleted it meanwhile, as one does who makes room under a quota.
    above: HashMap<String, HashSet<(String, i64)>>,
}

impl Standing {
    /// Takes over what the watch brings, unless it is older than our own last write.
    fn absorb(&mut self, pipeline: &Pipeline) {
        let version = persist::version(pipeline.metadata.resource_version.as_deref());
        if version <= self.stored.version && version != u64::MAX {
            return;
        }
        let dispatched = pipeline.status.as_ref().and_then(|s| s.dispatched.as_ref());
        let raw = dispatched.and_then(|d| serde_json::to_value(d).ok()).unwrap_or_default();
        if raw != self.stored.raw {
            // Not our doing: wiped by hand, restored, or another's write. What stands there counts.
            self.adopt(Stored { raw, version });
        }
        self.stored.version = version;
    }

    fn adopt(&mut self, stored: Stored) {
        let dispatched: Option<Dispatched> = serde_json::from_value(stored.raw.clone()).ok().flatten();
        self.position = dispatched.as_ref().map(Position::from).unwrap_or_default();
        self.dirty = None;
        self.stored = stored;
    }

    fn never_seen(&self) -> bool {
        self.stored.raw.is_null()
    }

    fn touch(&mut self) {
        self.dirty.get_or_insert_with(Instant::now);
    }

    /// Whether something is to be persisted.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.dirty.is_some()
    }
}

/// Goes over one pipeline.
pub async fn run(pipeline: &Pipeline, standing: &mut Standing, ctx: &Context) -> Result<Action, PassError> {
    standing.absorb(pipeline);
    let Some(log) = pipeline.status.as_ref().and_then(|s| s.log.as_ref()) else { return Ok(Action::await_change()) };
    let of = reference(pipeline);
    let notifications = ctx.deliveries.directory.notifications_in(&of.namespace);
    if !arrange(pipeline, &of, log, &notifications, standing, ctx).await? {
        return Ok(Action::requeue(Duration::from_millis(50)));
    }
    let again = take(pipeline, &of, log, &notifications, standing, ctx).await;
    let due = keep(&of, standing, ctx).await?;
    Ok(again.into_iter().chain(due).min().map_or_else(Action::await_change, Action::requeue))
}

/// Makes new cursors and persists them before anything is derived; drops those of notifications that are gone. `false`: what is
/// stored was not what was thought, and is now known.
async fn arrange(
    pipeline: &Pipeline,
    of: &PipelineRef,
    log: &ChangeLog,
    notifications: &BTreeMap<String, Arc<EffectiveNotification>>,
    standing: &mut Standing,
    ctx: &Context,
) -> Result<bool, PassError> {
    let labels = pipeline.labels();
    let applying: BTreeMap<_, _> = notifications
        .iter()
        .map(|(name, n)| {
            let applies = n.intake.as_ref().map_or(true, |intake| intake.selector.selects(labels));
            (name.clone(), Applying { uid: &n.uid, applies })
        })
        .collect();
    let mut plan = cursors::plan(&standing.position.cursors, standing.never_seen(), log, &applying);
    for name in &plan.suspects {
        if gone(ctx, &of.namespace, name).await? {
            plan.cursors.remove(name);
        }
    }
    if plan.cursors != standing.position.cursors {
        standing.position.cursors = plan.cursors;
        standing.touch();
    }
    if !plan.fresh {
        return Ok(true);
    }
    standing.touch();
    let serial = (!standing.never_seen()).then_some(log.serial);
    save(of, standing, serial, ctx).await
}

async fn gone(ctx: &Context, namespace: &str, name: &str) -> Result<bool, PassError> {
    let api: kube::Api<Notification> = kube::Api::namespaced(ctx.client.clone(), namespace);
    let call = tokio::time::timeout(Duration::from_secs(10), api.get_metadata_opt(name));
    let found = call.await.map_err(|_| PersistError::Timeout)?.map_err(|e| PassError::Api(Box::new(e)))?;
    Ok(found.is_none())
}

/// Takes the changes above each cursor: derives, records, advances. Gives the time after which a held cursor is tried again.
async fn take(
    pipeline: &Pipeline,
    of: &PipelineRef,
    log: &ChangeLog,
    notifications: &BTreeMap<String, Arc<EffectiveNotification>>,
    standing: &mut Standing,
    ctx: &Context,
) -> Option<Duration> {
    let infos = targets(&pipeline.spec, &ctx.cluster_name).into_iter().map(|t| (t.subject.clone(), t)).collect();
    let (mut held, mut work) = (Vec::new(), Vec::new());
    for cursor in standing.position.cursors.values().filter(|c| c.serial < log.serial) {
        let Some(notification) = notifications.get(&cursor.notification) else { continue };
        match &notification.intake {
            Ok(intake) if ctx.refused.may_try(of, &cursor.notification) => {
                let mut lanes = derive::lanes(&cursor.notification, &intake.triggers, log, cursor.serial, of, &infos);
                if let Some(above) = standing.above.get(&cursor.notification) {
                    lanes.iter_mut().for_each(|lane| lane.retain(|d| !above.contains(&(d.lane.clone(), d.serial))));
                }
                work.push((cursor.notification.clone(), lanes));
            }
            _ => held.push(cursor.notification.clone()),
        }
    }
    let flat: Vec<_> = work.iter().flat_map(|(_, lanes)| lanes.iter().cloned()).collect();
    let mut errors = ctx.deliveries.record(flat).await.into_iter();
    for (name, lanes) in work {
        let failed: Vec<_> = errors.by_ref().take(lanes.len()).collect();
        let Some((lowest, error)) = failed.iter().flatten().min_by_key(|(serial, _)| *serial) else {
            if ctx.refused.clear(of, &name) {
                ctx.deliveries.ledger.changed.wake((of.namespace.clone(), name.clone()));
            }
            standing.above.remove(&name);
            advance(standing, &name, log.serial);
            continue;
        };
        refuse(of, &name, error, ctx);
        let recorded = lanes.iter().zip(&failed).flat_map(|(lane, failed)| {
            let end = failed.as_ref().map_or(i64::MAX, |(serial, _)| *serial);
            lane.iter().filter(move |d| d.serial < end && d.serial > *lowest).map(|d| (d.lane.clone(), d.serial))
        });
        standing.above.entry(name.clone()).or_default().extend(recorded);
        advance(standing, &name, lowest.saturating_sub(1));
        held.push(name);
    }
    let waits: Vec<_> = held.iter().filter_map(|name| hold(of, name, log, notifications, standing, ctx)).collect();
    waits.into_iter().min()
}

fn advance(standing: &mut Standing, name: &str, serial: i64) {
    if let Some(cursor) = standing.position.cursors.get_mut(name)
        && cursor.serial < serial
    {
        cursor.serial = serial;
        standing.touch();
    }
}

/// A create was refused or could not be made: only this notification waits.
fn refuse(of: &PipelineRef, name: &str, error: &JournalError, ctx: &Context) {
    let detail = error.detail();
    tracing::warn!(pipeline = %of.name, namespace = %of.namespace, notification = %name, error = %detail, "a delivery could not be recorded; its notification's cursor is held");
    let refused = matches!(error, JournalError::Refused(_) | JournalError::Taken(_));
    ctx.refused.note(of, name, Refusal { refused, detail: detail.clone() });
    if refused {
        let text = format!("deliveries of pipeline {} cannot be recorded: {detail}", of.name);
        ctx.warn(&of.namespace, name, "RecordRefused", "Record", &text);
        ctx.deliveries.ledger.changed.wake((of.namespace.clone(), name.to_owned()));
    }
}

/// A held cursor passes what is older than `maxAge`, and says so. Gives when to try again.
fn hold(
    of: &PipelineRef,
    name: &str,
    log: &ChangeLog,
    notifications: &BTreeMap<String, Arc<EffectiveNotification>>,
    standing: &mut Standing,
    ctx: &Context,
) -> Option<Duration> {
    let notification = notifications.get(name)?;
    let at = standing.position.cursors.get(name)?.serial;
    let (serial, passed) = derive::too_old(log, at, notification.retry.max_age, now());
    if passed > 0 {
        advance(standing, name, serial);
        let text = format!("{passed} changes of pipeline {} grew older than maxAge before they could be recorded", of.name);
        ctx.warn(&of.namespace, name, "ChangesPassed", "Record", &text);
    }
    ctx.refused.retry_in(of, name)
}

/// Persists what has changed, if it is time. Gives how long it may wait otherwise.
async fn keep(of: &PipelineRef, standing: &mut Standing, ctx: &Context) -> Result<Option<Duration>, PassError> {
    gather(of, standing, ctx);
    let Some(since) = standing.dirty else { return Ok(None) };
    let left = PERSIST_EVERY.saturating_sub(since.elapsed());
    if !left.is_zero() {
        return Ok(Some(left));
    }
    let done = save(of, standing, None, ctx).await?;
    Ok((!done).then_some(Duration::from_millis(50)))
}

/// Takes over what was sent since; only subjects that the pipeline still has are kept.
pub fn gather(of: &PipelineRef, standing: &mut Standing, ctx: &Context) {
    let sent = ctx.deliveries.ledger.take_sent(&of.uid);
    if sent.is_empty() {
        return;
    }
    let facts = ctx.deliveries.directory.pipeline(&of.uid);
    standing.position.last_sent.extend(sent);
    standing.position.last_sent.retain(|subject, _| facts.as_ref().is_none_or(|f| f.subjects.contains_key(subject)));
    standing.touch();
}

/// Persists the whole position. `false`: something else was stored, and is now known.
pub async fn save(of: &PipelineRef, standing: &mut Standing, serial: Option<i64>, ctx: &Context) -> Result<bool, PassError> {
    let new = Dispatched::from(&standing.position);
    let count = |result| ctx.metrics.api_write(ApiWrite::Dispatched, result);
    match persist::write(&ctx.client, of, &standing.stored.raw, &new, serial).await {
        Ok(Persisted::Done(stored)) => {
            count(WriteResult::Ok);
            standing.stored = stored;
            standing.dirty = None;
            Ok(true)
        }
        Ok(Persisted::Gone) => {
            count(WriteResult::Conflict);
            standing.dirty = None;
            Ok(false)
        }
        Ok(Persisted::Stale) => {
            count(WriteResult::Conflict);
            reread(of, standing, &new, ctx).await?;
            Ok(false)
        }
        Err(error) => {
            count(WriteResult::Error);
            // It may have been done: nothing else is written before that is known.
            reread(of, standing, &new, ctx).await?;
            if standing.is_dirty() { Err(error.into()) } else { Ok(true) }
        }
    }
}

/// After a surprise: what stands there counts. If it is ours, the answer had only been lost.
async fn reread(of: &PipelineRef, standing: &mut Standing, ours: &Dispatched, ctx: &Context) -> Result<(), PassError> {
    let Some(stored) = persist::read(&ctx.client, of).await? else { return Ok(()) };
    if serde_json::to_value(ours).is_ok_and(|ours| ours == stored.raw) {
        standing.stored = stored;
        standing.dirty = None;
    } else if stored.raw == standing.stored.raw {
        standing.stored.version = stored.version;
    } else {
        standing.adopt(stored);
    }
    Ok(())
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
