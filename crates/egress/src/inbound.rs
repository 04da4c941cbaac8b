//! Verifies the signature of a request to a hook. Pure.
//!
//! In: what is signed, the headers and the body of the request, and the name of a Secret. Out: whether the request was signed with one of its
//! keys. The keys never leave this module.
//!
//! The comparison takes constant time. The work depends on the request only, because missing keys are replaced by a key that never counts. It
//! is the same for a known pipeline, for one without a Secret, and for one that does not exist. So neither the answer nor its time shows which
//! pipelines exist.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue};
use ring::hmac::{HMAC_SHA256, Key, sign, verify};

use super::secrets::Secrets;
use super::secrets::contents::MAX_HOOK_KEYS;
use relaybook_api::ObjectName;
use relaybook_api::values::hook_keys::Unsigned;

/// Precedes the body in the message that is signed for an approval. So a signature that was made for another purpose approves nothing.
const APPROVAL: &[u8] = b"relaybook-approval-v1\n";

const SIGNATURE: &str = "x-signature";
/// <https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries>
const GITHUB: &str = "x-hub-signature-256";
/// <https://docs.gitea.com/usage/webhooks>
const GITEA: &str = "x-gitea-signature";
const FORGEJO: &str = "x-forgejo-signature";
/// <https://docs.gitlab.com/user/project/integrations/webhooks/>
const GITLAB: &str = "x-gitlab-token";

/// The word before a signature that names the algorithm.
const ALGORITHM: &str = "sha256=";
/// Number of bytes of a signature.
const DIGEST: usize = 32;

/// What a request is signed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signed {
    /// An approval: `X-Signature` over the line `relaybook-approval-v1` and the body.
    Approval,
    /// A look: one of the headers of forges, or `X-Signature`, over the body; or a token.
    Look,
}

/// What the headers claim. All claims must be true.
#[derive(Debug, Default)]
struct Claims<'a> {
    digest: Option<[u8; DIGEST]>,
    token: Option<&'a [u8]>,
}

impl Secrets {
    /// Returns why no request to a hook can be signed with the keys of a Secret: the same function by which requests are verified.
    #[must_use]
    pub fn unsigned(&self, name: &ObjectName) -> Option<Unsigned> {
        self.inbound(name).err()
    }

    /// Whether the request is signed with a key of the Secret. The work is the same for each request with the same body, also if there is no
    /// Secret.
    #[must_use]
    pub fn is_signed(&self, signed: Signed, by: Option<&ObjectName>, headers: &HeaderMap, body: &[u8]) -> bool {
        let claims = Claims::read(signed, headers);
        let is_valid = claims.is_some();
        let claims = claims.unwrap_or_default();
        let message: Cow<'_, [u8]> = match signed {
            Signed::Approval => Cow::Owned([APPROVAL, body].concat()),
            Signed::Look => Cow::Borrowed(body),
        };
        let contents = by.and_then(|name| self.inbound(name).ok());
        let mut keys = contents.iter().flat_map(|contents| contents.hook_keys());
        let mut signs = false;
        // No iteration ends the loop, so that the time does not depend on the key.
        for _ in 0..MAX_HOOK_KEYS {
            let key = keys.next();
            let fits = claims.fit(key.unwrap_or_default(), &message);
            signs |= fits && key.is_some();
        }
        signs && is_valid
    }
}

impl<'a> Claims<'a> {
    /// Reads the headers. `None`: there is no claim, one cannot be true, or the claims differ.
    fn read(signed: Signed, headers: &'a HeaderMap) -> Option<Self> {
        // Gitea and Forgejo send their signature in several headers.
        let accepted: &[(&str, &str)] = match signed {
            Signed::Approval => &[(SIGNATURE, ALGORITHM)],
            Signed::Look => &[(SIGNATURE, ALGORITHM), (GITHUB, ALGORITHM), (GITEA, ""), (FORGEJO, "")],
        };
        let mut claims = Self::default();
        for (name, before) in accepted {
            let Some(text) = only(headers, name).ok()? else { continue };
            let digest = digest(text.strip_prefix(before.as_bytes())?)?;
            if claims.digest.is_some_and(|other| other != digest) {
                return None;
            }
            claims.digest = Some(digest);
        }
        if signed == Signed::Look {
            claims.token = only(headers, GITLAB).ok()?;
        }
        (claims.digest.is_some() || claims.token.is_some()).then_some(claims)
    }

