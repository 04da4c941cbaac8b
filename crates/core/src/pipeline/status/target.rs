//! Pure: the next status of one target, and its changes.

use std::borrow::Cow;
use std::collections::HashMap;

use relaybook_text::cut;

use crate::changelog::{MAX_MESSAGE, Part, Verdict, append, believe, is_cut_of, settle, with_repository};
use crate::observe;
use crate::observe::Observation;
use crate::pipeline::generate::record;
use crate::reading::{Application, Now, Reading, Reason, is_same_cluster};
use relaybook_api::pipeline::target::{Entry, TargetInfo};
use relaybook_api::pipeline::{EnvironmentStatus, TargetStatus};
use relaybook_api::values::git::recorded;
use relaybook_api::values::refs::ClusterAppRef;
use relaybook_api::{ChangeLog, Settled, Status, Time};

/// Returns the application object of a target, with all fields.
pub fn application(target: &TargetInfo) -> ClusterAppRef {
    ClusterAppRef {
        api_version: target.app.api_version.clone(),
        kind: target.app.kind.clone(),
        name: target.app.name.clone(),
        namespace: target.namespace.clone(),
        cluster_ref: target.object_cluster.clone(),
    }
}

/// Returns the application object of a target, and how it is read.
pub fn source(target: &TargetInfo) -> Application {
    Application {
        object: application(target),
        revision_path: target.app.revision_path.clone(),
        cluster_path: target.cluster_path.clone(),
        record: target.record.clone(),
    }
}

/// The next status of a target.
#[derive(Debug, PartialEq, Eq)]
pub enum Shown {
    /// The status to show.
    Status(TargetStatus),
    /// The previous status, because the cache is still being filled. `None`: a new target, which has no status yet.
    Pending(Option<TargetStatus>),
}

/// Returns the previous status of each target, in the order of `targets`. A target whose application was edited keeps its status, so that
/// its history is not lost. The status then still names the old application.
pub fn previous<'a>(targets: &[&TargetInfo], before: &'a [EnvironmentStatus]) -> Vec<Option<&'a TargetStatus>> {
    let all = before.iter().flat_map(|e| e.targets.iter().map(|t| (e.name.clone(), t)));
    let mut left: HashMap<(String, ClusterAppRef), &TargetStatus> =
        all.map(|(environment, t)| ((environment, t.cluster_app_ref.clone()), t)).collect();
    let mut found: Vec<Option<&TargetStatus>> =
        targets.iter().map(|t| left.remove(&(t.environment.clone(), application(t)))).collect();
    left.retain(|_, target| target.generated.is_none());
    let edited = targets.iter().zip(&mut found).filter(|(target, found)| found.is_none() && !is_generated(target));
    for (target, found) in edited {
        let names_another = target.name != format!("{}/{}/{}", target.environment, target.cluster, target.namespace);
        let place = |app: &ClusterAppRef| app.namespace == target.namespace && app.cluster_ref == target.object_cluster;
        let here = left.keys().filter(|(e, app)| *e == target.environment && place(app));
        // A target without its own application uses the application of the pipeline, so its old name does not matter.
        let edited = here.filter(|(_, app)| !names_another || app.name == target.app.name);
        let best = edited.min_by_key(|(_, app)| (app.name != target.app.name, app.name.clone(), app.kind.clone())).cloned();
        *found = best.and_then(|key| left.remove(&key));
    }
    found
}

fn is_generated(target: &TargetInfo) -> bool {
    matches!(target.entry, Entry::Generated(_))
}

/// One target while its observations are processed one by one.
pub struct Track<'a> {
    /// The target.
    pub target: &'a TargetInfo,
    /// The settled state after the observations that were processed so far.
    pub settled: Option<Settled>,
    before: Option<&'a TargetStatus>,
    reading: &'a Reading,
    /// Identifies the rules by which the object is read.
    pub ruleset_id: String,
    /// Whether observations were lost. Then the first change is marked as coalesced.
    lost: bool,
    /// Whether the agent of its cluster is offline.
    is_offline: bool,
    /// Address of the Git repository that the pipeline, or an object of Fleet, names. Empty: the application object can name one.
    repository: String,
}

