//! The values that the templates of one request read: the data of a transition, and the parameters of its notification.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::app::{CUT, RECORDED};
use super::parameters::Visibility;
use crate::render::lang::eval::BUDGET;
use crate::render::lang::fields::{self, Fields};
use crate::render::{Data, MAX_SOURCE, Parameters, Position, RenderError};

/// The field that contains the parameters.
const PARAMETERS: &str = "parameters";
/// The field that contains values that are not recorded: labels and annotations.
const PIPELINE: &str = "pipeline";
/// The field that the data contain only in a test.
const TEST: &str = "test";

/// The field that says whether a request continues a message. It is not a part of all data.
const THREAD: &str = "thread";
/// The field that contains the values of earlier answers. It is not a part of all data.
const REMEMBERED: &str = "remembered";

/// The object with what was recorded of the application object.
const APP: [&str; 2] = ["target", "app"];
/// What was recorded if there is nothing.
static NONE_RECORDED: LazyLock<Value> = LazyLock::new(|| json!({}));

/// The field that contains links. Only the global configuration knows the names of some.
const LINKS: &str = "links";
/// The field about the commit of the revision.
const GIT: &str = "git";
/// The fields of it that only the forge knows.
const OF_COMMIT: [&str; 3] = ["author", "message", "time"];
/// The field about the pull request.
const PULL_REQUEST: &str = "pullRequest";

/// A remembered value that there is not yet, or a page that is not known.
static NOTHING: Value = Value::String(String::new());
/// The value of [`GIT`] that a template reads if nothing is known.
static NO_GIT: LazyLock<Value> = LazyLock::new(|| json!({"sha": "", "url": ""}));
/// The value of [`PULL_REQUEST`] that a template reads if nothing is known.
static NO_PULL_REQUEST: LazyLock<Value> = LazyLock::new(|| json!({"number": "", "title": "", "url": "", "author": ""}));
/// The value that a template reads of [`TEST`] if it is no test, and of [`CUT`] if no value is missing.
static NO: Value = Value::Bool(false);

/// The budget of all templates of one source. There can be thousands of sources.
const SOURCE_BUDGET: usize = BUDGET / 16;

/// The data of one transition with the parameters of one notification, prepared once for all templates of a request.
///
/// A parameter is rendered when it is first read. So a parameter that only some transitions use need not be valid for the others.
pub struct Values {
    data: Value,
    parameters: Parameters,
    /// The identity of the message.
    id: String,
    /// What a thread adds to the data.
    thread: Value,
    /// For each parameter, the rendered value and whether it may change.
    rendered: Vec<OnceCell<(Value, bool)>>,
    /// For each parameter that an `each` lists, its fields and whether they may change.
    fields: Vec<OnceCell<(Fields, bool)>>,
    /// The whole data, for templates that read all of it, for each visibility of parameters.
    whole: [OnceCell<Value>; 3],
    /// Whether a parameter is being rendered. It cannot read other parameters.
    is_rendering_parameter: Cell<bool>,
    /// The remaining budget of this request.
    budget: Cell<usize>,
    /// Number of reads of values that are not recorded and may change.
    changeable: Cell<usize>,
}

impl Values {
    /// Prepares the data.
    pub fn new(data: &Data, parameters: &Parameters) -> Result<Self, RenderError> {
        let (id, thread) = (data.thread.clone(), of_thread(&data.thread, false, &BTreeMap::new()));
        let mut data = serde_json::to_value(data).map_err(RenderError::Data)?;
        if let Some(fields) = data.as_object_mut() {
            leave_out_unknown(fields);
            fields.insert(PARAMETERS.to_owned(), Value::Object(serde_json::Map::new()));
        }
        // A request with all data has them only if something was recorded.
        if let Some(app) = data.pointer_mut("/target/app").and_then(Value::as_object_mut) {
            app.retain(|name, value| match name.as_str() {
                CUT => *value != NO,
                name => !RECORDED.contains(&name) || *value != *NONE_RECORDED,
            });
        }
        let (rendered, fields) = (vec![OnceCell::new(); parameters.len()], vec![OnceCell::new(); parameters.len()]);
        let (is_rendering_parameter, budget, changeable) = (Cell::new(false), Cell::new(BUDGET), Cell::new(0));
        let (parameters, whole) = (parameters.clone(), [const { OnceCell::new() }; 3]);
        Ok(Self { data, parameters, id, thread, rendered, fields, whole, is_rendering_parameter, budget, changeable })
    }

