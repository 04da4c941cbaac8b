//! The requests of the worked examples equal the reviewed snapshots. `INSTA_UPDATE=always make test` updates the snapshots.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use relaybook_api::TransitionType;
use relaybook_api::notification::Builtin;
use relaybook_settings::render::Data;

use crate::subject::{Parameters, Request, Subject};

#[test]
fn the_examples_match_the_reviewed_snapshots() {
    compare_each(Builtin::as_str, shown);
}

#[test]
fn the_tests_of_the_examples_match_the_reviewed_snapshots() {
    compare_each(|builtin| format!("test-{}", builtin.as_str()), shown_as_test);
}

#[test]
fn the_requests_that_continue_a_message_match_the_reviewed_snapshots() {
    compare(
        threaded().into_iter().map(|(builtin, _)| builtin),
        |builtin| format!("thread-{}", builtin.as_str()),
        shown_later,
    );
}

/// Returns the templates that can continue a message, and in which ways. An empty way: there is only one.
fn threaded() -> Vec<(Builtin, Vec<&'static str>)> {
    let modes = |builtin: Builtin| {
        let metadata = &relaybook_settings::render::builtin(builtin).metadata;
        metadata.thread.as_ref()?;
        let Some(mode) = metadata.parameters.iter().find(|p| p.name == "mode") else { return Some((builtin, vec![""])) };
        let modes = mode.values.iter().map(String::as_str).filter(|mode| *mode != "new");
        Some((builtin, modes.collect()))
    };
    Builtin::ALL.into_iter().filter_map(modes).collect()
}

/// Shows the requests that continue a message, in each way, for the transitions of a rollout that fails.
fn shown_later(builtin: Builtin) -> String {
    let mut text = String::new();
    for mode in threaded().into_iter().filter(|(of, _)| *of == builtin).flat_map(|(_, modes)| modes) {
        let subject = match mode {
            "" => Subject::example(builtin, Parameters::Required),
            mode => Subject::in_mode(builtin, mode),
        };
        let mode = if mode.is_empty() { String::new() } else { format!("{mode}, ") };
        for type_ in [TransitionType::Failed, TransitionType::Recovered] {
            let request = subject.render_later(&Data::sample(type_));
            write!(text, "### {mode}{}\n{}\n", type_.as_str(), request_shown(&request)).unwrap();
        }
    }
    text
}

fn compare_each<N: Into<String>>(name: impl Fn(Builtin) -> N, shown: impl Fn(Builtin) -> String) {
    compare(Builtin::ALL, name, shown);
}

fn compare<N: Into<String>>(
    all: impl IntoIterator<Item = Builtin>,
    name: impl Fn(Builtin) -> N,
    shown: impl Fn(Builtin) -> String,
) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let mut changed = Vec::new();
    for builtin in all {
        let (name, shown): (String, _) = (name(builtin).into(), shown(builtin));
        let compare = || settings.bind(|| insta::assert_snapshot!(name.as_str(), shown));
        let checked = catch_unwind(AssertUnwindSafe(compare));
        changed.extend(checked.is_err().then_some(builtin.as_str()));
    }
    assert!(changed.is_empty(), "these have changed: {changed:?}");
}

/// Shows the requests of all transitions with the required parameters, and of a failure with all parameters.
fn shown(builtin: Builtin) -> String {
    let mut text = String::new();
    let required = Subject::example(builtin, Parameters::Required);
    let types = required.types().map(|type_| (Parameters::Required, type_));
    for (parameters, type_) in types.chain([(Parameters::Examples, TransitionType::Failed)]) {
        let subject = Subject::example(builtin, parameters);
        let request = subject.render(&Data::sample(type_)).unwrap();
        let more = if parameters == Parameters::Examples { ", with every parameter" } else { "" };
        write!(text, "### {}{more}\n{}\n", type_.as_str(), request_shown(&request)).unwrap();
    }
    text
}

/// Shows the requests of tests: of a failure, and of a recovery, which closes the alert of the first one.
fn shown_as_test(builtin: Builtin) -> String {
    let subject = Subject::example(builtin, Parameters::Required);
    let mut text = String::new();
    for type_ in [TransitionType::Failed, TransitionType::Recovered] {
        let request = subject.render(&Data { test: true, ..Data::sample(type_) }).unwrap();
        write!(text, "### {}\n{}\n", type_.as_str(), request_shown(&request)).unwrap();
    }
    text
}

fn request_shown(request: &Request) -> String {
    let method = serde_json::to_value(request.method).unwrap();
    let mut text = format!("{} {}\n", method.as_str().unwrap_or_default(), request.url);
    writeln!(text, "content-type: {}", request.content_type).unwrap();
    for (name, value) in &request.headers {
        writeln!(text, "{name}: {value}").unwrap();
    }
    request.credentials.iter().for_each(|credentials| writeln!(text, "{credentials}").unwrap());
    let body = serde_json::to_string_pretty(&request.json()).unwrap();
    write!(text, "\n{body}\n").unwrap();
    text
}
