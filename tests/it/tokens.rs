//! Credentials that are issued for a short time: a GitHub App, and OAuth 2.0. The token is requested by the controller, and is in no object.

use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use relaybook_api::{Delivery, Notification, Outcome};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::{Value, json};

use crate::support::receiver::Request;
use crate::support::{Oracle, Receiver, Relaybook, Reply, World};

const PEM: &str = include_str!("../../crates/egress/src/tokens/app.pem");
const COMMIT: &str = "5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c";
const NEXT: &str = "9c1e1fd35d2e0b7a4a1bd2ae8e0a2b6a0f4f3e21";

/// Answers as GitHub does. It issues tokens only to a signed statement, and accepts a status only with a token.
fn github(request: &Request) -> Reply {
    let authorization = request.header("authorization");
    let is_statement = authorization.starts_with("Bearer eyJ") && authorization.matches('.').count() == 2;
    let said = |status, body: Value| Reply::status(status).body(&body.to_string());
    match request.path.as_str() {
        "/repos/acme/web/installation" if is_statement => said(200, json!({"id": 7})),
        "/app/installations/7/access_tokens" if is_statement => {
            said(201, json!({"token": "ghs_t0k3n", "expires_at": "2099-01-01T00:00:00Z"}))
        }
        path if path.starts_with("/repos/acme/web/statuses/") && authorization == "Bearer ghs_t0k3n" => said(201, json!({})),
        _ => said(401, json!({"message": "Bad credentials"})),
    }
}

/// Waits for the delivery of the next revision.
async fn outcome(world: &World, notification: &str, outcome: Option<Outcome>, reason: Option<&str>) -> Delivery {
    let is_it = |d: &Delivery| {
        let status = d.status.clone().unwrap_or_default();
        d.spec.notification == notification && status.outcome == outcome && status.reason.as_deref() == reason
    };
    world.delivery(&format!("Deployed main@sha1:{NEXT}"), is_it).await
}

#[tokio::test]
async fn a_github_app_and_an_oauth_client_send_with_issued_tokens() {
    let world = World::new("tokens").await;
    let (hub, board, issuer) = (Receiver::start(), Receiver::start(), Receiver::start());
    hub.decide(github);
    // Without a change, the server is not asked again before the end of the test.
    issuer.decide(|_| Reply::status(400).header("retry-after", "600").body(&json!({"error": "invalid_client"}).to_string()));
    world.kustomize("web", &format!("main@sha1:{COMMIT}")).await;
    world.flux_pipeline("shop", &["dev/web"]).await;
    world.secret("app", json!({"clientId": "Iv23", "privateKey": PEM})).await;
    world.secret("client", json!({"clientId": "me", "clientSecret": "s3cr3t-value"})).await;
    let app = json!({"githubApp": {"secretRef": {"name": "app"}, "repositories": ["acme/*"]}});
    let parameters = json!({"owner": "acme", "repository": "web"});
    let status = json!({"builtin": "github-commit-status", "parameters": parameters});
    world.builtin("status", &hub, status, json!({"endpoint": {"auth": app}})).await;
    let client = json!({"oauth2": {"tokenUrl": issuer.url("/token"), "secretRef": {"name": "client"}, "scope": "deploys"}});
    let wait = json!({"retry": {"initial": "1s", "max": "1s"}});
    world.notification("board", &board, json!({"endpoint": {"auth": client}, "delivery": wait})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.applied("web", &format!("main@sha1:{NEXT}")).await;
    outcome(&world, "status", Some(Outcome::Delivered), None).await;
    assert_eq!(hub.to(&format!("/repos/acme/web/statuses/{NEXT}")).len(), 1);
    let asked = hub.to("/app/installations/7/access_tokens").remove(0).json();
    assert_eq!(asked, json!({"repositories": ["web"], "permissions": {"statuses": "write"}}));

    // The authorization server refuses the client, until somebody corrects it.
    let waits = outcome(&world, "board", None, Some("TokenRefused")).await.status.unwrap();
    let said = "no token could be requested: the token of the authorization server: 400, invalid_client";
    assert_eq!(waits.error.as_deref(), Some(said));
    assert_eq!((waits.attempts, board.log().len()), (0, 0));
    issuer.decide(|_| {
        let token = json!({"access_token": "0auth-t0k3n", "token_type": "Bearer", "expires_in": 600});
        Reply::status(200).body(&token.to_string())
    });
    world
        .patch::<k8s_openapi::api::core::v1::Secret>("client", json!({"stringData": {"clientSecret": "another-s3cr3t"}}))
        .await;
    outcome(&world, "board", Some(Outcome::Delivered), None).await;
    assert_eq!(board.log()[0].header("authorization"), "Bearer 0auth-t0k3n");
    assert_eq!(issuer.log().len(), 2, "one that was refused, and one with the new secret");
    let form = String::from_utf8(issuer.log().pop().unwrap().body).unwrap();
    assert_eq!(form, "grant_type=client_credentials&scope=deploys");

    let everything = serde_json::to_string(&(world.deliveries().await, world.get_notification("board").await)).unwrap();
    assert!(!everything.contains("t0k3n") && !everything.contains("s3cr3t"), "a token or a secret is in an object");
}

/// Decodes a part of a JSON Web Token or a key, which is Base64 for URLs.
fn decoded(text: &str) -> Vec<u8> {
    let digits = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['-', '_']).collect::<String>();
    let (mut bytes, mut bits, mut known) = (Vec::new(), 0_usize, 0);
    for digit in text.chars().filter_map(|c| digits.find(c)) {
        (bits, known) = ((bits << 6 | digit) & 0xffff, known + 6);
        if known >= 8 {
            known -= 8;
            bytes.push(u8::try_from(bits >> known & 0xff).unwrap());
        }
    }
    bytes
}

