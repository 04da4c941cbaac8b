//! Finds names that match nothing in the files: environments and clusters of triggers, and layers of unknown notifications.
//!
//! In: the Notifications and the Pipelines of the files. Out: notes, not findings, because the cluster can have Pipelines and Notifications
//! that are not among the files. The controller reports the same triggers with the condition `Reachable`, reason `NoMatch`.

use std::collections::BTreeSet;

use kube::ResourceExt as _;

use super::pipelines::Files;
use super::{FileDocument, Report};
use relaybook_api::pipeline::target::{TargetInfo, targets};
use relaybook_api::values::refs::ConfigMapKey;
use relaybook_api::{Notification, Pipeline};
use relaybook_settings::config::layers::is_layer_of;
use relaybook_settings::config::{Given, PipelineSelector, nearest, resolve};
use relaybook_settings::reach::{Cluster, Spot, replaces_triggers, unreached};

/// Adds a note for each trigger that matches no environment or no cluster of the Pipelines that its Notification applies to. Which Pipelines
/// a namespace with a `PipelineSet` has is not known.
pub(super) fn note_triggers(pipelines: &[Pipeline], all: &[FileDocument<'_>], files: Files<'_>, report: &mut Report) {
    let text = |key: &ConfigMapKey| files.texts.text(key);
    let given = Given { allow_http: files.options.allow_http, text: &text };
    let sets = namespaces_with_sets(all, files);
    let with_targets = pipelines.iter().map(|pipeline| (pipeline, targets(&pipeline.spec, &files.options.cluster_name)));
    let with_targets: Vec<(&Pipeline, Vec<TargetInfo>)> = with_targets.collect();
    for ((namespace, name), (_, notification)) in files.notifications {
        let Some(notification) = notification else { continue };
        let others = notification.spec.pipeline_namespaces.iter().flatten();
        if others.chain([namespace]).any(|of| sets.contains(of)) {
            continue;
        }
        let Ok(intake) = resolve(notification, &given).intake else { continue };
        let judged = with_targets.iter().filter(|(pipeline, _)| {
            applies(notification, &intake.selector, pipeline) && !is_replaced(notification, name, pipeline, files)
        });
        for one in unreached(&intake.triggers, judged.flat_map(|(pipeline, targets)| spots(pipeline, targets))) {
            report.notes.push(format!("Notification {name}, for the Pipelines among the files: spec.{one}"));
        }
    }
}

fn namespaces_with_sets(all: &[FileDocument<'_>], files: Files<'_>) -> BTreeSet<String> {
    let sets = all.iter().map(|of| &of.document).filter(|document| document.kind() == "PipelineSet");
    let namespace = |value: &serde_json::Value| value["metadata"]["namespace"].as_str().map(str::to_owned);
    sets.map(|set| namespace(&set.value).unwrap_or_else(|| files.options.namespace.clone())).collect()
}

/// Whether a Notification applies to a pipeline of its namespace, or is a layer of one of another namespace.
fn applies(notification: &Notification, selector: &PipelineSelector, pipeline: &Pipeline) -> bool {
    let namespace = pipeline.namespace().unwrap_or_default();
    let is_own = notification.namespace().as_ref() == Some(&namespace) && selector.selects(pipeline.labels());
    is_own || is_layer_of(notification, &pipeline.spec, (&namespace, pipeline.labels()))
}

/// Whether the layers of a pipeline replace the triggers of a Notification.
fn is_replaced(notification: &Notification, name: &str, pipeline: &Pipeline, files: Files<'_>) -> bool {
    let namespace = pipeline.namespace().unwrap_or_default();
    let is_over = |other: &&Notification| {
        !std::ptr::eq(*other, notification)
            && other.spec.triggers.is_some()
            && is_layer_of(other, &pipeline.spec, (&namespace, pipeline.labels()))
    };
    replaces_triggers(&pipeline.spec, name) || files.of(pipeline, name).iter().any(is_over)
}

/// Returns where the targets of a pipeline are. Which clusters `targetsFrom` selects is not known.
fn spots<'a>(pipeline: &'a Pipeline, targets: &'a [TargetInfo]) -> impl Iterator<Item = Spot<'a>> {
    let namespace = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    let listed = targets.iter().map(move |target| {
        let cluster = Cluster { name: &target.cluster, namespace, is_remote: target.cluster_ref.is_some() };
        Spot { environment: &target.environment, cluster: Some(cluster) }
    });
    let open = pipeline.spec.environments.iter().filter(|of| !of.targets_from.is_empty() || of.targets.is_empty());
    listed.chain(open.map(|environment| Spot { environment: &environment.name, cluster: None }))
}

/// Returns the notification of the files that layers with this name were most likely meant for.
pub(super) fn meant_notification(namespace: &str, name: &str, files: Files<'_>) -> String {
    let ours = files.notifications.keys().filter(|(of, _)| of == namespace).map(|(_, name)| name.as_str());
    let known: Vec<_> = ours.chain(files.global.notifications().map(|(name, _)| name.as_str())).collect();
    nearest(name, known).map_or_else(String::new, |meant| format!("; did you mean {meant}?"))
}

#[cfg(test)]
mod tests {
    use crate::lint::{File, lint, tests::options};

    fn notes(triggers: &str, more: &str, layers: &str) -> Vec<String> {
        let text = format!(
            "apiVersion: relaybook.dev/v1alpha1\nkind: Notification\nmetadata: {{name: deploys, labels: {{}}}}\nspec:\n  triggers: \
             [{triggers}]\n  endpoint: {{url: 'https://example.com/'}}\n  template: {{inline: {{body: '{{}}'}}}}\n{more}---\n\
             apiVersion: relaybook.dev/v1alpha1\nkind: Pipeline\nmetadata: {{name: shop}}\nspec:\n  appRef: {{apiVersion: apps/v1, kind: \
             Deployment, name: web}}\n  environments: [{{name: dev, targets: [{{namespace: a}}]}}, {{name: prod, targets: [{{namespace: b}}]}}]\n{layers}"
        );
        let report = lint(&[File::named("a.yaml", text)], &options()).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        report.notes
    }

    #[test]
    fn a_trigger_that_matches_no_environment_or_cluster_is_noted() {
        let of = |filter: &str| notes(&format!("{{type: Deployed}}, {{type: Failed, {filter}}}"), "", "");
        let note = "Notification deploys, for the Pipelines among the files: spec.triggers[1]";
        let have = "(the pipelines have dev, prod); ";
        let remedy = "correct it, or remove the trigger";
        assert_eq!(
            of("environments: [production]"),
            [format!("{note}.environments: no environment matches production {have}did you mean prod?")]
        );
        assert_eq!(of("environments: [qa]"), [format!("{note}.environments: no environment matches qa {have}{remedy}")]);
        assert_eq!(of("environments: [qa, 'p*']"), [""; 0]);
        assert_eq!(
            of("clusters: ['eu-*']"),
            [format!("{note}.clusters: no cluster matches eu-* (the pipelines have in-cluster); {remedy}")]
        );
        let other = "  pipelineSelector: {matchLabels: {team: other}}\n";
        assert_eq!(notes("{type: Failed, environments: [qa]}", other, ""), [""; 0], "its pipelines are not among the files");
    }

    #[test]
    fn a_trigger_that_a_pipeline_replaces_or_that_a_set_can_match_is_not_noted() {
        let of = |layers: &str| notes("{type: Failed, environments: [qa]}", "", layers);
        let layer = |fields: &str| format!("  notifications: [{{name: deploys, {fields}}}]\n");
        assert_eq!(of(&layer("triggers: [{type: Failed}]")), [""; 0]);
        assert_eq!(of(&layer("suspend: true")).len(), 1);
        let from = "  - {name: later, targetsFrom: [{fleet: {gitRepo: shop, of: Bundles}}]}\n";
        let text = |environments: &str, more: &str| {
            format!(
                "apiVersion: relaybook.dev/v1alpha1\nkind: Notification\nmetadata: {{name: deploys}}\nspec:\n  triggers: [{{type: \
                 Failed, clusters: [eu]}}]\n  endpoint: {{url: 'https://example.com/'}}\n  template: {{inline: {{body: '{{}}'}}}}\n---\n\
                 apiVersion: relaybook.dev/v1alpha1\nkind: Pipeline\nmetadata: {{name: shop}}\nspec:\n  appRef: {{apiVersion: apps/v1, \
                 kind: Deployment, name: web}}\n  environments:\n  - {{name: dev, targets: [{{namespace: a}}]}}\n{environments}{more}"
            )
        };
        let set = "---\napiVersion: relaybook.dev/v1alpha1\nkind: PipelineSet\nmetadata: {name: all}\nspec: {}\n";
        for (environments, more, count) in [("", "", 1), (from, "", 0), ("", set, 0)] {
            let report = lint(&[File::named("a.yaml", text(environments, more))], &options()).unwrap();
            let noted = report.notes.iter().filter(|note| note.contains("spec.triggers[0].clusters")).count();
            assert_eq!(noted, count, "{environments}{more}: {report:?}");
        }
    }

    #[test]
    fn a_layer_of_a_misspelled_notification_names_the_one_that_was_meant() {
        let of =
            |name: &str| notes("{type: Deployed}", "", &format!("  notifications: [{{name: {name}, suspend: true}}]\n"));
        let note = |name: &str, meant: &str| {
            format!(
                "Pipeline default/shop: its layers for notification {name} were not checked: Notification default/{name} is not \
                 among the files{meant}"
            )
        };
        assert_eq!(of("deploys"), [""; 0]);
        assert_eq!(of("deplyos"), [note("deplyos", "; did you mean deploys?")]);
        assert_eq!(of("audit"), [note("audit", "")]);
    }
}
