//! Tables of objects, or of objects that are read together, with their observations.
// The tables write their JSON in place.
#![allow(clippy::needless_pass_by_value)]

use kube_core::DynamicObject;

use super::super::super::testing::*;
use super::super::super::{EventOrigin, Member, Observation, ReadObject, Relation, RevisionPath, combine, see};

fn says(type_: &str, status: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "message": message})
}

/// An object with a name and labels.
fn labelled(kind: (&str, &str), name: &str, labels: Value, spec: Value, status: Value) -> DynamicObject {
    let mut object = object(kind, &spec, &status);
    object.metadata.name = Some(name.to_owned());
    object.metadata.namespace = Some("fleet-default".to_owned());
    object.metadata.labels = serde_json::from_value(labels).unwrap();
    object
}

/// Reads a parent with its parts. A part that is `None` cannot be read.
fn together_with(parent: &mut ReadObject, parts: &[Option<&DynamicObject>]) -> Observation {
    let Some(Relation::Parent(parent)) = &mut parent.relation else { panic!("it is read alone") };
    let read: Vec<Option<(String, ReadObject)>> = parts
        .iter()
        .map(|part| part.map(|part| (part.metadata.name.clone().unwrap(), see(Some(part), None, None))))
        .collect();
    let member = |read: &'static str| Member { name: read, read: None };
    let members: Vec<Member<'_>> = read
        .iter()
        .map(|read| match read {
            None => member("unreadable"),
            Some((name, seen)) => {
                let part = seen.relation.as_ref().and_then(Relation::as_part).expect("a part");
                assert!(part.families().contains(parent.family()), "{name} is of another family");
                Member { name, read: Some((&seen.observation, part)) }
            }
        })
        .collect();
    combine(parent, &members)
}

fn together(parent: &DynamicObject, parts: &[&DynamicObject]) -> Observation {
    let parts: Vec<_> = parts.iter().copied().map(Some).collect();
    together_with(&mut see(Some(parent), None, None), &parts)
}

#[test]
fn a_bundle_deployment_is_current_when_what_is_staged_was_applied() {
    let ready =
        || json!({"appliedDeploymentID": "s-1:o-1", "ready": true, "nonModified": true, "display": {"state": "Ready"}});
    let not_ready = |summary: Value| {
        json!({"appliedDeploymentID": "s-1:o-1", "nonModified": true, "nonReadyStatus": [{"kind": "Deployment", "summary": summary}],
            "conditions": [says("Ready", "False", "deployment.apps web/web [progressing]")]})
    };
    let refused = |words: &str| {
        with(&ready(), json!({"conditions": [says("Deployed", "False", words), says("Installed", "True", "")]}))
    };
    let broken = json!({"error": true, "message": ["deadline exceeded"]});
    let moving = json!({"error": true, "transitioning": true});
    let modified =
        || json!({"appliedDeploymentID": "s-1:o-1", "ready": true, "modifiedStatus": [{"kind": "Service", "patch": "{}"}]});
    let not_monitored = with(&ready(), json!({"conditions": [says("Monitored", "False", "no such kind")]}));
    let not_installed = || {
        let words = "not installed: chart requires kubeVersion: >=1.99";
        json!({"appliedDeploymentID": "s-1:o-1", "nonModified": true, "conditions": [says("Installed", "False", words),
            says("Deployed", "True", ""), says("Ready", "False", "not ready"), says("Monitored", "True", "")]})
    };
    let (one, two) = ("s-1:o-1", "s-2:o-2");
    for (name, wanted, staged, status, want, reason, drifted) in [
        ("ready", one, one, ready(), Current, "", false),
        ("never looked at", one, one, json!({}), InProgress, "NoStatus", false),
        ("never applied", one, one, json!({"display": {"state": "WaitApplied"}}), InProgress, "WaitApplied", false),
        ("waits to be applied", two, two, ready(), InProgress, "WaitApplied", false),
        ("waits for its turn", one, two, ready(), InProgress, "OutOfSync", false),
        ("waits for its turn, and is modified", one, two, modified(), InProgress, "OutOfSync", true),
        ("cannot be applied", two, two, refused("chart requires kubeVersion"), Failed, "ErrApplied", false),
        (
            "waits for a dependency",
            two,
            two,
            refused("dependent bundle(s) are not ready: [db]"),
            InProgress,
            "DependencyNotReady",
            false,
        ),
        ("an error of before", one, one, refused("chart requires kubeVersion"), Current, "", false),
        ("a resource is on its way", one, one, not_ready(moving), InProgress, "NotReady", false),
        ("a resource is broken", one, one, not_ready(broken.clone()), Failed, "NotReady", false),
        ("a resource is broken, and it waits", one, two, not_ready(broken), Failed, "NotReady", false),
        ("modified", one, one, modified(), Current, "", true),
        ("modified, and of a new spec", two, two, modified(), InProgress, "WaitApplied", false),
        ("modified and not ready", one, one, with(&modified(), json!({"ready": false})), InProgress, "NotReady", true),
        ("not monitored", one, one, not_monitored, InProgress, "NotMonitored", false),
        ("not installed", one, one, not_installed(), Failed, "NotInstalled", false),
        ("not installed, and of a new spec", two, two, not_installed(), InProgress, "WaitApplied", false),
        ("ready, with an error of before", one, one, with(&not_installed(), json!({"ready": true})), Current, "", false),
    ] {
        let in_step = status["appliedDeploymentID"] == json!(wanted) && wanted == staged && reason != "NotInstalled";
        let seen = read(BUNDLE_DEPLOYMENT, json!({"deploymentID": wanted, "stagedDeploymentID": staged}), status);
        let runs = if in_step { staged } else { "" };
        assert_eq!((summary(&seen), seen.drifted), ((want, runs, staged), drifted), "{name}");
        assert_eq!(seen.reason, reason, "{name}");
    }
    for (spec, suspended) in [
        (json!({"deploymentID": two, "stagedDeploymentID": "s-3:o-3", "paused": true}), true),
        (json!({"deploymentID": two, "stagedDeploymentID": "s-3:o-3", "offSchedule": true}), true),
        (json!({"deploymentID": two, "stagedDeploymentID": two, "offSchedule": true}), false),
    ] {
        assert_eq!(read(BUNDLE_DEPLOYMENT, spec.clone(), ready()).suspended, suspended, "{spec}");
    }
}

