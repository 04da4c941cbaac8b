//! What is sent: URL, header values and body of a request, made from templates and the data of one transition.
//!
//! In: template sources (once per edit of a notification) and [`Data`] (once per attempt). Out: [`Body`], [`UrlTemplate`] and
//! [`HeaderTemplate`], cheap to clone and to share. They render into correctly escaped text, or into a [`RenderError`] with place, cause
//! and remedy. Pure: no clock, no I/O; the cache (`shared`) does not change results.
//!
//! Source → `lang` → a program over [`Data`], which calls `helpers` and escapes each value for its place (`escape`). `lang` applies
//! limits before any parser reads the source, uses the parser of the `handlebars` crate, and checks every field, helper and place, in
//! unused branches too.
//!
//! The `handlebars` crate only parses. Tests check that common features have the same meaning. Its own renderer finds a missing field
//! only in the branch that a transition uses, accepts `{{#if typo}}`, and runs without limits.

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

/// Maximum length of a template source in bytes.
pub const MAX_SOURCE: usize = 64 * 1024;
/// Maximum number of tags of a template. The parser's work grows with tags times their bytes.
pub const MAX_TAGS: usize = 512;
/// Blocks, and subexpressions within a tag, nest at most so deep.
pub const MAX_NESTING: usize = 16;
/// Maximum length of a rendered body in bytes.
pub const MAX_BODY: usize = 1024 * 1024;
/// Maximum length of a rendered URL or header value in bytes, as common servers accept in one line.
pub const MAX_LINE: usize = 8 * 1024;