    /// Returns the same values with those of earlier answers. `is_open`: whether the request continues a message.
    #[must_use]
    pub fn remembering(self, values: &BTreeMap<String, String>, is_open: bool) -> Self {
        Self { thread: of_thread(&self.id, is_open, values), ..self }
    }

    /// Prepares data that has no parameters, with another schema than that of [`Data`].
    pub(crate) fn of_source(data: Value) -> Self {
        let (is_rendering_parameter, budget, changeable) = (Cell::new(false), Cell::new(SOURCE_BUDGET), Cell::new(0));
        let (parameters, whole) = (Parameters::default(), [const { OnceCell::new() }; 3]);
        let (id, thread) = (String::new(), of_thread("", false, &BTreeMap::new()));
        let (rendered, fields) = (Vec::new(), Vec::new());
        Self { data, parameters, id, thread, rendered, fields, whole, is_rendering_parameter, budget, changeable }
    }

    /// Returns the value at a path from the root, for a template with this visibility. Returns `None` for a missing label or annotation,
    /// and for a hidden parameter.
    pub(crate) fn get(&self, path: &[String], visibility: Visibility) -> Result<Option<&Value>, RenderError> {
        let found = match path {
            [only] if only == TEST => below(Some(&self.data), path).or(Some(&NO)),
            [target, app, of] if [target, app] == APP && RECORDED.contains(&of.as_str()) => {
                below(Some(&self.data), path).or(Some(&*NONE_RECORDED))
            }
            [target, app, of] if [target, app] == APP && of == CUT => below(Some(&self.data), path).or(Some(&NO)),
            [first, ..] if first == THREAD => below(Some(&self.thread), path),
            [first, ..] if first == REMEMBERED => below(Some(&self.thread), path).or(Some(&NOTHING)),
            [only] if only == GIT => below(Some(&self.data), path).or_else(|| Some(&*NO_GIT)),
            [only] if only == PULL_REQUEST => below(Some(&self.data), path).or_else(|| Some(&*NO_PULL_REQUEST)),
            [first, _] if [GIT, LINKS, PULL_REQUEST].contains(&first.as_str()) => {
                below(Some(&self.data), path).or(Some(&NOTHING))
            }
            _ if self.is_rendering_parameter.get() => below(Some(&self.data), path),
            [] => Some(self.whole(visibility)?),
            [first, rest @ ..] if first == PARAMETERS => match rest {
                [name] if self.parameters.hidden_from(visibility, name).is_some() => None,
                [name] => self.parameter(name)?,
                rest => below(self.whole(visibility)?.get(first), rest),
            },
            path => below(Some(&self.data), path),
        };
        if may_change(path) {
            self.read_changeable();
        }
        Ok(found)
    }

