//! Property tests of the real engine: it loses nothing, keeps the order of each lane, and comes to rest, whatever happens.
//!
//! In: histories. Answers are lost, calls fail or are applied late, receivers fail, users delete, redeliver and edit. Pipelines, targets
//! and notifications are deleted and created again, other clients create Deliveries, and watches list again. A process is killed, another
//! one gets the Lease, and the Lease is too short. Out: what is wrong after them. The engine and its indexes are the real ones, and with them
//! all decisions. The API server (`server`), the `dispatcher` and the calls of tasks (`job`, `process`) are models.
//! `outside` has what users and others do, `messages` what a receiver shows, `checks` what must hold. `world` is the driver. The time is virtual.

mod checks;
mod dispatcher;
mod found;
mod job;
mod messages;
mod outside;
mod process;
mod server;
mod world;

use std::cell::RefCell;
use std::collections::BTreeSet;

use kube::Client;
use kube::client::Body;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use crate::outbox::Parts;
use crate::outbox::testing::{self, notification};
use server::{Forged, LANES};
use world::World;

/// Number of histories, which are the same in every run. `PROPTEST_CASES` requests another number of random ones.
const HISTORIES: u32 = 1000;
/// Maximum number of steps of a history.
const STEPS: usize = 60;

#[derive(Clone, Copy, Debug)]
enum Setting {
    Suspend,
    Supersede,
    Rate,
    Ordering,
}

/// What can be deleted, and another one of the same name can be created.
#[derive(Clone, Copy, Debug)]
enum Thing {
    Pipeline,
    Target(usize),
    Notification,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The log gets a change for this lane.
    Change(usize),
    /// Rounds in which everything succeeds.
    Calm(usize),
    Dispatch,
    /// The engine gets the next command.
    Command,
    /// The leader, or the process before it, gets the next event.
    Watch(bool),
    /// One call or request of a task ends: that of the process before the leader, if this is true; which one; how.
    End(bool, usize, usize),
    /// The next timer is due.
    Time,
    /// The cursor is stored.
    Persist,
    Delete(usize),
    Redeliver(usize),
    /// A user changes a setting back and forth.
    Edit(Setting),
    /// A thing is deleted, or another one of the same name is created, and no process knows it yet. If this is false, the leader does not
    /// find it although it is there.
    Replace(Thing, bool),
    /// The leader learns what exists.
    Learn,
    /// The watch of Deliveries lists again.
    List,
    /// The Lease is too short for a request, or it is renewed.
    Lease(bool),
    /// Another client creates the Delivery of a change that is not recorded.
    Forge(usize, Forged),
    Quota(bool),
    /// An admission policy refuses status writes, or accepts them.
    Policy(bool),
    /// A call that nobody waits for is applied, or not.
    Late(bool),
    Kill,
    HandOver,
    Stop,
}

fn step() -> impl Strategy<Value = Step> {
    let setting = prop::sample::select(vec![Setting::Suspend, Setting::Supersede, Setting::Rate, Setting::Ordering]);
    let thing =
        prop_oneof![1 => Just(Thing::Pipeline), 6 => (0..LANES).prop_map(Thing::Target), 4 => Just(Thing::Notification)];
    let forged = any::<(bool, bool)>().prop_map(|(is_right, is_settled)| Forged { is_right, is_settled });
    prop_oneof![
        9 => (0..LANES).prop_map(Step::Change),
        8 => (1..4_usize).prop_map(Step::Calm),
        4 => Just(Step::Dispatch),
        6 => Just(Step::Command),
        4 => prop::bool::weighted(0.3).prop_map(Step::Watch),
        14 => (prop::bool::weighted(0.2), 0..8_usize, 0..56_usize).prop_map(|(old, which, how)| Step::End(old, which, how)),
        8 => Just(Step::Time),
        2 => Just(Step::Persist),
        1 => (0..64_usize).prop_map(Step::Delete),
        1 => (0..64_usize).prop_map(Step::Redeliver),
        1 => setting.prop_map(Step::Edit),
        2 => (thing, prop::bool::weighted(0.6)).prop_map(|(thing, is_true)| Step::Replace(thing, is_true)),
        2 => Just(Step::Learn),
        1 => Just(Step::List),
        1 => any::<bool>().prop_map(Step::Lease),
        1 => (0..64_usize, forged).prop_map(|(number, forged)| Step::Forge(number, forged)),
        1 => any::<bool>().prop_map(Step::Quota),
        1 => any::<bool>().prop_map(Step::Policy),
        2 => any::<bool>().prop_map(Step::Late),
        1 => Just(Step::Kill),
        1 => Just(Step::HandOver),
        1 => prop::bool::weighted(0.3).prop_map(|stops| if stops { Step::Stop } else { Step::Time }),
    ]
}

