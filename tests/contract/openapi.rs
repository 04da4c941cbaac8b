//! Validates requests against `OpenAPI` documents.
//!
//! In: an `OpenAPI` 3.0 or Swagger 2 document, and one of its operations. Out: [`Operation`], which finds the problems of a
//! request. The document is kept as a whole, so that each `$ref` in it still resolves. Its schemas are converted to JSON Schema
//! in place, and closed, so that a misspelt field is an error although receivers would ignore it.

use jsonschema::{Draft, Validator};
use serde_json::{Map, Value, json};

use crate::subject::Request;

/// One operation of a document.
pub struct Operation {
    /// In upper case.
    method: String,
    /// Path with the base of the document, and with `{…}` for variable segments.
    path: String,
    /// The parameters of the operation and of its path.
    parameters: Vec<Value>,
    content_types: Vec<String>,
    body: Validator,
}

impl Operation {
    /// Reads the operation with this method and path.
    pub fn of(mut document: Value, method: &str, path: &str) -> Self {
        let item = format!("/paths/{}", escaped(path));
        let own = format!("{item}/{method}");
        let (schema, content_types) = body(&document, &own);
        let named = [format!("{item}/parameters"), format!("{own}/parameters")];
        let parameters = named.iter().filter_map(|at| document.pointer(at)?.as_array()).flatten();
        let parameters = parameters.map(|p| resolved(&document, p).clone()).collect();
        let path = format!("{}{path}", base(&document));
        in_words_of_json_schema(&mut document);
        let whole = document.clone();
        close_below(&mut document, &whole);
        let mut schema = document.pointer(&schema).cloned().unwrap_or_default();
        close(&mut schema, &whole);
        let body = validator(document, &schema);
        Self { method: method.to_uppercase(), path, parameters, content_types, body }
    }

    /// Describes the problems of method, path, query, headers and body.
    pub fn problems(&self, request: &Request, body: &Value) -> Vec<String> {
        let mut problems = self.body_problems(request, body);
        if serde_json::to_value(request.method).unwrap() != self.method {
            problems.push(format!("the method is not {}", self.method));
        }
        if !self.is_for(request) {
            problems.push(format!("path {} is not {}", request.url.path(), self.path));
        }
        let query: Vec<String> = request.url.query_pairs().map(|(name, _)| name.into_owned()).collect();
        let wanted = |place: &'static str| self.parameters.iter().filter(move |p| p["in"] == place);
        for parameter in wanted("query").chain(wanted("header")).filter(|p| p["required"] == true) {
            let name = parameter["name"].as_str().unwrap_or_default();
            if !query.iter().any(|q| q == name) && request.header(&name.to_ascii_lowercase()).is_none() {
                problems.push(format!("{name} is missing"));
            }
        }
        let unknown = query.iter().filter(|q| wanted("query").all(|p| p["name"] != q.as_str()));
        problems.extend(unknown.map(|q| format!("there is no parameter {q}")));
        problems
    }

    /// Whether the path of a request is that of this operation.
    pub fn is_for(&self, request: &Request) -> bool {
        matches(&self.path, request.url.path())
    }

    /// Describes the problems of content type and body only, for receivers that provide the URL.
    pub fn body_problems(&self, request: &Request, body: &Value) -> Vec<String> {
        let given = request.content_type.split(';').next().unwrap_or_default();
        let other = !self.content_types.iter().any(|t| t.split(';').next() == Some(given));
        let content_type = other.then(|| format!("content type {given} is not one of {:?}", self.content_types));
        content_type.into_iter().chain(errors(&self.body, body)).collect()
    }
}

/// Describes the problems of a value.
pub fn errors(validator: &Validator, value: &Value) -> Vec<String> {
    validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path())).collect()
}

