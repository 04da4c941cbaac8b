//! Pure: computes the next status from the last status and the readings, and decides whether it must be written.

pub(super) mod apply;
pub mod check_in;
pub(super) mod promoted;
pub mod ready;
pub mod similar;
pub mod target;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use relaybook_text::cut;

use crate::changelog::{MAX_STATUS, compact, fit, kept, open, prune};
use crate::reading::{Reachability, Reading};
use relaybook_api::conditions::ConditionStatus;
use relaybook_api::pipeline::target::{Entry, TargetInfo};
use relaybook_api::pipeline::{EnvironmentStatus, GeneratedFrom, TargetStatus};
use relaybook_api::values::refs::ClusterRef;
use relaybook_api::{ChangeLog, LogSubject, Pipeline, PipelineStatus, Promotion, Status, Time};

use super::hooks::{Keys, set_hooks_ready};
use super::plan::Refused;
use apply::{apply_all, apply_clusters};
use promoted::{must_wait, set_promotion_pending, take_promotions};
use ready::{name_missing, set_ready, set_ready_from_targets};

/// Maximum number of bytes of the joined revisions of an environment.
const LONGEST_REVISIONS: usize = 256;

/// A pipeline as the API server has it.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    /// The object. Its status is absent before the first write.
    pub pipeline: &'a Pipeline,
    /// Its promotions, in any order. `None`: they are not known yet in this leadership term.
    pub promotions: Option<&'a [&'a Promotion]>,
    /// The highest known serial that was ever used for the pipeline, even if its status no longer contains it.
    pub highest: Option<i64>,
    /// What is known about the keys of its hooks.
    pub keys: &'a Keys,
}

impl Base<'_> {
    /// Generation of the spec.
    fn generation(&self) -> Option<i64> {
        self.pipeline.metadata.generation
    }
}

/// The status to write.
#[derive(Debug, PartialEq, Eq)]
pub struct Next {
    /// The whole status, with `dispatched` unchanged.
    pub status: PipelineStatus,
    /// Size of the status as JSON, in bytes.
    pub bytes: usize,
    /// Whether changes were merged. With a newer base whose cursors have moved on, there may be space for each of them.
    pub merged: bool,
    /// Number of changes that were dropped because the status was full.
    pub dropped: u64,
}

/// One target and its reading.
pub type Observed = (TargetInfo, Reading);

/// The data that was read for one pipeline.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Its targets, in spec order.
    pub targets: Vec<Observed>,
    /// Their clusters except the local one, each once.
    pub clusters: Vec<ClusterReading>,
    /// Its environments, in spec order.
    pub environments: Vec<EnvironmentPlan>,
    /// Names of targets whose objects did not exist before.
    pub news: HashSet<String>,
    /// Why selected objects are not targets: reason and message.
    pub problems: Vec<(String, String)>,
    /// Entries of `targetsFrom` that select nothing.
    pub empty: Vec<String>,
    /// Time after which a cluster can be offline without an event.
    pub check_again: Option<Duration>,
    /// Address of the Git repository that the user has set for the pipeline, as it may be stored. Empty: none.
    pub repository: String,
    /// Hints on similar objects, by the name of a target whose object does not exist.
    pub similar: HashMap<String, String>,
}

/// A cluster, and whether it is reachable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterReading {
    /// The cluster.
    pub cluster_ref: ClusterRef,
    /// Whether it is reachable.
    pub reachability: Reachability,
    /// Whether that is known only from the reports of its agent.
    pub is_reported: bool,
}

/// One environment, and what is recorded of its `targetsFrom`.
#[derive(Clone, Debug, Default)]
pub struct EnvironmentPlan {
    /// Its name.
    pub name: String,
    /// What to record of the entries. `None`: what the status has.
    pub generated: Option<Vec<GeneratedFrom>>,
    /// Whether all of its targets are known.
    pub is_complete: bool,
    /// Whether objects are listed for the first time.
    pub is_pending: bool,
}

impl Gathered {
    /// Whether this subject is a target that the pipeline no longer has. Environments and their promotions are few, so they never count as
    /// gone.
    fn is_gone(&self, subject: &str) -> bool {
        let LogSubject::Target(name) = LogSubject::parse(subject) else { return false };
        self.targets.iter().all(|(target, _)| target.name != name)
    }
}

