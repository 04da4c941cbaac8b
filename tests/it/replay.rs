//! Replays recorded watch events of real controllers through `observe`, `changelog` and `trigger`, and checks the transitions. No
//! subset of the events may cause a transition that did not happen.
//!
//! `tests/data/*.jsonl` are recordings of kustomize-controller 1.7 (interval 8 s, retry 4 s) and of the deployment controller
//! 1.36 (`progressDeadlineSeconds` 5). Each line is a JSON object `{scenario, at, object}`, with `at` in seconds from the start.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use kube::core::DynamicObject;
use proptest::prelude::*;
use relaybook_api::{Change, Settled, TransitionType};
use relaybook_core::changelog::{Verdict, settle};
use relaybook_core::meaning::transitions;
use relaybook_core::observe::{Observation, observe, reader};

/// The transitions of the Kustomization. The recording also contains events without a transition: Ready=Unknown in each interval, a
/// spec edit, a suspension while the source changes, and a dependency that is not ready.
pub const KUSTOMIZATION: &str = "Progressing 1, Deployed 1, Progressing 2, Deployed 2, Progressing 3, Failed 3, \
    Progressing 4, Deployed 4, Progressing 5, Failed 5, Progressing 4, Recovered 4, Progressing 6, Deployed 6, Removed";
/// The transitions of the Deployment. Progressing 1 is the baseline, so it is not in the list. The recording also contains scaling, a
/// deleted pod, a restart without a new image, and a new image while the Deployment is paused.
pub const DEPLOYMENT: &str = "Deployed 1, Progressing 2, Deployed 2, Progressing 3, Failed 3, Progressing 4, Deployed 4, \
    Progressing 5, Failed 5, Progressing 4, Recovered 4, Progressing 6, Deployed 6, Removed";
/// The transitions of rollbacks. The Deployment has one replica. So a rollback changes no replica count at first, and the status still
/// contains the result of the previous rollout.
pub const ROLLBACK: &str = "Progressing 2, Failed 2, Progressing 1, Recovered 1, Progressing 3, Failed 3, \
    Progressing 2, Failed 2, Progressing 1, Recovered 1, Removed";

/// The last digits of the six revisions of the Kustomization, in order.
const COMMITS: [&str; 6] = ["5428ab", "9010b0", "6e83bb", "31647a", "5e6ac4", "56e278"];

struct Event {
    scenario: String,
    seen: Observation,
}

static RECORDINGS: LazyLock<[Recording; 3]> = LazyLock::new(|| {
    [
        Recording::read(include_str!("../data/kustomization.jsonl"), KUSTOMIZATION),
        Recording::read(include_str!("../data/deployment.jsonl"), DEPLOYMENT),
        Recording::read(include_str!("../data/rollback.jsonl"), ROLLBACK),
    ]
});

struct Recording {
    reader: String,
    events: Vec<Event>,
    expected: Vec<String>,
}

impl Recording {
    fn read(text: &str, expected: &str) -> Self {
        let mut name = String::new();
        let event = |line: &str| {
            let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
            let object: DynamicObject = serde_json::from_value(line["object"].take()).unwrap();
            let types = object.types.as_ref().unwrap();
            name = reader(&types.api_version, &types.kind, None);
            Event { scenario: line["scenario"].as_str().unwrap().to_owned(), seen: observe(Some(&object), None) }
        };
        let events = text.lines().map(event).collect();
        Self { reader: name, events, expected: expected.split(", ").map(str::to_owned).collect() }
    }

    /// Returns the transitions if only the events are observed for which `seen` returns `true`, and after them the deletion.
    fn replay(&self, mut seen: impl FnMut(usize) -> bool) -> Vec<String> {
        let gone = observe(None, None);
        let observations = self.events.iter().enumerate().filter(|(i, _)| seen(*i)).map(|(_, e)| &e.seen);
        let mut settled: Option<Settled> = None;
        let mut transitions = Vec::new();
        for observation in observations.chain([&gone]) {
            match settle(settled.as_ref(), observation, &self.reader, 0) {
                Verdict::Ignored => {}
                Verdict::Baseline(new) | Verdict::Noted(new) => settled = Some(new),
                Verdict::Changed { from, to, settled: new } => {
                    settled = Some(new);
                    let revision = number(&to.revision);
                    let change = Change { from, to, ..Change::default() };
                    transitions.extend(self::transitions(&change).map(|t| name(t, &revision)));
                }
            }
        }
        transitions
    }

    /// Returns whether this event is the last one of its scenario.
    fn ends_scenario(&self, i: usize) -> bool {
        self.events.get(i + 1).is_none_or(|next| next.scenario != self.events[i].scenario)
    }
}

fn name(type_: TransitionType, revision: &str) -> String {
    format!("{} {revision}", type_.as_str()).trim_end().to_owned()
}

/// Returns the number of a revision in the recording.
pub fn number(revision: &str) -> String {
    let commit = (1..).zip(COMMITS).find(|(_, digits)| revision.ends_with(digits));
    commit.map_or_else(|| revision.to_owned(), |(n, _)| n.to_string())
}

fn is_subsequence(part: &[String], whole: &[String]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|p| rest.any(|w| w == p))
}

/// Counts each transition. `Recovered` counts as `Deployed`.
fn counts(list: &[String]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for item in list {
        *counts.entry(item.replace("Recovered", "Deployed")).or_default() += 1;
    }
    counts
}

#[test]
fn replayed_events_report_exactly_what_happened() {
    for recording in RECORDINGS.iter() {
        assert_eq!(recording.replay(|_| true), recording.expected, "{}", recording.reader);
    }
}

#[test]
fn a_first_observation_at_any_time_is_silent() {
    for recording in RECORDINGS.iter() {
        for start in 0..recording.events.len() {
            let got = recording.replay(|i| i == start);
            assert!(got.iter().all(|t| t == "Removed"), "{} event {start}: {got:?}", recording.reader);
        }
    }
}

/// Generates which events are observed, from almost none to almost all.
fn masks() -> impl Strategy<Value = Vec<bool>> {
    (0.0..1.0).prop_flat_map(|weight| prop::collection::vec(prop::bool::weighted(weight), 123))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Events that are not observed can only remove transitions. The others stay in order, if the last event of each scenario is
    /// observed.
    #[test]
    fn batches_only_omit_changes(mask in masks()) {
        for recording in RECORDINGS.iter() {
            let got = recording.replay(|i| mask[i] || recording.ends_scenario(i));
            prop_assert!(is_subsequence(&got, &recording.expected), "{got:?}");
        }
    }

    /// With any events lost, and any first event, no transition is reported more often than it happened. (A recovery to a revision
    /// that was never observed to run is reported as `Deployed`.)
    #[test]
    fn replays_report_no_extra_changes(mask in masks(), from in 0..123_usize) {
        for recording in RECORDINGS.iter() {
            let got = recording.replay(|i| i >= from && mask[i]);
            let allowed = counts(&recording.expected);
            for (transition, n) in counts(&got) {
                prop_assert!(n <= allowed.get(&transition).copied().unwrap_or(0), "{transition}: {got:?}");
            }
        }
    }
}
