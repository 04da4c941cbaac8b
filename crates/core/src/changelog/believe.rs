//! What an observation says to somebody who knows what was observed before.
//!
//! A status can show an error of an earlier revision, and a label can belong to something that is not staged. The object alone does not show
//! it. The settled state contains what was seen before, also after a restart.

use std::borrow::Cow;

use crate::observe::{IfStaged, Observation};
use relaybook_api::{Settled, Status};

/// Returns the observation as the settled state explains it. `is_offline`: whether the agent that writes the status is offline.
///
/// - If its label is confirmed for what is staged, the observation is that of the staged revision.
/// - A failure that was there before the attempted revision is no failure of it.
/// - While the agent is offline, an error that can be about an earlier revision is not new.
#[must_use]
pub fn believe<'a>(settled: Option<&Settled>, obs: &'a Observation, reader: &str, is_offline: bool) -> Cow<'a, Observation> {
    let Some(known) = settled.filter(|settled| settled.reader == reader) else { return Cow::Borrowed(obs) };
    let obs = match obs.if_staged.as_deref() {
        Some(IfStaged { id, said }) if *id == known.staged => &**said,
        _ => obs,
    };
    let is_reported = known.status == Status::Failed && known.revision == obs.attempted_revision;
    if obs.status != Status::Failed || is_reported {
        return Cow::Borrowed(obs);
    }
    let held = |reason: &str, words: &str| {
        let (status, reason, message) = (Status::InProgress, reason.to_owned(), format!("{words}: {}", obs.message));
        Cow::Owned(Observation { status, reason, message, ..obs.clone() })
    };
    if obs.errors.are_earlier(&known.errors) {
        return held(
            "EarlierError",
            "this error was there before this revision, so it is not known whether this revision fails",
        );
    }
    if is_offline && obs.errors.decide() {
        return held("ClusterOffline", "the agent is offline, so this error can be about an earlier revision");
    }
    Cow::Borrowed(obs)
}

#[cfg(test)]
mod tests {
    use kube_core::DynamicObject;
    use serde_json::{Value, json};

    use super::*;
    use crate::changelog::{Verdict, settle};
    use crate::observe::{Errors, Relation, see};

    const ERROR: &str = "no such image";

    fn deployment(commit: &str, wanted: &str, applied: &str, error: &Value) -> DynamicObject {
        let conditions =
            json!([{"type": "Deployed", "status": "False", "message": error, "lastUpdateTime": "2026-01-01T00:00:00Z"}]);
        serde_json::from_value(json!({
            "apiVersion": "fleet.cattle.io/v1alpha1", "kind": "BundleDeployment",
            "metadata": {"name": "web", "namespace": "c", "labels": {"fleet.cattle.io/commit": commit,
                "fleet.cattle.io/bundle-name": "web", "fleet.cattle.io/bundle-namespace": "shop"}},
            "spec": {"deploymentID": wanted, "stagedDeploymentID": wanted},
            "status": {"appliedDeploymentID": applied, "ready": true, "nonModified": true,
                "conditions": if error.is_null() { json!([]) } else { conditions }},
        }))
        .unwrap()
    }

    /// The observation of a deployment whose label is not confirmed.
    fn unconfirmed(object: &DynamicObject) -> Observation {
        see(Some(object), None, None).observation
    }

    /// The observation of a deployment whose label is confirmed.
    fn confirmed(object: &DynamicObject) -> Observation {
        (*unconfirmed(object).if_staged.unwrap().said).clone()
    }

    fn after(settled: Option<&Settled>, obs: &Observation) -> Option<Settled> {
        match settle(settled, &believe(settled, obs, "r", false), "r", 1) {
            Verdict::Ignored => settled.cloned(),
            Verdict::Baseline(new) | Verdict::Noted(new) | Verdict::Changed { settled: new, .. } => Some(new),
        }
    }

    /// The settled states after each of these observations.
    fn states(all: &[Observation]) -> Vec<String> {
        let mut settled = None;
        let mut states = Vec::new();
        for obs in all {
            settled = after(settled.as_ref(), obs);
            // Once more, as after a restart.
            assert_eq!(after(settled.as_ref(), obs), settled);
            let state = settled.as_ref().map(|s| format!("{:?} {}", s.status, s.revision)).unwrap();
            let shown = believe(settled.as_ref(), obs, "r", false);
            assert_eq!(format!("{:?} {}", shown.status, shown.attempted_revision), state, "the same is shown");
            states.push(state);
        }
        states
    }

