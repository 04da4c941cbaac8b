//! The notation in which tests write what they expect: lanes, and the steps in each lane.

use std::fmt;

use relaybook_api::delivery::Family;
use relaybook_api::{Delivery, Outcome};

/// Replaces the application in the path of a lane of promotions.
pub const PROMOTION: &str = "promotion";

/// The deliveries of one notification for one target of one pipeline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    /// Namespace of the pipeline.
    pub namespace: String,
    /// `PIPELINE/NOTIFICATION/ENVIRONMENT/APP`. `APP` is empty for an environment, `promotion` for the promotions to an environment, and the
    /// cluster's name for a cluster. Both are empty for the pipeline.
    pub path: String,
}

impl Lane {
    /// Whether this is the lane of a fence, which tests only use for waiting.
    pub fn is_fence(&self) -> bool {
        ["/fence/fence", "/fence/promotion", "/gate/gate"].iter().any(|end| self.path.ends_with(end))
    }

    /// Returns the lane of a delivery.
    pub fn of(delivery: &Delivery) -> Self {
        let spec = &delivery.spec;
        let cluster = spec.subject.cluster_ref.as_ref().map_or("", |c| &c.name);
        let app = match spec.type_.family() {
            Family::Promotion => PROMOTION,
            Family::Existence | Family::Status | Family::Drift => {
                spec.subject.target.as_ref().map_or(cluster, |t| &t.app.name)
            }
        };
        let (pipeline, notification) = (&spec.pipeline_ref.name, &spec.notification);
        Self {
            namespace: spec.pipeline_ref.namespace.clone(),
            path: format!("{pipeline}/{notification}/{}/{app}", spec.subject.environment),
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.namespace, self.path)
    }
}

/// One expected transition and the outcome of its delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Type and revision, such as `Deployed 2`; the revision is empty for `Removed`.
    pub what: String,
    /// The outcome; `None`: still pending.
    pub outcome: Option<Outcome>,
}

impl Step {
    /// Parses `Deployed 2`, which is delivered, or `Deployed 2` followed by `[Parked]`, `[Canceled]`, `[Superseded]` or `[pending]`.
    pub fn new(text: &str) -> Self {
        let (what, outcome) = match text.split_once(" [") {
            None => (text, Some(Outcome::Delivered)),
            Some((what, "Parked]")) => (what, Some(Outcome::Parked)),
            Some((what, "Canceled]")) => (what, Some(Outcome::Canceled)),
            Some((what, "Superseded]")) => (what, Some(Outcome::Superseded)),
            Some((what, "pending]")) => (what, None),
            Some((_, other)) => panic!("no such outcome: {other}"),
        };
        Self { what: what.to_owned(), outcome }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.what, self.outcome.map_or("pending", Outcome::as_str))
    }
}

/// Returns type and revision in the notation of a [`Step`].
pub fn what(type_: &str, revision: &str) -> String {
    format!("{type_} {revision}").trim_end().to_owned()
}
