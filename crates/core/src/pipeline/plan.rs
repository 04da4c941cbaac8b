//! Pure: validates the spec of a pipeline, and lists the objects that must be observed for it.

mod record;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use globset::{Glob, GlobSet, GlobSetBuilder};
use kube_core::Expression;
use sha2::{Digest as _, Sha256};

use crate::observe::RevisionPath;
use crate::reading::readable;
use crate::reading::selection::{FleetClusters, Selection, Source};
use relaybook_api::pipeline::source::{FLEET_VERSION, FleetObjects, FleetTargets, LabelRequirements, ObjectTargets};
use relaybook_api::pipeline::target::{TargetInfo, targets};
use relaybook_api::pipeline::{MAX_TARGETS, Record, TargetSource};
use relaybook_api::values::kind::ObjectKind;
use relaybook_api::values::refs::{ClusterKind, ClusterRef};
use relaybook_api::{PipelineSpec, duration};

/// In a list of namespaces: all that Relaybook watches.
pub const ALL_NAMESPACES: &str = "*";
/// Reason of `Ready=False` if two targets have the same name.
pub const DUPLICATE_TARGET: &str = "DuplicateTarget";
/// Reason of `Ready=False` if a name in `spec.record` is invalid, or is not recorded in the namespace of an object.
pub const INVALID_RECORD: &str = "InvalidRecord";
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

/// What a valid spec requests.
#[derive(Clone, Debug, Default)]
pub struct Planned {
    /// The targets that it lists.
    pub targets: Vec<TargetInfo>,
    /// What it selects.
    pub selections: Vec<PlannedSelection>,
}

/// Returns the targets and selections of a pipeline in `namespace`, or why its spec is refused.
pub fn plan(
    spec: &PipelineSpec,
    namespace: &str,
    cluster_name: &str,
    cross_namespace_refs: bool,
) -> Result<Planned, Refused> {
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
            reason: DUPLICATE_TARGET,
            message: format!("two targets have the name {}; set another appRef.name in one of them", twice.name),
        });
    }
    if let Some(name) = ambiguous(&all, cluster_name) {
        return Err(Refused {
            reason: "AmbiguousCluster",
            message: format!("two clusters have the name {name}; rename one, or set a namespace in the clusterRef of one"),
        });
    }
    let sources = spec.environments.iter().flat_map(|e| &e.targets_from).filter_map(|from| from.objects.as_ref());
    let selected = sources.flat_map(|objects| [objects.revision_path.as_deref(), objects.cluster.as_deref()]).flatten();
    let paths: HashSet<&str> = all.iter().filter_map(|t| t.app.revision_path.as_deref()).chain(selected).collect();
    if paths.len() > MAX_PATHS {
        return Err(Refused {
            reason: "TooManyRevisionPaths",
            message: format!("the pipeline has {} different paths in objects; the maximum is {MAX_PATHS}", paths.len()),
        });
    }
    if let Some(refused) = all.iter().find_map(|target| unreadable(target, namespace)) {
        return Err(refused);
    }
    if let Some(refused) = record::refused(spec, &all, namespace) {
        return Err(refused);
    }
    if let Some(refused) = all.iter().find_map(|target| elsewhere(target, namespace, cross_namespace_refs)) {
        return Err(refused);
    }
    if let Some(other) = spec.other_layer_namespace(namespace).filter(|_| !cross_namespace_refs) {
        return Err(Refused {
            reason: "CrossNamespaceLayer",
            message: format!(
                "layerNamespace {other} is not the namespace {namespace} of the pipeline; --no-cross-namespace-refs forbids this"
            ),
        });
    }
    Ok(Planned { targets: all, selections: selections(spec, namespace, cross_namespace_refs)? })
}

/// Returns why a spec is refused, if the Notifications of its layer namespace are not watched. `watched`: empty means all namespaces.
pub fn unwatched_layers(spec: &PipelineSpec, namespace: &str, watched: &[String]) -> Option<Refused> {
    let other =
        spec.other_layer_namespace(namespace).filter(|other| !watched.is_empty() && !watched.iter().any(|w| w == other))?;
    Some(Refused {
        reason: "NamespaceNotWatched",
        message: format!("layerNamespace {other} is not watched; add it to --watch-namespace, or remove layerNamespace"),
    })
}

