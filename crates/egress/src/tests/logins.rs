//! Credentials for forges and Git servers: they go only to the server of the URL, and are never shown.

use http::HeaderValue;

use super::exchange::{asking, bearer, git, named, not_sent, of};
use super::*;
use relaybook_api::notification::credentials::Authorities;
use relaybook_api::values::refs::INBOUND;

#[tokio::test]
async fn a_login_is_sent_in_its_header() {
    let server = Receiver::answering(OK).await;
    let private = HeaderName::from_static("private-token");
    let token = |header, scheme| Login::Token { secret: named(), header, scheme, app: None };
    for (data, login, line) in [
        (&[("token", "t0ken\n")][..], bearer(), "authorization: Bearer t0ken"),
        (&[("token", "t0ken")], token(AUTHORIZATION, "token"), "authorization: token t0ken"),
        (&[("token", "t0ken")], token(private, ""), "private-token: t0ken"),
        // x-access-token:t0ken
        (&[("token", "t0ken")], git(), "authorization: Basic eC1hY2Nlc3MtdG9rZW46dDBrZW4="),
        // me:open: sesame
        (
            &[("username", "me"), ("password", "open: sesame\n"), ("token", "t0ken")],
            git(),
            "authorization: Basic bWU6b3Blbjogc2VzYW1l",
        ),
        // me:t0ken
        (&[("username", "me"), ("token", "t0ken")], git(), "authorization: Basic bWU6dDBrZW4="),
        // x-access-token:sesame
        (&[("password", "sesame")], git(), "authorization: Basic eC1hY2Nlc3MtdG9rZW46c2VzYW1l"),
    ] {
        let sender = sender_with(lax(), with_secret(data));
        let headers = vec![(AUTHORIZATION, "rendered".parse().unwrap())];
        let beside = line.starts_with("private");
        let asked = ForgeRequest { headers, login: Some(login), ..of(&server, "/") };
        let debug = format!("{asked:?}");
        let answer = sender.ask(asked).await.unwrap();
        assert_eq!((answer.status, &*answer.body), (200, &b"ok"[..]));
        let request = server.requests().pop().unwrap();
        assert_eq!(request.lines().filter(|l| *l == line).count(), 1, "{line} in {request}");
        assert_eq!(request.contains("authorization: rendered"), beside, "{request}");
        for hidden in ["t0ken", "sesame", "rendered"] {
            assert!(!format!("{debug} {answer:?} {sender:?}").contains(hidden), "{hidden}");
        }
    }
}

