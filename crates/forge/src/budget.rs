//! Pure: when a request to a forge may be made.
//!
//! There are one [`Budget`] and one `Reach` for each pair of origin and Secret. [`Budgets`] keeps both. A caller asks
//! before a request ([`Budgets::ask`]) and reports its end ([`Budgets::end`]).
//!
//! Scheduled looks get a part of the requests of an hour. The rest is for requests that should not wait: attempts, and looks that a hook asked
//! for. If there are more open promotions than scheduled looks allow, [`Budget::interval`] makes the looks rarer.

mod many;
mod reach;
#[cfg(test)]
mod simulation;

use std::time::Duration;

pub use many::Budgets;

use super::limits::Limits;
use relaybook_api::Time;

/// Requests in an hour, unless the forge names another number.
pub const PER_HOUR: u32 = 1000;
/// Maximum number of requests in an hour, whatever the forge allows: other programs use the same forge.
pub const MAX_PER_HOUR: u32 = 5000;
/// Maximum number of requests at once.
pub const AT_ONCE: u32 = 4;
/// Scheduled looks leave one of them free.
const LOOKS_AT_ONCE: u32 = AT_ONCE - 1;
/// Scheduled looks that can follow each other without a pause.
const BURST: u32 = 20;
/// Longest interval between two looks at one promotion.
const MAX_INTERVAL: Duration = Duration::from_hours(24);
/// How long a caller waits if the number of requests at once is reached. The end of a request is a better moment to ask again.
const BUSY: Duration = Duration::from_secs(1);
/// An hour, in milliseconds.
const HOUR: u64 = 3_600_000;

/// How urgent a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Priority {
    /// A scheduled look at an open promotion.
    Scheduled,
    /// A question whose answer a message can do without. It has the requests of all others, but leaves room as a scheduled look does.
    Aside,
    /// An attempt, or a look that a hook or a person asked for.
    Prompt,
}

/// Whether a request may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// It may be made now. The caller reports its end.
    Now,
    /// Not before this time. Ask again then.
    Wait(Time),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The forge answered. Contains what the headers say.
    Answered {
        /// The headers.
        limits: Limits,
        /// Whether the answer was [`super::Error::RateLimited`].
        limited: bool,
    },
    /// There was no answer: the origin cannot be reached, or did not answer in time.
    Unreachable,
}

/// Tokens that are refilled evenly. One token is [`HOUR`] units, so no fraction is lost.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    units: u64,
    size: u32,
    per_hour: u32,
}

impl Bucket {
    const fn full(size: u32, per_hour: u32) -> Self {
        Self { units: size as u64 * HOUR, size, per_hour }
    }

    fn refill(&mut self, millis: u64) {
        let more = millis.min(HOUR).saturating_mul(u64::from(self.per_hour));
        self.units = self.units.saturating_add(more).min(u64::from(self.size) * HOUR);
    }

    const fn take(&mut self) -> bool {
        if self.units >= HOUR {
            self.units -= HOUR;
            return true;
        }
        false
    }

    /// Returns how long it takes until there is a token.
    fn wait(&self) -> Duration {
        let missing = HOUR.saturating_sub(self.units);
        Duration::from_millis(missing.div_ceil(u64::from(self.per_hour.max(1))))
    }

    /// Changes the size and the rate. The tokens that are there stay, up to the new size.
    fn resize(&mut self, size: u32, per_hour: u32) {
        self.units = self.units.min(u64::from(size) * HOUR);
        (self.size, self.per_hour) = (size, per_hour);
    }
}

/// The requests of one Secret at one origin.
#[derive(Clone, Debug)]
pub struct Budget {
    per_hour: u32,
    looks: Bucket,
    prompt: Bucket,
    at_once: u32,
    refilled: Time,
    /// Until then, no request is made.
    closed: Option<Time>,
    /// Until then, only prompt requests are made: few requests remain, also for other programs with the same token.
    spared: Option<Time>,
}

impl Budget {
    /// A budget of which nothing is used.
    #[must_use]
    pub fn new(now: Time) -> Self {
        let [looks, prompt] = shares(PER_HOUR).map(|(size, per_hour)| Bucket::full(size, per_hour));
        Self { per_hour: PER_HOUR, looks, prompt, at_once: 0, refilled: now, closed: None, spared: None }
    }

