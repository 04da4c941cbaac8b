//! Pure: what a person requests with `relaybook promote` and `relaybook approve`, and why it is refused.
//!
//! In: a pipeline and its promotions, as the API server returns them, and the arguments. Out: the Promotion to create ([`promote`]), or the
//! Promotion to approve ([`approve`]). The promotion controller decides again, with its own data.

use kube_core::ResourceExt as _;

use crate::promotion::names;
use crate::promotion::plan::{Plan, newest, plan};
use crate::promotion::policy::{Policy, policy};
use relaybook_api::pipeline::EnvironmentStatus;
use relaybook_api::promotion::{Phase, PromotedPipeline};
use relaybook_api::{Pipeline, Promotion, PromotionSpec};
use relaybook_text::escaped;

/// Why a request is refused. Each message says what is there, and how to continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
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
    #[error("{environment} is the first environment of Pipeline {pipeline}, so nothing is promoted to it")]
    FirstEnvironment {
        /// Name of the pipeline.
        pipeline: String,
        /// Name of the environment.
        environment: String,
    },
    /// The environment has no strategy.
    #[error("Pipeline {pipeline} has no promotion strategy for {environment}; set spec.promotion.strategy")]
    NoStrategy {
        /// Name of the pipeline.
        pipeline: String,
        /// Name of the environment.
        environment: String,
    },
    /// The state of one of the two environments is not known, or the environment before is not ready.
    #[error("nothing can be promoted to {environment} now: {why}")]
    NotReady {
        /// Name of the environment.
        environment: String,
        /// What the plan says.
        why: String,
    },
    /// The environment runs or tries the revision.
    #[error("{environment} runs or tries {revision} already, which is the revision of {from}")]
    UpToDate {
        /// Name of the environment.
        environment: String,
        /// The environment before it.
        from: String,
        /// The revision.
        revision: String,
    },
    /// The environment before runs another revision than the requested one.
    #[error("{from} runs {runs}, not {requested}; only what {from} runs can be promoted to {environment}")]
    OtherRevision {
        /// Name of the environment.
        environment: String,
        /// The environment before it.
        from: String,
        /// The revision that it runs.
        runs: String,
        /// The requested revision.
        requested: String,
    },
    /// A promotion to the environment is open.
    #[error("a promotion to {environment} is open: {found}; {remedy}")]
    Open {
        /// Name of the environment.
        environment: String,
        /// The promotion.
        found: String,
        /// How to continue.
        remedy: String,
    },
    /// The newest promotion does not wait for an approval.
    #[error("no promotion to {environment} waits for an approval: {found}")]
    NothingWaits {
        /// Name of the environment.
        environment: String,
        /// What is there instead.
        found: String,
    },
    /// The promotion that waits is for another revision.
    #[error("nothing was approved: {found}, and not of {requested}")]
    OtherWaits {
        /// The newest promotion.
        found: String,
        /// The requested revision.
        requested: String,
    },
}

/// The Promotion that a person requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The object to create.
    pub promotion: Promotion,
    /// Whether it then waits for an approval.
    pub manual: bool,
    /// Whether promotions to the environment are suspended. Then it waits until they are not.
    pub suspended: bool,
}