    /// Whether all claims are true for this key. The work is the same for every key of up to 64 bytes.
    fn fit(&self, key: &[u8], message: &[u8]) -> bool {
        #[cfg(any(test, feature = "testing"))]
        TRIED.with(|tried| tried.set(tried.get() + 1));
        let own = Key::new(HMAC_SHA256, key);
        let digest = verify(&own, message, self.digest.as_ref().unwrap_or(&[0; DIGEST])).is_ok();
        // The tags of the token and of the key are equal only if these are equal. Their comparison shows nothing about the key.
        let token = verify(&own, self.token.unwrap_or_default(), sign(&own, key).as_ref()).is_ok();
        (digest || self.digest.is_none()) && (token || self.token.is_none())
    }
}

#[cfg(any(test, feature = "testing"))]
thread_local! {
    static TRIED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns with how many keys this thread has compared a request.
#[cfg(any(test, feature = "testing"))]
#[must_use]
pub fn keys_tried() -> usize {
    TRIED.get()
}

/// Returns the value of a header, if there is one. It is an error if there are several.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a [u8]>, ()> {
    let mut all = headers.get_all(name).iter();
    let first = all.next().map(HeaderValue::as_bytes);
    all.next().map_or(Ok(first), |_| Err(()))
}

/// Reads a signature: 64 hexadecimal digits in lower case.
fn digest(text: &[u8]) -> Option<[u8; DIGEST]> {
    let is_lower = text.iter().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    let mut digest = [0; DIGEST];
    (is_lower && hex::decode_to_slice(text, &mut digest).is_ok()).then_some(digest)
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use k8s_openapi::api::core::v1::Secret;

    use super::*;
    use crate::secrets::tests::secret;
    use relaybook_api::values::hook_keys::Flaw;
    use relaybook_api::values::refs::INBOUND;

    const FIRST: &str = "0123456789abcdef";
    const SECOND: &str = "fedcba9876543210-and-more";
    const BODY: &[u8] = br#"{"revision": "6.5.1"}"#;

    type Header = (&'static str, String);

    fn name(name: &str) -> ObjectName {
        ObjectName::new("team-a", name)
    }

    fn secrets() -> Secrets {
        let secrets = Secrets::unknown();
        let put = |of: &str, type_: &str, data: &[(&str, &str)]| {
            let slot = secrets.add(name(of));
            secrets.put(&name(of), &slot, Some(Secret { type_: Some(type_.to_owned()), ..secret(data) }));
        };
        put("both", INBOUND, &[("hmac-key", FIRST), ("hmac-key-2", SECOND)]);
        put("second", INBOUND, &[("hmac-key", SECOND)]);
        put("opaque", "Opaque", &[("hmac-key", FIRST)]);
        put("short", INBOUND, &[("hmac-key", "too-short")]);
        put("empty", INBOUND, &[("hmac-key", "")]);
        secrets
    }

    fn hex_of(key: &str, message: &[u8]) -> String {
        hex::encode(sign(&Key::new(HMAC_SHA256, key.as_bytes()), message))
    }

    fn one(name: &'static str, value: &str) -> Vec<Header> {
        vec![(name, value.to_owned())]
    }

    fn map(all: &[Header]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in all {
            map.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        map
    }

    /// Returns the names of the Secrets that signed.
    fn signers(signed: Signed, of: &[&str], all: &[Header]) -> String {
        let (secrets, headers) = (secrets(), map(all));
        let found = of.iter().filter(|of| secrets.is_signed(signed, Some(&name(of)), &headers, BODY));
        found.copied().collect::<Vec<_>>().join(" ")
    }

    /// The example of RFC 4231, section 4.3.
    #[test]
    fn a_known_message_has_its_known_signature() {
        let tag = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex_of("Jefe", b"what do ya want for nothing?"), tag);
    }

    #[test]
    fn an_approval_is_signed_with_its_prefix_by_a_key_of_the_secret() {
        let prefixed = [APPROVAL, BODY].concat();
        let (first, second) = (hex_of(FIRST, &prefixed), hex_of(SECOND, &prefixed));
        let by = |hex: &str| one(SIGNATURE, &format!("sha256={hex}"));
        let ask = |all: &[Header]| signers(Signed::Approval, &["both", "second", "opaque", "short", "empty", "gone"], all);
        assert_eq!(ask(&by(&first)), "both");
        assert_eq!(ask(&by(&second)), "both second");
        for all in [
            Vec::new(),
            by(&hex_of(FIRST, BODY)),
            by(&hex_of(FIRST, APPROVAL)),
            by(&hex_of(FIRST, b"")),
            by(&hex_of("", &prefixed)),
            by(&hex_of("too-short", &prefixed)),
            by(&first.to_uppercase()),
            by(&first[1..]),
            by(&format!("{first}00")),
            by(""),
            one(SIGNATURE, &first),
            one(SIGNATURE, &format!("sha512={first}")),
            one(SIGNATURE, &format!("SHA256={first}")),
            [by(&first), by(&first)].concat(),
            [by(&first), by(&second)].concat(),
            one(GITHUB, &format!("sha256={first}")),
            one(GITEA, &first),
            one(GITLAB, FIRST),
        ] {
            assert_eq!(ask(&all), "", "{all:?}");
        }
    }

    #[test]
    fn a_request_for_a_check_is_verified_with_the_signatures_of_forges() {
        let first = hex_of(FIRST, BODY);
        let (by, other) = (format!("sha256={first}"), format!("sha256={}", hex_of(SECOND, BODY)));
        let ask = |all: &[Header]| signers(Signed::Look, &["both", "second", "opaque"], all);
        for all in [
            one(SIGNATURE, &by),
            one(GITHUB, &by),
            one(GITEA, &first),
            one(FORGEJO, &first),
            one(GITLAB, FIRST),
            [one(GITLAB, FIRST), one(SIGNATURE, &by)].concat(),
            // As Forgejo sends it, with a header that is not read.
            [one(FORGEJO, &first), one(GITEA, &first), one(GITHUB, &by), one("x-hub-signature", "sha1=00")].concat(),
        ] {
            assert_eq!(ask(&all), "both", "{all:?}");
        }
        assert_eq!(ask(&one(GITLAB, SECOND)), "both second");
        for all in [
            Vec::new(),
            one("x-hub-signature", &by),
            one(GITEA, &by),
            one(GITHUB, &first),
            [one(GITEA, &first), one(GITHUB, &other)].concat(),
            [one(GITEA, &first), one(GITHUB, "sha256=00")].concat(),
            [one(GITLAB, FIRST), one(GITLAB, FIRST)].concat(),
            [one(GITLAB, FIRST), one(SIGNATURE, &other)].concat(),
            one(GITLAB, &FIRST[1..]),
            one(GITLAB, ""),
            one(SIGNATURE, &format!("sha256={}", hex_of(FIRST, &[APPROVAL, BODY].concat()))),
        ] {
            assert_eq!(ask(&all), "", "{all:?}");
        }
    }

    #[test]
    fn a_secret_is_usable_exactly_if_its_requests_verify() {
        let secrets = secrets();
        let message = [APPROVAL, BODY].concat();
        let too_short = Unsigned::Unfit(Flaw::Length("hmac-key".into()));
        for (of, key, problem) in [
            ("both", FIRST, None),
            ("second", SECOND, None),
            ("opaque", FIRST, Some(Unsigned::Unfit(Flaw::Type("Opaque".into())))),
            ("short", "too-short", Some(too_short.clone())),
            ("empty", "", Some(too_short)),
            ("gone", FIRST, Some(Unsigned::Unknown)),
        ] {
            let headers = map(&one(SIGNATURE, &format!("sha256={}", hex_of(key, &message))));
            let is_signed = secrets.is_signed(Signed::Approval, Some(&name(of)), &headers, BODY);
            assert_eq!((secrets.unsigned(&name(of)), is_signed), (problem.clone(), problem.is_none()), "{of}");
        }
    }

    #[test]
    fn verification_with_an_unknown_secret_tries_as_many_keys() {
        let secrets = secrets();
        let headers = map(&one(SIGNATURE, &format!("sha256={}", "0".repeat(64))));
        for headers in [headers, HeaderMap::new()] {
            for of in [Some("both"), Some("second"), Some("opaque"), Some("gone"), None] {
                let before = keys_tried();
                assert!(!secrets.is_signed(Signed::Approval, of.map(name).as_ref(), &headers, BODY));
                assert_eq!(keys_tried() - before, MAX_HOOK_KEYS, "{of:?}");
            }
        }
    }
}
