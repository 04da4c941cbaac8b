//! One document of a file, and the positions of its fields.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

use super::field;
use super::yaml_problem;

/// One object of a file.
#[derive(Clone, Debug)]
pub struct Document {
    /// The content of the object.
    pub value: Value,
    places: Places,
}

/// A position in a file. Lines and columns start at 1, and are 0 if they are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

impl From<serde_saphyr::Location> for Place {
    fn from(location: serde_saphyr::Location) -> Self {
        Self { line: location.line(), column: location.column() }
    }
}

/// The position of a value or of its key, and the positions of its content.
#[derive(Clone, Debug)]
struct Places {
    place: Place,
    below: HashMap<String, Places>,
}

/// A document that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Position of the problem.
    pub place: Place,
    /// The problem.
    pub problem: String,
}

/// Reads the documents of a file. Items of a `List` become separate documents. After a document that cannot be read, the rest of the file
/// is read if possible.
#[must_use]
pub fn read(text: &str) -> Vec<Result<Document, Broken>> {
    let mut all = Vec::new();
    if let Some(line) = inner_mark(text) {
        let problem = "a document in the middle of the file begins with a byte order mark (U+FEFF), which editors do not \
             show. Save each file without it before you join them, or remove it with `sed -i 's/\\xEF\\xBB\\xBF//'`";
        all.push(Err(Broken { place: Place { line, column: 1 }, problem: problem.to_owned() }));
        return all;
    }
    let mut bytes = text.as_bytes();
    for document in serde_saphyr::read::<_, Document>(&mut bytes) {
        match document {
            Ok(document) => document.take_apart(&mut all),
            Err(error) => all.push(Err(Broken {
                place: error.location().map(Place::from).unwrap_or_default(),
                problem: yaml_problem(&error),
            })),
        }
    }
    all
}

/// Returns the line of a byte order mark at the beginning of a document that is not the first one. It is there if files are joined.
fn inner_mark(text: &str) -> Option<u64> {
    let mut begins = false;
    (1..).zip(text.lines()).find_map(|(number, line)| {
        let is_marked =
            line.starts_with('\u{feff}') && number > 1 && (begins || line.trim_start_matches('\u{feff}').starts_with("---"));
        begins = line.starts_with("---") || (begins && is_blank(line));
        is_marked.then_some(number)
    })
}

/// Whether a line has no content: it is empty or a comment.
fn is_blank(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

impl Document {
    /// Returns the line of a field. If the field does not exist, this is the line of the nearest field that contains it.
    #[must_use]
    pub fn line(&self, field: &str) -> u64 {
        self.place(field).line
    }

    /// Returns the position of a field. If the field does not exist, this is the position of the nearest field that contains it.
    #[must_use]
    pub fn place(&self, field: &str) -> Place {
        let mut at = &self.places;
        for step in field::steps(field) {
            let Some(next) = at.below.get(step) else { break };
            at = next;
        }
        at.place
    }

    /// Returns group and version.
    #[must_use]
    pub fn api_version(&self) -> &str {
        self.word("/apiVersion")
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.word("/kind")
    }

    /// Returns the name. It is empty if the object has no name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.word("/metadata/name")
    }

    fn word(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    fn take_apart(mut self, all: &mut Vec<Result<Self, Broken>>) {
        if (self.api_version(), self.kind()) != ("v1", "List") {
            return all.push(Ok(self));
        }
        let mut below = self.places.below.remove("items").map(|items| items.below).unwrap_or_default();
        if let Some(Value::Array(items)) = self.value.get_mut("items").map(Value::take) {
            for (index, value) in items.into_iter().enumerate() {
                let unknown = Places { place: self.places.place, below: HashMap::new() };
                let places = below.remove(&index.to_string()).unwrap_or(unknown);
                Self { value, places }.take_apart(all);
            }
        }
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value: Node { value, below }, referenced, .. } = Spanned::deserialize(deserializer)?;
        Ok(Self { value, places: Places { place: referenced.into(), below } })
    }
}

