//! Pure: the JSON Patch that writes a status, and the meaning of a failure.
//!
//! The patch first tests the uid, and that the log has the expected serial and epoch. So a replica with stale data never overwrites the
//! status of a newer leader. The dispatcher writes `dispatched`. The patch neither tests nor changes `dispatched`, because it writes each
//! part to its own path. Two kinds of writes also test the version of the whole object: the first write, which may have to create the
//! status, and a write with merged changes.

use serde::Serialize;
use serde_json::json;

use relaybook_api::{Pipeline, PipelineStatus};
use relaybook_runtime::call::CallError;
use relaybook_runtime::guarded::Guarded;

/// Returns the patch from the status of `base` to `next`, with only the parts that differ. `merged`: changes were merged in `next`. A
/// change whose timer was started meanwhile must not be merged, so the patch tests the version of the whole object.
pub(crate) fn patch(base: &Pipeline, next: &PipelineStatus, merged: bool) -> Result<Guarded, serde_json::Error> {
    let empty = PipelineStatus::default();
    let before = base.status.as_ref().unwrap_or(&empty);
    let version = || json!(base.metadata.resource_version);
    let mut patch = Guarded::of(base.metadata.uid.as_deref());
    if merged {
        patch = patch.test(["metadata", "resourceVersion"], version());
    }
    if let Some(log) = &before.log {
        patch = patch.test(["status", "log", "serial"], json!(log.serial));
        if log.epoch > 0 {
            patch = patch.test(["status", "log", "epoch"], json!(log.epoch));
        }
    } else {
        patch = patch.test(["metadata", "resourceVersion"], version());
        if base.status.is_none() {
            patch = patch.put(["status"], &json!({}))?;
        }
    }
    patch = part(patch, "observedGeneration", &before.observed_generation, &next.observed_generation)?;
    patch = part(patch, "conditions", &before.conditions, &next.conditions)?;
    patch = part(patch, "environments", &before.environments, &next.environments)?;
    patch = part(patch, "readyTargets", &before.ready_targets, &next.ready_targets)?;
    patch = part(patch, "state", &before.state, &next.state)?;
    patch = part(patch, "revision", &before.revision, &next.revision)?;
    patch = part(patch, "settled", &before.settled, &next.settled)?;
    patch = part(patch, "clusters", &before.clusters, &next.clusters)?;
    patch = part(patch, "dropped", &before.dropped, &next.dropped)?;
    part(patch, "log", &before.log, &next.log)
}

/// Adds one part to the patch if it differs. A part that is absent is removed: not every field can be null.
fn part<T: Serialize + PartialEq>(patch: Guarded, name: &str, before: &T, next: &T) -> Result<Guarded, serde_json::Error> {
    if before == next {
        return Ok(patch);
    }
    let value = serde_json::to_value(next)?;
    if value.is_null() { Ok(patch.remove(["status", name])) } else { patch.put(["status", name], &value) }
}

/// What is known after a failed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// This replica may not write now. Nothing was sent.
    Unsent,
    /// A test failed, or the schema refused the write. The object is not in the expected state.
    Stale,
    /// The object no longer exists.
    Gone,
    /// The write was refused. The answered request was not applied.
    Refused,
    /// The write may have been applied.
    Uncertain,
}

