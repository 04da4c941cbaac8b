//! `when`: a CEL expression over what templates see of a transition (<https://github.com/google/cel-spec>).
//!
//! In: the expression, once per edit of a notification; the data of one transition. Out: whether it holds, or words on why that
//! cannot be told. What can be wrong with every transition is found when it is compiled: names, functions and types are checked
//! against the shape of the data. What is left is a label that is not there, and the like.
//!
//! The expression is bounded, and so is its evaluation: there are no loops but over lists that are written out, none within
//! another, and no function makes a text longer than what it is given.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use kube_cel::KubeCelExt as _;
use kube_cel::cel::parser::{Expression, Parser};
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};
use serde_json::Value;
use thiserror::Error;

use super::kinds::{Checked, check};
use super::seen::Seen;
use crate::api::TransitionType;
use crate::render::Data;

/// Bytes of an expression.
pub const LONGEST: usize = 1024;
/// Brackets within brackets. The parser takes more than 100 KiB of the stack for each.
const DEEPEST: usize = 6;
/// Question marks: what stands behind one is parsed within what stands before it.
const ALTERNATIVES: usize = 8;
/// Characters of what is told of an error.
const TOLD: usize = 300;

/// Why an expression cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WhenError {
    /// It has too many bytes.
    #[error("is longer than {LONGEST} bytes")]
    TooLong,
    /// It nests too deep.
    #[error("has more than {DEEPEST} brackets within each other, or more than {ALTERNATIVES} question marks")]
    TooDeep,
    /// It is no CEL.
    #[error("is not CEL: {0}")]
    Syntax(String),
    /// It is CEL, but not about the data of a transition.
    #[error("{0}")]
    Meaning(String),
}

/// Why it could not be told whether an expression holds.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Undecided(String);

/// A condition, ready to be asked.
#[derive(Clone, Debug)]
pub struct When {
    source: String,
    expression: Arc<Expression>,
    /// The fields of the data that it reads.
    fields: BTreeSet<String>,
}

/// The data of any transition: what is there, and of which type.
static SHAPE: LazyLock<Value> = LazyLock::new(|| {
    let mut shape = serde_json::to_value(Data::sample(TransitionType::Deployed)).unwrap_or_default();
    if let Some(fields) = shape.as_object_mut() {
        // How many it stands for is known only when it is sent.
        fields.remove("superseded");
    }
    shape
});

impl When {
    /// Compiles an expression.
    pub fn compile(source: &str) -> Result<Self, WhenError> {
        if source.len() > LONGEST {
            return Err(WhenError::TooLong);
        }
        if depth(source) > DEEPEST || source.matches('?').count() > ALTERNATIVES {
            return Err(WhenError::TooDeep);
        }
        let parsed = catch_unwind(|| Parser::default().parse(source));
        let expression = match parsed {
            Ok(Ok(expression)) => expression,
            Ok(Err(errors)) => {
                let first =
                    errors.errors.first().map_or_else(String::new, |e| format!("{} at column {}", e.msg, e.pos.1 + 1));
                return Err(WhenError::Syntax(short(&first)));
            }
            Err(_) => return Err(WhenError::Syntax("it cannot be parsed".to_owned())),
        };
        let Checked { fields } = check(&expression, &SHAPE).map_err(WhenError::Meaning)?;
        Ok(Self { source: source.to_owned(), expression: Arc::new(expression), fields })
    }

    /// The expression as it was written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether it holds for a transition.
    pub fn holds(&self, seen: &Seen<impl FnOnce() -> Data>) -> Result<bool, Undecided> {
        let mut context = Context::default().with_all();
        for field in &self.fields {
            let value = seen.field(field).map_err(|error| Undecided(short(&error.to_string())))?;
            context.add_variable_from_value(field.as_str(), value);
        }
        match catch_unwind(AssertUnwindSafe(|| CelValue::resolve(&self.expression, &context))) {
            Ok(Ok(CelValue::Bool(holds))) => Ok(holds),
            Ok(Ok(_)) => Err(Undecided("it came to something that is neither true nor false".to_owned())),
            Ok(Err(error)) => Err(Undecided(short(&words(&error, &self.source)))),
            Err(_) => Err(Undecided("it cannot be evaluated on these values".to_owned())),
        }
    }
}

