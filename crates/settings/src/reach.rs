//! Triggers that match nothing: the pipelines have no such environment, or no such cluster. Pure.
//!
//! In: the compiled triggers of a notification, and the environments and clusters of the pipelines that it applies to. Out: each field of a
//! trigger that matches none of them, as a sentence with a remedy. A trigger is compared only with what its type can be about: only remote
//! clusters become offline. Also whether a pipeline replaces the triggers, because then they are not compared with it.

use std::collections::BTreeSet;
use std::fmt;

use crate::trigger::{Filter, Globs, Triggers};
use relaybook_api::PipelineSpec;
use relaybook_api::delivery::SubjectKind;
use relaybook_api::values::nearest::nearest;

/// Maximum number of names, and of globs, in a sentence.
const SHOWN: usize = 5;

/// An environment of a pipeline, and a cluster that has a target of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot<'a> {
    /// Name of the environment.
    pub environment: &'a str,
    /// The cluster. `None`: not all clusters of the environment are known.
    pub cluster: Option<Cluster<'a>>,
}

/// A cluster, as a pipeline refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cluster<'a> {
    /// Its name, as in the name of a target: `NAME`, or `NAMESPACE.NAME`.
    pub name: &'a str,
    /// The namespace of the pipeline.
    pub namespace: &'a str,
    /// Whether an object represents it. Only such a cluster can become offline.
    pub is_remote: bool,
}

impl Cluster<'_> {
    /// Whether any glob matches its name, with or without its namespace. The part of a name before its first dot can be a namespace or not.
    fn is_matched_by(&self, globs: &Globs) -> bool {
        let own = || self.name.split_once('.').is_some_and(|(_, own)| globs.is_match(own));
        let full = || globs.is_match(&format!("{}.{}", self.namespace, self.name));
        globs.is_match(self.name) || (self.is_remote && (own() || full()))
    }
}

/// A field of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `environments`.
    Environments,
    /// `clusters`.
    Clusters,
}

/// A field of a trigger that matches nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreached {
    /// Index of the trigger, from 0.
    pub index: usize,
    /// The field.
    pub field: Field,
    /// Its globs.
    pub globs: Names,
    /// What it was compared with.
    pub known: Names,
    /// The name that was most likely meant.
    pub meant: Option<String>,
    /// Whether only remote clusters were compared.
    only_remote: bool,
    /// Whether only the clusters of the environments of the trigger were compared.
    only_within: bool,
}

/// The first of some names, and how many more there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The first names.
    pub shown: Vec<String>,
    /// How many more there are.
    pub more: usize,
}

impl Names {
    fn of<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Self {
        let mut names = names.into_iter();
        let shown = names.by_ref().take(SHOWN).map(|name| name.as_ref().to_owned()).collect();
        Self { shown, more: names.count() }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown.join(", "))?;
        match (self.shown.len(), self.more) {
            (0, _) => f.write_str("none"),
            (_, 0) => Ok(()),
            (_, more) => write!(f, " and {more} more"),
        }
    }
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, globs, known, .. } = self;
        let (field, what) = match self.field {
            Field::Environments => ("environments", "environment"),
            Field::Clusters if self.only_remote => ("clusters", "remote cluster"),
            Field::Clusters => ("clusters", "cluster"),
        };
        let (within, they) = if self.only_within { (" of its environments", "they") } else { ("", "the pipelines") };
        write!(f, "triggers[{index}].{field}: no {what}{within} matches ")?;
        match globs.shown.as_slice() {
            [] => f.write_str("an empty list")?,
            _ => write!(f, "{globs}")?,
        }
        write!(f, " ({they} have {known}); ")?;
        match &self.meant {
            Some(meant) => write!(f, "did you mean {meant}?"),
            None => f.write_str("correct it, or remove the trigger"),
        }
    }
}

/// Returns the fields of triggers that match none of these environments and clusters, at most one of each trigger. Without an environment,
/// there is none. `spots` is not read if no trigger has globs.
#[must_use]
pub fn unreached<'a>(triggers: &Triggers, spots: impl IntoIterator<Item = Spot<'a>>) -> Vec<Unreached> {
    if !triggers.have_globs() {
        return Vec::new();
    }
    let spots: BTreeSet<Spot<'_>> = spots.into_iter().collect();
    let environments: BTreeSet<&str> = spots.iter().map(|spot| spot.environment).collect();
    if environments.is_empty() {
        return Vec::new();
    }
    let each = triggers.filters().enumerate();
    each.filter_map(|(index, filter)| without_match(index, filter, &environments, &spots)).collect()
}

