//! The texts of a wait: what happens, and why it is not enough. Names and messages come from clusters, so they are escaped and bounded.
//!
//! In: targets and answers. Out: texts of one line. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use super::known::{self, Seen, View, cause};
use super::revision::short;
use super::{Answer, Asked};
use relaybook_api::pipeline::{Environment, EnvironmentStatus};
use relaybook_api::promotion::Phase;
use relaybook_api::{Pipeline, Time, duration_text};
use relaybook_core::promotion::text::shown;
use relaybook_text::{cut, escaped};

/// Maximum length of a message in a line, in bytes.
const MESSAGE: usize = 256;
/// Maximum number of revisions or notifications in a list.
const NAMED: usize = 3;

/// Returns a name for a line.
pub(super) fn name(text: &str) -> String {
    shown(text)
}

/// Returns a message of a cluster for a line.
pub(super) fn message(text: &str) -> String {
    cut(&escaped(text.trim()), MESSAGE).into_owned()
}

/// Returns a duration in whole seconds.
pub(super) fn span(duration: Duration) -> String {
    duration_text(Duration::from_secs(duration.as_secs()))
}

/// Returns a time in UTC.
pub(super) fn utc(time: Time) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns an answer as one line, without the name of the environment.
pub(super) fn answered(asked: &Asked, answer: &Answer) -> String {
    let revision = asked.revision.shown();
    match answer {
        Answer::Runs { since: Some(since), .. } => format!("runs {revision} since {}", utc(*since)),
        Answer::Runs { since: None, changed: Some(changed) } => {
            format!("runs {revision}; its status has not changed since {}", utc(*changed))
        }
        Answer::Runs { since: None, changed: None } => format!("runs {revision}"),
        Answer::Failed { target, after: Some(after), why } => {
            format!("Failed {revision} after {}: {target}: {why}", span(*after))
        }
        Answer::Failed { target, after: None, why } => format!("Failed {revision}: {target}: {why}"),
        Answer::Replaced { target, by } => format!("Replaced {revision} by {by}: {target}"),
        Answer::NotYet { now, .. } => now.clone(),
    }
}

/// Returns the answer while not all targets run the revision. `was_tried`: whether a target has tried it since the wait began.
pub(super) fn not_yet(
    asked: &Asked,
    pipeline: &Pipeline,
    environment: &Environment,
    targets: &[Seen<'_>],
    was_tried: bool,
) -> Answer {
    let (revision, name) = (asked.revision.shown(), name(&environment.name));
    let count = |is: &dyn Fn(&View) -> bool| targets.iter().filter(|seen| is(&seen.view)).count();
    let (all, runs) = (targets.len(), count(&|view| *view == View::Runs));
    let is_tried = count(&|view| matches!(view, View::Runs | View::Failed | View::Tries)) > 0;
    let failed = targets.iter().find(|seen| seen.view == View::Failed);
    let running = running(targets);
    let mut now = match failed {
        Some(seen) => vec![format!("Failed {revision}: {}: {}", seen.place, cause(seen.target))],
        None if is_tried => vec![format!("InProgress {revision} ({runs}/{all} targets)")],
        None => vec![format!("runs {running}"), format!("{revision} is not tried yet")],
    };
    let mut why: Vec<String> = if is_tried {
        let left = targets.iter().filter(|seen| !matches!(seen.view, View::Runs | View::Unseen(_)));
        let left = left.take(1).map(described);
        std::iter::once(format!("{runs} of {all} targets of {name} run {revision}")).chain(left).collect()
    } else {
        let tried = if was_tried { "does not try" } else { "did not try" };
        let end = if was_tried { " any more" } else { "" };
        let mut why = vec![format!("{name} {tried} {revision}{end}"), format!("it runs {running}")];
        why.extend(before(asked, pipeline, environment));
        why.extend(promotion(asked, pipeline, environment));
        why
    };
    if let Some(unseen) = targets.iter().find_map(unseen) {
        now.push(unseen.clone());
        why.push(unseen);
    }
    Answer::NotYet { now: now.join("; "), why: why.join("; ") }
}

fn unseen(seen: &Seen<'_>) -> Option<String> {
    match &seen.view {
        View::Unseen(why) => Some(why.clone()),
        View::Runs | View::Failed | View::Tries | View::Other => None,
    }
}

/// Returns what a target does that does not run the revision.
fn described(seen: &Seen<'_>) -> String {
    let (place, target) = (&seen.place, seen.target);
    match seen.view {
        View::Failed => format!("{place} has failed: {}", cause(target)),
        View::Tries => format!("{place} is in progress: {}", cause(target)),
        View::Runs | View::Other | View::Unseen(_) => format!("{place} runs {}", running(std::slice::from_ref(seen))),
    }
}

/// Returns the revisions that were last current.
fn running(targets: &[Seen<'_>]) -> String {
    let settled = targets.iter().filter_map(|seen| seen.target.settled.as_ref()?.current.as_deref());
    let all = listed(settled.filter(|revision| !revision.is_empty()).map(short));
    all.unwrap_or_else(|| "nothing".to_owned())
}

/// Returns these texts in one line, each once. `None`: there are none.
pub(super) fn listed(texts: impl Iterator<Item = String>) -> Option<String> {
    let all: BTreeSet<String> = texts.collect();
    let mut parts: Vec<_> = all.iter().take(NAMED).cloned().collect();
    if all.len() > NAMED {
        parts.push(format!("{} more", all.len() - NAMED));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Returns which of the environments before it run the revision. `None`: it is the first one.
fn before(asked: &Asked, pipeline: &Pipeline, environment: &Environment) -> Option<String> {
    let all = &pipeline.spec.environments;
    let earlier = &all[..all.iter().position(|other| other.name == environment.name)?];
    let runs = |other: &&Environment| {
        let targets = known::targets(pipeline, other, &asked.revision);
        let is_known = known::unprocessed(pipeline, &other.name).is_none();
        is_known && targets.is_ok_and(|targets| targets.iter().all(|seen| seen.view == View::Runs))
    };
    let found: Vec<_> = earlier.iter().filter(runs).map(|other| name(&other.name)).collect();
    match (earlier, &found[..]) {
        ([], _) => None,
        (_, []) => Some("no environment before it runs that".to_owned()),
        (_, [one]) => Some(format!("{one} runs it")),
        (_, several) => Some(format!("{} run it", several.join(", "))),
    }
}

/// Returns where the promotion of the revision is, and what a person can do.
fn promotion(asked: &Asked, pipeline: &Pipeline, environment: &Environment) -> Option<String> {
    let is_its = |known: &&EnvironmentStatus| known.name == environment.name;
    let known = pipeline.status.as_ref()?.environments.iter().find(is_its)?;
    let (of, to) = (&asked.pipeline, name(&environment.name));
    if known.waiting_approval.as_ref().is_some_and(|waiting| asked.revision.matches(&waiting.revision)) {
        let command = format!("relaybook approve {} {to} -n {}", of.name, of.namespace);
        return Some(format!("the promotion waits for an approval: {command}"));
    }
    let promotion = known.promotion.as_ref().filter(|promotion| asked.revision.matches(&promotion.revision))?;
    let reason = Some(name(&promotion.reason)).filter(|reason| !reason.is_empty());
    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    let location = promotion.location.as_deref().filter(|_| matches!(promotion.phase, Phase::Open | Phase::Closed));
    let location = location.map_or_else(String::new, |location| format!(": {}", message(location)));
    Some(format!("promotion {} is {}{reason}{location}", name(&promotion.name), promotion.phase.as_str()))
}
