//! The CRDs as they are installed: what `kube` derives from the types, with the edits of this file.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, ValidationRule,
};
use kube::CustomResourceExt as _;

use super::{Delivery, Notification, Pipeline};

/// Returns all CRDs, in the order in which they are printed.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut pipeline = Pipeline::crd();
    let mut notification = Notification::crd();
    let mut delivery = Delivery::crd();
    edit(&mut pipeline, &["status", "environments"], atomic);
    edit(&mut pipeline, &["status", "settled"], atomic);
    edit(&mut pipeline, &["status", "clusters"], atomic);
    edit(&mut pipeline, &["status", "log"], atomic);
    edit(&mut pipeline, &["status", "dispatched"], atomic);
    edit(&mut delivery, &["spec"], atomic);
    edit(&mut delivery, &["status"], atomic);
    for crd in [&mut pipeline, &mut notification] {
        edit(crd, &["status", "conditions"], by_type);
        edit(crd, &[], name_fits_label);
    }
    let mut all = vec![pipeline, notification, delivery];
    for crd in &mut all {
        edit(crd, &[], plain_integers);
        edit(crd, &[], no_defaults);
    }
    all
}

/// Applies `change` to the schema at `path` of every version.
fn edit(crd: &mut CustomResourceDefinition, path: &[&str], change: fn(&mut JSONSchemaProps)) {
    for version in &mut crd.spec.versions {
        let mut at = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut());
        for step in path {
            at = at.and_then(|s| s.properties.as_mut()).and_then(|p| p.get_mut(*step));
        }
        if let Some(schema) = at {
            change(schema);
        }
    }
}

/// Runs `visit` on a schema and on everything below it.
fn walk(schema: &mut JSONSchemaProps, visit: &mut impl FnMut(&mut JSONSchemaProps)) {
    visit(schema);
    for child in schema.properties.iter_mut().flat_map(|p| p.values_mut()) {
        walk(child, visit);
    }
    match schema.items.as_mut() {
        Some(JSONSchemaPropsOrArray::Schema(item)) => walk(item, visit),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(|i| walk(i, visit)),
        None => {}
    }
}

/// Marks every list and object in a schema atomic. One writer replaces the whole value, so its fields need no owners.
fn atomic(schema: &mut JSONSchemaProps) {
    walk(schema, &mut |s| match s.type_.as_deref() {
        Some("array") => s.x_kubernetes_list_type = Some("atomic".to_owned()),
        Some("object") => s.x_kubernetes_map_type = Some("atomic".to_owned()),
        _ => {}
    });
}

/// Makes a list of conditions a map by type, as the API conventions require.
fn by_type(schema: &mut JSONSchemaProps) {
    schema.x_kubernetes_list_type = Some("map".to_owned());
    schema.x_kubernetes_list_map_keys = Some(vec!["type".to_owned()]);
}

/// Limits the length of names: the names of pipelines and notifications become label values of deliveries.
fn name_fits_label(schema: &mut JSONSchemaProps) {
    schema.x_kubernetes_validations.get_or_insert_default().push(ValidationRule {
        rule: "size(self.metadata.name) <= 63".to_owned(),
        message: Some("the name must be at most 63 characters, because it becomes a label of every delivery".to_owned()),
        ..ValidationRule::default()
    });
}

/// Removes defaults from the schema. Layers must distinguish a default from a value that a user set, and filling in defaults has a
/// cost on every read.
fn no_defaults(schema: &mut JSONSchemaProps) {
    walk(schema, &mut |s| s.default = None);
}

/// Removes the integer widths of Rust, such as `uint16`. They are not formats of `OpenAPI`, and the API server warns about them.
fn plain_integers(schema: &mut JSONSchemaProps) {
    walk(schema, &mut |s| {
        if s.type_.as_deref() == Some("integer") && s.format.as_deref().is_some_and(|f| f.starts_with("uint")) {
            s.format = None;
            s.minimum = s.minimum.filter(|minimum| *minimum > 0.0);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<'a>(crd: &'a CustomResourceDefinition, path: &[&str]) -> &'a JSONSchemaProps {
        let mut s = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        for step in path {
            s = &s.properties.as_ref().unwrap()[*step];
        }
        s
    }

    #[test]
    fn fields_that_one_writer_replaces_are_atomic() {
        let all = crds();
        assert_eq!(at(&all[0], &["status", "log", "changes"]).x_kubernetes_list_type.as_deref(), Some("atomic"));
        assert_eq!(at(&all[0], &["status", "environments"]).x_kubernetes_list_type.as_deref(), Some("atomic"));
        assert_eq!(at(&all[0], &["spec", "environments"]).x_kubernetes_list_type.as_deref(), Some("map"));
        assert_eq!(at(&all[2], &["spec"]).x_kubernetes_map_type.as_deref(), Some("atomic"));
        assert_eq!(at(&all[2], &["status"]).x_kubernetes_map_type.as_deref(), Some("atomic"));
    }

    #[test]
    fn every_crd_has_status_category_and_short_name() {
        for (crd, short) in crds().iter().zip(["pnpl", "pnn", "dlv"]) {
            let version = &crd.spec.versions[0];
            assert!(version.subresources.as_ref().unwrap().status.is_some());
            assert_eq!(crd.spec.names.categories.as_ref().unwrap(), &vec!["pennant".to_owned()]);
            assert_eq!(crd.spec.names.short_names.as_ref().unwrap(), &vec![short.to_owned()]);
        }
    }

    #[test]
    fn no_field_has_the_format_date_time() {
        for crd in &mut crds() {
            for part in ["spec", "status"] {
                let version = &mut crd.spec.versions[0];
                let root = version.schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
                walk(root.properties.as_mut().unwrap().get_mut(part).unwrap(), &mut |s| {
                    assert_ne!(s.format.as_deref(), Some("date-time"));
                });
            }
        }
    }
}
