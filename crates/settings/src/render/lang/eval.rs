//! The program that a template is compiled to, and its run over data.
//!
//! A budget of work limits the runs, not a clock. Each step costs a fixed amount, and each byte that is read or created costs one. All
//! templates of a request share one budget. So a template that renders also renders on a busy machine, and every attempt of a delivery
//! sends the same bytes.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::commits::explained;
use super::fields::parameter;
use crate::render::Values;
use crate::render::data::parameters::Visibility;
use crate::render::error::{Position, RenderError, for_message};
use crate::render::escape::context::Escape;
use crate::render::helpers::{Function, MOST_ARGS, Problem, is_true, text};
use relaybook_api::values::commit::find_commit;

/// The budget of all runs for one request. It is spent within 50 ms, even in a build without optimisation.
pub(crate) const BUDGET: usize = 4 * 1024 * 1024;
/// The cost of a step, in addition to its bytes.
pub(super) const STEP: usize = 16;
/// Initial capacity of an output in bytes. Most values of headers and parameters fit, and the output of a body grows from it in a few
/// steps.
const ROOM: usize = 256;

/// A compiled template. All its fields exist, all helpers have their arguments, and each value has its escaping.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) nodes: Vec<Node>,
}

impl Program {
    /// Returns the names of the parameters that it uses in any branch.
    pub(crate) fn parameters(&self) -> BTreeSet<String> {
        self.names_below("parameters")
    }

    /// Returns the names of the fields of this object that it uses in any branch.
    pub(crate) fn names_below(&self, root: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        names_of(&self.nodes, root, &mut names);
        names
    }
}

fn names_of(nodes: &[Node], root: &str, names: &mut BTreeSet<String>) {
    for node in nodes {
        match node {
            Node::Text(_) => {}
            Node::Value { expr, .. } => names_in(expr, root, names),
            Node::Choice { arms, otherwise } => {
                for arm in arms {
                    names_in(&arm.condition, root, names);
                    names_of(&arm.body, root, names);
                }
                names_of(otherwise, root, names);
            }
            Node::Each { map, body, otherwise, .. } => {
                names_in(map, root, names);
                names_of(body, root, names);
                names_of(otherwise, root, names);
            }
        }
    }
}

fn names_in(expr: &Expr, root: &str, names: &mut BTreeSet<String>) {
    match expr {
        Expr::Path(path) => {
            if let [first, name] = path.as_slice()
                && first == root
            {
                names.insert(name.clone());
            }
        }
        Expr::Call(_, args) => args.iter().for_each(|arg| names_in(arg, root, names)),
        Expr::Literal(_) | Expr::Entry(..) => {}
    }
}

/// A part of a template.
#[derive(Debug)]
pub(crate) enum Node {
    /// Literal text.
    Text(String),
    /// A value.
    Value { expr: Expr, escape: Escape, at: Position },
    /// The body of the first arm whose condition is met, or `otherwise` if there is none.
    Choice { arms: Vec<Arm>, otherwise: Vec<Node> },
    /// The body for each entry of labels or annotations, or for each field of a parameter. `otherwise` if there is none.
    Each { map: Expr, body: Vec<Node>, otherwise: Vec<Node>, at: Position },
}

/// A branch of `if` or `unless`.
#[derive(Debug)]
pub(crate) struct Arm {
    pub(crate) condition: Expr,
    /// The value of the condition with which the body runs: true for `if`, false for `unless`.
    pub(crate) runs_if: bool,
    pub(crate) body: Vec<Node>,
    pub(crate) at: Position,
}

/// An expression with a value.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    /// A text, number or boolean written in the template.
    Literal(Value),
    /// A field, from the root of the data.
    Path(Vec<String>),
    /// A part of the entry of the loop at this depth.
    Entry(usize, EntryPart),
    /// The result of a helper.
    Call(Function, Vec<Expr>),
}

/// A part of an entry within `each`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryPart {
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

/// Writes the expression as in a template, but omits literals, because they may be secret.
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

/// The output of a program.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) text: String,
    /// The byte offsets in `text` at which a part that depends on the data starts or ends, in ascending order.
    pub(crate) marks: Vec<usize>,
    /// Whether it depends on values that are not recorded and may change.
    pub(crate) changeable: bool,
}

impl Program {
    /// Runs the program over the values that `visibility` allows. The output has at most `max` bytes.
    pub(crate) fn run(&self, values: &Values, visibility: Visibility, max: usize) -> Result<Output, RenderError> {
        run(&self.nodes, values, visibility, max)
    }
}

/// Runs a part of a program.
pub(super) fn run(nodes: &[Node], values: &Values, visibility: Visibility, max: usize) -> Result<Output, RenderError> {
    let before = values.changeable();
    let output = Output { text: String::with_capacity(ROOM), marks: Vec::new(), changeable: false };
    let mut run = Run { values, visibility, entries: Vec::new(), output, max };
    run.nodes(nodes).map_err(|error| {
        // These errors depend on everything that ran before, also in other templates of the request.
        let is_of_all = error.is_of_limit();
        error.changeable_if(is_of_all && values.changeable() > 0)
    })?;
    run.output.changeable = values.changeable() > before;
    Ok(run.output)
}

