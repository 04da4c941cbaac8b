//! The plan of a run: which faults hit Relaybook, its API server and a receiver, and when. Pure.
//!
//! In: a seed. Out: an endless sequence of blows, which only depends on the seed. Each round contains every kind of weather at
//! least once, in a random order. A run executes the first part of the sequence.

use std::time::Duration;

use fastrand::Rng;

/// One blow: a fault for some time, and a kill during it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blow {
    /// Time without faults before it.
    pub pause: Duration,
    /// The fault.
    pub weather: Weather,
    /// Duration of the fault.
    pub span: Duration,
    /// The SIGKILL during the fault.
    pub kill: Option<Kill>,
}

/// A fault that lasts for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weather {
    /// No fault, only the kill.
    Calm,
    /// A replica receives SIGTERM, and is started again after it has ended.
    Stopped(usize),
    /// A replica is paused with SIGSTOP.
    Frozen(usize),
    /// The API server is killed, and started again.
    ApiKilled,
    /// The API server is paused with SIGSTOP.
    ApiFrozen,
    /// Connections to the API server are closed.
    Cut,
    /// This percentage of these calls to the API server takes up to two seconds longer.
    Slow(Calls, u8),
    /// A receiver refuses all connections.
    ReceiverGone,
    /// A receiver accepts connections, but reads nothing.
    ReceiverAsleep,
    /// A replica is killed, and started again only after another one has become the leader.
    Lost(usize),
    /// A replica is paused until another one has become the leader.
    FrozenOut(usize),
    /// This percentage of these calls fails.
    Faulty(Calls, Harm, u8),
}

/// Calls to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Calls {
    /// Calls that record a delivery, or create a promotion.
    Creates,
    /// Calls that settle a delivery, or write the status of a promotion.
    Outcomes,
    /// Calls that persist cursors.
    Cursors,
    /// Calls of the pipeline controller that write the status of a pipeline.
    PipelineStatus,
    /// Calls that write the status of a delivery.
    DeliveryStatus,
    /// Calls of both controllers that write the status of a pipeline.
    Pipelines,
    /// Calls that read Secrets.
    Secrets,
    /// Calls that renew or acquire the Lease.
    Lease,
    /// All writes of deliveries and promotions, and of the statuses of deliveries, promotions and pipelines.
    Writes,
    /// All calls.
    All,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// The call is executed, but its answer is lost.
    AnswerLost,
    /// The call does not reach the API server.
    RequestLost,
    /// The call is refused with this code.
    Refused(u16),
}

/// A SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// Number of the replica.
    pub replica: usize,
    /// Time from the beginning of the fault to the kill.
    pub after: Duration,
    /// Time until the replica is started again.
    pub down: Duration,
}

/// The sequence of blows.
pub struct Plan {
    rng: Rng,
    replicas: usize,
    /// Whether there is time for another replica to become the leader.
    long: bool,
    round: Vec<Weather>,
}

/// Longer than the duration of a Lease plus the grace period of its holder after that.
const TAKEN_OVER: Duration = Duration::from_secs(110);

impl Plan {
    /// Returns the plan of a seed. In each round of a long plan, one replica is down or paused until another is the leader.
    pub fn new(seed: u64, replicas: usize, long: bool) -> Self {
        Self { rng: Rng::with_seed(seed), replicas, long, round: Vec::new() }
    }

