//! The meaning of a revision that a person writes.
//!
//! In: the text of the person, and revisions as application objects report them. Out: whether they mean the same
//! ([`Requested::matches`]), or why the text does not name one revision ([`Requested::check`]). Pure.
//!
//! `relaybook promote` and `relaybook approve` compare whole revisions, because they act. This is more tolerant, because CI jobs know a commit
//! or a tag, and not the form in which Flux or Argo CD reports it.

use std::collections::BTreeSet;
use std::ops::Range;

use relaybook_api::values::revision::{cut, with_short_hashes};
use relaybook_core::promotion::text::shown;

/// The characters between the parts of the revision of one source.
const SEPARATORS: [char; 3] = ['@', ':', '/'];
/// The character between the revisions of several sources or containers.
const ITEM: char = ',';
/// Numbers of hexadecimal digits of a whole hash: SHA-1, SHA-256, SHA-384 and SHA-512.
const WHOLE: [usize; 4] = [40, 64, 96, 128];
/// Minimum number of digits that name a commit, and the number of digits in messages.
const SHORTEST: usize = 7;
/// Numbers of digits with which a person can mean a commit, and that are too few. Git accepts no fewer than 4.
const TOO_SHORT: Range<usize> = 4..SHORTEST;

/// Why a text does not name one revision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevisionError {
    /// It is the name before the hash.
    #[error("{requested} is a branch or a tag, not a revision: it can move; of {revision}, write {example}")]
    Branch {
        /// The text.
        requested: String,
        /// The revision that has it as a name.
        revision: String,
        /// What to write instead.
        example: String,
    },
    /// Several hashes begin with it.
    #[error("{requested} is ambiguous: {one} and {other} begin with it; write more digits")]
    Ambiguous {
        /// The text.
        requested: String,
        /// One hash.
        one: String,
        /// Another hash.
        other: String,
    },
    /// A hash begins with it, and it has too few digits.
    #[error("{requested} is too short for a commit: write at least 7 digits, such as {example}")]
    TooShort {
        /// The text.
        requested: String,
        /// What to write instead.
        example: String,
    },
}

/// The revision that a person asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    text: String,
    /// The text as a status has it if it is a whole revision.
    whole: String,
    /// The text in lower case, if it consists of hexadecimal digits.
    digits: Option<String>,
}

impl Requested {
    /// Reads the text of a person. `None`: it is empty, or contains a space or a control character.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let fits = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        fits.then(|| Self {
            text: text.to_owned(),
            whole: cut(text.to_owned()),
            digits: is_hex.then(|| text.to_ascii_lowercase()),
        })
    }

    /// Returns the text for a message.
    #[must_use]
    pub fn shown(&self) -> String {
        short(&self.text)
    }

    /// Whether a revision is the requested one, as a whole or as one item of a list. The text after `@`, `:` or the last `/` of an item is
    /// sufficient, and so are at least 7 digits with which a hash begins.
    #[must_use]
    pub fn matches(&self, revision: &str) -> bool {
        self.is_written_in(revision) || self.hashes(revision).next().is_some()
    }

    /// Returns the hashes of a revision that begin with the text, if it has enough digits.
    pub(super) fn hashes<'r>(&self, revision: &'r str) -> impl Iterator<Item = &'r str> {
        let digits = self.digits.as_deref().filter(|digits| digits.len() >= SHORTEST);
        let all = revision.split(ITEM).filter_map(hash);
        all.filter(move |hash| digits.is_some_and(|digits| begins(hash, digits)))
    }

    /// Checks that the text names one revision. `own`: the revisions of the environment. `all`: those of the pipeline. `hashes`: what
    /// [`Requested::hashes`] has returned since the wait began.
    pub(super) fn check(&self, own: &[&str], all: &[&str], hashes: &BTreeSet<String>) -> Result<(), RevisionError> {
        if own.iter().any(|revision| self.is_written_in(revision)) {
            return Ok(());
        }
        let mut found = hashes.iter();
        if let (Some(one), Some(other)) = (found.next(), found.next()) {
            let (requested, one, other) = (self.shown(), shown(one), shown(other));
            return Err(RevisionError::Ambiguous { requested, one, other });
        }
        let mut items = all.iter().flat_map(|revision| revision.split(ITEM));
        if let Some(item) = items.clone().find(|item| self.is_name_in(item)) {
            let example = hash(item).map_or_else(|| after_name(item), |hash| &hash[..SHORTEST]);
            return Err(RevisionError::Branch { requested: self.shown(), revision: short(item), example: shown(example) });
        }
        let digits = self.digits.as_deref().filter(|digits| TOO_SHORT.contains(&digits.len()));
        match digits.and_then(|digits| items.find_map(|item| hash(item).filter(|hash| begins(hash, digits)))) {
            Some(hash) => Err(RevisionError::TooShort { requested: self.shown(), example: hash[..SHORTEST].to_owned() }),
            None => Ok(()),
        }
    }

    /// Whether the text is the revision, one item of it, or the end of an item after a separator.
    fn is_written_in(&self, revision: &str) -> bool {
        let ends = |item: &str| {
            let mut ends = SEPARATORS.into_iter().filter_map(|separator| item.rsplit_once(separator));
            ends.any(|(_, end)| end == self.text)
        };
        revision == self.whole || revision.split(ITEM).any(|item| item == self.text || ends(item))
    }

    /// Whether the text is the name in front of an item, or the end of that name after a `/`.
    fn is_name_in(&self, item: &str) -> bool {
        let rest = name(item).and_then(|name| name.strip_suffix(&*self.text));
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    }
}

