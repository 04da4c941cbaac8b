//! Finds names that match nothing in the files: environments of triggers, and layers of unknown notifications.
//!
//! In: the Notifications and the Pipelines of the files. Out: notes, not findings, because the cluster can have Pipelines and Notifications
//! that are not among the files. The controller reports `TriggerMatchesNothing` for the same triggers.

use std::collections::BTreeSet;

use kube::ResourceExt as _;

use super::Report;
use super::pipelines::Files;
use relaybook_api::values::refs::ConfigMapKey;
use relaybook_api::{Notification, Pipeline};
use relaybook_settings::config::{Given, PipelineSelector, nearest, resolve};

/// Maximum number of environments in a note.
const NAMED: usize = 10;

/// Adds a note for each Notification with a trigger whose environments match none of its Pipelines.
pub(super) fn note_triggers(pipelines: &[Pipeline], files: Files<'_>, report: &mut Report) {
    let text = |key: &ConfigMapKey| files.texts.text(key);
    let given = Given { allow_http: files.options.allow_http, text: &text };
    for ((namespace, name), (_, notification)) in files.notifications {
        let Some(notification) = notification else { continue };
        let Ok(selector) = PipelineSelector::parse(notification.spec.pipeline_selector.as_ref()) else { continue };
        let is_selected = |p: &&Pipeline| p.namespace().as_ref() == Some(namespace) && selector.selects(p.labels());
        let selected = pipelines.iter().filter(is_selected);
        let environments: BTreeSet<_> = selected.flat_map(|p| &p.spec.environments).map(|e| e.name.as_str()).collect();
        let Ok(intake) = resolve(notification, &given).intake else { continue };
        if let Some(trigger) = intake.triggers.matching_nothing(&environments) {
            let meant = meant(notification, trigger, &environments);
            let named = environments.iter().copied().take(NAMED).collect::<Vec<_>>().join(", ");
            report.notes.push(format!(
                "Notification {name}: spec.triggers[{trigger}].environments matches none of the environments of its Pipelines \
                 among the files ({named}){meant}"
            ));
        }
    }
}

/// Returns the environment that the user most likely meant.
fn meant(notification: &Notification, trigger: usize, known: &BTreeSet<&str>) -> String {
    let triggers = notification.spec.triggers.iter().flatten();
    let mut written = triggers.skip(trigger).take(1).flat_map(|trigger| trigger.environments.iter().flatten());
    let meant = written.find_map(|name| nearest(name, known.iter().copied()));
    meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"))
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
    fn a_trigger_that_matches_no_environment_is_noted() {
        let words = "matches none of the environments of its Pipelines among the files (dev, prod)";
        let of = |environments: &str| {
            notes(&format!("{{type: Deployed}}, {{type: Failed, environments: [{environments}]}}"), "", "")
        };
        let note = format!("Notification deploys: spec.triggers[1].environments {words}");
        assert_eq!(of("production"), [format!("{note}; did you mean prod?")]);
        assert_eq!(of("qa"), [note]);
        assert_eq!(of("qa, 'p*'"), [""; 0]);
        let other = "  pipelineSelector: {matchLabels: {team: other}}\n";
        assert_eq!(notes("{type: Failed, environments: [qa]}", other, ""), [""; 0], "its pipelines are not among the files");
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
