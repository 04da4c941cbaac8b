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
    /// Those that renew or take the Lease.
    Lease,
    /// All of these but the last.
    Writes,
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
    round: Vec<Weather>,
}

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64, replicas: usize) -> Self {
        Self { rng: Rng::with_seed(seed), replicas, round: Vec::new() }
    }

    fn round(&mut self) -> Vec<Weather> {
        use Calls::{Creates, Cursors, Lease, Outcomes, PipelineStatus, Writes};
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
        let span = Duration::from_millis(match weather {
            Weather::Calm | Weather::Stopped(_) => rng.u64(0..500),
            Weather::ApiKilled => rng.u64(0..1500),
            Weather::Frozen(_) | Weather::ApiFrozen | Weather::Cut | Weather::Faulty(..) => rng.u64(500..3500),
        });
        // Between an attempt and its outcome a crash costs most.
        let always = matches!(weather, Weather::Calm | Weather::Faulty(Calls::Outcomes, ..));
        let killed = always || rng.bool();
        let kill = killed.then(|| Kill {
            replica: rng.usize(0..self.replicas),
            after: span.mul_f64(rng.f64()),
            down: Duration::from_millis(if rng.bool() { 0 } else { rng.u64(0..1500) }),
        });
        Some(Blow { pause: Duration::from_millis(rng.u64(100..1500)), weather, span, kill })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_is_a_plan() {
        let plan = |seed| Plan::new(seed, 2).take(100).collect::<Vec<_>>();
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    #[test]
    fn every_round_has_every_weather_and_a_kill_falls_into_it() {
        let mut plan = Plan::new(1, 2);
        let rounds: Vec<Vec<_>> = (0..10).map(|_| plan.by_ref().take(22).collect()).collect();
        let kinds = |round: &[Blow]| -> BTreeSet<_> {
            let kind = |b: &Blow| match b.weather {
                Weather::Faulty(calls, harm, _) => Weather::Faulty(calls, harm, 0),
                Weather::Stopped(_) => Weather::Stopped(0),
                Weather::Frozen(_) => Weather::Frozen(0),
                other => other,
            };
            round.iter().map(kind).collect()
        };
        assert_eq!(kinds(&rounds[0]).len(), 19);
        for round in &rounds {
            assert_eq!(kinds(round), kinds(&rounds[0]));
        }
        for blow in rounds.iter().flatten() {
            assert!(blow.weather != Weather::Calm || blow.kill.is_some());
            assert!(blow.kill.is_none_or(|k| k.replica < 2 && k.after <= blow.span));
        }
    }
}
