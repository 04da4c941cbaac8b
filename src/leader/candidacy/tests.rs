use proptest::prelude::*;

use super::*;

const fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn wall(s: i64) -> Time {
    Time::from_second(s).unwrap()
}

fn seen(version: u64, holder: &str, epoch: i32, acquired: Option<Time>) -> Seen {
    Seen { version: version.to_string(), holder: holder.to_owned(), epoch, acquired, lasts: LASTS }
}

/// Acquires a Lease without a holder.
fn holder(identity: &str) -> Candidacy {
    let mut c = Candidacy::new(identity);
    c.on_read(None, secs(100));
    let Step::Write(write) = c.next(secs(100), wall(7)) else { panic!("a write") };
    assert_eq!(write, Write { over: None, ours: true, epoch: 1, acquired: wall(7) });
    c.on_write_result(&write, secs(100), secs(101), Wrote::Done(seen(1, identity, 1, Some(wall(7)))));
    c
}

#[test]
fn what_is_free_is_taken_and_renewed() {
    let mut c = Candidacy::new("a");
    assert_eq!(c.next(secs(1), wall(1)), Step::Look);
    c.on_read_failed(secs(1));
    assert_eq!(c.next(secs(1), wall(1)), Step::Wait(secs(3)));
    assert!(!c.decided());
    let mut c = holder("a");
    assert_eq!(c.held().unwrap().until, secs(190), "counted from before it was sent");
    assert_eq!(c.next(secs(101), wall(8)), Step::Wait(secs(110)));
    let Step::Write(write) = c.next(secs(110), wall(18)) else { panic!("a write") };
    assert_eq!((write.over.as_deref(), write.epoch, write.acquired), (Some("1"), 1, wall(7)));
    c.on_write_result(&write, secs(110), secs(115), Wrote::Unknown);
    assert_eq!(c.next(secs(117), wall(25)), Step::Look, "it may have been done");
    c.on_read(Some(seen(2, "a", 1, Some(wall(7)))), secs(117));
    assert_eq!(c.held().unwrap().until, secs(190), "a renewal that was not answered prolongs nothing");
    let Step::Write(write) = c.next(secs(117), wall(25)) else { panic!("a write") };
    assert_eq!(write.over.as_deref(), Some("2"));
    assert_eq!(c.resign().unwrap(), Write { over: Some("2".into()), ours: false, epoch: 1, acquired: wall(7) });
}

#[test]
fn anothers_is_left_alone_until_it_is_surely_expired() {
    let mut c = Candidacy::new("b");
    c.on_read(Some(seen(5, "a", 3, Some(wall(1)))), secs(10));
    assert!(c.decided() && c.held().is_none());
    assert_eq!(c.next(secs(10), wall(0)), Step::Wait(secs(88)));
    c.on_watch_event(Some(seen(6, "a", 3, Some(wall(1)))), secs(50));
    assert_eq!(c.next(secs(99), wall(0)), Step::Wait(secs(128)), "it was renewed");
    assert_eq!(c.next(secs(128), wall(0)), Step::Look);
    c.on_read(Some(seen(6, "a", 3, Some(wall(1)))), secs(128));
    assert_eq!(c.next(secs(128), wall(0)), Step::Wait(secs(140)));
    let Step::Write(write) = c.next(secs(140), wall(9)) else { panic!("a write") };
    assert_eq!(write, Write { over: Some("6".into()), ours: true, epoch: 4, acquired: wall(9) });
    c.on_write_result(&write, secs(140), secs(141), Wrote::Conflict);
    assert_eq!(c.next(secs(141), wall(9)), Step::Look);
}

#[test]
fn after_an_outage_the_holder_has_the_first_word() {
    let mut c = Candidacy::new("b");
    c.on_read(Some(seen(5, "a", 3, Some(wall(1)))), secs(10));
    c.on_read_failed(secs(90));
    assert_eq!(c.next(secs(500), wall(0)), Step::Look);
    c.on_read(Some(seen(5, "a", 3, Some(wall(1)))), secs(500));
    assert_eq!(c.next(secs(500), wall(0)), Step::Wait(secs(512)));
}

#[test]
fn a_lease_that_was_given_up_is_taken_at_once() {
    let mut c = Candidacy::new("b");
    c.on_read(Some(seen(5, "a", 3, Some(wall(1)))), secs(10));
    c.on_watch_event(Some(seen(6, "", 3, Some(wall(1)))), secs(11));
    assert!(matches!(c.next(secs(11), wall(2)), Step::Write(Write { epoch: 4, .. })));
}

