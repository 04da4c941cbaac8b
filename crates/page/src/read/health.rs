//! What is wrong with the installation: a controller or a shard does not act, the CRDs are old, the global configuration is invalid.
//!
//! In: the API server, with the permissions of a caller. Out: the [`Finding`]s above every screen. What the caller may not read is not known,
//! and says nothing. The answers are kept for half a minute.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::ListParams;

use crate::access::caller::Caller;
use crate::read::call::{call, in_time};
use crate::read::fresh::Fresh;
use crate::trouble::{Trouble, Wanted};
use relaybook_api::{ObjectName, Time};
use relaybook_runtime::installed::acting::{MAX_LEASES, OBSERVES, SENDS, idle};
use relaybook_runtime::installed::{CrdChecker, CrdState};
use relaybook_tools::diagnosis::{Finding, Installation, of_installation};
use relaybook_tools::preview::live;

/// What was found for the callers.
#[derive(Default)]
pub(crate) struct Health(Fresh<[u8; 32], Arc<Vec<Finding>>>);

impl Health {
    /// Returns the findings for a caller. `config_map` is that of the global configuration, in the namespace of the controllers.
    pub(crate) async fn findings(&self, caller: &Caller, config_map: &ObjectName, now: Time) -> Arc<Vec<Finding>> {
        if let Some(found) = self.0.get(&caller.key) {
            return found;
        }
        let (idle, crds, global) =
            tokio::join!(leases(caller, &config_map.namespace, now), crds(caller), global(caller, config_map));
        let namespace = config_map.namespace.clone();
        let found = Arc::new(of_installation(&Installation { namespace, idle, crds, global, ..Installation::default() }));
        self.0.put(caller.person(), caller.key, found.clone());
        found
    }
}

async fn leases(caller: &Caller, namespace: &str, now: Time) -> Vec<String> {
    let api: Api<Lease> = Api::namespaced(caller.client.clone(), namespace);
    let wanted = Wanted::new("list", "leases", Some(namespace));
    let Ok(leases) = call(&wanted, api.list(&ListParams::default().limit(MAX_LEASES))).await else { return Vec::new() };
    // A part of the list does not show what is missing.
    let is_whole = leases.metadata.continue_.as_deref().is_none_or(str::is_empty);
    if !is_whole {
        return Vec::new();
    }
    idle(&leases.items, &[OBSERVES, SENDS], now)
}

async fn crds(caller: &Caller) -> Option<String> {
    let mut checker = CrdChecker::new(&caller.client);
    let wanted = Wanted::new("get", "crds", None);
    let state = in_time(async { Ok::<_, kube::Error>(checker.check().await) }, |e| Trouble::new(&e, &wanted)).await.ok()?;
    match state {
        CrdState::Outdated(words) | CrdState::Missing(words) => Some(words),
        CrdState::Match | CrdState::Forbidden | CrdState::Unknown(_) => None,
    }
}

async fn global(caller: &Caller, config_map: &ObjectName) -> Option<(String, String)> {
    let wanted = Wanted::new("get", "configmaps", Some(&config_map.namespace));
    let read = in_time(live::global(&caller.client, config_map), |e| Trouble::of_preview(&e, &wanted)).await.ok()?;
    match read {
        Ok(_) | Err(live::GlobalUnavailable::Forbidden(_)) => None,
        Err(why) => Some((config_map.to_string(), why.to_string())),
    }
}
