//! Pure: processes the observations of all targets in the order in which they were made. After each observation it computes the states of
//! the environments and of the pipeline. So the result does not depend on how many observations are read at once.

use std::collections::BTreeSet;
use std::ops::Range;

use sha2::{Digest as _, Sha256};

use crate::changelog::{
    GroupId, GroupState, Part, Verdict, append, arrives, cluster_state, group_state, is_edited, settle_group,
    with_repository,
};
use crate::observe::Observation;
use crate::reading::Reachability;
use relaybook_api::pipeline::target::TargetInfo;
use relaybook_api::pipeline::{ClusterStatus, EnvironmentStatus};
use relaybook_api::values::refs::ClusterRef;
use relaybook_api::{ChangeLog, LogSubject, PipelineStatus, Settled, State, Time};

use super::target::{Shown, Track, baseline_serial, previous, stable_part};
use super::{ClusterReading, Gathered, Observed};

/// The result of processing all observations.
pub struct Applied {
    /// The environments, in spec order.
    pub environments: Vec<EnvironmentStatus>,
    /// The last settled state of the pipeline.
    pub settled: Option<Settled>,
    /// Whether a target waits for its cache.
    pub pending: bool,
}

/// The environments and the pipeline while observations are processed.
struct Groups<'a> {
    tracks: Vec<Track<'a>>,
    environments: Vec<Group<'a>>,
    pipeline: Option<Settled>,
    ruleset_id: String,
    /// Hash of all targets.
    members: String,
    /// Address of the Git repository that the user has set for the pipeline. Empty: none.
    repository: &'a str,
}

/// One environment.
struct Group<'a> {
    name: &'a str,
    /// Indexes of its targets.
    of: Range<usize>,
    /// Its previous status.
    before: Option<&'a EnvironmentStatus>,
    settled: Option<Settled>,
    /// Whether all targets that its state depends on can be observed.
    decided: bool,
    /// Whether all of its targets are known.
    is_complete: bool,
    ruleset_id: String,
    /// Hash of its targets. Empty: the settled state does not get one yet.
    members: String,
}

/// Processes all observations and appends the changes to the log. `known`: the previous status, which is empty if the log is new.
/// `listed`: whether the promotions of the pipeline are known. A settled state of an environment without a hash of its targets means that
/// its promotions were not taken into the log yet. So it gets the hash only if they are now (see [`super::promoted`]).
pub fn apply_all(gathered: &Gathered, known: &PipelineStatus, listed: bool, log: &mut ChangeLog, now: Time) -> Applied {
    let mut groups = Groups::new(gathered, known, listed, baseline_serial(log));
    groups.rebase(log, now);
    let mut all: Vec<(u64, usize, &Observation)> = Vec::new();
    for (index, track) in groups.tracks.iter().enumerate() {
        all.extend(track.observations().map(|(seq, obs)| (seq, index, obs)));
    }
    all.sort_by_key(|(seq, index, _)| (*seq, *index));
    for (seq, index, obs) in all {
        let at = seen_at(seq, log, now);
        if groups.tracks[index].settle(obs, log, at) {
            groups.regroup(|of| of.contains(&index), log, at);
        }
    }
    // This finds all other changes: targets that were added or removed, or that can be observed again.
    groups.regroup(|_| true, log, now);
    groups.end(now)
}

/// Returns the time of an observation. It is not the time of processing, which can be much later, because timers use it to measure how long
/// a state lasts. It is never before the last change of the log and never after `now`, even if the clock was changed.
fn seen_at(seq: u64, log: &ChangeLog, now: Time) -> Time {
    // Sequence numbers are microseconds since 1970. An object that was never seen has the number 0. It is processed first, because it was
    // absent before any other object was found. Its time is `now`, when its absence was noticed.
    let at =
        i64::try_from(seq / 1000).ok().filter(|at| *at > 0).and_then(|at| Time::from_millisecond(at).ok()).unwrap_or(now);
    log.changes.last().map_or(at, |last| at.max(last.time)).min(now)
}

