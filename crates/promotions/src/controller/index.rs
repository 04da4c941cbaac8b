//! The pipelines and Promotions that the watches have delivered, and what this replica has written since.
//!
//! In: watch events, and answers of the API server. Out: all objects of one pipeline ([`Seen`]). An answer can be newer than the watch, so
//! objects are replaced only by newer ones. An answer that arrives after the deletion of its object is dropped.
//!
//! Pipelines are stored without what no promotion needs, above all without their logs. Nothing is stored of the targets of a pipeline that
//! has no promotion strategy.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use kube::ResourceExt as _;
use kube::runtime::watcher::Event;

use super::deliveries::Deliveries;
use relaybook_api::promotion::Phase;
use relaybook_api::{ObjectName, Pipeline, Promotion, Status, Time, version};
use relaybook_core::promotion::commits::{Commits, has_commit};
use relaybook_core::promotion::plan::is_ended;
use relaybook_core::promotion::policy::is_promoted;
use relaybook_core::promotion::sent;
use relaybook_runtime::controller::Listing;

/// Maximum number of deletions that are remembered.
const DELETIONS: usize = 1024;

/// A pipeline, which may not exist any more.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Namespace of the pipeline and of its promotions.
    pub(crate) namespace: String,
    /// Uid of the pipeline.
    pub(crate) uid: String,
}

/// All objects of one pipeline.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The pipeline, if it exists.
    pub(crate) pipeline: Option<Arc<Pipeline>>,
    /// Its promotions, by name.
    pub(crate) promotions: BTreeMap<String, Arc<Promotion>>,
    /// The commits of the promotions of all pipelines.
    pub(crate) commits: Arc<Commits>,
    /// Number of lists before it. An answer to a call that started before a list is dropped.
    pub(crate) lists: u64,
}

impl Seen {
    /// Whether there can be anything to do. A pipeline without a strategy and without promotions costs nothing.
    fn has_work(&self) -> bool {
        !self.promotions.is_empty() || self.pipeline.as_ref().is_some_and(|pipeline| is_promoted(&pipeline.spec))
    }

    fn is_empty(&self) -> bool {
        self.pipeline.is_none() && self.promotions.is_empty()
    }
}

/// All objects of all pipelines.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pipelines: HashMap<Key, Seen>,
    /// The pipeline of each promotion.
    of: HashMap<ObjectName, Key>,
    /// Names and versions of promotions that were deleted.
    deleted: VecDeque<(ObjectName, u64)>,
    /// The Deliveries of requests.
    pub(super) deliveries: Deliveries,
    commits: Arc<Commits>,
    phases: BTreeMap<Phase, usize>,
    /// How many requested promotions that have not ended made their last step at this time.
    open_since: BTreeMap<Time, usize>,
    lists: u64,
}

impl Index {
    /// Returns all objects of a pipeline.
    pub(crate) fn seen(&self, key: &Key) -> Option<Seen> {
        let here = || Seen { commits: self.commits.clone(), lists: self.lists, ..Seen::default() };
        self.pipelines.get(key).cloned().map(|seen| Seen { pipeline: seen.pipeline, promotions: seen.promotions, ..here() })
    }

    /// Returns the pipelines for which there can be anything to do.
    pub(crate) fn with_work(&self) -> impl Iterator<Item = &Key> {
        self.pipelines.iter().filter(|(_, seen)| seen.has_work()).map(|(key, _)| key)
    }

    /// Returns the uids of all promotions that have not ended.
    pub(crate) fn open(&self) -> HashSet<String> {
        let all = self.pipelines.values().flat_map(|seen| seen.promotions.values());
        all.filter(|promotion| !is_ended(promotion)).filter_map(|promotion| promotion.metadata.uid.clone()).collect()
    }

    /// Returns whether there can be anything to do for a pipeline.
    pub(crate) fn has_work(&self, key: &Key) -> bool {
        self.pipelines.get(key).is_some_and(Seen::has_work)
    }

    /// Returns the number of promotions in this phase.
    pub(crate) fn count(&self, phase: Phase) -> usize {
        self.phases.get(&phase).copied().unwrap_or(0)
    }

    /// Returns the time of the oldest last step of all promotions whose environment does not run the revision yet.
    pub(crate) fn oldest_open(&self) -> Option<Time> {
        self.open_since.keys().next().copied()
    }

