//! Parses the global configuration. The parser is strict, and each problem has a position.

use std::fmt;
use std::sync::LazyLock;

use serde_json::Value;

use relaybook_text::{cut_chars, first_line};

use super::field::steps;
use super::{Broken, Document, Place, Structure, read};
use crate::config::{Global, is_secret};
use relaybook_api::global::{GlobalConfig, schema};

#[allow(clippy::expect_used, reason = "a schema of our own, which a test compiles")]
static STRUCTURE: LazyLock<Structure> = LazyLock::new(|| Structure::new(schema()).expect("a schema"));

/// Maximum length of a reported field, because statuses and Events have size limits.
const LONGEST_FIELD: usize = 128;
/// Maximum length of a reported message, for the same reason.
const LONGEST_MESSAGE: usize = 384;

/// A problem of the global configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Position in the text.
    pub place: Place,
    /// The field. It is empty if the problem is about the whole text.
    pub field: String,
    /// The problem, and how to fix it.
    pub message: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.line > 0 {
            write!(f, "line {}, column {}: ", self.place.line, self.place.column)?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

/// Parses the global configuration. An empty text is valid and sets nothing. `namespace` is the namespace of its ConfigMap.
pub fn parse(text: &str, namespace: &str) -> Result<Global, Vec<Wrong>> {
    document(text)?.map_or_else(|| Ok(Global::default()), |document| understand(&document, namespace))
}

/// Returns the only document of a text, or `None` if the text has no document.
pub fn document(text: &str) -> Result<Option<Document>, Vec<Wrong>> {
    let mut documents = read(text).into_iter();
    match (documents.next(), documents.next()) {
        (None, _) => Ok(None),
        (Some(document), None) => document.map(Some).map_err(|broken| vec![not_yaml(&broken)]),
        (Some(Err(broken)), _) | (_, Some(Err(broken))) => Err(vec![not_yaml(&broken)]),
        (Some(_), Some(Ok(second))) => {
            let message = "a second document; the global configuration must be one document".to_owned();
            Err(vec![Wrong { place: second.place(""), field: String::new(), message }])
        }
    }
}

/// Converts a document to the global configuration. A document that is null sets nothing.
pub fn understand(document: &Document, namespace: &str) -> Result<Global, Vec<Wrong>> {
    if document.value.is_null() {
        return Ok(Global::default());
    }
    let object = STRUCTURE.without_nulls(&document.value);
    let misfits = STRUCTURE.misfits(&document.value, &object);
    if !misfits.is_empty() {
        let mut all: Vec<_> = misfits.into_iter().map(|misfit| wrong(document, misfit)).collect();
        all.sort_by_key(|wrong| wrong.place);
        return Err(all);
    }
    typed(object, namespace).map_err(|misfit| vec![wrong(document, misfit)])
}

fn typed(object: Value, namespace: &str) -> Result<Global, (String, String)> {
    let config: GlobalConfig =
        serde_path_to_error::deserialize(object).map_err(|e| (e.path().to_string(), first_line(&e.inner().to_string())))?;
    Global::new(&config, namespace)
}

fn wrong(document: &Document, (field, message): (String, String)) -> Wrong {
    let message = cut_chars(&without_secret(document, &field, message), LONGEST_MESSAGE).into_owned();
    Wrong { place: document.place(&field), field: cut_chars(&field, LONGEST_FIELD).into_owned(), message }
}

fn not_yaml(broken: &Broken) -> Wrong {
    let message = format!("not YAML: {}", cut_chars(&broken.problem, LONGEST_MESSAGE));
    Wrong { place: broken.place, field: String::new(), message }
}

/// Returns a message without the value, if the value may be a credential that was written where a reference is required. The message can be
/// read by more people than the configuration.
fn without_secret(document: &Document, field: &str, message: String) -> String {
    if !(field.contains("endpoint") && is_secret(field)) {
        return message;
    }
    let value = steps(field).try_fold(&document.value, |value, step| match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        value => value.get(step),
    });
    match value {
        Some(value) if !value.is_object() && !value.is_array() => message.replace(&value.to_string(), "this"),
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        parse(text, "relaybook-system").map(drop).unwrap_err().iter().map(ToString::to_string).collect()
    }

    const GOOD: &str = "
# An organisation's defaults.
defaults:
  delivery: {retry: {maxAge: 12h}}
  endpoint: null
notifications:
  - name: audit
    namespaces: [\"team-*\"]
    pipelineSelector: {matchLabels: {tier: one}}
    triggers: [{type: Deployed}, {type: Failed}]
    endpoint: {url: https://audit.example.com/in, signing: {secretRef: {name: audit-hmac}}}
    template: {builtin: cloudevents}
    remove: [/delivery/retry/maxAge]
";

    #[test]
    fn a_valid_global_configuration_is_read() {
        let global = parse(GOOD, "relaybook-system").unwrap();
        let audit = global.get("audit").unwrap();
        let tier = [("tier".to_owned(), "one".to_owned())].into();
        assert!(audit.reach.selects("team-a", &tier) && !audit.reach.covers("other"));
        let layers = global.layers_below(Some(audit), None);
        assert_eq!(layers.len(), 2);
        assert!(layers.iter().all(|layer| layer.namespace == "relaybook-system"));
        assert_eq!(layers[1].remove, ["/delivery/retry/maxAge"]);
        for nothing in ["", "# only a comment\n", "{}", "null\n", "notifications: []\n", "---\n"] {
            assert!(parse(nothing, "n").unwrap().notifications().next().is_none(), "{nothing}");
        }
    }

    #[test]
    fn an_invalid_field_is_reported_with_its_place_and_a_suggestion() {
        for (text, expected) in [
            (
                "defaults:\n  delivry: {}\n",
                &["line 2, column 3: defaults.delivry: unknown field; did you mean delivery?"][..],
            ),
            ("notification: []\n", &["line 1, column 1: notification: unknown field; did you mean notifications?"]),
            (
                "notifications:\n  - name: a\n    endpoint: {ulr: x, url: 5}\n    triggers: [{type: Deploy}]\n",
                &[
                    "line 3, column 16: notifications[0].endpoint.ulr: unknown field; did you mean url?",
                    "line 3, column 24: notifications[0].endpoint.url: this is not of type \"string\"",
                    "line 4, column 17: notifications[0].triggers[0].type: \"Deploy\" is not a valid value; did you mean Deployed?",
                ],
            ),
            ("notifications:\n  - triggers: []\n", &["line 2, column 5: notifications[0].name: is missing: set it"]),
            (
                "notifications:\n- name: a\n- name: a\n",
                &["line 3, column 3: notifications[1]: duplicate entry (name \"a\"); remove one"],
            ),
            (
                "notifications:\n- name: a\n  namespaces: [\"[x\"]\n",
                &["line 3, column 16: notifications[0].namespaces[0]: \"[x\" does not match \"^[a-z0-9*?-]+$\""],
            ),
            ("{}\n---\n{}\n", &["line 3, column 1: a second document; the global configuration must be one document"]),
            ("links:\n  a: http://example.com/\n", &["line 2, column 3: links.a: must begin with https://"]),
            (
                "links: {pipeline: 'https://example.com/'}\n",
                &["line 1, column 9: links.pipeline: the name has a meaning of its own; choose another name"],
            ),
            ("- a\n", &["line 1, column 1: this is not of type \"object\""]),
        ] {
            let found = errors(text);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert_eq!(found, expected);
            }
        }
        let long = "tok".repeat(2000);
        let secret = errors(&format!("defaults:\n  endpoint:\n    headers: {{Authorization: {long}}}\n"));
        assert!(secret[0].contains("defaults.endpoint.headers") && !secret[0].contains("tok"), "{secret:?}");
        let broken = errors("defaults: {\n");
        assert!(broken[0].starts_with("line ") && broken[0].contains("not YAML"), "{broken:?}");
        let twice = errors("defaults: {}\ndefaults: {}\n");
        assert!(
            twice[0].starts_with("line 2, column 1: not YAML") && twice[0].contains("the key `defaults` occurs twice"),
            "{twice:?}"
        );
    }

    #[test]
    fn hostile_texts_cost_little_and_have_short_messages() {
        const MOST: usize = 1 << 17;
        let name = "x".repeat(MOST - 64);
        let alias = |n: u32| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", "));
        let bomb = format!("a0: &a0 [x]\n{}", (1..12).map(alias).collect::<String>());
        let globs = vec![format!("\"{}\"", "*a".repeat(31)); 256].join(", ");
        let entry = |n: usize| format!("- name: n{n}\n  namespaces: [{globs}]\n");
        for (what, text) in [
            ("brackets", "[".repeat(MOST)),
            ("braces", "{a: ".repeat(MOST / 4)),
            ("aliases", bomb),
            ("a long value", format!("defaults: {name}\n")),
            ("a long key", format!("{name}: 1\n")),
            ("a long name", format!("notifications: [{{name: {name}}}]\n")),
            ("a long anchor", format!("a: *{name}\n")),
            ("a long tag", format!("a: !{name} 1\n")),
            ("many keys", (0..MOST / 12).map(|n| ["k", &n.to_string(), ": 1\n"].concat()).collect()),
            ("the same key", "a: 1\n".repeat(MOST / 5)),
            ("many names", format!("notifications:\n{}", "- {name: a}\n".repeat(MOST / 12 - 8))),
            ("NUL", format!("defaults: \"{name}\0\"\n")),
            ("a merge key", "a: &a {b: 1}\nc: {<<: *a}\n".to_owned()),
            ("a huge number", format!("defaults: {}\n", "9".repeat(MOST - 64))),
            ("many documents", "---\n".repeat(MOST / 4)),
            ("many globs", format!("notifications:\n{}", (0..9).map(entry).collect::<String>())),
        ] {
            let begun = std::time::Instant::now();
            let told = parse(&text, "n").map(drop).err().unwrap_or_default();
            assert!(begun.elapsed().as_secs() < 30, "{what}: {:?}", begun.elapsed());
            for wrong in told.iter().take(9) {
                assert!(wrong.to_string().chars().count() < 600, "{what}");
            }
        }
    }

    #[test]
    fn errors_do_not_contain_possible_credentials() {
        for text in [
            "defaults: {endpoint: {auth: s3cr3t}}\n",
            "defaults: {endpoint: {auth: {token: s3cr3t}}}\n",
            "notifications: [{name: a, endpoint: {signing: {secretRef: s3cr3t}}}]\n",
            "defaults: {endpoint: {headers: {X-Api-Key: [s3cr3t]}}}\n",
            "defaults: {endpoint: {auth: {token: {secretKeyRef: {name: \"S3CR3T s3cr3t\", key: a}}}}}\n",
        ] {
            let found = errors(text);
            assert!(!found.is_empty() && !found.iter().any(|f| f.contains("s3cr3t")), "{found:?}");
        }
    }
}
