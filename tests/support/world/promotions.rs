//! Promotions, as people see them, and the pipelines whose environments have a policy.
//!
//! Each environment of such a pipeline has one Deployment `PIPELINE-ENVIRONMENT`. The test rolls it out, as the receiver of a request does.
//! The last two environments are for waiting: a promotion from `gate` to `fence` proves that the controller has processed everything
//! before it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use relaybook_api::conditions::{Condition, get};
use relaybook_api::pipeline::EnvironmentStatus;
use relaybook_api::promotion::{EnvironmentPromotion, Phase};
use relaybook_api::{Notification, Pipeline, Promotion, PromotionStatus, Time};
use serde_json::{Value, json};

use super::apps::Kind;
use super::{BODY, World, notification};
use crate::support::receiver::Receiver;
use crate::support::wait::{DEADLINE, eventually, within};

/// The environment that the fence promotes to. No test expects its promotions.
pub const FENCE: &str = "fence";
/// All transitions of promotions.
pub const TRANSITIONS: [&str; 5] =
    ["PromotionPending", "PromotionRequested", "PromotionOpened", "PromotionFinished", "PromotionFailed"];
/// Longer than the default timeout of a promotion.
const LONG_AGO: Duration = Duration::from_hours(200);
/// The type of the condition that reports what could be promoted.
const CONDITION: &str = "PromotionPending";

impl World {
    /// Creates a pipeline with these environments, each with its policy (`null`: none), and their Deployments at revision 1.
    pub async fn promoting(&self, name: &str, environments: &[(&str, Value)]) -> Pipeline {
        self.deploy_environments(name, environments).await;
        self.create(promoting(&self.ns, name, environments)).await
    }

    /// Creates the Deployments of [`World::promoting`], and that of the gate if it does not exist.
    pub async fn deploy_environments(&self, name: &str, environments: &[(&str, Value)]) {
        if self.api::<Deployment>().get_opt("gate").await.expect("answered").is_none() {
            self.deploy("gate", "0").await;
        }
        join_all(environments.iter().map(async |(environment, _)| self.deploy(&format!("{name}-{environment}"), "1").await))
            .await;
    }

    /// Creates a notification of all transitions of promotions, and of `Deployed` of the fence, to `/NAME/ENVIRONMENT/TYPE` of a receiver.
    pub async fn promotion_notification(&self, name: &str, receiver: &Receiver, over: Value) -> Notification {
        let mut triggers = vec![json!({"type": "Deployed", "environments": [FENCE]})];
        triggers.extend(TRANSITIONS.map(|type_| json!({"type": type_})));
        let fields = r#"{"promotion": "{{promotion.name}}", "uid": "{{promotion.uid}}", "phase": "{{promotion.phase}}",
            "strategy": "{{promotion.strategy}}", "from": "{{promotion.from}}", "previous": "{{promotion.previous}}",
            "promoted": "{{promotion.revision}}", "why": "{{promotion.reason}}","#;
        let mut object = notification(name, &receiver.url(&format!("/{name}/{{{{environment}}}}/{{{{type}}}}")), json!({}));
        let body = BODY.replacen('{', fields, 1);
        json_patch::merge(&mut object["spec"], &json!({"triggers": triggers, "template": {"inline": {"body": body}}}));
        // A test with many promotions can take longer than a minute, after which retention deletes deliveries beyond ten of a lane.
        json_patch::merge(&mut object["spec"], &json!({"delivery": {"retain": {"perLane": 100}}}));
        json_patch::merge(&mut object["spec"], &over);
        self.create(object).await
    }

    /// Rolls out a revision in an environment, written as `PIPELINE/ENVIRONMENT`, and waits until the pipeline's status shows it.
    pub async fn runs(&self, place: &str, revision: &str) {
        let (pipeline, app) = of(place);
        self.ship(&app, revision).await;
        self.observed_at(pipeline, revision, &[app.as_str()]).await;
    }

    /// Replaces the policy of an environment, written as `PIPELINE/ENVIRONMENT`. `null` removes it.
    pub async fn set_policy(&self, place: &str, policy: Value) {
        let (pipeline, environment) = place.split_once('/').expect("PIPELINE/ENVIRONMENT");
        let mut all = serde_json::to_value(self.get_pipeline(pipeline).await.spec.environments).expect("JSON");
        for one in all.as_array_mut().expect("a list").iter_mut().filter(|e| e["name"] == environment) {
            match &policy {
                Value::Null => drop(one.as_object_mut().expect("an object").remove("promotion")),
                policy => one["promotion"] = policy.clone(),
            }
        }
        self.patch::<Pipeline>(pipeline, json!({"spec": {"environments": all}})).await;
    }

