//! What the answer of a receiver means, by CEL expressions.
//!
//! In: the expressions, once per edit of a notification; one answer. Out: the HTTP status as which the answer counts, or a message why that is not
//! known ([`Success`]). Also the values that later requests need ([`Remember`]), whether the message still exists ([`Lost`]), and which item of a
//! list is the message ([`Find`]). Some receivers answer 200 to a request that they reject, and name the error in the body.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use http::HeaderMap;
use serde_json::{Value, json};

use crate::cel::{CelError, CelValue, Expected, Expression, Shape, Undecided, cel};

/// Maximum number of bytes of a body that the expression can read. A longer body is cut, so it is not JSON.
pub const LONGEST_BODY: usize = 64 * 1024;
/// Maximum number of bytes of a body with a list. Nothing is known from a longer one.
pub const LONGEST_LIST: usize = 256 * 1024;
/// Maximum number of items of a list that are compared. An evaluation is expensive, and the receiver determines their number.
const MOST_ITEMS: usize = 100;
/// Maximum number of characters of a remembered value.
pub const LONGEST_VALUE: usize = 512;
/// The status of an answer that the expression rejects, if the receiver did not reject it by itself.
const REJECTED: u16 = 422;

/// One answer of a receiver.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// At most [`LONGEST_BODY`] bytes of the body.
    pub body: &'a [u8],
}

/// The compiled expression.
#[derive(Clone, Debug)]
pub struct Success {
    expression: Expression,
    /// Whether a user wrote it. The rule of a built-in template is a help: if it cannot judge an answer, the status decides.
    is_own: bool,
}

/// The values of answers that later requests need, by name.
#[derive(Clone, Debug, Default)]
pub struct Remember(BTreeMap<String, Expression>);

/// Whether the answer to an update says that the message no longer exists.
#[derive(Clone, Debug, Default)]
pub struct Lost(Option<Expression>);

/// Which item of a list is the message that a request would create.
#[derive(Clone, Debug)]
pub struct Find {
    /// JSON Pointer (RFC 6901) to the list in the body.
    list: String,
    /// Whether the body is one item instead of a list.
    is_single: bool,
    /// Whether an answer says that there is no item.
    none: Option<Lost>,
    /// If it is set, only the newest item for which it is true can be the message.
    newest: Option<Expression>,
    /// The first one that is true for an item decides.
    ours: Vec<Expression>,
}

/// The answer is not the list in which a message is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not the list in which the message is looked for")]
pub struct NotAList;

/// The shape of an answer, for expressions with such a result.
fn shape(result: Expected) -> Shape {
    Shape {
        sample: json!({"status": 200, "headers": {}, "text": "", "body": null}),
        texts: &["headers"],
        any: &["body"],
        result,
        // A body can be long, and its author can be the author of the pattern.
        has_patterns: false,
    }
}

static SUCCESS: LazyLock<Shape> = LazyLock::new(|| shape(Expected::BoolOrNumber));
static REMEMBER: LazyLock<Shape> = LazyLock::new(|| shape(Expected::TextOrNumber));
static LOST: LazyLock<Shape> = LazyLock::new(|| shape(Expected::Bool));
static OURS: LazyLock<Shape> = LazyLock::new(|| Shape {
    sample: json!({"body": null, "request": null, "id": ""}),
    any: &["body", "request"],
    ..shape(Expected::Bool)
});

impl Success {
    /// Compiles the expression of a user.
    pub fn compile(source: &str) -> Result<Self, CelError> {
        Ok(Self { expression: Expression::compile(source, &SUCCESS)?, is_own: true })
    }

    /// Compiles the rule of a built-in template.
    pub fn of_template(source: &str) -> Result<Self, CelError> {
        Ok(Self { is_own: false, ..Self::compile(source)? })
    }

    /// Whether the expression reads the body of an answer.
    #[must_use]
    pub fn reads_body(&self) -> bool {
        reads_body(&self.expression)
    }

    /// Whether a success without its whole body is no answer.
    #[must_use]
    pub fn needs_body(&self) -> bool {
        self.is_own && self.reads_body()
    }

