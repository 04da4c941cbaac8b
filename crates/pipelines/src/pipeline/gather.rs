//! Reads what is known about a pipeline: its targets, listed or generated, and their clusters.
//!
//! In: the pipeline; the caches. Out: [`Gathered`], values only. It also tells the caches which objects and selections the pipeline needs.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use super::Context;
use super::write::tracker::WriteTracker;
use relaybook_api::pipeline::Environment;
use relaybook_api::pipeline::target::{Entry, TargetInfo, targets_of};
use relaybook_api::values::git;
use relaybook_api::values::refs::{ClusterAppRef, ClusterRef};
use relaybook_api::{ObjectName, Pipeline};
use relaybook_core::pipeline::generate;
use relaybook_core::pipeline::generate::{AllGenerated, Found};
use relaybook_core::pipeline::plan::{Planned, PlannedSelection, Refused, plan, unwatched_layers};
use relaybook_core::pipeline::status::similar::Place;
use relaybook_core::pipeline::status::target::source;
use relaybook_core::pipeline::status::{ClusterReading, EnvironmentPlan, Gathered, check_in};
use relaybook_core::reading::{Follower, Reachability, Reading};

/// Returns the readings of all targets and clusters, or why the spec is refused.
pub(super) fn gather(
    ctx: &Context,
    key: &Follower,
    base: &Pipeline,
    writes: &mut WriteTracker,
) -> Result<Gathered, Refused> {
    let options = &ctx.options;
    let planned = plan(&base.spec, &key.namespace, &options.cluster_name, options.cross_namespace_refs);
    let unwatched = unwatched_layers(&base.spec, &key.namespace, &options.watch_namespaces);
    let (planned, refused) = match planned.and_then(|planned| unwatched.map_or(Ok(planned), Err)) {
        Ok(planned) => (planned, None),
        Err(refused) => (Planned::default(), Some(refused)),
    };
    let Planned { targets: listed, selections } = planned;
    if !writes.has_declared(base.metadata.generation) {
        ctx.caches.select(key, selections.iter().map(|planned| planned.selection.clone()).collect());
    }
    if let Some(refused) = refused {
        declare(ctx, key, base, writes, &[], 0, &HashMap::new());
        return Err(refused);
    }
    let mut gathered =
        Gathered { environments: plans(base), repository: git::recorded(base.spec.repository()), ..Gathered::default() };
    let planned = if selections.is_empty() {
        declare(ctx, key, base, writes, &listed, 0, &HashMap::new());
        listed
    } else {
        generated(ctx, key, base, writes, listed, &selections, &mut gathered)
    };
    let read = |target: TargetInfo| {
        let reading = read_target(ctx, key, writes, &target);
        (target, reading)
    };
    let clusters: BTreeSet<ClusterRef> = planned.iter().filter_map(|t| t.object_cluster.clone()).collect();
    let reach = |cluster_ref: ClusterRef| {
        let reachability = ctx.caches.reachability(&cluster_ref.seen_from(&key.namespace));
        ClusterReading { cluster_ref, reachability, is_reported: false }
    };
    let mut clusters: Vec<_> = clusters.into_iter().map(reach).collect();
    clusters.extend(reported(ctx, key, base, &planned, &selections, &clusters, &mut gathered.check_again));
    if base.spec.is_absent_before() {
        // A target that the status has goes on from there.
        gathered.news.extend(planned.iter().map(|target| target.name.clone()));
    }
    let targets = planned.into_iter().map(read).collect::<Vec<_>>();
    let place = Place { namespace: &key.namespace, cross: options.cross_namespace_refs };
    let similar = writes.similar.of(&targets, place, |missing| ctx.caches.similar_to(missing));
    Ok(Gathered { targets, clusters, similar, ..gathered })
}

/// Returns the clusters that generated targets are about, as far as only their agents report. `dialled`: clusters with a connection, which
/// says more.
fn reported(
    ctx: &Context,
    key: &Follower,
    base: &Pipeline,
    targets: &[TargetInfo],
    selections: &[PlannedSelection],
    dialled: &[ClusterReading],
    check_again: &mut Option<Duration>,
) -> Vec<ClusterReading> {
    let mut limits: BTreeMap<&ClusterRef, Option<Duration>> = BTreeMap::new();
    for target in targets.iter().filter(|target| target.cluster_ref != target.object_cluster) {
        let Some(cluster) = &target.cluster_ref else { continue };
        let is_of =
            |s: &&PlannedSelection| s.environment == target.environment_index && target.entry == Entry::Generated(s.from);
        let limit = selections.iter().find(is_of).and_then(|selection| selection.offline_after);
        let known = limits.entry(cluster).or_insert(limit);
        *known = (*known).into_iter().chain(limit).min();
    }
    let name = |cluster: &ClusterRef| cluster.seen_from(&key.namespace).full_name();
    limits.retain(|cluster, _| dialled.iter().all(|dialled| name(&dialled.cluster_ref) != name(cluster)));
    let known = base.status.as_ref().map(|status| status.clusters.as_slice()).unwrap_or_default();
    let read = |(cluster, limit): (&ClusterRef, Option<Duration>)| {
        let place = ObjectName::new(cluster.namespace.clone().unwrap_or_default(), &cluster.name);
        let before = known.iter().find(|known| known.cluster_ref == *cluster);
        let check = || check_in::reachability(before, ctx.caches.check_in(&place), limit);
        let (mut reachability, mut next) = check();
        if reachability != Reachability::Online {
            ctx.caches.await_check_in(&place, key);
            // A report can have come before that.
            (reachability, next) = check();
        }
        *check_again = (*check_again).into_iter().chain(next).min();
        ClusterReading { cluster_ref: cluster.clone(), reachability, is_reported: true }
    };
    limits.into_iter().map(read).collect()
}

