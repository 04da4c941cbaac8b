//! How the receiver of a notification can see that a request is a test. Pure.
//!
//! In: what the metadata of a built-in template says, or whether a template of a user uses the field `test`. Out: [`Marking`].

use crate::render::{Metadata, TestMark};

/// How the receiver can see that a request is a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marking {
    /// The request says it, and does not change the truth.
    Marked {
        /// How it says that, as the end of a sentence.
        how: String,
        /// Whether a second request, with the type that ends the state of the first one, closes the alert of the test.
        resolves: bool,
    },
    /// The receiver acts on each request.
    Acts {
        /// What a test would do, as the end of a sentence.
        what: String,
    },
    /// The request does not say it.
    Unmarked,
}

/// The parts of a request that use the field `test`. A header does not count, because most receivers show none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reads {
    /// The URL. One from a Secret uses no field.
    pub(crate) url: bool,
    /// The body.
    pub(crate) body: bool,
}

/// Returns how the receiver can see that a request is a test. A template of a user has no metadata.
pub(crate) fn marking(metadata: Option<&Metadata>, reads: Reads) -> Marking {
    let Some(metadata) = metadata else {
        return if reads.url || reads.body {
            Marking::Marked { how: "its template uses the field test".to_owned(), resolves: false }
        } else {
            Marking::Unmarked
        };
    };
    // A whole URL of a user replaces the path of the template, and so the mark in it.
    let is_lost = !reads.url && metadata.path.as_deref().is_some_and(|path| path.contains("{{#if test}}"));
    match &metadata.test {
        TestMark::Mark { .. } if is_lost => Marking::Unmarked,
        TestMark::Mark { how, resolves } => Marking::Marked { how: how.clone(), resolves: *resolves },
        TestMark::Acts(what) => Marking::Acts { what: what.clone() },
    }
}

#[cfg(test)]
mod tests;
