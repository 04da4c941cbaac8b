//! Pure: two neighboring environments, as the spec and the status of their pipeline show them.
//!
//! While the pipeline controller has not processed the spec, the status describes other environments or targets. Then nothing is known.

use super::text::{answer, bounded, revision, shown};
use relaybook_api::conditions;
use relaybook_api::conditions::{Condition, ConditionStatus, READY};
use relaybook_api::pipeline::{Environment, EnvironmentStatus, TargetStatus};
use relaybook_api::promotion::EnvironmentPromotion;
use relaybook_api::{Pipeline, PipelineStatus, Settled, Status, Time};
use relaybook_text::ELLIPSIS;

/// The reason of `Ready=False` if an application object does not exist.
const TARGET_NOT_FOUND: &str = "TargetNotFound";
/// The reason of `Ready=False` if a target cannot be observed and gives no reason.
const UNKNOWN: &str = "Unknown";
/// Maximum number of targets in a message.
const NAMED: usize = 5;
/// Maximum number of missing targets in a message.
const MISSING: usize = 2;

/// An environment and the one before it.
pub struct Pair<'a> {
    /// The environment before.
    pub(super) from: &'a Environment,
    /// The environment to which revisions go.
    pub(super) to: &'a Environment,
    /// Why nothing is known about the pipeline.
    unprocessed: Option<String>,
    source: Option<&'a EnvironmentStatus>,
    target: Option<&'a EnvironmentStatus>,
    mirror: Option<&'a EnvironmentPromotion>,
}

impl<'a> Pair<'a> {
    /// Returns the environment with this index and the one before it. `None`: there is no such environment, or it is the first one.
    pub fn new(pipeline: &'a Pipeline, index: usize) -> Option<Self> {
        let environments = &pipeline.spec.environments;
        let (from, to) = (environments.get(index.checked_sub(1)?)?, environments.get(index)?);
        let unprocessed = unprocessed(pipeline);
        let known = |name: &str| status_of(pipeline, name).filter(|_| unprocessed.is_none());
        let (source, target) = (known(&from.name), known(&to.name));
        Some(Self { from, to, source, target, mirror: mirror(pipeline, &to.name), unprocessed })
    }

    /// Returns why the state of one of the two environments is not known. A target that does not exist is known to be absent.
    pub fn not_observed(&self) -> Option<String> {
        let both = || [(self.from, self.source), (self.to, self.target)].into_iter().find_map(unknown);
        self.unprocessed.clone().or_else(both)
    }

    /// Returns the last settled state of the environment before.
    pub(super) fn source(&self) -> Option<&'a Settled> {
        self.source?.settled.as_ref()
    }

    /// Returns the state of the environment before, if all its targets are ready at one revision.
    pub fn ready(&self) -> Option<&'a Settled> {
        self.source().filter(|settled| settled.status == Status::Current)
    }

    /// Returns the serial with which the environment before came to run its revision, or 0.
    pub fn reached(&self) -> i64 {
        self.source().map_or(0, |settled| settled.reached)
    }

    /// Returns the revision at which the environment was last ready.
    pub(super) fn last(&self) -> Option<&'a str> {
        self.target?.settled.as_ref()?.current.as_deref()
    }

    /// Whether all targets of the environment run the revision.
    pub fn runs(&self, revision: &str) -> bool {
        let settled = self.target.and_then(|target| target.settled.as_ref());
        settled.is_some_and(|settled| settled.status == Status::Current && settled.revision == revision)
    }

    /// Whether every target of the environment runs the revision, or tries to.
    pub(super) fn tries(&self, revision: &str) -> bool {
        let Some(target) = self.target else { return false };
        let tries = |target: &TargetStatus| target.revision == revision || target.attempted_revision == revision;
        is_whole(self.to, target) && !target.targets.is_empty() && target.targets.iter().all(tries)
    }

    /// Returns the newest promotion of the environment whose steps are in the log.
    pub fn mirror(&self) -> Option<&'a EnvironmentPromotion> {
        self.mirror
    }

    /// Returns when the status of a target of the environment before last changed.
    pub(super) fn changed(&self) -> Option<Time> {
        self.source?.targets.iter().filter_map(|target| target.last_transition_time).max()
    }

    /// Returns when a target of the second environment changed last.
    pub(super) fn target_changed(&self) -> Option<Time> {
        self.target?.targets.iter().filter_map(|target| target.last_transition_time).max()
    }

    /// Describes the first target of the second environment that has failed at a revision.
    pub(super) fn failed_at(&self, revision: &str) -> Option<String> {
        let failed = |target: &&TargetStatus| target.status == Status::Failed && target.attempted_revision == revision;
        let target = self.target?.targets.iter().find(failed)?;
        let why = if target.message.is_empty() { &target.reason } else { &target.message };
        Some(format!("{}, and has failed: {}", described(target), shown(why)))
    }

    /// Names the targets of the second environment whose objects do not exist. `Err`: that is not known.
    pub(super) fn missing(&self) -> Result<Option<String>, ()> {
        if self.not_observed().is_some() {
            return Err(());
        }
        let all = self.target.into_iter().flat_map(|target| &target.targets);
        let missing: Vec<&TargetStatus> = all.filter(|target| target.status == Status::NotFound).collect();
        let said = |target: &&TargetStatus| {
            // The message also names a similar object.
            if target.message.is_empty() { described(target) } else { answer(&target.message) }
        };
        let mut parts: Vec<String> = missing.iter().take(MISSING).map(said).collect();
        if missing.len() > MISSING {
            parts.push(format!("and {} more", missing.len() - MISSING));
        }
        Ok((!parts.is_empty()).then(|| parts.join("; ")))
    }

    /// Returns what each target of the environment runs.
    pub(super) fn described(&self) -> String {
        let targets = self.target.map(|target| target.targets.as_slice()).unwrap_or_default();
        if targets.is_empty() {
            return format!("the targets of {} are not known", shown(&self.to.name));
        }
        let mut all: Vec<String> = targets.iter().take(NAMED).map(described).collect();
        if targets.len() > NAMED {
            all.push(format!("{} more", targets.len() - NAMED));
        }
        all.join(", ")
    }
}

