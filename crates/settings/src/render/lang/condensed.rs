//! Shortens a source for the parser. A mark replaces each long text between tags, and the text is restored after parsing.
//!
//! In: a source, and the ranges of its literal texts. Out: a short source with marks, the text of each mark, and the position in the whole
//! source for a position in the short one.
//!
//! For every tag, the parser counts lines and columns from the start of the source. So its work grows with the number of tags times the
//! number of bytes. Of a text it needs only the whitespace at both ends, and the backslashes before a tag.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::ops::Range;

use crate::render::error::Position;

/// Maximum length in bytes of a text that is not replaced.
const SHORT: usize = 24;
/// Characters for private use. One of them is the mark, and encloses the number of a text.
const MARKS: std::ops::RangeInclusive<char> = '\u{F0000}'..='\u{FFFFD}';

/// A source without its long texts.
#[derive(Debug)]
pub(crate) struct Condensed<'a> {
    /// The source for the parser.
    pub(crate) source: Cow<'a, str>,
    mark: char,
    texts: Vec<&'a str>,
    /// For each text, the position of its end in the short source and in the whole source.
    ends: Vec<(Position, Position)>,
}

impl<'a> Condensed<'a> {
    /// Replaces the long parts of the texts in these ranges. The ranges are in order.
    pub(crate) fn new(source: &'a str, places: &[Range<usize>]) -> Self {
        let mut all = Self { source: Cow::Borrowed(source), mark: *MARKS.start(), texts: Vec::new(), ends: Vec::new() };
        let long: Vec<_> = places.iter().filter_map(|place| long_part(source, place)).collect();
        let used: HashSet<char> = source.chars().filter(|c| MARKS.contains(c)).collect();
        let Some(mark) = MARKS.clone().find(|mark| !used.contains(mark)).filter(|_| !long.is_empty()) else { return all };
        let mut short = String::new();
        let (mut at, mut here, mut there) = (0, Position::START, Position::START);
        for part in long {
            let (before, text) = (&source[at..part.start], &source[part.clone()]);
            let begin = short.len() + before.len();
            short.push_str(before);
            // Writing to a String cannot fail.
            let _ = write!(short, "{mark}{}{mark}", all.texts.len());
            (here, there) = (here.after(before).after(&short[begin..]), there.after(before).after(text));
            all.ends.push((here, there));
            all.texts.push(text);
            at = part.end;
        }
        short.push_str(&source[at..]);
        Self { source: Cow::Owned(short), mark, ..all }
    }

    /// Returns a text with the replaced parts restored.
    pub(crate) fn whole(&self, text: &str) -> String {
        if self.texts.is_empty() {
            return text.to_owned();
        }
        let mut whole = String::new();
        for (index, piece) in text.split(self.mark).enumerate() {
            // Every second piece is between two marks.
            let left_out = (index % 2 == 1).then(|| self.texts.get(piece.parse::<usize>().ok()?)).flatten();
            whole.push_str(left_out.unwrap_or(&piece));
        }
        whole
    }

    /// Returns the position in the whole source for a position in the short source.
    pub(crate) fn position(&self, line: usize, column: usize) -> Position {
        let count = self.ends.partition_point(|(short, _)| (short.line, short.column) <= (line, column));
        match count.checked_sub(1).and_then(|last| self.ends.get(last)) {
            Some((short, whole)) if short.line == line => {
                Position { line: whole.line, column: whole.column + (column - short.column) }
            }
            Some((short, whole)) => Position { line: whole.line + (line - short.line), column },
            None => Position { line, column },
        }
    }
}

/// Returns the part of a text that can be replaced: without the whitespace at both ends, and without the backslashes at its end.
fn long_part(source: &str, place: &Range<usize>) -> Option<Range<usize>> {
    let text = source.get(place.clone())?;
    let begin = place.start + (text.len() - text.trim_start().len());
    let part = text.trim().trim_end_matches('\\');
    // Before the removed backslashes, the part can end with whitespace. The parser does not need that whitespace.
    (part.len() > SHORT).then(|| begin..begin + part.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condensed_texts_are_restored_at_their_positions() {
        let long = "long text with\nlines é and more of it";
        let source = format!(" \n{long} \\\\{{{{a}}}}\n{long}\n{{{{b}}}} short {{{{c}}}}{long}");
        let tags: Vec<_> = ["{{a}}", "{{b}}", "{{c}}"].map(|tag| source.find(tag).unwrap()).into();
        let ends = [0, tags[0] + 5, tags[1] + 5, tags[2] + 5];
        let places: Vec<_> = ends.iter().zip(tags.iter().chain([&source.len()])).map(|(a, b)| *a..*b).collect();
        let condensed = Condensed::new(&source, &places);
        assert!(condensed.source.len() < 80, "{}", condensed.source);
        assert!(!condensed.source.contains("long"));
        assert_eq!(condensed.whole(&condensed.source), source);
        for tag in ["{{a}}", "{{b}}", "{{c}}"] {
            let short = Position::of(&condensed.source, condensed.source.find(tag).unwrap());
            let whole = Position::of(&source, source.find(tag).unwrap());
            assert_eq!(condensed.position(short.line, short.column), whole, "{tag}");
        }
    }

    #[test]
    fn a_text_that_looks_like_a_placeholder_is_unchanged() {
        let text = format!("{0}0{0} {1}", '\u{F0000}', "x".repeat(100));
        let whole = 0..text.len();
        let condensed = Condensed::new(&text, std::slice::from_ref(&whole));
        assert_eq!(condensed.whole(&condensed.source), text);
        assert!(condensed.source.len() < 20);
        assert_eq!(condensed.whole("\u{F0000}0\u{F0000}"), "\u{F0000}0\u{F0000}");
    }

    #[test]
    fn the_condensed_source_grows_with_the_tags_and_not_with_the_text() {
        let short = |bytes: usize| {
            let source = format!("{{{{id}}}}{}", "x".repeat(bytes / 500)).repeat(500);
            let texts = crate::render::lang::limits::scan(&source).unwrap().texts;
            Condensed::new(&source, &texts).source.len()
        };
        assert_eq!(short(28 * 1024), short(56 * 1024));
        assert!(short(56 * 1024) < 500 * 20);
    }

    #[test]
    fn short_texts_and_whitespace_are_not_condensed() {
        let source = format!("{}{}", " \n".repeat(100), "x".repeat(SHORT));
        assert_eq!(Condensed::new(&source, std::slice::from_ref(&(0..source.len()))).source, source);
    }
}
