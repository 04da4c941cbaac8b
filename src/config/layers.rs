//! Layers of one notification, folded into what holds for a target, with who wrote what. Pure.
//!
//! In: layers from the least specific to the most. Out: one value, and for every field of it the layer that it is from. A fold
//! merges as RFC 7386 does (<https://www.rfc-editor.org/rfc/rfc7386>): objects merge, everything else is replaced. Two things are
//! said in other ways than by `null`, which does not survive kubectl: `remove` takes something away, and to set one member of a
//! choice takes the others away.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kube::ResourceExt as _;
use serde::Serialize;
use serde_json::{Map, Value};

use super::problem::Problem;
use super::resolve::defaults::{CONNECT_TIMEOUT, TIMEOUT};
use super::resolve::delivering::Delivering;
use crate::api::notification::{NotificationLayer, Ordering, Settings};
use crate::api::{Notification, PipelineSpec, duration_text};

/// Fields of which one at most is set, by the object that they are in.
const CHOICES: [(&str, &[&str]); 4] = [
    ("/endpoint", &["url", "urlFrom"]),
    ("/endpoint/auth", &["basic", "token"]),
    ("/endpoint/tls/caFrom", &["configMapKeyRef", "secretKeyRef"]),
    ("/template", &["builtin", "inline", "configMapKeyRef"]),
];
/// Its names are the same in capitals.
const HEADERS: &str = "/endpoint/headers";

/// Who wrote a layer, from the least specific to the most.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Source {
    /// What holds when nobody says anything.
    BuiltIn,
    /// `defaults` of the global configuration.
    Defaults,
    /// The cluster-wide notification of this name, in the global configuration.
    Global,
    /// The Notification of this name.
    Notification,
    /// `spec.notifications` of the pipeline.
    Pipeline,
    /// `notifications` of this environment.
    Environment(String),
    /// `notifications` of this target.
    Target(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("the default"),
            Self::Defaults => f.write_str("defaults of the global configuration"),
            Self::Global => f.write_str("the global configuration"),
            Self::Notification => f.write_str("the Notification"),
            Self::Pipeline => f.write_str("the Pipeline"),
            Self::Environment(name) => write!(f, "environment {name} of the Pipeline"),
            Self::Target(name) => write!(f, "target {name} of the Pipeline"),
        }
    }
}

/// One layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Who wrote it.
    pub source: Source,
    /// The namespace in which its references resolve.
    pub namespace: String,
    /// JSON Pointers of what is taken away of what lies beneath.
    pub remove: Vec<String>,
    /// What it sets.
    pub value: Map<String, Value>,
}

impl Layer {
    /// The defaults. That of the method is left out, for a built-in template has its own.
    #[must_use]
    pub fn built_in() -> Self {
        let Delivering { retry, retain, .. } = Delivering::default();
        let value = serde_json::json!({
            "suspend": false,
            "endpoint": {"timeout": duration_text(TIMEOUT), "connectTimeout": duration_text(CONNECT_TIMEOUT)},
            "delivery": {
                "ordering": Ordering::default(),
                "supersede": false,
                "retry": {"initial": duration_text(retry.initial), "max": duration_text(retry.max), "maxAge": duration_text(retry.max_age)},
                "retain": {"perLane": retain.per_lane, "maxAge": duration_text(retain.max_age)},
            },
        });
        let value = value.as_object().cloned().unwrap_or_default();
        Self { source: Source::BuiltIn, namespace: String::new(), remove: Vec::new(), value }
    }

    /// A Notification.
    #[must_use]
    pub fn of_notification(notification: &Notification) -> Self {
        let namespace = notification.namespace().unwrap_or_default();
        Self { source: Source::Notification, namespace, remove: Vec::new(), value: fields(&notification.spec) }
    }

    /// What is set with no more said of it.
    #[must_use]
    pub(super) fn of_settings(source: Source, namespace: &str, settings: &Settings) -> Self {
        Self { source, namespace: namespace.to_owned(), remove: Vec::new(), value: fields(settings) }
    }

    /// What one that has a name sets and takes away.
    #[must_use]
    pub(super) fn of(source: Source, namespace: &str, layer: &NotificationLayer) -> Self {
        let remove = layer.remove.clone().unwrap_or_default();
        Self { remove, ..Self::of_settings(source, namespace, &layer.settings) }
    }
}

/// A target of a pipeline's spec: which environment, which of its targets, and the name.
#[derive(Clone, Copy, Debug)]
pub struct Spot<'a> {
    /// Place of the environment in the spec.
    pub environment: usize,
    /// Place of the target in the environment.
    pub index: usize,
    /// The target's name.
    pub target: &'a str,
}

