//! Tests which values are edited, and what stays.

use proptest::prelude::*;

use super::*;

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn prod() -> EnvironmentRef {
    "team-a:podinfo:prod".parse().unwrap()
}

/// Writes the marker of the environment in place of `§`, and with a suffix in place of `§:SUFFIX`.
fn marked(text: &str) -> String {
    let whole = text.replace("§:", "# {\"$promotion\": \"team-a:podinfo:prod:");
    let closed = whole.replace(":tag", ":tag\"}").replace(":digest", ":digest\"}").replace(":commit", ":commit\"}");
    closed.replace('§', "# {\"$promotion\": \"team-a:podinfo:prod\"}")
}

fn set(text: &str, revision: &str) -> Result<Option<Edit>, Vec<Problem>> {
    edit(text, &prod(), &Revision::new(revision).unwrap())
}

/// Returns the text after an edit.
fn after(text: &str, revision: &str) -> String {
    set(text, revision).unwrap().unwrap().text
}

/// Returns the problems as `LINE: MESSAGE`.
fn problems(text: &str, revision: &str) -> Vec<String> {
    let shown = |problem: &Problem| format!("{}: {}", problem.line, problem.error);
    set(text, revision).map_or_else(|problems| problems.iter().map(shown).collect(), |edit| panic!("{text:?}: {edit:?}"))
}

#[test]
fn only_the_marked_value_changes() {
    for (what, before, expected) in [
        ("a field", "a: 6.5.0 §\nb: 1\n", "a: 6.5.1 §\nb: 1\n"),
        ("an item", "- 6.5.0 §\n- x\n", "- 6.5.1 §\n- x\n"),
        ("a field of an item", "- a: 6.5.0 §\n  b: 1\n", "- a: 6.5.1 §\n  b: 1\n"),
        ("items in items", "- - 6.5.0 §\n  - x\n", "- - 6.5.1 §\n  - x\n"),
        ("a value below its key", "a:\n  6.5.0 §\nb: 1\n", "a:\n  6.5.1 §\nb: 1\n"),
        ("single quotes", "a: '6.5.0' §\n", "a: '6.5.1' §\n"),
        ("double quotes", "a: \"6.5.0\" §\n", "a: \"6.5.1\" §\n"),
        ("quoted keys", "\"a b\": 6.5.0 §\n'#': x\n", "\"a b\": 6.5.1 §\n'#': x\n"),
        ("a number", "a: 1 §\n", "a: 6.5.1 §\n"),
        ("null that is written", "a: ~ §\n", "a: 6.5.1 §\n"),
        ("an empty text", "a: '' §\n", "a: '6.5.1' §\n"),
        ("a tab before the comment", "a: 6.5.0\t§\n", "a: 6.5.1\t§\n"),
        ("spaces", "a:   6.5.0    §   \n", "a:   6.5.1    §   \n"),
        ("another comment behind", "a: 6.5.0 § # the version\n", "a: 6.5.1 § # the version\n"),
        (
            "CRLF and comments",
            "# x\r\n\r\na: 6.5.0 §\r\n  # y\r\nb: z # w\r\n",
            "# x\r\n\r\na: 6.5.1 §\r\n  # y\r\nb: z # w\r\n",
        ),
        ("CR", "a: 6.5.0 §\rb: 6.5.0 §\r", "a: 6.5.1 §\rb: 6.5.1 §\r"),
        ("a BOM", "\u{feff}a: 6.5.0 §\n", "\u{feff}a: 6.5.1 §\n"),
        ("no newline at the end", "b: 1\na: 6.5.0 §", "b: 1\na: 6.5.1 §"),
        ("two documents", "a: 6.5.0 §\n---\na: x\n---\na: 6.5.0 §\n...\n", "a: 6.5.1 §\n---\na: x\n---\na: 6.5.1 §\n...\n"),
        ("other scripts", "é: ü\nü: 6.5.0 §\n", "é: ü\nü: 6.5.1 §\n"),
        ("one value on a line of a list in brackets", "a: [\n  6.5.0 §\n]\n", "a: [\n  6.5.1 §\n]\n"),
        ("a hash in the value", "a: x#y §\n", "a: 6.5.1 §\n"),
        ("a value that continues", "a: \"x\n  y\"\nb: 6.5.0 §\n", "a: \"x\n  y\"\nb: 6.5.1 §\n"),
        ("an anchor elsewhere", "a: &x 1\nb: *x\nc: 6.5.0 §\n", "a: &x 1\nb: *x\nc: 6.5.1 §\n"),
        ("a directive", "%YAML 1.2\n---\na: 6.5.0 §\n", "%YAML 1.2\n---\na: 6.5.1 §\n"),
        ("a tag of an image", "image: r.io:5000/a/web:1.0 §:tag\n", "image: r.io:5000/a/web:6.5.1 §:tag\n"),
        ("a tag alone", "newTag: \"1.0\" §:tag\n", "newTag: \"6.5.1\" §:tag\n"),
        ("a tag that is a number", "newTag: 1.10 §:tag\n", "newTag: 6.5.1 §:tag\n"),
    ] {
        let (before, expected) = (marked(before), marked(expected));
        assert_eq!(set(&before, "6.5.1").unwrap().map(|edit| edit.text), Some(expected.clone()), "{what}");
        let again = set(&expected, "6.5.1").unwrap().unwrap();
        assert!(again.text == expected && again.changes.iter().all(|change| !change.is_edit), "{what}: {again:?}");
    }
}

