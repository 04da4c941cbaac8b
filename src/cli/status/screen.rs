//! What `relaybook status` shows: the findings with their remedies, and a table. Pure.

use std::io::{self, Write};

use serde::Serialize;

use crate::cli::shared::named;
use crate::cli::shared::table::{Table, shown};
use relaybook_api::{Status, Time};
use relaybook_text::{cut_chars, escaped};
use relaybook_tools::diagnosis::{EnvironmentRow, Finding, Level, TargetRow, age};

/// Maximum length of a message or a remedy, in characters.
const LONGEST: usize = 400;

/// What the command shows.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Screen {
    /// Where, in words: `team-a`, or all namespaces.
    #[serde(skip)]
    pub(super) place: String,
    #[serde(skip)]
    pub(super) all_namespaces: bool,
    /// The numbers of pipelines and Notifications.
    pub(super) pipelines: usize,
    pub(super) notifications: usize,
    pub(super) findings: Vec<Finding>,
    pub(super) environments: Vec<EnvironmentRow>,
    /// The targets, if one pipeline is requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) targets: Vec<TargetRow>,
    /// What could not be read, and why.
    pub(super) not_shown: Vec<String>,
}

impl Screen {
    /// Returns the names of the pipelines, as kubectl prints them. The worst is first.
    pub(super) fn names(&self) -> Vec<String> {
        let mut pipelines: Vec<_> = self.environments.iter().map(|row| (&row.namespace, &row.pipeline)).collect();
        // The environments of a pipeline follow each other.
        pipelines.dedup();
        pipelines.into_iter().map(|(_, name)| named::of_pipeline(name)).collect()
    }
}

/// Writes the screen for people. `width`: the maximum number of characters of a line of the table, if there is one.
pub(super) fn write_table(out: &mut impl Write, screen: &Screen, width: Option<usize>, now: Time) -> io::Result<()> {
    writeln!(out, "{}", headline(screen))?;
    for finding in &screen.findings {
        let level = if finding.level == Level::Problem { "PROBLEM" } else { "WARNING" };
        let place = if screen.all_namespaces && !finding.namespace.is_empty() {
            format!("{}/", finding.namespace)
        } else {
            String::new()
        };
        writeln!(out, "{level}  {place}{}: {}", line(&finding.name), line(&finding.message))?;
        writeln!(out, "  do     {}", line(&finding.remedy))?;
    }
    for text in &screen.not_shown {
        writeln!(out, "not shown: {}", line(text))?;
    }
    if screen.targets.is_empty() {
        let columns = usize::from(!screen.all_namespaces)..ENVIRONMENTS.len();
        let mut table = Table::new(&ENVIRONMENTS.map(|name| (name, 0)), columns).within(width, &NAMES);
        if !screen.environments.is_empty() {
            table.write(out, screen.environments.iter().map(|row| environment(row, now)))?;
        }
        return Ok(());
    }
    let mut table = Table::new(&TARGETS.map(|name| (name, 0)), 0..TARGETS.len()).within(width, &NAMES);
    table.write(out, screen.targets.iter().map(|row| target(row, now)))
}

fn headline(screen: &Screen) -> String {
    let count = |n: usize, one: &str| if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") };
    let of = |level| screen.findings.iter().filter(|finding| finding.level == level).count();
    let failed = screen.environments.iter().filter(|row| row.status == Some(Status::Failed)).count();
    let (problems, warnings) = (of(Level::Problem), of(Level::Warning));
    let found = match (problems, warnings) {
        (0, 0) if !screen.not_shown.is_empty() => "No problems in what could be read.".to_owned(),
        (0, 0) => "No problems.".to_owned(),
        (problems, 0) => format!("{}.", count(problems, "problem")),
        (0, warnings) => format!("No problems, {}.", count(warnings, "warning")),
        (problems, warnings) => format!("{}, {}.", count(problems, "problem"), count(warnings, "warning")),
    };
    let failed = if failed == 0 { String::new() } else { format!(" {} failed.", count(failed, "environment")) };
    let (pipelines, notifications) = (count(screen.pipelines, "pipeline"), count(screen.notifications, "notification"));
    format!("{pipelines}, {notifications} in {}. {found}{failed}", screen.place)
}

/// Returns a text on one line, without characters that could move the cursor.
fn line(text: &str) -> String {
    escaped(&cut_chars(text, LONGEST))
}

/// Columns whose cells are never cut, because users copy them.
const NAMES: [&str; 3] = ["NAMESPACE", "PIPELINE", "ENVIRONMENT"];
const ENVIRONMENTS: [&str; 8] = ["NAMESPACE", "PIPELINE", "ENVIRONMENT", "READY", "STATE", "REVISION", "SINCE", "LAST SENT"];

fn environment(row: &EnvironmentRow, now: Time) -> Vec<String> {
    let sent =
        row.last_sent_time.map_or_else(|| "never".to_owned(), |time| format!("{} {}", row.last_sent_by, age(time, now)));
    vec![
        row.namespace.clone(),
        row.pipeline.clone(),
        row.environment.clone(),
        format!("{}/{}", row.ready, row.targets),
        state(row.status, row.drifted),
        revision(&row.revision, &row.runs),
        shown(&row.since.map_or_else(String::new, |since| age(since, now))),
        shown(sent.trim()),
    ]
}

