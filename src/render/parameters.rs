//! Parameters: texts that a user gives to a template, seen there as `parameters.NAME`.
//!
//! Each is a template itself, over all data but the parameters, so that `pennant/{{environment}}` can be given where a built-in
//! asks for a label. What they render to is text like any other: it is escaped where it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::error::RenderError;
use super::eval::Program;
use super::place::Place;
use super::{MAX_SOURCE, Values, lower};

/// The parameters of one notification, compiled. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Parameters(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    values: BTreeMap<String, Program>,
    unset: BTreeSet<String>,
}

/// What a name after `parameters.` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameter {
    /// A text.
    Set,
    /// Nothing: it is declared, and must be given where it is used.
    Unset,
    /// Nothing: there is no such parameter.
    Unknown,
}

impl Parameters {
    /// Compiles values by name. One that is declared and has no value may not be used. The error says which is wrong.
    pub fn compile<'a>(values: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> Result<Self, (String, RenderError)> {
        let mut inner = Inner::default();
        for (name, source) in values {
            let Some(source) = source else {
                inner.unset.insert(name.to_owned());
                continue;
            };
            let program = lower::compile(source, Place::Plain, &Self::default()).map_err(|e| (name.to_owned(), e))?;
            inner.values.insert(name.to_owned(), program);
        }
        Ok(Self(Arc::new(inner)))
    }

    pub(super) fn get(&self, name: &str) -> Parameter {
        match name {
            name if self.0.values.contains_key(name) => Parameter::Set,
            name if self.0.unset.contains(name) => Parameter::Unset,
            _ => Parameter::Unknown,
        }
    }

    /// The names, for a message.
    pub(super) fn names(&self) -> String {
        let names: BTreeSet<_> = self.0.values.keys().chain(&self.0.unset).map(String::as_str).collect();
        if names.is_empty() {
            return "none; set it in spec.template.parameters".to_owned();
        }
        names.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// Renders all of them over data that have none yet. The error says which could not be.
    pub(super) fn render(&self, values: &Values) -> Result<Value, (String, RenderError)> {
        let text = |(name, program): (&String, &Program)| {
            let output = program.run(values, MAX_SOURCE).map_err(|error| (name.clone(), error))?;
            Ok((name.clone(), Value::String(output.text)))
        };
        self.0.values.iter().map(text).collect::<Result<_, _>>().map(Value::Object)
    }
}