/// Compares one trigger: first its environments, then its clusters with those of the environments that match.
fn without_match(
    index: usize,
    filter: Filter<'_>,
    environments: &BTreeSet<&str>,
    spots: &BTreeSet<Spot<'_>>,
) -> Option<Unreached> {
    let is_within = |name: &&&str| filter.environments.is_none_or(|globs| globs.is_match(name));
    let within: BTreeSet<&str> = environments.iter().filter(is_within).copied().collect();
    if let Some(globs) = filter.environments.filter(|_| within.is_empty()) {
        return Some(Unreached {
            index,
            field: Field::Environments,
            globs: Names::of(globs.written()),
            known: Names::of(environments),
            meant: meant(globs, environments),
            only_remote: false,
            only_within: false,
        });
    }
    let globs = filter.clusters?;
    let only_remote = filter.type_.subject() == SubjectKind::Cluster;
    let mut names = BTreeSet::new();
    for spot in spots.iter().filter(|spot| within.contains(spot.environment)) {
        // A cluster that is not known can match.
        let cluster = spot.cluster?;
        if cluster.is_remote || !only_remote {
            if cluster.is_matched_by(globs) {
                return None;
            }
            names.insert(cluster.name);
        }
    }
    let own = names.iter().filter_map(|name| name.split_once('.')).map(|(_, own)| own);
    let candidates: BTreeSet<&str> = names.iter().copied().chain(own).collect();
    Some(Unreached {
        index,
        field: Field::Clusters,
        globs: Names::of(globs.written()),
        known: Names::of(&names),
        meant: meant(globs, &candidates),
        only_remote,
        only_within: filter.environments.is_some(),
    })
}

/// Returns the name that was most likely meant by one of the globs.
fn meant(globs: &Globs, known: &BTreeSet<&str>) -> Option<String> {
    let found = globs.written().iter().find_map(|glob| nearest(glob, known.iter().copied()));
    found.map(str::to_owned)
}

