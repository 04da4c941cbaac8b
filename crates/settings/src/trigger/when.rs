//! `when`: a CEL expression over the template data of a transition.
//!
//! In: the expression, once per edit of a notification; the data of one transition. Out: whether the expression is true, or a message
//! why it cannot be evaluated.

use std::sync::LazyLock;

use super::seen::{ConditionData, LATER};
use crate::cel::{CelError, CelValue, Expected, Expression, Shape, Undecided};
use crate::render::Data;
use relaybook_api::TransitionType;

/// A compiled condition.
#[derive(Clone, Debug)]
pub struct When(Expression);

/// The shape of the data of any transition.
static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
    let mut sample = serde_json::to_value(Data::sample(TransitionType::Deployed)).unwrap_or_default();
    if let Some(fields) = sample.as_object_mut() {
        // Conditions cannot use these.
        for name in LATER {
            fields.remove(name);
        }
    }
    Shape { sample, texts: &["labels", "annotations", "fields"], any: &[], result: Expected::Bool, has_patterns: true }
});

impl When {
    /// Compiles an expression.
    pub fn compile(source: &str) -> Result<Self, CelError> {
        Expression::compile(source, &SHAPE).map(Self)
    }

    /// The expression as it was written.
    #[must_use]
    pub fn source(&self) -> &str {
        self.0.source()
    }

