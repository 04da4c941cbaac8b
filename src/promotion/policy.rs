//! Pure: the settings by which a revision goes to an environment, with their defaults.

use std::time::Duration;

use crate::api::promotion::{PromotionPolicy, PromotionStrategy};
use crate::api::{PipelineSpec, duration};

/// How long an environment may take to run a revision.
const TIMEOUT: Duration = Duration::from_hours(168);
/// How many ended promotions of an environment are kept.
const KEEP: usize = 10;
/// How long an ended promotion is kept.
pub(super) const MAX_AGE: Duration = Duration::from_hours(2160);

/// How a revision goes to one environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether a promotion waits for an approval.
    pub manual: bool,
    /// How long the environment before must have been ready.
    pub after: Duration,
    /// Whether no promotion is started.
    pub suspend: bool,
    /// How long the environment may take to run the revision.
    pub timeout: Duration,
    /// How the revision gets there.
    pub strategy: PromotionStrategy,
    /// How many ended promotions are kept.
    pub keep: usize,
    /// How long an ended promotion is kept.
    pub max_age: Duration,
}

/// Returns the policy of an environment. `None`: nothing is promoted to it, because it is the first one, or has no strategy.
#[must_use]
pub fn policy(spec: &PipelineSpec, index: usize) -> Option<Policy> {
    let of = declared(spec, index)?;
    let strategy = of.strategy.clone().filter(|strategy| !strategy_name(strategy).is_empty())?;
    let (keep, max_age) = retention(spec, index);
    Some(Policy {
        manual: of.manual,
        after: span(of.after.as_deref(), Duration::ZERO),
        suspend: of.suspend,
        timeout: span(of.timeout.as_deref(), TIMEOUT),
        strategy,
        keep,
        max_age,
    })
}

/// Returns whether anything is promoted in a pipeline.
#[must_use]
pub fn is_promoted(spec: &PipelineSpec) -> bool {
    let has_strategy = |index| declared(spec, index).is_some_and(|of: &PromotionPolicy| of.strategy.is_some());
    (1..spec.environments.len()).any(has_strategy)
}

/// Returns how many ended promotions of an environment are kept, and for how long. An environment without a strategy can have promotions
/// from before.
#[must_use]
pub(super) fn retention(spec: &PipelineSpec, index: usize) -> (usize, Duration) {
    let retain = declared(spec, index).and_then(|of| of.retain.as_ref());
    let keep = retain.and_then(|retain| retain.per_environment).and_then(|keep| usize::try_from(keep).ok());
    (keep.unwrap_or(KEEP), span(retain.and_then(|retain| retain.max_age.as_deref()), MAX_AGE))
}

/// Returns the name of a strategy.
#[must_use]
pub fn strategy_name(strategy: &PromotionStrategy) -> &'static str {
    if strategy.notification.is_some() { "notification" } else { "" }
}

/// Returns what the pipeline declares for an environment. The policy of the environment replaces that of the pipeline as a whole.
fn declared(spec: &PipelineSpec, index: usize) -> Option<&PromotionPolicy> {
    let environment = spec.environments.get(index).filter(|_| index > 0)?;
    environment.promotion.as_ref().or(spec.promotion.as_ref())
}

fn span(text: Option<&str>, default: Duration) -> Duration {
    text.and_then(duration).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::pipeline::Environment;
    use crate::api::promotion::{NotificationStrategy, RetainPromotions};

    fn notification() -> PromotionStrategy {
        PromotionStrategy { notification: Some(NotificationStrategy {}), ..PromotionStrategy::default() }
    }

    fn spec(of_pipeline: Option<PromotionPolicy>, of_environment: Option<PromotionPolicy>) -> PipelineSpec {
        let environment = |name: &str, promotion| Environment { name: name.into(), promotion, ..Environment::default() };
        PipelineSpec {
            environments: vec![environment("dev", None), environment("prod", of_environment)],
            promotion: of_pipeline,
            ..PipelineSpec::default()
        }
    }

    #[test]
    fn the_policy_of_an_environment_replaces_that_of_the_pipeline() {
        let whole = PromotionPolicy { manual: true, strategy: Some(notification()), ..PromotionPolicy::default() };
        let own = PromotionPolicy { strategy: Some(notification()), ..PromotionPolicy::default() };
        let nothing = PromotionPolicy::default();
        let empty = PromotionPolicy { strategy: Some(PromotionStrategy::default()), ..PromotionPolicy::default() };
        for (what, of_pipeline, of_environment, manual) in [
            ("none", None, None, None),
            ("of the pipeline", Some(&whole), None, Some(true)),
            ("of the environment", None, Some(&own), Some(false)),
            ("both", Some(&whole), Some(&own), Some(false)),
            ("turned off", Some(&whole), Some(&nothing), None),
            ("a strategy of another version", Some(&whole), Some(&empty), None),
        ] {
            let spec = spec(of_pipeline.cloned(), of_environment.cloned());
            assert_eq!(policy(&spec, 1).map(|policy| policy.manual), manual, "{what}");
            assert_eq!(policy(&spec, 0), None, "{what}: nothing is before the first environment");
            assert_eq!(policy(&spec, 2), None, "{what}: there is no such environment");
        }
        assert!(is_promoted(&spec(Some(whole.clone()), None)));
        assert!(!is_promoted(&spec(Some(whole), Some(nothing))));
        assert!(!is_promoted(&spec(None, None)));
    }

    #[test]
    fn every_setting_has_a_default() {
        let plain = PromotionPolicy { strategy: Some(notification()), ..PromotionPolicy::default() };
        let found = policy(&spec(None, Some(plain.clone())), 1).unwrap();
        assert_eq!((found.manual, found.suspend, found.after), (false, false, Duration::ZERO));
        assert_eq!((found.timeout, found.keep, found.max_age), (TIMEOUT, KEEP, MAX_AGE));
        assert_eq!(strategy_name(&found.strategy), "notification");
        let retain = Some(RetainPromotions { per_environment: Some(3), max_age: Some("1h".into()) });
        let (after, timeout) = (Some("1h30m".into()), Some("2m".into()));
        let set = PromotionPolicy { after, timeout, suspend: true, retain, ..plain };
        let found = policy(&spec(None, Some(set)), 1).unwrap();
        let minutes = Duration::from_mins;
        assert_eq!((found.after, found.timeout, found.max_age), (minutes(90), minutes(2), minutes(60)));
        assert_eq!((found.suspend, found.keep), (true, 3));
    }
}
