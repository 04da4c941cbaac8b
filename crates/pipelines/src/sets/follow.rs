//! `--follow`: the sets that make a pipeline for every object of a kind.
//!
//! In: the kinds, and the sets that exist. Out: what to apply and what to delete (pure), and the calls. The program makes these sets instead of
//! the chart, because a Helm release cannot contain objects of a kind that it installs.

use std::collections::BTreeMap;

use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::{Context, Error, may_write};
use relaybook_api::group;
use relaybook_api::pipeline::source::{FLEET_VERSION, LabelOperator, LabelRequirement, LabelRequirements};
use relaybook_api::pipeline_set::{ObjectSources, PipelineTemplate, PipelineTemplateMetadata, SET_MANAGER};
use relaybook_api::{PipelineSet, PipelineSetSpec, pipeline_set};
use relaybook_runtime::call::CallError;
use relaybook_runtime::tenure::{Tenure, write};

/// The label of the sets of `--follow`, with the name of the kind.
const FOLLOW: &str = concat!(group!(), "/follow");
/// The field of a Pipeline that names the namespace of further layers.
const LAYER_NAMESPACE: &str = "layerNamespace";
/// The labels of a Bundle that is a part of a `GitRepo` or of a `HelmOp`.
const OWNERS_OF_BUNDLES: [&str; 2] = ["fleet.cattle.io/repo-name", "fleet.cattle.io/fleet-helm-name"];

/// A kind of which every object has a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Followed {
    /// Kustomizations of Flux.
    Kustomizations,
    /// `HelmReleases` of Flux.
    Helmreleases,
    /// Applications of Argo CD.
    Applications,
    /// `GitRepos` of Fleet.
    Gitrepos,
    /// `HelmOps` of Fleet.
    Helmops,
    /// Bundles of Fleet that are not parts of a `GitRepo` or of a `HelmOp`. So no commit is reported twice.
    Bundles,
    /// Deployments of Kubernetes.
    Deployments,
}

/// What to do so that the sets of `--follow` are as they should be.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    pub apply: Vec<PipelineSet>,
    /// Names with uids.
    pub delete: Vec<(String, String)>,
    /// Names of sets that somebody else made.
    pub taken: Vec<String>,
}

impl Followed {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Kustomizations,
        Self::Helmreleases,
        Self::Applications,
        Self::Gitrepos,
        Self::Helmops,
        Self::Bundles,
        Self::Deployments,
    ];

    /// Returns the name of the kind in `--follow`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.kind().0
    }

    /// Returns the name for labels and sets, API version and kind.
    const fn kind(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Kustomizations => ("kustomizations", "kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
            Self::Helmreleases => ("helmreleases", "helm.toolkit.fluxcd.io/v2", "HelmRelease"),
            Self::Applications => ("applications", "argoproj.io/v1alpha1", "Application"),
            Self::Gitrepos => ("gitrepos", FLEET_VERSION, "GitRepo"),
            Self::Helmops => ("helmops", FLEET_VERSION, "HelmOp"),
            Self::Bundles => ("bundles", FLEET_VERSION, "Bundle"),
            Self::Deployments => ("deployments", "apps/v1", "Deployment"),
        }
    }

    /// Returns the labels that the objects must not have, because another followed object reports their changes.
    const fn without(self) -> &'static [&'static str] {
        match self {
            Self::Bundles => &OWNERS_OF_BUNDLES,
            _ => &[],
        }
    }

    /// Returns the set that makes a pipeline for each object of the kind in all watched namespaces. `layers`: whether Notifications of the
    /// namespace of each object are layers of its pipeline.
    #[must_use]
    pub fn set(self, namespace: &str, layers: bool) -> PipelineSet {
        let (name, api_version, kind) = self.kind();
        let without = |key: &&str| LabelRequirement {
            key: (*key).to_owned(),
            operator: LabelOperator::DoesNotExist,
            values: Vec::new(),
        };
        let match_expressions: Vec<LabelRequirement> = self.without().iter().map(without).collect();
        let selector = LabelRequirements { match_expressions, ..LabelRequirements::default() };
        let objects = ObjectSources {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespaces: Some(vec!["*".to_owned()]),
            selector: (!self.without().is_empty()).then_some(selector),
            ..ObjectSources::default()
        };
        let metadata = PipelineTemplateMetadata {
            // A namespace has no dots, so two objects never have the same name.
            name: format!("{}.{{{{namespace}}}}.{{{{name}}}}", kind.to_lowercase()),
            ..PipelineTemplateMetadata::default()
        };
        let mut spec = json!({
            "appRef": {"apiVersion": api_version, "kind": kind, "name": "{{name}}"},
            "environments": [{"name": "all", "targets": [{"namespace": "{{namespace}}"}]}],
        });
        if layers {
            spec[LAYER_NAMESPACE] = json!("{{namespace}}");
        }
        let spec = PipelineSetSpec {
            generators: vec![pipeline_set::Generator { objects: Some(objects), fleet: None }],
            template: PipelineTemplate { metadata, spec },
            ..PipelineSetSpec::default()
        };
        let mut set = PipelineSet::new(&format!("follow-{name}"), spec);
        set.metadata.namespace = Some(namespace.to_owned());
        set.metadata.labels = Some(BTreeMap::from([(FOLLOW.to_owned(), name.to_owned())]));
        set
    }
}

