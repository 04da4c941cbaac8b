//! Sends the request of a delivery: reads Secrets, checks the policy, and counts the result. `converse` makes the requests of the attempt.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

use super::compose::{Credentials, Prepared, parsed_url, secret_url};
use super::exchange::deadline;
use super::headers;
use super::outgoing::{Destination, Outgoing};
use super::signing::Signing;
use crate::SendError;
use crate::addresses::origin::Origins;
use crate::addresses::policy::Policy;
use crate::attempt::{Attempt, AttemptResult, NotSent};
use crate::client::proxy::Proxy;
use crate::client::tls::Tls;
use crate::client::{ClientError, Clients};
use crate::look_ups::Commits;
use crate::secrets::Secrets;
use crate::secrets::contents::Contents;
use crate::secrets::redact::Hidden;
use crate::tokens::Tokens;
use crate::tokens::account::Accounts;
use relaybook_api::ObjectName;
use relaybook_api::notification::credentials::{Authorities, TlsRef};
use relaybook_telemetry::Metrics;

/// How long a request waits for the first event of the watch of a Secret.
const SECRET_WAIT: Duration = Duration::from_secs(2);
/// The connect timeout of most requests.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends requests. A clone shares all connections, tokens, and what is known about commits.
#[derive(Clone, Debug)]
pub struct Sender {
    pub(crate) policy: Arc<Policy>,
    pub(super) secrets: Secrets,
    pub(super) clients: Arc<Clients>,
    origins: Origins,
    pub(crate) tokens: Tokens,
    pub(crate) commits: Commits,
    pub(crate) accounts: Option<Accounts>,
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
            tokens: Tokens::new(metrics.clone()),
            commits: Commits::new(metrics.clone()),
            accounts: None,
            metrics,
        })
    }

    /// Returns a sender that requests tokens of ServiceAccounts with this client.
    #[must_use]
    pub fn with_accounts(self, client: kube::Client) -> Self {
        Self { accounts: Some(Accounts::new(client)), ..self }
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
        let (result, step, learned) = match prepared {
            Ok(prepared) => self.converse(&out, &prepared, started, deadline).await,
            Err(why) => (AttemptResult::NotSent(why), None, None),
        };
        let duration = clock.elapsed();
        if !out.is_test {
            self.metrics.attempt(result.class());
            if !matches!(result, AttemptResult::NotSent(_)) {
                self.metrics.request_time(duration);
            }
        }
        Attempt { started, duration, result, step, learned }
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
                let contents = match auth.secret() {
                    Some(secret) => Some(self.read_secret(secret, wait, &mut used).await?),
                    None => None,
                };
                self.credentials(auth, contents.as_deref(), &url, out, deadline, &mut hidden).await?
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
}

/// Returns until when a request waits for the first event of the watch of a Secret.
pub(crate) fn secret_wait(deadline: Instant) -> Instant {
    deadline.min(Instant::now() + SECRET_WAIT)
}