    /// Applies an event of a watch of pipelines. Returns the pipeline that has changed.
    pub(crate) fn absorb_pipeline(&mut self, listing: &mut Listing, event: Event<Pipeline>) -> Option<Key> {
        // A new pipeline of the same name is another one.
        let id = |key: &Key| ObjectName::new(&key.namespace, &key.uid);
        listing.note(&event, |pipeline| id(&key_of(pipeline)));
        match event {
            Event::Init => {}
            Event::InitApply(pipeline) => self.put_pipeline(key_of(&pipeline), pipeline),
            Event::InitDone => {
                self.lists += 1;
                for key in listing.end(self.pipelines.keys(), id) {
                    self.remove_pipeline(&key);
                }
            }
            Event::Apply(pipeline) => {
                let key = key_of(&pipeline);
                if !self.is_newer_pipeline(&key, &pipeline) {
                    return None;
                }
                self.put_pipeline(key.clone(), pipeline);
                return Some(key);
            }
            Event::Delete(pipeline) => {
                let key = key_of(&pipeline);
                return self.remove_pipeline(&key).then_some(key);
            }
        }
        None
    }

    /// Applies an event of a watch of promotions. Returns the pipeline of the promotion that has changed.
    pub(crate) fn absorb_promotion(&mut self, listing: &mut Listing, event: Event<Promotion>) -> Option<Key> {
        listing.note(&event, ObjectName::of);
        match event {
            Event::Init => {}
            Event::InitApply(promotion) => drop(self.put_promotion(promotion)),
            Event::InitDone => {
                self.lists += 1;
                for name in listing.end(self.of.keys(), Clone::clone) {
                    self.remove_promotion(&name);
                }
            }
            Event::Apply(promotion) => {
                if !self.is_newer(&promotion) {
                    return None;
                }
                return Some(self.put_promotion(promotion));
            }
            Event::Delete(promotion) => {
                let (name, at) = (ObjectName::of(&promotion), version_of(&promotion));
                self.deleted.push_back((name.clone(), at));
                if self.deleted.len() > DELETIONS {
                    self.deleted.pop_front();
                }
                // Another object of the same name may be known already, from an answer.
                return if self.known(&name).is_some_and(|known| version_of(known) > at) {
                    None
                } else {
                    self.remove_promotion(&name)
                };
            }
        }
        None
    }

    /// Takes the answer of the API server to a read of a pipeline. `lists`: the number of lists before the call.
    pub(crate) fn learn_pipeline(&mut self, lists: u64, pipeline: &Pipeline) {
        let key = key_of(pipeline);
        let is_known = self.pipelines.get(&key).is_some_and(|seen| seen.pipeline.is_some());
        if lists == self.lists && is_known && self.is_newer_pipeline(&key, pipeline) {
            self.put_pipeline(key, pipeline.clone());
        }
    }

    /// Takes the answer of the API server to a read or write of a promotion. `lists`: the number of lists before the call.
    pub(crate) fn learn_promotion(&mut self, lists: u64, promotion: &Promotion) {
        let (name, at) = (ObjectName::of(promotion), version_of(promotion));
        let is_gone = |gone: &(ObjectName, u64)| gone.0 == name && gone.1 >= at;
        if lists == self.lists && !self.deleted.iter().any(is_gone) && self.is_newer(promotion) {
            self.put_promotion(promotion.clone());
        }
    }

    fn put_pipeline(&mut self, key: Key, pipeline: Pipeline) {
        self.pipelines.entry(key).or_default().pipeline = Some(Arc::new(lean(pipeline)));
    }

    /// Returns whether there was a pipeline with this key, or there are promotions of it.
    fn remove_pipeline(&mut self, key: &Key) -> bool {
        let Some(seen) = self.pipelines.get_mut(key) else { return false };
        seen.pipeline = None;
        if seen.is_empty() {
            self.pipelines.remove(key);
        }
        true
    }

    fn is_newer_pipeline(&self, key: &Key, pipeline: &Pipeline) -> bool {
        let known = self.pipelines.get(key).and_then(|seen| seen.pipeline.as_ref());
        known.is_none_or(|known| {
            let of = |pipeline: &Pipeline| version(pipeline.metadata.resource_version.as_deref());
            of(known) <= of(pipeline)
        })
    }

    fn put_promotion(&mut self, promotion: Promotion) -> Key {
        let name = ObjectName::of(&promotion);
        self.remove_promotion(&name);
        let key = Key { namespace: name.namespace.clone(), uid: promotion.spec.pipeline_ref.uid.clone() };
        *self.phases.entry(phase_of(&promotion)).or_default() += 1;
        if has_commit(&promotion) {
            Arc::make_mut(&mut self.commits).put(&promotion);
        }
        if let Some(since) = open_since(&promotion) {
            *self.open_since.entry(since).or_default() += 1;
        }
        self.of.insert(name.clone(), key.clone());
        self.pipelines.entry(key.clone()).or_default().promotions.insert(name.name, Arc::new(promotion));
        key
    }

