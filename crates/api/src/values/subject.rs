//! The subjects of the change log: reads the text of a subject, and returns the same text for it. Pure.

use std::fmt;

/// What a change in the log is about. Its text is what the log, the statuses and the lanes of deliveries contain. [`parse`](Self::parse)
/// accepts each text, and `Display` returns the same text again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogSubject<'a> {
    /// `target/` and the display name of the target.
    Target(&'a str),
    /// `environment/` and the name of the environment.
    Environment(&'a str),
    /// The promotions to an environment: `promotion/` and the name of the environment.
    Promotion(&'a str),
    /// `cluster/` and the display name of the cluster.
    Cluster(&'a str),
    /// The pipeline itself: `pipeline`.
    Pipeline,
    /// Any other text, which another version can have written. Its changes mean what those of a target mean.
    Other(&'a str),
}

impl<'a> LogSubject<'a> {
    /// Reads a text as the log has it.
    #[must_use]
    pub fn parse(text: &'a str) -> Self {
        match text.split_once('/') {
            Some(("target", name)) => Self::Target(name),
            Some(("environment", name)) => Self::Environment(name),
            Some(("promotion", environment)) => Self::Promotion(environment),
            Some(("cluster", name)) => Self::Cluster(name),
            None if text == "pipeline" => Self::Pipeline,
            _ => Self::Other(text),
        }
    }
}

impl fmt::Display for LogSubject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(name) => write!(f, "target/{name}"),
            Self::Environment(name) => write!(f, "environment/{name}"),
            Self::Promotion(environment) => write!(f, "promotion/{environment}"),
            Self::Cluster(name) => write!(f, "cluster/{name}"),
            Self::Pipeline => f.write_str("pipeline"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LogSubject::{self, Cluster, Environment, Other, Pipeline, Promotion, Target};

    #[test]
    fn a_text_is_read_and_written_again() {
        for (text, want) in [
            ("target/prod/fleet.eu/a/web", Target("prod/fleet.eu/a/web")),
            ("target/promotion/c/a", Target("promotion/c/a")),
            ("target/", Target("")),
            ("environment/prod", Environment("prod")),
            ("promotion/prod", Promotion("prod")),
            ("cluster/a.b", Cluster("a.b")),
            ("pipeline", Pipeline),
            ("pipeline/shop", Other("pipeline/shop")),
            ("promotion", Other("promotion")),
            ("gadget/prod", Other("gadget/prod")),
            ("Target/prod", Other("Target/prod")),
            ("", Other("")),
        ] {
            assert_eq!((LogSubject::parse(text), want.to_string()), (want, text.to_owned()));
        }
    }
}
