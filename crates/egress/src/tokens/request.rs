//! Requests a token for a request that is about to be sent.
//!
//! In: the credentials of the request, and its URL. Out: the header with the token; or why there is no token. The key of a GitHub App signs only
//! requests to the origin of the URL. The secret of a client, or a token of its ServiceAccount, goes only to its token endpoint.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use globset::GlobBuilder;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;
use url::Url;

use super::github::{self, App};
use super::oauth::{self, Client};
use super::{Issued, Key, LONGEST_ANSWER, Lent, Refused};
use crate::addresses::policy::Policy;
use crate::attempt::{self, NotSent};
use crate::client;
use crate::request::compose::{self, Credentials};
use crate::request::forge::{Answer, AppScope, ForgeRequest, Unanswered};
use crate::request::outgoing::Outgoing;
use crate::request::sender::{Sender, secret_wait};
use crate::secrets::contents::Contents;
use crate::secrets::redact::Hidden;
use relaybook_api::notification::ClientAuthentication;
use relaybook_api::notification::credentials::{AuthRef, GithubAppRef, Needed, OAuth2Ref, TlsRef, WorkloadRef};
use relaybook_api::values::repository::Repository;
use relaybook_api::{ObjectName, now};

/// The limits of one request. They do not depend on the delivery that needs the token, because others need it, too.
const TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The steps for a client without a secret, for the message of a delivery that waits for one of them.
const BOTH_STEPS: &str = "the tokens of the ServiceAccount and of the authorization server";

/// Checks that the credentials in a Secret can be used.
pub(crate) fn check(auth: &AuthRef, contents: &Contents, policy: &Policy) -> Result<(), NotSent> {
    match auth {
        AuthRef::GithubApp(app) => App::read(contents, &app.secret)?.check(),
        AuthRef::OAuth2(client) => {
            issuer(&client.token_url, policy)?;
            Client::read(contents, &client.secret).map(drop)
        }
        AuthRef::Workload(workload) => issuer(&workload.token_url, policy),
        AuthRef::Basic { namespace, name } => compose::basic(contents, namespace, name, &mut Hidden::default()).map(drop),
        AuthRef::Token { secret, header, scheme } => {
            compose::token(contents, secret, header, scheme, &mut Hidden::default()).map(drop)
        }
    }
}

/// Checks credentials that are in no Secret.
pub(crate) fn check_issuer(needed: &Needed, policy: &Policy) -> Result<(), NotSent> {
    match needed {
        Needed::Auth(AuthRef::Workload(workload)) => issuer(&workload.token_url, policy),
        _ => Ok(()),
    }
}

/// Checks the policy for a token endpoint. The message names the field, because the request has another URL.
fn issuer(url: &Url, policy: &Policy) -> Result<(), NotSent> {
    policy.url(url).map_err(|why| match why {
        NotSent::DestinationForbidden(_) | NotSent::InsecureScheme => {
            NotSent::TokenRefused { step: oauth::STEP, why: format!("endpoint.auth.oauth2.tokenUrl: {why}") }
        }
        why => why,
    })
}

impl Sender {
    /// Returns the credentials of a request. If a token is needed, it is with them, so that it can be forgotten if the receiver rejects it.
    /// `contents`: those of the Secret, if the credentials have one.
    pub(crate) async fn credentials(
        &self,
        auth: &AuthRef,
        contents: Option<&Contents>,
        url: &Url,
        out: &Outgoing,
        deadline: Instant,
        hidden: &mut Hidden,
    ) -> Result<(Credentials, Option<Lent>), NotSent> {
        let lent = match (auth, contents) {
            (AuthRef::Workload(workload), _) => self.of_workload(workload, &out.tls, deadline).await?,
            (_, None) => return Err(NotSent::InvalidRequest("the credentials are in no Secret")),
            (AuthRef::Basic { namespace, name }, Some(contents)) => {
                return Ok((compose::basic(contents, namespace, name, hidden)?, None));
            }
            (AuthRef::Token { secret, header, scheme }, Some(contents)) => {
                return Ok((compose::token(contents, secret, header, scheme, hidden)?, None));
            }
            (AuthRef::GithubApp(app), Some(contents)) => self.of_app(app, contents, url, &out.tls, deadline).await?,
            (AuthRef::OAuth2(client), Some(contents)) => self.of_client(client, contents, &out.tls, deadline).await?,
        };
        lent.secrets().for_each(|secret| hidden.add(secret.expose_secret()));
        Ok((Credentials::Header(AUTHORIZATION, bearer(lent.token())?), Some(lent)))
    }

    async fn of_app(
        &self,
        settings: &GithubAppRef,
        contents: &Contents,
        url: &Url,
        tls: &TlsRef,
        deadline: Instant,
    ) -> Result<Lent, NotSent> {
        let repository = Repository::of(url).ok_or(NotSent::InvalidRequest(
            "a GitHub App needs /repos/OWNER/NAME in the path of the URL, because its tokens are for one repository",
        ))?;
        let name = repository.to_string();
        if !is_allowed(&name, &settings.repositories) {
            return Err(NotSent::RepositoryNotAllowed(name));
        }
        let scope = AppScope { repository, permissions: settings.permissions.clone() };
        self.token_of_app(&settings.secret, contents, &scope, tls, deadline).await
    }

