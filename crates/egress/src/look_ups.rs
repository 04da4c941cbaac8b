//! What forges say about commits, for messages that can do without it.
//!
//! In: a commit at a forge that the global configuration names ([`LookUp`]), and which parts are wanted. Out: short texts ([`LookedUp`]), within a
//! given time, and never an error. A part that is not known in time is empty. An answer is in memory only. A commit is asked for once for all
//! messages that wait for it. The request is a task of its own, so a message that has no more time does not end it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use url::Url;

use crate::request::forge::{Answer, AppScope, ForgeRequest, Login, Unanswered};
use crate::request::sender::Sender;
use relaybook_api::notification::credentials::{Authorities, TlsRef};
use relaybook_api::values::looked_up::{LookUps, LookedUp};
use relaybook_api::values::repository;
use relaybook_api::{ObjectName, now, since_boot};
use relaybook_forge::budget::{Budgets, End, PER_HOUR, Priority, Quota};
use relaybook_forge::limits::Limits;
use relaybook_forge::look_up::{self, Found, Question};
use relaybook_forge::{Error, Kind, Repository};
use relaybook_settings::render::LookUp;
use relaybook_telemetry::Metrics;
use relaybook_telemetry::metrics::LookUpResult;

/// Maximum number of answers that are kept.
const MOST: usize = 4096;
/// How long it is believed that a forge does not know a commit. Its pull request can be new.
const UNKNOWN: Duration = Duration::from_mins(10);
/// How long a pull request is believed. Its title can change, and another one can be merged as the same commit.
const CHANGES: Duration = Duration::from_hours(1);
/// How long a failure is kept.
const FAILED: Duration = Duration::from_mins(1);
/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of name resolution, connection and TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a request waits for the budget.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// How often the budget is asked in this time. The end of another request makes room.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// How a question ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Found(Found),
    NotFound,
    Failed,
    Skipped,
}

impl Told {
    fn found(&self) -> Option<Found> {
        if let Self::Found(found) = self { Some(found.clone()) } else { None }
    }
}

/// What is known about the answer to a request.
enum State {
    /// The request is being made. The channel has the result at its end.
    Asking(watch::Receiver<Option<Told>>),
    /// The answer, and until when it is believed. `None`: for ever.
    Known(Option<Found>, Option<Instant>),
}

struct Entry {
    state: State,
    /// When it was wanted last.
    used: Instant,
}

impl Entry {
    /// Whether it says nothing any more: the time of an answer is over, or a request ended without a result.
    fn is_over(&self, now: Instant) -> bool {
        match &self.state {
            State::Asking(told) => told.has_changed().is_err(),
            State::Known(_, until) => until.is_some_and(|until| until <= now),
        }
    }
}

/// What is known about commits, by the URL of the request, and the budgets of the forges.
#[derive(Clone, Default)]
pub(crate) struct Commits {
    all: Arc<Mutex<HashMap<Url, Entry>>>,
    budgets: Arc<Mutex<Budgets<ObjectName>>>,
    metrics: Metrics,
}

impl Commits {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { metrics, ..Self::default() }
    }

    /// Returns what is known about a request, or the channel with its result. `begin`: makes the request, if nobody does.
    fn get(
        &self,
        url: &Url,
        now: Instant,
        begin: impl FnOnce() -> watch::Receiver<Option<Told>>,
    ) -> Result<Option<Found>, watch::Receiver<Option<Told>>> {
        let mut all = self.all.lock();
        if let Some(entry) = all.get_mut(url).filter(|entry| !entry.is_over(now)) {
            entry.used = now;
            return match &entry.state {
                State::Asking(told) => Err(told.clone()),
                State::Known(found, _) => Ok(found.clone()),
            };
        }
        if !all.contains_key(url) && all.len() >= MOST {
            make_room(&mut all, now);
        }
        let told = begin();
        all.insert(url.clone(), Entry { state: State::Asking(told.clone()), used: now });
        Err(told)
    }

    /// Keeps the result of a request.
    fn end(&self, url: &Url, told: &Told, now: Instant) {
        let known = match told {
            Told::Found(Found::Commit(_)) => Some((told.found(), None)),
            Told::Found(Found::PullRequest(_)) => Some((told.found(), Some(now + CHANGES))),
            Told::NotFound => Some((None, Some(now + UNKNOWN))),
            Told::Failed => Some((None, Some(now + FAILED))),
            Told::Skipped => None,
        };
        let mut all = self.all.lock();
        if let Some((found, until)) = known {
            all.insert(url.clone(), Entry { state: State::Known(found, until), used: now });
        } else {
            all.remove(url);
        }
    }

    /// Waits until the budget allows a request. Returns `false` if that takes too long. Otherwise the caller reports the end.
    async fn may_ask(&self, origin: &str, secret: &ObjectName) -> bool {
        let latest = Instant::now() + LONGEST_WAIT;
        loop {
            let time = now();
            let quota = self.budgets.lock().ask(origin, secret, Priority::Aside, time);
            let Quota::Wait(until) = quota else { return true };
            let wait = Duration::try_from(until.duration_since(time)).unwrap_or_default();
            if Instant::now() + wait > latest {
                return false;
            }
            sleep(wait.min(ASK_AGAIN)).await;
        }
    }

    fn ended(&self, origin: &str, secret: &ObjectName, end: End) {
        let time = now();
        let mut budgets = self.budgets.lock();
        budgets.end(origin, secret, end, time);
        budgets.forget_idle(time);
    }
}

