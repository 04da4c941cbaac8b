//! Pure: validates the spec of a pipeline, and lists the objects that must be observed for it.

use std::collections::{HashMap, HashSet};

use crate::api::PipelineSpec;
use crate::api::pipeline::MAX_TARGETS;
use crate::api::pipeline::target::{TargetInfo, targets};
use crate::api::values::refs::{ClusterKind, ClusterRef};
use crate::observe::RevisionPath;

/// Maximum number of different revisionPaths. Each of them requires its own watch.
const MAX_PATHS: usize = 8;

/// Why a spec is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Machine-readable: the reason of `Ready=False`.
    pub reason: &'static str,
    /// Human-readable message.
    pub message: String,
}

/// Returns the targets of a pipeline in `namespace`, or why its spec is refused.
pub fn plan(
    spec: &PipelineSpec,
    namespace: &str,
    cluster_name: &str,
    cross_namespace_refs: bool,
) -> Result<Vec<TargetInfo>, Refused> {
    let count: usize = spec.environments.iter().map(|e| e.targets.len()).sum();
    if count > MAX_TARGETS {
        return Err(Refused {
            reason: "TooManyTargets",
            message: format!("the pipeline has {count} targets; the maximum is {MAX_TARGETS}"),
        });
    }
    let all = targets(spec, cluster_name);
    let mut names = HashSet::new();
    if let Some(twice) = all.iter().find(|t| !names.insert(&t.name)) {
        return Err(Refused {
            reason: "DuplicateTarget",
            message: format!("two targets have the name {}; set another appRef.name in one of them", twice.name),
        });
    }
    if let Some(name) = ambiguous(&all, cluster_name) {
        return Err(Refused {
            reason: "AmbiguousCluster",
            message: format!("two clusters have the name {name}; rename one, or set a namespace in the clusterRef of one"),
        });
    }
    let paths: HashSet<&str> = all.iter().filter_map(|t| t.app.revision_path.as_deref()).collect();
    if paths.len() > MAX_PATHS {
        return Err(Refused {
            reason: "TooManyRevisionPaths",
            message: format!("the pipeline has {} different revisionPaths; the maximum is {MAX_PATHS}", paths.len()),
        });
    }
    if let Some(refused) = all.iter().find_map(unreadable) {
        return Err(refused);
    }
    match all.iter().find_map(|target| elsewhere(target, namespace, cross_namespace_refs)) {
        Some(refused) => Err(refused),
        None => Ok(all),
    }
}

/// Returns a name that two different clusters have. Their changes could not be distinguished.
fn ambiguous<'a>(targets: &'a [TargetInfo], local: &'a str) -> Option<&'a str> {
    let mut known: HashMap<&str, Option<&ClusterRef>> = HashMap::from([(local, None)]);
    let mut others = targets.iter().map(|t| (t.cluster.as_str(), t.cluster_ref.as_ref()));
    others.find_map(|(name, of)| (*known.entry(name).or_insert(of) != of).then_some(name))
}

/// Returns why the object of a target is not read. Some kinds are forbidden, because users who can write a pipeline are not necessarily
/// allowed to read such objects. An invalid revisionPath is another reason.
fn unreadable(target: &TargetInfo) -> Option<Refused> {
    let app = &target.app;
    if app.api_version == "v1" && matches!(app.kind.as_str(), "Secret" | "ConfigMap") {
        let message = format!("target {}: a {} cannot be an application object; set another kind", target.name, app.kind);
        return Some(Refused { reason: "ForbiddenKind", message });
    }
    let error = RevisionPath::parse(target.app.revision_path.as_deref()?).err()?;
    Some(Refused {
        reason: "InvalidRevisionPath",
        message: format!("appRef.revisionPath of target {} {error}", target.name),
    })
}

