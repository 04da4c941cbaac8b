//! Clients that load the page, and people who use it meanwhile.

use std::time::Duration;

use super::access::{serving, sign_in};
use super::person::{Events, ask, token, url};
use crate::support::held::{Held, without_body, without_head};
use crate::support::wait::{DEADLINE, heavy};
use crate::support::{Relaybook, World};

/// All clients have the same address. A server that waits 50 ms for each connection that it closes answers after more than a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_requests_that_are_not_finished_delay_no_screen_and_end_no_stream() {
    const COUNT: usize = 3000;
    const WITHIN: Duration = Duration::from_secs(30);
    let _alone = heavy().await;
    let world = World::new("page-half").await;
    world.deploy("web", "1").await;
    world.pipeline("shop", &["prod/web"]).await;
    let relaybook = Relaybook::with(&world, serving(&world, &[])).await;
    world.observed("shop").await;
    let page = relaybook.page_address().await;
    let cookie = sign_in(page, &token(&world, "reader", &["get", "list", "watch"]).await).await;
    let path = format!("/?namespace={}", world.ns);
    let mut stream = Events::at(&url(page, ""), &path, &cookie).await;
    for (what, bytes) in
        [("bodies", without_body("/sign-in")), ("heads", without_head("/sign-in")), ("requests", Vec::new())]
    {
        let _held = Held::open(page, COUNT, &bytes).await;
        let seen = tokio::time::timeout(WITHIN, ask(&url(page, &path), &[("cookie", &cookie)], None)).await;
        assert!(seen.as_ref().is_ok_and(|seen| seen.status == 200), "no {what}: {seen:?}");
        assert!(!stream.has_ended().await, "no {what}");
    }
    // The stream is the one from before, and works.
    world.ship("web", "2").await;
    assert!(stream.change(DEADLINE).await, "a change is signaled");
}