    /// The status as which an answer counts: a number is this status, `true` is a success, and `false` is none. If the expression cannot be
    /// evaluated, an answer with an error status keeps it, and with the rule of a template any answer does.
    pub fn status(&self, answer: &Answer<'_>) -> Result<u16, Undecided> {
        let is_2xx = is_success(answer.status);
        let judged = self.expression.evaluate(|field| Ok(value(answer, field))).and_then(|result| match result {
            CelValue::Bool(true) if is_2xx => Ok(answer.status),
            CelValue::Bool(true) => Ok(200),
            CelValue::Bool(false) if is_2xx => Ok(REJECTED),
            CelValue::Bool(false) => Ok(answer.status),
            CelValue::Int(number) => of_number(u16::try_from(number).ok(), answer.status),
            CelValue::UInt(number) => of_number(u16::try_from(number).ok(), answer.status),
            _ => Err(Undecided::new("the result is neither a boolean nor a whole number")),
        });
        judged.or_else(|undecided| if is_2xx && self.is_own { Err(undecided) } else { Ok(answer.status) })
    }
}

impl Remember {
    /// Compiles the expression for a value.
    pub fn add(&mut self, name: &str, source: &str) -> Result<(), CelError> {
        self.0.insert(name.to_owned(), Expression::compile(source, &REMEMBER)?);
        Ok(())
    }

    /// The names of the values.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The names, and the expressions as they were written.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, expression)| (name.as_str(), expression.source()))
    }

    /// Whether these are all values.
    #[must_use]
    pub fn is_complete(&self, values: &BTreeMap<String, String>) -> bool {
        self.names().all(|name| values.contains_key(name))
    }

    /// Whether an expression reads the body of an answer.
    #[must_use]
    pub fn reads_body(&self) -> bool {
        self.0.values().any(reads_body)
    }

    /// The values of an answer. A value that the answer does not have, or that is not 1 to [`LONGEST_VALUE`] printable characters of ASCII,
    /// is left out. So are `.` and `..`, which cannot be a segment of a path.
    #[must_use]
    pub fn values(&self, answer: &Answer<'_>) -> BTreeMap<String, String> {
        let of = |expression: &Expression| match expression.evaluate(|field| Ok(value(answer, field))).ok()? {
            CelValue::String(text) => Some(text.as_str().to_owned()),
            CelValue::Int(number) => Some(number.to_string()),
            CelValue::UInt(number) => Some(number.to_string()),
            _ => None,
        };
        let is_valid = |value: &String| {
            let is_printable = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            is_printable && (1..=LONGEST_VALUE).contains(&value.len()) && !matches!(value.as_str(), "." | "..")
        };
        let all = self.0.iter().filter_map(|(name, expression)| Some((name.clone(), of(expression).filter(is_valid)?)));
        all.collect()
    }
}

impl Lost {
    /// Compiles the expression of a user or of a template.
    pub fn compile(source: &str) -> Result<Self, CelError> {
        Ok(Self(Some(Expression::compile(source, &LOST)?)))
    }

    /// Whether the expression reads the body of an answer.
    #[must_use]
    pub fn reads_body(&self) -> bool {
        self.0.as_ref().is_some_and(reads_body)
    }

    /// Whether this answer to an update says that the message no longer exists. An expression that cannot be evaluated does not say it.
    #[must_use]
    pub fn is_lost(&self, answer: &Answer<'_>) -> bool {
        match &self.0 {
            None => matches!(answer.status, 404 | 410),
            Some(expression) => {
                let result = expression.evaluate(|field| Ok(value(answer, field)));
                matches!(result, Ok(CelValue::Bool(true)))
            }
        }
    }
}

impl Find {
    /// Compiles the expressions of a template over the `body` of an item, that of the `request`, and the `id` of the message.
    pub fn compile(list: &str, newest: Option<&str>, ours: &str) -> Result<Self, CelError> {
        let newest = newest.map(|source| Expression::compile(source, &OURS)).transpose()?;
        Ok(Self {
            list: list.to_owned(),
            is_single: false,
            none: None,
            newest,
            ours: vec![Expression::compile(ours, &OURS)?],
        })
    }