/// Returns the pointer to the schema of the body, and the allowed content types.
fn body(document: &Value, operation: &str) -> (String, Vec<String>) {
    let at = document.pointer(operation).unwrap_or_else(|| panic!("there is no {operation}"));
    if let Some(parameters) = at["parameters"].as_array()
        && let Some(index) = parameters.iter().position(|p| p["in"] == "body")
    {
        let consumes = document["consumes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        return (format!("{operation}/parameters/{index}/schema"), consumes.map(str::to_owned).collect());
    }
    let body = at["requestBody"]["$ref"].as_str().map_or(format!("{operation}/requestBody"), |r| r[1..].to_owned());
    let content = document.pointer(&format!("{body}/content")).and_then(Value::as_object);
    let types: Vec<String> = content.unwrap_or_else(|| panic!("{operation} has no body")).keys().cloned().collect();
    let json = types.iter().find(|t| t.starts_with("application/json")).expect("a body of JSON");
    (format!("{body}/content/{}/schema", escaped(json)), types)
}

/// Returns the prefix of all paths.
fn base(document: &Value) -> String {
    let server = document.pointer("/servers/0/url").or(document.get("basePath")).and_then(Value::as_str).unwrap_or_default();
    let path = server.split_once("://").map_or(server, |(_, rest)| rest.find('/').map_or("", |slash| &rest[slash..]));
    path.trim_end_matches('/').to_owned()
}

/// Whether a path matches a template, in which `{…}` matches one segment.
fn matches(template: &str, path: &str) -> bool {
    let (template, path): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
    let same = |(t, p): (&&str, &&str)| if t.starts_with('{') { !p.is_empty() } else { t == p };
    template.len() == path.len() && template.iter().zip(&path).all(same)
}

/// Returns a validator for a schema whose references point into a document.
fn validator(mut document: Value, schema: &Value) -> Validator {
    document["$defs"] = json!({"body": schema});
    document["$ref"] = json!("#/$defs/body");
    let options = jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true);
    options.build(&document).expect("the document is JSON Schema now")
}

/// Converts the keywords that `OpenAPI` 3.0 writes differently: `nullable`, and exclusive bounds.
/// <https://spec.openapis.org/oas/v3.0.3#schema-object>
fn in_words_of_json_schema(value: &mut Value) {
    if let Value::Object(schema) = value {
        if schema.remove("nullable") == Some(json!(true)) {
            nullable(schema);
        }
        for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
            match schema.get(exclusive).and_then(Value::as_bool) {
                Some(true) => schema.remove(bound).and_then(|limit| schema.insert(exclusive.to_owned(), limit)),
                Some(false) => schema.remove(exclusive),
                None => None,
            };
        }
    }
    children(value).for_each(in_words_of_json_schema);
}

fn nullable(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.push(Value::Null);
    }
    if let Some(Value::String(type_)) = schema.get("type") {
        schema.insert("type".to_owned(), json!([type_, "null"]));
    } else {
        let inner = std::mem::take(schema);
        schema.insert("anyOf".to_owned(), json!([inner, {"type": "null"}]));
    }
}

/// Closes every record that is a member or an item of a list. The branches of `allOf`, `anyOf` and `oneOf` are not closed,
/// because the whole has the members of all of them.
fn close_below(value: &mut Value, whole: &Value) {
    if let Value::Object(schema) = value {
        let members = schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut);
        members.for_each(|member| close(member, whole));
        schema.get_mut("items").into_iter().for_each(|item| close(item, whole));
    }
    children(value).for_each(|child| close_below(child, whole));
}

fn close(schema: &mut Value, whole: &Value) {
    if is_record(schema, whole) {
        schema["unevaluatedProperties"] = json!(false);
    }
}

/// Whether a schema names its members and has no rule for other members.
fn is_record(schema: &Value, whole: &Value) -> bool {
    let parts = parts(schema, whole, 0);
    parts.iter().any(|p| p.get("properties").is_some()) && parts.iter().all(|p| p.get("additionalProperties").is_none())
}

/// Returns a schema, resolved, with all of its branches.
fn parts<'a>(schema: &'a Value, whole: &'a Value, depth: usize) -> Vec<&'a Value> {
    assert!(depth < 16, "a schema that consists of itself");
    let schema = resolved(whole, schema);
    let branches = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|word| schema.get(word)?.as_array()).flatten();
    let below = branches.flat_map(|branch| parts(branch, whole, depth + 1));
    std::iter::once(schema).chain(below).collect()
}

/// Returns the target of a `$ref`, or the value itself.
fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let Some(reference) = value.get("$ref").and_then(Value::as_str) else { return value };
    let found = document.pointer(&reference[1..]).unwrap_or_else(|| panic!("there is no {reference}"));
    resolved(document, found)
}

fn children(value: &mut Value) -> Box<dyn Iterator<Item = &mut Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter_mut()),
        Value::Object(members) => Box::new(members.values_mut()),
        _ => Box::new(std::iter::empty()),
    }
}

/// Escapes a step of a JSON Pointer.
fn escaped(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}
