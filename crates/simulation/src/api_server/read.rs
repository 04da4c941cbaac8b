//! Pure: lists and watches.
//!
//! In: selectors, pages and versions. Out: lists as they were at one version, and the events after a version, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::failure::Failure;
use super::object::{Object, partial, text};
use super::request::Request;
use super::selector::Selector;
use super::store::Change;
use super::{Answer, Server};

/// The state of a watch.
#[derive(Debug)]
pub struct Watch {
    /// The index of its kind.
    kind: usize,
    namespace: String,
    selector: Selector,
    is_metadata: bool,
    has_bookmarks: bool,
    /// Everything up to this version was delivered.
    version: u64,
    /// The objects that are reported first, because the watch has begun without a version.
    initial: VecDeque<Arc<Object>>,
    is_expired: bool,
}

/// What a watch reports next.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// A line with an event.
    Event(Bytes),
    /// Nothing, at present.
    Idle,
    /// The version is too old, see [`Server::expiry`].
    Expired,
}

impl Server {
    pub(super) fn list(&self, kind: usize, request: &Request) -> Result<Answer, Failure> {
        let of = &self.kinds[kind];
        let selector = Selector::parse(of, request.parameter("labelSelector"), request.parameter("fieldSelector"))?;
        let limit = request.parameter("limit").parse().unwrap_or(0_usize);
        let (version, after) = match request.parameter("continue").split_once(':') {
            Some((version, after)) => (version.parse().unwrap_or_default(), Some(after)),
            None => (self.version, None),
        };
        if version < self.compacted {
            return Err(Failure::expired());
        }
        let objects = self.collections[kind].at(version);
        let objects = objects.into_iter().filter(|(key, object)| {
            let is_later = after.is_none_or(|after| *key > after);
            is_later && is_in(&object.value, &request.namespace)
        });
        let all: Vec<(&str, &Arc<Object>)> = objects.collect();
        let mut objects: Vec<_> = all.iter().copied().filter(|(_, object)| selector.selects(&object.value)).collect();
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if of.is_custom && !request.is_metadata {
            metadata["continue"] = json!("");
        }
        // The server reads until the page is full. It does not know whether one of the further objects is selected.
        let is_full = limit > 0 && objects.len() >= limit;
        objects.truncate(if limit > 0 { limit } else { usize::MAX });
        let end = objects.last().map_or("", |(key, _)| key);
        let rest = all.iter().filter(|(key, _)| *key > end).count();
        if is_full && rest > 0 {
            metadata["continue"] = json!(format!("{version}:{end}"));
            if selector.is_empty() {
                metadata["remainingItemCount"] = json!(rest);
            }
        }
        let (list, api_version) = if request.is_metadata {
            ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned())
        } else {
            (of.kind.as_str(), of.api_version())
        };
        // The texts of the objects are not made again.
        let mut body =
            format!(r#"{{"kind":"{list}List","apiVersion":"{api_version}","metadata":{metadata},"items":"#).into_bytes();
        if objects.is_empty() && request.is_metadata {
            body.extend_from_slice(b"null}");
            return Ok(Answer::Body(200, body.into()));
        }
        for (n, (_, object)) in objects.iter().enumerate() {
            body.push(if n > 0 { b',' } else { b'[' });
            let is_named = of.is_custom || request.is_metadata;
            body.extend_from_slice(&if is_named { object.shown(request.is_metadata) } else { unnamed(object) });
        }
        body.extend_from_slice(if objects.is_empty() { b"[]}" } else { b"]}" });
        Ok(Answer::Body(200, body.into()))
    }

