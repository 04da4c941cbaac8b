//! The steps of a history: what the cluster, the processes and people do, and what happens to the calls.

use super::outside::{Event, Happens};
use relaybook_core::promotion::testing::STAGING;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    Answered,
    AppliedAnswerLost,
    NotApplied,
    /// The process stops waiting. The write can be applied later.
    Late,
}

pub(super) const FATES: [Fate; 8] = [
    Fate::Answered,
    Fate::Answered,
    Fate::Answered,
    Fate::Answered,
    Fate::Answered,
    Fate::AppliedAnswerLost,
    Fate::NotApplied,
    Fate::Late,
];

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The fate of the next call.
    Fate(Fate),
    /// An environment runs a revision.
    Runs(usize, u8),
    /// An environment tries a revision.
    Tries(usize, u8),
    /// An environment cannot be observed, or can be observed again.
    Seen(usize, bool),
    /// The status of the pipeline is wiped. The pipeline controller takes the present state silently.
    Wipe,
    /// The pipeline gets another policy: manual, suspended, with a soak.
    Policy(u8),
    /// The watch of promotions of the pipeline controller catches up.
    MirrorWatch,
    /// The pipeline controller takes steps into the log.
    Mirror,
    /// The watch of pipelines of a replica catches up.
    WatchPipelines(usize),
    /// The watch of promotions of a replica catches up.
    WatchPromotions(usize),
    /// A replica reconciles the pipeline.
    Reconcile(usize),
    /// The watches of a replica catch up, and it reconciles the pipeline.
    Work(usize),
    /// A replica is killed, and started again.
    Restart(usize),
    /// The oldest write in flight is applied, if its tests pass.
    Land,
    /// The oldest write in flight is lost.
    Lose,
    /// A person approves a promotion.
    Approve(u8),
    /// A person requests that a promotion is retried.
    Retry(u8),
    /// A person deletes a promotion.
    Delete(u8),
    /// A person requests a promotion to an environment.
    Promote(usize),
    /// A person creates a promotion that Relaybook would not create.
    Forge(usize, u8),
    /// Minutes pass.
    Tick(u8),
    /// A hook requests a check of a promotion.
    Check(u8),
    /// An environment runs what the repository declares for it.
    Deploy(usize),
    /// Something happens at the forge, or to an attempt.
    Outside(Event),
}

pub(super) fn step((kind, a, b, fate): (u8, usize, u8, Fate), replicas: usize) -> Step {
    let (replica, later) = (a % replicas, STAGING + a % 2);
    match kind {
        0..10 => Step::Fate(fate),
        10..16 => Step::Runs(a % 2, 1 + b % 3),
        16..19 => Step::Runs(later, 1 + b % 3),
        19 => Step::Tries(a % 3, 1 + b % 3),
        20 => Step::Seen(a % 3, b.is_multiple_of(2)),
        21 => Step::Wipe,
        22 => Step::Policy(b),
        23..25 => Step::MirrorWatch,
        25..28 => Step::Mirror,
        28..31 => Step::WatchPipelines(replica),
        31..34 => Step::WatchPromotions(replica),
        34..42 => Step::Reconcile(replica),
        42 => Step::Restart(replica),
        43 => Step::Land,
        44 => Step::Lose,
        45..47 => Step::Approve(b),
        47 => Step::Retry(b),
        48 => Step::Delete(b),
        49 => Step::Promote(later),
        50 => Step::Forge(later, b),
        _ => Step::Tick(b),
    }
}

/// The same for strategies that Relaybook carries out. Most calls are answered, so that attempts are made.
pub(super) fn outside_step((kind, a, b, fate, happens): (u8, usize, u8, Fate, Happens), replicas: usize) -> Step {
    let (replica, later) = (a % replicas, STAGING + a % 2);
    match kind {
        0..36 => Step::Fate(Fate::Answered),
        36..40 => Step::Fate(fate),
        40..54 => Step::Outside(Event::Request(b, happens)),
        54..60 => Step::Work(replica),
        60..62 => Step::Reconcile(replica),
        62 => Step::WatchPipelines(replica),
        63 => Step::WatchPromotions(replica),
        64..66 => Step::Mirror,
        66 => Step::MirrorWatch,
        67..71 => Step::Runs(a % 2, 1 + b % 3),
        71 => Step::Tick(b),
        72 => Step::Restart(replica),
        73 => Step::Check(b),
        74 => Step::Retry(b),
        75 => Step::Runs(later, 1 + b % 3),
        76..78 => Step::Deploy(later),
        78..80 => Step::Outside(Event::Merge(b)),
        80 => Step::Outside(Event::Close(b)),
        81 => Step::Outside(Event::DeleteBranch(b)),
        82 => Step::Outside(Event::PushTo(b)),
        83 => Step::Outside(Event::Delete(b)),
        84 => Step::Outside(Event::Move),
        85 => Step::Outside(Event::Land),
        86 => Step::Outside(Event::Lead(replica)),
        87 => Step::Outside(Event::Renew(replica)),
        // The other steps of the properties about the API server.
        88..92 => step((kind - 69, a, b, fate), replicas),
        _ => step((kind - 49, a, b, fate), replicas),
    }
}
