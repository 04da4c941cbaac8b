//! Pure: what must be true of a cluster before an installation.
//!
//! In: what the API server answered. Out: a [`Finding`] for each check, with the remedy.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;

use super::Finding;
use super::needs::Installation;
use relaybook_api::{GROUP, Time};
use relaybook_core::leader::{DISPATCH, PIPELINE, PROMOTE};
use relaybook_runtime::installed::acting::holders;
use relaybook_runtime::published::Installation as Published;

/// The oldest supported version of Kubernetes. A test compares it with the chart.
const OLDEST: (u32, u32) = (1, 31);
/// The label of a namespace with the level of Pod Security, and the levels
/// (<https://kubernetes.io/docs/concepts/security/pod-security-standards/>). The Pods of the chart are allowed by all of them.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
const LEVELS: [&str; 3] = ["privileged", "baseline", "restricted"];
/// The annotations with which Helm marks the objects of a release.
const RELEASE: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";

/// Checks the version of the API server: its name, and its two numbers. Some clusters have a `+` after the second number.
pub(super) fn server(name: &str, major: &str, minor: &str) -> Finding {
    let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse::<u32>().ok());
    let what = format!("Kubernetes {name}");
    let (oldest_major, oldest_minor) = OLDEST;
    match number(major).zip(number(minor)) {
        Some(found) if found < OLDEST => Finding::problem(
            what,
            format!("the oldest supported version is {oldest_major}.{oldest_minor}"),
            format!("upgrade the cluster to Kubernetes {oldest_major}.{oldest_minor} or newer"),
        ),
        Some(_) => Finding::ok(what),
        None => Finding::ok(format!("{what}: not checked, the version has no numbers")),
    }
}

/// Checks the namespace of the controllers, if it exists.
pub(super) fn namespace(namespace: &Namespace) -> Vec<Finding> {
    let name = namespace.name_any();
    let what = format!("namespace {name}");
    if namespace.metadata.deletion_timestamp.is_some() {
        let remedy = format!("wait until it is gone: `kubectl wait --for=delete namespace/{name}`");
        return vec![Finding::problem(what, "it is being deleted".to_owned(), remedy)];
    }
    let level = namespace.labels().get(ENFORCE).map(|level| {
        let what = format!("Pod Security of namespace {name}: {level}");
        if LEVELS.contains(&level.as_str()) {
            return Finding::ok(what);
        }
        let why = format!("this is no level, so the API server may refuse the Pods; the levels are {}", LEVELS.join(", "));
        Finding::warning(what, why, format!("`kubectl label namespace {name} {ENFORCE}=restricted --overwrite`"))
    });
    std::iter::once(Finding::ok(format!("{what} exists"))).chain(level).collect()
}

/// Checks the namespace of the controllers, if it does not exist.
pub(super) fn no_namespace(name: &str, may_create: bool) -> Finding {
    let what = format!("namespace {name}");
    if may_create {
        return Finding::ok(format!("{what} does not exist, and this account may create it"));
    }
    let why = "it does not exist, and this account may not create it".to_owned();
    Finding::problem(what, why, format!("let an administrator run `kubectl create namespace {name}`"))
}

/// Compares the CRDs of the cluster with those of this program. Both have the same names.
pub(super) fn definitions(pairs: &[(&CustomResourceDefinition, &CustomResourceDefinition)]) -> Vec<Finding> {
    let what = |name: &str| format!("CRD {name}");
    let wrong: Vec<_> = pairs
        .iter()
        .filter_map(|(own, found)| {
            let (why, remedy) = incompatible(own, found)?;
            Some(Finding::problem(what(&found.name_any()), why, remedy))
        })
        .collect();
    if !wrong.is_empty() {
        return wrong;
    }
    let what = format!("CRDs of the group {GROUP}");
    let Some((_, first)) = pairs.first() else { return vec![Finding::ok(format!("{what}: there are none"))] };
    let owner = |name: &str| first.annotations().get(name).map(String::as_str);
    let (why, remedy) = match owner(RELEASE).zip(owner(RELEASE_NAMESPACE)) {
        Some((release, namespace)) => (
            format!("they belong to the Helm release {release} in namespace {namespace}"),
            "set `crds.install=false`, or, if that release is gone, add `--take-ownership` to `helm install`",
        ),
        None => ("they exist already".to_owned(), "add `--take-ownership` to `helm install`"),
    };
    vec![Finding::warning(what, why, remedy.to_owned())]
}

