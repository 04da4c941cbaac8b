//! One reconcile of a set: gathers, decides, and has the calls made.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use kube::ResourceExt as _;

use super::calls::{Done, act, write_status};
use super::decide::{Decided, Existence, Known, Refusal, decide, identity, is_desired};
use super::expand::{Expanded, Found, Settings, expand, spec_of};
use super::made::Made;
use super::plan::{Planned, PlannedGenerator, as_object, plan};
use super::status::{self, Outcome, record_of};
use super::{Context, Error};
use relaybook_api::pipeline::Baseline;
use relaybook_api::pipeline_set::{MAX_PIPELINES, SourceRef, WrongPipeline};
use relaybook_api::{Backoff, PipelineSet, Status, now};
use relaybook_core::pipeline::plan::Refused;
use relaybook_core::reading::{Follower, Now, Reason};
use relaybook_runtime::tenure::Tenure;

/// The pauses before a refused pipeline is tried again.
const PAUSES: Backoff = Backoff { first: Duration::from_mins(1), longest: Duration::from_mins(16) };

/// What a process remembers of a set between reconciles.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Names of pipelines that existed.
    existed: HashSet<String>,
    /// By name: what the API server refused.
    refused: HashMap<String, Refusal>,
    /// By name: what was applied, and what came of it, if that is not as desired.
    applied: HashMap<String, (String, Made)>,
    /// Until when nothing is reconciled, because the namespace causes more writes than its share.
    pub rests_until: Option<Instant>,
}

/// What a reconcile has changed.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// Pipelines as the API server answered, by name.
    pub written: BTreeMap<String, Made>,
    /// Pipelines that the watch did not deliver, by name.
    pub found: BTreeMap<String, Made>,
    /// The set with its new status.
    pub set: Option<PipelineSet>,
    /// When to reconcile again without an event.
    pub again: Option<Instant>,
}

/// Requests the sources of a set from the caches. Standby replicas do only this. Returns what the set requests, or why it is refused.
pub(super) fn warm(context: &Context, set: &PipelineSet) -> Result<Planned, Refused> {
    let namespace = set.namespace().unwrap_or_default();
    let planned = plan(&set.spec, &namespace, context.options.cross_namespace_refs);
    let generators = planned.iter().flat_map(|planned| &planned.generators);
    let selections = generators.map(|generator| generator.selection.clone()).collect();
    context.caches.select(&Follower::set(namespace, set.name_any()), selections);
    planned
}

/// Reconciles a set as the leader. What was done counts also after an error.
pub(super) async fn reconcile(
    context: &Context,
    tenure: &Tenure,
    set: &PipelineSet,
    made: &BTreeMap<String, Made>,
    memory: &mut Memory,
) -> (Changed, Result<(), Error>) {
    let mut changed = Changed::default();
    let result = match warm(context, set) {
        Ok(planned) => make(context, tenure, set, &planned, made, memory, &mut changed).await,
        Err(refused) => {
            let written = write_status(context, tenure, set, status::next(set, Err(&refused), now())).await;
            written.map(|set| changed.set = set)
        }
    };
    (changed, result)
}

async fn make(
    context: &Context,
    tenure: &Tenure,
    set: &PipelineSet,
    planned: &Planned,
    made: &BTreeMap<String, Made>,
    memory: &mut Memory,
    changed: &mut Changed,
) -> Result<(), Error> {
    memory.existed.extend(made.keys().cloned());
    let generators = planned.generators.iter();
    let found = generators.map(|generator| Found {
        generator,
        sources: context.caches.sources(&generator.selection, MAX_PIPELINES),
        before: record_of(set, &generator.hash),
    });
    let found: Vec<Found<'_>> = found.collect();
    // Thousands of templates can take seconds.
    let (mut expanded, decided) = tokio::task::block_in_place(|| computed(context, set, planned, &found, made, memory));
    let (is_cut, leaving, mut waiting) = (decided.is_cut, decided.leaving, decided.waiting);
    let spec = |desired: &_| spec_of(set, planned, &found, desired);
    let mut pipelines = made.values().filter(|made| !made.is_deleting).count();
    let mut failed = None;
    for done in act(context, tenure, set, decided.actions, spec).await {
        match done {
            Ok(Done::Applied { name, is_new, baseline, made }) => {
                pipelines += usize::from(is_new);
                memory.applied(set, &expanded, &name, &made, baseline);
                changed.written.insert(name, *made);
            }
            Ok(Done::Found(name, made)) => drop(changed.found.insert(name, *made)),
            Ok(Done::Deleted(name)) => {
                pipelines = pipelines.saturating_sub(1);
                // If its source appears again, it is another one.
                memory.existed.remove(&name);
            }
            Ok(Done::Refused { name, what, wrong }) => {
                expanded.wrong.push(wrong.clone());
                waiting.insert(name.clone());
                memory.refuse(name, what, wrong);
            }
            Err(error) => keep(&mut failed, error),
        }
    }
    memory.retain(&waiting, |name| expanded.desired.contains_key(name) || made.contains_key(name));
    let is_recorded = !is_cut && failed.is_none();
    let (incomplete, wrong) = (expanded.incomplete.as_slice(), expanded.wrong);
    let outcome = Outcome { pipelines, leaving, wrong, incomplete, found: is_recorded.then_some(&found[..]) };
    let is_filling = |found: &Found<'_>| matches!(found.sources.incomplete, Some((Reason::CacheNotSynced, _)));
    if !found.iter().any(is_filling) {
        match write_status(context, tenure, set, status::next(set, Ok(outcome), now())).await {
            Ok(set) => changed.set = set,
            Err(error) => keep(&mut failed, error),
        }
    }
    let soon = is_cut.then(Instant::now);
    changed.again = soon.into_iter().chain(memory.refused.values().map(|refusal| refusal.again)).min();
    failed.map_or(Ok(()), Err)
}

