//! The changes that a notification has not reported, and why. Pure.

use std::collections::{BTreeMap, BTreeSet};

use globset::{Glob, GlobSet, GlobSetBuilder};

use relaybook_text::cut_chars;

use super::{LONGEST, Mark, Scale};
use crate::screens::parts::{Tone, utc};
use relaybook_api::TransitionType;
use relaybook_api::delivery::SubjectKind;
use relaybook_api::notification::Trigger;
use relaybook_tools::audit::Entry;
use relaybook_tools::preview::Explained;

/// Whether a notification has a trigger for targets. One that only reports promotions would have an empty line in each lane.
pub(super) fn is_about_targets(settings: &Explained) -> bool {
    triggers(settings).iter().any(|trigger| trigger.type_.subject() == SubjectKind::Target)
}

fn triggers(settings: &Explained) -> Vec<Trigger> {
    settings.spec.get("triggers").and_then(|all| serde_json::from_value(all.clone()).ok()).unwrap_or_default()
}

/// Returns the changes that other notifications have reported, and this one has not, with the reason.
pub(super) fn unwanted(own: &[&Entry], name: &str, settings: &Explained, scale: Scale) -> Vec<Mark> {
    let has: BTreeSet<i64> =
        own.iter().filter(|entry| entry.spec.notification == name).map(|entry| entry.spec.serial).collect();
    let others: BTreeMap<(i64, TransitionType), &Entry> = own
        .iter()
        .filter(|entry| !has.contains(&entry.spec.serial))
        .map(|entry| ((entry.spec.serial, entry.spec.type_), *entry))
        .collect();
    let compiled: Vec<Compiled> = triggers(settings).into_iter().map(Compiled::new).collect();
    let marks = others.into_iter().filter_map(|((_, type_), entry)| {
        let why = why_not(&compiled, type_, entry)?;
        let title = format!("{} {}, {}. Not wanted: {why}", type_.as_str(), entry.spec.to.revision, utc(entry.spec.time));
        Some(Mark {
            at: scale.at(entry.spec.time),
            tone: Tone::Quiet,
            sign: "○",
            title: cut_chars(&title, LONGEST).into_owned(),
            link: None,
        })
    });
    marks.collect()
}

/// Returns which trigger did not match. `None`: one matched, so the delivery was deleted, or the notification is younger than the change.
pub(super) fn why_not(triggers: &[Compiled], type_: TransitionType, entry: &Entry) -> Option<String> {
    let of_type: Vec<_> = triggers.iter().filter(|compiled| compiled.trigger.type_ == type_).collect();
    if of_type.is_empty() {
        return Some(format!("no trigger has the type {}", type_.as_str()));
    }
    let subject = &entry.spec.subject;
    if subject.kind != SubjectKind::Target {
        return None;
    }
    let environment = subject.environment.as_str();
    let target = subject.target.clone().unwrap_or_default();
    let named = target.cluster_ref.map(|cluster| [cluster.full_name(), cluster.name]);
    let clusters = named.unwrap_or_else(|| [target.cluster.clone(), target.cluster]);
    let mut why = None;
    for Compiled { trigger, environments, clusters: names } in of_type {
        let only = |what: &str, globs: Option<&Vec<String>>| {
            let globs = globs.map(|globs| globs.join(", ")).unwrap_or_default();
            Some(format!("the trigger {} is only for the {what} {globs}", type_.as_str()))
        };
        if environments.as_ref().is_some_and(|set| !set.is_match(environment)) {
            why = only("environments", trigger.environments.as_ref());
        } else if names.as_ref().is_some_and(|set| !clusters.iter().any(|name| set.is_match(name))) {
            why = only("clusters", trigger.clusters.as_ref());
        } else if let Some(when) = &trigger.when {
            why = Some(format!("the condition `{when}` of the trigger {} was probably not true", type_.as_str()));
        } else if let Some(time) = &trigger.for_ {
            why = Some(format!("the state has probably not lasted for {time}, as the trigger {} requires", type_.as_str()));
        } else {
            return None;
        }
    }
    why
}

/// A trigger with its globs compiled, because each is compared with many changes.
pub(super) struct Compiled {
    trigger: Trigger,
    environments: Option<GlobSet>,
    clusters: Option<GlobSet>,
}

impl Compiled {
    pub(super) fn new(trigger: Trigger) -> Self {
        let set = |globs: &Vec<String>| {
            let mut set = GlobSetBuilder::new();
            globs.iter().filter_map(|glob| Glob::new(glob).ok()).for_each(|glob| {
                set.add(glob);
            });
            set.build().ok()
        };
        let environments = trigger.environments.as_ref().and_then(set);
        let clusters = trigger.clusters.as_ref().and_then(set);
        Self { trigger, environments, clusters }
    }
}
