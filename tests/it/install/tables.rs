//! The tables of `docs/permissions.md` have each rule of the chart, and no others.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::render;
use crate::support::chart::Release;

/// Role, API group, resource, name of an object (empty: any), and verb.
type Grant = [String; 5];

const RELEASE: &str = "relaybook";
const NAMESPACE: &str = "relaybook-system";

/// Values with which the chart creates all of its roles.
fn values() -> [Value; 3] {
    let all = json!({"access": "listed", "listed": [{"namespace": "team-a", "all": true}]});
    let rbac = json!({"approverClusterRole": true, "infoReaders": ["people"], "secrets": all, "configMaps": all});
    [
        json!({}),
        json!({"watchNamespaces": ["team-a"], "observe": {"fleetEverywhere": true}}),
        json!({"rbac": rbac, "page": {"statusReaders": ["people"]}}),
    ]
}

/// Returns the role of the tables that an object is.
fn role(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().expect("a name");
    let whole = format!("{RELEASE}.{NAMESPACE}");
    match name.strip_prefix(&whole).or_else(|| name.strip_prefix(RELEASE)) {
        Some("") if object["kind"] == "ClusterRole" => "followed".to_owned(),
        Some("") => "own".to_owned(),
        Some(end) => end.trim_start_matches(['.', '-']).to_owned(),
        None => panic!("{name} is not of the release"),
    }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns everything that rules with these lists grant.
fn product(lists: [Vec<String>; 5]) -> Vec<Grant> {
    let mut all: Vec<Vec<String>> = vec![Vec::new()];
    for list in lists {
        let more = |start: &Vec<String>| -> Vec<Vec<String>> {
            list.iter().map(|text| start.iter().chain([text]).cloned().collect()).collect()
        };
        all = all.iter().flat_map(more).collect();
    }
    all.into_iter().map(|grant| grant.try_into().expect("five texts")).collect()
}

fn of_chart(release: &Release) -> BTreeSet<Grant> {
    let from = release.of("ClusterRole").chain(release.of("Role"));
    let rules = from.flat_map(|object| object["rules"].as_array().into_iter().flatten().map(move |rule| (object, rule)));
    let grants = rules.flat_map(|(object, rule)| {
        let any = |list: Vec<String>| if list.is_empty() { vec![String::new()] } else { list };
        let names = any(texts(&rule["resourceNames"]));
        product([vec![role(object)], texts(&rule["apiGroups"]), texts(&rule["resources"]), names, texts(&rule["verbs"])])
    });
    grants.collect()
}

fn of_page(page: &str) -> BTreeSet<Grant> {
    let is_rule = |cells: &Vec<&str>| cells.len() == 8 && !cells[1].starts_with("role") && !cells[1].starts_with('-');
    let rows = page.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>()).filter(is_rule);
    // The API group without a name is written as a word.
    let text = |text: &str| if text == "core" { String::new() } else { text.trim_matches('`').to_owned() };
    let list = |cell: &str| -> Vec<String> { cell.split(", ").map(text).collect() };
    rows.flat_map(|cells| product([list(cells[1]), list(cells[2]), list(cells[3]), list(cells[4]), list(cells[5])]))
        .collect()
}

#[test]
fn the_page_of_permissions_has_each_rule_of_the_chart_and_no_others() {
    let page = of_page(include_str!("../../../docs/permissions.md"));
    let releases = values().map(|values| render(RELEASE, NAMESPACE, &values));
    let chart: BTreeSet<Grant> = releases.iter().flat_map(of_chart).collect();
    let missing: Vec<_> = chart.difference(&page).collect();
    assert!(missing.is_empty(), "the chart grants what the page does not have: {missing:#?}");
    let more: Vec<_> = page.difference(&chart).collect();
    assert!(more.is_empty(), "the page has what the chart does not grant: {more:#?}");
    assert!(page.len() > 100, "{}", page.len());
}