    /// Returns all promotions of this namespace except those of the fence, in their order.
    pub async fn promotions(&self) -> Vec<Promotion> {
        let mut all = self.all_promotions().await;
        all.retain(|p| p.spec.environment != FENCE);
        all
    }

    async fn all_promotions(&self) -> Vec<Promotion> {
        let mut all = self.api::<Promotion>().list(&ListParams::default()).await.expect("listed").items;
        all.sort_by_key(|p| (p.spec.occasion, p.spec.request));
        all
    }

    /// Waits until a promotion of a revision, written as `PIPELINE/ENVIRONMENT REVISION`, satisfies `holds`. Returns the newest such.
    pub async fn promotion(&self, what: &str, holds: impl Fn(&Promotion) -> bool) -> Promotion {
        self.promotion_within(DEADLINE, what, holds).await
    }

    /// The same with another deadline, for behaviour that is slow by design.
    pub async fn promotion_within(&self, limit: Duration, what: &str, holds: impl Fn(&Promotion) -> bool) -> Promotion {
        within(limit, &format!("promotion {what}"), async || {
            let all = self.all_promotions().await;
            let found = all.iter().rev().find(|p| place(p) == what && holds(p));
            found.cloned().ok_or_else(|| {
                let shown = all.iter().map(|p| (place(p), p.metadata.name.clone(), p.spec.approved, p.status.clone()));
                format!("{:#?}", shown.collect::<Vec<_>>())
            })
        })
        .await
    }

    /// Reads the status of a promotion.
    pub async fn promotion_status(&self, promotion: &Promotion) -> PromotionStatus {
        self.api::<Promotion>().get(&promotion.name_any()).await.expect("it is there").status.unwrap_or_default()
    }

    /// Approves a promotion, as `kubectl patch` does.
    pub async fn approve(&self, promotion: &Promotion) {
        self.patch::<Promotion>(&promotion.name_any(), json!({"spec": {"approved": true}})).await;
    }

    /// Sets an annotation of a promotion.
    pub async fn annotate_promotion(&self, promotion: &Promotion, key: &str, value: &str) {
        self.patch::<Promotion>(&promotion.name_any(), json!({"metadata": {"annotations": {key: value}}})).await;
    }

    /// Returns the status of an environment, written as `PIPELINE/ENVIRONMENT`.
    pub async fn environment(&self, place: &str) -> EnvironmentStatus {
        let (pipeline, environment) = place.split_once('/').expect("PIPELINE/ENVIRONMENT");
        let status = self.get_pipeline(pipeline).await.status.unwrap_or_default();
        status.environments.into_iter().find(|e| e.name == environment).unwrap_or_default()
    }

    /// Waits until the pipeline's status names this promotion as the newest of its environment, with all its steps in the log.
    pub async fn mirrored(&self, promotion: &Promotion) -> EnvironmentPromotion {
        let spec = &promotion.spec;
        eventually(&format!("{} is in the status of its pipeline", promotion.name_any()), async || {
            let shown = self.environment(&format!("{}/{}", spec.pipeline_ref.name, spec.environment)).await.promotion;
            let step =
                self.api::<Promotion>().get(&promotion.name_any()).await.expect("read").status.unwrap_or_default().step;
            let is = shown.as_ref().is_some_and(|m| m.name == promotion.name_any() && m.taken == step);
            shown.clone().filter(|_| is).ok_or_else(|| format!("{shown:?}, step {step}"))
        })
        .await
    }

    /// Waits until the condition about promotions of a pipeline has this reason. `None`: until the condition is absent.
    pub async fn promotion_pending(&self, pipeline: &str, reason: Option<&str>) -> Option<Condition> {
        eventually(&format!("{CONDITION} of {pipeline} is {reason:?}"), async || {
            let conditions = self.get_pipeline(pipeline).await.status.unwrap_or_default().conditions;
            let found = get(&conditions, CONDITION).cloned();
            let is = found.as_ref().map(|c| c.reason.as_str()) == reason;
            if is { Ok(found) } else { Err(format!("{conditions:?}")) }
        })
        .await
    }