    fn remove_promotion(&mut self, name: &ObjectName) -> Option<Key> {
        let key = self.of.remove(name)?;
        let seen = self.pipelines.get_mut(&key)?;
        if let Some(removed) = seen.promotions.remove(&name.name) {
            if has_commit(&removed) {
                Arc::make_mut(&mut self.commits).remove(&removed);
            }
            if let Some(count) = self.phases.get_mut(&phase_of(&removed)) {
                *count = count.saturating_sub(1);
            }
            if let Some(since) = open_since(&removed)
                && let Entry::Occupied(mut count) = self.open_since.entry(since)
            {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        if seen.is_empty() {
            self.pipelines.remove(&key);
        }
        Some(key)
    }

    fn known(&self, name: &ObjectName) -> Option<&Promotion> {
        let seen = self.pipelines.get(self.of.get(name)?)?;
        seen.promotions.get(&name.name).map(AsRef::as_ref)
    }

    fn is_newer(&self, promotion: &Promotion) -> bool {
        self.known(&ObjectName::of(promotion)).is_none_or(|known| version_of(known) <= version_of(promotion))
    }
}

fn key_of(pipeline: &Pipeline) -> Key {
    Key { namespace: pipeline.namespace().unwrap_or_default(), uid: pipeline.uid().unwrap_or_default() }
}

fn version_of(promotion: &Promotion) -> u64 {
    version(promotion.metadata.resource_version.as_deref())
}

fn phase_of(promotion: &Promotion) -> Phase {
    promotion.status.as_ref().and_then(|status| status.phase).unwrap_or_default()
}

/// Removes what no promotion needs.
fn lean(mut pipeline: Pipeline) -> Pipeline {
    let is_promoted = is_promoted(&pipeline.spec);
    pipeline.spec.notifications = Vec::new();
    for environment in &mut pipeline.spec.environments {
        environment.notifications = Vec::new();
        environment.targets.iter_mut().for_each(|target| target.notifications = Vec::new());
        for from in &mut environment.targets_from {
            (from.notifications, from.overrides) = (Vec::new(), Vec::new());
        }
    }
    if let Some(status) = &mut pipeline.status {
        (status.log, status.clusters) = (None, Vec::new());
        status.dispatched = status.dispatched.take().filter(|_| is_promoted).map(sent::lean);
        for environment in &mut status.environments {
            if is_promoted {
                // The messages of failed and missing targets are shown in the status of a promotion.
                let is_shown = |status: Status| matches!(status, Status::Failed | Status::NotFound);
                let others = environment.targets.iter_mut().filter(|target| !is_shown(target.status));
                others.for_each(|target| target.message = String::new());
            } else {
                environment.targets = Vec::new();
            }
        }
    }
    pipeline
}

/// Returns the time of the last step of a promotion that is requested and has not ended.
fn open_since(promotion: &Promotion) -> Option<Time> {
    let status = promotion.status.as_ref()?;
    let is_open = matches!(status.phase, Some(Phase::Requested | Phase::Open | Phase::Merged));
    status.steps.last().filter(|_| is_open).map(|step| step.time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::ChangeLog;
    use relaybook_core::promotion::testing::{PROD, new, pipeline, promotion, spec};

    fn at<K: kube::Resource>(mut object: K, version: u64) -> K {
        object.meta_mut().resource_version = Some(version.to_string());
        object
    }

    fn key() -> Key {
        Key { namespace: "team-a".into(), uid: "u".into() }
    }

    fn index() -> (Index, Listing) {
        let (mut index, mut listing) = (Index::default(), Listing::default());
        for event in [Event::Init, Event::InitApply(at(pipeline(), 5)), Event::InitDone] {
            assert_eq!(index.absorb_pipeline(&mut listing, event), None);
        }
        for event in [Event::Init, Event::InitApply(at(new(spec(20, 0)), 6)), Event::InitDone] {
            assert_eq!(index.absorb_promotion(&mut listing, event), None);
        }
        (index, listing)
    }

    /// Returns the version of the pipeline, and those of its promotions.
    fn versions(index: &Index) -> (Option<u64>, Vec<u64>) {
        let seen = index.seen(&key()).unwrap_or_default();
        let pipeline = seen.pipeline.map(|pipeline| version(pipeline.metadata.resource_version.as_deref()));
        (pipeline, seen.promotions.values().map(|promotion| version_of(promotion)).collect())
    }

    #[test]
    fn an_older_object_never_replaces_a_newer_one() {
        let (mut index, mut listing) = index();
        let lists = index.seen(&key()).unwrap().lists;
        index.learn_promotion(lists, &at(promotion((20, 0), &[Phase::Requested], ""), 9));
        index.learn_pipeline(lists, &at(pipeline(), 8));
        assert_eq!(versions(&index), (Some(8), vec![9]));
        assert_eq!(index.absorb_promotion(&mut listing, Event::Apply(at(new(spec(20, 0)), 7))), None);
        assert_eq!(index.absorb_pipeline(&mut listing, Event::Apply(at(pipeline(), 7))), None);
        assert_eq!(versions(&index), (Some(8), vec![9]));
        assert_eq!((index.count(Phase::Pending), index.count(Phase::Requested)), (0, 1));
        let event = Event::Apply(at(promotion((20, 0), &[Phase::Requested, Phase::Finished], ""), 10));
        assert_eq!(index.absorb_promotion(&mut listing, event), Some(key()));
        assert_eq!((index.count(Phase::Requested), index.count(Phase::Finished)), (0, 1));
    }

    #[test]
    fn an_older_answer_does_not_restore_a_deleted_promotion() {
        let (mut index, mut listing) = index();
        let lists = index.seen(&key()).unwrap().lists;
        let deleted = at(new(spec(20, 0)), 12);
        assert_eq!(index.absorb_promotion(&mut listing, Event::Delete(deleted)), Some(key()));
        index.learn_promotion(lists, &at(promotion((20, 0), &[Phase::Requested], ""), 11));
        assert_eq!(versions(&index), (Some(5), vec![]));
        index.learn_promotion(lists, &at(new(spec(20, 0)), 13));
        assert_eq!(versions(&index).1, [13], "it was created again");
        assert_eq!(index.absorb_promotion(&mut listing, Event::Delete(at(new(spec(20, 0)), 12))), None);
        assert_eq!(versions(&index).1, [13]);
        for event in [Event::Init, Event::InitDone] {
            index.absorb_promotion(&mut listing, event);
        }
        index.learn_promotion(lists, &at(new(spec(20, 0)), 14));
        assert!(versions(&index).1.is_empty(), "the call began before the list");
        assert_eq!(index.absorb_pipeline(&mut listing, Event::Delete(at(pipeline(), 20))), Some(key()));
        index.learn_pipeline(index.lists, &at(pipeline(), 19));
        assert!(index.seen(&key()).is_none());
    }

    #[test]
    fn a_list_removes_objects_of_its_namespace_that_it_does_not_contain() {
        let (mut index, _) = index();
        let list = |index: &mut Index, namespace: &str| {
            let mut listing = Listing::of(Some(namespace.to_owned()));
            for event in [Event::Init, Event::InitDone] {
                index.absorb_promotion(&mut listing, event);
            }
            for event in [Event::Init, Event::InitDone] {
                index.absorb_pipeline(&mut listing, event);
            }
        };
        list(&mut index, "team-b");
        assert_eq!(versions(&index), (Some(5), vec![6]));
        list(&mut index, "team-a");
        assert!(index.pipelines.is_empty() && index.of.is_empty());
        assert_eq!(index.count(Phase::Pending), 0);
    }

    #[test]
    fn a_pipeline_without_promotions_has_no_work() {
        let (mut index, mut listing) = index();
        assert_eq!(index.with_work().collect::<Vec<_>>(), [&key()]);
        let mut off = at(pipeline(), 7);
        off.spec.promotion = None;
        let status = off.status.as_mut().unwrap();
        status.log = Some(ChangeLog::default());
        index.absorb_pipeline(&mut listing, Event::Apply(off));
        assert!(index.has_work(&key()), "it has a promotion");
        let seen = index.seen(&key()).unwrap().pipeline.unwrap();
        let status = seen.status.as_ref().unwrap();
        assert!(status.log.is_none() && status.environments[PROD].targets.is_empty());
        index.absorb_promotion(&mut listing, Event::Delete(at(new(spec(20, 0)), 9)));
        assert!(!index.has_work(&key()) && index.with_work().next().is_none());
        index.absorb_pipeline(&mut listing, Event::Apply(at(pipeline(), 10)));
        assert!(index.has_work(&key()));
        let seen = index.seen(&key()).unwrap().pipeline.unwrap();
        assert_eq!(seen.status.as_ref().unwrap().environments[PROD].targets.len(), 1);
    }

    #[test]
    fn a_deletion_is_understood_by_the_name_alone() {
        let (mut index, mut listing) = index();
        let metadata = at(new(spec(20, 0)), 8).metadata;
        let unreadable = Promotion { metadata, ..Promotion::new("", relaybook_api::PromotionSpec::default()) };
        assert_eq!(index.absorb_promotion(&mut listing, Event::Delete(unreadable)), Some(key()));
        assert!(versions(&index).1.is_empty());
    }
}
