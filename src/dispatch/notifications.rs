//! Notifications: understood when they change, and told what became of them.
//!
//! In: watch events, figures, Secrets and ConfigMaps that changed. Out: the directory's entries, which of those are watched, and
//! `Notification.status`, written at once when people wait for it, within a second when a condition has
//! changed or nothing had for a while, and while only figures change, every five.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::controller::Action;
use kube::runtime::watcher::Event;
use kube::{Resource as _, ResourceExt as _};

use super::Context;
use super::by_uid::ByUid;
use super::config::globals::{self, Held};
use super::follow::Followed;
use super::status::figures::{self, Known};
use super::status::troubles::{Wrong, all_lack_commits, defined_wrong, lacks_commit};
use crate::api::conditions::Condition;
use crate::api::notification::credentials::SecretName;
use crate::api::values::refs::{ConfigMapKey, ObjectName};
use crate::api::{self, Notification, NotificationStatus, Time, now};
use crate::config::{Edited, EffectiveNotification, Global, PipelineSelector};
use crate::outbox::send_gate::index::OfTarget;
use crate::outbox::{PipelineFacts, Scope};
use crate::report::status::{self, StatusError};
use crate::telemetry::metrics::Watch;
use crate::webhook::NotSent;

/// After a pause, figures are written when they have been out of date for so long.
const WRITE_AFTER: Duration = Duration::from_secs(1);
/// While only they change, and all the time, at most so often: with many notifications it would be a noticeable part of the cost.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// What was last written of each status, so that a copy that lags is not taken for the truth, and when it was first out of date.
#[derive(Debug, Default)]
pub struct Written(ByUid<Last>);

#[derive(Clone, Debug, Default)]
struct Last {
    version: u64,
    status: NotificationStatus,
    stale_since: Option<Instant>,
    written: Option<Instant>,
}

impl Last {
    /// How long `new` may still wait, when the first difference came up at `since`.
    fn left(&self, new: &NotificationStatus, since: Instant, now: Instant) -> Duration {
        let soon = since + WRITE_AFTER;
        let said = |status: &NotificationStatus| -> Vec<_> {
            let said = status.conditions.iter().cloned().map(|c| Condition { message: String::new(), ..c });
            said.collect()
        };
        // What a message counts is a figure, too.
        let only_figures = said(&self.status) == said(new);
        let due = self.written.filter(|_| only_figures).map_or(soon, |at| soon.max(at + WRITE_EVERY));
        due.saturating_duration_since(now)
    }
}

impl Followed for Notification {
    const WHAT: &'static str = "notifications";
    const WATCH: Watch = Watch::Notifications;

    async fn absorb(ctx: &Context, event: &Event<Self>) {
        match event {
            Event::Apply(n) | Event::InitApply(n) => {
                let (namespace, name) = place(n);
                if ctx.understood.understand(ctx, n) {
                    ctx.layers.rebase(ctx, &namespace, &name);
                    // Within a list, all that is wanted is asked for once, at its end.
                    if matches!(event, Event::Apply(_)) {
                        set_wanted(ctx);
                    }
                    look(ctx, &namespace, &name).await;
                }
            }
            Event::Delete(n) => {
                let (namespace, name) = place(n);
                ctx.written.forget(&n.uid().unwrap_or_default());
                if ctx.understood.forget(ctx, &namespace, &name) {
                    ctx.layers.rebase(ctx, &namespace, &name);
                    set_wanted(ctx);
                    look(ctx, &namespace, &name).await;
                }
            }
            Event::Init | Event::InitDone => {}
        }
    }

    async fn sweep(ctx: &Context, namespace: Option<&str>, there: &[Arc<Self>]) {
        let there: BTreeSet<_> = there.iter().map(|n| place(n)).collect();
        for (ns, name) in ctx.deliveries.directory.notification_names() {
            let ours = namespace.is_none_or(|n| n == ns);
            if ours && !there.contains(&(ns.clone(), name.clone())) && ctx.understood.forget(ctx, &ns, &name) {
                ctx.layers.rebase(ctx, &ns, &name);
                look(ctx, &ns, &name).await;
            }
        }
        set_wanted(ctx);
    }
}

fn place(notification: &Notification) -> (String, String) {
    (notification.namespace().unwrap_or_default(), notification.name_any())
}

