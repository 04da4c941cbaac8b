use serde_json::{Value, json};

use super::*;
use crate::contract::{answered, check_answer, requested, with};
use crate::{Cursor, Kind, NewPullRequest};

const GITHUB: Kind = Kind::Github;
const COMMIT: &str = "1f2e3d4c5b6a79881f2e3d4c5b6a79881f2e3d4c";
const FIND: Intent<'static> = Intent::Find { branch: "relaybook/prod-1", base: "main", cursor: Cursor::FIRST };

fn pull(other: Value) -> Value {
    let side = |branch: &str| json!({"label": format!("acme:{branch}"), "ref": branch, "sha": COMMIT, "repo": {"id": 3, "full_name": "acme/web"}});
    let pull = json!({
        "number": 7, "state": "open", "body": "a\n<!-- relaybook n/p u -->", "html_url": "https://github.com/acme/web/pull/7", "draft": false,
        "merged": false, "merged_at": null, "merge_commit_sha": "00000004c5b6a79881f2e3d4c5b6a79881f2e3d4", "mergeable": true, "mergeable_state": "clean",
        "head": side("relaybook/prod-1"), "base": side("main"),
    });
    with(&pull, other)
}

fn seen(other: Value) -> PullRequest {
    let pull = pull(other);
    // The schema does not know that the repository of a fork can be deleted, although the forge answers so.
    if !pull["head"]["repo"].is_null() {
        check_answer(GITHUB, "look", &pull);
    }
    match answered(GITHUB, &Intent::Look { number: 7 }, 200, &[], &pull) {
        Ok(Meaning::Seen(pull)) => pull,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_operation_sends_the_documented_request() {
    let labels = ["promotion".to_owned()];
    let new = NewPullRequest { branch: "relaybook/prod-1", base: "main", title: "T", body: "B", labels: &labels };
    for (operation, intent, expected) in [
        ("find", FIND, "GET /repos/acme/web/pulls?state=all&head=acme%3Arelaybook%2Fprod-1&base=main&page=1&per_page=30"),
        (
            "create",
            Intent::Create(new),
            r#"POST /repos/acme/web/pulls {"base":"main","body":"B","head":"relaybook/prod-1","title":"T"}"#,
        ),
        (
            "label",
            Intent::Label { number: 7, labels: &labels },
            r#"POST /repos/acme/web/issues/7/labels {"labels":["promotion"]}"#,
        ),
        ("look", Intent::Look { number: 7 }, "GET /repos/acme/web/pulls/7"),
        ("comment", Intent::Comment { number: 7, text: "C" }, r#"POST /repos/acme/web/issues/7/comments {"body":"C"}"#),
        ("close", Intent::Close { number: 7, version: None }, r#"PATCH /repos/acme/web/pulls/7 {"state":"closed"}"#),
    ] {
        assert_eq!(requested(GITHUB, operation, &intent), expected);
    }
    let look = request(&crate::contract::repository(GITHUB), &Intent::Look { number: 7 }).unwrap();
    assert!(look.headers.contains(&("accept", "application/vnd.github+json".into())));
    assert!(look.headers.contains(&("x-github-api-version", VERSION.into())));
}

#[test]
fn the_states_of_a_pull_request_are_recognized() {
    let expected = PullRequest {
        number: 7,
        url: Some("https://github.com/acme/web/pull/7".into()),
        branch: "relaybook/prod-1".into(),
        base: "main".into(),
        from_fork: false,
        head: Some(COMMIT.into()),
        state: State::Mergeable,
        conflict: Some(false),
        merge_commit: None,
        last_line: "<!-- relaybook n/p u -->".into(),
        version: None,
    };
    assert_eq!(seen(json!({})), expected);
    let open = PullRequest { state: State::Open, ..expected.clone() };
    for (what, other, found) in [
        (
            "not computed yet",
            json!({"mergeable": null, "mergeable_state": "unknown"}),
            PullRequest { conflict: None, ..open.clone() },
        ),
        (
            "a conflict",
            json!({"mergeable": false, "mergeable_state": "dirty"}),
            PullRequest { conflict: Some(true), ..open.clone() },
        ),
        ("a review is missing", json!({"mergeable_state": "blocked"}), open.clone()),
        ("behind the base branch", json!({"mergeable_state": "behind"}), open.clone()),
        ("a check that is not required fails", json!({"mergeable_state": "unstable"}), expected.clone()),
        (
            "merged",
            json!({"state": "closed", "merged": true, "merged_at": "2026-01-31T12:00:00Z", "merge_commit_sha": COMMIT}),
            PullRequest { state: State::Merged, merge_commit: Some(COMMIT.into()), ..expected.clone() },
        ),
        ("closed", json!({"state": "closed"}), PullRequest { state: State::Abandoned, ..expected.clone() }),
        ("without a description", json!({"body": null}), PullRequest { last_line: String::new(), ..expected.clone() }),
        ("of a fork", json!({"head": {"repo": {"id": 4}}}), PullRequest { from_fork: true, ..expected.clone() }),
        ("of a deleted fork", json!({"head": {"repo": null}}), PullRequest { from_fork: true, ..expected.clone() }),
    ] {
        assert_eq!(seen(other), found, "{what}");
    }
}

#[test]
fn a_merged_pull_request_is_recognized_in_a_list() {
    let mut listed = pull(json!({"state": "closed", "merged_at": "2026-01-31T12:00:00Z", "merge_commit_sha": COMMIT}));
    for absent in ["merged", "mergeable", "mergeable_state"] {
        listed.as_object_mut().unwrap().remove(absent);
    }
    let fork = with(&listed, json!({"number": 8, "head": {"repo": {"id": 4}}}));
    let page = json!([fork, listed]);
    check_answer(GITHUB, "find", &page);
    let Ok(Meaning::Page { found, next: None }) = answered(GITHUB, &FIND, 200, &[("link", r#"<x>; rel="first""#)], &page)
    else {
        panic!("no last page")
    };
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].number, found[0].state, found[0].merge_commit.as_deref()), (7, State::Merged, Some(COMMIT)));
    assert!(found[0].is_of("u") && found[0].head.as_deref() == Some(COMMIT));
}

#[test]
fn each_answer_has_its_meaning_or_error() {
    let new = Intent::Create(NewPullRequest { branch: "b", base: "main", title: "T", body: "B", labels: &[] });
    let close = Intent::Close { number: 7, version: None };
    assert!(matches!(answered(GITHUB, &new, 201, &[], &pull(json!({}))), Ok(Meaning::Created(_))));
    let closed = pull(json!({"state": "closed"}));
    assert!(matches!(
        answered(GITHUB, &close, 200, &[], &closed),
        Ok(Meaning::Seen(PullRequest { state: State::Abandoned, .. }))
    ));
    let failed = |errors: Value| json!({"message": "Validation Failed", "errors": errors, "documentation_url": "https://docs.github.com"});
    let exists = failed(
        json!([{"resource": "PullRequest", "code": "custom", "message": "A pull request already exists for acme:b."}]),
    );
    let no_base = failed(json!([{"resource": "PullRequest", "field": "base", "code": "invalid"}]));
    let no_commits =
        failed(json!([{"resource": "PullRequest", "code": "custom", "message": "No commits between main and b"}]));
    for (intent, status, body, expected) in [
        (new, 422, exists, Ok(Meaning::Exists)),
        (new, 422, no_base, Err("BranchNotFound")),
        (new, 422, no_commits.clone(), Err("Refused")),
        (new, 404, json!({"message": "Not Found"}), Err("RepositoryNotFound")),
        (new, 403, json!({"message": "Resource not accessible by personal access token"}), Err("CredentialsRejected")),
        (close, 422, failed(json!([])), Err("Refused")),
        (Intent::Comment { number: 7, text: "C" }, 201, json!({"id": 1}), Ok(Meaning::Done)),
        (Intent::Label { number: 7, labels: &[] }, 200, json!([{"name": "promotion"}]), Ok(Meaning::Done)),
        (Intent::Look { number: 7 }, 404, json!({}), Ok(Meaning::Gone)),
    ] {
        let found = answered(GITHUB, &intent, status, &[], &body);
        assert_eq!(found.map_err(|error| error.reason()), expected, "{intent:?} {status}");
    }
    let error = answered(GITHUB, &new, 422, &[], &no_commits).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the forge refuses the request (HTTP 422): Validation Failed; No commits between main and b"
    );
}