    /// Compiles the expressions for the parent of a message, over the `body` of an item. `is_single`: whether the body is one item instead of a list.
    /// `none`: whether an answer says that there is none.
    pub fn compile_parent(is_single: bool, none: &str, pick: &[String]) -> Result<Self, CelError> {
        let ours = pick.iter().map(|source| Expression::compile(source, &OURS)).collect::<Result<_, _>>()?;
        Ok(Self { list: String::new(), is_single, none: Some(Lost::compile(none)?), newest: None, ours })
    }

    /// Whether this answer says that there is no item.
    #[must_use]
    pub fn is_none(&self, answer: &Answer<'_>) -> bool {
        self.none.as_ref().is_some_and(|none| none.is_lost(answer))
    }

    /// The values of the item that is the message or its parent. The item of a message has the form of the answer that created it. `request`: the body
    /// of the request that would create the message, and its identity. `None`: there is no such item. If there are several, it is the one with the lowest
    /// `id`: the others are newer copies.
    pub fn values(
        &self,
        answer: &Answer<'_>,
        (request, id): (&[u8], &str),
        remember: &Remember,
    ) -> Result<Option<BTreeMap<String, String>>, NotAList> {
        let parsed = |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap_or_default();
        let (body, request) = (parsed(answer.body), cel(parsed(request)));
        let items = match body.pointer(&self.list) {
            Some(Value::Array(items)) if !self.is_single => items.as_slice(),
            Some(item @ Value::Object(_)) if self.is_single => std::slice::from_ref(item),
            _ => return Err(NotAList),
        };
        let items = &items[..items.len().min(MOST_ITEMS)];
        let number = |item: &&Value| item["id"].as_u64();
        let id = CelValue::String(Arc::new(id.to_owned()));
        let is = |expression: &Expression, item: &Value| {
            let of = |field: &str| match field {
                "request" => request.clone(),
                "id" => id.clone(),
                _ => cel(item.clone()),
            };
            matches!(expression.evaluate(|field| Ok(Some(of(field)))), Ok(CelValue::Bool(true)))
        };
        let items = match &self.newest {
            Some(newest) => {
                items.iter().filter(|item| is(newest, item)).max_by_key(number).map_or(&[][..], std::slice::from_ref)
            }
            None => items,
        };
        let ours = self.ours.iter().find_map(|ours| items.iter().filter(|item| is(ours, item)).min_by_key(number));
        let item = ours.and_then(|item| serde_json::to_vec(item).ok());
        Ok(item.map(|item| remember.values(&Answer { body: item.as_slice(), ..*answer })))
    }
}

fn reads_body(expression: &Expression) -> bool {
    expression.reads("body") || expression.reads("text")
}

/// Whether a status says that the request was accepted.
#[must_use]
pub fn is_success(status: u16) -> bool {
    (200..=299).contains(&status)
}

fn of_number(number: Option<u16>, status: u16) -> Result<u16, Undecided> {
    let is_allowed = |number: &u16| *number == status || is_success(*number) || (400..=599).contains(number);
    let wrong = || Undecided::new("the result is neither `status` nor a status of 200 to 299 or 400 to 599");
    number.filter(is_allowed).ok_or_else(wrong)
}

