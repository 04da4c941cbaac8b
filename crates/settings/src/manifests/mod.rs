//! Pure: manifests as they are written in files. Other modules open the files.
//!
//! In: the text of a file, YAML or JSON, with any number of documents. Out: [`Document`]s with the positions of their fields
//! ([`read()`]), the schema of our kinds ([`schema()`]) and its violations ([`Structure`]). Also the content of ConfigMaps
//! ([`ConfigMaps`]), the global configuration ([`global`]), and the layers below a pipeline ([`layers_below()`]).
//!
//! A field is written as in `spec.environments[0].name` or `metadata.labels[example.com/team]`.

mod beneath;
#[cfg(test)]
mod docs;
mod document;
pub mod field;
mod fields;
pub mod global;
pub mod literal;
mod schema;
mod structure;
mod texts;

pub use beneath::{effective_notification, has_notification, layers_below};
pub use document::{Broken, Document, Place, read};
pub use fields::unknown;
pub use schema::schema;
pub use structure::{Misfit, NotASchema, Structure};
pub use texts::ConfigMaps;

use relaybook_text::first_line;

/// Returns what is wrong with a text that is not YAML, on one line. It leaves out hints about options
/// of the YAML library, which a user cannot set.
pub fn yaml_problem(error: &serde_saphyr::Error) -> String {
    match error.without_snippet() {
        serde_saphyr::Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_ref().map_or_else(String::new, |key| format!(" `{key}`"));
            format!("the key{key} occurs twice in the same mapping; remove one of them")
        }
        other => first_line(&other.to_string()),
    }
}
