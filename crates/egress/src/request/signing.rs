//! Signatures of requests: by Standard Webhooks
//! (<https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>), or of the body alone, as GitHub and Flux
//! sign it (<https://fluxcd.io/flux/components/notification/providers/#generic-webhook-with-hmac>).

use http::{HeaderName, HeaderValue};
use ring::hmac::{HMAC_SHA256, Key, sign};
use secrecy::{ExposeSecret as _, SecretString};
use standardwebhooks::Webhook;

use crate::attempt::NotSent;
use crate::secrets::contents::Contents;
use crate::secrets::redact::Hidden;
use relaybook_api::notification::credentials::{SecretKey, SignatureForm, SigningRef};

pub(crate) const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Maximum number of signing keys. A rotation needs two.
const MAX_KEYS: usize = 16;
/// Number of bytes of a key, by the specification.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
const PREFIX: &str = "whsec_";
/// Maximum number of bytes of a key that signs the body alone.
const LONGEST_BODY_KEY: usize = 1 << 10;

/// How requests are signed, with the keys of a Secret.
#[derive(Default)]
pub(crate) enum Signing {
    #[default]
    None,
    /// All of the keys sign, so that during a rotation the receiver can verify with any of them.
    StandardWebhooks(Vec<Webhook>),
    /// The key signs the body, and the header has the signature.
    BodyHex(HeaderName, SecretString),
}

impl Signing {
    /// Reads the keys of a Secret, and adds them to `hidden`.
    pub(crate) fn read(contents: &Contents, signing: &SigningRef, hidden: &mut Hidden) -> Result<Self, NotSent> {
        let key = |key: &str| SecretKey::new(&signing.secret.namespace, &signing.secret.name, key);
        let keys: Vec<_> = contents.keys().map(key).collect();
        let Some((first, others)) = keys.split_first() else { return Err(NotSent::KeyMissing(key("for signing"))) };
        match &signing.form {
            SignatureForm::StandardWebhooks => webhooks(contents, &keys, hidden).map(Self::StandardWebhooks),
            SignatureForm::BodyHex(header) => {
                body_key(contents, first, others, hidden).map(|key| Self::BodyHex(header.clone(), key))
            }
        }
    }

    /// Returns the header for a request, or `None` if it is not signed.
    pub(crate) fn header(
        &self,
        id: &str,
        timestamp: i64,
        body: &[u8],
    ) -> Result<Option<(HeaderName, HeaderValue)>, NotSent> {
        let (name, text) = match self {
            Self::None => return Ok(None),
            Self::StandardWebhooks(keys) => {
                let signatures: Result<Vec<_>, _> = keys.iter().map(|key| key.sign(id, timestamp, body)).collect();
                let signatures =
                    signatures.map_err(|_| NotSent::InvalidRequest("the body cannot be signed, because it is not UTF-8"))?;
                (WEBHOOK_SIGNATURE, signatures.join(" "))
            }
            Self::BodyHex(header, key) => {
                let key = Key::new(HMAC_SHA256, key.expose_secret().as_bytes());
                (header.clone(), format!("sha256={}", hex::encode(sign(&key, body))))
            }
        };
        let value = HeaderValue::from_str(&text);
        let value = value.map_err(|_| NotSent::InvalidRequest("the signature is not valid in a header"))?;
        Ok(Some((name, value)))
    }
}

/// Reads all keys of a Secret, in the order of their names, so that every attempt has the same order.
fn webhooks(contents: &Contents, keys: &[SecretKey], hidden: &mut Hidden) -> Result<Vec<Webhook>, NotSent> {
    if let Some(key) = keys.get(MAX_KEYS) {
        return Err(invalid(key, "exceeds the limit of 16 signing keys"));
    }
    let read = |key: &SecretKey| {
        let text = contents.text(key)?;
        let length = text.strip_prefix(PREFIX).unwrap_or(text).trim_end_matches('=').len() * 3 / 4;
        let webhook = Webhook::new(text).ok().filter(|_| KEY_BYTES.contains(&length));
        hidden.add(text);
        webhook.ok_or_else(|| {
            invalid(key, "is not a signing key: use 24 to 64 bytes in base64, with or without the prefix whsec_")
        })
    };
    keys.iter().map(read).collect()
}

