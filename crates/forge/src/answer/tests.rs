use http::{HeaderName, HeaderValue};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::contract::{answered, repository};
use crate::limits::When;
use crate::{Cursor, Kind, NewPullRequest, meaning};

const LOOK: Intent<'static> = Intent::Look { number: 7 };
const FIND: Intent<'static> = Intent::Find { branch: "b", base: "main", cursor: Cursor::FIRST };
const CREATE: Intent<'static> =
    Intent::Create(NewPullRequest { branch: "b", base: "main", title: "t", body: "x", labels: &[] });

fn reason(kind: Kind, intent: &Intent<'_>, status: u16, headers: &[(&'static str, &str)], body: &Value) -> &'static str {
    match answered(kind, intent, status, headers, body) {
        Ok(meaning) => panic!("{meaning:?}"),
        Err(error) => error.reason(),
    }
}

#[test]
fn each_status_code_has_its_error() {
    let nothing = json!({});
    for kind in Kind::ALL {
        for (status, expected) in [
            (401, "CredentialsRejected"),
            (403, "CredentialsRejected"),
            (429, "RateLimited"),
            (301, "RepositoryNotFound"),
            (307, "RepositoryNotFound"),
            (404, "RepositoryNotFound"),
            (400, "Refused"),
            (422, "Refused"),
            (451, "Refused"),
            (500, "ForgeError"),
            (502, "ForgeError"),
            (555, "ForgeError"),
            (408, "ForgeError"),
            (204, "InvalidAnswer"),
            (202, "InvalidAnswer"),
            (200, "InvalidAnswer"),
        ] {
            assert_eq!(reason(kind, &FIND, status, &[], &nothing), expected, "{kind} {status}");
        }
        for intent in [LOOK, Intent::Comment { number: 7, text: "t" }, Intent::Close { number: 7, version: None }] {
            for status in [404, 410] {
                assert_eq!(answered(kind, &intent, status, &[], &nothing), Ok(Meaning::Gone), "{kind} {intent:?}");
            }
        }
        let not_found = reason(kind, &CREATE, 404, &[], &nothing);
        assert!(["BranchNotFound", "RepositoryNotFound"].contains(&not_found), "{kind}");
    }
}

#[test]
fn missing_permissions_are_named() {
    let scope =
        "token does not have at least one of required scope(s), required=[write:repository], token scope=read:repository";
    for (kind, headers, body, expected) in [
        (Kind::Gitea, &[][..], json!({"message": scope, "url": "https://e.com/api/swagger"}), scope),
        (
            Kind::Github,
            &[("x-accepted-github-permissions", "pull_requests=write"), ("x-accepted-oauth-scopes", "repo")],
            json!({"message": "Resource not accessible by personal access token", "status": "403"}),
            "Resource not accessible by personal access token; the request requires the permissions pull_requests=write",
        ),
        (Kind::Github, &[("x-accepted-oauth-scopes", "repo")], json!({}), "the request requires one of the scopes repo"),
        (
            Kind::Gitlab,
            &[],
            json!({"error": "insufficient_scope", "error_description": "Higher privileges.", "scope": "api"}),
            "insufficient_scope; Higher privileges.; scope: api",
        ),
        (
            Kind::BitbucketCloud,
            &[],
            json!({"type": "error", "error": {"message": "Your credentials lack one or more required privilege scopes.", "detail": {"required": ["pullrequest:write"]}}}),
            "Your credentials lack one or more required privilege scopes.",
        ),
        (
            Kind::BitbucketServer,
            &[],
            json!({"errors": [{"context": null, "message": "You are not permitted.", "exceptionName": "com.x.AuthorisationException"}]}),
            "You are not permitted.",
        ),
    ] {
        let error = answered(kind, &CREATE, 403, headers, &body).unwrap_err();
        assert_eq!(error, Error::CredentialsRejected { status: 403, words: expected.into() });
        assert_eq!(error.to_string(), format!("the forge rejects the credentials (HTTP 403): {expected}"));
    }
}

