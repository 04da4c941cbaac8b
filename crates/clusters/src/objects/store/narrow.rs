//! Kinds of other clusters that are watched by namespace, because a kubeconfig can have Roles only.
//!
//! In: a kind that cannot be listed or watched in all namespaces of a cluster, or can be again. Out: the watches to start and to end. Each
//! namespace that a target or a selection names then has a watch of its own, as on the local cluster with `--watch-namespace`. A selection of
//! all namespaces names none, so it keeps its watch of all.
//!
//! Which watch contains an object does not change while a pipeline needs the object, except in [`Store::narrow`] and [`Store::widen`].

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Declared, Store};
use crate::objects::cache::{CacheId, CacheKey};
use relaybook_api::values::kind::ObjectKind;
use relaybook_api::values::refs::ClusterRef;
use relaybook_core::observe::parts_of;
use relaybook_core::reading::selection::Selection;
use relaybook_core::reading::{Application, Follower};

/// Maximum number of namespaces in which a kind of a cluster is watched one by one. Further ones need the watch of all namespaces.
pub(crate) const MAX_NAMESPACES: usize = 64;

/// By cluster and kind: the namespaces that are watched one by one.
pub(super) type Narrow = HashMap<(ClusterRef, ObjectKind), BTreeSet<String>>;

/// What a pipeline or a set needs: what a change of the watches does not concern, and everything.
type Needed<T> = Vec<(Follower, HashSet<T>, HashSet<T>)>;

impl Store {
    /// Watches the kind of a cache of all namespaces by namespace. Returns the watches to start and to end. `None`: it is watched so already, or
    /// there is no such cache.
    pub fn narrow(&mut self, id: &CacheId, parent: &CancellationToken) -> Option<Declared> {
        self.cache(id)?;
        let of = kind_of(&id.key).filter(|of| !self.narrow.contains_key(of))?;
        Some(self.rearrange(&id.key, parent, |narrow| drop(narrow.insert(of, BTreeSet::new()))))
    }

    /// Watches the kind of a cache in all namespaces again, because that works. Returns the watches to start and to end.
    pub fn widen(&mut self, id: &CacheId, parent: &CancellationToken) -> Declared {
        let of = kind_of(&id.key).filter(|of| self.narrow.contains_key(of) && self.cache(id).is_some());
        let Some(of) = of else { return Declared::default() };
        let mut declared = self.rearrange(&id.key, parent, |narrow| drop(narrow.remove(&of)));
        // What it has listed can be older than what the watches by namespace have seen since, so it lists again.
        declared.started.extend(self.restart_caches(|key| *key == id.key, parent));
        declared
    }

    /// Whether a pipeline or a set needs the cache.
    pub fn is_needed(&self, id: &CacheId) -> bool {
        self.cache(id).is_some_and(|cache| cache.idle.is_none())
    }

    /// Forgets how the kinds of a cluster are watched.
    pub(super) fn forget_narrow(&mut self, cluster: &ClusterRef) {
        self.narrow.retain(|(of, _), _| of != cluster);
    }

    /// Adds the namespace of an object to those that are watched one by one, if its kind or that of its parts is watched so.
    pub(super) fn admit(&mut self, object: &Application) {
        if self.narrow.is_empty() || object.object.namespace.is_empty() {
            return;
        }
        let Some(cluster) = &object.object.cluster_ref else { return };
        for kind in kinds_beside(object) {
            let of = (cluster.clone(), kind);
            if let Some(namespaces) = self.with_namespace(&of, &object.object.namespace) {
                self.narrow.insert(of, namespaces);
            }
        }
    }

    /// Returns the namespaces that are watched one by one with one more. `None`: it is one of them already, there are too many, or an object in
    /// it needs the watch of all namespaces.
    fn with_namespace(&self, of: &(ClusterRef, ObjectKind), namespace: &str) -> Option<BTreeSet<String>> {
        let mut all = self.narrow.get(of).filter(|all| !all.contains(namespace))?.clone();
        if all.len() >= MAX_NAMESPACES {
            // Those whose watch has ended make room.
            let ours = self.caches.keys().filter(|key| (key.cluster.as_ref(), &key.kind) == (Some(&of.0), &of.1));
            let used: HashSet<&String> = ours.filter_map(|key| key.namespace.as_ref()).collect();
            all.retain(|namespace| used.contains(namespace));
        }
        let is_there = |object: &Application| {
            let of_object = &object.object;
            (of_object.cluster_ref.as_ref(), of_object.namespace.as_str()) == (Some(&of.0), namespace)
                && kinds_beside(object).any(|kind| kind == of.1)
        };
        let is_free = all.len() < MAX_NAMESPACES && !self.wanted_by.keys().any(|object| is_there(object));
        is_free.then(|| {
            all.insert(namespace.to_owned());
            all
        })
    }

