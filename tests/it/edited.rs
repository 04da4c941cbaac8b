//! What the API server lets a person do to a Delivery who has all permissions on Deliveries, if there is no admission policy. The rules of
//! the schema protect the record of what was sent. `tests/it/install/policy.rs` tests the policy, which protects the rest of the status.

use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use relaybook_api::Delivery;
use serde_json::{Value, json};

use crate::support::World;
use crate::validation;

/// What a person does.
enum Edit {
    /// A merge patch.
    Merge(Value),
    /// A JSON Patch.
    Json(Value),
    /// `kubectl replace` with the status of another object.
    ReplaceStatus(&'static str),
    /// `kubectl apply` of the exported object.
    Apply,
    /// A write of the status as a subresource. Earlier versions of Relaybook wrote it so.
    Subresource(Value),
    Delete,
}
use Edit::{Apply, Delete, Json, Merge, ReplaceStatus, Subresource};

const SPEC: &str = "a recorded transition cannot be edited; delete the object to cancel it";
const CHANGED: &str = "the status of a settled delivery cannot be changed; ";
const REMOVED: &str = "the status of a settled delivery cannot be removed; ";
const ATTEMPTS: &str = "status.attempts cannot decrease; ";
const MARK: &str = "status.redelivered cannot be removed, ";

fn mark(value: &str) -> Value {
    json!({"value": value, "time": "2026-01-01T00:00:03Z"})
}

/// Returns the Deliveries of the table. Each is created with its status.
fn stored() -> [(&'static str, Value); 5] {
    let pending = json!({"attempts": 3, "reason": "ReceiverError", "nextAttemptTime": "2026-01-01T00:01:00Z"});
    let settled = json!({
        "outcome": "Parked", "reason": "ReceiverRejected", "settledTime": "2026-01-01T00:00:02Z", "attempts": 3, "statusCode": 400,
        "lastAttemptTime": "2026-01-01T00:00:01Z", "lastDurationMillis": 4, "error": "400 Bad Request", "response": "no",
    });
    let mut again = settled.clone();
    again["redelivered"] = mark("1");
    let mut reopened = pending.clone();
    reopened["redelivered"] = mark("1");
    [("new", Value::Null), ("pending", pending), ("settled", settled), ("again", again), ("reopened", reopened)]
}

/// Returns the patch that reopens a settled delivery as a redelivery does, with these changes.
fn reopen(value: &str, changes: Value) -> Edit {
    let mut status = json!({"outcome": null, "reason": null, "settledTime": null, "redelivered": mark(value)});
    status.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    Merge(json!({"status": status}))
}

/// What is done, the object, the edit, and how the message of the API server begins (`None`: it accepts the edit).
fn table() -> Vec<(&'static str, &'static str, Edit, Option<&'static str>)> {
    let status = |status: Value| Merge(json!({"status": status}));
    let metadata = || Merge(json!({"metadata": {"annotations": {"relaybook.dev/redeliver": "2"}, "labels": {"team": "a"}}}));
    vec![
        ("edit the spec", "new", Merge(json!({"spec": {"order": 2}})), Some(SPEC)),
        ("edit the spec of a settled one", "settled", Merge(json!({"spec": {"to": {"revision": "9"}}})), Some(SPEC)),
        ("annotate and label", "new", metadata(), None),
        ("annotate and label a settled one", "settled", metadata(), None),
        ("apply the exported object", "settled", Apply, None),
        ("apply the exported object that is pending", "pending", Apply, None),
        ("delete", "settled", Delete, None),
        ("delete a pending one", "pending", Delete, None),
        // The record of what was sent.
        ("change the outcome", "settled", status(json!({"outcome": "Delivered"})), Some(CHANGED)),
        ("remove the outcome", "settled", status(json!({"outcome": null})), Some(CHANGED)),
        ("remove the status", "settled", status(Value::Null), Some(REMOVED)),
        ("remove the status in a replace", "settled", ReplaceStatus("new"), Some(REMOVED)),
        ("replace the status by another one", "settled", ReplaceStatus("pending"), Some(CHANGED)),
        ("change the error", "settled", status(json!({"error": "none"})), Some(CHANGED)),
        ("change the error to null", "settled", replace("error", Value::Null), Some(CHANGED)),
        (
            "change the error to null, with as many fields as before",
            "settled",
            Json(json!([
                {"op": "remove", "path": "/status/error"}, {"op": "add", "path": "/status/nextAttemptTime", "value": null},
            ])),
            Some(CHANGED),
        ),
        ("count superseded ones", "settled", status(json!({"superseded": 2})), Some(CHANGED)),
        ("reopen", "settled", reopen("1", json!({})), None),
        ("reopen once more", "again", reopen("2", json!({})), None),
        ("reopen with the old mark", "again", reopen("1", json!({})), Some(CHANGED)),
        ("reopen without a mark", "settled", reopen("1", json!({"redelivered": null})), Some(CHANGED)),
        ("reopen with fewer attempts", "settled", reopen("1", json!({"attempts": 0})), Some(CHANGED)),
        ("reopen with another error", "settled", reopen("1", json!({"error": "none"})), Some(CHANGED)),
        ("reopen with the old reason", "settled", reopen("1", json!({"reason": "ReceiverRejected"})), Some(CHANGED)),
        ("remove the mark of a settled one", "again", status(json!({"redelivered": null})), Some(CHANGED)),
        // A pending delivery. The schema cannot tell who writes, so only the admission policy rejects the accepted ones.
        ("set the first status", "new", status(json!({"attempts": 1})), None),
        ("settle", "pending", status(json!({"outcome": "Delivered", "attempts": 4})), None),
        ("change the reason", "pending", status(json!({"reason": "Other"})), None),
        ("lower the attempts", "pending", status(json!({"attempts": 2})), Some(ATTEMPTS)),
        ("remove the attempts", "pending", status(json!({"attempts": null})), Some(ATTEMPTS)),
        ("remove the status of a pending one", "pending", status(Value::Null), Some(ATTEMPTS)),
        ("remove the mark", "reopened", status(json!({"redelivered": null})), Some(MARK)),
        ("remove the mark with a null", "reopened", replace("redelivered", Value::Null), Some(MARK)),
        // The status is no subresource.
        (
            "write the subresource",
            "pending",
            Subresource(json!({"attempts": 4})),
            Some("deliveries.relaybook.dev \"pending\" not found"),
        ),
    ]
}

fn replace(field: &str, value: Value) -> Edit {
    Json(json!([{"op": "replace", "path": format!("/status/{field}"), "value": value}]))
}

/// Makes an edit as a dry run, so that no row changes the object of another one. Returns the message of the API server if it refuses.
async fn make(api: &Api<Delivery>, name: &str, edit: &Edit) -> Result<(), String> {
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let result = match edit {
        Merge(patch) => api.patch(name, &params, &Patch::Merge(patch)).await.map(drop),
        Json(patch) => {
            let patch = serde_json::from_value(patch.clone()).expect("a JSON Patch");
            api.patch(name, &params, &Patch::Json::<()>(patch)).await.map(drop)
        }
        ReplaceStatus(other) => {
            let mut object = api.get(name).await.expect("read");
            object.status = api.get(other).await.expect("read").status;
            let params = PostParams { dry_run: true, ..PostParams::default() };
            api.replace(name, &params, &object).await.map(drop)
        }
        Apply => {
            let mut object = api.get(name).await.expect("read");
            object.metadata.managed_fields = None;
            let params = PatchParams { dry_run: true, ..PatchParams::apply("kubectl").force() };
            let applied = api.patch(name, &params, &Patch::Apply(&object)).await;
            applied.map(|applied| assert_eq!((applied.spec, applied.status), (object.spec, object.status)))
        }
        Subresource(status) => {
            let patch = Patch::Merge(json!({"status": status}));
            api.patch_status(name, &params, &patch).await.map(drop)
        }
        Delete => api.delete(name, &DeleteParams { dry_run: true, ..DeleteParams::default() }).await.map(drop),
    };
    match result {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Whether a message begins with these words. For a rule, the API server puts the object and the field before them.
fn begins(message: &str, words: &str) -> bool {
    message.starts_with(words) || (message.starts_with("Delivery.relaybook.dev ") && message.contains(&format!(": {words}")))
}

#[tokio::test]
async fn edits_of_a_delivery_are_accepted_or_refused_as_documented() {
    let world = World::new("edited").await;
    let api = world.api::<Delivery>();
    for (name, status) in stored() {
        let object = if status.is_null() { validation::delivery() } else { validation::delivery_with(status.clone()) };
        let stored = world.create::<Delivery>(validation::named(name.to_owned(), object)).await;
        let kept = stored.status.map(|status| serde_json::to_value(status).unwrap()).unwrap_or_default();
        assert_eq!(kept, status, "{name}: the API server keeps the status of a create");
    }
    let mut wrong = Vec::new();
    for (what, name, edit, refused) in table() {
        match (make(&api, name, &edit).await, refused) {
            (Ok(()), None) => {}
            (Err(message), Some(words)) if begins(&message, words) => {}
            (Ok(()), Some(words)) => wrong.push(format!("{what}: accepted, not refused with: {words}")),
            (Err(message), _) => wrong.push(format!("{what}: {message}")),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
