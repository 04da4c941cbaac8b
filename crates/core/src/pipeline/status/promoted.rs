//! Pure: what the promotions of a pipeline mean for its status.
//!
//! In: the promotions of the pipeline, if they are known in this leadership term. Out: their steps as changes of the log, the mirror of the
//! newest promotion in each environment, the promotion that waits for an approval, and the condition `PromotionPending`. While the promotions
//! are not known, all of these stay as they are.
//!
//! A settled state with a hash of its targets shows that the promotions to the environment were taken into the log before. Without the hash
//! the environment is new, or an earlier version has written it. Then it is not known which steps were reported, so they count as reported.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use relaybook_text::cut;

use super::Base;
use crate::changelog::{MAX_MESSAGE, add_repository, take_steps};
use crate::promotion::condition;
use relaybook_api::conditions;
use relaybook_api::conditions::PROMOTION_PENDING;
use relaybook_api::pipeline::EnvironmentStatus;
use relaybook_api::values::git::recorded;
use relaybook_api::{ChangeLog, Pipeline, PipelineStatus, Time};

/// Takes the new steps of the promotions into the log. `known`: the previous status, which is empty if the log is new.
pub fn take_promotions(
    environments: &mut [EnvironmentStatus],
    known: &PipelineStatus,
    base: &Base<'_>,
    log: &mut ChangeLog,
    now: Time,
) {
    let Some(promotions) = base.promotions else { return };
    let repository = recorded(base.pipeline.spec.repository());
    for environment in environments {
        let before = known.environments.iter().find(|known| known.name == environment.name);
        let is_new = before.is_none_or(|before| !is_taken(before));
        let first = log.changes.len();
        take_steps(environment, promotions, is_new, log, now);
        for change in log.changes.iter_mut().skip(first) {
            add_repository(change, environment.settled.as_ref(), &repository);
        }
    }
}

/// Whether promotions of this pipeline must not be started yet, although its status is complete otherwise: their first steps would count as
/// reported. The promotion controller waits until the status is that of the current generation.
pub fn must_wait(environments: &[EnvironmentStatus], base: &Base<'_>) -> bool {
    base.promotions.is_none() && promotes(base.pipeline) && !environments.iter().all(is_taken)
}

/// Whether the steps of the promotions to an environment were taken into the log before.
fn is_taken(environment: &EnvironmentStatus) -> bool {
    let is_compared = environment.settled.as_ref().is_some_and(|settled| !settled.members.is_empty());
    is_compared || environment.promotion.is_some()
}

/// Whether the spec mentions promotions.
fn promotes(pipeline: &Pipeline) -> bool {
    pipeline.spec.promotion.is_some() || pipeline.spec.environments.iter().any(|e| e.promotion.is_some())
}

/// Sets the condition `PromotionPending`, or removes it if nothing is promoted. A status of an earlier generation keeps it.
pub fn set_promotion_pending(status: &mut PipelineStatus, base: &Base<'_>, now: Time) {
    let generation = base.generation();
    let Some(promotions) = base.promotions.filter(|_| status.observed_generation == generation) else { return };
    let pending = if promotes(base.pipeline) {
        let shown = with_status(base.pipeline, std::mem::take(status));
        let pending = condition::pending(&shown, promotions);
        *status = shown.status.unwrap_or_default();
        pending
    } else {
        None
    };
    match pending {
        Some(condition::Pending { status: is, reason, message }) => {
            let message = cut(&message, MAX_MESSAGE);
            conditions::set(&mut status.conditions, PROMOTION_PENDING, is, reason, &message, generation, now);
        }
        None => status.conditions.retain(|condition| condition.type_ != PROMOTION_PENDING),
    }
}

