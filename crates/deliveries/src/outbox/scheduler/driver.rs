//! Runs the engine: carries out its effects, and gives it what happens. It decides nothing about deliveries.
//!
//! In: commands, events of the watches, ends of tasks, the clocks. Out: requests, reads and writes, in separate tasks; metrics, audit
//! lines, spans, and notes for the reporter. All effects of a turn are carried out, in their order, before the next input is awaited.

use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
#[cfg(feature = "broken")]
use futures::future::ready;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::effect::{Done, Effect, Input, Limit, Now, Task};
use super::engine::Engine;
use crate::outbox::attempt::work::{self, Parts};
use crate::outbox::attempt::write;
use crate::outbox::audit_log::audit;
use crate::outbox::store::journal::Event;
use crate::outbox::{Command, Note, Started, trace};
use relaybook_api::{now, since_boot};
use relaybook_runtime::limiter::NamespaceLimiter;

/// Maximum time for which requests in flight can continue after a stop.
const DRAIN: Duration = Duration::from_secs(20);
/// Time between two updates of the gauges.
const MEASURE: Duration = Duration::from_secs(5);

impl Now {
    /// Reads the clocks.
    pub(crate) fn read() -> Self {
        Self { mono: Instant::now(), wall: now(), boot: since_boot() }
    }
}

/// The engine, with all that it needs from outside.
pub(crate) struct Driver {
    engine: Engine,
    parts: Parts,
    ready: Box<dyn Fn(u64) + Send + Sync>,
    notes: mpsc::Sender<Note>,
    work: JoinSet<Done>,
}

impl Driver {
    pub(crate) fn new(parts: Parts, workers: usize, started: Started) -> Self {
        let Started { sources, ready, notes } = started;
        let engine = Engine::new(parts.clone(), workers, sources, fastrand::Rng::new());
        Self { engine, parts, ready, notes, work: JoinSet::new() }
    }

    /// Runs until `stop`. Then continues until the work in progress has ended, but no longer than [`DRAIN`].
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut events: mpsc::Receiver<(usize, Event)>,
        stop: CancellationToken,
    ) {
        let mut input = Input::Lease;
        let mut deadline: Option<Instant> = None;
        let mut lease = self.parts.lease.clone();
        let mut gauges = tokio::time::interval(MEASURE);
        loop {
            let now = Now::read();
            for effect in self.engine.on(input, now) {
                self.carry_out(effect, now);
            }
            if deadline.is_some_and(|at| self.work.is_empty() || now.mono >= at) {
                break;
            }
            let wake = self.engine.next_time().into_iter().chain(deadline).min();
            let wake = wake.map(tokio::time::Instant::from_std);
            input = tokio::select! {
                () = stop.cancelled(), if deadline.is_none() => {
                    deadline = Some(Instant::now() + DRAIN);
                    Input::Stop
                }
                Some(command) = commands.recv() => Input::Command(command),
                Some((source, event)) = events.recv() => Input::Watched(source, event),
                Some(done) = self.work.join_next(), if !self.work.is_empty() => match done {
                    Ok(done) => Input::Done(done),
                    Err(error) => {
                        // The lane stays busy, because that is better than a wrong order. The process exits and starts again.
                        tracing::error!(%error, "a delivery task panicked; stopping the engine");
                        break;
                    }
                },
                () = tokio::time::sleep_until(wake.unwrap_or_else(tokio::time::Instant::now)), if wake.is_some() => Input::Tick,
                () = lease.changed() => Input::Lease,
                _ = gauges.tick() => Input::Measure,
            };
        }
        self.work.shutdown().await;
        self.parts.direct.close();
    }

    /// Starts a task, or reports something. This does not wait.
    fn carry_out(&mut self, effect: Effect, now: Now) {
        match effect {
            Effect::Start(task) => {
                self.work.spawn(run(self.parts.clone(), task));
            }
            Effect::Settled(record, outcome) => {
                self.parts.metrics.delivery(outcome.as_str());
                audit(&record, outcome);
                if let Some(span) = trace::settled(&self.parts.tracer, &record, outcome, now.wall) {
                    self.parts.tracer.take(span);
                }
            }
            // If the queue of the reporter is full, only the status contains the information.
            Effect::Note(record) => drop(self.notes.try_send(Note { record: *record })),
            Effect::Reopened => self.parts.metrics.redelivery(),
            Effect::Foreign => self.parts.metrics.foreign(),
            Effect::Listed(term) => (self.ready)(term),
            Effect::Measured(gauges) => gauges.show(&self.parts.metrics),
        }
    }
}

/// Does the work of a task. Each future is as large as its own kind of work: thousands of writes can wait.
fn run(parts: Parts, task: Task) -> BoxFuture<'static, Done> {
    match task {
        Task::Attempt { turn, record, notification, facts, failures, until } => Box::pin(async move {
            let (decided, attempt_outcome) = work::attempt(parts, *record, notification, facts, failures, until).await;
            Done::Attempted { turn, attempt_outcome, decided: Box::new(decided) }
        }),
        Task::Write { key, decided, limit } => {
            let limiter = limiter(&parts, limit);
            #[cfg(feature = "broken")]
            if limit == Limit::Outcomes
                && crate::broken::is(crate::broken::Wrong::NextBeforeOutcome)
                && let Some(worked) = decided.unwritten()
            {
                tokio::spawn(write::store(parts, *decided, limiter));
                return Box::pin(ready(Done::Worked(key, Box::new(worked))));
            }
            Box::pin(async move { Done::Worked(key, Box::new(write::store(parts, *decided, limiter).await)) })
        }
        Task::Supersede(key, decided) => {
            let limiter = limiter(&parts, Limit::Outcomes);
            Box::pin(async move { Done::Superseded(key, Box::new(write::store(parts, *decided, limiter).await)) })
        }
        Task::Cancel { key, record, what, sure } => {
            work::cancel(parts, *record, what, sure).map(|worked| Done::Worked(key, Box::new(worked))).boxed()
        }
        Task::Reopen(decided, busy) => Box::pin(async move {
            let limiter = limiter(&parts, Limit::Aside);
            let worked = write::store(parts, *decided, limiter).await;
            drop(busy);
            Done::Reopened(Box::new(worked))
        }),
        Task::Record(id, new) => Box::pin(async move {
            let result = parts.journal.create(&new, None).await;
            // The index must know it before any component can read that the cursor has moved past it.
            if let Ok(stored) = &result {
                parts.delivery_index.recorded(std::slice::from_ref(stored));
            }
            Done::Recorded(id, Box::new(result))
        }),
        Task::ReadMissing { source, term, absent } => {
            Box::pin(async move { Done::Missing { source, term, gone: parts.journal.gone(absent).await } })
        }
        Task::Expel { id, foreign, busy } => Box::pin(async move {
            let failed = parts.journal.delete(&id, foreign.version).await.err().map(|error| error.detail());
            drop(busy);
            Done::Expelled { id, foreign, failed }
        }),
    }
}

fn limiter(parts: &Parts, limit: Limit) -> NamespaceLimiter {
    match limit {
        Limit::Outcomes => parts.outcomes.clone(),
        Limit::Failures => parts.failures.clone(),
        Limit::Aside => parts.aside.clone(),
    }
}