/// Removes what says nothing any more, or else the answer that was not wanted for the longest time.
fn make_room(all: &mut HashMap<Url, Entry>, now: Instant) {
    all.retain(|_, entry| !entry.is_over(now));
    if all.len() >= MOST {
        let known = all.iter().filter(|(_, entry)| matches!(entry.state, State::Known(..)));
        let oldest = known.min_by_key(|(_, entry)| entry.used).map(|(url, _)| url.clone());
        if let Some(url) = oldest {
            all.remove(&url);
        }
    }
}

/// Shows only the number of answers.
impl fmt::Debug for Commits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Commits").field(&self.all.lock().len()).finish()
    }
}

impl Sender {
    /// Returns what a forge says about a commit, as far as it is wanted and known within `wait`.
    pub async fn look_up(&self, of: &LookUp, wanted: LookUps, wait: Duration) -> LookedUp {
        let deadline = Instant::now() + wait;
        let ask = move |question, is_wanted: bool| async move {
            if is_wanted { self.found_about(of, question, deadline).await } else { None }
        };
        let (commit, pull_request) =
            tokio::join!(ask(Question::Commit, wanted.commit), ask(Question::PullRequest, wanted.pull_request));
        let mut looked_up = LookedUp::default();
        for found in [commit, pull_request].into_iter().flatten() {
            match found {
                Found::Commit(commit) => looked_up.commit = commit,
                Found::PullRequest(pull_request) => looked_up.pull_request = pull_request,
            }
        }
        looked_up
    }

    /// Returns the answer to one question, and counts it.
    async fn found_about(&self, of: &LookUp, question: Question, deadline: Instant) -> Option<Found> {
        let (found, result) = self.answer_about(of, question, deadline).await;
        self.commits.metrics.look_up(result);
        found
    }

    async fn answer_about(&self, of: &LookUp, question: Question, deadline: Instant) -> (Option<Found>, LookUpResult) {
        let Some((repository, request)) = prepared(of, question) else { return (None, LookUpResult::Failed) };
        let url = request.url.clone();
        let begin = || {
            let (tell, told) = watch::channel(None);
            let (sender, of) = (self.clone(), of.clone());
            tokio::spawn(async move {
                let url = request.url.clone();
                let end = sender.asked(&of, &repository, question, request).await;
                sender.commits.end(&url, &end, Instant::now());
                tell.send_replace(Some(end));
            });
            told
        };
        let mut told = match self.commits.get(&url, Instant::now(), begin) {
            Ok(found) => return (found, LookUpResult::Cached),
            Err(told) => told,
        };
        let told = timeout_at(deadline, told.wait_for(Option::is_some))
            .await
            .map(|told| told.ok().and_then(|told| (*told).clone()));
        match told {
            Ok(Some(Told::Found(found))) => (Some(found), LookUpResult::Found),
            Ok(Some(Told::NotFound)) => (None, LookUpResult::NotFound),
            Ok(Some(Told::Skipped)) => (None, LookUpResult::Skipped),
            Ok(Some(Told::Failed) | None) => (None, LookUpResult::Failed),
            Err(_) => (None, LookUpResult::Late),
        }
    }