/// What `--follow` and `--follow-layers` say.
#[derive(Clone, Debug, Default)]
pub struct Follow {
    /// The kinds.
    pub kinds: Vec<Followed>,
    /// Whether Notifications of the namespace of each object are layers of its pipeline.
    pub layers: bool,
}

/// Compares the sets that exist in a namespace with those that there should be. What somebody adds to a set stays.
pub(super) fn changes<'a>(
    Follow { kinds, layers }: &Follow,
    namespace: &str,
    existing: impl Iterator<Item = &'a PipelineSet> + Clone,
) -> Changes {
    let is_of_follow = |set: &PipelineSet| set.labels().contains_key(FOLLOW);
    let here = existing.filter(|set| set.metadata.namespace.as_deref() == Some(namespace));
    let find = |name: &str| here.clone().find(|set| set.name_any() == name);
    let mut changes = Changes::default();
    let wanted: Vec<_> = kinds.iter().map(|kind| kind.set(namespace, *layers)).collect();
    let has_layers = |set: &PipelineSet| set.spec.template.spec.get(LAYER_NAMESPACE).is_some();
    for set in &wanted {
        match find(&set.name_any()) {
            Some(other) if !is_of_follow(other) => changes.taken.push(set.name_any()),
            Some(other) if contains(&json!(other.spec), &json!(set.spec)) && has_layers(other) == *layers => {}
            Some(_) | None => changes.apply.push(set.clone()),
        }
    }
    let is_wanted = |set: &PipelineSet| wanted.iter().any(|wanted| wanted.name_any() == set.name_any());
    let is_there = |set: &PipelineSet| set.metadata.deletion_timestamp.is_none();
    let extra = here.clone().filter(|set| is_of_follow(set) && is_there(set) && !is_wanted(set));
    changes.delete = extra.map(|set| (set.name_any(), set.metadata.uid.clone().unwrap_or_default())).collect();
    changes
}

/// Makes the changes. A set that somebody else made is left alone.
pub(super) async fn make(context: &Context, tenure: &Tenure, changes: Changes) -> Result<(), Error> {
    let api: Api<PipelineSet> = Api::namespaced(context.client.clone(), &context.options.namespace);
    for set in changes.apply {
        may_write(tenure).await?;
        let (name, params) = (set.name_any(), PatchParams::apply(SET_MANAGER).force());
        write(tenure.into(), api.patch(&name, &params, &Patch::Apply(&set))).await.map_err(Error::Follow)?;
        tracing::info!(set = name, "made a set of --follow");
    }
    for (name, uid) in changes.delete {
        may_write(tenure).await?;
        let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::background() };
        match write(tenure.into(), api.delete(&name, &params)).await {
            Ok(_) => tracing::info!(set = name, "deleted a set that --follow does not name any more"),
            Err(CallError::Api(error)) if matches!(&*error, kube::Error::Api(status) if status.is_not_found() || status.is_conflict()) =>
                {}
            Err(error) => return Err(Error::Follow(error)),
        }
    }
    Ok(())
}