/// A `BundleDeployment` with this commit and these staged, wanted and applied IDs.
fn deployment(commit: &str, staged: &str, wanted: &str, applied: &str) -> DynamicObject {
    let labels = json!({"fleet.cattle.io/commit": commit, "fleet.cattle.io/bundle-name": "shop-web",
        "fleet.cattle.io/bundle-namespace": "fleet-default"});
    let helm = |version: &str| json!({"helm": {"version": version}});
    let spec = json!({"stagedDeploymentID": staged, "deploymentID": wanted, "options": helm("1.0.0"), "stagedOptions": helm("2.0.0")});
    let status = json!({"appliedDeploymentID": applied, "ready": true, "nonModified": true});
    labelled(BUNDLE_DEPLOYMENT, "shop-web", labels, spec, status)
}

/// Its Bundle, with this number of unavailable partitions. The maximum is 0.
fn bundle_at(commit: &str, observed: i64, unavailable: i64) -> DynamicObject {
    let labels = json!({"fleet.cattle.io/commit": commit, "fleet.cattle.io/repo-name": "shop"});
    let status = json!({"observedGeneration": observed, "unavailablePartitions": unavailable, "maxUnavailablePartitions": 0,
        "summary": {"desiredReady": 4, "ready": 4}});
    labelled(BUNDLE, "shop-web", labels, json!({}), status)
}

#[test]
fn a_bundle_deployment_runs_its_commit_when_the_bundle_has_staged_it() {
    let done = deployment("c2", "s-2", "s-2", "s-2");
    let says = |parts: &[&DynamicObject]| {
        let said = together(&done, parts);
        (said.status, said.reason.clone(), said.revision.clone(), said.attempted_revision)
    };
    let yes = (Current, String::new(), "c2".to_owned(), "c2".to_owned());
    let no = (InProgress, "NotStaged".to_owned(), String::new(), "c2".to_owned());
    for (name, parts, want) in [
        ("staged everywhere", vec![bundle_at("c2", 2, 0)], &yes),
        ("no Bundle", vec![], &no),
        ("the Bundle is of another commit", vec![bundle_at("c1", 2, 0)], &no),
        ("the Bundle was not looked at since", vec![bundle_at("c2", 1, 0)], &no),
        ("a partition holds up the others", vec![bundle_at("c2", 2, 1)], &no),
    ] {
        assert_eq!(says(&parts.iter().collect::<Vec<_>>()), *want, "{name}");
    }
    let confirmed = bundle_at("c2", 2, 0);
    let on_its_way = together(&deployment("c2", "s-2", "s-2", "s-1"), &[&confirmed]);
    assert_eq!((summary(&on_its_way), on_its_way.reason.as_str()), ((InProgress, "", "c2"), "WaitApplied"));
    let waits = together(&deployment("c2", "s-2", "s-1", "s-1"), &[]);
    assert_eq!((summary(&waits), waits.reason.as_str()), ((InProgress, "", "c2"), "OutOfSync"));
    // The failure can belong to the previous commit.
    let mut failed = deployment("c2", "s-1", "s-1", "s-0");
    failed.data["status"]["conditions"] = json!([{"type": "Deployed", "status": "False", "message": "no"}]);
    assert_eq!(together(&failed, &[]).reason, "NotStaged");
    assert_eq!(together(&failed, &[&confirmed]).status, Failed);
}

