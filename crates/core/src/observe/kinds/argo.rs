//! Application of Argo CD
//! (<https://github.com/argoproj/argo-cd/blob/master/pkg/apis/application/v1alpha1/types.go>,
//! <https://argo-cd.readthedocs.io/en/stable/operator-manual/health/>).
//!
//! Three things are separate: the operation, which applies a revision to the cluster; the health of the live objects; and their comparison
//! with the source. A running or failed operation takes precedence over the health. The newest entry of the history is the running
//! revision, because `sync.revision` is only what was compared. `OutOfSync` is drift and not a failure. While the comparison is `Unknown`
//! (the source cannot be read), drift is unknown. If Argo CD also reports a `ComparisonError`, it cannot deploy what the source contains, and starts
//! no operation. That is a failure. What was tried is unknown, because the comparison names no revision.
//!
//! An operation can be requested by a name, such as `HEAD` or a branch. Its attempted revision is known once the name is resolved to a
//! commit or to a version of a chart.
//!
//! Health `Missing` is in progress: nothing was synced yet, or the object will be created again. Health `Unknown` is also in progress,
//! because it never decides. Health `Suspended` means that a rollout waits for a user: the previous state is kept until it continues.

use serde_json::Value;

use super::super::kstatus::Verdict;
use super::super::view::View;
use super::{Reading, Rules};
use relaybook_api::Status;
use relaybook_api::values::git::recorded;

pub(super) static APPLICATION: Rules =
    Rules { group: "argoproj.io", kind: "Application", reader: "argo-application/3", read };

/// Maximum number of reported sources of an Application.
const SOURCES: usize = 16;

/// What an operation says that takes precedence over the health.
struct Operation {
    verdict: Verdict,
    /// The attempted revision.
    tried: String,
    /// The Git repository of that. Empty: the operation names none.
    repository: String,
}

/// Reads an object. The Git repository is that of the revision that the status is about. The spec can already name another one, so it counts
/// only where nothing else is recorded.
fn read(view: &View<'_>) -> Reading {
    let reading = read_status(view);
    if !reading.repository.is_empty() {
        return reading;
    }
    let of_spec = view.at("/spec").map_or_else(String::new, git_source);
    reading.of_repository(of_spec)
}

fn read_status(view: &View<'_>) -> Reading {
    let entry = running(view);
    let running = entry.map_or_else(String::new, revision);
    let compared = view.text("/status/sync/status");
    let with_drift = |reading: Reading| reading.drifted(compared == "OutOfSync").drift_unknown(compared == "Unknown");
    if let Some(Operation { verdict, tried, repository }) = under_way(view).or_else(|| failed(view)) {
        return with_drift(Reading::named(verdict, &running, &tried).of_repository(repository));
    }
    let of_running = entry.map_or_else(String::new, git_source);
    let with_drift = |reading: Reading| with_drift(reading.of_repository(of_running));
    let verdict = healthy(view);
    if verdict.status != Status::Failed
        && let Some(failure) = not_compared(view)
    {
        return with_drift(Reading::named(failure, &running, ""));
    }
    let suspended = verdict.reason == "Suspended";
    with_drift(Reading::named(verdict, &running, &running).suspended(suspended))
}

/// Returns the Git repository of the last operation.
fn tried_repository(view: &View<'_>) -> String {
    let of = |pointer| view.at(pointer).map(git_source).filter(|found| !found.is_empty());
    of("/status/operationState/syncResult").or_else(|| of("/status/operationState/operation/sync")).unwrap_or_default()
}

/// Returns the address of the first Git repository of an entry, as it may be stored. A source with a chart is a repository of Helm.
fn git_source(entry: &Value) -> String {
    let several = entry.get("sources").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let all = several.iter().take(SOURCES).chain(entry.get("source"));
    let is_chart = |source: &Value| source.get("chart").and_then(Value::as_str).is_some_and(|chart| !chart.is_empty());
    let urls = all.filter(|source| !is_chart(source)).filter_map(|source| source.get("repoURL")?.as_str());
    urls.map(recorded).find(|address| !address.is_empty()).unwrap_or_default()
}

