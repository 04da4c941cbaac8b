//! The subscriptions of a configuration, with the services and triggers that they use. Pure.
//!
//! In: the key `subscriptions` and annotations. Out: groups of messages that are sent together, in the configuration, and the result of each
//! subscription.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::gotemplate::{Needs, Recipient};
use super::super::services::{By, named, read};
use super::super::subscriptions::{Key, Route, key, of_project, recipients, routes, selector};
use super::super::trigger::{Per, read as condition};
use super::{Condition, Config, Subscriber};
use crate::convert::report::List;
use relaybook_api::TransitionType::{Added, Removed};
use relaybook_api::pipeline::record::MAX_RECORDED;
use relaybook_settings::manifests::field::{below, entry};

impl<'a> Config<'a> {
    /// Reads the key `subscriptions`.
    pub(super) fn global(&mut self) {
        let texts = self.texts;
        let Some(at) = texts.iter().position(|one| one.key == "subscriptions") else { return };
        let number = self.ledgers[at].get("").and_then(Value::as_array).map_or(0, Vec::len);
        for n in 0..number {
            let one = entry("", n);
            let field = |name: &str| below(&one, name);
            let own: Vec<String> =
                self.ledgers[at].texts(&field("triggers")).into_iter().map(|(_, name)| name.to_owned()).collect();
            let mut needs = Needs::default();
            let text = self.ledgers[at].text(&field("selector")).unwrap_or_default();
            let Some(when) = selector(text, &mut needs) else {
                let text = "the selector is not understood, so the subscription is left out";
                self.ledgers[at].put(List::NoCounterpart, &one, text);
                continue;
            };
            self.notes.add((at, &field("selector")), (List::Converted, "conditions on recorded labels".to_owned()), None);
            self.notes.add(
                (at, &field("triggers")),
                (List::Converted, "the triggers of the Notifications".to_owned()),
                None,
            );
            for (field, recipient) in self.ledgers[at].texts(&field("recipients")) {
                // Argo CD ignores what follows a second colon.
                let mut parts = recipient.split(':');
                let (service, to) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                let triggers = if own.is_empty() { self.defaults.get("").cloned().unwrap_or_default() } else { own.clone() };
                let route = Route { recipient: Recipient::Constant(to.to_owned()), when: when.clone() };
                let (list, text) = self.subscribe(service, &[route], &triggers, &needs);
                self.notes.add((at, &field), (list, text), None);
            }
        }
    }

