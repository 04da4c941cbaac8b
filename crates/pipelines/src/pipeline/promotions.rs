//! The promotions of the watched namespaces, by pipeline.
//!
//! In: one watch of Promotions in each watched namespace. Out: the promotions of a pipeline ([`Promotions::of`]), and a stream of the
//! pipelines to reconcile ([`follow`]). The promotions of a namespace are known after they were listed in the current leadership term,
//! because the previous leader may have seen steps that this watch delivers later. Until then, the status of no pipeline follows them.
//!
//! A pipeline is identified by its uid: a pipeline that is created again under the same name has no promotions yet. Only the parts of an
//! object are kept that the status of its pipeline depends on.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::{self, Event};
use tokio::sync::oneshot;

use super::Context;
use relaybook_api::Promotion;
use relaybook_core::reading::Follower;
use relaybook_runtime::watch::{TermNumber, api_in, watch_by_term};
use relaybook_telemetry::metrics::Watch;

/// Namespace and uid of a pipeline.
type Owner = (String, String);
/// The promotions of one pipeline, by name.
type ByName = BTreeMap<String, Arc<Promotion>>;

/// The known promotions.
#[derive(Debug, Default)]
pub(super) struct Promotions(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    kept: HashMap<Owner, ByName>,
    /// The uid of the pipeline, by namespace and name of the promotion. Of a deleted object, possibly only these are known.
    owners: HashMap<(String, String), String>,
    /// Leadership term in which the promotions were last listed, by watched namespace. The key `None` means all namespaces.
    listed: HashMap<Option<String>, u64>,
}

impl Promotions {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock()
    }

    /// Returns the promotions of a pipeline. `None`: they are not known yet in this leadership term.
    pub fn of(&self, namespace: &str, uid: Option<&str>, term: u64) -> Option<Vec<Arc<Promotion>>> {
        let book = self.book();
        let owner = (namespace.to_owned(), uid.unwrap_or_default().to_owned());
        book.is_complete(namespace, term)
            .then(|| book.kept.get(&owner).into_iter().flatten().map(|(_, p)| p.clone()).collect())
    }
}

impl Book {
    /// Whether the promotions of this namespace were listed in this leadership term.
    fn is_complete(&self, namespace: &str, term: u64) -> bool {
        let listed = self.listed.get(&None).or_else(|| self.listed.get(&Some(namespace.to_owned())));
        listed == Some(&term)
    }

    /// Stores a promotion. Returns the pipelines whose promotions have changed. One that is being deleted makes no further steps, so it
    /// counts as deleted.
    fn put(&mut self, promotion: Promotion) -> BTreeSet<Follower> {
        if promotion.metadata.deletion_timestamp.is_some() {
            return self.remove(&promotion.metadata);
        }
        let promotion = lean(promotion);
        let (namespace, name) = id(&promotion.metadata);
        let owner = (namespace.clone(), promotion.spec.pipeline_ref.uid.clone());
        // A promotion that is created again under the same name can belong to another pipeline.
        let is_moved = self.owners.get(&(namespace.clone(), name.clone())).is_some_and(|uid| *uid != owner.1);
        let mut woken = if is_moved { self.remove(&promotion.metadata) } else { BTreeSet::new() };
        woken.insert(pipeline(&promotion));
        self.owners.insert((namespace, name.clone()), owner.1.clone());
        self.kept.entry(owner).or_default().insert(name, Arc::new(promotion));
        woken
    }

    /// Removes a promotion. Returns the pipelines whose promotions have changed.
    fn remove(&mut self, metadata: &ObjectMeta) -> BTreeSet<Follower> {
        let (namespace, name) = id(metadata);
        let Some(uid) = self.owners.remove(&(namespace.clone(), name.clone())) else { return BTreeSet::new() };
        let owner = (namespace, uid);
        let Some(all) = self.kept.get_mut(&owner) else { return BTreeSet::new() };
        let removed = all.remove(&name);
        if all.is_empty() {
            self.kept.remove(&owner);
        }
        removed.iter().map(|promotion| pipeline(promotion)).collect()
    }

