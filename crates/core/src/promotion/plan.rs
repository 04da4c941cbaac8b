//! Pure: what is promoted to an environment. The promotion controller asks what to do, and the pipeline controller what to show.

use kube_core::ResourceExt;

use super::commits::{Commits, Known};
use super::names::{Order, order, order_of_mirror};
use super::pair::Pair;
use super::policy::policy;
use super::text::{not_whole, shown};
use relaybook_api::promotion::Phase;
use relaybook_api::{Pipeline, Promotion};

/// Minimum length of the id of a commit. Bitbucket Cloud abbreviates ids to 12 digits.
pub(super) const HASH: usize = 12;

/// What can be promoted to an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indication {
    /// The environment before, which runs the revision.
    pub from: String,
    /// The revision.
    pub revision: String,
    /// The revision at which the environment was last ready.
    pub previous: Option<String>,
    /// Serial of the change with which the environment before came to run the revision. 0 for a baseline.
    pub occasion: i64,
}

/// What has to be promoted to an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Every target runs the revision or tries to, or nothing is promoted to this environment.
    UpToDate,
    /// The state of one of the two environments is not known; with the reason.
    NotObserved(String),
    /// The revision of the environment before is not whole; with a message.
    NotSettable(String),
    /// The environment before is not ready; with a message.
    EnvironmentNotReady(String),
    /// The environment before runs a commit that a promotion made; with its name.
    OwnCommit(String),
    /// A promotion for this occasion, or for a later one, exists or existed; with its name.
    Exists(String),
    /// The environment before ran the revision when it was first seen.
    Baseline(Indication),
    /// Promotions to the environment are suspended.
    Suspended(Indication),
    /// The promotion has to be created.
    Create(Indication),
}

/// Names the targets of the environment with this index whose objects do not exist. `None`: there are none, or that is not known.
#[must_use]
pub fn missing(pipeline: &Pipeline, index: usize) -> Option<String> {
    Pair::new(pipeline, index)?.missing().ok().flatten()
}

/// Returns what has to be promoted to the environment with this index, if nothing is known of other pipelines. `promotions`: those of this
/// pipeline.
#[must_use]
pub fn plan(pipeline: &Pipeline, index: usize, promotions: &[&Promotion]) -> Plan {
    plan_beside(pipeline, index, promotions, &Commits::default())
}

/// Returns what has to be promoted to the environment with this index. `promotions`: those of this pipeline. `commits`: those of the
/// promotions of all pipelines.
pub(super) fn plan_beside(pipeline: &Pipeline, index: usize, promotions: &[&Promotion], commits: &Commits) -> Plan {
    let Some((pair, policy)) = Pair::new(pipeline, index).zip(policy(&pipeline.spec, index)) else {
        return Plan::UpToDate;
    };
    if let Some(why) = pair.not_observed() {
        return Plan::NotObserved(why);
    }
    let Some(source) = pair.ready() else {
        return Plan::EnvironmentNotReady(not_ready(&pair));
    };
    let (revision, from) = (&source.revision, &pair.from.name);
    if revision.is_empty() {
        return Plan::NotObserved(format!("{} reports no revision that can be promoted", shown(from)));
    }
    if pair.tries(revision) {
        return Plan::UpToDate;
    }
    if let Some(why) = not_whole(revision) {
        return Plan::NotSettable(why);
    }
    let newest = || newest(promotions, &pair.to.name).map(|newest| newest.spec.revision.as_str());
    if is_repeated(&pair, revision, newest, (promotions, commits)) {
        return Plan::OwnCommit(from.clone());
    }
    let occasion = pair.reached();
    if let Some(name) = existing(&pair, promotions, occasion) {
        return Plan::Exists(name);
    }
    let previous = pair.last().map(str::to_owned);
    let indication = Indication { from: from.clone(), revision: revision.clone(), previous, occasion };
    match occasion {
        0 => Plan::Baseline(indication),
        _ if policy.suspend => Plan::Suspended(indication),
        _ => Plan::Create(indication),
    }
}

/// Whether a revision is a commit that a promotion of the pipeline pushed, or with which its pull request was merged. If two environments read
/// one repository, each promotion is a new revision of the earlier one. It must not be promoted again.
fn is_own_commit(promotions: &[&Promotion], revision: &str) -> bool {
    let is_in = |id: &str| id.len() >= HASH && revision.contains(id);
    promotions.iter().filter_map(|promotion| promotion.status.as_ref()).any(|status| {
        let pushed = status.commit.as_ref().map(|commit| commit.id.as_str());
        let merged = status.pull_request.as_ref().and_then(|request| request.merge_commit.as_deref());
        pushed.into_iter().chain(merged).any(is_in)
    })
}

