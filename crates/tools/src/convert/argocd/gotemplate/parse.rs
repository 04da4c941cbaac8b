//! The syntax of Go's templates, as far as notifications of Argo CD use it. Pure.
//!
//! In: a source. Out: its nodes, or a [`Refusal`] with the line. The grammar:
//!
//! ```text
//! template = { text | action }
//! action   = "{{" [ "-" space ] body [ space "-" ] "}}"
//! body     = "/*" … "*/" | pipeline | "if" pipeline | "else" [ "if" pipeline ] | "end" | "range" …
//! pipeline = command { "|" command }
//! command  = operand | function { operand }
//! operand  = field | text | number | "true" | "false" | "nil" | function | "(" pipeline ")"
//! field    = [ "$" ] "." name { "." name }
//! text     = a string of Go, in quotation marks or back quotes
//! ```
//!
//! A range over a list of the Application is skipped with what is in it, because a change has no such list. Everything else is refused:
//! variables, `with`, `define`, `template`, methods, and fields of results.

use std::collections::VecDeque;

use super::expression::expression;

/// Maximum length of a source, in bytes.
const LONGEST: usize = 64 * 1024;
/// Maximum number of tags.
const TAGS: usize = 512;
/// Maximum depth of blocks and of brackets.
pub(super) const DEEPEST: usize = 16;
/// White space that a dash removes.
const WHITE: [char; 4] = [' ', '\t', '\r', '\n'];

/// Why a source has no counterpart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Refusal {
    /// The number of lines before the tag.
    pub(in super::super) line: usize,
    /// The problem, with the tag.
    pub(in super::super) why: String,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Text(String),
    Value {
        value: Expr,
        tag: Tag,
    },
    If {
        arms: Vec<(Expr, Vec<Node>)>,
        otherwise: Vec<Node>,
        tag: Tag,
    },
    /// A range over a list of the Application, without its content.
    Range {
        tag: Tag,
    },
}

/// An expression. A pipeline is a call whose last argument is what is before the bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expr {
    Text(String),
    Number(String),
    Bool(bool),
    Nil,
    Field(Vec<String>),
    Call(String, Vec<Expr>),
}

/// What is between two pairs of braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) line: usize,
    pub(super) text: String,
}

impl Tag {
    /// Returns the refusal for this tag. The tag is shortened, because it can be long.
    pub(super) fn refuse(&self, why: &str) -> Refusal {
        let mut text: String = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.chars().count() > 60 {
            text = text.chars().take(59).chain(['…']).collect();
        }
        Refusal { line: self.line, why: format!("{{{{{text}}}}}: {why}") }
    }
}

enum Piece {
    Text(String),
    Tag(Tag),
}

/// What ends a list of nodes.
enum Stop {
    Source,
    Else(Option<Expr>),
    End,
}

/// Parses a source.
pub(super) fn parse(source: &str) -> Result<Vec<Node>, Refusal> {
    if source.len() > LONGEST {
        return Err(Refusal { line: 0, why: "the template has more than 64 KiB".to_owned() });
    }
    let pieces = pieces(source)?;
    let mut parser = Parser { pieces: pieces.into() };
    match parser.nodes(0)? {
        (nodes, Stop::Source) => Ok(nodes),
        (_, Stop::Else(_) | Stop::End) => Err(Refusal { line: 0, why: "an `else` or `end` has no beginning".to_owned() }),
    }
}