/// How deep brackets stand in brackets. Those within texts count, too: an expression needs few of either.
fn depth(source: &str) -> usize {
    let (mut deep, mut deepest) = (0usize, 0);
    for c in source.chars() {
        match c {
            '(' | '[' | '{' => deep += 1,
            ')' | ']' | '}' => deep = deep.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(deep);
    }
    deepest
}

/// A key may come from anywhere, and a delivery that tells of it must be one that the API server takes.
fn short(words: &str) -> String {
    words.chars().take(TOLD).collect()
}

/// What is told of an error. The engine's own words show whole values, which may be long and are nobody's business.
fn words(error: &ExecutionError, source: &str) -> String {
    match error {
        // A key that is not written out is a value.
        ExecutionError::NoSuchKey(key) if source.contains(key.as_str()) => format!("there is no {key:?}; ask has() first"),
        ExecutionError::NoSuchKey(_) => {
            "there is no label or annotation of a name that is a value; ask with `in` first".to_owned()
        }
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "it divides by zero".to_owned(),
        ExecutionError::Overflow(..) => "a number is too large".to_owned(),
        ExecutionError::IndexOutOfBounds(_) => "the list has no such entry".to_owned(),
        ExecutionError::FunctionError { function, .. } => format!("{function}() cannot be told of this value"),
        _ => "the types of the values do not fit together".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A failure in `prod`, of a pipeline with a label.
    fn data() -> Data {
        let mut data = Data::sample(TransitionType::Failed);
        let labels = [("team", "red"), ("example.com/tier", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        data.pipeline.labels = Arc::new(labels.into());
        data
    }

    fn holds(source: &str) -> Result<bool, String> {
        When::compile(source).map_err(|e| e.to_string())?.holds(&Seen::new(data)).map_err(|e| e.to_string())
    }

    #[test]
    fn what_holds() {
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
            ("size(message) > 10 && message.contains('timeout')", true),
            ("message.size() % 2 == size(message) % 2", true),
            ("['timeout', 'quota'].exists(word, message.contains(word))", true),
            ("['timeout', 'quota'].all(word, message.contains(word))", false),
            ("['timeout', 'quota'].exists_one(word, message.contains(word))", true),
            ("revision.matches('^[a-z]+@sha1:')", true),
            ("environment.upperAscii() == 'PROD' && environment + '-x' == 'prod-x'", true),
            ("target['name'] == target.name", true),
        ] {
            assert_eq!(holds(source), Ok(want), "{source}");
        }
    }

    #[test]
    fn what_cannot_mean_anything_is_told_when_it_is_compiled() {
        let long = format!("'{}' == revision", "x".repeat(LONGEST));
        let deep = format!("{}true{}", "(".repeat(7), ")".repeat(7));
        let alternatives = format!("{}true", "drifted ? true : ".repeat(9));
        let many = vec!["drifted"; 40].join(" || ");
        for (source, want) in [
            ("", "is not CEL: "),
            ("revision ==", "is not CEL: "),
            (long.as_str(), "is longer than 1024 bytes"),
            (&deep, "has more than 6 brackets within each other"),
            (&alternatives, "or more than 8 question marks"),
            (&many, "has more than 64 parts"),
            ("revison == 'v1'", "there is no revison; did you mean revision?"),
            ("superseded > 1", "there is no superseded"),
            ("pipeline.label.team == 'x'", "pipeline has no label; did you mean labels?"),
            ("target.cluster.nam == 'x'", "target.cluster has no nam; did you mean name?"),
            ("revision.name == 'x'", "revision is a text and has no name"),
            ("revision", "is neither true nor false"),
            ("size(message)", "is neither true nor false"),
            ("drifted ? revision : 'x'", "is neither true nor false"),
            ("pipeline.labels", "is neither true nor false"),
            ("revision && drifted", "&& stands between what is true or false"),
            ("!revision", "! stands before what is true or false"),
            ("serial == '5'", "a number is never equal to a text"),
            ("revision.startWith('v')", "there is no function startWith(); did you mean startsWith()?"),
            ("revision.replace('a', revision) == ''", "there is no function replace()"),
            ("revision.matches(reason)", "matches() needs a pattern that is written out"),
            ("revision.matches('a{1000}')", "matches() needs a pattern that is written out"),
            ("revision.matches('(')", "is not a pattern"),
            ("pipeline.labels.all(l, l == 'x')", "run over a list that is written out"),
            ("[1, 2].map(x, x * 2) == [2, 4]", "map() and filter() are not known here"),
            ("['a'].filter(x, x == 'a') == []", "map() and filter() are not known here"),
            ("['a'].all(x, ['b'].all(y, x == y))", "cannot stand within another"),
            ("['a'].all(x, x)", "is neither true nor false"),
            ("{'a': true}.a", "an object cannot be written out here"),
            ("Data{a: 1} == 1", "an object cannot be written out here"),
            ("dyn(true)", "there is no function dyn()"),
        ] {
            let said = When::compile(source).expect_err(source).to_string();
            assert!(said.contains(want), "{source}: {said}");
        }
    }

    #[test]
    fn what_only_the_values_tell() {
        for (source, want) in [
            ("pipeline.labels.other == 'x'", r#"there is no "other"; ask has() first"#),
            ("pipeline.labels['a/b'] == 'x'", r#"there is no "a/b"; ask has() first"#),
            ("serial / (serial - serial) > 1", "it divides by zero"),
            ("serial * serial * serial > 1", "a number is too large"),
            ("int(revision) > 1", "int() cannot be told of this value"),
        ] {
            assert_eq!(holds(source), Err(want.to_owned()), "{source}");
        }
        // The other side of an alternative decides alone.
        assert_eq!(holds("pipeline.labels.other == 'x' || environment == 'prod'"), Ok(true));
    }

    #[test]
    fn what_is_told_has_an_end() {
        let name = "é".repeat(450);
        let when = When::compile(&format!("pipeline.labels['{name}'] == 'x'")).unwrap();
        let told = when.holds(&Seen::new(data)).unwrap_err().to_string();
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
            let Err(error) = when.holds(&Seen::new(made)) else { panic!("{source} holds") };
            let told = format!("{error} {error:?}");
            assert!(!told.contains(secret), "{source}: {told}");
        }
        // A condition sees no parameters at all.
        assert!(When::compile("parameters.routingKey == 'a'").is_err());
    }

    #[test]
    fn what_is_allowed_fits_a_small_stack() {
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
        // Less than what threads have, in a build that is not optimized.
        let thread = std::thread::Builder::new().stack_size(3 * 512 * 1024);
        let all = thread.spawn(move || sources.iter().map(|source| When::compile(source).is_ok()).collect::<Vec<_>>());
        assert!(all.unwrap().join().unwrap()[0]);
    }

    /// Every `when:` of the documentation, in quotes.
    fn documented() -> Vec<String> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
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
    fn the_documentation_can_be_copied() {
        let all = documented();
        assert!(all.len() >= 4, "{all:?}");
        for source in all {
            assert_eq!(When::compile(&source).err(), None, "{source}");
        }
    }

    proptest! {
        /// Whatever is written: it is refused or understood, and what is understood can be asked.
        #[test]
        fn nothing_breaks_it(parts in prop::collection::vec(prop::sample::select(vec![
            "revision", "drifted", "pipeline.labels.team", "serial", "x", "'a'", "1", "true", "[", "]", "(", ")", "{", "}", ".",
            ",", " ? ", " : ", " && ", " || ", " == ", " < ", " in ", " + ", " / ", "!", "-", "has(", "size(", ".matches(",
            ".contains(", ".all(x, ", ".exists(x, ", ".map(x, ",
        ]), 0..20)) {
            let source = parts.concat();
            if let Ok(when) = When::compile(&source) {
                let _ = when.holds(&Seen::new(data));
            }
        }
    }
}
