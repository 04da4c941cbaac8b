//! What would be sent, without a delivery: for people who write notifications.
//!
//! In: Notifications and the ConfigMaps that hold their templates, out of files ([`Manifests`]) or a cluster ([`live`]); a
//! [`Scene`](crate::render::Scene) to speak of. Out: [`Preview`]s, with everything that is or may be a credential masked; a
//! request to a receiver of one's own ([`post()`]); a built-in template as a Notification to start from ([`starter()`]) or as a page
//! of the documentation ([`page()`]); the effective notifications of a pipeline, with who wrote each field ([`explain()`]).

mod explain;
pub mod live;
mod manifests;
mod page;
mod post;
mod request;
mod starter;

pub use explain::{Explained, explain};
pub use manifests::Manifests;
pub use page::page;
pub use post::{Posted, post};
pub use request::{Preview, previews};
pub use starter::starter;

use crate::config::Problem;

/// Why there is nothing to show. Each names file or object, field and remedy.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// A file is not YAML.
    #[error("{file}: not YAML: {problem}")]
    Yaml {
        /// The file.
        file: String,
        /// Where, and what.
        problem: String,
    },
    /// An object does not fit its kind.
    #[error("{file}: {object}: {field}: {problem}")]
    Object {
        /// The file.
        file: String,
        /// Kind and name.
        object: String,
        /// The field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The files hold no Notification, or none of this name.
    #[error("there is no Notification{0} in what was given; give a manifest of kind Notification in group pennant.dev")]
    NoNotification(String),
    /// A Notification cannot be used.
    #[error("Notification {name}: {problem}")]
    Notification {
        /// Its name.
        name: String,
        /// What is wrong with it.
        problem: Problem,
    },
    /// A pipeline has no such target.
    #[error("Pipeline {pipeline} has no target {target}; it has {known}")]
    NoTarget {
        /// Name of the pipeline.
        pipeline: String,
        /// What was asked for.
        target: String,
        /// The names that there are.
        known: String,
    },
    /// No notification of this name applies to a pipeline.
    #[error(
        "no notification {name} applies to Pipeline {pipeline}: there is no such Notification in its namespace that selects it, and it has no layer of this name"
    )]
    NoSuchNotification {
        /// Name of the pipeline.
        pipeline: String,
        /// What was asked for.
        name: String,
    },
    /// The API server did not give an object.
    #[error("{what} cannot be read")]
    Read {
        /// Kind and name.
        what: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// The receiver could not be asked.
    #[error("nothing was sent")]
    Send(#[from] crate::send::SendError),
}
