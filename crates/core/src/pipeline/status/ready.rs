//! Pure: the information for users about a pipeline as a whole, which is the condition `Ready` and its Events.
//!
//! In: the reading of each target, and the resulting statuses. Out: the condition, and a [`Notice`] for each relevant change of the
//! condition.

use std::collections::HashMap;

use relaybook_text::cut;

use super::target::application;
use super::{Gathered, Observed, has_left};
use crate::changelog::{MAX_MESSAGE, is_cut_of};
use crate::reading::{Now, Reason};
use relaybook_api::conditions;
use relaybook_api::conditions::{Condition, ConditionStatus, HOOKS_READY, READY};
use relaybook_api::pipeline::target::TargetInfo;
use relaybook_api::pipeline::{EnvironmentStatus, TargetStatus};
use relaybook_api::{Pipeline, PipelineStatus, Status, Time};

/// Maximum number of targets that a condition names because they cannot be observed.
const MAX_NAMED: usize = 5;
/// Maximum number of missing targets that a condition describes.
const MAX_DESCRIBED: usize = 3;
/// How the message of the condition ends that an entry of `targetsFrom` contains no object.
const NOTHING: &str = " selects nothing";
/// The reason of `Ready=False` if an application object does not exist.
const NOT_FOUND: &str = "TargetNotFound";

/// Sets the message of each target whose object does not exist. The message names the missing object and gives a hint on similar objects.
/// `similar`: the hints by the name of a target.
pub fn name_missing(
    environments: &mut [EnvironmentStatus],
    before: &[EnvironmentStatus],
    observed: &[Observed],
    similar: &HashMap<String, String>,
) {
    for (target, _) in observed.iter().filter(|(_, reading)| is_missing(&reading.now)) {
        let app = application(target);
        let is = |t: &&TargetStatus| t.cluster_app_ref == app && t.status == Status::NotFound;
        let of = |environments: &[EnvironmentStatus]| {
            let ours = environments.iter().filter(|e| e.name == target.environment);
            ours.flat_map(|e| &e.targets).find(is).map(|t| t.message.clone())
        };
        let words = missing(target, similar.get(&target.name).map(String::as_str));
        // The message was shortened because the status was full. Free space alone is no reason for a write.
        let words = of(before).filter(|before| is_cut_of(before, &words)).unwrap_or(words);
        let ours = environments.iter_mut().filter(|e| e.name == target.environment);
        if let Some(shown) = ours.flat_map(|e| &mut e.targets).find(|t| is(&&**t)) {
            shown.message = words;
        }
    }
}

/// Whether a complete list does not contain the object.
pub fn is_missing(now: &Now) -> bool {
    matches!(now, Now::Known(obs) if obs.status == Status::NotFound)
}

fn missing(target: &TargetInfo, similar: Option<&str>) -> String {
    let TargetInfo { app, namespace, .. } = target;
    let similar = similar.map_or_else(String::new, |similar| format!("; {similar}"));
    let words = format!("{} {} does not exist in namespace {namespace}{similar}", app.kind, app.name);
    cut(&words, MAX_MESSAGE).into_owned()
}

/// Sets the condition `Ready`. It is `True` if the object of every target exists and can be observed.
pub fn set_ready_from_targets(status: &mut PipelineStatus, gathered: &Gathered, generation: Option<i64>, now: Time) {
    let shown = status.environments.iter().flat_map(|e| &e.targets);
    let all = gathered.targets.iter().zip(shown).filter(|((target, reading), _)| !has_left(target, reading));
    let all: Vec<(&str, &TargetStatus)> = all.map(|((target, _), shown)| (target.name.as_str(), shown)).collect();
    let those = |is: Status| all.iter().copied().filter(|(_, t)| t.status == is).collect::<Vec<_>>();
    let (unknown, missing) = (those(Status::Unknown), those(Status::NotFound));
    let problems = gathered.problems.iter().map(|(_, message)| message.clone());
    let targets = [not_observed(&unknown), not_found(&missing)].into_iter().flatten();
    let parts: Vec<String> = problems.chain(targets).collect();
    let (is, reason) = match unknown.first() {
        _ if !gathered.problems.is_empty() => (ConditionStatus::False, gathered.problems[0].0.clone()),
        Some((_, first)) if first.reason.is_empty() => (ConditionStatus::False, "Unknown".to_owned()),
        Some((_, first)) => (ConditionStatus::False, first.reason.clone()),
        None if missing.is_empty() => (ConditionStatus::True, "Observed".to_owned()),
        None => (ConditionStatus::False, NOT_FOUND.to_owned()),
    };
    let message = if parts.is_empty() {
        let ready = all.iter().filter(|(_, t)| t.ready).count();
        let found = format!("{0} of {0} targets found, {ready} ready", all.len());
        let empty = gathered.empty.iter().map(|entry| format!("{entry}{NOTHING}"));
        cut(&std::iter::once(found).chain(empty).collect::<Vec<_>>().join("; "), MAX_MESSAGE).into_owned()
    } else {
        cut(&parts.join("; "), MAX_MESSAGE).into_owned()
    };
    set_ready(status, generation, is, &reason, &message, now);
}

fn not_observed(unknown: &[(&str, &TargetStatus)]) -> Option<String> {
    let (_, first) = unknown.first()?;
    let names: Vec<&str> = unknown.iter().map(|(name, _)| *name).take(MAX_NAMED).collect();
    Some(format!("cannot observe {}{}: {}", names.join(", "), and_more(unknown.len() - names.len()), first.message))
}

