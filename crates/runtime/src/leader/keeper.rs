//! Keeps one Lease: carries out the decisions of `candidacy`, and publishes the current state.
//!
//! In: the Lease object and the signal to stop. Out: the state of [`Lease`]. A call is never canceled halfway, because its result would not
//! be known.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease as Object;
use kube::api::PostParams;
use kube::runtime::watcher::watch_object;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{LeadershipTerm, Lease, Needs, Uses, View};
use relaybook_api::values::shard::Sharding;
use relaybook_api::{Time, since_boot};
use relaybook_core::leader::bucket::{Bucket, Buckets};
use relaybook_core::leader::candidacy::{Candidacy, RETRY, Step, Wrote};
use relaybook_core::leader::table::{Write, object, read};
use relaybook_telemetry::{Metrics, chain};

/// Deadline of a call.
const DEADLINE: Duration = Duration::from_secs(5);
/// Time in which objects from other shards are collected, before a term begins for them.
const COLLECT: Duration = Duration::from_millis(500);
/// Minimum time between two terms that begin for such objects.
const RENEWALS: Duration = Duration::from_secs(10);

/// Why a Lease could not be read or written.
#[derive(Debug, Error)]
pub enum LeaseError {
    /// There is no such namespace.
    #[error("namespace {0} does not exist; create it, or name another with --namespace")]
    NoNamespace(String),
    /// Permissions are missing.
    #[error("leases in namespace {0} are forbidden; the service account needs get, list, watch, create and update on them")]
    Forbidden(String, #[source] Box<kube::Error>),
    /// Everything else.
    #[error("the API server is unreachable")]
    Api(#[source] Box<kube::Error>),
    /// The API server did not respond in time.
    #[error("the API server did not answer in time")]
    Timeout,
}

/// Name and namespace of a Lease, and the identity of this replica.
#[derive(Clone, Debug)]
pub struct Named {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease, without the ID of the shard.
    pub name: &'static str,
    /// The shard of this process.
    pub sharding: Sharding,
    /// `holderIdentity`: the name of the pod. Two processes that run at the same time must not share it.
    pub identity: String,
    /// How long the usual work in a bucket takes at most. For longer work, the membership is extended first.
    pub work: Duration,
}

/// The task that keeps a Lease.
pub struct Keeper {
    api: Api<Object>,
    named: Named,
    /// Name of the Lease.
    name: String,
    state: Candidacy,
    view: watch::Sender<View>,
    term_numbers: watch::Sender<Option<u64>>,
    above: watch::Receiver<i32>,
    came: watch::Receiver<(u64, i32)>,
    /// When the next term must begin because of objects from other shards, and when the last one began.
    renewal: (Option<Duration>, Duration),
    uses: Arc<Uses>,
    needs: Arc<Needs>,
    metrics: Metrics,
    /// Called once, as soon as the holders of the buckets are known.
    decided: Option<Box<dyn FnOnce() + Send + Sync>>,
    /// The last error that was logged.
    complaint: Option<String>,
}

impl Keeper {
    /// Returns a keeper, and access to its state. `decided` is called once, as soon as the holders of the buckets are
    /// known.
    #[must_use]
    pub fn new(
        client: Client,
        named: Named,
        metrics: Metrics,
        decided: impl FnOnce() + Send + Sync + 'static,
    ) -> (Self, Lease) {
        let name = named.sharding.lease(named.name);
        metrics.lease_held(&name, false);
        let sharding = Arc::new(named.sharding.clone());
        let uses = Arc::new(Uses::default());
        let needs = Arc::new(Needs::new(named.work));
        let (view, views) = watch::channel(View::default());
        let (term_numbers, numbers) = watch::channel(None);
        let (raise, above) = watch::channel(0);
        let (came, comes) = watch::channel((0, 0));
        let keeper = Self {
            api: Api::namespaced(client, &named.namespace),
            state: Candidacy::new(&named.identity, relaybook_api::now(), needs.lasts(since_boot())),
            named,
            name,
            view,
            term_numbers,
            above,
            came: comes,
            renewal: (None, Duration::ZERO),
            uses: uses.clone(),
            needs: needs.clone(),
            metrics,
            decided: Some(Box::new(decided)),
            complaint: None,
        };
        let assigned = Arc::default();
        (keeper, Lease { view: views, term_numbers: numbers, above: raise, came, uses, sharding, assigned, needs })
    }

    /// Keeps the Lease until `stop`, then releases it so that another replica continues at once.
    pub async fn run(mut self, stop: CancellationToken) {
        let watched = watch_object(self.api.clone(), &self.name).default_backoff();
        // The watch never ends. If it did, an expired Lease would still be polled.
        let mut watched = watched.chain(stream::pending()).boxed();
        while !stop.is_cancelled() {
            self.renew_if_due();
            self.state.set_lasts(self.needs.lasts(since_boot()), since_boot());
            // Work that was begun before these buckets were published as given away is counted.
            let given = self.giving();
            let next = self.state.next(since_boot(), relaybook_api::now(), self.uses.idle().also_in(given));
            self.publish();
            if self.giving() != given {
                continue;
            }
            match next {
                Step::Read => self.read().await,
                Step::Write(write) => self.write(&write).await,
                Step::Wait(until) => tokio::select! {
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(until.min(self.renewal.0.unwrap_or(until)).saturating_sub(since_boot())) => {}
                    Some(event) = watched.next() => self.on_watch_event(event),
                    Ok(()) = self.above.changed() => self.state.raise(*self.above.borrow_and_update()),
                    Ok(()) = self.came.changed() => {
                        let due = (since_boot() + COLLECT).max(self.renewal.1 + RENEWALS);
                        self.renewal.0.get_or_insert(due);
                    }
                    () = self.uses.ended.notified() => {}
                    () = self.needs.grown.notified() => {}
                },
            }
            self.publish();
        }
        // Other replicas write the Lease, too, so the first write can conflict.
        while let Some(step) = self.state.resign(since_boot()) {
            match step {
                Step::Write(write) => self.write(&write).await,
                Step::Read => self.read().await,
                Step::Wait(until) => tokio::time::sleep(until.saturating_sub(since_boot())).await,
            }
            self.publish();
        }
    }

    /// Begins a new term, if objects have come from other shards. Several are collected, because each term begins with new lists.
    fn renew_if_due(&mut self) {
        if self.renewal.0.is_some_and(|due| due <= since_boot()) {
            let (_, above) = *self.came.borrow_and_update();
            self.state.raise(self.state.held().map_or(above, |held| held.epoch.max(above)));
            self.renewal = (None, since_boot());
        }
    }

    fn giving(&self) -> Buckets {
        self.state.held().map_or(Buckets::NONE, |held| held.giving)
    }

    fn on_watch_event(&mut self, event: watcher::Result<Option<Object>>) {
        match event {
            Ok(object) => self.state.on_watch_event(object.as_ref().map(read), since_boot()),
            Err(error) => {
                // Without the watch the Lease is still kept, but a failover takes longer.
                tracing::warn!(lease = self.name, error = %chain(&error), "the watch of the Lease was interrupted; restarting it");
            }
        }
    }

    async fn read(&mut self) {
        let found = self.call(self.api.get_opt(&self.name)).await;
        match found {
            Ok(object) => self.state.on_read(object.as_ref().map(read), since_boot()),
            Err(error) => {
                self.complain(&error);
                self.state.on_read_failed(since_boot());
            }
        }
    }

    async fn write(&mut self, write: &Write) {
        let object = object(&self.name, write, Time::now());
        let (sent, params) = (since_boot(), PostParams::default());
        let answer = match write.over {
            None => self.call(self.api.create(&params, &object)).await,
            Some(_) => self.call(self.api.replace(&self.name, &params, &object)).await,
        };
        let outcome = match answer {
            Ok(stored) => Wrote::Done(read(&stored)),
            Err(LeaseError::Api(error)) if is_conflict(&error, write) => Wrote::Conflict,
            Err(error) => {
                self.complain(&error);
                Wrote::Unknown
            }
        };
        if matches!(outcome, Wrote::Done(_)) {
            self.complaint = None;
        }
        self.state.on_write_result(write, sent, since_boot(), outcome);
    }

    async fn call<T>(&self, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, LeaseError> {
        let answer = tokio::time::timeout(DEADLINE, call).await.map_err(|_| LeaseError::Timeout)?;
        answer.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 403 && status.message.contains("because it is being deleted") => {
                LeaseError::NoNamespace(self.named.namespace.clone())
            }
            kube::Error::Api(status) if status.code == 403 => {
                LeaseError::Forbidden(self.named.namespace.clone(), Box::new(error))
            }
            kube::Error::Api(status) if status.code == 404 && status.message.contains("namespaces") => {
                LeaseError::NoNamespace(self.named.namespace.clone())
            }
            _ => LeaseError::Api(Box::new(error)),
        })
    }

    /// Logs an error once, until another error or a successful write.
    fn complain(&mut self, error: &LeaseError) {
        let text = chain(error);
        if self.complaint.as_ref() != Some(&text) {
            let held = self.state.held().is_some();
            tracing::warn!(lease = self.name, held, error = %text, "request for the Lease failed; retrying every {RETRY:?}");
            self.complaint = Some(text);
        }
        // The holder is unknown, so a component that waits to start can start.
        self.term_numbers.send_if_modified(|number| std::mem::replace(number, number.or(Some(0))).is_none());
    }

    /// Publishes the current state, if it has changed.
    fn publish(&mut self) {
        let before = *self.view.borrow();
        let held = self.state.held();
        // Buckets for which no renewal was answered yet are not certainly ours.
        let held = held.filter(|held| !held.until.is_zero() || before.term.is_some());
        let buckets = held.map_or(Buckets::NONE, |held| held.buckets.without(held.giving));
        let number = self.term_numbers.borrow().unwrap_or(0);
        // Buckets are gained, and an epoch is raised, by a write with another epoch.
        let held = held.filter(|_| !buckets.is_empty());
        let is_same = held.is_none_or(|held| before.term.is_some_and(|term| term.epoch == held.epoch));
        let number = if is_same { number } else { number + 1 };
        let term = held.map(|held| LeadershipTerm { number, epoch: held.epoch });
        let mut since = before.since;
        for bucket in buckets.without(before.buckets).iter() {
            since[bucket.index()] = number;
        }
        let view = View { term, buckets, since, until: held.map_or(Duration::ZERO, |held| held.until) };
        if self.state.decided() {
            self.decided.take().into_iter().for_each(|decided| decided());
        }
        self.log(before, view);
        self.view.send_if_modified(|old| std::mem::replace(old, view) != view);
        // After the publication, and before the counts are read.
        self.uses.given.store(self.giving().bits(), Ordering::SeqCst);
        let known = term.map(|term| term.number).or(self.state.decided().then_some(number));
        self.term_numbers
            .send_if_modified(|number| known.is_some() && std::mem::replace(number, known.max(*number)) < known);
        self.metrics.lease_held(&self.name, view.term.is_some());
        let all = self.state.held().map_or(Buckets::NONE, |held| held.buckets);
        for bucket in Bucket::all() {
            self.metrics.bucket_held(&self.name, bucket.number(), all.contains(bucket));
        }
        if let Some(epoch) = self.state.epoch() {
            self.metrics.lease_epoch(&self.name, epoch);
        }
    }

    fn log(&self, before: View, view: View) {
        let (lease, identity) = (self.name.as_str(), self.named.identity.as_str());
        let (gained, lost) = (view.buckets.without(before.buckets), before.buckets.without(view.buckets));
        match (before.term, view.term) {
            (None, Some(term)) => {
                tracing::info!(lease, identity, epoch = term.epoch, buckets = ?view.buckets, "acquired leadership");
            }
            (Some(_), None) => tracing::info!(lease, identity, ?lost, "lost leadership"),
            (_, Some(term)) if !gained.is_empty() || !lost.is_empty() => {
                tracing::info!(lease, identity, epoch = term.epoch, buckets = ?view.buckets, ?gained, ?lost, "buckets have moved");
            }
            _ => {}
        }
    }
}

/// Whether the stored Lease was not the one that the write was to replace.
fn is_conflict(error: &kube::Error, write: &Write) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.is_conflict() || status.is_already_exists() || (write.over.is_some() && status.is_not_found())
}