#[cfg(any(test, feature = "testing"))]
impl Gathered {
    /// These targets and their environments.
    pub fn of(targets: Vec<Observed>) -> Self {
        let mut environments: Vec<EnvironmentPlan> = Vec::new();
        for (target, _) in &targets {
            if environments.last().is_none_or(|last| last.name != target.environment) {
                let name = target.environment.clone();
                environments.push(EnvironmentPlan { name, is_complete: true, ..EnvironmentPlan::default() });
            }
        }
        Self { targets, environments, ..Self::default() }
    }
}

/// Returns the next status, or `None` if nothing except time would change. If changes can be removed from the log, this alone is no reason
/// for a write. They are removed with the next write.
pub fn next(base: Base<'_>, gathered: Result<&Gathered, &Refused>, now: Time) -> Option<Next> {
    let empty = PipelineStatus::default();
    let before = base.pipeline.status.as_ref().unwrap_or(&empty);
    let known = if before.log.is_some() { before } else { &empty };
    let mut status = before.clone();
    let mut log = status.log.take().unwrap_or_else(|| {
        // If the log was wiped, the past is lost. The current state becomes the baseline, without a change.
        let cursors = before.dispatched.iter().flat_map(|d| d.cursors.iter().map(|c| c.serial));
        // The log also starts above the cursors. Otherwise, after a wall clock was set back, the cursors would skip the next changes. The
        // same applies to the occasions of promotions: a revision would not be promoted if a later occasion existed.
        open(now, cursors.chain(base.highest).chain(occasions(before, &base)).max())
    });
    let stored = log.serial;
    log.serial = stored.max(base.highest.unwrap_or(stored));
    let first = log.serial;
    match gathered {
        Err(refused) => {
            take_promotions(&mut status.environments, known, &base, &mut log, now);
            // The controller has processed this generation, with this result.
            status.observed_generation = base.generation();
            set_ready(&mut status, base.generation(), ConditionStatus::False, refused.reason, &refused.message, now);
        }
        Ok(gathered) => observe(&mut status, &base, known, gathered, &mut log, now)?,
    }
    if log.serial == first {
        // Nothing has happened. That the serial was set back is no reason for a write.
        log.serial = stored;
    }
    status.log = Some(log);
    set_promotion_pending(&mut status, &base, now);
    set_hooks_ready(&mut status, &base, now);
    if status == *before {
        return None;
    }
    // While the targets of the pipeline are unknown, no target counts as removed.
    Some(fitted(status, before, |subject| gathered.is_ok_and(|gathered| gathered.is_gone(subject))))
}

/// Returns the occasions of the promotions that have started. Anyone who can create a Promotion can write any occasion into it, but one that
/// is not valid never starts.
fn occasions(before: &PipelineStatus, base: &Base<'_>) -> impl Iterator<Item = i64> {
    let shown = before.environments.iter().filter_map(|e| e.promotion.as_ref()).map(|promotion| promotion.occasion);
    let started = |p: &Promotion| p.status.as_ref().is_some_and(|status| status.step > 0);
    let all = base.promotions.into_iter().flatten().filter(move |p| started(p));
    shown.chain(all.map(|p| p.spec.occasion))
}

/// Processes what was read. Returns `None` if a new pipeline must wait for its caches.
fn observe(
    status: &mut PipelineStatus,
    base: &Base<'_>,
    known: &PipelineStatus,
    gathered: &Gathered,
    log: &mut ChangeLog,
    now: Time,
) -> Option<()> {
    let generation = base.generation();
    let mut applied = apply_all(gathered, known, base.promotions.is_some(), log, now);
    applied.pending |= gathered.environments.iter().any(|plan| plan.is_pending);
    if applied.pending && known.log.is_none() {
        return None;
    }
    record_entries(&mut applied.environments, gathered, known);
    status.clusters = apply_clusters(&gathered.clusters, &known.clusters, log, now);
    (status.environments, status.settled) = (applied.environments, applied.settled);
    take_promotions(&mut status.environments, known, base, log, now);
    name_missing(&mut status.environments, &known.environments, &gathered.targets, &gathered.similar);
    set_print_columns(status, &gathered.targets);
    if !applied.pending && !must_wait(&status.environments, base) {
        status.observed_generation = generation;
    }
    // A target whose cache is still being filled keeps its previous status, if it has one.
    let shown = status.environments.iter().map(|e| e.targets.len()).sum::<usize>();
    if status.observed_generation == generation && shown == gathered.targets.len() {
        set_ready_from_targets(status, gathered, generation, now);
    }
    Some(())
}

