//! What is wrong with the installation: a controller or a shard does not act, the CRDs are old, the global configuration is invalid.
//!
//! In: the API server, with the permissions of a caller. Out: [`Banner`]s, each with the command that shows more or fixes it. What the
//! caller may not read is not known, and says nothing. The answers are kept for half a minute.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use crate::api::Time;
use crate::api::values::refs::ObjectName;
use crate::installed::{CrdChecker, CrdState, INSTALL};
use crate::page::access::caller::Caller;
use crate::page::read::call::{call, in_time};
use crate::page::read::fresh::Fresh;
use crate::page::trouble::{Trouble, Wanted};
use crate::preview::live;
use crate::telemetry::metrics;

/// The Leases of the controllers that each installation needs, and what is not done without one. The ID of a shard follows after a dash.
const NEEDED: [(metrics::Lease, &str); 2] = [(metrics::Lease::Pipeline, "observed"), (metrics::Lease::Dispatch, "sent")];
/// Maximum number of Leases that are read. Other programs can have Leases in the same namespace.
const LEASES: u32 = 500;
/// How long a Lease counts as held after its end, in seconds.
///
/// The clock of this machine can differ by some minutes from that of the controllers, and a Lease has only their time. A controller that stops
/// removes its name, which is seen at once. So only a crash of all replicas is seen later.
const CLOCKS: i64 = 5 * 60;

/// A sentence above every screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::page) struct Banner {
    pub(in crate::page) text: String,
    pub(in crate::page) command: String,
}

/// The banners of the callers.
#[derive(Default)]
pub(in crate::page) struct Health(Fresh<[u8; 32], Arc<Vec<Banner>>>);

impl Health {
    /// Returns the banners for a caller. `config_map` is that of the global configuration, in the namespace of the controllers.
    pub(in crate::page) async fn banners(&self, caller: &Caller, config_map: &ObjectName, now: Time) -> Arc<Vec<Banner>> {
        if let Some(banners) = self.0.get(&caller.key) {
            return banners;
        }
        let (leases, crds, global) =
            tokio::join!(leases(caller, &config_map.namespace, now), crds(caller), global(caller, config_map));
        let banners: Arc<Vec<_>> = Arc::new(leases.into_iter().chain(crds).chain(global).collect());
        self.0.put(caller.key, banners.clone());
        banners
    }
}

async fn leases(caller: &Caller, namespace: &str, now: Time) -> Vec<Banner> {
    let api: Api<Lease> = Api::namespaced(caller.client.clone(), namespace);
    let wanted = Wanted::new("list", "leases", Some(namespace));
    let Ok(leases) = call(&wanted, api.list(&ListParams::default().limit(LEASES))).await else { return Vec::new() };
    // A part of the list does not show what is missing.
    let is_whole = leases.metadata.continue_.as_deref().is_none_or(str::is_empty);
    if is_whole { idle(&leases.items, namespace, now) } else { Vec::new() }
}

/// Returns a banner if a controller does not act at all, and one for each shard in which it does not act while another shard does.
fn idle(leases: &[Lease], namespace: &str, now: Time) -> Vec<Banner> {
    let command = format!("kubectl get leases,pods -n {namespace}");
    let (mut nowhere, mut undone): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
    // By the ID of the shard. It is empty for the controllers without one.
    let mut shards: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, done) in NEEDED.map(|(lease, done)| (lease.as_str(), done)) {
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
        let (leases, undone) = (nowhere.join(", "), undone.join(" or "));
        format!("No controller acts: {leases}. Nothing is {undone} until one does.")
    });
    let shards = shards.iter().map(|(id, leases)| of_shard(id, &leases.join(", ")));
    nowhere.into_iter().chain(shards).map(|text| Banner { text, command: command.clone() }).collect()
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

async fn crds(caller: &Caller) -> Option<Banner> {
    let mut checker = CrdChecker::new(&caller.client);
    let wanted = Wanted::new("get", "crds", None);
    let state = in_time(async { Ok::<_, kube::Error>(checker.check().await) }, |e| Trouble::new(&e, &wanted)).await.ok()?;
    match state {
        CrdState::Outdated(words) | CrdState::Missing(words) => {
            Some(Banner { text: format!("Controllers of this version do not run: {words}."), command: INSTALL.to_owned() })
        }
        CrdState::Match | CrdState::Forbidden | CrdState::Unknown(_) => None,
    }
}

