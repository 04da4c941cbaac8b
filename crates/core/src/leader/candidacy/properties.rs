//! Three replicas and an API server with one Lease: calls and answers are lost, replicas freeze, restart and leave, and the Lease is deleted.

use proptest::prelude::*;

use super::super::bucket::Bucket;
use super::tests::{count, secs, stored, wall};
use super::*;

/// Events that affect the replicas and their calls.
#[derive(Clone, Debug)]
enum Op {
    Pass(u64),
    Begin(usize),
    /// The call is applied, and its response arrives.
    End(usize),
    /// The call is applied, but its response is lost.
    LoseAnswer(usize),
    /// The call never arrives.
    LoseRequest(usize),
    /// The caller gives up, and the call is applied later.
    Delay(usize),
    Arrive,
    /// Everything works for these replicas for a while. The other replicas are paused.
    Alone(usize, usize, u64),
    /// The watch delivers the current Lease, or an earlier one.
    Tell(usize, bool),
    /// Work begins in all buckets of a replica where it can be started, or all of it ends.
    Work(usize, bool),
    /// The process is killed and restarted under the same name.
    Restart(usize),
    Resign(usize),
    /// A user deletes the Lease.
    Delete,
    /// The work of a replica needs a membership of this many seconds.
    Need(usize, u64),
    /// A replica begins long work, needs less time from then on, renews, and freezes. Another one continues alone.
    Lower(usize, usize),
}

fn op(deletes: bool) -> impl Strategy<Value = Op> {
    let who = 0..3usize;
    let lasts = prop::sample::select(vec![40u64, 45, 60, 90]);
    prop_oneof![
        1 => (who.clone(), who.clone()).prop_map(|(i, j)| Op::Lower(i, j)),
        2 => (who.clone(), lasts).prop_map(|(i, lasts)| Op::Need(i, lasts)),
        2 => (0u64..15_000).prop_map(Op::Pass),
        1 => (0u64..200_000).prop_map(Op::Pass),
        6 => (who.clone(), who.clone(), 0u64..120).prop_map(|(i, j, s)| Op::Alone(i, j, s)),
        6 => who.clone().prop_map(Op::Begin),
        6 => who.clone().prop_map(Op::End),
        2 => who.clone().prop_map(Op::LoseAnswer),
        1 => who.clone().prop_map(Op::LoseRequest),
        1 => who.clone().prop_map(Op::Delay),
        1 => Just(Op::Arrive),
        3 => (who.clone(), any::<bool>()).prop_map(|(i, old)| Op::Tell(i, old)),
        3 => (who.clone(), any::<bool>()).prop_map(|(i, begins)| Op::Work(i, begins)),
        1 => who.clone().prop_map(move |i| if deletes { Op::Delete } else { Op::Restart(i) }),
        1 => who.prop_map(move |i| if deletes { Op::Delete } else { Op::Resign(i) }),
    ]
}

/// An API server with one Lease, and three replicas.
struct World {
    now: Duration,
    version: u64,
    object: Option<Seen>,
    before: Option<Seen>,
    replicas: Vec<Candidacy>,
    /// The buckets in which each replica works.
    busy: Vec<Buckets>,
    /// By replica and bucket: until when work that was begun can last, also after the replica was removed.
    works: Vec<[Duration; 16]>,
    calls: Vec<Option<(Step, Duration)>>,
    late: Vec<Write>,
    /// By bucket: the highest epoch and its holder.
    epochs: Vec<(i32, usize)>,
    /// Buckets that a replica wanted to hand over while it worked in them.
    wrong: Buckets,
    /// Whether the Lease was deleted. Then a new holder may not know the epoch of an earlier one, and has to read it in a log.
    is_deleted: bool,
}

impl World {
    fn new() -> Self {
        let new = |who| Candidacy::new(["a", "b", "c"][who], wall(i64::try_from(who).unwrap()), secs([40, 45, 90][who]));
        let replicas = (0..3).map(new).collect();
        Self {
            now: secs(1000),
            version: 0,
            object: None,
            before: None,
            replicas,
            busy: vec![Buckets::NONE; 3],
            works: vec![[Duration::ZERO; 16]; 3],
            calls: vec![None; 3],
            late: Vec::new(),
            epochs: vec![(0, 0); 16],
            wrong: Buckets::NONE,
            is_deleted: false,
        }
    }

