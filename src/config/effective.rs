//! From a Notification to what the other rooms work with. Defaults are here and nowhere else.

use std::str::FromStr as _;
use std::time::Duration;

use kube::ResourceExt as _;

use super::problem::Problem;
use super::selector::PipelineSelector;
use super::sending::{self, Sending};
use super::template::{self, Text};
use crate::api::refs::ConfigMapKey;
use crate::api::{Notification, NotificationSpec};
use crate::trigger::Triggers;

/// What a notification is understood with, besides itself.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    /// The operator's word: `http` is allowed to any host.
    pub allow_http: bool,
    /// What a key of a ConfigMap holds.
    pub text: &'a dyn Fn(&ConfigMapKey) -> Text,
}

impl Given<'_> {
    /// Without a cluster: `http` only to services, and no ConfigMaps.
    #[must_use]
    pub fn nothing() -> Self {
        Self { allow_http: false, text: &|_| Text::NoConfigMap }
    }
}

/// A notification that has been understood, half by half.
#[derive(Clone, Debug)]
pub struct EffectiveNotification {
    /// Uid of the Notification: one made again under its name is another.
    pub uid: String,
    /// Generation that this was made from.
    pub generation: Option<i64>,
    /// What is recorded.
    pub intake: Result<Intake, Problem>,
    /// The keys of ConfigMaps that it refers to.
    pub config_maps: Vec<ConfigMapKey>,
    /// How it is sent.
    pub sending: Result<Sending, Problem>,
    /// Recorded and held.
    pub suspend: bool,
    /// How often it is tried. Valid also when the rest is not, for a delivery that waits grows old all the same.
    pub retry: Retry,
}

/// Which changes become deliveries.
#[derive(Clone, Debug)]
pub struct Intake {
    /// Pipelines.
    pub selector: PipelineSelector,
    /// Transitions.
    pub triggers: Triggers,
}

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// First gap.
    pub initial: Duration,
    /// Largest gap.
    pub max: Duration,
    /// From recording to giving up.
    pub max_age: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { initial: Duration::from_secs(5), max: Duration::from_mins(10), max_age: Duration::from_hours(24) }
    }
}

/// Understands a notification.
#[must_use]
pub fn resolve(notification: &Notification, given: &Given<'_>) -> EffectiveNotification {
    let namespace = notification.namespace().unwrap_or_default();
    let spec = &notification.spec;
    let (retry, retry_problem) = match retry(spec) {
        Ok(retry) => (retry, None),
        Err(problem) => (Retry::default(), Some(problem)),
    };
    EffectiveNotification {
        uid: notification.uid().unwrap_or_default(),
        generation: notification.metadata.generation,
        intake: intake(spec),
        config_maps: template::config_maps(notification),
        sending: retry_problem.map_or_else(|| sending::sending(spec, &namespace, given), Err),
        suspend: spec.suspend.unwrap_or(false),
        retry,
    }
}

fn intake(spec: &NotificationSpec) -> Result<Intake, Problem> {
    let selector = PipelineSelector::parse(spec.pipeline_selector.as_ref()).map_err(Problem::Selector)?;
    let triggers = spec.triggers.as_deref().ok_or(Problem::Incomplete { field: "spec.triggers" })?;
    Ok(Intake { selector, triggers: Triggers::compile(triggers)? })
}

fn retry(spec: &NotificationSpec) -> Result<Retry, Problem> {
    let default = Retry::default();
    let Some(given) = spec.delivery.as_ref().and_then(|d| d.retry.as_ref()) else { return Ok(default) };
    let field = |name: &str| format!("spec.delivery.retry.{name}");
    let retry = Retry {
        initial: duration(&field("initial"), given.initial.as_deref(), default.initial)?,
        max: duration(&field("max"), given.max.as_deref(), default.max)?,
        max_age: duration(&field("maxAge"), given.max_age.as_deref(), default.max_age)?,
    };
    if retry.initial > retry.max {
        return Err(Problem::invalid(field("initial"), "must not be over max (default 10m)"));
    }
    Ok(retry)
}

/// Reads a duration such as `15s` or `1h30m`.
pub(super) fn duration(field: &str, given: Option<&str>, default: Duration) -> Result<Duration, Problem> {
    let Some(given) = given else { return Ok(default) };
    jiff::SignedDuration::from_str(given)
        .ok()
        .and_then(|d| Duration::try_from(d).ok())
        .filter(|d| !d.is_zero())
        .ok_or_else(|| Problem::invalid(field, format!("{given:?} is not a duration such as 5s, 10m or 24h")))
}
