//! Sends the request of a delivery: reads Secrets, checks the policy, sets headers, and reads the relevant part of the answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::header::LOCATION;
use http::response::Parts;
use http::{HeaderName, HeaderValue};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use url::Url;

use super::body::{Incomplete, READ, Read, beginning};
use super::compose::{self, Credentials, Prepared, parsed_url, secret_url};
use super::exchange::{Terms, deadline};
use super::headers;
use super::outgoing::{Destination, Learned, Outgoing};
use super::signing::Signing;
use crate::SendError;
use crate::addresses::origin::Origins;
use crate::addresses::policy::Policy;
use crate::attempt::{self, Attempt, AttemptResult, Judged, NotSent, failure};
use crate::client::proxy::Proxy;
use crate::client::tls::Tls;
use crate::client::traffic::Traffic;
use crate::client::{ClientError, Clients};
use crate::secrets::Secrets;
use crate::secrets::contents::Contents;
use crate::secrets::redact::{Beginning, Hidden, withheld};
use crate::tokens::Tokens;
use relaybook_api::notification::credentials::{AuthRef, Authorities, TlsRef};
use relaybook_api::values::redirect::redirect_origin;
use relaybook_api::{ObjectName, Time};
use relaybook_settings::answer::{Answer, LONGEST_BODY, Lost, Success};
use relaybook_telemetry::Metrics;

/// How long a request waits for the first event of the watch of a Secret.
const SECRET_WAIT: Duration = Duration::from_secs(2);
/// Number of bytes of the hash of a message's origin.
const ORIGIN: usize = 8;
/// The connect timeout of most requests.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends requests. A clone shares all connections and tokens.
#[derive(Clone, Debug)]
pub struct Sender {
    pub(crate) policy: Arc<Policy>,
    secrets: Secrets,
    pub(super) clients: Arc<Clients>,
    origins: Origins,
    pub(crate) tokens: Tokens,
    pub(super) metrics: Metrics,
}

/// Knows the origins of receivers, also of those whose URL is in a Secret.
#[derive(Clone, Copy, Debug)]
pub struct Receivers<'a> {
    secrets: &'a Secrets,
    origins: &'a Origins,
}

impl Receivers<'_> {
    /// Returns a key that is the same for all destinations at one receiver. It depends on scheme, host and port, and is the same for a
    /// literal URL and for the value of a Secret. It does not reveal the receiver, and each process has another key. The call costs one
    /// parse and one hash, and never waits. It returns `None` while the Secret is unknown or contains no URL.
    #[must_use]
    pub fn origin(&self, destination: &Destination) -> Option<String> {
        match destination {
            Destination::Url(url) => Some(self.origins.key(url)),
            Destination::Secret(key) => {
                let contents = self.secrets.now(&key.secret()).ok()?;
                Some(self.origins.key(&parsed_url(&contents, key).ok()?))
            }
        }
    }
}

impl Sender {
    /// Creates a sender without a proxy, independent of the environment. It trusts the CA certificates of the system. Fails without a
    /// process-wide TLS provider, or without CA certificates.
    pub fn new(policy: Policy, secrets: Secrets, metrics: Metrics) -> Result<Self, SendError> {
        Self::through(None, policy, secrets, metrics)
    }

    /// Creates a sender that uses this proxy for all requests, if one is given. The proxy resolves the names of receivers. So the policy
    /// can check only addresses that the URL itself contains.
    pub fn through(proxy: Option<Proxy>, policy: Policy, secrets: Secrets, metrics: Metrics) -> Result<Self, SendError> {
        Self::trusting(Vec::new(), proxy, policy, secrets, metrics)
    }

