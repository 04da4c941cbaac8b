//! Credentials and other Secrets: where they are used, and that they are never shown.

use super::*;
use relaybook_api::ObjectName;
use relaybook_api::notification::credentials::{SignatureForm, SigningRef};

#[tokio::test]
async fn credentials_are_sent_in_their_header() {
    let receiver = Receiver::answering(OK).await;
    let secrets = with_secret(&[("username", "me"), ("password", "open: sesame\n"), ("token", "t0ken\n")]);
    let sender = sender_with(lax(), secrets);
    let private = HeaderName::from_static("x-gitlab-token");
    let basic = AuthRef::Basic { namespace: "team-a".into(), name: "chat".into() };
    for (auth, line) in [
        (token(AUTHORIZATION, "Bearer"), "authorization: Bearer t0ken"),
        (token(private, ""), "x-gitlab-token: t0ken"),
        (basic, "authorization: Basic bWU6b3Blbjogc2VzYW1l"),
    ] {
        let mut out = to(receiver.url("/"));
        out.headers.push((AUTHORIZATION, "rendered".parse().unwrap()));
        let beside = line.starts_with("x-");
        out.auth = Some(auth);
        assert_eq!(sender.send(out).await.result.status(), Some(200));
        let request = receiver.requests().pop().unwrap();
        assert_eq!(request.lines().filter(|l| *l == line).count(), 1, "{line} in {request}");
        assert_eq!(request.contains("authorization: rendered"), beside, "{request}");
    }
}

#[tokio::test]
async fn headers_of_a_secret_replace_rendered_ones_but_not_those_of_the_sender() {
    let receiver = echoing(403, 1).await;
    let secret = |name: &str| ObjectName::new("team-a", name);
    let data = [
        (key("token"), "t0ken"),
        (SecretKey::new("team-a", "hmac", "token"), "Jefe"),
        (SecretKey::new("team-a", "headers", "Authorization"), "Key s3cr3t-auth"),
        (SecretKey::new("team-a", "headers", "X-Key"), "s3cr3t-key\n"),
        (SecretKey::new("team-a", "headers", "X-Signature"), "s3cr3t-signature"),
    ];
    let sender = sender_with(lax(), Secrets::fixed(data.map(|(key, value)| (key, value.to_owned()))));
    let body = Bytes::from_static(b"what do ya want for nothing?");
    let out = Outgoing { headers_from: Some(secret("headers")), body, ..to(receiver.url("/")) };
    let form = SignatureForm::BodyHex(HeaderName::from_static("x-signature"));
    let signing = SigningRef { secret: secret("hmac"), form };
    // Test case 2 of RFC 4231.
    let signature = "x-signature: sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    for (auth, signing, lines) in [
        (None, None, ["authorization: Key s3cr3t-auth", "x-signature: s3cr3t-signature"]),
        (Some(token(AUTHORIZATION, "Bearer")), None, ["authorization: Bearer t0ken", "x-signature: s3cr3t-signature"]),
        (None, Some(signing), ["authorization: Key s3cr3t-auth", signature]),
    ] {
        let mut out = Outgoing { auth, signing, ..out.clone() };
        out.headers.push((HeaderName::from_static("x-key"), "rendered".parse().unwrap()));
        let said = format!("{:?}", sender.send(out).await);
        let request = receiver.requests().pop().unwrap();
        for line in lines.into_iter().chain(["x-key: s3cr3t-key"]) {
            assert_eq!(request.lines().filter(|l| *l == line).count(), 1, "{line} in {request}");
        }
        assert!(!request.contains("rendered") && !said.contains("s3cr3t"), "{request} {said}");
    }
}

