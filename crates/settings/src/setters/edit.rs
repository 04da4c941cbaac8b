//! Replaces the values of an environment, and checks the result.

use super::SetterError;
use super::marker::{EnvironmentRef, Part};
use super::nodes::{self, Content, Node, NotYaml, Scalar};
use super::quote::{Style, needs_quotes};
use super::revision::Revision;
use super::scan::{Problem, Scan, Setter, Setters, is_candidate};
use super::value::replacement;

/// The result of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The whole text after the edit. It is the text before if all values are set already.
    pub text: String,
    /// The values with a marker of the environment, in the order of their lines.
    pub changes: Vec<Change>,
}

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The line, from 1. It is the same before and after.
    pub line: u64,
    /// What of the value is set.
    pub part: Part,
    /// The value before.
    pub old: String,
    /// The value after.
    pub new: String,
    /// Whether the text of the file changes. Quotes can change although the value stays.
    pub is_edit: bool,
}

/// Sets all values of a file that are marked with an environment. Returns `None` if the file has no such value.
///
/// All bytes besides these values stay as they are. Before and after, all documents have the same nodes, except that each of these values is
/// a string with the new value. Otherwise the result is an error, with at least one problem. A marker of another environment that sets
/// nothing is no problem here.
pub fn edit(text: &str, environment: &EnvironmentRef, revision: &Revision) -> Result<Option<Edit>, Vec<Problem>> {
    if !is_candidate(text) {
        return Ok(None);
    }
    let before = nodes::read(text).map_err(|NotYaml { line, problem }| {
        vec![Problem { line, environment: None, error: SetterError::NotYaml(problem) }]
    })?;
    let Setters { mut setters, mut problems } = Scan::new(text, &before).run();
    setters.retain(|setter| setter.environment == *environment);
    problems.retain(|problem| problem.environment.as_ref().is_none_or(|of| of == environment));
    let mut values = Vec::new();
    for setter in &setters {
        match replacement(&setter.value, setter.part, revision) {
            Ok(value) => values.push(value),
            Err(error) => problems.push(problem(setter, error)),
        }
    }
    if !problems.is_empty() {
        problems.sort_by_key(|problem| problem.line);
        return Err(problems);
    }
    if setters.is_empty() {
        return Ok(None);
    }
    let edit = apply(text, &before, &setters, values);
    match differs(&edit, &before, &setters) {
        None => Ok(Some(edit)),
        Some(setter) => Err(vec![problem(setter, SetterError::Differs)]),
    }
}

fn problem(setter: &Setter, error: SetterError) -> Problem {
    Problem { line: setter.line, environment: Some(setter.environment.clone()), error }
}

/// Writes the values, one for each setter.
fn apply(text: &str, before: &[Node], setters: &[Setter], values: Vec<String>) -> Edit {
    let mut edit = Edit { text: String::with_capacity(text.len()), changes: Vec::new() };
    let mut at = 0;
    for (setter, new) in setters.iter().zip(values) {
        let written = &text[setter.span.clone()];
        let style = Style::of(written);
        let is_text = matches!(&before[setter.node].content, Content::Value(Scalar::Text(old)) if *old == new);
        let is_set = is_text && (style != Style::Plain || !needs_quotes(&new));
        let value = if is_set { written.to_owned() } else { style.write(&new) };
        edit.text.push_str(&text[at..setter.span.start]);
        edit.text.push_str(&value);
        at = setter.span.end;
        edit.changes.push(Change {
            line: setter.line,
            part: setter.part,
            old: setter.value.clone(),
            new,
            is_edit: value != written,
        });
    }
    edit.text.push_str(&text[at..]);
    edit
}

/// Returns the first setter whose value is not the only difference in its place, or any setter if there is another difference.
fn differs<'a>(edit: &Edit, before: &[Node], setters: &'a [Setter]) -> Option<&'a Setter> {
    let Ok(after) = nodes::read(&edit.text) else { return setters.first() };
    let mut expected: Vec<_> = before.iter().map(|node| node.content.clone()).collect();
    for (setter, change) in setters.iter().zip(&edit.changes) {
        expected[setter.node] = Content::Value(Scalar::Text(change.new.clone()));
    }
    let is_other = |setter: &&Setter| after.get(setter.node).is_none_or(|node| node.content != expected[setter.node]);
    if let Some(setter) = setters.iter().find(is_other) {
        return Some(setter);
    }
    let is_same = after.iter().map(|node| &node.content).eq(expected.iter());
    if is_same { None } else { setters.first() }
}
