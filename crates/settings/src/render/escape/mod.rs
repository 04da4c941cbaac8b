//! Escapes values for their context in the output.
//!
//! In: the literal text before a value in the output, and the value. Out: the value, escaped for JSON, a URL or another context
//! ([`context`]), or for the markup of a chat room ([`markup`]).

pub(super) mod context;
pub(super) mod markup;
