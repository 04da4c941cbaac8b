//! Tokens that a server issues: of a GitHub App, and by OAuth 2.0. The server checks the signature of the app.

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::join_all;
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs1KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use super::exchange::of;
use super::*;
use relaybook_api::notification::ClientAuthentication;
use relaybook_api::notification::credentials::{CLIENT_ID, CLIENT_SECRET, GithubAppRef, OAuth2Ref};
use relaybook_api::promotion::ForgeType;
use relaybook_api::values::looked_up::LookUps;
use relaybook_api::values::repository::Repository;
use relaybook_settings::render::LookUp;

const PEM: &str = include_str!("../tokens/app.pem");

fn answer(status: &str, body: &Value) -> String {
    let body = body.to_string();
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn header(request: &str, name: &str) -> String {
    let lines = request.lines().filter_map(|line| line.split_once(": "));
    lines.into_iter().find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).unwrap_or_default()
}

/// Whether a statement is signed by the app, valid now, and by this issuer.
fn is_of_app(authorization: &str, issuer: &str) -> bool {
    let Some((signed, signature)) = authorization.strip_prefix("Bearer ").and_then(|token| token.rsplit_once('.')) else {
        return false;
    };
    let der = PrivatePkcs1KeyDer::from_pem_slice(PEM.as_bytes()).unwrap();
    let pair = RsaKeyPair::from_der(der.secret_pkcs1_der()).unwrap();
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key().as_ref().to_vec());
    let claims = URL_SAFE_NO_PAD.decode(signed.split_once('.').unwrap().1).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    let (from, to, now) =
        (claims["iat"].as_i64().unwrap(), claims["exp"].as_i64().unwrap(), relaybook_api::now().as_second());
    let is_valid = from <= now - 50 && now < to && to - from <= 600;
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    is_valid && claims["iss"] == issuer && key.verify(signed.as_bytes(), &signature).is_ok()
}

/// A server that answers as GitHub does. `rejected`: how many tokens it rejects after it has issued them.
async fn github(rejected: usize) -> Receiver {
    let issued = Arc::new(AtomicUsize::new(0));
    Receiver::new(move |mut peer| {
        let issued = Arc::clone(&issued);
        async move {
            while let Some(request) = peer.request().await {
                let line = request.lines().next().unwrap_or_default().to_owned();
                let authorization = header(&request, "authorization");
                let said = match () {
                    () if line.ends_with("/installation HTTP/1.1") && is_of_app(&authorization, "Iv23") => {
                        answer("200 OK", &json!({"id": 7}))
                    }
                    () if line.starts_with("POST /api/v3/app/installations/7/access_tokens")
                        && is_of_app(&authorization, "Iv23") =>
                    {
                        let number = issued.fetch_add(1, Ordering::SeqCst);
                        let end = relaybook_api::now().checked_add(Duration::from_hours(1)).unwrap();
                        answer("201 Created", &json!({"token": format!("ghs_t0k3n_{number}"), "expires_at": end}))
                    }
                    () if line.contains("/statuses/")
                        && authorization == format!("Bearer ghs_t0k3n_{}", issued.load(Ordering::SeqCst) - 1)
                        && issued.load(Ordering::SeqCst) > rejected =>
                    {
                        answer("201 Created", &json!({"echo": authorization}))
                    }
                    () if line.contains("/git/commits/")
                        && authorization == format!("Bearer ghs_t0k3n_{}", issued.load(Ordering::SeqCst) - 1) =>
                    {
                        answer("200 OK", &json!({"author": {"name": "Ada"}, "message": "Fix it"}))
                    }
                    () => answer("401 Unauthorized", &json!({"message": "Bad credentials"})),
                };
                peer.write(&said).await;
            }
        }
    })
    .await
}

fn app(repositories: &[&str]) -> AuthRef {
    AuthRef::GithubApp(Arc::new(GithubAppRef {
        secret: key("").secret(),
        repositories: repositories.iter().map(|glob| (*glob).to_owned()).collect(),
        permissions: [("statuses".to_owned(), "write".to_owned())].into(),
    }))
}

