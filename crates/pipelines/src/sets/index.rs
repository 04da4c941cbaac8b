//! The sets and their pipelines that the watches have delivered, and what this replica has written since.
//!
//! In: watch events, and answers of the API server. Out: the sets, the pipelines of each, and which sets must be reconciled. An answer can be
//! newer than the watch, so objects are replaced only by newer ones.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use kube::ResourceExt as _;
use kube::runtime::watcher::Event;

use super::made::Made;
use relaybook_api::{ObjectName, Pipeline, PipelineSet, version};
use relaybook_core::reading::Follower;
use relaybook_runtime::controller::Listing;

/// Maximum number of deletions that are remembered.
const DELETIONS: usize = 1024;

/// What an event has changed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Absorbed {
    /// Sets to reconcile.
    pub wake: Vec<Follower>,
    /// Sets that are gone.
    pub gone: Vec<Follower>,
}

/// All sets and their pipelines.
#[derive(Debug, Default)]
pub(super) struct Index {
    sets: HashMap<Follower, Arc<PipelineSet>>,
    /// The pipelines of sets, and the set of each.
    made: BTreeMap<ObjectName, (String, Made)>,
    /// Uids of pipelines that were deleted. An answer that arrives afterwards is dropped.
    deleted: VecDeque<String>,
}

impl Index {
    pub(super) fn sets(&self) -> impl Iterator<Item = (&Follower, &Arc<PipelineSet>)> + Clone {
        self.sets.iter()
    }

    pub(super) fn set(&self, key: &Follower) -> Option<&Arc<PipelineSet>> {
        self.sets.get(key)
    }

    /// Returns the pipelines of a set, by name.
    pub(super) fn made(&self, key: &Follower) -> BTreeMap<String, Made> {
        let here = self.made.range(ObjectName::new(&key.namespace, "")..);
        let here = here.take_while(|(place, _)| place.namespace == key.namespace).filter(|(_, (set, _))| *set == key.name);
        here.map(|(place, (_, made))| (place.name.clone(), made.clone())).collect()
    }

    /// Applies an event of a set. A change of its status alone wakes nobody.
    pub(super) fn absorb_set(&mut self, listing: &mut Listing, event: Event<PipelineSet>) -> Absorbed {
        let mut absorbed = Absorbed::default();
        listing.note(&event, ObjectName::of);
        match event {
            Event::Init => {}
            Event::Apply(set) | Event::InitApply(set) => {
                let key = key_of(&set);
                let identity = |set: &PipelineSet| (set.metadata.uid.clone(), set.metadata.generation);
                let known = self.sets.get(&key);
                if known.is_none_or(|known| identity(known) != identity(&set)) {
                    absorbed.wake.push(key.clone());
                }
                if known.is_none_or(|known| !is_older(&set, known)) {
                    self.sets.insert(key, Arc::new(set));
                }
            }
            Event::Delete(set) => absorbed.gone.push(key_of(&set)),
            Event::InitDone => {
                let name = |key: &Follower| ObjectName::new(&key.namespace, &key.name);
                absorbed.gone = listing.end(self.sets.keys(), name);
            }
        }
        for key in &absorbed.gone {
            self.sets.remove(key);
        }
        absorbed
    }

    /// Applies an event of a pipeline. It wakes its set only if a decision can depend on it.
    pub(super) fn absorb_pipeline(&mut self, listing: &mut Listing, event: Event<Pipeline>) -> Absorbed {
        let mut absorbed = Absorbed::default();
        listing.note(&event, ObjectName::of);
        match event {
            Event::Init => {}
            Event::Apply(pipeline) | Event::InitApply(pipeline) => {
                let place = ObjectName::of(&pipeline);
                absorbed.wake.extend(match Made::of(&pipeline) {
                    Some((set, made)) => self.found(place, set, made),
                    None => self.remove(&place),
                });
            }
            Event::Delete(pipeline) => absorbed.wake.extend(self.remove(&ObjectName::of(&pipeline))),
            Event::InitDone => {
                let gone = listing.end(self.made.keys(), Clone::clone);
                absorbed.wake.extend(gone.iter().filter_map(|place| self.remove(place)));
            }
        }
        absorbed
    }

    /// Stores a pipeline of a set that exists now. One whose label was removed looked as if it was deleted.
    pub(super) fn found(&mut self, place: ObjectName, set: String, made: Made) -> Option<Follower> {
        self.deleted.retain(|uid| *uid != made.uid);
        self.put(place, set, made)
    }