fn pieces(source: &str) -> Result<Vec<Piece>, Refusal> {
    let (mut pieces, mut tags) = (Vec::new(), 0);
    let (mut at, mut line, mut trims) = (0, 0, false);
    loop {
        let open = source[at..].find("{{").map(|found| at + found);
        let whole = &source[at..open.unwrap_or(source.len())];
        line += whole.matches('\n').count();
        let mut text = if trims { whole.trim_start_matches(WHITE) } else { whole };
        let Some(open) = open else {
            pieces.push(Piece::Text(text.to_owned()));
            return Ok(pieces);
        };
        let inner = &source[open + 2..];
        let Some(end) = end_of(inner) else {
            return Err(Refusal { line, why: "a tag is not closed".to_owned() });
        };
        let mut tag = &inner[..end];
        let begun = tag.strip_prefix('-').filter(|rest| rest.starts_with(WHITE));
        if let Some(rest) = begun {
            (text, tag) = (text.trim_end_matches(WHITE), rest);
        }
        let ended = tag.strip_suffix('-').filter(|rest| rest.ends_with(WHITE));
        trims = ended.is_some();
        let body = ended.unwrap_or(tag).trim();
        pieces.push(Piece::Text(text.to_owned()));
        tags += 1;
        if tags > TAGS {
            return Err(Refusal { line, why: format!("the template has more than {TAGS} tags") });
        }
        if !body.starts_with("/*") {
            pieces.push(Piece::Tag(Tag { line, text: body.to_owned() }));
        }
        line += inner[..end].matches('\n').count();
        at = open + 2 + end + 2;
    }
}

/// Returns the length of a tag up to its end. Braces in texts and comments do not count.
fn end_of(inner: &str) -> Option<usize> {
    let begin = inner.trim_start_matches(['-', ' ', '\t', '\r', '\n']);
    if begin.starts_with("/*") {
        let comment = inner.find("*/")? + 2;
        return inner[comment..].find("}}").map(|found| comment + found);
    }
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in inner.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some('"' | '\'') if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            None if matches!(c, '"' | '\'' | '`') => quote = Some(c),
            None if inner[at..].starts_with("}}") => return Some(at),
            _ => {}
        }
    }
    None
}

struct Parser {
    pieces: VecDeque<Piece>,
}

impl Parser {
    fn nodes(&mut self, depth: usize) -> Result<(Vec<Node>, Stop), Refusal> {
        let mut nodes = Vec::new();
        while let Some(piece) = self.pieces.pop_front() {
            let tag = match piece {
                Piece::Text(text) => {
                    push(&mut nodes, text);
                    continue;
                }
                Piece::Tag(tag) => tag,
            };
            let (word, rest) = first_word(&tag.text);
            match word {
                "end" => return Ok((nodes, Stop::End)),
                "else" => {
                    let (next, condition) = first_word(rest);
                    return match next {
                        "" => Ok((nodes, Stop::Else(None))),
                        "if" => Ok((nodes, Stop::Else(Some(expression(condition, &tag)?)))),
                        _ => Err(tag.refuse("there is no counterpart")),
                    };
                }
                "if" => {
                    if depth == DEEPEST {
                        return Err(tag.refuse("blocks are nested too deeply"));
                    }
                    let condition = expression(rest, &tag)?;
                    nodes.push(self.choice(condition, tag, depth + 1)?);
                }
                "range" => {
                    let over = rest.rsplit(":=").next().unwrap_or_default().trim().trim_start_matches('$');
                    if !over.starts_with(".app.") {
                        return Err(
                            tag.refuse("a loop has a counterpart only over a list of the Application, and is left out")
                        );
                    }
                    self.skip(&tag)?;
                    nodes.push(Node::Range { tag });
                }
                "with" | "define" | "template" | "block" | "break" | "continue" => {
                    return Err(tag.refuse("there is no counterpart"));
                }
                _ => match expression(&tag.text, &tag)? {
                    Expr::Text(text) => push(&mut nodes, text),
                    value => nodes.push(Node::Value { value, tag }),
                },
            }
        }
        Ok((nodes, Stop::Source))
    }

    fn choice(&mut self, condition: Expr, tag: Tag, depth: usize) -> Result<Node, Refusal> {
        let mut arms = Vec::new();
        let mut condition = Some(condition);
        loop {
            let (nodes, end) = self.nodes(depth)?;
            let (otherwise, next) = match (condition.take(), end) {
                (_, Stop::Source) => return Err(tag.refuse("the block is not closed")),
                (None, Stop::Else(_)) => return Err(tag.refuse("the block has two parts after `else`")),
                (None, Stop::End) => (Some(nodes), None),
                (Some(of), end) => {
                    arms.push((of, nodes));
                    match end {
                        Stop::Else(next) => (None, next),
                        Stop::End | Stop::Source => (Some(Vec::new()), None),
                    }
                }
            };
            if let Some(otherwise) = otherwise {
                return Ok(Node::If { arms, otherwise, tag });
            }
            condition = next;
        }
    }