#[tokio::test]
async fn a_request_is_not_sent_without_its_login() {
    let server = Receiver::answering(OK).await;
    let invalid = |k: &str, problem| NotSent::SecretInvalid { key: key(k), problem };
    for (data, login, why, words) in [
        (&[][..], git(), NotSent::SecretMissing(named()), "Secret team-a/chat does not exist"),
        (&[("x", "y")], bearer(), NotSent::KeyMissing(key("token")), "Secret team-a/chat has no key token"),
        (&[("password", "y")], bearer(), NotSent::KeyMissing(key("token")), "Secret team-a/chat has no key token"),
        (
            &[("username", "me")],
            git(),
            NotSent::KeyMissing(key("password or token")),
            "Secret team-a/chat has no key password or token",
        ),
        (
            &[("password", ""), ("token", "t")],
            git(),
            invalid("password", "is empty"),
            "Secret team-a/chat, key password: is empty",
        ),
        (
            &[("username", "m:e"), ("token", "t")],
            git(),
            invalid("username", "a user name must not contain a colon"),
            "Secret team-a/chat, key username: a user name must not contain a colon",
        ),
        (
            &[("token", "a\nb")],
            git(),
            NotSent::SecretCharacter { key: key("token"), at: 2, what: "a line break" },
            "Secret team-a/chat, key token: character 2 is a line break; remove it",
        ),
    ] {
        let result =
            sender_with(lax(), with_secret(data)).ask(ForgeRequest { login: Some(login), ..of(&server, "/") }).await;
        let why_ = not_sent(result);
        assert_eq!((why_.to_string().as_str(), why_), (words, why));
    }
    let secrets = Secrets::unknown();
    let slot = secrets.add(named());
    let sender = sender_with(lax(), secrets.clone());
    for login in [git(), bearer()] {
        let unread = sender.ask(ForgeRequest { login: Some(login), timeout: SHORT, ..of(&server, "/") }).await;
        assert_eq!(not_sent(unread), NotSent::SecretUnknown(named()));
    }
    let reserved = k8s_openapi::api::core::v1::Secret { type_: Some(INBOUND.to_owned()), ..secret(&[("token", "t0ken")]) };
    secrets.put(&named(), &slot, Some(reserved));
    let tls = TlsRef { authorities: Authorities::Secret(key("token")), ..TlsRef::default() };
    for (login, tls) in [(Some(git()), TlsRef::default()), (Some(bearer()), TlsRef::default()), (None, tls)] {
        let result = sender.ask(ForgeRequest { login, tls, ..of(&server, "/") }).await;
        assert_eq!(not_sent(result), NotSent::SecretReserved(named()));
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn secrets_in_an_answer_are_not_shown() {
    let echo = Receiver::new(async |mut peer| {
        while let Some(request) = peer.request().await {
            let head = format!("x-said: s3cr3t-token\r\ncontent-length: {}", request.len());
            peer.write(&format!("HTTP/1.1 422 X\r\n{head}\r\n\r\n{request}")).await;
        }
    })
    .await;
    let data = [("username", "someone"), ("password", "open sesame"), ("token", "s3cr3t-token")];
    let sender = sender_with(lax(), with_secret(&data));
    let mut header = HeaderValue::from_static("Key plugh-xyzzy");
    header.set_sensitive(true);
    for login in [bearer(), git()] {
        let headers = vec![(HeaderName::from_static("x-key"), header.clone())];
        let answer = sender.ask(ForgeRequest { headers, login: Some(login), ..of(&echo, "/repos") }).await.unwrap();
        let (said, debug) = (answer.shown(&answer.body), format!("{answer:?}"));
        assert!(said.starts_with("GET /repos HTTP/1.1  ") && said.contains("***"), "{said}");
        let other = answer.shown(answer.headers["x-said"].as_bytes());
        let sent = String::from_utf8_lossy(&answer.body).into_owned();
        for hidden in ["s3cr3t-token", "sesame", "c29tZW9uZTpvcGVuIHNlc2FtZQ", "plugh"] {
            assert!(!said.contains(hidden) && !debug.contains(hidden), "{hidden} in {said} {debug}");
            assert!(!other.contains(hidden) || !sent.contains(hidden), "{hidden} in {other}");
        }
    }
    let long = sender.ask(ForgeRequest { login: Some(bearer()), ..of(&echo, "/") }).await.unwrap();
    let shown = long.shown(format!("{}\u{202e}\x1b{}", "a".repeat(200), "s3cr3t-token".repeat(10_000)).as_bytes());
    assert!(shown.len() <= 256 && !shown.contains("s3cr3t") && !shown.contains('\x1b'), "{shown}");
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_not_followed() {
    let second = Receiver::answering(OK).await;
    let sender = sender_with(lax(), with_secret(&[("token", "s3cr3t-token")]));
    for status in [301, 302, 303, 307, 308] {
        let to = format!("http://{}/", second.address);
        let head = format!("HTTP/1.1 {status} X\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
        let first = Receiver::answering(head).await;
        for login in [bearer(), git()] {
            let answer = sender.ask(ForgeRequest { login: Some(login), ..of(&first, "/") }).await.unwrap();
            assert_eq!((answer.status, answer.headers["location"].to_str().unwrap()), (status, &*to));
        }
    }
    assert_eq!(second.connections(), 0);
}

#[tokio::test]
async fn the_policy_applies_before_a_secret_is_read() {
    let server = Receiver::answering(OK).await;
    let port = server.address.port();
    let strict = sender_with(Policy { allow_http: true, ..Policy::default() }, Secrets::unknown());
    for host in ["127.0.0.1", "0x7f.1", "[::ffff:127.0.0.1]"] {
        let why =
            not_sent(strict.ask(ForgeRequest { login: Some(git()), ..asking(format!("http://{host}:{port}/")) }).await);
        assert!(matches!(why, NotSent::DestinationForbidden(_)), "{host}: {why:?}");
    }
    // The address of a name is known only when the connection is made.
    let why = not_sent(strict.ask(asking(format!("http://localhost:{port}/"))).await);
    assert!(matches!(why, NotSent::DestinationForbidden(_)), "{why:?}");
    let https_only = sender_with(Policy { allow_http: false, ..lax() }, Secrets::unknown());
    let result = https_only.ask(ForgeRequest { login: Some(git()), ..of(&server, "/") }).await;
    assert_eq!(not_sent(result), NotSent::InsecureScheme);
    for url in ["https://me@git.example/", "https://me:pass@git.example/", "ssh://git.example/"] {
        assert!(matches!(not_sent(https_only.ask(asking(url)).await), NotSent::InvalidRequest(_)), "{url}");
    }
    assert_eq!(server.connections(), 0);
}
