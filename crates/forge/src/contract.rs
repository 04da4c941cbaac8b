//! Checks requests, and the answers that tests use as examples, against what the forges publish (`testdata/`).
//!
//! The files in `testdata` are excerpts. Each names its source, version and licence. GitLab publishes no schema of its API in a package
//! registry, so its file comes from the types of a client library.

use http::{HeaderMap, HeaderName, HeaderValue};
use jsonschema::Draft;
use serde_json::{Value, json};
use url::Url;

use super::{Answer, Error, Intent, Kind, Meaning, Repository, Request, meaning, request};

/// Returns the repository that tests use.
pub(super) fn repository(kind: Kind) -> Repository {
    let url = match kind {
        Kind::Gitea => "https://gitea.example.com/acme/web.git",
        Kind::Github => "https://github.com/acme/web.git",
        Kind::Gitlab => "https://gitlab.com/acme/team/web.git",
        Kind::BitbucketCloud => "https://bitbucket.org/acme/web.git",
        Kind::BitbucketServer => "https://bitbucket.example.com/scm/ACME/web.git",
    };
    Repository::new(kind, &Url::parse(url).unwrap(), None).unwrap()
}

/// Returns the request of an intent, as `METHOD path?query body`, after it was checked against the operation.
pub(super) fn requested(kind: Kind, operation: &str, intent: &Intent<'_>) -> String {
    let found = request(&repository(kind), intent, None).unwrap();
    Contract::of(kind, operation).check(&repository(kind), &found);
    let path = found.url.as_str().strip_prefix(repository(kind).api().as_str().trim_end_matches('/')).unwrap();
    let body = found.body.map(|body| format!(" {}", String::from_utf8(body).unwrap())).unwrap_or_default();
    format!("{} {path}{body}", found.method)
}

/// Returns what an answer means.
pub(super) fn answered(
    kind: Kind,
    intent: &Intent<'_>,
    status: u16,
    headers: &[(&'static str, &str)],
    body: &Value,
) -> Result<Meaning, Error> {
    let pairs = headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
    let (headers, body): (HeaderMap, String) = (pairs.collect(), body.to_string());
    meaning(&repository(kind), intent, &Answer { status, headers: &headers, body: body.as_bytes() })
}

/// Checks an example of an answer.
pub(super) fn check_answer(kind: Kind, operation: &str, example: &Value) {
    let contract = Contract::of(kind, operation);
    let problems = problems(&contract.operation["answer"], example);
    assert!(problems.is_empty(), "{kind} {operation}: {problems:?}");
}

/// Returns an example with other values.
pub(super) fn with(example: &Value, other: Value) -> Value {
    match (example, other) {
        (Value::Object(example), Value::Object(other)) => {
            let mut merged = example.clone();
            for (name, value) in other {
                let value = merged.get(&name).map_or_else(|| value.clone(), |old| with(old, value.clone()));
                merged.insert(name, value);
            }
            Value::Object(merged)
        }
        (_, other) => other,
    }
}

/// An operation that a forge describes.
struct Contract {
    operation: Value,
}

impl Contract {
    fn of(kind: Kind, operation: &str) -> Self {
        let text = match kind {
            Kind::Gitea => include_str!("testdata/gitea.json"),
            Kind::Github => include_str!("testdata/github.json"),
            Kind::Gitlab => include_str!("testdata/gitlab.json"),
            Kind::BitbucketCloud => include_str!("testdata/bitbucket-cloud.json"),
            Kind::BitbucketServer => include_str!("testdata/bitbucket-server.json"),
        };
        let document: Value = serde_json::from_str(text).unwrap();
        let operation = document["operations"][operation].clone();
        assert!(operation.is_object(), "there is no such operation");
        Self { operation }
    }

    fn check(&self, repository: &Repository, request: &Request) {
        assert_eq!(self.operation["method"], request.method.as_str());
        let base = repository.api().path().trim_end_matches('/');
        let path: Vec<&str> = request.url.path().strip_prefix(base).unwrap().split('/').collect();
        let template: Vec<&str> = self.operation["path"].as_str().unwrap().split('/').collect();
        let fits = |(t, p): (&&str, &&str)| if t.starts_with('{') { !p.is_empty() } else { t == p };
        assert!(path.len() == template.len() && template.iter().zip(&path).all(fits), "{path:?} is not {template:?}");
        for (name, value) in request.url.query_pairs() {
            let schema = self.operation["query"].get(&*name).unwrap_or_else(|| panic!("there is no parameter {name}"));
            if let Some(allowed) = schema["enum"].as_array() {
                assert!(allowed.iter().any(|a| *a == *value), "{name} cannot be {value}");
            }
        }
        match (&request.body, &self.operation["body"]) {
            (None, Value::Null) => {}
            (Some(body), schema @ Value::Object(_)) => {
                let body: Value = serde_json::from_slice(body).unwrap();
                let mut schema = schema.clone();
                close(&mut schema);
                let problems = problems(&schema, &body);
                assert!(problems.is_empty(), "{problems:?}");
            }
            // Bitbucket Server and its filter against forged requests of browsers need a body.
            other => panic!("a body and its schema: {other:?}"),
        }
    }
}

fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let validator = jsonschema::options().with_draft(Draft::Draft202012).build(schema).unwrap();
    validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path())).collect()
}

