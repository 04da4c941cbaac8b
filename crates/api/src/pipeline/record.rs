//! What changes contain of an application object beside its status: labels, annotations and fields that the spec lists. Pure.
//!
//! The values are recorded with the change, because a delivery that is derived again after a crash must have the same content.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PipelineSpec, is_false};

/// Maximum number of names of one pipeline.
pub const MAX_RECORDED: usize = 8;
/// Maximum length of a value, in bytes.
pub const MAX_RECORDED_VALUE: usize = 256;
/// Maximum length of all names and values of a change, in bytes.
pub const MAX_RECORDED_BYTES: usize = 1024;

/// The name of a label or an annotation.
const NAME: &str = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$";

/// What changes contain of the application object of each target. Nothing else of its labels, annotations and fields is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "(has(self.labels) ? size(self.labels) : 0) + (has(self.annotations) ? size(self.annotations) : 0) + (has(self.fields) ? size(self.fields) : 0) <= 8",
     "message": "record can have at most 8 names in total; remove some"},
]))]
pub struct Record {
    /// Names of labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 317), regex(pattern = NAME)))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub labels: Vec<String>,
    /// Names of annotations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 317), regex(pattern = NAME)))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub annotations: Vec<String>,
    /// Paths of fields in JSONPath, such as `.spec.project`. Templates find a value under the path as it is written here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 256)))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub fields: Vec<String>,
}

impl Record {
    /// The number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len() + self.annotations.len() + self.fields.len()
    }

    /// Whether nothing is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl PipelineSpec {
    /// Returns what is recorded, with its names in order, so that pipelines that list the same names share a watch. `None`: nothing.
    #[must_use]
    pub fn recorded(&self) -> Option<Arc<Record>> {
        let mut record = self.record.clone().filter(|record| !record.is_empty())?;
        for names in [&mut record.labels, &mut record.annotations, &mut record.fields] {
            names.sort_unstable();
            names.dedup();
        }
        Some(Arc::new(record))
    }
}

/// What was recorded of an application object with a change. A name that the object does not have is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recorded {
    /// Labels, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8), schema_with = "values")]
    pub labels: BTreeMap<String, String>,
    /// Annotations, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8), schema_with = "values")]
    pub annotations: BTreeMap<String, String>,
    /// Fields, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8), schema_with = "values")]
    pub fields: BTreeMap<String, String>,
    /// Whether a value is missing: it was left out, because it alone or all together are too long, or the object was never seen. A value is
    /// never shortened: a part of a name can be another name.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cut: bool,
}

/// Returns the schema of recorded values.
fn values(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": 256},
    })
}

impl Recorded {
    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Leaves out values until names and values have at most `max` bytes: the longest first, of equal ones the first in the order of the
    /// fields and names.
    pub fn shorten(&mut self, max: usize) {
        while self.bytes() > max {
            let Some((of, name)) = self.longest() else { return };
            let values = match of {
                0 => &mut self.labels,
                1 => &mut self.annotations,
                _ => &mut self.fields,
            };
            values.remove(&name);
            self.cut = true;
        }
    }

    fn bytes(&self) -> usize {
        self.maps().into_iter().flatten().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Returns the map and the name of the longest value.
    fn longest(&self) -> Option<(usize, String)> {
        let mut longest: Option<(usize, usize, &String)> = None;
        for (of, values) in self.maps().into_iter().enumerate() {
            for (name, value) in values {
                if longest.is_none_or(|(length, ..)| value.len() > length) {
                    longest = Some((value.len(), of, name));
                }
            }
        }
        longest.map(|(_, of, name)| (of, name.clone()))
    }

    fn maps(&self) -> [&BTreeMap<String, String>; 3] {
        [&self.labels, &self.annotations, &self.fields]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, usize)]) -> BTreeMap<String, String> {
        entries.iter().map(|(name, length)| ((*name).to_owned(), "x".repeat(*length))).collect()
    }

    fn names(of: &Recorded) -> Vec<&str> {
        of.maps().into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn the_longest_values_are_left_out_first_and_none_is_shortened() {
        let full = Recorded {
            labels: map(&[("a", 10), ("b", 20)]),
            annotations: map(&[("c", 20), ("d", 5)]),
            fields: map(&[(".e", 20)]),
            cut: false,
        };
        for (max, want) in [
            (1000, &["a", "b", "c", "d", ".e"][..]),
            (81, &["a", "b", "c", "d", ".e"]),
            (80, &["a", "c", "d", ".e"]),
            (40, &["a", "d", ".e"]),
            (39, &["a", "d", ".e"]),
            (38, &["a", "d"]),
            (6, &["d"]),
            (0, &[]),
        ] {
            let mut left = full.clone();
            left.shorten(max);
            assert_eq!((names(&left).as_slice(), left.cut), (want, want.len() < 5), "{max}");
            let is_whole = |(map, of): (&BTreeMap<String, String>, &BTreeMap<String, String>)| {
                map.iter().all(|(name, value)| of.get(name) == Some(value))
            };
            assert!(left.maps().into_iter().zip(full.maps()).all(is_whole), "{max}");
            let again = left.clone();
            left.shorten(max);
            assert_eq!(left, again, "twice is once");
        }
    }

    #[test]
    fn pipelines_that_record_the_same_names_in_another_order_record_the_same() {
        let spec = |labels: &[&str], fields: &[&str]| {
            let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let record = Record { labels: of(labels), fields: of(fields), ..Record::default() };
            PipelineSpec { record: Some(record), ..PipelineSpec::default() }.recorded()
        };
        assert_eq!(spec(&["b", "a", "a"], &[".y", ".x"]), spec(&["a", "b"], &[".x", ".y"]));
        assert_eq!(spec(&[], &[]), None);
        assert_eq!(PipelineSpec::default().recorded(), None);
    }

    #[test]
    fn a_state_without_recorded_values_is_stored_as_before() {
        let stored = serde_json::to_value(crate::State::default()).unwrap();
        assert_eq!(stored.get("recorded"), None);
        let known: crate::State = serde_json::from_value(stored).unwrap();
        assert_eq!(known.recorded, None);
    }
}
