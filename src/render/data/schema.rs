//! Which fields [`Data`](crate::render::Data) has, so that a path is checked when a template is compiled and not when it is sent.

/// What stands at a path.
#[derive(Debug)]
pub(in crate::render) enum DataSchema {
    /// A text, number or boolean.
    Leaf,
    /// Labels or annotations: any name may be asked for, and none need be there.
    Map,
    /// An object whose fields are always there.
    Object(&'static [(&'static str, DataSchema)]),
}

use DataSchema::{Leaf, Map, Object};

/// The whole data.
pub(in crate::render) static ROOT: DataSchema = Object(&[
    ("id", Leaf),
    ("serial", Leaf),
    ("type", Leaf),
    ("time", Leaf),
    ("severity", Leaf),
    ("pipeline", Object(&[("name", Leaf), ("namespace", Leaf), ("uid", Leaf), ("labels", Map), ("annotations", Map)])),
    ("subject", Object(&[("kind", Leaf), ("name", Leaf)])),
    ("environment", Leaf),
    (
        "target",
        Object(&[
            ("name", Leaf),
            ("namespace", Leaf),
            ("cluster", Object(&[("name", Leaf), ("namespace", Leaf), ("kind", Leaf)])),
            ("app", Object(&[("apiVersion", Leaf), ("kind", Leaf), ("name", Leaf)])),
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
    ("parameters", Map),
    ("notification", Object(&[("name", Leaf), ("namespace", Leaf)])),
]);

impl DataSchema {
    /// The field of this name, if this is an object that has it.
    pub(in crate::render) fn field(&self, name: &str) -> Option<&'static Self> {
        match self {
            Object(fields) => fields.iter().find(|(field, _)| *field == name).map(|(_, shape)| shape),
            Leaf | Map => None,
        }
    }

    /// The fields below this, if it has any.
    pub(in crate::render) fn names(&self) -> Option<impl Iterator<Item = &'static str>> {
        match self {
            Leaf | Map => None,
            Object(fields) => Some(fields.iter().map(|(name, _)| *name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::render::data::parameters::Sight;
    use crate::render::{Data, Parameters, Values};

    fn same(shape: &DataSchema, value: &Value, path: &str) {
        match (shape, value) {
            (Object(fields), Value::Object(map)) => {
                let mut names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
                names.sort_unstable();
                let mut keys: Vec<_> = map.keys().map(String::as_str).collect();
                keys.sort_unstable();
                assert_eq!(names, keys, "{path}");
                fields.iter().for_each(|(name, shape)| same(shape, &map[*name], &format!("{path}.{name}")));
            }
            (Map, Value::Object(map)) => assert!(map.values().all(Value::is_string), "{path}"),
            (Leaf, Value::String(_) | Value::Number(_) | Value::Bool(_)) => {}
            _ => panic!("{path}: {shape:?} is not the shape of {value}"),
        }
    }

    #[test]
    fn the_shape_is_that_of_the_data() {
        for sample in Data::samples() {
            same(&ROOT, Values::new(&sample, &Parameters::default()).unwrap().get(&[], Sight::All).unwrap().unwrap(), "");
        }
    }
}
