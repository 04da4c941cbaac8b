//! Recorded states, and what is wrong in each of them. `relaybook status` and the audit page show the same findings, in the same words.

use serde_json::{Value, json};

use super::screen::{Screen, write_table};
use relaybook_api::pipeline_set::PipelineSet;
use relaybook_api::{Delivery, Notification, Pipeline, Time};
use relaybook_tools::audit::Row;
use relaybook_tools::diagnosis::{Finding, Installation, Known, Level, diagnose};

/// When the state is read: 12 minutes after the conditions changed, and 28 minutes after the objects were created.
const NOW: i64 = 1_720;

/// A state of a namespace.
#[derive(Default)]
struct State {
    installation: Installation,
    pipelines: Vec<Pipeline>,
    sets: Vec<PipelineSet>,
    notifications: Vec<Notification>,
    pending: Vec<Row>,
}

/// A name, a state, and its findings: `LEVEL NAME REASON: MESSAGE | REMEDY`. Message and remedy are only the first words.
type Case = (&'static str, State, &'static [&'static str]);

fn at(second: i64) -> Time {
    Time::from_second(second).unwrap()
}

fn object(kind: &str, name: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "relaybook.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "team-a", "creationTimestamp": at(0)}, "spec": spec, "status": status,
    })
}

/// Returns a condition from words: `TYPE STATUS REASON: MESSAGE`.
fn condition(text: &str) -> Value {
    let (head, message) = text.split_once(": ").unwrap();
    let [type_, status, reason] = head.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
    json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": at(1_000)})
}

fn conditions(all: &[&str]) -> Value {
    json!({"conditions": all.iter().map(|text| condition(text)).collect::<Vec<_>>()})
}

/// Returns a state in which the installation is not well.
fn installed(edit: impl FnOnce(&mut Installation)) -> State {
    let mut state = State::default();
    state.installation.namespace = "relaybook-system".to_owned();
    edit(&mut state.installation);
    state
}

/// Returns a state with a Notification that has these conditions.
fn notified(all: &[&str]) -> State {
    State::default().notification("chat", &conditions(all))
}

/// Returns a state with a Notification with this number of waiting messages.
fn waiting(pending: i64, text: &str) -> State {
    State::default().notification("chat", &json!({"pending": pending, "conditions": [condition(text)]}))
}

/// Returns a state with a Pipeline that has this status.
fn piped(status: &Value) -> State {
    State::default().pipeline("web", status)
}

/// Returns a state with a Pipeline in which nothing can be sent about a part.
fn unsent(part: &Value, reason: &str) -> State {
    let mut one = json!({"name": "chat", "ready": false, "reason": reason, "message": "because"});
    json_patch::merge(&mut one, part);
    piped(&json!({"dispatched": {"notifications": [one]}}))
}

/// Returns a state with a Pipeline with this status of the environment `prod`.
fn prod(status: &Value) -> State {
    let mut prod = json!({"name": "prod"});
    json_patch::merge(&mut prod, status);
    piped(&json!({"environments": [prod]}))
}

/// Returns a state in which a promotion is in this phase.
fn promotion(phase: &str) -> State {
    prod(&json!({"promotion": {"name": "web-prod-2", "revision": "2", "phase": phase, "reason": "Because"}}))
}

fn offline() -> Value {
    json!({"clusters": [{"clusterRef": {"kind": "Secret", "name": "eu"}, "reachable": false}]})
}

impl State {
    fn notification(mut self, name: &str, status: &Value) -> Self {
        self.notifications.push(serde_json::from_value(object("Notification", name, &json!({}), status)).unwrap());
        self
    }

    fn pipeline(mut self, name: &str, status: &Value) -> Self {
        let environment = |name: &str| json!({"name": name, "targets": [{"namespace": name}]});
        let environments = [environment("dev"), environment("prod")];
        let app = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let spec = json!({"appRef": app, "environments": environments});
        self.pipelines.push(serde_json::from_value(object("Pipeline", name, &spec, status)).unwrap());
        self
    }

    fn set(mut self, status: &Value) -> Self {
        let spec = json!({"generators": [], "template": {"metadata": {"name": "web"}, "spec": {}}});
        self.sets.push(serde_json::from_value(object("PipelineSet", "apps", &spec, status)).unwrap());
        self
    }

    /// Adds a pending delivery of a notification. An empty reason: it has not been tried yet.
    fn delivery(mut self, notification: &str, recorded: i64, reason: &str) -> Self {
        let row = Row::from(Delivery::new("d", relaybook_api::testing::spec(1)));
        self.pending.push(Row {
            namespace: "team-a".to_owned(),
            notification: notification.to_owned(),
            recorded: Some(at(recorded)),
            reason: Some(reason.to_owned()).filter(|reason| !reason.is_empty()),
            ..row
        });
        self
    }

    /// Changes the creation time of all objects.
    fn created(mut self, second: i64) -> Self {
        let metadata = self.notifications.iter_mut().map(|one| &mut one.metadata);
        let metadata = metadata.chain(self.pipelines.iter_mut().map(|one| &mut one.metadata));
        for metadata in metadata.chain(self.sets.iter_mut().map(|one| &mut one.metadata)) {
            metadata.creation_timestamp.as_mut().unwrap().0 = at(second);
        }
        self
    }

    fn findings(&self) -> Vec<Finding> {
        let State { installation, pipelines, sets, notifications, pending } = self;
        let installations = std::slice::from_ref(installation);
        diagnose(&Known { installations, pipelines, sets, notifications, pending }, at(NOW))
    }
}