/// Whether a value has everything that another one has.
fn contains(value: &Value, part: &Value) -> bool {
    match (value, part) {
        (Value::Object(all), Value::Object(wanted)) => {
            wanted.iter().all(|(key, part)| all.get(key).is_some_and(|value| contains(value, part)))
        }
        (Value::Array(all), Value::Array(wanted)) => {
            all.len() == wanted.len() && all.iter().zip(wanted).all(|(value, part)| contains(value, part))
        }
        (value, part) => value == part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sets::plan::plan;

    #[test]
    fn each_set_is_valid_and_its_pipelines_have_names_of_their_own() {
        for kind in Followed::ALL {
            let set = kind.set("relaybook-system", false);
            assert!(plan(&set.spec, "relaybook-system", true).is_ok(), "{kind:?}");
        }
        let names: Vec<String> = Followed::ALL.iter().map(|kind| kind.set("n", false).spec.template.metadata.name).collect();
        assert_eq!(names[0], "kustomization.{{namespace}}.{{name}}");
    }

    #[test]
    fn no_object_of_fleet_is_followed_twice() {
        use kube::core::Expression;
        let selects = |kind: Followed, labels: &[&str]| {
            let planned = plan(&kind.set("relaybook-system", false).spec, "relaybook-system", true).ok().unwrap();
            let selection = &planned.generators[0].selection;
            assert_eq!((selection.namespaces.as_ref(), selection.kind.api_version()), (None, FLEET_VERSION), "{kind:?}");
            let holds = |label: &Expression| match label {
                Expression::DoesNotExist(key) => !labels.contains(&key.as_str()),
                other => panic!("{other:?}"),
            };
            selection.labels.iter().all(holds)
        };
        for (kind, labels, followed) in [
            (Followed::Gitrepos, &[][..], true),
            (Followed::Helmops, &[], true),
            (Followed::Bundles, &[], true),
            (Followed::Bundles, &["fleet.cattle.io/repo-name"], false),
            (Followed::Bundles, &["fleet.cattle.io/fleet-helm-name"], false),
            (Followed::Bundles, &["fleet.cattle.io/commit"], true),
        ] {
            assert_eq!(selects(kind, labels), followed, "{kind:?} {labels:?}");
        }
        let kinds = Followed::ALL.map(|kind| kind.kind().2);
        assert!(!kinds.contains(&"BundleDeployment"), "it is a part of its Bundle");
    }

    #[test]
    fn the_chart_and_the_documentation_list_each_kind_of_follow() {
        let schema: Value = serde_json::from_str(include_str!("../../../../charts/relaybook/values.schema.json")).unwrap();
        let allowed = schema.pointer("/properties/follow/items/enum").unwrap();
        assert_eq!(allowed, &json!(Followed::ALL.map(Followed::name)));
        let page = include_str!("../../../../docs/pipeline-sets.md");
        for name in Followed::ALL.map(Followed::name) {
            assert!(
                page.contains(&format!("\n| `{name}` | ")) && page.contains(&format!(" | `follow-{name}` |\n")),
                "{name}"
            );
        }
    }

    #[test]
    fn only_the_sets_of_follow_are_changed() {
        let existing = [
            Followed::Kustomizations.set("p", false),
            Followed::Helmreleases.set("p", false),
            PipelineSet { spec: PipelineSetSpec::default(), ..Followed::Deployments.set("p", false) },
            PipelineSet::new("own", PipelineSetSpec::default()),
            Followed::Gitrepos.set("other", false),
            PipelineSet::new("follow-applications", PipelineSetSpec::default()),
        ];
        let existing = existing.map(|mut set| {
            set.metadata.namespace.get_or_insert_with(|| "p".to_owned());
            set
        });
        let kinds = vec![Followed::Kustomizations, Followed::Applications, Followed::Deployments];
        let mut follow = Follow { kinds, layers: false };
        let changes = changes(&follow, "p", existing.iter());
        let applied: Vec<String> = changes.apply.iter().map(PipelineSet::name_any).collect();
        assert_eq!(
            (applied, changes.taken),
            (vec!["follow-deployments".to_owned()], vec!["follow-applications".to_owned()])
        );
        assert_eq!(changes.delete, [("follow-helmreleases".to_owned(), String::new())]);
        follow.layers = true;
        let applied = super::changes(&follow, "p", existing.iter()).apply;
        assert_eq!(applied[0].name_any(), "follow-kustomizations");
        assert_eq!(applied[0].spec.template.spec["layerNamespace"], "{{namespace}}");
        let [with, without] =
            [true, false].map(|layers| super::changes(&Follow { layers, ..follow.clone() }, "p", applied.iter()));
        assert_eq!((with.apply.len(), without.apply.len()), (1, 3), "the set of Applications is missing");
    }
}
