//! Pure: what makes room when too much is followed, or kept.

use std::cmp::Reverse;
use std::collections::HashMap;

/// Returns what makes room for one more of `person`: of the person who has the most, what was not used for the longest time. Each entry has its
/// person, and when it was used.
pub(crate) fn surplus<'a, K, T: Ord>(all: impl Iterator<Item = (K, &'a str, T)>, person: &'a str) -> Option<K> {
    let all: Vec<_> = all.collect();
    let mut counts: HashMap<&str, usize> = HashMap::from([(person, 1)]);
    for (_, of, _) in &all {
        *counts.entry(of).or_default() += 1;
    }
    let count = |of: &str| Reverse(counts.get(of).copied());
    let oldest = all.into_iter().min_by(|one, other| (count(one.1), &one.2).cmp(&(count(other.1), &other.2)));
    oldest.map(|(key, ..)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stream_of_the_person_with_the_most_streams_is_removed() {
        let all = [(1, "ann", 10), (2, "bob", 1), (3, "ann", 5), (4, "eve", 2)];
        for (person, removed) in [("ann", 3), ("new", 3), ("bob", 2)] {
            assert_eq!(surplus(all.into_iter(), person), Some(removed), "{person}");
        }
        assert_eq!(surplus([(1, "ann", 7), (2, "bob", 3)].into_iter(), "new"), Some(2), "the oldest one");
        assert_eq!(surplus(std::iter::empty::<(u8, &str, u8)>(), "new"), None);
    }
}