    /// Asks the forge, if its budget allows it.
    async fn asked(
        &self,
        of: &LookUp,
        repository: &Repository,
        question: Question,
        request: relaybook_forge::Request,
    ) -> Told {
        let origin = repository.api().origin().ascii_serialization();
        if !self.commits.may_ask(&origin, &of.secret).await {
            return Told::Skipped;
        }
        let answer = match self.ask(to_forge(of, repository, request)).await {
            Ok(answer) => answer,
            Err(why) => {
                let (end, told) = match &why {
                    Unanswered::Failed(_) => (End::Unreachable, Told::Failed),
                    // Such as a Secret that cannot be used, or no token for an app. It is tried as rarely as a forge that does not answer.
                    Unanswered::NotSent(_) => (End::Unreachable, Told::Skipped),
                    Unanswered::TooLarge(_) => (ANSWERED, Told::Failed),
                };
                self.commits.ended(&origin, &of.secret, end);
                tracing::debug!(error = %why, repository = %of.url, "could not look up a commit; messages are sent without it");
                return told;
            }
        };
        let given = relaybook_forge::Answer { status: answer.status, headers: &answer.headers, body: &answer.body };
        let found = look_up::found(repository, question, &of.hash, &given);
        let limited = matches!(found, Err(Error::RateLimited { .. }));
        let limits = Limits::of(repository.kind(), &answer.headers);
        // Other programs use the same credentials, so messages never use more requests than this.
        let per_hour = limits.per_hour.map(|per_hour| per_hour.min(PER_HOUR));
        self.commits.ended(&origin, &of.secret, End::Answered { limits: Limits { per_hour, ..limits }, limited });
        match found {
            Ok(Some(found)) if !repeats_secret(&answer, &found) => Told::Found(found),
            Ok(Some(_)) => Told::Failed,
            Ok(None) => Told::NotFound,
            Err(error) => {
                let error = answer.shown(error.to_string().as_bytes());
                tracing::debug!(%error, repository = %of.url, "could not look up a commit; messages are sent without it");
                Told::Failed
            }
        }
    }
}

/// The end of a request that says nothing about the limits of the forge.
const ANSWERED: End = End::Answered {
    limits: Limits { limit: None, per_hour: None, remaining: None, reset: None, retry: None },
    limited: false,
};

/// Returns the repository, and the request without credentials. `None`: the URL of the API is none of such a forge.
fn prepared(of: &LookUp, question: Question) -> Option<(Repository, relaybook_forge::Request)> {
    let api = of.api_url.as_deref().map(Url::parse).transpose().ok()?;
    let repository = Repository::new(Kind::from(of.type_), &Url::parse(&of.url).ok()?, api.as_ref()).ok()?;
    let request = look_up::request(&repository, question, &of.hash)?;
    Some((repository, request))
}

/// Adds the credentials to a request.
fn to_forge(of: &LookUp, repository: &Repository, request: relaybook_forge::Request) -> ForgeRequest {
    let credential = repository.kind().credential();
    let header =
        |(name, value): &(&str, String)| Some((HeaderName::try_from(*name).ok()?, HeaderValue::try_from(value).ok()?));
    let authorities = of.authorities.clone().map_or(Authorities::System, Authorities::Secret);
    ForgeRequest {
        url: request.url,
        method: request.method,
        headers: request.headers.iter().filter_map(header).collect(),
        body: Bytes::new(),
        login: Some(Login::Token {
            secret: of.secret.clone(),
            header: HeaderName::from_static(credential.header),
            scheme: credential.prefix.trim_end(),
            app: scope(repository).map(Arc::new),
        }),
        tls: TlsRef { authorities, ..TlsRef::default() },
        timeout: TIMEOUT,
        until: since_boot() + TIMEOUT,
        connect_timeout: CONNECT_TIMEOUT,
        limit: look_up::MAX_ANSWER,
    }
}

/// Returns what a token of a GitHub App is for: to read one repository. `None`: the forge has no such apps.
fn scope(at: &Repository) -> Option<AppScope> {
    let [owner, name] = at.path() else { return None };
    let api = at.api().as_str().trim_end_matches('/').to_owned();
    let repository = repository::Repository { api, owner: owner.clone(), name: name.clone() };
    let permissions = ["contents", "pull_requests"].map(|name| (name.to_owned(), "read".to_owned())).into();
    (at.kind() == Kind::Github).then_some(AppScope { repository, permissions })
}

