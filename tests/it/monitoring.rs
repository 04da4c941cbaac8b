//! Checks that the dashboard and the alerts use only metrics that `/metrics` contains, and that the documentation lists all metrics.
//!
//! A query with an unknown metric is no error: its panel stays empty, and its alert never fires. So the names, labels and values in the
//! queries are compared with one real run in which every family has series. `make rules` checks the syntax of the queries and when the
//! alerts fire. It uses the scrapes that are recorded here.

mod queries;
mod scrape;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Value, json};

use self::queries::{Op, Query, Selector};
use self::scrape::Scrape;
use crate::support::relaybook::Options;
use crate::support::world::OF_SECOND;
use crate::support::{Oracle, Receiver, Relaybook, Reply, World, eventually};

/// The labels that a scrape adds to every series.
const OF_THE_TARGET: [&str; 4] = ["namespace", "job", "pod", "instance"];
/// Number of recorded scrapes.
const SCRAPES: u32 = 5;
/// The start of each runbook link: the page in the documentation of the installed version.
const RUNBOOK: &str = "docs/monitoring.md#";

fn file(path: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), path].iter().collect()
}

fn text(path: &str) -> String {
    std::fs::read_to_string(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn dashboard() -> Value {
    serde_json::from_str(&text("charts/relaybook/files/dashboard.json")).expect("the dashboard is JSON")
}

fn alerts() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&text("charts/relaybook/files/rules.yaml")).expect("the rules are YAML");
    let groups = rules["groups"].as_array().expect("groups").iter();
    groups.flat_map(|group| group["rules"].as_array().expect("rules")).cloned().collect()
}

/// Returns all queries of the dashboard and the alerts, each with its panel, variable or alert.
fn queries() -> Vec<(String, Query)> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let shown = panels.flat_map(|panel| {
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(|target| (panel["title"].to_string(), target["expr"].as_str().expect("a query").to_owned()))
    });
    let variables = dashboard["templating"]["list"].as_array().expect("variables").iter();
    let asked = variables.filter_map(|v| Some((v["name"].to_string(), v["query"]["query"].as_str()?.to_owned())));
    let alerts = alerts();
    let alerted = alerts.iter().map(|rule| (rule["alert"].to_string(), rule["expr"].as_str().expect("a query").to_owned()));
    shown.chain(asked).chain(alerted).map(|(at, query)| (at, Query::parse(&query))).collect()
}

/// Returns the metrics, labels and values of a query that a scrape does not contain.
fn missing(scrape: &Scrape, query: &Query) -> Vec<String> {
    let mut known: BTreeSet<&str> = OF_THE_TARGET.into();
    let mut wrong = Vec::new();
    for Selector { name, matchers } in &query.selectors {
        let Some(series) = scrape.series.get(name) else {
            wrong.push(format!("no metric {name}"));
            continue;
        };
        let labels: BTreeMap<&str, BTreeSet<&str>> = scrape::values(series);
        known.extend(labels.keys());
        for (label, op, value) in matchers.iter().filter(|(label, ..)| !OF_THE_TARGET.contains(&label.as_str())) {
            let Some(values) = labels.get(label.as_str()) else {
                wrong.push(format!("{name} has no label {label}"));
                continue;
            };
            // On the labels of Relaybook, the queries use only one form of regular expression: alternatives such as `a|b`.
            let words = if *op == Op::Matches { value.split('|').collect() } else { vec![value.as_str()] };
            let strange = words.into_iter().filter(|word| !values.contains(word));
            wrong.extend(strange.map(|word| format!("{label} of {name} is never {word}")));
        }
    }
    wrong.extend(
        query.labels.iter().filter(|label| !known.contains(label.as_str())).map(|label| format!("no label {label}")),
    );
    wrong
}

#[tokio::test]
async fn queried_metrics_of_dashboard_and_alerts_exist_and_are_documented() {
    let world = World::new("watched").await;
    let receiver = Receiver::start();
    receiver.always("/refused/web", Reply::status(422));
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    for (name, over) in [("hook", json!({})), ("refused", json!({})), ("held", json!({"suspend": true}))] {
        world.notification(name, &receiver, over).await;
    }
    let relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let mut scrapes = Vec::new();
    for n in 1..=SCRAPES {
        world.ship("web", &format!("{}", n + 1)).await;
        world.fence("shop", &["hook", "refused"]).await;
        scrapes.push(scrape_of_all(&relaybook, n).await);
    }
    let steps = |ends: &str| (1..=SCRAPES).map(|n| format!("Deployed {}{ends}", n + 1)).collect::<Vec<_>>();
    let oracle = Oracle::new(&world, &receiver);
    [("hook", ""), ("refused", " [Parked]"), ("held", " [pending]")]
        .into_iter()
        .fold(oracle, |oracle, (name, ends)| {
            let steps = steps(ends);
            oracle.lane(&format!("shop/{name}/dev/web"), &steps.iter().map(String::as_str).collect::<Vec<_>>())
        })
        .check()
        .await;

    let last = scrapes.last().expect("one");
    let wrong = |(at, query): &(String, Query)| {
        missing(last, query).into_iter().map(|what| format!("{at}: {what}")).collect::<Vec<_>>()
    };
    assert_eq!(queries().iter().flat_map(wrong).collect::<Vec<_>>(), [""; 0], "used in a query, but not in /metrics");
    scrape::recorded(&file("hack/rules/recorded.txt"), &scrapes);
    assert_eq!(told(), last.families(), "the table of metrics in docs/monitoring.md differs from /metrics");
}

