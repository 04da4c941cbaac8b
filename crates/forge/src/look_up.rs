//! Pure: what Gitea and Forgejo, GitHub and GitLab say about a commit, and about the pull request with which it came.
//!
//! In: a repository, a [`Question`] and a full hash; then the answer of the forge. Out: the request, and the [`Found`] texts. `None`: the forge
//! does not know it. People wrote these texts, so each one is short and on one line. An address of a person is never among them.

use serde::Deserialize;
use url::Url;

use relaybook_api::Time;
use relaybook_api::values::looked_up::{CommitInfo, PullRequestInfo};
use relaybook_text::{clean, first_line};

use super::answer::{Answer, refused, rejected};
use super::error::Error;
use super::intent::Request;
use super::kind::Kind;
use super::repository::Repository;
use super::servers::github;

/// Maximum size of an answer, in bytes. A pull request of GitHub contains two repositories and the whole description.
pub const MAX_ANSWER: usize = 256 * 1024;
/// Number of pull requests that are looked at.
const PAGE: &str = "5";
/// Maximum length of the first line of a message, and of a title, in bytes.
const LONGEST_TITLE: usize = 256;
/// Maximum length of a name, in bytes.
const LONGEST_NAME: usize = 128;

/// What is asked about a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// The commit itself.
    Commit,
    /// The pull request with which it came.
    PullRequest,
}

/// What a forge says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// About a commit.
    Commit(CommitInfo),
    /// About a pull request.
    PullRequest(PullRequestInfo),
}

/// Returns the request about a commit. `None`: this kind of forge is not asked.
#[must_use]
pub fn request(repository: &Repository, question: Question, hash: &str) -> Option<Request> {
    let (owner, name) = repository.owner_and_name();
    let of_owner = |rest: &[&str]| repository.at(["repos", owner, name].into_iter().chain(rest.iter().copied()));
    let with = |mut url: Url, pairs: &[(&str, &str)]| {
        url.query_pairs_mut().extend_pairs(pairs);
        url
    };
    let url = match (repository.kind(), question) {
        // Without the changed files, which can be large.
        (Kind::Github, Question::Commit) => of_owner(&["git", "commits", hash]),
        (Kind::Github, Question::PullRequest) => with(of_owner(&["commits", hash, "pulls"]), &[("per_page", PAGE)]),
        (Kind::Gitea, Question::Commit) => {
            with(of_owner(&["git", "commits", hash]), &[("stat", "false"), ("verification", "false"), ("files", "false")])
        }
        (Kind::Gitea, Question::PullRequest) => of_owner(&["commits", hash, "pull"]),
        (Kind::Gitlab, question) => {
            let project = repository.path().join("/");
            let at = |rest: &[&str]| {
                let path = ["projects", project.as_str(), "repository", "commits", hash];
                repository.at(path.into_iter().chain(rest.iter().copied()))
            };
            match question {
                Question::Commit => with(at(&[]), &[("stats", "false")]),
                Question::PullRequest => with(at(&["merge_requests"]), &[("per_page", PAGE)]),
            }
        }
        (Kind::BitbucketCloud | Kind::BitbucketServer, _) => return None,
    };
    let mut request = Request::get(url);
    if repository.kind() == Kind::Github {
        github::versioned(&mut request);
    }
    Some(request)
}

/// Returns what an answer says. `None`: the forge does not know the commit, or no pull request of it.
pub fn found(repository: &Repository, question: Question, hash: &str, answer: &Answer<'_>) -> Result<Option<Found>, Error> {
    match answer.status {
        200 => {}
        // GitHub answers with 409 for an empty repository, and with 422 for a hash that it does not know.
        404 | 409 | 410 | 422 => return Ok(None),
        401 | 403 | 429 => return Err(rejected(repository, answer)),
        500.. => return Err(Error::ForgeError { status: answer.status, words: answer.words() }),
        _ => return Err(refused(answer)),
    }
    match question {
        Question::Commit => {
            let commit = match repository.kind() {
                Kind::Gitea => answer.json::<Outer>()?.commit,
                Kind::Gitlab => answer.json::<Flat>()?.into(),
                _ => answer.json::<Commit>()?,
            };
            Ok(Some(Found::Commit(commit.read())))
        }
        Question::PullRequest => {
            let all = match repository.kind() {
                Kind::Gitea => vec![answer.json::<Pull>()?],
                _ => answer.json::<Vec<Pull>>()?,
            };
            let best = all.into_iter().min_by_key(|pull| (pull.rank(hash), pull.number()));
            Ok(best.map(|pull| Found::PullRequest(pull.read(repository))))
        }
    }
}

