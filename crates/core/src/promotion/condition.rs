//! Pure: the condition `PromotionPending` of a pipeline. It is `True` while something could be promoted and is not, and says what to do.

use kube_core::ResourceExt as _;

use super::pair::Pair;
use super::plan::{Plan, is_new, newest, plan};
use super::policy::{Policy, policy};
use super::reason;
use super::text::{bounded, revision, shown};
use relaybook_api::conditions::ConditionStatus;
use relaybook_api::promotion::{Phase, missing, with_missing};
use relaybook_api::{Pipeline, Promotion, duration_text};

/// The reasons for `True`. If several environments wait, the first one of them is shown.
const REASONS: [&str; 8] = [
    reason::WAITING_APPROVAL,
    reason::SOAKING,
    reason::ENVIRONMENT_NOT_READY,
    reason::NOT_OBSERVED,
    reason::REVISION_NOT_SETTABLE,
    reason::BASELINE,
    reason::OWN_COMMIT,
    reason::SUSPENDED,
];
/// Maximum number of environments in the message.
const NAMED: usize = 5;

/// The condition. Its type is [`relaybook_api::conditions::PROMOTION_PENDING`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its status.
    pub status: ConditionStatus,
    /// Its reason.
    pub reason: &'static str,
    /// Its message, which names each environment that waits, and what to do.
    pub message: String,
}

/// Returns the condition of a pipeline. `None`: no environment has a strategy. `promotions`: those of this pipeline.
#[must_use]
pub fn pending(pipeline: &Pipeline, promotions: &[&Promotion]) -> Option<Pending> {
    let environments = 1..pipeline.spec.environments.len();
    let policies: Vec<_> =
        environments.filter_map(|i| Pair::new(pipeline, i).zip(policy(&pipeline.spec, i)).zip(Some(i))).collect();
    if policies.is_empty() {
        return None;
    }
    let waits = policies.iter().filter_map(|((pair, policy), index)| waits(pipeline, pair, policy, *index, promotions));
    let waits: Vec<(usize, String)> = waits.collect();
    let Some(reason) = waits.iter().map(|(rank, _)| *rank).min().and_then(|rank| REASONS.get(rank).copied()) else {
        let message = "no environment waits for a promotion".to_owned();
        return Some(Pending { status: ConditionStatus::False, reason: reason::UP_TO_DATE, message });
    };
    let mut parts: Vec<&str> = waits.iter().take(NAMED).map(|(_, message)| message.as_str()).collect();
    let more = waits.len().saturating_sub(NAMED);
    let more_text = format!("and {more} more environments");
    if more > 0 {
        parts.push(&more_text);
    }
    Some(Pending { status: ConditionStatus::True, reason, message: bounded(&parts.join("; ")) })
}

/// Returns what an environment waits for: the rank of the reason, and a message.
fn waits(
    pipeline: &Pipeline,
    pair: &Pair<'_>,
    policy: &Policy,
    index: usize,
    promotions: &[&Promotion],
) -> Option<(usize, String)> {
    let newest = newest(promotions, &pair.to.name);
    let phase = newest.and_then(|newest| newest.status.as_ref()).and_then(|status| status.phase);
    let (reason, message) = match newest {
        Some(open) if phase == Some(Phase::Pending) => of_promotion(pipeline, open, pair, policy)?,
        // It was requested, or the promotion controller has not read it yet.
        Some(open) if is_new(open) || !phase.is_some_and(Phase::is_ended) => return None,
        _ => of_plan(pipeline, pair, plan(pipeline, index, promotions))?,
    };
    Some((REASONS.iter().position(|known| *known == reason)?, message))
}

