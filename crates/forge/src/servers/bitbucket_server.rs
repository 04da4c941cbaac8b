//! Pure: pull requests at Bitbucket Server and Data Center, API version 1.0.
//! <https://developer.atlassian.com/server/bitbucket/rest/v906/api-group-pull-requests/>
//!
//! It has no labels, and it shows the marker to readers: its Markdown has no comments.

use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use crate::answer::{Answer, refused};
use crate::error::Error;
use crate::intent::{Cursor, Intent, Meaning, NewPullRequest, PAGE, Request};
use crate::pull_request::{PullRequest, State, branch, commit, last_line};
use crate::repository::Repository;

pub(crate) fn request(repository: &Repository, intent: &Intent<'_>) -> Option<Request> {
    let (project, name) = repository.owner_and_name();
    let at = |rest: &[&str]| {
        let path = ["projects", project, "repos", name, "pull-requests"];
        repository.at(path.into_iter().chain(rest.iter().copied()))
    };
    Some(match *intent {
        Intent::Find { branch, cursor, .. } => Request::get(list(at(&[]), branch, cursor)),
        Intent::Create(new) => Request::post(at(&[]), &created(project, name, &new)),
        Intent::Label { .. } => return None,
        Intent::Look { number } => Request::get(at(&[&number.to_string()])),
        Intent::Mergeability { number } => Request::get(at(&[&number.to_string(), "merge"])),
        Intent::Comment { number, text } => Request::post(at(&[&number.to_string(), "comments"]), &json!({"text": text})),
        Intent::Close { number, version } => {
            let mut url = at(&[&number.to_string(), "decline"]);
            // Without a version, the answer is 409: read the pull request.
            url.query_pairs_mut().append_pair("version", &version.unwrap_or_default().to_string());
            // Without a body of JSON, Bitbucket Server suspects a request of a browser (XSRF).
            Request::post(url, &json!({}))
        }
    })
}

/// Adds the filter and the page to the URL of the list. Pull requests from the branch of this repository, to any base branch, are listed.
fn list(mut url: Url, branch: &str, cursor: Cursor) -> Url {
    let (at, start, limit) = (format!("refs/heads/{branch}"), cursor.items().to_string(), PAGE.to_string());
    let pairs = [("state", "ALL"), ("direction", "OUTGOING"), ("at", &*at), ("start", &*start), ("limit", &*limit)];
    url.query_pairs_mut().extend_pairs(pairs);
    url
}

fn created(project: &str, name: &str, new: &NewPullRequest<'_>) -> Value {
    let reference = |branch: &str| json!({"id": format!("refs/heads/{branch}"), "repository": {"slug": name, "project": {"key": project}}});
    json!({
        "title": new.title, "description": new.body, "fromRef": reference(new.branch), "toRef": reference(new.base),
    })
}

pub(crate) fn meaning(repository: &Repository, intent: &Intent<'_>, answer: &Answer<'_>) -> Result<Meaning, Error> {
    let one = || Ok::<_, Error>(answer.json::<Pull>()?.read(repository));
    match (intent, answer.status) {
        (Intent::Find { branch, base, cursor }, 200) => {
            let page: Page = answer.json()?;
            // A start that does not grow would never end.
            let start = page.next_page_start.filter(|start| !page.is_last && *start > cursor.items());
            let next = start.and_then(|start| cursor.next(start));
            let pulls = page.values.into_iter().map(|pull| pull.read(repository));
            Ok(Meaning::Page { found: pulls.filter(|pull| pull.is_between(branch, base)).collect(), next })
        }
        (Intent::Create(_), 200 | 201) => Ok(Meaning::Created(one()?)),
        (Intent::Create(_), 409) if is_duplicate(answer) => Ok(Meaning::Exists),
        // The repository was found when pull requests were looked for, so it is the branch.
        (Intent::Create(_), 404) => Err(Error::BranchNotFound { status: answer.status, words: answer.words() }),
        (Intent::Look { .. } | Intent::Close { .. }, 200) => Ok(Meaning::Seen(one()?)),
        (Intent::Mergeability { .. }, 200) => {
            let found: Mergeability = answer.json()?;
            let mergeable = found.can_merge.unwrap_or(found.outcome.as_deref() == Some("CLEAN") && found.vetoes.is_empty());
            let conflict = if found.outcome.as_deref() == Some("UNKNOWN") { None } else { found.conflicted };
            Ok(Meaning::Mergeability { conflict, mergeable })
        }
        (Intent::Close { .. } | Intent::Mergeability { .. }, 409) => Ok(Meaning::Changed),
        (Intent::Comment { .. }, 200..=299) => Ok(Meaning::Done),
        (_, 200..=299) => Err(answer.invalid("the status is not one that the API describes")),
        _ => Err(refused(answer)),
    }
}

/// Whether there is an open pull request of the same branches. The same status means that there is nothing to merge, for example.
fn is_duplicate(answer: &Answer<'_>) -> bool {
    let Ok(found) = answer.json::<Errors>() else { return false };
    found
        .errors
        .iter()
        .any(|error| error.exception_name.as_deref().is_some_and(|name| name.contains("DuplicatePullRequest")))
}

#[derive(Deserialize)]
struct Errors {
    errors: Vec<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Failure {
    exception_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    values: Vec<Pull>,
    #[serde(rename = "isLastPage", default)]
    is_last: bool,
    next_page_start: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mergeability {
    can_merge: Option<bool>,
    conflicted: Option<bool>,
    outcome: Option<String>,
    #[serde(default)]
    vetoes: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pull {
    id: u64,
    version: Option<u64>,
    state: String,
    description: Option<String>,
    from_ref: Side,
    to_ref: Side,
    links: Option<Links>,
    properties: Option<Properties>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Side {
    id: String,
    latest_commit: Option<String>,
    repository: Option<Repo>,
}

#[derive(Deserialize)]
struct Repo {
    id: Option<u64>,
}

#[derive(Deserialize)]
struct Links {
    #[serde(rename = "self", default)]
    own: Vec<Link>,
}

#[derive(Deserialize)]
struct Link {
    href: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Properties {
    merge_commit: Option<Merge>,
}

#[derive(Deserialize)]
struct Merge {
    id: Option<String>,
}

impl Pull {
    fn read(self, repository: &Repository) -> PullRequest {
        let state = match self.state.as_str() {
            "MERGED" => State::Merged,
            "DECLINED" => State::Abandoned,
            _ => State::Open,
        };
        let id = |side: &Side| side.repository.as_ref().and_then(|repo| repo.id);
        let page = self.links.and_then(|links| links.own.into_iter().next()?.href);
        let merge = self.properties.and_then(|properties| properties.merge_commit?.id);
        PullRequest {
            number: self.id,
            url: repository.shown(page.as_deref()),
            branch: branch(&self.from_ref.id),
            base: branch(&self.to_ref.id),
            from_fork: id(&self.from_ref).is_none() || id(&self.from_ref) != id(&self.to_ref),
            head: commit(self.from_ref.latest_commit),
            state,
            conflict: None,
            merge_commit: commit(merge).filter(|_| state == State::Merged),
            last_line: last_line(self.description.as_deref()),
            version: self.version,
        }
    }
}

#[cfg(test)]
mod tests;
