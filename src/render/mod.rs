//! What is sent: URL, header values and body of a request, made from templates and the data of one transition.
//!
//! In: template sources (once per edit of a notification) and [`Data`] (once per attempt). Out: [`Body`], [`UrlTemplate`]
//! and [`HeaderTemplate`], cheap to clone and to share, which render into text that is right for its place, or a
//! [`RenderError`] that says where, what and what to write instead. Pure: no clock, no I/O; what is kept (`shared`) makes no
//! difference to what comes out.
//!
//! Source → `lang` (bounds before any parser sees it, the parser of the `handlebars` crate, every field, helper and place checked, in branches
//! that are never taken too) → a program over [`Data`], which calls `helpers` and escapes each value for where it stands (`escape`).
//! The `handlebars` crate parses and no more; what the two have in common means the same, by test. Its own renderer finds a
//! missing field only in the branch that a transition happens to take, lets `{{#if typo}}` pass, and runs without bounds.

mod body;
mod builtin;
mod data;
#[cfg(test)]
mod docs;
mod error;
mod escape;
mod header;
mod helpers;
mod lang;
#[cfg(test)]
mod properties;
mod shared;
mod url;

pub use body::Body;
pub use builtin::{BuiltinTemplate, Credentials, CredentialsKind, Declared, Example, Limit, Metadata, Unreported, builtin};
pub use data::parameters::{Hidden, Parameters};
pub use data::sample::Scene;
pub use data::values::Values;
pub use data::{ClusterData, Data, NotificationData, PipelineData, Severity, SubjectData, TargetData, Texts};
pub use error::{Position, RenderError, told};
pub use header::HeaderTemplate;
pub use lang::commits::{COMMIT_REMEDY, names_commit};
pub use url::{UrlTemplate, origin_of};

/// A template source has at most so many bytes.
pub const MAX_SOURCE: usize = 64 * 1024;
/// A template has at most so many tags; the parser's work grows with tags times their bytes.
pub const MAX_TAGS: usize = 512;
/// Blocks, and subexpressions within a tag, nest at most so deep.
pub const MAX_NESTING: usize = 16;
/// A rendered body has at most so many bytes.
pub const MAX_BODY: usize = 1024 * 1024;
/// A rendered URL or header value has at most so many bytes, as many as common servers take in one line.
pub const MAX_LINE: usize = 8 * 1024;
