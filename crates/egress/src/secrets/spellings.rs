//! Finds a secret in a text, including its encoded forms. Pure.
//!
//! In: a text, and the secret. Out: ranges of the text. `docs/delivery.md` lists the recognised forms. They are escapes (of URLs,
//! JSON, HTML and several languages; also applied twice), base64 and base32 at any offset, numbers of bytes, and the reversed text.
//! Each of them is also found with separators in between.

use std::ops::Range;

use k8s_openapi::ByteString;
use secrecy::{ExposeSecret, SecretSlice};

/// Minimum length of a masked piece of a secret. Shorter pieces reveal nothing, and masking them would make every answer unreadable.
pub(crate) const MIN_PIECE: usize = 4;
/// The minimum length if separators are ignored. It is longer, because more text would match by chance.
const MIN_PIECE_COMPACT: usize = 6;
/// How many layers of escapes are decoded: `%2520` is a space that was escaped twice.
const ROUNDS: usize = 3;

/// The text to search, in lower case and possibly without escapes or separators.
pub(crate) struct View {
    bytes: Vec<u8>,
    /// The range in the text for each of the bytes.
    places: Vec<Range<usize>>,
    /// Number of bytes before an escape or a character that is cut off at the end.
    complete: usize,
    /// Minimum length of a piece of a secret.
    min_piece: usize,
}

/// The encoded forms of one secret.
pub(crate) struct EncodedForms {
    with_separators: Vec<SecretSlice<u8>>,
    without_separators: Vec<SecretSlice<u8>>,
}

impl View {
    /// All views of one text that must be searched.
    pub(crate) fn all(text: &str) -> Vec<Self> {
        let bytes = text.to_ascii_lowercase().into_bytes();
        let places = (0..bytes.len()).map(|at| at..at + 1).collect();
        let complete = text.trim_end_matches(char::REPLACEMENT_CHARACTER).len();
        let mut views = vec![Self { bytes, places, complete, min_piece: MIN_PIECE }];
        for _ in 0..ROUNDS {
            let Some(next) = views.last().and_then(Self::unescaped) else { break };
            views.push(next);
        }
        let compact: Vec<_> = views.iter().map(Self::without_separators).collect();
        views.extend(compact);
        views
    }

    /// Returns the view with one layer of escapes decoded, or `None` if there are no escapes.
    fn unescaped(&self) -> Option<Self> {
        let mut view = Self { bytes: Vec::new(), places: Vec::new(), complete: usize::MAX, min_piece: self.min_piece };
        let (mut at, mut found) = (0, false);
        while at < self.bytes.len() {
            let rest = &self.bytes[at..];
            let (meant, length) = match unescape(rest) {
                Some(escape) => {
                    found = true;
                    escape
                }
                None => (vec![rest[0].to_ascii_lowercase()], 1),
            };
            if at >= self.complete || is_cut(rest) {
                view.complete = view.complete.min(view.bytes.len());
            }
            let place = self.places[at].start..self.places[at + length - 1].end;
            view.places.extend(meant.iter().map(|_| place.clone()));
            view.bytes.extend(meant.iter().map(u8::to_ascii_lowercase));
            at += length;
        }
        view.complete = view.complete.min(view.bytes.len());
        (found || view.complete < self.complete).then_some(view)
    }

    /// The view with only letters and digits.
    fn without_separators(&self) -> Self {
        let kept = || (0..self.bytes.len()).filter(|at| is_kept(self.bytes[*at]));
        Self {
            bytes: kept().map(|at| self.bytes[at]).collect(),
            places: kept().map(|at| self.places[at].clone()).collect(),
            complete: kept().take_while(|at| *at < self.complete).count(),
            min_piece: MIN_PIECE_COMPACT,
        }
    }

    /// Returns the ranges of the text that contain a secret. If the text was `cut` off, this includes the beginning of a secret at its end.
    pub(crate) fn find(&self, secret: &EncodedForms, cut: bool) -> Vec<Range<usize>> {
        let forms = if self.min_piece == MIN_PIECE { &secret.with_separators } else { &secret.without_separators };
        let mut found = Vec::new();
        for form in forms.iter().map(ExposeSecret::expose_secret).filter(|s| s.len() >= self.min_piece) {
            let mut at = 0;
            while let Some(next) = position(&self.bytes[at..], form) {
                let (first, last) = (at + next, at + next + form.len() - 1);
                found.push(self.places[first].start..self.places[last].end);
                at = last + 1;
            }
            found.extend(self.beginning(form).filter(|_| cut));
        }
        found
    }

