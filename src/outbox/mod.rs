//! Recorded transitions on their way to their receivers, lane by lane. Nothing else in Pennant decides what may be sent.
//!
//! In: transitions from the dispatcher, through [`Deliveries::record`]; facts about pipelines and notifications, through the
//! [`PipelineIndex`]; word that something has changed, through [`Deliveries::look`]. Out: requests (by `webhook`), outcomes (by the
//! [journal](Journal)), figures (in the [`DeliveryIndex`]), and notes on what a person should do something about.
//!
//! The way of a delivery: [`store`] keeps it, [`scheduler`] has its [`lane`] take it when it is its turn, [`send_gate`] says whether it may
//! be sent, and `attempt` sends it and stores what came of it.

mod attempt;
mod audit_log;
pub mod lane;
pub mod record;
pub mod scheduler;
pub mod send_gate;
pub mod store;
mod trace;

#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeSet;

use futures::StreamExt as _;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::DeliverySpec;
pub use crate::config::snapshot::{Applied, Based, Everywhere, Layered, Overridden};
pub use attempt::work::Parts;
pub use lane::parked::{Park, Parked};
use record::LaneKey;
pub use record::{Record, RecordId};
pub use scheduler::work_queue::WorkQueue;
pub use send_gate::facts::subject;
pub use send_gate::index::{PipelineFacts, PipelineIndex};
pub use send_gate::live_check::is_notification_gone;
pub use store::delivery_index::{DeliveryIndex, Figures};
use store::journal::New;
pub use store::journal::{Journal, JournalError};

/// Commands and events that may wait for the engine; more make their senders wait.
const QUEUE: usize = 1024;

/// Which lanes to look at again.
#[derive(Clone, Debug)]
pub enum Scope {
    /// All of them.
    All,
    /// All of them, because what notifications mean has changed.
    Meanings,
    /// Those of one pipeline, by uid.
    Pipeline(String),
    /// The same, because its layers over notifications have changed.
    Layers(String),
    /// Those of one notification, by namespace and name.
    Notification(String, String),
    /// Those of notifications of these names, in all namespaces.
    Names(BTreeSet<String>),
}

impl Scope {
    fn covers(&self, key: &LaneKey) -> bool {
        match self {
            Self::All | Self::Meanings => true,
            Self::Pipeline(uid) | Self::Layers(uid) => key.pipeline == *uid,
            Self::Notification(namespace, name) => key.notification == *name && key.namespace == *namespace,
            Self::Names(names) => names.contains(&key.notification),
        }
    }
}

/// Transitions of one lane, in order.
#[derive(Clone, Debug)]
pub struct ToRecord {
    /// What is to be recorded.
    pub deliveries: Vec<DeliverySpec>,
    /// They may have been recorded in another namespace than the one in which their lane is kept now.
    pub look_elsewhere: bool,
}

/// What the engine is told.
#[derive(Debug)]
enum Command {
    Recorded(Vec<Record>),
    Look(Scope),
}

/// A delivery of which a person should know: parked, or waiting for something that only a person can mend.
#[derive(Clone, Debug)]
pub struct Note {
    /// The delivery, with its status.
    pub record: Record,
}

/// How much is done at once, and how much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests under way.
    pub workers: usize,
    /// Settled deliveries, in all.
    pub keep: usize,
}

/// What the engine is started with.
struct Started {
    /// Namespaces that are watched; `None`: all.
    sources: Vec<Option<String>>,
    /// Called in each turn, when everything recorded is known.
    ready: Box<dyn Fn(u64) + Send + Sync>,
    notes: mpsc::Sender<Note>,
}

/// The way into the engine; cheap to clone.
#[derive(Clone)]
pub struct Deliveries {
    journal: Journal,
    commands: mpsc::Sender<Command>,
    loaded: watch::Receiver<Option<u64>>,
    /// What is known of all deliveries.
    pub delivery_index: DeliveryIndex,
    /// What is known of pipelines and notifications.
    pub pipeline_index: PipelineIndex,
}

