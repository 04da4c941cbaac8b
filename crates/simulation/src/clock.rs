//! The clocks and the random numbers of a thread, in place of those of the system. So code that asks the system for them runs in virtual
//! time, and repeats exactly.
//!
//! In: what the clocks of this thread show, and the seed of its random numbers. Out: `Instant::now`, `SystemTime::now`, the clock
//! since boot and the keys of hash maps, as all code of the thread sees them. All other threads see those of the system.
//!
//! The standard library gets all of them by two functions of libc. A program that defines these functions itself uses its own. This is the only
//! place with unsafe code: the two functions write through the pointers that their callers give them.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;
use rustix::time::ClockId;
use tokio::runtime::Runtime;

/// The time of the first moment by the wall clock, since 1970: 2026-01-01.
const FIRST: Duration = Duration::from_hours(490_896);
/// The clocks since boot show this in the first moment, so that a time before it can be shown.
const BOOTED: Duration = Duration::from_secs(1_000_000);

/// What the clocks of a thread show.
#[derive(Clone, Copy)]
enum Shown {
    /// What those of the system show.
    System,
    /// This time since the first moment.
    Fixed(Duration),
    /// The time of the tokio runtime in which the thread is, whose clock is paused.
    Runtime,
}

thread_local! {
    static SHOWN: Cell<Shown> = const { Cell::new(Shown::System) };
    /// The first moment, as `Instant`.
    static EPOCH: Cell<Option<Instant>> = const { Cell::new(None) };
    /// How much the wall clock is ahead, in milliseconds.
    static AHEAD: Cell<i64> = const { Cell::new(0) };
    /// The state of the random numbers. `None`: those of the system.
    static RANDOM: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Begins the virtual time of this thread, and its random numbers. It lasts until the thread ends.
pub fn begin(seed: u64) {
    RANDOM.set(Some(seed));
    fastrand::seed(seed);
    relaybook_api::testing::play_boot(Some(|| BOOTED + since_first()));
    show(Duration::ZERO, 0);
    EPOCH.set(Some(Instant::now()));
}

/// Stops the clocks of this thread at this time since the first moment. `ahead`: how much the wall clock is ahead, in milliseconds.
pub fn show(time: Duration, ahead: i64) {
    SHOWN.set(Shown::Fixed(time));
    AHEAD.set(ahead);
}

/// Runs the future on a runtime whose clock is paused. Meanwhile all clocks show the time of that runtime.
pub fn within<T>(runtime: &Runtime, ahead: i64, work: impl Future<Output = T>) -> T {
    AHEAD.set(ahead);
    runtime.block_on(async {
        let _before = Before(SHOWN.replace(Shown::Runtime));
        work.await
    })
}

/// What the clocks showed before. A panic restores it, too.
struct Before(Shown);

impl Drop for Before {
    fn drop(&mut self) {
        SHOWN.set(self.0);
    }
}

/// Returns the time of an exact wall clock.
#[must_use]
pub fn wall() -> Timestamp {
    let time = FIRST + since_first();
    i64::try_from(time.as_millis()).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok()).unwrap_or_default()
}

/// Returns the time since the first moment, by the clocks of this thread.
#[must_use]
pub fn since_first() -> Duration {
    EPOCH.get().map_or(Duration::ZERO, |epoch| Instant::now().duration_since(epoch))
}

/// Returns the moment at this time since the first one.
#[must_use]
pub fn at(time: Duration) -> tokio::time::Instant {
    tokio::time::Instant::from_std(EPOCH.get().map_or_else(Instant::now, |epoch| epoch + time))
}

/// Returns what the virtual clock of this thread shows. `None`: there is none.
fn shown() -> Option<Duration> {
    match SHOWN.try_with(Cell::get).ok()? {
        Shown::System => None,
        Shown::Fixed(time) => Some(time),
        Shown::Runtime => {
            // A paused clock does not ask the system. If it does, the thread is in no runtime.
            SHOWN.set(Shown::Fixed(Duration::ZERO));
            let now = tokio::time::Instant::now().into_std();
            SHOWN.set(Shown::Runtime);
            EPOCH.get().map(|epoch| now.duration_since(epoch))
        }
    }
}

/// The layout of `struct timespec`.
#[repr(C)]
struct Timespec {
    seconds: c_long,
    nanoseconds: c_long,
}

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// Sets `errno`, as the functions of libc do.
fn failed(error: Errno) {
    // SAFETY: libc returns a valid pointer to the variable of this thread.
    unsafe { __errno_location().write(error.raw_os_error()) };
}