/// The layers that a pipeline of this namespace lays over a notification for one target.
#[must_use]
pub fn of_pipeline(spec: &PipelineSpec, namespace: &str, name: &str, spot: Spot<'_>) -> Vec<Layer> {
    let Spot { environment, index, target } = spot;
    let find = |layers: &[NotificationLayer], source| {
        layers.iter().find(|l| l.name == name).map(|l| Layer::of(source, namespace, l))
    };
    let environment = spec.environments.get(environment);
    let own = environment.and_then(|e| e.targets.get(index));
    [
        find(&spec.notifications, Source::Pipeline),
        environment.and_then(|e| find(&e.notifications, Source::Environment(e.name.clone()))),
        own.and_then(|t| find(&t.notifications, Source::Target(target.to_owned()))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The layers for an environment as a whole, which hold for its targets that say nothing of their own.
#[must_use]
pub fn of_environment(spec: &PipelineSpec, namespace: &str, name: &str, environment: usize) -> Vec<Layer> {
    of_pipeline(spec, namespace, name, Spot { environment, index: usize::MAX, target: "" })
}

/// The layer of a pipeline alone, which holds for targets that say nothing of their own.
#[must_use]
pub fn of_whole_pipeline(spec: &PipelineSpec, namespace: &str, name: &str) -> Option<Layer> {
    spec.notifications.iter().find(|l| l.name == name).map(|l| Layer::of(Source::Pipeline, namespace, l))
}

/// The notifications of which a pipeline says something, anywhere.
#[must_use]
pub fn names(spec: &PipelineSpec) -> BTreeSet<String> {
    let environments = spec.environments.iter();
    let inner = environments.flat_map(|e| e.notifications.iter().chain(e.targets.iter().flat_map(|t| &t.notifications)));
    spec.notifications.iter().chain(inner).map(|layer| layer.name.clone()).collect()
}

fn fields(of: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(of) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// What the layers come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folded {
    /// The whole.
    pub value: Map<String, Value>,
    /// For each field that is no object, by JSON Pointer: the layer, as an index into `sources`.
    wrote: BTreeMap<String, usize>,
    sources: Vec<(Source, String)>,
}

/// Folds layers, least specific first. `see` is told of the state after each.
pub fn fold(layers: &[Layer], mut see: impl FnMut(&Folded)) -> Result<Folded, Problem> {
    let mut folded = Folded::default();
    for (index, layer) in layers.iter().enumerate() {
        folded.sources.push((layer.source.clone(), layer.namespace.clone()));
        for pointer in &layer.remove {
            if pointer.split('/').nth(1) == Some("pipelineSelector") {
                let message =
                    format!("{pointer:?} in {}: which pipelines it is for cannot be taken away; leave it out", layer.source);
                return Err(Problem::invalid("remove", message));
            }
            folded.take_away(pointer).ok_or_else(|| {
                let message =
                    format!("{pointer:?} in {} is not a JSON Pointer such as /endpoint/headers/X-Team", layer.source);
                Problem::invalid("remove", message)
            })?;
        }
        let mut value = std::mem::take(&mut folded.value);
        folded.merge(&mut value, &layer.value, "", index);
        folded.value = value;
        see(&folded);
    }
    Ok(folded)
}

impl Folded {
    /// Who wrote the field at this JSON Pointer; of an object the most specific one who wrote anything in it.
    #[must_use]
    pub fn author(&self, pointer: &str) -> Option<&Source> {
        self.wrote_at(pointer).and_then(|index| self.sources.get(index)).map(|(source, _)| source)
    }

    /// The namespace in which a reference at this JSON Pointer resolves: that of the most specific layer that wrote any part of it,
    /// so that nobody reaches into another's with half of a reference.
    #[must_use]
    pub fn namespace(&self, pointer: &str) -> Option<&str> {
        self.wrote_at(pointer).and_then(|index| self.sources.get(index)).map(|(_, namespace)| namespace.as_str())
    }

    /// The namespace of the layer that was laid over the others last.
    pub(super) fn last_namespace(&self) -> Option<&str> {
        self.sources.last().map(|(_, namespace)| namespace.as_str())
    }

    /// The place of the most specific layer of this namespace.
    pub(super) fn last_of(&self, namespace: &str) -> Option<usize> {
        self.sources.iter().rposition(|(_, of)| of == namespace)
    }

    /// Who of those that wrote anything in it is the least specific.
    pub(super) fn first_author(&self, pointer: &str) -> Option<&Source> {
        self.wrote_first(pointer).and_then(|index| self.sources.get(index)).map(|(source, _)| source)
    }

    fn wrote_at(&self, pointer: &str) -> Option<usize> {
        self.within(pointer).max()
    }

    /// The place of the least specific layer that wrote anything in it: whose it is, if others have only added to it.
    pub(super) fn wrote_first(&self, pointer: &str) -> Option<usize> {
        self.within(pointer).min()
    }

    fn within(&self, pointer: &str) -> impl Iterator<Item = usize> {
        let inner = format!("{pointer}/");
        let itself = self.wrote.get(pointer).copied();
        let range = self.wrote.range(inner.clone()..).take_while(move |(p, _)| p.starts_with(&inner)).map(|(_, i)| *i);
        itself.into_iter().chain(range)
    }

    /// Every field that is no object, with who wrote it.
    pub fn authors(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.wrote.iter().filter_map(|(pointer, index)| Some((pointer.as_str(), &self.sources.get(*index)?.0)))
    }

    /// `None`: that is no pointer. Nothing being there is no error: what lies beneath may change.
    fn take_away(&mut self, pointer: &str) -> Option<()> {
        let (parent, last) = pointer.rsplit_once('/')?;
        if !parent.is_empty() && !parent.starts_with('/') {
            return None;
        }
        let name = last.replace("~1", "/").replace("~0", "~");
        let parent_object = if parent.is_empty() {
            Some(&mut self.value)
        } else {
            let (first, rest) =
                parent[1..].split_once('/').map_or((&parent[1..], ""), |(first, _)| (first, &parent[1 + first.len()..]));
            let first = first.replace("~1", "/").replace("~0", "~");
            self.value.get_mut(&first).and_then(|v| v.pointer_mut(rest)).and_then(Value::as_object_mut)
        };
        if let Some(object) = parent_object {
            object.remove(&name);
        }
        self.forget(pointer);
        Some(())
    }

    /// Nobody wrote this any more, nor anything in it.
    fn forget(&mut self, pointer: &str) {
        let within = format!("{pointer}/");
        self.wrote.retain(|p, _| p != pointer && !p.starts_with(&within));
    }

    fn merge(&mut self, target: &mut Map<String, Value>, patch: &Map<String, Value>, at: &str, index: usize) {
        for (name, value) in patch {
            let pointer = format!("{at}/{}", escape(name));
            self.drop_rivals(target, patch, name, at);
            match value {
                Value::Null => {
                    target.remove(name);
                    self.forget(&pointer);
                }
                Value::Object(inner) => {
                    let was_object = target.get(name).is_some_and(Value::is_object);
                    if !was_object {
                        self.forget(&pointer);
                        target.insert(name.clone(), Value::Object(Map::new()));
                    }
                    // An empty object has no field that could say who wrote it.
                    self.wrote.remove(&pointer);
                    if let Some(Value::Object(object)) = target.get_mut(name) {
                        let mut object = std::mem::take(object);
                        self.merge(&mut object, inner, &pointer, index);
                        if object.is_empty() {
                            self.wrote.insert(pointer, index);
                        }
                        target.insert(name.clone(), Value::Object(object));
                    }
                }
                other => {
                    self.forget(&pointer);
                    target.insert(name.clone(), other.clone());
                    self.wrote.insert(pointer, index);
                }
            }
        }
    }

    /// Takes away what cannot stand beside a field that is about to be set. What the same layer sets stays: that it contradicts
    /// itself is told when all is understood.
    fn drop_rivals(&mut self, target: &mut Map<String, Value>, patch: &Map<String, Value>, name: &str, at: &str) {
        let sets = |name: &str| patch.get(name).is_some_and(|value| !value.is_null());
        if !sets(name) {
            return;
        }
        let choice = CHOICES.iter().find(|(object, members)| *object == at && members.contains(&name));
        let is_rival = |other: &String| {
            let same_choice = choice.is_some_and(|(_, members)| members.contains(&other.as_str()));
            other != name && !sets(other) && (same_choice || (at == HEADERS && other.eq_ignore_ascii_case(name)))
        };
        let rivals: Vec<_> = target.keys().filter(|other| is_rival(other)).cloned().collect();
        for rival in rivals {
            target.remove(&rival);
            self.forget(&format!("{at}/{}", escape(&rival)));
        }
    }
}

/// One step of a JSON Pointer (RFC 6901).
pub(super) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;
