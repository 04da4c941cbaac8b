//! Settings of deliveries: order, retries, rate, and how long they are kept. The defaults of these settings are here and nowhere else.

use std::num::NonZeroU32;
use std::time::Duration;

use super::defaults::duration;
use crate::config::problem::Problem;
use relaybook_api::notification::{DeliveryPolicy, Ordering, Rate as RateSpec};

/// Order, retries, rate and retention of deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivering {
    /// Which deliveries are sent in order.
    pub ordering: Ordering,
    /// When to retry.
    pub retry: Retry,
    /// Whether a newer delivery replaces older ones.
    pub supersede: bool,
    /// The rate limit. `None`: as fast as possible.
    pub rate: Option<Rate>,
    /// Which settled deliveries are kept.
    pub retain: Retain,
}

/// When to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The first delay between attempts.
    pub initial: Duration,
    /// The largest delay between attempts.
    pub max: Duration,
    /// The time from recording the delivery until Relaybook parks it.
    pub max_age: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { initial: Duration::from_secs(5), max: Duration::from_mins(10), max_age: Duration::from_hours(24) }
    }
}

/// The rate limit for requests of one notification to one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests per second.
    pub per_second: NonZeroU32,
    /// Maximum number of requests at once after an idle time.
    pub burst: NonZeroU32,
}

/// Which settled deliveries are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retain {
    /// How many of the newest deliveries of a lane are kept, at least one. Parked deliveries do not count.
    pub per_lane: usize,
    /// Maximum time since the delivery was settled.
    pub max_age: Duration,
}

impl Default for Retain {
    fn default() -> Self {
        Self { per_lane: 10, max_age: Duration::from_hours(168) }
    }
}

/// Resolves `spec.delivery`.
pub(crate) fn delivering(spec: Option<&DeliveryPolicy>) -> Result<Delivering, Problem> {
    let Some(spec) = spec else { return Ok(Delivering::default()) };
    Ok(Delivering {
        ordering: spec.ordering.unwrap_or_default(),
        retry: retry(spec)?,
        supersede: spec.supersede.unwrap_or(false),
        rate: spec.rate.map(rate).transpose()?,
        retain: retain(spec)?,
    })
}

fn retry(spec: &DeliveryPolicy) -> Result<Retry, Problem> {
    let default = Retry::default();
    let Some(given) = spec.retry.as_ref() else { return Ok(default) };
    let field = |name: &str| format!("spec.delivery.retry.{name}");
    let retry = Retry {
        initial: duration(&field("initial"), given.initial.as_deref(), default.initial)?,
        max: duration(&field("max"), given.max.as_deref(), default.max)?,
        max_age: duration(&field("maxAge"), given.max_age.as_deref(), default.max_age)?,
    };
    if retry.initial > retry.max {
        return Err(Problem::invalid(field("initial"), "must not be larger than max (default 10m)"));
    }
    Ok(retry)
}

fn rate(spec: RateSpec) -> Result<Rate, Problem> {
    let number = |field: &str, number| {
        NonZeroU32::new(number).ok_or_else(|| Problem::invalid(format!("spec.delivery.rate.{field}"), "must be at least 1"))
    };
    let per_second = number("perSecond", spec.per_second)?;
    Ok(Rate { per_second, burst: spec.burst.map_or(Ok(per_second), |burst| number("burst", burst))? })
}

fn retain(spec: &DeliveryPolicy) -> Result<Retain, Problem> {
    let default = Retain::default();
    let Some(given) = spec.retain.as_ref() else { return Ok(default) };
    let per_lane = given.per_lane.map_or(default.per_lane, |n| usize::try_from(n).unwrap_or(usize::MAX)).max(1);
    Ok(Retain { per_lane, max_age: duration("spec.delivery.retain.maxAge", given.max_age.as_deref(), default.max_age)? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn understood(spec: serde_json::Value) -> Result<Delivering, String> {
        let spec: DeliveryPolicy = serde_json::from_value(spec).unwrap();
        delivering(Some(&spec)).map_err(|e| e.to_string())
    }

    #[test]
    fn each_delivery_setting_has_a_default() {
        assert_eq!(understood(json!({})), Ok(Delivering::default()));
        let given = understood(json!({
            "ordering": "Pipeline", "supersede": true, "rate": {"perSecond": 7}, "retain": {"perLane": 3},
            "retry": {"initial": "1s"},
        }))
        .unwrap();
        let rate = given.rate.unwrap();
        assert_eq!((given.ordering, given.supersede), (Ordering::Pipeline, true));
        assert_eq!((rate.per_second.get(), rate.burst.get()), (7, 7));
        assert_eq!(given.retain, Retain { per_lane: 3, max_age: Retain::default().max_age });
        assert_eq!(given.retry, Retry { initial: Duration::from_secs(1), ..Retry::default() });
    }

    #[test]
    fn invalid_delivery_settings_are_refused_with_their_field() {
        for (spec, field) in [
            (json!({"retry": {"initial": "1h"}}), "spec.delivery.retry.initial"),
            (json!({"retry": {"maxAge": "soon"}}), "spec.delivery.retry.maxAge"),
            (json!({"rate": {"perSecond": 0}}), "spec.delivery.rate.perSecond"),
            (json!({"rate": {"perSecond": 1, "burst": 0}}), "spec.delivery.rate.burst"),
            (json!({"retain": {"maxAge": "0s"}}), "spec.delivery.retain.maxAge"),
        ] {
            assert!(understood(spec).unwrap_err().contains(field), "{field}");
        }
    }
}
