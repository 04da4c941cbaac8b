//! Who asks, and a client with exactly the permissions of that person.
//!
//! In: the headers of a request. Out: a [`Caller`], or why there is none. With [`Entry::Own`], everybody who has the address that
//! `relaybook page` printed uses the kubeconfig of the person who runs it. With [`Entry::Tokens`], each request carries a token, in the header
//! `Authorization` or in an encrypted cookie, and the API server decides whose it is.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderValue, Request};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::client::Body;
use kube::{Api, Client};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::access::seal::{LIFE, Seal, SealError, random};
use crate::read::call::call;
use crate::trouble::{Trouble, Wanted};
use relaybook_api::now;
use relaybook_runtime::fair::{Limits, Permits};

/// The name of the cookie with an encrypted token. The prefix makes browsers accept it only from this host, and only with TLS or on this
/// machine.
const COOKIE_NAME: &str = "__Host-relaybook";
/// A token is checked again after this time, also if nothing else is read.
const CHECKED_FOR: Duration = Duration::from_secs(45);
/// How long a token that was accepted is used while the API server cannot be reached.
const TRUSTED_FOR: Duration = Duration::from_mins(10);
/// The prefix of the names of `ServiceAccounts`. Namespace and name follow.
const ACCOUNT: &str = "system:serviceaccount:";
/// How many credentials are checked at once. All that were never accepted share one part.
const CHECKS: Limits = Limits::new(16, 8);
/// Maximum number of callers that are remembered.
const MOST: usize = 256;
/// Maximum length of a token in a cookie, which has at most 4,096 bytes with its name and its encryption.
pub(crate) const IN_COOKIE: usize = 2900;
/// Maximum length of a token in a header. The head of a request has at most 16 KiB.
const IN_HEADER: usize = 12 * 1024;

/// How callers are recognised.
#[derive(Debug)]
pub enum Entry {
    /// The person who runs `relaybook page`.
    Own(Box<Own>),
    /// Everybody with a token of the cluster.
    Tokens(Box<Tokens>),
}

/// The person who runs `relaybook page`, and the secrets of the browser that was opened.
pub struct Own {
    client: Client,
    /// The part of the first address that can be used once.
    ticket: Mutex<Option<SecretString>>,
    session: SecretString,
    cookie: String,
}

/// A client without credentials, and the key of the cookies with tokens.
pub struct Tokens {
    base: Client,
    seal: Seal,
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Own").field("cookie", &self.cookie).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}

/// A person, or a program, with the permissions that the API server gives it.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) client: Client,
    /// A hash of the credentials. What is remembered for one caller is never shown to another.
    pub(crate) key: [u8; 32],
    /// The name, as the API server knows it.
    pub(crate) name: Option<String>,
    /// Whether the caller can sign out.
    pub(crate) has_cookie: bool,
}

/// Who shares limits: a name.
pub(crate) type Person = String;

impl Caller {
    /// Returns with whom a caller shares limits. A person can have many tokens, and anyone who can create a `ServiceAccount` can create
    /// many. So all `ServiceAccounts` of a namespace are one person.
    pub(crate) fn person(&self) -> Person {
        let Some(name) = &self.name else { return hex::encode(self.key) };
        let account = name.strip_prefix(ACCOUNT).and_then(|account| account.split_once(':'));
        account.map_or_else(|| name.clone(), |(namespace, _)| format!("{ACCOUNT}{namespace}"))
    }

    /// Returns what the tokens of forms belong to: the name, because a proxy renews the token of a caller while a form is open.
    pub(crate) fn form_key(&self) -> [u8; 32] {
        self.name.as_ref().map_or(self.key, |name| Sha256::digest(name).into())
    }
}

/// Why a request has no caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoCaller {
    /// It has no credentials.
    Anonymous,
    /// The API server does not accept the credentials, or they cannot be checked.
    Refused(Trouble),
}

/// The callers that the API server has accepted.
pub(crate) struct Known {
    all: Mutex<HashMap<[u8; 32], Accepted>>,
    /// By caller. `None`: not accepted before.
    checks: Permits<Option<[u8; 32]>>,
}

#[derive(Clone)]
struct Accepted {
    client: Client,
    name: Option<String>,
    checked: Instant,
    used: Instant,
}

impl Own {
    /// Creates the secrets of a page that listens on this port, with the client of the person who runs it.
    pub fn new(client: Client, port: u16) -> Result<Self, SealError> {
        let ticket = Mutex::new(Some(SecretString::from(hex::encode(random()?))));
        let session = SecretString::from(hex::encode(random()?));
        // Cookies do not distinguish ports.
        Ok(Self { client, ticket, session, cookie: format!("relaybook-page-{port}") })
    }

    /// Returns the path of the first address.
    pub fn first_path(&self) -> SecretString {
        let ticket = self.ticket.lock();
        SecretString::from(format!("/enter?ticket={}", ticket.as_ref().map_or("", |ticket| ticket.expose_secret())))
    }

