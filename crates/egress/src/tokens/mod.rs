//! Tokens that a server issues for a short time, instead of credentials that a Secret contains as they are.
//!
//! In: what a token is for ([`Key`]), and how it is requested. Out: the token, or why there is none. A token is requested once for all deliveries
//! that wait for it. The request is a task of its own, so a delivery that has no more time does not end it. Tokens are in memory only. A failure
//! is kept for a while, so that a server that issues no token gets few requests.

pub(crate) mod account;
pub(crate) mod github;
pub(crate) mod oauth;
mod request;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::attempt::NotSent;
use relaybook_telemetry::Metrics;
use relaybook_telemetry::metrics::TokenResult;
pub(crate) use request::{bearer, check, check_issuer};

/// Maximum number of tokens.
const MOST: usize = 1024;
/// Maximum number of requests in flight for the Secrets of one namespace.
const MOST_REQUESTS: usize = 64;
/// A token is renewed when this time or a fifth of its life is left, whichever is shorter.
const EARLY: Duration = Duration::from_mins(5);
/// The pause after the first failure, and the longest pause.
const PAUSES: [Duration; 2] = [Duration::from_secs(5), Duration::from_mins(1)];
/// The longest pause that a server can request.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);
/// The end of all requests for one token.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long a delivery waits for a new token if the old one is still valid.
const RENEWAL: Duration = Duration::from_secs(2);
/// A token of this age that is rejected is not replaced at once.
const YOUNG: Duration = Duration::from_mins(1);
/// The longest lifetime that is believed.
const LONGEST_LIFE: Duration = Duration::from_hours(24);
/// Maximum length of a token, in bytes: the longest value of a header.
const LONGEST: usize = 8 * 1024;
/// Maximum length of the answer to a request for a token, in bytes.
const LONGEST_ANSWER: usize = 64 * 1024;

/// What a token is for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The namespace of the Secret. Namespaces share no tokens.
    namespace: String,
    /// A hash of the credentials that the token is requested with, of the server, and of what the token allows.
    hash: [u8; 32],
}

impl Key {
    pub(crate) fn of<'p>(namespace: &str, parts: impl IntoIterator<Item = &'p str>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self { namespace: namespace.to_owned(), hash: hash.finalize().into() }
    }
}

/// A token as it was issued.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) token: SecretString,
    /// How long it is valid from now on.
    pub(crate) lifetime: Duration,
}

/// Why no token was issued.
pub(crate) struct Refused {
    why: NotSent,
    /// How long the server asks to wait. It counts only after an answer that refuses.
    after: Option<Duration>,
    /// Whether the owner of the credentials does not allow the token that is known either.
    is_revoked: bool,
}

impl From<NotSent> for Refused {
    fn from(why: NotSent) -> Self {
        Self { why, after: None, is_revoked: false }
    }
}

impl Refused {
    fn revoked(why: NotSent) -> Self {
        Self { is_revoked: true, ..why.into() }
    }
}

/// A token that a request sends.
#[derive(Clone)]
pub(crate) struct Lent {
    key: Key,
    token: Arc<Valid>,
    /// The token before, if it is still valid.
    before: Option<SecretString>,
    at: Instant,
}

impl Lent {
    pub(crate) fn token(&self) -> &SecretString {
        &self.token.token
    }

    /// The texts that must be masked.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &SecretString> {
        self.before.iter().chain([&self.token.token])
    }
}

/// A token with its times.
struct Valid {
    token: SecretString,
    since: Instant,
    renewal: Instant,
    end: Instant,
}

/// Returns a token, if it can be sent in a header.
fn checked(token: String) -> Option<SecretString> {
    let is_valid = (1..=LONGEST).contains(&token.len()) && token.bytes().all(|byte| matches!(byte, b'!'..=b'~'));
    is_valid.then(|| token.into())
}

/// All tokens.
#[derive(Clone, Default)]
pub(crate) struct Tokens {
    all: Arc<Mutex<HashMap<Key, Entry>>>,
    metrics: Metrics,
}

/// What is known about one token.
struct Entry {
    /// When it was needed last.
    used: Instant,
    token: Option<Arc<Valid>>,
    before: Option<Arc<Valid>>,
    failure: Option<Failure>,
    /// The last request. Its channel is closed when the request is over.
    request: Option<watch::Receiver<()>>,
}

