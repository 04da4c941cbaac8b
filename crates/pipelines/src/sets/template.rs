//! Pure: compiles the template of a set once, and renders it for each source.
//!
//! Each text is a template. What is below a field `notifications` is copied, because its texts are templates of their own. Fields that are
//! not texts are copied, too.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use relaybook_api::pipeline_set::PipelineTemplate;
use relaybook_settings::manifests::field::{below, entry};
use relaybook_settings::render::{RenderError, SourceData, SourceTemplate, Values};

/// The field whose texts are templates of their own.
const NOTIFICATIONS: &str = "notifications";

/// A compiled template.
pub(super) struct Compiled {
    name: Node,
    labels: Vec<(String, Node)>,
    annotations: Vec<(String, Node)>,
    spec: Node,
}

/// The template for one source.
#[derive(Debug, PartialEq)]
pub(super) struct Rendered {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub spec: Value,
}

/// A part of a template, with its field.
enum Node {
    Copied(Value),
    Text(String, SourceTemplate),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

impl Compiled {
    /// Compiles a template. `Err`: all problems, each with its field.
    pub(super) fn new(template: &PipelineTemplate) -> Result<Self, String> {
        let mut problems = Vec::new();
        let metadata = &template.metadata;
        let mut texts = |field: &str, texts: &BTreeMap<String, String>| -> Vec<(String, Node)> {
            let field = below("template.metadata", field);
            let compiled = texts.iter().map(|(key, text)| (key.clone(), text_node(text, below(&field, key), &mut problems)));
            compiled.collect()
        };
        let (labels, annotations) = (texts("labels", &metadata.labels), texts("annotations", &metadata.annotations));
        let name = text_node(&metadata.name, "template.metadata.name".to_owned(), &mut problems);
        let spec = node(&template.spec, "template.spec", &mut problems);
        if problems.is_empty() { Ok(Self { name, labels, annotations, spec }) } else { Err(problems.join("; ")) }
    }

    /// Renders the template. `Err`: the first problem, with its field.
    pub(super) fn render(&self, source: &SourceData) -> Result<Rendered, String> {
        let values = source.values().map_err(|error| error.to_string())?;
        let texts = |all: &[(String, Node)]| -> Result<BTreeMap<String, String>, String> {
            let rendered = all.iter().map(|(key, node)| Ok((key.clone(), text_of(node.render(&values)?))));
            let all: BTreeMap<String, String> = rendered.collect::<Result<_, String>>()?;
            Ok(all.into_iter().filter(|(_, text)| !text.is_empty()).collect())
        };
        Ok(Rendered {
            name: text_of(self.name.render(&values)?),
            labels: texts(&self.labels)?,
            annotations: texts(&self.annotations)?,
            spec: self.spec.render(&values)?,
        })
    }
}

fn text_of(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn text_node(text: &str, field: String, problems: &mut Vec<String>) -> Node {
    if !text.contains("{{") {
        return Node::Copied(text.into());
    }
    match SourceTemplate::compile(text) {
        Ok(template) => Node::Text(field, template),
        Err(error) => {
            problems.push(problem(&field, &error));
            Node::Copied(Value::Null)
        }
    }
}

fn problem(field: &str, error: &RenderError) -> String {
    format!("{field}: {error}")
}

fn node(value: &Value, field: &str, problems: &mut Vec<String>) -> Node {
    match value {
        Value::String(text) => text_node(text, field.to_owned(), problems),
        Value::Array(all) => {
            Node::List(all.iter().enumerate().map(|(index, value)| node(value, &entry(field, index), problems)).collect())
        }
        Value::Object(fields) => {
            let part = |(name, value): (&String, &Value)| {
                let part = if name == NOTIFICATIONS {
                    Node::Copied(value.clone())
                } else {
                    node(value, &below(field, name), problems)
                };
                (name.clone(), part)
            };
            // As in any other object, a field that is null is absent.
            Node::Object(fields.iter().filter(|(_, value)| !value.is_null()).map(part).collect())
        }
        other => Node::Copied(other.clone()),
    }
}

impl Node {
    fn render(&self, values: &Values) -> Result<Value, String> {
        Ok(match self {
            Self::Copied(value) => value.clone(),
            Self::Text(field, template) => {
                template.render(values).map(Value::String).map_err(|error| problem(field, &error))?
            }
            Self::List(all) => Value::Array(all.iter().map(|node| node.render(values)).collect::<Result<_, _>>()?),
            Self::Object(fields) => {
                let fields = fields.iter().map(|(name, node)| Ok((name.clone(), node.render(values)?)));
                Value::Object(fields.collect::<Result<Map<_, _>, String>>()?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compiled(template: Value) -> Result<Compiled, String> {
        Compiled::new(&serde_json::from_value(template).unwrap())
    }

    #[test]
    fn each_text_is_rendered_but_not_those_of_notifications() {
        let template = compiled(json!({
            "metadata": {
                "name": "{{namespace}}.{{name}}",
                "labels": {"team": "{{default labels.team \"\"}}", "kind": "{{kind}}"},
                "annotations": {"a": "b"},
            },
            "spec": {
                "appRef": {"name": "{{name}}"},
                "environments": [{"name": "all", "targets": [{"namespace": "{{namespace}}"}], "count": 3, "none": null,
                    "notifications": [{"name": "chat", "template": {"body": "{{target.name}}"}}]}],
            },
        }))
        .unwrap();
        let source = SourceData { kind: "K".into(), namespace: "n".into(), name: "x".into(), ..SourceData::default() };
        let rendered = template.render(&source).unwrap();
        assert_eq!(rendered.name, "n.x");
        assert_eq!(rendered.labels, BTreeMap::from([("kind".to_owned(), "K".to_owned())]), "an empty label is left out");
        assert_eq!(
            rendered.spec,
            json!({
                "appRef": {"name": "x"},
                "environments": [{"name": "all", "targets": [{"namespace": "n"}], "count": 3,
                    "notifications": [{"name": "chat", "template": {"body": "{{target.name}}"}}]}],
            })
        );
    }

    #[test]
    fn all_problems_are_named_with_their_fields() {
        let problems = compiled(json!({
            "metadata": {"name": "{{nam}}", "labels": {"a/b": "{{x}}"}},
            "spec": {"environments": [{"name": "{{labels.team}}"}]},
        }));
        let problems = problems.err().unwrap();
        for field in ["template.metadata.name: ", "template.metadata.labels", "template.spec.environments[0].name: "] {
            assert!(problems.contains(field), "{problems}");
        }
    }
}
