//! Which lane gets the next worker: a bounded pool, shared fairly among the origins of the receivers. Pure.
//!
//! Origins take turns, and none holds more than its share of the workers, which leaves room for one more. An origin begins with
//! few workers and earns one more with each answer; each attempt without an answer halves what it may hold. So a receiver that
//! hangs ties up a handful of workers until its time-outs, however many lanes it has, and so do many of them together.

use std::collections::{HashMap, VecDeque};

use super::record::LaneKey;

/// Lanes that may be sent, by origin.
#[derive(Debug)]
pub struct Pool {
    workers: usize,
    busy: usize,
    origins: HashMap<String, Origin>,
    /// Origins with ready lanes; whose turn it is stands first.
    turns: VecDeque<String>,
}

/// What an origin begins with: enough not to be slow, little enough that it takes dozens of hung ones to fill the pool.
const FIRST: usize = 8;

#[derive(Debug)]
struct Origin {
    ready: VecDeque<LaneKey>,
    busy: usize,
    limit: usize,
}

impl Default for Origin {
    fn default() -> Self {
        Self { ready: VecDeque::new(), busy: 0, limit: FIRST }
    }
}

impl Pool {
    /// A pool of so many workers, at least two.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self { workers: workers.max(2), busy: 0, origins: HashMap::new(), turns: VecDeque::new() }
    }

    /// A lane is ready to be sent to `origin`. A lane is put in once until it comes out.
    pub fn ready(&mut self, origin: &str, lane: LaneKey) {
        let entry = self.origins.entry(origin.to_owned()).or_default();
        if entry.ready.is_empty() {
            self.turns.push_back(origin.to_owned());
        }
        entry.ready.push_back(lane);
    }

    /// The most workers that one origin may hold: an equal share, with one share left for an origin that wakes up.
    fn share(&self) -> usize {
        (self.workers / (self.origins.len() + 1)).max(1)
    }

    /// Takes a lane to work on, with its origin, if there is a worker for it. The worker is held until [`Pool::release`].
    pub fn next(&mut self) -> Option<(String, LaneKey)> {
        if self.busy >= self.workers {
            return None;
        }
        let share = self.share();
        for _ in 0..self.turns.len() {
            let name = self.turns.pop_front()?;
            let Some(origin) = self.origins.get_mut(&name) else { continue };
            if origin.busy >= share.min(origin.limit) {
                self.turns.push_back(name);
                continue;
            }
            let Some(lane) = origin.ready.pop_front() else { continue };
            origin.busy += 1;
            self.busy += 1;
            if !origin.ready.is_empty() {
                self.turns.push_back(name.clone());
            }
            return Some((name, lane));
        }
        None
    }

    /// What [`Pool::next`] gave cannot be begun at present: lane and worker as before.
    pub fn put_back(&mut self, origin: &str, lane: LaneKey) {
        if let Some(entry) = self.origins.get_mut(origin) {
            entry.busy = entry.busy.saturating_sub(1);
            self.busy = self.busy.saturating_sub(1);
        }
        self.ready(origin, lane);
    }

    /// What [`Pool::next`] gave had nothing to do after all: the worker is free, and nothing was learnt of the origin.
    pub fn unused(&mut self, origin: &str) {
        self.free(origin, |limit| limit);
    }

    /// The worker that `origin` held is free. `answered`: whether the receiver said anything.
    pub fn release(&mut self, origin: &str, answered: bool) {
        let most = self.workers;
        self.free(origin, |limit| if answered { (limit + 1).min(most) } else { (limit / 2).max(1) });
    }

    fn free(&mut self, origin: &str, limit: impl Fn(usize) -> usize) {
        let Some(entry) = self.origins.get_mut(origin) else { return };
        entry.limit = limit(entry.limit);
        entry.busy = entry.busy.saturating_sub(1);
        self.busy = self.busy.saturating_sub(1);
        if entry.busy == 0 && entry.ready.is_empty() {
            self.origins.remove(origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(n: usize) -> LaneKey {
        LaneKey { namespace: "ns".into(), pipeline: "p".into(), notification: "n".into(), lane: n.to_string() }
    }

    #[test]
    fn hung_origins_leave_room() {
        let mut pool = Pool::new(64);
        for hung in ["x", "y", "z"] {
            (0..100).for_each(|n| pool.ready(hung, lane(n)));
        }
        let held = std::iter::from_fn(|| pool.next()).count();
        assert_eq!(held, 3 * FIRST);
        for _ in 0..FIRST {
            pool.release("x", false);
        }
        assert_eq!(std::iter::from_fn(|| pool.next()).count(), 1, "after its time-outs it holds one");
        (0..200).for_each(|n| pool.ready("fine", lane(n)));
        for _ in 0..200 {
            let (origin, _) = pool.next().unwrap();
            assert_eq!(origin, "fine");
            pool.release(&origin, true);
        }
        assert!(pool.next().is_none());
    }

    #[test]
    fn an_origin_that_answers_earns_its_share_and_no_more() {
        let mut pool = Pool::new(40);
        (0..400).for_each(|n| pool.ready("fine", lane(n)));
        for _ in 0..100 {
            let (origin, _) = pool.next().unwrap();
            pool.release(&origin, true);
        }
        assert_eq!(std::iter::from_fn(|| pool.next()).count(), 20);
    }

    #[test]
    fn origins_take_turns_and_lanes_keep_theirs() {
        let mut pool = Pool::new(24);
        for n in 0..3 {
            pool.ready("a", lane(n));
            pool.ready("b", lane(10 + n));
        }
        let order: Vec<_> = std::iter::from_fn(|| pool.next()).map(|(o, l)| format!("{o}{}", l.lane)).collect();
        assert_eq!(order, ["a0", "b10", "a1", "b11", "a2", "b12"]);
        for origin in ["a", "b"].repeat(3) {
            pool.release(origin, true);
        }
        assert!(pool.origins.is_empty() && pool.turns.is_empty(), "nothing is kept of an origin that rests");
    }
}