/// Returns the newest entry of the history.
fn newest<'a>(view: &View<'a>) -> Option<&'a Value> {
    let id = |entry: &&Value| entry.get("id").and_then(Value::as_i64).unwrap_or_default();
    view.list("/status/history").iter().max_by_key(id)
}

/// Returns the entry of the revision that was synced last. Without a history (`revisionHistoryLimit: 0`), returns the result of the last
/// operation if it succeeded, or else the comparison with which the live objects are in sync.
fn running<'a>(view: &View<'a>) -> Option<&'a Value> {
    newest(view).or_else(|| {
        if view.text("/status/operationState/phase") == "Succeeded" && !dry_run(view) {
            view.at("/status/operationState/syncResult")
        } else {
            view.at("/status/sync").filter(|_| view.text("/status/sync/status") == "Synced")
        }
    })
}

/// Returns an operation that runs, or that was requested and has not started.
fn under_way(view: &View<'_>) -> Option<Operation> {
    let asked_for = view.at("/operation/sync").filter(|sync| !is_dry(sync));
    let begun = ["Running", "Terminating"].contains(&view.text("/status/operationState/phase")) && !dry_run(view);
    if begun {
        let message = view.text("/status/operationState/message");
        let verdict = Verdict::in_progress("Syncing", or(message, "a sync operation is running"));
        return Some(Operation { verdict, tried: resolved(view, tried(view)), repository: tried_repository(view) });
    }
    let verdict = Verdict::in_progress("SyncRequested", "a sync operation was requested");
    asked_for.map(|sync| Operation { verdict, tried: resolved(view, revision(sync)), repository: git_source(sync) })
}

/// Returns the last operation if it has failed. Such an operation no longer counts if the live objects are in sync with another revision: the
/// change was reverted before anything was applied.
fn failed(view: &View<'_>) -> Option<Operation> {
    let phase = view.text("/status/operationState/phase");
    if !["Failed", "Error"].contains(&phase) || dry_run(view) {
        return None;
    }
    let (tried, compared) = (tried(view), view.at("/status/sync").map_or_else(String::new, revision));
    let another = compared != tried && !compared.is_empty() && !tried.is_empty();
    let taken_back = another && view.text("/status/sync/status") == "Synced" && !is_health_stale(view);
    let message = view.text("/status/operationState/message");
    let verdict = Verdict::failed(&format!("Sync{phase}"), or(message, "the last sync operation failed"));
    (!taken_back).then(|| Operation { verdict, tried: resolved(view, tried), repository: tried_repository(view) })
}

/// Returns the requested revision if it is a revision and not the name of one. Commits are revisions, and so are the results of the
/// comparison and of an operation. Otherwise returns an empty string.
fn resolved(view: &View<'_>, asked: String) -> String {
    let is_hash = |one: &str| [40, 64].contains(&one.len()) && one.bytes().all(|b| b.is_ascii_hexdigit());
    let known = ["/status/sync", "/status/operationState/syncResult"];
    let is_known = known.iter().any(|pointer| view.at(pointer).map(revision).as_deref() == Some(&asked));
    if is_known || asked.split(',').all(is_hash) { asked } else { String::new() }
}

/// Returns the status that follows from the health.
fn healthy(view: &View<'_>) -> Verdict {
    let health = view.text("/status/health/status");
    let message = or(view.text("/status/health/message"), error(view));
    match health {
        "" => Verdict::in_progress("NoStatus", "Argo CD has not reported a health status yet"),
        _ if is_health_stale(view) => {
            Verdict::in_progress("NotRefreshed", "the reported health is from before the last operation ended")
        }
        "Healthy" => Verdict::current(),
        "Degraded" => Verdict::failed(health, or(message, "a resource is degraded")),
        "Progressing" => Verdict::in_progress(health, or(message, "a resource is not healthy yet")),
        "Missing" => Verdict::in_progress(health, or(message, "a resource is not in the cluster")),
        "Suspended" => Verdict::in_progress(health, or(message, "a resource is suspended")),
        _ => Verdict::in_progress("HealthUnknown", or(message, "its health is unknown")),
    }
}