impl<'a> Groups<'a> {
    fn new(gathered: &'a Gathered, known: &'a PipelineStatus, listed: bool, serial: i64) -> Self {
        let targets: Vec<&TargetInfo> = gathered.targets.iter().map(|(t, _)| t).collect();
        let before = previous(&targets, &known.environments);
        let away = gathered.clusters.iter().filter(|cluster| cluster.reachability == Reachability::Offline);
        let away: BTreeSet<&ClusterRef> = away.map(|cluster| &cluster.cluster_ref).collect();
        let track = |((t, reading), before): (&'a Observed, _)| {
            let is_offline = t.cluster_ref.as_ref().is_some_and(|cluster| away.contains(cluster));
            let track = Track::new(t, before, reading, gathered.news.contains(&t.name).then_some(serial));
            track.offline(is_offline).of_repository(&gathered.repository)
        };
        let tracks: Vec<_> = gathered.targets.iter().zip(before).map(track).collect();
        let mut environments: Vec<Group<'a>> = Vec::new();
        let mut at = 0;
        for plan in &gathered.environments {
            let end = at + targets[at..].iter().take_while(|target| target.environment == plan.name).count();
            let before = known.environments.iter().find(|e| e.name == plan.name);
            environments.push(Group {
                name: &plan.name,
                of: at..end,
                before,
                settled: before.and_then(|e| e.settled.clone()),
                decided: false,
                is_complete: plan.is_complete,
                ruleset_id: String::new(),
                members: String::new(),
            });
            at = end;
        }
        for group in &mut environments {
            let tracks = &tracks[group.of.clone()];
            group.ruleset_id = group_ruleset_id(tracks);
            if listed || group.settled.as_ref().is_some_and(|settled| !settled.members.is_empty()) {
                group.members = group_members(tracks);
            }
        }
        let (ruleset_id, members) = (group_ruleset_id(&tracks), group_members(&tracks));
        let mut groups = Self {
            tracks,
            environments,
            pipeline: known.settled.clone(),
            ruleset_id,
            members,
            repository: &gathered.repository,
        };
        for group in &mut groups.environments {
            let parts = group.parts(&groups.tracks);
            group.decided = group_state(parts) != GroupState::Undecided;
        }
        groups
    }

    /// Takes new baselines of the groups whose targets were edited, before any observation is processed. The edit itself is no deployment.
    /// But a change that was observed in the meantime is one, so it is compared with this baseline.
    fn rebase(&mut self, log: &mut ChangeLog, now: Time) {
        let edited = |settled: Option<&Settled>, members: &str| settled.is_some_and(|settled| is_edited(settled, members));
        for group in self.environments.iter_mut().filter(|g| edited(g.settled.as_ref(), &g.members)) {
            group.regroup(&self.tracks, self.repository, log, now);
        }
        if edited(self.pipeline.as_ref(), &self.members) {
            self.regroup_pipeline(log, now);
        }
    }

    /// Computes the state of these environments from their targets, and the state of the pipeline from its environments.
    fn regroup(&mut self, which: impl Fn(&Range<usize>) -> bool, log: &mut ChangeLog, now: Time) {
        for group in self.environments.iter_mut().filter(|g| which(&g.of)) {
            group.regroup(&self.tracks, self.repository, log, now);
        }
        self.regroup_pipeline(log, now);
    }

    /// Computes the state of the pipeline from its environments.
    fn regroup_pipeline(&mut self, log: &mut ChangeLog, now: Time) {
        let parts = self.environments.iter().map(|g| Part { settled: g.settled.as_ref(), seen: g.decided });
        let of = GroupId { reader: &self.ruleset_id, members: &self.members };
        let verdict = settle_group(self.pipeline.as_ref(), group_state(parts), of, baseline_serial(log));
        let verdict = with_repository(verdict, self.pipeline.as_ref(), |_| self.repository);
        put(&mut self.pipeline, verdict, LogSubject::Pipeline, log, now);
    }

    /// Returns the resulting status.
    fn end(self, now: Time) -> Applied {
        let Self { tracks, environments, pipeline, .. } = self;
        let mut applied = Applied { environments: Vec::new(), settled: pipeline, pending: false };
        let mut tracks = tracks.into_iter();
        for group in environments {
            let mut environment = EnvironmentStatus {
                name: group.name.to_owned(),
                targets: Vec::new(),
                generated: Vec::new(),
                settled: group.settled,
                promotion: group.before.and_then(|before| before.promotion.clone()),
                waiting_approval: group.before.and_then(|before| before.waiting_approval.clone()),
            };
            for track in tracks.by_ref().take(group.of.len()) {
                let shown = match track.shown(now) {
                    Shown::Status(shown) => Some(shown),
                    Shown::Pending(before) => {
                        applied.pending = true;
                        before
                    }
                };
                environment.targets.extend(shown);
            }
            applied.environments.push(environment);
        }
        applied
    }
}

