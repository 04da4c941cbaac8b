//! One reconcile of one pipeline: it decides, acts, and decides again, until there is nothing to do.
//!
//! In: all objects of the pipeline, as the watches have delivered them. Out: calls of the API server ([`Calls`]), and when to reconcile again.
//! Before each action the pipeline is read live, and everything is decided again. Before a promotion is requested, the Promotion is read
//! live, too. It is read first: if it was deleted and created again, the pipeline shows that the first one had a step. Before a promotion is
//! given up because of its Deliveries, they are read live. A reconcile that finds nothing to do makes no call.
//!
//! The objects of the reconcile are replaced by the answers. If an answer is lost, the reconcile ends with an error, and a later reconcile continues from
//! what is stored. If the API server refuses an action, for example because of an admission policy or a quota, the reconcile continues with the
//! other promotions. Then it ends with the error.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use kube::ResourceExt;

use super::index::Seen;
use super::retain::surplus;
use crate::Error;
use relaybook_api::{Pipeline, Promotion, PromotionSpec, PromotionStatus, Time};
use relaybook_core::promotion::action::{Action, action, earlier};
use relaybook_core::promotion::names::name;
use relaybook_core::promotion::progress::{Progress, Task};
use relaybook_core::promotion::state::{gives_up, requests};

/// Maximum number of decisions in one reconcile. Then other pipelines come first.
const DECISIONS: usize = 100;
/// Maximum number of conflicts in one reconcile. An admission webhook can fake conflicts without end.
const CONFLICTS: u32 = 5;

/// The calls that a reconcile makes, for one pipeline.
pub(crate) trait Calls: Sync {
    /// Returns the current time.
    fn now(&self) -> Time;

    /// Reads the pipeline with this name. `None`: it does not exist.
    fn pipeline(&self, name: &str) -> impl Future<Output = Result<Option<Pipeline>, Error>> + Send;

    /// Reads a promotion. `None`: it does not exist.
    fn promotion(&self, name: &str) -> impl Future<Output = Result<Option<Promotion>, Error>> + Send;

    /// Creates a promotion. Returns the object that has its name, whether it is new or not. `None`: it was deleted in the meantime.
    fn create(&self, spec: &PromotionSpec) -> impl Future<Output = Result<Option<Promotion>, Error>> + Send;

    /// Replaces the status of a promotion, if it is still this version. `None`: it was changed or deleted in the meantime.
    fn write(
        &self,
        base: &Promotion,
        status: &PromotionStatus,
    ) -> impl Future<Output = Result<Option<Promotion>, Error>> + Send;

    /// Returns what this process knows about the attempts of a promotion.
    fn progress(&self, promotion: &Promotion) -> Progress;

    /// Reads the Deliveries of the requests of a promotion. Then [`Calls::progress`] contains them.
    fn read_sent(&self, promotion: &Promotion) -> impl Future<Output = Result<(), Error>> + Send;

    /// Starts an attempt. Its end causes another reconcile. It must not wait for the attempt.
    fn start(&self, promotion: &Promotion, task: Task) -> Result<(), Error>;

    /// Deletes a promotion, if it is still this version.
    fn delete(&self, base: &Promotion) -> impl Future<Output = Result<(), Error>> + Send;
}

/// The state of a reconcile.
struct Reconcile<'a, C> {
    calls: &'a C,
    uid: &'a str,
    known: Seen,
    /// Whether the pipeline was read live since the last action.
    is_read: bool,
    /// The promotions that were read live, or answered, in this reconcile. A write tests their version.
    live: HashSet<String>,
    /// The promotions whose Deliveries were read live in this reconcile.
    sent: HashSet<String>,
    conflicts: u32,
    /// The promotions for which the API server refused an action.
    refused: BTreeSet<String>,
    /// The first of these errors.
    error: Option<Error>,
}

/// Reconciles the pipeline with this uid. Returns when to reconcile again.
pub(crate) async fn run<C: Calls>(calls: &C, uid: &str, known: Seen) -> Result<Option<Time>, Error> {
    let mut reconcile = Reconcile {
        calls,
        uid,
        known,
        is_read: false,
        live: HashSet::new(),
        sent: HashSet::new(),
        conflicts: 0,
        refused: BTreeSet::new(),
        error: None,
    };
    for _ in 0..DECISIONS {
        let (todo, wake) = reconcile.decide();
        let Some(todo) = todo else { return reconcile.error.map_or(Ok(wake), Err) };
        if !reconcile.confirm(&todo).await? {
            reconcile.act_or_skip(todo).await?;
            reconcile.is_read = false;
        }
    }
    reconcile.error.map_or(Ok(Some(calls.now())), Err)
}

