//! Resolves the names in a template. The enclosing `with` and `each` blocks define what a path refers to.

use std::collections::BTreeSet;

use super::eval::{EntryPart, Expr};
use crate::render::data::parameters::{Parameter, Parameters};
use crate::render::data::schema::DataSchema;
use relaybook_api::values::nearest::{instead, nearest};

/// The characters between the names of a path.
const SEPARATORS: [char; 2] = ['.', '/'];
/// The field that contains the parameters.
const PARAMETERS: &str = "parameters";
/// The field that contains the values of earlier answers.
const REMEMBERED: &str = "remembered";
/// The fields that a thread adds to the data.
const OF_THREAD: [&str; 2] = [REMEMBERED, "thread"];

/// The kind of value that an expression yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A value that can be written as text.
    Text,
    /// A label, an annotation or a recorded field, which can be missing.
    MayBeMissing,
    /// All labels, annotations, recorded fields or parameters.
    Map,
    /// An object with fields.
    Object,
}

/// Why a name cannot be resolved.
#[derive(Debug)]
pub(crate) enum Unresolved {
    /// The field does not exist. Contains the alternatives.
    Unknown(String),
    /// The parameter with this name has no value.
    Unset(String),
    /// The parameter with this name is hidden here.
    Hidden {
        /// Its name.
        name: String,
        /// The owner of the parameter.
        owner: String,
    },
    /// Not known, because the argument of an enclosing block is already rejected.
    EnclosingBlockInvalid,
}

impl Unresolved {
    /// Adds the start of the written path, such as `../`, to the suggested path.
    fn with_prefix(self, prefix: &str) -> Self {
        match self {
            Self::Unknown(known) => Self::Unknown(known.replacen("did you mean `", &format!("did you mean `{prefix}"), 1)),
            other => other,
        }
    }
}

impl From<String> for Unresolved {
    fn from(known: String) -> Self {
        Self::Unknown(known)
    }
}

/// The blocks around a tag, which define what names refer to, outermost first.
#[derive(Debug)]
pub(crate) struct Scopes<'a> {
    blocks: Vec<Scope>,
    schema: &'static DataSchema,
    parameters: &'a Parameters,
}

/// The value of `this`.
#[derive(Debug)]
enum Scope {
    /// The fields below a path.
    Fields(Vec<String>),
    /// An entry of the loop with this number. The outermost loop has number 0.
    Entry(usize),
    /// Not known, because the argument of the block is rejected.
    Unknown,
}

impl<'a> Scopes<'a> {
    /// Returns the scopes outside of all blocks.
    pub(crate) fn new(schema: &'static DataSchema, parameters: &'a Parameters) -> Self {
        Self { blocks: vec![Scope::Fields(Vec::new())], schema, parameters }
    }

    /// Enters a `with` over a path from the root.
    pub(crate) fn enter(&mut self, path: Vec<String>) {
        self.blocks.push(Scope::Fields(path));
    }

    /// Enters an `each`.
    pub(crate) fn enter_loop(&mut self) {
        self.blocks.push(Scope::Entry(self.loops()));
    }

    /// Enters a block that is rejected, so that its contents can be checked too.
    pub(crate) fn enter_unknown(&mut self) {
        self.blocks.push(Scope::Unknown);
    }

    /// Leaves the innermost block.
    pub(crate) fn leave(&mut self) {
        self.blocks.pop();
    }

    fn loops(&self) -> usize {
        self.blocks.iter().filter(|scope| matches!(scope, Scope::Entry(_))).count()
    }