/// A forge would ignore a misspelt member.
fn close(schema: &mut Value) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(close);
        schema["additionalProperties"] = json!(false);
    }
}

#[test]
fn conditional_requests_have_the_entity_tag() {
    for kind in Kind::ALL {
        let intent = Intent::Look { number: 7 };
        let found = request(&repository(kind), &intent, Some("W/\"a\"")).unwrap();
        assert!(found.headers.contains(&("if-none-match", "W/\"a\"".to_owned())), "{kind}");
        let comment = request(&repository(kind), &Intent::Comment { number: 7, text: "a" }, Some("W/\"a\"")).unwrap();
        assert!(comment.headers.iter().all(|(name, _)| *name != "if-none-match"), "{kind}");
        assert_eq!(answered(kind, &intent, 304, &[], &Value::Null), Ok(Meaning::Unchanged));
    }
}

#[test]
fn no_request_has_credentials_or_leaves_the_api() {
    let labels = ["promotion".to_owned()];
    let (branch, base) = ("../../x?a#b", "%2e%2e/\u{202e}");
    for kind in Kind::ALL {
        let repository = repository(kind);
        for intent in [
            Intent::Find { branch, base, cursor: super::Cursor::FIRST },
            Intent::Create(super::NewPullRequest { branch, base, title: "t", body: "b", labels: &labels }),
            Intent::Label { number: 1, labels: &labels },
            Intent::Look { number: 1 },
            Intent::Mergeability { number: 1 },
            Intent::Comment { number: 1, text: "t" },
            Intent::Close { number: 1, version: Some(1) },
        ] {
            let Some(found) = request(&repository, &intent, None) else { continue };
            assert!(found.url.as_str().starts_with(repository.api().as_str()), "{}", found.url);
            let is_credential = |name: &str| name.contains("auth") || name.contains("token");
            assert!(found.headers.iter().all(|(name, _)| !is_credential(name)), "{kind}");
            assert_eq!(found.body.is_some(), found.headers.iter().any(|(name, _)| *name == "content-type"), "{kind}");
            assert!(found.headers.iter().filter(|(name, _)| *name == "accept").count() == 1, "{kind}");
        }
    }
}

#[test]
fn excerpts_name_source_and_licence() {
    for text in [
        include_str!("testdata/gitea.json"),
        include_str!("testdata/github.json"),
        include_str!("testdata/gitlab.json"),
        include_str!("testdata/bitbucket-cloud.json"),
        include_str!("testdata/bitbucket-server.json"),
    ] {
        let document: Value = serde_json::from_str(text).unwrap();
        assert!(document["source"].is_string() && document["licence"].is_string());
        assert!(text.len() <= 60 * 1024);
    }
}
