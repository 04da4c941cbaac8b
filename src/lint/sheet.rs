//! What a finding is about, and the line of the file on which its fields stand.

use super::{Finding, Source, Written};
use crate::manifests::Document;

/// An object of a file, or the global configuration in one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sheet<'a> {
    pub(super) file: &'a str,
    pub(super) kind: &'a str,
    pub(super) name: &'a str,
    /// Where the fields stand.
    pub(super) document: Option<&'a Document>,
    pub(super) lines: Lines,
}

/// The lines of a document.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lines {
    /// Those of the file.
    OfFile,
    /// Those of a text in the file whose first line is this one.
    From(u64),
    /// The text is written in another way in the value of a key, which is on this line.
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

impl<'a> Sheet<'a> {
    /// An object as it stands in its file.
    pub(super) fn of(written: &'a Written<'_>) -> Self {
        let document = &written.document;
        Self {
            file: written.file,
            kind: document.kind(),
            name: document.name(),
            document: Some(document),
            lines: Lines::OfFile,
        }
    }

    /// Something that is wrong with a field.
    pub(super) fn finding(&self, field: String, message: String, source: Source) -> Finding {
        let line = self.document.map_or(0, |document| document.line(&field));
        self.finding_at(line, field, message, source)
    }

    /// The same, where the line within the text is known already.
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