const TARGETS: [&str; 8] = ["ENVIRONMENT", "CLUSTER", "NAMESPACE", "APPLICATION", "STATE", "REVISION", "SINCE", "MESSAGE"];

fn target(row: &TargetRow, now: Time) -> Vec<String> {
    vec![
        row.environment.clone(),
        shown(&row.cluster),
        row.target_namespace.clone(),
        shown(&row.app),
        state(Some(row.status), false),
        revision(&row.revision, &row.runs),
        shown(&row.since.map_or_else(String::new, |since| age(since, now))),
        shown(&row.message),
    ]
}

fn state(status: Option<Status>, is_drifted: bool) -> String {
    let status = status.map_or_else(|| "not observed".to_owned(), |status| format!("{status:?}"));
    if is_drifted { format!("{status}, drifted") } else { status }
}

fn revision(revision: &str, runs: &str) -> String {
    if runs.is_empty() { shown(revision) } else { shown(&format!("{revision} (runs {runs})")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_tools::diagnosis::Kind;

    fn screen() -> Screen {
        let finding = Finding {
            level: Level::Problem,
            kind: Kind::Notification,
            namespace: "team-a".to_owned(),
            name: "chat".to_owned(),
            reason: "CredentialsRejected".to_owned(),
            message: "4 messages wait:\n403 \u{1b}[2J".to_owned(),
            remedy: "put valid credentials into the Secret".to_owned(),
            since: None,
        };
        let row = EnvironmentRow {
            namespace: "team-a".to_owned(),
            pipeline: "web".to_owned(),
            environment: "prod".to_owned(),
            ready: 0,
            targets: 1,
            status: Some(Status::Failed),
            drifted: false,
            revision: "6.7.1".to_owned(),
            runs: "6.7.0".to_owned(),
            since: Some(Time::from_second(1_000).unwrap()),
            last_sent_time: None,
            last_sent_by: String::new(),
        };
        Screen {
            place: "team-a".to_owned(),
            all_namespaces: false,
            pipelines: 1,
            notifications: 2,
            findings: vec![finding],
            environments: vec![row],
            targets: Vec::new(),
            not_shown: vec!["pending deliveries: needs list on deliveries in team-a".to_owned()],
        }
    }

    fn text(screen: &Screen) -> Vec<String> {
        let mut out = Vec::new();
        write_table(&mut out, screen, None, Time::from_second(1_720).unwrap()).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_screen_has_each_finding_with_its_remedy_and_cannot_move_a_terminal() {
        assert_eq!(
            text(&screen()),
            [
                "1 pipeline, 2 notifications in team-a. 1 problem. 1 environment failed.",
                r"PROBLEM  chat: 4 messages wait:\n403 \u{1b}[2J",
                "  do     put valid credentials into the Secret",
                "not shown: pending deliveries: needs list on deliveries in team-a",
                "PIPELINE   ENVIRONMENT   READY   STATE    REVISION             SINCE   LAST SENT",
                "web        prod          0/1     Failed   6.7.1 (runs 6.7.0)   12m     never",
            ]
        );
    }

    #[test]
    fn a_line_of_the_table_fits_a_terminal_and_names_are_whole() {
        let mut long = screen();
        long.environments[0].revision = "r".repeat(150);
        long.environments[0].pipeline = "p".repeat(30);
        let lines = |width| {
            let mut out = Vec::new();
            write_table(&mut out, &long, width, Time::from_second(1_720).unwrap()).unwrap();
            let text = String::from_utf8(out).unwrap();
            text.lines().last().unwrap().to_owned()
        };
        let (cut, whole) = (lines(Some(120)), lines(None));
        assert!(cut.chars().count() <= 120 && cut.starts_with(&"p".repeat(30)) && cut.contains('…'), "{cut}");
        assert!(whole.chars().count() > 120, "{whole}");
    }

    #[test]
    fn the_worst_pipeline_is_the_first_name() {
        let mut two = screen();
        for (pipeline, environment) in [("web", "dev"), ("api", "dev"), ("api", "prod")] {
            let (pipeline, environment) = (pipeline.to_owned(), environment.to_owned());
            two.environments.push(EnvironmentRow { pipeline, environment, ..two.environments[0].clone() });
        }
        assert_eq!(two.names(), ["pipeline.relaybook.dev/web", "pipeline.relaybook.dev/api"]);
    }

    #[test]
    fn the_namespace_is_shown_for_all_namespaces() {
        let all = Screen { all_namespaces: true, place: "all namespaces".to_owned(), not_shown: Vec::new(), ..screen() };
        let lines = text(&all);
        assert!(lines[1].starts_with("PROBLEM  team-a/chat: "), "{lines:?}");
        assert!(lines[4].starts_with("team-a      web        prod"), "{lines:?}");
        let fine = Screen { findings: Vec::new(), environments: Vec::new(), ..all };
        assert_eq!(text(&fine), ["1 pipeline, 2 notifications in all namespaces. No problems."]);
    }
}