    /// Moves the last attempt and all steps of a promotion into the past, so that its timeout is over. No test can wait for a week.
    pub async fn grow_old(&self, promotion: &Promotion) {
        let (api, name) = (self.api::<Promotion>(), promotion.name_any());
        eventually(&format!("the times of {name} are in the past"), async || {
            let found = api.get(&name).await.map_err(|e| e.to_string())?;
            let past = Time::now() - LONG_AGO;
            let mut steps = found.status.unwrap_or_default().steps;
            for (step, n) in steps.iter_mut().zip(0..) {
                step.time = past + Duration::from_millis(n);
            }
            let version = found.metadata.resource_version;
            let status = json!({"lastAttemptedTime": past, "steps": steps});
            let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "status": status}));
            api.patch_status(&name, &PatchParams::default(), &patch).await.map(drop).map_err(|e| e.to_string())
        })
        .await;
    }

    /// Waits until the persisted cursor has passed everything in the log of a pipeline.
    pub async fn passed(&self, pipeline: &str) {
        eventually("the cursor has passed everything", async || {
            let status = self.get_pipeline(pipeline).await.status.unwrap_or_default();
            let (log, dispatched) = (status.log.unwrap_or_default(), status.dispatched.unwrap_or_default());
            let passed = dispatched.cursors.iter().all(|cursor| cursor.serial == log.serial);
            passed.then_some(()).ok_or_else(|| format!("{:?} of {}", dispatched.cursors, log.serial))
        })
        .await;
    }

    /// Proves that the promotion controller has processed everything so far, and that all transitions have been sent: a later promotion was
    /// requested and finished, and after it the fence of [`World::fence`] has passed.
    pub async fn promotion_fence(&self, pipeline: &str, notifications: &[&str]) {
        let revision = format!("g{}", self.fences.fetch_add(1, Ordering::Relaxed) + 1);
        self.ship("gate", &revision).await;
        let what = format!("{pipeline}/{FENCE} {revision}");
        self.promotion(&what, is(Phase::Requested)).await;
        self.ship(FENCE, &revision).await;
        let finished = self.promotion(&what, is(Phase::Finished)).await;
        self.mirrored(&finished).await;
        self.fence(pipeline, notifications).await;
    }
}

/// Returns a policy with the strategy `notification`. `over` is merged into it.
pub fn by_notification(over: Value) -> Value {
    let mut policy = json!({"strategy": {"notification": {}}});
    json_patch::merge(&mut policy, &over);
    policy
}

/// Returns the pipeline of [`World::promoting`] as JSON.
pub fn promoting(ns: &str, name: &str, environments: &[(&str, Value)]) -> Value {
    let targets = environments.iter().map(|(environment, _)| format!("{environment}/{name}-{environment}"));
    let targets: Vec<_> = targets.chain(["gate/gate".to_owned()]).collect();
    let targets: Vec<_> = targets.iter().map(String::as_str).collect();
    let mut object = super::pipeline(ns, name, Kind::Deployment, &targets);
    let policies = environments.iter().map(|(environment, policy)| (*environment, policy.clone()));
    for (environment, policy) in policies.chain([(FENCE, by_notification(json!({})))]).filter(|(_, p)| !p.is_null()) {
        let all = object["spec"]["environments"].as_array_mut().expect("a list");
        all.iter_mut().filter(|e| e["name"] == environment).for_each(|e| e["promotion"] = policy.clone());
    }
    object
}

/// Whether a promotion is in this phase.
pub fn is(phase: Phase) -> impl Fn(&Promotion) -> bool {
    move |promotion| promotion.status.as_ref().is_some_and(|s| s.phase == Some(phase))
}

/// Whether a promotion is in this phase for this reason.
pub fn is_for(phase: Phase, reason: &str) -> impl Fn(&Promotion) -> bool {
    move |promotion| promotion.status.as_ref().is_some_and(|s| s.phase == Some(phase) && s.reason == reason)
}

/// Returns `PIPELINE/ENVIRONMENT REVISION`.
fn place(promotion: &Promotion) -> String {
    let spec = &promotion.spec;
    format!("{}/{} {}", spec.pipeline_ref.name, spec.environment, spec.revision)
}

/// Returns the pipeline and the application of an environment, written as `PIPELINE/ENVIRONMENT`.
fn of(place: &str) -> (&str, String) {
    let (pipeline, environment) = place.split_once('/').expect("PIPELINE/ENVIRONMENT");
    (pipeline, format!("{pipeline}-{environment}"))
}
