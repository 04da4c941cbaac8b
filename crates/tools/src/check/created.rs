//! Pure: the kinds of which the chart creates objects with its default values.
//!
//! In: how the controllers are installed. Out: the permissions that an installation needs ([`Wanted`]), each with its remedy.

use super::needs::{Installation, Need};

/// Where the chart creates objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// They have no namespace.
    Cluster,
    /// They have no namespace, and exist only if all namespaces are watched.
    WholeCluster,
    /// In the namespace of the controllers.
    Own,
    /// In the namespace of the controllers, and in each watched namespace.
    Each,
}

/// A kind of which the chart creates objects.
#[derive(Clone, Copy, Debug)]
struct Created {
    kind: &'static str,
    group: &'static str,
    resource: &'static str,
    place: Place,
    /// The value with which the chart leaves these objects out. Empty: there is none.
    without: &'static str,
}

const fn created(
    place: Place,
    kind: &'static str,
    group: &'static str,
    resource: &'static str,
    without: &'static str,
) -> Created {
    Created { kind, group, resource, place, without }
}

/// The API group of Roles.
pub(super) const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// The kinds, with the default values of the chart.
const KINDS: [Created; 12] = [
    created(
        Place::Cluster,
        "CustomResourceDefinition",
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "crds.install=false",
    ),
    created(Place::WholeCluster, "ClusterRole", RBAC, "clusterroles", "watchNamespaces={NAMESPACE}"),
    created(Place::WholeCluster, "ClusterRoleBinding", RBAC, "clusterrolebindings", "watchNamespaces={NAMESPACE}"),
    created(
        Place::WholeCluster,
        "ValidatingAdmissionPolicy",
        ADMISSION,
        "validatingadmissionpolicies",
        "admissionPolicy.enabled=false",
    ),
    created(
        Place::WholeCluster,
        "ValidatingAdmissionPolicyBinding",
        ADMISSION,
        "validatingadmissionpolicybindings",
        "admissionPolicy.enabled=false",
    ),
    created(Place::Own, "ServiceAccount", "", "serviceaccounts", "serviceAccount.create=false"),
    created(Place::Each, "Role", RBAC, "roles", "rbac.create=false"),
    created(Place::Each, "RoleBinding", RBAC, "rolebindings", "rbac.create=false"),
    created(Place::Own, "Deployment", "apps", "deployments", ""),
    created(Place::Own, "Service", "", "services", "metrics.service.enabled=false"),
    created(Place::Own, "PodDisruptionBudget", "policy", "poddisruptionbudgets", "podDisruptionBudget.enabled=false"),
    created(Place::Own, "NetworkPolicy", "networking.k8s.io", "networkpolicies", "networkPolicy.enabled=false"),
];

/// A permission that an installation needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The subject of the check.
    pub(super) what: String,
    /// The permission.
    pub(super) need: Need,
    /// What a person can do without it.
    pub(super) remedy: String,
}

/// Returns the permissions to create what the chart creates.
pub(super) fn wanted(installation: &Installation) -> Vec<Wanted> {
    let Installation { namespace, watch_namespaces, .. } = installation;
    let others = watch_namespaces.iter().filter(|watched| *watched != namespace);
    let each: Vec<&String> = std::iter::once(namespace).chain(others).collect();
    let is_created = |kind: &&Created| kind.place != Place::WholeCluster || watch_namespaces.is_empty();
    let of_kind = |kind: &Created| -> Vec<Wanted> {
        match kind.place {
            Place::Cluster | Place::WholeCluster => vec![kind.wanted(None)],
            Place::Own => vec![kind.wanted(Some(namespace))],
            Place::Each => each.iter().map(|&namespace| kind.wanted(Some(namespace))).collect(),
        }
    };
    KINDS.iter().filter(is_created).flat_map(of_kind).collect()
}

impl Created {
    fn wanted(&self, namespace: Option<&String>) -> Wanted {
        let Self { kind, group, resource, without, .. } = *self;
        let need = Need::of(group, resource, &["create"]).within(namespace.map(String::as_str));
        let group = if group.is_empty() { String::new() } else { format!(".{group}") };
        let place = namespace.map_or_else(String::new, |namespace| format!(" in {namespace}"));
        let or =
            if without.is_empty() { String::new() } else { format!(", or leave out each {kind} with `--set {without}`") };
        let remedy = format!("install with an account that may, such as one with the ClusterRole cluster-admin{or}");
        Wanted { what: format!("permission to create {resource}{group}{place}"), need, remedy }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Kinds that only other values of the chart add.
    const OPTIONAL: [&str; 7] =
        ["ConfigMap", "HTTPRoute", "Ingress", "Pod", "PodMonitor", "PrometheusRule", "ServiceMonitor"];
    /// The CRDs are files of the chart, and not templates.
    const CRDS: &str = "CustomResourceDefinition";

    /// Returns the kinds of the templates in a folder.
    fn templates(folder: &Path) -> BTreeSet<String> {
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let of_file = |path: std::path::PathBuf| {
            if path.is_dir() {
                return templates(&path);
            }
            // The notes for users contain examples.
            if path.extension().is_none_or(|extension| extension != "yaml") {
                return BTreeSet::new();
            }
            let text = std::fs::read_to_string(path).unwrap();
            text.lines().filter_map(|line| line.strip_prefix("kind: ")).map(str::to_owned).collect()
        };
        files.flat_map(of_file).collect()
    }

    #[test]
    fn the_table_has_the_kinds_of_the_chart() {
        let chart = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/relaybook/templates"));
        let known = KINDS.iter().map(|kind| kind.kind).chain(OPTIONAL).filter(|kind| *kind != CRDS);
        let known: BTreeSet<String> = known.map(str::to_owned).collect();
        assert_eq!(templates(chart), known);
    }

    fn of(watch: &[&str]) -> Vec<String> {
        let watch_namespaces = watch.iter().map(ToString::to_string).collect();
        let installation = Installation { namespace: "own".to_owned(), watch_namespaces, ..Installation::default() };
        wanted(&installation).into_iter().map(|wanted| wanted.what.replace("permission to create ", "")).collect()
    }

    #[test]
    fn a_cluster_wide_installation_creates_objects_without_a_namespace() {
        let all = of(&[]);
        assert_eq!(all.len(), KINDS.len());
        assert_eq!(all[0], "customresourcedefinitions.apiextensions.k8s.io");
        assert_eq!(all[1], "clusterroles.rbac.authorization.k8s.io");
        assert!(all.contains(&"serviceaccounts in own".to_owned()) && all.contains(&"deployments.apps in own".to_owned()));
    }

    #[test]
    fn an_installation_for_single_namespaces_creates_roles_in_each() {
        let all = of(&["own", "team-a"]);
        let roles: Vec<_> = all.iter().filter_map(|what| what.strip_prefix("roles.rbac.authorization.k8s.io in ")).collect();
        assert_eq!(roles, ["own", "team-a"]);
        assert!(all.iter().all(|what| !what.starts_with("clusterrole") && !what.starts_with("validating")), "{all:?}");
    }

    #[test]
    fn a_refused_kind_can_be_left_out() {
        let installation = Installation { namespace: "own".to_owned(), ..Installation::default() };
        let remedy = |resource: &str| {
            wanted(&installation).into_iter().find(|wanted| wanted.need.resource == resource).unwrap().remedy
        };
        assert!(
            remedy("clusterroles").ends_with(", or leave out each ClusterRole with `--set watchNamespaces={NAMESPACE}`")
        );
        assert!(remedy("deployments").ends_with("the ClusterRole cluster-admin"));
    }
}