/// The Promotion that a person wants to approve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found<'a> {
    /// It waits for an approval.
    Waits(&'a Promotion),
    /// It is approved already.
    Approved(&'a Promotion),
}

/// Returns the Promotion that takes the revision of the environment before to an environment. `promotions`: those of this pipeline.
/// `revision`: the revision that the person expects.
pub fn promote(
    pipeline: &Pipeline,
    environment: &str,
    revision: Option<&str>,
    promotions: &[&Promotion],
) -> Result<Request, AskError> {
    let (index, policy) = place(pipeline, environment)?;
    let not_ready = |why: String| AskError::NotReady { environment: environment.to_owned(), why };
    let is_up_to_date = match plan(pipeline, index, promotions) {
        Plan::NotObserved(why) | Plan::NotSettable(why) | Plan::EnvironmentNotReady(why) => return Err(not_ready(why)),
        Plan::UpToDate => true,
        Plan::OwnCommit(_) | Plan::Exists(_) | Plan::Baseline(_) | Plan::Suspended(_) | Plan::Create(_) => false,
    };
    // The index of a place is at least 1.
    let from = pipeline.spec.environments.get(index.saturating_sub(1)).map(|e| e.name.as_str()).unwrap_or_default();
    let unknown = || not_ready(format!("the revision of {from} is not known yet"));
    let source = observed(pipeline, from).and_then(|e| e.settled.as_ref()).ok_or_else(unknown)?;
    let runs = Some(&source.revision).filter(|runs| !runs.is_empty()).ok_or_else(unknown)?;
    if let Some(requested) = revision.filter(|requested| *requested != runs) {
        return Err(AskError::OtherRevision {
            environment: environment.to_owned(),
            from: from.to_owned(),
            runs: escaped(runs),
            requested: escaped(requested),
        });
    }
    if is_up_to_date {
        let (environment, from) = (environment.to_owned(), from.to_owned());
        return Err(AskError::UpToDate { environment, from, revision: escaped(runs) });
    }
    if let Some(open) = promotions.iter().find(|promotion| is_of(promotion, environment) && is_open(promotion)) {
        let (environment, found) = (environment.to_owned(), described(open));
        return Err(AskError::Open { remedy: remedy(pipeline, open, &policy), environment, found });
    }
    let target = observed(pipeline, environment);
    let mirror = target.and_then(|e| e.promotion.as_ref());
    let occasion = source.reached.max(mirror.map_or(0, |mirror| mirror.occasion));
    let numbers = promotions.iter().filter(|p| is_of(p, environment) && p.spec.occasion == occasion).map(|p| p.spec.request);
    let highest = numbers.chain(mirror.filter(|mirror| mirror.occasion == occasion).map(|mirror| mirror.request)).max();
    let spec = PromotionSpec {
        pipeline_ref: PromotedPipeline { name: pipeline.name_any(), uid: pipeline.uid().unwrap_or_default() },
        environment: environment.to_owned(),
        from: from.to_owned(),
        revision: runs.clone(),
        previous: target.and_then(|e| e.settled.as_ref()).and_then(|settled| settled.current.clone()),
        occasion,
        request: highest.unwrap_or(0).saturating_add(1),
        approved: false,
    };
    let labels = names::labels(&spec);
    let mut promotion = Promotion::new(&names::name(&spec), spec);
    promotion.metadata.namespace = pipeline.namespace();
    promotion.metadata.labels = Some(labels);
    Ok(Request { promotion, manual: policy.manual, suspended: policy.suspend })
}

/// Returns the promotion to an environment that waits for an approval, or is approved already. `promotions`: those of this pipeline.
/// `revision`: the revision that the person wants to approve.
pub fn approve<'a>(
    pipeline: &Pipeline,
    environment: &str,
    revision: Option<&str>,
    promotions: &[&'a Promotion],
) -> Result<Found<'a>, AskError> {
    let (_, policy) = place(pipeline, environment)?;
    let nothing = |found: String| AskError::NothingWaits { environment: environment.to_owned(), found };
    let Some(found) = newest(promotions, environment) else {
        return Err(nothing("there is none".to_owned()));
    };
    if let Some(requested) = revision.filter(|requested| *requested != found.spec.revision) {
        return Err(AskError::OtherWaits { found: described(found), requested: escaped(requested) });
    }
    match phase(found) {
        Some(Phase::Closed | Phase::Failed | Phase::Withdrawn) => Err(nothing(described(found))),
        _ if found.spec.approved => Ok(Found::Approved(found)),
        None | Some(Phase::Pending) if policy.manual => Ok(Found::Waits(found)),
        None | Some(Phase::Pending) => Err(nothing(format!("{}, and needs none", described(found)))),
        _ => Err(nothing(described(found))),
    }
}

