//! Deletes settled deliveries that have been kept long enough, at a low rate.
//!
//! In: the kept deliveries from the delivery index, `retain` of the notifications, the persisted cursors. While the global configuration is
//! unknown, nothing is deleted, because it can change the retention limits. Out: deletes. Each delete applies only to the version on which
//! it was decided. So a delivery stays if a user has just requested its redelivery.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::retention_index::{Overdue, Persisted, Rules, Surplus};
use crate::outbox::driver::parts::Parts;
use crate::outbox::record::LaneKey;
use crate::outbox::send_gate::index::Cursors;
use relaybook_api::now;
use relaybook_runtime::tenure::Unowned;

/// Pause between two sweeps. The deletes of a sweep are also spread over this time.
const SWEEP: Duration = Duration::from_secs(10);
/// Number of deletes between two sweeps at first. Ten deletes a second cost the API server a hundredth of a core.
const FEW: usize = 100;
/// Maximum number of deletes between two sweeps. The number doubles with each sweep that finds at least the current number.
const MANY: usize = 1000;
/// How long a namespace is skipped after a failed delete.
const REST: Duration = Duration::from_mins(1);
/// A delete starts only if the Lease lasts for this time.
const CALL: Duration = Duration::from_secs(10);

/// By namespace: the time until which nothing is deleted there.
type Failing = HashMap<String, Instant>;

/// Deletes deliveries past their retention limit until `stop`. `cap`: the maximum number of deliveries that are kept in total.
pub async fn run(parts: Parts, cap: usize, stop: CancellationToken) -> &'static str {
    stop.run_until_cancelled(sweeps(&parts, cap)).await;
    "the retention of deliveries"
}

async fn sweeps(parts: &Parts, cap: usize) {
    let mut most = FEW;
    let mut failing = HashMap::new();
    loop {
        sleep(SWEEP).await;
        parts.metrics.kept(parts.delivery_index.kept());
        if !acts(parts) {
            parts.metrics.overdue(0);
            continue;
        }
        failing.retain(|_, until| *until > Instant::now());
        let Overdue { goes, count, .. } = overdue(parts, cap, most, &failing);
        parts.metrics.overdue(count);
        most = if goes.len() >= most { (most * 2).min(MANY) } else { (most / 2).max(FEW) };
        take_away(parts, goes, most, &mut failing).await;
        expire_tests(parts).await;
    }
}

/// Deletes the Deliveries of tests that were kept long enough. One replica does it.
async fn expire_tests(parts: &Parts) {
    if !parts.lease.owns_common() {
        return;
    }
    let (mut failing, mut deleted) = (HashSet::new(), 0);
    for id in parts.tests_kept.expired(now()) {
        if failing.contains(&id.namespace) {
            continue;
        }
        if !acts(parts) || deleted == FEW {
            return;
        }
        match parts.journal.delete(Unowned::Retention.into(), &id, u64::MAX).await {
            // A watch can have missed that it is gone.
            Ok(_) => {
                parts.tests_kept.gone(&id);
                deleted += 1;
            }
            Err(error) => {
                tracing::warn!(error = %error.detail(), delivery = %id.name, namespace = %id.namespace, "could not delete the Delivery of a test");
                failing.insert(id.namespace);
            }
        }
    }
}

/// Returns whether this replica holds buckets, everything was listed in its leadership term, and the Lease lasts for one call.
fn acts(parts: &Parts) -> bool {
    let term = parts.lease.term().map(|term| term.number);
    term.is_some() && parts.pipeline_index.read().term() == term && parts.lease.allows(CALL)
}

fn overdue(parts: &Parts, cap: usize, most: usize, failing: &Failing) -> Overdue {
    // The delivery index calls this for its lanes while it is locked, so the pipeline index is locked before.
    let known = parts.pipeline_index.read();
    let is_known = known.source().unknown.is_none();
    let rules = |lane: &LaneKey| {
        let notification = known.of_lane(lane);
        let home = notification.map_or(&lane.namespace, |notification| &notification.home);
        let is_known = is_known && known.is_watched(&lane.namespace);
        let (resting, elsewhere) = (failing.contains_key(home), !parts.lease.owns(&lane.pipeline));
        // If the notification is gone, the built-in defaults apply.
        let retain = notification.map(|notification| notification.delivery.retain).unwrap_or_default();
        let cursor = if is_known { persisted(known.cursors(), lane) } else { Persisted::Unknown };
        Rules { retain, cursor, resting, elsewhere }
    };
    parts.delivery_index.overdue(rules, known.meanings(), cap, most, now())
}

fn persisted<'a>(cursors: &'a HashMap<String, Arc<Cursors>>, lane: &LaneKey) -> Persisted<'a> {
    match cursors.get(&lane.pipeline).map(AsRef::as_ref) {
        None => Persisted::Gone,
        Some(None) => Persisted::Unknown,
        Some(Some(cursors)) => cursors.get(&lane.notification).map_or(Persisted::Gone, Persisted::At),
    }
}

async fn take_away(parts: &Parts, surplus: Vec<Surplus>, most: usize, failing: &mut Failing) {
    let begun = Instant::now();
    let gap = SWEEP / u32::try_from(most).unwrap_or(u32::MAX);
    for (at, one) in (0u32..).zip(surplus) {
        sleep_until(begun + gap * at).await;
        if !acts(parts) {
            return;
        }
        if failing.contains_key(&one.id.namespace) {
            continue;
        }
        match parts.journal.delete(Unowned::Retention.into(), &one.id, one.version).await {
            Ok(true) => parts.metrics.removed(one.reason),
            Ok(false) => {}
            Err(error) => {
                // No retry is needed, because a later sweep finds it again.
                tracing::warn!(error = %error.detail(), delivery = %one.id.name, namespace = %one.id.namespace, "could not delete a delivery");
                failing.insert(one.id.namespace, Instant::now() + REST);
            }
        }
    }
}
