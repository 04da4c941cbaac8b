//! Merges the layers of one notification into the settings of a target, and records which layer set each field. Pure.
//!
//! In: layers, from the least specific to the most specific. Out: one value, and for each of its fields the layer that set it. Layers merge
//! as in RFC 7386 (<https://www.rfc-editor.org/rfc/rfc7386>): objects merge, everything else is replaced. `null` does not survive kubectl,
//! so two things have another form: `remove` deletes fields, and setting one alternative deletes the others. Credentials that request tokens
//! are replaced as a whole, because each of their fields decides what the tokens allow.

mod globs;
mod namespace;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kube_core::ResourceExt as _;
use serde::Serialize;
use serde_json::{Map, Value};

use super::problem::Problem;
use super::resolve::defaults::{CONNECT_TIMEOUT, TIMEOUT};
use super::resolve::delivering::Delivering;
pub use globs::ClusterGlobs;
pub use namespace::is_layer_of;
use relaybook_api::notification::{NotificationLayer, Ordering, Settings};
use relaybook_api::pipeline::target::{Entry, TargetInfo};
use relaybook_api::{Notification, PipelineSpec, duration_text};

/// Groups of fields of which at most one can be set, by the object that contains them.
const CHOICES: [(&str, &[&str]); 5] = [
    ("/endpoint", &["url", "urlFrom"]),
    ("/endpoint/auth", &["basic", "token", "githubApp", "oauth2"]),
    ("/endpoint/tls/caFrom", &["configMapKeyRef", "secretKeyRef"]),
    ("/endpoint/thread/update", &["path", "append"]),
    ("/template", &["builtin", "inline", "configMapKeyRef"]),
];
/// Objects that a layer replaces as a whole.
const WHOLE: [&str; 2] = ["/endpoint/auth/githubApp", "/endpoint/auth/oauth2"];
/// The object whose field names are not case-sensitive.
const HEADERS: &str = "/endpoint/headers";

/// The source of a layer, from the least specific to the most specific.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Source {
    /// The built-in defaults. They apply to fields that no other layer sets.
    BuiltIn,
    /// `defaults` of the global configuration.
    Defaults,
    /// The cluster-wide notification of this name, in the global configuration.
    Global,
    /// The Notification of this name.
    Notification,
    /// The Notification NAMESPACE/NAME of the `layerNamespace` of the pipeline.
    LayerNamespace(String),
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
            Self::LayerNamespace(name) => write!(f, "Notification {name}"),
            Self::Pipeline => f.write_str("the Pipeline"),
            Self::Environment(name) => write!(f, "environment {name} of the Pipeline"),
            Self::Target(name) => write!(f, "target {name} of the Pipeline"),
        }
    }
}

/// One layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The source of the layer.
    pub source: Source,
    /// The namespace in which its references resolve.
    pub namespace: String,
    /// JSON Pointers of the fields that this layer deletes from less specific layers.
    pub remove: Vec<String>,
    /// The fields that it sets.
    pub value: Map<String, Value>,
}

impl Layer {
    /// The built-in defaults. The method is not included, because a built-in template has its own default method.
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

    /// The layer of a Notification.
    #[must_use]
    pub fn of_notification(notification: &Notification) -> Self {
        let namespace = notification.namespace().unwrap_or_default();
        let mut value = fields(&notification.spec);
        value.remove("pipelineNamespaces");
        Self { source: Source::Notification, namespace, remove: Vec::new(), value }
    }

    /// A layer of settings that has no name and no `remove`.
    #[must_use]
    pub(super) fn of_settings(source: Source, namespace: &str, settings: &Settings) -> Self {
        Self { source, namespace: namespace.to_owned(), remove: Vec::new(), value: fields(settings) }
    }

    /// A layer that has a name: its settings and its `remove`.
    #[must_use]
    pub(super) fn of(source: Source, namespace: &str, layer: &NotificationLayer) -> Self {
        let remove = layer.remove.clone().unwrap_or_default();
        Self { remove, ..Self::of_settings(source, namespace, &layer.settings) }
    }
}

