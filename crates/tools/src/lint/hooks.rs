//! Checks the Secrets of hooks that are among the files, as the hooks do.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;

use super::{FieldProblem, FileDocument, Options, Source};
use relaybook_api::promotion::PromotionPolicy;
use relaybook_api::values::hook_keys::{Flaw, flaw, trimmed};
use relaybook_api::{Pipeline, SecretRef};
use relaybook_settings::manifests::field::{below, entry};

/// The Secrets of the files, by namespace and name, and why no request to a hook can be signed with them.
pub(super) type Secrets = BTreeMap<(String, String), Option<Flaw>>;

/// Returns the Secrets of the files. One that the API server would refuse is ignored. If several have the same name, the last one counts.
pub(super) fn secrets(all: &[FileDocument<'_>], options: &Options) -> Secrets {
    let documents = all.iter().map(|file_document| &file_document.document);
    let secrets = documents.filter(|document| (document.api_version(), document.kind()) == ("v1", "Secret"));
    let read = secrets.filter_map(|document| serde_json::from_value::<Secret>(document.value.clone()).ok());
    let judged = read.map(|secret| {
        let data = secret.data.iter().flatten().map(|(name, value)| (name.as_str(), Some(trimmed(&value.0).len())));
        let texts = secret.string_data.iter().flatten();
        let texts = texts.map(|(name, text)| (name.as_str(), Some(trimmed(text.as_bytes()).len())));
        // A text replaces the value of the same name.
        let keys: BTreeMap<&str, Option<usize>> = data.chain(texts).collect();
        let place = (secret.namespace().unwrap_or_else(|| options.namespace.clone()), secret.name_any());
        (place, flaw(secret.type_.as_deref(), keys))
    });
    judged.collect()
}

/// Returns the fields of a pipeline that name a Secret with which no request to a hook can be signed.
pub(super) fn check(pipeline: &Pipeline, secrets: &Secrets) -> Vec<FieldProblem> {
    let (spec, namespace) = (&pipeline.spec, pipeline.namespace().unwrap_or_default());
    let of_policy = |policy: Option<&PromotionPolicy>, holder: &str| {
        let secret = policy?.strategy.as_ref()?.secret_ref.clone()?;
        Some((secret, below(&below(&below(holder, "promotion"), "strategy"), "secretRef")))
    };
    let looks = spec.hooks.iter().map(|hooks| (hooks.secret_ref.clone(), "spec.hooks.secretRef".to_owned()));
    let environments = spec.environments.iter().enumerate().skip(1);
    let of_environments = environments
        .filter_map(|(index, environment)| of_policy(environment.promotion.as_ref(), &entry("spec.environments", index)));
    let named = of_policy(spec.promotion.as_ref(), "spec").into_iter().chain(of_environments).chain(looks);
    let problem = |(SecretRef { name }, field): (SecretRef, String)| {
        let flaw = secrets.get(&(namespace.clone(), name.clone()))?.as_ref()?;
        Some((below(&field, "name"), format!("Secret {namespace}/{name} {flaw}"), Source::Controller))
    };
    named.filter_map(problem).collect()
}
