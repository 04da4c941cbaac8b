//! Measures a promotion by commit of one team while 20 repositories of another one, at the same Git server, do not answer.
//!
//! In: a Git server behind a proxy, which holds the requests to the repository of the slow team. Out: the time from the status of the earlier
//! environment to the request `PromotionOpened`, beside these 20 promotions and without them, with the same process.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, notify};
use crate::support::forge_proxy::{Asked, ForgeProxy, Trouble};
use crate::support::git::GitServer;
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::{Relaybook, World};
use crate::table::{Reading, SHARED, quantile};

/// Number of promotions whose repository does not answer. Their attempts time out one after the other, so together they need minutes.
const SLOW: usize = 20;
/// Time for one promotion. Without a limit, a round could last for hours.
const LONGEST: Duration = Duration::from_mins(2);

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let (slow, fine) = (bed.world("shared-slow", round).await, bed.world("shared-fine", round).await);
    let server = GitServer::start();
    let proxy = ForgeProxy::start(&server.url(), reqwest::Client::builder().no_proxy().build().expect("a client"));
    let names: Vec<_> = (0..SLOW).map(|n| format!("web-{n}")).collect();
    pipelines(&slow, &server, &proxy, "slow", &names).await;
    pipelines(&fine, &server, &proxy, "fine", &["web".to_owned()]).await;
    let url = bed.receiver.url(&format!("/{}", fine.ns));
    notify(&fine, "hook", &url, json!({"triggers": [{"type": "PromotionOpened"}]})).await;
    let watch = vec![slow.ns.clone(), fine.ns.clone()];
    let mut relaybook = Relaybook::with(&fine, Options { watch, ..Options::of(&fine) }).await;
    slow.settled().await;
    fine.settled().await;

    let count = if bed.quick { 5 } else { 20 };
    let mut alone = promotions(bed, &fine, 0, count).await;
    let gate = Gate::new();
    let is_slow = |asked: &Asked| asked.path.starts_with("/slow.git/") && asked.method == "POST";
    let held = proxy.rule(is_slow, Trouble::HoldRequest(gate.clone()));
    for name in &names {
        slow.ship(&format!("{name}-dev"), "2").await;
    }
    proxy.hit(held, 1).await;
    let mut beside = promotions(bed, &fine, count, count).await;
    let answered = proxy.log().into_iter().filter(|asked| is_slow(asked) && asked.status.is_some()).count();
    assert_eq!(answered, 0, "the repositories are silent until the end");
    relaybook.stop().await;
    gate.open();
    let [[beside, p90], [alone, alone_p90]] =
        [&mut beside, &mut alone].map(|times| [0.5, 0.9].map(|q| quantile(times, q).expect("it was measured")));
    let note = format!("p90 beside 20 silent repositories: {p90:.0} ms; without them: {alone_p90:.0} ms");
    vec![Reading::against(&SHARED, beside, alone), Reading::Note(note)]
}

/// Creates pipelines of one team in which `prod` follows `dev` by a commit to a repository of the team.
async fn pipelines(team: &World, server: &GitServer, proxy: &ForgeProxy, repository: &str, names: &[String]) {
    let release = |name: &String| {
        let marker = format!("{{\"$promotion\": \"{}:{name}:prod\"}}", team.ns);
        (format!("apps/{name}/release.yaml"), format!("version: \"1\" # {marker}\n"))
    };
    let files: Vec<_> = names.iter().map(release).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    server.repository(repository, &files);
    for name in names {
        let of = json!({"url": proxy.url(&format!("/{repository}.git")), "paths": [format!("apps/{name}")]});
        team.promoting(name, &[("dev", Value::Null), ("prod", json!({"strategy": {"commit": of}}))]).await;
    }
}

/// Returns the times of this number of promotions, in milliseconds. Rolls out each of them, as a GitOps tool would do it.
async fn promotions(bed: &Bed, team: &World, done: usize, count: usize) -> Vec<f64> {
    let path = format!("/{}", team.ns);
    let mut arrivals = bed.receiver.arrivals();
    let mut times = Vec::new();
    for n in done..done + count {
        let revision = (n + 2).to_string();
        // A random pause, so that the changes are not in step with tasks that run once a second.
        sleep(Duration::from_millis(200 + fastrand::u64(0..200))).await;
        let began = Instant::now();
        team.ship("web-dev", &revision).await;
        let arrived = arrivals.wait_for(|arrived| arrived.by_path.get(&path).is_some_and(|count| *count > n));
        timeout(LONGEST, arrived).await.expect("a promotion needs less than two minutes").expect("the receiver runs");
        times.push(bed.receiver.times(&path)[n].duration_since(began).as_secs_f64() * 1000.0);
        team.runs("web/prod", &revision).await;
    }
    times
}