impl Group<'_> {
    /// Returns the states of its targets. While not all targets are known, one is missing.
    fn parts<'t>(&self, tracks: &'t [Track<'_>]) -> impl Iterator<Item = Part<'t>> + use<'t> {
        let missing = (!self.is_complete).then_some(Part { settled: None, seen: false });
        tracks[self.of.clone()].iter().filter(|track| track.counts()).map(Track::as_part).chain(missing)
    }

    /// Computes the state of the environment from its targets.
    fn regroup(&mut self, tracks: &[Track<'_>], repository: &str, log: &mut ChangeLog, now: Time) {
        let state = group_state(self.parts(tracks));
        self.decided = state != GroupState::Undecided;
        let of = GroupId { reader: &self.ruleset_id, members: &self.members };
        let verdict = settle_group(self.settled.as_ref(), state, of, baseline_serial(log));
        let arrives = arrives(&verdict);
        let verdict = with_repository(verdict, self.settled.as_ref(), |_| repository);
        put(&mut self.settled, verdict, LogSubject::Environment(self.name), log, now);
        if let Some(settled) = self.settled.as_mut().filter(|_| arrives) {
            // The change that was just appended is the occasion for a promotion.
            settled.reached = log.serial;
        }
    }
}

/// Applies the verdict on a group.
fn put(settled: &mut Option<Settled>, verdict: Verdict, subject: LogSubject<'_>, log: &mut ChangeLog, now: Time) {
    match verdict {
        Verdict::Ignored => {}
        Verdict::Baseline(new) | Verdict::Noted(new) => *settled = Some(new),
        Verdict::Changed { from, to, settled: new } => {
            append(log, subject, now, from, to);
            *settled = Some(new);
        }
    }
}

/// Returns an identifier of the applications of these targets and of how they are read. While it is the same, revisions are comparable.
fn group_ruleset_id(tracks: &[Track<'_>]) -> String {
    let one = |t: &Track<'_>| {
        let app = &t.target.app;
        (app.api_version.clone(), app.kind.clone(), app.name.clone(), stable_part(&t.ruleset_id).to_owned())
    };
    let all: BTreeSet<_> = tracks.iter().filter(|t| !t.has_left()).map(one).collect();
    let hash = all.into_iter().fold(Sha256::new(), |hash, one| hash.chain_update(format!("{one:?}\n")));
    format!("group/1/{}", &hex::encode(hash.finalize())[..16])
}

