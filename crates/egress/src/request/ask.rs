//! Sends a request to a forge or its Git server, and reads the whole answer.
//!
//! In: a [`ForgeRequest`]. Out: an [`Answer`], or why there is none. It uses the same connections, egress policy, TLS and proxy as
//! deliveries, but its own HTTP clients, and it is not counted as an attempt of a delivery.

use http::StatusCode;
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

use super::body::{Incomplete, whole};
use super::compose::{self, Credentials, Prepared};
use super::exchange::{Terms, deadline};
use super::forge::{Answer, ForgeRequest, Login, Unanswered};
use super::sender::{Sender, secret_wait};
use super::signing::Signing;
use crate::attempt::{NotSent, failure};
use crate::client::traffic::Traffic;
use crate::secrets::contents::Contents;
use crate::secrets::redact::Hidden;
use crate::tokens::github::App;
use crate::tokens::{self, Lent};
use relaybook_api::notification::credentials::{SecretKey, TOKEN};
use relaybook_telemetry::metrics::RequestClass;

impl Sender {
    /// Sends one request, and counts its result. The call ends at its timeout, independent of the server. If the process was suspended at
    /// that time, the call waits up to 250 ms more for each of head and body, which may already have arrived.
    pub async fn ask(&self, asked: ForgeRequest) -> Result<Answer, Unanswered> {
        let result = self.whole_answer(&asked, deadline(asked.timeout, asked.until)).await;
        self.metrics.forge_request(class(&result));
        result
    }

    pub(crate) async fn whole_answer(&self, asked: &ForgeRequest, deadline: Instant) -> Result<Answer, Unanswered> {
        let prepared = self.prepare_login(asked, deadline).await.map_err(Unanswered::NotSent)?;
        let terms = Terms {
            traffic: Traffic::Forges,
            shown: Some(&asked.url),
            timeout: asked.timeout,
            connect_timeout: asked.connect_timeout,
            until: asked.until,
            deadline,
            limit: asked.limit,
        };
        let (response, exchange) = self.open(&terms, &prepared, |proxy| compose::to_forge(asked, &prepared, proxy)).await?;
        let (head, body) = response.into_parts();
        let body = whole(body, asked.limit, deadline).await;
        if body != Err(Incomplete::Late) {
            exchange.finish();
        }
        let body = body.map_err(|why| match why {
            Incomplete::Late => failure::late_body(&terms).into(),
            Incomplete::Broken => failure::broken_body(&terms).into(),
            Incomplete::TooLarge => Unanswered::TooLarge(asked.limit),
        })?;
        if head.status == StatusCode::UNAUTHORIZED
            && let Some(lent) = &prepared.lent
        {
            // The next request has another token.
            self.tokens.forget(lent);
        }
        Ok(Answer::new(head.status.as_u16(), head.headers, body, prepared.hidden))
    }

    /// Checks the policy and reads the Secrets.
    async fn prepare_login(&self, asked: &ForgeRequest, deadline: Instant) -> Result<Prepared, NotSent> {
        self.policy.url(&asked.url)?;
        let (wait, mut used) = (secret_wait(deadline), Vec::new());
        let mut hidden = self.hidden(Hidden::default(), &asked.headers);
        let (mut credentials, mut lent) = (Credentials::None, None);
        if let Some(login) = &asked.login {
            let (Login::Git { secret, app, .. } | Login::Token { secret, app, .. }) = login;
            let contents = self.read_secret(secret.clone(), wait, &mut used).await?;
            lent = match app.as_ref().filter(|_| App::is_in(&contents)) {
                Some(scope) => Some(self.token_of_app(secret, &contents, scope, &asked.tls, deadline).await?),
                None => None,
            };
            credentials = match &lent {
                Some(lent) => issued(login, lent, &mut hidden)?,
                None => known(login, &contents, &mut hidden)?,
            };
        }
        let tls = self.tls(&asked.tls, wait, &mut used).await?;
        let (url, headers, signing) = (asked.url.clone(), Vec::new(), Signing::default());
        Ok(Prepared { url, credentials, headers, signing, tls, hidden, used, lent })
    }
}

/// Returns the credentials that a Secret contains as they are.
fn known(login: &Login, contents: &Contents, hidden: &mut Hidden) -> Result<Credentials, NotSent> {
    match login {
        Login::Git { secret, user, .. } => compose::git(contents, secret, user, hidden),
        Login::Token { secret, header, scheme, .. } => {
            let key = SecretKey::new(&secret.namespace, &secret.name, TOKEN);
            compose::token(contents, &key, header, scheme, hidden)
        }
    }
}

/// Returns the credentials with an issued token.
fn issued(login: &Login, lent: &Lent, hidden: &mut Hidden) -> Result<Credentials, NotSent> {
    lent.secrets().for_each(|secret| hidden.add(secret.expose_secret()));
    match login {
        Login::Git { user, .. } => {
            hidden.add_basic(user, lent.token().expose_secret());
            Ok(Credentials::Basic { username: (*user).into(), password: lent.token().clone() })
        }
        Login::Token { header, .. } => Ok(Credentials::Header(header.clone(), tokens::bearer(lent.token())?)),
    }
}

/// Returns the metric label of a result.
fn class(result: &Result<Answer, Unanswered>) -> RequestClass {
    match result {
        Ok(answer) => RequestClass::answered(answer.status),
        Err(Unanswered::NotSent(_)) => RequestClass::NotSent,
        Err(Unanswered::Failed(_)) => RequestClass::Network,
        Err(Unanswered::TooLarge(_)) => RequestClass::TooLarge,
    }
}