    /// Resolves a path as written and accepted by the parser: `a.b`, `a/b`, `this`, `../a`, `@root.a`, `a.[b.c]`, `@key`. The error lists
    /// the alternatives.
    pub(crate) fn resolve(&self, raw: &str) -> Result<(Expr, Kind), Unresolved> {
        let (up, rest) = match raw.strip_prefix("@root") {
            Some(rest) if rest.is_empty() || rest.starts_with(SEPARATORS) => (self.blocks.len() - 1, after_separator(rest)),
            _ if raw.starts_with('@') => return self.entry_part(raw),
            _ => ascend(raw.strip_prefix("./").unwrap_or(raw)),
        };
        let names = names(rest);
        match self.blocks.iter().rev().nth(up) {
            None => Err("`../` leaves the outermost block".to_owned().into()),
            Some(Scope::Unknown) => Err(Unresolved::EnclosingBlockInvalid),
            Some(Scope::Entry(depth)) if names.is_empty() => Ok((Expr::Entry(*depth, EntryPart::Value), Kind::Text)),
            Some(Scope::Entry(_)) => {
                Err("within `each`, use this, @key, or ../ for the fields outside of it".to_owned().into())
            }
            Some(Scope::Fields(base)) => {
                let path: Vec<String> = base.iter().cloned().chain(names).collect();
                let kind = match path.split_first() {
                    Some((first, rest)) if first == PARAMETERS && self.schema.field(first).is_some() => self.parameter(rest),
                    Some((first, rest)) if OF_THREAD.contains(&first.as_str()) && self.schema.field(first).is_some() => {
                        let Some(names) = self.parameters.remembered() else {
                            let known = format!("only the body and spec.endpoint.thread.update can use `{first}`");
                            return Err(known.into());
                        };
                        if first == REMEMBERED {
                            remembered(names, rest)
                        } else {
                            kind(self.schema, &path, base.len()).map_err(Unresolved::from)
                        }
                    }
                    _ => kind(self.schema, &path, base.len()).map_err(Unresolved::from),
                };
                let prefix = if raw.starts_with('@') { "@root.".to_owned() } else { "../".repeat(up) };
                kind.map(|kind| (Expr::Path(path), kind)).map_err(|unresolved| unresolved.with_prefix(&prefix))
            }
        }
    }

    /// Returns the kind of the value at a path below `parameters`.
    fn parameter(&self, path: &[String]) -> Result<Kind, Unresolved> {
        match path {
            [] => Ok(Kind::Map),
            [name] => match self.parameters.get(name) {
                Parameter::Set => Ok(Kind::Text),
                Parameter::Unset => Err(Unresolved::Unset(name.clone())),
                Parameter::Hidden => {
                    let owner = self.parameters.owner(name).unwrap_or_default().to_owned();
                    Err(Unresolved::Hidden { name: name.clone(), owner })
                }
                Parameter::Unknown => Err(self.unknown(name).into()),
            },
            _ => Err("a parameter has no fields".to_owned().into()),
        }
    }

    /// Returns the alternatives to a parameter that does not exist.
    fn unknown(&self, name: &str) -> String {
        let names = self.parameters.names();
        match nearest(name, names.iter().copied()) {
            Some(meant) => format!("did you mean `parameters.{meant}`?"),
            None if names.is_empty() => "this notification has no parameters; set it in spec.template.parameters".to_owned(),
            None => format!("known names: {}", names.into_iter().collect::<Vec<_>>().join(", ")),
        }
    }

    fn entry_part(&self, raw: &str) -> Result<(Expr, Kind), Unresolved> {
        let part = match raw {
            "@key" => Some(EntryPart::Key),
            "@index" => Some(EntryPart::Index),
            "@first" => Some(EntryPart::First),
            "@last" => Some(EntryPart::Last),
            _ => None,
        };
        match (part, self.loops().checked_sub(1)) {
            (Some(part), Some(innermost)) => Ok((Expr::Entry(innermost, part), Kind::Text)),
            (Some(_), None) if self.blocks.iter().any(|scope| matches!(scope, Scope::Unknown)) => {
                Err(Unresolved::EnclosingBlockInvalid)
            }
            _ => Err("known names: @root, and within `each` also @key, @index, @first, @last".to_owned().into()),
        }
    }
}

