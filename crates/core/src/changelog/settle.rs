//! Decides whether an observation of a target is a change, or only noise.
//!
//! Controllers write far more often than something changes. Flux goes through `Ready=Unknown` at every interval, a failing
//! `HelmRelease` alternates between `UpgradeFailed` and `RollbackSucceeded`, and messages contain durations. So a change is a
//! difference from the last settled state in status, revision, configuration or drift. A difference only in reason, message or what is
//! recorded is not a change.

use relaybook_text::cut;

use crate::observe::Observation;
use relaybook_api::values::configuration::differ;
use relaybook_api::{Settled, State, Status};

use super::fit::MAX_MESSAGE;

/// What an observation means, compared with the settled state.
#[allow(clippy::large_enum_variant, reason = "it lives for a moment, on the stack")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing has changed. The settled state stays.
    Ignored,
    /// The first observation, or the first one with these rules: it is stored and not reported.
    Baseline(Settled),
    /// Nothing has changed, but later observations are compared with more. It is stored and not reported.
    Noted(Settled),
    /// The target went from one settled state to another.
    Changed {
        /// The state before, without reason and message.
        from: State,
        /// The state after, with reason, message and what is recorded.
        to: State,
        /// The state with which later observations are compared.
        settled: Settled,
    },
}

/// Compares one observation with the last settled state.
///
/// `reader` is the hash of the rules that made the observation (see [`crate::observe::reader`]). If the rules are different, the old
/// state cannot be compared, so the observation becomes a new baseline. `since` is the current serial of the log. A new baseline
/// keeps the `since` of the state that it replaces, and stores the current serial in `based`. Settling the same observation twice is
/// the same as settling it once. The observation is one that [`super::believe()`] has returned for the same settled state.
#[must_use]
pub fn settle(settled: Option<&Settled>, obs: &Observation, reader: &str, since: i64) -> Verdict {
    if matches!(obs.status, Status::Unknown | Status::Terminating) {
        return Verdict::Ignored;
    }
    let Some(old) = settled.filter(|s| s.reader == reader) else {
        let (first, based) = settled.map_or((since, 0), |s| (s.since, since));
        return Verdict::Baseline(Settled { based, ..baseline(obs, reader, first) });
    };
    let drifted = drifted(old, obs);
    let moved = counts(old, obs);
    let new = if obs.suspended {
        return Verdict::Ignored;
    } else if moved {
        successor(old, obs)
    } else if drifted != old.drifted && !is_rollout(old, obs) {
        Settled { drifted, ..old.clone() }
    } else {
        return learned(old, obs).map_or_else(|| noted(old, obs), Verdict::Baseline);
    };
    let (reason, message) = words(obs, moved);
    let recorded = obs.recorded.as_deref().cloned().map(Box::new);
    let to = State { recorded, ..state(&new, reason, cut(message, MAX_MESSAGE).as_ref()) };
    Verdict::Changed { from: state(old, "", ""), to, settled: new }
}

/// Returns the verdict on an observation that is no change. The errors of an object that is not `Current` are remembered.
fn noted(old: &Settled, obs: &Observation) -> Verdict {
    let errors = errors(&old.errors, obs);
    let rests = matches!(old.status, Status::Current | Status::NotFound);
    if rests || errors == old.errors { Verdict::Ignored } else { Verdict::Noted(Settled { errors, ..old.clone() }) }
}

/// Returns the errors to remember after an observation.
fn errors(known: &[String], obs: &Observation) -> Vec<String> {
    match obs.status {
        Status::Failed => obs.errors.remembered(known, true),
        Status::InProgress => obs.errors.remembered(known, false),
        Status::Current | Status::NotFound | Status::Terminating | Status::Unknown => Vec::new(),
    }
}

/// Reason and message of a change. They are empty if they only report that the controller of the object has not processed it yet. They are
/// also empty if the status is `Current` and only drift has changed, because the number of replicas is then not new.
fn words(obs: &Observation, moved: bool) -> (&str, &str) {
    let is_news = if obs.status == Status::Current { moved } else { !obs.is_unobserved() };
    if is_news { (&obs.reason, &obs.message) } else { ("", "") }
}

