//! Templates of the texts of a `PipelineSet`.
//!
//! In: the source of a template, and the data of an object ([`SourceData`]). Out: a text, in which values are not escaped. The language and
//! its limits are those of the templates of notifications, only the data is other.

use std::collections::BTreeMap;

use serde::Serialize;

use super::data::parameters::Visibility;
use super::data::schema::SOURCE;
use super::escape::context::EscapeContext;
use super::lang::compile::compile_for;
use super::lang::eval::Program;
use super::{MAX_LINE, Parameters, RenderError, Values};

/// What a template of a set reads of an object.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceData {
    /// Its API version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

impl SourceData {
    /// Prepares the data for templates. The work of all templates that read it is limited together.
    pub fn values(&self) -> Result<Values, RenderError> {
        Ok(Values::of_source(serde_json::to_value(self).map_err(RenderError::Data)?))
    }
}

/// A compiled template of one text.
#[derive(Debug)]
pub struct SourceTemplate(Program);

impl SourceTemplate {
    /// Compiles a template.
    pub fn compile(source: &str) -> Result<Self, RenderError> {
        compile_for(&SOURCE, source, EscapeContext::Plain, &Parameters::default()).map(Self)
    }

    /// Renders the text, with at most [`MAX_LINE`] bytes.
    pub fn render(&self, values: &Values) -> Result<String, RenderError> {
        Ok(self.0.run(values, Visibility::All, MAX_LINE)?.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_of_sets_read_the_fields_of_the_source() {
        let labels =
            BTreeMap::from([("team".to_owned(), "a".to_owned()), ("app.kubernetes.io/name".to_owned(), "web".to_owned())]);
        let data =
            SourceData { api_version: "v1".into(), kind: "K".into(), namespace: "n".into(), name: "x".into(), labels };
        for (source, expected) in [
            ("{{namespace}}.{{name}}", "n.x"),
            ("{{default labels.[app.kubernetes.io/name] name}}", "web"),
            (
                "{{default labels.none \"-\"}}{{#each labels}} {{@key}}={{this}}{{/each}}",
                "- app.kubernetes.io/name=web team=a",
            ),
            ("plain", "plain"),
        ] {
            let template = SourceTemplate::compile(source).unwrap();
            assert_eq!(template.render(&data.values().unwrap()).unwrap(), expected);
        }
        for (source, problem) in [
            ("{{nam}}", "did you mean `name`?"),
            ("{{labels.team}}", "default"),
            ("{{parameters.x}}", "known names"),
            ("{{target.name}}", "known names: apiVersion"),
        ] {
            let error = SourceTemplate::compile(source).unwrap_err().to_string();
            assert!(error.contains(problem), "{source}: {error}");
        }
        let long = SourceTemplate::compile(&"x".repeat(MAX_LINE + 1)).unwrap();
        assert!(long.render(&data.values().unwrap()).is_err());
    }
}
