//! Limits that reject a source before it is parsed.
//!
//! The parser recurses for every block and parenthesis, and some of its rules look ahead to the end of the source. So one loop without
//! backtracking limits depth, tags and runs of backslashes here. It also rejects features of Handlebars that Relaybook does not support
//! (partials, decorators, unescaped output), with a clear error.

use std::ops::Range;

use crate::render::error::{Position, RenderError, for_message};
use crate::render::{MAX_NESTING, MAX_SOURCE, MAX_TAGS};

/// Maximum number of backslashes in a row. Longer runs make the work of the parser quadratic, and no format needs them.
const MAX_BACKSLASHES: usize = 32;

/// Positions that the parser does not keep. `chains` contains a list for each block, in the order in which blocks open, with the positions
/// of its `{{else …}}` tags with a condition.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outline {
    pub(crate) chains: Vec<Vec<Position>>,
    /// The byte ranges of the texts between tags, in order. A text also ends at literal braces.
    pub(crate) texts: Vec<Range<usize>>,
}

/// Checks a source and returns its outline.
pub(crate) fn scan(source: &str) -> Result<Outline, RenderError> {
    if source.len() > MAX_SOURCE {
        return Err(RenderError::TooLong(source.len()));
    }
    let known = (0, Position::START);
    let mut scanner = Scanner { source, at: 0, known, open: Vec::new(), outline: Outline::default() };
    if let Some(offset) = source.find(&"\\".repeat(MAX_BACKSLASHES + 1)) {
        return scanner.refuse(offset, "there are too many backslashes in a row");
    }
    if source.matches("{{").count() > MAX_TAGS {
        return Err(RenderError::TooManyTags);
    }
    while let Some(found) = scanner.rest().find("{{") {
        let tag = scanner.at + found;
        scanner.outline.texts.push(scanner.at..tag);
        // One backslash makes the braces literal. Two backslashes mean one backslash before a tag.
        if source[scanner.at..tag].chars().rev().take_while(|c| *c == '\\').count() == 1 {
            scanner.at = tag + 2;
            scanner.skip("{{");
        } else {
            scanner.tag(tag)?;
        }
    }
    scanner.outline.texts.push(scanner.at..source.len());
    match scanner.open.pop() {
        Some(block) => {
            scanner.refuse(block.offset, format!("`{0}` is not closed; write {{{{/{0}}}}}", for_message(block.name)))
        }
        None => Ok(scanner.outline),
    }
}

struct Scanner<'a> {
    source: &'a str,
    /// Everything before this offset is scanned.
    at: usize,
    /// An offset and its position. The positions of later offsets are counted from it.
    known: (usize, Position),
    open: Vec<Block<'a>>,
    outline: Outline,
}

