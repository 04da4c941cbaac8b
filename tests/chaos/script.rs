//! The script of a run: the changes of the applications, and the reaction of the receivers to each request. Pure.
//!
//! In: a seed. Out: for each application an endless sequence of acts with their transitions; for each request a behaviour. Both
//! only depend on the seed, so the expected steps of every lane are known at any point of a run.

use std::time::Duration;

use fastrand::Rng;

/// A change of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Rolls out this revision.
    Ship(String),
    /// Rolls out this revision, which fails.
    Break(String),
    /// Rolls back to this revision after a failure.
    RollBack(String),
}

impl Act {
    /// Returns type and revision of the transition.
    pub fn means(&self) -> (&'static str, &str) {
        match self {
            Self::Ship(revision) => ("Deployed", revision),
            Self::Break(revision) => ("Failed", revision),
            Self::RollBack(revision) => ("Recovered", revision),
        }
    }
}

/// Generator of the acts of one application.
pub struct Life {
    rng: Rng,
    running: u32,
    newest: u32,
    failed: bool,
}

impl Life {
    /// Starts with an application that runs revision 0.
    pub fn new(seed: u64, app: &str) -> Self {
        Self { rng: Rng::with_seed(mix(seed, &["life", app])), running: 0, newest: 0, failed: false }
    }

    /// Returns the pause before the next act.
    pub fn pause(&mut self) -> Duration {
        Duration::from_millis(if self.rng.bool() { 0 } else { self.rng.u64(0..600) })
    }

    /// Returns the next act.
    pub fn act(&mut self) -> Act {
        match self.rng.u8(0..100) {
            0..40 if self.failed => self.roll_back(),
            0..55 => self.ship(),
            _ => self.break_(),
        }
    }

    /// Returns the last acts: one of each kind.
    pub fn finale(&mut self) -> [Act; 3] {
        [self.ship(), self.break_(), self.roll_back()]
    }

    fn ship(&mut self) -> Act {
        self.newest += 1;
        (self.running, self.failed) = (self.newest, false);
        Act::Ship(self.newest.to_string())
    }

    fn break_(&mut self) -> Act {
        self.newest += 1;
        self.failed = true;
        Act::Break(self.newest.to_string())
    }

    fn roll_back(&mut self) -> Act {
        self.failed = false;
        Act::RollBack(self.running.to_string())
    }
}

/// The reaction of a receiver to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Delay before it.
    pub after: Duration,
    /// What the receiver then does.
    pub then: Then,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The request is accepted with this code. The body of the answer must not matter.
    Take(u16, Body),
    /// The request fails with this code.
    Fail(u16),
    /// The receiver answers 429 with this `Retry-After`.
    Throttle(Wait),
    /// The receiver never answers.
    Hang,
    /// The connection is closed.
    Close,
    /// The receiver sends the head of an answer slowly and without end.
    DripHead,
    /// The receiver sends a head that is larger than any client accepts.
    Bomb,
}

/// The body of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// None.
    None,
    /// Two bytes.
    Short,
    /// One byte at a time, without end.
    Drips,
    /// As much as the client reads, without end.
    Endless,
    /// Less than `Content-Length`.
    BreaksOff,
}

/// The value of `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// One second.
    Second,
    /// The date one second from now.
    Date,
    /// A date in the past.
    Past,
    /// An invalid value.
    Junk,
}

/// Codes that refuse a message finally.
pub const REFUSALS: [u16; 8] = [400, 410, 422, 301, 302, 303, 307, 308];

/// Returns the behaviour for request `number` to a path.
pub fn behaviour(seed: u64, path: &str, number: u64) -> Behaviour {
    let mut rng = Rng::with_seed(mix(seed, &["request", path]).wrapping_add(number));
    let then = match rng.u8(0..100) {
        0..44 => Then::Take(200, Body::Short),
        44..54 => Then::Take(204, Body::None),
        54..57 => Then::Take(202, Body::Drips),
        57..60 => Then::Take(200, Body::Endless),
        60..63 => Then::Take(201, Body::BreaksOff),
        63..67 => Then::Fail(500),
        67..71 => Then::Fail(503),
        71..74 => Then::Fail(401),
        74..77 => Then::Fail(403),
        // Three 404 in a row would be a final refusal.
        77..81 if !number.is_multiple_of(3) => Then::Fail(404),
        77..83 => Then::Fail(408),
        83..87 => Then::Throttle([Wait::Second, Wait::Date, Wait::Past, Wait::Junk][rng.usize(0..4)]),
        87..89 => Then::Hang,
        89..91 => Then::DripHead,
        91..94 => Then::Bomb,
        _ => Then::Close,
    };
    let after = if rng.bool() { 0 } else { rng.u64(0..250) };
    Behaviour { after: Duration::from_millis(after), then }
}

/// Returns the code with which the receiver refuses this message finally; `None`: it accepts the message.
pub fn refusal(seed: u64, path: &str, type_: &str, revision: &str) -> Option<u16> {
    let chance = mix(seed, &["unwanted", path, type_, revision]);
    let code = usize::try_from(chance / 16 % REFUSALS.len() as u64).ok()?;
    chance.is_multiple_of(16).then(|| REFUSALS[code])
}

/// Hashes a seed and words to a number (FNV-1a).
fn mix(seed: u64, words: &[&str]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.bytes().chain([0]));
    bytes.fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_script_of_changes_is_possible_and_every_revision_is_new() {
        let mut life = Life::new(3, "a");
        let (mut running, mut failed, mut known) = ("0".to_owned(), false, BTreeSet::from(["0".to_owned()]));
        for act in (0..500).map(|_| life.act()) {
            match &act {
                Act::Ship(r) => {
                    assert!(known.insert(r.clone()), "{r} is not new");
                    (running, failed) = (r.clone(), false);
                }
                Act::Break(r) => {
                    assert!(known.insert(r.clone()), "{r} is not new");
                    failed = true;
                }
                Act::RollBack(r) => {
                    assert!(failed && *r == running, "no way back to {r}");
                    failed = false;
                }
            }
        }
        assert!(matches!(life.finale(), [Act::Ship(a), Act::Break(_), Act::RollBack(b)] if a == b));
    }

    #[test]
    fn a_seed_determines_the_script() {
        let acts = |seed, app| {
            let mut life = Life::new(seed, app);
            (0..50).map(|_| life.act()).collect::<Vec<_>>()
        };
        assert_eq!(acts(1, "a"), acts(1, "a"));
        assert_ne!(acts(1, "a"), acts(2, "a"));
        assert_ne!(acts(1, "a"), acts(1, "b"));
        let all = |seed| (0..500).map(|n| behaviour(seed, "/all/a", n)).collect::<Vec<_>>();
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        for then in [
            Then::Take(204, Body::None),
            Then::Take(200, Body::Endless),
            Then::Fail(404),
            Then::Throttle(Wait::Date),
            Then::Hang,
            Then::Close,
            Then::DripHead,
            Then::Bomb,
        ] {
            assert!(all(1).iter().any(|b| b.then == then), "{then:?}");
        }
        let lost = |b: &[Behaviour]| b.iter().all(|b| b.then == Then::Fail(404));
        assert!(!all(1).windows(3).any(lost), "three 404 in a row are a final refusal");
        let refused: BTreeSet<_> = (0..1000).filter_map(|n| refusal(1, "/all/a", "Deployed", &n.to_string())).collect();
        assert_eq!(refused.len(), REFUSALS.len());
    }
}
