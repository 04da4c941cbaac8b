//! Pure: the permissions that the controllers need in every installation.
//!
//! In: the settings of `relaybook run` ([`Installation`]). Out: the permissions ([`Need`]), as in the chart's Roles. Observed kinds,
//! Secrets and ConfigMaps with templates are not included, because each installation chooses them.

use std::fmt;

use relaybook_api::GROUP;
use relaybook_api::values::shard::Sharding;
use relaybook_core::leader::{DISPATCH, PIPELINE, PROMOTE};
use relaybook_runtime::published;

/// How the controllers are installed.
#[derive(Clone, Debug, Default)]
pub struct Installation {
    /// Whether the pipeline controller runs.
    pub pipeline: bool,
    /// Whether the dispatcher runs.
    pub dispatch: bool,
    /// Whether the promotion controller runs.
    pub promote: bool,
    /// The namespace of the controllers.
    pub namespace: String,
    /// The watched namespaces. Empty: all namespaces.
    pub watch_namespaces: Vec<String>,
    /// The ConfigMap of the global configuration.
    pub config_map: String,
    /// Whether `PipelineSets` are turned off.
    pub no_pipeline_sets: bool,
    /// The shard of the controllers.
    pub sharding: Sharding,
}

impl Installation {
    const fn makes_pipelines(&self) -> bool {
        self.pipeline && !self.no_pipeline_sets
    }
}

/// A permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The verbs.
    pub verbs: &'static [&'static str],
    /// The API group. Empty: the core group.
    pub group: &'static str,
    /// The resource, as a plural.
    pub resource: &'static str,
    /// The subresource, if the permission is for one.
    pub subresource: Option<&'static str>,
    /// The namespace. `None`: all namespaces.
    pub namespace: Option<String>,
    /// The name of the object. `None`: all objects.
    pub name: Option<String>,
}

impl Need {
    pub(super) const fn of(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Self {
        Self { verbs, group, resource, subresource: None, namespace: None, name: None }
    }

    fn status(resource: &'static str) -> Self {
        Self { subresource: Some("status"), ..Self::of(GROUP, resource, &["patch"]) }
    }

    pub(super) fn within(self, namespace: Option<&str>) -> Self {
        Self { namespace: namespace.map(str::to_owned), ..self }
    }

    fn named(self, name: String) -> Self {
        Self { name: Some(name), ..self }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verbs.join(", "), self.resource)?;
        if let Some(subresource) = self.subresource {
            write!(f, "/{subresource}")?;
        }
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => f.write_str(" in all namespaces"),
        }
    }
}

/// Returns the permissions that an installation needs.
#[must_use]
pub fn needs(installation: &Installation) -> Vec<Need> {
    let Installation { dispatch, promote, namespace, watch_namespaces, .. } = installation;
    let mut all = Vec::new();
    if watch_namespaces.is_empty() {
        all.extend(watched_namespace_needs(installation, None));
    }
    for watched in watch_namespaces {
        all.extend(watched_namespace_needs(installation, Some(watched)));
    }
    all.extend(own_namespace_needs(installation));
    // Deliveries of cluster-wide notifications are in the namespace of the controllers.
    if !watch_namespaces.is_empty() && !watch_namespaces.contains(namespace) {
        if *dispatch {
            all.extend(delivery_needs(Some(namespace), installation));
        } else if *promote {
            all.push(Need::of(GROUP, "deliveries", &["list", "watch"]).within(Some(namespace)));
        }
    }
    all
}

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];

fn watched_namespace_needs(installation: &Installation, namespace: Option<&str>) -> Vec<Need> {
    let Installation { pipeline, dispatch, promote, .. } = *installation;
    let mut all = vec![Need::of(GROUP, "pipelines", if installation.makes_pipelines() { WRITE } else { READ })];
    if installation.makes_pipelines() {
        all.extend([Need::of(GROUP, "pipelinesets", READ), Need::status("pipelinesets")]);
    }
    if pipeline || dispatch {
        all.push(Need::status("pipelines"));
    }
    if promote {
        all.extend([Need::of(GROUP, "promotions", WRITE), Need::status("promotions")]);
    } else if pipeline {
        all.push(Need::of(GROUP, "promotions", READ));
    }
    if dispatch {
        all.extend([Need::of(GROUP, "notifications", READ), Need::status("notifications")]);
    }
    let all = all.into_iter().map(|need| need.within(namespace));
    all.chain(delivery_needs(namespace, installation)).collect()
}

fn delivery_needs(namespace: Option<&str>, installation: &Installation) -> Vec<Need> {
    let mut all = Vec::new();
    if installation.dispatch {
        all.push(Need::of(GROUP, "deliveries", WRITE));
    } else if installation.promote {
        all.push(Need::of(GROUP, "deliveries", &["list", "watch"]));
    }
    all.push(Need::of("events.k8s.io", "events", &["create", "patch"]));
    all.into_iter().map(|need| need.within(namespace)).collect()
}

