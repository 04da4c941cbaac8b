//! `revisionPath`: the place of the revision in an application object, as the author of the pipeline wrote it.
//!
//! In: the path as written, in JSONPath (RFC 9535, <https://www.rfc-editor.org/rfc/rfc9535>) or in kubectl's notation
//! (<https://kubernetes.io/docs/reference/kubectl/jsonpath/>): `$.spec.version`, `.spec.version`, `{.spec.version}`,
//! `.metadata.labels.acme\.example/version`. Out: the value at that path, as one line.
//!
//! Objects and paths come from untrusted users. So the cost of a path is at most the size of the object times the length of the path. The
//! path descends step by step. Neither `..` nor a list of selectors can multiply its results, because both are rejected.

mod place;

use kube_core::DynamicObject;
use serde_json::{Value, json};
use serde_json_path::{JsonPath, ParseError};

use super::kinds::status_path;
pub(super) use place::{Step, is_credential_name};
use relaybook_api::values::kind::ObjectKind;

/// Maximum length of a path in bytes, as in the schema.
const MAX_PATH: usize = 256;
/// Maximum nesting of brackets and parentheses.
const MAX_DEPTH: usize = 4;
/// Maximum number of joined values.
const MAX_NODES: usize = 16;
/// How the name of a field of the status begins that contains what is tried.
const ATTEMPTED: &str = "lastAttempted";

/// A path that can be evaluated in any object.
#[derive(Clone, Debug, PartialEq)]
pub struct RevisionPath {
    query: JsonPath,
    place: Place,
    steps: Vec<Step>,
    /// Whether the value can be shown to users who cannot read the object.
    is_public: bool,
}

/// The field in which a path starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Metadata,
    /// A field of the status that contains what runs.
    Status,
    /// A field that contains what is tried: a field of the spec, or one of the status with such a name.
    Attempted,
}

/// Why a path is invalid.
#[derive(Debug, thiserror::Error)]
pub enum RevisionPathError {
    /// Longer than 256 bytes.
    #[error("is longer than {MAX_PATH} bytes")]
    TooLong,
    /// The path does not start with the name of a field.
    #[error("must begin with the name of a field, such as .spec.version")]
    NoField,
    /// The path is invalid from this text on: a step starts with neither `.` nor `[`, a name is empty, or brackets do not match.
    #[error("is invalid from '{0}' on")]
    Step(String),
    /// The path contains `..`.
    #[error("must name each step: '..' is not allowed")]
    Descends,
    /// The path contains a `$` that is not at the start.
    #[error("can contain '$' only at the start")]
    Root,
    /// Several selectors in one pair of brackets.
    #[error("can have only one selector in a pair of brackets")]
    List,
    /// Brackets are nested too deeply.
    #[error("has more than {MAX_DEPTH} levels of nested brackets")]
    TooDeep,
    /// The path leads through a field whose values can be credentials.
    #[error("leads through '{0}', whose values can be credentials; name a field that contains only a version")]
    Credentials(String),
    /// Not a valid path according to RFC 9535.
    #[error("is not a valid JSONPath")]
    Syntax(#[source] ParseError),
}

impl RevisionPath {
    /// Parses a path.
    pub fn parse(text: &str) -> Result<Self, RevisionPathError> {
        if text.len() > MAX_PATH {
            return Err(RevisionPathError::TooLong);
        }
        let mut steps = Steps::new(text);
        steps.take_all()?;
        let place = match (steps.taken.first(), steps.taken.last()) {
            (Some(Step::Name(name)), _) if name == "metadata" => Place::Metadata,
            (Some(Step::Name(_)), Some(Step::Name(last))) if last.starts_with(ATTEMPTED) => Place::Attempted,
            (Some(Step::Name(name)), _) if name == "status" => Place::Status,
            (Some(Step::Name(_)), _) => Place::Attempted,
            _ => return Err(RevisionPathError::NoField),
        };
        if let Some(name) = place::credentials(&steps.taken) {
            return Err(RevisionPathError::Credentials(name.to_owned()));
        }
        let query = JsonPath::parse(&steps.canonical).map_err(RevisionPathError::Syntax)?;
        Ok(Self { query, place, is_public: place::is_public(&steps.taken), steps: steps.taken })
    }

    /// Whether a pipeline in another namespace can use the path. Anyone who can write a pipeline sees the value.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.is_public
    }

    /// Whether a pipeline in another namespace can record the value with a change.
    #[must_use]
    pub fn is_public_to_record(&self) -> bool {
        place::is_public_to_record(&self.steps)
    }

    /// Returns the steps below the status, if the path leads to a field of the status that contains what runs. Any other path leads to what is
    /// tried.
    pub(super) fn below_status(&self) -> Option<&[Step]> {
        self.steps.get(1..).filter(|_| self.place == Place::Status)
    }

    /// Whether what is tried is unknown while it can differ from what runs.
    #[must_use]
    pub fn hides_attempts(&self, kind: &ObjectKind) -> bool {
        self.below_status().is_some_and(|below| !status_path::is_known(kind, below))
    }

