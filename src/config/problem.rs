//! What can be wrong with a notification.

use thiserror::Error;

use super::selector::SelectorError;
use crate::api::refs::ConfigMapKey;
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
    /// A built-in template needs a parameter; found where it is used, and told with all others as `ParametersMissing`.
    #[error("spec.template.parameters.{0} is missing: set it")]
    ParameterMissing(String),
    /// Parameters that a built-in template needs.
    #[error("missing: {0}: set what the built-in template needs")]
    ParametersMissing(String),
    /// A ConfigMap that is referred to has not been read yet.
    #[error("ConfigMap {0} has not been read yet")]
    ConfigMapUnknown(ConfigMapKey),
    /// Layers have not been folded, and their templates not compiled, yet. `waits`: others of the namespace come first.
    #[error(
        "the layers of this namespace's pipelines take long to compile; these wait for their turn, and nothing is lost meanwhile"
    )]
    Compiling {
        /// Whether the namespace has spent its budget of compile time.
        waits: bool,
    },
    /// A key of a ConfigMap that is referred to is not there.
    #[error("{field}: {what}", what = .what.of(.key))]
    ConfigMap {
        /// The field that refers to it.
        field: &'static str,
        /// The key.
        key: ConfigMapKey,
        /// What is missing.
        what: Missing,
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
    #[error("spec.{0}")]
    Trigger(String),
    /// The condition of a trigger cannot be understood.
    #[error("spec.{0}")]
    Expression(String),
    /// A template does not compile, or does not render against a sample.
    #[error("{field}: {message}")]
    Template {
        /// The field that holds the template.
        field: String,
        /// Line, column, name and remedy.
        message: String,
        /// The same recorded data gives it each time.
        is_final: bool,
    },
    /// A template names a parameter of another namespace, which does not share it.
    #[error("{field}: {message}")]
    ParameterHidden {
        /// The field that holds the template.
        field: String,
        /// Line, column, name and remedy.
        message: String,
    },
    /// Credentials of one layer would go where a more specific one leads.
    #[error("{0}")]
    CredentialOrigin(String),
    /// Another problem, with the layer that its field is from.
    #[error("{problem} (from {author})")]
    Layer {
        /// Who wrote the field.
        author: String,
        /// What is wrong with it.
        problem: Box<Problem>,
    },
    /// `http` without permission.
    #[error("{field}: http sends in clear text; use https, a *.svc name, or start Pennant with --allow-http")]
    InsecureScheme {
        /// The field.
        field: &'static str,
    },
}

/// What is missing of a key of a ConfigMap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The ConfigMap.
    ConfigMap,
    /// The key.
    Key,
    /// The right to read it.
    Right,
}

impl Missing {
    fn of(self, key: &ConfigMapKey) -> String {
        match self {
            Self::ConfigMap => format!("ConfigMap {} does not exist; create it", key.object()),
            Self::Key => format!("ConfigMap {} has no key {}; add it to its data", key.object(), key.key),
            Self::Right => format!("ConfigMap {} cannot be read; Pennant needs list and watch on configmaps", key.object()),
        }
    }
}

impl Problem {
    /// The reason for conditions and deliveries, from the variant.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Layer { problem, .. } => problem.reason(),
            Self::Incomplete { .. } | Self::ParameterMissing(_) | Self::ParametersMissing(_) => "Incomplete",
            Self::ConfigMapUnknown(_) => "ConfigMapUnknown",
            Self::Compiling { .. } => "TemplatesCompiling",
            Self::ConfigMap { what: Missing::Right, .. } => "ConfigMapUnreadable",
            Self::ConfigMap { .. } => "ConfigMapMissing",
            Self::InvalidSpec { .. } | Self::Selector(_) | Self::Trigger(_) => "InvalidSpec",
            Self::Expression(_) => "InvalidExpression",
            Self::Template { is_final: false, .. } => "TemplateInvalid",
            Self::Template { is_final: true, .. } => "TemplateFailed",
            Self::ParameterHidden { .. } => "ParameterNotShared",
            Self::InsecureScheme { .. } => "InsecureScheme",
            Self::CredentialOrigin(_) => "CredentialOriginMismatch",
        }
    }

    pub(super) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::InvalidSpec { field: field.into(), message: message.into() }
    }

    pub(super) fn template(field: impl Into<String>, error: &RenderError) -> Self {
        Self::of_template(field.into(), error, error.is_final())
    }

    fn of_template(field: String, error: &RenderError, is_final: bool) -> Self {
        match error {
            RenderError::ParameterMissing { name, .. } => Self::ParameterMissing(name.clone()),
            RenderError::ParameterHidden { .. } => Self::ParameterHidden { field, message: error.to_string() },
            RenderError::Parameter { name, source } => {
                Self::of_template(format!("spec.template.parameters.{name}"), source, is_final)
            }
            RenderError::Changeable(inner) => Self::of_template(field, inner, is_final),
            error => Self::Template { field, message: error.to_string(), is_final },
        }
    }

    /// Whether the same recorded data gives it each time, so that waiting does not help.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Layer { problem, .. } => problem.is_final(),
            Self::Template { is_final, .. } => *is_final,
            Self::Incomplete { .. }
            | Self::ParameterMissing(_)
            | Self::ParametersMissing(_)
            | Self::ConfigMapUnknown(_)
            | Self::Compiling { .. }
            | Self::ConfigMap { .. }
            | Self::InvalidSpec { .. }
            | Self::Selector(_)
            | Self::Trigger(_)
            | Self::Expression(_)
            | Self::ParameterHidden { .. }
            | Self::CredentialOrigin(_)
            | Self::InsecureScheme { .. } => false,
        }
    }

    /// Whether it is only that something has not been read or compiled yet, which the next moment will tell.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        match self {
            Self::Layer { problem, .. } => problem.is_unknown(),
            other => matches!(other, Self::ConfigMapUnknown(_) | Self::Compiling { waits: false }),
        }
    }

    /// The field that it is about, as a JSON Pointer into the spec; `None` if it is about none, or says itself whose it is.
    #[must_use]
    pub fn pointer(&self) -> Option<String> {
        let field = match self {
            Self::ConfigMap { field, .. } | Self::InsecureScheme { field } => field,
            Self::InvalidSpec { field, .. } | Self::Template { field, .. } | Self::ParameterHidden { field, .. } => {
                field.as_str()
            }
            Self::Trigger(_) | Self::Expression(_) => "spec.triggers",
            _ => return None,
        };
        let path = field.strip_prefix("spec")?.split([' ', ',']).next()?;
        Some(path.replace(['.', '['], "/").replace(']', ""))
    }

    /// The same, with a word on what a template was tried with, which is nothing that was recorded.
    pub(super) fn tried(self, with: &str) -> Self {
        match self {
            Self::Template { field, message, .. } => {
                Self::Template { field: format!("{field} ({with})"), message, is_final: false }
            }
            other => other,
        }
    }
}

impl From<TriggerError> for Problem {
    fn from(error: TriggerError) -> Self {
        match error {
            TriggerError::When { .. } => Self::Expression(error.to_string()),
            _ => Self::Trigger(error.to_string()),
        }
    }
}
