//! Sets for tests.

use serde_json::json;

use relaybook_api::PipelineSetSpec;

/// Returns a set with one generator, whose pipelines have this template of their names.
pub(super) fn spec(generator: &str, name: &str) -> PipelineSetSpec {
    let generator: serde_json::Value = serde_json::from_str(generator).unwrap();
    let template = json!({
        "metadata": {"name": name},
        "spec": {
            "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "{{name}}"},
            "environments": [{"name": "all", "targets": [{"namespace": "{{namespace}}"}]}],
        },
    });
    serde_json::from_value(json!({"generators": [generator], "template": template})).unwrap()
}