impl<'a> Track<'a> {
    /// Creates a track without processed observations. `before`: the previous status of the target. `new_since`: for a target whose object
    /// did not exist before, the serial of the log before the target.
    pub fn new(
        target: &'a TargetInfo,
        before: Option<&'a TargetStatus>,
        reading: &'a Reading,
        new_since: Option<i64>,
    ) -> Self {
        let mut settled = before.and_then(|b| b.settled.clone());
        let (ruleset_id, moved) = ruleset_id(target, reading, settled.as_ref());
        if moved && let Some(settled) = settled.as_mut() {
            settled.reader.clone_from(&ruleset_id);
        }
        if before.is_some_and(|b| b.cluster_app_ref != application(target))
            && let Some(other) = settled.as_mut()
        {
            // This is the state of another application. Only `since` is still valid.
            other.reader.clear();
        }
        if let Some(since) = new_since.filter(|_| before.is_none()) {
            let (status, reader) = (Status::NotFound, ruleset_id.clone());
            settled = Some(Settled { status, reader, since, ..Settled::default() });
        }
        let lost = reading.overflowed && settled.as_ref().is_some_and(|s| s.reader == ruleset_id);
        let repository = target.source.as_ref().map_or_else(String::new, |source| recorded(&source.repository));
        Self { target, settled, before, reading, ruleset_id, lost, is_offline: false, repository }
    }

    /// The same track, with whether the agent of its cluster is offline.
    #[must_use]
    pub fn offline(self, is_offline: bool) -> Self {
        Self { is_offline, ..self }
    }

    /// The same track, with the address of the Git repository that the user has set for the pipeline. Empty: none. It takes precedence.
    #[must_use]
    pub fn of_repository(self, repository: &str) -> Self {
        if repository.is_empty() { self } else { Self { repository: repository.to_owned(), ..self } }
    }

