//! What all converters say about documents. Pure.
//!
//! In: a document, or why there is none. Out: its item in the report.

use super::Input;
use super::report::{Item, List};
use relaybook_settings::manifests::{Broken, Document};

/// Returns an item about a field of a document, or about the whole document.
pub(super) fn item(input: &Input, document: &Document, list: List, field: &str, text: impl Into<String>) -> Item {
    let (kind, name) = (document.kind().to_owned(), document.name().to_owned());
    Item {
        list,
        file: input.name.clone(),
        line: document.line(field),
        kind,
        name,
        field: field.to_owned(),
        text: text.into(),
    }
}

/// Returns the item for a document that cannot be read. A file that was found in a folder counts only if it contains one of the words.
pub(super) fn unreadable(input: &Input, broken: &Broken, words: &[&str], program: &str) -> Item {
    let is_other = input.is_found && !words.iter().any(|word| input.text.contains(word));
    let remedy = format!("if it is a template of Helm, render it first: `helm template … | relaybook convert {program} -`");
    let (list, text) = if is_other {
        (List::Ignored, format!("not YAML, and it does not contain {}", words.join(" or ")))
    } else if input.text.contains("Secret") {
        // The message of the parser could quote a Secret.
        (List::Error, format!("not YAML; {remedy}"))
    } else {
        (List::Error, format!("not YAML: {}; {remedy}", broken.problem))
    };
    let (kind, name, field) = (String::new(), String::new(), String::new());
    Item { list, file: input.name.clone(), line: broken.place.line, kind, name, field, text }
}
