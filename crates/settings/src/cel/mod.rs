//! Expressions in CEL (<https://github.com/google/cel-spec>), bounded in length, depth and time.
//!
//! In: the text of an expression and the shape of its data, once per edit; the data, at each evaluation. Out: its value, or a message why
//! there is none. Names, functions and types are checked against the shape at compilation. Only errors such as a missing field remain for the
//! evaluation.
//!
//! Loops run only over literal lists and cannot be nested, and no function makes a text longer than its input.

mod kinds;

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::parser::{Expression as Parsed, Parser};
use kube_cel::cel::{Context, ExecutionError};
use serde_json::Value;
use thiserror::Error;

use kinds::check;
pub(crate) use kinds::{Expected, Shape};
pub(crate) use kube_cel::cel::Value as CelValue;

/// Maximum length of an expression, in bytes.
pub(crate) const LONGEST: usize = 1024;
/// Maximum depth of nested brackets. The parser needs more than 100 KiB of stack for each level.
pub(crate) const DEEPEST: usize = 6;
/// Maximum number of question marks. The parser parses the part after a question mark nested in the part before it.
pub(crate) const ALTERNATIVES: usize = 8;
/// Maximum length of an error message, in characters.
pub(crate) const TOLD: usize = 300;

/// Why an expression cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CelError {
    /// The expression has too many bytes.
    #[error("is longer than {LONGEST} bytes")]
    TooLong,
    /// The expression is nested too deeply.
    #[error("has more than {DEEPEST} levels of brackets, or more than {ALTERNATIVES} question marks")]
    TooDeep,
    /// The expression is not CEL.
    #[error("is not CEL: {0}")]
    Syntax(String),
    /// The expression is CEL, but does not fit its data.
    #[error("{0}")]
    Meaning(String),
}

/// Why an expression could not be evaluated.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Undecided(String);

impl Undecided {
    pub(crate) fn new(words: &str) -> Self {
        Self(short(words))
    }
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    source: Arc<str>,
    parsed: Arc<Parsed>,
    /// The fields of the data that the expression reads.
    fields: BTreeSet<String>,
}

impl Expression {
    /// Compiles an expression.
    pub(crate) fn compile(source: &str, shape: &Shape) -> Result<Self, CelError> {
        if source.len() > LONGEST {
            return Err(CelError::TooLong);
        }
        if depth(source) > DEEPEST || source.matches('?').count() > ALTERNATIVES {
            return Err(CelError::TooDeep);
        }
        let parsed = match catch_unwind(|| Parser::default().parse(source)) {
            Ok(Ok(parsed)) => parsed,
            Ok(Err(errors)) => {
                let first =
                    errors.errors.first().map_or_else(String::new, |e| format!("{} at column {}", e.msg, e.pos.1 + 1));
                return Err(CelError::Syntax(short(&first)));
            }
            Err(_) => return Err(CelError::Syntax("it cannot be parsed".to_owned())),
        };
        let fields = check(&parsed, shape).map_err(CelError::Meaning)?;
        Ok(Self { source: source.into(), parsed: Arc::new(parsed), fields })
    }

    /// The expression as it was written.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Whether the expression reads this field of the data.
    pub(crate) fn reads(&self, field: &str) -> bool {
        self.fields.contains(field)
    }

    /// Evaluates the expression. `value_of`: a field of the data. It is called for each field that the expression reads. If it returns `None`,
    /// the evaluation fails when it reaches the field.
    pub(crate) fn evaluate(
        &self,
        mut value_of: impl FnMut(&str) -> Result<Option<CelValue>, Undecided>,
    ) -> Result<CelValue, Undecided> {
        let mut context = Context::default().with_all();
        for field in &self.fields {
            if let Some(value) = value_of(field)? {
                context.add_variable_from_value(field.as_str(), value);
            }
        }
        match catch_unwind(AssertUnwindSafe(|| CelValue::resolve(&self.parsed, &context))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Undecided::new(&words(&error, &self.source))),
            Err(_) => Err(Undecided::new("the expression cannot be evaluated on these values")),
        }
    }
}

/// The depth of nested brackets. Brackets in string literals count too, because an expression needs few of both.
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

/// Cuts a message. It can contain a key of any length, and the API server must accept a delivery with this message.
fn short(words: &str) -> String {
    words.chars().take(TOLD).collect()
}

/// The message for an error. The messages of the engine show whole values, which can be long and must not be disclosed.
fn words(error: &ExecutionError, source: &str) -> String {
    match error {
        // A key that is not a literal in the source is a value.
        ExecutionError::NoSuchKey(key) if source.contains(key.as_str()) => format!("there is no {key:?}; check has() first"),
        ExecutionError::NoSuchKey(_) => "there is no field with the computed name; check with `in` first".to_owned(),
        ExecutionError::UndeclaredReference(name) => format!("{name} has no value"),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "division by zero".to_owned(),
        ExecutionError::Overflow(..) => "a number is too large".to_owned(),
        ExecutionError::IndexOutOfBounds(_) => "the list has no such entry".to_owned(),
        ExecutionError::FunctionError { function, .. } => format!("{function}(): invalid argument"),
        _ => "the types of the values do not match".to_owned(),
    }
}

/// Converts a value. The conversion of the engine makes numbers above zero unsigned, and these equal no number that users write.
pub(crate) fn cel(value: Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(flag),
        Value::Number(number) => {
            number.as_i64().map_or_else(|| CelValue::Float(number.as_f64().unwrap_or_default()), CelValue::Int)
        }
        Value::String(text) => CelValue::String(Arc::new(text)),
        Value::Array(items) => CelValue::List(Arc::new(items.into_iter().map(cel).collect())),
        Value::Object(fields) => {
            let fields: HashMap<String, CelValue> = fields.into_iter().map(|(name, value)| (name, cel(value))).collect();
            CelValue::Map(fields.into())
        }
    }
}
