//! The decision of a wait, after each state of the pipeline.
//!
//! In: a pipeline as a watch returns it, and the time. Out: the answer so far ([`Wait::step`]), and when to ask again without a new state
//! ([`Wait::again`]). Pure.
//!
//! What it cannot know:
//! - **When the environment came to run the revision.** Only the change log has this time, until all notifications have read the change and
//!   the status is written again. `lastTransitionTime` is no proof: it changes when a controller checks an object again, and when a Pod
//!   restarts. It does not change if one revision follows the other without an interruption. So with `since`, the change must still be in the
//!   log, or happen during the wait.
//! - **What happened between two states.** The log has it, unless changes were merged. Then a revision that was tried for a moment counts as
//!   never tried.
//! - **Whether a controller acts.** Without one, the status stays as it is.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use kube::ResourceExt as _;

use super::known::{self, Seen, View, cause};
use super::revision::{Requested, short};
use super::words::{self, answered, name, not_yet, span, utc};
use super::{Answer, Asked, RevisionError, WaitError};
use relaybook_api::pipeline::Environment;
use relaybook_api::values::refs::ClusterAppRef;
use relaybook_api::{Change, Pipeline, Settled, State, Status, Time};

/// A wait, and what it has seen so far.
#[derive(Debug)]
pub struct Wait {
    asked: Asked,
    begun: Option<Begun>,
    /// Serial of the log in the last state whose targets were known, or when the wait began. Later changes are new.
    serial: i64,
    /// Hashes that begin with the requested text.
    hashes: BTreeSet<String>,
    targets: HashMap<ClusterAppRef, Past>,
    tried: Tried,
    /// When the last target came to run the revision.
    came: Option<Time>,
    /// Serial of the log when all targets ran the revision. `None`: they do not.
    mark: Option<i64>,
}

/// What the first state shows.
#[derive(Clone, Debug)]
struct Begun {
    at: Time,
    uid: Option<String>,
    environment: String,
}

/// What was seen of a target.
#[derive(Debug)]
struct Past {
    settled: Settled,
    /// Whether it was seen without the revision, and not with the revision since then.
    is_behind: bool,
    /// Since when it has failed to run the revision, without an interruption.
    failing: Option<Time>,
}

/// Since when a target tries or runs the revision.
#[derive(Clone, Copy, Debug)]
enum Tried {
    /// That is not known yet.
    Unknown,
    /// No target tries it.
    No,
    /// Since before the wait.
    Before,
    /// Since this time.
    At(Time),
}

/// What a target tries or runs. Both a settled state and a state in a change show it.
struct Point<'a> {
    status: Status,
    revision: &'a str,
    current: Option<&'a str>,
    failed: bool,
}

impl Wait {
    /// Begins a wait.
    #[must_use]
    pub fn new(asked: Asked) -> Self {
        Self {
            asked,
            begun: None,
            serial: 0,
            hashes: BTreeSet::new(),
            targets: HashMap::new(),
            tried: Tried::Unknown,
            came: None,
            mark: None,
        }
    }

    /// Decides after the next state of the pipeline. The same state again, at a later time, counts as well.
    pub fn step(&mut self, pipeline: &Pipeline, now: Time) -> Result<Answer, WaitError> {
        let begun = self.begin(pipeline, now)?;
        let environment = self.environment(pipeline, &begun.environment)?;
        self.check(pipeline, &environment.name)?;
        let unknown = |why: String| Answer::NotYet { now: why.clone(), why };
        if let Some(why) = known::unprocessed(pipeline, &environment.name) {
            return Ok(unknown(why));
        }
        let targets = match known::targets(pipeline, environment, &self.asked.revision) {
            Ok(targets) => targets,
            Err(why) => return Ok(unknown(why)),
        };
        let left = self.left(pipeline, &environment.name, &targets, now);
        self.note(pipeline, &environment.name, &targets, now);
        if let Some(answer) = left.or_else(|| self.failed(&targets, now)) {
            return Ok(answer);
        }
        if !targets.iter().all(|seen| seen.view == View::Runs) {
            self.mark = None;
            let was_tried = matches!(self.tried, Tried::Before | Tried::At(_));
            return Ok(not_yet(&self.asked, pipeline, environment, &targets, was_tried));
        }
        let missing = self.not_since(environment, begun.at).or_else(|| self.not_notified(pipeline, environment));
        Ok(missing.unwrap_or_else(|| {
            let changed = targets.iter().filter_map(|seen| seen.target.last_transition_time).max();
            Answer::Runs { since: self.came, changed }
        }))
    }

    /// Returns the time after which to ask again without a new state. `None`: nothing changes without one.
    #[must_use]
    pub fn again(&self, now: Time) -> Option<Duration> {
        let failing = self.targets.values().filter_map(|past| past.failing);
        let left = failing.map(|since| self.asked.failed_for.saturating_sub(elapsed(since, now)));
        left.filter(|left| !left.is_zero()).min()
    }

    /// Returns an answer as one line.
    #[must_use]
    pub fn line(&self, answer: &Answer) -> String {
        format!("{}  {}", self.title(), answered(&self.asked, answer))
    }

