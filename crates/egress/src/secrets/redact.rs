//! Prepares the answer of a receiver for display: without Secrets, without control characters, and short. Pure.

use std::ops::Range;

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use relaybook_text::prefix;

use super::spellings::{EncodedForms, MIN_PIECE, View, base64};

/// Maximum number of bytes that are kept of an answer.
const SHOWN: usize = 256;
/// Maximum number of secrets. With more secrets an answer is not kept, because the search for all of them would take too long.
const MAX_SECRETS: usize = 128;
/// The replacement for a secret.
const MASK: &str = "***";

/// The secrets in a request. They are masked in the answer, so that a receiver that repeats them cannot publish them.
#[derive(Clone, Debug, Default)]
pub struct Hidden(Vec<SecretString>);

/// The beginning of a body.
#[derive(Debug)]
pub struct Beginning {
    /// The received bytes.
    pub bytes: Vec<u8>,
    /// Whether the body was longer.
    pub cut: bool,
}

impl Beginning {
    /// Returns at most this many bytes of it.
    pub fn first(&self, limit: usize) -> Self {
        let length = self.bytes.len().min(limit);
        Self { bytes: self.bytes[..length].to_vec(), cut: self.cut || length < self.bytes.len() }
    }
}

impl Hidden {
    /// Hides this value.
    pub fn add(&mut self, value: &str) {
        if value.len() >= MIN_PIECE {
            self.0.push(value.into());
        }
    }

    /// Hides the value of a header: the whole value, and each word after a scheme such as `Bearer`.
    pub fn add_header(&mut self, value: &str) {
        self.add(value);
        value.split_whitespace().skip(1).for_each(|word| self.add(word));
    }

    /// Hides a user name and a password in the form of a header value.
    pub fn add_basic(&mut self, username: &str, password: &str) {
        self.add(&base64(format!("{username}:{password}").as_bytes()));
    }

    /// Hides a URL: its host, each segment of its path, and each part of its query, as written and percent-decoded.
    pub fn add_url(&mut self, url: &Url) {
        let written = url.path().split('/').chain(url.query().into_iter().flat_map(|q| q.split(['&', '='])));
        for piece in written.chain(url.host_str()) {
            self.add(piece);
            let read = percent_encoding::percent_decode_str(piece).decode_utf8_lossy();
            if read != piece {
                self.add(&read);
            }
        }
    }

    /// Returns the beginning of a body: at most 256 bytes, printable, and with hidden values masked in all known encodings.
    pub fn shown(&self, body: &Beginning) -> String {
        let text = String::from_utf8_lossy(&body.bytes);
        if self.0.len() > MAX_SECRETS {
            return length(body, "too many secrets to mask");
        }
        let text = if self.0.is_empty() || text.is_empty() { text.into_owned() } else { self.masked(&text, body.cut) };
        let shown: String = text.chars().map(|c| if printable(c) { c } else { ' ' }).collect();
        prefix(&shown, SHOWN).trim().to_owned()
    }

    /// Whether a text contains a hidden value, in any known encoding.
    pub fn is_in(&self, text: &str) -> bool {
        self.0.len() > MAX_SECRETS || self.masked(text, false) != text
    }

    /// Returns the text with hidden values masked, in upper or lower case. If the text was cut off, its end can be the beginning of a
    /// secret.
    fn masked(&self, text: &str, cut: bool) -> String {
        let views = View::all(text);
        let secrets = self.0.iter().map(|secret| EncodedForms::of(secret.expose_secret()));
        let mut found: Vec<Range<usize>> =
            secrets.flat_map(|secret| views.iter().flat_map(|view| view.find(&secret, cut)).collect::<Vec<_>>()).collect();
        found.sort_unstable_by_key(|range| range.start);
        let (mut clean, mut done) = (String::with_capacity(text.len()), 0);
        for range in found {
            let start = text.floor_char_boundary(range.start);
            if start >= done {
                clean.extend([&text[done..start], MASK]);
            }
            done = done.max(text.ceil_char_boundary(range.end.min(text.len())));
        }
        clean + &text[done..]
    }
}

/// Returns the replacement for an answer that readers of the Delivery must not see.
pub fn withheld(body: &Beginning) -> String {
    length(body, "the credentials belong to another namespace")
}