/// Keeps the last error, or a timeout: it shows that the writes of the namespace hang.
fn keep(failed: &mut Option<Error>, error: Error) {
    if !failed.as_ref().is_some_and(Error::is_timeout) {
        *failed = Some(error);
    }
}

/// Computes what to do.
fn computed(
    context: &Context,
    set: &PipelineSet,
    planned: &Planned,
    found: &[Found<'_>],
    made: &BTreeMap<String, Made>,
    memory: &Memory,
) -> (Expanded, Decided) {
    let settings = Settings {
        cluster_name: &context.options.cluster_name,
        cross_namespace_refs: context.options.cross_namespace_refs,
        shard_label: &context.lease.sharding().label,
    };
    let mut expanded = expand(set, planned, found, settings, |name| made.get(name).map(|made| made.source.clone()));
    let known = Known {
        made,
        existed: &memory.existed,
        refused: &memory.refused,
        applied: &memory.applied,
        uid: set.metadata.uid.as_deref().unwrap_or_default(),
        deletion: set.spec.deletion.unwrap_or_default(),
        now: Instant::now(),
    };
    let decided = decide(&mut expanded, &known, |source| existence(context, set, planned, source));
    (expanded, decided)
}

/// Returns what is known of the object of a source that was not in the lists of the generators.
fn existence(context: &Context, set: &PipelineSet, planned: &Planned, source: &SourceRef) -> Existence {
    let object = as_object(source, &set.namespace().unwrap_or_default());
    let mut covering = planned.generators.iter().filter(|generator| generator.covers(source)).peekable();
    if covering.peek().is_none() {
        return Existence::NotSelected;
    }
    // The lists were read before. An object that is selected since is reconciled again.
    if covering.any(|generator: &PlannedGenerator| context.caches.is_source(&generator.selection, &object)) {
        return Existence::Unknown;
    }
    match context.caches.read(&object, u64::MAX).now {
        Now::Known(seen) if seen.status == Status::NotFound => Existence::Gone,
        Now::Known(_) => Existence::NotSelected,
        Now::Unknown { .. } => Existence::Unknown,
    }
}

impl Memory {
    /// Notes what came of an apply.
    fn applied(&mut self, set: &PipelineSet, expanded: &Expanded, name: &str, made: &Made, baseline: Option<Baseline>) {
        let of = (set.metadata.uid.as_deref().unwrap_or_default(), set.spec.deletion.unwrap_or_default());
        match expanded.desired.get(name).filter(|desired| !is_desired(made, desired, baseline, of)) {
            Some(desired) => drop(self.applied.insert(name.to_owned(), (identity(desired, baseline, of.1), made.shape()))),
            None => drop(self.applied.remove(name)),
        }
    }

    fn refuse(&mut self, name: String, what: String, wrong: WrongPipeline) {
        let known = self.refused.get(&name).filter(|refusal| refusal.what == what);
        let mut count = known.map_or(0, |refusal| refusal.count);
        let again = Instant::now() + PAUSES.next(&mut count);
        self.refused.insert(name, Refusal { what, wrong, again, count });
    }

    /// Forgets all pipelines that are not needed, and all refusals that do not wait.
    fn retain(&mut self, waiting: &HashSet<String>, is_needed: impl Fn(&str) -> bool) {
        self.existed.retain(|name| is_needed(name));
        self.applied.retain(|name, _| is_needed(name));
        self.refused.retain(|name, _| waiting.contains(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_runtime::call::CallError;

    #[test]
    fn a_timeout_is_not_hidden_by_a_later_error() {
        let errors = [CallError::NotHeld, CallError::Timeout, CallError::NotHeld].map(Error::Status);
        let mut failed = None;
        for (error, is_timeout) in errors.into_iter().zip([false, true, true]) {
            keep(&mut failed, error);
            assert_eq!(failed.as_ref().map(Error::is_timeout), Some(is_timeout));
        }
    }
}