/// Returns why a CRD of the cluster cannot become that of this program, and the remedy.
fn incompatible(own: &CustomResourceDefinition, found: &CustomResourceDefinition) -> Option<(String, String)> {
    let name = found.name_any();
    let delete = format!("if it is not needed, delete it with all its objects: `kubectl delete crd {name}`");
    if found.metadata.deletion_timestamp.is_some() {
        let remedy = format!("wait until it is gone: `kubectl wait --for=delete crd/{name}`");
        return Some(("it is being deleted".to_owned(), remedy));
    }
    if (&own.spec.names.kind, &own.spec.scope) != (&found.spec.names.kind, &found.spec.scope) {
        return Some(("another product has a CRD of this name".to_owned(), delete));
    }
    let is_known = |stored: &&String| own.spec.versions.iter().any(|version| version.name == **stored);
    let stored = found.status.as_ref().and_then(|status| status.stored_versions.as_deref()).unwrap_or_default();
    let unknown = stored.iter().find(|stored| !is_known(stored))?;
    let why = format!("objects are stored in version {unknown}, which this program does not have");
    Some((why, format!("use the chart and the program that have this version; {delete}")))
}

/// Checks that nobody holds the Leases that the controllers will hold.
pub(super) fn leases(installation: &Installation, leases: &[Lease], now: Time) -> Finding {
    let Installation { pipeline, dispatch, promote, namespace, sharding, .. } = installation;
    let what = format!("Leases in namespace {namespace}");
    let all = [(*pipeline, PIPELINE), (*dispatch, DISPATCH), (*promote, PROMOTE)].into_iter().filter(|(runs, _)| *runs);
    let held = all.filter_map(|(_, controller)| {
        let own = sharding.lease(controller);
        holders(leases, controller, now).into_iter().find(|(name, _)| *name == own)
    });
    let held: Vec<_> = held.map(|(name, holder)| format!("{name} by {holder}")).collect();
    if held.is_empty() {
        return Finding::ok(format!("{what}: not held by another installation"));
    }
    let why = format!("another installation holds them: {}", held.join(", "));
    Finding::problem(what, why, "upgrade that installation, or install in another namespace".to_owned())
}

/// Another installation, and whether its dispatcher acts. `None`: that is not known.
pub(super) type Other = (Published, Option<bool>);

/// Checks that no installation in another namespace sends about the same namespaces.
pub(super) fn others(installation: &Installation, all: &[Other]) -> Vec<Finding> {
    let own = &installation.watch_namespaces;
    let overlaps =
        |theirs: &[String]| own.is_empty() || theirs.is_empty() || theirs.iter().any(|namespace| own.contains(namespace));
    let elsewhere = all.iter().filter(|(other, _)| other.namespace != installation.namespace);
    let same = elsewhere.filter(|(other, _)| installation.dispatch && overlaps(&other.dispatch.watch_namespaces));
    let found: Vec<_> = same.map(|(other, acts)| twice(other, *acts)).collect();
    if found.is_empty() {
        return vec![Finding::ok("other installations: none watches the same namespaces".to_owned())];
    }
    found
}

