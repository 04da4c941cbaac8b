//! How deliveries continue a message: which message, what they remember of its answers, and how the later requests differ.
//!
//! In: `endpoint.thread` and the thread of the template. Out: a [`Thread`], whose templates are compiled, or the problem with one of them.
//! A field of the user takes precedence over that of the template.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use url::Url;

use super::defaults::duration;
use super::find::{Find, Parent};
use super::given::Places;
use super::template::Chosen;
use crate::answer::{Lost, Remember};
use crate::cel::CelError;
use crate::config::problem::Problem;
use crate::render::{Parameters, PathTemplate, RenderError, TextTemplate, Values};
use relaybook_api::TransitionType;
use relaybook_api::notification::{self as spec, Method};
use relaybook_api::values::looked_up::LookUps;

/// How long a message is continued.
const MAX_AGE: Duration = Duration::from_hours(24);
/// Maximum number of remembered values, with those of the template. A Delivery has room for them.
const MOST_VALUES: usize = 8;
/// Maximum length of a rendered key, in bytes.
const LONGEST_KEY: usize = 512;
/// The fields, for messages.
const FIELD: &str = "spec.endpoint.thread";
const REMEMBER: &str = "spec.endpoint.thread.remember";
const LOST: &str = "spec.endpoint.thread.update.lost";
const MAX_AGE_FIELD: &str = "spec.endpoint.thread.maxAge";

/// How deliveries continue a message.
#[derive(Clone, Debug)]
pub struct Thread {
    /// The key of the template, and that of the user.
    keys: Vec<Key>,
    /// What is remembered of the answers.
    pub remember: Remember,
    /// The method of the later requests. `None`: that of the first one.
    method: Option<Method>,
    /// The path of the later requests. `None`: that of the first one.
    path: Option<Path>,
    /// Whether the answer to a later request says that the message no longer exists.
    pub lost: Lost,
    /// How long a message is continued.
    pub max_age: Duration,
    /// Whether a transition that ends a rollout does not end the message.
    pub keep_open: bool,
    /// The types after which a message is continued. `None`: those that do not end what it reports.
    pub continued_after: Option<Vec<TransitionType>>,
    /// What the message is a part of. `None`: it is not looked for.
    pub parent: Option<Parent>,
    /// How a message is found of which nothing is remembered. `None`: it is not looked for.
    pub find: Option<Find>,
    /// Whether the later request also follows the one that creates the message, in the same attempt.
    pub follows: bool,
}

/// A part of the key, and its field for messages.
#[derive(Clone, Debug)]
struct Key {
    template: TextTemplate,
    field: String,
}

/// The template of a path, and its field for messages.
#[derive(Clone, Debug)]
struct Path {
    template: PathTemplate,
    field: String,
    /// Whether it is appended to the path of the URL. Otherwise it replaces that path, or the last segment of it.
    is_appended: bool,
}

/// The path of a request that continues a message, relative to the URL of the first request.
#[derive(Clone, PartialEq, Eq)]
pub enum NewPath {
    /// It is appended to the path of the URL, and begins with a slash.
    Append(String),
    /// It replaces the path of the URL if it begins with a slash, and otherwise its last segment.
    Replace(String),
}

impl NewPath {
    /// Returns the URL with this path. Origin and query stay.
    #[must_use]
    pub fn applied_to(&self, url: &Url) -> Url {
        let own = url.path();
        let path = match self {
            Self::Append(end) => format!("{}{end}", own.trim_end_matches('/')),
            Self::Replace(whole) if whole.starts_with('/') => whole.clone(),
            Self::Replace(last) => format!("{}/{last}", own.rsplit_once('/').map_or("", |(before, _)| before)),
        };
        let mut url = url.clone();
        url.set_path(&path);
        url
    }
}

impl Thread {
    /// Renders the key. `None`: a part of it is empty, so the delivery is a message of its own.
    pub(crate) fn key(&self, values: &Values) -> Result<Option<String>, Problem> {
        let mut parts = Vec::new();
        for Key { template, field } in &self.keys {
            let part = template.render(values).map_err(|error| Problem::template(field, &error))?;
            if part.len() > LONGEST_KEY {
                return Err(Problem::template(field, &RenderError::OutputTooLong(LONGEST_KEY)));
            }
            parts.push(part);
        }
        let is_complete = parts.iter().all(|part| !part.trim().is_empty());
        Ok(is_complete.then(|| parts.join("\n")))
    }

