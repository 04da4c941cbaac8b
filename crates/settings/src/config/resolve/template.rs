//! Chooses the template of a notification: a built-in template, an inline template, or a template in a ConfigMap. The template can have
//! endpoint settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_core::ResourceExt as _;

use super::defaults::{SUCCESS, URL};
use super::given::{Given, Places, Text};
use super::path::{Joined, join};
use crate::answer::Success;
use crate::config::problem::{Missing, Problem};
use crate::render::{Declared, Metadata, Parameters, builtin};
use relaybook_api::notification::{Builtin, Endpoint, Method, Template, Thread};
use relaybook_api::values::nearest::nearest;
use relaybook_api::values::refs::ConfigMapKey;
use relaybook_api::{Notification, NotificationSpec, TransitionType};

const CONTENT_TYPE: &str = "application/json";

/// A template and its endpoint settings. The user's own settings override them.
pub(crate) struct Chosen {
    /// The field that contains the template.
    pub(crate) field: String,
    /// The JSON Pointer of the field that chooses the template. The layer that set this field is also the author of the template's endpoint
    /// settings.
    pub(crate) at: &'static str,
    pub(crate) content_type: String,
    /// Source of the body.
    pub(crate) body: String,
    pub(crate) method: Method,
    /// Path and query after the URL of the user.
    pub(crate) path: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    /// Header and scheme of a token.
    pub(crate) token_header: Option<String>,
    pub(crate) token_scheme: Option<String>,
    /// What an answer means.
    pub(crate) success: Option<String>,
    /// How deliveries continue a message.
    pub(crate) thread: Option<Thread>,
    /// The metadata of a built-in template.
    pub(crate) metadata: Option<&'static Metadata>,
    /// Values by name. `None`: the parameter is declared, but it has no value and no default.
    parameters: BTreeMap<String, Option<String>>,
}

/// The keys of ConfigMaps that a notification refers to: the key of its template, and the key of the CA certificates that it trusts.
#[must_use]
pub fn config_maps(notification: &Notification) -> Vec<ConfigMapKey> {
    let namespace = notification.namespace().unwrap_or_default();
    references(&notification.spec, |_| &namespace)
}

/// JSON Pointers of templates and of the reference to CA certificates.
const TEMPLATE: &str = "/template/configMapKeyRef";
const INLINE: &str = "/template/inline/body";
pub(crate) const AUTHORITIES: &str = "/endpoint/tls/caFrom/configMapKeyRef";

/// Returns the keys of ConfigMaps that a spec refers to. The spec can be the result of several layers. `place` returns the namespace in
/// which the reference at a JSON Pointer resolves.
pub(crate) fn references<'a>(spec: &NotificationSpec, place: impl Fn(&str) -> &'a str) -> Vec<ConfigMapKey> {
    let template = spec.template.as_ref().and_then(|t| t.config_map_key_ref.as_ref());
    let ca = spec.endpoint.as_ref().and_then(|e| e.tls.as_ref()?.ca_from.as_ref()?.config_map_key_ref.as_ref());
    let template = template.map(|from| (TEMPLATE, &from.name, &from.key));
    let all = template.into_iter().chain(ca.map(|from| (AUTHORITIES, &from.name, &from.key)));
    let key = |(at, name, key): (&str, &String, &String)| ConfigMapKey {
        namespace: place(at).to_owned(),
        name: name.clone(),
        key: key.clone(),
    };
    all.map(key).collect()
}

/// The content of a key of a ConfigMap. `field` is the field that refers to the key.
pub(crate) fn read(key: &ConfigMapKey, field: &'static str, given: &Given<'_>) -> Result<Arc<str>, Problem> {
    let missing = |what| Err(Problem::ConfigMap { field, key: key.clone(), what });
    match (given.text)(key) {
        Text::Found(text) => Ok(text),
        Text::Unknown => Err(Problem::ConfigMapUnknown(key.clone())),
        Text::Unreadable => missing(Missing::Right),
        Text::NoConfigMap => missing(Missing::ConfigMap),
        Text::NoKey => missing(Missing::Key),
    }
}