    #[test]
    fn an_error_that_was_there_before_is_no_failure_of_the_next_revision() {
        let ran = confirmed(&deployment("c1", "s-1", "s-1", &Value::Null));
        let fails = confirmed(&deployment("c2", "s-2", "s-1", &json!(ERROR)));
        let fixed = |error: &Value| confirmed(&deployment("c3", "s-3", "s-1", error));
        let done = confirmed(&deployment("c3", "s-3", "s-3", &Value::Null));
        let begun = ["Current c1", "Failed c2", "InProgress c3"];
        for (name, then, want) in [
            ("it is fixed", vec![fixed(&json!(ERROR)), done.clone()], "Current c3"),
            ("it fails with other words", vec![fixed(&json!(ERROR)), fixed(&json!("no space"))], "Failed c3"),
            ("the error has disappeared, and comes again", vec![fixed(&Value::Null), fixed(&json!(ERROR))], "Failed c3"),
            ("it stays", vec![fixed(&json!(ERROR)), fixed(&json!(ERROR))], "InProgress c3"),
        ] {
            let all = states(&[vec![ran.clone(), fails.clone()], then].concat());
            assert_eq!(all, [&begun[..], &[want]].concat(), "{name}");
        }
        // The commit changes nothing in this bundle, so the error is also that of the next commit.
        let same = confirmed(&deployment("c3", "s-2", "s-1", &json!(ERROR)));
        assert_eq!(states(&[ran, fails, same]), ["Current c1", "Failed c2", "Failed c3"]);
    }

    #[test]
    fn while_the_agent_is_offline_no_error_is_new() {
        let ran = after(None, &confirmed(&deployment("c1", "s-1", "s-1", &Value::Null)));
        let fails = confirmed(&deployment("c2", "s-2", "s-1", &json!(ERROR)));
        let held = believe(ran.as_ref(), &fails, "r", true);
        assert_eq!((held.status, held.reason.as_str()), (Status::InProgress, "ClusterOffline"));
        assert!(held.message.ends_with(ERROR), "{}", held.message);
        assert_eq!(believe(ran.as_ref(), &fails, "r", false).status, Status::Failed);
        assert_eq!(believe(None, &fails, "r", true).status, Status::Failed, "the first observation is reported to nobody");
        let failed = after(ran.as_ref(), &fails);
        assert_eq!(believe(failed.as_ref(), &fails, "r", true).status, Status::Failed, "it was reported before");
        let broken = Observation { errors: Errors::default(), ..fails };
        assert_eq!(believe(ran.as_ref(), &broken, "r", true).status, Status::Failed, "its revision is known");
    }

    #[test]
    fn a_confirmed_label_stays_confirmed_while_the_staged_content_is_the_same() {
        let broken = |commit: &str, wanted: &str| {
            let mut object = deployment(commit, wanted, wanted, &Value::Null);
            object.data["status"]["ready"] = json!(false);
            object.data["status"]["nonReadyStatus"] = json!([{"summary": {"error": true}}]);
            object
        };
        let ready = |commit: &str, wanted: &str| deployment(commit, wanted, wanted, &Value::Null);
        let id = unconfirmed(&ready("c2", "s-2")).if_staged.unwrap().id.clone();
        let known = Settled {
            status: Status::InProgress,
            revision: "c2".into(),
            reader: "r".into(),
            staged: id,
            ..Settled::default()
        };
        for (name, object, want) in [
            ("it is ready", ready("c2", "s-2"), Status::Current),
            ("it fails", broken("c2", "s-2"), Status::Failed),
            ("another commit and back, but not staged", ready("c2", "s-3"), Status::InProgress),
            ("a later commit that is not staged", ready("c3", "s-2"), Status::InProgress),
        ] {
            let obs = unconfirmed(&object);
            assert_eq!((obs.status, obs.reason.as_str()), (Status::InProgress, "NotStaged"), "{name}");
            assert_eq!(believe(Some(&known), &obs, "r", false).status, want, "{name}");
            assert_eq!(believe(Some(&known), &obs, "other", false).status, Status::InProgress, "{name}: by other rules");
        }
        let Some(Relation::Parent(parent)) = see(Some(&ready("c2", "s-2")), None, None).relation else { panic!("a parent") };
        assert_eq!(parent.confirmed(), None, "the object alone does not confirm it");
    }
}
