//! Fuzzes setters with any file and any revision. The result must be an error with a line, or a file that parses to the same but for the
//! marked strings.
//!
//! In: a revision and a file in UTF-8, separated by U+001F. In the file, `§` is the marker of the environment that is set, so that a
//! mutation breaks it less often. Out: nothing, or a panic. The parsed files are compared here as JSON values, so that the edit is not
//! checked against itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use relaybook_settings::setters::{Edit, EnvironmentRef, Problem, Revision, edit, scan, unified};
use serde_json::Value;

const MARKER: &str = "# {\"$promotion\": \"a:b:c\"}";

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let Some((revision, file)) = text.split_once('\u{1f}') else { return };
    let file = file.replace('§', MARKER);
    scan(&file).problems.iter().for_each(|problem| told(problem, &file));
    let environment: EnvironmentRef = "a:b:c".parse().expect("an environment");
    let Ok(revision) = Revision::new(revision) else { return };
    match edit(&file, &environment, &revision) {
        Ok(None) => {}
        Ok(Some(edited)) => {
            right(&file, &edited);
            let again = edit(&edited.text, &environment, &revision).expect("a second edit").expect("the same setters");
            assert_eq!(again.text, edited.text, "a second edit changes nothing");
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            problems.iter().for_each(|problem| told(problem, &file));
        }
    }
});

/// Checks that only marked values differ, and that each of them is its new value.
fn right(file: &str, edited: &Edit) {
    let (before, after) = (read(file), read(&edited.text));
    let mut different = Vec::new();
    compare(&before, &after, &mut different);
    let mut expected: Vec<_> = edited.changes.iter().map(|change| change.new.as_str()).collect();
    for value in different {
        let at = expected.iter().position(|new| *new == value);
        expected.remove(at.unwrap_or_else(|| panic!("{value:?} is no new value of {:?}", edited.changes)));
    }
    let lines = |text: &str| text.split('\n').map(str::to_owned).collect::<Vec<_>>();
    let (old, new) = (lines(file), lines(&edited.text));
    assert_eq!(old.len(), new.len(), "{file:?} → {:?}", edited.text);
    let changed = old.iter().zip(&new).filter(|(old, new)| old != new);
    assert!(
        changed.clone().all(|(old, _)| old.contains(MARKER) || old.contains("$promotion")),
        "{file:?} → {:?}",
        edited.text
    );
    assert_eq!(unified("a", file, &edited.text).is_empty(), changed.count() == 0);
}

fn read(text: &str) -> Value {
    let policy = serde_saphyr::NonFiniteFloatPolicy::AsString;
    let options = serde_saphyr::options! { non_finite_float_policy: policy };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options).expect("YAML before and after");
    documents.into()
}

/// Collects the strings that differ. Any other difference is a panic.
fn compare<'a>(before: &Value, after: &'a Value, different: &mut Vec<&'a str>) {
    match (before, after) {
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).for_each(|(a, b)| compare(a, b, different));
        }
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            a.values().zip(b.values()).for_each(|(a, b)| compare(a, b, different));
        }
        (a, b) if a == b => {}
        (Value::Array(_) | Value::Object(_), _) => panic!("{before} became {after}"),
        (_, Value::String(text)) => different.push(text),
        _ => panic!("{before} became {after}"),
    }
}

/// Checks that a problem is one line of text about a line of the file.
fn told(problem: &Problem, file: &str) {
    let message = problem.error.to_string();
    assert!(!message.contains(['\n', '\r']) && message.len() < 2048, "{message:?}");
    let lines = file.split(['\n', '\r']).count() as u64;
    assert!((1..=lines + 1).contains(&problem.line), "line {} of {lines}: {message}", problem.line);
}
