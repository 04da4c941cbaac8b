//! Values for the tests of this module, and of the promotion controller.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, clippy::must_use_candidate, reason = "only tests use it")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1;

use super::names::name;
use relaybook_api::conditions::{Condition, ConditionStatus, READY};
use relaybook_api::delivery::{PipelineRef, TransitionType};
use relaybook_api::pipeline::{Environment, EnvironmentStatus, Target, TargetStatus};
use relaybook_api::promotion::{
    CommitStrategy, EnvironmentPromotion, GitRepository, NotificationStrategy, Phase, PromotedPipeline, PromotionPolicy,
    PromotionState, PromotionStrategy, PullRequestStrategy, Step,
};
use relaybook_api::values::refs::{AppRef, ClusterAppRef};
use relaybook_api::{
    DeliverySpec, Pipeline, PipelineSpec, PipelineStatus, Promotion, PromotionSpec, PromotionStatus, Settled, State, Status,
    Time,
};

/// The index of the first environment.
pub const DEV: usize = 0;
/// The index of the second environment.
pub const STAGING: usize = 1;
/// The index of the last environment.
pub const PROD: usize = 2;
/// The names of the environments.
pub const ENVIRONMENTS: [&str; 3] = ["dev", "staging", "prod"];

/// Returns a time, in seconds since 1970.
pub fn at(second: i64) -> Time {
    Time::from_second(second).unwrap()
}

/// Returns a policy with the strategy `notification`.
pub fn automatic() -> PromotionPolicy {
    let strategy = Some(PromotionStrategy { notification: Some(NotificationStrategy {}), ..PromotionStrategy::default() });
    PromotionPolicy { strategy, ..PromotionPolicy::default() }
}

fn repository() -> GitRepository {
    GitRepository { url: "https://git.example.com/acme/deploy.git".into(), ..GitRepository::default() }
}

/// Returns the strategy `commit`.
pub fn by_commit() -> PromotionStrategy {
    let of = CommitStrategy { repository: repository(), branch: None };
    PromotionStrategy { commit: Some(Box::new(of)), ..PromotionStrategy::default() }
}

/// Returns the strategy `pullRequest`.
pub fn by_pull_request() -> PromotionStrategy {
    let of = PullRequestStrategy { repository: repository(), ..PullRequestStrategy::default() };
    PromotionStrategy { pull_request: Some(Box::new(of)), ..PromotionStrategy::default() }
}

/// Returns the settled state of a target or an environment that runs a revision.
pub fn settled(revision: &str, reached: i64) -> Settled {
    Settled {
        status: Status::Current,
        revision: revision.to_owned(),
        current: Some(revision.to_owned()),
        reached,
        ..Settled::default()
    }
}

/// Returns an environment with one target that runs a revision.
pub fn environment(name: &str, revision: &str, reached: i64) -> EnvironmentStatus {
    let target = TargetStatus {
        cluster_app_ref: ClusterAppRef { name: "web".into(), namespace: name.to_owned(), ..ClusterAppRef::default() },
        status: Status::Current,
        ready: true,
        revision: revision.to_owned(),
        attempted_revision: revision.to_owned(),
        settled: Some(settled(revision, 0)),
        ..TargetStatus::default()
    };
    EnvironmentStatus {
        name: name.to_owned(),
        targets: vec![target],
        settled: Some(settled(revision, reached)),
        ..EnvironmentStatus::default()
    }
}

/// Returns pipeline `web` with dev, staging and prod. Dev runs 2 since change 10, staging runs 2 since change 20, and prod runs 1. Every
/// environment has the policy [`automatic`].
pub fn pipeline() -> Pipeline {
    let declared = |name: &str| Environment {
        name: name.to_owned(),
        targets: vec![Target { namespace: name.to_owned(), ..Target::default() }],
        ..Environment::default()
    };
    let spec = PipelineSpec {
        app_ref: AppRef {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: "web".into(),
            revision_path: None,
        },
        environments: ENVIRONMENTS.iter().map(|name| declared(name)).collect(),
        promotion: Some(automatic()),
        notifications: Vec::new(),
        ..PipelineSpec::default()
    };
    let mut pipeline = Pipeline::new("web", spec);
    pipeline.metadata.namespace = Some("team-a".into());
    pipeline.metadata.uid = Some("u".into());
    pipeline.metadata.generation = Some(1);
    pipeline.metadata.resource_version = Some("1".into());
    pipeline.status = Some(PipelineStatus {
        observed_generation: Some(1),
        environments: vec![environment("dev", "2", 10), environment("staging", "2", 20), environment("prod", "1", 0)],
        ..PipelineStatus::default()
    });
    pipeline
}

