//! Kinds and paths that Relaybook does not read are reported before anything is applied.

use super::*;

fn pipeline(app: &str, namespace: &str) -> String {
    format!(
        "apiVersion: relaybook.dev/v1alpha1\nkind: Pipeline\nmetadata: {{name: p, namespace: team-a}}\nspec:\n  appRef: {{{app}, name: db}}\n  environments: \
         [{{name: e, targets: [{{namespace: {namespace}}}]}}]\n"
    )
}

#[test]
fn a_kind_or_a_path_that_is_not_read_is_reported() {
    for (app, namespace, words) in [
        ("apiVersion: /v1, kind: Secret", "team-b", "spec.appRef.apiVersion"),
        ("apiVersion: v1, kind: 'Secret '", "team-b", "spec.appRef.kind"),
        ("apiVersion: v1, kind: Secret", "team-b", "a Secret of v1 cannot be an application object"),
        ("apiVersion: relaybook.dev/v1alpha1, kind: Pipeline", "team-a", "a Pipeline of relaybook.dev/v1alpha1 cannot be"),
        ("apiVersion: apps/v1, kind: Deployment, revisionPath: .spec.replicas", "team-b", "not read in another namespace"),
        ("apiVersion: apps/v1, kind: Deployment, revisionPath: '.spec.values.x'", "team-a", "can be credentials"),
    ] {
        let lines = lines(&pipeline(app, namespace));
        assert!(lines.iter().any(|line| line.contains(words)), "{app}: {lines:?}");
    }
    for (app, namespace) in [
        ("apiVersion: apps/v1, kind: Deployment, revisionPath: .spec.replicas", "team-a"),
        ("apiVersion: apps/v1, kind: Deployment, revisionPath: .status.replicas", "team-b"),
    ] {
        assert_eq!(lines(&pipeline(app, namespace)), Vec::<String>::new());
    }
}

#[test]
fn a_name_that_cannot_be_recorded_is_reported() {
    let app = "apiVersion: apps/v1, kind: Deployment";
    let with = |namespace: &str, record: &str| {
        lines(&pipeline(app, namespace).replace("spec:\n", &format!("spec:\n  record: {record}\n")))
    };
    for (namespace, record, words) in [
        ("team-a", "{fields: ['.spec.template.spec.containers[0].env']}", "whose values can be credentials"),
        ("team-a", "{annotations: [kubectl.kubernetes.io/last-applied-configuration]}", "can contain credentials"),
        ("team-b", "{annotations: [acme.example/slack]}", "acme.example/slack is not recorded in another namespace"),
        ("team-a", "{annotations: ['#slack']}", "spec.record.annotations[0]"),
        ("team-a", "{labels: [a, b, c, d, e], annotations: [a, b, c, d]}", "at most 8 names"),
    ] {
        let lines = with(namespace, record);
        assert!(lines.iter().any(|line| line.contains(words)), "{record}: {lines:?}");
    }
    for (namespace, record) in [
        ("team-a", "{labels: [team], annotations: [acme.example/slack], fields: [.spec.replicas]}"),
        ("team-b", "{labels: [team], annotations: [notify.relaybook.dev/slack]}"),
        ("team-a", "{}"),
    ] {
        assert_eq!(with(namespace, record), Vec::<String>::new(), "{record}");
    }
}

#[test]
fn a_status_path_that_hides_the_attempted_revision_is_noted() {
    let deployment = "apiVersion: apps/v1, kind: Deployment";
    let application = "apiVersion: argoproj.io/v1alpha1, kind: Application";
    let flux = "apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization";
    for (app, path, is_noted) in [
        (deployment, ".status.replicas", true),
        (deployment, ".spec.replicas", false),
        (deployment, ".metadata.labels.status", false),
        (flux, ".status.lastAppliedOriginRevision", true),
        (flux, ".status.lastAttemptedRevision", false),
        (application, "'.status.sync.revisions[1]'", false),
        (application, ".status.sync.revision", false),
        (application, ".status.sourceHydrator.lastSuccessfulOperation.drySHA", false),
        (application, "'.status.summary.images[0]'", true),
        (application, "'.status.history[-1].revision'", true),
    ] {
        let report = report(&pipeline(&format!("{app}, revisionPath: {path}"), "team-a"));
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        let noted = report.notes.iter().any(|note| note.contains("says what runs, but not what is tried"));
        assert_eq!((noted, report.notes.len()), (is_noted, usize::from(is_noted)), "{app} {path}: {:?}", report.notes);
    }
}
