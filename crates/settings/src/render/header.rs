//! Templates of header values.

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

/// The compiled template of a header value. It renders one line of visible ASCII characters, spaces and tabs.
#[derive(Clone)]
pub struct HeaderTemplate(Arc<Inner>);

struct Inner {
    name: String,
    program: Program,
    visibility: Visibility,
}

impl HeaderTemplate {
    /// Compiles the value of the header with this name.
    pub fn compile(name: &str, source: &str, parameters: &Parameters) -> Result<Self, RenderError> {
        http::HeaderName::from_bytes(name.as_bytes()).map_err(|_| RenderError::HeaderName)?;
        let program = compile::compile(source, EscapeContext::Header, parameters)?;
        Ok(Self(Arc::new(Inner { name: name.to_owned(), program, visibility: parameters.visibility() })))
    }

    /// Returns the name of the header as written.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether rendering fails for every revision that contains no commit.
    #[must_use]
    pub fn needs_commit(&self, parameters: &Parameters) -> bool {
        needs_commit(&self.0.program, parameters)
    }

    /// Whether it depends on what a forge says. `asked`: what the body asks for.
    #[must_use]
    pub fn depends_on_forge(&self, parameters: &Parameters, asked: LookUps) -> bool {
        depends_on_forge(&self.0.program, &parameters.seen_with(self.0.visibility), asked)
    }

    /// Renders the value for one transition, with at most [`MAX_LINE`] bytes.
    pub fn render(&self, values: &Values) -> Result<String, RenderError> {
        Ok(self.0.program.run(values, self.0.visibility, MAX_LINE)?.text)
    }
}

/// Omits the value, because it may be a credential.
impl fmt::Debug for HeaderTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeaderTemplate").field(&self.0.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::Data;
    use relaybook_api::TransitionType;

    fn render(name: &str, source: &str) -> Result<String, RenderError> {
        HeaderTemplate::compile(name, source, &Parameters::default())?.render(&Data::sample(TransitionType::Failed).values())
    }

    #[test]
    fn a_header_is_rendered_on_one_line() {
        for (source, expected) in [
            ("", ""),
            ("Bearer literal", "Bearer literal"),
            ("{{pipeline.name}}: {{type}}", "podinfo: Failed"),
            (
                "{{replace (replace message \"\\n\" \" \") \"–\" \"-\"}}",
                "timeout waiting for \"Deployment/team-a/podinfo\": 1 of 3 replicas - not ready",
            ),
        ] {
            assert_eq!(render("X-Title", source).unwrap(), expected, "{source}");
        }
    }

    #[test]
    fn an_invalid_header_name_or_value_is_refused() {
        for (name, source, word) in [
            ("X-Title", "a\n", "line 1, column 1"),
            ("X-Title", "a\r\nX-Other: b", "one line"),
            ("X-Title", "ü", "ASCII"),
            ("X-Title", "a {{message}}", "line 1, column 3: `message` contains a line break"),
            ("X Title", "", "name"),
            ("", "", "name"),
            ("X-Title\r\nX-Other", "", "name"),
        ] {
            let message = render(name, source).unwrap_err().to_string();
            assert!(message.contains(word), "{source}: {message}");
        }
        assert!(matches!(render("X-Title", &"a".repeat(MAX_LINE + 1)), Err(RenderError::OutputTooLong(_))));
    }

    #[test]
    fn the_debug_format_does_not_show_the_value() {
        let header = HeaderTemplate::compile("Authorization", "Bearer secret", &Parameters::default()).unwrap();
        assert_eq!(header.name(), "Authorization");
        assert!(!format!("{header:?}").contains("secret"));
    }
}
