//! Limits the size of a status. First messages are cut, then addresses that only links need and recorded values are left out, then changes are
//! merged. Changes are dropped only if that is not enough, and the status records it.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::io;

use serde::Serialize;

use relaybook_text::cut;

use relaybook_api::{Change, ChangeLog, PipelineStatus};

use super::log::{kept, merge_two};

/// A status with more bytes than this is reduced. The cost for the API server is proportional to the size of a status, and etcd
/// refuses an object of 1.5 MiB.
pub const MAX_STATUS: usize = 512 * 1024;
/// The log can always have this many bytes, however large the rest of the status is. Otherwise a pipeline with many targets and
/// long names could never report anything.
pub const LEAST_LOG: usize = 64 * 1024;
/// Maximum length of a message, in bytes.
pub const MAX_MESSAGE: usize = 1024;

/// The lengths to which messages are cut, step by step, while the status is too large. The last one is still long enough to
/// distinguish failures.
const STEPS: [usize; 5] = [MAX_MESSAGE, 512, 256, 128, 64];
/// The sizes to which recorded values are reduced, step by step, while the status is still too large.
const RECORDED: [usize; 3] = [512, 256, 0];
/// Maximum size of `status.dropped`, in bytes.
const MARK: usize = 80;
/// Whether `shown` is `full`, or one of the shortened forms of `full` that [`fit`] produces.
#[must_use]
pub fn is_cut_of(shown: &str, full: &str) -> bool {
    shown == full || STEPS.iter().any(|max| cut(full, *max) == shown)
}

/// Reduces a status to at most `limit` bytes of JSON. It cuts all messages shorter and shorter. Then it leaves out the repositories of the
/// revisions before, without which messages have no comparison, and recorded values. Then it merges two changes of a subject at a time,
/// oldest first. If that is not enough, it drops changes. First it drops those of subjects that the pipeline no longer has (`is_gone`),
/// then others, then those whose timers run, last those of promotions. A request that is lost would not be carried out. Within a group, it
/// drops the oldest first. `status.dropped` counts them.
///
/// Returns the size. It is above `limit` only if the rest of the status leaves less than [`LEAST_LOG`] for the log. Then the log has
/// at most [`LEAST_LOG`].
pub fn fit(status: &mut PipelineStatus, limit: usize, is_gone: impl Fn(&str) -> bool) -> usize {
    let mut bytes = size(status);
    for max in STEPS {
        if bytes <= limit {
            return bytes;
        }
        cut_messages(status, max);
        bytes = size(status);
    }
    if bytes > limit {
        status.log.iter_mut().flat_map(|log| log.changes.iter_mut()).for_each(|change| change.from.repository.clear());
        bytes = size(status);
    }
    for max in RECORDED {
        if bytes <= limit {
            return bytes;
        }
        let changes = status.log.iter_mut().flat_map(|log| log.changes.iter_mut());
        changes.filter_map(|change| change.to.recorded.as_deref_mut()).for_each(|recorded| recorded.shorten(max));
        bytes = size(status);
    }
    let Some(log) = status.log.as_mut() else { return bytes };
    let kept = kept(log, status.dispatched.as_ref());
    let mut waiting: HashMap<String, usize> = HashMap::new();
    for change in log.changes.iter().filter(|c| !kept.contains(&c.serial)) {
        *waiting.entry(change.subject.clone()).or_default() += 1;
    }
    while bytes > limit {
        let Some(saved) = merge_one(log, &mut waiting, &kept) else { break };
        bytes = bytes.saturating_sub(saved);
    }
    while bytes > limit {
        let excess = size(&status.log).saturating_sub(LEAST_LOG).min(bytes - limit);
        // `status.dropped` itself needs space, and its numbers can grow.
        if excess == 0 || !drop_changes(status, excess + MARK, &kept, &is_gone) {
            break;
        }
        bytes = size(status);
    }
    bytes
}

