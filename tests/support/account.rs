//! Tokens of service accounts.

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::{Api, PostParams};

/// Requests a token of an account that exists.
pub async fn token(client: &Client, namespace: &str, name: &str) -> String {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    // The default is an hour, and hundreds of kills need longer on a slow machine.
    let spec = TokenRequestSpec { expiration_seconds: Some(24 * 60 * 60), ..TokenRequestSpec::default() };
    let asked = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let answer = api.create_token_request(name, &PostParams::default(), &asked).await.expect("a token");
    answer.status.and_then(|status| status.token).expect("answered")
}
