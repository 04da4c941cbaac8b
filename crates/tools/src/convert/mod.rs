//! Notifications and pipelines of other programs as objects of Relaybook. Pure, except for `live`, which lists the objects of a cluster.
//!
//! In: files with objects of another program ([`Input`]), and what the person chose ([`Options`]). Out: manifests, the commands that come
//! before them, and a [`Report`] that has each field of the input in exactly one list ([`Conversion`]). [`check`] lints the manifests.
//!
//! Manifests refer to the Secrets that exist. Of a Secret in the input only the names of its keys are read, because the other program
//! decides by them how it uses the Secret. So no output can contain its values.

mod argocd;
mod documents;
mod flux;
#[cfg(test)]
mod histories;
mod ledger;
pub mod live;
mod pipelines;
mod report;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use argocd::convert as argocd;
pub use flux::convert as flux;
pub use pipelines::{kargo, weave};
pub use report::{Item, List, Report};

use crate::init::Manifest;
use crate::lint::{self, LintError, lint};

/// A file of the input.
#[derive(Clone, Debug)]
pub struct Input {
    /// The name, for the report.
    pub name: String,
    /// The content.
    pub text: String,
    /// Whether it was found in a folder, so that it can be a file of another program.
    pub is_found: bool,
}

/// What the person chose.
#[derive(Clone, Debug)]
pub struct Options {
    /// The namespace of objects that name no namespace.
    pub namespace: String,
    /// Whether the Notifications report nothing at first.
    pub no_triggers: bool,
}

/// What an input becomes.
#[derive(Clone, Debug, Default)]
pub struct Conversion {
    /// The files. If the report has errors, there are none.
    pub manifests: Vec<Manifest>,
    /// What the person has to do before the manifests are applied: commands and sentences. None contains the value of a Secret.
    pub steps: Vec<String>,
    /// What became of each field.
    pub report: Report,
}

/// Lints the manifests of a conversion.
pub fn check(conversion: &Conversion, options: &lint::Options) -> Result<lint::Report, LintError> {
    let file = |one: &Manifest| lint::File::named(&one.file, one.text.clone());
    lint(&conversion.manifests.iter().map(file).collect::<Vec<_>>(), options)
}