/// Returns the index of an environment to which revisions are promoted, and its policy.
fn place(pipeline: &Pipeline, environment: &str) -> Result<(usize, Policy), AskError> {
    let all = &pipeline.spec.environments;
    let (name, environment) = (pipeline.name_any(), environment.to_owned());
    match all.iter().position(|e| e.name == environment) {
        None => {
            let known = all.iter().map(|e| e.name.as_str()).collect::<Vec<_>>().join(", ");
            Err(AskError::NoEnvironment { pipeline: name, environment, known })
        }
        Some(0) => Err(AskError::FirstEnvironment { pipeline: name, environment }),
        Some(index) => match policy(&pipeline.spec, index) {
            Some(policy) => Ok((index, policy)),
            None => Err(AskError::NoStrategy { pipeline: name, environment }),
        },
    }
}

fn observed<'a>(pipeline: &'a Pipeline, environment: &str) -> Option<&'a EnvironmentStatus> {
    pipeline.status.as_ref()?.environments.iter().find(|e| e.name == environment)
}

fn is_of(promotion: &Promotion, environment: &str) -> bool {
    promotion.spec.environment == environment
}

fn phase(promotion: &Promotion) -> Option<Phase> {
    promotion.status.as_ref().and_then(|status| status.phase)
}

/// Whether the promotion is not ended. A promotion that the controller has not read yet is open. One that is being deleted is not.
fn is_open(promotion: &Promotion) -> bool {
    promotion.metadata.deletion_timestamp.is_none() && phase(promotion).is_none_or(|phase| !phase.is_ended())
}

/// Returns name, revision, phase and reason of a promotion.
fn described(promotion: &Promotion) -> String {
    let (name, revision) = (promotion.name_any(), escaped(&promotion.spec.revision));
    let reason = promotion.status.as_ref().map(|status| escaped(&status.reason)).filter(|reason| !reason.is_empty());
    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    match phase(promotion) {
        Some(phase) => format!("{name} of {revision} is {}{reason}", phase.as_str()),
        None => format!("{name} of {revision} is new"),
    }
}

