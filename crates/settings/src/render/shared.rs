//! A cache of compiled bodies. Bodies with the same content type and source are compiled and stored only once.
//!
//! In: the content type and the source of a body. Out: the compiled body that is already in use, or a new one. Thousands of effective
//! notifications can have the same template and differ only in a parameter. Unused bodies are dropped.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

/// Below this number of entries, no entry is dropped.
const FEW: usize = 64;

/// The key of a compiled body. The values of parameters are not part of it, because they do not affect compilation. Callers check that the
/// parameters exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct BodyKey {
    content_type: String,
    source: String,
}

impl BodyKey {
    pub(super) fn new(content_type: &str, source: &str) -> Self {
        Self { content_type: content_type.to_owned(), source: source.to_owned() }
    }
}

/// The values in use, by key. The references are weak, so an unused value is freed.
pub(super) struct Shared<T>(LazyLock<Mutex<Made<T>>>);

struct Made<T> {
    all: HashMap<BodyKey, Weak<T>>,
    /// The number of entries at which unused entries are dropped.
    most: usize,
}

impl<T> Shared<T> {
    pub(super) const fn new() -> Self {
        Self(LazyLock::new(|| Mutex::new(Made { all: HashMap::new(), most: FEW })))
    }

    /// Returns the value in use if it `suits`, or else a new one. Two concurrent callers can both create a value. One of the two is then
    /// shared.
    pub(super) fn get_or_compile<E>(
        &self,
        key: BodyKey,
        suits: impl FnOnce(&T) -> bool,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let known = || self.0.lock();
        if let Some(made) = known().all.get(&key).and_then(Weak::upgrade).filter(|made| suits(made)) {
            return Ok(made);
        }
        let new = Arc::new(make()?);
        let mut known = known();
        if known.all.len() >= known.most {
            known.all.retain(|_, made| made.strong_count() > 0);
            known.most = FEW.max(2 * known.all.len());
        }
        known.all.insert(key, Arc::downgrade(&new));
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(content_type: &str, source: &str) -> BodyKey {
        BodyKey::new(content_type, source)
    }

    #[test]
    fn templates_with_the_same_source_are_compiled_once() {
        let shared = Shared::new();
        let get = |of, value: u8| shared.get_or_compile(of, |_| true, || Ok::<_, ()>(value)).unwrap();
        let one = get(of("text/plain", "a"), 1);
        assert!(Arc::ptr_eq(&one, &get(of("text/plain", "a"), 2)));
        for other in [of("text/html", "a"), of("text/plain", "b")] {
            assert_eq!(*get(other, 3), 3);
        }
        assert_eq!(
            shared.get_or_compile(of("text/plain", "a"), |_| false, || Err(4)),
            Err(4),
            "what does not suit is not given"
        );
        drop(one);
        assert_eq!(*get(of("text/plain", "a"), 5), 5);
        assert_eq!(shared.get_or_compile(of("text/plain", "c"), |_| true, || Err(6)), Err(6));
    }

    #[test]
    fn unused_compiled_templates_are_forgotten() {
        let shared = Shared::new();
        let make = |n: i32| shared.get_or_compile(of("text/plain", &n.to_string()), |_| true, || Ok::<_, ()>(n)).unwrap();
        let kept: Vec<_> = (0..10_000).map(make).filter(|n| **n % 100 == 0).collect();
        let known = shared.0.lock().all.len();
        assert!((kept.len()..4 * kept.len()).contains(&known), "{known} are known, {} are used", kept.len());
    }
}