    /// Returns the observation as the settled state explains it.
    fn believed<'o>(&self, obs: &'o Observation) -> Cow<'o, Observation> {
        believe(self.settled.as_ref(), obs, &self.ruleset_id, self.is_offline)
    }

    /// Returns the observations since the last reconcile, then the current one. Each has its sequence number among all objects.
    pub fn observations(&self) -> impl Iterator<Item = (u64, &'a Observation)> + use<'a> {
        let comparable = self.settled.as_ref().is_some_and(|s| s.reader == self.ruleset_id);
        // Observations from a cache that is still being filled are processed when the cache is filled.
        let filling = matches!(self.reading.now, Now::Unknown { reason, .. } if reason.is_filling());
        let past = self.reading.observations.iter().filter(move |_| comparable && !filling).map(|(seq, obs)| (*seq, obs));
        let present = match &self.reading.now {
            Now::Known(obs) => Some((self.reading.seq, obs)),
            Now::Unknown { .. } => None,
        };
        past.chain(present)
    }

    /// Processes one observation and appends its change to the log. Returns whether the settled state has changed.
    pub fn settle(&mut self, obs: &Observation, log: &mut ChangeLog, now: Time) -> bool {
        let obs = self.believed(obs);
        let repository = |status: Status| match &*self.repository {
            "" if obs.status == status => obs.repository.as_str(),
            set => set,
        };
        let verdict = settle(self.settled.as_ref(), &obs, &self.ruleset_id, baseline_serial(log));
        match with_repository(verdict, self.settled.as_ref(), repository) {
            Verdict::Ignored => return false,
            Verdict::Baseline(new) | Verdict::Noted(new) => self.settled = Some(new),
            Verdict::Changed { from, to, settled: new } => {
                append(log, self.target.log_subject(), now, from, to);
                if let Some(change) = log.changes.last_mut() {
                    change.coalesced = std::mem::take(&mut self.lost);
                }
                self.settled = Some(new);
            }
        }
        true
    }

    /// Whether `targetsFrom` has generated the target, and its object is gone.
    pub fn has_left(&self) -> bool {
        let is_gone = |now: &Now| matches!(now, Now::Known(obs) if obs.status == Status::NotFound);
        is_generated(self.target) && is_gone(&self.reading.now)
    }

    /// Whether the target counts for its environment. A generated target counts while its object exists.
    pub fn counts(&self) -> bool {
        let is_gone = self.settled.as_ref().is_some_and(|settled| settled.status == Status::NotFound);
        !(is_generated(self.target) && is_gone)
    }

    /// Returns the target as a part of its environment. The settled state of another application does not count.
    pub fn as_part(&self) -> Part<'_> {
        Part {
            settled: self.settled.as_ref().filter(|s| s.reader == self.ruleset_id),
            seen: matches!(self.reading.now, Now::Known(_)),
        }
    }

    /// Returns the next status of the target.
    pub fn shown(mut self, now: Time) -> Shown {
        let waits = match self.reading.now {
            Now::Unknown { reason: Reason::CacheNotSynced, .. } => true,
            Now::Unknown { reason: Reason::CacheSlow, .. } => self.before.is_some(),
            _ => false,
        };
        if waits {
            return Shown::Pending(
                self.before.cloned().map(|before| TargetStatus { generated: record(self.target), ..before }),
            );
        }
        let app = application(self.target);
        let same = self.before.filter(|b| b.cluster_app_ref == app);
        let mut shown = match &self.reading.now {
            Now::Known(obs) => {
                let obs = self.believed(obs);
                match same {
                    // A suspended object keeps its status, unless it is being deleted or could not be observed before.
                    Some(before) if obs.suspended && ![before.status, obs.status].iter().any(|s| unsteady(*s)) => {
                        before.clone()
                    }
                    Some(before) if obs.drift_unknown => TargetStatus { drifted: before.drifted, ..show(&obs) },
                    _ => show(&obs),
                }
            }
            Now::Unknown { reason, message } => show(&Observation {
                status: Status::Unknown,
                reason: reason.as_str().to_owned(),
                message: message.clone(),
                ..Observation::default()
            }),
        };
        if let Some(before) = same
            && is_cut_of(&before.message, &shown.message)
        {
            // The message was shortened because the status was full. Free space alone is no reason for a write.
            shown.message.clone_from(&before.message);
        }
        shown.last_transition_time = same.filter(|b| b.status == shown.status).map_or(Some(now), |b| b.last_transition_time);
        shown.cluster_app_ref = app;
        shown.generated = record(self.target);
        if let Some(settled) = self.settled.as_mut().filter(|_| !self.reading.confirmed.is_empty()) {
            settled.staged.clone_from(&self.reading.confirmed);
        }
        shown.settled = self.settled;
        Shown::Status(shown)
    }
}

/// Returns an identifier of the rules by which the object of a target is read, and of its cluster. A reference to another cluster means
/// another object. While the cluster behind a reference is unknown, it counts as unchanged.
///
/// All identifying properties of a cluster can change, one after the other. So the cluster is compared with its first and its last
/// identity, which the identifier contains: `RULES#FIRST~LAST`. The returned flag is `true` if the same cluster has another identity.
fn ruleset_id(target: &TargetInfo, reading: &Reading, settled: Option<&Settled>) -> (String, bool) {
    let rules = observe::reader(&target.app.api_version, &target.app.kind, target.app.revision_path.as_deref());
    if target.object_cluster.is_none() {
        return (rules, false);
    }
    let before = settled.and_then(|s| s.reader.split_once('#')).filter(|(before, _)| *before == rules);
    let before = before.map(|(_, names)| (names, names.split_once('~').unwrap_or((names, names))));
    match (before, reading.cluster.as_str()) {
        (Some((names, (_, last))), now) if now.is_empty() || now == last => (format!("{rules}#{names}"), false),
        (Some((_, (first, last))), now) if [first, last].iter().any(|known| is_same_cluster(known, now)) => {
            (format!("{rules}#{first}~{now}"), true)
        }
        (_, "") => (rules, false),
        (_, now) => (format!("{rules}#{now}"), false),
    }
}