/// A value whose own position is not known yet.
struct Node {
    value: Value,
    below: HashMap<String, Places>,
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Self { value, below: HashMap::new() }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Value::Bool(value).into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Value::from(value).into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Value::from(value).into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        // The API server stores 5.0 as 5.
        #[allow(clippy::cast_possible_truncation, reason = "it is whole, and far within the range")]
        if value.fract() == 0.0 && value.abs() < 9e15 {
            return Ok(Value::from(value as i64).into());
        }
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number).into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Value::from(value).into())
    }

    fn visit_string<E>(self, value: String) -> Result<Node, E> {
        Ok(Value::from(value).into())
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Value::Null.into())
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Value::Null.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let (mut values, mut below) = (Vec::new(), HashMap::new());
        while let Some(Document { value, places }) = items.next_element()? {
            below.insert(values.len().to_string(), places);
            values.push(value);
        }
        Ok(Node { value: Value::Array(values), below })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Node, A::Error> {
        let (mut values, mut below) = (Map::new(), HashMap::new());
        while let Some(Spanned { value: name, referenced, .. }) = fields.next_key::<Spanned<String>>()? {
            let Document { value, mut places } = fields.next_value()?;
            places.place = referenced.into();
            below.insert(name.clone(), places);
            values.insert(name, value);
        }
        Ok(Node { value: Value::Object(values), below })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = "# a comment
kind: A
metadata:
  name: one
  labels: {a: b,
    example.com/c: d}
spec:
  list:
    - name: x
    -
      name: z
      body: |
        text
  number: 5
  float: 1.5
  whole: 5.0
  flag: true
  nothing: null
  quoted: '5'
---
{\"kind\": \"B\",
 \"list\": [1,
   2]}
---
apiVersion: v1
kind: List
items:
  - kind: C
    metadata: {name: three}
  - kind: D
";

    #[test]
    fn each_field_has_its_line() {
        let documents: Vec<_> = read(TEXT).into_iter().map(Result::unwrap).collect();
        let kinds: Vec<_> = documents.iter().map(Document::kind).collect();
        assert_eq!(kinds, ["A", "B", "C", "D"]);
        let first = &documents[0];
        assert_eq!((first.name(), first.api_version()), ("one", ""));
        for (field, line) in [
            ("", 2),
            ("kind", 2),
            ("metadata.labels.a", 5),
            ("metadata.labels[example.com/c]", 6),
            ("spec.list[0].name", 9),
            // For the parser, an entry whose dash is alone on its line starts at its first key.
            ("spec.list[1]", 11),
            ("spec.list[1].name", 11),
            ("spec.list[1].other", 11),
            ("spec.list[7].name", 8),
            ("nowhere", 2),
        ] {
            assert_eq!(first.line(field), line, "{field}");
        }
        let spec = json!({"list": [{"name": "x"}, {"name": "z", "body": "text\n"}], "number": 5, "float": 1.5, "whole": 5, "flag": true,
            "nothing": null, "quoted": "5"});
        assert_eq!(first.value["spec"], spec);
        assert_eq!((documents[1].line("list"), documents[1].line("list[1]")), (22, 23));
        assert_eq!((documents[2].line("metadata.name"), documents[3].line("kind")), (29, 30));
    }

    #[test]
    fn an_invalid_document_is_reported_and_the_other_documents_are_read() {
        let all = read("a: 1\n---\nb: 1\nb: 2\n---\nc: 1\n---\nd: [\n");
        let lines: Vec<_> = all.iter().map(|d| d.as_ref().map_or_else(|b| b.place.line, |_| 0)).collect();
        assert_eq!(lines[..3], [0, 4, 0], "{all:?}");
        assert!(lines.len() == 4 && lines[3] >= 8, "{all:?}");
        let Err(twice) = &all[1] else { panic!("{all:?}") };
        assert_eq!(twice.problem, "the key `b` occurs twice in the same mapping; remove one of them");
        assert!(read("# nothing\n").is_empty());
    }

    #[test]
    fn a_byte_order_mark_inside_of_a_file_is_reported_with_its_line() {
        for (text, line) in [
            ("a: 1\n---\n\u{feff}b: 1\n", Some(3)),
            ("a: 1\n\u{feff}---\nb: 1\n", Some(2)),
            ("a: 1\n---\n# x\n\n\u{feff}b: 1\n", Some(5)),
            ("\u{feff}a: 1\n---\nb: 1\n", None),
            ("a: |\n  x\n\u{feff}y\n", None),
            ("a: '\u{feff}'\n---\nb: 1\n", None),
        ] {
            assert_eq!(inner_mark(text), line, "{text:?}");
            let all = read(text);
            if let Some(line) = line {
                let Err(broken) = &all[0] else { panic!("{all:?}") };
                assert!(broken.place.line == line && broken.problem.contains("byte order mark (U+FEFF)"), "{broken:?}");
            }
        }
        assert_eq!(read("\u{feff}a: 1\n---\nb: 1\n").into_iter().filter_map(Result::ok).count(), 2);
    }
}
