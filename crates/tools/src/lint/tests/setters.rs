//! Tests the findings about markers of values.

use super::*;

const PIPELINE: &str = "apiVersion: relaybook.dev/v1alpha1
kind: Pipeline
metadata: {name: podinfo, namespace: team-a}
spec:
  appRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  environments: [{name: dev, targets: [{namespace: a}]}, {name: prod, targets: [{namespace: b}]}]
";

fn marked(environment: &str) -> String {
    format!("version: 6.5.0 # {{\"$promotion\": \"{environment}\"}}\n")
}

/// Checks a Pipeline, and a file with a marker for each environment.
fn checked(pipeline: &str, environments: &[&str]) -> Report {
    let text: String =
        environments.iter().map(|environment| format!("---\n{}", marked(environment))).collect::<Vec<_>>().concat();
    let found = File::found("prod.yaml", text).expect("it has a marker");
    lint(&[File::named("pipeline.yaml", pipeline), found], &options()).unwrap()
}

fn said(report: &Report) -> Vec<String> {
    report.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_marker_names_an_environment_of_the_files() {
    let all = checked(PIPELINE, &["team-a:podinfo:prod", "team-a:podinfo:dev:tag"]);
    assert!(all.findings.is_empty() && all.notes.is_empty(), "{all:?}");
    for (environment, expected) in [
        ("team-a:podinfo:prd", "environment prd, which Pipeline team-a/podinfo does not have; did you mean prod?"),
        (
            "team-a:podinfo:staging",
            "environment staging, which Pipeline team-a/podinfo does not have; its environments: dev, prod",
        ),
        ("team-a:podinf:prod", "Pipeline team-a/podinf, which is not among the files; did you mean team-a/podinfo?"),
        ("shop:web:prod", "Pipeline shop/web, which is not among the files"),
    ] {
        let found = checked(PIPELINE, &["team-a:podinfo:prod", environment]);
        assert_eq!(said(&found), [format!("prod.yaml:4: the marker names {expected}")]);
        assert_eq!(serde_json::to_value(found.findings[0].source).unwrap(), "setter");
    }
    // Another tool can set the namespace.
    let anywhere = PIPELINE.replace(", namespace: team-a", "");
    assert!(checked(&anywhere, &["team-a:podinfo:prod"]).findings.is_empty());
    assert_eq!(checked(&anywhere, &["team-a:podinfo:prd"]).findings.len(), 1);
}

#[test]
fn an_environment_whose_strategy_sets_values_has_a_marker() {
    let commit = "  promotion: {strategy: {commit: {url: 'https://git.example.com/deploy'}}}\n";
    let pipeline = format!("{PIPELINE}{commit}");
    let marked = checked(&pipeline, &["team-a:podinfo:prod:tag"]);
    assert!(marked.findings.is_empty() && marked.notes.is_empty(), "{marked:?}");
    let unmarked = checked(&pipeline, &["team-a:podinfo:dev"]);
    let note =
        "Pipeline team-a/podinfo: no setter among the files is for environment prod, whose strategy sets values in files";
    assert!(unmarked.findings.is_empty() && unmarked.notes == [note], "{unmarked:?}");
    // The manifests are in another repository.
    assert!(report(&pipeline).notes.is_empty());
    let notification =
        format!("{PIPELINE}{}", commit.replace("commit: {url: 'https://git.example.com/deploy'}", "notification: {}"));
    assert!(checked(&notification, &["team-a:podinfo:dev"]).notes.is_empty());
}

#[test]
fn without_a_pipeline_the_environments_are_not_checked() {
    let report = report(&format!("a: 1\n---\n{}", marked("team-a:podinfo:prod")));
    let note = "environments of setters were not checked (1): no Pipeline is among the files";
    assert!(report.findings.is_empty() && report.notes == [note], "{report:?}");
}

#[test]
fn a_malformed_marker_has_a_line() {
    for (text, expected) in [
        (marked("team-a:podinfo"), "a.yaml:1: the marker is malformed: it must name NAMESPACE:PIPELINE:ENVIRONMENT"),
        (marked("team-a:podinfo:prod:name"), "a.yaml:1: the marker is malformed: unknown suffix"),
        (
            format!("a:\n  {}", marked("team-a:podinfo:prod").replace("6.5.0", "{b: 1}")),
            "a.yaml:2: the line is in flow style",
        ),
    ] {
        let found = lines(&text);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    }
    let broken = lines(&format!("{}b: [\n", marked("team-a:podinfo:prod")));
    assert!(broken.len() == 1 && broken[0].contains("not YAML"), "reported once: {broken:?}");
}
