//! Publishes the options with which the controllers were started.

use super::part::Part;
use crate::options::Options;
use relaybook_runtime::Common;
use relaybook_runtime::published::{Dispatch, Entry, Pipeline, publish_while_leader};

/// Publishes the options of the dispatcher while this Lease is held.
pub(super) fn dispatch(options: &Options, common: &Common, part: &mut Part) {
    let texts = |all: &[ipnet::IpNet]| all.iter().map(ToString::to_string).collect();
    let of = Dispatch {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        watch_namespaces: options.watched(),
        cluster_name: options.cluster_name.clone(),
        config_map: options.config_map.clone(),
        allow_http: options.allow_http,
        allow_destinations: texts(&options.allow_destinations),
        deny_destinations: texts(&options.deny_destinations),
        page_url: options.page.url.as_ref().map(ToString::to_string),
    };
    start(Entry::of_dispatch(&options.namespace, &of), common, part);
}

/// Publishes the options of the pipeline controller while this Lease is held.
pub(super) fn pipeline(options: &Options, common: &Common, part: &mut Part) {
    let of = Pipeline {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        watch_namespaces: options.watched(),
        cluster_name: options.cluster_name.clone(),
        no_cross_namespace_refs: options.no_cross_namespace_refs,
        allow_insecure_clusters: options.allow_insecure_clusters,
        follow: options.follow.iter().map(|kind| kind.name().to_owned()).collect(),
    };
    start(Entry::of_pipeline(&options.namespace, &of), common, part);
}

fn start(entry: Result<Entry, impl std::fmt::Display>, common: &Common, part: &mut Part) {
    let Common { client, lease, stop, .. } = common;
    match entry {
        Ok(entry) => drop(part.tasks.spawn(publish_while_leader(client.clone(), lease.clone(), entry, stop.clone()))),
        Err(error) => tracing::warn!(%error, "the configuration cannot be written as YAML, so it is not published"),
    }
}