    /// Whether the expression is true for a transition.
    pub fn holds(&self, seen: &ConditionData<impl FnOnce() -> Data>) -> Result<bool, Undecided> {
        let field = |name: &str| seen.field(name).map(Some).map_err(|error| Undecided::new(&error.to_string()));
        match self.0.evaluate(field)? {
            CelValue::Bool(holds) => Ok(holds),
            _ => Err(Undecided::new("the result is not a boolean")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::cel::{ALTERNATIVES, DEEPEST, LONGEST, TOLD};

    /// A failure in `prod`, of a pipeline with a label, with recorded values of the application object.
    fn data() -> Data {
        let mut data = Data::sample(TransitionType::Failed);
        let labels = [("team", "red"), ("example.com/tier", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        data.pipeline.labels = Arc::new(labels.into());
        data.target.app.annotations = [("notify.example.com/slack".to_owned(), "#red".to_owned())].into();
        data.target.app.fields = [(".spec.project".to_owned(), "shop".to_owned())].into();
        data
    }

    fn holds(source: &str) -> Result<bool, String> {
        When::compile(source).map_err(|e| e.to_string())?.holds(&ConditionData::new(data)).map_err(|e| e.to_string())
    }

    #[test]
    fn expressions_are_evaluated() {
        for (source, want) in [
            ("true", true),
            ("revision.startsWith('main@')", true),
            ("revision.startsWith(\"v\")", false),
            ("environment == 'prod' && severity == 'error'", true),
            ("environment in ['dev', 'qa']", false),
            ("type != 'Failed' || coalesced", false),
            ("!drifted && serial > 5 && serial == 1763711234567", true),
            ("pipeline.labels.team == 'red'", true),
            ("pipeline.labels['example.com/tier'] == '1'", true),
            ("has(pipeline.labels.team) && !has(pipeline.labels.other)", true),
            ("'other' in pipeline.labels", false),
            ("has(pipeline.labels.other) && pipeline.labels.other == 'x'", false),
            ("(has(pipeline.labels.other) ? pipeline.labels.other : 'red') == 'red'", true),
            ("target.app.kind == 'Kustomization' && target.cluster.name == 'in-cluster'", true),
            ("'notify.example.com/slack' in target.app.annotations", true),
            ("'other' in target.app.annotations || has(target.app.labels.team)", false),
            ("has(target.app.labels.team) && target.app.labels.team == 'red'", false),
            ("target.app.annotations['notify.example.com/slack'].startsWith('#')", true),
            ("target.app.fields['.spec.project'] == 'shop'", true),
            ("'other' in target.app.annotations || target.app.cut", false),
            ("size(message) > 10 && message.contains('timeout')", true),
            ("message.size() % 2 == size(message) % 2", true),
            ("['timeout', 'quota'].exists(word, message.contains(word))", true),
            ("['timeout', 'quota'].all(word, message.contains(word))", false),
            ("['timeout', 'quota'].exists_one(word, message.contains(word))", true),
            ("revision.matches('^[a-z]+@sha1:')", true),
            ("environment.upperAscii() == 'PROD' && environment + '-x' == 'prod-x'", true),
            ("target['name'] == target.name", true),
            ("revision < 'n' && !(drifted > drifted) && serial > 1.5", true),
            ("['b', 1].exists(x, x == 1 || x > 'a')", true),
            ("serial + 1 - serial == 1 && ['a'] + ['b'] != [] && ['a', 'b'][0] < 'b'", true),
        ] {
            assert_eq!(holds(source), Ok(want), "{source}");
        }
    }

    #[test]
    fn invalid_expressions_are_refused_at_compilation() {
        let long = format!("'{}' == revision", "x".repeat(LONGEST));
        let deep = format!("{}true{}", "(".repeat(7), ")".repeat(7));
        let alternatives = format!("{}true", "drifted ? true : ".repeat(9));
        let many = vec!["drifted"; 40].join(" || ");
        for (source, want) in [
            ("", "is not CEL: "),
            ("revision ==", "is not CEL: "),
            (long.as_str(), "is longer than 1024 bytes"),
            (&deep, "has more than 6 levels of brackets"),
            (&alternatives, "or more than 8 question marks"),
            (&many, "has more than 64 parts"),
            ("revison == 'v1'", "there is no revison; did you mean revision?"),
            ("superseded > 1", "there is no superseded"),
            ("link != ''", "there is no link"),
            ("links.pipeline != ''", "there is no links"),
            ("git.sha != ''", "there is no git"),
            ("pullRequest.title != ''", "there is no pullRequest"),
            ("pipeline.label.team == 'x'", "pipeline has no label; did you mean labels?"),
            ("target.cluster.nam == 'x'", "target.cluster has no nam; did you mean name?"),
            ("target.app.label.team == 'x'", "target.app has no label; did you mean labels?"),
            ("revision.name == 'x'", "revision is a string and has no name"),
            ("revision", "must be a boolean, but is a string"),
            ("size(message)", "must be a boolean, but is a number"),
            ("drifted ? revision : 'x'", "must be a boolean, but is a string"),
            ("pipeline.labels", "must be a boolean, but is an object"),
            ("revision && drifted", "&& requires booleans on both sides"),
            ("!revision", "! requires a boolean"),
            ("serial == '5'", "a number is never equal to a string"),
            ("revision > 3", "a string cannot be compared with a number"),
            ("target < target", "an object cannot be compared with an object"),
            ("drifted >= size(message)", "a boolean cannot be compared with a number"),
            ("revision in environment", "in requires a list or an object on the right side, which is a string"),
            ("revision[0] == 'v'", "revision is a string and has no entries"),
            ("revision + 1 == 'v1'", "a string and a number cannot be added"),
            ("drifted + drifted == 1", "a boolean and a boolean cannot be added"),
            ("message % 2 == 0", "% requires numbers on both sides"),
            ("serial - revision > 1", "- requires numbers on both sides"),
            ("revision.startWith('v')", "there is no function startWith(); did you mean startsWith()?"),
            ("revision.replace('a', revision) == ''", "there is no function replace()"),
            ("revision.matches(reason)", "matches() requires a literal pattern"),
            ("revision.matches('a{1000}')", "matches() requires a literal pattern"),
            ("revision.matches('(')", "is not a valid pattern"),
            ("pipeline.labels.all(l, l == 'x')", "require a literal list"),
            ("[1, 2].map(x, x * 2) == [2, 4]", "map() and filter() are not supported"),
            ("['a'].filter(x, x == 'a') == []", "map() and filter() are not supported"),
            ("['a'].all(x, ['b'].all(y, x == y))", "cannot be nested"),
            ("['a'].all(x, x)", "the condition for each entry must be a boolean"),
            ("{'a': true}.a", "object literals are not supported"),
            ("Data{a: 1} == 1", "object literals are not supported"),
            ("dyn(true)", "there is no function dyn()"),
        ] {
            let said = When::compile(source).expect_err(source).to_string();
            assert!(said.contains(want), "{source}: {said}");
        }
    }

    #[test]
    fn some_errors_depend_on_the_values() {
        for (source, want) in [
            ("pipeline.labels.other == 'x'", r#"there is no "other"; check has() first"#),
            ("pipeline.labels['a/b'] == 'x'", r#"there is no "a/b"; check has() first"#),
            ("target.app.labels.team == 'x'", r#"there is no "team"; check has() first"#),
            ("serial / (serial - serial) > 1", "division by zero"),
            ("serial * serial * serial > 1", "a number is too large"),
            ("int(revision) > 1", "int(): invalid argument"),
        ] {
            assert_eq!(holds(source), Err(want.to_owned()), "{source}");
        }
        // If one side of `||` is true, an error on the other side does not matter.
        assert_eq!(holds("pipeline.labels.other == 'x' || environment == 'prod'"), Ok(true));
    }

    #[test]
    fn messages_have_a_maximum_length() {
        let name = "é".repeat(450);
        let when = When::compile(&format!("pipeline.labels['{name}'] == 'x'")).unwrap();
        let told = when.holds(&ConditionData::new(data)).unwrap_err().to_string();
        assert!(told.starts_with("there is no \"") && told.chars().count() == TOLD, "{told}");
    }

    #[test]
    fn no_error_quotes_a_value() {
        let secret = "s3cr3t";
        let made = || Data { message: secret.to_owned(), revision: secret.to_owned(), ..data() };
        for source in [
            "pipeline.labels[message] == 'x'",
            "pipeline.labels[message + revision] == 'x'",
            "int(message) > 1",
            "double(revision) > 1.0",
            "['a', message][5] == 'x'",
            "pipeline.annotations[revision].size() > 1",
        ] {
            let when = When::compile(source).unwrap_or_else(|error| panic!("{source}: {error}"));
            let Err(error) = when.holds(&ConditionData::new(made)) else { panic!("{source} holds") };
            let told = format!("{error} {error:?}");
            assert!(!told.contains(secret), "{source}: {told}");
        }
        // A condition cannot read any parameters.
        assert!(When::compile("parameters.routingKey == 'a'").is_err());
    }

    #[test]
    fn allowed_expressions_fit_a_small_stack() {
        let deep =
            |open: &str, inner: &str, close: &str| format!("{}{inner}{}", open.repeat(DEEPEST), close.repeat(DEEPEST));
        let alternatives = "drifted ? true : ".repeat(ALTERNATIVES);
        let sources = [
            deep("(", &format!("{alternatives}true"), ")"),
            deep("[", "'a'", "].size()"),
            deep("{", "", ""),
            format!("{}drifted", "!".repeat(1000)),
            format!("{}1 == 1", "-".repeat(1000)),
            format!("revision{} == ''", ".a".repeat(500)),
            format!("revision{} == ''", "[0]".repeat(330)),
            format!("drifted{}", "||drifted".repeat(110)),
        ];
        // Less than the stack of our threads, in a build that is not optimized.
        let thread = std::thread::Builder::new().stack_size(3 * 512 * 1024);
        let all = thread.spawn(move || sources.iter().map(|source| When::compile(source).is_ok()).collect::<Vec<_>>());
        assert!(all.unwrap().join().unwrap()[0]);
    }

    /// Every `when:` in quotes in the documentation.
    fn documented() -> Vec<String> {
        let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|page| page.unwrap().path());
        let pages = pages.chain([root.join("README.md")]).filter(|page| page.extension().is_some_and(|e| e == "md"));
        let mut found = Vec::new();
        for page in pages {
            let text = std::fs::read_to_string(&page).unwrap();
            for rest in text.split("when: ").skip(1).filter(|rest| rest.starts_with(['\'', '"'])) {
                let quote = rest.chars().next().unwrap();
                found.push(rest[1..].split_once(quote).unwrap().0.to_owned());
            }
        }
        found
    }

    #[test]
    fn expressions_in_the_documentation_compile() {
        let all = documented();
        assert!(all.len() >= 4, "{all:?}");
        for source in all {
            assert_eq!(When::compile(&source).err(), None, "{source}");
        }
    }

    proptest! {
        /// Any text is either refused or compiled, and a compiled expression can be evaluated.
        #[test]
        fn no_text_causes_a_panic(parts in prop::collection::vec(prop::sample::select(vec![
            "revision", "drifted", "pipeline.labels.team", "serial", "x", "'a'", "1", "true", "[", "]", "(", ")", "{", "}", ".",
            ",", " ? ", " : ", " && ", " || ", " == ", " < ", " in ", " + ", " / ", "!", "-", "has(", "size(", ".matches(",
            ".contains(", ".all(x, ", ".exists(x, ", ".map(x, ",
        ]), 0..20)) {
            let source = parts.concat();
            if let Ok(when) = When::compile(&source) {
                let _ = when.holds(&ConditionData::new(data));
            }
        }
    }
}