fn twice(other: &Published, acts: Option<bool>) -> Finding {
    let namespace = &other.namespace;
    let what = format!("installation in namespace {namespace}");
    let version = &other.dispatch.version;
    match acts {
        Some(true) => Finding::problem(
            what,
            format!("version {version} watches the same namespaces, so both would send each message"),
            "upgrade that installation, or give both different `watchNamespaces`".to_owned(),
        ),
        Some(false) => Finding::warning(
            what,
            format!("version {version} watched the same namespaces, and does not act"),
            format!("if it is uninstalled, run `kubectl delete configmap relaybook-info -n {namespace}`"),
        ),
        None => Finding::warning(
            what,
            format!("version {version} watches the same namespaces; whether it acts is not known"),
            format!("check that it is uninstalled: `kubectl get leases,pods -n {namespace}`"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1;
    use serde_json::{Value, json};

    use super::*;
    use crate::diagnosis::Level;
    use relaybook_api::values::shard::Sharding;
    use relaybook_runtime::published::Dispatch;

    const PROBLEM: Option<Level> = Some(Level::Problem);
    const WARNING: Option<Level> = Some(Level::Warning);

    #[test]
    fn the_oldest_supported_version_is_that_of_the_chart() {
        let chart = include_str!("../../../../charts/relaybook/Chart.yaml");
        let (major, minor) = OLDEST;
        assert!(chart.contains(&format!("\nkubeVersion: \">={major}.{minor}.0-0\"\n")), "{chart}");
        for (name, major, minor, level) in [
            ("v1.30.9", "1", "30", PROBLEM),
            ("v1.31.0-eks-5", "1", "31+", None),
            ("v1.36.3", "1", "36", None),
            ("v2.0.0", "2", "0", None),
            ("unknown", "", "", None),
        ] {
            let found = server(name, major, minor);
            assert_eq!((found.level, found.what.starts_with(&format!("Kubernetes {name}"))), (level, true), "{found:?}");
            assert_eq!(found.remedy.is_empty(), level.is_none(), "{found:?}");
        }
        assert!(server("unknown", "", "").what.ends_with("not checked, the version has no numbers"));
    }

    #[test]
    fn a_namespace_exists_or_can_be_created() {
        let found = |metadata: Value| {
            let object: Namespace = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            namespace(&object).into_iter().map(|one| (one.level, one.what)).collect::<Vec<_>>()
        };
        let exists = (None, "namespace own exists".to_owned());
        let level = |level: &str| format!("Pod Security of namespace own: {level}");
        let labelled = |level: &str| json!({"name": "own", "labels": {(ENFORCE): level}});
        assert_eq!(found(json!({"name": "own"})), std::slice::from_ref(&exists));
        assert_eq!(found(labelled("restricted")), [exists.clone(), (None, level("restricted"))]);
        assert_eq!(found(labelled("strict")), [exists, (WARNING, level("strict"))]);
        let deleted = found(json!({"name": "own", "deletionTimestamp": "2026-01-01T00:00:00Z"}));
        assert_eq!(deleted, [(PROBLEM, "namespace own".to_owned())]);
        assert_eq!([true, false].map(|may| no_namespace("own", may).level), [None, PROBLEM]);
    }

    fn definition(edit: impl FnOnce(&mut CustomResourceDefinition)) -> CustomResourceDefinition {
        let mut found = relaybook_api::crds().remove(0);
        found.status = serde_json::from_value(json!({"storedVersions": ["v1alpha1"]})).unwrap();
        edit(&mut found);
        found
    }

    #[test]
    fn an_incompatible_crd_is_a_problem_and_another_one_is_taken_over() {
        let own = relaybook_api::crds().remove(0);
        let check = |found: &CustomResourceDefinition| {
            let all = definitions(&[(&own, found)]);
            assert_eq!(all.len(), 1, "{all:?}");
            all.into_iter().next().unwrap()
        };
        let annotated = |found: &mut CustomResourceDefinition| {
            let all = [(RELEASE, "relaybook"), (RELEASE_NAMESPACE, "tools")];
            found.metadata.annotations = Some(all.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        };
        for (found, level, why) in [
            (definition(|_| ()), WARNING, "they exist already"),
            (definition(annotated), WARNING, "they belong to the Helm release relaybook in namespace tools"),
            (
                definition(|one| one.status.as_mut().unwrap().stored_versions = Some(vec!["v1".to_owned()])),
                PROBLEM,
                "objects are stored in version v1, which this program does not have",
            ),
            (definition(|one| one.spec.scope = "Cluster".to_owned()), PROBLEM, "another product has a CRD of this name"),
            (
                definition(|one| one.metadata.deletion_timestamp = Some(v1::Time(Time::from_second(1).unwrap()))),
                PROBLEM,
                "it is being deleted",
            ),
        ] {
            let finding = check(&found);
            assert_eq!((finding.level, finding.why.as_str()), (level, why));
            assert!(!finding.remedy.is_empty(), "{finding:?}");
        }
        let none = definitions(&[]);
        assert_eq!((none.len(), none[0].level), (1, None));
    }

    fn installation(watch: &[&str], shard: &str) -> Installation {
        Installation {
            dispatch: true,
            namespace: "own".to_owned(),
            watch_namespaces: watch.iter().map(ToString::to_string).collect(),
            sharding: Sharding { id: shard.to_owned(), ..Sharding::default() },
            ..Installation::default()
        }
    }

    #[test]
    fn a_held_lease_belongs_to_another_installation_unless_it_is_that_of_another_shard() {
        let now = Time::from_second(1_000).unwrap();
        let renewed = "1970-01-01T00:16:00.000000Z";
        let spec = json!({"holderIdentity": "pod-7f", "leaseDurationSeconds": 90, "renewTime": renewed});
        let lease = |name: &str| json!({"metadata": {"name": name}, "spec": spec});
        let found = |shard: &str, name: &str| {
            let all: Vec<Lease> = serde_json::from_value(json!([lease(name)])).unwrap();
            leases(&installation(&[], shard), &all, now)
        };
        let held = found("", "relaybook-dispatch");
        assert_eq!(held.level, PROBLEM);
        assert_eq!(held.why, "another installation holds them: relaybook-dispatch by pod-7f");
        assert_eq!(found("eu", "relaybook-dispatch-eu").level, PROBLEM);
        for (shard, name) in [("eu", "relaybook-dispatch"), ("", "relaybook-dispatch-eu"), ("", "relaybook-pipeline")] {
            assert_eq!(found(shard, name).level, None, "{shard} {name}");
        }
    }

    #[test]
    fn another_installation_must_not_send_about_the_same_namespaces() {
        let other = |namespace: &str, watch: &[&str]| Published {
            namespace: namespace.to_owned(),
            dispatch: Dispatch {
                version: "0.1.0".to_owned(),
                watch_namespaces: watch.iter().map(ToString::to_string).collect(),
                cluster_name: "in-cluster".to_owned(),
                config_map: "relaybook-config".to_owned(),
                allow_http: false,
                allow_destinations: Vec::new(),
                deny_destinations: Vec::new(),
                page_url: None,
            },
        };
        for (watch, other, acts, level) in [
            (&[][..], other("tools", &[]), Some(true), PROBLEM),
            (&["a"], other("tools", &[]), Some(true), PROBLEM),
            (&["a", "b"], other("tools", &["b", "c"]), Some(true), PROBLEM),
            (&["a"], other("tools", &["b"]), Some(true), None),
            (&[], other("own", &[]), Some(true), None),
            (&[], other("tools", &[]), Some(false), WARNING),
            (&[], other("tools", &[]), None, WARNING),
        ] {
            let found = others(&installation(watch, ""), &[(other, acts)]);
            assert_eq!((found.len(), found[0].level), (1, level), "{found:?}");
            assert_eq!(found[0].remedy.is_empty(), level.is_none(), "{found:?}");
        }
        assert_eq!(others(&installation(&[], ""), &[]).len(), 1);
        let without = Installation { dispatch: false, ..installation(&[], "") };
        assert_eq!(others(&without, &[(other("tools", &[]), Some(true))])[0].level, None);
    }
}
