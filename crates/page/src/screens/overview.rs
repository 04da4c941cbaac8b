//! The overview: is anything wrong, and what runs where. Pure.

mod line;
mod tiles;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use maud::{Markup, html};

use crate::follow::rows::{Attention, Cell, NotificationRow, PipelineRow};
use crate::query::{Group, Query, Screen, Shown};
use crate::read::uncounted::Unsent;
use crate::screens::approvals::{self, Approval};
use crate::screens::findings;
use crate::screens::parts::{Tone, age, badge, command, namespace_field, plural, scroll, trouble};
use crate::screens::recent::Recent;
use crate::screens::table::pages;
use crate::trouble::Trouble;
use relaybook_api::values::permalink;
use relaybook_api::{Status, Time};
use relaybook_tools::diagnosis::{Finding, GLOBAL_CONFIG_INVALID, Level};
use tiles::tiles;

/// Number of pipelines on a page.
pub(crate) const ROWS: usize = 100;
/// Maximum number of clusters that are named.
const NAMED: usize = 5;
/// Maximum number of notifications in the list of those that need attention.
const NOTIFICATIONS: usize = 10;

/// What the overview shows.
#[derive(Debug)]
pub(crate) struct Overview {
    pub(crate) chosen: Chosen,
    /// The number of findings of all pipelines.
    pub(crate) findings: usize,
    /// The notifications that need attention.
    pub(crate) unwell: Vec<Unwell>,
    pub(crate) notifications: usize,
    /// The numbers of deliveries that are pending, and that were parked. `None`: not known.
    pub(crate) pending: Option<i64>,
    pub(crate) parked: Option<i64>,
    /// The promotions that wait for an approval.
    pub(crate) approvals: Vec<Approval>,
    /// What happened in the last minutes.
    pub(crate) recent: Recent,
    /// The namespace in the links of notifications without an object.
    pub(crate) home: String,
    /// The cluster-wide notifications whose deliveries are pending or parked. `None`: not known.
    pub(crate) without_object: Option<BTreeMap<String, ClusterWide>>,
    /// The names of the clusters that do not answer.
    pub(crate) offline: Vec<String>,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) is_complete: bool,
    /// The token of forms. `None`: the page only reads.
    pub(crate) form_token: Option<String>,
}

/// A notification that needs attention.
#[derive(Debug)]
pub(crate) struct Unwell {
    pub(crate) row: Arc<NotificationRow>,
    /// What is wrong with it, the worst first.
    pub(crate) findings: Vec<Finding>,
}

/// A notification that no object counts.
#[derive(Debug, Default)]
pub(crate) struct ClusterWide {
    /// Why deliveries wait.
    pub(crate) findings: Vec<Finding>,
    /// The number of deliveries that were parked.
    pub(crate) parked: usize,
}

impl Unwell {
    /// Returns the notifications with findings, the worst first. One cause is one finding: only one of them says that the global configuration
    /// is wrong.
    pub(crate) fn of_all<'a>(rows: impl Iterator<Item = &'a Arc<NotificationRow>>, now: Time) -> Vec<Self> {
        let mut all: Vec<_> = rows.map(|row| Self { row: row.clone(), findings: row.findings(now) }).collect();
        let mut is_said = false;
        for one in &mut all {
            one.findings.retain(|finding| finding.reason != GLOBAL_CONFIG_INVALID || !std::mem::replace(&mut is_said, true));
        }
        all.retain(|one| !one.findings.is_empty());
        let worst = |one: &Self| one.findings.iter().map(|finding| finding.level).min().unwrap_or(Level::Warning);
        all.sort_by_key(|one| (worst(one), -one.row.parked - one.row.pending, one.row.name.clone()));
        all
    }
}