/// A commit of GitHub, or the inner one of Gitea.
#[derive(Deserialize)]
struct Commit {
    author: Option<Person>,
    committer: Option<Person>,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Outer {
    commit: Commit,
}

/// A person as Git records them. The address is not read.
#[derive(Deserialize)]
struct Person {
    name: Option<String>,
    date: Option<String>,
}

/// A commit of GitLab.
#[derive(Deserialize)]
struct Flat {
    author_name: Option<String>,
    committed_date: Option<String>,
    #[serde(default)]
    message: String,
}

impl From<Flat> for Commit {
    fn from(flat: Flat) -> Self {
        Self {
            author: Some(Person { name: flat.author_name, date: None }),
            committer: Some(Person { name: None, date: flat.committed_date }),
            message: flat.message,
        }
    }
}

impl Commit {
    fn read(self) -> CommitInfo {
        let name = self.author.as_ref().and_then(|author| author.name.as_deref());
        let date = self.committer.and_then(|committer| committer.date).or_else(|| self.author.as_ref()?.date.clone());
        let time = date.and_then(|date| date.parse::<Time>().ok()).map_or_else(String::new, |time| time.to_string());
        CommitInfo { author: person(name), message: title(&self.message), time }
    }
}

/// A pull request of GitHub or Gitea, or a merge request of GitLab, whose names of fields differ.
#[derive(Deserialize)]
struct Pull {
    number: Option<u64>,
    iid: Option<u64>,
    #[serde(default)]
    title: String,
    html_url: Option<String>,
    web_url: Option<String>,
    user: Option<User>,
    author: Option<User>,
    #[serde(default)]
    state: String,
    merged_at: Option<String>,
    merge_commit_sha: Option<String>,
    squash_commit_sha: Option<String>,
}

/// Gitea has both fields.
#[derive(Deserialize)]
struct User {
    login: Option<String>,
    username: Option<String>,
}

impl Pull {
    /// Returns how well it fits: the one that was merged as this commit, then another merged one, then an open one.
    fn rank(&self, hash: &str) -> u8 {
        let is_merged = self.merged_at.is_some() || self.state == "merged";
        let made = [&self.merge_commit_sha, &self.squash_commit_sha];
        match self.state.as_str() {
            _ if is_merged && made.iter().any(|of| of.as_deref() == Some(hash)) => 0,
            _ if is_merged => 1,
            "open" | "opened" => 2,
            _ => 3,
        }
    }

    fn number(&self) -> Option<u64> {
        self.iid.or(self.number)
    }

