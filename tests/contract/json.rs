//! Finding values in a JSON body.

use serde_json::Value;

/// Returns all values that match a JSON Pointer, each with its own pointer. In the pattern, `*` matches every index or member.
pub fn select<'a>(value: &'a Value, pointer: &str) -> Vec<(String, &'a Value)> {
    let mut found = vec![(String::new(), value)];
    for step in pointer.split('/').skip(1) {
        let into = |(path, value): (String, &'a Value)| -> Vec<(String, &'a Value)> {
            match (value, step) {
                (Value::Array(items), "*") => items.iter().enumerate().map(|(i, v)| (format!("{path}/{i}"), v)).collect(),
                (Value::Object(members), "*") => members.iter().map(|(k, v)| (format!("{path}/{k}"), v)).collect(),
                _ => value.pointer(&format!("/{step}")).map(|v| (format!("{path}/{step}"), v)).into_iter().collect(),
            }
        };
        found = found.into_iter().flat_map(into).collect();
    }
    found
}

/// Returns all texts, each with its pointer.
pub fn texts(value: &Value) -> Vec<(String, &str)> {
    match value {
        Value::String(text) => vec![(String::new(), text)],
        Value::Array(_) | Value::Object(_) => {
            let below = |(path, value)| texts(value).into_iter().map(move |(rest, text)| (format!("{path}{rest}"), text));
            select(value, "/*").into_iter().flat_map(below).collect()
        }
        _ => Vec::new(),
    }
}