/// A ConfigMap has changed, or is known now: whoever refers to it is understood again.
pub async fn config_map_changed(ctx: &Context, config_map: &ObjectName) {
    let everywhere: BTreeSet<_> = ctx.globals.read_again(ctx, config_map).into_iter().collect();
    let those = ctx.understood.read_again(ctx, config_map);
    for (namespace, name) in &those {
        ctx.layers.rebase(ctx, namespace, name);
    }
    let mut layered = ctx.layers.read_again(ctx, config_map);
    // Where a pipeline speaks of some targets only, the others have what lies beneath.
    layered.extend(ctx.layers.rebase_all(ctx, &Edited::Names(everywhere.clone())));
    if !those.is_empty() || !layered.is_empty() || !everywhere.is_empty() {
        set_wanted(ctx);
    }
    for (namespace, name) in those {
        look(ctx, &namespace, &name).await;
        ctx.wake_notification(&namespace, &name);
    }
    look_everywhere(ctx, everywhere).await;
    look_at_open_layers(ctx, layered).await;
}

/// The global configuration has changed from what was held `before`: what lies over it is understood again.
pub(super) async fn global_changed(ctx: &Context, before: &Held, edited: &Edited) {
    if *edited == Edited::Names(BTreeSet::new()) {
        return;
    }
    let places = ctx.understood.rebase(ctx, edited);
    let layered = ctx.layers.rebase_all(ctx, edited);
    set_wanted(ctx);
    for (namespace, name) in places {
        ctx.wake_notification(&namespace, &name);
    }
    match edited {
        Edited::Names(names) => {
            wake_meant(ctx, &before.global(), names);
            look_everywhere(ctx, names.clone()).await;
        }
        Edited::Everything => {
            ctx.wake_pipelines(|_| true);
            // Read for the first time, it is no news: what waits for its next attempt waits on.
            let first = before.in_force.is_none() && before.problem.is_none();
            ctx.deliveries.look(if first { Scope::All } else { Scope::Meanings }).await;
        }
    }
    look_at_open_layers(ctx, layered).await;
}

/// Has everything looked at that cluster-wide notifications of these names decide.
async fn look_everywhere(ctx: &Context, names: BTreeSet<String>) {
    if names.is_empty() {
        return;
    }
    wake_meant(ctx, &ctx.globals.held().global(), &names);
    ctx.deliveries.look(Scope::Names(names)).await;
}

/// Has the pipelines looked at for which any cluster-wide notification of these names is.
fn wake_meant(ctx: &Context, global: &Global, names: &BTreeSet<String>) {
    let reaches: Vec<_> = names.iter().filter_map(|name| global.get(name)).map(|everywhere| &everywhere.reach).collect();
    ctx.wake_pipelines(|p| reaches.iter().any(|reach| reach.selects(&p.namespace, &p.labels)));
}

/// Has everything looked at that the layers of these pipelines decide, which are to be folded. That is no reason to try again what has
/// failed: once they are folded, it may be one.
pub(super) async fn look_at_open_layers(ctx: &Context, pipelines: Vec<(String, ObjectName)>) {
    look_at_those(ctx, pipelines, Scope::Pipeline).await;
}

/// Has everything looked at that the layers of these pipelines decide.
pub(super) async fn look_at_layers(ctx: &Context, pipelines: Vec<(String, ObjectName)>) {
    look_at_those(ctx, pipelines, Scope::Layers).await;
}

async fn look_at_those(ctx: &Context, pipelines: Vec<(String, ObjectName)>, scope: fn(String) -> Scope) {
    for (uid, place) in pipelines {
        ctx.wake_pipeline(&place.namespace, &place.name);
        for name in ctx.deliveries.directory.names_in(&place.namespace) {
            ctx.wake_notification(&place.namespace, &name);
        }
        ctx.deliveries.look(scope(uid)).await;
    }
}

/// Watches the ConfigMaps and Secrets that notifications need, with the layers over them, and no others.
pub(super) fn set_wanted(ctx: &Context) {
    let all = || ctx.deliveries.directory.all().into_iter().chain(ctx.layers.former()).collect::<Vec<_>>();
    ctx.config_maps.set_wanted(|| all().iter().flat_map(|n| &n.config_maps).map(ConfigMapKey::object).collect());
    ctx.secrets.set_wanted(|| {
        let all = all();
        let sending = all.iter().filter_map(|n| n.sending.as_ref().ok());
        sending.flat_map(crate::config::Sending::secrets).map(|needed| needed.secret()).collect()
    });
}

/// Has everything looked at that a notification decides.
async fn look(ctx: &Context, namespace: &str, name: &str) {
    for pipeline in ctx.deliveries.directory.pipelines_in(namespace) {
        ctx.wake_pipeline(namespace, &pipeline.name);
    }
    ctx.deliveries.look(Scope::Notification(namespace.to_owned(), name.to_owned())).await;
}

