use serde_json::{Value, json};

use super::*;
use crate::contract::{answered, check_answer, requested, with};
use crate::{Cursor, Kind, NewPullRequest};

const GITLAB: Kind = Kind::Gitlab;
const COMMIT: &str = "1f2e3d4c5b6a79881f2e3d4c5b6a79881f2e3d4c";
const OTHER: &str = "00000d4c5b6a79881f2e3d4c5b6a79881f2e3d4c";
const FIND: Intent<'static> = Intent::Find { branch: "relaybook/prod-1", base: "main", cursor: Cursor::FIRST };

fn merge_request(other: Value) -> Value {
    let one = json!({
        "id": 900, "iid": 7, "project_id": 3, "title": "Promote", "description": "a\n\n<!-- relaybook n/p u -->", "state": "opened",
        "web_url": "https://gitlab.com/acme/team/web/-/merge_requests/7", "source_branch": "relaybook/prod-1", "target_branch": "main",
        "source_project_id": 3, "target_project_id": 3, "draft": false, "sha": COMMIT, "merge_commit_sha": null, "squash_commit_sha": null,
        "merge_status": "can_be_merged", "detailed_merge_status": "mergeable", "has_conflicts": false,
    });
    with(&one, other)
}

fn seen(other: Value) -> PullRequest {
    let one = merge_request(other);
    // The schema does not know that a project can be deleted.
    if !one["source_project_id"].is_null() {
        check_answer(GITLAB, "look", &one);
    }
    match answered(GITLAB, &Intent::Look { number: 7 }, 200, &[], &one) {
        Ok(Meaning::Seen(pull)) => pull,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_operation_sends_the_documented_request() {
    let labels = ["promotion".to_owned(), "team a".to_owned()];
    let new = NewPullRequest { branch: "relaybook/prod-1", base: "main", title: "T", body: "B", labels: &labels };
    let at = "/projects/acme%2Fteam%2Fweb/merge_requests";
    for (operation, intent, expected) in [
        ("find", FIND, format!("GET {at}?state=all&source_branch=relaybook%2Fprod-1&target_branch=main&page=1&per_page=30")),
        (
            "create",
            Intent::Create(new),
            format!(
                r#"POST {at} {{"description":"B","labels":"promotion,team a","source_branch":"relaybook/prod-1","target_branch":"main","title":"T"}}"#
            ),
        ),
        (
            "create",
            Intent::Create(NewPullRequest { labels: &[], ..new }),
            format!(
                r#"POST {at} {{"description":"B","source_branch":"relaybook/prod-1","target_branch":"main","title":"T"}}"#
            ),
        ),
        ("look", Intent::Look { number: 7 }, format!("GET {at}/7")),
        ("comment", Intent::Comment { number: 7, text: "C" }, format!(r#"POST {at}/7/notes {{"body":"C"}}"#)),
        ("close", Intent::Close { number: 7, version: None }, format!(r#"PUT {at}/7 {{"state_event":"close"}}"#)),
    ] {
        assert_eq!(requested(GITLAB, operation, &intent), expected);
    }
    let repository = crate::contract::repository(GITLAB);
    assert!(request(&repository, &Intent::Label { number: 7, labels: &labels }).is_none());
    assert!(request(&repository, &Intent::Mergeability { number: 7 }).is_none());
}

#[test]
fn the_states_of_a_merge_request_are_recognized() {
    let expected = PullRequest {
        number: 7,
        url: Some("https://gitlab.com/acme/team/web/-/merge_requests/7".into()),
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
    let merged = |commit: &str| PullRequest { state: State::Merged, merge_commit: Some(commit.into()), ..expected.clone() };
    for (what, other, found) in [
        (
            "not checked yet",
            json!({"detailed_merge_status": "unchecked", "merge_status": "unchecked"}),
            PullRequest { conflict: None, ..open.clone() },
        ),
        (
            "a conflict",
            json!({"detailed_merge_status": "conflict", "merge_status": "cannot_be_merged", "has_conflicts": true}),
            PullRequest { conflict: Some(true), ..open.clone() },
        ),
        ("a review is missing", json!({"detailed_merge_status": "not_approved"}), open.clone()),
        ("it is being merged", json!({"state": "locked", "detailed_merge_status": "not_open"}), open),
        ("merged", json!({"state": "merged", "merge_commit_sha": OTHER, "squash_commit_sha": COMMIT}), merged(OTHER)),
        ("squashed", json!({"state": "merged", "squash_commit_sha": OTHER}), merged(OTHER)),
        ("fast-forward", json!({"state": "merged"}), merged(COMMIT)),
        ("closed", json!({"state": "closed"}), PullRequest { state: State::Abandoned, ..expected.clone() }),
        ("of a fork", json!({"source_project_id": 4}), PullRequest { from_fork: true, ..expected.clone() }),
        ("of a deleted fork", json!({"source_project_id": null}), PullRequest { from_fork: true, ..expected.clone() }),
    ] {
        assert_eq!(seen(other), found, "{what}");
    }
}

#[test]
fn the_state_of_a_merge_request_is_recognized_in_versions_before_15_6() {
    let mut old = merge_request(json!({}));
    old.as_object_mut().unwrap().remove("detailed_merge_status");
    let Ok(Meaning::Seen(pull)) = answered(GITLAB, &Intent::Look { number: 7 }, 200, &[], &old) else { panic!("not seen") };
    assert_eq!((pull.state, pull.conflict), (State::Mergeable, Some(false)));
}

#[test]
fn each_answer_has_its_meaning_or_error() {
    let new = Intent::Create(NewPullRequest { branch: "b", base: "main", title: "T", body: "B", labels: &[] });
    let close = Intent::Close { number: 7, version: None };
    assert!(matches!(answered(GITLAB, &new, 201, &[], &merge_request(json!({}))), Ok(Meaning::Created(_))));
    let closed = merge_request(json!({"state": "closed"}));
    assert!(matches!(
        answered(GITLAB, &close, 200, &[], &closed),
        Ok(Meaning::Seen(PullRequest { state: State::Abandoned, .. }))
    ));
    for (intent, status, body, expected) in [
        (
            new,
            409,
            json!({"message": ["Another open merge request already exists for this source branch: !5"]}),
            Ok(Meaning::Exists),
        ),
        (new, 404, json!({"message": "404 Project Not Found"}), Err("RepositoryNotFound")),
        (new, 400, json!({"message": ["Source branch \"b\" does not exist"]}), Err("BranchNotFound")),
        (new, 400, json!({"message": {"target_branch": ["can't be blank"]}}), Err("Refused")),
        (new, 401, json!({"message": "401 Unauthorized"}), Err("CredentialsRejected")),
        (close, 409, json!({"message": "409 Conflict"}), Ok(Meaning::Changed)),
        (Intent::Comment { number: 7, text: "C" }, 201, json!({"id": 1, "body": "C"}), Ok(Meaning::Done)),
        (Intent::Look { number: 7 }, 404, json!({"message": "404 Not found"}), Ok(Meaning::Gone)),
    ] {
        let found = answered(GITLAB, &intent, status, &[], &body);
        assert_eq!(found.map_err(|error| error.reason()), expected, "{intent:?} {status}");
    }
    let error = answered(GITLAB, &new, 400, &[], &json!({"message": {"title": ["is too long"]}})).unwrap_err();
    assert_eq!(error.to_string(), "the forge refuses the request (HTTP 400): title: is too long");
}

#[test]
fn merge_requests_of_other_branches_and_forks_are_left_out() {
    let page = json!([
        merge_request(json!({"iid": 1, "source_project_id": 4})),
        merge_request(json!({"iid": 2, "target_branch": "dev"})),
        merge_request(json!({"iid": 3, "source_branch": "relaybook/prod-1-2"})),
        merge_request(json!({"state": "closed"})),
    ]);
    check_answer(GITLAB, "find", &page);
    let headers = [("link", r#"<x>; rel="next""#), ("x-total", "40")];
    let Ok(Meaning::Page { found, next: Some(next) }) = answered(GITLAB, &FIND, 200, &headers, &page) else {
        panic!("no page")
    };
    assert_eq!(found.iter().map(|pull| pull.number).collect::<Vec<_>>(), [7]);
    let second = Intent::Find { branch: "b", base: "main", cursor: next };
    assert!(requested(GITLAB, "find", &second).contains("page=2"));
}
