//! The language of templates, which is a subset of Handlebars: a source becomes a program, and a program a text.
//!
//! In: a source. What is too large or too deep is refused before any parser sees it ([`limits`]), what the parser gives is compiled
//! ([`compile`], [`scope`]), and the program runs over data ([`eval`]). Out: a text, or an error with its place in the source.

pub(super) mod commits;
pub(super) mod compile;
pub(super) mod condensed;
pub(super) mod eval;
pub(super) mod limits;
pub(super) mod scope;
