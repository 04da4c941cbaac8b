//! Pure: pull requests at Gitea and Forgejo, API version 1. <https://docs.gitea.com/api/>

use http::Method;
use serde::Deserialize;
use serde_json::json;

use crate::answer::{Answer, refused};
use crate::error::Error;
use crate::intent::{Intent, Meaning, PAGE, Request};
use crate::link;
use crate::pull_request::{PullRequest, State, branch, commit, last_line};
use crate::repository::Repository;

pub(crate) fn request(repository: &Repository, intent: &Intent<'_>) -> Option<Request> {
    let (owner, name) = repository.owner_and_name();
    let at = |rest: &[&str]| repository.at(["repos", owner, name].into_iter().chain(rest.iter().copied()));
    Some(match *intent {
        Intent::Find { base, cursor, .. } => {
            let mut url = at(&["pulls"]);
            // There is no filter by branch. Versions such as 1.23 ignore the one by base branch.
            let (page, limit) = (cursor.page().to_string(), PAGE.to_string());
            url.query_pairs_mut().extend_pairs([
                ("state", "all"),
                ("base_branch", base),
                ("page", &page),
                ("limit", &limit),
            ]);
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
    })
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
        (Intent::Create(_), 409) => Ok(Meaning::Exists),
        // The repository was found when pull requests were looked for, so it is the branch.
        (Intent::Create(_), 404) => Err(Error::BranchNotFound { status: answer.status, words: answer.words() }),
        (Intent::Look { .. }, 200) | (Intent::Close { .. }, 200 | 201) => Ok(Meaning::Seen(one()?)),
        // 412: it is merged. 409: another writer was faster.
        (Intent::Close { .. }, 409 | 412) => Ok(Meaning::Changed),
        (Intent::Label { .. } | Intent::Comment { .. }, 200..=299) => Ok(Meaning::Done),
        (_, 200..=299) => Err(answer.invalid("the status is not one that the API describes")),
        _ => Err(refused(answer)),
    }
}

#[derive(Deserialize)]
struct Pull {
    number: u64,
    html_url: Option<String>,
    state: String,
    body: Option<String>,
    #[serde(default)]
    merged: bool,
    #[serde(default)]
    mergeable: bool,
    #[serde(default)]
    draft: bool,
    merge_commit_sha: Option<String>,
    head: Side,
    base: Side,
}

#[derive(Deserialize)]
struct Side {
    /// Name of the branch, also after it was deleted.
    #[serde(default)]
    label: String,
    /// Name of the branch, or `refs/pull/N/head` after it was deleted.
    #[serde(rename = "ref")]
    reference: String,
    sha: Option<String>,
    /// -1 if the repository was deleted.
    repo_id: i64,
}

impl Pull {
    fn read(self, repository: &Repository) -> PullRequest {
        let state = match self.state.as_str() {
            _ if self.merged => State::Merged,
            "closed" => State::Abandoned,
            _ => State::open(self.mergeable),
        };
        let is_branch = !self.head.reference.starts_with("refs/pull/");
        PullRequest {
            number: self.number,
            url: repository.shown(self.html_url.as_deref()),
            branch: branch(if is_branch { &self.head.reference } else { &self.head.label }),
            base: branch(&self.base.reference),
            from_fork: self.head.repo_id != self.base.repo_id,
            head: commit(self.head.sha),
            state,
            // `false` can also mean that the check runs or that it failed. A draft is never mergeable.
            conflict: (self.mergeable || self.draft).then_some(false),
            merge_commit: commit(self.merge_commit_sha).filter(|_| self.merged),
            last_line: last_line(self.body.as_deref()),
            version: None,
        }
    }
}

#[cfg(test)]
mod tests;
