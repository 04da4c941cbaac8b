//! Runs the engine: carries out its effects, and gives it what happens. It decides nothing about deliveries.
//!
//! In: commands, events of the watches, ends of tasks, the clocks, the Lease. Out: requests, reads and writes, in separate tasks (`tasks`);
//! answers of commands; metrics, audit lines, spans, and notes for the reporter. All effects of a turn are carried out, in their order, before
//! the next input is awaited.

pub(super) mod parts;
pub(super) mod tasks;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::outbox::audit_log::audit;
use crate::outbox::engine::Engine;
use crate::outbox::engine::effect::{Done, Effect, Input, Now, Ticket};
use crate::outbox::engine::gauges::Gauges;
use crate::outbox::store::journal::Event;
use crate::outbox::{Answer, Command, Message, Note, Started, trace};
use parts::Parts;
use relaybook_api::{now, since_boot};
use relaybook_core::leader::bucket::{Bucket, Buckets, COUNT};
use relaybook_runtime::leader::Busy;
use relaybook_telemetry::Metrics;
use relaybook_telemetry::metrics::{LaneState, Worker};

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
    /// The buckets that the engine has not released yet.
    held: [Option<Busy>; COUNT as usize],
    /// Who waits for the answer to a command.
    waiting: HashMap<Ticket, oneshot::Sender<Answer>>,
    last: Ticket,
    ready: Box<dyn Fn(u64) + Send + Sync>,
    notes: mpsc::Sender<Note>,
    work: JoinSet<Done>,
}

impl Driver {
    pub(crate) fn new(parts: Parts, workers: usize, started: Started) -> Self {
        let Started { sources, ready, notes } = started;
        Self {
            engine: Engine::new(workers, sources, fastrand::Rng::new()),
            parts,
            held: [const { None }; COUNT as usize],
            waiting: HashMap::new(),
            last: Ticket(0),
            ready,
            notes,
            work: JoinSet::new(),
        }
    }

    /// Runs until `stop`. Then continues until the work in progress has ended, but no longer than [`DRAIN`]. Those who wait for an answer then
    /// get none.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Message>,
        mut events: mpsc::Receiver<(usize, Event)>,
        stop: CancellationToken,
    ) {
        let mut input = Input::Lease;
        let mut deadline: Option<Instant> = None;
        let mut lease = self.parts.lease.clone();
        let mut gauges = tokio::time::interval(MEASURE);
        loop {
            let (now, wake) = self.turn(input);
            let is_idle = self.work.is_empty() && !self.engine.has_paused();
            if deadline.is_some_and(|at| is_idle || now.mono >= at) {
                break;
            }
            let wake = wake.into_iter().chain(deadline).min().map(tokio::time::Instant::from_std);
            input = tokio::select! {
                () = stop.cancelled(), if deadline.is_none() => {
                    deadline = Some(Instant::now() + DRAIN);
                    Input::Stop
                }
                Some((command, answer)) = commands.recv() => self.command(command, answer),
                Some((source, event)) = events.recv() => {
                    #[cfg(feature = "broken")]
                    if crate::broken::is(crate::broken::Wrong::RetriedIsForgotten) && event.is_retried() {
                        input = Input::Tick;
                        continue;
                    }
                    Input::Watched(source, event)
                }
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
    }

    /// Numbers a command.
    fn command(&mut self, command: Command, answer: Option<oneshot::Sender<Answer>>) -> Input {
        self.last.0 += 1;
        self.waiting.extend(answer.map(|answer| (self.last, answer)));
        Input::Command(self.last, command)
    }

    /// Gives the engine an input, and carries out its effects. Returns the time of the turn, and when the engine must act next.
    fn turn(&mut self, input: Input) -> (Now, Option<Instant>) {
        #[cfg(feature = "broken")]
        let offer = if let Input::Command(ticket, Command::Offer(_)) = &input { Some(*ticket) } else { None };
        let held = self.hold();
        let (effects, now, wake) = {
            let pipelines = self.parts.pipeline_index.read();
            let (facts, now) = (self.parts.facts(held, &pipelines), Now::read());
            let effects = self.engine.on(input, &facts, now);
            (effects, now, self.engine.next_time(&facts))
        };
        for effect in effects {
            self.carry_out(effect, now);
        }
        #[cfg(feature = "broken")]
        if let Some(ticket) = offer.filter(|_| crate::broken::is(crate::broken::Wrong::CursorBeforeOutcome)) {
            self.carry_out(Effect::Answer(ticket, Answer::Recorded), now);
        }
        (now, wake)
    }

    /// Holds the buckets that the Lease has gained. Returns all that are held. One that was lost and gained again between two turns is still held
    /// since before. That is safe: its new term begins with new lists, and the engine starts nothing before they are complete.
    fn hold(&mut self) -> Buckets {
        for bucket in self.parts.lease.buckets().iter() {
            let held = &mut self.held[bucket.index()];
            *held = held.take().or_else(|| self.parts.lease.hold(bucket));
        }
        Bucket::all().filter(|bucket| self.held[bucket.index()].is_some()).collect()
    }

    /// Starts a task, or reports something. This does not wait.
    fn carry_out(&mut self, effect: Effect, now: Now) {
        match effect {
            Effect::Start(task) => {
                self.work.spawn(tasks::run(self.parts.clone(), task));
            }
            Effect::Answer(ticket, answer) => {
                if let Some(waiting) = self.waiting.remove(&ticket) {
                    // The dispatcher may have ended its pass. Then its next pass finds the delivery.
                    let _ = waiting.send(answer);
                }
            }
            Effect::Release(bucket) => self.held[bucket.index()] = None,
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
            Effect::Measured(gauges) => show(*gauges, &self.parts.metrics),
        }
    }
}

fn show(gauges: Gauges, metrics: &Metrics) {
    metrics.pending(gauges.pending);
    for state in LaneState::ALL {
        metrics.lanes(state, gauges.lanes.get(&state).copied().unwrap_or_default());
    }
    metrics.unreachable(gauges.unreachable);
    metrics.workers(Worker::Busy, gauges.busy);
    metrics.workers(Worker::Idle, gauges.idle);
    metrics.by_notification(gauges.shares);
}
