//! Pure: merge requests at GitLab, API version 4. <https://docs.gitlab.com/api/merge_requests/>

use http::Method;
use serde::Deserialize;
use serde_json::json;

use crate::answer::{Answer, refused};
use crate::error::Error;
use crate::intent::{Intent, Meaning, PAGE, Request};
use crate::link;
use crate::pull_request::{PullRequest, State, commit, last_line};
use crate::repository::Repository;

pub(crate) fn request(repository: &Repository, intent: &Intent<'_>) -> Option<Request> {
    // The path of the project, with all groups, is one segment.
    let project = repository.path().join("/");
    let at = |rest: &[&str]| repository.at(["projects", &project, "merge_requests"].into_iter().chain(rest.iter().copied()));
    Some(match *intent {
        Intent::Find { branch, base, cursor } => {
            let mut url = at(&[]);
            let (page, limit) = (cursor.page().to_string(), PAGE.to_string());
            let pairs = [
                ("state", "all"),
                ("source_branch", branch),
                ("target_branch", base),
                ("page", &page),
                ("per_page", &limit),
            ];
            url.query_pairs_mut().extend_pairs(pairs);
            Request::get(url)
        }
        Intent::Create(new) => {
            let mut body = json!({
                "source_branch": new.branch, "target_branch": new.base, "title": new.title, "description": new.body,
            });
            if !new.labels.is_empty() {
                body["labels"] = new.labels.join(",").into();
            }
            Request::post(at(&[]), &body)
        }
        Intent::Label { .. } | Intent::Mergeability { .. } => return None,
        Intent::Look { number } => Request::get(at(&[&number.to_string()])),
        Intent::Comment { number, text } => Request::post(at(&[&number.to_string(), "notes"]), &json!({"body": text})),
        Intent::Close { number, .. } => {
            Request::new(Method::PUT, at(&[&number.to_string()]), Some(&json!({"state_event": "close"})))
        }
    })
}

pub(crate) fn meaning(repository: &Repository, intent: &Intent<'_>, answer: &Answer<'_>) -> Result<Meaning, Error> {
    let one = || Ok::<_, Error>(answer.json::<MergeRequest>()?.read(repository));
    match (intent, answer.status) {
        (Intent::Find { branch, base, cursor }, 200) => {
            let all: Vec<MergeRequest> = answer.json()?;
            let next = link::next(answer.headers, *cursor, all.len());
            let all = all.into_iter().map(|one| one.read(repository));
            Ok(Meaning::Page { found: all.filter(|one| one.is_between(branch, base)).collect(), next })
        }
        (Intent::Create(_), 201) => Ok(Meaning::Created(one()?)),
        (Intent::Create(_), 409) => Ok(Meaning::Exists),
        (Intent::Look { .. } | Intent::Close { .. }, 200) => Ok(Meaning::Seen(one()?)),
        (Intent::Close { .. }, 409) => Ok(Meaning::Changed),
        (Intent::Comment { .. }, 200..=299) => Ok(Meaning::Done),
        (_, 200..=299) => Err(answer.invalid("the status is not one that the API describes")),
        _ => Err(refused(answer)),
    }
}

#[derive(Deserialize)]
struct MergeRequest {
    iid: u64,
    web_url: Option<String>,
    state: String,
    description: Option<String>,
    source_branch: String,
    target_branch: String,
    /// Absent if the project was deleted.
    source_project_id: Option<u64>,
    target_project_id: Option<u64>,
    sha: Option<String>,
    merge_commit_sha: Option<String>,
    squash_commit_sha: Option<String>,
    /// Since GitLab 15.6.
    detailed_merge_status: Option<String>,
    merge_status: Option<String>,
    has_conflicts: Option<bool>,
}

impl MergeRequest {
    fn read(self, repository: &Repository) -> PullRequest {
        let detailed = self.detailed_merge_status.as_deref();
        let coarse = self.merge_status.as_deref();
        let is_merged = self.state == "merged";
        let state = match self.state.as_str() {
            "merged" => State::Merged,
            "closed" => State::Abandoned,
            // `locked`: it is being merged.
            _ => State::open(detailed.or(coarse).is_some_and(|status| matches!(status, "mergeable" | "can_be_merged"))),
        };
        let conflict = match (detailed, self.has_conflicts) {
            (Some("conflict"), _) | (_, Some(true)) => Some(true),
            // Before the check, GitLab says that there is none.
            _ if coarse == Some("can_be_merged") || detailed == Some("mergeable") => Some(false),
            _ => None,
        };
        let merge_commit = commit(self.merge_commit_sha).or_else(|| commit(self.squash_commit_sha));
        let head = commit(self.sha);
        PullRequest {
            number: self.iid,
            url: repository.shown(self.web_url.as_deref()),
            branch: self.source_branch,
            base: self.target_branch,
            from_fork: self.source_project_id.is_none() || self.source_project_id != self.target_project_id,
            // After a fast-forward merge there is neither commit: the end of the branch is on the base branch.
            merge_commit: if is_merged { merge_commit.or_else(|| head.clone()) } else { None },
            head,
            state,
            conflict,
            last_line: last_line(self.description.as_deref()),
            version: None,
        }
    }
}

#[cfg(test)]
mod tests;