/// A Secret has changed: whoever refers to it is looked at again.
pub async fn secret_changed(ctx: &Context, secret: &SecretName) {
    let refers = |n: &EffectiveNotification| {
        n.sending.as_ref().is_ok_and(|s| s.secrets().iter().any(|needed| needed.secret() == *secret))
    };
    for (namespace, name) in ctx.deliveries.directory.names(refers) {
        ctx.wake_notification(&namespace, &name);
        ctx.deliveries.look(Scope::Notification(namespace, name)).await;
    }
    look_everywhere(ctx, ctx.deliveries.directory.names_everywhere(refers).into_iter().collect()).await;
    look_at_layers(ctx, ctx.layers.with(refers)).await;
}

impl Written {
    fn last(&self, notification: &Notification) -> Last {
        let uid = notification.uid().unwrap_or_default();
        let known = self.0.get(&uid).unwrap_or_default();
        let version = api::version(notification.metadata.resource_version.as_deref());
        if version < known.version {
            return known;
        }
        Last { version, status: notification.status.clone().unwrap_or_default(), ..known }
    }

    fn put(&self, uid: &str, last: Last) {
        self.0.put(uid, last);
    }

    /// Drops those of notifications that are gone; gives how many are left.
    pub(super) fn tidy(&self, is_there: impl Fn(&str) -> bool) -> usize {
        self.0.tidy(is_there)
    }

    fn forget(&self, uid: &str) {
        self.0.take(uid);
    }
}

/// Brings the status of one notification up to date: figures not at once, unless it is the last time.
pub async fn tell(notification: &Notification, ctx: &Context, last_time: bool) -> Result<Action, StatusError> {
    let (namespace, name) = place(notification);
    let mut pipelines = ctx.deliveries.directory.pipelines_in(&namespace);
    let selector = PipelineSelector::parse(notification.spec.pipeline_selector.as_ref());
    pipelines.retain(|p| selector.as_ref().is_ok_and(|s| s.selects(&p.labels)));
    let Some((based, targets)) = ctx.deliveries.directory.applied((&namespace, &name), &pipelines) else {
        return Ok(Action::await_change());
    };
    // As it is over a cluster-wide one, unless it stands alone wherever it stands.
    let stands = based.all().find(|n| targets.iter().any(|(target, _)| Arc::ptr_eq(target, n)));
    let Some(effective) = stands.or_else(|| based.all().next()) else { return Ok(Action::await_change()) };
    // The watch of its ConfigMap will say so in a moment, and this is looked at again.
    if effective.sending.as_ref().is_err_and(crate::config::Problem::is_unknown) {
        return Ok(Action::await_change());
    }
    let uid = notification.uid().unwrap_or_default();
    let mut last = ctx.written.last(notification);
    let applied = AppliesTo { pipelines: &pipelines, targets: &targets, stands: targets.is_empty() || stands.is_some() };
    let new = compute(ctx, notification, effective, &applied, &last.status);
    if new == last.status {
        last.stale_since = None;
        ctx.written.put(&uid, last);
        return Ok(Action::await_change());
    }
    let since = *last.stale_since.get_or_insert_with(Instant::now);
    let left = last.left(&new, since, Instant::now());
    if !left.is_zero() && !last_time && !figures::urgent(&last.status, &new) {
        ctx.written.put(&uid, last);
        return Ok(Action::requeue(left));
    }
    let version = status::write(&ctx.client, &ctx.metrics, notification, &new).await?;
    say(ctx, notification, &last.status, &new);
    if let Some(version) = version {
        let version = api::version(Some(&version));
        ctx.written.put(&uid, Last { version, status: new, stale_since: None, written: Some(Instant::now()) });
    }
    Ok(Action::await_change())
}

/// What its Secrets lack. Not known yet is not missing: the watch will say so in a moment, and this is looked at again.
pub(super) fn missing_of(ctx: &Context, effective: &EffectiveNotification) -> Option<Wrong> {
    let missing = secrets_of(ctx, effective).err().filter(|e| !matches!(e, NotSent::SecretUnknown(_)))?;
    let unreadable = matches!(missing, NotSent::SecretUnreadable(_));
    Some((if unreadable { "SecretUnreadable" } else { "SecretMissing" }, missing.to_string()))
}

fn secrets_of(ctx: &Context, effective: &EffectiveNotification) -> Result<(), NotSent> {
    let keys = effective.sending.as_ref().map(crate::config::Sending::secrets).unwrap_or_default();
    ctx.secrets.secrets().check(&keys)
}

