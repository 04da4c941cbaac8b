//! Buckets: into which part of the work an object falls, and how many parts each replica has. Pure.
//!
//! In: the uid of an object; the names of the replicas. Out: its [`Bucket`]; how many buckets each replica has. All replicas compute the same.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Number of buckets. The Lease of an installation depends on it: replicas with another number wait until these have ended.
pub const COUNT: u8 = 16;

/// One part of the work of a controller: 0 to 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(u8);

impl Bucket {
    /// The bucket of work that belongs to no single object, such as the copy of the global configuration.
    pub const COMMON: Self = Self(0);

    /// Returns the bucket of an object, by its uid: the first byte of a SHA-256, modulo 16.
    #[must_use]
    pub fn of(uid: &str) -> Self {
        Self(Sha256::digest(uid)[0] % COUNT)
    }

    /// Returns all buckets.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..COUNT).map(Self)
    }

    /// Returns the number of the bucket.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the number of the bucket, as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of buckets.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Buckets(u16);

impl Buckets {
    /// No bucket.
    pub const NONE: Self = Self(0);
    /// All buckets.
    pub const ALL: Self = Self(u16::MAX);

    /// Returns the set with these bits: bit 0 is bucket 0.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns one bit for each bucket: bit 0 is bucket 0.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether it contains a bucket.
    #[must_use]
    pub const fn contains(self, bucket: Bucket) -> bool {
        self.0 & (1 << bucket.0) != 0
    }

    /// Whether it contains no bucket.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of its buckets.
    #[must_use]
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the buckets of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the buckets that are in both.
    #[must_use]
    pub const fn also_in(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns its buckets that are not in the other set.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns its buckets, in ascending order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Bucket> {
        Bucket::all().filter(move |bucket| self.contains(*bucket))
    }

    /// Returns its first buckets, at most this many.
    #[must_use]
    pub fn first(self, most: usize) -> Self {
        self.iter().take(most).collect()
    }

    /// Returns its last buckets, at most this many.
    #[must_use]
    pub fn last(self, most: usize) -> Self {
        self.iter().rev().take(most).collect()
    }
}

impl FromIterator<Bucket> for Buckets {
    fn from_iter<I: IntoIterator<Item = Bucket>>(buckets: I) -> Self {
        Self(buckets.into_iter().fold(0, |all, bucket| all | (1 << bucket.0)))
    }
}

impl fmt::Debug for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Bucket::number)).finish()
    }
}

/// Returns how many buckets a replica has: the same for all, and one more for the first ones by name, if the number is not a multiple.
#[must_use]
pub fn quota<'a>(of: &str, members: impl Iterator<Item = &'a str> + Clone) -> usize {
    let count = members.clone().count().max(1);
    let before = members.filter(|member| *member < of).count();
    let all = usize::from(COUNT);
    all / count + usize::from(before < all % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_of_an_object_never_changes() {
        // Replicas of different versions run together during an update. So these values must not change.
        let uids = ["", "u", "0f3b2a52-8c14-4a4e-9f3e-2f0f5f0d7c11", "0f3b2a52-8c14-4a4e-9f3e-2f0f5f0d7c12"];
        assert_eq!(uids.map(|uid| Bucket::of(uid).number()), [3, 11, 9, 5]);
        let mut counts = [0; COUNT as usize];
        for number in 0..16_000 {
            counts[Bucket::of(&format!("{number:08}-8c14-4a4e-9f3e-2f0f5f0d7c11")).index()] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_quotas_of_replicas_add_up_and_differ_by_one_at_most() {
        for count in 1..40 {
            let names: Vec<String> = (0..count).map(|number| format!("pod-{number:02}")).collect();
            let quotas: Vec<_> = names.iter().map(|name| quota(name, names.iter().map(String::as_str))).collect();
            assert_eq!(quotas.iter().sum::<usize>(), usize::from(COUNT), "{quotas:?}");
            assert!(quotas.iter().max().unwrap() - quotas.iter().min().unwrap() <= 1, "{quotas:?}");
        }
    }

    #[test]
    fn sets_of_buckets_support_union_intersection_and_difference() {
        let some: Buckets = Bucket::all().filter(|bucket| bucket.number() % 5 == 1).collect();
        assert_eq!(format!("{some:?}"), "{1, 6, 11}");
        assert_eq!((some.count(), some.first(2).count(), some.first(9)), (3, 2, some));
        assert_eq!(format!("{:?} {:?}", some.last(1), some.without(some.first(1))), "{11} {6, 11}");
        assert_eq!(Buckets::ALL.without(some).and(some), Buckets::ALL);
        assert_eq!(Buckets::ALL.also_in(some), some);
        assert!(Buckets::NONE.is_empty() && !some.contains(Bucket::COMMON) && Buckets::ALL.contains(Bucket::COMMON));
    }
}
