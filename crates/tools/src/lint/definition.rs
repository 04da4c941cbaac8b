//! Checks what the API server requires of an object: the schema, the known fields, and the rules.

use std::sync::LazyLock;

use serde_json::Value;

use super::{FieldProblem, LintError, Source, metadata, rules};
use relaybook_settings::manifests::field::is_within;
use relaybook_settings::manifests::{Document, Structure, schema};

/// The CRDs of the kinds that users can create.
pub(super) struct Definitions(Vec<Definition>);

/// What the API server requires of one kind.
pub(super) struct Definition {
    kind: &'static str,
    structure: Structure,
}

/// Compiled once, because compiling takes many times longer than checking an object.
static KNOWN: LazyLock<Result<Definitions, LintError>> = LazyLock::new(|| {
    ["Pipeline", "PipelineSet", "Notification", "Promotion"]
        .map(Definition::new)
        .into_iter()
        .collect::<Result<_, _>>()
        .map(Definitions)
});

impl Definitions {
    pub(super) fn known() -> Result<&'static Self, LintError> {
        KNOWN.as_ref().map_err(LintError::clone)
    }

    /// Returns the definition of a kind.
    pub(super) fn of(&self, kind: &str) -> Option<&Definition> {
        self.0.iter().find(|definition| definition.kind == kind)
    }
}

impl Definition {
    fn new(kind: &'static str) -> Result<Self, LintError> {
        let error = |problem: String| LintError { kind: kind.to_owned(), problem };
        let schema = schema(kind).ok_or_else(|| error("no CRD of this kind".to_owned()))?;
        let structure = Structure::new(schema).map_err(|e| error(e.to_string()))?;
        Ok(Self { kind, structure })
    }

    /// Returns the object as the API server validates it: without a status, which a create ignores, and without null fields, which count as
    /// absent.
    pub(super) fn as_validated(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if let Value::Object(fields) = &mut object {
            fields.remove("status");
        }
        self.structure.without_nulls(&object)
    }

    /// Returns the problems of a document. `object` is the result of [`Definition::as_validated`].
    pub(super) fn check(&self, document: &Document, object: &Value) -> Vec<FieldProblem> {
        let mut problems = metadata::check(object);
        for (field, message) in self.structure.misfits(&document.value, object) {
            if !problems.iter().any(|(before, ..)| *before == field) {
                problems.push((field, message, Source::Schema));
            }
        }
        let broken = rules::check(&self.structure.schema, object).into_iter().filter_map(|(field, verdict)| match verdict {
            rules::Verdict::Holds => None,
            rules::Verdict::Broken(message) => Some((field, message, Source::Rule)),
            // A rule requires the types of the schema. A wrong type is already reported.
            rules::Verdict::Unclear(_) if problems.iter().any(|(at, ..)| is_within(at, &field)) => None,
            rules::Verdict::Unclear(why) => Some((field, format!("a rule cannot be evaluated: {why}"), Source::Rule)),
        });
        let broken: Vec<_> = broken.collect();
        problems.extend(broken);
        problems
    }
}