#[test]
fn digests_and_commits_are_found_in_the_revision() {
    let old = DIGEST.replace('0', "f");
    for (before, revision, value) in [
        (format!("a: {old} §:digest\n"), DIGEST.to_owned(), DIGEST.to_owned()),
        (format!("a: web@{old} §:digest\n"), format!("1.2@{DIGEST}"), format!("web@{DIGEST}")),
        (format!("a: {old} §:digest\n"), format!("main@{DIGEST}"), DIGEST.to_owned()),
        ("a: abc §:commit\n".to_owned(), format!("main@sha1:{COMMIT}"), COMMIT.to_owned()),
        ("a: abc §:commit\n".to_owned(), COMMIT.to_owned(), COMMIT.to_owned()),
        ("a: web:1 §:tag\n".to_owned(), format!("1.2@{DIGEST}"), "web:1.2".to_owned()),
    ] {
        let edit = set(&marked(&before), &revision).unwrap().unwrap();
        assert_eq!(edit.changes[0].new, value);
        assert!(edit.text.starts_with(&format!("a: {value} # {{\"$promotion\"")), "{edit:?}");
    }
}

#[test]
fn a_written_value_is_always_read_as_a_string() {
    for (revision, written) in [
        ("1.10", "\"1.10\""),
        ("12e03", "\"12e03\""),
        ("0x10", "\"0x10\""),
        ("no", "\"no\""),
        ("null", "\"null\""),
        ("a: b", "\"a: b\""),
        ("a #b", "\"a #b\""),
        ("*x", "\"*x\""),
        ("!!python", "\"!!python\""),
        ("\"; rm -rf", "\"\\\"; rm -rf\""),
        ("-->", "\"-->\""),
        ("\\n- evil: true", "\"\\\\n- evil: true\""),
    ] {
        assert_eq!(after(&marked("a: 1 §\nb: 2\n"), revision), marked(&format!("a: {written} §\nb: 2\n")));
    }
    // Without quotes, the value was a number.
    let edit = set(&marked("a: 1.10 §\n"), "1.10").unwrap().unwrap();
    assert!(edit.changes[0].is_edit && edit.text == marked("a: \"1.10\" §\n"), "{edit:?}");
}

#[test]
fn a_value_that_cannot_be_set_has_a_line_and_a_message() {
    let tagged = format!("a: web:1.0@{DIGEST} §:tag\n");
    for (what, text, line, words) in [
        ("several values in flow style", "a: {b: 1, c: 2} §\n", 1, "flow style"),
        ("one value in flow style", "x: 1\na: {b: 1} §\n", 2, "flow style"),
        ("a list in flow style", "a: [1] §\n", 1, "flow style"),
        ("an empty list", "a: [] §\n", 1, "flow style"),
        ("a comma", "a: {\n  b: 1, §\n  c: 2}\n", 2, "flow style"),
        ("flow style that begins", "a: { b: 1 §\n}\n", 1, "flow style"),
        ("inside a block scalar", "a: |\n  b: 1 §\nc: 2\n", 2, "inside a text"),
        ("inside a folded scalar", "a: >-\n  b: 1 §\n", 2, "inside a text"),
        ("inside quotes over several lines", "a: 'b\n  c §\n  d'\n", 2, "inside a text"),
        ("at a block scalar", "a: | §\n  b\n", 1, "block scalar"),
        ("at a folded scalar", "a: >- §\n  b\n", 1, "block scalar"),
        ("an anchor", "a: &x 1 §\n", 1, "an anchor, an alias or a tag"),
        ("an alias", "a: &x 1\nb: *x §\n", 2, "an anchor, an alias or a tag"),
        ("a tag", "a: !!str 1 §\n", 1, "an anchor, an alias or a tag"),
        ("an anchor of a map", "a: &x §\n  b: 1\n", 1, "an anchor, an alias or a tag"),
        ("a value that an alias uses", "a: &x\n  b: 1 §\nc: *x\n", 2, "an alias uses the value"),
        ("a value that a merge uses", "a: &x\n  b: 1 §\nc:\n  <<: *x\n", 2, "an alias uses the value"),
        ("a tab in the indentation", "a:\n\tb: 1 §\n", 2, "not YAML"),
        ("a key without value", "a: §\nb: 1\n", 1, "no value"),
        ("a key of a map", "a: §\n  b: 1\n", 1, "no value"),
        ("an item without value", "- §\n- 1\n", 1, "no value"),
        ("a comment alone", "a: 1\n§\n", 2, "no value"),
        ("the end of a text over several lines", "a: b\n  c §\n", 2, "earlier line"),
        ("the end of quotes over several lines", "a: \"b\n  c\" §\n", 2, "earlier line"),
        ("not YAML", "a: 1 §\nb: [\n", 2, "not YAML"),
        ("a field twice", "a: 1 §\na: 2\n", 2, "not YAML"),
        ("a template", "a: {{ .Values.b }} §\n", 1, "not YAML"),
        ("no suffix of ours", "a: 1 §:name\"}\n", 1, "unknown suffix"),
        ("two markers", "a: 1 § §\n", 1, "only one marker"),
        ("a marker behind a comment", "a: 1 # note §\n", 1, "directly"),
        ("no JSON", "a: 1 # {$promotion: team-a:podinfo:prod}\n", 1, "in JSON"),
        ("an image without tag", "a: r.io/web §:tag\n", 1, "neither a tag nor an image"),
        ("an image with tag and digest", &tagged, 1, "a tag and a digest"),
    ] {
        let found = problems(&marked(text), "6.5.1");
        assert!(
            found.len() == 1 && found[0].starts_with(&format!("{line}: ")) && found[0].contains(words),
            "{what}: {found:?}"
        );
    }
}