    /// Renders method and path of a request that continues a message. `None`: those of the first request. If the path is empty, it is one
    /// more request like the first one.
    pub(crate) fn later(&self, values: &Values) -> Result<(Option<Method>, Option<NewPath>), Problem> {
        let Some(Path { template, field, is_appended }) = &self.path else { return Ok((self.method, None)) };
        let path = template.render(values).map_err(|error| Problem::template(field, &error))?;
        let path = match path {
            Some(path) if *is_appended && !path.starts_with('/') => {
                return Err(Problem::invalid(field, "must begin with a slash"));
            }
            path => path.map(if *is_appended { NewPath::Append } else { NewPath::Replace }),
        };
        Ok((self.method.filter(|_| path.is_some()), path))
    }

    /// Checks that there is something to report about. A message that is looked for is the one thing that the key names. So if the key requires a
    /// commit and there is none, there is nothing that the request could be about.
    pub(crate) fn check_key(&self, values: &Values) -> Result<(), Problem> {
        let keys = self.keys.iter().filter(|_| self.find.is_some());
        for Key { template, field } in keys {
            template.render(values).map_err(|error| Problem::url(field, &error))?;
        }
        Ok(())
    }

    /// Whether there is nothing to send about a revision that contains no commit.
    pub(crate) fn needs_commit(&self, parameters: &Parameters) -> bool {
        self.find.is_some() && self.keys.iter().any(|key| key.template.needs_commit(parameters))
    }

    /// Returns the field of a template that depends on what a forge says. `asked`: what the body asks for.
    pub(super) fn depends_on_forge(&self, parameters: &Parameters, asked: LookUps) -> Option<&str> {
        let keys = self.keys.iter().map(|key| (key.template.depends_on_forge(parameters, asked), key.field.as_str()));
        let path = self.path.iter().map(|path| (path.template.depends_on_forge(parameters, asked), path.field.as_str()));
        let own = keys.chain(path).find(|(depends, _)| *depends).map(|(_, field)| field);
        let of_parent = || self.parent.as_ref().and_then(|parent| parent.depends_on_forge(parameters, asked));
        let of_find = || self.find.as_ref().and_then(|find| find.depends_on_forge(parameters, asked));
        own.or_else(of_parent).or_else(of_find)
    }

    /// Whether all values are known, so that a request can continue the message.
    #[must_use]
    pub fn is_complete(&self, values: &BTreeMap<String, String>) -> bool {
        self.remember.is_complete(values)
    }
}

/// The names of the values that a template of the body can use.
pub(crate) fn remembered(endpoint: &spec::Endpoint, chosen: &Chosen) -> BTreeSet<String> {
    let theirs = chosen.thread.iter().flat_map(|thread| thread.remember.iter().flatten());
    let own = endpoint.thread.iter().flat_map(|thread| thread.remember.iter().flatten());
    theirs.chain(own).map(|(name, _)| name.clone()).collect()
}

