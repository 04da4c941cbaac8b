//! The CRDs as they are installed: what `kube` derives from the types, with the edits of this file.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, ValidationRule,
};
use kube_core::CustomResourceExt as _;

use super::{Delivery, Notification, Pipeline, PipelineSet, Promotion};
use crate::delivery::REDELIVER;

/// Returns all CRDs, in the order in which they are printed.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut pipeline = Pipeline::crd();
    let mut notification = Notification::crd();
    let mut delivery = Delivery::crd();
    let mut promotion = Promotion::crd();
    let mut set = PipelineSet::crd();
    edit(&mut pipeline, &["status", "environments"], atomic);
    edit(&mut pipeline, &["status", "settled"], atomic);
    edit(&mut pipeline, &["status", "clusters"], atomic);
    edit(&mut pipeline, &["status", "log"], atomic);
    edit(&mut pipeline, &["status", "dispatched"], atomic);
    edit(&mut delivery, &["spec"], atomic);
    edit(&mut delivery, &["status"], atomic);
    edit(&mut delivery, &["status"], never_null);
    edit(&mut delivery, &[], outcome_is_final);
    edit(&mut promotion, &["status"], atomic);
    edit(&mut set, &["status"], atomic);
    edit(&mut promotion, &["spec"], not_approved_at_creation);
    without_subresources(&mut delivery);
    for crd in [&mut pipeline, &mut notification, &mut set] {
        edit(crd, &["status", "conditions"], by_type);
        edit(crd, &[], name_fits_label);
    }
    let mut all = vec![pipeline, notification, delivery, promotion, set];
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

/// Removes the status subresource. With it, the API server drops the status from a create. Relaybook creates most Deliveries after the
/// receiver has answered, with the outcome in the status of the create.
fn without_subresources(crd: &mut CustomResourceDefinition) {
    for version in &mut crd.spec.versions {
        version.subresources = None;
    }
}

/// The fields of `Delivery.status` that the write that reopens a delivery clears.
const CLEARED: [&str; 4] = ["outcome", "reason", "settledTime", "nextAttemptTime"];
/// The fields of `Delivery.status` that the write that reopens a delivery keeps.
const KEPT: [&str; 8] =
    ["attempts", "statusCode", "lastAttemptTime", "lastDurationMillis", "error", "response", "superseded", "thread"];

/// Protects the status of a Delivery, because no subresource separates it from the rest of the object. Every client with the permission to
/// patch Deliveries can send a patch that contains the status.
///
/// - Once the outcome is set, the status is a record. It can only be reopened for a redelivery. `outbox::lane::redeliver` makes that write.
/// - While the delivery is pending, the number of attempts does not decrease, and the mark of a redelivery stays.
///
/// Each rule compares the object with its stored version. So the API server evaluates none of them for a create.
fn outcome_is_final(schema: &mut JSONSchemaProps) {
    let cleared = CLEARED.map(|field| format!("!has(self.status.{field})")).join(" && ");
    let kept = KEPT.map(|field| {
        let (new, old) = (format!("self.status.{field}"), format!("oldSelf.status.{field}"));
        format!("  has({new}) == has({old}) && (!has({new}) || {new} == {old})")
    });
    let rule = |text: String, message: &str| ValidationRule {
        rule: text,
        message: Some(message.replace("{again}", REDELIVER)),
        ..ValidationRule::default()
    };
    schema.x_kubernetes_validations.get_or_insert_default().extend([
        rule(
            "!has(oldSelf.status) || !has(oldSelf.status.outcome) || has(self.status)".to_owned(),
            "the status of a settled delivery cannot be removed; to send the delivery again, annotate it with \
             {again}; to remove the record, delete the object",
        ),
        rule(
            format!(
                "!has(oldSelf.status) || !has(oldSelf.status.outcome) || !has(self.status) ||\n\
                 self.status == oldSelf.status || (\n  \
                 {cleared} &&\n  \
                 has(self.status.redelivered) &&\n  \
                 (!has(oldSelf.status.redelivered) || self.status.redelivered != oldSelf.status.redelivered) &&\n\
                 {kept}\n)",
                kept = kept.join(" &&\n"),
            ),
            "the status of a settled delivery cannot be changed; to send the delivery again, annotate it with \
             {again}",
        ),
        rule(
            "!has(oldSelf.status) || has(oldSelf.status.outcome) || !has(oldSelf.status.attempts) ||\n\
             oldSelf.status.attempts <= (has(self.status) && has(self.status.attempts) ? self.status.attempts : 0)"
                .to_owned(),
            "status.attempts cannot decrease; keep the number, or delete the object to cancel the delivery",
        ),
        rule(
            "!has(oldSelf.status) || has(oldSelf.status.outcome) || !has(oldSelf.status.redelivered) ||\n\
             (has(self.status) && has(self.status.redelivered))"
                .to_owned(),
            "status.redelivered cannot be removed, because the redelivery would be repeated; keep it, or delete the object \
             to cancel the delivery",
        ),
    ]);
}

