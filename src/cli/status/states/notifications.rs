//! Recorded states of notifications and their messages.

use super::*;

pub(super) fn of_notifications() -> Vec<Case> {
    vec![
        ("a new Notification", State::default().notification("chat", &Value::Null).created(NOW - 60), &[]),
        (
            "a Notification without a status",
            State::default().notification("chat", &Value::Null),
            &["Problem chat NotProcessed: no controller has processed it since 28m | `relaybook check` shows"],
        ),
        (
            "a Notification that is well",
            notified(&["Ready True Configured: Configuration is valid", "Delivering True Delivering: no lane is blocked"]),
            &[],
        ),
        ("a Notification that begins", notified(&["Ready Unknown Initializing: waiting until the cursor is stored"]), &[]),
        (
            "a Secret is missing",
            notified(&["Ready False SecretMissing: Secret team-a/slack does not exist"]),
            &["Problem chat SecretMissing: cannot be sent: Secret team-a/slack does not exist | create the Secret"],
        ),
        (
            "a Secret is no URL",
            notified(&["Ready False SecretInvalid: Secret team-a/slack, key url: is not a URL"]),
            &["Problem chat SecretInvalid: cannot be sent: Secret team-a/slack, key url | correct the value of the key"],
        ),
        (
            "a Secret is reserved",
            notified(&["Ready False SecretReserved: it is for hooks"]),
            &["Problem chat SecretReserved: cannot be sent: it is for hooks | refer to another Secret"],
        ),
        (
            "a Secret may not be read",
            notified(&["Ready False SecretUnreadable: no permission"]),
            &["Problem chat SecretUnreadable: cannot be sent: no permission | grant the permission"],
        ),
        (
            "a template is invalid",
            notified(&["Ready False TemplateInvalid: line 2"]),
            &["Problem chat TemplateInvalid: cannot be sent: line 2 | correct the field"],
        ),
        (
            "a ConfigMap is missing",
            notified(&["Ready False ConfigMapMissing: ConfigMap team-a/texts does not exist"]),
            &["Problem chat ConfigMapMissing: cannot be sent: ConfigMap | create the ConfigMap"],
        ),
        (
            "a parameter is not shared",
            notified(&["Ready False ParameterNotShared: channel"]),
            &["Problem chat ParameterNotShared: cannot be sent: channel | set the parameter"],
        ),
        (
            "http is not allowed",
            notified(&["Ready False InsecureScheme: use https"]),
            &["Problem chat InsecureScheme: cannot be sent: use https | use an `https` address"],
        ),
        (
            "credentials of another origin",
            notified(&["Ready False CredentialOriginMismatch: another layer sets the URL"]),
            &["Problem chat CredentialOriginMismatch: cannot be sent: another | set `auth` in the layer"],
        ),
        (
            "a reason of a later version",
            notified(&["Ready False Later: because"]),
            &["Problem chat Later: cannot be sent: because | the message has the cause"],
        ),
    ]
}

pub(super) fn of_messages() -> Vec<Case> {
    vec![
        (
            "no Pipeline is selected",
            notified(&["Ready True NoPipeline: it selects no Pipeline", "Reachable False NoMatch: spec.pipelineSelector"]),
            &["Warning chat NoPipeline: it selects no Pipeline | correct `pipelineSelector`"],
        ),
        (
            "a trigger matches nothing",
            notified(&["Ready True Configured: valid", "Reachable False NoMatch: spec.triggers[0] matches nothing"]),
            &["Warning chat NoMatch: spec.triggers[0] matches nothing | correct the field that the message"],
        ),
        (
            "some targets are not ready",
            notified(&["Ready True TargetsNotReady: 1 of 2 targets"]),
            &["Warning chat TargetsNotReady: 1 of 2 targets | `relaybook explain PIPELINE chat -n team-a`"],
        ),
        (
            "the receiver fails",
            waiting(1, "Delivering False ReceiverError: 1 lane is blocked: 503"),
            &["Problem chat ReceiverError: 1 message waits since 12m: 1 lane is blocked: 503 | check the receiver"],
        ),
        (
            "the oldest message waits for longer",
            waiting(4, "Delivering False CredentialsRejected: 403").delivery("chat", 520, "CredentialsRejected"),
            &["Problem chat CredentialsRejected: 4 messages wait since 20m: 403 | put valid credentials"],
        ),
        (
            "the last message was parked",
            waiting(0, "Delivering False ReceiverRejects: 400 Bad Request"),
            &["Problem chat ReceiverRejects: 400 Bad Request | check the template with `relaybook render chat -n team-a`"],
        ),
        (
            "no record is possible",
            waiting(0, "Delivering False RecordRefused: exceeded quota"),
            &["Problem chat RecordRefused: exceeded quota | check quotas, admission policies"],
        ),
        (
            "a suspended Notification",
            waiting(2, "Delivering False Suspended: spec.suspend is true"),
            &["Warning chat Suspended: is suspended: 2 messages wait since 12m | `relaybook resume notification/chat"],
        ),
        (
            "a suspended Notification without messages",
            waiting(0, "Delivering False Suspended: spec.suspend is true"),
            &["Warning chat Suspended: is suspended | `relaybook resume"],
        ),
        (
            "a suspended Notification that cannot be sent",
            notified(&["Ready False SecretMissing: no Secret", "Delivering False Suspended: spec.suspend is true"]),
            &[
                "Problem chat SecretMissing: cannot be sent: no Secret | create the Secret",
                "Warning chat Suspended: is suspended | `relaybook resume",
            ],
        ),
        (
            "only the Notification knows the global configuration",
            notified(&["GlobalConfigValid False GlobalConfigInvalid: line 3"]),
            &["Problem chat GlobalConfigInvalid: the global configuration is invalid: line 3 | correct the ConfigMap"],
        ),
    ]
}

pub(super) fn of_notifications_without_an_object() -> Vec<Case> {
    vec![
        ("a message that was just recorded", State::default().delivery("audit", NOW - 30, ""), &[]),
        (
            "a message that is not tried",
            State::default().delivery("audit", 1_000, ""),
            &["Problem audit NotProcessed: 1 message waits since 12m: no controller has tried | `relaybook check` shows"],
        ),
        (
            "messages that wait for their receiver",
            State::default().delivery("audit", 1_000, "DnsFailed").delivery("audit", NOW - 5, ""),
            &["Problem audit DnsFailed: 2 messages wait since 12m: DnsFailed | check the receiver"],
        ),
        (
            "messages that are suspended",
            State::default().delivery("audit", NOW - 5, "Suspended"),
            &["Warning audit Suspended: 1 message waits since 5s: Suspended | `relaybook resume notification/audit"],
        ),
        (
            "a message of a Notification that is well",
            notified(&["Ready True Configured: valid"]).delivery("chat", 1_000, "Timeout"),
            &[],
        ),
    ]
}
