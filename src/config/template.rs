//! Which template a notification uses: one that comes with Pennant, one written in it, or one in a ConfigMap; and what comes
//! with the choice.

use std::collections::BTreeMap;

use super::Given;
use super::problem::Problem;
use super::sending::parameter_problem;
use crate::api::NotificationSpec;
use crate::api::notification::{Builtin, Method, Template};
use crate::api::refs::ConfigMapKey;
use crate::render::{Declared, Parameters, builtin};

const CONTENT_TYPE: &str = "application/json";
/// A name that is as like another as this is taken for a misspelling of it.
const ALIKE: f64 = 0.8;

/// What a key of a ConfigMap holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// Not known yet.
    Unknown,
    /// It cannot be read.
    Unreadable,
    /// There is no such ConfigMap.
    NoConfigMap,
    /// It has no such key.
    NoKey,
    /// This.
    Found(std::sync::Arc<str>),
}

/// A template, and what lies beneath the user's own endpoint with it.
#[derive(Debug)]
pub(super) struct Chosen {
    /// The field that holds it.
    pub(super) field: String,
    pub(super) content_type: String,
    /// Source of the body.
    pub(super) body: String,
    pub(super) method: Method,
    /// Path and query for a URL that has none.
    pub(super) path: Option<String>,
    pub(super) headers: BTreeMap<String, String>,
    /// Header and scheme of a token.
    pub(super) token_header: Option<String>,
    pub(super) token_scheme: Option<String>,
    /// Values by name; one that has none is declared and was not given.
    parameters: BTreeMap<String, Option<String>>,
    declared: &'static [Declared],
}

/// The ConfigMap that holds the template, if one does.
pub(super) fn config_map(spec: &NotificationSpec, namespace: &str) -> Option<ConfigMapKey> {
    let from = spec.template.as_ref()?.config_map_key_ref.as_ref()?;
    Some(ConfigMapKey { namespace: namespace.to_owned(), name: from.name.clone(), key: from.key.clone() })
}

/// Finds the template and what comes with it.
pub(super) fn choose(spec: &NotificationSpec, namespace: &str, given: &Given<'_>) -> Result<Chosen, Problem> {
    let template = spec.template.as_ref().ok_or(Problem::Incomplete { field: "spec.template" })?;
    match (template.builtin, &template.inline, &template.config_map_key_ref) {
        (Some(name), None, None) => from_builtin(name, template),
        (None, Some(inline), None) => {
            Ok(own(template, "spec.template.inline.body", inline.content_type.as_deref(), inline.body.clone()))
        }
        (None, None, Some(from)) => {
            let key = ConfigMapKey { namespace: namespace.to_owned(), name: from.name.clone(), key: from.key.clone() };
            let body = match (given.text)(&key) {
                Text::Found(body) => body.to_string(),
                Text::Unknown => return Err(Problem::ConfigMapUnknown(key)),
                Text::Unreadable => return Err(Problem::ConfigMapUnreadable(key)),
                Text::NoConfigMap => return Err(Problem::ConfigMapMissing(key)),
                Text::NoKey => return Err(Problem::ConfigMapKeyMissing(key)),
            };
            Ok(own(template, &format!("ConfigMap {key}"), from.content_type.as_deref(), body))
        }
        (None, None, None) => Err(Problem::Incomplete { field: "spec.template.builtin, inline or configMapKeyRef" }),
        _ => Err(Problem::invalid("spec.template", "set exactly one of builtin, inline and configMapKeyRef")),
    }
}

/// A template of the user's own: nothing comes with it, and any parameter may be given.
fn own(template: &Template, field: &str, content_type: Option<&str>, body: String) -> Chosen {
    let parameters = template.parameters.iter().flatten();
    Chosen {
        field: field.to_owned(),
        content_type: content_type.unwrap_or(CONTENT_TYPE).to_owned(),
        body,
        method: Method::default(),
        path: None,
        headers: BTreeMap::new(),
        token_header: None,
        token_scheme: None,
        parameters: parameters.map(|(name, value)| (name.clone(), Some(value.clone()))).collect(),
        declared: &[],
    }
}

fn from_builtin(name: Builtin, template: &Template) -> Result<Chosen, Problem> {
    let known = builtin(name);
    let metadata = &known.metadata;
    let given = template.parameters.clone().unwrap_or_default();
    if let Some(unknown) = given.keys().find(|name| metadata.parameters.iter().all(|p| p.name != **name)) {
        return Err(unknown_parameter(name, unknown, &metadata.parameters));
    }
    let value = |p: &Declared| (p.name.clone(), given.get(&p.name).or(p.default.as_ref()).cloned());
    Ok(Chosen {
        field: format!("spec.template.builtin {}", name.as_str()),
        content_type: metadata.content_type.clone(),
        body: known.body.to_owned(),
        method: metadata.method,
        path: metadata.path.clone(),
        headers: metadata.headers.clone(),
        token_header: metadata.credentials.header.clone(),
        token_scheme: metadata.credentials.scheme.clone(),
        parameters: metadata.parameters.iter().map(value).collect(),
        declared: &metadata.parameters,
    })
}

fn unknown_parameter(builtin: Builtin, unknown: &str, declared: &[Declared]) -> Problem {
    let alike = |p: &&Declared| strsim::jaro_winkler(&p.name, unknown);
    let nearest = declared.iter().max_by(|a, b| alike(a).total_cmp(&alike(b))).filter(|p| alike(p) >= ALIKE);
    let meant = nearest.map_or_else(String::new, |p| format!(" (did you mean {}?)", p.name));
    let names: Vec<_> = declared.iter().map(|p| p.name.as_str()).collect();
    let known = if names.is_empty() { "it takes none".to_owned() } else { format!("it takes {}", names.join(", ")) };
    let message = format!("{} has no parameter of this name{meant}; {known}", builtin.as_str());
    Problem::invalid(format!("spec.template.parameters.{unknown}"), message)
}

impl Chosen {
    /// The parameters; those that are missing are taken to be empty.
    pub(super) fn parameters(&self, missing: &[String]) -> Result<Parameters, Problem> {
        let values = self.parameters.iter().map(|(name, value)| {
            let empty = missing.contains(name).then_some("");
            (name.as_str(), value.as_deref().or(empty))
        });
        Parameters::compile(values).map_err(|(name, error)| parameter_problem(&name, &error))
    }

    /// What is said of parameters that must be given.
    pub(super) fn lacks(&self, missing: &[String]) -> Problem {
        let describe = |name: &String| {
            let declared = self.declared.iter().find(|p| p.name == *name);
            let what = declared.map_or("", |p| p.description.trim_end_matches('.'));
            format!("spec.template.parameters.{name} ({what})")
        };
        Problem::ParametersMissing(missing.iter().map(describe).collect::<Vec<_>>().join(", "))
    }
}