/// Whether the observation differs from the settled state in a status, revision or configuration that counts.
fn counts(old: &Settled, obs: &Observation) -> bool {
    let (revision, configuration) = about(obs);
    let is_configured = differ(&old.configuration, configuration);
    // Before the first attempt the revision is empty. Then the object does not try another revision.
    let tries_another = (!revision.is_empty() && revision != old.revision) || is_configured;
    match obs.status {
        Status::InProgress => old.status == Status::NotFound || tries_another,
        Status::Failed if old.status == Status::Failed => tries_another,
        _ => obs.status != old.status || revision != old.revision || is_configured,
    }
}

/// The settled state with a configuration that was not known before, or that could not be compared. To learn it is not a change. `None`:
/// nothing is new.
fn learned(old: &Settled, obs: &Observation) -> Option<Settled> {
    let is_new = |known: &str, seen: &str| !seen.is_empty() && known != seen && !differ(known, seen);
    let (revision, configuration) = about(obs);
    let is_alike = obs.status == old.status && revision == old.revision && is_new(&old.configuration, configuration);
    // The object can report what runs while it tries something else.
    let runs = old.current.as_ref() == Some(&obs.revision) && is_new(&old.current_configuration, &obs.configuration);
    if !is_alike && !runs {
        return None;
    }
    let mut new = old.clone();
    if is_alike {
        configuration.clone_into(&mut new.configuration);
    }
    if runs {
        new.current_configuration.clone_from(&obs.configuration);
    }
    if runs && old.status == Status::Current {
        new.configuration.clone_from(&obs.configuration);
    }
    Some(new)
}

/// Whether the object has drifted. Returns the previous value if this is currently unknown.
fn drifted(old: &Settled, obs: &Observation) -> bool {
    if obs.drift_unknown { old.drifted } else { obs.drifted }
}

/// Whether a rollout of another revision is in progress. Objects that drift then are being replaced, so drift is checked after the rollout.
/// If the object is not ready for another reason, such as a deleted resource, drift counts as it does when the object is ready.
fn is_rollout(old: &Settled, obs: &Observation) -> bool {
    old.status == Status::InProgress && obs.status == Status::InProgress
}

/// The revision and the configuration that the status is about.
fn about(obs: &Observation) -> (&str, &str) {
    match obs.status {
        Status::Current => (&obs.revision, &obs.configuration),
        Status::InProgress | Status::Failed => (&obs.attempted_revision, &obs.attempted_configuration),
        Status::NotFound | Status::Terminating | Status::Unknown => ("", ""),
    }
}

/// The settled state after only this observation.
fn baseline(obs: &Observation, reader: &str, since: i64) -> Settled {
    // An object that is `Current` runs its revision, even if that is empty. Otherwise the object can report which revision it still runs.
    let runs = obs.status == Status::Current || (obs.status != Status::NotFound && !obs.revision.is_empty());
    let (revision, configuration) = about(obs);
    Settled {
        status: obs.status,
        revision: revision.to_owned(),
        current: runs.then(|| obs.revision.clone()),
        configuration: configuration.to_owned(),
        current_configuration: if runs { obs.configuration.clone() } else { String::new() },
        failed: obs.status == Status::Failed,
        // If the first observation is `InProgress`, the drifted objects may be the ones that are being replaced. Such drift cannot be
        // corrected.
        drifted: obs.drifted && obs.status != Status::InProgress,
        reader: reader.to_owned(),
        since,
        errors: errors(&[], obs),
        ..Settled::default()
    }
}

/// The settled state after an observation that counts.
fn successor(old: &Settled, obs: &Observation) -> Settled {
    let (revision, configuration) = about(obs);
    let ran = || (old.current.clone(), old.current_configuration.clone());
    let ((current, current_configuration), failed) = match obs.status {
        Status::Current => ((Some(obs.revision.clone()), obs.configuration.clone()), false),
        Status::NotFound => ((None, String::new()), false),
        Status::Failed => (ran(), true),
        Status::InProgress | Status::Terminating | Status::Unknown => (ran(), old.failed),
    };
    Settled {
        status: obs.status,
        revision: revision.to_owned(),
        current,
        configuration: configuration.to_owned(),
        current_configuration,
        failed,
        // A rollout of another revision has started, so drift stays as it was. From now on `is_rollout` is true.
        drifted: if obs.status == Status::InProgress { old.drifted } else { drifted(old, obs) },
        reader: old.reader.clone(),
        since: old.since,
        based: old.based,
        staged: if obs.status == Status::NotFound { String::new() } else { old.staged.clone() },
        errors: errors(&old.errors, obs),
        ..Settled::default()
    }
}