/// Whether a revision is a commit of a promotion that must not be promoted again. It is one of this pipeline, or it contains no more of people
/// than what the environment has or gets. `newest`: the revision that was promoted last.
pub(super) fn is_repeated<'a>(
    pair: &Pair<'_>,
    revision: &str,
    newest: impl FnOnce() -> Option<&'a str>,
    (promotions, commits): Known<'_>,
) -> bool {
    if is_own_commit(promotions, revision) {
        return true;
    }
    let root = commits.root(revision);
    commits.made(revision) && (pair.tries(&root) || newest().is_some_and(|newest| commits.root(newest) == root))
}

/// Returns the message for an environment that is not ready.
pub(super) fn not_ready(pair: &Pair<'_>) -> String {
    format!("waiting for all targets of {} to be ready at one revision", shown(&pair.from.name))
}

/// Returns the newest promotion to an environment: that with the greatest order.
#[must_use]
pub fn newest<'a>(promotions: &[&'a Promotion], environment: &str) -> Option<&'a Promotion> {
    counted(promotions, environment).max_by_key(|promotion| order(&promotion.spec))
}

/// Returns the promotions to an environment that count in the order. One that is deleted before its first step never gets one. A
/// finalizer can keep such an object, and it must not hold up the others.
pub(super) fn counted<'a, 'b>(promotions: &'b [&'a Promotion], environment: &'b str) -> impl Iterator<Item = &'a Promotion> {
    let is_in_order = |promotion: &Promotion| counts(promotion) && !(is_new(promotion) && is_terminating(promotion));
    let all = promotions.iter().copied();
    all.filter(move |promotion| promotion.spec.environment == environment && is_in_order(promotion))
}

/// Whether a promotion counts in the order. One that the controller rejected has no step, and does not count.
#[must_use]
pub fn counts(promotion: &Promotion) -> bool {
    promotion.status.as_ref().is_none_or(|status| status.step > 0 || status.phase.is_none())
}

/// Whether a promotion has its first step, or was rejected. Otherwise its phase is not known yet.
#[must_use]
pub fn is_new(promotion: &Promotion) -> bool {
    promotion.status.as_ref().is_none_or(|status| status.phase.is_none())
}

/// Whether nothing more happens to a promotion by itself.
#[must_use]
pub fn is_ended(promotion: &Promotion) -> bool {
    let phase = promotion.status.as_ref().and_then(|status| status.phase);
    phase.is_some_and(Phase::is_ended)
}

/// Whether a promotion is being deleted. Nothing is written to it any more.
#[must_use]
pub fn is_terminating(promotion: &Promotion) -> bool {
    promotion.metadata.deletion_timestamp.is_some()
}