/// Returns the keys with which the API server signs tokens.
async fn signing_keys(world: &World) -> Vec<Vec<u8>> {
    let asked = http::Request::get("/openid/v1/jwks").body(Vec::new()).unwrap();
    let keys: Value = serde_json::from_str(&world.client.request_text(asked).await.unwrap()).unwrap();
    let part = |key: &Value, name: &str| decoded(key[name].as_str().unwrap());
    let point = |key: &Value| [vec![4], part(key, "x"), part(key, "y")].concat();
    keys["keys"].as_array().unwrap().iter().map(point).collect()
}

/// Answers as an authorization server that trusts the tokens of one ServiceAccount, and issues a token to a client with one.
fn exchange(request: &Request, keys: &[Vec<u8>], subject: &str) -> Reply {
    let form: std::collections::BTreeMap<_, _> = url::form_urlencoded::parse(&request.body).into_owned().collect();
    let get = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
    let (signed, signature) = get("client_assertion").rsplit_once('.').unwrap_or_default();
    let signature = decoded(signature);
    let verifies =
        |key: &Vec<u8>| UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(signed.as_bytes(), &signature).is_ok();
    let claims = decoded(signed.split_once('.').unwrap_or_default().1);
    let claims: Value = serde_json::from_slice(&claims).unwrap_or_default();
    let (from, to) = (claims["iat"].as_i64().unwrap_or_default(), claims["exp"].as_i64().unwrap_or_default());
    let is_client = keys.iter().any(verifies)
        && claims["iss"] == "https://kubernetes.default.svc"
        && claims["aud"] == json!(["api://exchange"])
        && claims["sub"] == subject
        && to - from == 600
        && get("client_assertion_type") == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        && (get("grant_type"), get("client_id")) == ("client_credentials", "7");
    let token = json!({"access_token": "0auth-t0k3n", "token_type": "Bearer", "expires_in": 600});
    if is_client { Reply::status(200).body(&token.to_string()) } else { Reply::status(401).body(&claims.to_string()) }
}

