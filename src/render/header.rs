//! Header values.

use std::fmt;
use std::sync::Arc;

use super::error::RenderError;
use super::eval::Program;
use super::place::Place;
use super::{Data, MAX_LINE, lower};

/// The template of a header's value, compiled. What it renders to is one line of visible ASCII, spaces and tabs.
#[derive(Clone)]
pub struct HeaderTemplate(Arc<Inner>);

struct Inner {
    name: String,
    program: Program,
}

impl HeaderTemplate {
    /// Compiles the value of the header of this name.
    pub fn compile(name: &str, source: &str) -> Result<Self, RenderError> {
        http::HeaderName::from_bytes(name.as_bytes()).map_err(|_| RenderError::HeaderName)?;
        let program = lower::compile(source, Place::Header)?;
        Ok(Self(Arc::new(Inner { name: name.to_owned(), program })))
    }

    /// The header's name, as written.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The value for one transition, at most [`MAX_LINE`] bytes.
    pub fn render(&self, data: &Data) -> Result<String, RenderError> {
        if let Some(literal) = self.0.program.literal().filter(|literal| literal.len() <= MAX_LINE) {
            return Ok(literal.to_owned());
        }
        let data = serde_json::to_value(data).map_err(RenderError::Data)?;
        Ok(self.0.program.run(&data, MAX_LINE)?.text)
    }
}

/// Without the value, which may be a credential.
impl fmt::Debug for HeaderTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeaderTemplate").field(&self.0.name).finish_non_exhaustive()
    }
}
