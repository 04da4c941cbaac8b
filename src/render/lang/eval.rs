//! The program that a template is lowered to, and its run over data.
//!
//! Runs are bounded by a budget of work and not by a clock: each step costs a little and each byte read or made costs one.
//! All templates of a request share one.
//! So a template that renders does so on a busy machine too, and every attempt of a delivery sends the same bytes.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::render::Values;
use crate::render::data::parameters::Sight;
use crate::render::error::{Position, RenderError, shown};
use crate::render::escape::context::Escape;
use crate::render::helpers::{Function, MOST_ARGS, Problem, is_true, text};

/// What the runs for one request may cost. It is spent within 50 ms, and that without optimisation.
pub(in crate::render) const BUDGET: usize = 4 * 1024 * 1024;
/// What a step costs besides its bytes.
const STEP: usize = 16;
/// Room for most values of headers and parameters, and a few steps from that of a body.
const ROOM: usize = 256;

/// A template, ready to run. Fields exist, helpers have their arguments, and each value knows how it is escaped.
#[derive(Debug)]
pub(in crate::render) struct Program {
    pub(in crate::render) nodes: Vec<Node>,
}

impl Program {
    /// The parameters that it names, in any branch.
    pub(in crate::render) fn parameters(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        parameters_of(&self.nodes, &mut names);
        names
    }
}

fn parameters_of(nodes: &[Node], names: &mut BTreeSet<String>) {
    for node in nodes {
        match node {
            Node::Text(_) => {}
            Node::Value { expr, .. } => parameters_in(expr, names),
            Node::Choice { arms, otherwise } => {
                for arm in arms {
                    parameters_in(&arm.condition, names);
                    parameters_of(&arm.body, names);
                }
                parameters_of(otherwise, names);
            }
            Node::Each { map, body, otherwise, .. } => {
                parameters_in(map, names);
                parameters_of(body, names);
                parameters_of(otherwise, names);
            }
        }
    }
}

fn parameters_in(expr: &Expr, names: &mut BTreeSet<String>) {
    match expr {
        Expr::Path(path) => {
            if let [root, name] = path.as_slice()
                && root == "parameters"
            {
                names.insert(name.clone());
            }
        }
        Expr::Call(_, args) => args.iter().for_each(|arg| parameters_in(arg, names)),
        Expr::Literal(_) | Expr::Entry(..) => {}
    }
}

/// A piece of a template.
#[derive(Debug)]
pub(in crate::render) enum Node {
    /// Literal text.
    Text(String),
    /// A value.
    Value { expr: Expr, escape: Escape, at: Position },
    /// The body of the first arm whose condition holds, else `otherwise`.
    Choice { arms: Vec<Arm>, otherwise: Vec<Node> },
    /// The body for each entry of labels or annotations, `otherwise` if there is none.
    Each { map: Expr, body: Vec<Node>, otherwise: Vec<Node>, at: Position },
}

/// `if` or `unless`.
#[derive(Debug)]
pub(in crate::render) struct Arm {
    pub(in crate::render) condition: Expr,
    /// Whether the body is for a condition that holds (`if`) or does not (`unless`).
    pub(in crate::render) wanted: bool,
    pub(in crate::render) body: Vec<Node>,
    pub(in crate::render) at: Position,
}

/// What has a value.
#[derive(Clone, Debug)]
pub(in crate::render) enum Expr {
    /// A text, number or boolean written in the template.
    Literal(Value),
    /// A field, from the root of the data.
    Path(Vec<String>),
    /// A part of the entry of the loop at this depth.
    Entry(usize, EntryPart),
    /// A helper's result.
    Call(Function, Vec<Expr>),
}

/// What is known of an entry within `each`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::render) enum EntryPart {
    /// `this`
    Value,
    /// `@key`
    Key,
    /// `@index`, from 0
    Index,
    /// `@first`
    First,
    /// `@last`
    Last,
}