    /// Returns the namespace of the watch that includes this namespace of another cluster. `None`: the watch of all namespaces.
    pub(super) fn narrowed(&self, kind: &ObjectKind, cluster: Option<&ClusterRef>, namespace: &str) -> Option<String> {
        if self.narrow.is_empty() {
            return None;
        }
        self.narrow.get(&(cluster?.clone(), kind.clone()))?.get(namespace).cloned()
    }

    /// Returns the namespaces of a selection on another cluster whose caches it needs. An empty name: the cache of all namespaces.
    pub(super) fn namespaces_elsewhere(&self, selection: &Selection) -> Vec<String> {
        let of = selection.cluster_ref.as_ref().map(|cluster| (cluster.clone(), selection.kind.clone()));
        match &selection.namespaces {
            Some(all) if of.is_some_and(|of| self.narrow.contains_key(&of)) => all.iter().cloned().collect(),
            _ => vec![String::new()],
        }
    }

    /// Releases the caches of all objects and selections of a kind, changes where they are, and requests them again.
    fn rearrange(&mut self, key: &CacheKey, parent: &CancellationToken, change: impl FnOnce(&mut Narrow)) -> Declared {
        let concerns = |other: &CacheKey| (&other.cluster, &other.kind) == (&key.cluster, &key.kind);
        let (needs, selections) = (self.needs_with(concerns), self.selections_with(concerns));
        let mut all = Declared::default();
        for (follower, others, _) in &needs {
            all.extend(self.declare(follower, others.clone(), parent));
        }
        for (follower, others, _) in &selections {
            all.extend(self.select(follower, others.clone(), parent));
        }
        change(&mut self.narrow);
        // Selections first: a cache that keeps traits from its start need not restart.
        for (follower, _, everything) in selections {
            all.extend(self.select(&follower, everything, parent));
        }
        for (follower, _, everything) in needs {
            all.extend(self.declare(&follower, everything, parent));
        }
        all
    }

    fn needs_with(&self, concerns: impl Fn(&CacheKey) -> bool) -> Needed<Application> {
        let has = |object: &Arc<Application>| self.all_caches(object).iter().any(&concerns);
        let own = |objects: &HashSet<Arc<Application>>, which: &dyn Fn(&Arc<Application>) -> bool| -> HashSet<Application> {
            objects.iter().filter(|object| which(object)).map(|object| (**object).clone()).collect()
        };
        let concerned = self.needs.iter().filter(|(_, objects)| objects.iter().any(has));
        let needed =
            concerned.map(|(follower, all)| (follower.clone(), own(all, &|object| !has(object)), own(all, &|_| true)));
        needed.collect()
    }

    fn selections_with(&self, concerns: impl Fn(&CacheKey) -> bool) -> Needed<Arc<Selection>> {
        let has = |selection: &Arc<Selection>| self.caches_of(selection).any(&concerns);
        let concerned = self.all_selections().filter(|(_, all)| all.iter().any(has));
        let others = |all: &HashSet<Arc<Selection>>| all.iter().filter(|selection| !has(selection)).cloned().collect();
        concerned.map(|(follower, all)| (follower.clone(), others(all), all.clone())).collect()
    }
}

/// Returns the kinds that are watched in the namespace of an object so that it is observed: its own, and that of its parts.
fn kinds_beside(object: &Application) -> impl Iterator<Item = ObjectKind> + use<> {
    let own = object.object.object_kind().ok();
    let parts = own.as_ref().and_then(|kind| {
        let parts = parts_of(kind, object.revision_path.is_some()).filter(|parts| !parts.elsewhere)?;
        Some(kind.sibling(parts.kind))
    });
    own.into_iter().chain(parts)
}

