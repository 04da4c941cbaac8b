//! Which promotions a hook requests to check. The annotation of the promotion is the request. Pure.

use std::time::Duration;

use relaybook_api::promotion::{LOOK, Phase};
use relaybook_api::{Promotion, Time};

/// Minimum number of seconds between two requests to check the same promotion. The annotation contains the time of the last one, so the
/// limit applies to all replicas together.
const PAUSE: i64 = 5;

/// Returns when a promotion of the pipeline with this uid can get a new annotation: now, or a moment after the last one. `None`: it is not
/// open.
pub(super) fn due(promotion: &Promotion, uid: &str, now: Time) -> Option<Time> {
    let phase = promotion.status.as_ref().and_then(|status| status.phase);
    let is_open = !phase.is_some_and(Phase::is_ended) && promotion.metadata.deletion_timestamp.is_none();
    if !is_open || promotion.spec.pipeline_ref.uid != uid {
        return None;
    }
    let last = promotion.metadata.annotations.as_ref().and_then(|all| all.get(LOOK)?.parse::<Time>().ok());
    // A time in the future was not written by a hook.
    let recent = last.filter(|last| now.duration_since(*last).as_secs().abs() < PAUSE);
    Some(recent.map_or(now, |last| last.saturating_add(Duration::from_secs(PAUSE.unsigned_abs())).unwrap_or(now)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_open_promotion_is_checked_at_most_once_in_five_seconds() {
        let now: Time = "2026-01-31T12:00:00Z".parse().unwrap();
        let looked = |at: &str| json!({"metadata": {"annotations": {LOOK: at}}});
        for (over, is_due) in [
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
                "apiVersion": "relaybook.dev/v1alpha1", "kind": "Promotion", "metadata": {"name": "a", "namespace": "team-a"},
                "spec": {"pipelineRef": {"name": "podinfo", "uid": "p"}, "environment": "prod", "from": "staging",
                    "revision": "1", "occasion": 1},
                "status": {"phase": "Pending"},
            });
            json_patch::merge(&mut object, &over);
            let promotion: Promotion = serde_json::from_value(object).unwrap();
            assert_eq!(due(&promotion, "p", now) == Some(now), is_due, "{over}");
        }
    }

    #[test]
    fn a_hook_soon_after_the_last_one_is_due_later() {
        let [now, last]: [Time; 2] = ["2026-01-31T12:00:00Z", "2026-01-31T11:59:57Z"].map(|text| text.parse().unwrap());
        let mut promotion = Promotion::new("a", relaybook_api::PromotionSpec::default());
        promotion.metadata.annotations = Some([(LOOK.to_owned(), last.to_string())].into());
        assert_eq!(due(&promotion, "", now), Some("2026-01-31T12:00:02Z".parse().unwrap()));
        assert_eq!(due(&promotion, "another", now), None);
    }
}
