//! What the applications go through, and what the receivers do with each request. Pure.
//!
//! In: a seed. Out: for each application acts without end, and what each of them means; for each request a behaviour. All are
//! the same for the same seed, so what every lane must say is known, however far a run gets.

use std::time::Duration;

use fastrand::Rng;

/// What happens to an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// This revision is rolled out.
    Ship(String),
    /// A rollout of this revision fails.
    Break(String),
    /// Back to this revision, after a failure.
    RollBack(String),
}

impl Act {
    /// What it means: type and revision of the transition.
    pub fn means(&self) -> (&'static str, &str) {
        match self {
            Self::Ship(revision) => ("Deployed", revision),
            Self::Break(revision) => ("Failed", revision),
            Self::RollBack(revision) => ("Recovered", revision),
        }
    }
}

/// The life of one application.
pub struct Life {
    rng: Rng,
    running: u32,
    newest: u32,
    failed: bool,
}

impl Life {
    /// Of an application that runs revision 0.
    pub fn new(seed: u64, app: &str) -> Self {
        Self { rng: Rng::with_seed(mix(seed, &["life", app])), running: 0, newest: 0, failed: false }
    }

    /// How long nothing happens before the next act.
    pub fn pause(&mut self) -> Duration {
        Duration::from_millis(if self.rng.bool() { 0 } else { self.rng.u64(0..600) })
    }

    /// The next act.
    pub fn act(&mut self) -> Act {
        match self.rng.u8(0..100) {
            0..40 if self.failed => self.roll_back(),
            0..55 => self.ship(),
            _ => self.break_(),
        }
    }

    /// Acts with which a life ends: one of each meaning.
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

/// What a receiver does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// It takes so long.
    pub after: Duration,
    /// And then does this.
    pub then: Then,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is taken, with this code; the body of the answer is no matter.
    Take(u16, Body),
    /// It fails, with this code.
    Fail(u16),
    /// The receiver wants to be left alone, and says for how long.
    Throttle(Wait),
    /// Nothing is ever said.
    Hang,
    /// The connection is closed.
    Close,
    /// The head of an answer drips and has no end.
    DripHead,
    /// The head of an answer is larger than anybody reads.
    Bomb,
}

/// The body of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// None.
    None,
    /// A word.
    Short,
    /// A byte now and then, without end.
    Drips,
    /// As much as is taken, without end.
    Endless,
    /// Less than was announced.
    BreaksOff,
}

/// What `Retry-After` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A second.
    Second,
    /// The date of a second from now.
    Date,
    /// A date of long ago.
    Past,
    /// Nothing that can be understood.
    Junk,
}

/// Codes with which a receiver refuses a message for good.
pub const REFUSALS: [u16; 8] = [400, 410, 422, 301, 302, 303, 307, 308];

/// What is done with the so many-th request to a path.
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
        // The third one in a row would be for good.
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

/// With what code a receiver refuses this message for good, where it would have taken another.
pub fn refusal(seed: u64, path: &str, type_: &str, revision: &str) -> Option<u16> {
    let chance = mix(seed, &["unwanted", path, type_, revision]);
    let code = usize::try_from(chance / 16 % REFUSALS.len() as u64).ok()?;
    chance.is_multiple_of(16).then(|| REFUSALS[code])
}

/// One number out of a seed and words (FNV-1a).
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
    fn a_seed_is_a_script() {
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
        assert!(!all(1).windows(3).any(lost), "the third would be for good");
        let refused: BTreeSet<_> = (0..1000).filter_map(|n| refusal(1, "/all/a", "Deployed", &n.to_string())).collect();
        assert_eq!(refused.len(), REFUSALS.len());
    }
}
