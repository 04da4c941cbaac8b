//! The promotions of the watched namespaces, by pipeline.
//!
//! In: events of the watches. Out: the promotions of a pipeline ([`Promotions::of`]), and the pipelines to reconcile. The list before stays until
//! a new one is complete. With a part of a list, the status of a pipeline could follow a promotion before the last steps of an earlier one.
//!
//! A pipeline is identified by its uid: a pipeline that is created again under the same name has no promotions yet. Only the parts of an
//! object are kept that the status of its pipeline depends on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;

use relaybook_api::{ObjectName, Promotion};
use relaybook_core::reading::Follower;
use relaybook_runtime::controller::Listing;

/// Namespace and uid of a pipeline.
type Owner = (String, String);

/// The known promotions.
#[derive(Debug, Default)]
pub(super) struct Promotions {
    /// The promotions of each pipeline, by name.
    kept: HashMap<Owner, BTreeMap<String, Arc<Promotion>>>,
    /// The uid of the pipeline of each promotion. Of a deleted object, possibly only the name is known.
    owners: HashMap<ObjectName, String>,
    /// The list in progress of each watch, by its number.
    listed: HashMap<usize, Vec<Promotion>>,
}

impl Promotions {
    /// Returns the promotions of a pipeline.
    pub(super) fn of(&self, namespace: &str, uid: &str) -> Vec<Arc<Promotion>> {
        let owner = (namespace.to_owned(), uid.to_owned());
        self.kept.get(&owner).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Applies an event of a watch. Returns the pipelines whose promotions have changed, except by a list.
    pub(super) fn absorb(&mut self, (watch, listing): (usize, &Listing), event: Event<Promotion>) -> BTreeSet<Follower> {
        match event {
            Event::Init => drop(self.listed.remove(&watch)),
            Event::InitApply(promotion) => self.listed.entry(watch).or_default().push(promotion),
            Event::InitDone => {
                let listed = self.listed.remove(&watch).unwrap_or_default();
                self.kept.retain(|(namespace, _), _| !listing.covers(namespace));
                self.owners.retain(|name, _| !listing.covers(&name.namespace));
                for promotion in listed {
                    self.put(promotion);
                }
            }
            Event::Apply(promotion) => return self.put(promotion),
            Event::Delete(promotion) => return self.remove(&ObjectName::of(&promotion)),
        }
        BTreeSet::new()
    }

    /// Stores a promotion. Returns the pipelines whose promotions have changed. One that is being deleted makes no further steps, so it
    /// counts as deleted.
    fn put(&mut self, promotion: Promotion) -> BTreeSet<Follower> {
        let name = ObjectName::of(&promotion);
        if promotion.metadata.deletion_timestamp.is_some() {
            return self.remove(&name);
        }
        let promotion = lean(promotion);
        let owner = (name.namespace.clone(), promotion.spec.pipeline_ref.uid.clone());
        // A promotion that is created again under the same name can belong to another pipeline.
        let is_moved = self.owners.get(&name).is_some_and(|uid| *uid != owner.1);
        let mut woken = if is_moved { self.remove(&name) } else { BTreeSet::new() };
        woken.insert(pipeline(&promotion));
        self.owners.insert(name.clone(), owner.1.clone());
        self.kept.entry(owner).or_default().insert(name.name, Arc::new(promotion));
        woken
    }

    /// Removes a promotion. Returns the pipelines whose promotions have changed.
    fn remove(&mut self, name: &ObjectName) -> BTreeSet<Follower> {
        let Some(uid) = self.owners.remove(name) else { return BTreeSet::new() };
        let owner = (name.namespace.clone(), uid);
        let Some(all) = self.kept.get_mut(&owner) else { return BTreeSet::new() };
        let removed = all.remove(&name.name);
        if all.is_empty() {
            self.kept.remove(&owner);
        }
        removed.iter().map(|promotion| pipeline(promotion)).collect()
    }
}

/// The promotion without the parts that no status depends on.
fn lean(promotion: Promotion) -> Promotion {
    let Promotion { metadata, spec, status } = promotion;
    let ObjectMeta { name, namespace, uid, creation_timestamp, .. } = metadata;
    Promotion { metadata: ObjectMeta { name, namespace, uid, creation_timestamp, ..ObjectMeta::default() }, spec, status }
}

/// The pipeline that a promotion names. Another pipeline can have this name now. Then its reconcile changes nothing.
fn pipeline(promotion: &Promotion) -> Follower {
    Follower::pipeline(ObjectName::of(promotion).namespace, promotion.spec.pipeline_ref.name.clone())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use relaybook_api::PromotionSpec;
    use relaybook_api::promotion::PromotedPipeline;

    fn promotion(namespace: &str, name: &str, pipeline: &str, uid: &str) -> Promotion {
        let pipeline_ref = PromotedPipeline { name: pipeline.into(), uid: uid.into() };
        let mut promotion = Promotion::new(name, PromotionSpec { pipeline_ref, ..PromotionSpec::default() });
        promotion.metadata.namespace = Some(namespace.into());
        promotion.metadata.annotations = Some(BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        promotion
    }

    /// Applies an event of the watch of all namespaces. Returns the names of the pipelines to reconcile.
    fn absorb(promotions: &mut Promotions, event: Event<Promotion>) -> String {
        let woken = promotions.absorb((0, &Listing::default()), event);
        woken.iter().map(|key| format!("{}/{}", key.namespace, key.name)).collect::<Vec<_>>().join(" ")
    }

    /// Returns the names of the promotions of a pipeline.
    fn of(promotions: &Promotions, namespace: &str, uid: &str) -> String {
        let all = promotions.of(namespace, uid);
        all.iter().map(|promotion| promotion.metadata.name.clone().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn promotions_belong_to_the_pipeline_with_their_uid() {
        let mut all = Promotions::default();
        for (namespace, name, uid, woken) in [
            ("a", "one", "u", "a/web"),
            ("a", "two", "u", "a/web"),
            ("a", "old", "before", "a/web"),
            ("b", "one", "u", "b/web"),
        ] {
            assert_eq!(absorb(&mut all, Event::Apply(promotion(namespace, name, "web", uid))), woken);
        }
        assert_eq!([of(&all, "a", "u"), of(&all, "b", "u"), of(&all, "a", "unknown")], ["one two", "one", ""]);
        assert_eq!(all.of("a", "u")[0].metadata.annotations, None, "nobody reads them");
        // Of a deleted object that does not parse, only the metadata is known.
        let deleted = || Event::Delete(promotion("a", "one", "", ""));
        assert_eq!([absorb(&mut all, deleted()), absorb(&mut all, deleted())], ["a/web", ""]);
        assert_eq!(of(&all, "a", "u"), "two");
        let mut terminating = promotion("b", "one", "web", "u");
        terminating.metadata.deletion_timestamp = Some(Time(relaybook_api::Time::UNIX_EPOCH));
        assert_eq!(absorb(&mut all, Event::Apply(terminating)), "b/web");
        assert_eq!(of(&all, "b", "u"), "");
        // The pipeline was created again, and the promotion too.
        assert_eq!(absorb(&mut all, Event::Apply(promotion("a", "two", "shop", "new"))), "a/shop a/web");
        assert_eq!([of(&all, "a", "u"), of(&all, "a", "new")], ["", "two"]);
    }

    #[test]
    fn a_complete_list_replaces_what_was_known_in_its_namespace() {
        let mut all = Promotions::default();
        let mut list = |namespace: &str, names: &[(&str, &str)], expected: [&str; 3]| {
            let (watch, listing) = (namespace.len(), Listing::of(Some(namespace.to_owned())));
            let before = [of(&all, "a", "u"), of(&all, "a", "v"), of(&all, "bb", "u")];
            // The list before was interrupted.
            let interrupted = [Event::Init, Event::InitApply(promotion(namespace, "never", "web", "u")), Event::Init];
            let listed = names.iter().map(|(name, uid)| Event::InitApply(promotion(namespace, name, "web", uid)));
            for event in interrupted.into_iter().chain(listed) {
                assert!(all.absorb((watch, &listing), event).is_empty());
                assert_eq!([of(&all, "a", "u"), of(&all, "a", "v"), of(&all, "bb", "u")], before, "it is not complete");
            }
            assert!(all.absorb((watch, &listing), Event::InitDone).is_empty(), "a list wakes all pipelines");
            assert_eq!([of(&all, "a", "u"), of(&all, "a", "v"), of(&all, "bb", "u")], expected);
        };
        list("a", &[("one", "u"), ("two", "v")], ["one", "two", ""]);
        list("bb", &[("one", "u")], ["one", "two", "one"]);
        list("a", &[("one", "u"), ("three", "v")], ["one", "three", "one"]);
        list("a", &[], ["", "", "one"]);
        assert_eq!((all.kept.len(), all.owners.len(), all.listed.len()), (1, 1, 0), "nothing is left behind");
    }
}