    pub(super) fn watch(&self, kind: usize, request: &Request) -> Result<Answer, Failure> {
        let selector =
            Selector::parse(&self.kinds[kind], request.parameter("labelSelector"), request.parameter("fieldSelector"))?;
        let version = request.parameter("resourceVersion");
        let version = if version == "0" || version.is_empty() { None } else { Some(version.parse().unwrap_or_default()) };
        let is_expired = version.is_some_and(|version| version < self.compacted);
        if is_expired && self.refuses_old_watches {
            return Err(Failure::expired());
        }
        let selected = |object: &&Arc<Object>| is_in(&object.value, &request.namespace) && selector.selects(&object.value);
        let initial = match version {
            Some(_) => VecDeque::new(),
            None => self.collections[kind].at(self.version).into_values().filter(selected).cloned().collect(),
        };
        Ok(Answer::Watch(Box::new(Watch {
            kind,
            namespace: request.namespace.clone(),
            is_metadata: request.is_metadata,
            has_bookmarks: request.parameter("allowWatchBookmarks") == "true",
            version: version.unwrap_or(self.version),
            selector,
            initial,
            is_expired,
        })))
    }

    /// Returns the last line of a watch whose version is too old.
    #[must_use]
    pub fn expiry() -> Bytes {
        line("ERROR", &text(&Failure::expired().status()))
    }

    /// Returns the next event of a watch.
    pub fn next_event(&self, watch: &mut Watch) -> Next {
        if let Some(object) = watch.initial.pop_front() {
            return Next::Event(line("ADDED", &object.shown(watch.is_metadata)));
        }
        let collection = &self.collections[watch.kind];
        if watch.is_expired || watch.version < collection.forgotten {
            return Next::Expired;
        }
        for change in collection.since(watch.version) {
            watch.version = change.version;
            if let Some(event) = watch.event(change) {
                return Next::Event(event);
            }
        }
        watch.version = self.version;
        Next::Idle
    }

    /// Returns how many changes a watch has not delivered yet, selected or not.
    #[must_use]
    pub fn behind(&self, watch: &Watch) -> usize {
        let collection = &self.collections[watch.kind];
        let is_expired = watch.is_expired || watch.version < collection.forgotten;
        watch.initial.len() + collection.since(watch.version).len() + usize::from(is_expired)
    }

    /// Returns a bookmark with the version up to which a watch has delivered everything. `None`: it wants none, or has not delivered the
    /// initial objects yet.
    #[must_use]
    pub fn bookmark(&self, watch: &Watch) -> Option<Bytes> {
        let of = &self.kinds[watch.kind];
        let metadata = json!({"resourceVersion": watch.version.to_string(), "creationTimestamp": null});
        let mut object = json!({"kind": of.kind, "apiVersion": of.api_version(), "metadata": metadata});
        if watch.is_metadata {
            object = partial(&object);
        }
        (watch.has_bookmarks && watch.initial.is_empty()).then(|| line("BOOKMARK", &text(&object)))
    }
}

impl Watch {
    /// Returns what the watch reports of a change. An object that is not selected any more counts as deleted.
    fn event(&self, change: &Change) -> Option<Bytes> {
        let selected = |object: &Arc<Object>| is_in(&object.value, &self.namespace) && self.selector.selects(&object.value);
        let before = change.before.as_ref().filter(|object| selected(object));
        let after = change.after.as_ref().filter(|object| selected(object));
        match (before, after) {
            (None, None) => None,
            (None, Some(object)) => Some(line("ADDED", &object.shown(self.is_metadata))),
            (Some(_), Some(object)) => Some(line("MODIFIED", &object.shown(self.is_metadata))),
            (Some(object), None) => {
                let mut value = object.value.clone();
                value["metadata"]["resourceVersion"] = json!(change.version.to_string());
                Some(line("DELETED", &text(&if self.is_metadata { partial(&value) } else { value })))
            }
        }
    }
}

/// Whether an object is in this namespace. Empty: all.
fn is_in(object: &Value, namespace: &str) -> bool {
    namespace.is_empty() || object["metadata"]["namespace"] == *namespace
}

/// Returns the text of an object without its kind.
fn unnamed(object: &Object) -> Bytes {
    let mut value = object.value.clone();
    if let Value::Object(fields) = &mut value {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    text(&value)
}

fn line(kind: &str, object: &[u8]) -> Bytes {
    [br#"{"type":""#, kind.as_bytes(), br#"","object":"#, object, b"}\n"].concat().into()
}
