//! Values that the dispatcher keeps for objects, by uid.
//!
//! In: values of pipelines and notifications. Out: the values. A reconcile can end after its object was deleted, and store its value again.
//! So the values of objects that do not exist are dropped periodically.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;

/// Values by uid.
#[derive(Debug)]
pub(super) struct ByUid<T>(Mutex<HashMap<String, T>>);

impl<T> Default for ByUid<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> ByUid<T> {
    fn book(&self) -> MutexGuard<'_, HashMap<String, T>> {
        self.0.lock()
    }

    /// Stores a value.
    pub(super) fn put(&self, uid: &str, value: T) {
        self.book().insert(uid.to_owned(), value);
    }

    /// Removes and returns a value.
    pub(super) fn take(&self, uid: &str) -> Option<T> {
        self.book().remove(uid)
    }

    /// Returns a copy of a value.
    pub(super) fn get(&self, uid: &str) -> Option<T>
    where
        T: Clone,
    {
        self.book().get(uid).cloned()
    }

    /// Changes a value. A value that does not exist starts as the default. Returns the value before the change.
    pub(super) fn replace(&self, uid: &str, change: impl FnOnce(T) -> T) -> T
    where
        T: Copy + Default,
    {
        let mut book = self.book();
        let value = book.entry(uid.to_owned()).or_default();
        std::mem::replace(value, change(*value))
    }

    /// Drops the values of objects that do not exist. Returns the number of remaining values.
    pub(super) fn tidy(&self, is_there: impl Fn(&str) -> bool) -> usize {
        let mut book = self.book();
        book.retain(|uid, _| is_there(uid));
        let left = book.len();
        book.shrink_to(2 * left);
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_deleted_objects_leave_no_entries_behind() {
        let values = ByUid::default();
        for n in 0..10_000u32 {
            let uid = format!("u{n}");
            values.put(&uid, n);
            let taken = values.take(&uid);
            assert_eq!((taken, values.get(&uid)), (Some(n), None));
            // The object was deleted, and its reconcile ends only now.
            values.put(&uid, n);
            assert_eq!(values.replace(&uid, |n| n + 1), n);
        }
        assert_eq!(values.tidy(|_| true), 10_000);
        assert_eq!(values.tidy(|uid| uid == "u7"), 1);
        assert_eq!(values.get("u7"), Some(8));
        assert!(values.book().capacity() < 100);
    }
}
