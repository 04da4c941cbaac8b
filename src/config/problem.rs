//! What can be wrong with a notification.

use thiserror::Error;

use super::selector::SelectorError;
use crate::api::values::refs::ConfigMapKey;
use crate::render::{RenderError, told};
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
    /// Several problems at once; none of them is several itself.
    #[error("{}", told(&lines(.0)))]
    Several(Vec<Problem>),
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
            Self::Several(all) => all.first().map_or("InvalidSpec", Self::reason),
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
            RenderError::Several(all) => {
                Self::several(all.iter().map(|error| Self::of_template(field.clone(), error, is_final)))
            }
            error => Self::Template { field, message: error.to_string(), is_final },
        }
    }

    /// Whether the same recorded data gives it each time, so that waiting does not help.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Layer { problem, .. } => problem.is_final(),
            Self::Several(all) => all.iter().all(Self::is_final),
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
            Self::Several(all) => all.iter().any(Self::is_unknown),
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

    /// These as one problem: of one it is that.
    pub(super) fn several(problems: impl IntoIterator<Item = Self>) -> Self {
        let mut all: Vec<_> = problems.into_iter().flat_map(Self::each).collect();
        match all.pop() {
            Some(only) if all.is_empty() => only,
            last => {
                all.extend(last);
                Self::Several(all)
            }
        }
    }

    /// Each problem by itself.
    #[must_use]
    pub fn each(self) -> Vec<Self> {
        match self {
            Self::Several(all) => all,
            one => vec![one],
        }
    }

    /// The same with the layers that the fields are from: `author` says who wrote a field, by its JSON Pointer.
    pub(super) fn of_layers(self, author: &impl Fn(&str) -> Option<String>) -> Self {
        match self {
            Self::Several(all) => Self::Several(all.into_iter().map(|one| one.of_layers(author)).collect()),
            one => match one.pointer().and_then(|pointer| author(&pointer)) {
                Some(author) => Self::Layer { author, problem: Box::new(one) },
                None => one,
            },
        }
    }

    /// The parameter that is missing, if that is the problem.
    pub(super) fn unset(&self) -> Option<&String> {
        if let Self::ParameterMissing(name) = self { Some(name) } else { None }
    }

    /// Field and message, where there is a field.
    fn parts(&self) -> Option<(&str, &str)> {
        match self {
            Self::InvalidSpec { field, message }
            | Self::Template { field, message, .. }
            | Self::ParameterHidden { field, message } => Some((field, message)),
            Self::Layer { problem, .. } => problem.parts(),
            _ => None,
        }
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

/// What several problems say. Several of one field of one layer name it once.
fn lines(problems: &[Problem]) -> Vec<String> {
    let place = |problem: &Problem| {
        let author = if let Problem::Layer { author, .. } = problem { Some(author.clone()) } else { None };
        problem.parts().map(|(field, _)| (author, field.to_owned()))
    };
    let mut before = None;
    let line = |problem: &Problem| {
        let here = place(problem);
        let is_same = here.is_some() && here == before;
        before = here;
        match problem.parts() {
            Some((_, message)) if is_same => message.to_owned(),
            _ => problem.to_string(),
        }
    };
    problems.iter().map(line).collect()
}

impl From<TriggerError> for Problem {
    fn from(error: TriggerError) -> Self {
        match error {
            TriggerError::When { .. } => Self::Expression(error.to_string()),
            _ => Self::Trigger(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_problems_are_one_message_that_names_each_field_once() {
        let template = |field: &str, message: &str| Problem::Template {
            field: field.to_owned(),
            message: message.to_owned(),
            is_final: false,
        };
        let layer = |problem| Problem::Layer { author: "the Notification".to_owned(), problem: Box::new(problem) };
        let one = Problem::several([template("spec.a", "x")]);
        assert!(matches!(one, Problem::Template { .. }));
        let two = Problem::several([template("spec.a", "x; there are b"), template("spec.a", "y; there are b")]);
        let several =
            Problem::several([two, layer(template("spec.b", "z")), layer(template("spec.b", "w")), template("spec.b", "v")]);
        assert_eq!(several.to_string(), "spec.a: x; there are b; y; spec.b: z (from the Notification); w; spec.b: v");
        assert_eq!((several.reason(), several.is_final(), several.is_unknown()), ("TemplateInvalid", false, false));
        assert_eq!(several.clone().each().len(), 5);
        let many = Problem::several((0..7).map(|n| template("spec.a", &n.to_string())));
        assert_eq!(many.to_string(), "spec.a: 0; 1; 2; 3; 4; and 2 more");
        let whose = |pointer: &str| (pointer == "/b").then(|| "the Pipeline".to_owned());
        let authored = Problem::several([template("spec.a", "x"), template("spec.b", "y")]).of_layers(&whose);
        assert_eq!(authored.to_string(), "spec.a: x; spec.b: y (from the Pipeline)");
    }
}
