//! `relaybook audit`: which messages were sent, when, and what the receivers answered.

use std::io::{self, Write};
use std::pin::pin;

use clap::Args;
use futures::{Stream, StreamExt as _, TryStreamExt as _};

use super::complete;
use super::shared::output::{Format, Listed, Printer};
use super::shared::table::{Table, shown};
use super::shared::{Scope, failure, named};
use crate::app::Access;
use crate::options::values::span;
use relaybook_api::{Time, now};
use relaybook_tools::audit::{AuditError, Filter, Row, StateFilter, changes, newest_first, rows};
use relaybook_tools::diagnosis::age;

#[derive(Debug, Args)]
pub(super) struct AuditArgs {
    /// Only deliveries of this Pipeline, as `NAME` or `pipeline/NAME` [default: all of the namespace].
    #[arg(value_name = "PIPELINE", value_parser = named::pipeline, add = complete::pipelines(), conflicts_with = "pipeline")]
    of: Option<String>,
    /// The same as PIPELINE.
    #[arg(long, value_parser = named::pipeline, add = complete::pipelines())]
    pipeline: Option<String>,
    /// Only deliveries of this Notification.
    #[arg(long, value_parser = named::notification, add = complete::notifications())]
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
    /// Print the existing deliveries, the newest last, and then each one again when it changes. In JSON, each is on one line; in YAML,
    /// each is one document.
    #[arg(short, long)]
    watch: bool,
    /// The output format. The newest delivery is first.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(super) scope: Scope,
}

fn state(text: &str) -> Result<StateFilter, String> {
    let found = StateFilter::ALL.into_iter().find(|state| state.as_str().eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("allowed values: {}", StateFilter::ALL.map(StateFilter::as_str).join(", ")))
}

/// Prints the requested deliveries.
pub(super) async fn audit(args: AuditArgs) -> anyhow::Result<()> {
    let (client, namespace) = args.scope.open().await?;
    let since = args.since.map(|span| now().checked_sub(span)).transpose()?;
    let filter = Filter {
        pipeline: args.of.or(args.pipeline),
        notification: args.notification,
        selector: args.selector,
        state: args.outcome,
        since,
        tests: true,
    };
    let mut printer = Printer::new(args.output, table(args.output, args.scope.all_namespaces));
    if args.watch {
        follow(changes(&client, namespace.as_deref(), filter), printer, &args.scope.place.access).await
    } else {
        let mut all: Vec<_> = rows(&client, namespace.as_deref(), filter).try_collect().await?;
        newest_first(&mut all);
        let mut out = io::BufWriter::new(io::stdout().lock());
        printer.list(&all, now(), &mut out, &mut io::stderr())?;
        Ok(out.flush()?)
    }
}

/// Prints rows as they arrive, until printing fails, or the API server permanently rejects the first request.
async fn follow(
    changes: impl Stream<Item = Result<Vec<Row>, AuditError>>,
    mut printer: Printer,
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
        printer.arrived(&rows, now(), &mut out)?;
        out.flush()?;
    }
    Ok(())
}

/// All columns and their minimum widths. The minimum fits most values of later rows, where those are known.
const COLUMNS: [(&str, usize); 14] = [
    ("NAMESPACE", 0),
    ("NAME", 0),
    ("LAST", 4),
    ("LAST ATTEMPT", 20),
    ("PIPELINE", 0),
    ("NOTIFICATION", 0),
    ("SUBJECT", 0),
    ("TYPE", 11),
    ("REVISION", 0),
    ("OUTCOME", 10),
    ("ATTEMPTS", 0),
    ("ANSWER", 16),
    ("ANSWER", 16),
    ("WHY", 0),
];
/// The columns of the format `table`. The name contains the pipeline, the notification and the type. The age replaces the time of the last
/// attempt. The first of the two answers contains the reason.
const NARROW: [usize; 7] = [0, 1, 2, 6, 8, 9, 11];
/// The columns of the format `wide`.
const WIDE: [usize; 12] = [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13];