/// One entry of `targetsFrom`.
#[derive(Clone, Debug)]
pub struct PlannedSelection {
    /// Index of the environment.
    pub environment: usize,
    /// Index of the entry.
    pub from: usize,
    /// Hash of what the entry selects.
    pub selection_hash: String,
    /// The cluster that contains the objects, as written in the pipeline.
    pub cluster_ref: Option<ClusterRef>,
    /// Whether the objects are those of Fleet.
    pub is_fleet: bool,
    /// Time without a report of its agent after which a cluster of Fleet is offline. `None`: the default.
    pub offline_after: Option<Duration>,
    /// What is selected.
    pub selection: Arc<Selection>,
}

/// Returns the selections of a spec, or why one is refused.
fn selections(spec: &PipelineSpec, namespace: &str, cross_namespace_refs: bool) -> Result<Vec<PlannedSelection>, Refused> {
    let record = spec.recorded();
    let planned = |(environment, from, field, entry): (usize, usize, String, &TargetSource)| {
        let selection = selectable(entry, record.as_ref(), &field, namespace, cross_namespace_refs)?;
        Ok(PlannedSelection {
            environment,
            from,
            selection_hash: entry.selection(),
            cluster_ref: entry.objects.as_ref().and_then(|objects| objects.cluster_ref.clone()),
            is_fleet: entry.fleet.is_some(),
            offline_after: entry.fleet.as_ref().and_then(|fleet| duration(fleet.offline_after.as_deref()?)),
            selection: Arc::new(selection),
        })
    };
    entries(spec).map(planned).collect()
}

/// Returns all entries of `targetsFrom`, each with its indexes and its field.
fn entries(spec: &PipelineSpec) -> impl Iterator<Item = (usize, usize, String, &TargetSource)> {
    let environments = spec.environments.iter().enumerate();
    environments.flat_map(|(e, environment)| {
        let field = move |from| format!("targetsFrom[{from}] of environment {}", environment.name);
        environment.targets_from.iter().enumerate().map(move |(from, entry)| (e, from, field(from), entry))
    })
}

/// Returns what an entry selects, or why it is refused.
fn selectable(
    from: &TargetSource,
    record: Option<&Arc<Record>>,
    field: &str,
    namespace: &str,
    cross: bool,
) -> Result<Selection, Refused> {
    let mut selection = match (&from.fleet, &from.objects) {
        (Some(fleet), None) => fleet_selection(fleet, field, namespace)?,
        (None, Some(objects)) => object_selection(objects, field, namespace, cross)?,
        _ => {
            let message = format!("{field} must have exactly one of fleet and objects");
            return Err(Refused { reason: "InvalidSelection", message });
        }
    };
    (selection.chunk, selection.record) = (from.chunk, record.cloned());
    let text = format!("{namespace}\n{:?}\n{:?}\n{}", selection.cluster_ref, selection.record, from.selection());
    selection.id = hex::encode(Sha256::digest(text));
    Ok(selection)
}

/// The namespace of the Bundle of a `BundleDeployment`. Fleet overwrites it, so only the workspace of a Bundle determines it.
const BUNDLE_NAMESPACE: &str = "fleet.cattle.io/bundle-namespace";

