//! Measures promotions by pull request: the requests that many open ones make with one token, and deliveries beside a forge that hangs.
//!
//! In: promotions whose status shows an open pull request, and a forge that answers each check. Out: the requests that an hour has at this rate.
//! Then a load of deliveries, without and with promotions whose forge accepts connections and never answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use relaybook_api::promotion::PromotedPipeline;
use relaybook_api::{Pipeline, Promotion, PromotionSpec, Time};
use relaybook_core::promotion::names;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use crate::bed::{Bed, until};
use crate::load::{Load, NOTIFICATIONS, shop};
use crate::receiver::Receiver;
use crate::source::Source;
use crate::support::relaybook::Options;
use crate::support::world::apps::Kind;
use crate::support::world::pipeline;
use crate::support::{Relaybook, World};
use crate::table::{FORGE_P99, FORGE_REQUESTS, Reading, quantile};

/// Number of open pull requests of one token.
const OPEN: usize = 1_000;
/// Number of promotions whose forge hangs.
const HUNG: usize = 50;
/// Mean pause of a target between two changes beside a forge that hangs.
const REST: Duration = Duration::from_millis(800);

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let mut readings = budget(bed, round).await;
    readings.extend(beside(bed, round).await);
    readings
}

/// Creates pipelines in which `prod` follows `dev` by a pull request at this forge, and waits until `dev` runs 2.
async fn pipelines(world: &World, count: usize, forge: &str) {
    for app in ["dev", "prod"] {
        world.deploy(app, "1").await;
    }
    world.secret("deploy-bot", json!({"token": "none"})).await;
    let of = json!({"type": "gitea", "url": format!("{forge}/acme/deploy.git"), "secretRef": {"name": "deploy-bot"}});
    for n in 0..count {
        let mut object = pipeline(&world.ns, &format!("shop-{n}"), Kind::Deployment, &["dev/dev", "prod/prod"]);
        object["spec"]["environments"][1]["promotion"] = json!({"strategy": {"pullRequest": of}});
        world.create::<Pipeline>(object).await;
    }
}

/// Counts the checks of [`OPEN`] pull requests.
async fn budget(bed: &Bed, round: u32) -> Vec<Reading> {
    let world = bed.world("forge", round).await;
    let forge = Forge::start().await;
    let count = if bed.quick { OPEN / 10 } else { OPEN };
    pipelines(&world, count, &forge.url).await;
    let options = Options { controllers: "pipeline,dispatch", ..Options::of(&world) };
    let mut before = Relaybook::with(&world, options).await;
    world.settled().await;
    world.ship("dev", "2").await;
    for n in 0..count {
        open(&world, &forge, n).await;
    }
    before.stop().await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    // At first, checks can follow each other without a pause. After that, they come at the rate of the budget.
    let (began, first) = (Instant::now(), bed.seconds(60, 20));
    sleep(first).await;
    let burst = forge.asked();
    sleep(bed.seconds(120, 40)).await;
    let rate = (forge.asked() - burst) as f64 / (began.elapsed() - first).as_secs_f64();
    relaybook.stop().await;
    let hour = burst as f64 + rate * (3600.0 - first.as_secs_f64());
    let note =
        format!("{count} open pull requests: {burst} checks in the first {} s, then {rate:.2} a second", first.as_secs());
    vec![Reading::of(&FORGE_REQUESTS, hour), Reading::Note(note)]
}

/// Creates a promotion whose status shows an open pull request, as an earlier process wrote it.
async fn open(world: &World, forge: &Forge, n: usize) {
    let name = format!("shop-{n}");
    let mut found = None;
    until("dev has come to run 2", async || {
        let pipeline = world.get_pipeline(&name).await;
        let dev = pipeline.status.as_ref().and_then(|status| status.environments.first()?.settled.clone());
        let is = dev.as_ref().is_some_and(|dev| dev.reached > 0 && dev.revision == "2");
        found = dev.filter(|_| is).map(|dev| (pipeline.uid().unwrap_or_default(), dev.reached));
        is
    })
    .await;
    let (uid, occasion) = found.expect("it was found");
    let number = n + 1;
    forge.know(number, &uid);
    let spec = PromotionSpec {
        pipeline_ref: PromotedPipeline { name, uid },
        environment: "prod".to_owned(),
        from: "dev".to_owned(),
        revision: "2".to_owned(),
        occasion,
        ..PromotionSpec::default()
    };
    let (api, name) = (world.api::<Promotion>(), names::name(&spec));
    api.create(&PostParams::default(), &Promotion::new(&name, spec)).await.expect("created");
    let strategy = json!({"pullRequest": {"type": "gitea", "url": format!("{}/acme/deploy.git", forge.url),
        "secretRef": {"name": "deploy-bot"}}});
    let step = |step: u32, phase: &str| json!({"step": step, "phase": phase, "reason": "Opened", "time": Time::now()});
    let status = json!({"phase": "Open", "reason": "Opened", "attempts": 1, "succeeded": true, "strategy": strategy, "step": 2,
        "steps": [step(1, "Requested"), step(2, "Open")], "pullRequest": {"number": number, "state": "mergeable"}});
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(&name, &PatchParams::default(), &patch).await.expect("a status is written");
}

