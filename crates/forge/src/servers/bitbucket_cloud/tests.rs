use serde_json::{Value, json};

use super::*;
use crate::contract::{answered, check_answer, requested, with};
use crate::{Kind, NewPullRequest};

const CLOUD: Kind = Kind::BitbucketCloud;
const FIND: Intent<'static> = Intent::Find { branch: "relaybook/prod-1", base: "main", cursor: Cursor::FIRST };

fn pull(other: Value) -> Value {
    let side = |branch: &str| json!({"branch": {"name": branch}, "commit": {"hash": "1f2e3d4c5b6a"}, "repository": {"uuid": "{3}", "full_name": "acme/web"}});
    let pull = json!({
        "type": "pullrequest", "id": 7, "state": "OPEN", "title": "Promote", "description": "a\n<!-- relaybook n/p u -->",
        "summary": {"raw": "a\n<!-- relaybook n/p u -->"}, "links": {"html": {"href": "https://bitbucket.org/acme/web/pull-requests/7"}},
        "source": side("relaybook/prod-1"), "destination": side("main"),
    });
    with(&pull, other)
}

fn seen(other: Value) -> PullRequest {
    let pull = pull(other);
    // The schema does not know that a repository can be deleted.
    if !pull["source"]["repository"].is_null() {
        check_answer(CLOUD, "look", &pull);
    }
    match answered(CLOUD, &Intent::Look { number: 7 }, 200, &[], &pull) {
        Ok(Meaning::Seen(pull)) => pull,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_operation_sends_the_documented_request() {
    let new = NewPullRequest { branch: "relaybook/prod-1", base: "main", title: "T", body: "B", labels: &[] };
    let at = "/repositories/acme/web/pullrequests";
    for (operation, intent, expected) in [
        (
            "find",
            FIND,
            format!(
                "GET {at}?state=OPEN&state=MERGED&state=DECLINED&state=SUPERSEDED&q=source.branch.name+%3D+%22relaybook%2Fprod-1%22+AND+\
                 destination.branch.name+%3D+%22main%22&page=1&pagelen=30"
            ),
        ),
        (
            "create",
            Intent::Create(new),
            format!(
                "POST {at} {}",
                r#"{"description":"B","destination":{"branch":{"name":"main"}},"source":{"branch":{"name":"relaybook/prod-1"}},"title":"T"}"#
            ),
        ),
        ("look", Intent::Look { number: 7 }, format!("GET {at}/7")),
        (
            "comment",
            Intent::Comment { number: 7, text: "C" },
            format!(r#"POST {at}/7/comments {{"content":{{"raw":"C"}}}}"#),
        ),
        ("close", Intent::Close { number: 7, version: None }, format!("POST {at}/7/decline")),
    ] {
        assert_eq!(requested(CLOUD, operation, &intent), expected);
    }
    let quoted = Intent::Find { branch: r#"a" OR "b\"#, base: "main", cursor: Cursor::FIRST };
    let filter = r#"source.branch.name = "a\" OR \"b\\" AND destination.branch.name = "main""#;
    let found = request(&crate::contract::repository(CLOUD), &quoted).unwrap();
    assert!(found.url.query_pairs().any(|(name, value)| name == "q" && value == filter), "{}", found.url);
}

#[test]
fn the_states_of_a_pull_request_are_recognized() {
    let expected = PullRequest {
        number: 7,
        url: Some("https://bitbucket.org/acme/web/pull-requests/7".into()),
        branch: "relaybook/prod-1".into(),
        base: "main".into(),
        from_fork: false,
        head: Some("1f2e3d4c5b6a".into()),
        state: State::Open,
        conflict: None,
        merge_commit: None,
        last_line: "<!-- relaybook n/p u -->".into(),
        version: None,
    };
    assert_eq!(seen(json!({})), expected);
    for (what, other, found) in [
        (
            "merged",
            json!({"state": "MERGED", "merge_commit": {"hash": "9a8b7c6d5e4f"}}),
            PullRequest { state: State::Merged, merge_commit: Some("9a8b7c6d5e4f".into()), ..expected.clone() },
        ),
        ("declined", json!({"state": "DECLINED"}), PullRequest { state: State::Abandoned, ..expected.clone() }),
        ("superseded", json!({"state": "SUPERSEDED"}), PullRequest { state: State::Abandoned, ..expected.clone() }),
        ("only a summary", json!({"description": null}), expected.clone()),
        (
            "of a fork",
            json!({"source": {"repository": {"uuid": "{4}"}}}),
            PullRequest { from_fork: true, ..expected.clone() },
        ),
        ("of a deleted fork", json!({"source": {"repository": null}}), PullRequest { from_fork: true, ..expected.clone() }),
    ] {
        assert_eq!(seen(other), found, "{what}");
    }
}

#[test]
fn a_list_continues_at_the_next_page_number() {
    let mine = pull(json!({"state": "MERGED"}));
    let others = [
        pull(json!({"id": 8, "source": {"branch": {"name": "x"}}})),
        pull(json!({"id": 9, "source": {"repository": null}})),
    ];
    // The link leads elsewhere. Only that there is one counts.
    let first = json!({"values": others, "page": 1, "next": "https://evil.example/?page=9"});
    let Ok(Meaning::Page { found, next: Some(next) }) = answered(CLOUD, &FIND, 200, &[], &first) else { panic!("no page") };
    assert_eq!(found, []);
    let second = Intent::Find { branch: "relaybook/prod-1", base: "main", cursor: next };
    assert!(requested(CLOUD, "find", &second).contains("&page=2&"));
    let last = json!({"values": [mine], "page": 2, "size": 3});
    check_answer(CLOUD, "find", &last);
    let Ok(Meaning::Page { found, next: None }) = answered(CLOUD, &second, 200, &[], &last) else { panic!("no last page") };
    assert_eq!(found.iter().map(|pull| pull.number).collect::<Vec<_>>(), [7]);
}

#[test]
fn each_answer_has_its_meaning_or_error() {
    let new = Intent::Create(NewPullRequest { branch: "b", base: "main", title: "T", body: "B", labels: &[] });
    let close = Intent::Close { number: 7, version: None };
    assert!(matches!(answered(CLOUD, &new, 201, &[], &pull(json!({}))), Ok(Meaning::Created(_))));
    assert!(matches!(answered(CLOUD, &new, 200, &[], &pull(json!({}))), Ok(Meaning::Created(_))));
    let closed = pull(json!({"state": "DECLINED"}));
    assert!(matches!(
        answered(CLOUD, &close, 200, &[], &closed),
        Ok(Meaning::Seen(PullRequest { state: State::Abandoned, .. }))
    ));
    for (intent, status, message, expected) in [
        (new, 400, "There is already an open pull request for this branch.", Ok(Meaning::Exists)),
        (new, 409, "A pull request already exists", Ok(Meaning::Exists)),
        (new, 400, "source: branch not found: b", Err("BranchNotFound")),
        (new, 400, "There are no changes to be pulled", Err("Refused")),
        (new, 404, "Repository acme/web not found", Err("RepositoryNotFound")),
        (close, 400, "This pull request is already closed.", Ok(Meaning::Changed)),
        (close, 409, "", Ok(Meaning::Changed)),
        (close, 555, "Timed out", Err("ForgeError")),
        (Intent::Comment { number: 7, text: "C" }, 201, "", Ok(Meaning::Done)),
        (Intent::Look { number: 7 }, 404, "", Ok(Meaning::Gone)),
    ] {
        let body = json!({"type": "error", "error": {"message": message}});
        let found = answered(CLOUD, &intent, status, &[], &body);
        assert_eq!(found.map_err(|error| error.reason()), expected, "{intent:?} {status} {message}");
    }
}
