//! Pure: server-side apply (<https://kubernetes.io/docs/reference/using-api/server-side-apply/>).
//!
//! In: the stored object, and what a field manager applies. Out: the changed object, and who has set which field.
//!
//! The real API server reads the types of lists from the schema. Here each list is one value, as with the type `atomic`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::object::{KEPT, Object};

/// Who has set a field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Manager {
    /// All writers without apply.
    Update,
    /// A field manager that applies.
    Apply(String),
}

/// The path of a value that is no map.
type Leaf = Vec<String>;

/// Which manager has set which fields. Empty: the object was never applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Owners(BTreeMap<Manager, BTreeSet<Leaf>>);

impl Owners {
    /// Returns the owners after a write without apply.
    pub(super) fn after_update(&self, old: &Value, new: &Value) -> Self {
        let mut owners = self.clone();
        if owners.0.is_empty() {
            return owners;
        }
        let (before, after) = (leaves(old), leaves(new));
        let written: BTreeSet<Leaf> = after.iter().filter(|leaf| at(old, leaf) != at(new, leaf)).cloned().collect();
        for leaves in owners.0.values_mut() {
            leaves.retain(|leaf| !written.contains(leaf) && (after.contains(leaf) || !before.contains(leaf)));
        }
        owners.0.entry(Manager::Update).or_default().extend(written);
        owners.0.retain(|_, leaves| !leaves.is_empty());
        owners
    }
}

/// Applies a configuration to an object.
///
/// # Errors
///
/// The fields that another manager has set to another value. With `force` there are none.
pub(super) fn apply(
    live: Option<&Object>,
    config: &Value,
    manager: &str,
    force: bool,
) -> Result<(Value, Owners), Vec<String>> {
    let manager = Manager::Apply(manager.to_owned());
    let wanted = leaves(config);
    let Some(live) = live else { return Ok((config.clone(), Owners(BTreeMap::from([(manager, wanted)])))) };
    let mut owners = live.owners.clone();
    if owners.0.is_empty() {
        owners.0.insert(Manager::Update, leaves(&live.value));
    }
    let mine = owners.0.remove(&manager).unwrap_or_default();
    let is_others = |owners: &Owners, leaf: &Leaf| owners.0.values().any(|leaves| leaves.contains(leaf));
    let changed: Vec<&Leaf> = wanted.iter().filter(|leaf| at(&live.value, leaf) != at(config, leaf)).collect();
    let conflicts = changed.iter().filter(|leaf| is_others(&owners, leaf)).map(|leaf| format!(".{}", leaf.join(".")));
    let conflicts: Vec<String> = conflicts.collect();
    if !conflicts.is_empty() && !force {
        return Err(conflicts);
    }
    let mut next = live.value.clone();
    for leaf in mine.difference(&wanted).filter(|leaf| !is_others(&owners, leaf)) {
        remove(&mut next, leaf);
    }
    for leaf in changed {
        owners.0.values_mut().for_each(|leaves| _ = leaves.remove(leaf));
        put(&mut next, leaf, at(config, leaf).cloned().unwrap_or_default());
    }
    // A version or a uid is a condition.
    for field in ["resourceVersion", "uid"] {
        if let Some(value) = config["metadata"].get(field) {
            next["metadata"][field] = value.clone();
        }
    }
    owners.0.insert(manager, wanted);
    owners.0.retain(|_, leaves| !leaves.is_empty());
    Ok((next, owners))
}

/// Returns the paths of all values of the content that are no maps.
fn leaves(object: &Value) -> BTreeSet<Leaf> {
    fn add(value: &Value, path: &mut Leaf, all: &mut BTreeSet<Leaf>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let is_system = match &path[..] {
                        [] => name == "apiVersion" || name == "kind",
                        [parent] => parent == "metadata" && (KEPT.contains(&name.as_str()) || name == "managedFields"),
                        _ => false,
                    };
                    if !is_system {
                        path.push(name.clone());
                        add(value, path, all);
                        path.pop();
                    }
                }
            }
            _ => _ = all.insert(path.clone()),
        }
    }
    let mut all = BTreeSet::new();
    add(object, &mut Vec::new(), &mut all);
    all
}

fn at<'a>(value: &'a Value, leaf: &Leaf) -> Option<&'a Value> {
    leaf.iter().try_fold(value, |value, name| value.get(name))
}

fn put(value: &mut Value, leaf: &Leaf, content: Value) {
    let mut slot = value;
    for name in leaf {
        if !slot.is_object() {
            *slot = Value::Object(Map::new());
        }
        slot = &mut slot[name];
    }
    *slot = content;
}

/// Removes a value, and the maps that become empty by it.
fn remove(value: &mut Value, leaf: &[String]) {
    let Some((name, rest)) = leaf.split_first() else { return };
    let Value::Object(fields) = value else { return };
    if let Some(inner) = fields.get_mut(name).filter(|_| !rest.is_empty()) {
        remove(inner, rest);
        if inner.as_object().is_none_or(|inner| !inner.is_empty()) {
            return;
        }
    }
    fields.remove(name);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manager_changes_its_own_fields_and_takes_those_of_others_by_force() {
        // What a writer without apply has created, what two managers apply one after the other, and the result.
        let table = [
            ("a new field", json!({}), json!({"x": 1}), json!({"y": 2}), false, Ok(json!({"x": 1, "y": 2}))),
            ("the same value", json!({}), json!({"x": 1}), json!({"x": 1}), false, Ok(json!({"x": 1}))),
            ("another value", json!({}), json!({"x": 1}), json!({"x": 2}), false, Err(vec![".data.x".to_owned()])),
            ("another value, by force", json!({}), json!({"x": 1}), json!({"x": 2}), true, Ok(json!({"x": 2}))),
            ("of the creator", json!({"x": 1}), json!({}), json!({"x": 2}), false, Err(vec![".data.x".to_owned()])),
            ("of the creator, the same", json!({"x": 1}), json!({"x": 1}), json!({}), false, Ok(json!({"x": 1}))),
        ];
        for (what, created, one, two, force, expected) in table {
            let with = |data: Value| json!({"metadata": {"name": "n"}, "data": data});
            let base = Object::new(with(created), Owners::default(), 1);
            let (value, owners) = apply(Some(&base), &with(one), "one", true).unwrap();
            let result = apply(Some(&Object::new(value, owners, 2)), &with(two), "two", force);
            assert_eq!(result.map(|(value, _)| value["data"].clone()), expected, "{what}");
        }
    }

    #[test]
    fn what_a_manager_does_not_apply_any_more_is_removed_unless_another_one_has_set_it() {
        let with = |data: Value| json!({"metadata": {"name": "n"}, "data": data});
        let (value, owners) = apply(None, &with(json!({"x": 1, "y": 1})), "one", false).unwrap();
        let (value, owners) = apply(Some(&Object::new(value, owners, 1)), &with(json!({"y": 1})), "two", false).unwrap();
        let both = Object::new(value, owners, 2);
        let (value, owners) = apply(Some(&both), &with(json!({"z": 1})), "one", false).unwrap();
        assert_eq!(value["data"], json!({"y": 1, "z": 1}));
        // A writer without apply takes what it changes.
        let edited = with(json!({"y": 1, "z": 2}));
        let owners = owners.after_update(&value, &edited);
        let result = apply(Some(&Object::new(edited, owners, 3)), &with(json!({})), "one", false).unwrap();
        assert_eq!(result.0["data"], json!({"y": 1, "z": 2}));
    }
}
