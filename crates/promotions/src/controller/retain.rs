//! Pure: which promotions are deleted, because they were kept for long enough.
//!
//! A promotion stays while its steps may not be in the log yet, and while the status of its pipeline names it. So a deleted promotion is
//! never created again: the status shows a later one.

use std::collections::BTreeMap;
use std::time::Duration;

use relaybook_api::{Pipeline, Promotion, Time};
use relaybook_core::promotion::action::earlier;
use relaybook_core::promotion::names::{order, order_of_mirror};
use relaybook_core::promotion::pair::{index_of, mirror};
use relaybook_core::promotion::plan::{counts, is_ended, is_terminating};
use relaybook_core::promotion::policy::{MAX_AGE, retention};

/// Which promotion is deleted next, and when to reconcile again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Surplus<'a> {
    /// The promotion to delete now: the oldest one of an environment.
    pub(crate) next: Option<&'a Promotion>,
    /// When the next one becomes too old.
    pub(crate) later: Option<Time>,
}

/// How many promotions are kept, and for how long.
#[derive(Clone, Copy)]
struct Rule {
    keep: usize,
    max_age: Duration,
}

/// Returns what is deleted of the promotions of a pipeline. `None`: the pipeline does not exist.
pub(crate) fn surplus<'a>(pipeline: Option<&Pipeline>, promotions: &[&'a Promotion], now: Time) -> Surplus<'a> {
    let mut groups: BTreeMap<(&str, bool), Vec<&'a Promotion>> = BTreeMap::new();
    for promotion in promotions.iter().copied().filter(|promotion| is_ended(promotion) && !is_terminating(promotion)) {
        groups.entry((promotion.spec.environment.as_str(), counts(promotion))).or_default().push(promotion);
    }
    let mut surplus = Surplus { next: None, later: None };
    for ((environment, _), mut group) in groups {
        group.sort_by_key(|promotion| std::cmp::Reverse(order(&promotion.spec)));
        let rule = rule(pipeline, environment);
        for (rank, promotion) in group.into_iter().enumerate() {
            let expires = ended(promotion).and_then(|ended| ended.checked_add(rule.max_age).ok()).unwrap_or(Time::MAX);
            if !is_logged(pipeline, promotion) {
                continue;
            }
            if rank >= rule.keep || expires <= now {
                surplus.next = Some(promotion);
            } else {
                surplus.later = earlier(surplus.later, Some(expires));
            }
        }
    }
    surplus
}

/// The promotions of a pipeline or an environment that does not exist are kept for the default time, whatever their number is.
fn rule(pipeline: Option<&Pipeline>, environment: &str) -> Rule {
    let place = pipeline.and_then(|pipeline| Some((pipeline, index_of(pipeline, environment)?)));
    place.map_or(Rule { keep: usize::MAX, max_age: MAX_AGE }, |(pipeline, index)| {
        let (keep, max_age) = retention(&pipeline.spec, index);
        Rule { keep, max_age }
    })
}

/// Whether nothing more will be read of a promotion: its steps are in the log, or will never be.
fn is_logged(pipeline: Option<&Pipeline>, promotion: &Promotion) -> bool {
    let Some(pipeline) = pipeline else { return true };
    let environment = &promotion.spec.environment;
    let is_never = !counts(promotion) || index_of(pipeline, environment).is_none();
    is_never || mirror(pipeline, environment).is_some_and(|mirror| order_of_mirror(mirror) > order(&promotion.spec))
}

