//! Pure: what the controller does next for one pipeline. In this order: it withdraws or ends what is not needed, writes the other statuses,
//! creates promotions, and requests them. Each action changes one object, and is followed by a new decision. Attempts start first: each of
//! them was recorded before.

use std::collections::{BTreeMap, BTreeSet};

use kube_core::ResourceExt as _;

use super::commits::Known;
use super::names::{name, order};
use super::plan::{Indication, Plan, counts, is_terminating, plan_beside};
use super::progress::{Progress, Task};
use super::state::{Next, next, next_without_pipeline, requests};
use relaybook_api::promotion::{Phase, PromotedPipeline};
use relaybook_api::{Pipeline, Promotion, PromotionSpec, PromotionStatus, Time};

/// What has to be done for a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing, until an object changes, or until this time.
    Wait(Option<Time>),
    /// The status of the promotion with this name has to be written.
    Write {
        /// Name of the promotion.
        name: String,
        /// The whole status.
        status: Box<PromotionStatus>,
    },
    /// An attempt of the promotion with this name has to start.
    Act {
        /// Name of the promotion.
        name: String,
        /// What the attempt does.
        task: Task,
    },
    /// A promotion has to be created.
    Create(Box<PromotionSpec>),
    /// The promotion with this name has to be deleted.
    Delete {
        /// Name of the promotion.
        name: String,
    },
}

/// Returns the next action for a pipeline. `None`: the pipeline does not exist. `promotions`: those with its uid. `refused`: the names of
/// promotions for which the API server has just refused an action. They must not stop the others. `progress`: the attempts of promotions,
/// by name. `commits`: those of the promotions of all pipelines.
#[must_use]
pub fn action(
    pipeline: Option<&Pipeline>,
    (promotions, commits): Known<'_>,
    refused: &BTreeSet<String>,
    progress: &BTreeMap<String, Progress>,
    now: Time,
) -> Action {
    let (mut writes, mut wake) = (Vec::new(), None);
    let none = Progress::default();
    for promotion in promotions.iter().copied().filter(|promotion| !is_terminating(promotion)) {
        let name = promotion.name_any();
        let progress = progress.get(&name).unwrap_or(&none);
        let next = match pipeline {
            Some(pipeline) => next(pipeline, promotion, (promotions, commits), progress, now),
            None if progress.is_running => Next::Wait(None),
            None => next_without_pipeline(promotion, now),
        };
        match next {
            Next::Write(_) | Next::Act(_) if refused.contains(&name) => {}
            Next::Act(task) => return Action::Act { name, task },
            Next::Write(status) => writes.push((urgency(promotion, &status), order(&promotion.spec), promotion, status)),
            Next::Wait(until) => wake = earlier(wake, until),
        }
    }
    writes.sort_by_key(|(urgency, order, promotion, _)| (*urgency, *order, promotion.metadata.name.clone()));
    let mut writes = writes.into_iter();
    let write =
        |(_, _, promotion, status): (Urgency, _, &Promotion, _)| Action::Write { name: promotion.name_any(), status };
    match writes.next() {
        Some(first) if first.0 < Urgency::Request => write(first),
        request => {
            let create = pipeline.and_then(|pipeline| create(pipeline, (promotions, commits), refused));
            create.or_else(|| request.map(write)).unwrap_or(Action::Wait(wake))
        }
    }
}

/// In which order statuses are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    End,
    Note,
    Request,
}

fn urgency(promotion: &Promotion, status: &PromotionStatus) -> Urgency {
    if requests(promotion.status.as_ref(), status) {
        Urgency::Request
    } else if status.phase.is_some_and(Phase::is_ended) {
        Urgency::End
    } else {
        Urgency::Note
    }
}

/// Returns the promotion to create. If one of its name was rejected before, that one is deleted first: it never had a step.
fn create(pipeline: &Pipeline, (promotions, commits): Known<'_>, refused: &BTreeSet<String>) -> Option<Action> {
    (1..pipeline.spec.environments.len()).find_map(|index| {
        let Plan::Create(indication) = plan_beside(pipeline, index, promotions, commits) else { return None };
        let spec = spec(pipeline, &pipeline.spec.environments.get(index)?.name, indication);
        let name = name(&spec);
        if refused.contains(&name) {
            return None;
        }
        match promotions.iter().find(|promotion| promotion.name_any() == name) {
            None => Some(Action::Create(Box::new(spec))),
            Some(other) if counts(other) || is_terminating(other) => None,
            Some(_) => Some(Action::Delete { name }),
        }
    })
}

fn spec(pipeline: &Pipeline, environment: &str, indication: Indication) -> PromotionSpec {
    let Indication { from, revision, previous, occasion } = indication;
    PromotionSpec {
        pipeline_ref: PromotedPipeline { name: pipeline.name_any(), uid: pipeline.uid().unwrap_or_default() },
        environment: environment.to_owned(),
        from,
        revision,
        previous,
        occasion,
        request: 0,
        approved: false,
    }
}