/// Records what the entries of `targetsFrom` select. An object that has no status yet is not recorded, so the entry stays as it was until
/// then.
fn record_entries(environments: &mut [EnvironmentStatus], gathered: &Gathered, known: &PipelineStatus) {
    for plan in &gathered.environments {
        let before = known.environments.iter().find(|environment| environment.name == plan.name);
        let Some(shown) = environments.iter_mut().find(|environment| environment.name == plan.name) else { continue };
        let wanted = gathered.targets.iter().filter(|(target, _)| target.environment == plan.name).count();
        let stays = || before.map(|before| before.generated.clone()).unwrap_or_default();
        shown.generated = match &plan.generated {
            Some(generated) if shown.targets.len() == wanted => generated.clone(),
            _ => stays(),
        };
    }
}

/// Reduces the log of a status that is about to be written. `before`: the status that it replaces.
fn fitted(mut status: PipelineStatus, before: &PipelineStatus, is_gone: impl Fn(&str) -> bool) -> Next {
    let count = |status: &PipelineStatus| status.log.as_ref().map_or(0, |log| log.changes.len());
    if let Some(log) = status.log.as_mut() {
        prune(log, status.dispatched.as_ref());
    }
    let wanted = count(&status);
    if let Some(log) = status.log.as_mut() {
        compact(log, &kept(log, status.dispatched.as_ref()));
    }
    let bytes = fit(&mut status, MAX_STATUS, is_gone);
    let merged = count(&status) < wanted;
    let dropped = |status: &PipelineStatus| status.dropped.map_or(0, |dropped| dropped.count);
    let dropped = u64::try_from(dropped(&status).saturating_sub(dropped(before))).unwrap_or_default();
    Next { status, bytes, merged, dropped }
}

/// Sets the columns of `kubectl get`: how many targets are ready, the worst status, and which revisions run in the last environment. A
/// generated target whose object is gone does not count.
fn set_print_columns(status: &mut PipelineStatus, observed: &[Observed]) {
    let targets = observed.iter().filter(|(target, reading)| !has_left(target, reading)).count();
    let ready = status.environments.iter().flat_map(|e| &e.targets).filter(|t| t.ready).count();
    status.ready_targets = format!("{ready}/{targets}");
    let shown = observed.iter().zip(status.environments.iter().flat_map(|e| &e.targets));
    let counted = shown.filter(|((target, reading), _)| !has_left(target, reading)).map(|(_, shown)| shown.status);
    status.state = counted.min_by_key(|status| status.badness());
    let last = status.environments.last().into_iter().flat_map(|e| &e.targets);
    let revisions: BTreeSet<&str> = last.map(running_revision).filter(|r| !r.is_empty()).collect();
    let joined = revisions.into_iter().collect::<Vec<_>>().join(",");
    status.revision = cut(&joined, LONGEST_REVISIONS).into_owned();
}

/// Whether `targetsFrom` has generated a target, and its object is gone.
fn has_left(target: &TargetInfo, reading: &Reading) -> bool {
    matches!(target.entry, Entry::Generated(_)) && ready::is_missing(&reading.now)
}

/// Returns the running revision, as far as it is known. For a target that cannot be observed now, it is the revision that was seen last.
fn running_revision(target: &TargetStatus) -> &str {
    match (&target.settled, target.status) {
        // If `reader` is empty, the settled state belongs to another application.
        (Some(settled), Status::Unknown) if !settled.reader.is_empty() => settled.current.as_deref().unwrap_or_default(),
        _ => &target.revision,
    }
}

