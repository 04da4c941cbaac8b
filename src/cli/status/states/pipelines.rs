//! Recorded states of pipelines, their parts, promotions and sets.

use serde_json::json;

use super::*;

pub(super) fn of_pipelines() -> Vec<Case> {
    let target = json!({"clusterAppRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "y"},
                        "status": "Failed", "ready": false, "message": "ImagePullBackOff"});
    vec![
        ("a new Pipeline", State::default().pipeline("web", &Value::Null).created(NOW - 60), &[]),
        (
            "a Pipeline without a status",
            piped(&Value::Null),
            &["Problem web NotProcessed: no controller has processed it since 28m | `relaybook check` shows"],
        ),
        ("a Pipeline that is well", piped(&conditions(&["Ready True Observed: 2 of 2 targets found"])), &[]),
        ("an application that has failed", prod(&json!({"targets": [target]})), &[]),
        (
            "a kind is not known",
            piped(&conditions(&["Ready False KindNotFound: the cluster has no Deploy"])),
            &["Problem web KindNotFound: the cluster has no Deploy | install the CRD of the kind"],
        ),
        (
            "an object is missing",
            piped(&conditions(&["Ready False TargetNotFound: target prod/in-cluster/y: Deployment web does not exist"])),
            &["Problem web TargetNotFound: target prod/in-cluster/y | create the object, or correct the reference"],
        ),
        (
            "two targets have the same name",
            piped(&conditions(&["Ready False DuplicateTarget: two targets have the name"])),
            &["Problem web DuplicateTarget: two targets have the name | give one of the two objects another name"],
        ),
        (
            "a target is elsewhere",
            piped(&conditions(&["Ready False CrossNamespaceTarget: --no-cross-namespace-refs forbids this"])),
            &["Problem web CrossNamespaceTarget: --no-cross | the flags of the controller forbid it"],
        ),
        (
            "too many targets",
            piped(&conditions(&["Ready False TooManyTargets: the maximum is 256"])),
            &["Problem web TooManyTargets: the maximum is | see the limit in the message"],
        ),
        (
            "an observed kind is forbidden",
            piped(&conditions(&["Ready False Forbidden: not allowed to list Deployments"])),
            &["Problem web Forbidden: not allowed to list | grant the permission"],
        ),
    ]
}

pub(super) fn of_parts_of_pipelines() -> Vec<Case> {
    vec![
        (
            "hooks have no key",
            piped(&conditions(&["HooksReady False KeyMissing: Secret team-a/hook has no key"])),
            &["Problem web KeyMissing: hooks refuse every request: Secret team-a/hook | correct the value of the key"],
        ),
        (
            "a cluster is offline",
            piped(&offline()),
            &["Problem eu ClusterUnreachable: cluster eu does not answer: 1 pipeline has | check the cluster"],
        ),
        (
            "a cluster of two Pipelines is offline",
            piped(&offline()).pipeline("api", &offline()),
            &["Problem eu ClusterUnreachable: cluster eu does not answer: 2 pipelines have | check the cluster"],
        ),
        (
            "a Pipeline without its Notification",
            unsent(&json!({}), "SecretMissing"),
            &["Problem web/chat SecretMissing: notification chat cannot be sent: because | create the Secret"],
        ),
        (
            "an environment without its Notification",
            unsent(&json!({"environment": "prod"}), "Incomplete"),
            &["Problem web/prod/chat Incomplete: notification chat cannot be sent: because | correct the field"],
        ),
        (
            "a target without its Notification",
            unsent(&json!({"environment": "prod", "target": "prod/in-cluster/y"}), "RepositoryMissing"),
            &["Problem web/prod/in-cluster/y/chat RepositoryMissing: notification chat cannot be sent | set the parameter"],
        ),
        (
            "the Notification says the same",
            unsent(&json!({}), "SecretMissing").notification("chat", &conditions(&["Ready False SecretMissing: no Secret"])),
            &["Problem chat SecretMissing: cannot be sent: no Secret | create the Secret"],
        ),
    ]
}

pub(super) fn of_promotions_and_sets() -> Vec<Case> {
    let waits = json!({"promotion": "web-prod-2", "promotionUid": "u", "revision": "2", "since": at(1_000)});
    vec![
        (
            "a promotion waits for an approval",
            prod(&json!({"waitingApproval": waits})),
            &["Warning web/prod WaitingApproval: the promotion of 2 to prod waits | `relaybook approve web prod"],
        ),
        (
            "a promotion has failed",
            promotion("Failed"),
            &["Problem web/prod Because: the promotion of 2 to prod failed | `kubectl describe promo web-prod-2"],
        ),
        (
            "a pull request was closed",
            promotion("Closed"),
            &["Warning web/prod Because: the promotion of 2 to prod ended, because | `kubectl describe promo"],
        ),
        ("a promotion is open", promotion("Open"), &[]),
        (
            "a set without a status",
            State::default().set(&Value::Null),
            &["Problem apps NotProcessed: no controller has processed it since 28m | `relaybook check` shows"],
        ),
        (
            "a set with an invalid generator",
            State::default().set(&conditions(&["Ready False InvalidGenerator: generators[0]"])),
            &["Problem apps InvalidGenerator: generators[0] | correct the field"],
        ),
        ("a set that is well", State::default().set(&conditions(&["Ready True Made: 2 pipelines"])), &[]),
        (
            "several problems, the worst first",
            piped(&conditions(&["Ready False KindNotFound: no such kind"]))
                .notification("audit", &conditions(&["Ready True NoPipeline: it selects no Pipeline"]))
                .notification("chat", &conditions(&["Ready False SecretMissing: no Secret"])),
            &[
                "Problem chat SecretMissing: cannot be sent: no Secret | create the Secret",
                "Problem web KindNotFound: no such kind | install the CRD",
                "Warning audit NoPipeline: it selects | correct `pipelineSelector`",
            ],
        ),
    ]
}