/// Returns why a target is refused because of the namespaces that it refers to.
fn elsewhere(target: &TargetInfo, own: &str, cross_namespace_refs: bool) -> Option<Refused> {
    let name = &target.name;
    let Some(cluster) = &target.cluster_ref else {
        return (!cross_namespace_refs && target.namespace != own).then(|| Refused {
            reason: "CrossNamespaceTarget",
            message: format!(
                "target {name} is not in the namespace {own} of the pipeline; --no-cross-namespace-refs forbids this"
            ),
        });
    };
    let is_elsewhere = cluster.namespace.as_ref().is_some_and(|namespace| namespace != own);
    // The schema also refuses the namespace of a Secret. But the protection of Secrets in other namespaces must not depend on the schema.
    let refused = is_elsewhere && (!cross_namespace_refs || cluster.kind == ClusterKind::Secret);
    refused.then(|| Refused {
        reason: "CrossNamespaceCluster",
        message: format!(
            "the {} of target {name} is not in the namespace {own} of the pipeline; move it there, or remove clusterRef.namespace",
            cluster.kind.as_str()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::pipeline::{Environment, Target};
    use crate::api::values::refs::{AppRef, PartialAppRef};

    fn spec(namespaces: &[&str]) -> PipelineSpec {
        let target = |n: &&str| Target { namespace: (*n).to_owned(), ..Target::default() };
        PipelineSpec {
            app_ref: AppRef { api_version: "v1".into(), kind: "K".into(), name: "a".into(), revision_path: None },
            environments: vec![Environment {
                name: "dev".into(),
                targets: namespaces.iter().map(target).collect(),
                ..Environment::default()
            }],
            ..PipelineSpec::default()
        }
    }

    fn reason(spec: &PipelineSpec, cross: bool) -> Option<&'static str> {
        plan(spec, "own", "c", cross).err().map(|r| r.reason)
    }

    #[test]
    fn objects_that_cannot_be_read_are_refused() {
        let app = |api_version: &str, kind: &str, path: Option<&str>| AppRef {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "a".into(),
            revision_path: path.map(str::to_owned),
        };
        for (app, want) in [
            (app("v1", "Secret", Some(".data.password")), Some("ForbiddenKind")),
            (app("v1", "ConfigMap", None), Some("ForbiddenKind")),
            (app("acme.example/v1", "Secret", None), None),
            (app("apps/v1", "Deployment", Some(".spec..x")), Some("InvalidRevisionPath")),
            (app("apps/v1", "Deployment", Some(".spec.x")), None),
        ] {
            assert_eq!(reason(&PipelineSpec { app_ref: app, ..spec(&["own"]) }, true), want);
        }
        let mut many = spec(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]);
        for (n, target) in many.environments[0].targets.iter_mut().enumerate() {
            let path = Some(format!(".spec.v{n}"));
            target.app_ref = Some(PartialAppRef { revision_path: path, ..PartialAppRef::default() });
        }
        assert_eq!(reason(&many, true), Some("TooManyRevisionPaths"));
        many.environments[0].targets.pop();
        assert_eq!(reason(&many, true), None);
    }

    #[test]
    fn targets_that_cannot_be_observed_are_refused() {
        assert_eq!(reason(&spec(&["own", "b"]), true), None);
        assert_eq!(reason(&spec(&["own"]), false), None);
        assert_eq!(reason(&spec(&["own", "b"]), false), Some("CrossNamespaceTarget"));
        assert_eq!(reason(&spec(&["b", "b"]), true), Some("DuplicateTarget"));
        let cluster = |kind, name: &str| ClusterRef { api_version: None, kind, name: name.into(), namespace: None };
        let mut clusters = spec(&["a", "b"]);
        for (one, other, want) in [
            (ClusterKind::Secret, ClusterKind::Secret, None),
            (ClusterKind::Secret, ClusterKind::GitopsCluster, Some("AmbiguousCluster")),
        ] {
            clusters.environments[0].targets[0].cluster_ref = Some(cluster(one, "eu"));
            clusters.environments[0].targets[1].cluster_ref = Some(cluster(other, "eu"));
            assert_eq!(reason(&clusters, true), want);
        }
        clusters.environments[0].targets[1].cluster_ref = Some(cluster(ClusterKind::Secret, "c"));
        assert_eq!(reason(&clusters, true), Some("AmbiguousCluster"), "the local cluster has this name");
        let names: Vec<String> = (0..=MAX_TARGETS).map(|i| format!("n{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(reason(&spec(&names), true), Some("TooManyTargets"));
        assert_eq!(reason(&spec(&names[1..]), true), None);
    }

    #[test]
    fn cluster_references_to_other_namespaces_are_checked() {
        let of = |kind, namespace: Option<&str>, target: &str| {
            let mut spec = spec(&[target]);
            let namespace = namespace.map(str::to_owned);
            let cluster = ClusterRef { api_version: None, kind, name: "eu".into(), namespace };
            spec.environments[0].targets[0].cluster_ref = Some(cluster);
            spec
        };
        for (kind, namespace, cross, want) in [
            (ClusterKind::GitopsCluster, None, false, None),
            (ClusterKind::GitopsCluster, Some("own"), false, None),
            (ClusterKind::GitopsCluster, Some("infra"), true, None),
            (ClusterKind::GitopsCluster, Some("infra"), false, Some("CrossNamespaceCluster")),
            (ClusterKind::Secret, None, true, None),
            (ClusterKind::Secret, Some("infra"), true, Some("CrossNamespaceCluster")),
        ] {
            let spec = of(kind, namespace, "b");
            assert_eq!(reason(&spec, cross), want, "{kind:?} {namespace:?} {cross}");
        }
    }
}
