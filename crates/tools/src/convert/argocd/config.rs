//! One configuration of Argo CD Notifications. Pure.
//!
//! In: the texts of a configuration, and the objects that subscribe. Out: manifests, steps and the report about the configuration.

mod subscribing;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::documents::{Inner, Object};
use super::gotemplate::{Needs, Recipient, Scene};
use super::message::{Sources, message};
use super::notification::{Notification, set};
use super::services::{Service, names};
use super::trigger::{Trigger, literal};
use super::{Notes, put_rest};
use crate::convert::ledger::Ledger;
use crate::convert::report::{Item, List};
use crate::convert::{Conversion, Options};
use relaybook_api::pipeline::record::MAX_RECORDED;
use relaybook_settings::config::nearest;
use relaybook_settings::manifests::field::below;

/// An Application or an `AppProject` with subscriptions.
pub(super) struct Subscriber<'a> {
    pub(super) object: &'a Object<'a>,
    pub(super) ledger: Ledger<'a>,
    /// The subscriptions: field, name and value.
    pub(super) annotations: Vec<(String, &'a str, &'a str)>,
    /// What became of them.
    pub(super) notes: BTreeMap<String, (List, String)>,
}

impl Subscriber<'_> {
    fn note(&mut self, field: &str, list: List, text: &str) {
        let is_better = self.notes.get(field).is_none_or(|(before, _)| *before != List::Converted);
        if is_better {
            self.notes.insert(field.to_owned(), (list, text.to_owned()));
        }
    }
}

/// A condition of a trigger.
struct Condition {
    triggers: Vec<Trigger>,
    needs: Needs,
    send: Vec<String>,
    /// The field `send`.
    origin: (usize, String),
}

/// What a Notification sends: service, recipient and templates.
type Group = (String, Recipient, Vec<String>);

/// Maximum number of triggers of a Notification.
const TRIGGERS: usize = 32;

/// When something is sent.
#[derive(Default)]
struct Wanted {
    /// The triggers, each with the conditions of a subscription.
    triggers: Vec<(Trigger, Vec<String>)>,
    needs: Needs,
    /// The fields `send` that want it.
    origins: BTreeSet<(usize, String)>,
}

impl Wanted {
    /// Adds a trigger for a subscription. A subscription without conditions includes all others.
    fn add(&mut self, trigger: &Trigger, when: &[String]) {
        let is_included = |(other, of): &(Trigger, Vec<String>)| other == trigger && (of.is_empty() || of == when);
        if self.triggers.iter().any(is_included) {
            return;
        }
        if when.is_empty() {
            self.triggers.retain(|(other, _)| other != trigger);
        }
        self.triggers.push((trigger.clone(), when.to_vec()));
    }

    /// Whether it is only sent for values of the annotation that another Notification leaves out, because they name several recipients.
    fn excludes(&self, other: &Recipient) -> bool {
        let Recipient::Annotation(name) = other else { return false };
        let is_of = |when: &Vec<String>| when.iter().any(|condition| condition.contains(&literal(name)));
        self.triggers.iter().all(|(_, when)| is_of(when))
    }

    /// Whether both are sent for the same change.
    fn shares(&self, other: &Self) -> bool {
        self.triggers.iter().any(|(trigger, _)| other.triggers.iter().any(|(of, _)| of == trigger))
    }
}

pub(super) struct Config<'a> {
    object: &'a Object<'a>,
    texts: &'a [Inner],
    ledgers: Vec<Ledger<'a>>,
    notes: Notes,
    keys: Option<&'a BTreeSet<String>>,
    context: BTreeMap<String, String>,
    /// The index of the text, by name.
    services: BTreeMap<&'a str, (&'a str, usize)>,
    triggers: BTreeMap<&'a str, usize>,
    templates: BTreeMap<&'a str, usize>,
    /// The default triggers, by service; those of all services have an empty name.
    defaults: BTreeMap<&'a str, Vec<String>>,
    read: BTreeMap<String, Option<Service>>,
    conditions: BTreeMap<String, Vec<Condition>>,
    groups: BTreeMap<Group, Wanted>,
    /// The recipients that annotations name, by the name of the annotation.
    recipients: BTreeMap<String, BTreeSet<String>>,
    /// What the pipelines record for subscriptions.
    needs: Needs,
}

impl<'a> Config<'a> {
    /// Opens a configuration. `outer`: the fields of the object itself.
    pub(super) fn new(
        object: &'a Object<'a>,
        texts: &'a [Inner],
        keys: Option<&'a BTreeSet<String>>,
        outer: &mut Ledger<'a>,
    ) -> Self {
        let name = format!("{}/{}", object.namespace, object.name);
        let ledgers = texts.iter().map(|one| Ledger::new(&object.input.name, &one.document, name.clone())).collect();
        let mut config = Self {
            object,
            texts,
            ledgers,
            notes: Notes::default(),
            keys,
            context: BTreeMap::new(),
            services: BTreeMap::new(),
            triggers: BTreeMap::new(),
            templates: BTreeMap::new(),
            defaults: BTreeMap::new(),
            read: BTreeMap::new(),
            conditions: BTreeMap::new(),
            groups: BTreeMap::new(),
            recipients: BTreeMap::new(),
            needs: Needs::default(),
        };
        for (field, name, value) in outer.named("spec.context") {
            config.context.insert(name.to_owned(), value.to_owned());
            outer.put(List::Converted, &field, "its value is written into the templates");
        }
        for at in 0..texts.len() {
            config.open(at);
        }
        config
    }

