//! Pure: what the schemas that an API server publishes lack, compared with our CRDs.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// The part of a published document ([OpenAPI v3](https://spec.openapis.org/oas/v3.0.3)) that is compared. Descriptions, rules and defaults
/// are nine tenths of a document, and reading skips them.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Published {
    #[expect(clippy::zero_sized_map_values, reason = "the values of a document are skipped")]
    paths: BTreeMap<String, IgnoredAny>,
    components: Components,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Components {
    schemas: BTreeMap<String, Schema>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Schema {
    #[serde(rename = "type")]
    type_: Option<String>,
    #[serde(rename = "enum")]
    values: Option<Vec<Value>>,
    properties: BTreeMap<String, Schema>,
    items: Option<Box<Schema>>,
    #[serde(rename = "additionalProperties")]
    additional: Option<Additional>,
    #[serde(rename = "x-kubernetes-preserve-unknown-fields")]
    keeps_unknown: bool,
    #[serde(rename = "x-kubernetes-group-version-kind")]
    kinds: Vec<GroupVersionKind>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Additional {
    Schema(Box<Schema>),
    Other(IgnoredAny),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GroupVersionKind {
    group: String,
    version: String,
    kind: String,
}

/// Returns the fields of `ours` that the published schemas lack or declare differently, as `KIND.path`. A kind without a schema is listed
/// by its name.
///
/// This compares only what would be lost: names, types and allowed values. It compares neither rules nor defaults. Additional
/// published fields belong to another version and are accepted. A status subresource that our CRD does not have is listed too, because
/// with it the API server drops the status from creates and patches of the object.
#[must_use]
pub fn missing(ours: &[CustomResourceDefinition], published: &Published) -> Vec<String> {
    let mut lost = Vec::new();
    for definition in ours {
        let kind = &definition.spec.names.kind;
        let own = definition.spec.versions.iter().find_map(|v| v.schema.as_ref()?.open_api_v3_schema.as_ref());
        let (Some(own), Some(theirs)) = (own, of_kind(published, definition, kind)) else {
            lost.push(kind.clone());
            continue;
        };
        compare(own, theirs, kind, &mut lost);
        if is_status_dropped(published, definition) {
            lost.push(format!("{kind}.status in the object itself (it is still a subresource)"));
        }
    }
    lost
}

/// Whether the published kind has a status subresource, and ours has none.
fn is_status_dropped(published: &Published, definition: &CustomResourceDefinition) -> bool {
    let mut own = definition.spec.versions.iter().filter_map(|v| v.subresources.as_ref());
    if own.any(|subresources| subresources.status.is_some()) {
        return false;
    }
    let path = format!("/{}/{{name}}/status", definition.spec.names.plural);
    published.paths.keys().any(|published| published.ends_with(&path))
}

/// Returns the published schema of a kind.
fn of_kind<'a>(published: &'a Published, definition: &CustomResourceDefinition, kind: &str) -> Option<&'a Schema> {
    let spec = &definition.spec;
    let is = |of: &GroupVersionKind| {
        of.group == spec.group && of.kind == kind && spec.versions.iter().any(|v| v.name == of.version)
    };
    published.components.schemas.values().find(|schema| schema.kinds.iter().any(is))
}

fn compare(own: &JSONSchemaProps, theirs: &Schema, at: &str, lost: &mut Vec<String>) {
    if theirs.keeps_unknown {
        return;
    }
    if own.type_.is_some() && own.type_ != theirs.type_ {
        return lost.push(format!("{at} ({})", own.type_.as_deref().unwrap_or_default()));
    }
    let refused = |value: &&Value| theirs.values.as_ref().is_some_and(|values| !values.contains(value));
    let values = own.enum_.iter().flatten().map(|value| &value.0);
    lost.extend(values.filter(refused).map(|value| format!("{at}={value}")));
    for (name, field) in own.properties.iter().flatten() {
        let path = format!("{at}.{name}");
        match theirs.properties.get(name) {
            // The schema of `metadata` is published by reference, and is the same for all kinds.
            Some(_) if path.ends_with(".metadata") && path.matches('.').count() == 1 => {}
            Some(theirs) => compare(field, theirs, &path, lost),
            None => lost.push(path),
        }
    }
    let none = Schema::default();
    let inner = format!("{at}[]");
    if let Some(JSONSchemaPropsOrArray::Schema(own)) = &own.items {
        compare(own, theirs.items.as_deref().unwrap_or(&none), &inner, lost);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(own)) = &own.additional_properties {
        let theirs = if let Some(Additional::Schema(theirs)) = &theirs.additional { theirs } else { &none };
        compare(own, theirs, &inner, lost);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    /// Returns our own CRDs, as an API server would publish them.
    fn published() -> Value {
        publish(&relaybook_api::crds())
    }

    fn publish(definitions: &[CustomResourceDefinition]) -> Value {
        let path = |definition: &CustomResourceDefinition, rest: &str| {
            let plural = &definition.spec.names.plural;
            (format!("/apis/relaybook.dev/v1alpha1/namespaces/{{namespace}}/{plural}/{{name}}{rest}"), json!({}))
        };
        let has_status = |d: &&CustomResourceDefinition| d.spec.versions[0].subresources.is_some();
        let objects = definitions.iter().map(|definition| path(definition, ""));
        let statuses = definitions.iter().filter(has_status).map(|definition| path(definition, "/status"));
        let paths: Map<_, _> = objects.chain(statuses).collect();
        let schemas = definitions.iter().map(|definition| {
            let version = &definition.spec.versions[0];
            let mut schema =
                serde_json::to_value(version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()).unwrap();
            let kind = &definition.spec.names.kind;
            schema["x-kubernetes-group-version-kind"] =
                json!([{"group": definition.spec.group, "version": version.name, "kind": kind}]);
            (format!("dev.relaybook.{}.{kind}", version.name), schema)
        });
        json!({"paths": paths, "components": {"schemas": schemas.collect::<Map<_, _>>()}})
    }

    /// Returns the CRDs of the version before: the status of a Delivery is a subresource, and has a field with another name.
    fn of_the_version_before() -> Vec<CustomResourceDefinition> {
        let mut all = relaybook_api::crds();
        let subresources = all[0].spec.versions[0].subresources.clone();
        let version = &mut all[2].spec.versions[0];
        version.subresources = subresources;
        let schema = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()).unwrap();
        let status = schema.properties.as_mut().and_then(|p| p.get_mut("status")).unwrap();
        let fields = status.properties.as_mut().unwrap();
        let duration = fields.remove("lastDurationMillis").unwrap();
        fields.insert("durationMillis".to_owned(), duration);
        all
    }

    fn lacks(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut published = published();
        change(&mut published["components"]["schemas"]["dev.relaybook.v1alpha1.Pipeline"]["properties"]);
        missing(&relaybook_api::crds(), &published)
    }

    /// Compares with the document as an API server sends it.
    fn missing(ours: &[CustomResourceDefinition], published: &Value) -> Vec<String> {
        super::missing(ours, &serde_json::from_value(published.clone()).unwrap())
    }

    type Change = fn(&mut Value);

    #[test]
    fn fields_that_would_be_lost_are_listed() {
        assert_eq!(lacks(|_| ()), Vec::<String>::new());
        assert_eq!(
            missing(&relaybook_api::crds(), &json!({})),
            ["Pipeline", "Notification", "Delivery", "Promotion", "PipelineSet"]
        );
        let table: [(&str, Change, &[&str]); 6] = [
            (
                "a field",
                |p| drop(p["status"]["properties"].as_object_mut().unwrap().remove("settled")),
                &["Pipeline.status.settled"],
            ),
            (
                "a field of an item",
                |p| {
                    let cursors = &mut p["status"]["properties"]["dispatched"]["properties"]["cursors"];
                    cursors["items"]["properties"].as_object_mut().unwrap().remove("uid");
                },
                &["Pipeline.status.dispatched.cursors[].uid"],
            ),
            (
                "another type",
                |p| p["status"]["properties"]["log"]["properties"]["serial"]["type"] = json!("string"),
                &["Pipeline.status.log.serial (integer)"],
            ),
            ("more than ours", |p| p["status"]["properties"]["later"] = json!({"type": "string"}), &[]),
            (
                "all is kept",
                |p| {
                    p["status"] = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
                },
                &[],
            ),
            ("another rule", |p| p["spec"]["properties"]["environments"]["maxItems"] = json!(1), &[]),
        ];
        for (what, change, want) in table {
            assert_eq!(lacks(change), want, "{what}");
        }
    }

    #[test]
    fn crds_of_this_and_of_the_previous_version_do_not_fit_each_other() {
        let before = of_the_version_before();
        assert_eq!(missing(&before, &publish(&before)), Vec::<String>::new());
        assert_eq!(missing(&before, &published()), ["Delivery.status.durationMillis"]);
        assert_eq!(
            missing(&relaybook_api::crds(), &publish(&before)),
            ["Delivery.status.lastDurationMillis", "Delivery.status in the object itself (it is still a subresource)"]
        );
    }

    #[test]
    fn a_status_subresource_is_listed_only_for_a_kind_that_must_not_have_one() {
        let listed = |paths: Value| {
            let mut published = published();
            published["paths"] = paths;
            missing(&relaybook_api::crds(), &published)
        };
        let path = |rest: &str| json!({format!("/apis/relaybook.dev/v1alpha1/namespaces/{{namespace}}/{rest}"): {}});
        assert_eq!(
            listed(path("deliveries/{name}/status")),
            ["Delivery.status in the object itself (it is still a subresource)"]
        );
        for other in ["deliveries/{name}", "pipelines/{name}/status", "undeliveries/{name}/status"] {
            assert_eq!(listed(path(other)), Vec::<String>::new(), "{other}");
        }
        assert_eq!(listed(json!({})), Vec::<String>::new());
    }

    #[test]
    fn an_enum_value_that_is_not_accepted_is_listed() {
        let mut published = published();
        let delivery = &mut published["components"]["schemas"]["dev.relaybook.v1alpha1.Delivery"];
        let outcome = &mut delivery["properties"]["status"]["properties"]["outcome"]["enum"];
        let all = outcome.as_array_mut().unwrap();
        let gone = all.remove(0);
        assert_eq!(missing(&relaybook_api::crds(), &published), [format!("Delivery.status.outcome={gone}")]);
    }
}