fn of_the_installation() -> Vec<Case> {
    vec![
        ("nothing is there", State::default(), &[]),
        (
            "no controller watches the namespace",
            installed(|one| one.unwatched = Some("no known controller watches namespace team-a".to_owned())),
            &["Problem controllers NotWatched: no known controller watches | install Relaybook for this namespace"],
        ),
        (
            "no controller acts",
            installed(|one| one.idle = vec!["No controller acts: Lease relaybook-dispatch has no holder.".to_owned()]),
            &["Problem controllers NotActing: No controller acts | see the replicas, and then their logs"],
        ),
        (
            "two shards do not act",
            installed(|one| one.idle = ["Shard a does not act", "Shard b does not act"].map(str::to_owned).to_vec()),
            &[
                "Problem controllers NotActing: Shard a does | see the replicas",
                "Problem controllers NotActing: Shard b does | see the replicas",
            ],
        ),
        (
            "the CRDs are older",
            installed(|one| one.crds = Some("the installed CRDs are not those of version 2".to_owned())),
            &["Problem CRDs CrdsDiffer: Controllers of this version do not run: the | `relaybook crds | kubectl"],
        ),
        (
            "the global configuration is invalid",
            installed(|one| one.global = Some(("own/c".to_owned(), "line 3".to_owned()))),
            &["Problem global configuration GlobalConfigInvalid: The global | correct it: `kubectl edit configmap -n own"],
        ),
        (
            "the versions differ",
            installed(|one| one.versions = Some(("0.2.0".to_owned(), "0.1.0".to_owned()))),
            &["Warning versions VersionsDiffer: this program has version 0.2.0, and the controller | use the program of"],
        ),
        ("the versions are equal", installed(|one| one.versions = Some(("1.0.0".to_owned(), "1.0.0".to_owned()))), &[]),
        (
            "Notifications repeat what is wrong with the global configuration",
            State {
                installation: installed(|one| one.global = Some(("own/c".to_owned(), "line 3".to_owned()))).installation,
                ..notified(&["GlobalConfigValid False GlobalConfigInvalid: line 3"])
            },
            &["Problem global configuration GlobalConfigInvalid: The global | correct it"],
        ),
    ]
}

fn of_notifications() -> Vec<Case> {
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

fn of_messages() -> Vec<Case> {
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

fn of_notifications_without_an_object() -> Vec<Case> {
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

fn of_pipelines() -> Vec<Case> {
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

fn of_parts_of_pipelines() -> Vec<Case> {
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

fn of_promotions_and_sets() -> Vec<Case> {
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

fn cases() -> Vec<Case> {
    let all = [
        of_the_installation(),
        of_notifications(),
        of_messages(),
        of_notifications_without_an_object(),
        of_pipelines(),
        of_parts_of_pipelines(),
        of_promotions_and_sets(),
    ];
    all.into_iter().flatten().collect()
}

/// Whether a finding is the expected one.
fn is(finding: &Finding, expected: &str) -> bool {
    let (head, rest) = expected.split_once(": ").unwrap();
    let (message, remedy) = rest.split_once(" | ").unwrap();
    head == format!("{:?} {} {}", finding.level, finding.name, finding.reason)
        && finding.message.starts_with(message)
        && finding.remedy.starts_with(remedy)
}

#[test]
fn each_state_has_its_findings_with_their_remedies() {
    let cases = cases();
    assert!(cases.len() >= 40, "{} states", cases.len());
    for (name, state, expected) in cases {
        let findings = state.findings();
        let is_expected = findings.len() == expected.len() && findings.iter().zip(expected).all(|(one, text)| is(one, text));
        assert!(is_expected, "{name}: {findings:#?}");
    }
}

/// Returns level, message and remedy of each finding, as `relaybook status` shows them.
fn of_status(findings: &[Finding]) -> Vec<(Level, String, String)> {
    let screen = Screen {
        place: "team-a".to_owned(),
        all_namespaces: false,
        pipelines: 0,
        notifications: 0,
        findings: findings.to_vec(),
        environments: Vec::new(),
        targets: Vec::new(),
        not_shown: Vec::new(),
    };
    let mut out = Vec::new();
    write_table(&mut out, &screen, None, at(NOW)).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    let shown = lines.chunks(2).zip(findings).map(|(pair, finding)| {
        let (level, rest) = pair[0].split_once("  ").unwrap();
        let level = if level == "PROBLEM" { Level::Problem } else { Level::Warning };
        let message = rest.strip_prefix(&format!("{}: ", finding.name)).unwrap();
        (level, message.to_owned(), pair[1].strip_prefix("  do     ").unwrap().replace('`', ""))
    });
    shown.collect()
}

/// Returns message and remedy of each finding, as the page shows them.
fn of_page(findings: &[Finding]) -> Vec<(String, String)> {
    let html = relaybook_page::banners(findings).into_string();
    let text = |html: &str| {
        let plain = html.replace("<code>", "").replace("</code>", "");
        plain.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
    };
    let banners = html.split("<div class=\"banner\" role=\"alert\"><p>").skip(1);
    let shown = banners.map(|banner| {
        let (message, rest) = banner.split_once("</p><p>").unwrap();
        (text(message), text(rest.strip_suffix("</p></div>").unwrap()))
    });
    shown.collect()
}

#[test]
fn the_screen_and_the_page_show_the_same_findings_in_the_same_words() {
    for (name, state, _) in cases() {
        let findings = state.findings();
        let words = |one: &Finding| (one.level, one.message.clone(), one.remedy.replace('`', ""));
        let expected: Vec<_> = findings.iter().map(words).collect();
        let (screen, page) = (of_status(&findings), of_page(&findings));
        assert_eq!(screen, expected, "{name}");
        assert_eq!(page, screen.into_iter().map(|(_, message, remedy)| (message, remedy)).collect::<Vec<_>>(), "{name}");
    }
}
