//! Conditions of Argo CD Notifications as triggers. Pure.
//!
//! In: the expression of a condition. Out: transition types with conditions in CEL ([`Found`]), or why there is no counterpart. The catalog of Argo
//! CD has eight triggers. They are recognised by what they compare, and not by their text, so other words for the same condition are, too.

use serde_json::{Value, json};

use super::expr::{Is, Test, parse};
use super::gotemplate::Needs;
use relaybook_api::TransitionType;
use relaybook_api::TransitionType::{Added, Deployed, Drifted, Failed, Progressing, Recovered, Removed};
use relaybook_core::observe::is_public_annotation;
use relaybook_settings::trigger::When;

/// How long a drift must last.
const DRIFT: &str = "5m";

/// What a condition becomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) triggers: Vec<Trigger>,
    /// What differs.
    pub(super) differs: Vec<&'static str>,
    pub(super) needs: Needs,
}

/// A transition type, and its conditions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Trigger {
    pub(super) type_: TransitionType,
    /// The reason must be one of these, if there are any.
    pub(super) reasons: Vec<&'static str>,
    /// All of these must be true.
    pub(super) rest: Vec<String>,
    pub(super) lasts: Option<&'static str>,
}

impl Trigger {
    /// Returns the trigger with the conditions of a route. `None`: Relaybook does not accept the condition.
    pub(super) fn manifest(&self, more: &[String]) -> Option<Value> {
        let reasons = match self.reasons.as_slice() {
            [] => None,
            [one] => Some(format!("reason == {}", literal(one))),
            all => Some(format!("reason in {}", list(all))),
        };
        let parts: Vec<String> = reasons.into_iter().chain(self.rest.iter().cloned()).chain(more.iter().cloned()).collect();
        let mut trigger = json!({"type": self.type_.as_str()});
        if !parts.is_empty() {
            let when = parts.join(" && ");
            When::compile(&when).ok()?;
            trigger["when"] = json!(when);
        }
        if let Some(lasts) = self.lasts {
            trigger["for"] = json!(lasts);
        }
        Some(trigger)
    }
}

/// Returns a text of CEL. JSON has the same escapes.
pub(super) fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns a list of texts of CEL.
pub(super) fn list(all: &[impl AsRef<str>]) -> String {
    format!("[{}]", all.iter().map(|one| literal(one.as_ref())).collect::<Vec<_>>().join(", "))
}

/// What a condition says about the state of an Application.
#[derive(Default)]
struct State {
    phases: Option<Vec<String>>,
    healths: Option<Vec<String>>,
    syncs: Option<Vec<String>>,
    is_deleted: bool,
    /// What differs beside the state.
    differs: Option<&'static str>,
}

/// How often a condition is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Per {
    /// Whenever it becomes true.
    Time,
    /// Once for each revision.
    Revision,
    /// Once for each Application.
    Object,
}

/// Reads a condition.
pub(super) fn read(when: &str, per: Per) -> Result<Found, String> {
    let mut found = Found::default();
    for alternative in parse(when)? {
        let (mut state, mut rest) = (State::default(), Vec::new());
        for test in &alternative {
            if let Some(condition) = one(test, &mut state, &mut found.needs)? {
                rest.push(condition);
            }
        }
        for (type_, reason, differs) in state.transitions(per)? {
            let more: Vec<_> =
                [differs, state.differs].into_iter().flatten().filter(|one| !found.differs.contains(one)).collect();
            found.differs.extend(more);
            let lasts = (type_ == Drifted).then_some(DRIFT);
            let same = found
                .triggers
                .iter_mut()
                .find(|one| one.type_ == type_ && one.rest == rest && one.reasons.is_empty() == reason.is_none());
            match (same, reason) {
                (Some(same), Some(reason)) if !same.reasons.contains(&reason) => same.reasons.push(reason),
                (Some(_), _) => {}
                (None, reason) => {
                    let reasons = reason.into_iter().collect();
                    found.triggers.push(Trigger { type_, reasons, rest: rest.clone(), lasts });
                }
            }
        }
    }
    if found.triggers.iter().any(|trigger| trigger.manifest(&[]).is_none()) {
        return Err(
            "Relaybook does not accept the condition: it is too long, or has a pattern that RE2 does not know".to_owned()
        );
    }
    Ok(found)
}

