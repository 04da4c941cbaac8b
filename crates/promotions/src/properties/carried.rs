//! Properties of the strategies that Relaybook itself carries out: one commit and one pull request for each promotion, whatever happens.
//!
//! Attempts are killed between any two requests. Their answers are lost, or a request is applied after its attempt has ended. People merge and
//! close pull requests, delete branches, and push to them. No pull request stays open without a promotion that needs it, or that reports it.

use std::collections::BTreeSet;

use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::outside::{Event as Outer, HAPPENS, Happens, is_open};
use super::steps::outside_step;
use super::*;
use relaybook_api::promotion::PromotionStrategy;
use relaybook_core::promotion::testing::{by_commit, by_pull_request};

/// Maximum number of steps of a history: an attempt needs many.
const OUTSIDE_STEPS: usize = 120;
/// Rounds without a write after which a world is idle. Hours pass in every second one, so all retries and timeouts end before.
const QUIET: u32 = 10;
/// Rounds with attempts and without a write, until time passes.
const BUSY: u32 = 4;
fn outside_steps(replicas: usize) -> impl Strategy<Value = Vec<Step>> {
    let (fates, happens) = (prop::sample::select(FATES.to_vec()), prop::sample::select(HAPPENS.to_vec()));
    let one = (0..101_u8, 0..6_usize, 0..8_u8, fates, happens);
    prop::collection::vec(one.prop_map(move |choice| outside_step(choice, replicas)), 0..=OUTSIDE_STEPS)
}

impl World {
    /// A world whose promotions Relaybook itself carries out.
    fn with(strategy: PromotionStrategy, replicas: usize, steps: Vec<Step>) -> Self {
        Self(Mutex::new(Server::new(replicas, Some(strategy), steps)))
    }

    /// The same with attempts. Hours pass until everything is given up. Then an idle world makes no write.
    fn drain_outside(&self) {
        self.step(Step::Outside(Outer::Lead(0)));
        let (mut quiet, mut busy, mut last) = (0, 0, self.server().version);
        for _ in 0..2_000 {
            for step in [Step::Land, Step::MirrorWatch, Step::Mirror, Step::WatchPipelines(0), Step::WatchPromotions(0)] {
                self.step(step);
            }
            self.step(Step::Reconcile(0));
            let mut server = self.server();
            let has_attempts = server.outside.finish();
            if server.version == last && server.flying.is_empty() && !has_attempts {
                server.clock += 6 * 60 * 60;
                busy = 0;
            }
            busy += 1;
            if busy > BUSY {
                server.violations.push("the attempts do not end".to_owned());
            }
            if server.version != last {
                if quiet >= QUIET {
                    server.violations.push("an idle world makes a write".to_owned());
                }
                (quiet, busy, last) = (0, 0, server.version);
                continue;
            }
            quiet += 1;
            if quiet > QUIET + 4 {
                return;
            }
        }
        self.server().violations.push("the writes do not end".to_owned());
    }

    /// Checks what is outside after [`World::drain_outside`].
    fn check_outside(&self) -> Result<(), TestCaseError> {
        let server = self.server();
        let wrong = server.wrong_outside().or_else(|| server.left_open()).or_else(|| server.not_as_outside());
        prop_assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
        let all: Vec<&Promotion> = server.promotions.values().collect();
        for (index, environment) in ENVIRONMENTS.into_iter().enumerate().skip(STAGING) {
            let pair = Pair::new(&server.pipeline, index).unwrap();
            let is_known = pair.not_observed().is_none() && pair.ready().is_some();
            for promotion in all.iter().filter(|promotion| promotion.spec.environment == environment) {
                let Some(status) = &promotion.status else { continue };
                let phase = status.phase.unwrap_or_default();
                prop_assert!(status.withdrawing.is_none(), "it is still being withdrawn: {promotion:?}");
                prop_assert!(phase != Phase::Requested || !is_known, "no attempt is made: {promotion:?}");
                let is_open = !phase.is_ended() && phase != Phase::Pending;
                prop_assert!(!is_open || !pair.runs(&promotion.spec.revision), "it runs: {promotion:?}");
                prop_assert!(phase != Phase::Merged, "the timeout was days ago: {promotion:?}");
            }
        }
        Ok(())
    }
}

