//! How a message is found that an earlier attempt created and whose ID was lost, and how its parent is found.
//!
//! In: the metadata of a built-in template. Out: a [`Find`] or a [`Parent`], whose templates and expressions are compiled, and for each transition
//! where to look ([`Lookup`]). Or the problem with one of them.

use std::collections::BTreeSet;

use url::Url;

use super::thread::NewPath;
use crate::answer::{self, Remember};
use crate::config::problem::Problem;
use crate::render::{self, Finding, Parameters, PathTemplate, Values};
use relaybook_api::values::looked_up::LookUps;

/// The name of the remembered number of a parent.
const NUMBER: &str = "number";

/// How a message is found.
#[derive(Clone, Debug)]
pub struct Find {
    path: PathTemplate,
    /// The field of the path, for messages.
    field: String,
    /// Which item of the answer is the message.
    pub item: answer::Find,
    /// Whether the message is created once more if the list is too long, or if the message is lost.
    pub is_optional: bool,
}

/// How the parent of a message is found, such as a pull request.
#[derive(Clone, Debug)]
pub struct Parent {
    /// Where it is looked for.
    pub(super) find: Find,
    /// Its number.
    pub number: Remember,
    create: PathTemplate,
    /// The field of the path of `create`, for messages.
    field: String,
}

/// Where a message is looked for, relative to the URL of the first request.
#[derive(Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The path. `None`: that of the first request.
    pub path: Option<NewPath>,
    /// What is added to the query of the URL.
    pub query: Option<String>,
}

impl Lookup {
    /// Returns the URL at which the message is looked for. Origin and query stay, and the query of the lookup follows. The query of a URL can be a
    /// credential.
    #[must_use]
    pub fn applied_to(&self, url: &Url) -> Url {
        let mut url = self.path.as_ref().map_or_else(|| url.clone(), |path| path.applied_to(url));
        let queries = url.query().into_iter().chain(self.query.as_deref()).filter(|part| !part.is_empty());
        let query = queries.collect::<Vec<_>>().join("&");
        url.set_query(Some(query.as_str()).filter(|query| !query.is_empty()));
        url
    }
}

impl Find {
    /// Compiles what the metadata say. `field`: where they are. `parameters`: those that the path can use. `has_parent`: whether it can use the
    /// number of the parent. There are no other remembered values.
    pub(super) fn compile(
        finding: &Finding,
        field: &str,
        parameters: Parameters,
        has_parent: bool,
    ) -> Result<Self, Problem> {
        let in_field = |name: &str| format!("{field}, find.{name}");
        let names = if has_parent { numbers() } else { BTreeSet::new() };
        let path = PathTemplate::compile(&finding.path, &parameters.with_remembered(names));
        let item = answer::Find::compile(&finding.list, finding.newest.as_deref(), &finding.ours);
        Ok(Self {
            path: path.map_err(|error| Problem::template(in_field("path"), &error))?,
            field: in_field("path"),
            item: item.map_err(|error| Problem::invalid(in_field("ours"), error.to_string()))?,
            is_optional: finding.optional,
        })
    }

    /// Returns the field of the path, if it depends on what a forge says.
    pub(super) fn depends_on_forge(&self, parameters: &Parameters, asked: LookUps) -> Option<&str> {
        self.path.depends_on_forge(parameters, asked).then_some(self.field.as_str())
    }

    /// Renders where to look.
    pub(super) fn render(&self, values: &Values) -> Result<Lookup, Problem> {
        let (path, query) = self.path.render_with_query(values).map_err(|error| Problem::template(&self.field, &error))?;
        Ok(Lookup { path: path.map(NewPath::Replace), query })
    }
}

/// The names of the values that a template of a path can use, if the message has a parent.
fn numbers() -> BTreeSet<String> {
    [NUMBER.to_owned()].into()
}

impl Parent {
    /// Returns the field of a path that depends on what a forge says.
    pub(super) fn depends_on_forge(&self, parameters: &Parameters, asked: LookUps) -> Option<&str> {
        let of_create = || self.create.depends_on_forge(parameters, asked).then_some(self.field.as_str());
        self.find.depends_on_forge(parameters, asked).or_else(of_create)
    }

