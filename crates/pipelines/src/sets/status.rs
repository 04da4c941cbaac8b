//! Pure: the next status of a set.

use relaybook_text::cut;

use super::expand::Found;
use relaybook_api::conditions;
use relaybook_api::conditions::{ConditionStatus, READY};
use relaybook_api::pipeline_set::{GeneratorStatus, MAX_WRONG, WrongPipeline};
use relaybook_api::{PipelineSet, PipelineSetStatus, Time};
use relaybook_core::changelog::MAX_MESSAGE;
use relaybook_core::pipeline::plan::Refused;

/// What a reconcile has found.
pub(super) struct Outcome<'a> {
    /// The number of pipelines that the set has.
    pub pipelines: usize,
    /// Pipelines that wait for their last deliveries.
    pub leaving: usize,
    pub wrong: Vec<WrongPipeline>,
    /// Why sources can be missing: reason and message.
    pub incomplete: &'a [(String, String)],
    /// What the generators select. `None`: not every source has its pipelines yet, so nothing is recorded.
    pub found: Option<&'a [Found<'a>]>,
}

/// Returns the status after a reconcile. `None`: it is as before.
pub(super) fn next(set: &PipelineSet, outcome: Result<Outcome<'_>, &Refused>, now: Time) -> Option<PipelineSetStatus> {
    let before = set.status.clone().unwrap_or_default();
    let mut status = before.clone();
    status.observed_generation = set.metadata.generation;
    let (is_ready, reason, message) = match outcome {
        Err(refused) => (ConditionStatus::False, refused.reason.to_owned(), refused.message.clone()),
        Ok(mut outcome) => {
            status.pipelines = u32::try_from(outcome.pipelines).unwrap_or(u32::MAX);
            if let Some(found) = outcome.found {
                status.generators = recorded(found);
            }
            outcome.wrong.sort_by(|a, b| (&a.name, &a.source).cmp(&(&b.name, &b.source)));
            let all = outcome.wrong.len();
            outcome.wrong.truncate(MAX_WRONG);
            status.wrong = outcome.wrong;
            ready(&status.wrong, all, outcome.incomplete, (outcome.pipelines, outcome.leaving))
        }
    };
    let message = cut(&message, MAX_MESSAGE);
    conditions::set(&mut status.conditions, READY, is_ready, &reason, &message, set.metadata.generation, now);
    (status != before).then_some(status)
}

/// Returns the condition.
fn ready(
    wrong: &[WrongPipeline],
    all: usize,
    incomplete: &[(String, String)],
    (pipelines, leaving): (usize, usize),
) -> (ConditionStatus, String, String) {
    if let Some((reason, message)) = incomplete.first() {
        return (ConditionStatus::False, reason.clone(), message.clone());
    }
    if let Some(first) = wrong.first() {
        let about = if first.name.is_empty() { &first.source } else { &first.name };
        let others = if all > 1 { format!("; {} more in status.wrong", all - 1) } else { String::new() };
        let message = if about.is_empty() { first.message.clone() } else { format!("{about}: {}", first.message) };
        return (ConditionStatus::False, first.reason.clone(), format!("{message}{others}"));
    }
    let leaving = if leaving > 0 { format!("; {leaving} are deleted after their last deliveries") } else { String::new() };
    (ConditionStatus::True, "Made".to_owned(), format!("{pipelines} pipelines{leaving}"))
}

/// Returns what to record of the generators. A generator whose objects are not all known keeps its record.
fn recorded(found: &[Found<'_>]) -> Vec<GeneratorStatus> {
    let record = |found: &Found<'_>| {
        if found.sources.incomplete.is_some() {
            return found.before.cloned();
        }
        let newest = found.sources.newest;
        let before = found.before.and_then(|before| before.newest);
        Some(GeneratorStatus { selection: found.generator.hash.clone(), newest: newest.max(before) })
    };
    found.iter().filter_map(record).collect()
}

/// Returns what the status of a set records of a generator.
pub(super) fn record_of<'a>(set: &'a PipelineSet, hash: &str) -> Option<&'a GeneratorStatus> {
    set.status.as_ref()?.generators.iter().find(|generator| generator.selection == hash)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sets::plan::plan;
    use crate::sets::testing::spec;
    use relaybook_core::reading::Reason;
    use relaybook_core::reading::selection::{Joined, SourceObject, Sources};

    fn at(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    fn outcome(pipelines: usize, leaving: usize, names: &[&str]) -> Outcome<'static> {
        let wrong = |name: &&str| WrongPipeline {
            name: (*name).to_owned(),
            source: "K n/x".into(),
            reason: "NameTaken".into(),
            message: "the name is taken".into(),
        };
        Outcome { pipelines, leaving, wrong: names.iter().map(wrong).collect(), incomplete: &[], found: None }
    }

    #[test]
    fn a_status_that_says_the_same_is_not_written() {
        let mut set = PipelineSet::new("apps", spec(r#"{"fleet": {"gitRepos": {}}}"#, "{{name}}"));
        let ready = |set: &PipelineSet| {
            let condition = set.status.as_ref().unwrap().conditions[0].clone();
            (condition.status, condition.reason, condition.message)
        };
        set.status = next(&set, Ok(outcome(3, 0, &[])), at(1));
        assert_eq!(ready(&set), (ConditionStatus::True, "Made".into(), "3 pipelines".into()));
        assert_eq!(next(&set, Ok(outcome(3, 0, &[])), at(2)), None);
        set.status = next(&set, Ok(outcome(3, 1, &[])), at(3));
        assert!(ready(&set).2.contains("1 are deleted after"), "{:?}", ready(&set));
        let names: Vec<String> = (0..20).map(|number| format!("p{number:02}")).collect();
        let names: Vec<&str> = names.iter().rev().map(String::as_str).collect();
        set.status = next(&set, Ok(outcome(3, 0, &names)), at(4));
        let message = "p00: the name is taken; 19 more in status.wrong";
        assert_eq!(ready(&set), (ConditionStatus::False, "NameTaken".into(), message.into()));
        assert_eq!(set.status.as_ref().unwrap().wrong.len(), MAX_WRONG);
        let refused = Refused { reason: "ForbiddenKind", message: "no".into() };
        set.status = next(&set, Err(&refused), at(5));
        assert_eq!(ready(&set), (ConditionStatus::False, "ForbiddenKind".into(), "no".into()));
        assert_eq!(set.status.unwrap().pipelines, 3, "what is there stays");
    }

    #[test]
    fn a_generator_is_recorded_only_when_all_its_objects_are_known() {
        let set = spec(r#"{"fleet": {"gitRepos": {}}}"#, "{{name}}");
        let planned = plan(&set, "team-a", true).unwrap();
        let found = |incomplete, before| {
            let object = |second| SourceObject {
                namespace: "n".into(),
                name: "x".into(),
                labels: BTreeMap::new(),
                joined: Joined::Listed,
                created: Some(at(second)),
            };
            let sources = Sources { objects: vec![object(7), object(3)], total: 2, newest: Some(at(7)), incomplete };
            recorded(&[Found { generator: &planned.generators[0], sources, before }])
        };
        let before = GeneratorStatus { selection: "x".into(), newest: Some(at(9)) };
        assert_eq!(found(None, None)[0].newest, Some(at(7)));
        assert_eq!(found(None, Some(&before))[0].newest, Some(at(9)), "it never goes back");
        let incomplete = || Some((Reason::Forbidden, String::new()));
        assert_eq!(found(incomplete(), None), []);
        assert_eq!(found(incomplete(), Some(&before)), std::slice::from_ref(&before));
    }
}
