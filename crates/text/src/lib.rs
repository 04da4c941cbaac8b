//! Texts for people: cut, on one line, and without characters that are not seen.
//!
//! In: texts of users, other systems and libraries. Out: texts that are safe and short enough for a log line, a status or a terminal. Pure; uses
//! no other crate.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

#[cfg(feature = "testing")]
mod spellings;

use std::borrow::Cow;
use std::fmt::{self, Write};

#[cfg(feature = "testing")]
pub use spellings::spelling;

/// Ends a text that was cut.
pub const ELLIPSIS: char = '…';

/// Returns at most `max` bytes of a text. If something is left out, the last character is an ellipsis.
#[must_use]
pub fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}{ELLIPSIS}", prefix(text, max.saturating_sub(ELLIPSIS.len_utf8()))))
}

/// Returns at most `max` characters of a text. If something is left out, the last character is an ellipsis.
#[must_use]
pub fn cut_chars(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max.saturating_sub(1)) {
        Some((end, last)) if end + last.len_utf8() < text.len() => Cow::Owned(format!("{}{ELLIPSIS}", &text[..end])),
        _ => Cow::Borrowed(text),
    }
}

/// Returns at most `max` bytes of a text, without a mark that something is left out.
#[must_use]
pub fn prefix(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Returns the first line of a text that is not blank. Further lines of a parser's message quote the text that was parsed.
#[must_use]
pub fn first_line(text: &str) -> String {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

/// Whether a character has no shape of its own and is not a space. These are the
/// [format characters](https://www.unicode.org/reports/tr44/#General_Category_Values) that join, separate or tag other characters, or change the
/// direction of text. The separators of lines and paragraphs are among them, and the mark of a missing object.
#[must_use]
pub fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffc}' | '\u{e0000}'..='\u{e007f}'
    )
}

/// Whether a character could end a line, control a terminal, or make a text look different from its content.
#[must_use]
pub fn is_unsafe(c: char) -> bool {
    c.is_control() || is_invisible(c)
}

/// Returns a text on one line, with at most `max` bytes, without control characters, invisible characters and escape sequences of terminals.
#[must_use]
pub fn clean(text: &str, max: usize) -> String {
    // What is left out takes no more than three times the room of what stays. The work must not depend on the length of a hostile text.
    let mut chars = prefix(text, max.saturating_mul(4)).chars();
    let mut clean = String::new();
    while let Some(next) = chars.next() {
        match next {
            '\u{1b}' => skip_sequence(&mut chars),
            _ if next.is_whitespace() || next.is_control() => {
                if !clean.is_empty() && !clean.ends_with(' ') {
                    clean.push(' ');
                }
            }
            _ if is_invisible(next) => {}
            _ => clean.push(next),
        }
    }
    cut(clean.trim_end(), max).into_owned()
}

/// Skips the rest of a sequence like `ESC [ 31 m`.
fn skip_sequence(chars: &mut std::str::Chars<'_>) {
    let mut ahead = chars.clone();
    if ahead.next() != Some('[') {
        return;
    }
    for next in ahead.by_ref() {
        if ('@'..='~').contains(&next) {
            break;
        }
    }
    *chars = ahead;
}

/// Writes safe characters unchanged, and all others as in a Rust literal: `\n`, `\u{1b}`.
pub struct Escaped<'a>(pub &'a mut dyn Write);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_unsafe(*c)) {
            self.0.write_str(&rest[..at])?;
            match c {
                '\n' | '\r' | '\t' => write!(self.0, "{}", c.escape_default())?,
                _ => write!(self.0, "{}", c.escape_unicode())?,
            }
            rest = &rest[at + c.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

impl fmt::Debug for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Escaped")
    }
}

/// Returns a text for a terminal: on one line, and without control sequences.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    // Writing to a String cannot fail.
    let _ = Escaped(&mut safe).write_str(text);
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_cut_ends_in_an_ellipsis() {
        for (text, max, bytes, chars) in [
            ("", 0, "", ""),
            ("abc", 3, "abc", "abc"),
            ("abcdefgh", 6, "abc…", "abcde…"),
            ("ääää", 6, "ä…", "ääää"),
            ("ääää", 3, "…", "ää…"),
            ("abc", 1, "…", "…"),
        ] {
            assert_eq!((cut(text, max).as_ref(), cut_chars(text, max).as_ref()), (bytes, chars), "{text} {max}");
        }
        assert_eq!((prefix("ääää", 5), prefix("a", 5)), ("ää", "a"));
    }

    #[test]
    fn the_first_line_is_not_blank() {
        for (text, line) in [("", ""), (" \n a b \nc", "a b"), ("a\r\nb", "a")] {
            assert_eq!(first_line(text), line);
        }
    }

    /// The union of the general category Cf below U+E0080, of Zl and Zp, and of U+FFFC, except marks that some scripts show.
    #[test]
    fn format_and_separator_characters_are_invisible() {
        let invisible: String = ('\0'..=char::MAX).filter(|c| is_invisible(*c)).collect();
        let expected = ["\u{ad}\u{61c}\u{180e}".to_owned()].into_iter().chain(
            [(0x200b, 0x200f), (0x2028, 0x202e), (0x2060, 0x206f), (0xfeff, 0xfeff), (0xfff9, 0xfffc), (0xe_0000, 0xe_007f)]
                .map(|(from, to)| (from..=to).filter_map(char::from_u32).collect()),
        );
        assert_eq!(invisible, expected.collect::<String>());
        assert!(!" \u{a0}…a✓\u{fffd}".chars().any(is_invisible));
    }

    #[test]
    fn clean_texts_have_one_line_and_no_hidden_characters() {
        for (text, expected) in [
            ("a\r\n\tb\u{0}c", "a b c"),
            ("\u{202e}a\u{200b}", "a"),
            (" a  b ", "a b"),
            ("\u{1b}[31mred\u{1b}[0m \u{1b}x", "red x"),
            ("a \u{200b}", "a"),
            ("<b>&amp;", "<b>&amp;"),
            ("\u{1b}[", ""),
            ("", ""),
        ] {
            assert_eq!(clean(text, 64), expected, "{text:?}");
        }
        let long = clean(&"é".repeat(5_000), 512);
        assert!(long.len() <= 512 && long.ends_with(ELLIPSIS), "{long}");
    }

    #[test]
    fn escaped_texts_name_what_is_not_safe() {
        assert_eq!(escaped("a\nb\t\u{1b}[31m\u{202e}é"), "a\\nb\\t\\u{1b}[31m\\u{202e}é");
    }
}