    /// Returns the first 16 strings, numbers and booleans at the path, joined by `,`. Returns an empty string if there are none. A wildcard
    /// does not lead through fields whose values can be credentials.
    pub(super) fn find(&self, object: &DynamicObject) -> String {
        let metadata;
        let root = match self.place {
            Place::Metadata => {
                metadata = json!({"metadata": object.metadata});
                &metadata
            }
            Place::Status | Place::Attempted => &object.data,
        };
        let found = self.query.query_located(root);
        let open = found.iter().filter(|found| !place::is_credential(found.location()));
        open.filter_map(|found| scalar(found.node())).take(MAX_NODES).collect::<Vec<_>>().join(",")
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The conversion of a path from the user's notation to the notation of the RFC, with every name in brackets and quotes.
struct Steps {
    left: Vec<char>,
    at: usize,
    canonical: String,
    /// The steps so far.
    taken: Vec<Step>,
}

impl Steps {
    fn new(text: &str) -> Self {
        let text = text.trim();
        let bare = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text).trim();
        let steps = match bare.strip_prefix('$') {
            Some(steps) => steps.to_owned(),
            None if bare.starts_with(['.', '[']) => bare.to_owned(),
            None => format!(".{bare}"),
        };
        Self { left: steps.chars().collect(), at: 0, canonical: "$".to_owned(), taken: Vec::new() }
    }

    fn peek(&self) -> Option<char> {
        self.left.get(self.at).copied()
    }

    fn stuck(&self, at: usize) -> RevisionPathError {
        RevisionPathError::Step(self.left[at..].iter().collect())
    }

    fn take_all(&mut self) -> Result<(), RevisionPathError> {
        while let Some(c) = self.peek() {
            let step = match c {
                '.' => self.take_name()?,
                '[' => self.take_brackets()?,
                _ => return Err(self.stuck(self.at)),
            };
            self.taken.push(step);
        }
        Ok(())
    }

    /// Reads `.name`, in which a backslash escapes the next character, or `.*`.
    fn take_name(&mut self) -> Result<Step, RevisionPathError> {
        let begin = self.at;
        self.at += 1;
        let mut name = String::new();
        let mut escaped = false;
        while let Some(c) = self.peek().filter(|c| !matches!(c, '.' | '[')) {
            self.at += 1;
            let c = match c {
                '\\' => {
                    escaped = true;
                    let next = self.peek().ok_or_else(|| self.stuck(begin))?;
                    self.at += 1;
                    next
                }
                '$' => return Err(RevisionPathError::Root),
                c => c,
            };
            if c.is_control() || (!escaped && (c.is_whitespace() || "{}()]'\",".contains(c))) {
                return Err(self.stuck(begin));
            }
            name.push(c);
        }
        if name.is_empty() {
            let descends = self.peek() == Some('.') || (begin > 0 && self.peek() == Some('['));
            return Err(if descends { RevisionPathError::Descends } else { self.stuck(begin) });
        }
        if name == "*" && !escaped {
            self.canonical.push_str("[*]");
            return Ok(Step::Elements);
        }
        self.canonical.push_str("['");
        self.canonical.push_str(&name.replace('\\', "\\\\").replace('\'', "\\'"));
        self.canonical.push_str("']");
        Ok(Step::Name(name))
    }

    /// Copies `[…]` without changes.
    fn take_brackets(&mut self) -> Result<Step, RevisionPathError> {
        let begin = self.at;
        let (mut depth, mut quote, mut before) = (0_usize, None, ' ');
        while let Some(c) = self.peek() {
            self.at += 1;
            match quote {
                Some(_) if before == '\\' => before = ' ',
                Some(open) => {
                    quote = Some(open).filter(|open| *open != c);
                    before = c;
                }
                None => {
                    match c {
                        '[' | '(' => depth += 1,
                        ']' | ')' => depth -= 1,
                        '\'' | '"' => quote = Some(c),
                        '$' => return Err(RevisionPathError::Root),
                        ',' => return Err(RevisionPathError::List),
                        '.' if before == '.' => return Err(RevisionPathError::Descends),
                        _ => {}
                    }
                    before = c;
                    if depth > MAX_DEPTH {
                        return Err(RevisionPathError::TooDeep);
                    }
                }
            }
            if depth == 0 {
                break;
            }
        }
        if depth > 0 {
            return Err(self.stuck(begin));
        }
        let text: String = self.left[begin..self.at].iter().collect();
        self.canonical.push_str(&text);
        Ok(Step::in_brackets(&text[1..text.len() - 1]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{observe, reader};
    use super::*;

    fn found(path: &str) -> String {
        let spec = json!({"version": "1.2", "my-version": "3", "replicas": 2, "ready": true, "none": null, "a.b": "dotted",
            "it's": "quoted", "images": [{"name": "web", "tag": "5"}, {"name": "db", "tag": "6"}],
            "many": (0..20).collect::<Vec<_>>()});
        let status = json!({"version": "1.1", "$x": "dollar"});
        RevisionPath::parse(path).unwrap_or_else(|e| panic!("{path}: {e}")).find(&object(OTHER, &spec, &status))
    }

    #[test]
    fn a_revision_path_is_accepted_in_each_jsonpath_notation() {
        for (path, want) in [
            ("$.spec.version", "1.2"),
            (".spec.version", "1.2"),
            ("{.spec.version}", "1.2"),
            ("{ $.spec.version }", "1.2"),
            ("spec.version", "1.2"),
            (" .status.version ", "1.1"),
            ("$['spec']['version']", "1.2"),
            ("[\"status\"].version", "1.1"),
            (".spec.my-version", "3"),
            (r".spec.a\.b", "dotted"),
            (r".spec.it\'s", "quoted"),
            (".spec['a.b']", "dotted"),
            (".status['$x']", "dollar"),
            (r".metadata.labels.app\.kubernetes\.io/version", "v7"),
            (".metadata.labels['app.kubernetes.io/version']", "v7"),
            (".metadata.generation", "2"),
            (".spec.replicas", "2"),
            (".spec.ready", "true"),
            (".spec.images[0].tag", "5"),
            (".spec.images[-1].tag", "6"),
            (".spec.images[*].tag", "5,6"),
            (".spec.images.*.tag", "5,6"),
            (".spec.images[?(@.name==\"db\")].tag", "6"),
            (".spec.images[?@.name == 'web'].tag", "5"),
            (".spec.images[0:1].name", "web"),
            (".spec.many[*]", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"),
            (".spec.none", ""),
            (".spec.images", ""),
            (".spec.images.tag", ""),
            (".missing.at.all", ""),
        ] {
            assert_eq!(found(path), want, "{path}");
        }
    }

    #[test]
    fn invalid_ambiguous_or_expensive_paths_are_refused() {
        let deep = format!(".a{}@.b{}", "[?(".repeat(3), ")]".repeat(3));
        let long = format!(".{}", "a".repeat(MAX_PATH));
        for (path, want) in [
            ("", "from '.' on"),
            ("$", "name of a field"),
            ("{}", "from '.' on"),
            (".", "from '.' on"),
            ("$spec", "from 'spec' on"),
            (".*.version", "name of a field"),
            ("[*].version", "name of a field"),
            ("[0]", "name of a field"),
            ("$..version", "'..' is not allowed"),
            (".spec..version", "'..' is not allowed"),
            (".spec..[0]", "'..' is not allowed"),
            (".spec[?(@..version)]", "'..' is not allowed"),
            (".spec[?(@.a == $.spec.b)]", "'$' only at the start"),
            (".spec.$x", "'$' only at the start"),
            (".spec['a','b']", "only one selector"),
            (".spec[0,0]", "only one selector"),
            (&deep, "more than 4 levels of nested brackets"),
            (&long, "longer than 256 bytes"),
            (".spec.a b", "from '.a b' on"),
            (".spec.version}", "from '.version}' on"),
            ("{.spec.version", "from '.{.spec.version' on"),
            (".spec[0", "from '[0' on"),
            (".spec['a]", "from '['a]' on"),
            (".spec]", "from '.spec]' on"),
            (".spec[0]a", "from 'a' on"),
            (".spec.a\\", "from '.a\\' on"),
            (".spec[]", "is not a valid JSONPath"),
            (".spec[?(@.a=='b'", "from '[?(@.a=='b'' on"),
            (".spec[(])", "is not a valid JSONPath"),
        ] {
            let said = RevisionPath::parse(path).err().map(|e| e.to_string());
            assert!(said.as_ref().is_some_and(|said| said.contains(want)), "{path}: {said:?}");
        }
    }

    #[test]
    fn a_status_path_is_the_running_revision_and_any_other_path_the_attempted_one() {
        let ready = |status: &str| json!({"conditions": [condition("Ready", status, "Because", 2)], "version": "1.1"});
        for (path, status, want, runs, tried) in [
            (".status.version", "True", Current, "1.1", "1.1"),
            (".status.version", "False", InProgress, "1.1", ""),
            (".spec.version", "True", Current, "1.2", "1.2"),
            (".spec.version", "False", InProgress, "", "1.2"),
            (".spec.missing", "True", Current, "", ""),
            (".status.missing", "False", InProgress, "", ""),
        ] {
            let path = RevisionPath::parse(path).unwrap();
            let object = object(OTHER, &json!({"version": "1.2"}), &ready(status));
            assert_eq!(summary(&observe(Some(&object), Some(&path))), (want, runs, tried), "{path:?} {status}");
        }
    }

    #[test]
    fn each_revision_path_has_a_reader_of_its_own() {
        let with = |path| reader("apps/v1", "Deployment", path);
        assert_eq!(with(None), "deployment/2");
        let one = with(Some(".spec.version"));
        assert!(one.starts_with("deployment/2@") && one.len() == "deployment/2@".len() + 8, "{one}");
        // The edition of paths into the status.
        let status = with(Some("{ .status.version }"));
        assert!(status.ends_with("/2") && status.len() == one.len() + 2, "{status}");
    }
}