/// The pipelines of one page.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    /// The most urgent first. With groups, those of one group are together.
    pub(crate) rows: Vec<Arc<PipelineRow>>,
    /// How many pipelines match the filters, and how many there are.
    pub(crate) matching: usize,
    pub(crate) total: usize,
    /// How many pipelines there are for each attention.
    counts: BTreeMap<Attention, usize>,
    /// How many pipelines of each group match the filters.
    groups: BTreeMap<String, usize>,
    /// Whether a pipeline has the label `team`.
    has_teams: bool,
}

impl Chosen {
    fn count(&self, attention: Attention) -> usize {
        self.counts.get(&attention).copied().unwrap_or_default()
    }
}

/// Whether a filter selects a pipeline.
pub(crate) fn selects(query: &Query, row: &PipelineRow, now: Time) -> bool {
    let attention = row.attention(now);
    let shown = match query.shown {
        Shown::All => true,
        Shown::Wrong => attention < Attention::Moving,
        Shown::Failed => attention == Attention::Failed,
        Shown::NotReady => attention == Attention::Wrong,
        Shown::Unclear => attention == Attention::Unclear,
        Shown::InProgress => attention == Attention::Moving,
        Shown::Current => attention == Attention::None,
    };
    shown && (query.text.is_empty() || row.has(&query.text))
}

/// Returns how urgent a pipeline is. The most urgent one is the smallest. Of the failed ones, first come those whose last environment has
/// failed, and of these the newest failure.
fn urgency(row: &PipelineRow, now: Time) -> (Attention, bool, Reverse<Option<Time>>) {
    let attention = row.attention(now);
    if attention != Attention::Failed {
        return (attention, false, Reverse(None));
    }
    let has_failed = |cell: &Cell| cell.status == Some(Status::Failed);
    let is_last = row.environments.last().is_some_and(has_failed);
    let newest = row.environments.iter().filter(|cell| has_failed(cell)).filter_map(|cell| cell.since).max();
    (attention, !is_last, Reverse(newest))
}

/// Returns the group of a pipeline. Empty if it has none.
fn group_of(group: Group, row: &PipelineRow) -> &str {
    match group {
        Group::None => "",
        Group::Team => &row.team,
        Group::Namespace => &row.namespace,
        Group::Kind => &row.kind,
    }
}

/// Selects the pipelines of one page. A group is at the place of its most urgent pipeline.
pub(crate) fn choose<'a>(query: &Query, all: impl Iterator<Item = &'a Arc<PipelineRow>>, now: Time) -> Chosen {
    let (mut chosen, mut rows) = (Chosen::default(), Vec::new());
    for row in all {
        chosen.total += 1;
        chosen.has_teams |= !row.team.is_empty();
        *chosen.counts.entry(row.attention(now)).or_default() += 1;
        if selects(query, row, now) {
            rows.push(row);
        }
    }
    rows.sort_by(|a, b| (urgency(a, now), &a.namespace, &a.name).cmp(&(urgency(b, now), &b.namespace, &b.name)));
    if query.group != Group::None {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for (place, row) in rows.iter().enumerate() {
            let group = group_of(query.group, row).to_owned();
            places.entry(group.clone()).or_insert(place);
            *chosen.groups.entry(group).or_default() += 1;
        }
        // The order within a group stays.
        rows.sort_by_key(|row| places.get(group_of(query.group, row)).copied());
    }
    chosen.matching = rows.len();
    chosen.rows = rows.into_iter().skip(query.page * ROWS).take(ROWS).cloned().collect();
    chosen
}

impl Overview {
    /// Counts a delivery that no Notification object counts.
    pub(crate) fn add(&mut self, one: &Unsent) {
        if one.waits.is_some() {
            self.pending = self.pending.map(|count| count + 1);
            return;
        }
        self.parked = self.parked.map(|count| count + 1);
        self.without_object.get_or_insert_default().entry(one.notification.clone()).or_default().parked += 1;
    }

    /// Adds why the deliveries of a notification without an object wait.
    pub(crate) fn explain(&mut self, finding: Finding) {
        self.without_object.get_or_insert_default().entry(finding.name.clone()).or_default().findings.push(finding);
    }

