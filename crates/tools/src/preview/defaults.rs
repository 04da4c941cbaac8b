//! Pure: the defaults of the parameters of built-in templates, which no layer contains.
//!
//! In: the effective settings of a notification. Out: the same with the defaults, and where they are.

use serde_json::{Map, Value};

use relaybook_api::notification::Builtin;
use relaybook_settings::render::builtin;

/// Adds the defaults of the parameters that no layer sets. Returns the JSON Pointers of the added fields.
pub(super) fn add_defaults(spec: &mut Map<String, Value>) -> Vec<String> {
    let mut added = Vec::new();
    let template = spec.get_mut("template").and_then(Value::as_object_mut);
    let name =
        template.as_ref().and_then(|template| serde_json::from_value::<Builtin>(template.get("builtin")?.clone()).ok());
    let declared = name.map_or(&[][..], |name| builtin(name).metadata.parameters.as_slice());
    let defaults: Vec<_> = declared.iter().filter_map(|p| Some((&p.name, p.default.as_ref()?))).collect();
    if let Some(template) = template.filter(|_| !defaults.is_empty())
        && let Value::Object(given) = template.entry("parameters").or_insert_with(|| Map::new().into())
    {
        for (name, default) in defaults {
            if !given.contains_key(name) {
                given.insert(name.clone(), Value::from(default.as_str()));
                added.push(format!("/template/parameters/{name}"));
            }
        }
    }
    added
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_that_no_layer_sets_have_the_default_of_the_template() {
        for (template, parameters, added) in [
            (
                json!({"builtin": "alertmanager", "parameters": {"severity": "critical"}}),
                json!({"severity": "critical", "source": "relaybook", "link": ""}),
                &["alertname", "fields", "link", "source", "title"][..],
            ),
            (
                json!({"builtin": "alertmanager"}),
                json!({"severity": "warning"}),
                &["alertname", "fields", "link", "severity", "source", "title"],
            ),
            (json!({"builtin": "alertmanager", "parameters": null}), json!(null), &[]),
            (json!({"inline": {"body": "{}"}, "parameters": {"a": "b"}}), json!({"a": "b"}), &[]),
            (json!({"builtin": "unknown"}), json!(null), &[]),
        ] {
            let mut spec = Map::from_iter([("template".to_owned(), template.clone())]);
            let mut pointers = add_defaults(&mut spec);
            pointers.sort();
            assert_eq!(
                pointers,
                added.iter().map(|name| format!("/template/parameters/{name}")).collect::<Vec<_>>(),
                "{template}"
            );
            let found = &spec["template"]["parameters"];
            for (name, value) in parameters.as_object().into_iter().flatten() {
                assert_eq!(&found[name], value, "{template}");
            }
            assert!(parameters.is_object() || found.is_null(), "{found}");
        }
        assert!(add_defaults(&mut Map::new()).is_empty());
    }
}
