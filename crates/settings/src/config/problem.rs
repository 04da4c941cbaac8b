//! The problems that a notification can have.

use thiserror::Error;

use super::selector::SelectorError;
use crate::render::{RenderError, join_messages};
use crate::trigger::TriggerError;
use relaybook_api::delivery::Reason;
use relaybook_api::values::refs::ConfigMapKey;

/// Why a notification, or one half of it, cannot be used. The message names the field and the remedy.
#[derive(Clone, Debug, Error)]
pub enum Problem {
    /// A field is missing, and without it nothing can be sent.
    #[error("{field} is missing: set it")]
    Incomplete {
        /// The missing field.
        field: &'static str,
    },
    /// A built-in template needs a parameter that is missing. It is found where it is used, and reported with all others as
    /// `ParametersMissing`.
    #[error("spec.template.parameters.{0} is missing: set it")]
    ParameterMissing(String),
    /// Parameters that a built-in template needs are missing.
    #[error("missing: {0}; the built-in template requires these parameters")]
    ParametersMissing(String),
    /// Relaybook has not read a referenced ConfigMap yet.
    #[error("ConfigMap {0} has not been read yet")]
    ConfigMapUnknown(ConfigMapKey),
    /// Relaybook has not merged layers and compiled their templates yet. `waits`: the namespace has spent its budget, so these layers wait in
    /// the queue.
    #[error("these layers wait in the compile queue, because compile time per namespace is limited; no change is lost")]
    Compiling {
        /// Whether the namespace has spent its budget of compile time.
        waits: bool,
    },
    /// A referenced key of a ConfigMap is missing or cannot be read.
    #[error("{field}: {what}", what = .what.of(.key))]
    ConfigMap {
        /// The field that refers to it.
        field: &'static str,
        /// The key.
        key: ConfigMapKey,
        /// What is missing.
        what: Missing,
    },
    /// An invalid value that the schema could not reject.
    #[error("{field}: {message}")]
    InvalidSpec {
        /// The field.
        field: String,
        /// What is wrong and what to write instead.
        message: String,
    },
    /// The selector is invalid.
    #[error("spec.pipelineSelector: {0}")]
    Selector(SelectorError),
    /// A trigger is invalid.
    #[error("spec.{0}")]
    Trigger(String),
    /// The condition of a trigger is invalid.
    #[error("spec.{0}")]
    Expression(String),
    /// A template does not compile, or does not render against a sample.
    #[error("{field}: {message}")]
    Template {
        /// The field that contains the template.
        field: String,
        /// Line, column, name and remedy.
        message: String,
        /// Whether the same recorded data causes the problem each time.
        is_final: bool,
    },
    /// The URL names a commit, and the recorded revision contains none. So there is nothing to report about.
    #[error("{field}: {message}")]
    NoCommit {
        /// The field that contains the template.
        field: String,
        /// Line, column, name and remedy.
        message: String,
    },
    /// A template names a parameter that another namespace set and does not share.
    #[error("{field}: {message}")]
    ParameterHidden {
        /// The field that contains the template.
        field: String,
        /// Line, column, name and remedy.
        message: String,
    },
    /// Credentials of one layer would be sent to a receiver that a more specific layer sets.
    #[error("{0}")]
    CredentialOrigin(String),
    /// Another problem, with the layer that set its field.
    #[error("{problem} (from {author})")]
    Layer {
        /// The layer that set the field.
        author: String,
        /// What is wrong with it.
        problem: Box<Problem>,
    },
    /// Several problems at once. They are never nested.
    #[error("{}", join_messages(&lines(.0)))]
    Several(Vec<Problem>),
    /// The URL uses `http`, which is not allowed for this host.
    #[error("{field}: http is not encrypted; use https, a *.svc name, or start Relaybook with --allow-http")]
    InsecureScheme {
        /// The field.
        field: &'static str,
    },
}

/// What is missing to read a key of a ConfigMap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The ConfigMap.
    ConfigMap,
    /// The key.
    Key,
    /// The permission to read it.
    Right,
}

impl Missing {
    fn of(self, key: &ConfigMapKey) -> String {
        match self {
            Self::ConfigMap => format!("ConfigMap {} does not exist; create it", key.object()),
            Self::Key => format!("ConfigMap {} has no key {}; add it to its data", key.object(), key.key),
            Self::Right => {
                format!("ConfigMap {} cannot be read; Relaybook needs list and watch on configmaps", key.object())
            }
        }
    }
}