#[test]
fn a_commit_label_is_confirmed_if_it_came_with_the_staged_content() {
    let is_confirmed = |before: Option<(&str, &str)>, origin: EventOrigin, (commit, staged): (&str, &str)| {
        let relation = |(commit, staged): (&str, &str)| {
            let seen = see(Some(&deployment(commit, staged, staged, staged)), None, None);
            seen.relation.expect("it has a relation")
        };
        let before = before.map(relation);
        let relation = relation((commit, staged)).following(before.as_ref(), origin);
        let Relation::Parent(mut parent) = relation else { panic!("a parent") };
        combine(&mut parent, &[]).status == Current
    };
    let (one, two) = (("c1", "s-1"), ("c2", "s-2"));
    assert!(is_confirmed(Some(one), EventOrigin::Changed, two), "both at once");
    assert!(!is_confirmed(Some(one), EventOrigin::Changed, ("c2", "s-1")), "the label alone");
    assert!(is_confirmed(Some(("c2", "s-1")), EventOrigin::Changed, two), "its turn has come");
    assert!(!is_confirmed(Some(one), EventOrigin::Listed, two), "what was in between was not seen");
    assert!(is_confirmed(None, EventOrigin::Created, two));
    assert!(!is_confirmed(None, EventOrigin::Changed, two), "it was not known");
    assert!(!is_confirmed(None, EventOrigin::Listed, two));

    // The confirmation of the Bundle remains valid while nothing changes, even if the Bundle changes later.
    let mut seen = see(Some(&deployment("c2", "s-1", "s-1", "s-1")), None, None);
    assert_eq!(together_with(&mut seen, &[Some(&bundle_at("c2", 2, 0))]).revision, "c2");
    assert_eq!(together_with(&mut seen, &[Some(&bundle_at("c3", 1, 1))]).revision, "c2");
    let again = see(Some(&deployment("c2", "s-1", "s-1", "s-1")), None, None).relation.unwrap();
    let again = again.following(seen.relation.as_ref(), EventOrigin::Listed);
    let mut again = ReadObject { observation: seen.observation.clone(), relation: Some(again) };
    assert_eq!(together_with(&mut again, &[]).revision, "c2");
}

#[test]
fn a_failure_counts_if_the_content_of_its_label_is_staged_and_a_success_does_not() {
    let with_content = |staged: &str, wanted: &str, content: &str, ready: bool| {
        let mut made = deployment("c2", staged, wanted, wanted);
        made.metadata.labels.as_mut().unwrap().insert("fleet.cattle.io/content-name".into(), content.into());
        if !ready {
            made.data["status"]["ready"] = json!(false);
            made.data["status"]["nonReadyStatus"] = json!([{"summary": {"error": true}}]);
        }
        made
    };
    for (name, made, want) in [
        ("it is staged", with_content("s-2:o", "s-2:o", "s-2", false), Failed),
        ("it is ready", with_content("s-2:o", "s-2:o", "s-2", true), InProgress),
        ("other content is staged", with_content("s-1:o", "s-1:o", "s-2", false), InProgress),
        ("it is not wanted yet", with_content("s-2:o", "s-1:o", "s-2", false), InProgress),
        ("a Fleet without this label", with_content("s-2:o", "s-2:o", "", false), InProgress),
        ("no deployment", with_content("", "", "", false), InProgress),
    ] {
        assert_eq!(together(&made, &[]).status, want, "{name}");
    }
    let before = see(Some(&deployment("c1", "s-2:o", "s-2:o", "s-2:o")), None, None).relation;
    let mut alone = see(Some(&with_content("s-2:o", "s-2:o", "s-2", false)), None, None);
    alone.relation = alone.relation.map(|relation| relation.following(before.as_ref(), EventOrigin::Changed));
    assert_eq!(together_with(&mut alone, &[]).status, InProgress, "only the options are others, and they are not staged");
}

/// What is remembered after an object has failed.
fn remembered(object: &DynamicObject, parts: &[&DynamicObject]) -> Vec<String> {
    let said = if parts.is_empty() { seen(object) } else { together(object, parts) };
    assert_eq!(said.status, Failed);
    said.errors.remembered(&[], true)
}

