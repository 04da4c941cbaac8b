//! Which keys of a Secret can sign requests to hooks.
//!
//! In: the type of a Secret, and the names and lengths of its keys. Out: why no key of it can sign, if that is so ([`Flaw`]). The hooks, the
//! status of pipelines and `relaybook lint` decide by the same function.

use std::ops::RangeInclusive;

use super::refs::INBOUND;

/// Beginning of the names of keys with which a request to a hook can be signed.
pub const PREFIX: &str = "hmac-key";
/// Lengths of such a key, in bytes. A longer one would make each request cost more.
pub const LENGTHS: RangeInclusive<usize> = 16..=1024;
/// The type of a Secret that names none.
const DEFAULT_TYPE: &str = "Opaque";
/// Maximum number of keys in a message.
const NAMED: usize = 4;

/// Why no key of a Secret can sign a request to a hook. The message continues a sentence that begins with the Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// It has another type.
    #[error(
        "has the type {0}, and keys of hooks must have the type {inbound}; delete the Secret, and create it again with that type",
        inbound = INBOUND
    )]
    Type(String),
    /// It has no key of that name.
    #[error("has no key whose name begins with {prefix}; add one, for example {prefix}", prefix = PREFIX)]
    NoKey,
    /// All of its keys are too short or too long. Contains their names.
    #[error(
        "has no key of {shortest} to {longest} bytes, and {0} is shorter or longer; use another key, for example that of openssl rand -hex 32",
        shortest = LENGTHS.start(),
        longest = LENGTHS.end()
    )]
    Length(String),
}

impl Flaw {
    /// Returns the reason in a condition.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Type(_) => "SecretTypeInvalid",
            Self::NoKey => "KeyMissing",
            Self::Length(_) => "KeyInvalid",
        }
    }
}

/// Returns why no key of a Secret can sign. `keys`: their names, and their lengths without line breaks at the end. A length that is not known
/// counts as valid.
#[must_use]
pub fn flaw<'k>(type_: Option<&str>, keys: impl IntoIterator<Item = (&'k str, Option<usize>)>) -> Option<Flaw> {
    let type_ = type_.filter(|type_| !type_.is_empty()).unwrap_or(DEFAULT_TYPE);
    if type_ != INBOUND {
        return Some(Flaw::Type(type_.to_owned()));
    }
    let mut named = keys.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).peekable();
    if named.peek().is_none() {
        return Some(Flaw::NoKey);
    }
    let mut unfit = Vec::new();
    for (name, length) in named {
        if length.is_none_or(|length| LENGTHS.contains(&length)) {
            return None;
        }
        unfit.push(name);
    }
    unfit.truncate(NAMED);
    Some(Flaw::Length(unfit.join(", ")))
}

/// Returns a key without the line breaks at its end, if it is text. Files and `echo` add one. A random key that ends with the same byte stays
/// as it is.
#[must_use]
pub fn trimmed(key: &[u8]) -> &[u8] {
    std::str::from_utf8(key).map_or(key, |text| text.trim_end_matches(['\r', '\n']).as_bytes())
}

/// Why no request to a hook can be signed with the keys of a Secret. The message continues a sentence that begins with the Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsigned {
    /// It was not read yet.
    #[error("was not read yet")]
    Unknown,
    /// Relaybook has no permission to read it.
    #[error("cannot be read by Relaybook; allow list and watch of it, or list it in the values of the chart")]
    Unreadable,
    /// It does not exist.
    #[error("does not exist")]
    Missing,
    /// It has no key that can sign.
    #[error(transparent)]
    Unfit(Flaw),
}

impl Unsigned {
    /// Returns the reason in a condition.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unknown => "SecretUnknown",
            Self::Unreadable => "SecretUnreadable",
            Self::Missing => "SecretMissing",
            Self::Unfit(flaw) => flaw.reason(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_can_sign_if_it_has_the_type_and_a_key_of_a_valid_length() {
        let key = |name: &'static str, length: usize| (name, Some(length));
        for (what, type_, keys, expected) in [
            ("one key", Some(INBOUND), vec![key("hmac-key", 16)], None),
            ("another one is too short", Some(INBOUND), vec![key("hmac-key", 15), key("hmac-key-2", 1024)], None),
            ("its length is not known", Some(INBOUND), vec![("hmac-key", None)], None),
            ("no type", None, vec![key("hmac-key", 32)], Some(Flaw::Type("Opaque".into()))),
            ("the default type", Some("Opaque"), vec![key("hmac-key", 32)], Some(Flaw::Type("Opaque".into()))),
            ("no key", Some(INBOUND), vec![], Some(Flaw::NoKey)),
            ("a key of another name", Some(INBOUND), vec![key("key", 32)], Some(Flaw::NoKey)),
            ("too short", Some(INBOUND), vec![key("hmac-key", 15), key("x", 32)], Some(Flaw::Length("hmac-key".into()))),
            ("too long", Some(INBOUND), vec![key("hmac-key", 1025)], Some(Flaw::Length("hmac-key".into()))),
        ] {
            assert_eq!(flaw(type_, keys), expected, "{what}");
        }
        let message = Flaw::Length("hmac-key".into()).to_string();
        assert!(message.starts_with("has no key of 16 to 1024 bytes, and hmac-key is shorter or longer"), "{message}");
        assert_eq!((trimmed(b"a\r\n"), trimmed(b"\xff\n")), (&b"a"[..], &b"\xff\n"[..]));
    }
}