impl Problem {
    /// The reason for conditions and deliveries, from the variant.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Layer { problem, .. } => problem.reason(),
            Self::Several(all) => all.first().map_or(Reason::InvalidSpec, Self::reason),
            Self::Incomplete { .. } | Self::ParameterMissing(_) | Self::ParametersMissing(_) => Reason::Incomplete,
            Self::ConfigMapUnknown(_) => Reason::ConfigMapUnknown,
            Self::Compiling { .. } => Reason::TemplatesCompiling,
            Self::ConfigMap { what: Missing::Right, .. } => Reason::ConfigMapUnreadable,
            Self::ConfigMap { .. } => Reason::ConfigMapMissing,
            Self::InvalidSpec { .. } | Self::Selector(_) | Self::Trigger(_) => Reason::InvalidSpec,
            Self::Expression(_) => Reason::InvalidExpression,
            Self::Template { is_final: false, .. } => Reason::TemplateInvalid,
            Self::Template { is_final: true, .. } => Reason::TemplateFailed,
            Self::NoCommit { .. } => Reason::CommitMissing,
            Self::ParameterHidden { .. } => Reason::ParameterNotShared,
            Self::InsecureScheme { .. } => Reason::InsecureScheme,
            Self::CredentialOrigin(_) => Reason::CredentialOriginMismatch,
        }
    }

    pub(super) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::InvalidSpec { field: field.into(), message: message.into() }
    }

    pub(super) fn template(field: impl Into<String>, error: &RenderError) -> Self {
        Self::of_template(field.into(), error, error.is_final())
    }

    /// Returns the problem of the template of a URL. The URL of a commit status names its commit. Without a commit, there is nothing that the
    /// request could be about. A text with a commit is not such a case: what it reports happened.
    pub(super) fn url(field: &str, error: &RenderError) -> Self {
        match Self::template(field, error) {
            Self::Template { field, message, is_final: true } if error.is_without_commit() => {
                Self::NoCommit { field, message }
            }
            other => other,
        }
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

    /// Whether the same recorded data causes the problem each time, so that waiting does not help.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Layer { problem, .. } => problem.is_final(),
            Self::Several(all) => all.iter().all(Self::is_final),
            Self::Template { is_final, .. } => *is_final,
            Self::NoCommit { .. } => true,
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

    /// Whether a delivery fails only because its revision contains no commit. Then there is nothing to report, and nothing to correct.
    #[must_use]
    pub fn is_without_commit(&self) -> bool {
        match self {
            Self::Layer { problem, .. } => problem.is_without_commit(),
            Self::Several(all) => all.iter().all(Self::is_without_commit),
            other => matches!(other, Self::NoCommit { .. }),
        }
    }

    /// Whether the only problem is that Relaybook has not read or compiled something yet, and will do so in a moment.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        match self {
            Self::Layer { problem, .. } => problem.is_unknown(),
            Self::Several(all) => all.iter().any(Self::is_unknown),
            other => matches!(other, Self::ConfigMapUnknown(_) | Self::Compiling { waits: false }),
        }
    }

    /// Whether a part is missing that another layer can have.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        match self {
            Self::Layer { problem, .. } => problem.is_incomplete(),
            Self::Several(all) => all.iter().any(Self::is_incomplete),
            other => matches!(other, Self::Incomplete { .. }),
        }
    }

    /// The field that the problem is about, as a JSON Pointer into the spec. `None`: it is about no field, or its message already names the
    /// layer.
    #[must_use]
    pub fn pointer(&self) -> Option<String> {
        let field = match self {
            Self::ConfigMap { field, .. } | Self::InsecureScheme { field } => field,
            Self::InvalidSpec { field, .. }
            | Self::Template { field, .. }
            | Self::NoCommit { field, .. }
            | Self::ParameterHidden { field, .. } => field.as_str(),
            Self::Trigger(_) | Self::Expression(_) => "spec.triggers",
            _ => return None,
        };
        let path = field.strip_prefix("spec")?.split([' ', ',']).next()?;
        Some(path.replace(['.', '['], "/").replace(']', ""))
    }

    /// Merges problems into one problem. A single problem stays as it is.
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

    /// Splits it into single problems.
    #[must_use]
    pub fn each(self) -> Vec<Self> {
        match self {
            Self::Several(all) => all,
            one => vec![one],
        }
    }

    /// Adds the layers that set the fields. `author` returns the layer that set the field at a JSON Pointer.
    pub(super) fn of_layers(self, author: &impl Fn(&str) -> Option<String>) -> Self {
        match self {
            Self::Several(all) => Self::Several(all.into_iter().map(|one| one.of_layers(author)).collect()),
            one => match one.pointer().and_then(|pointer| author(&pointer)) {
                Some(author) => Self::Layer { author, problem: Box::new(one) },
                None => one,
            },
        }
    }

    /// The missing parameter, if that is the problem.
    pub(super) fn unset(&self) -> Option<&String> {
        if let Self::ParameterMissing(name) = self { Some(name) } else { None }
    }

    /// Field and message, if the problem has both.
    fn parts(&self) -> Option<(&str, &str)> {
        match self {
            Self::InvalidSpec { field, message }
            | Self::Template { field, message, .. }
            | Self::NoCommit { field, message }
            | Self::ParameterHidden { field, message } => Some((field, message)),
            Self::Layer { problem, .. } => problem.parts(),
            _ => None,
        }
    }

    /// Adds a note on the sample that a template was tried with. The problem is not final, because a sample is not recorded data.
    pub(super) fn tried(self, with: &str) -> Self {
        match self {
            Self::Template { field, message, .. } | Self::NoCommit { field, message } => {
                Self::Template { field: format!("{field} ({with})"), message, is_final: false }
            }
            other => other,
        }
    }
}

/// The messages of several problems. Consecutive problems of the same field and layer name the field only once.
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
        let two = Problem::several([template("spec.a", "x; known names: b"), template("spec.a", "y; known names: b")]);
        let several =
            Problem::several([two, layer(template("spec.b", "z")), layer(template("spec.b", "w")), template("spec.b", "v")]);
        assert_eq!(several.to_string(), "spec.a: x; known names: b; y; spec.b: z (from the Notification); w; spec.b: v");
        assert_eq!((several.reason(), several.is_final(), several.is_unknown()), (Reason::TemplateInvalid, false, false));
        assert_eq!(several.clone().each().len(), 5);
        let many = Problem::several((0..7).map(|n| template("spec.a", &n.to_string())));
        assert_eq!(many.to_string(), "spec.a: 0; 1; 2; 3; 4; and 2 more");
        let whose = |pointer: &str| (pointer == "/b").then(|| "the Pipeline".to_owned());
        let authored = Problem::several([template("spec.a", "x"), template("spec.b", "y")]).of_layers(&whose);
        assert_eq!(authored.to_string(), "spec.a: x; spec.b: y (from the Pipeline)");
    }
}