/// Compiles the thread of the user, with what it leaves out from the template. `parameters`: those that a path can use. `None`: each delivery
/// is a message of its own.
pub(crate) fn thread(
    endpoint: &spec::Endpoint,
    chosen: &Chosen,
    parameters: &Parameters,
    places: &Places<'_>,
) -> Result<Option<Thread>, Problem> {
    let none = spec::Thread::default();
    let (own, theirs) = match (endpoint.thread.as_deref(), &chosen.thread) {
        (None, None) => return Ok(None),
        (own, theirs) => (own.unwrap_or(&none), theirs.as_ref().unwrap_or(&none)),
    };
    let remember = remember(own, theirs)?;
    let find = |field: &str, own: Option<&String>, theirs: Option<&String>| match (own, theirs) {
        (Some(own), _) => {
            let pointer = format!("/endpoint/thread/{}", field.replace('.', "/"));
            Some((own.clone(), places.seen_at(&pointer, parameters), format!("{FIELD}.{field}")))
        }
        (None, Some(theirs)) => {
            Some((theirs.clone(), places.seen_at(chosen.at, parameters), format!("{}, thread.{field}", chosen.field)))
        }
        (None, None) => None,
    };
    // The key of a template says whether there is a thread at all, and in which room.
    let keys = [find("key", None, theirs.key.as_ref()), find("key", own.key.as_ref(), None)];
    let keys = keys.into_iter().flatten().map(|(source, seen, field)| {
        let template = TextTemplate::compile(&source, &seen.without_thread());
        let template = template.map_err(|error| Problem::template(&field, &error))?;
        Ok(Key { template, field })
    });
    let keys = keys.collect::<Result<_, Problem>>()?;
    let (mine, default) = (own.update.as_ref(), theirs.update.as_ref());
    // A path of the user replaces the path of the template, in whichever form.
    let default_path = default.filter(|_| mine.is_none_or(|update| update.path.is_none() && update.append.is_none()));
    let replaced = find("update.path", mine.and_then(|u| u.path.as_ref()), default_path.and_then(|u| u.path.as_ref()));
    let appended = find("update.append", mine.and_then(|u| u.append.as_ref()), default_path.and_then(|u| u.append.as_ref()));
    let path = match (replaced, appended) {
        (Some(_), Some(_)) => return Err(Problem::invalid(format!("{FIELD}.update"), "set path or append, not both")),
        (Some(path), None) => Some((path, false)),
        (None, Some(path)) => Some((path, true)),
        (None, None) => None,
    };
    let path = path.map(|((source, seen, field), is_appended)| {
        let template = PathTemplate::compile(&source, &seen).map_err(|error| Problem::template(&field, &error))?;
        Ok::<_, Problem>(Path { template, field, is_appended })
    });
    let lost = mine.and_then(|u| u.lost.as_ref()).or(default.and_then(|u| u.lost.as_ref()));
    let lost = lost.map(|source| Lost::compile(source)).transpose().map_err(|error| invalid(LOST, &error))?;
    let max_age = own.max_age.as_deref().or(theirs.max_age.as_deref());
    let finding = chosen.metadata.and_then(|metadata| metadata.find.as_ref());
    let seen = places.seen_at(chosen.at, parameters);
    let parent = chosen.metadata.and_then(|metadata| metadata.parent.as_ref());
    let parent = parent.map(|parent| Parent::compile(parent, &chosen.field, &seen)).transpose()?;
    let found = finding.map(|finding| Find::compile(finding, &chosen.field, seen, parent.is_some()));
    Ok(Some(Thread {
        keys,
        remember,
        method: mine.and_then(|u| u.method).or(default.and_then(|u| u.method)),
        path: path.transpose()?,
        lost: lost.unwrap_or_default(),
        max_age: duration(MAX_AGE_FIELD, max_age, MAX_AGE)?,
        keep_open: own.keep_open.or(theirs.keep_open).unwrap_or(false),
        continued_after: chosen.metadata.map(|metadata| metadata.continued_after.clone()).filter(|all| !all.is_empty()),
        parent,
        find: found.transpose()?,
        follows: chosen.metadata.is_some_and(|metadata| metadata.follow),
    }))
}

/// Compiles the values of the template and those of the user.
fn remember(own: &spec::Thread, theirs: &spec::Thread) -> Result<Remember, Problem> {
    let mut remember = Remember::default();
    for (name, source) in theirs.remember.iter().flatten().chain(own.remember.iter().flatten()) {
        remember.add(name, source).map_err(|error| invalid(&format!("{REMEMBER}.{name}"), &error))?;
    }
    match remember.names().count() {
        0 => Err(Problem::invalid(REMEMBER, "is missing: set at least one value, such as id: body.id")),
        1..=MOST_VALUES => Ok(remember),
        count => {
            let message =
                format!("has {count} values with those of the template and of other layers; at most {MOST_VALUES}");
            Err(Problem::invalid(REMEMBER, message))
        }
    }
}