fn length(body: &Beginning, why: &str) -> String {
    let (more, bytes) = (if body.cut { "more than " } else { "" }, body.bytes.len());
    if bytes == 0 { String::new() } else { format!("({more}{bytes} bytes, not kept: {why})") }
}

/// Whether a character is visible and does not affect other characters. Bytes that are no text have become the replacement character.
fn printable(c: char) -> bool {
    !relaybook_text::is_unsafe(c) && c != char::REPLACEMENT_CHARACTER
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

    /// The shown part of a complete body.
    fn shown(hidden: &Hidden, body: &[u8]) -> String {
        hidden.shown(&Beginning { bytes: body.to_vec(), cut: false })
    }

    /// The shown part of a body that was cut off.
    fn of_cut(secrets: &[&str], body: &[u8]) -> String {
        hidden(secrets).shown(&Beginning { bytes: body.to_vec(), cut: true })
    }

    #[test]
    fn secrets_are_masked_in_each_part_of_a_header() {
        let mut hidden = Hidden::default();
        hidden.add_header("Bearer s3cr3t");
        hidden.add_header("whole-key");
        assert_eq!(shown(&hidden, b"Bearer s3cr3t, s3cr3t, a Bearer, whole-key"), "***, ***, a Bearer, ***");
    }

    #[test]
    fn secrets_are_masked_in_bodies_in_every_encoding() {
        for (secrets, body, expected) in [
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
            assert_eq!(shown(&hidden(secrets), body), expected);
        }
    }

    #[test]
    fn every_piece_of_a_url_is_hidden() {
        let mut hidden = Hidden::default();
        hidden.add_url(
            &Url::parse("https://hooks.example.com:8443/services/T%20000/B111/xyzzy?key=s3cr3t&k=pl%2Bugh").unwrap(),
        );
        let answer = b"no /services/T 000/B111/xyzzy?key=s3cr3t at hooks.example.com, pl+ugh pl%2Bugh T%20000 \\/B111\\/";
        let shown = shown(&hidden, answer);
        for piece in ["services", "T 000", "T%20000", "B111", "xyzzy", "s3cr3t", "example", "pl+ugh", "pl%2Bugh"] {
            assert!(!shown.contains(piece), "{piece} in {shown}");
        }
    }

    #[test]
    fn a_secret_across_the_cut_is_hidden_completely() {
        let body = format!("{}TOPSECRETVALUE", "x".repeat(250));
        let shown = shown(&hidden(&["TOPSECRETVALUE"]), body.as_bytes());
        assert!(!shown.contains("TOPS"), "{shown}");
    }

    /// Every masked form of a secret.
    fn spelt(secret: &str) -> Vec<(&'static str, String)> {
        let each = |write: fn(u8) -> String, between| secret.bytes().map(write).collect::<Vec<_>>().join(between);
        let once: String = each(|b| format!("%{b:02X}"), "");
        vec![
            ("as it is", secret.to_owned()),
            ("in capitals", secret.to_uppercase()),
            ("hexadecimal", each(|b| format!("{b:02x}"), "")),
            ("hexadecimal, spaced", each(|b| format!("{b:02x}"), " ")),
            ("hexadecimal, with colons", each(|b| format!("{b:02X}"), ":")),
            ("hexadecimal, as in C", each(|b| format!("0x{b:02x}"), ", ")),
            ("octal", each(|b| format!("{b:03o}"), " ")),
            ("decimal", each(|b| b.to_string(), ", ")),
            ("percent", once.clone()),
            ("percent, twice", once.replace('%', "%25")),
            ("percent, three times", once.replace('%', "%2525")),
            ("JSON", each(|b| format!("\\u{b:04x}"), "")),
            ("JSON in JSON", each(|b| format!("\\\\u{b:04x}"), "")),
            ("JavaScript", each(|b| format!("\\u{{{b:x}}}"), "")),
            ("C", each(|b| format!("\\x{b:02x}"), "")),
            ("C, octal", each(|b| format!("\\{b:03o}"), "")),
            ("HTML", each(|b| format!("&#{b};"), "")),
            ("HTML, hexadecimal", each(|b| format!("&#x{b:x};"), "")),
            ("reversed", secret.chars().rev().collect()),
            ("with dashes", each(|b| char::from(b).to_string(), "-")),
            ("spaced", each(|b| char::from(b).to_string(), " ")),
            ("in lines", secret.chars().collect::<Vec<_>>().chunks(4).map(String::from_iter).collect::<Vec<_>>().join("\n")),
        ]
    }

    #[test]
    fn encoded_forms_are_hidden() {
        let secret = "tok9-Q7f_2Zb+8w/Lx==K";
        for (what, text) in spelt(secret) {
            assert_eq!(shown(&hidden(&[secret]), format!("<{text}>").as_bytes()), "<***>", "{what}: {text}");
        }
        for (before, after) in
            [("", ""), ("a", "b"), ("ab", "c"), ("Bearer ", "\n"), ("{\"token\":\"", "\"}"), ("1234", "56")]
        {
            let whole = format!("{before}{secret}{after}");
            let standard = base64(whole.as_bytes());
            let url_safe = standard.replace('+', "-").replace('/', "_").replace('=', "");
            for text in [standard.clone(), url_safe, standard[..20].to_owned() + "\n" + &standard[20..]] {
                let left = shown(&hidden(&[secret]), text.as_bytes());
                let clean: String = left.split("***").collect();
                // The rest belongs to the adjacent text, except for less than a byte at each end.
                assert!(left.contains("***") && clean.len() <= (before.len() + after.len()).div_ceil(3) * 4 + 4, "{left}");
            }
        }
    }

    #[test]
    fn text_without_a_secret_is_unchanged() {
        let secret = "tok9-Q7f_2Zb+8w/Lx==K";
        for text in ["tok9", "100% of 5 &amp; 6 \\u00e9 \\x41", "invalid token", "{\"error\":\"\\u003cnone\\u003e\"}", "Q7f"]
        {
            assert_eq!(shown(&hidden(&[secret]), text.as_bytes()), text);
        }
    }

    #[test]
    fn the_beginning_of_a_secret_at_a_cut_is_hidden() {
        let secret = "tok9-Q7f_2Zb+8w/Lx==K and more of it";
        for (what, text) in spelt(secret) {
            // Each byte has at most seven characters, so all cuts are after at least five bytes.
            for end in (40..text.len()).filter(|end| text.is_char_boundary(*end)) {
                let left = of_cut(&[secret], format!("x {}", &text[..end]).as_bytes());
                assert!(left.starts_with("x ***") && left.len() <= 8, "{what}, {end}: {left}");
            }
        }
        // A complete text is not masked at its end.
        assert_eq!(shown(&hidden(&[secret]), b"a tok9"), "a tok9");
        assert_eq!(of_cut(&[secret], b"a tok9"), "a ***");
        assert_eq!(of_cut(&["sch\u{fc}ssel"], "a sch\u{fc}".as_bytes()), "a ***");
        assert_eq!(of_cut(&["pass\u{fc}wort"], b"a pass\xc3"), "a ***");
    }

    #[test]
    fn a_cut_secret_after_many_masked_ones_is_hidden() {
        let token = "0123456789abcdef".repeat(7);
        let mut body = token.repeat(1 + 4096 / token.len());
        body.truncate(4097);
        let left = of_cut(&[&token], body.as_bytes());
        assert!(!left.contains(&token[..4]), "{left}");
    }

    #[test]
    fn a_withheld_answer_is_replaced_by_its_length() {
        let said = |length, cut| withheld(&Beginning { bytes: vec![b'x'; length], cut });
        assert_eq!(said(0, false), "");
        assert_eq!(said(12, false), "(12 bytes, not kept: the credentials belong to another namespace)");
        assert_eq!(said(4097, true), "(more than 4097 bytes, not kept: the credentials belong to another namespace)");
        let query: Vec<_> = (0..200).map(|n| format!("key{n}=value{n}")).collect();
        let url = format!("https://h.example/?{}", query.join("&"));
        let mut hidden = Hidden::default();
        hidden.add_url(&url.parse().unwrap());
        assert_eq!(shown(&hidden, b"value1"), "(6 bytes, not kept: too many secrets to mask)");
    }

    proptest! {
        #[test]
        fn the_shown_text_is_short_printable_and_without_secrets(body: Vec<u8>, secret in "[a-z0-9]{4,12}", at in 0usize..300) {
            let mut body = body;
            let at = at.min(body.len());
            body.splice(at..at, secret.bytes());
            let shown = shown(&hidden(&[&secret]), &body);
            prop_assert!(shown.len() <= SHOWN);
            prop_assert!(shown.chars().all(printable));
            prop_assert!(!shown.contains(&secret));
        }
    }
}
