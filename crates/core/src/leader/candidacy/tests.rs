use super::super::bucket::Bucket;
use super::*;

pub(super) const fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

pub(super) fn wall(s: i64) -> Time {
    Time::from_second(s).unwrap()
}

fn whole(version: u64, holder: &str, epoch: i32) -> Seen {
    Seen { version: version.to_string(), epoch, content: Content::Whole { holder: holder.to_owned(), lasts: LASTS } }
}

pub(super) fn stored(version: u64, write: &Write) -> Seen {
    let content = if write.table.members.is_empty() {
        Content::Whole { holder: String::new(), lasts: secs(1) }
    } else {
        Content::Divided(write.table.clone())
    };
    Seen { version: version.to_string(), epoch: write.epoch, content }
}

fn write(c: &mut Candidacy, now: Duration) -> Write {
    let step = c.next(now, wall(i64::try_from(now.as_secs()).unwrap()), Buckets::ALL);
    let Step::Write(write) = step else { panic!("{step:?} is no write") };
    write
}

/// Lets a replica make its next write, which must be due, and handles its result.
fn writes(c: &mut Candidacy, version: u64, now: Duration) -> Seen {
    let write = write(c, now);
    let seen = stored(version, &write);
    c.on_write_result(&write, now, now, Wrote::Done(seen.clone()));
    seen
}

/// Returns the write with which a replica leaves.
fn leaves(c: &mut Candidacy) -> Write {
    let step = c.resign(secs(118));
    let Some(Step::Write(write)) = step else { panic!("{step:?} is no write") };
    write
}

pub(super) fn count(c: &Candidacy) -> usize {
    c.held().map_or(0, |held| held.buckets.count())
}

fn new(identity: &str) -> Candidacy {
    Candidacy::new(identity, wall(1), LASTS)
}

/// Acquires a Lease without a holder.
fn holder(identity: &str) -> (Candidacy, Seen) {
    let mut c = new(identity);
    c.on_read(None, secs(100));
    let seen = writes(&mut c, 1, secs(100));
    (c, seen)
}

/// Two members with 8 buckets each, at 102 s.
fn two() -> (Candidacy, Candidacy, Seen) {
    let (mut a, seen) = holder("a");
    let mut b = new("b");
    b.on_read(Some(seen), secs(101));
    let seen = writes(&mut b, 2, secs(101));
    a.on_watch_event(Some(seen), secs(101));
    let seen = writes(&mut a, 3, secs(101));
    b.on_watch_event(Some(seen), secs(102));
    let seen = writes(&mut b, 4, secs(102));
    a.on_watch_event(Some(seen.clone()), secs(102));
    (a, b, seen)
}

#[test]
fn free_buckets_are_acquired_and_renewed() {
    let mut c = new("a");
    assert_eq!(c.next(secs(1), wall(1), Buckets::ALL), Step::Read);
    c.on_read_failed(secs(1));
    assert_eq!(c.next(secs(1), wall(1), Buckets::ALL), Step::Wait(secs(3)));
    assert!(!c.decided());
    let (mut c, _) = holder("a");
    let held = c.held().unwrap();
    assert_eq!((held.until, held.epoch, held.buckets), (secs(190), 1, Buckets::ALL), "counted from before it was sent");
    assert_eq!(c.next(secs(101), wall(8), Buckets::ALL), Step::Wait(secs(110)));
    let renewal = write(&mut c, secs(110));
    assert_eq!((renewal.over.as_deref(), renewal.epoch), (Some("1"), 1));
    c.on_write_result(&renewal, secs(110), secs(115), Wrote::Unknown);
    assert_eq!(c.next(secs(117), wall(25), Buckets::ALL), Step::Read, "it may have been done");
    c.on_read(Some(stored(2, &renewal)), secs(117));
    assert_eq!(c.held().unwrap().until, secs(190), "a renewal that was not answered prolongs nothing");
    let again = write(&mut c, secs(117));
    assert_eq!(again.over.as_deref(), Some("2"));
    let last = leaves(&mut c);
    assert_eq!((last.over.as_deref(), last.epoch, last.table.clone()), (Some("2"), 1, Table::empty()));
    assert!(c.held().is_none(), "whatever the result is");
    // Another replica has written the Lease meanwhile.
    c.on_write_result(&last, secs(118), secs(118), Wrote::Conflict);
    assert_eq!(c.resign(secs(118)), Some(Step::Read));
    let mut other = again.clone();
    other.table.members.insert("b".into(), Member { started: wall(2), renewed: wall(2), epoch: 0, lasts: None });
    c.on_read(Some(stored(3, &other)), secs(118));
    let last = leaves(&mut c);
    assert_eq!((last.over.as_deref(), last.table.of(None)), (Some("3"), Buckets::ALL));
    c.on_write_result(&last, secs(118), secs(118), Wrote::Done(stored(4, &last)));
    assert_eq!(c.resign(secs(118)), None);
}

