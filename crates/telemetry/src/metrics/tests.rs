//! Tests of the metric families.

use super::*;

#[test]
fn names_and_units_follow_the_conventions() {
    let metrics = Metrics::new();
    metrics.delivery("Parked");
    metrics.attempt(RequestClass::NotSent);
    metrics.attempt(RequestClass::Success);
    metrics.attempt(RequestClass::Success);
    metrics.request_time(Duration::from_millis(20));
    metrics.first_attempt(Duration::from_secs(3));
    metrics.lanes(LaneState::InFlight, 7);
    metrics.pending(9);
    metrics.workers(Worker::Busy, 3);
    metrics.overdue(4);
    metrics.lease_held("relaybook-dispatch", true);
    metrics.lease_held("relaybook-pipeline", false);
    metrics.lease_epoch("relaybook-dispatch", 7);
    metrics.api_write(ApiWrite::DeliveryCreate, WriteResult::Conflict);
    metrics.api_write_paced(ApiWrite::PipelineStatus);
    metrics.clone().watch_error(Watch::Secrets);
    metrics.cluster(None, Some(Cluster::Unknown));
    metrics.cluster(Some(Cluster::Unknown), Some(Cluster::Reachable));
    metrics.caches(2, 9);
    metrics.changes_dropped(3);
    metrics.observation_lag(Duration::from_millis(7));
    metrics.promotions("Requested", 2);
    metrics.spans(SpanResult::Exported, 512);
    metrics.hook(Hook::Approval, HookResult::Unauthorized);
    metrics.forge_request(RequestClass::TooLarge);
    metrics.token_request(TokenResult::Refused);
    metrics.look_up(LookUpResult::Late);
    let text = metrics.encode().unwrap();
    for line in [
        concat!("relaybook_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        "relaybook_deliveries_total{outcome=\"Parked\"} 1",
        "relaybook_deliveries_total{outcome=\"Delivered\"} 0",
        "relaybook_attempts_total{class=\"2xx\"} 2",
        "relaybook_attempts_total{class=\"not_sent\"} 1",
        "# UNIT relaybook_request_duration_seconds seconds",
        "relaybook_request_duration_seconds_bucket{le=\"0.01\"} 0",
        "relaybook_request_duration_seconds_bucket{le=\"0.025\"} 1",
        "relaybook_request_duration_seconds_count 1",
        "relaybook_change_to_first_attempt_seconds_sum 3.0",
        "relaybook_lanes{state=\"in_flight\"} 7",
        "relaybook_deliveries_pending 9",
        "relaybook_lanes{state=\"suspended\"} 0",
        "relaybook_workers{state=\"busy\"} 3",
        "relaybook_workers{state=\"idle\"} 0",
        "relaybook_deliveries_overdue 4",
        "relaybook_api_writes_total{kind=\"delivery_create\",result=\"conflict\"} 1",
        "relaybook_api_writes_total{kind=\"event\",result=\"ok\"} 0",
        "relaybook_api_writes_paced_total{kind=\"pipeline_status\"} 1",
        "relaybook_api_writes_paced_total{kind=\"delivery_create\"} 0",
        "relaybook_lease_held{lease=\"relaybook-dispatch\"} 1",
        "relaybook_lease_held{lease=\"relaybook-pipeline\"} 0",
        "relaybook_lease_epoch{lease=\"relaybook-dispatch\"} 7",
        "relaybook_lease_epoch{lease=\"relaybook-pipeline\"} 0",
        "relaybook_watch_errors_total{watch=\"secrets\"} 1",
        "relaybook_clusters{state=\"reachable\"} 1",
        "relaybook_clusters{state=\"unknown\"} 0",
        "relaybook_caches 2",
        "relaybook_changes_dropped_total 3",
        "relaybook_objects_cached 9",
        "relaybook_promotions{phase=\"Requested\"} 2",
        "relaybook_promotions{phase=\"Withdrawn\"} 0",
        "relaybook_spans_total{result=\"exported\"} 512",
        "relaybook_spans_total{result=\"dropped\"} 0",
        "relaybook_hooks_total{kind=\"approval\",result=\"unauthorized\"} 1",
        "relaybook_hooks_total{kind=\"look\",result=\"limited\"} 0",
        "relaybook_forge_requests_total{class=\"too_large\"} 1",
        "relaybook_forge_requests_total{class=\"2xx\"} 0",
        "relaybook_token_requests_total{result=\"refused\"} 1",
        "relaybook_token_requests_total{result=\"issued\"} 0",
        "relaybook_look_ups_total{result=\"late\"} 1",
        "relaybook_look_ups_total{result=\"cached\"} 0",
        "relaybook_observation_lag_seconds_bucket{le=\"0.01\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn notification_series_are_replaced_each_time_and_bounded() {
    let metrics = Metrics::new();
    let share = |n: usize| Share { namespace: "team-a".into(), notification: format!("n{n}"), pending: 2, parked: 1 };
    let series = || {
        let text = metrics.encode().unwrap();
        assert!(text.contains("# TYPE relaybook_notification_deliveries gauge\n"), "the family exists even without series");
        text.lines()
            .filter(|line| line.starts_with("relaybook_notification_deliveries{"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(series(), [""; 0]);
    metrics.by_notification((0..500).map(share).collect());
    assert_eq!(series().len(), 200, "two for each of a hundred");
    metrics.by_notification(vec![share(7)]);
    let labels = "pipeline_namespace=\"team-a\",notification=\"n7\"";
    let line = |state, n| format!("relaybook_notification_deliveries{{{labels},state=\"{state}\"}} {n}");
    assert_eq!(series(), [line("pending", 2), line("parked", 1)]);
    metrics.by_notification(Vec::new());
    assert_eq!(series(), [""; 0]);
}
