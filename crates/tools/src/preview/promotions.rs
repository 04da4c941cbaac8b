//! Pure: why a revision is, or is not, promoted to each environment of a pipeline.
//!
//! In: the pipeline, and its promotions if they can be read. Out: one sentence for each environment that has a promotion strategy
//! ([`ExplainedPromotion`]). Without the promotions, the status of the pipeline has to be enough.

use kube::ResourceExt as _;
use serde::Serialize;

use super::explain::comment;
use relaybook_api::promotion::{Phase, missing as said_missing, with_missing};
use relaybook_api::{Pipeline, Promotion, duration_text};
use relaybook_core::promotion::plan::{Indication, Plan, missing, newest, plan};
use relaybook_core::promotion::policy::{policy, strategy_name};
use relaybook_core::promotion::reason::WAITING_APPROVAL;

/// How promotions to one environment stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedPromotion {
    /// Name of the environment.
    pub environment: String,
    /// The environment before it.
    pub from: String,
    /// The strategy.
    pub strategy: &'static str,
    /// Whether a promotion waits for an approval.
    pub manual: bool,
    /// How long the environment before must have been ready.
    pub after: String,
    /// How long the environment may take to run the revision.
    pub timeout: String,
    /// Whether no promotion is started.
    pub suspend: bool,
    /// What applies now: `Open`, `UpToDate`, `NotObserved`, `RevisionNotSettable`, `EnvironmentNotReady`, `OwnCommit`, `Exists`,
    /// `Baseline`, `Suspended` or `Create`.
    pub state: &'static str,
    /// One sentence with the reason and the remedy.
    pub message: String,
    /// The newest promotion to the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promotion: Option<NewestPromotion>,
}

/// The newest promotion to an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewestPromotion {
    /// Name of the Promotion.
    pub name: String,
    /// Its revision.
    pub revision: String,
    /// Its phase. Absent if the controller has not read it yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Machine-readable reason for the phase.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Human-readable message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// URL of its pull request or commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Whether the pipeline promotes a revision to any environment.
#[must_use]
pub fn promotes(pipeline: &Pipeline) -> bool {
    (1..pipeline.spec.environments.len()).any(|index| policy(&pipeline.spec, index).is_some())
}

/// Explains the promotions of a pipeline. `promotions`: those of this pipeline. `None`: they cannot be read.
#[must_use]
pub fn promotions(pipeline: &Pipeline, promotions: Option<&[Promotion]>) -> Vec<ExplainedPromotion> {
    let all: Vec<&Promotion> = promotions.into_iter().flatten().collect();
    let environments = pipeline.spec.environments.iter().enumerate().skip(1).zip(&pipeline.spec.environments);
    let explained = environments.filter_map(|((index, environment), before)| {
        let policy = policy(&pipeline.spec, index)?;
        let found = match promotions {
            Some(_) => newest(&all, &environment.name).map(NewestPromotion::of),
            None => in_status(pipeline, &environment.name),
        };
        let place = Place { pipeline: &pipeline.name_any(), from: &before.name, to: &environment.name };
        let plan = plan(pipeline, index, &all);
        let (state, message) = match &found {
            Some(open) if open.is_open() => ("Open", place.open(open, policy.manual)),
            found => place.closed(&plan, found.as_ref()),
        };
        // The message of an open promotion says it already.
        let absent = missing(pipeline, index).filter(|_| said_missing(&message).is_none());
        let message = absent.map_or_else(|| message.clone(), |absent| with_missing(&message, Some(&absent)));
        Some(ExplainedPromotion {
            environment: environment.name.clone(),
            from: before.name.clone(),
            strategy: strategy_name(&policy.strategy),
            manual: policy.manual,
            after: duration_text(policy.after),
            timeout: duration_text(policy.timeout),
            suspend: policy.suspend,
            state,
            message,
            promotion: found,
        })
    });
    explained.collect()
}

/// Returns the newest promotion to an environment, as the status of the pipeline shows it.
fn in_status(pipeline: &Pipeline, environment: &str) -> Option<NewestPromotion> {
    let known = pipeline.status.as_ref()?.environments.iter().find(|known| known.name == environment)?.promotion.as_ref()?;
    Some(NewestPromotion {
        name: known.name.clone(),
        revision: known.revision.clone(),
        phase: Some(known.phase),
        reason: known.reason.clone(),
        message: String::new(),
        url: known.location.clone(),
    })
}

impl NewestPromotion {
    fn of(promotion: &Promotion) -> Self {
        let status = promotion.status.clone().unwrap_or_default();
        Self {
            name: promotion.name_any(),
            revision: promotion.spec.revision.clone(),
            phase: status.phase,
            reason: status.reason,
            message: status.message,
            url: status.location,
        }
    }

    fn is_open(&self) -> bool {
        self.phase.is_none_or(|phase| !phase.is_ended())
    }