/// The last request failed.
struct Failure {
    why: NotSent,
    /// How many failed in a row.
    count: u32,
    /// When the next request can be made.
    until: Instant,
}

impl Entry {
    fn new(now: Instant) -> Self {
        Self { used: now, token: None, before: None, failure: None, request: None }
    }

    fn in_flight(&self) -> Option<&watch::Receiver<()>> {
        self.request.as_ref().filter(|request| request.has_changed().is_ok())
    }

    fn valid(&self, now: Instant) -> Option<&Arc<Valid>> {
        self.token.as_ref().filter(|token| now < token.end)
    }

    /// Returns the token, if it is valid.
    fn lent(&self, key: &Key, at: Instant) -> Option<Lent> {
        let token = Arc::clone(self.valid(at)?);
        let before = self.before.as_ref().filter(|before| at < before.end).map(|before| before.token.clone());
        Some(Lent { key: key.clone(), token, before, at })
    }

    /// Whether nothing is lost without it.
    fn is_over(&self, now: Instant) -> bool {
        let is_paused = self.failure.as_ref().is_some_and(|failure| now < failure.until);
        !is_paused && self.in_flight().is_none() && self.valid(now).is_none()
    }

    /// Whether a token must be requested.
    fn is_due(&self, now: Instant) -> bool {
        let is_fresh = self.token.as_ref().is_some_and(|token| now < token.renewal);
        let is_paused = self.failure.as_ref().is_some_and(|failure| now < failure.until);
        !is_fresh && !is_paused
    }

    /// Records the end of a request.
    fn end(&mut self, result: Result<Issued, Refused>, now: Instant) {
        match result {
            Ok(Issued { token, lifetime }) => {
                let renewal = now + lifetime.saturating_sub(EARLY.min(lifetime / 5));
                let new = Arc::new(Valid { token, since: now, renewal, end: now + lifetime });
                self.before = self.token.replace(new);
                self.failure = None;
            }
            Err(Refused { why, after, is_revoked }) => {
                self.token.take_if(|_| is_revoked);
                let count = self.failure.as_ref().map_or(0, |failure| failure.count);
                let pause = PAUSES[0].saturating_mul(1 << count.min(16)).min(PAUSES[1]);
                let pause = after.map_or(pause, |after| pause.max(after.min(LONGEST_PAUSE)));
                // Without an answer of the server, such as without a key in the Secret, there is nothing to wait for.
                let (count, pause) = if why.is_of_issuer() { (count.saturating_add(1), pause) } else { (0, Duration::ZERO) };
                self.failure = Some(Failure { why, count, until: now + pause });
            }
        }
    }
}

