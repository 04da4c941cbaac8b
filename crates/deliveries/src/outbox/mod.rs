//! Sends transitions to their receivers, lane by lane, and records them. No other part of Relaybook decides what can be sent.
//!
//! In: transitions from the dispatcher, through [`Deliveries::record`]; facts about pipelines and notifications, through the
//! [`PipelineIndex`]; notices of changes, through [`Deliveries::check`]. Out: requests (by `egress`), outcomes (by the [journal](Journal)),
//! counts and times (in the [`DeliveryIndex`]), and notes about deliveries that need a user's attention.
//!
//! The path of a delivery: it is offered to the [`engine`] for a direct attempt, or [`store`] stores it as pending first. The engine takes it
//! from its [`lane`] in order. [`send_gate`] decides whether it can be sent, and `attempt` what the response means. The [`driver`] makes the
//! request, and writes the result. After a direct attempt, that write also records the delivery.

mod attempt;
mod audit_log;
pub mod driver;
pub mod engine;
pub mod lane;
pub mod record;
pub mod send_gate;
pub mod store;
mod test_delivery;
mod trace;
mod work_queue;

#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use driver::parts::Parts;
pub use lane::parked::{Park, Parked};
use record::LaneKey;
pub use record::Record;
use relaybook_api::{DeliverySpec, ObjectName};
use relaybook_runtime::tenure::Tenure;
pub use relaybook_settings::config::snapshot::{Applied, Based, EffectiveClusterWide, Layered, Overridden};
pub use send_gate::index::{PipelineFacts, PipelineIndex};
pub use send_gate::live_check::gone_notifications;
pub use store::delivery_index::DeliveryIndex;
pub use store::figures::Figures;
use store::journal::New;
pub use store::journal::{Journal, JournalError};
pub use test_delivery::{TestSend, Tested, TestsKept};
pub use work_queue::WorkQueue;

/// Maximum number of commands and events that wait for the engine. If there are more, their senders wait.
const QUEUE: usize = 1024;
/// Maximum number of lanes of one pipeline that are recorded concurrently, which the API server handles well.
const PARALLEL: usize = 64;

/// Which lanes to check again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All lanes.
    All,
    /// All lanes, because the meaning of notifications has changed.
    Meanings,
    /// The lanes of one pipeline, by uid.
    Pipeline(String),
    /// The lanes of one pipeline, by uid, because its layers over notifications have changed.
    Layers(String),
    /// The lanes of one notification, by namespace and name.
    Notification(String, String),
    /// The lanes of notifications with these names, in all namespaces.
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
    /// The deliveries to record.
    pub deliveries: Vec<DeliverySpec>,
    /// Whether they may have been recorded in another namespace than the one in which new deliveries of their lane are stored.
    pub check_elsewhere: bool,
}

/// Commands for the engine.
#[derive(Debug)]
pub(crate) enum Command {
    /// The dispatcher has recorded these.
    Recorded(Vec<Record>),
    /// Send this delivery, and record it with its outcome. If it may have been recorded elsewhere, only say whether it is being sent there.
    Offer(New),
    /// Check these lanes again.
    Check(Scope),
    /// Answer when nothing of the pipeline with this uid is in progress. No more is started.
    Drain(String),
}

/// A command, with the sender of its answer, if one is awaited.
pub(crate) type Message = (Command, Option<oneshot::Sender<Answer>>);

/// The answer to a command.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The delivery is recorded, with or without an outcome. The engine knows it.
    Recorded,
    /// The engine does not attempt it now. The dispatcher has to record it first.
    Declined,
    /// The delivery could not be recorded. Its lane in the engine keeps it, and it can be offered again.
    Failed(JournalError),
    /// Nothing of the pipeline is in progress.
    Drained,
}

/// A delivery that needs a user's attention: parked, or blocked by something that only a user can fix.
#[derive(Clone, Debug)]
pub struct Note {
    /// The delivery, with its status.
    pub record: Record,
}

/// Limits on concurrent requests, and on the deliveries that are kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of concurrent requests.
    pub workers: usize,
    /// Maximum number of settled deliveries that are kept, in total.
    pub keep: usize,
}

/// The parameters with which the engine is started.
pub(crate) struct Started {
    /// Namespaces that are watched. `None`: all.
    sources: Vec<Option<String>>,
    /// Called in each leadership term, once all recorded deliveries are known.
    ready: Box<dyn Fn(u64) + Send + Sync>,
    notes: mpsc::Sender<Note>,
}

/// The handle of the engine; cheap to clone.
#[derive(Clone)]
pub struct Deliveries {
    commands: mpsc::Sender<Message>,
    loaded: watch::Receiver<Option<u64>>,
    parts: Parts,
    /// What is known of all deliveries.
    pub delivery_index: DeliveryIndex,
    /// What is known of pipelines and notifications.
    pub pipeline_index: PipelineIndex,
}

impl Deliveries {
    /// Records lanes of transitions and passes them to the engine. Within a lane, each is recorded after the previous one. A lane ends at
    /// its first error. The result has one entry for each lane: its error, if any, with the index of the delivery that failed. All
    /// deliveries before that index are recorded. A delivery that is already recorded costs no call.
    ///
    /// The engine may send a delivery before it is recorded, so that one write contains its outcome. This call then waits for that write.
    /// `tenure`: of the bucket of the pipeline.
    pub async fn record(&self, tenure: &Tenure, lanes: Vec<ToRecord>) -> Vec<Option<(usize, JournalError)>> {
        let global = self.pipeline_index.source().config_map.map(|of| of.namespace);
        let unknown = lanes.into_iter().map(|lane| self.unknown(lane, global.as_deref()));
        let (places, lanes): (Vec<Vec<_>>, Vec<Vec<_>>) = unknown.map(|lane| lane.into_iter().unzip()).unzip();
        let mut errors: Vec<_> = lanes.iter().map(|_| None).collect();
        let lane = |(number, lane): (usize, Vec<New>)| async move { (number, self.record_lane(tenure, lane).await) };
        let mut results = Box::pin(stream::iter(lanes.into_iter().enumerate().map(lane)).buffer_unordered(PARALLEL));
        while let Some((lane, (recorded, error))) = results.next().await {
            errors[lane] = error.and_then(|error| Some((*places[lane].get(recorded)?, error)));
        }
        errors
    }