/// As in a template, but for what is written out, which may be secret.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(_) => f.write_str("\"…\""),
            Self::Path(path) => {
                for (index, name) in path.iter().enumerate() {
                    let dot = if index == 0 { "" } else { "." };
                    let needs_brackets = name.contains(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_'));
                    if needs_brackets { write!(f, "{dot}[{name}]") } else { write!(f, "{dot}{name}") }?;
                }
                Ok(())
            }
            Self::Entry(_, EntryPart::Value) => f.write_str("this"),
            Self::Entry(_, EntryPart::Key) => f.write_str("@key"),
            Self::Entry(_, EntryPart::Index) => f.write_str("@index"),
            Self::Entry(_, EntryPart::First) => f.write_str("@first"),
            Self::Entry(_, EntryPart::Last) => f.write_str("@last"),
            Self::Call(function, args) => {
                write!(f, "({}", function.name())?;
                args.iter().try_for_each(|arg| write!(f, " {arg}"))?;
                f.write_str(")")
            }
        }
    }
}

/// What a program made.
#[derive(Debug)]
pub(in crate::render) struct Output {
    pub(in crate::render) text: String,
    /// Where in `text` something begins or ends that depends on the data; ascending.
    pub(in crate::render) marks: Vec<usize>,
    /// Whether something has a part in it that is not recorded and may change.
    pub(in crate::render) changeable: bool,
}

impl Program {
    /// Runs over data of which it sees so much, to at most `max` bytes.
    pub(in crate::render) fn run(&self, values: &Values, sight: Sight, max: usize) -> Result<Output, RenderError> {
        let before = values.changeable();
        let output = Output { text: String::with_capacity(ROOM), marks: Vec::new(), changeable: false };
        let mut run = Run { values, sight, entries: Vec::new(), output, max };
        run.nodes(&self.nodes).map_err(|error| {
            // What came before has a part in these, in other templates of the request, too.
            let is_of_all = matches!(error, RenderError::OutputTooLong(_) | RenderError::TooMuchWork { .. });
            error.changeable_if(is_of_all && values.changeable() > 0)
        })?;
        run.output.changeable = values.changeable() > before;
        Ok(run.output)
    }
}

struct Run<'a> {
    values: &'a Values,
    sight: Sight,
    /// The entries of the loops that are being run, outermost first.
    entries: Vec<Entry<'a>>,
    output: Output,
    max: usize,
}

#[derive(Clone, Copy)]
struct Entry<'a> {
    key: &'a str,
    value: &'a Value,
    index: usize,
    is_last: bool,
}

impl<'a> Run<'a> {
    fn nodes(&mut self, nodes: &'a [Node]) -> Result<(), RenderError> {
        nodes.iter().try_for_each(|node| self.node(node))
    }

    fn node(&mut self, node: &'a Node) -> Result<(), RenderError> {
        match node {
            Node::Text(text) => return self.write(text),
            Node::Value { expr, escape, at } => {
                self.mark();
                let before = self.values.changeable();
                self.escaped(expr, *escape, *at).map_err(|error| self.noted(error, before))?;
            }
            Node::Choice { arms, otherwise } => {
                self.mark();
                let before = self.values.changeable();
                let chosen = self.chosen(arms, otherwise).map_err(|error| self.noted(error, before))?;
                let changeable = self.values.changeable() > before;
                self.nodes(chosen).map_err(|error| error.changeable_if(changeable))?;
            }
            Node::Each { map, body, otherwise, at } => {
                self.mark();
                self.each(map, body, otherwise, *at)?;
            }
        }
        self.mark();
        Ok(())
    }

    /// An error, with the note whether something that may change was read since.
    fn noted(&self, error: RenderError, before: usize) -> RenderError {
        error.changeable_if(self.values.changeable() > before)
    }

    fn escaped(&mut self, expr: &'a Expr, escape: Escape, at: Position) -> Result<(), RenderError> {
        let value = self.value(expr, at)?;
        let value = text(&value);
        let unfit = |problem| RenderError::Unfit { at, field: shown(&expr.to_string()), problem };
        let escaped = escape.apply(&value).map_err(unfit)?;
        self.spend(escaped.len(), at)?;
        self.write(&escaped)
    }

