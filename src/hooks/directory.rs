//! The pipelines that have hooks: which Secrets have their keys, what waits for an approval, and which promotions are open. Pure.
//!
//! In: Pipelines, from a watch. Out: the entry of a pipeline, and the names of all Secrets. A pipeline without a Secret has no entry, so it
//! cannot be distinguished from one that does not exist.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::ResourceExt as _;

pub(super) use super::seen::Waiting;
use super::seen::{SecretHolder, SeenPipeline};
use relaybook_api::ObjectName;
use relaybook_api::promotion::Phase;
use relaybook_telemetry::metrics::Hook;

/// A pipeline with at least one hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Uid of the pipeline.
    pub uid: String,
    /// For each environment with an approval hook, the Secret with its keys.
    pub approvals: BTreeMap<String, ObjectName>,
    /// For each environment in which a promotion waits for an approval, that promotion.
    pub waiting: BTreeMap<String, Waiting>,
    /// The names of the open promotions.
    pub open: BTreeSet<String>,
    /// The Secret of looks, if there is one.
    looker: Option<ObjectName>,
}

/// All pipelines with a hook.
#[derive(Debug, Default)]
pub(super) struct Directory {
    pipelines: HashMap<ObjectName, Arc<Entry>>,
}

impl Entry {
    /// Returns the entry of a pipeline. `None`: it has no hook.
    fn of(pipeline: &SeenPipeline) -> Option<Self> {
        let namespace = pipeline.namespace().unwrap_or_default();
        let secret = |of: Option<&SecretHolder>| {
            let name = of?.secret_ref.as_ref()?.name.clone();
            Some(ObjectName::new(&namespace, name))
        };
        let spec = &pipeline.spec;
        // Nothing is promoted to the first environment.
        let approvals = spec.environments.iter().skip(1).filter_map(|environment| {
            let policy = environment.promotion.as_ref().or(spec.promotion.as_ref())?;
            Some((environment.name.clone(), secret(policy.strategy.as_ref())?))
        });
        let approvals: BTreeMap<_, _> = approvals.collect();
        let looker = secret(spec.hooks.as_ref());
        if approvals.is_empty() && looker.is_none() {
            return None;
        }
        let environments = || pipeline.status.iter().flat_map(|status| &status.environments);
        let waiting = environments().filter_map(|of| Some((of.name.clone(), of.waiting_approval.clone()?)));
        let open = environments().filter_map(|of| of.promotion.as_ref()).filter(|newest| !is_ended(&newest.phase));
        Some(Self {
            uid: pipeline.uid().unwrap_or_default(),
            approvals,
            waiting: waiting.collect(),
            open: open.map(|newest| newest.name.clone()).collect(),
            looker,
        })
    }

    /// Returns the Secret whose keys can sign a request. It is one at most, so the work for a request is the same for each pipeline.
    /// `environment`: the one that an approval names. If it names none, the Secret must be the same for all environments.
    pub fn signer(&self, hook: Hook, environment: Option<&str>) -> Option<&ObjectName> {
        match (hook, environment) {
            (Hook::Look, _) => self.looker.as_ref(),
            (Hook::Approval, Some(environment)) => self.approvals.get(environment),
            (Hook::Approval, None) => {
                let mut all = self.approvals.values();
                let first = all.next()?;
                all.all(|other| other == first).then_some(first)
            }
        }
    }
}

fn is_ended(phase: &str) -> bool {
    Phase::ALL.iter().any(|known| known.is_ended() && known.as_str() == phase)
}

impl Directory {
    /// Adds or replaces a pipeline. Returns whether the Secrets of hooks may have changed.
    pub fn put(&mut self, pipeline: &SeenPipeline) -> bool {
        let Some(entry) = Entry::of(pipeline) else { return self.remove(&ObjectName::of(pipeline)) };
        let new = Arc::new(entry);
        let old = self.pipelines.insert(ObjectName::of(pipeline), Arc::clone(&new));
        old.is_none_or(|old| old.approvals != new.approvals || old.looker != new.looker)
    }

    /// Removes a pipeline. Returns whether the Secrets of hooks may have changed.
    pub fn remove(&mut self, name: &ObjectName) -> bool {
        self.pipelines.remove(name).is_some()
    }

    /// Removes the pipelines that a list does not contain. `namespace`: that of the list; `None`: all.
    pub fn retain(&mut self, namespace: Option<&str>, there: &BTreeSet<ObjectName>) {
        self.pipelines.retain(|name, _| namespace.is_some_and(|of| of != name.namespace) || there.contains(name));
    }

    /// Returns the entry of a pipeline, if it has a hook.
    pub fn get(&self, name: &ObjectName) -> Option<Arc<Entry>> {
        self.pipelines.get(name).cloned()
    }

