//! Tests conversions of pipelines. The inputs have the fields that the programs document.

use super::*;
use crate::convert::testing::{Case, all_are_right, cases, inputs, linted, shown};
use crate::convert::{Input, Options};

type Convert = fn(&[Input], &Options) -> Conversion;

/// Each program with its folder and its cases.
const PROGRAMS: [(&str, usize, Convert); 2] =
    [("pipelines/testdata/weave", 6, weave), ("pipelines/testdata/kargo", 3, kargo)];

fn converted(convert: Convert, text: &str) -> Conversion {
    convert(&inputs(text), &Options { namespace: "default".to_owned(), no_triggers: false })
}

#[test]
fn inputs_become_what_a_person_wrote_and_each_line_is_in_its_list() {
    for (folder, least, convert) in PROGRAMS {
        all_are_right(&cases(folder, least), |case| converted(convert, &case.input));
    }
}

#[test]
fn what_is_written_is_accepted_by_the_lint() {
    for (folder, least, convert) in PROGRAMS {
        for Case { name, input, .. } in cases(folder, least) {
            let report = linted(&converted(convert, &input), "default");
            assert!(report.findings.is_empty() && report.objects > 0, "{name}: {:#?}", report.findings);
        }
    }
}

#[test]
fn what_promotes_is_suspended_until_the_other_program_is_stopped() {
    let case = cases("pipelines/testdata/weave", 6).into_iter().find(|case| case.name == "pull-request").unwrap();
    let conversion = converted(weave, &case.input);
    assert!(conversion.manifests[0].text.contains("suspend: true"));
    assert_eq!(
        conversion.steps,
        ["# default/search: after the pipeline-controller is stopped, set promotion.suspend to false"]
    );
}

#[test]
fn what_cannot_be_understood_is_an_error_and_nothing_is_written() {
    let weave_of = |rest: &str| {
        format!(
            "apiVersion: pipelines.weave.works/v1alpha1\nkind: Pipeline\nmetadata: {{name: a}}\nspec:\n  appRef: {{apiVersion: apps/v1, kind: Deployment, name: a}}\n{rest}"
        )
    };
    let stage = |name: &str, before: &str| {
        format!(
            "---\napiVersion: kargo.akuity.io/v1alpha1\nkind: Stage\nmetadata: {{name: {name}, namespace: p}}\nspec: {{requestedFreight: [{{sources: {{stages: [{before}]}}}}]}}\n"
        )
    };
    let good = "  environments: [{name: dev, targets: [{namespace: a}]}]\n";
    for (convert, input, field, words) in [
        (
            weave as Convert,
            weave_of("  environments: [{name: dev, targets: []}]\n"),
            "spec.environments[0].targets",
            "requires a target",
        ),
        (weave, weave_of("  environments: []\n"), "spec.environments", "at least 1"),
        (
            weave,
            weave_of("  environments: [{name: 5, targets: [{namespace: a}]}]\n"),
            "spec.environments[0].name",
            "must be a text",
        ),
        (weave, weave_of(&format!("{good}  promotion: {{manual: true}}\n")), "spec.promotion", "has no strategy"),
        (weave, weave_of(&format!("{good}  unknown: 1\n")), "spec.unknown", "unknown field"),
        (
            weave,
            weave_of("  environments: [{name: '{{ .Values.x }}', targets: [{namespace: a}]}]\n"),
            "spec.environments[0].name",
            "helm template",
        ),
        (weave, format!("{}---\n{}", weave_of(good), weave_of(good)), "metadata.name", "twice"),
        (
            weave,
            weave_of(&format!("{good}  promotion: {{pull-request: {{url: 'https://u:MARKER@github.com/a/b'}}}}\n")),
            "spec.promotion.pull-request.url",
            "user information",
        ),
        (weave, "a: [".to_owned(), "", "not YAML"),
        (kargo, stage("a", "b") + &stage("b", "a"), "spec.requestedFreight", "circle"),
    ] {
        let conversion = converted(convert, &input);
        let found = conversion.report.of(List::Error).any(|item| item.field == field && item.text.contains(words));
        assert!(found && conversion.manifests.is_empty(), "{words}: {:#?}", conversion.report.items);
        assert!(!shown(&conversion).contains("MARKER"), "{words}");
    }
}
