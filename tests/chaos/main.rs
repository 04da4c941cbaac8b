//! The chaos test: the built program against a real API server, under load, with random faults. `make chaos` runs it.
//!
//! In: `--seed N` (default: a new one), `--seconds N` or `--kills N` (duration of the faults), `--replicas N`, `--must-find KIND`
//! (for a build that is broken on purpose: the run succeeds only if it finds this), `--before PROGRAM` (a rolling update without
//! faults: the replicas start as another version with its CRDs, and are upgraded one after the other, and back again).
//! Out: a report on stdout; exit code 1 if a delivery is missing, out of order, repeated without a reason, or different from
//! the audit, if a promotion is missing or carried out twice, or if a test of a notification comes twice or as a real message.
//!
//! The seed determines the faults with their order and duration ([`plan`]), the changes of the applications, and the reaction
//! of the receivers to each request ([`script`]). Only the timing of processes is not reproducible.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the report")]
#![allow(clippy::needless_pass_by_value, reason = "JSON is made where it is passed")]
#![allow(unused_imports, reason = "without a harness the unit tests of the pure parts are left out; `it` runs them")]

mod crew;
mod load;
mod person;
mod plan;
mod promotions;
mod receiver;
mod script;
mod special;
mod storm;
#[allow(dead_code, reason = "shared with the integration tests, which use all of it")]
#[path = "../support/mod.rs"]
mod support;
mod tested;
mod upgrade;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crew::Crew;
use load::Load;
use person::Person;
use plan::Plan;
use promotions::Promotions;
use storm::Sky;
use support::control_plane::ControlPlane;
use support::{Proxy, World};
use tested::Tests;
use verdict::{Evidence, Figures};

/// Default number of replicas of Relaybook.
const REPLICAS: usize = 3;
/// Default duration of the faults.
const SECONDS: u64 = 90;

/// A run of this many kills or seconds is long: it also contains faults that last until another replica is the leader.
const LONG: (usize, u64) = (50, 400);

/// Arguments of a run.
struct Order {
    seed: u64,
    seconds: Option<u64>,
    kills: Option<usize>,
    replicas: usize,
    /// The kinds of violation of which one must be found. It is empty if none may be found.
    must_find: Vec<String>,
    before: Option<PathBuf>,
}

