//! Checks an expression: which fields it reads, and which kind of value each part has.
//!
//! In: a parsed expression, and the shape of the data. Out: the fields that it reads, or a message about what is wrong. The CEL
//! engine itself finds a wrong name or type only in the part that an evaluation happens to reach.

use std::collections::BTreeSet;

use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, SelectExpr, operators};
use kube_cel::cel::parser::Expression;
use kube_cel::cel::{Context, Value as CelValue};
use serde_json::Value;

use relaybook_api::values::nearest::nearest;

/// Maximum number of parts of an expression: names, values and calls.
const MOST: usize = 64;
/// Maximum length of a pattern, in bytes.
const LONGEST_PATTERN: usize = 128;
/// The known functions, with the kind of their result.
const FUNCTIONS: [(&str, Kind<'static>); 11] = [
    ("size", Kind::Number),
    ("contains", Kind::Bool),
    ("startsWith", Kind::Bool),
    ("endsWith", Kind::Bool),
    ("matches", Kind::Bool),
    ("lowerAscii", Kind::Text),
    ("upperAscii", Kind::Text),
    ("trim", Kind::Text),
    ("string", Kind::Text),
    ("int", Kind::Number),
    ("double", Kind::Number),
];

/// The shape of the data that expressions can read.
#[derive(Debug)]
pub(crate) struct Shape {
    /// A sample of the data: its fields, and the kinds of their values.
    pub(crate) sample: Value,
    /// Names of objects with any field names, whose values are all texts.
    pub(crate) texts: &'static [&'static str],
    /// Names of fields of any kind.
    pub(crate) any: &'static [&'static str],
    /// The kinds that a result can have.
    pub(crate) result: Expected,
    /// Whether expressions can match patterns, which is expensive on long texts.
    pub(crate) has_patterns: bool,
}

/// The kinds that the result of an expression can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// A boolean.
    Bool,
    /// A boolean, or a number.
    BoolOrNumber,
    /// A string, or a number.
    TextOrNumber,
}

impl Expected {
    /// Whether a result can be of this kind.
    fn allows(self, kind: Kind<'_>) -> bool {
        match kind {
            Kind::Any => true,
            Kind::Bool => self != Self::TextOrNumber,
            Kind::Number => self != Self::Bool,
            Kind::Text => self == Self::TextOrNumber,
            Kind::List | Kind::Fields(_) | Kind::Texts => false,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Bool => "a boolean",
            Self::BoolOrNumber => "a boolean or a number",
            Self::TextOrNumber => "a string or a number",
        }
    }
}

/// The kind of value of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind<'a> {
    Bool,
    Text,
    Number,
    List,
    /// An object whose fields are all known.
    Fields(&'a Value),
    /// An object with any field names, whose values are all texts.
    Texts,
    Any,
}

impl Kind<'_> {
    fn word(self) -> &'static str {
        match self {
            Self::Bool => "a boolean",
            Self::Text => "a string",
            Self::Number => "a number",
            Self::List => "a list",
            Self::Fields(_) | Self::Texts => "an object",
            Self::Any => "anything",
        }
    }

    /// Whether it is a value without parts.
    fn is_plain(self) -> bool {
        matches!(self, Self::Bool | Self::Text | Self::Number)
    }

    fn may_be_bool(self) -> bool {
        matches!(self, Self::Bool | Self::Any)
    }
}

/// Checks an expression. Returns the fields of the data that it reads.
pub(super) fn check(expression: &Expression, shape: &Shape) -> Result<BTreeSet<String>, String> {
    let mut check = Check { shape, fields: BTreeSet::new(), variable: None, parts: 0 };
    match check.kind(expression)? {
        kind if shape.result.allows(kind) => Ok(check.fields),
        kind => Err(format!("must be {}, but is {}", shape.result.words(), kind.word())),
    }
}

struct Check<'a> {
    shape: &'a Shape,
    fields: BTreeSet<String>,
    /// The variable for the entries of a list, within a macro.
    variable: Option<String>,
    parts: usize,
}

