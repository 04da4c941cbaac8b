//! Pure: the settings by which a revision goes to an environment, with their defaults.

use std::collections::BTreeMap;
use std::time::Duration;

use relaybook_api::promotion::{GitRepository, PromotionPolicy, PromotionRetry, PromotionStrategy, PullRequestStrategy};
use relaybook_api::{PipelineSpec, duration};

/// How long an environment may take to run a revision after a request. A receiver carries it out, perhaps a person.
const TIMEOUT: Duration = Duration::from_hours(168);
/// How long an environment may take to run a revision that is declared for it.
const TIMEOUT_OF_DECLARED: Duration = Duration::from_hours(1);
/// First and longest wait between two attempts, and how long attempts are made.
const RETRY: Retry =
    Retry { initial: Duration::from_secs(10), max: Duration::from_mins(10), max_age: Duration::from_hours(24) };
/// How often a pull request is checked.
const INTERVAL: Duration = Duration::from_mins(1);
/// The branch if none is declared.
const BRANCH: &str = "main";
/// How many ended promotions of an environment are kept.
const KEEP: usize = 10;
/// How long an ended promotion is kept.
pub const MAX_AGE: Duration = Duration::from_hours(2160);

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
    /// How attempts are repeated.
    pub retry: Retry,
    /// How many ended promotions are kept.
    pub keep: usize,
    /// How long an ended promotion is kept.
    pub max_age: Duration,
}

/// How attempts are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Wait after the first failed attempt. Each further wait is twice as long.
    pub initial: Duration,
    /// Longest wait.
    pub max: Duration,
    /// How long attempts are made after the request.
    pub max_age: Duration,
}

