//! What would be sent, without a delivery: for people who write notifications.
//!
//! In: Notifications and the ConfigMaps that hold their templates, out of files ([`Manifests`]) or a cluster ([`live`]), laid over
//! the global configuration ([`Laid`]); a [`Scene`](crate::render::Scene) to speak of. Out: [`Preview`]s, with everything that is or
//! may be a credential masked; a request to a receiver of one's own ([`post()`]); a built-in template as a Notification to start from
//! ([`starter()`]) or as a page of the documentation ([`page()`]); the effective notifications of a pipeline, with who wrote each
//! field ([`explain()`]).

mod egress;
mod explain;
mod laid;
pub mod live;
mod manifests;
mod page;
mod post;
mod request;
mod starter;

pub use egress::Egress;
pub use explain::{Asked, Explained, Known, explain};
pub use laid::Laid;
pub use manifests::Manifests;
pub use page::page;
pub use post::{Posted, post};
pub use request::{Preview, previews};
pub use starter::starter;

use crate::api::values::refs::ObjectName;
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
        "no notification {name} applies to Pipeline {pipeline}: no Notification of its namespace and no cluster-wide one of this name selects it, or it has no layer of this name there"
    )]
    NoSuchNotification {
        /// Name of the pipeline.
        pipeline: String,
        /// What was asked for.
        name: String,
    },
    /// The cluster has no Notification of this namespace and name.
    #[error("Notification {0} not found")]
    NotFound(ObjectName),
    /// A name that only the global configuration has, without a pipeline.
    #[error(
        "{0} is a cluster-wide notification, and there is no Notification of this name; name a pipeline with --pipeline"
    )]
    OnlyEverywhere(String),
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
    Send(#[from] crate::webhook::SendError),
}