    /// Like [`Sender::through`], but also trusts these CA certificates.
    pub(crate) fn trusting(
        roots: Vec<CertificateDer<'static>>,
        proxy: Option<Proxy>,
        policy: Policy,
        secrets: Secrets,
        metrics: Metrics,
    ) -> Result<Self, SendError> {
        let provider = CryptoProvider::get_default().ok_or(SendError::NoTlsProvider)?;
        let policy = Arc::new(policy);
        let unusable = |error: ClientError| SendError::Client(Box::new(error));
        let clients = Clients::new(Arc::clone(&policy), proxy, roots, CONNECT_TIMEOUT).map_err(unusable)?;
        Ok(Self {
            policy,
            secrets,
            clients: Arc::new(clients),
            origins: Origins::new(provider)?,
            tokens: Tokens::default(),
            metrics,
        })
    }

    /// Returns what knows the origins of receivers.
    #[must_use]
    pub fn receivers(&self) -> Receivers<'_> {
        Receivers { secrets: &self.secrets, origins: &self.origins }
    }

    /// Sends one request, and counts its result. The call ends at its timeout, independent of the receiver. If the process was suspended at
    /// that time, the call waits up to 250 ms more for an answer that may already have arrived.
    ///
    /// The Secret is read when the request is sent. A watch keeps its value current, so a second read after a 401 or 403 would return the
    /// same value. Instead, the result contains whether the value has changed since (`rotated`).
    pub async fn send(&self, out: Outgoing) -> Attempt {
        let deadline = deadline(out.timeout, out.until);
        let prepared = self.prepare(&out, deadline).await;
        let (started, clock) = (relaybook_api::now(), Instant::now());
        let (result, learned) = match prepared {
            Ok(prepared) => self.converse(&out, prepared, started, deadline).await,
            Err(why) => (AttemptResult::NotSent(why), None),
        };
        let duration = clock.elapsed();
        if !out.is_test {
            self.metrics.attempt(result.class());
            if !matches!(result, AttemptResult::NotSent(_)) {
                self.metrics.request_time(duration);
            }
        }
        Attempt { started, duration, result, learned }
    }

    /// Reads the Secrets and checks the policy.
    async fn prepare(&self, out: &Outgoing, deadline: Instant) -> Result<Prepared, NotSent> {
        let wait = secret_wait(deadline);
        let mut hidden = self.hidden(out.hidden.clone(), &out.headers);
        let mut used = Vec::new();
        let url = match &out.destination {
            Destination::Url(url) => {
                self.policy.url(url)?;
                url.clone()
            }
            Destination::Secret(key) => {
                secret_url(&*self.read_secret(key.secret(), wait, &mut used).await?, key, &self.policy, &mut hidden)?
            }
        };
        let headers = match &out.headers_from {
            None => Vec::new(),
            Some(name) => headers::read(&*self.read_secret(name.clone(), wait, &mut used).await?, name, &mut hidden)?,
        };
        let signing = match &out.signing {
            None => Signing::default(),
            Some(signing) => {
                let contents = self.read_secret(signing.secret.clone(), wait, &mut used).await?;
                Signing::read(&contents, signing, &mut hidden)?
            }
        };
        let tls = self.tls(&out.tls, wait, &mut used).await?;
        // A token is requested last, because a request cannot be sent without the others.
        let (credentials, lent) = match &out.auth {
            None => (Credentials::None, None),
            Some(auth) => {
                let contents = self.read_secret(auth.secret(), wait, &mut used).await?;
                self.credentials(auth, &contents, &url, out, deadline, &mut hidden).await?
            }
        };
        Ok(Prepared { url, credentials, headers, signing, tls, hidden, used, lent })
    }

    /// Adds the credentials of the proxy and the sensitive headers of a request to its secrets.
    pub(super) fn hidden(&self, mut hidden: Hidden, headers: &[(HeaderName, HeaderValue)]) -> Hidden {
        self.clients.proxy().inspect(|proxy| proxy.hide(&mut hidden));
        for text in headers.iter().filter(|(_, value)| value.is_sensitive()).filter_map(|(_, value)| value.to_str().ok()) {
            hidden.add_header(text);
        }
        hidden
    }

    /// Reads the trusted CA certificates and the client certificate.
    pub(crate) async fn tls(
        &self,
        wanted: &TlsRef,
        wait: Instant,
        used: &mut Vec<(ObjectName, Arc<Contents>)>,
    ) -> Result<Tls, NotSent> {
        let mut tls = Tls::default();
        match &wanted.authorities {
            Authorities::System => {}
            Authorities::Pem(pem) => tls.trust(Arc::clone(pem)),
            Authorities::Secret(key) => tls.trust_secret(&*self.read_secret(key.secret(), wait, used).await?, key)?,
        }
        if let Some(name) = &wanted.client_certificate {
            tls.identify(&*self.read_secret(name.clone(), wait, used).await?, name)?;
        }
        if wanted.skip_verify {
            tls.skip_verify();
        }
        Ok(tls)
    }

    /// Reads a Secret and adds it to `used`.
    pub(super) async fn read_secret(
        &self,
        name: ObjectName,
        wait: Instant,
        used: &mut Vec<(ObjectName, Arc<Contents>)>,
    ) -> Result<Arc<Contents>, NotSent> {
        let contents = self.secrets.read(&name, wait).await?;
        used.push((name, Arc::clone(&contents)));
        Ok(contents)
    }

    /// Sends the request that continues the message, if there is one. Otherwise, or if the message no longer exists, it sends the first
    /// request. Both are one attempt with one timeout.
    async fn converse(
        &self,
        out: &Outgoing,
        mut prepared: Prepared,
        started: Time,
        deadline: Instant,
    ) -> (AttemptResult, Option<Learned>) {
        let Some(thread) = &out.thread else {
            return (self.exchange(out, None, &prepared, started, deadline).await.result, None);
        };
        let origin = message_origin(out, &prepared.url);
        let learned = |is_later, values| Some(Learned { origin: origin.clone(), is_later, values });
        if let Some(later) = thread.later.as_ref().filter(|later| later.origin == origin) {
            let request = Outgoing { method: later.method, body: later.body.clone(), ..out.clone() };
            let url = later.path.as_ref().map_or_else(|| prepared.url.clone(), |path| path.applied_to(&prepared.url));
            let first = std::mem::replace(&mut prepared.url, url);
            let exchanged = self.exchange(&request, Some(&later.lost), &prepared, started, deadline).await;
            if !exchanged.is_lost {
                return (exchanged.result, learned(true, exchanged.remembered));
            }
            prepared.url = first;
        }
        let exchanged = self.exchange(out, None, &prepared, started, deadline).await;
        (exchanged.result, learned(false, exchanged.remembered))
    }

    /// Sends the request and reads the answer. `lost`: whether an answer says that the message no longer exists.
    async fn exchange(
        &self,
        out: &Outgoing,
        lost: Option<&Lost>,
        prepared: &Prepared,
        started: Time,
        deadline: Instant,
    ) -> Exchanged {
        let reads_body = out.success.as_ref().is_some_and(Success::reads_body)
            || out.thread.as_ref().is_some_and(|thread| thread.remember.reads_body())
            || lost.is_some_and(Lost::reads_body);
        let terms = Terms {
            traffic: Traffic::Webhooks,
            shown: out.destination.literal(),
            timeout: out.timeout,
            connect_timeout: out.connect_timeout,
            until: out.until,
            deadline,
            limit: if reads_body { LONGEST_BODY } else { READ },
        };
        let opened = self.open(&terms, prepared, |proxy| compose::delivery(out, prepared, started, proxy)).await;
        let (response, exchange) = match opened {
            Ok(opened) => opened,
            Err(why) => return AttemptResult::from(why).into(),
        };
        let (parts, body) = response.into_parts();
        let read = beginning(body, terms.limit, deadline).await;
        if !read.is_late() {
            exchange.finish();
        }
        let answer = Answer { status: parts.status.as_u16(), headers: &parts.headers, body: &read.body.bytes };
        let remembered = remembered(&answer, &read, out, prepared);
        // A part of a body is not judged as if it were the whole.
        let is_lost = lost.is_some_and(|lost| (read.lacks.is_none() || !lost.reads_body()) && lost.is_lost(&answer));
        Exchanged { result: self.answered(&parts, read, out, prepared, &terms), remembered, is_lost }
    }

    /// Returns the result for this answer.
    fn answered(&self, head: &Parts, read: Read, out: &Outgoing, prepared: &Prepared, terms: &Terms<'_>) -> AttemptResult {
        let success = out.success.as_ref();
        let needs_body = success.is_some_and(Success::needs_body) && head.status.is_success();
        match read.lacks.filter(|_| needs_body) {
            None | Some(Incomplete::TooLarge) => {}
            Some(Incomplete::Late) => return failure::late_body(terms).into(),
            Some(Incomplete::Broken) => return failure::broken_body(terms).into(),
        }
        let status = head.status.as_u16();
        let answer = Answer { status, headers: &head.headers, body: &read.body.bytes };
        // A part of a body is not judged as if it were the whole.
        let can_judge = |success: &&Success| read.lacks.is_none() || !success.reads_body();
        let judged = attempt::judged(success.filter(can_judge), &answer);
        let retry_after = attempt::requested(status, judged.as_ref(), &head.headers);
        let redirect = redirected(head, prepared).filter(|_| !out.withhold_answer);
        let body = read.body.first(READ);
        let body = if out.withhold_answer { withheld(&body) } else { prepared.hidden.shown(&body) };
        let is_401 = judged.as_ref().map_or(Some(status), Judged::status) == Some(401);
        let is_replaced = is_401 && prepared.lent.as_ref().is_some_and(|lent| self.tokens.forget(lent));
        let rotated = is_replaced || prepared.used.iter().any(|(name, then)| self.secrets.differs(name, then));
        AttemptResult::Answered { status, judged, retry_after, redirect, body, rotated }
    }
}

