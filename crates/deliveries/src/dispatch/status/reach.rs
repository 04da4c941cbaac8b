//! What matches nothing in a valid Notification, for the condition `Reachable`. Pure.
//!
//! In: its selector, its triggers, and the pipelines of the index. Out: the message, with the field, the names that exist, and a remedy.

use std::collections::HashSet;

use crate::outbox::PipelineFacts;
use relaybook_api::LogSubject;
use relaybook_settings::reach::{Cluster, Spot, unreached};
use relaybook_settings::trigger::Triggers;

/// Returns the message about a selector that selects none of the pipelines of its namespace.
#[must_use]
pub fn of_selector(pipelines: usize) -> String {
    format!(
        "spec.pipelineSelector: selects no Pipeline of its namespace, which has {pipelines}; correct it, or their labels"
    )
}

/// Returns the message about other namespaces, if no pipeline there has the Notification as a layer.
#[must_use]
pub fn of_namespaces(namespaces: &[String], name: &str) -> String {
    format!(
        "spec.pipelineNamespaces: in {}, no Pipeline has this namespace in spec.layerNamespace and a notification {name}; set \
        spec.layerNamespace, or remove the namespaces",
        namespaces.join(", ")
    )
}

/// Returns the message about triggers that match no environment or no cluster of these pipelines. `None`: each trigger matches.
#[must_use]
pub fn of_triggers(triggers: &Triggers, pipelines: &[&PipelineFacts]) -> Option<String> {
    let all = unreached(triggers, pipelines.iter().flat_map(|pipeline| spots(pipeline)));
    let first = all.first()?;
    let more = match all.len() {
        1 => String::new(),
        2 => " (1 more trigger matches nothing)".to_owned(),
        n => format!(" ({} more triggers match nothing)", n - 1),
    };
    Some(format!("spec.{first}{more}"))
}

/// Returns where the targets of a pipeline are. An environment without a target, or with generated ones, can get one on any cluster.
fn spots(pipeline: &PipelineFacts) -> Vec<Spot<'_>> {
    let subjects = || pipeline.subjects.keys().map(|subject| LogSubject::parse(subject));
    let remote = subjects().filter_map(|subject| if let LogSubject::Cluster(name) = subject { Some(name) } else { None });
    let remote: HashSet<&str> = remote.collect();
    let targets = subjects().filter_map(|subject| {
        let LogSubject::Target(name) = subject else { return None };
        let mut parts = name.split('/');
        let (environment, name) = (parts.next()?, parts.next()?);
        let cluster = Cluster { name, namespace: &pipeline.namespace, is_remote: remote.contains(name) };
        Some(Spot { environment, cluster: Some(cluster) })
    });
    let mut spots: Vec<Spot<'_>> = targets.collect();
    let with_target: HashSet<&str> = spots.iter().map(|spot| spot.environment).collect();
    let without = subjects().filter_map(|subject| match subject {
        LogSubject::Environment(environment)
            if !with_target.contains(environment) || pipeline.open.contains(environment) =>
        {
            Some(Spot { environment, cluster: None })
        }
        _ => None,
    });
    spots.extend(without);
    spots
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn facts(subjects: &[&str]) -> PipelineFacts {
        let subjects = subjects.iter().map(|subject| ((*subject).to_owned(), None)).collect();
        PipelineFacts { namespace: "team-a".into(), subjects, ..PipelineFacts::default() }
    }

    #[test]
    fn triggers_are_compared_with_the_subjects_of_the_pipelines() {
        let web = facts(&["pipeline", "environment/dev", "promotion/dev", "target/dev/here/web"]);
        let shop = facts(&["environment/prod", "target/prod/fleet.eu/a/web", "cluster/fleet.eu", "environment/later"]);
        let fleet =
            PipelineFacts { open: ["prod".to_owned()].into(), ..facts(&["environment/prod", "target/prod/us/a/web"]) };
        let all = [&web, &shop];
        let said = |triggers: Value, pipelines: &[&PipelineFacts]| {
            let triggers = Triggers::compile(&serde_json::from_value::<Vec<_>>(triggers).unwrap()).unwrap();
            of_triggers(&triggers, pipelines).unwrap_or_default()
        };
        let remedy = "; correct it, or remove the trigger";
        for (triggers, pipelines, message) in [
            (json!([{"type": "Failed", "environments": ["later"]}]), &all[..], String::new()),
            (json!([{"type": "Failed", "environments": ["qa"]}]), &[], String::new()),
            // A target on another cluster can appear there at any time.
            (json!([{"type": "Failed", "clusters": ["eu-*"]}]), &[&fleet], String::new()),
            (json!([{"type": "Failed", "clusters": ["us"]}]), &all, String::new()),
            (json!([{"type": "Failed", "environments": ["prod"], "clusters": ["eu"]}]), &all, String::new()),
            (
                json!([{"type": "Failed", "environments": ["qa"]}, {"type": "Added", "environments": ["qa"]}]),
                &all,
                format!(
                    "spec.triggers[0].environments: no environment matches qa (the pipelines have dev, later, prod){remedy} (1 \
                    more trigger matches nothing)"
                ),
            ),
            (
                json!([{"type": "Failed", "clusters": ["us"]}]),
                &[&web],
                format!("spec.triggers[0].clusters: no cluster matches us (the pipelines have here){remedy}"),
            ),
            (
                json!([{"type": "ClusterOffline", "environments": ["prod", "dev"], "clusters": ["here"]}]),
                &all,
                format!(
                    "spec.triggers[0].clusters: no remote cluster of its environments matches here (they have fleet.eu){remedy}"
                ),
            ),
        ] {
            assert_eq!(said(triggers, pipelines), message);
        }
    }
}
