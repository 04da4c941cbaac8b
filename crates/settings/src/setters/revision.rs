//! A revision that can be written into a file, and its parts.

use super::marker::Part;
use relaybook_api::values::commit::commit;
use relaybook_api::values::revision::{MAX, is_whole};
use relaybook_text::escaped;

/// A revision without control characters, line breaks and invisible characters, of 1 to 256 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision(String);

/// A revision that cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSettable {
    /// It has no character.
    #[error("the revision is empty")]
    Empty,
    /// It is longer than 256 bytes.
    #[error("the revision has {0} bytes; at most {MAX} can be written")]
    TooLong(usize),
    /// It is the start of a longer one.
    #[error(
        "the revision {0} is the start of one with more than {MAX} bytes, and a hash; only a whole revision can be written"
    )]
    Cut(String),
    /// It has a character that is not visible, or that changes what is visible.
    #[error("the revision {} has a control character, a line break or an invisible character", escaped(.0))]
    Unsafe(String),
    /// It does not contain the part that the marker names.
    #[error("the revision {revision} contains no {}", name(*part))]
    NoPart {
        /// The revision.
        revision: String,
        /// The part.
        part: Part,
    },
}

fn name(part: Part) -> &'static str {
    match part {
        Part::Whole => "text",
        Part::Tag => "tag of an image: at most 128 letters, digits, dots, dashes and underscores",
        Part::Digest => "digest: sha256: and 64 hexadecimal digits",
        Part::Commit => "commit: 40 or 64 hexadecimal digits",
    }
}

impl Revision {
    /// Checks a revision.
    pub fn new(text: &str) -> Result<Self, NotSettable> {
        if text.is_empty() {
            return Err(NotSettable::Empty);
        }
        if text.len() > MAX {
            return Err(NotSettable::TooLong(text.len()));
        }
        if !is_whole(text) {
            return Err(NotSettable::Cut(escaped(text)));
        }
        if escaped(text) != text {
            return Err(NotSettable::Unsafe(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the revision.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the part of the revision that is written.
    pub(super) fn part(&self, part: Part) -> Result<&str, NotSettable> {
        let found = match part {
            Part::Whole => Some(self.as_str()),
            Part::Tag => self.tag(),
            Part::Digest => self.digest(),
            Part::Commit => commit(&self.0),
        };
        found.ok_or_else(|| NotSettable::NoPart { revision: self.0.clone(), part })
    }

    /// Returns the tag: the whole revision, or what is before the digest, as in `1.2.0@sha256:…`.
    fn tag(&self) -> Option<&str> {
        let tag = match self.0.split_once('@') {
            Some((tag, digest)) if is_digest(digest) => tag,
            _ => &self.0,
        };
        is_tag(tag).then_some(tag)
    }

    /// Returns the digest: the whole revision, or what is after the last `@`.
    fn digest(&self) -> Option<&str> {
        let digest = self.0.rsplit('@').next()?;
        is_digest(digest).then_some(digest)
    }
}

/// Whether a text can be the tag of an image (<https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests>).
pub(super) fn is_tag(text: &str) -> bool {
    let is_word = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    (1..=128).contains(&text.len())
        && text.bytes().all(|c| is_word(c) || matches!(c, b'.' | b'-'))
        && text.bytes().next().is_some_and(is_word)
}

/// Whether a text is a SHA-256 digest (<https://github.com/opencontainers/image-spec/blob/main/descriptor.md#sha-256>).
pub(super) fn is_digest(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_one_visible_line() {
        for text in ["1", "6.5.1", "main@sha1:abc", "ü", "a b", "\"; rm -rf", "*x", "!!python", "-->", &"x".repeat(256)] {
            assert_eq!(Revision::new(text).unwrap().as_str(), text);
        }
        assert_eq!(Revision::new(""), Err(NotSettable::Empty));
        assert_eq!(Revision::new(&"é".repeat(129)), Err(NotSettable::TooLong(258)));
        let cut = relaybook_api::values::revision::cut("1.2.3-".repeat(80));
        assert_eq!(Revision::new(&cut), Err(NotSettable::Cut(cut)));
        for text in [
            "a\nb",
            "\n- evil: true",
            "a\r",
            "\t",
            "\0",
            "\u{1b}[2J",
            "\u{7f}",
            "\u{85}",
            "\u{2028}",
            "\u{202e}",
            "\u{feff}a",
        ] {
            let error = Revision::new(text).unwrap_err();
            assert!(matches!(error, NotSettable::Unsafe(_)), "{text:?}");
            assert!(error.to_string().chars().all(|c| !c.is_control() && c != '\u{202e}'), "{error}");
        }
    }

    #[test]
    fn tag_digest_and_commit_are_found_only_in_unambiguous_revisions() {
        let (one, long) = ("0123456789abcdef0123456789abcdef01234567", "0123456789abcdef".repeat(4));
        let digest = format!("sha256:{long}");
        for (revision, tag, found, commit) in [
            ("6.5.1", Some("6.5.1"), None, None),
            ("_a", Some("_a"), None, None),
            (".a", None, None, None),
            ("a/b", None, None, None),
            ("a+b", None, None, None),
            (&"a".repeat(129), None, None, None),
            (one, Some(one), None, Some(one)),
            (&long, Some(&*long), None, Some(&*long)),
            (&digest, None, Some(&*digest), None),
            (&format!("1.2@{digest}"), Some("1.2"), Some(&*digest), None),
            (&format!("@{digest}"), None, Some(&*digest), None),
            (&format!("sha256:{}", long.to_uppercase()), None, None, None),
            (&format!("main@sha1:{one}"), None, None, Some(one)),
            (&format!("refs/heads/main@sha1:{one}"), None, None, Some(one)),
            (&format!("main@sha1:{}", &one[1..]), None, None, None),
            ("1.2,1.3", None, None, None),
        ] {
            let all = Revision::new(revision).unwrap();
            let of = |part| all.part(part).ok();
            assert_eq!((of(Part::Tag), of(Part::Digest), of(Part::Commit)), (tag, found, commit), "{revision}");
            assert_eq!(of(Part::Whole), Some(revision));
        }
    }
}
