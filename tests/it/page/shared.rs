//! One person does not use up what all persons share: streams of events, and screens that are made at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;

use super::person::{ask, client, token, url};
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::{Fault, Proxy, Relaybook, World};

/// Number of all streams.
const STREAMS: usize = 100;
/// Number of searches of one person: more than the screens that are made at once.
const SEARCHES: usize = 32;
const READ: [&str; 3] = ["get", "list", "watch"];

/// Two persons, each with the namespace of a team.
async fn teams(name: &str) -> [(World, String); 2] {
    let one = World::new(&format!("{name}-a")).await;
    let other = World::on(&one.kubeconfig, &format!("{name}-b")).await;
    let (first, second) = (token(&one, "ann", &READ).await, token(&other, "bob", &READ).await);
    for world in [&one, &other] {
        world.pipeline("shop", &["dev/web"]).await;
    }
    [(one, first), (other, second)]
}

fn options(world: &World) -> Options {
    Options { args: vec!["--page-addr=127.0.0.1:0".to_owned()], ..Options::of(world) }
}

#[tokio::test]
async fn a_person_with_many_open_screens_leaves_streams_for_others() {
    let [(one, ann), (other, bob)] = teams("page-streams").await;
    let relaybook = Relaybook::with(&one, options(&one)).await;
    let page = relaybook.page_address().await;
    let open = async |world: &World, token: &str| {
        let path = format!("/events?for=%2F%3Fnamespace%3D{}", world.ns);
        client().get(url(page, &path)).bearer_auth(token).send().await.expect("an answer")
    };
    let mut streams = Vec::new();
    while streams.len() < STREAMS {
        let answer = open(&one, &ann).await;
        if answer.status() != 200 {
            assert_eq!(answer.status(), 503, "after {}", streams.len());
            break;
        }
        streams.push(answer);
    }
    assert!(!streams.is_empty());
    // A second token is no second person.
    let again = crate::support::account::token(&one.client, &one.ns, "ann").await;
    let more = token(&one, "another", &READ).await;
    let stream = open(&other, &bob).await;
    assert_eq!(stream.status(), 200, "after {} streams of another person", streams.len());
    for token in [&ann, &again, &more] {
        assert_eq!(open(&one, token).await.status(), 503, "a part of {STREAMS}");
    }
    // What has no stream is read all the same.
    let path = url(page, &format!("/?namespace={}", one.ns));
    assert_eq!(ask(&path, &[("authorization", &format!("Bearer {ann}"))], None).await.status, 200);
    // A stream that is closed makes room.
    streams.pop();
    crate::support::eventually("a stream of the same person", async || {
        let answer = open(&one, &ann).await;
        if answer.status() == 200 { Ok(()) } else { Err(answer.status().to_string()) }
    })
    .await;
}

#[tokio::test]
async fn slow_searches_of_a_person_delay_no_screen_of_others() {
    let [(one, ann), (other, bob)] = teams("page-searches").await;
    let proxy = Proxy::start(&one.kubeconfig, "page-searches").await;
    let options = Options { kubeconfig: Some(proxy.kubeconfig.clone()), ..options(&one) };
    let relaybook = Relaybook::with(&one, options).await;
    let page = relaybook.page_address().await;
    let headers = [format!("Bearer {ann}"), format!("Bearer {bob}")];
    let gate = Gate::new();
    let of_one = format!("/namespaces/{}/deliveries", one.ns);
    let rule = proxy.rule(
        move |call| call.path.ends_with(&of_one) && call.query.contains("limit=500"),
        Fault::HoldRequest(gate.clone()),
    );
    let search = url(page, &format!("/search?q=2&namespace={}", one.ns));
    let answered = Arc::new(AtomicUsize::new(0));
    let searches = (0..SEARCHES).map(|_| {
        let (search, bearer, answered) = (search.clone(), headers[0].clone(), Arc::clone(&answered));
        tokio::spawn(async move {
            let seen = ask(&search, &[("authorization", &bearer)], None).await;
            answered.fetch_add(1, Ordering::SeqCst);
            seen.status
        })
    });
    let searches: Vec<_> = searches.collect();
    proxy.hit(rule, 1).await;
    let path = url(page, &format!("/search?q=2&namespace={}", other.ns));
    let seen = ask(&path, &[("authorization", &headers[1])], None).await;
    assert_eq!(seen.status, 200, "{}", seen.body);
    // Each held call ends after 8 s. In turn with 32 others, this screen would wait for most of them.
    let before = answered.load(Ordering::SeqCst);
    assert!(before < SEARCHES / 2, "{before} screens of another person came first");
    proxy.remove(rule);
    gate.open();
    let statuses = join_all(searches).await;
    assert!(statuses.iter().all(|status| matches!(status, Ok(200 | 503))), "{statuses:?}");
}
