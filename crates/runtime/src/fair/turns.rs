//! Pure: which key gets the next permit.
//!
//! Keys that wait take turns. A key that may not have a permit now keeps its place before the others. Two reserves keep permits free, so that
//! no key waits long for others that hold theirs for a long time:
//!
//! - A key that holds a permit gets another one only while half of all permits are free. So one more key finds a permit at once.
//! - A key that has used up its budget of time is slow. It leaves a quarter of the permits free. So all slow keys together never have all
//!   permits, however many they are. A key that waits is soon not slow any more.
//!
//! The same reserves apply within a group.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::{Key, Limits};

/// What part of the time that passes is added to the budget of a key again.
const REFILL: u32 = 4;

/// The permits that are held, and who waits. `T` is what a caller waits with.
#[derive(Debug)]
pub(super) struct Turns<K, G, T> {
    limits: Limits,
    held: usize,
    groups: HashMap<G, usize>,
    keys: HashMap<K, Entry<G, T>>,
    /// The keys that wait, the next one first.
    waiting: VecDeque<K>,
    now: Duration,
}

/// A key that holds permits, waits, or has recently held permits.
#[derive(Debug)]
struct Entry<G, T> {
    held: usize,
    groups: HashMap<G, usize>,
    waiting: VecDeque<(G, T)>,
    /// How much of the budget is used.
    used: Duration,
}

impl<G, T> Default for Entry<G, T> {
    fn default() -> Self {
        Self { held: 0, groups: HashMap::new(), waiting: VecDeque::new(), used: Duration::ZERO }
    }
}

impl<K: Key, G: Key, T> Turns<K, G, T> {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, held: 0, groups: HashMap::new(), keys: HashMap::new(), waiting: VecDeque::new(), now: Duration::ZERO }
    }

    /// Notes how much time has passed. Forgets keys that are as if they were new.
    pub(super) fn pass(&mut self, now: Duration) {
        let passed = now.saturating_sub(std::mem::replace(&mut self.now, now));
        let has_budget = self.limits.budget.is_some();
        self.keys.retain(|_, entry| {
            if has_budget {
                let held = u32::try_from(entry.held).unwrap_or(u32::MAX);
                entry.used = entry.used.saturating_add(passed.saturating_mul(held)).saturating_sub(passed / REFILL);
            }
            entry.held > 0 || !entry.waiting.is_empty() || !entry.used.is_zero()
        });
    }

    /// Adds a caller that waits.
    pub(super) fn enter(&mut self, key: K, group: G, caller: T) {
        let entry = self.keys.entry(key.clone()).or_default();
        if entry.waiting.is_empty() {
            self.waiting.push_back(key);
        }
        entry.waiting.push_back((group, caller));
    }

    /// Takes this number of permits, if the key may have them now.
    pub(super) fn take(&mut self, key: &K, group: &G, count: usize) -> bool {
        let may = self.may(self.keys.get(key), group, count);
        if may {
            self.held += count;
            *self.groups.entry(group.clone()).or_default() += count;
            let entry = self.keys.entry(key.clone()).or_default();
            entry.held += count;
            *entry.groups.entry(group.clone()).or_default() += count;
        }
        may
    }

    pub(super) fn release(&mut self, key: &K, group: &G, count: usize) {
        self.held = self.held.saturating_sub(count);
        less(&mut self.groups, group, count);
        if let Some(entry) = self.keys.get_mut(key) {
            entry.held = entry.held.saturating_sub(count);
            less(&mut entry.groups, group, count);
        }
    }

    /// Gives a permit to the next caller, if there is one that may have it. `is_gone`: whether a caller has stopped waiting.
    pub(super) fn next(&mut self, is_gone: impl Fn(&T) -> bool) -> Option<(K, G, T)> {
        let keys = &mut self.keys;
        self.waiting.retain(|key| {
            keys.get_mut(key).is_some_and(|entry| {
                entry.waiting.retain(|(_, caller)| !is_gone(caller));
                !entry.waiting.is_empty()
            })
        });
        let found = self.waiting.iter().enumerate().find_map(|(turn, key)| {
            let entry = self.keys.get(key);
            let place = entry?.waiting.iter().position(|(group, _)| self.may(entry, group, 1))?;
            Some((turn, place))
        });
        let (turn, place) = found?;
        let key = self.waiting.remove(turn)?;
        let waiting = &mut self.keys.get_mut(&key)?.waiting;
        let (group, caller) = waiting.remove(place)?;
        if !waiting.is_empty() {
            self.waiting.push_back(key.clone());
        }
        self.take(&key, &group, 1);
        Some((key, group, caller))
    }

    /// Whether a key may have this number of permits more now.
    fn may(&self, entry: Option<&Entry<G, T>>, group: &G, count: usize) -> bool {
        let (limits, of) = (&self.limits, |groups: &HashMap<G, usize>| groups.get(group).copied().unwrap_or_default());
        let (held, in_group) = entry.map_or((0, 0), |entry| (entry.held, of(&entry.groups)));
        let is_slow = limits.budget.zip(entry).is_some_and(|(budget, entry)| entry.used > budget);
        held.saturating_add(count) <= limits.of_key
            && in_group.saturating_add(count) <= limits.of_key_in_group
            && fits(limits.all, self.held, count, held > 0, is_slow)
            && fits(limits.of_group, of(&self.groups), count, in_group > 0, is_slow)
    }
}