    /// Replaces all promotions of a watched namespace, or of all namespaces. Returns the pipelines whose promotions have changed, and whether
    /// this is the first list in this leadership term.
    fn replace(&mut self, scope: Option<&String>, listed: Vec<Promotion>, term: u64) -> (BTreeSet<Follower>, bool) {
        let is_here = |namespace: &String| scope.is_none_or(|scope| scope == namespace);
        let old: HashMap<Owner, ByName> = self.kept.extract_if(|(namespace, _), _| is_here(namespace)).collect();
        self.owners.retain(|(namespace, _), _| !is_here(namespace));
        for promotion in listed {
            self.put(promotion);
        }
        let new = self.kept.iter().filter(|((namespace, _), _)| is_here(namespace));
        let changed = new.filter(|(owner, all)| old.get(*owner) != Some(*all));
        let gone = old.iter().filter(|(owner, _)| !self.kept.contains_key(*owner));
        let promotions = changed.chain(gone).flat_map(|(_, all)| all.values());
        let woken = promotions.map(|promotion| pipeline(promotion)).collect();
        let is_first = self.listed.insert(scope.cloned(), term) != Some(term);
        (woken, is_first)
    }
}

/// The promotion without the parts that no status depends on.
fn lean(promotion: Promotion) -> Promotion {
    let Promotion { metadata, spec, status } = promotion;
    let ObjectMeta { name, namespace, uid, creation_timestamp, .. } = metadata;
    Promotion { metadata: ObjectMeta { name, namespace, uid, creation_timestamp, ..ObjectMeta::default() }, spec, status }
}

