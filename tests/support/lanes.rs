//! The words in which tests say what they expect: lanes, and the steps in them.

use std::fmt;

use pennant::api::{Delivery, Outcome};

/// The deliveries of one notification for one target of one pipeline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    /// Namespace of the pipeline.
    pub namespace: String,
    /// `PIPELINE/NOTIFICATION/ENVIRONMENT/APP`; without the application for an environment, without either for the pipeline,
    /// and with the cluster's name in its place for a cluster.
    pub path: String,
}

impl Lane {
    /// Whether it is about the fence, which is there for waiting and not for what a test is about.
    pub fn is_fence(&self) -> bool {
        self.path.ends_with("/fence/fence")
    }

    /// The lane of a delivery.
    pub fn of(delivery: &Delivery) -> Self {
        let spec = &delivery.spec;
        let cluster = spec.subject.cluster_ref.as_ref().map_or("", |c| &c.name);
        let app = spec.subject.target.as_ref().map_or(cluster, |t| &t.app.name);
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

/// One expected transition and how its delivery ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Type and revision, such as `Deployed 2`; the revision is empty for `Removed`.
    pub what: String,
    /// How it ends; `None`: it is still on its way.
    pub outcome: Option<Outcome>,
}

impl Step {
    /// From `Deployed 2`, which is delivered, or `Deployed 2 [Parked]`, `[Canceled]` or `[pending]`.
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

/// Type and revision in the words of a [`Step`].
pub fn what(type_: &str, revision: &str) -> String {
    format!("{type_} {revision}").trim_end().to_owned()
}