/// A settled state in the form that a change contains.
pub(super) fn state(settled: &Settled, reason: &str, message: &str) -> State {
    State {
        status: settled.status,
        revision: settled.revision.clone(),
        current: settled.current.clone(),
        configuration: settled.configuration.clone(),
        current_configuration: settled.current_configuration.clone(),
        failed: settled.failed,
        drifted: settled.drifted,
        repository: String::new(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        promotion: None,
        recorded: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use relaybook_api::pipeline::Recorded;

    fn obs(status: Status, revision: &str, attempted: &str) -> Observation {
        Observation {
            status,
            revision: revision.to_owned(),
            attempted_revision: attempted.to_owned(),
            reason: "Why".to_owned(),
            message: "because".to_owned(),
            ..Observation::default()
        }
    }

    fn old(status: Status, revision: &str, current: Option<&str>, failed: bool) -> Settled {
        Settled {
            status,
            revision: revision.to_owned(),
            current: current.map(str::to_owned),
            failed,
            reader: "r".to_owned(),
            since: 7,
            ..Settled::default()
        }
    }

    #[test]
    fn the_first_observation_is_a_baseline() {
        use Status::{Current, Failed, InProgress, NotFound};
        let table = [
            (obs(Current, "v1", "v1"), old(Current, "v1", Some("v1"), false)),
            (obs(InProgress, "v1", "v2"), old(InProgress, "v2", Some("v1"), false)),
            (obs(InProgress, "", "v1"), old(InProgress, "v1", None, false)),
            (obs(InProgress, "", ""), old(InProgress, "", None, false)),
            (obs(Failed, "v1", "v2"), old(Failed, "v2", Some("v1"), true)),
            (obs(Failed, "", "v2"), old(Failed, "v2", None, true)),
            (obs(NotFound, "", ""), old(NotFound, "", None, false)),
            (obs(NotFound, "left over", ""), old(NotFound, "", None, false)),
        ];
        for (obs, want) in table {
            assert_eq!(settle(None, &obs, "r", 7), Verdict::Baseline(want.clone()), "{obs:?}");
            let other = Settled { reader: "other".to_owned(), ..old(Current, "v0", Some("v0"), false) };
            let again = Settled { based: 99, ..want };
            assert_eq!(settle(Some(&other), &obs, "r", 99), Verdict::Baseline(again), "keeps since: {obs:?}");
        }
    }

    #[test]
    fn unknown_and_terminating_observations_are_ignored() {
        for status in [Status::Unknown, Status::Terminating] {
            let obs = obs(status, "v2", "v2");
            assert_eq!(settle(None, &obs, "r", 7), Verdict::Ignored);
            assert_eq!(settle(Some(&old(Status::Current, "v1", Some("v1"), false)), &obs, "r", 7), Verdict::Ignored);
            assert_eq!(settle(Some(&old(Status::Current, "v1", None, false)), &obs, "other", 7), Verdict::Ignored);
        }
    }

    #[test]
    fn a_suspended_object_keeps_its_state() {
        let obs = Observation { suspended: true, ..obs(Status::Failed, "v1", "v2") };
        assert_eq!(settle(Some(&old(Status::Current, "v1", Some("v1"), false)), &obs, "r", 7), Verdict::Ignored);
        assert_eq!(settle(None, &obs, "r", 7), Verdict::Baseline(old(Status::Failed, "v2", Some("v1"), true)));
    }

    #[test]
    fn each_observation_leads_to_the_settled_state_of_the_table() {
        use Status::{Current, Failed, InProgress, NotFound};
        let current = old(Current, "v1", Some("v1"), false);
        let failed = old(Failed, "v2", Some("v1"), true);
        let moving = old(InProgress, "v2", Some("v1"), false);
        let gone = old(NotFound, "", None, false);
        let table = [
            // Current: another revision, a failure, removal.
            (&current, obs(Current, "v1", "v1"), None),
            (&current, obs(Current, "v2", "v2"), Some(old(Current, "v2", Some("v2"), false))),
            (&current, obs(InProgress, "v1", "v1"), None),
            (&current, obs(InProgress, "v1", ""), None),
            (&current, obs(InProgress, "v1", "v2"), Some(moving.clone())),
            (&current, obs(Failed, "v1", "v1"), Some(old(Failed, "v1", Some("v1"), true))),
            (&current, obs(Failed, "v1", "v2"), Some(failed.clone())),
            (&current, obs(NotFound, "", ""), Some(gone.clone())),
            // InProgress: another revision, complete, failed.
            (&moving, obs(InProgress, "v1", "v2"), None),
            (&moving, obs(InProgress, "v1", "v3"), Some(old(InProgress, "v3", Some("v1"), false))),
            (&moving, obs(Current, "v2", "v2"), Some(old(Current, "v2", Some("v2"), false))),
            (&moving, obs(Current, "v1", "v1"), Some(current.clone())),
            (&moving, obs(Failed, "v1", "v2"), Some(failed.clone())),
            // Failed: retries are noise, another revision is not, and a rollback is a recovery.
            (&failed, obs(Failed, "v1", "v2"), None),
            (&failed, obs(Failed, "v1", ""), None),
            (&failed, obs(InProgress, "v1", "v2"), None),
            (&failed, obs(InProgress, "v1", "v1"), Some(old(InProgress, "v1", Some("v1"), true))),
            (&failed, obs(Failed, "v1", "v3"), Some(old(Failed, "v3", Some("v1"), true))),
            (&failed, obs(Current, "v1", "v1"), Some(current.clone())),
            (&failed, obs(Current, "v2", "v2"), Some(old(Current, "v2", Some("v2"), false))),
            (&failed, obs(NotFound, "", ""), Some(gone.clone())),
            // NotFound: every state that follows counts.
            (&gone, obs(NotFound, "", ""), None),
            (&gone, obs(InProgress, "", ""), Some(old(InProgress, "", None, false))),
            (&gone, obs(InProgress, "", "v1"), Some(old(InProgress, "v1", None, false))),
            (&gone, obs(Current, "v1", "v1"), Some(current.clone())),
        ];
        for (before, obs, want) in table {
            match (settle(Some(before), &obs, "r", 0), want) {
                (Verdict::Ignored, None) => {}
                (Verdict::Changed { from, to, settled }, Some(want)) => {
                    assert_eq!(settled, want, "{before:?} {obs:?}");
                    assert_eq!(from, state(before, "", ""));
                    assert_eq!(to, state(&want, "Why", "because"));
                    assert_eq!(settle(Some(&settled), &obs, "r", 0), Verdict::Ignored, "twice is once");
                }
                (got, want) => panic!("{before:?} and {obs:?}: got {got:?}, want {want:?}"),
            }
        }
    }

    /// An observation of revision `v1` that runs the values `running` and tries the values `tried`.
    fn with_values(status: Status, running: &str, tried: &str) -> Observation {
        let values = |name: &str| if name.is_empty() { String::new() } else { format!("values {name}") };
        Observation { configuration: values(running), attempted_configuration: values(tried), ..obs(status, "v1", "v1") }
    }

    fn old_with_values(status: Status, about: &str, runs: &str) -> Settled {
        let is_failed = status == Status::Failed;
        let seen = with_values(status, runs, about);
        Settled {
            configuration: seen.attempted_configuration,
            current_configuration: seen.configuration,
            ..old(status, "v1", Some("v1"), is_failed)
        }
    }

    #[test]
    fn a_new_configuration_is_a_change() {
        use Status::{Current, Failed, InProgress};
        let (a, b, c) = ("sha256:a", "sha256:b", "sha256:c");
        let runs = old_with_values(Current, a, a);
        let begun = old_with_values(InProgress, b, a);
        let failed = old_with_values(Failed, b, a);
        let rolling_back = Settled { failed: true, ..old_with_values(InProgress, a, a) };
        for (name, before, obs, want) in [
            ("an interval", &runs, with_values(InProgress, a, a), None),
            ("drift is corrected", &runs, with_values(Current, a, a), None),
            ("an attempt", &runs, with_values(InProgress, a, b), Some(begun.clone())),
            ("the same attempt", &begun, with_values(InProgress, a, b), None),
            ("another attempt", &begun, with_values(InProgress, a, c), Some(old_with_values(InProgress, c, a))),
            ("a success", &begun, with_values(Current, b, b), Some(old_with_values(Current, b, b))),
            (
                "a success of which only the end is seen",
                &runs,
                with_values(Current, b, b),
                Some(old_with_values(Current, b, b)),
            ),
            ("a failure", &begun, with_values(Failed, a, b), Some(failed.clone())),
            ("a failure of which only the end is seen", &runs, with_values(Failed, a, b), Some(failed.clone())),
            ("a retry", &failed, with_values(InProgress, a, b), None),
            ("the same failure, rolled back", &failed, with_values(Failed, a, b), None),
            ("a failure with other values", &failed, with_values(Failed, a, c), Some(old_with_values(Failed, c, a))),
            ("the values go back", &failed, with_values(InProgress, a, a), Some(rolling_back.clone())),
            ("they are back", &rolling_back, with_values(Current, a, a), Some(runs.clone())),
            ("a digest is no longer reported", &runs, with_values(Current, "", ""), None),
            ("a digest of another algorithm", &failed, with_values(InProgress, a, "sha512:b"), None),
        ] {
            let verdict = settle(Some(before), &obs, "r", 0);
            match (&verdict, want) {
                (Verdict::Ignored, None) => {}
                (Verdict::Changed { from, to, settled }, Some(want)) => {
                    assert_eq!((from, settled), (&state(before, "", ""), &want), "{name}");
                    assert_eq!(to, &state(&want, "Why", "because"), "{name}");
                    assert_eq!(settle(Some(settled), &obs, "r", 0), Verdict::Ignored, "twice is once: {name}");
                }
                (got, want) => panic!("{name}: got {got:?}, want {want:?}"),
            }
        }
    }

    #[test]
    fn a_configuration_that_becomes_known_is_no_change() {
        use Status::{Current, Failed, InProgress};
        let (a, b) = ("sha256:a", "sha256:b");
        for (name, before, obs, want) in [
            ("Flux begins to write digests", old_with_values(Current, "", ""), with_values(Current, a, a), (a, a)),
            ("it writes others", old_with_values(Current, "sha1:a", "sha1:a"), with_values(Current, a, a), (a, a)),
            ("during an attempt", old_with_values(Current, "", ""), with_values(InProgress, a, b), (a, a)),
            ("after a failure", old_with_values(Failed, "", ""), with_values(Failed, a, b), (b, a)),
            ("during a retry", old_with_values(Failed, "", ""), with_values(InProgress, a, b), ("", a)),
        ] {
            let want = old_with_values(before.status, want.0, want.1);
            assert_eq!(settle(Some(&before), &obs, "r", 99), Verdict::Baseline(want.clone()), "{name}");
            let again = settle(Some(&want), &obs, "r", 99);
            assert!(!matches!(again, Verdict::Baseline(_)), "twice is once: {name}");
        }
        let gone = Observation { revision: "v0".to_owned(), ..with_values(InProgress, a, b) };
        let before = old_with_values(Current, "", "");
        assert_eq!(settle(Some(&before), &gone, "r", 0), Verdict::Ignored, "it is about another revision");
    }

    #[test]
    fn a_change_has_a_useful_reason_and_message() {
        use Status::{Current, InProgress};
        let ran = old(Current, "v1", Some("v1"), false);
        let gone = old(Status::NotFound, "", None, false);
        let said = |status, reason: &str, message: &str| Observation {
            reason: reason.to_owned(),
            message: message.to_owned(),
            ..obs(status, "v2", "v2")
        };
        let counts = ("LessUpdated", "2 of 3 replicas updated");
        for (before, obs, want) in [
            (&ran, said(InProgress, counts.0, counts.1), counts),
            (&ran, said(InProgress, "LatestGenerationNotObserved", "its controller has yet to look"), ("", "")),
            (&gone, said(InProgress, "NoStatus", "its controller has yet to look"), ("", "")),
            (&ran, said(Status::Failed, "NoStatus", "no disk"), ("NoStatus", "no disk")),
            (&ran, said(Current, "", "3 replicas"), ("", "3 replicas")),
            (&ran, Observation { drifted: true, ..said(Current, "", "3 replicas") }, ("", "3 replicas")),
            (&ran, Observation { drifted: true, message: "3 replicas".into(), ..obs(Current, "v1", "v1") }, ("", "")),
        ] {
            let Verdict::Changed { to, .. } = settle(Some(before), &obs, "r", 0) else { panic!("{obs:?}") };
            assert_eq!((to.reason.as_str(), to.message.as_str()), want, "{obs:?}");
        }
        for message in ["", "3 replicas", "5 replicas"] {
            let scaled = Observation { message: message.to_owned(), ..obs(Current, "v1", "v1") };
            assert_eq!(settle(Some(&ran), &scaled, "r", 0), Verdict::Ignored, "the number of replicas does not count");
        }
    }

    #[test]
    fn a_change_has_the_recorded_values_of_its_observation_and_a_new_value_is_no_change() {
        let recorded = |value: &str| {
            let labels = [("team".to_owned(), value.to_owned())].into();
            Recorded { labels, ..Recorded::default() }
        };
        let said = |revision: &str, value: &str| Observation {
            recorded: Some(Arc::new(recorded(value))),
            ..obs(Status::Current, revision, revision)
        };
        let before = old(Status::Current, "v1", Some("v1"), false);
        for value in ["red", "blue", ""] {
            assert_eq!(settle(Some(&before), &said("v1", value), "r", 0), Verdict::Ignored, "{value}");
        }
        let Verdict::Changed { from, to, .. } = settle(Some(&before), &said("v2", "red"), "r", 0) else {
            panic!("it moved")
        };
        assert_eq!((from.recorded, to.recorded), (None, Some(Box::new(recorded("red")))));
    }

    #[test]
    fn a_new_message_is_ignored_and_new_drift_is_a_change() {
        let before = old(Status::Current, "v1", Some("v1"), false);
        let mut obs = obs(Status::Current, "v1", "v1");
        obs.message = "finished in 2.08s".to_owned();
        obs.reason = "Other".to_owned();
        assert_eq!(settle(Some(&before), &obs, "r", 0), Verdict::Ignored);
        obs.drifted = true;
        let Verdict::Changed { to, .. } = settle(Some(&before), &obs, "r", 0) else { panic!("drift counts") };
        assert!(to.drifted);
    }

    #[test]
    fn drift_counts_whether_ready_or_not_except_during_a_rollout() {
        use Status::{Current, Failed, InProgress, NotFound};
        let drifting = |status, revision, attempted| Observation { drifted: true, ..obs(status, revision, attempted) };
        let table = [
            (old(Current, "v1", Some("v1"), false), drifting(InProgress, "v1", "v1"), true),
            (old(Current, "v1", Some("v1"), false), drifting(InProgress, "v1", ""), true),
            (old(Failed, "v2", Some("v1"), true), drifting(Failed, "v1", "v2"), true),
            (old(Failed, "v2", Some("v1"), true), drifting(InProgress, "v1", "v2"), true),
            (old(InProgress, "v2", Some("v1"), false), drifting(InProgress, "v1", "v2"), false),
            (old(NotFound, "", None, false), drifting(NotFound, "", ""), true),
        ];
        for (before, obs, counts) in table {
            let gone = Observation { drifted: false, ..obs.clone() };
            for (before, obs) in [(before.clone(), obs), (Settled { drifted: true, ..before.clone() }, gone)] {
                let Verdict::Changed { from, to, settled } = settle(Some(&before), &obs, "r", 0) else {
                    assert!(!counts, "{before:?} {obs:?}");
                    continue;
                };
                assert!(counts, "{before:?} {obs:?}");
                assert_eq!(settled, Settled { drifted: obs.drifted, ..before.clone() }, "nothing else has changed");
                assert_eq!((from.status, from.drifted), (to.status, !to.drifted));
            }
        }
    }

    #[test]
    fn drift_at_the_start_of_a_rollout_does_not_count() {
        let begun = Observation { drifted: true, ..obs(Status::InProgress, "v1", "v2") };
        for (status, drifted) in [(Status::Current, false), (Status::Current, true), (Status::Failed, false)] {
            let before = Settled { drifted, ..old(status, "v1", Some("v1"), false) };
            let Verdict::Changed { to, settled, .. } = settle(Some(&before), &begun, "r", 0) else { panic!("it has begun") };
            assert_eq!((to.status, to.drifted, settled.drifted), (Status::InProgress, drifted, drifted));
            let over = obs(Status::Current, "v2", "v2");
            let Verdict::Changed { settled, .. } = settle(Some(&settled), &over, "r", 0) else { panic!("it is over") };
            assert!(!settled.drifted);
        }
    }

    #[test]
    fn unknown_drift_keeps_its_previous_value() {
        for drifted in [false, true] {
            let before = Settled { drifted, ..old(Status::Current, "v1", Some("v1"), false) };
            let unknown = |revision| Observation { drift_unknown: true, ..obs(Status::Current, revision, revision) };
            assert_eq!(settle(Some(&before), &unknown("v1"), "r", 0), Verdict::Ignored);
            let Verdict::Changed { settled, .. } = settle(Some(&before), &unknown("v2"), "r", 0) else { panic!("it moved") };
            assert_eq!(settled.drifted, drifted);
        }
    }
}