/// Returns the earlier of two times.
#[must_use]
pub fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promotion::commits::Commits;
    use crate::promotion::testing::{
        PROD, STAGING, at, environment, new, pipeline, promotion, rejected, spec as spec_of, with, with_policy,
    };
    use Phase::{Finished, Pending, Requested};

    fn shown(pipeline: Option<&Pipeline>, promotions: &[&Promotion]) -> String {
        shown_without(pipeline, promotions, &BTreeSet::new())
    }

    fn shown_without(pipeline: Option<&Pipeline>, promotions: &[&Promotion], refused: &BTreeSet<String>) -> String {
        match action(pipeline, (promotions, &Commits::default()), refused, &BTreeMap::new(), at(200)) {
            Action::Act { name, task } => format!("{task:?} of {}", tail(&name)),
            Action::Wait(None) => "wait".to_owned(),
            Action::Wait(Some(until)) => format!("wait until {}", until.as_second()),
            Action::Write { name, status } => {
                format!("{} is {} {}", tail(&name), status.phase.unwrap().as_str(), status.reason)
            }
            Action::Create(spec) => format!("create {} of {} at {}", spec.environment, spec.revision, spec.occasion),
            Action::Delete { name } => format!("delete {}", tail(&name)),
        }
    }

    /// Returns the part of a name after the hash.
    fn tail(name: &str) -> String {
        name.splitn(4, '-').last().unwrap_or_default().to_owned()
    }

    #[test]
    fn older_promotions_end_before_newer_ones_are_requested_or_created() {
        let old = promotion((10, 0), &[Pending], "WaitingApproval");
        let mut fresh = new(spec_of(20, 0));
        let deleting = {
            let mut old = old.clone();
            old.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1)));
            old
        };
        assert_eq!(shown(Some(&pipeline()), &[&fresh, &old]), "10 is Withdrawn Superseded");
        assert_eq!(shown(Some(&pipeline()), &[&fresh]), "20 is Requested WaitingForEnvironment");
        assert_eq!(shown(Some(&pipeline()), &[&fresh, &deleting]), "20 is Requested WaitingForEnvironment");
        assert_eq!(shown(Some(&pipeline()), &[&old]), "10 is Withdrawn Superseded", "before the next one is created");
        assert_eq!(shown(Some(&pipeline()), &[]), "create prod of 2 at 20");
        assert_eq!(shown(Some(&pipeline()), &[&deleting]), "create prod of 2 at 20");
        let refused = rejected(20, 0);
        assert_eq!(shown(Some(&pipeline()), &[&refused]), "delete 20", "it takes the name");
        fresh.metadata.deletion_timestamp.clone_from(&deleting.metadata.deletion_timestamp);
        assert_eq!(shown(Some(&pipeline()), &[&fresh]), "wait", "it is not created again");
    }

    #[test]
    fn promotions_to_one_environment_do_not_wait_for_another_environment() {
        let both = with(STAGING, |staging| *staging = environment("staging", "1", 20));
        assert_eq!(shown(Some(&both), &[]), "create staging of 2 at 10");
        let suspended = with_policy(|policy| policy.suspend = true);
        assert_eq!(shown(Some(&suspended), &[]), "wait");
        let requested = promotion((20, 0), &[Requested], "");
        assert_eq!(shown(Some(&pipeline()), &[&requested]), "wait until 604901");
        let done = with(PROD, |prod| *prod = environment("prod", "2", 25));
        assert_eq!(shown(Some(&done), &[&requested]), "20 is Finished Running");
        assert_eq!(shown(Some(&done), &[&promotion((20, 0), &[Requested, Finished], "")]), "wait");
    }

    #[test]
    fn a_refused_write_of_a_promotion_does_not_stop_other_promotions() {
        let mut both = with(STAGING, |staging| *staging = environment("staging", "1", 20));
        both.status.as_mut().unwrap().environments[PROD] = environment("prod", "0", 0);
        let shown = |refused: &[&str]| {
            let refused: BTreeSet<String> = refused.iter().map(|name| (*name).to_owned()).collect();
            shown_without(Some(&both), &[], &refused)
        };
        let spec = |environment: &str, from: &str, revision: &str, occasion: i64| PromotionSpec {
            environment: environment.into(),
            from: from.into(),
            revision: revision.into(),
            ..spec_of(occasion, 0)
        };
        let (staging, prod) = (name(&spec("staging", "dev", "2", 10)), name(&spec("prod", "staging", "1", 20)));
        assert_eq!(shown(&[]), "create staging of 2 at 10");
        assert_eq!(shown(&[&staging]), "create prod of 1 at 20");
        assert_eq!(shown(&[&staging, &prod]), "wait");
        let open = promotion((10, 0), &[Pending], "");
        let refused = BTreeSet::from([open.name_any()]);
        assert_eq!(shown_without(None, &[&open, &new(spec_of(20, 0))], &refused), "20 is Withdrawn PipelineGone");
    }

    #[test]
    fn all_promotions_of_a_deleted_pipeline_are_withdrawn() {
        let (open, fresh) = (promotion((10, 0), &[Requested], ""), new(spec_of(20, 0)));
        assert_eq!(shown(None, &[&fresh, &open]), "10 is Withdrawn PipelineGone");
        assert_eq!(shown(None, &[&fresh]), "20 is Withdrawn PipelineGone");
        assert_eq!(shown(None, &[&rejected(20, 0)]), "wait");
        assert_eq!(shown(None, &[]), "wait");
    }
}
