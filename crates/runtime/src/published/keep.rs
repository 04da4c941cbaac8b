//! Writes the published configuration of a controller, while this replica is the leader.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde::Serialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Dispatch, LABEL, NAME, Pipeline};
use crate::call::{CallError, call};
use crate::leader::Lease;
use relaybook_api::ABOUT;
use relaybook_telemetry::chain;

/// Maximum duration of a call; see [`call`]. One update needs at most two calls.
const CALL: Duration = Duration::from_secs(10);
/// How often the ConfigMap is compared, to restore it after another client changed or deleted it.
const RECHECK_INTERVAL: Duration = Duration::from_mins(10);
/// The pause after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// The published configuration of one controller.
#[derive(Clone, Debug)]
pub struct Entry {
    namespace: String,
    key: &'static str,
    manager: &'static str,
    text: String,
}

impl Entry {
    /// Creates the entry of the dispatcher that runs in this namespace.
    pub fn of_dispatch(namespace: &str, dispatch: &Dispatch) -> Result<Self, serde_saphyr::SerializeError> {
        Self::new(namespace, Dispatch::KEY, "relaybook-dispatch", dispatch)
    }

    /// Creates the entry of the pipeline controller that runs in this namespace.
    pub fn of_pipeline(namespace: &str, pipeline: &Pipeline) -> Result<Self, serde_saphyr::SerializeError> {
        Self::new(namespace, Pipeline::KEY, "relaybook-pipeline", pipeline)
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

/// Keeps the entry published until `stop` is canceled, while this replica holds the Lease. Failures are retried. The same failure is logged
/// only once in succession. No other work waits for this task.
pub async fn publish_while_leader(client: Client, lease: Lease, entry: Entry, stop: CancellationToken) -> &'static str {
    let mut terms = lease.term_numbers();
    let mut last_error = None;
    let work = async {
        loop {
            terms.borrow_and_update();
            let mut pause = RECHECK_INTERVAL;
            if lease.wait(CALL * 2).await && lease.owns_common() {
                match publish(&client, &entry).await {
                    Ok(()) => last_error = None,
                    Err(error) => {
                        pause = RETRY_DELAY;
                        let error = chain(&error);
                        if last_error.as_ref() != Some(&error) {
                            tracing::warn!(config_map = NAME, error, "could not publish the configuration; retrying");
                            last_error = Some(error);
                        }
                    }
                }
            }
            tokio::select! {
                Ok(()) = terms.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    };
    stop.run_until_cancelled(work).await.unwrap_or("publishing the configuration")
}

/// Writes the entry if the ConfigMap differs from it.
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
            "labels": {LABEL: "true", "app.kubernetes.io/managed-by": "relaybook"},
            "annotations": {ABOUT: "written by Relaybook; settings of the running controllers, for relaybook explain and relaybook render"},
        },
        "data": {entry.key: entry.text},
    });
    let params = PatchParams::apply(entry.manager).force();
    let patch = Patch::Apply(&object);
    call(api.patch(NAME, &params, &patch)).await?;
    tracing::info!(config_map = NAME, key = entry.key, "published the configuration");
    Ok(())
}
