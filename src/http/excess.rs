//! Which connections are closed when too many are open. Pure.
//!
//! In: what is known of each connection. Out: those to close. Each stage of a connection has a maximum number of its own. So clients that
//! never finish a request do not displace those whose request is complete, and nobody displaces a request that a handler has kept. Within a
//! stage, the sources with most connections lose first. A proxy is one source for all its clients: up to a share of the stage, sources are
//! equal, and the oldest connection is closed.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use crate::hooks::Source;

/// A source with more than this part of the connections of a stage loses them first.
const SHARES: usize = 8;

/// How far the request of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Its head has not arrived.
    Silent,
    /// Its body has not arrived.
    Reading,
    /// It is complete.
    Answering,
    /// A handler has accepted its credentials.
    Kept,
}

/// Maximum numbers of connections that are not [protected](Seen::is_protected).
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    /// Without a complete request.
    pub reading: usize,
    /// With a complete request that is not kept.
    pub answering: usize,
    /// With a request that is kept. The oldest ones are; all others count as not kept.
    pub kept: usize,
}

impl Most {
    /// Returns the number of connections up to which none can be too many.
    pub const fn least(self) -> usize {
        if self.reading < self.answering { self.reading } else { self.answering }
    }
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// How far its request is.
    pub stage: Stage,
    /// The other side.
    pub source: Source,
    /// Whether it is so new that it is not closed for others.
    pub is_protected: bool,
}

/// The result of [`excess`].
#[derive(Debug)]
pub(super) struct Excess {
    /// For each connection, whether to close it.
    pub closes: Vec<bool>,
    /// Whether more have to be closed when they are not protected any more.
    pub is_over: bool,
}

/// The connections of a source in a stage.
#[derive(Default)]
struct Held {
    count: usize,
    /// Indexes of those that can be closed, oldest first.
    closable: VecDeque<usize>,
}

/// Decides which connections to close. `all`: oldest first.
pub(super) fn excess(all: &[Seen], most: Most) -> Excess {
    let (mut reading, mut answering, mut kept) = (Vec::new(), Vec::new(), 0);
    for (at, seen) in all.iter().enumerate() {
        match seen.stage {
            Stage::Silent | Stage::Reading => reading.push((at, seen)),
            Stage::Kept if kept < most.kept => kept += 1,
            Stage::Answering | Stage::Kept => answering.push((at, seen)),
        }
    }
    let mut excess = Excess { closes: vec![false; all.len()], is_over: false };
    for (stage, most) in [(reading, most.reading), (answering, most.answering)] {
        if stage.len() > most {
            excess.close(&stage, most);
        }
    }
    excess
}

