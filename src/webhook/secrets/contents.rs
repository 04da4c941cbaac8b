//! The data of one Secret.
//!
//! In: the Secret, from a watch. Out: values as text, for requests only. They never go into output that is shown.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Secret;
use secrecy::{ExposeSecret as _, SecretSlice};

use crate::api::notification::credentials::SecretKey;
use crate::webhook::attempt::NotSent;

/// The data of one Secret at one time. Debug shows only the keys.
pub(in crate::webhook) struct Contents(pub(super) BTreeMap<String, SecretSlice<u8>>);

impl Contents {
    /// Returns the value of a key as text, without line breaks at its end, because files and `echo` add one.
    pub(in crate::webhook) fn text(&self, key: &SecretKey) -> Result<&str, NotSent> {
        let invalid = |problem| NotSent::SecretInvalid { key: key.clone(), problem };
        let bytes = self.0.get(&key.key).ok_or_else(|| NotSent::KeyMissing(key.clone()))?.expose_secret();
        let text = std::str::from_utf8(bytes).map_err(|_| invalid("is not UTF-8"))?.trim_end_matches(['\r', '\n']);
        if text.is_empty() { Err(invalid("is empty")) } else { Ok(text) }
    }

    /// Returns the names of the keys, sorted.
    pub(in crate::webhook) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|(a, b)| a.0 == b.0 && a.1.expose_secret() == b.1.expose_secret())
    }
}

impl From<Secret> for Contents {
    fn from(secret: Secret) -> Self {
        Self(secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0.into())).collect())
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::secrets::tests::{key, secret};

    #[test]
    fn values_are_text_without_the_trailing_line_break() {
        let bad = Contents(BTreeMap::from([("k".to_owned(), vec![0xff].into())]));
        assert!(matches!(bad.text(&key("k")), Err(NotSent::SecretInvalid { .. })));
        for (value, text) in [("a b", "a b"), ("a\n", "a"), ("a\r\n", "a"), (" a ", " a ")] {
            let contents = Contents::from(secret(&[("k", value)]));
            assert_eq!(contents.text(&key("k")), Ok(text));
        }
    }
}
