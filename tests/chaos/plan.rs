//! What is done to Pennant and to its API server, and when. Pure.
//!
//! In: a seed. Out: blows without end, always the same ones for the same seed. In each round every kind of weather comes once,
//! in another order; what a run does is the beginning of it.

use std::time::Duration;

use fastrand::Rng;

/// One blow: what goes wrong meanwhile, and who is killed in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blow {
    /// Nothing goes wrong for so long before.
    pub pause: Duration,
    /// What goes wrong.
    pub weather: Weather,
    /// For so long.
    pub span: Duration,
    /// Who is killed with SIGKILL meanwhile.
    pub kill: Option<Kill>,
}

/// What goes wrong for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weather {
    /// Nothing: only the kill.
    Calm,
    /// A replica is asked to stop, and started again once it has.
    Stopped(usize),
    /// A replica's clock stands still.
    Frozen(usize),
    /// The API server is killed, and started again.
    ApiKilled,
    /// The API server's clock stands still.
    ApiFrozen,
    /// Connections to the API server are closed.
    Cut,
    /// Of these calls to the API server, so many in a hundred take up to two seconds longer.
    Slow(Calls, u8),
    /// A receiver refuses all connections.
    ReceiverGone,
    /// A receiver takes connections, and nothing that is sent.
    ReceiverAsleep,
    /// A replica is killed, and started again only after others have taken over.
    Lost(usize),
    /// A replica's clock stands still until others have taken over.
    FrozenOut(usize),
    /// Some calls fail, so many in a hundred.
    Faulty(Calls, Harm, u8),
}

/// Calls to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Calls {
    /// Those that record a delivery.
    Creates,
    /// Those that settle one.
    Outcomes,
    /// Those that persist cursors.
    Cursors,
    /// Those of the pipeline controller.
    PipelineStatus,
    /// Those that write of a delivery what is known of it.
    DeliveryStatus,
    /// Those of both controllers that write the status of a pipeline.
    Pipelines,
    /// Those that read Secrets.
    Secrets,
    /// Those that renew or take the Lease.
    Lease,
    /// All writes of statuses and deliveries.
    Writes,
    /// Everything.
    All,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// It is made, and its answer lost.
    AnswerLost,
    /// It is not made.
    RequestLost,
    /// It is refused with this code.
    Refused(u16),
}

/// A SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// Of whom.
    pub replica: usize,
    /// How long after the weather began.
    pub after: Duration,
    /// How long it stays down.
    pub down: Duration,
}

/// Blows in the order in which they come.
pub struct Plan {
    rng: Rng,
    replicas: usize,
    /// Whether there is time for replicas to take over from each other.
    long: bool,
    round: Vec<Weather>,
}

/// Longer than a Lease lasts, and the respite that its holder has after that.
const TAKEN_OVER: Duration = Duration::from_secs(110);

impl Plan {
    /// The plan of a seed; a long one has in each round a replica that is away until others have taken over.
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
        // Between an attempt and its outcome a crash costs most.
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
    fn a_seed_is_a_plan() {
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