/// Measures deliveries without and with promotions whose forge hangs.
async fn beside(bed: &Bed, round: u32) -> Vec<Reading> {
    let (fine, ill) = (bed.world("beside", round).await, bed.world("hung", round).await);
    let by = bed.receiver.url(&format!("/{}/{{{{target.app.name}}}}?by={{{{notification.name}}}}", fine.ns));
    let mut sources = shop(bed, &fine, &json!({"endpoint": {"url": by}})).await;
    let forge = Receiver::start();
    forge.set_open(false);
    let root = forge.url("");
    pipelines(&ill, HUNG, &root).await;
    let (mut without, mut with, mut is_shipped) = (Vec::new(), Vec::new(), false);
    for hung in [false, true, true, false] {
        let watch = if hung { vec![fine.ns.clone(), ill.ns.clone()] } else { vec![fine.ns.clone()] };
        let mut relaybook = Relaybook::with(&fine, Options { watch, ..Options::of(&fine) }).await;
        fine.settled().await;
        if hung {
            ill.settled().await;
            if !std::mem::replace(&mut is_shipped, true) {
                ill.ship("dev", "2").await;
            }
            let connections = forge.connections();
            until("the forge is asked", async || forge.connections() > connections).await;
        }
        let times = if hung { &mut with } else { &mut without };
        sources = paced(bed, &fine, sources, times).await;
        relaybook.stop().await;
    }
    let p = |times: &mut Vec<f64>, q| quantile(times, q).expect("it was measured");
    let spread = |times: &mut Vec<f64>| [0.5, 0.99].map(|q| format!("{:.1}", p(times, q))).join(" and ");
    let note = format!(
        "p50 and p99 without: {} ms; beside {HUNG} promotions whose forge hangs: {} ms, {} connections to it",
        spread(&mut without),
        spread(&mut with),
        forge.connections()
    );
    vec![Reading::against(&FORGE_P99, p(&mut with, 0.99), p(&mut without, 0.99)), Reading::Note(note)]
}

/// Runs the load with pauses, and adds the time from each change to each of its requests, in milliseconds.
async fn paced(bed: &Bed, world: &World, sources: Vec<Source>, times: &mut Vec<f64>) -> Vec<Source> {
    let before: Vec<_> = sources.iter().map(|source| source.flips.len()).collect();
    let load = Load::start(bed, world, sources, Some(REST));
    sleep(bed.seconds(25, 8)).await;
    let sources = load.stop().await;
    let path = |source: &Source, n: usize| format!("/{}/{}?by=hook-{n}", world.ns, source.app);
    let all = |source: &Source| (0..NOTIFICATIONS).all(|n| bed.receiver.times(&path(source, n)).len() == source.flips.len());
    until("all has arrived", async || sources.iter().all(all)).await;
    for (source, before) in sources.iter().zip(before) {
        for n in 0..NOTIFICATIONS {
            let arrived = bed.receiver.times(&path(source, n));
            let pairs = source.flips.iter().zip(arrived).skip(before);
            times.extend(pairs.map(|(began, at)| at.duration_since(*began).as_secs_f64() * 1000.0));
        }
    }
    sources
}

/// A forge that answers checks of pull requests as Gitea does, and counts them.
struct Forge {
    url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    asked: AtomicUsize,
    /// The uid of the pipeline of each pull request.
    uids: parking_lot::Mutex<HashMap<usize, String>>,
}

impl Forge {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it has an address"));
        let shared = Arc::<Shared>::default();
        let served = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&served);
                tokio::spawn(async move { drop(serve(stream, &shared).await) });
            }
        });
        Self { url, shared }
    }

    fn know(&self, number: usize, uid: &str) {
        self.shared.uids.lock().insert(number, uid.to_owned());
    }

    fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Relaxed)
    }
}

async fn serve(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut first, mut line) = (String::new(), String::new());
        if stream.read_line(&mut first).await? == 0 {
            return Ok(());
        }
        while stream.read_line(&mut line).await? > 2 {
            line.clear();
        }
        let number = first.split(' ').nth(1).and_then(|path| path.rsplit('/').next()?.parse().ok()).unwrap_or_default();
        shared.asked.fetch_add(1, Ordering::Relaxed);
        let uid = shared.uids.lock().get(&number).cloned().unwrap_or_default();
        let body = pull_request(number, &uid).to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
    }
}

fn pull_request(number: usize, uid: &str) -> Value {
    let of = |label: &str| json!({"label": label, "ref": label, "sha": "1".repeat(40), "repo_id": 1});
    json!({"number": number, "state": "open", "merged": false, "mergeable": true, "draft": false,
        "body": format!("<!-- relaybook team-a/shop {uid} -->"), "head": of("relaybook/prod"), "base": of("main"),
        "html_url": format!("http://127.0.0.1/acme/deploy/pulls/{number}")})
}
