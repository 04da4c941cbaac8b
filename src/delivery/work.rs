//! One piece of work on one delivery, from the moment its lane gives it out until the answer to its write is back.
//!
//! In: a record and what is to be done with it. Out: [`Worked`]. It runs in a task of its own and touches nothing of the
//! engine's; whatever it decides is decided by the pure functions of `decide`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::BackoffBuilder as _;
use tokio::sync::Semaphore;

use super::decide::{self, At, Then};
use super::directory::{Gone, PipelineFacts};
use super::journal::{Journal, Written};
use super::lane::After;
use super::ledger::Ledger;
use super::record::{LaneKey, Record};
use super::request::build;
use super::{confirm, directory};
use crate::api::{DeliveryStatus, now};
use crate::config::{EffectiveNotification, Retry};
use crate::send::{Attempt, AttemptResult, Sender};
use crate::telemetry::Metrics;

/// What the engine's work needs.
#[derive(Clone)]
pub struct Parts {
    /// Where deliveries are kept.
    pub journal: Journal,
    /// What may be sent.
    pub directory: directory::Directory,
    /// What is known of all.
    pub ledger: Ledger,
    /// Who sends.
    pub sender: Arc<Sender>,
    /// For live reads.
    pub client: kube::Client,
    /// The name of the local cluster.
    pub cluster_name: String,
    /// What is counted.
    pub metrics: Metrics,
    /// Work that holds no worker of the pool (waiting, canceling) is bounded by this.
    pub aside: Arc<Semaphore>,
}

/// A piece of work that is over.
#[derive(Debug)]
pub struct Worked {
    /// The lane.
    pub lane: LaneKey,
    /// The origin whose worker was held.
    pub origin: Option<String>,
    /// The record as it now stands.
    pub record: Record,
    /// What the lane does next.
    pub after: After,
    /// The object was deleted meanwhile.
    pub gone: bool,
    /// Whether the status says something that it did not say before.
    pub news: bool,
}

/// Makes one attempt and writes what came of it.
pub async fn attempt(
    parts: Parts,
    mut record: Record,
    sending: Arc<EffectiveNotification>,
    facts: Arc<PipelineFacts>,
    failures: u32,
    origin: String,
) -> Worked {
    let (status, then) = match &sending.sending {
        Ok(how) => match build(&record, how, &facts) {
            Ok(outgoing) => {
                let attempt = parts.sender.send(outgoing).await;
                observe(&parts, &record, &attempt);
                let before = std::mem::take(&mut record.not_found);
                record.not_found = if attempt.result.status() == Some(404) { before + 1 } else { 0 };
                decide::attempted(&record.status, &attempt, before, &sending.retry, record.recorded, failures, at())
            }
            Err(error) => {
                let retry = Some(&sending.retry);
                decide::blocked(
                    &record.status,
                    "TemplateInvalid",
                    &error.to_string(),
                    retry,
                    record.recorded,
                    failures,
                    at(),
                )
            }
        },
        Err(p) => {
            let (reason, message) = (p.reason(), p.to_string());
            decide::blocked(&record.status, reason, &message, Some(&sending.retry), record.recorded, failures, at())
        }
    };
    store(&parts, record, status, then, Some(origin)).await
}

/// Writes why a delivery waits.
pub async fn wait(
    parts: Parts,
    record: Record,
    reason: &'static str,
    message: String,
    until: Option<Retry>,
    failures: u32,
) -> Worked {
    let _permit = parts.aside.acquire().await;
    let (status, then) = decide::blocked(&record.status, reason, &message, until.as_ref(), record.recorded, failures, at());
    store(&parts, record, status, then, None).await
}

/// Cancels a delivery whose pipeline, target or notification is gone; unless that is sure, after a live read has said so.
pub async fn cancel(parts: Parts, record: Record, what: Gone, sure: bool) -> Worked {
    let _permit = parts.aside.acquire().await;
    if !sure {
        match confirm::is_gone(&parts.client, &parts.cluster_name, &record.spec, what).await {
            Ok(true) => {}
            Ok(false) => return untouched(record, Duration::from_secs(5)),
            Err(error) => {
                tracing::warn!(%error, delivery = %record.id.name, "could not confirm what is gone; asking again");
                return untouched(record, Duration::from_secs(5));
            }
        }
    }
    let status = decide::canceled(&record.status, what.reason(), now());
    store(&parts, record, status, Then::Settle { answered: false }, None).await
}

fn untouched(record: Record, again: Duration) -> Worked {
    let until = Some(Instant::now() + again);
    Worked { lane: record.lane(), origin: None, record, after: After::Hold { until }, gone: false, news: false }
}

fn at() -> At {
    At { now: now(), chance: fastrand::f64() }
}

fn observe(parts: &Parts, record: &Record, attempt: &Attempt) {
    if matches!(attempt.result, AttemptResult::NotSent(_)) {
        return;
    }
    if record.status.attempts == 0 {
        let after = attempt.started.duration_since(record.spec.time);
        parts.metrics.first_attempt(Duration::try_from(after).unwrap_or_default());
    }
    parts.ledger.attempted(record, attempt.started, attempt.result.error().as_deref());
}

/// Writes a status until the answer is back. What is known in memory is never sent again for want of a write: the lane waits.
async fn store(parts: &Parts, mut record: Record, status: DeliveryStatus, then: Then, origin: Option<String>) -> Worked {
    let decided = Instant::now();
    let after = match then {
        Then::Settle { answered } => After::Settled { answered },
        Then::Retry { after, asked } => After::Retry { until: decided + after, asked },
        Then::Hold { after } => After::Hold { until: after.map(|a| decided + a) },
    };
    let lane = record.lane();
    if status == record.status {
        return Worked { lane, origin, record, after, gone: false, news: false };
    }
    let mut pauses = backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(10))
        .with_jitter()
        .without_max_times()
        .build();
    loop {
        match parts.journal.write(&record, &status).await {
            Ok(Written::Stored { version }) => {
                record.version = version;
                record.status = status;
                return Worked { lane, origin, record, after, gone: false, news: true };
            }
            Ok(Written::Gone) => {
                return Worked { lane, origin, record, after: After::Settled { answered: false }, gone: true, news: false };
            }
            Err(error) => {
                tracing::warn!(error = %error.detail(), delivery = %record.id.name, "a status could not be written; the lane waits");
                tokio::time::sleep(pauses.next().unwrap_or(Duration::from_secs(10))).await;
            }
        }
    }
}
