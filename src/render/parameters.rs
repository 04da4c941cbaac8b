//! Parameters: texts that a user gives to a template, seen there as `parameters.NAME`.
//!
//! Each is a template itself, over all data but the parameters, so that `pennant/{{environment}}` can be given where a built-in
//! asks for a label. What they render to is text like any other: it is escaped where it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::error::RenderError;
use super::eval::Program;
use super::lower;
use super::place::Place;

/// The parameters of one notification, compiled. Cheap to clone.
#[derive(Clone, Default)]
pub struct Parameters(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// By name, in order.
    set: Vec<(String, Program)>,
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
        let (mut set, mut unset) = (BTreeMap::new(), BTreeSet::new());
        for (name, source) in values {
            let Some(source) = source else {
                unset.insert(name.to_owned());
                continue;
            };
            let program = lower::compile(source, Place::Plain, &Self::default()).map_err(|e| (name.to_owned(), e))?;
            set.insert(name.to_owned(), program);
        }
        Ok(Self(Arc::new(Inner { set: set.into_iter().collect(), unset })))
    }

    pub(super) fn get(&self, name: &str) -> Parameter {
        match name {
            name if self.find(name).is_some() => Parameter::Set,
            name if self.0.unset.contains(name) => Parameter::Unset,
            _ => Parameter::Unknown,
        }
    }

    /// The names, for a message.
    pub(super) fn names(&self) -> String {
        let names: BTreeSet<_> = self.set().chain(self.unset()).collect();
        if names.is_empty() {
            return "none; set it in spec.template.parameters".to_owned();
        }
        names.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// How many have a value.
    pub(super) fn len(&self) -> usize {
        self.0.set.len()
    }

    /// The names of those that have a value, in order.
    pub(super) fn set(&self) -> impl Iterator<Item = &str> {
        self.0.set.iter().map(|(name, _)| name.as_str())
    }

    /// The names of those that are declared and have none, in order.
    pub(super) fn unset(&self) -> impl Iterator<Item = &str> {
        self.0.unset.iter().map(String::as_str)
    }

    /// The place and the template of one that has a value.
    pub(super) fn find(&self, name: &str) -> Option<(usize, &Program)> {
        let index = self.0.set.binary_search_by(|(of, _)| of.as_str().cmp(name)).ok()?;
        self.0.set.get(index).map(|(_, program)| (index, program))
    }
}

/// The names only, for the values may be secret.
impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.set()).finish()
    }
}
