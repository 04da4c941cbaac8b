//! Manifests as YAML, and the commands that follow. Pure.
//!
//! In: objects, and a [`Plan`]. Out: texts of files, and lines for a person.

use std::fmt::Write as _;

use serde_json::Value;

use super::Plan;
use crate::preview::scalar;

/// A file with one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The name of the file.
    pub file: String,
    /// What it contains, on one line.
    pub about: String,
    /// The content.
    pub text: String,
}

/// Formats an object as YAML.
pub(crate) fn yaml(object: &Value) -> String {
    let mut text = String::new();
    block(object, 0, &mut text);
    text
}

/// Writes a value in block style.
fn block(value: &Value, depth: usize, text: &mut String) {
    let pad = "  ".repeat(depth);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let _ = write!(text, "{pad}{}:", scalar(name));
                if is_nested(value) {
                    text.push('\n');
                    block(value, depth + 1, text);
                } else {
                    let _ = writeln!(text, " {}", flow(value));
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let mut inner = String::new();
                block(item, depth + 1, &mut inner);
                // The first line of an item is on the line of its dash.
                let _ = write!(text, "{pad}- {}", inner.trim_start());
            }
        }
        value => {
            let _ = writeln!(text, "{pad}{}", flow(value));
        }
    }
}

fn is_nested(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| !fields.is_empty()) || value.as_array().is_some_and(|items| !items.is_empty())
}

/// Returns a value that needs one line. JSON is YAML.
fn flow(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), scalar)
}

/// Returns the lines with the commands that create the Secrets, apply the manifests and check the result. `paths`: the files. If there are
/// none, the manifests were printed.
#[must_use]
pub fn next_steps(plan: &Plan, paths: &[String]) -> Vec<String> {
    let namespace = &plan.namespace;
    let mut lines = vec!["Next:".to_owned()];
    for secret in &plan.secrets {
        lines.extend(secret.about.iter().map(|about| format!("  # {about}")));
        // The shell must not change what replaces the placeholder.
        let literals: Vec<_> = secret.keys.iter().map(|(key, value)| format!("--from-literal={key}='{value}'")).collect();
        lines.push(format!("  kubectl create secret generic {} -n {namespace} {}", secret.name, literals.join(" ")));
    }
    if paths.is_empty() {
        lines.push("  kubectl apply -f -   # with the output of this command as its input".to_owned());
    } else {
        let files: Vec<_> = paths.iter().map(|path| format!("-f {}", quoted(path))).collect();
        lines.push(format!("  kubectl apply {}", files.join(" ")));
    }
    lines.extend(plan.notifications.iter().map(|name| format!("  relaybook test {name} -n {namespace}")));
    lines.push(format!("  relaybook status -n {namespace}"));
    lines
}

/// Returns a text that a shell reads as one argument.
#[must_use]
pub fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::init::SecretNeed;

    #[test]
    fn yaml_is_read_back_as_the_same_value() {
        for value in [
            json!({"metadata": {"name": "no", "labels": {"a/b.c": "", "1e3": "1e3"}}, "list": [], "empty": {}}),
            json!({"a": [{"b": "{{x}}", "c": ["*", "y", {"d": [1, true, null]}]}, "0x1f", "a: b", "#", "- a", "é\n\"", ["n"]]}),
            json!({"a": [[[{"b": 1, "c": {"d": 2}}]]]}),
        ] {
            let text = yaml(&value);
            let read: Value = serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            assert_eq!(read, value, "{text}");
        }
        assert_eq!(
            yaml(&json!({"a": [{"b": 1, "c": [{"d": "e"}]}], "f": {"g": "h"}})),
            "a:\n  - b: 1\n    c:\n      - d: e\nf:\n  g: h\n"
        );
    }

    #[test]
    fn the_next_steps_create_secrets_without_values_first() {
        let secret = |name: &str, keys: &[&str]| SecretNeed {
            name: name.to_owned(),
            keys: keys.iter().map(|key| ((*key).to_owned(), key.to_uppercase())).collect(),
            about: vec!["token: a token".to_owned()],
        };
        let plan = Plan {
            namespace: "team-a".to_owned(),
            manifests: Vec::new(),
            secrets: vec![secret("github", &["token"]), secret("azure", &["username", "password"])],
            notifications: vec!["github-commit-status".to_owned()],
            notes: Vec::new(),
        };
        let paths = ["deploy/a.yaml".to_owned(), "my files/b.yaml".to_owned()];
        assert_eq!(
            next_steps(&plan, &paths),
            [
                "Next:",
                "  # token: a token",
                "  kubectl create secret generic github -n team-a --from-literal=token='TOKEN'",
                "  # token: a token",
                "  kubectl create secret generic azure -n team-a --from-literal=username='USERNAME' --from-literal=password='PASSWORD'",
                "  kubectl apply -f deploy/a.yaml -f 'my files/b.yaml'",
                "  relaybook test github-commit-status -n team-a",
                "  relaybook status -n team-a",
            ]
        );
        assert!(next_steps(&plan, &[]).iter().any(|line| line.starts_with("  kubectl apply -f -   #")));
    }

    #[test]
    fn a_word_of_a_shell_has_quotes_if_it_needs_them() {
        for (text, expected) in
            [("a-b/c.yaml", "a-b/c.yaml"), ("a b", "'a b'"), ("it's", "'it'\\''s'"), ("", "''"), ("!x", "'!x'")]
        {
            assert_eq!(quoted(text), expected);
        }
    }
}
