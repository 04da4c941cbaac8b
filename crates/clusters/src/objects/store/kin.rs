//! Objects that are read together with their parts: which caches they need, and the combined observation when either changes.
//!
//! Parts have a normal cache while a pipeline refers to a parent. The observation of a parent combines both. It is known only while both
//! caches are synced.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::Store;
use crate::Scope;
use crate::objects::cache::{Cache, CacheKey, Phase, Ring, Tracked, name_of, object_of};
use relaybook_api::ObjectName;
use relaybook_api::pipeline::source::FLEET_GROUP;
use relaybook_api::values::kind::ObjectKind;
use relaybook_api::values::refs::ClusterRef;
use relaybook_core::observe::{Family, Member, Observation, Parent, Parts, Relation, combine, parts_of};
use relaybook_core::reading::{Application, Follower, FollowerKind, Reason};

impl Store {
    /// Counts one more object that a pipeline needs, for each of its caches.
    pub(super) fn count_need(&mut self, object: &Application, pipeline: &Follower) {
        for key in self.all_caches(object) {
            *self.needed_by.entry(key).or_default().entry(pipeline.clone()).or_default() += 1;
        }
    }

    /// Counts one object less that a pipeline needs, for each of its caches.
    pub(super) fn uncount_need(&mut self, object: &Application, pipeline: &Follower) {
        for key in self.all_caches(object) {
            self.uncount(&key, pipeline);
        }
    }

    /// Counts one need of a pipeline less for a cache.
    pub(super) fn uncount(&mut self, key: &CacheKey, pipeline: &Follower) {
        let Some(by) = self.needed_by.get_mut(key) else { return };
        if let Some(count) = by.get_mut(pipeline) {
            *count -= 1;
        }
        by.retain(|_, count| *count > 0);
        if by.is_empty() {
            self.needed_by.remove(key);
        }
    }

    /// Returns the cache that contains an object. `None`: its namespace is not watched, or its kind is not a kind.
    pub(super) fn locate(&self, object: &Application) -> Option<CacheKey> {
        let kind = object.object.object_kind().ok()?;
        Some(CacheKey {
            cluster: object.object.cluster_ref.clone(),
            revision_path: object.revision_path.clone(),
            cluster_path: object.cluster_path.clone(),
            record: object.record.clone(),
            namespace: self.watched(&kind, object.object.cluster_ref.as_ref(), &object.object.namespace)?,
            kind,
        })
    }

    /// Returns the namespace of the watch that includes this namespace. The outer `None`: not watched. The inner `None`: the watch of all
    /// namespaces.
    #[allow(clippy::option_option, reason = "not watched, or watched with all others")]
    fn watched(&self, kind: &ObjectKind, cluster: Option<&ClusterRef>, namespace: &str) -> Option<Option<String>> {
        let is_deployment = (kind.group(), kind.kind()) == (FLEET_GROUP, "BundleDeployment");
        match &self.scope {
            Scope::Namespaces(_) if self.fleet_everywhere && is_deployment && cluster.is_none() => Some(None),
            Scope::Namespaces(watched) if cluster.is_none() => Some(Some(watched.get(namespace)?.clone())),
            Scope::All | Scope::Namespaces(_) => Some(self.narrowed(kind, cluster, namespace)),
        }
    }

    /// The same for the parts of the objects in a cache. On another cluster, parts that can be in any namespace need the watch of all
    /// namespaces, because no target names theirs.
    #[allow(clippy::option_option, reason = "not watched, or watched with all others")]
    fn watched_parts(&self, key: &CacheKey, parts: Parts, namespace: &str) -> Option<Option<String>> {
        if parts.elsewhere && key.cluster.is_some() {
            return Some(None);
        }
        self.watched(&key.kind.sibling(parts.kind), key.cluster.as_ref(), namespace)
    }

