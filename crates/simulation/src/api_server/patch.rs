//! Pure: JSON Patch as the API server applies it.
//!
//! In: a document and operations. Out: the changed document, or why the patch is not applied.

use std::slice::from_ref;

use json_patch::{PatchOperation, TestOperation, patch_unsafe};
use serde_json::Value;

/// Applies the operations to a document. If it fails, the document is in between.
///
/// # Errors
///
/// If a test fails, or a path is missing.
pub(super) fn patch(document: &mut Value, operations: &[PatchOperation]) -> Result<(), String> {
    operations.iter().try_for_each(|operation| match operation {
        PatchOperation::Test(test) => {
            is_met(document, test).then_some(()).ok_or_else(|| format!("testing value {} failed", test.path))
        }
        other => patch_unsafe(document, from_ref(other)).map_err(|error| error.to_string()),
    })
}

/// The API server also accepts a missing field as `null`. `json_patch` does not.
fn is_met(document: &Value, test: &TestOperation) -> bool {
    match (document.pointer(test.path.as_str()), test.path.split_back()) {
        (Some(found), _) => *found == test.value,
        (None, Some((parent, _))) => test.value.is_null() && document.pointer(parent.as_str()).is_some_and(Value::is_object),
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_is_applied_if_its_tests_pass_and_its_paths_exist() {
        let table = [
            (json!([{"op": "add", "path": "/a", "value": 1}]), Some(json!({"a": 1, "l": [1, 2]}))),
            (json!([{"op": "add", "path": "/l/-", "value": 3}]), Some(json!({"a": {"b": "x"}, "l": [1, 2, 3]}))),
            (json!([{"op": "add", "path": "/c/d", "value": 1}]), None),
            (json!([{"op": "remove", "path": "/a"}]), Some(json!({"l": [1, 2]}))),
            (json!([{"op": "remove", "path": "/c"}]), None),
            (json!([{"op": "replace", "path": "/a/b", "value": 1}]), Some(json!({"a": {"b": 1}, "l": [1, 2]}))),
            (json!([{"op": "replace", "path": "/a/c", "value": 1}]), None),
            (
                json!([{"op": "test", "path": "/a/b", "value": "x"}, {"op": "remove", "path": "/l"}]),
                Some(json!({"a": {"b": "x"}})),
            ),
            (json!([{"op": "test", "path": "/a/b", "value": "y"}, {"op": "remove", "path": "/l"}]), None),
            (
                json!([{"op": "test", "path": "/a/c", "value": null}, {"op": "remove", "path": "/a"}]),
                Some(json!({"l": [1, 2]})),
            ),
            (json!([{"op": "test", "path": "/c/d", "value": null}]), None),
            (json!([{"op": "test", "path": "/a/b", "value": null}]), None),
        ];
        for (operations, expected) in table {
            let mut document = json!({"a": {"b": "x"}, "l": [1, 2]});
            let parsed: Vec<PatchOperation> = serde_json::from_value(operations.clone()).unwrap();
            let result = patch(&mut document, &parsed).is_ok().then_some(document);
            assert_eq!(result, expected, "{operations}");
        }
    }
}
