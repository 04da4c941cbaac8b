//! What a receiver said, made fit to be shown: no Secrets, no control characters, not long. Pure.

use k8s_openapi::ByteString;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

/// So much of an answer is kept, in bytes.
const SHOWN: usize = 256;
/// Shorter pieces of a Secret are left in: they say nothing, and to take them out would garble every answer.
const TELLING: usize = 4;
/// What stands in the place of a Secret.
const MASK: &str = "***";

/// Secrets that a request carries, so that a receiver that repeats them cannot make them public.
#[derive(Debug, Default)]
pub struct Hidden(Vec<SecretString>);

impl Hidden {
    /// Hides this value.
    pub fn add(&mut self, value: &str) {
        if value.len() >= TELLING {
            self.0.push(value.into());
        }
    }

    /// Hides what stands in a header: the whole, and what comes after a scheme such as `Bearer`.
    pub fn add_header(&mut self, value: &str) {
        self.add(value);
        value.split_whitespace().skip(1).for_each(|word| self.add(word));
    }

    /// Hides a user name and a password as they are written in a header.
    pub fn add_basic(&mut self, username: &str, password: &str) {
        self.add(&base64(&format!("{username}:{password}")));
    }

    /// Hides a URL: its host, each segment of its path, each value of its query, as they are written and as they are read.
    pub fn add_url(&mut self, url: &Url) {
        let written = url.path().split('/').chain(url.query().into_iter().flat_map(|q| q.split(['&', '='])));
        for piece in written.chain(url.host_str()) {
            self.add(piece);
            self.add(&percent_encoding::percent_decode_str(piece).decode_utf8_lossy());
        }
    }

    /// The beginning of a body, at most 256 bytes, printable and without what is hidden, however a receiver spells it.
    pub fn shown(&self, body: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(body).into_owned();
        if !text.is_empty() {
            let mut hidden: Vec<SecretString> = self.0.iter().flat_map(|s| spellings(s.expose_secret())).collect();
            // Long ones first: one Secret may be part of another.
            hidden.sort_unstable_by_key(|s| std::cmp::Reverse(s.expose_secret().len()));
            for secret in hidden {
                text = masked(text, secret.expose_secret());
            }
        }
        let mut shown: String = text.chars().map(|c| if printable(c) { c } else { ' ' }).collect();
        shown.truncate(shown.floor_char_boundary(SHOWN));
        shown.trim().to_owned()
    }
}

/// How a receiver may write down what it was sent: as it is, in a URL, in a JSON string, in base64, in hexadecimal digits.
fn spellings(secret: &str) -> impl Iterator<Item = SecretString> {
    let quoted = serde_json::Value::from(secret).to_string();
    let padded = base64(secret);
    let unpadded = padded.trim_end_matches('=').to_owned();
    let url_safe = unpadded.replace('+', "-").replace('/', "_");
    let all = [
        secret.to_owned(),
        utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string(),
        quoted.trim_matches('"').to_owned(),
        padded,
        unpadded,
        url_safe,
        hex::encode(secret),
    ];
    all.into_iter().filter(|spelling| spelling.len() >= TELLING).map(SecretString::from)
}

/// In base64, as Kubernetes writes bytes.
fn base64(text: &str) -> String {
    let value = serde_json::to_value(ByteString(text.as_bytes().to_vec()));
    value.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// A text without a Secret, in capitals or not: hosts are repeated either way.
fn masked(text: String, secret: &str) -> String {
    let (within, secret) = (text.to_ascii_lowercase(), secret.to_ascii_lowercase());
    let mut found = within.match_indices(&secret).map(|(at, _)| at).peekable();
    if found.peek().is_none() {
        return text;
    }
    let mut rest = 0;
    let mut clean = String::with_capacity(text.len());
    for at in found {
        clean.extend([&text[rest..at], MASK]);
        rest = at + secret.len();
    }
    clean + &text[rest..]
}

/// Whether a character shows itself and leaves its neighbours alone. Format characters, which turn the direction of text or
/// take no room, could make a line say something else than it holds.
fn printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        && !matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffd}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hidden(values: &[&str]) -> Hidden {
        let mut hidden = Hidden::default();
        for value in values {
            hidden.add(value);
        }
        hidden
    }

    #[test]
    fn headers() {
        let mut hidden = Hidden::default();
        hidden.add_header("Bearer s3cr3t");
        hidden.add_header("whole-key");
        assert_eq!(hidden.shown(b"Bearer s3cr3t, s3cr3t, a Bearer, whole-key"), "***, ***, a Bearer, ***");
    }

    #[test]
    fn bodies() {
        for (secrets, body, shown) in [
            (&[][..], &b"nope"[..], "nope"),
            (&[], b"", ""),
            (&[], b"  two\r\nlines\t\x1b[31m ", "two  lines  [31m"),
            (&[], b"bad \xff\xfe utf-8", "bad    utf-8"),
            (&[], "left\u{202e}right".as_bytes(), "left right"),
            (&["s3cr3t"], br#"{"token":"s3cr3t","again":"s3cr3t"}"#, r#"{"token":"***","again":"***"}"#),
            (&["abcd", "abcdefgh"], b"abcdefgh abcd", "*** ***"),
            (&["TopSecret"], b"TOPSECRET topsecret T\xc3\xbcp", "*** *** T\u{fc}p"),
            (
                &["a \"b\"/c?"],
                br#"a "b"/c? a \"b\"/c? a%20%22b%22%2Fc%3F YSAiYiIvYz8= YSAiYiIvYz8 61202262222f633f"#,
                "*** *** *** *** *** ***",
            ),
            (&["????"], b"Pz8/Pw== Pz8_Pw %3F%3f%3F%3F", "*** *** ***"),
            (&["a"], b"a cat", "a cat"),
        ] {
            assert_eq!(hidden(secrets).shown(body), shown);
        }
    }

    #[test]
    fn every_piece_of_a_url_is_hidden() {
        let mut hidden = Hidden::default();
        hidden.add_url(
            &Url::parse("https://hooks.example.com:8443/services/T%20000/B111/xyzzy?key=s3cr3t&k=pl%2Bugh").unwrap(),
        );
        let answer = b"no /services/T 000/B111/xyzzy?key=s3cr3t at hooks.example.com, pl+ugh pl%2Bugh T%20000 \\/B111\\/";
        let shown = hidden.shown(answer);
        for piece in ["services", "T 000", "T%20000", "B111", "xyzzy", "s3cr3t", "example", "pl+ugh", "pl%2Bugh"] {
            assert!(!shown.contains(piece), "{piece} in {shown}");
        }
    }

    #[test]
    fn a_secret_across_the_cut_is_hidden_whole() {
        let body = format!("{}TOPSECRETVALUE", "x".repeat(250));
        let shown = hidden(&["TOPSECRETVALUE"]).shown(body.as_bytes());
        assert!(!shown.contains("TOPS"), "{shown}");
    }

    proptest! {
        #[test]
        fn short_printable_and_without_secrets(body: Vec<u8>, secret in "[a-z0-9]{4,12}", at in 0usize..300) {
            let mut body = body;
            let at = at.min(body.len());
            body.splice(at..at, secret.bytes());
            let shown = hidden(&[&secret]).shown(&body);
            prop_assert!(shown.len() <= SHOWN);
            prop_assert!(shown.chars().all(printable));
            prop_assert!(!shown.contains(&secret));
        }
    }
}