/// Returns the cluster and the kind of a cache of all namespaces of another cluster.
fn kind_of(key: &CacheKey) -> Option<(ClusterRef, ObjectKind)> {
    key.namespace.is_none().then_some(())?;
    Some((key.cluster.clone()?, key.kind.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scope;
    use crate::objects::cache::Phase;
    use relaybook_api::values::refs::{ClusterAppRef, ClusterKind};
    use relaybook_api::{ObjectName, Status};
    use relaybook_core::observe::{EventOrigin, Observation, ReadObject};
    use relaybook_core::reading::{Now, Reason};

    fn eu() -> ClusterRef {
        ClusterRef { api_version: None, kind: ClusterKind::Secret, name: "eu".into(), namespace: Some("team".into()) }
    }

    fn far(api_version: &str, kind: &str, namespace: &str) -> Application {
        let object = ClusterAppRef {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "web".into(),
            namespace: namespace.into(),
            cluster_ref: Some(eu()),
        };
        Application { object, ..Application::default() }
    }

    fn k(namespace: &str) -> Application {
        far("v1", "K", namespace)
    }

    struct Bench(Store, CancellationToken);

    impl Bench {
        fn new() -> Self {
            Self(Store::new(Scope::All, false), CancellationToken::new())
        }

        fn need(&mut self, name: &str, refs: &[Application]) -> Declared {
            self.0.declare(&Follower::pipeline("team", name), refs.iter().cloned().collect(), &self.1)
        }

        fn select(&mut self, name: &str, namespaces: Option<&[&str]>) -> Declared {
            let namespaces = namespaces.map(|all| all.iter().map(|&namespace| namespace.to_owned()).collect());
            let kind = ObjectKind::parse("v1", "K").unwrap();
            let selection = Selection { id: name.into(), cluster_ref: Some(eu()), namespaces, ..Selection::of_kind(kind) };
            self.0.select(&Follower::set("team", name), [Arc::new(selection)].into(), &self.1)
        }

        fn id(&self, kind: &str, namespace: Option<&str>) -> Option<CacheId> {
            let is = |key: &&CacheKey| (key.kind.kind(), key.namespace.as_deref()) == (kind, namespace);
            let (key, cache) = self.0.caches.iter().find(|(key, _)| is(key))?;
            Some(CacheId { key: key.clone(), generation: cache.generation })
        }

        fn narrow(&mut self, kind: &str) -> Option<Declared> {
            let id = self.id(kind, None).expect("a watch of all namespaces");
            self.0.narrow(&id, &self.1)
        }

        fn widen(&mut self, kind: &str) -> Declared {
            let id = self.id(kind, None).expect("a watch of all namespaces");
            self.0.widen(&id, &self.1)
        }

        /// The caches that are needed, as `KIND NAMESPACE`.
        fn needed(&self) -> Vec<String> {
            let needed = self.0.caches.iter().filter(|(_, cache)| cache.wanted > 0);
            let place = |key: &CacheKey| key.namespace.clone().unwrap_or_else(|| "*".to_owned());
            let mut all: Vec<String> = needed.map(|(key, _)| format!("{} {}", key.kind.kind(), place(key))).collect();
            all.sort();
            all
        }

        /// Completes a list of `web` at a revision.
        fn list(&mut self, kind: &str, namespace: Option<&str>, of: &str, revision: &str) -> Vec<Follower> {
            let (id, name) = (self.id(kind, namespace).expect("a watch"), ObjectName::new(of, "web"));
            let observation = Observation { status: Status::Current, revision: revision.into(), ..Observation::default() };
            self.0.record(&id, &name, ReadObject { observation, relation: None }, EventOrigin::Listed);
            self.0.listed::<ObjectName>(&id, &[name].into(), true)
        }

        fn revision(&self, object: &Application) -> Result<String, Reason> {
            match self.0.read(object, 0).now {
                Now::Known(observation) => Ok(observation.revision),
                Now::Unknown { reason, .. } => Err(reason),
            }
        }
    }

    fn started(declared: &Declared) -> Vec<String> {
        let mut all: Vec<String> = declared.started.iter().filter_map(|(id, _)| id.key.namespace.clone()).collect();
        all.sort();
        all
    }

    #[test]
    fn a_narrowed_kind_has_one_watch_for_each_namespace_and_other_kinds_do_not() {
        let mut bench = Bench::new();
        bench.need("p", &[k("a"), k("b"), far("v1", "L", "a")]);
        bench.need("q", &[k("a")]);
        assert_eq!(bench.needed(), ["K *", "L *"]);
        let declared = bench.narrow("K").expect("news");
        assert_eq!((started(&declared), declared.idle.len()), (vec!["a".to_owned(), "b".to_owned()], 1));
        assert_eq!(bench.needed(), ["K a", "K b", "L *"]);
        assert!(bench.narrow("K").is_none(), "it is so already");
        let denied = Phase::Unknown(Reason::Forbidden, "no".into());
        let id = bench.id("K", Some("b")).unwrap();
        let all = bench.id("K", None).unwrap();
        assert_eq!(bench.0.set_phase(&all, denied.clone()), (true, Vec::new()), "nobody needs it");
        assert_eq!(bench.0.set_phase(&id, denied).1, [Follower::pipeline("team", "p")], "q has nothing there");
        let mut woken = bench.list("K", Some("a"), "a", "1");
        woken.sort();
        assert_eq!(woken, ["p", "q"].map(|name| Follower::pipeline("team", name)));
        assert_eq!([k("a"), k("b")].map(|o| bench.revision(&o)), [Ok("1".into()), Err(Reason::Forbidden)]);
        assert!(bench.0.is_forbidden(&eu()));
        bench.list("K", Some("b"), "b", "2");
        assert_eq!(bench.revision(&k("b")), Ok("2".into()), "the permission was given later");
        assert!(!bench.0.is_forbidden(&eu()), "a watch that nobody needs does not count");
        assert_eq!(started(&bench.need("r", &[k("c")])), ["c"]);
        for name in ["p", "q", "r"] {
            bench.need(name, &[]);
        }
        assert!(bench.needed().is_empty(), "{:?}", bench.needed());
    }

    #[test]
    fn a_watch_of_all_namespaces_replaces_those_of_single_namespaces() {
        let mut bench = Bench::new();
        bench.need("p", &[k("a")]);
        bench.select("all", None);
        bench.select("some", Some(&["a", "b"]));
        bench.narrow("K");
        assert_eq!(bench.needed(), ["K *", "K a", "K b"], "a selection of all namespaces keeps its watch");
        bench.list("K", Some("a"), "a", "1");
        let declared = bench.widen("K");
        let mut ended: Vec<&str> = declared.idle.iter().filter_map(|(id, _)| id.key.namespace.as_deref()).collect();
        ended.sort_unstable();
        assert_eq!((ended, bench.needed()), (vec!["a", "b"], vec!["K *".to_owned()]));
        assert_eq!(declared.started.last().map(|(id, _)| id.clone()), bench.id("K", None), "it lists again");
        assert_eq!(bench.revision(&k("a")), Err(Reason::CacheNotSynced), "an older state is never read");
        bench.list("K", None, "a", "2");
        assert_eq!(bench.revision(&k("a")), Ok("2".into()));
        assert_eq!(bench.widen("K").idle.len(), 0, "it is so already");
        bench.need("p", &[]);
        bench.0.select(&Follower::set("team", "all"), HashSet::new(), &bench.1.clone());
        bench.0.select(&Follower::set("team", "some"), HashSet::new(), &bench.1.clone());
        assert!(bench.needed().is_empty() && bench.0.needed_by.is_empty());
    }

    #[test]
    fn the_number_of_watched_namespaces_is_bounded_and_ended_watches_free_a_place() {
        let mut bench = Bench::new();
        let many: Vec<Application> = (0..=MAX_NAMESPACES).map(|number| k(&format!("n{number:03}"))).collect();
        bench.need("p", &many[..1]);
        bench.narrow("K");
        bench.need("p", &many[..MAX_NAMESPACES]);
        bench.need("q", &many[MAX_NAMESPACES..]);
        let needed = bench.needed();
        assert_eq!((needed.len(), needed[0].as_str()), (MAX_NAMESPACES + 1, "K *"), "one more needs the watch of all");
        let idle = bench.need("p", &many[1..MAX_NAMESPACES]).idle;
        bench.need("r", &many[MAX_NAMESPACES..]);
        assert!(bench.id("K", Some("n064")).is_none(), "the first still has its watch");
        assert!(bench.0.expire(&idle[0].0, idle[0].1));
        bench.need("s", &[k("new")]);
        assert!(bench.id("K", Some("new")).is_some());
        for name in ["p", "q", "r", "s"] {
            bench.need(name, &[]);
        }
        assert!(bench.needed().is_empty(), "{:?}", bench.needed());
    }

    #[test]
    fn parts_are_narrowed_to_the_namespace_of_a_repository_but_not_of_a_deployment() {
        const FLEET: &str = "fleet.cattle.io/v1alpha1";
        for (kind, narrowed, expected) in [
            ("GitRepo", "Bundle", &["Bundle a", "GitRepo *"][..]),
            ("GitRepo", "GitRepo", &["Bundle *", "GitRepo a"]),
            ("BundleDeployment", "BundleDeployment", &["Bundle *", "BundleDeployment a"]),
            ("BundleDeployment", "Bundle", &["Bundle *", "BundleDeployment *"]),
        ] {
            let mut bench = Bench::new();
            bench.need("p", &[far(FLEET, kind, "a")]);
            bench.narrow(narrowed);
            assert_eq!(bench.needed(), expected, "{kind} {narrowed}");
            bench.need("p", &[]);
            assert!(bench.needed().is_empty(), "{kind} {narrowed}");
        }
    }

    #[test]
    fn the_message_names_the_role_that_is_missing() {
        let mut bench = Bench::new();
        bench.need("p", &[k("a")]);
        let denied = || crate::error::ObserveError::of_status("team.eu", 403, "ks is forbidden");
        let named = |bench: &Bench, namespace| {
            crate::objects::kinds::named("team.eu", &bench.id("K", namespace).unwrap().key, denied()).message
        };
        let all = named(&bench, None);
        assert!(all.contains("ks is forbidden; allow list and watch of kind K (v1) by a ClusterRole"), "{all}");
        bench.narrow("K");
        let one = named(&bench, Some("a"));
        assert!(one.contains("of kind K (v1) by a Role in namespace a of that cluster"), "{one}");
    }
}
