//! The global configuration as it is written: strict, and every error with its place.

use std::fmt;
use std::sync::LazyLock;

use serde_json::Value;

use super::{Broken, Document, Place, Structure, one_line, read};
use crate::api::global::{GlobalConfig, schema};
use crate::config::Global;

#[allow(clippy::expect_used, reason = "a schema of our own, which a test compiles")]
static STRUCTURE: LazyLock<Structure> = LazyLock::new(|| Structure::new(schema()).expect("a schema"));

/// Something that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Where in the text.
    pub place: Place,
    /// The field; empty if it is about the whole.
    pub field: String,
    /// What is wrong, and what to write instead.
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

/// Reads it; an empty text says nothing, which is no error. `namespace` is that of its ConfigMap.
pub fn parse(text: &str, namespace: &str) -> Result<Global, Vec<Wrong>> {
    document(text)?.map_or_else(|| Ok(Global::default()), |document| understand(&document, namespace))
}

/// The one document of a text, if there is any.
pub fn document(text: &str) -> Result<Option<Document>, Vec<Wrong>> {
    let mut documents = read(text).into_iter();
    match (documents.next(), documents.next()) {
        (None, _) => Ok(None),
        (Some(document), None) => document.map(Some).map_err(|broken| vec![not_yaml(&broken)]),
        (Some(Err(broken)), _) | (_, Some(Err(broken))) => Err(vec![not_yaml(&broken)]),
        (Some(_), Some(Ok(second))) => {
            let message = "a second document; the global configuration is one".to_owned();
            Err(vec![Wrong { place: second.place(""), field: String::new(), message }])
        }
    }
}

/// Understands a document; one that is null says nothing.
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
        serde_path_to_error::deserialize(object).map_err(|e| (e.path().to_string(), one_line(&e.inner().to_string())))?;
    Global::new(&config, namespace)
}

fn wrong(document: &Document, (field, message): (String, String)) -> Wrong {
    Wrong { place: document.place(&field), field, message }
}

fn not_yaml(broken: &Broken) -> Wrong {
    Wrong { place: broken.place, field: String::new(), message: format!("not YAML: {}", broken.problem) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        parse(text, "pennant-system").map(drop).unwrap_err().iter().map(ToString::to_string).collect()
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
    fn what_is_right_is_read() {
        let global = parse(GOOD, "pennant-system").unwrap();
        let audit = global.get("audit").unwrap();
        let tier = [("tier".to_owned(), "one".to_owned())].into();
        assert!(audit.reach.selects("team-a", &tier) && !audit.reach.covers("other"));
        let layers = global.beneath(Some(audit), None);
        assert_eq!(layers.len(), 2);
        assert!(layers.iter().all(|layer| layer.namespace == "pennant-system"));
        assert_eq!(layers[1].remove, ["/delivery/retry/maxAge"]);
        for nothing in ["", "# only a comment\n", "{}", "null\n", "notifications: []\n", "---\n"] {
            assert!(parse(nothing, "n").unwrap().notifications().next().is_none(), "{nothing}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place_and_what_was_meant() {
        for (text, expected) in [
            (
                "defaults:\n  delivry: {}\n",
                &["line 2, column 3: defaults.delivry: there is no such field; did you mean delivery?"][..],
            ),
            ("notification: []\n", &["line 1, column 1: notification: there is no such field; did you mean notifications?"]),
            (
                "notifications:\n  - name: a\n    endpoint: {ulr: x, url: 5}\n    triggers: [{type: Deploy}]\n",
                &[
                    "line 3, column 16: notifications[0].endpoint.ulr: there is no such field; did you mean url?",
                    "line 3, column 24: notifications[0].endpoint.url: this is not of type \"string\"",
                    "line 4, column 17: notifications[0].triggers[0].type: \"Deploy\" is not known; did you mean Deployed?",
                ],
            ),
            ("notifications:\n  - triggers: []\n", &["line 2, column 5: notifications[0].name: is missing: set it"]),
            (
                "notifications:\n- name: a\n- name: a\n",
                &["line 3, column 3: notifications[1]: stands there twice (name \"a\"); leave one out"],
            ),
            (
                "notifications:\n- name: a\n  namespaces: [\"[x\"]\n",
                &["line 3, column 16: notifications[0].namespaces[0]: \"[x\" does not match \"^[a-z0-9*?-]+$\""],
            ),
            ("{}\n---\n{}\n", &["line 3, column 1: a second document; the global configuration is one"]),
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
        assert!(twice[0].starts_with("line 2, column 1: not YAML") && twice[0].contains("duplicate"), "{twice:?}");
    }
}
