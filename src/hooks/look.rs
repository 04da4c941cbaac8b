//! Which promotions a hook requests to check. The annotation of the promotion is the request. Pure.

use crate::api::promotion::{LOOK, Phase};
use crate::api::{Promotion, Time};

/// Minimum number of seconds between two requests to check the same promotion. The annotation contains the time of the last one, so the
/// limit applies to all replicas together.
const PAUSE: i64 = 5;

/// Whether a promotion of the pipeline with this uid gets a new annotation.
pub(super) fn is_due(promotion: &Promotion, uid: &str, now: Time) -> bool {
    let phase = promotion.status.as_ref().and_then(|status| status.phase);
    let is_open = !phase.is_some_and(Phase::is_ended) && promotion.metadata.deletion_timestamp.is_none();
    let last = promotion.metadata.annotations.as_ref().and_then(|all| all.get(LOOK)?.parse::<Time>().ok());
    // A time in the future was not written by a hook.
    let was_recent = last.is_some_and(|last| now.duration_since(last).as_secs().abs() < PAUSE);
    promotion.spec.pipeline_ref.uid == uid && is_open && !was_recent
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_open_promotion_is_looked_at_once_in_five_seconds() {
        let now: Time = "2026-01-31T12:00:00Z".parse().unwrap();
        let looked = |at: &str| json!({"metadata": {"annotations": {LOOK: at}}});
        for (over, due) in [
            (json!({}), true),
            (json!({"status": null}), true),
            (json!({"status": {"phase": "Requested"}}), true),
            (json!({"status": {"phase": "Finished"}}), false),
            (json!({"status": {"phase": "Withdrawn"}}), false),
            (json!({"metadata": {"deletionTimestamp": "2026-01-31T12:00:00Z"}}), false),
            (json!({"spec": {"pipelineRef": {"uid": "q"}}}), false),
            (looked("2026-01-31T11:59:55Z"), true),
            (looked("2026-01-31T11:59:55.001Z"), false),
            (looked("2026-01-31T12:00:00Z"), false),
            (looked("2026-01-31T12:00:04Z"), false),
            (looked("2026-01-31T13:00:00Z"), true),
            (looked("now"), true),
        ] {
            let mut object = json!({
                "apiVersion": "pennant.dev/v1alpha1", "kind": "Promotion", "metadata": {"name": "a", "namespace": "team-a"},
                "spec": {"pipelineRef": {"name": "podinfo", "uid": "p"}, "environment": "prod", "from": "staging",
                    "revision": "1", "occasion": 1},
                "status": {"phase": "Pending"},
            });
            json_patch::merge(&mut object, &over);
            let promotion: Promotion = serde_json::from_value(object).unwrap();
            assert_eq!(is_due(&promotion, "p", now), due, "{over}");
        }
    }
}
