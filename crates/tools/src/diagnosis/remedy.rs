//! What a person can do about a reason. Pure: a table.

/// The reason of a cluster that does not answer.
pub(super) const CLUSTER_UNREACHABLE: &str = "ClusterUnreachable";

/// The object whose reason it is.
pub(super) struct Place<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

/// Returns what a person can do about a reason, for an object.
pub(super) fn of(reason: &str, place: &Place<'_>) -> String {
    let known = REMEDIES.iter().find(|(reasons, _)| reasons.contains(&reason));
    let text =
        known.map_or("the message has the cause; `docs/troubleshooting.md` explains the reason", |(_, remedy)| remedy);
    text.replace("NAMESPACE", place.namespace).replace("NAME", place.name)
}

const RENDER: &str = "check the template with `relaybook render NAME -n NAMESPACE`, then run `relaybook redeliver --parked \
    --notification NAME -n NAMESPACE`";
const SECRET: &str = "create the Secret or its key; Relaybook detects it";
const PERMISSION: &str = "grant the permission that the message names; `relaybook check` lists all of them";
const RECEIVER: &str = "check the receiver; Relaybook tries again until `retry.maxAge`, and sends in order";
const SPEC: &str = "correct the field that the message names; `relaybook lint` finds it before you apply";
const ITSELF: &str = "wait: it ends by itself";

