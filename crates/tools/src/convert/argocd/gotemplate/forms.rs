//! What expressions of Go become: values, conditions and helpers of Relaybook's templates. Pure.

use super::Spot;
use super::fields::Words;
use super::parse::{Refusal, Tag};

/// What an expression becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text(String),
    Number(String),
    Bool(bool),
    /// The path of a field.
    Path(String),
    /// A helper with its arguments.
    Call(String),
    /// A condition, as an argument.
    Test(String),
    /// Words of Argo CD for a state of Relaybook.
    Words(&'static Words),
    /// A part of a template.
    Part(String),
}

impl Form {
    /// Returns the form as an argument of a helper.
    pub(super) fn argument(&self, tag: &Tag) -> Result<String, Refusal> {
        match self {
            Self::Text(text) => {
                argument(text).ok_or_else(|| tag.refuse("a text with such characters cannot be an argument"))
            }
            Self::Path(path) => Ok(path.clone()),
            Self::Call(call) => Ok(format!("({call})")),
            Self::Number(_) | Self::Bool(_) | Self::Test(_) | Self::Words(_) | Self::Part(_) => {
                Err(tag.refuse("it cannot be an argument"))
            }
        }
    }

    /// Returns the form as a condition.
    pub(super) fn test(self, tag: &Tag) -> Result<Result<bool, String>, Refusal> {
        match self {
            Self::Bool(is) => Ok(Ok(is)),
            Self::Text(text) => Ok(Ok(!text.is_empty())),
            Self::Words(_) => Ok(Ok(true)),
            Self::Number(_) | Self::Part(_) => Err(tag.refuse("it cannot be a condition")),
            Self::Test(test) => Ok(Err(test)),
            Self::Path(_) | Self::Call(_) => self.argument(tag).map(Err),
        }
    }

    /// Whether it has only letters, digits and some signs of ASCII, which no function escapes.
    fn is_plain(&self) -> bool {
        match self {
            Self::Text(text) => text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)),
            Self::Number(_) => true,
            Self::Path(path) => {
                ["revision", "target.app.name", "target.namespace", "target.app.kind"].contains(&path.as_str())
            }
            Self::Call(call) => call.starts_with("default target.app.labels.["),
            Self::Bool(_) | Self::Test(_) | Self::Words(_) | Self::Part(_) => false,
        }
    }
}

/// Returns what a function changes in another way than that of Go, unless its value is plain.
pub(super) fn changed(name: &str, spot: Spot, forms: &[Form]) -> Option<&'static str> {
    let text = match name {
        "trunc" => "it counts characters, and not bytes",
        "toRawJson" if spot != Spot::Json => "it does not escape U+2028 and U+2029",
        "coalesce" if forms.last().is_none_or(|last| !matches!(last, Form::Text(text) if !text.is_empty())) => {
            return Some("if all are empty, it shows nothing, and not `<no value>`");
        }
        "toJson" | "toPrettyJson" if spot != Spot::Json => "it does not escape <, > and &",
        "urlquery" => "a space becomes %20, and not +",
        "quote" if spot != Spot::Json => "quotation marks and control characters of the value are not escaped",
        "upper" | "lower" => "some letters that are not ASCII change in another way",
        _ => return None,
    };
    (!forms.iter().all(Form::is_plain)).then_some(text)
}

/// Returns a text as an argument of a helper.
fn argument(text: &str) -> Option<String> {
    let is_plain = !text.contains(|c: char| c == '\\' || c == '{' || c == '}' || c.is_control());
    let quote = ['"', '\''].into_iter().find(|quote| !text.contains(*quote));
    quote.filter(|_| is_plain).map(|quote| format!("{quote}{text}{quote}"))
}

/// The helpers that take the same values, in another order.
pub(super) fn helper(name: &str, forms: &[Form], tag: &Tag) -> Result<Form, Refusal> {
    let all: Vec<String> = match (name, forms) {
        ("trunc", [Form::Number(number), text]) if number != "0" && !number.starts_with('-') => {
            vec![text.argument(tag)?, number.clone()]
        }
        ("trunc", _) => return Err(tag.refuse("`trunc` has a counterpart only with a number of characters")),
        ("replace", [Form::Text(old), ..]) if old.is_empty() => {
            return Err(tag.refuse("`replace` of an empty text has no counterpart"));
        }
        _ => forms.iter().map(|form| form.argument(tag)).collect::<Result<_, _>>()?,
    };
    let call = |text: String| Ok(Form::Call(text));
    match (name, all.as_slice()) {
        ("upper", [a]) => call(format!("upper {a}")),
        ("lower", [a]) => call(format!("lower {a}")),
        ("trim", [a]) => call(format!("trim {a}")),
        ("trunc", [text, number]) => call(format!("truncate {text} {number} \"\"")),
        ("replace", [old, new, text]) => call(format!("replace {text} {old} {new}")),
        ("default", [other, text]) => call(format!("default {text} {other}")),
        ("coalesce", [first, rest @ ..]) => call(rest.iter().fold(first.clone(), |value, next| {
            let value = if value.starts_with("default ") { format!("({value})") } else { value };
            format!("default {value} {next}")
        })),
        ("toJson" | "toRawJson" | "toPrettyJson", [a]) => call(format!("json {a}")),
        ("urlquery", [a]) => call(format!("urlencode {a}")),
        ("sha256sum", [a]) => call(format!("sha256 {a}")),
        ("contains", [part, text]) => Ok(Form::Test(format!("(contains {text} {part})"))),
        ("hasPrefix", [part, text]) => Ok(Form::Test(format!("(startsWith {text} {part})"))),
        ("hasSuffix", [part, text]) => Ok(Form::Test(format!("(endsWith {text} {part})"))),
        _ => Err(tag.refuse("the function has no counterpart")),
    }
}

/// Compares two forms: the answer, or the condition for it.
pub(super) fn equal(a: &Form, b: &Form, tag: &Tag) -> Result<Result<bool, String>, Refusal> {
    match (a, b) {
        (Form::Text(a), Form::Text(b)) => Ok(Ok(a == b)),
        (Form::Words(words), Form::Text(text)) | (Form::Text(text), Form::Words(words)) => {
            Ok(words.condition(text).map_or(Ok(false), |condition| Err(condition.to_owned())))
        }
        (Form::Number(_), _) | (_, Form::Number(_)) => Err(tag.refuse("a comparison with a number has no counterpart")),
        _ => Ok(Err(format!("(eq {} {})", a.argument(tag)?, b.argument(tag)?))),
    }
}

/// Returns the opposite.
pub(super) fn negated(test: Result<bool, String>) -> Form {
    match test {
        Ok(is) => Form::Bool(!is),
        Err(condition) => Form::Test(format!("(not {condition})")),
    }
}

/// Joins conditions. `neutral`: the answer that changes nothing.
pub(super) fn joined(tests: Vec<Result<bool, String>>, word: &str, neutral: bool) -> Form {
    let mut conditions = Vec::new();
    for test in tests {
        match test {
            Ok(is) if is == neutral => {}
            Ok(is) => return Form::Bool(is),
            Err(condition) => conditions.push(condition),
        }
    }
    match conditions.as_slice() {
        [] => Form::Bool(neutral),
        [one] => Form::Test(one.clone()),
        all => Form::Test(format!("({word} {})", all.join(" "))),
    }
}