    /// Reads what a key is.
    fn open(&mut self, at: usize) {
        let texts = self.texts;
        let key = texts[at].key.as_str();
        self.ledgers[at].put_empty([""]);
        match key.split_once('.') {
            Some(("service", rest)) => {
                let (type_, name) = rest.split_once('.').unwrap_or((rest, rest));
                if name.contains('.') {
                    self.ledgers[at].error("", "the name of the key must be service.TYPE or service.TYPE.NAME");
                } else if !names().any(|known| known == type_) {
                    let meant = nearest(type_, names()).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
                    self.ledgers[at].error("", format!("there is no service {type_}{meant}"));
                } else {
                    self.services.insert(name, (type_, at));
                }
            }
            Some(("trigger", name)) => {
                self.triggers.insert(name, at);
            }
            Some(("template", name)) => {
                self.templates.insert(name, at);
            }
            Some(("defaultTriggers", service)) => self.default(at, service),
            None if key == "defaultTriggers" => self.default(at, ""),
            None if key == "context" => {
                for (field, name, value) in self.ledgers[at].named("") {
                    self.context.insert(name.to_owned(), value.to_owned());
                    self.notes.add(
                        (at, &field),
                        (List::Converted, "its value is written into the templates".to_owned()),
                        None,
                    );
                }
            }
            None if key == "subscriptions" => {}
            _ if key == "config.yaml" => {
                let text = "the format before Argo CD 2.3; write its parts as the keys service.TYPE, trigger.NAME and template.NAME";
                put_rest(&mut self.ledgers[at], List::NoCounterpart, text);
            }
            _ => put_rest(&mut self.ledgers[at], List::Ignored, "Argo CD does not read this key"),
        }
    }

    fn default(&mut self, at: usize, service: &'a str) {
        let all = self.ledgers[at].texts("");
        for (field, _) in &all {
            self.notes.add((at, field), (List::Converted, "used where a subscription names no trigger".to_owned()), None);
        }
        self.defaults.insert(service, all.into_iter().map(|(_, name)| name.to_owned()).collect());
    }