    /// Reads the annotations of `AppProjects`.
    pub(super) fn projects(&mut self, mine: &mut [&mut Subscriber<'a>]) {
        for of in mine.iter_mut().filter(|of| of.object.document.kind() == "AppProject") {
            for (field, name, value) in of.annotations.clone() {
                let Some(key) = known(of, &field, name) else { continue };
                let mut needs = Needs::default();
                let when = vec![of_project(&of.object.name, &mut needs)];
                let routes: Vec<Route> = recipients(value)
                    .into_iter()
                    .map(|to| Route { recipient: Recipient::Constant(to), when: when.clone() })
                    .collect();
                let triggers = self.triggers_of(&key);
                let (list, text) = self.subscribe(&key.service, &routes, &triggers, &needs);
                of.note(&field, list, &text);
            }
        }
    }

    /// Reads the annotations of Applications. Equal names are one subscription.
    pub(super) fn applications(&mut self, mine: &mut [&mut Subscriber<'a>]) {
        let mut values: BTreeMap<&'a str, BTreeSet<&'a str>> = BTreeMap::new();
        for of in mine.iter().filter(|of| of.object.document.kind() == "Application") {
            for (_, name, value) in &of.annotations {
                values.entry(*name).or_default().insert(*value);
            }
        }
        let mut outcomes: BTreeMap<&'a str, (List, String)> = BTreeMap::new();
        for (name, values) in &values {
            let Some(key) = key(name) else { continue };
            let mut needs = Needs::default();
            needs.annotations.insert((*name).to_owned());
            let by = self.services.get(key.service.as_str()).and_then(|(type_, _)| named(type_).ok());
            let routes = routes(name, values, by.map_or(By::Nothing, |row| row.by));
            self.recipients.insert((*name).to_owned(), values.iter().flat_map(|value| recipients(value)).collect());
            let triggers = self.triggers_of(&key);
            let mut outcome = self.subscribe(&key.service, &routes, &triggers, &needs);
            let is_several =
                by.is_some_and(|row| row.by == By::Nothing) && values.iter().any(|value| recipients(value).len() > 1);
            if is_several && outcome.0 == List::Converted {
                outcome = (List::Differs, "the service gets one request, and not one for each recipient".to_owned());
            }
            outcomes.insert(*name, outcome);
        }
        for of in mine.iter_mut().filter(|of| of.object.document.kind() == "Application") {
            for (field, name, _) in of.annotations.clone() {
                if known(of, &field, name).is_some()
                    && let Some((list, text)) = outcomes.get(name)
                {
                    of.note(&field, *list, text);
                }
            }
        }
    }

    fn triggers_of(&self, key: &Key) -> Vec<String> {
        let defaults = || self.defaults.get(key.service.as_str()).or_else(|| self.defaults.get(""));
        match &key.trigger {
            Some(trigger) => vec![trigger.clone()],
            None => defaults().cloned().unwrap_or_default(),
        }
    }

    /// Adds what a subscription wants. Returns what became of it.
    fn subscribe(&mut self, service: &str, routes: &[Route], triggers: &[String], needs: &Needs) -> (List, String) {
        let Some((type_, at)) = self.services.get(service).copied() else {
            return (List::Ignored, format!("the configuration has no service {service}, so Argo CD sends nothing"));
        };
        let mut all = self.needs.clone();
        all.add(needs);
        if all.len() > MAX_RECORDED {
            let text = format!(
                "Relaybook records at most {MAX_RECORDED} names of labels, annotations and fields of an Application"
            );
            return (List::NoCounterpart, text);
        }
        if !self.read.contains_key(service) {
            let made = read(&mut self.ledgers[at], (type_, service), &self.object.namespace, self.keys);
            self.read.insert(service.to_owned(), made);
        }
        let Some(Some(found)) = self.read.get(service) else {
            return (List::NoCounterpart, format!("the service {service} has no counterpart"));
        };
        let by_name = matches!(found.row.by, By::Name(_));
        let is_unknown =
            |route: &&Route| matches!(&route.recipient, Recipient::Constant(to) if by_name && !found.named.contains_key(to));
        let unknown: Vec<&Route> = routes.iter().filter(is_unknown).collect();
        let lost =
            format!("the service {service} does not have all of its recipients, so Argo CD sends nothing to some of them");
        if unknown.len() == routes.len() {
            return (List::Ignored, format!("the service {service} has no such recipient, so Argo CD sends nothing"));
        }
        let routes: Vec<&Route> = routes.iter().filter(|route| !unknown.contains(route)).collect();
        let is_whole = unknown.is_empty();
        if triggers.is_empty() {
            return (List::Ignored, "it names no trigger, and there are no default triggers".to_owned());
        }
        let (mut is_any, mut missing) = (false, Vec::new());
        for name in triggers {
            if !self.triggers.contains_key(name.as_str()) {
                missing.push(name.as_str());
                continue;
            }
            self.conditions_of(name);
            for condition in self.conditions.get(name).into_iter().flatten() {
                for route in &routes {
                    let group = (service.to_owned(), route.recipient.clone(), condition.send.clone());
                    let wanted = self.groups.entry(group).or_default();
                    for trigger in &condition.triggers {
                        wanted.add(trigger, &route.when);
                    }
                    wanted.needs.add(&condition.needs);
                    wanted.origins.insert(condition.origin.clone());
                    is_any = true;
                }
            }
        }
        if is_any {
            self.needs = all;
            return if is_whole { (List::Converted, "Notifications".to_owned()) } else { (List::Differs, lost) };
        }
        if missing.is_empty() {
            (List::NoCounterpart, "its triggers have no counterpart".to_owned())
        } else {
            (List::Ignored, format!("the configuration has no trigger {}, so Argo CD sends nothing", missing.join(", ")))
        }
    }

    /// Reads the conditions of a trigger once.
    fn conditions_of(&mut self, name: &str) {
        let Some(&at) = self.triggers.get(name) else { return };
        if self.conditions.contains_key(name) {
            return;
        }
        let number = self.ledgers[at].get("").and_then(Value::as_array).map_or(0, Vec::len);
        let mut conditions = Vec::new();
        for n in 0..number {
            let one = entry("", n);
            let field = |name: &str| below(&one, name);
            let ledger = &mut self.ledgers[at];
            ledger.put(List::Ignored, &field("description"), "a comment");
            let when = ledger.text(&field("when")).unwrap_or_default();
            let per = ledger.text(&field("oncePer")).unwrap_or_default().replace("?.", ".");
            let send: Vec<(String, &str)> = ledger.texts(&field("send"));
            let names: Vec<String> = send.iter().map(|(_, name)| (*name).to_owned()).collect();
            if let Some((field, name)) = send.iter().find(|(_, name)| !self.templates.contains_key(*name)) {
                ledger.error(field, format!("the configuration has no template {name}; add it, or remove the name"));
                continue;
            }
            let per_object = ["app.metadata.name", "app.metadata.uid"].contains(&per.as_str());
            let kind = match per.as_str() {
                _ if per_object => Per::Object,
                per if per.ends_with("revision") => Per::Revision,
                _ => Per::Time,
            };
            match condition(when, kind) {
                Ok(found) => {
                    let (list, text) = match found.differs.as_slice() {
                        [] => (List::Converted, "triggers".to_owned()),
                        all => (List::Differs, all.join("; ")),
                    };
                    ledger.put(list, &field("when"), text);
                    let is_existence = found.triggers.iter().all(|one| [Added, Removed].contains(&one.type_));
                    let (list, text) = match kind {
                        Per::Object if is_existence => (List::Converted, "each change is reported once"),
                        Per::Revision => (
                            List::Differs,
                            "each change is reported, also that to a revision that was reported before, such as by a rollback",
                        ),
                        _ => (List::NoCounterpart, "each change is reported once, whatever this field is"),
                    };
                    ledger.put(list, &field("oncePer"), text);
                    let origin = (at, field("send"));
                    self.notes.add(
                        (at, &origin.1),
                        (List::Converted, "the templates of the Notifications".to_owned()),
                        None,
                    );
                    conditions.push(Condition { triggers: found.triggers, needs: found.needs, send: names, origin });
                }
                Err(why) => {
                    ledger.put(List::NoCounterpart, &field("when"), why);
                    let rest = ["oncePer", "send"].map(field);
                    ledger.put_each(
                        List::NoCounterpart,
                        rest.iter().map(String::as_str),
                        "its condition has no counterpart",
                    );
                }
            }
        }
        self.conditions.insert(name.to_owned(), conditions);
    }
}

/// Returns the parts of a subscription. `None`: it has another form, which the report says.
fn known(of: &mut Subscriber<'_>, field: &str, name: &str) -> Option<Key> {
    let found = key(name);
    if found.is_none() {
        let text = "write it as annotations notifications.argoproj.io/subscribe.TRIGGER.SERVICE, which Relaybook can record";
        of.note(field, List::NoCounterpart, text);
    }
    found
}