async fn global(caller: &Caller, config_map: &ObjectName) -> Option<Banner> {
    let wanted = Wanted::new("get", "configmaps", Some(&config_map.namespace));
    let read = in_time(live::global(&caller.client, config_map), |e| Trouble::of_preview(&e, &wanted)).await.ok()?;
    match read {
        Ok(_) | Err(live::GlobalUnavailable::Forbidden(_)) => None,
        Err(why) => Some(Banner {
            text: format!("The global configuration in ConfigMap {config_map} is wrong: {why}."),
            command: format!("kubectl get configmap -n {} {} -o yaml", config_map.namespace, config_map.name),
        }),
    }
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
        let banners = idle(leases, "pennant", Time::from_second(NOW).unwrap());
        assert!(banners.iter().all(|banner| banner.command == "kubectl get leases,pods -n pennant"));
        banners.into_iter().map(|banner| banner.text).collect()
    }

    #[test]
    fn a_controller_that_does_not_act_is_named() {
        let pipeline = lease("pennant-pipeline", "a", 60);
        for (other, expected) in [
            (lease("pennant-dispatch", "a", 60), None),
            // The clock of this machine is four minutes ahead, or an hour behind.
            (lease("pennant-dispatch", "a", 300), None),
            (lease("pennant-dispatch", "a", -3600), None),
            (lease("pennant-dispatch", "a", 391), Some("pennant-dispatch has no holder")),
            (lease("pennant-dispatch", "", 10), Some("pennant-dispatch has no holder")),
            // There are shards only.
            (lease("pennant-dispatch-eu", "a", 60), None),
            (lease("pennant-dispatch-eu", "a", 3600), Some("pennant-dispatch-eu has no holder")),
            (lease("pennant-dispatcher", "a", 60), Some("pennant-dispatch does not exist")),
        ] {
            let text = expected.map(|why| format!("No controller acts: Lease {why}. Nothing is sent until one does."));
            assert_eq!(texts(&[pipeline.clone(), other]), text.into_iter().collect::<Vec<_>>());
        }
        let none = "No controller acts: Lease pennant-pipeline does not exist, Lease pennant-dispatch does not exist. \
            Nothing is observed or sent until one does.";
        assert_eq!(texts(&[]), [none]);
    }

    #[test]
    fn a_shard_that_does_not_act_is_not_the_whole_installation() {
        let both = |holders: [&str; 2], id: &str| {
            let [pipeline, dispatch] = holders;
            [lease(&format!("pennant-pipeline{id}"), pipeline, 10), lease(&format!("pennant-dispatch{id}"), dispatch, 10)]
        };
        let of = |own: [&str; 2], eu: [&str; 2]| texts(&[both(own, ""), both(eu, "-eu")].concat());
        let shard = |leases: &str| {
            format!(
                "Shard eu does not act ({leases}): its pipelines wait, or the shard was removed and its Lease is left over. \
                Delete it then."
            )
        };
        let [pipeline, dispatch] = ["Lease pennant-pipeline-eu has no holder", "Lease pennant-dispatch-eu has no holder"];
        assert_eq!(of(["a", "a"], ["b", "b"]), Vec::<String>::new());
        assert_eq!(of(["a", "a"], ["", ""]), [shard(&format!("{pipeline}, {dispatch}"))]);
        // What is left over of a shard does not hide that nobody sends.
        let nobody =
            format!("No controller acts: Lease pennant-dispatch has no holder, {dispatch}. Nothing is sent until one does.");
        assert_eq!(of(["a", ""], ["", ""]), [nobody, shard(pipeline)]);
        let own = "The controllers without a shard ID do not act (Lease pennant-pipeline has no holder): pipelines that \
            belong to no shard wait.";
        assert_eq!(of(["", "a"], ["b", "b"]), [own]);
    }
}