    /// Returns the content of the page.
    pub(crate) fn html(&self, query: &Query, now: Time) -> Markup {
        html! {
            h1 { "Overview" }
            @if !self.offline.is_empty() {
                div.banner role="alert" {
                    p { "Clusters that do not answer: " a href=(query.elsewhere().link("/clusters")) { (named(&self.offline)) } ". Their targets keep the last known state." }
                    code { "kubectl describe pipelines " (query.scope()) }
                }
            }
            (self.verdict(query))
            (tiles(self, query))
            @for one in &self.troubles { (trouble(one)) }
            div.overview {
                div.now {
                    (approvals::list(&self.approvals, self.form_token.as_deref(), now))
                    (self.unwell(now))
                }
                div.pipelines {
                    (self.filters(query))
                    (self.table(query, now))
                    (pages(query, "/", ROWS, self.chosen.matching))
                }
                (self.recent.html())
            }
            (command(&same(query)))
        }
    }

    fn verdict(&self, query: &Query) -> Markup {
        let wrong: usize =
            [Attention::Failed, Attention::Wrong, Attention::Unclear].into_iter().map(|a| self.chosen.count(a)).sum();
        let is_known = self.troubles.is_empty() && self.is_complete;
        let has_unsent = self.without_object.as_ref().is_some_and(|all| !all.is_empty());
        let is_well = wrong + self.findings == 0 && self.unwell.is_empty() && !has_unsent && is_known;
        let parked = self.parked.filter(|count| *count > 0).map(|count| match count {
            1 => "1 delivery is parked".to_owned(),
            count => format!("{count} deliveries are parked"),
        });
        html! {
            @if is_well && self.chosen.total > 0 {
                p.verdict.good {
                    "Nothing is wrong: " (plural(self.chosen.total, "pipeline")) ", " (plural(self.notifications, "notification")) "."
                    @if let Some(words) = &parked { " " a href=(query.elsewhere().link(&Screen::Parked.path())) { (words) } "." }
                    @if self.without_object.is_none() { " You may not read the deliveries of cluster-wide notifications." }
                }
            }
            @if !self.is_complete && self.troubles.is_empty() { p.notice { "The first list has not ended yet; more pipelines follow." } }
        }
    }

    fn unwell(&self, now: Time) -> Markup {
        let without_object = self.without_object.iter().flatten();
        if self.unwell.is_empty() && without_object.clone().next().is_none() {
            return html! {};
        }
        let more = self.unwell.len().saturating_sub(NOTIFICATIONS);
        let more_without_object = self.without_object.as_ref().map_or(0, BTreeMap::len).saturating_sub(NOTIFICATIONS);
        html! {
            section aria-labelledby="unwell" {
                h2 #unwell { "Notifications that need attention" }
                ul.list {
                    @for Unwell { row, findings } in self.unwell.iter().take(NOTIFICATIONS) {
                        li {
                            a href=(permalink::notification(&row.namespace, &row.name)) { (row.namespace) "/" (row.name) }
                            @if let Some(last) = row.last_sent { " " span.none { "last sent " (age(last, now)) } }
                            @for finding in findings { " " (findings::words(finding)) }
                        }
                    }
                    @if more > 0 { li.none { "and " (more) " more" } }
                    @for (name, ClusterWide { findings, parked }) in without_object.take(NOTIFICATIONS) {
                        li {
                            a href=(permalink::notification(&self.home, name)) { (name) }
                            " " (badge(Tone::Bad, "Cluster-wide"))
                            @if *parked > 0 { " " span.message { "parked: " (parked) @if *parked >= 100 { ", or more" } } }
                            @for finding in findings { " " (findings::words(finding)) }
                        }
                    }
                    @if more_without_object > 0 { li.none { "and " (plural(more_without_object, "more cluster-wide notification")) } }
                }
            }
        }
    }