/// Returns the pipeline as it is after this status is written.
fn with_status(pipeline: &Pipeline, status: PipelineStatus) -> Pipeline {
    let of = &pipeline.metadata;
    let metadata = ObjectMeta {
        name: of.name.clone(),
        namespace: of.namespace.clone(),
        uid: of.uid.clone(),
        generation: of.generation,
        ..ObjectMeta::default()
    };
    Pipeline { metadata, spec: pipeline.spec.clone(), status: Some(status) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changelog::open;
    use crate::pipeline::hooks::Keys;
    use relaybook_api::conditions::ConditionStatus;
    use relaybook_api::pipeline::Environment;
    use relaybook_api::promotion::{
        NotificationStrategy, Phase, PromotedPipeline, PromotionPolicy, PromotionStrategy, Step,
    };
    use relaybook_api::{Promotion, PromotionSpec, PromotionStatus, Settled};

    fn at(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    fn pipeline(promotes: bool) -> Pipeline {
        let strategy =
            Some(PromotionStrategy { notification: Some(NotificationStrategy {}), ..PromotionStrategy::default() });
        let promotion = promotes.then(|| PromotionPolicy { strategy, ..PromotionPolicy::default() });
        let mut pipeline = Pipeline::new("web", relaybook_api::PipelineSpec { promotion, ..Default::default() });
        let environment = |name: &str| Environment { name: name.into(), ..Environment::default() };
        pipeline.spec.environments = ["staging", "prod"].map(environment).into();
        pipeline.metadata.generation = Some(3);
        pipeline
    }

    fn requested() -> Promotion {
        let spec = PromotionSpec {
            pipeline_ref: PromotedPipeline { name: "web".into(), uid: "u".into() },
            environment: "prod".into(),
            from: "staging".into(),
            revision: "2".into(),
            occasion: 7,
            ..PromotionSpec::default()
        };
        let mut promotion = Promotion::new("web-prod-0a1b2c3d4e-7", spec);
        let step = Step { step: 1, phase: Phase::Requested, time: at(8), ..Step::default() };
        let status = PromotionStatus { phase: Some(Phase::Requested), step: 1, steps: vec![step], ..Default::default() };
        promotion.status = Some(status);
        promotion
    }

    fn environment(members: &str) -> EnvironmentStatus {
        let settled = Some(Settled { members: members.into(), ..Settled::default() });
        EnvironmentStatus { name: "prod".into(), settled, ..EnvironmentStatus::default() }
    }

    #[test]
    fn steps_are_reported_if_the_environment_was_compared_before() {
        let (pipeline, promotion) = (pipeline(true), requested());
        let listed = [&promotion];
        for (what, before, promotions, changes, is_shown) in [
            ("known", Some(environment("m")), Some(&listed[..]), 1, true),
            ("of an earlier version", Some(environment("")), Some(&listed), 0, true),
            ("without a state", Some(EnvironmentStatus { settled: None, ..environment("") }), Some(&listed), 0, true),
            ("new", None, Some(&listed), 0, true),
            ("the promotions are not known", Some(environment("m")), None, 0, false),
        ] {
            let base = Base { pipeline: &pipeline, promotions, highest: None, keys: &Keys::Usable };
            let known = PipelineStatus { environments: before.into_iter().collect(), ..PipelineStatus::default() };
            let (mut environments, mut log) = (vec![environment("m")], open(at(1), None));
            take_promotions(&mut environments, &known, &base, &mut log, at(9));
            assert_eq!((log.changes.len(), environments[0].promotion.is_some()), (changes, is_shown), "{what}");
            take_promotions(&mut environments.clone(), &PipelineStatus { environments, ..known }, &base, &mut log, at(9));
            assert_eq!(log.changes.len(), changes, "{what}: once");
        }
    }

    #[test]
    fn no_promotion_starts_while_its_steps_would_not_be_reported() {
        let mut shown = environment("");
        shown.promotion = Some(relaybook_api::promotion::EnvironmentPromotion::default());
        for (environment, spec_promotes, listed, want) in [
            (environment(""), true, false, true),
            (environment(""), true, true, false),
            (environment(""), false, false, false),
            (environment("m"), true, false, false),
            (shown, true, false, false),
        ] {
            let pipeline = pipeline(spec_promotes);
            let base =
                Base { pipeline: &pipeline, promotions: listed.then_some(&[][..]), highest: None, keys: &Keys::Usable };
            assert_eq!(must_wait(&[environment], &base), want, "{spec_promotes} {listed}");
        }
    }

    #[test]
    fn the_condition_is_absent_if_nothing_is_promoted() {
        let mut status = PipelineStatus { observed_generation: Some(3), ..PipelineStatus::default() };
        let is = ConditionStatus::True;
        conditions::set(&mut status.conditions, PROMOTION_PENDING, is, "WaitingApproval", "", Some(2), at(1));
        let pipeline = pipeline(false);
        let unknown = Base { pipeline: &pipeline, promotions: None, highest: None, keys: &Keys::Usable };
        let known = Base { promotions: Some(&[]), ..unknown };
        let before = status.clone();
        set_promotion_pending(&mut status, &unknown, at(2));
        assert_eq!(status, before, "the promotions are not known");
        let mut earlier = PipelineStatus { observed_generation: Some(2), ..before.clone() };
        set_promotion_pending(&mut earlier, &known, at(2));
        assert_eq!(earlier.conditions, before.conditions, "it is that of the generation before");
        set_promotion_pending(&mut status, &known, at(2));
        assert!(status.conditions.is_empty());
    }

    #[test]
    fn the_rest_of_the_status_stays_when_the_condition_is_set() {
        let (pipeline, promotion) = (pipeline(true), requested());
        let listed = [&promotion];
        let base = Base { pipeline: &pipeline, promotions: Some(&listed), highest: None, keys: &Keys::Usable };
        let environments = vec![environment("m")];
        let before = PipelineStatus { observed_generation: Some(3), environments, ..PipelineStatus::default() };
        let mut status = before.clone();
        set_promotion_pending(&mut status, &base, at(2));
        assert_eq!(PipelineStatus { conditions: vec![], ..status.clone() }, before);
        let again = status.clone();
        set_promotion_pending(&mut status, &base, at(3));
        assert_eq!(status, again, "the same situation is the same condition");
    }
}
