//! The template language, a subset of Handlebars. It compiles a source to a program, and runs the program to render a text.
//!
//! In: a source. [`limits`] rejects a source that is too large or too deep before it is parsed. [`compile`] and [`scope`] compile the
//! parsed source. [`eval`] runs the program over data, and [`fields`] reads the lines of a parameter. `go` recognises templates of Go. Out: a text, or an error with its position in the source.

pub(super) mod commits;
pub(super) mod compile;
pub(super) mod condensed;
pub(super) mod eval;
pub(super) mod fields;
mod go;
pub(super) mod limits;
pub(super) mod reads;
pub(super) mod scope;
