//! Request bodies.

use std::sync::Arc;

use serde_json::Value;

use super::error::RenderError;
use super::eval::Program;
use super::place::Place;
use super::{Data, MAX_BODY, lower};

/// The template of a body, compiled. Values are escaped for the content type; what is JSON by its content type is JSON.
#[derive(Clone, Debug)]
pub struct Body(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    content_type: String,
    is_json: bool,
    program: Program,
}

impl Body {
    /// Compiles a template. `content_type` is the header's value, parameters included.
    pub fn compile(content_type: &str, source: &str) -> Result<Self, RenderError> {
        let is_one_line = content_type.chars().all(|c| matches!(c, ' '..='~'));
        let place = Place::of_content_type(content_type).filter(|_| is_one_line).ok_or(RenderError::ContentType)?;
        let program = lower::compile(source, place)?;
        let is_json = matches!(place, Place::Json(_));
        Ok(Self(Arc::new(Inner { content_type: content_type.to_owned(), is_json, program })))
    }

    /// The value of the content-type header.
    #[must_use]
    pub fn content_type(&self) -> &str {
        &self.0.content_type
    }

    /// The body for one transition, at most [`MAX_BODY`] bytes.
    pub fn render(&self, data: &Data) -> Result<String, RenderError> {
        let data = serde_json::to_value(data).map_err(RenderError::Data)?;
        let body = self.0.program.run(&data, MAX_BODY)?.text;
        if self.0.is_json {
            serde_json::from_str::<Value>(&body).map_err(RenderError::NotJson)?;
        }
        Ok(body)
    }
}
