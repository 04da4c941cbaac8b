//! The field that is changed, and the patch that changes it. Pure.
//!
//! In: a Notification or a Pipeline as the API server returns it. Out: whether it is suspended, and a guarded patch of this one field.
//!
//! The patch is a JSON Patch that tests what it relies on: the uid of the object, and the name at the index of the environment. Another
//! writer may insert or remove an environment at the same time. Then the test fails, and the object is read again. Server-side apply could
//! also change one field only, but it would create an environment or a policy again that somebody has just removed.

use kube::ResourceExt as _;
use serde_json::Value;

use relaybook_api::promotion::PromotionPolicy;
use relaybook_api::{Notification, Pipeline};
use relaybook_runtime::guarded::Guarded;

/// What the person wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `suspend` becomes `true`.
    Suspend,
    /// `suspend` is removed.
    Resume,
}

/// Why the promotions of a Pipeline cannot be suspended or resumed. Each message says what is there, and how to continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuspendError {
    /// The pipeline has no environment of this name.
    #[error("Pipeline {pipeline} has no environment {environment}; it has {known}")]
    NoEnvironment {
        /// Name of the pipeline.
        pipeline: String,
        /// The requested name.
        environment: String,
        /// The existing names.
        known: String,
    },
    /// No environment is before the first one.
    #[error("{environment} is the first environment of Pipeline {pipeline}, so nothing is promoted to it; name a later one")]
    FirstEnvironment {
        /// Name of the pipeline.
        pipeline: String,
        /// Name of the environment.
        environment: String,
    },
    /// The policy of the pipeline applies to the environment.
    #[error(
        "environment {environment} of Pipeline {pipeline} has no promotion policy of its own, so spec.promotion applies to it; leave out the \
        environment, or set the field promotion of the environment"
    )]
    Inherited {
        /// Name of the pipeline.
        pipeline: String,
        /// Name of the environment.
        environment: String,
    },
    /// Only environments have policies.
    #[error(
        "Pipeline {pipeline} has no spec.promotion; name one of the environments that have a promotion policy of their own: {own}"
    )]
    OnlyOwn {
        /// Name of the pipeline.
        pipeline: String,
        /// The environments.
        own: String,
    },
    /// There is no policy.
    #[error(
        "Pipeline {pipeline} promotes nothing there, so there is nothing to suspend; set spec.promotion.strategy to promote"
    )]
    NoPolicy {
        /// Name of the pipeline.
        pipeline: String,
    },
}

/// The promotion policy that is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotions<'a> {
    /// Index and name of the environment that has the policy. `None`: it is that of the pipeline.
    environment: Option<(usize, &'a str)>,
    /// Whether it is suspended.
    pub is_suspended: bool,
    /// Environments with a policy of their own that differs from what the person wants. A change of the pipeline's policy does not apply there.
    pub others: Vec<&'a str>,
}

impl Verb {
    /// Returns whether `suspend` is `true` afterwards.
    #[must_use]
    pub const fn value(self) -> bool {
        matches!(self, Self::Suspend)
    }

    /// Adds the change to a patch. Resuming removes the field instead of setting it to `false`. Otherwise a Notification would override a
    /// `suspend: true` of the global configuration that nobody has asked to lift.
    fn write<const N: usize>(self, patch: Guarded, field: [&str; N]) -> Result<Guarded, serde_json::Error> {
        match self {
            Self::Suspend => patch.put(field, &true),
            Self::Resume => Ok(patch.test(field, Value::Bool(true)).remove(field)),
        }
    }
}

/// Whether a Notification itself is suspended. Its layers are not considered.
#[must_use]
pub fn is_suspended(notification: &Notification) -> bool {
    notification.spec.suspend == Some(true)
}

/// Returns the patch of a Notification.
pub fn of_notification(notification: &Notification, verb: Verb) -> Result<Guarded, serde_json::Error> {
    verb.write(Guarded::of(notification.metadata.uid.as_deref()), ["spec", "suspend"])
}

