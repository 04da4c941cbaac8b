//! Property tests: no change is skipped, repeated or reordered, for any observations, however they are divided into writes, and whenever a
//! consumer reads. Merged changes are marked.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{MAX_PER_SUBJECT, Verdict, append, compact, fit, open, prune, settle};
use crate::observe::Observation;
use relaybook_api::pipeline::{Cursor, Dispatched};
use relaybook_api::{Change, ChangeLog, LogSubject, PipelineStatus, Settled, State, Status, Time};

const SUBJECTS: [&str; 3] = ["target/dev/c/a", "target/dev/c/b", "target/prod/c/a"];

/// One step of a test.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a test has few steps")]
enum Step {
    /// An object is observed.
    Observe(usize, Observation),
    /// The observations are written: compacted, kept below a size, and read back from JSON.
    Write { limit: usize },
    /// The consumer reads everything that is written.
    Take,
    /// A write prunes the log with the cursor that it knows.
    Prune,
}

fn observation() -> impl Strategy<Value = Observation> {
    let status = prop_oneof![
        4 => Just(Status::Current),
        3 => Just(Status::InProgress),
        3 => Just(Status::Failed),
        1 => Just(Status::NotFound),
        1 => Just(Status::Terminating),
        1 => Just(Status::Unknown),
    ];
    let revision = prop_oneof![Just(""), Just("v1"), Just("v2"), Just("v3")];
    let configuration = prop_oneof![Just(""), Just("values sha256:a"), Just("values sha256:b"), Just("values sha1:a")];
    let configurations = (configuration.clone(), configuration);
    (status, revision.clone(), revision, configurations, any::<bool>(), prop::bool::weighted(0.1), "[a-z\"é]{0,80}")
        .prop_map(|(status, revision, attempted, (configuration, tried), drifted, suspended, message)| Observation {
            status,
            revision: revision.to_owned(),
            attempted_revision: attempted.to_owned(),
            configuration: configuration.to_owned(),
            attempted_configuration: tried.to_owned(),
            reason: String::new(),
            message,
            drifted,
            suspended,
            ..Observation::default()
        })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..SUBJECTS.len(), observation()).prop_map(|(i, o)| Step::Observe(i, o)),
        3 => prop_oneof![Just(600_usize), Just(2_000), Just(super::MAX_STATUS)].prop_map(|limit| Step::Write { limit }),
        1 => Just(Step::Take),
        1 => Just(Step::Prune),
    ]
}

/// The state of a writer: the log and the settled states.
#[derive(Clone)]
struct Writer {
    log: ChangeLog,
    settled: [Option<Settled>; SUBJECTS.len()],
}

impl Writer {
    fn new() -> Self {
        Self { log: open(Time::UNIX_EPOCH, Some(999)), settled: Default::default() }
    }

    fn observe(&mut self, subject: usize, obs: &Observation) {
        match settle(self.settled[subject].as_ref(), obs, "r", self.log.serial) {
            Verdict::Ignored => {}
            Verdict::Baseline(new) | Verdict::Noted(new) => self.settled[subject] = Some(new),
            Verdict::Changed { from, to, settled } => {
                append(&mut self.log, LogSubject::parse(SUBJECTS[subject]), Time::UNIX_EPOCH, from, to);
                self.settled[subject] = Some(settled);
            }
        }
    }

    /// Reduces the log and reads it back, as the API server would.
    fn write(&mut self, limit: usize) -> usize {
        compact(&mut self.log, &BTreeSet::new());
        let somebody = Dispatched { cursors: vec![Cursor::default()], ..Dispatched::default() };
        let mut status =
            PipelineStatus { log: Some(self.log.clone()), dispatched: Some(somebody), ..PipelineStatus::default() };
        let bytes = fit(&mut status, limit, |_| false);
        let json = serde_json::to_string(&status).unwrap();
        assert_eq!(json.len(), bytes);
        self.log = serde_json::from_str::<PipelineStatus>(&json).unwrap().log.unwrap();
        bytes
    }
}

/// A state without reason and message, which may have been cut.
fn wordless(state: &State) -> State {
    State { reason: String::new(), message: String::new(), ..state.clone() }
}

