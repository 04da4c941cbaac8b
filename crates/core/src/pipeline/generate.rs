//! Pure: the targets that nobody lists. Compares what the selections of a pipeline contain with what its status records.
//!
//! In: the objects of each selection, and the recorded targets with their readings. Out: the generated targets of each environment, which
//! of them are news, and what prevents others.
//!
//! A target counts only after the status records it. An object that is not recorded is news if it was created while its kind was watched.
//! If it was found in a list, it is news if it is at least as new as the newest object that was selected before. Everything else was there
//! before, or came to be selected by an edit, so its first observation is a silent baseline.

mod leaving;
mod names;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use crate::reading::selection::{Joined, Selected, Selecting};
use crate::reading::{Now, Reason};
use relaybook_api::pipeline::target::{Entry, TargetInfo};
use relaybook_api::pipeline::{EnvironmentStatus, GeneratedFrom, MAX_TARGETS, TargetStatus};
use relaybook_api::values::refs::{AppRef, ClusterAppRef, ClusterRef};
use relaybook_api::{Pipeline, PipelineStatus};

use super::plan::{DUPLICATE_TARGET, PlannedSelection};
use super::status::Observed;
use super::status::target::{application, source};
use leaving::{Stays, stays};
use names::plain;
pub use names::{names, record};

/// One selection, and what it contains now.
pub struct Found<'a> {
    /// The entry of `targetsFrom`.
    pub planned: &'a PlannedSelection,
    /// Its objects.
    pub selecting: Selecting,
}

/// A generated target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// The target.
    pub info: TargetInfo,
    /// If it is not recorded yet and is news: the sequence number before the event with which it began to be selected.
    pub news_since: Option<u64>,
}

/// The generated targets of one environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfEnvironment {
    /// The targets, by name.
    pub targets: Vec<Generated>,
    /// What to record of each entry, after all of its targets are recorded.
    pub entries: Vec<GeneratedFrom>,
    /// Whether all selections are complete and all of their objects are targets.
    pub is_complete: bool,
    /// Whether a list of objects is under way for the first time.
    pub is_pending: bool,
}

/// All generated targets of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllGenerated {
    /// By environment, in spec order.
    pub environments: Vec<OfEnvironment>,
    /// Why objects are not targets, with the reason of `Ready=False`.
    pub problems: Vec<(String, String)>,
    /// Entries that select nothing.
    pub empty: Vec<String>,
}