    /// Returns the parameters that templates have read so far, hidden or not, with their rendered values. Each field that an `each` has listed is
    /// a value of its parameter, too.
    pub fn rendered_parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        let texts = self.rendered.iter().map(|cell| cell.get().and_then(|(value, _)| value.as_str()));
        let fields = self.fields.iter().map(|cell| cell.get().into_iter().flat_map(|(fields, _)| fields));
        self.parameters.set_or_hidden().zip(texts.zip(fields)).flat_map(|(name, (text, fields))| {
            text.into_iter().chain(fields.filter_map(|(_, value)| value.as_str())).map(move |value| (name, value))
        })
    }

    fn parameter(&self, name: &str) -> Result<Option<&Value>, RenderError> {
        let Some((index, program)) = self.parameters.find(name) else { return Ok(None) };
        let Some(cell) = self.rendered.get(index) else { return Ok(None) };
        if cell.get().is_none() {
            let before = self.changeable();
            let text = if self.parameters.has_fields(name) {
                fields::text(self.fields(name, Visibility::All)?)
            } else {
                self.rendering(name, || program.run(self, Visibility::All, MAX_SOURCE))?.text
            };
            // The cell is still empty, because a parameter cannot read other parameters.
            let _ = cell.set((Value::String(text), self.changeable() > before));
        }
        let known = cell.get();
        if known.is_some_and(|(_, changeable)| *changeable) {
            self.read_changeable();
        }
        Ok(known.map(|(value, _)| value))
    }

    /// Returns the fields of a parameter, for a template with this visibility. They are rendered once.
    pub(crate) fn fields(&self, name: &str, visibility: Visibility) -> Result<&[(String, Value)], RenderError> {
        let is_hidden = self.parameters.hidden_from(visibility, name).is_some();
        let Some((index, program)) = self.parameters.find(name).filter(|_| !is_hidden) else { return Ok(&[]) };
        let Some(cell) = self.fields.get(index) else { return Ok(&[]) };
        if cell.get().is_none() {
            let before = self.changeable();
            let fields = self.rendering(name, || fields::fields(program, self))?;
            let _ = cell.set((fields, self.changeable() > before));
        }
        let Some((fields, changeable)) = cell.get() else { return Ok(&[]) };
        if *changeable {
            self.read_changeable();
        }
        Ok(fields)
    }

    /// Renders a parameter, which cannot read other parameters. The error names it.
    fn rendering<T>(&self, name: &str, render: impl FnOnce() -> Result<T, RenderError>) -> Result<T, RenderError> {
        self.is_rendering_parameter.set(true);
        let rendered = render();
        self.is_rendering_parameter.set(false);
        rendered.map_err(|e| RenderError::Parameter { name: name.to_owned(), source: Box::new(e) })
    }

    fn whole(&self, visibility: Visibility) -> Result<&Value, RenderError> {
        let cell = &self.whole[visibility as usize];
        let seen = self.parameters.set().filter(|name| self.parameters.hidden_from(visibility, name).is_none());
        let seen: Vec<_> = seen.map(|name| Ok((name, self.parameter(name)?))).collect::<Result<_, RenderError>>()?;
        if let Some(whole) = cell.get() {
            return Ok(whole);
        }
        let mut parameters = serde_json::Map::new();
        for (name, value) in seen {
            parameters.insert(name.to_owned(), value.cloned().unwrap_or_default());
        }
        let mut whole = self.data.clone();
        if let Some(fields) = whole.as_object_mut() {
            fields.insert(PARAMETERS.to_owned(), Value::Object(parameters));
        }
        Ok(cell.get_or_init(|| whole))
    }

    fn read_changeable(&self) {
        self.changeable.set(self.changeable.get().saturating_add(1));
    }

    /// Returns the number of reads so far of values that are not recorded and may change.
    pub(crate) fn changeable(&self) -> usize {
        self.changeable.get()
    }

    /// Spends a part of the budget of this request.
    pub(crate) fn spend(&self, units: usize, at: Position) -> Result<(), RenderError> {
        self.budget.set(self.budget.get().checked_sub(units).ok_or(RenderError::TooMuchWork { at })?);
        Ok(())
    }
}

/// Whether the value at this path contains values that are not recorded: labels and annotations of the pipeline, and what follows from the
/// global configuration. Parameters are not included: each one is checked when it is rendered.
fn may_change(path: &[String]) -> bool {
    match path {
        [] => true,
        [first, ..] if first == LINKS => true,
        [first] => first == PIPELINE || first == GIT || first == PULL_REQUEST,
        [first, second, ..] if first == GIT => second == "url" || OF_COMMIT.contains(&second.as_str()),
        [first, second, ..] => {
            first == PULL_REQUEST || (first == PIPELINE && matches!(second.as_str(), "labels" | "annotations"))
        }
    }
}

/// What a thread adds to the data. `id`: the identity of the message. `values`: those of the earlier answers.
fn of_thread(id: &str, is_open: bool, values: &BTreeMap<String, String>) -> Value {
    json!({THREAD: {"open": is_open, "id": id}, REMEMBERED: values})
}