/// Returns the index of an environment in the spec.
pub fn index_of(pipeline: &Pipeline, environment: &str) -> Option<usize> {
    pipeline.spec.environments.iter().position(|e| e.name == environment)
}

/// Returns the newest promotion of an environment whose steps are in the log.
pub fn mirror<'a>(pipeline: &'a Pipeline, environment: &str) -> Option<&'a EnvironmentPromotion> {
    status_of(pipeline, environment)?.promotion.as_ref()
}

fn status_of<'a>(pipeline: &'a Pipeline, environment: &str) -> Option<&'a EnvironmentStatus> {
    pipeline.status.as_ref()?.environments.iter().find(|e| e.name == environment)
}

fn unprocessed(pipeline: &Pipeline) -> Option<String> {
    let status = pipeline.status.as_ref();
    if pipeline.metadata.deletion_timestamp.is_some() {
        return Some("the pipeline is being deleted".to_owned());
    }
    let Some(status) = status.filter(|status| status.observed_generation == pipeline.metadata.generation) else {
        return Some("the pipeline controller has not processed the spec yet".to_owned());
    };
    refused(status).map(|ready| bounded(&format!("the spec is refused: {}", ready.message)))
}

/// Returns the condition `Ready` if it reports that the spec is refused. Otherwise, its reason is that of a target.
#[must_use]
pub fn refused(status: &PipelineStatus) -> Option<&Condition> {
    let ready = conditions::get(&status.conditions, READY).filter(|ready| ready.status == ConditionStatus::False)?;
    let mut targets = status.environments.iter().flat_map(|environment| &environment.targets);
    let is_of_targets = [TARGET_NOT_FOUND, UNKNOWN].contains(&ready.reason.as_str())
        || targets.any(|target| target.status == Status::Unknown && target.reason == ready.reason);
    (!is_of_targets).then_some(ready)
}

/// Whether a condition `Ready` that [`refused`] returns is only about entries of `targetsFrom` of other environments. The status then describes
/// this environment. A message that was cut can be about any environment, and so can one about the spec or about a limit.
#[must_use]
pub fn is_elsewhere(ready: &Condition, pipeline: &Pipeline, environment: &str) -> bool {
    let is_of = |part: &str, name: &str| part.strip_prefix(name).is_some_and(|rest| rest.starts_with("/targetsFrom["));
    // Each problem of an entry begins a part with its environment. A part that begins otherwise continues the message of the part before.
    let mut parts = ready.message.split("; ");
    let begins = parts.next().is_some_and(|first| {
        let mut others = pipeline.spec.environments.iter().filter(|other| other.name != environment);
        others.any(|other| is_of(first, &other.name))
    });
    begins && !parts.any(|part| is_of(part, environment)) && !ready.message.ends_with(ELLIPSIS)
}