    fn chosen(&mut self, arms: &'a [Arm], otherwise: &'a [Node]) -> Result<&'a [Node], RenderError> {
        for arm in arms {
            if is_true(&*self.value(&arm.condition, arm.at)?) == arm.wanted {
                return Ok(&arm.body);
            }
        }
        Ok(otherwise)
    }

    fn each(&mut self, map: &'a Expr, body: &'a [Node], otherwise: &'a [Node], at: Position) -> Result<(), RenderError> {
        let before = self.values.changeable();
        let entries = match map {
            Expr::Path(path) => self.values.get(path, self.sight)?.and_then(Value::as_object),
            _ => None,
        };
        let changeable = self.values.changeable() > before;
        let Some(entries) = entries.filter(|entries| !entries.is_empty()) else {
            return self.nodes(otherwise).map_err(|error| error.changeable_if(changeable));
        };
        for (index, (key, value)) in entries.iter().enumerate() {
            self.spend(STEP, at)?;
            self.entries.push(Entry { key, value, index, is_last: index + 1 == entries.len() });
            self.nodes(body).map_err(|error| error.changeable_if(changeable))?;
            self.entries.pop();
        }
        Ok(())
    }

    /// A value that is there.
    fn value(&mut self, expr: &'a Expr, at: Position) -> Result<Cow<'a, Value>, RenderError> {
        match self.find(expr, at)? {
            Some(value) => Ok(value),
            None => Err(RenderError::MayBeMissing { at, field: shown(&expr.to_string()) }),
        }
    }

    /// A value, or none for a label or annotation that is missing.
    fn find(&mut self, expr: &'a Expr, at: Position) -> Result<Option<Cow<'a, Value>>, RenderError> {
        self.spend(STEP, at)?;
        match expr {
            Expr::Literal(value) => Ok(Some(Cow::Borrowed(value))),
            Expr::Path(path) => Ok(self.values.get(path, self.sight)?.map(Cow::Borrowed)),
            Expr::Entry(depth, part) => Ok(self.entries.get(*depth).map(|entry| entry.part(*part))),
            Expr::Call(function, args) => self.call(*function, args, at),
        }
    }

    fn call(&mut self, function: Function, args: &'a [Expr], at: Position) -> Result<Option<Cow<'a, Value>>, RenderError> {
        match (function, args) {
            (Function::And | Function::Or, args) => {
                for arg in args {
                    if is_true(&*self.value(arg, at)?) == (function == Function::Or) {
                        return Ok(Some(Cow::Owned(Value::Bool(function == Function::Or))));
                    }
                }
                Ok(Some(Cow::Owned(Value::Bool(function == Function::And))))
            }
            (Function::Default, [wanted, fallback]) => match self.find(wanted, at)? {
                Some(value) if !text(&value).is_empty() => Ok(Some(value)),
                _ => self.find(fallback, at),
            },
            (Function::Lookup, [map, name]) => {
                let name = self.value(name, at)?;
                Ok(match self.value(map, at)? {
                    Cow::Borrowed(Value::Object(map)) => map.get(&*text(&name)).map(Cow::Borrowed),
                    _ => None,
                })
            }
            _ => {
                let mut values = [const { Cow::Owned(Value::Null) }; MOST_ARGS];
                let mut read = 0;
                for (value, arg) in values.iter_mut().zip(args) {
                    *value = self.value(arg, at)?;
                    read += size(value);
                }
                self.spend(read, at)?;
                let failed = |problem: Problem| RenderError::HelperFailed {
                    at,
                    helper: function.name(),
                    problem: function.explained(&problem, args.first().map(|arg| shown(&arg.to_string())).as_deref()),
                };
                let result = function.call(&values[..args.len().min(MOST_ARGS)]).map_err(failed)?;
                self.spend(size(&result), at)?;
                Ok(Some(Cow::Owned(result)))
            }
        }
    }

    fn write(&mut self, text: &str) -> Result<(), RenderError> {
        if self.output.text.len() + text.len() > self.max {
            return Err(RenderError::OutputTooLong(self.max));
        }
        self.output.text.push_str(text);
        Ok(())
    }

    fn mark(&mut self) {
        let here = self.output.text.len();
        if self.output.marks.last() != Some(&here) {
            self.output.marks.push(here);
        }
    }

    fn spend(&mut self, units: usize, at: Position) -> Result<(), RenderError> {
        let budget = self.values.budget();
        budget.set(budget.get().checked_sub(units).ok_or(RenderError::TooMuchWork { at })?);
        Ok(())
    }
}

impl<'a> Entry<'a> {
    fn part(self, part: EntryPart) -> Cow<'a, Value> {
        match part {
            EntryPart::Value => Cow::Borrowed(self.value),
            EntryPart::Key => Cow::Owned(self.key.into()),
            EntryPart::Index => Cow::Owned(self.index.into()),
            EntryPart::First => Cow::Owned((self.index == 0).into()),
            EntryPart::Last => Cow::Owned(self.is_last.into()),
        }
    }
}

/// About how many bytes a value has as text.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + size(value)).sum(),
    }
}