/// Returns a hash of the names of these targets.
fn group_members(tracks: &[Track<'_>]) -> String {
    let tracks = tracks.iter().filter(|t| !t.has_left());
    let names: BTreeSet<String> = tracks.map(|t| t.target.log_subject().to_string()).collect();
    let hash = names.into_iter().fold(Sha256::new(), |hash, name| hash.chain_update(name + "\n"));
    hex::encode(hash.finalize())[..16].to_owned()
}

/// Returns the reachability of the clusters of the targets. Appends changes to the log.
pub fn apply_clusters(
    seen: &[ClusterReading],
    known: &[ClusterStatus],
    log: &mut ChangeLog,
    now: Time,
) -> Vec<ClusterStatus> {
    let updated = |reading: &ClusterReading| {
        let ClusterReading { cluster_ref: cluster, reachability, is_reported } = reading;
        let before = known.iter().find(|k| k.cluster_ref == *cluster).cloned();
        let reachable = match reachability {
            Reachability::Unknown => return before,
            Reachability::Online => true,
            Reachability::Offline => false,
        };
        let Some(before) = before else {
            let (cluster_ref, serial) = (cluster.clone(), baseline_serial(log));
            return Some(ClusterStatus { cluster_ref, reachable, since: Some(now), serial });
        };
        if before.reachable == reachable {
            return Some(before);
        }
        let (reason, message) =
            if reachable { ("", String::new()) } else { ("Unreachable", offline(cluster, *is_reported)) };
        let from = State { failed: !before.reachable, ..cluster_state(before.reachable, "", "") };
        append(log, LogSubject::Cluster(&cluster.full_name()), now, from, cluster_state(reachable, reason, &message));
        Some(ClusterStatus { reachable, since: Some(now), ..before })
    };
    seen.iter().filter_map(updated).collect()
}

fn offline(cluster: &ClusterRef, is_reported: bool) -> String {
    if is_reported {
        return format!("the agent of cluster {} has not reported", cluster.full_name());
    }
    format!("the API server of cluster {} does not answer", cluster.full_name())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::changelog::open;
    use crate::reading::{Now, Reading, Reason};
    use relaybook_api::Status;
    use relaybook_api::values::refs::{AppRef, ClusterKind};

    fn at(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    /// Two targets in `dev`, one in `prod`.
    fn targets() -> Vec<TargetInfo> {
        let target = |(environment, namespace): (&str, &str)| {
            let name = format!("{environment}/c/{namespace}");
            TargetInfo {
                environment: environment.into(),
                namespace: namespace.into(),
                cluster: "c".into(),
                app: AppRef {
                    api_version: "apps/v1".into(),
                    kind: "Deployment".into(),
                    name: "web".into(),
                    revision_path: None,
                },
                name,
                ..TargetInfo::default()
            }
        };
        [("dev", "a"), ("dev", "b"), ("prod", "a")].map(target).into()
    }

    fn obs(status: Status, revision: &str) -> Observation {
        Observation { status, revision: revision.into(), attempted_revision: revision.into(), ..Observation::default() }
    }

    /// A pipeline, the observations of its objects, and how many of them were processed.
    struct World {
        targets: Vec<TargetInfo>,
        said: Vec<(usize, Observation)>,
        processed: usize,
        unseen: Vec<usize>,
        /// Objects that were absent when a cache was filled again. The cache has never contained them.
        absent: Vec<usize>,
        /// Targets that are not in the spec.
        removed: Vec<usize>,
        /// Whether the promotions are known.
        listed: bool,
        status: PipelineStatus,
        passes: i64,
    }

    impl World {
        fn new() -> Self {
            let mut world = Self {
                targets: targets(),
                said: vec![],
                processed: 0,
                unseen: vec![],
                absent: vec![],
                removed: vec![],
                listed: true,
                status: PipelineStatus::default(),
                passes: 0,
            };
            for index in 0..3 {
                world.said.push((index, obs(Status::Current, "1")));
            }
            world.pass();
            assert!(world.told().is_empty(), "the first observation is silent");
            world
        }

        fn say(&mut self, index: usize, status: Status, revision: &str) {
            self.said.push((index, obs(status, revision)));
        }

        fn pass(&mut self) {
            let reading = |index: usize| {
                // One observation per second.
                let all = (1..).map(|n| n * 1_000_000).zip(&self.said);
                let all = all.filter(|(_, (of, _))| *of == index).map(|(seq, (_, o))| (seq, o.clone()));
                let all: Vec<(u64, Observation)> = all.collect();
                let (seq, last) = all.last().cloned().unwrap();
                let unknown = Now::Unknown { reason: Reason::Unreachable, message: "away".into() };
                let (all, seq, last) =
                    if self.absent.contains(&index) { (Vec::new(), 0, obs(Status::NotFound, "")) } else { (all, seq, last) };
                let now = if self.unseen.contains(&index) { unknown } else { Now::Known(last) };
                let processed = self.processed as u64 * 1_000_000;
                Reading {
                    observations: all.into_iter().filter(|(s, _)| *s > processed).collect(),
                    now,
                    seq,
                    changed_at: None,
                    overflowed: false,
                    cluster: String::new(),
                    confirmed: String::new(),
                }
            };
            let targets = self.targets.iter().enumerate().filter(|(i, _)| !self.removed.contains(i));
            let observed: Vec<Observed> = targets.map(|(i, t)| (t.clone(), reading(i))).collect();
            let mut log = self.status.log.take().unwrap_or_else(|| open(at(1), None));
            self.passes += 1;
            let applied = apply_all(&Gathered::of(observed), &self.status, self.listed, &mut log, at(1000 + self.passes));
            (self.status.environments, self.status.settled) = (applied.environments, applied.settled);
            self.status.log = Some(log);
            self.processed = self.said.len();
        }

        fn told(&self) -> Vec<(String, Time, State, State)> {
            let log = self.status.log.as_ref().unwrap();
            log.changes.iter().map(|c| (c.subject.clone(), c.time, c.from.clone(), c.to.clone())).collect()
        }

        /// Returns subject, status and revision of the changes since the last call.
        fn news(&mut self) -> Vec<String> {
            let log = self.status.log.as_mut().unwrap();
            let told = std::mem::take(&mut log.changes);
            told.into_iter().map(|c| format!("{} {:?} {}", c.subject, c.to.status, c.to.revision)).collect()
        }

        /// The settled states of the environments.
        fn settled(&self) -> Vec<&Settled> {
            self.status.environments.iter().filter_map(|e| e.settled.as_ref()).collect()
        }

        /// For each environment: the serial of the change with which it came to run its revision.
        fn reached(&self) -> Vec<i64> {
            self.settled().iter().map(|settled| settled.reached).collect()
        }

        /// Returns the serial of the last change to `Current` of this subject.
        fn serial(&self, subject: &str) -> i64 {
            let mut changes = self.status.log.iter().flat_map(|log| &log.changes).rev();
            changes.find(|c| c.subject == subject && c.to.status == Status::Current).unwrap().serial
        }
    }

    #[test]
    fn an_environment_is_ready_when_all_its_targets_are_and_then_the_pipeline() {
        let mut world = World::new();
        world.say(0, Status::Current, "2");
        world.pass();
        assert_eq!(
            world.news(),
            ["target/dev/c/a Current 2", "environment/dev InProgress ", "pipeline InProgress "],
            "they run different revisions"
        );
        world.say(1, Status::Current, "2");
        world.pass();
        assert_eq!(world.news(), ["target/dev/c/b Current 2", "environment/dev Current 2"]);
        world.say(2, Status::Current, "2");
        world.pass();
        assert_eq!(world.news(), ["target/prod/c/a Current 2", "environment/prod Current 2", "pipeline Current 2"]);
        let settled = world.status.settled.as_ref().unwrap();
        assert_eq!((settled.status, settled.current.as_deref()), (Status::Current, Some("2")));
    }

    #[test]
    fn an_environment_knows_the_change_with_which_it_came_to_run_its_revision() {
        let mut world = World::new();
        assert_eq!(world.reached(), [0, 0], "it was so when it was first seen");
        let mut occasions = vec![0];
        for revision in ["2", "1", "2"] {
            world.say(0, Status::Current, revision);
            world.pass();
            assert_eq!(world.reached(), [*occasions.last().unwrap(), 0], "not all targets run {revision}");
            world.say(1, Status::Current, revision);
            world.pass();
            occasions.push(world.serial("environment/dev"));
            assert_eq!(world.reached(), [*occasions.last().unwrap(), 0], "{revision}");
        }
        assert!(occasions.is_sorted_by(|a, b| a < b), "each time is another occasion: {occasions:?}");
        for status in [Status::Failed, Status::Current] {
            world.say(0, status, "2");
            world.pass();
            assert_eq!(world.reached(), [*occasions.last().unwrap(), 0], "it leaves, and comes back to the same revision");
        }
        assert_eq!(world.status.settled.as_ref().unwrap().reached, 0, "nothing follows the pipeline");
    }

    #[test]
    fn an_edit_of_the_targets_is_not_a_deployment() {
        let mut world = World::new();
        world.say(0, Status::Current, "2");
        world.say(2, Status::Current, "2");
        world.pass();
        world.news();
        world.removed = vec![1];
        world.pass();
        assert!(world.news().is_empty(), "neither the environment nor the pipeline is reported");
        let dev = world.settled()[0];
        assert_eq!((dev.status, dev.revision.as_str(), dev.reached), (Status::Current, "2", 0));
        assert_eq!(world.status.settled.as_ref().unwrap().revision, "2");
        world.say(0, Status::Current, "3");
        world.say(2, Status::Current, "3");
        world.pass();
        let dev = ["target/dev/c/a Current 3", "environment/dev Current 3", "pipeline InProgress "];
        let prod = ["target/prod/c/a Current 3", "environment/prod Current 3", "pipeline Current 3"];
        assert_eq!(world.news(), [dev, prod].concat(), "the next revision is");
    }

    #[test]
    fn a_target_that_replaces_another_one_is_no_deployment() {
        let mut world = World::new();
        world.removed = vec![1];
        world.pass();
        world.say(1, Status::Current, "7");
        world.pass();
        world.removed = vec![0];
        world.pass();
        assert!(world.news().is_empty());
        let dev = world.settled()[0];
        assert_eq!((dev.status, dev.revision.as_str(), dev.reached), (Status::Current, "7", 0));
        world.say(1, Status::Current, "8");
        world.pass();
        assert_eq!(world.reached(), [world.serial("environment/dev"), 0]);
        assert_eq!(world.news(), ["target/dev/c/b Current 8", "environment/dev Current 8"], "the next revision is one");
    }

    #[test]
    fn a_change_that_was_observed_before_an_edit_is_processed_counts() {
        let mut world = World::new();
        world.say(0, Status::Current, "2");
        world.removed = vec![1];
        world.pass();
        assert_eq!(world.reached(), [world.serial("environment/dev"), 0]);
        assert_eq!(world.news(), ["target/dev/c/a Current 2", "environment/dev Current 2", "pipeline InProgress "]);
    }

    #[test]
    fn a_new_target_makes_nothing_ready_when_it_is_first_seen() {
        for (revision, pipeline) in [("2", "2"), ("1", "")] {
            let mut world = World::new();
            world.removed = vec![1];
            world.pass();
            (world.removed, world.unseen) = (vec![], vec![1]);
            world.pass();
            for index in [0, 2] {
                world.say(index, Status::Current, "2");
            }
            world.pass();
            let told = ["target/dev/c/a Current 2", "target/prod/c/a Current 2", "environment/prod Current 2"];
            assert_eq!(world.news(), told, "the environment waits for the new target");
            world.say(1, Status::Current, revision);
            world.unseen.clear();
            world.pass();
            assert!(world.news().is_empty());
            assert_eq!((world.reached()[0], world.status.settled.as_ref().unwrap().revision.as_str()), (0, pipeline));
        }
    }

    #[test]
    fn a_new_target_that_catches_up_is_no_occasion() {
        let mut world = World::new();
        world.removed = vec![1];
        world.pass();
        world.say(0, Status::Current, "2");
        world.pass();
        let occasion = world.serial("environment/dev");
        (world.removed, world.absent) = (vec![], vec![1]);
        world.pass();
        world.news();
        world.absent.clear();
        world.say(1, Status::Current, "2");
        world.pass();
        assert_eq!(world.news(), ["target/dev/c/b Current 2", "environment/dev Current 2"]);
        assert_eq!(world.reached(), [occasion, 0], "the change to the same revision means nothing");
    }

    #[test]
    fn a_status_of_an_earlier_version_gets_the_hash_of_the_targets_with_its_promotions() {
        let mut world = World::new();
        let settled = world.status.environments.iter_mut().flat_map(|e| &mut e.settled).chain(&mut world.status.settled);
        settled.for_each(|settled| settled.members.clear());
        world.listed = false;
        world.pass();
        assert!(world.settled().iter().all(|settled| settled.members.is_empty()));
        world.say(0, Status::Failed, "2");
        world.pass();
        assert!(world.settled().iter().all(|settled| settled.members.is_empty()), "a change does not add it either");
        world.news();
        world.listed = true;
        world.pass();
        assert!(world.settled().iter().all(|settled| settled.members.len() == 16) && world.news().is_empty());
        world.listed = false;
        world.removed = vec![0];
        world.pass();
        assert!(world.news().is_empty(), "from then on it is compared");
    }

    #[test]
    fn an_unseen_target_neither_makes_a_group_ready_nor_ends_its_readiness() {
        let mut world = World::new();
        world.unseen = vec![1];
        world.pass();
        assert!(world.news().is_empty());
        world.say(0, Status::Current, "2");
        world.pass();
        assert_eq!(world.news(), ["target/dev/c/a Current 2"], "the unseen target may run it too");
        world.say(0, Status::Failed, "3");
        world.pass();
        assert_eq!(world.news(), ["target/dev/c/a Failed 3", "environment/dev InProgress ", "pipeline InProgress "]);
        world.say(0, Status::Current, "3");
        world.pass();
        world.news();
        world.say(1, Status::Current, "3");
        world.unseen.clear();
        world.pass();
        assert_eq!(world.news(), ["target/dev/c/b Current 3", "environment/dev Current 3"]);
    }

    #[test]
    fn an_object_that_is_missing_after_a_restart_is_removed_as_of_now() {
        for before in [0, 1] {
            let mut world = World::new();
            for _ in 0..before {
                world.say(2, Status::Current, "2");
                world.pass();
            }
            let told = world.told().len();
            world.absent = vec![0];
            world.pass();
            let news: Vec<_> = world.told().drain(told..).map(|(subject, time, _, to)| (subject, time, to.status)).collect();
            let now = at(1000 + world.passes);
            assert_eq!(news[0], ("target/dev/c/a".to_owned(), now, Status::NotFound), "and not since 1970");
            assert!(news.len() > 1 && news.iter().all(|(_, time, _)| *time == now), "{news:?}");
        }
    }

    #[test]
    fn an_absent_target_does_not_make_its_environment_ready() {
        let mut world = World::new();
        world.say(0, Status::Current, "2");
        world.pass();
        world.news();
        world.absent = vec![0];
        world.say(1, Status::Current, "2");
        world.pass();
        assert_eq!(world.news(), ["target/dev/c/a NotFound ", "target/dev/c/b Current 2"]);
    }

    #[test]
    fn another_application_is_a_silent_baseline_for_targets_groups_and_pipeline() {
        let mut world = World::new();
        for target in &mut world.targets {
            target.app.name = "api".into();
        }
        for index in 0..3 {
            world.say(index, Status::Current, "9");
        }
        world.pass();
        assert!(world.news().is_empty());
        assert_eq!(world.status.settled.as_ref().unwrap().revision, "9");
    }

    #[test]
    fn changes_of_reachability_are_logged() {
        let cluster = |name: &str| ClusterRef {
            api_version: None,
            kind: ClusterKind::GitopsCluster,
            name: name.into(),
            namespace: Some("fleet".into()),
        };
        let mut log = open(at(1), None);
        let mut known = Vec::new();
        for (step, (reachability, told)) in [
            (Reachability::Unknown, None),
            (Reachability::Online, None),
            (Reachability::Unknown, None),
            (Reachability::Offline, Some(Status::Failed)),
            (Reachability::Offline, None),
            (Reachability::Unknown, None),
            (Reachability::Online, Some(Status::Current)),
        ]
        .into_iter()
        .enumerate()
        {
            let before = log.changes.len();
            known = apply_clusters(
                &[ClusterReading { cluster_ref: cluster("eu"), reachability, is_reported: false }],
                &known,
                &mut log,
                at(9),
            );
            let new: Vec<_> = log.changes[before..].iter().map(|c| (c.subject.as_str(), c.to.status)).collect();
            assert_eq!(new, told.map(|status| ("cluster/fleet.eu", status)).into_iter().collect::<Vec<_>>(), "{step}");
        }
        assert_eq!((log.changes[0].from.failed, log.changes[1].from.failed), (false, true));
        assert!(apply_clusters(&[], &known, &mut log, at(9)).is_empty(), "no target uses the cluster any more");
    }

    fn say() -> impl Strategy<Value = (usize, Status, u8)> {
        use Status::{Current, Failed, InProgress, NotFound, Terminating};
        (
            0..3_usize,
            prop::sample::select(vec![Current, Current, Current, InProgress, Failed, NotFound, Terminating]),
            1..4_u8,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// The changes of targets, environments and the pipeline, and their order, do not depend on how much is read at once.
        #[test]
        fn the_log_does_not_depend_on_batches(said in prop::collection::vec((say(), any::<bool>()), 0..40)) {
            let (mut one, mut many) = (World::new(), World::new());
            for ((index, status, revision), cut) in said {
                for world in [&mut one, &mut many] {
                    world.say(index, status, &revision.to_string());
                }
                one.pass();
                if cut {
                    many.pass();
                }
            }
            many.pass();
            prop_assert_eq!(one.told(), many.told());
            prop_assert_eq!(one.settled(), many.settled());
        }
    }
}
