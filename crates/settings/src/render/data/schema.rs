//! The fields of [`Data`](crate::render::Data). With them, a path is checked when a template is compiled, not when it is sent.

/// The kind of value at a path.
#[derive(Debug)]
pub(crate) enum DataSchema {
    /// A text, number or boolean.
    Leaf,
    /// Labels, annotations, recorded fields or parameters. Any key is allowed, and every entry can be missing.
    Map,
    /// An object whose fields always exist.
    Object(&'static [(&'static str, DataSchema)]),
    /// The same, and other fields that are texts. An unknown one is empty, because only the global configuration knows their names.
    Open(&'static [(&'static str, DataSchema)]),
}

use DataSchema::{Leaf, Map, Object, Open};

/// The schema of the whole data.
pub(crate) static ROOT: DataSchema = Object(&[
    ("id", Leaf),
    ("serial", Leaf),
    ("type", Leaf),
    ("time", Leaf),
    ("severity", Leaf),
    ("pipeline", Object(&[("name", Leaf), ("namespace", Leaf), ("uid", Leaf), ("labels", Map), ("annotations", Map)])),
    ("subject", Object(&[("kind", Leaf), ("name", Leaf), ("app", Leaf)])),
    ("environment", Leaf),
    (
        "target",
        Object(&[
            ("name", Leaf),
            ("namespace", Leaf),
            ("cluster", Object(&[("name", Leaf), ("namespace", Leaf), ("kind", Leaf)])),
            (
                "app",
                Object(&[
                    ("apiVersion", Leaf),
                    ("kind", Leaf),
                    ("name", Leaf),
                    ("labels", Map),
                    ("annotations", Map),
                    ("fields", Map),
                    ("cut", Leaf),
                ]),
            ),
            ("source", Object(&[("kind", Leaf), ("name", Leaf), ("repository", Leaf), ("owner", Leaf), ("project", Leaf)])),
        ]),
    ),
    (
        "promotion",
        Object(&[
            ("name", Leaf),
            ("uid", Leaf),
            ("phase", Leaf),
            ("strategy", Leaf),
            ("from", Leaf),
            ("revision", Leaf),
            ("previous", Leaf),
            ("url", Leaf),
            ("reason", Leaf),
        ]),
    ),
    ("revision", Leaf),
    ("runningRevision", Leaf),
    ("previousRevision", Leaf),
    ("status", Leaf),
    ("previousStatus", Leaf),
    ("reason", Leaf),
    ("message", Leaf),
    ("drifted", Leaf),
    ("coalesced", Leaf),
    ("superseded", Leaf),
    ("test", Leaf),
    ("parameters", Map),
    ("thread", Object(&[("open", Leaf), ("id", Leaf)])),
    ("remembered", Map),
    ("notification", Object(&[("name", Leaf), ("namespace", Leaf)])),
    ("context", Leaf),
    ("link", Leaf),
    (
        "links",
        Open(&[("pipeline", Leaf), ("notification", Leaf), ("revision", Leaf), ("compare", Leaf), ("previous", Leaf)]),
    ),
    ("git", Object(&[("sha", Leaf), ("url", Leaf), ("author", Leaf), ("message", Leaf), ("time", Leaf)])),
    ("pullRequest", Object(&[("number", Leaf), ("title", Leaf), ("url", Leaf), ("author", Leaf)])),
]);

/// The schema of the data of a [`PipelineSet`](relaybook_api::PipelineSet).
pub(crate) static SOURCE: DataSchema =
    Object(&[("apiVersion", Leaf), ("kind", Leaf), ("namespace", Leaf), ("name", Leaf), ("labels", Map)]);

impl DataSchema {
    /// Returns the field with this name, if this is an object that has it.
    pub(crate) fn field(&self, name: &str) -> Option<&'static Self> {
        match self {
            Object(fields) => fields.iter().find(|(field, _)| *field == name).map(|(_, shape)| shape),
            Open(fields) => Some(fields.iter().find(|(field, _)| *field == name).map_or(&Leaf, |(_, shape)| shape)),
            Leaf | Map => None,
        }
    }

    /// Returns the names of the fields, if this is an object.
    pub(crate) fn names(&self) -> Option<impl Iterator<Item = &'static str>> {
        match self {
            Leaf | Map => None,
            Object(fields) | Open(fields) => Some(fields.iter().map(|(name, _)| *name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::render::data::parameters::Visibility;
    use crate::render::{Data, Parameters, Values};
    use relaybook_api::values::looked_up::LookedUp;

    fn same(shape: &DataSchema, value: &Value, path: &str) {
        match (shape, value) {
            (Object(fields) | Open(fields), Value::Object(map)) => {
                // What only a thread has is not a part of all data. Recorded values, and what is at forges, are one only if there are some.
                let is_own = |name: &&str| match *name {
                    "thread" | "remembered" => false,
                    "git" | "pullRequest" | "compare" | "previous" | "labels" | "annotations" | "fields" | "cut" => {
                        map.contains_key(*name)
                    }
                    "author" | "message" | "time" if path == ".git" => map.contains_key(*name),
                    _ => true,
                };
                let mut names: Vec<_> = fields.iter().map(|(name, _)| *name).filter(is_own).collect();
                names.sort_unstable();
                let mut keys: Vec<_> = map.keys().map(String::as_str).collect();
                keys.sort_unstable();
                assert_eq!(names, keys, "{path}");
                let fields = fields.iter().filter(|(name, _)| is_own(name));
                fields.for_each(|(name, shape)| same(shape, &map[*name], &format!("{path}.{name}")));
            }
            (Map, Value::Object(map)) => assert!(map.values().all(Value::is_string), "{path}"),
            (Leaf, Value::String(_) | Value::Number(_) | Value::Bool(_)) => {}
            _ => panic!("{path}: {shape:?} is not the shape of {value}"),
        }
    }

    #[test]
    fn the_schema_has_the_shape_of_the_template_data() {
        // All data contain the field `test` only in a test.
        let found = LookedUp::sample();
        let samples = Data::samples().chain(Data::samples().map(|sample| sample.with_looked_up(&found)));
        for sample in samples.map(|sample| Data { test: true, ..sample }) {
            let values = Values::new(&sample, &Parameters::default()).unwrap();
            same(&ROOT, values.get(&[], Visibility::All).unwrap().unwrap(), "");
        }
    }
}
