//! Parameters: texts that a user sets for a template, which reads them as `parameters.NAME`.
//!
//! Each parameter is a template itself, and can read all data except the parameters. So a user can set `relaybook/{{environment}}` where a
//! built-in template needs a label. The rendered text is escaped where it is written, like every other value.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::render::error::RenderError;
use crate::render::escape::context::EscapeContext;
use crate::render::lang::compile;
use crate::render::lang::eval::Program;
use crate::render::lang::fields;

/// The parameters of one notification, compiled. Cheap to clone.
#[derive(Clone, Default)]
pub struct Parameters {
    all: Arc<Inner>,
    /// What is hidden from templates of the namespace of the pipeline, and from those of its layer namespace.
    hidden: Option<Arc<[Hidden; 2]>>,
    visibility: Visibility,
    /// The names of the values of earlier answers. They are no parameters, but are named in the same way. `None`: a template cannot use what a
    /// thread adds to the data.
    remembered: Option<Arc<BTreeSet<String>>>,
    /// The parameters that consist of fields.
    fields: Arc<BTreeSet<String>>,
}

#[derive(Default)]
struct Inner {
    /// Sorted by name.
    set: Vec<(String, Program)>,
    unset: BTreeSet<String>,
}

/// The owner of each parameter that another namespace sets and does not share, by the name of the parameter.
pub type Hidden = BTreeMap<String, String>;

/// Which parameters a template can read. It depends on the namespace of its author.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// All parameters.
    #[default]
    All,
    /// Those that are not hidden from the namespace of the pipeline.
    Pipeline,
    /// Those that are not hidden from the layer namespace of the pipeline.
    LayerNamespace,
}

/// The state of a name after `parameters.`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// It has a value.
    Set,
    /// It is declared and has no value, so templates cannot use it.
    Unset,
    /// It is hidden from this template.
    Hidden,
    /// It does not exist.
    Unknown,
}

