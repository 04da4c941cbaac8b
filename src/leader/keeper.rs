//! Keeps one Lease: carries out the decisions of `candidacy`, and publishes the current state.
//!
//! In: the Lease object and the signal to stop. Out: the state of [`Lease`]. A call is never canceled halfway, because its result would not
//! be known.

use std::sync::Arc;
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

use super::bucket::{Bucket, Buckets};
use super::candidacy::{Candidacy, RETRY, Step, Wrote};
use super::table::{Write, object, read};
use super::{LeadershipTerm, Lease, Uses, View};
use crate::api::since_boot;
use crate::telemetry::{Metrics, chain, metrics};

/// Deadline of a call.
const DEADLINE: Duration = Duration::from_secs(5);

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
    /// Name of the Lease.
    pub name: &'static str,
    /// `holderIdentity`: the name of the pod. Two processes that run at the same time must not share it.
    pub identity: String,
}

/// The task that keeps a Lease.
pub struct Keeper {
    api: Api<Object>,
    named: Named,
    state: Candidacy,
    view: watch::Sender<View>,
    term_numbers: watch::Sender<Option<u64>>,
    above: watch::Receiver<i32>,
    uses: Arc<Uses>,
    label: metrics::Lease,
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
        label: metrics::Lease,
        metrics: Metrics,
        decided: impl FnOnce() + Send + Sync + 'static,
    ) -> (Self, Lease) {
        metrics.lease_held(label, false);
        let uses = Arc::new(Uses::default());
        let (view, views) = watch::channel(View::default());
        let (term_numbers, numbers) = watch::channel(None);
        let (raise, above) = watch::channel(0);
        let keeper = Self {
            api: Api::namespaced(client, &named.namespace),
            state: Candidacy::new(&named.identity, crate::api::now()),
            named,
            view,
            term_numbers,
            above,
            uses: uses.clone(),
            label,
            metrics,
            decided: Some(Box::new(decided)),
            complaint: None,
        };
        (keeper, Lease { view: views, term_numbers: numbers, above: raise, uses })
    }

    /// Keeps the Lease until `stop`, then releases it so that another replica continues at once.
    pub async fn run(mut self, stop: CancellationToken) {
        let watched = watch_object(self.api.clone(), self.named.name).default_backoff();
        // The watch never ends. If it did, an expired Lease would still be polled.
        let mut watched = watched.chain(stream::pending()).boxed();
        while !stop.is_cancelled() {
            let mut next = self.state.next(since_boot(), crate::api::now(), Buckets::NONE);
            // Work that was begun before the publication is counted after it.
            self.publish();
            if matches!(next, Step::Wait(_)) && self.state.held().is_some_and(|held| !held.giving.is_empty()) {
                next = self.state.next(since_boot(), crate::api::now(), self.uses.idle());
            }
            match next {
                Step::Look => self.look().await,
                Step::Write(write) => self.write(&write).await,
                Step::Wait(until) => tokio::select! {
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(until.saturating_sub(since_boot())) => {}
                    Some(event) = watched.next() => self.on_watch_event(event),
                    Ok(()) = self.above.changed() => self.state.raise(*self.above.borrow_and_update()),
                    () = self.uses.ended.notified() => {}
                },
            }
            self.publish();
        }
        if let Some(write) = self.state.resign() {
            self.write(&write).await;
            self.publish();
        }
    }

    fn on_watch_event(&mut self, event: watcher::Result<Option<Object>>) {
        match event {
            Ok(object) => self.state.on_watch_event(object.as_ref().map(read), since_boot()),
            Err(error) => {
                // Without the watch the Lease is still kept, but a failover takes longer.
                tracing::warn!(lease = self.named.name, error = %chain(&error), "the watch of the Lease was interrupted; restarting it");
            }
        }
    }

    async fn look(&mut self) {
        let found = self.call(self.api.get_opt(self.named.name)).await;
        match found {
            Ok(object) => self.state.on_read(object.as_ref().map(read), since_boot()),
            Err(error) => {
                self.complain(&error);
                self.state.on_read_failed(since_boot());
            }
        }
    }

    async fn write(&mut self, write: &Write) {
        let object = object(self.named.name, write);
        let (sent, params) = (since_boot(), PostParams::default());
        let answer = match write.over {
            None => self.call(self.api.create(&params, &object)).await,
            Some(_) => self.call(self.api.replace(self.named.name, &params, &object)).await,
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
            tracing::warn!(lease = self.named.name, held, error = %text, "request for the Lease failed; retrying every {RETRY:?}");
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
        let view = View { term, buckets, until: held.map_or(Duration::ZERO, |held| held.until) };
        if self.state.decided() {
            self.decided.take().into_iter().for_each(|decided| decided());
        }
        self.log(before, view);
        self.view.send_if_modified(|old| std::mem::replace(old, view) != view);
        let known = term.map(|term| term.number).or(self.state.decided().then_some(number));
        self.term_numbers
            .send_if_modified(|number| known.is_some() && std::mem::replace(number, known.max(*number)) < known);
        self.metrics.lease_held(self.label, view.term.is_some());
        let all = self.state.held().map_or(Buckets::NONE, |held| held.buckets);
        for bucket in Bucket::all() {
            self.metrics.bucket_held(self.label, bucket.number(), all.contains(bucket));
        }
        if let Some(epoch) = self.state.epoch() {
            self.metrics.lease_epoch(self.label, epoch);
        }
    }

    fn log(&self, before: View, view: View) {
        let (lease, identity) = (self.named.name, self.named.identity.as_str());
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