    /// Returns name, revision, phase, reason, URL and message.
    fn described(&self) -> String {
        let Self { name, revision, reason, message, url, .. } = self;
        let phase = self.phase.map_or("new", Phase::as_str);
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        let message = if message.is_empty() { String::new() } else { format!(": {message}") };
        let url = url.as_ref().map_or_else(String::new, |url| format!(" at {url}"));
        format!("{name} of {revision} is {phase}{reason}{url}{message}")
    }
}

/// The pipeline and the two environments, for messages.
struct Place<'a> {
    pipeline: &'a str,
    from: &'a str,
    to: &'a str,
}

impl Place<'_> {
    /// Returns the sentence about a promotion that is not ended.
    fn open(&self, open: &NewestPromotion, manual: bool) -> String {
        let Self { pipeline, to, .. } = self;
        let waits = manual && open.reason == WAITING_APPROVAL;
        let remedy = if waits { format!("; relaybook approve {pipeline} {to} approves it") } else { String::new() };
        format!("{}{remedy}", open.described())
    }

    /// Returns the state and the sentence if no promotion is open.
    fn closed(&self, plan: &Plan, found: Option<&NewestPromotion>) -> (&'static str, String) {
        let Self { pipeline, from, to } = self;
        let start = format!("relaybook promote {pipeline} {to}");
        match plan {
            Plan::UpToDate => ("UpToDate", format!("{to} runs or tries the revision of {from}, so nothing is promoted")),
            Plan::OwnCommit(_) => {
                ("OwnCommit", format!("{from} runs a commit that a promotion made, and it is not promoted again"))
            }
            Plan::NotObserved(why) => ("NotObserved", format!("nothing is promoted now: {why}")),
            Plan::NotSettable(why) => ("RevisionNotSettable", format!("nothing is promoted now: {why}")),
            Plan::EnvironmentNotReady(why) => ("EnvironmentNotReady", format!("nothing is promoted now: {why}")),
            Plan::Exists(name) => (
                "Exists",
                match found.filter(|found| found.name == *name) {
                    Some(ended) => format!("{}; {start} starts another one", ended.described()),
                    None => format!("{name} was started for it, and is deleted; {start} starts another one"),
                },
            ),
            Plan::Baseline(Indication { revision, .. }) => {
                ("Baseline", format!("{from} ran {revision} already when it was first observed; {start} promotes it"))
            }
            Plan::Suspended(Indication { revision, .. }) => {
                ("Suspended", format!("{revision} is not promoted, because suspend is true in the promotion policy"))
            }
            Plan::Create(Indication { revision, .. }) => {
                ("Create", format!("{revision} goes from {from} to {to} as soon as the promotion controller runs"))
            }
        }
    }
}

