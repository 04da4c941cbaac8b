//! The fields of one object, each of which the report has to mention once. Pure.
//!
//! In: a document. Out: its values, and [`Item`]s. What nobody mentions is an error at the end, so no field is lost silently.

use std::collections::BTreeSet;

use serde_json::Value;

use super::report::{Item, List};
use relaybook_settings::manifests::Document;
use relaybook_settings::manifests::field::{below, entry, steps};

/// The fields of an object, and what became of them.
pub(super) struct Ledger<'a> {
    file: &'a str,
    document: &'a Document,
    name: String,
    /// The fields that no item mentions yet: those without fields of their own.
    open: BTreeSet<String>,
    items: Vec<Item>,
}

impl<'a> Ledger<'a> {
    /// Opens the fields of a document. `name`: the name of the object in the report.
    pub(super) fn new(file: &'a str, document: &'a Document, name: String) -> Self {
        let (mut open, mut nulls) = (BTreeSet::new(), Vec::new());
        leaves(&document.value, String::new(), &mut |field: String, value: &Value| {
            if value.is_null() {
                nulls.push(field.clone());
            }
            open.insert(field);
        });
        let mut ledger = Self { file, document, name, open, items: Vec::new() };
        for field in nulls {
            ledger.put(List::Ignored, &field, "null counts as absent");
        }
        ledger
    }

    /// Returns the value of a field. `None`: it does not exist, or is null.
    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        let below = |value: &'a Value, step: &str| match value {
            Value::Array(items) => items.get(step.parse::<usize>().ok()?),
            value => value.get(step),
        };
        steps(field).try_fold(&self.document.value, below).filter(|value| !value.is_null())
    }

    /// Returns the text of a field.
    pub(super) fn text(&self, field: &str) -> Option<&'a str> {
        self.get(field)?.as_str()
    }

    /// Returns the texts of a list, each with its field. Other values stay open.
    pub(super) fn texts(&self, list: &str) -> Vec<(String, &'a str)> {
        let items = self.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        items.iter().enumerate().filter_map(|(at, item)| Some((entry(list, at), item.as_str()?))).collect()
    }

    /// Returns the texts of a mapping, each with its field and its name. Other values stay open.
    pub(super) fn named(&self, object: &str) -> Vec<(String, &'a str, &'a str)> {
        let fields = self.get(object).and_then(Value::as_object).into_iter().flatten();
        fields.filter_map(|(name, value)| Some((below(object, name), name.as_str(), value.as_str()?))).collect()
    }

    /// Mentions a field, with all fields in it. If all of them were mentioned before, nothing is added.
    pub(super) fn put(&mut self, list: List, field: &str, text: impl Into<String>) {
        // Fields that begin with the same text follow each other.
        let same = self.open.range(field.to_owned()..).take_while(|open| open.starts_with(field));
        let is_within = |open: &&String| matches!(open.as_bytes().get(field.len()), None | Some(b'.' | b'['));
        let within: Vec<String> = same.filter(is_within).cloned().collect();
        if !within.is_empty() {
            for field in &within {
                self.open.remove(field);
            }
            self.say(list, field, text);
        }
    }

    /// Closes a field whose content has a ledger of its own.
    pub(super) fn take(&mut self, field: &str) {
        self.open.remove(field);
    }

    /// Mentions those of the fields that exist and are still open.
    pub(super) fn put_each<'f>(&mut self, list: List, fields: impl IntoIterator<Item = &'f str>, text: &str) {
        fields.into_iter().for_each(|field| self.put(list, field, text));
    }

    /// Mentions those of the fields that are empty lists or mappings.
    pub(super) fn put_empty<'f>(&mut self, fields: impl IntoIterator<Item = &'f str>) {
        for field in fields {
            let is_empty = match self.get(field) {
                Some(Value::Array(items)) => items.is_empty(),
                Some(Value::Object(fields)) => fields.is_empty(),
                _ => false,
            };
            if is_empty {
                self.put(List::Ignored, field, "empty counts as absent");
            }
        }
    }

    /// Adds an item about a field that does not exist, or that another item mentions.
    pub(super) fn say(&mut self, list: List, field: &str, text: impl Into<String>) {
        self.items.push(Item {
            list,
            file: self.file.to_owned(),
            line: self.document.line(field),
            kind: self.document.kind().to_owned(),
            name: self.name.clone(),
            field: field.to_owned(),
            text: text.into(),
        });
    }

    /// Mentions an error about a field, which need not exist. A field that is null is absent, so the error replaces what was said of it.
    pub(super) fn error(&mut self, field: &str, text: impl Into<String>) {
        self.items.retain(|item| item.list != List::Ignored || item.field != field);
        let (number, text): (_, String) = (self.items.len(), text.into());
        self.put(List::Error, field, text.clone());
        if self.items.len() == number {
            self.say(List::Error, field, text);
        }
    }

    /// Whether an error was mentioned.
    pub(super) fn has_errors(&self) -> bool {
        self.items.iter().any(|item| item.list == List::Error)
    }

    /// Returns all items, by line. A field that is still open is an error.
    pub(super) fn finish(mut self) -> Vec<Item> {
        for field in std::mem::take(&mut self.open) {
            let text = "unknown field, or a value of another type; correct or remove it. If a newer version has the field, \
                 convert the object without it";
            self.say(List::Error, &field, text);
        }
        self.items.sort_by_key(|item| item.line);
        self.items
    }
}

/// Calls `found` for each value without fields of its own.
pub(super) fn leaves(value: &Value, field: String, found: &mut impl FnMut(String, &Value)) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(name, value)| leaves(value, below(&field, name), found));
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().for_each(|(at, value)| leaves(value, entry(&field, at), found));
        }
        value => found(field, value),
    }
}

#[cfg(test)]
mod tests {
    use relaybook_settings::manifests::read;

    use super::*;

    #[test]
    fn each_field_is_mentioned_once_and_what_nobody_mentions_is_an_error() {
        let text = "kind: Alert\nspec:\n  list: [a, 5, {}]\n  map: {x.y/z: b}\n  none: null\n  other: c\n";
        let document = read(text).remove(0).unwrap();
        let mut ledger = Ledger::new("a.yaml", &document, "n/a".to_owned());
        assert_eq!(ledger.texts("spec.list"), [("spec.list[0]".to_owned(), "a")]);
        assert_eq!(ledger.named("spec.map"), [("spec.map[x.y/z]".to_owned(), "x.y/z", "b")]);
        assert_eq!(
            (ledger.text("spec.list[0]"), ledger.get("spec.none"), ledger.text("spec.list[9]")),
            (Some("a"), None, None)
        );
        ledger.put(List::Converted, "spec.map", "1");
        ledger.put(List::Ignored, "spec.map[x.y/z]", "too late");
        ledger.put(List::Ignored, "spec.absent", "nothing");
        ledger.put_each(List::Differs, ["spec.list[0]", "kind", "spec.absent"], "2");
        ledger.say(List::Differs, "spec.absent", "3");
        assert!(!ledger.has_errors());
        let items = ledger.finish();
        let told: Vec<_> = items.iter().map(|item| (item.list, item.line, item.field.as_str())).collect();
        assert_eq!(
            told,
            [
                (List::Differs, 1, "kind"),
                (List::Differs, 2, "spec.absent"),
                (List::Differs, 3, "spec.list[0]"),
                (List::Error, 3, "spec.list[1]"),
                (List::Error, 3, "spec.list[2]"),
                (List::Converted, 4, "spec.map"),
                (List::Ignored, 5, "spec.none"),
                (List::Error, 6, "spec.other"),
            ]
        );
    }
}
