//! Any kind without rules of its own: the general rules of kstatus, and the label that names a version
//! (<https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md>).

use super::super::view::View;
use super::super::{kstatus, revision};
use super::{Reading, Rules};

pub(super) static ANY: Rules = Rules { group: "", kind: "", reader: "kstatus/3", read };

fn read(view: &View<'_>) -> Reading {
    Reading::declared(kstatus::general(view), revision::of_label(view))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;

    #[test]
    fn other_kinds_go_by_the_general_rules() {
        let ready = |status, generation| condition("Ready", status, "Because", generation);
        for (name, status, want) in [
            ("never reconciled", json!({}), InProgress),
            ("no conditions", json!({"phase": "Running"}), Current),
            ("ready", json!({"conditions": [ready("True", 2)]}), Current),
            ("not ready", json!({"conditions": [ready("False", 2)]}), InProgress),
            ("ready unknown", json!({"conditions": [ready("Unknown", 2)]}), InProgress),
            ("behind", json!({"observedGeneration": 1, "conditions": [ready("True", 2)]}), InProgress),
            ("ahead", json!({"observedGeneration": 3, "conditions": [ready("True", 2)]}), InProgress),
            ("a text", json!({"observedGeneration": "2", "conditions": [ready("True", 2)]}), Current),
            ("a text that is behind", json!({"observedGeneration": "1", "conditions": [ready("True", 2)]}), InProgress),
            ("not a number", json!({"observedGeneration": "6f7d", "conditions": [ready("True", 2)]}), InProgress),
            ("a fraction", json!({"observedGeneration": 2.5, "phase": "Running"}), InProgress),
            ("a list", json!({"observedGeneration": [2], "phase": "Running"}), InProgress),
            ("null", json!({"observedGeneration": null, "phase": "Running"}), Current),
            ("conditions by type", json!({"conditions": {"Ready": {"status": "False"}}}), InProgress),
            ("conditions as text", json!({"conditions": ["NotReady"]}), InProgress),
            (
                "a status that is no text",
                json!({"conditions": [{"type": "Ready", "status": true, "reason": "R", "message": "m"}]}),
                InProgress,
            ),
            ("the condition is behind", json!({"conditions": [ready("True", 1)]}), InProgress),
            ("the status decides", json!({"observedGeneration": 2, "conditions": [ready("True", 1)]}), Current),
            (
                "stalled",
                json!({"conditions": [condition("Reconciling", "True", "R", 2), condition("Stalled", "True", "S", 2)]}),
                Failed,
            ),
            (
                "stalled of old",
                json!({"observedGeneration": 1, "conditions": [condition("Stalled", "True", "S", 1)]}),
                InProgress,
            ),
            ("stalled before the new spec", json!({"conditions": [condition("Stalled", "True", "S", 1)]}), InProgress),
            (
                "stalled before the new spec, and ready",
                json!({"conditions": [condition("Stalled", "True", "S", 1), ready("True", 2)]}),
                Current,
            ),
            (
                "stalled since before the new spec",
                json!({"observedGeneration": 2, "conditions": [condition("Stalled", "True", "S", 1)]}),
                Failed,
            ),
            ("reconciled the old spec", json!({"conditions": [condition("Reconciling", "True", "R", 1)]}), InProgress),
            (
                "stalled, of no generation",
                json!({"conditions": [{"type": "Stalled", "status": "True", "reason": "S", "message": "m"}]}),
                Failed,
            ),
            ("not stalled", json!({"conditions": [condition("Stalled", "False", "S", 2), ready("True", 2)]}), Current),
            ("reconciling", json!({"conditions": [ready("True", 2), condition("Reconciling", "True", "R", 2)]}), InProgress),
        ] {
            let seen = look(OTHER, json!({}), status);
            let runs = if want == Current { "v7" } else { "" };
            assert_eq!(summary(&seen), (want, runs, "v7"), "{name}");
            assert_eq!(seen.message.is_empty(), want == Current, "{name}");
            assert_eq!(seen.reason.is_empty(), want == Current, "{name}");
            assert!(!seen.suspended && !seen.drifted, "{name}");
        }
    }
}
