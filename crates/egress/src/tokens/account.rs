//! Tokens of ServiceAccounts, with which clients without a secret prove who they are to an authorization server.
//!
//! In: the ServiceAccount, and what its token is for. Out: a token for one audience, which goes only to the token endpoint; or why there is none.
//! The owner of the ServiceAccount consents by annotations. Without them, no token is requested.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::{Api, PostParams};
use secrecy::SecretString;
use url::Url;

use super::checked;
use crate::attempt::NotSent;
use relaybook_api::ObjectName;
use relaybook_api::notification::credentials::{AUDIENCE, TOKEN_URL, WorkloadRef};

/// The step, for messages.
const STEP: &str = "the token of the ServiceAccount";
/// How long a token is valid, in seconds. The API server issues none for a shorter time.
const VALID: i64 = 600;

/// The ServiceAccounts of the cluster.
#[derive(Clone)]
pub(crate) struct Accounts(Client);

impl Accounts {
    pub(crate) fn new(client: Client) -> Self {
        Self(client)
    }

    /// Requests a token, if the owner of the ServiceAccount consents.
    pub(crate) async fn token(&self, settings: &WorkloadRef) -> Result<SecretString, NotSent> {
        let account = &settings.account;
        let api: Api<ServiceAccount> = Api::namespaced(self.0.clone(), &account.namespace);
        let found = api.get_opt(&account.name).await.map_err(|error| failed(&error, account))?;
        let Some(found) = found else { return Err(refused(account, "404; create it")) };
        let annotations = found.metadata.annotations.unwrap_or_default();
        consent(&annotations, settings).map_err(|why| refused(account, &why))?;
        let spec = TokenRequestSpec {
            audiences: Some(vec![settings.audience.clone()]),
            expiration_seconds: Some(VALID),
            ..TokenRequestSpec::default()
        };
        let asked = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = api.create_token_request(&account.name, &PostParams::default(), &asked).await;
        let token = answer.map_err(|error| failed(&error, account))?.status.and_then(|status| status.token);
        token.and_then(checked).ok_or_else(|| refused(account, "the answer has no token"))
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

fn refused(account: &ObjectName, why: &str) -> NotSent {
    NotSent::TokenRefused { step: STEP, why: format!("{account}: {why}") }
}

/// The message does not contain the text of the API server.
fn failed(error: &kube::Error, account: &ObjectName) -> NotSent {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            let name = &account.name;
            let remedy = "403; give Relaybook a Role with get of serviceaccounts, and create of serviceaccounts/token, for";
            refused(account, &format!("{remedy} {name}"))
        }
        kube::Error::Api(status) => refused(account, &status.code.to_string()),
        _ => NotSent::TokenUnanswered(STEP),
    }
}

/// Shows nothing of the client.
impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Accounts")
    }
}

#[cfg(test)]
pub(crate) mod tests {
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
            failed(&kube::Error::Api(Box::new(status)), &workload().account).to_string()
        };
        let start = "no token could be requested: the token of the ServiceAccount: team-a/notifier: ";
        let role =
            "403; give Relaybook a Role with get of serviceaccounts, and create of serviceaccounts/token, for notifier";
        assert_eq!((error(403), error(500)), (format!("{start}{role}"), format!("{start}500")));
    }
}
