//! The background compilation of layers: chooses the next job, runs it for a time slice, and applies its result.
//!
//! In: the layers to compile. Out: results in the snapshot, and what they affect. Namespaces take turns, and each has a time budget
//! ([`budget`](super::budget)), so that no namespace delays the others.

use std::time::{Duration, Instant};

use super::budget::Next;
use super::changed::{Changed, are_compiled};
use super::configuration::Configuration;
use super::layer_job::LayerJob;
use super::results::{Entry, Owner};

/// The state of a job after a time slice.
pub(crate) enum Outcome {
    /// Its result is not needed any more.
    Dropped,
    /// It has more to do.
    Paused,
    Done,
}

impl Configuration {
    /// Returns the next job to run.
    pub(crate) fn next_job(&self) -> Next<LayerJob> {
        self.state().turns.next(self.began.elapsed())
    }

    /// Waits until there may be something to compile.
    pub(crate) async fn has_work(&self) {
        self.work.notified().await;
    }

    /// Runs a job for one time slice. Blocks the thread.
    pub(crate) fn run(&self, job: &mut LayerJob) -> (Outcome, Duration) {
        let began = Instant::now();
        let due = self.state().due(&job.place);
        let Some(sources) = due else { return (Outcome::Dropped, Duration::ZERO) };
        let is_done = job.run(sources, self.compiler());
        (if is_done { Outcome::Done } else { Outcome::Paused }, began.elapsed())
    }

    /// Applies the outcome of a time slice, for which this namespace pays. Returns what the outcome affects, and whether the layers of a
    /// notification were compiled.
    pub(crate) fn finish(
        &self,
        namespace: &str,
        mut job: LayerJob,
        (outcome, cost): (Outcome, Duration),
    ) -> (Changed, bool) {
        let mut state = self.state();
        let (state, now) = (&mut *state, self.began.elapsed());
        let (mut changed, mut is_compiled) = (Changed::default(), false);
        match (outcome, state.due(&job.place)) {
            // The layer was removed, or another job has compiled it.
            (Outcome::Dropped, _) | (_, None) => {}
            // The namespace that pays may be another one by now.
            (Outcome::Paused, Some(sources)) => state.turns.put_back(sources.payer(), job, now),
            (Outcome::Done, Some(sources)) => {
                let result = job.finish(&sources).filter(|compiled| compiled.is_current(&sources, &self.config_maps));
                is_compiled = result.is_some();
                if is_compiled {
                    *state.results.entry(&job.place) = Entry { is_due: false, compiled: result };
                    changed.layers = self.put_layers(state, &[job.place]);
                    changed.layers.retain(are_compiled);
                } else {
                    // A source has changed meanwhile, so the job starts again.
                    state.turns.add(sources.payer(), job, now);
                }
            }
        }
        if state.turns.spend(namespace, cost, now) {
            // The remaining work of this namespace waits for its budget, and the status shows this.
            let is_paid = |owner: &Owner, name: &str| state.sources(owner, name).is_some_and(|s| s.payer() == namespace);
            let waiting = state.results.places(|owner, name, entry| entry.is_due && is_paid(owner, name));
            changed.layers.extend(self.put_layers(state, &waiting));
        }
        (changed, is_compiled)
    }
}
