//! Suggests a kind or API version when a cluster does not have the requested one. The cluster itself provides the candidates.
//!
//! In: a kind and its API version. Out: the most similar kind or version of the cluster, if there is one. It is a guess, and no decision
//! depends on it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResourceList};
use kube::Client;

use super::cache::CacheKey;
use super::store::narrow::MAX_NAMESPACES;
use crate::error::ObserveError;
use relaybook_api::values::nearest::nearest;
use relaybook_core::reading::Reason;

/// Maximum length of a name. Longer names of a cluster are neither compared nor passed on.
const LONGEST: usize = 128;
/// Maximum edit distance between an API version and a suggestion.
const SLIP: usize = 2;
/// Maximum number of names that are compared. A cluster may send names without end.
const MOST: usize = 1000;

/// Adds the kind to the message if it is missing. If another cluster denies access to it, adds the permission that is missing.
pub(crate) fn named(cluster: &str, key: &CacheKey, trouble: ObserveError) -> ObserveError {
    let (kind, version) = (key.kind.kind(), key.kind.api_version());
    let message = match (trouble.reason, &key.cluster, &key.namespace) {
        (Reason::KindNotFound, ..) => format!("cluster {cluster} has no kind {kind} in {version}"),
        (Reason::Forbidden, Some(_), Some(namespace)) => {
            let role = format!("a Role in namespace {namespace} of that cluster");
            format!("{}; allow list and watch of kind {kind} ({version}) by {role}, or by a ClusterRole", trouble.message)
        }
        (Reason::Forbidden, Some(_), None) => {
            let needs = format!("a ClusterRole, because more than {MAX_NAMESPACES} namespaces or no namespaces are named");
            format!("{}; allow list and watch of kind {kind} ({version}) by {needs}", trouble.message)
        }
        _ => return trouble,
    };
    ObserveError::new(trouble.reason, message)
}

/// Adds a suggestion to the message if the error is that the kind is missing.
pub(crate) async fn meant(client: &Client, key: &CacheKey, trouble: ObserveError) -> ObserveError {
    if trouble.reason != Reason::KindNotFound {
        return trouble;
    }
    let Some(instead) = instead(client, key).await else { return trouble };
    ObserveError::new(trouble.reason, format!("{}; {instead}", trouble.message))
}

/// Returns the suggestion as text.
async fn instead(client: &Client, key: &CacheKey) -> Option<String> {
    let version = key.kind.api_version();
    let resources = if key.kind.group().is_empty() {
        client.list_core_api_resources(version).await
    } else {
        client.list_api_group_resources(version).await
    };
    match resources {
        Ok(resources) => kind(&resources, key.kind.kind()).map(|kind| format!("did you mean kind {kind}?")),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let groups = client.list_api_groups().await.ok()?;
            api_version(&groups, version).map(|version| format!("did you mean apiVersion {version}?"))
        }
        Err(_) => None,
    }
}

/// Returns the most similar namespaced kind.
fn kind<'a>(resources: &'a APIResourceList, meant: &str) -> Option<&'a str> {
    let all = resources.resources.iter().filter(|r| r.namespaced && !r.name.contains('/'));
    closest(meant, all.map(|r| r.kind.as_str()))
}

/// Returns another version of the same group, or else the most similar group and version.
fn api_version<'a>(groups: &'a APIGroupList, meant: &str) -> Option<&'a str> {
    let group = meant.split_once('/').map_or("", |(group, _)| group);
    let own = groups.groups.iter().find(|g| g.name == group);
    let preferred = own.and_then(|g| g.preferred_version.as_ref()).map(|v| v.group_version.as_str());
    let all = groups.groups.iter().flat_map(|g| &g.versions).map(|v| v.group_version.as_str());
    // Groups of one vendor share most of their letters, so the usual limit of one third is too lenient here.
    let slip = |v: &&str| strsim::damerau_levenshtein(meant, v) <= SLIP;
    let near = || closest(meant, all.chain(["v1"])).filter(slip);
    preferred.filter(|v| is_plain(v) && *v != meant).or_else(near)
}

fn closest<'a>(meant: &str, all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let all = all.filter(|name| *name != meant && is_plain(name) && meant.len() <= LONGEST);
    nearest(meant, all.take(MOST))
}

/// Whether the text is a plain name. It comes from an untrusted cluster.
fn is_plain(name: &str) -> bool {
    name.len() <= LONGEST && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '/'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_misspelt_kind_gets_the_closest_served_kind() {
        let resource = |name: &str, kind: &str, namespaced: bool| json!({"name": name, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": []});
        let list = json!({"groupVersion": "apps/v1", "resources": [
            resource("deployments", "Deployment", true), resource("deployments/scale", "Scale", true),
            resource("statefulsets", "StatefulSet", true), resource("nodes", "Node", false),
            resource("odds", "D\u{202e}ds", true),
        ]});
        let list: APIResourceList = serde_json::from_value(list).unwrap();
        for (meant, found) in [
            ("Deploymnt", Some("Deployment")),
            ("deployment", Some("Deployment")),
            ("Statefulset", Some("StatefulSet")),
            ("Scal", None),
            ("Nod", None),
            ("Dds", None),
            ("HelmRelease", None),
        ] {
            assert_eq!(kind(&list, meant), found, "{meant}");
        }
    }

    #[test]
    fn a_misspelt_api_version_gets_the_closest_served_one() {
        let version = |group: &str, v: &str| json!({"groupVersion": format!("{group}/{v}"), "version": v});
        let group = |name: &str, all: &[&str]| {
            let versions: Vec<_> = all.iter().map(|v| version(name, v)).collect();
            json!({"name": name, "versions": versions, "preferredVersion": version(name, all[0])})
        };
        let list = json!({"groups": [group("apps", &["v1"]), group("helm.toolkit.fluxcd.io", &["v2", "v2beta2"])]});
        let list: APIGroupList = serde_json::from_value(list).unwrap();
        for (meant, found) in [
            ("apps/v2", Some("apps/v1")),
            ("app/v1", Some("apps/v1")),
            ("helm.toolkit.fluxcd.io/v2beta1", Some("helm.toolkit.fluxcd.io/v2")),
            ("helm.toolkit.fluxdc.io/v2", Some("helm.toolkit.fluxcd.io/v2")),
            ("heml.toolkits.fluxdc.io/v2", None),
            ("example.com/v1", None),
        ] {
            assert_eq!(api_version(&list, meant), found, "{meant}");
        }
    }
}
