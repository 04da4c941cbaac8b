use serde_json::{Value, json};

use super::*;
use crate::contract::{answered, check_answer, requested, with};
use crate::{Cursor, Kind, NewPullRequest};

const GITEA: Kind = Kind::Gitea;
const COMMIT: &str = "1f2e3d4c5b6a79881f2e3d4c5b6a79881f2e3d4c";
const FIND: Intent<'static> = Intent::Find { branch: "relaybook/prod-1", base: "main", cursor: Cursor::FIRST };

fn pull(other: Value) -> Value {
    let pull = json!({
        "id": 90, "number": 7, "state": "open", "title": "Promote", "body": "a\r\n\r\n<!-- relaybook n/p u -->",
        "html_url": "https://gitea.example.com/acme/web/pulls/7", "draft": false, "merged": false, "mergeable": true, "merge_base": COMMIT,
        "head": {"label": "relaybook/prod-1", "ref": "relaybook/prod-1", "sha": COMMIT, "repo_id": 3},
        "base": {"label": "main", "ref": "main", "sha": COMMIT, "repo_id": 3},
    });
    let pull = with(&pull, other);
    check_answer(GITEA, "look", &pull);
    pull
}

fn seen(other: Value) -> PullRequest {
    match answered(GITEA, &Intent::Look { number: 7 }, 200, &[], &pull(other)) {
        Ok(Meaning::Seen(pull)) => pull,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_operation_sends_the_documented_request() {
    let labels = ["promotion".to_owned()];
    let new = NewPullRequest { branch: "relaybook/prod-1", base: "main", title: "T", body: "B", labels: &labels };
    for (operation, intent, expected) in [
        ("find", FIND, "GET /repos/acme/web/pulls?state=all&base_branch=main&page=1&limit=30"),
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
        assert_eq!(requested(GITEA, operation, &intent), expected);
    }
    assert!(request(&crate::contract::repository(GITEA), &Intent::Mergeability { number: 7 }).is_none());
}

#[test]
fn the_states_of_a_pull_request_are_recognized() {
    let expected = PullRequest {
        number: 7,
        url: Some("https://gitea.example.com/acme/web/pulls/7".into()),
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
    for (what, other, found) in [
        (
            "a conflict or a check",
            json!({"mergeable": false}),
            PullRequest { state: State::Open, conflict: None, ..expected.clone() },
        ),
        ("a draft", json!({"mergeable": false, "draft": true}), PullRequest { state: State::Open, ..expected.clone() }),
        (
            "merged, and the branch deleted",
            json!({"state": "closed", "merged": true, "merge_commit_sha": COMMIT, "head": {"ref": "refs/pull/7/head"}}),
            PullRequest { state: State::Merged, merge_commit: Some(COMMIT.into()), ..expected.clone() },
        ),
        ("closed", json!({"state": "closed"}), PullRequest { state: State::Abandoned, ..expected.clone() }),
        ("a page elsewhere", json!({"html_url": "https://evil.example/7"}), PullRequest { url: None, ..expected.clone() }),
        ("of a fork", json!({"head": {"repo_id": 4}}), PullRequest { from_fork: true, ..expected.clone() }),
        ("of a deleted fork", json!({"head": {"repo_id": -1}}), PullRequest { from_fork: true, ..expected.clone() }),
    ] {
        assert_eq!(seen(other), found, "{what}");
    }
}

#[test]
fn the_own_pull_request_is_found_among_others_on_two_pages() {
    let others: Vec<Value> = (0..50)
        .map(|n| match n % 4 {
            0 => pull(json!({"number": 100 + n, "head": {"ref": "other", "label": "other"}})),
            1 => pull(json!({"number": 100 + n, "base": {"ref": "dev", "label": "dev"}})),
            2 => pull(json!({"number": 100 + n, "head": {"repo_id": 9}})),
            _ => pull(json!({"number": 100 + n, "head": {"ref": "relaybook/prod-1-2", "label": "relaybook/prod-1-2"}})),
        })
        .collect();
    let ours =
        pull(json!({"state": "closed", "merged": true, "merge_commit_sha": COMMIT, "head": {"ref": "refs/pull/7/head"}}));
    let all: Vec<Value> = others.into_iter().chain([ours]).collect();
    check_answer(GITEA, "find", &Value::Array(all.clone()));
    let (mut cursor, mut found, mut requests) = (Cursor::FIRST, Vec::new(), Vec::new());
    loop {
        let intent = Intent::Find { branch: "relaybook/prod-1", base: "main", cursor };
        requests.push(requested(GITEA, "find", &intent));
        let start = (requests.len() - 1) * 30;
        let page = &all[start..all.len().min(start + 30)];
        let headers =
            [("x-total-count", "51"), ("link", if start == 0 { r#"<x>; rel="next""# } else { r#"<x>; rel="prev""# })];
        let Ok(Meaning::Page { found: some, next }) = answered(GITEA, &intent, 200, &headers, &json!(page)) else {
            panic!("no page")
        };
        found.extend(some);
        let Some(next) = next else { break };
        cursor = next;
    }
    assert_eq!(found.iter().map(|pull| (pull.number, pull.state)).collect::<Vec<_>>(), [(7, State::Merged)]);
    assert_eq!(requests.len(), 2);
    assert!(requests[1].ends_with("page=2&limit=30"), "{}", requests[1]);
}

#[test]
fn each_answer_has_its_meaning_or_error() {
    let new = Intent::Create(NewPullRequest { branch: "b", base: "main", title: "T", body: "B", labels: &[] });
    let close = Intent::Close { number: 7, version: None };
    let exists = "pull request already exists for these targets [id: 1, issue_id: 7, head_repo_id: 3, base_repo_id: 3]";
    let closed = pull(json!({"state": "closed"}));
    assert!(matches!(answered(GITEA, &new, 201, &[], &pull(json!({}))), Ok(Meaning::Created(_))));
    assert!(matches!(
        answered(GITEA, &close, 201, &[], &closed),
        Ok(Meaning::Seen(PullRequest { state: State::Abandoned, .. }))
    ));
    let done = Ok(Meaning::Done);
    for (intent, status, message, expected) in [
        (new, 409, exists, Ok(Meaning::Exists)),
        (new, 404, "The target couldn't be found.", Err("BranchNotFound")),
        (new, 422, "Invalid PullRequest: There are no changes between the head and the base", Err("Refused")),
        (new, 423, "repository is archived", Err("Refused")),
        (new, 403, "user should have permission to write to this repository", Err("CredentialsRejected")),
        (close, 412, "cannot change state of this pull request, it was already merged", Ok(Meaning::Changed)),
        (close, 409, "issue is already changed", Ok(Meaning::Changed)),
        (Intent::Comment { number: 7, text: "C" }, 201, "", done.clone()),
        (Intent::Label { number: 7, labels: &[] }, 200, "", done),
        (Intent::Look { number: 7 }, 404, "", Ok(Meaning::Gone)),
    ] {
        let found = answered(GITEA, &intent, status, &[], &json!({"message": message}));
        assert_eq!(found.map_err(|error| error.reason()), expected, "{intent:?} {status}");
    }
}