/// Returns a revision for a message.
pub(super) fn short(revision: &str) -> String {
    shown(&with_short_hashes(revision, SHORTEST))
}

/// Returns the hash at the end of an item.
fn hash(item: &str) -> Option<&str> {
    let last = item.rsplit(SEPARATORS).next().unwrap_or(item);
    (WHOLE.contains(&last.len()) && last.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(last)
}

/// Returns the name of the branch or tag in front of an item.
fn name(item: &str) -> Option<&str> {
    let before_hash = || item.strip_suffix(hash(item)?)?.strip_suffix('/');
    item.split_once('@').map(|(name, _)| name).or_else(before_hash)
}

fn after_name(item: &str) -> &str {
    item.split_once('@').map_or(item, |(_, rest)| rest)
}

/// Whether a hash begins with these digits, which are in lower case.
fn begins(hash: &str, digits: &str) -> bool {
    hash.get(..digits.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA1: &str = "5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c";
    const OTHER: &str = "5f3d2c1fffffffffffffffffffffffffffffffff";

    fn requested(text: &str) -> Requested {
        Requested::new(text).unwrap()
    }

    #[test]
    fn a_revision_has_several_forms() {
        let digest = "ab".repeat(32);
        let forms =
            [format!("main@sha1:{SHA1}"), format!("main/{SHA1}"), format!("6.5.0@sha256:{digest}"), format!("6.5.0,{SHA1}")];
        let ([flux, old, oci, list], digest) = (forms.each_ref().map(String::as_str), digest.as_str());
        for (revision, same, others) in [
            ("6.7.1", &["6.7.1"][..], &["6.7", "6.7.10", "7.1", "v6.7.1", "1"][..]),
            ("6.5.0+1a2b3c4d5e6f", &["6.5.0+1a2b3c4d5e6f"], &["6.5.0", "1a2b3c4d5e6f"]),
            (flux, &[flux, SHA1, "5f3d2c1", "5F3D2C1B", "5f3d2c1b0a9e8d7c"], &["main", "sha1", "5f3d2c", "0a9e8d7c", OTHER]),
            (old, &[old, SHA1, "5f3d2c1"], &["main"]),
            (oci, &[oci, digest, &digest[..7], &oci[6..]], &["6.5.0", "sha256", "6.5"]),
            (list, &["6.5.0", SHA1, "5f3d2c1", list], &["6.5", "5"]),
            ("1.2,1.3", &["1.2", "1.3", "1.2,1.3"], &["1.3,1.2", "1"]),
            ("refs/tags/v1.2", &["v1.2", "refs/tags/v1.2"], &["tags/v1.2", "1.2"]),
            // A version, although it consists of hexadecimal digits.
            ("20251121074714", &["20251121074714"], &["2025112", "20251121"]),
            ("", &[], &["6.7.1"]),
        ] {
            for text in same {
                assert!(requested(text).matches(revision), "{text} is {revision}");
            }
            for text in others {
                assert!(!requested(text).matches(revision), "{text} is not {revision}");
            }
        }
        for text in ["", " ", "a b", "a\n"] {
            assert_eq!(Requested::new(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_long_revision_is_found_as_the_status_has_it() {
        let long = "x".repeat(300);
        assert!(requested(&long).matches(&cut(long.clone())));
        assert!(!requested(&format!("{long}y")).matches(&cut(long)));
    }

    #[test]
    fn a_text_that_does_not_name_one_revision_is_refused() {
        let flux = |name: &str, hash: &str| format!("{name}@sha1:{hash}");
        let check = |text: &str, own: &[&str], all: &[&str]| {
            let requested = requested(text);
            let all = [own, all].concat();
            let hashes = all.iter().flat_map(|revision| requested.hashes(revision)).map(str::to_owned).collect();
            requested.check(own, &all, &hashes).map_err(|error| error.to_string())
        };
        let (main, feature) = (flux("main", SHA1), flux("refs/heads/feature/x", SHA1));
        let (other, old) = (flux("main", OTHER), format!("main/{SHA1}"));
        for (text, own, all, words) in [
            ("5f3d2c1", &[&*main][..], &[][..], ""),
            ("5f3d2c1", &[&*main], &[&*main], ""),
            (
                "main",
                &[&*main],
                &[],
                "main is a branch or a tag, not a revision: it can move; of main@sha1:5f3d2c1, write 5f3d2c1",
            ),
            ("main", &[&*old], &[], "main is a branch or a tag"),
            ("feature/x", &[&*feature], &[], "feature/x is a branch or a tag"),
            ("x", &[&*feature], &[], "x is a branch or a tag"),
            ("main", &["1"], &[&*main], "main is a branch or a tag"),
            ("main", &["main"], &[&*main], ""),
            ("1.2", &["1.2@r7"], &[], "of 1.2@r7, write r7"),
            ("ain", &[&*main], &[], ""),
            (
                "5f3d2c1",
                &[&*main],
                &[&*other],
                "5f3d2c1 is ambiguous: 5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c and 5f3d2c1ffff",
            ),
            ("5f3d2c1b", &[&*main], &[&*other], ""),
            ("5f3d2c", &[&*main], &[], "5f3d2c is too short for a commit: write at least 7 digits, such as 5f3d2c1"),
            ("5f3", &[&*main], &[], ""),
            ("6.7.1", &[&*main, "6.7.0"], &[], ""),
        ] {
            match check(text, own, all) {
                Ok(()) => assert_eq!(words, "", "{text} {own:?}"),
                Err(error) => assert!(!words.is_empty() && error.contains(words), "{text} {own:?}: {error}"),
            }
        }
    }
}