impl<C: Calls> Reconcile<'_, C> {
    /// Returns the next action, or when to reconcile again. What was kept for long enough is deleted last.
    fn decide(&self) -> (Option<Action>, Option<Time>) {
        let (pipeline, now) = (self.known.pipeline.as_deref(), self.calls.now());
        let promotions: Vec<&Promotion> = self.known.promotions.values().map(AsRef::as_ref).collect();
        let progress = promotions.iter().map(|promotion| (promotion.name_any(), self.calls.progress(promotion))).collect();
        let wake = match action(pipeline, (&promotions, &self.known.commits), &self.refused, &progress, now) {
            Action::Wait(wake) => wake,
            todo => return (Some(todo), None),
        };
        let surplus = surplus(pipeline, &promotions, now);
        let next = surplus.next.map(ResourceExt::name_any).filter(|name| !self.refused.contains(name));
        let delete = next.map(|name| Action::Delete { name });
        (delete, earlier(wake, surplus.later))
    }

    /// Reads what the action depends on. Returns whether something was read, so that everything must be decided again.
    ///
    /// The watch of Deliveries can be behind that of pipelines. So before a promotion is given up, its Deliveries are read after the pipeline
    /// status that says that all of them are recorded.
    async fn confirm(&mut self, todo: &Action) -> Result<bool, Error> {
        if let Action::Write { name, status } = todo
            && let Some(promotion) = self.known.promotions.get(name)
            && gives_up(promotion.status.as_ref(), status)
            && self.sent.insert(name.clone())
        {
            self.calls.read_sent(promotion).await?;
            return Ok(true);
        }
        if let Action::Write { name, status } = todo
            && !self.live.contains(name)
            && requests(self.known.promotions.get(name).and_then(|promotion| promotion.status.as_ref()), status)
        {
            self.read_promotion(name).await?;
            self.is_read = false;
            return Ok(true);
        }
        // A check changes nothing, so it needs no live read.
        if self.is_read || matches!(todo, Action::Act { task: Task::Look | Task::Last, .. }) {
            return Ok(false);
        }
        self.known.pipeline = self.read_pipeline().await?.map(Arc::new);
        self.is_read = true;
        Ok(true)
    }

    /// Reads the pipeline. It is gone if no pipeline of its name has its uid. A promotion that was forged can name another one.
    async fn read_pipeline(&self) -> Result<Option<Pipeline>, Error> {
        let names: BTreeSet<String> = match &self.known.pipeline {
            Some(pipeline) => BTreeSet::from([pipeline.name_any()]),
            None => self.known.promotions.values().map(|promotion| promotion.spec.pipeline_ref.name.clone()).collect(),
        };
        for name in names.into_iter().filter(|name| is_object_name(name)) {
            let found = self.calls.pipeline(&name).await?;
            if let Some(found) = found.filter(|found| found.metadata.uid.as_deref() == Some(self.uid)) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    async fn read_promotion(&mut self, name: &str) -> Result<(), Error> {
        match self.calls.promotion(name).await? {
            Some(promotion) => self.replace(promotion),
            None => drop(self.known.promotions.remove(name)),
        }
        Ok(())
    }

    fn replace(&mut self, promotion: Promotion) {
        let name = promotion.name_any();
        self.live.insert(name.clone());
        if promotion.spec.pipeline_ref.uid == self.uid {
            self.known.promotions.insert(name, Arc::new(promotion));
        } else {
            self.known.promotions.remove(&name);
        }
    }

    /// Acts. An action that the API server refuses ends nothing but itself.
    async fn act_or_skip(&mut self, todo: Action) -> Result<(), Error> {
        let name = match &todo {
            Action::Wait(_) => return Ok(()),
            Action::Create(spec) => name(spec),
            Action::Write { name, .. } | Action::Delete { name } | Action::Act { name, .. } => name.clone(),
        };
        match self.act(todo).await {
            Err(error) if error.is_refusal() => {
                self.refused.insert(name);
                self.error.get_or_insert(error);
                Ok(())
            }
            ended => ended,
        }
    }

    async fn act(&mut self, todo: Action) -> Result<(), Error> {
        match todo {
            Action::Wait(_) => Ok(()),
            Action::Create(spec) => self.create(&spec).await,
            Action::Write { name, status } => self.write(&name, &status).await,
            Action::Act { name, task } => {
                let Some(promotion) = self.known.promotions.get(&name) else { return Ok(()) };
                self.calls.start(promotion, task)
            }
            Action::Delete { name } => {
                let Some(base) = self.known.promotions.remove(&name) else { return Ok(()) };
                self.calls.delete(&base).await
            }
        }
    }

    async fn create(&mut self, spec: &PromotionSpec) -> Result<(), Error> {
        match self.calls.create(spec).await? {
            Some(stored) if stored.spec.pipeline_ref.uid == self.uid => {
                self.replace(stored);
                return Ok(());
            }
            // A promotion of another pipeline takes the name. It is not valid there either, because its name is not its own.
            Some(foreign) if foreign.name_any() != name(&foreign.spec) => self.calls.delete(&foreign).await?,
            Some(_) | None => {}
        }
        self.conflict()
    }

    async fn write(&mut self, name: &str, status: &PromotionStatus) -> Result<(), Error> {
        let Some(base) = self.known.promotions.get(name).cloned() else { return Ok(()) };
        if let Some(stored) = self.calls.write(&base, status).await? {
            self.replace(stored);
            return Ok(());
        }
        self.conflict()?;
        self.read_promotion(name).await?;
        let live = self.known.promotions.get(name);
        if live.is_some_and(|live| live.metadata.resource_version == base.metadata.resource_version) {
            // Nobody was first, so the API server refuses the content.
            return Err(Error::Refused(name.to_owned()));
        }
        Ok(())
    }

    fn conflict(&mut self) -> Result<(), Error> {
        self.conflicts += 1;
        if self.conflicts > CONFLICTS { Err(Error::Conflict) } else { Ok(()) }
    }
}

/// Whether an object can have this name. Other texts must not become a part of a path.
fn is_object_name(text: &str) -> bool {
    let is_ordinary = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ['-', '.'].contains(&c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_ordinary)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use relaybook_api::pipeline::{Cursor, Dispatched};
    use relaybook_api::promotion::Phase;
    use relaybook_api::{DeliveryStatus, Outcome};
    use relaybook_core::promotion::sent::Sent;
    use relaybook_core::promotion::testing::{at, automatic, pipeline, promotion};

    /// A watch of Deliveries that is behind: the second one is known only after a live read.
    struct Behind {
        pipeline: Pipeline,
        sent: [Sent; 2],
        is_read: AtomicBool,
        written: Mutex<Vec<PromotionStatus>>,
    }

    impl Calls for Behind {
        fn now(&self) -> Time {
            at(200)
        }

        async fn pipeline(&self, _: &str) -> Result<Option<Pipeline>, Error> {
            Ok(Some(self.pipeline.clone()))
        }

        async fn promotion(&self, _: &str) -> Result<Option<Promotion>, Error> {
            Ok(None)
        }

        async fn create(&self, _: &PromotionSpec) -> Result<Option<Promotion>, Error> {
            Ok(None)
        }

        async fn write(&self, base: &Promotion, status: &PromotionStatus) -> Result<Option<Promotion>, Error> {
            self.written.lock().push(status.clone());
            Ok(Some(Promotion { status: Some(status.clone()), ..base.clone() }))
        }

        fn progress(&self, _: &Promotion) -> Progress {
            let known = if self.is_read.load(Ordering::Relaxed) { 2 } else { 1 };
            Progress { sent: self.sent[..known].to_vec(), ..Progress::default() }
        }

        async fn read_sent(&self, _: &Promotion) -> Result<(), Error> {
            self.is_read.store(true, Ordering::Relaxed);
            Ok(())
        }

        fn start(&self, _: &Promotion, _: Task) -> Result<(), Error> {
            Ok(())
        }

        async fn delete(&self, _: &Promotion) -> Result<(), Error> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn deliveries_are_read_live_before_a_promotion_is_given_up() {
        let mut pipeline = pipeline();
        let cursors = vec![Cursor { serial: 30, ..Cursor::default() }];
        pipeline.status.as_mut().unwrap().dispatched = Some(Dispatched { cursors, ..Dispatched::default() });
        let mut requested = promotion((20, 0), &[Phase::Requested], "");
        let status = requested.status.as_mut().unwrap();
        (status.strategy, status.last_attempted_time) = (automatic().strategy, Some(at(100)));
        let sent = |notification: &str, outcome| {
            let status = DeliveryStatus { outcome: Some(outcome), ..DeliveryStatus::default() };
            Sent { notification: notification.to_owned(), serial: 30, time: at(100), status }
        };
        for (other, reason, succeeded) in [(Outcome::Delivered, "", true), (Outcome::Parked, "RequestFailed", false)] {
            let sent = [sent("ci", Outcome::Parked), sent("chat", other)];
            let calls =
                Behind { pipeline: pipeline.clone(), sent, is_read: AtomicBool::new(false), written: Mutex::default() };
            let promotions = [(requested.name_any(), Arc::new(requested.clone()))].into();
            let known = Seen { pipeline: Some(Arc::new(pipeline.clone())), promotions, ..Seen::default() };
            run(&calls, "u", known).await.unwrap();
            let written = calls.written.lock();
            let last = written.last().unwrap();
            assert_eq!((last.reason.as_str(), last.succeeded, written.len()), (reason, succeeded, 1), "{other:?}");
        }
    }

    #[test]
    fn only_valid_object_names_are_read() {
        for (text, is_name) in
            [("web", true), ("a.b-1", true), ("", false), ("..", false), ("a/status", false), ("A", false), ("a%2fb", false)]
        {
            assert_eq!(is_object_name(text), is_name, "{text}");
        }
    }
}