#[tokio::test]
async fn a_request_is_not_sent_without_its_secret() {
    let receiver = Receiver::answering(OK).await;
    let mut out = to(receiver.url("/"));
    out.auth = Some(token(AUTHORIZATION, "Bearer"));
    let basic = AuthRef::Basic { namespace: "team-a".into(), name: "chat".into() };
    let invalid = |k: &str, problem| NotSent::SecretInvalid { key: key(k), problem };
    let broken = |k: &str| NotSent::SecretCharacter { key: key(k), at: 2, what: "a line break" };
    for (data, auth, why) in [
        (&[][..], None, NotSent::SecretMissing(key("").secret())),
        (&[("other", "x")], None, NotSent::KeyMissing(key("token"))),
        (&[("token", "")], None, invalid("token", "is empty")),
        (&[("token", "a\nb")], None, broken("token")),
        (&[("username", "me")], Some(&basic), NotSent::KeyMissing(key("password"))),
        (
            &[("username", "m:e"), ("password", "x")],
            Some(&basic),
            invalid("username", "a user name must not contain a colon"),
        ),
        (&[("username", "me"), ("password", "x\ny")], Some(&basic), broken("password")),
    ] {
        let out = Outgoing { auth: auth.or(out.auth.as_ref()).cloned(), ..out.clone() };
        let attempt = sender_with(lax(), with_secret(data)).send(out).await;
        assert_eq!(attempt.result, AttemptResult::NotSent(why));
    }
    let secrets = Secrets::unknown();
    secrets.add(key("").secret());
    let unread = sender_with(lax(), secrets);
    let attempt = unread.send(Outgoing { timeout: SHORT, ..out.clone() }).await;
    assert_eq!(attempt.result, AttemptResult::NotSent(NotSent::SecretUnknown(key("").secret())));
    let bad_id = Outgoing { id: "a\nb".into(), auth: None, ..out };
    assert!(matches!(unread.send(bad_id).await.result, AttemptResult::NotSent(NotSent::InvalidRequest(_))));
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_receiver_that_repeats_the_request_reveals_nothing() {
    let echo = Receiver::new(async |mut peer| {
        while let Some(request) = peer.request().await {
            let answer = format!("HTTP/1.1 400 X\r\ncontent-length: {}\r\n\r\n{request}", request.len());
            peer.write(&answer).await;
        }
    })
    .await;
    let url = format!("http://{}/T000/B111/xyzzy?key=plugh", echo.address);
    let data = [("url", url.as_str()), ("token", "s3cr3t-token"), ("username", "someone"), ("password", "open sesame")];
    let sender = sender_with(lax(), with_secret(&data));
    for auth in
        [token(HeaderName::from_static("a-token"), ""), AuthRef::Basic { namespace: "team-a".into(), name: "chat".into() }]
    {
        let out = Outgoing { auth: Some(auth), ..to(Destination::Secret(key("url"))) };
        let attempt = sender.send(out).await;
        assert_eq!(attempt.result.status(), Some(400));
        assert!(echo.requests().pop().unwrap().starts_with("POST /T000/B111/xyzzy?key=plugh "));
        let said = format!("{attempt:?}");
        assert!(said.contains("POST /***/***/***?key=*** "), "{said}");
        for hidden in ["T000", "B111", "xyzzy", "plugh", "127.0.0.1", "s3cr3t", "c29tZW9uZTpvcGVuIHNlc2FtZQ"] {
            assert!(!said.contains(hidden), "{hidden} in {said}");
        }
    }
}

#[tokio::test]
async fn no_failure_shows_the_url_of_a_secret() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    // The resolver rejects a label of 64 characters without a DNS query.
    let no_name = format!("http://{}.svc/xyzzy", "a".repeat(64));
    for (url, reason) in [
        (format!("https://{gone}/xyzzy"), Reason::ConnectionFailed),
        (no_name, Reason::DnsFailed),
        ("https://10.255.255.254.evil:x/xyzzy".to_owned(), Reason::SecretInvalid),
        ("https://xyzzy@hooks-example/".to_owned(), Reason::SecretInvalid),
        ("ftp://hooks-example/xyzzy".to_owned(), Reason::SecretInvalid),
        ("https://169.254.169.254/xyzzy".to_owned(), Reason::DestinationForbidden),
        ("http://hooks-example/xyzzy".to_owned(), Reason::InsecureScheme),
    ] {
        let policy = Policy { allow_http: false, ..lax() };
        let attempt = sender_with(policy, with_secret(&[("url", &url)])).send(to(Destination::Secret(key("url")))).await;
        let (Verdict::Retry { reason: said, .. } | Verdict::Blocked { reason: said }) = classify(&attempt.result, 0) else {
            panic!("{attempt:?}")
        };
        assert_eq!(said, reason, "{attempt:?}");
        let text = format!("{attempt:?} {:?}", attempt.result.error());
        for hidden in ["xyzzy", "example", "aaaa", "127.0.0.1", "169.254", "10.255"] {
            assert!(!text.contains(hidden), "{hidden} in {text}");
        }
    }
}

