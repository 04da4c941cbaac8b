//! Keeps a status within what one object may cost: words go first, then the steps between two states, and a subject only if
//! there is nobody to be told of it.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::io;

use serde::Serialize;

use crate::api::{Change, ChangeLog, PipelineStatus};

use super::log::{kept, merge_two};

/// A status of more bytes than this is cut down. A status costs the API server in proportion to its bytes, and etcd refuses an
/// object of 1.5 MiB.
pub const MAX_STATUS: usize = 512 * 1024;
/// Messages are never longer than this, in bytes.
pub const MAX_MESSAGE: usize = 1024;

/// What messages are cut to, step by step, while the status is too large. The last one still tells one failure from another.
const STEPS: [usize; 5] = [MAX_MESSAGE, 512, 256, 128, 64];
/// Ends a message that was cut.
const ELLIPSIS: char = '…';

/// The text in at most `max` bytes, ending in an ellipsis if something was left out.
#[must_use]
pub fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(max.saturating_sub(ELLIPSIS.len_utf8()));
    Cow::Owned(format!("{}{ELLIPSIS}", &text[..end]))
}

/// Whether `shown` is `full`, or what [`fit`] leaves of it for lack of room.
#[must_use]
pub fn is_cut_of(shown: &str, full: &str) -> bool {
    shown == full || STEPS.iter().any(|max| cut(full, *max) == shown)
}

/// Brings a status below `limit` bytes of JSON: cuts all messages shorter and shorter, then makes one of two changes of a
/// subject, oldest first. Where nobody reads, the oldest goes then. Returns its size, which is above `limit` only if that was not
/// enough.
pub fn fit(status: &mut PipelineStatus, limit: usize) -> usize {
    let mut bytes = size(status);
    for max in STEPS {
        if bytes <= limit {
            return bytes;
        }
        cut_messages(status, max);
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
    if status.dispatched.as_ref().is_none_or(|dispatched| dispatched.cursors.is_empty()) {
        // Nobody reads, and names that come and go would fill it for good.
        let mut fits = |change: &Change| {
            let goes = bytes > limit && !kept.contains(&change.serial);
            bytes -= if goes { (size(change) + 1).min(bytes) } else { 0 };
            !goes
        };
        log.changes.retain(&mut fits);
    }
    bytes
}

/// Merges two changes of the subject whose oldest is the oldest of all, if it has a later one. How many bytes that saved; `None` when each stands alone.
fn merge_one(log: &mut ChangeLog, waiting: &mut HashMap<String, usize>, kept: &BTreeSet<i64>) -> Option<usize> {
    let subject = log.changes.iter().map(|c| &c.subject).find(|s| waiting.get(*s).is_some_and(|n| *n > 1))?.clone();
    let bytes =
        |log: &ChangeLog| -> usize { log.changes.iter().filter(|c| c.subject == subject).map(|c| size(c) + 1).sum() };
    let before = bytes(log);
    merge_two(log, &subject, kept);
    *waiting.entry(subject.clone()).or_default() -= 1;
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

/// How many bytes of JSON this is.
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
    use super::*;
    use crate::api::pipeline::{EnvironmentStatus, TargetStatus};
    use crate::api::refs::ClusterAppRef;
    use crate::api::{State, Status, Time};
    use crate::changelog::{append, compact, open};

    /// `targets` targets that have each failed `times` times with messages of 1 KiB, and nobody came to read.
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
                append(&mut log, &subject, time, state(Status::Current), to);
            }
            list.push(TargetStatus {
                cluster_app_ref: ClusterAppRef { name: "web".to_owned(), namespace, ..ClusterAppRef::default() },
                status: Status::Failed,
                message: message.clone(),
                ..TargetStatus::default()
            });
        }
        let environments = vec![EnvironmentStatus { name: "production".to_owned(), targets: list, settled: None }];
        PipelineStatus { environments, log: Some(log), ..PipelineStatus::default() }
    }

    fn subjects(status: &PipelineStatus) -> std::collections::BTreeSet<&str> {
        status.log.iter().flat_map(|l| &l.changes).map(|c| c.subject.as_str()).collect()
    }

    #[test]
    fn counts_what_serde_writes() {
        let status = failing(2, 2);
        assert_eq!(size(&status), serde_json::to_vec(&status).unwrap().len());
    }

    #[test]
    fn small_ones_are_left_alone() {
        let mut status = failing(3, 2);
        let before = status.clone();
        assert_eq!(fit(&mut status, MAX_STATUS), size(&before));
        assert_eq!(status, before);
    }

    #[test]
    fn every_failure_of_256_targets_stays() {
        let mut status = failing(256, 1);
        assert!(size(&status) > MAX_STATUS);
        let bytes = fit(&mut status, MAX_STATUS);
        assert!(bytes <= MAX_STATUS);
        assert_eq!(bytes, serde_json::to_vec(&status).unwrap().len());
        assert_eq!(subjects(&status).len(), 256);
        let log = status.log.as_ref().unwrap();
        assert!(log.changes.iter().all(|c| !c.coalesced && c.to.status == Status::Failed && !c.to.message.is_empty()));
    }

    #[test]
    fn then_the_steps_between_go() {
        let mut status = failing(256, 8);
        let mut log = status.log.take().unwrap();
        compact(&mut log, &BTreeSet::new());
        status.log = Some(log);
        let bytes = fit(&mut status, MAX_STATUS);
        assert!(bytes <= MAX_STATUS, "{bytes}");
        assert_eq!(bytes, serde_json::to_vec(&status).unwrap().len(), "counted as it went");
        assert_eq!(subjects(&status).len(), 256);
        assert!(status.log.as_ref().unwrap().changes.is_sorted_by_key(|c| c.serial));
        let again = status.clone();
        fit(&mut status, MAX_STATUS);
        assert_eq!(status, again, "fitting twice is fitting once");
    }

    #[test]
    fn where_nobody_reads_the_oldest_goes_at_last() {
        let mut status = failing(4000, 1);
        status.environments.clear();
        let serials = |status: &PipelineStatus| -> Vec<i64> {
            status.log.as_ref().unwrap().changes.iter().map(|c| c.serial).collect()
        };
        let all = serials(&status);
        let mut read = status.clone();
        let cursor = crate::api::pipeline::Cursor { serial: all[0], ..Default::default() };
        read.dispatched.get_or_insert_default().cursors.push(cursor);
        assert!(fit(&mut read, MAX_STATUS) > MAX_STATUS, "somebody is to be told of each");
        assert_eq!(serials(&read), all);
        let bytes = fit(&mut status, MAX_STATUS);
        assert!(bytes <= MAX_STATUS && bytes > MAX_STATUS - 1024, "{bytes}");
        assert_eq!(bytes, serde_json::to_vec(&status).unwrap().len());
        assert!(all.ends_with(&serials(&status)));
    }

    #[test]
    fn cuts_between_characters_and_says_so() {
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