    /// Returns the cookie for the browser that has this ticket, and makes the ticket useless.
    pub(crate) fn enter(&self, given: &str) -> Option<String> {
        let mut ticket = self.ticket.lock();
        let is_right = ticket.as_ref().is_some_and(|ticket| is_same(ticket.expose_secret(), given));
        if !is_right {
            return None;
        }
        *ticket = None;
        Some(format!("{}={}; HttpOnly; SameSite=Strict; Path=/", self.cookie, self.session.expose_secret()))
    }
}

impl Tokens {
    /// Creates it from a client that sends no credentials.
    pub fn new(base: Client, seal: Seal) -> Self {
        Self { base, seal }
    }

    /// Returns the key of the tokens in forms.
    pub(crate) fn form_secret(&self) -> &[u8; 32] {
        self.seal.forms()
    }

    /// Returns the cookie with this token.
    pub(crate) fn cookie(&self, token: &SecretString) -> Result<String, SealError> {
        Ok(format!(
            "{COOKIE_NAME}={}; HttpOnly; Secure; SameSite=Strict; Path=/; Max-Age={LIFE}",
            self.seal.close(token, now())?
        ))
    }
}

/// Returns the header value that removes the cookie.
pub(crate) fn no_cookie() -> String {
    format!("{COOKIE_NAME}=; HttpOnly; Secure; SameSite=Strict; Path=/; Max-Age=0")
}

/// Compares two secrets in a time that does not depend on where they differ.
fn is_same(one: &str, other: &str) -> bool {
    Sha256::digest(one) == Sha256::digest(other)
}