/// Returns the meaning of an error of a write.
pub(crate) fn failure(error: &CallError) -> Failure {
    let error = match error {
        CallError::NotHeld | CallError::Json(_) => return Failure::Unsent,
        CallError::Timeout => return Failure::Uncertain,
        CallError::Api(error) => &**error,
    };
    match error {
        kube::Error::Api(status) => match status.code {
            404 => Failure::Gone,
            409 | 422 => Failure::Stale,
            400..=499 => Failure::Refused,
            _ => Failure::Uncertain,
        },
        _ => Failure::Uncertain,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::Value;

    use super::*;
    use relaybook_api::ChangeLog;
    use relaybook_api::pipeline::EnvironmentStatus;

    fn base(status: Option<PipelineStatus>) -> Pipeline {
        let mut base = Pipeline::new("p", relaybook_api::PipelineSpec::default());
        base.metadata.uid = Some("u".to_owned());
        base.metadata.resource_version = Some("7".to_owned());
        base.status = status;
        base
    }

    fn with_log(serial: i64) -> PipelineStatus {
        PipelineStatus {
            log: Some(ChangeLog { epoch: 0, first: 1, serial, held_until: None, changes: vec![] }),
            ..PipelineStatus::default()
        }
    }

    /// Returns the operations of a patch.
    fn operations(patch: Guarded) -> Vec<Value> {
        patch.operations().iter().map(|operation| json!(operation)).collect()
    }

    fn steps(base: &Pipeline, next: &PipelineStatus) -> Vec<String> {
        let steps = operations(patch(base, next, false).unwrap());
        let word = |s: &Value| format!("{} {} {}", s["op"].as_str().unwrap(), s["path"].as_str().unwrap(), s["value"]);
        steps.iter().map(word).collect()
    }

    #[test]
    fn the_first_write_tests_the_whole_object_and_creates_the_status() {
        let next = steps(&base(None), &with_log(5));
        assert_eq!(next[1], r#"test /metadata/resourceVersion "7""#);
        assert_eq!(next[2], "add /status {}");
        let kept = steps(&base(Some(PipelineStatus::default())), &with_log(5));
        assert_eq!(kept[1], r#"test /metadata/resourceVersion "7""#);
        assert!(kept[2].starts_with("add /status/log "), "the part of the dispatcher is kept: {kept:?}");
    }

    #[test]
    fn later_writes_test_the_log_and_write_what_differs() {
        let environments = vec![EnvironmentStatus { name: "dev".into(), ..EnvironmentStatus::default() }];
        let next = PipelineStatus { environments, ..with_log(5) };
        let all = steps(&base(Some(with_log(5))), &next);
        assert_eq!(all[..2], [r#"test /metadata/uid "u""#, "test /status/log/serial 5"]);
        assert_eq!(all[2..], [r#"add /status/environments [{"name":"dev","targets":[]}]"#]);
        assert!(steps(&base(Some(with_log(5))), &with_log(6))[2].starts_with("add /status/log "));
    }

    #[test]
    fn a_part_that_is_absent_is_removed() {
        let before = PipelineStatus { state: Some(relaybook_api::Status::Current), ..with_log(5) };
        assert_eq!(steps(&base(Some(before.clone())), &with_log(5))[2..], ["remove /status/state null"]);
        assert_eq!(steps(&base(Some(with_log(5))), &before)[2..], [r#"add /status/state "Current""#]);
        assert_eq!(steps(&base(Some(with_log(5))), &with_log(5)).len(), 2);
    }

    #[test]
    fn a_write_with_merged_changes_tests_the_whole_object() {
        let steps = operations(patch(&base(Some(with_log(5))), &with_log(6), true).unwrap());
        assert_eq!((&steps[1]["op"], &steps[1]["path"]), (&json!("test"), &json!("/metadata/resourceVersion")));
    }

    #[test]
    fn each_status_code_of_the_api_server_has_its_failure() {
        let api = |code| CallError::from(kube::Error::Api(Status::failure("", "").with_code(code).boxed()));
        let table = [
            (404, Failure::Gone),
            (409, Failure::Stale),
            (422, Failure::Stale),
            (403, Failure::Refused),
            (413, Failure::Refused),
            (429, Failure::Refused),
            (500, Failure::Uncertain),
            (504, Failure::Uncertain),
        ];
        for (code, want) in table {
            assert_eq!(failure(&api(code)), want, "{code}");
        }
        assert_eq!(failure(&kube::Error::Service("reset".into()).into()), Failure::Uncertain);
        assert_eq!((failure(&CallError::Timeout), failure(&CallError::NotHeld)), (Failure::Uncertain, Failure::Unsent));
    }
}
