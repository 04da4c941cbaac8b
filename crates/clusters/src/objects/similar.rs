//! Finds objects that the user may have meant when an object does not exist.
//!
//! In: objects that do not exist. Out: for each the namespaces with an object of that name, and names in its own namespace for a
//! suggestion. Only caches of the same cluster and kind with a complete list are used. So no name comes from another cluster or from an
//! unwatched namespace.

use std::collections::HashMap;

use super::cache::{CacheKey, Tracked};
use super::store::Store;
use relaybook_api::Status;
use relaybook_core::reading::{Application, SimilarObjects};

impl Store {
    /// Returns similar objects for each of these objects.
    pub fn similar_to(&self, objects: &[Application]) -> Vec<SimilarObjects> {
        let mut found: Vec<SimilarObjects> = objects.iter().map(|_| SimilarObjects::default()).collect();
        let mut kinds: HashMap<CacheKey, Vec<usize>> = HashMap::new();
        for (at, object) in objects.iter().enumerate() {
            if let Some(kind) = kind_of(object) {
                kinds.entry(kind).or_default().push(at);
            }
        }
        for (kind, wanted) in kinds {
            for (name, _) in self.listed_of(&kind).filter(|(_, tracked)| exists(tracked)) {
                for at in &wanted {
                    found[*at].note(&objects[*at], &name.namespace, &name.name);
                }
            }
        }
        found.iter_mut().for_each(SimilarObjects::limit);
        found
    }
}

/// Returns the key of the kind of an object, without a namespace. `None`: it is not a kind.
fn kind_of(object: &Application) -> Option<CacheKey> {
    let app = &object.object;
    Some(CacheKey {
        cluster: app.cluster_ref.clone(),
        revision_path: object.revision_path.clone(),
        cluster_path: object.cluster_path.clone(),
        record: object.record.clone(),
        kind: app.object_kind().ok()?,
        namespace: None,
    })
}

fn exists(tracked: &Tracked) -> bool {
    tracked.unreadable || (tracked.seq > 0 && tracked.current.status != Status::NotFound)
}

#[cfg(test)]
mod tests {
    use relaybook_core::reading::NAMES;
    use std::collections::{BTreeSet, HashSet};

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::Scope;
    use crate::objects::cache::{CacheId, name_of};
    use relaybook_api::values::refs::{ClusterAppRef, ClusterKind, ClusterRef};
    use relaybook_core::observe::{EventOrigin, Observation, ReadObject};
    use relaybook_core::reading::Follower;

    fn app(cluster: Option<&str>, kind: &str, namespace: &str, name: &str) -> Application {
        let cluster_ref = cluster.map(|name| ClusterRef {
            api_version: None,
            kind: ClusterKind::Secret,
            name: name.into(),
            namespace: Some("team".into()),
        });
        let object = ClusterAppRef {
            api_version: "apps/v1".into(),
            kind: kind.into(),
            name: name.into(),
            namespace: namespace.into(),
            cluster_ref,
        };
        Application { object, ..Application::default() }
    }

    /// Returns a store with the objects of `there`, each in the cache of its kind. A pipeline needs the objects of `wanted`.
    fn store(scope: Scope, wanted: &[Application], there: &[Application], listed: bool) -> Store {
        let mut store = Store::new(scope, false);
        let pipeline = Follower::pipeline("team", "shop");
        let declared = store.declare(&pipeline, wanted.iter().cloned().collect(), &CancellationToken::new());
        let ids: Vec<CacheId> = declared.started.into_iter().map(|(id, _)| id).collect();
        for id in &ids {
            let here = there.iter().filter(|app| {
                let own = CacheKey { namespace: id.key.namespace.clone(), ..kind_of(app).unwrap() };
                own == id.key && id.key.namespace.as_ref().is_none_or(|ns| *ns == app.object.namespace)
            });
            let names: HashSet<_> = here.map(name_of).collect();
            for name in &names {
                let observation = Observation { status: Status::Current, ..Observation::default() };
                store.record(id, name, ReadObject { observation, relation: None }, EventOrigin::Listed);
            }
            if listed {
                store.listed(id, &names, true);
            }
        }
        store
    }

    fn words(alike: &SimilarObjects) -> String {
        let join = |all: &BTreeSet<String>| all.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        format!("{} {}", join(&alike.namespaces), join(&alike.names))
    }

    #[test]
    fn similar_objects_have_the_same_name_elsewhere_or_a_close_name_in_the_namespace() {
        let deployment = |namespace, name| app(None, "Deployment", namespace, name);
        let there = [
            deployment("podinfo-prod", "podinfo"),
            deployment("podinfo-prd", "podinfro"),
            deployment("podinfo-prd", "a"),
            deployment("podinfo-prd", "podinf\u{202e}"),
            deployment("a\nb", "podinfo"),
            deployment("other", "podinfro"),
            app(None, "StatefulSet", "sets", "podinfo"),
            app(Some("eu"), "Deployment", "eu", "podinfo"),
        ];
        let meant = deployment("podinfo-prd", "podinfo");
        let remote = app(Some("eu"), "Deployment", "podinfo-prd", "podinfo");
        let set = app(None, "StatefulSet", "podinfo-prd", "podinfo");
        let wanted = [meant, remote, set];
        let found = store(Scope::All, &wanted, &there, true).similar_to(&wanted);
        assert_eq!(found.iter().map(words).collect::<Vec<_>>(), ["podinfo-prod podinfro", "eu ", "sets "]);
        let filling = store(Scope::All, &wanted, &there, false).similar_to(&wanted);
        assert_eq!(filling, vec![SimilarObjects::default(); 3], "nothing is known before all is listed");
    }

    #[test]
    fn no_similar_object_of_an_unwatched_namespace_is_suggested() {
        let there = ["a", "b", "c"].map(|namespace| app(None, "Deployment", namespace, "web"));
        let wanted = [app(None, "Deployment", "d", "web"), app(None, "Deployment", "a", "web")];
        let watched = Scope::Namespaces(["a", "d"].map(str::to_owned).into());
        assert_eq!(words(&store(watched, &wanted, &there, true).similar_to(&wanted)[0]), "a ");
    }

    #[test]
    fn the_number_of_suggested_similar_objects_is_bounded() {
        let mut there: Vec<_> = (0..9).map(|i| app(None, "Deployment", &format!("n{i}"), "web")).collect();
        there.extend((0..2 * NAMES).map(|i| app(None, "Deployment", "here", &format!("w{i:03}"))));
        let wanted = [app(None, "Deployment", "here", "web")];
        assert_eq!(words(&store(Scope::All, &wanted, &there, true).similar_to(&wanted)[0]), "n0,n1,n2 ");
    }
}
