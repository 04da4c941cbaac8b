//! Previews of requests, without a delivery, for users who write notifications.
//!
//! In: Notifications and the ConfigMaps with their templates, from files ([`Manifests`]) or a cluster ([`live`]), over the global
//! configuration ([`LayeredNotification`]); a [`SampleContext`](relaybook_settings::render::SampleContext) with sample data.
//! Out: [`Preview`]s, with all possible credentials masked, and a request to the user's own receiver ([`post()`]). A built-in template
//! becomes a Notification to start from ([`starter()`]) or a page of the documentation ([`page()`]). The request of a recorded delivery is
//! [`recorded()`].
//! [`explain()`] returns the effective notifications of a pipeline, with the layer that set each field, and [`promotions()`] why a revision is
//! or is not promoted.

mod answer;
mod defaults;
mod egress;
mod explain;
mod laid;
pub mod live;
mod manifests;
mod page;
mod post;
mod promotions;
mod recorded;
mod request;
mod starter;

pub use answer::ExampleAnswer;
pub use egress::Egress;
pub use explain::comment;
pub use explain::{Asked, Explained, Known, covered, explain};
pub use laid::LayeredNotification;
pub use manifests::Manifests;
pub use page::page;
pub use post::{Posted, post};
pub use promotions::{ExplainedPromotion, NewestPromotion, promotes, promotions};
pub use recorded::{Recorded, recorded};
pub use relaybook_settings::render::observed;
pub use request::{Preview, previews};
pub use starter::starter;
pub(crate) use starter::{Chosen, chosen_notification, scalar, usual_secret};

use relaybook_api::{GROUP, ObjectName};
use relaybook_egress::RequestError;
use relaybook_settings::config::Problem;

/// Why there is no preview. Each error names the file or object, the field and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// A file is not YAML.
    #[error("{file}: not YAML: {problem}")]
    Yaml {
        /// The file.
        file: String,
        /// The place and the problem.
        problem: String,
    },
    /// An object does not match the schema of its kind.
    #[error("{file}: {object}: {field}: {problem}")]
    Object {
        /// The file.
        file: String,
        /// Kind and name.
        object: String,
        /// The field.
        field: String,
        /// The problem.
        problem: String,
    },
    /// The files contain no Notification, or none of this name.
    #[error(
        "there is no Notification{0} in the given manifests; add a manifest of kind Notification in group {group}",
        group = GROUP
    )]
    NoNotification(String),
    /// A Notification cannot be used.
    #[error("Notification {name}: {problem}")]
    Notification {
        /// Its name.
        name: String,
        /// The problem.
        problem: Problem,
    },
    /// No request can be sent for a notification.
    #[error("Notification {name}: {source}; correct the header in its endpoint or template")]
    Request {
        /// Its name.
        name: String,
        /// The problem.
        source: RequestError,
    },
    /// A pipeline without targets.
    #[error("Pipeline {0} has no targets")]
    NoTargets(String),
    /// A pipeline has no such target.
    #[error("Pipeline {pipeline} has no target {target}; it has {known}")]
    NoTarget {
        /// Name of the pipeline.
        pipeline: String,
        /// The requested name.
        target: String,
        /// The existing names.
        known: String,
    },
    /// No notification of this name applies to a pipeline.
    #[error(
        "no notification {name} applies to Pipeline {pipeline}: no Notification of its namespace and no cluster-wide notification with this name selects it, and it has no layer with this name"
    )]
    NoSuchNotification {
        /// Name of the pipeline.
        pipeline: String,
        /// The requested name.
        name: String,
    },
    /// The cluster has no Notification of this namespace and name.
    #[error("Notification {0} not found")]
    NotFound(ObjectName),
    /// Only the global configuration has this name, and no pipeline is given.
    #[error("{0} is a cluster-wide notification without a Notification object; name a pipeline with --pipeline")]
    OnlyEverywhere(String),
    /// The API server did not return an object.
    #[error("{what} cannot be read")]
    Read {
        /// Kind and name.
        what: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// The example of an answer cannot be read.
    #[error("the answer cannot be read: {0}; give a body, or the output of curl -i")]
    Answer(String),
    /// The receiver is unreachable.
    #[error("nothing was sent")]
    Send(#[from] relaybook_egress::SendError),
}