#[test]
fn an_earlier_error_is_recognized_in_a_bundle_and_in_its_deployments() {
    let entry = |words: &str| json!({"bundleState": "ErrApplied", "message": words});
    let failing = |generation: i64, count: i64, listed: &[&str], more: Value| {
        let listed: Vec<Value> =
            listed.iter().map(|words| entry(words)).chain(more.as_array().cloned().unwrap_or_default()).collect();
        let counts = json!({"ready": 0, "errApplied": count, "nonReadyResources": listed});
        let mut made = bundle("a", &format!("c{generation}"), json!({}));
        made.metadata.generation = Some(generation);
        made.data["status"] = summed(counts, "False", json!({"observedGeneration": generation}));
        made
    };
    let none = json!([]);
    let broken = json!([{"bundleState": "NotReady", "nonReadyStatus": [{"summary": {"error": true}}]}]);
    let waits = json!([entry("dependent bundle(s) are not ready: [db]")]);
    for (name, before, after, earlier) in [
        ("the same", failing(1, 1, &["a"], none.clone()), failing(2, 1, &["a"], none.clone()), true),
        ("fewer", failing(1, 2, &["a", "b"], none.clone()), failing(2, 1, &["b"], none.clone()), true),
        ("another", failing(1, 1, &["a"], none.clone()), failing(2, 1, &["b"], none.clone()), false),
        ("one more", failing(1, 1, &["a"], none.clone()), failing(2, 2, &["a", "b"], none.clone()), false),
        ("more than are listed", failing(1, 1, &["a"], none.clone()), failing(2, 2, &["a"], none.clone()), false),
        ("as many that are not listed", failing(1, 20, &["a"], none.clone()), failing(2, 19, &["a"], none.clone()), true),
        ("one waits, too", failing(1, 1, &["a"], none.clone()), failing(2, 2, &["a"], waits), true),
        ("one is broken, too", failing(1, 1, &["a"], none.clone()), failing(2, 1, &["a"], broken), false),
    ] {
        assert_eq!(seen(&after).errors.are_earlier(&remembered(&before, &[])), earlier, "{name}");
        let [old, new] = ["c1", "c2"].map(|commit| git_repo(commit, json!({})));
        let whole = together(&new, &[&after]);
        assert_eq!((whole.status, whole.errors.are_earlier(&remembered(&old, &[&before]))), (Failed, earlier), "{name}");
    }
    // The commit changes another Bundle, so this one still has the same error.
    let (before, mut same) = (failing(1, 1, &["a"], none.clone()), failing(1, 1, &["a"], none.clone()));
    same.metadata.labels.as_mut().unwrap().insert("fleet.cattle.io/commit".into(), "c2".into());
    let (known, whole) =
        (remembered(&git_repo("c1", json!({})), &[&before]), together(&git_repo("c2", json!({})), &[&same]));
    assert_eq!((whole.status, whole.errors.are_earlier(&known)), (Failed, false));
    // Until the Bundle has the commit, its error is that of the commit before.
    let between = together(&git_repo("c2", json!({})), &[&before]);
    assert_eq!((between.status, between.errors.remembered(&[], false)), (InProgress, known.clone()));
    let mut unobserved = failing(2, 1, &["a"], none);
    unobserved.data["status"]["observedGeneration"] = json!(1);
    assert_eq!((seen(&unobserved).status, seen(&unobserved).errors.remembered(&[], false)), (InProgress, known));
}

#[test]
fn the_error_of_a_job_or_of_the_targets_is_that_of_the_commit_before_until_it_changes() {
    let job = |commit: &str, updated: &str| {
        let stalled = json!({"type": "Stalled", "status": "True", "message": "no such path", "lastUpdateTime": updated});
        git_repo(commit, json!({"gitJobStatus": "Failed", "conditions": [stalled]}))
    };
    let targets = |generation: i64, updated: &str| {
        let ready = json!({"type": "Ready", "status": "False", "reason": "Error", "message": "targeting error", "lastUpdateTime": updated});
        let mut made = bundle("a", "c2", json!({"observedGeneration": 0, "conditions": [ready]}));
        made.metadata.generation = Some(generation);
        made
    };
    let (monday, tuesday) = ("2026-01-05T00:00:00Z", "2026-01-06T00:00:00Z");
    for (name, before, after, earlier) in [
        ("job", job("c1", monday), job("c2", monday), true),
        ("job that failed again", job("c1", monday), job("c2", tuesday), false),
        ("job of the same commit", job("c1", monday), job("c1", monday), false),
        ("targets", targets(1, monday), targets(2, monday), true),
        ("targets that failed again", targets(1, monday), targets(2, tuesday), false),
    ] {
        let known = seen(&before).errors.remembered(&[], true);
        assert_eq!((seen(&after).status, seen(&after).errors.are_earlier(&known)), (Failed, earlier), "{name}");
    }
}

#[test]
fn a_deployment_without_a_commit_has_its_chart_version_or_id_as_revision() {
    let mut of_chart = deployment("", "s-1", "s-1", "s-1");
    assert_eq!(summary(&seen(&of_chart)), (Current, "1.0.0", "1.0.0"));
    of_chart.data["spec"]["stagedDeploymentID"] = json!("s-2");
    assert_eq!(summary(&seen(&of_chart)), (InProgress, "", "2.0.0"));
    of_chart.data["spec"] = json!({"stagedDeploymentID": "s-1", "deploymentID": "s-1"});
    assert_eq!(summary(&seen(&of_chart)), (Current, "s-1", "s-1"));
    // With a revision path, the result is the value at the path, and no Bundle is read.
    let path = RevisionPath::parse(".status.appliedDeploymentID").unwrap();
    let seen = see(Some(&deployment("c2", "s-2", "s-2", "s-1")), Some(&path), None);
    assert_eq!((summary(&seen.observation), seen.relation), ((InProgress, "s-1", ""), None));
}

