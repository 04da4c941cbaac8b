//! Pure: an answer of a forge, and what is the same at each forge.

use http::HeaderMap;
use serde::de::DeserializeOwned;
use serde_json::Value;

use relaybook_text::clean;

use super::error::Error;
use super::intent::{Intent, Meaning};
use super::limits::Limits;
use super::repository::Repository;
use relaybook_api::values::redirect::redirect_origin;

/// Maximum size of an answer, in bytes.
pub const MAX_ANSWER: usize = 1024 * 1024;
/// Maximum length of the words of a forge, in bytes.
const MAX_WORDS: usize = 512;
/// Maximum depth at which words are looked for.
const MAX_DEPTH: u8 = 4;
/// Maximum length of an entity tag, in bytes.
const MAX_ETAG: usize = 256;

/// An answer of a forge.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The body, of which the caller reads at most [`MAX_ANSWER`] bytes and one more.
    pub body: &'a [u8],
}

impl Answer<'_> {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Parses the body.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        if self.body.len() > MAX_ANSWER {
            return Err(self.invalid("it is larger than 1 MiB"));
        }
        let value: Value = serde_json::from_slice(self.body).map_err(|_| self.invalid("it is not JSON"))?;
        serde_json::from_value(value).map_err(|_| self.invalid("a field is missing or has the wrong type"))
    }

    pub(super) fn invalid(&self, problem: &'static str) -> Error {
        Error::InvalidAnswer { status: self.status, problem }
    }

    /// Returns what the forge says about a failure.
    pub(super) fn words(&self) -> String {
        if self.body.len() > MAX_ANSWER {
            return String::new();
        }
        let value: Value = serde_json::from_slice(self.body).unwrap_or_default();
        let mut found = Vec::new();
        collect(&value, MAX_DEPTH, &mut found);
        found.dedup();
        clean(&found.join("; "), MAX_WORDS)
    }
}

/// Returns the entity tag of an answer, for the next request of the same intent.
#[must_use]
pub fn etag(answer: &Answer<'_>) -> Option<String> {
    answer.header("etag").filter(|etag| !etag.is_empty() && etag.len() <= MAX_ETAG).map(str::to_owned)
}

/// Returns the meaning of an answer, or the error, if it is the same at each forge. Returns `None` for a success, and for the statuses that
/// mean something else at each forge.
pub(super) fn common(repository: &Repository, intent: &Intent<'_>, answer: &Answer<'_>) -> Result<Option<Meaning>, Error> {
    let status = answer.status;
    let words = || answer.words();
    match status {
        304 => Ok(Some(Meaning::Unchanged)),
        300..=399 => {
            let origin = answer.header("location").and_then(|location| redirect_origin(location, None));
            let to = origin.map_or_else(String::new, |origin| format!(" to {origin}"));
            let words = format!("the answer is a redirect{to}, which is never followed; the repository may have moved");
            Err(Error::RepositoryNotFound { status, words })
        }
        401 | 403 | 429 => Err(rejected(repository, answer)),
        404 | 410 => match intent {
            Intent::Find { .. } => Err(Error::RepositoryNotFound { status, words: words() }),
            // Each forge answers differently if a branch does not exist.
            Intent::Create(_) => Ok(None),
            _ => Ok(Some(Meaning::Gone)),
        },
        408 | 425 | 500.. => Err(Error::ForgeError { status, words: words() }),
        _ => Ok(None),
    }
}

/// Returns the error of a status that no file of a forge knows.
pub(super) fn refused(answer: &Answer<'_>) -> Error {
    let (status, words) = (answer.status, answer.words());
    let lower = words.to_lowercase();
    if lower.contains("branch")
        && (lower.contains("does not exist") || lower.contains("not found") || lower.contains("doesn't exist"))
    {
        return Error::BranchNotFound { status, words };
    }
    if matches!(status, 404 | 410) {
        return Error::RepositoryNotFound { status, words };
    }
    Error::Refused { status, words }
}

/// Distinguishes missing permissions from a limit on the rate. GitHub answers with 403 in both cases.
pub(super) fn rejected(repository: &Repository, answer: &Answer<'_>) -> Error {
    let (status, mut words) = (answer.status, answer.words());
    let limits = Limits::of(repository.kind(), answer.headers);
    let is_limited = limits.retry.is_some() || limits.is_exhausted() || words.to_lowercase().contains("rate limit");
    if status == 429 || (status == 403 && is_limited) {
        return Error::RateLimited { status, limits };
    }
    let required = [
        ("x-accepted-github-permissions", "the request requires the permissions"),
        ("x-accepted-oauth-scopes", "the request requires one of the scopes"),
    ];
    for (header, sentence) in required {
        if status == 403
            && let Some(value) = answer.header(header).filter(|value| !value.trim().is_empty())
        {
            words = clean(&format!("{words}{}{sentence} {value}", if words.is_empty() { "" } else { "; " }), MAX_WORDS);
            break;
        }
    }
    Error::CredentialsRejected { status, words }
}

/// Collects the texts that forges put into failures: `message` (GitHub, Gitea, GitLab), `error`, `error_description` and `scope` (GitLab),
/// `error.message` and `error.detail` (Bitbucket Cloud), `errors[].message` (GitHub, Bitbucket Server).
fn collect(value: &Value, depth: u8, found: &mut Vec<String>) {
    let Some(depth) = depth.checked_sub(1).filter(|_| found.len() < 16) else { return };
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(list) => list.iter().take(16).for_each(|item| collect(item, depth, found)),
        Value::Object(map) => {
            for key in ["message", "error", "error_description", "scope", "detail", "errors"] {
                match map.get(key) {
                    Some(Value::String(scope)) if key == "scope" => found.push(format!("scope: {scope}")),
                    Some(Value::Object(fields)) if key == "message" => by_field(fields, depth, found),
                    Some(value) => collect(value, depth, found),
                    None => {}
                }
            }
            if let (Some(field), Some(code)) =
                (map.get("field").and_then(Value::as_str), map.get("code").and_then(Value::as_str))
            {
                found.push(format!("{field}: {code}"));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// GitLab names the fields that it does not accept.
fn by_field(fields: &serde_json::Map<String, Value>, depth: u8, found: &mut Vec<String>) {
    for (field, value) in fields.iter().take(16) {
        let mut texts = Vec::new();
        collect(value, depth, &mut texts);
        found.extend(texts.into_iter().map(|text| format!("{field}: {text}")));
    }
}

#[cfg(test)]
mod tests;