/// Keeps what a test says about the state. Returns the condition in CEL for a test of something else.
fn one(test: &Test, state: &mut State, needs: &mut Needs) -> Result<Option<String>, String> {
    const GUARD: &str =
        "time.Parse(app.status.health.lastTransitionTime).Before(time.Parse(app.status.operationState.finishedAt))";
    let path: Vec<&str> = test.path.iter().map(String::as_str).collect();
    match (path.as_slice(), &test.is, test.negated) {
        // The health is newer than the operation, which Relaybook checks itself.
        ([], Is::Called(call), true) if call == GUARD => Ok(None),
        ([], Is::Called(_), _) => Err("a function has no counterpart".to_owned()),
        ([], Is::Always, false)
        | (["app", "status", "operationState"] | ["app", "status", "operationState", "syncResult"], Is::Present, false) => {
            Ok(None)
        }
        (["app", "metadata", "deletionTimestamp"], Is::Present, false) => {
            state.is_deleted = true;
            Ok(None)
        }
        (["app", "status", "operationState", "phase"], Is::Any(all), false) => narrow(&mut state.phases, all),
        (["app", "status", "health", "status"], Is::Any(all), false) => narrow(&mut state.healths, all),
        (["app", "status", "sync", "status"], Is::Any(all), false) => narrow(&mut state.syncs, all),
        (["app", "status", "sync", "status"], Is::Any(all), true) if all.iter().all(|one| one == "Synced") => {
            narrow(&mut state.syncs, &["OutOfSync".to_owned(), "Unknown".to_owned()])
        }
        (path, is, negated) => {
            if let (["app", "metadata", "labels", _], true) = (path, negated) {
                state.differs =
                    Some("it is also true for an Application without labels, for which the condition of Argo CD fails");
            }
            let condition = field(path, is, needs)?;
            Ok(Some(if negated { format!("!({condition})") } else { condition }))
        }
    }
}

#[allow(clippy::unnecessary_wraps, reason = "it ends the arms of a match")]
fn narrow(known: &mut Option<Vec<String>>, all: &[String]) -> Result<Option<String>, String> {
    let both = match known.take() {
        None => all.to_vec(),
        Some(before) => before.into_iter().filter(|one| all.contains(one)).collect(),
    };
    *known = Some(both);
    Ok(None)
}

/// Returns the condition for a field that is not a state.
fn field(path: &[&str], is: &Is, needs: &mut Needs) -> Result<String, String> {
    let recorded = |kind: &str, name: &str| {
        let (map, key) = (format!("target.app.{kind}"), literal(name));
        (format!("{map}[{key}]"), Some(format!("{key} in {map}")))
    };
    let (value, exists) = match path {
        ["app", "metadata", "name"] => ("target.app.name".to_owned(), None),
        ["app", "metadata", "namespace"] => ("target.namespace".to_owned(), None),
        ["app", "status", "operationState" | "health", "message"] => ("message".to_owned(), None),
        ["app", "metadata", "labels", name] => {
            needs.labels.insert((*name).to_owned());
            recorded("labels", name)
        }
        ["app", "metadata", "annotations", name] if is_public_annotation(name) => {
            needs.annotations.insert((*name).to_owned());
            recorded("annotations", name)
        }
        ["app", "spec", "project"] | ["app", "spec", "source", "repoURL" | "path" | "chart"] => {
            let field = format!(".{}", path[1..].join("."));
            needs.fields.insert(field.clone());
            recorded("fields", &field)
        }
        _ => return Err(format!("a change has no field {}", path.join("."))),
    };
    let condition = match is {
        Is::Any(all) => match all.as_slice() {
            [one] => format!("{value} == {}", literal(one)),
            all => format!("{value} in {}", list(all)),
        },
        Is::Like(operator, text) => format!("{value}.{operator}({})", literal(text)),
        Is::Present => return exists.ok_or_else(|| format!("{} always exists", path.join("."))),
        Is::Called(_) | Is::Always => return Err("a function has no counterpart".to_owned()),
    };
    Ok(match exists {
        Some(exists) => format!("({exists} && {condition})"),
        None => condition,
    })
}