/// Returns when a promotion ended. One without a step ended when it was created.
fn ended(promotion: &Promotion) -> Option<Time> {
    let last = promotion.status.as_ref().and_then(|status| status.steps.last()).map(|step| step.time);
    last.or(promotion.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Phase::{Failed, Finished, Requested, Withdrawn};
    use relaybook_api::promotion::{Phase, RetainPromotions};
    use relaybook_core::promotion::testing::{PROD, at, mirror as shown_as, pipeline, promotion, rejected};

    /// Returns a pipeline that keeps this number, and whose status shows this promotion.
    fn keeping(keep: u32, shown: Option<&Promotion>) -> Pipeline {
        let mut pipeline = pipeline();
        let retain = RetainPromotions { per_environment: Some(keep), max_age: Some("1h".into()) };
        pipeline.spec.promotion.as_mut().unwrap().retain = Some(retain);
        pipeline.status.as_mut().unwrap().environments[PROD].promotion = shown.map(|shown| shown_as(shown, 2));
        pipeline
    }

    fn ended(occasion: i64) -> Promotion {
        promotion((occasion, 0), &[Requested, Finished], "")
    }

    /// Returns the occasion of the promotion that is deleted, and when to reconcile again.
    fn found(pipeline: Option<&Pipeline>, promotions: &[Promotion], second: i64) -> (Option<i64>, Option<i64>) {
        let promotions: Vec<&Promotion> = promotions.iter().collect();
        let Surplus { next, later } = surplus(pipeline, &promotions, at(second));
        (next.map(|promotion| promotion.spec.occasion), later.map(Time::as_second))
    }

    #[test]
    fn the_oldest_promotions_beyond_the_number_or_the_age_are_deleted() {
        let all = [ended(10), ended(20), ended(30), ended(40)];
        let newest = ended(40);
        for (what, keep, second, expected) in [
            ("all are kept", 4, 200, (None, Some(3702))),
            ("one is too many", 3, 200, (Some(10), Some(3702))),
            ("two are too many", 2, 200, (Some(10), Some(3702))),
            ("all but one are too many, which the status names", 1, 200, (Some(10), None)),
            ("all are too old, but the status names one", 4, 3702, (Some(10), None)),
        ] {
            assert_eq!(found(Some(&keeping(keep, Some(&newest))), &all, second), expected, "{what}");
        }
    }

    #[test]
    fn promotions_that_may_be_missing_in_the_log_are_kept() {
        let all = [ended(10), ended(20), ended(30)];
        assert_eq!(found(Some(&keeping(1, None)), &all, 99999), (None, None), "the status was wiped");
        assert_eq!(found(Some(&keeping(1, Some(&ended(20)))), &all, 200), (Some(10), None), "30 is not in the log yet");
        let open = [promotion((10, 0), &[Requested], ""), ended(20)];
        assert_eq!(found(Some(&keeping(1, Some(&ended(20)))), &open, 99999), (None, None), "one that is not ended");
        let failed = [promotion((10, 0), &[Requested, Failed], "")];
        assert_eq!(found(Some(&keeping(1, Some(&failed[0]))), &failed, 99999), (None, None), "it can be retried");
    }

    #[test]
    fn rejected_promotions_do_not_count_for_the_number_that_is_kept() {
        let all = [ended(10), ended(20), rejected(30, 0), rejected(40, 0), rejected(50, 0)];
        let pipeline = keeping(2, Some(&ended(20)));
        assert_eq!(found(Some(&pipeline), &all, 200), (Some(30), Some(3700)));
        assert_eq!(found(Some(&pipeline), &all[..4], 200), (None, Some(3700)));
        assert_eq!(found(Some(&pipeline), &all[2..4], 3700), (Some(30), None), "the oldest goes first");
    }

    #[test]
    fn promotions_of_deleted_pipelines_are_kept_for_the_default_time() {
        let day = 24 * 3600;
        let all = [promotion((10, 0), &[Requested, Withdrawn], "PipelineGone"), rejected(20, 0)];
        assert_eq!(found(None, &all, 200), (None, Some(100 + 90 * day)));
        assert_eq!(found(None, &all[..1], 102 + 90 * day), (Some(10), None));
        let mut without = keeping(1, None);
        without.spec.environments.pop();
        assert_eq!(found(Some(&without), &all, 200), (None, Some(100 + 90 * day)));
        assert_eq!(found(Some(&without), &all[..1], 102 + 90 * day), (Some(10), None));
    }
}
