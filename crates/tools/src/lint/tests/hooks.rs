//! Tests the findings about Secrets with the keys of hooks.

use super::*;

const PIPELINE: &str = r"
apiVersion: relaybook.dev/v1alpha1
kind: Pipeline
metadata: {name: web, namespace: team-a}
spec:
  appRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  hooks: {secretRef: {name: looks}}
  promotion: {manual: true, strategy: {notification: {}, secretRef: {name: approvals}}}
  environments:
    - {name: dev, targets: [{namespace: a}]}
    - name: prod
      targets: [{namespace: b}]
      promotion: {strategy: {notification: {}, secretRef: {name: of-prod}}}
";

/// Returns the findings for the pipeline and a Secret with these further fields.
fn found(name: &str, namespace: &str, more: &str) -> Vec<String> {
    let secret = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}{namespace}}}\n{more}");
    lines(&format!("{PIPELINE}---\n{secret}"))
}

#[test]
fn a_secret_that_cannot_sign_is_found_at_each_field_that_names_it() {
    const KEY: &str = "stringData: {hmac-key: 0123456789abcdef}";
    const LONG: &str = "MDEyMzQ1Njc4OWFiY2RlZg==";
    let typed = |more: &str| format!("type: relaybook.dev/inbound\n{more}");
    let there = ", namespace: team-a";
    for (what, name, namespace, more, expected) in [
        (
            "opaque",
            "approvals",
            there,
            KEY.to_owned(),
            Some(("spec.promotion.strategy.secretRef.name", "has the type Opaque")),
        ),
        (
            "of an environment",
            "of-prod",
            there,
            format!("type: Opaque\n{KEY}"),
            Some(("spec.environments[1].promotion.strategy.secretRef.name", "has the type Opaque")),
        ),
        (
            "no key",
            "looks",
            there,
            typed("stringData: {key: a}"),
            Some(("spec.hooks.secretRef.name", "has no key whose name")),
        ),
        ("no data", "looks", there, typed(""), Some(("spec.hooks.secretRef.name", "has no key whose name"))),
        (
            "short",
            "looks",
            there,
            typed("data: {hmac-key: c2hvcnQ=}"),
            Some(("spec.hooks.secretRef.name", "shorter or longer")),
        ),
        ("right", "looks", there, typed(KEY), None),
        ("right, as data", "looks", there, typed(&format!("data: {{hmac-key: {LONG}}}")), None),
        ("a text replaces data", "looks", there, typed(&format!("data: {{hmac-key: c2hvcnQ=}}\n{KEY}")), None),
        ("of another namespace", "looks", ", namespace: team-b", KEY.to_owned(), None),
        ("of no namespace", "looks", "", KEY.to_owned(), None),
        ("another Secret", "others", there, KEY.to_owned(), None),
        ("encrypted", "looks", there, typed("data: {hmac-key: 'ENC[AES256_GCM,data:x]'}"), None),
    ] {
        let found = found(name, namespace, &more);
        match expected {
            None => assert!(found.is_empty(), "{what}: {found:?}"),
            Some((field, message)) => {
                assert_eq!(found.len(), 1, "{what}: {found:?}");
                assert!(
                    found[0].contains(&format!("{field}: Secret team-a/{name} ")) && found[0].contains(message),
                    "{what}: {found:?}"
                );
                assert!(!found[0].contains("0123456789"), "no value is shown: {found:?}");
            }
        }
    }
}

#[test]
fn a_secret_of_a_folder_is_read_if_it_has_a_key_of_hooks() {
    let secret =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: looks, namespace: team-a}\nstringData: {hmac-key: 0123456789abcdef}";
    let files = [File::named("a.yaml", PIPELINE), File::found("s.yaml", secret.to_owned()).unwrap()];
    let report = lint(&files, &options()).unwrap();
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert!(File::found("t.yaml", "kind: Secret\nstringData: {a: b}".to_owned()).is_none());
}