#[cfg(test)]
mod recorded;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Observation;
    use crate::reading::{Now, Reason};
    use relaybook_api::conditions;
    use relaybook_api::conditions::{Condition, READY};
    use relaybook_api::pipeline::{Cursor, Dispatched};
    use relaybook_api::promotion::{Phase, Step};
    use relaybook_api::values::refs::AppRef;
    use relaybook_api::{PipelineSpec, PromotionSpec};

    fn at(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    fn target(environment: &str, namespace: &str) -> TargetInfo {
        let name = format!("{environment}/c/{namespace}");
        TargetInfo {
            environment: environment.into(),
            namespace: namespace.into(),
            cluster: "c".into(),
            cluster_ref: None,
            app: AppRef {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
                name: "web".into(),
                revision_path: None,
            },
            name,
            ..TargetInfo::default()
        }
    }

    fn runs(revision: &str) -> Reading {
        let now = Observation {
            status: Status::Current,
            revision: revision.into(),
            attempted_revision: revision.into(),
            ..Default::default()
        };
        Reading {
            observations: vec![(1, now.clone())],
            now: Now::Known(now),
            seq: 1,
            changed_at: None,
            overflowed: false,
            cluster: String::new(),
            confirmed: String::new(),
        }
    }

    fn pass(base: Base<'_>, observed: &[Observed], now: Time) -> Option<Next> {
        next(base, Ok(&Gathered::of(observed.to_vec())), now)
    }

    fn of_targets(log: &ChangeLog) -> Vec<i64> {
        log.changes.iter().filter(|c| c.subject.starts_with("target/")).map(|c| c.serial).collect()
    }

    fn unknown(reason: Reason) -> Reading {
        let now = Now::Unknown { reason, message: "why".into() };
        Reading {
            observations: vec![],
            now,
            seq: 0,
            changed_at: None,
            overflowed: false,
            cluster: String::new(),
            confirmed: String::new(),
        }
    }

    fn base(status: Option<&PipelineStatus>) -> Base<'static> {
        of_generation(3, status)
    }

    fn of_generation(generation: i64, status: Option<&PipelineStatus>) -> Base<'static> {
        let mut pipeline = Pipeline::new("shop", PipelineSpec::default());
        pipeline.metadata.generation = Some(generation);
        pipeline.status = status.cloned();
        // The process of a test ends soon.
        Base { pipeline: Box::leak(Box::new(pipeline)), promotions: Some(&[]), highest: None, keys: &Keys::Usable }
    }

    fn ready(status: &PipelineStatus) -> &Condition {
        conditions::get(&status.conditions, READY).unwrap()
    }

    /// A pipeline with two targets that run revision 1.
    fn seen() -> (Vec<Observed>, PipelineStatus) {
        let observed = vec![(target("dev", "a"), runs("1")), (target("prod", "b"), runs("1"))];
        let status = pass(base(None), &observed, at(10)).unwrap().status;
        (observed, status)
    }

    #[test]
    fn a_write_is_marked_as_merged_until_a_cursor_has_moved_on() {
        let (mut observed, mut status) = seen();
        for revision in 2..=9 {
            observed[0].1 = runs(&revision.to_string());
            let next = pass(base(Some(&status)), &observed, at(20 + revision)).unwrap();
            assert!(!next.merged, "{revision}");
            status = next.status;
        }
        observed[0].1 = runs("10");
        assert!(pass(base(Some(&status)), &observed, at(40)).unwrap().merged);
        // Meanwhile a cursor has moved on.
        let passed = Cursor { serial: status.log.as_ref().unwrap().first + 4, ..Cursor::default() };
        status.dispatched = Some(Dispatched { cursors: vec![passed], ..Dispatched::default() });
        assert!(!pass(base(Some(&status)), &observed, at(40)).unwrap().merged);
    }

    #[test]
    fn the_first_status_is_a_baseline() {
        let (_, status) = seen();
        assert_eq!(status.observed_generation, Some(3));
        assert_eq!(status.log, Some(open(at(10), None)));
        assert_eq!((ready(&status).status, ready(&status).reason.as_str()), (ConditionStatus::True, "Observed"));
        let names: Vec<(&str, usize)> = status.environments.iter().map(|e| (e.name.as_str(), e.targets.len())).collect();
        assert_eq!(names, [("dev", 1), ("prod", 1)]);
    }

    #[test]
    fn a_status_without_changes_is_not_written() {
        let (mut observed, mut status) = seen();
        assert_eq!(pass(base(Some(&status)), &observed, at(99)), None);
        observed[0].1 = unknown(Reason::CacheNotSynced);
        assert_eq!(pass(base(Some(&status)), &observed, at(99)), None, "as after a restart");
        // The log could be pruned. This alone is no reason for a write.
        observed[0].1 = runs("2");
        status = pass(base(Some(&status)), &observed, at(99)).unwrap().status;
        let serial = status.log.as_ref().unwrap().serial;
        let cursors = vec![Cursor { notification: "n".into(), serial, ..Cursor::default() }];
        status.dispatched = Some(Dispatched { cursors, ..Dispatched::default() });
        assert_eq!(pass(base(Some(&status)), &observed, at(100)), None);
        // The log is pruned with the next write. That write does not change the part of the dispatcher.
        observed[0].1 = runs("3");
        let after = pass(base(Some(&status)), &observed, at(101)).unwrap().status;
        let log = after.log.unwrap();
        assert_eq!((of_targets(&log).len(), log.changes[0].serial), (1, serial + 1));
        assert_eq!(after.dispatched, status.dispatched);
    }

    #[test]
    fn a_new_pipeline_waits_for_its_caches() {
        let (mut observed, _) = seen();
        observed[1].1 = unknown(Reason::CacheNotSynced);
        assert_eq!(pass(base(None), &observed, at(10)), None);
        observed[1].1 = unknown(Reason::KindNotFound);
        assert!(pass(base(None), &observed, at(10)).is_some());
    }

    #[test]
    fn a_new_target_that_waits_does_not_delay_others() {
        let (mut observed, before) = seen();
        observed[0].1 = runs("2");
        observed.push((target("prod", "new"), unknown(Reason::CacheNotSynced)));
        let status = pass(of_generation(4, Some(&before)), &observed, at(20)).unwrap().status;
        assert_eq!(of_targets(status.log.as_ref().unwrap()).len(), 1);
        assert_eq!(status.environments[1].targets.len(), 1);
        assert_eq!((status.observed_generation, &status.conditions), (Some(3), &before.conditions));
    }

    #[test]
    fn other_targets_are_updated_while_one_is_listed_again() {
        let (mut observed, mut status) = seen();
        observed[0].1 = unknown(Reason::CacheNotSynced);
        for (reading, want) in [(unknown(Reason::Forbidden), ConditionStatus::False), (runs("1"), ConditionStatus::True)] {
            observed[1].1 = reading;
            status = pass(base(Some(&status)), &observed, at(20)).unwrap().status;
            assert_eq!(ready(&status).status, want);
        }
    }

    #[test]
    fn the_condition_names_targets_that_cannot_be_observed() {
        let observed: Vec<Observed> =
            (0..7).map(|i| (target("dev", &format!("n{i}")), unknown(Reason::Forbidden))).collect();
        let status = pass(base(None), &observed, at(10)).unwrap().status;
        let condition = ready(&status);
        assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::False, "Forbidden"));
        assert_eq!(condition.message, "cannot observe dev/c/n0, dev/c/n1, dev/c/n2, dev/c/n3, dev/c/n4 and 2 more: why");
    }

    #[test]
    fn the_last_revision_is_shown_while_a_target_cannot_be_observed() {
        let (mut observed, status) = seen();
        observed[1].1 = unknown(Reason::Forbidden);
        let after = pass(base(Some(&status)), &observed, at(20)).unwrap().status;
        assert_eq!((after.ready_targets.as_str(), after.revision.as_str()), ("1/2", "1"));
        assert_eq!((status.state, after.state), (Some(Status::Current), Some(Status::Unknown)), "the worst of all targets");
        assert_eq!(after.environments[1].targets[0].revision, "", "the target itself shows no revision");
    }

    #[test]
    fn a_refused_spec_keeps_the_rest_of_the_status() {
        let (_, before) = seen();
        let refused = Refused { reason: "DuplicateTarget", message: "twice".into() };
        let status = next(of_generation(4, Some(&before)), Err(&refused), at(20)).unwrap().status;
        assert_eq!((ready(&status).reason.as_str(), ready(&status).observed_generation), ("DuplicateTarget", Some(4)));
        assert_eq!(status.observed_generation, Some(4), "clients that wait for this generation can continue");
        let (conditions, observed_generation) = (before.conditions.clone(), before.observed_generation);
        assert_eq!(PipelineStatus { observed_generation, conditions, ..status.clone() }, before);
        assert_eq!(next(of_generation(4, Some(&status)), Err(&refused), at(30)), None);
        assert!(next(base(None), Err(&refused), at(20)).unwrap().status.log.is_some());
    }

    /// A promotion to `prod` with these steps.
    fn promotion(phases: &[Phase]) -> Promotion {
        let spec =
            PromotionSpec { environment: "prod".into(), revision: "2".into(), occasion: 7, ..PromotionSpec::default() };
        let mut promotion = Promotion::new("shop-prod-0a1b2c3d4e-7", spec);
        let status = promotion.status.get_or_insert_default();
        for (number, phase) in (1..).zip(phases) {
            (status.phase, status.step) = (Some(*phase), number);
            status.steps.push(Step { step: number, phase: *phase, time: at(number), ..Step::default() });
        }
        promotion
    }

    #[test]
    fn the_steps_of_promotions_are_logged_and_shown() {
        let (mut observed, status) = seen();
        let begun = promotion(&[Phase::Requested]);
        let with = |status: &PipelineStatus, promotion: &Promotion, observed: &[Observed]| {
            let promotions = [promotion];
            pass(Base { promotions: Some(&promotions), ..base(Some(status)) }, observed, at(20)).map(|next| next.status)
        };
        let of_promotions = |status: &PipelineStatus| -> Vec<(i64, Phase)> {
            let changes = status.log.iter().flat_map(|log| &log.changes);
            changes.filter_map(|c| Some((c.serial, c.to.promotion.as_ref()?.phase))).collect()
        };
        let shown = with(&status, &begun, &observed).unwrap();
        let serial = shown.log.as_ref().unwrap().serial;
        assert_eq!(of_promotions(&shown), [(serial, Phase::Requested)]);
        assert_eq!(shown.environments[1].promotion.as_ref().map(|p| (p.taken, p.phase)), Some((1, Phase::Requested)));
        assert_eq!(with(&shown, &begun, &observed), None, "nothing is new");
        // The promotions are not known, and a target waits for its cache.
        let unlisted = |status| Base { promotions: None, ..base(Some(status)) };
        assert_eq!(pass(unlisted(&shown), &observed, at(30)), None);
        observed[0].1 = runs("2");
        observed[1].1 = unknown(Reason::CacheNotSynced);
        let after = pass(unlisted(&shown), &observed, at(30)).unwrap().status;
        assert_eq!(after.environments[1], shown.environments[1]);
        // A spec that is refused changes nothing about what has begun.
        let ended = promotion(&[Phase::Requested, Phase::Finished]);
        let refused = Refused { reason: "DuplicateTarget", message: "twice".into() };
        let promotions = [&ended];
        let known = Base { promotions: Some(&promotions), ..of_generation(4, Some(&after)) };
        let last = next(known, Err(&refused), at(40)).unwrap().status;
        assert_eq!(of_promotions(&last).last(), Some(&(after.log.unwrap().serial + 1, Phase::Finished)));
        assert_eq!(last.environments[1].promotion.as_ref().map(|p| p.taken), Some(2));
    }

    #[test]
    fn steps_of_promotions_from_before_a_log_was_wiped_are_not_logged() {
        let (observed, mut status) = seen();
        status.log = None;
        let promotion = promotion(&[Phase::Requested]);
        let promotions = [&promotion];
        let known = Base { promotions: Some(&promotions), ..base(Some(&status)) };
        let after = pass(known, &observed, at(20)).unwrap().status;
        assert_eq!((after.log.unwrap().changes, after.environments[1].promotion.as_ref().unwrap().taken), (vec![], 1));
        // They were not known when the log was new.
        let early = pass(Base { promotions: None, ..known }, &observed, at(20)).unwrap().status;
        assert!(early.environments[1].promotion.is_none());
        let after = pass(Base { promotions: Some(&promotions), ..base(Some(&early)) }, &observed, at(30)).unwrap().status;
        assert_eq!((after.log.unwrap().changes, after.environments[1].promotion.as_ref().unwrap().taken), (vec![], 1));
    }

    #[test]
    fn a_wiped_log_restarts_above_the_occasions_of_promotions() {
        let (observed, mut status) = seen();
        status.log = None;
        let ahead = |phases: &[Phase]| {
            let mut promotion = promotion(phases);
            promotion.spec.occasion = 5_000_000;
            promotion
        };
        let first = |promotion: &Promotion| {
            let promotions = [promotion];
            let known = Base { promotions: Some(&promotions), ..base(None) };
            pass(known, &observed, at(20)).unwrap().status.log.unwrap().first
        };
        assert_eq!(first(&ahead(&[Phase::Requested])), 5_000_001, "the clock was set back");
        assert_eq!(first(&ahead(&[])), 20_000, "one that has not started can be forged");
        let started = ahead(&[Phase::Requested]);
        let promotions = [&started];
        let shown = pass(Base { promotions: Some(&promotions), ..base(Some(&status)) }, &observed, at(20)).unwrap().status;
        let wiped = PipelineStatus { log: None, ..shown };
        let unlisted = Base { promotions: None, ..base(Some(&wiped)) };
        assert_eq!(pass(unlisted, &observed, at(20)).unwrap().status.log.unwrap().first, 5_000_001);
    }

    #[test]
    fn changes_of_promotions_are_dropped_like_those_of_environments() {
        let (observed, _) = seen();
        let gathered = Gathered { targets: observed, ..Gathered::default() };
        for (subject, gone) in [
            ("target/dev/c/a", false),
            ("target/old/c/a", true),
            ("environment/old", false),
            ("promotion/old", false),
            ("cluster/old", false),
        ] {
            assert_eq!(gathered.is_gone(subject), gone, "{subject}");
        }
    }

    #[test]
    fn a_wiped_log_restarts_silently_above_all_used_serials() {
        let (mut observed, mut status) = seen();
        status.log = None;
        status.dispatched = Some(Dispatched::default());
        observed[0].1 = runs("2");
        let known = Base { highest: Some(1_000_000), ..base(Some(&status)) };
        let after = pass(known, &observed, at(20)).unwrap().status;
        assert_eq!(after.log, Some(open(at(20), Some(1_000_000))));
        assert_eq!(after.environments[0].targets[0].settled.as_ref().unwrap().since, 0);
        assert_eq!(after.dispatched, status.dispatched);
    }

    #[test]
    fn a_serial_that_was_set_back_is_never_used_again() {
        let (mut observed, status) = seen();
        let known = Base { highest: Some(1_000_000), ..base(Some(&status)) };
        assert_eq!(pass(known, &observed, at(20)), None);
        observed[0].1 = runs("2");
        assert_eq!(pass(known, &observed, at(20)).unwrap().status.log.unwrap().changes[0].serial, 1_000_001);
    }

    #[test]
    fn a_target_that_was_removed_and_added_again_is_a_new_target() {
        let (mut observed, mut status) = seen();
        observed[0].1 = runs("2");
        status = pass(base(Some(&status)), &observed, at(20)).unwrap().status;
        let back = observed.remove(0);
        status = pass(base(Some(&status)), &observed, at(30)).unwrap().status;
        assert_eq!(status.environments.len(), 1);
        assert_eq!(of_targets(status.log.as_ref().unwrap()).len(), 1, "its changes stay in the log");
        observed.insert(0, (back.0, runs("9")));
        status = pass(base(Some(&status)), &observed, at(40)).unwrap().status;
        let log = status.log.as_ref().unwrap();
        assert_eq!((of_targets(log).len(), status.environments[0].name.as_str()), (1, "dev"));
        let since = status.environments[0].targets[0].settled.as_ref().unwrap().since;
        assert!(of_targets(log).iter().all(|serial| *serial <= since), "{since} {log:?}");
    }
}
