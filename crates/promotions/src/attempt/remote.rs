//! Sends the requests of an attempt, to a Git server and to the API of a forge.
//!
//! In: the repository of a strategy. Out: a [`GitRemote`] and a [`ForgeRemote`]. Both use the connections, the egress policy, TLS and the proxy
//! of all other requests. The words of servers can repeat a Secret, so they are masked before they are shown.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use parking_lot::Mutex;
use url::Url;

use super::clock::WaitedTooLong;
use super::logins::{Payer, forge_repository, origin, parsed, payer, scope, secret, tls};
use super::problem::{of_forge, of_git, unanswered};
use super::repositories::{Memory, Permit};
use super::{Attempt, Outside, lock};
use relaybook_api::notification::credentials::TlsRef;
use relaybook_api::promotion::{ForgeType, GitRepository, PullRequestStrategy};
use relaybook_api::values::redirect::redirect_origin;
use relaybook_api::{Time, now, since_boot};
use relaybook_core::promotion::progress::Problem;
use relaybook_egress::{Answer, ForgeRequest, Login, Unanswered};
use relaybook_forge::budget;
use relaybook_forge::budget::{End, Priority, Quota};
use relaybook_forge::{Intent, Kind, Meaning, Repository};
use relaybook_git::{Bound, GitError, Id, Paths, Remote, Snapshot, Transport, TransportError};

/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of name resolution, connection and TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The user name with which a token is sent to a Git server, if neither the Secret nor the forge has one.
const USER: &str = "relaybook";
/// Maximum size of a pack that needs no permit, in bytes. Repositories of manifests have packs far below it.
const SMALL: usize = 4 * 1024 * 1024;
/// An attempt waits at most this long for the quota of a forge. A longer wait is a new attempt.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The Git server of an attempt.
pub(super) struct GitRemote<'a> {
    outside: &'a Outside,
    attempt: &'a Attempt,
    url: String,
    login: Option<Login>,
    tls: TlsRef,
    /// The last answer without its body, which knows the Secrets that were sent.
    last: Mutex<Option<Answer>>,
    /// Held while a large pack is in memory. Without it, a large answer is refused.
    large: Mutex<Option<Memory>>,
}

impl<'a> GitRemote<'a> {
    pub(super) fn new(outside: &'a Outside, attempt: &'a Attempt, repository: &GitRepository) -> Result<Self, Problem> {
        parsed(&repository.url)?;
        let namespace = attempt.namespace();
        let forge = attempt.pull_request();
        let user = forge.and_then(|of| Kind::from(of.type_).git_user()).unwrap_or(USER);
        let app = forge.map(forge_repository).transpose()?.and_then(|at| scope(&at, repository));
        let login = secret(&namespace, repository).map(|secret| Login::Git { secret, user, app });
        let url = repository.url.trim_end_matches('/').to_owned();
        Ok(Self {
            outside,
            attempt,
            url,
            login,
            tls: tls(&namespace, repository),
            last: Mutex::new(None),
            large: Mutex::new(None),
        })
    }

    /// Reads the YAML files of a commit. Most packs are small. A large one waits until no other attempt has one, so that a few hostile servers
    /// cannot fill the memory.
    pub(super) async fn snapshot(
        &self,
        remote: &Remote<'_, GitRemote<'a>>,
        commit: Id,
        paths: &Paths,
    ) -> Result<Snapshot, Problem> {
        let read = remote.snapshot(commit, paths).await;
        if self.is_too_large(&read).await? {
            return remote.snapshot(commit, paths).await.map_err(|error| self.problem(&error));
        }
        read.map_err(|error| self.problem(&error))
    }

    /// Reads the newest commits of a branch. A server that cannot leave out files sends them, too.
    pub(super) async fn history(
        &self,
        remote: &Remote<'_, GitRemote<'a>>,
        tip: Id,
        depth: usize,
    ) -> Result<Vec<relaybook_git::Found>, Problem> {
        let read = remote.history(tip, depth).await;
        if self.is_too_large(&read).await? {
            return remote.history(tip, depth).await.map_err(|error| self.problem(&error));
        }
        read.map_err(|error| self.problem(&error))
    }

    /// Whether an answer was too large, and a larger one is permitted now.
    async fn is_too_large<R>(&self, read: &Result<R, GitError>) -> Result<bool, Problem> {
        if !matches!(read, Err(GitError::TooLarge(Bound::Answer))) || lock(&self.large).is_some() {
            return Ok(false);
        }
        let namespace = self.attempt.namespace();
        let permit = self.attempt.clock.pause(self.outside.repositories.large(&namespace)).await?;
        *lock(&self.large) = Some(permit);
        Ok(true)
    }