/// Finds the promotion policy of a pipeline, or that of one environment.
pub fn promotions<'a>(
    pipeline: &'a Pipeline,
    environment: Option<&str>,
    verb: Verb,
) -> Result<Promotions<'a>, SuspendError> {
    match environment {
        Some(environment) => of_environment(pipeline, environment),
        None => of_pipeline(pipeline, verb),
    }
}

fn of_pipeline(pipeline: &Pipeline, verb: Verb) -> Result<Promotions<'_>, SuspendError> {
    // Nothing is promoted to the first environment.
    let own = pipeline.spec.environments.iter().skip(1).filter_map(|environment| {
        let policy = environment.promotion.as_ref().filter(|policy| policy.strategy.is_some())?;
        Some((environment.name.as_str(), policy))
    });
    let own: Vec<(&str, &PromotionPolicy)> = own.collect();
    let name = pipeline.name_any();
    let Some(policy) = &pipeline.spec.promotion else {
        let names: Vec<_> = own.iter().map(|(name, _)| *name).collect();
        return Err(if names.is_empty() {
            SuspendError::NoPolicy { pipeline: name }
        } else {
            SuspendError::OnlyOwn { pipeline: name, own: names.join(", ") }
        });
    };
    let others = own.iter().filter(|(_, policy)| policy.suspend != verb.value()).map(|(name, _)| *name).collect();
    Ok(Promotions { environment: None, is_suspended: policy.suspend, others })
}

fn of_environment<'a>(pipeline: &'a Pipeline, environment: &str) -> Result<Promotions<'a>, SuspendError> {
    let (name, all) = (pipeline.name_any(), &pipeline.spec.environments);
    let Some((index, found)) = all.iter().enumerate().find(|(_, one)| one.name == environment) else {
        let known: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
        let (environment, known) = (environment.to_owned(), known.join(", "));
        return Err(SuspendError::NoEnvironment { pipeline: name, environment, known });
    };
    if index == 0 {
        return Err(SuspendError::FirstEnvironment { pipeline: name, environment: environment.to_owned() });
    }
    match &found.promotion {
        Some(policy) => {
            let environment = Some((index, found.name.as_str()));
            Ok(Promotions { environment, is_suspended: policy.suspend, others: Vec::new() })
        }
        None if pipeline.spec.promotion.is_some() => {
            Err(SuspendError::Inherited { pipeline: name, environment: environment.to_owned() })
        }
        None => Err(SuspendError::NoPolicy { pipeline: name }),
    }
}