    /// Asks whether a request may be made. After [`Quota::Now`], call [`Budget::end`] once.
    pub fn ask(&mut self, priority: Priority, now: Time) -> Quota {
        self.refill(now);
        let leaves_room = priority != Priority::Prompt;
        let spared = self.spared.filter(|_| leaves_room);
        if let Some(until) = self.closed.max(spared).filter(|until| *until > now) {
            return Quota::Wait(until);
        }
        let at_once = if leaves_room { LOOKS_AT_ONCE } else { AT_ONCE };
        if self.at_once >= at_once {
            return Quota::Wait(after(now, BUSY));
        }
        let (is_taken, wait) = match priority {
            Priority::Scheduled => (self.looks.take(), self.looks.wait()),
            // The share of looks is taken only if the own one is used up.
            Priority::Prompt | Priority::Aside => {
                (self.prompt.take() || self.looks.take(), self.prompt.wait().min(self.looks.wait()))
            }
        };
        if !is_taken {
            return Quota::Wait(after(now, wait));
        }
        self.at_once += 1;
        Quota::Now
    }

    /// Reports that a request ended.
    pub fn end(&mut self, end: End, now: Time) {
        self.refill(now);
        self.at_once = self.at_once.saturating_sub(1);
        let End::Answered { limits, limited } = end else { return };
        if let Some(per_hour) = limits.per_hour {
            self.set(per_hour);
        }
        let reset = limits.reset.map(|reset| reset.at(now));
        let retry = limits.retry.map(|retry| retry.at(now));
        if limited || limits.is_exhausted() {
            // GitHub asks for a minute if it names no time: https://docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api
            let reset = reset.filter(|_| limits.remaining.is_none_or(|remaining| remaining == 0));
            let until = retry.or(reset).unwrap_or_else(|| after(now, Duration::from_mins(1)));
            self.closed = self.closed.max(Some(until));
        } else if let Some(until) = retry {
            self.closed = self.closed.max(Some(until));
        }
        let is_low = limits.limit.zip(limits.remaining).is_some_and(|(limit, left)| left < (limit / 10).min(100));
        self.spared = reset.filter(|_| is_low);
    }

    /// Returns the time between two looks at one promotion, of `open` promotions that are looked at with `requests` requests each. It is
    /// the interval that the user asked for, if the scheduled looks of an hour suffice for it.
    #[must_use]
    pub fn interval(&self, asked: Duration, open: usize, requests: u32) -> Duration {
        // A tenth is left for looks that come early: jitter, and looks after an error.
        let looks = u64::from(self.looks.per_hour.saturating_mul(9) / 10).max(1);
        let needed = u64::try_from(open).unwrap_or(u64::MAX).saturating_mul(u64::from(requests));
        let least = Duration::from_millis(needed.saturating_mul(HOUR).div_ceil(looks));
        asked.max(least.min(MAX_INTERVAL))
    }

    /// Returns the number of requests in an hour.
    #[must_use]
    pub const fn per_hour(&self) -> u32 {
        self.per_hour
    }

    /// Whether a new budget would be the same: no request runs, and none was made in the last hour.
    fn is_idle(&self, now: Time) -> bool {
        self.at_once == 0 && self.closed.is_none_or(|until| until <= now) && millis(self.refilled, now) >= HOUR
    }

    fn set(&mut self, per_hour: u32) {
        self.per_hour = per_hour.clamp(1, MAX_PER_HOUR);
        let [looks, prompt] = shares(self.per_hour);
        self.looks.resize(looks.0, looks.1);
        self.prompt.resize(prompt.0, prompt.1);
    }

    fn refill(&mut self, now: Time) {
        let elapsed = millis(self.refilled, now);
        self.looks.refill(elapsed);
        self.prompt.refill(elapsed);
        // A clock that is set back must not stop the budget.
        self.refilled = now;
    }
}

/// Returns size and rate of the buckets of scheduled looks and of prompt requests. In any hour, a bucket gives at most its size and its rate
/// together. The four numbers add up to the number of requests in an hour.
fn shares(per_hour: u32) -> [(u32, u32); 2] {
    let looks = per_hour * 3 / 4;
    let burst = BURST.min(looks / 2);
    let prompt = per_hour - looks;
    let stock = prompt.div_ceil(2);
    [(burst, looks - burst), (stock, prompt - stock)]
}

fn after(now: Time, wait: Duration) -> Time {
    now.saturating_add(wait).unwrap_or(now)
}

fn millis(from: Time, to: Time) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
