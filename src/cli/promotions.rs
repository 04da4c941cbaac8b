//! `relaybook promotions`: which revisions are on their way to which environments, and what became of them.

use std::io::{self, Write};

use clap::{Args, ValueEnum};

use super::shared::table::{Table, shown};
use super::shared::{Place, named};
use relaybook_api::promotion::Phase;
use relaybook_api::{Time, now};
use relaybook_promotions::request::command::{Row, list, newest_first};

#[derive(Debug, Args)]
pub(super) struct PromotionsArgs {
    /// Only promotions of this Pipeline, as `NAME` or `pipeline/NAME` [default: all of the namespace].
    #[arg(value_parser = named::pipeline)]
    pipeline: Option<String>,
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
    /// One line for each promotion, the newest first.
    Table,
    /// The same with the URL of the pull request or commit, and the message.
    Wide,
    /// A list of objects, the newest first.
    Json,
}

/// Prints the requested promotions.
pub(super) async fn promotions(args: PromotionsArgs) -> anyhow::Result<()> {
    let (client, own) = args.place.open().await?;
    let namespace = Some(own.as_str()).filter(|_| !args.all_namespaces);
    let mut rows: Vec<Row> = list(&client, namespace).await?.into_iter().map(Row::from).collect();
    if let Some(pipeline) = &args.pipeline {
        rows.retain(|row| row.pipeline == *pipeline);
    }
    newest_first(&mut rows);
    let mut out = io::BufWriter::new(io::stdout().lock());
    match args.output {
        Output::Json => {
            serde_json::to_writer_pretty(&mut out, &rows).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        _ if rows.is_empty() => writeln!(io::stderr(), "no promotions found")?,
        output => {
            let now = now();
            let mut table = table(args.all_namespaces, output == Output::Wide);
            table.write(&mut out, rows.iter().map(|row| cells(row, now)))?;
        }
    }
    Ok(out.flush()?)
}

const COLUMNS: [&str; 10] =
    ["NAMESPACE", "NAME", "PIPELINE", "ENVIRONMENT", "REVISION", "PHASE", "REASON", "AGE", "URL", "MESSAGE"];
/// Number of columns that only the wide format has. They are the last ones.
const WIDE: usize = 2;

/// Returns the table: with the column of the namespace, and with the wide columns.
fn table(all_namespaces: bool, is_wide: bool) -> Table {
    Table::new(&COLUMNS.map(|name| (name, 0)), usize::from(!all_namespaces)..COLUMNS.len() - if is_wide { 0 } else { WIDE })
}

/// Returns the cells of a row. Revisions, reasons and messages are escaped and cut. Names and URLs are not cut, because users copy them.
fn cells(row: &Row, now: Time) -> Vec<String> {
    let age = row.created.map_or_else(String::new, |created| age(created, now));
    vec![
        row.namespace.clone(),
        row.name.clone(),
        shown(&row.pipeline),
        shown(&row.environment),
        shown(&row.revision),
        shown(row.phase.map_or("", Phase::as_str)),
        shown(&row.reason),
        shown(&age),
        // The controller stores only URLs that it has parsed.
        row.url.as_ref().map_or_else(|| shown(""), |url| url.escape_debug().to_string()),
        shown(&row.message),
    ]
}

/// Returns the time since then in its largest unit, such as `90s`, `15m`, `7h` or `3d`.
fn age(then: Time, now: Time) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use relaybook_api::Promotion;

    fn row(revision: &str, status: &serde_json::Value) -> Row {
        let promotion: Promotion = serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Promotion",
            "metadata": {"name": "web-prod-1", "namespace": "team-a", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "pipelineRef": {"name": "web", "uid": "u"}, "environment": "prod", "from": "staging", "revision": revision,
                "occasion": 1,
            },
            "status": status,
        }))
        .unwrap();
        promotion.into()
    }

    fn printed(rows: &[Row], all_namespaces: bool, is_wide: bool) -> Vec<String> {
        let (mut out, now) = (Vec::new(), "2026-01-01T02:30:00Z".parse().unwrap());
        table(all_namespaces, is_wide).write(&mut out, rows.iter().map(|row| cells(row, now))).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_table_is_aligned_and_cannot_move_a_terminal() {
        let rows = [
            row("6.5.1", &json!({"phase": "Pending", "reason": "WaitingApproval"})),
            row("a\nb\u{1b}[2J", &serde_json::Value::Null),
        ];
        assert_eq!(
            printed(&rows, false, false),
            [
                r"NAME         PIPELINE   ENVIRONMENT   REVISION        PHASE     REASON            AGE",
                r"web-prod-1   web        prod          6.5.1           Pending   WaitingApproval   2h",
                r"web-prod-1   web        prod          a\nb\u{1b}[2J   -         -                 2h",
            ]
        );
        let all = printed(&rows, true, false);
        assert!(all[1].starts_with("team-a      web-prod-1   "), "{all:?}");
    }

    #[test]
    fn the_wide_table_has_the_pull_request() {
        let status =
            json!({"phase": "Open", "reason": "Opened", "location": "https://e.com/p/7", "message": "waiting\nfor 7"});
        assert_eq!(
            printed(&[row("2", &status)], false, true),
            [
                r"NAME         PIPELINE   ENVIRONMENT   REVISION   PHASE   REASON   AGE   URL                 MESSAGE",
                r"web-prod-1   web        prod          2          Open    Opened   2h    https://e.com/p/7   waiting\nfor 7",
            ]
        );
    }

    #[test]
    fn an_age_has_one_unit() {
        let then = Time::from_second(1_000_000).unwrap();
        for (seconds, text) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7199, "119m"),
            (7200, "2h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (8_640_000, "100d"),
        ] {
            assert_eq!(age(then, Time::from_second(1_000_000 + seconds).unwrap()), text, "{seconds}");
        }
    }
}