    fn wall(&self) -> Time {
        Time::from_microsecond(i64::try_from(self.now.as_micros()).unwrap()).unwrap()
    }

    fn write(&mut self, write: &Write) -> Wrote {
        if self.object.as_ref().map(|o| &o.version) != write.over.as_ref() {
            return Wrote::Conflict;
        }
        self.version += 1;
        let new = stored(self.version, write);
        self.before = self.object.replace(new.clone());
        Wrote::Done(new)
    }

    fn end(&mut self, who: usize, carried_out: bool, answered: bool) {
        let Some((step, sent)) = self.calls[who].take() else { return };
        match step {
            Step::Read if answered => self.replicas[who].on_read(self.object.clone(), self.now),
            Step::Read => self.replicas[who].on_read_failed(self.now),
            Step::Write(write) => {
                let done = if carried_out { self.write(&write) } else { Wrote::Unknown };
                let known = if answered { done } else { Wrote::Unknown };
                self.replicas[who].on_write_result(&write, sent, self.now, known);
            }
            Step::Wait(_) => {}
        }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Pass(millis) => self.now += Duration::from_millis(millis),
            Op::Begin(i) if self.calls[i].is_none() => {
                let (now, wall, idle) = (self.now, self.wall(), Buckets::ALL.without(self.busy[i]));
                let step = self.replicas[i].next(now, wall, idle);
                if let (Step::Write(write), Some(held)) = (&step, self.replicas[i].held()) {
                    let given = held.buckets.without(write.table.of(Some(["a", "b", "c"][i])));
                    self.wrong = self.wrong.and(given.also_in(self.busy[i]));
                }
                self.calls[i] = Some((step, now));
            }
            Op::Alone(i, j, seconds) => {
                for _ in 0..seconds {
                    for who in [i, j] {
                        self.run(&Op::Begin(who));
                        self.run(&Op::End(who));
                    }
                    self.now += secs(1);
                }
            }
            Op::End(i) => self.end(i, true, true),
            Op::LoseAnswer(i) => self.end(i, true, false),
            Op::LoseRequest(i) => self.end(i, false, false),
            Op::Delay(i) => {
                if let Some((Step::Write(write), _)) = &self.calls[i] {
                    self.late.push(write.clone());
                }
                self.end(i, false, false);
            }
            Op::Arrive => {
                if let Some(write) = self.late.pop() {
                    self.write(&write);
                }
            }
            Op::Tell(i, old) => {
                let what = if old { self.before.clone() } else { self.object.clone() };
                self.replicas[i].on_watch_event(what, self.now);
            }
            // The keeper does not start a step between the check and the count, so work is begun between calls only.
            Op::Work(i, true) if self.calls[i].is_none() => {
                let held = self.replicas[i].held().filter(|held| held.until > self.now);
                let Some(held) = held else { return };
                self.busy[i] = self.busy[i].and(held.buckets.without(held.giving));
                for bucket in self.busy[i].also_in(held.buckets).iter() {
                    self.works[i][bucket.index()] = held.until.max(self.works[i][bucket.index()]);
                }
            }
            Op::Lower(i, j) => {
                for op in [
                    Op::Need(i, 90),
                    Op::Alone(i, i, 12),
                    Op::Work(i, true),
                    Op::Need(i, 40),
                    Op::Alone(i, i, 12),
                    Op::Alone(j, j, 60),
                ] {
                    self.run(&op);
                }
            }
            Op::Need(i, lasts) => self.replicas[i].set_lasts(secs(lasts), self.now),
            Op::Begin(_) | Op::Work(_, true) => {}
            Op::Work(i, false) => (self.busy[i], self.works[i]) = (Buckets::NONE, [Duration::ZERO; 16]),
            Op::Restart(i) => {
                (self.calls[i], self.busy[i], self.works[i]) = (None, Buckets::NONE, [Duration::ZERO; 16]);
                self.replicas[i] = Candidacy::new(["a", "b", "c"][i], self.wall(), secs([90, 40, 45][i]));
            }
            Op::Resign(i) => {
                if self.calls[i].is_none() {
                    if let Some(Step::Write(write)) = self.replicas[i].resign(self.now) {
                        self.write(&write);
                    }
                    self.run(&Op::Restart(i));
                }
            }
            // A replica that does not know the Lease between two deletions is like a process that starts while there is none.
            Op::Delete if self.is_deleted => {}
            Op::Delete => (self.before, self.is_deleted) = (self.object.take(), true),
        }
    }

    /// Returns the replicas that certainly hold a bucket, and can work in it. A replica that has freed a bucket, and whose answer was lost, still
    /// counts it as one that it gives away. It starts no work there.
    fn holders(&self, bucket: Bucket) -> Vec<usize> {
        let works = |held: Held, who: usize| !held.giving.contains(bucket) || self.busy[who].contains(bucket);
        let holds = |who: usize| {
            let held = self.replicas[who].held();
            held.is_some_and(|held| held.until > self.now && held.buckets.contains(bucket) && works(held, who))
        };
        (0..3).filter(|who| holds(*who)).collect()
    }

    /// Checks that each bucket has at most one holder, whose epoch is above that of earlier holders, and that no bucket was handed over
    /// while its holder worked in it.
    fn check(&mut self) -> Result<(), String> {
        if !self.wrong.is_empty() {
            return Err(format!("buckets {:?} were given away during work", self.wrong));
        }
        for who in 0..3 {
            let held = self.replicas[who].held().map_or(Buckets::NONE, |held| held.buckets);
            self.busy[who] = self.busy[who].also_in(held);
        }
        for bucket in Bucket::all() {
            let holders = self.holders(bucket);
            if holders.len() > 1 {
                return Err(format!("bucket {} has the holders {holders:?}", bucket.number()));
            }
            let Some(who) = holders.first().copied() else { continue };
            let works = |other: &usize| *other != who && self.now < self.works[*other][bucket.index()];
            if let Some(other) = (0..3).find(works) {
                return Err(format!("bucket {} is held by {who}, while {other} works in it", bucket.number()));
            }
            let epoch = self.replicas[who].held().map_or(0, |held| held.epoch);
            let (highest, of) = self.epochs[bucket.index()];
            if !self.is_deleted && (epoch < highest || (epoch == highest && who != of)) {
                return Err(format!("bucket {} has epoch {epoch} after {highest}", bucket.number()));
            }
            self.epochs[bucket.index()] = (epoch, who);
        }
        Ok(())
    }

    /// Lets every call be answered from here on, and checks that the buckets are divided evenly at last.
    fn settle(&mut self, seconds: u64) -> Result<(), String> {
        self.busy = vec![Buckets::NONE; 3];
        self.works = vec![[Duration::ZERO; 16]; 3];
        let end = self.now + secs(seconds);
        while self.now < end {
            for who in 0..3 {
                self.run(&Op::Begin(who));
                self.run(&Op::End(who));
                self.check()?;
            }
            self.now += secs(1);
        }
        let mut counts: Vec<_> = self.replicas.iter().map(count).collect();
        counts.sort_unstable();
        let held = Bucket::all().all(|bucket| self.holders(bucket).len() == 1);
        if held && counts == [5, 5, 6] { Ok(()) } else { Err(format!("{counts:?}")) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn a_bucket_has_one_holder_at_most_and_in_the_end_one(ops in prop::collection::vec(op(false), 0..80)) {
        let mut world = World::new();
        for op in &ops {
            world.run(op);
            prop_assert_eq!(world.check(), Ok(()), "after {:?}", op);
        }
        prop_assert_eq!(world.settle(900), Ok(()));
    }

    #[test]
    fn a_lease_that_is_deleted_has_one_holder_for_each_bucket_at_most(ops in prop::collection::vec(op(true), 0..80)) {
        let mut world = World::new();
        prop_assert_eq!(world.settle(30), Ok(()));
        for op in &ops {
            world.run(op);
            prop_assert_eq!(world.check(), Ok(()), "after {:?}", op);
        }
        prop_assert_eq!(world.settle(900), Ok(()));
    }
}