#[tokio::test]
async fn blocked_and_suspended_lanes_are_counted_separately_and_only_by_their_replica() {
    let world = World::new("watched-lanes").await;
    world.only_for_first();
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("held", &receiver, json!({"suspend": true})).await;
    let token = json!({"token": {"secretKeyRef": {"name": "not-there", "key": "token"}}});
    world.notification("keyless", &receiver, json!({"endpoint": {"auth": token}})).await;
    let replica = async |pod| Relaybook::with(&world, Options { pod: Some(pod), ..Options::of(&world) }).await;
    let first = replica("first").await;
    for name in ["held", "keyless"] {
        world.cursor("shop", name).await;
    }
    let second = replica("second").await;
    second.holds("relaybook-dispatch", OF_SECOND).await;
    world.ship("web", "2").await;
    let says = async |relaybook: &Relaybook, blocked: f64, suspended: f64| {
        eventually("lanes and pending deliveries are counted", async || {
            let metrics = relaybook.metrics().await;
            let lanes = |state: &str| metrics[&format!("relaybook_lanes{{state=\"{state}\"}}")];
            let counts = (lanes("blocked"), lanes("suspended"), lanes("ready"), metrics["relaybook_deliveries_pending"]);
            if counts == (blocked, suspended, 0.0, 2.0) { Ok(()) } else { Err(format!("{counts:?}")) }
        })
        .await;
    };
    says(&first, 1.0, 1.0).await;
    says(&second, 0.0, 0.0).await;

    world.secret("not-there", json!({"token": "t"})).await;
    receiver.wait("/keyless/web", 1).await;
    Oracle::new(&world, &receiver)
        .lane("shop/keyless/dev/web", &["Deployed 2"])
        .lane("shop/held/dev/web", &["Deployed 2 [pending]"])
        .check()
        .await;
}

/// Waits until the gauges of the notifications include this number of changes of two targets each. Returns that scrape.
async fn scrape_of_all(relaybook: &Relaybook, changes: u32) -> Scrape {
    eventually("the gauges have caught up", async || {
        let scrape = Scrape::parse(&relaybook.page("/metrics").await);
        let of = |notification: &str, state: &str| {
            let is = |labels: &BTreeMap<String, String>| labels["notification"] == notification && labels["state"] == state;
            let family = scrape.series.get("relaybook_notification_deliveries").into_iter().flatten();
            family.filter(|(labels, _)| is(labels)).map(|(_, value)| *value).sum::<f64>()
        };
        let counts = (of("held", "pending"), of("refused", "parked"), of("hook", "pending"));
        let changes = f64::from(changes);
        let expected = (2.0 * changes, changes, 0.0);
        if counts == expected { Ok(scrape.clone()) } else { Err(format!("{counts:?}, not {expected:?}")) }
    })
    .await
}

/// Returns the table of metrics in the documentation: name, type and labels.
fn told() -> BTreeSet<(String, String, BTreeSet<String>)> {
    let page = text("docs/monitoring.md");
    let rows = page.lines().filter(|line| line.starts_with("| `relaybook_"));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, _unit, meaning] = cells[..] else { panic!("five columns: {row}") };
        assert!(!meaning.is_empty(), "{row}");
        let labels = labels.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (name.trim_matches('`').to_owned(), kind.to_owned(), labels)
    })
    .collect()
}

#[test]
fn each_alert_has_a_summary_and_a_runbook() {
    let page = text("docs/monitoring.md");
    let sections: BTreeSet<_> = page.lines().filter_map(|line| line.strip_prefix("### Relaybook")).collect();
    let alerts = alerts();
    for alert in &alerts {
        let name = alert["alert"].as_str().expect("a name");
        assert!(name.strip_prefix("Relaybook").is_some_and(|rest| sections.contains(rest)), "{name} is not in the runbook");
        assert!(alert["for"].as_str().is_some_and(|span| span.ends_with(['m', 'h'])), "{name} fires at once");
        assert!(["critical", "warning"].contains(&alert["labels"]["severity"].as_str().unwrap_or("none")), "{name}");
        let annotations = &alert["annotations"];
        assert_eq!(annotations["runbook"], json!(format!("{RUNBOOK}{}", name.to_lowercase())));
        for about in ["summary", "description"] {
            assert!(annotations[about].as_str().is_some_and(|words| words.len() > 20), "{name} has no {about}");
        }
        let tested = ["flow", "state"].map(|name| text(&format!("hack/rules/{name}.yaml"))).concat();
        let cases = tested.matches(&format!("alertname: {name}\n")).count();
        let quiet = tested.matches(&format!("alertname: {name}, ")).count();
        assert!(cases > 0 && quiet > 0, "{name} has no test in which it fires, or none in which it does not");
    }
    assert_eq!(sections.len(), alerts.len(), "{sections:?}");
}

#[test]
fn each_panel_has_a_description_and_a_unit() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len());
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let title = &panel["title"];
        assert!(panel["description"].as_str().is_some_and(|words| words.len() > 20), "{title} has no description");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title} has no unit");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        for target in panel["targets"].as_array().expect("queries") {
            let query = target["expr"].as_str().expect("a query");
            let selectors = query.matches("{namespace=\"$namespace\", job=~\"$job\", pod=~\"$pod\"").count();
            assert_eq!(
                selectors,
                Query::parse(query).selectors.len(),
                "{title} has a selector without the variables of the dashboard: {query}"
            );
        }
    }
}
