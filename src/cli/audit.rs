//! `pennant audit`: what was sent, when, and what the receiver said.

use std::io::{self, Write};
use std::pin::pin;

use clap::{Args, ValueEnum};
use futures::{Stream, StreamExt as _};

use super::shared::Place;
use crate::api::{Time, now};
use crate::audit::{AuditError, Filter, Row, Wanted, changes, rows};
use crate::telemetry::chain;

/// The widths of columns are those of so many first rows.
const MEASURED: usize = 500;

#[derive(Debug, Args)]
pub(super) struct AuditArgs {
    /// Only of this Pipeline.
    #[arg(long)]
    pipeline: Option<String>,
    /// Only of this Notification.
    #[arg(long)]
    notification: Option<String>,
    /// Only those that stand so: pending, delivered, parked, canceled or superseded.
    #[arg(long, value_parser = state)]
    outcome: Option<Wanted>,
    /// Only those to which something has happened within this time, such as 30m, 12h or 7d.
    #[arg(long, value_name = "DURATION", value_parser = span)]
    since: Option<jiff::SignedDuration>,
    /// Go on, and print each again when it changes.
    #[arg(short, long)]
    watch: bool,
    /// How it is printed.
    #[arg(short, long, default_value = "table")]
    output: Output,
    #[command(flatten)]
    place: Place,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A line each.
    Table,
    /// An object of JSON a line.
    Json,
}

fn state(text: &str) -> Result<Wanted, String> {
    let found = Wanted::ALL.into_iter().find(|wanted| wanted.as_str().eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("there are {}", Wanted::ALL.map(Wanted::as_str).join(", ")))
}

/// A duration with days, which are 24 hours.
pub(super) fn span(text: &str) -> Result<jiff::SignedDuration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<i64>().ok()).and_then(|days| days.checked_mul(24));
    let parsed = match days {
        Some(hours) => jiff::SignedDuration::try_from_hours(hours),
        None => text.parse().ok(),
    };
    parsed.filter(jiff::SignedDuration::is_positive).ok_or_else(|| "a duration such as 30m, 12h or 7d".to_owned())
}

/// Prints the deliveries that are asked for.
pub(super) async fn audit(args: AuditArgs) -> anyhow::Result<()> {
    let client = args.place.client().await?;
    let own = args.place.namespace(&client);
    let namespace = Some(own.as_str()).filter(|_| !args.all_namespaces);
    let since = args.since.map(|span| now().checked_sub(span)).transpose()?;
    let filter = Filter { pipeline: args.pipeline, notification: args.notification, state: args.outcome, since };
    let out = Printer { all_namespaces: args.all_namespaces, output: args.output, widths: None, waiting: Vec::new() };
    let printed = if args.watch {
        // Whoever looks on wants each row when it comes.
        out.print(changes(&client, namespace, filter), 1, |error| {
            let _ = writeln!(io::stderr(), "pennant: {}; trying again", chain(&error));
            Ok(())
        })
        .await
    } else {
        out.print(rows(&client, namespace, filter), MEASURED, Err).await
    };
    match printed {
        // Whoever read it has seen enough.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) => Ok(()),
        printed => printed,
    }
}

struct Printer {
    all_namespaces: bool,
    output: Output,
    widths: Option<Vec<usize>>,
    waiting: Vec<Row>,
}

impl Printer {
    /// Prints rows as they come, once there are so many that the widths of columns are known.
    async fn print(
        mut self,
        rows: impl Stream<Item = Result<Row, AuditError>>,
        measured: usize,
        wrong: impl Fn(AuditError) -> Result<(), AuditError>,
    ) -> anyhow::Result<()> {
        let mut rows = pin!(rows);
        while let Some(row) = rows.next().await {
            match row {
                Ok(row) => self.waiting.push(row),
                Err(error) => wrong(error)?,
            }
            if self.output == Output::Json || self.widths.is_some() || self.waiting.len() >= measured {
                self.flush()?;
            }
        }
        self.flush()?;
        if self.widths.is_none() && self.output == Output::Table {
            writeln!(io::stderr(), "no deliveries found")?;
        }
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        let rows = std::mem::take(&mut self.waiting);
        if self.output == Output::Json {
            for row in &rows {
                writeln!(out, "{}", serde_json::to_string(row)?)?;
            }
            return Ok(out.flush()?);
        }
        let cells: Vec<_> = rows.iter().map(|row| cells(row, self.all_namespaces)).collect();
        let widths = if let Some(widths) = &self.widths {
            widths
        } else {
            let head = head(self.all_namespaces);
            let widths =
                (0..head.len()).map(|n| cells.iter().chain([&head]).map(|c| c[n].chars().count()).max().unwrap_or(0));
            let widths = self.widths.insert(widths.collect());
            writeln!(out, "{}", line(&head, widths))?;
            widths
        };
        for cells in &cells {
            writeln!(out, "{}", line(cells, widths))?;
        }
        Ok(out.flush()?)
    }
}

fn head(all_namespaces: bool) -> Vec<String> {
    let names = ["LAST", "PIPELINE", "NOTIFICATION", "TARGET", "TYPE", "REVISION", "OUTCOME", "CODE", "ATTEMPTS", "WHY"];
    all_namespaces.then_some("NAMESPACE").into_iter().chain(names).map(str::to_owned).collect()
}

fn cells(row: &Row, all_namespaces: bool) -> Vec<String> {
    let time = |time: Time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let why = [&row.reason, &row.error].into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(": ");
    let cells = [
        row.last().map_or_else(String::new, time),
        row.pipeline.clone(),
        row.notification.clone(),
        row.subject.clone(),
        row.type_.as_str().to_owned(),
        row.revision.clone(),
        row.state().to_owned(),
        row.code.map_or_else(String::new, |code| code.to_string()),
        row.attempts.to_string(),
        why,
    ];
    // Revisions and errors come from clusters and receivers: nothing of them is a command to a terminal.
    let harmless = |cell: String| cell.replace(char::is_control, " ");
    all_namespaces.then(|| row.namespace.clone()).into_iter().chain(cells).map(harmless).collect()
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect::<Vec<_>>();
    padded.join("   ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_days() {
        for (text, seconds) in [("90s", Some(90)), ("1h30m", Some(5400)), ("7d", Some(604_800)), ("0s", None), ("x", None)] {
            assert_eq!(span(text).ok().map(|span| span.as_secs()), seconds, "{text}");
        }
        assert_eq!(state("parked"), Ok(Wanted::ALL[2]));
        assert!(state("lost").unwrap_err().contains("Pending"));
    }

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        assert_eq!(line(&row(&["a", "é", ""]), &[3, 2, 4]), "a     é");
        assert_eq!(head(true).len(), head(false).len() + 1);
    }
}
