//! The notifications of one pipeline that cannot be sent at present, for `Pipeline.status.dispatched.notifications`. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::refused::Refusal;
use crate::outbox::Applied;
use relaybook_api::delivery::Reason;
use relaybook_api::pipeline::NotReadyNotification;
use relaybook_api::pipeline::target::TargetInfo;
use relaybook_settings::config::{EffectiveNotification, nearest};
use relaybook_settings::render::COMMIT_REMEDY;

/// Maximum number of reported problems.
const MOST: usize = 100;
/// Maximum number of characters of a message.
const LONGEST: usize = 512;

/// A problem: reason and message.
pub type Wrong = (Reason, String);

/// Returns why the definition of a notification prevents recording or sending. A part that is not known yet is not a problem.
#[must_use]
pub fn defined_wrong(notification: &EffectiveNotification) -> Option<Wrong> {
    let problem = notification.intake.as_ref().err().or(notification.sending.as_ref().err());
    problem.filter(|problem| !problem.is_unknown()).map(|problem| (problem.reason(), problem.to_string()))
}

/// Returns the problem of a target whose revision contains no commit. `None` if the notification does not need a commit.
#[must_use]
pub fn lacks_commit(notification: &EffectiveNotification) -> Option<Wrong> {
    let needs = notification.sending.as_ref().is_ok_and(|sending| sending.needs_commit);
    needs.then(|| {
        (
            Reason::CommitMissing,
            format!("the template needs a commit, but the revision contains none or several; {COMMIT_REMEDY}"),
        )
    })
}

/// Returns the same problem, for all targets of a notification.
#[must_use]
pub fn all_lack_commits() -> Wrong {
    let message = "the template needs a commit, but each revision of its targets contains none or several";
    (Reason::CommitMissing, format!("{message}; {COMMIT_REMEDY}"))
}

/// Returns the problem of a target whose Git repository is not known. `None` if the notification does not need one.
#[must_use]
pub fn lacks_source(notification: &EffectiveNotification) -> Option<Wrong> {
    let parameters = notification.sending.as_ref().ok()?.needs_source.as_ref()?;
    let words = "the URL needs the repository of the target, which is not known";
    let named: Vec<_> = parameters.iter().map(|name| format!("spec.template.parameters.{name}")).collect();
    let remedy =
        if named.is_empty() { "write it into spec.endpoint.url".to_owned() } else { format!("set {}", named.join(" and ")) };
    Some((Reason::RepositoryMissing, format!("{words}; {remedy}, or set spec.source of the Pipeline")))
}

/// Lists the problems, in the order of names and of the spec. `wrong` is called once for each effective notification. `unfit` is called for
/// each target whose effective notification has no problem.
#[must_use]
pub fn troubles(
    notifications: &BTreeMap<String, Applied>,
    targets: &[TargetInfo],
    wrong: impl Fn(&EffectiveNotification) -> Option<Wrong>,
    unfit: impl Fn(&EffectiveNotification, &TargetInfo) -> Option<Wrong>,
) -> Vec<NotReadyNotification> {
    let mut all = Vec::new();
    for (name, applied) in notifications {
        let mut known: Vec<(Arc<EffectiveNotification>, Option<Wrong>)> = Vec::new();
        let mut of = |effective: &Arc<EffectiveNotification>| -> Option<Wrong> {
            if let Some((_, wrong)) = known.iter().find(|(of, _)| Arc::ptr_eq(of, effective)) {
                return wrong.clone();
            }
            known.push((effective.clone(), wrong(effective)));
            known.last().and_then(|(_, wrong)| wrong.clone())
        };
        let hint = applied.base.is_none().then(|| no_base(name, notifications));
        let mut wrong = |t: &TargetInfo| {
            let (reason, message) = applied.of(&t.log_subject().to_string()).and_then(|n| of(n).or_else(|| unfit(n, t)))?;
            Some((
                reason,
                hint.iter().filter(|_| reason == Reason::Incomplete).fold(message, |message, hint| message + hint),
            ))
        };
        let each: Vec<_> = targets.iter().map(|t| (t, wrong(t))).collect();
        // A problem that is the same for all targets is reported once.
        if let Some((_, Some(first))) = each.first()
            && each.iter().all(|(_, wrong)| wrong.as_ref() == Some(first))
        {
            all.push(trouble(name, None, first));
            continue;
        }
        all.extend(each.iter().filter_map(|(target, wrong)| wrong.as_ref().map(|w| trouble(name, Some(target), w))));
    }
    all.truncate(MOST);
    all
}

/// Returns what to add to the problem of layers that change no notification: the name is most likely misspelled.
fn no_base(name: &str, notifications: &BTreeMap<String, Applied>) -> String {
    let known = notifications.iter().filter(|(_, applied)| applied.base.is_some()).map(|(name, _)| name.as_str());
    let meant = nearest(name, known).map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
    format!(". No Notification and no global notification with the name {name} applies to this pipeline{meant}")
}