/// Returns the kind of the value at a path below `remembered`. `names`: of the values.
fn remembered(names: &BTreeSet<String>, path: &[String]) -> Result<Kind, Unresolved> {
    match path {
        [] => Ok(Kind::Map),
        [name] if names.contains(name) => Ok(Kind::Text),
        [name] if names.is_empty() => Err(format!("set {name} in spec.endpoint.thread.remember").into()),
        [name] => Err(instead(name, names.iter().map(String::as_str), &format!("{REMEMBERED}.")).into()),
        _ => Err("a remembered value has no fields".to_owned().into()),
    }
}

/// Returns the number of leading `../` of a path, and the rest of the path.
fn ascend(mut path: &str) -> (usize, &str) {
    let mut up = 0;
    while let Some(rest) = path.strip_prefix("..") {
        up += 1;
        path = after_separator(rest);
    }
    (up, path)
}

/// Returns the names of a path, without a leading `this`.
fn names(mut path: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_first = true;
    while !path.is_empty() {
        let (name, rest) = match path.strip_prefix('[').and_then(|bracketed| bracketed.split_once(']')) {
            Some(found) => found,
            None => path.split_at(path.find(SEPARATORS).unwrap_or(path.len())),
        };
        if !(is_first && name == "this") {
            names.push(name.to_owned());
        }
        is_first = false;
        path = after_separator(rest);
    }
    names
}

fn after_separator(path: &str) -> &str {
    path.strip_prefix(SEPARATORS).unwrap_or(path)
}

/// Returns the kind of the value at a path from the root. The first `above` names come from the enclosing blocks.
fn kind(schema: &'static DataSchema, path: &[String], above: usize) -> Result<Kind, String> {
    let mut shape = Some(schema);
    for (index, name) in path.iter().enumerate() {
        shape = match shape {
            // A label, an annotation or a recorded field can have any name, and has no fields.
            Some(DataSchema::Map) => None,
            Some(object) => Some(object.field(name).ok_or_else(|| unknown(schema, object, path, above, index))?),
            None => {
                return Err(
                    "labels, annotations and recorded fields have no fields; put a name with dots in brackets".to_owned()
                );
            }
        };
    }
    Ok(match shape {
        None => Kind::MayBeMissing,
        Some(DataSchema::Leaf) => Kind::Text,
        Some(DataSchema::Map) => Kind::Map,
        Some(DataSchema::Object(_) | DataSchema::Open(_)) => Kind::Object,
    })
}

