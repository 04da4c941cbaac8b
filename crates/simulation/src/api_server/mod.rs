//! Pure: the API server as a value: objects with versions, their history, and watches.
//!
//! In: requests, with the time. Out: answers, and the events of watches. It has no clock, no task and no lock.
//!
//! | module | what it does |
//! |---|---|
//! | [`kind`] | which kinds there are, and how they differ |
//! | [`request`] | reads a request from HTTP |
//! | [`failure`] | answers to what is refused |
//! | `write` | creates, replacements, patches, deletions; `object`, `patch` and `apply` have what is stored afterwards |
//! | `read` | lists in pages, and watches; `selector` has what they select |
//! | `discovery` | which resources it serves |
//! | `store` | the objects of a kind, with their history |
//!
//! # Differences from a real API server
//! There is no schema: nothing is validated, pruned or defaulted. Nothing checks permissions, and there is no admission, except that a new
//! object needs its namespace. There are no owners and no garbage collection, no dry runs, no generated names, and no deletion of
//! collections. A deletion has no other propagation than `Background`. Objects have no `managedFields`; lists in server-side apply are
//! atomic, and maps are not. There is no streaming list.

mod apply;
mod discovery;
pub mod failure;
pub mod kind;
mod object;
mod patch;
mod read;
pub mod request;
mod selector;
mod store;
mod write;

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::json;

use apply::Owners;
use failure::Failure;
use kind::Kind;
pub use object::Object;
pub use read::{Next, Watch};
use request::{Request, Verb};
use store::Collection;

/// The state of the API server.
#[derive(Debug)]
pub struct Server {
    kinds: Vec<Kind>,
    /// The objects of each kind.
    collections: Vec<Collection>,
    /// The version of the last change.
    version: u64,
    /// Lists and watches of earlier versions are refused.
    compacted: u64,
    /// Number of objects that were ever created.
    uids: u64,
    /// Whether a watch of a version that is too old is refused. Otherwise it begins, and its first event is the error.
    pub refuses_old_watches: bool,
}

/// The answer to a request that is carried out.
#[derive(Debug)]
pub enum Answer {
    /// The HTTP status, and a body.
    Body(u16, Bytes),
    /// Events follow.
    Watch(Box<Watch>),
}

impl Server {
    /// Returns an API server without objects.
    #[must_use]
    pub fn new(kinds: Vec<Kind>) -> Self {
        let collections = kinds.iter().map(|_| Collection::default()).collect();
        Self { kinds, collections, version: 1, compacted: 0, uids: 0, refuses_old_watches: false }
    }

    /// Carries out a request.
    ///
    /// # Errors
    ///
    /// If the API server refuses it. Then nothing has changed.
    pub fn answer(&mut self, request: &Request, now: Timestamp) -> Result<Answer, Failure> {
        let kind = self.kind(&request.group, &request.version, &request.plural).ok_or_else(Failure::unserved)?;
        if request.is_status && !self.kinds[kind].has_status {
            return Err(Failure::unserved());
        }
        match request.verb {
            Verb::Get => self.get(kind, request),
            Verb::List => self.list(kind, request),
            Verb::Watch => self.watch(kind, request),
            Verb::Create => self.create(kind, request, now),
            Verb::Replace | Verb::JsonPatch | Verb::MergePatch | Verb::Apply => self.change(kind, request, now),
            Verb::Delete => self.delete(kind, request, now),
        }
    }

    fn kind(&self, group: &str, version: &str, plural: &str) -> Option<usize> {
        self.kinds.iter().position(|kind| kind.group == group && kind.version == version && kind.plural == plural)
    }

    fn get(&self, kind: usize, request: &Request) -> Result<Answer, Failure> {
        let of = &self.kinds[kind];
        let found = self.collections[kind].get(&of.key(&request.namespace, &request.name));
        let found = found.ok_or_else(|| Failure::not_found(of, &request.name))?;
        Ok(Answer::Body(200, found.shown(request.is_metadata)))
    }

    /// Returns a stored object.
    #[must_use]
    pub fn object(&self, plural: &str, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        let kind = self.kinds.iter().position(|kind| kind.plural == plural)?;
        self.collections[kind].get(&self.kinds[kind].key(namespace, name))
    }

    /// Returns all objects of a kind, by namespace and name.
    pub fn objects(&self, plural: &str) -> impl Iterator<Item = &Arc<Object>> {
        let kind = self.kinds.iter().position(|kind| kind.plural == plural);
        kind.into_iter().flat_map(|kind| self.collections[kind].at(self.version).into_values())
    }

    /// Returns the version of the last change.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Forgets the history before a version. Lists and watches of earlier versions are refused from now on. A watch that has not delivered a
    /// forgotten change ends with an error.
    pub fn compact(&mut self, version: u64) {
        self.compacted = self.compacted.max(version.min(self.version));
        self.collections.iter_mut().for_each(|collection| collection.compact(self.compacted));
    }

    /// Creates a namespace.
    pub fn add_namespace(&mut self, name: &str, now: Timestamp) {
        let Some(kind) = self.kind("", "v1", "namespaces").filter(|_| !self.has_namespace(name)) else { return };
        let uid = self.next_uid();
        let value = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let value = object::created(&self.kinds[kind], value, "", &uid, now);
        self.store(kind, name, value, Owners::default());
    }

    /// Returns the uid of the next object. Uids differ early, because a hash of them divides the work among replicas.
    fn next_uid(&mut self) -> String {
        self.uids += 1;
        format!("{:08x}-0000-4000-8000-{:012x}", self.uids.wrapping_mul(0x9e37_79b9) & 0xffff_ffff, self.uids)
    }

    fn has_namespace(&self, name: &str) -> bool {
        self.object("namespaces", "", name).is_some()
    }
}
