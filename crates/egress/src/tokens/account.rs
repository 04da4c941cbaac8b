//! Tokens of ServiceAccounts, with which clients without a secret prove who they are to an authorization server.
//!
//! In: the ServiceAccount, and what its token is for. Out: a token for one audience, which goes only to the token endpoint; or why there is none.
//! The owner of the ServiceAccount consents by annotations. Without them, no token is requested.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::{Api, PostParams};
use secrecy::SecretString;
use tokio::time::timeout;
use url::Url;

use super::{Refused, checked};
use crate::attempt::NotSent;
use relaybook_api::ObjectName;
use relaybook_api::notification::credentials::{AUDIENCE, TOKEN_URL, WorkloadRef};

/// The step, for messages.
const STEP: &str = "the token of the ServiceAccount";
/// The end of both requests to the API server. It leaves time for the request to the authorization server.
const LIMIT: Duration = Duration::from_secs(8);
/// How long a token is valid, in seconds. The API server issues none for a shorter time.
const VALID: i64 = 600;

/// What is requested, as in a Role.
const GET: &str = "get of serviceaccounts";
const CREATE: &str = "create of serviceaccounts/token";

/// The ServiceAccounts of the cluster.
#[derive(Clone)]
pub(crate) struct Accounts(Client);

impl Accounts {
    pub(crate) fn new(client: Client) -> Self {
        Self(client)
    }

    /// Requests a token, if the owner of the ServiceAccount consents.
    pub(crate) async fn token(&self, settings: &WorkloadRef) -> Result<SecretString, Refused> {
        self.token_within(LIMIT, settings).await
    }

    async fn token_within(&self, limit: Duration, settings: &WorkloadRef) -> Result<SecretString, Refused> {
        timeout(limit, self.requested(settings)).await.unwrap_or_else(|_| Err(NotSent::TokenUnanswered(STEP).into()))
    }

    async fn requested(&self, settings: &WorkloadRef) -> Result<SecretString, Refused> {
        let account = &settings.account;
        let api: Api<ServiceAccount> = Api::namespaced(self.0.clone(), &account.namespace);
        let found = api.get_opt(&account.name).await.map_err(|error| failed(&error, account, GET))?;
        let Some(found) = found else { return Err(Refused::revoked(refused(account, "404; create it"))) };
        let annotations = found.metadata.annotations.unwrap_or_default();
        consent(&annotations, settings).map_err(|why| Refused::revoked(refused(account, &why)))?;
        let spec = TokenRequestSpec {
            audiences: Some(vec![settings.audience.clone()]),
            expiration_seconds: Some(VALID),
            ..TokenRequestSpec::default()
        };
        let asked = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = api.create_token_request(&account.name, &PostParams::default(), &asked).await;
        let token = answer.map_err(|error| failed(&error, account, CREATE))?.status.and_then(|status| status.token);
        token.and_then(checked).ok_or_else(|| refused(account, "the answer has no token").into())
    }
}

/// Checks that the annotations of a ServiceAccount allow a token for this purpose. The error names the annotation to set.
fn consent(annotations: &BTreeMap<String, String>, settings: &WorkloadRef) -> Result<(), String> {
    let url = annotations.get(TOKEN_URL).is_some_and(|url| Url::parse(url).is_ok_and(|url| url == settings.token_url));
    let audience = annotations.get(AUDIENCE).is_some_and(|audience| *audience == settings.audience);
    let wanted = [(url, TOKEN_URL, settings.token_url.as_str()), (audience, AUDIENCE, settings.audience.as_str())];
    let lacking = wanted.into_iter().filter(|(is_there, ..)| !is_there).map(|(_, name, value)| format!("{name}: {value}"));
    let lacking: Vec<_> = lacking.collect();
    if lacking.is_empty() {
        return Ok(());
    }
    Err(format!("its owner has not consented; set its annotations {}", lacking.join(", ")))
}

/// The message names the field, because the request itself is for another object.
fn refused(account: &ObjectName, why: &str) -> NotSent {
    NotSent::TokenRefused { step: STEP, why: format!("endpoint.auth.oauth2.serviceAccount: {account}: {why}") }
}