/// The counts of three deployments, and the `Ready` condition that Fleet derives from them.
fn summed(counts: Value, ready: &str, more: Value) -> Value {
    let status = json!({"observedGeneration": 2, "resourcesSha256Sum": "sum", "commit": "c0ffee", "gitJobStatus": "Current",
        "unavailable": 0, "unavailablePartitions": 0, "maxUnavailablePartitions": 0, "partitions": [{"unavailable": 0}],
        "summary": with(&json!({"desiredReady": 3, "ready": 0}), counts), "conditions": [says("Ready", ready, "words")]});
    with(&status, more)
}

#[test]
fn bundles_and_clusters_have_the_status_of_the_counts_of_their_deployments() {
    let listed = |state: &str, more: Value| {
        let entry = with(&json!({"bundleState": state, "name": "fleet-default/c1"}), more);
        summed(json!({"ready": 2, "notReady": 1, "nonReadyResources": [entry]}), "False", json!({}))
    };
    let broken = json!({"nonReadyStatus": [{"summary": {"error": true, "state": "error"}}]});
    let moving = json!({"error": true, "transitioning": true});
    let waits = json!([{"bundleState": "ErrApplied", "message": "dependent bundle(s) are not ready: [db]"}]);
    for (name, status, want, drifted) in [
        ("all ready", summed(json!({"ready": 3}), "True", json!({})), Current, false),
        ("none at all", summed(json!({"desiredReady": 0}), "True", json!({})), Current, false),
        ("one to go", summed(json!({"ready": 2, "notReady": 1}), "False", json!({})), InProgress, false),
        ("one waits", summed(json!({"ready": 2, "waitApplied": 1}), "False", json!({})), InProgress, false),
        ("one fails", summed(json!({"ready": 2, "errApplied": 1}), "False", json!({})), Failed, false),
        (
            "one waits for a dependency",
            summed(json!({"ready": 2, "errApplied": 1, "nonReadyResources": waits}), "False", json!({})),
            InProgress,
            false,
        ),
        (
            "one waits and one fails",
            summed(json!({"ready": 1, "errApplied": 2, "nonReadyResources": waits}), "False", json!({})),
            Failed,
            false,
        ),
        ("one was modified", summed(json!({"ready": 2, "modified": 1}), "False", json!({})), Current, true),
        ("kept by something else", summed(json!({"ready": 3}), "False", json!({})), InProgress, false),
        ("of the spec before", summed(json!({"ready": 3}), "True", json!({"observedGeneration": 1})), InProgress, false),
        ("never looked at", json!({}), InProgress, false),
        ("one is broken", listed("NotReady", broken.clone()), Failed, false),
        ("one shows the error of before", listed("WaitApplied", broken.clone()), InProgress, false),
        ("one is on its way", listed("NotReady", json!({"nonReadyStatus": [{"summary": moving}]})), InProgress, false),
        ("one is not installed", listed("NotReady", json!({"message": "not installed: no chart"})), Failed, false),
        ("one is not monitored", listed("NotReady", json!({"message": "no such kind"})), InProgress, false),
    ] {
        for kind in [BUNDLE, FLEET_CLUSTER] {
            let seen = read(kind, json!({}), status.clone());
            assert_eq!((seen.status, seen.drifted), (want, drifted && kind == BUNDLE), "{name}");
            let runs = if want == Current { seen.attempted_revision.as_str() } else { "" };
            assert_eq!(seen.revision, runs, "{name}");
            assert!(read(kind, json!({"paused": true}), status.clone()).suspended, "{name}");
        }
    }
}

#[test]
fn a_bundle_with_an_unfinished_rollout_is_in_progress_although_its_counts_are_ready() {
    for more in [
        json!({"unavailable": 1}),
        json!({"partitions": [{"unavailable": 0}, {"unavailable": 2}]}),
        json!({"unavailablePartitions": 1}),
    ] {
        let said = read(BUNDLE, json!({}), summed(json!({"ready": 3}), "True", more.clone()));
        assert_eq!((said.status, said.reason.as_str()), (InProgress, "RolloutUnderWay"), "{more}");
    }
    let allowed = json!({"unavailablePartitions": 1, "maxUnavailablePartitions": 1});
    assert_eq!(read(BUNDLE, json!({}), summed(json!({"ready": 3}), "True", allowed)).status, Current);
}

#[test]
fn a_bundle_whose_clusters_cannot_be_determined_has_failed() {
    let mut error = says("Ready", "False", "targeting error: failed to render helm values template");
    error["reason"] = json!("Error");
    let more = json!({"observedGeneration": 1, "conditions": [error]});
    let said = read(BUNDLE, json!({}), summed(json!({"ready": 3}), "False", more.clone()));
    assert_eq!((said.status, said.reason.as_str()), (Failed, "Error"));
    let parent = git_repo("c2", json!({}));
    assert_eq!(together(&parent, &[&bundle("a", "c2", more)]).status, Failed);
}

