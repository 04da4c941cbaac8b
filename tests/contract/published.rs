//! The contracts of the receivers: which requests they accept.
//!
//! [`contract`] returns the contract for each built-in template: a schema that the receiver publishes, which
//! `hack/schemas/fetch.mjs` fetches once (a tenth of a second if it is present), or otherwise one of [`documented`].

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use jsonschema::Validator;
use relaybook_api::notification::Builtin;
use serde_json::Value;

use crate::documented;
use crate::openapi::{Operation, errors};
use crate::subject::Request;

/// What a request is checked against.
pub enum Contract {
    /// An operation of an `OpenAPI` document: method, path, query, headers, body.
    Operation(Operation),
    /// The same, if the receiver provides the URL: only content type and body.
    Body(Operation),
    /// The same, with a member that the schema requires and the receiver's documentation does not.
    With(Operation, &'static str, Value),
    /// The schema that the receiver published last, and the one that it documents now.
    Both(Operation, Operation),
    /// A schema of the body.
    Schema(Validator),
    /// PagerDuty's two kinds of events, each with its own schema.
    Pagerduty { event: Validator, change: Validator },
    /// The types of the CDEvents SDK for Rust, in a CloudEvent.
    Cdevents(Validator),
    /// The operation of these that has the path of the request.
    OneOf(Vec<Operation>),
    /// Relaybook's own format, which has no external contract.
    Ours,
}

/// Returns the contract for the requests of a template.
pub fn contract(builtin: Builtin) -> Contract {
    use Contract::{Body, Both, Cdevents, OneOf, Operation, Ours, Pagerduty, Schema, With};
    match builtin {
        Builtin::GithubCommitStatus => Operation(post("github", "/repos/{owner}/{repo}/statuses/{sha}")),
        Builtin::GithubRepositoryDispatch => Operation(post("github", "/repos/{owner}/{repo}/dispatches")),
        Builtin::GithubIssueComment => Operation(post("github", "/repos/{owner}/{repo}/issues/{issue_number}/comments")),
        Builtin::GiteaCommitStatus => Operation(post("gitea", "/repos/{owner}/{repo}/statuses/{sha}")),
        Builtin::BitbucketBuildStatus => {
            let path = "/repositories/{workspace}/{repo_slug}/commit/{commit}/statuses/build";
            With(post("bitbucket", path), "type", "build".into())
        }
        Builtin::Alertmanager => Operation(post("alertmanager", "/alerts")),
        Builtin::DatadogEvent => Operation(post("datadog", "/api/v1/events")),
        Builtin::GoogleChat => Body(post("google-chat", "/v1/{parent}/messages")),
        Builtin::Slack => Schema(schema("slack")),
        Builtin::Discord => Schema(schema("discord")),
        Builtin::Teams => Schema(schema("teams")),
        Builtin::Mattermost => Schema(schema("mattermost")),
        Builtin::Telegram => Schema(schema("telegram")),
        Builtin::AzureDevopsGitStatus => Schema(schema("azure-devops")),
        Builtin::SentryReleaseDeploy => Schema(schema("sentry")),
        Builtin::Cloudevents => Schema(schema("cloudevents")),
        Builtin::Cdevents => Cdevents(schema("cloudevents")),
        Builtin::Pagerduty => Pagerduty { event: schema("pagerduty-event"), change: schema("pagerduty-change") },
        Builtin::GitlabCommitStatus => Both(gitlab_status(), documented(documented::gitlab_status())),
        Builtin::GitlabPipelineTrigger => Operation(documented(documented::gitlab_trigger())),
        Builtin::MattermostBot => Operation(documented(documented::mattermost_bot())),
        Builtin::Webex => Operation(documented(documented::webex())),
        Builtin::Rocketchat => Operation(documented(documented::rocketchat())),
        Builtin::Matrix => Operation(documented(documented::matrix())),
        Builtin::Ntfy => Operation(documented(documented::ntfy())),
        Builtin::Opsgenie => {
            let ends = ["/v2/alerts/{identifier}/close", "/v2/alerts/{identifier}/notes"].map(documented::opsgenie_end);
            OneOf([documented::opsgenie_alert()].into_iter().chain(ends).map(documented).collect())
        }
        Builtin::BitbucketServerBuildStatus => Operation(documented(documented::bitbucket_server())),
        Builtin::Lark => Operation(documented(documented::lark())),
        Builtin::Zoom => Operation(documented(documented::zoom())),
        Builtin::IncidentIo => Operation(documented(documented::incident_io())),
        Builtin::NewRelicEvent => Schema(schema_of(&documented::new_relic_events())),
        Builtin::FluxEvent => Schema(schema_of(&documented::flux_event())),
        Builtin::GithubDeployment => {
            let ends = ["", "/{deployment_id}/statuses"];
            OneOf(ends.map(|end| post("github", &format!("/repos/{{owner}}/{{repo}}/deployments{end}"))).into())
        }
        Builtin::GithubCheckRun => OneOf(vec![
            post("github", "/repos/{owner}/{repo}/check-runs"),
            patch("github", "/repos/{owner}/{repo}/check-runs/{check_run_id}"),
        ]),
        Builtin::GitlabDeployment => {
            OneOf([documented::gitlab_deployment(), documented::gitlab_deployment_status()].map(documented).into())
        }
        Builtin::GithubPullRequestComment => OneOf(vec![
            post("github", "/repos/{owner}/{repo}/issues/{issue_number}/comments"),
            patch("github", "/repos/{owner}/{repo}/issues/comments/{comment_id}"),
        ]),
        Builtin::GiteaPullRequestComment => OneOf(vec![
            post("gitea", "/repos/{owner}/{repo}/issues/{index}/comments"),
            patch("gitea", "/repos/{owner}/{repo}/issues/comments/{id}"),
        ]),
        Builtin::GitlabMergeRequestComment => {
            OneOf([documented::gitlab_note(), documented::gitlab_note_update()].map(documented).into())
        }
        Builtin::Zulip => Schema(schema_of(&documented::zulip())),
        Builtin::Pushover => Schema(schema_of(&documented::pushover())),
        Builtin::GrafanaAnnotation => Operation(documented(documented::grafana())),
        Builtin::Generic => Ours,
    }
}

impl Contract {
    /// Describes the problems of a request.
    pub fn problems(&self, request: &Request) -> Vec<String> {
        let mut body = request.json();
        match self {
            Self::Operation(operation) => operation.problems(request, &body),
            Self::Both(published, documented) => {
                published.problems(request, &body).into_iter().chain(documented.problems(request, &body)).collect()
            }
            Self::Body(operation) => operation.body_problems(request, &body),
            Self::With(operation, name, value) => {
                body[*name] = value.clone();
                operation.problems(request, &body)
            }
            Self::Schema(schema) => errors(schema, &body),
            Self::Pagerduty { change, .. } if request.url.path() == "/v2/change/enqueue" => errors(change, &body),
            Self::Pagerduty { event, .. } => errors(event, &body),
            Self::Cdevents(envelope) => {
                let typed = serde_json::from_value::<cdevents_sdk::CDEvent>(body["data"].clone());
                errors(envelope, &body).into_iter().chain(typed.err().map(|e| format!("/data: {e}"))).collect()
            }
            Self::OneOf(operations) => operations.iter().find(|operation| operation.is_for(request)).map_or_else(
                || vec![format!("there is no operation {}", request.url.path())],
                |operation| operation.problems(request, &body),
            ),
            Self::Ours => Vec::new(),
        }
    }
}

fn post(name: &str, path: &str) -> Operation {
    Operation::of(document(name), "post", path)
}

fn patch(name: &str, path: &str) -> Operation {
    Operation::of(document(name), "patch", path)
}

/// GitLab publishes the schema of version 3 of its API, in which a status is the same as in version 4. The schema describes
/// forms, instead of which GitLab also accepts JSON (<https://docs.gitlab.com/api/rest/#request-payload>).
fn gitlab_status() -> Operation {
    let mut document = document("gitlab");
    let mut item = document["paths"]["/v3/projects/{id}/statuses/{sha}"].take();
    let content = &mut item["post"]["requestBody"]["content"];
    *content = serde_json::json!({"application/json": content["application/x-www-form-urlencoded"].take()});
    document["paths"] = serde_json::json!({"/v4/projects/{id}/statuses/{sha}": item});
    Operation::of(document, "post", "/v4/projects/{id}/statuses/{sha}")
}

/// Returns the only operation of a document.
fn documented(document: Value) -> Operation {
    let first = |value: &Value| value.as_object().and_then(|o| o.keys().next().cloned()).unwrap();
    let path = first(&document["paths"]);
    let method = first(&document["paths"][&path]);
    Operation::of(document, &method, &path)
}

fn schema(name: &str) -> Validator {
    let options = jsonschema::options().should_validate_formats(true);
    options.build(&document(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn schema_of(document: &Value) -> Validator {
    jsonschema::options().build(document).unwrap_or_else(|e| panic!("{e}"))
}

fn document(name: &str) -> Value {
    let file = FOLDER.join(format!("{name}.json"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// Folder of the published documents. The script fetches the missing ones.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/schemas/fetch.mjs");
    let output = Command::new("node").arg(script).output().expect("Node is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a path").trim().into()
});

#[cfg(test)]
mod tests {
    use relaybook_api::TransitionType;
    use relaybook_settings::render::Data;
    use serde_json::json;

    use super::*;
    use crate::subject::{Parameters, Subject};

    /// Contracts that allow unknown members: events have extensions or any attributes, and Bitbucket's schema allows them explicitly.
    const OPEN: [Builtin; 3] = [Builtin::Cloudevents, Builtin::BitbucketBuildStatus, Builtin::NewRelicEvent];

    /// Returns the pointer to the object whose members the contract defines.
    fn record(builtin: Builtin) -> &'static str {
        match builtin {
            Builtin::Alertmanager | Builtin::NewRelicEvent => "/0",
            Builtin::Cdevents => "/data",
            _ => "",
        }
    }

    /// Proves that each contract can fail: it rejects a wrong type of each member, and a misspelt member.
    #[test]
    fn a_wrong_body_is_detected() {
        for builtin in Builtin::ALL {
            let contract = contract(builtin);
            if matches!(contract, Contract::Ours) {
                continue;
            }
            let mut request =
                Subject::example(builtin, Parameters::Examples).render(&Data::sample(TransitionType::Failed)).unwrap();
            assert_eq!(contract.problems(&request), Vec::<String>::new(), "{}", builtin.as_str());
            let good = request.json();
            let mut changed = |name: &str, value: Value| {
                let mut body = good.clone();
                body.pointer_mut(record(builtin)).unwrap()[name] = value;
                request.body = body.to_string();
                contract.problems(&request)
            };
            let members = good.pointer(record(builtin)).unwrap().as_object().unwrap().keys();
            // These members belong to the sender and may have any type.
            let free = |name: &&String| match builtin {
                Builtin::Cloudevents => *name == "data",
                Builtin::Cdevents => *name == "customData",
                _ => false,
            };
            let passed: Vec<&String> =
                members.filter(|name| !free(name)).filter(|name| changed(name, json!([[]])).is_empty()).collect();
            assert!(passed.is_empty(), "{}: {passed:?} may be anything", builtin.as_str());
            let noticed = !changed("misspelt", json!("x")).is_empty();
            assert_eq!(noticed, !OPEN.contains(&builtin), "{}", builtin.as_str());
        }
    }

    #[test]
    fn a_wrong_path_is_detected() {
        let subject = Subject::example(Builtin::GithubCommitStatus, Parameters::Required);
        let mut request = subject.render(&Data::sample(TransitionType::Failed)).unwrap();
        let contract = contract(Builtin::GithubCommitStatus);
        for path in [
            "/repos/acme/podinfo/status/5f3d2c1",
            "/repos/acme//statuses/5f3d2c1",
            "/v3/repos/acme/podinfo/statuses/5f3d2c1",
        ] {
            request.url.set_path(path);
            assert_eq!(contract.problems(&request).len(), 1, "{path}");
        }
        request.url.set_path("/repos/acme/podinfo/statuses/5f3d2c1");
        assert!(contract.problems(&request).is_empty());
        request.url.set_query(Some("misspelt=1"));
        assert_eq!(contract.problems(&request).len(), 1);
    }
}