/// Returns why the state of an environment is not known.
fn unknown((environment, status): (&Environment, Option<&EnvironmentStatus>)) -> Option<String> {
    let name = shown(&environment.name);
    let is_empty = environment.targets.is_empty() && environment.targets_from.is_empty();
    if is_empty || status.is_some_and(|status| is_whole(environment, status) && status.targets.is_empty()) {
        return Some(format!("{name} has no target"));
    }
    let Some(status) = status.filter(|status| is_whole(environment, status)) else {
        return Some(format!("not every target of {name} is observed yet"));
    };
    if let Some(unknown) = status.targets.iter().find(|target| target.status == Status::Unknown) {
        return Some(format!("a target of {name} cannot be observed: {}", reason_or_none(&unknown.reason)));
    }
    let is_new = |target: &TargetStatus| target.settled.is_none() && target.status != Status::NotFound;
    status.targets.iter().any(is_new).then(|| format!("not every target of {name} is observed yet"))
}

/// Whether the status contains every target of an environment. An environment without targets is not whole.
#[must_use]
pub fn is_whole(environment: &Environment, status: &EnvironmentStatus) -> bool {
    let is_listed = |index: usize| status.generated.iter().any(|of| usize::try_from(of.from) == Ok(index));
    let is_empty = environment.targets.is_empty() && environment.targets_from.is_empty();
    !is_empty && status.targets.len() >= environment.targets.len() && (0..environment.targets_from.len()).all(is_listed)
}

fn reason_or_none(reason: &str) -> String {
    if reason.is_empty() { "its state is unknown".to_owned() } else { shown(reason) }
}

