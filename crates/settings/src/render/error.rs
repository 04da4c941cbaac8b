//! The errors of a template, and of one rendering of it.

use std::fmt;

use super::{MAX_SOURCE, MAX_TAGS};

/// A position in a template source. Lines and columns start at 1. Columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// Column of the tag or text.
    pub column: usize,
}

impl Position {
    /// The position of the first character.
    pub(super) const START: Self = Self { line: 1, column: 1 };

    /// Returns the position after a text that starts here.
    pub(super) fn after(self, text: &str) -> Self {
        match text.rfind('\n') {
            Some(last) => {
                Self { line: self.line + text.matches('\n').count(), column: text[last + 1..].chars().count() + 1 }
            }
            None => Self { column: self.column + text.chars().count(), ..self },
        }
    }

    /// Returns the position of a byte offset in a source.
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

/// Why a template is rejected, or cannot be rendered with this data. Each message is one line with the position, the problem and its
/// correction. A message never quotes literal text of a template, because URLs and headers may contain secrets.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The source is too long.
    #[error("the template has {0} bytes; at most {MAX_SOURCE} are allowed")]
    TooLong(usize),
    /// The source has too many tags.
    #[error("the template has more than {MAX_TAGS} tags; write fewer")]
    TooManyTags,
    /// The source is not valid Handlebars, or uses a feature that is not supported.
    #[error("{at}: {problem}")]
    Syntax {
        /// The position in the source.
        at: Position,
        /// The problem and its correction.
        problem: String,
    },
    /// The helper does not exist.
    #[error("{at}: there is no helper `{name}`; {known}")]
    UnknownHelper {
        /// The position in the source.
        at: Position,
        /// The name in the source.
        name: String,
        /// The alternatives.
        known: String,
    },
    /// The field does not exist.
    #[error("{at}: there is no field `{field}`; {known}")]
    UnknownField {
        /// The position in the source.
        at: Position,
        /// The path in the source.
        field: String,
        /// The alternatives.
        known: String,
    },
    /// The parameter belongs to another namespace, which does not share it.
    #[error(
        "{at}: `parameters.{name}` is from {owner}, which does not share it with other namespaces; set spec.template.parameters.{name} \
         beside this template (only the global configuration can set template.shareParameters: true)"
    )]
    ParameterHidden {
        /// The position in the source.
        at: Position,
        /// Its name.
        name: String,
        /// The owner of the parameter.
        owner: String,
    },
    /// A parameter could not be rendered. The position in the cause is a position in its value.
    #[error("parameter `{name}`: {source}")]
    Parameter {
        /// Its name.
        name: String,
        /// The cause.
        source: Box<RenderError>,
    },
    /// A line of a parameter with fields is none.
    #[error("field {number} {problem}")]
    Field {
        /// Which one, from 1.
        number: usize,
        /// The problem and its correction.
        problem: &'static str,
    },
    /// The template declares the parameter, but it has no value.
    #[error("{at}: `parameters.{name}` has no value; set spec.template.parameters.{name}")]
    ParameterMissing {
        /// The position in the source.
        at: Position,
        /// Its name.
        name: String,
    },
    /// The label or annotation can be missing.
    #[error("{at}: `{field}` may be missing; set a default: (default {field} \"...\")")]
    MayBeMissing {
        /// The position in the source.
        at: Position,
        /// The path in the source.
        field: String,
    },
    /// An object is used where a text is required.
    #[error("{at}: `{field}` is an object, not a text; name one of its fields, or use `json`")]
    NotText {
        /// The position in the source.
        at: Position,
        /// The path in the source.
        field: String,
    },
    /// The call of a helper is invalid for any data.
    #[error("{at}: `{helper}` {problem}")]
    Helper {
        /// The position in the source.
        at: Position,
        /// Its name.
        helper: &'static str,
        /// The problem.
        problem: String,
    },
    /// A helper cannot use the values of this data.
    #[error("{at}: `{helper}` {problem}")]
    HelperFailed {
        /// The position in the source.
        at: Position,
        /// Its name.
        helper: &'static str,
        /// The problem.
        problem: String,
    },
    /// The helper `commit` found no commit in this data.
    #[error("{at}: `commit` {problem}")]
    NoCommit {
        /// The position in the source.
        at: Position,
        /// What it found instead, where, and the remedy.
        problem: String,
    },
    /// A value of this data is not allowed at this position of the template.
    #[error("{at}: `{field}` {problem}")]
    ValueNotAllowed {
        /// The position in the source.
        at: Position,
        /// The expression in the source.
        field: String,
        /// The problem with its value.
        problem: &'static str,
    },
    /// A value, or the end of a branch, is at a position where it cannot be escaped.
    #[error("{at}: {problem}")]
    EscapeContext {
        /// The position in the source.
        at: Position,
        /// The problem and its correction.
        problem: String,
    },
    /// No escaping is known for the media type.
    #[error(
        "values cannot be escaped for this content type; use application/json, application/x-www-form-urlencoded, text/html, \
         application/xml, text/plain, text/markdown, or a type that ends in +json or +xml"
    )]
    ContentType,
    /// The URL is invalid or not allowed.
    #[error("the URL {0}")]
    Url(&'static str),
    /// The URL is invalid or not allowed with this data.
    #[error("the URL {0}")]
    UrlValue(&'static str),
    /// The name of a header is invalid.
    #[error("a header's name consists of letters, digits and dashes")]
    HeaderName,
    /// The rendered body is not valid JSON.
    #[error("the rendered body is not JSON at its line {}, column {}; check commas, quotes and braces", .0.line(), .0.column())]
    NotJson(#[source] serde_json::Error),
    /// The data could not be converted to JSON.
    #[error("the data could not be converted to JSON")]
    Data(#[source] serde_json::Error),
    /// The result is too long.
    #[error("the rendered text is longer than {0} bytes; shorten values with `truncate`")]
    OutputTooLong(usize),
    /// The template exceeds the budget of work.
    #[error("{at}: the template does too much work; use fewer loops, or shorten values with `truncate`")]
    TooMuchWork {
        /// The position at which the budget was exhausted.
        at: Position,
    },
    /// An error that depends on a label or an annotation of the pipeline. They are not recorded and may change.
    #[error("{0}")]
    Changeable(Box<RenderError>),
    /// Several problems of one template that does not compile, in the order of the source.
    #[error("{}", join_messages(.0))]
    Several(Vec<RenderError>),
}

/// Maximum number of problems in one message.
const MAX_JOINED: usize = 5;

/// Joins the first problems in one message. The remedy follows the first semicolon of a problem. Each remedy occurs only once.
pub fn join_messages(problems: &[impl fmt::Display]) -> String {
    let mut remedies = Vec::new();
    let mut messages = Vec::new();
    for problem in problems.iter().take(MAX_JOINED).map(ToString::to_string) {
        match problem.split_once("; ") {
            Some((first, remedy)) if remedies.iter().any(|known| known == remedy) => messages.push(first.to_owned()),
            Some((_, remedy)) => {
                remedies.push(remedy.to_owned());
                messages.push(problem);
            }
            None => messages.push(problem),
        }
    }
    let more = problems.len().saturating_sub(MAX_JOINED);
    if more > 0 {
        messages.push(format!("and {more} more"));
    }
    messages.join("; ")
}

impl RenderError {
    /// Combines problems in one error. Returns `None` if there are none.
    pub(super) fn all(mut problems: Vec<Self>) -> Option<Self> {
        if problems.len() > 1 { Some(Self::Several(problems)) } else { problems.pop() }
    }

    /// Returns each problem as a separate error.
    pub fn each(&self) -> impl Iterator<Item = &Self> {
        match self {
            Self::Several(all) => all.iter(),
            one => std::slice::from_ref(one).iter(),
        }
    }

    /// Whether the helper `commit` found no commit.
    #[must_use]
    pub const fn is_without_commit(&self) -> bool {
        match self {
            Self::NoCommit { .. } => true,
            Self::Parameter { source, .. } => source.is_without_commit(),
            _ => false,
        }
    }

    /// Whether the same recorded data causes this error in every attempt, so that a retry does not help. A problem of the template itself
    /// is not final, because a user can edit the template.
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
            | Self::Field { .. }
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
            | Self::NoCommit { .. }
            | Self::ValueNotAllowed { .. }
            | Self::UrlValue(_)
            | Self::NotJson(_)
            | Self::Data(_)
            | Self::OutputTooLong(_)
            | Self::TooMuchWork { .. } => true,
            Self::Parameter { source, .. } => source.is_final(),
        }
    }

    /// Whether a limit of all templates of the request is exceeded, so nothing more can be rendered.
    pub(super) const fn is_of_limit(&self) -> bool {
        match self {
            Self::OutputTooLong(_) | Self::TooMuchWork { .. } => true,
            Self::Changeable(source) | Self::Parameter { source, .. } => source.is_of_limit(),
            _ => false,
        }
    }

    /// Marks a final error as [`Changeable`](Self::Changeable) if it depends on values that are not recorded.
    pub(super) fn changeable_if(self, changeable: bool) -> Self {
        if changeable && self.is_final() { Self::Changeable(Box::new(self)) } else { self }
    }
}

/// Returns a name or value for a message: short, and on one line.
pub(super) fn for_message(text: &str) -> String {
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
        let one = RenderError::all(vec![unknown("a", "known names: b, c")]).unwrap();
        assert!(matches!(one, RenderError::UnknownField { .. }) && one.each().count() == 1);
        let all = ["x", "y"]
            .map(|field| unknown(field, "known names: b, c"))
            .into_iter()
            .chain([unknown("bb", "did you mean `b`?")]);
        let several = RenderError::all(all.collect()).unwrap();
        let at = "line 1, column 1: there is no field";
        assert_eq!(several.to_string(), format!("{at} `x`; known names: b, c; {at} `y`; {at} `bb`; did you mean `b`?"));
        assert_eq!((several.each().count(), several.is_final()), (3, false));
    }

    #[test]
    fn shown_texts_are_short_and_on_one_line() {
        assert_eq!(for_message("a\nb\u{7}c"), "a b c");
        assert_eq!(for_message(&"x".repeat(99)).chars().count(), 65);
    }

    #[test]
    fn only_errors_that_depend_on_recorded_data_are_final() {
        let at = Position { line: 1, column: 1 };
        let not_json = || serde_json::from_str::<serde_json::Value>("{").unwrap_err();
        let (name, problem) = (|| "x".to_owned(), "is wrong");
        let within = |error| RenderError::Parameter { name: name(), source: Box::new(error) };
        let finals = || {
            vec![
                RenderError::HelperFailed { at, helper: "date", problem: name() },
                RenderError::NoCommit { at, problem: name() },
                RenderError::ValueNotAllowed { at, field: name(), problem },
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
                RenderError::Field { number: 1, problem },
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
            assert!(error.is_final(), "{error:?}");
        }
        for error in waits().into_iter().chain(waits().into_iter().map(within)) {
            assert!(!error.is_final(), "{error:?}");
        }
        let limits: Vec<_> = finals().iter().map(RenderError::is_of_limit).collect();
        assert_eq!(limits, [false, false, false, false, false, false, true, true]);
        assert!(within(RenderError::TooMuchWork { at }.changeable_if(true)).is_of_limit());
        let no_commit = || RenderError::NoCommit { at, problem: name() };
        assert!([no_commit(), within(no_commit())].iter().all(RenderError::is_without_commit));
        assert!(!finals()[0].is_without_commit() && !no_commit().changeable_if(true).is_without_commit());
        for error in finals() {
            let said = error.to_string();
            let error = error.changeable_if(true);
            assert!(!error.is_final() && error.to_string() == said, "{error:?}");
        }
    }
}