    /// Waits until the repository can be read. Ask the server something before, so that one that does not answer holds no permit.
    pub(super) async fn permit(&self) -> Result<Permit, Problem> {
        let namespace = self.attempt.namespace();
        self.attempt.clock.pause(self.outside.repositories.acquire(&namespace, &self.url)).await
    }

    /// Returns the problem of an error.
    pub(super) fn problem(&self, error: &GitError) -> Problem {
        let mut problem = of_git(error);
        problem.message = self.masked(&problem.message);
        problem
    }

    /// Returns a text of the server without the Secrets that were sent to it.
    pub(super) fn masked(&self, text: &str) -> String {
        let last = lock(&self.last);
        last.as_ref().map_or_else(|| text.to_owned(), |answer| answer.shown(text.as_bytes()))
    }
}

impl Transport for GitRemote<'_> {
    async fn send(&self, request: relaybook_git::Request) -> Result<relaybook_git::Response, TransportError> {
        let url =
            Url::parse(&format!("{}{}", self.url, request.path)).map_err(|error| TransportError::Failed(Box::new(error)))?;
        let headers = request.headers.iter().filter_map(|(name, value)| header(name, value)).collect();
        let method = match request.method {
            relaybook_git::Method::Get => Method::GET,
            relaybook_git::Method::Post => Method::POST,
        };
        let asked = ForgeRequest {
            url,
            method,
            headers,
            body: request.body,
            login: self.login.clone(),
            tls: self.tls.clone(),
            timeout: TIMEOUT,
            until: self.attempt.clock.until(),
            connect_timeout: CONNECT_TIMEOUT,
            limit: self.limit(request.limit),
        };
        let mut answer = self.outside.sender.ask(asked).await.map_err(|error| match error {
            Unanswered::TooLarge(_) => TransportError::TooLong,
            error => TransportError::Failed(Box::new(error)),
        })?;
        let content_type = answer.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let location = answer.headers.get(http::header::LOCATION).filter(|_| (300..400).contains(&answer.status));
        let response = relaybook_git::Response {
            status: answer.status,
            content_type: content_type.map(str::to_owned),
            redirect: location.and_then(|location| redirect_origin(location.to_str().ok()?, None)),
            body: std::mem::take(&mut answer.body),
        };
        *lock(&self.last) = Some(answer);
        Ok(response)
    }

    async fn calculate<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> Result<R, TransportError> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| TransportError::Failed(error);
        let namespace = self.attempt.namespace();
        let permit = self.attempt.clock.pause(self.outside.repositories.reading(&namespace)).await;
        let permit = permit.map_err(|problem| failed(Box::new(WaitedTooLong(problem))))?;
        let work = move || {
            // Held until the end: the attempt can end before.
            let _permit = permit;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| failed(Box::new(error)))
    }
}

impl GitRemote<'_> {
    /// Returns how many bytes an answer can have.
    fn limit(&self, limit: usize) -> usize {
        if limit >= relaybook_git::MAX_ANSWER && lock(&self.large).is_none() { SMALL } else { limit }
    }
}

/// The API of the forge of an attempt.
pub(super) struct ForgeRemote<'a> {
    outside: &'a Outside,
    attempt: &'a Attempt,
    repository: Repository,
    login: Option<Login>,
    tls: TlsRef,
    payer: Payer,
}

impl<'a> ForgeRemote<'a> {
    pub(super) fn new(outside: &'a Outside, attempt: &'a Attempt, of: &PullRequestStrategy) -> Result<Self, Problem> {
        let repository = forge_repository(of)?;
        let namespace = attempt.namespace();
        let payer = payer(&namespace, &of.repository);
        let credential = repository.kind().credential();
        let login = payer.1.clone().map(|secret| Login::Token {
            secret,
            header: HeaderName::from_static(credential.header),
            scheme: credential.prefix.trim_end(),
            app: scope(&repository, &of.repository),
        });
        Ok(Self { outside, attempt, repository, login, tls: tls(&namespace, &of.repository), payer })
    }

    /// Sends the request of an intent. `None`: the forge has no such request, and does not need it.
    pub(super) async fn ask(&self, intent: &Intent<'_>) -> Result<Option<Meaning>, Problem> {
        Ok(self.ask_since(intent, None).await?.map(|(meaning, _)| meaning))
    }

