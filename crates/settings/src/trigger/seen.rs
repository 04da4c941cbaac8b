//! What conditions read of one transition: the template data, as CEL values.
//!
//! In: a function that returns the data. Out: its fields. The data and its fields are computed only when a condition reads a field,
//! and only once for all conditions, because labels and annotations can be long.

use std::cell::{LazyCell, RefCell};
use std::collections::BTreeMap;

use kube_cel::cel::Value as CelValue;
use serde_json::{Result, Value, to_value};

use crate::cel::cel;
use crate::render::Data;

/// The data of one transition.
pub struct ConditionData<F: FnOnce() -> Data> {
    data: LazyCell<Data, F>,
    fields: RefCell<BTreeMap<String, CelValue>>,
}

impl<F: FnOnce() -> Data> ConditionData<F> {
    /// Creates the data without computing it yet.
    pub fn new(data: F) -> Self {
        Self { data: LazyCell::new(data), fields: RefCell::default() }
    }

    /// One field, by its name in templates.
    pub fn field(&self, name: &str) -> Result<CelValue> {
        if let Some(known) = self.fields.borrow().get(name) {
            return Ok(known.clone());
        }
        let made = cel(field(&self.data, name)?);
        self.fields.borrow_mut().insert(name.to_owned(), made.clone());
        Ok(made)
    }
}

/// Fields of the data that conditions cannot use: those that are known only when a delivery is sent, and whether it is a test.
pub(super) const LATER: [&str; 7] = ["superseded", "test", "context", "link", "links", "git", "pullRequest"];

/// A field of the data, except those of [`LATER`].
fn field(data: &Data, name: &str) -> Result<Value> {
    match name {
        "id" => to_value(&data.id),
        "serial" => to_value(data.serial),
        "type" => to_value(data.type_),
        "time" => to_value(data.time),
        "severity" => to_value(data.severity),
        "pipeline" => to_value(&data.pipeline),
        "subject" => to_value(&data.subject),
        "environment" => to_value(&data.environment),
        "target" => to_value(&data.target),
        "promotion" => to_value(&data.promotion),
        "revision" => to_value(&data.revision),
        "runningRevision" => to_value(&data.running_revision),
        "previousRevision" => to_value(&data.previous_revision),
        "status" => to_value(data.status),
        "previousStatus" => to_value(data.previous_status),
        "reason" => to_value(&data.reason),
        "message" => to_value(&data.message),
        "drifted" => to_value(data.drifted),
        "coalesced" => to_value(data.coalesced),
        "notification" => to_value(&data.notification),
        _ => Ok(Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use super::*;
    use relaybook_api::TransitionType;

    #[test]
    fn the_fields_of_conditions_are_those_of_the_template_data() {
        for data in Data::samples() {
            let whole = to_value(&data).unwrap();
            for (name, value) in whole.as_object().unwrap().iter().filter(|(name, _)| !LATER.contains(&name.as_str())) {
                assert_eq!(field(&data, name).unwrap(), *value, "{name}");
            }
        }
    }

    #[test]
    fn data_is_computed_once_and_only_when_it_is_read() {
        let made = Cell::new(0);
        let seen = ConditionData::new(|| {
            made.set(made.get() + 1);
            Data::sample(TransitionType::Failed)
        });
        assert_eq!(made.get(), 0);
        let map = || match seen.field("pipeline").unwrap() {
            CelValue::Map(map) => map.map,
            other => panic!("{other:?}"),
        };
        assert!(Arc::ptr_eq(&map(), &map()));
        assert_eq!(seen.fields.borrow().keys().collect::<Vec<_>>(), ["pipeline"]);
        assert_eq!(made.get(), 1);
    }
}