impl ExplainedPromotion {
    /// Returns the settings and the sentence as a comment line of YAML.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { environment, from, strategy, after, timeout, message, .. } = self;
        let manual = if self.manual { "manual" } else { "automatic" };
        let settings = format!("{strategy}, {manual}, after {after}, timeout {timeout}");
        comment(&format!("# promotion from {from} to {environment} ({settings}): {message}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use relaybook_api::PromotionSpec;
    use relaybook_api::promotion::PromotedPipeline;
    use relaybook_core::promotion::names;

    /// Returns a pipeline with dev and prod. dev runs 2 since change 20, prod runs 1. `prod` is merged into the status of prod.
    fn pipeline(reached: i64, prod: &Value) -> Pipeline {
        let target = |namespace: &str, revision: &str| {
            json!({
                "clusterAppRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": namespace},
                "status": "Current", "ready": true, "revision": revision, "attemptedRevision": revision,
                "settled": {"status": "Current", "revision": revision, "current": revision},
            })
        };
        let environment = |name: &str, revision: &str, reached: i64| {
            let settled = json!({"status": "Current", "revision": revision, "current": revision, "reached": reached});
            json!({"name": name, "targets": [target(name, revision)], "settled": settled})
        };
        let mut after = environment("prod", "1", 0);
        json_patch::merge(&mut after, prod);
        serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "web", "namespace": "team-a", "uid": "u", "generation": 1},
            "spec": {
                "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "environments": [
                    {"name": "dev", "targets": [{"namespace": "dev"}]}, {"name": "prod", "targets": [{"namespace": "prod"}]},
                ],
                "promotion": {"manual": true, "strategy": {"notification": {}}},
            },
            "status": {"observedGeneration": 1, "environments": [environment("dev", "2", reached), after]},
        }))
        .unwrap()
    }

    fn promotion(status: &Value) -> Promotion {
        let spec = PromotionSpec {
            pipeline_ref: PromotedPipeline { name: "web".to_owned(), uid: "u".to_owned() },
            environment: "prod".to_owned(),
            from: "dev".to_owned(),
            revision: "2".to_owned(),
            occasion: 20,
            ..PromotionSpec::default()
        };
        let mut promotion = Promotion::new(&names::name(&spec), spec);
        promotion.status = serde_json::from_value(status.clone()).unwrap();
        promotion
    }

    #[test]
    fn each_environment_has_one_sentence_with_a_remedy() {
        let status = |phase: &str, reason: &str| json!({"phase": phase, "reason": reason, "message": "a\nb", "step": 1});
        let mirror = |phase: &str| json!({"promotion": {"name": "web-prod-x", "revision": "2", "phase": phase, "occasion": 20, "taken": 1}});
        let moving = json!({"targets": [{
            "clusterAppRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "prod"},
            "status": "InProgress", "ready": false, "revision": "1", "attemptedRevision": "2",
            "settled": {"status": "InProgress", "revision": "2", "current": "1"},
        }]});
        let absent = json!({"targets": [{
            "clusterAppRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "prod"},
            "status": "NotFound", "ready": false, "revision": "", "message": "Deployment web does not exist in namespace prod",
        }]});
        let mut suspended = pipeline(20, &json!({}));
        suspended.spec.promotion.as_mut().unwrap().suspend = true;
        for (what, pipeline, all, state, words) in vec![
            ("it can start", pipeline(20, &json!({})), Some(vec![]), "Create", "2 goes from dev to prod as soon as"),
            ("suspended", suspended, Some(vec![]), "Suspended", "2 is not promoted, because suspend is true"),
            (
                "at first sight",
                pipeline(0, &json!({})),
                Some(vec![]),
                "Baseline",
                "dev ran 2 already when it was first observed; relaybook promote web prod promotes it",
            ),
            ("it is there", pipeline(20, &moving), Some(vec![]), "UpToDate", "prod runs or tries the revision of dev"),
            (
                "nothing is there",
                pipeline(20, &absent),
                Some(vec![]),
                "Create",
                "as soon as the promotion controller runs; a target is missing: Deployment web does not exist",
            ),
            (
                "nothing is there, and its promotion says so",
                pipeline(20, &absent),
                Some(vec![promotion(&json!({
                    "phase": "Pending", "reason": "WaitingApproval", "message": "a; a target is missing: b", "step": 1,
                }))]),
                "Open",
                ": a; a target is missing: b; relaybook approve web prod approves it",
            ),
            (
                "it waits",
                pipeline(20, &json!({})),
                Some(vec![promotion(&status("Pending", "WaitingApproval"))]),
                "Open",
                " of 2 is Pending (WaitingApproval): a b; relaybook approve web prod approves it",
            ),
            (
                "its pull request is open",
                pipeline(20, &json!({})),
                Some(vec![promotion(&json!({
                    "phase": "Open", "reason": "Opened", "message": "m", "step": 1, "location": "https://e.com/pulls/7",
                }))]),
                "Open",
                " of 2 is Open (Opened) at https://e.com/pulls/7: m",
            ),
            ("it is new", pipeline(20, &json!({})), Some(vec![promotion(&Value::Null)]), "Open", " of 2 is new"),
            (
                "it has failed",
                pipeline(20, &json!({})),
                Some(vec![promotion(&status("Failed", "NotRunning"))]),
                "Exists",
                " of 2 is Failed (NotRunning): a b; relaybook promote web prod starts another one",
            ),
            (
                "it was deleted",
                pipeline(20, &mirror("Requested")),
                Some(vec![]),
                "Exists",
                "web-prod-x was started for it, and is deleted; relaybook promote web prod starts another one",
            ),
            ("it cannot be read", pipeline(20, &mirror("Pending")), None, "Open", "web-prod-x of 2 is Pending"),
            (
                "it cannot be read, and has ended",
                pipeline(20, &mirror("Withdrawn")),
                None,
                "Exists",
                "web-prod-x of 2 is Withdrawn; relaybook promote web prod starts another one",
            ),
        ] {
            assert!(promotes(&pipeline), "{what}");
            let explained = promotions(&pipeline, all.as_deref());
            let [one] = &explained[..] else { panic!("{what}: {explained:?}") };
            assert_eq!((one.environment.as_str(), one.from.as_str(), one.state), ("prod", "dev", state), "{what}: {one:?}");
            assert_eq!((one.strategy, one.manual), ("notification", true), "{what}");
            let line = one.line();
            let head = "# promotion from dev to prod (notification, manual, after 0s, timeout 168h): ";
            assert!(line.starts_with(head) && line.contains(words), "{what}: {line}");
            assert!(!line.contains('\n'), "{what}: {line}");
        }
    }

    #[test]
    fn a_pipeline_without_a_strategy_has_nothing_to_explain() {
        let mut without = pipeline(20, &json!({}));
        without.spec.promotion = None;
        assert!(!promotes(&without) && promotions(&without, Some(&[])).is_empty());
    }
}
