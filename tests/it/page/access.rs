//! The token of a person decides what the page shows, and nothing else does.

use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt as _;
use serde_json::json;

use super::person::{ask, client, token, url};
use crate::support::own_page::OwnPage;
use crate::support::relaybook::Options;
use crate::support::wait::within;
use crate::support::{Receiver, Relaybook, World, eventually};

/// A word that only objects of team A have.
const SECRET: &str = "zanzibar";

/// Team A with a pipeline, a notification and a delivery whose names, revisions and answers have the word.
async fn team(ns: &str) -> (World, Receiver) {
    let world = World::new(ns).await;
    let receiver = Receiver::start();
    receiver.always("/hook", crate::support::Reply::status(400).body(SECRET));
    world.deploy(SECRET, "1").await;
    world.pipeline(SECRET, &[&format!("prod/{SECRET}")]).await;
    world.notification(&format!("{SECRET}-hook"), &receiver, json!({"endpoint": {"url": receiver.url("/hook")}})).await;
    (world, receiver)
}

pub(super) fn serving(world: &World, more: &[&str]) -> Options {
    let args = ["--page-addr=127.0.0.1:0"].iter().chain(more).map(|arg| (*arg).to_owned()).collect();
    Options { args, ..Options::of(world) }
}

#[tokio::test]
async fn another_teams_token_sees_nothing_of_this_team() {
    let (a, _receiver) = team("page-team-a").await;
    let b = World::on(&a.kubeconfig, "page-team-b").await;
    let relaybook = Relaybook::with(&a, serving(&a, &["--page-actions"])).await;
    a.observed(SECRET).await;
    a.ship(SECRET, &format!("2-{SECRET}")).await;
    let parked =
        a.delivery(&format!("Deployed 2-{SECRET}"), |d| d.status.as_ref().is_some_and(|s| s.reason.is_some())).await;
    let page = relaybook.page_address().await;
    let own = token(&a, "owner", &["get", "list", "watch", "patch"]).await;
    let other = token(&b, "other", &["get", "list", "watch", "patch"]).await;
    let none = token(&b, "none", &[]).await;
    let (ns, delivery) = (&a.ns, parked.name_any());
    let paths = [
        "/".to_owned(),
        format!("/?namespace={ns}"),
        format!("/?namespace={ns}&state=current&q={SECRET}"),
        format!("/pipelines/{ns}/{SECRET}"),
        format!("/pipelines/{ns}/{SECRET}?range=1h"),
        format!("/notifications/{ns}/{SECRET}-hook"),
        format!("/deliveries/{ns}/{delivery}"),
        "/receivers".to_owned(),
        format!("/receivers?namespace={ns}"),
        "/pending".to_owned(),
        format!("/pending?namespace={ns}"),
        "/parked".to_owned(),
        format!("/parked?namespace={ns}"),
        "/clusters".to_owned(),
        format!("/clusters?namespace={ns}"),
        format!("/search?q={SECRET}"),
        format!("/search?q=2-&namespace={ns}"),
    ];
    // The owner sees it, so its absence elsewhere means something.
    let is_empty = |path: &str| path.contains("clusters") || path.contains("pending");
    for path in paths.iter().filter(|path| path.contains(ns.as_str()) && !is_empty(path)) {
        let seen = ask(&url(page, path), &[("authorization", &format!("Bearer {own}"))], None).await;
        assert!(seen.status == 200 && shows(&seen.body), "{path}: {} {}", seen.status, seen.body);
    }
    let mut tries = 0;
    let bearers = [
        format!("Bearer {other}"),
        format!("Bearer {none}"),
        "Bearer wrong".to_owned(),
        "Basic YTpi".to_owned(),
        String::new(),
    ];
    for bearer in &bearers {
        for path in &paths {
            let seen = ask(&url(page, path), &[("authorization", bearer)], None).await;
            assert!(!shows(&without(&seen.body, path)), "{bearer:.12} {path}: {}", seen.body);
            // A person without the permission sees which one is missing. A stranger sees only the form for a token.
            let expected = if bearer.starts_with("Bearer ey") { "No permission: needs" } else { "Sign in" };
            assert!(seen.body.contains(expected), "{bearer:.12} {path}: {} {}", seen.status, seen.body);
            tries += 1;
        }
    }
    // The cookie of another person beside, or instead of, a token.
    let cookie = sign_in(page, &other).await;
    for path in &paths {
        for headers in [
            vec![("cookie", cookie.as_str())],
            vec![("cookie", cookie.as_str()), ("x-forwarded-access-token", own.as_str())],
        ] {
            let seen = ask(&url(page, path), &headers, None).await;
            assert!(!shows(&without(&seen.body, path)), "{path}: {}", seen.body);
            tries += 1;
        }
    }
    // The stream of events says nothing, and ends.
    for path in &paths {
        let stream = format!("/events?for={}", path.replace('?', "%3F").replace('&', "%26").replace('/', "%2F"));
        let mut answer = client().get(url(page, &stream)).bearer_auth(&other).send().await.unwrap();
        let mut text = String::new();
        while let Ok(Ok(Some(chunk))) = tokio::time::timeout(Duration::from_millis(300), answer.chunk()).await {
            text.push_str(&String::from_utf8_lossy(&chunk));
        }
        assert!(!shows(&text), "{path}: {text}");
        tries += 1;
    }
    // Actions with the token of another form, and of the own form on a delivery of the other team.
    let mine = ask(&url(page, &format!("/?namespace={}", b.ns)), &[("cookie", &cookie)], None).await;
    let form = hidden(&mine.body, "token");
    let origin = url(page, "");
    for (path, body, status) in [
        (format!("/deliveries/{ns}/{delivery}/resend"), format!("token={form}"), 403),
        ("/parked/resend".to_owned(), format!("token={form}&delivery={ns}%2F{delivery}"), 200),
        (format!("/notifications/{ns}/{SECRET}-hook/test"), format!("token={form}&pipeline={ns}%2F{SECRET}"), 403),
        (format!("/pipelines/{ns}/{SECRET}/approve"), format!("token={form}&environment=prod&revision=2"), 403),
        (format!("/deliveries/{ns}/{delivery}/resend"), "token=00".to_owned(), 403),
    ] {
        let seen = ask(&url(page, &path), &[("cookie", &cookie), ("origin", &origin)], Some(&body)).await;
        let shown = seen.body.replace(&format!("{ns}/{delivery}"), "").replace(&path, "").replace(&delivery, "");
        let shown = shown.replace(&format!("{ns}/{SECRET}"), "");
        assert_eq!(seen.status, status, "{path}: {}", seen.body);
        assert!(!shows(&shown.replace(&format!("{SECRET}-hook"), "")), "{path}: {shown}");
        tries += 1;
    }
    assert!(tries >= 60, "{tries}");
    let untouched = a.delivery(&format!("Deployed 2-{SECRET}"), |d| d.name_any() == delivery).await;
    assert!(untouched.annotations().is_empty(), "{untouched:?}");
}

