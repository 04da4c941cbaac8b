//! Pure: validates the spec of a set, and returns what its generators select.

use std::collections::BTreeSet;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::template::Compiled;
use relaybook_api::PipelineSetSpec;
use relaybook_api::pipeline::source::FLEET_VERSION;
use relaybook_api::pipeline_set::{FleetSources, Generator, LabeledSources, ObjectSources, SourceRef};
use relaybook_api::values::kind::ObjectKind;
use relaybook_api::values::refs::{ClusterAppRef, ClusterRef};
use relaybook_core::pipeline::plan::{ALL_NAMESPACES, Refused, cluster_elsewhere, expressions, readable_kind};
use relaybook_core::reading::Application;
use relaybook_core::reading::selection::Selection;

/// Maximum size of a template as JSON, in bytes.
const MAX_TEMPLATE: usize = 128 * 1024;

/// What a valid set requests.
pub struct Planned {
    /// By generator: what it selects.
    pub generators: Vec<PlannedGenerator>,
    /// The compiled template.
    pub(super) template: Compiled,
}

/// One generator.
#[derive(Clone, Debug)]
pub struct PlannedGenerator {
    /// Hash of what it selects.
    pub hash: String,
    /// The cluster that contains the sources, as written in the set.
    pub cluster_ref: Option<ClusterRef>,
    /// What is selected.
    pub selection: Arc<Selection>,
}

/// Returns what a set in `namespace` requests, or why its spec is refused.
pub fn plan(spec: &PipelineSetSpec, namespace: &str, cross_namespace_refs: bool) -> Result<Planned, Refused> {
    let generator = |(index, generator): (usize, &Generator)| {
        let field = format!("generators[{index}]");
        let mut selection = match (&generator.fleet, &generator.objects) {
            (Some(fleet), None) => fleet_sources(fleet, &field, namespace)?,
            (None, Some(objects)) => object_sources(objects, &field, namespace, cross_namespace_refs)?,
            _ => return Err(invalid(format!("{field} must have exactly one of fleet and objects"))),
        };
        let text = serde_json::to_string(generator).unwrap_or_default();
        let hash = hex::encode(Sha256::digest(&text))[..16].to_owned();
        selection.id = hex::encode(Sha256::digest(format!("set\n{namespace}\n{:?}\n{text}", selection.cluster_ref)));
        let cluster_ref = generator.objects.as_ref().and_then(|objects| objects.cluster_ref.clone());
        Ok(PlannedGenerator { hash, cluster_ref, selection: Arc::new(selection) })
    };
    let generators = spec.generators.iter().enumerate().map(generator).collect::<Result<_, _>>()?;
    let size = serde_json::to_string(&spec.template).map_or(usize::MAX, |text| text.len());
    if size > MAX_TEMPLATE {
        let message = format!("template has {size} bytes as JSON; the maximum is {MAX_TEMPLATE}");
        return Err(Refused { reason: "TemplateTooLarge", message });
    }
    let template = Compiled::new(&spec.template).map_err(|message| Refused { reason: "TemplateInvalid", message })?;
    Ok(Planned { generators, template })
}

impl PlannedGenerator {
    /// Whether this generator could select an object like this source.
    #[must_use]
    pub fn covers(&self, source: &SourceRef) -> bool {
        let of = &self.selection;
        (of.kind.api_version(), of.kind.kind(), &self.cluster_ref)
            == (&*source.api_version, &*source.kind, &source.cluster_ref)
            && of.namespaces.as_ref().is_none_or(|namespaces| namespaces.contains(&source.namespace))
    }

    /// Returns the reference to a source of this generator.
    #[must_use]
    pub fn source(&self, namespace: &str, name: &str) -> SourceRef {
        SourceRef {
            api_version: self.selection.kind.api_version().to_owned(),
            kind: self.selection.kind.kind().to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            cluster_ref: self.cluster_ref.clone(),
        }
    }
}

/// Returns a source as an object of the caches. `namespace`: of the set.
pub(super) fn as_object(source: &SourceRef, namespace: &str) -> Application {
    let object = ClusterAppRef {
        api_version: source.api_version.clone(),
        kind: source.kind.clone(),
        name: source.name.clone(),
        namespace: source.namespace.clone(),
        cluster_ref: source.cluster_ref.clone(),
    };
    Application { object, ..Application::default() }.seen_from(namespace)
}

fn invalid(message: String) -> Refused {
    Refused { reason: "InvalidGenerator", message }
}

