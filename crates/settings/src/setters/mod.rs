//! Pure: edits the values that setters mark in YAML files, byte by byte. The command line reads and writes the files.
//!
//! In: the text of a file, and for an edit an environment ([`EnvironmentRef`]) and a [`Revision`]. Out: the setters of the file
//! ([`scan()`]), or the edited text ([`edit()`]); otherwise a [`Problem`] with its line.
//!
//! A setter is a comment at the end of a line, `# {"$promotion": "NAMESPACE:PIPELINE:ENVIRONMENT"}`, and the value before it. `marker`
//! parses the comment, `nodes` the YAML, `scan` finds the value. `value` determines what is written, `quote` how it is written. `edit`
//! compares the document before and after. `diff` shows the edit.

mod diff;
mod edit;
mod marker;
mod nodes;
mod quote;
mod revision;
mod scan;
#[cfg(test)]
mod tests;
mod value;

pub use diff::unified;
pub use edit::{Change, Edit, edit};
pub use marker::{EnvironmentRef, NotAnEnvironment, Part};
pub use revision::{NotSettable, Revision};
pub use scan::{Problem, Setter, Setters, is_candidate, scan};
pub use value::Misfit;

/// Maximum size of a file with setters, in bytes.
pub const MAX_FILE: u64 = 1024 * 1024;

/// Why a file cannot be edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetterError {
    /// The file is not YAML, or is too large or too deeply nested for the parser. Contains the message of the parser.
    #[error("not YAML: {0}")]
    NotYaml(String),
    /// The comment looks like a marker, but is none. Contains what is wrong with it.
    #[error("the marker is malformed: {0}")]
    Malformed(&'static str),
    /// The marker is part of a value.
    #[error("the marker is inside a text, where it is not a comment; move the text to a file of its own")]
    InText,
    /// A block scalar begins on the line of the marker.
    #[error("the value is a block scalar; write it on the line of the marker, without | or >")]
    BlockScalar,
    /// There is no value before the marker.
    #[error("there is no value before the marker on this line")]
    NoValue,
    /// The line has a part of a list or map in flow style.
    #[error("the line is in flow style; write the value on a line of its own, without brackets and commas")]
    FlowStyle,
    /// The value has an anchor or a tag, or is an alias.
    #[error("the line has an anchor, an alias or a tag; write the value without it")]
    Property,
    /// The value starts before the line of the marker.
    #[error("the value starts on an earlier line; write it on the line of the marker")]
    SeveralLines,
    /// An alias or a merge key uses the value elsewhere.
    #[error("an alias uses the value elsewhere, too; remove the alias")]
    UsedTwice,
    /// The value does not contain what the suffix of the marker names.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// The revision cannot be written here.
    #[error(transparent)]
    NotSettable(#[from] NotSettable),
    /// The edited text would parse to something else than the same documents with one other string.
    #[error("the edit would change more than this value")]
    Differs,
}

/// No file contains a setter for the environment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no line under {paths} ends with # {{\"$promotion\": \"{environment}\"}}")]
pub struct NoSetters {
    /// The files and folders that were read, separated by commas.
    pub paths: String,
    /// The environment.
    pub environment: EnvironmentRef,
}