/// Whether the application was last refreshed before its last operation ended. Then health and comparison describe the state before the
/// operation. The end of an operation triggers a refresh, except after a dry run, which changes nothing.
fn is_health_stale(view: &View<'_>) -> bool {
    let (refreshed, finished) = (view.text("/status/reconciledAt"), view.text("/status/operationState/finishedAt"));
    if refreshed.is_empty() || dry_run(view) {
        return false;
    }
    // Both times are UTC with whole seconds, so their texts sort like the times. A short operation can start and end in the same second as
    // the refresh that triggered it. Then the refresh was earlier if it still reports `OutOfSync`.
    let within_a_second = refreshed == finished && view.text("/status/operationState/startedAt") == finished;
    refreshed < finished || (within_a_second && view.text("/status/sync/status") == "OutOfSync")
}

/// Returns the failure of a comparison: the source cannot be read, or its manifests cannot be generated. Argo CD ignores a server that does not
/// answer for some minutes. A comparison from before the end of the last operation does not count.
fn not_compared(view: &View<'_>) -> Option<Verdict> {
    let is_now = view.text("/status/sync/status") == "Unknown" && !is_health_stale(view);
    let error = view.condition("ComparisonError").filter(|_| is_now)?;
    Some(Verdict::failed("ComparisonError", or(error.message, "Argo CD cannot compare the source with the live state")))
}

/// Returns the message of the first condition that is an error, such as `ComparisonError`.
fn error<'a>(view: &View<'a>) -> &'a str {
    let text = |c: &'a Value, key| c.get(key).and_then(Value::as_str).unwrap_or_default();
    view.list("/status/conditions").iter().find(|c| text(c, "type").ends_with("Error")).map_or("", |c| text(c, "message"))
}

/// Returns the revision that the last operation tries or has tried.
fn tried(view: &View<'_>) -> String {
    let of = |pointer| view.at(pointer).map(revision).filter(|revision| !revision.is_empty());
    of("/status/operationState/syncResult").or_else(|| of("/status/operationState/operation/sync")).unwrap_or_default()
}

/// Returns the revision of an entry. For several sources, returns the revisions in their order, joined by `,`.
pub(super) fn revision(entry: &Value) -> String {
    let several = entry.get("revisions").and_then(Value::as_array).filter(|all| !all.is_empty());
    match several {
        Some(all) => all.iter().take(SOURCES).filter_map(Value::as_str).collect::<Vec<_>>().join(","),
        None => entry.get("revision").and_then(Value::as_str).unwrap_or_default().to_owned(),
    }
}

fn dry_run(view: &View<'_>) -> bool {
    view.at("/status/operationState/operation/sync").is_some_and(is_dry)
}