struct Run<'a> {
    values: &'a Values,
    visibility: Visibility,
    /// The current entries of the running loops, outermost first.
    entries: Vec<Entry<'a>>,
    output: Output,
    max: usize,
}

/// A name and a value.
type Listed<'a> = (&'a str, &'a Value);

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

    /// Marks an error as changeable if values that may change were read since `before`.
    fn noted(&self, error: RenderError, before: usize) -> RenderError {
        error.changeable_if(self.values.changeable() > before)
    }

    fn escaped(&mut self, expr: &'a Expr, escape: Escape, at: Position) -> Result<(), RenderError> {
        let value = self.value(expr, at)?;
        let value = text(&value);
        let not_allowed = |problem| RenderError::ValueNotAllowed { at, field: for_message(&expr.to_string()), problem };
        let escaped = escape.apply(&value).map_err(not_allowed)?;
        self.spend(escaped.len(), at)?;
        self.write(&escaped)
    }

    fn chosen(&mut self, arms: &'a [Arm], otherwise: &'a [Node]) -> Result<&'a [Node], RenderError> {
        for arm in arms {
            if is_true(&*self.value(&arm.condition, arm.at)?) == arm.runs_if {
                return Ok(&arm.body);
            }
        }
        Ok(otherwise)
    }

    fn each(&mut self, map: &'a Expr, body: &'a [Node], otherwise: &'a [Node], at: Position) -> Result<(), RenderError> {
        // A loop without an entry is work, too.
        self.spend(STEP, at)?;
        let before = self.values.changeable();
        let entries = self.listed(map)?;
        let changeable = self.values.changeable() > before;
        let count = entries.len();
        if count == 0 {
            return self.nodes(otherwise).map_err(|error| error.changeable_if(changeable));
        }
        for (index, (key, value)) in entries.into_iter().enumerate() {
            self.spend(STEP, at)?;
            self.entries.push(Entry { key, value, index, is_last: index + 1 == count });
            self.nodes(body).map_err(|error| error.changeable_if(changeable))?;
            self.entries.pop();
        }
        Ok(())
    }

    /// Returns labels, annotations or all parameters, or the fields of one parameter.
    fn listed(&self, map: &'a Expr) -> Result<Vec<Listed<'a>>, RenderError> {
        let Expr::Path(path) = map else { return Ok(Vec::new()) };
        if let Some(name) = parameter(path) {
            let fields = self.values.fields(name, self.visibility)?;
            return Ok(fields.iter().map(|(key, value)| (key.as_str(), value)).collect());
        }
        let entries = self.values.get(path, self.visibility)?.and_then(Value::as_object);
        Ok(entries.into_iter().flatten().map(|(key, value)| (key.as_str(), value)).collect())
    }

    /// Returns a value, or an error if it is missing.
    fn value(&mut self, expr: &'a Expr, at: Position) -> Result<Cow<'a, Value>, RenderError> {
        match self.find(expr, at)? {
            Some(value) => Ok(value),
            None => Err(RenderError::MayBeMissing { at, field: for_message(&expr.to_string()) }),
        }
    }

    /// Returns a value, or `None` for a missing label or annotation.
    fn find(&mut self, expr: &'a Expr, at: Position) -> Result<Option<Cow<'a, Value>>, RenderError> {
        self.spend(STEP, at)?;
        match expr {
            Expr::Literal(value) => Ok(Some(Cow::Borrowed(value))),
            Expr::Path(path) => Ok(self.values.get(path, self.visibility)?.map(Cow::Borrowed)),
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
                if let (Function::Commit, [of]) = (function, args)
                    && let Err(why) = find_commit(&text(&values[0]))
                {
                    return Err(RenderError::NoCommit { at, problem: explained(why, &for_message(&of.to_string())) });
                }
                let failed = |problem: Problem| RenderError::HelperFailed {
                    at,
                    helper: function.name(),
                    problem: problem.into_owned(),
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

    fn spend(&self, units: usize, at: Position) -> Result<(), RenderError> {
        self.values.spend(units, at)
    }
}

impl<'a> Entry<'a> {
    fn part(&self, part: EntryPart) -> Cow<'a, Value> {
        match part {
            EntryPart::Value => Cow::Borrowed(self.value),
            EntryPart::Key => Cow::Owned(self.key.into()),
            EntryPart::Index => Cow::Owned(self.index.into()),
            EntryPart::First => Cow::Owned((self.index == 0).into()),
            EntryPart::Last => Cow::Owned(self.is_last.into()),
        }
    }
}

/// Returns the approximate number of bytes of a value as text.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + size(value)).sum(),
    }
}