/// What a notification applies to.
struct AppliesTo<'a> {
    pipelines: &'a [Arc<PipelineFacts>],
    /// What holds for each target.
    targets: &'a [OfTarget],
    /// Whether it stands for some target as it is, or there is none.
    stands: bool,
}

fn compute(
    ctx: &Context,
    notification: &Notification,
    effective: &EffectiveNotification,
    applied: &AppliesTo<'_>,
    old: &NotificationStatus,
) -> NotificationStatus {
    let (namespace, name) = place(notification);
    let unfit = |(n, commitless): &OfTarget| *commitless && lacks_commit(n).is_some();
    let is_wrong =
        |target: &OfTarget| unfit(target) || defined_wrong(&target.0).is_some() || missing_of(ctx, &target.0).is_some();
    let all_unfit = !applied.targets.is_empty() && applied.targets.iter().all(unfit);
    let missing = missing_of(ctx, effective).or_else(|| all_unfit.then(all_lack_commits));
    let unread = secrets_of(ctx, effective).err().filter(|e| matches!(e, NotSent::SecretUnknown(_))).map(|e| e.to_string());
    let refused = ctx.refused.of(&namespace, &name);
    let global = globals::concern(ctx, &namespace, &name);
    let figures = ctx.deliveries.ledger.figures(&(namespace.clone(), name.clone()));
    let is_parked = !figures.given_up.is_empty() || old.last_parked_time.is_some();
    let known = Known {
        name: &name,
        generation: notification.metadata.generation,
        effective,
        figures: &figures,
        pipelines: applied.pipelines,
        stands: applied.stands,
        not_ready: applied.targets.iter().filter(|target| is_wrong(target)).count(),
        missing: missing.as_ref().map(|(reason, words)| (*reason, words.as_str())),
        unread: unread.as_deref(),
        refused: refused.as_ref().map(|(pipeline, refusal)| (pipeline.as_str(), refusal)),
        global: global.as_deref(),
        created: notification.metadata.creation_timestamp.as_ref().map(|time| time.0),
        seen: ctx.understood.since(&namespace, &name),
        edited: if is_parked { edited(ctx, applied.targets, effective) } else { None },
    };
    figures::status(old, &known, now())
}

/// When this process last saw a Secret or ConfigMap change that is named by what is sent.
fn edited(ctx: &Context, targets: &[OfTarget], effective: &EffectiveNotification) -> Option<Time> {
    let all = || targets.iter().map(|(target, _)| &**target).chain([effective]);
    let secrets = all().filter_map(|n| n.sending.as_ref().ok()).flat_map(crate::config::Sending::secrets);
    let secrets: Vec<_> = secrets.collect();
    ctx.secrets.secrets().edited(&secrets).max(ctx.config_maps.edited(all().flat_map(|n| &n.config_maps)))
}

/// Says in Events what the new status is worth.
fn say(ctx: &Context, notification: &Notification, old: &NotificationStatus, new: &NotificationStatus) {
    for figures::Said { warning, action, reason, note } in figures::events(old, new) {
        let regarding = notification.object_ref(&());
        if warning {
            ctx.events.warn(regarding, reason, action, note);
        } else {
            ctx.events.inform(regarding, reason, action, note);
        }
    }
}

/// A reference for Events about a notification that is known by name; to the ConfigMap if it is a cluster-wide one.
#[must_use]
pub fn object_reference(ctx: &Context, namespace: &str, name: &str) -> Option<ObjectReference> {
    match ctx.understood.get(namespace, name) {
        Some(notification) => Some(notification.object_ref(&())),
        None => ctx.globals.held().global().get(name).map(|_| ctx.globals.reference(None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conditions::{ConditionStatus, DELIVERING, set};

    #[test]
    fn conditions_are_written_soon_and_figures_when_it_is_worth_it() {
        let now = Instant::now();
        let (old, counted) =
            (NotificationStatus::default(), NotificationStatus { pending: 1, ..NotificationStatus::default() });
        let mut stuck = counted.clone();
        set(&mut stuck.conditions, DELIVERING, ConditionStatus::False, "R", "m", None, api::now());
        let last = |written| Last { status: old.clone(), written, ..Last::default() };
        for (what, written, new, seconds) in [
            ("after a pause", None, &counted, 1),
            ("figures", Some(now), &counted, 5),
            ("a condition", Some(now), &stuck, 1),
        ] {
            assert_eq!(last(written).left(new, now, now), Duration::from_secs(seconds), "{what}");
        }
        assert_eq!(
            last(Some(now)).left(&counted, now + Duration::from_secs(9), now + Duration::from_secs(11)),
            Duration::ZERO
        );
    }
}