/// Returns how to continue if a promotion is open.
fn remedy(pipeline: &Pipeline, open: &Promotion, policy: &Policy) -> String {
    let waits = matches!(phase(open), None | Some(Phase::Pending)) && policy.manual && !open.spec.approved;
    if waits {
        format!("approve it with `relaybook approve {} {}`", pipeline.name_any(), open.spec.environment)
    } else {
        "wait until it has ended, or delete it to start another one".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns a pipeline with dev, staging and prod. Its status says that staging runs 2 since change 20, and prod runs 1. Everything else
    /// comes from `over`, a merge patch.
    fn pipeline(over: &Value) -> Pipeline {
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
        let mut pipeline = json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "web", "namespace": "team-a", "uid": "u", "generation": 1},
            "spec": {
                "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "environments": [
                    {"name": "dev", "targets": [{"namespace": "dev"}]},
                    {"name": "staging", "targets": [{"namespace": "staging"}]},
                    {"name": "prod", "targets": [{"namespace": "prod"}], "promotion": {
                        "manual": true, "strategy": {"notification": {}},
                    }},
                ],
            },
            "status": {
                "observedGeneration": 1,
                "environments": [environment("dev", "2", 10), environment("staging", "2", 20), environment("prod", "1", 0)],
            },
        });
        json_patch::merge(&mut pipeline, over);
        serde_json::from_value(pipeline).unwrap()
    }

    /// Returns the same with these fields in the status of an environment.
    fn with(environment: usize, fields: &Value) -> Pipeline {
        let mut changed = serde_json::to_value(pipeline(&json!({}))).unwrap();
        json_patch::merge(&mut changed["status"]["environments"][environment], fields);
        serde_json::from_value(changed).unwrap()
    }

    /// Returns a promotion of 2 to prod with the name that the spec determines.
    fn promotion(occasion: i64, request: i64, phase: Option<(Phase, &str)>, approved: bool) -> Promotion {
        let spec = PromotionSpec {
            pipeline_ref: PromotedPipeline { name: "web".to_owned(), uid: "u".to_owned() },
            environment: "prod".to_owned(),
            from: "staging".to_owned(),
            revision: "2".to_owned(),
            occasion,
            request,
            approved,
            ..PromotionSpec::default()
        };
        let mut promotion = Promotion::new(&names::name(&spec), spec);
        promotion.status = phase.map(|(phase, reason)| {
            serde_json::from_value(json!({"phase": phase.as_str(), "reason": reason, "step": 1})).unwrap()
        });
        promotion
    }

    fn promoted(pipeline: &Pipeline, revision: Option<&str>, all: &[Promotion]) -> Result<PromotionSpec, String> {
        let all: Vec<_> = all.iter().collect();
        let request = promote(pipeline, "prod", revision, &all).map_err(|e| e.to_string())?;
        assert_eq!(request.promotion.name_any(), names::name(&request.promotion.spec));
        assert_eq!(request.promotion.namespace().as_deref(), Some("team-a"));
        assert_eq!(request.promotion.labels(), &names::labels(&request.promotion.spec));
        Ok(request.promotion.spec)
    }

    #[test]
    fn each_request_of_a_person_has_a_new_number() {
        let ended = |occasion, request| promotion(occasion, request, Some((Phase::Finished, "")), false);
        let refused = promotion(20, 3, Some((Phase::Withdrawn, "NotIndicated")), false);
        let mirror = json!({"promotion": {
            "name": "x", "revision": "2", "phase": "Withdrawn", "occasion": 30, "request": 4, "taken": 1,
        }});
        let baseline = with(1, &json!({"settled": {"reached": 0}}));
        for (what, pipeline, all, expected) in [
            ("nothing is there", pipeline(&json!({})), vec![], (20, 1)),
            ("the revision was there at first sight", baseline, vec![], (0, 1)),
            ("one of Relaybook", pipeline(&json!({})), vec![ended(20, 0)], (20, 1)),
            ("one of a person", pipeline(&json!({})), vec![ended(20, 0), ended(20, 1)], (20, 2)),
            ("one that was refused", pipeline(&json!({})), vec![ended(20, 1), refused], (20, 4)),
            ("of an earlier occasion", pipeline(&json!({})), vec![ended(10, 7)], (20, 1)),
            ("the status knows a later one", with(2, &mirror), vec![ended(20, 1)], (30, 5)),
        ] {
            let spec = promoted(&pipeline, Some("2"), &all).unwrap_or_else(|why| panic!("{what}: {why}"));
            assert_eq!((spec.occasion, spec.request), expected, "{what}");
            let PromotionSpec { from, revision, previous, approved, pipeline_ref, .. } = spec;
            assert_eq!((from.as_str(), revision.as_str(), previous.as_deref()), ("staging", "2", Some("1")), "{what}");
            assert_eq!((approved, pipeline_ref.uid.as_str()), (false, "u"), "{what}");
        }
    }

    #[test]
    fn a_request_without_a_reason_is_refused_with_a_remedy() {
        let open = |phase| promotion(20, 0, phase, false);
        let waits = open(Some((Phase::Pending, "WaitingApproval")));
        let unsettled = json!({"settled": {"status": "InProgress", "revision": "3"}});
        let same = json!({
            "targets": [{
                "clusterAppRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "prod"},
                "status": "Current", "ready": true, "revision": "2", "attemptedRevision": "2",
                "settled": {"status": "Current", "revision": "2", "current": "2"},
            }],
            "settled": {"status": "Current", "revision": "2", "current": "2"},
        });
        for (what, pipeline, revision, all, words) in [
            ("not ready", with(1, &unsettled), None, vec![], "nothing can be promoted to prod now: "),
            ("not observed", pipeline(&json!({"metadata": {"generation": 2}})), None, vec![], "to prod now: "),
            ("up to date", with(2, &same), None, vec![], "prod runs or tries 2 already, which is the revision of staging"),
            (
                "another revision",
                pipeline(&json!({})),
                Some("3"),
                vec![],
                "staging runs 2, not 3; only what staging runs can be promoted to prod",
            ),
            ("one that waits", pipeline(&json!({})), None, vec![waits], "approve it with `relaybook approve web prod`"),
            ("one that is new", pipeline(&json!({})), None, vec![open(None)], " of 2 is new; approve it with"),
            (
                "one that is requested",
                pipeline(&json!({})),
                None,
                vec![open(Some((Phase::Requested, "")))],
                " of 2 is Requested; wait until it has ended, or delete it to start another one",
            ),
        ] {
            let refused = promoted(&pipeline, revision, &all).expect_err(what);
            assert!(refused.contains(words), "{what}: {refused}");
        }
        for (environment, words) in [
            ("dev", "dev is the first environment of Pipeline web"),
            ("staging", "Pipeline web has no promotion strategy for staging; set spec.promotion.strategy"),
            ("test", "Pipeline web has no environment test; it has dev, staging, prod"),
        ] {
            let refused = promote(&pipeline(&json!({})), environment, None, &[]).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
            assert_eq!(approve(&pipeline(&json!({})), environment, None, &[]).unwrap_err().to_string(), refused);
        }
    }

    #[test]
    fn a_request_shows_whether_the_policy_is_manual_or_suspended() {
        let shown = |pipeline: &Pipeline| {
            let request = promote(pipeline, "prod", None, &[]).unwrap();
            (request.manual, request.suspended)
        };
        assert_eq!(shown(&pipeline(&json!({}))), (true, false));
        let mut suspended = pipeline(&json!({}));
        let promotion = suspended.spec.environments[2].promotion.as_mut().unwrap();
        (promotion.manual, promotion.suspend) = (false, true);
        assert_eq!(shown(&suspended), (false, true));
    }

    #[test]
    fn only_a_promotion_that_waits_is_approved() {
        let pipeline = pipeline(&json!({}));
        let mut automatic = pipeline.clone();
        automatic.spec.environments[2].promotion.as_mut().unwrap().manual = false;
        let one = |phase, approved| vec![promotion(20, 0, phase, approved)];
        for (what, pipeline, revision, all, expected) in [
            ("it waits", &pipeline, None, one(Some((Phase::Pending, "WaitingApproval")), false), Ok(false)),
            (
                "it waits for something else too",
                &pipeline,
                Some("2"),
                one(Some((Phase::Pending, "Soaking")), false),
                Ok(false),
            ),
            ("it is new", &pipeline, None, one(None, false), Ok(false)),
            ("it is approved", &pipeline, None, one(Some((Phase::Pending, "Soaking")), true), Ok(true)),
            ("it was approved", &pipeline, None, one(Some((Phase::Finished, "")), true), Ok(true)),
            ("there is none", &pipeline, None, vec![], Err("waits for an approval: there is none")),
            (
                "it needs none",
                &automatic,
                None,
                one(Some((Phase::Pending, "Soaking")), false),
                Err(" of 2 is Pending (Soaking), and needs none"),
            ),
            ("it is requested", &pipeline, None, one(Some((Phase::Requested, "")), false), Err(" of 2 is Requested")),
            (
                "it has failed",
                &pipeline,
                None,
                one(Some((Phase::Failed, "NotRunning")), true),
                Err(" of 2 is Failed (NotRunning)"),
            ),
            (
                "another revision",
                &pipeline,
                Some("3"),
                one(Some((Phase::Pending, "WaitingApproval")), false),
                Err(" of 2 is Pending (WaitingApproval), and not of 3"),
            ),
        ] {
            let all: Vec<_> = all.iter().collect();
            let found = approve(pipeline, "prod", revision, &all);
            match (found, expected) {
                (Ok(Found::Waits(_)), Ok(false)) | (Ok(Found::Approved(_)), Ok(true)) => {}
                (Err(refused), Err(words)) => assert!(refused.to_string().ends_with(words), "{what}: {refused}"),
                (found, _) => panic!("{what}: {found:?}"),
            }
        }
    }
}