/// Returns the same pipeline with another status of an environment.
pub fn with(index: usize, edit: impl FnOnce(&mut EnvironmentStatus)) -> Pipeline {
    let mut pipeline = pipeline();
    edit(&mut pipeline.status.as_mut().unwrap().environments[index]);
    pipeline
}

/// Returns the same pipeline with another policy for all environments.
pub fn with_policy(edit: impl FnOnce(&mut PromotionPolicy)) -> Pipeline {
    let mut pipeline = pipeline();
    edit(pipeline.spec.promotion.as_mut().unwrap());
    pipeline
}

/// Returns `Ready=False` with this reason.
pub fn ready_condition(reason: &str) -> Condition {
    Condition {
        type_: READY.to_owned(),
        status: ConditionStatus::False,
        observed_generation: Some(1),
        last_transition_time: at(0),
        reason: reason.to_owned(),
        message: "because".to_owned(),
    }
}

/// Returns the spec of a promotion of 2 from staging to prod.
pub fn spec(occasion: i64, request: i64) -> PromotionSpec {
    PromotionSpec {
        pipeline_ref: PromotedPipeline { name: "web".into(), uid: "u".into() },
        environment: "prod".into(),
        from: "staging".into(),
        revision: "2".into(),
        previous: Some("1".into()),
        occasion,
        request,
        approved: false,
    }
}

/// Returns a promotion with this spec, which has no status. It was created at second 100.
pub fn new(spec: PromotionSpec) -> Promotion {
    let mut promotion = Promotion::new(&name(&spec), spec);
    promotion.metadata.namespace = Some("team-a".into());
    promotion.metadata.uid = Some("p".into());
    promotion.metadata.resource_version = Some("1".into());
    promotion.metadata.creation_timestamp = Some(v1::Time(at(100)));
    promotion
}

/// Returns a promotion of 2 to prod that went through these phases, one each second from second 101. The reason is that of the last one.
pub fn promotion(order: (i64, i64), phases: &[Phase], reason: &str) -> Promotion {
    let mut promotion = new(spec(order.0, order.1));
    let steps = (1..).zip(phases).map(|(step, phase)| Step {
        step,
        phase: *phase,
        reason: reason.to_owned(),
        message: String::new(),
        time: at(100 + step),
    });
    let steps: Vec<Step> = steps.collect();
    promotion.status = Some(PromotionStatus {
        phase: phases.last().copied(),
        reason: reason.to_owned(),
        step: steps.last().map_or(0, |last| last.step),
        steps,
        ..PromotionStatus::default()
    });
    promotion
}

/// Returns a promotion that was rejected.
pub fn rejected(occasion: i64, request: i64) -> Promotion {
    let mut promotion = new(spec(occasion, request));
    promotion.status = Some(PromotionStatus {
        phase: Some(Phase::Withdrawn),
        reason: super::reason::NOT_INDICATED.into(),
        ..PromotionStatus::default()
    });
    promotion
}

/// Returns what the status of the pipeline shows of a promotion.
pub fn mirror(promotion: &Promotion, taken: i64) -> EnvironmentPromotion {
    EnvironmentPromotion {
        name: promotion.metadata.name.clone().unwrap_or_default(),
        revision: promotion.spec.revision.clone(),
        phase: promotion.status.as_ref().and_then(|status| status.phase).unwrap_or_default(),
        occasion: promotion.spec.occasion,
        request: promotion.spec.request,
        taken,
        ..EnvironmentPromotion::default()
    }
}

/// Returns the spec of the Delivery by which `ci` requests the promotion with this uid.
pub fn request_spec(promotion: &str, serial: i64) -> DeliverySpec {
    let promotion = PromotionState { name: "p".into(), uid: promotion.into(), ..PromotionState::default() };
    DeliverySpec {
        notification: "ci".into(),
        pipeline_ref: PipelineRef { namespace: "team-a".into(), name: "web".into(), uid: "u".into() },
        serial,
        order: serial,
        type_: TransitionType::PromotionRequested,
        time: at(serial),
        to: State { promotion: Some(promotion), ..State::default() },
        ..DeliverySpec::default()
    }
}
