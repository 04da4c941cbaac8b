//! Finds the setters of a file, and their values.

use std::ops::Range;

use super::SetterError;
use super::marker::{self, EnvironmentRef, Marker, Part};
use super::nodes::{self, Content, Node, NotYaml, Scalar};

/// Maximum length of a marker in a text, in bytes. Without it, a long line would be read again and again.
const LONGEST: usize = 1024;

/// A value with a marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setter {
    /// The line, from 1.
    pub line: u64,
    /// The environment whose promotions set the value.
    pub environment: EnvironmentRef,
    /// What of the value is set.
    pub part: Part,
    /// The value. A value that is not a text is shown as it is written, without quotes.
    pub value: String,
    /// The position of the value with its quotes, in bytes.
    pub(super) span: Range<usize>,
    /// The position of the value in the list of nodes.
    pub(super) node: usize,
}

/// A marker that sets nothing, or a file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: u64,
    /// The environment that the marker names. `None` if it is not known.
    pub environment: Option<EnvironmentRef>,
    /// What is wrong.
    pub error: SetterError,
}

/// All markers of a file, in the order of their lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setters {
    /// The markers with a value.
    pub setters: Vec<Setter>,
    /// The markers that set nothing. If the file is not YAML, this is the only problem.
    pub problems: Vec<Problem>,
}

/// Whether a file can contain markers. The answer needs no parser. If it is `false`, [`scan()`] finds nothing.
#[must_use]
pub fn is_candidate(text: &str) -> bool {
    marker::has_word(text)
}

/// Finds all markers of a file.
#[must_use]
pub fn scan(text: &str) -> Setters {
    if !is_candidate(text) {
        return Setters::default();
    }
    match nodes::read(text) {
        Ok(nodes) => Scan::new(text, &nodes).run(),
        Err(NotYaml { line, problem }) => {
            let problem = Problem { line, environment: None, error: SetterError::NotYaml(problem) };
            Setters { setters: Vec::new(), problems: vec![problem] }
        }
    }
}

/// A key or a value as it is written.
struct Piece {
    span: Range<usize>,
    /// Its position in the list of nodes.
    node: usize,
    is_key: bool,
    /// Whether an alias or a merge key uses it, too.
    is_shared: bool,
}

