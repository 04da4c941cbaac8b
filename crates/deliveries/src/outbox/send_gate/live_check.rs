//! Checks that an object is really gone. An object that is absent from a cache may still exist, so only a live read proves it.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client};

use super::index::{Gone, PipelineIndex, Source};
use relaybook_api::delivery::GLOBAL;
use relaybook_api::pipeline::target::subjects;
use relaybook_api::{DeliverySpec, Notification, Pipeline};
use relaybook_runtime::call::{CallError, call};

/// Maximum number of Notifications that are read one by one.
const READS: usize = 4;

/// Checks with a live read whether the pipeline, target or notification of a delivery is gone.
pub async fn is_gone(
    client: &Client,
    pipeline_index: &PipelineIndex,
    cluster: &str,
    spec: &DeliverySpec,
    what: Gone,
) -> Result<bool, CallError> {
    let of = &spec.pipeline_ref;
    match what {
        Gone::Notification => {
            is_notification_gone(client, pipeline_index, &of.namespace, &spec.notification, &spec.notification_uid).await
        }
        Gone::Pipeline | Gone::Target => {
            let api: Api<Pipeline> = Api::namespaced(client.clone(), &of.namespace);
            let Some(pipeline) = call(api.get_opt(&of.name)).await?.filter(|p| p.metadata.uid.as_ref() == Some(&of.uid))
            else {
                return Ok(true);
            };
            Ok(what == Gone::Target && !subjects(&pipeline, cluster).contains(&spec.log_subject().to_string()))
        }
    }
}

/// Returns which of these Notifications are gone, each a name and the uid under which it was known. One list reads more than a few of them,
/// because thousands can be deleted at once.
pub async fn gone_notifications(
    client: &Client,
    pipeline_index: &PipelineIndex,
    namespace: &str,
    suspects: &[(&str, &str)],
) -> Result<HashSet<String>, CallError> {
    if suspects.len() > READS {
        let is_global = |(_, uid): &(&str, &str)| *uid == GLOBAL;
        let is_current = !suspects.iter().any(is_global) || is_current(client, pipeline_index).await?;
        let api: Api<Notification> = Api::namespaced(client.clone(), namespace);
        let there = call(api.list_metadata(&ListParams::default())).await?;
        let there: HashSet<&str> = there.iter().filter_map(|object| object.metadata.name.as_deref()).collect();
        let gone = suspects.iter().filter(|suspect| is_current || !is_global(suspect));
        return Ok(gone.filter(|(name, _)| !there.contains(name)).map(|(name, _)| (*name).to_owned()).collect());
    }
    let mut gone = HashSet::new();
    for (name, uid) in suspects {
        if is_notification_gone(client, pipeline_index, namespace, name, uid).await? {
            gone.insert((*name).to_owned());
        }
    }
    Ok(gone)
}

/// Checks with a live read whether the Notification of this name is gone. If the global configuration defines a part of it, the check
/// requires that the known version of that configuration is the current one. `uid`: the uid under which the notification was known.
async fn is_notification_gone(
    client: &Client,
    pipeline_index: &PipelineIndex,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<bool, CallError> {
    if uid == GLOBAL && !is_current(client, pipeline_index).await? {
        return Ok(false);
    }
    let api: Api<Notification> = Api::namespaced(client.clone(), namespace);
    Ok(call(api.get_metadata_opt(name)).await?.is_none())
}

/// Returns whether the global configuration is in force in its current version.
async fn is_current(client: &Client, pipeline_index: &PipelineIndex) -> Result<bool, CallError> {
    let Source { config_map, version, is_in_force, .. } = pipeline_index.source();
    let Some(of) = config_map.filter(|_| is_in_force) else { return Ok(false) };
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &of.namespace);
    let live = call(api.get_metadata_opt(&of.name)).await?;
    Ok(live.and_then(|object| object.metadata.resource_version) == version)
}