    /// Returns the pipelines that have this Secret.
    pub fn using(&self, secret: &ObjectName) -> Vec<ObjectName> {
        let has = |entry: &Entry| entry.approvals.values().chain(&entry.looker).any(|of| of == secret);
        self.pipelines.iter().filter(|(_, entry)| has(entry)).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the names of all Secrets.
    pub fn secrets(&self) -> BTreeSet<ObjectName> {
        self.pipelines.values().flat_map(|entry| entry.approvals.values().chain(&entry.looker)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pipeline(name: &str, spec: &Value) -> SeenPipeline {
        let mut object = json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": name, "namespace": "team-a", "uid": format!("uid-{name}")},
            "spec": {"appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "environments": [
                {"name": "dev", "targets": [{"namespace": "a"}]},
                {"name": "staging", "targets": [{"namespace": "b"}]},
                {"name": "prod", "targets": [{"namespace": "c"}]},
            ]},
            "status": {"environments": [
                {"name": "dev", "targets": []},
                {"name": "staging", "promotion": {"name": "one", "phase": "Finished", "revision": "2", "taken": 3}},
                {"name": "prod", "promotion": {"name": "two", "phase": "Pending", "revision": "2", "taken": 1},
                 "waitingApproval": {"revision": "2", "promotion": "two", "promotionUid": "u", "since": "x"}},
            ]},
        });
        json_patch::merge(&mut object["spec"], spec);
        serde_json::from_value(object).unwrap()
    }

    fn secret(name: &str) -> ObjectName {
        ObjectName::new("team-a", name)
    }

    fn strategy(secret: &str) -> Value {
        json!({"strategy": {"notification": {}, "secretRef": {"name": secret}}})
    }

    #[test]
    fn an_entry_has_the_secrets_of_each_environment_and_the_open_promotions() {
        let spec = json!({"promotion": strategy("all"), "hooks": {"secretRef": {"name": "look"}}});
        let mut pipeline = pipeline("web", &spec);
        pipeline.spec.environments[2].promotion = serde_json::from_value(strategy("of-prod")).unwrap();
        let entry = Entry::of(&pipeline).unwrap();
        let approvals = [("prod".to_owned(), secret("of-prod")), ("staging".to_owned(), secret("all"))];
        assert_eq!(entry.approvals, approvals.into());
        for (hook, environment, signer) in [
            (Hook::Approval, Some("staging"), Some(secret("all"))),
            (Hook::Approval, Some("prod"), Some(secret("of-prod"))),
            (Hook::Approval, Some("dev"), None),
            (Hook::Approval, Some("qa"), None),
            (Hook::Approval, None, None),
            (Hook::Look, None, Some(secret("look"))),
        ] {
            assert_eq!(entry.signer(hook, environment), signer.as_ref(), "{hook:?} {environment:?}");
        }
        assert_eq!(entry.open, ["two".to_owned()].into());
        assert_eq!(entry.waiting.keys().collect::<Vec<_>>(), ["prod"]);
        assert_eq!((entry.waiting["prod"].promotion_uid.as_str(), entry.uid.as_str()), ("u", "uid-web"));
        // `{}` promotes nothing to the environment.
        pipeline.spec.environments[1].promotion = serde_json::from_value(json!({})).unwrap();
        let entry = Entry::of(&pipeline).unwrap();
        assert_eq!(entry.approvals.keys().collect::<Vec<_>>(), ["prod"]);
        assert_eq!(entry.signer(Hook::Approval, None), Some(&secret("of-prod")), "the only one");
    }

    #[test]
    fn a_pipeline_without_a_secret_has_no_entry() {
        for spec in
            [json!({}), json!({"promotion": {"strategy": {"notification": {}}}}), json!({"promotion": {"manual": true}})]
        {
            assert_eq!(Entry::of(&pipeline("web", &spec)), None, "{spec}");
        }
        let mut directory = Directory::default();
        assert!(directory.put(&pipeline("web", &json!({"promotion": strategy("a")}))));
        assert!(directory.put(&pipeline("web", &json!({}))));
        assert!(!directory.put(&pipeline("web", &json!({}))));
        assert_eq!(directory.secrets(), BTreeSet::new());
    }

    #[test]
    fn secrets_change_with_the_pipelines() {
        let mut directory = Directory::default();
        let looks = json!({"hooks": {"secretRef": {"name": "look"}}});
        assert!(directory.put(&pipeline("one", &looks)));
        assert!(directory.put(&pipeline("two", &json!({"promotion": strategy("a")}))));
        assert_eq!(directory.secrets(), [secret("a"), secret("look")].into());
        let mut edited = pipeline("two", &json!({"promotion": strategy("a")}));
        edited.status = None;
        assert!(!directory.put(&edited), "the Secrets are the same");
        assert!(directory.get(&ObjectName::of(&edited)).unwrap().open.is_empty());
        edited.spec.environments[2].promotion = serde_json::from_value(strategy("b")).unwrap();
        assert!(directory.put(&edited));
        directory.retain(Some("team-b"), &BTreeSet::new());
        assert_eq!(directory.secrets().len(), 3);
        directory.retain(Some("team-a"), &[ObjectName::of(&edited)].into());
        assert_eq!(directory.secrets(), [secret("a"), secret("b")].into());
        directory.retain(None, &BTreeSet::new());
        assert_eq!(directory.secrets().len(), 0);
        assert!(!directory.remove(&ObjectName::of(&edited)));
    }
}
