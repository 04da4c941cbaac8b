//! Commit statuses are set on the commit of the revision.

use pennant::api::TransitionType;
use pennant::api::notification::Builtin;
use pennant::render::Data;

use crate::awkward::COMMIT;
use crate::subject::{Parameters, Subject};

const STATUSES: [Builtin; 5] = [
    Builtin::GithubCommitStatus,
    Builtin::GitlabCommitStatus,
    Builtin::GiteaCommitStatus,
    Builtin::BitbucketBuildStatus,
    Builtin::AzureDevopsGitStatus,
];

/// Returns the path of the status request for a revision, or the error.
fn path(builtin: Builtin, revision: &str, previous: &str) -> Result<String, String> {
    let mut data = Data::sample(TransitionType::Deployed);
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
    ];
    for builtin in STATUSES {
        for (revision, hash) in &revisions {
            let path = path(builtin, revision, "").unwrap_or_else(|problem| panic!("{}: {problem}", builtin.as_str()));
            assert!(path.split('/').any(|segment| segment == *hash), "{}, {revision}: {path}", builtin.as_str());
        }
    }
}

#[test]
fn removed_is_reported_for_the_commit_that_ran() {
    for builtin in STATUSES {
        assert!(path(builtin, "", COMMIT).unwrap().contains(COMMIT), "{}", builtin.as_str());
    }
}

#[test]
fn a_version_without_a_commit_is_a_clear_error() {
    for builtin in STATUSES {
        let digest = format!("6.5.0@sha256:{}", "a".repeat(64));
        for revision in ["6.5.0", "v1.2.3", "latest@sha256:short", "1234567", &digest] {
            let problem = path(builtin, revision, "").expect_err(revision);
            let says = problem.contains("no commit hash in `(default revision previousRevision)`");
            assert!(says && !problem.contains(revision), "{}: {problem}", builtin.as_str());
        }
    }
}
