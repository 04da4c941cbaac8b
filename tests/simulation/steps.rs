//! A history: a list of steps, from random numbers.
//!
//! In: the number of steps. Out: histories that `proptest` can shrink.

use std::fmt;

use proptest::collection::vec;
use proptest::prelude::*;
use relaybook_simulation::service::{End, Silence};

use super::receivers::Manner;
use super::world::{ENVIRONMENTS, NOTIFICATIONS, PIPELINES, REPLICAS};

/// What happens to a write.
#[derive(Clone, Copy, Debug)]
pub enum Wrote {
    /// It is carried out, and the connection breaks before the answer.
    Lost,
    /// It is carried out, and never answered.
    LostLater,
    /// It is neither carried out nor answered.
    Dropped,
    /// It is not answered, and perhaps carried out later.
    Late,
    /// It is refused with this status.
    Refused(u16),
}

/// One step.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// This number of milliseconds passes.
    Wait(u32),
    /// A rollout of an application begins.
    Begin(usize),
    /// It ends, and is good or has failed.
    End(usize, bool),
    /// An application fails without a rollout, or recovers.
    Flip(usize),
    /// A receiver answers in another way. `None`: it accepts every request.
    Receiver(usize, Option<Manner>),
    /// SIGKILL.
    Kill(usize),
    /// SIGKILL at the moment when a replica has made this number of writes and requests to receivers. The last one still arrives, or does not.
    Die(usize, u8, bool),
    /// SIGTERM.
    Stop(usize),
    /// A replica starts, unless it runs.
    Start(usize),
    /// A replica gets no processor time, or gets it again.
    Freeze(usize, bool),
    /// The wall clock of a replica is this number of milliseconds ahead from now on.
    Clock(usize, i32),
    /// No request of a replica reaches the API server. `None`: they reach it again.
    Outage(usize, Option<Silence>),
    /// A write of a replica goes wrong, after this number of others.
    Write(usize, u8, Wrote),
    /// A late write is carried out, or forgotten.
    Land(u8, bool),
    /// The present watches of a replica deliver only this number of events. `None`: all.
    Behind(usize, Option<u8>),
    /// A watch ends.
    Cut(u8, End),
    /// The object of an application is deleted. Its next rollout creates it again.
    Remove(usize),
    /// The token of a notification changes.
    Rotate,
    /// A notification is suspended, or resumed.
    Suspend(usize, bool),
    /// A settled delivery is sent again.
    Redeliver(u8),
    /// The API server forgets its history.
    Compact,
}

impl Step {
    /// Whether a replica does not run or not see everything after this step.
    fn disturbs(&self) -> bool {
        use Step::{Behind, Compact, Cut, Die, Freeze, Kill, Outage, Stop};
        matches!(self, Kill(_) | Die(..) | Stop(_) | Freeze(..) | Outage(..) | Behind(..) | Cut(..) | Compact)
    }
}

/// A history, and the seed of all other random decisions.
#[derive(Clone)]
pub struct History {
    pub seed: u64,
    pub steps: Vec<Step>,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, steps:", self.seed)?;
        self.steps.iter().enumerate().try_for_each(|(number, step)| writeln!(f, "{number:>4} {step:?}"))
    }
}

/// Returns histories with this seed, and at most this number of steps.
pub fn histories(seed: u64, steps: usize) -> impl Strategy<Value = History> {
    // In one of four, the processes and their watches are not disturbed. Then nothing may be merged.
    let is_kept = move |step: &Step| !seed.is_multiple_of(4) || !step.disturbs();
    vec(step(), steps / 2..=steps)
        .prop_map(move |steps| History { seed, steps: steps.into_iter().filter(is_kept).collect() })
}

fn step() -> impl Strategy<Value = Step> {
    let replica = || 0..REPLICAS;
    // The last application, `prod` of the train, is that of promotions.
    let app = || 0..PIPELINES.len() * ENVIRONMENTS.len() + 1;
    let manner = prop_oneof![
        4 => Just(None),
        2 => (prop_oneof![Just(204_u16), Just(503), Just(429), Just(500)], 0..12_000_u32)
            .prop_map(|(code, after)| Some(Manner::Answers(code, after))),
        1 => Just(Some(Manner::Hangs)),
        1 => Just(Some(Manner::Breaks)),
    ];
    let wrote = prop_oneof![
        Just(Wrote::Lost),
        Just(Wrote::LostLater),
        Just(Wrote::Dropped),
        Just(Wrote::Late),
        prop_oneof![Just(429_u16), Just(500), Just(503), Just(504)].prop_map(Wrote::Refused),
    ];
    let silence = prop_oneof![3 => Just(None), 1 => Just(Some(Silence::Hanging)), 1 => Just(Some(Silence::Broken))];
    let end = prop_oneof![Just(End::Ended), Just(End::Broken), Just(End::Expired)];
    prop_oneof![
        16 => (1..1500_u32).prop_map(Step::Wait),
        4 => (1500..20_000_u32).prop_map(Step::Wait),
        1 => (20_000..120_000_u32).prop_map(Step::Wait),
        10 => app().prop_map(Step::Begin),
        10 => (app(), prop::bool::weighted(0.8)).prop_map(|(app, is_good)| Step::End(app, is_good)),
        6 => app().prop_map(Step::Flip),
        1 => app().prop_map(Step::Remove),
        1 => Just(Step::Rotate),
        1 => (0..NOTIFICATIONS.len(), any::<bool>()).prop_map(|(which, is_suspended)| Step::Suspend(which, is_suspended)),
        1 => any::<u8>().prop_map(Step::Redeliver),
        5 => (0..=NOTIFICATIONS.len(), manner).prop_map(|(which, manner)| Step::Receiver(which, manner)),
        2 => replica().prop_map(Step::Kill),
        4 => (replica(), 0..8_u8, any::<bool>()).prop_map(|(which, after, arrives)| Step::Die(which, after, arrives)),
        1 => replica().prop_map(Step::Stop),
        4 => replica().prop_map(Step::Start),
        2 => (replica(), prop::bool::weighted(0.4)).prop_map(|(which, is_frozen)| Step::Freeze(which, is_frozen)),
        1 => (replica(), -100_000..100_000_i32).prop_map(|(which, ahead)| Step::Clock(which, ahead)),
        2 => (replica(), silence).prop_map(|(which, silence)| Step::Outage(which, silence)),
        8 => (replica(), 0..6_u8, wrote).prop_map(|(which, after, wrote)| Step::Write(which, after, wrote)),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(which, is_applied)| Step::Land(which, is_applied)),
        3 => (replica(), prop::option::weighted(0.5, 0..3_u8)).prop_map(|(which, allowed)| Step::Behind(which, allowed)),
        2 => (any::<u8>(), end).prop_map(|(which, end)| Step::Cut(which, end)),
        1 => Just(Step::Compact),
    ]
}
