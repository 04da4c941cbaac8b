//! `--follow`: the sets that make a pipeline for every object of a kind.
//!
//! In: the kinds, and the sets that exist. Out: what to apply and what to delete (pure), and the calls. The program makes these sets instead of
//! the chart, because a Helm release cannot contain objects of a kind that it installs.

use std::collections::BTreeMap;

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::api::pipeline_set::{ObjectSources, PipelineTemplate, PipelineTemplateMetadata, SET_MANAGER};
use crate::api::{PipelineSet, PipelineSetSpec, pipeline_set};
use crate::k8s::call::{CallError, call};

/// The label of the sets of `--follow`, with the name of the kind.
const FOLLOW: &str = "pennant.dev/follow";

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
    /// Deployments of Kubernetes.
    Deployments,
}

/// What to do so that the sets of `--follow` are as they should be.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    pub apply: Vec<PipelineSet>,
    pub delete: Vec<String>,
    /// Names of sets that somebody else made.
    pub taken: Vec<String>,
}

impl Followed {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Kustomizations, Self::Helmreleases, Self::Applications, Self::Gitrepos, Self::Deployments];

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
            Self::Gitrepos => ("gitrepos", "fleet.cattle.io/v1alpha1", "GitRepo"),
            Self::Deployments => ("deployments", "apps/v1", "Deployment"),
        }
    }

    /// Returns the set that makes a pipeline for each object of the kind in all watched namespaces.
    #[must_use]
    pub fn set(self, namespace: &str) -> PipelineSet {
        let (name, api_version, kind) = self.kind();
        let objects = ObjectSources {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespaces: Some(vec!["*".to_owned()]),
            ..ObjectSources::default()
        };
        let metadata = PipelineTemplateMetadata {
            // A namespace has no dots, so two objects never have the same name.
            name: format!("{}.{{{{namespace}}}}.{{{{name}}}}", kind.to_lowercase()),
            ..PipelineTemplateMetadata::default()
        };
        let spec = json!({
            "appRef": {"apiVersion": api_version, "kind": kind, "name": "{{name}}"},
            "environments": [{"name": "all", "targets": [{"namespace": "{{namespace}}"}]}],
        });
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

/// Compares the sets that exist in a namespace with those that there should be.
pub(super) fn changes<'a>(
    follow: &[Followed],
    namespace: &str,
    existing: impl Iterator<Item = &'a PipelineSet> + Clone,
) -> Changes {
    let wanted: Vec<PipelineSet> = follow.iter().map(|kind| kind.set(namespace)).collect();
    let here = existing.filter(|set| set.metadata.namespace.as_deref() == Some(namespace));
    let is_of_follow = |set: &PipelineSet| set.labels().contains_key(FOLLOW);
    let of_follow = here.clone().filter(|set| is_of_follow(set));
    let is_as = |set: &PipelineSet| {
        of_follow
            .clone()
            .any(|other| other.name_any() == set.name_any() && other.spec == set.spec && other.labels().contains_key(FOLLOW))
    };
    let is_wanted = |set: &&PipelineSet| wanted.iter().any(|wanted| wanted.name_any() == set.name_any());
    let is_there = |set: &&PipelineSet| set.metadata.deletion_timestamp.is_none();
    let delete = of_follow.clone().filter(|set| is_there(set) && !is_wanted(set)).map(kube::ResourceExt::name_any).collect();
    let is_own = |set: &&PipelineSet| here.clone().all(|other| other.name_any() != set.name_any() || is_of_follow(other));
    let (own, others): (Vec<_>, Vec<_>) = wanted.iter().partition(is_own);
    let apply = own.into_iter().filter(|set| !is_as(set)).cloned().collect();
    Changes { apply, delete, taken: others.iter().map(|set| set.name_any()).collect() }
}

/// Makes the changes. A set that somebody else made is left alone.
pub(super) async fn make(client: Client, namespace: &str, changes: Changes) -> Result<(), CallError> {
    let api: Api<PipelineSet> = Api::namespaced(client, namespace);
    for set in changes.taken {
        tracing::warn!(set, "--follow does not change a set without its label {FOLLOW}; delete or rename the set");
    }
    for set in changes.apply {
        let (name, params) = (set.name_any(), PatchParams::apply(SET_MANAGER).force());
        call(api.patch(&name, &params, &Patch::Apply(&set))).await?;
        tracing::info!(set = name, "made a set of --follow");
    }
    for name in changes.delete {
        match call(api.delete(&name, &DeleteParams::background())).await {
            Ok(_) => tracing::info!(set = name, "deleted a set that --follow does not name any more"),
            Err(CallError::Api(error)) if matches!(&*error, kube::Error::Api(status) if status.is_not_found()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sets::plan::plan;

    #[test]
    fn each_set_is_valid_and_its_pipelines_have_names_of_their_own() {
        for kind in Followed::ALL {
            let set = kind.set("pennant-system");
            assert!(plan(&set.spec, "pennant-system", true).is_ok(), "{kind:?}");
        }
        let names: Vec<String> = Followed::ALL.iter().map(|kind| kind.set("n").spec.template.metadata.name).collect();
        assert_eq!(names[0], "kustomization.{{namespace}}.{{name}}");
    }

    #[test]
    fn only_the_sets_of_follow_are_changed() {
        let existing = [
            Followed::Kustomizations.set("p"),
            Followed::Helmreleases.set("p"),
            PipelineSet { spec: PipelineSetSpec::default(), ..Followed::Deployments.set("p") },
            PipelineSet::new("own", PipelineSetSpec::default()),
            Followed::Gitrepos.set("other"),
            PipelineSet::new("follow-applications", PipelineSetSpec::default()),
        ];
        let existing = existing.map(|mut set| {
            set.metadata.namespace.get_or_insert_with(|| "p".to_owned());
            set
        });
        let follow = [Followed::Kustomizations, Followed::Applications, Followed::Deployments];
        let changes = changes(&follow, "p", existing.iter());
        let applied: Vec<String> = changes.apply.iter().map(PipelineSet::name_any).collect();
        assert_eq!(
            (applied, changes.taken),
            (vec!["follow-deployments".to_owned()], vec!["follow-applications".to_owned()])
        );
        assert_eq!(changes.delete, ["follow-helmreleases"]);
    }
}