#[test]
fn a_new_replica_gets_its_buckets_when_the_work_in_them_has_ended() {
    let (mut a, seen) = holder("a");
    let mut b = new("b");
    b.on_read(Some(seen), secs(101));
    let joined = writes(&mut b, 2, secs(101));
    assert_eq!(count(&b), 0, "nothing is free");
    assert!(b.decided());
    a.on_watch_event(Some(joined), secs(101));
    let (busy, idle): (Buckets, Buckets) = Bucket::all().partition_in_tests(|bucket| bucket.number() == 15);
    let Step::Write(write) = a.next(secs(101), wall(9), idle) else { panic!("a write") };
    assert_eq!(a.held().unwrap().giving.count(), 8, "no work is started in them, before anything is written");
    assert_eq!((write.table.of(None).count(), write.giving), (7, busy));
    let freed = stored(3, &write);
    a.on_write_result(&write, secs(101), secs(101), Wrote::Done(freed.clone()));
    assert_eq!((count(&a), a.held().unwrap().giving, a.held().unwrap().epoch), (9, busy, 1));
    assert_eq!(a.next(secs(102), wall(9), idle), Step::Wait(secs(111)));
    b.on_watch_event(Some(freed), secs(102));
    let taken = writes(&mut b, 4, secs(102));
    assert_eq!((count(&b), b.held().unwrap().epoch), (7, 2));
    a.on_watch_event(Some(taken), secs(103));
    let freed = writes(&mut a, 5, secs(103));
    b.on_watch_event(Some(freed), secs(103));
    writes(&mut b, 6, secs(103));
    assert_eq!((count(&a), count(&b), b.held().unwrap().epoch), (8, 8, 3));
}

#[test]
fn buckets_are_acquired_again_if_the_new_replica_leaves_before_it_gets_them() {
    let (mut a, seen) = holder("a");
    let mut b = new("b");
    b.on_read(Some(seen), secs(101));
    let joined = writes(&mut b, 2, secs(101));
    a.on_watch_event(Some(joined), secs(101));
    assert!(matches!(a.next(secs(101), wall(9), Buckets::NONE), Step::Wait(_)));
    assert_eq!(a.held().unwrap().giving.count(), 8);
    let left = stored(3, &leaves(&mut b));
    a.on_watch_event(Some(left), secs(102));
    let Step::Write(write) = a.next(secs(102), wall(9), Buckets::NONE) else { panic!("a write") };
    assert_eq!(a.held().unwrap().giving.count(), 8, "not before it is written");
    a.on_write_result(&write, secs(102), secs(102), Wrote::Done(stored(4, &write)));
    let held = a.held().unwrap();
    assert_eq!((held.giving, held.epoch, held.buckets), (Buckets::NONE, 2, Buckets::ALL));
}

#[test]
fn a_busy_bucket_is_kept_and_another_one_is_given_away() {
    let (mut a, seen) = holder("a");
    let mut b = new("b");
    b.on_read(Some(seen), secs(101));
    let joined = writes(&mut b, 2, secs(101));
    a.on_watch_event(Some(joined), secs(101));
    let (stuck, idle): (Buckets, Buckets) = Bucket::all().partition_in_tests(|bucket| bucket.number() == 15);
    let (mut version, mut now) = (2, 101);
    while now < 200 {
        match a.next(secs(now), wall(0), idle) {
            Step::Write(write) => {
                version += 1;
                a.on_write_result(&write, secs(now), secs(now), Wrote::Done(stored(version, &write)));
                // The other one renews its membership, too.
                version += 1;
                let mut renewed = write;
                let other = renewed.table.members.get_mut("b").unwrap();
                other.renewed = wall(i64::try_from(now).unwrap());
                a.on_watch_event(Some(stored(version, &renewed)), secs(now));
            }
            _ => now += 1,
        }
        let held = a.held().unwrap();
        assert!(held.buckets.also_in(stuck) == stuck);
        assert!(now == 191 || held.giving.also_in(stuck).is_empty() == (now > 191), "{now}: {held:?}");
    }
    let held = a.held().unwrap();
    assert_eq!((held.buckets.count(), held.giving.count(), held.epoch), (8, 0, 2), "it has been acquired again");
}