#[test]
fn limits_are_not_taken_for_missing_permissions() {
    let hour = [("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000000")];
    let secondary = json!({"message": "You have exceeded a secondary rate limit. Please wait."});
    for (status, headers, body) in [
        (403, &hour[..], json!({"message": "API rate limit exceeded"})),
        (429, &hour[..], json!({})),
        (403, &[("retry-after", "60")], json!({})),
        (403, &[], secondary),
        (429, &[], Value::Null),
    ] {
        let error = answered(Kind::Github, &LOOK, status, headers, &body).unwrap_err();
        assert!(matches!(error, Error::RateLimited { .. }), "{error:?}");
    }
    let error = answered(Kind::Github, &LOOK, 403, &hour, &json!({})).unwrap_err();
    let Error::RateLimited { limits, .. } = error else { panic!("{error:?}") };
    assert_eq!(limits.reset, Some(When::At(relaybook_api::Time::from_second(1_700_000_000).unwrap())));
    // 401 never is a limit.
    assert_eq!(reason(Kind::Github, &LOOK, 401, &hour, &json!({})), "CredentialsRejected");
}

#[test]
fn the_error_of_a_redirect_names_only_its_origin() {
    for (location, to) in
        [("https://me:pw@forge.example:99/x?y", " to https://forge.example:99"), ("/login", ""), ("mailto:x", "")]
    {
        let error = answered(Kind::Github, &LOOK, 301, &[("location", location)], &json!({})).unwrap_err();
        let words = format!("the answer is a redirect{to}, which is never followed; the repository may have moved");
        assert_eq!(error, Error::RepositoryNotFound { status: 301, words });
    }
}

#[test]
fn messages_of_answers_are_bounded_at_any_depth() {
    let deep = (0..100).fold(json!("a"), |inner, _| json!({"errors": [inner]}));
    let many = json!({"errors": vec![json!({"message": "m", "field": "f", "code": "c"}); 1000]});
    for body in [deep, many, json!([]), json!(1), json!(null), json!({"message": 5}), json!({"message": {"a": {"b": 1}}})] {
        let error = answered(Kind::Gitea, &LOOK, 500, &[], &body).unwrap_err();
        assert!(error.to_string().len() < 1200, "{error}");
    }
}

#[test]
fn an_answer_that_the_api_does_not_give_is_invalid() {
    let headers = HeaderMap::new();
    let large = format!("[{}]", " ".repeat(MAX_ANSWER));
    for kind in Kind::ALL {
        for intent in [LOOK, FIND] {
            for body in [
                "",
                "<html>",
                "null",
                "7",
                "[1]",
                "{}",
                r#"{"values": 1}"#,
                large.as_str(),
                "\u{fffd}",
                &"[".repeat(100_000),
            ] {
                let answer = Answer { status: 200, headers: &headers, body: body.as_bytes() };
                let error = meaning(&repository(kind), &intent, &answer).unwrap_err();
                assert_eq!(error.reason(), "InvalidAnswer", "{kind}");
            }
        }
    }
}

#[test]
fn only_short_entity_tags_are_kept() {
    for (tag, expected) in [("\"a\"", true), ("W/\"a\"", true), ("", false), (&"a".repeat(257), false)] {
        let headers: HeaderMap =
            [(HeaderName::from_static("etag"), HeaderValue::from_str(tag).unwrap())].into_iter().collect();
        assert_eq!(etag(&Answer { status: 200, headers: &headers, body: b"" }).is_some(), expected, "{tag}");
    }
}

proptest! {
    #[test]
    fn no_answer_panics(status in 100u16..600, body in ".{0,200}", header in "[ -~]{0,40}", forge in 0usize..5) {
        let names = ["link", "etag", "retry-after", "x-ratelimit-reset", "x-ratelimit-limit", "x-total-count"];
        let value = HeaderValue::from_str(&header).unwrap();
        let headers: HeaderMap = names.map(|name| (HeaderName::from_static(name), value.clone())).into_iter().collect();
        let answer = Answer { status, headers: &headers, body: body.as_bytes() };
        for intent in [LOOK, FIND, CREATE] {
            if let Err(error) = meaning(&repository(Kind::ALL[forge]), &intent, &answer) {
                prop_assert!(!error.reason().is_empty() && !error.to_string().contains('\n'));
            }
        }
    }
}