    /// Skips what is in a block.
    fn skip(&mut self, of: &Tag) -> Result<(), Refusal> {
        let mut depth = 0_usize;
        while let Some(piece) = self.pieces.pop_front() {
            let Piece::Tag(tag) = piece else { continue };
            match first_word(&tag.text).0 {
                "if" | "range" | "with" | "block" | "define" => depth += 1,
                "end" if depth == 0 => return Ok(()),
                "end" => depth -= 1,
                _ => {}
            }
        }
        Err(of.refuse("the block is not closed"))
    }
}

/// Appends a text.
fn push(nodes: &mut Vec<Node>, text: String) {
    match nodes.last_mut() {
        Some(Node::Text(before)) => before.push_str(&text),
        _ if text.is_empty() => {}
        _ => nodes.push(Node::Text(text)),
    }
}

/// Divides a tag into its first word and the rest.
fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_and_comments_leave_the_text_that_go_leaves() {
        for (source, expected) in [
            ("a {{- /* b */ -}} c", "ac"),
            ("a {{/* }} */}}b", "a b"),
            ("a\n{{- \"b\" }} c", "ab c"),
            ("{{ `{{x}}` }}", "{{x}}"),
            ("{{\"a\\\"}}\\n\"}}", "a\"}}\n"),
            ("a{{-1}}", ""),
        ] {
            let nodes = parse(source).unwrap();
            let text: String =
                nodes.iter().map(|node| if let Node::Text(text) = node { text.as_str() } else { "" }).collect();
            if !expected.is_empty() {
                assert_eq!(text, expected, "{source}");
            }
        }
    }

    #[test]
    fn pipelines_are_calls() {
        let text = |text: &str| Expr::Text(text.to_owned());
        let field = |path: &str| Expr::Field(path.split('.').map(str::to_owned).collect());
        let call = |name: &str, of: &[Expr]| Expr::Call(name.to_owned(), of.to_vec());
        for (source, expected) in [
            ("{{.a.b | trunc 7 | upper}}", call("upper", &[call("trunc", &[Expr::Number("7".to_owned()), field("a.b")])])),
            ("{{ index $.app.x \"y\" }}", call("index", &[field("app.x"), text("y")])),
            ("{{(eq (lower .a) \"b\")}}", call("eq", &[call("lower", &[field("a")]), text("b")])),
            ("{{now}}", call("now", &[])),
        ] {
            let [Node::Value { value, .. }]: [Node; 1] = parse(source).unwrap().try_into().unwrap() else {
                panic!("{source}")
            };
            assert_eq!(value, expected, "{source}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_line() {
        for (source, line, words) in [
            ("a\n{{$x := .app.y}}", 1, "variable"),
            ("{{if .a}}\nb", 0, "not closed"),
            ("a\n\n{{with .app}}x{{end}}", 2, "no counterpart"),
            ("{{range .context.list}}x{{end}}", 0, "a loop"),
            ("{{range .app.list}}x", 0, "not closed"),
            ("{{(call .repo.x).Author}}", 0, "a field of a result"),
            ("{{.app.Method \"x\"}}", 0, "a method"),
            ("{{.}}", 0, "the dot alone"),
            ("{{(.a}}", 0, "not closed"),
            ("{{.a)}}", 0, "no beginning"),
            ("{{.a", 0, "a tag is not closed"),
            ("{{end}}", 0, "no beginning"),
            ("{{}}", 0, "it is empty"),
            ("{{if .a}}b{{else}}c{{else}}d{{end}}", 0, "two parts"),
            ("{{\"\\x41\"}}", 0, "an escape"),
            ("{{.a ? .b}}", 0, "not understood"),
        ] {
            let refusal = parse(source).unwrap_err();
            assert!(refusal.line == line && refusal.why.contains(words), "{source}: {refusal:?}");
        }
        for hostile in
            ["{{if .a}}".repeat(600), format!("{{{{{}.a}}}}", "(".repeat(5_000)), "{{if .a}}".repeat(20), "x".repeat(70_000)]
        {
            assert!(parse(&hostile).is_err());
        }
    }
}
