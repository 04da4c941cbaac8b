//! `relaybook audit`: which messages were sent, when, and what the receivers answered.

use std::io::{self, Write};
use std::pin::pin;

use clap::{Args, ValueEnum};
use futures::{Stream, StreamExt as _, TryStreamExt as _};

use super::shared::{Connection, Place, failure, named};
use relaybook_api::{Time, now};
use relaybook_text::escaped;
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

/// Parses a duration. It can have days, which are 24 hours long.
pub(super) fn span(text: &str) -> Result<jiff::SignedDuration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<i64>().ok()).and_then(|days| days.checked_mul(24));
    let parsed = match days {
        Some(hours) => jiff::SignedDuration::try_from_hours(hours),
        None => text.parse().ok(),
    };
    parsed.filter(jiff::SignedDuration::is_positive).ok_or_else(|| "must be a duration such as 30m, 12h or 7d".to_owned())
}

/// Prints the requested deliveries.
pub(super) async fn audit(args: AuditArgs) -> anyhow::Result<()> {
    let client = args.place.client().await?;
    let own = args.place.namespace(&client);
    let namespace = Some(own.as_str()).filter(|_| !args.all_namespaces);
    let since = args.since.map(|span| now().checked_sub(span)).transpose()?;
    let filter = Filter {
        pipeline: args.pipeline,
        notification: args.notification,
        selector: args.selector,
        state: args.outcome,
        since,
    };
    let table = Table::new(args.all_namespaces);
    if args.watch {
        follow(changes(&client, namespace, filter), args.output, table, &args.place.connection).await
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
        Output::Table => table.write(&mut out, rows)?,
    }
    out.flush()
}

/// Prints rows as they arrive, until printing fails, or the API server permanently rejects the first request.
async fn follow(
    changes: impl Stream<Item = Result<Vec<Row>, AuditError>>,
    output: Output,
    mut table: Table,
    connection: &Connection,
) -> anyhow::Result<()> {
    let mut changes = pin!(changes);
    let (mut is_begun, mut last) = (false, String::new());
    while let Some(rows) = changes.next().await {
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) if !is_begun && failure::is_final(&error) => return Err(error.into()),
            Err(error) => {
                let said = failure::said(&error, connection).await;
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
            Output::Table => table.write(&mut out, &rows)?,
        }
        out.flush()?;
    }
    Ok(())
}

/// A table whose columns become wider if a cell needs it, and never narrower.
#[derive(Debug)]
struct Table {
    all_namespaces: bool,
    widths: Vec<usize>,
}

impl Table {
    fn new(all_namespaces: bool) -> Self {
        Self { all_namespaces, widths: Vec::new() }
    }

    /// Writes rows, with a header line before the first row.
    fn write(&mut self, out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
        let mut lines: Vec<_> = rows.iter().map(|row| cells(row, self.all_namespaces)).collect();
        if self.widths.is_empty() {
            let head = COLUMNS.iter().skip(usize::from(!self.all_namespaces));
            self.widths = head.clone().map(|(_, width)| *width).collect();
            lines.insert(0, head.map(|(name, _)| (*name).to_owned()).collect());
        }
        for cells in &lines {
            for (width, cell) in self.widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        lines.iter().try_for_each(|cells| writeln!(out, "{}", line(cells, &self.widths)))
    }
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

/// Maximum number of characters of a cell. A name is not cut, because users copy it.
const LONGEST: usize = 80;

fn cells(row: &Row, all_namespaces: bool) -> Vec<String> {
    let time = |time: Time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let cells = [
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
    let cells = all_namespaces.then(|| row.namespace.clone()).into_iter().chain(cells);
    // Revisions, answers and errors come from clusters and receivers. They are escaped, so that they cannot control the terminal.
    cells.map(|cell| if cell == row.name { cell } else { shown(&cell) }).collect()
}

/// Returns the text of a cell: the beginning of a value, escaped. It is `-` for an absent value, so that no column is empty.
pub(super) fn shown(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    let beginning: String = text.chars().take(LONGEST + 1).collect();
    let mut safe = escaped(&beginning);
    if let Some((end, _)) = safe.char_indices().nth(LONGEST) {
        let end = safe[..end].char_indices().next_back().map_or(end, |(last, _)| last);
        safe.truncate(end);
        safe.push('…');
    }
    safe
}

/// Returns one line of a table, with each cell as wide as its column.
pub(super) fn line(cells: &[String], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect::<Vec<_>>();
    padded.join("   ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::{Delivery, DeliveryStatus};

    #[test]
    fn durations_have_days() {
        for (text, seconds) in [("90s", Some(90)), ("1h30m", Some(5400)), ("7d", Some(604_800)), ("0s", None), ("x", None)] {
            assert_eq!(span(text).ok().map(|span| span.as_secs()), seconds, "{text}");
        }
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
    fn columns_get_wider_and_have_one_head() {
        let mut table = Table::new(true);
        let mut written = |rows: &[Row]| {
            let mut out = Vec::new();
            table.write(&mut out, rows).unwrap();
            String::from_utf8(out).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let first = written(&[row("a", None)]);
        assert!(first.len() == 2 && first[0].starts_with("NAMESPACE   NAME   LAST ATTEMPT           PIPELINE"), "{first:?}");
        let words: Vec<_> = first[1].split_whitespace().collect();
        assert_eq!((&words[..3], &words[words.len() - 4..]), (&["-", "a", "-"][..], &["Pending", "0", "-", "-"][..]));
        let later = written(&[row("a-long-name", None), row("b", None)]);
        assert!(later.len() == 2 && later[0].starts_with("-           a-long-name   -   "), "{later:?}");
        assert!(later[1].starts_with("-           b             -   "), "{later:?}");
        assert!(written(&[]).is_empty());
    }

    #[test]
    fn cells_are_bounded_and_cannot_move_a_terminal() {
        let cell = |answer: &str| cells(&row("a", Some(answer)), false)[9].clone();
        assert_eq!(cell("a\nb\u{1b}[2J"), r"200 OK: a\nb\u{1b}[2J");
        let long = cell(&"é".repeat(300));
        assert_eq!(long, format!("200 OK: {}…", "é".repeat(LONGEST - 9)));
        assert_eq!(cell(&"é".repeat(LONGEST - 8)), format!("200 OK: {}", "é".repeat(LONGEST - 8)));
        let name = "n".repeat(250);
        assert_eq!(cells(&row(&name, None), false)[0], name, "it is copied");
    }

    #[test]
    fn cells_of_a_line_are_aligned() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        assert_eq!(line(&row(&["a", "é", ""]), &[3, 2, 4]), "a     é");
    }
}
