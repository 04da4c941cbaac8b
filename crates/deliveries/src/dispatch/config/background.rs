//! The background compilation of layers: chooses the next job, runs it for a time slice, and applies its result.
//!
//! In: the layers to compile. Out: results in the snapshot, and what they affect. Namespaces take turns, and each has a time budget
//! ([`budget`](super::budget)), so that no namespace delays the others.

use std::time::{Duration, Instant};

use super::budget::Next;
use super::changed::Changed;
use super::configuration::Configuration;
use super::layer_job::LayerJob;

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
        let state = self.state();
        let layers = state.pipelines.get(&job.uid);
        let Some(layers) = layers.filter(|layers| layers.layers.get(&job.name).is_some_and(|layer| layer.is_due)) else {
            return (Outcome::Dropped, Duration::ZERO);
        };
        let (site, sources) = (layers.site.clone(), state.beneath(&layers.site, &job.name));
        drop(state);
        let is_done = job.run(&site, sources, self.compiler());
        (if is_done { Outcome::Done } else { Outcome::Paused }, began.elapsed())
    }

    /// Applies the outcome of a time slice. Returns what the outcome affects, and whether the layers of a notification were compiled.
    pub(crate) fn finish(
        &self,
        namespace: &str,
        mut job: LayerJob,
        (outcome, cost): (Outcome, Duration),
    ) -> (Changed, bool) {
        let mut state = self.state();
        let state = &mut *state;
        let mut changed = Changed::default();
        let mut is_compiled = false;
        match outcome {
            Outcome::Dropped => return (changed, false),
            Outcome::Paused => state.turns.put_back(namespace, job, self.began.elapsed()),
            Outcome::Done => {
                let Some(layers) = state.pipelines.get(&job.uid) else { return (changed, false) };
                let (site, sources) = (layers.site.clone(), state.beneath(&layers.site, &job.name));
                let result = job.finish(&site, &sources).filter(|result| result.is_current(&sources, &self.config_maps));
                let layers = state.pipelines.get_mut(&job.uid);
                match (result, layers.and_then(|layers| layers.layers.get_mut(&job.name)).filter(|layer| layer.is_due)) {
                    // The layer was removed, or another job has compiled it.
                    (_, None) => {}
                    // A source has changed meanwhile, so the job starts again.
                    (None, Some(_)) => state.turns.add(namespace, job, self.began.elapsed()),
                    (Some(result), Some(layer)) => {
                        layer.compiled = Some(result);
                        layer.is_due = false;
                        is_compiled = true;
                    }
                }
                if let Some(layers) = state.pipelines.get(&site.uid).filter(|_| is_compiled) {
                    self.pipeline_index.put_layers(&site.uid, state.layered(layers, &self.pipeline_index));
                    if layers.layers.values().all(|layer| !layer.is_due) {
                        changed.compiled.push((site.uid.clone(), site.place.clone()));
                    }
                }
            }
        }
        if state.turns.spend(namespace, cost, self.began.elapsed()) {
            // The remaining work of this namespace waits for its budget, and the status shows this.
            for layers in state.pipelines.values() {
                if layers.layers.iter().any(|(name, layer)| layer.is_due && state.payer(&layers.site, name) == namespace) {
                    self.pipeline_index.put_layers(&layers.site.uid, state.layered(layers, &self.pipeline_index));
                    changed.due_layers.push((layers.site.uid.clone(), layers.site.place.clone()));
                }
            }
        }
        (changed, is_compiled)
    }
}