/// Returns a page without what the address itself has, which a person knows who has typed it.
fn without(body: &str, path: &str) -> String {
    let name = path.splitn(3, '/').nth(2).unwrap_or(path).split('?').next().unwrap_or_default();
    let last = name.rsplit('/').next().unwrap_or_default();
    let title = format!("Delivery {last}");
    [path, name, &title].iter().fold(body.to_owned(), |body, known| body.replace(*known, ""))
}

fn shows(body: &str) -> bool {
    // What a person typed into the address is shown again.
    body.replace(&format!("q={SECRET}"), "")
        .replace(&format!("value=\"{SECRET}\""), "")
        .replace(&format!("contains(&quot;{SECRET}&quot;)"), "")
        .contains(SECRET)
}

/// Signs in with a token. Returns the cookie.
pub(super) async fn sign_in(page: std::net::SocketAddr, token: &str) -> String {
    let origin = url(page, "");
    let seen = ask(&url(page, "/sign-in"), &[("origin", &origin)], Some(&format!("next=%2Fclusters&bearer={token}"))).await;
    assert_eq!((seen.status, seen.headers["location"].to_str().unwrap()), (303, "/clusters"), "{seen:?}");
    let cookie = seen.headers["set-cookie"].to_str().unwrap();
    for attribute in ["__Host-relaybook=", "; HttpOnly", "; Secure", "; SameSite=Strict", "; Path=/"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(!cookie.contains(token.split('.').nth(1).unwrap_or(token)), "the token is encrypted");
    cookie.split(';').next().unwrap().to_owned()
}

/// Returns the value of a hidden field.
pub(super) fn hidden(body: &str, name: &str) -> String {
    let at = body.find(&format!("name=\"{name}\" value=\"")).unwrap_or_else(|| panic!("no {name} in {body}"));
    body[at..].split('"').nth(3).unwrap().to_owned()
}

#[tokio::test]
async fn a_deleted_account_loses_the_stream_and_the_page_within_a_minute() {
    let (world, _receiver) = team("page-revoked").await;
    let relaybook = Relaybook::with(&world, serving(&world, &[])).await;
    let page = relaybook.page_address().await;
    let leaver = token(&world, "leaver", &["get", "list", "watch"]).await;
    let cookie = sign_in(page, &leaver).await;
    let paths = [format!("/?namespace={}", world.ns), format!("/pipelines/{}/{SECRET}", world.ns)];
    let mut streams = Vec::new();
    for path in &paths {
        let stream = format!("/events?for={}", path.replace('?', "%3F").replace('/', "%2F").replace('=', "%3D"));
        let answer = client().get(url(page, &stream)).header("cookie", &cookie).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        streams.push(answer);
    }
    assert_eq!(ask(&url(page, &paths[0]), &[("cookie", &cookie)], None).await.status, 200);
    world.delete::<ServiceAccount>("leaver").await;
    for (stream, path) in streams.into_iter().zip(&paths) {
        let text = tokio::time::timeout(Duration::from_mins(1), stream.text()).await;
        assert!(
            text.as_ref().is_ok_and(|text| text.as_ref().unwrap().contains("event: end\ndata: signed-out")),
            "{path}: {text:?}"
        );
    }
    within(Duration::from_mins(1), "the page is closed", async || {
        let seen = ask(&url(page, &paths[0]), &[("cookie", &cookie)], None).await;
        if seen.status == 401 && !seen.body.contains(SECRET) { Ok(()) } else { Err(seen.body) }
    })
    .await;
}

#[tokio::test]
async fn rows_are_not_shown_after_their_permission_is_withdrawn() {
    let (world, _receiver) = team("page-withdrawn").await;
    let relaybook = Relaybook::with(&world, serving(&world, &[])).await;
    let page = relaybook.page_address().await;
    let token = token(&world, "mover", &["get", "list", "watch"]).await;
    let bearer = format!("Bearer {token}");
    let overview = url(page, &format!("/?namespace={}", world.ns));
    let seen = ask(&overview, &[("authorization", &bearer)], None).await;
    assert!(seen.body.contains(SECRET), "{}", seen.body);
    world.delete::<k8s_openapi::api::rbac::v1::RoleBinding>("mover").await;
    // The rows of the watch are still in memory, but every look asks the API server first.
    eventually("the rows are not shown any more", async || {
        let seen = ask(&overview, &[("authorization", &bearer)], None).await;
        let is_closed = seen.status == 403
            && seen.body.contains("No permission: needs list on pipelines")
            && !seen.body.contains(SECRET);
        if is_closed { Ok(()) } else { Err(seen.body) }
    })
    .await;
}

#[tokio::test]
async fn other_hosts_and_other_sites_are_refused() {
    let (world, _receiver) = team("page-hosts").await;
    let args = ["--page-url=https://relaybook.example.com", "--page-actions"];
    let relaybook = Relaybook::with(&world, serving(&world, &args)).await;
    let page = relaybook.page_address().await;
    let token = token(&world, "person", &["get", "list", "watch", "patch"]).await;
    let bearer = format!("Bearer {token}");
    let path = format!("/pipelines/{}/{SECRET}", world.ns);
    for (headers, status) in [
        (vec![("host", "relaybook.example.com")], 200),
        (vec![("host", "localhost:1234")], 200),
        (vec![("host", "evil.example.com")], 421),
        (vec![("host", "relaybook.example.com.evil.example.com")], 421),
        (vec![("host", "relaybook.example.com"), ("origin", "https://evil.example.com")], 403),
        (vec![("host", "relaybook.example.com"), ("origin", "null")], 403),
        (vec![("host", "relaybook.example.com"), ("sec-fetch-site", "cross-site")], 403),
        (vec![("host", "relaybook.example.com"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], 200),
    ] {
        let all: Vec<_> = headers.iter().copied().chain([("authorization", bearer.as_str())]).collect();
        let seen = ask(&url(page, &path), &all, None).await;
        assert_eq!((seen.status, seen.body.contains(SECRET)), (status, status == 200), "{headers:?}: {}", seen.body);
    }
    let seen = ask(&url(page, &path), &[("host", "relaybook.example.com"), ("authorization", &bearer)], None).await;
    let policy = seen.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    for inline in ["<style", "style=", "onclick", "javascript:"] {
        assert!(!seen.body.contains(inline), "{inline}: {}", seen.body);
    }
    assert_eq!(seen.headers["cache-control"], "no-store");
}

#[tokio::test]
async fn a_page_without_actions_only_reads() {
    let (world, _receiver) = team("page-reads").await;
    let relaybook = Relaybook::with(&world, serving(&world, &[])).await;
    world.observed(SECRET).await;
    world.ship(SECRET, "2").await;
    let parked = world.delivery("Deployed 2", |d| d.status.as_ref().is_some_and(|s| s.outcome.is_some())).await;
    let page = relaybook.page_address().await;
    let cookie = sign_in(page, &token(&world, "person", &["get", "list", "watch", "patch"]).await).await;
    let path = format!("/deliveries/{}/{}", world.ns, parked.name_any());
    let seen = ask(&url(page, &path), &[("cookie", &cookie)], None).await;
    assert!(seen.status == 200 && !seen.body.contains("Resend"), "{}", seen.body);
    let body = format!("token={}", hidden(&seen.body, "token"));
    let origin = url(page, "");
    let seen = ask(&url(page, &format!("{path}/resend")), &[("cookie", &cookie), ("origin", &origin)], Some(&body)).await;
    assert!(seen.status == 403 && seen.body.contains("--page-actions"), "{}", seen.body);
    assert!(world.delivery("Deployed 2", |d| d.name_any() == parked.name_any()).await.annotations().is_empty());
}

#[tokio::test]
async fn the_first_address_of_the_own_page_can_be_used_once() {
    let (world, _receiver) = team("page-own").await;
    let page = OwnPage::start(&world.kubeconfig, &["--controller-namespace", &world.ns]);
    let (origin, first) = (page.origin(), page.first.as_str());
    let overview = format!("{origin}/?namespace={}", world.ns);
    let seen = ask(&overview, &[], None).await;
    assert!(seen.status == 401 && !seen.body.contains(SECRET), "{}", seen.body);
    let guessed = ask(&format!("{origin}/enter?ticket=0000"), &[], None).await;
    assert_eq!(guessed.status, 401);
    let entered = ask(first, &[], None).await;
    let cookie = entered.headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    let pair = cookie.split(';').next().unwrap();
    let seen = ask(&overview, &[("cookie", pair)], None).await;
    assert!(seen.status == 200 && seen.body.contains(SECRET), "{}", seen.body);
    assert_eq!(ask(first, &[], None).await.status, 401, "it was used");
    // A token of the cluster is no way in: only the kubeconfig of the person counts.
    let token = token(&world, "other", &["get", "list", "watch"]).await;
    let seen = ask(&overview, &[("authorization", &format!("Bearer {token}"))], None).await;
    assert_eq!(seen.status, 401);
}

#[tokio::test]
async fn replicas_with_the_same_key_accept_each_others_cookies() {
    let (world, _receiver) = team("page-keys").await;
    let key = crate::support::tmp().join("page-key");
    std::fs::write(&key, "0123456789abcdef0123456789abcdef\n").unwrap();
    let flag = format!("--page-key-file={}", key.display());
    let one = Relaybook::with(&world, Options { pod: Some("one"), ..serving(&world, &[&flag]) }).await;
    let two = Relaybook::with(&world, Options { pod: Some("two"), ..serving(&world, &[&flag]) }).await;
    let cookie = sign_in(one.page_address().await, &token(&world, "person", &["get", "list", "watch"]).await).await;
    let path = format!("/?namespace={}", world.ns);
    let seen = ask(&url(two.page_address().await, &path), &[("cookie", &cookie)], None).await;
    assert!(seen.status == 200 && seen.body.contains(SECRET), "{}", seen.body);
}

#[tokio::test]
async fn a_person_who_may_patch_notifications_may_test() {
    let (world, receiver) = team("page-test").await;
    let relaybook = Relaybook::with(&world, serving(&world, &["--page-actions"])).await;
    world.observed(SECRET).await;
    let page = relaybook.page_address().await;
    let notification = format!("/notifications/{}/{SECRET}-hook", world.ns);
    let send = async |token: &str| {
        let (origin, cookie) = (url(page, ""), sign_in(page, token).await);
        let seen = ask(&url(page, &notification), &[("cookie", &cookie)], None).await;
        let form = format!("token={}&pipeline={}%2F{SECRET}&acts=yes", hidden(&seen.body, "token"), world.ns);
        let headers = [("cookie", cookie.as_str()), ("origin", &origin)];
        ask(&url(page, &format!("{notification}/test")), &headers, Some(&form)).await.body
    };
    let seen = send(&token(&world, "reader", &["get", "list", "watch"]).await).await;
    assert!(seen.contains("No permission: needs patch on notifications in page-test."), "{seen}");
    assert!(receiver.to("/hook").is_empty());
    // No permission on Secrets, ConfigMaps or Deliveries is needed beyond those of the screens.
    let seen = send(&token(&world, "writer", &["get", "list", "watch", "patch"]).await).await;
    assert!(seen.contains(&format!("of prod/in-cluster/page-test/{SECRET} failed: 400 Bad Request")), "{seen}");
    let requests = receiver.to("/hook");
    assert_eq!((requests.len(), requests[0].header("relaybook-test")), (1, "true"));
    let deliveries = world.deliveries().await;
    assert!(deliveries.len() == 1 && deliveries[0].spec.test, "{deliveries:?}");
}
