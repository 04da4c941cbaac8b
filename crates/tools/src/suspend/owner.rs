//! Who sets an object back to what is declared elsewhere. Pure.
//!
//! In: the metadata of an object, and the `PipelineSet` that made it. Out: the [`Owner`] that a warning names.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use relaybook_text::escaped;

/// The label of objects that Helm installs, and its value.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "Helm");

/// What declares an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    kind: Kind,
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    PipelineSet,
    Kustomization,
    HelmRelease,
    Application,
    Release,
}

impl Kind {
    /// Returns the name of the kind, and where to change the object instead.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::PipelineSet => ("PipelineSet", "spec.template of the set"),
            Self::Kustomization => ("Kustomization", "Git"),
            Self::HelmRelease => ("HelmRelease", "Git"),
            Self::Application => ("Argo CD Application", "Git"),
            Self::Release => ("Helm release", "the chart or its values"),
        }
    }
}

impl Owner {
    fn new(kind: Kind, namespace: Option<&str>, name: &str) -> Self {
        let name = namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
        Self { kind, name }
    }

    /// Returns the warning that a change of the object does not last.
    #[must_use]
    pub fn warning(&self) -> String {
        let (kind, place) = self.kind.words();
        // Annotations are free text.
        format!("warning: {kind} {} sets this object back; change it in {place}", escaped(&self.name))
    }
}

/// Returns what declares an object. `pipeline_set`: `spec.pipelineSet.name` of a Pipeline. The objects of a HelmRelease have the labels of
/// Helm too, so Flux is asked first.
#[must_use]
pub fn owner(metadata: &ObjectMeta, pipeline_set: Option<&str>) -> Option<Owner> {
    let of_set = pipeline_set.map(|set| Owner::new(Kind::PipelineSet, metadata.namespace.as_deref(), set));
    of_set
        .or_else(|| of_flux(metadata, Kind::Kustomization, "kustomize.toolkit.fluxcd.io"))
        .or_else(|| of_flux(metadata, Kind::HelmRelease, "helm.toolkit.fluxcd.io"))
        .or_else(|| of_argo(metadata))
        .or_else(|| of_helm(metadata))
}

fn of_flux(metadata: &ObjectMeta, kind: Kind, group: &str) -> Option<Owner> {
    let labels = metadata.labels.as_ref();
    let name = value(labels, &format!("{group}/name"))?;
    Some(Owner::new(kind, value(labels, &format!("{group}/namespace")), name))
}

fn of_argo(metadata: &ObjectMeta) -> Option<Owner> {
    // The value is APPLICATION:GROUP/KIND:NAMESPACE/NAME.
    let tracked = value(metadata.annotations.as_ref(), "argocd.argoproj.io/tracking-id").and_then(|id| id.split(':').next());
    let name = tracked.or_else(|| value(metadata.labels.as_ref(), "argocd.argoproj.io/instance"))?;
    Some(Owner::new(Kind::Application, None, name))
}

fn of_helm(metadata: &ObjectMeta) -> Option<Owner> {
    let (labels, annotations) = (metadata.labels.as_ref(), metadata.annotations.as_ref());
    value(labels, MANAGED_BY.0).filter(|manager| *manager == MANAGED_BY.1)?;
    let name = value(annotations, "meta.helm.sh/release-name").or_else(|| value(labels, "app.kubernetes.io/instance"));
    Some(Owner::new(Kind::Release, value(annotations, "meta.helm.sh/release-namespace"), name.unwrap_or("of unknown name")))
}

fn value<'a>(of: Option<&'a BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    of?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_object_names_what_declares_it() {
        let kustomize =
            json!({"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"});
        let release = json!({
            "helm.toolkit.fluxcd.io/name": "web", "helm.toolkit.fluxcd.io/namespace": "team-a", "app.kubernetes.io/managed-by": "Helm",
        });
        let helm = json!({"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "web"});
        let helm_names = json!({"meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "team-a"});
        let (none, git) = (json!({}), "change it in Git");
        for (labels, annotations, set, expected) in [
            (&none, &none, None, None),
            (&json!({"app.kubernetes.io/managed-by": "kustomize", "team": "a"}), &none, None, None),
            (&json!({"kustomize.toolkit.fluxcd.io/name": ""}), &none, None, None),
            (&kustomize, &none, None, Some(format!("Kustomization flux-system/apps sets this object back; {git}"))),
            (&release, &helm_names, None, Some(format!("HelmRelease team-a/web sets this object back; {git}"))),
            (
                &json!({"argocd.argoproj.io/instance": "apps"}),
                &none,
                None,
                Some(format!("Argo CD Application apps sets this object back; {git}")),
            ),
            (
                &none,
                &json!({"argocd.argoproj.io/tracking-id": "argocd_a\u{1b}[2J:relaybook.dev/Notification:team-a/chat"}),
                None,
                Some(format!("Argo CD Application {} sets this object back; {git}", escaped("argocd_a\u{1b}[2J"))),
            ),
            (
                &helm,
                &helm_names,
                None,
                Some("Helm release team-a/shop sets this object back; change it in the chart or its values".to_owned()),
            ),
            (
                &helm,
                &none,
                None,
                Some("Helm release web sets this object back; change it in the chart or its values".to_owned()),
            ),
            (
                &kustomize,
                &none,
                Some("apps"),
                Some("PipelineSet team-a/apps sets this object back; change it in spec.template of the set".to_owned()),
            ),
        ] {
            let metadata: Value =
                json!({"name": "chat", "namespace": "team-a", "labels": labels, "annotations": annotations});
            let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
            let expected = expected.map(|words| format!("warning: {words}"));
            assert_eq!(owner(&metadata, set).map(|owner| owner.warning()), expected, "{metadata:?}");
        }
    }
}
