//! Shards: which replicas handle an object, by a label that users set. Values only.

use std::collections::BTreeMap;

use crate::Pipeline;

/// The label of Fleet for its own shards.
pub const SHARD_LABEL: &str = "fleet.cattle.io/shard-ref";

/// The shard of a process, and all shards of the installation. An object whose label names none of them belongs to the shard without an ID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharding {
    /// The ID of this process's shard. Empty: it handles what belongs to no other shard.
    pub id: String,
    /// The IDs of all shards.
    pub all: Vec<String>,
    /// The label that names the shard of an object.
    pub label: String,
}

impl Sharding {
    /// Returns the name of a Lease of this shard.
    #[must_use]
    pub fn lease(&self, of: &str) -> String {
        if self.id.is_empty() { of.to_owned() } else { format!("{of}-{}", self.id) }
    }

    /// Whether there are shards.
    #[must_use]
    pub const fn is_used(&self) -> bool {
        !self.all.is_empty()
    }

    /// Whether this is the shard with this ID, as a status contains it.
    #[must_use]
    pub fn is(&self, id: Option<&String>) -> bool {
        self.known(id) == self.id
    }

    fn known<'a>(&self, id: Option<&'a String>) -> &'a str {
        id.filter(|id| self.all.contains(id)).map_or("", String::as_str)
    }

    /// Returns the shard of an object with these labels.
    #[must_use]
    pub fn of_labels<'a>(&self, labels: Option<&'a BTreeMap<String, String>>) -> &'a str {
        self.known(labels.and_then(|labels| labels.get(&self.label)))
    }

    /// Returns the shard that handles a pipeline: the one that its status names, until that one has handed it over.
    #[must_use]
    pub fn holder<'a>(&self, pipeline: &'a Pipeline) -> &'a str {
        let dispatched = pipeline.status.as_ref().and_then(|status| status.dispatched.as_ref());
        dispatched.map_or_else(|| self.of_labels(pipeline.metadata.labels.as_ref()), |d| self.known(d.shard.as_ref()))
    }

    /// Whether this shard handles a pipeline.
    #[must_use]
    pub fn holds(&self, pipeline: &Pipeline) -> bool {
        self.holder(pipeline) == self.id
    }

    /// Returns the shard to which a pipeline of this shard must be handed over. `None`: it is not ours, or stays.
    #[must_use]
    pub fn leaves<'a>(&self, pipeline: &'a Pipeline) -> Option<&'a str> {
        let wanted = self.of_labels(pipeline.metadata.labels.as_ref());
        (self.holds(pipeline) && wanted != self.id).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Dispatched;
    use crate::{PipelineSpec, PipelineStatus};

    #[test]
    fn a_pipeline_stays_with_its_shard_until_it_is_handed_over() {
        let pipeline = |label: Option<&str>, dispatched: Option<Option<&str>>| {
            let mut pipeline = Pipeline::new("p", PipelineSpec::default());
            pipeline.metadata.labels = label.map(|label| [(SHARD_LABEL.to_owned(), label.to_owned())].into());
            let shard = |shard: Option<&str>| Dispatched { shard: shard.map(str::to_owned), ..Dispatched::default() };
            pipeline.status = Some(PipelineStatus { dispatched: dispatched.map(shard), ..PipelineStatus::default() });
            pipeline
        };
        let of = |id: &str| Sharding { id: id.into(), all: vec!["a".into(), "b".into()], label: SHARD_LABEL.into() };
        for (label, dispatched, holder, leaves) in [
            (None, None, "", None),
            (Some("a"), None, "a", None),
            (Some("other"), None, "", None),
            (Some("a"), Some(None), "", Some("a")),
            (Some("b"), Some(Some("a")), "a", Some("b")),
            (None, Some(Some("a")), "a", Some("")),
            (Some("a"), Some(Some("a")), "a", None),
            (Some("a"), Some(Some("removed")), "", Some("a")),
        ] {
            let pipeline = pipeline(label, dispatched);
            for id in ["", "a", "b"] {
                let is_holder = id == holder;
                let expected = if is_holder { leaves } else { None };
                assert_eq!((of(id).holds(&pipeline), of(id).leaves(&pipeline)), (is_holder, expected), "{id} {label:?}");
            }
        }
        assert_eq!((of("").lease("x"), of("a").lease("x")), ("x".to_owned(), "x-a".to_owned()));
        assert!(Sharding::default().holds(&pipeline(Some("a"), Some(Some("a")))), "without shards all is ours");
    }
}
