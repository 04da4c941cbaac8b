//! Pure: creates, changes and deletions.
//!
//! In: objects and patches, with the version or uid that they expect. Out: the stored objects, with a new version if anything has changed.

use std::sync::Arc;

use jiff::Timestamp;
use json_patch::PatchOperation;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::apply::{Owners, apply};
use super::failure::Failure;
use super::kind::Kind;
use super::object::{self, Object, finalizers, is_terminating, meta, text};
use super::patch::patch;
use super::request::{Request, Verb};
use super::{Answer, Server};

const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

impl Server {
    pub(super) fn create(&mut self, kind: usize, request: &Request, now: Timestamp) -> Result<Answer, Failure> {
        let body = body(request)?;
        self.add(kind, request, body, Owners::default(), now)
    }

    fn add(
        &mut self,
        kind: usize,
        request: &Request,
        body: Value,
        owners: Owners,
        now: Timestamp,
    ) -> Result<Answer, Failure> {
        let of = &self.kinds[kind];
        let name = meta(&body, "name").to_owned();
        let namespace = &request.namespace;
        if name.is_empty() {
            return Err(Failure::invalid(of, "", "metadata.name: Required value: name or generateName is required"));
        }
        if ![namespace, ""].contains(&meta(&body, "namespace")) {
            return Err(Failure::bad(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if of.is_namespaced && !self.has_namespace(namespace) {
            let namespaces = Kind { plural: "namespaces".to_owned(), ..Kind::default() };
            return Err(Failure::not_found(&namespaces, namespace));
        }
        let key = of.key(namespace, &name);
        if self.collections[kind].get(&key).is_some() {
            return Err(Failure::exists(of, &name));
        }
        let uid = self.next_uid();
        let value = object::created(&self.kinds[kind], body, namespace, &uid, now);
        let stored = self.store(kind, &key, value, owners);
        Ok(Answer::Body(201, stored.shown(request.is_metadata)))
    }

    pub(super) fn change(&mut self, kind: usize, request: &Request, now: Timestamp) -> Result<Answer, Failure> {
        let of = &self.kinds[kind];
        let live = self.collections[kind].get(&of.key(&request.namespace, &request.name)).cloned();
        let new = match (request.verb, &live) {
            (Verb::Apply, _) if live.is_some() || !request.is_status => {
                return self.apply(kind, request, live.as_deref(), now);
            }
            (Verb::Replace, None) if of.creates_by_replace => return self.create_by_replace(kind, request, now),
            (_, None) => return Err(Failure::not_found(of, &request.name)),
            (Verb::Replace, _) => body(request)?,
            (Verb::JsonPatch, Some(live)) => {
                let mut value = live.value.clone();
                patch(&mut value, &body::<Vec<PatchOperation>>(request)?).map_err(|why| Failure::unprocessable(&why))?;
                value
            }
            (_, Some(live)) => {
                let mut value = live.value.clone();
                json_patch::merge(&mut value, &body(request)?);
                value
            }
        };
        match live {
            Some(live) => self.put(kind, request, &live, new, None),
            None => Err(Failure::not_found(&self.kinds[kind], &request.name)),
        }
    }

    /// A version is ignored.
    fn create_by_replace(&mut self, kind: usize, request: &Request, now: Timestamp) -> Result<Answer, Failure> {
        let new: Value = body(request)?;
        if !meta(&new, "uid").is_empty() {
            return Err(Failure::conflict(&self.kinds[kind], &request.name, "Precondition failed: UID in precondition"));
        }
        self.add(kind, request, new, Owners::default(), now)
    }

    fn apply(&mut self, kind: usize, request: &Request, live: Option<&Object>, now: Timestamp) -> Result<Answer, Failure> {
        let of = &self.kinds[kind];
        let mut config: Value = body(request)?;
        if let (Value::Object(fields), true) = (&mut config, of.has_status && !request.is_status) {
            fields.remove("status");
        }
        let force = request.parameter("force") == "true";
        let applied = apply(live, &config, request.parameter("fieldManager"), force);
        let (value, owners) = applied.map_err(|fields| Failure::contested(&fields))?;
        match live {
            Some(live) => self.put(kind, request, live, value, Some(owners)),
            None if !meta(&config, "uid").is_empty() => {
                Err(Failure::conflict(of, &request.name, "uid mismatch: no existing object was found"))
            }
            None => self.add(kind, request, value, owners, now),
        }
    }

    /// Stores a changed object, unless it is the same. `owners`: after an apply.
    fn put(
        &mut self,
        kind: usize,
        request: &Request,
        live: &Object,
        new: Value,
        owners: Option<Owners>,
    ) -> Result<Answer, Failure> {
        let (of, name) = (&self.kinds[kind], request.name.as_str());
        let is_replace = request.verb == Verb::Replace;
        let (version, uid) = (meta(&new, "resourceVersion"), meta(&new, "uid"));
        let is_other = !uid.is_empty() && uid != meta(&live.value, "uid");
        if is_other && is_replace {
            return Err(Failure::conflict(of, name, "Precondition failed: UID in precondition"));
        }
        if version.is_empty() && is_replace && of.requires_version {
            return Err(Failure::unversioned(of, name));
        }
        if !version.is_empty() && version != live.version.to_string() {
            return Err(Failure::conflict(of, name, MODIFIED));
        }
        // A write of the status ignores all metadata but the version.
        if is_other && !request.is_status {
            return Err(Failure::invalid(of, name, "metadata.uid: field is immutable"));
        }
        if !["", name].contains(&meta(&new, "name")) {
            return Err(Failure::bad("the name of the object does not match the name on the URL"));
        }
        let next = object::changed(of, &live.value, new, request.is_status);
        let is_gone = is_terminating(&next);
        if is_gone && finalizers(&next).any(|name| !finalizers(&live.value).any(|old| old == name)) {
            return Err(Failure::invalid(
                of,
                name,
                "metadata.finalizers: no new finalizers can be added if the object is being deleted",
            ));
        }
        let owners = owners.unwrap_or_else(|| live.owners.after_update(&live.value, &next));
        if next == live.value && owners == live.owners {
            return Ok(Answer::Body(200, live.shown(request.is_metadata)));
        }
        let key = of.key(&request.namespace, name);
        if is_gone && finalizers(&next).next().is_none() {
            self.remove(kind, &key);
            // The answer is the object as it was requested. No version of it is stored.
            return Ok(Answer::Body(200, Object::new(next, owners, live.version).shown(request.is_metadata)));
        }
        let stored = self.store(kind, &key, next, owners);
        Ok(Answer::Body(200, stored.shown(request.is_metadata)))
    }

    pub(super) fn delete(&mut self, kind: usize, request: &Request, now: Timestamp) -> Result<Answer, Failure> {
        let of = &self.kinds[kind];
        let name = request.name.as_str();
        let key = of.key(&request.namespace, name);
        let options: Value = if request.body.is_empty() { Value::Null } else { body(request)? };
        let live = self.collections[kind].get(&key).ok_or_else(|| Failure::not_found(of, name))?.clone();
        if !["", "Background"].contains(&options["propagationPolicy"].as_str().unwrap_or_default()) {
            return Err(Failure::bad("the model knows only deletions in the background"));
        }
        for field in ["uid", "resourceVersion"] {
            let expected = options["preconditions"][field].as_str();
            if expected.is_some_and(|expected| expected != meta(&live.value, field)) {
                return Err(Failure::precondition(of, name, field));
            }
        }
        if finalizers(&live.value).next().is_none() {
            let mut details = json!({"name": name, "kind": of.plural, "uid": live.value["metadata"]["uid"]});
            if !of.group.is_empty() {
                details["group"] = json!(of.group);
            }
            self.remove(kind, &key);
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
            return Ok(Answer::Body(200, text(&status)));
        }
        if is_terminating(&live.value) {
            return Ok(Answer::Body(200, live.shown(false)));
        }
        let next = object::terminating(&live.value, now);
        let stored = self.store(kind, &key, next, live.owners.clone());
        Ok(Answer::Body(200, stored.shown(false)))
    }

    /// Stores an object with the next version.
    pub(super) fn store(&mut self, kind: usize, key: &str, value: Value, owners: Owners) -> Arc<Object> {
        self.version += 1;
        let object = Arc::new(Object::new(value, owners, self.version));
        self.collections[kind].set(key, self.version, Some(object.clone()));
        object
    }

    fn remove(&mut self, kind: usize, key: &str) {
        self.version += 1;
        self.collections[kind].set(key, self.version, None);
    }
}

fn body<T: DeserializeOwned>(request: &Request) -> Result<T, Failure> {
    serde_json::from_slice(&request.body).map_err(|error| Failure::bad(&error.to_string()))
}