    /// Returns the caches that are needed to observe an object: its own, and those of its parts. If parts can be in any namespace, their
    /// namespace is not known before the object is read, so the caches of all watched namespaces are needed.
    pub(super) fn all_caches(&self, object: &Application) -> Vec<CacheKey> {
        let Some(own) = self.locate(object) else { return Vec::new() };
        let Some(parts) = parts(&own) else { return vec![own] };
        let namespaces: BTreeSet<Option<String>> = match &self.scope {
            Scope::Namespaces(watched) if parts.elsewhere && object.object.cluster_ref.is_none() => {
                watched.iter().cloned().map(Some).collect()
            }
            Scope::All | Scope::Namespaces(_) => {
                self.watched_parts(&own, parts, &object.object.namespace).into_iter().collect()
            }
        };
        let of_parts: Vec<_> = namespaces.into_iter().map(|namespace| cache_of(&own, parts, namespace)).collect();
        std::iter::once(own).chain(of_parts).collect()
    }

    /// Starts to keep the observations of an object when the first pipeline refers to it.
    pub(super) fn begin_ring(&mut self, object: &Application) {
        let Some(key) = self.locate(object) else { return };
        let name = name_of(object);
        let Some(tracked) = self.caches.get_mut(&key).and_then(|cache| cache.objects.get_mut(&name)) else { return };
        if tracked.ring.is_some() {
            // A selection contains the object.
            return;
        }
        let mut ring = Ring::default();
        if matches!(tracked.relation.as_deref(), Some(Relation::Parent(_))) {
            // Its parts may have changed in the meantime.
            (tracked.ring, tracked.seq) = (Some(ring), 0);
            self.register_parent(&key, &name, false);
            return;
        }
        if tracked.seq > 0 {
            ring.push(tracked.seq, &tracked.current);
        }
        tracked.ring = Some(ring);
    }

    /// Registers a named or selected parent after it was read, and combines it with its parts. `anyway`: dependent pipelines are woken even
    /// if nothing changed. Returns the pipelines to wake.
    pub(super) fn register_parent(&mut self, key: &CacheKey, name: &ObjectName, anyway: bool) -> Vec<Follower> {
        let family = self.parent(key, name).map(|parent| parent.family().clone());
        let place = family.and_then(|family| Some((self.cache_of_family(key, &family)?, family)));
        let known = self.parents.parts_of(key, name).map(|(parts, family)| (&**parts, &**family));
        if known != place.as_ref().map(|(parts, family)| (parts, family)) {
            self.parents.remove(key, name);
            let tracked = self.caches.get(key).and_then(|cache| cache.objects.get_key_value(name));
            if let (Some(place), Some((name, _))) = (place, tracked) {
                self.parents.insert(key, name.clone(), place);
            }
        }
        if self.parts_of(key, name).is_some() {
            return self.combine_parent(key, name, anyway);
        }
        // The object was read, but its parts are not available, so its state is not known.
        let wakes = self.caches.get(key).is_some_and(|cache| cache.phase == Phase::Synced);
        if wakes { self.interested(key, name) } else { Vec::new() }
    }

    /// Returns the pipelines that name or select an object.
    pub(super) fn interested(&self, key: &CacheKey, name: &ObjectName) -> Vec<Follower> {
        let named = self.wanted_by.get(&object_of(key, name)).into_iter().flatten();
        if !self.caches.get(key).is_some_and(|cache| cache.keeps_traits) {
            return named.cloned().collect();
        }
        // A set does not depend on the state of its sources.
        let selecting = self.selecting(key, name).filter(|follower| follower.kind == FollowerKind::Pipeline);
        named.chain(selecting).cloned().collect::<HashSet<_>>().into_iter().collect()
    }

    /// Returns the cache with the parts of a parent, and its family. `None` if the cache is not synced.
    fn parts_of(&self, key: &CacheKey, name: &ObjectName) -> Option<(&Cache, &Arc<Family>)> {
        let (parts, family) = self.parents.parts_of(key, name)?;
        Some((self.caches.get(&**parts).filter(|cache| cache.phase == Phase::Synced)?, family))
    }

