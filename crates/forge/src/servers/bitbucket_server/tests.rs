use serde_json::{Value, json};

use super::*;
use crate::Kind;
use crate::contract::{answered, check_answer, requested, with};

const SERVER: Kind = Kind::BitbucketServer;
const COMMIT: &str = "1f2e3d4c5b6a79881f2e3d4c5b6a79881f2e3d4c";
const FIND: Intent<'static> = Intent::Find { branch: "relaybook/prod-1", base: "main", cursor: Cursor::FIRST };

fn pull(other: Value) -> Value {
    let side = |branch: &str| {
        let repository = json!({"id": 3, "slug": "web", "project": {"key": "ACME"}});
        json!({"id": format!("refs/heads/{branch}"), "displayId": branch, "latestCommit": COMMIT, "type": "BRANCH", "repository": repository})
    };
    let pull = json!({
        "id": 7, "version": 4, "title": "Promote", "description": "a\n<!-- relaybook n/p u -->", "state": "OPEN", "open": true, "closed": false,
        "fromRef": side("relaybook/prod-1"), "toRef": side("main"),
        "links": {"self": [{"href": "https://bitbucket.example.com/projects/ACME/repos/web/pull-requests/7"}]},
    });
    let pull = with(&pull, other);
    check_answer(SERVER, "look", &pull);
    pull
}

