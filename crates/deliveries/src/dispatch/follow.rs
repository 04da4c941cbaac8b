//! The objects that the dispatcher follows. Each watch event is applied first, and then its object is reconciled.
//!
//! In: watch events. Out: the objects, what is remembered of each, and the keys to reconcile. What an object means is put into the pipeline
//! index and the [configuration](crate::dispatch::config).

pub(super) mod global;
pub(super) mod notifications;
pub(super) mod pipelines;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use kube::runtime::watcher::Event;

use super::{Context, wake};
use relaybook_api::ObjectName;
use relaybook_runtime::controller::{Listing, Wakes};
use relaybook_runtime::watch::Deleted;

/// What is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Key {
    Pipeline(ObjectName),
    Notification(ObjectName),
}

/// A resource of Relaybook that the dispatcher follows. None of these methods waits.
pub(super) trait Followed:
    Deleted + Resource<Scope = NamespaceResourceScope> + Clone + Debug + Send + Sync + 'static
{
    /// What is remembered of an object from one reconcile to the next.
    type Memory: Default + Send + 'static;

    /// Returns the key of an object.
    fn key(of: ObjectName) -> Key;

    /// Applies the current version of the object. Returns whether it can refer to other Secrets and ConfigMaps than before.
    fn put(&self, ctx: &Context) -> bool;

    /// Removes the object, which is gone. Returns whether fewer Secrets and ConfigMaps can be needed.
    fn remove(&self, ctx: &Context) -> bool;
}

/// What an event has changed.
#[derive(Debug)]
pub(super) struct Absorbed<K> {
    /// The current version of an object.
    put: Option<Arc<K>>,
    /// Objects that are gone.
    gone: Vec<Arc<K>>,
    /// Objects to reconcile.
    wake: Vec<ObjectName>,
    is_in_list: bool,
    ends_list: bool,
}

impl<K: Followed> Absorbed<K> {
    /// Applies the changes, and wakes the objects. A new object is put before another one of its name is removed.
    pub fn apply(self, ctx: &Context, wakes: &mut Wakes<Key>) {
        let mut is_wanted = self.put.is_some_and(|object| object.put(ctx));
        for object in self.gone {
            wakes.forget(&K::key(ObjectName::of(&*object)));
            is_wanted |= object.remove(ctx);
        }
        // During a list, the watches are updated only once, at its end.
        if self.ends_list || is_wanted && !self.is_in_list {
            wake::set_wanted(ctx);
        }
        self.wake.into_iter().for_each(|of| wakes.wake(K::key(of)));
    }
}

/// The objects of one resource, and the list in progress of each of its watches.
pub(super) struct Objects<K: Followed> {
    known: HashMap<ObjectName, (Arc<K>, K::Memory)>,
    listings: Vec<Listing>,
}

impl<K: Followed> Objects<K> {
    /// Returns no objects yet, for watches of these namespaces.
    pub fn of(namespaces: &[Option<String>]) -> Self {
        Self { known: HashMap::new(), listings: namespaces.iter().cloned().map(Listing::of).collect() }
    }

    /// Takes an event of the watch of the namespace with this number. During a list, nothing is woken. At its end, all its objects are.
    pub fn absorb(&mut self, watch: usize, event: Event<K>) -> Absorbed<K> {
        self.listings[watch].note(&event, ObjectName::of);
        let (is_in_list, ends_list) = (matches!(event, Event::InitApply(_)), matches!(event, Event::InitDone));
        let mut absorbed = Absorbed { put: None, gone: Vec::new(), wake: Vec::new(), is_in_list, ends_list };
        match event {
            Event::Init => {}
            Event::InitApply(object) | Event::Apply(object) => {
                let (of, object) = (ObjectName::of(&object), Arc::new(object));
                if !is_in_list {
                    absorbed.wake.push(of.clone());
                }
                absorbed.gone.extend(self.put(of, object.clone()));
                absorbed.put = Some(object);
            }
            Event::Delete(object) => {
                self.known.remove(&ObjectName::of(&object));
                absorbed.gone.push(Arc::new(object));
            }
            Event::InitDone => {
                let gone = self.listings[watch].end(self.known.keys(), Clone::clone);
                absorbed.gone.extend(gone.iter().filter_map(|of| Some(self.known.remove(of)?.0)));
                let listed = self.known.keys().filter(|of| self.listings[watch].covers(&of.namespace));
                absorbed.wake.extend(listed.cloned());
            }
        }
        absorbed
    }

