//! Measures the figures that Relaybook promises, against a real API server if one is needed.
//!
//! In: the built program, a separate control plane, a receiver on loopback. Out: a table of the figures with their goals, met or
//! missed, and a description of the machine. `docs/contributing/benchmarks.md` explains each figure and how it is measured.
//!
//! Every figure is the median of several rounds. A figure with a floor is compared with the floor of the same round: plain
//! clients, with nothing else running on the same control plane. So a busy machine changes both, but the ratio only a little.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a measurement that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the table is what it is for")]
#![allow(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
#![allow(clippy::float_cmp, reason = "what is compared are counts")]
#![allow(clippy::unchecked_time_subtraction, reason = "a clock that went back must be seen")]
#![allow(clippy::needless_pass_by_value, reason = "JSON is made where it is passed")]
#![allow(missing_docs, reason = "a program, not a library")]

mod api_server;
mod approval;
mod backlog;
mod base;
mod bed;
mod clusters;
mod config;
mod drain;
mod floor;
mod forge;
mod generated;
mod hub;
mod isolation;
mod lane;
mod large;
mod load;
mod machine;
mod noisy;
mod page;
mod pending;
mod played;
mod process;
mod promotion;
mod quiet;
mod receiver;
mod render;
mod replicas;
mod rollout;
mod sets;
mod shared;
mod slow;
mod source;
#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
#[path = "../../tests/support/mod.rs"]
mod support;
mod table;
mod throughput;

use std::path::PathBuf;

use clap::Parser;

use bed::Bed;
use table::Table;

/// Measures Relaybook's figures.
#[derive(Debug, Parser)]
struct Args {
    /// Runs only scenarios with this text in the name: render, throughput, lane, quiet, pending, isolation, noisy, drain, signed, slow, large,
    /// config, clusters, hub, rollout, promotion, forge, shared, generated, sets, replicas, page.
    #[arg(long)]
    only: Option<String>,
    /// Number of rounds; the table shows the medians.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Measures in short windows, for development: the figures are rough.
    #[arg(long)]
    quick: bool,
    /// Appends the table as lines of JSON to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Measures this program in turns with the built one, in the scenarios throughput, lane, noisy and rollout.
    #[arg(long, value_name = "PROGRAM")]
    base: Option<PathBuf>,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The only scenario that needs no control plane.
const RENDER: &str = "render";
const SCENARIOS: [&str; 22] = [
    RENDER,
    "throughput",
    "lane",
    "quiet",
    "pending",
    "isolation",
    "noisy",
    "drain",
    "signed",
    "slow",
    "large",
    "config",
    "clusters",
    "hub",
    "rollout",
    "promotion",
    "forge",
    "shared",
    "generated",
    "sets",
    "replicas",
    "page",
];

#[tokio::main]
async fn main() {
    let args = Args::parse();
    let chosen = |name: &&str| args.only.as_deref().is_none_or(|only| name.contains(only));
    let scenarios: Vec<_> = SCENARIOS.into_iter().filter(chosen).collect();
    assert!(!scenarios.is_empty(), "--only is one of {SCENARIOS:?}");
    let mut bed = None;
    if scenarios != [RENDER] {
        say("starting a control plane");
        bed = Some(Bed::start(args.quick).await);
    }
    let mut table = Table::default();
    for round in 1..=args.rounds {
        for name in &scenarios {
            say(&format!("round {round} of {}: {name}; load average {}", args.rounds, machine::load()));
            let mut readings = scenario(name, bed.as_mut(), round, args.quick).await;
            if let (Some(base), Some(bed)) = (args.base.as_deref().filter(|_| base::SCENARIOS.contains(name)), bed.as_mut())
            {
                say(&format!("the same with {}", base.display()));
                base::switch(bed, Some(base)).await;
                let theirs = scenario(name, Some(&mut *bed), BASE + round, args.quick).await;
                base::switch(bed, None).await;
                for reading in &theirs {
                    say(&format!("  base: {reading}"));
                }
                readings.extend(base::compare(&readings, &theirs));
            }
            for reading in &readings {
                say(&format!("  {reading}"));
            }
            table.add(readings);
        }
    }
    let machine = machine::describe(bed.as_ref().map(|bed| &bed.client)).await;
    println!("\n{table}\n{machine}");
    if let Some(path) = &args.json {
        table.append_to(path, &machine);
    }
}

/// Added to the round in the names of namespaces in which the other program runs.
const BASE: u32 = 1000;

async fn scenario(name: &str, bed: Option<&mut Bed>, round: u32, quick: bool) -> Vec<table::Reading> {
    match (name, bed) {
        ("throughput", Some(bed)) => throughput::measure(bed, round).await,
        ("lane", Some(bed)) => lane::measure(bed, round).await,
        ("quiet", Some(bed)) => quiet::measure(bed, round).await,
        ("pending", Some(bed)) => pending::measure(bed, round).await,
        ("isolation", Some(bed)) => isolation::measure(bed, round).await,
        ("noisy", Some(bed)) => noisy::measure(bed, round).await,
        ("drain", Some(bed)) => drain::measure(bed, round).await,
        ("signed", Some(bed)) => throughput::signed(bed, round).await,
        ("slow", Some(bed)) => slow::measure(bed, round).await,
        ("large", Some(bed)) => large::measure(bed, round).await,
        ("config", Some(bed)) => config::measure(bed, round).await,
        ("clusters", Some(bed)) => clusters::measure(bed, round).await,
        ("hub", Some(bed)) => hub::measure(bed, round).await,
        ("rollout", Some(bed)) => rollout::measure(bed, round).await,
        ("promotion", Some(bed)) => promotion::measure(bed, round).await,
        ("forge", Some(bed)) => forge::measure(bed, round).await,
        ("shared", Some(bed)) => shared::measure(bed, round).await,
        ("generated", Some(bed)) => generated::measure(bed, round).await,
        ("sets", Some(bed)) => sets::measure(bed, round).await,
        ("replicas", Some(bed)) => replicas::measure(bed, round).await,
        ("page", Some(bed)) => page::measure(bed, round).await,
        _ => render::measure(quick),
    }
}

/// Reports the progress on stderr, because a run takes minutes.
fn say(what: &str) {
    eprintln!("bench: {what}");
}