    /// Compiles what the metadata say. `field`: where they are. `parameters`: those that the paths can use.
    pub(super) fn compile(parent: &render::Parent, field: &str, parameters: &Parameters) -> Result<Self, Problem> {
        let in_field = |name: &str| format!("{field}, parent.{name}");
        let path = PathTemplate::compile(&parent.path, &parameters.clone().with_remembered(BTreeSet::new()));
        let create = PathTemplate::compile(&parent.create, &parameters.clone().with_remembered(numbers()));
        let item = answer::Find::compile_parent(parent.single, &parent.none, &parent.pick);
        let mut number = Remember::default();
        number.add(NUMBER, &parent.number).map_err(|error| Problem::invalid(in_field("number"), error.to_string()))?;
        Ok(Self {
            find: Find {
                path: path.map_err(|error| Problem::template(in_field("path"), &error))?,
                field: in_field("path"),
                item: item.map_err(|error| Problem::invalid(in_field("pick"), error.to_string()))?,
                is_optional: false,
            },
            number,
            create: create.map_err(|error| Problem::template(in_field("create"), &error))?,
            field: in_field("create"),
        })
    }

    /// Which item of the answer is the parent.
    #[must_use]
    pub fn item(&self) -> &answer::Find {
        &self.find.item
    }

    /// Renders the path of the request that creates the message.
    pub(super) fn create(&self, values: &Values) -> Result<Option<NewPath>, Problem> {
        let path = self.create.render(values).map_err(|error| Problem::template(&self.field, &error))?;
        Ok(path.map(NewPath::Replace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::Data;
    use relaybook_api::TransitionType;

    fn find(path: &str, ours: &str) -> Result<Find, String> {
        let (list, newest, ours, optional) = (String::new(), None, ours.to_owned(), false);
        let finding = Finding { path: path.to_owned(), list, newest, ours, optional };
        let parameters = Parameters::compile([("room", Some("a b"))]).unwrap().with_remembered(["id".to_owned()].into());
        Find::compile(&finding, "spec.template.builtin board", parameters, false).map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_message_is_looked_for_relative_to_the_first_request() {
        let values = Data { thread: "0123".to_owned(), ..Data::sample(TransitionType::Failed) };
        let values = Values::new(&values, &Parameters::compile([("room", Some("a b"))]).unwrap()).unwrap();
        for (path, url, expected) in [
            ("?key={{thread.id}}", "https://a.net/api/v3/cards", "https://a.net/api/v3/cards?key=0123"),
            ("?key={{thread.id}}", "https://a.net/cards?token=x", "https://a.net/cards?token=x&key=0123"),
            ("rooms/{{parameters.room}}/cards", "https://a.net/v1/cards?", "https://a.net/v1/rooms/a%20b/cards"),
            ("", "https://a.net/v1/cards?a=b", "https://a.net/v1/cards?a=b"),
        ] {
            let lookup = find(path, "body.id == request.id").unwrap().render(&values).unwrap();
            assert_eq!(lookup.applied_to(&Url::parse(url).unwrap()).as_str(), expected, "{path} {url}");
        }
        let broken = find("rooms/{{reason}}/../cards", "true").unwrap();
        assert!(broken.render(&values).err().unwrap().to_string().contains("find.path"));
    }

    #[test]
    fn an_invalid_way_to_find_a_message_is_refused_with_its_field() {
        for (path, ours, words) in [
            ("?id={{remembered.id}}", "true", "find.path: "),
            ("?key={{parameters.rom}}", "true", "did you mean `parameters.room`?"),
            ("?key={{thread.key}}", "true", "find.path: "),
            ("", "body.id == remembered.id", "find.ours: there is no remembered"),
            ("", "body.id == thread.id", "find.ours: there is no thread"),
            ("", "'a'", "find.ours: must be a boolean"),
        ] {
            let said = find(path, ours).map(|_| ()).unwrap_err();
            assert!(
                said.starts_with("spec.template.builtin board, find.") && said.contains(words),
                "{path}, {ours}: {said}"
            );
        }
    }
}
