//! Templates of a thread: its key, and the path of the requests that continue a message.
//!
//! In: the sources, once per edit; the values of one transition. Out: one line of text, or a path in which each value is percent-encoded.

use std::fmt;
use std::sync::Arc;

use super::data::parameters::Visibility;
use super::error::RenderError;
use super::escape::context::EscapeContext;
use super::lang::commits::needs_commit;
use super::lang::compile;
use super::lang::eval::Program;
use super::lang::reads::depends_on_forge;
use super::{MAX_LINE, Parameters, Values};
use relaybook_api::values::looked_up::LookUps;

/// The compiled template of a text in which no character has a special meaning.
#[derive(Clone, Debug)]
pub struct TextTemplate(Arc<Program>, Visibility);

impl TextTemplate {
    /// Compiles a template.
    pub fn compile(source: &str, parameters: &Parameters) -> Result<Self, RenderError> {
        Ok(Self(Arc::new(compile::compile(source, EscapeContext::Plain, parameters)?), parameters.visibility()))
    }

    /// Whether rendering fails for every revision that contains no commit.
    #[must_use]
    pub fn needs_commit(&self, parameters: &Parameters) -> bool {
        needs_commit(&self.0, parameters)
    }

    /// Whether it depends on what a forge says. `asked`: what the body asks for.
    #[must_use]
    pub fn depends_on_forge(&self, parameters: &Parameters, asked: LookUps) -> bool {
        depends_on_forge(&self.0, &parameters.seen_with(self.1), asked)
    }

    /// Renders the text for one transition, with at most [`MAX_LINE`] bytes.
    pub fn render(&self, values: &Values) -> Result<String, RenderError> {
        Ok(self.0.run(values, self.1, MAX_LINE)?.text)
    }
}

/// The compiled template of a part of a path, without a query. A value cannot add or remove a segment.
#[derive(Clone)]
pub struct PathTemplate(Arc<Program>, Visibility);

impl PathTemplate {
    /// Compiles a template.
    pub fn compile(source: &str, parameters: &Parameters) -> Result<Self, RenderError> {
        Ok(Self(Arc::new(compile::compile(source, EscapeContext::PATH, parameters)?), parameters.visibility()))
    }

    /// Whether it depends on what a forge says. `asked`: what the body asks for.
    #[must_use]
    pub fn depends_on_forge(&self, parameters: &Parameters, asked: LookUps) -> bool {
        depends_on_forge(&self.0, &parameters.seen_with(self.1), asked)
    }

    /// Renders the path for one transition, with at most [`MAX_LINE`] bytes. `None`: it is empty.
    pub fn render(&self, values: &Values) -> Result<Option<String>, RenderError> {
        let output = self.0.run(values, self.1, MAX_LINE)?;
        match problem(&output.text) {
            Some(problem) => Err(RenderError::UrlValue(problem).changeable_if(output.changeable)),
            None => Ok(Some(output.text).filter(|path| !path.is_empty())),
        }
    }

    /// Renders a path and the query after it. Each of them is `None` if it is empty.
    pub fn render_with_query(&self, values: &Values) -> Result<(Option<String>, Option<String>), RenderError> {
        let output = self.0.run(values, self.1, MAX_LINE)?;
        let (path, query) = output.text.split_once('?').unwrap_or((output.text.as_str(), ""));
        let part = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        match problem(path) {
            Some(problem) => Err(RenderError::UrlValue(problem).changeable_if(output.changeable)),
            None => Ok((part(path), part(query))),
        }
    }
}

/// Returns what is wrong with a path.
fn problem(path: &str) -> Option<&'static str> {
    if path.contains(['?', '#']) {
        return Some("has a query or a fragment; the query of the URL stays");
    }
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/');
    (!path.is_empty() && segments.any(is_skipped)).then_some("has a path segment that is empty, `.` or `..`")
}

/// Whether a parser of URLs drops this segment, or the one before it.
fn is_skipped(segment: &str) -> bool {
    matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "" | "." | "..")
}

/// Omits the path, because it may contain a secret.
impl fmt::Debug for PathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PathTemplate").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::Data;
    use relaybook_api::TransitionType;

    fn path(source: &str, id: &str) -> Result<Option<String>, RenderError> {
        let parameters = Parameters::default().with_remembered(["id".to_owned()].into());
        let values =
            Data::sample(TransitionType::Failed).values().remembering(&[("id".to_owned(), id.to_owned())].into(), true);
        PathTemplate::compile(source, &parameters)?.render(&values)
    }

    #[test]
    fn a_path_can_be_followed_by_a_query() {
        let values = Data::sample(TransitionType::Failed).values();
        let render = |source: &str| PathTemplate::compile(source, &Parameters::default())?.render_with_query(&values);
        let some = |text: &str| Some(text.to_owned());
        for (source, path, query) in [
            ("?a={{target.name}}&b", None, some("a=prod%2Fin-cluster%2Fpodinfo&b")),
            ("a/{{environment}}/b?c=d", some("a/prod/b"), some("c=d")),
            ("a", some("a"), None),
            ("", None, None),
        ] {
            assert_eq!(render(source).unwrap(), (path, query), "{source}");
        }
        for source in ["a//b?c", "a/{{reason}}/../b?c", "a#b?c"] {
            assert!(render(source).is_err(), "{source}");
        }
    }

    #[test]
    fn a_remembered_value_is_one_segment_of_a_path() {
        for (source, id, expected) in [
            ("/messages/{{remembered.id}}", "42", Some("/messages/42")),
            ("/posts/{{remembered.id}}/patch", "../../admin", Some("/posts/..%2F..%2Fadmin/patch")),
            ("chat.update", "42", Some("chat.update")),
            ("{{#if thread.open}}a/{{remembered.id}}{{/if}}", "a?b", Some("a/a%3Fb")),
            ("{{#unless thread.open}}a{{/unless}}", "42", None),
        ] {
            assert_eq!(path(source, id).unwrap().as_deref(), expected, "{source}");
        }
        for (source, id, words) in [
            ("/messages/{{remembered.id}}", "..", "segment"),
            ("/messages/{{remembered.id}}/x", "", "segment"),
            ("/a//b", "42", "segment"),
            ("/a/%2E%2e/b", "42", "segment"),
            ("/a?b={{remembered.id}}", "42", "query"),
            ("/a/{{remembered.ID}}", "42", "did you mean `remembered.id`?"),
            ("/a/{{remembered}}", "42", "json"),
        ] {
            let error = path(source, id).unwrap_err().to_string();
            assert!(error.contains(words), "{source}: {error}");
        }
    }
}
