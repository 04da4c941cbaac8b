//! Property tests: arbitrary JSON for every kind.

use proptest::prelude::*;

use super::testing::*;
use super::*;
use relaybook_api::values::configuration::differ;

/// Values that the rules look for.
const WORDS: &[&str] = &[
    "True",
    "False",
    "Unknown",
    "Ready",
    "Stalled",
    "Reconciling",
    "Progressing",
    "Available",
    "Complete",
    "deployed",
    "ProgressDeadlineExceeded",
    "ArtifactFailed",
    "OnDelete",
    "web:1",
    "sha256:ab",
    "RollbackSucceeded",
    "Healthy",
    "OutOfSync",
    "Synced",
    "Running",
    "ErrApplied",
    "Degraded",
    "Accepted",
    "ScalingUp",
    "é@:/",
    "",
];

/// Fields that the rules read.
const KEYS: &[&str] = &[
    "conditions",
    "operation",
    "operationState",
    "sync",
    "syncResult",
    "health",
    "phase",
    "revision",
    "revisions",
    "id",
    "summary",
    "desiredReady",
    "ready",
    "modified",
    "errApplied",
    "nonReadyResources",
    "bundleState",
    "nonReadyStatus",
    "appliedDeploymentID",
    "latestReadyRevisionName",
    "type",
    "status",
    "reason",
    "message",
    "observedGeneration",
    "history",
    "chartVersion",
    "configDigest",
    "lastAttemptedConfigDigest",
    "lastAttemptedValuesChecksum",
    "observedPostRenderersDigest",
    "initContainers",
    "replicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "desiredNumberScheduled",
    "template",
    "spec",
    "containers",
    "image",
    "suspend",
    "paused",
    "updateStrategy",
    "rollingUpdate",
    "partition",
    "lastAppliedRevision",
    "lastAttemptedRevision",
    "progressDeadlineSeconds",
    "deploymentID",
    "stagedDeploymentID",
    "options",
    "stagedOptions",
    "helm",
    "version",
    "commit",
    "gitJobStatus",
    "partitions",
    "unavailable",
    "correctDrift",
    "enabled",
    "offSchedule",
    "parents",
    "state",
    "sourceHydrator",
    "hydratedSHA",
];

/// Arbitrary JSON that often contains the values and fields of the rules.
fn anything() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(WORDS);
    let key = prop::sample::select(KEYS);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop_oneof![-3..5_i64, any::<i64>()].prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.prop_map(Value::from),
        "\\PC{0,2000}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..8)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// Fields with the right names and mostly the right types, so that the tests reach all branches of the rules.
fn plausible() -> impl Strategy<Value = (Value, Value)> {
    let small = || -1..4_i64;
    let texts =
        || prop::sample::select(vec!["True", "False", "Unknown", "Progressing", "BuildFailed", "NewReplicaSetAvailable"]);
    let condition = (
        prop::sample::select(vec![
            "Ready",
            "Stalled",
            "Reconciling",
            "Progressing",
            "Available",
            "Failed",
            "Complete",
            "Deployed",
        ]),
        texts(),
        texts(),
        prop::option::of(small()),
    )
        .prop_map(|(t, s, r, g)| json!({"type": t, "status": s, "reason": r, "message": "m", "observedGeneration": g}));
    let counts = prop::collection::vec(small(), 8);
    (counts, prop::collection::vec(condition, 0..4), anything()).prop_map(|(n, conditions, rest)| {
        let spec = json!({"replicas": n[0], "template": rest,
            "updateStrategy": {"rollingUpdate": {"partition": if n[1] < 0 { i64::MIN } else { n[1] }}}});
        let status = json!({"observedGeneration": n[2], "replicas": n[3], "updatedReplicas": n[4], "readyReplicas": n[5],
            "availableReplicas": n[6], "desiredNumberScheduled": n[7], "conditions": conditions, "history": rest,
            "ready": n[1] > 0, "summary": {"desiredReady": n[0], "ready": n[1], "modified": n[2], "errApplied": n[3]},
            "health": {"status": if n[4] > 0 { "Healthy" } else { "Degraded" }}, "sync": {"status": "OutOfSync", "revision": "a"},
            "operationState": {"phase": if n[5] > 0 { "Running" } else { "Succeeded" }, "syncResult": {"revision": "b"}}});
        (spec, status)
    })
}

