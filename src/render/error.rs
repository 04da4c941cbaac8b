//! What can be wrong with a template, or with one rendering of it.

use std::fmt;

use super::{MAX_SOURCE, MAX_TAGS};

/// A place in a template source; both count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column of the tag or text.
    pub column: usize,
}

impl Position {
    /// That of the first character.
    pub(super) const START: Self = Self { line: 1, column: 1 };

    /// The position behind a text that begins here.
    pub(super) fn after(self, text: &str) -> Self {
        match text.rfind('\n') {
            Some(last) => {
                Self { line: self.line + text.matches('\n').count(), column: text[last + 1..].chars().count() + 1 }
            }
            None => Self { column: self.column + text.chars().count(), ..self },
        }
    }

    /// The position of a byte offset of a source.
    pub(super) fn of(source: &str, offset: usize) -> Self {
        let before = source.get(..offset).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a template was refused, or could not be rendered with this data. Each message is one line that says where, what, and
/// what to write instead. Literal text of a template is never quoted: URLs and headers may hold secrets.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The source is too long.
    #[error("the template has {0} bytes; at most {MAX_SOURCE} are allowed")]
    TooLong(usize),
    /// The source has too many tags.
    #[error("the template has more than {MAX_TAGS} tags; write fewer")]
    TooManyTags,
    /// Not Handlebars, or a part of it that is not supported.
    #[error("{at}: {problem}")]
    Syntax {
        /// Where.
        at: Position,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// No such helper.
    #[error("{at}: there is no helper `{name}`; {known}")]
    UnknownHelper {
        /// Where.
        at: Position,
        /// The name that was written.
        name: String,
        /// What to write instead.
        known: String,
    },
    /// No such field.
    #[error("{at}: there is no field `{field}`; {known}")]
    UnknownField {
        /// Where.
        at: Position,
        /// The path that was written.
        field: String,
        /// What to write instead.
        known: String,
    },
    /// A parameter of another namespace, which does not share it.
    #[error(
        "{at}: `parameters.{name}` is from {owner}, which does not share its parameters with templates of other namespaces; set \
         spec.template.parameters.{name} where this template is written, or template.shareParameters: true in {owner}"
    )]
    ParameterHidden {
        /// Where.
        at: Position,
        /// Its name.
        name: String,
        /// Who wrote it.
        owner: String,
    },
    /// A parameter could not be rendered; the position is in its value.
    #[error("parameter `{name}`: {source}")]
    Parameter {
        /// Its name.
        name: String,
        /// Why.
        source: Box<RenderError>,
    },
    /// A parameter that the template declares, and nobody set.
    #[error("{at}: `parameters.{name}` has no value; set spec.template.parameters.{name}")]
    ParameterMissing {
        /// Where.
        at: Position,
        /// Its name.
        name: String,
    },
    /// A label or annotation that an object need not have.
    #[error("{at}: `{field}` may be missing; set a default: (default {field} \"...\")")]
    MayBeMissing {
        /// Where.
        at: Position,
        /// The path that was written.
        field: String,
    },
    /// An object stands where a text belongs.
    #[error("{at}: `{field}` is an object, not a text; name one of its fields, or use `json`")]
    NotText {
        /// Where.
        at: Position,
        /// The path that was written.
        field: String,
    },
    /// A helper is called in a way that it does not understand, whatever the data.
    #[error("{at}: `{helper}` {problem}")]
    Helper {
        /// Where.
        at: Position,
        /// Its name.
        helper: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// A helper cannot work with the values of this data.
    #[error("{at}: `{helper}` {problem}")]
    HelperFailed {
        /// Where.
        at: Position,
        /// Its name.
        helper: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// A value of this data cannot be written where the template has it.
    #[error("{at}: `{field}` {problem}")]
    Unfit {
        /// Where.
        at: Position,
        /// The expression that was written.
        field: String,
        /// What is wrong with its value.
        problem: &'static str,
    },
    /// A value, or the end of a branch, stands where it cannot be made safe.
    #[error("{at}: {problem}")]
    EscapeContext {
        /// Where.
        at: Position,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// A media type for which no escaping is known.
    #[error(
        "values cannot be escaped for this content type; use application/json, application/x-www-form-urlencoded, text/html, \
         application/xml, text/plain, text/markdown, or a type that ends in +json or +xml"
    )]
    ContentType,
    /// Not a URL that may be sent to.
    #[error("the URL {0}")]
    Url(&'static str),
    /// With this data it becomes a URL that may not be sent to.
    #[error("the URL {0}")]
    UrlValue(&'static str),
    /// Not the name of a header.
    #[error("a header's name consists of letters, digits and dashes")]
    HeaderName,
    /// The rendered body does not parse.
    #[error("the rendered body is not JSON at its line {}, column {}; check commas, quotes and braces", .0.line(), .0.column())]
    NotJson(#[source] serde_json::Error),
    /// The data could not be laid out as JSON.
    #[error("the data could not be read")]
    Data(#[source] serde_json::Error),
    /// The result is too long.
    #[error("the rendered text is longer than {0} bytes; shorten values with `truncate`")]
    OutputTooLong(usize),
    /// The template does too much.
    #[error("{at}: the template does too much work; use fewer loops, or shorten values with `truncate`")]
    TooMuchWork {
        /// Where it ran out.
        at: Position,
    },
    /// One of these, and a label or an annotation of the pipeline has a part in it: neither is recorded, both may change.
    #[error("{0}")]
    Changeable(Box<RenderError>),
    /// Several problems of one template that does not compile, in its order.
    #[error("{}", told(.0))]
    Several(Vec<RenderError>),
}

/// Maximum number of problems in one message.
const TOLD: usize = 5;

/// Several problems in one message: the first of them, and each remedy once, which is what follows a semicolon.
pub fn told(problems: &[impl fmt::Display]) -> String {
    let mut remedies = Vec::new();
    let mut told = Vec::new();
    for problem in problems.iter().take(TOLD).map(ToString::to_string) {
        match problem.split_once("; ") {
            Some((first, remedy)) if remedies.iter().any(|known| known == remedy) => told.push(first.to_owned()),
            Some((_, remedy)) => {
                remedies.push(remedy.to_owned());
                told.push(problem);
            }
            None => told.push(problem),
        }
    }
    let more = problems.len().saturating_sub(TOLD);
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    told.join("; ")
}

impl RenderError {
    /// What is wrong, as one error; nothing if nothing is.
    pub(super) fn all(mut problems: Vec<Self>) -> Option<Self> {
        if problems.len() > 1 { Some(Self::Several(problems)) } else { problems.pop() }
    }

    /// Each problem by itself.
    pub fn each(&self) -> impl Iterator<Item = &Self> {
        match self {
            Self::Several(all) => all.iter(),
            one => std::slice::from_ref(one).iter(),
        }
    }

    /// One word for conditions, Events and metric labels.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        if self.is_final() { "TemplateFailed" } else { "TemplateInvalid" }
    }

    /// Whether the same recorded data gives this error each time, so that waiting does not help. What is wrong with the template
    /// itself is not final: an edit of it is expected.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        match self {
            Self::TooLong(_)
            | Self::TooManyTags
            | Self::Syntax { .. }
            | Self::UnknownHelper { .. }
            | Self::UnknownField { .. }
            | Self::ParameterHidden { .. }
            | Self::ParameterMissing { .. }
            | Self::MayBeMissing { .. }
            | Self::NotText { .. }
            | Self::Helper { .. }
            | Self::EscapeContext { .. }
            | Self::ContentType
            | Self::Url(_)
            | Self::HeaderName
            | Self::Changeable(_)
            | Self::Several(_) => false,
            Self::HelperFailed { .. }
            | Self::Unfit { .. }
            | Self::UrlValue(_)
            | Self::NotJson(_)
            | Self::Data(_)
            | Self::OutputTooLong(_)
            | Self::TooMuchWork { .. } => true,
            Self::Parameter { source, .. } => source.is_final(),
        }
    }

    /// The same, with the note that what is not recorded has a part in it, if it has.
    pub(super) fn changeable_if(self, changeable: bool) -> Self {
        if changeable && self.is_final() { Self::Changeable(Box::new(self)) } else { self }
    }
}

/// A name or value as it may stand in a message: short, and on one line.
pub(super) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(64).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(64).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_from_one() {
        let source = "a\néü{{x}}";
        assert_eq!(Position::of(source, 0), Position { line: 1, column: 1 });
        assert_eq!(Position::of(source, source.find("{{").unwrap()), Position { line: 2, column: 3 });
        assert_eq!(Position::of(source, 999), Position { line: 2, column: 8 });
    }

    #[test]
    fn several_problems_are_one_short_message() {
        let unknown = |field: &str, known: &str| RenderError::UnknownField {
            at: Position::START,
            field: field.to_owned(),
            known: known.to_owned(),
        };
        assert!(RenderError::all(Vec::new()).is_none());
        let one = RenderError::all(vec![unknown("a", "there are b, c")]).unwrap();
        assert!(matches!(one, RenderError::UnknownField { .. }) && one.each().count() == 1);
        let all =
            ["x", "y"].map(|field| unknown(field, "there are b, c")).into_iter().chain([unknown("bb", "did you mean `b`?")]);
        let several = RenderError::all(all.collect()).unwrap();
        let at = "line 1, column 1: there is no field";
        assert_eq!(several.to_string(), format!("{at} `x`; there are b, c; {at} `y`; {at} `bb`; did you mean `b`?"));
        assert_eq!((several.each().count(), several.is_final()), (3, false));
    }

    #[test]
    fn what_is_shown_is_short_and_on_one_line() {
        assert_eq!(shown("a\nb\u{7}c"), "a b c");
        assert_eq!(shown(&"x".repeat(99)).chars().count(), 65);
    }

    #[test]
    fn only_what_the_recorded_data_gives_each_time_is_final() {
        let at = Position { line: 1, column: 1 };
        let not_json = || serde_json::from_str::<serde_json::Value>("{").unwrap_err();
        let (name, problem) = (|| "x".to_owned(), "is wrong");
        let within = |error| RenderError::Parameter { name: name(), source: Box::new(error) };
        let finals = || {
            vec![
                RenderError::HelperFailed { at, helper: "commit", problem: name() },
                RenderError::Unfit { at, field: name(), problem },
                RenderError::UrlValue(problem),
                RenderError::NotJson(not_json()),
                RenderError::Data(not_json()),
                RenderError::OutputTooLong(1),
                RenderError::TooMuchWork { at },
            ]
        };
        let waits = || {
            vec![
                RenderError::TooLong(1),
                RenderError::TooManyTags,
                RenderError::Syntax { at, problem: name() },
                RenderError::UnknownHelper { at, name: name(), known: name() },
                RenderError::UnknownField { at, field: name(), known: name() },
                RenderError::ParameterHidden { at, name: name(), owner: name() },
                RenderError::ParameterMissing { at, name: name() },
                RenderError::MayBeMissing { at, field: name() },
                RenderError::NotText { at, field: name() },
                RenderError::Helper { at, helper: "commit", problem: name() },
                RenderError::EscapeContext { at, problem: name() },
                RenderError::ContentType,
                RenderError::Url(problem),
                RenderError::HeaderName,
            ]
        };
        for error in finals().into_iter().chain(finals().into_iter().map(within)) {
            assert!(error.is_final() && error.reason() == "TemplateFailed", "{error:?}");
        }
        for error in waits().into_iter().chain(waits().into_iter().map(within)) {
            assert!(!error.is_final() && error.reason() == "TemplateInvalid", "{error:?}");
        }
        for error in finals() {
            let said = error.to_string();
            let error = error.changeable_if(true);
            assert!(!error.is_final() && error.to_string() == said, "{error:?}");
        }
    }
}
