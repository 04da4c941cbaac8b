//! Safe access to the JSON of an object. A field that is missing or has another type counts as absent. Two fields are exceptions, because an
//! object without them can look complete: the generation that the status describes, and the list of conditions.

use kube_core::DynamicObject;
use serde_json::Value;

/// One application object.
pub(super) struct View<'a> {
    object: &'a DynamicObject,
}

/// A field has a shape that no controller should write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnknownShape;

/// One entry of `status.conditions`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition<'a> {
    status: &'a str,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
    /// The generation that the status describes, if it has one.
    pub(super) observed_generation: Option<i64>,
    /// When the condition last changed, as its controller wrote it. Only Fleet's conditions have this field.
    pub(super) updated: &'a str,
}

impl Condition<'_> {
    pub(super) fn is_true(&self) -> bool {
        self.status == "True"
    }

    pub(super) fn is_false(&self) -> bool {
        self.status == "False"
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.status == "Unknown"
    }
}

/// The conditions of a list, with their types.
pub(super) fn conditions(list: &[Value]) -> impl Iterator<Item = (&str, Condition<'_>)> {
    fn text<'a>(condition: &'a Value, key: &str) -> &'a str {
        condition.get(key).and_then(Value::as_str).unwrap_or_default()
    }
    list.iter().map(|c| {
        let condition = Condition {
            status: text(c, "status"),
            reason: text(c, "reason"),
            message: text(c, "message"),
            observed_generation: c.get("observedGeneration").and_then(Value::as_i64),
            updated: text(c, "lastUpdateTime"),
        };
        (text(c, "type"), condition)
    })
}

impl<'a> View<'a> {
    pub(super) fn new(object: &'a DynamicObject) -> Self {
        Self { object }
    }

    /// The value at a JSON Pointer.
    pub(super) fn at(&self, pointer: &str) -> Option<&'a Value> {
        self.object.data.pointer(pointer)
    }

    /// The string at a JSON Pointer, or an empty string.
    pub(super) fn text(&self, pointer: &str) -> &'a str {
        self.at(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The whole number at a JSON Pointer.
    pub(super) fn int(&self, pointer: &str) -> Option<i64> {
        self.at(pointer).and_then(Value::as_i64)
    }

    /// Whether the value at a JSON Pointer is `true`.
    pub(super) fn flag(&self, pointer: &str) -> bool {
        self.at(pointer).and_then(Value::as_bool).unwrap_or_default()
    }

    /// The list at a JSON Pointer, or an empty list.
    pub(super) fn list(&self, pointer: &str) -> &'a [Value] {
        self.at(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The value of a label, or an empty string.
    pub(super) fn label(&self, name: &str) -> &'a str {
        self.object.metadata.labels.as_ref().and_then(|l| l.get(name)).map_or("", String::as_str)
    }

    /// The value of an annotation, or an empty string.
    pub(super) fn annotation(&self, name: &str) -> &'a str {
        self.object.metadata.annotations.as_ref().and_then(|a| a.get(name)).map_or("", String::as_str)
    }

    /// Its API group and its kind.
    pub(super) fn group_and_kind(&self) -> (&'a str, &'a str) {
        let Some(types) = &self.object.types else { return ("", "") };
        (types.api_version.rsplit_once('/').map_or("", |(group, _)| group), &types.kind)
    }

    /// Its namespace and its name.
    pub(super) fn place(&self) -> (&'a str, &'a str) {
        let metadata = &self.object.metadata;
        (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
    }

    /// The first condition of this type.
    pub(super) fn condition(&self, type_: &str) -> Option<Condition<'a>> {
        conditions(self.list("/status/conditions")).find(|(found, _)| *found == type_).map(|(_, condition)| condition)
    }

    /// The condition of this type if it is `True`.
    pub(super) fn condition_true(&self, type_: &str) -> Option<Condition<'a>> {
        self.condition(type_).filter(Condition::is_true)
    }

    /// Whether any controller has written a status.
    pub(super) fn has_status(&self) -> bool {
        self.object.data.get("status").and_then(Value::as_object).is_some_and(|s| !s.is_empty())
    }

    pub(super) fn is_being_deleted(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    /// The generation of the spec. Kinds without a status subresource have none.
    pub(super) fn generation(&self) -> Option<i64> {
        self.object.metadata.generation
    }

    /// The generation that the status describes: `status.observedGeneration`, or else that of its `Ready` condition. Some controllers write it as
    /// a text. `Err`: it is neither a number nor the text of one.
    pub(super) fn observed_generation(&self) -> Result<Option<i64>, UnknownShape> {
        match self.at("/status/observedGeneration") {
            None | Some(Value::Null) => Ok(self.condition("Ready").and_then(|c| c.observed_generation)),
            Some(Value::Number(number)) => number.as_i64().map(Some).ok_or(UnknownShape),
            Some(Value::String(text)) => text.parse().map(Some).map_err(|_| UnknownShape),
            Some(_) => Err(UnknownShape),
        }
    }

    /// Whether the conditions are a list of objects, or absent.
    pub(super) fn has_known_conditions(&self) -> bool {
        match self.at("/status/conditions") {
            None | Some(Value::Null) => true,
            Some(conditions) => conditions.as_array().is_some_and(|all| all.iter().all(Value::is_object)),
        }
    }
}
