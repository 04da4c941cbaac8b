//! Sends a request, and waits for the head of its answer. Deliveries and requests to forges share this step.
//!
//! In: the conditions of the request ([`Terms`]), what was read for it ([`Prepared`]), and a function that composes it. Out: the head of
//! the answer, and the [`Exchange`] that the caller finishes after the body; or the reason why there is no answer.

use std::pin::pin;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;

use super::compose::Prepared;
use super::sender::Sender;
use super::timely::Timely;
use crate::attempt::NotSent;
use crate::attempt::failure;
use crate::attempt::failure::NoAnswer;
use crate::client::proxy::Proxy;
use crate::client::tls::Tls;
use crate::client::traffic::Traffic;
use crate::client::{ClientError, Exchange, Http};
use relaybook_api::since_boot;

/// A deadline that is detected this much too late passed while the process was suspended.
const SUSPENDED_AFTER: Duration = Duration::from_millis(50);
/// Time to read an answer that arrived while the process was suspended.
const CATCH_UP: Duration = Duration::from_millis(250);

const UNUSABLE_ENDPOINT_TLS: &str =
    "the certificates of endpoint.tls cannot be used; check that tls.key is the key of tls.crt";
const UNUSABLE_FORGE_TLS: &str = "the certificates of tls cannot be used; check that tls.key is the key of tls.crt";

/// The conditions of one request.
pub struct Terms<'r> {
    /// Which clients send it.
    pub(crate) traffic: Traffic,
    /// The URL whose host and port messages can contain.
    pub(crate) shown: Option<&'r Url>,
    /// Timeout of the whole request.
    pub(crate) timeout: Duration,
    /// Timeout of name resolution, connection and TLS.
    pub(crate) connect_timeout: Duration,
    /// Nothing is sent after this time, by [`since_boot`].
    pub(crate) until: Duration,
    /// The end of `timeout`, and at the latest `until`.
    pub(crate) deadline: Instant,
    /// Maximum number of bytes that are read of the body of the answer.
    pub(crate) limit: usize,
}

/// Returns the end of a request that begins now: after its timeout, and at the latest at `until`, by [`since_boot`].
pub(super) fn deadline(timeout: Duration, until: Duration) -> Instant {
    Instant::now() + until.saturating_sub(since_boot()).min(timeout)
}

/// Waits for a part of an answer until the deadline. If the node was frozen or the machine was suspended at that time, waits a little
/// more: the answer may have arrived, and a retry would repeat the request.
pub(super) async fn in_time<T>(deadline: Instant, part: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut part = pin!(part);
    match timeout_at(deadline, &mut part).await {
        Err(_) if deadline.elapsed() > SUSPENDED_AFTER => timeout(CATCH_UP, part).await,
        result => result,
    }
}

impl Sender {
    /// Sends a request, and returns the head of its answer. `compose` builds the request. Its argument is the proxy, if the proxy forwards
    /// the request itself instead of opening a tunnel.
    pub(super) async fn open(
        &self,
        terms: &Terms<'_>,
        prepared: &Prepared,
        compose: impl FnOnce(Option<&Proxy>) -> Result<Request<Timely>, NotSent>,
    ) -> Result<(Response<Incoming>, Exchange), NoAnswer> {
        let client = self.client(terms, &prepared.tls).await?;
        // For `http`, a proxy forwards the request itself, and answers instead of the receiver.
        let proxy = self.clients.proxy().filter(|_| prepared.url.scheme() == "http");
        let request = compose(proxy).map_err(NoAnswer::NotSent)?;
        if since_boot() >= terms.until {
            return Err(failure::no_answer(terms));
        }
        let mut exchange = Exchange::new(&client, request).expecting(terms.limit);
        let Ok(answer) = in_time(terms.deadline, exchange.head()).await else {
            return Err(failure::no_answer(terms));
        };
        let why = match answer {
            Ok(response) => match proxy {
                Some(proxy) if response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                    failure::proxy_wants_credentials(proxy)
                }
                _ => return Ok((response, exchange)),
            },
            Err(error) => match self.clients.proxy() {
                Some(by) => failure::explain_by_proxy(&error, terms, by, proxy.is_some()),
                None => failure::explain(&error, terms),
            },
        };
        exchange.finish();
        Err(why)
    }

    /// Returns the client for a request.
    async fn client(&self, terms: &Terms<'_>, tls: &Tls) -> Result<Http, NoAnswer> {
        let client = self.clients.get(terms.traffic, terms.connect_timeout, tls);
        match timeout_at(terms.deadline, client).await {
            Err(_) => Err(failure::no_answer(terms)),
            Ok(Ok(client)) => Ok(client),
            Ok(Err(ClientError::Tls(_))) => Err(NoAnswer::NotSent(NotSent::InvalidRequest(match terms.traffic {
                Traffic::Webhooks => UNUSABLE_ENDPOINT_TLS,
                Traffic::Forges => UNUSABLE_FORGE_TLS,
            }))),
            Ok(Err(error)) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the HTTP client cannot be created");
                Err(failure::no_client())
            }
        }
    }
}
