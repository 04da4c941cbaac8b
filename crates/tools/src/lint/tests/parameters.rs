//! Every parameter that a built-in template requires is named by its field, whether no value or only a value of Fleet is known for it.

use super::*;
use relaybook_api::notification::Builtin;
use relaybook_settings::render::{CredentialsKind, Declared, Metadata, builtin};

const PIPELINE: &str = "---
apiVersion: relaybook.dev/v1alpha1
kind: Pipeline
metadata: {name: web, namespace: team-a}
spec:
  appRef: {apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, name: web}
  environments: [{name: prod, targets: [{namespace: web}]}]
";

/// Whether a target that the pipeline lists has no value for the parameter.
fn is_needed(parameter: &Declared) -> bool {
    parameter.default.as_ref().is_none_or(|default| default.contains("target.source"))
}

/// Returns a Notification with the needed parameters of a template, without one of them.
fn notification(name: Builtin, metadata: &Metadata, without: Option<&str>) -> String {
    let key = json!({"secretKeyRef": {"name": "receiver", "key": "key"}});
    let url = &metadata.example.url;
    let endpoint = match metadata.credentials.kind {
        CredentialsKind::Url => json!({"urlFrom": key}),
        CredentialsKind::Token => json!({"url": url, "auth": {"token": key}}),
        CredentialsKind::Basic => json!({"url": url, "auth": {"basic": {"secretRef": {"name": "receiver"}}}}),
        CredentialsKind::None => json!({"url": url}),
    };
    let given = metadata.parameters.iter().filter(|p| is_needed(p) && Some(p.name.as_str()) != without);
    let parameters: serde_json::Map<_, _> =
        given.map(|p| (p.name.clone(), p.example.clone().unwrap_or_default().into())).collect();
    let object = json!({
        "apiVersion": "relaybook.dev/v1alpha1",
        "kind": "Notification",
        "metadata": {"name": "n", "namespace": "team-a"},
        "spec": {
            "triggers": [{"type": "Deployed"}],
            "endpoint": endpoint,
            "template": {"builtin": name.as_str(), "parameters": parameters},
        },
    });
    format!("{object}\n")
}

#[test]
fn each_missing_parameter_of_a_built_in_template_is_named() {
    let mut needed = 0;
    for name in Builtin::ALL {
        let metadata = &builtin(name).metadata;
        let shown = name.as_str();
        let whole = format!("{}{PIPELINE}", notification(name, metadata, None));
        assert_eq!(lines(&whole), [] as [String; 0], "{shown}");
        for parameter in metadata.parameters.iter().filter(|p| is_needed(p)) {
            needed += 1;
            let without = notification(name, metadata, Some(&parameter.name));
            let said = lines(&format!("{without}{PIPELINE}"));
            let field = format!("spec.template.parameters.{}", parameter.name);
            assert!(said.len() == 1 && said[0].contains(&field), "{shown}, {}: {said:?}", parameter.name);
            // Without a Pipeline, it is not known whether its targets come from Fleet.
            let alone = report(&without);
            let all: Vec<_> = alone.findings.iter().map(ToString::to_string).chain(alone.notes).collect();
            assert!(all.len() == 1 && all[0].contains(&field), "{shown}, {}: {all:?}", parameter.name);
        }
    }
    assert!(needed > 20, "{needed}");
}

#[test]
fn a_repository_is_needed_only_for_targets_that_do_not_come_from_fleet() {
    let metadata = &builtin(Builtin::GithubCommitStatus).metadata;
    let missing = notification(Builtin::GithubCommitStatus, metadata, Some("repository"));
    let fleet = "targetsFrom: [{fleet: {gitRepo: shop, of: BundleDeployments}}]";
    let objects = "targetsFrom: [{objects: {apiVersion: v1, kind: K, selector: {}}}]";
    let with = |targets: &str| lines(&format!("{missing}{}", PIPELINE.replace("targets: [{namespace: web}]", targets)));
    assert_eq!(with(fleet), [] as [String; 0]);
    assert_eq!(with(objects).len(), 1, "{:?}", with(objects));
    let argo = objects.replace("v1, kind: K", "argoproj.io/v1alpha1, kind: Application");
    assert_eq!(with(&argo), [] as [String; 0], "the object names it");
    let set = PIPELINE.replace("spec:\n", "spec:\n  source: {repository: \"https://git.example.com/acme/web.git\"}\n");
    assert_ne!(set, PIPELINE);
    assert_eq!(lines(&format!("{missing}{set}")), [] as [String; 0], "the pipeline names it");
    // The URL itself names the repository.
    let own = missing.replace("https://api.github.com", "https://git.example.com/{{target.source.project}}/x");
    let said = lines(&format!("{own}{PIPELINE}"));
    assert!(said.len() == 1 && said[0].contains("spec.endpoint.url: the repository of the targets"), "{said:?}");
    // The same problem of several pipelines is reported once.
    let two =
        format!("{missing}{PIPELINE}{}", PIPELINE.replace("name: web, namespace: team-a", "name: api, namespace: team-a"));
    assert_eq!(lines(&two).len(), 1);
    // Another namespace has other Notifications.
    let other = format!("{missing}{}", PIPELINE.replace("namespace: team-a", "namespace: team-b"));
    assert_eq!(lines(&other), [] as [String; 0]);
}
