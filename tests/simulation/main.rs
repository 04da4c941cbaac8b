//! The whole program in a simulation: three replicas of the real controllers, a model of the API server, receivers, virtual time.
//!
//! In: random histories. Out: the first broken promise, with the shortest history that was found to show it. A history runs in one thread of
//! a process of its own, and its seed decides everything that is random. So `--seed N` repeats it exactly.

#![allow(clippy::expect_used, clippy::print_stdout)]

mod apps;
mod line;
mod receivers;
mod replica;
mod steps;
mod verdict;
mod world;

use std::fmt;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use steps::{History, histories};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use verdict::PROMISES;
use world::World;

/// A history needs less than a second. With a shorter one, it needs some minutes.
const LONGEST: Duration = Duration::from_mins(10);

/// Runs histories of the whole program in virtual time.
#[derive(Debug, Parser)]
struct Args {
    /// Run only the history with this seed.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// The number of histories. They have the seeds from `--first` on.
    #[arg(long, env = "RELAYBOOK_HISTORIES", default_value_t = 80, value_name = "NUMBER")]
    histories: u64,
    /// The seed of the first history.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    first: u64,
    /// The number of steps of the longest histories.
    #[arg(long, default_value_t = 150, value_name = "NUMBER")]
    steps: usize,
    /// How often a failing history is run again to find a shorter one.
    #[arg(long, default_value_t = 400, value_name = "NUMBER")]
    shrinks: usize,
    /// Expect that a promise is broken within the histories, and print the number that was needed.
    #[arg(long)]
    must_find: bool,
    /// Show the log lines of the replicas, such as `relaybook=debug,simulation=debug`.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.seed {
        Some(seed) => alone(&args, seed),
        None => all(&args),
    }
}

/// Runs one history in this process, and looks for a shorter one if it fails.
fn alone(args: &Args, seed: u64) -> ExitCode {
    let _ = rustls::crypto::ring::default_provider().install_default();
    if let Some(filter) = &args.log {
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_timer(Timer).init();
    }
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let history = histories(seed, args.steps).new_tree(&mut runner).expect("a history").current();
    // A history that never ends must not stop all others.
    std::thread::spawn(move || {
        std::thread::sleep(LONGEST);
        println!("seed {seed}: not ended after {LONGEST:?}");
        std::process::exit(2)
    });
    let Err(why) = run(&history) else { return ExitCode::SUCCESS };
    println!("seed {seed}: {why}");
    let (shortest, why) = shorter(history, why, args.shrinks);
    println!("the shortest history that was found: {why}\n{shortest:?}");
    ExitCode::FAILURE
}

/// Removes steps as long as the history fails, large parts first. Returns also how it fails.
fn shorter(mut history: History, mut why: String, mut tries: usize) -> (History, String) {
    let mut part = history.steps.len() / 2;
    while part > 0 {
        let mut from = 0;
        while from < history.steps.len() && tries > 0 {
            tries -= 1;
            let mut fewer = history.clone();
            fewer.steps.drain(from..(from + part).min(history.steps.len()));
            match run(&fewer) {
                Err(again) if promise(&again) == promise(&why) => (history, why) = (fewer, again),
                _ => from += part,
            }
        }
        part /= 2;
    }
    (history, why)
}

/// Returns the promise that is broken. `None`: something else is wrong.
fn promise(why: &str) -> Option<&'static str> {
    PROMISES.into_iter().find(|promise| why.contains(&format!("{promise}: ")))
}

/// Runs all histories, as many at a time as there are cores, until one fails.
fn all(args: &Args) -> ExitCode {
    let begun = Instant::now();
    let (next, is_found, is_promise) = (AtomicU64::new(args.first), AtomicBool::new(false), AtomicBool::new(false));
    let end = args.first + args.histories;
    let work = || {
        while !is_found.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            let (number, steps, shrinks) = (seed.to_string(), args.steps.to_string(), args.shrinks.to_string());
            let program = std::env::current_exe().expect("the path of this program");
            let mut history = Command::new(program);
            history.args(["--seed", &number, "--steps", &steps, "--shrinks", &shrinks]);
            // The certificates of the system are not needed, and reading them is slow.
            history.env("SSL_CERT_FILE", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/simulation/authority.pem"));
            let ended = history.output().expect("a process");
            if !ended.status.success() && !is_found.swap(true, Ordering::Relaxed) {
                let said = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                let said = said.concat();
                is_promise.store(promise(&said).is_some(), Ordering::Relaxed);
                println!("{said}\ncargo test --test simulation -- --seed {seed} --steps {steps} repeats it");
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    let (count, took) = (next.into_inner().min(end) - args.first, begun.elapsed().as_secs_f64());
    let is_found = is_found.into_inner();
    let said = if is_found { "a history has failed" } else { "no promise is broken" };
    println!("simulation: {said}; {count} histories of up to {} steps in {took:.0} s", args.steps);
    let is_good = if args.must_find { is_promise.into_inner() } else { !is_found };
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a history in a new thread, because the clocks and the order of hash maps are those of a thread.
fn run(history: &History) -> Result<(), String> {
    let history = history.clone();
    let work = move || {
        relaybook_simulation::clock::begin(history.seed);
        let mut world = World::new()?;
        for (number, step) in history.steps.iter().enumerate() {
            world.step(*step).map_err(|why| format!("step {number}, {step:?}, at {:?}: {why}", world.now))?;
        }
        world.end_all().map_err(|why| format!("at the end, {:?}: {why}", world.now))
    };
    let thread = std::thread::Builder::new().stack_size(16 << 20).spawn(work).expect("a thread");
    thread.join().unwrap_or_else(|_| Err("the simulation has panicked".to_owned()))
}

/// Shows the virtual time in log lines.
struct Timer;

impl FormatTime for Timer {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{:.3?}", relaybook_simulation::clock::since_first())
    }
}