pub(super) struct Scan<'a> {
    text: &'a str,
    nodes: &'a [Node],
    /// The keys and values, in the order of the text. They do not overlap.
    pieces: Vec<Piece>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str, nodes: &'a [Node]) -> Self {
        let mut pieces: Vec<Piece> = Vec::new();
        for (node, Node { content, span }) in nodes.iter().enumerate() {
            let is_key = match content {
                Content::Key(_) => true,
                Content::Value(_) => false,
                Content::Map | Content::List | Content::End => continue,
            };
            if !span.is_empty() {
                pieces.push(Piece { span: span.clone(), node, is_key, is_shared: false });
            }
        }
        pieces.sort_by_key(|piece| (piece.span.start, piece.span.end, piece.node));
        pieces.dedup_by(|again, first| {
            let is_same = again.span == first.span;
            first.is_shared |= is_same;
            is_same
        });
        Self { text, nodes, pieces }
    }

    pub(super) fn run(&self) -> Setters {
        let mut found = Setters::default();
        for (number, line) in (1..).zip(lines(self.text)) {
            if !marker::has_word(&self.text[line.clone()]) {
                continue;
            }
            for hash in self.hashes(&line) {
                if self.is_in_piece(hash) {
                    found.problems.extend(self.in_text(number, hash..line.end));
                    continue;
                }
                self.comment(number, line.start..hash, &self.text[hash..line.end], &mut found);
                break;
            }
        }
        found
    }

    /// Returns the positions in a line at which a comment can start.
    fn hashes(&self, line: &Range<usize>) -> impl Iterator<Item = usize> + use<'a> {
        let (text, start) = (&self.text[line.clone()], line.start);
        let is_first =
            move |at: usize| text[..at].trim_start_matches('\u{feff}').is_empty() || text[..at].ends_with([' ', '\t']);
        text.match_indices('#').map(|(at, _)| at).filter(move |at| is_first(*at)).map(move |at| start + at)
    }

    /// Returns the problem of a part of a text that could be a comment. A text can contain anything, so only a complete marker counts.
    fn in_text(&self, line: u64, part: Range<usize>) -> Option<Problem> {
        let end = self.text.floor_char_boundary(part.end.min(part.start + LONGEST));
        let Marker { environment, .. } = marker::parse(&self.text[part.start..end], true)?.ok()?;
        Some(Problem { line, environment: Some(environment), error: SetterError::InText })
    }

    fn is_in_piece(&self, at: usize) -> bool {
        let after = self.pieces.partition_point(|piece| piece.span.start <= at);
        after > 0 && self.pieces[after - 1].span.contains(&at)
    }

    /// Adds what a comment marks. `before` is the rest of its line.
    fn comment(&self, line: u64, before: Range<usize>, comment: &str, found: &mut Setters) {
        let is_after_value = !self.text[before.clone()].trim_matches(['\u{feff}', ' ', '\t']).is_empty();
        match marker::parse(comment, is_after_value) {
            None => {}
            Some(Err(problem)) => {
                let error = SetterError::Malformed(problem);
                found.problems.push(Problem { line, environment: None, error });
            }
            Some(Ok(Marker { environment, part })) => match self.value(before) {
                Ok(piece) => found.setters.push(self.setter(line, environment, part, piece)),
                Err(error) => found.problems.push(Problem { line, environment: Some(environment), error }),
            },
        }
    }

    fn setter(&self, line: u64, environment: EnvironmentRef, part: Part, piece: &Piece) -> Setter {
        let value = match &self.nodes[piece.node].content {
            Content::Value(Scalar::Text(text)) => text.clone(),
            _ => self.text[piece.span.clone()].to_owned(),
        };
        Setter { line, environment, part, value, span: piece.span.clone(), node: piece.node }
    }

    /// Returns the only value of a part of a line.
    fn value(&self, line: Range<usize>) -> Result<&Piece, SetterError> {
        let first = self.pieces.partition_point(|piece| piece.span.end <= line.start);
        let after = self.pieces.partition_point(|piece| piece.span.start < line.end);
        let pieces = self.pieces.get(first..after).unwrap_or_default();
        let values: Vec<&Piece> = pieces.iter().filter(|piece| !piece.is_key).collect();
        let value = match values[..] {
            [] => return Err(no_value(&self.without(pieces, line))),
            [value, ..] if value.span.start < line.start => return Err(SetterError::SeveralLines),
            [value] => value,
            _ => return Err(SetterError::FlowStyle),
        };
        let before = self.without(pieces, line.start..value.span.start);
        let after = self.without(pieces, value.span.end..line.end);
        if before.contains(['&', '*', '!']) {
            return Err(SetterError::Property);
        }
        if !before.trim_matches(['\u{feff}', ' ', '\t', '-', ':', '?']).is_empty()
            || !after.trim_matches([' ', '\t']).is_empty()
        {
            return Err(SetterError::FlowStyle);
        }
        if value.is_shared { Err(SetterError::UsedTwice) } else { Ok(value) }
    }

    /// Returns a part of the text without keys and values.
    fn without(&self, pieces: &[Piece], part: Range<usize>) -> String {
        let (mut rest, mut at) = (String::new(), part.start);
        for piece in pieces.iter().filter(|piece| piece.span.start < part.end && piece.span.end > part.start) {
            rest.push_str(self.text.get(at..piece.span.start).unwrap_or_default());
            at = piece.span.end;
        }
        rest.push_str(self.text.get(at..part.end).unwrap_or_default());
        rest
    }
}

/// Returns why a line has no value, from what it contains besides keys.
fn no_value(rest: &str) -> SetterError {
    if rest.contains(['&', '*', '!']) {
        SetterError::Property
    } else if rest.contains(['|', '>']) {
        SetterError::BlockScalar
    } else if rest.contains(['[', ']', '{', '}', ',']) {
        SetterError::FlowStyle
    } else {
        SetterError::NoValue
    }
}

/// Returns the positions of all lines without their line breaks. YAML ends a line with LF, CR LF or CR.
fn lines(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let start = next?;
        let Some(length) = text[start..].find(['\n', '\r']) else {
            next = None;
            return Some(start..text.len());
        };
        let end = start + length;
        next = Some(if text[end..].starts_with("\r\n") { end + 2 } else { end + 1 });
        Some(start..end)
    })
}