/// Returns the policy of an environment. `None`: nothing is promoted to it, because it is the first one, or has no strategy.
#[must_use]
pub fn policy(spec: &PipelineSpec, index: usize) -> Option<Policy> {
    let of = declared(spec, index)?;
    let strategy = of.strategy.clone().filter(|strategy| !strategy_name(strategy).is_empty())?;
    let (keep, max_age) = retention(spec, index);
    let timeout = if strategy.notification.is_some() { TIMEOUT } else { TIMEOUT_OF_DECLARED };
    Some(Policy {
        manual: of.manual,
        after: span(of.after.as_deref(), Duration::ZERO),
        suspend: of.suspend,
        timeout: span(of.timeout.as_deref(), timeout),
        retry: retry(of.retry.as_ref()),
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
pub fn retention(spec: &PipelineSpec, index: usize) -> (usize, Duration) {
    let retain = declared(spec, index).and_then(|of| of.retain.as_ref());
    let keep = retain.and_then(|retain| retain.per_environment).and_then(|keep| usize::try_from(keep).ok());
    (keep.unwrap_or(KEEP), span(retain.and_then(|retain| retain.max_age.as_deref()), MAX_AGE))
}

/// Returns the name of a strategy.
#[must_use]
pub fn strategy_name(strategy: &PromotionStrategy) -> &'static str {
    match strategy {
        PromotionStrategy { notification: Some(_), .. } => "notification",
        PromotionStrategy { commit: Some(_), .. } => "commit",
        PromotionStrategy { pull_request: Some(_), .. } => "pullRequest",
        _ => "",
    }
}

/// Returns the repository in which Relaybook itself carries out a strategy, and the branch that finally changes. `None`: a receiver
/// carries the strategy out.
#[must_use]
pub fn repository(strategy: &PromotionStrategy) -> Option<(&GitRepository, &str)> {
    let commit = || strategy.commit.as_ref().map(|commit| (&commit.repository, commit.branch.as_deref()));
    let request = || strategy.pull_request.as_ref().map(|of| (&of.repository, of.base_branch.as_deref()));
    let (repository, branch) = commit().or_else(request)?;
    Some((repository, branch.unwrap_or(BRANCH)))
}

/// Returns the Secrets with the keys of a pipeline's hooks, and what each of them signs.
#[must_use]
pub fn hook_secrets(spec: &PipelineSpec) -> BTreeMap<String, Vec<String>> {
    let approvals = spec.environments.iter().enumerate().filter_map(|(index, environment)| {
        let secret = declared(spec, index)?.strategy.as_ref()?.secret_ref.as_ref()?;
        Some((secret.name.clone(), format!("approvals to {}", environment.name)))
    });
    let looks = spec.hooks.iter().map(|hooks| (hooks.secret_ref.name.clone(), "looks".to_owned()));
    let mut secrets: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, signs) in approvals.chain(looks) {
        secrets.entry(name).or_default().push(signs);
    }
    secrets
}

/// Returns how often the pull request of a strategy is checked.
#[must_use]
pub fn interval(strategy: &PullRequestStrategy) -> Duration {
    span(strategy.interval.as_deref(), INTERVAL)
}

fn retry(declared: Option<&PromotionRetry>) -> Retry {
    let of =
        |text: fn(&PromotionRetry) -> Option<&String>, default| span(declared.and_then(text).map(String::as_str), default);
    Retry {
        initial: of(|retry| retry.initial.as_ref(), RETRY.initial),
        max: of(|retry| retry.max.as_ref(), RETRY.max),
        max_age: of(|retry| retry.max_age.as_ref(), RETRY.max_age),
    }
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
    use crate::promotion::testing::{by_commit, by_pull_request};
    use relaybook_api::pipeline::Environment;
    use relaybook_api::promotion::{NotificationStrategy, RetainPromotions};

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
    fn the_timeout_depends_on_the_strategy() {
        let found = |strategy: PromotionStrategy, timeout: Option<&str>| {
            let timeout = timeout.map(str::to_owned);
            let own = PromotionPolicy { strategy: Some(strategy), timeout, ..PromotionPolicy::default() };
            policy(&spec(None, Some(own)), 1).unwrap()
        };
        for (strategy, name, timeout) in [
            (notification(), "notification", Duration::from_hours(168)),
            (by_commit(), "commit", Duration::from_hours(1)),
            (by_pull_request(), "pullRequest", Duration::from_hours(1)),
        ] {
            let policy = found(strategy.clone(), None);
            assert_eq!((strategy_name(&strategy), policy.timeout, policy.retry), (name, timeout, RETRY));
            assert_eq!(found(strategy, Some("5m")).timeout, Duration::from_mins(5), "{name}");
        }
    }

    #[test]
    fn the_branch_and_the_interval_of_a_strategy_have_defaults() {
        let (mut commit, mut request) = (by_commit(), by_pull_request());
        let of = |strategy: &PromotionStrategy| repository(strategy).map(|(_, branch)| branch.to_owned());
        assert_eq!((of(&notification()), of(&commit), of(&request)), (None, Some("main".into()), Some("main".into())));
        assert_eq!(request.pull_request.as_deref().map(interval), Some(Duration::from_mins(1)));
        commit.commit.as_mut().unwrap().branch = Some("live".into());
        let declared = request.pull_request.as_mut().unwrap();
        (declared.base_branch, declared.interval) = (Some("trunk".into()), Some("10s".into()));
        assert_eq!((of(&commit), of(&request)), (Some("live".into()), Some("trunk".into())));
        assert_eq!(request.pull_request.as_deref().map(interval), Some(Duration::from_secs(10)));
    }

    #[test]
    fn each_setting_of_a_retry_has_its_own_default() {
        let of = |text: &str| Some(text.to_owned());
        let seconds = Duration::from_secs;
        for (declared, expected) in [
            (PromotionRetry { initial: of("1s"), ..PromotionRetry::default() }, Retry { initial: seconds(1), ..RETRY }),
            (PromotionRetry { max: of("2s"), ..PromotionRetry::default() }, Retry { max: seconds(2), ..RETRY }),
            (PromotionRetry { max_age: of("3s"), ..PromotionRetry::default() }, Retry { max_age: seconds(3), ..RETRY }),
        ] {
            assert_eq!(retry(Some(&declared)), expected);
        }
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
