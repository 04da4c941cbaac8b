//! What can be wrong with a notification.

use thiserror::Error;

use super::selector::SelectorError;
use crate::render::RenderError;
use crate::trigger::TriggerError;

/// Why a notification, or one half of it, cannot be used. The message names the field and the remedy.
#[derive(Clone, Debug, Error)]
pub enum Problem {
    /// A part without which nothing can be sent is absent.
    #[error("{field} is missing: set it")]
    Incomplete {
        /// The missing field.
        field: &'static str,
    },
    /// A value that the schema could not refuse.
    #[error("{field}: {message}")]
    InvalidSpec {
        /// The field.
        field: String,
        /// What is wrong and what to write instead.
        message: String,
    },
    /// The selector cannot be understood.
    #[error("spec.pipelineSelector: {0}")]
    Selector(SelectorError),
    /// A trigger cannot be understood.
    #[error("spec.triggers: {0}")]
    Trigger(String),
    /// A template does not compile, or does not render against a sample.
    #[error("{field}: {message}")]
    Template {
        /// The field that holds the template.
        field: String,
        /// Line, column, name and remedy.
        message: String,
    },
    /// `http` without permission.
    #[error("{field}: http sends in clear text; use https, a *.svc name, or start Pennant with --allow-http")]
    InsecureScheme {
        /// The field.
        field: &'static str,
    },
}

impl Problem {
    /// The reason for conditions and deliveries, from the variant.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Incomplete { .. } => "Incomplete",
            Self::InvalidSpec { .. } | Self::Selector(_) | Self::Trigger(_) => "InvalidSpec",
            Self::Template { .. } => "TemplateInvalid",
            Self::InsecureScheme { .. } => "InsecureScheme",
        }
    }

    pub(super) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::InvalidSpec { field: field.into(), message: message.into() }
    }

    pub(super) fn template(field: impl Into<String>, error: &RenderError) -> Self {
        Self::Template { field: field.into(), message: error.to_string() }
    }
}

impl From<TriggerError> for Problem {
    fn from(error: TriggerError) -> Self {
        Self::Trigger(error.to_string())
    }
}
