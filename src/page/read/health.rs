//! What is wrong with the installation: no controller acts, the CRDs are old, the global configuration is invalid.
//!
//! In: the API server, with the permissions of a caller. Out: [`Banner`]s, each with the command that shows more or fixes it. What the
//! caller may not read is not known, and says nothing. The answers are kept for half a minute.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use tokio::time::Instant;

use crate::api::Time;
use crate::api::values::refs::ObjectName;
use crate::installed::{CrdChecker, CrdState};
use crate::page::access::caller::Caller;
use crate::page::read::call::{call, in_time};
use crate::page::trouble::{Trouble, Wanted};
use crate::preview::live;
use crate::telemetry::metrics;

/// How long an answer is used again.
const FRESH: Duration = Duration::from_secs(30);
/// Maximum number of callers whose answers are kept.
const MOST: usize = 256;
/// The Leases of the controllers that each installation needs. The names of shards follow after a dash.
const NEEDED: [metrics::Lease; 2] = [metrics::Lease::Pipeline, metrics::Lease::Dispatch];

/// A sentence above every screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::page) struct Banner {
    pub(in crate::page) text: String,
    pub(in crate::page) command: String,
}

/// Banners, and when they were made.
type Kept = (Instant, Arc<Vec<Banner>>);

/// The banners of the callers.
#[derive(Default)]
pub(in crate::page) struct Health(Mutex<HashMap<[u8; 32], Kept>>);

impl Health {
    /// Returns the banners for a caller. `config_map` is that of the global configuration, in the namespace of the controllers.
    pub(in crate::page) async fn banners(&self, caller: &Caller, config_map: &ObjectName, now: Time) -> Arc<Vec<Banner>> {
        let kept = |all: &HashMap<_, Kept>| {
            all.get(&caller.key).filter(|(since, _)| since.elapsed() < FRESH).map(|(_, banners)| banners.clone())
        };
        if let Some(banners) = kept(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return banners;
        }
        let (leases, crds, global) =
            tokio::join!(leases(caller, &config_map.namespace, now), crds(caller), global(caller, config_map));
        let banners: Arc<Vec<_>> = Arc::new([leases, crds, global].into_iter().flatten().collect());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (since, _)| since.elapsed() < FRESH);
        if all.len() < MOST {
            all.insert(caller.key, (Instant::now(), banners.clone()));
        }
        banners
    }
}

async fn leases(caller: &Caller, namespace: &str, now: Time) -> Option<Banner> {
    let api: Api<Lease> = Api::namespaced(caller.client.clone(), namespace);
    let wanted = Wanted::new("list", "leases", Some(namespace));
    let leases = call(&wanted, api.list(&ListParams::default().limit(100))).await.ok()?;
    let idle = idle(&leases.items, now);
    (!idle.is_empty()).then(|| Banner {
        text: format!("No controller acts: {}. Nothing is observed or sent until one does.", idle.join(", ")),
        command: format!("kubectl get leases,pods -n {namespace}"),
    })
}

/// Returns the Leases that nobody holds.
fn idle(leases: &[Lease], now: Time) -> Vec<String> {
    let is_held = |lease: &Lease| {
        let Some(spec) = &lease.spec else { return false };
        let lasts = i64::from(spec.lease_duration_seconds.unwrap_or(0));
        let has_holder = spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty());
        // A replica renews its Lease long before the time has passed.
        let is_current = spec.renew_time.as_ref().is_some_and(|renewed| renewed.0.as_second() + lasts >= now.as_second());
        has_holder && is_current
    };
    let is_of = |lease: &Lease, name: &str| {
        let own = lease.name_any();
        own == name || own.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
    };
    let mut idle: Vec<String> = Vec::new();
    for name in NEEDED.map(metrics::Lease::as_str) {
        let own: Vec<_> = leases.iter().filter(|lease| is_of(lease, name)).collect();
        match own.as_slice() {
            [] => idle.push(format!("Lease {name} does not exist")),
            own => idle
                .extend(own.iter().filter(|lease| !is_held(lease)).map(|l| format!("Lease {} has no holder", l.name_any()))),
        }
    }
    idle
}

async fn crds(caller: &Caller) -> Option<Banner> {
    let mut checker = CrdChecker::new(&caller.client);
    let wanted = Wanted::new("get", "crds", None);
    let state = in_time(async { Ok::<_, kube::Error>(checker.check().await) }, |e| Trouble::new(&e, &wanted)).await.ok()?;
    match state {
        CrdState::Outdated(words) | CrdState::Missing(words) => Some(Banner {
            text: format!("The CRDs do not fit this version: {words}."),
            command: "pennant crds | kubectl apply --server-side -f -".to_owned(),
        }),
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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_without_a_current_holder_is_named() {
        let now: Time = "2026-03-01T12:00:00Z".parse().unwrap();
        let lease = |name: &str, holder: &str, renewed: &str| -> Lease {
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"holderIdentity": holder, "leaseDurationSeconds": 90, "renewTime": renewed},
            }))
            .unwrap()
        };
        let (fresh, old) = ("2026-03-01T11:59:00.000000Z", "2026-03-01T11:00:00.000000Z");
        let pipeline = lease("pennant-pipeline", "a", fresh);
        assert_eq!(idle(&[pipeline.clone(), lease("pennant-dispatch", "a", fresh)], now), Vec::<String>::new());
        for (other, words) in [
            (lease("pennant-dispatch", "", fresh), "Lease pennant-dispatch has no holder"),
            (lease("pennant-dispatch", "a", old), "Lease pennant-dispatch has no holder"),
            (lease("pennant-dispatch-eu", "a", old), "Lease pennant-dispatch-eu has no holder"),
            (lease("pennant-dispatcher", "a", fresh), "Lease pennant-dispatch does not exist"),
        ] {
            assert_eq!(idle(&[pipeline.clone(), other], now), [words]);
        }
    }
}