fn invalid(field: &str, error: &CelError) -> Problem {
    Problem::invalid(field, error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::{Given, Sending, resolve};
    use crate::render::Data;
    use relaybook_api::Notification;

    fn sending(thread: &Value) -> Result<Sending, String> {
        let spec = json!({
            "endpoint": {"url": "https://board.example.com/api/cards?board=7", "thread": thread},
            "template": {"inline": {"body": r#"{"text": "{{type}}", "card": "{{remembered.card}}", "new": {{#if thread.open}}false{{else}}true{{/if}}}"#}},
            "triggers": [{"type": "Failed"}],
        });
        let notification = Notification::new("n", serde_json::from_value(spec).unwrap());
        resolve(&notification, &Given::nothing()).sending.map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_later_request_has_another_path_and_the_remembered_values() {
        let values = BTreeMap::from([("card".to_owned(), "4/2".to_owned())]);
        let data = Data::sample(TransitionType::Failed);
        for (update, path) in [
            (json!({"append": "/{{remembered.card}}", "method": "PUT"}), "/api/cards/4%2F2?board=7"),
            (json!({"path": "/v2/{{remembered.card}}"}), "/v2/4%2F2?board=7"),
            (json!({"path": "cards.update"}), "/api/cards.update?board=7"),
            (json!({}), "/api/cards?board=7"),
        ] {
            let is_put = update.get("method").is_some();
            let sending = sending(&json!({"remember": {"card": "body.id"}, "update": update})).unwrap();
            let first = sending.render(&data).unwrap();
            assert_eq!(first.body, r#"{"text": "Failed", "card": "", "new": true}"#);
            let later = sending.render_later(&data, &values).unwrap();
            assert_eq!(later.body, r#"{"text": "Failed", "card": "4/2", "new": false}"#);
            assert_eq!(later.method == Method::Put, is_put);
            let url = Url::parse("https://board.example.com/api/cards?board=7").unwrap();
            let url = later.path.map_or(url.clone(), |path| path.applied_to(&url));
            assert_eq!(url.as_str(), format!("https://board.example.com{path}"));
            assert_eq!(sending.thread_key(&data).unwrap().as_deref(), Some(""));
        }
    }

    #[test]
    fn an_annotation_of_the_application_object_can_name_the_channel() {
        let channel = r##"{{default target.app.annotations.[notify.example.com/slack] "#deploys"}}"##;
        let spec = json!({
            "endpoint": {"url": "https://slack.example.com/api/chat.postMessage"},
            "template": {"builtin": "slack", "parameters": {"channel": channel, "mode": "update"}},
            "triggers": [{"type": "Failed"}],
        });
        let notification = Notification::new("n", serde_json::from_value(spec).unwrap());
        let sending = resolve(&notification, &Given::nothing()).sending.unwrap();
        let mut data = Data::sample(TransitionType::Failed);
        for (named, want) in [(None, "#deploys"), (Some("#red"), "#red"), (Some("\"},"), "\"},")] {
            let annotation = named.map(|named| ("notify.example.com/slack".to_owned(), named.to_owned()));
            data.target.app.annotations = annotation.into_iter().collect();
            let body: Value = serde_json::from_str(&sending.render(&data).unwrap().body).unwrap();
            assert_eq!(body["channel"], want);
            assert_eq!(
                sending.thread_key(&data).unwrap(),
                Some(format!("update {want}")),
                "another channel, another message"
            );
        }
    }

    #[test]
    fn an_invalid_thread_is_refused_with_its_field() {
        let many = ["card", "a", "b", "c", "d", "e", "f", "g", "h"].map(|name| (name, "status"));
        let many = BTreeMap::from(many);
        let with = |field: &str, value: Value| {
            let mut thread = json!({"remember": {"card": "body.id"}});
            thread[field] = value;
            thread
        };
        for (thread, words) in [
            (json!({}), "there is no field `remembered.card`"),
            (json!({"remember": {"id": "body.id"}}), "`remembered.card`"),
            (
                json!({"remember": {"card": "bod.id"}}),
                "spec.endpoint.thread.remember.card: there is no bod; did you mean body?",
            ),
            (with("key", json!("{{remembered.card}}")), "spec.endpoint.thread.key"),
            (with("key", json!("{{typ}}")), "did you mean `type`?"),
            (with("update", json!({"append": "cards"})), "spec.endpoint.thread.update.append: must begin with a slash"),
            (with("update", json!({"append": "/a?b"})), "has a query"),
            (with("update", json!({"path": "a", "append": "/b"})), "set path or append, not both"),
            (with("update", json!({"lost": "404"})), "spec.endpoint.thread.update.lost: must be a boolean"),
            (with("update", json!({"append": "{{remembered.card}}"})), "spec.endpoint.thread.update.append: must begin"),
            (
                with("key", json!("{{#if thread.open}}a{{/if}}")),
                "only the body and spec.endpoint.thread.update can use `thread`",
            ),
            (json!({"remember": many}), "has 9 values with those of the template and of other layers; at most 8"),
            (with("maxAge", json!("soon")), "spec.endpoint.thread.maxAge"),
        ] {
            let said = sending(&thread).unwrap_err();
            assert!(said.contains(words), "{thread}: {said}");
        }
    }
}
