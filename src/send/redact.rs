//! What a receiver said, made fit to be shown: no Secrets, no control characters, not long. Pure.

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

    /// Hides a URL: its host, each segment of its path, each value of its query, as they are written and as they are read.
    pub fn add_url(&mut self, url: &Url) {
        let written = url.path().split('/').chain(url.query().into_iter().flat_map(|q| q.split(['&', '='])));
        for piece in written.chain(url.host_str()) {
            self.add(piece);
            self.add(&percent_encoding::percent_decode_str(piece).decode_utf8_lossy());
        }
    }

    /// The beginning of a body, at most 256 bytes, printable and without what is hidden.
    pub fn shown(&self, body: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(body).into_owned();
        // Long ones first: one Secret may be part of another.
        let mut hidden: Vec<&str> = self.0.iter().map(SecretString::expose_secret).collect();
        hidden.sort_unstable_by_key(|s| std::cmp::Reverse(s.len()));
        for secret in hidden {
            text = text.replace(secret, MASK);
        }
        let mut shown: String = text.chars().map(|c| if printable(c) { c } else { ' ' }).collect();
        shown.truncate(shown.floor_char_boundary(SHOWN));
        shown.trim().to_owned()
    }
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
    fn bodies() {
        for (secrets, body, shown) in [
            (&[][..], &b"nope"[..], "nope"),
            (&[], b"", ""),
            (&[], b"  two\r\nlines\t\x1b[31m ", "two  lines  [31m"),
            (&[], b"bad \xff\xfe utf-8", "bad    utf-8"),
            (&[], "left\u{202e}right".as_bytes(), "left right"),
            (&["s3cr3t"], br#"{"token":"s3cr3t","again":"s3cr3t"}"#, r#"{"token":"***","again":"***"}"#),
            (&["abcd", "abcdefgh"], b"abcdefgh abcd", "*** ***"),
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