fn described(target: &TargetStatus) -> String {
    let app = &target.cluster_app_ref;
    let cluster = app.cluster_ref.as_ref().map_or_else(String::new, |of| format!(" of cluster {}", shown(&of.name)));
    let place = format!("{} in namespace {}{cluster}", shown(&app.name), shown(&app.namespace));
    let tries = if target.attempted_revision.is_empty() || target.attempted_revision == target.revision {
        String::new()
    } else {
        format!(" and tries {}", revision(&target.attempted_revision))
    };
    match target.status {
        Status::NotFound => format!("{place} does not exist"),
        Status::Unknown => format!("{place} cannot be observed"),
        _ => format!("{place} runs {}{tries}", revision(&target.revision)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promotion::testing::{PROD, STAGING, pipeline, ready_condition, with};

    fn pair(pipeline: &Pipeline) -> Pair<'_> {
        Pair::new(pipeline, PROD).unwrap()
    }

    #[test]
    fn a_pair_is_not_observed_while_its_status_is_incomplete_or_outdated() {
        let edited = |edit: &dyn Fn(&mut Pipeline)| {
            let mut pipeline = pipeline();
            edit(&mut pipeline);
            pipeline
        };
        let with_target = |index: usize, edit: &dyn Fn(&mut TargetStatus)| {
            edited(&|p| edit(&mut p.status.as_mut().unwrap().environments[index].targets[0]))
        };
        let refused = |reason: &str| edited(&|p| p.status.as_mut().unwrap().conditions = vec![ready_condition(reason)]);
        for (what, pipeline, words) in vec![
            ("observed", pipeline(), None),
            ("another generation", edited(&|p| p.metadata.generation = Some(2)), Some("has not processed the spec yet")),
            ("no status", edited(&|p| p.status = None), Some("has not processed the spec yet")),
            ("the spec is refused", refused("DuplicateTarget"), Some("the spec is refused: because")),
            ("a target is missing", refused("TargetNotFound"), None),
            ("the environment is new", edited(&|p| drop(p.status.as_mut().unwrap().environments.pop())), Some("of prod is")),
            ("no target", edited(&|p| p.spec.environments[STAGING].targets.clear()), Some("staging has no target")),
            (
                "a target more",
                edited(&|p| {
                    let target = p.spec.environments[PROD].targets[0].clone();
                    p.spec.environments[PROD].targets.push(target);
                }),
                Some("not every target of prod"),
            ),
            (
                "out of sight",
                with_target(STAGING, &|t| (t.status, t.reason) = (Status::Unknown, "Unreachable".into())),
                Some("a target of staging cannot be observed: Unreachable"),
            ),
            ("never settled", with_target(PROD, &|t| t.settled = None), Some("not every target of prod")),
            ("known to be absent", with_target(PROD, &|t| (t.status, t.settled) = (Status::NotFound, None)), None),
        ] {
            let found = pair(&pipeline).not_observed();
            match (&found, words) {
                (None, None) => {}
                (Some(found), Some(words)) if found.contains(words) => {}
                _ => panic!("{what}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_refused_spec_is_distinguished_from_a_target_that_cannot_be_observed() {
        let mut pipeline = pipeline();
        let status = pipeline.status.as_mut().unwrap();
        status.conditions = vec![ready_condition("Unreachable")];
        (status.environments[0].targets[0].status, status.environments[0].targets[0].reason) =
            (Status::Unknown, "Unreachable".into());
        assert_eq!(pair(&pipeline).not_observed(), None, "the reason is that of a target of another environment");
        pipeline.status.as_mut().unwrap().conditions = vec![ready_condition("AmbiguousCluster")];
        assert!(pair(&pipeline).not_observed().is_some());
        assert_eq!(pair(&pipeline).ready(), None, "the status describes another spec");
        assert!(!pair(&pipeline).runs("1") && !pair(&pipeline).tries("1"));
    }

    #[test]
    fn a_problem_of_another_environment_is_elsewhere() {
        let pipeline = pipeline();
        for (message, environments) in [
            ("dev/targetsFrom[0]: no permission", &["staging", "prod"][..]),
            ("dev/targetsFrom[0]: no; dev/targetsFrom[1]: cannot observe dev/c/web; prod/targetsFrom[0]: no", &["staging"]),
            ("dev/targetsFrom[1] and dev/targetsFrom[0] both have the target dev/c/n/web", &["staging", "prod"]),
            ("dev/targetsFrom[0]: the answer was cut…", &[]),
            ("targetsFrom[0] of environment dev must have exactly one of fleet and objects", &[]),
            ("2 objects are selected beyond the maximum; dev/targetsFrom[0]: no", &[]),
            ("other/targetsFrom[0]: no", &[]),
            ("because", &[]),
        ] {
            let ready = Condition { message: message.to_owned(), ..ready_condition("Forbidden") };
            let is = |name: &&str| is_elsewhere(&ready, &pipeline, name);
            assert_eq!(["dev", "staging", "prod"].into_iter().filter(is).collect::<Vec<_>>(), environments, "{message}");
        }
    }

    #[test]
    fn missing_targets_are_named_if_they_are_known_to_be_missing() {
        let absent = |index| with(index, |environment| environment.targets[0].status = Status::NotFound);
        let mut many = absent(PROD);
        assert_eq!(pair(&many).missing(), Ok(Some("web in namespace prod does not exist".to_owned())));
        let targets = &mut many.status.as_mut().unwrap().environments[PROD].targets;
        targets[0].message = "Deployment wbe does not exist in namespace prod; did you mean web?".into();
        let one = targets[0].clone();
        targets.extend([one.clone(), one]);
        let named = "Deployment wbe does not exist in namespace prod; did you mean web?";
        assert_eq!(pair(&many).missing(), Ok(Some(format!("{named}; {named}; and 1 more"))));
        many.status.as_mut().unwrap().environments[PROD].targets[1].status = Status::Unknown;
        assert_eq!(pair(&many).missing(), Err(()), "one of them cannot be observed");
        assert_eq!(pair(&pipeline()).missing(), Ok(None));
        assert_eq!(pair(&absent(STAGING)).missing(), Ok(None), "a promotion does not go there");
    }

    #[test]
    fn an_environment_tries_a_revision_if_each_target_does() {
        let mut two = pipeline();
        let environment = &mut two.status.as_mut().unwrap().environments[PROD];
        environment.targets.push(environment.targets[0].clone());
        environment.targets[1].attempted_revision = "2".into();
        assert!(pair(&two).tries("1") && !pair(&two).tries("2"));
        two.status.as_mut().unwrap().environments[PROD].targets[0].attempted_revision = "2".into();
        assert!(pair(&two).tries("2"));
        let words = pair(&two).described();
        assert!(words.starts_with("web in namespace prod runs 1 and tries 2, "), "{words}");
    }
}