/// The layers that a pipeline in this namespace has for one notification and one target, least specific first.
#[must_use]
pub fn of_target(spec: &PipelineSpec, namespace: &str, name: &str, target: &TargetInfo) -> Vec<Layer> {
    let mut layers = of_environment(spec, namespace, name, target.environment_index);
    let own = own(spec, name, target, &mut ClusterGlobs::default()).into_iter();
    layers.extend(own.map(|layer| Layer::of(Source::Target(target.name.clone()), namespace, layer)));
    layers
}

/// The layers for an environment as a whole. They apply to its targets that have no layer of their own.
#[must_use]
pub fn of_environment(spec: &PipelineSpec, namespace: &str, name: &str, environment: usize) -> Vec<Layer> {
    let environment = spec.environments.get(environment);
    let layer = environment.and_then(|e| {
        let layer = e.notifications.iter().find(|layer| layer.name == name)?;
        Some(Layer::of(Source::Environment(e.name.clone()), namespace, layer))
    });
    of_whole_pipeline(spec, namespace, name).into_iter().chain(layer).collect()
}

/// The layers that a target has of its own for one notification. A generated target has those of its entry of `targetsFrom`, and then those
/// of the overrides that match its cluster.
#[must_use]
pub fn own<'a>(
    spec: &'a PipelineSpec,
    name: &str,
    target: &TargetInfo,
    globs: &mut ClusterGlobs<'a>,
) -> Vec<&'a NotificationLayer> {
    let Some(environment) = spec.environments.get(target.environment_index) else { return Vec::new() };
    let of_name = |layers: &'a [NotificationLayer]| layers.iter().filter(|layer| layer.name == name);
    match target.entry {
        Entry::Listed(index) => environment.targets.get(index).into_iter().flat_map(|t| of_name(&t.notifications)).collect(),
        Entry::Generated(index) => {
            let Some(from) = environment.targets_from.get(index) else { return Vec::new() };
            let mut layers: Vec<_> = of_name(&from.notifications).collect();
            for over in &from.overrides {
                let mut own = of_name(&over.notifications).peekable();
                if own.peek().is_some() && globs.match_cluster_of(target, &over.clusters) {
                    layers.extend(own);
                }
            }
            layers
        }
    }
}

/// The layer of a pipeline as a whole. It applies to targets that have no more specific layer.
#[must_use]
pub fn of_whole_pipeline(spec: &PipelineSpec, namespace: &str, name: &str) -> Option<Layer> {
    spec.notifications.iter().find(|l| l.name == name).map(|l| Layer::of(Source::Pipeline, namespace, l))
}

/// All layers of a pipeline, at any level.
pub fn all(spec: &PipelineSpec) -> impl Iterator<Item = &NotificationLayer> {
    let inner = spec.environments.iter().flat_map(|e| {
        let overrides = e.targets_from.iter().flat_map(|from| &from.overrides).flat_map(|over| &over.notifications);
        let generated = e.targets_from.iter().flat_map(|from| &from.notifications).chain(overrides);
        e.notifications.iter().chain(e.targets.iter().flat_map(|t| &t.notifications)).chain(generated)
    });
    spec.notifications.iter().chain(inner)
}

/// The names of all notifications for which a pipeline has a layer, at any level.
#[must_use]
pub fn names(spec: &PipelineSpec) -> BTreeSet<String> {
    all(spec).map(|layer| layer.name.clone()).collect()
}

fn fields(of: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(of) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// The result of merging layers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folded {
    /// The merged value.
    pub value: Map<String, Value>,
    /// By JSON Pointer, the layer that set the field, as an index into `sources`. Only empty objects and fields that are not objects have
    /// an entry.
    wrote: BTreeMap<String, usize>,
    sources: Vec<(Source, String)>,
}