/// Returns the entry of a notification whose deliveries cannot be recorded.
#[must_use]
pub fn refused((name, refusal): (String, Refusal)) -> NotReadyNotification {
    trouble(&name, None, &(refusal.reason, refusal.detail))
}

fn trouble(name: &str, target: Option<&TargetInfo>, (reason, message): &Wrong) -> NotReadyNotification {
    NotReadyNotification {
        name: name.to_owned(),
        environment: target.map(|t| t.environment.clone()),
        target: target.map(|t| t.name.clone()),
        ready: false,
        reason: reason.as_str().to_owned(),
        message: message.chars().take(LONGEST).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::Overridden;
    use crate::outbox::testing::notification;
    use relaybook_settings::config::Problem;

    fn target(name: &str) -> TargetInfo {
        TargetInfo { name: name.into(), environment: "e".into(), ..TargetInfo::default() }
    }

    fn broken() -> Arc<EffectiveNotification> {
        let mut broken = notification("n");
        broken.sending = Err(Problem::Incomplete { field: "spec.template" });
        Arc::new(broken)
    }

    #[test]
    fn a_problem_of_all_targets_is_reported_once() {
        let (fine, broken) = (Arc::new(notification("n")), broken());
        let targets = [target("e/a"), target("e/b")];
        let told = |applied: Applied| {
            let all = BTreeMap::from([("deploys".to_owned(), applied)]);
            let told = troubles(&all, &targets, defined_wrong, |_, _| None);
            told.into_iter().map(|t| (t.target, t.reason)).collect::<Vec<_>>()
        };
        let base = |base: &Arc<EffectiveNotification>| Applied { base: Some(base.clone()), layered: None };
        assert!(told(base(&fine)).is_empty());
        assert_eq!(told(base(&broken)), [(None, "Incomplete".to_owned())]);
        let one = Overridden { rest: Some(fine), subjects: [("target/e/b".to_owned(), broken)].into() };
        let layered = Applied { layered: Some(Arc::new(one)), ..Applied::default() };
        assert_eq!(told(layered), [(Some("e/b".to_owned()), "Incomplete".to_owned())]);
    }

    #[test]
    fn layers_of_a_misspelled_notification_name_the_one_that_was_meant() {
        let fine = Applied { base: Some(Arc::new(notification("n"))), layered: None };
        let told = |name: &str, applied: Applied| {
            let all = BTreeMap::from([("deploys".to_owned(), fine.clone()), (name.to_owned(), applied)]);
            troubles(&all, &[target("e/a")], defined_wrong, |_, _| None).into_iter().map(|t| t.message).collect::<String>()
        };
        let only = |rest| Applied { base: None, layered: Some(Arc::new(Overridden { rest, ..Overridden::default() })) };
        let hint = "No Notification and no global notification with the name";
        let missing = "spec.template is missing: set it";
        assert_eq!(
            told("deplyos", only(Some(broken()))),
            format!("{missing}. {hint} deplyos applies to this pipeline; did you mean deploys?")
        );
        assert_eq!(told("audit", only(Some(broken()))), format!("{missing}. {hint} audit applies to this pipeline"));
        assert_eq!(told("audit", Applied { base: Some(broken()), layered: None }), missing);
        assert_eq!(told("audit", only(Some(Arc::new(notification("n"))))), "", "complete layers are a notification");
    }

    #[test]
    fn a_missing_repository_names_the_parameters() {
        let said = |needs_source: Option<&[&str]>| {
            let mut one = notification("n");
            let names = needs_source.map(|names| names.iter().copied().map(str::to_owned).collect());
            one.sending.as_mut().unwrap().needs_source = names;
            lacks_source(&one).map(|(_, message)| message)
        };
        assert_eq!(said(None), None);
        assert!(said(Some(&[])).unwrap().contains("; write it into spec.endpoint.url, or set"));
        let both = said(Some(&["owner", "repository"])).unwrap();
        assert!(both.contains("; set spec.template.parameters.owner and spec.template.parameters.repository, or"), "{both}");
    }

    #[test]
    fn a_target_without_a_commit_is_reported_only_if_a_commit_is_needed() {
        let told = |needs_commit: bool| {
            let mut one = notification("n");
            one.sending.as_mut().unwrap().needs_commit = needs_commit;
            let all = BTreeMap::from([("status".to_owned(), Applied { base: Some(Arc::new(one)), layered: None })]);
            let unfit = |n: &EffectiveNotification, t: &TargetInfo| lacks_commit(n).filter(|_| t.name == "e/b");
            let told = troubles(&all, &[target("e/a"), target("e/b")], defined_wrong, unfit);
            told.into_iter().map(|t| (t.target, t.reason)).collect::<Vec<_>>()
        };
        assert_eq!(told(true), [(Some("e/b".to_owned()), "CommitMissing".to_owned())]);
        assert_eq!(told(false), []);
    }
}
