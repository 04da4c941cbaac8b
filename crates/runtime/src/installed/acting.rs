//! Whether the controllers of an installation act.
//!
//! In: the Leases of their namespace, and the time. Out: a sentence for each part of the work that nobody does. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;

use relaybook_api::Time;
use relaybook_core::leader::{DISPATCH, PIPELINE, PROMOTE};

/// The Lease of the controller that observes, and what is not done without a holder.
pub const OBSERVES: (&str, &str) = (PIPELINE, "observed");
/// The Lease of the controller that sends.
pub const SENDS: (&str, &str) = (DISPATCH, "sent");
/// The Lease of the controller that promotes. An installation without promotions does not have it.
pub const PROMOTES: (&str, &str) = (PROMOTE, "promoted");
/// Maximum number of Leases that are read. Other programs can have Leases in the same namespace.
pub const MAX_LEASES: u32 = 500;
/// How long a Lease counts as held after its end, in seconds.
///
/// The clock of this machine can differ by some minutes from that of the controllers, and a Lease has only their time. A controller that stops
/// removes its name, which is seen at once. So only a crash of all replicas is seen later.
const CLOCKS: i64 = 5 * 60;

/// The command that shows more.
#[must_use]
pub fn command(namespace: &str) -> String {
    format!("kubectl get leases,pods -n {namespace}")
}

