//! Pure: whether a promotion that has no status yet is valid.
//!
//! Everyone who can create Promotions can create any of them. So a promotion counts only if it is what the plan would create, or what a
//! person may request: the revision that the environment before runs in all its targets.

use kube_core::ResourceExt as _;

use super::commits::Known;
use super::names::{name, order, order_of_mirror};
use super::pair::{Pair, index_of};
use super::plan::{counted, is_new, is_repeated};
use super::policy::policy;
use super::reason;
use super::text::{not_whole, shown};
use relaybook_api::{Pipeline, Promotion, PromotionSpec};

/// Whether a promotion is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is valid.
    Valid,
    /// That is not known yet.
    Unknown,
    /// It is not valid.
    Invalid {
        /// Machine-readable reason.
        reason: &'static str,
        /// Why, and how to continue.
        message: String,
    },
}

/// Judges a promotion without a status. `promotions`: those of its pipeline. `commits`: those of the promotions of all pipelines.
pub(super) fn admission(pipeline: &Pipeline, promotion: &Promotion, (promotions, commits): Known<'_>) -> Admission {
    let spec = &promotion.spec;
    let environment = shown(&spec.environment);
    if let Some(message) = not_whole(&spec.revision) {
        return invalid(reason::REVISION_NOT_SETTABLE, message);
    }
    if let Some(message) = misnamed(pipeline, promotion) {
        return invalid(reason::NOT_INDICATED, message);
    }
    let Some(index) = index_of(pipeline, &spec.environment) else {
        return invalid(reason::ENVIRONMENT_GONE, format!("the pipeline has no environment {environment}"));
    };
    let Some((pair, _)) = Pair::new(pipeline, index).zip(policy(&pipeline.spec, index)) else {
        return invalid(reason::NO_STRATEGY, format!("the pipeline has no promotion strategy for {environment}"));
    };
    if pair.from.name != spec.from {
        let from = shown(&pair.from.name);
        let message = format!("revisions go to {environment} from {from}, not from {}", shown(&spec.from));
        return invalid(reason::NOT_INDICATED, message);
    }
    if let Some(refused) = behind(&pair, promotion, promotions) {
        return refused;
    }
    if spec.request > 0 {
        return requested(&pair, spec);
    }
    // It can have been created before the check that saw the merge.
    let earlier = || {
        let all = counted(promotions, &spec.environment).filter(|other| order(&other.spec) < order(spec));
        all.max_by_key(|other| order(&other.spec)).map(|other| other.spec.revision.as_str())
    };
    if is_repeated(&pair, &spec.revision, earlier, (promotions, commits)) {
        let message = format!("{} is a commit that a promotion made", shown(&spec.revision));
        return invalid(reason::OWN_COMMIT, message);
    }
    indicated(&pair, spec)
}

fn invalid(reason: &'static str, message: String) -> Admission {
    Admission::Invalid { reason, message }
}

/// Returns the remedy for a promotion that a person has requested.
fn remedy(spec: &PromotionSpec) -> String {
    format!("use `relaybook promote {} {}`", shown(&spec.pipeline_ref.name), shown(&spec.environment))
}

/// Returns the message for a promotion whose name is not the function of its spec. Another name would be another guard.
fn misnamed(pipeline: &Pipeline, promotion: &Promotion) -> Option<String> {
    let spec = &promotion.spec;
    if spec.pipeline_ref.name != pipeline.name_any() {
        let (named, pipeline) = (shown(&spec.pipeline_ref.name), shown(&pipeline.name_any()));
        return Some(format!("spec.pipelineRef names {named}, but its uid is that of {pipeline}; {}", remedy(spec)));
    }
    let expected = name(spec);
    (promotion.name_any() != expected)
        .then(|| format!("the name of this promotion must be {}; {}", shown(&expected), remedy(spec)))
}

/// Refuses a promotion that is not newer than all others. Its steps would not be in the log.
fn behind(pair: &Pair<'_>, promotion: &Promotion, promotions: &[&Promotion]) -> Option<Admission> {
    let (own, name) = (order(&promotion.spec), promotion.name_any());
    let others = counted(promotions, &pair.to.name).filter(|other| !is_new(other) && other.name_any() != name);
    let others = others.map(|other| (order(&other.spec), other.name_any()));
    // Of a promotion that was taken as the newest one before its first step, nothing is in the log.
    let logged = pair.mirror().filter(|mirror| mirror.taken > 0 || mirror.name != name);
    let logged = logged.map(|mirror| (order_of_mirror(mirror), mirror.name.clone()));
    let (newest, of) = others.chain(logged).filter(|(other, _)| *other >= own).max()?;
    if newest > own {
        return Some(invalid(reason::SUPERSEDED, format!("a later promotion exists or existed: {}", shown(&of))));
    }
    // The log contains a promotion of this name, which was deleted, or another one of the same occasion.
    let message = format!("the promotion {} was started before; {}", shown(&of), remedy(&promotion.spec));
    Some(invalid(reason::NOT_INDICATED, message))
}

