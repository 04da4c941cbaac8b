//! Renders the URL, the header values and the body of a request from templates and the data of one transition.
//!
//! In: template sources (once per edit of a notification) and [`Data`] (once per attempt). Out: [`Body`], [`UrlTemplate`] and
//! [`HeaderTemplate`], cheap to clone and to share. They render correctly escaped text, or return a [`RenderError`] with position, cause
//! and remedy. Pure: no clock, no I/O. The cache in `shared` does not change results.
//!
//! `lang` applies limits before it parses a source. Then it compiles the source to a program, and checks every field, helper and context,
//! also in unused branches. The program calls `helpers`, and `escape` escapes each value for its context. Only the parser of the
//! `handlebars` crate is used. Its renderer finds a missing field only in the branch that a transition uses, accepts `{{#if typo}}`, and
//! runs without limits. Tests check that common features have the same meaning.

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
mod source;
mod thread;
mod url;
mod web;

pub use body::Body;
pub use builtin::{
    BuiltinTemplate, Credentials, CredentialsKind, Declared, Example, Finding, Limit, Metadata, Parent, TestMark,
    Unreported, builtin,
};
pub use data::parameters::{Hidden, Parameters, Visibility};
pub use data::promotion::PromotionData;
pub use data::sample::{SampleContext, observed};
pub use data::values::Values;
pub use data::{AppData, ClusterData, Data, NotificationData, PipelineData, Severity, SubjectData, TargetData, Texts};
pub use error::{Position, RenderError, join_messages};
pub use header::HeaderTemplate;
pub use lang::commits::{COMMIT_REMEDY, names_commit};
pub use source::{SourceData, SourceTemplate};
pub use thread::{PathTemplate, TextTemplate};
pub use url::{UrlTemplate, origin_of};
pub use web::{LookUp, Web};

/// Maximum length of a template source in bytes.
pub const MAX_SOURCE: usize = 64 * 1024;
/// Maximum number of tags of a template. The work of the parser grows with the number of tags times their bytes.
pub const MAX_TAGS: usize = 512;
/// Maximum nesting depth of blocks, and of subexpressions within a tag.
pub const MAX_NESTING: usize = 16;
/// Maximum length of a rendered body in bytes.
pub const MAX_BODY: usize = 1024 * 1024;
/// Maximum length of a rendered URL or header value in bytes. Common servers accept a line of this length.
pub const MAX_LINE: usize = 8 * 1024;