/// Returns a sentence if one of these controllers does not act at all, and one for each shard in which it does not act while another shard
/// does. The Leases are all those of their namespace.
#[must_use]
pub fn idle(leases: &[Lease], needed: &[(&str, &'static str)], now: Time) -> Vec<String> {
    let (mut nowhere, mut undone): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
    // By the ID of the shard. It is empty for the controllers without one.
    let mut shards: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for &(name, done) in needed {
        let own = leases.iter().filter_map(|lease| Some((shard(&lease.name_any(), name)?, lease)));
        let (held, free): (Vec<_>, Vec<_>) = own.partition(|(_, lease)| is_held(lease, now));
        if held.is_empty() {
            undone.push(done);
            if free.is_empty() {
                nowhere.push(format!("Lease {name} does not exist"));
            }
        }
        for (id, lease) in free {
            let list = if held.is_empty() { &mut nowhere } else { shards.entry(id).or_default() };
            list.push(format!("Lease {} has no holder", lease.name_any()));
        }
    }
    let nowhere = (!nowhere.is_empty()).then(|| {
        let (leases, undone) = (nowhere.join(", "), either(&undone));
        format!("No controller acts: {leases}. Nothing is {undone} until one does.")
    });
    let shards = shards.iter().map(|(id, leases)| of_shard(id, &leases.join(", ")));
    nowhere.into_iter().chain(shards).collect()
}

/// Returns the Leases of a controller that are held, in all shards: the name of each, and its holder.
#[must_use]
pub fn holders<'a>(leases: &'a [Lease], controller: &str, now: Time) -> Vec<(String, &'a str)> {
    let held = leases.iter().filter(|lease| shard(&lease.name_any(), controller).is_some() && is_held(lease, now));
    let holder = |lease: &'a Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
    held.map(|lease| (lease.name_any(), holder(lease))).collect()
}

/// Returns words as an enumeration: `a, b or c`.
fn either(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Returns the sentence about a shard whose controllers do not act. The Leases of a shard that was removed stay, and look the same.
fn of_shard(id: &str, leases: &str) -> String {
    if id.is_empty() {
        return format!("The controllers without a shard ID do not act ({leases}): pipelines that belong to no shard wait.");
    }
    format!(
        "Shard {id} does not act ({leases}): its pipelines wait, or the shard was removed and its Lease is left over. Delete it then."
    )
}

/// Returns the ID of the shard to which a Lease belongs. Without shards it is empty. `None`: it is not a Lease of this controller.
fn shard(lease: &str, controller: &str) -> Option<String> {
    let rest = lease.strip_prefix(controller)?;
    if rest.is_empty() { Some(String::new()) } else { rest.strip_prefix('-').map(str::to_owned) }
}

fn is_held(lease: &Lease, now: Time) -> bool {
    let Some(spec) = &lease.spec else { return false };
    let lasts = i64::from(spec.lease_duration_seconds.unwrap_or(0)) + CLOCKS;
    let has_holder = spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty());
    has_holder && spec.renew_time.as_ref().is_some_and(|renewed| renewed.0.as_second() + lasts >= now.as_second())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

    use super::*;

    /// The present, in seconds.
    const NOW: i64 = 1_772_366_400;

    /// Returns a Lease that was renewed this number of seconds ago.
    fn lease(name: &str, holder: &str, ago: i64) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(90),
            renew_time: Some(MicroTime(Time::from_second(NOW - ago).unwrap())),
            ..LeaseSpec::default()
        };
        Lease { metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }, spec: Some(spec) }
    }

    fn texts(leases: &[Lease]) -> Vec<String> {
        idle(leases, &[OBSERVES, SENDS], Time::from_second(NOW).unwrap())
    }

    #[test]
    fn a_controller_that_does_not_act_is_named() {
        let pipeline = lease("relaybook-pipeline", "a", 60);
        for (other, expected) in [
            (lease("relaybook-dispatch", "a", 60), None),
            // The clock of this machine is four minutes ahead, or an hour behind.
            (lease("relaybook-dispatch", "a", 300), None),
            (lease("relaybook-dispatch", "a", -3600), None),
            (lease("relaybook-dispatch", "a", 391), Some("relaybook-dispatch has no holder")),
            (lease("relaybook-dispatch", "", 10), Some("relaybook-dispatch has no holder")),
            // There are shards only.
            (lease("relaybook-dispatch-eu", "a", 60), None),
            (lease("relaybook-dispatch-eu", "a", 3600), Some("relaybook-dispatch-eu has no holder")),
            (lease("relaybook-dispatcher", "a", 60), Some("relaybook-dispatch does not exist")),
        ] {
            let text = expected.map(|why| format!("No controller acts: Lease {why}. Nothing is sent until one does."));
            assert_eq!(texts(&[pipeline.clone(), other]), text.into_iter().collect::<Vec<_>>());
        }
        let none = "No controller acts: Lease relaybook-pipeline does not exist, Lease relaybook-dispatch does not exist. \
            Nothing is observed or sent until one does.";
        assert_eq!(texts(&[]), [none]);
    }

    #[test]
    fn held_leases_have_holders_in_all_shards() {
        let all = [
            lease("relaybook-dispatch", "a", 60),
            lease("relaybook-dispatch-eu", "b", 60),
            lease("relaybook-dispatch-us", "c", 3600),
            lease("relaybook-dispatcher", "d", 60),
            lease("relaybook-pipeline", "", 60),
        ];
        let held = |name| holders(&all, name, Time::from_second(NOW).unwrap());
        let expected = [("relaybook-dispatch".to_owned(), "a"), ("relaybook-dispatch-eu".to_owned(), "b")];
        assert_eq!(held("relaybook-dispatch"), expected);
        assert!(held("relaybook-pipeline").is_empty() && held("relaybook-promote").is_empty());
    }

    #[test]
    fn a_shard_that_does_not_act_is_not_the_whole_installation() {
        let both = |holders: [&str; 2], id: &str| {
            let [pipeline, dispatch] = holders;
            [
                lease(&format!("relaybook-pipeline{id}"), pipeline, 10),
                lease(&format!("relaybook-dispatch{id}"), dispatch, 10),
            ]
        };
        let of = |own: [&str; 2], eu: [&str; 2]| texts(&[both(own, ""), both(eu, "-eu")].concat());
        let shard = |leases: &str| {
            format!(
                "Shard eu does not act ({leases}): its pipelines wait, or the shard was removed and its Lease is left over. \
                Delete it then."
            )
        };
        let [pipeline, dispatch] =
            ["Lease relaybook-pipeline-eu has no holder", "Lease relaybook-dispatch-eu has no holder"];
        assert_eq!(of(["a", "a"], ["b", "b"]), Vec::<String>::new());
        assert_eq!(of(["a", "a"], ["", ""]), [shard(&format!("{pipeline}, {dispatch}"))]);
        // What is left over of a shard does not hide that nobody sends.
        let nobody = format!(
            "No controller acts: Lease relaybook-dispatch has no holder, {dispatch}. Nothing is sent until one does."
        );
        assert_eq!(of(["a", ""], ["", ""]), [nobody, shard(pipeline)]);
        let own = "The controllers without a shard ID do not act (Lease relaybook-pipeline has no holder): pipelines that \
            belong to no shard wait.";
        assert_eq!(of(["", "a"], ["b", "b"]), [own]);
    }
}