    /// Returns the range at the end of the text that is the beginning of an encoded form.
    fn beginning(&self, form: &[u8]) -> Option<Range<usize>> {
        let text = &self.bytes[..self.complete];
        let longest = text.len().min(form.len() - 1);
        let length = (self.min_piece..=longest).rev().find(|length| text.ends_with(&form[..*length]))?;
        Some(self.places[self.complete - length].start..usize::MAX)
    }
}

impl EncodedForms {
    /// The encoded forms of this secret.
    pub(crate) fn of(secret: &str) -> Self {
        let bytes = secret.as_bytes();
        let numbers = |write: fn(&u8) -> String| bytes.iter().map(write).collect::<String>();
        let mut all = vec![
            secret.to_owned(),
            secret.chars().rev().collect(),
            hex::encode(bytes),
            numbers(|byte| format!("0x{byte:02x}")),
            numbers(|byte| format!("{byte:03o}")),
            numbers(|byte| format!("{byte}")),
        ];
        let padded = base64(bytes);
        let unpadded = padded.trim_end_matches('=').to_owned();
        // A secret inside a longer text has three encodings in base64, and five in base32. Its first and last digits depend on the
        // adjacent bytes.
        let within = (0..3).map(|before| inner_digits(bytes, before, 3, 4, base64));
        let base64: Vec<_> = [padded, unpadded].into_iter().chain(within).collect();
        all.extend(base64.iter().map(|text| text.replace('+', "-").replace('/', "_")));
        all.extend(base64);
        all.extend((0..5).map(|before| inner_digits(bytes, before, 5, 8, base32)));
        for text in &mut all {
            text.make_ascii_lowercase();
        }
        let apart = all.iter().map(|text| text.bytes().filter(|byte| is_kept(*byte)).collect::<Vec<_>>());
        let without_separators = apart.map(SecretSlice::from).collect();
        Self { with_separators: all.into_iter().map(|text| text.into_bytes().into()).collect(), without_separators }
    }
}

/// Whether a byte is part of a letter or digit.
fn is_kept(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

fn position(text: &[u8], part: &[u8]) -> Option<usize> {
    let first = part.first()?;
    let mut at = 0;
    loop {
        at += text[at..].iter().position(|byte| byte == first)?;
        if text[at..].starts_with(part) {
            return Some(at);
        }
        at += 1;
    }
}

/// Returns the decoded bytes and the length of the escape at the beginning of a text. The text is in lower case.
fn unescape(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    match *text {
        [b'%', ..] => Some((vec![u8::try_from(number(text.get(1..3)?, 16)?).ok()?], 3)),
        [b'\\', b'u', b'{', ref rest @ ..] => {
            let digits = rest.iter().position(|byte| *byte == b'}')?;
            Some((character(number(rest.get(..digits)?, 16)?)?, digits + 4))
        }
        [b'\\', b'u', ..] => {
            let first = number(text.get(2..6)?, 16)?;
            let second = text.get(6..12).filter(|rest| rest.starts_with(b"\\u")).and_then(|rest| number(&rest[2..], 16));
            match (first, second) {
                (0xd800..0xdc00, Some(second @ 0xdc00..0xe000)) => {
                    Some((character(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))?, 12))
                }
                _ => Some((character(first)?, 6)),
            }
        }
        [b'\\', b'x', ..] => Some((vec![u8::try_from(number(text.get(2..4)?, 16)?).ok()?], 4)),
        [b'\\', b'0'..=b'7', ..] => {
            let digits = text[1..].iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            Some((vec![u8::try_from(number(&text[1..=digits], 8)?).ok()?], digits + 1))
        }
        [b'\\', sign @ (b'\\' | b'/' | b'"' | b'\''), ..] => Some((vec![sign], 2)),
        [b'&', b'#', ..] => {
            let radix = if text.get(2) == Some(&b'x') { 16 } else { 10 };
            let begin = if radix == 16 { 3 } else { 2 };
            let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
            let end = begin + text.get(begin..)?.iter().take(8).take_while(is_digit).count();
            let semicolon = usize::from(text.get(end) == Some(&b';'));
            Some((character(number(&text[begin..end], radix)?)?, end + semicolon))
        }
        [b'&', ..] => {
            let names: [(&[u8], u8); 5] =
                [(b"&amp;", b'&'), (b"&lt;", b'<'), (b"&gt;", b'>'), (b"&quot;", b'"'), (b"&apos;", b'\'')];
            names.into_iter().find(|(name, _)| text.starts_with(name)).map(|(name, sign)| (vec![sign], name.len()))
        }
        _ => None,
    }
}