/// Checks that what a consumer read about one subject is what happened to it: change by change, or a merged run of changes.
fn same_transitions(taken: &[&Change], happened: &[&Change]) -> Result<(), TestCaseError> {
    let mut rest = happened.iter();
    for change in taken {
        let first = rest.next().expect("nothing is read that has not happened");
        let mut last = first;
        let mut failed = first.from.failed;
        let mut touched = first.from.drifted != first.to.drifted;
        while last.serial != change.serial {
            prop_assert!(change.coalesced, "a merged run is marked: {change:?}");
            last = rest.next().expect("its serial was used");
            failed |= last.from.failed;
            touched |= last.from.drifted != last.to.drifted;
        }
        let drifted = if change.coalesced { last.to.drifted != touched } else { first.from.drifted };
        prop_assert_eq!(&change.from, &State { failed, drifted, ..first.from.clone() });
        prop_assert_eq!(wordless(&change.to), wordless(&last.to));
    }
    prop_assert!(rest.next().is_none(), "nothing that has happened is missing");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_reader_of_the_log_gets_every_change_or_the_last_one_as_coalesced(steps in prop::collection::vec(step(), 0..120)) {
        let mut all = Writer::new();
        let mut writer = Writer::new();
        let mut taken: Vec<Change> = Vec::new();
        let mut cursor = None;
        for step in steps.into_iter().chain([Step::Write { limit: super::MAX_STATUS }, Step::Take]) {
            let before = writer.log.serial;
            match step {
                Step::Observe(subject, obs) => {
                    all.observe(subject, &obs);
                    writer.observe(subject, &obs);
                }
                Step::Write { limit } => {
                    let bytes = writer.write(limit);
                    for subject in SUBJECTS {
                        let waiting = writer.log.changes.iter().filter(|c| c.subject == subject).count();
                        prop_assert!(waiting <= MAX_PER_SUBJECT);
                        prop_assert!(bytes <= limit || waiting <= 1, "bounded unless nothing can be merged");
                    }
                }
                Step::Take => {
                    let from = cursor.unwrap_or(writer.log.first);
                    taken.extend(writer.log.changes.iter().filter(|c| c.serial > from).cloned());
                    cursor = Some(writer.log.serial);
                }
                Step::Prune => {
                    let cursors: Vec<Cursor> = cursor.map(|serial| Cursor { serial, ..Cursor::default() }).into_iter().collect();
                    prune(&mut writer.log, Some(&Dispatched { cursors, ..Dispatched::default() }));
                }
            }
            prop_assert!(writer.log.serial >= before && writer.log.serial == all.log.serial);
            prop_assert!(writer.log.changes.is_sorted_by(|a, b| a.serial < b.serial));
            prop_assert!(writer.log.changes.iter().all(|c| c.serial > writer.log.first && c.serial <= writer.log.serial));
            prop_assert_eq!(&writer.settled, &all.settled);
        }
        for subject in SUBJECTS {
            let of = |list: &'_ Vec<Change>| list.iter().filter(|c| c.subject == subject).cloned().collect::<Vec<_>>();
            // A merge can include changes that a cursor has passed. Then the whole merged change is read again, and it is marked.
            let (mine, theirs) = (of(&taken), of(&all.log.changes));
            if mine.iter().any(|c| c.coalesced) {
                let last = |l: &Vec<Change>| l.last().map(|c| (c.serial, wordless(&c.to)));
                prop_assert_eq!(last(&mine), last(&theirs));
                let given: Vec<i64> = theirs.iter().map(|c| c.serial).collect();
                prop_assert!(mine.iter().all(|c| given.contains(&c.serial)));
                prop_assert!(mine.is_sorted_by(|a, b| a.serial < b.serial));
            } else {
                same_transitions(&mine.iter().collect::<Vec<_>>(), &theirs.iter().collect::<Vec<_>>())?;
            }
        }
    }

    /// If the consumer reads only at the end, every merged change corresponds to a run of changes that happened.
    #[test]
    fn each_merged_change_corresponds_to_a_run_of_changes_that_happened(steps in prop::collection::vec(step(), 0..120)) {
        let mut all = Writer::new();
        let mut writer = Writer::new();
        for step in steps {
            match step {
                Step::Observe(subject, obs) => {
                    all.observe(subject, &obs);
                    writer.observe(subject, &obs);
                }
                Step::Write { limit } => {
                    writer.write(limit);
                }
                Step::Take | Step::Prune => {}
            }
        }
        for subject in SUBJECTS {
            let of = |log: &'_ ChangeLog| log.changes.iter().filter(|c| c.subject == subject).cloned().collect::<Vec<_>>();
            let (mine, theirs) = (of(&writer.log), of(&all.log));
            same_transitions(&mine.iter().collect::<Vec<_>>(), &theirs.iter().collect::<Vec<_>>())?;
        }
    }
}
