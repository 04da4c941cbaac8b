//! Checks whether requests to the hooks of pipelines can be signed, as the pipelines say. It reads no Secret.

use std::time::Duration;

use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use kube::Client;
use serde::Deserialize;
use tokio::time::timeout;

use super::{Finding, Installation};
use relaybook_api::conditions;
use relaybook_api::conditions::{Condition, HOOKS_READY};
use relaybook_api::{GROUP, VERSION};
use relaybook_telemetry::chain;

/// Time limit of a list.
const DEADLINE: Duration = Duration::from_secs(10);
/// Maximum number of pipelines of one list.
const MOST: usize = 500;

/// A list of pipelines. All other fields are skipped while it is parsed.
#[derive(Debug, Deserialize)]
struct Listed {
    #[serde(default)]
    metadata: ListMeta,
    items: Vec<Judged>,
}

#[derive(Debug, Deserialize)]
struct Judged {
    metadata: ObjectMeta,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

/// Returns a finding for each pipeline with a hook that refuses every request, and one if not all pipelines could be checked.
pub(super) async fn check(client: &Client, installation: &Installation) -> Vec<Finding> {
    let watched = &installation.watch_namespaces;
    let all = if watched.is_empty() { vec![None] } else { watched.iter().map(Some).collect() };
    let mut findings = Vec::new();
    for namespace in all {
        findings.extend(in_namespace(client, namespace).await);
    }
    findings
}

async fn in_namespace(client: &Client, namespace: Option<&String>) -> Vec<Finding> {
    let place = namespace.map_or_else(|| "all namespaces".to_owned(), |namespace| format!("namespace {namespace}"));
    let what = format!("hooks of pipelines in {place}");
    let path = namespace.map_or_else(String::new, |namespace| format!("/namespaces/{namespace}"));
    let path = format!("/apis/{GROUP}/{VERSION}{path}/pipelines?limit={MOST}");
    let Ok(request) = Request::get(path).body(Vec::new()) else { return Vec::new() };
    match timeout(DEADLINE, client.request::<Listed>(request)).await {
        Ok(Ok(listed)) => judge(&what, &listed),
        // The CRDs have a check of their own.
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Vec::new(),
        Ok(Err(error)) => vec![Finding { what: format!("{what}: not checked, {}", chain(&error)), wrong: None }],
        Err(_) => vec![Finding { what: format!("{what}: not checked, the API server does not answer"), wrong: None }],
    }
}

fn judge(what: &str, listed: &Listed) -> Vec<Finding> {
    let wrong = listed.items.iter().filter_map(|pipeline| {
        let condition = conditions::get(&pipeline.status.conditions, HOOKS_READY)?;
        let ObjectMeta { namespace, name, .. } = &pipeline.metadata;
        let (namespace, name) = (namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default());
        Some(Finding { what: format!("hooks of Pipeline {namespace}/{name}"), wrong: Some(condition.message.clone()) })
    });
    let mut findings: Vec<Finding> = wrong.collect();
    let is_cut = listed.metadata.continue_.as_deref().is_some_and(|more| !more.is_empty());
    findings.extend(is_cut.then(|| Finding { what: format!("{what}: only {MOST} were checked"), wrong: None }));
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_pipeline_whose_hooks_refuse_every_request_is_a_finding() {
        let condition = |type_: &str| {
            json!({"type": type_, "status": "False", "reason": "SecretMissing", "message": "because",
                   "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let pipeline = |name: &str, type_: &str| json!({"metadata": {"namespace": "team-a", "name": name}, "spec": {}, "status": {"conditions": [condition(type_)]}});
        let found = |more: &str, items: serde_json::Value| {
            let listed = serde_json::from_value(json!({"metadata": {"continue": more}, "items": items})).unwrap();
            let findings = judge("hooks of pipelines", &listed).into_iter();
            findings.map(|finding| (finding.what, finding.wrong)).collect::<Vec<_>>()
        };
        let fine = |what: &str| (what.to_owned(), None);
        let wrong = ("hooks of Pipeline team-a/web".to_owned(), Some("because".to_owned()));
        let new = json!({"metadata": {"namespace": "team-a", "name": "new"}});
        let (web, api) = (pipeline("web", "HooksReady"), pipeline("api", "Ready"));
        assert!(found("", json!([new, api])).is_empty());
        assert_eq!(found("", json!([api, web])), std::slice::from_ref(&wrong));
        assert_eq!(found("more", json!([web])), [wrong, fine("hooks of pipelines: only 500 were checked")]);
    }
}