    /// Stores a pipeline of a set, unless a newer one is known. Returns the set if it must be reconciled.
    pub(super) fn put(&mut self, place: ObjectName, set: String, made: Made) -> Option<Follower> {
        let known = self.made.get(&place);
        let is_newer = |known: &Made| known.uid == made.uid && version(Some(&known.version)) > version(Some(&made.version));
        if known.is_some_and(|(_, known)| is_newer(known)) || self.deleted.contains(&made.uid) {
            return None;
        }
        let is_changed = known.is_none_or(|(of, known)| *of != set || !known.is_like(&made));
        let key = Follower::set(&place.namespace, &set);
        self.made.insert(place, (set, made));
        is_changed.then_some(key)
    }

    fn remove(&mut self, place: &ObjectName) -> Option<Follower> {
        let (set, made) = self.made.remove(place)?;
        self.deleted.push_back(made.uid);
        if self.deleted.len() > DELETIONS {
            self.deleted.pop_front();
        }
        Some(Follower::set(&place.namespace, set))
    }

    /// Stores a set with the status that was just written, unless the watch has delivered a newer one.
    pub(super) fn renew(&mut self, key: &Follower, set: PipelineSet) {
        if self.sets.get(key).is_some_and(|known| is_older(known, &set)) {
            self.sets.insert(key.clone(), Arc::new(set));
        }
    }
}

/// Whether `one` is an older state of the same set.
fn is_older(one: &PipelineSet, other: &PipelineSet) -> bool {
    let of = |set: &PipelineSet| version(set.metadata.resource_version.as_deref());
    one.metadata.uid == other.metadata.uid && of(one) < of(other)
}

fn key_of(set: &PipelineSet) -> Follower {
    Follower::set(set.namespace().unwrap_or_default(), set.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pipeline(name: &str, version: &str, set: &str, label: &str) -> Pipeline {
        let source = json!({"apiVersion": "v1", "kind": "K", "namespace": "n", "name": name});
        serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"namespace": "t", "name": name, "uid": name, "resourceVersion": version, "labels": {"a": label}},
            "spec": {"environments": [], "pipelineSet": {"name": set, "source": source}},
        }))
        .unwrap()
    }

    fn set(name: &str, generation: i64, version: &str) -> PipelineSet {
        let mut set = PipelineSet::new(name, relaybook_api::PipelineSetSpec::default());
        set.metadata.namespace = Some("t".into());
        set.metadata.generation = Some(generation);
        set.metadata.resource_version = Some(version.into());
        set
    }

    #[test]
    fn a_pipeline_wakes_its_set_if_a_decision_can_depend_on_it() {
        let (mut index, mut listing) = (Index::default(), Listing::default());
        let mut woken = |event| index.absorb_pipeline(&mut listing, event).wake;
        let apps = Follower::set("t", "apps");
        assert_eq!(woken(Event::Apply(pipeline("a", "5", "apps", "x"))), std::slice::from_ref(&apps));
        assert_eq!(woken(Event::Apply(pipeline("a", "6", "apps", "x"))), []);
        assert_eq!(woken(Event::Apply(pipeline("a", "7", "apps", "y"))), std::slice::from_ref(&apps));
        assert_eq!(woken(Event::Apply(pipeline("a", "6", "apps", "z"))), [], "it is older");
        assert_eq!(woken(Event::Apply(pipeline("b", "8", "other", "x"))), [Follower::set("t", "other")]);
        assert_eq!(index.made(&apps).keys().collect::<Vec<_>>(), ["a"]);
        let mut absorb = |event| index.absorb_pipeline(&mut listing, event);
        for event in [Event::Init, Event::InitApply(pipeline("b", "8", "other", "x"))] {
            absorb(event);
        }
        assert_eq!(absorb(Event::InitDone).wake, std::slice::from_ref(&apps), "it is missing from the list");
        assert_eq!(
            index.put(ObjectName::new("t", "a"), "apps".into(), Made::of(&pipeline("a", "9", "apps", "x")).unwrap().1),
            None
        );
        assert!(index.made(&apps).is_empty(), "an answer that arrives after the deletion is dropped");
    }

    #[test]
    fn a_set_is_processed_when_its_generation_changes() {
        let (mut index, mut listing) = (Index::default(), Listing::default());
        let key = Follower::set("t", "apps");
        for (set, expected) in [(set("apps", 1, "5"), 1), (set("apps", 1, "6"), 0), (set("apps", 2, "7"), 1)] {
            assert_eq!(index.absorb_set(&mut listing, Event::Apply(set)).wake.len(), expected);
        }
        index.renew(&key, set("apps", 3, "6"));
        assert_eq!(index.set(&key).unwrap().metadata.generation, Some(2), "an older answer is dropped");
        index.renew(&key, set("apps", 2, "9"));
        assert_eq!(index.set(&key).unwrap().metadata.resource_version.as_deref(), Some("9"));
        index.absorb_set(&mut listing, Event::Init);
        assert_eq!(index.absorb_set(&mut listing, Event::InitDone).gone, std::slice::from_ref(&key));
        assert!(index.set(&key).is_none());
    }
}