/// Merges layers, least specific first. Calls `see` with the state after each layer.
pub fn fold(layers: &[Layer], mut see: impl FnMut(&Folded)) -> Result<Folded, Problem> {
    let mut folded = Folded::default();
    for (index, layer) in layers.iter().enumerate() {
        folded.sources.push((layer.source.clone(), layer.namespace.clone()));
        for pointer in &layer.remove {
            if pointer.split('/').nth(1) == Some("pipelineSelector") {
                let message =
                    format!("{pointer:?} in {}: a layer cannot remove pipelineSelector; delete this entry", layer.source);
                return Err(Problem::invalid("remove", message));
            }
            if let Some(whole) = WHOLE.into_iter().find(|whole| is_within(pointer, whole)) {
                let message = format!(
                    "{pointer:?} in {}: a layer cannot remove a part of {whole}; set all of it instead",
                    layer.source
                );
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
    /// The layer that set the field at this JSON Pointer. For an object, the most specific layer that set anything in it.
    #[must_use]
    pub fn author(&self, pointer: &str) -> Option<&Source> {
        self.wrote_at(pointer).and_then(|index| self.sources.get(index)).map(|(source, _)| source)
    }

    /// The namespace in which a reference at this JSON Pointer resolves: that of the most specific layer that set any part of it. So a
    /// layer cannot complete half of a reference to read an object in another namespace.
    #[must_use]
    pub fn namespace(&self, pointer: &str) -> Option<&str> {
        self.wrote_at(pointer).and_then(|index| self.sources.get(index)).map(|(_, namespace)| namespace.as_str())
    }

    /// The namespace of the layer that was merged last.
    pub(super) fn last_namespace(&self) -> Option<&str> {
        self.sources.last().map(|(_, namespace)| namespace.as_str())
    }

    /// The index of the most specific layer of this namespace.
    pub(super) fn last_of(&self, namespace: &str) -> Option<usize> {
        self.sources.iter().rposition(|(_, of)| of == namespace)
    }

    /// The least specific layer that set the field at this JSON Pointer or anything in it.
    pub(super) fn first_author(&self, pointer: &str) -> Option<&Source> {
        self.wrote_first(pointer).and_then(|index| self.sources.get(index)).map(|(source, _)| source)
    }

    fn wrote_at(&self, pointer: &str) -> Option<usize> {
        self.within(pointer).max()
    }

    /// The index of the least specific layer that set the field or anything in it. The field belongs to this layer if other layers only
    /// added to it.
    pub(super) fn wrote_first(&self, pointer: &str) -> Option<usize> {
        self.within(pointer).min()
    }

    /// The indexes of all layers that set the field or anything in it.
    pub(super) fn within(&self, pointer: &str) -> impl Iterator<Item = usize> {
        let inner = format!("{pointer}/");
        let itself = self.wrote.get(pointer).copied();
        let range = self.wrote.range(inner.clone()..).take_while(move |(p, _)| p.starts_with(&inner)).map(|(_, i)| *i);
        itself.into_iter().chain(range)
    }

    /// Every field that is an empty object or not an object, with the layer that set it.
    pub fn authors(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.wrote.iter().filter_map(|(pointer, index)| Some((pointer.as_str(), &self.sources.get(*index)?.0)))
    }

    /// Deletes the field at a JSON Pointer. `None`: the pointer is invalid. A pointer to a missing field is not an error, because less
    /// specific layers can change.
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

    /// Deletes the record of which layers set this field and anything in it.
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
                    let merges = target.get(name).is_some_and(Value::is_object) && !WHOLE.contains(&pointer.as_str());
                    if !merges {
                        self.forget(&pointer);
                        target.insert(name.clone(), Value::Object(Map::new()));
                    }
                    // Only an empty object has its own entry, because it has no field that could have one.
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

    /// Deletes the alternatives of a field that is about to be set. Fields of the same layer stay: a contradiction within a layer is
    /// reported when the whole result is resolved.
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

/// Whether a JSON Pointer is the one of a field in this object.
fn is_within(pointer: &str, object: &str) -> bool {
    pointer.strip_prefix(object).is_some_and(|rest| rest.starts_with('/'))
}

/// Escapes a name as one step of a JSON Pointer (RFC 6901).
pub(super) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;