/// Whether more permits can be given, so that the reserves stay free.
fn fits(all: usize, held: usize, count: usize, holds: bool, is_slow: bool) -> bool {
    let reserve = match (holds, is_slow) {
        (true, _) => all / 2,
        (false, true) => all.div_ceil(4).min(all.saturating_sub(1)),
        (false, false) => 0,
    };
    held.saturating_add(count) <= all - reserve
}

fn less<G: Key>(groups: &mut HashMap<G, usize>, group: &G, count: usize) {
    if let Some(held) = groups.get_mut(group) {
        *held = held.saturating_sub(count);
        if *held == 0 {
            groups.remove(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Test = Turns<u8, u8, usize>;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn next(turns: &mut Test) -> Option<(u8, u8, usize)> {
        turns.next(|_| false)
    }

    /// Permits as those of repositories.
    const LIMITS: Limits =
        Limits { all: 8, of_key: 2, of_group: 6, of_key_in_group: 1, budget: Some(Duration::from_secs(30)) };

    #[test]
    fn keys_that_never_release_their_permits_leave_one_for_a_new_key() {
        for (hostile, groups) in [(1, 1), (1, 20), (4, 1), (4, 10), (5, 1), (5, 10)] {
            let mut turns = Test::new(LIMITS);
            for caller in 0..20 * hostile {
                turns.enter(u8::try_from(caller % hostile).unwrap(), u8::try_from(caller % groups).unwrap(), caller);
            }
            while next(&mut turns).is_some() {}
            turns.enter(100, 0, 1000);
            assert_eq!(next(&mut turns), Some((100, 0, 1000)), "{hostile} in {groups} groups");
        }
    }

    #[test]
    fn any_number_of_slow_keys_leaves_a_quarter_of_the_permits() {
        let mut turns = Test::new(LIMITS);
        for key in 0..50 {
            turns.enter(key, key, 0);
            turns.keys.get_mut(&key).unwrap().used = at(60);
        }
        while next(&mut turns).is_some() {}
        assert_eq!(turns.held, 6);
        for (key, group) in [(100, 1), (101, 2)] {
            turns.enter(key, group, 1);
            assert_eq!(next(&mut turns), Some((key, group, 1)));
        }
        // A key that only waits is soon not slow any more.
        turns.enter(102, 3, 1);
        turns.keys.get_mut(&102).unwrap().used = at(60);
        turns.release(&100, &1, 1);
        turns.waiting.retain(|key| *key == 102);
        assert_eq!(next(&mut turns), None);
        turns.pass(at(121));
        assert_eq!(next(&mut turns), Some((102, 3, 1)));
    }

    #[test]
    fn a_slow_key_can_use_a_single_permit() {
        let mut turns = Test::new(Limits::new(1, 1).with_budget(at(1)));
        for round in 0..5 {
            turns.enter(1, 1, round);
            assert_eq!(next(&mut turns), Some((1, 1, round)));
            turns.pass(at(100 * (u64::try_from(round).unwrap() + 1)));
            turns.release(&1, &1, 1);
        }
    }

    #[test]
    fn an_idle_key_is_forgotten() {
        let mut turns = Test::new(LIMITS);
        assert!(turns.take(&1, &1, 1));
        turns.pass(at(10));
        turns.release(&1, &1, 1);
        turns.pass(at(11));
        assert_eq!((turns.keys.len(), turns.groups.len()), (1, 0));
        turns.pass(at(60));
        assert!(turns.keys.is_empty());
    }

    /// A step: a key and a group enter, one caller stops waiting, or one permit is released.
    fn steps() -> impl Strategy<Value = Vec<(u8, u8, u8, u64)>> {
        prop::collection::vec((0..4_u8, 0..6_u8, 0..3_u8, 0..40_u64), 1..150)
    }

    proptest! {
        #[test]
        fn limits_hold_and_no_key_is_passed_over_for_ever(limits in (1..9_usize, 1..5_usize, 1..7_usize, 1..3_usize), steps in steps()) {
            let (all, of_key, of_group, of_key_in_group) = limits;
            let limits = Limits { all, of_key, of_group, of_key_in_group, budget: Some(at(30)) };
            let mut turns = Test::new(limits);
            let (mut held, mut gone, mut now) = (Vec::<(u8, u8)>::new(), Vec::new(), 0);
            // How many permits others were given while a key waited and could have had one.
            let mut passed_over: HashMap<u8, HashMap<u8, usize>> = HashMap::new();
            for (caller, (what, key, group, seconds)) in steps.into_iter().enumerate() {
                now += seconds;
                turns.pass(at(now));
                match what {
                    0 | 1 => turns.enter(key, group, caller),
                    2 => gone.extend(turns.keys.get(&key).and_then(|entry| entry.waiting.front()).map(|(_, caller)| *caller)),
                    _ if !held.is_empty() => {
                        let (key, group) = held.remove(usize::from(key) % held.len());
                        turns.release(&key, &group, 1);
                    }
                    _ => {}
                }
                loop {
                    let could: Vec<u8> = (0..6).filter(|key| {
                        let entry = turns.keys.get(key);
                        entry.is_some_and(|of| of.waiting.iter().any(|(group, caller)| !gone.contains(caller) && turns.may(entry, group, 1)))
                    }).collect();
                    let Some((key, group, given)) = turns.next(|caller| gone.contains(caller)) else {
                        prop_assert!(could.is_empty(), "a permit is free");
                        break;
                    };
                    prop_assert!(!gone.contains(&given) && could.contains(&key));
                    held.push((key, group));
                    passed_over.remove(&key);
                    for other in could.into_iter().filter(|other| *other != key) {
                        let times = passed_over.entry(other).or_default().entry(key).or_default();
                        *times += 1;
                        prop_assert!(*times <= 1, "{key} was given two permits before {other}");
                    }
                }
                for key in 0..6 {
                    let waits = turns.keys.get(&key).is_some_and(|entry| !entry.waiting.is_empty());
                    if !waits { passed_over.remove(&key); }
                    let of = |group: Option<u8>| held.iter().filter(|(k, g)| *k == key && group.is_none_or(|group| group == *g)).count();
                    prop_assert!(of(None) <= of_key && (0..3).all(|group| of(Some(group)) <= of_key_in_group));
                }
                prop_assert!(held.len() <= all && held.len() == turns.held);
                prop_assert!((0..3).all(|group| held.iter().filter(|(_, g)| *g == group).count() <= of_group));
            }
            // What waits gets a permit once enough are released.
            while let Some((key, group)) = held.pop() {
                turns.release(&key, &group, 1);
                while let Some((key, group, _)) = turns.next(|caller| gone.contains(caller)) {
                    held.push((key, group));
                }
            }
            prop_assert!(turns.waiting.is_empty() && turns.held == 0 && turns.groups.is_empty());
        }
    }
}