/// The message does not contain the text of the API server. `what`: what was requested.
fn failed(error: &kube::Error, account: &ObjectName, what: &str) -> NotSent {
    let kube::Error::Api(status) = error else { return NotSent::TokenUnanswered(STEP) };
    let code = status.code;
    let remedy = match code {
        403 => format!("give Relaybook a Role with {GET}, and {CREATE}, for {}", account.name),
        400 | 422 => {
            "correct the audience, or ask the administrator of the cluster which ones the API server accepts".to_owned()
        }
        404 => "create it".to_owned(),
        _ => "see the log of the API server; Relaybook asks again".to_owned(),
    };
    refused(account, &format!("{code} for {what}; {remedy}"))
}

/// Shows nothing of the client.
impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Accounts")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::future::{pending, ready};
    use std::sync::Arc;

    use http::{Method, Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use secrecy::ExposeSecret as _;
    use serde_json::{Value, json};
    use tower::BoxError;

    use super::*;

    pub(crate) fn workload() -> WorkloadRef {
        WorkloadRef {
            token_url: Url::parse("https://login.example.com").unwrap(),
            account: ObjectName::new("team-a", "notifier"),
            audience: "api://exchange".to_owned(),
            client_id: Some("7".to_owned()),
            scope: Some("a b".to_owned()),
            parameters: [("resource".to_owned(), "r".to_owned())].into(),
        }
    }

    #[test]
    fn the_owner_of_an_account_consents_to_one_endpoint_and_one_audience() {
        let (url, audience) = ("https://login.example.com", "api://exchange");
        let (no_url, no_audience) =
            ("relaybook.dev/token-url: https://login.example.com/", "relaybook.dev/audience: api://exchange");
        for (what, annotations, lacking) in [
            ("both", &[(TOKEN_URL, url), (AUDIENCE, audience), ("a", "b")][..], &[][..]),
            ("the same URL, with its path", &[(TOKEN_URL, "https://login.example.com/"), (AUDIENCE, audience)], &[]),
            ("none", &[], &[no_url, no_audience]),
            ("no audience", &[(TOKEN_URL, url)], &[no_audience]),
            ("no URL", &[(AUDIENCE, audience)], &[no_url]),
            ("another host", &[(TOKEN_URL, "https://evil.example"), (AUDIENCE, audience)], &[no_url]),
            ("another path", &[(TOKEN_URL, "https://login.example.com/b"), (AUDIENCE, audience)], &[no_url]),
            ("another scheme", &[(TOKEN_URL, "http://login.example.com"), (AUDIENCE, audience)], &[no_url]),
            ("a glob", &[(TOKEN_URL, "*"), (AUDIENCE, "*")], &[no_url, no_audience]),
            ("several audiences", &[(TOKEN_URL, url), (AUDIENCE, "api://exchange,b")], &[no_audience]),
        ] {
            let annotations = annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let found = consent(&annotations, &workload()).err();
            let expected = (!lacking.is_empty())
                .then(|| format!("its owner has not consented; set its annotations {}", lacking.join(", ")));
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn an_error_names_the_step_and_the_remedy() {
        let error = |code: u16| {
            let status = kube::core::Status { code, message: "s3cr3t".to_owned(), ..kube::core::Status::default() };
            failed(&kube::Error::Api(Box::new(status)), &workload().account, CREATE).to_string()
        };
        let start = "no token could be requested: the token of the ServiceAccount: endpoint.auth.oauth2.serviceAccount: \
                     team-a/notifier: ";
        for (code, said) in [
            (403, "give Relaybook a Role with get of serviceaccounts, and create of serviceaccounts/token, for notifier"),
            (422, "correct the audience, or ask the administrator of the cluster which ones the API server accepts"),
            (404, "create it"),
            (500, "see the log of the API server; Relaybook asks again"),
        ] {
            assert_eq!(error(code), format!("{start}{code} for create of serviceaccounts/token; {said}"));
        }
    }

    /// Returns the accounts of an API server that gives these answers to `get` and `create`, and the requests so far.
    fn played(answers: [(u16, Value); 2]) -> (Accounts, Arc<Mutex<Vec<String>>>) {
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&requests);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (code, said) = &answers[usize::from(request.method() == Method::POST)];
            noted.lock().push(format!("{} {}", request.method(), request.uri().path()));
            let body = Body::from(said.to_string().into_bytes());
            ready(Ok::<_, BoxError>(Response::builder().status(*code).body(body).unwrap()))
        });
        (Accounts::new(Client::new(service, "default")), requests)
    }

    /// No token is requested before the owner has consented. Only the owner revokes, not an API server that fails.
    #[tokio::test]
    async fn a_token_is_requested_only_with_consent() {
        let account = |annotations: Value| {
            let metadata = json!({"name": "notifier", "namespace": "team-a", "annotations": annotations});
            (200, json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}))
        };
        let fails = |code: u16| {
            let reason = if code == 404 { "NotFound" } else { "" };
            let status = json!({"kind": "Status", "status": "Failure", "reason": reason, "message": "s3cr3t", "code": code});
            (code, status)
        };
        let issues = |status: Value| {
            let spec = json!({"audiences": ["api://exchange"]});
            (201, json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec, "status": status}))
        };
        let token = || issues(json!({"token": "e.y.J", "expirationTimestamp": "2099-01-01T00:00:00Z"}));
        let agreed = || account(json!({TOKEN_URL: "https://login.example.com", AUDIENCE: "api://exchange"}));
        let (get, post) = (
            "GET /api/v1/namespaces/team-a/serviceaccounts/notifier",
            "POST /api/v1/namespaces/team-a/serviceaccounts/notifier/token",
        );
        for (what, answers, expected, requests) in [
            ("consent", [agreed(), token()], Ok("e.y.J"), &[get, post][..]),
            ("no consent", [account(json!({})), token()], Err((true, "has not consented")), &[get]),
            ("no account", [fails(404), token()], Err((true, "404; create it")), &[get]),
            ("no right to read it", [fails(403), token()], Err((false, "403 for get of serviceaccounts; give")), &[get]),
            ("a failure", [fails(500), token()], Err((false, "500 for get of serviceaccounts; see")), &[get]),
            ("no right to create", [agreed(), fails(403)], Err((false, "403 for create of")), &[get, post]),
            ("a refused audience", [agreed(), fails(422)], Err((false, "correct the audience")), &[get, post]),
            (
                "no token",
                [agreed(), issues(json!({"expirationTimestamp": "2099-01-01T00:00:00Z"}))],
                Err((false, "the answer has no token")),
                &[get, post],
            ),
            (
                "an empty token",
                [agreed(), issues(json!({"token": "", "expirationTimestamp": "2099-01-01T00:00:00Z"}))],
                Err((false, "the answer has no token")),
                &[get, post],
            ),
        ] {
            let (accounts, asked) = played(answers);
            match (accounts.token(&workload()).await, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.expose_secret(), expected, "{what}"),
                (Err(refused), Err((is_revoked, words))) => {
                    let said = refused.why.to_string();
                    assert!(said.contains(words) && !said.contains("s3cr3t"), "{what}: {said}");
                    assert_eq!(refused.is_revoked, is_revoked, "{what}");
                }
                (found, _) => panic!("{what}: {}", found.is_ok()),
            }
            assert_eq!(*asked.lock(), requests, "{what}");
        }
    }

    #[tokio::test]
    async fn an_api_server_that_hangs_is_named() {
        let service = tower::service_fn(|_: Request<Body>| pending::<Result<Response<Body>, BoxError>>());
        let accounts = Accounts::new(Client::new(service, "default"));
        let refused = accounts.token_within(Duration::from_millis(10), &workload()).await.err();
        assert_eq!(refused.map(|refused| refused.why), Some(NotSent::TokenUnanswered(STEP)));
        assert!(LIMIT < super::super::TIMEOUT / 2, "the authorization server has the rest of the time");
    }
}
