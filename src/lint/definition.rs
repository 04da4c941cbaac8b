//! What the API server asks of an object: the schema, the fields that it knows, and its rules.

use std::sync::LazyLock;

use serde_json::Value;

use super::{LintError, Said, Source, metadata, rules};
use crate::manifests::field::is_within;
use crate::manifests::{Document, Structure, schema};

/// The kinds that people write.
pub(super) struct Definitions(Vec<Definition>);

/// What the API server asks of one kind.
pub(super) struct Definition {
    kind: &'static str,
    structure: Structure,
}

/// Compiled once: that takes many times longer than to hold an object against them.
static KNOWN: LazyLock<Result<Definitions, LintError>> = LazyLock::new(|| {
    ["Pipeline", "Notification"].map(Definition::new).into_iter().collect::<Result<_, _>>().map(Definitions)
});

impl Definitions {
    pub(super) fn known() -> Result<&'static Self, LintError> {
        KNOWN.as_ref().map_err(LintError::clone)
    }

    /// That of a kind.
    pub(super) fn of(&self, kind: &str) -> Option<&Definition> {
        self.0.iter().find(|definition| definition.kind == kind)
    }
}

impl Definition {
    fn new(kind: &'static str) -> Result<Self, LintError> {
        let error = |problem: String| LintError { kind: kind.to_owned(), problem };
        let schema = schema(kind).ok_or_else(|| error("there is none".to_owned()))?;
        let structure = Structure::new(schema).map_err(|e| error(e.to_string()))?;
        Ok(Self { kind, structure })
    }

    /// The object as the API server looks at it: without a status, which a create does not take, and without the fields that are
    /// null, which it takes for fields that are not there.
    pub(super) fn as_taken(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if let Value::Object(fields) = &mut object {
            fields.remove("status");
        }
        self.structure.without_nulls(&object)
    }

    /// What is wrong with a document; `object` is how it is taken.
    pub(super) fn check(&self, document: &Document, object: &Value) -> Vec<Said> {
        let mut said = metadata::check(object);
        for (field, message) in self.structure.misfits(&document.value, object) {
            if !said.iter().any(|(before, ..)| *before == field) {
                said.push((field, message, Source::Schema));
            }
        }
        let broken = rules::check(&self.structure.schema, object).into_iter().filter_map(|(field, verdict)| match verdict {
            rules::Verdict::Holds => None,
            rules::Verdict::Broken(message) => Some((field, message, Source::Rule)),
            // A rule goes by the types of the schema; where they are not kept, that has been said.
            rules::Verdict::Unclear(_) if said.iter().any(|(at, ..)| is_within(at, &field)) => None,
            rules::Verdict::Unclear(why) => Some((field, format!("a rule cannot be tried: {why}"), Source::Rule)),
        });
        let broken: Vec<_> = broken.collect();
        said.extend(broken);
        said
    }
}