#[test]
fn ones_own_name_is_taken_over_at_once_and_only_at_the_beginning() {
    let mut c = Candidacy::new("a");
    c.on_read(Some(seen(5, "a", 3, Some(wall(1)))), secs(10));
    assert!(!c.decided());
    let Step::Write(write) = c.next(secs(10), wall(2)) else { panic!("a write") };
    assert_eq!(write.epoch, 4);
    c.on_write_result(&write, secs(10), secs(11), Wrote::Done(seen(6, "a", 4, Some(wall(2)))));
    // Another process with the same name has started.
    c.on_watch_event(Some(seen(7, "a", 5, Some(wall(3)))), secs(12));
    assert!(c.held().is_none());
    assert_eq!(c.next(secs(12), wall(4)), Step::Wait(secs(90)));
}

#[test]
fn a_lost_acquisition_is_known_by_its_time() {
    let mut c = Candidacy::new("a");
    c.on_read(None, secs(1));
    let Step::Write(write) = c.next(secs(1), wall(1)) else { panic!("a write") };
    c.on_write_result(&write, secs(1), secs(6), Wrote::Unknown);
    c.on_read(Some(seen(1, "a", 1, Some(wall(1)))), secs(8));
    assert_eq!(c.held().unwrap().until, Duration::ZERO, "it is not known for how long");
    assert!(matches!(c.next(secs(8), wall(8)), Step::Write(Write { epoch: 1, acquired, .. }) if acquired == wall(1)));
}

#[test]
fn what_the_watch_says_late_changes_nothing() {
    let mut c = holder("a");
    c.on_watch_event(None, secs(102));
    assert_eq!(c.next(secs(102), wall(0)), Step::Look, "that it is gone is looked up");
    assert!(c.held().is_some());
    let mut c = holder("a");
    c.on_watch_event(Some(seen(0, "z", 9, None)), secs(102));
    assert!(c.held().is_some());
    c.on_watch_event(Some(seen(2, "z", 9, None)), secs(103));
    assert!(c.held().is_none());
}

#[test]
fn a_deleted_lease_is_its_holders_to_make_again() {
    let mut a = holder("a");
    a.on_read(None, secs(103));
    assert!(a.held().is_none());
    assert!(matches!(a.next(secs(103), wall(9)), Step::Write(Write { over: None, epoch: 1, .. })));
    let mut b = Candidacy::new("b");
    b.on_read(Some(seen(1, "a", 1, Some(wall(7)))), secs(101));
    b.on_watch_event(None, secs(103));
    b.on_read(None, secs(104));
    assert_eq!(b.next(secs(104), wall(9)), Step::Wait(secs(194)), "its holder may not know yet");
    assert!(matches!(b.next(secs(194), wall(99)), Step::Write(Write { over: None, .. })));
}

#[test]
fn a_client_that_tries_again_by_itself_conflicts_with_itself() {
    let mut c = Candidacy::new("a");
    c.on_read(None, secs(1));
    let Step::Write(write) = c.next(secs(1), wall(1)) else { panic!("a write") };
    c.on_write_result(&write, secs(1), secs(3), Wrote::Conflict);
    c.on_read(Some(seen(1, "a", 1, Some(wall(1)))), secs(3));
    assert!(c.held().is_some());
}

#[test]
fn versions_that_go_back_are_believed_when_read_live() {
    let mut c = holder("a");
    c.on_read(Some(seen(0, "z", 9, None)), secs(102));
    assert!(c.held().is_none(), "a store that was restored from a backup counts from below");
}

#[test]
fn an_epoch_is_raised_by_the_holder() {
    let mut c = holder("a");
    c.raise(40);
    assert!(matches!(c.next(secs(101), wall(0)), Step::Write(Write { epoch: 41, .. })));
    assert_eq!(c.held().unwrap().epoch, 1, "not before it is written");
    c.raise(i32::MAX);
    assert!(matches!(c.next(secs(101), wall(0)), Step::Write(Write { epoch: i32::MAX, .. })));
}

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
    /// Everything works for one replica for a while. The other replicas are paused.
    Alone(usize, u64),
    /// The watch delivers the current Lease, or an earlier one.
    Tell(usize, bool),
    /// The process is killed and restarted under the same name.
    Restart(usize),
    Resign(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let who = 0..3usize;
    prop_oneof![
        2 => (0u64..15_000).prop_map(Op::Pass),
        1 => (0u64..200_000).prop_map(Op::Pass),
        6 => (who.clone(), 0u64..120).prop_map(|(i, s)| Op::Alone(i, s)),
        6 => who.clone().prop_map(Op::Begin),
        6 => who.clone().prop_map(Op::End),
        2 => who.clone().prop_map(Op::LoseAnswer),
        1 => who.clone().prop_map(Op::LoseRequest),
        1 => who.clone().prop_map(Op::Delay),
        1 => Just(Op::Arrive),
        3 => (who.clone(), any::<bool>()).prop_map(|(i, old)| Op::Tell(i, old)),
        1 => who.clone().prop_map(Op::Restart),
        1 => who.prop_map(Op::Resign),
    ]
}

