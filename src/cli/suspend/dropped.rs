//! Deletes the pending deliveries of a suspended Notification.
//!
//! In: the rows of these deliveries. Out: their objects are gone, and the controller knows it. Relaybook never sends a pending delivery whose
//! object was deleted; the lane continues with the next one.

use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use kube::ResourceExt as _;
use tokio::time::{Instant, sleep};

use super::site::Site;
use crate::cli::shared::exit::{Code, Ended};
use crate::cli::shared::named::of_delivery;
use relaybook_api::Notification;
use relaybook_tools::audit::{Row, delete_pending};

/// Maximum number of concurrent deletions.
const PARALLEL: usize = 8;
/// How long the controller may take to see the deletions. It writes the number of pending deliveries every five seconds.
const SEEN_WITHIN: Duration = Duration::from_secs(30);
/// How long the number must fit.
const STEADY: Duration = Duration::from_secs(6);
/// Pause before each look at that number.
const PAUSE: Duration = Duration::from_millis(500);

/// Deletes these deliveries, prints each, and waits until the controller has seen that. The caller resumes the Notification afterwards.
/// Otherwise the controller could see that first, and send a delivery that is already deleted.
pub(super) async fn pending(site: &Site<'_>, notification: &Notification, rows: Vec<Row>) -> anyhow::Result<()> {
    // Pending deliveries that this person cannot list, and so does not delete.
    let hidden = (reported(notification) - count(&rows)).max(0);
    let deleted = stream::iter(rows).map(|Row { namespace, name, .. }| {
        let client = site.client.clone();
        async move { (delete_pending(&client, &namespace, &name).await, namespace, name) }
    });
    let mut deleted = std::pin::pin!(deleted.buffered(PARALLEL));
    while let Some((is_deleted, namespace, name)) = deleted.next().await {
        if is_deleted.context("nothing was resumed")? {
            writeln!(io::stdout(), "{} in {namespace} is deleted, and is never sent", of_delivery(&name))?;
        }
    }
    let end = Instant::now() + SEEN_WITHIN;
    let mut seen: Option<Instant> = None;
    loop {
        sleep(PAUSE).await;
        let current = site.notification(&notification.name_any()).await?;
        // Further changes may have been recorded meanwhile. They wait like all others.
        let left = count(&site.pending(&current).await?);
        let is_seen = reported(&current) <= left + hidden;
        // The number can be older than the deletions. It is written again within this time.
        seen = if is_seen { seen.or_else(|| Some(Instant::now())) } else { None };
        if seen.is_some_and(|since| since.elapsed() >= STEADY) {
            return Ok(());
        }
        if Instant::now() >= end {
            let (name, namespace) = (current.name_any(), &site.namespace);
            let text = format!(
                "the controller has not noticed the deletions within {} s, so {name} is still suspended; check that it runs \
                 (relaybook check), and repeat: relaybook resume notification/{name} --drop -n {namespace}",
                SEEN_WITHIN.as_secs()
            );
            return Err(Ended::new(Code::TimeOver, text).into());
        }
    }
}

/// Returns the number of pending deliveries that the controller knows.
fn reported(notification: &Notification) -> i64 {
    notification.status.as_ref().map_or(0, |status| status.pending)
}

fn count(rows: &[Row]) -> i64 {
    i64::try_from(rows.len()).unwrap_or(i64::MAX)
}