    /// Puts an object. Returns another one of its name, whose deletion the watch has missed.
    fn put(&mut self, of: ObjectName, object: Arc<K>) -> Option<Arc<K>> {
        match self.known.entry(of) {
            Entry::Occupied(mut entry) if entry.get().0.meta().uid == object.meta().uid => {
                entry.get_mut().0 = object;
                None
            }
            Entry::Occupied(mut entry) => Some(entry.insert((object, K::Memory::default())).0),
            Entry::Vacant(entry) => {
                entry.insert((object, K::Memory::default()));
                None
            }
        }
    }

    /// Wakes all objects.
    pub fn wake_all(&self, wakes: &mut Wakes<Key>) {
        self.known.keys().for_each(|of| wakes.wake(K::key(of.clone())));
    }

    /// Returns an object.
    pub fn get(&self, of: &ObjectName) -> Option<&K> {
        self.known.get(of).map(|(object, _)| &**object)
    }

    /// Returns an object, and takes what is remembered of it.
    pub fn take(&mut self, of: &ObjectName) -> Option<(Arc<K>, K::Memory)> {
        self.known.get_mut(of).map(|(object, memory)| (object.clone(), std::mem::take(memory)))
    }

    /// Takes all objects, and what is remembered of them.
    pub fn take_all(&mut self) -> impl Iterator<Item = (Arc<K>, K::Memory)> + use<K> {
        std::mem::take(&mut self.known).into_values()
    }

    /// Remembers something of an object, unless it is gone.
    pub fn remember(&mut self, object: &K, memory: K::Memory) {
        let known = self.known.get_mut(&ObjectName::of(object));
        if let Some((_, place)) = known.filter(|(known, _)| known.meta().uid == object.meta().uid) {
            *place = memory;
        }
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::status::written::Last;
    use relaybook_api::{Notification, NotificationSpec};

    fn object(text: &str) -> Notification {
        let (of, uid) = text.split_once(':').unwrap();
        let (namespace, name) = of.split_once('/').unwrap();
        let mut object = Notification::new(name, NotificationSpec::default());
        object.metadata.namespace = Some(namespace.to_owned());
        object.metadata.uid = Some(uid.to_owned());
        object
    }

    /// Returns what an event has changed, as text.
    fn changes(absorbed: &Absorbed<Notification>) -> String {
        let show = |object: &Arc<Notification>| object.metadata.uid.clone().unwrap_or_default();
        let put = absorbed.put.iter().map(|object| format!("put {}", show(object)));
        let gone = absorbed.gone.iter().map(|object| format!("remove {}", show(object)));
        let mut woken: Vec<_> = absorbed.wake.iter().map(|of| format!("wake {of}")).collect();
        woken.sort();
        put.chain(gone).chain(woken).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn an_event_changes_one_object_and_the_end_of_a_list_those_of_its_namespace() {
        use Event::{Apply, Delete, Init, InitApply, InitDone};
        let mut objects = Objects::of(&[Some("a".to_owned()), Some("b".to_owned())]);
        for (watch, event, expected) in vec![
            (0, Init, ""),
            (0, InitApply(object("a/x:1")), "put 1"),
            (0, InitApply(object("a/y:2")), "put 2"),
            (1, Apply(object("b/z:3")), "put 3, wake b/z"),
            (0, InitDone, "wake a/x, wake a/y"),
            (0, Apply(object("a/x:4")), "put 4, remove 1, wake a/x"),
            (0, Apply(object("a/x:4")), "put 4, wake a/x"),
            (0, Delete(object("a/y:2")), "remove 2"),
            (0, Delete(object("a/unknown:5")), "remove 5"),
            (0, Init, ""),
            (0, InitApply(object("a/y:6")), "put 6"),
            (0, InitDone, "remove 4, wake a/y"),
            (1, Init, ""),
            (1, InitDone, "remove 3"),
        ] {
            let what = format!("{event:?}");
            assert_eq!(changes(&objects.absorb(watch, event)), expected, "{what}");
        }
        assert_eq!(objects.len(), 1);
    }

    #[test]
    fn what_is_remembered_belongs_to_one_object() {
        let (mut objects, of) = (Objects::of(&[None]), ObjectName::new("a", "x"));
        let last = || Last { version: 7, ..Last::default() };
        objects.absorb(0, Event::Apply(object("a/x:1")));
        let (first, _) = objects.take(&of).unwrap();
        objects.remember(&first, last());
        objects.absorb(0, Event::Apply(object("a/x:1")));
        assert_eq!(objects.take(&of).unwrap().1.version, 7);
        assert_eq!(objects.take(&of).unwrap().1.version, 0, "it was taken");
        objects.absorb(0, Event::Apply(object("a/x:2")));
        objects.remember(&first, last());
        assert_eq!(objects.take(&of).unwrap().1.version, 0, "a reconcile of the first one has ended late");
    }
}