/// Reasons, and what to do about them. `NAME` and `NAMESPACE` are those of the object.
const REMEDIES: [(&[&str], &str); 36] = [
    (&["SecretMissing", "KubeconfigMissing"], SECRET),
    (
        &["SecretInvalid", "KubeconfigInvalid", "KeyMissing", "KeyInvalid"],
        "correct the value of the key in the Secret; Relaybook detects it",
    ),
    (&["SecretTypeInvalid"], "delete the Secret, and create it again with the type that the message names"),
    (&["SecretReserved"], "refer to another Secret; this type is only for the keys of hooks"),
    (&["SecretUnreadable", "ConfigMapUnreadable", "Forbidden"], PERMISSION),
    (&["SecretUnknown", "ConfigMapUnknown", "Initializing", "CacheNotSynced", "TemplatesCompiling", "NotReady"], ITSELF),
    (
        &["TokenRefused"],
        "compare the Secret and the token URL with the server that issues tokens; the message has its answer",
    ),
    (&["InstallationNotFound"], "install the GitHub App for the repository that the message names"),
    (&["PermissionMissing"], "give the GitHub App access to the repository, and the permissions of the template's page"),
    (&["CredentialsRejected", "Unauthorized"], "put valid credentials into the Secret; what waits is sent afterwards"),
    (&["ReceiverError", "Timeout", "ConnectionFailed", "DnsFailed"], RECEIVER),
    (&["Unreachable", CLUSTER_UNREACHABLE], "check the cluster and its kubeconfig Secret; Relaybook tries again"),
    (&["TlsFailed"], "check the certificate of the receiver, and `endpoint.tls`"),
    (
        &["ReceiverNotFound", "Redirected"],
        "correct the URL of the endpoint, then run `relaybook redeliver --parked --notification NAME -n NAMESPACE`",
    ),
    (&["ReceiverGone"], "change `endpoint`, or delete the Notification"),
    (&["ReceiverRejects", "ReceiverRejected", "TemplateFailed", "ExpressionFailed", "DeliveryParked"], RENDER),
    (
        &[
            "TemplateInvalid",
            "InvalidSpec",
            "InvalidExpression",
            "Incomplete",
            "InvalidRequest",
            "Invalid",
            "InvalidName",
            "TemplateTooLarge",
        ],
        SPEC,
    ),
    (
        &[
            "InvalidGenerator",
            "InvalidSelector",
            "InvalidSelection",
            "InvalidPath",
            "InvalidCluster",
            "InvalidRevisionPath",
            "InvalidRecord",
            "TooManyRevisionPaths",
        ],
        SPEC,
    ),
    (&["InvalidKind", "ForbiddenKind", "KindNotFound"], "install the CRD of the kind, or correct `kind` and `apiVersion`"),
    (
        &["DestinationForbidden", "InsecureScheme"],
        "use an `https` address that the egress policy allows, or allow this one in the chart",
    ),
    (&["ConfigMapMissing"], "create the ConfigMap or its key; Relaybook detects it"),
    (&["GlobalConfigInvalid"], "correct the ConfigMap of the global configuration; the message has line and field"),
    (&["ParameterNotShared", "RepositoryMissing"], "set the parameter that the message names in this namespace"),
    (
        &["AnswerUnreadable"],
        "compare the answer in the Delivery with `endpoint.success`, or with the path that the message is about; try it with `relaybook render NAME -n NAMESPACE --answer FILE`",
    ),
    (&["CredentialOriginMismatch"], "set `auth` in the layer that sets the URL"),
    (&["CommitMissing"], "follow an object whose revision is a commit, or set `appRef.revisionPath`"),
    (&["Suspended"], "`relaybook resume notification/NAME -n NAMESPACE`"),
    (
        &["RecordRefused"],
        "check quotas, admission policies and permissions for `deliveries` in the namespace; do not restart Relaybook before",
    ),
    (&["TooManyClocks"], "use a shorter `for`, or fewer triggers with `for`"),
    (&["NoPipeline"], "correct `pipelineSelector` or the labels; `kubectl get rbp -n NAMESPACE --show-labels` shows them"),
    (&["NoMatch"], "correct the field that the message names, or remove the trigger"),
    (&["TargetsNotReady"], "`relaybook explain PIPELINE NAME -n NAMESPACE` shows the layer with the problem"),
    (
        &["TargetNotFound", "ClusterNotFound", "ClusterGroupNotFound"],
        "create the object, or correct the reference in the Pipeline; the message has its name",
    ),
    (
        &["TooManyTargets", "TooManySources", "TooManyObjects", "Unreadable", "PathNotReadable"],
        "see the limit in the message; select less, or divide the object",
    ),
    (
        &["DuplicateTarget", "DuplicateName", "AmbiguousCluster", "NameTaken"],
        "give one of the two objects another name; the message has both",
    ),
    (
        &[
            "NamespaceNotWatched",
            "CrossNamespaceTarget",
            "CrossNamespaceLayer",
            "CrossNamespaceCluster",
            "CrossNamespaceSource",
        ],
        "the flags of the controller forbid it: use the own namespace, or change the values of the chart",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The reasons of states in which nothing is to be done, or that are not conditions.
    const FINE: [&str; 13] = [
        "Observed",
        "Configured",
        "Made",
        "PipelineGone",
        "TargetGone",
        "NotificationGone",
        "NewerPending",
        "LaneFull",
        "NewerDelivered",
        "PullRequestMissing",
        "TestInterrupted",
        "NothingSelected",
        "InvalidTarget",
    ];

    /// Returns the reasons in the first column of the tables of the page.
    fn documented() -> BTreeSet<String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/troubleshooting.md");
        let text = std::fs::read_to_string(path).unwrap();
        let reasons = text.split_once("\n## Reasons\n").unwrap().1;
        let rows = reasons.lines().filter_map(|line| line.strip_prefix("| `"));
        let cells = rows.map(|row| row.split(" | ").next().unwrap());
        cells.flat_map(|cell| cell.split(['`', ',', ' ']).filter(|word| !word.is_empty()).map(str::to_owned)).collect()
    }

    #[test]
    fn each_reason_of_the_documentation_has_a_remedy() {
        let all = documented();
        assert!(all.len() > 60, "{all:?}");
        let known = |reason: &str| REMEDIES.iter().any(|(reasons, _)| reasons.contains(&reason));
        let missing: Vec<_> = all.iter().filter(|reason| !known(reason) && !FINE.contains(&reason.as_str())).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn a_reason_has_one_remedy_for_the_object() {
        let mut seen = BTreeSet::new();
        for reason in REMEDIES.iter().flat_map(|(reasons, _)| *reasons) {
            assert!(seen.insert(reason), "{reason} is listed twice");
        }
        let place = Place { namespace: "team-a", name: "chat" };
        assert_eq!(of("Suspended", &place), "`relaybook resume notification/chat -n team-a`");
        assert!(of("New", &place).contains("docs/troubleshooting.md"));
    }
}