impl Tokens {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { all: Arc::default(), metrics }
    }

    /// Returns the token for a key. `request`: requests one. It is used only if there is no token, or if the token must be renewed. `step`: what is
    /// requested, for messages. The wait ends at `deadline`, but the request goes on.
    pub(crate) async fn get(
        &self,
        key: Key,
        step: &'static str,
        deadline: Instant,
        request: impl Future<Output = Result<Issued, Refused>> + Send + 'static,
    ) -> Result<Lent, NotSent> {
        if let Some((mut ended, has_token)) = self.requested(&key, step, request)? {
            // A delivery does not wait long for a new token if it can be sent with the old one.
            let limit = if has_token { deadline.min(Instant::now() + RENEWAL) } else { deadline };
            // Both results mean the same: the channel is closed, or there is no more time.
            let _closed = timeout_at(limit, ended.changed()).await;
        }
        self.known(&key, step)
    }

    /// Requests a token, if it must be requested and no request is in flight. Returns the request to wait for, and whether there is a valid
    /// token already.
    fn requested(
        &self,
        key: &Key,
        step: &'static str,
        request: impl Future<Output = Result<Issued, Refused>> + Send + 'static,
    ) -> Result<Option<(watch::Receiver<()>, bool)>, NotSent> {
        let now = Instant::now();
        let mut all = self.all.lock();
        if !all.contains_key(key) && !make_room(&mut all, now) {
            return Err(NotSent::TokenUnanswered(step));
        }
        let entry = all.entry(key.clone()).or_insert_with(|| Entry::new(now));
        entry.used = now;
        if !entry.is_due(now) {
            return Ok(None);
        }
        let has_token = entry.valid(now).is_some();
        if let Some(in_flight) = entry.in_flight() {
            return Ok(Some((in_flight.clone(), has_token)));
        }
        if in_flight(&all, &key.namespace) >= MOST_REQUESTS {
            return if has_token { Ok(None) } else { Err(NotSent::TokenUnanswered(step)) };
        }
        let ended = self.start(key, step, request);
        if let Some(entry) = all.get_mut(key) {
            entry.request = Some(ended.clone());
        }
        Ok(Some((ended, has_token)))
    }

    /// Starts a request. The channel is closed at its end, also if the task ends without a result.
    fn start(
        &self,
        key: &Key,
        step: &'static str,
        request: impl Future<Output = Result<Issued, Refused>> + Send + 'static,
    ) -> watch::Receiver<()> {
        let (open, ended) = watch::channel(());
        let (tokens, key) = (self.clone(), key.clone());
        tokio::spawn(async move {
            let unanswered = |_| Err(NotSent::TokenUnanswered(step).into());
            let result = timeout(TIMEOUT, request).await.unwrap_or_else(unanswered);
            tokens.metrics.token_request(counted(&result));
            if let Some(entry) = tokens.all.lock().get_mut(&key) {
                entry.end(result, Instant::now());
            }
            drop(open);
        });
        ended
    }

    /// Returns the valid token, or why there is none.
    fn known(&self, key: &Key, step: &'static str) -> Result<Lent, NotSent> {
        let all = self.all.lock();
        let entry = all.get(key).ok_or(NotSent::TokenUnanswered(step))?;
        let why = || entry.failure.as_ref().map_or(NotSent::TokenUnanswered(step), |failure| failure.why.clone());
        entry.lent(key, Instant::now()).ok_or_else(why)
    }

    /// Forgets a token that the receiver rejects. Returns whether the next request has another one. A token that was new is not replaced, because
    /// another one would be rejected, too.
    pub(crate) fn forget(&self, lent: &Lent) -> bool {
        if lent.at.saturating_duration_since(lent.token.since) < YOUNG {
            return false;
        }
        if let Some(entry) = self.all.lock().get_mut(&lent.key) {
            entry.token.take_if(|token| Arc::ptr_eq(token, &lent.token));
        }
        true
    }
}

#[cfg(test)]
impl Tokens {
    /// Makes all tokens older.
    pub(crate) fn age(&self, by: Duration) {
        for entry in self.all.lock().values_mut() {
            entry.token = entry.token.take().map(|token| {
                let Valid { since, renewal, end, .. } = *token;
                let since = since.checked_sub(by).unwrap_or(since);
                Arc::new(Valid { token: token.token.clone(), since, renewal, end })
            });
        }
    }
}

/// Returns how a request is counted.
fn counted(result: &Result<Issued, Refused>) -> TokenResult {
    match result {
        Ok(_) => TokenResult::Issued,
        Err(Refused { why, .. }) if why.is_silence() => TokenResult::Unanswered,
        Err(Refused { why, .. }) if why.is_of_issuer() => TokenResult::Refused,
        Err(_) => TokenResult::NotSent,
    }
}

/// Returns the number of requests in flight for the Secrets of a namespace.
fn in_flight(all: &HashMap<Key, Entry>, namespace: &str) -> usize {
    all.iter().filter(|(key, entry)| key.namespace == namespace && entry.in_flight().is_some()).count()
}

/// Makes room for one more token. If there are too many, the least recently used one of the namespace with most tokens goes. Returns `false`
/// if all of them are being requested.
fn make_room(all: &mut HashMap<Key, Entry>, now: Instant) -> bool {
    if all.len() >= MOST {
        all.retain(|_, entry| !entry.is_over(now));
    }
    if all.len() < MOST {
        return true;
    }
    let mut shares: HashMap<&str, usize> = HashMap::new();
    for key in all.keys() {
        *shares.entry(&key.namespace).or_default() += 1;
    }
    let idle = all.iter().filter(|(_, entry)| entry.in_flight().is_none());
    let first = idle.max_by_key(|(key, entry)| (shares.get(key.namespace.as_str()), std::cmp::Reverse(entry.used)));
    let first = first.map(|(key, _)| key.clone());
    first.is_some_and(|key| all.remove(&key).is_some())
}

/// Shows only the number of tokens.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tokens").field(&self.all.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests;
