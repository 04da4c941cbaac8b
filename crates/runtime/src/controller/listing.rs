//! The list in progress of a watch.
//!
//! In: the events of the watch. Out: which of the known objects are gone, because the list does not contain them.

use std::collections::HashSet;

use kube::runtime::watcher::Event;
use relaybook_api::ObjectName;

/// The list in progress of one watch. An object is identified by its namespace, and by its name or uid.
#[derive(Debug, Default)]
pub struct Listing {
    namespace: Option<String>,
    names: HashSet<ObjectName>,
}

impl Listing {
    /// Returns the list of the watch of a namespace, or of all.
    #[must_use]
    pub fn of(namespace: Option<String>) -> Self {
        Self { namespace, names: HashSet::new() }
    }

    /// Whether the watch delivers the objects of this namespace.
    #[must_use]
    pub fn covers(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|own| own == namespace)
    }

    /// Notes the object of an event, if it is a part of the list. `name`: what identifies an object.
    pub fn note<K>(&mut self, event: &Event<K>, name: impl FnOnce(&K) -> ObjectName) {
        match event {
            Event::Init => self.names.clear(),
            Event::InitApply(object) => {
                self.names.insert(name(object));
            }
            Event::Apply(_) | Event::Delete(_) | Event::InitDone => {}
        }
    }

    /// Ends the list. Returns which objects are gone, of those that are known.
    pub fn end<'k, T: Clone + 'k>(&mut self, known: impl Iterator<Item = &'k T>, name: impl Fn(&T) -> ObjectName) -> Vec<T> {
        let names = std::mem::take(&mut self.names);
        let is_gone = |name: &ObjectName| self.covers(&name.namespace) && !names.contains(name);
        known.filter(|known| is_gone(&name(known))).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_ends_what_it_does_not_contain_in_its_namespace() {
        let known = ["a/x", "a/y", "b/z"];
        let name = |text: &&str| text.split_once('/').map(|(namespace, name)| ObjectName::new(namespace, name)).unwrap();
        for (namespace, listed, expected) in [
            (Some("a"), &["a/x"][..], &["a/y"][..]),
            (Some("a"), &[], &["a/x", "a/y"]),
            (Some("c"), &[], &[]),
            (None, &["a/x", "a/y"], &["b/z"]),
        ] {
            let mut listing = Listing::of(namespace.map(str::to_owned));
            // The list before was interrupted.
            for event in [Event::Init, Event::InitApply("a/y"), Event::Init, Event::Apply("a/y")] {
                listing.note(&event, name);
            }
            for object in listed {
                listing.note(&Event::InitApply(*object), name);
            }
            assert_eq!(listing.end(known.iter(), name), expected, "{namespace:?}");
        }
    }
}