fn is_dry(sync: &Value) -> bool {
    sync.get("dryRun").and_then(Value::as_bool).unwrap_or_default()
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    /// An Application that runs `a`, is healthy and in sync. Its status fields are overwritten by those of `more`.
    fn app(more: Value) -> Value {
        let base = json!({"health": {"status": "Healthy"}, "sync": {"status": "Synced", "revision": "a"},
            "history": [{"id": 4, "revision": "z"}, {"id": 5, "revision": "a"}], "reconciledAt": "2026-01-01T10:00:00Z",
            "operationState": operation("Succeeded", "a")});
        with(&base, more)
    }

    fn operation(phase: &str, revision: &str) -> Value {
        json!({"phase": phase, "message": "words", "syncResult": {"revision": revision}, "finishedAt": "2026-01-01T09:00:00Z"})
    }

    fn health(status: &str) -> Value {
        json!({"health": {"status": status}})
    }

    fn out_of_sync() -> Value {
        json!({"status": "OutOfSync", "revision": "b"})
    }

    fn op(phase: &str, revision: &str) -> Value {
        json!({"operationState": operation(phase, revision)})
    }

    /// A sync to a branch that does not exist, while the comparison is out of sync.
    fn never_resolved() -> Value {
        json!({"sync": out_of_sync(), "operationState": {"phase": "Error", "message": "words", "syncResult": null,
            "operation": {"sync": {"revision": "no-such-branch"}}}})
    }

    /// An operation that starts and ends in the second in which the application is refreshed.
    fn within_a_second(more: Value) -> Value {
        let second = "2026-01-01T09:00:00Z";
        with(&json!({"reconciledAt": second, "operationState": {"startedAt": second, "finishedAt": second}}), more)
    }

    /// A dry run of `b`, with more of the status.
    fn dry_run(phase: &str, more: Value) -> Value {
        let ran = with(&operation(phase, "b"), json!({"operation": {"sync": {"revision": "b", "dryRun": true}}}));
        with(&json!({"operationState": ran}), more)
    }

    fn asked(sync: &Value) -> Value {
        json!({"operationState": {"phase": "Running", "operation": {"sync": sync}}})
    }

    /// Checks cases: the name, the status, and the expected status, running revision and attempted revision.
    fn hold(cases: impl IntoIterator<Item = (&'static str, Value, Status, &'static str, &'static str)>) {
        for (name, status, want, runs, tried) in cases {
            let seen = read(APPLICATION, json!({}), status);
            assert_eq!(summary(&seen), (want, runs, tried), "{name}");
            assert_eq!((seen.reason.is_empty(), seen.message.is_empty()), (want == Current, want == Current), "{name}");
            assert!(!seen.suspended, "{name}");
        }
    }

    #[test]
    fn the_status_of_an_application_is_that_of_its_operation_and_then_its_health() {
        hold([
            ("healthy", app(json!({})), Current, "a", "a"),
            ("healthy and out of sync", app(json!({"sync": out_of_sync()})), Current, "a", "a"),
            ("compared with a newer one", app(json!({"sync": {"status": "Synced", "revision": "b"}})), Current, "a", "a"),
            ("progressing", app(health("Progressing")), InProgress, "a", "a"),
            ("degraded", app(health("Degraded")), Failed, "a", "a"),
            ("missing", app(health("Missing")), InProgress, "a", "a"),
            ("health unknown", app(health("Unknown")), InProgress, "a", "a"),
            ("health of a later version", app(health("Sleepy")), InProgress, "a", "a"),
            ("syncs", app(op("Running", "b")), InProgress, "a", "b"),
            ("syncs while degraded", app(with(&health("Degraded"), op("Running", "b"))), InProgress, "a", "b"),
            ("begins to sync", app(asked(&json!({"revision": COMMIT}))), InProgress, "a", COMMIT),
            ("begins to sync a branch", app(asked(&json!({"revision": "main"}))), InProgress, "a", ""),
            ("begins to sync as compared", app(asked(&json!({"revision": "a"}))), InProgress, "a", "a"),
            ("fails before it is known what it is", app(never_resolved()), Failed, "a", ""),
            ("is told to end", app(op("Terminating", "b")), InProgress, "a", "b"),
            ("fails", app(with(&op("Failed", "b"), json!({"sync": out_of_sync()}))), Failed, "a", "b"),
            ("fails by error", app(op("Error", "a")), Failed, "a", "a"),
            (
                "fails after it was applied",
                app(with(&op("Failed", "b"), json!({"sync": {"status": "Synced", "revision": "b"}}))),
                Failed,
                "a",
                "b",
            ),
            ("fails and is taken back", app(op("Failed", "b")), Current, "a", "a"),
        ]);
    }

    #[test]
    fn a_dry_run_changes_nothing() {
        hold([
            ("a dry run", app(asked(&json!({"revision": "b", "dryRun": true}))), Current, "a", "a"),
            (
                "a dry run fails",
                app(json!({"operationState": {"phase": "Failed", "operation": {"sync": {"dryRun": true}}}})),
                Current,
                "a",
                "a",
            ),
            (
                "a dry run has ended",
                app(dry_run("Succeeded", json!({"reconciledAt": "2026-01-01T08:59:59Z"}))),
                Current,
                "a",
                "a",
            ),
            (
                "a dry run has ended, and something is degraded",
                app(dry_run("Succeeded", with(&health("Degraded"), json!({"reconciledAt": "2026-01-01T08:59:59Z"})))),
                Failed,
                "a",
                "a",
            ),
            (
                "a dry run has ended, no history is kept",
                app(dry_run("Succeeded", json!({"history": []}))),
                Current,
                "a",
                "a",
            ),
        ]);
    }

    #[test]
    fn a_comparison_from_before_the_end_of_the_operation_does_not_count() {
        hold([
            ("not looked at since", app(json!({"reconciledAt": "2026-01-01T08:59:59Z"})), InProgress, "a", "a"),
            (
                "not looked at since, within one second",
                app(within_a_second(json!({"sync": out_of_sync()}))),
                InProgress,
                "a",
                "a",
            ),
            (
                "looked at when it ended, and something is left out",
                app(json!({"reconciledAt": "2026-01-01T09:00:00Z", "sync": out_of_sync()})),
                Current,
                "a",
                "a",
            ),
            ("looked at since, within one second", app(within_a_second(json!({}))), Current, "a", "a"),
            (
                "degraded before",
                app(with(&health("Degraded"), json!({"reconciledAt": "2026-01-01T08:59:59Z"}))),
                InProgress,
                "a",
                "a",
            ),
            (
                "fails, compared before",
                app(with(&op("Failed", "b"), json!({"reconciledAt": "2026-01-01T08:59:59Z"}))),
                Failed,
                "a",
                "b",
            ),
        ]);
    }

    #[test]
    fn an_application_without_history_shows_what_its_status_says() {
        hold([
            (
                "fails and is taken back, no history is kept",
                app(with(&op("Failed", "b"), json!({"history": []}))),
                Current,
                "a",
                "a",
            ),
            (
                "never synced",
                json!({"health": {"status": "Missing"}, "sync": {"status": "OutOfSync", "revision": "b"}}),
                InProgress,
                "",
                "",
            ),
            ("no history is kept", app(json!({"history": []})), Current, "a", "a"),
            (
                "no history, and failing",
                app(with(&op("Failed", "b"), json!({"history": null, "sync": out_of_sync()}))),
                Failed,
                "",
                "b",
            ),
            ("never looked at", json!({}), InProgress, "", ""),
            ("health is to come", json!({"sync": {"status": "Unknown"}}), InProgress, "", ""),
        ]);
    }

    #[test]
    fn a_requested_operation_is_in_progress() {
        let mut application = object(APPLICATION, &json!({}), &app(json!({})));
        for (operation, want, tried) in [
            (json!({"sync": {"revision": COMMIT}}), InProgress, COMMIT),
            (json!({"sync": {"revision": "HEAD"}}), InProgress, ""),
            (json!({"sync": {"revision": "b", "dryRun": true}}), Current, "a"),
            (json!({"initiatedBy": {"username": "me"}}), Current, "a"),
        ] {
            application.data["operation"] = operation;
            assert_eq!(summary(&seen(&application)), (want, "a", tried));
        }
    }

    #[test]
    fn out_of_sync_is_drift() {
        for (sync, want) in [("OutOfSync", true), ("Synced", false), ("Unknown", false)] {
            for more in [json!({}), health("Degraded"), json!({"operationState": operation("Running", "b")})] {
                let status = with(&app(more), json!({"sync": {"status": sync, "revision": "b"}}));
                let seen = read(APPLICATION, json!({}), status);
                assert_eq!((seen.drifted, seen.drift_unknown), (want, sync == "Unknown"), "{sync}");
            }
        }
    }

    #[test]
    fn suspended_health_keeps_the_state_before() {
        let seen = read(APPLICATION, json!({}), app(health("Suspended")));
        assert_eq!((summary(&seen), seen.suspended), ((InProgress, "a", "a"), true));
        for phase in ["Running", "Failed"] {
            let more = with(&health("Suspended"), json!({"operationState": operation(phase, "a")}));
            assert!(!read(APPLICATION, json!({}), app(more)).suspended, "an operation is news: {phase}");
        }
    }

    #[test]
    fn a_comparison_that_fails_is_a_failure_of_no_known_revision() {
        let failing = |type_: &str, sync: &str| {
            let condition = json!({"type": type_, "message": "Failed to load target state: no such chart"});
            app(
                json!({"conditions": [{"type": "OrphanedResourceWarning", "message": "no"}, condition], "sync": {"status": sync, "revision": ""}}),
            )
        };
        let broken = failing("ComparisonError", "Unknown");
        let stale = json!({"reconciledAt": "2026-01-01T08:59:59Z"});
        for (name, status, want, tried, reason) in [
            ("healthy", broken.clone(), Failed, "", "ComparisonError"),
            ("progressing", with(&broken, health("Progressing")), Failed, "", "ComparisonError"),
            ("health unknown", with(&broken, health("Unknown")), Failed, "", "ComparisonError"),
            ("suspended", with(&broken, health("Suspended")), Failed, "", "ComparisonError"),
            ("degraded", with(&broken, health("Degraded")), Failed, "a", "Degraded"),
            ("syncs", with(&broken, op("Running", "b")), InProgress, "b", "Syncing"),
            ("sync failed", with(&broken, op("Failed", "b")), Failed, "b", "SyncFailed"),
            ("not looked at since", with(&broken, stale), InProgress, "a", "NotRefreshed"),
            ("compared again", failing("ComparisonError", "Synced"), Current, "a", ""),
            ("cannot be compared yet", failing("SharedResourceWarning", "Unknown"), Current, "a", ""),
            ("another error", failing("InvalidSpecError", "Unknown"), Current, "a", ""),
        ] {
            let seen = read(APPLICATION, json!({}), status);
            assert_eq!((summary(&seen), seen.reason.as_str()), ((want, "a", tried), reason), "{name}");
            assert!(!seen.suspended && !seen.drifted, "{name}");
        }
        let seen = read(APPLICATION, json!({}), broken);
        assert_eq!(seen.message, "Failed to load target state: no such chart");
        assert!(seen.drift_unknown);
        let never = json!({"conditions": [{"type": "ComparisonError"}], "sync": {"status": "Unknown"}, "health": {"status": "Healthy"}});
        let seen = read(APPLICATION, json!({}), never);
        assert_eq!(
            (summary(&seen), seen.message.as_str()),
            ((Failed, "", ""), "Argo CD cannot compare the source with the live state")
        );
    }

    #[test]
    fn several_sources_are_one_revision() {
        let several = |revisions: Value| json!({"revision": "", "revisions": revisions});
        let status = app(json!({"history": [with(&json!({"id": 9}), several(json!(["a", "1.2"])))],
            "operationState": {"phase": "Running", "syncResult": several(json!(["b", "1.2"]))}}));
        assert_eq!(summary(&read(APPLICATION, json!({}), status)), (InProgress, "a,1.2", "b,1.2"));
    }

    #[test]
    fn failures_have_the_message_of_argo() {
        let degraded = json!({"health": {"status": "Degraded", "message": "no pods"}});
        let unknown = with(
            &health("Unknown"),
            json!({"conditions": [{"type": "SharedResourceWarning", "message": "no"},
            {"type": "ComparisonError", "message": "no such branch"}]}),
        );
        for (more, reason, message) in [
            (json!({"operationState": operation("Failed", "a")}), "SyncFailed", "words"),
            (json!({"operationState": operation("Error", "a")}), "SyncError", "words"),
            (degraded, "Degraded", "no pods"),
            (unknown, "HealthUnknown", "no such branch"),
        ] {
            let seen = read(APPLICATION, json!({}), app(more));
            assert_eq!((seen.reason.as_str(), seen.message.as_str()), (reason, message));
        }
    }

    #[test]
    fn the_repository_is_that_of_the_revision_and_not_of_the_spec() {
        let git = |name: &str| json!({"repoURL": format!("https://user:t0ken@github.com/acme/{name}.git")});
        let chart = json!({"repoURL": "https://charts.example.com/acme/stable", "chart": "redis"});
        let history =
            |entry: Value| json!([with(&json!({"id": 9, "revision": "a"}), entry), {"id": 3, "source": git("old")}]);
        let ran = app(json!({"history": history(json!({"source": git("ran")}))}));
        let result = |entry: Value| json!({"operationState": {"phase": "Running", "syncResult": with(&json!({"revision": "b"}), entry)}});
        let huge = json!({"repoURL": format!("https://github.com/acme/{}", "x".repeat(10 * 1024 * 1024))});
        for (name, spec, status, want) in [
            ("only the spec", json!({"source": git("spec")}), app(json!({})), "spec"),
            ("the spec was edited since", json!({"source": git("spec")}), ran.clone(), "ran"),
            ("it tries the spec", json!({"source": git("spec")}), with(&ran, result(json!({}))), "spec"),
            (
                "it tried another",
                json!({"source": git("spec")}),
                with(&ran, result(json!({"source": git("tried")}))),
                "tried",
            ),
            ("several sources", json!({"sources": [chart.clone(), git("two"), git("three")]}), app(json!({})), "two"),
            ("a chart", json!({"source": chart.clone()}), app(json!({})), ""),
            ("a hostile one", json!({"source": {"repoURL": "javascript:alert(1)//a/b"}}), app(json!({})), ""),
            ("a huge one", json!({"source": huge}), app(json!({})), ""),
            ("no text", json!({"source": {"repoURL": 5}, "sources": {}}), app(json!({})), ""),
        ] {
            let want = if want.is_empty() { String::new() } else { format!("https://github.com/acme/{want}.git") };
            assert_eq!(read(APPLICATION, spec, status).repository, want, "{name}");
        }
    }

    #[test]
    fn the_repository_is_that_of_the_operation_only_if_the_revision_is() {
        let git = |name: &str| json!({"repoURL": format!("https://github.com/acme/{name}")});
        let with_source = |mut operation: Value| {
            operation["operationState"]["syncResult"]["source"] = git("tried");
            operation
        };
        let ran = |more: Value| app(with(&json!({"history": [{"id": 9, "revision": "a", "source": git("ran")}]}), more));
        let failed = with_source(op("Failed", "b"));
        let degraded = with(&health("Degraded"), failed.clone());
        let stale = json!({"reconciledAt": "2026-01-01T08:59:59Z"});
        let asked = |sync: Value| json!({"sync": with(&json!({"revision": COMMIT}), sync)});
        for (name, status, requested, want) in [
            ("runs", ran(with_source(op("Running", "b"))), json!(null), "tried"),
            ("failed", ran(with(&failed, json!({"sync": out_of_sync()}))), json!(null), "tried"),
            ("failed and taken back, and degraded", ran(degraded), json!(null), "ran"),
            ("degraded after a dry run", ran(with_source(dry_run("Succeeded", health("Degraded")))), json!(null), "ran"),
            ("not looked at since", ran(with(&with_source(op("Succeeded", "b")), stale)), json!(null), "ran"),
            ("the history names none", app(with_source(op("Succeeded", "b"))), json!(null), "spec"),
            (
                "no history is kept",
                app(with(&with_source(op("Succeeded", "b")), json!({"history": []}))),
                json!(null),
                "tried",
            ),
            ("requested", ran(with_source(op("Succeeded", "b"))), asked(json!({})), "spec"),
            (
                "requested of another",
                ran(with_source(op("Succeeded", "b"))),
                asked(json!({"source": git("asked")})),
                "asked",
            ),
        ] {
            let mut application = object(APPLICATION, &json!({"source": git("spec")}), &status);
            application.data["operation"] = requested;
            assert_eq!(seen(&application).repository, format!("https://github.com/acme/{want}"), "{name}");
        }
    }
}