#[test]
fn the_revision_of_a_bundle_is_its_commit_its_chart_version_or_its_hash() {
    let status = summed(json!({"ready": 3}), "True", json!({}));
    let spec = json!({"helm": {"version": "1.2.0"}});
    for (labels, want) in [
        (json!({}), "sum"),
        (json!({"fleet.cattle.io/commit": "c0ffee"}), "c0ffee"),
        (json!({"fleet.cattle.io/fleet-helm-name": "db"}), "1.2.0"),
    ] {
        let made = labelled(BUNDLE, "shop", labels, spec.clone(), status.clone());
        assert_eq!(summary(&seen(&made)), (Current, want, want));
    }
}

#[test]
fn modified_resources_are_no_drift_if_fleet_corrects_them() {
    let modified = summed(json!({"ready": 2, "modified": 1}), "False", json!({}));
    let deployed = json!({"appliedDeploymentID": "s-1", "ready": true, "nonModified": false});
    for (enabled, drifted) in [(true, false), (false, true)] {
        let spec = json!({"correctDrift": {"enabled": enabled}, "deploymentID": "s-1", "stagedDeploymentID": "s-1"});
        for (kind, status) in [(BUNDLE, &modified), (BUNDLE_DEPLOYMENT, &deployed)] {
            assert_eq!(read(kind, spec.clone(), status.clone()).drifted, drifted, "{kind:?} {enabled}");
        }
        for (kind, of) in [(GIT_REPO, "repo-name"), (HELM_OP, "fleet-helm-name")] {
            let label = format!("fleet.cattle.io/{of}");
            let labels = json!({"fleet.cattle.io/commit": "c0ffee", label: "shop"});
            let bundle = labelled(BUNDLE, "shop-web", labels, json!({}), modified.clone());
            let status = json!({"commit": "c0ffee", "version": "c0ffee", "gitJobStatus": "Current"});
            let parent = labelled(kind, "shop", json!({}), spec.clone(), status);
            let said = together(&parent, &[&bundle]);
            assert_eq!((said.status, said.drifted), (Current, drifted), "{kind:?} {enabled}");
        }
    }
}

/// A `GitRepo` at a commit.
fn git_repo(commit: &str, more: Value) -> DynamicObject {
    let status = json!({"observedGeneration": 2, "commit": commit, "gitJobStatus": "Current", "summary": {"desiredReady": 4, "ready": 4}});
    labelled(GIT_REPO, "shop", json!({}), json!({}), with(&status, more))
}

/// A Bundle of this `GitRepo`, with more status fields.
fn bundle(name: &str, commit: &str, more: Value) -> DynamicObject {
    let labels = json!({"fleet.cattle.io/commit": commit, "fleet.cattle.io/repo-name": "shop"});
    labelled(BUNDLE, name, labels, json!({}), summed(json!({"ready": 3}), "True", more))
}

#[test]
fn a_repository_is_at_a_commit_when_all_of_its_bundles_are() {
    let done = git_repo("c2", json!({}));
    let failed = json!({"summary": {"desiredReady": 3, "ready": 2, "errApplied": 1}});
    let moving = json!({"summary": {"desiredReady": 3, "ready": 2}});
    let [a, b] = ["a", "b"].map(|name| bundle(name, "c2", json!({})));
    let old = bundle("a", "c1", json!({}));
    let [fails, moves] = [failed.clone(), moving].map(|more| bundle("b", "c2", more));
    let fails_old = bundle("b", "c1", failed);
    let mut leaves = bundle("b", "c2", json!({}));
    leaves.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let of_none = bundle("b", "", json!({}));
    for (name, parts, want, reason) in [
        ("all", vec![Some(&a), Some(&b)], Current, ""),
        ("one is of the commit before", vec![Some(&old), Some(&b)], InProgress, "BundleNotUpdated"),
        ("one is of none", vec![Some(&a), Some(&of_none)], InProgress, "BundleNotUpdated"),
        ("one is on its way", vec![Some(&a), Some(&moves)], InProgress, "NotReady"),
        ("one has failed", vec![Some(&a), Some(&fails)], Failed, "ErrApplied"),
        ("one had failed before", vec![Some(&a), Some(&fails_old)], InProgress, "BundleNotUpdated"),
        ("one cannot be read", vec![Some(&a), None], InProgress, "NotObserved"),
        ("one is being deleted", vec![Some(&a), Some(&leaves)], InProgress, "Terminating"),
        ("none is there", vec![], InProgress, "NotObserved"),
    ] {
        let said = together_with(&mut see(Some(&done), None, None), &parts);
        let runs = if want == Current { "c2" } else { "" };
        assert_eq!((summary(&said), said.reason.as_str()), ((want, runs, "c2"), reason), "{name}");
        assert_eq!(said.message.is_empty(), want == Current, "{name}");
    }
    // The counts of a new repository are written before its first Bundle.
    for more in [json!({"summary": {"desiredReady": 0}}), json!({"gitJobStatus": "", "summary": {"desiredReady": 0}})] {
        assert_eq!(together(&git_repo("c2", more), &[]).status, InProgress);
    }
    let first = json!({"conditions": [says("Ready", "True", "")]});
    let new = labelled(GIT_REPO, "shop", json!({}), json!({}), first);
    assert_eq!((together(&new, &[]).reason.as_str(), together(&new, &[&of_none]).status), ("GitUpdating", InProgress));
    assert_eq!(seen(&done).status, InProgress, "by itself it does not say what runs");
}