/// Returns a field of an answer. `None`: the body is not JSON.
fn value(answer: &Answer<'_>, field: &str) -> Option<CelValue> {
    Some(match field {
        "status" => CelValue::Int(i64::from(answer.status)),
        "headers" => {
            let mut all: HashMap<String, String> = HashMap::new();
            for (name, value) in answer.headers {
                let value = String::from_utf8_lossy(value.as_bytes());
                let joined = all.entry(name.as_str().to_owned()).or_default();
                joined.push_str(if joined.is_empty() { "" } else { ", " });
                joined.push_str(&value);
            }
            let all = all.into_iter().map(|(name, value)| (name, CelValue::String(Arc::new(value))));
            CelValue::Map(all.collect::<HashMap<_, _>>().into())
        }
        "text" => CelValue::String(Arc::new(String::from_utf8_lossy(answer.body).into_owned())),
        _ => cel(serde_json::from_slice(answer.body).ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn status(source: &str, status: u16, body: &str) -> Result<u16, String> {
        let success = Success::compile(source).map_err(|error| error.to_string())?;
        let mut headers = HeaderMap::new();
        for (name, value) in [("retry-after", "7"), ("warning", "a"), ("warning", "b")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        success.status(&Answer { status, headers: &headers, body: body.as_bytes() }).map_err(|error| error.to_string())
    }

    #[test]
    fn the_result_decides_as_which_status_an_answer_counts() {
        for (source, real, body, expected) in [
            ("true", 201, "", 201),
            ("true", 409, "", 200),
            ("false", 200, "", 422),
            ("false", 503, "", 503),
            ("429", 200, "", 429),
            ("429u", 200, "", 429),
            ("status", 302, "", 302),
            ("text == 'ok'", 200, "ok", 200),
            ("body.ok == true", 200, r#"{"ok": true}"#, 200),
            ("body.ok", 200, r#"{"ok": false}"#, 422),
            ("body.ok == true", 200, r#""a text""#, 422),
            ("body.code == 0 ? 200 : 503", 200, r#"{"code": 7}"#, 503),
            ("body.errors[0].code in ['a', 'b'] ? 503 : status", 200, r#"{"errors": [{"code": "b"}]}"#, 503),
            ("has(body.error) ? 422 : status", 204, "{}", 204),
            ("headers['retry-after'] == '7' ? 429 : status", 200, "", 429),
            ("headers.warning == 'a, b'", 200, "", 200),
            ("'x-none' in headers ? 422 : status", 200, "", 200),
            // Such an answer has no such body.
            ("body.ok == true", 503, "<html>", 503),
            ("body.ok == true", 404, "", 404),
        ] {
            assert_eq!(status(source, real, body), Ok(expected), "{source}, {real}, {body}");
        }
    }

    #[test]
    fn an_answer_that_cannot_be_judged_is_an_error_without_its_values() {
        let deep = "[".repeat(1000);
        for (source, body, expected) in [
            ("body.ok == true", "<html>s3cr3t", "body has no value"),
            ("body.ok == true", &deep, "body has no value"),
            ("body.ok == true", "{}", r#"there is no "ok"; check has() first"#),
            ("body.ok", r#"{"ok": "s3cr3t"}"#, "the result is neither a boolean nor a whole number"),
            ("302", "", "the result is neither `status` nor a status of 200 to 299 or 400 to 599"),
            ("0 - 1", "", "the result is neither `status` nor a status of 200 to 299 or 400 to 599"),
            ("headers['x-none'] == ''", "", r#"there is no "x-none"; check has() first"#),
        ] {
            assert_eq!(status(source, 200, body), Err(expected.to_owned()), "{source}, {body}");
        }
    }

    #[test]
    fn an_invalid_expression_is_refused_at_compilation() {
        for (source, expected) in [
            ("text", "must be a boolean or a number, but is a string"),
            ("revision == 'v1'", "there is no revision"),
            ("bod.ok == true", "there is no bod; did you mean body?"),
            ("status == '200'", "a number is never equal to a string"),
            ("headers", "must be a boolean or a number, but is an object"),
            ("body.all(x, x == 1)", "require a literal list"),
            ("text.matches('a')", "there is no function matches()"),
            ("status ==", "is not CEL: "),
        ] {
            let said = Success::compile(source).expect_err(source).to_string();
            assert!(said.contains(expected), "{source}: {said}");
        }
    }

    #[test]
    fn the_values_of_an_answer_are_remembered_if_they_are_short_and_printable() {
        let long = "a".repeat(LONGEST_VALUE + 1);
        for (source, body, expected) in [
            ("body.id", r#"{"id": "C1"}"#.to_owned(), Some("C1")),
            ("body.result.message_id", r#"{"result": {"message_id": 42}}"#.to_owned(), Some("42")),
            ("text", "an answer".to_owned(), Some("an answer")),
            ("status", String::new(), Some("200")),
            ("headers['retry-after']", String::new(), Some("7")),
            ("body.id", "{}".to_owned(), None),
            ("body.id", "<html>".to_owned(), None),
            ("body.id", r#"{"id": ""}"#.to_owned(), None),
            ("body.id", r#"{"id": ".."}"#.to_owned(), None),
            ("body.id", r#"{"id": true}"#.to_owned(), None),
            ("body.id", r#"{"id": 1.5}"#.to_owned(), None),
            ("body.id", r#"{"id": {"a": 1}}"#.to_owned(), None),
            ("body.id", r#"{"id": "ü"}"#.to_owned(), None),
            ("body.id", r#"{"id": "a\nb"}"#.to_owned(), None),
            ("body.id", format!(r#"{{"id": "{long}"}}"#), None),
        ] {
            let mut remember = Remember::default();
            remember.add("id", source).unwrap();
            let mut headers = HeaderMap::new();
            headers.append("retry-after", HeaderValue::from_static("7"));
            let values = remember.values(&Answer { status: 200, headers: &headers, body: body.as_bytes() });
            assert_eq!(values.get("id").map(String::as_str), expected, "{source}, {body}");
        }
        let refused = Remember::default().add("id", "status == 200").unwrap_err().to_string();
        assert_eq!(refused, "must be a string or a number, but is a boolean");
    }

    #[test]
    fn a_message_is_lost_if_the_answer_to_an_update_says_it() {
        let slack = "has(body.error) && body.error == 'message_not_found'";
        for (source, status, body, expected) in [
            (None, 404, "", true),
            (None, 410, "", true),
            (None, 403, "", false),
            (None, 200, "", false),
            (Some(slack), 200, r#"{"error": "message_not_found"}"#, true),
            (Some(slack), 200, r#"{"error": "fatal_error"}"#, false),
            (Some(slack), 404, "<html>", false),
            (Some("status == 409"), 409, "", true),
        ] {
            let lost = source.map_or_else(Lost::default, |source| Lost::compile(source).unwrap());
            let answer = Answer { status, headers: &HeaderMap::new(), body: body.as_bytes() };
            assert_eq!(lost.is_lost(&answer), expected, "{source:?}, {status}, {body}");
        }
        assert!(Lost::compile("404").unwrap_err().to_string().contains("must be a boolean"));
    }

    fn remember_id() -> Remember {
        let mut remember = Remember::default();
        remember.add("id", "body.id").unwrap();
        remember
    }

    fn id(id: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("id".to_owned(), id.to_owned())])
    }

    #[test]
    fn a_message_is_found_by_what_its_request_says() {
        let remember = remember_id();
        let ours = "body.key == request.key && body.by == null";
        let many = json!(vec![json!({"id": 1, "key": "b", "by": null}); MOST_ITEMS]);
        let with_last = |mut items: Value| {
            items.as_array_mut().unwrap().push(json!({"id": 2, "key": "a", "by": null}));
            items
        };
        let newest = Some("body.by == null");
        let by_other = json!([{"id": 3, "key": "b", "by": {"id": 7}}, {"id": 2, "key": "a", "by": null}]);
        let after_other = json!([{"id": 3, "key": "b", "by": null}, {"id": 2, "key": "a", "by": null}]);
        for (list, newest, body, expected) in [
            ("", None, after_other.clone(), Ok(Some(id("2")))),
            ("", None, json!([{"id": 3, "key": "a", "by": null}, {"id": 2, "key": "a", "by": null}]), Ok(Some(id("2")))),
            ("", None, json!([{"id": 1, "key": "a", "by": {"id": 7}}, "a", null, {"key": "a"}]), Ok(None)),
            ("", None, json!([{"key": "a", "by": null}]), Ok(Some(BTreeMap::new()))),
            ("", None, json!([{"id": "ü", "key": "a", "by": null}]), Ok(Some(BTreeMap::new()))),
            ("", newest, by_other, Ok(Some(id("2")))),
            ("", newest, after_other, Ok(None)),
            ("", newest, json!([]), Ok(None)),
            ("", None, json!([]), Ok(None)),
            ("", None, json!({"id": 2, "key": "a", "by": null}), Err(NotAList)),
            ("", None, Value::Null, Err(NotAList)),
            ("/runs", None, json!({"count": 1, "runs": [{"id": 2, "key": "a", "by": null}]}), Ok(Some(id("2")))),
            ("/runs", None, json!({"count": 0}), Err(NotAList)),
            ("", None, with_last(json!([{"id": 1, "key": "b", "by": null}])), Ok(Some(id("2")))),
            ("", None, with_last(many), Ok(None)),
        ] {
            let find = Find::compile(list, newest, ours).unwrap();
            let said = body.to_string();
            let answer = Answer { status: 200, headers: &HeaderMap::new(), body: said.as_bytes() };
            assert_eq!(find.values(&answer, (br#"{"key": "a"}"#, "i"), &remember), expected, "{list} {newest:?} {said}");
            let cut = Answer { body: &said.as_bytes()[..said.len() - 1], ..answer };
            assert_eq!(find.values(&cut, (br#"{"key": "a"}"#, "i"), &remember), Err(NotAList), "a part of {said}");
        }
        let said = json!([{"id": 4, "text": "by i"}, {"id": 3, "text": "by j"}]).to_string();
        let answer = Answer { status: 200, headers: &HeaderMap::new(), body: said.as_bytes() };
        let by = Find::compile("", None, "body.text.endsWith(' ' + id)").unwrap();
        assert_eq!(by.values(&answer, (b"{}", "i"), &remember), Ok(Some(id("4"))));
    }

    #[test]
    fn the_parent_of_a_message_is_found_by_the_first_expression_that_is_true() {
        let remember = remember_id();
        let wanted = ["body.merged == true", "body.state == 'open'"].map(str::to_owned);
        let (open, merged) = (json!({"id": 1, "state": "open"}), json!({"id": 2, "merged": true}));
        let closed = json!({"id": 3, "merged": false, "state": "closed"});
        for (is_single, body, expected) in [
            (false, json!([open, merged, closed]), Ok(Some(id("2")))),
            (false, json!([{"id": 4, "merged": true}, merged, open]), Ok(Some(id("2")))),
            (false, json!([closed, open]), Ok(Some(id("1")))),
            (false, json!([closed]), Ok(None)),
            (false, open.clone(), Err(NotAList)),
            (true, open, Ok(Some(id("1")))),
            (true, closed, Ok(None)),
            (true, json!([merged]), Err(NotAList)),
        ] {
            let find = Find::compile_parent(is_single, "status == 422 && text.contains('No commit')", &wanted).unwrap();
            let said = body.to_string();
            let answer = Answer { status: 200, headers: &HeaderMap::new(), body: said.as_bytes() };
            assert_eq!(find.values(&answer, (b"", ""), &remember), expected, "{is_single} {said}");
        }
        let find = Find::compile_parent(false, "status == 422 && text.contains('No commit')", &wanted).unwrap();
        for (status, text, expected) in [(422, "No commit found", true), (422, "{}", false), (404, "No commit", false)] {
            let answer = Answer { status, headers: &HeaderMap::new(), body: text.as_bytes() };
            assert_eq!(find.is_none(&answer), expected, "{status} {text}");
        }
    }

    #[test]
    fn an_expression_about_an_item_sees_only_the_item_and_the_request() {
        for (ours, words) in [
            ("body.id == remembered.id", "there is no remembered"),
            ("status == 200", "there is no status"),
            ("'a'", "must be a boolean"),
        ] {
            for (newest, ours) in [(None, ours), (Some(ours), "true")] {
                let said = Find::compile("", newest, ours).unwrap_err().to_string();
                assert!(said.contains(words), "{ours}: {said}");
            }
        }
    }

    #[test]
    fn only_an_expression_about_the_body_reads_it() {
        for (source, expected) in [("status == 201", false), ("text == 'ok'", true), ("has(body.id)", true)] {
            assert_eq!(Success::compile(source).unwrap().reads_body(), expected, "{source}");
        }
    }
}
