//! `relaybook promotions`: which revisions are on their way to which environments, and what became of them.

use std::io::{self, Write};

use clap::Args;

use super::complete;
use super::shared::output::{Format, Listed, Printer};
use super::shared::table::{Table, shown};
use super::shared::{Scope, named};
use relaybook_api::promotion::Phase;
use relaybook_api::{Time, now};
use relaybook_promotions::request::command::{Row, list, newest_first};
use relaybook_tools::diagnosis::age;

#[derive(Debug, Args)]
pub(super) struct PromotionsArgs {
    /// Only promotions of this Pipeline, as `NAME` or `pipeline/NAME` [default: all of the namespace].
    #[arg(value_parser = named::pipeline, add = complete::pipelines())]
    pipeline: Option<String>,
    /// The output format. The newest promotion is first.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(super) scope: Scope,
}

/// Prints the requested promotions.
pub(super) async fn promotions(args: PromotionsArgs) -> anyhow::Result<()> {
    let (client, namespace) = args.scope.open().await?;
    let mut rows: Vec<Row> = list(&client, namespace.as_deref()).await?.into_iter().map(Row::from).collect();
    if let Some(pipeline) = &args.pipeline {
        rows.retain(|row| row.pipeline == *pipeline);
    }
    newest_first(&mut rows);
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut printer = Printer::new(args.output, table(args.output, args.scope.all_namespaces));
    printer.list(&rows, now(), &mut out, &mut io::stderr())?;
    Ok(out.flush()?)
}

const COLUMNS: [&str; 10] =
    ["NAMESPACE", "NAME", "PIPELINE", "ENVIRONMENT", "REVISION", "PHASE", "REASON", "AGE", "URL", "MESSAGE"];
/// Number of columns that only the format `wide` has. They are the last ones.
const WIDE: usize = 2;

/// Returns the table of a format. With all namespaces, it has their names.
fn table(format: Format, all_namespaces: bool) -> Table {
    let end = COLUMNS.len() - if format == Format::Wide { 0 } else { WIDE };
    let table = Table::new(&COLUMNS.map(|name| (name, 0)), usize::from(!all_namespaces)..end);
    table.within(format.width(), &["NAMESPACE", "NAME"])
}

impl Listed for Row {
    const PLURAL: &'static str = "promotions";

    fn name(&self) -> String {
        named::of_promotion(&self.name)
    }

    /// Returns the cells. Revisions, reasons and messages are escaped and cut. Names and URLs are not cut, because users copy them.
    fn cells(&self, now: Time) -> Vec<String> {
        let age = self.created.map_or_else(String::new, |created| age(created, now));
        vec![
            self.namespace.clone(),
            self.name.clone(),
            shown(&self.pipeline),
            shown(&self.environment),
            shown(&self.revision),
            shown(self.phase.map_or("", Phase::as_str)),
            shown(&self.reason),
            shown(&age),
            // The controller stores only URLs that it has parsed.
            self.url.as_ref().map_or_else(|| shown(""), |url| url.escape_debug().to_string()),
            shown(&self.message),
        ]
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

    fn printed(rows: &[Row], all_namespaces: bool, format: Format) -> Vec<String> {
        let (mut out, now) = (Vec::new(), "2026-01-01T02:30:00Z".parse().unwrap());
        table(format, all_namespaces).write(&mut out, rows.iter().map(|row| row.cells(now))).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_table_is_aligned_and_cannot_move_a_terminal() {
        let rows = [
            row("6.5.1", &json!({"phase": "Pending", "reason": "WaitingApproval"})),
            row("a\nb\u{1b}[2J", &serde_json::Value::Null),
        ];
        assert_eq!(
            printed(&rows, false, Format::Table),
            [
                r"NAME         PIPELINE   ENVIRONMENT   REVISION        PHASE     REASON            AGE",
                r"web-prod-1   web        prod          6.5.1           Pending   WaitingApproval   2h",
                r"web-prod-1   web        prod          a\nb\u{1b}[2J   -         -                 2h",
            ]
        );
        let all = printed(&rows, true, Format::Table);
        assert!(all[1].starts_with("team-a      web-prod-1   "), "{all:?}");
    }

    #[test]
    fn the_wide_table_has_the_pull_request() {
        let status =
            json!({"phase": "Open", "reason": "Opened", "location": "https://e.com/p/7", "message": "waiting\nfor 7"});
        assert_eq!(
            printed(&[row("2", &status)], false, Format::Wide),
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