#[test]
fn a_revision_without_the_part_is_refused() {
    for (suffix, revision) in
        [(":tag", "a/b"), (":tag", "main@sha1:abc"), (":digest", "6.5.1"), (":commit", "6.5.1"), (":commit", DIGEST)]
    {
        let found = problems(&marked(&format!("b: 1\na: web:1 §{suffix}\n")), revision);
        assert!(found.len() == 1 && found[0].starts_with("2: the revision") && found[0].contains(revision), "{found:?}");
    }
    let two = problems(&marked("a: web:1 §:digest\nb: {c: 1} §\n"), "6.5.1");
    assert!(two.len() == 2 && two[0].starts_with("1: the revision") && two[1].starts_with("2: "), "{two:?}");
}

#[test]
fn values_of_other_environments_are_not_changed() {
    let other = "a: 1 # {\"$promotion\": \"team-a:podinfo:dev\"}\nb: {c: 1} # {\"$promotion\": \"team-a:podinfo:dev\"}\n";
    assert_eq!(set(other, "6.5.1"), Ok(None));
    assert_eq!(after(&format!("{other}d: 1 {}\n", marked("§")), "6.5.1"), format!("{other}d: 6.5.1 {}\n", marked("§")));
    assert_eq!(set("a: [\n", "6.5.1"), Ok(None), "nothing in it can be a marker");
    let all = scan(other);
    let [setter] = &all.setters[..] else { panic!("{all:?}") };
    assert_eq!(
        (setter.line, setter.value.as_str(), setter.part, setter.environment.environment.as_str()),
        (1, "1", Part::Whole, "dev")
    );
    assert!(all.problems.len() == 1 && all.problems[0].environment == Some(setter.environment.clone()), "{all:?}");
}

#[test]
fn markers_in_texts_and_in_commented_lines_are_ignored() {
    for text in [
        "#a: 1 §\nb: 2\n",
        "  # - image: a:1 §\nb: 2\n",
        "a: |\n  # {\"$promotion\": \"NAMESPACE:PIPELINE:ENVIRONMENT\"}\n",
        "a: $promotion\n# a {} $promotion\n",
        "a: '# {\"$promotion\": \"a:b:c\"} is a marker'\n",
    ] {
        assert_eq!(scan(&marked(text)), Setters::default(), "{text}");
    }
}

#[test]
fn the_error_without_setters_names_the_marker() {
    let none = NoSetters { paths: "apps/prod".to_owned(), environment: prod() };
    assert_eq!(none.to_string(), "no line under apps/prod ends with # {\"$promotion\": \"team-a:podinfo:prod\"}");
}