    /// Returns a token of the GitHub App in a Secret.
    pub(crate) async fn token_of_app(
        &self,
        secret: &ObjectName,
        contents: &Contents,
        scope: &AppScope,
        tls: &TlsRef,
        deadline: Instant,
    ) -> Result<Lent, NotSent> {
        let app = App::read(contents, secret)?;
        let trusted = self.trusted(tls, deadline).await?;
        let (name, permissions) = (scope.repository.to_string(), github::listed(&scope.permissions));
        let installation = app.installation.as_deref().unwrap_or_default();
        let parts = [&scope.repository.api, &name, &app.id, app.pem.expose_secret(), installation, &permissions, &trusted];
        let key = Key::of(&secret.namespace, parts);
        let request = self.clone().app_token(app, scope.clone(), tls.clone());
        self.tokens.get(key, github::STEP, deadline, request).await
    }

    async fn app_token(self, app: App, scope: AppScope, tls: TlsRef) -> Result<Issued, Refused> {
        let AppScope { repository, permissions } = scope;
        let statement = bearer(&app.statement(now())?)?;
        let headers = || {
            let accept = HeaderValue::from_static("application/vnd.github+json");
            vec![(AUTHORIZATION, statement.clone()), (ACCEPT, accept), (CONTENT_TYPE, json())]
        };
        let installation = if let Some(known) = &app.installation {
            known.clone()
        } else {
            let url = parsed(&github::installation_url(&repository))?;
            let asked = token_request(url, Method::GET, headers(), Bytes::new(), tls.clone());
            let answer = self.token_answer(asked, github::INSTALLATION_STEP).await?;
            of_answer(&answer, github::installation(answer.status, &answer.body, &repository))?
        };
        let url = parsed(&github::token_url(&repository, &installation))?;
        let body = github::token_request(&repository, &permissions).into();
        let answer = self.token_answer(token_request(url, Method::POST, headers(), body, tls), github::STEP).await?;
        of_answer(&answer, github::issued(answer.status, &answer.body, now(), &repository, &permissions))
    }

    async fn of_client(
        &self,
        settings: &OAuth2Ref,
        contents: &Contents,
        tls: &TlsRef,
        deadline: Instant,
    ) -> Result<Lent, NotSent> {
        issuer(&settings.token_url, &self.policy)?;
        let client = Client::read(contents, &settings.secret)?;
        let form = client.form(settings);
        let tls = of_issuer(tls);
        let trusted = self.trusted(&tls, deadline).await?;
        let key =
            Key::of(&settings.secret.namespace, [settings.token_url.as_str(), client.id, client.secret, &form, &trusted]);
        let mut headers = form_headers();
        if settings.client_authentication == ClientAuthentication::Basic {
            let (id, secret) = client.basic();
            let unfit = NotSent::InvalidRequest("client ID and secret cannot be sent in a header");
            let mut value = client::basic(&id, &secret).ok_or(unfit)?;
            value.set_sensitive(true);
            headers.push((AUTHORIZATION, value));
        }
        let asked = token_request(settings.token_url.clone(), Method::POST, headers, form.into(), tls);
        let sender = self.clone();
        let request = async move {
            let answer = sender.token_answer(asked, oauth::STEP).await?;
            of_answer(&answer, oauth::issued(answer.status, &answer.body))
        };
        self.tokens.get(key, oauth::STEP, deadline, request).await
    }

    async fn of_workload(&self, settings: &WorkloadRef, tls: &TlsRef, deadline: Instant) -> Result<Lent, NotSent> {
        issuer(&settings.token_url, &self.policy)?;
        let unavailable = NotSent::InvalidRequest("tokens of ServiceAccounts can be requested only by the controller");
        let accounts = self.accounts.clone().ok_or(unavailable)?;
        let tls = of_issuer(tls);
        let trusted = self.trusted(&tls, deadline).await?;
        let key = workload_key(settings, &trusted);
        let (sender, settings) = (self.clone(), settings.clone());
        let request = async move {
            let assertion = accounts.token(&settings).await?;
            let form = oauth::workload_form(&settings, assertion.expose_secret());
            let asked = token_request(settings.token_url, Method::POST, form_headers(), form.into(), tls);
            let answer = sender.token_answer(asked, oauth::STEP).await?;
            of_answer(&answer, oauth::issued(answer.status, &answer.body))
        };
        self.tokens.get(key, BOTH_STEPS, deadline, request).await
    }

    /// Returns a text that identifies the certificates of a request for a token. With others, it can have another result.
    async fn trusted(&self, tls: &TlsRef, deadline: Instant) -> Result<String, NotSent> {
        let mut used: Vec<(ObjectName, _)> = Vec::new();
        Ok(hex::encode(self.tls(tls, secret_wait(deadline), &mut used).await?.fingerprint()))
    }

