//! Checks that apply to the requests of every template, for every transition and every row of extreme data.

use relaybook_api::TransitionType;
use relaybook_api::notification::Builtin;
use relaybook_settings::render::{Data, Limit};
use serde_json::Value;

use crate::awkward;
use crate::json::select;
use crate::published::contract;
use crate::subject::{Parameters, Request, Subject};

/// Maximum number of problems that are shown for one template.
const SHOWN: usize = 8;

/// Calls a check for each request, and for the same as a test, and fails with the problems that it returns.
fn each_request(mut check: impl FnMut(&Subject, &Request) -> Vec<String>) {
    let mut wrong = Vec::new();
    for builtin in Builtin::ALL {
        let mut of_this = Vec::new();
        for parameters in Parameters::ALL {
            let subject = Subject::example(builtin, parameters);
            let rows = subject.types().flat_map(awkward::rows);
            for (type_, row, data) in rows.flat_map(|(type_, row, data)| both(data).map(|data| (type_, row, data))) {
                let found = match subject.render(&data) {
                    Ok(request) => check(&subject, &request),
                    Err(problem) => vec![problem.to_string()],
                };
                let test = if data.test { ", a test" } else { "" };
                let name = format!("{}, {parameters:?}, {}, {row}{test}", builtin.as_str(), type_.as_str());
                of_this.extend(found.into_iter().map(|problem| format!("{name}: {problem}")));
            }
        }
        let more = of_this.len().saturating_sub(SHOWN);
        wrong.extend(of_this.into_iter().take(SHOWN));
        wrong.extend((more > 0).then(|| format!("{}: and {more} more", builtin.as_str())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns a transition, and a test of it.
fn both(data: Data) -> [Data; 2] {
    [data.clone(), Data { test: true, ..data }]
}

#[test]
fn every_request_is_json_or_a_form_within_its_limits_and_stays_at_its_receiver() {
    each_request(|subject, request| {
        let body = match request.parsed() {
            Ok(body) => body,
            Err(error) => return vec![format!("{error}: {}", request.body)],
        };
        let limits = subject.metadata.limits.iter().flat_map(|limit| over(limit, request, &body));
        let here = subject.metadata.example.url.parse::<url::Url>().unwrap().origin();
        let elsewhere = (request.url.origin() != here).then(|| format!("goes to {}", request.url));
        limits.chain(elsewhere).collect()
    });
}

/// A limit of a field that does not exist would never be checked.
#[test]
fn every_limit_belongs_to_a_field_that_is_sent() {
    for builtin in Builtin::ALL {
        let subject = Subject::example(builtin, Parameters::Examples);
        let bodies: Vec<_> = subject.types().map(|type_| subject.body(type_, |_| {})).collect();
        for Limit { field, .. } in subject.metadata.limits.iter().filter(|limit| limit.field != "body") {
            let found = bodies.iter().any(|body| !select(body, field).is_empty());
            assert!(found, "{}: there is no {field}", builtin.as_str());
        }
    }
}

#[test]
fn every_request_matches_the_published_schema() {
    let mut known = Vec::new();
    each_request(|subject, request| {
        // A test has a type that CDEvents does not know, so that nobody takes it for the truth.
        if subject.builtin == Builtin::Cdevents && request.body.contains(".test\"") {
            return Vec::new();
        }
        // The schema of a template is compiled once: all of its requests follow each other.
        if known.last().is_none_or(|(builtin, _)| *builtin != subject.builtin) {
            known.push((subject.builtin, contract(subject.builtin)));
        }
        known.last().map(|(_, contract)| contract.problems(request)).unwrap_or_default()
    });
}

/// The requests that update what the first one has created.
#[test]
fn every_request_about_a_deployment_that_exists_matches_the_published_schema() {
    let found = |builtin: &Builtin| relaybook_settings::render::builtin(*builtin).metadata.find.is_some();
    for builtin in Builtin::ALL.into_iter().filter(found) {
        let contract = contract(builtin);
        for parameters in Parameters::ALL {
            let subject = Subject::example(builtin, parameters);
            for (type_, row, data) in subject.types().flat_map(awkward::rows) {
                let request = subject.render_later(&data);
                let problems = contract.problems(&request);
                let name = format!("{}, {parameters:?}, {}, {row}", builtin.as_str(), type_.as_str());
                assert_eq!(problems, Vec::<String>::new(), "{name}: {} {}", request.url, request.body);
            }
        }
    }
}

#[test]
fn a_message_is_looked_for_below_the_prefix_of_the_api() {
    for (builtin, expected) in [
        (Builtin::GithubDeployment, "/repos/acme/podinfo/deployments?task=relaybook%3A1f0a3c5b7d9e2468&per_page=30"),
        (
            Builtin::GithubCheckRun,
            "/repos/acme/podinfo/commits/5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c/check-runs?check_name=relaybook%2Fin-cluster\
             %2Fteam-a%2Fpodinfo%2Fprod%2Fpodinfo%2FKustomization%2Fpodinfo&filter=all&per_page=20",
        ),
        (
            Builtin::GitlabDeployment,
            "/api/v4/projects/acme%2Fpodinfo/deployments?environment=prod&order_by=id&sort=desc&per_page=20",
        ),
    ] {
        let subject = Subject::example(builtin, Parameters::Required);
        let url = subject.lookup(&Data::sample(TransitionType::Deployed)).unwrap();
        let origin = url.origin().ascii_serialization();
        assert_eq!(url.as_str(), format!("{origin}{expected}"), "{}", builtin.as_str());
    }
}

#[test]
fn a_comment_is_at_the_pull_request_of_the_commit() {
    let commit = "5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c";
    let github = "/repos/acme/podinfo";
    let gitea = "/api/v1/repos/acme/podinfo";
    let gitlab = "/api/v4/projects/acme%2Fpodinfo";
    for (builtin, parent, list, create, update) in [
        (
            Builtin::GithubPullRequestComment,
            format!("{github}/commits/{commit}/pulls?per_page=5"),
            format!("{github}/issues/42/comments?per_page=100"),
            format!("{github}/issues/%3Cnumber%3E/comments"),
            format!("{github}/issues/comments/%3Cid%3E"),
        ),
        (
            Builtin::GiteaPullRequestComment,
            format!("{gitea}/commits/{commit}/pull"),
            format!("{gitea}/issues/42/comments"),
            format!("{gitea}/issues/%3Cnumber%3E/comments"),
            format!("{gitea}/issues/comments/%3Cid%3E"),
        ),
        (
            Builtin::GitlabMergeRequestComment,
            format!("{gitlab}/repository/commits/{commit}/merge_requests?per_page=10"),
            format!("{gitlab}/merge_requests/42/notes?order_by=created_at&sort=desc&per_page=50"),
            format!("{gitlab}/merge_requests/%3Cnumber%3E/notes"),
            format!("{gitlab}/merge_requests/%3Cnumber%3E/notes/%3Cid%3E"),
        ),
    ] {
        let (subject, data) = (Subject::example(builtin, Parameters::Required), Data::sample(TransitionType::Deployed));
        let urls = [
            subject.parent(&data).unwrap(),
            subject.lookup(&data).unwrap(),
            subject.render(&data).unwrap().url,
            subject.render_later(&data).url,
        ];
        for (url, path) in urls.into_iter().zip([parent, list, create, update]) {
            assert_eq!(&url[url::Position::BeforePath..], path, "{}", builtin.as_str());
        }
    }
}

#[test]
fn github_requests_name_the_api_version_of_the_templates() {
    for builtin in [
        Builtin::GithubCommitStatus,
        Builtin::GithubRepositoryDispatch,
        Builtin::GithubIssueComment,
        Builtin::GithubDeployment,
        Builtin::GithubCheckRun,
        Builtin::GithubPullRequestComment,
    ] {
        let subject = Subject::example(builtin, Parameters::Required);
        let request = subject.render(&Data::sample(TransitionType::Deployed)).unwrap();
        assert_eq!(request.header("accept"), Some("application/vnd.github+json"), "{}", builtin.as_str());
        assert_eq!(request.header("x-github-api-version"), Some("2022-11-28"), "{}", builtin.as_str());
        assert_eq!(request.credentials.as_deref(), Some("authorization: Bearer <token>"), "{}", builtin.as_str());
    }
}

/// Slack and Discord do not change the name of a sender afterwards. A reply is a message of its own.
#[test]
fn the_name_of_the_sender_is_in_requests_that_create_a_message() {
    for (builtin, mode, field, is_later) in [
        (Builtin::Slack, "update", "username", false),
        (Builtin::Slack, "thread", "username", true),
        (Builtin::Discord, "update", "username", false),
        (Builtin::Rocketchat, "thread", "alias", true),
    ] {
        let data = Data::sample(TransitionType::Failed);
        let subject = Subject::setting(builtin, &[("mode", mode), ("username", "Relay")]);
        let requests = [subject.render(&data).unwrap(), subject.render_later(&data)];
        let named = requests.map(|request| request.json().get(field).is_some_and(|name| name == "Relay"));
        assert_eq!(named, [true, is_later], "{}, {mode}", builtin.as_str());
        let unnamed = Subject::in_mode(builtin, mode).render(&data).unwrap();
        assert_eq!(unnamed.json().get(field), None, "{}, {mode}", builtin.as_str());
    }
}

/// Ten fields of any length fit beside any other text of the message, and each of them is in the request.
#[test]
fn ten_fields_keep_a_request_within_its_limits() {
    // Together, they are within the limit of a parameter, and each of them is longer than a template shows.
    let field = |n| format!("{}{n}: v{n}v {{{{truncate message 1500}}}}\n", "n".repeat(59));
    let fields: Vec<_> = (0..10).map(field).collect();
    let fields = fields.concat();
    let has_fields = |builtin: Builtin| {
        relaybook_settings::render::builtin(builtin).metadata.parameters.iter().any(|declared| declared.name == "fields")
    };
    let mut wrong = Vec::new();
    for builtin in Builtin::ALL.into_iter().filter(|builtin| has_fields(*builtin)) {
        let (subject, contract) = (Subject::setting(builtin, &[("fields", &fields)]), contract(builtin));
        let empty = Subject::setting(builtin, &[("fields", "Never: {{#if (eq type \"\")}}x{{/if}}")]);
        for (type_, row, data) in subject.types().flat_map(awkward::rows) {
            let request = subject.render(&data).unwrap();
            let body = request.json();
            let limits = subject.metadata.limits.iter().flat_map(|limit| over(limit, &request, &body));
            let problems = limits.chain(contract.problems(&request)).chain(contract.problems(&empty.render(&data).unwrap()));
            wrong.extend(problems.map(|problem| format!("{}, {}, {row}: {problem}", builtin.as_str(), type_.as_str())));
        }
        let failed = subject.body(TransitionType::Failed, |_| {}).to_string();
        let is_there = |n: usize| failed.contains(&format!("v{n}v"));
        assert!((0..10).all(is_there) && failed.contains(&"n".repeat(19)), "{}: {failed}", builtin.as_str());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Describes the fields of a request that exceed a limit.
fn over(limit: &Limit, request: &Request, body: &Value) -> Vec<String> {
    if limit.field == "body" {
        let most = limit.bytes.unwrap_or(usize::MAX);
        return (request.body.len() > most)
            .then(|| format!("{} bytes, not {most}", request.body.len()))
            .into_iter()
            .collect();
    }
    let check = |(path, value): (String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let (characters, bytes) = (text.chars().count(), text.len());
        let over = limit.characters.is_some_and(|most| characters > most) || limit.bytes.is_some_and(|most| bytes > most);
        over.then(|| format!("{path} has {characters} characters, {bytes} bytes; the limit is {limit:?}"))
    };
    select(body, &limit.field).into_iter().filter_map(check).collect()
}
