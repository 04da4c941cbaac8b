//! Manifests as they stand in files; pure, the files are opened elsewhere.
//!
//! In: the text of a file, YAML or JSON, with any number of documents. Out: [`Document`]s, which know the line of each of their
//! fields ([`read()`]); the schema of our kinds as a manifest must follow it ([`schema()`]) and the fields that it does not know
//! ([`unknown()`]); what the ConfigMaps hold that lie beside them ([`ConfigMaps`]).
//!
//! A field is written as in `spec.environments[0].name` or `metadata.labels[example.com/team]`.

mod document;
pub mod field;
mod fields;
mod schema;
mod texts;

pub use document::{Broken, Document, read};
pub use fields::unknown;
pub use schema::schema;
pub use texts::ConfigMaps;

/// The first line of what a library says.
pub fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}
