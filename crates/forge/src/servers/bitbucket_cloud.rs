//! Pure: pull requests at Bitbucket Cloud, API version 2.0.
//! <https://developer.atlassian.com/cloud/bitbucket/rest/api-group-pullrequests/>
//!
//! It never says whether there is a conflict, it has no labels, and it shows the marker to readers: its Markdown has no comments.

use http::Method;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use crate::answer::{Answer, refused};
use crate::error::Error;
use crate::intent::{Cursor, Intent, Meaning, PAGE, Request};
use crate::pull_request::{PullRequest, State, commit, last_line};
use crate::repository::Repository;

pub(crate) fn request(repository: &Repository, intent: &Intent<'_>) -> Option<Request> {
    let (owner, name) = repository.owner_and_name();
    let at =
        |rest: &[&str]| repository.at(["repositories", owner, name, "pullrequests"].into_iter().chain(rest.iter().copied()));
    Some(match *intent {
        Intent::Find { branch, base, cursor } => Request::get(list(at(&[]), branch, base, cursor)),
        Intent::Create(new) => Request::post(
            at(&[]),
            &json!({
                "title": new.title, "description": new.body,
                "source": {"branch": {"name": new.branch}}, "destination": {"branch": {"name": new.base}},
            }),
        ),
        Intent::Label { .. } | Intent::Mergeability { .. } => return None,
        Intent::Look { number } => Request::get(at(&[&number.to_string()])),
        Intent::Comment { number, text } => {
            Request::post(at(&[&number.to_string(), "comments"]), &json!({"content": {"raw": text}}))
        }
        Intent::Close { number, .. } => Request::new(Method::POST, at(&[&number.to_string(), "decline"]), None),
    })
}

/// Adds the filter and the page to the URL of the list. Without states, only open pull requests are listed.
fn list(mut url: Url, branch: &str, base: &str, cursor: Cursor) -> Url {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let filter = format!(r#"source.branch.name = "{}" AND destination.branch.name = "{}""#, quoted(branch), quoted(base));
    url.query_pairs_mut()
        .extend_pairs(["OPEN", "MERGED", "DECLINED", "SUPERSEDED"].map(|state| ("state", state)))
        .extend_pairs([("q", &filter), ("page", &cursor.page().to_string()), ("pagelen", &PAGE.to_string())]);
    url
}

pub(crate) fn meaning(repository: &Repository, intent: &Intent<'_>, answer: &Answer<'_>) -> Result<Meaning, Error> {
    let one = || Ok::<_, Error>(answer.json::<Pull>()?.read(repository));
    match (intent, answer.status) {
        (Intent::Find { branch, base, cursor }, 200) => {
            let page: Page = answer.json()?;
            let before = cursor.items().saturating_add(u64::try_from(page.values.len()).unwrap_or(u64::MAX));
            // The link itself is not used: pages have numbers.
            let next = page.next.and_then(|_| cursor.next(before));
            let pulls = page.values.into_iter().map(|pull| pull.read(repository));
            Ok(Meaning::Page { found: pulls.filter(|pull| pull.is_between(branch, base)).collect(), next })
        }
        (Intent::Create(_), 200 | 201) => Ok(Meaning::Created(one()?)),
        (Intent::Create(_), 400 | 409) if is_duplicate(&answer.words().to_lowercase()) => Ok(Meaning::Exists),
        (Intent::Look { .. } | Intent::Close { .. }, 200) => Ok(Meaning::Seen(one()?)),
        // It is not open any more.
        (Intent::Close { .. }, 409) => Ok(Meaning::Changed),
        (Intent::Close { .. }, 400) if answer.words().to_lowercase().contains("closed") => Ok(Meaning::Changed),
        (Intent::Comment { .. }, 200..=299) => Ok(Meaning::Done),
        (_, 200..=299) => Err(answer.invalid("the status is not one that the API describes")),
        _ => Err(refused(answer)),
    }
}

/// Whether there is an open pull request of the same branches. The forge says it in words only.
fn is_duplicate(words: &str) -> bool {
    words.contains("already") && (words.contains("open") || words.contains("exist"))
}

#[derive(Deserialize)]
struct Page {
    values: Vec<Pull>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Pull {
    id: u64,
    state: String,
    description: Option<String>,
    summary: Option<Rendered>,
    merge_commit: Option<Hash>,
    links: Option<Links>,
    source: Side,
    destination: Side,
}

#[derive(Deserialize)]
struct Rendered {
    raw: Option<String>,
}

#[derive(Deserialize)]
struct Hash {
    hash: Option<String>,
}

#[derive(Deserialize)]
struct Links {
    html: Option<Link>,
}

#[derive(Deserialize)]
struct Link {
    href: Option<String>,
}

#[derive(Deserialize)]
struct Side {
    branch: Branch,
    commit: Option<Hash>,
    /// Absent if the repository was deleted.
    repository: Option<Repo>,
}

#[derive(Deserialize)]
struct Branch {
    name: String,
}

#[derive(Deserialize)]
struct Repo {
    uuid: Option<String>,
    full_name: Option<String>,
}

impl Pull {
    fn read(self, repository: &Repository) -> PullRequest {
        let state = match self.state.as_str() {
            "MERGED" => State::Merged,
            "DECLINED" | "SUPERSEDED" => State::Abandoned,
            _ => State::Open,
        };
        let id =
            |side: &Side| side.repository.as_ref().and_then(|repo| repo.uuid.clone().or_else(|| repo.full_name.clone()));
        let body = self.description.or_else(|| self.summary?.raw);
        PullRequest {
            number: self.id,
            url: repository.shown(self.links.and_then(|links| links.html?.href).as_deref()),
            from_fork: id(&self.source).is_none() || id(&self.source) != id(&self.destination),
            branch: self.source.branch.name,
            base: self.destination.branch.name,
            head: commit(self.source.commit.and_then(|commit| commit.hash)),
            state,
            conflict: None,
            merge_commit: commit(self.merge_commit.and_then(|commit| commit.hash)).filter(|_| state == State::Merged),
            last_line: last_line(body.as_deref()),
            version: None,
        }
    }
}

#[cfg(test)]
mod tests;