/// Namespace and name.
fn id(metadata: &ObjectMeta) -> (String, String) {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// The pipeline that a promotion names. Another pipeline can have this name now. Then its reconcile changes nothing.
fn pipeline(promotion: &Promotion) -> Follower {
    Follower::pipeline(id(&promotion.metadata).0, promotion.spec.pipeline_ref.name.clone())
}

/// One watch.
struct Scope {
    /// The watched namespace. `None`: all.
    namespace: Option<String>,
    term: TermNumber,
    /// The objects of the list that is being received.
    listing: Vec<Promotion>,
    /// Notified of the first list.
    listed: Option<oneshot::Sender<()>>,
}

/// Watches the promotions of a namespace, or of all namespaces. Returns the pipelines to reconcile, and a receiver that is notified of the
/// first list. When the promotions are known for the first time in a leadership term, these are all pipelines.
pub(super) fn follow(
    context: Arc<Context>,
    namespace: Option<String>,
) -> (impl Stream<Item = Follower> + Send + 'static, oneshot::Receiver<()>) {
    let api = api_in(&context.client, namespace.as_deref());
    let (done, listed) = oneshot::channel();
    let (term, events) = watch_by_term::<Promotion>(api, context.lease.term_numbers());
    let mut scope = Scope { namespace, term, listing: Vec::new(), listed: Some(done) };
    let woken = events.flat_map(move |event| stream::iter(scope.take(event, &context)));
    (woken, listed)
}

impl Scope {
    /// Processes an event. Returns the pipelines to reconcile. The list before stays until the new one is complete.
    fn take(&mut self, event: watcher::Result<Event<Promotion>>, context: &Context) -> BTreeSet<Follower> {
        match event {
            Ok(Event::Init) => self.listing.clear(),
            Ok(Event::InitApply(promotion)) => self.listing.push(promotion),
            Ok(Event::InitDone) => {
                let (term, listing) = (self.term.number(), std::mem::take(&mut self.listing));
                let (mut woken, is_first) = context.promotions.book().replace(self.namespace.as_ref(), listing, term);
                if is_first {
                    woken.extend(context.tracked(self.namespace.as_ref()));
                }
                if let Some(listed) = self.listed.take() {
                    // The receiver is dropped only when the controller stops.
                    let _ = listed.send(());
                }
                return woken;
            }
            Ok(Event::Apply(promotion)) => return context.promotions.book().put(promotion),
            Ok(Event::Delete(promotion)) => return context.promotions.book().remove(&promotion.metadata),
            Err(_) => context.metrics.watch_error(Watch::Promotions),
        }
        BTreeSet::new()
    }
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

    fn words(keys: &BTreeSet<Follower>) -> Vec<String> {
        keys.iter().map(|key| format!("{}/{}", key.namespace, key.name)).collect()
    }

    /// The names of the promotions of a pipeline.
    fn of(promotions: &Promotions, namespace: &str, uid: &str, term: u64) -> Option<Vec<String>> {
        let all = promotions.of(namespace, Some(uid), term)?;
        Some(all.iter().map(|promotion| promotion.metadata.name.clone().unwrap()).collect())
    }

    #[test]
    fn promotions_belong_to_the_pipeline_with_their_uid() {
        let promotions = Promotions::default();
        assert_eq!(of(&promotions, "a", "u", 1), None, "not listed");
        let listed = vec![
            promotion("a", "one", "web", "u"),
            promotion("a", "two", "web", "u"),
            promotion("a", "old", "web", "before"),
            promotion("b", "one", "web", "u"),
        ];
        let (woken, is_first) = promotions.book().replace(None, listed, 1);
        assert_eq!((words(&woken), is_first), (vec!["a/web".to_owned(), "b/web".to_owned()], true));
        let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&promotions, "a", "u", 1), names(&["one", "two"]));
        assert_eq!(of(&promotions, "b", "u", 1), names(&["one"]));
        assert_eq!(of(&promotions, "a", "unknown", 1), names(&[]));
        assert_eq!(promotions.of("a", Some("u"), 1).unwrap()[0].metadata.annotations, None, "nobody reads them");
        // Of a deleted object that does not parse, only the metadata is known.
        let deleted = promotion("a", "one", "", "").metadata;
        assert_eq!(words(&promotions.book().remove(&deleted)), ["a/web"]);
        assert!(promotions.book().remove(&deleted).is_empty());
        assert_eq!(of(&promotions, "a", "u", 1), names(&["two"]));
        let mut terminating = promotion("b", "one", "web", "u");
        terminating.metadata.deletion_timestamp = Some(Time(relaybook_api::Time::UNIX_EPOCH));
        assert_eq!(words(&promotions.book().put(terminating)), ["b/web"]);
        assert_eq!(of(&promotions, "b", "u", 1), names(&[]));
        // The pipeline was created again, and the promotion too.
        assert_eq!(words(&promotions.book().put(promotion("a", "two", "shop", "new"))), ["a/shop", "a/web"]);
        assert_eq!((of(&promotions, "a", "u", 1), of(&promotions, "a", "new", 1)), (names(&[]), names(&["two"])));
    }

    #[test]
    fn a_list_replaces_what_was_known_and_is_valid_for_one_leadership_term() {
        let promotions = Promotions::default();
        let scope = "a".to_owned();
        let list = |names: &[(&str, &str)], term| {
            let listed = names.iter().map(|(name, uid)| promotion("a", name, &format!("of-{uid}"), uid)).collect();
            let (woken, is_first) = promotions.book().replace(Some(&scope), listed, term);
            (words(&woken).join(" "), is_first)
        };
        assert_eq!(list(&[("one", "u"), ("two", "v")], 1), ("a/of-u a/of-v".to_owned(), true));
        assert_eq!(of(&promotions, "b", "u", 1), None, "another namespace");
        assert_eq!(list(&[("one", "u"), ("two", "v")], 1), (String::new(), false), "nothing has changed");
        assert_eq!(list(&[("one", "u"), ("three", "v")], 1), ("a/of-v".to_owned(), false));
        assert_eq!(of(&promotions, "a", "u", 2), None, "not listed in this term");
        assert_eq!(list(&[("three", "v")], 2), ("a/of-u".to_owned(), true));
        assert_eq!((of(&promotions, "a", "v", 1), of(&promotions, "a", "u", 2)), (None, Some(vec![])));
        // What is known of another namespace stays.
        promotions.book().replace(Some(&"b".to_owned()), vec![promotion("b", "one", "web", "u")], 2);
        list(&[], 2);
        assert_eq!(of(&promotions, "b", "u", 2), Some(vec!["one".to_owned()]));
        let book = promotions.book();
        assert_eq!((book.kept.len(), book.owners.len()), (1, 1), "nothing is left behind");
    }
}