#[test]
fn buckets_of_another_replica_are_acquired_only_after_they_have_expired() {
    let (mut a, mut b, seen) = two();
    assert_eq!((count(&a), count(&b)), (8, 8));
    // The other one is killed at 102 s. The own renewals confirm that it was not renewed.
    let (mut now, mut version) = (102, 4);
    let mut last = write(&mut b.clone(), secs(112));
    let Content::Divided(table) = seen.content.clone() else { panic!("a table") };
    last.table = table;
    while now < 200 && count(&a) == 8 {
        match a.next(secs(now), wall(0), Buckets::ALL) {
            Step::Write(write) => {
                version += 1;
                a.on_write_result(&write, secs(now), secs(now), Wrote::Done(stored(version, &write)));
                last = write;
            }
            Step::Read => a.on_read(Some(stored(version, &last)), secs(now)),
            Step::Wait(_) => now += 1,
        }
    }
    assert_eq!((count(&a), now), (16, 192));
    // What was read before an outage does not count.
    b.on_read_failed(secs(180));
    assert_eq!(b.next(secs(500), wall(0), Buckets::ALL), Step::Read);
    b.on_read(Some(seen), secs(500));
    let renewal = write(&mut b, secs(500));
    assert_eq!(renewal.table.members.len(), 2, "after an outage each has time to renew first");
}

#[test]
fn a_holder_without_a_table_keeps_all_buckets_until_its_lease_ends() {
    let mut c = new("b");
    c.on_read(Some(whole(5, "a", 3)), secs(10));
    assert!(c.decided() && c.held().is_none());
    assert_eq!(c.next(secs(10), wall(0), Buckets::ALL), Step::Wait(secs(88)));
    c.on_watch_event(Some(whole(6, "a", 3)), secs(50));
    assert_eq!(c.next(secs(99), wall(0), Buckets::ALL), Step::Wait(secs(128)), "it was renewed");
    assert_eq!(c.next(secs(128), wall(0), Buckets::ALL), Step::Read);
    c.on_read(Some(whole(6, "a", 3)), secs(128));
    assert_eq!(c.next(secs(128), wall(0), Buckets::ALL), Step::Wait(secs(140)));
    let write = write(&mut c, secs(140));
    assert_eq!((write.over.as_deref(), write.epoch, write.table.of(Some("b"))), (Some("6"), 4, Buckets::ALL));
    c.on_write_result(&write, secs(140), secs(141), Wrote::Conflict);
    assert_eq!(c.next(secs(141), wall(9), Buckets::ALL), Step::Read);
    // It is released.
    let mut c = new("b");
    c.on_read(Some(whole(5, "a", 3)), secs(10));
    c.on_watch_event(Some(whole(6, "", 3)), secs(11));
    writes(&mut c, 7, secs(11));
    assert_eq!(count(&c), 16);
    // The other way round, for example after a return to an earlier version.
    c.on_watch_event(Some(whole(8, "a", 9)), secs(12));
    assert!(c.held().is_none());
    assert_eq!(c.next(secs(12), wall(0), Buckets::ALL), Step::Wait(secs(90)));
}

#[test]
fn a_restarted_replica_takes_over_the_buckets_of_its_own_name_at_once() {
    let (_, seen) = holder("a");
    let mut c = Candidacy::new("a", wall(2), LASTS);
    c.on_read(Some(seen.clone()), secs(103));
    assert!(!c.decided());
    writes(&mut c, 2, secs(103));
    assert_eq!((count(&c), c.held().unwrap().epoch), (16, 2));
    // Another process with the same name has started.
    let mut other = Candidacy::new("a", wall(3), LASTS);
    other.on_read(Some(stored(2, &write(&mut c.clone(), secs(113)))), secs(113));
    let replaced = writes(&mut other, 3, secs(113));
    c.on_watch_event(Some(replaced), secs(113));
    assert!(c.held().is_none());
    assert_eq!(c.next(secs(113), wall(4), Buckets::ALL), Step::Wait(secs(191)));
    let mut old = Candidacy::new("a", wall(3), LASTS);
    old.on_read(Some(whole(5, "a", 7)), secs(9));
    writes(&mut old, 6, secs(9));
    assert_eq!((count(&old), old.held().unwrap().epoch), (16, 8), "it did not divide the work");
}

#[test]
fn an_acquisition_with_a_lost_answer_is_recognized_as_the_own_one() {
    let mut c = new("a");
    c.on_read(None, secs(1));
    let acquisition = write(&mut c, secs(1));
    c.on_write_result(&acquisition, secs(1), secs(6), Wrote::Unknown);
    c.on_read(Some(stored(1, &acquisition)), secs(8));
    assert_eq!(c.held().unwrap().until, Duration::ZERO, "it is not known for how long");
    assert_eq!(write(&mut c, secs(8)).epoch, 1);
    // A client that tries again by itself conflicts with itself.
    let mut c = new("a");
    c.on_read(None, secs(1));
    let acquisition = write(&mut c, secs(1));
    c.on_write_result(&acquisition, secs(1), secs(3), Wrote::Conflict);
    c.on_read(Some(stored(1, &acquisition)), secs(3));
    assert!(c.held().is_some());
}