/// Computes the generated targets. `recorded`: the generated targets of the status, with their readings.
pub fn generate(
    pipeline: &Pipeline,
    cluster_name: &str,
    listed: &[TargetInfo],
    found: &[Found<'_>],
    recorded: &[Observed],
) -> AllGenerated {
    let empty = PipelineStatus::default();
    let status = pipeline.status.as_ref().unwrap_or(&empty);
    let mut all = AllGenerated::default();
    // An object that was gone and is there again is another one.
    let all_recorded = status.environments.iter().flat_map(|environment| &environment.targets);
    let known: HashSet<_> = all_recorded
        .filter(|target| target.generated.is_some())
        .filter(|target| !target.is_gone())
        .map(|t| t.cluster_app_ref.clone())
        .collect();
    let mut room = MAX_TARGETS.saturating_sub(listed.len());
    let mut left_out = 0;
    let mut environments: Vec<(OfEnvironment, Vec<Generated>, Vec<Generated>)> = Vec::new();
    for (index, environment) in pipeline.spec.environments.iter().enumerate() {
        let before = status.environments.iter().find(|known| known.name == environment.name);
        let found: Vec<&Found<'_>> = found.iter().filter(|found| found.planned.environment == index).collect();
        let mut taken: BTreeMap<String, String> = BTreeMap::new();
        let mut written = HashSet::new();
        for info in listed.iter().filter(|info| info.environment_index == index) {
            taken.insert(info.name.clone(), "targets".to_owned());
            written.insert(application(info));
        }
        let namespace = pipeline.metadata.namespace.as_deref().unwrap_or_default();
        let is_absent = pipeline.spec.is_absent_before();
        let here =
            Here { name: &environment.name, namespace, index, cluster_name, before, found: &found, written, is_absent };
        let (stay, mut pending) = here.recorded(status, recorded, &mut taken);
        room = room.saturating_sub(stay.len());
        let (new, problems) = here.unrecorded(&known, &mut taken);
        pending
            .retain(|target| !taken.contains_key(&target.info.name) && !here.written.contains(&application(&target.info)));
        all.problems.extend(problems);
        all.empty.extend(here.empty());
        environments.push((OfEnvironment { targets: stay, ..here.outcome() }, new, pending));
    }
    for (index, (of, new, _)) in environments.iter_mut().enumerate() {
        let is_cut = new.len() > room;
        left_out += new.len().saturating_sub(room);
        new.truncate(room);
        room -= new.len();
        of.targets.append(new);
        of.is_complete &= !is_cut;
        if is_cut {
            note_left_out(&mut of.entries, found.iter().filter(|found| found.planned.environment == index));
        }
    }
    for (mut of, _, mut pending) in environments {
        pending.truncate(room);
        room -= pending.len();
        of.targets.append(&mut pending);
        of.targets.sort_by(|a, b| a.info.name.cmp(&b.info.name));
        all.environments.push(of);
    }
    let beyond: usize = found.iter().map(|found| found.selecting.total.saturating_sub(found.selecting.objects.len())).sum();
    let followed = all.environments.iter().map(|of| of.targets.len()).sum::<usize>() + listed.len();
    if let Some(problem) = too_many(left_out + beyond, followed) {
        all.problems.insert(0, problem);
    }
    all
}

/// Returns the problem that objects are left out, if there are any.
fn too_many(left_out: usize, followed: usize) -> Option<(String, String)> {
    let message = format!(
        "{left_out} objects are selected beyond the maximum of {MAX_TARGETS} targets, and {followed} targets are followed; select \
         fewer, or divide them among several pipelines"
    );
    (left_out > 0).then(|| ("TooManyTargets".to_owned(), message))
}

/// Records that objects were left out: they are as old as the newest one, and are not reported when there is room for them.
fn note_left_out<'f>(entries: &mut [GeneratedFrom], found: impl Iterator<Item = &'f Found<'f>>) {
    for found in found.filter(|found| found.selecting.incomplete.is_none()) {
        let after = found.selecting.newest.and_then(|newest| newest.checked_add(Duration::from_secs(1)).ok());
        let is_it = |entry: &&mut GeneratedFrom| usize::try_from(entry.from) == Ok(found.planned.from);
        if let Some(entry) = entries.iter_mut().find(is_it) {
            entry.newest = entry.newest.max(after);
        }
    }
}

/// One environment.
struct Here<'a> {
    name: &'a str,
    namespace: &'a str,
    index: usize,
    cluster_name: &'a str,
    before: Option<&'a EnvironmentStatus>,
    found: &'a [&'a Found<'a>],
    /// The objects of the targets that the spec lists. They are not followed twice.
    written: HashSet<ClusterAppRef>,
    /// Whether nothing was there before the first reconcile.
    is_absent: bool,
}

