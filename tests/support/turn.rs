//! Turns: how many tests use the machine at the same time.
//!
//! In: the number of tests that run, and how busy the processors are. Out: the moment at which one more test begins.
//!
//! Most tests wait most of the time, and a few load the machine. A fixed number of tests leaves the machine idle during the first, and
//! makes tests miss their deadlines during the second. So some tests always run, and one more begins whenever the processors were idle
//! since the last one began.

use std::cell::OnceCell;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of tests for each processor that run side by side on a busy machine. `RELAYBOOK_TEST_ALWAYS` is another number, for runs that share the
/// machine.
static ALWAYS: LazyLock<usize> =
    LazyLock::new(|| std::env::var("RELAYBOOK_TEST_ALWAYS").ok().and_then(|number| number.parse().ok()).unwrap_or(2));
/// Maximum number of tests for each processor that run side by side. In a container, the measured processors are those of the machine.
const MOST: usize = 12;
/// The part of the processor time that is idle before one more test begins.
const IDLE: f64 = 0.35;
/// How long this part is measured. The measurement starts again whenever a test begins, so that the load of that test is part of it.
const PERIOD: Duration = Duration::from_millis(500);

/// Processor time of the machine since its start, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticks {
    idle: u64,
    all: u64,
}

struct Turns {
    running: usize,
    /// Start of the measurement. `None`: this machine does not tell its processor time.
    since: Option<(Instant, Ticks)>,
}

static TURNS: Mutex<Turns> = Mutex::new(Turns { running: 0, since: None });

/// The turn of one test.
struct Turn;

impl Drop for Turn {
    fn drop(&mut self) {
        TURNS.lock().unwrap_or_else(PoisonError::into_inner).running -= 1;
    }
}

thread_local! {
    /// The turn of the test that runs in this thread. It ends with the thread, because each test has its own.
    static OWN: OnceCell<Turn> = const { OnceCell::new() };
}

/// Waits until this test can begin. Later calls of the same test return at once.
///
/// Only the thread of a test waits: it has the path of the test as its name. It blocks, because a test that has not begun has nothing else
/// to do.
pub fn wait() {
    if !std::thread::current().name().is_some_and(|name| name.contains("::")) {
        return;
    }
    while OWN.with(|own| own.get().is_none()) {
        let begins = TURNS.lock().unwrap_or_else(PoisonError::into_inner).begins(Instant::now());
        if begins {
            OWN.with(|own| own.set(Turn).ok().expect("set once"));
        } else {
            std::thread::sleep(PERIOD / 10);
        }
    }
}

impl Turns {
    /// Returns whether one more test begins, and counts it.
    fn begins(&mut self, now: Instant) -> bool {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let always = self.running < *ALWAYS * processors;
        if !always && self.since.is_some_and(|(since, _)| now - since < PERIOD) {
            return false;
        }
        let measured = ticks();
        let idle = self.since.zip(measured).is_some_and(|((_, before), after)| idle_part(before, after) >= IDLE);
        let begins = always || idle && self.running < MOST * processors;
        self.since = measured.map(|ticks| (now, ticks));
        self.running += usize::from(begins);
        begins
    }
}

/// Returns the idle part of the time between two measurements.
#[allow(clippy::cast_precision_loss, reason = "the ticks of a second are few")]
fn idle_part(before: Ticks, after: Ticks) -> f64 {
    let (idle, all) = (after.idle.saturating_sub(before.idle), after.all.saturating_sub(before.all));
    if all == 0 { 0.0 } else { idle as f64 / all as f64 }
}

/// Reads the processor time of the machine (<https://man7.org/linux/man-pages/man5/proc_stat.5.html>). Linux only.
fn ticks() -> Option<Ticks> {
    parse(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// Parses the first line: `cpu user nice system idle iowait …`. Time in which a processor waits for a disk does not count as idle.
fn parse(stat: &str) -> Option<Ticks> {
    let times = stat.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<u64> = times.split_whitespace().map(|ticks| ticks.parse().ok()).collect::<Option<_>>()?;
    // Time of guests, the last two, is part of the time of users.
    Some(Ticks { idle: *times.get(3)?, all: times.iter().take(8).sum() })
}

#[test]
fn the_idle_part_is_measured_between_two_readings() {
    let before = parse("cpu  100 0 50 800 50 0 0 0 90 0\ncpu0 1 2 3 4\n").unwrap();
    assert_eq!(before, Ticks { idle: 800, all: 1000 });
    for (after, want) in
        [("cpu 150 0 60 840 50 0 0 0 0 0", 0.4), ("cpu 100 0 50 800 150 0 0 0", 0.0), ("cpu 100 0 50 900 50", 1.0)]
    {
        let part = idle_part(before, parse(after).unwrap());
        assert!((part - want).abs() < 1e-9, "{after}: {part}");
    }
    assert!((idle_part(before, before)).abs() < 1e-9);
    assert!(["", "cpu0 1 2 3 4", "cpu x"].iter().all(|stat| parse(stat).is_none()));
}
