//! Checks whether Notifications, pipelines and sets work, as their statuses say.
//!
//! In: an API server, and the watched namespaces. Out: a warning for each object that does not work. [`endpoints`] adds what no status says.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::api::ListParams;
use kube::{Client, ResourceExt as _};
use tokio::time::timeout;

use super::{Finding, Installation, endpoints};
use crate::diagnosis::read::Watchable;
use crate::diagnosis::{self, Kind, Known, diagnose};
use relaybook_api::pipeline_set::PipelineSet;
use relaybook_api::{Notification, Pipeline, now};
use relaybook_runtime::published::{Installation as Published, find};
use relaybook_runtime::watch::api_in;
use relaybook_telemetry::chain;

/// The name of the local cluster if the chart does not set another one.
const UNNAMED: &str = "in-cluster";

/// Time limit of a list.
const DEADLINE: Duration = Duration::from_secs(10);
/// Maximum number of objects of a kind that are checked in a namespace, or in all.
const MOST: u32 = 500;
/// Maximum number of findings. `relaybook status` shows all.
const SHOWN: usize = 20;

/// The objects that were listed.
#[derive(Default)]
struct Listed {
    pipelines: Vec<Pipeline>,
    notifications: Vec<Notification>,
    sets: Vec<PipelineSet>,
    /// What could not be listed, and why.
    unchecked: Vec<String>,
}

/// Returns a warning for each object that does not work, and for each endpoint to which nothing can be sent, and what was not checked.
pub(super) async fn check(client: &Client, installation: &Installation) -> Vec<Finding> {
    let watched = &installation.watch_namespaces;
    let all =
        if watched.is_empty() { vec![None] } else { watched.iter().map(|namespace| Some(namespace.as_str())).collect() };
    let mut listed = Listed::default();
    for namespace in all {
        list(client, namespace, &mut listed).await;
    }
    let Listed { pipelines, notifications, sets, unchecked } = listed;
    let known =
        Known { installations: &[], pipelines: &pipelines, sets: &sets, notifications: &notifications, pending: &[] };
    let mut all = findings(diagnose(&known, now()), unchecked);
    let published = find(client, Some(installation.namespace.as_str()), "").await;
    all.extend(published.as_ref().ok().and_then(|published| cluster_name(published, &pipelines)));
    all.extend(endpoints::check(client, &notifications, published.as_ref()).await);
    all
}

async fn list(client: &Client, namespace: Option<&str>, listed: &mut Listed) {
    listed.pipelines.extend(page::<Pipeline>(client, namespace, "pipelines", &mut listed.unchecked).await);
    listed.notifications.extend(page::<Notification>(client, namespace, "notifications", &mut listed.unchecked).await);
    listed.sets.extend(page::<PipelineSet>(client, namespace, "pipelinesets", &mut listed.unchecked).await);
}

/// Returns a warning if pipelines have targets on other clusters, and the local one has the name that it has in every cluster.
fn cluster_name(published: &Published, pipelines: &[Pipeline]) -> Option<Finding> {
    if published.dispatch.cluster_name != UNNAMED {
        return None;
    }
    let watched = pipelines.iter().filter(|pipeline| published.watches(&pipeline.namespace().unwrap_or_default()));
    let statuses = watched.filter_map(|pipeline| pipeline.status.as_ref());
    let others: BTreeSet<_> =
        statuses.flat_map(|status| &status.clusters).map(|cluster| cluster.cluster_ref.full_name()).collect();
    (!others.is_empty()).then(|| {
        let count = others.len();
        let those = if count == 1 { "1 other cluster has".to_owned() } else { format!("{count} other clusters have") };
        let why = format!("messages call the local cluster {UNNAMED}, and {those} targets");
        let remedy = "set `clusterName` of the chart to a name by which people know this cluster".to_owned();
        Finding::warning("name of the local cluster".to_owned(), why, remedy)
    })
}