/// Returns what a promotion waits for, as its status says.
fn of_promotion<'a>(
    pipeline: &Pipeline,
    promotion: &'a Promotion,
    pair: &Pair<'_>,
    policy: &Policy,
) -> Option<(&'a str, String)> {
    let status = promotion.status.as_ref()?;
    let (to, from, what) = (shown(&pair.to.name), shown(&pair.from.name), revision(&promotion.spec.revision));
    let missing = missing(&status.message);
    let message = match status.reason.as_str() {
        reason::WAITING_APPROVAL => {
            format!("{to} waits for an approval of {what}: `relaybook approve {} {to}`", shown(&pipeline.name_any()))
        }
        reason::SOAKING => {
            let after = duration_text(policy.after);
            format!("{to} waits for {what}, until {from} has been ready for {after} without interruption")
        }
        _ => format!("{to} waits for {what}: {}", status.message),
    };
    Some((status.reason.as_str(), with_missing(&message, missing)))
}

/// Returns what could be promoted although there is no open promotion.
fn of_plan(pipeline: &Pipeline, pair: &Pair<'_>, plan: Plan) -> Option<(&'static str, String)> {
    let (to, from) = (shown(&pair.to.name), shown(&pair.from.name));
    // While both environments were last ready at the same revision, nothing is missing.
    let last = pair.source().and_then(|source| source.current.as_deref());
    let differs = last.is_some_and(|last| !last.is_empty() && pair.last() != Some(last));
    match plan {
        Plan::OwnCommit(_) => {
            let message = format!(
                "{to}: {from} runs a commit that a promotion made, and it is not promoted again; use versions \
                 as revisions, or one repository for each environment"
            );
            Some((reason::OWN_COMMIT, message))
        }
        Plan::NotObserved(why) => differs.then(|| (reason::NOT_OBSERVED, format!("{to}: {why}"))),
        Plan::NotSettable(why) => Some((reason::REVISION_NOT_SETTABLE, format!("{to}: {why}"))),
        Plan::EnvironmentNotReady(why) => differs.then(|| (reason::ENVIRONMENT_NOT_READY, format!("{to}: {why}"))),
        Plan::Baseline(indication) => {
            let (what, name) = (revision(&indication.revision), shown(&pipeline.name_any()));
            let message = format!(
                "{from} ran {what} when it was first seen; `relaybook promote {name} {to}` starts a promotion to {to}"
            );
            Some((reason::BASELINE, message))
        }
        Plan::Suspended(indication) => {
            let what = revision(&indication.revision);
            let message =
                format!("{to} waits for {what}: promotions are suspended; set promotion.suspend to false to continue");
            Some((reason::SUSPENDED, message))
        }
        Plan::UpToDate | Plan::Exists(_) | Plan::Create(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promotion::testing::{
        DEV, ENVIRONMENTS, PROD, STAGING, environment, new, pipeline, promotion, spec, with, with_policy,
    };
    use Phase::{Failed, Requested, Withdrawn};
    use relaybook_api::Status;

    fn told(pipeline: &Pipeline, promotions: &[&Promotion]) -> String {
        pending(pipeline, promotions).map_or_else(String::new, |pending| {
            assert_eq!(pending.status == ConditionStatus::True, pending.reason != reason::UP_TO_DATE);
            format!("{}: {}", pending.reason, pending.message)
        })
    }

    #[test]
    fn the_condition_of_promotions_says_what_a_person_can_do() {
        let waits = |reason: &str| promotion((20, 0), &[Phase::Pending], reason);
        let (approval, soaks) = (waits("WaitingApproval"), waits("Soaking"));
        let mut absent = waits("WaitingApproval");
        absent.status.as_mut().unwrap().message = "waits; a target is missing: Deployment web does not exist".into();
        let mut unseen = waits("NotObserved");
        unseen.status.as_mut().unwrap().message = "a target of prod cannot be observed: Unreachable".into();
        let requested = promotion((20, 0), &[Requested], "WaitingForEnvironment");
        let failed = promotion((20, 0), &[Requested, Failed], "NotRunning");
        let withdrawn = promotion((10, 0), &[Withdrawn], "SourceMoved");
        let fresh = new(spec(20, 0));
        let after = with_policy(|policy| policy.after = Some("60m".into()));
        let baseline = with(STAGING, |staging| staging.settled.as_mut().unwrap().reached = 0);
        let suspended = with_policy(|policy| policy.suspend = true);
        let off = with_policy(|policy| policy.strategy = None);
        let cut = relaybook_api::values::revision::cut("1.2.3-".repeat(80));
        let long = with(STAGING, |staging| *staging = environment("staging", &cut, 20));
        let not_settable = format!("RevisionNotSettable: prod: {}", super::super::text::not_whole(&cut).unwrap());
        let done = with(PROD, |prod| *prod = environment("prod", "2", 30));
        for (what, pipeline, promotions, expected) in [
            ("no strategy", &off, vec![&approval], ""),
            ("it will be created", &pipeline(), vec![], "UpToDate: no environment waits for a promotion"),
            ("it is new", &pipeline(), vec![&fresh], "UpToDate: no environment waits for a promotion"),
            ("requested", &pipeline(), vec![&requested], "UpToDate: no environment waits for a promotion"),
            ("failed", &pipeline(), vec![&failed], "UpToDate: no environment waits for a promotion"),
            ("done", &done, vec![], "UpToDate: no environment waits for a promotion"),
            ("cut", &long, vec![], not_settable.as_str()),
            (
                "an approval",
                &pipeline(),
                vec![&withdrawn, &approval],
                "WaitingApproval: prod waits for an approval of 2: `relaybook approve web prod`",
            ),
            (
                "an approval, and nothing is there",
                &pipeline(),
                vec![&absent],
                "WaitingApproval: prod waits for an approval of 2: `relaybook approve web prod`; a target is missing: Deployment web does \
                 not exist",
            ),
            (
                "it soaks",
                &after,
                vec![&soaks],
                "Soaking: prod waits for 2, until staging has been ready for 1h without interruption",
            ),
            (
                "out of sight",
                &pipeline(),
                vec![&unseen],
                "NotObserved: prod waits for 2: a target of prod cannot be observed: Unreachable",
            ),
            (
                "at first sight",
                &baseline,
                vec![],
                "Baseline: staging ran 2 when it was first seen; `relaybook promote web prod` starts a promotion to prod",
            ),
            (
                "suspended",
                &suspended,
                vec![],
                "Suspended: prod waits for 2: promotions are suspended; set promotion.suspend to false to continue",
            ),
        ] {
            assert_eq!(told(pipeline, &promotions), expected, "{what}");
        }
    }

    #[test]
    fn an_environment_that_is_not_ready_is_reported_only_if_revisions_differ() {
        let away = |revision: &str| {
            with(STAGING, |staging| {
                *staging = environment("staging", revision, 0);
                let settled = staging.settled.as_mut().unwrap();
                (settled.status, settled.revision) = (Status::InProgress, String::new());
            })
        };
        let mut same = away("1");
        same.status.as_mut().unwrap().environments[DEV] = environment("dev", "1", 0);
        assert_eq!(told(&same, &[]), "UpToDate: no environment waits for a promotion");
        let mut differs = away("2");
        let not_ready = "EnvironmentNotReady: prod: waiting for all targets of staging to be ready at one revision";
        assert_eq!(told(&differs, &[]), not_ready);
        differs.status.as_mut().unwrap().environments[PROD].targets[0].status = Status::Unknown;
        assert_eq!(told(&differs, &[]), "NotObserved: prod: a target of prod cannot be observed: its state is unknown");
    }

    #[test]
    fn one_message_describes_the_promotions_of_several_environments() {
        let mut both = with(STAGING, |staging| *staging = environment("staging", "1", 0));
        both.spec.environments[PROD].promotion = Some(crate::promotion::testing::automatic());
        both.status.as_mut().unwrap().environments[DEV] = environment("dev", "2", 0);
        let mut waits = promotion((20, 0), &[Phase::Pending], "WaitingApproval");
        waits.spec.environment = ENVIRONMENTS[PROD].into();
        let words = told(&both, &[&waits]);
        assert_eq!(
            words,
            "WaitingApproval: dev ran 2 when it was first seen; `relaybook promote web staging` starts a promotion to \
             staging; prod waits for an approval of 2: `relaybook approve web prod`"
        );
    }
}