/// Returns the environments of a pipeline without generated targets.
pub(super) fn plans(base: &Pipeline) -> Vec<EnvironmentPlan> {
    let plan = |environment: &Environment| EnvironmentPlan {
        name: environment.name.clone(),
        is_complete: true,
        ..EnvironmentPlan::default()
    };
    base.spec.environments.iter().map(plan).collect()
}

/// Requests the objects of these targets from the caches, if they were not requested yet.
fn declare(
    ctx: &Context,
    key: &Follower,
    base: &Pipeline,
    writes: &mut WriteTracker,
    targets: &[TargetInfo],
    generated: u64,
    news: &HashMap<String, u64>,
) {
    if writes.has_declared_targets(base.metadata.generation, generated) {
        return;
    }
    let seq = ctx.caches.need(key, targets.iter().map(|t| source(t).seen_from(&key.namespace)).collect());
    let recorded = recorded(base);
    writes.declare(base.metadata.generation, targets, generated, news, seq, |app| recorded.contains(app));
}

/// Returns the objects whose state the status has.
pub(super) fn recorded(base: &Pipeline) -> HashSet<&ClusterAppRef> {
    let environments = base.status.iter().flat_map(|status| &status.environments);
    let targets = environments.flat_map(|environment| &environment.targets);
    targets.filter(|target| target.settled.is_some()).map(|target| &target.cluster_app_ref).collect()
}

/// Returns the reading of a target: its observations since the last reconcile.
fn read_target(ctx: &Context, key: &Follower, writes: &WriteTracker, target: &TargetInfo) -> Reading {
    let app = source(target);
    let after = writes.after(&target.name, &app);
    ctx.caches.read(&app.seen_from(&key.namespace), after)
}

/// Returns all targets: those that the spec lists, and those that its selections contain.
fn generated(
    ctx: &Context,
    key: &Follower,
    base: &Pipeline,
    writes: &mut WriteTracker,
    listed: Vec<TargetInfo>,
    selections: &[PlannedSelection],
    gathered: &mut Gathered,
) -> Vec<TargetInfo> {
    let recorded = targets_of(base, &ctx.options.cluster_name).into_iter();
    let recorded: Vec<_> = recorded.filter(|info| matches!(info.entry, Entry::Generated(_))).collect();
    let found =
        |planned: &'_ PlannedSelection| ctx.caches.selected(&planned.selection, &generate::names(&recorded, planned));
    let found = |planned| Found { planned, selecting: found(planned) };
    let found: Vec<Found<'_>> = selections.iter().map(found).collect();
    let read = |info: TargetInfo| {
        let reading = ctx.caches.read(&source(&info).seen_from(&key.namespace), u64::MAX);
        (info, reading)
    };
    let recorded: Vec<_> = recorded.into_iter().map(read).collect();
    let all = generate::generate(base, &ctx.options.cluster_name, &listed, &found, &recorded);
    let (targets, news) = arrange(all, listed, gathered);
    let mut hasher = DefaultHasher::new();
    for target in &targets {
        (&target.name, source(target)).hash(&mut hasher);
    }
    declare(ctx, key, base, writes, &targets, hasher.finish(), &news);
    targets
}

/// Returns all targets in spec order, and for those that are news the sequence number from which on their observations count. Puts the rest
/// into `gathered`. Pure.
pub(super) fn arrange(
    all: AllGenerated,
    listed: Vec<TargetInfo>,
    gathered: &mut Gathered,
) -> (Vec<TargetInfo>, HashMap<String, u64>) {
    (gathered.problems, gathered.empty) = (all.problems, all.empty);
    let mut targets = Vec::new();
    let mut listed = listed.into_iter().peekable();
    let mut news = HashMap::new();
    for (index, (of, plan)) in all.environments.into_iter().zip(&mut gathered.environments).enumerate() {
        (plan.is_complete, plan.is_pending, plan.generated) = (of.is_complete, of.is_pending, Some(of.entries));
        while let Some(info) = listed.next_if(|info| info.environment_index == index) {
            targets.push(info);
        }
        for target in of.targets {
            if let Some(since) = target.news_since {
                gathered.news.insert(target.info.name.clone());
                news.insert(target.info.name.clone(), since);
            }
            targets.push(target.info);
        }
    }
    (targets, news)
}