    /// Returns the line for a wait whose time is over.
    #[must_use]
    pub fn over(&self, why: &str, timeout: Duration) -> String {
        format!("{}  not {} after {}: {why}", self.title(), self.asked.revision.shown(), span(timeout))
    }

    /// Returns the names of pipeline and environment.
    fn title(&self) -> String {
        let environment = self.begun.as_ref().map(|begun| &begun.environment).or(self.asked.environment.as_ref());
        let environment = environment.map_or_else(String::new, |environment| format!("/{}", name(environment)));
        format!("{}{environment}", name(&self.asked.pipeline.name))
    }

    /// Returns what the first state shows. A pipeline that is deleted does not come back.
    fn begin(&mut self, pipeline: &Pipeline, now: Time) -> Result<Begun, WaitError> {
        let deleted = || WaitError::Deleted(self.asked.pipeline.clone());
        if pipeline.metadata.deletion_timestamp.is_some() {
            return Err(deleted());
        }
        if let Some(begun) = &self.begun {
            return if begun.uid == pipeline.uid() { Ok(begun.clone()) } else { Err(deleted()) };
        }
        let last = || pipeline.spec.environments.last().map(|environment| environment.name.clone());
        let environment = self.asked.environment.clone().or_else(last).unwrap_or_default();
        let begun = Begun { at: now, uid: pipeline.uid(), environment };
        self.serial = serial(pipeline);
        self.begun = Some(begun.clone());
        Ok(begun)
    }