impl<'a> Check<'a> {
    fn kind(&mut self, expression: &Expression) -> Result<Kind<'a>, String> {
        self.parts += 1;
        if self.parts > MOST {
            return Err(format!("has more than {MOST} parts"));
        }
        match &expression.expr {
            Expr::Literal(literal) => Ok(match literal {
                LiteralValue::Boolean(_) => Kind::Bool,
                LiteralValue::String(_) => Kind::Text,
                LiteralValue::Double(_) | LiteralValue::Int(_) | LiteralValue::UInt(_) => Kind::Number,
                LiteralValue::Bytes(_) | LiteralValue::Null => Kind::Any,
            }),
            Expr::Ident(name) if self.variable.as_ref() == Some(name) => Ok(Kind::Any),
            Expr::Ident(name) => {
                let sample = &self.shape.sample;
                let kind = self.shape.field(sample, name).ok_or_else(|| unknown("there is no", name, sample))?;
                self.fields.insert(name.clone());
                Ok(kind)
            }
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                for element in &list.elements {
                    self.kind(element)?;
                }
                Ok(Kind::List)
            }
            Expr::Comprehension(of) => self.comprehension(of),
            Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => Err("object literals are not supported".to_owned()),
        }
    }

    fn select(&mut self, SelectExpr { operand, field, test }: &SelectExpr) -> Result<Kind<'a>, String> {
        let of = self.kind(operand)?;
        let kind = self.shape.below(of, field, operand)?;
        Ok(if *test { Kind::Bool } else { kind })
    }

    fn call(&mut self, call: &CallExpr) -> Result<Kind<'a>, String> {
        let name = call.func_name.as_str();
        let mut kinds = Vec::new();
        for part in call.target.iter().map(AsRef::as_ref).chain(&call.args) {
            kinds.push(self.kind(part)?);
        }
        match (name, kinds.as_slice()) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT, kinds) => {
                if kinds.iter().all(|kind| kind.may_be_bool()) {
                    return Ok(Kind::Bool);
                }
                let sides = if name == operators::LOGICAL_NOT { "a boolean" } else { "booleans on both sides" };
                Err(format!("{} requires {sides}", name.trim_matches('_')))
            }
            (operators::CONDITIONAL, [condition, one, other]) => {
                if !condition.may_be_bool() {
                    return Err("the part before ? must be a boolean".to_owned());
                }
                Ok(if one == other { *one } else { Kind::Any })
            }
            (operators::EQUALS | operators::NOT_EQUALS, [one, other]) => {
                if one.is_plain() && other.is_plain() && one != other {
                    return Err(format!("{} is never equal to {}", one.word(), other.word()));
                }
                Ok(Kind::Bool)
            }
            (operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS, [one, other]) => {
                compared(*one, *other)
            }
            (operators::IN, [_, of]) if of.is_plain() => {
                Err(format!("in requires a list or an object on the right side, which is {}", of.word()))
            }
            (operators::IN, _) => Ok(Kind::Bool),
            (operators::ADD, [one, other]) => added(*one, *other),
            (operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO, kinds) => {
                if kinds.iter().all(|kind| matches!(kind, Kind::Number | Kind::Any)) {
                    return Ok(Kind::Number);
                }
                Err(format!("{} requires numbers on both sides", name.trim_matches('_')))
            }
            (operators::NEGATE, _) => Ok(Kind::Number),
            (operators::INDEX, [of, _]) => match (text(&call.args), call.args.first()) {
                (Some(field), Some(operand)) => self.shape.below(*of, field, operand),
                (None, Some(operand)) if of.is_plain() => self.shape.below(*of, "entries", operand),
                _ if matches!(of, Kind::Texts) => Ok(Kind::Text),
                _ => Ok(Kind::Any),
            },
            _ => function(call, self.shape.has_patterns),
        }
    }

    fn comprehension(&mut self, of: &ComprehensionExpr) -> Result<Kind<'a>, String> {
        if matches!(of.accu_init.expr, Expr::List(_)) {
            return Err("map() and filter() are not supported; use all(), exists() or exists_one()".to_owned());
        }
        if self.variable.is_some() {
            return Err("all(), exists() and exists_one() cannot be nested".to_owned());
        }
        if !matches!(of.iter_range.expr, Expr::List(_)) {
            return Err("all(), exists() and exists_one() require a literal list, such as ['a', 'b']".to_owned());
        }
        self.kind(&of.iter_range)?;
        // The condition of the user is next to the accumulator of the macro.
        let Expr::Call(step) = &of.loop_step.expr else { return Err("this macro is not supported".to_owned()) };
        let written = if step.func_name == operators::CONDITIONAL { step.args.first() } else { step.args.get(1) };
        let Some(written) = written else { return Err("this macro is not supported".to_owned()) };
        self.variable = Some(of.iter_var.clone());
        let kind = self.kind(written);
        self.variable = None;
        // Entries of a list can have any kind, and an entry alone is not a condition.
        if !kind?.may_be_bool() || matches!(written.expr, Expr::Ident(_)) {
            return Err("the condition for each entry must be a boolean".to_owned());
        }
        Ok(Kind::Bool)
    }
}

