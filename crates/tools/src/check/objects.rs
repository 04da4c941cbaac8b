//! Checks whether Notifications, pipelines and sets work, as their statuses say. It reads no Secret.

use std::time::Duration;

use kube::Client;
use kube::api::ListParams;
use tokio::time::timeout;

use super::{Finding, Installation};
use crate::diagnosis::read::Watchable;
use crate::diagnosis::{self, Kind, Known, diagnose};
use relaybook_api::now;
use relaybook_runtime::watch::api_in;
use relaybook_telemetry::chain;

/// Time limit of a list.
const DEADLINE: Duration = Duration::from_secs(10);
/// Maximum number of objects of a kind that are checked in a namespace, or in all.
const MOST: u32 = 500;
/// Maximum number of findings. `relaybook status` shows all.
const SHOWN: usize = 20;

/// Returns a warning for each object that does not work, and what was not checked.
pub(super) async fn check(client: &Client, installation: &Installation) -> Vec<Finding> {
    let watched = &installation.watch_namespaces;
    let all =
        if watched.is_empty() { vec![None] } else { watched.iter().map(|namespace| Some(namespace.as_str())).collect() };
    let (mut wrong, mut unchecked) = (Vec::new(), Vec::new());
    for namespace in all {
        wrong.extend(in_namespace(client, namespace, &mut unchecked).await);
    }
    findings(wrong, unchecked)
}

async fn in_namespace(client: &Client, namespace: Option<&str>, unchecked: &mut Vec<String>) -> Vec<diagnosis::Finding> {
    let pipelines = page(client, namespace, "pipelines", unchecked).await;
    let notifications = page(client, namespace, "notifications", unchecked).await;
    let sets = page(client, namespace, "pipelinesets", unchecked).await;
    let known =
        Known { installations: &[], pipelines: &pipelines, sets: &sets, notifications: &notifications, pending: &[] };
    diagnose(&known, now())
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
    use super::*;
    use crate::diagnosis::Level;

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