impl Here<'_> {
    /// Returns the recorded targets that stay, and those that stay only while they have pending deliveries.
    fn recorded(
        &self,
        status: &PipelineStatus,
        recorded: &[Observed],
        taken: &mut BTreeMap<String, String>,
    ) -> (Vec<Generated>, Vec<Generated>) {
        let mut selected: HashMap<_, Vec<(&Found<'_>, &Selected)>> = HashMap::new();
        for found in self.found {
            for one in &found.selecting.objects {
                selected.entry(one.object.object.clone()).or_default().push((found, one));
            }
        }
        let (mut stay, mut pending) = (Vec::new(), Vec::new());
        for (info, reading) in recorded.iter().filter(|(info, _)| info.environment_index == self.index) {
            let object = application(info);
            let mine = |(found, _): &&(&Found<'_>, &Selected)| info.entry == Entry::Generated(found.planned.from);
            let selecting = selected.get(&source(info).seen_from(self.namespace).object);
            let now = selecting.and_then(|all| all.iter().find(mine).or_else(|| all.first()));
            let info = match now {
                Some((found, one)) => {
                    let now = self.info(found, one);
                    if now.name != info.name {
                        // It is about another cluster now.
                        continue;
                    }
                    now
                }
                None => match self.stays(info, &reading.now, status) {
                    Stays::Yes => info.clone(),
                    Stays::WhilePending => {
                        pending.push(Generated { info: info.clone(), news_since: None });
                        continue;
                    }
                    Stays::No => continue,
                },
            };
            if taken.contains_key(&info.name) || self.written.contains(&object) {
                continue;
            }
            taken.insert(info.name.clone(), self.entry_name(&info));
            stay.push(Generated { info, news_since: None });
        }
        (stay, pending)
    }

    /// Whether a recorded target stays although no selection contains its object.
    fn stays(&self, info: &TargetInfo, now: &Now, status: &PipelineStatus) -> Stays {
        let own = self.found.iter().find(|found| info.entry == Entry::Generated(found.planned.from));
        match own {
            None => Stays::No,
            Some(own) if own.selecting.incomplete.is_some() => Stays::Yes,
            Some(_) => {
                let settled = self.status_of(info).and_then(|target| target.settled.as_ref());
                stays(&info.log_subject().to_string(), now, settled, status)
            }
        }
    }

    fn status_of(&self, info: &TargetInfo) -> Option<&TargetStatus> {
        let targets = self.before.into_iter().flat_map(|before| &before.targets);
        targets.into_iter().find(|target| target.generated.as_ref().is_some_and(|generated| generated.name == info.name))
    }

    /// Returns the objects that are not recorded yet, by name, and names that two objects have.
    fn unrecorded(
        &self,
        known: &HashSet<ClusterAppRef>,
        taken: &mut BTreeMap<String, String>,
    ) -> (Vec<Generated>, Vec<(String, String)>) {
        let (mut all, mut problems) = (BTreeMap::new(), Vec::new());
        for found in self.found {
            if let Some((reason, message)) = &found.selecting.incomplete {
                if !reason.is_filling() || *reason == Reason::CacheSlow {
                    let message = format!("{}: {message}", self.entry_of(found.planned.from));
                    problems.push((reason.as_str().to_owned(), message));
                }
                continue;
            }
            for group in &found.selecting.missing_groups {
                let message = format!("{}: ClusterGroup {group} does not exist", self.entry_of(found.planned.from));
                problems.push(("ClusterGroupNotFound".to_owned(), message));
            }
            for one in &found.selecting.objects {
                let info = self.info(found, one);
                let entry = self.entry_of(found.planned.from);
                if self.written.contains(&application(&info)) {
                    continue;
                }
                match taken.get(&info.name) {
                    Some(other) if *other != entry => {
                        let message = format!("{entry} and {other} both have the target {}; exclude it from one", info.name);
                        problems.push((DUPLICATE_TARGET.to_owned(), message));
                        continue;
                    }
                    Some(_) => continue,
                    None => {}
                }
                let is_known = known.contains(&application(&info));
                let news_since = self.is_news(found, one, is_known).then(|| one.seq.saturating_sub(1));
                taken.insert(info.name.clone(), entry);
                all.insert(info.name.clone(), Generated { info, news_since });
            }
        }
        (all.into_values().collect(), problems)
    }

    /// Whether an object that is not recorded here is news. `is_known`: it is recorded in another environment, or under another name.
    fn is_news(&self, found: &Found<'_>, one: &Selected, is_known: bool) -> bool {
        // What the entry selected before is not known.
        let Some(before) = self.same(found) else { return self.is_absent && !is_known };
        match one.joined {
            _ if is_known => false,
            Joined::Created => true,
            Joined::Moved => false,
            Joined::Listed => before.newest.is_none_or(|newest| one.created >= Some(newest)),
        }
    }

    /// Returns what is recorded of an entry that selects the same.
    fn same(&self, found: &Found<'_>) -> Option<&GeneratedFrom> {
        self.before?.generated.iter().find(|of| of.selection == found.planned.selection_hash)
    }

    /// Returns what to record of the entries.
    fn outcome(&self) -> OfEnvironment {
        let mut of = OfEnvironment { is_complete: true, ..OfEnvironment::default() };
        for found in self.found {
            let from = u32::try_from(found.planned.from).unwrap_or(u32::MAX);
            let before = self.same(found);
            if let Some((reason, _)) = &found.selecting.incomplete {
                of.is_complete = false;
                of.is_pending |= *reason == Reason::CacheNotSynced;
                of.entries.extend(before.map(|before| GeneratedFrom { from, ..before.clone() }));
                continue;
            }
            of.is_complete &= found.selecting.missing_groups.is_empty();
            let newest = before.and_then(|before| before.newest).max(found.selecting.newest);
            let source = found.selecting.source.clone();
            let selection = found.planned.selection_hash.clone();
            of.entries.push(GeneratedFrom { from, selection, newest, source });
        }
        of
    }

    /// Returns the entries that select nothing.
    fn empty(&self) -> Vec<String> {
        let empty = self.found.iter().filter(|f| f.selecting.incomplete.is_none() && f.selecting.total == 0);
        empty.map(|found| self.entry_of(found.planned.from)).collect()
    }

    fn entry_of(&self, from: usize) -> String {
        format!("{}/targetsFrom[{from}]", self.name)
    }

    fn entry_name(&self, info: &TargetInfo) -> String {
        match info.entry {
            Entry::Generated(from) => self.entry_of(from),
            Entry::Listed(_) => "targets".to_owned(),
        }
    }

    /// Returns the target of a selected object.
    fn info(&self, found: &Found<'_>, one: &Selected) -> TargetInfo {
        let object = &one.object.object;
        // As the pipeline writes the reference, without a namespace that it does not name.
        let lives = found.planned.cluster_ref.clone();
        let (cluster, about, name) = match (&one.fleet_cluster, &one.bundle) {
            (Some(of), Some(bundle)) if found.planned.is_fleet => {
                let cluster = format!("{}.{}", of.namespace, of.name);
                let name = format!("{}/{cluster}/{bundle}", self.name);
                (cluster, Some(of.reference()), name)
            }
            _ => {
                let lives_in = lives.as_ref().map_or_else(|| self.cluster_name.to_owned(), ClusterRef::full_name);
                let cluster = one.cluster.as_deref().map_or_else(|| lives_in.clone(), plain);
                let about = lives.clone().filter(|_| cluster == lives_in);
                let name = if found.planned.is_fleet {
                    format!("{}/{cluster}/{}", self.name, object.name)
                } else {
                    format!("{}/{cluster}/{}/{}", self.name, object.namespace, object.name)
                };
                (cluster, about, name)
            }
        };
        TargetInfo {
            environment: self.name.to_owned(),
            namespace: object.namespace.clone(),
            cluster,
            cluster_ref: about,
            object_cluster: lives,
            app: AppRef {
                api_version: object.api_version.clone(),
                kind: object.kind.clone(),
                name: object.name.clone(),
                revision_path: one.object.revision_path.clone(),
            },
            source: found.selecting.source.clone(),
            environment_index: self.index,
            entry: Entry::Generated(found.planned.from),
            cluster_path: one.object.cluster_path.clone(),
            record: one.object.record.clone(),
            name,
        }
    }
}

#[cfg(test)]
mod tests;