/// The result of `<`, `<=`, `>` or `>=`. The engine orders only plain values of the same kind.
fn compared<'a>(one: Kind<'a>, other: Kind<'a>) -> Result<Kind<'a>, String> {
    let has_order = |kind: Kind<'_>| kind.is_plain() || kind == Kind::Any;
    let is_known = one != Kind::Any && other != Kind::Any;
    if !has_order(one) || !has_order(other) || (is_known && one != other) {
        return Err(format!("{} cannot be compared with {}", one.word(), other.word()));
    }
    Ok(Kind::Bool)
}

/// The result of `+`.
fn added<'a>(one: Kind<'a>, other: Kind<'a>) -> Result<Kind<'a>, String> {
    match (one, other) {
        (Kind::Text, Kind::Text) => Ok(Kind::Text),
        (Kind::Number, Kind::Number) => Ok(Kind::Number),
        (Kind::Any, _) | (_, Kind::Any) | (Kind::List, Kind::List | Kind::Fields(_) | Kind::Texts) => Ok(Kind::Any),
        _ => Err(format!("{} and {} cannot be added", one.word(), other.word())),
    }
}

impl Shape {
    fn field<'a>(&self, object: &'a Value, name: &str) -> Option<Kind<'a>> {
        Some(match object.get(name)? {
            _ if self.any.contains(&name) => Kind::Any,
            Value::Bool(_) => Kind::Bool,
            Value::Number(_) => Kind::Number,
            Value::Array(_) => Kind::List,
            Value::Object(_) if self.texts.contains(&name) => Kind::Texts,
            value @ Value::Object(_) => Kind::Fields(value),
            Value::String(_) | Value::Null => Kind::Text,
        })
    }

    /// The kind of a field in a value of this kind.
    fn below<'a>(&self, kind: Kind<'a>, name: &str, operand: &Expression) -> Result<Kind<'a>, String> {
        match kind {
            Kind::Fields(object) => {
                self.field(object, name).ok_or_else(|| unknown(&format!("{} has no", path(operand)), name, object))
            }
            Kind::Texts => Ok(Kind::Text),
            Kind::Any => Ok(Kind::Any),
            other => Err(format!("{} is {} and has no {name}", path(operand), other.word())),
        }
    }
}

fn unknown(there_is_no: &str, name: &str, object: &Value) -> String {
    let known = object.as_object().into_iter().flat_map(|fields| fields.keys().map(String::as_str));
    match nearest(name, known) {
        Some(meant) => format!("{there_is_no} {name}; did you mean {meant}?"),
        None => format!("{there_is_no} {name}"),
    }
}

/// The source text of a part, if it is a name.
fn path(expression: &Expression) -> String {
    match &expression.expr {
        Expr::Ident(name) => name.clone(),
        Expr::Select(select) => format!("{}.{}", path(&select.operand), select.field),
        _ => "the value".to_owned(),
    }
}

/// The last argument, if it is a string literal.
fn text(args: &[Expression]) -> Option<&str> {
    match args.last().map(|arg| &arg.expr) {
        Some(Expr::Literal(LiteralValue::String(text))) => Some(text.inner()),
        _ => None,
    }
}

fn function<'a>(call: &CallExpr, has_patterns: bool) -> Result<Kind<'a>, String> {
    let name = call.func_name.as_str();
    let functions = || FUNCTIONS.iter().filter(|(known, _)| has_patterns || *known != "matches");
    let Some((_, kind)) = functions().find(|(known, _)| *known == name) else {
        // The parser names an operator by its symbols, such as `_?._`.
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c)) {
            return Err("the expression uses an operator that is not supported".to_owned());
        }
        return Err(match nearest(name, functions().map(|(known, _)| *known)) {
            Some(meant) => format!("there is no function {name}(); did you mean {meant}()?"),
            None => format!("there is no function {name}()"),
        });
    };
    if name == "matches" {
        pattern(text(&call.args).filter(|pattern| pattern.len() <= LONGEST_PATTERN && !pattern.contains('{')))?;
    }
    Ok(*kind)
}

/// Compiles a pattern. It must be short and must not contain counts, because counts make a short pattern expensive.
fn pattern(pattern: Option<&str>) -> Result<(), String> {
    let Some(pattern) = pattern else {
        return Err(format!("matches() requires a literal pattern of at most {LONGEST_PATTERN} bytes and without {{"));
    };
    let mut context = Context::default();
    context.add_variable_from_value("pattern", pattern.to_owned());
    let tried = kube_cel::cel::Program::compile("''.matches(pattern)").map(|program| program.execute(&context));
    match tried {
        Ok(Ok(CelValue::Bool(_))) => Ok(()),
        _ => Err(format!("{pattern:?} is not a valid pattern")),
    }
}