/// Judges a promotion that Relaybook started: it must be what the plan says.
fn indicated(pair: &Pair<'_>, spec: &PromotionSpec) -> Admission {
    let Some(source) = pair.source() else { return Admission::Unknown };
    let from = shown(&pair.from.name);
    if source.reached > spec.occasion {
        let message = format!("{from} came to run another revision, or the same one again, after this occasion");
        return invalid(reason::SUPERSEDED, message);
    }
    if source.reached == spec.occasion && spec.occasion > 0 && source.current.as_ref() == Some(&spec.revision) {
        return Admission::Valid;
    }
    let message = format!(
        "{from} did not come to run {} at this occasion; {}, if {from} runs it",
        shown(&spec.revision),
        remedy(spec)
    );
    invalid(reason::NOT_INDICATED, message)
}

/// Judges a promotion that a person requested.
fn requested(pair: &Pair<'_>, spec: &PromotionSpec) -> Admission {
    if pair.not_observed().is_some() {
        return Admission::Unknown;
    }
    let (from, to, revision) = (shown(&pair.from.name), shown(&pair.to.name), shown(&spec.revision));
    if pair.ready().is_none_or(|source| source.revision != spec.revision) {
        let message = format!("not all targets of {from} run {revision}; wait until they do, and {}", remedy(spec));
        return invalid(reason::NOT_INDICATED, message);
    }
    if pair.runs(&spec.revision) {
        return invalid(reason::NOT_INDICATED, format!("{to} runs {revision} already; nothing has to be promoted"));
    }
    let latest = pair.reached().max(pair.mirror().map_or(0, |mirror| mirror.occasion));
    if spec.occasion > latest || spec.occasion < pair.reached() {
        return invalid(reason::NOT_INDICATED, format!("spec.occasion must be {latest}; {}", remedy(spec)));
    }
    Admission::Valid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promotion::commits::Commits;
    use crate::promotion::testing::{
        PROD, STAGING, environment, mirror, new, pipeline, promotion, rejected, spec, with, with_policy,
    };
    use relaybook_api::promotion::{Phase, PromotionPullRequest};
    use relaybook_api::{PromotionStatus, Status};

    fn judged(pipeline: &Pipeline, promotion: &Promotion, others: &[&Promotion]) -> String {
        let all: Vec<&Promotion> = others.iter().copied().chain([promotion]).collect();
        match admission(pipeline, promotion, (&all, &Commits::default())) {
            Admission::Valid => "valid".to_owned(),
            Admission::Unknown => "unknown".to_owned(),
            Admission::Invalid { reason, message } => format!("{reason}: {message}"),
        }
    }

    #[test]
    fn a_promotion_of_relaybook_is_valid_only_if_the_plan_indicates_it() {
        let away = with(STAGING, |staging| staging.settled.as_mut().unwrap().status = Status::InProgress);
        let baseline = with(STAGING, |staging| staging.settled.as_mut().unwrap().reached = 0);
        let unseen = with(STAGING, |staging| staging.targets[0].status = Status::Unknown);
        let mut edited = pipeline();
        edited.metadata.generation = Some(2);
        let mut gone = pipeline();
        gone.spec.environments.pop();
        let off = with_policy(|policy| policy.strategy = None);
        let of = |edit: &dyn Fn(&mut PromotionSpec)| {
            let mut spec = spec(20, 0);
            edit(&mut spec);
            new(spec)
        };
        let mut misnamed = new(spec(20, 0));
        misnamed.metadata.name = Some("web".into());
        for (what, pipeline, promotion, expected) in [
            ("as the plan says", &pipeline(), new(spec(20, 0)), "valid"),
            ("not ready for a moment", &away, new(spec(20, 0)), "valid"),
            ("not seen for a moment", &unseen, new(spec(20, 0)), "valid"),
            ("not processed", &edited, new(spec(20, 0)), "unknown"),
            ("an earlier occasion", &pipeline(), new(spec(10, 0)), "Superseded: staging came to run another"),
            ("a later occasion", &pipeline(), new(spec(30, 0)), "NotIndicated: staging did not come to run 2"),
            ("a baseline", &baseline, new(spec(20, 0)), "NotIndicated: staging did not come to run 2"),
            ("no occasion", &baseline, new(spec(0, 0)), "NotIndicated: staging did not come to run 2"),
            (
                "another revision",
                &pipeline(),
                of(&|s| s.revision = "3".into()),
                "NotIndicated: staging did not come to run 3",
            ),
            ("another name", &pipeline(), misnamed, "NotIndicated: the name of this promotion must be web-prod-"),
            ("another pipeline", &pipeline(), of(&|s| s.pipeline_ref.name = "a".into()), "NotIndicated: spec.pipelineRef"),
            (
                "another source",
                &pipeline(),
                of(&|s| s.from = "dev".into()),
                "NotIndicated: revisions go to prod from staging",
            ),
            ("no environment", &gone, new(spec(20, 0)), "EnvironmentGone: the pipeline has no environment prod"),
            ("the first", &pipeline(), of(&|s| s.environment = "dev".into()), "NoStrategy: the pipeline has no promotion"),
            ("no strategy", &off, new(spec(20, 0)), "NoStrategy: the pipeline has no promotion strategy for prod"),
        ] {
            let found = judged(pipeline, &promotion, &[]);
            assert!(found.starts_with(expected), "{what}: {found}");
        }
    }

    #[test]
    fn a_promotion_of_a_person_is_valid_only_for_the_revision_that_runs() {
        let away = with(STAGING, |staging| staging.settled.as_mut().unwrap().status = Status::InProgress);
        let unseen = with(PROD, |prod| prod.targets[0].status = Status::Unknown);
        let baseline = with(STAGING, |staging| staging.settled.as_mut().unwrap().reached = 0);
        let ended = promotion((20, 0), &[Phase::Requested, Phase::Failed], "");
        let mut wiped = baseline.clone();
        wiped.status.as_mut().unwrap().environments[PROD].promotion = Some(mirror(&ended, 2));
        let same = with(PROD, |prod| *prod = environment("prod", "2", 0));
        let mut other = spec(20, 1);
        other.revision = "3".into();
        let cut = relaybook_api::values::revision::cut("1.2.3-".repeat(80));
        let long = with(STAGING, |staging| *staging = environment("staging", &cut, 20));
        let of_long = new(PromotionSpec { revision: cut, ..spec(20, 1) });
        for (what, pipeline, promotion, expected) in [
            ("a cut revision", &long, of_long, "RevisionNotSettable: the revision 1.2.3-"),
            ("the revision runs", &pipeline(), new(spec(20, 1)), "valid"),
            ("at first sight", &baseline, new(spec(0, 1)), "valid"),
            ("after a baseline", &wiped, new(spec(20, 1)), "valid"),
            ("not ready", &away, new(spec(20, 1)), "NotIndicated: not all targets of staging run 2; wait"),
            ("not observed", &unseen, new(spec(20, 1)), "unknown"),
            ("another revision", &pipeline(), new(other), "NotIndicated: not all targets of staging run 3"),
            ("it runs there", &same, new(spec(20, 1)), "NotIndicated: prod runs 2 already"),
            ("a later occasion", &pipeline(), new(spec(21, 1)), "NotIndicated: spec.occasion must be 20"),
            ("an earlier occasion", &pipeline(), new(spec(19, 1)), "NotIndicated: spec.occasion must be 20"),
        ] {
            let found = judged(pipeline, &promotion, &[]);
            assert!(found.starts_with(expected), "{what}: {found}");
        }
    }

    #[test]
    fn a_promotion_that_is_not_the_newest_is_refused() {
        let ended = promotion((20, 1), &[Phase::Requested, Phase::Finished], "");
        let own = promotion((20, 0), &[Phase::Requested], "");
        let deleted = with(PROD, |prod| prod.promotion = Some(mirror(&own, 1)));
        let taken = with(PROD, |prod| prod.promotion = Some(mirror(&own, 0)));
        let newer = with(PROD, |prod| prod.promotion = Some(mirror(&ended, 1)));
        let refused = rejected(30, 0);
        let mut empty = new(spec(20, 2));
        empty.status = Some(PromotionStatus::default());
        for (what, pipeline, promotion, others, expected) in [
            ("alone", &pipeline(), new(spec(20, 0)), vec![], "valid"),
            ("a later one ended", &pipeline(), new(spec(20, 0)), vec![&ended], "Superseded: a later promotion exists"),
            ("a later one was deleted", &newer, new(spec(20, 0)), vec![], "Superseded: a later promotion exists"),
            ("it has no step yet", &taken, new(spec(20, 0)), vec![], "valid"),
            ("it was deleted", &deleted, new(spec(20, 0)), vec![], "NotIndicated: the promotion web-prod-"),
            ("a later request", &pipeline(), new(spec(20, 2)), vec![&ended], "valid"),
            ("an empty status is none", &pipeline(), new(spec(20, 1)), vec![&empty], "valid"),
            ("one that was rejected", &pipeline(), new(spec(20, 0)), vec![&refused], "valid"),
        ] {
            let found = judged(pipeline, &promotion, &others);
            assert!(found.starts_with(expected), "{what}: {found}");
        }
    }

    #[test]
    fn a_commit_of_a_promotion_is_not_promoted_although_the_merge_is_seen_later() {
        let merge = "9c1e1fd3".repeat(5);
        let moved = with(STAGING, |staging| *staging = environment("staging", &merge, 30));
        let next = new(PromotionSpec { revision: merge.clone(), occasion: 30, ..spec(30, 0) });
        let open = promotion((20, 0), &[Phase::Requested, Phase::Open], "Opened");
        let judged = |before: &Promotion| admission(&moved, &next, (&[before, &next], &Commits::default()));
        assert_eq!(judged(&open), Admission::Valid, "the merge is not known");
        let mut merged = open;
        merged.status.as_mut().unwrap().pull_request =
            Some(PromotionPullRequest { merge_commit: Some(merge.clone()), ..PromotionPullRequest::default() });
        assert!(matches!(judged(&merged), Admission::Invalid { reason: reason::OWN_COMMIT, .. }));
    }
}