/// Drops changes until `excess` bytes are saved, and counts them in `status.dropped`. Returns whether there were any.
fn drop_changes(status: &mut PipelineStatus, excess: usize, kept: &BTreeSet<i64>, is_gone: impl Fn(&str) -> bool) -> bool {
    let Some(log) = status.log.as_mut() else { return false };
    let worth = |change: &Change| {
        let promotes = change.to.promotion.is_some();
        (promotes, kept.contains(&change.serial), !is_gone(&change.subject))
    };
    let mut order: Vec<&Change> = log.changes.iter().collect();
    order.sort_by_key(|change| worth(change));
    let mut saved = 0;
    let mut goes = BTreeSet::new();
    for change in order {
        if saved >= excess {
            break;
        }
        saved += size(change) + 1;
        goes.insert(change.serial);
    }
    let Some(highest) = goes.last().copied() else { return false };
    log.changes.retain(|change| !goes.contains(&change.serial));
    let dropped = status.dropped.get_or_insert_default();
    dropped.serial = dropped.serial.max(highest);
    dropped.count = dropped.count.saturating_add(i64::try_from(goes.len()).unwrap_or(i64::MAX));
    true
}

/// Merges two changes of one subject: of the subjects with several changes, the one with the oldest change. Returns how many bytes
/// this saved, or `None` if no subject has several changes. A subject whose changes cannot be merged then counts as one with one change.
fn merge_one(log: &mut ChangeLog, waiting: &mut HashMap<String, usize>, kept: &BTreeSet<i64>) -> Option<usize> {
    let subject = log.changes.iter().map(|c| &c.subject).find(|s| waiting.get(*s).is_some_and(|n| *n > 1))?.clone();
    let bytes =
        |log: &ChangeLog| -> usize { log.changes.iter().filter(|c| c.subject == subject).map(|c| size(c) + 1).sum() };
    let before = bytes(log);
    let merged = merge_two(log, &subject, kept);
    let left = waiting.entry(subject.clone()).or_default();
    *left = if merged { left.saturating_sub(1) } else { 1 };
    Some(before.saturating_sub(bytes(log)))
}

/// Cuts every message of the status, in the targets and in the log.
fn cut_messages(status: &mut PipelineStatus, max: usize) {
    let targets = status.environments.iter_mut().flat_map(|e| e.targets.iter_mut()).map(|t| &mut t.message);
    let changes = status.log.iter_mut().flat_map(|l| l.changes.iter_mut()).map(|c| &mut c.to.message);
    for message in targets.chain(changes) {
        if let Cow::Owned(shorter) = cut(message, max) {
            *message = shorter;
        }
    }
}