/// Finds the template and its endpoint settings.
pub(crate) fn choose(spec: &NotificationSpec, places: &Places<'_>, given: &Given<'_>) -> Result<Chosen, Problem> {
    let template = spec.template.as_ref().ok_or(Problem::Incomplete { field: "spec.template" })?;
    match (template.builtin, &template.inline, &template.config_map_key_ref) {
        (Some(name), None, None) => from_builtin(name, template),
        (None, Some(inline), None) => {
            Ok(own(template, INLINE, "spec.template.inline.body", inline.content_type.as_deref(), inline.body.clone()))
        }
        (None, None, Some(from)) => {
            let namespace = places.of(TEMPLATE).to_owned();
            let key = ConfigMapKey { namespace, name: from.name.clone(), key: from.key.clone() };
            let body = read(&key, "spec.template.configMapKeyRef", given)?.to_string();
            Ok(own(template, TEMPLATE, &format!("ConfigMap {key}"), from.content_type.as_deref(), body))
        }
        (None, None, None) => Err(Problem::Incomplete { field: "spec.template.builtin, inline or configMapKeyRef" }),
        _ => Err(Problem::invalid("spec.template", "set exactly one of builtin, inline and configMapKeyRef")),
    }
}

/// A template that the user wrote. It has no endpoint settings, and it allows any parameter.
fn own(template: &Template, at: &'static str, field: &str, content_type: Option<&str>, body: String) -> Chosen {
    let parameters = template.parameters.iter().flatten();
    Chosen {
        field: field.to_owned(),
        at,
        content_type: content_type.unwrap_or(CONTENT_TYPE).to_owned(),
        body,
        method: Method::default(),
        path: None,
        headers: BTreeMap::new(),
        token_header: None,
        token_scheme: None,
        success: None,
        thread: None,
        parameters: parameters.map(|(name, value)| (name.clone(), Some(value.clone()))).collect(),
        metadata: None,
    }
}

fn from_builtin(name: Builtin, template: &Template) -> Result<Chosen, Problem> {
    let known = builtin(name);
    let metadata = &known.metadata;
    let given = template.parameters.clone().unwrap_or_default();
    if let Some(unknown) = given.keys().find(|name| metadata.parameters.iter().all(|p| p.name != **name)) {
        return Err(unknown_parameter(name, unknown, &metadata.parameters));
    }
    if let Some((declared, value)) = metadata.parameters.iter().find_map(|p| Some((p, unfit(p, given.get(&p.name)?)?))) {
        let message = format!("{value:?} is not one of its values: {}", declared.values.join(", "));
        return Err(Problem::invalid(format!("spec.template.parameters.{}", declared.name), message));
    }
    let value = |p: &Declared| (p.name.clone(), given.get(&p.name).or(p.default.as_ref()).cloned());
    Ok(Chosen {
        field: format!("spec.template.builtin {}", name.as_str()),
        at: "/template/builtin",
        content_type: metadata.content_type.clone(),
        body: known.body.to_owned(),
        method: metadata.method,
        path: metadata.path.clone(),
        headers: metadata.headers.clone(),
        token_header: metadata.credentials.header.clone(),
        token_scheme: metadata.credentials.scheme.clone(),
        success: metadata.success.clone(),
        thread: metadata.thread.clone(),
        parameters: metadata.parameters.iter().map(value).collect(),
        metadata: Some(metadata),
    })
}

/// Returns the value of a parameter that has only certain values, if it is not one of them.
fn unfit<'v>(declared: &Declared, value: &'v String) -> Option<&'v String> {
    let is_free = declared.values.is_empty() || value.contains("{{") || declared.values.contains(value);
    (!is_free).then_some(value)
}