    /// Combines the parents of these families again. With `namespace`, also those of all families in it. Returns the pipelines to wake.
    pub(super) fn recombine_families(
        &mut self,
        parts: &CacheKey,
        touched: &[Family],
        namespace: Option<&str>,
    ) -> Vec<Follower> {
        let parents = self.parents.of_families(parts, touched, namespace);
        parents.iter().flat_map(|(key, name)| self.combine_parent(key, name, false)).collect()
    }

    /// Combines all parents with parts in this cache again. Returns the pipelines to wake.
    pub(super) fn recombine_all(&mut self, parts: &CacheKey) -> Vec<Follower> {
        let parents = self.parents.with_parts_in(parts);
        parents.iter().flat_map(|(key, name)| self.combine_parent(key, name, false)).collect()
    }

    /// Combines a parent with its parts again, if the cache of the parts is synced. Returns the pipelines to wake.
    fn combine_parent(&mut self, key: &CacheKey, name: &ObjectName, anyway: bool) -> Vec<Follower> {
        let Some((parts, family)) = self.parts_of(key, name) else { return Vec::new() };
        let Some(mut parent) = self.parent(key, name).cloned() else { return Vec::new() };
        let said = combine(&mut parent, &members(parts, family));
        parent.share_family(family);
        let seq = self.next();
        let Some(cache) = self.caches.get_mut(key) else { return Vec::new() };
        let said = cache.observations.shared(&said);
        let Some(tracked) = cache.objects.get_mut(name) else { return Vec::new() };
        tracked.relation = Some(Box::new(Relation::Parent(parent)));
        let wakes = (tracked.record(seq, said) || anyway) && cache.phase == Phase::Synced;
        if wakes { self.interested(key, name) } else { Vec::new() }
    }

    /// Returns what an object contributes as a parent.
    fn parent(&self, key: &CacheKey, name: &ObjectName) -> Option<&Parent> {
        self.caches.get(key)?.objects.get(name)?.relation.as_deref()?.as_parent()
    }

    /// Returns the cache with the parts of an object. `None`: their namespace is not watched.
    fn cache_of_family(&self, key: &CacheKey, family: &Family) -> Option<CacheKey> {
        let parts = parts(key)?;
        let namespace = self.watched_parts(key, parts, &family.namespace)?;
        Some(cache_of(key, parts, namespace))
    }

    /// Returns why the state of a parent is not known. `None` if it is known, or if the object is no parent.
    pub(super) fn without_parts(&self, key: &CacheKey, tracked: &Tracked) -> Option<(Reason, String)> {
        let family = tracked.relation.as_deref()?.as_parent()?.family();
        let kind = parts(key)?.kind;
        let because = |words: &str| format!("the state also depends on objects of kind {kind}: {words}");
        let Some(key) = self.cache_of_family(key, family) else {
            let words = format!("namespace {} is not one of the watched namespaces", family.namespace);
            return Some((Reason::NamespaceNotWatched, because(&words)));
        };
        match self.caches.get(&key).map(|cache| &cache.phase) {
            Some(Phase::Synced) if tracked.seq > 0 => None,
            Some(Phase::Unknown(reason, message)) => Some((*reason, because(message))),
            Some(Phase::Synced) | None => Some((Reason::CacheNotSynced, because("no pipeline has requested them yet"))),
        }
    }
}

/// Returns the kind of the parts of the objects in a cache, if they are read with parts.
fn parts(key: &CacheKey) -> Option<Parts> {
    parts_of(&key.kind, key.revision_path.is_some())
}

/// Returns the cache of the parts in this namespace, or in all namespaces.
fn cache_of(key: &CacheKey, parts: Parts, namespace: Option<String>) -> CacheKey {
    CacheKey {
        cluster: key.cluster.clone(),
        revision_path: None,
        cluster_path: None,
        record: None,
        kind: key.kind.sibling(parts.kind),
        namespace,
    }
}