fn fleet_selection(fleet: &FleetTargets, field: &str, namespace: &str) -> Result<Selection, Refused> {
    let of = fleet.of.unwrap_or_default();
    let (label, name, source) = match (&fleet.git_repo, &fleet.helm_op, &fleet.bundle) {
        (Some(repo), None, None) => ("fleet.cattle.io/repo-name", repo, Some("GitRepo")),
        (None, Some(op), None) => ("fleet.cattle.io/fleet-helm-name", op, Some("HelmOp")),
        (None, None, Some(bundle)) => ("fleet.cattle.io/bundle-name", bundle, None),
        _ => {
            let message = format!("{field}.fleet must have exactly one of gitRepo, helmOp and bundle");
            return Err(Refused { reason: "InvalidSelection", message });
        }
    };
    let is_bundle = of == FleetObjects::Bundles;
    let mut labels = vec![Expression::Equal(label.to_owned(), name.clone())];
    if is_bundle {
        // A Bundle is selected by its own name.
        labels.retain(|_| fleet.bundle.is_none());
    } else {
        labels.push(Expression::Equal(BUNDLE_NAMESPACE.to_owned(), namespace.to_owned()));
    }
    if fleet.offline_after.as_deref().is_some_and(|after| duration(after).is_none()) {
        let message = format!("{field}.fleet.offlineAfter is not a duration; write it as 45m or 1h30m");
        return Err(Refused { reason: "InvalidSelection", message });
    }
    let clusters = FleetClusters {
        workspace: namespace.to_owned(),
        labels: expressions(fleet.cluster_selector.as_ref(), &format!("{field}.fleet.clusterSelector"))?,
        groups: fleet.cluster_groups.iter().flatten().cloned().collect(),
        names: fleet.clusters.as_deref().map(|globs| globs_of(globs, &format!("{field}.fleet.clusters"))).transpose()?,
    };
    Ok(Selection {
        id: String::new(),
        cluster_ref: None,
        kind: ObjectKind::known(FLEET_VERSION, if is_bundle { "Bundle" } else { "BundleDeployment" }),
        revision_path: None,
        cluster_path: None,
        record: None,
        namespaces: is_bundle.then(|| BTreeSet::from([namespace.to_owned()])),
        name: fleet.bundle.clone().filter(|_| is_bundle),
        labels,
        owner: None,
        fleet: (!is_bundle).then_some(clusters),
        chunk: None,
        source: source.map(|kind| Source { kind, namespace: namespace.to_owned(), name: name.clone() }),
    })
}

fn object_selection(objects: &ObjectTargets, field: &str, namespace: &str, cross: bool) -> Result<Selection, Refused> {
    let field = format!("{field}.objects");
    let kind = readable_kind(&objects.api_version, &objects.kind, &field)?;
    let own = [namespace.to_owned()];
    let namespaces: BTreeSet<String> = objects.namespaces.as_deref().unwrap_or(&own).iter().cloned().collect();
    let mut places = namespaces.iter().map(|of| is_elsewhere(of, objects.cluster_ref.as_ref(), namespace));
    let elsewhere = places.any(|is_elsewhere| is_elsewhere);
    for (name, path) in [("revisionPath", &objects.revision_path), ("cluster", &objects.cluster)] {
        if let Some(path) = path {
            readable_path(path, &format!("{field}.{name}"), "InvalidPath", elsewhere)?;
        }
    }
    let elsewhere = namespaces.iter().find(|other| *other != namespace).filter(|_| !cross && objects.cluster_ref.is_none());
    if let Some(elsewhere) = elsewhere {
        let message = format!(
            "{field}: namespace {elsewhere} is not the namespace {namespace} of the pipeline; --no-cross-namespace-refs forbids this"
        );
        return Err(Refused { reason: "CrossNamespaceTarget", message });
    }
    let namespaces = (!namespaces.contains(ALL_NAMESPACES)).then_some(namespaces);
    if let Some(refused) = cluster_elsewhere(objects.cluster_ref.as_ref(), &field, namespace, cross) {
        return Err(refused);
    }
    Ok(Selection {
        id: String::new(),
        cluster_ref: objects.cluster_ref.as_ref().map(|cluster| cluster.seen_from(namespace)),
        kind,
        revision_path: objects.revision_path.clone(),
        cluster_path: objects.cluster.clone(),
        record: None,
        namespaces,
        name: None,
        labels: expressions(objects.selector.as_ref(), &format!("{field}.selector"))?,
        owner: objects.owned_by.clone(),
        fleet: None,
        chunk: None,
        source: None,
    })
}

/// Returns the expressions of a selector. `field`: the field of the selector, for the error.
pub fn expressions(selector: Option<&LabelRequirements>, field: &str) -> Result<Vec<Expression>, Refused> {
    let all = selector.map(LabelRequirements::expressions).transpose();
    Ok(all.map_err(|key| Refused { reason: "InvalidSelector", message: values_of(field, key) })?.unwrap_or_default())
}