fn own_namespace_needs(installation: &Installation) -> Vec<Need> {
    const LEASES: &str = "coordination.k8s.io";
    let Installation { pipeline, dispatch, promote, config_map, .. } = installation;
    let mut all = vec![Need::of(LEASES, "leases", &["create"])];
    let leases = [(pipeline, PIPELINE), (dispatch, DISPATCH), (promote, PROMOTE)];
    for (_, name) in leases.into_iter().filter(|(runs, _)| **runs) {
        all.push(Need::of(LEASES, "leases", &["get", "list", "watch", "update"]).named(installation.sharding.lease(name)));
    }
    if installation.makes_pipelines() {
        all.push(Need::of(GROUP, "pipelinesets", &["create", "patch", "delete"]));
    }
    all.push(Need::of("", "configmaps", &["get", "create", "patch"]).named(published::NAME.to_owned()));
    if *dispatch {
        let last_good = format!("{config_map}-last-good");
        all.push(Need::of("", "configmaps", &["get", "list", "watch"]).named(config_map.clone()));
        all.push(Need::of("", "configmaps", &["get", "create", "patch"]).named(last_good));
    }
    all.into_iter().map(|need| need.within(Some(&installation.namespace))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the permissions for these controllers, with a space between their names.
    fn told(controllers: &str, watch: &[&str]) -> Vec<String> {
        let runs = |name: &str| controllers.split(' ').any(|runs| runs == name);
        let installation = Installation {
            pipeline: runs("pipeline"),
            dispatch: runs("dispatch"),
            promote: runs("promote"),
            namespace: "own".to_owned(),
            watch_namespaces: watch.iter().map(ToString::to_string).collect(),
            config_map: "global".to_owned(),
            no_pipeline_sets: runs("no-sets"),
            sharding: Sharding { id: if runs("eu") { "eu".to_owned() } else { String::new() }, ..Sharding::default() },
        };
        needs(&installation).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_shard_has_its_own_leases() {
        let told = told("dispatch eu", &[]);
        let lease = "get, list, watch, update leases.coordination.k8s.io relaybook-dispatch-eu in own";
        assert!(told.iter().any(|need| need == lease), "{told:?}");
    }

    #[test]
    fn all_controllers_need_their_permissions_in_all_namespaces() {
        assert_eq!(
            told("pipeline dispatch promote", &[]),
            [
                "get, list, watch, create, patch, delete pipelines.relaybook.dev in all namespaces",
                "get, list, watch pipelinesets.relaybook.dev in all namespaces",
                "patch pipelinesets/status.relaybook.dev in all namespaces",
                "patch pipelines/status.relaybook.dev in all namespaces",
                "get, list, watch, create, patch, delete promotions.relaybook.dev in all namespaces",
                "patch promotions/status.relaybook.dev in all namespaces",
                "get, list, watch notifications.relaybook.dev in all namespaces",
                "patch notifications/status.relaybook.dev in all namespaces",
                "get, list, watch, create, patch, delete deliveries.relaybook.dev in all namespaces",
                "create, patch events.events.k8s.io in all namespaces",
                "create leases.coordination.k8s.io in own",
                "get, list, watch, update leases.coordination.k8s.io relaybook-pipeline in own",
                "get, list, watch, update leases.coordination.k8s.io relaybook-dispatch in own",
                "get, list, watch, update leases.coordination.k8s.io relaybook-promote in own",
                "create, patch, delete pipelinesets.relaybook.dev in own",
                "get, create, patch configmaps relaybook-info in own",
                "get, list, watch configmaps global in own",
                "get, create, patch configmaps global-last-good in own",
            ]
        );
    }

    #[test]
    fn the_pipeline_controller_alone_needs_no_notifications() {
        assert_eq!(
            told("pipeline no-sets", &["a"]),
            [
                "get, list, watch pipelines.relaybook.dev in a",
                "patch pipelines/status.relaybook.dev in a",
                "get, list, watch promotions.relaybook.dev in a",
                "create, patch events.events.k8s.io in a",
                "create leases.coordination.k8s.io in own",
                "get, list, watch, update leases.coordination.k8s.io relaybook-pipeline in own",
                "get, create, patch configmaps relaybook-info in own",
            ]
        );
    }

    #[test]
    fn the_promotion_controller_alone_writes_only_promotions() {
        assert_eq!(
            told("promote", &["a"]),
            [
                "get, list, watch pipelines.relaybook.dev in a",
                "get, list, watch, create, patch, delete promotions.relaybook.dev in a",
                "patch promotions/status.relaybook.dev in a",
                "list, watch deliveries.relaybook.dev in a",
                "create, patch events.events.k8s.io in a",
                "create leases.coordination.k8s.io in own",
                "get, list, watch, update leases.coordination.k8s.io relaybook-promote in own",
                "get, create, patch configmaps relaybook-info in own",
                "list, watch deliveries.relaybook.dev in own",
            ]
        );
    }

    #[test]
    fn the_sets_of_follow_are_made_in_the_own_namespace() {
        let of_sets = |controllers| -> Vec<_> {
            told(controllers, &["a"]).into_iter().filter(|need| need.contains(" pipelinesets.")).collect()
        };
        let watched = "get, list, watch pipelinesets.relaybook.dev in a";
        assert_eq!(of_sets("pipeline"), [watched, "create, patch, delete pipelinesets.relaybook.dev in own"]);
        assert!(of_sets("pipeline no-sets").is_empty() && of_sets("dispatch promote").is_empty());
    }

    #[test]
    fn the_dispatcher_alone_needs_no_permission_for_promotions() {
        let all = told("dispatch", &["a"]);
        assert!(all.iter().all(|need| !need.contains("promotions")), "{all:?}");
    }

    #[test]
    fn the_own_namespace_is_listed_once() {
        let deliveries = |watch: &[&str]| -> Vec<_> {
            let all = told("dispatch", watch).into_iter().filter(|need| need.contains(" deliveries.relaybook.dev"));
            all.map(|need| need.rsplit_once(' ').unwrap().1.to_owned()).collect()
        };
        assert_eq!(deliveries(&["a", "b"]), ["a", "b", "own"]);
        assert_eq!(deliveries(&["a", "own"]), ["a", "own"]);
        assert_eq!(deliveries(&[]), ["namespaces"]);
    }
}