#[test]
fn problems_of_a_repository_itself_take_precedence_over_its_bundles() {
    let condition = |type_: &str, status: &str| json!({"conditions": [says(type_, status, "words")]});
    let fits = bundle("a", "c2", json!({}));
    for (name, more, want) in [
        ("reads a new commit", json!({"gitJobStatus": "InProgress"}), InProgress),
        ("cannot read it", json!({"gitJobStatus": "Failed"}), Failed),
        ("cannot reach the Git server", condition("GitPolling", "False"), Failed),
        ("still stalled after an outage", condition("Stalled", "True"), Current),
        ("not accepted", condition("Accepted", "False"), Failed),
        ("of the spec before", with(&condition("Accepted", "False"), json!({"observedGeneration": 1})), InProgress),
        // The counts of the `GitRepo` itself are some seconds old.
        ("not ready, by its counts", condition("Ready", "False"), Current),
    ] {
        let said = together(&git_repo("c2", more), &[&fits]);
        assert_eq!((said.status, said.attempted_revision.as_str()), (want, "c2"), "{name}");
    }
    let mut paused = git_repo("c2", json!({}));
    paused.data["spec"]["paused"] = json!(true);
    assert!(together(&paused, &[&fits]).suspended);
}

#[test]
fn a_helm_op_is_at_a_version_when_its_bundle_is() {
    let helm_op = |more: Value| {
        let status = json!({"version": "1.3.0", "summary": {"desiredReady": 0}});
        labelled(HELM_OP, "db", json!({}), json!({"helm": {"version": "1.*"}}), with(&status, more))
    };
    let bundle = |version: &str, counts: Value| {
        let labels = json!({"fleet.cattle.io/fleet-helm-name": "db"});
        labelled(BUNDLE, "db", labels, json!({"helm": {"version": version}}), summed(counts, "True", json!({})))
    };
    let ready = || bundle("1.3.0", json!({"ready": 3}));
    let refuses = |type_: &str| json!({"conditions": [says(type_, "False", "no such chart")]});
    for (name, parent, parts, want) in [
        ("done", helm_op(json!({})), vec![ready()], Current),
        ("no Bundle yet", helm_op(json!({})), vec![], InProgress),
        ("the Bundle before", helm_op(json!({})), vec![bundle("1.2.0", json!({"ready": 3}))], InProgress),
        ("on its way", helm_op(json!({})), vec![bundle("1.3.0", json!({"ready": 1}))], InProgress),
        ("fails", helm_op(json!({})), vec![bundle("1.3.0", json!({"ready": 2, "errApplied": 1}))], Failed),
        ("not accepted", helm_op(refuses("Accepted")), vec![ready()], Failed),
        ("cannot be polled", helm_op(refuses("Polled")), vec![ready()], Failed),
        ("without polling", helm_op(json!({"conditions": [says("Polled", "False", "")]})), vec![ready()], Current),
    ] {
        let said = together(&parent, &parts.iter().collect::<Vec<_>>());
        let runs = if want == Current { "1.3.0" } else { "" };
        assert_eq!(summary(&said), (want, runs, "1.3.0"), "{name}");
    }
}