#[tokio::test]
async fn a_client_without_a_secret_sends_a_token_of_its_service_account() {
    let world = World::new("workload").await;
    let (board, issuer) = (Receiver::start(), Receiver::start());
    let (keys, subject) = (signing_keys(&world).await, format!("system:serviceaccount:{}:notifier", world.ns));
    // The first answer repeats the token of the ServiceAccount, so that the end of the test can find one that is shown.
    let mut is_first = true;
    issuer.decide(move |request| {
        if std::mem::take(&mut is_first) {
            let form: std::collections::BTreeMap<_, _> = url::form_urlencoded::parse(&request.body).into_owned().collect();
            let said = json!({"error": form["client_assertion"], "error_description": form["client_assertion"]});
            return Reply::status(401).body(&said.to_string());
        }
        exchange(request, &keys, &subject)
    });
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.create::<ServiceAccount>(json!({"metadata": {"name": "notifier"}})).await;
    // As docs/permissions.md says, for any account of Relaybook in this namespace.
    let allows = |resource: &str, verb: &str| json!({"apiGroups": [""], "resources": [resource], "resourceNames": ["notifier"], "verbs": [verb]});
    let rules = [allows("serviceaccounts", "get"), allows("serviceaccounts/token", "create")];
    world.create::<Role>(json!({"metadata": {"name": "notifier"}, "rules": rules})).await;
    let group = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": format!("system:serviceaccounts:{}", world.ns)});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "notifier"});
    world.create::<RoleBinding>(json!({"metadata": {"name": "notifier"}, "subjects": [group], "roleRef": role})).await;
    let account = json!({"name": "notifier", "audience": "api://exchange"});
    let client = json!({"oauth2": {"tokenUrl": issuer.url("/token"), "serviceAccount": account, "clientId": "7"}});
    let wait = json!({"retry": {"initial": "1s", "max": "1s"}});
    world.notification("board", &board, json!({"endpoint": {"auth": client}, "delivery": wait})).await;
    let relaybook = Relaybook::start(&world).await;
    world.settled().await;
    world.cursor("shop", "board").await;

    world.ship("web", "2").await;
    let has = |outcome: Option<Outcome>, reason: Option<&'static str>| {
        move |d: &Delivery| d.status.as_ref().is_some_and(|s| s.outcome == outcome && s.reason.as_deref() == reason)
    };
    let waits = world.delivery("Deployed 2", has(None, Some("TokenRefused"))).await.status.unwrap();
    let error = waits.error.unwrap();
    let url = issuer.url("/token");
    let lacks = format!(
        "/notifier: its owner has not consented; set its annotations relaybook.dev/token-url: {url}, relaybook.dev/audience: api://exchange"
    );
    let field = "the token of the ServiceAccount: endpoint.auth.oauth2.serviceAccount: ";
    assert!(error.contains(field) && error.ends_with(&lacks), "{error}");
    assert_eq!((issuer.log().len(), board.log().len()), (0, 0));

    let consent = json!({"relaybook.dev/token-url": url, "relaybook.dev/audience": "api://exchange"});
    world.patch::<ServiceAccount>("notifier", json!({"metadata": {"annotations": consent}})).await;
    // The server is asked again after a minute at most.
    world.delivery_within(Duration::from_secs(200), "Deployed 2", has(Some(Outcome::Delivered), None)).await;
    assert_eq!(board.log()[0].header("authorization"), "Bearer 0auth-t0k3n");
    assert!(issuer.log().len() >= 2, "one that was refused with the token in the answer, and one that was not");
    Oracle::new(&world, &board).lane("shop/board/dev/web", &["Deployed 2"]).check().await;
    let everything = serde_json::to_string(&(world.deliveries().await, world.get_notification("board").await)).unwrap();
    assert!(!everything.contains("eyJ") && !everything.contains("t0k3n") && !relaybook.log().contains("eyJ"));
}

#[tokio::test]
async fn invalid_issued_credentials_are_refused_with_their_field() {
    let world = World::new("tokens-invalid").await;
    let receiver = Receiver::start();
    let _relaybook = Relaybook::start(&world).await;
    let from = json!({"secretKeyRef": {"name": "hook", "key": "url"}});
    let secret = json!({"githubApp": {"secretRef": {"name": "app"}}});
    let over = json!({"endpoint": {"url": null, "urlFrom": from, "auth": secret}});
    let created: Notification = world.notification("hidden", &receiver, over).await;
    assert!(created.metadata.uid.is_some());
    let condition = world.condition("hidden", "Ready", |c| c.message.contains("githubApp")).await;
    assert!(condition.message.contains("spec.endpoint.auth.githubApp: requires endpoint.url"), "{}", condition.message);
}