/// Lists at most 500 objects.
async fn page<K: Watchable>(client: &Client, namespace: Option<&str>, what: &str, unchecked: &mut Vec<String>) -> Vec<K> {
    let place = namespace.map_or_else(|| "all namespaces".to_owned(), |namespace| format!("namespace {namespace}"));
    let api = api_in::<K>(client, namespace);
    let why = match timeout(DEADLINE, api.list(&ListParams::default().limit(MOST))).await {
        Ok(Ok(list)) => {
            if list.metadata.continue_.as_deref().is_some_and(|more| !more.is_empty()) {
                unchecked.push(format!("{what} in {place}: only {MOST} were checked"));
            }
            return list.items;
        }
        // The CRDs have a check of their own.
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => return Vec::new(),
        Ok(Err(error)) => chain(&error),
        Err(_) => "the API server does not answer".to_owned(),
    };
    unchecked.push(format!("{what} in {place}: not checked, {why}"));
    Vec::new()
}

fn findings(wrong: Vec<diagnosis::Finding>, unchecked: Vec<String>) -> Vec<Finding> {
    let more = wrong.len().saturating_sub(SHOWN);
    let shown = wrong.into_iter().take(SHOWN).map(|one| {
        let kind = match one.kind {
            Kind::Installation => "installation",
            Kind::Cluster => "cluster",
            Kind::Notification => "Notification",
            Kind::PipelineSet => "PipelineSet",
            Kind::Pipeline => "Pipeline",
        };
        let place = if one.namespace.is_empty() { String::new() } else { format!("{}/", one.namespace) };
        Finding::warning(format!("{kind} {place}{}", one.name), one.message, one.remedy)
    });
    let rest = (more > 0).then(|| {
        let why = format!("{more} more findings are not shown");
        Finding::warning("objects".to_owned(), why, "`relaybook status -A` shows all".to_owned())
    });
    shown.chain(rest).chain(unchecked.into_iter().map(Finding::ok)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::diagnosis::Level;
    use relaybook_runtime::published::Dispatch;

    #[test]
    fn several_clusters_need_a_name_for_the_local_one() {
        let published = |name: &str, watch: &[&str]| Published {
            namespace: "own".to_owned(),
            dispatch: Dispatch {
                version: "0.1.0".to_owned(),
                watch_namespaces: watch.iter().map(ToString::to_string).collect(),
                cluster_name: name.to_owned(),
                config_map: "relaybook-config".to_owned(),
                allow_http: false,
                allow_destinations: Vec::new(),
                deny_destinations: Vec::new(),
                page_url: None,
            },
        };
        let pipeline = |clusters: &[&str]| -> Pipeline {
            let cluster = |name: &&str| json!({"clusterRef": {"kind": "Secret", "name": name}, "reachable": true});
            let clusters: Vec<_> = clusters.iter().map(cluster).collect();
            let metadata = json!({"name": "web", "namespace": "team-a"});
            let status = json!({"clusters": clusters});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"environments": []}, "status": status})).unwrap()
        };
        let why = |published: &Published, clusters: &[&str]| {
            cluster_name(published, &[pipeline(clusters), pipeline(clusters)]).map(|finding| finding.why)
        };
        let begin = "messages call the local cluster in-cluster, and";
        let unnamed = published("in-cluster", &[]);
        assert_eq!(why(&unnamed, &["eu"]), Some(format!("{begin} 1 other cluster has targets")));
        assert_eq!(why(&unnamed, &["eu", "us"]), Some(format!("{begin} 2 other clusters have targets")));
        for (published, clusters) in
            [(unnamed, &[][..]), (published("eu-1", &[]), &["eu"]), (published("in-cluster", &["team-b"]), &["eu"])]
        {
            assert_eq!(why(&published, clusters), None);
        }
    }

    #[test]
    fn objects_that_do_not_work_are_warnings_and_bounded() {
        let wrong = |n: usize| diagnosis::Finding {
            level: Level::Problem,
            kind: Kind::Pipeline,
            namespace: "team-a".to_owned(),
            name: format!("web-{n}"),
            reason: "SecretMissing".to_owned(),
            message: "hooks refuse every request".to_owned(),
            remedy: "create the Secret".to_owned(),
            since: None,
        };
        let all = findings((0..22).map(wrong).collect(), vec!["pipelines: not checked".to_owned()]);
        assert_eq!((all.len(), all[0].what.as_str()), (22, "Pipeline team-a/web-0"));
        assert!(all[..21].iter().all(|finding| finding.level == Some(Level::Warning)), "{all:?}");
        assert_eq!((all[20].why.as_str(), all[21].level), ("2 more findings are not shown", None));
    }
}