    fn filters(&self, query: &Query) -> Markup {
        let with = |group: Group| Query { group, page: 0, ..query.clone() }.link("/");
        html! {
            div.choosing {
                form.filters action="/" {
                    (namespace_field(query))
                    label { span { "State" }
                        select name="state" {
                            @for (shown, name, label) in Shown::ALL { option value=(name) selected[shown == query.shown] { (label) } }
                        }
                    }
                    label { span { "Name, application or revision" }
                        input type="search" name="q" value=(query.text) maxlength="256" spellcheck="false";
                    }
                    @if query.group != Group::None { input type="hidden" name="group" value=(query.group.name()); }
                    button { "Show" }
                    @if query.link("/") != "/" { a href="/" { "Remove the filters" } }
                }
                div.grouping {
                    span.label #grouping { "Group by" }
                    ul.choices aria-labelledby="grouping" {
                        @for (group, _, label) in Group::ALL {
                            @if group != Group::Team || self.chosen.has_teams || query.group == Group::Team {
                                li { a href=(with(group)) aria-current=[(group == query.group).then_some("true")] { (label) } }
                            }
                        }
                    }
                }
            }
        }
    }

    fn table(&self, query: &Query, now: Time) -> Markup {
        let rows = &self.chosen.rows;
        if rows.is_empty() {
            let words =
                if self.chosen.total == 0 { "There are no pipelines here." } else { "No pipeline matches the filters." };
            return html! { @if self.troubles.is_empty() { p.empty { (words) } } };
        }
        html! {
            (scroll("pipelines", &html! { table.matrix {
                    thead { (line::head(query)) }
                    @for part in rows.chunk_by(|a, b| group_of(query.group, a) == group_of(query.group, b)) {
                        tbody {
                            @if let Some(first) = part.first().filter(|_| query.group != Group::None) { (self.heading(group_of(query.group, first), query)) }
                            @for row in part { (line::line(row, query, now)) }
                        }
                    }
                } }))
        }
    }

    /// Returns the heading of a group, with the number of its pipelines on all pages.
    fn heading(&self, group: &str, query: &Query) -> Markup {
        let count = self.chosen.groups.get(group).copied().unwrap_or_default();
        let none = if query.group == Group::Team { "no team" } else { "not known" };
        html! {
            tr.group {
                th scope="rowgroup" colspan=(line::columns(query)) {
                    (if group.is_empty() { none } else { group }) " " span.none { (plural(count, "pipeline")) }
                }
            }
        }
    }
}

/// Returns the first of some names, and how many follow.
fn named(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let first = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{first} and {more} more") } else { first }
}

fn same(query: &Query) -> String {
    format!("kubectl get pipelines,notifications {}", query.scope())
}

/// Rows for tests.
#[cfg(test)]
pub(crate) mod testing {
    use serde_json::json;

    use crate::follow::rows::{Attention, Cell, PipelineRow};
    use relaybook_api::{Pipeline, PipelineSpec, PipelineStatus};

