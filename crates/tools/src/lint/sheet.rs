//! The object that a finding is about, and the lines of its fields in the file.

use super::{FileDocument, Finding, Source};
use relaybook_settings::manifests::Document;

/// An object in a file, or the global configuration in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FindingContext<'a> {
    pub(super) file: &'a str,
    pub(super) kind: &'a str,
    pub(super) name: &'a str,
    /// The document with the positions of the fields.
    pub(super) document: Option<&'a Document>,
    pub(super) lines: Lines,
}

/// The lines of a document.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lines {
    /// The lines of the file.
    OfFile,
    /// The lines of a text in the file. The first line of the text is this line of the file.
    From(u64),
    /// The text is the value of a key on this line. Its YAML form does not preserve lines, so every finding has the line of the key.
    Folded(u64),
}

impl Lines {
    fn of_file(self, line: u64) -> u64 {
        match self {
            Self::OfFile => line,
            Self::From(first) => (first + line).saturating_sub(1),
            Self::Folded(key) => key,
        }
    }
}

impl<'a> FindingContext<'a> {
    /// Creates the context of an object in a file.
    pub(super) fn of(file_document: &'a FileDocument<'_>) -> Self {
        let document = &file_document.document;
        Self {
            file: file_document.file,
            kind: document.kind(),
            name: document.name(),
            document: Some(document),
            lines: Lines::OfFile,
        }
    }

    /// Creates a finding about a field.
    pub(super) fn finding(&self, field: String, message: String, source: Source) -> Finding {
        let line = self.document.map_or(0, |document| document.line(&field));
        self.finding_at(line, field, message, source)
    }

    /// Creates a finding about a field whose line in the text is already known.
    pub(super) fn finding_at(&self, line: u64, field: String, message: String, source: Source) -> Finding {
        Finding {
            file: self.file.to_owned(),
            line: self.lines.of_file(line),
            kind: self.kind.to_owned(),
            name: self.name.to_owned(),
            field,
            message,
            source,
        }
    }
}
