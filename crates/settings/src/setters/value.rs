//! The value that a setter gets.

use super::SetterError;
use super::marker::Part;
use super::revision::{Revision, is_digest, is_tag};

/// A value that does not contain what the suffix of its marker names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The value is neither a tag nor an image.
    #[error("the value is neither a tag nor an image with a tag, such as registry.example.com/web:1.2.0")]
    NoTag,
    /// The value is neither a digest nor an image with one.
    #[error("the value is neither a digest nor an image with a digest, such as registry.example.com/web@sha256:…")]
    NoDigest,
    /// The value is an image with a tag and a digest. An edit of one would contradict the other.
    #[error("the image has a tag and a digest, and the digest decides what runs; remove one of them")]
    TagAndDigest,
}

/// An image, split at its tag and digest: `NAME[:TAG][@DIGEST]`.
struct Image<'a> {
    name: &'a str,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

impl<'a> Image<'a> {
    /// Splits an image (<https://kubernetes.io/docs/concepts/containers/images/#image-names>). Returns `None` if the text has other characters.
    fn parse(text: &'a str) -> Option<Self> {
        let is_part = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_' | b'/' | b':' | b'@');
        if !text.bytes().all(is_part) {
            return None;
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest).filter(|digest| is_digest(digest))),
            None => (text, None),
        };
        // A digest of another form is none that can be replaced.
        if text.contains('@') && digest.is_none() {
            return None;
        }
        // Before the last slash, a colon belongs to the port of the registry.
        let last = rest.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = match rest[last..].split_once(':') {
            Some((name, tag)) => (&rest[..last + name.len()], Some(tag)),
            None => (rest, None),
        };
        let is_whole = name.len() > last && tag.is_none_or(is_tag);
        is_whole.then_some(Self { name, tag, digest })
    }
}

/// Returns the value that replaces `old`.
pub(super) fn replacement(old: &str, part: Part, revision: &Revision) -> Result<String, SetterError> {
    let new = revision.part(part)?;
    Ok(match part {
        Part::Whole | Part::Commit => new.to_owned(),
        Part::Tag => with_tag(old, new)?,
        Part::Digest => with_digest(old, new)?,
    })
}

/// Replaces the tag of an image. A value that is empty or a tag is replaced as a whole, as in `newTag: 1.2.0`.
fn with_tag(old: &str, new: &str) -> Result<String, Misfit> {
    if old.is_empty() || is_tag(old) {
        return Ok(new.to_owned());
    }
    match Image::parse(old) {
        Some(Image { tag: Some(_), digest: Some(_), .. }) => Err(Misfit::TagAndDigest),
        Some(Image { name, tag: Some(_), digest: None }) => Ok(format!("{name}:{new}")),
        _ => Err(Misfit::NoTag),
    }
}

/// Replaces the digest of an image. A value that is empty or a digest is replaced as a whole.
fn with_digest(old: &str, new: &str) -> Result<String, Misfit> {
    if old.is_empty() || is_digest(old) {
        return Ok(new.to_owned());
    }
    match Image::parse(old) {
        Some(Image { tag: Some(_), digest: Some(_), .. }) => Err(Misfit::TagAndDigest),
        Some(Image { name, tag: None, digest: Some(_) }) => Ok(format!("{name}@{new}")),
        _ => Err(Misfit::NoDigest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_that_a_marker_names_is_replaced() {
        let (old, new) = (format!("sha256:{}", "a".repeat(64)), format!("sha256:{}", "b".repeat(64)));
        let revision = Revision::new(&format!("2.0@{new}")).unwrap();
        let of = |part, text: &str| match replacement(text, part, &revision) {
            Ok(value) => Ok(value),
            Err(SetterError::Misfit(misfit)) => Err(misfit),
            Err(error) => panic!("{error}"),
        };
        for (text, expected) in [
            ("web:1.0", Ok("web:2.0")),
            ("ghcr.io/acme/web:1.0", Ok("ghcr.io/acme/web:2.0")),
            ("localhost:5000/web:1.0", Ok("localhost:5000/web:2.0")),
            ("1.0", Ok("2.0")),
            ("latest", Ok("2.0")),
            ("", Ok("2.0")),
            ("ghcr.io/acme/web", Err(Misfit::NoTag)),
            ("localhost:5000/web", Err(Misfit::NoTag)),
            ("ghcr.io/acme/:1.0", Err(Misfit::NoTag)),
            (":1.0", Err(Misfit::NoTag)),
            ("web:", Err(Misfit::NoTag)),
            ("web:1:2", Err(Misfit::NoTag)),
            ("a web:1", Err(Misfit::NoTag)),
            ("web@sha256:abc", Err(Misfit::NoTag)),
            (&format!("web@{old}"), Err(Misfit::NoTag)),
            (&format!("web:1.0@{old}"), Err(Misfit::TagAndDigest)),
        ] {
            assert_eq!(of(Part::Tag, text), expected.map(str::to_owned), "{text}");
        }
        for (text, expected) in [
            (old.as_str(), Ok(new.clone())),
            ("", Ok(new.clone())),
            (&format!("localhost:5000/web@{old}"), Ok(format!("localhost:5000/web@{new}"))),
            (&format!("web:1.0@{old}"), Err(Misfit::TagAndDigest)),
            ("web:1.0", Err(Misfit::NoDigest)),
            ("web", Err(Misfit::NoDigest)),
        ] {
            assert_eq!(of(Part::Digest, text), expected, "{text}");
        }
        let none = replacement("x", Part::Commit, &revision).unwrap_err();
        assert!(matches!(none, SetterError::NotSettable(_)), "{none}");
        assert_eq!(of(Part::Whole, "anything"), Ok(revision.as_str().to_owned()));
    }
}