    fn round(&mut self) -> Vec<Weather> {
        use Calls::{All, Creates, Cursors, DeliveryStatus, Lease, Outcomes, PipelineStatus, Pipelines, Secrets, Writes};
        use Harm::{AnswerLost, Refused, RequestLost};
        let rng = &mut self.rng;
        let mut round = vec![
            Weather::Calm,
            Weather::Calm,
            Weather::Calm,
            Weather::Calm,
            Weather::Stopped(rng.usize(0..self.replicas)),
            Weather::Frozen(rng.usize(0..self.replicas)),
            Weather::ApiKilled,
            Weather::ApiFrozen,
            Weather::Cut,
            Weather::Slow(All, 30),
            Weather::Slow(Writes, 80),
            Weather::ReceiverGone,
            Weather::ReceiverAsleep,
            Weather::Faulty(DeliveryStatus, Refused(403), 100),
            Weather::Faulty(Pipelines, Refused(403), 100),
            Weather::Faulty(Secrets, Refused(403), 100),
            Weather::Faulty(Writes, Refused(409), 25),
            Weather::Faulty(Writes, Refused(429), 25),
            Weather::Faulty(Writes, Refused(500), 25),
        ];
        for (calls, harm) in [
            (Creates, AnswerLost),
            (Creates, RequestLost),
            (Outcomes, AnswerLost),
            (Outcomes, RequestLost),
            (Cursors, AnswerLost),
            (Cursors, RequestLost),
            (PipelineStatus, AnswerLost),
            (PipelineStatus, RequestLost),
            (Lease, AnswerLost),
            (Lease, RequestLost),
        ] {
            round.push(Weather::Faulty(calls, harm, rng.u8(20..=100)));
        }
        if self.long {
            let replica = rng.usize(0..self.replicas);
            round.push(if rng.bool() { Weather::Lost(replica) } else { Weather::FrozenOut(replica) });
        }
        rng.shuffle(&mut round);
        round
    }
}

impl Iterator for Plan {
    type Item = Blow;

    fn next(&mut self) -> Option<Blow> {
        if self.round.is_empty() {
            self.round = self.round();
        }
        let weather = self.round.pop()?;
        let rng = &mut self.rng;
        let span = match weather {
            Weather::Calm | Weather::Stopped(_) => millis(rng, 0..500),
            Weather::ApiKilled => millis(rng, 0..1500),
            Weather::Lost(_) | Weather::FrozenOut(_) => TAKEN_OVER,
            _ => millis(rng, 500..3500),
        };
        if let Weather::Lost(replica) = weather {
            let kill = Some(Kill { replica, after: Duration::ZERO, down: span });
            return Some(Blow { pause: Duration::ZERO, weather, span, kill });
        }
        // A kill between an attempt and its outcome is the most difficult case.
        let always = matches!(weather, Weather::Calm | Weather::Faulty(Calls::Outcomes, ..));
        let killed = always || (rng.bool() && !matches!(weather, Weather::FrozenOut(_)));
        let kill = killed.then(|| Kill {
            replica: rng.usize(0..self.replicas),
            after: span.mul_f64(rng.f64()),
            down: if rng.bool() { Duration::ZERO } else { millis(rng, 0..1500) },
        });
        Some(Blow { pause: millis(rng, 100..1500), weather, span, kill })
    }
}

fn millis(rng: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_determines_the_plan() {
        let plan = |seed| Plan::new(seed, 2, false).take(100).collect::<Vec<_>>();
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    #[test]
    fn every_round_has_every_kind_of_fault_and_a_kill_during_it() {
        let mut plan = Plan::new(1, 2, true);
        let rounds: Vec<Vec<_>> = (0..10).map(|_| plan.by_ref().take(30).collect()).collect();
        let kinds = |round: &[Blow]| -> BTreeSet<_> {
            let kind = |b: &Blow| match b.weather {
                Weather::Faulty(calls, harm, _) => Weather::Faulty(calls, harm, 0),
                Weather::Stopped(_) => Weather::Stopped(0),
                Weather::Frozen(_) => Weather::Frozen(0),
                Weather::Lost(_) | Weather::FrozenOut(_) => Weather::Lost(0),
                other => other,
            };
            round.iter().map(kind).collect()
        };
        assert_eq!(kinds(&rounds[0]).len(), 27);
        for round in &rounds {
            assert_eq!(kinds(round), kinds(&rounds[0]));
        }
        for blow in rounds.iter().flatten() {
            assert!(blow.weather != Weather::Calm || blow.kill.is_some());
            assert!(blow.kill.is_none_or(|k| k.replica < 2 && k.after <= blow.span));
        }
    }
}
