//! Pure: label selectors and field selectors.
//!
//! In: their texts in a request. Out: whether they select an object.

use serde_json::Value;

use super::failure::Failure;
use super::kind::Kind;

/// Fields of all kinds that a field selector can name.
const FIELDS: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// A condition on one label or field.
#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    /// The values of which it has one. `None`: it exists.
    values: Option<Vec<String>>,
    /// The opposite is required.
    is_negated: bool,
}

impl Requirement {
    fn is_met(&self, found: Option<&str>) -> bool {
        let is_met = match &self.values {
            Some(values) => found.is_some_and(|found| values.iter().any(|value| value == found)),
            None => found.is_some(),
        };
        is_met != self.is_negated
    }

    /// Reads `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a` or `!a`.
    fn parse(text: &str) -> Self {
        let of = |key: &str, values: Option<&str>, is_negated| {
            let values =
                values.map(|values| values.trim().trim_matches(['(', ')']).split(',').map(|one| one.trim().to_owned()));
            Self { key: key.trim().to_owned(), values: values.map(Iterator::collect), is_negated }
        };
        let separators = [("!=", true), (" notin ", true), ("==", false), ("=", false), (" in ", false)];
        let found = separators.iter().find_map(|(separator, is_negated)| Some((text.split_once(separator)?, *is_negated)));
        match found {
            Some(((key, values), is_negated)) => of(key, Some(values), is_negated),
            None => of(text.trim().trim_start_matches('!'), None, text.trim().starts_with('!')),
        }
    }
}

/// What a list or a watch selects.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

impl Selector {
    /// Reads the selectors of a request.
    pub(super) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, Failure> {
        let selector = Self { labels: requirements(labels), fields: requirements(fields) };
        let is_known = |field: &Requirement| FIELDS.contains(&&*field.key) || kind.selectable.contains(&field.key);
        match selector.fields.iter().find(|field| !is_known(field)) {
            Some(field) => Err(Failure::bad(&format!("field label not supported: {}", field.key))),
            None => Ok(selector),
        }
    }

    /// Whether it selects everything.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(super) fn selects(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let field = |path: &str| path.split('.').try_fold(object, |value, name| value.get(name)).and_then(Value::as_str);
        self.labels.iter().all(|label| label.is_met(labels.get(&label.key).and_then(Value::as_str)))
            && self.fields.iter().all(|wanted| wanted.is_met(Some(field(&wanted.key).unwrap_or_default())))
    }
}

/// Separates the requirements at the commas that are not within parentheses.
fn requirements(text: &str) -> Vec<Requirement> {
    let mut depth = 0;
    let parts = text.split(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    parts.filter(|part| !part.trim().is_empty()).map(Requirement::parse).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_and_fields_are_compared_as_in_kubernetes() {
        let labels = json!({"a": "1", "g/b": "x"});
        let object = json!({"metadata": {"name": "n", "namespace": "s", "labels": labels}, "status": {"phase": "Done"}});
        let table = [
            ("", "", true),
            ("a=1", "", true),
            ("a==1,g/b=x", "", true),
            ("a=1,g/b=y", "", false),
            ("a!=1", "", false),
            ("c!=1", "", true),
            ("a", "", true),
            ("!a", "", false),
            ("!c,a", "", true),
            ("a in (2, 1),g/b in (x)", "", true),
            ("a in (2,3)", "", false),
            ("a notin (1,2)", "", false),
            ("c notin (1)", "", true),
            ("", "metadata.name=n,metadata.namespace!=t", true),
            ("a=1", "metadata.name=m", false),
            ("", "status.phase=Done", true),
            ("", "status.phase=", false),
        ];
        let kind = Kind { selectable: vec!["status.phase".to_owned()], ..Kind::default() };
        for (labels, fields, expected) in table {
            let selector = Selector::parse(&kind, labels, fields).unwrap();
            assert_eq!(selector.selects(&object), expected, "{labels} {fields}");
        }
        assert_eq!(Selector::parse(&kind, "", "spec.a=b").unwrap_err().code, 400);
    }
}