    /// Converts everything.
    pub(super) fn convert(
        &mut self,
        subscribers: &mut [Subscriber<'a>],
        is_central: bool,
        options: &Options,
        into: &mut Conversion,
    ) {
        let mine = |of: &Subscriber<'a>| is_central || of.object.namespace == self.object.namespace;
        let mut mine: Vec<&mut Subscriber<'a>> = subscribers.iter_mut().filter(|of| mine(of)).collect();
        let namespaces: BTreeSet<String> = mine
            .iter()
            .filter(|of| of.object.document.kind() == "Application")
            .map(|of| of.object.namespace.clone())
            .chain([self.object.namespace.clone()])
            .collect();
        self.global();
        self.projects(&mut mine);
        self.applications(&mut mine);
        let is_local = namespaces.len() == 1;
        self.repeated();
        let groups = std::mem::take(&mut self.groups);
        let mut made = Vec::new();
        let mut used = BTreeSet::new();
        for ((service, recipient, send), wanted) in groups {
            let more = self.notifications((&service, &recipient, &send), &wanted, is_local);
            if !more.is_empty() {
                used.insert(service);
                made.extend(more);
            }
        }
        if made.is_empty() {
            return;
        }
        into.steps
            .extend(used.iter().filter_map(|name| self.read.get(name)?.as_ref()).flat_map(|service| service.steps.clone()));
        into.manifests.push(set(&self.object.namespace, &namespaces, &self.needs));
        let mut taken = BTreeSet::new();
        into.manifests.extend(made.iter().map(|one| one.manifest(&self.object.namespace, options.no_triggers, &mut taken)));
    }

    /// Mentions recipients that get a message twice, because two annotations, or an annotation and another subscription, name them.
    fn repeated(&mut self) {
        let all: Vec<(&Group, &Wanted)> = self.groups.iter().collect();
        let mut notes = Vec::new();
        for (at, ((service, a, send), wanted)) in all.iter().enumerate() {
            for ((other, b, templates), of) in &all[at + 1..] {
                let is_same =
                    service == other && send == templates && wanted.shares(of) && !wanted.excludes(b) && !of.excludes(a);
                let Some(recipient) = is_same.then(|| self.common(a, b)).flatten() else { continue };
                let text = format!(
                    "several subscriptions name the recipient {recipient:?}: Argo CD sends it one message, Relaybook one for each"
                );
                notes.extend(wanted.origins.union(&of.origins).map(|origin| (origin.clone(), text.clone())));
            }
        }
        for ((at, field), text) in notes {
            self.notes.add((at, &field), (List::Differs, text), None);
        }
    }

    /// Returns a recipient that both can be.
    fn common(&self, a: &Recipient, b: &Recipient) -> Option<String> {
        let all = |of: &Recipient| match of {
            Recipient::Constant(to) => BTreeSet::from([to.clone()]),
            Recipient::Annotation(name) => self.recipients.get(name).cloned().unwrap_or_default(),
        };
        all(a).intersection(&all(b)).next().cloned()
    }

    /// Returns the Notifications that send the same: one, unless it has too many triggers.
    fn notifications(
        &mut self,
        (service, recipient, send): (&str, &Recipient, &[String]),
        wanted: &Wanted,
        is_local: bool,
    ) -> Vec<Notification> {
        let Some((endpoint, template)) = self.sent((service, recipient, send), &wanted.needs, is_local) else {
            return Vec::new();
        };
        let manifests: Option<Vec<Value>> = wanted.triggers.iter().map(|(trigger, when)| trigger.manifest(when)).collect();
        let Some(manifests) = manifests else {
            let text = "the conditions of the subscription and of the trigger together are too long";
            self.not_sent(send, text);
            return Vec::new();
        };
        let one = |(part, triggers): (usize, &[Value])| Notification {
            service: service.to_owned(),
            recipient: recipient.clone(),
            send: send.to_vec(),
            part,
            triggers: triggers.to_vec(),
            endpoint: endpoint.clone(),
            template: template.clone(),
        };
        manifests.chunks(TRIGGERS).enumerate().map(one).collect()
    }

    /// Mentions that nothing is sent for templates.
    fn not_sent(&mut self, send: &[String], text: &str) {
        for at in send.iter().filter_map(|name| self.templates.get(name.as_str())) {
            self.notes.add((*at, "message"), (List::NoCounterpart, text.to_owned()), None);
        }
    }

    /// Returns endpoint and template of a Notification.
    fn sent(
        &mut self,
        (service, recipient, send): (&str, &Recipient, &[String]),
        needs: &Needs,
        is_local: bool,
    ) -> Option<(Map<String, Value>, Value)> {
        let found = self.read.get(service)?.as_ref()?;
        let templates: Vec<usize> = send.iter().filter_map(|name| self.templates.get(name.as_str()).copied()).collect();
        let (notes, ledgers) = (&mut self.notes, self.ledgers.as_slice());
        let mut sources = Sources { ledgers, templates: &templates, notes };
        let scene = Scene { service, recipient, context: &self.context, is_local };
        let mut message = message(&mut sources, found, service, scene)?;
        let mut all = self.needs.clone();
        all.add(needs);
        all.add(&message.needs);
        if all.len() > MAX_RECORDED {
            let text =
                format!("it needs more than {MAX_RECORDED} recorded names of an Application, so nothing is sent for it");
            self.not_sent(send, &text);
            return None;
        }
        self.needs = all;
        let mut endpoint = found.endpoint.clone();
        if let Recipient::Constant(to) = recipient
            && let Some(named) = found.named.get(to)
        {
            endpoint.extend(named.clone());
        }
        endpoint.append(&mut message.endpoint);
        Some((endpoint, message.template))
    }

    /// Returns the items about the texts.
    pub(super) fn finish(self) -> Vec<Item> {
        let Self { object, texts, mut ledgers, notes, services, read, .. } = self;
        // What is unknown in a service that is used must not be lost silently.
        let is_used = |name: &str| read.get(name).is_some_and(Option::is_some);
        let used: BTreeSet<usize> = services.iter().filter(|(name, _)| is_used(name)).map(|(_, (_, at))| *at).collect();
        let mut below_of: BTreeMap<(usize, String), usize> = BTreeMap::new();
        // What is below a field is mentioned before the field.
        for ((at, field), (list, text, line)) in notes.0.into_iter().rev() {
            ledgers[at].put(list, &field, text);
            if let Some(line) = line {
                below_of.insert((at, field), line);
            }
        }
        let mut items = Vec::new();
        for (at, (mut ledger, text)) in ledgers.into_iter().zip(texts).enumerate() {
            if text.key.starts_with("template.") {
                unknown_parts(&mut ledger);
            }
            if !used.contains(&at) {
                put_rest(&mut ledger, List::Ignored, "nothing that is converted uses it");
            }
            for item in ledger.finish() {
                let line = text.line(item.line, below_of.get(&(at, item.field.clone())).copied());
                let field = match item.field.as_str() {
                    "" => text.field.clone(),
                    inner if inner.starts_with('[') => format!("{}{inner}", text.field),
                    inner => format!("{}.{inner}", text.field),
                };
                items.push(Item { line, field, kind: object.document.kind().to_owned(), ..item });
            }
        }
        items
    }
}

/// A part of a template that no service has is a mistake.
fn unknown_parts(ledger: &mut Ledger<'_>) {
    let fields = ledger.get("").and_then(Value::as_object);
    let parts: Vec<String> = fields.into_iter().flat_map(serde_json::Map::keys).cloned().collect();
    for part in parts {
        if part != "message" && !names().any(|name| name == part) {
            let meant = nearest(&part, names()).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            ledger.error(&below("", &part), format!("there is no service {part}{meant}"));
        }
    }
}