/// Returns the alternatives to the name at `index`, which the object does not have. If the corrected path exists, it is suggested as a
/// whole.
fn unknown(schema: &'static DataSchema, object: &DataSchema, path: &[String], above: usize, index: usize) -> String {
    let Some(names) = object.names() else { return "a text has no fields".to_owned() };
    let before = path[above.min(index)..index].iter().fold(String::new(), |before, name| before + name + ".");
    let names: Vec<_> = names.collect();
    let whole = nearest(&path[index], names.iter().copied()).and_then(|meant| {
        let mut whole = path.to_vec();
        meant.clone_into(whole.get_mut(index)?);
        let is_plain = whole[index..].iter().all(|name| !name.contains(SEPARATORS));
        (is_plain && kind(schema, &whole, above).is_ok()).then(|| whole[index..].join("."))
    });
    match whole {
        Some(whole) => format!("did you mean `{before}{whole}`?"),
        None => instead(&path[index], names, &before),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::data::schema::ROOT;

    fn path(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn unknown(scopes: &Scopes<'_>, raw: &str) -> String {
        match scopes.resolve(raw).unwrap_err() {
            Unresolved::Unknown(known) => known,
            other => panic!("{raw}: {other:?}"),
        }
    }

    #[test]
    fn paths_are_resolved_within_their_blocks() {
        let none = Parameters::default();
        let mut scopes = Scopes::new(&ROOT, &none);
        scopes.enter(path(&["target"]));
        scopes.enter(path(&["target", "app"]));
        for (raw, expected, kind) in [
            ("kind", &["target", "app", "kind"][..], Kind::Text),
            ("this.kind", &["target", "app", "kind"], Kind::Text),
            ("./kind", &["target", "app", "kind"], Kind::Text),
            ("this", &["target", "app"], Kind::Object),
            ("../name", &["target", "name"], Kind::Text),
            ("../cluster/name", &["target", "cluster", "name"], Kind::Text),
            ("../../pipeline.labels", &["pipeline", "labels"], Kind::Map),
            ("../../pipeline.labels.team", &["pipeline", "labels", "team"], Kind::MayBeMissing),
            ("@root.pipeline.annotations.[a.b/c]", &["pipeline", "annotations", "a.b/c"], Kind::MayBeMissing),
            ("@root", &[], Kind::Object),
            ("../..", &[], Kind::Object),
        ] {
            let (expr, found) = scopes.resolve(raw).unwrap();
            assert!(matches!(&expr, Expr::Path(p) if *p == path(expected)) && found == kind, "{raw}: {expr:?} {found:?}");
        }
        for (raw, known) in [
            ("name.first", "no fields"),
            ("nome", "did you mean `name`?"),
            ("x", "known names: apiVersion, kind, name"),
            ("../nome", "did you mean `../name`?"),
            ("@root.pipline.name", "did you mean `@root.pipeline.name`?"),
            ("@root.pipline.nam", "did you mean `@root.pipeline`?"),
            ("@root.pipline.labels.team", "did you mean `@root.pipeline.labels.team`?"),
            ("@root.pipline.labels.[a.b]", "did you mean `@root.pipeline`?"),
            ("@root.pipeline.nam", "did you mean `@root.pipeline.name`?"),
            ("@root.target.cluster.kid", "did you mean `@root.target.cluster.kind`?"),
            ("../y", "cluster"),
            ("../../../id", "outermost block"),
            ("../../pipeline.labels.app.kubernetes", "brackets"),
            ("@key", "within `each`"),
            ("@../key", "within `each`"),
            ("@rootstatus", "@root"),
            ("@root_.status", "@root"),
        ] {
            let message = unknown(&scopes, raw);
            assert!(message.contains(known), "{raw}: {message}");
        }
    }

    #[test]
    fn in_a_loop_this_is_the_entry_of_the_loop() {
        let none = Parameters::default();
        let mut scopes = Scopes::new(&ROOT, &none);
        scopes.enter_loop();
        scopes.enter_loop();
        for (raw, depth, part) in [
            ("this", 1, EntryPart::Value),
            ("@key", 1, EntryPart::Key),
            ("@last", 1, EntryPart::Last),
            ("../this", 0, EntryPart::Value),
        ] {
            let (expr, _) = scopes.resolve(raw).unwrap();
            assert!(matches!(expr, Expr::Entry(d, p) if d == depth && p == part), "{raw}: {expr:?}");
        }
        assert!(unknown(&scopes, "status").contains("../"));
        assert!(scopes.resolve("../../status").is_ok());
        scopes.leave();
        assert!(matches!(scopes.resolve("@index"), Ok((Expr::Entry(0, EntryPart::Index), _))));
    }

    #[test]
    fn only_given_parameters_can_be_named() {
        let parameters = Parameters::compile([("channel", Some("#deploys")), ("owner", None)]).unwrap();
        let mut scopes = Scopes::new(&ROOT, &parameters);
        assert!(matches!(scopes.resolve("parameters"), Ok((_, Kind::Map))));
        assert!(matches!(scopes.resolve("parameters.channel"), Ok((_, Kind::Text))));
        assert!(matches!(scopes.resolve("parameters.owner"), Err(Unresolved::Unset(name)) if name == "owner"));
        assert_eq!(unknown(&scopes, "parameters.chanel"), "did you mean `parameters.channel`?");
        assert_eq!(unknown(&scopes, "parameters.x"), "known names: channel, owner");
        assert!(unknown(&scopes, "parameters.channel.x").contains("no fields"));
        scopes.enter(path(&["parameters"]));
        assert!(matches!(scopes.resolve("channel"), Ok((_, Kind::Text))));
        let none = Parameters::default();
        assert!(unknown(&Scopes::new(&ROOT, &none), "parameters.channel").contains("spec.template.parameters"));
    }
}