    /// The same, with the entity tag of the last answer. Returns the new one, too.
    pub(super) async fn ask_since(
        &self,
        intent: &Intent<'_>,
        etag: Option<&str>,
    ) -> Result<Option<(Meaning, Option<String>)>, Problem> {
        let Some(request) = relaybook_forge::request(&self.repository, intent, etag) else { return Ok(None) };
        let headers = request.headers.iter().filter_map(|(name, value)| header(name, value)).collect();
        let asked = ForgeRequest {
            url: request.url,
            method: request.method,
            headers,
            body: Bytes::from(request.body.unwrap_or_default()),
            login: self.login.clone(),
            tls: self.tls.clone(),
            timeout: TIMEOUT,
            until: self.attempt.clock.until(),
            connect_timeout: CONNECT_TIMEOUT,
            limit: relaybook_forge::MAX_ANSWER,
        };
        let quota = self.quota().await?;
        let answered = self.outside.sender.ask(asked).await;
        let answer = match answered {
            Ok(answer) => answer,
            Err(error) => {
                let (end, problem) = unanswered(&error);
                quota.end(end);
                return Err(problem);
            }
        };
        let given = relaybook_forge::Answer { status: answer.status, headers: &answer.headers, body: &answer.body };
        let meaning = relaybook_forge::meaning(&self.repository, intent, &given);
        let limited = matches!(meaning, Err(relaybook_forge::Error::RateLimited { .. }));
        let limits = relaybook_forge::limits::Limits::of(self.repository.kind(), &answer.headers);
        quota.end(End::Answered { limits, limited });
        match meaning {
            Ok(meaning) => Ok(Some((meaning, relaybook_forge::etag(&given)))),
            Err(error) => {
                let mut problem = of_forge(&error, now());
                problem.message = answer.shown(problem.message.as_bytes());
                Err(problem)
            }
        }
    }

    /// Waits until the budget allows a request.
    async fn quota(&self) -> Result<Given<'_>, Problem> {
        let origin = self.repository.api().origin().ascii_serialization();
        let priority = if self.attempt.is_prompt { Priority::Prompt } else { Priority::Scheduled };
        let latest = since_boot() + LONGEST_WAIT;
        loop {
            match self.outside.budgets.ask(&origin, &self.payer, priority, now()) {
                Quota::Now => {
                    return Ok(Given { budgets: &self.outside.budgets, origin, payer: &self.payer, is_ended: false });
                }
                Quota::Wait(until) => {
                    let wait = Duration::try_from(until.duration_since(now())).unwrap_or_default();
                    if since_boot() + wait > latest {
                        return Err(Problem::rate_limited(until));
                    }
                    self.attempt.clock.pause(tokio::time::sleep(wait.max(Duration::from_millis(10)))).await?;
                }
            }
        }
    }
}

/// A request that the budget allowed. Its end is reported once, also if the attempt is aborted.
struct Given<'a> {
    budgets: &'a Budgets,
    origin: String,
    payer: &'a Payer,
    is_ended: bool,
}

impl Given<'_> {
    fn end(mut self, end: End) {
        self.is_ended = true;
        self.budgets.end(&self.origin, self.payer, end);
    }
}

impl Drop for Given<'_> {
    fn drop(&mut self) {
        if !self.is_ended {
            self.budgets.end(&self.origin, self.payer, End::Unreachable);
        }
    }
}

/// The budgets of all forges. The lock is never held across a request.
#[derive(Default)]
pub(super) struct Budgets(Mutex<budget::Budgets<Payer>>);

impl Budgets {
    fn with<R>(&self, act: impl FnOnce(&mut budget::Budgets<Payer>) -> R) -> R {
        act(&mut lock(&self.0))
    }

    fn ask(&self, origin: &str, payer: &Payer, priority: Priority, now: Time) -> Quota {
        self.with(|budgets| budgets.ask(origin, payer, priority, now))
    }

    fn end(&self, origin: &str, payer: &Payer, end: End) {
        let now = now();
        self.with(|budgets| {
            budgets.end(origin, payer, end, now);
            budgets.forget_idle(now);
        });
    }

    /// Returns how often the pull request of each of `open` promotions can be checked.
    pub(super) fn interval(&self, namespace: &str, of: &PullRequestStrategy, asked: Duration, open: usize) -> Duration {
        let Some(origin) = origin(of) else { return asked };
        // Bitbucket Server says in another answer whether a pull request can be merged.
        let requests = if of.type_ == ForgeType::BitbucketServer { 2 } else { 1 };
        self.with(|budgets| budgets.interval(&origin, &payer(namespace, &of.repository), now(), asked, open, requests))
    }
}

fn header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
}