    /// Returns the environment of the spec.
    fn environment<'p>(&self, pipeline: &'p Pipeline, environment: &str) -> Result<&'p Environment, WaitError> {
        let all = &pipeline.spec.environments;
        let of = || self.asked.pipeline.clone();
        let Some(found) = all.iter().find(|known| known.name == environment) else {
            let known = all.iter().map(|known| name(&known.name)).collect::<Vec<_>>().join(", ");
            return Err(WaitError::NoEnvironment { pipeline: of(), environment: name(environment), known });
        };
        if found.targets.is_empty() && found.targets_from.is_empty() {
            return Err(WaitError::NoTarget { pipeline: of(), environment: name(environment) });
        }
        Ok(found)
    }

    /// Checks that the requested text names one revision.
    fn check(&mut self, pipeline: &Pipeline, environment: &str) -> Result<(), RevisionError> {
        let (own, all) = known::revisions(pipeline, environment);
        let requested = &self.asked.revision;
        self.hashes.extend(all.iter().flat_map(|revision| requested.hashes(revision)).map(str::to_owned));
        requested.check(&own, &all, &self.hashes)
    }

    /// Returns the answer if a target has tried or run the revision, and now tries or runs another one.
    fn left(&self, pipeline: &Pipeline, environment: &str, targets: &[Seen<'_>], now: Time) -> Option<Answer> {
        let mut changes = known::changes(pipeline, environment).filter(|(_, change)| change.serial > self.serial);
        let logged = changes.find_map(|(target, change)| {
            self.leaves(&name(target), &Point::of_state(&change.from), &Point::of_state(&change.to), now)
        });
        logged.or_else(|| {
            targets.iter().find_map(|seen| {
                let past = self.targets.get(&seen.target.cluster_app_ref)?;
                let settled = seen.target.settled.as_ref().filter(|settled| settled.reader == past.settled.reader)?;
                self.leaves(&seen.place, &Point::of_settled(&past.settled), &Point::of_settled(settled), now)
            })
        })
    }

    /// Returns the answer if a target leaves the revision. If it returns to what it ran before, and has failed in between, it was rolled back.
    fn leaves(&self, place: &str, from: &Point<'_>, to: &Point<'_>, now: Time) -> Option<Answer> {
        let requested = &self.asked.revision;
        if !(from.tries(requested) && to.tries_another(requested)) {
            return None;
        }
        let (target, by) = (place.to_owned(), short(to.revision));
        let has_failed = from.failed || from.status == Status::Failed;
        Some(if has_failed && from.current == Some(to.revision) {
            Answer::Failed { target, after: self.after(now), why: format!("it was rolled back to {by}") }
        } else {
            Answer::Replaced { target, by }
        })
    }

    /// Remembers what the targets do.
    fn note(&mut self, pipeline: &Pipeline, environment: &str, targets: &[Seen<'_>], now: Time) {
        let requested = &self.asked.revision;
        let arrived = known::changes(pipeline, environment).map(|(_, change)| change);
        let arrived: Vec<_> = arrived.filter(|change| arrives(requested, change)).collect();
        let is_logged = arrived.iter().any(|change| change.serial > self.serial);
        let (mut has_come, mut all) = (false, HashMap::new());
        for seen in targets {
            let Some(settled) = &seen.target.settled else { continue };
            let key = &seen.target.cluster_app_ref;
            let past = self.targets.remove(key).filter(|past| past.settled.reader == settled.reader);
            let was_behind = past.as_ref().is_some_and(|past| past.is_behind);
            let runs = settled.status == Status::Current && requested.matches(&settled.revision);
            has_come |= was_behind && seen.view == View::Runs;
            let is_behind = seen.view != View::Runs && (was_behind || !runs);
            let failing = past.and_then(|past| past.failing).unwrap_or(now);
            let failing = (seen.view == View::Failed).then_some(failing);
            all.insert(key.clone(), Past { settled: settled.clone(), is_behind, failing });
        }
        let newest = arrived.iter().map(|change| change.time).max();
        let seen_now = (has_come && !is_logged).then_some(now);
        self.came = self.came.max(newest).max(seen_now);
        self.targets = all;
        self.serial = serial(pipeline);
        let is_tried = targets.iter().any(|seen| matches!(seen.view, View::Runs | View::Failed | View::Tries));
        self.tried = match self.tried {
            Tried::Unknown if is_tried => Tried::Before,
            Tried::No if is_tried => Tried::At(now),
            Tried::Unknown => Tried::No,
            known => known,
        };
    }

    /// Returns how long the revision was tried until this time.
    fn after(&self, until: Time) -> Option<Duration> {
        match self.tried {
            Tried::At(since) => Some(elapsed(since, until)),
            Tried::Unknown | Tried::No | Tried::Before => None,
        }
    }

    /// Returns the answer if a target has been failing for long enough.
    fn failed(&self, targets: &[Seen<'_>], now: Time) -> Option<Answer> {
        let failing = |seen: &Seen<'_>| self.targets.get(&seen.target.cluster_app_ref)?.failing;
        let is_over = |since: &Time| elapsed(*since, now) >= self.asked.failed_for;
        targets.iter().find_map(|seen| {
            let since = failing(seen).filter(is_over)?;
            Some(Answer::Failed { target: seen.place.clone(), after: self.after(since), why: cause(seen.target) })
        })
    }

    /// Returns the answer if nothing shows that the environment came to run the revision within the requested time.
    fn not_since(&self, environment: &Environment, begun: Time) -> Option<Answer> {
        let limit = self.asked.since?;
        let (name, revision) = (name(&environment.name), self.asked.revision.shown());
        let why = match self.came {
            Some(came) if elapsed(came, begun) <= limit => return None,
            Some(came) => {
                format!("{name} runs {revision} since {}, which is too early for --since {}", utc(came), span(limit))
            }
            None => format!(
                "{name} runs {revision}, but it is not known since when, because the change is not in the log any more; --since is {}",
                span(limit)
            ),
        };
        Some(Answer::NotYet { now: format!("runs {revision} from before"), why })
    }

    /// Returns the answer if a notification has not read all changes up to now. If no notification applies, there is nothing to wait for.
    fn not_notified(&mut self, pipeline: &Pipeline, environment: &Environment) -> Option<Answer> {
        if !self.asked.notified {
            return None;
        }
        let mark = *self.mark.get_or_insert(serial(pipeline));
        let cursors = pipeline.status.iter().filter_map(|status| status.dispatched.as_ref()).flat_map(|d| &d.cursors);
        let behind = cursors.filter(|cursor| cursor.serial < mark).map(|cursor| name(&cursor.notification));
        let behind = words::listed(behind)?;
        let (name, revision) = (name(&environment.name), self.asked.revision.shown());
        let now = format!("runs {revision}; waiting for notifications: {behind}");
        Some(Answer::NotYet {
            now,
            why: format!("{name} runs {revision}, but these notifications have not read the change: {behind}"),
        })
    }
}

impl<'a> Point<'a> {
    fn of_state(state: &'a State) -> Self {
        let State { status, revision, current, failed, .. } = state;
        Self { status: *status, revision, current: current.as_deref(), failed: *failed }
    }

    fn of_settled(settled: &'a Settled) -> Self {
        let Settled { status, revision, current, failed, .. } = settled;
        Self { status: *status, revision, current: current.as_deref(), failed: *failed }
    }

    /// Whether it tries, runs or has failed to run the revision.
    fn tries(&self, requested: &Requested) -> bool {
        self.is_about_revision() && requested.matches(self.revision)
    }

    /// Whether it is about another revision. Before the first attempt, the revision is empty.
    fn tries_another(&self, requested: &Requested) -> bool {
        self.is_about_revision() && !self.revision.is_empty() && !requested.matches(self.revision)
    }

    fn is_about_revision(&self) -> bool {
        matches!(self.status, Status::Current | Status::InProgress | Status::Failed)
    }
}

/// Whether a target comes to run the revision with this change. A change of drift or of the configuration alone does not count.
fn arrives(requested: &Requested, change: &Change) -> bool {
    let Change { from, to, .. } = change;
    let ran = from.status == Status::Current && from.revision == to.revision;
    to.status == Status::Current && requested.matches(&to.revision) && !ran
}

/// Returns the serial of the newest change.
fn serial(pipeline: &Pipeline) -> i64 {
    pipeline.status.as_ref().and_then(|status| status.log.as_ref()).map_or(0, |log| log.serial)
}

/// Returns the time between the two. Zero if the first one is later.
fn elapsed(since: Time, until: Time) -> Duration {
    Duration::try_from(until.duration_since(since)).unwrap_or_default()
}