/// A transition type, the reason that it must have, and what differs.
type Transition = (TransitionType, Option<&'static str>, Option<&'static str>);

impl State {
    fn transitions(&self, per: Per) -> Result<Vec<Transition>, String> {
        let none = |text: &str| Err(format!("{text} has no counterpart"));
        let values = |all: &Option<Vec<String>>| all.clone().unwrap_or_default();
        let (phases, healths, syncs) = (values(&self.phases), values(&self.healths), values(&self.syncs));
        let is_in_sync = self.syncs.is_none() || syncs == ["Synced"];
        match (self.is_deleted, self.phases.is_some(), self.healths.is_some(), self.syncs.is_some()) {
            (true, false, false, false) => {
                let differs = "Removed is sent when the Application is gone, and not when its deletion begins";
                Ok(vec![(Removed, None, Some(differs))])
            }
            (true, ..) => none("a state of an Application that is being deleted"),
            (false, false, false, false) if per == Per::Object => {
                let differs =
                    "Added is sent when an Application appears, and not for those that exist when Relaybook starts";
                Ok(vec![(Added, None, Some(differs))])
            }
            (false, false, false, false) => none("a condition without a state"),
            (false, true, false, _) if is_in_sync => phases.iter().map(|phase| of_phase(phase)).collect(),
            (false, true, true, _) if is_in_sync && phases == ["Succeeded"] && healths == ["Healthy"] => {
                let differs = "Deployed is sent for another revision, and not for each sync operation";
                Ok(vec![(Deployed, None, (per == Per::Time).then_some(differs))])
            }
            (false, false, true, _) if is_in_sync => {
                let all = healths.iter().map(|health| of_health(health)).collect::<Result<Vec<_>, _>>()?;
                Ok(all.into_iter().flatten().collect())
            }
            (false, false, false, true) => syncs.iter().map(|sync| of_sync(sync)).collect(),
            _ => none("this combination of states"),
        }
    }
}

fn of_phase(phase: &str) -> Result<Transition, String> {
    match phase {
        "Succeeded" => Ok((Deployed, None, Some("Deployed is sent when the Application is also healthy"))),
        "Running" => Ok((
            Progressing,
            None,
            Some("Progressing is sent when another revision is tried, and not for each sync operation"),
        )),
        "Error" => Ok((Failed, Some("SyncError"), None)),
        "Failed" => Ok((Failed, Some("SyncFailed"), None)),
        other => Err(format!("the phase {other} has no counterpart")),
    }
}

fn of_health(health: &str) -> Result<Vec<Transition>, String> {
    match health {
        "Degraded" => {
            let differs = "Failed is not sent while a sync operation runs, has failed, or is newer than the health";
            Ok(vec![(Failed, Some("Degraded"), Some(differs))])
        }
        "Healthy" => {
            let differs = Some("Deployed is sent for another revision, and Recovered after a failure");
            Ok(vec![(Deployed, None, differs), (Recovered, None, differs)])
        }
        "Progressing" => {
            let differs = Some("Progressing is sent when another revision is tried");
            Ok(vec![(Progressing, None, differs)])
        }
        other => Err(format!("the health {other} has no counterpart")),
    }
}

