//! Commit statuses are set on the commit of the revision.

use relaybook_api::TransitionType;
use relaybook_api::TransitionType::{Deployed, Failed, Removed};
use relaybook_api::delivery::SubjectKind;
use relaybook_api::notification::Builtin;
use relaybook_settings::render::Data;

use crate::awkward::COMMIT;
use crate::json::texts;
use crate::subject::{Parameters, Subject};

const STATUSES: [Builtin; 6] = [
    Builtin::GithubCommitStatus,
    Builtin::GitlabCommitStatus,
    Builtin::GiteaCommitStatus,
    Builtin::BitbucketBuildStatus,
    Builtin::BitbucketServerBuildStatus,
    Builtin::AzureDevopsGitStatus,
];

/// The templates whose requests name the commit in the body, with its place.
const OBJECTS: [(Builtin, &str); 3] =
    [(Builtin::GithubDeployment, "/ref"), (Builtin::GithubCheckRun, "/head_sha"), (Builtin::GitlabDeployment, "/sha")];

/// Returns the path of the status request for a revision, or the error.
fn path(builtin: Builtin, type_: TransitionType, revision: &str, previous: &str) -> Result<String, String> {
    let mut data = Data::sample(type_);
    revision.clone_into(&mut data.revision);
    previous.clone_into(&mut data.previous_revision);
    let request = Subject::example(builtin, Parameters::Required).render(&data).map_err(|problem| problem.to_string())?;
    Ok(request.url.path().to_owned())
}

#[test]
fn the_hash_is_found_in_every_kind_of_revision() {
    let long = "a".repeat(63) + "1";
    let revisions = [
        (format!("main@sha1:{COMMIT}"), COMMIT),
        (format!("feature/x@y@sha1:{COMMIT}"), COMMIT),
        (format!("main/{COMMIT}"), COMMIT),
        (format!("sha1:{COMMIT}"), COMMIT),
        (COMMIT.to_owned(), COMMIT),
        (long.clone(), long.as_str()),
        // An Application with a chart and a Git source.
        (format!("6.5.0,{COMMIT}"), COMMIT),
        (format!("{COMMIT},6.5.0"), COMMIT),
    ];
    for builtin in STATUSES {
        for (revision, hash) in &revisions {
            let path =
                path(builtin, Deployed, revision, "").unwrap_or_else(|problem| panic!("{}: {problem}", builtin.as_str()));
            assert!(path.split('/').any(|segment| segment == *hash), "{}, {revision}: {path}", builtin.as_str());
        }
    }
}

#[test]
fn removed_is_reported_for_the_commit_that_ran() {
    for builtin in STATUSES {
        assert!(path(builtin, Removed, "", COMMIT).unwrap().contains(COMMIT), "{}", builtin.as_str());
    }
}

#[test]
fn deployments_and_check_runs_are_about_the_commit_of_the_revision() {
    for (builtin, pointer) in OBJECTS {
        let (name, subject) = (builtin.as_str(), Subject::example(builtin, Parameters::Required));
        for (type_, commit) in [(Deployed, COMMIT), (Failed, COMMIT), (Removed, OLD)] {
            assert_eq!(subject.body(type_, |_| {}).pointer(pointer).and_then(|sha| sha.as_str()), Some(commit), "{name}");
        }
        // Such a delivery is Canceled, as that of a commit status.
        for (type_, revision) in [(Deployed, "6.5.0"), (Failed, ""), (Removed, "")] {
            let (revision, previous_revision) = (revision.to_owned(), revision.to_owned());
            let data = Data { revision, previous_revision, ..Data::sample(type_) };
            let problem = subject.render(&data).err().unwrap();
            assert!(problem.is_without_commit(), "{name}, {}: {problem}", type_.as_str());
        }
    }
}

/// A sync of Argo CD can fail before it knows its commit. The commit that runs has not failed.
#[test]
fn nothing_is_reported_about_a_commit_that_was_not_tried() {
    let is_about_targets = |type_: &TransitionType| type_.subject() != SubjectKind::Cluster && *type_ != Removed;
    for builtin in STATUSES {
        let metadata = &relaybook_settings::render::builtin(builtin).metadata;
        for type_ in TransitionType::ALL.into_iter().filter(|type_| metadata.reports(*type_)).filter(is_about_targets) {
            let problem = path(builtin, type_, "", COMMIT).expect_err(type_.as_str());
            let says = problem.contains("found an empty text instead of a commit hash in `revision`");
            let advises = problem.contains("follow an object");
            assert!(says && !advises, "{}, {}: {problem}", builtin.as_str(), type_.as_str());
        }
    }
}