fn fleet_sources(fleet: &FleetSources, field: &str, namespace: &str) -> Result<Selection, Refused> {
    let (kind, name, sources): (_, _, &LabeledSources) = match (&fleet.git_repos, &fleet.helm_ops, &fleet.bundles) {
        (Some(sources), None, None) => ("GitRepo", "gitRepos", sources),
        (None, Some(sources), None) => ("HelmOp", "helmOps", sources),
        (None, None, Some(sources)) => ("Bundle", "bundles", sources),
        _ => return Err(invalid(format!("{field}.fleet must have exactly one of gitRepos, helmOps and bundles"))),
    };
    let labels = expressions(sources.selector.as_ref(), &format!("{field}.fleet.{name}.selector"))?;
    let namespaces = Some(BTreeSet::from([namespace.to_owned()]));
    Ok(Selection { namespaces, labels, ..Selection::of_kind(ObjectKind::known(FLEET_VERSION, kind)) })
}

fn object_sources(objects: &ObjectSources, field: &str, namespace: &str, cross: bool) -> Result<Selection, Refused> {
    let field = format!("{field}.objects");
    let kind = readable_kind(&objects.api_version, &objects.kind, &field)?;
    let own = [namespace.to_owned()];
    let namespaces: BTreeSet<String> = objects.namespaces.as_deref().unwrap_or(&own).iter().cloned().collect();
    let is_elsewhere = namespaces.iter().any(|other| other != namespace);
    if is_elsewhere && !cross && objects.cluster_ref.is_none() {
        let message = format!("{field}: --no-cross-namespace-refs allows only the namespace {namespace} of the set");
        return Err(Refused { reason: "CrossNamespaceSource", message });
    }
    if let Some(refused) = cluster_elsewhere(objects.cluster_ref.as_ref(), &field, namespace, cross) {
        return Err(refused);
    }
    Ok(Selection {
        cluster_ref: objects.cluster_ref.as_ref().map(|cluster| cluster.seen_from(namespace)),
        namespaces: (!namespaces.contains(ALL_NAMESPACES)).then_some(namespaces),
        labels: expressions(objects.selector.as_ref(), &format!("{field}.selector"))?,
        owner: objects.owned_by.clone(),
        ..Selection::of_kind(kind)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sets::testing::spec;

    #[test]
    fn an_invalid_spec_is_refused_with_its_field() {
        let cases = [
            (r#"{"objects": {"apiVersion": "v1", "kind": "Secret"}}"#, "ForbiddenKind", "generators[0].objects"),
            (r#"{"objects": {"apiVersion": "v1", "kind": "A"}, "fleet": {}}"#, "InvalidGenerator", "exactly one"),
            (r#"{"fleet": {}}"#, "InvalidGenerator", "gitRepos"),
            (r#"{"objects": {"apiVersion": "v1", "kind": "A", "namespaces": ["*"]}}"#, "CrossNamespaceSource", "team-a"),
            (
                r#"{"objects": {"apiVersion": "v1", "kind": "A", "selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}}"#,
                "InvalidSelector",
                "generators[0].objects.selector",
            ),
            (
                r#"{"objects": {"apiVersion": "v1", "kind": "A", "clusterRef": {"kind": "Secret", "name": "a", "namespace": "b"}}}"#,
                "CrossNamespaceCluster",
                "clusterRef.namespace",
            ),
        ];
        for (generator, reason, words) in cases {
            let refused = plan(&spec(generator, "x"), "team-a", false).err().unwrap();
            assert_eq!(refused.reason, reason, "{generator}: {}", refused.message);
            assert!(refused.message.contains(words), "{}", refused.message);
        }
        let refused = plan(&spec(r#"{"fleet": {"gitRepos": {}}}"#, "{{nam}}"), "team-a", false).err().unwrap();
        assert_eq!(refused.reason, "TemplateInvalid");
        assert!(refused.message.contains("template.metadata.name"), "{}", refused.message);
    }

    #[test]
    fn different_selections_have_different_hashes() {
        let of = |generator: &str| plan(&spec(generator, "x"), "team-a", true).unwrap().generators.remove(0);
        let all = of(r#"{"objects": {"apiVersion": "v1", "kind": "A", "namespaces": ["*", "b"]}}"#);
        assert_eq!((all.selection.namespaces.clone(), all.selection.kind.kind()), (None, "A"));
        let own = of(r#"{"objects": {"apiVersion": "v1", "kind": "A"}}"#);
        assert_eq!(own.selection.namespaces.clone().unwrap().into_iter().collect::<Vec<_>>(), ["team-a"]);
        assert!(own.hash != all.hash && own.selection != all.selection);
    }
}