/// An API server with one Lease, and three replicas.
struct World {
    now: Duration,
    version: u64,
    object: Option<Seen>,
    before: Option<Seen>,
    replicas: Vec<Candidacy>,
    calls: Vec<Option<(Step, Duration)>>,
    late: Vec<(usize, Write)>,
}

impl World {
    fn new() -> Self {
        let replicas = ["a", "b", "c"].map(Candidacy::new).to_vec();
        let calls = vec![None; 3];
        Self { now: secs(1000), version: 0, object: None, before: None, replicas, calls, late: Vec::new() }
    }

    fn wall(&self) -> Time {
        Time::from_microsecond(i64::try_from(self.now.as_micros()).unwrap()).unwrap()
    }

    fn write(&mut self, who: usize, write: &Write) -> Wrote {
        if self.object.as_ref().map(|o| &o.version) != write.over.as_ref() {
            return Wrote::Conflict;
        }
        self.version += 1;
        let name = if write.ours { ["a", "b", "c"][who] } else { "" };
        let new = seen(self.version, name, write.epoch, Some(write.acquired));
        self.before = self.object.replace(new.clone());
        Wrote::Done(new)
    }

    fn end(&mut self, who: usize, carried_out: bool, answered: bool) {
        let Some((step, sent)) = self.calls[who].take() else { return };
        match step {
            Step::Look if answered => self.replicas[who].on_read(self.object.clone(), self.now),
            Step::Look => self.replicas[who].on_read_failed(self.now),
            Step::Write(write) => {
                let done = if carried_out { self.write(who, &write) } else { Wrote::Unknown };
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
                self.calls[i] = Some((self.replicas[i].next(self.now, self.wall()), self.now));
            }
            Op::Begin(_) => {}
            Op::Alone(i, seconds) => {
                for _ in 0..seconds {
                    self.run(&Op::Begin(i));
                    self.run(&Op::End(i));
                    self.now += secs(1);
                }
            }
            Op::End(i) => self.end(i, true, true),
            Op::LoseAnswer(i) => self.end(i, true, false),
            Op::LoseRequest(i) => self.end(i, false, false),
            Op::Delay(i) => {
                if let Some((Step::Write(write), _)) = &self.calls[i] {
                    self.late.push((i, write.clone()));
                }
                self.end(i, false, false);
            }
            Op::Arrive => {
                if let Some((who, write)) = self.late.pop() {
                    self.write(who, &write);
                }
            }
            Op::Tell(i, old) => {
                let what = if old { self.before.clone() } else { self.object.clone() };
                self.replicas[i].on_watch_event(what, self.now);
            }
            Op::Restart(i) => {
                self.calls[i] = None;
                self.replicas[i] = Candidacy::new(["a", "b", "c"][i]);
            }
            Op::Resign(i) => {
                if self.calls[i].is_none() {
                    self.calls[i] = self.replicas[i].resign().map(|write| (Step::Write(write), self.now));
                }
            }
        }
    }

    fn holders(&self) -> usize {
        self.replicas.iter().filter(|c| c.held().is_some_and(|h| h.until > self.now)).count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn two_never_hold_it_at_once_and_at_last_one_does(ops in prop::collection::vec(op(), 0..80)) {
        let mut world = World::new();
        for op in &ops {
            world.run(op);
            prop_assert!(world.holders() <= 1, "after {op:?}");
        }
        // From here on every call is answered.
        let end = world.now + secs(240);
        while world.now < end {
            for who in 0..3 {
                world.run(&Op::Begin(who));
                world.run(&Op::End(who));
                prop_assert!(world.holders() <= 1);
            }
            world.now += secs(1);
        }
        prop_assert_eq!(world.holders(), 1);
    }
}