fn not_found(missing: &[(&str, &TargetStatus)]) -> Option<String> {
    let described = missing.iter().take(MAX_DESCRIBED).map(|(name, target)| format!("target {name}: {}", target.message));
    let described: Vec<String> = described.collect();
    (!described.is_empty()).then(|| format!("{}{}", described.join("; "), and_more(missing.len() - described.len())))
}

fn and_more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" and {count} more") }
}

/// Sets `Ready`.
pub fn set_ready(
    status: &mut PipelineStatus,
    generation: Option<i64>,
    is: ConditionStatus,
    reason: &str,
    message: &str,
    now: Time,
) {
    conditions::set(&mut status.conditions, READY, is, reason, message, generation, now);
}

/// An Event about a pipeline as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether it is a warning that needs attention.
    pub warning: bool,
    /// Machine-readable reason.
    pub reason: String,
    /// Human-readable text.
    pub note: String,
}

/// The state of a pipeline as a whole that was announced, or that needs no announcement.
#[derive(Debug, Default)]
pub struct Announced {
    /// Whether the pipeline was reconciled before. The status at the first reconcile was announced by the process that wrote it.
    seen: bool,
    /// The last condition `Ready`.
    ready: Option<Condition>,
    /// The entries of `targetsFrom` that selected nothing.
    empty: Vec<String>,
    /// Number of dropped changes.
    dropped: i64,
    /// The last condition `HooksReady`.
    hooks: Option<Condition>,
}

impl Announced {
    /// Returns the notices for everything that is new since the last call. `live` is the object from the API server.
    pub fn new_notices(&mut self, live: &Pipeline) -> Vec<Notice> {
        let status = live.status.as_ref();
        let ready = status.and_then(|s| conditions::get(&s.conditions, READY)).cloned();
        let dropped = status.and_then(|s| s.dropped).map_or(0, |dropped| dropped.count);
        let lost = dropped.saturating_sub(std::mem::replace(&mut self.dropped, dropped));
        let first = !std::mem::replace(&mut self.seen, true);
        let news = ready.as_ref().filter(|_| !first);
        let notice = news.and_then(|now| notice_for(self.ready.as_ref(), now));
        // Another trouble hides which entries select nothing.
        let is_true = |ready: &&Condition| ready.status == ConditionStatus::True;
        let empty = ready.as_ref().filter(is_true).and_then(|now| self.nothing_selected(now)).filter(|_| !first);
        // A condition that reports only an unfilled cache does not replace the condition before it.
        if first || !ready.as_ref().is_some_and(is_passing) {
            self.ready = ready;
        }
        let hooks = status.and_then(|s| conditions::get(&s.conditions, HOOKS_READY)).cloned();
        let hooks = self.hooks_changed(hooks).filter(|_| !first);
        notice.into_iter().chain(empty).chain(hooks).chain((!first && lost > 0).then(|| crowded(lost))).collect()
    }

    /// Returns the notice for the keys of hooks, if something else is wrong with them now.
    fn hooks_changed(&mut self, now: Option<Condition>) -> Option<Notice> {
        let before = std::mem::replace(&mut self.hooks, now);
        let now = self.hooks.as_ref()?;
        let is_same = before.is_some_and(|before| before.message == now.message);
        (!is_same).then(|| Notice { warning: true, reason: "HooksNotReady".to_owned(), note: now.message.clone() })
    }

    /// Returns the notice for entries that select nothing now and did not before. It is no warning: the objects may be created later.
    fn nothing_selected(&mut self, now: &Condition) -> Option<Notice> {
        let empty: Vec<String> = now.message.split("; ").filter(|part| part.ends_with(NOTHING)).map(str::to_owned).collect();
        let before = std::mem::replace(&mut self.empty, empty);
        let new: Vec<&str> = self.empty.iter().filter(|part| !before.contains(part)).map(String::as_str).collect();
        (!new.is_empty()).then(|| Notice { warning: false, reason: "NothingSelected".to_owned(), note: new.join("; ") })
    }
}

/// Returns the notice for a condition, compared with the condition before it. `None`: nothing to announce.
fn notice_for(before: Option<&Condition>, now: &Condition) -> Option<Notice> {
    let is_trouble = |c: &&Condition| c.status == ConditionStatus::False && !is_passing(c);
    let before = before.filter(is_trouble);
    let notice = |warning| Notice { warning, reason: now.reason.clone(), note: now.message.clone() };
    if now.status == ConditionStatus::True {
        return before.map(|_| notice(false));
    }
    let same = |before: &Condition| {
        let edited = before.observed_generation != now.observed_generation && before.message != now.message;
        before.reason == now.reason && !edited
    };
    (is_trouble(&now) && !before.is_some_and(same)).then(|| notice(true))
}

/// Whether a condition reports only that a cache is not filled yet. Such a condition is temporary.
fn is_passing(condition: &Condition) -> bool {
    condition.status == ConditionStatus::False && condition.reason == Reason::CacheNotSynced.as_str()
}

fn crowded(lost: i64) -> Notice {
    let note = format!(
        "{lost} changes were dropped because the status is full; notifications that had not read them will not send them"
    );
    Notice { warning: true, reason: "ChangesDropped".to_owned(), note }
}

#[cfg(test)]
mod tests;