/// Returns parts of YAML that become a text together. They break its structure often.
fn part() -> impl Strategy<Value = String> {
    const PARTS: &[&str] = &[
        "a: ",
        "b: ",
        "- ",
        "  ",
        "\n",
        "\r\n",
        "\r",
        "1.10",
        "web:1.0",
        "'x'",
        "\"y\"",
        "it's",
        " §",
        " §:tag",
        " §:digest",
        " §:commit",
        "§",
        "|",
        ">",
        "\t",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "&x ",
        "*x",
        "!!str ",
        "<<: ",
        "---\n",
        "...\n",
        "# ",
        "\u{feff}",
        "é",
        "\\",
        "? ",
        ": ",
        "%",
        "\n  ",
        "\na: ",
        "\n  b: ",
        "\nc: ",
        "\n- ",
        "'",
        "\"",
        "~",
        "$promotion",
    ];
    prop_oneof![9 => proptest::sample::select(PARTS).prop_map(str::to_owned), 1 => "\\PC{0,8}"]
}

fn values(text: &str) -> Option<Vec<serde_json::Value>> {
    let options = serde_saphyr::options! { non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::PassThrough };
    serde_saphyr::from_multiple_with_options(text, options).ok()
}

/// Counts the strings that have become `expected`. Returns `None` if there is another difference.
fn differences(before: &serde_json::Value, after: &serde_json::Value) -> Option<usize> {
    use serde_json::Value::{Array, Object, String};
    match (before, after) {
        _ if before == after => Some(0),
        (Array(a), Array(b)) if a.len() == b.len() => a.iter().zip(b).map(|(a, b)| differences(a, b)).sum(),
        (Object(a), Object(b)) if a.keys().eq(b.keys()) => a.values().zip(b.values()).map(|(a, b)| differences(a, b)).sum(),
        (Array(_) | Object(_), _) => None,
        (_, String(_)) => Some(1),
        _ => None,
    }
}

/// Checks an edit with another reader of YAML than the one that edits: only marked values differ, and they are strings.
fn check(text: &str, revision: &str) -> Result<(), TestCaseError> {
    let Ok(revision) = Revision::new(revision) else { return Ok(()) };
    match edit(text, &prod(), &revision) {
        Ok(None) => {}
        Ok(Some(edit)) => {
            let edits = edit.changes.iter().filter(|change| change.is_edit).count();
            let (before, after) = (values(text), values(&edit.text));
            prop_assert!(before.is_some() && after.is_some(), "{text:?} → {:?}", edit.text);
            let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
            let found = differences(&before.into(), &after.into());
            prop_assert!(found.is_some_and(|found| found <= edits), "{text:?} → {:?}: {found:?}", edit.text);
            let lines = |text: &str| text.split(['\n', '\r']).map(str::to_owned).collect::<Vec<_>>();
            let (before, after) = (lines(text), lines(&edit.text));
            prop_assert_eq!(before.len(), after.len());
            let different = before.iter().zip(&after).filter(|(a, b)| a != b).count();
            prop_assert_eq!(different, edits, "{:?} → {:?}", text, edit.text);
            let again = super::edit(&edit.text, &prod(), &revision);
            let text = again.map(|again| again.map(|again| again.text));
            prop_assert_eq!(text, Ok(Some(edit.text)));
        }
        Err(problems) => {
            let last = text.split(['\n', '\r']).count() as u64 + 1;
            prop_assert!(
                !problems.is_empty() && problems.iter().all(|p| (1..=last).contains(&p.line)),
                "{text:?}: {problems:?}"
            );
            prop_assert!(problems.iter().all(|p| !p.error.to_string().contains(['\n', '\r'])), "{problems:?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn an_edit_changes_only_marked_strings(
        parts in proptest::collection::vec(part(), 1..24),
        revision in "\\PC{1,20}|[0-9a-fxe.:_-]{1,8}",
    ) {
        check(&marked(&parts.concat()), &revision)?;
        check(&marked(&parts.concat()), &format!("1.2@{DIGEST}"))?;
    }

    #[test]
    fn a_valid_file_can_be_edited_with_any_revision(
        names in proptest::collection::vec("[a-z]{1,6}", 1..6),
        values in proptest::collection::vec("[a-z0-9.]{1,8}|'[a-z ]{0,6}'|\"[a-z ]{0,6}\"", 6),
        breaks in prop_oneof![Just("\n"), Just("\r\n")],
        revision in "\\PC{1,30}|[0-9a-fxe.:_-]{1,8}",
    ) {
        let comment = |n: usize| if n.is_multiple_of(2) { "§" } else { "# x" };
        let fields = names.iter().zip(&values).enumerate();
        let lines: Vec<_> = fields.map(|(n, (name, value))| format!("{name}{n}: {value} {}{breaks}", comment(n))).collect();
        let text = lines.concat();
        let text = marked(&text);
        check(&text, &revision)?;
        if let Ok(revision) = Revision::new(&revision) {
            let edit = edit(&text, &prod(), &revision).unwrap().unwrap();
            prop_assert!(edit.changes.iter().all(|change| change.new == revision.as_str()));
        }
    }
}
