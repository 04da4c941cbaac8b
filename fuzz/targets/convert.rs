//! Fuzzes the conversion of notifications of other programs: conditions, templates and selectors of Argo CD, or any file of Flux.
//!
//! In: UTF-8. A condition, a template and a selector, each ended by U+001F, are put into a configuration of Argo CD with one subscription. Any other
//! text is a file of Flux. Out: nothing, or a panic. The linter must read what was converted, and accept what comes from Argo CD: a file of Flux can
//! have a URL that is wrong. No field is in two items of the report, a report with errors has no manifests, and no output has the credential of the
//! configuration.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use relaybook_api::ObjectName;
use relaybook_tools::convert::{Conversion, Input, List, Options, argocd, check, flux};
use relaybook_tools::lint;
use serde_json::json;

const CREDENTIAL: &str = "b7f1c9d2e4";

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let parts: Vec<&str> = text.split('\u{1f}').collect();
    let options = Options { namespace: "argocd".to_owned(), no_triggers: false };
    let input = |text: String| [Input { name: "in.yaml".to_owned(), text, is_found: false }];
    match parts.as_slice() {
        [when, template, selector] => right(&argocd(&input(configuration(when, template, selector)), &options), true),
        _ => right(&flux(&input(text.into_owned()), &options), false),
    }
});

/// Returns a configuration with a service of each shape.
fn configuration(when: &str, template: &str, selector: &str) -> String {
    let text = |value: serde_json::Value| value.to_string();
    let data = json!({
        "context": text(json!({"url": "https://cd.example.com"})),
        "service.slack": text(json!({"token": CREDENTIAL})),
        "service.webhook.audit": text(json!({"url": "https://a.example.com/in", "headers": [{"name": "X-Key", "value": CREDENTIAL}]})),
        "trigger.t": text(json!([{"when": when, "send": ["m"]}])),
        "template.m": text(json!({"message": template, "webhook": {"audit": {"method": "POST", "body": template, "path": template}}})),
        "subscriptions": text(json!([{"recipients": ["slack:a", "audit"], "triggers": ["t"], "selector": selector}])),
    });
    let metadata = json!({"name": "argocd-notifications-cm", "namespace": "argocd"});
    text(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}))
}

fn right(conversion: &Conversion, is_valid: bool) {
    let items = &conversion.report.items;
    // Objects without a type and a name, which can be on one line, have no fields in the report.
    let with_field = || items.iter().filter(|item| !item.field.is_empty());
    let fields: BTreeSet<_> = with_field().map(|item| (&item.kind, &item.name, &item.field, item.line)).collect();
    assert_eq!(fields.len(), with_field().count(), "{items:#?}");
    let shown = format!("{:?} {:?} {items:?}", conversion.manifests, conversion.steps);
    assert!(!shown.contains(CREDENTIAL), "{shown}");
    if conversion.report.has(List::Error) {
        assert!(conversion.manifests.is_empty() && conversion.steps.is_empty(), "{shown}");
        return;
    }
    let options = lint::Options {
        namespace: "argocd".to_owned(),
        config_map: ObjectName::new("relaybook", "relaybook-config"),
        cluster_name: "in-cluster".to_owned(),
        allow_http: false,
        cross_namespace_refs: true,
    };
    let report = check(conversion, &options).expect("the manifests are read");
    assert!(!is_valid || report.findings.is_empty(), "{:?} {shown}", report.findings);
}