/// Arbitrary text as a path, mostly composed of parts of real paths.
fn path() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "$",
        ".",
        "..",
        "spec",
        "status",
        "metadata",
        "conditions",
        "[*]",
        "[0]",
        "[",
        "]",
        "[?(",
        ")]",
        "(",
        ")",
        "?",
        "@",
        "*",
        ",",
        "==",
        "!",
        "&&",
        "||",
        "'a'",
        "\"",
        "'",
        "\\",
        "{",
        "}",
        " ",
        "é",
        ":",
        "-1",
        "replicas",
    ]);
    prop_oneof![prop::collection::vec(piece, 0..40).prop_map(|all| all.concat()), "\\PC{0,80}"]
}

/// Valid paths, to any field.
fn good_path() -> impl Strategy<Value = RevisionPath> {
    let field = prop::sample::select(vec!["spec", "status", "metadata", "operation"]);
    let step = prop::sample::select(vec![
        ".*",
        "[0]",
        ".conditions",
        ".template",
        ".replicas",
        "[?(@.type)]",
        "[?(@.* == 1)]",
        "[-1]",
    ]);
    (field, prop::collection::vec(step, 0..6))
        .prop_filter_map("no path", |(field, steps)| RevisionPath::parse(&format!(".{field}{}", steps.concat())).ok())
}

/// A Bundle with these labels and any status.
fn any_bundle() -> impl Strategy<Value = DynamicObject> {
    let revision = || prop::sample::select(vec!["c1", "c2", ""]);
    let status = prop_oneof![
        anything(),
        (0..3_i64, 0..2_i64, 0..2_i64, revision()).prop_map(|(observed, ready, unavailable, sum)| {
            json!({"observedGeneration": observed, "summary": {"desiredReady": 1, "ready": ready}, "unavailable": unavailable,
                "unavailablePartitions": unavailable, "resourcesSha256Sum": sum})
        })
    ];
    (status, revision(), revision(), "[ab]").prop_map(|(status, commit, version, name)| {
        let mut bundle = object(BUNDLE, &json!({"helm": {"version": version}}), &status);
        let labels = [("commit", commit), ("repo-name", "web"), ("fleet-helm-name", "web")];
        let labels = labels.map(|(label, value)| (format!("fleet.cattle.io/{label}"), value.to_owned()));
        (bundle.metadata.name, bundle.metadata.labels) = (Some(name), Some(labels.into()));
        bundle
    })
}

