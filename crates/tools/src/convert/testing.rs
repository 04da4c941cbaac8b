//! What the tests of all converters share. `testdata/NAME.yaml` is an input, and `NAME.out.yaml` what it becomes.
//!
//! A comment at the end of a line, also one of Go's templates, is the list that the line must be in; a line without one is CONVERTED. No program of
//! Relaybook made the expected files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use relaybook_api::ObjectName;
use relaybook_settings::manifests::read;
use serde_json::Value;

use super::*;

const LISTS: [List; 5] = [List::Differs, List::NoCounterpart, List::Ignored, List::Error, List::Converted];

/// An input.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) input: String,
    expected: String,
}

/// Returns the cases of a folder below that of the converters. There are at least this many.
pub(super) fn cases(folder: &str, least: usize) -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/convert").join(folder);
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter_map(|name| Some(name.strip_suffix(".out.yaml")?.to_owned())).collect();
    names.sort();
    assert!(names.len() >= least, "{}", names.len());
    let read = |name: &str, end: &str| fs::read_to_string(folder.join(format!("{name}{end}"))).unwrap();
    let case = |name: String| Case { input: read(&name, ".yaml"), expected: read(&name, ".out.yaml"), name };
    names.into_iter().map(case).collect()
}

/// Returns a text as the only file of an input.
pub(super) fn inputs(text: &str) -> Vec<Input> {
    vec![Input { name: "in.yaml".to_owned(), text: text.to_owned(), is_found: false }]
}

pub(super) fn objects(text: &str) -> Vec<Value> {
    read(text).into_iter().map(|document| document.unwrap().value).collect()
}

/// Lints what was converted. `namespace`: that of objects without one.
pub(super) fn linted(conversion: &Conversion, namespace: &str) -> lint::Report {
    let options = lint::Options {
        namespace: namespace.to_owned(),
        config_map: ObjectName::new("relaybook-system", "relaybook-config"),
        cluster_name: "in-cluster".to_owned(),
        allow_http: false,
        cross_namespace_refs: true,
    };
    check(conversion, &options).unwrap()
}

/// Returns everything that a person can see.
pub(super) fn shown(conversion: &Conversion) -> String {
    let manifests = conversion.manifests.iter().flat_map(|one| [one.file.clone(), one.about.clone(), one.text.clone()]);
    let items = conversion.report.items.iter().map(|item| serde_json::to_string(item).unwrap());
    let all = manifests.chain(conversion.steps.clone()).chain(conversion.report.lines()).chain(items);
    all.collect::<Vec<_>>().join("\n")
}

/// Checks that each case becomes what a person wrote, and that each line of it is in one list.
pub(super) fn all_are_right(cases: &[Case], convert: impl Fn(&Case) -> Conversion) {
    let wrong = cases.iter().flat_map(|case| {
        let conversion = convert(case);
        let lines = case.other_lines(&conversion.report);
        case.other_objects(&conversion).into_iter().chain(lines)
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

impl Case {
    /// Returns which manifests are not those that a person wrote.
    fn other_objects(&self, conversion: &Conversion) -> Vec<String> {
        let name = &self.name;
        let errors: Vec<_> = conversion.report.of(List::Error).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        let found: Vec<Value> = conversion.manifests.iter().flat_map(|one| objects(&one.text)).collect();
        let expected = objects(&self.expected);
        let pairs = found.iter().zip(&expected).filter(|(found, expected)| found != expected);
        let mut all: Vec<_> =
            pairs.map(|(found, expected)| format!("{name}: found {found}\n  expected {expected}")).collect();
        if found.len() != expected.len() {
            all.push(format!("{name}: {} objects, expected {}", found.len(), expected.len()));
        }
        all
    }

    /// Returns which lines are not in the list that a person wrote, or in another one, too.
    fn other_lines(&self, report: &Report) -> Vec<String> {
        let name = &self.name;
        let mut all = Vec::new();
        let mut by_line: BTreeMap<u64, BTreeSet<List>> = BTreeMap::new();
        for item in &report.items {
            by_line.entry(item.line).or_default().insert(item.list);
        }
        for (number, line) in (1..).zip(self.input.lines()) {
            let ends = |list: &List| {
                line.ends_with(&format!("# {}", list.title())) || line.ends_with(&format!("{{{{/* {} */}}}}", list.title()))
            };
            let written = LISTS.into_iter().find(ends);
            let found = by_line.remove(&number);
            if written.is_some() || found.is_some() {
                let expected = BTreeSet::from([written.unwrap_or(List::Converted)]);
                let found = found.unwrap_or_default();
                if found != expected {
                    all.push(format!("{name}:{number}: {line}: {found:?}"));
                }
            }
        }
        assert!(by_line.is_empty(), "{name}: {by_line:?}");
        all
    }
}
