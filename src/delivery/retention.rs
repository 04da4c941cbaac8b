//! Takes away settled deliveries that have been kept long enough, at leisure.
//!
//! In: what the ledger says is kept, the notifications' `retain`, the persisted cursors. Out: deletes, each only of the very
//! version on which it was decided, so that one that a person has just asked to be sent again stays.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::kept::{Persisted, Rules, Surplus};
use super::record::LaneKey;
use super::work::Parts;
use crate::api::now;

/// Between two looks at what is kept.
const SWEEP: Duration = Duration::from_secs(10);
/// Deletes between two looks, to begin with: ten a second cost the API server a hundredth of a core.
const FEW: usize = 100;
/// When there is more to take away than that, look after look.
const MANY: usize = 1000;
/// A delete is begun only if the Lease lasts so long.
const CALL: Duration = Duration::from_secs(10);

/// Takes away what has been kept long enough until `stop`. `cap`: so many are kept in all.
pub async fn run(parts: Parts, cap: usize, stop: CancellationToken) -> &'static str {
    stop.run_until_cancelled(sweeps(&parts, cap)).await;
    "taking away old deliveries"
}

async fn sweeps(parts: &Parts, cap: usize) {
    let mut most = FEW;
    loop {
        sleep(SWEEP).await;
        parts.metrics.kept(parts.ledger.kept());
        if !acts(parts) {
            continue;
        }
        let surplus = surplus(parts, cap, most);
        most = if surplus.len() >= most { (most * 2).min(MANY) } else { (most / 2).max(FEW) };
        take_away(parts, surplus, most).await;
    }
}

/// Whether this replica acts, and everything was listed since.
fn acts(parts: &Parts) -> bool {
    let turn = parts.lease.tenure().map(|tenure| tenure.turn);
    turn.is_some() && parts.directory.turn() == turn && parts.lease.may(CALL)
}

fn surplus(parts: &Parts, cap: usize, most: usize) -> Vec<Surplus> {
    let directory = &parts.directory;
    // Of a notification that is gone, what is built in holds.
    let mut retain = HashMap::new();
    for ((namespace, name), notification) in directory.all_notifications() {
        retain.insert((namespace, name), notification.delivery.retain);
    }
    let cursors = directory.cursors();
    let rules = |lane: &LaneKey| {
        let retain = retain.get(&(lane.namespace.clone(), lane.notification.clone())).copied().unwrap_or_default();
        let cursor = match cursors.get(&lane.pipeline) {
            None => Persisted::Gone,
            Some(cursors) => match cursors.as_ref() {
                None => Persisted::Unknown,
                Some(cursors) => cursors.get(&lane.notification).map_or(Persisted::Gone, |serial| Persisted::At(*serial)),
            },
        };
        Rules { retain, cursor }
    };
    parts.ledger.surplus(rules, cap, most, now())
}

async fn take_away(parts: &Parts, surplus: Vec<Surplus>, most: usize) {
    let begun = Instant::now();
    let gap = SWEEP / u32::try_from(most).unwrap_or(u32::MAX);
    for (at, one) in (0u32..).zip(surplus) {
        sleep_until(begun + gap * at).await;
        if !acts(parts) {
            return;
        }
        match parts.journal.delete(&one.id, one.version).await {
            Ok(()) => parts.metrics.removed(one.reason),
            Err(error) => {
                // There is no hurry: the next look finds it again.
                tracing::debug!(error = %error.detail(), delivery = %one.id.name, "a delivery could not be taken away");
                return;
            }
        }
    }
}