    /// Sends a request for a token. The type of the future is not visible, because the request of a forge can itself need a token.
    fn token_answer(&self, asked: ForgeRequest, step: &'static str) -> BoxFuture<'_, Result<Answer, NotSent>> {
        Box::pin(async move {
            let answer = self.whole_answer(&asked, Instant::now() + asked.timeout).await;
            answer.map_err(|why| match why {
                Unanswered::NotSent(why) => why,
                Unanswered::Failed(failure) if failure.kind.is_timeout() => NotSent::TokenUnanswered(step),
                why => NotSent::TokenRefused { step, why: why.to_string() },
            })
        })
    }
}

/// Returns what a token of a client without a secret is for: all that its request has, except the token of the ServiceAccount. A new one is as
/// good.
fn workload_key(settings: &WorkloadRef, trusted: &str) -> Key {
    let WorkloadRef { token_url, account, audience, .. } = settings;
    let form = oauth::workload_form(settings, "");
    Key::of(&account.namespace, ["ServiceAccount", &account.name, audience, token_url.as_str(), &form, trusted])
}

/// Adds to a refusal how long the server asks to wait.
fn of_answer<T>(answer: &Answer, result: Result<T, NotSent>) -> Result<T, Refused> {
    let after = || attempt::retry_after::requested(answer.status, &answer.headers, now());
    result.map_err(|why| Refused { after: after(), ..why.into() })
}

/// Returns the TLS settings for an authorization server. A client certificate is for the receiver, and so is an exception from verification.
fn of_issuer(tls: &TlsRef) -> TlsRef {
    TlsRef { client_certificate: None, skip_verify: false, ..tls.clone() }
}

fn form_headers() -> Vec<(HeaderName, HeaderValue)> {
    vec![(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded")), (ACCEPT, json())]
}

fn json() -> HeaderValue {
    HeaderValue::from_static("application/json")
}

/// Whether one of the globs matches the repository. A name is not case-sensitive, and `*` matches no slash.
fn is_allowed(name: &str, globs: &[String]) -> bool {
    let matches = |glob: &String| {
        let glob = GlobBuilder::new(glob).literal_separator(true).case_insensitive(true).build();
        glob.is_ok_and(|glob| glob.compile_matcher().is_match(name))
    };
    globs.is_empty() || globs.iter().any(matches)
}

fn parsed(url: &str) -> Result<Url, NotSent> {
    Url::parse(url).map_err(|_| NotSent::InvalidRequest("the URL of the token is not valid"))
}

/// Returns a header value with a token.
pub(crate) fn bearer(token: &SecretString) -> Result<HeaderValue, NotSent> {
    let unfit = |_| NotSent::InvalidRequest("the token cannot be sent in a header");
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret())).map_err(unfit)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns a request for a token.
fn token_request(
    url: Url,
    method: Method,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    tls: TlsRef,
) -> ForgeRequest {
    ForgeRequest {
        url,
        method,
        headers,
        body,
        login: None,
        tls,
        timeout: TIMEOUT,
        until: Duration::MAX,
        connect_timeout: CONNECT_TIMEOUT,
        limit: LONGEST_ANSWER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::account::tests::workload;

    /// With another key, a token is not shared. Otherwise a Notification could have the token of another client.
    #[test]
    fn each_part_of_a_request_of_a_workload_is_in_its_key() {
        type Change = fn(&mut WorkloadRef);
        let changes: [(&str, Change); 8] = [
            ("the namespace", |of| of.account.namespace = "team-b".to_owned()),
            ("the account", |of| of.account.name = "other".to_owned()),
            ("the audience", |of| of.audience = "api://other".to_owned()),
            ("the URL", |of| of.token_url = Url::parse("https://login.example.com/b").unwrap()),
            ("the client", |of| of.client_id = None),
            ("the scope", |of| of.scope = Some("a".to_owned())),
            ("a parameter", |of| drop(of.parameters.insert("resource".to_owned(), "s".to_owned()))),
            ("no parameter", |of| of.parameters.clear()),
        ];
        let key = workload_key(&workload(), "ca");
        assert!(key == workload_key(&workload(), "ca"), "the same request");
        assert!(key != workload_key(&workload(), "other"), "other certificates");
        for (what, change) in changes {
            let mut other = workload();
            change(&mut other);
            assert!(key != workload_key(&other, "ca"), "{what}");
        }
    }

    #[test]
    fn globs_limit_the_repositories_of_an_app() {
        let globs = |all: &[&str]| all.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>();
        for (name, allowed, expected) in [
            ("acme/web", &[][..], true),
            ("acme/web", &["acme/*"], true),
            ("Acme/Web", &["acme/web"], true),
            ("other/web", &["acme/*"], false),
            ("acme/web", &["acme/shop", "acme/api"], false),
            ("acme2/web", &["acme*"], false),
        ] {
            assert_eq!(is_allowed(name, &globs(allowed)), expected, "{name}, {allowed:?}");
        }
    }
}