/// Whether the layer of a whole pipeline replaces the triggers of this notification, or removes any part of them.
#[must_use]
pub fn replaces_triggers(spec: &PipelineSpec, name: &str) -> bool {
    let removes = |pointer: &String| pointer == "/triggers" || pointer.starts_with("/triggers/");
    let mut layers = spec.notifications.iter().filter(|layer| layer.name == name);
    layers.any(|layer| layer.settings.triggers.is_some() || layer.remove.iter().flatten().any(removes))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the place of a target, written as `ENVIRONMENT/CLUSTER`. `ENVIRONMENT` alone: its clusters are not known. The cluster `local`
    /// is the local one.
    fn spot(text: &str) -> Spot<'_> {
        let (environment, cluster) = text.split_once('/').map_or((text, None), |(of, cluster)| (of, Some(cluster)));
        let cluster = cluster.map(|name| Cluster { name, namespace: "team-a", is_remote: name != "local" });
        Spot { environment, cluster }
    }

    fn said(triggers: &Value, places: &[&str]) -> Vec<String> {
        let triggers = Triggers::compile(&serde_json::from_value::<Vec<_>>(triggers.clone()).unwrap()).unwrap();
        unreached(&triggers, places.iter().map(|place| spot(place))).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_field_that_matches_nothing_is_named_with_a_remedy() {
        let stages = ["dev/local", "prod/local"];
        let fleet = ["dev/local", "prod/fleet.eu-1", "prod/fleet.eu-2"];
        let remedy = "; correct it, or remove the trigger";
        for (trigger, places, message) in [
            (json!({"environments": ["prod"]}), &stages[..], String::new()),
            (json!({"environments": ["qa", "p*"]}), &stages, String::new()),
            (json!({}), &stages, String::new()),
            (json!({"environments": ["production"], "clusters": ["x"]}), &[], String::new()),
            (
                json!({"environments": ["production"]}),
                &stages,
                "environments: no environment matches production (the pipelines have dev, prod); did you mean prod?"
                    .to_owned(),
            ),
            (
                json!({"environments": ["qa", "test-*"]}),
                &stages,
                format!("environments: no environment matches qa, test-* (the pipelines have dev, prod){remedy}"),
            ),
            (
                json!({"environments": []}),
                &["dev"],
                format!("environments: no environment matches an empty list (the pipelines have dev){remedy}"),
            ),
            (
                json!({"environments": ["x"]}),
                &["a1", "b1", "c1", "d1", "e1", "f1", "g1"],
                format!("environments: no environment matches x (the pipelines have a1, b1, c1, d1, e1 and 2 more){remedy}"),
            ),
            // A name matches with its namespace, without it, and with the namespace of the pipeline.
            (json!({"clusters": ["eu-*"]}), &fleet, String::new()),
            (json!({"clusters": ["fleet.*"]}), &fleet, String::new()),
            (json!({"clusters": ["team-a.us"]}), &["dev/us"], String::new()),
            (
                json!({"clusters": ["team-a.local"]}),
                &["dev/local"],
                format!("clusters: no cluster matches team-a.local (the pipelines have local){remedy}"),
            ),
            (
                json!({"clusters": ["eu-3"]}),
                &fleet,
                "clusters: no cluster matches eu-3 (the pipelines have fleet.eu-1, fleet.eu-2, local); did you mean eu-1?"
                    .to_owned(),
            ),
            (json!({"clusters": ["ap-*"]}), &["dev/local", "prod"], String::new()),
            // Both fields must match the same target.
            (
                json!({"environments": ["dev"], "clusters": ["eu-*"]}),
                &fleet,
                format!("clusters: no cluster of its environments matches eu-* (they have local){remedy}"),
            ),
        ] {
            let mut trigger = trigger;
            trigger["type"] = json!("Deployed");
            let expected = if message.is_empty() { message } else { format!("triggers[1].{message}") };
            assert_eq!(said(&json!([{"type": "Failed"}, trigger]), places).concat(), expected);
        }
    }

    #[test]
    fn a_trigger_is_compared_only_with_what_its_type_is_about() {
        let places = ["dev/local", "prod/eu"];
        for (type_, clusters, message) in [
            ("ClusterOffline", "eu", None),
            ("ClusterOffline", "local", Some("no remote cluster matches local (the pipelines have eu)")),
            ("ClusterOnline", "us-*", Some("no remote cluster matches us-* (the pipelines have eu)")),
            ("EnvironmentReady", "local", None),
            ("PipelineReady", "local", None),
            ("PromotionRequested", "eu", None),
            ("PromotionFailed", "us-*", Some("no cluster matches us-* (the pipelines have eu, local)")),
            ("Deployed", "local", None),
        ] {
            let expected =
                message.map(|message| format!("triggers[0].clusters: {message}; correct it, or remove the trigger"));
            let said = said(&json!([{"type": type_, "clusters": [clusters]}]), &places);
            assert_eq!(said, Vec::from_iter(expected), "{type_} {clusters}");
        }
        let none = said(&json!([{"type": "ClusterOffline", "clusters": ["eu"]}]), &["dev/local"]);
        let message = "triggers[0].clusters: no remote cluster matches eu (the pipelines have none)";
        assert!(none.len() == 1 && none[0].starts_with(message), "{none:?}");
    }

    #[test]
    fn each_trigger_is_compared_and_nothing_is_read_without_globs() {
        let qa = json!({"type": "Failed", "environments": ["qa"]});
        let all = json!([qa, {"type": "Failed"}, {"type": "Deployed", "clusters": ["us"]}]);
        let said = said(&all, &["dev/local"]);
        assert!(said.len() == 2 && said[0].starts_with("triggers[0].e") && said[1].starts_with("triggers[2].c"), "{said:?}");
        let plain = Triggers::compile(&[relaybook_api::notification::Trigger::default()]).unwrap();
        assert_eq!(unreached(&plain, std::iter::from_fn(|| panic!("is read"))), []);
    }

    #[test]
    fn only_the_layer_of_the_whole_pipeline_replaces_triggers() {
        for (layer, replaces) in [
            (json!({"name": "n", "triggers": []}), true),
            (json!({"name": "n", "remove": ["/endpoint", "/triggers"]}), true),
            (json!({"name": "n", "remove": ["/triggers/0/environments"]}), true),
            (json!({"name": "n", "remove": ["/triggersX"], "suspend": true}), false),
            (json!({"name": "other", "triggers": []}), false),
        ] {
            let of = |own: &Value, below: &Value| -> PipelineSpec {
                let environments = json!([{"name": "dev", "notifications": below, "targets": []}]);
                serde_json::from_value(json!({"notifications": own, "environments": environments})).unwrap()
            };
            assert_eq!(replaces_triggers(&of(&json!([layer]), &json!([])), "n"), replaces, "{layer}");
            assert!(!replaces_triggers(&of(&json!([]), &json!([layer])), "n"), "{layer}");
        }
    }
}
