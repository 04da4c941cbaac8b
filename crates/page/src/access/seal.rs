//! Encrypts the token of a caller for a cookie, and decrypts it.
//!
//! AES-256-GCM with a random nonce for each cookie. The key is that of the process, or comes from a file that all replicas have. Nobody who
//! reads the cookie can read the token, and nobody without the key can make a cookie.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use relaybook_api::Time;

/// What is authenticated beside the token, so that a value with another purpose is not one of these cookies.
const PURPOSE: &[u8] = b"relaybook page session 1";

/// How long a cookie is accepted, in seconds.
pub(crate) const LIFE: i64 = 12 * 3600;
/// What distinguishes the key of forms from that of cookies.
const FORMS: &[u8] = b"relaybook page forms 1";

/// Encrypts and decrypts.
pub struct Seal {
    key: LessSafeKey,
    /// The key of the tokens in forms. It is another one, and replicas with the same secret have the same.
    forms: [u8; 32],
    random: SystemRandom,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The system provides no random numbers.
    #[error("the system provides no random numbers")]
    NoRandomness,
    /// The key is too short to be a secret.
    #[error("the key must have at least 32 bytes; make one with `openssl rand -hex 32`")]
    TooShort,
}

impl Seal {
    /// Creates a key that lives as long as the process.
    pub fn of_process() -> Result<Self, SealError> {
        Self::from_bytes(&random()?)
    }

    /// Creates the key from a secret that all replicas have, without the white space around it.
    pub fn from_secret(secret: &SecretString) -> Result<Self, SealError> {
        let content = secret.expose_secret().trim();
        if content.len() < 32 {
            return Err(SealError::TooShort);
        }
        Self::from_bytes(&Sha256::digest(content).into())
    }

    fn from_bytes(bytes: &[u8; 32]) -> Result<Self, SealError> {
        let key = UnboundKey::new(&AES_256_GCM, bytes).map_err(|_| SealError::TooShort)?;
        let forms = Sha256::new().chain_update(FORMS).chain_update(bytes).finalize().into();
        Ok(Self { key: LessSafeKey::new(key), forms, random: SystemRandom::new() })
    }

    /// Returns the key of the tokens in forms.
    pub(crate) fn forms(&self) -> &[u8; 32] {
        &self.forms
    }

    /// Returns the value of a cookie with this token, which is accepted until [`LIFE`] after `now`.
    pub(crate) fn close(&self, token: &SecretString, now: Time) -> Result<String, SealError> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(|_| SealError::NoRandomness)?;
        let end = now.as_second().saturating_add(LIFE);
        let mut bytes = [&end.to_be_bytes()[..], token.expose_secret().as_bytes()].concat();
        let sealing = self.key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(PURPOSE), &mut bytes);
        sealing.map_err(|_| SealError::NoRandomness)?;
        Ok(URL_SAFE_NO_PAD.encode([&nonce[..], &bytes].concat()))
    }

    /// Returns the token in the value of a cookie. `None`: it was not made with this key, or is too old.
    pub(crate) fn open(&self, cookie: &str, now: Time) -> Option<SecretString> {
        let all = URL_SAFE_NO_PAD.decode(cookie).ok()?;
        let (nonce, sealed) = all.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let opened = self.key.open_in_place(nonce, Aad::from(PURPOSE), &mut sealed).ok()?;
        let (end, token) = opened.split_first_chunk::<8>()?;
        if i64::from_be_bytes(*end) < now.as_second() {
            return None;
        }
        Some(SecretString::from(String::from_utf8(token.to_vec()).ok()?))
    }
}

/// Returns random bytes.
pub(crate) fn random() -> Result<[u8; 32], SealError> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| SealError::NoRandomness)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    #[test]
    fn only_the_same_key_opens_a_cookie() {
        let (one, other) = (Seal::of_process().unwrap(), Seal::of_process().unwrap());
        let token = SecretString::from("sesame");
        let cookie = one.close(&token, at(0)).unwrap();
        assert!(!cookie.contains("sesame") && cookie != one.close(&token, at(0)).unwrap(), "{cookie}");
        assert_eq!(one.open(&cookie, at(LIFE)).unwrap().expose_secret(), "sesame");
        assert!(one.open(&cookie, at(LIFE + 1)).is_none(), "it is too old");
        assert!(other.open(&cookie, at(0)).is_none());
        let mut changed = cookie.clone().into_bytes();
        changed[20] = if changed[20] == b'A' { b'B' } else { b'A' };
        for wrong in
            [String::from_utf8(changed).unwrap(), cookie[..cookie.len() - 1].to_owned(), String::new(), "é".to_owned()]
        {
            assert!(one.open(&wrong, at(0)).is_none(), "{wrong}");
        }
    }

    #[test]
    fn replicas_with_the_same_file_read_each_others_cookies() {
        let of = |text: &str| Seal::from_secret(&SecretString::from(text));
        let key = "0123456789abcdef0123456789abcdef";
        let cookie = of(key).unwrap().close(&SecretString::from("sesame"), at(0)).unwrap();
        assert!(of(&format!("{key}\n")).unwrap().open(&cookie, at(0)).is_some());
        assert_eq!(of("short").err(), Some(SealError::TooShort));
    }
}