    /// Records the deliveries of one lane. Returns how many are recorded, and the error that ended the lane. The first ones are offered to
    /// the engine. Once one is created here, so are the later ones, because the engine does not know it yet.
    async fn record_lane(&self, tenure: &Tenure, lane: Vec<New>) -> (usize, Option<JournalError>) {
        let (mut recorded, mut created, mut failed, mut offers) = (0, Vec::new(), None, true);
        for new in lane {
            // One that may be recorded elsewhere may be in progress there.
            let asks = offers || new.elsewhere.is_some();
            let answer = if asks { self.ask(Command::Offer(new.clone())).await } else { Answer::Declined };
            let result = match answer {
                Answer::Recorded | Answer::Drained => Ok(()),
                Answer::Failed(error) => Err(error),
                Answer::Declined => {
                    offers = false;
                    self.parts.journal.create(tenure.into(), &new, None).await.map(|record| created.push(record))
                }
            };
            if let Err(error) = result {
                failed = Some(error);
                break;
            }
            recorded += 1;
        }
        // The index must know them before any component can read that the cursor has moved past them.
        self.delivery_index.recorded(&created);
        if !created.is_empty() {
            // A closed channel means that the engine has stopped. The records are found at the next start.
            let _ = self.commands.send((Command::Recorded(created), None)).await;
        }
        (recorded, failed)
    }

    /// Gives the engine a command, and waits for its answer.
    async fn ask(&self, command: Command) -> Answer {
        let (answer, answered) = oneshot::channel();
        if self.commands.send((command, Some(answer))).await.is_err() {
            return Answer::Declined;
        }
        // No answer means that the engine has stopped. The next process derives the delivery again.
        answered.await.unwrap_or(Answer::Failed(JournalError::Timeout))
    }

    /// Returns the deliveries of a lane that are not known to be recorded, with their indexes in the lane. A delivery is stored in the
    /// namespace where its URL is set: the namespace of the pipeline, or that of the global configuration.
    fn unknown(&self, lane: ToRecord, global: Option<&str>) -> Vec<(usize, New)> {
        let new = |spec: DeliverySpec| {
            let own = spec.pipeline_ref.namespace.clone();
            let home = self.pipeline_index.read().effective(&spec).map_or_else(|| own.clone(), |n| n.home.clone());
            let other = if home == own { global.map(str::to_owned) } else { Some(own) };
            let other = other.filter(|other| *other != home);
            let name = record::name(&spec);
            let is_known = |namespace: &String| {
                self.delivery_index.is_recorded(&spec.pipeline_ref.uid, &ObjectName::new(namespace, &name))
            };
            let known = is_known(&home) || other.as_ref().is_some_and(is_known);
            (!known).then(|| New {
                namespace: home,
                elsewhere: other.filter(|_| lane.check_elsewhere),
                spec: Arc::new(spec),
            })
        };
        lane.deliveries.into_iter().enumerate().filter_map(|(at, spec)| Some((at, new(spec)?))).collect()
    }

    /// Returns the leadership term before which everything that was recorded is known.
    #[must_use]
    pub fn loaded(&self) -> watch::Receiver<Option<u64>> {
        self.loaded.clone()
    }

    /// Waits until no request and no write for a pipeline is in progress. It must not be ours any more, so that none is started. Returns `false`
    /// if the engine has ended.
    pub async fn drained(&self, pipeline_uid: &str) -> bool {
        matches!(self.ask(Command::Drain(pipeline_uid.to_owned())).await, Answer::Drained)
    }

    /// Waits until the engine has ended. After that, nothing is sent or written.
    pub async fn ended(&self) {
        self.commands.closed().await;
    }

    /// Makes the engine check lanes again, because something that they depend on has changed.
    pub async fn check(&self, scope: Scope) {
        let _ = self.commands.send((Command::Check(scope), None)).await;
    }
}

/// Starts the engine and its watches. After `stop`, they end once the requests in flight have ended.
///
/// `namespaces`: the namespaces to watch, or one `None` for all. `ready` is called in each leadership term, once all recorded deliveries
/// are known.
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
        let mut watch = Box::pin(parts.journal.watch(namespace.as_deref(), parts.lease.term_numbers()));
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
    let ready = move |term| {
        load.send_replace(Some(term));
        ready();
    };
    let way_in = Deliveries {
        commands,
        loaded,
        parts: parts.clone(),
        delivery_index: parts.delivery_index.clone(),
        pipeline_index: parts.pipeline_index.clone(),
    };
    let started = Started { sources: namespaces, ready: Box::new(ready), notes };
    tasks.spawn(crate::outbox::store::retention::run(parts.clone(), limits.keep, stop.clone()));
    let driver = driver::Driver::new(parts, limits.workers, started);
    let stop = stop.clone();
    tasks.spawn(async move {
        driver.run(command_queue, event_queue, stop).await;
        "the delivery engine"
    });
    way_in
}