/// Reads the only key of a Secret. The header has one signature, so a second key could not sign.
fn body_key(
    contents: &Contents,
    key: &SecretKey,
    others: &[SecretKey],
    hidden: &mut Hidden,
) -> Result<SecretString, NotSent> {
    if let Some(other) = others.first() {
        return Err(invalid(other, "is the second key: BodyHex uses exactly one key; remove the others"));
    }
    let text = contents.text(key)?;
    if text.len() > LONGEST_BODY_KEY {
        return Err(invalid(key, "is longer than 1 KiB"));
    }
    hidden.add(text);
    Ok(text.into())
}

fn invalid(key: &SecretKey, problem: &'static str) -> NotSent {
    NotSent::SecretInvalid { key: key.clone(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::tests::secret;
    use relaybook_api::ObjectName;

    fn read(form: SignatureForm, data: &[(&str, &str)]) -> Result<Signing, NotSent> {
        let signing = SigningRef { secret: ObjectName::new("a", "hmac"), form };
        Signing::read(&Contents::from(secret(data)), &signing, &mut Hidden::default())
    }

    fn signing(data: &[(&str, &str)]) -> Result<Signing, NotSent> {
        read(SignatureForm::StandardWebhooks, data)
    }

    fn by_body(data: &[(&str, &str)]) -> Result<Signing, NotSent> {
        read(SignatureForm::BodyHex(HeaderName::from_static("x-signature")), data)
    }

    /// The example of the specification's libraries.
    #[test]
    fn a_known_message_has_its_known_signature() {
        let signing = signing(&[("k", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")]).unwrap();
        let header = signing.header("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#).unwrap();
        let (name, value) = header.unwrap();
        assert_eq!((name, value.to_str().unwrap()), (WEBHOOK_SIGNATURE, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
        assert!(Signing::default().header("m", 1, b"").unwrap().is_none());
    }

    /// The example of <https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries>.
    #[test]
    fn a_known_body_has_its_known_signature() {
        for name in ["token", "any-name"] {
            let signing = by_body(&[(name, "It's a Secret to Everybody\n")]).unwrap();
            let (name, value) = signing.header("m", 1, b"Hello, World!").unwrap().unwrap();
            let known = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
            assert_eq!((name.as_str(), value.to_str().unwrap()), ("x-signature", known));
        }
    }

    #[test]
    fn every_key_signs_in_the_order_of_names() {
        let (old, new) = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD");
        let of = |data: &[(&str, &str)]| {
            let (_, value) = signing(data).unwrap().header("m", 1, b"{}").unwrap().unwrap();
            value.to_str().unwrap().to_owned()
        };
        assert_eq!(of(&[("b", new), ("a", old)]), format!("{} {}", of(&[("a", old)]), of(&[("b", new)])));
    }

    #[test]
    fn invalid_signing_keys_are_reported() {
        for (data, word) in [
            (&[][..], "no key"),
            (&[("a", "not base64!")][..], "base64"),
            (&[("a", "c2hvcnQ=")], "24 to 64"),
            (&[("a", "")], "empty"),
        ] {
            let error = signing(data).err().unwrap().to_string();
            assert!(error.contains(word) && !error.contains("c2hvcnQ"), "{error}");
        }
        let many: Vec<_> = (0..17).map(|n| format!("k{n:02}")).collect();
        let many: Vec<_> = many.iter().map(|k| (k.as_str(), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")).collect();
        assert!(signing(&many).err().unwrap().to_string().contains("limit of 16"));
    }

    #[test]
    fn an_invalid_key_of_the_body_is_reported() {
        let (longest, longer) = ("x".repeat(LONGEST_BODY_KEY), "x".repeat(LONGEST_BODY_KEY + 1));
        for (data, word) in [
            (&[][..], "no key"),
            (&[("a", "s3cr3t"), ("b", "s3cr3t")], "key b: is the second key: BodyHex uses exactly one key"),
            (&[("a", "\n")], "is empty"),
            (&[("a", longer.as_str())], "longer than 1 KiB"),
        ] {
            let error = by_body(data).err().unwrap().to_string();
            assert!(error.contains(word) && !error.contains("s3cr3t"), "{error}");
        }
        assert!(by_body(&[("a", &longest)]).is_ok());
    }
}