/// Runs a history, and checks everything. With two replicas, the forge keeps the pull request of a branch that is deleted.
fn outside_ends_well(strategy: PromotionStrategy, replicas: usize, steps: Vec<Step>) -> Result<World, TestCaseError> {
    let world = World::with(strategy, replicas, steps);
    world.server().outside.forge().keeps_pulls = replicas > 1;
    world.run();
    world.check()?;
    world.drain_outside();
    world.check()?;
    world.check_end()?;
    world.check_outside()?;
    Ok(world)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(HISTORIES))]

    #[test]
    fn each_promotion_has_one_pull_request_and_leaves_none_open(steps in outside_steps(1)) {
        outside_ends_well(by_pull_request(), 1, steps)?;
    }

    #[test]
    fn two_replicas_open_no_pull_request_twice(steps in outside_steps(2)) {
        outside_ends_well(by_pull_request(), 2, steps)?;
    }

    #[test]
    fn each_promotion_has_one_commit(steps in outside_steps(1)) {
        outside_ends_well(by_commit(), 1, steps)?;
    }

    #[test]
    fn two_replicas_push_no_commit_twice(steps in outside_steps(2)) {
        outside_ends_well(by_commit(), 2, steps)?;
    }
}

/// Sends requests of the attempt in progress.
fn requests(world: &World, all: &[Happens]) {
    for happens in all {
        world.step(Step::Outside(Outer::Request(0, *happens)));
    }
}

/// Lets the watches catch up, and reconciles.
fn reconcile(world: &World) {
    for step in [Step::Mirror, Step::WatchPipelines(0), Step::WatchPromotions(0), Step::Reconcile(0)] {
        world.step(step);
    }
}

/// Returns a world in which the request that opens the pull request of a promotion to staging is late, and the promotion is being withdrawn.
fn with_a_late_request(keeps_pulls: bool) -> World {
    let world = World::with(by_pull_request(), 1, Vec::new());
    world.server().outside.forge().keeps_pulls = keeps_pulls;
    world.step(Step::Runs(DEV, 2));
    reconcile(&world);
    requests(&world, &[Happens::Done, Happens::Done, Happens::Done, Happens::Late]);
    world.step(Step::Runs(DEV, 3));
    reconcile(&world);
    world
}

#[test]
fn a_late_request_leaves_no_pull_request_that_can_be_merged() {
    for (what, before, after, keeps_pulls, open, mergeable) in [
        ("before the attempt reads", 0, 9, false, 0, 0),
        ("before the branch is deleted", 2, 7, false, 0, 0),
        ("after the branch was deleted", 3, 6, false, 0, 0),
        ("before the attempt reads, at a forge that keeps it", 0, 9, true, 0, 0),
        ("before the branch is deleted, at a forge that keeps it", 2, 7, true, 1, 0),
        ("after the branch was deleted, at a forge that keeps it", 3, 6, true, 0, 0),
    ] {
        let world = with_a_late_request(keeps_pulls);
        requests(&world, &vec![Happens::Done; before]);
        world.step(Step::Outside(Outer::Land));
        requests(&world, &vec![Happens::Done; after]);
        let server = world.server();
        let forge = server.outside.forge();
        let all = || forge.pulls.iter().filter(|pull| is_open(pull));
        let found = (all().count(), all().filter(|pull| forge.can_be_merged(pull)).count());
        assert_eq!(found, (open, mergeable), "{what}");
    }
}

