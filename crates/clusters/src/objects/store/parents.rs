//! The objects that are read together with a family of parts, by both. Plain data.
//!
//! In: an object, and the cache and family of its parts. Out: the family of an object, and the objects of a family. There can be tens of
//! thousands, so each name and each key of a cache is in memory once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::objects::cache::CacheKey;
use relaybook_api::ObjectName;
use relaybook_core::observe::Family;

/// An object: the key of its cache, and its name.
pub(super) type ParentId = (Arc<CacheKey>, Arc<ObjectName>);

/// The cache of the parts, and their family.
pub(super) type PartsOf = (Arc<CacheKey>, Arc<Family>);

/// All objects that are read together with parts.
#[derive(Debug, Default)]
pub(super) struct Parents {
    /// By the cache of the parts, and by family.
    by_family: HashMap<Arc<CacheKey>, HashMap<Arc<Family>, HashSet<ParentId>>>,
    /// By the cache of the objects, and by name.
    parts_of: HashMap<Arc<CacheKey>, HashMap<Arc<ObjectName>, PartsOf>>,
}

impl Parents {
    /// Returns the cache of the parts of an object, and their family.
    pub fn parts_of(&self, key: &CacheKey, name: &ObjectName) -> Option<&PartsOf> {
        self.parts_of.get(key)?.get(name)
    }

    /// Adds an object that is not known yet. Returns its family, as all objects of the family share it.
    pub fn insert(&mut self, key: &CacheKey, name: Arc<ObjectName>, (parts, family): (CacheKey, Family)) -> Arc<Family> {
        let key = self.parts_of.get_key_value(key).map_or_else(|| Arc::new(key.clone()), |(known, _)| known.clone());
        let parts = self.by_family.get_key_value(&parts).map_or_else(|| Arc::new(parts), |(known, _)| known.clone());
        let families = self.by_family.entry(parts.clone()).or_default();
        let family = families.get_key_value(&family).map_or_else(|| Arc::new(family), |(known, _)| known.clone());
        families.entry(family.clone()).or_default().insert((key.clone(), name.clone()));
        self.parts_of.entry(key).or_default().insert(name, (parts, family.clone()));
        family
    }

    /// Removes an object.
    pub fn remove(&mut self, key: &CacheKey, name: &ObjectName) {
        let Some(key) = self.parts_of.get_key_value(key).map(|(key, _)| key.clone()) else { return };
        let Some(of_cache) = self.parts_of.get_mut(&key) else { return };
        let Some((name, (parts, family))) = of_cache.remove_entry(name) else { return };
        if of_cache.is_empty() {
            self.parts_of.remove(&key);
        }
        let Some(families) = self.by_family.get_mut(&parts) else { return };
        if let Some(objects) = families.get_mut(&family) {
            objects.remove(&(key, name));
            if objects.is_empty() {
                families.remove(&family);
            }
        }
        if families.is_empty() {
            self.by_family.remove(&parts);
        }
    }

    /// Returns the objects with these families of parts in a cache. With `namespace`, also those of all families in it.
    pub fn of_families(&self, parts: &CacheKey, families: &[Family], namespace: Option<&str>) -> HashSet<ParentId> {
        let Some(all) = self.by_family.get(parts) else { return HashSet::new() };
        let mut objects: HashSet<ParentId> =
            families.iter().filter_map(|family| all.get(family)).flatten().cloned().collect();
        if let Some(namespace) = namespace {
            let near = all.iter().filter(|(family, _)| family.namespace == namespace);
            objects.extend(near.flat_map(|(_, objects)| objects).cloned());
        }
        objects
    }

    /// Returns all objects with parts in a cache.
    pub fn with_parts_in(&self, parts: &CacheKey) -> Vec<ParentId> {
        self.by_family.get(parts).into_iter().flat_map(HashMap::values).flatten().cloned().collect()
    }

    /// Whether there are none.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.by_family.is_empty() && self.parts_of.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::values::kind::ObjectKind;

    #[test]
    fn removed_parents_leave_no_entries_behind() {
        let key = |kind: &str| CacheKey {
            cluster: None,
            revision_path: None,
            cluster_path: None,
            record: None,
            kind: ObjectKind::parse("v1", kind).unwrap(),
            namespace: None,
        };
        let name = |name: &str| Arc::new(ObjectName::new("n", name));
        let family = |name: &str| Family::test("n", name);
        let (own, parts) = (key("Parent"), key("Part"));
        let mut parents = Parents::default();
        let shared = parents.insert(&own, name("a"), (parts.clone(), family("x")));
        assert!(Arc::ptr_eq(&shared, &parents.insert(&own, name("b"), (parts.clone(), family("x")))));
        parents.insert(&own, name("c"), (parts.clone(), family("y")));
        let names = |objects: HashSet<ParentId>| {
            let mut names: Vec<_> = objects.into_iter().map(|(_, name)| name.name.clone()).collect();
            names.sort();
            names
        };
        assert_eq!(names(parents.of_families(&parts, &[family("x")], None)), ["a", "b"]);
        assert_eq!(names(parents.of_families(&parts, &[family("z")], Some("n"))), ["a", "b", "c"]);
        assert_eq!(parents.with_parts_in(&parts).len(), 3);
        assert!(parents.of_families(&own, &[family("x")], Some("n")).is_empty());
        for gone in ["a", "b", "c", "never"] {
            parents.remove(&own, &name(gone));
        }
        assert!(parents.is_empty() && parents.parts_of(&own, &name("a")).is_none());
    }
}