/// Returns the table of a format. With all namespaces, it has their names.
fn table(format: Format, all_namespaces: bool) -> Table {
    let shown = if format == Format::Wide { &WIDE[..] } else { &NARROW };
    let shown = shown.iter().copied().skip(usize::from(!all_namespaces));
    Table::new(&COLUMNS, shown).within(format.width(), &["NAMESPACE", "NAME"])
}

impl Listed for Row {
    const PLURAL: &'static str = "deliveries";

    fn name(&self) -> String {
        named::of_delivery(&self.name)
    }

    /// Returns the cells. Revisions, answers and errors come from clusters and receivers. They are escaped, so that they cannot control the
    /// terminal. Names are not cut, because users copy them.
    fn cells(&self, now: Time) -> Vec<String> {
        let time = |time: Time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let (answer, why) = (self.answer.clone().unwrap_or_default(), self.why());
        let both: Vec<_> = [answer.as_str(), &why].into_iter().filter(|text| !text.is_empty()).collect();
        vec![
            shown(&self.namespace),
            self.name.clone(),
            shown(&self.last().map_or_else(String::new, |last| age(last, now))),
            shown(&self.last_attempt.map_or_else(String::new, time)),
            shown(&self.pipeline),
            shown(&self.notification),
            shown(&self.subject),
            shown(&self.kind()),
            shown(&self.revision),
            shown(self.state()),
            self.attempts.to_string(),
            shown(&both.join("; ")),
            shown(&answer),
            shown(&why),
        ]
    }
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

    /// Returns the words of the header and of the row.
    fn printed(format: Format, all_namespaces: bool, row: &Row) -> Vec<String> {
        let mut out = Vec::new();
        table(format, all_namespaces).write(&mut out, [row.cells(Time::UNIX_EPOCH)].into_iter()).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let row = row("a", Some("thanks"));
        assert_eq!(row.cells(Time::UNIX_EPOCH).len(), COLUMNS.len());
        let all = printed(Format::Wide, true, &row);
        assert_eq!(
            all[0],
            "NAMESPACE NAME LAST ATTEMPT PIPELINE NOTIFICATION SUBJECT TYPE REVISION OUTCOME ATTEMPTS ANSWER WHY"
        );
        assert!(all[1].starts_with("- a - ") && all[1].ends_with(" Pending 0 200 OK: thanks -"), "{all:?}");
        let narrow = printed(Format::Table, false, &row);
        assert_eq!(narrow[0], "NAME LAST SUBJECT REVISION OUTCOME ANSWER");
        assert!(narrow[1].starts_with("a - ") && narrow[1].ends_with(" Pending 200 OK: thanks"), "{narrow:?}");
    }

    #[test]
    fn one_column_has_the_answer_and_the_reason() {
        for (answer, reason, expected) in [
            (None, None, "-"),
            (Some("busy"), None, "200 OK: busy"),
            (None, Some("DnsFailed"), "DnsFailed"),
            (Some("busy"), Some("ReceiverError"), "200 OK: busy; ReceiverError"),
        ] {
            let row = Row { reason: reason.map(str::to_owned), ..row("a", answer) };
            assert_eq!(row.cells(Time::UNIX_EPOCH)[11], expected);
        }
    }

    #[test]
    fn cells_cannot_move_a_terminal_and_names_are_not_cut() {
        let cells = row("a", Some("a\nb\u{1b}[2J")).cells(Time::UNIX_EPOCH);
        assert_eq!((cells[11].as_str(), cells[12].as_str()), (r"200 OK: a\nb\u{1b}[2J", r"200 OK: a\nb\u{1b}[2J"));
        let name = "n".repeat(250);
        assert_eq!(row(&name, None).cells(Time::UNIX_EPOCH)[1], name, "it is copied");
    }
}