impl Order {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let seed = fastrand::u64(0..1_000_000);
        let mut order = Self { seed, seconds: None, kills: None, replicas: REPLICAS, must_find: Vec::new(), before: None };
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("{word} wants a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{word} wants a number, not {value}"));
            let count = || usize::try_from(number()?).map_err(|e| e.to_string());
            match word.as_str() {
                "--seed" => order.seed = number()?,
                "--seconds" => order.seconds = Some(number()?),
                "--kills" => order.kills = Some(count()?),
                "--replicas" => order.replicas = count()?.clamp(1, crew::NAMES.len()),
                "--must-find" => order.must_find = value.split(',').map(str::to_owned).collect(),
                "--before" => order.before = Some(value.into()),
                _ => return Err(format!("what is {word}?")),
            }
        }
        Ok(order)
    }

    fn is_long(&self) -> bool {
        let (kills, seconds) = LONG;
        self.replicas > 1 && (self.kills.is_some_and(|k| k >= kills) || self.seconds.is_some_and(|s| s >= seconds))
    }

    /// Whether the requested number of kills or seconds is reached.
    fn is_met(&self, kills: usize, since: Instant) -> bool {
        match (self.kills, self.seconds) {
            (Some(wanted), None) => kills >= wanted,
            (wanted, seconds) => {
                let over = since.elapsed() >= Duration::from_secs(seconds.unwrap_or(SECONDS));
                over || wanted.is_some_and(|wanted| kills >= wanted)
            }
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let order = match Order::read(std::env::args().skip(1)) {
        Ok(order) => order,
        Err(why) => {
            eprintln!("chaos: {why}");
            return ExitCode::from(2);
        }
    };
    println!("chaos: seed {}", order.seed);
    run(&order).await
}

async fn run(order: &Order) -> ExitCode {
    let began = Instant::now();
    // The process ID keeps two parallel runs apart, which share the folder of logs.
    let name = format!("chaos-{}", std::process::id());
    let first = order.before.as_deref().map_or_else(relaybook_api::crds, upgrade::definitions);
    // A version before has no promotions.
    let promotes = first.iter().any(|crd| crd.spec.names.kind == "Promotion");
    let control_plane = tokio::task::spawn_blocking(|| ControlPlane::with(first)).await.unwrap().unwrap();
    let world = Arc::new(World::on(&control_plane.kubeconfig, &name).await);
    let proxy = Proxy::start(&control_plane.kubeconfig, &name).await;
    let load = Load::new(order.seed, world.clone()).await;
    let promotions = if promotes {
        Some(Promotions::new(order.seed, &control_plane.kubeconfig, &format!("{name}-promotions")).await)
    } else {
        None
    };
    let watch: Vec<_> =
        std::iter::once(&*world).chain(promotions.as_ref().map(|p| &p.world)).map(|w| w.ns.clone()).collect();
    let program = program(&name);
    let first = order.before.clone().unwrap_or_else(|| program.clone());
    let mut crew = Crew::start(&world, &watch, order.replicas, proxy.kubeconfig.clone(), first).await;
    world.settled().await;
    if let Some(promotions) = &promotions {
        promotions.world.settled().await;
    }

    let mut sky = Sky::new(control_plane, proxy, order.seed);
    let enough = AtomicBool::new(false);
    let mut tests = Tests::default();
    let be_friendly = || {
        load.be_friendly();
        promotions.iter().for_each(Promotions::be_friendly);
    };
    let abuse = async {
        if let Some(before) = &order.before {
            sky.clear_up();
            upgrade::there_and_back(&world, &mut crew, before, &program, &mut tests).await;
            enough.store(true, Ordering::Relaxed);
            return be_friendly();
        }
        let mut plan = Plan::new(order.seed, order.replicas, order.is_long());
        let since = Instant::now();
        while !order.is_met(crew.kills.len(), since) {
            let blow = plan.next().expect("a plan has no end");
            sky.strike(&blow, &mut crew, load.fickle()).await;
        }
        sky.clear_up();
        enough.store(true, Ordering::Relaxed);
        be_friendly();
        crew.ready().await;
    };
    let promoting = async {
        match &promotions {
            Some(promotions) => promotions.run(&enough).await,
            None => Vec::new(),
        }
    };
    let mut person = Person::default();
    let persons = person.act(order.seed, &world, &load, &enough);
    let (mut findings, (), (), stuck) = tokio::join!(load.run(&enough), abuse, persons, promoting);
    findings.extend(stuck);
    verdict::settle(&world, &load, &crew, &person).await;
    // A restart must send nothing. A wrong request would arrive before those of the changes below, and is found with them.
    crew.restart().await;
    findings.extend(load.finale().await);
    if let Some(promotions) = &promotions {
        findings.extend(promotions.finale().await);
        findings.extend(promotions.settle(&crew).await);
    }
    let evidence = verdict::settle(&world, &load, &crew, &person).await;
    findings.extend(verdict::counts(&world).await);
    findings.extend(crew.ended.iter().cloned().chain(tests.findings()));

    std::fs::remove_file(&program).expect("removed");
    let figures = verdict::figures(&evidence);
    report(
        &evidence,
        &figures,
        &findings,
        &load,
        &crew,
        [("promoted revisions", promotions.as_ref().map_or(0, Promotions::acts)), ("tests accepted", tests.accepted)]
            .into_iter()
            .chain(sky.hits.iter().map(|(what, n)| (what.as_str(), *n)))
            .chain(person.acts),
    );
    println!("chaos: seed {}, {} s in all", order.seed, began.elapsed().as_secs());
    let clean = findings.is_empty() && evidence.findings.is_empty() && figures.missing == 0;
    if !clean {
        keep(&crew, &evidence, order.seed, began);
    }
    if order.must_find.is_empty() {
        return if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    // The parts of the run with their own pipelines, such as promotions, are judged by the same rules.
    let is_elsewhere = |kind: &str| findings.iter().any(|text| text.starts_with(&format!("{kind}: ")));
    let is_here = |kind: &str| evidence.count(&[kind]) > 0 || (kind == "missing" && figures.missing > 0);
    let is_found = |kind: &str| is_here(kind) || is_elsewhere(kind);
    found(&order.must_find, is_found)
}

/// Says whether a broken build was found.
fn found(kinds: &[String], is_found: impl Fn(&str) -> bool) -> ExitCode {
    let names = kinds.join(" or ");
    if kinds.iter().any(|kind| is_found(kind)) {
        println!("chaos: {names} was found, as it must be");
        ExitCode::SUCCESS
    } else {
        println!("chaos: {names} was NOT found, although the build is broken");
        ExitCode::FAILURE
    }
}

/// Copies the program, so that a build during the run does not replace it.
fn program(name: &str) -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_relaybook"));
    let folder = crate::support::tmp().join("chaos");
    std::fs::create_dir_all(&folder).expect("a folder");
    let copy = folder.join(name);
    std::fs::copy(built, &copy).expect("copied");
    copy
}

fn report<'a>(
    evidence: &Evidence,
    figures: &Figures,
    other: &[String],
    load: &Load,
    crew: &Crew,
    done: impl Iterator<Item = (&'a str, usize)>,
) {
    let (unexplained, order) = (evidence.count(&["duplicate"]), evidence.count(&["order"]));
    let audit = evidence.count(&["audit", "unexpected"]);
    let explained = figures.duplicates.saturating_sub(unexplained);
    let sent = evidence.seen.len();
    println!("  changes           {:>6}  {} lanes", load.acts(), evidence.lanes.len());
    println!("  recorded          {:>6}", figures.recorded);
    println!("  delivered         {:>6}  {sent} requests", figures.delivered);
    println!("  parked            {:>6}  as the receivers want it", figures.parked);
    println!("  missing           {:>6}", figures.missing.max(evidence.count(&["missing"])));
    println!("  duplicates        {:>6}  of which a kill explains {explained}", figures.duplicates);
    println!("  order violations  {order:>6}");
    println!("  audit mismatches  {audit:>6}");
    println!("  other findings    {:>6}", other.len());
    println!("  kills             {:>6}", crew.kills.len());
    for (name, hits) in done {
        println!("  {name:<40} {hits:>5}");
    }
    for text in other {
        println!("  FINDING   {text}");
    }
    for finding in &evidence.findings {
        println!("  {:<10} {}", finding.kind.to_uppercase(), finding.text);
    }
}

/// Writes the files that are needed to find the cause of a failure.
fn keep(crew: &Crew, evidence: &Evidence, seed: u64, began: Instant) {
    let folder = crate::support::tmp().join(format!("chaos/seed-{seed}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, log) in crew.logs() {
        std::fs::write(folder.join(format!("{name}.log")), log).expect("written");
    }
    std::fs::write(folder.join("lanes.txt"), evidence.of_the_lanes_in_question(began)).expect("written");
    let diary = crew.diary.iter().map(|(at, what)| format!("{:>7} ms  {what}\n", (*at - began).as_millis()));
    let zero = relaybook_api::Time::now().checked_sub(began.elapsed()).expect("not long ago");
    let diary = format!("      0 ms  is {zero}\n{}", diary.collect::<String>());
    std::fs::write(folder.join("diary.txt"), diary).expect("written");
    println!("chaos: logs and lanes are in {}", folder.display());
}
