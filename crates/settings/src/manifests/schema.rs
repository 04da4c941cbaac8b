//! The schemas of manifests of Relaybook's kinds.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

/// Returns the schema of a kind: the schema of its CRD, with the fields that every object has.
#[must_use]
pub fn schema(kind: &str) -> Option<Value> {
    let crd = relaybook_api::crds().into_iter().find(|crd| crd.spec.names.kind == kind)?;
    let schema = crd.spec.versions.into_iter().next()?.schema?.open_api_v3_schema?;
    let mut schema = serde_json::to_value(schema).ok()?;
    let fields = schema.get_mut("properties")?.as_object_mut()?;
    let text = json!({"type": "string"});
    fields.insert("apiVersion".to_owned(), text.clone());
    fields.insert("kind".to_owned(), text);
    fields.insert("metadata".to_owned(), metadata());
    Some(schema)
}

fn metadata() -> Value {
    let inline = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    inline.into_generator().into_root_schema_for::<ObjectMeta>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifests::unknown;

    #[test]
    fn each_kind_of_relaybook_has_a_schema_and_other_kinds_have_none() {
        assert!(schema("Secret").is_none());
        for kind in ["Pipeline", "Notification", "Delivery", "Promotion", "PipelineSet"] {
            let object = json!({"apiVersion": "", "kind": "", "metadata": {"name": "", "labels": {"a": ""}, "nam": ""},
                "spec": {}, "status": {}, "specs": {}});
            let fields: Vec<_> = unknown(&object, &schema(kind).unwrap()).into_iter().map(|(field, _)| field).collect();
            assert_eq!(fields, ["metadata.nam", "specs"], "{kind}");
        }
    }
}
