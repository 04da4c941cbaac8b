//! Checks what the API server requires of an object: the schema, the known fields, and the rules.

use std::sync::LazyLock;

use serde_json::Value;

use super::{LintError, Said, Source, metadata, rules};
use crate::manifests::field::is_within;
use crate::manifests::{Document, Structure, schema};

/// The CRDs of the kinds that people write.
pub(super) struct Definitions(Vec<Definition>);

/// What the API server requires of one kind.
pub(super) struct Definition {
    kind: &'static str,
    structure: Structure,
}

/// Compiled once, because compiling takes many times longer than checking an object.
static KNOWN: LazyLock<Result<Definitions, LintError>> = LazyLock::new(|| {
    ["Pipeline", "Notification"].map(Definition::new).into_iter().collect::<Result<_, _>>().map(Definitions)
});

impl Definitions {
    pub(super) fn known() -> Result<&'static Self, LintError> {
        KNOWN.as_ref().map_err(LintError::clone)
    }

    /// The definition of a kind.
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

    /// The object as the API server sees it: without a status, which a create ignores, and without null fields, which count as absent.
    pub(super) fn as_taken(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if let Value::Object(fields) = &mut object {
            fields.remove("status");
        }
        self.structure.without_nulls(&object)
    }

    /// The problems of a document. `object` is the document as the API server sees it.
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
            // A rule requires the types of the schema. A wrong type is already reported.
            rules::Verdict::Unclear(_) if said.iter().any(|(at, ..)| is_within(at, &field)) => None,
            rules::Verdict::Unclear(why) => Some((field, format!("a rule cannot be evaluated: {why}"), Source::Rule)),
        });
        let broken: Vec<_> = broken.collect();
        said.extend(broken);
        said
    }
}