impl Parameters {
    /// Compiles parameters from their names and values. Templates cannot use a parameter that is declared without a value. The error lists
    /// the invalid parameters.
    pub fn compile<'a>(
        values: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Result<Self, Vec<(String, RenderError)>> {
        let (mut set, mut unset, mut wrong) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        for (name, source) in values {
            let Some(source) = source else {
                unset.insert(name.to_owned());
                continue;
            };
            match compile::compile(source, EscapeContext::Plain, &Self::default()) {
                Ok(program) => drop(set.insert(name.to_owned(), program)),
                Err(error) => wrong.push((name.to_owned(), error)),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let all = Arc::new(Inner { set: set.into_iter().collect(), unset });
        Ok(Self { all, ..Self::default() })
    }

    /// Returns these parameters, of which those with these names consist of fields. So a field that cannot be rendered prevents no message. The
    /// error is with the name of its parameter.
    pub(crate) fn with_fields(self, names: BTreeSet<String>) -> Result<Self, (String, RenderError)> {
        for name in &names {
            let checked = self.find(name).map_or(Ok(()), |(_, program)| fields::check(program));
            checked.map_err(|error| (name.clone(), error))?;
        }
        Ok(Self { fields: Arc::new(names), ..self })
    }

    /// Whether this parameter consists of fields.
    pub(crate) fn has_fields(&self, name: &str) -> bool {
        self.fields.contains(name)
    }

    /// Returns these parameters with some of them hidden: from templates of the namespace of the pipeline, and from those of its layer
    /// namespace.
    #[must_use]
    pub fn with_hidden(self, hidden: [Hidden; 2]) -> Self {
        Self { hidden: Some(hidden).filter(|hidden| hidden.iter().any(|from| !from.is_empty())).map(Arc::new), ..self }
    }

    /// Returns these parameters for a template that can also use what a thread adds to the data. `names`: of the values of earlier answers.
    #[must_use]
    pub fn with_remembered(self, names: BTreeSet<String>) -> Self {
        Self { remembered: Some(Arc::new(names)), ..self }
    }

    /// Returns these parameters for a template that cannot use what a thread adds to the data.
    #[must_use]
    pub(crate) fn without_thread(self) -> Self {
        Self { remembered: None, ..self }
    }

    /// The names of the values of earlier answers, if a template can use what a thread adds to the data.
    pub(crate) fn remembered(&self) -> Option<&BTreeSet<String>> {
        self.remembered.as_deref()
    }

    /// Returns these parameters as a template with this visibility sees them.
    #[must_use]
    pub fn seen_with(&self, visibility: Visibility) -> Self {
        let visibility = if self.hidden.is_some() { visibility } else { Visibility::All };
        Self { visibility, ..self.clone() }
    }

    pub(crate) fn visibility(&self) -> Visibility {
        self.visibility
    }

    /// Returns the owner of a parameter that is hidden from templates with this visibility.
    pub(crate) fn hidden_from(&self, visibility: Visibility, name: &str) -> Option<&str> {
        let [pipeline, layer_namespace] = &**self.hidden.as_ref()?;
        let hidden = match visibility {
            Visibility::All => return None,
            Visibility::Pipeline => pipeline,
            Visibility::LayerNamespace => layer_namespace,
        };
        hidden.get(name).map(String::as_str)
    }

    /// Returns the owner of a hidden parameter.
    pub(crate) fn owner(&self, name: &str) -> Option<&str> {
        self.hidden_from(self.visibility, name)
    }

    fn is_seen(&self, name: &str) -> bool {
        self.owner(name).is_none()
    }

    pub(crate) fn get(&self, name: &str) -> Parameter {
        match name {
            name if !self.is_seen(name) => Parameter::Hidden,
            name if self.find(name).is_some() => Parameter::Set,
            name if self.all.unset.contains(name) => Parameter::Unset,
            _ => Parameter::Unknown,
        }
    }

    /// Returns the visible names, for a message.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.set().chain(self.unset()).collect()
    }

    /// Returns the number of parameters that have a value, hidden or not.
    pub(crate) fn len(&self) -> usize {
        self.all.set.len()
    }

    /// Returns the sorted names of the visible parameters that have a value.
    pub(crate) fn set(&self) -> impl Iterator<Item = &str> {
        self.set_or_hidden().filter(|name| self.is_seen(name))
    }

    /// Returns the sorted names of the parameters that have a value, hidden or not.
    pub(crate) fn set_or_hidden(&self) -> impl Iterator<Item = &str> {
        self.all.set.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the sorted names of the visible parameters that are declared without a value.
    pub(crate) fn unset(&self) -> impl Iterator<Item = &str> {
        self.all.unset.iter().map(String::as_str).filter(|name| self.is_seen(name))
    }

    /// Returns the index and the program of a parameter that has a value, hidden or not.
    pub(crate) fn find(&self, name: &str) -> Option<(usize, &Program)> {
        let index = self.all.set.binary_search_by(|(of, _)| of.as_str().cmp(name)).ok()?;
        self.all.set.get(index).map(|(_, program)| (index, program))
    }
}

/// Contains only the names, because the values may be secret.
impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.set()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{Body, Data, HeaderTemplate, RenderError, UrlTemplate, Values};
    use relaybook_api::TransitionType;

    /// Returns a hidden parameter and a visible one.
    fn parameters() -> Parameters {
        let all = Parameters::compile([("routingKey", Some("s3cr3t")), ("room", Some("lobby"))]).unwrap();
        let hidden = |name: &str, owner: &str| Hidden::from([(name.to_owned(), owner.to_owned())]);
        all.with_hidden([hidden("routingKey", "the global configuration"), hidden("room", "the Notification")])
    }

    fn text(source: &str, parameters: &Parameters) -> Result<String, RenderError> {
        let values = Values::new(&Data::sample(TransitionType::Deployed), &self::parameters()).unwrap();
        Body::compile("text/plain", source, parameters)?.render(&values)
    }

    #[test]
    fn a_hidden_parameter_cannot_be_named() {
        let seen = parameters().seen_with(Visibility::Pipeline);
        let refused = |what: &str, error: Option<RenderError>| {
            let is_hidden = matches!(&error, Some(RenderError::ParameterHidden { name, .. }) if name == "routingKey");
            assert!(is_hidden, "{what}: {error:?}");
            let said = error.unwrap().to_string();
            let words = ["`parameters.routingKey`", "the global configuration", "shareParameters: true"];
            assert!(words.iter().all(|word| said.contains(word)) && !said.contains("s3cr3t"), "{said}");
        };
        for source in [
            "{{parameters.routingKey}}",
            "{{commit parameters.routingKey}}",
            "{{#if (eq parameters.routingKey \"a\")}}x{{/if}}",
            "{{#with parameters}}{{routingKey}}{{/with}}",
            "{{#if drifted}}{{@root.parameters.routingKey}}{{/if}}",
            "{{#each pipeline.labels}}{{../parameters.routingKey}}{{/each}}",
            "{{default (lookup pipeline.labels parameters.routingKey) \"-\"}}",
        ] {
            refused(source, text(source, &seen).err());
        }
        let named = "{{parameters.routingKey}}";
        refused("a header", HeaderTemplate::compile("X-A", named, &seen).err());
        refused("a URL", UrlTemplate::compile(&format!("https://example.com/a/{named}"), &seen).err());
        assert_eq!(text("{{parameters.routingKey}} {{parameters.room}}", &parameters()).unwrap(), "s3cr3t lobby");
        assert_eq!(text("{{parameters.room}}", &seen).unwrap(), "lobby");
    }

    #[test]
    fn a_hidden_parameter_is_missing_from_the_map_of_parameters() {
        let seen = parameters().seen_with(Visibility::Pipeline);
        for (source, expected) in [
            ("{{json parameters}}", r#"{"room":"lobby"}"#),
            ("{{#each parameters}}{{@key}}={{this}};{{/each}}", "room=lobby;"),
            ("{{default (lookup parameters \"routingKey\") \"-\"}}", "-"),
            ("{{#with parameters}}{{json this}}{{/with}}", r#"{"room":"lobby"}"#),
        ] {
            assert_eq!(text(source, &seen).unwrap(), expected, "{source}");
            assert!(text(source, &parameters()).unwrap().contains("s3cr3t"), "{source}");
        }
        let layer = parameters().seen_with(Visibility::LayerNamespace);
        assert_eq!(text("{{json parameters}}", &layer).unwrap(), r#"{"routingKey":"s3cr3t"}"#);
        assert!(text("{{parameters.room}}", &layer).is_err());
        let whole = text("{{json @root}}", &seen).unwrap();
        assert!(whole.contains("lobby") && !whole.contains("s3cr3t") && !whole.contains("routingKey"), "{whole}");
    }
}