#[test]
fn stale_watch_events_change_nothing() {
    let (mut c, _) = holder("a");
    c.on_watch_event(None, secs(102));
    assert_eq!(c.next(secs(102), wall(0), Buckets::ALL), Step::Read, "that it is gone is looked up");
    assert!(c.held().is_some());
    let (mut c, _) = holder("a");
    c.on_watch_event(Some(whole(0, "z", 9)), secs(102));
    assert!(c.held().is_some());
    c.on_watch_event(Some(whole(2, "z", 9)), secs(103));
    assert!(c.held().is_none());
    let (mut c, _) = holder("a");
    c.on_read(Some(whole(0, "z", 9)), secs(102));
    assert!(c.held().is_none(), "a store that was restored from a backup counts from below, and is believed when read live");
}

#[test]
fn a_deleted_lease_is_recreated_by_its_members() {
    let (mut a, mut b, _) = two();
    let (ours, theirs) = (a.held().unwrap().buckets, b.held().unwrap().buckets);
    a.on_read(None, secs(103));
    assert!(a.held().is_none());
    let recreated = writes(&mut a, 9, secs(103));
    assert_eq!((a.held().unwrap().buckets, a.held().unwrap().epoch), (ours, 3));
    assert_eq!(a.next(secs(104), wall(9), Buckets::ALL), Step::Wait(secs(113)), "the rest is not free");
    b.on_read(Some(recreated), secs(104));
    assert!(b.held().is_none());
    let back = writes(&mut b, 10, secs(104));
    assert_eq!((b.held().unwrap().buckets, b.held().unwrap().epoch), (theirs, 4));
    let Content::Divided(table) = &back.content else { panic!("a table") };
    assert!(!table.members.contains_key(UNKNOWN));
    // One that holds nothing cannot know whether a holder continues.
    let mut c = new("c");
    c.on_read(Some(back), secs(105));
    c.on_watch_event(None, secs(106));
    c.on_read(None, secs(106));
    assert_eq!(c.next(secs(106), wall(9), Buckets::ALL), Step::Wait(secs(196)), "its holder may not know yet");
    assert_eq!(write(&mut c, secs(196)).over, None);
    // A member that is frozen after it has seen the deletion claims nothing.
    let (mut a, _, _) = two();
    a.on_read(None, secs(103));
    assert_eq!(a.next(secs(300), wall(9), Buckets::ALL), Step::Wait(secs(390)));
    assert_eq!(write(&mut a, secs(390)).over, None);
    // A member that was frozen may have been replaced before the deletion.
    let (mut a, _, _) = two();
    a.on_read(None, secs(300));
    assert_eq!(a.next(secs(300), wall(9), Buckets::ALL), Step::Wait(secs(390)));
}

#[test]
fn an_epoch_is_raised_by_the_holder() {
    let (mut c, _) = holder("a");
    c.raise(40);
    assert_eq!(write(&mut c, secs(101)).epoch, 41);
    assert_eq!(c.held().unwrap().epoch, 1, "not before it is written");
    writes(&mut c, 2, secs(101));
    assert_eq!(c.held().unwrap().epoch, 41);
    c.raise(i32::MAX);
    assert_eq!(write(&mut c, secs(101)).epoch, i32::MAX);
}

trait PartitionInTests {
    fn partition_in_tests(self, is_first: impl Fn(&Bucket) -> bool) -> (Buckets, Buckets);
}

impl<I: Iterator<Item = Bucket>> PartitionInTests for I {
    fn partition_in_tests(self, is_first: impl Fn(&Bucket) -> bool) -> (Buckets, Buckets) {
        let (first, second): (Vec<_>, Vec<_>) = self.partition(is_first);
        (first.into_iter().collect(), second.into_iter().collect())
    }
}

#[test]
fn a_shorter_membership_is_declared_after_work_that_relied_on_the_longer_one_has_ended() {
    let (mut c, _) = holder("a");
    assert_eq!(c.held().map(|held| held.until), Some(secs(190)));
    c.set_lasts(secs(45), secs(105));
    assert_eq!(c.held().map(|held| held.until), Some(secs(150)), "it relies on less at once");
    let mut version = 1;
    for (now, lasts, until) in [(110, None, 155), (150, None, 195), (194, None, 239), (204, Some(45), 249)] {
        version += 1;
        let seen = writes(&mut c, version, secs(now));
        let Content::Divided(table) = seen.content else { panic!("it has no table") };
        assert_eq!((table.members["a"].lasts, c.held().map(|held| held.until)), (lasts, Some(secs(until))), "at {now}");
    }
    c.set_lasts(LASTS, secs(205));
    let seen = writes(&mut c, version + 1, secs(205));
    let Content::Divided(table) = seen.content else { panic!("it has no table") };
    assert_eq!(
        (table.members["a"].lasts, c.held().map(|held| held.until)),
        (None, Some(secs(295))),
        "it needs more at once"
    );
}