#[tokio::test]
async fn a_secret_that_changes_during_a_request_is_detected() {
    let secrets = Secrets::unknown();
    let name = key("").secret();
    let slot = secrets.add(name.clone());
    secrets.put(&name, &slot, Some(secret(&[("token", "old")])));
    let rotation = (secrets.clone(), name, slot);
    let receiver = Receiver::new(move |mut peer| {
        let (secrets, name, slot) = rotation.clone();
        async move {
            while let Some(request) = peer.request().await {
                if request.contains("Bearer new") {
                    peer.write(OK).await;
                    continue;
                }
                secrets.put(&name, &slot, Some(secret(&[("token", "new")])));
                peer.write("HTTP/1.1 401 X\r\ncontent-length: 0\r\n\r\n").await;
            }
        }
    })
    .await;
    let sender = sender_with(lax(), secrets);
    let out = Outgoing { auth: Some(token(AUTHORIZATION, "Bearer")), ..to(receiver.url("/")) };
    let first = sender.send(out.clone()).await;
    assert_eq!(classify(&first.result, 0), Verdict::Again { reason: Reason::CredentialsRejected });
    assert_eq!(classify(&sender.send(out).await.result, 0), Verdict::Delivered);
}

#[test]
fn destinations_at_one_receiver_have_one_origin() {
    let secrets = Secrets::unknown();
    let name = key("").secret();
    let slot = secrets.add(name.clone());
    let sender = sender_with(Policy::default(), secrets.clone());
    let hidden = |k: &str| sender.receivers().origin(&Destination::Secret(key(k)));
    let open = |url: &str| sender.receivers().origin(&Destination::Url(url.parse().unwrap()));
    assert_eq!(hidden("one"), None, "not read yet");
    secrets.put(&name, &slot, None);
    assert_eq!(hidden("one"), None, "does not exist");

    let data = [
        ("one", "https://hooks.example/T1\n"),
        ("two", "https://hooks.example/T2"),
        ("else", "https://other.example/"),
        ("no", "x"),
    ];
    secrets.put(&name, &slot, Some(secret(&data)));
    let one = hidden("one").unwrap();
    assert_eq!((hidden("two"), open("https://hooks.example/{}")), (Some(one.clone()), Some(one.clone())));
    assert!(hidden("else").is_some_and(|other| other != one));
    assert_eq!((hidden("no"), hidden("none")), (None, None));
    assert!(!one.contains("hooks.example") && !format!("{sender:?}").contains("hooks.example"), "{one}");

    secrets.put(&name, &slot, Some(secret(&[("one", "https://other.example/")])));
    assert_eq!(hidden("one"), open("https://other.example/"), "it follows the Secret");
    secrets.remove(&name);
    assert_eq!(hidden("one"), None, "no longer watched");
}

/// A receiver that answers with the text of the request.
async fn echoing(status: u16, times: usize) -> Receiver {
    Receiver::new(move |mut peer| async move {
        while let Some(request) = peer.request().await {
            let said = request.repeat(times);
            peer.write(&format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{said}", said.len())).await;
        }
    })
    .await
}

#[tokio::test]
async fn only_the_length_is_kept_of_an_answer_to_credentials_of_another_namespace() {
    let receiver = echoing(403, 1).await;
    let sender = sender_with(lax(), with_secret(&[("token", "s3cr3t-token")]));
    let auth = Some(token(AUTHORIZATION, "Bearer"));
    let attempt = sender.send(Outgoing { auth, withhold_answer: true, ..to(receiver.url("/")) }).await;
    let length = receiver.requests().remove(0).len();
    assert_eq!(attempt.result.status(), Some(403));
    let expected = format!("({length} bytes, not kept: the credentials belong to another namespace)");
    assert_eq!(body(&attempt), expected);
}

#[tokio::test]
async fn a_token_that_is_cut_off_is_not_shown() {
    let secret = "0123456789abcdef-".repeat(8);
    let sender = sender_with(lax(), with_secret(&[("token", &secret)]));
    for filling in 0..secret.len() {
        let said = "x".repeat(filling) + &secret.repeat(60);
        let receiver = Receiver::answering(format!("HTTP/1.1 400 X\r\ncontent-length: {}\r\n\r\n{said}", said.len())).await;
        let auth = Some(token(AUTHORIZATION, "Bearer"));
        let attempt = sender.send(Outgoing { auth, ..to(receiver.url("/")) }).await;
        assert!(!body(&attempt).contains("0123"), "{filling}: {attempt:?}");
    }
}

#[tokio::test]
async fn a_secret_in_the_body_is_hidden_in_the_answer() {
    let receiver = echoing(400, 1).await;
    let mut hidden = Hidden::default();
    hidden.add("R0UT1NG-KEY");
    let body_ = Bytes::from_static(b"{\"routing_key\":\"R0UT1NG-KEY\"}");
    let out = to(receiver.url("/"));
    let headers = Vec::new();
    let attempt = sender().send(Outgoing { hidden, headers, body: body_, id: "m".to_owned(), ..out }).await;
    assert!(body(&attempt).ends_with(r#"{"routing_key":"***"}"#), "{attempt:?}");
}
