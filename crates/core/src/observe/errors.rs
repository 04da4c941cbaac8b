//! Errors that a status can show although they are about an earlier revision.
//!
//! Some controllers leave an error in the status until they have processed the next revision, and do not name the revision of the error. So
//! an error counts for another revision only if it was not there before.
//!
//! In: the words of an error, and what the status is about: a deployment, a generation or a commit. Out: an entry for each, and which
//! entries must be remembered. An entry is two hashes, `ERROR:SUBJECT`, because texts can be long and status objects must stay small.

use sha2::{Digest as _, Sha256};

/// Maximum number of entries that are remembered.
const MOST: usize = 16;
/// Number of hexadecimal digits of an error.
const OF_ERROR: usize = 12;
/// Number of hexadecimal digits of what an error is about.
const OF_SUBJECT: usize = 8;

/// The errors that a status shows, and that can be about an earlier revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Errors {
    /// Those whose revision is not known. Sorted.
    pub(super) undated: Vec<String>,
    /// Those that are about an earlier revision than the attempted one. Sorted.
    pub(super) old: Vec<String>,
    /// Whether the object has failed only because of those whose revision is not known.
    pub(super) decide: bool,
}

impl Errors {
    /// Adds an error with these words. `about`: what the controller must process before the error is about that.
    pub(super) fn add(&mut self, words: &[&str], about: &str) {
        let hash = |texts: &[&str], digits: usize| {
            let all = texts.iter().fold(Sha256::new(), |hash, text| hash.chain_update(text).chain_update([0]));
            hex::encode(all.finalize())[..digits].to_owned()
        };
        insert(&mut self.undated, format!("{}:{}", hash(words, OF_ERROR), hash(&[about], OF_SUBJECT)));
    }

    /// Whether the revision of an error is not known.
    pub(super) const fn is_any(&self) -> bool {
        !self.undated.is_empty()
    }

    /// Adds the errors of a part. `is_old`: the part belongs to an earlier revision than the attempted one.
    pub(super) fn add_part(&mut self, part: &Self, is_old: bool) {
        let undated = if is_old { &mut self.old } else { &mut self.undated };
        part.undated.iter().for_each(|entry| insert(undated, entry.clone()));
        part.old.iter().for_each(|entry| insert(&mut self.old, entry.clone()));
    }

    /// The same errors, if the controller has not processed the attempted revision yet.
    pub(super) fn all_old(self) -> Self {
        let mut old = Self::default();
        old.add_part(&self, true);
        old
    }

    /// Whether an object has failed only because of errors that can be about an earlier revision.
    #[must_use]
    pub const fn decide(&self) -> bool {
        self.decide
    }

    /// Whether an object has failed only because of errors that were there before. `known`: the entries that were remembered. An error that
    /// is remembered with the same subject is about that subject.
    #[must_use]
    pub fn are_earlier(&self, known: &[String]) -> bool {
        let is_earlier = |entry: &String| !known.contains(entry) && known.iter().any(|other| error(other) == error(entry));
        self.decide && self.is_any() && self.undated.iter().all(is_earlier)
    }

    /// Returns the entries to remember after an observation with these errors. `known`: those that were remembered. `counts`: whether the
    /// errors count as a failure of the attempted revision. Errors that the status does not show any more are forgotten.
    #[must_use]
    pub fn remembered(&self, known: &[String], counts: bool) -> Vec<String> {
        let mut all = self.old.clone();
        if counts {
            self.undated.iter().for_each(|entry| insert(&mut all, entry.clone()));
        } else {
            let stays = |entry: &&String| self.undated.iter().any(|shown| error(shown) == error(entry));
            known.iter().filter(stays).for_each(|entry| insert(&mut all, entry.clone()));
        }
        all.truncate(MOST);
        all
    }
}

/// The first part of an entry.
fn error(entry: &str) -> &str {
    entry.split_once(':').map_or(entry, |(error, _)| error)
}

fn insert(sorted: &mut Vec<String>, entry: String) {
    if let Err(at) = sorted.binary_search(&entry) {
        sorted.insert(at, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors, each as words and what it is about.
    fn errors(all: &[(&str, &str)]) -> Errors {
        let mut errors = Errors { decide: !all.is_empty(), ..Errors::default() };
        for (words, about) in all {
            errors.add(&[words], about);
        }
        errors
    }

    #[test]
    fn errors_are_earlier_if_all_were_shown_for_another_deployment() {
        let known = errors(&[("no such image", "s-1"), ("no space", "s-1")]).remembered(&[], true);
        for (name, shown, earlier) in [
            ("the same error of another deployment", &[("no such image", "s-2")][..], true),
            ("both of them", &[("no such image", "s-2"), ("no space", "s-2")], true),
            ("of the same deployment", &[("no such image", "s-1")], false),
            ("another error", &[("no route", "s-2")], false),
            ("one of them is new", &[("no such image", "s-2"), ("no route", "s-2")], false),
            ("one is about the same deployment", &[("no such image", "s-2"), ("no space", "s-1")], false),
            ("none", &[], false),
        ] {
            assert_eq!(errors(shown).are_earlier(&known), earlier, "{name}");
            assert!(!errors(shown).are_earlier(&[]), "{name}: nothing is known");
            assert!(!Errors { decide: false, ..errors(shown) }.are_earlier(&known), "{name}: it has also failed otherwise");
        }
    }

    #[test]
    fn errors_are_remembered_while_they_are_shown() {
        let known = errors(&[("a", "1")]).remembered(&[], true);
        assert_eq!(errors(&[("a", "2")]).remembered(&known, false), known, "not as an error of the next one");
        assert_eq!(errors(&[("b", "2")]).remembered(&known, false), Vec::<String>::new(), "it has disappeared");
        let both = errors(&[("a", "2"), ("b", "2")]);
        assert_eq!(both.remembered(&known, false), known, "what is new does not count yet");
        assert_eq!(both.remembered(&known, true), both.undated, "it counts");
        let old = errors(&[("a", "2"), ("b", "2")]).all_old();
        assert_eq!((old.remembered(&[], false), old.decide()), (both.undated, false), "they are known to be old");
        let many: Vec<String> = (0..40).map(|n| n.to_string()).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|n| (n.as_str(), "1")).collect();
        assert_eq!(errors(&many).remembered(&[], true).len(), MOST);
    }
}