/// See `clock_gettime(3)`.
#[unsafe(no_mangle)]
extern "C" fn clock_gettime(clock: c_int, into: *mut Timespec) -> c_int {
    // The numbers of the clocks of Linux.
    let (of_system, first) = match clock {
        0 | 5 => (ClockId::Realtime, FIRST),
        1 | 4 | 6 => (ClockId::Monotonic, BOOTED),
        7 => (ClockId::Boottime, BOOTED),
        2 => (ClockId::ProcessCPUTime, Duration::ZERO),
        3 => (ClockId::ThreadCPUTime, Duration::ZERO),
        _ => {
            failed(Errno::INVAL);
            return -1;
        }
    };
    if into.is_null() {
        failed(Errno::FAULT);
        return -1;
    }
    let time = match shown().filter(|_| !first.is_zero()) {
        Some(time) if first == FIRST => {
            let ahead = AHEAD.try_with(Cell::get).unwrap_or_default();
            (first + time).saturating_add_signed_millis(ahead)
        }
        Some(time) => first + time,
        None => Duration::try_from(rustix::time::clock_gettime(of_system)).unwrap_or_default(),
    };
    let seconds = c_long::try_from(time.as_secs()).unwrap_or(c_long::MAX);
    // SAFETY: the caller gives a pointer to a `timespec` that it owns.
    unsafe { into.write(Timespec { seconds, nanoseconds: c_long::from(time.subsec_nanos().cast_signed()) }) };
    0
}

/// See getrandom(2).
#[unsafe(no_mangle)]
extern "C" fn getrandom(into: *mut c_void, length: usize, flags: c_uint) -> isize {
    if length == 0 {
        return 0;
    }
    if into.is_null() {
        failed(Errno::FAULT);
        return -1;
    }
    // SAFETY: the caller gives a pointer to this number of bytes, which it owns. They need no value yet.
    let bytes = unsafe { std::slice::from_raw_parts_mut(into.cast::<MaybeUninit<u8>>(), length) };
    let Some(mut state) = RANDOM.try_with(Cell::get).ok().flatten() else {
        return match rustix::rand::getrandom(bytes, GetRandomFlags::from_bits_retain(flags)) {
            Ok((known, _)) => known.len().cast_signed(),
            Err(error) => {
                failed(error);
                -1
            }
        };
    };
    for byte in bytes {
        // The generator of Knuth's MMIX. It only has to differ, and to repeat.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        byte.write((state >> 56).to_le_bytes()[0]);
    }
    RANDOM.set(Some(state));
    length.cast_signed()
}

/// Adds milliseconds, which can be negative.
trait Signed {
    fn saturating_add_signed_millis(self, millis: i64) -> Self;
}

impl Signed for Duration {
    fn saturating_add_signed_millis(self, millis: i64) -> Self {
        let by = Self::from_millis(millis.unsigned_abs());
        if millis < 0 { self.saturating_sub(by) } else { self.saturating_add(by) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::SystemTime;

    use super::*;

    /// Returns an order of numbers in a hash set, and times that a task has seen.
    fn run(seed: u64) -> (Vec<u32>, Vec<u128>) {
        let work = move || {
            begin(seed);
            let order = (0..20).collect::<HashSet<u32>>().into_iter().collect();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            let mut times = Vec::new();
            for ahead in [0, -5000] {
                within(&runtime, ahead, async {
                    tokio::time::sleep(Duration::from_secs(90)).await;
                    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
                    times.extend([
                        since_first().as_millis(),
                        relaybook_api::since_boot().checked_sub(BOOTED).unwrap().as_millis(),
                    ]);
                    times.push(wall.checked_sub(FIRST).unwrap().as_millis());
                });
            }
            (order, times)
        };
        std::thread::spawn(work).join().unwrap()
    }

    #[test]
    fn time_passes_only_in_the_runtime_and_maps_repeat_their_order() {
        let begun = Instant::now();
        let (order, times) = run(7);
        assert_eq!(times, [90_000, 90_000, 90_000, 180_000, 180_000, 175_000]);
        assert_eq!(run(7), (order.clone(), times));
        assert_ne!(run(8).0, order);
        assert!(begun.elapsed() < Duration::from_mins(1), "the clock of this thread is that of the system");
    }
}