impl Excess {
    /// Closes connections of a stage until at most `most` can be closed.
    fn close(&mut self, stage: &[(usize, &Seen)], most: usize) {
        let mut sources: HashMap<Source, Held> = HashMap::new();
        for (at, seen) in stage {
            let held = sources.entry(seen.source).or_default();
            held.count += 1;
            if !seen.is_protected {
                held.closable.push_back(*at);
            }
        }
        let closable: usize = sources.values().map(|held| held.closable.len()).sum();
        let share = most / SHARES;
        for _ in most..closable {
            let held = sources.values_mut().filter(|held| !held.closable.is_empty());
            let largest =
                held.max_by_key(|held| (held.count.saturating_sub(share), Reverse(held.closable.front().copied())));
            let Some(held) = largest else { return };
            held.count -= 1;
            if let Some(closed) = held.closable.pop_front().and_then(|at| self.closes.get_mut(at)) {
                *closed = true;
            }
        }
        self.is_over |= stage.len() - closable + closable.min(most) > most;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOST: Most = Most { reading: 16, answering: 8, kept: 4 };

    /// A number of connections in a stage from this source. Those that are new are protected.
    fn some(count: usize, stage: Stage, source: u32, is_protected: bool) -> Vec<Seen> {
        vec![Seen { stage, source: Source::v4(source), is_protected }; count]
    }

    /// Returns the indexes of the connections to close.
    fn closed(all: &[Seen]) -> Vec<usize> {
        let closes = excess(all, MOST).closes;
        (0..all.len()).filter(|at| closes[*at]).collect()
    }

    #[test]
    fn a_client_displaces_only_others_in_its_stage_and_the_largest_source_first() {
        use Stage::{Answering, Kept, Reading, Silent};
        let old = |count, stage, source| some(count, stage, source, false);
        let new = |count, stage, source| some(count, stage, source, true);
        for (what, all, expected) in [
            ("there is room", vec![old(16, Reading, 1), old(8, Answering, 1), old(4, Kept, 1)], vec![]),
            ("the oldest one", vec![old(17, Reading, 1)], vec![0]),
            ("heads and bodies are one stage", vec![old(8, Reading, 1), old(10, Silent, 1)], vec![0, 1]),
            ("never new ones", vec![new(50, Silent, 1)], vec![]),
            ("new ones do not count", vec![old(16, Reading, 1), new(50, Reading, 1)], vec![]),
            ("not those with a complete request", vec![old(8, Answering, 1), old(18, Reading, 1)], vec![8, 9]),
            ("not those without", vec![old(16, Silent, 1), old(9, Answering, 1)], vec![16]),
            ("kept ones", vec![old(4, Kept, 1), old(9, Answering, 1)], vec![4]),
            ("too many kept ones count as others", vec![old(4, Kept, 1), old(8, Answering, 2), old(1, Kept, 1)], vec![4]),
            ("the largest source", vec![old(2, Reading, 1), old(15, Reading, 2)], vec![2]),
            ("with its new ones", vec![old(9, Reading, 1), old(8, Reading, 2), new(9, Reading, 2)], vec![9]),
            // A proxy with two clients, and sixteen others with one each.
            (
                "up to its share, the oldest of all",
                [vec![old(1, Reading, 9)], (10..25).map(|n| old(1, Reading, n)).collect(), vec![old(1, Reading, 9)]]
                    .concat(),
                vec![0],
            ),
            (
                "beyond it, its own oldest",
                [(10..26).map(|n| old(1, Reading, n)).collect(), vec![old(3, Reading, 9)]].concat(),
                vec![0, 1, 16],
            ),
        ] {
            assert_eq!(closed(&all.concat()), expected, "{what}");
        }
    }

    #[test]
    fn the_server_is_over_its_limit_while_new_connections_exceed_it() {
        let (old, new) = (some(16, Stage::Reading, 1, false), some(1, Stage::Reading, 2, true));
        assert!(!excess(&old, MOST).is_over);
        assert!(excess(&[old.clone(), new.clone()].concat(), MOST).is_over);
        assert!(excess(&some(17, Stage::Silent, 1, true), MOST).is_over);
        assert!(!excess(&[old.clone(), old].concat(), MOST).is_over, "all that is too much is closed");
        assert!(!excess(&[some(4, Stage::Kept, 1, true), new].concat(), MOST).is_over);
    }

    fn any_seen() -> impl Strategy<Value = Seen> {
        let stage = prop::sample::select(vec![Stage::Silent, Stage::Reading, Stage::Answering, Stage::Kept]);
        // One source has half of all connections.
        let source = prop_oneof![Just(0), 1..40_u32];
        (stage, source, any::<bool>()).prop_map(|(stage, source, is_protected)| Seen {
            stage,
            source: Source::v4(source),
            is_protected,
        })
    }

    proptest! {
        #[test]
        fn stages_are_bounded_and_no_connection_is_closed_without_need(all in prop::collection::vec(any_seen(), 0..120)) {
            let excess = excess(&all, MOST);
            let mut kept = 0;
            let stages: Vec<_> = all.iter().map(|seen| match seen.stage {
                Stage::Silent | Stage::Reading => 0,
                Stage::Kept if kept < MOST.kept => { kept += 1; 2 }
                Stage::Answering | Stage::Kept => 1,
            }).collect();
            let is_closed = |at: &usize| excess.closes[*at];
            for (stage, most) in [(0, MOST.reading), (1, MOST.answering)] {
                let of: Vec<_> = (0..all.len()).filter(|at| stages[*at] == stage).collect();
                let old = of.iter().filter(|at| !all[**at].is_protected).count();
                prop_assert_eq!(of.iter().filter(|at| is_closed(at)).count(), old.saturating_sub(most));
                let left = |source| of.iter().filter(|at| all[**at].source == source && !is_closed(at)).count();
                for lost in of.iter().filter(|at| is_closed(at)) {
                    for at in of.iter().filter(|at| !is_closed(at) && !all[**at].is_protected) {
                        // A source that loses had as many as each that keeps one, or both have no more than their share.
                        let (loses, keeps) = (left(all[*lost].source) + 1, left(all[*at].source));
                        prop_assert!(loses >= keeps || keeps <= most / SHARES, "{} {}", lost, at);
                        // Of one source, the oldest one is closed.
                        prop_assert!(all[*lost].source != all[*at].source || lost < at);
                    }
                }
            }
            prop_assert!((0..all.len()).filter(is_closed).all(|at| !all[at].is_protected && stages[at] < 2));
        }
    }
}