/// A block that is not closed yet.
struct Block<'a> {
    offset: usize,
    name: &'a str,
    /// Its index in [`Outline::chains`].
    number: usize,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    /// Steps over `expected` if it is next.
    fn skip(&mut self, expected: &str) -> bool {
        let is_next = self.rest().starts_with(expected);
        if is_next {
            self.at += expected.len();
        }
        is_next
    }

    /// Steps over characters while they are of a kind, and returns them.
    fn skip_while(&mut self, of_kind: fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c| !of_kind(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn skip_space(&mut self) {
        self.skip_while(|c| matches!(c, ' ' | '\t' | '\r' | '\n'));
    }

    fn refuse<T>(&self, offset: usize, problem: impl Into<String>) -> Result<T, RenderError> {
        Err(RenderError::Syntax { at: Position::of(self.source, offset), problem: problem.into() })
    }

    /// Reads the tag that opens at `tag`, to its end.
    fn tag(&mut self, tag: usize) -> Result<(), RenderError> {
        self.at = tag + 2;
        if self.skip("!") {
            return self.comment(tag);
        }
        self.skip_space();
        self.skip("~");
        self.skip_space();
        if self.skip("#") {
            self.skip_space();
            self.refuse_foreign(tag)?;
            return self.open_block(tag);
        }
        self.refuse_foreign(tag)?;
        if self.skip("/") {
            self.close_block(tag)?;
        } else {
            self.note_else(tag);
        }
        self.inside(tag)
    }

    /// Rejects the features of Handlebars that Relaybook does not support.
    fn refuse_foreign(&self, tag: usize) -> Result<(), RenderError> {
        match self.rest().chars().next() {
            Some('{') => self.refuse(
                tag,
                "{{{ would insert a value without escaping; write {{ }}, with `json` for a value that is JSON itself (put a space \
                 between a literal brace and a tag)",
            ),
            Some('&') => self.refuse(tag, "{{& would insert a value without escaping; write {{ }}"),
            Some('>') => self.refuse(tag, "partials are not supported; write the text here"),
            Some('*') => self.refuse(tag, "decorators are not supported; write the text here"),
            _ => Ok(()),
        }
    }

    /// Reads a comment. It ends at the first `}}`, or at the first `--}}` if it starts with `--`.
    fn comment(&mut self, tag: usize) -> Result<(), RenderError> {
        self.skip_space();
        let end = if self.skip("--") { "--}}" } else { "}}" };
        match self.rest().find(end) {
            Some(length) => {
                self.at += length + end.len();
                Ok(())
            }
            None => self.refuse(tag, format!("the comment is not closed; end it with {end}")),
        }
    }

    fn open_block(&mut self, tag: usize) -> Result<(), RenderError> {
        let name = self.skip_while(is_symbol);
        if self.open.len() == MAX_NESTING {
            return self.refuse(tag, format!("blocks are nested deeper than {MAX_NESTING}"));
        }
        self.open.push(Block { offset: tag, name, number: self.outline.chains.len() });
        self.outline.chains.push(Vec::new());
        self.inside(tag)
    }

    fn close_block(&mut self, tag: usize) -> Result<(), RenderError> {
        self.skip_space();
        let name = self.skip_while(is_symbol);
        match self.open.pop() {
            Some(block) if block.name == name => Ok(()),
            Some(block) => {
                self.refuse(tag, format!("`{}` is closed before `{}`", for_message(name), for_message(block.name)))
            }
            None => self.refuse(tag, format!("`{}` is closed but was not opened", for_message(name))),
        }
    }

    /// Records the position of `{{else if …}}`. The position of a bare `{{else}}` is not needed, because it cannot be invalid.
    fn note_else(&mut self, tag: usize) {
        if self.skip("^") || self.skip("else") {
            self.skip_space();
            let is_bare = self.rest().starts_with(['~', '}']);
            if let (false, Some(block)) = (is_bare, self.open.last()) {
                let (offset, position) = self.known;
                let position = position.after(&self.source[offset..tag]);
                self.known = (tag, position);
                self.outline.chains[block.number].push(position);
            }
        }
    }

    /// Reads the inside of a tag, past its `}}`.
    fn inside(&mut self, tag: usize) -> Result<(), RenderError> {
        let mut depth = 0_usize;
        while let Some(next) = self.rest().chars().next() {
            if self.skip("}}") {
                return Ok(());
            }
            self.at += next.len_utf8();
            match next {
                '"' | '\'' => self.text_literal(tag, next)?,
                '[' => self.segment(tag)?,
                '{' => return self.refuse(tag, "a tag must not contain braces; close it with }}"),
                '(' if depth == MAX_NESTING => {
                    return self.refuse(tag, format!("parentheses are nested deeper than {MAX_NESTING}"));
                }
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        self.refuse(tag, "the tag is not closed; end it with }}")
    }

    fn text_literal(&mut self, tag: usize, quote: char) -> Result<(), RenderError> {
        let mut escaped = false;
        for (offset, c) in self.rest().char_indices() {
            if c == quote && !escaped {
                self.at += offset + 1;
                return Ok(());
            }
            escaped = c == '\\' && !escaped;
        }
        self.refuse(tag, format!("a string in this tag is not closed; end it with {quote}"))
    }

    /// Reads a path segment such as `[app.kubernetes.io/name]`. The parser tries to read a list first, and lists can nest.
    fn segment(&mut self, tag: usize) -> Result<(), RenderError> {
        let rest = self.rest();
        match rest.split_once(']') {
            Some((name, _)) if !name.is_empty() && !name.contains(['[', '{', '"', '\'']) => {
                self.at += name.len() + 1;
                Ok(())
            }
            _ => self.refuse(tag, "brackets are for names with dots, such as pipeline.labels.[app.kubernetes.io/name]"),
        }
    }
}

/// Whether a name can contain the character, by the rule of the parser.
fn is_symbol(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '$' | ':') || c >= '\u{80}'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_templates_are_accepted() {
        for source in [
            "",
            "plain } text }} with { braces",
            r#"{"a":{"b":{{json status}}}}"#,
            r"\{{literal}} \\{{status}} \{{{{also literal}}}}",
            "{{! it's a \"comment }}{{!-- with }} and {{#if --}}{{! -- spaced }} --}}",
            "{{#if (eq status \"}}\")}}a{{else if drifted}}b{{^}}c{{/if}}",
            "{{~#if drifted~}} a {{~else~}} b {{~/if~}}",
            "{{default pipeline.labels.[app.kubernetes.io/name}}] 'it\\'s'}}",
        ] {
            assert!(scan(source).is_ok(), "{source}: {:?}", scan(source));
        }
    }

    #[test]
    fn unsupported_syntax_is_refused_with_position_and_reason() {
        for (source, position, word) in [
            ("a\n {{{status}}}", "line 2, column 2", "json"),
            ("{{~{status}~}}", "line 1, column 1", "{{ }}"),
            ("{{{{raw}}}}{{{{/raw}}}}", "line 1, column 1", "{{ }}"),
            ("{{& status}}", "line 1, column 1", "{{ }}"),
            ("é{{> me}}", "line 1, column 2", "partials"),
            ("{{#> me}}{{/me}}", "line 1, column 1", "partials"),
            ("{{ # * inline \"x\"}}{{/inline}}", "line 1, column 1", "decorators"),
            ("{{*x}}", "line 1, column 1", "decorators"),
            ("{{#if a}}", "line 1, column 1", "{{/if}}"),
            ("{{#if a}}{{/each}}", "line 1, column 10", "closed before `if`"),
            ("{{/if}}", "line 1, column 1", "not opened"),
            ("{{status", "line 1, column 1", "}}"),
            ("{{upper \"status}}", "line 1, column 1", "end it with \""),
            ("{{!-- {{status}}", "line 1, column 1", "--}}"),
            ("{{json [[1]]}}", "line 1, column 1", "brackets"),
            ("{{json {\"a\":1}}}", "line 1, column 1", "braces"),
        ] {
            let message = scan(source).unwrap_err().to_string();
            assert!(message.starts_with(position) && message.contains(word), "{source}: {message}");
        }
    }

    #[test]
    fn the_nesting_of_blocks_and_calls_is_bounded() {
        let blocks = |n: usize| format!("{}{}", "{{#if drifted}}".repeat(n), "{{/if}}".repeat(n));
        assert!(scan(&blocks(16)).is_ok());
        assert!(scan(&blocks(17)).unwrap_err().to_string().contains("nested"));
        let calls = |n: usize| format!("{{{{json {}status{}}}}}", "(upper ".repeat(n), ")".repeat(n));
        assert!(scan(&calls(16)).is_ok());
        assert!(scan(&calls(17)).unwrap_err().to_string().contains("nested"));
        assert!(scan(&"{{#if drifted}}{{/if}}".repeat(200)).is_ok());
    }

    #[test]
    fn the_size_and_the_number_of_tags_of_a_template_are_bounded() {
        assert!(scan(&"x".repeat(MAX_SOURCE)).is_ok());
        assert!(matches!(scan(&"x".repeat(MAX_SOURCE + 1)), Err(RenderError::TooLong(_))));
        assert!(scan(&"{{id}}".repeat(MAX_TAGS)).is_ok());
        assert!(matches!(scan(&"{{id}}".repeat(MAX_TAGS + 1)), Err(RenderError::TooManyTags)));
        assert!(scan(&"\\".repeat(33)).is_err());
    }

    #[test]
    fn else_if_chains_are_listed_in_the_order_of_their_blocks() {
        let outline =
            scan("{{#if a}}{{#if b}}{{else if c}}{{/if}}\n{{else unless d}}{{else}}{{/if}}{{#if e}}{{/if}}").unwrap();
        let expected = vec![vec![Position { line: 2, column: 1 }], vec![Position { line: 1, column: 19 }], vec![]];
        assert_eq!(outline.chains, expected);
    }

    #[test]
    fn texts_between_tags_are_listed() {
        let source = r"a{{b}}c \{{d}} \\{{e}} f{{! g }}";
        let outline = scan(source).unwrap();
        let texts: Vec<_> = outline.texts.into_iter().map(|at| &source[at]).collect();
        assert_eq!(texts, ["a", r"c \", r"d}} \\", " f", ""]);
    }
}