fn values_of(field: &str, key: &str) -> String {
    format!(
        "{field}: the requirement for {key:?} is invalid; only In and NotIn have values, and each of them needs at least one"
    )
}

fn globs_of(globs: &[String], field: &str) -> Result<GlobSet, Refused> {
    let invalid = |error: globset::Error| Refused { reason: "InvalidSelector", message: format!("{field}: {error}") };
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(Glob::new(glob).map_err(invalid)?);
    }
    set.build().map_err(invalid)
}

/// Returns a name that two different clusters have. Their changes could not be distinguished.
fn ambiguous<'a>(targets: &'a [TargetInfo], local: &'a str) -> Option<&'a str> {
    let mut known: HashMap<&str, Option<&ClusterRef>> = HashMap::from([(local, None)]);
    let mut others = targets.iter().map(|t| (t.cluster.as_str(), t.cluster_ref.as_ref()));
    others.find_map(|(name, of)| (*known.entry(name).or_insert(of) != of).then_some(name))
}

/// Returns why the object of a target is not read. Some kinds are forbidden, because users who can write a pipeline are not necessarily
/// allowed to read such objects. An invalid revisionPath is another reason.
fn unreadable(target: &TargetInfo, own: &str) -> Option<Refused> {
    let app = &target.app;
    if let Err(refused) = readable_kind(&app.api_version, &app.kind, &format!("appRef of target {}", target.name)) {
        return Some(refused);
    }
    let elsewhere = is_elsewhere(&target.namespace, target.object_cluster.as_ref(), own);
    let field = format!("appRef.revisionPath of target {}", target.name);
    readable_path(app.revision_path.as_deref()?, &field, "InvalidRevisionPath", elsewhere).err()
}

/// Whether an object can be one that the users of the namespace `own` cannot read themselves. On another cluster, the namespace of the
/// reference decides: the credentials for the cluster are there.
fn is_elsewhere(namespace: &str, cluster: Option<&ClusterRef>, own: &str) -> bool {
    cluster.map_or(Some(namespace), |cluster| cluster.namespace.as_deref()).is_some_and(|namespace| namespace != own)
}

/// Returns why a path is not read. `elsewhere`: the object is in another namespace.
fn readable_path(path: &str, field: &str, invalid: &'static str, elsewhere: bool) -> Result<(), Refused> {
    let parsed = RevisionPath::parse(path);
    let parsed = parsed.map_err(|error| Refused { reason: invalid, message: format!("{field} {error}") })?;
    if !elsewhere || parsed.is_public() {
        return Ok(());
    }
    let message = format!(
        "{field}: {path} is not read in another namespace; use .status, a label or .spec.version, or move the pipeline to the \
         namespace of the object"
    );
    Err(Refused { reason: "PathNotReadable", message })
}

/// Returns what the revision paths of a spec leave unknown: a sentence for each path.
pub fn unknowns(spec: &PipelineSpec, cluster_name: &str) -> BTreeSet<String> {
    let all = targets(spec, cluster_name);
    let listed = all.iter().map(|target| (target.app.object_kind(), target.app.revision_path.as_deref()));
    let objects = spec.environments.iter().flat_map(|e| &e.targets_from).filter_map(|from| from.objects.as_ref());
    let selected = objects.map(|o| (ObjectKind::parse(&o.api_version, &o.kind), o.revision_path.as_deref()));
    let unknown = |(kind, path): (Result<ObjectKind, _>, Option<&str>)| {
        let (kind, path) = (kind.ok()?, path?);
        RevisionPath::parse(path).ok().filter(|parsed| parsed.hides_attempts(&kind))?;
        Some(format!(
            "revisionPath {path} of a {} says what runs, but not what is tried. So there is no Progressing, and a failure of another revision \
             has no revision. To report both, choose a label or a field of the spec",
            kind.kind()
        ))
    };
    listed.chain(selected).filter_map(unknown).collect()
}