/// Returns the path of a parameter, for messages.
pub(crate) fn parameter_field(name: &str) -> String {
    format!("spec.template.parameters.{name}")
}

fn unknown_parameter(builtin: Builtin, unknown: &str, declared: &[Declared]) -> Problem {
    let names: Vec<_> = declared.iter().map(|p| p.name.as_str()).collect();
    let meant = nearest(unknown, names.iter().copied()).map_or_else(String::new, |name| format!(" (did you mean {name}?)"));
    let known = if names.is_empty() {
        "it has no parameters".to_owned()
    } else {
        format!("its parameters are {}", names.join(", "))
    };
    let message = format!("{} has no parameter with this name{meant}; {known}", builtin.as_str());
    Problem::invalid(format!("spec.template.parameters.{unknown}"), message)
}

impl Chosen {
    /// Returns the wanted transitions that the template can report. If the user set triggers (`asked_for`), a transition that the template
    /// cannot report is an error.
    pub(crate) fn reported(&self, wanted: Vec<TransitionType>, asked_for: bool) -> Result<Vec<TransitionType>, Problem> {
        let Some(metadata) = self.metadata else { return Ok(wanted) };
        let (can, cannot): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|type_| metadata.reports(*type_));
        match (&metadata.unreported, cannot.as_slice()) {
            (Some(unreported), [_, ..]) if asked_for => {
                let types = cannot.iter().map(|type_| type_.as_str()).collect::<Vec<_>>().join(" or ");
                let message = format!(
                    "{} cannot report {types}: {}; remove this trigger, or use another notification for it",
                    self.field.trim_start_matches("spec.template.builtin "),
                    unreported.because,
                );
                Err(Problem::invalid("spec.triggers", message))
            }
            _ => Ok(can),
        }
    }

    /// Compiles the parameters. Parameters in `missing` count as empty.
    pub(crate) fn parameters(&self, missing: &[String]) -> Result<Parameters, Problem> {
        let values = self.parameters.iter().map(|(name, value)| {
            let empty = missing.contains(name).then_some("");
            (name.as_str(), value.as_deref().or(empty))
        });
        Parameters::compile(values).map_err(|errors| {
            Problem::several(errors.iter().map(|(name, error)| Problem::template(parameter_field(name), error)))
        })
    }

    /// What an answer means: the rule of the user, or that of the template.
    pub(crate) fn success(&self, endpoint: &Endpoint) -> Result<Option<Success>, Problem> {
        let compiled = match (&endpoint.success, &self.success) {
            (Some(own), _) => Success::compile(own),
            (None, Some(rule)) => Success::of_template(rule),
            (None, None) => return Ok(None),
        };
        compiled.map(Some).map_err(|error| Problem::invalid(SUCCESS, error.to_string()))
    }

    /// The URL, with the path of the template unless the URL has it. The second value is the field that the path is from.
    pub(crate) fn with_path(&self, url: &str) -> Result<(String, String), Problem> {
        let joined = self.path.as_deref().map_or(Joined::Own, |path| join(url, path));
        match joined {
            Joined::Own => Ok((url.to_owned(), URL.to_owned())),
            Joined::Appended(whole) => Ok((whole, format!("{}, path", self.field))),
            Joined::OnlyQuery => Err(Problem::invalid(
                URL,
                "has a query but no path; set the whole path, or remove the query to use the path of the built-in template",
            )),
        }
    }

    /// The problem that required parameters are missing.
    pub(crate) fn lacks(&self, missing: &[String]) -> Problem {
        let describe = |name: &String| {
            let declared = self.metadata.and_then(|m| m.parameters.iter().find(|p| p.name == *name));
            let what = declared.map_or("", |p| p.description.trim_end_matches('.'));
            format!("spec.template.parameters.{name} ({what})")
        };
        Problem::ParametersMissing(missing.iter().map(describe).collect::<Vec<_>>().join(", "))
    }
}