/// Fleet 0.17 has changed some conditions. Both versions are read.
#[test]
fn fleet_0_16_and_0_17_are_read_alike() {
    let condition = |type_: &str, status: &str, reason: &str, message: &str| json!({"type": type_, "status": status, "reason": reason, "message": message});
    let (error, away) = ("no resource found", "connection refused");
    let accepted =
        |status: &str| condition("Accepted", status, if status == "True" { "" } else { "Error" }, "no such secret");
    let polled = |type_: &str, status: &str| condition(type_, status, "", if status == "True" { "" } else { away });
    let stalled = |status: &str, message: &str| condition("Stalled", status, "", message);
    let ready = |status: &str, reason: &str, message: &str| condition("Ready", status, reason, message);
    let fits = bundle("a", "c2", json!({}));
    for (name, job, conditions, want) in [
        ("0.16: outage", "Current", vec![polled("GitPolling", "False"), stalled("True", away)], Failed),
        ("0.16: it is over", "Current", vec![polled("GitPolling", "True"), stalled("True", away)], Current),
        ("0.17: it is over", "Current", vec![polled("GitPolling", "True"), stalled("False", "")], Current),
        ("0.16: the job has failed", "Failed", vec![polled("GitPolling", "True"), stalled("True", error)], Failed),
        ("0.17: and an outage is over", "Failed", vec![polled("GitPolling", "True"), stalled("True", away)], Failed),
        ("0.16: no job", "Current", vec![accepted("False"), ready("True", "", "")], Failed),
        ("0.17: no job", "Current", vec![accepted("False"), ready("False", "Error", "no such secret")], Failed),
        ("0.17: the job is there", "Current", vec![accepted("True"), ready("False", "Error", "no such secret")], Current),
    ] {
        let parent = git_repo("c2", json!({"gitJobStatus": job, "conditions": conditions}));
        assert_eq!(together(&parent, &[&fits]).status, want, "GitRepo, {name}");
    }
    let label = json!({"fleet.cattle.io/fleet-helm-name": "db"});
    let fits =
        labelled(BUNDLE, "db", label, json!({"helm": {"version": "1.3.0"}}), summed(json!({"ready": 3}), "True", json!({})));
    for (name, conditions, want) in [
        ("0.16: outage", vec![accepted("True"), polled("Polled", "False"), stalled("True", away)], Failed),
        ("0.16: it is over", vec![accepted("True"), polled("Polled", "True"), stalled("True", away)], Current),
        ("0.17: it is over", vec![accepted("True"), polled("Polled", "True"), stalled("False", "")], Current),
        ("0.17: not accepted", vec![accepted("False"), ready("False", "Error", "no such secret")], Failed),
    ] {
        let parent = labelled(HELM_OP, "db", json!({}), json!({}), json!({"version": "1.3.0", "conditions": conditions}));
        assert_eq!(together(&parent, &[&fits]).status, want, "HelmOp, {name}");
    }
    let (old, new) =
        ("dependent bundle(s) are not ready: [db]", "waiting for dependent bundle(s) to reach an accepted state: db");
    for (name, reason, message, want) in [
        ("0.16: waits", "Error", old, "DependencyNotReady"),
        ("0.17: waits", "WaitingForDependency", new, "DependencyNotReady"),
        ("0.17: waits, in other words", "WaitingForDependency", "db is not ready", "DependencyNotReady"),
        ("0.17: fails", "Error", error, "ErrApplied"),
    ] {
        let status = json!({"appliedDeploymentID": "s-1", "ready": true, "conditions": [condition("Deployed", "False", reason, message)]});
        let said = read(BUNDLE_DEPLOYMENT, json!({"deploymentID": "s-2", "stagedDeploymentID": "s-2"}), status);
        assert_eq!(said.reason, want, "BundleDeployment, {name}");
    }
    let entry = |state: &str, message: &str| json!({"bundleState": state, "message": message});
    let counted = "WaitApplied(3) [Cluster fleet-default/c1]";
    for (name, counts, more, want) in [
        (
            "0.16: one waits",
            json!({"ready": 2, "errApplied": 1, "nonReadyResources": [entry("ErrApplied", old)]}),
            json!({}),
            InProgress,
        ),
        (
            "0.17: one waits",
            json!({"ready": 2, "waitingForDependency": 1, "nonReadyResources": [entry("WaitingForDependency", new)]}),
            json!({}),
            InProgress,
        ),
        (
            "0.17: one waits and one fails",
            json!({"ready": 1, "waitingForDependency": 1, "errApplied": 1, "nonReadyResources": [entry("WaitingForDependency", new), entry("ErrApplied", error)]}),
            json!({}),
            Failed,
        ),
        (
            "a targeting error",
            json!({"ready": 3}),
            json!({"conditions": [ready("False", "Error", "targeting error")]}),
            Failed,
        ),
        ("it is over", json!({"waitApplied": 3}), json!({"conditions": [ready("False", "Error", counted)]}), InProgress),
    ] {
        assert_eq!(read(BUNDLE, json!({}), summed(counts, "False", more)).status, want, "Bundle, {name}");
    }
}

#[test]
fn a_revision_path_overrides_the_revision_of_a_parent() {
    let [fits, old] = ["c2", "c1"].map(|commit| bundle("a", commit, json!({})));
    let parent = git_repo("c2", json!({"display": {"state": "x"}}));
    for (path, part, want) in [
        (".status.display.state", &fits, (Current, "x", "x")),
        (".status.display.state", &old, (InProgress, "x", "x")),
        (".metadata.name", &fits, (Current, "shop", "shop")),
        (".metadata.name", &old, (InProgress, "", "shop")),
    ] {
        let mut seen = see(Some(&parent), RevisionPath::parse(path).ok().as_ref(), None);
        assert_eq!(summary(&together_with(&mut seen, &[Some(part)])), want, "{path}");
    }
}
