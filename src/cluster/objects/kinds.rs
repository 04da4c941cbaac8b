//! Which kind was meant by one that a cluster does not have: asked of the cluster itself.
//!
//! In: a kind and its API version. Out: the kind or the version that differs least from it, if the cluster has one; it is a guess,
//! and nothing depends on it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResourceList};
use kube::Client;

use super::cache::CacheKey;
use crate::api::values::nearest::nearest;
use crate::cluster::Reason;
use crate::cluster::error::ObserveError;

/// Longer names of a cluster are neither compared nor passed on.
const LONGEST: usize = 128;
/// Maximum number of wrong letters of an API version for a suggestion.
const SLIP: usize = 2;
/// No more of them are compared: a cluster may send names without end.
const MOST: usize = 1000;

/// The trouble, with the kind in its words, where it is that which is missing.
pub(in crate::cluster) fn named(cluster: &str, key: &CacheKey, trouble: ObserveError) -> ObserveError {
    if trouble.reason != Reason::KindNotFound {
        return trouble;
    }
    ObserveError::new(trouble.reason, format!("cluster {cluster} has no kind {} in {}", key.kind, key.api_version))
}

/// The trouble, and what the cluster has instead of a kind that is missing.
pub(in crate::cluster) async fn meant(client: &Client, key: &CacheKey, trouble: ObserveError) -> ObserveError {
    if trouble.reason != Reason::KindNotFound {
        return trouble;
    }
    let Some(instead) = instead(client, key).await else { return trouble };
    ObserveError::new(trouble.reason, format!("{}; {instead}", trouble.message))
}

/// What the cluster has instead, in words.
async fn instead(client: &Client, key: &CacheKey) -> Option<String> {
    let version = &key.api_version;
    let resources = if version.contains('/') {
        client.list_api_group_resources(version).await
    } else {
        client.list_core_api_resources(version).await
    };
    match resources {
        Ok(resources) => kind(&resources, &key.kind).map(|kind| format!("did you mean kind {kind}?")),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let groups = client.list_api_groups().await.ok()?;
            api_version(&groups, version).map(|version| format!("did you mean apiVersion {version}?"))
        }
        Err(_) => None,
    }
}

/// The kind with namespaces that differs least.
fn kind<'a>(resources: &'a APIResourceList, meant: &str) -> Option<&'a str> {
    let all = resources.resources.iter().filter(|r| r.namespaced && !r.name.contains('/'));
    closest(meant, all.map(|r| r.kind.as_str()))
}

/// Another version of the same group, or else the group and version that differ least.
fn api_version<'a>(groups: &'a APIGroupList, meant: &str) -> Option<&'a str> {
    let group = meant.split_once('/').map_or("", |(group, _)| group);
    let own = groups.groups.iter().find(|g| g.name == group);
    let preferred = own.and_then(|g| g.preferred_version.as_ref()).map(|v| v.group_version.as_str());
    let all = groups.groups.iter().flat_map(|g| &g.versions).map(|v| v.group_version.as_str());
    // Most of a group is the same for all of one vendor, so that a third of the letters may differ says nothing.
    let slip = |v: &&str| strsim::damerau_levenshtein(meant, v) <= SLIP;
    let near = || closest(meant, all.chain(["v1"])).filter(slip);
    preferred.filter(|v| is_plain(v) && *v != meant).or_else(near)
}

fn closest<'a>(meant: &str, all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let all = all.filter(|name| *name != meant && is_plain(name) && meant.len() <= LONGEST);
    nearest(meant, all.take(MOST))
}

/// Whether it is a name and nothing else: it comes from a cluster that may be anybody's.
fn is_plain(name: &str) -> bool {
    name.len() <= LONGEST && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '/'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_misspelt_kind() {
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
    fn a_misspelt_version() {
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
