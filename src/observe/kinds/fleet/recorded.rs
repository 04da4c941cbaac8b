//! Recordings of a real Fleet 0.16: three clusters, one line for each watch event (`tests/data/fleet`). The first line says what happens.
//! Each object is read after each event, together with its Bundles.

use std::collections::BTreeMap;

use kube::core::DynamicObject;

use super::super::super::testing::*;
use super::super::super::{EventOrigin, Member, ReadObject, Relation, combine, see};

/// Kind, namespace and name.
type Key = (String, String, String);

/// Returns the object of an event. `None`: it was deleted.
fn object_of(event: &Value) -> (Key, Option<DynamicObject>) {
    let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let labels: BTreeMap<String, Value> = event["labels"]
        .as_object()
        .map(|all| all.iter().map(|(name, value)| (format!("fleet.cattle.io/{name}"), value.clone())).collect())
        .unwrap_or_default();
    let object = json!({
        "apiVersion": "fleet.cattle.io/v1alpha1", "kind": event["kind"], "spec": event["spec"], "status": event["status"],
        "metadata": {"name": event["name"], "namespace": event["ns"], "generation": event["gen"], "labels": labels},
    });
    let is_there = event["ev"] != "DELETED";
    let object = is_there.then(|| serde_json::from_value(object).unwrap());
    ((text("kind"), text("ns"), text("name")), object)
}

/// Reads all objects again after each event. Returns for each object its status and the commit that it tries, whenever one of them changes.
/// `restarts_at`: the number of the event after which the process starts again.
fn told(recording: &str, restarts_at: usize) -> BTreeMap<Key, Vec<String>> {
    let mut objects: BTreeMap<Key, ReadObject> = BTreeMap::new();
    let mut told: BTreeMap<Key, Vec<String>> = BTreeMap::new();
    for (number, line) in recording.lines().skip(1).enumerate() {
        let event: Value = serde_json::from_str(line).unwrap();
        let (key, object) = object_of(&event);
        let origin = if event["at"] == "before" { EventOrigin::Listed } else { EventOrigin::Changed };
        let mut read = see(object.as_ref(), None);
        let before = objects.get(&key).and_then(|before| before.relation.as_ref());
        read.relation = read.relation.map(|relation| relation.following(before, origin));
        objects.insert(key, read);
        if number == restarts_at {
            for read in objects.values_mut() {
                read.relation = read.relation.take().map(|relation| relation.following(None, EventOrigin::Listed));
            }
        }
        let bundles: Vec<(Key, ReadObject)> =
            objects.iter().filter(|(key, _)| key.0 == "Bundle").map(|(key, read)| (key.clone(), read.clone())).collect();
        for (key, read) in &mut objects {
            let observation = match &mut read.relation {
                Some(Relation::Parent(parent)) => {
                    let part = |read: &'_ ReadObject| read.relation.as_ref().and_then(Relation::as_part).cloned();
                    let parts: Vec<_> = bundles.iter().filter_map(|(key, read)| Some((key, read, part(read)?))).collect();
                    let mine = parts.iter().filter(|(.., part)| part.families().contains(parent.family()));
                    let members: Vec<_> = mine
                        .map(|(key, read, part)| Member { name: &key.2, read: Some((&read.observation, part)) })
                        .collect();
                    combine(parent, &members)
                }
                _ => read.observation.clone(),
            };
            let commit = observation.attempted_revision.get(..6).unwrap_or(&observation.attempted_revision);
            let state = format!("{:?} {commit}", observation.status);
            let all = told.entry(key.clone()).or_default();
            if all.last() != Some(&state) {
                all.push(state);
            }
        }
    }
    told
}

/// The states of an object in a recording.
fn states(recording: &str, restarts_at: usize, kind: &str, namespace: &str, name: &str) -> Vec<String> {
    let key = (kind.to_owned(), namespace.to_owned(), name.to_owned());
    told(recording, restarts_at).remove(&key).unwrap_or_default()
}

#[test]
fn recordings_give_exactly_their_states_also_with_a_restart_after_any_event() {
    let new = include_str!("../../../../tests/data/fleet/new-gitrepo.jsonl");
    let not_installed = include_str!("../../../../tests/data/fleet/installed-false.jsonl");
    let broken = include_str!("../../../../tests/data/fleet/never-ready.jsonl");
    let no_targets = include_str!("../../../../tests/data/fleet/targeting-error.jsonl");
    let created = ["InProgress ", "InProgress 915599", "Current 915599"];
    let repaired = |[first, fails, last]: [&str; 3]| {
        let states = [("Current", first), ("InProgress", fails), ("Failed", fails), ("InProgress", last), ("Current", last)];
        states.map(|(status, commit)| format!("{status} {commit}"))
    };
    let (not_installed_then, broken_then) =
        (repaired(["8a0a48", "197d4d", "da6233"]), repaired(["2ced78", "1f81d4", "7fff62"]));
    let failed_twice = ["Failed 0e7c8e", "InProgress e5b7a6", "Failed e5b7a6"];
    for restarts_at in 0..120 {
        let here = |recording, kind, name| states(recording, restarts_at, kind, "fleet-default", name);
        assert_eq!(here(new, "GitRepo", "shop"), created, "{restarts_at}");
        assert_eq!(here(new, "Bundle", "shop-web"), created[1..], "{restarts_at}");
        for (kind, name) in [("GitRepo", "shop"), ("Bundle", "shop-db")] {
            assert_eq!(here(not_installed, kind, name), not_installed_then, "{kind}, {restarts_at}");
            assert_eq!(here(no_targets, kind, name), failed_twice, "{kind}, {restarts_at}");
        }
        for (kind, name) in [("GitRepo", "shop"), ("Bundle", "shop-web")] {
            assert_eq!(here(broken, kind, name), broken_then, "{kind}, {restarts_at}");
        }
    }
    // The label of a deployment needs the Bundle to confirm it after a restart.
    let c1 = |recording, name| states(recording, usize::MAX, "BundleDeployment", "cluster-fleet-default-c1", name);
    assert_eq!(c1(new, "shop-web"), created[1..]);
    assert_eq!(c1(not_installed, "shop-db"), not_installed_then);
    assert_eq!(c1(broken, "shop-web"), broken_then);
}