/// Returns the kind in a field, or why its objects are not read.
pub fn readable_kind(api_version: &str, kind: &str, field: &str) -> Result<ObjectKind, Refused> {
    let refused = |reason, message: String| Refused { reason, message: format!("{field}: {message}") };
    let kind = ObjectKind::parse(api_version, kind).map_err(|error| refused("InvalidKind", error.to_string()))?;
    readable::check(&kind).map_err(|why| refused("ForbiddenKind", why.to_string()))?;
    Ok(kind)
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
    cluster_elsewhere(Some(cluster), &format!("target {name}"), own, cross_namespace_refs)
}

/// Returns why a reference to a cluster is refused because of its namespace.
pub fn cluster_elsewhere(
    cluster: Option<&ClusterRef>,
    place: &str,
    own: &str,
    cross_namespace_refs: bool,
) -> Option<Refused> {
    let cluster = cluster?;
    if let Err(error) = cluster.object_kind() {
        return Some(Refused { reason: "InvalidCluster", message: format!("the clusterRef of {place}: {error}") });
    }
    let is_elsewhere = cluster.namespace.as_ref().is_some_and(|namespace| namespace != own);
    // The schema also refuses the namespace of a Secret. But the protection of Secrets in other namespaces must not depend on the schema.
    let refused = is_elsewhere && (!cross_namespace_refs || cluster.kind == ClusterKind::Secret);
    refused.then(|| Refused {
        reason: "CrossNamespaceCluster",
        message: format!(
            "the {} of {place} is not in the namespace {own} of the pipeline; move it there, or remove clusterRef.namespace",
            cluster.kind.as_str()
        ),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use relaybook_api::pipeline::{Environment, Target};
    use relaybook_api::values::refs::{AppRef, PartialAppRef};

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
            (app("/v1", "Secret", Some(".data.password")), Some("InvalidKind")),
            (app("v1", "Secret ", None), Some("InvalidKind")),
            (app("acme.example/v1", "Secret", None), Some("ForbiddenKind")),
            (app("relaybook.dev/v1alpha1", "Pipeline", None), Some("ForbiddenKind")),
            (app("acme.example/v1", "ConfigMap", None), None),
            (app("apps/v1", "Deployment", Some(".spec..x")), Some("InvalidRevisionPath")),
            (app("apps/v1", "Deployment", Some(".spec.x")), None),
        ] {
            assert_eq!(reason(&PipelineSpec { app_ref: app, ..spec(&["own"]) }, true), want);
        }
        let mut many = spec(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]);
        for (n, target) in many.environments[0].targets.iter_mut().enumerate() {
            let path = Some(format!(".status.v{n}"));
            target.app_ref = Some(PartialAppRef { revision_path: path, ..PartialAppRef::default() });
        }
        assert_eq!(reason(&many, true), Some("TooManyRevisionPaths"));
        many.environments[0].targets.pop();
        assert_eq!(reason(&many, true), None);
    }

    #[test]
    fn a_revision_path_into_another_namespace_must_be_a_usual_place() {
        let with = |namespace: &str, cluster: Option<(ClusterKind, Option<&str>)>, path: &str| {
            let mut spec = spec(&[namespace]);
            spec.app_ref.revision_path = Some(path.into());
            spec.environments[0].targets[0].cluster_ref = cluster.map(|(kind, of)| ClusterRef {
                api_version: None,
                kind,
                name: "eu".into(),
                namespace: of.map(str::to_owned),
            });
            reason(&spec, true)
        };
        let (gitops, secret) = (ClusterKind::GitopsCluster, ClusterKind::Secret);
        for (namespace, cluster, path, want) in [
            ("own", None, ".spec.x", None),
            ("b", None, ".spec.x", Some("PathNotReadable")),
            ("b", None, ".status.x", None),
            ("b", None, ".spec.version", None),
            ("b", Some((secret, None)), ".spec.x", None),
            ("b", Some((gitops, Some("own"))), ".spec.x", None),
            ("b", Some((gitops, Some("infra"))), ".spec.x", Some("PathNotReadable")),
            ("own", Some((gitops, Some("infra"))), ".spec.x", Some("PathNotReadable")),
            ("own", None, ".spec.values.x", Some("InvalidRevisionPath")),
        ] {
            assert_eq!(with(namespace, cluster, path), want, "{namespace} {path}");
        }
    }

    #[test]
    fn what_a_pipeline_may_record_of_an_object_depends_on_the_namespace_of_the_object() {
        let with = |annotation: &str| {
            let record = Record { annotations: vec![annotation.into()], labels: vec!["team".into()], ..Record::default() };
            PipelineSpec { record: Some(record), ..spec(&["own"]) }
        };
        let (private, public) = ("acme.example/slack", "notify.relaybook.dev/slack");
        for (name, target, want) in [
            (private, json!({"namespace": "own"}), None),
            (private, json!({"namespace": "b"}), Some(INVALID_RECORD)),
            (public, json!({"namespace": "b"}), None),
            (private, json!({"namespace": "b", "clusterRef": {"kind": "Secret", "name": "eu"}}), None),
            ("Token", json!({"namespace": "own"}), Some(INVALID_RECORD)),
        ] {
            let mut spec = with(name);
            spec.environments[0].targets = vec![serde_json::from_value(target.clone()).unwrap()];
            assert_eq!(reason(&spec, true), want, "{name} {target}");
        }
        let objects = |more: Value| {
            let mut objects = json!({"apiVersion": "v1", "kind": "K", "ownedBy": {"kind": "O", "name": "o"}});
            objects.as_object_mut().unwrap().append(more.clone().as_object_mut().unwrap());
            json!({"objects": objects})
        };
        for (name, from, want) in [
            (private, objects(json!({})), None),
            (private, objects(json!({"namespaces": ["own", "b"]})), Some(INVALID_RECORD)),
            (private, objects(json!({"namespaces": ["*"]})), Some(INVALID_RECORD)),
            (public, objects(json!({"namespaces": ["*"]})), None),
            (private, json!({"fleet": {"gitRepo": "a"}}), Some(INVALID_RECORD)),
            (private, json!({"fleet": {"gitRepo": "a", "of": "Bundles"}}), None),
        ] {
            let mut spec = with(name);
            spec.environments[0].targets.clear();
            spec.environments[0].targets_from = vec![serde_json::from_value(from.clone()).unwrap()];
            assert_eq!(reason(&spec, true), want, "{name} {from}");
        }
        let ids = ["a", "b"].map(|name| {
            let mut spec = with(name);
            spec.environments[0].targets_from = vec![serde_json::from_value(objects(json!({}))).unwrap()];
            let selection = plan(&spec, "own", "c", true).unwrap().selections.remove(0).selection;
            assert_eq!(selection.record.as_ref().unwrap().annotations, [name]);
            selection.id.clone()
        });
        assert_ne!(ids[0], ids[1], "other names have another watch");
    }

    #[test]
    fn targets_that_cannot_be_observed_are_refused() {
        assert_eq!(reason(&spec(&["own", "b"]), true), None);
        assert_eq!(reason(&spec(&["own"]), false), None);
        assert_eq!(reason(&spec(&["own", "b"]), false), Some("CrossNamespaceTarget"));
        assert_eq!(reason(&spec(&["b", "b"]), true), Some("DuplicateTarget"));
        let message = |targets: &[&str]| plan(&spec(targets), "own", "c", true).unwrap_err().message;
        assert!(message(&["b", "b"]).ends_with("; set another appRef.name in one of them"), "{}", message(&["b", "b"]));
        let laid = |other: &str| PipelineSpec { layer_namespace: Some(other.into()), ..spec(&["own"]) };
        assert_eq!([true, false].map(|cross| reason(&laid("b"), cross)), [None, Some("CrossNamespaceLayer")]);
        assert_eq!(reason(&laid("own"), false), None);
        let unwatched = |other: &str, watched: &[&str]| {
            let watched: Vec<_> = watched.iter().map(ToString::to_string).collect();
            unwatched_layers(&laid(other), "own", &watched).map(|refused| refused.reason)
        };
        assert_eq!(unwatched("b", &["own"]), Some("NamespaceNotWatched"));
        assert_eq!([unwatched("b", &[]), unwatched("b", &["own", "b"]), unwatched("own", &["own"])], [None; 3]);
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
        assert_eq!(message(&names), "the pipeline has 257 targets; the maximum is 256");
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
