//! Pure: pull requests at GitHub. <https://docs.github.com/rest/pulls/pulls>

use http::Method;
use serde::Deserialize;
use serde_json::json;

use crate::answer::{Answer, refused};
use crate::error::Error;
use crate::intent::{Intent, Meaning, PAGE, Request};
use crate::link;
use crate::pull_request::{PullRequest, State, commit, last_line};
use crate::repository::Repository;

/// Version of the API, which all supported releases of GitHub Enterprise Server have.
const VERSION: &str = "2022-11-28";

pub(crate) fn request(repository: &Repository, intent: &Intent<'_>) -> Option<Request> {
    let (owner, name) = repository.owner_and_name();
    let at = |rest: &[&str]| repository.at(["repos", owner, name].into_iter().chain(rest.iter().copied()));
    let mut request = match *intent {
        Intent::Find { branch, base, cursor } => {
            let mut url = at(&["pulls"]);
            let (head, page, limit) = (format!("{owner}:{branch}"), cursor.page().to_string(), PAGE.to_string());
            let pairs = [("state", "all"), ("head", &*head), ("base", base), ("page", &*page), ("per_page", &*limit)];
            url.query_pairs_mut().extend_pairs(pairs);
            Request::get(url)
        }
        Intent::Create(new) => {
            let body = json!({"head": new.branch, "base": new.base, "title": new.title, "body": new.body});
            Request::post(at(&["pulls"]), &body)
        }
        Intent::Label { number, labels } => {
            Request::post(at(&["issues", &number.to_string(), "labels"]), &json!({"labels": labels}))
        }
        Intent::Look { number } => Request::get(at(&["pulls", &number.to_string()])),
        Intent::Mergeability { .. } => return None,
        Intent::Comment { number, text } => {
            Request::post(at(&["issues", &number.to_string(), "comments"]), &json!({"body": text}))
        }
        Intent::Close { number, .. } => {
            Request::new(Method::PATCH, at(&["pulls", &number.to_string()]), Some(&json!({"state": "closed"})))
        }
    };
    versioned(&mut request);
    Some(request)
}

/// Names the version of the API.
pub(crate) fn versioned(request: &mut Request) {
    request.accept("application/vnd.github+json");
    request.headers.push(("x-github-api-version", VERSION.to_owned()));
}

pub(crate) fn meaning(repository: &Repository, intent: &Intent<'_>, answer: &Answer<'_>) -> Result<Meaning, Error> {
    let one = || Ok::<_, Error>(answer.json::<Pull>()?.read(repository));
    match (intent, answer.status) {
        (Intent::Find { branch, base, cursor }, 200) => {
            let pulls: Vec<Pull> = answer.json()?;
            let next = link::next(answer.headers, *cursor, pulls.len());
            let pulls = pulls.into_iter().map(|pull| pull.read(repository));
            Ok(Meaning::Page { found: pulls.filter(|pull| pull.is_between(branch, base)).collect(), next })
        }
        (Intent::Create(_), 201) => Ok(Meaning::Created(one()?)),
        (Intent::Create(_), 422) => not_created(answer),
        (Intent::Look { .. } | Intent::Close { .. }, 200) => Ok(Meaning::Seen(one()?)),
        (Intent::Label { .. } | Intent::Comment { .. }, 200..=299) => Ok(Meaning::Done),
        (_, 200..=299) => Err(answer.invalid("the status is not one that the API describes")),
        _ => Err(refused(answer)),
    }
}

/// Returns why a pull request was not created.
fn not_created(answer: &Answer<'_>) -> Result<Meaning, Error> {
    let words = answer.words();
    if words.contains("pull request already exists") {
        return Ok(Meaning::Exists);
    }
    // The name of the field and a code are all that GitHub says about a branch that does not exist.
    if words.contains("head: invalid") || words.contains("base: invalid") {
        return Err(Error::BranchNotFound { status: answer.status, words });
    }
    Err(refused(answer))
}

#[derive(Deserialize)]
struct Pull {
    number: u64,
    html_url: Option<String>,
    state: String,
    body: Option<String>,
    /// Present in lists as well, unlike `merged`.
    merged_at: Option<String>,
    /// While the pull request is open, this is the commit of a test merge.
    merge_commit_sha: Option<String>,
    mergeable: Option<bool>,
    mergeable_state: Option<String>,
    head: Side,
    base: Side,
}

#[derive(Deserialize)]
struct Side {
    #[serde(rename = "ref")]
    reference: String,
    sha: Option<String>,
    /// Absent if the repository was deleted.
    repo: Option<Repo>,
}

#[derive(Deserialize)]
struct Repo {
    id: u64,
}

impl Pull {
    fn read(self, repository: &Repository) -> PullRequest {
        let checks = self.mergeable_state.as_deref().unwrap_or_default();
        let is_merged = self.merged_at.is_some();
        let state = match self.state.as_str() {
            _ if is_merged => State::Merged,
            "closed" => State::Abandoned,
            // `unstable`: a check that is not required fails. `has_hooks`: GitHub Enterprise Server runs a hook before it merges.
            _ => State::open(matches!(checks, "clean" | "unstable" | "has_hooks")),
        };
        let id = |side: &Side| side.repo.as_ref().map(|repo| repo.id);
        PullRequest {
            number: self.number,
            url: repository.shown(self.html_url.as_deref()),
            from_fork: id(&self.head).is_none() || id(&self.head) != id(&self.base),
            branch: self.head.reference,
            base: self.base.reference,
            head: commit(self.head.sha),
            state,
            conflict: if checks == "dirty" { Some(true) } else { self.mergeable.map(|mergeable| !mergeable) },
            merge_commit: commit(self.merge_commit_sha).filter(|_| is_merged),
            last_line: last_line(self.body.as_deref()),
            version: None,
        }
    }
}

#[cfg(test)]
mod tests;