impl Deliveries {
    /// Records lanes of transitions and hands them over for sending. Within a lane the creates follow each other; a lane ends
    /// at its first error, which is given back at the lane's place, with how many of the lane are recorded. What is recorded
    /// already costs nothing.
    pub async fn record(&self, lanes: Vec<ToRecord>) -> Vec<Option<(usize, JournalError)>> {
        let global = self.pipeline_index.source().config_map.map(|of| of.namespace);
        let unknown = lanes.into_iter().map(|lane| self.unknown(lane, global.as_deref()));
        let (places, lanes): (Vec<Vec<_>>, Vec<Vec<_>>) = unknown.map(|lane| lane.into_iter().unzip()).unzip();
        let mut errors: Vec<_> = lanes.iter().map(|_| None).collect();
        let mut answers = Box::pin(self.journal.record(lanes));
        while let Some((lane, records, error)) = answers.next().await {
            errors[lane] = error.and_then(|error| Some((*places[lane].get(records.len())?, error)));
            // Before anybody can read that the cursor has moved past them.
            self.delivery_index.recorded(&records);
            if !records.is_empty() {
                // A closed channel means that the engine has stopped; the records are found at the next start.
                let _ = self.commands.send(Command::Recorded(records)).await;
            }
        }
        errors
    }

    /// Those of a lane of which it is not known that they are recorded, with their places in it. They are kept where the URL was
    /// written: in the namespace of the pipeline, or in that of the global configuration.
    fn unknown(&self, lane: ToRecord, global: Option<&str>) -> Vec<(usize, New)> {
        let new = |spec: DeliverySpec| {
            let own = spec.pipeline_ref.namespace.clone();
            let home = self.pipeline_index.effective(&spec).map_or_else(|| own.clone(), |n| n.home.clone());
            let other = if home == own { global.map(str::to_owned) } else { Some(own) };
            let other = other.filter(|other| *other != home);
            let name = record::name(&spec);
            let is_known = |namespace: &String| {
                self.delivery_index
                    .is_recorded(&spec.pipeline_ref.uid, &RecordId { namespace: namespace.clone(), name: name.clone() })
            };
            let known = is_known(&home) || other.as_ref().is_some_and(is_known);
            (!known).then(|| New { namespace: home, elsewhere: other.filter(|_| lane.look_elsewhere), spec })
        };
        lane.deliveries.into_iter().enumerate().filter_map(|(at, spec)| Some((at, new(spec)?))).collect()
    }

    /// Waits until everything that was recorded before this turn is known.
    pub async fn loaded(&self, turn: u64) {
        let _ = self.loaded.clone().wait_for(|loaded| *loaded >= Some(turn)).await;
    }

    /// Waits until the engine has ended: nothing is sent or written after that.
    pub async fn ended(&self) {
        self.commands.closed().await;
    }

    /// Says that something has changed on which lanes depend.
    pub async fn look(&self, scope: Scope) {
        let _ = self.commands.send(Command::Look(scope)).await;
    }
}

/// Starts the engine and its watches; they end after `stop`, once the requests under way are over.
///
/// `namespaces`: those to watch, or one `None` for all. `ready` is called in each turn, when everything recorded is known.
pub fn start(
    parts: Parts,
    limits: Limits,
    namespaces: Vec<Option<String>>,
    notes: mpsc::Sender<Note>,
    ready: impl Fn() + Send + Sync + 'static,
    tasks: &mut JoinSet<&'static str>,
    stop: &CancellationToken,
) -> Deliveries {
    let (commands, command_queue) = mpsc::channel(QUEUE);
    let (events, event_queue) = mpsc::channel(QUEUE);
    for (source, namespace) in namespaces.iter().enumerate() {
        let mut watch = Box::pin(parts.journal.watch(namespace.as_deref(), parts.lease.turns()));
        let (events, stop) = (events.clone(), stop.clone());
        tasks.spawn(async move {
            while let Some(Some(event)) = stop.run_until_cancelled(watch.next()).await {
                if events.send((source, event)).await.is_err() {
                    break;
                }
            }
            "the watch of deliveries"
        });
    }
    let (load, loaded) = watch::channel(None);
    let ready = move |turn| {
        load.send_replace(Some(turn));
        ready();
    };
    let way_in = Deliveries {
        journal: parts.journal.clone(),
        commands,
        loaded,
        delivery_index: parts.delivery_index.clone(),
        pipeline_index: parts.pipeline_index.clone(),
    };
    let started = Started { sources: namespaces, ready: Box::new(ready), notes };
    tasks.spawn(crate::outbox::store::retention::run(parts.clone(), limits.keep, stop.clone()));
    let engine = crate::outbox::scheduler::engine::Engine::new(parts, limits.workers, started);
    let stop = stop.clone();
    tasks.spawn(async move {
        engine.run(command_queue, event_queue, stop).await;
        "the delivery engine"
    });
    way_in
}