/// The result of one request, and what its answer says about the message.
struct Exchanged {
    result: AttemptResult,
    remembered: BTreeMap<String, String>,
    /// Whether the message no longer exists.
    is_lost: bool,
}

impl From<AttemptResult> for Exchanged {
    fn from(result: AttemptResult) -> Self {
        Self { result, remembered: BTreeMap::new(), is_lost: false }
    }
}

/// Returns the values of an answer that are remembered, if the answer can be kept. A value with a secret of the request is left out.
fn remembered(answer: &Answer<'_>, read: &Read, out: &Outgoing, prepared: &Prepared) -> BTreeMap<String, String> {
    let Some(thread) = out.thread.as_ref().filter(|_| !out.withhold_answer) else { return BTreeMap::new() };
    if read.lacks.is_some() && thread.remember.reads_body() {
        return BTreeMap::new();
    }
    let mut values = thread.remember.values(answer);
    values.retain(|_, value| !prepared.hidden.is_in(value));
    values
}

/// Returns a hash of the place where a message is: the origin of the URL, and the keys of Secrets with the credentials. A URL from a Secret counts
/// as a whole. The hash is visible, and that of the host alone would confirm a guess.
fn message_origin(out: &Outgoing, url: &Url) -> String {
    let place = match &out.destination {
        Destination::Url(_) => url.origin().ascii_serialization(),
        Destination::Secret(key) => format!("{key}\n{url}"),
    };
    let keys = out.auth.iter().flat_map(AuthRef::keys).map(|key| format!("\n{key}"));
    let keys = keys.chain(out.headers_from.iter().map(|name| format!("\n{name}")));
    hex::encode(&Sha256::digest(place + &keys.collect::<String>())[..ORIGIN])
}

/// Returns the origin to which an answer redirects. It is empty if this is the origin of the request.
fn redirected(head: &Parts, prepared: &Prepared) -> Option<String> {
    let location = head.headers.get(LOCATION).filter(|_| head.status.is_redirection())?;
    let origin = redirect_origin(location.to_str().ok()?, Some(&prepared.url))?;
    if origin == prepared.url.origin().ascii_serialization() {
        return Some(String::new());
    }
    Some(prepared.hidden.shown(&Beginning { bytes: origin.into_bytes(), cut: false }))
}

/// Returns until when a request waits for the first event of the watch of a Secret.
pub(crate) fn secret_wait(deadline: Instant) -> Instant {
    deadline.min(Instant::now() + SECRET_WAIT)
}