/// Whether the texts of an answer contain the credentials of the request. A message would show them to its receiver.
fn repeats_secret(answer: &Answer, found: &Found) -> bool {
    let texts = match found {
        Found::Commit(commit) => [&commit.author, &commit.message, &commit.time],
        Found::PullRequest(pull_request) => [&pull_request.title, &pull_request.url, &pull_request.author],
    };
    texts.iter().any(|text| answer.repeats_secret(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::values::looked_up::{CommitInfo, PullRequestInfo};

    fn url(number: usize) -> Url {
        format!("https://api.github.com/repos/acme/web/git/commits/{number}").parse().unwrap()
    }

    fn found(author: &str) -> Found {
        Found::Commit(CommitInfo { author: author.to_owned(), ..CommitInfo::default() })
    }

    /// What is known, and the requests that have not ended.
    #[derive(Default)]
    struct World {
        commits: Commits,
        open: Vec<watch::Sender<Option<Told>>>,
    }

    impl World {
        /// Asks for a commit. Returns what is known, or whether a request begins.
        fn get(&mut self, number: usize, now: Instant) -> Result<Option<Found>, bool> {
            let before = self.open.len();
            let begin = || {
                let (tell, told) = watch::channel(None);
                self.open.push(tell);
                told
            };
            let known = self.commits.get(&url(number), now, begin);
            known.map_err(|_| self.open.len() > before)
        }
    }

    #[test]
    fn an_answer_is_kept_as_long_as_it_is_believed() {
        let start = Instant::now();
        for (told, kept) in [
            (Told::Found(found("Ada")), Duration::MAX),
            (Told::Found(Found::PullRequest(PullRequestInfo::default())), CHANGES),
            (Told::NotFound, UNKNOWN),
            (Told::Failed, FAILED),
            (Told::Skipped, Duration::ZERO),
        ] {
            let mut world = World::default();
            assert_eq!(world.get(1, start), Err(true), "nobody asks yet");
            assert_eq!(world.get(1, start), Err(false), "one request for all");
            world.commits.end(&url(1), &told, start);
            let known = told.found();
            for (later, is_kept) in [(kept / 2, kept > Duration::ZERO), (kept, kept == Duration::MAX)] {
                let now = start + later.min(Duration::from_hours(1000));
                let expected = if is_kept { Ok(known.clone()) } else { Err(true) };
                assert_eq!(world.get(1, now), expected, "{told:?} after {later:?}");
                if told == Told::Skipped {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_request_that_ended_without_a_result_is_repeated() {
        let mut world = World::default();
        let now = Instant::now();
        assert_eq!(world.get(1, now), Err(true));
        world.open.clear();
        assert_eq!(world.get(1, now), Err(true));
    }

    #[test]
    fn the_answer_that_was_not_wanted_for_the_longest_time_makes_room() {
        let (mut world, mut now) = (World::default(), Instant::now());
        for number in 0..MOST {
            now += Duration::from_millis(1);
            assert_eq!(world.get(number, now), Err(true));
            world.commits.end(&url(number), &Told::Found(found("Ada")), now);
        }
        now += Duration::from_millis(1);
        assert!(world.get(0, now).is_ok(), "it is wanted again");
        assert_eq!(world.get(MOST, now), Err(true));
        assert_eq!(world.commits.all.lock().len(), MOST);
        assert!(world.get(0, now).is_ok());
        assert_eq!(world.get(1, now), Err(true), "it was forgotten");
    }

    #[tokio::test]
    async fn many_commits_do_not_exceed_the_budget() {
        let (commits, secret) = (Commits::default(), ObjectName::new("relaybook-system", "forge"));
        let mut made = 0;
        for _ in 0..2000 {
            if !commits.may_ask("https://api.github.com", &secret).await {
                break;
            }
            made += 1;
            commits.ended("https://api.github.com", &secret, ANSWERED);
        }
        assert!(made <= PER_HOUR, "{made}");
        assert!(commits.may_ask("https://api.github.com", &ObjectName::new("relaybook-system", "other")).await);
    }
}
