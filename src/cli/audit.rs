//! `relaybook audit`: which messages were sent, when, and what the receivers answered.

use std::io::{self, Write};
use std::pin::pin;

use clap::{Args, ValueEnum};
use futures::{Stream, StreamExt as _, TryStreamExt as _};

use super::shared::table::{Table, shown};
use super::shared::{Place, failure, named};
use crate::app::Access;
use crate::options::values::span;
use relaybook_api::{Time, now};
use relaybook_tools::audit::{AuditError, Filter, Row, StateFilter, changes, newest_first, rows};

#[derive(Debug, Args)]
pub(super) struct AuditArgs {
    /// Only deliveries of this Pipeline.
    #[arg(long, value_parser = named::pipeline)]
    pipeline: Option<String>,
    /// Only deliveries of this Notification.
    #[arg(long, value_parser = named::notification)]
    notification: Option<String>,
    /// Only deliveries that this label selector selects, such as `relaybook.dev/environment=prod`.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Only deliveries in this state: pending, delivered, parked, canceled or superseded.
    #[arg(long, value_parser = state)]
    outcome: Option<StateFilter>,
    /// Only deliveries that changed within this time, such as 30m, 12h or 7d.
    #[arg(long, value_name = "DURATION", value_parser = span)]
    since: Option<jiff::SignedDuration>,
    /// Print the existing deliveries, the newest last, and then each one again when it changes.
    #[arg(short, long)]
    watch: bool,
    /// The output format.
    #[arg(short, long, default_value = "table")]
    output: Output,
    #[command(flatten)]
    pub(super) place: Place,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// One line for each delivery, the newest first.
    Table,
    /// A list of objects, the newest first; with --watch, one object on each line.
    Json,
}

fn state(text: &str) -> Result<StateFilter, String> {
    let found = StateFilter::ALL.into_iter().find(|state| state.as_str().eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("allowed values: {}", StateFilter::ALL.map(StateFilter::as_str).join(", ")))
}

/// Prints the requested deliveries.
pub(super) async fn audit(args: AuditArgs) -> anyhow::Result<()> {
    let (client, own) = args.place.open().await?;
    let namespace = Some(own.as_str()).filter(|_| !args.all_namespaces);
    let since = args.since.map(|span| now().checked_sub(span)).transpose()?;
    let filter = Filter {
        pipeline: args.pipeline,
        notification: args.notification,
        selector: args.selector,
        state: args.outcome,
        since,
    };
    let table = Table::new(&COLUMNS, usize::from(!args.all_namespaces)..COLUMNS.len());
    if args.watch {
        follow(changes(&client, namespace, filter), args.output, table, &args.place.access).await
    } else {
        let mut all: Vec<_> = rows(&client, namespace, filter).try_collect().await?;
        newest_first(&mut all);
        print(&all, args.output, table).map_err(anyhow::Error::from)
    }
}

fn print(rows: &[Row], output: Output, mut table: Table) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match output {
        Output::Json => {
            serde_json::to_writer_pretty(&mut out, rows)?;
            writeln!(out)?;
        }
        Output::Table if rows.is_empty() => writeln!(io::stderr(), "no deliveries found")?,
        Output::Table => table.write(&mut out, rows.iter().map(cells))?,
    }
    out.flush()
}

/// Prints rows as they arrive, until printing fails, or the API server permanently rejects the first request.
async fn follow(
    changes: impl Stream<Item = Result<Vec<Row>, AuditError>>,
    output: Output,
    mut table: Table,
    access: &Access,
) -> anyhow::Result<()> {
    let mut changes = pin!(changes);
    let (mut is_begun, mut last) = (false, String::new());
    while let Some(rows) = changes.next().await {
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) if !is_begun && failure::is_final(&error) => return Err(error.into()),
            Err(error) => {
                let said = failure::said(&error, access).await;
                if said != last {
                    writeln!(io::stderr(), "relaybook: {said}; trying again")?;
                    last = said;
                }
                continue;
            }
        };
        (is_begun, last) = (true, String::new());
        let mut out = io::BufWriter::new(io::stdout().lock());
        match output {
            Output::Json => {
                for row in &rows {
                    writeln!(out, "{}", serde_json::to_string(row)?)?;
                }
            }
            Output::Table => table.write(&mut out, rows.iter().map(cells))?,
        }
        out.flush()?;
    }
    Ok(())
}

/// The columns and their minimum widths. The minimum fits most values of later rows, where those are known.
const COLUMNS: [(&str, usize); 12] = [
    ("NAMESPACE", 0),
    ("NAME", 0),
    ("LAST ATTEMPT", 20),
    ("PIPELINE", 0),
    ("NOTIFICATION", 0),
    ("SUBJECT", 0),
    ("TYPE", 11),
    ("REVISION", 0),
    ("OUTCOME", 10),
    ("ATTEMPTS", 0),
    ("ANSWER", 16),
    ("WHY", 0),
];

fn cells(row: &Row) -> Vec<String> {
    let time = |time: Time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let cells = [
        row.namespace.clone(),
        row.name.clone(),
        row.last_attempt.map_or_else(String::new, time),
        row.pipeline.clone(),
        row.notification.clone(),
        row.subject.clone(),
        row.type_.as_str().to_owned(),
        row.revision.clone(),
        row.state().to_owned(),
        row.attempts.to_string(),
        row.answer.clone().unwrap_or_default(),
        row.why(),
    ];
    // Revisions, answers and errors come from clusters and receivers. They are escaped, so that they cannot control the terminal.
    cells.into_iter().map(|cell| if cell == row.name { cell } else { shown(&cell) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::{Delivery, DeliveryStatus};

    #[test]
    fn states_are_named() {
        assert_eq!(state("parked"), Ok(StateFilter::ALL[2]));
        assert!(state("lost").unwrap_err().contains("Pending"));
    }

    fn row(name: &str, answer: Option<&str>) -> Row {
        let status =
            DeliveryStatus { status_code: answer.map(|_| 200), response: answer.map(str::to_owned), ..Default::default() };
        let mut delivery = Delivery::new(name, relaybook_api::testing::spec(1));
        delivery.status = Some(status);
        delivery.into()
    }

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let mut out = Vec::new();
        Table::new(&COLUMNS, 0..COLUMNS.len()).write(&mut out, [cells(&row("a", None))].into_iter()).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("NAMESPACE   NAME   LAST ATTEMPT           PIPELINE"), "{text}");
        let words: Vec<_> = lines[1].split_whitespace().collect();
        assert_eq!((&words[..3], &words[words.len() - 4..]), (&["-", "a", "-"][..], &["Pending", "0", "-", "-"][..]));
    }

    #[test]
    fn cells_cannot_move_a_terminal_and_names_are_not_cut() {
        assert_eq!(cells(&row("a", Some("a\nb\u{1b}[2J")))[10], r"200 OK: a\nb\u{1b}[2J");
        let name = "n".repeat(250);
        assert_eq!(cells(&row(&name, None))[1], name, "it is copied");
    }
}