/// What the test's driver does wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    /// It tells the engine that an outcome is written before it is.
    NextBeforeOutcome,
    /// It does not carry out one effect.
    LostEffect,
    /// The cursor does not wait for the object.
    CursorBeforeObject,
    /// It cancels without the live read that has to confirm it.
    CanceledUnread,
    /// It does not read the Deliveries that a list did not contain.
    MissingUnread,
    /// It does not answer one command.
    LostAnswer,
}

/// Parts without an API server. Only the values that no process changes are used.
fn base() -> Parts {
    let service = tower::service_fn(|_: http::Request<Body>| async {
        Err::<http::Response<Body>, tower::BoxError>("there is no API server".into())
    });
    testing::parts(Client::new(service, "default"))
}

/// Runs histories. The result contains the shortest one that is wrong.
fn try_all(
    mut runner: TestRunner,
    wrong: Option<Wrong>,
    reached: &RefCell<BTreeSet<&'static str>>,
) -> Result<(), TestError<Vec<Step>>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    let (base, settings) = (base(), notification("n1"));
    runner.run(&prop::collection::vec(step(), 0..=STEPS), |steps| {
        let mut world = World::new(&base, &settings, wrong);
        try_one(&mut world, &steps)?;
        reached.borrow_mut().append(&mut world.reached);
        Ok(())
    })
}

/// Runs one history in a new world.
fn try_one(world: &mut World<'_>, steps: &[Step]) -> Result<(), TestCaseError> {
    world.restart(true)?;
    world.restarts = 0;
    steps.iter().try_for_each(|step| world.step(*step))?;
    world.drain()
}

/// Returns a runner whose histories are the same in every run.
fn fixed(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

#[test]
fn no_history_loses_a_delivery_breaks_the_order_of_a_lane_or_stops_it() {
    let runner = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => TestRunner::new(Config { failure_persistence: None, ..Config::default() }),
        None => fixed(HISTORIES),
    };
    if let Err(failure) = try_all(runner, None, &RefCell::default()) {
        panic!("{failure}");
    }
}

/// The property can fail: each error of the driver is found.
#[test]
fn a_driver_that_is_wrong_is_found() {
    let hard = [Wrong::CanceledUnread, Wrong::MissingUnread];
    let easy = [Wrong::NextBeforeOutcome, Wrong::LostEffect, Wrong::LostAnswer, Wrong::CursorBeforeObject];
    for wrong in easy.into_iter().chain(hard) {
        let found = try_all(fixed(4000), Some(wrong), &RefCell::default());
        assert!(matches!(found, Err(TestError::Fail(..))), "{wrong:?} is not found");
    }
}

#[test]
fn the_histories_reach_each_kind_of_work() {
    let reached: RefCell<BTreeSet<&'static str>> = RefCell::default();
    // Another test shows what is wrong.
    let _ = try_all(fixed(400), None, &reached);
    let expected = [
        "attempted",
        "attempted directly",
        "canceled",
        "continued a message",
        "foreign",
        "missing from a list",
        "recorded while it is attempted",
        "reopened",
        "superseded",
        "verified",
    ];
    assert_eq!(*reached.borrow(), BTreeSet::from(expected));
}