/// Returns the name of a promotion of this occasion, or of a later one. The promotion in the status of the pipeline counts, too: it may
/// have been deleted, and it is not created again.
fn existing(pair: &Pair<'_>, promotions: &[&Promotion], occasion: i64) -> Option<String> {
    let first: Order = (occasion, 0);
    let found = newest(promotions, &pair.to.name).filter(|newest| order(&newest.spec) >= first);
    let found = found.map(ResourceExt::name_any);
    let logged = || pair.mirror().filter(|mirror| order_of_mirror(mirror) >= first).map(|mirror| mirror.name.clone());
    (occasion > 0).then(|| found.or_else(logged)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promotion::testing::{
        PROD, STAGING, automatic, environment, mirror, new, pipeline, promotion, rejected, spec, with, with_policy,
    };
    use relaybook_api::Status;
    use relaybook_api::promotion::{PromotionCommit, PromotionPullRequest};

    fn indication(occasion: i64) -> Indication {
        Indication { from: "staging".into(), revision: "2".into(), previous: Some("1".into()), occasion }
    }

    #[test]
    fn a_promotion_is_created_once_for_each_occasion() {
        let name = |occasion, request| crate::promotion::names::name(&spec(occasion, request));
        let ended = promotion((20, 0), &[Phase::Requested, Phase::Finished], "");
        let asked = promotion((20, 1), &[Phase::Requested, Phase::Failed], "");
        let before = promotion((10, 3), &[Phase::Requested, Phase::Finished], "");
        let later = promotion((30, 0), &[Phase::Requested], "");
        let (fresh, refused) = (new(spec(20, 0)), rejected(20, 0));
        let mut void = new(spec(9_000, 0));
        void.metadata.deletion_timestamp.clone_from(&fresh.metadata.creation_timestamp);
        let deleted = with(PROD, |prod| prod.promotion = Some(mirror(&ended, 2)));
        let earlier = with(PROD, |prod| prod.promotion = Some(mirror(&before, 2)));
        let baseline = with(STAGING, |staging| staging.settled.as_mut().unwrap().reached = 0);
        let away = with(STAGING, |staging| staging.settled.as_mut().unwrap().status = Status::InProgress);
        let unseen = with(PROD, |prod| prod.targets[0].status = Status::Unknown);
        let tries = with(PROD, |prod| prod.targets[0].attempted_revision = "2".into());
        let absent = with(PROD, |prod| {
            let target = &mut prod.targets[0];
            (target.status, target.ready, target.settled) = (Status::NotFound, false, None);
            (target.revision, target.attempted_revision) = (String::new(), String::new());
        });
        let without = with(STAGING, |staging| {
            let settled = staging.settled.as_mut().unwrap();
            (settled.revision, settled.current) = (String::new(), Some(String::new()));
        });
        let cut = relaybook_api::values::revision::cut("1.2.3-".repeat(80));
        let runs = |revision: &str| with(STAGING, |staging| *staging = environment("staging", revision, 20));
        let mut same = runs(&cut);
        same.status.as_mut().unwrap().environments[PROD] = environment("prod", &cut, 0);
        let suspended = with_policy(|policy| policy.suspend = true);
        let off = with_policy(|policy| policy.strategy = None);
        let not_ready = Plan::EnvironmentNotReady("waiting for all targets of staging to be ready at one revision".into());
        let unknown = |why: &str| Plan::NotObserved(why.into());
        for (what, pipeline, promotions, expected) in vec![
            ("indicated", pipeline(), vec![], Plan::Create(indication(20))),
            ("one of an earlier occasion", pipeline(), vec![&before], Plan::Create(indication(20))),
            ("the status shows an earlier occasion", earlier, vec![], Plan::Create(indication(20))),
            ("it exists", pipeline(), vec![&before, &ended], Plan::Exists(name(20, 0))),
            ("a person was first", pipeline(), vec![&asked], Plan::Exists(name(20, 1))),
            ("a later one exists", pipeline(), vec![&ended, &later], Plan::Exists(name(30, 0))),
            ("it is new", pipeline(), vec![&fresh], Plan::Exists(name(20, 0))),
            ("it was rejected", pipeline(), vec![&refused], Plan::Create(indication(20))),
            ("a finalizer keeps a forged one", pipeline(), vec![&void], Plan::Create(indication(20))),
            ("it was deleted", deleted, vec![], Plan::Exists(name(20, 0))),
            ("at first sight", baseline.clone(), vec![], Plan::Baseline(indication(0))),
            ("at first sight, after an earlier one", baseline, vec![&ended], Plan::Baseline(indication(0))),
            ("not ready", away, vec![], not_ready),
            ("not observed", unseen, vec![], unknown("a target of prod cannot be observed: its state is unknown")),
            ("tried", tries, vec![], Plan::UpToDate),
            ("known to be absent", absent, vec![], Plan::Create(indication(20))),
            ("no revision", without, vec![], unknown("staging reports no revision that can be promoted")),
            ("a cut revision", runs(&cut), vec![], Plan::NotSettable(not_whole(&cut).unwrap())),
            ("a long revision", runs(&"1".repeat(257)), vec![], Plan::NotSettable(not_whole(&"1".repeat(257)).unwrap())),
            ("a cut revision that runs", same, vec![], Plan::UpToDate),
            ("suspended", suspended.clone(), vec![], Plan::Suspended(indication(20))),
            ("suspended after the start", suspended, vec![&ended], Plan::Exists(name(20, 0))),
            ("no strategy", off, vec![], Plan::UpToDate),
        ] {
            assert_eq!(plan(&pipeline, PROD, &promotions), expected, "{what}");
        }
        assert_eq!(plan(&pipeline(), STAGING, &[]), Plan::UpToDate);
        assert_eq!(plan(&pipeline(), 0, &[]), Plan::UpToDate);
    }

    #[test]
    fn a_commit_of_a_promotion_is_not_promoted_again() {
        let (own, merged, other) = ("1f2e".repeat(10), "9a8b".repeat(10), "5c6d".repeat(10));
        let mut made = promotion((10, 0), &[Phase::Requested, Phase::Finished], "");
        let status = made.status.as_mut().unwrap();
        status.commit = Some(PromotionCommit { id: own.clone(), ..PromotionCommit::default() });
        let merge_commit = Some(merged.clone());
        status.pull_request = Some(PromotionPullRequest { merge_commit, ..PromotionPullRequest::default() });
        let mut of_staging = made.clone();
        of_staging.spec.environment = "staging".into();
        let runs = |revision: &str| with(STAGING, |staging| *staging = environment("staging", revision, 20));
        let (tag, branch) = (format!("v2@sha1:{own}"), format!("main@sha1:{merged}"));
        for (what, revision, promotions, is_own) in [
            ("the commit", own.as_str(), vec![&made], true),
            ("the commit with a tag", &tag, vec![&made], true),
            ("the commit of the merge", &branch, vec![&made], true),
            ("one to another environment", &own, vec![&of_staging], true),
            ("a commit of a person", &other, vec![&made], false),
            ("the first digits of it", &own[..12], vec![&made], false),
            ("the promotion is not known any more", &own, vec![], false),
        ] {
            let found = plan(&runs(revision), PROD, &promotions);
            assert_eq!(found == Plan::OwnCommit("staging".into()), is_own, "{what}: {found:?}");
        }
        let short = "1f2e3d4";
        made.status.as_mut().unwrap().commit = Some(PromotionCommit { id: short.into(), ..PromotionCommit::default() });
        assert!(!is_own_commit(&[&made], &format!("v-{short}")), "a short id can be a part of other revisions");
    }

    #[test]
    fn a_commit_of_another_pipeline_is_promoted_only_with_a_commit_of_a_person() {
        let [of_person, of_other, above, unknown] = ["1f2e", "9a8b", "5c6d", "3e3f"].map(|part| part.repeat(10));
        let mut commits = Commits::default();
        for (id, base) in [(&of_other, &of_person), (&above, &of_other)] {
            let mut other = promotion((10, 0), &[Phase::Requested, Phase::Finished], "");
            let commit = PromotionCommit { id: id.clone(), base: base.clone(), branch: "main".into() };
            other.status.as_mut().unwrap().commit = Some(commit);
            commits.put(&other);
        }
        let before = |revision: &str| {
            let mut before = promotion((10, 0), &[Phase::Requested, Phase::Merged], "");
            before.spec.revision = format!("main-{revision}");
            before
        };
        let runs = |from: &str, to: &str| {
            with(STAGING, |staging| *staging = environment("staging", &format!("main-{from}"), 20))
                .status
                .map(|mut status| {
                    status.environments[PROD] = environment("prod", &format!("main-{to}"), 0);
                    Pipeline { status: Some(status), ..pipeline() }
                })
                .unwrap()
        };
        for (what, from, to, promoted, is_repeated) in [
            ("prod runs what is below", &above, &of_person, None, true),
            ("what is below was promoted last", &above, &unknown, Some(&of_person), true),
            ("another one above the same was promoted last", &above, &unknown, Some(&of_other), true),
            ("something else was promoted last", &above, &unknown, Some(&unknown), false),
            ("nothing was promoted", &above, &unknown, None, false),
            ("a commit of a person", &of_person, &unknown, None, false),
        ] {
            let promoted = promoted.map(|revision| before(revision));
            let promotions: Vec<&Promotion> = promoted.iter().collect();
            let found = plan_beside(&runs(from, to), PROD, &promotions, &commits);
            assert_eq!(found == Plan::OwnCommit("staging".into()), is_repeated, "{what}: {found:?}");
        }
    }

    #[test]
    fn the_first_environment_runs_ahead_of_the_second_only() {
        let mut ahead = with(STAGING, |staging| *staging = crate::promotion::testing::environment("staging", "1", 0));
        assert!(matches!(plan(&ahead, STAGING, &[]), Plan::Create(Indication { occasion: 10, .. })));
        assert_eq!(plan(&ahead, PROD, &[]), Plan::UpToDate);
        ahead.spec.promotion = None;
        ahead.spec.environments[PROD].promotion = Some(automatic());
        assert_eq!(plan(&ahead, STAGING, &[]), Plan::UpToDate, "only prod has a policy");
    }

    #[test]
    fn the_newest_promotion_has_the_greatest_order_of_those_not_rejected() {
        let all = [promotion((20, 1), &[Phase::Finished], ""), promotion((30, 0), &[Phase::Pending], ""), rejected(40, 0)];
        let all: Vec<&Promotion> = all.iter().collect();
        assert_eq!(newest(&all, "prod").map(|p| order(&p.spec)), Some((30, 0)));
        assert_eq!(newest(&all, "staging"), None);
    }
}