/// Returns the part of a ruleset ID that stays the same while the rules and the cluster are the same.
pub fn stable_part(ruleset_id: &str) -> &str {
    ruleset_id.split_once('~').map_or(ruleset_id, |(stable, _)| stable)
}

/// Whether a status is not the regular state of an object.
const fn unsteady(status: Status) -> bool {
    matches!(status, Status::Unknown | Status::Terminating)
}

/// Returns the status that shows an observation.
fn show(obs: &Observation) -> TargetStatus {
    let ready = obs.status == Status::Current;
    TargetStatus {
        status: obs.status,
        ready,
        revision: obs.revision.clone(),
        attempted_revision: obs.attempted_revision.clone(),
        reason: obs.reason.clone(),
        message: if ready { String::new() } else { cut(&obs.message, MAX_MESSAGE).into_owned() },
        drifted: obs.drifted,
        ..TargetStatus::default()
    }
}

/// Returns the serial up to which changes belong to an earlier target of the same name. It is 0 for a log without changes. If such a log is
/// new because the status was wiped, changes that were recorded before still belong to the current targets.
pub fn baseline_serial(log: &ChangeLog) -> i64 {
    if log.serial == log.first { 0 } else { log.serial }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changelog::open;
    use relaybook_api::State;
    use relaybook_api::pipeline::source::TargetOrigin;
    use relaybook_api::values::refs::{AppRef, ClusterKind, ClusterRef};

    fn take(target: &TargetInfo, before: Option<&TargetStatus>, reading: &Reading, log: &mut ChangeLog, now: Time) -> Shown {
        let mut track = Track::new(target, before, reading, None);
        for (_, obs) in track.observations() {
            track.settle(obs, log, now);
        }
        track.shown(now)
    }

    fn info(environment: &str, namespace: &str, app: &str, another: bool) -> TargetInfo {
        let suffix = if another { format!("/{app}") } else { String::new() };
        let name = format!("{environment}/c/{namespace}{suffix}");
        TargetInfo {
            environment: environment.into(),
            namespace: namespace.into(),
            cluster: "c".into(),
            cluster_ref: None,
            app: AppRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name: app.into(), revision_path: None },
            name,
            ..TargetInfo::default()
        }
    }

    fn obs(status: Status, revision: &str) -> Observation {
        Observation { status, revision: revision.into(), attempted_revision: revision.into(), ..Observation::default() }
    }

    fn reading(now: Now, past: &[Observation]) -> Reading {
        Reading {
            observations: (1..).zip(past.iter().cloned()).collect(),
            now,
            seq: 99,
            changed_at: None,
            overflowed: false,
            cluster: String::new(),
            confirmed: String::new(),
        }
    }

    fn known(now: &Observation, past: &[Observation]) -> Reading {
        reading(Now::Known(now.clone()), past)
    }

    fn unknown(reason: Reason) -> Reading {
        reading(Now::Unknown { reason, message: "why".into() }, &[])
    }

    fn at(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    fn status(shown: Shown) -> TargetStatus {
        let Shown::Status(status) = shown else { panic!("{shown:?}") };
        status
    }

    /// Returns a target that was seen at revision 1, its status, and the log of its pipeline.
    fn seen() -> (TargetInfo, TargetStatus, ChangeLog) {
        let target = info("dev", "web", "web", false);
        let mut log = open(at(1), None);
        let before = status(take(&target, None, &known(&obs(Status::Current, "1"), &[]), &mut log, at(1)));
        assert!(log.changes.is_empty());
        (target, before, log)
    }

    #[test]
    fn the_first_observation_is_a_silent_baseline() {
        let target = info("dev", "web", "web", false);
        let mut log = open(at(1), None);
        let past = [obs(Status::Current, "0"), obs(Status::Failed, "1")];
        let shown = status(take(&target, None, &known(&obs(Status::Current, "1"), &past), &mut log, at(1)));
        assert_eq!(log.serial, log.first);
        assert_eq!((shown.status, shown.ready, shown.revision.as_str()), (Status::Current, true, "1"));
        assert_eq!(shown.settled.unwrap().since, 0, "a new log has no past");
        assert_eq!(shown.last_transition_time, Some(at(1)));
    }

    #[test]
    fn each_change_has_the_repositories_of_its_revisions() {
        use Status::{Current, InProgress};
        let of = |name: &str, status, revision| Observation {
            repository: format!("https://github.com/acme/{name}"),
            ..obs(status, revision)
        };
        let told = |set: &str, of_fleet: Option<&str>, all: &[Observation]| -> Vec<String> {
            let origin = |repository: &str| TargetOrigin { repository: repository.into(), ..TargetOrigin::default() };
            let target = TargetInfo { source: of_fleet.map(origin), ..info("dev", "web", "web", false) };
            let (mut log, reading) = (open(at(1), None), known(&all[0], &[]));
            let mut track = Track::new(&target, None, &reading, None).of_repository(set);
            for obs in all {
                track.settle(obs, &mut log, at(2));
            }
            let name = |state: &State| state.repository.rsplit('/').next().unwrap_or_default().to_owned();
            log.changes.iter().map(|c| format!("{} {}", name(&c.from), name(&c.to))).collect()
        };
        let moves = [of("a", Current, "1"), of("b", InProgress, "2"), of("b", Current, "2"), of("b", Current, "3")];
        assert_eq!(told("", None, &moves), ["a b", "a b", "b b"]);
        assert_eq!(told("https://github.com/acme/set", None, &moves), ["set set", "set set", "set set"]);
        let fleet = Some("https://user:t0ken@github.com/acme/fleet");
        assert_eq!(told("", fleet, &moves)[0], "fleet fleet");
        assert_eq!(told("https://github.com/acme/set", fleet, &moves)[0], "set set");
        // What runs is still of the first repository, although the object is about another one.
        let drifts = Observation { drifted: true, attempted_revision: String::new(), ..of("b", InProgress, "1") };
        assert_eq!(told("", None, &[moves[0].clone(), drifts]), ["a a"]);
    }

    #[test]
    fn states_between_two_writes_are_logged_in_order() {
        let (target, before, mut log) = seen();
        let past = [obs(Status::Failed, "2"), obs(Status::Current, "1")];
        let after = status(take(&target, Some(&before), &known(&past[1], &past), &mut log, at(9)));
        let told: Vec<_> = log.changes.iter().map(|c| (c.from.status, c.to.status, c.coalesced)).collect();
        assert_eq!(told, [(Status::Current, Status::Failed, false), (Status::Failed, Status::Current, false)]);
        let subject = target.log_subject().to_string();
        assert_eq!((&log.changes[0].subject, log.changes[0].time), (&subject, at(9)));
        assert_eq!(after, before, "and the transition time is the same");
    }

    #[test]
    fn the_first_change_after_lost_observations_is_coalesced() {
        let (target, before, mut log) = seen();
        let past = [obs(Status::Failed, "2"), obs(Status::Current, "2")];
        let lost = Reading { overflowed: true, ..known(&past[1], &past) };
        take(&target, Some(&before), &lost, &mut log, at(9));
        assert_eq!(log.changes.iter().map(|c| c.coalesced).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn a_target_keeps_its_status_until_its_cache_is_filled() {
        let (target, before, mut log) = seen();
        let reading = unknown(Reason::CacheNotSynced);
        assert_eq!(take(&target, Some(&before), &reading, &mut log, at(9)), Shown::Pending(Some(before.clone())));
        assert_eq!(take(&target, None, &reading, &mut log, at(9)), Shown::Pending(None));
        let slow = unknown(Reason::CacheSlow);
        assert_eq!(take(&target, Some(&before), &slow, &mut log, at(9)), Shown::Pending(Some(before.clone())));
        assert_eq!(
            status(take(&target, None, &slow, &mut log, at(9))).status,
            Status::Unknown,
            "a new target is shown meanwhile"
        );
        let full = Reading { observations: vec![(7, obs(Status::Failed, "2"))], ..unknown(Reason::CacheNotSynced) };
        assert_eq!(take(&target, Some(&before), &full, &mut log, at(9)), Shown::Pending(Some(before.clone())));
        assert!(log.changes.is_empty(), "it is processed when the cache is filled");
        let edited = info("dev", "web", "other", false);
        assert_eq!(take(&edited, Some(&before), &reading, &mut log, at(9)), Shown::Pending(Some(before)));
    }

    #[test]
    fn a_target_that_cannot_be_observed_is_shown_without_a_change() {
        let (target, before, mut log) = seen();
        let gone = status(take(&target, Some(&before), &unknown(Reason::KindNotFound), &mut log, at(9)));
        assert_eq!((gone.status, gone.reason.as_str(), gone.message.as_str()), (Status::Unknown, "KindNotFound", "why"));
        assert_eq!((gone.last_transition_time, &gone.settled), (Some(at(9)), &before.settled));
        let back = status(take(&target, Some(&gone), &known(&obs(Status::Current, "1"), &[]), &mut log, at(10)));
        assert_eq!((back.settled, log.changes.len()), (before.settled, 0));
    }

    #[test]
    fn a_suspended_object_keeps_its_status() {
        let (target, before, mut log) = seen();
        let paused = Observation { suspended: true, ..obs(Status::InProgress, "2") };
        assert_eq!(status(take(&target, Some(&before), &known(&paused, &[]), &mut log, at(9))), before);
        let goes = Observation { status: Status::Terminating, ..paused.clone() };
        assert_eq!(status(take(&target, Some(&before), &known(&goes, &[]), &mut log, at(9))).status, Status::Terminating);
        let first = status(take(&target, None, &known(&paused, &[]), &mut log, at(9)));
        assert_eq!((first.status, first.settled.unwrap().status), (Status::InProgress, Status::InProgress));
        let unseen = TargetStatus { status: Status::Unknown, ..before };
        assert_eq!(status(take(&target, Some(&unseen), &known(&paused, &[]), &mut log, at(9))).status, Status::InProgress);
    }

    #[test]
    fn another_application_is_a_new_baseline_that_keeps_the_first_serial() {
        let (_, before, mut log) = seen();
        let since = before.settled.as_ref().unwrap().since;
        log.serial += 5;
        let edited = info("dev", "web", "other", false);
        let past = [obs(Status::Current, "7"), obs(Status::Current, "8")];
        let blind = status(take(&edited, Some(&before), &unknown(Reason::Forbidden), &mut log, at(9)));
        for known_before in [&before, &blind] {
            let after = status(take(&edited, Some(known_before), &known(&past[1], &past), &mut log, at(9)));
            assert_eq!(after.cluster_app_ref.name, "other");
            let settled = after.settled.unwrap();
            assert_eq!((settled.revision.as_str(), settled.since), ("8", since));
            assert!(log.changes.is_empty());
        }
    }

    #[test]
    fn a_reference_that_leads_to_another_cluster_is_a_new_baseline() {
        let (mut target, ..) = seen();
        target.object_cluster =
            Some(ClusterRef { api_version: None, kind: ClusterKind::Secret, name: "eu".into(), namespace: None });
        let mut log = open(at(1), None);
        let on = |cluster: &str, revision: &str| Reading {
            cluster: cluster.to_owned(),
            ..known(&obs(Status::Current, revision), &[])
        };
        let mut before = status(take(&target, None, &on("a.x", "1"), &mut log, at(1)));
        // Another address, another CA, the first identity again, then neither the address nor the CA of the first identity.
        for (cluster, revision, changes) in
            [("b.x", "1", 0), ("a.y", "2", 1), ("a.x", "3", 2), ("c.x", "4", 3), ("c.z", "5", 4)]
        {
            let reader = |status: &TargetStatus| status.settled.clone().unwrap().reader;
            let lasts = stable_part(&reader(&before)).to_owned();
            before = status(take(&target, Some(&before), &on(cluster, revision), &mut log, at(2)));
            assert_eq!(log.changes.len(), changes, "{cluster}");
            assert_eq!(stable_part(&reader(&before)), lasts);
            let again = status(take(&target, Some(&before), &on(cluster, revision), &mut log, at(2)));
            assert_eq!(again, before);
        }
        let blind = status(take(&target, Some(&before), &unknown(Reason::Unreachable), &mut log, at(3)));
        assert_eq!(blind.settled, before.settled, "it is unknown where the reference leads");
        let gone = Reading { cluster: "d.v".into(), ..known(&crate::observe::observe(None, None), &[]) };
        let after = status(take(&target, Some(&blind), &gone, &mut log, at(4)));
        assert_eq!((log.changes.len(), after.settled.unwrap().status), (4, Status::NotFound), "and nothing was removed");
    }

    #[test]
    fn a_message_that_was_cut_is_not_a_change() {
        let (target, before, mut log) = seen();
        let wordy = Observation { message: "word ".repeat(300), ..obs(Status::Failed, "2") };
        let full = status(take(&target, Some(&before), &known(&wordy, &[]), &mut log, at(9)));
        assert!(full.message.len() <= MAX_MESSAGE && full.message.len() > MAX_MESSAGE - 8);
        let short = TargetStatus { message: cut(&full.message, 256).into_owned(), ..full.clone() };
        assert_eq!(status(take(&target, Some(&short), &known(&wordy, &[]), &mut log, at(10))), short);
    }

    #[test]
    fn previous_finds_the_status_of_each_target() {
        let before = |environment: &str, apps: &[(&str, &str)]| EnvironmentStatus {
            name: environment.into(),
            targets: apps
                .iter()
                .map(|(namespace, app)| TargetStatus {
                    cluster_app_ref: application(&info(environment, namespace, app, false)),
                    ..TargetStatus::default()
                })
                .collect(),
            ..EnvironmentStatus::default()
        };
        let past = [before("dev", &[("a", "web"), ("a", "db"), ("b", "web")]), before("prod", &[("a", "web")])];
        let named = |targets: &[TargetInfo]| -> Vec<Option<String>> {
            let name = |t: &TargetStatus| format!("{}/{}", t.cluster_app_ref.namespace, t.cluster_app_ref.name);
            previous(&targets.iter().collect::<Vec<_>>(), &past).into_iter().map(|t| t.map(name)).collect()
        };
        let was = |s: &str| Some(s.to_owned());
        // Unedited, in another order.
        let same = [info("dev", "b", "web", false), info("dev", "a", "db", true), info("prod", "a", "web", false)];
        assert_eq!(named(&same), [was("b/web"), was("a/db"), was("a/web")]);
        // The application of the pipeline was renamed: this edits the targets that use it, not those with their own application.
        let renamed = [info("dev", "a", "api", false), info("dev", "a", "db", true), info("dev", "b", "api", false)];
        assert_eq!(named(&renamed), [was("a/web"), was("a/db"), was("b/web")]);
        // The kind was edited.
        let mut kind = info("dev", "a", "db", true);
        kind.app.kind = "StatefulSet".into();
        assert_eq!(named(&[kind]), [was("a/db")]);
        // New targets.
        let new = [info("dev", "c", "web", false), info("dev", "a", "new", true), info("test", "a", "web", false)];
        assert_eq!(named(&new), [None, None, None]);
    }
}
