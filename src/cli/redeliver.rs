//! `relaybook redeliver`: sends settled deliveries again.

use std::io::{self, Write};

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::complete;
use super::shared::named::{self, of_delivery};
use super::shared::{Scope, failure};
use crate::options::values::span;
use relaybook_api::{Outcome, now};
use relaybook_tools::audit::{Filter, StateFilter, redeliver as mark, rows};

/// Maximum number of concurrent writes.
const PARALLEL: usize = 8;

#[derive(Debug, Args)]
pub(super) struct RedeliverArgs {
    /// Deliveries, as `NAME` or `TYPE/NAME`; `relaybook audit` and `kubectl get deliveries` show the names.
    #[arg(value_name = "NAME", required_unless_present = "parked", value_parser = named::delivery)]
    #[arg(conflicts_with_all = ["parked", "pipeline", "notification", "since", "all_namespaces"])]
    names: Vec<String>,
    /// All parked deliveries.
    #[arg(long)]
    parked: bool,
    /// With --parked: only deliveries of this Pipeline.
    #[arg(long, requires = "parked", value_parser = named::pipeline, add = complete::pipelines())]
    pipeline: Option<String>,
    /// With --parked: only deliveries of this Notification.
    #[arg(long, requires = "parked", value_parser = named::notification, add = complete::notifications())]
    notification: Option<String>,
    /// With --parked: only deliveries that this label selector selects, such as `relaybook.dev/environment=prod`.
    #[arg(short = 'l', long, requires = "parked", value_name = "SELECTOR")]
    selector: Option<String>,
    /// With --parked: only deliveries that were parked within this time, such as 30m, 12h or 7d.
    #[arg(long, requires = "parked", value_name = "DURATION", value_parser = span)]
    since: Option<jiff::SignedDuration>,
    /// Change nothing; only print what would be sent again.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub(super) scope: Scope,
}

/// Marks the requested deliveries, prints each, and fails if one could not be marked.
pub(super) async fn redeliver(args: RedeliverArgs) -> anyhow::Result<()> {
    let (client, own) = args.scope.place.open().await?;
    let those: Vec<(String, String)> = if args.parked {
        let since = args.since.map(|span| now().checked_sub(span)).transpose()?;
        let state = Some(StateFilter::Settled(Outcome::Parked));
        let filter = Filter {
            pipeline: args.pipeline,
            notification: args.notification,
            selector: args.selector,
            state,
            since,
            tests: false,
        };
        let namespace = Some(own.as_str()).filter(|_| !args.scope.all_namespaces);
        rows(&client, namespace, filter).map_ok(|row| (row.namespace, row.name)).try_collect().await?
    } else {
        args.names.into_iter().map(|name| (own.clone(), name)).collect()
    };
    if those.is_empty() {
        writeln!(io::stderr(), "no parked deliveries found")?;
    }
    let total = those.len();
    // Each run sets a new value of the annotation, even if two runs start in the same second.
    let value = format!("{}-{:04x}", now(), fastrand::u16(..));
    let marked = stream::iter(those).map(|(namespace, name)| {
        let (client, value, dry_run) = (client.clone(), value.clone(), args.dry_run);
        async move { (mark(&client, &namespace, &name, &value, dry_run).await, namespace, name) }
    });
    let mut marked = marked.buffered(PARALLEL);
    let (mut failed, mut out, mut is_read) = (0, io::stdout(), true);
    let words = if args.dry_run { "would be sent again" } else { "is sent again" };
    while let Some((result, namespace, name)) = marked.next().await {
        match result {
            // If the output pipe is closed, the remaining deliveries are still marked.
            Ok(()) if is_read => match writeln!(out, "{} in {namespace} {words}", of_delivery(&name)) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => is_read = false,
                written => written?,
            },
            Ok(()) => {}
            Err(error) if total == 1 => return Err(error.into()),
            Err(error) => {
                failed += 1;
                writeln!(io::stderr(), "relaybook: {}", failure::said(&error, &args.scope.place.access).await)?;
            }
        }
    }
    anyhow::ensure!(failed == 0, "{failed} of {total} deliveries could not be sent again");
    Ok(())
}