fn of_sync(sync: &str) -> Result<Transition, String> {
    match sync {
        "OutOfSync" => {
            Ok((Drifted, None, Some("Drifted is sent after 5 minutes, because each new commit is a drift for a moment")))
        }
        "Unknown" => Ok((Failed, Some("ComparisonError"), Some("Failed is sent if Argo CD also reports a ComparisonError"))),
        other => Err(format!("the state {other} alone has no counterpart")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the triggers of a condition. `~` before them: something differs. `!`: it was refused.
    fn shown(when: &str, per: Per) -> String {
        match read(when, per) {
            Err(why) => format!("!{why}"),
            Ok(found) => {
                let one = |trigger: &Trigger| {
                    let manifest = trigger.manifest(&[]).unwrap();
                    let when = manifest["when"].as_str().map(|when| format!(" if {when}")).unwrap_or_default();
                    let lasts = manifest["for"].as_str().map(|lasts| format!(" for {lasts}")).unwrap_or_default();
                    format!("{}{lasts}{when}", trigger.type_.as_str())
                };
                let all: Vec<_> = found.triggers.iter().map(one).collect();
                format!("{}{}", if found.differs.is_empty() { "" } else { "~" }, all.join("; "))
            }
        }
    }

    #[test]
    fn the_triggers_of_the_catalog_and_their_relatives_are_recognised() {
        for (when, expected) in [
            ("app.metadata.deletionTimestamp != nil", "~Removed"),
            (
                "app.status.operationState != nil and app.status.operationState.phase in ['Succeeded'] and app.status.health.status \
                 == 'Healthy' and !time.Parse(app.status.health.lastTransitionTime).Before(time.Parse(app.status.operationState.finishedAt))",
                "Deployed",
            ),
            ("app.status.operationState.phase in ['Succeeded'] and app.status.health.status == 'Healthy'", "Deployed"),
            ("app.status.health.status == 'Degraded'", "~Failed if reason == \"Degraded\""),
            (
                "app.status.operationState != nil and app.status.operationState.phase in ['Error', 'Failed']",
                "Failed if reason in [\"SyncError\", \"SyncFailed\"]",
            ),
            ("app.status?.operationState.phase in ['Running']", "~Progressing"),
            ("app.status.sync.status == 'Unknown'", "~Failed if reason == \"ComparisonError\""),
            ("app.status.operationState.phase in ['Succeeded']", "~Deployed"),
            ("app.status.sync.status == 'OutOfSync'", "~Drifted for 5m"),
            ("app.status.sync.status != 'Synced'", "~Drifted for 5m; Failed if reason == \"ComparisonError\""),
            ("app.status.health.status == 'Healthy'", "~Deployed; Recovered"),
            (
                "app.status.health.status == 'Degraded' || app.status.operationState.phase == 'Failed'",
                "~Failed if reason in [\"Degraded\", \"SyncFailed\"]",
            ),
            (
                "app.status.health.status == 'Degraded' and app.metadata.name startsWith 'web'",
                "~Failed if reason == \"Degraded\" && target.app.name.startsWith(\"web\")",
            ),
            (
                "app.status.health.status == 'Degraded' and app.spec.project != 'test'",
                "~Failed if reason == \"Degraded\" && !((\".spec.project\" in target.app.fields && \
                 target.app.fields[\".spec.project\"] == \"test\"))",
            ),
            (
                "app.status.health.status == 'Degraded' and app.metadata.labels['tier'] in ['gold', 'silver']",
                "~Failed if reason == \"Degraded\" && (\"tier\" in target.app.labels && target.app.labels[\"tier\"] in [\"gold\", \
                 \"silver\"])",
            ),
            ("app.status.health.status == 'Missing'", "!the health Missing has no counterpart"),
            ("app.status.sync.status == 'Synced'", "!the state Synced alone has no counterpart"),
            ("app.status.operationState.phase == 'Terminating'", "!the phase Terminating has no counterpart"),
            (
                "app.status.health.status == 'Degraded' and app.status.sync.status == 'OutOfSync'",
                "!this combination of states has no counterpart",
            ),
            ("app.spec.destination.name == 'x'", "!a change has no field app.spec.destination.name"),
            ("app.metadata.name == 'x'", "!a condition without a state has no counterpart"),
            ("true", "!a condition without a state has no counterpart"),
            ("repo.GetCommitMetadata(app.status.sync.revision)", "!a function has no counterpart"),
            ("app.status.health.status != 'Healthy'", "!a change has no field app.status.health.status"),
        ] {
            assert_eq!(shown(when, Per::Revision), expected, "{when}");
        }
        assert_eq!(shown("true", Per::Object), "~Added");
        let deployed = "app.status.operationState.phase in ['Succeeded'] and app.status.health.status == 'Healthy'";
        assert_eq!(shown(deployed, Per::Time), "~Deployed");
    }
}
