//! Pure: the values that a promotion sets in the files of a repository.
//!
//! In: the files, the environment of the promotion, and its revision. Out: the files that change, with their whole new content; or why nothing
//! can be set, with file and line.

use std::collections::BTreeMap;

use bytes::Bytes;

use relaybook_core::promotion::progress::{Lasts, Problem};
use relaybook_core::promotion::text::{bounded, shown};
use relaybook_git::{Snapshot, WhyLeftOut};
use relaybook_settings::setters;
use relaybook_settings::setters::{EnvironmentRef, NoSetters, Revision};

/// Maximum number of problems in a message.
const NAMED: usize = 3;

/// Returns the files that change. They are empty if all values are set already. `paths`: the paths that were read, for messages.
pub(super) fn edits(
    snapshot: &Snapshot,
    environment: &EnvironmentRef,
    revision: &str,
    paths: &[String],
) -> Result<BTreeMap<String, Bytes>, Problem> {
    let revision = Revision::new(revision).map_err(|error| always("RevisionNotSettable", &error.to_string()))?;
    let (mut edits, mut problems, mut is_found) = (BTreeMap::new(), Vec::new(), false);
    for (path, file) in &snapshot.files {
        let Ok(text) = std::str::from_utf8(&file.bytes) else { continue };
        match setters::edit(text, environment, &revision) {
            Ok(None) => {}
            Ok(Some(edit)) => {
                is_found = true;
                if edit.text != text {
                    edits.insert(path.clone(), Bytes::from(edit.text));
                }
            }
            Err(found) => {
                problems.extend(found.iter().map(|problem| format!("{}:{}: {}", shown(path), problem.line, problem.error)));
            }
        }
    }
    if !problems.is_empty() {
        return Err(always("SetterInvalid", &first_of(&problems)));
    }
    if !is_found {
        return Err(always("NoSetters", &none(snapshot, environment, paths)));
    }
    Ok(edits)
}

fn first_of(problems: &[String]) -> String {
    let more = problems.len().saturating_sub(NAMED);
    let first = problems.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    if more == 0 { first } else { format!("{first}; and {more} more") }
}

/// Returns the message if no file contains a setter.
fn none(snapshot: &Snapshot, environment: &EnvironmentRef, paths: &[String]) -> String {
    let paths = if paths.is_empty() { "the repository".to_owned() } else { paths.join(", ") };
    let message = NoSetters { paths, environment: environment.clone() }.to_string();
    match snapshot.left_out.first() {
        None => message,
        Some(file) => {
            let why = match file.why {
                WhyLeftOut::TooLarge => "it has more than 1 MiB",
                WhyLeftOut::NotUtf8 => "its path is not UTF-8",
            };
            format!("{message}; {} was not read, because {why}", shown(&file.path))
        }
    }
}

/// A problem that only a person can solve.
pub(super) fn always(reason: &'static str, message: &str) -> Problem {
    Problem { reason, message: bounded(message), lasts: Lasts::Always }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_git::LeftOut;

    const OLD: &[u8] = b"a: 1\nversion: 6.5.0 # {\"$promotion\": \"team-a:web:prod\"}\nb: 2\n";
    const NEW: &[u8] = b"a: 1\nversion: 6.5.1 # {\"$promotion\": \"team-a:web:prod\"}\nb: 2\n";
    const STAGING: &[u8] = b"version: 6.5.0 # {\"$promotion\": \"team-a:web:staging\"}\n";
    const FLOW: &[u8] = b"x: {a: 1, b: 2} # {\"$promotion\": \"team-a:web:prod\"}\n";

    fn of(files: &[(&str, &[u8])], left_out: Vec<LeftOut>, revision: &str) -> Result<BTreeMap<String, Bytes>, Problem> {
        let environment = EnvironmentRef { namespace: "team-a".into(), pipeline: "web".into(), environment: "prod".into() };
        edits(&Snapshot::of(files, left_out), &environment, revision, &["apps".to_owned()])
    }

    #[test]
    fn only_files_whose_values_differ_change() {
        let edit = |path: &str| BTreeMap::from([(path.to_owned(), Bytes::from_static(NEW))]);
        let two = edit("a.yaml").into_iter().chain(edit("b.yaml")).collect();
        for (what, files, expected) in [
            ("one of two", vec![("a.yaml", OLD), ("b.yaml", STAGING)], edit("a.yaml")),
            ("both", vec![("a.yaml", OLD), ("b.yaml", OLD)], two),
            ("one is set already", vec![("a.yaml", NEW), ("b.yaml", OLD)], edit("b.yaml")),
            ("all are set already", vec![("a.yaml", NEW)], BTreeMap::new()),
            ("one is not UTF-8", vec![("a.yaml", OLD), ("b.yaml", &[0xff, 0xfe])], edit("a.yaml")),
        ] {
            assert_eq!(of(&files, Vec::new(), "6.5.1"), Ok(expected), "{what}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_set_is_refused_with_file_and_line() {
        let left_out = || vec![LeftOut { path: "apps/big.yaml".into(), why: WhyLeftOut::TooLarge }];
        let flow: Vec<(&str, &[u8])> = ["a.yaml", "b.yaml", "c.yaml", "d.yaml"].map(|path| (path, FLOW)).to_vec();
        let cut = relaybook_api::values::revision::cut("1.2.3-".repeat(80));
        for (what, files, left_out, revision, reason, words) in [
            ("no setter", vec![("a.yaml", STAGING)], vec![], "2", "NoSetters", "apps"),
            ("no file", vec![], vec![], "2", "NoSetters", "team-a:web:prod"),
            (
                "a file was not read",
                vec![],
                left_out(),
                "2",
                "NoSetters",
                "apps/big.yaml was not read, because it has more than 1 MiB",
            ),
            ("an invalid setter", vec![("a.yaml", OLD), ("b.yaml", FLOW)], vec![], "2", "SetterInvalid", "b.yaml:1: "),
            ("many of them", flow, vec![], "2", "SetterInvalid", "; and 1 more"),
            ("a cut revision", vec![("a.yaml", OLD)], vec![], cut.as_str(), "RevisionNotSettable", "only a whole revision"),
            ("a line break", vec![("a.yaml", OLD)], vec![], "2\n3", "RevisionNotSettable", ""),
        ] {
            let problem = of(&files, left_out, revision).unwrap_err();
            assert_eq!((problem.reason, problem.lasts), (reason, Lasts::Always), "{what}");
            assert!(problem.message.contains(words), "{what}: {}", problem.message);
        }
    }
}
