//! Headers from a Secret: each key is the name of a header, and its value is the value of the header. Pure.

use std::str::FromStr as _;

use http::{HeaderName, HeaderValue};

use super::compose::{Characters, is_ours, visible};
use crate::attempt::NotSent;
use crate::secrets::contents::Contents;
use crate::secrets::redact::Hidden;
use relaybook_api::ObjectName;
use relaybook_api::notification::credentials::SecretKey;

/// Maximum number of headers.
const MOST: usize = 16;
/// Maximum number of bytes of a name, as in `endpoint.headers`.
const LONGEST_NAME: usize = 128;
/// Maximum number of bytes of a value, as in `endpoint.headers`.
const LONGEST_VALUE: usize = 8 << 10;

/// Returns the headers in a Secret, and adds their values to `hidden`.
pub(crate) fn read(
    contents: &Contents,
    secret: &ObjectName,
    hidden: &mut Hidden,
) -> Result<Vec<(HeaderName, HeaderValue)>, NotSent> {
    let key = |key: &str| SecretKey::new(&secret.namespace, &secret.name, key);
    let keys: Vec<_> = contents.keys().map(key).collect();
    if keys.is_empty() {
        return Err(NotSent::KeyMissing(key("that names a header")));
    }
    if let Some(key) = keys.get(MOST) {
        return Err(invalid(key, "exceeds the limit of 16 headers"));
    }
    let mut headers = Vec::<(HeaderName, HeaderValue)>::with_capacity(keys.len());
    for key in &keys {
        let name = name(key)?;
        if headers.iter().any(|(other, _)| *other == name) {
            return Err(invalid(key, "occurs twice (names are not case-sensitive); remove one"));
        }
        headers.push((name, value(contents, key, hidden)?));
    }
    Ok(headers)
}

fn name(key: &SecretKey) -> Result<HeaderName, NotSent> {
    let is_plain = key.key.len() <= LONGEST_NAME && key.key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let name = HeaderName::from_str(&key.key).ok().filter(|_| is_plain);
    let name = name.ok_or_else(|| invalid(key, "is not the name of a header: use letters, digits and dashes"))?;
    if is_ours(&name) {
        return Err(invalid(key, "is a header that Relaybook or the connection sets; remove it"));
    }
    Ok(name)
}

fn value(contents: &Contents, key: &SecretKey, hidden: &mut Hidden) -> Result<HeaderValue, NotSent> {
    let text = visible(contents.text(key)?, key, Characters::Ascii)?;
    if text.len() > LONGEST_VALUE {
        return Err(invalid(key, "is longer than 8 KiB"));
    }
    let unfit = |_| invalid(key, "is not allowed in a header: use printable ASCII");
    let mut value = HeaderValue::from_str(text).map_err(unfit)?;
    value.set_sensitive(true);
    hidden.add_header(text);
    Ok(value)
}

fn invalid(key: &SecretKey, problem: &'static str) -> NotSent {
    NotSent::SecretInvalid { key: key.clone(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::tests::secret;

    fn read_all(data: &[(&str, &str)]) -> Result<Vec<(HeaderName, HeaderValue)>, NotSent> {
        read(&Contents::from(secret(data)), &ObjectName::new("a", "headers"), &mut Hidden::default())
    }

    #[test]
    fn each_key_is_a_sensitive_header() {
        let headers = read_all(&[("X-Team", "a b"), ("authorization", "Key s3cr3t\n")]).unwrap();
        let shown: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(shown, [("x-team", "a b"), ("authorization", "Key s3cr3t")]);
        assert!(headers.iter().all(|(_, value)| value.is_sensitive()) && !format!("{headers:?}").contains("s3cr3t"));
    }

    #[test]
    fn invalid_headers_are_reported_with_their_key() {
        let (longest, longer) = ("x".repeat(LONGEST_VALUE), "x".repeat(LONGEST_VALUE + 1));
        let long_name = "x".repeat(LONGEST_NAME + 1);
        for (data, key, word) in [
            (&[][..], "", "no key that names a header"),
            (&[("X.Team", "a")], "X.Team", "not the name of a header"),
            (&[("X_Team", "a")], "X_Team", "not the name of a header"),
            (&[(long_name.as_str(), "a")], long_name.as_str(), "not the name of a header"),
            (&[("Host", "a")], "Host", "Relaybook or the connection sets"),
            (&[("content-type", "a")], "content-type", "Relaybook or the connection sets"),
            (&[("Webhook-Id", "a")], "Webhook-Id", "Relaybook or the connection sets"),
            (&[("Proxy-Connection", "a")], "Proxy-Connection", "Relaybook or the connection sets"),
            (&[("X-A", "a"), ("x-a", "b")], "x-a", "occurs twice"),
            (&[("X-A", "")], "X-A", "is empty"),
            (&[("X-A", "s3cr3t\nX-B: b")], "X-A", "character 7 is a line break"),
            (&[("X-A", longer.as_str())], "X-A", "longer than 8 KiB"),
        ] {
            let error = read_all(data).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(word) && !error.contains("s3cr3t"), "{error}");
        }
        assert!(read_all(&[("X-A", &longest)]).is_ok());
        let names: Vec<_> = (0..=MOST).map(|n| format!("X-{n:02}")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), "a")).collect();
        assert!(read_all(&many[..MOST]).is_ok());
        assert!(read_all(&many).unwrap_err().to_string().contains("key X-16: exceeds the limit of 16 headers"));
    }
}