/// Reads a token that a person typed or a proxy sent.
pub(crate) fn token(text: &str, longest: usize) -> Option<SecretString> {
    let text = text.trim();
    let text = text.strip_prefix("Bearer ").unwrap_or(text).trim();
    let fits = !text.is_empty() && text.len() <= longest && text.bytes().all(|c| c.is_ascii_graphic());
    fits.then(|| SecretString::from(text.to_owned()))
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

impl Default for Known {
    fn default() -> Self {
        Self { all: Mutex::default(), checks: Permits::new(CHECKS) }
    }
}

impl Known {
    /// Returns the caller of a request.
    pub(crate) async fn caller(&self, entry: &Entry, headers: &HeaderMap) -> Result<Caller, NoCaller> {
        match entry {
            Entry::Own(own) => {
                let session = own.session.expose_secret();
                let given = cookie(headers, &own.cookie).filter(|given| is_same(given, session));
                given.ok_or(NoCaller::Anonymous)?;
                let key: [u8; 32] = Sha256::digest(session).into();
                let accepted = self.accepted(key, || own.client.clone()).await.map_err(NoCaller::Refused)?;
                Ok(Caller { client: accepted.client, key, name: accepted.name, has_cookie: false })
            }
            Entry::Tokens(tokens) => {
                let header = headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
                let (token, has_cookie) = match header {
                    Some(value) => (value.strip_prefix("Bearer ").and_then(|text| token(text, IN_HEADER)), false),
                    None => (cookie(headers, COOKIE_NAME).and_then(|cookie| tokens.seal.open(cookie, now())), true),
                };
                let token = token.ok_or(NoCaller::Anonymous)?;
                self.with_token(tokens, &token, has_cookie).await.map_err(NoCaller::Refused)
            }
        }
    }

    /// Returns the caller with this token, if the API server accepts it.
    pub(crate) async fn with_token(
        &self,
        tokens: &Tokens,
        token: &SecretString,
        has_cookie: bool,
    ) -> Result<Caller, Trouble> {
        let key: [u8; 32] = Sha256::digest(token.expose_secret()).into();
        let accepted = self.accepted(key, || with_token(&tokens.base, token)).await?;
        Ok(Caller { client: accepted.client, key, name: accepted.name, has_cookie })
    }

    /// Has the API server check credentials, unless it did so recently. Only accepted callers are remembered, so nobody can displace them
    /// with invented tokens.
    async fn accepted(&self, key: [u8; 32], client: impl FnOnce() -> Client) -> Result<Accepted, Trouble> {
        let known = match self.known(key) {
            Some((known, true)) => return Ok(known),
            known => known,
        };
        // Nobody without valid credentials delays those who have them.
        let _permit = self.checks.acquire(known.is_some().then_some(key), ()).await;
        // Another request of the same caller may have had them checked.
        let known = match self.known(key) {
            Some((known, true)) => return Ok(known),
            known => known.map(|(known, _)| known),
        };
        let now = Instant::now();
        let client = known.as_ref().map_or_else(client, |known| known.client.clone());
        match name(&client).await {
            Ok(name) => {
                let accepted = Accepted { client, name, checked: now, used: now };
                self.insert(key, accepted.clone());
                Ok(accepted)
            }
            Err(trouble) => match known {
                Some(known) if trouble.is_passing() && now.duration_since(known.checked) < TRUSTED_FOR => Ok(known),
                _ => {
                    self.lock().remove(&key);
                    Err(trouble)
                }
            },
        }
    }

    /// Returns a caller that was accepted before, and whether that was checked recently.
    fn known(&self, key: [u8; 32]) -> Option<(Accepted, bool)> {
        let now = Instant::now();
        let mut all = self.lock();
        let known = all.get_mut(&key)?;
        known.used = now;
        Some((known.clone(), now.duration_since(known.checked) < CHECKED_FOR))
    }

    fn insert(&self, key: [u8; 32], accepted: Accepted) {
        let mut all = self.lock();
        if all.len() >= MOST
            && !all.contains_key(&key)
            && let Some(oldest) = all.iter().min_by_key(|(_, known)| known.used).map(|(key, _)| *key)
        {
            all.remove(&oldest);
        }
        all.insert(key, accepted);
    }

    /// Forgets a caller who has signed out.
    pub(crate) fn forget(&self, key: &[u8; 32]) {
        self.lock().remove(key);
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, HashMap<[u8; 32], Accepted>> {
        self.all.lock()
    }
}

/// Returns the name of the caller. `None`: the API server accepts the caller, but does not say the name.
async fn name(client: &Client) -> Result<Option<String>, Trouble> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let wanted = Wanted::new("create", "selfsubjectreviews", None);
    match call(&wanted, api.create(&PostParams::default(), &SelfSubjectReview::default())).await {
        Ok(review) => Ok(review.status.and_then(|status| status.user_info).and_then(|user| user.username)),
        // Kubernetes before 1.28 does not have it, and a cluster can forbid it.
        Err(Trouble::Forbidden(_) | Trouble::NotInstalled) => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

/// Returns a client that adds this token to each request of another client. Both use the same connections.
fn with_token(base: &Client, token: &SecretString) -> Client {
    let header = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret())).ok().map(|mut value| {
        value.set_sensitive(true);
        value
    });
    let base = base.clone();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let (base, header) = (base.clone(), header.clone());
        async move {
            let header = header.ok_or_else(|| kube::Error::Service("the token cannot be sent".into()))?;
            request.headers_mut().insert(AUTHORIZATION, header);
            base.send(request).await
        }
    });
    Client::new(service, "default")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_people_paste_it() {
        let of = |text: &str| token(text, IN_COOKIE).map(|token| token.expose_secret().to_owned());
        assert_eq!(of("  abc.def\n").as_deref(), Some("abc.def"));
        assert_eq!(of("Bearer abc").as_deref(), Some("abc"));
        for wrong in ["", "a b", "é", "a\r\nX: y", &"a".repeat(IN_COOKIE + 1)] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn all_service_accounts_of_a_namespace_count_as_one_person() {
        let service =
            tower::service_fn(|_: Request<Body>| std::future::pending::<Result<http::Response<Body>, tower::BoxError>>());
        let client = Client::new(service, "default");
        let person = |key: u8, name: Option<&str>| {
            let name = name.map(str::to_owned);
            Caller { client: client.clone(), key: [key; 32], name, has_cookie: false }.person()
        };
        assert_eq!(person(1, Some("ann@example.com")), person(2, Some("ann@example.com")), "two tokens");
        assert_eq!(person(1, Some("system:serviceaccount:a:x")), person(2, Some("system:serviceaccount:a:y")));
        let all = [person(1, None), person(2, None), person(1, Some("ann")), person(1, Some("bob"))];
        let accounts = ["a", "b"].map(|namespace| person(1, Some(&format!("system:serviceaccount:{namespace}:x"))));
        let different: std::collections::HashSet<_> = all.iter().chain(&accounts).collect();
        assert_eq!(different.len(), 6);
    }

    #[test]
    fn a_cookie_is_found_by_its_exact_name() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("a=1; __Host-relaybook=x=y"));
        headers.append(COOKIE, HeaderValue::from_static("b=2"));
        assert_eq!(cookie(&headers, COOKIE_NAME), Some("x=y"));
        assert_eq!((cookie(&headers, "b"), cookie(&headers, "relaybook")), (Some("2"), None));
    }

    #[tokio::test]
    async fn a_ticket_can_be_used_once() {
        let service =
            tower::service_fn(|_: Request<Body>| std::future::pending::<Result<http::Response<Body>, tower::BoxError>>());
        let own = Own::new(Client::new(service, "default"), 4000).unwrap();
        let path = own.first_path();
        let ticket = path.expose_secret().strip_prefix("/enter?ticket=").unwrap();
        assert_eq!(own.enter("wrong"), None);
        let cookie = own.enter(ticket).unwrap();
        assert!(cookie.starts_with("relaybook-page-4000=") && cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
        assert_eq!(own.enter(ticket), None, "it was used");
        assert_eq!(own.enter(""), None);
        assert!(!format!("{own:?}").contains(&cookie[18..30]));
    }
}