/// Makes the API server drop nulls. With `nullable` it would store them. A null counts as a field when a rule compares the sizes of two
/// objects, but is skipped when it compares their fields. So two different statuses could be equal for a rule.
fn never_null(schema: &mut JSONSchemaProps) {
    walk(schema, &mut |s| s.nullable = None);
}

/// Rejects a Promotion that is approved when it is created. Otherwise the permission to create one would be the permission to approve it.
fn not_approved_at_creation(schema: &mut JSONSchemaProps) {
    schema.x_kubernetes_validations.get_or_insert_default().push(ValidationRule {
        rule: "oldSelf.hasValue() || !self.?approved.orValue(false)".to_owned(),
        message: Some("a promotion cannot be approved when it is created; approve it afterwards".to_owned()),
        optional_old_self: Some(true),
        ..ValidationRule::default()
    });
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
    use std::collections::BTreeSet;

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
    fn every_crd_has_group_category_and_short_name() {
        for (crd, short) in crds().iter().zip(["rbp", "rbn", "dlv", "promo", "rbps"]) {
            assert_eq!(crd.spec.group, crate::GROUP);
            assert_eq!(crd.spec.names.categories.as_ref().unwrap(), &vec!["relaybook".to_owned()]);
            assert_eq!(crd.spec.names.short_names.as_ref().unwrap(), &vec![short.to_owned()]);
        }
    }

    #[test]
    fn only_deliveries_have_no_status_subresource() {
        for crd in &crds() {
            let subresources = crd.spec.versions[0].subresources.as_ref();
            let has_status = subresources.is_some_and(|subresources| subresources.status.is_some());
            assert_eq!(has_status, crd.spec.names.kind != "Delivery", "{}", crd.spec.names.kind);
        }
    }

    /// The rule about a reopened delivery names each field. A new field must be added to one of the lists.
    #[test]
    fn the_rule_about_a_reopened_delivery_names_every_status_field() {
        let all = crds();
        let fields: BTreeSet<_> = at(&all[2], &["status"]).properties.as_ref().unwrap().keys().map(String::as_str).collect();
        let known: BTreeSet<_> = CLEARED.into_iter().chain(KEPT).chain(["redelivered"]).collect();
        assert_eq!(fields, known);
    }

    #[test]
    fn the_status_of_a_delivery_has_no_nulls_and_its_rules_cost_a_create_nothing() {
        let mut all = crds();
        edit(&mut all[2], &["status"], |status| walk(status, &mut |s| assert_eq!(s.nullable, None)));
        let rules = at(&all[2], &[]).x_kubernetes_validations.as_ref().unwrap();
        assert_eq!(rules.len(), 4);
        for rule in rules {
            assert!(rule.rule.contains("oldSelf") && rule.optional_old_self.is_none(), "{}", rule.rule);
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
