//! Writes what a controller publishes, while it is the leader.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde::Serialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Dispatch, LABEL, NAME, Pipeline};
use crate::k8s::call::{CallError, call};
use crate::leader::Lease;
use crate::telemetry::chain;

/// No call may hang for longer.
const CALL: Duration = Duration::from_secs(10);
/// What was changed or deleted by somebody else is written again after so long.
const NOW_AND_THEN: Duration = Duration::from_mins(10);
/// After a failure it is tried again after so long.
const AGAIN: Duration = Duration::from_secs(30);

/// What one controller publishes.
#[derive(Clone, Debug)]
pub struct Entry {
    namespace: String,
    key: &'static str,
    manager: &'static str,
    text: String,
}

impl Entry {
    /// Of the dispatcher that runs in this namespace.
    pub fn of_dispatch(namespace: &str, dispatch: &Dispatch) -> Result<Self, serde_saphyr::SerializeError> {
        Self::new(namespace, Dispatch::KEY, "pennant-dispatch", dispatch)
    }

    /// Of the pipeline controller that runs in this namespace.
    pub fn of_pipeline(namespace: &str, pipeline: &Pipeline) -> Result<Self, serde_saphyr::SerializeError> {
        Self::new(namespace, Pipeline::KEY, "pennant-pipeline", pipeline)
    }

    fn new(
        namespace: &str,
        key: &'static str,
        manager: &'static str,
        what: &impl Serialize,
    ) -> Result<Self, serde_saphyr::SerializeError> {
        Ok(Self { namespace: namespace.to_owned(), key, manager, text: serde_saphyr::to_string(what)? })
    }
}

/// Keeps it published until `stop`, as long as the Lease is ours. A failure is logged once and tried again; nothing waits for it.
pub async fn keep(client: Client, lease: Lease, entry: Entry, stop: CancellationToken) -> &'static str {
    let mut turns = lease.turns();
    let mut said = None;
    let work = async {
        loop {
            turns.borrow_and_update();
            let mut pause = NOW_AND_THEN;
            if lease.wait(CALL * 2).await {
                match publish(&client, &entry).await {
                    Ok(()) => said = None,
                    Err(error) => {
                        pause = AGAIN;
                        let error = chain(&error);
                        if said.as_ref() != Some(&error) {
                            tracing::warn!(config_map = NAME, error, "could not publish the configuration; retrying");
                            said = Some(error);
                        }
                    }
                }
            }
            tokio::select! {
                Ok(()) = turns.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    };
    stop.run_until_cancelled(work).await.unwrap_or("publishing the configuration")
}

/// Writes it if something else is there.
async fn publish(client: &Client, entry: &Entry) -> Result<(), CallError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &entry.namespace);
    let found = call(api.get_opt(NAME)).await?;
    let same = |found: &ConfigMap| {
        let is_labelled =
            found.metadata.labels.as_ref().is_some_and(|labels| labels.get(LABEL).is_some_and(|v| v == "true"));
        is_labelled && found.data.as_ref().and_then(|data| data.get(entry.key)) == Some(&entry.text)
    };
    if found.as_ref().is_some_and(same) {
        return Ok(());
    }
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": NAME,
            "labels": {LABEL: "true", "app.kubernetes.io/managed-by": "pennant"},
            "annotations": {"pennant.dev/about": "written by Pennant; settings of the running controllers, for pennant explain and pennant render"},
        },
        "data": {entry.key: entry.text},
    });
    let params = PatchParams::apply(entry.manager).force();
    let patch = Patch::Apply(&object);
    call(api.patch(NAME, &params, &patch)).await?;
    tracing::info!(config_map = NAME, key = entry.key, "the configuration is published");
    Ok(())
}
