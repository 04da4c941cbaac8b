//! What happens to the requests of one replica: outages, writes that go wrong, and a kill at an exact request.
//!
//! In: requests to the API server and to receivers, in their order. Out: the fate of each, and whether the process is dead.

use std::collections::VecDeque;

use relaybook_simulation::service::{Arrived, Fate, Silence};

use super::steps::Wrote;

/// What happens to the requests of one replica, to the API server and to receivers.
#[derive(Default)]
pub struct Line {
    /// No request arrives.
    pub outage: Option<Silence>,
    /// What happens to the next writes, each after a number of others.
    pub writes: VecDeque<(u8, Fate)>,
    /// After this number of writes and requests to receivers the process is killed. The last one still arrives, or does not.
    pub fatal: Option<(u8, bool)>,
    /// Whether it is killed.
    pub is_dead: bool,
}

impl Line {
    /// Counts a write, or a request to a receiver. Returns whether it still arrives.
    pub fn arrives(&mut self) -> bool {
        let Some((left, arrives)) = &mut self.fatal else { return !self.is_dead };
        if let Some(fewer) = left.checked_sub(1) {
            *left = fewer;
            return true;
        }
        let arrives = *arrives;
        (self.is_dead, self.fatal) = (true, None);
        arrives
    }

    /// Decides what happens to a request to the API server.
    pub fn fate(&mut self, arrived: &Arrived) -> Fate {
        let is_write = arrived.request.verb.is_write();
        if self.is_dead || is_write && !self.arrives() {
            return Fate::Dropped(Silence::Hanging);
        }
        if let Some(silence) = self.outage {
            return Fate::Dropped(silence);
        }
        match self.writes.front_mut().filter(|_| is_write) {
            Some((0, _)) => self.writes.pop_front().map_or(Fate::Answered, |(_, fate)| fate),
            Some((after, _)) => {
                *after -= 1;
                Fate::Answered
            }
            None => Fate::Answered,
        }
    }
}

impl Wrote {
    /// Returns what happens to the write on the network.
    pub fn fate(self) -> Fate {
        match self {
            Self::Lost => Fate::Lost(Silence::Broken),
            Self::LostLater => Fate::Lost(Silence::Hanging),
            Self::Dropped => Fate::Dropped(Silence::Hanging),
            Self::Late => Fate::Late(Silence::Hanging),
            Self::Refused(code) => Fate::Refused(code),
        }
    }
}