    /// Returns a pipeline with an environment for each status: `e0`, `e1` and so on.
    pub(crate) fn row(name: &str, statuses: &[&str]) -> PipelineRow {
        let cell = |(index, status): (usize, &&str)| Cell {
            name: format!("e{index}"),
            status: serde_json::from_value(json!(status)).unwrap(),
            ready: (1, 1),
            ..Cell::default()
        };
        let mut object = Pipeline::new(name, PipelineSpec::default());
        object.metadata.namespace = Some("team-a".to_owned());
        object.status = Some(PipelineStatus::default());
        PipelineRow {
            namespace: "team-a".to_owned(),
            name: name.to_owned(),
            app: "Deployment web".to_owned(),
            apps: vec!["web".to_owned()],
            kind: "Deployment".to_owned(),
            team: String::new(),
            environments: statuses.iter().enumerate().map(cell).collect(),
            object,
            last_sent: None,
            recorded: None,
            clusters: Vec::new(),
            endpoints: Vec::new(),
            by_status: Attention::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::testing::row;
    use super::*;
    use relaybook_api::Notification;

    fn of(name: &str, attention: Attention) -> Arc<PipelineRow> {
        Arc::new(PipelineRow { by_status: attention, ..row(name, &[]) })
    }

    fn names(query: &str, all: &[Arc<PipelineRow>]) -> String {
        let chosen = choose(&Query::read(query), all.iter(), Time::UNIX_EPOCH);
        assert_eq!((chosen.rows.len(), chosen.total), (chosen.matching, all.len()));
        chosen.rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pipelines_with_problems_come_first() {
        let all = [
            of("a", Attention::None),
            of("b", Attention::Moving),
            of("c", Attention::Failed),
            of("d", Attention::Wrong),
            of("e", Attention::Failed),
            of("f", Attention::Unclear),
        ];
        for (query, expected) in [
            ("", "c e d f b a"),
            ("state=wrong", "c e d f"),
            ("state=failed", "c e"),
            ("state=not-ready", "d"),
            ("state=unclear", "f"),
            ("state=in-progress", "b"),
            ("state=current", "a"),
            ("q=E", "c e d f b a"),
            ("q=zz", ""),
        ] {
            assert_eq!(names(query, &all), expected, "{query}");
        }
    }

    #[test]
    fn a_pipeline_that_no_controller_processes_is_selected_and_counted_as_a_problem() {
        let mut old = row("old", &[]);
        old.object.status = None;
        old.object.metadata.creation_timestamp = serde_json::from_value(json!("2026-03-01T12:00:00Z")).unwrap();
        let all = [of("a", Attention::Unclear), Arc::new(PipelineRow { by_status: Attention::Moving, ..old })];
        for (now, expected, problems) in [("2026-03-01T12:01:00Z", "a old", 0), ("2026-03-01T12:10:00Z", "old a", 1)] {
            let now = now.parse().unwrap();
            let chosen = choose(&Query::default(), all.iter(), now);
            let names: Vec<_> = chosen.rows.iter().map(|row| row.name.as_str()).collect();
            assert_eq!((names.join(" ").as_str(), chosen.count(Attention::Wrong)), (expected, problems), "{now}");
            assert_eq!(choose(&Query::read("state=not-ready"), all.iter(), now).matching, problems, "{now}");
        }
    }

    #[test]
    fn the_verdict_counts_warnings_and_names_what_was_parked() {
        let overview = |findings: usize, parked: i64, without_object: usize| Overview {
            chosen: choose(&Query::default(), [of("a", Attention::None)].iter(), Time::UNIX_EPOCH),
            findings,
            unwell: Vec::new(),
            notifications: 1,
            pending: Some(0),
            parked: Some(parked),
            approvals: Vec::new(),
            recent: Recent::default(),
            home: "team-a".to_owned(),
            without_object: Some((0..without_object).map(|n| (format!("n{n}"), ClusterWide::default())).collect()),
            offline: Vec::new(),
            troubles: Vec::new(),
            is_complete: true,
            form_token: None,
        };
        let well = "Nothing is wrong: 1 pipeline, 1 notification.";
        for (findings, parked, without_object, expected, absent) in [
            (0, 0, 0, well, "parked</a>"),
            (0, 1, 0, "1 delivery is parked</a>.", "deliveries are parked"),
            (0, 4, 0, "<a href=\"/parked\">4 deliveries are parked</a>.", "1 delivery"),
            (1, 4, 0, "Parked deliveries", well),
            (0, 0, 10, "n9", "more cluster-wide"),
            (0, 0, 13, "and 3 more cluster-wide notifications", well),
        ] {
            let html = overview(findings, parked, without_object).html(&Query::default(), Time::UNIX_EPOCH).into_string();
            assert!(html.contains(expected) && !html.contains(absent), "{expected}: {html}");
        }
    }

    #[test]
    fn a_failure_of_the_last_environment_comes_first_and_then_the_newest() {
        let failed = |name: &str, statuses: &[&str], since: &[i64]| {
            let mut row = PipelineRow { by_status: Attention::Failed, ..row(name, statuses) };
            for (cell, since) in row.environments.iter_mut().zip(since) {
                cell.since = Some(Time::from_second(*since).unwrap());
            }
            Arc::new(row)
        };
        let all = [
            failed("a-dev-new", &["Failed", "Current"], &[90, 99]),
            failed("b-prod-old", &["Current", "Failed"], &[99, 10]),
            failed("c-prod-new", &["Current", "Failed"], &[1, 80]),
            failed("d-dev-old", &["Failed", "Current"], &[20, 99]),
            failed("e-both", &["Failed", "Failed"], &[70, 5]),
            failed("f-prod-unknown", &["Current", "Failed"], &[]),
            failed("g-same", &["Failed"], &[10]),
            of("h-wrong", Attention::Wrong),
        ];
        let expected = "c-prod-new e-both b-prod-old g-same f-prod-unknown a-dev-new d-dev-old h-wrong";
        assert_eq!(names("", &all), expected);
    }

    #[test]
    fn notifications_that_need_attention_say_why_and_what_to_do() {
        let notification = |name: &str, status: Value| {
            let metadata = json!({"name": name, "namespace": "team-a"});
            let (version, kind) = ("relaybook.dev/v1alpha1", "Notification");
            let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {}, "status": status});
            Arc::new(NotificationRow::from(serde_json::from_value::<Notification>(object).unwrap()))
        };
        let status = |pending: i64, type_: &str, reason: &str| {
            let since = "2026-03-01T12:00:00Z";
            let condition =
                json!({"type": type_, "status": "False", "reason": reason, "message": "why", "lastTransitionTime": since});
            json!({"pending": pending, "conditions": [condition]})
        };
        let all = [
            notification("a", status(9, "Delivering", "Suspended")),
            notification("b", status(0, "Ready", "SecretMissing")),
            notification("c", status(2, "Delivering", "Timeout")),
            notification("d", status(0, "GlobalConfigValid", GLOBAL_CONFIG_INVALID)),
            notification("e", status(0, "GlobalConfigValid", GLOBAL_CONFIG_INVALID)),
            notification("f", json!({})),
        ];
        let unwell = Unwell::of_all(all.iter(), "2026-03-01T12:12:00Z".parse().unwrap());
        assert_eq!(unwell.iter().map(|one| one.row.name.as_str()).collect::<Vec<_>>(), ["c", "b", "d", "a"]);
        let html = findings::words(&unwell[0].findings[0]).into_string();
        assert!(html.contains("2 messages wait since 12m: why") && html.contains("Remedy: check the receiver"), "{html}");
    }

    #[test]
    fn a_group_is_at_the_place_of_its_most_urgent_pipeline() {
        let in_team =
            |name: &str, team: &str, by_status| Arc::new(PipelineRow { by_status, team: team.to_owned(), ..row(name, &[]) });
        let all = [
            in_team("a", "pay", Attention::None),
            in_team("b", "shop", Attention::Moving),
            in_team("c", "pay", Attention::Failed),
            in_team("d", "", Attention::Wrong),
            in_team("e", "shop", Attention::None),
        ];
        for (query, expected, groups) in [
            ("", "c d b a e", 0),
            ("group=team", "c a d b e", 3),
            ("group=team&state=current", "a e", 2),
            ("group=namespace", "c d b a e", 1),
            ("group=kind", "c d b a e", 1),
        ] {
            assert_eq!(names(query, &all), expected, "{query}");
            let chosen = choose(&Query::read(query), all.iter(), Time::UNIX_EPOCH);
            assert_eq!(chosen.groups.len(), groups, "{query}");
            assert!(chosen.has_teams && chosen.groups.values().sum::<usize>() == chosen.matching * usize::from(groups > 0));
        }
        let pay = choose(&Query::read("group=team"), all.iter(), Time::UNIX_EPOCH).groups["pay"];
        assert_eq!(pay, 2);
    }
}