fn status(receiver: &Receiver, repository: &str, auth: AuthRef) -> Outgoing {
    let url = receiver.url(&format!("/api/v3/repos/{repository}/statuses/0123"));
    Outgoing { auth: Some(auth), ..to(url) }
}

fn with_app() -> Sender {
    sender_with(lax(), with_secret(&[("clientId", "Iv23"), ("privateKey", PEM)]))
}

fn lines(receiver: &Receiver) -> Vec<String> {
    receiver.requests.lock().iter().filter_map(|request| request.lines().next().map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_commit_is_looked_up_with_a_token_that_can_only_read() {
    let (receiver, sender) = (github(0).await, with_app());
    let of = LookUp {
        type_: ForgeType::Github,
        url: "https://127.0.0.1/acme/web".to_owned(),
        api_url: Some(format!("http://{}/api/v3", receiver.address)),
        secret: key("").secret(),
        authorities: None,
        hash: "a".repeat(40),
    };
    let found = sender.look_up(&of, LookUps { commit: true, pull_request: false }, LONG).await;
    assert_eq!([found.commit.author.as_str(), &found.commit.message], ["Ada", "Fix it"]);
    let asked = receiver.requests.lock()[1].clone();
    let scope = r#"{"permissions":{"contents":"read","pull_requests":"read"},"repositories":["web"]}"#;
    assert!(asked.ends_with(scope), "{asked}");
}

#[tokio::test]
async fn a_token_of_a_github_app_is_for_the_repository_and_is_kept() {
    let (receiver, sender) = (github(0).await, with_app());
    for _ in 0..2 {
        let attempt = sender.send(status(&receiver, "acme/web", app(&[]))).await;
        assert_eq!(attempt.result.status(), Some(201), "{attempt:?}");
        assert!(!format!("{attempt:?}").contains("t0k3n"), "the token is masked: {attempt:?}");
    }
    let all = lines(&receiver);
    assert_eq!(all.len(), 4, "two requests for the token: {all:?}");
    let asked = receiver.requests.lock()[1].clone();
    assert!(asked.ends_with(r#"{"permissions":{"statuses":"write"},"repositories":["web"]}"#), "{asked}");
    // Another repository has another token, and 100 requests need it once.
    let before = lines(&receiver).len();
    let sent = join_all((0..100).map(|_| sender.send(status(&receiver, "acme/api", app(&["acme/*"]))))).await;
    let issued = lines(&receiver)[before..].iter().filter(|line| line.contains("access_tokens")).count();
    assert!(sent.iter().all(|attempt| attempt.result.status() == Some(201)));
    assert_eq!(issued, 1);
}

#[tokio::test]
async fn a_receiver_that_rejects_new_tokens_causes_no_more_requests_for_tokens() {
    let (receiver, sender) = (github(1).await, with_app());
    for _ in 0..20 {
        let attempt = sender.send(status(&receiver, "acme/web", app(&[]))).await;
        let verdict = Verdict::Retry { not_before: None, reason: Reason::CredentialsRejected };
        assert_eq!(classify(&attempt.result, 0), verdict, "not at once");
    }
    assert_eq!(lines(&receiver).iter().filter(|line| line.contains("access_tokens")).count(), 1);
}

#[tokio::test]
async fn a_token_that_cannot_be_requested_names_its_step() {
    let receiver = Receiver::new(async |mut peer| {
        while let Some(request) = peer.request().await {
            let installs = request.contains("/repos/acme/none/");
            let refused = answer(if installs { "404 X" } else { "200 OK" }, &json!({"id": 7, "message": "t0k3n"}));
            let is_token = request.starts_with("POST");
            peer.write(&if is_token { answer("422 X", &json!({})) } else { refused }).await;
        }
    })
    .await;
    let sender = with_app();
    let allowed = app(&["acme/*"]);
    for (repository, reason, words) in [
        ("acme/none", Reason::InstallationNotFound, "install the app for acme/none"),
        ("acme/web", Reason::PermissionMissing, "give its installation access to acme/web, with statuses: write"),
        ("other/web", Reason::DestinationForbidden, "other/web is not one of the repositories"),
    ] {
        let attempt = sender.send(status(&receiver, repository, allowed.clone())).await;
        assert_eq!(classify(&attempt.result, 0), Verdict::Blocked { reason }, "{attempt:?}");
        assert!(attempt.result.error().unwrap().contains(words), "{attempt:?}");
    }
    let no_repository = Outgoing { auth: Some(allowed), ..to(receiver.url("/api/v3/user")) };
    let attempt = sender.send(no_repository).await;
    assert_eq!(classify(&attempt.result, 0), Verdict::Blocked { reason: Reason::InvalidRequest });
    let all = lines(&receiver);
    assert!(all.iter().all(|line| !line.contains("statuses") && !line.contains("other")), "{all:?}");
}

#[tokio::test]
async fn a_login_with_an_app_sends_a_token_to_api_and_git_server() {
    let (receiver, git) = (github(0).await, Receiver::answering(OK).await);
    let Destination::Url(api) = receiver.url("/api/v3") else { panic!("a URL") };
    let repository = Repository { api: api.to_string(), owner: "acme".to_owned(), name: "web".to_owned() };
    let permissions = [("contents".to_owned(), "write".to_owned())].into();
    let app = Some(Arc::new(AppScope { repository, permissions }));
    let sender = with_app();
    let (secret, user) = (key("").secret(), "x-access-token");
    let login = Login::Token { secret: secret.clone(), header: AUTHORIZATION, scheme: "Bearer", app: app.clone() };
    let asked = ForgeRequest { login: Some(login), ..of(&receiver, "/api/v3/repos/acme/web/statuses/1") };
    let answer = sender.ask(asked).await.unwrap();
    assert_eq!(answer.status, 201);
    assert!(!answer.shown(&answer.body).contains("t0k3n"), "{}", answer.shown(&answer.body));
    let login = Login::Git { secret: secret.clone(), user, app };
    sender.ask(ForgeRequest { login: Some(login), ..of(&git, "/acme/web.git/info/refs") }).await.unwrap();
    // x-access-token:ghs_t0k3n_0
    let sent = header(&git.requests.lock()[0], "authorization");
    assert_eq!(sent, "Basic eC1hY2Nlc3MtdG9rZW46Z2hzX3QwazNuXzA=");
    let tokens = lines(&receiver).iter().filter(|line| line.contains("access_tokens")).count();
    assert_eq!(tokens, 1, "both send the same token");
    // Elsewhere, a Secret of an app is one without a token.
    let login = Login::Git { secret, user, app: None };
    let refused = sender.ask(ForgeRequest { login: Some(login), ..of(&git, "/") }).await.err().unwrap().to_string();
    assert!(refused.contains("has no key password or token"), "{refused}");
}

fn client(url: &Destination, authentication: ClientAuthentication) -> AuthRef {
    let Destination::Url(url) = url.clone() else { panic!("a URL") };
    AuthRef::OAuth2(Arc::new(OAuth2Ref {
        token_url: url,
        secret: key("").secret(),
        scope: Some("deploys write".to_owned()),
        client_authentication: authentication,
        parameters: [("audience".to_owned(), "https://api.example.com".to_owned())].into(),
    }))
}

#[tokio::test]
async fn a_token_of_an_authorization_server_is_requested_once() {
    let issuer = Receiver::answering(answer(
        "200 OK",
        &json!({"access_token": "0auth-t0k3n", "token_type": "Bearer", "expires_in": 3600}),
    ))
    .await;
    let receiver = Receiver::answering(OK).await;
    let secrets = with_secret(&[(CLIENT_ID, "me:1"), (CLIENT_SECRET, "s3cr3t value")]);
    let sender = sender_with(lax(), secrets);
    for authentication in [ClientAuthentication::Basic, ClientAuthentication::Body] {
        for _ in 0..2 {
            let auth = client(&issuer.url("/token"), authentication);
            let attempt = sender.send(Outgoing { auth: Some(auth), ..to(receiver.url("/")) }).await;
            assert_eq!(classify(&attempt.result, 0), Verdict::Delivered, "{attempt:?}");
        }
    }
    let asked = issuer.requests.lock().clone();
    assert_eq!(asked.len(), 2, "one request for each client authentication");
    let form = "grant_type=client_credentials&scope=deploys+write";
    let audience = "audience=https%3A%2F%2Fapi.example.com";
    assert!(asked[0].ends_with(&format!("{form}&{audience}")), "{}", asked[0]);
    // ID and secret are encoded as in a form, and then in base64: `me%3A1:s3cr3t+value`.
    assert_eq!(header(&asked[0], "authorization"), "Basic bWUlM0ExOnMzY3IzdCt2YWx1ZQ==");
    assert!(asked[1].ends_with(&format!("{form}&client_id=me%3A1&client_secret=s3cr3t+value&{audience}")), "{}", asked[1]);
    assert_eq!(header(&asked[1], "authorization"), "");
    let sent = receiver.requests.lock().clone();
    assert!(sent.iter().all(|request| header(request, "authorization") == "Bearer 0auth-t0k3n"), "{sent:?}");
    assert!(!sent.join("").contains("s3cr3t"), "the client's secret stays with the authorization server");
}

/// Sends with a token that was issued some time ago.
#[tokio::test]
async fn a_token_that_is_rejected_later_is_replaced_at_once() {
    let count = Arc::new(AtomicUsize::new(0));
    let issuer = Receiver::new({
        let count = Arc::clone(&count);
        move |mut peer| {
            let count = Arc::clone(&count);
            async move {
                while peer.request().await.is_some() {
                    let token = format!("0auth-t0k3n-{}", count.fetch_add(1, Ordering::SeqCst));
                    let body = json!({"access_token": token, "token_type": "Bearer", "expires_in": 3600});
                    peer.write(&answer("200 OK", &body)).await;
                }
            }
        }
    })
    .await;
    let receiver = Receiver::new(async |mut peer| {
        while let Some(request) = peer.request().await {
            let is_new = header(&request, "authorization").ends_with("-1");
            peer.write(&answer(if is_new { "200 OK" } else { "401 X" }, &json!({}))).await;
        }
    })
    .await;
    let sender = sender_with(lax(), with_secret(&[(CLIENT_ID, "me"), (CLIENT_SECRET, "s3cr3t")]));
    let auth = client(&issuer.url("/token"), ClientAuthentication::Basic);
    let request = || Outgoing { auth: Some(auth.clone()), ..to(receiver.url("/")) };
    let rejected = Verdict::Retry { not_before: None, reason: Reason::CredentialsRejected };
    assert_eq!(classify(&sender.send(request()).await.result, 0), rejected, "the token is new");
    sender.tokens.age(Duration::from_mins(2));
    let again = Verdict::Again { reason: Reason::CredentialsRejected };
    assert_eq!(classify(&sender.send(request()).await.result, 0), again);
    assert_eq!(classify(&sender.send(request()).await.result, 0), Verdict::Delivered);
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_token_endpoint_is_subject_to_the_policy_and_is_not_redirected() {
    let elsewhere = Receiver::answering(OK).await;
    let Destination::Url(other) = elsewhere.url("/other") else { panic!("a URL") };
    let issuer = Receiver::answering(format!("HTTP/1.1 307 X\r\nlocation: {other}\r\ncontent-length: 0\r\n\r\n")).await;
    let receiver = Receiver::answering(OK).await;
    let secrets = || with_secret(&[(CLIENT_ID, "me"), (CLIENT_SECRET, "s3cr3t")]);
    let forbidden = Destination::Url(url::Url::parse("https://169.254.169.254/token").unwrap());
    for (url, words) in [
        (issuer.url("/token"), "the token of the authorization server: 307"),
        (forbidden, "endpoint.auth.oauth2.tokenUrl: destination forbidden"),
    ] {
        let auth = client(&url, ClientAuthentication::Body);
        let attempt = sender_with(lax(), secrets()).send(Outgoing { auth: Some(auth), ..to(receiver.url("/")) }).await;
        assert_eq!(classify(&attempt.result, 0), Verdict::Blocked { reason: Reason::TokenRefused });
        let error = attempt.result.error().unwrap();
        assert!(error.contains(words) && !error.contains("s3cr3t"), "{error}");
    }
    assert!(elsewhere.requests.lock().is_empty() && receiver.requests.lock().is_empty());
}