/// Returns the parts of a family, and the objects of its namespace whose family is not known.
fn members<'a>(cache: &'a Cache, family: &Family) -> Vec<Member<'a>> {
    let of_family = cache.families.get(family).into_iter().flatten();
    let unread = cache.unread.iter().filter(|name| name.namespace == family.namespace);
    let read = |tracked: &'a Tracked| -> Option<(&'a Observation, _)> {
        let part = tracked.relation.as_deref()?.as_part()?;
        (!tracked.unreadable).then_some((&*tracked.current, part))
    };
    let read = |name| cache.objects.get(name).and_then(|tracked| read(tracked));
    let member = |name: &'a ObjectName| Member { name: &name.name, read: read(name) };
    of_family.chain(unread).map(member).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use kube::core::DynamicObject;
    use serde_json::{Value, json};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::objects::cache::CacheId;
    use crate::objects::store::Declared;
    use relaybook_api::Status;
    use relaybook_api::values::refs::ClusterAppRef;
    use relaybook_core::observe::{EventOrigin, ReadObject, see};
    use relaybook_core::reading::Now;

    const FLEET: &str = "fleet.cattle.io/v1alpha1";
    const NS: &str = "fleet-default";

    fn app(kind: &str, namespace: &str, name: &str) -> Application {
        let object = ClusterAppRef {
            api_version: FLEET.into(),
            kind: kind.into(),
            name: name.into(),
            namespace: namespace.into(),
            cluster_ref: None,
        };
        Application { object, ..Application::default() }
    }

    fn repo() -> Application {
        app("GitRepo", NS, "shop")
    }

    fn deployment() -> Application {
        app("BundleDeployment", "cluster-a", "web")
    }

    #[allow(clippy::needless_pass_by_value, reason = "JSON is made where it is passed")]
    fn object(app: &Application, labels: Value, spec: Value, status: Value) -> ReadObject {
        let (name, namespace) = (&app.object.name, &app.object.namespace);
        let metadata = json!({"name": name, "namespace": namespace, "generation": 2, "labels": labels});
        let object =
            json!({"apiVersion": FLEET, "kind": app.object.kind, "metadata": metadata, "spec": spec, "status": status});
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        see(Some(&object), None, None)
    }

    fn repo_at(commit: &str) -> ReadObject {
        object(&repo(), json!({}), json!({}), json!({"commit": commit, "summary": {"desiredReady": 1}}))
    }

    fn bundle_of(repo: &str, name: &str, commit: &str) -> ReadObject {
        let labels = json!({"fleet.cattle.io/repo-name": repo, "fleet.cattle.io/commit": commit});
        let status = json!({"observedGeneration": 2, "summary": {"desiredReady": 1, "ready": 1}});
        object(&app("Bundle", NS, name), labels, json!({}), status)
    }

    fn bundle(name: &str, commit: &str) -> ReadObject {
        bundle_of("shop", name, commit)
    }

    fn deployed(commit: &str, staged: &str) -> ReadObject {
        let labels = json!({"fleet.cattle.io/bundle-name": "web", "fleet.cattle.io/bundle-namespace": NS,
            "fleet.cattle.io/commit": commit});
        let spec = json!({"deploymentID": staged, "stagedDeploymentID": staged});
        object(&deployment(), labels, spec, json!({"appliedDeploymentID": staged, "ready": true, "nonModified": true}))
    }

    fn pipeline(name: &str) -> Follower {
        Follower::pipeline(NS, name)
    }

    struct Bench(Store);

    impl Bench {
        /// Returns a bench with one pipeline that needs these objects, and its caches by kind.
        fn new(scope: Scope, needs: &[Application]) -> (Self, HashMap<String, CacheId>) {
            let mut bench = Self(Store::new(scope, false));
            let started = bench.need("p", needs).started;
            (bench, started.into_iter().map(|(id, _)| (id.key.kind.kind().to_owned(), id)).collect())
        }

        fn need(&mut self, name: &str, refs: &[Application]) -> Declared {
            self.0.declare(&pipeline(name), refs.iter().cloned().collect(), &CancellationToken::new())
        }

        /// Applies a complete list of these objects, all in one namespace.
        fn list(&mut self, id: &CacheId, namespace: &str, objects: Vec<(&str, ReadObject)>) -> Vec<Follower> {
            let name = |name: &str| ObjectName::new(namespace, name);
            let names = objects.iter().map(|(n, _)| name(n)).collect();
            for (n, seen) in objects {
                self.0.record(id, &name(n), seen, EventOrigin::Listed);
            }
            self.0.listed(id, &names, true)
        }

        fn change(&mut self, id: &CacheId, namespace: &str, name: &str, seen: ReadObject) -> usize {
            self.0.record(id, &ObjectName::new(namespace, name), seen, EventOrigin::Changed).len()
        }

        /// Returns the current status and revisions, or why they are not known.
        fn now(&self, app: &Application) -> String {
            match self.0.read(app, 0).now {
                Now::Known(o) => format!("{:?} {}/{} {}", o.status, o.revision, o.attempted_revision, o.reason),
                Now::Unknown { reason, message } => format!("{} {message}", reason.as_str()),
            }
        }

        fn said(&self, app: &Application) -> Vec<(Status, String)> {
            let said = self.0.read(app, 0).observations;
            said.into_iter().map(|(_, o)| (o.status, o.attempted_revision)).collect()
        }
    }

    #[test]
    fn the_state_of_a_parent_combines_its_own_and_those_of_its_parts() {
        let (mut bench, ids) = Bench::new(Scope::All, &[repo()]);
        let (repos, bundles) = (&ids["GitRepo"], &ids["Bundle"]);
        assert_eq!(bench.list(repos, NS, vec![("shop", repo_at("c1"))]), [pipeline("p")]);
        let want = "CacheNotSynced the state also depends on objects of kind Bundle: the objects are being listed";
        assert_eq!(bench.now(&repo()), want);
        assert!(bench.said(&repo()).is_empty());
        let other = bundle_of("other", "b", "c0");
        let woken = bench.list(bundles, NS, vec![("a", bundle("a", "c1")), ("b", other.clone())]);
        assert!(woken.contains(&pipeline("p")));
        assert_eq!(bench.now(&repo()), "Current c1/c1 ");

        assert_eq!(bench.change(repos, NS, "shop", repo_at("c2")), 1);
        assert_eq!(bench.now(&repo()), "InProgress /c2 BundleNotUpdated");
        assert_eq!(bench.change(bundles, NS, "b", other), 0, "it belongs to another");
        assert_eq!(bench.change(bundles, NS, "a", bundle("a", "c2")), 1);
        assert_eq!(bench.now(&repo()), "Current c2/c2 ");
        // A bundle moves here from another repository, and back. Another bundle is deleted.
        assert_eq!(bench.change(bundles, NS, "b", bundle("b", "c0")), 1);
        assert_eq!(bench.now(&repo()), "InProgress /c2 BundleNotUpdated");
        assert_eq!(bench.change(bundles, NS, "b", bundle_of("other", "b", "c0")), 1);
        assert_eq!(bench.change(bundles, NS, "a", ReadObject::nothing()), 1);
        assert_eq!(bench.now(&repo()), "InProgress /c2 NotObserved");
        let at = |status, commit: &str| (status, commit.to_owned());
        let (c, i) = (Status::Current, Status::InProgress);
        assert_eq!(
            bench.said(&repo()),
            [at(c, "c1"), at(i, "c2"), at(c, "c2"), at(i, "c2"), at(c, "c2"), at(i, "c2")],
            "the ring holds wholes"
        );
        bench.change(repos, NS, "shop", ReadObject::nothing());
        assert_eq!(bench.now(&repo()), "NotFound / NotFound");
        assert_eq!(bench.change(bundles, NS, "a", bundle("a", "c2")), 0, "nobody reads it");
    }

    #[test]
    fn the_state_of_a_parent_is_unknown_while_its_parts_cannot_be_watched() {
        let (mut bench, ids) = Bench::new(Scope::All, &[repo()]);
        let (repos, bundles) = (&ids["GitRepo"], &ids["Bundle"]);
        bench.list(bundles, NS, vec![("a", bundle("a", "c1"))]);
        bench.list(repos, NS, vec![("shop", repo_at("c1"))]);
        assert_eq!(bench.now(&repo()), "Current c1/c1 ");
        for reason in [Reason::Forbidden, Reason::KindNotFound] {
            let (is_news, woken) = bench.0.set_phase(bundles, Phase::Unknown(reason, "no".to_owned()));
            assert_eq!((is_news, woken), (true, vec![pipeline("p")]));
            let want = format!("{} the state also depends on objects of kind Bundle: no", reason.as_str());
            assert_eq!(bench.now(&repo()), want);
        }
        bench.change(repos, NS, "shop", repo_at("c2"));
        assert_eq!(bench.said(&repo()).len(), 1, "nothing is made of it alone");
        // The deletion of the object is known without its parts. When it is created again, its parts are needed.
        bench.change(repos, NS, "shop", ReadObject::nothing());
        assert_eq!(bench.now(&repo()), "NotFound / NotFound");
        assert_eq!(bench.change(repos, NS, "shop", repo_at("c2")), 1);
        assert!(bench.now(&repo()).starts_with("KindNotFound"));
        bench.list(bundles, NS, vec![("a", bundle("a", "c2"))]);
        assert_eq!(bench.now(&repo()), "Current c2/c2 ");
        // After a restart, the cache of the parts is empty.
        bench.0.renew(&CancellationToken::new());
        assert!(bench.now(&repo()).starts_with("CacheNotSynced"));
    }

    #[test]
    fn a_parent_with_an_unreadable_part_is_in_progress() {
        let (mut bench, ids) = Bench::new(Scope::All, &[repo()]);
        let (repos, bundles) = (&ids["GitRepo"], &ids["Bundle"]);
        bench.list(bundles, NS, vec![("a", bundle("a", "c1"))]);
        bench.list(repos, NS, vec![("shop", repo_at("c1"))]);
        let name = |namespace: &str, name: &str| ObjectName::new(namespace, name);
        for known in ["a", "never-read"] {
            assert_eq!(bench.0.unreadable(bundles, &name(NS, known)).len(), 1, "{known}");
            assert_eq!(bench.now(&repo()), "InProgress /c1 NotObserved", "{known}");
            bench.change(bundles, NS, known, bundle(known, "c1"));
            assert_eq!(bench.now(&repo()), "Current c1/c1 ", "{known}");
        }
        assert_eq!(bench.0.unreadable(bundles, &name("elsewhere", "never-read")).len(), 0);
        assert_eq!(bench.now(&repo()), "Current c1/c1 ");
    }

    #[test]
    fn a_commit_label_counts_if_the_bundle_confirms_it_or_it_came_with_staged_content() {
        let (mut bench, ids) = Bench::new(Scope::All, &[deployment()]);
        let (deployments, bundles) = (&ids["BundleDeployment"], &ids["Bundle"]);
        bench.list(deployments, "cluster-a", vec![("web", deployed("c1", "s-1"))]);
        bench.list(bundles, NS, vec![("web", bundle("web", "c0"))]);
        assert_eq!(bench.now(&deployment()), "InProgress /c1 NotStaged", "at first sight nothing is believed");
        assert_eq!(bench.change(bundles, NS, "web", bundle("web", "c1")), 1);
        assert_eq!(bench.now(&deployment()), "Current c1/c1 ");
        assert_eq!(bench.change(bundles, NS, "web", bundle("web", "c2")), 0);
        assert_eq!(bench.now(&deployment()), "Current c1/c1 ", "what was confirmed stands");
        bench.change(deployments, "cluster-a", "web", deployed("c3", "s-1"));
        assert_eq!(bench.now(&deployment()), "InProgress /c3 NotStaged");
        bench.change(deployments, "cluster-a", "web", deployed("c3", "s-3"));
        assert_eq!(bench.now(&deployment()), "Current c3/c3 ");
        // First the creation is observed as an event. Then the object is replaced between two lists.
        bench.change(deployments, "cluster-a", "web", ReadObject::nothing());
        bench.change(deployments, "cluster-a", "web", deployed("c4", "s-4"));
        assert_eq!(bench.now(&deployment()), "Current c4/c4 ");
        bench.list(deployments, "cluster-a", vec![("web", deployed("c5", "s-5"))]);
        assert_eq!(bench.now(&deployment()), "InProgress /c5 NotStaged");
    }

    #[test]
    fn parts_are_watched_in_every_possible_namespace_while_an_object_needs_them() {
        let some = Scope::new(&["cluster-a".to_owned(), NS.to_owned(), "other".to_owned()]);
        let places = |needs: &[Application]| {
            let mut bench = Bench(Store::new(some.clone(), false));
            let started = bench.need("p", needs).started;
            let mut places: Vec<_> =
                started.into_iter().map(|(id, _)| format!("{} {}", id.key.kind.kind(), id.key.namespace.unwrap())).collect();
            places.sort();
            places
        };
        assert_eq!(places(&[repo()]), [format!("Bundle {NS}"), format!("GitRepo {NS}")]);
        let of_deployment = places(&[deployment()]);
        assert_eq!(of_deployment.len(), 4, "its own, and Bundles in each namespace: {of_deployment:?}");
        let path = Application { revision_path: Some(".status.appliedDeploymentID".into()), ..deployment() };
        assert_eq!(places(&[path]).len(), 1, "no label is read");

        let (mut bench, ids) = Bench::new(Scope::new(&["cluster-a".to_owned()]), &[deployment()]);
        bench.list(&ids["BundleDeployment"], "cluster-a", vec![("web", deployed("c1", "s-1"))]);
        bench.list(&ids["Bundle"], "cluster-a", vec![]);
        let want = "NamespaceNotWatched the state also depends on objects of kind Bundle: namespace fleet-default is not one of the watched namespaces";
        assert_eq!(bench.now(&deployment()), want);

        let (mut bench, ids) = Bench::new(Scope::All, &[repo(), app("HelmOp", NS, "db")]);
        assert_eq!(ids.len(), 3, "one cache of Bundles for both");
        assert!(bench.need("q", &[app("Bundle", NS, "a")]).started.is_empty());
        let idle: Vec<_> = bench.need("p", &[]).idle.into_iter().map(|(id, _)| id.key.kind.kind().to_owned()).collect();
        assert_eq!(idle.len(), 2, "{idle:?}");
        assert_eq!(bench.need("q", &[]).idle.len(), 1);
        assert!(bench.0.parents.is_empty() && bench.0.needed_by.is_empty());
    }

    #[test]
    fn a_parent_that_is_referred_to_later_has_the_current_states_of_its_parts() {
        let (mut bench, ids) = Bench::new(Scope::All, &[app("GitRepo", NS, "first")]);
        let (repos, bundles) = (&ids["GitRepo"], &ids["Bundle"]);
        bench.list(bundles, NS, vec![("a", bundle("a", "c1"))]);
        bench.list(repos, NS, vec![("shop", repo_at("c1"))]);
        bench.change(bundles, NS, "a", bundle("a", "c2"));
        assert_eq!(bench.change(repos, NS, "shop", repo_at("c2")), 0);
        bench.need("q", &[repo()]);
        assert_eq!((bench.now(&repo()).as_str(), bench.said(&repo()).len()), ("Current c2/c2 ", 1));
        bench.need("q", &[]);
        bench.change(bundles, NS, "a", bundle("a", "c3"));
        bench.need("q", &[repo()]);
        assert_eq!((bench.now(&repo()).as_str(), bench.said(&repo()).len()), ("InProgress /c2 BundleNotUpdated", 1));
    }
}