impl Promotions<'_> {
    /// Returns the patch of the pipeline in which the policy was found.
    pub fn patch(&self, pipeline: &Pipeline, verb: Verb) -> Result<Guarded, serde_json::Error> {
        let patch = Guarded::of(pipeline.metadata.uid.as_deref());
        let Some((index, name)) = self.environment else {
            return verb.write(patch, ["spec", "promotion", "suspend"]);
        };
        let index = index.to_string();
        let patch = patch.test(["spec", "environments", index.as_str(), "name"], Value::from(name));
        verb.write(patch, ["spec", "environments", index.as_str(), "promotion", "suspend"])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pipeline(promotion: &Value, prod: &Value) -> Pipeline {
        let mut object = json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "web", "namespace": "team-a", "uid": "u"},
            "spec": {"environments": [{"name": "dev"}, {"name": "qa"}, {"name": "prod"}]},
        });
        if !promotion.is_null() {
            object["spec"]["promotion"] = promotion.clone();
        }
        if !prod.is_null() {
            object["spec"]["environments"][2]["promotion"] = prod.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    /// Returns the operations of a patch.
    fn operations(patch: Guarded) -> Value {
        serde_json::to_value(patch.operations()).unwrap()
    }

    #[test]
    fn a_policy_is_found_or_the_error_says_what_is_there() {
        let of_pipeline = json!({"strategy": {"notification": {}}});
        let suspended = json!({"strategy": {"notification": {}}, "suspend": true});
        let none = Value::Null;
        for (promotion, prod, environment, expected) in [
            (&of_pipeline, &none, None, "false, others: "),
            (&suspended, &none, None, "true, others: "),
            (&of_pipeline, &of_pipeline, None, "false, others: prod"),
            (&of_pipeline, &suspended, None, "false, others: "),
            (&of_pipeline, &json!({}), None, "false, others: "),
            (&of_pipeline, &suspended, Some("prod"), "true, others: "),
            (&none, &of_pipeline, Some("prod"), "false, others: "),
            (&none, &none, None, "Pipeline web promotes nothing there"),
            (&none, &none, Some("prod"), "Pipeline web promotes nothing there"),
            (&none, &of_pipeline, None, "name one of the environments that have a promotion policy of their own: prod"),
            (&of_pipeline, &none, Some("prod"), "so spec.promotion applies to it; leave out the environment"),
            (&of_pipeline, &none, Some("dev"), "dev is the first environment of Pipeline web"),
            (&of_pipeline, &none, Some("nope"), "has no environment nope; it has dev, qa, prod"),
        ] {
            let pipeline = pipeline(promotion, prod);
            let what = format!("{promotion} {prod} {environment:?}");
            match promotions(&pipeline, environment, Verb::Suspend) {
                Ok(found) => {
                    let told = format!("{}, others: {}", found.is_suspended, found.others.join(" "));
                    assert_eq!(told, expected, "{what}");
                }
                Err(error) => assert!(error.to_string().contains(expected), "{what}: {error}"),
            }
        }
        let mixed = pipeline(&suspended, &suspended);
        assert_eq!(promotions(&mixed, None, Verb::Resume).unwrap().others, ["prod"], "it stays suspended");
    }

    #[test]
    fn a_patch_changes_one_field_of_the_object_that_was_read() {
        let policy = json!({"strategy": {"notification": {}}, "suspend": true});
        let pipeline = pipeline(&policy, &policy);
        let uid = json!({"op": "test", "path": "/metadata/uid", "value": "u"});
        let is_prod = json!({"op": "test", "path": "/spec/environments/2/name", "value": "prod"});
        let (whole, own) = ("/spec/promotion/suspend", "/spec/environments/2/promotion/suspend");
        let add = |path: &str| json!({"op": "add", "path": path, "value": true});
        let test = |path: &str| json!({"op": "test", "path": path, "value": true});
        let remove = |path: &str| json!({"op": "remove", "path": path});
        for (environment, verb, expected) in [
            (None, Verb::Suspend, json!([uid, add(whole)])),
            (None, Verb::Resume, json!([uid, test(whole), remove(whole)])),
            (Some("prod"), Verb::Suspend, json!([uid, is_prod, add(own)])),
            (Some("prod"), Verb::Resume, json!([uid, is_prod, test(own), remove(own)])),
        ] {
            let found = promotions(&pipeline, environment, verb).unwrap();
            assert_eq!(operations(found.patch(&pipeline, verb).unwrap()), expected, "{environment:?} {verb:?}");
        }
        let mut notification = Notification::new("chat", relaybook_api::NotificationSpec::default());
        notification.metadata.uid = Some("u".to_owned());
        for (suspend, expected) in [(None, false), (Some(false), false), (Some(true), true)] {
            notification.spec.suspend = suspend;
            assert_eq!(is_suspended(&notification), expected, "{suspend:?}");
        }
        let own = "/spec/suspend";
        for (verb, expected) in
            [(Verb::Suspend, json!([uid, add(own)])), (Verb::Resume, json!([uid, test(own), remove(own)]))]
        {
            assert_eq!(operations(of_notification(&notification, verb).unwrap()), expected, "{verb:?}");
        }
    }
}
