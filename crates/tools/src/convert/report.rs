//! What became of each field of the input. Pure.
//!
//! In: items, each with its place. Out: lines for a person, or JSON.

use std::collections::BTreeSet;

use serde::Serialize;

/// What became of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum List {
    /// The manifests have it.
    Converted,
    /// The manifests have it, and its effect is another one.
    Differs,
    /// Relaybook has nothing like it.
    NoCounterpart,
    /// It does not change the messages.
    Ignored,
    /// It cannot be understood, so there are no manifests.
    Error,
}

impl List {
    /// Returns the heading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Converted => "CONVERTED",
            Self::Differs => "DIFFERS",
            Self::NoCounterpart => "NO COUNTERPART",
            Self::Ignored => "IGNORED",
            Self::Error => "ERRORS",
        }
    }
}

/// What became of one field, or of a whole object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Item {
    /// The list.
    pub list: List,
    /// The file.
    pub file: String,
    /// The line of the field, or of the nearest field that contains it. 0 if no line is known.
    pub line: u64,
    /// The kind of the object; empty if there is none.
    pub kind: String,
    /// The name of the object, with its namespace if it has one; empty if there is none.
    pub name: String,
    /// The field; empty for the whole object.
    pub field: String,
    /// What became of it, and what to do.
    pub text: String,
}

impl Item {
    /// Returns the item as a line. The name of the object can be any text.
    fn line(&self) -> String {
        let Self { file, line, kind, name, field, text, .. } = self;
        let object =
            [kind.as_str(), name.as_str()].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        let about = [object.as_str(), field.as_str()].into_iter().filter(|word| !word.is_empty());
        let about: String = about.flat_map(|word| [word, ": "]).collect();
        format!("  {file}:{line}: {about}{text}")
    }
}

/// What became of all fields, in the order of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The items.
    pub items: Vec<Item>,
}

impl Report {
    /// Returns the items of a list.
    pub fn of(&self, list: List) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(move |item| item.list == list)
    }

    /// Whether a list has an item.
    #[must_use]
    pub fn has(&self, list: List) -> bool {
        self.of(list).next().is_some()
    }

    /// Returns the lines for a person. Fields that were converted or ignored are only counted.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.has(List::Converted) {
            let fields = counted(self.of(List::Converted).count(), "field");
            let objects: BTreeSet<_> = self.of(List::Converted).map(|item| (&item.kind, &item.name)).collect();
            let of = |kind: &str| counted(objects.iter().filter(|(of, _)| *of == kind).count(), kind);
            let mut kinds: Vec<&str> = objects.iter().map(|(kind, _)| kind.as_str()).collect();
            kinds.dedup();
            let kinds: Vec<String> = kinds.into_iter().map(of).collect();
            lines.push(format!("{} {fields} of {}", List::Converted.title(), kinds.join(", ")));
        }
        for list in [List::Differs, List::NoCounterpart, List::Error] {
            if self.has(list) {
                lines.push(list.title().to_owned());
                lines.extend(self.of(list).map(Item::line));
            }
        }
        if self.has(List::Ignored) {
            let (objects, fields): (Vec<_>, Vec<_>) = self.of(List::Ignored).partition(|item| item.field.is_empty());
            let (fields, objects) = (counted(fields.len(), "field"), counted(objects.len(), "other object"));
            lines.push(format!("{} {fields}, {objects}", List::Ignored.title()));
        }
        lines
    }
}

/// Returns a number with its noun, in the plural if necessary.
fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_must_read_has_a_line_and_the_rest_is_counted() {
        let item = |list, field: &str| Item {
            list,
            file: "a.yaml".to_owned(),
            line: 7,
            kind: "Alert".to_owned(),
            name: "flux-system/chat".to_owned(),
            field: field.to_owned(),
            text: "x".to_owned(),
        };
        let whole = Item { kind: "Deployment".to_owned(), name: "web".to_owned(), ..item(List::Ignored, "") };
        let file = Item { kind: String::new(), name: String::new(), ..item(List::Error, "") };
        let items =
            vec![item(List::Converted, "spec.a"), item(List::Differs, "spec.b"), whole, file, item(List::Ignored, "status")];
        assert_eq!(
            Report { items }.lines(),
            [
                "CONVERTED 1 field of 1 Alert",
                "DIFFERS",
                "  a.yaml:7: Alert flux-system/chat: spec.b: x",
                "ERRORS",
                "  a.yaml:7: x",
                "IGNORED 1 field, 1 other object",
            ]
        );
        assert!(Report::default().lines().is_empty());
    }
}
