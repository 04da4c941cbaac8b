//! The length of a revision, revisions that were cut, and short hashes.

use sha2::{Digest as _, Sha256};

/// Maximum length of a revision in bytes. A revision occurs several times in a pipeline's status and in every delivery.
pub const MAX: usize = 256;
/// Number of hexadecimal digits of the hash that distinguishes a cut revision from others with the same start.
const HASH: usize = 16;
/// Precedes the hash.
const MARK: char = '~';
/// Number of bytes before the mark, if no character is in the way.
const START: usize = MAX - HASH - MARK.len_utf8();

/// The characters between the parts of a revision.
const SEPARATORS: [char; 4] = ['@', ':', '/', ','];
/// Numbers of hexadecimal digits of a whole hash: SHA-1, SHA-256, SHA-384 and SHA-512. A shorter text can be a version, such as a date.
const WHOLE: [usize; 4] = [40, 64, 96, 128];

/// A revision whose hashes have this number of digits. Nothing else is cut, because a part of a version is another version.
#[must_use]
pub fn with_short_hashes(revision: &str, digits: usize) -> String {
    let short = |part: &str| {
        let word = part.trim_end_matches(SEPARATORS);
        let is_hash = WHOLE.contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hash { format!("{}{}", &word[..digits.min(word.len())], &part[word.len()..]) } else { part.to_owned() }
    };
    revision.split_inclusive(SEPARATORS).map(short).collect()
}

/// Cuts a revision that is too long and appends a hash, so that different revisions stay different.
#[must_use]
pub fn cut(mut revision: String) -> String {
    if revision.len() > MAX {
        let hash = hex::encode(Sha256::digest(revision.as_bytes()));
        revision.truncate(revision.floor_char_boundary(START));
        revision.push(MARK);
        revision.push_str(&hash[..HASH]);
    }
    revision
}

/// Whether a revision is all that an application object reports. A cut one names nothing that ever ran, so it must not be written as the
/// revision to run. A whole revision of the same form cannot be distinguished from a cut one.
#[must_use]
pub fn is_whole(revision: &str) -> bool {
    let is_hash = |text: &str| text.len() == HASH && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    // A character has at most four bytes, so at most three of them are missing before the mark.
    let is_cut = |(start, hash): (&str, &str)| (START - 3..=START).contains(&start.len()) && is_hash(hash);
    revision.len() <= MAX && !revision.rsplit_once(MARK).is_some_and(is_cut)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn long_revisions_are_cut_and_stay_different() {
        let (one, two) = ("é".repeat(MAX) + "1", "é".repeat(MAX) + "2");
        assert!(cut(one.clone()).len() <= MAX);
        assert_ne!(cut(one), cut(two));
        assert_eq!(cut("x".repeat(MAX)), "x".repeat(MAX));
    }

    #[test]
    fn only_whole_hashes_are_shortened() {
        let (sha1, sha256) = ("5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c", "ab".repeat(32));
        for (revision, want) in [
            (String::new(), ""),
            ("10.12.345".to_owned(), "10.12.345"),
            ("v2.0.0-rc.1+build.7".to_owned(), "v2.0.0-rc.1+build.7"),
            ("20251121074714".to_owned(), "20251121074714"),
            ("1234567890abcdef".to_owned(), "1234567890abcdef"),
            (sha1.to_owned(), "5f3d2c1"),
            (format!("main@sha1:{sha1}"), "main@sha1:5f3d2c1"),
            (format!("{sha1}0"), "5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c0"),
            (format!("6.5.0@sha256:{sha256}"), "6.5.0@sha256:abababa"),
            (format!("10.12.345,sha256:{sha256},{sha1}"), "10.12.345,sha256:abababa,5f3d2c1"),
        ] {
            assert_eq!(with_short_hashes(&revision, 7), want, "{revision}");
        }
    }

    #[test]
    fn a_cut_revision_is_recognised() {
        let x = |count: usize| "x".repeat(count);
        for (revision, expected) in [
            (String::new(), true),
            ("6.5.1".to_owned(), true),
            ("~0123456789abcdef".to_owned(), true),
            (x(256), true),
            (x(235) + "~0123456789abcdef", true),
            (x(236) + "~0123456789abcdef", false),
            (x(239) + "~0123456789abcdef", false),
            (x(239) + "~0123456789ABCDEF", true),
            (x(239) + "-0123456789abcdef", true),
            (x(200) + "~0123456789abcdef" + &x(39), true),
            (x(257), false),
            (x(240) + "~0123456789abcdef", false),
        ] {
            assert_eq!(is_whole(&revision), expected, "{revision}");
        }
    }

    proptest! {
        #[test]
        fn every_cut_revision_is_recognised(text in "\\PC{60,300}", more in "\\PC{257}") {
            let (is_short, kept) = (text.len() <= MAX, cut(text.clone()));
            prop_assert_eq!(kept == text, is_short);
            prop_assert!(!is_whole(&cut(text + &more)));
        }
    }
}