/// An Application can have several Git sources with different commits. Its repository is not known, so none of them is chosen.
#[test]
fn several_commits_are_a_clear_error() {
    for builtin in STATUSES {
        let problem = path(builtin, Deployed, &format!("{COMMIT},{}", "a".repeat(40)), "").unwrap_err();
        let says = problem.contains("several commit hashes in `revision`") && problem.contains("one Git source");
        assert!(says, "{}: {problem}", builtin.as_str());
    }
}

#[test]
fn a_version_without_a_commit_is_a_clear_error() {
    for builtin in STATUSES {
        let digest = format!("6.5.0@sha256:{}", "a".repeat(64));
        for revision in ["6.5.0", "v1.2.3", "latest@sha256:short", "1234567", &digest] {
            let problem = path(builtin, Deployed, revision, COMMIT).expect_err(revision);
            let says = problem.contains("no commit hash in `revision`");
            assert!(says && !problem.contains(revision), "{}: {problem}", builtin.as_str());
        }
    }
}

/// The templates whose messages name the revision beside a label, with the label of the revision that runs and of the one that ran.
const MESSAGES: [(Builtin, [&str; 2]); 24] = [
    (Builtin::Slack, RUNS),
    (Builtin::Teams, RUNS),
    (Builtin::GoogleChat, RUNS),
    (Builtin::Discord, RUNS),
    (Builtin::Mattermost, RUNS),
    (Builtin::MattermostBot, RUNS),
    (Builtin::Rocketchat, RUNS),
    (Builtin::Telegram, RUNS),
    (Builtin::Matrix, RUNS),
    (Builtin::Webex, RUNS),
    (Builtin::Lark, RUNS),
    (Builtin::Zoom, RUNS),
    (Builtin::Ntfy, RUNS),
    (Builtin::Zulip, RUNS),
    (Builtin::Pushover, RUNS),
    (Builtin::GithubIssueComment, RUNS),
    (Builtin::GrafanaAnnotation, RUNS),
    (Builtin::DatadogEvent, RUNS),
    (Builtin::Pagerduty, ["running_revision", "previous_revision"]),
    (Builtin::Opsgenie, ["running_revision", "previous_revision"]),
    (Builtin::Alertmanager, ["running_revision", "previous_revision"]),
    (Builtin::IncidentIo, ["running_revision", "previous_revision"]),
    (Builtin::NewRelicEvent, ["running_revision", "previous_revision"]),
    (Builtin::FluxEvent, ["running_revision", "previous_revision"]),
];
const RUNS: [&str; 2] = ["Runs", "Ran"];
/// The commit that runs in the samples of a failure.
const OLD: &str = "9c1e1fd35d2e0b7a4a1bd2ae8e0a2b6a0f4f3e21";

/// Returns the texts of a message, each with its place.
fn words(builtin: Builtin, type_: TransitionType, change: impl FnOnce(&mut Data)) -> String {
    let body = Subject::example(builtin, Parameters::Required).body(type_, change);
    texts(&body).into_iter().map(|(place, text)| format!("{place} {text}\n")).collect::<Vec<_>>().concat()
}

#[test]
fn messages_distinguish_the_attempted_revision_from_the_running_one() {
    for (builtin, [label, _]) in MESSAGES {
        let name = builtin.as_str();
        let known = words(builtin, Failed, |_| {});
        assert!([COMMIT, OLD, label].iter().all(|word| known.contains(word)), "{name}: {known}");
        // The running revision has not failed.
        let unknown = words(builtin, Failed, |data| {
            data.revision.clear();
            data.links.compare.clear();
        });
        assert!([OLD, label].iter().all(|word| unknown.contains(word)), "{name}: {unknown}");
        assert!(![COMMIT, "Revision"].iter().any(|word| unknown.contains(word)), "{name}: {unknown}");
        // A revision that runs is named once.
        assert!(!words(builtin, Deployed, |_| {}).contains(label), "{name}");
    }
}

#[test]
fn a_message_about_a_removed_target_names_what_ran() {
    for (builtin, [_, label]) in MESSAGES {
        let text = words(builtin, Removed, |_| {});
        let opsgenie_note = builtin == Builtin::Opsgenie && text.contains("Ran: ");
        assert!(text.contains(label) || opsgenie_note, "{}: {text}", builtin.as_str());
        assert!(text.contains(OLD), "{}: {text}", builtin.as_str());
    }
}