proptest! {
    /// For any parent and its Bundles: if the result is `Current`, the parent runs the attempted revision, and so does each Bundle.
    #[test]
    fn a_parent_is_current_only_if_each_of_its_parts_is(
        kind in prop::sample::select(vec![GIT_REPO, HELM_OP, BUNDLE_DEPLOYMENT]),
        (spec, status) in prop_oneof![
            (anything(), anything()),
            (Just(json!({"deploymentID": "s", "stagedDeploymentID": "s"})), prop::sample::select(vec!["c1", "c2", ""])).prop_map(
                |(spec, at)| {
                    let status = json!({"commit": at, "version": at, "gitJobStatus": "Current", "appliedDeploymentID": "s", "ready": true});
                    (spec, status)
                }
            ),
        ],
        label in prop::sample::select(vec!["c1", "c2", ""]),
        bundles in prop::collection::vec(prop::option::weighted(0.9, any_bundle()), 0..4),
    ) {
        let mut parent = object(kind, &spec, &status);
        parent.metadata.labels = Some([("fleet.cattle.io/commit".to_owned(), label.to_owned())].into());
        let Some(relation) = see(Some(&parent), None, None).relation else {
            prop_assert!(kind == BUNDLE_DEPLOYMENT && label.is_empty());
            return Ok(());
        };
        let Relation::Parent(mut parent) = relation else { panic!("a part") };
        let read: Vec<Option<ReadObject>> = bundles.iter().map(|bundle| bundle.as_ref().map(|b| see(Some(b), None, None))).collect();
        let member = |read: &'_ Option<ReadObject>| {
            read.as_ref().and_then(|seen| Some((seen.observation.clone(), seen.relation.as_ref()?.as_part()?.clone())))
        };
        let read: Vec<_> = read.iter().map(member).collect();
        let members: Vec<_> = read.iter().map(|read| Member { name: "b", read: read.as_ref().map(|(o, p)| (o, p)) }).collect();
        let said = combine(&mut parent, &members);
        prop_assert!(matches!(said.status, Current | InProgress | Failed));
        prop_assert!(said.message.len() <= MAX_MESSAGE && said.reason.len() <= MAX_REASON);
        prop_assert_eq!(combine(&mut parent, &members), said.clone(), "the same objects say the same");
        if said.status == Current {
            prop_assert!(said.message.is_empty() && said.reason.is_empty());
            prop_assert_eq!(&said.revision, &said.attempted_revision);
            let fits = |(o, _): &(Observation, Part)| o.status == Current && (o.attempted_revision == said.revision || said.revision.is_empty());
            let fits = |read: &Option<(Observation, Part)>| read.as_ref().is_some_and(fits);
            let agree = if kind == BUNDLE_DEPLOYMENT {
                read.iter().flatten().any(|(o, _)| o.attempted_revision == said.revision)
            } else {
                read.iter().all(fits)
            };
            prop_assert!(agree, "{:?} with {:?}", said, read);
        }
    }

    /// No path causes a panic. Parsing a path again gives the same result.
    #[test]
    fn any_path_is_parsed_or_refused_without_a_panic(text in path()) {
        if let Ok(path) = RevisionPath::parse(&text) {
            // A dot can be part of a name.
            let quoted = text.contains(['\'', '"', '\\']);
            prop_assert!(text.len() <= 256 && (quoted || !text.contains("..")));
            prop_assert_eq!(RevisionPath::parse(&text).ok(), Some(path));
        }
    }

    /// No object causes a panic or an invalid observation.
    #[test]
    fn any_object_has_a_valid_observation(
        kind in prop::sample::select(ALL.to_vec()),
        (spec, status) in prop_oneof![(anything(), anything()), plausible()],
        whole in prop::option::weighted(0.1, anything()),
        generation in prop::option::of(prop_oneof![-1..3_i64, any::<i64>()]),
        operation in prop::option::of(anything()),
        path in prop::option::of(good_path()),
    ) {
        let mut object = object(kind, &spec, &status);
        object.metadata.generation = generation;
        if let Some(operation) = operation {
            object.data["operation"] = operation;
        }
        if let Some(data) = whole {
            object.data = data;
        }
        let seen = observe(Some(&object), path.as_ref());
        prop_assert!(matches!(seen.status, Current | InProgress | Failed));
        prop_assert!(seen.message.len() <= MAX_MESSAGE && seen.reason.len() <= MAX_REASON);
        prop_assert!(seen.revision.len() <= 256 && seen.attempted_revision.len() <= 256);
        prop_assert!(seen.configuration.len() <= 256 && seen.attempted_configuration.len() <= 256);
        if seen.status == Current {
            let counts = [DEPLOYMENT, STATEFUL_SET, DAEMON_SET].contains(&kind);
            prop_assert!(seen.reason.is_empty() && seen.message.is_empty() != counts, "{}", seen.message);
            prop_assert_eq!(&seen.revision, &seen.attempted_revision, "what is Current runs what was tried");
            prop_assert!(!differ(&seen.configuration, &seen.attempted_configuration), "{seen:?}");
        }
        prop_assert_eq!(observe(Some(&object), path.as_ref()), seen, "the same object says the same");
    }

    /// The number of pods can change the status of a workload, but never its attempted revision.
    #[test]
    fn scaling_is_no_new_revision(
        kind in prop::sample::select(vec![DEPLOYMENT, STATEFUL_SET, DAEMON_SET]),
        replicas in 0..9_i64,
        (_, status) in plausible(),
    ) {
        let spec = workload(json!({"replicas": replicas}));
        prop_assert_eq!(read(kind, spec, status).attempted_revision, "2,sha256:ab");
    }
}
