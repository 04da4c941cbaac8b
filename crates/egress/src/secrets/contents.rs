//! The data of one Secret.
//!
//! In: the Secret, from a watch. Out: values as text, for requests only; or the keys of hooks, if the type of the Secret reserves it for
//! them. They never go into output that is shown.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Secret;
use secrecy::{ExposeSecret as _, SecretSlice};

use crate::attempt::NotSent;
use relaybook_api::notification::credentials::SecretKey;
use relaybook_api::values::hook_keys::{Flaw, LENGTHS, PREFIX, flaw, trimmed};
use relaybook_api::values::refs::INBOUND;

/// Maximum number of keys of hooks in one Secret. A rotation needs two.
pub(crate) const MAX_HOOK_KEYS: usize = 4;

/// The data of one Secret at one time. Debug shows only the keys.
pub(crate) struct Contents {
    data: BTreeMap<String, SecretSlice<u8>>,
    /// Whether the Secret has the type [`INBOUND`].
    inbound: bool,
    /// Why no key of it can sign a request to a hook. `None`: one can.
    flaw: Option<Flaw>,
}

impl Contents {
    /// Creates the contents of a Secret of another type than [`INBOUND`].
    pub(super) fn new(data: BTreeMap<String, SecretSlice<u8>>) -> Self {
        Self { data, inbound: false, flaw: flaw(None, []) }
    }

    /// Whether the Secret is only for the keys of hooks.
    pub(crate) fn is_inbound(&self) -> bool {
        self.inbound
    }

    /// Why no key can sign a request to a hook.
    pub(crate) fn flaw(&self) -> Option<&Flaw> {
        self.flaw.as_ref()
    }

    /// Returns the keys of hooks, in the order of their names: those of a valid length, and at most [`MAX_HOOK_KEYS`]. A Secret of another
    /// type has none. A key that is text has no line breaks at its end, because files and `echo` add one.
    pub(crate) fn hook_keys(&self) -> impl Iterator<Item = &[u8]> {
        let named = self.data.iter().filter(|(name, _)| self.flaw.is_none() && name.starts_with(PREFIX));
        let keys = named.map(|(_, value)| trimmed(value.expose_secret()));
        keys.filter(|key| LENGTHS.contains(&key.len())).take(MAX_HOOK_KEYS)
    }

    /// Returns the value of a key as text, without line breaks at its end, because files and `echo` add one.
    pub(crate) fn text(&self, key: &SecretKey) -> Result<&str, NotSent> {
        let invalid = |problem| NotSent::SecretInvalid { key: key.clone(), problem };
        let bytes = self.data.get(&key.key).ok_or_else(|| NotSent::KeyMissing(key.clone()))?.expose_secret();
        let text = std::str::from_utf8(bytes).map_err(|_| invalid("is not UTF-8"))?.trim_end_matches(['\r', '\n']);
        if text.is_empty() { Err(invalid("is empty")) } else { Ok(text) }
    }

    /// Returns the names of the keys, sorted.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.data.keys().map(String::as_str)
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        self.inbound == other.inbound
            && self.flaw == other.flaw
            && self.data.len() == other.data.len()
            && self.data.iter().zip(&other.data).all(|(a, b)| a.0 == b.0 && a.1.expose_secret() == b.1.expose_secret())
    }
}

impl From<Secret> for Contents {
    fn from(secret: Secret) -> Self {
        let inbound = secret.type_.as_deref() == Some(INBOUND);
        let data = secret.data.unwrap_or_default();
        let lengths = data.iter().map(|(key, value)| (key.as_str(), Some(trimmed(&value.0).len())));
        let flaw = flaw(secret.type_.as_deref(), lengths);
        let data = data.into_iter().map(|(key, value)| (key, value.0.into())).collect();
        Self { data, inbound, flaw }
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.data.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::tests::{key, secret};

    #[test]
    fn values_are_text_without_the_trailing_line_break() {
        let bad = Contents::new(BTreeMap::from([("k".to_owned(), vec![0xff].into())]));
        assert!(matches!(bad.text(&key("k")), Err(NotSent::SecretInvalid { .. })));
        for (value, text) in [("a b", "a b"), ("a\n", "a"), ("a\r\n", "a"), (" a ", " a ")] {
            let contents = Contents::from(secret(&[("k", value)]));
            assert_eq!(contents.text(&key("k")), Ok(text));
        }
    }

    #[test]
    fn keys_of_hooks_have_a_name_a_length_and_a_type() {
        let (longest, longer) = ("x".repeat(1024), "x".repeat(1025));
        let data = [
            ("hmac-key", "0123456789abcdef\n"),
            ("hmac-key-2", "0123456789abcde"),
            ("hmac-key-3", "0123456789abcdefg"),
            ("hmac-key.old", &longer),
            ("hmac-keys", &longest),
            ("hmac-keyz", "0123456789abcdefj"),
            ("key", "0123456789abcdefk"),
        ];
        let keys = |type_: Option<&str>| -> Vec<String> {
            let secret = Secret { type_: type_.map(str::to_owned), ..secret(&data) };
            Contents::from(secret).hook_keys().map(|key| String::from_utf8(key.to_vec()).unwrap()).collect()
        };
        let expected = ["0123456789abcdef", "0123456789abcdefg", &longest, "0123456789abcdefj"];
        assert_eq!(keys(Some(INBOUND)), expected);
        assert_eq!(keys(Some("Opaque")), [""; 0]);
        assert_eq!(keys(None), [""; 0]);
        assert_eq!(trimmed(b"\xff\n"), b"\xff\n");
    }
}