    fn read(&self, repository: &Repository) -> PullRequestInfo {
        let page = self.web_url.as_deref().or(self.html_url.as_deref());
        let users = [self.author.as_ref(), self.user.as_ref()];
        let name = users.into_iter().flatten().find_map(|user| user.login.as_deref().or(user.username.as_deref()));
        PullRequestInfo {
            number: self.number().map(|number| number.to_string()).unwrap_or_default(),
            title: title(&self.title),
            url: repository.shown(page).unwrap_or_default(),
            author: person(name),
        }
    }
}

/// Returns the first line of a text that is not blank.
fn title(text: &str) -> String {
    clean(&first_line(text), LONGEST_TITLE)
}

/// Returns the name of a person. One with `@` counts as unknown, because it can be an address or mention somebody.
fn person(name: Option<&str>) -> String {
    name.filter(|name| !name.contains('@')).map(|name| clean(name, LONGEST_NAME)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use serde_json::{Value, json};

    use super::*;
    use crate::contract::repository;

    const HASH: &str = "5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c";

    fn answered(kind: Kind, question: Question, status: u16, body: &Value) -> Result<Option<Found>, Error> {
        let (headers, body) = (HeaderMap::new(), body.to_string());
        found(&repository(kind), question, HASH, &Answer { status, headers: &headers, body: body.as_bytes() })
    }

    fn commit(kind: Kind, name: &str, message: &str, date: &str) -> CommitInfo {
        let person = json!({"name": name, "email": "ada@example.com", "date": date});
        let body = match kind {
            Kind::Gitlab => json!({"id": HASH, "title": "no", "message": message, "author_name": name,
                "author_email": "ada@example.com", "authored_date": "2026-01-01T00:00:00Z", "committed_date": date}),
            Kind::Gitea => json!({"sha": HASH, "author": {"login": "ada", "email": "ada@example.com"},
                "commit": {"author": person, "committer": person, "message": message}}),
            _ => json!({"sha": HASH, "author": person, "committer": person, "message": message, "verification": {}}),
        };
        match answered(kind, Question::Commit, 200, &body) {
            Ok(Some(Found::Commit(commit))) => commit,
            other => panic!("{other:?}"),
        }
    }

    fn pull_request(kind: Kind, body: &Value) -> Option<PullRequestInfo> {
        match answered(kind, Question::PullRequest, 200, body) {
            Ok(Some(Found::PullRequest(pull))) => Some(pull),
            Ok(None) => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_forge_is_asked_at_its_own_path() {
        for (kind, commit, pulls) in [
            (
                Kind::Github,
                "https://api.github.com/repos/acme/web/git/commits/HASH",
                "https://api.github.com/repos/acme/web/commits/HASH/pulls?per_page=5",
            ),
            (
                Kind::Gitea,
                "https://gitea.example.com/api/v1/repos/acme/web/git/commits/HASH?stat=false&verification=false&files=false",
                "https://gitea.example.com/api/v1/repos/acme/web/commits/HASH/pull",
            ),
            (
                Kind::Gitlab,
                "https://gitlab.com/api/v4/projects/acme%2Fteam%2Fweb/repository/commits/HASH?stats=false",
                "https://gitlab.com/api/v4/projects/acme%2Fteam%2Fweb/repository/commits/HASH/merge_requests?per_page=5",
            ),
        ] {
            for (question, expected) in [(Question::Commit, commit), (Question::PullRequest, pulls)] {
                let request = request(&repository(kind), question, HASH).unwrap();
                assert_eq!(request.url.as_str(), expected.replace("HASH", HASH), "{kind}");
                assert!(request.method == http::Method::GET && request.body.is_none());
            }
        }
        for kind in [Kind::BitbucketCloud, Kind::BitbucketServer] {
            assert_eq!(request(&repository(kind), Question::Commit, HASH), None);
        }
    }

    #[test]
    fn a_commit_has_a_name_one_line_and_a_time() {
        for kind in [Kind::Github, Kind::Gitea, Kind::Gitlab] {
            let found = commit(kind, "Ada Lovelace", "\nFix the engine\n\nIt was broken.", "2026-11-26T05:00:00+01:00");
            let expected = ["Ada Lovelace", "Fix the engine", "2026-11-26T04:00:00Z"];
            assert_eq!([found.author, found.message, found.time], expected, "{kind}");
        }
        let empty = answered(Kind::Github, Question::Commit, 200, &json!({}));
        assert_eq!(empty, Ok(Some(Found::Commit(CommitInfo::default()))));
    }

    #[test]
    fn hostile_texts_are_short_on_one_line_and_no_address() {
        let long = "x".repeat(200_000);
        for (name, message, author, first) in [
            ("ada@example.com", "a\rb\u{202e}c", "", "a bc"),
            ("Ada <ada@example.com>", "\u{1b}[31mred", "", "red"),
            ("@everyone", " \t \n@everyone hi", "", "@everyone hi"),
            ("Ada\nBcc: x", "<script>alert(1)</script>", "Ada Bcc: x", "<script>alert(1)</script>"),
            ("", "", "", ""),
        ] {
            let found = commit(Kind::Github, name, message, "soon");
            assert_eq!([found.author.as_str(), &found.message, &found.time], [author, first, ""], "{name} {message}");
        }
        let found = commit(Kind::Gitlab, &long, &long, &long);
        assert!(found.author.len() <= LONGEST_NAME && found.message.len() <= LONGEST_TITLE && found.time.is_empty());
        let evil = json!([{"number": 1, "title": long, "html_url": "https://github.com.evil.example/1", "user": {"login": "@all"}}]);
        let found = pull_request(Kind::Github, &evil).unwrap();
        assert!(found.title.len() <= LONGEST_TITLE && found.url.is_empty() && found.author.is_empty(), "{found:?}");
        assert_eq!(pull_request(Kind::Github, &json!([{"number": 1, "html_url": "javascript:alert(1)"}])).unwrap().url, "");
    }

    #[test]
    fn the_pull_request_is_the_one_that_was_merged_as_the_commit() {
        let of = |number: u64, merged: Option<&str>, sha: &str, state: &str| {
            json!({"number": number, "title": format!("T{number}"), "html_url": format!("https://github.com/acme/web/pull/{number}"),
                "user": {"login": "ada"}, "merged_at": merged, "merge_commit_sha": sha, "state": state})
        };
        let time = Some("2026-11-26T05:00:00Z");
        for (all, expected) in [
            (json!([]), None),
            (json!([of(3, None, HASH, "open"), of(2, time, "b", "closed"), of(7, time, HASH, "closed")]), Some("7")),
            (json!([of(3, None, HASH, "open"), of(9, time, "b", "closed"), of(4, time, "b", "closed")]), Some("4")),
            (json!([of(5, None, "", "open"), of(3, None, "", "closed"), of(6, None, "", "open")]), Some("5")),
            (json!([of(3, None, "", "closed")]), Some("3")),
        ] {
            assert_eq!(pull_request(Kind::Github, &all).map(|pull| pull.number).as_deref(), expected, "{all}");
        }
        let found = pull_request(Kind::Github, &json!([of(7, time, HASH, "closed")])).unwrap();
        assert_eq!([found.title.as_str(), &found.url, &found.author], ["T7", "https://github.com/acme/web/pull/7", "ada"]);
        let merged = json!([{"iid": 12, "id": 99, "title": "T", "state": "merged", "web_url": "https://gitlab.com/acme/team/web/-/merge_requests/12",
            "author": {"username": "ada", "name": "Ada"}, "squash_commit_sha": HASH, "merge_commit_sha": null}]);
        let found = pull_request(Kind::Gitlab, &merged).unwrap();
        assert_eq!([found.number.as_str(), &found.author], ["12", "ada"]);
        let single = json!({"number": 7, "title": "T", "html_url": "https://gitea.example.com/acme/web/pulls/7", "state": "closed",
            "user": {"login": "ada", "username": "ada", "email": "ada@example.com"}, "merged": true, "merge_commit_sha": HASH});
        assert_eq!(pull_request(Kind::Gitea, &single).unwrap().url, "https://gitea.example.com/acme/web/pulls/7");
    }

    #[test]
    fn other_statuses_are_unknown_commits_or_errors() {
        for status in [404, 409, 410, 422] {
            assert_eq!(answered(Kind::Github, Question::Commit, status, &json!({"message": "No commit found"})), Ok(None));
        }
        for (status, body, reason) in [
            (401, json!({}), "CredentialsRejected"),
            (403, json!({"message": "API rate limit exceeded"}), "RateLimited"),
            (429, json!({}), "RateLimited"),
            (500, json!({}), "ForgeError"),
            (302, json!({}), "Refused"),
            (200, json!("x"), "InvalidAnswer"),
            (200, json!({"message": 5}), "InvalidAnswer"),
        ] {
            let error = answered(Kind::Github, Question::Commit, status, &body).unwrap_err();
            assert_eq!(error.reason(), reason, "{status} {body}");
        }
    }
}