fn seen(other: Value) -> PullRequest {
    match answered(SERVER, &Intent::Look { number: 7 }, 200, &[], &pull(other)) {
        Ok(Meaning::Seen(pull)) => pull,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_operation_sends_the_documented_request() {
    let new = NewPullRequest { branch: "relaybook/prod-1", base: "main", title: "T", body: "B", labels: &[] };
    let at = "/projects/ACME/repos/web/pull-requests";
    for (operation, intent, expected) in [
        (
            "find",
            FIND,
            format!("GET {at}?state=ALL&direction=OUTGOING&at=refs%2Fheads%2Frelaybook%2Fprod-1&start=0&limit=30"),
        ),
        ("look", Intent::Look { number: 7 }, format!("GET {at}/7")),
        ("mergeability", Intent::Mergeability { number: 7 }, format!("GET {at}/7/merge")),
        ("comment", Intent::Comment { number: 7, text: "C" }, format!(r#"POST {at}/7/comments {{"text":"C"}}"#)),
        ("close", Intent::Close { number: 7, version: Some(4) }, format!("POST {at}/7/decline?version=4 {{}}")),
    ] {
        assert_eq!(requested(SERVER, operation, &intent), expected);
    }
    let created = requested(SERVER, "create", &Intent::Create(new));
    let body: Value = serde_json::from_str(created.strip_prefix(&format!("POST {at} ")).unwrap()).unwrap();
    let repository = json!({"slug": "web", "project": {"key": "ACME"}});
    let expected = json!({
        "title": "T", "description": "B", "fromRef": {"id": "refs/heads/relaybook/prod-1", "repository": repository},
        "toRef": {"id": "refs/heads/main", "repository": repository},
    });
    assert_eq!(body, expected);
}

#[test]
fn the_states_of_a_pull_request_are_recognized() {
    let expected = PullRequest {
        number: 7,
        url: Some("https://bitbucket.example.com/projects/ACME/repos/web/pull-requests/7".into()),
        branch: "relaybook/prod-1".into(),
        base: "main".into(),
        from_fork: false,
        head: Some(COMMIT.into()),
        state: State::Open,
        conflict: None,
        merge_commit: None,
        last_line: "<!-- relaybook n/p u -->".into(),
        version: Some(4),
    };
    assert_eq!(seen(json!({})), expected);
    for (what, other, found) in [
        (
            "merged",
            json!({"state": "MERGED", "properties": {"mergeCommit": {"id": COMMIT, "displayId": "1f2e3d4"}}}),
            PullRequest { state: State::Merged, merge_commit: Some(COMMIT.into()), ..expected.clone() },
        ),
        ("declined", json!({"state": "DECLINED"}), PullRequest { state: State::Abandoned, ..expected.clone() }),
        ("of a fork", json!({"fromRef": {"repository": {"id": 4}}}), PullRequest { from_fork: true, ..expected.clone() }),
        (
            "a page elsewhere",
            json!({"links": {"self": [{"href": "https://evil.example/7"}]}}),
            PullRequest { url: None, ..expected.clone() },
        ),
        ("without a page", json!({"links": {"self": []}}), PullRequest { url: None, ..expected.clone() }),
    ] {
        assert_eq!(seen(other), found, "{what}");
    }
}

#[test]
fn a_list_continues_at_the_next_start_while_it_grows() {
    let others = [
        pull(json!({"id": 8, "toRef": {"id": "refs/heads/dev"}})),
        pull(json!({"id": 9, "fromRef": {"repository": {"id": 4}}})),
    ];
    let first = json!({"values": others, "isLastPage": false, "start": 0, "size": 2, "limit": 2, "nextPageStart": 5});
    check_answer(SERVER, "find", &first);
    let Ok(Meaning::Page { found, next: Some(next) }) = answered(SERVER, &FIND, 200, &[], &first) else { panic!("no page") };
    assert_eq!(found, []);
    let second = Intent::Find { branch: "relaybook/prod-1", base: "main", cursor: next };
    assert!(requested(SERVER, "find", &second).contains("&start=5&"));
    let last =
        json!({"values": [pull(json!({}))], "isLastPage": true, "start": 5, "size": 1, "limit": 30, "nextPageStart": null});
    check_answer(SERVER, "find", &last);
    // A start that does not grow ends the search as well.
    for page in [last.clone(), with(&last, json!({"isLastPage": false, "nextPageStart": 5}))] {
        let Ok(Meaning::Page { found, next: None }) = answered(SERVER, &second, 200, &[], &page) else {
            panic!("no last page")
        };
        assert_eq!(found.iter().map(|pull| pull.number).collect::<Vec<_>>(), [7]);
    }
}

#[test]
fn conflicts_and_vetoes_make_a_pull_request_unmergeable() {
    let intent = Intent::Mergeability { number: 7 };
    for (body, conflict, mergeable) in [
        (json!({"canMerge": true, "conflicted": false, "outcome": "CLEAN", "vetoes": []}), Some(false), true),
        (
            json!({"canMerge": false, "conflicted": false, "outcome": "CLEAN", "vetoes": [{"summaryMessage": "a review"}]}),
            Some(false),
            false,
        ),
        (json!({"conflicted": false, "outcome": "CLEAN", "vetoes": []}), Some(false), true),
        (json!({"canMerge": false, "conflicted": true, "outcome": "CONFLICTED", "vetoes": []}), Some(true), false),
        (json!({"conflicted": false, "outcome": "UNKNOWN"}), None, false),
    ] {
        check_answer(SERVER, "mergeability", &body);
        assert_eq!(answered(SERVER, &intent, 200, &[], &body), Ok(Meaning::Mergeability { conflict, mergeable }), "{body}");
    }
    assert_eq!(answered(SERVER, &intent, 409, &[], &json!({"errors": []})), Ok(Meaning::Changed));
}

#[test]
fn each_answer_has_its_meaning_or_error() {
    let new = Intent::Create(NewPullRequest { branch: "b", base: "main", title: "T", body: "B", labels: &[] });
    let close = Intent::Close { number: 7, version: Some(3) };
    assert!(matches!(answered(SERVER, &new, 201, &[], &pull(json!({}))), Ok(Meaning::Created(_))));
    let declined = pull(json!({"state": "DECLINED"}));
    assert!(matches!(
        answered(SERVER, &close, 200, &[], &declined),
        Ok(Meaning::Seen(PullRequest { state: State::Abandoned, .. }))
    ));
    let package = "com.atlassian.bitbucket.pull";
    for (intent, status, message, exception, expected) in [
        (new, 409, "Only one pull request may be open", "DuplicatePullRequestException", Ok(Meaning::Exists)),
        (new, 409, "main is already up-to-date with branch b", "EmptyPullRequestException", Err("Refused")),
        (new, 404, "Repository \"b\" of project does not exist", "NoSuchBranchException", Err("BranchNotFound")),
        (new, 401, "You are not permitted", "AuthorisationException", Err("CredentialsRejected")),
        (close, 409, "The version is not current", "PullRequestOutOfDateException", Ok(Meaning::Changed)),
        (Intent::Comment { number: 7, text: "C" }, 201, "", "", Ok(Meaning::Done)),
        (Intent::Look { number: 7 }, 404, "", "NoSuchPullRequestException", Ok(Meaning::Gone)),
        (FIND, 404, "Repository ACME/web does not exist.", "NoSuchRepositoryException", Err("RepositoryNotFound")),
    ] {
        let body =
            json!({"errors": [{"context": null, "message": message, "exceptionName": format!("{package}.{exception}")}]});
        let found = answered(SERVER, &intent, status, &[], &body);
        assert_eq!(found.map_err(|error| error.reason()), expected, "{intent:?} {status} {exception}");
    }
}