/// Whether a text can be the beginning of an escape.
fn is_cut(text: &[u8]) -> bool {
    let (longest, sign) = match text.first() {
        Some(b'%') => (2, false),
        Some(b'\\') => (9, false),
        Some(b'&') => (10, true),
        _ => return false,
    };
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'{' || (sign && *byte == b'#');
    text.len() <= longest && text[1..].iter().all(is_part)
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u32::from_str_radix(text, radix).ok()
}

fn character(number: u32) -> Option<Vec<u8>> {
    char::from_u32(number).map(|c| c.to_string().into_bytes())
}

/// Returns the encoded form of bytes that come after `before` other bytes, without the digits that also depend on adjacent bytes. `group`
/// bytes are encoded as `digits` digits.
fn inner_digits(bytes: &[u8], before: usize, group: usize, digits: usize, write: fn(&[u8]) -> String) -> String {
    let bits = 8 * group / digits;
    let text = write(&[&vec![0; before], bytes].concat());
    let first = (8 * before).div_ceil(bits);
    let last = 8 * (before + bytes.len()) / bits;
    text.get(first..last).unwrap_or_default().to_owned()
}

/// Base64, as Kubernetes encodes bytes.
pub(crate) fn base64(bytes: &[u8]) -> String {
    let value = serde_json::to_value(ByteString(bytes.to_vec()));
    value.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Base32 (RFC 4648), without padding.
fn base32(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bit = |at: usize| bytes.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1);
    let digit = |at: usize| (0..5).fold(0, |digit, next| digit << 1 | usize::from(bit(5 * at + next)));
    (0..(8 * bytes.len()).div_ceil(5)).map(|at| char::from(DIGITS[digit(at)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_that_depend_on_adjacent_bytes_are_omitted() {
        assert_eq!(base32(b"foobar"), "MZXW6YTBOI");
        assert_eq!(base64(b"foobar"), "Zm9vYmFy");
        for (before, after) in [("", ""), ("x", "y"), ("xy", "z"), ("xyz", "z"), ("wxyz", "zz")] {
            let whole = format!("{before}secret-value{after}");
            let sixty_four = inner_digits(b"secret-value", before.len() % 3, 3, 4, base64);
            let thirty_two = inner_digits(b"secret-value", before.len() % 5, 5, 8, base32);
            assert!(base64(whole.as_bytes()).contains(&sixty_four) && sixty_four.len() >= 14, "{whole}: {sixty_four}");
            assert!(base32(whole.as_bytes()).contains(&thirty_two) && thirty_two.len() >= 17, "{whole}: {thirty_two}");
        }
    }

    #[test]
    fn escape_sequences_are_decoded() {
        for (text, meant) in [
            ("%41", Some(("A", 3))),
            ("%4", None),
            ("%+1", None),
            ("\\u0041b", Some(("A", 6))),
            ("\\u{41}b", Some(("A", 6))),
            ("\\ud83d\\ude00", Some(("\u{1f600}", 12))),
            ("\\ud83d", None),
            ("\\x41", Some(("A", 4))),
            ("\\1018", Some(("A", 4))),
            ("\\777", None),
            ("\\/", Some(("/", 2))),
            ("\\q", None),
            ("&#65;", Some(("A", 5))),
            ("&#x41;", Some(("A", 6))),
            ("&#65", Some(("A", 4))),
            ("&amp;", Some(("&", 5))),
            ("&nbsp;", None),
        ] {
            assert_eq!(unescape(text.as_bytes()), meant.map(|(m, length)| (m.as_bytes().to_vec(), length)), "{text}");
        }
    }
}