/// Leaves out what is at forges and not known, and `git` if it has no commit. So a message about a revision without a commit, such as the
/// version of a chart, is the same as it was before there were such fields.
fn leave_out_unknown(fields: &mut serde_json::Map<String, Value>) {
    let is_empty = |value: &Value| value.as_str().is_some_and(str::is_empty);
    if let Some(git) = fields.get_mut(GIT).and_then(Value::as_object_mut) {
        git.retain(|name, value| !(OF_COMMIT.contains(&name.as_str()) && is_empty(value)));
    }
    if fields.get(PULL_REQUEST).and_then(Value::as_object).is_some_and(|of| of.values().all(is_empty)) {
        fields.remove(PULL_REQUEST);
    }
    if fields.get(GIT).and_then(Value::as_object).is_some_and(|git| git.values().all(is_empty)) {
        fields.remove(GIT);
    }
    if let Some(links) = fields.get_mut(LINKS).and_then(Value::as_object_mut) {
        links.retain(|name, value| !(matches!(name.as_str(), "compare" | "previous") && is_empty(value)));
    }
}

fn below<'a>(value: Option<&'a Value>, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value?, |value, name| value.get(name))
}

/// Omits the data, because it may contain secrets.
impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values").field("parameters", &self.parameters).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::Body;
    use crate::render::Hidden;
    use relaybook_api::TransitionType;
    use relaybook_api::values::looked_up::LookedUp;

    #[test]
    fn a_parameter_is_rendered_where_it_is_read() {
        let parameters = Parameters::compile([("sha", Some("{{commit revision}}")), ("a", Some("x"))]).unwrap();
        let source = "{{#if revision}}{{parameters.sha}}{{else}}none{{/if}}";
        let render = |source: &str, type_| {
            let values = Values::new(&Data::sample(type_), &parameters).unwrap();
            Body::compile("text/plain", source, &parameters).unwrap().render(&values)
        };
        assert!(render(source, TransitionType::Deployed).unwrap().starts_with("5f3d2c1"));
        assert_eq!(render(source, TransitionType::Removed).unwrap(), "none");
        for source in ["{{parameters.sha}}", "{{json parameters}}", "{{json @root}}"] {
            let error = render(source, TransitionType::Removed).unwrap_err();
            assert!(matches!(&error, RenderError::Parameter { name, .. } if name == "sha"), "{error}");
        }
        assert!(render("{{json parameters}}", TransitionType::Deployed).unwrap().starts_with(r#"{"a":"x","sha":"5f3d"#));
    }

    #[test]
    fn what_was_recorded_of_the_application_object_is_data_only_if_there_is_some() {
        let channel = r##"{{default target.app.annotations.[notify.example.com/slack] "#deploys"}}"##;
        let parameters = Parameters::compile([("channel", Some(channel))]).unwrap();
        let sample = Data::sample(TransitionType::Deployed);
        let mut named = sample.clone();
        named.target.app.annotations = [("notify.example.com/slack".to_owned(), "#red".to_owned())].into();
        named.target.app.fields = [(".spec.project".to_owned(), "shop".to_owned())].into();
        named.target.app.cut = true;
        let none = r#"{"apiVersion":"kustomize.toolkit.fluxcd.io/v1","kind":"Kustomization","name":"podinfo"}"#;
        for (source, without, with) in [
            ("{{parameters.channel}}", "#deploys", "#red"),
            ("{{default target.app.fields.[.spec.project] \"-\"}}", "-", "shop"),
            ("{{default (lookup target.app.fields \".spec.project\") \"-\"}}", "-", "shop"),
            ("{{#with target.app}}{{default labels.team name}}{{/with}}", "podinfo", "podinfo"),
            (
                "{{json target.app.labels}}{{json target.app.annotations}}",
                "{}{}",
                r##"{}{"notify.example.com/slack":"#red"}"##,
            ),
            ("{{#each target.app.fields}}{{@key}}={{this}}{{else}}none{{/each}}", "none", ".spec.project=shop"),
            ("{{#if target.app.annotations}}some{{else}}none{{/if}}", "none", "some"),
            ("{{#if target.app.cut}}cut{{else}}whole{{/if}} {{target.app.cut}}", "whole false", "cut true"),
            (
                "{{json target.app}}",
                none,
                r##"{"annotations":{"notify.example.com/slack":"#red"},"apiVersion":"kustomize.toolkit.fluxcd.io/v1","cut":true,"fields":{".spec.project":"shop"},"kind":"Kustomization","name":"podinfo"}"##,
            ),
        ] {
            let body = Body::compile("text/plain", source, &parameters).unwrap();
            let render = |data: &Data| {
                let values = Values::new(data, &parameters).unwrap();
                (body.render(&values).unwrap(), values.changeable())
            };
            assert_eq!(render(&sample), (without.to_owned(), 0), "{source}");
            assert_eq!(render(&named), (with.to_owned(), 0), "{source}: every attempt has the same values");
        }
        let unset = Body::compile("text/plain", "{{target.app.annotations.team}}", &parameters).unwrap_err().to_string();
        assert!(unset.contains("default"), "{unset}");
    }

    #[test]
    fn a_parameter_cannot_read_other_parameters() {
        for (own, expected) in [
            ("{{json parameters}}", "{}"),
            ("{{#each parameters}}x{{else}}none{{/each}}", "none"),
            ("{{default (lookup parameters \"own\") \"-\"}}", "-"),
            ("{{#with parameters}}{{json this}}{{/with}}", "{}"),
        ] {
            let parameters = Parameters::compile([("own", Some(own))]).unwrap();
            let values = Values::new(&Data::sample(TransitionType::Failed), &parameters).unwrap();
            let body = Body::compile("text/plain", "{{parameters.own}}", &parameters).unwrap();
            assert_eq!(body.render(&values).unwrap(), expected, "{own}");
        }
        let parameters = Parameters::compile([("own", Some("{{json @root}}"))]).unwrap();
        let values = Values::new(&Data::sample(TransitionType::Failed), &parameters).unwrap();
        let whole = Body::compile("application/json", "{{json @root}}", &parameters).unwrap().render(&values).unwrap();
        let whole: Value = serde_json::from_str(&whole).unwrap();
        let own: Value = serde_json::from_str(whole["parameters"]["own"].as_str().unwrap()).unwrap();
        assert_eq!((&own["message"], &own["parameters"]), (&whole["message"], &serde_json::json!({})));
    }

    #[test]
    fn a_hidden_parameter_does_not_shift_the_names_of_the_others() {
        let parameters = Parameters::compile([("a", Some("{{status}}")), ("b", Some("lobby"))]).unwrap();
        let hidden = Hidden::from([("a".to_owned(), "the global configuration".to_owned())]);
        let shared = parameters.with_hidden([hidden, Hidden::new()]).seen_with(Visibility::Pipeline);
        let values = Values::new(&Data::sample(TransitionType::Failed), &shared).unwrap();
        assert_eq!(Body::compile("text/plain", "{{parameters.b}}", &shared).unwrap().render(&values).unwrap(), "lobby");
        assert_eq!(values.rendered_parameters().collect::<Vec<_>>(), [("b", "lobby")]);
        let path = ["parameters", "a"].map(str::to_owned);
        assert_eq!(values.get(&path, Visibility::All).unwrap(), Some(&Value::from("Failed")));
        assert_eq!(values.rendered_parameters().collect::<Vec<_>>(), [("a", "Failed"), ("b", "lobby")]);
    }

    /// A receiver that repeats one field must not publish it, so each field is a value to mask.
    #[test]
    fn each_listed_field_is_a_value_of_its_parameter() {
        let tokens = "A: s3cr3t  one\nB: {{status}}\nC: {{commit environment}}\nD: ";
        let all = Parameters::compile([("tokens", Some(tokens)), ("other", Some("a"))]).unwrap();
        let each = "{{#each parameters.tokens}}{{this}} {{/each}}";
        let (one, two) = (("tokens", "s3cr3t one"), ("tokens", "Failed"));
        for (source, expected) in [
            (each.to_owned(), vec![one, two]),
            (each.repeat(2), vec![one, two]),
            (format!("{each}{{{{parameters.tokens}}}}"), vec![("tokens", "A: s3cr3t one\nB: Failed"), one, two]),
            ("x".to_owned(), Vec::new()),
        ] {
            let body = Body::compile("text/plain", &source, &all).unwrap();
            let parameters = all.clone().with_fields(body.listed()).unwrap();
            let values = Values::new(&Data::sample(TransitionType::Failed), &parameters).unwrap();
            body.render(&values).unwrap();
            assert_eq!(values.rendered_parameters().collect::<Vec<_>>(), expected, "{source}");
        }
    }

    #[test]
    fn a_page_that_is_not_known_is_empty_and_not_among_all_data() {
        let none = Parameters::default();
        let render = |source: &str, type_| {
            let data = Data::sample(type_);
            Body::compile("text/plain", source, &none)?.render(&Values::new(&data, &none)?)
        };
        let each = "{{git.sha}}{{git.url}}{{links.compare}}{{links.argo}}{{#with links}}{{other}}{{/with}}";
        assert_eq!(render(each, TransitionType::ClusterOffline).unwrap(), "");
        assert_eq!(render("{{json git}}", TransitionType::ClusterOffline).unwrap(), r#"{"sha":"","url":""}"#);
        let links = r#"{"notification":"","pipeline":"","revision":""}"#;
        assert_eq!(render("{{json links}}", TransitionType::ClusterOffline).unwrap(), links);
        let whole = |type_| serde_json::from_str::<Value>(&render("{{json @root}}", type_).unwrap()).unwrap();
        assert_eq!(whole(TransitionType::ClusterOffline).get("git"), None);
        let known = whole(TransitionType::Deployed);
        assert!(known["git"]["url"].as_str().unwrap().ends_with(known["git"]["sha"].as_str().unwrap()));
        assert!(render("{{links.argo.x}}", TransitionType::Deployed).is_err());
    }

    #[test]
    fn what_follows_from_the_global_configuration_may_change() {
        for (source, may_change) in [
            ("{{links.argo}}", true),
            ("{{links.compare}}", true),
            ("{{json links}}", true),
            ("{{git.url}}", true),
            ("{{json git}}", true),
            ("{{git.sha}}", false),
            ("{{target.app.cut}}", false),
        ] {
            let values = Values::new(&Data::sample(TransitionType::Deployed), &Parameters::default()).unwrap();
            Body::compile("text/plain", source, &Parameters::default()).unwrap().render(&values).unwrap();
            assert_eq!(values.changeable() > 0, may_change, "{source}");
        }
    }

    #[test]
    fn what_a_forge_says_is_empty_and_not_among_all_data_if_nobody_asked() {
        let none = Parameters::default();
        let render = |source: &str, found: &LookedUp| {
            let data = Data::sample(TransitionType::Deployed).with_looked_up(found);
            Body::compile("application/json", source, &none).unwrap().render(&Values::new(&data, &none).unwrap()).unwrap()
        };
        let (nothing, all) = (LookedUp::default(), LookedUp::sample());
        for (source, without, with) in [
            (
                r#""{{git.author}}{{git.message}}{{git.time}}""#,
                r#""""#,
                r#""Ada LovelaceFix the \"engine\"2026-11-21T09:07:14Z""#,
            ),
            (r#""{{#with pullRequest}}{{number}}{{title}}{{/with}}""#, r#""""#, r#""7Fix the engine""#),
            (
                "{{json pullRequest}}",
                r#"{"author":"","number":"","title":"","url":""}"#,
                r#"{"author":"ada","number":"7","title":"Fix the engine","url":"https://github.com/acme/podinfo/pull/7"}"#,
            ),
        ] {
            assert_eq!((render(source, &nothing).as_str(), render(source, &all).as_str()), (without, with), "{source}");
        }
        let whole = |found| serde_json::from_str::<Value>(&render("{{json @root}}", found)).unwrap();
        let (without, with) = (whole(&nothing), whole(&all));
        assert!(without.get("pullRequest").is_none() && without["git"].as_object().unwrap().len() == 2, "{without}");
        assert_eq!(
            (&with["git"]["author"], &with["pullRequest"]["number"]),
            (&Value::from("Ada Lovelace"), &Value::from("7"))
        );
    }

    #[test]
    fn the_debug_format_shows_no_values() {
        let parameters = Parameters::compile([("token", Some("s3cr3t"))]).unwrap();
        let values = Values::new(&Data::sample(TransitionType::Failed), &parameters).unwrap();
        let shown = format!("{values:?}");
        assert!(shown.contains("token") && !shown.contains("s3cr3t") && !shown.contains("podinfo"), "{shown}");
    }
}
