//! Pure: whether requests to the hooks of a pipeline can be signed.
//!
//! In: the Secrets that the spec names, as the hooks judge them. Out: the condition `HooksReady`, which is present with status `False` while
//! the keys of a Secret cannot sign.

use kube_core::ResourceExt as _;

use relaybook_text::cut;

use super::status::Base;
use crate::changelog::MAX_MESSAGE;
use crate::promotion::policy::hook_secrets;
use relaybook_api::conditions;
use relaybook_api::conditions::{ConditionStatus, HOOKS_READY};
use relaybook_api::values::hook_keys::Unsigned;
use relaybook_api::{ObjectName, Pipeline, PipelineStatus, Time};

/// What is known about the keys of a pipeline's hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Not every Secret was read yet, so the condition stays as it is.
    Unknown,
    /// Each of them can sign, there are none, or this process answers no hooks.
    Usable,
    /// At least one Secret cannot sign.
    Unusable {
        /// Machine-readable reason.
        reason: &'static str,
        /// Human-readable message.
        message: String,
    },
}

/// Judges the keys of a pipeline's hooks. `problem`: why no request can be signed with a Secret.
pub fn judge(pipeline: &Pipeline, problem: impl Fn(&ObjectName) -> Option<Unsigned>) -> Keys {
    let namespace = pipeline.namespace().unwrap_or_default();
    let (mut first, mut parts) = (None, Vec::new());
    for (name, uses) in hook_secrets(&pipeline.spec) {
        let secret = ObjectName::new(&namespace, name);
        match problem(&secret) {
            None => {}
            Some(Unsigned::Unknown) => return Keys::Unknown,
            Some(problem) => {
                first.get_or_insert(problem.reason());
                parts.push(format!("{} are refused: Secret {secret} {problem}", uses.join(", ")));
            }
        }
    }
    first.map_or(Keys::Usable, |reason| Keys::Unusable { reason, message: parts.join("; ") })
}

/// Sets the condition `HooksReady`, or removes it.
pub fn set_hooks_ready(status: &mut PipelineStatus, base: &Base<'_>, now: Time) {
    match base.keys {
        Keys::Unknown => {}
        Keys::Usable => status.conditions.retain(|condition| condition.type_ != HOOKS_READY),
        Keys::Unusable { reason, message } => {
            let (generation, message) = (base.pipeline.metadata.generation, cut(message, MAX_MESSAGE));
            conditions::set(&mut status.conditions, HOOKS_READY, ConditionStatus::False, reason, &message, generation, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::pipeline::{Environment, InboundHooks};
    use relaybook_api::promotion::{PromotionPolicy, PromotionStrategy};
    use relaybook_api::values::hook_keys::Flaw;
    use relaybook_api::{PipelineSpec, SecretRef};

    fn pipeline() -> Pipeline {
        let secret = |name: &str| SecretRef { name: name.to_owned() };
        let policy = |name: &str| {
            let strategy = PromotionStrategy { secret_ref: Some(secret(name)), ..PromotionStrategy::default() };
            PromotionPolicy { strategy: Some(strategy), ..PromotionPolicy::default() }
        };
        let environment = |name: &str, promotion| Environment { name: name.into(), promotion, ..Environment::default() };
        let mut pipeline = Pipeline::new(
            "web",
            PipelineSpec {
                environments: vec![
                    environment("dev", None),
                    environment("qa", None),
                    environment("staging", None),
                    environment("prod", Some(policy("of-prod"))),
                ],
                promotion: Some(policy("approvals")),
                hooks: Some(InboundHooks { secret_ref: secret("looks") }),
                ..PipelineSpec::default()
            },
        );
        (pipeline.metadata.namespace, pipeline.metadata.generation) = (Some("team-a".into()), Some(3));
        pipeline
    }

    #[test]
    fn each_secret_that_cannot_sign_is_named() {
        let judged = |wrong: &[(&str, Unsigned)]| {
            judge(&pipeline(), |secret| {
                assert_eq!(secret.namespace, "team-a");
                wrong.iter().find(|(name, _)| *name == secret.name).map(|(_, problem)| problem.clone())
            })
        };
        assert_eq!(judged(&[]), Keys::Usable);
        assert_eq!(judged(&[("elsewhere", Unsigned::Missing)]), Keys::Usable);
        assert_eq!(judged(&[("looks", Unsigned::Unknown), ("approvals", Unsigned::Missing)]), Keys::Unknown);
        let two = judged(&[("looks", Unsigned::Unfit(Flaw::NoKey)), ("approvals", Unsigned::Missing)]);
        let message = "approvals to qa, approvals to staging are refused: Secret team-a/approvals does not exist; looks are refused: \
                       Secret team-a/looks has no key whose name begins with hmac-key; add one, for example hmac-key";
        assert_eq!(two, Keys::Unusable { reason: "SecretMissing", message: message.to_owned() });
    }

    #[test]
    fn hooks_ready_is_false_while_a_secret_cannot_sign_and_absent_otherwise() {
        let (pipeline, mut status) = (pipeline(), PipelineStatus::default());
        let mut set = |keys: &Keys| {
            let base = Base { pipeline: &pipeline, promotions: None, highest: None, keys };
            set_hooks_ready(&mut status, &base, Time::UNIX_EPOCH);
            status.conditions.iter().map(|c| (c.type_.clone(), c.status, c.reason.clone())).collect::<Vec<_>>()
        };
        let wrong = Keys::Unusable { reason: "SecretMissing", message: "because".into() };
        let there = vec![("HooksReady".to_owned(), ConditionStatus::False, "SecretMissing".to_owned())];
        assert!(set(&Keys::Usable).is_empty() && set(&Keys::Unknown).is_empty());
        assert_eq!(set(&wrong), there);
        assert_eq!(set(&Keys::Unknown), there, "it is read again after a restart");
        assert!(set(&Keys::Usable).is_empty());
    }
}
