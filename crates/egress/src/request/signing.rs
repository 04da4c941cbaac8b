//! Signatures by Standard Webhooks (<https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>).

use http::{HeaderName, HeaderValue};
use standardwebhooks::Webhook;

use crate::attempt::NotSent;
use crate::secrets::contents::Contents;
use crate::secrets::redact::Hidden;
use relaybook_api::ObjectName;
use relaybook_api::notification::credentials::SecretKey;

pub(crate) const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Maximum number of signing keys. A rotation needs two.
const MAX_KEYS: usize = 16;
/// Number of bytes of a key, by the specification.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
const PREFIX: &str = "whsec_";

/// The keys of a Secret. All of them sign, so that during a rotation the receiver can verify with any of them.
#[derive(Default)]
pub(crate) struct Signing(Vec<Webhook>);

impl Signing {
    /// Reads all keys of a Secret, in the order of their names, so that every attempt has the same order.
    pub(crate) fn read(contents: &Contents, name: &ObjectName, hidden: &mut Hidden) -> Result<Self, NotSent> {
        let keys: Vec<_> = contents.keys().map(|key| SecretKey::new(&name.namespace, &name.name, key)).collect();
        let invalid = |key: &SecretKey, problem| NotSent::SecretInvalid { key: key.clone(), problem };
        match keys.get(MAX_KEYS) {
            _ if keys.is_empty() => {
                return Err(NotSent::KeyMissing(SecretKey::new(&name.namespace, &name.name, "for signing")));
            }
            Some(key) => return Err(invalid(key, "exceeds the limit of 16 signing keys")),
            None => {}
        }
        let sign = |key: SecretKey| {
            let text = contents.text(&key)?;
            let length = text.strip_prefix(PREFIX).unwrap_or(text).trim_end_matches('=').len() * 3 / 4;
            let webhook = Webhook::new(text).ok().filter(|_| KEY_BYTES.contains(&length));
            hidden.add(text);
            webhook.ok_or_else(|| {
                invalid(&key, "is not a signing key: use 24 to 64 bytes in base64, with or without the prefix whsec_")
            })
        };
        keys.into_iter().map(sign).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the header value for a request, or `None` without keys.
    pub(crate) fn header(&self, id: &str, timestamp: i64, body: &[u8]) -> Result<Option<HeaderValue>, NotSent> {
        let signatures: Result<Vec<_>, _> = self.0.iter().map(|key| key.sign(id, timestamp, body)).collect();
        let signatures =
            signatures.map_err(|_| NotSent::InvalidRequest("the body cannot be signed, because it is not UTF-8"))?;
        if signatures.is_empty() {
            return Ok(None);
        }
        let value = HeaderValue::from_str(&signatures.join(" "));
        value.map(Some).map_err(|_| NotSent::InvalidRequest("the signature is not valid in a header"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::tests::secret;

    fn signing(data: &[(&str, &str)]) -> Result<Signing, NotSent> {
        let name = ObjectName::new("a", "hmac");
        Signing::read(&Contents::from(secret(data)), &name, &mut Hidden::default())
    }

    /// The example of the specification's libraries.
    #[test]
    fn a_known_message_has_its_known_signature() {
        let signing = signing(&[("k", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")]).unwrap();
        let value = signing.header("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#).unwrap();
        assert_eq!(value.unwrap(), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(Signing::default().header("m", 1, b"").unwrap().is_none());
    }

    #[test]
    fn every_key_signs_in_the_order_of_names() {
        let (old, new) = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD");
        let of = |data: &[(&str, &str)]| {
            let header = signing(data).unwrap().header("m", 1, b"{}").unwrap().unwrap();
            header.to_str().unwrap().to_owned()
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
}