/// The properties can fail: this forge finds no pull request, and accepts a second one of a branch.
#[test]
fn a_second_pull_request_is_detected_if_the_forge_finds_none() {
    let made = |is_blind: bool| {
        let world = World::with(by_pull_request(), 1, Vec::new());
        world.server().outside.forge().is_blind = is_blind;
        world.step(Step::Runs(DEV, 2));
        reconcile(&world);
        requests(&world, &[Happens::Done, Happens::Done, Happens::Done, Happens::AnswerLost]);
        world.drain_outside();
        let server = world.server();
        let all = server.outside.forge().pulls.len();
        (all, server.wrong_outside().is_some())
    };
    assert_eq!(made(false), (1, false));
    assert_eq!(made(true), (2, true));
}

#[test]
fn a_promotion_goes_through_its_pull_request() {
    let world = World::with(by_pull_request(), 1, Vec::new());
    let phases = || -> Vec<Phase> {
        let server = world.server();
        server.promotions.values().filter_map(|promotion| promotion.status.as_ref()?.phase).collect()
    };
    world.step(Step::Runs(DEV, 2));
    reconcile(&world);
    assert_eq!(phases(), [Phase::Requested]);
    requests(&world, &[Happens::Done; 4]);
    reconcile(&world);
    assert_eq!(phases(), [Phase::Open]);
    world.step(Step::Outside(Outer::Merge(0)));
    world.step(Step::Check(0));
    reconcile(&world);
    requests(&world, &[Happens::Done]);
    reconcile(&world);
    assert_eq!(phases(), [Phase::Merged]);
    world.step(Step::Deploy(STAGING));
    reconcile(&world);
    assert_eq!(phases().last(), Some(&Phase::Finished), "prod comes first");
}

#[test]
fn a_repeated_attempt_finds_what_the_killed_process_did() {
    let world = World::with(by_pull_request(), 1, Vec::new());
    world.step(Step::Runs(DEV, 2));
    for sent in 0..=4 {
        reconcile(&world);
        requests(&world, &vec![Happens::Done; sent]);
        world.step(Step::Restart(0));
        world.server().outside.finish();
    }
    world.drain_outside();
    let server = world.server();
    let forge = server.outside.forge();
    assert_eq!(forge.pulls.len(), 1);
    let status = server.promotions.values().next().and_then(|promotion| promotion.status.clone()).unwrap();
    assert_eq!((status.phase, status.attempts), (Some(Phase::Open), 6));
}

/// Returns each phase with each reason that a status had, in histories that are the same in every run.
fn reached(strategy: &PromotionStrategy) -> BTreeSet<String> {
    let mut runner = TestRunner::deterministic();
    let mut reached = BTreeSet::new();
    for _ in 0..800 {
        let steps = outside_steps(1).new_tree(&mut runner).unwrap().current();
        let world = World::with(strategy.clone(), 1, steps);
        world.run();
        world.drain_outside();
        reached.append(&mut world.server().written);
    }
    reached
}

#[test]
fn the_generated_histories_reach_every_decision() {
    let missing = |strategy: &PromotionStrategy, expected: &[&str]| {
        let reached = reached(strategy);
        let missing: Vec<&str> = expected.iter().copied().filter(|one| !reached.contains(*one)).collect();
        assert!(missing.is_empty(), "{missing:?} of {reached:?}");
    };
    let both = ["Requested Timeout", "Requested NotObserved", "Requested EnvironmentNotReady", "Merged AlreadyDeclared"];
    let ends = ["Finished Running", "Withdrawn Superseded", "Withdrawn SourceMoved", "Failed NotRunning"];
    let failed = ["Failed PushRefused", "Requested RepositoryNotFound"];
    let of_commit = ["Requested Pushing", "Merged Pushed"];
    missing(&by_commit(), &[&both[..], &ends, &failed, &of_commit].concat());
    let of_request = ["Requested Opening", "Open Opened", "Merged Merged"];
    let rare = ["Closed PullRequestGone", "Open Withdrawing", "Requested Withdrawing", "Failed BranchTaken"];
    missing(&by_pull_request(), &[&both[..], &ends, &failed, &of_request, &rare].concat());
}