/// Size as JSON, in bytes.
fn size(value: &impl Serialize) -> usize {
    let mut count = Count(0);
    // Neither a writer that only counts nor our own types can fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Counts what is written to it.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::changelog::{append, compact, open};
    use relaybook_api::pipeline::{Cursor, Dropped, EnvironmentStatus, Recorded, RunningTimer, TargetStatus};
    use relaybook_api::promotion::{Phase, PromotionState};
    use relaybook_api::values::refs::ClusterAppRef;
    use relaybook_api::{LogSubject, State, Status, Time, TransitionType};

    /// A status with `targets` targets that have each failed `times` times with messages of 1 KiB, and a log without readers.
    fn failing(targets: usize, times: usize) -> PipelineStatus {
        let time = Time::from_second(1_763_711_200).unwrap();
        let mut log = open(time, None);
        let message = "x\"\n".repeat(342)[..MAX_MESSAGE].to_owned();
        let mut list = Vec::new();
        for i in 0..targets {
            let namespace = format!("tenant-{i:03}-of-a-rather-long-name");
            let state = |status| State {
                status,
                revision: "main@sha1:5428abf8d7c0e4d5b1a1d5a3c8f2a9d0b6e7f1c2".to_owned(),
                current: Some("main@sha1:9010b0f8d7c0e4d5b1a1d5a3c8f2a9d0b6e7f1c2".to_owned()),
                ..State::default()
            };
            let subject = format!("target/production/in-cluster/{namespace}");
            for _ in 0..times {
                let to =
                    State { reason: "ReconciliationFailed".to_owned(), message: message.clone(), ..state(Status::Failed) };
                append(&mut log, LogSubject::parse(&subject), time, state(Status::Current), to);
            }
            list.push(TargetStatus {
                cluster_app_ref: ClusterAppRef { name: "web".to_owned(), namespace, ..ClusterAppRef::default() },
                status: Status::Failed,
                message: message.clone(),
                ..TargetStatus::default()
            });
        }
        let environments =
            vec![EnvironmentStatus { name: "production".to_owned(), targets: list, ..EnvironmentStatus::default() }];
        PipelineStatus { environments, log: Some(log), ..PipelineStatus::default() }
    }

    fn subjects(status: &PipelineStatus) -> std::collections::BTreeSet<&str> {
        status.log.iter().flat_map(|l| &l.changes).map(|c| c.subject.as_str()).collect()
    }

    #[test]
    fn the_computed_size_is_that_of_the_serialized_status() {
        let status = failing(2, 2);
        assert_eq!(size(&status), serde_json::to_vec(&status).unwrap().len());
    }

    #[test]
    fn a_small_status_is_not_changed() {
        let mut status = failing(3, 2);
        let before = status.clone();
        assert_eq!(fit(&mut status, MAX_STATUS, |_| false), size(&before));
        assert_eq!(status, before);
    }

    #[test]
    fn every_failure_of_256_targets_is_kept() {
        let mut status = failing(256, 1);
        assert!(size(&status) > MAX_STATUS);
        let bytes = fit(&mut status, MAX_STATUS, |_| false);
        assert!(bytes <= MAX_STATUS);
        assert_eq!(bytes, serde_json::to_vec(&status).unwrap().len());
        assert_eq!(subjects(&status).len(), 256);
        let log = status.log.as_ref().unwrap();
        assert!(log.changes.iter().all(|c| !c.coalesced && c.to.status == Status::Failed && !c.to.message.is_empty()));
    }

    #[test]
    fn the_repositories_of_the_revisions_before_are_left_out_after_messages_are_cut() {
        let mut status = failing(3, 2);
        for change in status.log.iter_mut().flat_map(|log| &mut log.changes) {
            (change.from.repository, change.to.repository) = ("https://git/a/b".to_owned(), "https://git/a/b".to_owned());
            change.to.recorded = Some(Box::default());
        }
        let mut want = status.clone();
        cut_messages(&mut want, STEPS[4]);
        want.log.iter_mut().flat_map(|log| &mut log.changes).for_each(|change| change.from.repository.clear());
        let limit = size(&want);
        assert_eq!((fit(&mut status, limit, |_| false), status), (limit, want));
    }

    #[test]
    fn recorded_values_are_left_out_before_changes_are_merged() {
        let recorded = || {
            let annotations = ["a", "b", "c"].map(|name| (name.to_owned(), "#".repeat(256))).into();
            let labels = [("team".to_owned(), "red".to_owned())].into();
            Recorded { labels, annotations, ..Recorded::default() }
        };
        let with = |targets| {
            let mut status = failing(targets, 2);
            for change in status.log.iter_mut().flat_map(|log| &mut log.changes) {
                change.to.recorded = Some(Box::new(recorded()));
            }
            status
        };
        let mut small = with(80);
        fit(&mut small, MAX_STATUS, |_| false);
        let of = |status: &PipelineStatus| {
            let log = status.log.clone().unwrap();
            log.changes.into_iter().map(|change| *change.to.recorded.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(of(&small), vec![recorded(); 160], "messages are cut first");
        let mut large = with(256);
        let bytes = fit(&mut large, MAX_STATUS, |_| false);
        assert!(bytes <= MAX_STATUS, "{bytes}");
        assert_eq!(bytes, serde_json::to_vec(&large).unwrap().len());
        let left = of(&large);
        assert!(left.iter().all(|left| left.cut && left.labels == recorded().labels), "and that is visible");
        let again = large.clone();
        fit(&mut large, MAX_STATUS, |_| false);
        assert_eq!(large, again, "fitting twice is fitting once");
    }

    #[test]
    fn changes_are_merged_if_cut_messages_are_not_enough() {
        let mut status = failing(256, 8);
        let mut log = status.log.take().unwrap();
        compact(&mut log, &BTreeSet::new());
        status.log = Some(log);
        let bytes = fit(&mut status, MAX_STATUS, |_| false);
        assert!(bytes <= MAX_STATUS, "{bytes}");
        assert_eq!(bytes, serde_json::to_vec(&status).unwrap().len(), "the size was updated by each merge");
        assert_eq!(subjects(&status).len(), 256);
        assert!(status.log.as_ref().unwrap().changes.is_sorted_by_key(|c| c.serial));
        let again = status.clone();
        fit(&mut status, MAX_STATUS, |_| false);
        assert_eq!(status, again, "fitting twice is fitting once");
    }

    fn serials(status: &PipelineStatus) -> Vec<i64> {
        status.log.as_ref().unwrap().changes.iter().map(|c| c.serial).collect()
    }

    /// A log of targets that were added and removed, each with a new name. So no subject has two changes.
    fn crowded(targets: usize) -> (PipelineStatus, Vec<i64>) {
        let mut status = failing(targets, 1);
        status.environments.clear();
        let all = serials(&status);
        (status, all)
    }

    fn read(status: &mut PipelineStatus, armed: &[(&str, i64)]) {
        let dispatched = status.dispatched.get_or_insert_default();
        let first = status.log.as_ref().unwrap().first;
        dispatched.cursors.push(Cursor { serial: first, notification: "stuck".to_owned(), ..Cursor::default() });
        dispatched.armed.extend(armed.iter().map(|(subject, serial)| RunningTimer {
            notification: "stuck".to_owned(),
            subject: (*subject).to_owned(),
            serial: *serial,
            type_: TransitionType::Failed,
            due: Time::UNIX_EPOCH,
        }));
    }

    #[test]
    fn the_oldest_changes_are_dropped_and_the_status_records_it() {
        for somebody_reads in [false, true] {
            let (mut status, all) = crowded(4000);
            if somebody_reads {
                read(&mut status, &[]);
            }
            let bytes = fit(&mut status, MAX_STATUS, |_| false);
            assert!(bytes <= MAX_STATUS && bytes > MAX_STATUS - 1024, "{bytes}");
            assert_eq!(bytes, serde_json::to_vec(&status).unwrap().len());
            let left = serials(&status);
            assert!(all.ends_with(&left), "the oldest");
            let gone = all.len() - left.len();
            let dropped = Dropped { serial: all[gone - 1], count: i64::try_from(gone).unwrap() };
            assert_eq!(status.dropped, Some(dropped), "and the status records it");
        }
    }

    #[test]
    fn changes_of_removed_subjects_are_dropped_first_and_those_of_timers_last() {
        let (mut status, all) = crowded(1000);
        let subjects: Vec<String> = status.log.iter().flat_map(|log| &log.changes).map(|c| c.subject.clone()).collect();
        read(&mut status, &[(&subjects[1], all[1])]);
        cut_messages(&mut status, STEPS[4]);
        // The pipeline no longer has the subjects of the second half.
        let gone: BTreeSet<&str> = subjects[500..].iter().map(String::as_str).collect();
        let limit = size(&status) - 50 * 1024;
        let bytes = fit(&mut status, limit, |subject| gone.contains(subject));
        assert!(bytes <= limit);
        assert!(serials(&status).starts_with(&all[..500]), "changes of current subjects stay");
        assert!(status.dropped.unwrap().serial >= all[500]);

        let bytes = fit(&mut status, 2 * LEAST_LOG, |_| false);
        assert!(bytes <= 2 * LEAST_LOG, "{bytes}");
        assert_eq!(serials(&status)[0], all[1], "a timer waits for it");
    }

    #[test]
    fn changes_of_promotions_are_merged_like_others_and_dropped_last() {
        let (mut status, all) = crowded(1000);
        let phase = |change: &mut Change, phase| {
            change.subject = "promotion/prod".to_owned();
            let name = "web-prod-0a1b2c3d4e-7".to_owned();
            change.to.promotion = Some(PromotionState { name, phase, ..PromotionState::default() });
        };
        let log = status.log.as_mut().unwrap();
        for (at, is) in [Phase::Pending, Phase::Requested, Phase::Merged].into_iter().enumerate() {
            phase(&mut log.changes[at], is);
        }
        let armed = log.changes[3].subject.clone();
        read(&mut status, &[(&armed, all[3])]);
        let bytes = fit(&mut status, 2 * LEAST_LOG, |subject| subject.starts_with("promotion/"));
        assert!(bytes <= 2 * LEAST_LOG, "{bytes}");
        assert_eq!(serials(&status)[..3], all[1..4], "the request, what followed it, and the change of the timer");
        assert!(status.log.as_ref().unwrap().changes[0].coalesced, "it includes the step before it");
    }

    #[test]
    fn the_log_keeps_its_minimum_beside_a_status_that_is_too_large() {
        let mut status = failing(256, 4);
        for target in &mut status.environments[0].targets {
            target.revision = "r".repeat(4096);
        }
        let bytes = fit(&mut status, MAX_STATUS, |_| false);
        assert!(bytes > MAX_STATUS);
        let log = size(&status.log);
        assert!(log <= LEAST_LOG && log > LEAST_LOG - 1024, "{log}");
    }

    proptest! {
        /// The status fits, whatever the log contains and however far it was read.
        #[test]
        fn a_status_with_any_log_is_reduced_to_its_limit(
            changes in prop::collection::vec((0..40_usize, 0..600_usize, 0..1500_usize, any::<bool>()), 0..600),
            armed in prop::collection::vec(0..600_usize, 0..30),
            reads in any::<bool>(),
            limit in (LEAST_LOG + 16 * 1024)..(4 * LEAST_LOG),
        ) {
            let mut log = open(Time::UNIX_EPOCH, None);
            for (name, pad, words, gone) in &changes {
                let subject = format!("target/{}/{name}{}", if *gone { "old" } else { "now" }, "n".repeat(*pad));
                let to = State { status: Status::Failed, message: "é\"".repeat(*words), ..State::default() };
                append(&mut log, LogSubject::parse(&subject), Time::UNIX_EPOCH, State::default(), to);
            }
            let marks: Vec<_> = armed.iter().filter_map(|at| log.changes.get(*at)).map(|c| (c.subject.clone(), c.serial)).collect();
            let (first, last) = (log.first, log.serial);
            let mut status = PipelineStatus { log: Some(log), ..PipelineStatus::default() };
            if reads {
                // Timers are part of the rest of the status, which is small here.
                let marks: Vec<_> = marks.iter().map(|(_, serial)| ("pipeline", *serial)).collect();
                read(&mut status, &marks);
            }
            let before = serials(&status);
            let bytes = fit(&mut status, limit, |subject| subject.starts_with("target/old/"));
            prop_assert!(bytes <= limit, "{} > {}", bytes, limit);
            prop_assert_eq!(bytes, serde_json::to_vec(&status).unwrap().len());
            let log = status.log.as_ref().unwrap();
            prop_assert_eq!((log.first, log.serial), (first, last), "no serial is used twice");
            let left = serials(&status);
            prop_assert!(left.iter().all(|serial| before.contains(serial)) && left.is_sorted());
            // A missing change was merged, or is counted as dropped.
            let missing = before.iter().filter(|serial| !left.contains(serial)).max();
            let merged = log.changes.iter().any(|change| change.coalesced);
            prop_assert!(missing.is_none() || merged || status.dropped.is_some());
            if let Some(dropped) = status.dropped {
                prop_assert!(dropped.serial <= last && dropped.count > 0);
            }
        }
    }

    #[test]
    fn cut_ends_between_characters_with_an_ellipsis() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcdefgh", 6), "abc…");
        assert_eq!(cut("ääää", 6), "ä…");
        let long = "é".repeat(2000);
        assert!(cut(&long, MAX_MESSAGE).len() <= MAX_MESSAGE);
        for max in STEPS {
            assert!(is_cut_of(&cut(&long, max), &long));
        }
        assert!(is_cut_of("same", "same"));
        assert!(!is_cut_of("waiting…", "waiting for the database"));
        assert!(!is_cut_of("", "something"));
    }
}
